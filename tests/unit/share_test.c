/* share_test.c -- soft limits over Redis: shares of what remains, and what each outage policy answers. */
#include "tests/unit/hand_driver.h"

static tw_verdict verdict;

static tw_status take(tw_family *family, int64_t n) {
    return tw_acquire(family, tw_str("k"), n, 100, &verdict);
}

static tw_family *open_family(struct rig *rig, uint32_t on_outage) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = "f";
    options.on_outage = on_outage;
    assert_status(tw_family_open(rig->engine, &options, &family), TW_OK);
    return family;
}

/* Goal: limit / live while the total is unknown; then a share of what remains, at least one call. */
static void an_engine_spends_no_more_than_its_share(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = open_family(&rig, TW_OUTAGE_LOCAL);
    twi_port_live(rig.engine, 4);
    assert_status(take(family, 25), TW_OK);
    assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE);
    assert_status(take(family, 1), TW_DENIED);
    assert_true(verdict.retry_after_ms > 0 && verdict.retry_after_ms <= 1000);
    assert_true(verdict.error_bound >= 75);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(60);
    assert_status(take(family, 10), TW_OK);
    assert_status(take(family, 1), TW_DENIED);
    assert_i64_equal(verdict.decided_by, TW_BY_VIEW);
    hand_close(&rig);
}

static void each_policy_decides_while_redis_is_away(void **state) {
    (void)state;
    for (uint32_t policy = TW_OUTAGE_LOCAL; policy <= TW_OUTAGE_SHARE; policy++) {
        struct rig rig;
        hand_open(&rig);
        tw_family *family = open_family(&rig, policy);
        twi_port_live(rig.engine, 4);
        twi_port_lease_away(rig.engine, 1);
        assert_status(take(family, 30), policy == TW_OUTAGE_LOCAL || policy == TW_OUTAGE_OPEN ? TW_OK : TW_DENIED);
        assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE);
        assert_status(take(family, 20), policy == TW_OUTAGE_CLOSED ? TW_DENIED : TW_OK);
        assert_status(take(family, 60), policy == TW_OUTAGE_OPEN ? TW_OK : TW_DENIED);
        hand_close(&rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_spends_no_more_than_its_share),
        cmocka_unit_test(each_policy_decides_while_redis_is_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
