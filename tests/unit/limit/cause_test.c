/* cause_test.c -- why a limit without Redis does not admit: the units are spent, n can never be had, there is no
 * memory, the buyer has one. Each call that fills a verdict says so, for each kind of window and shape.
 * Covers: engine/limit/decision.c. */
#include "tests/support/cause.h"
#include "tests/unit/rig.h"

#include "engine/limit/decision.h"

#include <stddef.h>

static struct rig rig;
static tw_verdict verdict;

static tw_status take(tw_family *family, const char *key, int64_t n, int64_t limit) {
    memset(&verdict, 0x55, sizeof verdict);
    return tw_acquire(family, tw_str(key), n, limit, &verdict);
}

TEST(a_verdict_has_the_size_that_it_always_had) {
    assert_int_equal(sizeof(tw_verdict), 128);
    assert_int_equal(offsetof(tw_verdict, cause), offsetof(tw_verdict, final) + 1);
    assert_int_equal(offsetof(tw_verdict, reserved), 72);
}

static const struct kind {
    const char *name;
    uint32_t window, shape, sub_windows;
    int64_t burst;
} kinds[] = {
    {"aligned", TW_WINDOW_ALIGNED, TW_SHAPE_FIXED, 0, 0},   {"from-first", TW_WINDOW_FROM_FIRST, TW_SHAPE_FIXED, 0, 0},
    {"day", TW_WINDOW_DAY, TW_SHAPE_FIXED, 0, 0},           {"endless", TW_WINDOW_FOREVER, TW_SHAPE_FIXED, 0, 0},
    {"sliding", TW_WINDOW_ALIGNED, TW_SHAPE_SLIDING, 0, 0}, {"parts", TW_WINDOW_ALIGNED, TW_SHAPE_SLIDING, 6, 0},
    {"rate", TW_WINDOW_ALIGNED, TW_SHAPE_GCRA, 0, 4},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static tw_family *family_of_kind(const struct kind *kind, bool shadow, uint64_t keys_max) {
    bool has_length = kind->window == TW_WINDOW_ALIGNED || kind->window == TW_WINDOW_FROM_FIRST;
    tw_family_options options = rig_options(kind->name, kind->window, has_length ? TW_MINUTE : 0);
    char name[40];
    snprintf(name, sizeof name, "%s%s%s", kind->name, shadow ? "-shadow" : "", keys_max != 0 ? "-small" : "");
    options.name = name;
    options.limit_shape = kind->shape;
    options.sub_windows = kind->sub_windows;
    options.burst = kind->burst;
    options.shadow = shadow;
    options.keys_max = keys_max;
    options.on_full_limit = TW_FULL_LIMIT_DENY;
    return rig_family_of(&rig, &options);
}

static tw_status take_all(tw_family *family, int64_t n, int64_t limit) {
    const tw_claim claim = {family, tw_str("a"), n, limit};
    memset(&verdict, 0x55, sizeof verdict);
    return tw_acquire_all(&claim, 1, &verdict);
}

static tw_status take_some(tw_family *family, int64_t n, int64_t limit) {
    memset(&verdict, 0x55, sizeof verdict);
    return tw_acquire_some(family, tw_str("a"), n, limit, NULL, &verdict);
}

/* Goal: a spent limit says when the call is admitted, to the millisecond, and a call above the limit that no time
 * helps. */
RIG_TEST(units_are_spent_or_never_enough) {
    for (size_t i = 0; i < KINDS; i++) {
        const struct kind *kind = &kinds[i];
        tw_family *family = family_of_kind(kind, false, 0);
        int64_t most = kind->burst != 0 ? kind->burst : 8;
        assert_status(take(family, "a", most + 1, 8), TW_DENIED); /* of a key without a counter */
        test_assert_cause(&verdict, TW_CAUSE_NEVER);
        assert_status(take(family, "a", most, 8), TW_OK);
        test_assert_no_cause(&verdict);
        for (int again = 0; again < 2; again++) {
            assert_status(take(family, "a", most + 1, 8), TW_DENIED);
            test_assert_cause(&verdict, TW_CAUSE_NEVER);
            assert_status(take(family, "a", most, 8), TW_DENIED);
            test_assert_cause(&verdict, TW_CAUSE_LIMIT);
            assert_status(take(family, "b", 0, 0), TW_OK);
            test_assert_no_cause(&verdict);
            assert_status(take(family, "b", 1, 0), TW_DENIED);
            test_assert_cause(&verdict, TW_CAUSE_NEVER);
            assert_status(take_all(family, most + 1, 8), TW_DENIED);
            test_assert_cause(&verdict, TW_CAUSE_NEVER);
            assert_status(take_all(family, most, 8), TW_DENIED);
            test_assert_cause(&verdict, TW_CAUSE_LIMIT);
            assert_status(take_some(family, 20, 8), TW_DENIED);
            test_assert_cause(&verdict, TW_CAUSE_LIMIT);
            assert_status(take_some(family, 20, 0), TW_DENIED);
            test_assert_cause(&verdict, TW_CAUSE_NEVER);
        }
        assert_status(take(family, "a", most, 8), TW_DENIED);
        if (kind->window == TW_WINDOW_FOREVER) {
            assert_i64_equal(verdict.retry_after_ms, TW_UNBOUNDED);
            continue;
        }
        fake_clock_advance_ms(&rig.clock, verdict.retry_after_ms - 1);
        assert_status(take(family, "a", most, 8), TW_DENIED);
        assert_i64_equal(verdict.retry_after_ms, 1);
        test_assert_cause(&verdict, TW_CAUSE_LIMIT);
        fake_clock_advance_ms(&rig.clock, 1);
        assert_status(take(family, "a", most, 8), TW_OK);
        test_assert_no_cause(&verdict);
    }
}

/* Goal: claims on one key that together need more than the limit can never be had. */
RIG_TEST(claims_that_exceed_the_limit_together_never_come) {
    tw_family *family = family_of_kind(&kinds[0], false, 0);
    const tw_claim claims[] = {{family, tw_str("a"), 5, 8}, {family, tw_str("a"), 5, 8}};
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire_all(claims, 2, &verdict), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_NEVER);
}

/* Goal: a key for which there is no memory has another cause than a limit that is spent, and a time to ask again. */
RIG_TEST(no_memory_is_no_spent_limit) {
    for (size_t i = 0; i < KINDS; i++) {
        tw_family *family = family_of_kind(&kinds[i], false, 1);
        assert_status(take(family, "b", 1, 8), TW_OK);
        assert_status(take(family, "a", 1, 8), TW_ERR_FULL);
        test_assert_cause(&verdict, TW_CAUSE_FULL);
        assert_status(take_all(family, 1, 8), TW_ERR_FULL);
        test_assert_cause(&verdict, TW_CAUSE_FULL);
        assert_status(take_some(family, 3, 8), TW_ERR_FULL);
        test_assert_cause(&verdict, TW_CAUSE_FULL);
        assert_status(take(family, "a", 9, 8), TW_DENIED);
        test_assert_cause(&verdict, TW_CAUSE_NEVER);
    }
}

/* Goal: shadow mode admits, and says why the limit would not. */
RIG_TEST(shadow_mode_says_why) {
    for (size_t i = 0; i < KINDS; i++) {
        tw_family *family = family_of_kind(&kinds[i], true, 1);
        int64_t most = kinds[i].burst != 0 ? kinds[i].burst : 8;
        assert_status(take(family, "b", most, 8), TW_OK);
        test_assert_no_cause(&verdict);
        assert_status(take(family, "b", 1, 8), TW_OK);
        test_assert_cause(&verdict, TW_CAUSE_LIMIT);
        assert_status(take(family, "b", 9, 8), TW_OK);
        test_assert_cause(&verdict, TW_CAUSE_NEVER);
        assert_status(take(family, "a", 1, 8), TW_OK);
        test_assert_cause(&verdict, TW_CAUSE_FULL);
    }
}

/* Goal: a full table that admits gives no cause, and a wrong call has none. */
RIG_TEST(an_admission_and_a_wrong_call_have_no_cause) {
    tw_family_options options = rig_options("admits", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.keys_max = 1;
    tw_family *family = rig_family_of(&rig, &options);
    assert_status(take(family, "b", 1, 8), TW_OK);
    assert_status(take(family, "a", 1, 8), TW_OK);
    assert_int_equal(verdict.decided_by, TW_BY_FULL);
    test_assert_no_cause(&verdict);
    assert_status(take(family, "b", -1, 8), TW_ERR_RANGE);
    assert_int_equal(verdict.cause, 0);
    assert_status(take(family, "", 1, 8), TW_ERR_KEY);
    assert_int_equal(verdict.cause, 0);
}

static void no_done(tw_request *request) {
    (void)request;
    fail_msg("nothing was started");
}

/* Goal: the forms that answer later, and those that wait, fill the same verdict. */
RIG_TEST(a_call_that_waits_says_why) {
    tw_family *family = family_of_kind(&kinds[0], false, 1);
    tw_request request;
    tw_request_init(&request);
    request.done = no_done;
    assert_status(tw_acquire_async(&request, family, tw_str("b"), 8, 8), TW_OK);
    test_assert_no_cause(&request.verdict);
    assert_status(tw_acquire_async(&request, family, tw_str("b"), 1, 8), TW_DENIED);
    test_assert_cause(&request.verdict, TW_CAUSE_LIMIT);
    assert_status(tw_acquire_some_async(&request, family, tw_str("b"), 3, 8), TW_DENIED);
    test_assert_cause(&request.verdict, TW_CAUSE_LIMIT);
    assert_status(tw_acquire_wait_async(&request, family, tw_str("b"), 9, 8), TW_DENIED);
    test_assert_cause(&request.verdict, TW_CAUSE_NEVER);
    assert_status(tw_acquire_wait_async(&request, family, tw_str("a"), 1, 8), TW_ERR_FULL);
    test_assert_cause(&request.verdict, TW_CAUSE_FULL);
}

/* Goal: a wait that finds no place among calls_max is busy, which is no spent limit. Nothing has admitted it. */
TEST(a_wait_beyond_calls_max_is_busy) {
    struct rig small;
    tw_request requests[17];
    rig_init(&small);
    small.options.calls_max = 16;
    rig_start(&small);
    tw_family *family = rig_family(&small, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    assert_status(tw_acquire(family, tw_str("a"), 8, 8, NULL), TW_OK);
    for (int i = 0; i < 17; i++) {
        tw_request_init(&requests[i]);
        requests[i].done = no_done;
        requests[i].timeout_ms = 1000;
        memset(&requests[i].verdict, 0x55, sizeof requests[i].verdict);
        assert_status(tw_acquire_wait_async(&requests[i], family, tw_str("a"), 1, 8),
                      i < 16 ? TW_STARTED : TW_ERR_BUSY);
    }
    test_assert_cause(&requests[16].verdict, TW_CAUSE_BUSY);
    for (int i = 0; i < 16; i++) assert_status(tw_request_cancel(&requests[i]), TW_OK);
    rig_close(&small);
}

RIG_TEST(slots_in_use_say_why) {
    tw_family_options options = rig_options("slots", TW_WINDOW_FOREVER, 0);
    options.keys_max = 1;
    tw_family *family = rig_family_of(&rig, &options);
    assert_status(tw_hold(family, tw_str("a"), 1, &verdict), TW_OK);
    test_assert_no_cause(&verdict);
    assert_status(tw_hold(family, tw_str("a"), 1, &verdict), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    assert_i64_equal(verdict.retry_after_ms, TW_UNBOUNDED);
    assert_status(tw_hold(family, tw_str("a"), 0, &verdict), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_NEVER);
    assert_status(tw_hold(family, tw_str("b"), 1, &verdict), TW_ERR_FULL);
    test_assert_cause(&verdict, TW_CAUSE_FULL);
}

/* Goal: the same of slots that processes share. */
TEST(shared_slots_say_why) {
    struct rig shared;
    rig_init(&shared);
    shared.options.shared = TW_SHARED_BY_FORK;
    shared.options.threads = TW_OWN_THREAD;
    shared.options.clock_now_ns = NULL;
    rig_start(&shared);
    tw_family_options options = rig_options("slots", TW_WINDOW_FOREVER, 0);
    options.keys_max = 1;
    tw_family *family = rig_family_of(&shared, &options);
    assert_status(tw_hold(family, tw_str("a"), 1, &verdict), TW_OK);
    test_assert_no_cause(&verdict);
    assert_status(tw_hold(family, tw_str("a"), 1, &verdict), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    assert_status(tw_hold(family, tw_str("a"), 0, &verdict), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_NEVER);
    assert_status(tw_hold(family, tw_str("b"), 1, &verdict), TW_ERR_FULL);
    test_assert_cause(&verdict, TW_CAUSE_FULL);
    rig_close(&shared);
}

static tw_status reserve(tw_family *family, const char *key, int64_t n, const char *buyer, char *token) {
    return tw_reserve(family, tw_str(key), n, 8, 5 * TW_MINUTE, tw_str(buyer), token, &verdict);
}

/* Goal: a buyer who has a reservation may ask again within a minute, also where it lasts for longer; one who has bought
 * need not ask again. */
RIG_TEST(a_reservation_says_why) {
    tw_family_options options = rig_options("sale", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = 1;
    tw_family *family = rig_family_of(&rig, &options);
    char token[TW_TOKEN_SIZE], none[TW_TOKEN_SIZE];
    assert_status(reserve(family, "a", 9, "ann", none), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_NEVER);
    assert_status(reserve(family, "a", 6, "ann", token), TW_OK);
    test_assert_no_cause(&verdict);
    assert_status(reserve(family, "a", 1, "ann", none), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_BUYER);
    assert_i64_equal(verdict.retry_after_ms, TW_MINUTE);
    assert_status(reserve(family, "a", 3, "bob", none), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    assert_i64_equal(verdict.retry_after_ms, 5 * TW_MINUTE);
    assert_status(reserve(family, "b", 1, "bob", none), TW_ERR_FULL);
    test_assert_cause(&verdict, TW_CAUSE_FULL);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_OK);
    assert_status(reserve(family, "a", 1, "ann", none), TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_BUYER);
    assert_i64_equal(verdict.retry_after_ms, -1);
}

TEST(causes_have_words) {
    static const char *const words[] = {"limit", "share", "outage", "busy", "full", "buyer", "never"};
    for (uint32_t cause = 0; cause < TWI_CAUSES; cause++) assert_string_equal(twi_cause_words[cause], words[cause]);
}

int main(void) {
    return test_run();
}
