/* lost_counts.c -- what Redis never gets, cannot read, or says wrongly. It is named, it is never reported as complete,
 * and no other key and no later moment is touched by it. */
#include "tests/redis/redis_rig.h"
#include "tests/support/side_by_side.h"

/* ---- keys that Redis refuses ------------------------------------------------------------------------------------- */

static void rig_open(struct rig *rig) {
    tw_options options;
    memset(rig, 0, sizeof *rig);
    redis_server_start(&rig->server, NULL);
    rig_options(rig, &options, rig->server.url);
    rig_start(rig, &options);
}

static void rig_end(struct rig *rig) {
    (void)tw_close(rig->engine, 1000); /* what Redis refuses is left */
    redis_server_destroy(&rig->server);
}

static size_t lines_with(const struct log_lines *lines, const char *part) {
    size_t count = 0;
    for (const char *at = lines->text; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
    return count;
}

/* Goal: a key that Redis refuses makes tw_fetch() of that key TW_ERR_REDIS, at once and by its name, and of no other
 * key, in no family. */
TEST(a_refused_key_fails_its_own_fetch_alone) {
    struct rig rig;
    int64_t total[2] = {-1, -1};
    rig_open(&rig);
    tw_family *other = family_of(rig.engine, "other", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(other, tw_str("x"), 5, NULL), TW_OK);
    rig_add_flushed(&rig, 7);
    redis_server_ask(&rig.server, "LPUSH", "f:bad", "1", NULL);
    assert_status(tw_add(rig.family, tw_str("bad"), 1, NULL), TW_OK);
    assert_status(tw_flush(rig.engine, 5000), TW_ERR_REDIS);
    for (int i = 0; i < 5; i++) {
        assert_status(tw_fetch(rig.family, (tw_key[]){tw_str("k"), tw_str("never")}, 2, 5000, total), TW_OK);
        assert_true(total[0] == 7 && total[1] == 0);
        assert_status(tw_fetch(other, (tw_key[]){tw_str("x")}, 1, 5000, total), TW_OK);
        assert_i64_equal(total[0], 5);
        total[0] = -1;
        assert_status(tw_fetch(rig.family, (tw_key[]){tw_str("k"), tw_str("bad")}, 2, 5000, total), TW_ERR_REDIS);
        assert_non_null(strstr(tw_error_text(), "bad"));
        assert_i64_equal(total[0], -1);
    }
    redis_server_ask(&rig.server, "SET", "f:text", "no number", NULL); /* nothing was ever added to it here */
    int64_t began_ms = test_mono_ms();
    assert_status(tw_fetch(rig.family, (tw_key[]){tw_str("text")}, 1, 60000, total), TW_ERR_REDIS);
    assert_true(test_mono_ms() - began_ms < 30000);
    rig_end(&rig);
}

/* Goal: a distinct count whose registers in Redis cannot be read ends no connection: one line names it, and all other
 * keys are counted. Method: bytes are appended to what Redis caches; and registers of a value that no hash has. */
TEST(an_unreadable_distinct_count_waits_alone) {
    static const char dense[] = "redis.call('SET', KEYS[1], 'HYLL' .. string.rep('\\0', 11) .. '\\128' .. "
                                "string.rep('\\255', 12288))";
    for (int way = 0; way < 2; way++) {
        struct rig rig;
        int64_t estimate;
        rig_open(&rig);
        tw_family *distinct = kind_of(rig.engine, "d", TW_KIND_DISTINCT);
        for (uint64_t i = 0; i < 100; i++)
            assert_status(tw_distinct_add(distinct, tw_str("p"), tw_bytes(&i, sizeof i), NULL), TW_OK);
        rig_flush(&rig);
        redis_server_ask(&rig.server, "PFCOUNT", "d:p", NULL); /* it is cached */
        if (way == 0)
            redis_server_ask(&rig.server, "APPEND", "d:p", "x", NULL);
        else
            redis_server_ask(&rig.server, "EVAL", dense, "1", "d:p", NULL);
        for (int i = 0; i < 20; i++) {
            assert_status(tw_distinct_get(distinct, tw_str("p"), &estimate), TW_OK);
            rig_add(&rig, 1);
            test_sleep_ms(10);
        }
        rig_flush(&rig);
        assert_i64_equal(redis_server_get(&rig.server, "f:k"), rig.added);
        assert_i64_equal(test_stat_of(rig.engine, disconnects), 0);
        assert_in_range(estimate, 95, 105);
        rig_end(&rig);
        assert_int_equal(lines_with(&rig.lines, "d:p"), 1);
    }
}

/* Goal: a distinct count that Redis refuses to the end is named by on_lost, as a counter is. */
TEST(a_refused_distinct_count_is_named_at_the_close) {
    struct rig rig;
    rig_open(&rig);
    tw_family *distinct = kind_of(rig.engine, "d", TW_KIND_DISTINCT);
    rig_add_flushed(&rig, 7);
    redis_server_ask(&rig.server, "LPUSH", "d:bad", "1", NULL);
    for (uint64_t i = 0; i < 10; i++) {
        assert_status(tw_distinct_add(distinct, tw_str("bad"), tw_bytes(&i, sizeof i), NULL), TW_OK);
        assert_status(tw_distinct_add(distinct, tw_str("good"), tw_bytes(&i, sizeof i), NULL), TW_OK);
    }
    assert_status(tw_flush(rig.engine, 5000), TW_ERR_REDIS);
    assert_status(tw_close(rig.engine, 1000), TW_ERR_TIMEOUT);
    assert_i64_equal(rig.lost.calls, 1);
    assert_string_equal(rig.lost.key, "bad");
    redis_server_destroy(&rig.server);
}

/* Goal: so is a distinct count whose message Redis has not answered in the time of tw_close(). */
TEST(a_distinct_count_under_way_is_named_at_the_close) {
    struct rig rig;
    rig_open(&rig);
    tw_family *distinct = kind_of(rig.engine, "d", TW_KIND_DISTINCT);
    rig_add_flushed(&rig, 7);
    redis_server_pause(&rig.server);
    assert_status(tw_distinct_add(distinct, tw_str("late"), tw_str("ann"), NULL), TW_OK);
    assert_status(tw_close(rig.engine, 300), TW_ERR_TIMEOUT);
    assert_i64_equal(rig.lost.calls, 1);
    assert_string_equal(rig.lost.key, "late");
    redis_server_resume(&rig.server);
    redis_server_destroy(&rig.server);
}

/* ---- windows that Redis never got -------------------------------------------------------------------------------- */

#define WINDOW_MS 1000

struct window {
    _Atomic int64_t start_ms; /* the window to look at */
    _Atomic int calls, local; /* hooks of it, and those with TW_CLOSED_LOCAL */
};

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct window *window = ctx;
    (void)family, (void)end_ms;
    if (start_ms != atomic_load(&window->start_ms)) return true;
    if ((flags & TW_CLOSED_LOCAL) != 0) atomic_fetch_add(&window->local, 1);
    atomic_fetch_add(&window->calls, 1); /* last: it is waited for */
    return true;
}

static tw_family *windows_of(tw_engine *engine, const char *name, uint32_t shape, uint32_t kind,
                             struct window *window) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.window = TW_WINDOW_ALIGNED;
    options.window_ms = options.retention_ms = WINDOW_MS;
    options.history_ms = TW_MINUTE;
    options.redis_shape = shape;
    options.kind = kind;
    options.on_window_closed = on_closed;
    options.closed_ctx = window;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static bool all_are_closed(void *ctx) {
    return atomic_load(&((struct window *)ctx)->calls) == 4;
}

static bool is_connected(void *ctx) {
    return test_stat_of(ctx, redis_connected) == 1;
}

/* Goal: a window whose counts were given up, because Redis was unreachable for longer than its retention, is never
 * reported as complete: not by its hook, in no shape, not by the next flush; and on_lost names each key, a distinct
 * count, too.
 * Method: the server is killed, counts come, and it returns when their time is over. The hook is made to wait for
 * Redis, so that it comes after the counts were given up. */
TEST(a_window_that_redis_never_got_is_not_complete) {
    struct rig rig;
    static struct window window;
    tw_options options;
    memset(&rig, 0, sizeof rig);
    test_tuning.closing_wait_ms = 60000;
    redis_server_start(&rig.server, NULL);
    rig_options(&rig, &options, rig.server.url);
    options.retry_max_ms = 200;
    rig_start(&rig, &options);
    tw_family *string = windows_of(rig.engine, "s", TW_REDIS_STRING, 0, &window);
    tw_family *hash = windows_of(rig.engine, "h", TW_REDIS_HASH, 0, &window);
    tw_family *zset = windows_of(rig.engine, "z", TW_REDIS_ZSET, 0, &window);
    tw_family *distinct = windows_of(rig.engine, "d", 0, TW_KIND_DISTINCT, &window);
    rig_add_flushed(&rig, 1);
    redis_server_kill(&rig.server);
    /* the next window: the one of now may end before all have counted in it */
    atomic_store(&window.start_ms, (twi_port_wall_ms(rig.engine) / WINDOW_MS + 1) * WINDOW_MS);
    int64_t start_ms = atomic_load(&window.start_ms);
    assert_status(tw_add_at(string, tw_str("k"), 7, start_ms, NULL), TW_OK);
    assert_status(tw_add_at(hash, tw_str("k|f"), 7, start_ms, NULL), TW_OK);
    assert_status(tw_add_at(zset, tw_str("k"), 7, start_ms, NULL), TW_OK);
    assert_status(tw_distinct_add_at(distinct, tw_str("k"), tw_str("e"), start_ms, NULL), TW_OK);
    test_sleep_ms(4 * WINDOW_MS);
    redis_server_restart(&rig.server);
    assert_true(test_wait(is_connected, rig.engine, TEST_PATIENCE_MS));
    assert_true(test_wait(all_are_closed, &window, TEST_PATIENCE_MS));
    assert_int_equal(atomic_load(&window.local), 4);
    assert_status(tw_flush(rig.engine, 20000), TW_ERR_REDIS); /* they were given up while no flush waited */
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(rig.lost.by_reason[TW_LOST_EXPIRED] + rig.lost.by_reason[TW_LOST_LATE], 21);
    assert_i64_equal(rig.lost.calls, 4);
    redis_server_destroy(&rig.server);
}

/* ---- numbers that no script of ours says ------------------------------------------------------------------------- */

static bool has_lied(void *proxy) {
    return proxy_look(proxy).happened[PROXY_ANSWER] != 0;
}

static bool sees_two(void *ctx) {
    return test_stat_of(ctx, live_engines) == 2;
}

/* Goal: one reply of the registry with an absurd interval, or number of engines, is forgotten: soon afterwards both
 * engines see each other. Method: the proxy puts it in the place of the first replies. */
TEST(a_false_interval_is_forgotten) {
    static const char *const lies[] = {"*4\r\n$2\r\nOK\r\n:1795000000000\r\n:1\r\n:4000000000000\r\n",
                                       "*4\r\n$2\r\nOK\r\n:9223372036854775807\r\n:2\r\n:-9223372036854775808\r\n"};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig;
        tw_options options;
        memset(&rig, 0, sizeof rig);
        redis_server_start(&rig.server, NULL);
        rig.proxy = proxy_start(&rig.server, test_seed());
        proxy_only(rig.proxy, "tw:live");
        proxy_order(rig.proxy, &(struct proxy_order){.fault = PROXY_ANSWER, .times = 3, .text = lies[i]});
        rig_options(&rig, &options, proxy_url(rig.proxy));
        rig_start(&rig, &options);
        rig_add_flushed(&rig, 1);
        assert_true(test_wait(has_lied, rig.proxy, TEST_PATIENCE_MS));
        test_sleep_ms(300); /* the lies are read */
        tw_engine *other = quick_engine(rig.server.url, NULL);
        assert_true(test_wait(sees_two, rig.engine, TEST_PATIENCE_MS));
        test_sleep_ms(TWI_TICK_MS); /* one more tick, after which it still holds */
        assert_true(test_wait(sees_two, other, TEST_PATIENCE_MS));
        assert_status(tw_close(other, TEST_PATIENCE_MS), TW_OK);
        rig_check(&rig, &rig.server);
        assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
        proxy_stop(rig.proxy);
        redis_server_destroy(&rig.server);
    }
}

/* Goal: a counter that another client has set to either end of the range overflows nothing: what calls say of it stays
 * within +-TW_COUNT_MAX and times stay times. (A build with -fsanitize=undefined stops at an overflow.) */
TEST(a_counter_at_the_end_of_the_range_overflows_nothing) {
    static const uint32_t modes[] = {TW_LIMIT_SOFT, TW_LIMIT_HARD, TW_LIMIT_STRICT};
    static const char *const ends[] = {"-9223372036854775808", "9223372036854775807"};
    for (size_t i = 0; i < 6; i++) {
        struct rig rig;
        tw_family_options family_options;
        tw_family *family;
        tw_verdict verdict;
        tw_reading reading;
        int64_t total = 0;
        rig_open(&rig);
        tw_family_options_init(&family_options);
        family_options.name = "l";
        family_options.window = TW_WINDOW_FOREVER;
        family_options.limit_mode = modes[i / 2];
        assert_status(tw_family_open(rig.engine, &family_options, &family), TW_OK);
        redis_server_ask(&rig.server, "SET", "l:k", ends[i % 2], NULL);
        for (int n = 0; n < 5; n++) {
            assert_true(tw_acquire(family, tw_str("k"), 1, 100, &verdict) >= 0);
            assert_true(verdict.remaining >= 0 && verdict.remaining <= 2 * TW_COUNT_MAX);
            assert_true(verdict.retry_after_ms >= -1 && verdict.reset_after_ms >= 0);
            (void)tw_flush(rig.engine, 5000);
        }
        assert_status(tw_read(family, tw_str("k"), &reading), TW_OK);
        if (tw_fetch(family, (tw_key[]){tw_str("k")}, 1, 5000, &total) == TW_OK)
            assert_true(total >= -TW_COUNT_MAX && total <= TW_COUNT_MAX);
        rig_add(&rig, 3);
        (void)tw_flush(rig.engine, 5000); /* the counted units on l:k without Redis may be refused */
        assert_i64_equal(redis_server_get(&rig.server, "f:k"), rig.added);
        rig_end(&rig);
    }
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
