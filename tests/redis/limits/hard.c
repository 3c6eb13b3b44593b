/* hard.c -- hard limits over a real Redis: never more than the limit (P4), all of it in the end (P5), whatever engines
 * and the server do. Several engines in one process play several processes; hard_processes.c has real ones.
 * Covers: engine/ask/lease_reclaim.c, engine/turn/lease_renewal.c, sync/message/lease.c, sync/script/lease.lua. */
#include "tests/redis/limits/hard_support.h"
#include "tests/support/proxy.h"
#include "tests/support/side_by_side.h"

#include <time.h>

#define KEY tw_str("tv")

struct report {
    struct redis_server *server;
    int64_t spent; /* of "tv", by all engines */
};

static bool is_reported(void *of) {
    const struct report *report = of;
    return strtoll(redis_server_ask(report->server, "HGET", "tw:lease:sale:tv", "s", NULL), NULL, 10) == report->spent;
}

/* The engines report what they have spent once a second, and a busy machine takes longer. */
static void await_report(struct redis_server *server, int64_t spent) {
    assert_true(test_wait(is_reported, &(struct report){server, spent}, TEST_PATIENCE_MS));
}

/* Goal: one engine sells exactly the limit. A call is TW_PENDING until Redis grants, and "final" only when all is
 * spent. */
TEST(one_engine_sells_exactly_the_limit) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = hard_family(engine, "sale");
    tw_verdict verdict;
    assert_status(tw_acquire(family, KEY, 1, 100, &verdict), TW_PENDING);
    assert_int_equal(verdict.final, 0);
    assert_int_equal(verdict.allowed, 0);
    assert_i64_equal(sell(family, KEY, 1, 100, TEST_PATIENCE_MS, &verdict), 100);
    assert_int_equal(verdict.final, 1);
    assert_int_equal(verdict.decided_by, TW_BY_LEASE);
    assert_i64_equal(verdict.remaining, 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "sale:tv"), 100);
    redis_server_destroy(&server);
}

/* Goal: demand equals supply, nearly all of it at one engine, after the others drew units and went idle. Everything is
 * sold, and no denial is "final" before (P5, trap L4). */
TEST(what_others_hold_idle_is_called_back) {
    enum { ENGINES = 4, LIMIT = 1000 };
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *engines[ENGINES];
    tw_family *families[ENGINES];
    tw_verdict verdict;
    for (int i = 0; i < ENGINES; i++) {
        engines[i] = quick_engine(server.url, NULL);
        families[i] = hard_family(engines[i], "sale");
    }
    int64_t sold = 0;
    for (int i = 1; i < ENGINES; i++) sold += sell_some(families[i], KEY, 3, LIMIT, 5000);
    assert_i64_equal(sold, 3 * (ENGINES - 1));
    sold += sell(families[0], KEY, 1, LIMIT, TEST_PATIENCE_MS, &verdict);
    assert_i64_equal(sold, LIMIT);
    assert_int_equal(verdict.final, 1);
    for (int i = 0; i < ENGINES; i++) assert_status(tw_close(engines[i], TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "sale:tv"), LIMIT);
    redis_server_destroy(&server);
}

/* Goal: a Redis that has lost everything grants nothing before all living engines have reported their grants; then the
 * rest is sold, and no more (P4, trap L2). */
TEST(after_flushall_no_unit_is_sold_twice) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    tw_verdict verdict;
    int64_t sold = sell_some(sale_a, KEY, 30, 100, 5000) + sell_some(sale_b, KEY, 20, 100, 5000);
    assert_i64_equal(sold, 50);
    assert_string_equal(redis_server_ask(&server, "FLUSHALL", NULL), "OK");
    sold += sell(sale_b, KEY, 1, 100, TEST_PATIENCE_MS, &verdict);
    sold += sell(sale_a, KEY, 1, 100, TEST_PATIENCE_MS, &verdict);
    assert_i64_equal(sold, 100);
    assert_int_equal(verdict.final, 1);
    assert_i64_equal(test_stat_of(a, limit_at_risk) + test_stat_of(b, limit_at_risk), 0);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a server that comes back without the last grants (a failover, a lost tail) grants nothing before they are
 * reported again. */
TEST(after_a_rollback_no_unit_is_sold_twice) {
    static const char *const by_hand[] = {"--save", "", NULL};
    struct redis_server server;
    redis_server_start(&server, by_hand);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    tw_verdict verdict;
    int64_t sold = sell_some(sale_a, KEY, 10, 200, 5000) + sell_some(sale_b, KEY, 1, 200, 5000);
    assert_string_equal(redis_server_ask(&server, "SAVE", NULL), "OK");
    sold += sell_some(sale_a, KEY, 100, 200, 5000);
    redis_server_kill(&server);
    redis_server_restart(&server);
    sold += sell(sale_b, KEY, 1, 200, TEST_PATIENCE_MS, &verdict);
    sold += sell(sale_a, KEY, 1, 200, TEST_PATIENCE_MS, &verdict);
    assert_i64_equal(sold, 200);
    assert_i64_equal(test_stat_of(a, limit_at_risk) + test_stat_of(b, limit_at_risk), 0);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

static bool risk_is_seen(void *ctx) {
    return test_stat_of(ctx, limit_at_risk) != 0;
}

/* Goal: an engine is cut off while Redis forgets, and for longer than the others wait for it. It reports exactly the
 * units that were at risk. Method: the test shortens the wait. */
TEST(units_at_risk_are_reported_exactly) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    struct proxy *proxy = proxy_start(&server, test_seed());
    tw_engine *a = quick_engine(proxy_url(proxy), NULL), *b = quick_engine(server.url, NULL);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    tw_verdict verdict;
    assert_i64_equal(sell_some(sale_a, KEY, 30, 100, 5000), 30);
    await_report(&server, 30);
    proxy_manner(proxy, PROXY_REFUSE);
    proxy_cut_all(proxy);
    assert_string_equal(redis_server_ask(&server, "FLUSHALL", NULL), "OK");
    assert_status(buy(sale_b, KEY, 1, 100, 1000, &verdict), TW_PENDING); /* Redis waits for A */
    redis_server_ask(&server, "HSET", "tw:leases", "to", "0", "from", "0", NULL);
    assert_i64_equal(sell(sale_b, KEY, 1, 100, TEST_PATIENCE_MS, &verdict), 100);
    proxy_manner(proxy, PROXY_OPEN);
    assert_true(test_wait(risk_is_seen, a, TEST_PATIENCE_MS));
    /* All units that A had, spent or in its lease. */
    int64_t risk = test_stat_of(a, limit_at_risk), in_hand = sell(sale_a, KEY, 1, 100, 0, &verdict);
    assert_true(risk >= 30 + in_hand && risk <= 100);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    const char *total = redis_server_ask(&server, "HGET", "tw:lease:sale:tv", "t", NULL);
    assert_i64_equal(atoi(total), 130 + in_hand);
    proxy_stop(proxy);
    redis_server_destroy(&server);
}

/* Goal: old copies that are executed late and replies that are lost strand no unit and sell none twice (L1). */
TEST(late_copies_and_lost_replies_change_nothing) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    struct proxy *proxy = proxy_start(&server, test_seed());
    tw_options options;
    tw_engine *a = NULL, *b = quick_engine(server.url, NULL);
    quick_options(&options, proxy_url(proxy));
    options.redis_timeout_ms = 100;
    assert_status(test_open(&options, &a), TW_OK);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    tw_verdict verdict;
    int64_t sold = sell_some(sale_a, KEY, 5, 300, 5000);
    proxy_chance(proxy, PROXY_HOLD, 1500);
    proxy_chance(proxy, PROXY_DROP_REPLY, 1500);
    for (int i = 0; i < 8; i++) sold += sell_some(sale_a, KEY, 15, 300, 3000) + sell_some(sale_b, KEY, 5, 300, 3000);
    proxy_chance(proxy, PROXY_HOLD, 0);
    proxy_chance(proxy, PROXY_DROP_REPLY, 0);
    sold += sell(sale_b, KEY, 1, 300, TEST_PATIENCE_MS, &verdict);
    sold += sell(sale_a, KEY, 1, 300, TEST_PATIENCE_MS, &verdict);
    assert_i64_equal(sold, 300);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "sale:tv"), 300);
    proxy_stop(proxy);
    redis_server_destroy(&server);
}

/* Goal: a server that has forgotten its scripts changes nothing: each lease message is sent once more, with its script,
 * and its number counts once. Method: SCRIPT FLUSH before every few units; then under eight keys at once, whose
 * messages are in one pipeline. */
TEST(forgotten_scripts_change_nothing) {
    enum { KEYS = 8, OF_EACH = 20, LIMIT = 300 };
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    char keys[KEYS][8];
    tw_verdict verdict;
    int64_t sold = 0;
    for (int i = 0; i < 10; i++) {
        assert_string_equal(redis_server_ask(&server, "SCRIPT", "FLUSH", NULL), "OK");
        sold += sell_some(sale_a, KEY, 12, LIMIT, 5000) + sell_some(sale_b, KEY, 8, LIMIT, 5000);
    }
    assert_i64_equal(sold, 200);
    assert_string_equal(redis_server_ask(&server, "SCRIPT", "FLUSH", NULL), "OK");
    for (int i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        assert_status(tw_lease_warm(sale_a, tw_str(keys[i]), OF_EACH), TW_OK);
    }
    for (int i = 0; i < KEYS; i++)
        assert_i64_equal(sell(sale_a, tw_str(keys[i]), 1, OF_EACH, TEST_PATIENCE_MS, &verdict), OF_EACH);
    assert_string_equal(redis_server_ask(&server, "SCRIPT", "FLUSH", NULL), "OK");
    sold += sell(sale_b, KEY, 1, LIMIT, TEST_PATIENCE_MS, &verdict);
    sold += sell(sale_a, KEY, 1, LIMIT, TEST_PATIENCE_MS, &verdict);
    assert_i64_equal(sold, LIMIT);
    assert_int_equal(verdict.final, 1);
    assert_i64_equal(test_stat_of(a, limit_at_risk) + test_stat_of(b, limit_at_risk), 0);
    assert_i64_equal(test_stat_of(a, lease_stranded) + test_stat_of(b, lease_stranded), 0);
    assert_i64_equal(test_stat_of(a, disconnects) + test_stat_of(b, disconnects), 0);
    if (redis_server_is_at_least(6, 2))
        assert_non_null(strstr(redis_server_ask(&server, "INFO", "errorstats", NULL), "errorstat_NOSCRIPT"));
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "sale:tv"), LIMIT);
    for (int i = 0; i < KEYS; i++) {
        char name[16];
        snprintf(name, sizeof name, "sale:k%d", i);
        assert_i64_equal(redis_server_get(&server, name), OF_EACH);
    }
    redis_server_destroy(&server);
}

/* Goal: a limit changes while units are leased (trap L9): a raised one sells the difference, a lowered one nothing
 * beyond it. */
TEST(a_limit_is_raised_and_lowered_while_leased) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    tw_verdict verdict;
    int64_t sold = sell_some(sale_a, KEY, 10, 1000, 5000) + sell_some(sale_b, KEY, 10, 1000, 5000);
    sold += sell(sale_a, KEY, 1, 50, TEST_PATIENCE_MS, &verdict); /* both have leases that were drawn under 1000 */
    assert_i64_equal(sold, 50);
    assert_int_equal(verdict.final, 1);
    sold += sell(sale_b, KEY, 1, 80, TEST_PATIENCE_MS, &verdict);
    assert_i64_equal(sold, 80);
    assert_status(tw_acquire(sale_b, KEY, 1, 60, &verdict), TW_DENIED);
    assert_int_equal(verdict.final, 1);
    sold += sell(sale_a, KEY, 1, 200, TEST_PATIENCE_MS, &verdict);
    assert_i64_equal(sold, 200);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a wrong call, or one that can never be admitted, has its result at once; a large n is collected from what
 * several engines hold. */
TEST(every_n_has_its_answer) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    tw_verdict verdict;
    assert_status(tw_acquire(sale_a, KEY, 11, 10, &verdict), TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, -1);
    assert_int_equal(verdict.final, 0);
    assert_status(tw_acquire(sale_a, KEY, 1, 0, &verdict), TW_DENIED);
    assert_status(tw_acquire(sale_a, KEY, -1, 10, &verdict), TW_ERR_RANGE);
    assert_status(tw_acquire(sale_a, KEY, 1, -10, &verdict), TW_ERR_RANGE);
    assert_status(tw_acquire(sale_a, KEY, TW_DELTA_MAX + 1, TW_DELTA_MAX, &verdict), TW_ERR_RANGE);
    assert_status(tw_acquire(sale_a, KEY, 0, 10, &verdict), TW_OK);
    assert_status(tw_acquire(sale_a, tw_bytes("", 0), 1, 10, &verdict), TW_ERR_KEY);
    assert_status(tw_lease_warm(sale_a, KEY, -1), TW_ERR_RANGE);
    assert_i64_equal(sell_some(sale_b, KEY, 2, 1000, 5000), 2); /* a large grant is idle there */
    assert_status(buy(sale_a, KEY, 998, 1000, 5000, &verdict), TW_OK);
    assert_status(buy(sale_b, KEY, 1, 1000, 5000, &verdict), TW_DENIED);
    assert_int_equal(verdict.final, 1);
    assert_status(buy(sale_a, tw_str("huge"), TW_DELTA_MAX, TW_DELTA_MAX, 5000, &verdict), TW_OK);
    assert_status(buy(sale_a, tw_str("huge"), 1, TW_DELTA_MAX, 5000, &verdict), TW_DENIED);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a warmed key sells without waiting; the units that an engine did not sell are returned when it closes. */
TEST(a_warm_lease_sells_at_once_and_is_returned_at_close) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    tw_family *soft = family_of(a, "soft", TW_WINDOW_FOREVER, 0);
    tw_verdict verdict;
    assert_status(tw_lease_warm(soft, KEY, 10), TW_ERR_MODE);
    assert_status(tw_lease_warm(sale_a, KEY, 400), TW_OK);
    assert_status(tw_ready(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_acquire(sale_a, KEY, 1, 400, &verdict), TW_OK);
    assert_int_equal(verdict.decided_by, TW_BY_LEASE);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "HGET", "tw:lease:sale:tv", "t", NULL), "1");
    assert_i64_equal(sell(sale_b, KEY, 1, 400, TEST_PATIENCE_MS, &verdict), 399);
    assert_int_equal(verdict.final, 1);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

static bool is_away(void *ctx) {
    return test_stat_of(ctx, redis_connected) == 0 && test_stat_of(ctx, outage_ms) > 100;
}

/* Goal: without Redis the lease is spent; then calls are denied, never "final". A fail-closed family denies at once;
 * with a grace both wait until it is over. When Redis is back selling goes on, exactly. */
TEST(an_outage_is_answered_as_the_family_says) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    struct proxy *proxy = proxy_start(&server, test_seed());
    tw_engine *engine = quick_engine(proxy_url(proxy), NULL);
    tw_family *local = hard_family(engine, "local"),
              *closed = hard_family_of(engine, "closed", TW_WINDOW_FOREVER, 0, TW_OUTAGE_FAIL_CLOSED);
    tw_verdict verdict;
    assert_i64_equal(sell_some(local, KEY, 5, 100, 5000), 5);
    assert_i64_equal(sell_some(closed, KEY, 5, 100, 5000), 5);
    proxy_manner(proxy, PROXY_REFUSE);
    proxy_cut_all(proxy);
    assert_true(test_wait(is_away, engine, TEST_PATIENCE_MS));
    assert_status(tw_acquire(closed, KEY, 1, 100, &verdict), TW_DENIED);
    int64_t more = sell(local, KEY, 1, 100, 50, &verdict);
    assert_true(more >= 1 && more < 95);
    assert_status(tw_acquire(local, KEY, 1, 100, &verdict), TW_DENIED);
    assert_int_equal(verdict.final, 0);
    proxy_manner(proxy, PROXY_OPEN);
    assert_i64_equal(sell(closed, KEY, 1, 100, TEST_PATIENCE_MS, &verdict), 95);
    assert_i64_equal(more + sell(local, KEY, 1, 100, TEST_PATIENCE_MS, &verdict), 95);
    assert_int_equal(verdict.final, 1);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
    redis_server_destroy(&server);
}

/* How many windows sold all they had, and were over when the next one began. */
static int whole_windows(const int64_t *sold, int count, int64_t limit) {
    int whole = 0;
    for (int i = 0; i < count - 1; i++) whole += sold[i] == limit && sold[i + 1] != 0;
    return whole;
}

/* Two engines sell 40 units in each of some windows. Returns how many windows were sold whole: two, or it was too
 * slow. */
static int sell_windows(int64_t window_ms) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *sale[2] = {hard_family_of(a, "sale", TW_WINDOW_ALIGNED, window_ms, TW_OUTAGE_LOCAL),
                          hard_family_of(b, "sale", TW_WINDOW_ALIGNED, window_ms, TW_OUTAGE_LOCAL)};
    tw_verdict verdict;
    enum { WINDOWS = 40, LIMIT = 40 };
    int64_t sold[WINDOWS] = {0}, first_ms = 0, until_ms = test_mono_ms() + 10 * window_ms;
    if (until_ms > test_mono_ms() + TEST_PATIENCE_MS) until_ms = test_mono_ms() + TEST_PATIENCE_MS;
    for (int turn = 0; whole_windows(sold, WINDOWS, LIMIT) < 2 && test_mono_ms() < until_ms; turn++) {
        if (tw_acquire(sale[turn & 1], KEY, 1, LIMIT, &verdict) != TW_OK) {
            test_sleep_ms(2);
            continue;
        }
        if (first_ms == 0) first_ms = verdict.window_start_ms - window_ms; /* the other engine's clock may be behind */
        assert_in_range((verdict.window_start_ms - first_ms) / window_ms, 0, WINDOWS - 1);
        sold[(verdict.window_start_ms - first_ms) / window_ms]++;
    }
    for (int i = 0; i < WINDOWS; i++) assert_true(sold[i] <= LIMIT);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
    return whole_windows(sold, WINDOWS, LIMIT);
}

/* Goal: each window has the whole limit and no more; units of one window are never spent in the next
 * (TW_WINDOW_ALIGNED). A crowded machine does not sell all within a second: its windows are longer. */
TEST(windows_roll_over_while_units_are_leased) {
    int64_t window_ms = 1000;
    while (sell_windows(window_ms) < 2) {
        assert_true(10 * window_ms < TEST_PATIENCE_MS);
        window_ms *= 4;
    }
}

static _Atomic int64_t wall_step_ms;

static int64_t stepped_clock(void *ctx, int kind) {
    struct timespec now;
    clock_gettime(kind == TW_CLOCK_WALL ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
    int64_t step_ms = kind == TW_CLOCK_WALL ? atomic_load(&wall_step_ms) : 0;
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec + step_ms * 1000000;
}

/* Goal: a wall clock that is set back or forward in the middle of a sale changes nothing in what is sold. */
TEST(clock_steps_sell_nothing_twice) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_options options;
    tw_engine *engine = NULL;
    quick_options(&options, server.url);
    options.clock_now_ns = stepped_clock;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = hard_family_of(engine, "sale", TW_WINDOW_MONTH, 0, TW_OUTAGE_LOCAL);
    tw_verdict verdict;
    int64_t sold = sell_some(family, KEY, 40, 120, 5000);
    atomic_store(&wall_step_ms, -90000);
    sold += sell_some(family, KEY, 40, 120, 5000);
    atomic_store(&wall_step_ms, 4000);
    sold += sell(family, KEY, 1, 120, TEST_PATIENCE_MS, &verdict);
    assert_i64_equal(sold, 120);
    assert_int_equal(verdict.final, 1);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: with wait_replicas a grant counts only when the replicas have it: without a replica nothing is sold. */
TEST(without_the_replicas_nothing_is_sold) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_options options;
    tw_engine *engine = NULL;
    quick_options(&options, server.url);
    options.wait_replicas = 1;
    options.redis_timeout_ms = 100;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = hard_family(engine, "sale");
    tw_verdict verdict;
    assert_i64_equal(sell(family, KEY, 1, 100, 3000, &verdict), 0);
    assert_int_equal(verdict.final, 0);
    (void)tw_close(engine, 100);
    redis_server_destroy(&server);
}

#define MISTAKES 10000

/* Goal: operators' mistakes are cheap: whatever is asked without force, nothing is freed, and no more is sold than the
 * limit less what the dead one holds. By force no more is freed than is said before, and what the counter has beyond
 * all reports stays sold. */
TEST(without_force_no_mistake_frees_a_unit) {
    static const char dead[] = "00112233445566778899aabbccddeeff";
    struct redis_server server;
    redis_server_start(&server, NULL);
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    tw_engine *engine = NULL;
    tw_options options;
    quick_options(&options, server.url);
    options.redis_timeout_ms = TEST_PATIENCE_MS; /* of ten thousand calls, one may be late on a busy machine */
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = hard_family(engine, "sale");
    tw_verdict verdict;
    redis_server_ask(&server, "HSET", "tw:lease:sale:tv", dead, "1 40 0 10 0", "t", "40", "s", "10", "e", "x", "l",
                     "100", NULL);
    redis_server_ask(&server, "INCRBY", "sale:tv", "17", NULL); /* 7 of them were never reported */
    for (int i = 0; i < MISTAKES; i++) {
        char asked[40];
        int64_t units = -1;
        snprintf(asked, sizeof asked, "%s", dead);
        if (i % 8 != 0) asked[test_prng_next(&prng) % 33] = "0123456789abcdefgxX? *"[test_prng_next(&prng) % 22];
        tw_status status = tw_lease_stranded(family, asked, &units);
        assert_true(status == TW_OK ? units == 23 : status == TW_ERR_UNKNOWN_TOKEN);
    }
    assert_string_equal(redis_server_ask(&server, "HGET", "tw:lease:sale:tv", "t", NULL), "40");
    assert_i64_equal(sell_some(family, KEY, 60, 100, TEST_PATIENCE_MS), 60);
    assert_i64_equal(sell(family, KEY, 1, 100, 2500, &verdict), 0);
    int64_t said = -1, freed = -1;
    assert_true(tw_flush(engine, 5000) == TW_OK);
    await_report(&server, 70);
    assert_status(tw_lease_stranded(family, dead, &said), TW_OK);
    assert_status(tw_lease_reclaim(family, dead, &freed), TW_OK);
    assert_i64_equal(said, 23);
    assert_i64_equal(freed, said);
    assert_status(tw_lease_reclaim(family, "ffffffffffffffffffffffffffffffff", &freed), TW_ERR_UNKNOWN_TOKEN);
    assert_non_null(strstr(tw_error_text(), dead));
    assert_status(tw_lease_reclaim(hard_family(engine, "none"), dead, &freed), TW_ERR_UNKNOWN_TOKEN);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: the units of a dead engine are reported as stranded and not sold; after tw_lease_reclaim() they are. Units
 * refunded at one engine are sold by another, even if that one had a "final" denial. */
TEST(stranded_units_are_freed_by_hand_and_refunds_are_sold_again) {
    static const char dead[] = "00112233445566778899aabbccddeeff";
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    tw_verdict verdict;
    int64_t units = -1, until_ms = test_mono_ms() + 5000;
    redis_server_ask(&server, "HSET", "tw:lease:sale:tv", dead, "1 40 0 10 0", "t", "40", "s", "10", "e", "x", "l",
                     "100", NULL);
    assert_i64_equal(sell_some(sale_a, KEY, 60, 100, TEST_PATIENCE_MS), 60);
    assert_i64_equal(sell(sale_a, KEY, 1, 100, 2500, &verdict), 0);
    assert_int_equal(verdict.final, 0);
    assert_status(tw_acquire(sale_a, KEY, 1, 100, &verdict), TW_DENIED);
    assert_i64_equal(test_stat_of(a, lease_stranded), 30);
    assert_status(tw_lease_reclaim(sale_a, "no instance", &units), TW_ERR_UNKNOWN_TOKEN);
    redis_server_ask(
        &server, "EVAL", /* more keys than one script frees, or a page has */
        "for i = 1, 200 do redis.call('HSET', 'tw:lease:sale:7:' .. i .. ' \\n', ARGV[1], '1 5 0 2 0', 't', 5) "
        "end",
        "0", dead, NULL);
    assert_status(tw_lease_reclaim(sale_a, dead, &units), TW_OK);
    assert_i64_equal(units, 30 + 200 * 3);
    assert_string_equal(redis_server_ask(&server, "HGET", "tw:lease:sale:7:200 \n", "t", NULL), "2");
    assert_status(tw_lease_reclaim(sale_a, dead, &units), TW_OK);
    assert_i64_equal(units, 0);
    assert_i64_equal(sell(sale_a, KEY, 1, 100, TEST_PATIENCE_MS, &verdict), 30);
    assert_int_equal(verdict.final, 1);
    assert_status(buy(sale_b, KEY, 1, 100, 5000, &verdict), TW_DENIED);
    assert_int_equal(verdict.final, 1);
    assert_status(tw_refund(sale_a, KEY, 5, 0), TW_OK);
    int64_t sold = 0;
    for (until_ms = test_mono_ms() + 5000; sold < 5 && test_mono_ms() < until_ms; test_sleep_ms(2))
        sold += tw_acquire(sale_b, KEY, 1, 100, &verdict) == TW_OK;
    assert_i64_equal(sold, 5);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "sale:tv"), 90);
    redis_server_destroy(&server);
}

#define LONG_MS 300000 /* no call waits so long: a test that does has failed */

static void wait_in_vain(tw_family *family) {
    tw_verdict verdict;
    int64_t began_ms = test_mono_ms();
    assert_status(tw_acquire_wait(family, KEY, 1, 100, LONG_MS, &verdict), TW_DENIED);
    assert_int_equal(verdict.final, 1);
    assert_true(test_mono_ms() - began_ms < LONG_MS / 2);
}

/* Goal: tw_acquire_wait() ends when all is sold. It does not end by an old denial if units have been returned since,
 * nor if the window's end brings new ones. */
TEST(nobody_waits_for_what_is_sold_out) {
    struct redis_server server;
    tw_verdict verdict;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    tw_family *short_a = hard_family_of(a, "short", TW_WINDOW_ALIGNED, 2000, TW_OUTAGE_LOCAL);
    assert_status(tw_acquire_wait(sale_a, KEY, 1, 100, LONG_MS, NULL), TW_OK);
    assert_i64_equal(sell(sale_a, KEY, 1, 100, TEST_PATIENCE_MS, &verdict), 99);
    wait_in_vain(sale_a);
    wait_in_vain(sale_b);
    assert_status(tw_refund(sale_a, KEY, 1, 0), TW_OK);
    await_report(&server, 99);
    test_sleep_ms(1100); /* what Redis said before is older than a second: it ends no wait */
    assert_status(tw_acquire_wait(sale_b, KEY, 1, 100, LONG_MS, &verdict), TW_OK);
    wait_in_vain(sale_b);
    for (int window = 0; window < 2; window++) {
        assert_status(tw_acquire_wait(short_a, KEY, 100, 100, LONG_MS, &verdict), TW_OK);
        int64_t start_ms = verdict.window_start_ms;
        assert_status(tw_acquire_wait(short_a, KEY, 1, 100, LONG_MS, &verdict), TW_OK);
        assert_true(verdict.window_start_ms > start_ms);
        assert_status(tw_refund(short_a, KEY, 1, verdict.window_start_ms), TW_OK);
    }
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

static bool has_dripped(void *proxy) {
    return proxy_look(proxy).happened[PROXY_DRIP] != 0;
}

/* Goal: a reply that was under way for long is no news: it ends no wait for a unit that was returned meanwhile.
 * Method: B has heard that all is sold, and asks again after a second. Redis answers at once that all is sold, and the
 * reply comes byte by byte. Then A returns a unit. */
TEST(a_late_reply_ends_no_wait) {
    struct redis_server server;
    tw_verdict verdict;
    tw_options options;
    tw_engine *b;
    redis_server_start(&server, NULL);
    struct proxy *proxy = proxy_start(&server, test_seed());
    proxy_only(proxy, "tw:lease:sale:tv");
    tw_engine *a = quick_engine(server.url, NULL);
    quick_options(&options, proxy_url(proxy));
    options.redis_timeout_ms = TEST_PATIENCE_MS;
    assert_status(test_open(&options, &b), TW_OK);
    tw_family *sale_a = hard_family(a, "sale"), *sale_b = hard_family(b, "sale");
    assert_i64_equal(sell(sale_a, KEY, 1, 100, TEST_PATIENCE_MS, &verdict), 100);
    await_report(&server, 100);
    do assert_int_not_equal(tw_acquire(sale_b, KEY, 1, 100, &verdict), TW_OK);
    while (!verdict.final);
    proxy_order(proxy, &(struct proxy_order){.fault = PROXY_DRIP, .at = 20});
    while (!has_dripped(proxy)) {
        assert_status(tw_acquire(sale_b, KEY, 1, 100, &verdict), TW_DENIED);
        test_sleep_ms(1);
    }
    assert_status(tw_refund(sale_a, KEY, 1, 0), TW_OK);
    await_report(&server, 99);
    while (test_mono_ms() - proxy_look(proxy).fault_ms < 1100) test_sleep_ms(1); /* a second old, it ends no wait */
    assert_status(tw_acquire_wait(sale_b, KEY, 1, 100, LONG_MS, &verdict), TW_OK);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
    redis_server_destroy(&server);
}

/* Goal: a family that is closed gives back what its leases hold, though its counts were sent long before: nobody else
 * could ever sell it. */
TEST(a_closed_family_gives_its_units_back) {
    struct redis_server server;
    tw_options options;
    tw_engine *engine, *other;
    tw_verdict verdict;
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.sync_interval_ms = 1000; /* its leases are looked at less often than its windows */
    assert_status(test_open(&options, &engine), TW_OK);
    other = quick_engine(server.url, NULL);
    tw_family *stock = hard_family(engine, "stock"), *of_other = hard_family(other, "stock");
    assert_status(buy(stock, tw_str("tv"), 1, 1000, 20000, &verdict), TW_OK);
    assert_status(buy(stock, tw_str("radio"), 1, 1000, 20000, &verdict), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_family_close(stock), TW_OK);
    assert_i64_equal(sell(of_other, tw_str("tv"), 1, 1000, TEST_PATIENCE_MS, &verdict), 999);
    assert_i64_equal(sell(of_other, tw_str("radio"), 1, 1000, TEST_PATIENCE_MS, &verdict), 999);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(other, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: a family that is closed while Redis is away waits for it, and tw_close() does not wait for the family: it keeps
 * its time. With Redis back in that time, the units are back, too. */
TEST(a_family_closed_without_redis_delays_no_close) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct redis_server server;
    tw_verdict verdict;
    redis_server_start(&server, durable);
    for (int is_back = 0; is_back < 2; is_back++) {
        const char *key = is_back ? "radio" : "tv";
        tw_engine *engine = quick_engine(server.url, NULL);
        tw_family *stock = hard_family(engine, "stock");
        assert_status(buy(stock, tw_str(key), 1, 1000, 20000, &verdict), TW_OK);
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_kill(&server);
        assert_status(tw_family_close(stock), TW_OK);
        test_sleep_ms(100); /* turns in which the engine notices the loss */
        if (is_back) redis_server_restart(&server);
        assert_status(tw_close(engine, is_back ? 20000 : 300), TW_OK); /* all counts were acknowledged before */
        if (!is_back) redis_server_restart(&server);
    }
    tw_engine *other = quick_engine(server.url, NULL);
    assert_i64_equal(sell(hard_family(other, "stock"), tw_str("radio"), 1, 1000, TEST_PATIENCE_MS, &verdict), 999);
    assert_status(tw_close(other, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
