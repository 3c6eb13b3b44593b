/* share_test.c -- soft limits over Redis: shares of the remainder, the answers of each outage policy, and the previous
 * window of sliding limits. */
#include "tests/unit/hand_driver.h"

#include "engine/limit/acquire.h"

static tw_verdict verdict;

static tw_status take(tw_family *family, int64_t n) {
    return tw_acquire(family, tw_str("k"), n, 100, &verdict);
}

static tw_family *shaped_family(struct rig *rig, uint32_t shape, uint32_t on_outage) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = "f";
    options.window_ms = TW_MINUTE;
    options.limit_shape = shape;
    options.on_outage = on_outage;
    assert_status(tw_family_open(rig->engine, &options, &family), TW_OK);
    return family;
}

static tw_family *open_family(struct rig *rig, uint32_t on_outage) {
    return shaped_family(rig, TW_SHAPE_FIXED, on_outage);
}

#define NEW_MS 150 /* an interval and a half: a key is new for so long after its first total */

/* Goal: the share is limit / live while the total is unknown, and while the key is new. Afterwards it is a share of
 * what remains, at least one call. */
TEST(an_engine_spends_no_more_than_its_share) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = open_family(&rig, TW_OUTAGE_LOCAL);
    hand_live(&rig, 4);
    assert_status(take(family, 25), TW_OK);
    assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE);
    assert_status(take(family, 1), TW_DENIED);
    assert_true(verdict.retry_after_ms > 0 && verdict.retry_after_ms <= 1000);
    assert_true(verdict.error_bound >= 75);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(60);
    assert_status(take(family, 1), TW_DENIED);
    rig_pass(&rig, NEW_MS);
    assert_status(take(family, 10), TW_OK);
    assert_status(take(family, 1), TW_DENIED);
    assert_i64_equal(verdict.decided_by, TW_BY_VIEW);
    hand_close(&rig);
}

static int64_t take_all(tw_family *family, int64_t limit) {
    int64_t taken = 0;
    while (tw_acquire(family, tw_str("k"), 1, limit, &verdict) == TW_OK) taken++;
    return taken;
}
static void tell_total(int64_t total) {
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(total);
}

/* Goal: engines that begin a key together, and spend it as fast as they can, do not pass its limit. Each has a share of
 * the whole until the others have surely reported what they spent, whatever an earlier total leaves (R13). An engine
 * that is alone with the key gets a little more with each total. Method: one of four engines, with the first reply. */
TEST(a_new_key_is_spent_by_shares_of_the_whole) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = open_family(&rig, TW_OUTAGE_LOCAL);
    hand_live(&rig, 4);
    assert_i64_equal(take_all(family, 20000), 5000);
    tell_total(5000); /* the counts of the others are on their way */
    assert_i64_equal(take_all(family, 20000), 20000 / 256);
    assert_true(verdict.retry_after_ms > 0 && verdict.retry_after_ms <= 1000);
    assert_true(verdict.error_bound >= 15000 && verdict.error_bound != TW_UNBOUNDED);
    tell_total(5078 + 5000);
    assert_i64_equal(take_all(family, 20000), 0);
    rig_pass(&rig, NEW_MS - 1);
    assert_i64_equal(take_all(family, 20000), 0);
    rig_pass(&rig, 1);
    /* Half of its part of the rest, because the others' pace is not known yet. */
    assert_i64_equal(take_all(family, 20000), (20000 - 10078) / 8);
    hand_close(&rig);
}

/* Goal: a small limit is not held back. An engine that is alone with the key spends as ever. */
TEST(of_a_small_limit_one_goes_on_at_each_total) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = open_family(&rig, TW_OUTAGE_LOCAL);
    hand_live(&rig, 16);
    for (int64_t total = 1; total <= 10; total++) {
        assert_i64_equal(take_all(family, 10), 1);
        tell_total(total);
    }
    assert_i64_equal(take_all(family, 10), 0);
    hand_close(&rig);
}

/* Goal: one missing reply is no reason to spend the others' share. TW_OUTAGE_LOCAL begins a second later, if there are
 * others. */
TEST(a_brief_outage_leaves_shares) {
    for (uint32_t live = 1; live <= 4; live += 3) {
        struct rig rig;
        hand_open(&rig);
        tw_family *family = open_family(&rig, TW_OUTAGE_LOCAL);
        hand_live(&rig, live);
        int64_t fair = 20000 / live;
        twi_port_outage(rig.engine, 0, rig.engine->turn.mono_ms);
        assert_i64_equal(take_all(family, 20000), fair);
        rig_pass(&rig, 999);
        assert_i64_equal(take_all(family, 20000), 0);
        rig_pass(&rig, 1);
        assert_i64_equal(take_all(family, 20000), 20000 - fair);
        hand_close(&rig);
    }
}

/* Goal: each policy decides as docs/LIMITS.md says, for both shapes that count, for calls above the whole limit, and
 * for new keys. */
TEST(each_policy_decides_while_redis_is_away) {
    for (uint32_t i = 0; i < 8; i++) {
        struct rig rig;
        uint32_t policy = i % 4;
        hand_open(&rig);
        tw_family *family = shaped_family(&rig, i < 4 ? TW_SHAPE_FIXED : TW_SHAPE_SLIDING, policy);
        hand_live(&rig, 4);
        twi_port_outage(rig.engine, 0, 1);
        bool open = policy == TW_OUTAGE_FAIL_OPEN;
        assert_status(tw_acquire(family, tw_str("new"), 101, 100, &verdict), open ? TW_OK : TW_DENIED);
        assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE);
        assert_status(tw_acquire(family, tw_str("looked at"), 0, 100, &verdict),
                      policy == TW_OUTAGE_FAIL_CLOSED ? TW_DENIED : TW_OK);
        assert_i64_equal(verdict.used, 0);
        assert_status(take(family, 30), open || policy == TW_OUTAGE_LOCAL ? TW_OK : TW_DENIED);
        assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE);
        if (policy == TW_OUTAGE_FAIL_CLOSED) assert_true(verdict.retry_after_ms > 0 && verdict.retry_after_ms <= 1000);
        assert_status(take(family, 20), policy == TW_OUTAGE_FAIL_CLOSED ? TW_DENIED : TW_OK);
        assert_status(take(family, 60), open ? TW_OK : TW_DENIED);
        /* To the edge of a counter's range: nothing overflows. */
        for (int n = 0; n < 250 && open && i < 4; n++) assert_status(take(family, TW_DELTA_MAX), TW_OK);
        hand_close(&rig);
    }
}

/* ---- the short way ---- */

struct both {
    struct rig rig;
    int64_t start_ms;     /* of the window */
    int64_t others, mine; /* counted there by others, and here for each key */
    int pairs, singles;   /* looks at the near-limit ring: both keys; one alone, if their lines meet there */
};

/* What is unsent of this window, all of it or the near-limit part, is acknowledged for both keys at once. */
static void settle_both(struct both *both, bool hurry) {
    struct twi_item items[TWI_NEAR_LIMIT_MAX];
    size_t count, now = 0;
    if (hurry) {
        count = twi_port_collect_near_limit(both->rig.engine, items);
    } else {
        count = hand_collect(10);
        memcpy(items, hand->held, count * sizeof *items);
        hand->count = 0;
    }
    for (size_t i = 0; i < count; i++) now += twi_port_start_ms(&items[i]) == both->start_ms;
    struct twi_reply answer = {.total = both->others + both->mine, .has_total = true};
    for (size_t i = 0; i < count; i++) {
        bool alone = hurry && now == 1 && twi_port_start_ms(&items[i]) == both->start_ms;
        if (alone)
            twi_port_return(&items[i], 0);
        else
            twi_port_acknowledge(&items[i], &answer);
    }
    assert_true(hurry || now == 0 || now == 2);
}

static void look_at_ring(struct both *both) {
    int hurried = 0;
    for (uint32_t i = 0; i < TWI_NEAR_LIMIT_MAX; i++)
        hurried += atomic_load(&both->rig.engine->near_ring.slots[i]) != 0;
    both->pairs += hurried == 2;
    both->singles += hurried == 1;
    assert_true(both->pairs == 0 || both->singles == 0);
}

/* Goal: a call of a known key takes a fast path (acquire_fast.h). Its result equals the complete decision, in every
 * field of the verdict and in the requests to Redis. Method: two keys of one history, one of them always decided
 * completely. */
TEST(the_short_way_is_the_long_one) {
    enum { STEPS = 40000 };
    struct both both = {.pairs = 0};
    struct test_prng prng;
    tw_verdict by_short, by_long;
    int64_t pairs = 0;
    test_prng_seed(&prng, test_seed());
    hand_open(&both.rig);
    tw_family *family = open_family(&both.rig, TW_OUTAGE_LOCAL);
    for (int i = 0; i < STEPS; i++) {
        if (test_prng_chance(&prng, 1, 40)) hand_live(&both.rig, (uint32_t)test_prng_below(&prng, 5));
        if (test_prng_chance(&prng, 1, 60)) twi_port_outage(both.rig.engine, 0, (int64_t)test_prng_below(&prng, 2));
        if (test_prng_chance(&prng, 1, 3)) rig_pass(&both.rig, test_prng_between(&prng, 1, 120));
        if (test_prng_chance(&prng, 1, 3)) both.others += test_prng_between(&prng, 0, 12);
        if (test_prng_chance(&prng, 1, 3)) settle_both(&both, test_prng_chance(&prng, 1, 2));
        int64_t n = test_prng_between(&prng, 0, 9), limit = both.others + both.mine;
        limit += test_prng_between(&prng, -5, test_prng_chance(&prng, 1, 4) ? 1000 : 40);
        if (limit < 0) limit = 0;
        tw_status one = tw_acquire(family, tw_str("short"), n, limit, &by_short);
        tw_status other = twi_acquire_slow(family, tw_str("long"), n, limit, &by_long);
        assert_status(one, other);
        assert_memory_equal(&by_short, &by_long, sizeof by_long);
        if (by_long.window_start_ms != both.start_ms)
            both = (struct both){.rig = both.rig, .start_ms = by_long.window_start_ms};
        if (one == TW_OK) both.mine += n;
        look_at_ring(&both);
        pairs += both.pairs != 0;
    }
    assert_true(pairs > STEPS / 4); /* in some windows the two keys meet in one slot of the ring */
    hand_close(&both.rig);
}

/* ---- sliding ---- */

/* Collects what is dirty, and acknowledges this total for the window that began then. The rest stays on its way. */
static void tell(int64_t start_ms, int64_t total) {
    size_t kept = 0;
    int told = 0;
    (void)hand_collect(10);
    for (size_t i = 0; i < hand->count; i++) {
        struct twi_item item = hand->held[i];
        struct twi_reply answer = {.total = total, .has_total = true};
        bool is_it = twi_port_start_ms(&item) == start_ms;
        if (is_it) twi_port_acknowledge(&item, &answer);
        if (!is_it) hand->held[kept++] = item;
        told += is_it;
    }
    hand->count = kept;
    assert_true(told != 0);
}

/* Goal: the others' count in the previous window weighs as soon as Redis reports it. Until two intervals after its end
 * each call requests it again, and the bound is not known, however fast the others counted. */
TEST(the_total_before_is_asked_for_until_it_is_settled) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = shaped_family(&rig, TW_SHAPE_SLIDING, TW_OUTAGE_LOCAL);
    int64_t start_ms = rig_now(&rig), next_ms = start_ms + TW_MINUTE;
    hand_live(&rig, 2);
    assert_status(take(family, 4), TW_OK);
    tell(start_ms, 4);
    tell(start_ms - TW_MINUTE, 0);
    for (int64_t total = 14; total <= 54; total += 10) { /* others count ten per interval */
        rig_pass(&rig, 100);
        assert_i64_equal(rig_get(family, "k"), total - 10);
        tell(start_ms, total);
    }
    rig_pass(&rig, next_ms - rig_now(&rig));
    assert_status(take(family, 1), TW_OK);
    assert_i64_equal(verdict.used, 55);
    assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
    tell(start_ms, 60); /* the last interval */
    assert_status(take(family, 1), TW_OK);
    assert_i64_equal(verdict.used, 62);
    tell(next_ms, 2);
    rig_pass(&rig, 30000);
    assert_status(take(family, 1), TW_OK);
    assert_i64_equal(verdict.used, 33);                  /* half of 60 */
    assert_i64_equal(verdict.error_bound, TW_UNBOUNDED); /* it was reported at the window's end */
    tell(start_ms, 70);
    assert_status(take(family, 1), TW_OK);
    assert_i64_equal(verdict.used, 39);
    assert_i64_equal(verdict.decided_by, TW_BY_VIEW);
    assert_true(verdict.error_bound >= 61 &&
                verdict.error_bound < 200); /* the bound of this window, in which others may count */
    tell(next_ms, 4);
    assert_i64_equal(hand_collect(10), 0); /* settled: nobody requests it any more */
    hand_close(&rig);
}

/* Goal: an engine that has just begun decides on a share of the limit until it knows the previous window's count. It
 * requests that count at once. */
TEST(an_unknown_window_before_leaves_a_share) {
    struct rig rig;
    struct twi_item items[TWI_NEAR_LIMIT_MAX];
    hand_open(&rig);
    tw_family *family = shaped_family(&rig, TW_SHAPE_SLIDING, TW_OUTAGE_LOCAL);
    int64_t start_ms = rig_now(&rig);
    hand_live(&rig, 4);
    assert_status(take(family, 5), TW_OK);
    tell(start_ms, 5);
    assert_status(take(family, 26), TW_DENIED); /* the total is unknown: 100 / 4 beyond the known state */
    assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE);
    assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
    assert_true(verdict.retry_after_ms > 0 && verdict.retry_after_ms <= 100);
    bool hurried = false;
    for (size_t i = twi_port_collect_near_limit(rig.engine, items); i != 0; i--) {
        hurried = hurried || twi_port_start_ms(&items[i - 1]) == start_ms - TW_MINUTE;
        hand->held[hand->count++] = items[i - 1];
    }
    assert_true(hurried);
    tell(start_ms - TW_MINUTE, 60);
    assert_status(take(family, 36), TW_DENIED);
    assert_i64_equal(verdict.decided_by, TW_BY_VIEW);
    assert_status(take(family, 35), TW_OK);
    assert_i64_equal(verdict.used, 100);
    tell(start_ms, 40);
    rig_pass(
        &rig,
        15000); /* a quarter of the previous count has faded: 15 are left, and a quarter of them is this engine's */
    assert_status(take(family, 3), TW_OK);
    assert_status(take(family, 1), TW_DENIED);
    hand_close(&rig);
}

/* Goal: the previous window may have more than a limit that was lowered since, or more than one engine knew of. Then
 * every call is denied, one for no units, too, and the numbers of the verdict are right. */
TEST(the_window_before_may_have_more_than_the_limit) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = shaped_family(&rig, TW_SHAPE_SLIDING, TW_OUTAGE_LOCAL);
    int64_t start_ms = rig_now(&rig);
    for (uint32_t live = 1; live <= 2; live++) {
        hand_live(&rig, live);
        assert_status(tw_acquire(family, tw_str("k"), 1, 1000, &verdict), TW_OK);
        tell(start_ms, 90);
        rig_pass(&rig, start_ms + TW_MINUTE - rig_now(&rig));
        start_ms += TW_MINUTE;
        assert_status(tw_acquire(family, tw_str("k"), 1, 1000, &verdict), TW_OK); /* the window has a counter */
        for (int64_t n = 0; n <= 1; n++) {
            assert_status(tw_acquire(family, tw_str("k"), n, 10, &verdict), TW_DENIED);
            assert_true(verdict.used >= 91);
            assert_i64_equal(verdict.remaining, 0);
            assert_true(verdict.retry_after_ms > 0);
        }
    }
    hand_close(&rig);
}

/* Goal: however many keys Redis refuses, other keys are sent at once near their limits, and the refused ones are not
 * (R6). */
TEST(refused_keys_hold_no_other_up_near_its_limit) {
    struct rig rig;
    struct twi_item items[TWI_NEAR_LIMIT_MAX];
    char key[16];
    hand_open(&rig);
    tw_family *family = open_family(&rig, TW_OUTAGE_LOCAL);
    hand_live(&rig, 8);
    struct twi_reply answer = {.total = 1, .has_total = true};
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_status(tw_add(family, tw_str(key), 1, NULL), TW_OK);
    }
    assert_i64_equal(hand_collect(1000), 200);
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        if (twi_port_key(&item).size == 3) /* 100 to 199 */
            twi_port_return(&item, TW_MINUTE);
        else
            twi_port_acknowledge(&item, &answer);
    }
    rig_pass(&rig, NEW_MS);
    size_t count = 0;
    for (int i = 0; i < 50; i++) {
        for (int n = 100; n < 200; n++) { /* they take slots of the ring, and give them back at each look */
            snprintf(key, sizeof key, "%d", n);
            if (i % 2 == 0) (void)tw_acquire(family, tw_str(key), 1, 10, NULL);
        }
        assert_status(tw_acquire(family, tw_str("99"), 10, 1000, NULL), TW_OK);
        for (size_t more = twi_port_collect_near_limit(rig.engine, items); more != 0; more--, count++) {
            assert_i64_equal(twi_port_key(&items[more - 1]).size, 2);
            answer.total += items[more - 1].delta;
            twi_port_acknowledge(&items[more - 1], &answer);
        }
    }
    assert_true(count >= 3);
    hand_close(&rig);
}

/* ---- the short way (acquire_fast.h) ------------------------------------------------------------------------------ */

#define PAIR_KEYS 8u

struct pair {
    struct rig rig;
    struct test_prng prng;
    tw_family *fast, *complete;
    uint64_t short_calls, denied;
};

/* Until this thread has a line of its own for the statistics of the limit. */
static void warm(struct pair *pair, tw_family *family) {
    for (uint32_t i = 0; i < 1100; i++) (void)tw_acquire(family, tw_str("warm"), 1, 100000, NULL);
    rig_settle(&pair->rig);
    assert_non_null(twi_load_acquire(&family->limit_lines));
}

/* Redis reports the totals of both families. Other engines have counted 7 units of each key before. */
static void tell_totals(void) {
    (void)hand_collect(1000);
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        int64_t local = twi_word_value(twi_load_relaxed(&item.cell->local));
        struct twi_reply answer = {.total = local + 7, .has_total = true};
        twi_port_acknowledge(&item, &answer);
    }
}

static void compare(struct pair *pair, tw_key key, int64_t n, int64_t limit) {
    tw_verdict verdicts[2];
    memset(verdicts, 0xa5, sizeof verdicts);
    uint32_t looks = twi_thread_self->looks;
    tw_status got = tw_acquire(pair->fast, key, n, limit, &verdicts[0]);
    pair->short_calls += twi_thread_self->looks == looks;
    assert_status(twi_acquire_slow(pair->complete, key, n, limit, &verdicts[1]), got);
    assert_memory_equal(&verdicts[0], &verdicts[1], sizeof verdicts[0]);
    pair->denied += got == TW_DENIED;
}

static void play(struct pair *pair) {
    static const char *const names[PAIR_KEYS] = {"one key",
                                                 "key of 20 bytes, two",
                                                 "ab",
                                                 "another",
                                                 "a key of more than thirty-two bytes, the first",
                                                 "a key of more than thirty-two bytes, the second",
                                                 "key 7",
                                                 "k8k8"};
    int64_t limit = TEST_PRNG_PICK(&pair->prng, 60, 1000, 100000);
    for (uint32_t i = 0; i < 3000; i++) {
        tw_key key = tw_str(names[test_prng_below(&pair->prng, PAIR_KEYS)]);
        int64_t n = TEST_PRNG_PICK(&pair->prng, 1, 1, 1, 1, 2, 5, 0, limit / 8, limit, limit + 1);
        compare(pair, key, n, test_prng_chance(&pair->prng, 1, 20) ? 10 : limit);
        if (test_prng_chance(&pair->prng, 1, 10)) tell_totals();
        if (test_prng_chance(&pair->prng, 1, 30)) rig_pass(&pair->rig, test_prng_between(&pair->prng, 0, 20000));
        if (test_prng_chance(&pair->prng, 1, 100)) hand_live(&pair->rig, test_prng_chance(&pair->prng, 3, 4) ? 1 : 3);
        if (test_prng_chance(&pair->prng, 1, 100))
            twi_port_outage(pair->rig.engine, 0,
                            test_prng_chance(&pair->prng, 3, 4) ? 0 : pair->rig.engine->turn.mono_ms);
    }
}

/* Goal: each field of a verdict is that of the complete decision, and most calls are short. Method: the same calls,
 * drawn from a seed, in two families: keys of each size, unknown and known totals, limits that are near, reached
 * and changed, other engines that come and go, outages, and windows that end. */
TEST(alone_it_decides_as_the_complete_way) {
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < 8; i++) {
        struct pair pair = {0};
        hand_open(&pair.rig);
        test_prng_seed(&pair.prng, seed + i);
        pair.fast = shaped_family(&pair.rig, TW_SHAPE_FIXED, TW_OUTAGE_LOCAL);
        tw_family_options options = pair.fast->options;
        options.name = "g";
        assert_status(tw_family_open(pair.rig.engine, &options, &pair.complete), TW_OK);
        hand_live(&pair.rig, 1);
        warm(&pair, pair.fast);
        warm(&pair, pair.complete);
        play(&pair);
        assert_true(pair.short_calls > 30 && pair.denied > 100);
        hand_close(&pair.rig);
    }
}

/* Goal: the unit that a short call admits is marked, and comes to Redis. */
TEST(what_the_short_way_counts_is_collected) {
    struct pair pair = {0};
    hand_open(&pair.rig);
    pair.fast = open_family(&pair.rig, TW_OUTAGE_LOCAL);
    hand_live(&pair.rig, 1);
    warm(&pair, pair.fast);
    assert_status(tw_acquire(pair.fast, tw_str("some key"), 1, 1000, &verdict), TW_OK);
    tell_totals();
    for (int i = 0; i < 3; i++) {
        uint32_t looks = twi_thread_self->looks;
        assert_status(tw_acquire(pair.fast, tw_str("some key"), 2, 1000, &verdict), TW_OK);
        assert_i64_equal(twi_thread_self->looks, looks);
        assert_i64_equal(verdict.decided_by, TW_BY_VIEW);
        assert_i64_equal(verdict.used, 7 + 1 + 2 * (i + 1));
        assert_i64_equal(verdict.error_bound, 0);
        assert_i64_equal(hand_collect(10), 1);
        assert_i64_equal(hand->held[0].delta, 2);
        struct twi_item item = hand_pop();
        struct twi_reply answer = {.total = 7 + 1 + 2 * (i + 1), .has_total = true};
        twi_port_acknowledge(&item, &answer);
    }
    hand_close(&pair.rig);
}
