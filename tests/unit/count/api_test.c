/* api_test.c -- counting and reading as tallywheel.h promises, wrong input included.
 * Covers: engine/count/call.h, engine/count/call.c, engine/count/lookup.c, engine/count/walk.c. */
#include "tests/unit/rig.h"

#include "engine/core/window_map.h"

#include <pthread.h>

static struct rig rig;

static bool count_visits(void *ctx, const tw_count *count) {
    return ++*(int *)ctx < 1000000;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* Goal: every size class holds its keys whole: two keys that differ in one byte, anywhere, are two counters. */
RIG_TEST(keys_of_every_size_are_kept_whole) {
    const size_t sizes[] = {1,  7,  8,  9,  15,  16,  17,  31,  32,   33,   63,  64,
                            65, 95, 96, 97, 224, 225, 480, 481, 1022, 1023, 1024};
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    unsigned char key[TW_KEY_SIZE_MAX];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(key, 'x', sizeof key);
        int64_t view;
        assert_status(tw_add(family, tw_bytes(key, sizes[i]), 1, &view), TW_OK);
        assert_i64_equal(view, 1);
        for (size_t at = 0; at < sizes[i]; at += 1 + at / 8) {
            key[at] ^= 1;
            assert_status(tw_get(family, tw_bytes(key, sizes[i]), &view), TW_OK);
            assert_i64_equal(view, 0);
            assert_status(tw_add(family, tw_bytes(key, sizes[i]), 10, &view), TW_OK);
            assert_i64_equal(view, 10);
            key[at] ^= 1;
        }
        assert_status(tw_add(family, tw_bytes(key, sizes[i]), 1, &view), TW_OK);
        assert_i64_equal(view, 2);
    }
}

RIG_TEST(keys_are_bytes_of_any_value) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    const tw_key keys[] = {tw_bytes("", 1),     tw_bytes("\0", 2),   tw_bytes("\r\n", 2),    tw_bytes("\xff\xff", 2),
                           tw_bytes("a\0b", 3), tw_bytes("a\0c", 3), tw_bytes("\xc3\x28", 2)};
    size_t count = sizeof keys / sizeof *keys;
    for (size_t i = 0; i < count; i++) assert_status(tw_add(family, keys[i], (int64_t)i + 1, NULL), TW_OK);
    for (size_t i = 0; i < count; i++) {
        int64_t view;
        assert_status(tw_get(family, keys[i], &view), TW_OK);
        assert_i64_equal(view, (int64_t)i + 1);
    }
    assert_i64_equal(rig_each(family, TW_NOW).counters, (int64_t)count);
}

RIG_TEST(keys_that_are_none_are_refused_by_every_call) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    static unsigned char longest[TW_KEY_SIZE_MAX + 1];
    const tw_key keys[] = {tw_bytes("", 0), tw_bytes(NULL, 0), tw_bytes(NULL, 5), tw_bytes(longest, sizeof longest),
                           tw_bytes(longest, SIZE_MAX)};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t value = 77;
        tw_reading reading;
        tw_verdict verdict;
        tw_status each = TW_OK;
        bool first = true;
        assert_status(tw_add(family, keys[i], 1, &value), TW_ERR_KEY);
        assert_status(tw_add_at(family, keys[i], 1, RIG_START_MS, &value), TW_ERR_KEY);
        assert_status(tw_add_many(family, &keys[i], NULL, 1, &value, &each), TW_ERR_KEY);
        assert_status(each, TW_ERR_KEY);
        assert_status(tw_get(family, keys[i], &value), TW_ERR_KEY);
        assert_status(tw_get_at(family, keys[i], RIG_START_MS, &value), TW_ERR_KEY);
        assert_status(tw_read(family, keys[i], &reading), TW_ERR_KEY);
        assert_status(tw_reset(family, keys[i], &value), TW_ERR_KEY);
        assert_status(tw_acquire(family, keys[i], 1, 10, &verdict), TW_ERR_KEY);
        assert_i64_equal(verdict.allowed, 0);
        assert_status(tw_once(family, keys[i], &first), TW_ERR_KEY);
        assert_i64_equal(value, 77);
    }
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    assert_i64_equal(test_stat_of(rig.engine, increments), 0);
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

RIG_TEST(deltas_reach_two_to_the_53_and_no_further) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_i64_equal(rig_add(family, "a", TW_DELTA_MAX), TW_DELTA_MAX);
    assert_i64_equal(rig_add(family, "b", -TW_DELTA_MAX), -TW_DELTA_MAX);
    const int64_t wrong[] = {TW_DELTA_MAX + 1, -TW_DELTA_MAX - 1, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < 4; i++) {
        assert_status(tw_add(family, tw_str("a"), wrong[i], NULL), TW_ERR_RANGE);
        assert_status(tw_add_at(family, tw_str("a"), wrong[i], RIG_START_MS, NULL), TW_ERR_RANGE);
        assert_status(tw_add(family, tw_str("new"), wrong[i], NULL), TW_ERR_RANGE);
    }
    assert_i64_equal(rig_get(family, "a"), TW_DELTA_MAX);
    assert_i64_equal(test_stat_of(rig.engine, entries), 2);
}

/* Goal: E3, E4. Sums reach +-(2^61 - 1) exactly and are refused before they pass it; small adds at the edge as well as
 * large ones.
 * Method: 256 of the largest deltas, then the rest, unit by unit. */
RIG_TEST(trap_e4_sums_reach_the_end_of_the_range_exactly) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    for (int64_t sign = -1; sign <= 1; sign += 2) {
        const char *key = sign < 0 ? "least" : "most";
        int64_t value = 0;
        for (int i = 0; i < 255; i++) value = rig_add(family, key, sign * TW_DELTA_MAX);
        assert_status(tw_add(family, tw_str(key), sign * TW_DELTA_MAX, NULL), TW_ERR_RANGE); /* 2^61: one too many */
        value = rig_add(family, key, sign * (TW_DELTA_MAX - 2));
        assert_i64_equal(value, sign * (TW_COUNT_MAX - 1));
        assert_status(tw_add(family, tw_str(key), sign * 2, NULL), TW_ERR_RANGE);
        assert_i64_equal(rig_add(family, key, sign), sign * TW_COUNT_MAX);
        assert_status(tw_add(family, tw_str(key), sign, NULL), TW_ERR_RANGE);
        assert_status(tw_add(family, tw_str(key), sign * TW_DELTA_MAX, NULL), TW_ERR_RANGE);
        assert_i64_equal(rig_get(family, key), sign * TW_COUNT_MAX);
        assert_i64_equal(rig_add(family, key, -sign), sign * (TW_COUNT_MAX - 1));
        assert_i64_equal(rig_add(family, key, 0), sign * (TW_COUNT_MAX - 1));
        int64_t last;
        assert_status(tw_reset(family, tw_str(key), &last), TW_OK);
        assert_i64_equal(last, sign * (TW_COUNT_MAX - 1));
        assert_i64_equal(rig_get(family, key), 0);
    }
}

RIG_TEST(trap_e3_negative_counts_are_counts) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    int64_t sum = 0;
    for (int i = 0; i < 1000; i++) {
        int64_t delta = i % 2 == 0 ? -1 : -i;
        assert_i64_equal(rig_add(family, "a", delta), sum += delta);
    }
    assert_i64_equal(rig_add(family, "a", -sum - 1), -1);
    assert_i64_equal(rig_add(family, "a", 1), 0);
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

RIG_TEST(counts_belong_to_the_window_of_the_clock) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    rig_add(family, "a", 1);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE - 1);
    assert_i64_equal(rig_add(family, "a", 1), 2);
    fake_clock_advance_ms(&rig.clock, 1);
    assert_i64_equal(rig_get(family, "a"), 0);
    assert_i64_equal(rig_add(family, "a", 5), 5);
    int64_t view;
    assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS + 100, &view), TW_OK);
    assert_i64_equal(view, 2);
    assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS + TW_MINUTE, &view), TW_OK);
    assert_i64_equal(view, 5);
}

RIG_TEST(event_times_land_in_their_own_window_or_are_refused) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = 30000;
    options.earliness_ms = 2 * TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE + 29999);
    int64_t view = 77, late = RIG_START_MS, end = RIG_START_MS + TW_MINUTE + 29999 + 2 * TW_MINUTE;
    assert_status(tw_add_at(family, tw_str("a"), 3, late, &view), TW_OK);
    assert_i64_equal(view, 3);
    assert_status(tw_add_at(family, tw_str("a"), 4, end, &view), TW_OK);
    assert_i64_equal(view, 4);
    assert_status(tw_add_at(family, tw_str("a"), 4, end + 1, &view), TW_ERR_EARLY);
    assert_status(tw_add_at(family, tw_str("a"), 4, late - 1, &view), TW_ERR_LATE);
    fake_clock_advance_ms(&rig.clock, 1);
    assert_status(tw_add_at(family, tw_str("a"), 3, late, &view), TW_ERR_LATE);
    assert_i64_equal(view, 4);
    assert_i64_equal(test_stat_of(rig.engine, late_increments), 2);
    assert_i64_equal(rig_get(family, "a"), 0);
}

/* Goal: E29. A time far ahead or outside of all calendars rolls nothing over. */
RIG_TEST(trap_e29_a_time_far_ahead_moves_nothing) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "a", 1);
    assert_status(tw_add_at(family, tw_str("a"), 1, INT64_C(4070908800000), NULL), TW_ERR_EARLY); /* 2099 */
    const int64_t none[] = {INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, INT64_C(253402300800000)};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        tw_status status = tw_add_at(family, tw_str("a"), 1, none[i], NULL);
        assert_true(status == TW_ERR_RANGE || status == TW_ERR_LATE || status == TW_ERR_EARLY);
        assert_true(tw_get_at(family, tw_str("a"), none[i], NULL) < 0);
    }
    rig_settle(&rig);
    assert_i64_equal(rig_add(family, "a", 1), 2);
}

RIG_TEST(windows_without_starts_know_no_event_times) {
    tw_family *families[] = {rig_family(&rig, "first", TW_WINDOW_FROM_FIRST, TW_MINUTE),
                             rig_family(&rig, "ever", TW_WINDOW_FOREVER, 0)};
    for (size_t i = 0; i < 2; i++) {
        int64_t value = 77;
        tw_key key = tw_str("a");
        tw_status each = TW_OK;
        int64_t at = RIG_START_MS;
        assert_status(tw_add_at(families[i], key, 1, at, &value), TW_ERR_MODE);
        assert_status(tw_get_at(families[i], key, at, &value), TW_ERR_MODE);
        assert_status(tw_add_many_at(families[i], &key, NULL, 1, &at, NULL, &each), TW_ERR_MODE);
        assert_status(each, TW_ERR_MODE);
        assert_i64_equal(value, 77);
    }
    int visits = 0;
    assert_status(tw_each(families[0], RIG_START_MS, count_visits, &visits), TW_ERR_MODE);
    assert_status(tw_each(families[1], RIG_START_MS, count_visits, &visits), TW_OK);
}

RIG_TEST(a_key_of_a_from_first_family_lives_its_length_to_the_millisecond) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    for (int64_t at = 0; at < 3 * TW_MINUTE; at += 7777) {
        int64_t born = rig_now(&rig);
        assert_i64_equal(rig_add(family, "a", 1), 1);
        fake_clock_advance_ms(&rig.clock, TW_MINUTE / 2);
        rig_turn(&rig);
        assert_i64_equal(rig_add(family, "a", 1), 2);
        fake_clock_advance_ms(&rig.clock, born + TW_MINUTE - 1 - rig_now(&rig));
        rig_turn(&rig);
        assert_i64_equal(rig_get(family, "a"), 2);
        fake_clock_advance_ms(&rig.clock, 1);
        assert_i64_equal(rig_get(family, "a"), 0);
        fake_clock_advance_ms(&rig.clock, 7777 % 1000);
    }
}

RIG_TEST(an_endless_family_forgets_nothing) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    rig_add(family, "a", 1);
    for (int i = 0; i < 100; i++) rig_pass(&rig, 30 * TW_DAY);
    assert_i64_equal(rig_add(family, "a", 1), 2);
    struct rig_seen seen = rig_each(family, TW_NOW);
    assert_i64_equal(seen.counters, 1);
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

RIG_TEST(many_adds_are_answered_each_by_itself) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.keys_max = 2;
    tw_family *family = rig_family_of(&rig, &options);
    const tw_key keys[] = {tw_str("a"), tw_str(""), tw_str("b"), tw_str("a"), tw_str("c"), tw_str("b")};
    const int64_t deltas[] = {1, 1, TW_DELTA_MAX + 1, 5, 7, 2};
    int64_t views[] = {77, 77, 77, 77, 77, 77};
    tw_status each[6];
    assert_status(tw_add_many(family, keys, deltas, 6, views, each), TW_ERR_RANGE);
    const tw_status want[] = {TW_OK, TW_ERR_KEY, TW_ERR_RANGE, TW_OK, TW_OK, TW_OVERFLOWED};
    const int64_t want_views[] = {1, 77, 77, 6, 7, 2};
    for (size_t i = 0; i < 6; i++) {
        assert_status(each[i], want[i]);
        assert_i64_equal(views[i], want_views[i]);
    }
    const tw_key again[] = {tw_str("a"), tw_str("zz"), tw_str("c")};
    assert_status(tw_add_many(family, again, NULL, 3, NULL, NULL), TW_OVERFLOWED);
    assert_i64_equal(rig_get(family, "a"), 7);
    assert_i64_equal(rig_get(family, "c"), 8);
    assert_status(tw_add_many(family, again, NULL, 0, NULL, NULL), TW_OK);
    assert_status(tw_add_many(family, NULL, NULL, 0, NULL, NULL), TW_OK);
    const int64_t times[] = {RIG_START_MS, RIG_START_MS - TW_HOUR, RIG_START_MS + 5 * TW_MINUTE};
    assert_status(tw_add_many_at(family, again, NULL, 3, times, NULL, each), TW_ERR_EARLY);
    assert_status(each[0], TW_OK);
    assert_status(each[1], TW_ERR_LATE);
    assert_status(each[2], TW_ERR_EARLY);
    assert_i64_equal(rig_each(family, TW_NOW).overflow, 3);
}

/* Goal: the sentence for many adds is that of the lowest status, whatever was refused later, in a group (8 keys and
 * more) as one by one. */
RIG_TEST(the_reason_for_many_adds_is_that_of_the_lowest_status) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = 1;
    options.on_full = TW_ON_FULL_REJECT;
    tw_family *family = rig_family_of(&rig, &options);
    for (int64_t step = TW_DELTA_MAX; step != 0; step /= 2)
        while (tw_add(family, tw_str("vast"), step, NULL) == TW_OK) continue;
    for (size_t count = 2; count <= 40; count++) {
        tw_key keys[40];
        tw_status each[40];
        for (size_t i = 0; i < count; i++) keys[i] = tw_str(i == 0 ? "vast" : "new");
        assert_status(tw_add_many(family, keys, NULL, count, NULL, each), TW_ERR_RANGE);
        assert_status(each[0], TW_ERR_RANGE);
        assert_status(each[count - 1], TW_ERR_FULL);
        assert_string_equal(tw_error_text(), "delta: the count would not be within +-TW_COUNT_MAX");
    }
}

RIG_TEST(a_batch_of_any_length_counts_as_single_adds_do) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    enum { COUNT = 1000 };
    static char text[COUNT][16];
    static tw_key keys[COUNT];
    static int64_t views[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(text[i], sizeof text[i], "%zu", i % 77);
        keys[i] = tw_str(text[i]);
    }
    assert_status(tw_add_many(family, keys, NULL, COUNT, views, NULL), TW_OK);
    for (size_t i = 0; i < COUNT; i++) assert_i64_equal(views[i], (int64_t)(i / 77) + 1);
    assert_i64_equal(rig_each(family, TW_NOW).sum, COUNT);
    assert_i64_equal(test_stat_of(rig.engine, increments), COUNT);
}

RIG_TEST(a_batch_by_event_time_answers_views_too) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    enum { COUNT = 100 };
    tw_key keys[COUNT];
    int64_t views[COUNT], times[COUNT], deltas[COUNT];
    tw_status each[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        keys[i] = tw_str(i % 3 == 0 ? "a" : "b");
        times[i] = RIG_START_MS + (i % 2 == 0 ? 0 : TW_MINUTE);
        deltas[i] = (int64_t)i + 1;
        views[i] = -77;
    }
    times[50] = RIG_START_MS - TW_HOUR; /* too late: its view stays as it is */
    assert_status(tw_add_many_at(family, keys, deltas, COUNT, times, views, each), TW_ERR_LATE);
    for (size_t i = 0; i < COUNT; i++) {
        int64_t sum = 0;
        for (size_t j = 0; j <= i; j++)
            if (j != 50 && (j % 3 == 0) == (i % 3 == 0) && times[j] == times[i]) sum += deltas[j];
        assert_status(each[i], i == 50 ? TW_ERR_LATE : TW_OK);
        assert_i64_equal(views[i], i == 50 ? -77 : sum);
    }
}

/* ---- out-parameters ---------------------------------------------------------------------------------------------- */

RIG_TEST(every_out_parameter_may_be_missing) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_key key = tw_str("a");
    int64_t at = RIG_START_MS;
    assert_status(tw_add(family, key, 1, NULL), TW_OK);
    assert_status(tw_add_at(family, key, 1, at, NULL), TW_OK);
    assert_status(tw_add_many(family, &key, NULL, 1, NULL, NULL), TW_OK);
    assert_status(tw_add_many_at(family, &key, NULL, 1, &at, NULL, NULL), TW_OK);
    assert_status(tw_get(family, key, NULL), TW_OK);
    assert_status(tw_get_at(family, key, at, NULL), TW_OK);
    assert_status(tw_read(family, key, NULL), TW_OK);
    assert_status(tw_acquire(family, key, 1, 10, NULL), TW_OK);
    assert_status(tw_once(family, key, NULL), TW_OK);
    assert_status(tw_reset(family, key, NULL), TW_OK);
    assert_i64_equal(rig_get(family, "a"), 0);
}

/* ---- reset, read ------------------------------------------------------------------------------------------------- */

RIG_TEST(reset_takes_away_what_it_answers) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    int64_t last = 77;
    assert_status(tw_reset(family, tw_str("a"), &last), TW_OK);
    assert_i64_equal(last, 0);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    rig_add(family, "a", 42);
    assert_status(tw_reset(family, tw_str("a"), &last), TW_OK);
    assert_i64_equal(last, 42);
    assert_i64_equal(rig_add(family, "a", 1), 1);
}

RIG_TEST(a_reading_without_redis_is_exact_and_known) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "a", -3);
    tw_reading reading;
    memset(&reading, 0x55, sizeof reading);
    assert_status(tw_read(family, tw_str("a"), &reading), TW_OK);
    tw_reading want = {.view = -3, .local = -3, .age_ms = TW_UNBOUNDED, .known = true};
    assert_i64_equal(reading.view, want.view);
    assert_i64_equal(reading.local, want.local);
    assert_i64_equal(reading.total, 0);
    assert_i64_equal(reading.unsent, 0);
    assert_i64_equal(reading.age_ms, TW_UNBOUNDED);
    assert_i64_equal(reading.error_bound, 0);
    assert_true(reading.known);
    for (size_t i = 0; i < 8; i++) assert_i64_equal(reading.reserved[i], 0);
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

struct adding_visit {
    tw_family *family;
    uint32_t seen[2000];
    int visits, limit;
};
/* Visits key numbers, and adds new keys and to old ones while it walks. */
static bool visit_and_add(void *ctx, const tw_count *count) {
    struct adding_visit *visit = ctx;
    char text[16];
    snprintf(text, sizeof text, "%.*s", (int)count->key.size, (const char *)count->key.data);
    int number = atoi(text);
    visit->seen[number]++;
    visit->visits++;
    if (visit->visits < 900) {
        snprintf(text, sizeof text, "%d", 1000 + visit->visits);
        rig_add(visit->family, text, 1);
        rig_add(visit->family, "7", 1);
        assert_true(rig_get(visit->family, "7") > 0);
    }
    return visit->visits < visit->limit;
}

/* Goal: E33. A key that is there throughout is visited exactly once, while the table grows under the walk. */
RIG_TEST(trap_e33_a_walk_sees_each_key_once_while_the_table_grows) {
    static struct adding_visit visit;
    memset(&visit, 0, sizeof visit);
    visit.limit = 1000000;
    visit.family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    char key[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(visit.family, key, 1);
    }
    assert_status(tw_each(visit.family, TW_NOW, visit_and_add, &visit), TW_OK);
    for (int i = 0; i < 1000; i++) assert_i64_equal(visit.seen[i], 1);
    for (int i = 1000; i < 2000; i++) assert_true(visit.seen[i] <= 1);
}

RIG_TEST(a_walk_stops_when_the_visitor_says_so) {
    static struct adding_visit visit;
    memset(&visit, 0, sizeof visit);
    visit.family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    char key[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(visit.family, key, 1);
    }
    for (int limit = 1; limit < 1000; limit = limit * 3 + 1) {
        visit.limit = limit;
        visit.visits = 0;
        assert_status(tw_each(visit.family, TW_NOW, visit_and_add, &visit), TW_OK);
        assert_i64_equal(visit.visits, limit);
    }
}

static bool check_fields(void *ctx, const tw_count *count) {
    const tw_count *want = ctx;
    assert_i64_equal(count->view, want->view);
    assert_i64_equal(count->local, want->local);
    assert_i64_equal(count->start_ms, want->start_ms);
    assert_i64_equal(count->end_ms, want->end_ms);
    assert_i64_equal(count->error, 0);
    for (size_t i = 0; i < 3; i++) assert_i64_equal(count->reserved[i], 0);
    return true;
}

RIG_TEST(a_count_names_its_window) {
    tw_family *hour = rig_family(&rig, "hour", TW_WINDOW_ALIGNED, TW_HOUR),
              *ever = rig_family(&rig, "ever", TW_WINDOW_FOREVER, 0);
    tw_family *first = rig_family(&rig, "first", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    fake_clock_advance_ms(&rig.clock, 1234);
    rig_add(hour, "a", 3);
    rig_add(ever, "a", 3);
    rig_add(first, "a", 3);
    tw_count want = {.view = 3, .local = 3, .start_ms = RIG_START_MS, .end_ms = RIG_START_MS + TW_HOUR};
    assert_status(tw_each(hour, TW_NOW, check_fields, &want), TW_OK);
    want.end_ms = RIG_START_MS + 1234 + TW_MINUTE;
    assert_status(tw_each(first, TW_NOW, check_fields, &want), TW_OK);
    want.start_ms = 0;
    want.end_ms = TW_UNBOUNDED;
    assert_status(tw_each(ever, TW_NOW, check_fields, &want), TW_OK);
}

RIG_TEST(a_walk_over_keys_of_the_longest_kind_sees_all) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    unsigned char key[TW_KEY_SIZE_MAX] = {0};
    for (int i = 0; i < 100; i++) {
        key[1000] = (unsigned char)i;
        assert_status(tw_add(family, tw_bytes(key, sizeof key - (size_t)(i % 3)), 1, NULL), TW_OK);
    }
    assert_i64_equal(rig_each(family, TW_NOW).counters, 100);
}

RIG_TEST(a_window_that_is_over_is_late_for_readers) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.history_ms = 3 * TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    int64_t view;
    rig_pass(&rig, 4 * TW_MINUTE - 1);
    assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 1);
    assert_i64_equal(rig_each(family, RIG_START_MS).counters, 1);
    rig_pass(&rig, 1);
    int visits = 0;
    assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS, &view), TW_ERR_LATE);
    assert_status(tw_each(family, RIG_START_MS, count_visits, &visits), TW_ERR_LATE);
    assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS + TW_MINUTE, &view), TW_OK); /* empty, and readable */
    assert_i64_equal(view, 0);
    assert_status(tw_get_at(family, tw_str("a"), RIG_START_MS + TW_DAY, &view), TW_OK);
    assert_i64_equal(view, 0);
    assert_i64_equal(visits, 0);
}

/* ---- full -------------------------------------------------------------------------------------------------------- */

static _Atomic bool walks_are_over;
static void *overflow_until_told(void *ctx) {
    tw_family *family = ctx;
    while (!atomic_load(&walks_are_over)) (void)tw_add(family, tw_str("stranger"), 1, NULL);
    return NULL;
}
static bool check_spill(void *ctx, const tw_count *count) {
    if (count->key.size == 0 && count->view != count->local) *(bool *)ctx = false;
    return true;
}

/* Goal: without Redis, view and local of the overflow counter are one number, while others add to it. */
RIG_TEST(the_overflow_counter_is_shown_as_it_was_at_one_moment) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.keys_max = 1;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "known", 1);
    pthread_t thread;
    bool is_one = true;
    atomic_store(&walks_are_over, false);
    assert_int_equal(pthread_create(&thread, NULL, overflow_until_told, family), 0);
    for (int i = 0; i < 300000; i++) assert_status(tw_each(family, TW_NOW, check_spill, &is_one), TW_OK);
    atomic_store(&walks_are_over, true);
    pthread_join(thread, NULL);
    assert_true(is_one);
}

RIG_TEST(a_full_family_overflows_or_rejects_and_known_keys_still_count) {
    for (uint32_t on_full = TW_ON_FULL_OVERFLOW; on_full <= TW_ON_FULL_REJECT; on_full++) {
        tw_family_options options =
            rig_options(on_full == TW_ON_FULL_REJECT ? "reject" : "overflow", TW_WINDOW_ALIGNED, TW_MINUTE);
        options.keys_max = 50;
        options.on_full = on_full;
        tw_family *family = rig_family_of(&rig, &options);
        char key[16];
        int64_t view = 77, spilt = 0;
        for (int i = 0; i < 200; i++) {
            snprintf(key, sizeof key, "%d", i);
            tw_status status = tw_add(family, tw_str(key), i, &view);
            if (i < 50) {
                assert_status(status, TW_OK);
            } else if (on_full == TW_ON_FULL_REJECT) {
                assert_status(status, TW_ERR_FULL);
                assert_i64_equal(view, 49);
            } else {
                assert_status(status, TW_OVERFLOWED);
                assert_i64_equal(view, spilt += i);
            }
        }
        assert_i64_equal(rig_add(family, "49", 1), 50);
        assert_i64_equal(rig_get(family, "199"), 0);
        struct rig_seen seen = rig_each(family, TW_NOW);
        assert_i64_equal(seen.counters, 50);
        assert_i64_equal(seen.overflow, spilt);
        fake_clock_advance_ms(&rig.clock, TW_MINUTE); /* each window has its own bound */
        assert_i64_equal(rig_add(family, "199", 1), 1);
        assert_i64_equal(rig_each(family, RIG_START_MS).overflow, spilt);
        fake_clock_advance_ms(&rig.clock, -TW_MINUTE);
        rig_close(&rig);
        rig_open(&rig);
    }
}

/* Goal: P6. When memory is used up, known keys count on, the sum over all counters stays exact, and the bound is kept.
 * Method: adds of ever new keys to a 1 MiB engine, every third to a known one. */
RIG_TEST(an_engine_without_memory_counts_on_and_loses_nothing) {
    rig_close(&rig);
    rig_init(&rig);
    rig.options.memory_bytes_max = UINT64_C(1) << 20;
    rig_start(&rig);
    tw_family *one = rig_family(&rig, "one", TW_WINDOW_ALIGNED, TW_MINUTE),
              *two = rig_family(&rig, "two", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    char key[100];
    int64_t sum = 0, overflowed = 0;
    for (int i = 0; i < 30000; i++) {
        snprintf(key, sizeof key, "%d%.*s", i % 3 == 0 ? i % 99 : i, i % 40,
                 "........................................");
        tw_status status = tw_add(i % 2 == 0 ? one : two, tw_str(key), i, NULL);
        assert_true(status == TW_OK || status == TW_OVERFLOWED);
        overflowed += status == TW_OVERFLOWED;
        sum += i;
    }
    assert_true(overflowed > 0);
    struct rig_seen first = rig_each(one, TW_NOW), second = rig_each(two, TW_NOW);
    assert_i64_equal(first.sum + first.overflow + second.sum + second.overflow, sum);
    tw_stats stats;
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    assert_true(stats.memory_bytes_high <= stats.memory_bytes_max);
    assert_i64_equal(stats.overflow_increments, overflowed);
    assert_i64_equal(stats.increments, 30000);
    rig_pass(&rig, 5 * TW_MINUTE);
    rig_pass(&rig, 100);
    assert_i64_equal(rig_add(one, "fresh", 1), 1);
    assert_i64_equal(rig_add(two, "fresh", 1), 1);
}

RIG_TEST(a_family_keeps_to_its_share_of_memory) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.memory_share = 100000;
    tw_family *family = rig_family_of(&rig, &options), *other = rig_family(&rig, "other", TW_WINDOW_ALIGNED, TW_HOUR);
    int64_t before = test_memory_bytes(rig.engine);
    char key[16];
    int64_t overflowed = 0;
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof key, "%d", i);
        overflowed += tw_add(family, tw_str(key), 1, NULL) == TW_OVERFLOWED;
    }
    assert_true(overflowed > 5000);
    assert_true(10000 - overflowed > 400);                               /* a hundred kilobytes hold at least that */
    assert_true(test_memory_bytes(rig.engine) - before <= 100000 + 128); /* the map of its windows is the engine's */
    struct rig_seen seen = rig_each(family, TW_NOW);
    assert_i64_equal(seen.sum + seen.overflow, 10000);
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(other, key, 1);
    }
}

/* ---- stopped ----------------------------------------------------------------------------------------------------- */

RIG_TEST(a_stopped_engine_refuses_every_call) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "a", 1);
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_status(tw_stop(rig.engine), TW_OK);
    int64_t value = 77, at = RIG_START_MS;
    tw_key key = tw_str("a");
    tw_reading reading;
    tw_verdict verdict;
    bool first = false;
    int visits = 0;
    assert_status(tw_add(family, key, 1, &value), TW_ERR_CLOSED);
    assert_status(tw_add(family, tw_str("new"), 1, &value), TW_ERR_CLOSED);
    assert_status(tw_add_at(family, key, 1, at, &value), TW_ERR_CLOSED);
    assert_status(tw_add_many(family, &key, NULL, 1, &value, NULL), TW_ERR_CLOSED);
    assert_status(tw_add_many_at(family, &key, NULL, 1, &at, NULL, NULL), TW_ERR_CLOSED);
    assert_status(tw_get(family, key, &value), TW_ERR_CLOSED);
    assert_status(tw_get_at(family, key, at, &value), TW_ERR_CLOSED);
    assert_status(tw_read(family, key, &reading), TW_ERR_CLOSED);
    assert_status(tw_reset(family, key, &value), TW_ERR_CLOSED);
    assert_status(tw_each(family, TW_NOW, count_visits, &visits), TW_ERR_CLOSED);
    assert_status(tw_acquire(family, key, 1, 10, &verdict), TW_ERR_CLOSED);
    assert_i64_equal(verdict.allowed, 0);
    assert_status(tw_once(family, key, &first), TW_ERR_CLOSED);
    assert_status(tw_flush(rig.engine, 0), TW_ERR_CLOSED);
    tw_family_options options = rig_options("g", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family *other;
    assert_status(tw_family_open(rig.engine, &options, &other), TW_ERR_CLOSED);
    assert_i64_equal(value, 77);
    assert_i64_equal(visits, 0);
    assert_i64_equal(test_stat_of(rig.engine, increments), 1);
}

RIG_TEST(waiting_calls_without_redis_say_so) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_key key = tw_str("a");
    int64_t total;
    assert_status(tw_flush(rig.engine, 0), TW_OK);
    assert_status(tw_fetch(family, &key, 1, 0, &total), TW_ERR_MODE); /* host-driven */
    rig_close(&rig);
    rig_init(&rig);
    rig.options.threads = TW_OWN_THREAD;
    rig_start(&rig);
    family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_status(tw_fetch(family, &key, 1, 0, &total), TW_ERR_REDIS);
    assert_status(tw_turn(rig.engine), TW_ERR_MODE);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct adder {
    pthread_t thread;
    tw_family *family;
    int64_t count;
};
static void *add_many_times(void *ctx) {
    struct adder *adder = ctx;
    char key[16];
    for (int64_t i = 0; i < adder->count; i++) {
        snprintf(key, sizeof key, "%d", (int)(i % 700));
        if (tw_add(adder->family, tw_str(key), 1, NULL) != TW_OK) abort();
    }
    return NULL;
}

/* Goal: P1. Two threads that insert and count the same new keys lose nothing, and no key is there twice (trap E12). */
RIG_TEST(trap_e12_two_threads_that_insert_the_same_keys_share_their_counters) {
    for (int round = 0; round < 20; round++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", round);
        tw_family *family = rig_family(&rig, name, TW_WINDOW_ALIGNED, TW_HOUR);
        struct adder adders[3];
        for (int i = 0; i < 3; i++) {
            adders[i] = (struct adder){.family = family, .count = 3500};
            assert_int_equal(pthread_create(&adders[i].thread, NULL, add_many_times, &adders[i]), 0);
        }
        for (int i = 0; i < 3; i++) pthread_join(adders[i].thread, NULL);
        struct rig_seen seen = rig_each(family, TW_NOW);
        assert_i64_equal(seen.counters, 700);
        assert_i64_equal(seen.sum, 3 * 3500);
        struct twi_generation *generation = twi_window_find(family, RIG_START_MS);
        assert_true(
            twi_table_is_valid(&rig.engine->arena, generation, &rig.engine->hashing.secret, rig.engine->hashing.fn));
    }
}
