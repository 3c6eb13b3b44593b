/* full.c -- many threads add, claim, undo, reset and refund on a full table, and a stop may come between: what the
 * counters and the overflow counter have in the end is what the callers were told.
 * Goal: no call that was refused leaves a unit (P1), wherever it ended. Method: each thread sums up what its calls
 * answered; the books are read by a walk without Redis, and from the driver's ledger with it. */
#include "tests/stress/stress.h"
#include "tests/support/fake_driver.h"

#include "engine/core/family.h"

#define KNOWN 12u /* these keys are there before the table is full */

enum { CLAIMS = 1, ONCE = 2, RESETS = 4, REFUNDS = 8, SOME = 16, OPERATIONS = 31 };

struct field {
    tw_engine *engine;
    tw_family *family;
    uint64_t rounds, keys;
    uint32_t operations;
};

static uint32_t pick(struct member *member) {
    const struct field *field = member->team->ctx;
    bool known = test_prng_chance(&member->prng, 1, 2);
    return (uint32_t)test_prng_below(&member->prng, known ? KNOWN : field->keys);
}

static tw_status claim(struct member *member, uint32_t key) {
    tw_family *family = ((struct field *)member->team->ctx)->family;
    uint32_t other = pick(member), last = pick(member);
    const tw_claim claims[] = {
        {family, fake_key(&key), 3, 1000000}, {family, fake_key(&other), 1, 40}, {family, fake_key(&last), 2, 5}};
    size_t count = 1 + test_prng_below(&member->prng, 3);
    tw_status status = tw_acquire_all(claims, count, NULL);
    if (status == TW_OK) member->sum += count == 1 ? 3 : count == 2 ? 4 : 6;
    return status;
}

static tw_status call_other(struct member *member, uint32_t operation, uint32_t key) {
    tw_family *family = ((struct field *)member->team->ctx)->family;
    bool first = false;
    int64_t units = 0;
    tw_status status;
    switch (operation) {
    case CLAIMS: return claim(member, key);
    case ONCE:
        status = tw_once(family, fake_key(&key), &first);
        if (status == TW_OK) member->sum += first;
        return status;
    case RESETS:
        status = tw_reset(family, fake_key(&key), &units);
        if (status == TW_OK) member->sum -= units;
        return status;
    case REFUNDS:
        status = tw_refund(family, fake_key(&key), 2, 0);
        if (status == TW_OK) member->sum -= 2;
        return status;
    default:
        status = tw_acquire_some(family, fake_key(&key), 5, 100, &units, NULL);
        member->sum += units;
        return status;
    }
}

static tw_status add(struct member *member, uint32_t key) {
    int64_t delta = test_prng_between(&member->prng, -3, 5), view;
    tw_family *family = ((struct field *)member->team->ctx)->family;
    tw_status status = tw_add(family, fake_key(&key), delta, test_prng_chance(&member->prng, 1, 2) ? &view : NULL);
    if (status >= 0) member->sum += delta;
    return status;
}

static void work(struct member *member) {
    const struct field *field = member->team->ctx;
    for (uint64_t round = 0; round < field->rounds; round++) {
        uint32_t key = pick(member), operation = UINT32_C(1) << test_prng_below(&member->prng, 10);
        bool adds = (operation & field->operations) == 0;
        tw_status status = adds ? add(member, key) : call_other(member, operation, key);
        if (status == TW_ERR_CLOSED) return;
        expect(status == TW_OK || status == TW_OVERFLOWED || status == TW_DENIED || status == TW_ERR_FULL ||
               status == TW_ERR_RANGE);
    }
}

static void field_open(struct field *field, struct test_prng *prng, tw_options *options, tw_family_options *family) {
    family->name = "field";
    family->window = TW_WINDOW_FOREVER;
    family->on_full_limit = TW_FULL_LIMIT_DENY; /* a call that is admitted without room is counted nowhere */
    field->operations = CLAIMS | (uint32_t)test_prng_below(prng, OPERATIONS + 1);
    field->engine = stress_open(options);
    field->family = stress_family(field->engine, family);
    for (uint32_t key = 0; key < KNOWN; key++) assert_status(tw_add(field->family, fake_key(&key), 0, NULL), TW_OK);
}

static unsigned draw_threads(struct test_prng *prng) {
    return (unsigned)TEST_PRNG_PICK(prng, 4, 8, 16);
}

static void without_redis(struct test_prng *prng) {
    struct field field = {.rounds = test_scale(4000)};
    tw_options options;
    tw_options_init(&options);
    tw_family_options family;
    tw_family_options_init(&family);
    bool by_memory = test_prng_chance(prng, 1, 2);
    options.memory_bytes_max = by_memory ? UINT64_C(1) << 20 : UINT64_C(64) << 20;
    family.on_full = test_prng_chance(prng, 3, 4) ? TW_ON_FULL_OVERFLOW : TW_ON_FULL_REJECT;
    family.keys_max = by_memory ? 0 : 16 + test_prng_below(prng, 100);
    field.keys = by_memory ? 50000 : family.keys_max * 2;
    field_open(&field, prng, &options, &family);
    int64_t told = team_work(draw_threads(prng), work, &field);
    struct tally tally = {.seen = NULL};
    assert_status(tw_each(field.family, TW_NOW, tally_count, &tally), TW_OK);
    assert_i64_equal(tally.sum + tally.overflow, told);
    assert_status(tw_close(field.engine, TEST_PATIENCE_MS), TW_OK);
}

static void with_redis(struct test_prng *prng, bool evicts, bool stops) {
    struct field field = {.rounds = stops ? UINT64_MAX : test_scale(10000), .keys = FAKE_KEYS};
    fake_driver_reset(0, 0);
    fake_driver.totals = true;
    fake_driver.hold_percent = (uint32_t)test_prng_below(prng, 50);
    fake_driver.return_percent = (uint32_t)test_prng_below(prng, 20);
    tw_options options;
    tw_options_init(&options);
    fake_driver_install(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    tw_family_options family;
    tw_family_options_init(&family);
    family.on_full = evicts ? TW_ON_FULL_EVICT_IDLE : TW_ON_FULL_OVERFLOW;
    family.idle_ms = evicts ? 100 : 0;
    family.keys_max = 32;
    field_open(&field, prng, &options, &family);
    struct team team;
    team_start(&team, draw_threads(prng), work, &field);
    if (stops) {
        test_sleep_ms(test_prng_between(prng, 0, 20));
        assert_status(tw_stop(field.engine), TW_OK);
    }
    int64_t told = team_join(&team);
    fake_driver.return_percent = fake_driver.hold_percent = 0;
    assert_status(tw_close(field.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(fake_driver_sum() + fake_driver_given_up(), told);
}

TEST(a_full_table_has_what_callers_were_told) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t round = 0; round < test_scale(12); round++) without_redis(&prng);
}

TEST(a_full_table_with_redis_has_what_callers_were_told) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t round = 0; round < test_scale(10); round++) with_redis(&prng, round % 2 == 0, false);
}

/* Goal: a call that a stop has cut short leaves nothing (P1). */
TEST(a_stopped_engine_has_what_callers_were_told) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t round = 0; round < test_scale(60); round++) with_redis(&prng, round % 2 == 0, true);
}
