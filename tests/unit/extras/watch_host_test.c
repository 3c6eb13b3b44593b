/* watch_host_test.c -- a watch socket of the host (tw_watch_open): families of two engines that are host-driven, at one
 * place. Method: the clients are socket pairs.
 * Covers: extras/watch.c, extras/watch_answer.c, engine/stats.c. */
#include "tests/unit/rig.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_MS 20000

static struct rig one, other;
static tw_family *families[3];
static tw_watch *watch;
static char answer[1 << 16];

static int begin(void **state) {
    rig_open(&one);
    rig_open(&other);
    families[0] = rig_family(&one, "views", TW_WINDOW_FOREVER, 0);
    families[1] = rig_family(&other, "logins", TW_WINDOW_FOREVER, 0);
    families[2] = rig_family(&one, "third", TW_WINDOW_FOREVER, 0);
    (void)rig_family(&other, "hidden", TW_WINDOW_FOREVER, 0);
    watch = NULL;
    return 0;
}

static int end(void **state) {
    if (watch != NULL) tw_watch_close(watch);
    rig_close(&one);
    rig_close(&other);
    return 0;
}

/* Reads to the end of the stream. */
static const char *read_all(int fd) {
    size_t used = 0;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    for (ssize_t got = 1; got > 0; used += got > 0 ? (size_t)got : 0) {
        assert_int_equal(poll(&poll_fd, 1, WAIT_MS), 1);
        got = read(fd, answer + used, sizeof answer - 1 - used);
    }
    answer[used] = '\0';
    close(fd);
    return answer;
}

static const char *ask(const char *request) {
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(send(ends[0], request, strlen(request), MSG_NOSIGNAL), strlen(request));
    assert_status(tw_watch_take(watch, ends[1]), TW_OK);
    return read_all(ends[0]);
}

static void assert_has(const char *text, const char *what) {
    if (strstr(text, what) == NULL) fail_msg("no \"%s\" in \"%s\"", what, text);
}

TEST_WITH(families_of_several_engines_are_at_one_place, begin, end, NULL) {
    rig_add(families[0], "/", 3);
    rig_add(families[1], "ann", 5);
    rig_add(families[1], "bob", 1);
    assert_status(tw_watch_open(families, 2, 0, &watch), TW_OK);
    ask("status\n");
    assert_has(answer, "\nfamily\tlogins\t");
    assert_true(strstr(answer, "\nfamily\tlogins\t") < strstr(answer, "\nfamily\tviews\t"));
    assert_null(strstr(answer, "third"));
    assert_null(strstr(answer, "hidden"));
    assert_has(answer, "\nstat\tincrements\t3\n"); /* two engines are added up */
    assert_has(answer, "\nstat\tentries\t3\n");
    assert_has(answer, "\nstat\tprocesses\t1\n"); /* the greater one */
    assert_has(answer, "\nstat\tmemory_bytes_max\t134217728\n");
    assert_has(answer, "\nend\n");
    assert_has(ask("top logins 1\n"), "top\tlogins\tcounter\nkey\t5\t");
    assert_has(ask("key views /\n"), "\nkey\t3\t3\t0\t");
    assert_string_equal(ask("top hidden\n"), "error\tno family of that name is open\n");
    assert_string_equal(ask("reset logins ann\n"), "error\tthis socket does not write\tread_only\n");
    assert_has(ask("metrics\n"), "error\tthis socket has no page of metrics");
    assert_has(ask("openmetrics\n"), "error\tthis socket has no page of metrics");
}

TEST_WITH(a_host_allows_a_reset, begin, end, NULL) {
    rig_add(families[1], "ann", 5);
    assert_status(tw_watch_open(families, 3, 1, &watch), TW_OK);
    assert_string_equal(ask("reset logins ann\n"), "reset\tlogins\t1\t5\nend\n");
    assert_i64_equal(rig_get(families[1], "ann"), 0);
}

TEST_WITH(a_watch_has_families_of_different_names, begin, end, NULL) {
    tw_family *twice[2] = {families[0], rig_family(&other, "views", TW_WINDOW_FOREVER, 0)};
    assert_status(tw_watch_open(families, 0, 0, &watch), TW_ERR_RANGE);
    assert_status(tw_watch_open(twice, 2, 0, &watch), TW_ERR_RANGE);
    assert_string_equal(tw_error_text(), "families: two have one name");
    assert_null(watch);
}

/* Clients that are not served yet, or send no line, do not delay the end, and see it. */
TEST_WITH(closing_ends_every_client, begin, end, NULL) {
    int ends[100][2];
    assert_status(tw_watch_open(families, 1, 0, &watch), TW_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[i]), 0);
        assert_status(tw_watch_take(watch, ends[i][1]), TW_OK);
    }
    tw_watch_close(watch);
    watch = NULL;
    for (int i = 0; i < 100; i++) assert_string_equal(read_all(ends[i][0]), "");
}

TEST_WITH(what_is_no_descriptor_is_refused, begin, end, NULL) {
    assert_status(tw_watch_open(families, 1, 0, &watch), TW_OK);
    assert_status(tw_watch_take(watch, -1), TW_ERR_MEMORY);
    assert_has(ask("status\n"), "\nend\n");
}
