/* strict_known.c -- what an engine knows of a strict limit for the time when Redis is unreachable. It learns each total
 * from the answer of Redis, and asks for it by a batch only where the answer does not suffice.
 * Covers: engine/count/lookup.c, engine/ask/strict.c. */
#include "tests/redis/waiting/strict_support.h"

#include "engine/port/services.h"
#include "tests/support/side_by_side.h"

#define LIMIT 100
#define TIMEOUT_MS 2000

struct known {
    struct redis_server server;
    tw_engine *engine;
    tw_family *family;
};

static void begin(struct known *known, uint32_t interval_ms) {
    tw_options options;
    redis_server_start(&known->server, NULL);
    quick_options(&options, known->server.url);
    options.redis_timeout_ms = TIMEOUT_MS;
    options.sync_interval_ms = interval_ms;
    assert_status(test_open(&options, &known->engine), TW_OK);
    tw_family_options family_options = strict_options("s");
    known->family = strict_family(known->engine, &family_options);
    strict_await_redis(known->family, "other");
}

static void end(struct known *known) {
    assert_status(tw_close(known->engine, 0), TW_OK);
    redis_server_destroy(&known->server);
}

static void take_from_redis(struct known *known, const char *key, int64_t n) {
    assert_int_equal(strict_take(known->family, key, n, LIMIT, TW_OK).decided_by, TW_BY_REDIS);
}

/* Batches bring the totals of all keys that were asked for. Calls that follow begin after these totals have come, by
 * the engine's clock, which goes on by some milliseconds at a time. */
static void bring_totals(struct known *known) {
    assert_status(tw_flush(known->engine, TEST_PATIENCE_MS), TW_OK);
    int64_t came_ms = twi_port_mono_ms(known->engine);
    while (twi_port_mono_ms(known->engine) == came_ms) test_sleep_ms(1);
}

static int64_t admitted_here(struct known *known, const char *key) {
    int64_t admitted = 0;
    for (int calls = 0; calls < 2 * LIMIT; calls++) {
        tw_verdict verdict;
        tw_status status = tw_acquire(known->family, tw_str(key), 1, LIMIT, &verdict);
        assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
        admitted += status == TW_OK;
    }
    return admitted;
}

/* Goal: when Redis goes away, an engine admits what the last answers have left, whatever other engines had counted by
 * then. Method: no batch comes by itself within this test. Three keys: others count up; others count down, which the
 * next batch shows; and this engine has units of its own on their way. */
TEST(the_last_answer_is_known_when_redis_goes_away) {
    static const char *const keys[] = {"up", "down", "own"};
    struct known known;
    int64_t left[3];
    begin(&known, TW_MINUTE);
    for (int i = 0; i < 3; i++) take_from_redis(&known, keys[i], 10);
    bring_totals(&known);
    redis_server_ask(&known.server, "DECRBY", "s:down", "7", NULL);
    assert_status(tw_add(known.family, tw_str("own"), 5, NULL), TW_OK);
    take_from_redis(&known, "down", 2);
    take_from_redis(&known, "own", 2);
    bring_totals(&known);
    redis_server_ask(&known.server, "INCRBY", "s:up", "40", NULL);
    take_from_redis(&known, "up", 1);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "s:%s", keys[i]);
        left[i] = LIMIT - redis_server_get(&known.server, name);
    }
    redis_server_kill(&known.server);
    for (int i = 0; i < 3; i++) assert_i64_equal(admitted_here(&known, keys[i]), left[i]);
    assert_i64_equal(left[0], LIMIT - 51);
    assert_i64_equal(left[1], LIMIT - 5);
    assert_i64_equal(left[2], LIMIT - 17);
    assert_int_not_equal(tw_close(known.engine, 0), TW_OK); /* Redis cannot get what was admitted here */
    redis_server_destroy(&known.server);
}

/* Goal: Redis has no work with a strict limit but its calls. Method: keys whose totals are known are taken from, up to
 * the limit and beyond, while the engine syncs often; no batch follows. */
TEST(calls_of_known_keys_cause_no_batches) {
    struct known known;
    begin(&known, 20);
    take_from_redis(&known, "a", 1);
    take_from_redis(&known, "b", 1);
    bring_totals(&known);
    int64_t batches = test_stat_of(known.engine, batches_ok);
    assert_true(batches > 0);
    for (int calls = 1; calls < LIMIT; calls++) {
        take_from_redis(&known, "a", 1);
        if (calls < 50) take_from_redis(&known, "b", 2);
    }
    for (int calls = 0; calls < 20; calls++) (void)strict_take(known.family, "a", 1, LIMIT, TW_DENIED);
    assert_status(tw_flush(known.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(test_stat_of(known.engine, batches_ok), batches);
    int64_t view = 0;
    assert_status(tw_get(known.family, tw_str("a"), &view), TW_OK);
    assert_i64_equal(view, LIMIT);
    assert_status(tw_get(known.family, tw_str("b"), &view), TW_OK);
    assert_i64_equal(view, 99);
    end(&known);
}

int main(void) {
    return test_run_side_by_side();
}
