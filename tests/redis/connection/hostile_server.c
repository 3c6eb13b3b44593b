/* hostile_server.c -- a server that sends slowly, sends garbage, sends nothing, or sends too much: the connection is
 * dropped in time, and no add notices. The rogue server is a thread on a unix socket of the test's own; no redis-server
 * takes part. */
#include "tests/redis/sync_support.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum manner { DRIPS, SILENT, BABBLES, TALKS_UNASKED, DEEP, HUGE_LENGTH, KNOWS_PING_ONLY, HANGS_UP, PAINTS };

struct rogue {
    enum manner manner;
    int listener;
    char folder[64], path[96], url[112];
    pthread_t thread;
    _Atomic bool stop;
    _Atomic int accepted;
};

static const char *words_of(enum manner manner) {
    switch (manner) {
    case DRIPS: return "+PONG\r\n$999\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    case BABBLES: return "HTTP/1.1 400 Bad Request\r\n\r\n";
    case TALKS_UNASKED: return "+PONG\r\n$2\r\nhi\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n";
    case DEEP: return "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n";
    case HUGE_LENGTH: return "$9999999999\r\n";
    default: return "";
    }
}

#define PAINTED "-ERR \x1b[2Jyou are root\r\n"

/* Serves one connection: sends its bytes in its manner until the other side closes. */
static void serve(struct rogue *rogue, int fd) {
    const char *words = words_of(rogue->manner);
    char bytes[4096];
    if (rogue->manner == HANGS_UP) return;
    if (rogue->manner != DRIPS) (void)!send(fd, words, strlen(words), MSG_NOSIGNAL);
    while (!atomic_load(&rogue->stop)) {
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};
        if (poll(&pollfd, 1, 20) > 0) {
            if (recv(fd, bytes, sizeof bytes, 0) <= 0) return;
            if (rogue->manner == KNOWS_PING_ONLY) {
                (void)!send(fd, "+PONG\r\n", 7, MSG_NOSIGNAL);
                return;
            }
            if (rogue->manner == PAINTS) (void)!send(fd, PAINTED, sizeof PAINTED - 1, MSG_NOSIGNAL);
        }
        if (rogue->manner == DRIPS && *words && send(fd, words++, 1, MSG_NOSIGNAL) < 0) return;
    }
}

static void *run(void *argument) {
    struct rogue *rogue = argument;
    while (!atomic_load(&rogue->stop)) {
        struct pollfd pollfd = {.fd = rogue->listener, .events = POLLIN};
        if (poll(&pollfd, 1, 20) <= 0) continue;
        int fd = accept(rogue->listener, NULL, NULL);
        if (fd < 0) continue;
        atomic_fetch_add(&rogue->accepted, 1);
        serve(rogue, fd);
        close(fd);
    }
    return NULL;
}

static void rogue_start(struct rogue *rogue, enum manner manner) {
    memset(rogue, 0, sizeof *rogue);
    rogue->manner = manner;
    snprintf(rogue->folder, sizeof rogue->folder, "/tmp/tallywheel-rogue-XXXXXX");
    assert_non_null(mkdtemp(rogue->folder));
    snprintf(rogue->path, sizeof rogue->path, "%s/socket", rogue->folder);
    snprintf(rogue->url, sizeof rogue->url, "unix://%s", rogue->path);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", rogue->path);
    rogue->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(rogue->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(rogue->listener, 16), 0);
    assert_int_equal(pthread_create(&rogue->thread, NULL, run, rogue), 0);
}

static void rogue_stop(struct rogue *rogue) {
    atomic_store(&rogue->stop, true);
    pthread_join(rogue->thread, NULL);
    close(rogue->listener);
    unlink(rogue->path);
    rmdir(rogue->folder);
}

/* Goal: whatever the server sends, adds go on, the connection is dropped, another one is made, and a close ends (faults
 * 5, 6, 7, 9, 10). The simulator tests how soon, on its own clock. */
TEST(a_rogue_server_costs_its_connection_and_no_more) {
    for (enum manner manner = DRIPS; manner <= HANGS_UP; manner++) {
        struct rogue rogue;
        struct lost lost = {0};
        tw_options options;
        tw_engine *engine;
        rogue_start(&rogue, manner);
        quick_options(&options, rogue.url);
        options.redis_timeout_ms = 200;
        options.on_lost = on_lost;
        options.lost_ctx = &lost;
        assert_status(test_open(&options, &engine), TW_OK);
        tw_family *family = family_of(engine, "rogue", TW_WINDOW_FOREVER, 0);
        int64_t added = 0;
        do {
            assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
            test_sleep_ms(1);
        } while (++added < 60000 && atomic_load(&rogue.accepted) < 3);
        assert_status(tw_close(engine, 100), TW_ERR_TIMEOUT);
        rogue_stop(&rogue);
        assert_i64_equal(lost.by_reason[TW_LOST_CLOSED], added);
        assert_true(rogue.accepted >= 3); /* each was dropped before the next was made */
    }
}

/* Goal: a proxy that knows PING, and closes at INFO as twemproxy does, has a log line that says what to do. */
TEST(a_proxy_that_closes_at_info_is_named) {
    struct rogue rogue;
    static struct log_lines lines;
    tw_options options;
    tw_engine *engine;
    memset(&lines, 0, sizeof lines);
    rogue_start(&rogue, KNOWS_PING_ONLY);
    quick_options(&options, rogue.url);
    options.redis_timeout_ms = TEST_PATIENCE_MS; /* the server is a thread, and as slow as its machine */
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "rogue", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    for (int i = 0; i < 20000 && atomic_load(&lines.count) == 0; i++) test_sleep_ms(1);
    (void)tw_close(engine, 100);
    rogue_stop(&rogue);
    assert_non_null(strstr(lines.text, "closed at INFO"));
    assert_non_null(strstr(lines.text, "Name Redis itself"));
}

static void assert_no_control(const char *text) {
    for (const char *at = text; *at != '\0'; at++)
        if (((unsigned char)*at < ' ' && *at != '\n') || *at == 127) fail_msg("a control character in \"%s\"", text);
}

/* Goal: a server whose every reply would clear a terminal clears none: not in the log, in tw_stats, in the text of an
 * audit. */
TEST(what_a_server_says_moves_no_terminal) {
    struct rogue rogue;
    static struct log_lines lines;
    tw_options options;
    tw_audit_options audit;
    tw_engine *engine;
    tw_stats stats;
    char text[200] = "";
    int waited_ms = 0;
    memset(&lines, 0, sizeof lines);
    rogue_start(&rogue, PAINTS);
    quick_options(&options, rogue.url);
    options.redis_timeout_ms = TEST_PATIENCE_MS; /* the server is a thread, and as slow as its machine */
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "rogue", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    /* read before the audit: it takes the server's time, so the engine's next error may be another one */
    do {
        test_sleep_ms(1);
        assert_status(tw_stats_read(engine, &stats), TW_OK);
    } while (++waited_ms < 20000 && (strstr(stats.last_error, "root") == NULL || atomic_load(&lines.count) == 0));
    tw_audit_options_init(&audit);
    audit.redis_url = rogue.url;
    audit.error_text = text;
    audit.error_size = sizeof text;
    audit.timeout_ms = TEST_PATIENCE_MS;
    assert_status(tw_audit(NULL, &audit, NULL, NULL, NULL), TW_ERR_REDIS);
    (void)tw_close(engine, 100);
    rogue_stop(&rogue);
    assert_non_null(strstr(text, "you are root"));
    assert_non_null(strstr(stats.last_error, "you are root"));
    assert_no_control(text);
    assert_no_control(stats.last_error);
    assert_no_control(lines.text);
}
