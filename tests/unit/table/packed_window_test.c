/* packed_window_test.c -- windows in history are packed: readers before, during and after packing see the same, and
 * memory stays bounded. The packed form by itself: packed_test.c.
 * Covers: engine/turn/windows.c. */
#include "tests/unit/hand_driver.h"

#include "engine/count/dirty.h"
#include "engine/table/packed.h"
#include "engine/turn/turn.h"
#include "engine/core/window_map.h"

static void add_keys(tw_family *family, int count, int64_t delta) {
    char key[32];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "a key of 29 bytes, %010d", i);
        rig_add(family, key, delta + i);
    }
}
static void check_keys(tw_family *family, int count, int64_t delta, int64_t at_ms) {
    char key[32];
    int64_t view, sum = 0;
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "a key of 29 bytes, %010d", i);
        assert_status(tw_get_at(family, tw_str(key), at_ms, &view), TW_OK);
        assert_i64_equal(view, delta + i);
        sum += delta + i;
    }
    assert_status(tw_get_at(family, tw_str("never counted"), at_ms, &view), TW_OK);
    assert_i64_equal(view, 0);
    struct rig_seen seen = rig_each(family, at_ms);
    assert_i64_equal(seen.counters, count);
    assert_i64_equal(seen.sum, sum);
}
static struct twi_generation *generation_of(tw_family *family, int64_t start_ms) {
    struct twi_generation *generation = twi_window_find(family, start_ms);
    assert_non_null(generation);
    return generation;
}

/* Goal: a window in history reads as it read before, costs less than two thirds, and goes at its time; overflow counts
 * too. */
TEST(a_window_in_history_is_packed_and_reads_as_before) {
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = 5000;
    tw_family *family = rig_family_of(&rig, &options);
    add_keys(family, 5000, 7);
    assert_status(tw_add(family, tw_str("too many"), 5, NULL), TW_OVERFLOWED);
    int64_t full = test_memory_bytes(rig.engine);
    check_keys(family, 5000, 7, RIG_START_MS);
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(test_stat_of(rig.engine, windows_packed), 1);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    check_keys(family, 5000, 7, RIG_START_MS);
    assert_i64_equal(rig_each(family, RIG_START_MS).overflow, 5);
    assert_i64_equal(test_stat_of(rig.engine, entries), 5000);
    printf("# open: %lld bytes, in history: %lld\n", (long long)full, (long long)test_memory_bytes(rig.engine));
    assert_true(test_memory_bytes(rig.engine) < full * 2 / 3);
    rig_pass(&rig, TW_HOUR);
    int64_t view;
    assert_status(tw_get_at(family, tw_str("too many"), RIG_START_MS, &view), TW_ERR_LATE);
    rig_pass(&rig, TW_HOUR);
    assert_true(test_memory_bytes(rig.engine) < 2000);
    rig_close(&rig);
}

/* Goal: memory stays the same, window after window: the open one, one in history and what is being packed stay below
 * 2.3 windows. */
TEST(memory_stays_bounded_window_after_window) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    int64_t one = 0, most = 0, later = 0;
    int hours = test_is_slow() ? 8 : 12;
    for (int hour = 0; hour < hours; hour++) {
        add_keys(family, 20000, hour);
        if (hour == 0) one = test_memory_bytes(rig.engine);
        if (hour >= 1) check_keys(family, 20000, hour - 1, rig_now(&rig) - TW_HOUR);
        for (int quarter = 0; quarter < 4; quarter++) {
            int64_t now = test_memory_bytes(rig.engine);
            if (now > most) most = now;
            if (hour >= 6 && now > later) later = now;
            rig_pass(&rig, TW_HOUR / 4);
        }
    }
    printf("# one window: %lld bytes; open, next and one of history: %.2f times as much\n", (long long)one,
           (double)most / (double)one);
    assert_true(later <= most);
    assert_i64_equal(test_stat_of(rig.engine, windows_packed), hours);
    rig_close(&rig);
}

/* Goal: packing does its units per turn and no more.
 * Method: one turn at a time, while time stands still; a reader looks after each turn. */
TEST(packing_takes_many_turns_and_readers_see_no_difference) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 50000, 1);
    fake_clock_advance_ms(&rig.clock, TW_HOUR);
    struct twi_generation *generation = generation_of(family, RIG_START_MS);
    int turns = 0, building = 0, shedding = 0;
    int64_t before = test_memory_bytes(rig.engine);
    char key[32];
    do {
        rig_turn(&rig);
        int64_t view, now = test_memory_bytes(rig.engine);
        assert_true(before - now <= (int64_t)(2 * TWI_WORK_TURN + 1024) * TWI_LINE_BYTES);
        before = now;
        building += generation->turn.history.packing != 0;
        shedding += twi_generation_is_packed(generation);
        snprintf(key, sizeof key, "a key of 29 bytes, %010d", turns % 50000);
        assert_status(tw_get_at(family, tw_str(key), RIG_START_MS, &view), TW_OK);
        assert_i64_equal(view, 1 + turns % 50000);
        if (turns % (test_is_slow() ? 8 : 1) == 0) assert_i64_equal(rig_each(family, RIG_START_MS).counters, 50000);
        turns++;
    } while (tw_timeout_ms(rig.engine) == 0);
    assert_true(building >= 20 && shedding >= 2);
    assert_i64_equal(family->turn.history.packing, 0);
    check_keys(family, 50000, 1, RIG_START_MS);
    rig_close(&rig);
}

/* Goal: a window that was prepared in vain is also given back in bounded turns.
 * Method: an event time opens the next window while it is being prepared. */
TEST(a_preparation_given_up_goes_in_bounded_turns) {
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.earliness_ms = TW_HOUR;
    tw_family *family = rig_family_of(&rig, &options);
    add_keys(family, 100000, 1);
    rig_settle(&rig);
    fake_clock_advance_ms(&rig.clock, TW_HOUR * 3 / 4);
    int64_t prepared_from = test_memory_bytes(rig.engine);
    do {
        rig_turn(&rig);
        assert_non_null(family->turn.prepared.generation);
    } while (test_memory_bytes(rig.engine) < prepared_from + (8 << 20));
    assert_status(tw_add_at(family, tw_str("early"), 1, RIG_START_MS + TW_HOUR, NULL), TW_OK);
    int64_t before = test_memory_bytes(rig.engine), most = before;
    int falls = 0;
    for (int turns = 0; turns < 10000 && (turns < 10 || tw_timeout_ms(rig.engine) == 0); turns++) {
        rig_turn(&rig);
        int64_t now = test_memory_bytes(rig.engine);
        assert_true(before - now <= (int64_t)(4 * TWI_WORK_TURN + 1024) * TWI_LINE_BYTES);
        falls += now < before;
        if (now > most) most = now;
        before = now;
    }
    assert_null(family->turn.prepared.generation);
    assert_true(falls >= 2 && before < most - (7 << 20)); /* what had been prepared, but for a window of one key */
    int64_t view;
    assert_status(tw_get_at(family, tw_str("early"), RIG_START_MS + TW_HOUR, &view), TW_OK);
    assert_i64_equal(view, 1);
    rig_close(&rig);
}

/* Goal: a reader in a section that began before the switch keeps the table; one that begins later has no need of it. */
TEST(a_section_of_before_keeps_the_table) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 5000, 3);
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str("a key of 29 bytes, 0000000042")), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    assert_true(twi_place_find(&call, &place));
    fake_clock_advance_ms(&rig.clock, TW_HOUR);
    for (int i = 0; i < 200; i++) { /* not tw_turn(): it refuses in a section, as here another thread's would be */
        rig_run_turn(rig.engine);
        fake_clock_advance_ms(&rig.clock, 5);
    }
    assert_true(twi_generation_is_packed(place.generation));
    assert_i64_equal(twi_cell_local(place.cell, place.meta), 45);
    assert_true(
        twi_table_is_valid(&rig.engine->arena, place.generation, &rig.engine->hashing.secret, rig.engine->hashing.fn));
    int64_t held = test_memory_bytes(rig.engine);
    twi_call_end(&call);
    rig_pass(&rig, 5);
    assert_true(test_memory_bytes(rig.engine) < held / 2);
    check_keys(family, 5000, 3, RIG_START_MS);
    rig_close(&rig);
}

struct slow_walk {
    struct rig *rig;
    struct rig_seen seen;
    int64_t at_first;
};
static bool walk_slowly(void *ctx, const tw_count *count) {
    struct slow_walk *walk = ctx;
    (void)rig_see(&walk->seen, count);
    if (walk->seen.counters == 10) {
        fake_clock_advance_ms(&walk->rig->clock, TW_HOUR);
        for (int i = 0; i < 200; i++) rig_pass(walk->rig, 5);
        walk->at_first = test_memory_bytes(walk->rig->engine);
    }
    return true;
}

/* Goal: a walk that began in the table ends in the table, though the window is packed under it; then the table goes.
 * Method: the visitor itself lets the hour end. */
TEST(a_walk_across_the_switch_sees_each_counter_once) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 5000, 0);
    struct slow_walk walk = {.rig = &rig};
    assert_status(tw_each(family, TW_NOW, walk_slowly, &walk), TW_OK);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    assert_i64_equal(walk.seen.counters, 5000);
    assert_i64_equal(walk.seen.sum, 5000 * 4999 / 2);
    rig_pass(&rig, 5);
    assert_true(test_memory_bytes(rig.engine) < walk.at_first / 2);
    check_keys(family, 5000, 0, RIG_START_MS);
    rig_close(&rig);
}

/* Goal: a walk through the packed form keeps it, though the window is dropped under it. */
static bool walk_past_history(void *ctx, const tw_count *count) {
    struct slow_walk *walk = ctx;
    (void)rig_see(&walk->seen, count);
    if (walk->seen.counters == 10) rig_pass(walk->rig, 3 * TW_HOUR);
    return true;
}
TEST(a_walk_keeps_a_packed_window_that_is_dropped) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 5000, 0);
    rig_pass(&rig, TW_HOUR);
    struct slow_walk walk = {.rig = &rig};
    assert_status(tw_each(family, RIG_START_MS, walk_past_history, &walk), TW_OK);
    assert_i64_equal(walk.seen.counters, 5000);
    assert_i64_equal(walk.seen.sum, 5000 * 4999 / 2);
    rig_pass(&rig, 10);
    assert_true(test_memory_bytes(rig.engine) < 2000);
    rig_close(&rig);
}

/* Goal: E32. A pin that still points at a cell of a packed window counts in the window of now, and touches nothing
 * else. */
TEST(trap_e32_a_pin_of_a_packed_window_touches_no_reused_memory) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_pin *pin;
    assert_status(tw_pin_open(family, tw_str("pinned"), &pin), TW_OK);
    int64_t view;
    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
    add_keys(family, 5000, 0);
    rig_pass(&rig, TW_HOUR);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    add_keys(family, 5000, 100); /* where the old records were */
    assert_status(tw_pin_add(pin, 5, &view), TW_OK);
    assert_i64_equal(view, 5);
    char key[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "a key of 29 bytes, %010d", i);
        assert_i64_equal(rig_get(family, key), 100 + i);
    }
    assert_status(tw_get_at(family, tw_str("pinned"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 2);
    tw_pin_close(pin);
    rig_close(&rig);
}

/* Goal: P7. A packed window takes no more counts, even if its family's lateness becomes longer afterwards. */
TEST(a_packed_window_takes_nothing_whatever_lateness_says_later) {
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.history_ms = TW_DAY;
    tw_family *family = rig_family_of(&rig, &options);
    add_keys(family, 3000, 0);
    rig_pass(&rig, TW_HOUR);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    options.lateness_ms = TW_DAY;
    assert_status(tw_family_set(family, &options), TW_OK);
    tw_key keys[40];
    int64_t moments[40];
    tw_status each[40];
    for (int i = 0; i < 40; i++) {
        keys[i] = i % 2 == 0 ? tw_str("a key of 29 bytes, 0000000007") : tw_str("new");
        moments[i] = RIG_START_MS + i;
        assert_status(tw_add_at(family, keys[i], 1, moments[i], NULL), TW_ERR_LATE);
    }
    assert_status(tw_add_many_at(family, keys, NULL, 40, moments, NULL, each), TW_ERR_LATE);
    for (int i = 0; i < 40; i++) assert_status(each[i], TW_ERR_LATE);
    rig_settle(&rig);
    check_keys(family, 3000, 0, RIG_START_MS);
    rig_close(&rig);
}

/* Goal: a window is dropped, or its family or engine closed, at any stage of its packing, and no memory is left behind.
 * Method: so many turns, one more each time; then history is cut short, the family closed, or the engine. */
TEST(packing_may_be_cut_short_at_any_turn) {
    for (int how = 0; how < 3; how++) {
        bool over = false;
        for (int turns = 1; !over; turns += 1 + turns / (test_is_slow() ? 2 : 8)) {
            struct rig rig;
            rig_open(&rig);
            tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
            tw_family *family = rig_family_of(&rig, &options);
            add_keys(family, 10000, 0);
            fake_clock_advance_ms(&rig.clock, TW_HOUR);
            for (int i = 0; i < turns; i++) rig_turn(&rig);
            over = tw_timeout_ms(rig.engine) != 0;
            if (how == 0) {
                options.history_ms = TW_NONE;
                assert_status(tw_family_set(family, &options), TW_OK);
                for (int i = 0; i < 3; i++) rig_pass(&rig, 10);
                assert_i64_equal(family->turn.history.packing, 0);
                assert_i64_equal(family->turn.history.waiting, 0);
                assert_true(test_memory_bytes(rig.engine) < 2000);
                assert_i64_equal(twi_load_relaxed(&family->quota.bytes), 0);
            } else if (how == 1) {
                assert_status(tw_family_close(family), TW_OK);
                for (int i = 0; i < 3; i++) rig_pass(&rig, 10);
                assert_i64_equal(test_memory_bytes(rig.engine), 0);
            }
            rig_close(&rig);
        }
    }
}

/* Goal: where memory is short, history stays as it is, and is packed when there is room again. */
TEST(history_is_packed_later_when_memory_is_short) {
    struct rig rig;
    rig_init(&rig);
    rig.options.memory_bytes_max = UINT64_C(4) << 20;
    rig_start(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.history_ms = 3 * TW_HOUR;
    tw_family *family = rig_family_of(&rig, &options);
    add_keys(family, 20000, 1);
    uint32_t hog[64], hogs = 0;
    while (twi_arena_bytes_used(&rig.engine->arena) < (INT64_C(3) << 20) && hogs < 64) {
        hog[hogs] = twi_arena_take(&rig.engine->arena, TWI_SEGMENT_LINES);
        if (hog[hogs] == 0) break;
        hogs++;
    }
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(test_stat_of(rig.engine, packs_refused), 1);
    assert_false(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    check_keys(family, 20000, 1, RIG_START_MS);
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(test_stat_of(rig.engine, packs_refused), 2);
    int64_t full = test_memory_bytes(rig.engine);
    while (hogs != 0) twi_arena_give(&rig.engine->arena, hog[--hogs], TWI_SEGMENT_LINES);
    rig_pass(&rig, TW_MINUTE);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    check_keys(family, 20000, 1, RIG_START_MS);
    assert_true(test_memory_bytes(rig.engine) < full);
    rig_close(&rig);
}

/* Goal: a window that each decision of a sliding limit reads is not packed before another window has ended, unless half
 * of the memory is used; with shorter windows inside it, it is packed at once. Decisions are the same. */
TEST(what_a_sliding_limit_reads_is_packed_later) {
    for (int kind = 0; kind < 3; kind++) {
        bool is_short = kind == 1, has_parts = kind == 2, waits = kind == 0;
        struct rig rig;
        rig_init(&rig);
        rig.options.memory_bytes_max = UINT64_C(8) << 20;
        rig_start(&rig);
        tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
        options.limit_shape = TW_SHAPE_SLIDING;
        options.history_ms = 5 * TW_HOUR;
        if (has_parts) options.sub_windows = 4;
        tw_family *family = rig_family_of(&rig, &options);
        add_keys(family, 5000, 600);
        uint32_t hog[64], hogs = 0;
        while (is_short && twi_arena_bytes_used(&rig.engine->arena) <= (INT64_C(4) << 20)) {
            hog[hogs] = twi_arena_take(&rig.engine->arena, TWI_SEGMENT_LINES);
            assert_int_not_equal(hog[hogs++], 0);
        }
        int64_t length_ms = has_parts ? TW_HOUR / 4 : TW_HOUR;
        rig_pass(&rig, length_ms);
        rig_pass(&rig, length_ms / 2);
        assert_int_equal(twi_generation_is_packed(generation_of(family, RIG_START_MS)), !waits);
        tw_verdict verdict;
        assert_status(tw_acquire(family, tw_str("a key of 29 bytes, 0000000000"), 1, 1000, &verdict), TW_OK);
        assert_i64_equal(verdict.used, has_parts ? 601 : 301);
        check_keys(family, 5000, 600, RIG_START_MS);
        rig_pass(&rig, length_ms / 2 + TW_SECOND);
        assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
        check_keys(family, 5000, 600, RIG_START_MS);
        while (hogs != 0) twi_arena_give(&rig.engine->arena, hog[--hogs], TWI_SEGMENT_LINES);
        rig_close(&rig);
    }
}

static bool see_view(void *ctx, const tw_count *count) {
    struct rig_seen *seen = ctx;
    seen->counters++;
    seen->sum += count->view;
    return true;
}

/* Goal: with Redis, a window is packed only when it owes nothing, with the last totals from Redis. */
TEST(a_synced_window_is_packed_when_it_owes_nothing_with_its_view) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 3000, 1);
    rig_pass(&rig, TW_HOUR);
    rig_pass(&rig, TW_MINUTE);
    struct twi_generation *generation = generation_of(family, RIG_START_MS);
    assert_false(twi_generation_is_packed(generation));
    while (hand_collect(1000) != 0)
        while (hand->count > 1) { /* others have added 1000 to each */
            int64_t local = hand->held[hand->count - 1].delta;
            hand_acknowledge(local + 1000);
        }
    for (int i = 0; i < 5; i++) rig_pass(&rig, 20);
    assert_false(twi_generation_is_packed(generation)); /* one is still on its way */
    hand_acknowledge(hand->held[hand->count - 1].delta + 1000);
    for (int i = 0; i < 5; i++) rig_pass(&rig, 20);
    assert_true(twi_generation_is_packed(generation));
    int64_t view;
    assert_status(tw_get_at(family, tw_str("a key of 29 bytes, 0000000042"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 1 + 42 + 1000);
    struct rig_seen seen = {0};
    assert_status(tw_each(family, RIG_START_MS, see_view, &seen), TW_OK);
    assert_i64_equal(seen.counters, 3000);
    assert_i64_equal(seen.sum, 3000 + 3000 * 2999 / 2 + 3000 * 1000);
    assert_i64_equal(rig_each(family, RIG_START_MS).sum, 3000 + 3000 * 2999 / 2);
    hand_close(&rig);
}

/* Goal: an adder sleeps between its DIRTY and its marks, while its window is sealed, drained and packed. Then it lists
 * a table that is waiting to be given back. The table is given back all the same, and no list names it any more.
 * Method: the adder's steps by hand, with turns beside it; with collections between the steps, and without. */
TEST(trap_e10_a_mark_that_comes_after_packing_harms_nobody) {
    for (int collect = 0; collect < 2; collect++) {
        struct rig rig;
        hand_open(&rig);
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
        add_keys(family, 100, 1);
        hand->settle_at_turns = true;
        rig_pass(&rig, 10);
        struct twi_call call;
        struct twi_place place;
        assert_status(twi_call_begin(&call, family, tw_str("a key of 29 bytes, 0000000042")), TW_OK);
        assert_status(twi_call_now(&call), TW_OK);
        assert_true(twi_place_find(&call, &place));
        uint64_t before;
        assert_int_equal(twi_cell_add(place.cell, place.meta, 20, &before), TWI_ADDED);
        (void)twi_or_acqrel(&place.cell->local, TWI_DIRTY); /* D1, and here it sleeps */
        fake_clock_advance_ms(&rig.clock, TW_HOUR);
        for (int i = 0; i < 10; i++) {
            rig_run_turn(rig.engine);
            fake_clock_advance_ms(&rig.clock, 20);
        }
        assert_true(twi_generation_is_packed(place.generation));
        hand->settle_at_turns = collect != 0;
        hand_list_late(rig.engine, &place);
        if (collect != 0) rig_run_turn(rig.engine);
        twi_call_end(&call);
        int64_t full = test_memory_bytes(rig.engine);
        for (int i = 0; i < 3; i++) rig_pass(&rig, 20);
        assert_true(test_memory_bytes(rig.engine) < full);
        assert_i64_equal(twi_load_relaxed(&place.generation->chunks[0]), 0);
        assert_i64_equal(twi_load_relaxed(&place.generation->marks.chunks), 0);
        assert_i64_equal(twi_load_relaxed(&rig.engine->collector.marked), 0);
        assert_false(place.generation->turn.pending);
        hand->settle_at_turns = false;
        assert_i64_equal(hand_collect(10), 0);
        int64_t view;
        assert_status(tw_get_at(family, tw_str("a key of 29 bytes, 0000000042"), RIG_START_MS, &view), TW_OK);
        assert_i64_equal(view, 1 + 42 + 20);
        rig_add(family, "b", 1); /* into memory that was the old table's */
        assert_i64_equal(hand_collect(10), 1);
        assert_i64_equal(hand->held[0].delta, 1);
        hand_close(&rig);
    }
}

/* What the hand holds of each key is what was counted of it: 1 + its number. */
static void check_hand(uint32_t count) {
    bool *seen = calloc(count, sizeof *seen);
    assert_non_null(seen);
    assert_i64_equal(hand->count, count);
    for (size_t i = 0; i < hand->count; i++) {
        tw_key key = twi_port_key(&hand->held[i]);
        char text[32] = "";
        memcpy(text, key.data, key.size < 31 ? key.size : 31);
        long number = strtol(text + 19, NULL, 10);
        assert_true(number >= 0 && number < (long)count && !seen[number]);
        seen[number] = true;
        assert_i64_equal(hand->held[i].delta, 1 + number);
    }
    free(seen);
}
static void forget_all(struct rig *rig) {
    assert_i64_equal((int64_t)twi_port_restore(rig->engine, 0), 0);
    for (int i = 0; twi_port_restore_some(rig->engine); i++) assert_true(i < 1000);
}

/* Goal: P2. A Redis that lost everything receives every counter of a packed window again, once, also if the window is
 * just being packed, or if Redis loses everything once more half-way. Then the window is packed again.
 * Method: so many turns after the window's end, one more each time. */
TEST(what_was_packed_is_told_again_to_a_redis_that_forgot) {
    enum { KEYS = 3000 };
    int packed_before = 0, building_before = 0;
    for (int turns = 1; turns < 40; turns += 1 + turns / 10) {
        struct rig rig;
        hand_open(&rig);
        hand->settle_at_turns = true;
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
        add_keys(family, KEYS, 1);
        for (int i = 0; i < 5; i++) rig_pass(&rig, 10);
        struct twi_generation *generation = generation_of(family, RIG_START_MS);
        _Atomic uintptr_t *hold = &twi_thread_slot(twi_thread_here())->holds[0][0];
        if (turns % 3 == 0) twi_store_release(hold, (uintptr_t)generation | TWI_HOLDS_TABLE); /* as if it were walked */
        fake_clock_advance_ms(&rig.clock, TW_HOUR);
        for (int i = 0; i < turns; i++) {
            rig_turn(&rig);
            fake_clock_advance_ms(&rig.clock, 5);
        }
        packed_before += twi_generation_is_packed(generation);
        building_before += generation->turn.history.packing != 0;
        hand->settle_at_turns = false;
        forget_all(&rig);
        assert_true(twi_dirty_may_be_sent(generation));
        while (hand_collect(1000) != 0) continue;
        check_hand(KEYS);
        rig_turn(&rig); /* history has its turns meanwhile */
        for (int i = 0; i < KEYS / 2; i++) hand_acknowledge(7);
        while (hand->count != 0) {
            struct twi_item item = hand_pop();
            twi_port_return(&item, 0);
        }
        forget_all(&rig);
        while (hand_collect(1000) != 0) continue;
        check_hand(KEYS);
        twi_store_release(hold, 0);
        hand->settle_at_turns = true;
        while (hand->count != 0) {
            struct twi_item item = hand_pop();
            struct twi_reply answer = {0};
            twi_port_acknowledge(&item, &answer);
        }
        for (int i = 0; i < 20; i++) rig_pass(&rig, 5);
        assert_true(twi_generation_is_packed(generation));
        assert_false(twi_dirty_may_be_sent(generation)); /* who comes after a process that ended walks no chunk of it */
        assert_i64_equal(twi_load_relaxed(&generation->chunks[0]), 0);
        assert_i64_equal(generation->turn.outstanding, 0);
        struct rig_seen seen = rig_each(family, RIG_START_MS);
        assert_i64_equal(seen.counters, KEYS);
        assert_i64_equal(seen.sum, KEYS + KEYS * (KEYS - 1) / 2);
        hand_close(&rig);
    }
    assert_true(packed_before >= 3 && building_before >= 1);
}

/* Goal: if memory is too short to send units again, their number is reported to the unit. */
TEST(what_cannot_be_told_again_is_reported_to_the_unit) {
    struct rig rig;
    struct lost_log log = {0};
    hand_init(&rig);
    rig.options.on_lost = lost_write;
    rig.options.lost_ctx = &log;
    rig_start(&rig);
    hand->settle_at_turns = true;
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 3000, 1);
    for (int i = 0; i < 5; i++) rig_pass(&rig, 10);
    rig_pass(&rig, TW_HOUR);
    for (int i = 0; i < 10; i++) rig_pass(&rig, 5);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    twi_store_relaxed(&family->quota.bytes_max, twi_load_relaxed(&family->quota.bytes) + 100000);
    hand->settle_at_turns = false;
    forget_all(&rig);
    twi_store_relaxed(&family->quota.bytes_max, 0);
    while (hand_collect(1000) != 0) continue;
    int64_t sum = 0;
    for (size_t i = 0; i < hand->count; i++) sum += hand->held[i].delta;
    assert_true(hand->count > 500 && log.calls > 500);
    assert_i64_equal(log.reason, TW_LOST_ROLLBACK);
    assert_i64_equal(log.start_ms, RIG_START_MS);
    assert_i64_equal(sum + log.delta, 3000 + 3000 * 2999 / 2);
    assert_i64_equal(test_stat_of(rig.engine, lost), log.delta);
    assert_i64_equal(test_stat_of(rig.engine, restored), sum);
    hand_close(&rig);
}

int main(void) {
    test_skip_alone();
    return test_run();
}
