/* ready_test.c -- the first seconds of an engine with Redis: how much of a soft limit it spends before it knows how
 * many engines live, and what tw_ready() waits for. */
#include "tests/unit/hand_driver.h"

static int64_t admitted_of(tw_family *family, const char *key, int64_t limit) {
    int64_t admitted = 0;
    while (admitted <= limit && tw_acquire(family, tw_str(key), 1, limit, NULL) == TW_OK) admitted++;
    return admitted;
}

static void tell_all(int64_t others) {
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        struct twi_reply answer = {.total = others + item.delta, .has_total = true};
        twi_port_acknowledge(&item, &answer);
    }
}

/* Spends what may be spent, and tells it to Redis, until nothing more may be. */
static int64_t spend_and_sync(tw_family *family, const char *key, int64_t limit) {
    int64_t sum = 0, more;
    tw_reading reading;
    do {
        sum += more = admitted_of(family, key, limit);
        (void)hand_collect(10);
        assert_status(tw_read(family, tw_str(key), &reading), TW_OK);
        while (hand->count != 0) hand_acknowledge(reading.local); /* nobody else has counted */
    } while (more != 0);
    return sum;
}

/* Goal: before Redis has told how many engines live, and for a moment after, only a little is spent of a limit; small
 * limits are as ever; later a fair part of the whole at most, while others may just have begun; then all there is. */
TEST(the_first_seconds_are_spent_with_care) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_verdict verdict;
    assert_i64_equal(admitted_of(family, "k", 20000), 156);
    assert_status(tw_acquire(family, tw_str("k"), 1, 20000, &verdict), TW_DENIED);
    assert_true(verdict.retry_after_ms >= 0 && verdict.retry_after_ms <= 1000);
    assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
    assert_i64_equal(admitted_of(family, "small", 64), 64);
    assert_i64_equal(spend_and_sync(family, "k", 20000), 0);
    twi_port_live_engines(rig.engine, 4);
    assert_i64_equal(spend_and_sync(family, "l", 20000), 156);
    rig_pass(&rig, 100);
    twi_port_live_engines(rig.engine, 4);
    assert_i64_equal(spend_and_sync(family, "l", 20000), 5000 - 156);
    assert_status(tw_acquire(family, tw_str("l"), 1, 20000, &verdict), TW_DENIED);
    assert_true(verdict.error_bound >= 15000 && verdict.error_bound != TW_UNBOUNDED);
    rig_pass(&rig, 900);
    twi_port_live_engines(rig.engine, 4);
    assert_i64_equal(spend_and_sync(family, "l", 20000), 15000);
    hand_close(&rig);
}

/* Goal: with engines_expected a fair part is spent as soon as Redis has told the total, and the larger number
 * counts. */
TEST(who_knows_how_many_come_spends_a_share_at_once) {
    struct rig rig;
    hand_init(&rig);
    rig.options.engines_expected = 4;
    rig_start(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_verdict verdict;
    assert_i64_equal(admitted_of(family, "k", 20000), 156);
    assert_status(tw_acquire(family, tw_str("k"), 1, 20000, &verdict), TW_DENIED);
    assert_true(verdict.error_bound >= 15000 && verdict.error_bound != TW_UNBOUNDED);
    twi_port_live_engines(rig.engine, 1);
    assert_i64_equal(admitted_of(family, "k", 20000), 0); /* of unknown total still */
    (void)hand_collect(10);
    tell_all(0);
    assert_i64_equal(spend_and_sync(family, "k", 20000), 5000 - 156);
    rig_pass(&rig, 2000);
    twi_port_live_engines(rig.engine, 8);
    assert_i64_equal(spend_and_sync(family, "n", 20000), 2500);
    rig_pass(&rig, 2000);
    twi_port_live_engines(rig.engine, 8);
    assert_i64_equal(spend_and_sync(family, "n", 20000), 0); /* somebody came 2 s ago */
    rig_pass(&rig, 1000);
    twi_port_live_engines(rig.engine, 8);
    assert_i64_equal(spend_and_sync(family, "n", 20000), 17500);
    hand_close(&rig);
}

/* Goal: the care ends: where fewer come than were expected, where Redis says nothing, where it may not be asked how
 * many live. */
TEST(the_care_ends) {
    for (int i = 0; i < 3; i++) {
        struct rig rig;
        hand_init(&rig);
        if (i == 0) rig.options.engines_expected = 4;
        rig_start(&rig);
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
        if (i == 0) twi_port_live_engines(rig.engine, 1);
        if (i == 2) twi_port_live_engines(rig.engine, 0);
        rig_pass(&rig, i == 2 ? 0 : 5000);
        if (i == 0) twi_port_live_engines(rig.engine, 1);
        assert_i64_equal(spend_and_sync(family, "k", 20000), 20000);
        hand_close(&rig);
    }
}

/* Goal: who was slow to its first answer waits as long twice over for those who began with it, up to a second. They are
 * as slow; and for Redis to tell of them. Only then it takes itself for alone. */
TEST(a_slow_start_waits_for_others_who_are_as_slow) {
    static const int64_t starts_ms[] = {10, 200, 60000}, meetings_ms[] = {100, 400, 1000};
    for (int i = 0; i < 3; i++) {
        struct rig rig;
        hand_open(&rig);
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
        rig_pass(&rig, starts_ms[i]);
        twi_port_live_engines(rig.engine, 1);
        rig_pass(&rig, meetings_ms[i] - 1);
        twi_port_live_engines(rig.engine, 1);
        assert_i64_equal(spend_and_sync(family, "k", 20000), 156);
        rig_pass(&rig, 1);
        assert_i64_equal(spend_and_sync(family, "k", 20000), 20000 - 156);
        hand_close(&rig);
    }
}

/* Goal: an engine whose first question is not answered knows no more of the others than one that has not asked: for a
 * second it spends a little, then what TW_OUTAGE_LOCAL says; for its first 5 s no more than a share, where somebody has
 * said how many there are. */
TEST(an_outage_is_no_licence_in_the_first_seconds) {
    for (uint32_t expected = 0; expected <= 4; expected += 4) {
        struct rig rig;
        hand_init(&rig);
        rig.options.engines_expected = expected;
        rig_start(&rig);
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
        twi_port_outage(rig.engine, 0, rig.engine->turn.mono_ms);
        assert_i64_equal(admitted_of(family, "k", 20000), 156);
        rig_pass(&rig, 1000);
        assert_i64_equal(admitted_of(family, "k", 20000), (expected == 0 ? 20000 : 5000) - 156);
        rig_pass(&rig, 4000);
        assert_i64_equal(admitted_of(family, "k", 20000), expected == 0 ? 0 : 15000);
        hand_close(&rig);
    }
}

/* Goal: tw_ready() answers at once without Redis, and with it when Redis was seen and how many live has been known for
 * a moment, or cannot be known; until then it says the missing part. */
TEST(ready_waits_for_what_must_be_known) {
    struct rig rig;
    rig_open(&rig);
    assert_status(tw_ready(rig.engine, 0), TW_OK);
    rig_close(&rig);
    hand_open(&rig);
    twi_port_connected(rig.engine, false);
    assert_status(tw_ready(rig.engine, 0), TW_ERR_TIMEOUT);
    assert_non_null(strstr(tw_error_text(), "Redis does not reply"));
    twi_port_connected(rig.engine, true);
    assert_status(tw_ready(rig.engine, 0), TW_ERR_TIMEOUT);
    assert_non_null(strstr(tw_error_text(), "number of live engines"));
    twi_port_live_engines(rig.engine, 2);
    assert_status(tw_ready(rig.engine, 0), TW_ERR_TIMEOUT);
    rig_pass(&rig, 100);
    assert_status(tw_ready(rig.engine, 0), TW_ERR_TIMEOUT); /* the others may be there by now: nobody has asked */
    twi_port_live_engines(rig.engine, 2);
    assert_status(tw_ready(rig.engine, 0), TW_OK);
    tw_enter(rig.engine);
    assert_status(tw_ready(rig.engine, 0), TW_ERR_MODE);
    tw_leave(rig.engine);
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_status(tw_ready(rig.engine, 0), TW_ERR_CLOSED);
    hand_close(&rig);
}

TEST(ready_knows_a_registry_that_is_refused) {
    struct rig rig;
    hand_open(&rig);
    twi_port_connected(rig.engine, true);
    twi_port_live_engines(rig.engine, 0);
    assert_status(tw_ready(rig.engine, 0), TW_OK);
    hand_close(&rig);
}

static tw_status answer_in_hook;
static bool in_hook(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)family, (void)start_ms, (void)end_ms, (void)flags;
    answer_in_hook = tw_ready(ctx, 0);
    return true;
}

TEST(ready_may_not_be_called_in_a_hook) {
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = in_hook;
    options.closed_ctx = rig.engine;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "k", 1);
    rig_pass(&rig, 2 * TW_MINUTE);
    assert_status(tw_turn(rig.engine), TW_OK);
    assert_status(answer_in_hook, TW_ERR_MODE);
    rig_close(&rig);
}
