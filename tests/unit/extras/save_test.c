/* save_test.c -- counts that are carried over a planned restart: what is loaded is what was counted, and behaves like
 * it.
 * Covers: engine/save.c, engine/load.c. */
#include "tests/unit/extras/save_rig.h"

/* ---- what is loaded is what was counted ------------------------------------------------------------------------- */

/* Goal: every window and every key comes back to the unit. Method: a key of every size and of all bytes, counts at the
 * ends of the range, in each kind of window; both lives show the same by tw_get() and tw_each(). */
#define FAMILIES 5
static const uint32_t windows[FAMILIES] = {TW_WINDOW_ALIGNED, TW_WINDOW_FOREVER, TW_WINDOW_DAY, TW_WINDOW_WEEK,
                                           TW_WINDOW_MONTH};
static tw_family *families[FAMILIES];

static void open_families(void) {
    static const char *const names[FAMILIES] = {"aligned", "forever", "day", "week", "month"};
    for (size_t i = 0; i < FAMILIES; i++) {
        tw_family_options options = rig_options(names[i], windows[i], windows[i] == TW_WINDOW_ALIGNED ? TW_HOUR : 0);
        if (windows[i] != TW_WINDOW_FOREVER) options.utc_offset_ms = 8 * TW_HOUR;
        if (windows[i] == TW_WINDOW_WEEK) options.week_start = 6;
        families[i] = rig_family_of(&rig, &options);
    }
}

static tw_key key_of(size_t size, unsigned char bytes[TW_KEY_SIZE_MAX]) {
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 7 + size);
    return tw_bytes(bytes, size);
}

static int64_t count_of(size_t size, size_t family) {
    if (size == 1) return TW_COUNT_MAX;
    if (size == 2) return -TW_COUNT_MAX;
    return ((int64_t)size * 1000003 + (int64_t)family) * (size % 3 == 0 ? -1 : 1);
}

static void add_large(tw_family *family, tw_key key, int64_t count) {
    while (count != 0) {
        int64_t part = count > TW_DELTA_MAX ? TW_DELTA_MAX : count < -TW_DELTA_MAX ? -TW_DELTA_MAX : count;
        assert_status(tw_add(family, key, part, NULL), TW_OK);
        count -= part;
    }
}

TEST_WITH(every_key_of_every_window_comes_back, begin, end, NULL) {
    unsigned char bytes[TW_KEY_SIZE_MAX];
    open_families();
    for (size_t i = 0; i < FAMILIES; i++)
        for (size_t size = 1; size <= TW_KEY_SIZE_MAX; size++)
            add_large(families[i], key_of(size, bytes), count_of(size, i));
    rig_add(families[0], "was there", 1);
    rig_add(families[0], "was there", -1);
    save();
    start_again();
    open_families();
    load();
    for (size_t i = 0; i < FAMILIES; i++) {
        for (size_t size = 1; size <= TW_KEY_SIZE_MAX; size++) {
            int64_t view;
            assert_status(tw_get(families[i], key_of(size, bytes), &view), TW_OK);
            assert_i64_equal(view, count_of(size, i));
        }
        assert_i64_equal(rig_each(families[i], TW_NOW).counters, TW_KEY_SIZE_MAX); /* a count of 0 is none */
    }
    assert_i64_equal(stat_of(offsetof(tw_stats, load_skipped)), 0);
    assert_status(tw_add(families[0], key_of(1, bytes), 1, NULL), TW_ERR_RANGE);
}

/* Goal: nothing depends on how a counter was kept. Method: random adds of many keys, in several files' worth of blocks;
 * the sums of both lives are equal, key by key. */
TEST_WITH(many_keys_come_back_and_the_second_file_replaces_the_first, begin, end, NULL) {
    enum { KEYS = 20000 };
    static int64_t counts[KEYS];
    char key[40];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    memset(counts, 0, sizeof counts);
    for (int life = 0; life < 3; life++) {
        tw_family_options options = rig_options("hourly", TW_WINDOW_ALIGNED, TW_HOUR);
        options.keys_expected = life == 1 ? KEYS : 0;
        tw_family *family = rig_family_of(&rig, &options);
        if (life > 0) load();
        for (int i = 0; i < 50000; i++) {
            size_t number = test_prng_below(&prng, KEYS);
            int64_t delta = test_prng_between(&prng, -1000, 1000000);
            snprintf(key, sizeof key, "%zu:%.*s", number, (int)(number % 30), "abcdefghijklmnopqrstuvwxyzabcdef");
            assert_status(tw_add(family, tw_str(key), delta, NULL), TW_OK);
            counts[number] += delta;
        }
        for (size_t number = 0; number < KEYS; number++) {
            snprintf(key, sizeof key, "%zu:%.*s", number, (int)(number % 30), "abcdefghijklmnopqrstuvwxyzabcdef");
            assert_i64_equal(rig_get(family, key), counts[number]);
        }
        save();
        start_again();
    }
}

static int64_t top_view;
static bool note_top(void *ctx, const tw_count *count) {
    top_view = count->view;
    return memcmp(count->key.data, ctx, count->key.size) == 0;
}

struct closed {
    tw_family *family;
    int calls;
    int64_t sum, start_ms;
    uint32_t flags;
};
static bool add_up(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->view;
    return true;
}
static bool note_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct closed *closed = ctx;
    closed->calls++;
    closed->start_ms = start_ms;
    closed->flags = flags;
    closed->sum = 0;
    return tw_each(family, start_ms, add_up, &closed->sum) == TW_OK;
}

/* Goal: loaded counts are like counts that were added. Method: a limit, tw_once(), tw_top(), the hook and the history
 * in the second life. */
TEST_WITH(loaded_counts_behave_like_counted_ones, begin, end, NULL) {
    static struct closed closed;
    closed = (struct closed){0};
    bool first;
    tw_family_options options = rig_options("views", TW_WINDOW_ALIGNED, TW_HOUR);
    options.on_window_closed = note_closed;
    options.closed_ctx = &closed;
    tw_family *family = rig_family_of(&rig, &options);
    for (int i = 0; i < 7; i++) acquire(family, "a", 1, 10, TW_OK);
    rig_add(family, "b", 100);
    assert_status(tw_once(family, tw_str("job"), &first), TW_OK);
    save();
    assert_int_equal(closed.calls, 1);
    assert_int_equal(closed.flags, TW_CLOSED_PARTIAL);
    rig_start(&rig);
    is_open = true;
    family = rig_family_of(&rig, &options);
    load();
    tw_verdict verdict = acquire(family, "a", 3, 10, TW_OK);
    assert_i64_equal(verdict.used, 10);
    assert_i64_equal(verdict.window_start_ms, RIG_START_MS);
    acquire(family, "a", 1, 10, TW_DENIED);
    assert_status(tw_refund(family, tw_str("a"), 8, verdict.window_start_ms), TW_OK);
    assert_i64_equal(rig_get(family, "a"), 2);
    assert_status(tw_once(family, tw_str("job"), &first), TW_OK);
    assert_false(first);
    char top[] = "b";
    assert_status(tw_top(family, 1, TW_NOW, note_top, top), TW_OK);
    assert_i64_equal(top_view, 100);
    rig_pass(&rig, TW_HOUR);
    assert_int_equal(closed.calls, 2);
    assert_int_equal(closed.flags, 0);
    assert_i64_equal(closed.sum, 103);
    int64_t view;
    assert_status(tw_get_at(family, tw_str("b"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 100);
    assert_i64_equal(rig_get(family, "b"), 0);
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

static tw_family *late_family(void) {
    tw_family_options options = rig_options("late", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = 10 * TW_MINUTE;
    options.earliness_ms = TW_HOUR;
    return rig_family_of(&rig, &options);
}

/* Goal: what still takes counts is carried over, whatever its time; what has been closed is left out. Method: windows
 * behind and ahead of the clock, and a restart that lasts long enough for some of them to end. */
TEST_WITH(windows_that_accept_counts_are_carried_over_and_closed_ones_are_not, begin, end, NULL) {
    int64_t view, now = RIG_START_MS;
    tw_family *late = late_family(), *closing;
    for (int64_t minute = -9; minute <= 60; minute++)
        assert_status(tw_add_at(late, tw_str("k"), 100 + minute, now + minute * TW_MINUTE, NULL), TW_OK);
    tw_family_options options = rig_options("closing", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = TW_UNBOUNDED;
    closing = rig_family_of(&rig, &options);
    for (int64_t minute = -500; minute <= 0; minute++)
        assert_status(tw_add_at(closing, tw_str("k"), 1, now + minute * TW_MINUTE, NULL), TW_OK);
    assert_status(tw_close_until(closing, now - 99 * TW_MINUTE), TW_OK);
    rig_settle(&rig);
    save();
    fake_clock_advance_ms(&rig.clock, 5 * TW_MINUTE); /* four windows of `late` end: -9 to -6 */
    start_again();
    late = late_family();
    closing = rig_family_of(&rig, &options);
    load();
    assert_i64_equal(stat_of(offsetof(tw_stats, load_skipped)), 0);
    for (int64_t minute = -9; minute <= 60; minute++) {
        assert_status(tw_get_at(late, tw_str("k"), now + minute * TW_MINUTE, &view), TW_OK);
        assert_i64_equal(view, 100 + minute);
    }
    assert_status(tw_add_at(late, tw_str("k"), 1, now - 6 * TW_MINUTE, NULL), TW_ERR_LATE);
    for (int64_t minute = -500; minute <= 0; minute++) {
        assert_status(tw_get_at(closing, tw_str("k"), now + minute * TW_MINUTE, &view), TW_OK);
        assert_i64_equal(view, minute >= -99);
    }
    assert_status(tw_add_at(late, tw_str("k"), 7, now, &view), TW_OK);
    assert_i64_equal(view, 107);
}

/* The window of `hourly` begins now, and its earliness_ms is an hour: so far a clock may be set back. */
TEST_WITH(a_clock_that_was_set_back_by_earliness_ms_is_accepted, begin, end, NULL) {
    int64_t view;
    rig_add(hourly(), "k", 1);
    save();
    fake_clock_advance_ms(&rig.clock, -TW_HOUR);
    start_again();
    tw_family *family = hourly();
    load();
    assert_status(tw_get_at(family, tw_str("k"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 1);
}

TEST_WITH(a_clock_that_was_set_back_further_is_refused, begin, end, NULL) {
    rig_add(hourly(), "k", 1);
    save();
    fake_clock_advance_ms(&rig.clock, -TW_HOUR - 1);
    start_again();
    tw_family *family = hourly();
    assert_refused(tw_load(rig.engine, path), TW_ERR_EARLY, "\"hourly\"");
    assert_i64_equal(rig_each(family, TW_NOW).counters, 0);
}

/* ---- sliding limits ---------------------------------------------------------------------------------------------- */

static struct rig twin;

static tw_family *sliding_family(struct rig *of, uint32_t parts, struct closed *closed) {
    tw_family_options options = rig_options("sliding", TW_WINDOW_ALIGNED, TW_HOUR);
    options.limit_shape = TW_SHAPE_SLIDING;
    options.sub_windows = parts;
    options.on_window_closed = note_closed;
    options.closed_ctx = closed;
    return rig_family_of(of, &options);
}

static void both_pass(int64_t ms, bool only_twin) {
    rig_pass(&twin, ms);
    if (only_twin)
        fake_clock_advance_ms(&rig.clock, ms);
    else
        rig_pass(&rig, ms);
}

static void ask_both(tw_family *family, tw_family *other, int64_t n) {
    tw_verdict here, there;
    char key[8];
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "k%d", i);
        tw_status want = tw_acquire(other, tw_str(key), n * i, 500, &there);
        assert_status(tw_acquire(family, tw_str(key), n * i, 500, &here), want);
        assert_i64_equal(here.used, there.used);
        assert_i64_equal(here.retry_after_ms, there.retry_after_ms);
        assert_i64_equal(here.reset_after_ms, there.reset_after_ms);
    }
}

/* Goal: a sliding limit decides in the second life as it would have in the first. Method: units in every window that
 * the limit looks at. A twin that does not restart is asked the same at every step, until all units have faded. During
 * the pause windows end. The hook gets no window again that it has had. */
static void follow_a_twin(uint32_t parts, int64_t pause_ms) {
    static struct closed closed, others; /* static: a test that fails leaves the engine open */
    closed = others = (struct closed){0};
    int64_t step_ms = TW_HOUR / (3 * (int64_t)parts) + 7;
    rig_open(&twin);
    tw_family *family = sliding_family(&rig, parts, &closed), *other = sliding_family(&twin, parts, &others);
    for (uint32_t step = 0; step < 5 * parts; step++) {
        ask_both(family, other, 30 + step % 7);
        both_pass(step_ms, false);
    }
    ask_both(family, other, 3);
    save();
    closed.calls -= (closed.flags & TW_CLOSED_PARTIAL) != 0;
    both_pass(pause_ms, true);
    start_again();
    family = sliding_family(&rig, parts, &closed);
    load();
    rig_settle(&rig);
    for (uint32_t step = 0; step < 8 * parts; step++) {
        ask_both(family, other, step < parts ? 0 : 11);
        both_pass(step_ms, false);
    }
    if (pause_ms == 0) assert_int_equal(closed.calls, others.calls);
    assert_int_equal(closed.flags, 0);
    rig_close(&twin);
}

TEST_WITH(a_sliding_limit_goes_on_as_its_twin_does, begin, end, NULL) {
    follow_a_twin(1, 0);
}
TEST_WITH(a_sliding_limit_goes_on_after_a_pause, begin, end, NULL) {
    follow_a_twin(1, TW_HOUR);
}
TEST_WITH(a_sliding_limit_of_many_windows_goes_on, begin, end, NULL) {
    follow_a_twin(TW_SUB_WINDOWS_MAX, 0);
}
TEST_WITH(a_sliding_limit_of_many_windows_goes_on_after_a_pause, begin, end, NULL) {
    follow_a_twin(8, 20 * TW_MINUTE);
}

/* Goal: a long restart leaves nothing of the limit. Only the last window, which no hook has had, is loaded. */
TEST_WITH(a_sliding_limit_forgets_what_is_over, begin, end, NULL) {
    static struct closed closed;
    closed = (struct closed){0};
    tw_family *family = sliding_family(&rig, 4, &closed);
    for (int i = 0; i < 5; i++) {
        acquire(family, "k", 1, 100, TW_OK);
        rig_pass(&rig, TW_HOUR / 4);
    }
    acquire(family, "k", 1, 100, TW_OK);
    save();
    fake_clock_advance_ms(&rig.clock, 2 * TW_HOUR);
    start_again();
    family = sliding_family(&rig, 4, &closed);
    load();
    assert_i64_equal(acquire(family, "k", 0, 100, TW_OK).used, 0);
    assert_i64_equal(stat_of(offsetof(tw_stats, load_skipped)), 4);
}

/* Goal: a window that the family holds already, without counts, gives its place to the loaded one. Method: a family
 * that was opened, and its window prepared, before that window ended. */
TEST_WITH(a_previous_window_that_is_there_already_is_replaced, begin, end, NULL) {
    static struct closed closed;
    closed = (struct closed){0};
    acquire(sliding_family(&rig, 1, &closed), "k", 60, 100, TW_OK);
    save();
    start_again();
    tw_family_options options = rig_options("sliding", TW_WINDOW_ALIGNED, TW_HOUR);
    options.limit_shape = TW_SHAPE_SLIDING;
    options.keys_expected = 1000;
    tw_family *family = rig_family_of(&rig, &options);
    rig_pass(&rig, TW_HOUR);
    load();
    assert_i64_equal(stat_of(offsetof(tw_stats, load_skipped)), 0);
    assert_i64_equal(acquire(family, "k", 1, 100, TW_OK).used, 61);
    rig_pass(&rig, 3 * TW_HOUR);
}

/* ---- what describes the old process ------------------------------------------------------------------------------ */

/* Goal: reserved units return, sold ones stay. Method: reservations that are sold, cancelled, open, and such that end
 * before and after tw_stop(), in an endless family and in a window; many, so that the heap of the book has depth. */
TEST_WITH(units_that_are_only_reserved_return, begin, end, NULL) {
    char token[TW_TOKEN_SIZE];
    tw_family *sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0), *day = rig_family(&rig, "day", TW_WINDOW_DAY, 0);
    for (uint32_t i = 0; i < 300; i++) {
        tw_family *family = i % 2 == 0 ? sale : day;
        uint32_t ttl_ms = i % 3 == 0 ? 50 : i % 3 == 1 ? 1000 : 100000 + i * 7919 % 1000;
        assert_status(tw_reserve(family, tw_str("sku"), 1, 1000, ttl_ms, tw_str(""), token, NULL), TW_OK);
        if (i % 5 == 0) assert_status(tw_reserve_confirm(rig.engine, token), TW_OK);
        if (i % 5 == 1) assert_status(tw_reserve_cancel(rig.engine, token), TW_OK);
    }
    rig_add(sale, "sku", 5);
    rig_pass(&rig, 100);
    stop();
    assert_status(tw_reserve_confirm(rig.engine, token), TW_ERR_CLOSED);
    fake_clock_advance_ms(&rig.clock, 2000);
    rig_run_turn(rig.engine); /* as the engine's own thread: it may not lose what expires now */
    save();
    start_again();
    sale = rig_family(&rig, "sale", TW_WINDOW_FOREVER, 0);
    day = rig_family(&rig, "day", TW_WINDOW_DAY, 0);
    load();
    assert_i64_equal(rig_get(sale, "sku"), 30 + 5);
    assert_i64_equal(rig_get(day, "sku"), 30);
    assert_status(tw_reserve_confirm(rig.engine, token), TW_ERR_UNKNOWN_TOKEN);
}

TEST_WITH(slots_in_use_and_gauges_end_with_the_process, begin, end, NULL) {
    tw_family_options options = rig_options("gauge", TW_WINDOW_FOREVER, 0);
    options.kind = TW_KIND_GAUGE;
    tw_family *slots = rig_family(&rig, "slots", TW_WINDOW_FOREVER, 0), *gauge = rig_family_of(&rig, &options);
    assert_status(tw_hold(slots, tw_str("user"), 1, NULL), TW_OK);
    rig_add(gauge, "connections", 12);
    rig_add(hourly(), "k", 3);
    save();
    start_again();
    slots = rig_family(&rig, "slots", TW_WINDOW_FOREVER, 0);
    gauge = rig_family_of(&rig, &options);
    tw_family *family = hourly();
    load();
    assert_i64_equal(rig_get(family, "k"), 3);
    assert_i64_equal(rig_get(gauge, "connections"), 0);
    assert_status(tw_hold(slots, tw_str("user"), 1, NULL), TW_OK);
}

/* ---- full tables ------------------------------------------------------------------------------------------------- */

static tw_family *bounded(uint64_t keys_max, uint32_t on_full) {
    tw_family_options options = rig_options("bounded", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = keys_max;
    options.on_full = on_full;
    return rig_family_of(&rig, &options);
}

static void count_keys(tw_family *family, int keys) {
    char key[16];
    for (int i = 0; i < keys; i++) {
        snprintf(key, sizeof key, "key %d", i);
        assert_true(tw_add(family, tw_str(key), 10, NULL) >= 0);
    }
}

TEST_WITH(the_overflow_counter_is_carried_over_and_takes_what_finds_no_room, begin, end, NULL) {
    count_keys(bounded(100, TW_ON_FULL_OVERFLOW), 130);
    save();
    start_again();
    tw_family *family = bounded(100, TW_ON_FULL_OVERFLOW);
    load();
    struct rig_seen seen = rig_each(family, TW_NOW);
    assert_i64_equal(seen.counters, 100);
    assert_i64_equal(seen.sum, 1000);
    assert_i64_equal(seen.overflow, 300);
    save();
    start_again();
    family = bounded(40, TW_ON_FULL_OVERFLOW);
    assert_status(tw_load(rig.engine, path), TW_OVERFLOWED);
    seen = rig_each(family, TW_NOW);
    assert_i64_equal(seen.counters, 40);
    assert_i64_equal(seen.sum, 400);
    assert_i64_equal(seen.overflow, 900);
}

/* Goal: all or nothing. Method: the last family of the file has no room; what came before it has no count after that,
 * and no window of a sliding limit has joined its family. */
TEST_WITH(without_room_no_count_is_loaded, begin, end, NULL) {
    static struct closed closed;
    closed = (struct closed){0};
    tw_family *sliding = sliding_family(&rig, 1, &closed);
    rig_add(sliding, "k", 50);
    rig_pass(&rig, TW_HOUR);
    rig_add(hourly(), "k", 3);
    rig_add(sliding, "k", 50);
    rig_add(rig_family(&rig, "forever", TW_WINDOW_FOREVER, 0), "k", -7);
    count_keys(bounded(200, TW_ON_FULL_REJECT), 130);
    save();
    start_again();
    sliding = sliding_family(&rig, 1, &closed);
    tw_family *some = hourly(), *forever = rig_family(&rig, "forever", TW_WINDOW_FOREVER, 0);
    tw_family *family = bounded(100, TW_ON_FULL_REJECT);
    assert_refused(tw_load(rig.engine, path), TW_ERR_FULL, "");
    struct rig_seen seen = rig_each(family, TW_NOW);
    assert_i64_equal(seen.sum + seen.overflow, 0);
    assert_i64_equal(rig_each(some, TW_NOW).sum, 0);
    assert_i64_equal(rig_each(forever, TW_NOW).sum, 0);
    assert_i64_equal(acquire(sliding, "k", 0, 100, TW_OK).used, 0);
}

int main(void) {
    return test_run();
}
