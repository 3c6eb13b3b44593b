/* several_processes.c -- processes that count the same keys through one Redis agree, whatever happens to scripts,
 * server and readers. */
#include "tests/redis/sync_support.h"

#include <sys/wait.h>
#include <unistd.h>

#define KEYS 200

static tw_key key_number(char *text, int number) {
    snprintf(text, 24, "key%d", number);
    return tw_str(text);
}

/* One process: adds 1 to every key `rounds` times. Exit status 0: everything was acknowledged. */
static int add_process(const char *url, int rounds, int64_t step_ms) {
    char text[24];
    tw_engine *engine = quick_engine(url, NULL);
    tw_family *family = family_of(engine, "shared", TW_WINDOW_FOREVER, 0);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < KEYS; i++)
            if (tw_add(family, key_number(text, i), 1, NULL) != TW_OK) return 2;
        test_sleep_ms(step_ms);
    }
    return tw_close(engine, 20000) == TW_OK ? 0 : 1;
}

static pid_t start_process(const char *url, int rounds, int64_t step_ms) {
    pid_t pid = test_fork(); /* before this process opens an engine */
    assert_true(pid >= 0);
    if (pid == 0) _exit(add_process(url, rounds, step_ms));
    return pid;
}

static void assert_exits_well(pid_t pid) {
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void assert_every_key(struct redis_server *server, int64_t want) {
    char name[48];
    for (int i = 0; i < KEYS; i++) {
        snprintf(name, sizeof name, "shared:key%d", i);
        assert_i64_equal(redis_server_get(server, name), want);
    }
}

/* Goal: the counts of two processes are exact after a restart (append-only file) and SCRIPT FLUSH (faults 11, 57).
 * Method: both add for a second; meanwhile scripts are flushed and the server is killed and started again. */
TEST(two_processes_agree_through_restart_and_script_flush) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct redis_server server;
    redis_server_start(&server, durable);
    pid_t a = start_process(server.url, 100, 10), b = start_process(server.url, 50, 20);
    test_sleep_ms(200); /* both processes count by now */
    assert_string_equal(redis_server_ask(&server, "SCRIPT", "FLUSH", NULL), "OK");
    test_sleep_ms(150); /* the scripts were loaded again */
    redis_server_kill(&server);
    test_sleep_ms(150); /* both meet an outage */
    redis_server_restart(&server);
    test_sleep_ms(100); /* both may be connected again */
    redis_server_ask(&server, "SCRIPT", "FLUSH", NULL);
    assert_exits_well(a);
    assert_exits_well(b);
    assert_every_key(&server, 150);
    redis_server_destroy(&server);
}

struct wanted {
    tw_family *family;
    tw_key key;
    int64_t view;
};

static bool view_is(void *ctx) {
    struct wanted *wanted = ctx;
    int64_t view = 0;
    return tw_get(wanted->family, wanted->key, &view) == TW_OK && view == wanted->view;
}

/* Goal: a process that only reads a key gets its total, and reading creates nothing in Redis. */
TEST(a_key_that_is_only_read_here_gets_its_total) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *writer = quick_engine(server.url, NULL), *reader = quick_engine(server.url, NULL);
    tw_family *written = family_of(writer, "reads", TW_WINDOW_FOREVER, 0),
              *read = family_of(reader, "reads", TW_WINDOW_FOREVER, 0);
    struct wanted wanted = {read, tw_str("a"), 5}, nothing = {read, tw_str("never written"), 0};
    assert_true(view_is(&nothing));
    assert_status(tw_add(written, tw_str("a"), 5, NULL), TW_OK);
    assert_status(tw_flush(writer, TEST_PATIENCE_MS), TW_OK);
    assert_true(test_wait(view_is, &wanted, TEST_PATIENCE_MS));
    assert_status(tw_flush(reader, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "reads:a"), 5);
    assert_string_equal(redis_server_ask(&server, "EXISTS", "reads:never written", NULL), "0");
    assert_status(tw_close(writer, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(reader, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: sums and totals beyond 2^53 are exact, negative deltas too (faults 29, 30). */
TEST(sums_beyond_2_to_the_53_are_exact) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "SET", "big:a", "1152921504606846977", NULL); /* 2^60 + 1 */
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "big", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("a"), 3, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("b"), -TW_DELTA_MAX, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("b"), -TW_DELTA_MAX, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("zero"), 0, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "GET", "big:a", NULL), "1152921504606846980");
    assert_string_equal(redis_server_ask(&server, "GET", "big:b", NULL), "-18014398509481984");
    assert_string_equal(redis_server_ask(&server, "EXISTS", "big:zero", NULL), "0");
    int64_t view = 0;
    assert_status(tw_get(family, tw_str("a"), &view), TW_OK);
    assert_i64_equal(view, INT64_C(1152921504606846980));
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a forked child counts from zero under another instance, and neither disturbs the other (fault 43). Method: the
 * engine is open and connected before the fork; both keep adding. */
TEST(a_forked_child_is_an_engine_of_its_own) {
#ifdef __SANITIZE_THREAD__
    test_leave_out("ThreadSanitizer allows no new thread in a forked child: a build without it runs this");
    return;
#endif
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "forked", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("a"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_add(family, tw_str("a"), 10, NULL), TW_OK);
    pid_t pid = test_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool well = tw_add(family, tw_str("a"), 100, NULL) == TW_OK && tw_flush(engine, 5000) == TW_OK;
        _exit(well && tw_close(engine, 5000) == TW_OK ? 0 : 1);
    }
    assert_status(tw_add(family, tw_str("a"), 1000, NULL), TW_OK);
    assert_exits_well(pid);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "forked:a"), 1111);
    assert_i64_equal(test_stat_of(engine, disconnects), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: two engines of one process are two instances (fault 57). */
TEST(two_engines_of_one_process_add_up) {
    struct redis_server server;
    redis_server_start_tcp(&server, NULL);
    char url[64];
    snprintf(url, sizeof url, "redis://localhost:%d/3", server.port); /* a host name: the helper thread looks it up */
    tw_engine *a = quick_engine(url, NULL), *b = quick_engine(url, NULL);
    assert_status(tw_add(family_of(a, "two", TW_WINDOW_FOREVER, 0), tw_str("k"), 3, NULL), TW_OK);
    assert_status(tw_add(family_of(b, "two", TW_WINDOW_FOREVER, 0), tw_str("k"), 4, NULL), TW_OK);
    assert_status(tw_flush(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_flush(b, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "two:k"), 0); /* the counts went to database 3 */
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "MOVE", "two:k", "3", NULL), "0");
    assert_string_equal(redis_server_ask(&server, "SWAPDB", "0", "3", NULL), "OK");
    assert_i64_equal(redis_server_get(&server, "two:k"), 7);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run();
}
