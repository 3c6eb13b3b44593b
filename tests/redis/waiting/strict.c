/* strict.c -- strict limits over a faulty network: exactly the limit while Redis answers, each call charged once, a
 * result within the deadline whatever happens.
 * Covers: engine/ask/strict.c, engine/ask/strict.h, engine/ask/redis_call.c, sync/script/strict.lua,
 * sync/script/calls.lua. */
#include "tests/redis/waiting/strict_support.h"

#include "strict.lua.h"

#include <pthread.h>
#include <time.h>

/* Goal: Redis decides, exactly, and the verdict names it. */
TEST(redis_admits_exactly_the_limit) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_verdict verdict = strict_take(strict.family, "k", 7, 10, TW_OK);
    assert_i64_equal(verdict.used, 7);
    assert_i64_equal(verdict.remaining, 3);
    assert_i64_equal(verdict.error_bound, 0);
    assert_int_equal(verdict.decided_by, TW_BY_REDIS);
    verdict = strict_take(strict.family, "k", 4, 10, TW_DENIED);
    assert_i64_equal(verdict.used, 7);
    assert_int_equal(verdict.final, 0); /* three are left */
    (void)strict_take(strict.family, "k", 3, 10, TW_OK);
    verdict = strict_take(strict.family, "k", 1, 10, TW_DENIED);
    assert_int_equal(verdict.final, 1);
    assert_int_equal(strict_take(strict.family, "k", 0, 10, TW_OK).decided_by, TW_BY_REDIS); /* n = 0: only reads */
    assert_i64_equal(strict_take(strict.family, "k", 11, 10, TW_DENIED).retry_after_ms, -1);
    assert_status(tw_acquire(strict.family, tw_str("k"), -1, 10, &verdict), TW_ERR_RANGE);
    assert_status(tw_acquire(strict.family, tw_str(""), 1, 10, &verdict), TW_ERR_KEY);
    assert_i64_equal(redis_server_get(&strict.server, "s:k"), 10);
    assert_i64_equal(test_stat_of(strict.engine, ask_active), 0);
    strict_end(&strict);
}

/* Goal: a key of a strict family lives as long in Redis as in other families: its window and the retention, or from its
 * first count. */
TEST(a_key_ends_in_redis_as_others_do) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_LOCAL);
    tw_family_options options = strict_options("day");
    options.window = TW_WINDOW_DAY;
    options.redis_key = "day:%k:%Y%m%d";
    options.retention_ms = 2 * TW_DAY;
    tw_family *day = strict_family(strict.engine, &options);
    options = strict_options("life");
    options.window = TW_WINDOW_FROM_FIRST;
    options.window_ms = TW_MINUTE;
    tw_family *life = strict_family(strict.engine, &options);
    tw_verdict verdict = strict_take(day, "k", 1, 1, TW_OK);
    int64_t left_ms = verdict.reset_after_ms;
    char name[64], stamp[16];
    time_t start = (time_t)(verdict.window_start_ms / 1000);
    strftime(stamp, sizeof stamp, "%Y%m%d", gmtime(&start));
    snprintf(name, sizeof name, "day:k:%s", stamp);
    int64_t ttl_ms = atoll(redis_server_ask(&strict.server, "PTTL", name, NULL));
    assert_true(ttl_ms <= left_ms + 2 * TW_DAY + 50 && ttl_ms > left_ms + 2 * TW_DAY - 5000);
    verdict = strict_take(day, "k", 1, 1, TW_DENIED);
    assert_true(verdict.retry_after_ms > 0 && verdict.retry_after_ms <= left_ms);
    verdict = strict_take(life, "k", 1, 2, TW_OK);
    assert_true(verdict.reset_after_ms <= TW_MINUTE && verdict.reset_after_ms > TW_MINUTE - 5000);
    assert_i64_equal(strict_take(life, "k", 1, 2, TW_OK).used, 2);
    verdict = strict_take(life, "k", 1, 2, TW_DENIED);
    ttl_ms = atoll(redis_server_ask(&strict.server, "PTTL", "life:k", NULL));
    assert_true(ttl_ms > 50000 && ttl_ms <= verdict.retry_after_ms);
    redis_server_ask(&strict.server, "PEXPIRE", "life:k", "5", NULL);
    test_sleep_ms(10);
    assert_i64_equal(strict_take(life, "k", 1, 2, TW_OK).used, 1); /* a new life of the key */
    assert_i64_equal(atoll(redis_server_ask(&strict.server, "PTTL", "tw:calls:life:k", NULL)) > 500000, 1);
    strict_end(&strict);
}

/* Goal: at 2^53 too, where a double has gaps: three units are left, and three are admitted, or reserved. */
TEST(the_greatest_limit_is_exact) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_LOCAL);
    tw_family_options options = strict_options("log");
    options.window = TW_WINDOW_ALIGNED;
    options.limit_shape = TW_SHAPE_SLIDING;
    tw_family *families[] = {strict.family, strict_family(strict.engine, &options)};
    for (int i = 0; i < 2; i++) {
        int64_t limit = TW_DELTA_MAX;
        (void)strict_take(families[i], "k", limit - 3, limit, TW_OK);
        (void)strict_take(families[i], "k", 4, limit, TW_DENIED);
        (void)strict_take(families[i], "k", 2, limit, TW_OK);
        (void)strict_take(families[i], "k", 2, limit, TW_DENIED);
        assert_i64_equal(strict_take(families[i], "k", 1, limit, TW_OK).remaining, 0);
        for (int more = 0; more < 5; more++) (void)strict_take(families[i], "k", 1, limit, TW_DENIED);
    }
    char token[TW_TOKEN_SIZE];
    assert_status(tw_reserve(strict.family, tw_str("k"), 1, TW_DELTA_MAX, 1000, tw_bytes("", 0), token, NULL),
                  TW_DENIED);
    strict_end(&strict);
}

/* Goal: tw_acquire_some() shows in the figures as other calls do, both with what it takes and with what it does not. */
TEST(some_that_are_taken_are_counted) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family_options log = strict_options("log"), bucket = strict_options("bucket");
    log.window = bucket.window = TW_WINDOW_ALIGNED;
    log.window_ms = bucket.window_ms = TW_DAY;
    log.limit_shape = TW_SHAPE_SLIDING;
    bucket.limit_shape = TW_SHAPE_GCRA;
    tw_family *families[] = {strict.family, strict_family(strict.engine, &log), strict_family(strict.engine, &bucket)};
    for (int i = 0; i < 3; i++) {
        static const tw_status wanted[] = {TW_OK, TW_OK, TW_DENIED};
        for (int call = 0; call < 3; call++)
            assert_status(tw_acquire_some(families[i], tw_str("k"), 7, 10, NULL, NULL), wanted[call]);
        assert_i64_equal(test_stat_of(strict.engine, limit_admitted), 2 * (i + 1));
        assert_i64_equal(test_stat_of(strict.engine, limit_denied), i + 1);
        assert_i64_equal(test_stat_of(strict.engine, limit_near), i + 1);
    }
    strict_end(&strict);
}

/* Goal: tw_acquire_some() takes as many as there are, and refunded units can be acquired again once the refund was
 * sent. */
TEST(some_are_taken_and_some_given_back) {
    struct strict strict;
    tw_verdict verdict;
    int64_t taken = -1;
    strict_begin(&strict, STRICT_TRIES_MS, TW_OUTAGE_LOCAL);
    tw_family_options options = strict_options("log");
    options.window = TW_WINDOW_ALIGNED;
    options.limit_shape = TW_SHAPE_SLIDING;
    tw_family *families[] = {strict.family, strict_family(strict.engine, &options)};
    for (int i = 0; i < 2; i++) {
        tw_family *family = families[i];
        assert_status(tw_acquire_some(family, tw_str("k"), 7, 10, &taken, &verdict), TW_OK);
        assert_i64_equal(taken, 7);
        strict_order(&strict, PROXY_DROP_REPLY, 1); /* the repeated call gets the same units */
        assert_status(tw_acquire_some(family, tw_str("k"), 7, 10, &taken, &verdict), TW_OK);
        assert_i64_equal(taken, 3);
        assert_i64_equal(verdict.used, 10);
        assert_int_equal(verdict.decided_by, TW_BY_REDIS);
        assert_status(tw_acquire_some(family, tw_str("k"), 20, 10, &taken, &verdict), TW_DENIED);
        assert_i64_equal(taken, 0);
        assert_true(verdict.retry_after_ms > 0);
        assert_status(tw_refund(family, tw_str("k"), 4, verdict.window_start_ms), TW_OK);
        assert_status(tw_flush(strict.engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(strict_take(family, "k", 0, 10, TW_OK).used, 6);
        assert_status(tw_acquire_wait(family, tw_str("k"), 4, 10, 100, &verdict), TW_OK);
    }
    assert_status(tw_flush(strict.engine, TEST_PATIENCE_MS), TW_OK); /* brings the total */
    redis_server_kill(&strict.server);
    assert_status(tw_acquire_some(strict.family, tw_str("k"), 20, 12, &taken, &verdict),
                  TW_OK); /* decided by what this engine knows */
    assert_i64_equal(taken, 2);
    assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
    (void)tw_close(strict.engine, 100);
    proxy_stop(strict.proxy);
    redis_server_destroy(&strict.server);
}

/* Goal: tw_acquire_wait() ends when Redis reports that all is used, unless the key's end lies within its time-out. */
TEST(nobody_waits_for_what_is_used_up) {
    struct strict strict;
    tw_verdict verdict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family_options options = strict_options("life");
    options.window = TW_WINDOW_FROM_FIRST;
    options.window_ms = TW_SECOND;
    tw_family *life = strict_family(strict.engine, &options);
    (void)strict_take(strict.family, "k", 10, 10, TW_OK);
    int64_t began_ms = test_mono_ms();
    assert_status(tw_acquire_wait(strict.family, tw_str("k"), 1, 10, 300000, &verdict), TW_DENIED);
    assert_int_equal(verdict.final, 1);
    assert_true(test_mono_ms() - began_ms < 150000);
    (void)strict_take(life, "k", 10, 10, TW_OK);
    assert_status(tw_acquire_wait(life, tw_str("k"), 10, 10, 300000, &verdict), TW_OK);
    strict_end(&strict);
}

struct crowd {
    tw_family *family;
    int64_t limit;
    _Atomic int64_t admitted, wrong;
};

static void *take_one_by_one(void *argument) {
    struct crowd *crowd = argument;
    for (tw_status status = TW_OK; status != TW_DENIED;) {
        status = tw_acquire(crowd->family, tw_str("hot"), 1, crowd->limit, NULL);
        if (status == TW_OK) atomic_fetch_add(&crowd->admitted, 1);
        if (status != TW_OK && status != TW_DENIED) atomic_fetch_add(&crowd->wrong, 1);
    }
    return NULL;
}

/* Goal: sixteen threads over eight connections admit exactly the limit. */
TEST(threads_together_admit_exactly_the_limit) {
    struct strict strict;
    strict_begin(&strict, 5000, TW_OUTAGE_FAIL_CLOSED);
    struct crowd crowd = {.family = strict.family, .limit = (int64_t)test_scale(2000)};
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_one_by_one, &crowd), 0);
    for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
    assert_i64_equal(crowd.admitted, crowd.limit);
    assert_i64_equal(crowd.wrong, 0);
    assert_i64_equal(redis_server_get(&strict.server, "s:hot"), crowd.limit);
    assert_true(test_stat_of(strict.engine, ask_connects) <= 8);
    strict_end(&strict);
}

/* ---- lost replies ------------------------------------------------------------------------------------------------ */

/* Goal: a call whose reply is lost is sent again under the same number, and charged once (trap L11). */
TEST(a_lost_reply_is_charged_once) {
    static const enum proxy_fault faults[] = {PROXY_DROP_REPLY, PROXY_CUT_REPLY, PROXY_RESET,
                                              PROXY_GARBAGE,    PROXY_TWICE,     PROXY_DROP_REQUEST};
    struct strict strict;
    strict_begin(&strict, STRICT_TRIES_MS, TW_OUTAGE_FAIL_CLOSED);
    (void)strict_take(strict.family, "k", 1, 1000, TW_OK);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct proxy_order order = {.fault = faults[i], .times = 1, .at = 5, .text = "*2\r\n$1\r\n9\r\n+OK\r\n"};
        proxy_order(strict.proxy, &order);
        tw_verdict verdict = strict_take(strict.family, "k", 1, 1000, TW_OK);
        assert_int_equal(verdict.decided_by, TW_BY_REDIS);
        assert_i64_equal(verdict.used, (int64_t)i + 2);
        assert_i64_equal(redis_server_get(&strict.server, "s:k"), (int64_t)i + 2);
    }
    assert_true(test_stat_of(strict.engine, asked_again) >= 4);
    assert_i64_equal(test_stat_of(strict.engine, asks_unknown), 0);
    strict_end(&strict);
}

/* Goal: a copy that Redis executes late, after the call had the reply to another copy, charges nothing. */
TEST(a_late_copy_charges_nothing) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    (void)strict_take(strict.family, "k", 1, 1000, TW_OK);
    strict_order(&strict, PROXY_HOLD, 1);
    (void)strict_take(strict.family, "k", 1, 1000, TW_OK);
    (void)strict_take(strict.family, "k", 1, 1000, TW_OK);
    strict_await_late_copy(&strict);
    assert_i64_equal(redis_server_get(&strict.server, "s:k"), 3);
    strict_end(&strict);
}

/* Sends the copy of a call as its connection once did. Returns Redis's reply. */
static const char *say_again(struct strict *strict, const struct strict_call *call, const char *serial) {
    return redis_server_ask(&strict->server, "EVALSHA", twi_script_strict_sha1, "2", "tw:calls:s:k", "s:k", call->who,
                            serial, "1", "1", "5", "0", "0", "0", "0", "0", NULL);
}

/* Goal: a late copy charges nothing even if there is room by now: neither of a call that was sent again and denied, nor
 * of an earlier call on the same connection. */
TEST(a_copy_that_comes_when_there_is_room_charges_nothing) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    (void)strict_take(strict.family, "k", 5, 5, TW_OK);
    strict_order(&strict, PROXY_DROP_REQUEST, 1);
    (void)strict_take(strict.family, "k", 1, 5, TW_DENIED);
    struct strict_call call = strict_last_call(&strict, "tw:calls:s:k");
    assert_i64_equal(atoi(call.serial), 2);
    redis_server_ask(&strict.server, "SET", "s:k", "0", NULL);
    (void)say_again(&strict, &call, call.serial);
    assert_i64_equal(redis_server_get(&strict.server, "s:k"), 0);
    assert_non_null(strstr(say_again(&strict, &call, "1"), "STALE"));
    assert_i64_equal(redis_server_get(&strict.server, "s:k"), 0);
    assert_non_null(strstr(say_again(&strict, &call, "3"), "OK")); /* a new call would be admitted */
    assert_i64_equal(redis_server_get(&strict.server, "s:k"), 1);
    strict_end(&strict);
}

static bool is_settled(void *ctx) {
    struct strict *strict = ctx;
    (void)tw_acquire(strict->family, tw_str("other"), 0, 1, NULL);
    return test_stat_of(strict->engine, asks_settled) == test_stat_of(strict->engine, asks_unknown);
}

/* Goal: a call of unknown outcome that on_outage admitted is charged once in the end: what Redis charged is taken back,
 * and what was counted here arrives. A call that was denied is not charged at all. */
TEST(a_call_of_unknown_outcome_is_settled) {
    static const uint32_t policies[] = {TW_OUTAGE_LOCAL, TW_OUTAGE_FAIL_OPEN, TW_OUTAGE_FAIL_CLOSED};
    for (size_t i = 0; i < 3; i++) {
        struct strict strict;
        bool closed = policies[i] == TW_OUTAGE_FAIL_CLOSED;
        strict_begin(&strict, STRICT_IN_VAIN_MS, policies[i]);
        (void)strict_take(strict.family, "k", 1, 1000, TW_OK);
        strict_order(&strict, PROXY_LOSE_REPLY, 20); /* executed, without a reply until the deadline */
        tw_verdict verdict = strict_take(strict.family, "k", 10, 1000, closed ? TW_DENIED : TW_OK);
        assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
        strict_order(&strict, PROXY_PASS, 1);
        assert_i64_equal(test_stat_of(strict.engine, asks_unknown), 1);
        assert_true(test_wait(is_settled, &strict, TEST_PATIENCE_MS));
        assert_status(tw_flush(strict.engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(redis_server_get(&strict.server, "s:k"), closed ? 1 : 11);
        strict_end(&strict);
    }
}

static bool has_forgotten(void *ctx) {
    struct strict *strict = ctx;
    (void)tw_acquire(strict->family, tw_str("other"), 0, 1, NULL);
    return test_stat_of(strict->engine, asks_forgotten) != 0;
}

/* Goal: units that cannot be taken back, because somebody has written no number into the counter, are counted. */
TEST(units_that_cannot_be_taken_back_are_counted) {
    struct strict strict;
    strict_begin(&strict, STRICT_IN_VAIN_MS, TW_OUTAGE_FAIL_CLOSED);
    (void)strict_take(strict.family, "k", 1, 1000, TW_OK);
    strict_order(&strict, PROXY_LOSE_REPLY, 20);
    (void)strict_take(strict.family, "k", 10, 1000, TW_DENIED);
    redis_server_ask(&strict.server, "SET", "s:k", "a word", NULL);
    strict_order(&strict, PROXY_PASS, 1);
    assert_true(test_wait(has_forgotten, &strict, TEST_PATIENCE_MS));
    assert_i64_equal(test_stat_of(strict.engine, asks_forgotten), 1);
    assert_i64_equal(test_stat_of(strict.engine, ask_units_kept), 10);
    assert_i64_equal(test_stat_of(strict.engine, asks_settled), 0);
    strict_end(&strict);
}

/* Goal: whatever the network does to any number of calls, in the end Redis has exactly what was admitted: nothing
 * twice, nothing that was denied. If the policy denies, it never has more than the limit (trap L11). */
TEST(what_was_admitted_is_what_is_charged) {
    static const enum proxy_fault faults[] = {PROXY_DROP_REQUEST, PROXY_DROP_REPLY,  PROXY_LOSE_REQUEST,
                                              PROXY_LOSE_REPLY,   PROXY_CUT_REQUEST, PROXY_CUT_REPLY,
                                              PROXY_HOLD,         PROXY_RESET};
    /* Not PROXY_TWICE: no connection carries a second copy of a request whose reply arrived. A denied call leaves no
     * note, so that copy would be decided anew, with the units that cancels returned in between. */
    for (int round = 0; round < 2; round++) {
        struct strict strict;
        pthread_t threads[4];
        struct hammer hammers[4];
        _Atomic int64_t admitted = 0;
        strict_begin(&strict, 40, round == 0 ? TW_OUTAGE_FAIL_CLOSED : TW_OUTAGE_LOCAL);
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) proxy_chance(strict.proxy, faults[i], 150);
        for (int i = 0; i < 4; i++) {
            hammers[i] = (struct hammer){.family = strict.family,
                                         .seed = test_seed() ^ (uint64_t)(i + 10 * round),
                                         .admitted = &admitted,
                                         .calls = (int64_t)test_scale(150),
                                         .limit = 500};
            assert_int_equal(pthread_create(&threads[i], NULL, hammer_on, &hammers[i]), 0);
        }
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) proxy_chance(strict.proxy, faults[i], 0);
        assert_true(test_wait(is_settled, &strict, TEST_PATIENCE_MS));
        assert_status(tw_flush(strict.engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(redis_server_get(&strict.server, "s:k"), admitted);
        if (round == 0) assert_true(admitted <= 500);
        print_message("# %lld admitted, %lld asked again, %lld unknown\n", (long long)admitted,
                      (long long)test_stat_of(strict.engine, asked_again),
                      (long long)test_stat_of(strict.engine, asks_unknown));
        strict_end(&strict);
    }
}

int main(void) {
    redis_server_require();
    return test_run();
}
