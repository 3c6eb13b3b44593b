/* stripe_test.c -- counters that threads contend for: where their adds go, that every read finds all of them, and who
 * requests stripes. Contention itself is in tests/stress/hotkeys.c. Here the test requests stripes by hand, and the
 * next turn makes them.
 * Covers: engine/table/cell.h. */
#include "tests/unit/hand_driver.h"

#include "engine/count/dirty.h"
#include "engine/table/stripe.h"

#include <pthread.h>

static struct rig rig;

static struct twi_place place_of(tw_family *family, const char *key) {
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str(key)), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    assert_true(twi_place_find(&call, &place));
    twi_call_end(&call);
    return place; /* no count is dropped before the test makes a turn */
}

static struct twi_stripes *stripes_of(tw_family *family, const char *key) {
    struct twi_place place = place_of(family, key);
    return twi_stripes_of(place.cell, place.meta);
}

static bool stripe(tw_family *family, const char *key) {
    int64_t striped = test_stat_of(rig.engine, striped);
    struct twi_place place = place_of(family, key);
    twi_contention_request(rig.engine, place.generation, place.cell, TWI_NO_LIMIT);
    rig_turn(&rig);
    return test_stat_of(rig.engine, striped) == striped + 1;
}

static void add_blind(tw_family *family, const char *key, int64_t delta) {
    assert_status(tw_add(family, tw_str(key), delta, NULL), TW_OK);
}

/* Every way to read one counter. */
static void assert_count(tw_family *family, const char *key, int64_t want) {
    tw_reading reading;
    assert_i64_equal(rig_get(family, key), want);
    assert_status(tw_read(family, tw_str(key), &reading), TW_OK);
    assert_i64_equal(reading.local, want);
    assert_i64_equal(reading.view, want);
}

static struct tw_family *hourly(const char *name) {
    return rig_family(&rig, name, TW_WINDOW_ALIGNED, TW_HOUR);
}

/* Goal: callers cannot tell where a counter counts.
 * Method: adds of every kind before and after, read in every way. */
RIG_TEST(a_striped_counter_is_one_counter) {
    tw_family *family = hourly("f");
    add_blind(family, "key", 5);
    assert_true(stripe(family, "key"));
    assert_count(family, "key", 5);
    add_blind(family, "key", 7);
    assert_i64_equal(rig_add(family, "key", 10), 22);
    add_blind(family, "key", -30);
    assert_count(family, "key", -8);
    tw_pin *pin;
    int64_t view;
    assert_status(tw_pin_open(family, tw_str("key"), &pin), TW_OK);
    for (int i = 0; i < 3; i++) assert_status(tw_pin_add(pin, 1, NULL), TW_OK);
    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
    assert_i64_equal(view, -4);
    tw_pin_close(pin);
    assert_status(tw_add_at(family, tw_str("key"), 4, rig_now(&rig), &view), TW_OK);
    assert_i64_equal(view, 0);
    assert_status(tw_add_at(family, tw_str("key"), 1, rig_now(&rig), NULL), TW_OK);
    tw_key keys[10];
    int64_t views[10];
    for (size_t i = 0; i < 10; i++) keys[i] = tw_str("key");
    assert_status(tw_add_many(family, keys, NULL, 10, views, NULL), TW_OK);
    for (int i = 0; i < 10; i++) assert_i64_equal(views[i], 2 + i);
    assert_status(tw_add_many(family, keys, NULL, 10, NULL, NULL), TW_OK);
    assert_count(family, "key", 21);
    struct rig_seen seen = rig_each(family, TW_NOW);
    assert_i64_equal(seen.counters, 1);
    assert_i64_equal(seen.sum, 21);
    assert_i64_equal(test_stat_of(rig.engine, increments), 30);
}

/* Goal: adds without a view leave the shared lines alone; adds with a view return the whole sum.
 * Method: the words themselves. */
RIG_TEST(blind_adds_go_to_the_threads_own_stripe) {
    tw_family *family = hourly("f");
    add_blind(family, "key", 1);
    assert_true(stripe(family, "key"));
    struct twi_place place = place_of(family, "key");
    struct twi_stripes *stripes = twi_stripes_of(place.cell, place.meta);
    uint64_t local = twi_load_relaxed(&place.cell->local);
    for (int i = 0; i < 100; i++) add_blind(family, "key", 2);
    assert_i64_equal(twi_load_relaxed(&stripes->shared_stripe), 0);
    assert_i64_equal(twi_load_relaxed(&place.cell->local), local);
    uint32_t own = twi_stripe_own(stripes, twi_thread_here());
    assert_i64_equal(twi_word_value(twi_load_relaxed(&stripes->each[own].word)), 200);
    (void)rig_add(family, "key", 3);
    assert_i64_equal(twi_word_value(twi_load_relaxed(&stripes->shared_stripe)), 3);
    assert_count(family, "key", 204);
}

RIG_TEST(stripes_are_made_once_and_for_few) {
    tw_family *family = hourly("f"), *first = rig_family(&rig, "first", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    char key[16];
    int64_t made = 0;
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "%d", i);
        add_blind(family, key, i);
        made += stripe(family, key);
        assert_false(stripe(family, key));
        add_blind(family, key, 1);
    }
    assert_i64_equal(made, TWI_STRIPED_MAX);
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_count(family, key, i + 1);
    }
    add_blind(first, "a", 1);
    assert_false(stripe(first, "a")); /* lives end one by one */
    assert_count(first, "a", 1);
    (void)rig_add(family, "large", TW_DELTA_MAX);
    for (int i = 0; i < 64; i++) (void)rig_add(family, "large", TW_DELTA_MAX);
    assert_false(stripe(family, "large")); /* near the edge every add must see the whole */
}

/* Goal: the family's share and the arena's bound hold for stripes too. */
RIG_TEST(stripes_stay_within_the_memory_share) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.memory_share = 4096;
    tw_family *family = rig_family_of(&rig, &options);
    char key[16];
    for (int i = 0; i < 12; i++) {
        snprintf(key, sizeof key, "%d", i);
        if (tw_add(family, tw_str(key), 1, NULL) != TW_OK) break;
        (void)stripe(family, key);
        assert_count(family, key, 1);
    }
    assert_true(twi_load_relaxed(&family->quota.bytes) <= 4096);
    assert_true(test_stat_of(rig.engine, striped) < 8);
}

RIG_TEST(a_striped_counter_is_reset) {
    tw_family *family = hourly("f");
    int64_t last;
    add_blind(family, "key", 5);
    assert_true(stripe(family, "key"));
    add_blind(family, "key", 6);
    (void)rig_add(family, "key", 7);
    assert_status(tw_reset(family, tw_str("key"), &last), TW_OK);
    assert_i64_equal(last, 18);
    assert_count(family, "key", 0);
    add_blind(family, "key", 1);
    assert_status(tw_reset(family, tw_str("key"), &last), TW_OK);
    assert_i64_equal(last, 1);
    assert_count(family, "key", 0);
}

/* Goal: E4 with stripes. An add that would leave the range is refused whole, and any other add is counted, to the unit:
 * in both directions, through stripes and the shared stripe alike. */
RIG_TEST(trap_e4_the_range_is_kept_over_all_stripes) {
    for (int64_t sign = -1; sign <= 1; sign += 2) {
        tw_family *family = hourly(sign < 0 ? "down" : "up");
        add_blind(family, "key", sign * 1000);
        assert_true(stripe(family, "key"));
        int64_t sum = sign * 1000, view;
        for (int i = 0; i < 400; i++) { /* 400 * 2^53 passes 2^61 */
            int64_t delta = sign * (i % 3 == 0 ? TWI_STRIPE_EDGE - 1 : TW_DELTA_MAX);
            tw_status status = tw_add(family, tw_str("key"), delta, i % 2 == 0 ? NULL : &view);
            if (status == TW_ERR_RANGE) {
                assert_true((sum + delta) * sign > TW_COUNT_MAX);
                continue;
            }
            assert_status(status, TW_OK);
            sum += delta;
            assert_true(sum * sign <= TW_COUNT_MAX);
            assert_count(family, "key", sum);
        }
        assert_status(tw_add(family, tw_str("key"), sign * TW_COUNT_MAX - sum, NULL), TW_OK);
        assert_status(tw_add(family, tw_str("key"), sign, NULL), TW_ERR_RANGE);
        assert_count(family, "key", sign * TW_COUNT_MAX);
        assert_status(tw_add(family, tw_str("key"), -sign, NULL), TW_OK);
        assert_status(tw_reset(family, tw_str("key"), &view), TW_OK);
        assert_i64_equal(view, sign * TW_COUNT_MAX - sign);
        assert_count(family, "key", 0);
    }
}

/* Goal: E34. A frozen stripe takes no more adds, and its adders go on elsewhere; a sum taken then is right.
 * Method: collapsed by hand, as a limit or the edge of the range does. */
RIG_TEST(trap_e34_folded_stripes_are_read_and_left_alone) {
    tw_family *family = hourly("f");
    add_blind(family, "key", 1);
    assert_true(stripe(family, "key"));
    add_blind(family, "key", 2);
    struct twi_stripes *stripes = stripes_of(family, "key");
    assert_i64_equal(twi_stripes_collapse(stripes), 2);
    assert_i64_equal(twi_stripes_collapse(stripes), 2);
    add_blind(family, "key", 4);
    assert_i64_equal(rig_add(family, "key", 8), 15);
    assert_i64_equal(twi_stripes_sum(stripes), 2);
    assert_count(family, "key", 15);
}

struct closing {
    int times;
    int64_t sum;
    struct twi_place place; /* of a striped counter; its record may be gone when the hook has returned (history.c) */
    bool is_frozen;
};
static bool see_sum(void *ctx, const tw_count *count) {
    ((struct closing *)ctx)->sum += count->local;
    return true;
}
static bool refuses(struct twi_place place, bool wants_sum) {
    struct twi_counted counted;
    return twi_stripes_add(place.cell, place.meta, 1, wants_sum, twi_thread_here(), &counted) == TWI_ADD_FROZEN;
}
static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct closing *closing = ctx;
    (void)end_ms, (void)flags;
    if (closing->times++ == 0 && closing->place.cell != NULL) {
        struct twi_stripes *stripes = twi_stripes_of(closing->place.cell, closing->place.meta);
        closing->is_frozen = refuses(closing->place, false) && refuses(closing->place, true) &&
                             (twi_load_relaxed(&stripes->shared_stripe) & TWI_FROZEN) != 0;
    }
    return tw_each(family, start_ms, see_sum, closing) == TW_OK;
}

static void seal_and_drop(const char *name, int64_t packed) {
    struct closing closing = {0};
    tw_family_options options = rig_options(name, TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = on_closed;
    options.closed_ctx = &closing;
    tw_family *family = rig_family_of(&rig, &options);
    int64_t start_ms = rig_now(&rig), view;
    add_blind(family, "before", 1);
    rig_pass(&rig, 3 * TW_MINUTE); /* gone again: what a family keeps anyway is there */
    int64_t bytes = test_stat_of(rig.engine, memory_bytes);
    start_ms = rig_now(&rig);
    closing = (struct closing){0};
    add_blind(family, "key", 1);
    assert_true(stripe(family, "key"));
    closing.place = place_of(family, "key");
    tw_pin *pin;
    assert_status(tw_pin_open(family, tw_str("key"), &pin), TW_OK);
    for (int i = 0; i < 10; i++) {
        add_blind(family, "key", 10);
        (void)rig_add(family, "key", 1);
        assert_status(tw_pin_add(pin, 1000, NULL), TW_OK);
    }
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(closing.times, 1);
    assert_i64_equal(closing.sum, 10111);
    assert_true(closing.is_frozen);
    assert_i64_equal(test_stat_of(rig.engine, windows_packed), packed);
    assert_status(tw_get_at(family, tw_str("key"), start_ms, &view), TW_OK);
    assert_i64_equal(view, 10111);
    assert_status(tw_pin_add(pin, 3, &view), TW_OK); /* follows its key */
    assert_i64_equal(view, 3);
    tw_pin_close(pin);
    rig_pass(&rig, 4 * TW_MINUTE);
    assert_i64_equal(closing.times, 2);
    assert_i64_equal(test_stat_of(rig.engine, memory_bytes), bytes);
}

/* Goal: the final figure holds everything, in history too; a late add is refused; memory is given back.
 * Method: with the stripes of few processors and of many. With many, the window is large enough to be packed. */
RIG_TEST(a_striped_counter_is_sealed_told_and_dropped) {
    rig.engine->stripes.log2 = 3;
    seal_and_drop("few", 0);
    rig.engine->stripes.log2 = 5;
    seal_and_drop("many", 1);
}

/* Goal: a request for stripes does not outlive its window. */
RIG_TEST(what_was_asked_for_a_window_that_ends_is_void) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_SECOND);
    add_blind(family, "key", 1);
    struct twi_place place = place_of(family, "key");
    twi_contention_request(rig.engine, place.generation, place.cell, TWI_NO_LIMIT);
    twi_contention_request(rig.engine, place.generation, place.cell, 1000); /* the first one stands */
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(test_stat_of(rig.engine, striped), 0);
    assert_i64_equal(twi_load_relaxed(&rig.engine->stripes.of), 0);
    add_blind(family, "key", 1);
    place = place_of(family, "key");
    twi_contention_request(rig.engine, place.generation, place.cell, TWI_NO_LIMIT);
    twi_contention_forget(rig.engine, place.generation); /* as when it is given back between the wish and the turn */
    rig_turn(&rig);
    assert_i64_equal(test_stat_of(rig.engine, striped), 0);
}

/* ---- with Redis -------------------------------------------------------------------------------------------------- */

static int64_t collect_one(void) {
    assert_i64_equal(hand_collect(10), 1);
    return hand->held[hand->count - 1].delta;
}

/* Goal: E9 with stripes: each add is collected once, wherever it went, and a stripe without new adds marks nothing. */
HAND_TEST(trap_e9_each_stripe_has_its_own_mark) {
    tw_family *family = hourly("f");
    add_blind(family, "key", 1);
    assert_true(stripe(family, "key"));
    assert_i64_equal(collect_one(), 1);
    hand_acknowledge(1);
    assert_i64_equal(hand_collect(10), 0);
    add_blind(family, "key", 10);
    add_blind(family, "key", 10);
    assert_i64_equal(collect_one(), 20);
    add_blind(family, "key", 100);                    /* next to the batch */
    assert_i64_equal(rig_add(family, "key", 5), 126); /* the trunk's own mark */
    assert_i64_equal(collect_one(), 105);
    assert_i64_equal(hand_collect(10), 0);
    hand_acknowledge(126);
    struct twi_item item = hand_pop();
    twi_port_return(&item, 0); /* refused: it comes again */
    assert_i64_equal(collect_one(), 20);
    hand_acknowledge(1000 + 126); /* others have counted 1000 */
    assert_i64_equal(rig_get(family, "key"), 1126);
    assert_i64_equal(hand_collect(10), 1); /* tw_get() takes an interest */
    assert_i64_equal(hand->held[0].delta, 0);
    hand_acknowledge(1126);
    tw_reading reading;
    add_blind(family, "key", 7);
    assert_status(tw_read(family, tw_str("key"), &reading), TW_OK);
    assert_i64_equal(reading.local, 133);
    assert_i64_equal(reading.view, 1133);
    assert_i64_equal(reading.unsent, 7);
    assert_i64_equal(collect_one(), 7);
    hand_acknowledge(1133);
}

/* Goal: an adder counts in the cell's own word, and finds it frozen when it marks: no count is lost. */
HAND_TEST(what_was_counted_before_the_stripes_is_collected) {
    tw_family *family = hourly("f");
    add_blind(family, "key", 1);
    assert_i64_equal(collect_one(), 1);
    hand_acknowledge(1);
    struct twi_place place = place_of(family, "key");
    uint64_t before;
    assert_int_equal(twi_cell_add(place.cell, place.meta, 50, &before), TWI_ADDED); /* and stalls */
    assert_true(stripe(family, "key"));
    twi_dirty_mark(rig.engine, place.generation, place.cell, place.meta);
    assert_i64_equal(collect_one(), 50);
    hand_acknowledge(51);
    assert_i64_equal(hand_collect(10), 0);
}

/* Goal: sealing finds the counts in stripes. They are unsent, drained and sent (P2). */
HAND_TEST(a_sealed_window_owes_what_its_stripes_hold) {
    struct closing closing = {0};
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = on_closed;
    options.closed_ctx = &closing;
    tw_family *family = rig_family_of(&rig, &options);
    add_blind(family, "key", 1);
    assert_true(stripe(family, "key"));
    assert_i64_equal(collect_one(), 1);
    hand_acknowledge(1);
    add_blind(family, "key", 2);
    (void)rig_add(family, "key", 3);
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(closing.times, 0);
    assert_i64_equal(collect_one(), 5);
    hand_acknowledge(6);
    rig_pass(&rig, 100);
    assert_i64_equal(hand_collect(10), 0);
    rig_pass(&rig, 100);
    assert_i64_equal(closing.times, 1);
    assert_i64_equal(closing.sum, 6);
}

/* ---- who asks ---------------------------------------------------------------------------------------------------- */

/* An add of this thread, and one of another in between: an add with a view is not watched, so it stands for the
 * other's. */
static void contend(tw_family *family, const char *key, int times, bool others, int64_t ms) {
    for (int i = 0; i < times; i++) {
        add_blind(family, key, 1);
        if (others) (void)rig_add(family, key, 1);
        fake_clock_advance_ms(&rig.clock, ms);
    }
}

/* Goal: a cell gets stripes soon if other threads add in between all the time, and only then. */
RIG_TEST(contended_counters_ask_for_stripes) {
    tw_family *family = hourly("f");
    contend(family, "alone", 4 * TWI_CONTENTION_EVERY, false, 0);
    rig_turn(&rig);
    assert_i64_equal(test_stat_of(rig.engine, striped), 0);
    contend(family, "slowly", 4 * TWI_CONTENTION_EVERY, true, 1);
    rig_turn(&rig);
    assert_i64_equal(test_stat_of(rig.engine, striped), 0);
    contend(family, "hot", 4 * TWI_CONTENTION_EVERY, true, 0);
    rig_turn(&rig);
    assert_i64_equal(test_stat_of(rig.engine, striped), 1);
    assert_non_null(stripes_of(family, "hot"));
    assert_null(stripes_of(family, "slowly"));
    assert_count(family, "hot", 8 * TWI_CONTENTION_EVERY);
    contend(family, "hot", 4 * TWI_CONTENTION_EVERY, true, 0);
    rig_turn(&rig);
    assert_i64_equal(test_stat_of(rig.engine, striped), 1);
    assert_count(family, "hot", 16 * TWI_CONTENTION_EVERY);
}

/* The same through a pin. */
RIG_TEST(contended_pins_ask_for_stripes) {
    tw_family *family = hourly("f");
    tw_pin *pin;
    assert_status(tw_pin_open(family, tw_str("hot"), &pin), TW_OK);
    for (uint32_t i = 0; i < 4 * TWI_CONTENTION_EVERY; i++) {
        assert_status(tw_pin_add(pin, 1, NULL), TW_OK);
        (void)rig_add(family, "hot", 1);
    }
    tw_pin_close(pin);
    rig_turn(&rig);
    assert_non_null(stripes_of(family, "hot"));
    assert_count(family, "hot", 8 * TWI_CONTENTION_EVERY);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct adder {
    pthread_t thread;
    tw_family *family;
    int64_t added;
    bool views;
};
static void *add_much(void *ctx) {
    struct adder *adder = ctx;
    int64_t view;
    for (int i = 0; i < 20000; i++) {
        int64_t delta = i % 5 - 1;
        if (tw_add(adder->family, tw_str("key"), delta, adder->views ? &view : NULL) != TW_OK) abort();
        adder->added += delta;
        if (i % 1000 == 0 && tw_get(adder->family, tw_str("key"), &view) != TW_OK) abort();
    }
    return NULL;
}

/* Goal: no count is lost while a counter becomes striped, and collapses, under its adders (P1). */
RIG_TEST(stripes_made_under_adders_lose_nothing) {
    for (int round = 0; round < 10; round++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", round);
        tw_family *family = hourly(name);
        add_blind(family, "key", 0);
        struct adder adders[4];
        int64_t added = 0;
        for (int i = 0; i < 4; i++) {
            adders[i] = (struct adder){.family = family, .views = i == 3};
            assert_int_equal(pthread_create(&adders[i].thread, NULL, add_much, &adders[i]), 0);
        }
        assert_true(stripe(family, "key"));
        test_sleep_ms(1);
        if (round % 2 == 1) (void)twi_stripes_collapse(stripes_of(family, "key"));
        for (int i = 0; i < 4; i++) {
            pthread_join(adders[i].thread, NULL);
            added += adders[i].added;
        }
        assert_count(family, "key", added);
    }
}
