/* distinct_test.c -- distinct counts in one process. Each estimate is that of a plain array of registers to which the
 * same elements were added. Memory grows with the key and comes back. Windows, history and hooks are as for
 * counters.
 * Covers: engine/fast/distinct_fast.h, engine/limit/counted.c. */
#include "tests/unit/rig.h"
#include "tests/support/hll_twin.h"

#include "engine/turn/turn.h"

static struct rig rig;

static tw_family *distinct_family(const char *name, uint32_t window, int64_t window_ms) {
    tw_family_options options = rig_options(name, window, window_ms);
    options.kind = TW_KIND_DISTINCT;
    return rig_family_of(&rig, &options);
}

static int64_t get(tw_family *family, const char *key) {
    int64_t estimate = -1;
    assert_status(tw_distinct_get(family, tw_str(key), &estimate), TW_OK);
    return estimate;
}

static int64_t get_at(tw_family *family, const char *key, int64_t unix_ms) {
    int64_t estimate = -1;
    assert_status(tw_distinct_get_at(family, tw_str(key), unix_ms, &estimate), TW_OK);
    return estimate;
}

/* Adds the numbers from `from` to `to` - 1, here and to the twin. */
static void add_range(tw_family *family, const char *key, uint64_t from, uint64_t to, struct twin *twin) {
    for (uint64_t number = from; number < to; number++) {
        bool changed = number % 2 == 0;
        assert_status(tw_distinct_add(family, tw_str(key), twin_number(&number), &changed), TW_OK);
        assert_int_equal(changed, twin_add(twin, twin_number(&number)));
    }
}

/* ---- counting ---- */

RIG_TEST(an_estimate_is_that_of_the_registers_in_every_form) {
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR);
    static struct twin twin;
    memset(&twin, 0, sizeof twin);
    assert_i64_equal(get(family, "k"), 0);
    uint64_t added = 0;
    for (uint64_t upto = 1; upto < 40; upto++) {
        add_range(family, "k", added, upto, &twin);
        assert_i64_equal(get(family, "k"), twin_estimate(&twin));
        added = upto;
    }
    for (uint64_t upto = 45; upto < 200000; upto += upto / 8) {
        add_range(family, "k", added, upto, &twin);
        assert_i64_equal(get(family, "k"), twin_estimate(&twin));
        added = upto;
        if (upto % 3 == 0) rig_turn(&rig); /* what growth left behind is used again meanwhile */
    }
    add_range(family, "k", 0, 10000, &twin); /* once more: the state does not change */
    assert_i64_equal(get(family, "k"), twin_estimate(&twin));
    assert_i64_equal(get(family, "other"), 0);
}

RIG_TEST(elements_are_bytes_of_any_size) {
    tw_family *family = distinct_family("f", TW_WINDOW_FOREVER, 0);
    static unsigned char bytes[5000];
    static struct twin twin;
    memset(&twin, 0, sizeof twin);
    for (size_t size = 0; size < sizeof bytes; size += 1 + size / 5) {
        bool changed;
        assert_status(tw_distinct_add(family, tw_str("k"), tw_bytes(bytes, size), &changed), TW_OK);
        assert_int_equal(changed, twin_add(&twin, tw_bytes(bytes, size)));
    }
    bool changed = true;
    assert_status(tw_distinct_add(family, tw_str("k"), tw_bytes(NULL, 0), &changed), TW_OK);
    assert_false(changed); /* the element without bytes was there */
    assert_status(tw_distinct_add(family, tw_str("k"), tw_bytes(NULL, 3), &changed), TW_ERR_KEY);
    assert_true(strstr(tw_error_text(), "element") != NULL);
    assert_status(tw_distinct_add(family, tw_bytes("", 0), tw_str("e"), &changed), TW_ERR_KEY);
    assert_i64_equal(get(family, "k"), twin_estimate(&twin));
}

RIG_TEST(many_elements_count_as_one_by_one) {
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR);
    static uint64_t numbers[3000];
    static tw_key elements[3000];
    static struct twin twin;
    static const size_t sizes[] = {0, 1, 14, 127, 128, 129, 256, 257, 3000};
    memset(&twin, 0, sizeof twin);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t changed = 77, want = 0;
        for (size_t j = 0; j < sizes[i]; j++) {
            numbers[j] = i * 1000 + j;
            elements[j] = twin_number(&numbers[j]);
            want += twin_add(&twin, elements[j]);
        }
        assert_status(tw_distinct_add_many(family, tw_str("k"), elements, sizes[i], &changed), TW_OK);
        assert_int_equal(changed, want);
        assert_i64_equal(get(family, "k"), twin_estimate(&twin));
    }
    elements[5].data = NULL;
    size_t none = 77;
    assert_status(tw_distinct_add_many(family, tw_str("none"), elements, 0, &none), TW_OK);
    assert_int_equal(none, 0);
    assert_i64_equal(rig.engine->roster.first->current->keys, 1); /* no element, no key */
    assert_status(tw_distinct_add_many(family, tw_str("new"), elements, 10, NULL), TW_ERR_KEY);
    assert_i64_equal(get(family, "new"), 0);
}

RIG_TEST(adds_are_increments_of_the_statistics) {
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR);
    const tw_key elements[] = {tw_str("a"), tw_str("b"), tw_str("a")};
    assert_status(tw_distinct_add(family, tw_str("k"), tw_str("a"), NULL), TW_OK);
    assert_status(tw_distinct_add_many(family, tw_str("k"), elements, 3, NULL), TW_OK);
    assert_i64_equal(test_stat_of(rig.engine, increments), 4);
}

/* ---- windows ---- */

RIG_TEST(each_window_has_its_own_elements) {
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR);
    static struct twin first, second;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    add_range(family, "k", 0, 5000, &first);
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(get(family, "k"), 0);
    assert_i64_equal(get_at(family, "k", RIG_START_MS), twin_estimate(&first));
    add_range(family, "k", 4000, 4010, &second);
    assert_i64_equal(get(family, "k"), twin_estimate(&second));
    assert_i64_equal(get_at(family, "k", RIG_START_MS + TW_HOUR), twin_estimate(&second));
    assert_i64_equal(get_at(family, "none", RIG_START_MS), 0);
    rig_pass(&rig, TW_HOUR);
    int64_t estimate = 77;
    assert_status(tw_distinct_get_at(family, tw_str("k"), RIG_START_MS, &estimate), TW_ERR_LATE);
    assert_i64_equal(estimate, 77);
    assert_status(tw_distinct_get_at(family, tw_str("k"), INT64_MAX, &estimate), TW_ERR_RANGE);
}

RIG_TEST(elements_of_another_time_go_to_its_window) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.kind = TW_KIND_DISTINCT;
    options.lateness_ms = TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    static struct twin first, next;
    memset(&first, 0, sizeof first);
    memset(&next, 0, sizeof next);
    int64_t next_ms = RIG_START_MS + TW_HOUR;
    add_range(family, "k", 0, 100, &first);
    for (uint64_t number = 50; number < 3000; number++) {
        bool changed = number % 2 == 0;
        assert_status(tw_distinct_add_at(family, tw_str("k"), twin_number(&number), next_ms, &changed), TW_OK);
        assert_int_equal(changed, twin_add(&next, twin_number(&number)));
    }
    assert_i64_equal(get(family, "k"), twin_estimate(&first));
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(get(family, "k"), twin_estimate(&next));
    uint64_t late = 7777;
    (void)twin_add(&first, twin_number(&late));
    assert_status(tw_distinct_add_at(family, tw_str("k"), twin_number(&late), next_ms - 1, NULL), TW_OK);
    assert_i64_equal(get_at(family, "k", RIG_START_MS), twin_estimate(&first));
    rig_pass(&rig, TW_MINUTE);
    late = 8888;
    bool changed = true;
    tw_key element = twin_number(&late);
    assert_status(tw_distinct_add_at(family, tw_str("k"), element, next_ms - 1, &changed), TW_ERR_LATE);
    assert_status(tw_distinct_add_at(family, tw_str("k"), element, next_ms + 3 * TW_HOUR, &changed), TW_ERR_EARLY);
    assert_status(tw_distinct_add_at(family, tw_str("k"), element, INT64_MAX, &changed), TW_ERR_RANGE);
    assert_true(changed);
    assert_i64_equal(get_at(family, "k", RIG_START_MS), twin_estimate(&first));
    assert_i64_equal(test_stat_of(rig.engine, late_increments), 1);
}

RIG_TEST(history_is_packed_and_keeps_the_estimates) {
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR);
    static struct twin twins[300];
    char key[16];
    memset(twins, 0, sizeof twins);
    for (uint64_t i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "key %d", (int)i);
        add_range(family, key, i * 100000, i * 100000 + i * i / 60 + 1, &twins[i]);
    }
    int64_t bytes = test_stat_of(rig.engine, memory_bytes);
    rig_pass(&rig, TW_HOUR);
    for (int i = 0; i < 20; i++) rig_pass(&rig, 100);
    assert_i64_equal(test_stat_of(rig.engine, windows_packed), 1);
    assert_true(test_stat_of(rig.engine, memory_bytes) < bytes / 10);
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "key %d", i);
        assert_i64_equal(get_at(family, key, RIG_START_MS), twin_estimate(&twins[i]));
    }
    assert_int_equal(rig_each(family, RIG_START_MS).counters, 300);
}

static struct {
    int calls;
    struct rig_seen seen;
    int64_t of_k;
} told;

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    assert_int_equal(flags, 0);
    told.calls++;
    told.seen = rig_each(family, start_ms);
    told.of_k = get_at(family, "k", start_ms);
    return true;
}

RIG_TEST(a_hook_sees_the_estimates) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.kind = TW_KIND_DISTINCT;
    options.on_window_closed = on_closed;
    tw_family *family = rig_family_of(&rig, &options);
    static struct twin k, j;
    memset(&k, 0, sizeof k);
    memset(&j, 0, sizeof j);
    memset(&told, 0, sizeof told);
    add_range(family, "k", 0, 3000, &k);
    add_range(family, "j", 0, 12, &j);
    struct rig_seen open = rig_each(family, TW_NOW);
    assert_int_equal(open.counters, 2);
    assert_i64_equal(open.sum, twin_estimate(&k) + twin_estimate(&j));
    rig_pass(&rig, TW_HOUR);
    assert_int_equal(told.calls, 1);
    assert_int_equal(told.seen.counters, 2);
    assert_i64_equal(told.seen.sum, twin_estimate(&k) + twin_estimate(&j));
    assert_i64_equal(told.seen.overflow, 0);
    assert_i64_equal(told.of_k, twin_estimate(&k));
    rig_pass(&rig, TW_HOUR);
    assert_int_equal(told.calls, 1); /* nothing was added in the second hour */
}

RIG_TEST(a_key_from_first_lives_its_time) {
    tw_family *family = distinct_family("f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    static struct twin first, second;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    rig_pass(&rig, 50000);
    add_range(family, "k", 0, 100, &first);
    rig_pass(&rig, 59999);
    add_range(family, "k", 100, 3000, &first);
    assert_i64_equal(get(family, "k"), twin_estimate(&first));
    assert_i64_equal(rig_each(family, TW_NOW).sum, twin_estimate(&first));
    rig_pass(&rig, 1);
    assert_i64_equal(get(family, "k"), 0);
    add_range(family, "k", 0, 20, &second);
    assert_i64_equal(get(family, "k"), twin_estimate(&second));
    int64_t estimate;
    assert_status(tw_distinct_get_at(family, tw_str("k"), RIG_START_MS, &estimate), TW_ERR_MODE);
    assert_status(tw_distinct_add_at(family, tw_str("k"), tw_str("e"), RIG_START_MS, NULL), TW_ERR_MODE);
}

/* More work than one turn does: the turn stops in the middle of a leaf, and goes on there. */
RIG_TEST(many_large_sketches_are_sealed_over_several_turns) {
    enum { KEYS = 200 };
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR);
    static struct twin twins[KEYS];
    static uint64_t numbers[2000];
    static tw_key elements[2000];
    int64_t want = 0;
    memset(twins, 0, sizeof twins);
    for (uint64_t key = 0; key < KEYS; key++) {
        for (uint64_t i = 0; i < 2000; i++) {
            numbers[i] = key << 32 | i;
            elements[i] = twin_number(&numbers[i]);
            twin_add(&twins[key], elements[i]);
        }
        assert_status(tw_distinct_add_many(family, twin_number(&key), elements, 2000, NULL), TW_OK);
        want += twin_estimate(&twins[key]);
    }
    fake_clock_advance_ms(&rig.clock, TW_HOUR);
    rig_turn(&rig);
    assert_i64_equal(test_stat_of(rig.engine, windows_closed), 0); /* not in one turn */
    assert_i64_equal(rig_each(family, RIG_START_MS).sum, want);    /* in the middle of it */
    rig_settle(&rig);
    assert_i64_equal(test_stat_of(rig.engine, windows_closed), 1);
    assert_i64_equal(rig_each(family, RIG_START_MS).sum, want);
}

/* ---- memory ---- */

RIG_TEST(a_key_of_ten_elements_costs_less_than_200_bytes) {
    uint64_t keys = test_scale(50000);
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR);
    int64_t before = test_stat_of(rig.engine, memory_bytes);
    for (uint64_t key = 0; key < keys; key++) {
        for (uint64_t i = 0; i < 10; i++) {
            uint64_t element = key << 8 | i;
            assert_status(tw_distinct_add(family, twin_number(&key), twin_number(&element), NULL), TW_OK);
        }
    }
    int64_t bytes = test_stat_of(rig.engine, memory_bytes) - before;
    assert_true(bytes < 200 * (int64_t)keys);
}

RIG_TEST(a_large_sketch_costs_16_KiB_and_leaves_nothing_behind) {
    enum { KEYS = 50, EACH = 16500 };
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR);
    int64_t before = test_stat_of(rig.engine, memory_bytes);
    for (uint64_t key = 0; key < KEYS; key++) {
        for (uint64_t i = 0; i < 5000; i++)
            assert_status(tw_distinct_add(family, twin_number(&key), twin_number(&i), NULL), TW_OK);
    }
    for (int i = 0; i < 4; i++) rig_pass(&rig, 20);
    int64_t bytes = test_stat_of(rig.engine, memory_bytes) - before;
    assert_true(bytes <= KEYS * EACH + 8192); /* the window itself */
    rig_pass(&rig, 3 * TW_HOUR);
    for (int i = 0; i < 20; i++) rig_pass(&rig, 100);
    assert_true(test_stat_of(rig.engine, memory_bytes) <= before + 1024);
}

/* Turns while this thread is in a section: tw_turn() would refuse that. */
static void turn_inside(void) {
    for (int i = 0; i < 4; i++) {
        fake_clock_advance_ms(&rig.clock, 20);
        rig_run_turn(rig.engine);
    }
}

RIG_TEST(a_stalled_reader_keeps_the_pieces_that_growth_replaced) {
    tw_family *family = distinct_family("f", TW_WINDOW_FOREVER, 0);
    static struct twin twin;
    memset(&twin, 0, sizeof twin);
    add_range(family, "k", 0, 10, &twin);
    tw_enter(rig.engine);
    add_range(family, "k", 10, 3000, &twin);
    turn_inside();
    int64_t held = test_stat_of(rig.engine, memory_bytes);
    tw_leave(rig.engine);
    turn_inside();
    /* the pieces of 1, 2, 4 ... 128 lines */
    assert_i64_equal(held - test_stat_of(rig.engine, memory_bytes), 255 * 64);
    assert_i64_equal(get(family, "k"), twin_estimate(&twin));
}

/* An add that finds no memory changes nothing; the counted units stays; with memory, the same call counts. */
RIG_TEST(without_room_nothing_changes) {
    rig_close(&rig);
    rig_init(&rig);
    rig.options.memory_bytes_max = UINT64_C(1) << 20;
    rig_start(&rig);
    enum { KEYS = 70, ELEMENTS = 2400 };
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR);
    static struct twin twins[KEYS];
    int64_t full = 0, none = 0;
    memset(twins, 0, sizeof twins);
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        for (uint64_t key = 0; key < KEYS; key++) {
            bool changed = true;
            uint64_t number = i ^ key << 40;
            tw_status status = tw_distinct_add(family, twin_number(&key), twin_number(&number), &changed);
            if (status == TW_OK) assert_int_equal(changed, twin_add(&twins[key], twin_number(&number)));
            if (status != TW_OK) assert_status(status, TW_ERR_FULL);
            full += status == TW_ERR_FULL;
            if (key == 0 && i % 100 == 0) rig_turn(&rig);
        }
    }
    assert_true(full > 0);
    assert_i64_equal(test_stat_of(rig.engine, rejected_increments), full);
    for (uint64_t key = 0; key < KEYS; key++) {
        int64_t estimate = -1;
        assert_status(tw_distinct_get(family, twin_number(&key), &estimate), TW_OK);
        assert_i64_equal(estimate, twin_estimate(&twins[key]));
        none += estimate == 0;
    }
    assert_i64_equal(none, 0);
    assert_i64_equal(rig_each(family, TW_NOW).overflow, 0);
    rig_pass(&rig, 3 * TW_HOUR);
    for (int i = 0; i < 20; i++) rig_pass(&rig, 100);
    static struct twin anew;
    memset(&anew, 0, sizeof anew);
    add_range(family, "k", 0, ELEMENTS, &anew);
    assert_i64_equal(get(family, "k"), twin_estimate(&anew));
}

RIG_TEST(of_many_elements_those_without_room_are_refused) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.kind = TW_KIND_DISTINCT;
    options.memory_share = 8192; /* the window, its index, and sketches up to some hundred elements */
    tw_family *family = rig_family_of(&rig, &options);
    static uint64_t numbers[2000];
    static tw_key elements[2000];
    static struct twin twin;
    memset(&twin, 0, sizeof twin);
    for (size_t i = 0; i < 2000; i++) {
        numbers[i] = i;
        elements[i] = twin_number(&numbers[i]);
    }
    size_t changed = 0, again = 77;
    assert_status(tw_distinct_add_many(family, tw_str("k"), elements, 2000, &changed), TW_ERR_FULL);
    assert_true(changed > 100 && changed < 1500);
    int64_t estimate = get(family, "k");
    assert_true(estimate > 100 && estimate < 1500);
    assert_status(tw_distinct_add_many(family, tw_str("k"), elements, 2000, &again), TW_ERR_FULL);
    assert_int_equal(again, 0);
    assert_i64_equal(get(family, "k"), estimate);
    options.memory_share = 0;
    assert_status(tw_family_set(family, &options), TW_OK);
    assert_status(tw_distinct_add_many(family, tw_str("k"), elements, 2000, NULL), TW_OK);
    for (size_t i = 0; i < 2000; i++) twin_add(&twin, elements[i]);
    assert_i64_equal(get(family, "k"), twin_estimate(&twin));
}

/* ---- what it is not ---- */

static bool see_none(void *ctx, const tw_count *count) {
    return true;
}

#define assert_refused(call, word) \
    do { \
        assert_status((call), TW_ERR_MODE); \
        assert_true(strstr(tw_error_text(), (word)) != NULL); \
    } while (0)

RIG_TEST(calls_of_counters_are_refused) {
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR),
              *endless = distinct_family("e", TW_WINDOW_FOREVER, 0);
    tw_key key = tw_str("k");
    tw_verdict verdict;
    tw_reading reading;
    tw_status each;
    tw_pin *pin;
    int64_t value = 0;
    bool first;
    char token[TW_TOKEN_SIZE];
    assert_status(tw_distinct_add(family, key, tw_str("e"), NULL), TW_OK);
    assert_status(tw_distinct_add(endless, key, tw_str("e"), NULL), TW_OK);
    assert_refused(tw_add(family, key, 1, &value), "TW_KIND_DISTINCT");
    assert_refused(tw_add_at(family, key, 1, RIG_START_MS, &value), "TW_KIND_DISTINCT");
    assert_refused(tw_add_many(family, &key, NULL, 1, &value, &each), "TW_KIND_DISTINCT");
    assert_refused(tw_reset(family, key, &value), "TW_KIND_DISTINCT");
    assert_refused(tw_get(family, key, &value), "TW_KIND_DISTINCT");
    assert_refused(tw_get_at(family, key, RIG_START_MS, &value), "TW_KIND_DISTINCT");
    assert_refused(tw_read(family, key, &reading), "TW_KIND_DISTINCT");
    assert_refused(tw_acquire(family, key, 1, 10, &verdict), "TW_KIND_DISTINCT");
    assert_int_equal(verdict.allowed, 0);
    assert_refused(tw_acquire_some(family, key, 1, 10, &value, &verdict), "TW_KIND_DISTINCT");
    assert_refused(tw_acquire_all(&(tw_claim){family, key, 1, 10}, 1, &verdict), "TW_KIND_DISTINCT");
    assert_refused(tw_refund(family, key, 1, RIG_START_MS), "TW_KIND_DISTINCT");
    assert_refused(tw_once(family, key, &first), "kind");
    assert_refused(tw_reserve(family, key, 1, 10, 1000, tw_bytes(NULL, 0), token, &verdict), "kind");
    assert_refused(tw_hold(endless, key, 10, &verdict), "kind");
    assert_refused(tw_hold_release(endless, key), "kind");
    assert_status(tw_pin_open(family, key, &pin), TW_OK);
    assert_refused(tw_pin_add(pin, 1, &value), "TW_KIND_DISTINCT");
    tw_pin_close(pin);
    assert_i64_equal(get(family, "k"), 1);
    assert_i64_equal(get(endless, "k"), 1);
    assert_status(tw_each(family, TW_NOW, see_none, NULL), TW_OK);
}

RIG_TEST(other_families_have_no_distinct_counts) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_key element = tw_str("e");
    int64_t estimate = 77;
    bool changed = true;
    size_t many = 77;
    assert_refused(tw_distinct_add(family, tw_str("k"), element, &changed), "TW_KIND_DISTINCT");
    assert_refused(tw_distinct_add_many(family, tw_str("k"), &element, 1, &many), "TW_KIND_DISTINCT");
    assert_refused(tw_distinct_add_at(family, tw_str("k"), element, RIG_START_MS, &changed), "TW_KIND_DISTINCT");
    assert_refused(tw_distinct_get(family, tw_str("k"), &estimate), "TW_KIND_DISTINCT");
    assert_refused(tw_distinct_get_at(family, tw_str("k"), RIG_START_MS, &estimate), "TW_KIND_DISTINCT");
    assert_true(changed && many == 77 && estimate == 77);
    assert_i64_equal(rig_get(family, "k"), 0);
}

static void assert_option_refused(const tw_family_options *options, const char *word) {
    tw_family *family;
    char text[200];
    tw_family_options asked = *options;
    asked.error_text = text;
    asked.error_size = sizeof text;
    assert_status(tw_family_open(rig.engine, &asked, &family), TW_ERR_OPTIONS);
    assert_true(strstr(text, word) == text);
}

RIG_TEST(options_of_limits_are_refused) {
    tw_family_options plain = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR), options;
    plain.kind = TW_KIND_DISTINCT;
    options = plain, options.limit_mode = TW_LIMIT_HARD;
    assert_option_refused(&options, "limit_mode:");
    options = plain, options.limit_shape = TW_SHAPE_SLIDING;
    assert_option_refused(&options, "limit_shape:");
    options = plain, options.limit_shape = TW_SHAPE_GCRA;
    assert_option_refused(&options, "limit_shape:");
    options = plain, options.on_outage = TW_OUTAGE_FAIL_OPEN;
    assert_option_refused(&options, "on_outage:");
    options = plain, options.shadow = true;
    assert_option_refused(&options, "shadow:");
    options = plain, options.kind = 3;
    assert_option_refused(&options, "kind:");
}

RIG_TEST(a_stopped_engine_takes_no_elements) {
    tw_family *family = distinct_family("f", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_status(tw_distinct_add(family, tw_str("k"), tw_str("e"), NULL), TW_OK);
    assert_status(tw_stop(rig.engine), TW_OK);
    int64_t estimate;
    assert_status(tw_distinct_add(family, tw_str("k"), tw_str("f"), NULL), TW_ERR_CLOSED);
    assert_status(tw_distinct_get(family, tw_str("k"), &estimate), TW_ERR_CLOSED);
}
