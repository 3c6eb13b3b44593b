/* slice_test.c -- tw_acquire() on a contended key: slices of the limit are spent, other threads take over the rest of
 * them, and exactly the limit is admitted. The tests request slices by hand, and the next turn cuts them. */
#include "tests/unit/hand_driver.h"

#include "engine/count/dirty.h"
#include "engine/table/stripe.h"

#include <pthread.h>

static struct rig rig;

static struct twi_place place_of(tw_family *family) {
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str("stock")), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    assert_true(twi_place_find(&call, &place));
    twi_call_end(&call);
    return place;
}
static struct twi_stripes *slices_of(tw_family *family) {
    struct twi_place place = place_of(family);
    return twi_stripes_of(place.cell, place.meta);
}

/* Cuts the rest of the limit into slices. */
static bool cut(tw_family *family, int64_t limit) {
    int64_t striped = test_stat_of(rig.engine, striped);
    struct twi_place place = place_of(family);
    twi_contention_request(rig.engine, place.generation, place.cell, limit);
    rig_turn(&rig);
    return test_stat_of(rig.engine, striped) == striped + 1;
}

static tw_verdict acquire(tw_family *family, int64_t n, int64_t limit, tw_status want) {
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire(family, tw_str("stock"), n, limit, &verdict), want);
    assert_i64_equal(verdict.allowed, want == TW_OK);
    int64_t truth = rig_get(family, "stock");
    if (verdict.error_bound != TW_UNBOUNDED) {
        assert_true(truth - verdict.used <= verdict.error_bound);
        assert_true(verdict.used - truth <= verdict.error_bound);
    }
    return verdict;
}

static tw_family *sale(const char *name, int64_t limit) {
    tw_family *family = rig_family(&rig, name, TW_WINDOW_ALIGNED, TW_HOUR);
    (void)acquire(family, 1, limit, TW_OK);
    assert_true(cut(family, limit));
    return family;
}

/* Goal: E35. Other threads sell what lies in the slices of threads that do not come back. After that a denied call only
 * loads. Method: one thread buys everything, one by one; after the first denial no bit of the counter changes. */
RIG_TEST(trap_e35_slices_strand_nothing) {
    tw_family *family = sale("f", 1000);
    int64_t used = 1;
    for (int i = 1; i < 1000; i++) {
        tw_verdict verdict = acquire(family, 1, 1000, TW_OK);
        assert_i64_equal(verdict.limit, 1000);
        assert_i64_equal(verdict.used + verdict.remaining, 1000);
        assert_true(verdict.used >= used); /* without refunds it only grows */
        used = verdict.used;
        assert_i64_equal(rig_get(family, "stock"), i + 1);
    }
    struct twi_stripes *slices = slices_of(family);
    assert_false(twi_load_relaxed(&slices->is_collapsed));
    tw_verdict verdict = acquire(family, 1, 1000, TW_DENIED);
    assert_i64_equal(verdict.used, 1000);
    assert_i64_equal(verdict.remaining, 0);
    assert_i64_equal(verdict.error_bound, 0);
    assert_i64_equal(verdict.retry_after_ms, TW_HOUR);
    assert_true(twi_load_relaxed(&slices->is_collapsed));
    unsigned char before[8192], cell[64];
    size_t bytes = sizeof *slices + ((size_t)slices->mask + 1) * sizeof slices->each[0];
    assert_true(bytes <= sizeof before);
    memcpy(before, (void *)slices, bytes);
    memcpy(cell, (void *)place_of(family).cell, sizeof cell);
    for (int i = 0; i < 10; i++) (void)acquire(family, 1, 1000, TW_DENIED);
    assert_memory_equal(before, (void *)slices, bytes);
    assert_memory_equal(cell, (void *)place_of(family).cell, sizeof cell);
    assert_i64_equal(rig_each(family, TW_NOW).sum, 1000);
    assert_i64_equal(test_stat_of(rig.engine, increments), 1000);
}

/* Goal: a call that no single slice can serve is admitted if the whole can, and denied if not. */
RIG_TEST(more_than_a_slice_holds_is_taken_of_the_whole) {
    tw_family *family = sale("f", 1001); /* 1000 left, 8 slices or more */
    tw_verdict verdict = acquire(family, 1001, 1001, TW_DENIED);
    assert_i64_equal(verdict.used, 1);
    (void)acquire(family, 900, 1001, TW_OK);
    (void)acquire(family, 101, 1001, TW_DENIED);
    (void)acquire(family, 100, 1001, TW_OK);
    verdict = acquire(family, 1, 1001, TW_DENIED);
    assert_i64_equal(verdict.used, 1001);
    assert_i64_equal(rig_get(family, "stock"), 1001);
}

RIG_TEST(the_limit_of_the_call_decides_on_slices_too) {
    tw_family *family = sale("lower", 1000);
    for (int i = 0; i < 99; i++) (void)acquire(family, 1, 1000, TW_OK);
    tw_verdict verdict = acquire(family, 1, 100, TW_DENIED);
    assert_i64_equal(verdict.used, 100);
    assert_i64_equal(verdict.remaining, 0);
    (void)acquire(family, 1, 101, TW_OK);
    (void)acquire(family, 1, 101, TW_DENIED);
    (void)acquire(family, 899, 1000, TW_OK);
    (void)acquire(family, 1, 1000, TW_DENIED);
    (void)acquire(family, 1, 1001, TW_OK);
    family = sale("higher", 1000);
    for (int i = 1; i < 1500; i++) (void)acquire(family, 1, 1500, TW_OK);
    (void)acquire(family, 1, 1500, TW_DENIED);
    (void)acquire(family, 1, 1000, TW_DENIED);
}

/* Goal: what is given back can be taken again. What is added counts against the limit. */
RIG_TEST(adds_and_refunds_count) {
    tw_family *family = sale("refund", 1000);
    for (int i = 1; i < 500; i++) (void)acquire(family, 1, 1000, TW_OK);
    assert_status(tw_add(family, tw_str("stock"), -100, NULL), TW_OK);
    assert_false(twi_load_relaxed(&slices_of(family)->is_collapsed)); /* still true: there is more room, not less */
    for (int i = 0; i < 600; i++) (void)acquire(family, 1, 1000, TW_OK);
    (void)acquire(family, 1, 1000, TW_DENIED);
    (void)rig_add(family, "stock", -1);
    (void)acquire(family, 1, 1000, TW_OK);
    (void)acquire(family, 1, 1000, TW_DENIED);
    family = sale("add", 1000);
    assert_i64_equal(rig_add(family, "stock", 500), 501);
    for (int i = 501; i < 1000; i++) (void)acquire(family, 1, 1000, TW_OK);
    (void)acquire(family, 1, 1000, TW_DENIED);
    int64_t last;
    assert_status(tw_reset(family, tw_str("stock"), &last), TW_OK);
    assert_i64_equal(last, 1000);
    (void)acquire(family, 1000, 1000, TW_OK);
    family = sale("reset", 1000);
    assert_status(tw_reset(family, tw_str("stock"), &last), TW_OK);
    assert_i64_equal(last, 1);
    for (int i = 0; i < 1000; i++) (void)acquire(family, 1, 1000, TW_OK);
    (void)acquire(family, 1, 1000, TW_DENIED);
}

RIG_TEST(looking_changes_nothing) {
    tw_family *family = sale("f", 1000);
    for (int i = 1; i < 700; i++) (void)acquire(family, 1, 1000, TW_OK);
    tw_verdict verdict = acquire(family, 0, 1000, TW_OK);
    assert_i64_equal(verdict.used, 700);
    assert_i64_equal(verdict.remaining, 300);
    assert_i64_equal(verdict.error_bound, 0);
    verdict = acquire(family, 0, 699, TW_DENIED);
    assert_i64_equal(verdict.used, 700);
    assert_false(twi_load_relaxed(&slices_of(family)->is_collapsed));
    assert_i64_equal(test_stat_of(rig.engine, increments), 700);
}

RIG_TEST(little_is_not_cut) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    (void)acquire(family, 1, 20, TW_OK);
    assert_false(cut(family, 20));
    assert_null(slices_of(family));
    bool first;
    assert_status(tw_once(family, tw_str("stock"), &first), TW_OK);
    assert_false(first);
    family = rig_family(&rig, "first", TW_WINDOW_FROM_FIRST, TW_HOUR);
    (void)acquire(family, 1, 100000, TW_OK);
    assert_false(cut(family, 100000));
    (void)acquire(family, 99999, 100000, TW_OK);
    (void)acquire(family, 1, 100000, TW_DENIED);
}

/* Goal: a counter with stripes for adds decides exactly when a limit is applied to it. */
RIG_TEST(a_striped_counter_may_be_limited) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_status(tw_add(family, tw_str("stock"), 10, NULL), TW_OK);
    assert_true(cut(family, TWI_NO_LIMIT));
    for (int i = 0; i < 10; i++) assert_status(tw_add(family, tw_str("stock"), 5, NULL), TW_OK);
    tw_verdict verdict = acquire(family, 0, 60, TW_OK);
    assert_i64_equal(verdict.used, 60);
    (void)acquire(family, 1, 60, TW_DENIED);
    verdict = acquire(family, 4, 64, TW_OK);
    assert_i64_equal(verdict.used, 64);
    assert_status(tw_add(family, tw_str("stock"), -1, NULL), TW_OK);
    (void)acquire(family, 2, 64, TW_DENIED);
    (void)acquire(family, 1, 64, TW_OK);
}

RIG_TEST(limits_near_the_edge_of_their_range_are_kept) {
    tw_family *family = sale("f", TW_DELTA_MAX);
    (void)acquire(family, TW_DELTA_MAX - 1, TW_DELTA_MAX, TW_OK);
    (void)acquire(family, 1, TW_DELTA_MAX, TW_DENIED);
    for (int i = 0; i < 300; i++) (void)tw_add(family, tw_str("stock"), TW_DELTA_MAX, NULL);
    tw_verdict verdict = acquire(family, 1, TW_DELTA_MAX, TW_DENIED);
    assert_true(verdict.used > TW_COUNT_MAX - TW_DELTA_MAX);
    assert_i64_equal(verdict.used, rig_get(family, "stock"));
}

struct closing {
    int64_t sum;
};
static bool see_sum(void *ctx, const tw_count *count) {
    ((struct closing *)ctx)->sum += count->local;
    return true;
}
static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)end_ms, (void)flags;
    return tw_each(family, start_ms, see_sum, ctx) == TW_OK;
}

/* Goal: the final count is the sold units, and the next window sells again. */
RIG_TEST(slices_end_with_their_window) {
    struct closing closing = {0};
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = on_closed;
    options.closed_ctx = &closing;
    tw_family *family = rig_family_of(&rig, &options);
    for (int window = 1; window <= 3; window++) {
        (void)acquire(family, 1, 1000, TW_OK);
        assert_true(cut(family, 1000));
        for (int i = 1; i < 300; i++) (void)acquire(family, 1, 1000, TW_OK);
        rig_pass(&rig, TW_MINUTE);
        assert_i64_equal(closing.sum, window * 300);
    }
}

/* ---- with Redis -------------------------------------------------------------------------------------------------- */

/* Goal: soft mode decides by the view. Once the counts of others are known, slices that were cut earlier are not
 * used. */
HAND_TEST(slices_give_way_to_what_redis_tells) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    twi_port_live_engines(rig.engine, 0); /* the number of engines is unknown */
    (void)acquire(family, 1, 1000, TW_OK);
    assert_true(cut(family, 1000));
    for (int i = 1; i < 100; i++) (void)acquire(family, 1, 1000, TW_OK);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 100);
    for (int i = 0; i < 100; i++) (void)acquire(family, 1, 1000, TW_OK); /* next to the batch */
    assert_false(twi_load_relaxed(&slices_of(family)->is_collapsed));
    hand_acknowledge(500); /* others: 400 */
    tw_verdict verdict = acquire(family, 1, 1000, TW_OK);
    assert_i64_equal(verdict.used, 601);
    assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
    for (int i = 601; i < 1000; i++) (void)acquire(family, 1, 1000, TW_OK);
    (void)acquire(family, 1, 1000, TW_DENIED);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 500);
    hand_acknowledge(1000);
    assert_i64_equal(hand_collect(10), 0);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct buyer {
    pthread_t thread;
    tw_family *family;
    int64_t bought, refunded, n;
};
static void *buy(void *ctx) {
    struct buyer *buyer = ctx;
    for (int denied = 0, i = 0; denied < 3; i++) {
        tw_verdict verdict;
        tw_status status = tw_acquire(buyer->family, tw_str("stock"), buyer->n, 20000, &verdict);
        if (status != TW_OK && status != TW_DENIED) abort();
        if (verdict.used > 20000 || verdict.used + verdict.remaining != 20000) abort();
        if (status == TW_DENIED && verdict.error_bound != 0) abort();
        if (status == TW_OK) buyer->bought += buyer->n;
        denied += status == TW_DENIED;
        if (status == TW_OK && i % 50 == 0) {
            if (tw_add(buyer->family, tw_str("stock"), -1, NULL) != TW_OK) abort();
            buyer->refunded++;
        }
    }
    return NULL;
}

/* Goal: E36 on slices. Exactly the limit is admitted, to takes of different size, with refunds, while slices are cut
 * under the buyers. Method: four buyers, of 1, 2, 3 and 1 per call. Each gives up when it is denied; the last unit can
 * always be had. */
RIG_TEST(trap_e36_exactly_the_limit_is_admitted_on_slices) {
    for (int round = 0; round < 10; round++) {
        char name[16];
        snprintf(name, sizeof name, "sale%d", round);
        tw_family *family = rig_family(&rig, name, TW_WINDOW_ALIGNED, TW_HOUR);
        (void)acquire(family, 1, 20000, TW_OK);
        struct buyer buyers[4];
        for (int i = 0; i < 4; i++) {
            buyers[i] = (struct buyer){.family = family, .n = i % 3 + 1};
            assert_int_equal(pthread_create(&buyers[i].thread, NULL, buy, &buyers[i]), 0);
        }
        (void)cut(family, 20000); /* on a slow machine they have bought it all before */
        int64_t bought = 1, refunded = 0;
        for (int i = 0; i < 4; i++) {
            pthread_join(buyers[i].thread, NULL);
            bought += buyers[i].bought;
            refunded += buyers[i].refunded;
        }
        while (tw_acquire(family, tw_str("stock"), 1, 20000, NULL) == TW_OK) bought++;
        assert_i64_equal(bought - refunded, 20000);
        assert_i64_equal(rig_get(family, "stock"), 20000);
    }
}

/* Goal: lost compare-and-swaps lead to slices, if they come soon after one another. */
RIG_TEST(contended_limits_ask_for_slices) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    (void)acquire(family, 1, 5000, TW_OK);
    struct twi_place place = place_of(family);
    for (int i = 0; i < 100; i++) {
        twi_contention_detect_acquire(rig.engine, place.generation, place.cell, 5000, twi_thread_here());
        fake_clock_advance_ms(&rig.clock, 2);
    }
    rig_turn(&rig);
    assert_null(slices_of(family));
    for (int i = 0; i < 100; i++)
        twi_contention_detect_acquire(rig.engine, place.generation, place.cell, 5000, twi_thread_here());
    rig_turn(&rig);
    assert_non_null(slices_of(family));
    assert_i64_equal(slices_of(family)->limit, 5000);
}
