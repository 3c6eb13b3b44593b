/* port_windows_test.c -- the engine's side of port.h where windows end: sealing, lives that Redis decides, outages,
 * families that close, the overflow counter. Collecting and settling: port_test.c.
 * Covers: engine/turn/settle.c. */
#include "tests/unit/hand_driver.h"

#include "engine/turn/turn.h"

/* ---- sealing ----------------------------------------------------------------------------------------------------- */

struct closed_log {
    int calls;
    uint32_t flags;
    int64_t sum;
};
static bool log_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct closed_log *log = ctx;
    log->calls++;
    log->flags = flags;
    log->sum = rig_each(family, start_ms).sum;
    return true;
}

static tw_family *take_family_answer(struct rig *rig, struct closed_log *log) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = log_closed;
    options.closed_ctx = log;
    options.history_ms = TW_NONE;
    return rig_family_of(rig, &options);
}

TEST(the_hook_waits_until_all_of_its_window_is_acknowledged) {
    struct rig rig;
    struct closed_log log = {0};
    hand_open(&rig);
    tw_family *family = take_family_answer(&rig, &log);
    rig_add(family, "a", 3);
    rig_add(family, "b", 4);
    rig_pass(&rig, TW_MINUTE);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 0);
    assert_i64_equal(hand_collect(1), 1);
    hand_acknowledge(0);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 0);
    assert_i64_equal(hand_collect(10), 1);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 0);
    hand_acknowledge(0);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(log.flags, 0);
    assert_i64_equal(log.sum, 7);
    hand_close(&rig);
    assert_i64_equal(log.calls, 1);
}

/* Goal: out of time, tw_close() tells each window that has counts, also one that its thread had not announced. Such
 * threads were killed, in a process that shared the engine. Method: the second window is hidden from the turn, as if
 * its thread had stopped in between. */
TEST(out_of_time_a_window_that_nobody_announced_is_told) {
    struct rig rig;
    struct closed_log log = {0};
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = log_closed;
    options.closed_ctx = &log;
    options.lateness_ms = TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 3);
    rig_pass(&rig, 100);
    assert_status(tw_add_at(family, tw_str("b"), 4, rig_now(&rig) - TW_MINUTE, NULL), TW_OK);
    twi_store_relaxed(&family->arrivals, 0);
    assert_status(tw_close(rig.engine, 0), TW_ERR_TIMEOUT);
    assert_i64_equal(log.calls, 2);
}

struct roll_up {
    tw_family *coarse;
    int refusals;
};

static bool roll_up(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct roll_up *roll_up = ctx;
    (void)end_ms, (void)flags;
    if (roll_up->refusals-- > 0) return false;
    return tw_add(roll_up->coarse, tw_str("all"), rig_each(family, start_ms).sum, NULL) == TW_OK;
}

/* Goal: what a hook counts in its last call is told, too. Method: the hook of minutes adds them up in hours, and
 * returns false until the time of tw_close() is over. */
TEST(out_of_time_what_the_last_hook_counts_is_told) {
    struct rig rig;
    struct closed_log log = {0};
    rig_open(&rig);
    tw_family_options options = rig_options("hours", TW_WINDOW_ALIGNED, TW_HOUR);
    options.on_window_closed = log_closed;
    options.closed_ctx = &log;
    struct roll_up ctx = {.coarse = rig_family_of(&rig, &options), .refusals = 1};
    options = rig_options("minutes", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = roll_up;
    options.closed_ctx = &ctx;
    rig_add(rig_family_of(&rig, &options), "a", 3);
    rig_pass(&rig, 100);
    assert_status(tw_close(rig.engine, 0), TW_OK);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(log.sum, 3);
}

TEST(trap_r3_with_redis_away_for_60_s_the_hook_gets_the_local_figures) {
    struct rig rig;
    struct closed_log log = {0};
    hand_open(&rig);
    tw_family *family = take_family_answer(&rig, &log);
    rig_add(family, "a", 3);
    rig_pass(&rig, TW_MINUTE);
    rig_pass(&rig, 59999);
    assert_i64_equal(log.calls, 0);
    rig_pass(&rig, 21);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(log.flags, TW_CLOSED_LOCAL);
    assert_i64_equal(log.sum, 3);
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(hand_collect(10), 1); /* the delta continues to Redis all the same */
    assert_i64_equal(hand->held[0].delta, 3);
    assert_i64_equal(test_stat_of(rig.engine, entries), 1);
    hand_acknowledge(3);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    hand_close(&rig);
}

/* Goal: E8, E10. A counter whose adder slept between its add and its mark is found by sealing.
 * Method: the add's first half by hand. */
TEST(trap_e8_sealing_finds_what_was_added_and_never_marked) {
    struct rig rig;
    struct closed_log log = {0};
    hand_open(&rig);
    tw_family *family = take_family_answer(&rig, &log);
    rig_add(family, "a", 1);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(1);
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str("a")), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    assert_true(twi_place_find(&call, &place));
    uint64_t before;
    assert_int_equal(twi_cell_add(place.cell, place.meta, 20, &before), TWI_ADDED);
    assert_i64_equal(before & TWI_DIRTY, 0);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE);
    rig_run_turn(rig.engine);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 20);
    twi_place_mark(&call, &place, before); /* the adder wakes up: sealed, it has nothing to mark */
    twi_call_end(&call);
    assert_i64_equal(hand_collect(10), 0);
    hand_acknowledge(21);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, 1);
    assert_i64_equal(log.sum, 21);
    hand_close(&rig);
}

/* Goal: an adder that has set DIRTY and slept, while its window was sealed, drained, told of and dropped, then lists a
 * window that waits to be reused. It is reused all the same, and never while it is on a list.
 * Method: the adder's steps by hand, the turn next to it. */
TEST(trap_e10_a_mark_that_comes_after_the_window_was_dropped_harms_nobody) {
    struct rig rig;
    struct closed_log log = {0};
    hand_open(&rig);
    tw_family *family = take_family_answer(&rig, &log);
    rig_add(family, "a", 1);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(1);
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str("a")), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    assert_true(twi_place_find(&call, &place));
    uint64_t before;
    assert_int_equal(twi_cell_add(place.cell, place.meta, 20, &before), TWI_ADDED);
    (void)twi_or_acqrel(&place.cell->local, TWI_DIRTY); /* D1, and here it sleeps */
    fake_clock_advance_ms(&rig.clock, TW_MINUTE);
    rig_run_turn(rig.engine);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(21);
    fake_clock_advance_ms(&rig.clock, 100);
    for (int i = 0; i < 3; i++) rig_run_turn(rig.engine);
    assert_i64_equal(log.calls, 1);
    assert_true(rig.engine->unlinked.generations != 0);
    hand_list_late(rig.engine, &place);
    twi_call_end(&call);
    for (int i = 0; i < 3; i++) rig_pass(&rig, 100);
    assert_i64_equal(rig.engine->unlinked.generations, 0);
    assert_i64_equal(hand_collect(10), 0);
    rig_add(family, "b", 1); /* into memory that was the old window's */
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 1);
    hand_close(&rig);
}

/* Goal: E10. A full collection begun while an adder is between its add and its mark waits for it. */
TEST(trap_e10_a_flush_waits_for_a_mark_under_way) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str("a")), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    if (!twi_place_find(&call, &place)) assert_status(twi_place_make(&call, &place), TW_OK);
    uint64_t before;
    assert_int_equal(twi_cell_add(place.cell, place.meta, 20, &before), TWI_ADDED);
    twi_port_collect_begin(rig.engine);
    assert_i64_equal(hand_collect(10), 0);
    assert_false(twi_port_collect_is_done(rig.engine));
    twi_place_mark(&call, &place, before);
    twi_call_end(&call);
    while (!twi_port_collect_is_done(rig.engine)) (void)hand_collect(10);
    assert_i64_equal(hand->count, 1);
    assert_i64_equal(hand->held[0].delta, 20);
    hand_close(&rig);
}

TEST(a_full_collection_is_done_only_when_nothing_was_left_out) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    char key[16];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(family, key, 1);
    }
    twi_port_collect_begin(rig.engine);
    for (int i = 0; i < 10; i++) {
        assert_false(twi_port_collect_is_done(rig.engine));
        assert_i64_equal(hand_collect(10), 10);
    }
    assert_i64_equal(hand_collect(10), 0);
    assert_true(twi_port_collect_is_done(rig.engine));
    hand_close(&rig);
}

/* ---- E24: lives that Redis decides ------------------------------------------------------------------------------- */

static struct twi_item pop_and_adopt(int64_t total, int64_t end_ms) {
    struct twi_item item = hand_pop();
    struct twi_reply answer = {.total = total, .has_total = true, .end_ms = end_ms};
    twi_port_acknowledge(&item, &answer);
    return item;
}

/* Goal: the end that Redis names is the key's end here, sooner or later than we thought. */
TEST(trap_e24_a_life_ends_when_redis_says) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    rig_add(family, "soon", 1);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].flags, TWI_ITEM_FIRST | TWI_ITEM_FROM_FIRST);
    assert_i64_equal(hand->held[0].expiry_ms, RIG_START_MS + TW_MINUTE);
    (void)pop_and_adopt(11, RIG_START_MS + 10000);
    fake_clock_advance_ms(&rig.clock, 9999);
    assert_i64_equal(rig_add(family, "soon", 1), 12);
    fake_clock_advance_ms(&rig.clock, 1);
    tw_reading reading = rig_read(family, "soon"); /* a new life, of which nothing is known yet */
    assert_i64_equal(reading.view, 0);
    assert_false(reading.known);
    assert_i64_equal(rig_add(family, "soon", 5), 5);
    assert_i64_equal(hand_collect(10), 2);
    int64_t old = 0, fresh = 0;
    for (size_t i = 0; i < 2; i++) {
        if (hand->held[i].expiry_ms == RIG_START_MS + 10000) old += hand->held[i].delta;
        if (hand->held[i].expiry_ms == RIG_START_MS + 10000 + TW_MINUTE) fresh += hand->held[i].delta;
    }
    assert_i64_equal(old, 1);
    assert_i64_equal(fresh, 5);
    struct rig_seen seen = rig_each(family, TW_NOW);
    assert_i64_equal(seen.counters, 1);
    assert_i64_equal(seen.sum, 5);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE - 1);
    assert_i64_equal(rig_get(family, "soon"), 5);
    fake_clock_advance_ms(&rig.clock, 1);
    assert_i64_equal(rig_get(family, "soon"), 0);
    hand_close(&rig);
}

/* Goal: a third life of a key in one window has no cell, and never counts in a dead one. */
TEST(trap_e24_a_third_life_in_one_window_does_not_count_in_a_dead_one) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_HOUR);
    for (int life = 1; life <= 2; life++) {
        assert_i64_equal(rig_add(family, "k", 1), 1);
        while (hand_collect(10) != 0) continue;
        while (hand->count != 0) (void)pop_and_adopt(1, fake_clock_wall_ms(&rig.clock) + 1000);
        fake_clock_advance_ms(&rig.clock, 1000);
    }
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OVERFLOWED);
    assert_i64_equal(rig_get(family, "k"), 0);
    hand_close(&rig);
}

/* ---- E27: an outage occupies no slot ----------------------------------------------------------------------------- */

/* Goal: hundreds of windows that wait for Redis delay neither counting nor each other, and each goes to its own window
 * at last. Method: an hour of 5-s windows without Redis, then collections of every size. */
TEST(trap_e27_hundreds_of_undrained_windows_wait_and_are_sent) {
    struct rig rig;
    hand_open(&rig);
    struct closed_log log = {0};
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, 5 * TW_SECOND);
    options.on_window_closed = log_closed;
    options.closed_ctx = &log;
    options.history_ms = TW_NONE;
    tw_family *family = rig_family_of(&rig, &options);
    enum { WINDOWS = 720 };
    for (int i = 0; i < WINDOWS; i++) {
        assert_i64_equal(rig_add(family, "a", i + 1), i + 1);
        rig_add(family, "b", 1);
        rig_pass(&rig, 5 * TW_SECOND);
    }
    assert_i64_equal(test_stat_of(rig.engine, entries), 2 * WINDOWS);
    static int64_t sums[WINDOWS];
    memset(sums, 0, sizeof sums);
    for (size_t room = 1; hand_collect(room) != 0; room = room % 100 + 1) {
        while (hand->count != 0) {
            struct twi_item item = hand_pop();
            int64_t window = (twi_port_start_ms(&item) - RIG_START_MS) / (5 * TW_SECOND);
            assert_true(window >= 0 && window < WINDOWS);
            sums[window] += item.delta;
            struct twi_reply answer = {0};
            twi_port_acknowledge(&item, &answer);
        }
    }
    for (int i = 0; i < WINDOWS; i++) assert_i64_equal(sums[i], i + 2);
    rig_pass(&rig, 100);
    rig_pass(&rig, 100);
    assert_i64_equal(log.calls, WINDOWS);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    hand_close(&rig);
}

/* ---- what with Redis is another thing
 * ------------------------------------------------------------------------------------- */

TEST(once_decides_on_the_view_and_is_sent) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    bool first = false;
    assert_status(tw_once(family, tw_str("a"), &first), TW_OK);
    assert_true(first);
    assert_i64_equal(hand_collect(100), 1);
    assert_i64_equal(hand->held[0].delta, 1);
    hand_acknowledge(2); /* another one was first, too */
    assert_status(tw_once_cancel(family, tw_str("a")), TW_OK);
    assert_status(tw_once_cancel(family, tw_str("a")), TW_OK);
    assert_i64_equal(rig_get(family, "a"), 0);
    assert_i64_equal(hand_collect(100), 1);
    assert_i64_equal(hand->held[0].delta, -2);
    hand_acknowledge(0);
    assert_status(tw_once(family, tw_str("a"), &first), TW_OK);
    assert_true(first);
    hand_close(&rig);
}

TEST(acquire_decides_on_the_view) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_verdict verdict;
    assert_status(tw_acquire(family, tw_str("a"), 3, 10, &verdict), TW_OK);
    assert_i64_equal(verdict.decided_by, TW_BY_OUTAGE); /* its total is not known yet */
    assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 3);
    hand_acknowledge(8); /* 5 of others */
    assert_status(tw_acquire(family, tw_str("a"), 3, 10, &verdict), TW_DENIED);
    assert_i64_equal(verdict.used, 8);
    assert_i64_equal(verdict.remaining, 2);
    assert_i64_equal(hand_collect(10), 0); /* a denied call has only loaded */
    assert_status(tw_acquire(family, tw_str("a"), 2, 10, &verdict), TW_OK);
    assert_i64_equal(verdict.used, 10);
    hand_close(&rig);
}

/* What a turn some seconds on says is unsent. */
static int64_t unsent_after(struct rig *rig) {
    fake_clock_advance_ms(&rig->clock, 2000);
    rig_turn(rig);
    return test_stat_of(rig->engine, unsent_keys);
}

/* Goal: the gauge tells how many counters owe Redis something, wherever they are: marked, marked by the turn, in a
 * batch, or waiting after a refusal; in open and closed windows, overflow included. Method: 3000 counters in two
 * windows of one family and 500 of an endless one that holds 400; then all are settled bit by bit. */
TEST(counters_that_owe_redis_are_sampled) {
    struct rig rig;
    char key[16];
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.lateness_ms = TW_HOUR;
    tw_family *family = rig_family_of(&rig, &options);
    options = rig_options("small", TW_WINDOW_FOREVER, 0);
    options.keys_max = 400;
    tw_family *small = rig_family_of(&rig, &options);
    assert_i64_equal(unsent_after(&rig), 0);
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_status(tw_add_at(family, tw_str(key), 1, RIG_START_MS - (i % 3 == 0 ? TW_HOUR : 0), NULL), TW_OK);
        if (i < 500) assert_true(tw_add(small, tw_str(key), 1, NULL) >= 0);
    }
    assert_i64_equal(unsent_after(&rig), 3401);
    assert_i64_equal(hand_collect(1000), 1000); /* and what of a chunk did not fit was marked again by the turn */
    assert_i64_equal(unsent_after(&rig), 3401);
    for (int i = 0; i < 300; i++) {
        struct twi_item item = hand_pop();
        twi_port_return(&item, i < 100 ? 0 : 3600000);
    }
    assert_i64_equal(unsent_after(&rig), 3401);
    for (int i = 0; i < 400; i++) hand_acknowledge(1);
    assert_i64_equal(unsent_after(&rig), 3001);
    while (hand->count != 0 || hand_collect(1000) != 0) hand_acknowledge(1);
    assert_i64_equal(unsent_after(&rig), 200); /* those that wait for an hour */
    hand_close(&rig);
}

TEST(templates_that_collide_are_refused) {
    struct rig rig;
    hand_open(&rig);
    tw_family_options options = rig_options("one", TW_WINDOW_FOREVER, 0);
    options.redis_key = "x:%k";
    (void)rig_family_of(&rig, &options);
    options.name = "two";
    char error[256] = "";
    options.error_text = error;
    options.error_size = sizeof error;
    tw_family *family = NULL;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_non_null(strstr(error, "redis_key"));
    assert_null(family);
    hand_close(&rig);
}

/* A closed family sends what it owes before it goes. */
TEST(a_closed_family_goes_when_it_has_sent_all) {
    struct rig rig;
    hand_open(&rig);
    int64_t before = test_memory_bytes(rig.engine);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    rig_add(family, "a", 5);
    assert_status(tw_family_close(family), TW_OK);
    rig_pass(&rig, 1000);
    assert_null(tw_family_find(rig.engine, "f"));
    assert_true(test_memory_bytes(rig.engine) > before);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 5);
    rig_pass(&rig, 1000);
    char name[TWI_REDIS_KEY_MAX]; /* the item still has its family */
    assert_i64_equal(twi_port_render(&hand->held[0], name), 3);
    hand_acknowledge(5);
    rig_pass(&rig, 1000);
    rig_pass(&rig, 1000);
    assert_i64_equal(test_memory_bytes(rig.engine), before);
    hand_close(&rig);
}

/* ---- the overflow counter ---------------------------------------------------------------------------------------- */

TEST(overflow_counts_travel_under_their_own_name) {
    struct rig rig;
    hand_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = 1;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(1);
    int64_t view = 0;
    assert_status(tw_add(family, tw_str("b"), 2, &view), TW_OVERFLOWED);
    assert_i64_equal(view, 2);
    assert_status(tw_add(family, tw_str("c"), 3, &view), TW_OVERFLOWED);
    assert_i64_equal(view, 5);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 5);
    assert_true((hand->held[0].flags & TWI_ITEM_OVERFLOW) != 0);
    char name[TWI_REDIS_KEY_MAX];
    size_t size = twi_port_render(&hand->held[0], name);
    const char *want = "tw:overflow:f::2023111423";
    assert_i64_equal(size, strlen(want));
    assert_memory_equal(name, want, size);
    struct twi_item item = hand_pop();
    twi_port_return(&item, 0);
    assert_i64_equal(hand_collect(10), 1);
    assert_i64_equal(hand->held[0].delta, 5);
    hand_close(&rig);
}

/* Goal: extremes of what Redis may hold do not wrap anything here. */
TEST(totals_at_the_edge_of_64_bits_saturate) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "least", -5);
    assert_i64_equal(hand_collect(10), 1);
    hand_acknowledge(INT64_MIN);
    rig_add(family, "least", -5);
    assert_i64_equal(rig_get(family, "least"), INT64_MIN);
    assert_status(tw_reset(family, tw_str("least"), NULL), TW_ERR_RANGE);
    rig_add(family, "most", 5);
    while (hand_collect(10) != 0) continue;
    while (hand->count != 0) hand_acknowledge(INT64_MAX);
    rig_add(family, "most", 5);
    assert_i64_equal(rig_get(family, "most"), INT64_MAX);
    tw_verdict verdict;
    assert_status(tw_acquire(family, tw_str("most"), 1, 10, &verdict), TW_DENIED);
    assert_i64_equal(verdict.decided_by, TW_BY_VIEW);
    assert_i64_equal(verdict.used, INT64_MAX);
    assert_i64_equal(verdict.error_bound, TW_UNBOUNDED);
    hand_close(&rig);
}
