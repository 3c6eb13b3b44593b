/* acquire_test.c -- tw_acquire() and tw_once(): only TW_OK admits, and exactly the limit is admitted.
 * Covers: engine/limit/decision.h, engine/fast/acquire_fast.h. */
#include "tests/unit/rig.h"

#include <pthread.h>

static struct rig rig;

static tw_verdict acquire(tw_family *family, const char *key, int64_t n, int64_t limit, tw_status want) {
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire(family, tw_str(key), n, limit, &verdict), want);
    return verdict;
}

RIG_TEST(a_verdict_has_its_promised_size) {
    assert_i64_equal(sizeof(tw_verdict), 128); /* for ever */
}

RIG_TEST(every_field_of_a_verdict_is_filled) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    fake_clock_advance_ms(&rig.clock, 10000);
    tw_verdict verdict = acquire(family, "a", 3, 10, TW_OK);
    assert_i64_equal(verdict.limit, 10);
    assert_i64_equal(verdict.used, 3);
    assert_i64_equal(verdict.remaining, 7);
    assert_i64_equal(verdict.reset_after_ms, 50000);
    assert_i64_equal(verdict.retry_after_ms, 0);
    assert_i64_equal(verdict.error_bound, 0);
    assert_i64_equal(verdict.window_start_ms, RIG_START_MS);
    assert_i64_equal(verdict.decided_by, TW_BY_LOCAL);
    assert_i64_equal(verdict.claim, 0);
    assert_i64_equal(verdict.allowed, 1);
    assert_i64_equal(verdict.final, 0);
    for (size_t i = 0; i < 7; i++) assert_i64_equal(verdict.reserved[i], 0);
    verdict = acquire(family, "a", 8, 10, TW_DENIED);
    assert_i64_equal(verdict.used, 3);
    assert_i64_equal(verdict.remaining, 7);
    assert_i64_equal(verdict.retry_after_ms, 50000);
    assert_i64_equal(verdict.allowed, 0);
    verdict = acquire(family, "a", 11, 10, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, -1);
    verdict = acquire(family, "new", 11, 10, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, -1);
    assert_i64_equal(verdict.used, 0);
    assert_i64_equal(test_stat_of(rig.engine, entries), 1); /* a denied call makes nothing */
}

RIG_TEST(nothing_may_be_looked_at_without_taking) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_verdict verdict = acquire(family, "a", 0, 10, TW_OK);
    assert_i64_equal(verdict.used, 0);
    assert_i64_equal(verdict.remaining, 10);
    assert_i64_equal(verdict.window_start_ms, RIG_START_MS);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    (void)acquire(family, "a", 10, 10, TW_OK);
    verdict = acquire(family, "a", 0, 10, TW_OK);
    assert_i64_equal(verdict.remaining, 0);
    (void)acquire(family, "a", 0, 9, TW_DENIED);
    assert_i64_equal(test_stat_of(rig.engine, increments), 1);
}

/* A limit may change from call to call. */
RIG_TEST(the_limit_of_the_call_decides) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    (void)acquire(family, "a", 5, 10, TW_OK);
    tw_verdict verdict = acquire(family, "a", 1, 3, TW_DENIED);
    assert_i64_equal(verdict.used, 5);
    assert_i64_equal(verdict.remaining, 0);
    (void)acquire(family, "a", 5, 10, TW_OK);
    (void)acquire(family, "a", 1, 10, TW_DENIED);
    (void)acquire(family, "a", 1, 11, TW_OK);
    rig_add(family, "a", -11); /* refunds are adds */
    (void)acquire(family, "a", 1, 1, TW_OK);
}

RIG_TEST(limits_reach_two_to_the_53_and_no_further) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    (void)acquire(family, "a", TW_DELTA_MAX, TW_DELTA_MAX, TW_OK);
    (void)acquire(family, "a", 1, TW_DELTA_MAX, TW_DENIED);
    const int64_t wrong[] = {-1, TW_DELTA_MAX + 1, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < 4; i++) {
        tw_verdict verdict = acquire(family, "a", wrong[i], 10, TW_ERR_RANGE);
        assert_i64_equal(verdict.allowed, 0);
        assert_i64_equal(verdict.limit, 10);
        (void)acquire(family, "a", 1, wrong[i], TW_ERR_RANGE);
        (void)acquire(family, "new", wrong[i], wrong[i], TW_ERR_RANGE);
    }
    assert_i64_equal(rig_get(family, "a"), TW_DELTA_MAX);
    assert_i64_equal(test_stat_of(rig.engine, entries), 1);
}

RIG_TEST(an_endless_limit_has_no_reset) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    tw_verdict verdict = acquire(family, "a", 1, 1, TW_OK);
    assert_i64_equal(verdict.reset_after_ms, TW_UNBOUNDED);
    verdict = acquire(family, "a", 1, 1, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, TW_UNBOUNDED);
    assert_i64_equal(acquire(family, "unused", 0, 1, TW_OK).reset_after_ms, 0);
}

RIG_TEST(a_limit_from_first_resets_when_its_key_does) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    fake_clock_advance_ms(&rig.clock, 45000);
    tw_verdict verdict = acquire(family, "a", 2, 2, TW_OK);
    assert_i64_equal(verdict.reset_after_ms, TW_MINUTE);
    fake_clock_advance_ms(&rig.clock, 20000);
    verdict = acquire(family, "a", 1, 2, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, 40000);
    fake_clock_advance_ms(&rig.clock, 40000);
    verdict = acquire(family, "a", 1, 2, TW_OK);
    assert_i64_equal(verdict.used, 1);
}

/* ---- shadow and figures ------------------------------------------------------------------------------------------ */

/* Goal: a wall clock that is set back delays nobody, in any kind of window. The verdict's retry time is exact to the
 * millisecond. */
RIG_TEST(a_wall_clock_set_back_holds_no_limit) {
    const int64_t steps_ms[] = {TW_MINUTE, TW_HOUR, TW_DAY};
    const struct {
        const char *name;
        uint32_t window, shape;
    } kinds[] = {{"aligned", TW_WINDOW_ALIGNED, TW_SHAPE_FIXED},
                 {"from-first", TW_WINDOW_FROM_FIRST, TW_SHAPE_FIXED},
                 {"sliding", TW_WINDOW_ALIGNED, TW_SHAPE_SLIDING},
                 {"gcra", TW_WINDOW_ALIGNED, TW_SHAPE_GCRA}};
    for (size_t step = 0; step < sizeof steps_ms / sizeof *steps_ms; step++) {
        for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
            tw_family_options options = rig_options(kinds[kind].name, kinds[kind].window, TW_MINUTE);
            options.limit_shape = kinds[kind].shape;
            tw_family *family = rig_family_of(&rig, &options);
            const char *key = step == 0 ? "a" : step == 1 ? "b" : "c";
            (void)acquire(family, key, 10, 10, TW_OK);
            rig_pass(&rig, 2000);
            fake_clock_step_wall_ms(&rig.clock, -steps_ms[step]);
            rig_pass(&rig, 2000);
            int64_t retry_ms = acquire(family, key, 10, 10, TW_DENIED).retry_after_ms;
            assert_true(retry_ms > 0 && retry_ms <= 2 * TW_MINUTE);
            fake_clock_advance_ms(&rig.clock, retry_ms - 1);
            assert_i64_equal(acquire(family, key, 10, 10, TW_DENIED).retry_after_ms, 1);
            fake_clock_advance_ms(&rig.clock, 1);
            (void)acquire(family, key, 10, 10, TW_OK);
            fake_clock_step_wall_ms(&rig.clock, steps_ms[step]);
        }
    }
}

/* Goal: times before 1970 work like any other, in each kind of window. */
RIG_TEST(limits_and_counts_know_times_before_1970) {
    const uint32_t windows[] = {TW_WINDOW_FOREVER, TW_WINDOW_ALIGNED, TW_WINDOW_FROM_FIRST, TW_WINDOW_MONTH};
    const int64_t starts_ms[] = {-1, -TW_MINUTE, -30 * 365 * TW_DAY};
    for (size_t at = 0; at < sizeof starts_ms / sizeof *starts_ms; at++) {
        struct rig early;
        rig_init(&early);
        fake_clock_init(&early.clock, starts_ms[at]);
        rig_start(&early);
        for (uint32_t i = 0; i < sizeof windows / sizeof *windows; i++) {
            char name[] = "family0";
            name[6] += (char)i;
            bool timed = windows[i] == TW_WINDOW_ALIGNED || windows[i] == TW_WINDOW_FROM_FIRST;
            tw_family *family = rig_family(&early, name, windows[i], timed ? TW_MINUTE : 0);
            assert_i64_equal(rig_add(family, "a", 2), 2);
            assert_i64_equal(rig_add(family, "a", 1), 3);
            (void)acquire(family, "a", 7, 10, TW_OK);
            (void)acquire(family, "a", 1, 10, TW_DENIED);
            (void)acquire(family, "b", 10, 10, TW_OK);
            assert_i64_equal(rig_get(family, "a"), 10);
            rig_turn(&early);
        }
        rig_close(&early);
    }
}

/* Goal: a count below zero leaves room for more than the limit. */
RIG_TEST(some_of_a_count_below_zero_is_all_that_is_there) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_verdict verdict;
    int64_t taken;
    rig_add(family, "a", -5);
    assert_status(tw_acquire_some(family, tw_str("a"), 20, 10, &taken, &verdict), TW_OK);
    assert_i64_equal(taken, 15);
    assert_i64_equal(verdict.used, 10);
    assert_i64_equal(rig_get(family, "a"), 10);
    assert_status(tw_acquire_some(family, tw_str("a"), 20, 10, &taken, &verdict), TW_DENIED);
    assert_i64_equal(taken, 0);
    rig_add(family, "b", -5);
    assert_status(tw_acquire_some(family, tw_str("b"), 12, 10, &taken, NULL), TW_OK);
    assert_i64_equal(taken, 12);
    assert_status(tw_acquire_some(family, tw_str("new"), 20, 10, &taken, NULL), TW_OK);
    assert_i64_equal(taken, 10);
    rig_add(family, "c", -5);
    assert_status(tw_acquire_some(family, tw_str("c"), 7, 0, &taken, NULL), TW_OK);
    assert_i64_equal(taken, 5);
}

/* Goal: in shadow mode a full table denies nobody either. */
RIG_TEST(a_shadow_lets_through_what_finds_no_room) {
    for (uint32_t shape = TW_SHAPE_FIXED; shape <= TW_SHAPE_GCRA; shape++) {
        char name[8];
        (void)snprintf(name, sizeof name, "f%u", shape);
        tw_family_options options = rig_options(name, TW_WINDOW_ALIGNED, TW_MINUTE);
        options.limit_shape = shape;
        options.shadow = true;
        options.keys_max = 1;
        options.on_full_limit = TW_FULL_LIMIT_DENY;
        tw_family *family = rig_family_of(&rig, &options);
        int64_t denied = test_stat_of(rig.engine, limit_shadow_denied), taken = 0;
        assert_i64_equal(acquire(family, "a", 1, 10, TW_OK).allowed, 1);
        tw_verdict verdict = acquire(family, "b", 1, 10, TW_OK);
        assert_i64_equal(verdict.allowed, 0);
        assert_int_equal(verdict.decided_by, TW_BY_FULL);
        assert_status(tw_acquire_some(family, tw_str("b"), 7, 10, &taken, NULL), TW_OK);
        assert_i64_equal(taken, 7);
        const tw_claim claims[] = {{family, tw_str("b"), 1, 10}, {family, tw_str("a"), 1, 10}};
        assert_status(tw_acquire_all(claims, 2, &verdict), TW_OK);
        assert_i64_equal(verdict.allowed, 0);
        assert_i64_equal(test_stat_of(rig.engine, limit_shadow_denied), denied + 3);
        options.shadow = false;
        assert_status(tw_family_set(family, &options), TW_OK);
        assert_i64_equal(acquire(family, "b", 1, 10, TW_ERR_FULL).allowed, 0);
    }
}

RIG_TEST(a_shadow_decides_and_lets_everything_through) {
    for (uint32_t shape = TW_SHAPE_FIXED; shape <= TW_SHAPE_GCRA; shape++) {
        tw_family_options options = rig_options(shape == 0   ? "a"
                                                : shape == 1 ? "b"
                                                             : "c",
                                                TW_WINDOW_ALIGNED, TW_MINUTE);
        options.limit_shape = shape;
        options.shadow = true;
        tw_family *family = rig_family_of(&rig, &options);
        int64_t denied = test_stat_of(rig.engine, limit_shadow_denied), taken;
        assert_i64_equal(acquire(family, "a", 9, 10, TW_OK).allowed, 1);
        tw_verdict verdict = acquire(family, "a", 2, 10, TW_OK);
        assert_i64_equal(verdict.allowed, 0);
        assert_i64_equal(verdict.used, 9);
        assert_i64_equal(acquire(family, "a", 1, 10, TW_OK).allowed, 1);
        assert_status(tw_acquire(family, tw_str("a"), 1, 10, NULL), TW_OK);
        assert_i64_equal(test_stat_of(rig.engine, limit_shadow_denied), denied + 2);
        assert_status(tw_acquire_some(family, tw_str("a"), 7, 10, &taken, NULL), TW_OK);
        assert_i64_equal(taken, 7);
        const tw_claim claims[] = {{family, tw_str("b"), 1, 10}, {family, tw_str("a"), 1, 10}};
        assert_status(tw_acquire_all(claims, 2, &verdict), TW_OK);
        assert_i64_equal(verdict.allowed, 0);
        assert_i64_equal(verdict.claim, 1);
        (void)acquire(family, "a", -1, 10, TW_ERR_RANGE);
        options.shadow = false;
        assert_status(tw_family_set(family, &options), TW_OK);
        (void)acquire(family, "a", 1, 10, TW_DENIED);
        assert_i64_equal(acquire(family, "b", 0, 10, TW_OK).used, 1);
    }
}

RIG_TEST(what_limits_do_is_in_the_figures) {
    for (uint32_t shape = TW_SHAPE_FIXED; shape <= TW_SHAPE_GCRA; shape++) {
        tw_family_options options = rig_options(shape == 0   ? "a"
                                                : shape == 1 ? "b"
                                                             : "c",
                                                TW_WINDOW_ALIGNED, TW_MINUTE);
        options.limit_shape = shape;
        tw_family *family = rig_family_of(&rig, &options);
        tw_stats before, after;
        assert_status(tw_stats_read(rig.engine, &before), TW_OK);
        (void)acquire(family, "a", 0, 10, TW_OK);
        for (int i = 0; i < 10; i++) (void)acquire(family, "a", 1, 10, TW_OK);
        for (int i = 0; i < 5; i++) (void)acquire(family, "a", 1, 10, TW_DENIED);
        (void)acquire(family, "a", 0, 9, shape == TW_SHAPE_GCRA ? TW_OK : TW_DENIED);
        assert_status(tw_stats_read(rig.engine, &after), TW_OK);
        assert_i64_equal(after.limit_admitted - before.limit_admitted, 10);
        assert_i64_equal(after.increments - before.increments, 10);
        assert_i64_equal(after.limit_near - before.limit_near, 3); /* the 8th, 9th and 10th of 10 */
        assert_i64_equal(after.limit_denied - before.limit_denied, 5);
        assert_i64_equal(after.limit_shadow_denied, 0);
    }
}

/* Goal: exactly keys_max keys have counters, and stay limited. Every key after them has none. The policy alone decides,
 * and the call leaves nothing. Method: the boundary itself, twice around, admitted and denied. */
RIG_TEST(exactly_keys_max_keys_are_counted_and_the_rest_are_strangers) {
    for (uint32_t policy = TW_FULL_LIMIT_ADMIT; policy <= TW_FULL_LIMIT_DENY; policy++) {
        tw_family_options options =
            rig_options(policy == TW_FULL_LIMIT_ADMIT ? "admits" : "denies", TW_WINDOW_ALIGNED, TW_MINUTE);
        options.keys_max = 100;
        options.on_full_limit = policy;
        tw_family *family = rig_family_of(&rig, &options);
        char key[16];
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 130; i++) {
                snprintf(key, sizeof key, "k%d", i);
                tw_status stranger = policy == TW_FULL_LIMIT_ADMIT ? TW_OK : TW_ERR_FULL;
                tw_status want = i >= 100 ? stranger : round < 2 ? TW_OK : TW_DENIED;
                tw_verdict verdict = acquire(family, key, 1, 2, want);
                assert_int_equal(verdict.decided_by, i < 100 ? TW_BY_LOCAL : TW_BY_FULL);
                assert_i64_equal(verdict.used, i >= 100 ? 0 : round < 2 ? round + 1 : 2);
                assert_i64_equal(verdict.allowed, want == TW_OK);
            }
            struct rig_seen seen = rig_each(family, TW_NOW);
            assert_i64_equal(seen.counters, 100);
            assert_i64_equal(seen.sum, round == 0 ? 100 : 200);
            assert_i64_equal(seen.overflow, 0);
        }
    }
}

/* ---- once -------------------------------------------------------------------------------------------------------- */

static bool is_first(tw_family *family, const char *key) {
    bool first = false;
    assert_status(tw_once(family, tw_str(key), &first), TW_OK);
    return first;
}

/* Goal: after a cancel the next call is the first, and only that one. Cancelling the state does not change nothing. */
RIG_TEST(a_cancelled_first_makes_room_for_one) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    assert_status(tw_once_cancel(family, tw_str("a")), TW_OK);
    assert_i64_equal(rig_get(family, "a"), 0);
    assert_true(is_first(family, "a"));
    assert_status(tw_once_cancel(family, tw_str("a")), TW_OK);
    assert_status(tw_once_cancel(family, tw_str("a")), TW_OK);
    assert_i64_equal(rig_get(family, "a"), 0);
    assert_true(is_first(family, "a"));
    assert_false(is_first(family, "a"));
    assert_status(tw_once_cancel(family, tw_str("")), TW_ERR_KEY);
}

/* Goal: without Redis there are no locks between processes, and strict limits are as exact as all others. */
RIG_TEST(a_strict_limit_without_redis_decides_here_and_locks_nothing) {
    char token[TW_TOKEN_SIZE] = "x";
    tw_family_options options = rig_options("strict", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.limit_mode = TW_LIMIT_STRICT;
    tw_family *family = rig_family_of(&rig, &options);
    assert_status(tw_lock(family, tw_str("a"), 1000, token, NULL), TW_ERR_MODE); /* host-driven */
    assert_string_equal(token, "");
    assert_int_equal(acquire(family, "a", 1, 1, TW_OK).decided_by, TW_BY_LOCAL);
    (void)acquire(family, "a", 1, 1, TW_DENIED);
    assert_true(is_first(family, "b"));
}

RIG_TEST(once_is_true_once_in_each_window) {
    tw_family *aligned = rig_family(&rig, "aligned", TW_WINDOW_ALIGNED, TW_MINUTE),
              *first = rig_family(&rig, "first", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    fake_clock_advance_ms(&rig.clock, 30000);
    assert_true(is_first(aligned, "a"));
    assert_true(is_first(first, "a"));
    assert_false(is_first(aligned, "a"));
    assert_true(is_first(aligned, "b"));
    assert_i64_equal(rig_get(aligned, "a"), 1);
    fake_clock_advance_ms(&rig.clock, 30000);
    assert_true(is_first(aligned, "a"));
    assert_false(is_first(first, "a"));
    fake_clock_advance_ms(&rig.clock, 30000);
    assert_true(is_first(first, "a"));
}

/* ---- full -------------------------------------------------------------------------------------------------------- */

/* Goal: E40. Keys never share a limit: the policy of a full family decides, and its overflow counter stays out of
 * it. */
RIG_TEST(trap_e40_a_full_family_decides_by_its_policy) {
    for (uint32_t policy = TW_FULL_LIMIT_ADMIT; policy <= TW_FULL_LIMIT_DENY; policy++) {
        tw_family_options options =
            rig_options(policy == TW_FULL_LIMIT_ADMIT ? "admit" : "deny", TW_WINDOW_ALIGNED, TW_MINUTE);
        options.keys_max = 1;
        options.on_full_limit = policy;
        tw_family *family = rig_family_of(&rig, &options);
        (void)acquire(family, "known", 1, 2, TW_OK);
        for (int i = 0; i < 5; i++) {
            tw_verdict verdict = acquire(family, "stranger", 1, 2, policy == TW_FULL_LIMIT_ADMIT ? TW_OK : TW_ERR_FULL);
            assert_i64_equal(verdict.decided_by, TW_BY_FULL);
            assert_i64_equal(verdict.allowed, policy == TW_FULL_LIMIT_ADMIT);
            assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
            assert_i64_equal(verdict.used, 0);
            bool first = false;
            assert_status(tw_once(family, tw_str("other"), &first),
                          policy == TW_FULL_LIMIT_ADMIT ? TW_OK : TW_ERR_FULL);
            assert_i64_equal(first, policy == TW_FULL_LIMIT_ADMIT);
        }
        (void)acquire(family, "known", 1, 2, TW_OK);
        (void)acquire(family, "known", 1, 2, TW_DENIED);
        assert_i64_equal(rig_each(family, TW_NOW).overflow, 0);
    }
    assert_i64_equal(test_stat_of(rig.engine, overflow_increments), 0);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct buyer {
    pthread_t thread;
    tw_family *family;
    int64_t bought, firsts, n;
};
static void *buy(void *ctx) {
    struct buyer *buyer = ctx;
    for (int i = 0; i < 3000; i++) {
        tw_verdict verdict;
        char key[16];
        bool first;
        if (tw_acquire(buyer->family, tw_str("stock"), buyer->n, 5000, &verdict) == TW_OK) buyer->bought += buyer->n;
        if (verdict.used > 5000) abort();
        snprintf(key, sizeof key, "%d", i);
        if (tw_once(buyer->family, tw_str(key), &first) == TW_OK && first) buyer->firsts++;
    }
    return NULL;
}

/* Goal: E36. Any number of threads together get exactly the limit, in takes of different size, and each tw_once() key
 * has one first call. Method: four buyers, of 1, 2, 3 and 1 per call; the last unit can always be had. */
RIG_TEST(trap_e36_exactly_the_limit_is_admitted) {
    for (int round = 0; round < 5; round++) {
        char name[16];
        snprintf(name, sizeof name, "sale%d", round);
        tw_family *family = rig_family(&rig, name, TW_WINDOW_ALIGNED, TW_HOUR);
        struct buyer buyers[4];
        for (int i = 0; i < 4; i++) {
            buyers[i] = (struct buyer){.family = family, .n = i % 3 + 1};
            assert_int_equal(pthread_create(&buyers[i].thread, NULL, buy, &buyers[i]), 0);
        }
        int64_t bought = 0, firsts = 0;
        for (int i = 0; i < 4; i++) {
            pthread_join(buyers[i].thread, NULL);
            bought += buyers[i].bought;
            firsts += buyers[i].firsts;
        }
        assert_i64_equal(bought, 5000);
        assert_i64_equal(rig_get(family, "stock"), 5000);
        assert_i64_equal(firsts, 3000);
    }
}
