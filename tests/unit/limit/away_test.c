/* away_test.c -- several stores of which some do not reply: what a key is answered follows the clock of its own store.
 * Method: names with four tags, each a store; the test says which of them are away.
 * Covers: engine/core/store_map.c. */
#include "tests/unit/hand_driver.h"

#include "engine/base/key_slot.h"

#define TAGS 4u

static tw_verdict verdict;

static tw_family *open_family(struct rig *rig, const char *name, uint32_t mode, uint32_t on_outage, uint32_t grace_ms) {
    tw_family_options options = rig_options(name, TW_WINDOW_FOREVER, 0);
    options.redis_tags = TAGS;
    options.redis_key = "{%t}:%n:%k";
    options.limit_mode = mode;
    options.on_outage = on_outage;
    options.outage_grace_ms = grace_ms;
    return rig_family_of(rig, &options);
}

/* The number of a key that has that tag. */
static int number_in(uint32_t tag) {
    char text[16];
    for (int number = 0;; number++) {
        int size = snprintf(text, sizeof text, "%d", number);
        if (twi_key_slot_crc16(text, (size_t)size) % TAGS == tag) return number;
    }
}

static tw_status take(tw_family *family, uint32_t tag) {
    char text[16];
    snprintf(text, sizeof text, "%d", number_in(tag));
    return tw_acquire(family, tw_str(text), 1, 100, &verdict);
}

static uint32_t meet(struct rig *rig, uint32_t tag) {
    char name[16];
    int size = snprintf(name, sizeof name, "{%u}", twi_key_slot_tags(TAGS)[tag]);
    return twi_port_store(rig->engine, twi_key_slot_of(name, (size_t)size));
}

/* What the engine reports; the hand driver has statistics of its own. */
static int64_t connected(struct rig *rig) {
    return twi_load_relaxed(&rig->engine->report.stats[offsetof(tw_stats, redis_connected) / sizeof(int64_t)]);
}

static void open_rig(struct rig *rig) {
    hand_open(rig);
    hand_live(rig, 1);
    assert_int_equal(meet(rig, 0), 0);
    assert_int_equal(meet(rig, 1), 1);
}

/* Goal: on_outage decides for keys of the store that is unreachable, and for no other; also for hard limits. A store
 * that was not met is unreachable only while all are. Redis counts as connected if no store is unreachable. */
TEST(a_policy_decides_for_the_store_that_is_away) {
    struct rig rig;
    open_rig(&rig);
    tw_family *soft = open_family(&rig, "s", TW_LIMIT_SOFT, TW_OUTAGE_FAIL_CLOSED, 0);
    tw_family *hard = open_family(&rig, "h", TW_LIMIT_HARD, TW_OUTAGE_FAIL_CLOSED, 0);
    for (uint32_t tag = 0; tag < TAGS; tag++) assert_status(take(soft, tag), TW_OK);
    assert_i64_equal(connected(&rig), 1);
    twi_port_outage(rig.engine, 0, 1);
    assert_i64_equal(connected(&rig), 0);
    assert_status(take(soft, 0), TW_DENIED);
    assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
    assert_status(take(hard, 0), TW_DENIED);
    for (uint32_t tag = 1; tag < TAGS; tag++) { /* those from 2 on were not met */
        assert_status(take(soft, tag), TW_OK);
        assert_status(take(hard, tag), TW_PENDING);
    }
    twi_port_outage(rig.engine, 1, 2);
    for (uint32_t tag = 0; tag < TAGS; tag++) {
        assert_status(take(soft, tag), TW_DENIED);
        assert_status(take(hard, tag), TW_DENIED);
    }
    assert_int_equal(meet(&rig, 2), 2); /* while all are unreachable */
    assert_status(take(soft, 2), TW_DENIED);
    twi_port_outage(rig.engine, 0, 0);
    assert_status(take(soft, 0), TW_OK);
    assert_status(take(soft, 1), TW_DENIED);
    assert_status(take(soft, 2), TW_DENIED);
    assert_status(take(soft, 3), TW_OK);
    twi_port_outage(rig.engine, 1, 0);
    assert_i64_equal(connected(&rig), 0);
    twi_port_outage(rig.engine, 2, 0);
    assert_i64_equal(connected(&rig), 1);
    for (uint32_t tag = 0; tag < TAGS; tag++) assert_status(take(soft, tag), TW_OK);
    hand_close(&rig);
}

/* Goal: outage_grace_ms counts from the moment when the key's own store went away; so does the second for which
 * TW_OUTAGE_LOCAL leaves the shares of others. A key without a counter follows its store, too. */
TEST(a_grace_counts_from_the_stores_own_clock) {
    struct rig rig;
    open_rig(&rig);
    tw_family *soft = open_family(&rig, "s", TW_LIMIT_SOFT, TW_OUTAGE_FAIL_CLOSED, 1000);
    tw_family *fresh = open_family(&rig, "f", TW_LIMIT_SOFT, TW_OUTAGE_FAIL_CLOSED, 1000);
    twi_port_outage(rig.engine, 0, rig.engine->turn.mono_ms);
    rig_pass(&rig, 500);
    twi_port_outage(rig.engine, 1, rig.engine->turn.mono_ms);
    assert_status(take(soft, 0), TW_OK);
    assert_status(take(soft, 1), TW_OK);
    rig_pass(&rig, 500);
    twi_port_outage(rig.engine, 0, rig.engine->turn.mono_ms - 1000);
    assert_status(take(soft, 0), TW_DENIED);
    assert_status(take(soft, 1), TW_OK);
    assert_status(take(fresh, 0), TW_DENIED);
    assert_status(take(fresh, 1), TW_OK);
    rig_pass(&rig, 500);
    assert_status(take(soft, 1), TW_DENIED);
    twi_port_outage(rig.engine, 0, 0);
    assert_status(take(soft, 0), TW_OK);
    assert_status(take(soft, 1), TW_DENIED);
    hand_close(&rig);
}

static int64_t take_all(tw_family *family, uint32_t tag) {
    int64_t taken = 0;
    while (take(family, tag) == TW_OK) taken++;
    return taken;
}

/* Goal: the shares that an engine takes of keys of a store that replies are not changed by another one's outage. */
TEST(an_outage_elsewhere_leaves_shares_alone) {
    struct rig rig;
    open_rig(&rig);
    tw_family *soft = open_family(&rig, "s", TW_LIMIT_SOFT, TW_OUTAGE_LOCAL, 0);
    hand_live(&rig, 4);
    twi_port_outage(rig.engine, 0, rig.engine->turn.mono_ms);
    assert_i64_equal(take_all(soft, 0), 25);
    rig_pass(&rig, 1000);
    assert_i64_equal(take_all(soft, 0), 75);
    assert_int_equal(verdict.error_bound, TW_UNBOUNDED);
    assert_i64_equal(take_all(soft, 1), 25);
    assert_true(verdict.error_bound != TW_UNBOUNDED);
    hand_close(&rig);
}
