/* clock_back.c -- Redis's clock was an hour ahead, and is set right: what was written meanwhile ends in its own time.
 * And fencing tokens rise, though the server that leads has another clock, or lacks the last token.
 * Method: what a clock that was ahead leaves in Redis is written by the test: scores, ends, expiries an hour away. */
#include "tests/redis/waiting/strict_support.h"

#include "engine/port/messages.h"

#define HOUR_MS "3600000"
#define LIFE_MS 1500 /* of holds and gauges */

static int64_t number(struct redis_server *server, const char *script) {
    return atoll(redis_server_ask(server, "EVAL", script, "0", NULL));
}

static int64_t pttl(struct redis_server *server, const char *key) {
    return atoll(redis_server_ask(server, "PTTL", key, NULL));
}

/* ---- what ends --------------------------------------------------------------------------------------------------- */

/* A strict family that fails closed, with windows of its own. */
static tw_family *begin_with(struct strict *strict, const char *name, tw_family_options *options) {
    strict_begin(strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family_options given = *options;
    *options = strict_options(name);
    options->window = given.window;
    options->window_ms = given.window_ms;
    options->limit_shape = given.limit_shape;
    options->redis_key = given.redis_key;
    return strict_family(strict->engine, options);
}

/* Goal: a sliding limit counts the admitted units while the clock was ahead for one window from now, and no longer. */
TEST(a_sliding_limit_forgets_in_one_window) {
    struct strict strict;
    tw_family *slide = begin_with(
        &strict, "slide",
        &(tw_family_options){.window = TW_WINDOW_ALIGNED, .window_ms = 2000, .limit_shape = TW_SHAPE_SLIDING});
    strict_take(slide, "u", 2, 3, TW_OK);
    strict_take(slide, "u", 1, 3, TW_OK);
    number(&strict.server, "local log = redis.call('KEYS', 'tw:log:*')[1] "
                           "for _, m in ipairs(redis.call('ZRANGEBYSCORE', log, 1, '+inf')) do "
                           "redis.call('ZINCRBY', log, '" HOUR_MS "000', m) end "
                           "redis.call('PEXPIRE', log, " HOUR_MS ") return 1");
    tw_verdict verdict = strict_take(slide, "u", 1, 3, TW_DENIED);
    assert_in_range(verdict.retry_after_ms, 1, 2000);
    test_sleep_ms(2100); /* longer than retry_after_ms may be */
    strict_take(slide, "u", 3, 3, TW_OK);
    strict_take(slide, "u", 1, 3, TW_DENIED);
    strict_end(&strict);
}

/* Goal: a window that its first count begins lasts no longer than its length. */
TEST(a_window_from_first_is_as_long_as_it_is) {
    struct strict strict;
    tw_family *first =
        begin_with(&strict, "first",
                   &(tw_family_options){.window = TW_WINDOW_FROM_FIRST, .window_ms = 5000, .redis_key = "first:%k"});
    strict_take(first, "u", 3, 3, TW_OK);
    redis_server_ask(&strict.server, "PEXPIRE", "first:u", HOUR_MS, NULL);
    strict_take(first, "u", 1, 3, TW_DENIED);
    assert_in_range(pttl(&strict.server, "first:u"), 1, 5000);
    strict_end(&strict);
}

/* Goal: a lock ends no later than its holder ever wanted, counted from when somebody asks for it; and one that was
 * extended, or is long, is never cut. */
TEST(a_lock_ends_as_its_holder_wanted) {
    struct strict strict;
    char token[TW_TOKEN_SIZE], other[TW_TOKEN_SIZE];
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    assert_status(tw_lock(strict.family, tw_str("job"), 2000, token, NULL), TW_OK);
    redis_server_ask(&strict.server, "PEXPIRE", "tw:lock:s:job", HOUR_MS, NULL);
    assert_status(tw_lock(strict.family, tw_str("job"), 100, other, NULL), TW_DENIED);
    assert_in_range(pttl(&strict.server, "tw:lock:s:job"), 1, 2000);
    assert_status(tw_lock_extend(strict.family, tw_str("job"), token, 7200000), TW_OK);
    assert_status(tw_lock(strict.family, tw_str("job"), 100, other, NULL), TW_DENIED);
    assert_in_range(pttl(&strict.server, "tw:lock:s:job"), 7100000, 7200000);
    assert_true(pttl(&strict.server, "tw:calls:s:job") >= 7100000); /* otherwise it would not be known any more */
    strict_end(&strict);
}

static bool is_admitted(void *ctx) {
    return tw_hold(ctx, tw_str("a"), 1, NULL) == TW_OK;
}

/* Goal: the hold of an engine that died while the clock was ahead ends one lifetime after somebody asks; that of an
 * engine that lives stays. */
TEST(a_dead_hold_makes_room) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    test_tuning.presence_life_ms = LIFE_MS;
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0);
    number(&server, "local t = redis.call('TIME') return redis.call('ZADD', 'tw:hold:jobs:a', t[1] * 1000 + " HOUR_MS
                    ", 'dead:1')");
    assert_status(tw_hold(family, tw_str("a"), 1, NULL), TW_DENIED);
    assert_true(test_wait(is_admitted, family, 10 * LIFE_MS));
    test_sleep_ms(2 * LIFE_MS);
    assert_status(tw_hold(family, tw_str("a"), 1, NULL), TW_DENIED);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

static bool is_three(void *ctx) {
    return redis_server_get(ctx, "online:k") == 3;
}

/* Goal: the part of an engine that died while the clock was ahead ends one lifetime after the next statement. */
TEST(a_dead_part_of_a_gauge_ends) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    test_tuning.presence_life_ms = LIFE_MS;
    number(&server, "local t = redis.call('TIME') redis.call('SET', 'online:k', 7) return redis.call('HSET', "
                    "'tw:gauge:online:k', string.rep('d', 32), '7 ' .. string.format('%.0f', t[1] * 1000 + " HOUR_MS
                    ") .. ' 1')");
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *gauge = gauge_of(engine);
    assert_status(tw_add(gauge, tw_str("k"), 3, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "online:k"), 10);
    assert_true(test_wait(is_three, &server, 10 * LIFE_MS));
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

static bool is_alone(void *ctx) {
    return test_stat_of(ctx, live_engines) == 1;
}

/* Goal: engines that died while the clock was ahead do not count as alive. */
TEST(the_registry_forgets_the_dead) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    number(&server, "local t = redis.call('TIME') for i = 1, 9 do redis.call('ZADD', 'tw:live', t[1] * 1000 + " HOUR_MS
                    ", 'dead' .. i) end return 1");
    tw_engine *engine = quick_engine(server.url, NULL);
    assert_true(test_wait(is_alone, engine, TEST_PATIENCE_MS));
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- fencing tokens ---------------------------------------------------------------------------------------------- */

/* A replica is promoted that has neither the lock nor the last token. */
static void forget_lock(struct strict *strict) {
    redis_server_ask(&strict->server, "DEL", "tw:lock:s:job", "tw:fence:s:job", "tw:calls:s:job", NULL);
}

/* Goal: a fencing token is above each that its engine was given, or was told while another one held the lock, also if
 * Redis has lost all of it, and its clock is behind. Method: the earlier token is ten seconds ahead of the clock. */
TEST(a_fence_rises_though_redis_forgot_it) {
    struct strict strict;
    char token[TW_TOKEN_SIZE];
    uint64_t fence = 0, next = 0;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    number(&strict.server, "local t = redis.call('TIME') redis.call('SET', 'tw:fence:s:job', "
                           "string.format('%.0f', (t[1] + 10) * 1000000)) return 1");
    assert_status(tw_lock(strict.family, tw_str("job"), 60000, token, &fence), TW_OK);
    tw_engine *other = quick_engine(proxy_url(strict.proxy), NULL);
    tw_family_options options = strict_options("s");
    tw_family *theirs = strict_family(other, &options);
    assert_status(tw_lock(theirs, tw_str("job"), 60000, token, NULL), TW_DENIED);
    forget_lock(&strict);
    assert_status(tw_lock(theirs, tw_str("job"), 60000, token, &next), TW_OK);
    assert_true(next > fence);
    forget_lock(&strict);
    fence = next;
    assert_status(tw_lock(theirs, tw_str("job"), 60000, token, &next), TW_OK);
    assert_true(next > fence);
    assert_status(tw_close(other, TEST_PATIENCE_MS), TW_OK);
    strict_end(&strict);
}

/* Goal: a token that is no time, as somebody else may have written it, stays with its key. */
TEST(a_false_fence_stays_with_its_key) {
    struct strict strict;
    char token[TW_TOKEN_SIZE];
    uint64_t fence = 0;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    redis_server_ask(&strict.server, "SET", "tw:fence:s:job", "8000000000000000", NULL);
    assert_status(tw_lock(strict.family, tw_str("job"), 60000, token, &fence), TW_OK);
    assert_true(fence == 8000000000000001);
    assert_status(tw_lock(strict.family, tw_str("other"), 60000, token, &fence), TW_OK);
    assert_true(fence < 4000000000000000);
    strict_end(&strict);
}

int main(void) {
    redis_server_require();
    return test_run();
}
