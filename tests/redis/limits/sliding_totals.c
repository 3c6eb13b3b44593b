/* sliding_totals.c -- soft sliding limits over two engines: how the totals of both windows weigh, against a reference
 * that knows every admission. The test controls time (a step is 10 ms, and every request of a step has its reply in
 * it), so the order of events is always the same. Redis is real. */
#include "tests/redis/sync_support.h"

#include <time.h>

#define INTERVAL_MS 100
#define LIMIT 1000000
#define NODES 2

struct world {
    struct redis_server server;
    struct fake_clock clock;
    int64_t first_ms; /* the start of the window in which the test began */
    tw_engine *engines[NODES];
    tw_family *families[NODES], *sharing[NODES];
    int64_t admitted[8]; /* the truth, by window */
    int64_t samples, bounded;
};

/* ---- the world --------------------------------------------------------------------------------------------------- */

static int64_t now_of(struct world *world) {
    return fake_clock_wall_ms(&world->clock);
}

static tw_family *sliding_family(tw_engine *engine, const char *name, uint32_t on_outage) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.window_ms = TW_HOUR;
    options.limit_shape = TW_SHAPE_SLIDING;
    options.on_outage = on_outage;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static void open_node(struct world *world, int node) {
    tw_options options;
    quick_options(&options, world->server.url);
    options.threads = TW_HOST_DRIVEN;
    options.sync_interval_ms = options.redis_timeout_ms = INTERVAL_MS;
    fake_clock_install(&world->clock, &options);
    assert_status(test_open(&options, &world->engines[node]), TW_OK);
    world->families[node] = sliding_family(world->engines[node], "slides", TW_OUTAGE_LOCAL);
    world->sharing[node] = sliding_family(world->engines[node], "shares", TW_OUTAGE_SHARE);
}

static void turn(struct world *world) {
    for (int node = 0; node < NODES; node++)
        if (world->engines[node] != NULL) assert_status(tw_turn(world->engines[node]), TW_OK);
}

/* When the first reply is here, everything written before it was executed; when the second is here, it was answered. */
static void await_answers(struct world *world) {
    if (world->server.pid == 0) return;
    for (int i = 0; i < 2; i++) assert_string_equal(redis_server_ask(&world->server, "PING", NULL), "PONG");
}

static void step(struct world *world) {
    fake_clock_advance_ms(&world->clock, 10);
    turn(world);
    await_answers(world);
    turn(world);
}

static void steps(struct world *world, int count) {
    while (count-- > 0) step(world);
}

static void await_all_live(struct world *world) {
    int tries = 0;
    while (test_stat_of(world->engines[0], live_engines) < NODES ||
           test_stat_of(world->engines[1], live_engines) < NODES) {
        step(world);
        assert_true(tries++ < 3000);
    }
}

static void begin(struct world *world, int64_t before_end_ms) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    memset(world, 0, sizeof *world);
    redis_server_start(&world->server, durable);
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* windows must not be over by Redis's own clock */
    world->first_ms = (int64_t)now.tv_sec * 1000 / TW_HOUR * TW_HOUR;
    fake_clock_init(&world->clock, world->first_ms + TW_HOUR - before_end_ms);
    for (int node = 0; node < NODES; node++) open_node(world, node);
}

static void end(struct world *world) {
    for (int node = 0; node < NODES; node++) assert_status(tw_close(world->engines[node], TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&world->server);
}

/* ---- the truth --------------------------------------------------------------------------------------------------- */

static int64_t truth_of(struct world *world) {
    int64_t window = (now_of(world) - world->first_ms) / TW_HOUR;
    int64_t left_ms = world->first_ms + (window + 1) * TW_HOUR - now_of(world);
    int64_t before = window > 0 ? world->admitted[window - 1] : 0;
    return world->admitted[window] + (before * left_ms + TW_HOUR - 1) / TW_HOUR;
}

static tw_verdict take(struct world *world, int node, int64_t n) {
    tw_verdict verdict;
    assert_status(tw_acquire(world->families[node], tw_str("k"), n, LIMIT, &verdict), TW_OK);
    world->admitted[(now_of(world) - world->first_ms) / TW_HOUR] += n;
    int64_t error = verdict.used - truth_of(world);
    world->samples++;
    if (verdict.error_bound == TW_UNBOUNDED) return verdict;
    world->bounded++;
    if (error > verdict.error_bound || -error > verdict.error_bound)
        fail_msg("used %lld, in truth %lld, and the bound is %lld", (long long)verdict.used, (long long)truth_of(world),
                 (long long)verdict.error_bound);
    return verdict;
}

/* Makes both engines ask for the totals: an engine gets no total that it does not ask for. */
static void let_them_ask(struct world *world, tw_family *const *families) {
    for (int node = 0; node < NODES; node++) assert_status(tw_get(families[node], tw_str("k"), NULL), TW_OK);
    steps(world, 50);
}

/* Checks that the verdicts of both engines include all that was admitted. */
static void assert_they_agree(struct world *world) {
    for (int node = 0; node < NODES; node++) (void)take(world, node, 1);
    steps(world, 50);
    let_them_ask(world, world->families);
    for (int node = 0; node < NODES; node++) {
        tw_verdict verdict = take(world, node, 0);
        assert_i64_equal(verdict.used, truth_of(world));
        assert_i64_equal(verdict.decided_by, TW_BY_VIEW);
        assert_true(verdict.error_bound != TW_UNBOUNDED);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

TEST(calls_on_one_engine_are_seen_by_the_other) {
    struct world world;
    begin(&world, TW_HOUR / 2);
    await_all_live(&world);
    (void)take(&world, 1, 1);
    (void)take(&world, 0, 30);
    steps(&world, 3 * INTERVAL_MS / 10);
    assert_i64_equal(take(&world, 1, 0).used, 31);
    assert_they_agree(&world);
    end(&world);
}

/* Goal: while both engines count over a roll-over, each verdict is within its bound, and most verdicts have a bound. */
TEST(what_is_used_is_within_its_bound_across_a_roll_over) {
    struct world world;
    begin(&world, 2000);
    await_all_live(&world);
    int64_t window = 0;
    for (int i = 0; window == 0 || i < 400; i++) {
        (void)take(&world, 0, 2);
        (void)take(&world, 1, 1);
        step(&world);
        if (window == 0 && now_of(&world) >= world.first_ms + TW_HOUR) window = 1, i = 300;
    }
    assert_true(world.admitted[0] > 30 && world.admitted[1] > 100);
    assert_true(world.bounded * 2 > world.samples);
    print_message("# %lld of %lld samples had a bound\n", (long long)world.bounded, (long long)world.samples);
    assert_they_agree(&world);
    fake_clock_advance_ms(&world.clock, TW_HOUR / 2);
    assert_they_agree(&world);
    end(&world);
}

/* Goal: Redis gives the count of the previous window, also to an engine that was not there then. */
TEST(an_engine_that_begins_anew_learns_of_the_window_before) {
    struct world world;
    begin(&world, 4000); /* both engines are known by then */
    await_all_live(&world);
    (void)take(&world, 0, 70);
    (void)take(&world, 1, 30);
    fake_clock_advance_ms(&world.clock,
                          world.first_ms + TW_HOUR - now_of(&world)); /* not yet sent when its window ends */
    steps(&world, 5 * INTERVAL_MS / 10);
    fake_clock_advance_ms(&world.clock, TW_HOUR / 4);
    assert_they_agree(&world);
    assert_status(tw_close(world.engines[1], TEST_PATIENCE_MS), TW_OK);
    world.engines[1] = NULL;
    open_node(&world, 1);
    await_all_live(&world);
    tw_verdict verdict = take(&world, 1, 1);
    assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE);
    assert_i64_equal(verdict.used, 1);
    steps(&world, 2 * INTERVAL_MS / 10);
    assert_i64_equal(take(&world, 1, 0).used, truth_of(&world));
    assert_they_agree(&world);
    end(&world);
}

/* How many units a node gets, one by one. */
static int64_t share_of(struct world *world, int node, int64_t limit) {
    int64_t got = 0;
    while (tw_acquire(world->sharing[node], tw_str("k"), 1, limit, NULL) == TW_OK) got++;
    return got;
}

/* Goal: while Redis is unreachable an engine continues with what it knew of both windows, also over a roll-over; the
 * shares of what remained add up to the limit; and when Redis is back both engines are right again. */
TEST(an_outage_over_a_roll_over_is_made_good) {
    struct world world;
    begin(&world, TW_HOUR / 2);
    await_all_live(&world);
    (void)take(&world, 0, 40);
    assert_they_agree(&world);
    for (int node = 0; node < NODES; node++)
        assert_status(tw_acquire(world.sharing[node], tw_str("k"), 20, 100, NULL), TW_OK);
    steps(&world, 50);
    let_them_ask(&world, world.sharing);
    await_all_live(&world);
    redis_server_kill(&world.server);
    while (take(&world, 0, 0).decided_by != TW_BY_OUTAGE || take(&world, 1, 0).decided_by != TW_BY_OUTAGE) step(&world);
    assert_i64_equal(share_of(&world, 0, 100), 30);
    assert_i64_equal(share_of(&world, 1, 100), 30);
    assert_i64_equal(take(&world, 0, 10).used, 52);
    assert_i64_equal(take(&world, 1, 5).used, 47);
    fake_clock_advance_ms(&world.clock, TW_HOUR); /* half of the previous window still weighs, as far as it is known */
    turn(&world);
    tw_verdict verdict = take(&world, 0, 3);
    assert_i64_equal(verdict.used, 3 + 52 / 2);
    assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
    assert_i64_equal(take(&world, 1, 4).used, 4 + (47 + 1) / 2);
    redis_server_restart(&world.server);
    int tries = 0;
    while (test_stat_of(world.engines[0], outage_ms) != 0 || test_stat_of(world.engines[1], outage_ms) != 0) {
        step(&world);
        assert_true(tries++ < 5000);
    }
    assert_i64_equal(take(&world, 0, 1).error_bound, TW_UNBOUNDED); /* the other engine may not be back yet */
    steps(&world, 300);
    fake_clock_advance_ms(&world.clock, 13000);
    assert_they_agree(&world);
    end(&world);
}

int main(void) {
    redis_server_require();
    return test_run();
}
