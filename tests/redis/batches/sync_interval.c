/* sync_interval.c -- what does not wait for sync_interval_ms, with a Redis that answers: tw_close(), hooks of windows
 * that are over, windows that Redis keeps for less than that, gauges, leases, and the room of idle keys.
 * Method: an interval of a minute, so whatever waits for it comes too late. Always true: tw_close() has far less time
 * than that, and says TW_OK only if Redis has acknowledged all of it. */
#include "tests/redis/limits/hard_support.h"
#include "tests/support/side_by_side.h"

#define CLOSE_MS 10000

static void slow_options(tw_options *options, const struct redis_server *server, uint32_t threads, struct lost *lost) {
    quick_options(options, server->url);
    options->sync_interval_ms = 60000;
    options->threads = threads;
    options->on_lost = on_lost;
    options->lost_ctx = lost;
}

static tw_engine *slow_engine(const struct redis_server *server, uint32_t threads, uint32_t merge, struct lost *lost) {
    tw_options options;
    tw_engine *engine = NULL;
    slow_options(&options, server, threads, lost);
    options.merge = merge;
    assert_status(test_open(&options, &engine), TW_OK);
    return engine;
}

/* ---- tw_close(): counts ------------------------------------------------------------------------------------------ */

struct first {
    struct redis_server *server;
    tw_engine *engine;
    uint32_t threads;
};

/* From then on the next collection is an interval away. */
static bool is_first_count_there(void *ctx) {
    struct first *first = ctx;
    if (first->threads == TW_HOST_DRIVEN) (void)tw_turn(first->engine);
    return sum_of(first->server, "f*") == 1;
}

static void close_with(uint32_t threads, uint32_t merge) {
    struct redis_server server;
    struct lost lost = {0};
    redis_server_start(&server, NULL);
    tw_engine *engine = slow_engine(&server, threads, merge, &lost);
    tw_family *family = family_of(engine, "f", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    assert_status(tw_add(family, tw_str("s|a"), 1, NULL), TW_OK);
    struct first first = {.server = &server, .engine = engine, .threads = threads};
    assert_true(test_wait(is_first_count_there, &first, TEST_PATIENCE_MS));
    assert_status(tw_add(family, tw_str("s|a"), 40, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("s|b"), 1, NULL), TW_OK);
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    assert_i64_equal(lost.calls, 0);
    assert_i64_equal(sum_of(&server, "f*"), 42);
    redis_server_destroy(&server);
}

EACH_SHAPE(counts_are_sent) {
    play_shape(state);
    close_with(TW_OWN_THREAD, TW_MERGE_SCRIPT);
}

TEST(counts_are_sent_by_a_host_that_drives) {
    close_with(TW_HOST_DRIVEN, TW_MERGE_SCRIPT);
}

TEST(counts_are_sent_by_plain_commands) {
    close_with(TW_OWN_THREAD, TW_MERGE_MULTI);
    close_with(TW_OWN_THREAD, TW_MERGE_SETNX);
}

/* ---- tw_close(): more than counts -------------------------------------------------------------------------------- */

TEST(units_of_a_hard_limit_go_back) {
    struct redis_server server;
    struct lost lost = {0};
    tw_verdict verdict;
    redis_server_start(&server, NULL);
    tw_engine *engine = slow_engine(&server, TW_OWN_THREAD, TW_MERGE_SCRIPT, &lost);
    tw_family *stock = hard_family(engine, "stock");
    assert_status(buy(stock, tw_str("tv"), 1, 1000, CLOSE_MS, &verdict), TW_OK);
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    assert_i64_equal(lost.calls, 0);
    assert_i64_equal(redis_server_get(&server, "stock:tv"), 1);
    /* Another engine can sell the rest at once: nothing is held for the one that is gone. */
    engine = quick_engine(server.url, NULL);
    stock = hard_family(engine, "stock");
    assert_i64_equal(sell(stock, tw_str("tv"), 1, 1000, 20000, &verdict), 999);
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: who waits as long as a hard limit says has the unit soon after it came: leases do not wait for the interval. */
TEST(a_hard_limit_does_not_ask_to_wait_for_the_interval) {
    struct redis_server server;
    struct lost lost = {0};
    tw_verdict verdict;
    tw_status status;
    int64_t until_ms = test_mono_ms() + CLOSE_MS;
    redis_server_start(&server, NULL);
    tw_engine *engine = slow_engine(&server, TW_OWN_THREAD, TW_MERGE_SCRIPT, &lost);
    tw_family *stock = hard_family(engine, "stock");
    while ((status = tw_acquire(stock, tw_str("tv"), 1, 10, &verdict)) == TW_PENDING && test_mono_ms() < until_ms) {
        assert_true(verdict.retry_after_ms >= 1 && verdict.retry_after_ms <= 1000);
        test_sleep_ms(verdict.retry_after_ms);
    }
    assert_status(status, TW_OK);
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    redis_server_destroy(&server);
}

TEST(distinct_counts_are_merged) {
    struct redis_server server;
    struct lost lost = {0};
    int64_t estimate = 0;
    redis_server_start(&server, NULL);
    tw_engine *engine = slow_engine(&server, TW_OWN_THREAD, TW_MERGE_SCRIPT, &lost);
    tw_family *family = kind_of(engine, "visitors", TW_KIND_DISTINCT);
    assert_status(tw_distinct_add(family, tw_str("k"), tw_str("ann"), NULL), TW_OK);
    assert_status(tw_flush(engine, CLOSE_MS), TW_OK);
    assert_status(tw_distinct_add(family, tw_str("k"), tw_str("bob"), NULL), TW_OK);
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    engine = quick_engine(server.url, NULL);
    family = kind_of(engine, "visitors", TW_KIND_DISTINCT);
    assert_status(tw_distinct_get(family, tw_str("k"), &estimate), TW_OK);
    assert_status(tw_flush(engine, CLOSE_MS), TW_OK);
    assert_status(tw_distinct_get(family, tw_str("k"), &estimate), TW_OK);
    assert_i64_equal(estimate, 2);
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* A closed engine no longer counts anybody as present. */
TEST(a_gauge_is_taken_back) {
    struct redis_server server;
    struct lost lost = {0};
    int64_t online = 0;
    redis_server_start(&server, NULL);
    tw_engine *engine = slow_engine(&server, TW_OWN_THREAD, TW_MERGE_SCRIPT, &lost);
    tw_family *family = gauge_of(engine);
    assert_status(tw_add(family, tw_str("room"), 3, NULL), TW_OK);
    assert_status(tw_flush(engine, CLOSE_MS), TW_OK);
    tw_engine *other = quick_engine(server.url, NULL);
    tw_family *its = gauge_of(other);
    tw_key room = tw_str("room");
    assert_status(tw_fetch(its, &room, 1, CLOSE_MS, &online), TW_OK);
    assert_i64_equal(online, 3);
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    assert_status(tw_fetch(its, &room, 1, CLOSE_MS, &online), TW_OK);
    assert_i64_equal(online, 0);
    assert_status(tw_close(other, CLOSE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- windows that are over --------------------------------------------------------------------------------------- */

#define WALL_MS INT64_C(4102444800000) /* 2100-01-01, midnight: by Redis's clock no window is over yet */

struct hooks {
    _Atomic int calls;
    _Atomic uint32_t flags; /* of all calls */
};

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct hooks *hooks = ctx;
    (void)family, (void)start_ms, (void)end_ms;
    atomic_fetch_or(&hooks->flags, flags);
    atomic_fetch_add(&hooks->calls, 1);
    return true;
}

/* A host that drives its engine, and makes its time: however slow the machine is, nothing comes late by that. */
struct driven {
    struct redis_server server;
    struct fake_clock clock;
    struct lost lost;
    struct hooks hooks;
    tw_engine *engine;
    tw_family *family;
};

static void begin_driven(struct driven *driven, int64_t retention_ms, int64_t lateness_ms) {
    tw_options options;
    tw_family_options how;
    memset(driven, 0, sizeof *driven);
    redis_server_start(&driven->server, NULL);
    fake_clock_init(&driven->clock, WALL_MS);
    slow_options(&options, &driven->server, TW_HOST_DRIVEN, &driven->lost);
    fake_clock_install(&driven->clock, &options);
    assert_status(test_open(&options, &driven->engine), TW_OK);
    tw_family_options_init(&how);
    how.name = "f";
    how.window_ms = TW_SECOND;
    how.retention_ms = retention_ms;
    how.lateness_ms = lateness_ms;
    how.on_window_closed = on_closed;
    how.closed_ctx = &driven->hooks;
    assert_status(tw_family_open(driven->engine, &how, &driven->family), TW_OK);
}

/* When the reply is here, Redis has answered all that was sent before. */
static void step(struct driven *driven) {
    fake_clock_advance_ms(&driven->clock, 10);
    assert_status(tw_turn(driven->engine), TW_OK);
    assert_string_equal(redis_server_ask(&driven->server, "PING", NULL), "PONG");
    assert_status(tw_turn(driven->engine), TW_OK);
}

/* A unit in each step, from the first collection on. */
static int64_t count_for(struct driven *driven, int64_t ms) {
    int64_t added = 0;
    for (; added == 0 || sum_of(&driven->server, "f*") == 0; added++) {
        assert_status(tw_add(driven->family, tw_str("a"), 1, NULL), TW_OK);
        step(driven);
    }
    for (int64_t i = 0; i < ms; i += 10, added++) {
        assert_status(tw_add(driven->family, tw_str("a"), 1, NULL), TW_OK);
        step(driven);
    }
    return added;
}

static void end_driven(struct driven *driven, int64_t added) {
    assert_i64_equal(driven->lost.calls, 0);
    assert_i64_equal(sum_of(&driven->server, "f*"), added);
    assert_status(tw_close(driven->engine, CLOSE_MS), TW_OK);
    assert_i64_equal(driven->lost.calls, 0);
    redis_server_destroy(&driven->server);
}

/* Goal: Redis has the counts of a window before its hook would no longer wait for them (TW_CLOSED_LOCAL). */
TEST(a_hook_has_what_redis_could_have_had) {
    struct driven driven;
    test_tuning.closing_wait_ms = 4000;
    begin_driven(&driven, 0, 0);
    int64_t added = count_for(&driven, 1500);
    for (int i = 0; i < 500; i++) step(&driven);
    assert_true(atomic_load(&driven.hooks.calls) >= 2);
    assert_i64_equal(atomic_load(&driven.hooks.flags), 0);
    end_driven(&driven, added);
}

/* Goal: what a window counted lives in Redis for retention_ms, which may be shorter than the interval. It is sent
 * before that is over, not given up. */
TEST(a_short_retention_is_not_waited_out) {
    struct driven driven;
    begin_driven(&driven, TW_SECOND, 0);
    int64_t added = count_for(&driven, 3500);
    for (int i = 0; i < 300; i++) step(&driven);
    end_driven(&driven, added);
}

/* Goal: the same of a window that takes late counts for as long as Redis keeps it. */
TEST(a_long_lateness_is_not_waited_out) {
    struct driven driven;
    begin_driven(&driven, 2 * TW_SECOND, 2 * TW_SECOND);
    int64_t added = count_for(&driven, 500);     /* one window only: what hurries one hurries all */
    for (int i = 0; i < 160; i++) step(&driven); /* it ends within a second, and is sealed two seconds later */
    end_driven(&driven, added);
}

static bool was_one_closed(void *ctx) {
    struct hooks *hooks = ctx;
    return atomic_load(&hooks->calls) >= 1;
}

/* Goal: where one engine closes a window for all, the totals that its hook waits for are asked for at once. */
TEST(one_closes_for_all_with_all_totals) {
    struct redis_server server;
    struct lost lost = {0};
    struct hooks hooks = {0};
    tw_family_options options;
    tw_family *family;
    test_tuning.closing_wait_ms = 10000;
    redis_server_start(&server, NULL);
    tw_engine *engine = slow_engine(&server, TW_OWN_THREAD, TW_MERGE_SCRIPT, &lost);
    tw_family_options_init(&options);
    options.name = "f";
    options.window_ms = TW_SECOND;
    options.closed_by = TW_CLOSED_BY_ONE;
    options.on_window_closed = on_closed;
    options.closed_ctx = &hooks;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    assert_status(tw_add(family, tw_str("a"), 1, NULL), TW_OK);
    assert_true(test_wait(was_one_closed, &hooks, TEST_PATIENCE_MS));
    assert_i64_equal(atomic_load(&hooks.flags), 0);
    assert_i64_equal(sum_of(&server, "f*"), 1);
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    assert_i64_equal(lost.calls, 0);
    redis_server_destroy(&server);
}

struct present {
    tw_family *family;
    int64_t online;
};

static bool are_present(void *ctx) {
    struct present *present = ctx;
    tw_key room = tw_str("room");
    int64_t online = 0;
    assert_status(tw_fetch(present->family, &room, 1, CLOSE_MS, &online), TW_OK);
    return online == present->online;
}

/* Goal: an engine that lives is counted as present, however seldom it sends counts. */
TEST(a_gauge_stays_present) {
    struct redis_server server;
    struct lost lost = {0};
    test_tuning.presence_life_ms = 2000;
    redis_server_start(&server, NULL);
    tw_engine *engine = slow_engine(&server, TW_OWN_THREAD, TW_MERGE_SCRIPT, &lost);
    assert_status(tw_add(gauge_of(engine), tw_str("room"), 3, NULL), TW_OK);
    assert_status(tw_flush(engine, CLOSE_MS), TW_OK);
    tw_engine *other = quick_engine(server.url, NULL);
    tw_family *its = gauge_of(other);
    struct present present = {.family = its, .online = 3};
    for (int i = 0; i < 12; i++) {
        test_sleep_ms(500);                                              /* the gauge is watched for six seconds */
        assert_true(test_wait(are_present, &present, TEST_PATIENCE_MS)); /* waits only on a busy machine */
    }
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    assert_status(tw_close(other, CLOSE_MS), TW_OK);
    redis_server_destroy(&server);
}

#define GAUGES 40

/* Goal: however many families hurry, Redis gets no more batches than by the default interval of 100 ms. Method: gauges
 * that are restated every 50 ms, each at a separate moment. */
TEST(many_who_hurry_send_no_more_often) {
    struct redis_server server;
    struct lost lost = {0};
    test_tuning.presence_life_ms = 150;
    redis_server_start(&server, NULL);
    tw_engine *engine = slow_engine(&server, TW_OWN_THREAD, TW_MERGE_SCRIPT, &lost);
    tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    for (int i = 0; i < GAUGES; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", i);
        assert_status(tw_add(kind_of(engine, name, TW_KIND_GAUGE), tw_str("k"), 1, NULL), TW_OK);
        test_sleep_ms(3);
    }
    assert_status(tw_flush(engine, CLOSE_MS), TW_OK);
    int64_t begin_ms = test_mono_ms(), before = test_stat_of(engine, batches_sent);
    while (test_mono_ms() - begin_ms < 2000) {
        assert_status(tw_add(family, tw_str("a"), 1, NULL), TW_OK);
        test_sleep_ms(1);
    }
    int64_t batches = test_stat_of(engine, batches_sent) - before, most = (test_mono_ms() - begin_ms) / 100 + 2;
    if (batches > most || batches < 1) fail_msg("%lld batches, %lld at most", (long long)batches, (long long)most);
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    redis_server_destroy(&server);
}

#define EVICTED_KEYS_MAX 40

/* Goal: idle keys make room as fast as Redis takes what they owe (docs/ARCHITECTURE.md), not once in an interval. */
TEST(idle_keys_make_room) {
    struct redis_server server;
    struct lost lost = {0};
    tw_family_options options;
    tw_family *family;
    redis_server_start(&server, NULL);
    tw_engine *engine = slow_engine(&server, TW_OWN_THREAD, TW_MERGE_SCRIPT, &lost);
    tw_family_options_init(&options);
    options.name = "f";
    options.window = TW_WINDOW_FOREVER;
    options.on_full = TW_ON_FULL_EVICT_IDLE;
    options.keys_max = EVICTED_KEYS_MAX;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    assert_status(tw_add(family, tw_str("first"), 1, NULL), TW_OK);
    struct first first = {.server = &server, .engine = engine, .threads = TW_OWN_THREAD};
    assert_true(test_wait(is_first_count_there, &first, TEST_PATIENCE_MS));
    int64_t evicted = 0;
    for (int i = 0; i < 400 && evicted < 2 * EVICTED_KEYS_MAX; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%d", i);
        assert_true(tw_add(family, tw_str(key), 1, NULL) >= TW_OK); /* TW_OVERFLOWED on a busy machine */
        test_sleep_ms(50);
        evicted = test_stat_of(engine, evicted);
    }
    assert_true(evicted >= 2 * EVICTED_KEYS_MAX);
    assert_status(tw_close(engine, CLOSE_MS), TW_OK);
    assert_i64_equal(lost.calls, 0);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
