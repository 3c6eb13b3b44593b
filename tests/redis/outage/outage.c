/* outage.c -- Redis dies, hangs or refuses: callers notice nothing, and afterwards the sums agree, or the report says
 * why not. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};

struct adder {
    tw_family *family;
    _Atomic bool stop;
    int64_t added;
    tw_status worst;
};

static void *add_until_stopped(void *argument) {
    struct adder *adder = argument;
    while (!atomic_load(&adder->stop)) {
        tw_status status = tw_add(adder->family, tw_str("k"), 1, NULL);
        if (status != TW_OK) adder->worst = status;
        if (++adder->added % 512 == 0) usleep(200);
    }
    return NULL;
}

#define PATIENCE_MS 20000 /* time that a busy machine may need */

/* A figure of tw_stats, and the value that it is to exceed. */
struct growth {
    tw_engine *engine;
    size_t offset;
    int64_t from;
};

static bool has_grown(void *ctx) {
    const struct growth *growth = ctx;
    return test_stat(growth->engine, growth->offset) > growth->from;
}

#define figure_of(engine, field) \
    (struct growth) { \
        (engine), offsetof(tw_stats, field), test_stat_of((engine), field) \
    }

static void wait_for_more(struct growth than) {
    assert_true(test_wait(has_grown, &than, PATIENCE_MS));
}

/* Goal: kill -9 of Redis while counting changes nothing for callers, and the sums agree afterwards (faults 13, 44, 48).
 * Method: two threads add; the server is killed, hung and restarted under them. */
TEST(killing_redis_while_counting_loses_nothing) {
    struct redis_server server;
    redis_server_start(&server, durable);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "kill", TW_WINDOW_FOREVER, 0);
    struct adder adders[2] = {{.family = family}, {.family = family}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, add_until_stopped, &adders[i]), 0);
    for (int i = 0; i < 4; i++) {
        wait_for_more(figure_of(engine, batches_ok));
        test_sleep_ms(37 * i); /* at a random moment of the work */
        struct growth drops = figure_of(engine, disconnects);
        redis_server_kill(&server);
        wait_for_more(drops);
        redis_server_restart(&server);
    }
    wait_for_more(figure_of(engine, batches_ok));
    struct growth drops = figure_of(engine, disconnects);
    redis_server_pause(&server);
    wait_for_more(drops); /* at the reply's deadline the batch is sent again on a new connection */
    redis_server_resume(&server);
    wait_for_more(figure_of(engine, batches_ok));
    int64_t added = 0;
    for (int i = 0; i < 2; i++) {
        atomic_store(&adders[i].stop, true);
        pthread_join(threads[i], NULL);
        assert_status(adders[i].worst, TW_OK);
        added += adders[i].added;
    }
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "kill:k"), added);
    assert_true(test_stat_of(engine, disconnects) >= 5);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a close without Redis keeps its time limit and names the counts that were not sent (fault 48). */
TEST(closing_without_redis_keeps_its_time_and_names_what_is_lost) {
    struct lost lost = {0};
    tw_engine *engine = quick_engine("unix:///nowhere/redis.sock", &lost);
    tw_family *family = family_of(engine, "away", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_status(tw_add(family, tw_str("k"), 41, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    wait_for_more((struct growth){engine, offsetof(tw_stats, breaker_state), 0});
    assert_i64_equal(test_stat_of(engine, redis_connected), 0);
    assert_status(tw_flush(engine, 200), TW_ERR_TIMEOUT);
    assert_true(test_stat_of(engine, breaker_state) != 0);
    assert_true(test_stat_of(engine, outage_ms) >= 200); /* one clock for all tries */
    int64_t began_ms = test_mono_ms();
    assert_status(tw_close(engine, 300), TW_ERR_TIMEOUT);
    assert_true(test_mono_ms() - began_ms < 5000);
    assert_i64_equal(lost.by_reason[TW_LOST_CLOSED], 42);
    assert_i64_equal(lost.calls, 1);
    assert_string_equal(lost.key, "k");
}

/* Goal: neither a server that never answers nor a name that does not resolve delays an add, an open or a close (fault
 * 48). */
TEST(nothing_waits_for_a_black_hole) {
    static const char *const urls[] = {"redis://192.0.2.1:6379", "redis://no-such-host.invalid"};
    for (size_t i = 0; i < 2; i++) {
        int64_t began_ms = test_mono_ms();
        tw_engine *engine = quick_engine(urls[i], NULL);
        assert_status(tw_add(family_of(engine, "hole", TW_WINDOW_FOREVER, 0), tw_str("k"), 1, NULL), TW_OK);
        test_sleep_ms(50);
        (void)tw_close(engine, 100);
        assert_true(test_mono_ms() - began_ms < 3000);
    }
}

/* Goal: the server hangs and the engine closes: a batch in flight is reported as uncertain, later counts as closed. */
TEST(a_hung_server_leaves_what_was_sent_uncertain) {
    struct redis_server server;
    struct lost lost = {0};
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, &lost);
    tw_family *family = family_of(engine, "hung", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_pause(&server);
    struct growth sent = figure_of(engine, batches_sent);
    assert_status(tw_add(family, tw_str("k"), 10, NULL), TW_OK);
    wait_for_more(sent);
    assert_status(tw_close(engine, 200), TW_ERR_TIMEOUT);
    assert_i64_equal(lost.by_reason[TW_LOST_UNCERTAIN], 10);
    redis_server_resume(&server);
    redis_server_destroy(&server);
}

static int secret(void *ctx, char *out, size_t size) {
    strcpy(out, ctx);
    return (int)strlen(out);
}

/* The log of an engine that tries to flush with this URL until it succeeds or has logged why not; the last line is the
 * result of the flush. */
static struct log_lines run_with(const char *url, const char *password, bool may) {
    struct log_lines lines = {.text = ""};
    tw_options options;
    tw_engine *engine;
    quick_options(&options, url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    if (password) options.redis_password = secret, options.redis_password_ctx = (void *)(uintptr_t)password;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_status status = tw_add(family_of(engine, "auth", TW_WINDOW_FOREVER, 0), tw_str("k"), 1, NULL);
    assert_status(status, TW_OK);
    status = tw_flush(engine, 100);
    for (int i = 0; i < 200 && status != TW_OK && (may || atomic_load(&lines.count) == 0); i++)
        status = tw_flush(engine, 100);
    (void)tw_close(engine, 0); /* no log lines come after it */
    snprintf(lines.text + strlen(lines.text), 32, "%s", status == TW_OK ? "FLUSHED" : "not flushed");
    return lines;
}

/* Goal: a wrong password, user or database causes one log line and slow retries, and the log never shows a password
 * (fault 26). */
TEST(a_refused_login_is_logged_without_its_password) {
    struct redis_server server;
    char url[256];
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "CONFIG", "SET", "requirepass", "open sesame", NULL);
    snprintf(url, sizeof url, "unix://:open%%20sesame@%s", server.socket);
    struct log_lines right = run_with(url, NULL, true), callback = run_with(server.url, "open sesame", true);
    assert_non_null(strstr(right.text, "FLUSHED"));
    assert_non_null(strstr(callback.text, "FLUSHED"));
    struct log_lines wrong = run_with(server.url, "hunter2", false), none = run_with(server.url, NULL, false);
    assert_non_null(strstr(wrong.text, "0/12 Redis at"));
    assert_non_null(strstr(wrong.text, "WRONGPASS"));
    assert_null(strstr(wrong.text, "hunter2"));
    assert_non_null(strstr(none.text, "NOAUTH"));
    snprintf(url, sizeof url, "unix://:open%%20sesame@%s?db=9999", server.socket);
    struct log_lines db = run_with(url, NULL, false);
    assert_non_null(strstr(db.text, "the database"));
    assert_null(strstr(db.text, "FLUSHED"));
    assert_null(strstr(db.text, "sesame"));
    redis_server_destroy(&server);
}

static bool is_anything_logged(void *ctx) {
    struct log_lines *lines = ctx;
    return atomic_load(&lines->count) > 0;
}

/* The answer of a tw_close() that begins just after a refused login, when Redis has learnt of the user. */
static tw_status close_after_a_refusal(struct redis_server *server) {
    struct log_lines lines = {.text = ""};
    tw_options options;
    tw_engine *engine;
    char url[256];
    redis_server_ask(server, "ACL", "DELUSER", "late", NULL);
    snprintf(url, sizeof url, "unix://late:pw@%s", server->socket);
    quick_options(&options, url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    assert_status(tw_add(family_of(engine, "f", TW_WINDOW_FOREVER, 0), tw_str("k"), 1, NULL), TW_OK);
    assert_true(test_wait(is_anything_logged, &lines, PATIENCE_MS));
    redis_server_ask(server, "ACL", "SETUSER", "late", "on", ">pw", "~*", "+@all", NULL);
    return tw_close(engine, 1500);
}

/* Goal: a close does not wait for the end of a back-off, which may be longer than its time: Redis may be back. Method:
 * a refused login makes a pause of 2 s or more. A busy machine may need the time for itself: then again. */
TEST(a_close_tries_redis_once_more) {
    struct redis_server server;
    tw_status status = TW_ERR_TIMEOUT;
    int64_t before = 0;
    redis_server_start(&server, NULL);
    for (int tries = 0; tries < 5 && status != TW_OK; tries++) {
        before = redis_server_get(&server, "f:k");
        status = close_after_a_refusal(&server);
    }
    assert_status(status, TW_OK);
    assert_i64_equal(redis_server_get(&server, "f:k"), before + 1);
    redis_server_destroy(&server);
}

/* Goal: a server that refuses writes gets the same batch later, and nothing is counted twice (faults 23, 24). Method:
 * out of memory (maxmemory) and short of replicas (min-replicas-to-write) in turn, then neither. */
TEST(a_refusing_server_delays_and_doubles_nothing) {
    struct redis_server server;
    struct log_lines lines = {.text = ""};
    tw_options options;
    tw_engine *engine;
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "refused", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    static const char *const settings[][3] = {{"maxmemory", "1", "0"}, {"min-replicas-to-write", "1", "0"}};
    size_t kinds = redis_server_is_at_least(7, 0) ? 2 : 1;
    if (kinds == 1) test_leave_out("before Redis 7, min-replicas-to-write does not concern scripts: install Redis 7");
    for (size_t i = 0; i < kinds; i++) {
        redis_server_ask(&server, "CONFIG", "SET", settings[i][0], settings[i][1], NULL);
        assert_status(tw_add(family, tw_str("k"), 10, NULL), TW_OK);
        assert_status(tw_flush(engine, 300), TW_ERR_TIMEOUT);
        assert_i64_equal(redis_server_get(&server, "refused:k"), 1 + 10 * (int64_t)i);
        redis_server_ask(&server, "CONFIG", "SET", settings[i][0], settings[i][2], NULL);
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(redis_server_get(&server, "refused:k"), 11 + 10 * (int64_t)i);
    }
    assert_i64_equal(test_stat_of(engine, disconnects), 0); /* the refusal cost no connection */
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_non_null(strstr(lines.text, "OOM"));
    redis_server_destroy(&server);
}

/* Goal: a key that Redis refuses delays no other key, and is counted exactly once when it is repaired (faults 27,
 * 28). */
TEST(a_poisoned_key_waits_alone_and_lands_once) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "RPUSH", "poison:list", "x", NULL);
    redis_server_ask(&server, "SET", "poison:full", "9223372036854775807", NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "poison", TW_WINDOW_FOREVER, 0);
    static const char *const names[] = {"list", "full", "good"};
    for (size_t i = 0; i < 3; i++) assert_status(tw_add(family, tw_str(names[i]), 5, NULL), TW_OK);
    assert_status(tw_flush(engine, 5000), TW_ERR_REDIS);
    assert_i64_equal(redis_server_get(&server, "poison:good"), 5);
    assert_i64_equal(test_stat_of(engine, poison_keys), 2);
    redis_server_ask(&server, "DEL", "poison:list", "poison:full", NULL);
    assert_true(test_wait(is_flushed, engine, TEST_PATIENCE_MS));
    for (size_t i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "poison:%s", names[i]);
        assert_i64_equal(redis_server_get(&server, name), 5);
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a wiped Redis gets all that the replay window holds; a deleted ledger doubles nothing (faults 18, 20). */
TEST(a_wiped_redis_is_restored_and_a_lost_ledger_doubles_nothing) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "wiped", TW_WINDOW_FOREVER, 0);
    for (int i = 0; i < 5; i++) {
        assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    }
    redis_server_ask(&server, "FLUSHALL", NULL);
    assert_status(tw_add(family, tw_str("k"), 10, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "wiped:k"), 15);
    assert_i64_equal(test_stat_of(engine, rollbacks), 1);
    assert_i64_equal(test_stat_of(engine, lost), 0);
    redis_server_ask(&server, "EVAL",
                     "for _, k in ipairs(redis.call('KEYS', 'tw:ledger:*')) do redis.call('DEL', k) end", "0", NULL);
    assert_status(tw_add(family, tw_str("k"), 100, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "wiped:k"), 115);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a Redis that went back to a time before an engine's ledger, with its marker intact, is not taken for one that
 * evicted the ledger: it gets all that the engine has counted since (faults 17, 18). Method: a snapshot is saved while
 * one engine works, then a second one joins; kill -9, and the snapshot is loaded. */
TEST(a_redis_from_before_the_ledger_is_given_everything_again) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *old = quick_engine(server.url, NULL);
    assert_status(tw_add(family_of(old, "young", TW_WINDOW_FOREVER, 0), tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(old, TEST_PATIENCE_MS), TW_OK);
    redis_server_ask(&server, "SAVE", NULL);
    tw_engine *young = quick_engine(server.url, NULL);
    tw_family *family = family_of(young, "young", TW_WINDOW_FOREVER, 0);
    for (int i = 0; i < 3; i++) {
        assert_status(tw_add(family, tw_str("k"), 10, NULL), TW_OK);
        assert_status(tw_flush(young, TEST_PATIENCE_MS), TW_OK);
    }
    redis_server_kill(&server);
    redis_server_restart(&server);
    assert_i64_equal(redis_server_get(&server, "young:k"), 1);
    assert_status(tw_add(family, tw_str("k"), 100, NULL), TW_OK);
    assert_status(tw_flush(young, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "young:k"), 131);
    assert_i64_equal(test_stat_of(young, rollbacks), 1);
    assert_i64_equal(test_stat_of(young, lost) + test_stat_of(young, uncertain), 0);
    assert_status(tw_close(young, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(old, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: when Redis goes back, the counts of the last replay_ms are sent again; older ones are counted as lost, exactly.
 * Method: a snapshot, then a batch that grows too old, then a young one; kill -9, and the snapshot is loaded. */
TEST(what_is_older_than_replay_ms_is_counted_as_lost) {
    struct redis_server server;
    tw_options options;
    tw_engine *engine;
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.replay_ms = 3000;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "replay", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 100, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_ask(&server, "SAVE", NULL);
    assert_status(tw_add(family, tw_str("k"), 5, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    test_sleep_ms(3300); /* the batch leaves the replay window */
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_kill(&server);
    redis_server_restart(&server);
    assert_status(tw_add(family, tw_str("k"), 10, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "replay:k"), 111);
    assert_i64_equal(test_stat_of(engine, lost), 5);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Makes Redis go back by one batch, as a truncated file does: the ledger and the counter step back together. */
static struct log_lines go_back_once(struct redis_server *server, const char *user) {
    static const char back[] = "local l = redis.call('KEYS', 'tw:ledger:*')[1] local n = redis.call('HGET', l, 'n') "
                               "redis.call('HSET', l, 'n', string.format('%d', n - 1), 'p', "
                               "string.format('%d', redis.call('HGET', l, 'p') - 10)) "
                               "redis.call('HDEL', l, string.format('%d', n % 8)) redis.call('DECRBY', 'back:k', 10)";
    struct log_lines lines = {.text = ""};
    tw_options options;
    tw_engine *engine;
    char url[256];
    redis_server_ask(server, "FLUSHALL", NULL);
    snprintf(url, sizeof url, "unix://%s%s", user, server->socket);
    quick_options(&options, url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "back", TW_WINDOW_FOREVER, 0);
    for (int i = 0; i < 2; i++) {
        assert_status(tw_add(family, tw_str("k"), 10, NULL), TW_OK);
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    }
    redis_server_ask(server, "EVAL", back, "0", NULL);
    assert_i64_equal(redis_server_get(server, "back:k"), 10);
    assert_status(tw_add(family, tw_str("k"), 100, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(server, "back:k"), 120);
    assert_i64_equal(test_stat_of(engine, replayed), 10);
    assert_i64_equal(test_stat_of(engine, rollbacks), 1);
    assert_i64_equal(test_stat_of(engine, lost), 0);
    assert_i64_equal(test_stat_of(engine, breaker_state), 0);
    assert_i64_equal(test_stat_of(engine, outage_ms), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    return lines;
}

/* Goal: a Redis that went back has its append-only file rewritten at once (fault 15), and the danger is named at the
 * start (fault 16). If the user may do neither, a line says so, and counting goes on. */
TEST(after_going_back_the_append_only_file_is_written_anew) {
    struct redis_server server;
    redis_server_start(&server, durable);
    struct log_lines may = go_back_once(&server, "");
    assert_non_null(strstr(may.text, "aof-load-truncated yes"));
    assert_non_null(strstr(may.text, "append-only file anew"));
    redis_server_ask(&server, "ACL", "SETUSER", "small", "on", ">pw", "~*", "+@all", "-bgrewriteaof", "-config", NULL);
    struct log_lines may_not = go_back_once(&server, "small:pw@");
    assert_null(strstr(may_not.text, "aof-load-truncated yes"));
    assert_non_null(strstr(may_not.text, "refuses BGREWRITEAOF"));
    redis_server_destroy(&server);
}

/* Goal: docs/KEYS.md names every permission that is needed. Method: a user with exactly these. ACL LOG stays empty; it
 * also has what scripts were refused. */
TEST(the_permissions_of_the_manual_suffice) {
    struct redis_server server;
    tw_options options;
    tw_engine *engine;
    char url[256];
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "ACL", "SETUSER", "tally", "on", ">pw", "resetkeys", "~acl:*", redis_server_no_channels(),
                     "-@all", "+evalsha", "+eval", "+ping", "+info", "+time", "+get", "+hmget", "+hset", "+hscan",
                     "+hdel", "+incrby", "+pttl", "+pexpire", "+pexpireat", "+zadd", "+zremrangebyscore", "+zcard",
                     NULL);
    snprintf(url, sizeof url, "unix://tally:pw@%s", server.socket);
    quick_options(&options, url);
    options.redis_prefix = "acl:";
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *families[] = {family_of(engine, "e", TW_WINDOW_FOREVER, 0),
                             family_of(engine, "h", TW_WINDOW_ALIGNED, TW_HOUR),
                             family_of(engine, "f", TW_WINDOW_FROM_FIRST, TW_HOUR)};
    for (int i = 0; i < 6; i++) {
        assert_status(tw_add(families[i % 3], tw_str("k"), TW_DELTA_MAX, NULL),
                      TW_OK); /* totals beyond 2^53 are fetched */
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    }
    assert_i64_equal(redis_server_get(&server, "acl:e:k"), 2 * TW_DELTA_MAX);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "ACL", "LOG", NULL), "");
    redis_server_destroy(&server);
}

/* Goal: engines that come and go leave nothing behind: no descriptor leaks, also after a failed call (fault 46). */
TEST(engines_come_and_go_without_a_trace) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    assert_status(tw_close(engine, 1000), TW_OK);
    int64_t descriptors = test_fd_count(), threads = test_thread_count();
    for (int i = 0; i < 20; i++) {
        engine = quick_engine(i % 2 ? server.url : "redis://localhost:1", NULL);
        assert_status(tw_add(family_of(engine, "go", TW_WINDOW_FOREVER, 0), tw_str("k"), 1, NULL), TW_OK);
        (void)tw_close(engine, i % 2 ? 10000 : 100);
    }
    for (int i = 0; i < 100 && test_thread_count() > threads; i++) test_sleep_ms(20); /* a look-up may still end */
    assert_i64_equal(test_fd_count(), descriptors);
    assert_i64_equal(test_thread_count(), threads);
    assert_i64_equal(redis_server_get(&server, "go:k"), 10);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
