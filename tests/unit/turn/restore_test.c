/* restore_test.c -- a Redis that lost everything is told again what the counters that live had told it, once.
 * A row of sums stands for Redis: what is collected is applied to it by key, and a wipe empties it. */
#include "engine/turn/restore_notes.h"
#include "tests/unit/hand_driver.h"

#define STORE_KEYS 64

struct store {
    int64_t sums[STORE_KEYS]; /* keys are "0" to "63" */
    int64_t units;            /* magnitudes applied since the last wipe */
};

static size_t number_of(const struct twi_item *item) {
    tw_key key = twi_port_key(item);
    char text[16] = "";
    memcpy(text, key.data, key.size);
    return (size_t)atoi(text);
}

/* One collection is applied and acknowledged. */
static size_t send_some(struct store *store, size_t most) {
    size_t count = hand_collect(most);
    for (size_t i = 0; i < count; i++) {
        struct twi_item item = hand_pop();
        store->sums[number_of(&item)] += item.delta;
        store->units += item.delta < 0 ? -item.delta : item.delta;
        struct twi_reply answer = {.total = store->sums[number_of(&item)], .has_total = true};
        twi_port_acknowledge(&item, &answer);
    }
    return count;
}

static void send_all(struct store *store) {
    while (send_some(store, 16) == 16) {}
}

/* Redis is empty; whatever was under way comes back. */
static uint64_t wipe(struct rig *rig, struct store *store) {
    memset(store, 0, sizeof *store);
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        twi_port_return(&item, 0);
    }
    return twi_port_restore(rig->engine, 0);
}

static void restore_whole(struct rig *rig) {
    while (twi_port_restore_some(rig->engine)) {}
}

static void key_text(char text[16], size_t number) {
    snprintf(text, 16, "%zu", number);
}

/* Goal: the acknowledged units is to be sent again, and so is what was under way and what was not yet sent: once. Own
 * adds stay in the views meanwhile (P2, P3). */
TEST(what_counters_hold_is_owed_again_once) {
    struct rig rig;
    struct store store = {0};
    char key[16];
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    for (size_t i = 0; i < STORE_KEYS; i++) key_text(key, i), rig_add(family, key, (int64_t)i + 1);
    send_all(&store);
    for (size_t i = 0; i < 20; i++) key_text(key, i), rig_add(family, key, 1000);
    assert_i64_equal(hand_collect(10), 10); /* under way */
    assert_i64_equal(wipe(&rig, &store), 0);
    rig_add(family, "7", -3);
    restore_whole(&rig);
    for (size_t i = 0; i < 20; i++) {
        key_text(key, i);
        assert_i64_equal(rig_get(family, key), (int64_t)i + 1001 - (i == 7 ? 3 : 0));
    }
    send_all(&store);
    for (size_t i = 0; i < STORE_KEYS; i++) {
        key_text(key, i);
        assert_i64_equal(store.sums[i], (int64_t)i + 1 + (i < 20 ? 1000 : 0) - (i == 7 ? 3 : 0));
        assert_i64_equal(rig_get(family, key), store.sums[i]);
    }
    assert_i64_equal(test_stat_of(rig.engine, restored), STORE_KEYS * (STORE_KEYS + 1) / 2);
    assert_i64_equal(test_stat_of(rig.engine, lost), 0);
    hand_close(&rig);
}

/* Goal: wiped again at any moment of a restoration, it begins again and still counts once.
 * Method: random adds, sends and wipes, the walk cut at every step; at the end the sums agree. */
TEST(wiped_again_and_again_it_counts_once) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t round = 0; round < test_scale(100); round++) {
        struct rig rig;
        struct store store = {0};
        char key[16];
        int64_t added[STORE_KEYS] = {0};
        bool restoring = false;
        hand_open(&rig);
        tw_family *families[] = {rig_family(&rig, "f", TW_WINDOW_FOREVER, 0),
                                 rig_family(&rig, "h", TW_WINDOW_ALIGNED, TW_HOUR)};
        for (int step = 0; step < 200; step++) {
            size_t i = test_prng_below(&prng, STORE_KEYS);
            int64_t delta = test_prng_between(&prng, -5, 100);
            key_text(key, i);
            rig_add(families[i % 2], key, delta), added[i] += delta; /* a key belongs to one of them */
            if (test_prng_chance(&prng, 1, 20)) (void)wipe(&rig, &store), restoring = true;
            if (restoring && test_prng_chance(&prng, 1, 2)) restoring = twi_port_restore_some(rig.engine);
            if (!restoring && test_prng_chance(&prng, 1, 3)) (void)send_some(&store, 1 + test_prng_below(&prng, 20));
            if (!restoring && test_prng_chance(&prng, 1, 10)) (void)hand_collect(test_prng_below(&prng, 5));
        }
        (void)wipe(&rig, &store);
        restore_whole(&rig);
        send_all(&store);
        for (size_t i = 0; i < STORE_KEYS; i++) assert_i64_equal(store.sums[i], added[i]);
        hand_close(&rig);
    }
}

/* ---- two stores ---- */

struct stores {
    struct store of[2];
    int here;
    int64_t since;     /* units acknowledged by the one that is there, since it is */
    int64_t uncertain; /* said to be, next to what the engine says */
    struct test_prng prng;
};

static bool is_chance(struct stores *stores, uint32_t of_100) {
    return test_prng_chance(&stores->prng, of_100, 100);
}

/* The one that was collected first. */
static struct twi_item take_first(void) {
    struct twi_item item = hand->held[0];
    memmove(hand->held, hand->held + 1, --hand->count * sizeof item);
    return item;
}

static void answer_some(struct stores *stores, size_t most) {
    struct store *store = &stores->of[stores->here];
    for (; most > 0 && hand->count != 0; most--) {
        struct twi_item item = take_first();
        struct twi_reply answer = {.total = store->sums[number_of(&item)] += item.delta, .has_total = true};
        store->units += item.delta;
        stores->since += item.delta;
        twi_port_acknowledge(&item, &answer);
    }
}

static void return_all(void) {
    while (hand->count != 0) {
        struct twi_item item = take_first();
        twi_port_return(&item, 0);
    }
}

/* An answer is lost: perhaps it was applied. */
static void apply_perhaps(struct stores *stores, const struct twi_item *item) {
    if (is_chance(stores, 50)) stores->of[stores->here].sums[number_of(item)] += item->delta;
}

/* An empty one is there. All is owed to it. */
static void go_to_an_empty_one(struct rig *rig, struct stores *stores) {
    bool unknown = is_chance(stores, 50);
    for (size_t i = 0; unknown && i < hand->count; i++) {
        apply_perhaps(stores, &hand->held[i]);
        twi_port_adrift(&hand->held[i]);
    }
    return_all();
    assert_i64_equal((int64_t)twi_port_restore(rig->engine, 0), 0);
    stores->here = !stores->here;
    memset(&stores->of[stores->here], 0, sizeof stores->of[0]);
}

/* The earlier one is there. */
static void go_back(struct rig *rig, struct stores *stores) {
    bool unknown = is_chance(stores, 50);
    while (hand->count != 0) {
        struct twi_item item = take_first();
        if (unknown) apply_perhaps(stores, &item), twi_port_keep_item(&item);
        if (unknown && item.delta != 0)
            twi_port_give_up(&item, TW_LOST_UNCERTAIN);
        else
            twi_port_return(&item, 0);
    }
    uint64_t uncertain = 0;
    bool was_left = twi_port_keep(rig->engine, 0, &uncertain);
    stores->uncertain += (int64_t)uncertain + (was_left ? 0 : stores->since);
    restore_whole(rig);
    stores->here = !stores->here;
}

static void go(struct rig *rig, struct stores *stores) {
    if (is_chance(stores, 40) || stores->of[!stores->here].units == 0)
        go_to_an_empty_one(rig, stores);
    else
        go_back(rig, stores);
    stores->since = 0;
}

static void check_stores(struct rig *rig, const struct stores *stores, const int64_t *added, bool refused) {
    int64_t missing = 0, doubled = 0, uncertain = stores->uncertain + test_stat_of(rig->engine, uncertain);
    for (size_t i = 0; i < STORE_KEYS; i++) {
        int64_t gap = added[i] - stores->of[stores->here].sums[i];
        if (gap > 0)
            missing += gap;
        else
            doubled -= gap;
    }
    if (missing > uncertain || doubled > (refused ? uncertain : 0))
        fail_msg("missing %lld doubled %lld uncertain %lld refused %d", (long long)missing, (long long)doubled,
                 (long long)uncertain, refused);
}

static void play_stores(uint64_t seed, bool refused) {
    struct rig rig;
    struct stores stores = {0};
    char key[16];
    int64_t added[STORE_KEYS] = {0};
    bool restoring = false;
    test_prng_seed(&stores.prng, seed);
    hand_open(&rig);
    tw_family *families[] = {rig_family(&rig, "f", TW_WINDOW_FOREVER, 0),
                             rig_family(&rig, "h", TW_WINDOW_ALIGNED, TW_HOUR)};
    for (int step = 0; step < 300; step++) {
        size_t i = test_prng_below(&stores.prng, STORE_KEYS);
        int64_t delta = test_prng_between(&stores.prng, 1, 100);
        key_text(key, i);
        rig_add(families[i % 2], key, delta), added[i] += delta; /* a key belongs to one of them */
        if (is_chance(&stores, 5)) go(&rig, &stores), restoring = true;
        if (restoring && is_chance(&stores, 50)) restoring = twi_port_restore_some(rig.engine);
        if (!restoring && is_chance(&stores, 30)) (void)hand_collect(1 + test_prng_below(&stores.prng, 20));
        if (is_chance(&stores, 30)) answer_some(&stores, 1 + test_prng_below(&stores.prng, 20));
        if (refused && hand->count != 0 && is_chance(&stores, 5)) {
            struct twi_item item = take_first();
            twi_port_return(&item, 1000);
        }
        if (is_chance(&stores, 20)) rig_pass(&rig, 300);
    }
    answer_some(&stores, SIZE_MAX);
    restore_whole(&rig);
    rig_pass(&rig, 10000);
    while (hand_collect(16) != 0) answer_some(&stores, SIZE_MAX);
    check_stores(&rig, &stores, added, refused);
    hand_close(&rig);
}

/* Goal: another store is told everything, and the earlier one is back in the midst of it, again and again: no unit is
 * counted twice in either, and the missing part is uncertain. Of keys that were refused meanwhile something may be
 * there twice: no more than is uncertain.
 * Method: random adds, answers, lost answers, refused keys and changes of the store, the walks cut at every step. */
TEST(a_store_that_is_back_is_told_nothing_twice) {
    uint64_t seeds[4000];
    size_t count = test_seeds("restore_stores", test_scale(200), seeds, 4000);
    for (size_t i = 0; i < count; i++) {
        test_seed_begins("restore_stores", seeds[i]);
        play_stores(seeds[i], seeds[i] % 2 != 0);
        test_seed_ends();
    }
}

/* What is in hand comes too late by Redis's clock (settle_late() of sync/turn/settle.c). */
static void answer_late(void) {
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        (void)twi_port_end_item(&item);
        assert_i64_equal(item.units, 0);
        if (item.delta != 0)
            twi_port_give_up(&item, TW_LOST_EXPIRED);
        else
            twi_port_acknowledge(&item, &(struct twi_reply){0});
    }
}

/* Goal: windows end while another store is being told of them, or before: what is new is lost, what the store of
 * before has is not, what was on its way there is uncertain; and neither store lacks anything. */
TEST(of_a_window_that_is_over_only_what_is_new_is_lost) {
    struct rig rig;
    struct store store = {0};
    uint64_t uncertain;
    hand_open(&rig);
    tw_family *families[] = {rig_family(&rig, "m", TW_WINDOW_ALIGNED, TW_MINUTE),
                             rig_family(&rig, "x", TW_WINDOW_FROM_FIRST, TW_MINUTE)};
    for (int i = 0; i < 2; i++) rig_add(families[i], "1", 100), rig_add(families[i], "2", 30);
    send_all(&store);
    for (int i = 0; i < 2; i++) rig_add(families[i], "1", 7), rig_add(families[i], "3", 2);
    assert_i64_equal(hand_collect(16), 4);
    for (size_t i = 0; i < hand->count; i++)
        if (number_of(&hand->held[i]) == 3) twi_port_adrift(&hand->held[i]);
    for (int i = 0; i < 2; i++) rig_add(families[i], "3", 4);
    assert_i64_equal(wipe(&rig, &store), 0);
    restore_whole(&rig);
    assert_i64_equal(hand_collect(16), 6);
    rig_pass(&rig, TW_MINUTE);
    answer_late();
    assert_i64_equal(test_stat_of(rig.engine, lost), 2 * (7 + 4));
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 2 * 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(twi_port_keep(rig.engine, 0, &uncertain), i == 0);
        assert_i64_equal(uncertain, 0);
        restore_whole(&rig);
        assert_i64_equal(hand_collect(16), 0);
    }
    hand_close(&rig);
}

/* Goal: what was told to another store, and nobody knows whether it arrived, is given up once: not a second time when
 * its window, which was dropped here, is wiped out. */
TEST(what_was_given_up_while_it_was_told_again_is_not_missed_again) {
    struct rig rig;
    struct store store = {0};
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.retention_ms = 10 * TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "1", 100), rig_add(family, "2", 30);
    send_all(&store);
    rig_add(family, "1", 7);
    assert_i64_equal(wipe(&rig, &store), 0);
    restore_whole(&rig);
    assert_i64_equal(hand_collect(16), 2);
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        if (number_of(&item) == 1)
            twi_port_give_up(&item, TW_LOST_UNCERTAIN);
        else
            twi_port_acknowledge(&item, &(struct twi_reply){0});
    }
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 107);
    for (int minute = 0; minute < 3; minute++) rig_pass(&rig, TW_MINUTE), rig_settle(&rig);
    assert_i64_equal(test_stat_of(rig.engine, generations), 0);
    assert_i64_equal(wipe(&rig, &store), 30);
    hand_close(&rig);
}

/* Goal: what was given up was reported, and does not come back with the rest of its counter. */
TEST(what_was_given_up_stays_given_up) {
    struct rig rig;
    struct store store = {0};
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    for (int i = 0; i < 3; i++) {
        rig_add(family, "1", 10), rig_add(family, "2", 7);
        send_all(&store);
        rig_add(family, "1", 5);
        assert_i64_equal(hand_collect(10), 1);
        struct twi_item item = hand_pop();
        twi_port_give_up(&item, TW_LOST_UNCERTAIN);
    }
    for (int i = 0; i < 2; i++) {
        assert_i64_equal(wipe(&rig, &store), 0);
        restore_whole(&rig);
        send_all(&store);
        assert_i64_equal(store.sums[1], 30);
        assert_i64_equal(store.sums[2], 21);
    }
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 15);
    hand_close(&rig);
}

/* Goal: a window that is dropped here lives on in Redis: what it held there is lost with a wipe, to the unit, until its
 * retention is over; then nothing is missed. */
TEST(dropped_windows_are_lost_to_the_unit_until_their_end_in_redis) {
    struct rig rig;
    struct store store = {0};
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.retention_ms = 10 * TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    for (int minute = 0; minute < 8; minute++) {
        rig_add(family, "1", 100 + minute);
        rig_add(family, "2", -1);
        send_all(&store);
        rig_pass(&rig, TW_MINUTE);
    }
    rig_settle(&rig);
    /* Held: the last one; a minute of history. Dropped and alive in Redis: the first seven. */
    assert_i64_equal(wipe(&rig, &store), 7 * 101 + 0 + 1 + 2 + 3 + 4 + 5 + 6);
    restore_whole(&rig);
    send_all(&store);
    assert_i64_equal(store.sums[1], 107);
    assert_i64_equal(wipe(&rig, &store), 0); /* what was lost once is not lost twice */
    restore_whole(&rig);
    send_all(&store);
    rig_pass(&rig, 2 * TW_MINUTE);
    rig_pass(&rig, 20 * TW_MINUTE);
    assert_i64_equal(wipe(&rig, &store), 0); /* they would be gone from Redis by themselves */
    hand_close(&rig);
}

/* Goal: of very many dropped windows neighbours are put together. The sum stays whole. */
TEST(of_very_many_dropped_windows_the_sum_stays_whole) {
    struct rig rig;
    struct store store = {0};
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_SECOND);
    for (int second = 0; second < 5000; second++) {
        rig_add(family, "1", 1);
        send_all(&store);
        rig_pass(&rig, TW_SECOND);
    }
    rig_settle(&rig);
    uint64_t lost = wipe(&rig, &store);
    restore_whole(&rig);
    send_all(&store);
    assert_i64_equal((int64_t)lost + store.sums[1], 5000);
    assert_true(rig.engine->restore->dropped_room <= TWI_DROPPED_MAX);
    hand_close(&rig);
}

/* Goal: a window is not dropped while it is being restored, whatever its age; its hook is not called again. */
static bool closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)family, (void)start_ms, (void)end_ms, (void)flags;
    ++*(int *)ctx;
    return true;
}

TEST(a_window_stays_until_it_is_restored) {
    struct rig rig;
    struct store store = {0};
    int calls = 0;
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = closed;
    options.closed_ctx = &calls;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "1", 5);
    send_all(&store);
    rig_pass(&rig, TW_MINUTE);
    rig_settle(&rig);
    assert_int_equal(calls, 1);
    assert_i64_equal(wipe(&rig, &store), 0);
    rig_pass(&rig, 30 * TW_MINUTE);
    assert_true(test_stat_of(rig.engine, generations) >= 1);
    restore_whole(&rig);
    rig_pass(&rig, 30 * TW_MINUTE);
    send_all(&store);
    assert_i64_equal(store.sums[1], 5);
    for (int i = 0; i < 10; i++) rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(test_stat_of(rig.engine, generations), 0);
    assert_int_equal(calls, 1);
    hand_close(&rig);
}

/* Goal: a life that is over by itself does not come back; one that is not does, with its own end. */
TEST(only_lives_that_last_are_restored) {
    struct rig rig;
    struct store store = {0};
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    rig_add(family, "1", 5);
    rig_pass(&rig, TW_MINUTE / 2);
    rig_add(family, "2", 7);
    send_all(&store);
    rig_pass(&rig, TW_MINUTE / 2 + 1);
    assert_i64_equal(wipe(&rig, &store), 0);
    restore_whole(&rig);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 7);
    assert_i64_equal(hand->held[0].expiry_ms, RIG_START_MS + TW_MINUTE / 2 + TW_MINUTE);
    hand_close(&rig);
}

/* Goal: a turn's share of the work is bounded, however many counters there are. */
TEST(restoring_goes_in_bounded_steps) {
    struct rig rig;
    char key[16];
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    for (size_t i = 0; i < 60000; i++) key_text(key, i), rig_add(family, key, 1);
    for (size_t count = 4096; count == 4096;) {
        count = hand_collect(4096);
        while (hand->count != 0) hand_acknowledge(1);
    }
    assert_i64_equal(twi_port_restore(rig.engine, 0), 0);
    int64_t before = 0, steps = 0;
    for (bool more = true; more; steps++) {
        more = twi_port_restore_some(rig.engine);
        int64_t now = test_stat_of(rig.engine, restored);
        assert_true(now - before <= (int64_t)TWI_WORK_TURN);
        before = now;
    }
    assert_i64_equal(before, 60000);
    assert_true(steps >= 60000 / (int64_t)TWI_WORK_TURN);
    int64_t sum = 0;
    for (size_t count = 4096; count == 4096;) {
        count = hand_collect(4096);
        for (; hand->count != 0; hand_acknowledge(1)) sum += hand->held[hand->count - 1].delta;
    }
    assert_i64_equal(sum, 60000);
    hand_close(&rig);
}

/* Goal: the overflow counter is restored as any other. */
TEST(the_overflow_counter_is_restored) {
    struct rig rig;
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_FOREVER, 0);
    options.keys_max = 1;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "1", 1);
    assert_status(tw_add(family, tw_str("2"), 40, NULL), TW_OVERFLOWED);
    assert_i64_equal(hand_collect(10), 2);
    hand_acknowledge(1), hand_acknowledge(40);
    assert_i64_equal(twi_port_restore(rig.engine, 0), 0);
    restore_whole(&rig);
    assert_i64_equal(hand_collect(10), 2);
    assert_i64_equal(hand->held[0].delta + hand->held[1].delta, 41);
    hand_close(&rig);
}

/* Goal: a total below the acknowledged units is a regression, counted once for each fall, and the view is never
 * negative; not where a fall is explained: something was taken away, Redis is known to have forgotten, lives end by
 * themselves (faults 21, 62). */
TEST(a_total_below_what_was_acknowledged_is_reported_once) {
    struct rig rig;
    hand_open(&rig);
    tw_family *adds = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0), *both = rig_family(&rig, "g", TW_WINDOW_FOREVER, 0);
    static const struct {
        int64_t delta, total, regressions;
    } steps[] = {{10, 10, 0}, {10, 25, 0}, {1, 1, 1}, {1, 2, 1}, {1, 3, 1}, {50, 60, 1}, {1, 0, 2}, {1, 1, 2}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        fake_clock_advance_ms(&rig.clock, 10), rig_turn(&rig);
        rig_add(adds, "1", steps[i].delta);
        assert_i64_equal(hand_collect(10), 1);
        hand_acknowledge(steps[i].total);
        assert_i64_equal(rig_get(adds, "1"), steps[i].total);
        assert_i64_equal(test_stat_of(rig.engine, regressions), steps[i].regressions);
    }
    assert_i64_equal(hand_collect(10), 1); /* the last question */
    hand_acknowledge(1);
    for (int i = 0; i < 3; i++) {
        fake_clock_advance_ms(&rig.clock, 10), rig_turn(&rig);
        rig_add(both, "1", i == 0 ? 10 : -3);
        assert_i64_equal(hand_collect(10), 1);
        hand_acknowledge(2 - i); /* others take away, too */
    }
    assert_i64_equal(test_stat_of(rig.engine, regressions), 2);
    twi_port_forgotten(rig.engine, 0);
    rig_add(adds, "1", 1);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(-5);
    assert_i64_equal(test_stat_of(rig.engine, regressions), 2);
    hand_close(&rig);
}
