/* refund_test.c -- tw_refund(), tw_acquire_some(), tw_acquire_all() and tw_acquire_wait(): units that are given back,
 * and units that are taken together.
 * Covers: engine/limit/acquire.c, engine/limit/acquire.c. */
#include "tests/unit/rig.h"

#include "engine/count/dirty.h"
#include "engine/limit/decision.h"
#include "engine/table/stripe.h"

#include <pthread.h>
#include <time.h>

static struct rig rig;

static tw_verdict acquire(tw_family *family, const char *key, int64_t n, int64_t limit, tw_status want) {
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire(family, tw_str(key), n, limit, &verdict), want);
    return verdict;
}

/* ---- refunds ----------------------------------------------------------------------------------------------------- */

RIG_TEST(what_is_refunded_can_be_taken_again) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_verdict verdict = acquire(family, "a", 10, 10, TW_OK);
    assert_status(tw_refund(family, tw_str("a"), 4, verdict.window_start_ms), TW_OK);
    assert_i64_equal(rig_get(family, "a"), 6);
    (void)acquire(family, "a", 5, 10, TW_DENIED);
    (void)acquire(family, "a", 4, 10, TW_OK);
    assert_status(tw_refund(family, tw_str("a"), 0, verdict.window_start_ms), TW_OK);
    assert_i64_equal(rig_get(family, "a"), 10);
}

/* Goal: trap L7. The next window never begins below 0. */
RIG_TEST(a_window_that_is_over_takes_nothing_back) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_verdict verdict = acquire(family, "a", 10, 10, TW_OK);
    rig_pass(&rig, TW_MINUTE + 1);
    assert_status(tw_refund(family, tw_str("a"), 4, verdict.window_start_ms), TW_ERR_LATE);
    assert_i64_equal(rig_get(family, "a"), 0);
    (void)acquire(family, "a", 10, 10, TW_OK);
    (void)acquire(family, "a", 1, 10, TW_DENIED);
    assert_status(tw_refund(family, tw_str("a"), 4, verdict.window_start_ms), TW_ERR_LATE);
    assert_status(tw_refund(family, tw_str("a"), 4, rig_now(&rig) + TW_MINUTE), TW_ERR_EARLY);
    assert_i64_equal(rig_get(family, "a"), 10);
}

RIG_TEST(a_count_does_not_go_below_0) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_verdict verdict = acquire(family, "a", 3, 10, TW_OK);
    assert_status(tw_refund(family, tw_str("a"), 4, verdict.window_start_ms), TW_ERR_RANGE);
    assert_i64_equal(rig_get(family, "a"), 3);
    assert_status(tw_refund(family, tw_str("a"), 3, verdict.window_start_ms), TW_OK);
    assert_status(tw_refund(family, tw_str("a"), 1, verdict.window_start_ms), TW_ERR_RANGE);
    assert_status(tw_refund(family, tw_str("never taken"), 1, verdict.window_start_ms), TW_ERR_RANGE);
    assert_i64_equal(test_stat_of(rig.engine, entries), 1);
    assert_status(tw_refund(family, tw_str("a"), -1, verdict.window_start_ms), TW_ERR_RANGE);
    assert_status(tw_refund(family, tw_str("a"), INT64_MAX, verdict.window_start_ms), TW_ERR_RANGE);
    assert_status(tw_refund(family, tw_str(""), 1, verdict.window_start_ms), TW_ERR_KEY);
}

RIG_TEST(a_life_that_is_over_takes_nothing_back) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    fake_clock_advance_ms(&rig.clock, 10000);
    tw_verdict first = acquire(family, "a", 5, 10, TW_OK);
    assert_i64_equal(first.window_start_ms, RIG_START_MS + 10000);
    fake_clock_advance_ms(&rig.clock, 30000);
    assert_status(tw_refund(family, tw_str("a"), 1, first.window_start_ms), TW_OK);
    fake_clock_advance_ms(&rig.clock, 30000);
    assert_status(tw_refund(family, tw_str("a"), 1, first.window_start_ms), TW_ERR_LATE);
    tw_verdict second = acquire(family, "a", 5, 10, TW_OK);
    assert_status(tw_refund(family, tw_str("a"), 1, first.window_start_ms), TW_ERR_LATE);
    assert_i64_equal(rig_get(family, "a"), 5);
    assert_status(tw_refund(family, tw_str("a"), 5, second.window_start_ms), TW_OK);
    assert_status(tw_refund(family, tw_str("a"), 1, TW_NOW), TW_ERR_LATE); /* any moment is one, and no start */
    assert_status(tw_refund(family, tw_str("a"), 1, INT64_MIN), TW_ERR_LATE);
    assert_status(tw_refund(family, tw_str("a"), 1, INT64_MAX), TW_ERR_EARLY);
}

static bool see_final(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)start_ms, (void)end_ms, (void)flags;
    *(int64_t *)ctx = rig_get(family, "a");
    return true;
}

/* Goal: a stop between two claims of a call leaves none of its units (P1). Method: tw_acquire_all() takes back what its
 * earlier claims took by `undo`. */
TEST(what_a_call_took_is_undone_after_a_stop) {
    int64_t final = -1;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = see_final;
    options.closed_ctx = &final;
    tw_family *family = rig_family_of(&rig, &options);
    (void)rig_add(family, "a", 2);
    tw_verdict verdict = acquire(family, "a", 3, 10, TW_OK);
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_status(tw_add(family, tw_str("a"), -3, NULL), TW_ERR_CLOSED);
    assert_status(tw_refund(family, tw_str("a"), 3, verdict.window_start_ms), TW_ERR_CLOSED);
    assert_status(family->kind.limit->undo(family, tw_str("a"), 3, 10, verdict.window_start_ms), TW_OK);
    rig_close(&rig);
    assert_i64_equal(final, 2);
}

RIG_TEST(an_endless_limit_takes_back_what_its_verdict_names) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    tw_verdict verdict = acquire(family, "a", 5, 5, TW_OK);
    rig_pass(&rig, 400 * TW_DAY);
    assert_status(tw_refund(family, tw_str("a"), 5, verdict.window_start_ms), TW_OK);
    (void)acquire(family, "a", 5, 5, TW_OK);
}

/* Makes stripes by hand; otherwise two threads would have to collide. */
static struct twi_cell *stripe(tw_family *family, const char *key, int64_t limit) {
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str(key)), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    assert_true(twi_place_find(&call, &place));
    assert_true(twi_contention_make_stripes(rig.engine, place.generation, place.cell, limit));
    twi_call_end(&call);
    return place.cell;
}

RIG_TEST(slices_take_back_and_give_out_again) {
    rig.engine->stripes.log2 = 2;
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_verdict verdict = acquire(family, "a", 1, 1000, TW_OK);
    (void)stripe(family, "a", 1000);
    int64_t taken = 1;
    for (; taken < 500; taken++) (void)acquire(family, "a", 1, 1000, TW_OK);
    assert_status(tw_refund(family, tw_str("a"), 501, verdict.window_start_ms), TW_ERR_RANGE);
    assert_status(tw_refund(family, tw_str("a"), 200, verdict.window_start_ms), TW_OK);
    assert_i64_equal(rig_get(family, "a"), 300);
    for (taken = 300; taken < 1000; taken++) (void)acquire(family, "a", 1, 1000, TW_OK);
    (void)acquire(family, "a", 1, 1000, TW_DENIED);
    assert_status(tw_refund(family, tw_str("a"), 1, verdict.window_start_ms), TW_OK);
    (void)acquire(family, "a", 1, 1000, TW_OK);
    (void)acquire(family, "a", 1, 1000, TW_DENIED);
}

/* ---- some -------------------------------------------------------------------------------------------------------- */

static int64_t some(tw_family *family, const char *key, int64_t n_max, int64_t limit, tw_status want) {
    int64_t taken = -1;
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire_some(family, tw_str(key), n_max, limit, &taken, &verdict), want);
    assert_i64_equal(verdict.limit, limit);
    assert_i64_equal(verdict.allowed, want == TW_OK);
    return taken;
}

RIG_TEST(some_takes_what_is_left) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    assert_i64_equal(some(family, "a", 7, 10, TW_OK), 7);
    assert_i64_equal(some(family, "a", 7, 10, TW_OK), 3);
    assert_i64_equal(some(family, "a", 7, 10, TW_DENIED), 0);
    assert_i64_equal(some(family, "b", INT64_C(1) << 50, 10, TW_OK), 10);
    assert_i64_equal(some(family, "c", 5, 0, TW_DENIED), 0);
    assert_i64_equal(some(family, "c", 0, 0, TW_OK), 0);
    assert_i64_equal(some(family, "c", -1, 10, TW_ERR_RANGE), 0);
    assert_i64_equal(some(family, "c", 5, -1, TW_ERR_RANGE), 0);
    tw_verdict verdict;
    assert_status(tw_acquire_some(family, tw_str("a"), 7, 10, NULL, &verdict), TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, TW_MINUTE);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static tw_verdict all(const tw_claim *claims, size_t count, tw_status want) {
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire_all(claims, count, &verdict), want);
    assert_i64_equal(verdict.allowed, want == TW_OK);
    return verdict;
}

RIG_TEST(all_claims_are_taken_or_none) {
    tw_family *second = rig_family(&rig, "second", TW_WINDOW_ALIGNED, TW_SECOND),
              *day = rig_family(&rig, "day", TW_WINDOW_ALIGNED, TW_DAY);
    const tw_claim claims[] = {{day, tw_str("a"), 3, 10}, {second, tw_str("a"), 3, 5}};
    tw_verdict verdict = all(claims, 2, TW_OK);
    assert_i64_equal(verdict.claim, 1); /* 2 left; the other has 7 */
    assert_i64_equal(verdict.remaining, 2);
    verdict = all(claims, 2, TW_DENIED);
    assert_i64_equal(verdict.claim, 1);
    assert_i64_equal(verdict.limit, 5);
    assert_i64_equal(verdict.retry_after_ms, TW_SECOND);
    assert_i64_equal(rig_get(day, "a"), 3);
    assert_i64_equal(rig_get(second, "a"), 3);
    for (int i = 0; i < 2; i++) {
        rig_pass(&rig, TW_SECOND);
        (void)all(claims, 2, TW_OK);
    }
    rig_pass(&rig, TW_SECOND);
    verdict = all(claims, 2, TW_DENIED);
    assert_i64_equal(verdict.claim, 0);
    assert_i64_equal(rig_get(day, "a"), 9);
    assert_i64_equal(rig_get(second, "a"), 0);
}

/* Goal: claims that together can never be had are denied as one call for all their units is, whatever is used. */
RIG_TEST(claims_that_can_never_be_had_say_so) {
    tw_family_options options = rig_options("rate", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.limit_shape = TW_SHAPE_GCRA;
    options.burst = 5;
    tw_family *fixed = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE), *rate = rig_family_of(&rig, &options);
    const tw_claim counted[] = {{fixed, tw_str("a"), 6, 10}, {fixed, tw_str("a"), 6, 10}};
    const tw_claim paced[] = {{rate, tw_str("a"), 3, 60}, {rate, tw_str("a"), 3, 60}};
    for (int round = 0; round < 2; round++) {
        int64_t denied = test_stat_of(rig.engine, limit_denied);
        assert_i64_equal(all(counted, 2, TW_DENIED).retry_after_ms, -1);
        assert_i64_equal(all(paced, 2, TW_DENIED).retry_after_ms, -1);
        assert_i64_equal(test_stat_of(rig.engine, limit_denied), denied + 2);
        if (round == 0) (void)acquire(fixed, "a", 1, 10, TW_OK);
    }
    assert_i64_equal(rig_get(fixed, "a"), 1);
    const tw_claim waits[] = {{fixed, tw_str("a"), 5, 10}, {fixed, tw_str("a"), 5, 10}};
    assert_i64_equal(all(waits, 2, TW_DENIED).retry_after_ms, TW_MINUTE); /* these can be had, later */
    assert_status(tw_add(fixed, tw_str("a"), -3, NULL), TW_OK);
    (void)all(counted, 2, TW_OK); /* a count below 0 leaves room for more than the limit */
}

RIG_TEST(a_key_that_is_claimed_twice_is_charged_twice) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    const tw_claim claims[] = {{family, tw_str("a"), 4, 10}, {family, tw_str("a"), 3, 5}};
    (void)all(claims, 2, TW_OK); /* 3 under 5, then 4 more under 10 */
    assert_i64_equal(rig_get(family, "a"), 7);
    tw_verdict verdict = all(claims, 2, TW_DENIED);
    assert_i64_equal(verdict.claim, 1);
    assert_i64_equal(rig_get(family, "a"), 7);
    const tw_claim same[] = {{family, tw_str("b"), 4, 10}, {family, tw_str("b"), 4, 10}, {family, tw_str("b"), 4, 10}};
    verdict = all(same, 3, TW_DENIED);
    assert_i64_equal(rig_get(family, "b"), 0);
    assert_i64_equal(verdict.claim, 2);
    assert_i64_equal(verdict.retry_after_ms, -1); /* 12 of 10: no time brings that */
    (void)all(same, 2, TW_OK);
    assert_i64_equal(rig_get(family, "b"), 8);
}

RIG_TEST(a_wrong_claim_takes_nothing_of_the_others) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_claim claims[TW_CLAIMS_MAX + 1];
    for (size_t i = 0; i < TW_CLAIMS_MAX + 1; i++) claims[i] = (tw_claim){family, tw_str("a"), 1, 100};
    (void)all(claims, 0, TW_ERR_RANGE);
    (void)all(claims, TW_CLAIMS_MAX + 1, TW_ERR_RANGE);
    claims[2].n = -1;
    assert_i64_equal(all(claims, 3, TW_ERR_RANGE).claim, 2);
    claims[2] = (tw_claim){family, tw_str(""), 1, 100};
    assert_i64_equal(all(claims, 3, TW_ERR_KEY).claim, 2);
    assert_i64_equal(rig_get(family, "a"), 0);
    claims[2].key = tw_str("a");
    (void)all(claims, TW_CLAIMS_MAX, TW_OK);
    assert_i64_equal(rig_get(family, "a"), TW_CLAIMS_MAX);
}

/* Goal: callers that want the same two keys, in either order, all finish. In the end exactly the limit is admitted. */
struct pair {
    tw_family *family;
    bool turned;
    int64_t got;
};

static void *claim_pairs(void *ctx) {
    struct pair *pair = ctx;
    tw_claim claims[] = {{pair->family, tw_str(pair->turned ? "b" : "a"), 2, 30000},
                         {pair->family, tw_str(pair->turned ? "a" : "b"), 1, 20000}};
    for (int denied = 0; denied < 200;) {
        if (tw_acquire_all(claims, 2, NULL) == TW_OK)
            pair->got++;
        else
            denied++;
    }
    return NULL;
}

RIG_TEST(claims_in_either_order_leave_nothing_half_taken) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    struct pair pairs[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        pairs[i] = (struct pair){family, i % 2 == 1, 0};
        assert_i64_equal(pthread_create(&threads[i], NULL, claim_pairs, &pairs[i]), 0);
    }
    int64_t straight = 0, turned = 0;
    for (int i = 0; i < 4; i++) {
        assert_i64_equal(pthread_join(threads[i], NULL), 0);
        *(pairs[i].turned ? &turned : &straight) += pairs[i].got;
    }
    int64_t a = rig_get(family, "a"), b = rig_get(family, "b");
    assert_i64_equal(a, 2 * straight + turned);
    assert_i64_equal(b, straight + 2 * turned);
    assert_true(a <= 30000 && b <= 30000);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

RIG_TEST(a_host_driven_engine_does_not_wait) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire_wait(family, tw_str("a"), 1, 10, 1000, &verdict), TW_ERR_MODE);
    assert_i64_equal(verdict.allowed, 0);
    assert_i64_equal(verdict.limit, 10);
}

static tw_engine *open_real(void) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(32) << 20;
    assert_status(tw_open(&options, &engine), TW_OK);
    return engine;
}

static tw_family *family_in(tw_engine *engine, uint32_t window, int64_t window_ms) {
    tw_family_options options = rig_options("f", window, window_ms);
    tw_family *family;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static void *refund_later(void *ctx) {
    (void)nanosleep(&(struct timespec){0, 30000000}, NULL);
    assert_status(tw_refund(ctx, tw_str("a"), 2, 0), TW_OK);
    return NULL;
}

TEST(who_waits_is_woken_by_a_refund) {
    tw_engine *engine = open_real();
    tw_family *family = family_in(engine, TW_WINDOW_FOREVER, 0);
    pthread_t thread;
    (void)acquire(family, "a", 10, 10, TW_OK);
    assert_i64_equal(pthread_create(&thread, NULL, refund_later, family), 0);
    assert_status(tw_acquire_wait(family, tw_str("a"), 2, 10, 20000, NULL), TW_OK);
    assert_i64_equal(pthread_join(thread, NULL), 0);
    assert_i64_equal(rig_get(family, "a"), 10);
    tw_enter(engine);
    assert_status(tw_acquire_wait(family, tw_str("a"), 2, 10, 20000, NULL), TW_ERR_MODE);
    tw_leave(engine);
    assert_status(tw_close(engine, 1000), TW_OK);
}

TEST(who_waits_gets_the_next_window_or_is_denied_in_time) {
    tw_engine *engine = open_real();
    tw_family *family = family_in(engine, TW_WINDOW_FROM_FIRST, TW_SECOND);
    (void)acquire(family, "a", 10, 10, TW_OK);
    assert_status(tw_acquire_wait(family, tw_str("a"), 1, 10, 20, NULL), TW_DENIED);
    assert_status(tw_acquire_wait(family, tw_str("a"), 11, 10, 60000, NULL), TW_DENIED); /* never: at once */
    tw_verdict verdict;
    assert_status(tw_acquire_wait(family, tw_str("a"), 1, 10, 20000, &verdict), TW_OK);
    assert_i64_equal(verdict.used, 1);
    assert_status(tw_stop(engine), TW_OK);
    assert_status(tw_acquire_wait(family, tw_str("a"), 1, 10, 20000, &verdict), TW_ERR_CLOSED);
    assert_status(tw_close(engine, 1000), TW_OK);
}
