/* top_test.c -- tw_top(): the heaviest keys of a window against a sorted list of all of them, and the walk in pieces
 * that it rests on. */
#include "tests/unit/hand_driver.h"

#include "engine/core/window_map.h"
#include "engine/count/walk.h"

static struct rig rig;

/* ---- the reference: all keys and counts, sorted ------------------------------------------------------------------ */

#define ROWS_MAX 40000u
struct row {
    unsigned char key[64];
    size_t size;
    int64_t count;
};
struct table {
    struct row rows[ROWS_MAX];
    size_t used;
};
static struct table want, got;

static int compare_rows(const void *left, const void *right) {
    const struct row *a = left, *b = right;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    int order = memcmp(a->key, b->key, a->size < b->size ? a->size : b->size);
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

static void put(struct table *table, tw_key key, int64_t count) {
    struct row *row = &table->rows[table->used++];
    assert_true(table->used <= ROWS_MAX && key.size <= sizeof row->key);
    memcpy(row->key, key.data, key.size);
    row->size = key.size;
    row->count = count;
}

static bool see(void *ctx, const tw_count *count) {
    assert_i64_equal(count->error, 0);
    put(&got, count->key, count->view);
    return true;
}

static bool see_all(void *ctx, const tw_count *count) {
    if (count->key.size != 0) put(&want, count->key, count->view);
    return true;
}

/* tw_top() shows the first n rows of what is wanted, in that order. */
static void check_top(tw_family *family, int64_t at_ms, size_t n) {
    got.used = 0;
    assert_status(tw_top(family, n, at_ms, see, NULL), TW_OK);
    assert_i64_equal(got.used, n < want.used ? n : want.used);
    for (size_t i = 0; i < got.used; i++) {
        assert_i64_equal(got.rows[i].count, want.rows[i].count);
        assert_i64_equal(got.rows[i].size, want.rows[i].size);
        assert_memory_equal(got.rows[i].key, want.rows[i].key, want.rows[i].size);
    }
}

static void check_tops(tw_family *family, int64_t at_ms) {
    qsort(want.rows, want.used, sizeof want.rows[0], compare_rows);
    static const size_t numbers[] = {1, 2, 10, 999, 5000, 10000};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) check_top(family, at_ms, numbers[i]);
}

/* The window's counts become what is wanted. */
static void want_each(tw_family *family, int64_t at_ms) {
    want.used = 0;
    assert_status(tw_each(family, at_ms, see_all, NULL), TW_OK);
}

/* ---- exactness --------------------------------------------------------------------------------------------------- */

#define NUMBERS 30000u
static int64_t counts[NUMBERS];

/* A key that holds its number: of 4 to 60 bytes, many of which begin alike. */
static tw_key key_of(uint32_t number, unsigned char *bytes) {
    size_t size = 4 + number % 57;
    memset(bytes, 'k', size);
    for (int i = 0; i < 4; i++) bytes[size - 1 - (size_t)i] = (unsigned char)(number >> 8 * i);
    return tw_bytes(bytes, size);
}

static void add_number(tw_family *family, uint32_t number) {
    unsigned char bytes[64];
    assert_status(tw_add(family, key_of(number, bytes), 1, NULL), TW_OK);
    counts[number]++;
}

static uint32_t draw(struct test_prng *prng, int stream, uint32_t step, uint32_t steps) {
    uint32_t bound = 1u << test_prng_below(prng, 14); /* about Zipf's law: each power of two is as likely */
    if (stream == 0) return (uint32_t)test_prng_below(prng, bound);
    if (stream == 1) return (uint32_t)test_prng_below(prng, NUMBERS);
    return (uint32_t)(test_prng_below(prng, bound) + (uint64_t)step * (NUMBERS - (1u << 14)) / steps);
}

/* Goal: on zipf, uniform and drifting streams tw_top() answers what sorting all counts answers, for small and large n;
 * and the same again once the window is packed. */
TEST(it_agrees_with_a_sorted_list_on_each_kind_of_stream) {
    const uint32_t steps = 60000;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int stream = 0; stream < 3; stream++) {
        rig_open(&rig);
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
        memset(counts, 0, sizeof counts);
        for (uint32_t step = 0; step < steps; step++) add_number(family, draw(&prng, stream, step, steps));
        want.used = 0;
        for (uint32_t number = 0; number < NUMBERS; number++) {
            unsigned char bytes[64];
            if (counts[number] != 0) put(&want, key_of(number, bytes), counts[number]);
        }
        check_tops(family, TW_NOW);
        rig_pass(&rig, TW_HOUR);
        assert_true(twi_generation_is_packed(twi_window_find(family, RIG_START_MS)));
        check_tops(family, RIG_START_MS);
        rig_close(&rig);
    }
}

static bool join(void *ctx, const tw_count *count) {
    char *text = ctx;
    snprintf(text + strlen(text), 16, "%.*s%c%lld ", (int)count->key.size, (const char *)count->key.data,
             ((const char *)count->key.data)[count->key.size - 1] == '\0' ? '0' : '=', (long long)count->view);
    return true;
}
#define assert_top(family, at_ms, n, text) \
    do { \
        char joined[256] = ""; \
        assert_status(tw_top((family), (n), (at_ms), join, joined), TW_OK); \
        assert_string_equal(joined, (text)); \
    } while (0)

RIG_TEST(equal_counts_come_by_key_byte_by_byte) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    static const char *const keys[] = {"b", "a", "abcdefghij", "abcdefghi", "\xff", "ab", "B"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) rig_add(family, keys[i], 5);
    assert_status(tw_add(family, tw_bytes("a\0", 2), 5, NULL), TW_OK);
    rig_add(family, "light", 4);
    rig_add(family, "zero", 0);
    rig_add(family, "negative", -7);
    assert_top(family, TW_NOW, 100, "B=5 a=5 a05 ab=5 abcdefghi=5 abcdefghij=5 b=5 \xff=5 light=4 zero=0 negative=-7 ");
    assert_top(family, TW_NOW, 3, "B=5 a=5 a05 ");
}

static bool sizes_fall(void *ctx, const tw_count *count) {
    int64_t *last = ctx;
    assert_i64_equal(count->view, *last);
    assert_i64_equal(count->key.size, *last);
    for (size_t i = 0; i < count->key.size; i++) assert_int_equal(((const char *)count->key.data)[i], 'x');
    return --*last > 1000;
}

/* Goal: the longest keys take the places of short ones, whole; the visitor ends it. */
RIG_TEST(long_keys_take_the_places_of_short_ones) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    static unsigned char key[TW_KEY_SIZE_MAX];
    memset(key, 'x', sizeof key);
    for (size_t size = 1; size <= sizeof key; size++)
        assert_status(tw_add(family, tw_bytes(key, size), (int64_t)size, NULL), TW_OK);
    int64_t last = TW_KEY_SIZE_MAX;
    assert_status(tw_top(family, 100, TW_NOW, sizes_fall, &last), TW_OK);
    assert_i64_equal(last, 1000);
}

TEST(views_count_not_only_what_was_added_here) {
    struct rig synced;
    hand_open(&synced);
    tw_family *family = rig_family(&synced, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    rig_add(family, "elsewhere", 1);
    hand_collect(10);
    hand_acknowledge(50);
    rig_add(family, "here", 10);
    assert_top(family, TW_NOW, 10, "elsewhere=50 here=10 ");
    hand->settle_at_turns = true;
    rig_close(&synced);
}

/* ---- windows of every kind --------------------------------------------------------------------------------------- */

RIG_TEST(a_family_from_first_shows_the_lives_that_go_on) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    rig_add(family, "old", 9);
    rig_pass(&rig, 40000);
    rig_add(family, "young", 3);
    assert_top(family, TW_NOW, 10, "old=9 young=3 ");
    rig_pass(&rig, 30000);
    rig_add(family, "old", 1);
    assert_top(family, TW_NOW, 10, "young=3 old=1 ");
    assert_status(tw_top(family, 10, rig_now(&rig), join, NULL), TW_ERR_MODE);
}

TEST(with_idle_eviction_a_key_of_both_generations_comes_once) {
    struct rig synced;
    hand_open(&synced);
    tw_family_options options = rig_options("f", TW_WINDOW_FOREVER, 0);
    options.on_full = TW_ON_FULL_EVICT_IDLE;
    options.idle_ms = 1000;
    tw_family *family = rig_family_of(&synced, &options);
    hand->settle_at_turns = true;
    rig_turn(&synced);
    rig_add(family, "both", 5);
    rig_add(family, "idle", 7);
    fake_clock_advance_ms(&synced.clock, 1000);
    for (int i = 0; i < 3; i++) rig_turn(&synced);
    rig_add(family, "both", 4);
    rig_add(family, "new", 8);
    want_each(family, TW_NOW);
    assert_i64_equal(want.used, 3);
    check_tops(family, TW_NOW);
    assert_i64_equal(want.rows[0].count, 9);
    rig_close(&synced);
}

static bool never(void *ctx, const tw_count *count) {
    (void)ctx, (void)count;
    fail_msg("a refused call shows nothing");
    return false;
}

RIG_TEST(what_cannot_be_asked_is_refused_by_name) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    rig_add(family, "a", 1);
    assert_status(tw_top(family, 0, TW_NOW, never, NULL), TW_ERR_RANGE);
    assert_non_null(strstr(tw_error_text(), "n: "));
    assert_status(tw_top(family, 10001, TW_NOW, never, NULL), TW_ERR_RANGE);
    assert_status(tw_top(family, SIZE_MAX, TW_NOW, never, NULL), TW_ERR_RANGE);
    assert_status(tw_top(family, 1, INT64_MAX, never, NULL), TW_ERR_RANGE);
    assert_non_null(strstr(tw_error_text(), "unix_ms: "));
    assert_top(family, TW_NOW, 10000, "a=1 ");
    assert_status(tw_top(family, 1, RIG_START_MS - TW_MINUTE * 100, never, NULL), TW_ERR_LATE);
    assert_status(tw_top(family, 1, RIG_START_MS + TW_MINUTE, never, NULL), TW_OK); /* no unit was counted there */
    tw_family_options options = rig_options("g", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.limit_shape = TW_SHAPE_GCRA;
    tw_family *gcra = rig_family_of(&rig, &options);
    assert_status(tw_top(gcra, 1, TW_NOW, never, NULL), TW_ERR_MODE);
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_status(tw_top(family, 1, TW_NOW, never, NULL), TW_ERR_CLOSED);
}

/* Goal: a window that is gone is refused; one in history is shown; from the hook the window that ended is shown. */
RIG_TEST(a_window_is_shown_until_it_is_gone) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.history_ms = 2 * TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    rig_pass(&rig, TW_MINUTE);
    rig_add(family, "b", 2);
    assert_top(family, RIG_START_MS, 10, "a=1 ");
    assert_top(family, TW_NOW, 10, "b=2 ");
    rig_pass(&rig, 2 * TW_MINUTE);
    assert_status(tw_top(family, 10, RIG_START_MS, never, NULL), TW_ERR_LATE);
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

#define MANY 20000u
struct pieces {
    tw_family *family;
    uint32_t takes, rests, most; /* of the piece at hand; pieces; the largest piece */
    uint8_t seen[MANY];
    int64_t sum, bytes_held;
    void (*between)(struct pieces *pieces);
};

static bool take_piece(void *ctx, const tw_count *count) {
    struct pieces *pieces = ctx;
    assert_true(twi_thread_here()->depth == 1);
    pieces->seen[atoi((const char *)count->key.data)]++;
    pieces->sum += count->view;
    if (++pieces->takes > pieces->most) pieces->most = pieces->takes;
    return true;
}

static bool rest_of_piece(void *ctx) {
    struct pieces *pieces = ctx;
    assert_true(twi_thread_here()->depth == 0); /* reclamation is not delayed here */
    pieces->takes = 0;
    pieces->rests++;
    pieces->between(pieces);
    return true;
}

static void add_many(tw_family *family) {
    char key[16];
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "%05u", i);
        rig_add(family, key, i);
    }
}

static void check_pieces(tw_family *family, int64_t at_ms, void (*between)(struct pieces *pieces)) {
    static struct pieces pieces;
    memset(&pieces, 0, sizeof pieces);
    pieces.family = family;
    pieces.between = between;
    const struct twi_walker walker = {.ctx = &pieces, .take = take_piece, .rest = rest_of_piece};
    assert_status(twi_walk(family, at_ms, &walker), TW_OK);
    for (uint32_t i = 0; i < MANY; i++) assert_int_equal(pieces.seen[i], 1);
    assert_i64_equal(pieces.sum, (int64_t)MANY * (MANY - 1) / 2);
    assert_true(pieces.rests > 5 && pieces.most <= 2048);
}

static void nothing_happens(struct pieces *pieces) {
}

/* The window ends, is sealed, packed, and later gone. */
static void hours_pass(struct pieces *pieces) {
    rig_pass(&rig, TW_HOUR);
    for (int i = 0; i < 20; i++) rig_pass(&rig, 5);
    if (pieces->rests == 5) { /* it left the map, but its memory is still there */
        assert_true(twi_window_find(pieces->family, RIG_START_MS) == NULL);
        assert_true(test_memory_bytes(rig.engine) > (int64_t)MANY * 8);
    }
}

/* Goal: a walk looks at 2048 records at most in one section, through a table and through a packed form; a window that
 * ends, is packed and is dropped between two pieces is walked to its end, each key once, and its memory is given back
 * then. */
RIG_TEST(a_walk_in_pieces_outlives_the_window) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_many(family);
    check_pieces(family, TW_NOW, nothing_happens);
    check_pieces(family, RIG_START_MS, hours_pass); /* it began in the table */
    for (int i = 0; i < 20; i++) rig_pass(&rig, 5);
    assert_true(test_memory_bytes(rig.engine) < 4000);
}

RIG_TEST(a_walk_in_pieces_outlives_the_packed_window) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_many(family);
    rig_pass(&rig, TW_HOUR);
    assert_true(twi_generation_is_packed(twi_window_find(family, RIG_START_MS)));
    check_pieces(family, RIG_START_MS, nothing_happens);
    check_pieces(family, RIG_START_MS, hours_pass);
    for (int i = 0; i < 20; i++) rig_pass(&rig, 5);
    assert_true(test_memory_bytes(rig.engine) < 4000);
}
