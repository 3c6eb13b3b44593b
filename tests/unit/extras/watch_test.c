/* watch_test.c -- the watch socket: who may connect, what is answered, whose file it is, and that nobody is delayed by
 * a client. Engines have threads of their own; a test talks to them as any client does, by connect().
 * Covers: extras/watch_socket.c, extras/watch_answer.c, engine/port/extras.h, engine/stats.c. */
#include "tests/unit/rig.h"

#include "engine/port/extras.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 20000

static char folder[64], path[100], error[400], logged[600];
static tw_engine *engine;
static tw_family *views;

static int begin(void **state) {
    strcpy(folder, "/tmp/watch-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/socket", folder);
    engine = NULL;
    return 0;
}

static int end(void **state) {
    if (engine != NULL) assert_status(tw_close(engine, 0), TW_OK);
    unlink(path);
    return rmdir(folder);
}

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

static void log_line(void *ctx, int level, int event, const char *text) {
    if (event == TW_EVENT_START && level == TW_LOG_ERROR) snprintf(logged, sizeof logged, "%s", text);
}

static tw_status open_with(const char *at, uint32_t writes, tw_engine **out) {
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(16) << 20;
    options.error_text = error;
    options.error_size = sizeof error;
    options.metrics_labels = "service=\"shop\"";
    options.watch_path = at;
    options.watch_writes = writes;
    options.log_write = log_line;
    strcpy(error, "nothing said");
    logged[0] = '\0';
    return tw_open(&options, out);
}

static tw_status open_at(const char *at, tw_engine **out) {
    return open_with(at, 0, out);
}

static void open_writing(uint32_t writes) {
    tw_family_options options = rig_options("views", TW_WINDOW_ALIGNED, TW_HOUR);
    if (open_with(path, writes, &engine) != TW_OK) fail_msg("%s", error);
    assert_status(tw_family_open(engine, &options, &views), TW_OK);
}

static void open_engine(void) {
    open_writing(0);
}

static int connect_to(const char *at) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

/* Reads to the end of the stream; fails if that does not come. */
static void read_all(int fd, char *out, size_t size) {
    size_t used = 0;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    for (ssize_t got = 1; got > 0; used += got > 0 ? (size_t)got : 0) {
        assert_int_equal(poll(&poll_fd, 1, WAIT_MS), 1);
        got = read(fd, out + used, size - 1 - used);
        assert_true(used + 1 < size);
    }
    out[used] = '\0';
    close(fd);
}

static char answer[1 << 20];

static const char *ask_bytes(const char *request, size_t size) {
    int fd = connect_to(path);
    assert_true(fd >= 0);
    assert_int_equal(send(fd, request, size, MSG_NOSIGNAL), size);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    read_all(fd, answer, sizeof answer);
    return answer;
}

static const char *ask(const char *request) {
    return ask_bytes(request, strlen(request));
}

static void assert_has(const char *text, const char *what) {
    if (strstr(text, what) == NULL) fail_msg("no \"%s\" in \"%s\"", what, text);
}

static void assert_ends(const char *text, const char *with) {
    size_t size = strlen(text), tail = strlen(with);
    if (size < tail || strcmp(text + size - tail, with) != 0) fail_msg("\"%s\" does not end with \"%s\"", text, with);
}

static bool is_gone(void *ctx) {
    struct stat stat;
    return lstat(path, &stat) != 0 && errno == ENOENT;
}

/* ---- what is answered -------------------------------------------------------------------------------------------- */

TEST_WITH(the_status_has_statistics_and_families, begin, end, NULL) {
    char line[200];
    open_engine();
    tw_family_options options = rig_options("logins", TW_WINDOW_FOREVER, 0);
    tw_family *logins;
    assert_status(tw_family_open(engine, &options, &logins), TW_OK);
    for (int i = 0; i < 3; i++) assert_status(tw_add(views, tw_str("/"), 1, NULL), TW_OK);
    for (int i = 0; i < 5; i++) (void)tw_acquire(logins, tw_str("user"), 1, 4, NULL);
    ask("status\n");
    snprintf(line, sizeof line, "tallywheel\t%s\nnow_ms\t", tw_version());
    assert_int_equal(strncmp(answer, line, strlen(line)), 0);
    snprintf(line, sizeof line, "\nprocess\t%ld\n", (long)getpid());
    assert_has(answer, line);
    assert_has(answer, "\nstat\tincrements\t7\n"); /* three views, four logins */
    assert_has(answer, "\nstat\tlimit_denied\t1\n");
    assert_has(answer, "\nlast_error\t\n");
    assert_has(answer, "\nfamily\tlogins\tcounter\tforever\t0\t0\t9223372036854775807\tsoft\tstring\t1\t1\t4\t1\t");
    assert_has(answer, "\nfamily\tviews\tcounter\taligned\t3600000\t");
    assert_ends(answer, "\nend\n");
    assert_true(strstr(answer, "family\tlogins") < strstr(answer, "family\tviews"));
}

TEST_WITH(every_statistic_is_in_the_status, begin, end, NULL) {
    open_engine();
    ask("status\n");
#define HAS(name, kind, text) assert_has(answer, "\nstat\t" #name "\t");
    TW_STATS(HAS)
#undef HAS
}

/* Keys are any bytes; in an answer a key never ends a line or a word. */
TEST_WITH(top_names_the_heaviest_keys_and_escapes_them, begin, end, NULL) {
    open_engine();
    assert_status(tw_add(views, tw_str("/plain \xc3\xa9"), 5, NULL), TW_OK);
    assert_status(tw_add(views, tw_bytes("a\tb\nc\\d\0e\x7f\r\x1b", 12), 7, NULL), TW_OK);
    assert_status(tw_add(views, tw_str("light"), 1, NULL), TW_OK);
    ask("top views 2\n");
    assert_int_equal(strncmp(answer, "top\tviews\tcounter\nkey\t7\t7\t0\t", 28), 0);
    assert_has(answer, "\ta\\tb\\nc\\\\d\\x00e\\x7F\\r\\x1B\nkey\t5\t5\t0\t");
    assert_ends(answer, "\t/plain \xc3\xa9\nend\n");
    assert_null(strstr(answer, "light"));
    assert_ends(ask("top views\n"), "\tlight\nend\n"); /* 20 of them */
}

TEST_WITH(distinct_counts_are_shown_as_such, begin, end, NULL) {
    open_engine();
    tw_family_options options = rig_options("visitors", TW_WINDOW_ALIGNED, TW_HOUR);
    options.kind = TW_KIND_DISTINCT;
    tw_family *visitors;
    assert_status(tw_family_open(engine, &options, &visitors), TW_OK);
    assert_status(tw_distinct_add(visitors, tw_str("/"), tw_str("ann"), NULL), TW_OK);
    assert_status(tw_distinct_add(visitors, tw_str("/"), tw_str("bob"), NULL), TW_OK);
    assert_int_equal(strncmp(ask("top visitors 5"), "top\tvisitors\tdistinct\nkey\t2\t2\t0\t", 32), 0);
}

TEST_WITH(a_moment_that_is_not_held_is_refused, begin, end, NULL) {
    open_engine();
    assert_status(tw_add(views, tw_str("/"), 1, NULL), TW_OK);
    assert_has(ask("top views 5 86400000\n"), "\nerror\t");
    assert_null(strstr(answer, "\nend\n"));
}

static bool collect(void *ctx, const char *text, size_t size) {
    strncat(ctx, text, size);
    return true;
}

/* The page is that of tw_metrics_write(). The same names, labels and order. Values may have moved. */
TEST_WITH(the_pages_of_metrics_are_those_of_the_library, begin, end, NULL) {
    static char page[1 << 18];
    static const struct {
        const char *request;
        uint32_t format;
    } cases[] = {{"metrics\n", TW_METRICS_PROMETHEUS}, {"openmetrics\n", TW_METRICS_OPENMETRICS}};
    open_engine();
    for (size_t i = 0; i < 2; i++) {
        page[0] = '\0';
        assert_status(tw_metrics_write(engine, cases[i].format, collect, page), TW_OK);
        const char *got = ask(cases[i].request), *want = page;
        while (*want != '\0') { /* line by line, up to the value */
            const char *end_of_line = strchr(want, '\n');
            size_t size = *want == '#' ? (size_t)(end_of_line - want) : strcspn(want, "}") + 1;
            if (strncmp(got, want, size) != 0) fail_msg("\"%.80s\" is not \"%.80s\"", got, want);
            want = end_of_line + 1;
            assert_non_null(strchr(got, '\n'));
            got = strchr(got, '\n') + 1;
        }
        assert_string_equal(got, "");
    }
}

TEST_WITH(wrong_requests_get_a_sentence, begin, end, NULL) {
    static const struct {
        const char *bytes;
        size_t size;
        const char *answer;
    } cases[] = {
        {"", 0, ""}, /* nothing was asked */
        {"\n", 1, "error\tunknown request; help lists those that there are\n"},
        {"flush\n", 6, "error\tunknown request; help lists those that there are\n"},
        {"status now\n", 11, "error\tunknown request; help lists those that there are\n"},
        {"status\0\n", 8, "error\tunknown request; help lists those that there are\n"},
        {"\xff\xfe\n", 3, "error\tunknown request; help lists those that there are\n"},
        {"top\n", 4, "error\ttop wants a family: top FAMILY [N [MS]]\n"},
        {"top none\n", 9, "error\tno family of that name is open\n"},
        {"top views 0\n", 12, "error\tthe number of keys is not in 1..1000\n"},
        {"top views 1001\n", 15, "error\tthe number of keys is not in 1..1000\n"},
        {"top views 99999999999999999999999\n", 34, "error\tthe number of keys is not in 1..1000\n"},
        {"top views 5 x\n", 14, "error\tthe moment is no number of milliseconds\n"},
        {"top views 5 6 7\n", 16, "error\tunknown request; help lists those that there are\n"},
    };
    open_engine();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(ask_bytes(cases[i].bytes, cases[i].size), cases[i].answer);
    char longest[5000];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\n';
    int fd = connect_to(path); /* it may be answered, and closed, before all of it is sent */
    (void)!send(fd, longest, sizeof longest, MSG_NOSIGNAL);
    read_all(fd, answer, sizeof answer);
    assert_string_equal(answer, "error\tunknown request; help lists those that there are\n");
    assert_ends(ask("help\r\n"), "\nhelp\n");
}

TEST_WITH(a_key_is_reset_only_where_the_program_allows_it, begin, end, NULL) {
    int64_t view;
    open_engine();
    assert_status(tw_add(views, tw_str("/a b"), 3, NULL), TW_OK);
    assert_string_equal(ask("reset views /a b\n"), "error\tthis socket does not write\tread_only\n");
    assert_has(ask("key views /a b\n"), "\nkey\t3\t3\t0\t");
    assert_status(tw_close(engine, 0), TW_OK);
    open_writing(1);
    assert_status(tw_add(views, tw_str("/a b"), 4, NULL), TW_OK);
    assert_string_equal(ask("reset views /a b\n"), "reset\tviews\t1\t4\nend\n");
    assert_status(tw_get(views, tw_str("/a b"), &view), TW_OK);
    assert_int_equal(view, 0);
    assert_string_equal(ask("reset views /c\n"), "reset\tviews\t0\t0\nend\n");
}

TEST_WITH(writing_is_0_or_1_and_needs_a_path, begin, end, NULL) {
    assert_status(open_with(path, 2, &engine), TW_ERR_OPTIONS);
    assert_has(error, "watch_writes: 2 is neither 0 nor 1");
    assert_status(open_with(NULL, 1, &engine), TW_ERR_OPTIONS);
    assert_has(error, "watch_writes: needs a watch_path");
    engine = NULL;
}

/* ---- whose file it is -------------------------------------------------------------------------------------------- */

TEST_WITH(only_the_user_may_connect_and_closing_removes_it, begin, end, NULL) {
    struct stat stat;
    mode_t before = umask(0);
    open_engine();
    umask(before);
    assert_int_equal(lstat(path, &stat), 0);
    assert_true(S_ISSOCK(stat.st_mode));
    assert_int_equal(stat.st_mode & 07777, 0600);
    assert_status(tw_close(engine, 0), TW_OK);
    engine = NULL;
    assert_true(is_gone(NULL));
}

static void leave_a_dead_socket(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1), 0);
    close(fd);
    assert_int_equal(connect_to(path), -1);
}

TEST_WITH(the_socket_of_a_dead_process_is_replaced, begin, end, NULL) {
    leave_a_dead_socket();
    open_engine();
    assert_ends(ask("status"), "\nend\n");
}

static void refused(const char *at, const char *why) {
    tw_engine *other = NULL;
    assert_status(open_at(at, &other), TW_ERR_OPTIONS);
    assert_int_equal(strncmp(error, "watch_path: ", 12), 0);
    assert_has(error, why);
    assert_string_equal(tw_error_text(), error);
    assert_null(other);
}

/* The program runs all the same. */
static void opens_without(const char *at, const char *why) {
    tw_engine *other = NULL;
    assert_status(open_at(at, &other), TW_OK);
    assert_has(logged, "no watch socket (watch_path): ");
    assert_has(logged, why);
    assert_status(tw_close(other, 0), TW_OK);
}

TEST_WITH(a_path_that_cannot_be_used_is_logged_and_no_error, begin, end, NULL) {
    char text[300];
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(file, "mine", 4), 4);
    close(file);
    opens_without(path, "there is a file of that name, which is no socket");
    file = open(path, O_RDONLY);
    assert_int_equal(read(file, text, sizeof text), 4); /* untouched */
    close(file);
    unlink(path);
    opens_without("/nowhere/at/all", "No such file or directory");
    int squatter = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(squatter, LOCK_EX), 0); /* any user who may read the folder can do this */
    opens_without(path, "somebody else holds the lock (flock) of its folder");
    close(squatter);
    open_engine();
    assert_string_equal(logged, "");
}

TEST_WITH(a_path_that_is_no_path_is_refused_by_name, begin, end, NULL) {
    char long_path[200];
    refused("relative", "must be absolute");
    refused("", "must be absolute");
    refused("/tmp/%d", "after a percent sign");
    refused("/tmp/%", "after a percent sign");
    memset(long_path, 'a', sizeof long_path);
    long_path[0] = '/';
    long_path[108] = '\0'; /* one more than fits */
    refused(long_path, "at most 107 bytes");
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.watch_path = path;
    assert_status(tw_open(&options, &engine), TW_ERR_OPTIONS);
    assert_has(tw_error_text(), "watch_path: a host-driven engine");
}

TEST_WITH(two_engines_have_two_sockets, begin, end, NULL) {
    char second[120];
    tw_engine *other;
    open_engine();
    opens_without(path, "another engine listens there");
    assert_ends(ask("status"), "\nend\n"); /* the first one is as it was */
    snprintf(second, sizeof second, "%s/%%p-%%%%", folder);
    assert_status(open_at(second, &other), TW_OK);
    snprintf(second, sizeof second, "%s/%ld-%%", folder, (long)getpid());
    int fd = connect_to(second);
    assert_true(fd >= 0);
    close(fd);
    assert_status(tw_close(other, 0), TW_OK);
    assert_int_equal(connect_to(second), -1);
    assert_ends(ask("status"), "\nend\n");
}

/* A program that is started again may take the name of one that has not ended yet. */
TEST_WITH(another_file_of_that_name_is_left_alone, begin, end, NULL) {
    open_engine();
    assert_int_equal(unlink(path), 0);
    leave_a_dead_socket();
    assert_status(tw_close(engine, 0), TW_OK);
    engine = NULL;
    assert_false(is_gone(NULL));
}

/* ---- nobody is delayed ------------------------------------------------------------------------------------------- */

/* Clients that say nothing, or half a line, keep their places; those who ask are answered meanwhile. */
TEST_WITH(silent_clients_delay_nobody, begin, end, NULL) {
    int silent[6];
    open_engine();
    for (size_t i = 0; i < 6; i++) {
        silent[i] = connect_to(path);
        assert_true(silent[i] >= 0);
        if (i % 2 == 1) assert_int_equal(send(silent[i], "sta", 3, MSG_NOSIGNAL), 3);
    }
    for (int i = 0; i < 10; i++) assert_ends(ask("status\n"), "\nend\n");
    read_all(silent[1], answer, sizeof answer); /* its time is over: dropped without an answer */
    assert_string_equal(answer, "");
    for (size_t i = 0; i < 6; i++)
        if (i != 1) close(silent[i]);
}

/* More of them than places: the longest silent ones make room. A program asks once, and is answered at once. */
TEST_WITH(idle_clients_make_room, begin, end, NULL) {
    int idle[300];
    open_engine();
    int64_t began_ms = test_mono_ms();
    for (size_t i = 0; i < 300; i++) {
        idle[i] = connect_to(path);
        assert_true(idle[i] >= 0);
        if (i % 3 == 1) (void)send(idle[i], "sta", 3, MSG_NOSIGNAL);
    }
    for (int i = 0; i < 10; i++) assert_ends(ask("status\n"), "\nend\n");
    /* The last ones keep their places, if not more time has passed than each has. */
    bool is_kept = recv(idle[299], answer, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    assert_true(is_kept || test_mono_ms() - began_ms > 4000);
    read_all(idle[0], answer, sizeof answer);
    assert_string_equal(answer, "");
    for (size_t i = 1; i < 300; i++) close(idle[i]);
}

/* An answer that nobody takes is larger than what the socket holds. */
TEST_WITH(closing_does_not_wait_for_a_reader, begin, end, NULL) {
    char key[1000], byte;
    open_engine();
    memset(key, 1, sizeof key); /* four bytes each in the answer */
    for (int i = 0; i < 500; i++) {
        snprintf(key, 10, "%d", i);
        assert_status(tw_add(views, tw_bytes(key, sizeof key), 1, NULL), TW_OK);
    }
    int fd = connect_to(path);
    assert_int_equal(send(fd, "top views 1000\n", 15, MSG_NOSIGNAL), 15);
    assert_int_equal(read(fd, &byte, 1), 1); /* it is being sent */
    assert_status(tw_close(engine, 0), TW_OK);
    engine = NULL;
    read_all(fd, answer, sizeof answer);
    assert_null(strstr(answer, "\nend\n")); /* cut off */
}

/* Neither the fork nor the child's end takes the parent's socket away; a child has its own where the name differs. */
TEST_WITH(a_forked_child_has_a_socket_of_its_own_or_none, begin, end, NULL) {
    if (test_misses_wiped_pages()) return;
    char pattern[120], own[120];
    tw_engine *other;
    if (test_is_slow()) {
        test_leave_out(TEST_NO_FORK_HERE);
        return;
    }
    open_engine();
    snprintf(pattern, sizeof pattern, "%s/%%p", folder);
    assert_status(open_at(pattern, &other), TW_OK);
    pid_t child = fork();
    if (child == 0) {
        bool good = tw_add(views, tw_str("/"), 1, NULL) == TW_OK;
        snprintf(own, sizeof own, "%s/%ld", folder, (long)getpid());
        int fd = connect_to(own);
        char byte = 0;
        good = good && fd >= 0 && write(fd, "help\n", 5) == 5 && read(fd, &byte, 1) == 1 && byte == 's';
        good = tw_close(other, 0) == TW_OK && tw_close(engine, 0) == TW_OK && good && connect_to(own) < 0;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_has(ask("status\n"), "\nstat\tincrements\t0\n");
    assert_status(tw_close(other, 0), TW_OK);
}

/* ---- families that close ----------------------------------------------------------------------------------------- */

static bool is_freed(tw_engine *of) {
    return twi_load_relaxed(&of->roster.first) == NULL;
}

TEST(a_family_that_is_watched_is_not_freed) {
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("views", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family *family;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    assert_status(tw_add(family, tw_str("/"), 1, NULL), TW_OK);
    assert_ptr_equal(twi_watch_hold(rig.engine, "views"), family);
    assert_null(twi_watch_hold(rig.engine, "none")); /* which lets the first one go */
    assert_ptr_equal(twi_watch_hold(rig.engine, "views"), family);
    assert_status(tw_family_close(family), TW_OK);
    for (int i = 0; i < 50; i++) {
        fake_clock_advance_ms(&rig.clock, 100);
        assert_status(tw_turn(rig.engine), TW_OK);
    }
    assert_false(is_freed(rig.engine));
    assert_null(tw_family_find(rig.engine, "views")); /* its name is free all the same */
    twi_watch_let_go(rig.engine);
    for (int i = 0; i < 50 && !is_freed(rig.engine); i++) {
        fake_clock_advance_ms(&rig.clock, 100);
        assert_status(tw_turn(rig.engine), TW_OK);
    }
    assert_true(is_freed(rig.engine));
    rig_close(&rig);
}
