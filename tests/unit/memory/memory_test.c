/* memory_test.c -- whatever happened before, free memory can be used: by limiters after floods, by windows whose keys
 * change, and after families, windows and reservations of all kinds. Fake clock, turns by hand. */
#include "tests/unit/rig.h"

#define MIB (INT64_C(1) << 20)

static struct rig rig;

static void start(int64_t bytes) {
    rig_init(&rig);
    rig.options.memory_bytes_max = (uint64_t)bytes;
    rig_start(&rig);
}
static int stop(void **state) {
    if (rig.engine != NULL) rig_close(&rig);
    rig.engine = NULL;
    return 0;
}

static tw_family *open_family(const char *name, int64_t window_ms, uint32_t on_full) {
    tw_family_options options = rig_options(name, window_ms != 0 ? TW_WINDOW_ALIGNED : TW_WINDOW_FOREVER, window_ms);
    tw_family *family;
    options.history_ms = window_ms != 0 ? TW_NONE : 0;
    options.on_full = on_full;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    return family;
}

/* The key of so many bytes that number `i` stands for. */
static tw_key key_of(uint64_t i, size_t size) {
    static char text[1025];
    int digits = snprintf(text, sizeof text, "%llu.", (unsigned long long)i);
    if (size < (size_t)digits) size = (size_t)digits;
    memset(text + digits, 'k', size - (size_t)digits);
    return tw_bytes(text, size);
}

/* Keys that find room before the first is refused. */
static uint64_t fill(tw_family *family, size_t size) {
    uint64_t i = 0;
    while (tw_add(family, key_of(i, size), 1, NULL) == TW_OK) i++;
    return i;
}

static void turns(int count) {
    while (count-- != 0) rig_turn(&rig);
}

/* Goal: a limiter of 10 a minute is flooded with names of various lengths. One window later, every user is held to 10
 * again.
 * Method: windows that are filled with names of one length until there is no room; after some of them, 2,000 users. */
TEST_WITH(within_a_window_after_a_flood_everybody_is_held_to_the_limit_again, NULL, stop, NULL) {
    static const size_t sizes[] = {4, 30, 33, 64, 100, 200, 300, 500, 700, 1024};
    start(2 * MIB);
    tw_family *logins = open_family("logins", TW_MINUTE, TW_ON_FULL_OVERFLOW);
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int flood = 0, floods = test_is_slow() ? 12 : 30; flood < floods; flood++) {
        size_t size = sizes[test_prng_below(&prng, sizeof sizes / sizeof *sizes)];
        tw_verdict verdict;
        for (uint64_t i = 0;; i++) {
            assert_status(tw_acquire(logins, key_of(i, size), 1, 10, &verdict), TW_OK);
            if (verdict.decided_by == TW_BY_FULL) break;
            if (i % 1000 == 0 && test_prng_below(&prng, 2) == 0) turns(1);
        }
        fake_clock_advance_ms(&rig.clock, TW_MINUTE);
        turns(30);
        if (flood % 3 != 2) continue;
        for (uint64_t user = 0; user < 2000; user++) {
            for (int call = 0; call < 10; call++) {
                assert_status(tw_acquire(logins, key_of(user, 12), 1, 10, &verdict), TW_OK);
                assert_true(verdict.decided_by != TW_BY_FULL);
            }
            assert_status(tw_acquire(logins, key_of(user, 12), 1, 10, &verdict), TW_DENIED);
        }
        fake_clock_advance_ms(&rig.clock, TW_MINUTE);
        turns(30);
    }
}

/* Goal: windows that use at most 60 % of the memory never overflow, whatever lengths their keys have had.
 * Method: a day after the other, each filled to 60 % with keys of lengths that drift from window to window, some of
 * them mixed. */
TEST_WITH(windows_of_drifting_key_lengths_do_not_overflow, NULL, stop, NULL) {
    start(MIB);
    tw_family *days = open_family("days", TW_DAY, TW_ON_FULL_REJECT);
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    size_t size = 8;
    for (uint64_t day = 0; day < test_scale(60); day++) {
        for (uint64_t i = 0; test_memory_bytes(rig.engine) < MIB * 6 / 10; i++)
            assert_status(tw_add(days, key_of(i, i % 5 == 0 ? 16 + i % 300 : size), 1, NULL), TW_OK);
        size = test_prng_below(&prng, 10) == 0 ? 4 + test_prng_below(&prng, 1000) : size + test_prng_below(&prng, 20);
        if (size > 1000) size = 8;
        fake_clock_advance_ms(&rig.clock, TW_DAY);
        turns(12);
    }
    assert_i64_equal(test_stat_of(rig.engine, rejected_increments), 0);
}

/* A life of families, windows, key lengths and reservations: one step of it. */
struct life {
    struct test_prng prng;
    tw_family *families[6];
    uint64_t next;
    char token[TW_TOKEN_SIZE];
};

static void live(struct life *life) {
    static const int64_t windows[] = {0, 1000, 7000, TW_MINUTE, TW_HOUR};
    struct test_prng *prng = &life->prng;
    uint32_t at = (uint32_t)test_prng_below(prng, 6);
    char name[2] = {(char)('a' + at), 0};
    if (life->families[at] == NULL) {
        life->families[at] = open_family(name, windows[test_prng_below(prng, 5)], TW_ON_FULL_OVERFLOW);
    } else if (test_prng_below(prng, 12) == 0) {
        assert_status(tw_family_close(life->families[at]), TW_OK);
        life->families[at] = NULL;
        turns(20); /* its name is free again when it is gone */
    } else if (test_memory_bytes(rig.engine) < 4 * MIB * 2 / 3) {
        size_t size = test_prng_below(prng, 3) == 0 ? 1 + test_prng_below(prng, 1000) : 1 + test_prng_below(prng, 40);
        for (uint64_t left = test_prng_below(prng, 1500); left != 0; left--)
            (void)tw_add(life->families[at], key_of(life->next++ % 40000, size), 1, NULL);
        for (uint64_t left = test_prng_below(prng, 200); left != 0; left--)
            (void)tw_reserve(life->families[at], key_of(left, 20), 1, 1000000,
                             1 + (uint32_t)test_prng_below(prng, 5000), tw_bytes(NULL, 0), life->token, NULL);
    }
    fake_clock_advance_ms(&rig.clock, (int64_t)test_prng_below(prng, 3000));
    turns(2);
}

/* Goal: at any moment of any such life, keys of any length can use at least 85 % of the free memory, or all but 64 KiB.
 * Method: now and then a family is opened and filled until a key is refused. The memory that it took is compared with
 * the memory that was free: an allocator that never fragments would give all of it. */
TEST_WITH(of_what_is_free_85_in_100_can_be_had_after_any_history, NULL, stop, NULL) {
    static const size_t sizes[] = {8, 60, 200, 1000};
    start(4 * MIB);
    struct life life = {.next = 0};
    test_prng_seed(&life.prng, test_seed());
    for (uint64_t step = 0; step < test_scale(600); step++) {
        live(&life);
        if (step % 20 != 19) continue;
        int64_t before = test_memory_bytes(rig.engine), left = 4 * MIB - before;
        assert_i64_equal(test_stat_of(rig.engine, memory_free_bytes), left);
        assert_true(test_stat_of(rig.engine, memory_usable_bytes) <= left);
        tw_family *probe = open_family("probe", 0, TW_ON_FULL_REJECT);
        size_t size = sizes[test_prng_below(&life.prng, 4)];
        uint64_t keys = fill(probe, size);
        int64_t had = test_memory_bytes(rig.engine) - before;
        if (had < left / 100 * 85 && left - had > TWI_SEGMENT_BYTES)
            fail_msg("step %llu: %lld of %lld free bytes were had, by %llu keys of %zu bytes", (unsigned long long)step,
                     (long long)had, (long long)left, (unsigned long long)keys, size);
        assert_status(tw_family_close(probe), TW_OK);
        turns(20);
    }
}

/* Goal: E2. The forecast of the next window takes nothing that counters of this one still need, and keeps nothing
 * unfinished.
 * Method: windows filled to various degrees, turns in the middle, then as many late keys as there were: as many of them
 * find room as without those turns, but for what chance does to an index that is nearly full. */
TEST_WITH(a_forecast_takes_no_memory_from_living_counters, NULL, stop, NULL) {
    for (int64_t tenths = 3; tenths <= 9; tenths += test_is_slow() ? 3 : 1) {
        uint64_t late[2];
        for (int with_turns = 0; with_turns < 2; with_turns++) {
            start(4 * MIB);
            tw_family *family = open_family("f", 10000, TW_ON_FULL_REJECT);
            uint64_t i = 0, before;
            while (test_memory_bytes(rig.engine) < 4 * MIB * tenths / 10)
                assert_status(tw_add(family, key_of(i++, 12), 1, NULL), TW_OK);
            fake_clock_advance_ms(&rig.clock, 5100);
            if (with_turns != 0) turns(200);
            late[with_turns] = 0; /* the first refusal may come early: a leaf of the index is full by chance */
            for (before = i; i < 2 * before; i++) late[with_turns] += tw_add(family, key_of(i, 12), 1, NULL) == TW_OK;
            (void)stop(state);
        }
        uint64_t chance = late[0] / 10 < TWI_SEGMENT_LINES ? TWI_SEGMENT_LINES : late[0] / 10; /* a segment in pieces */
        if (late[1] + chance < late[0])
            fail_msg("at %lld tenths: %llu late keys find room, with a forecast %llu", (long long)tenths,
                     (unsigned long long)late[0], (unsigned long long)late[1]);
    }
}

/* Goal: E2. If a family was opened in the second half of its window, its number of keys does not forecast the next
 * window, and no memory is taken for it.
 * Method: some keys and turns at the end of an hour; then the same in the first half of the next hour and after its
 * middle. */
TEST_WITH(a_window_that_began_late_is_no_forecast, NULL, stop, NULL) {
    start(4 * MIB);
    fake_clock_advance_ms(&rig.clock, 50 * TW_MINUTE);
    turns(1);
    tw_family *family = open_family("f", TW_HOUR, TW_ON_FULL_REJECT);
    for (int half = 0; half < 3; half++) {
        for (uint64_t i = 0; i < 2000; i++) assert_status(tw_add(family, key_of(i, 12), 1, NULL), TW_OK);
        int64_t before = test_memory_bytes(rig.engine);
        turns(20);
        if (half < 2) assert_i64_equal(test_memory_bytes(rig.engine), before);
        if (half == 2) assert_true(test_memory_bytes(rig.engine) > before); /* this one was seen to grow */
        fake_clock_advance_ms(&rig.clock, (half == 0 ? 15 : 30) * TW_MINUTE);
        turns(half == 0 ? 20 : 0);
    }
}

/* Goal: E3. A forecast of more keys than there could ever be memory for is refused by name. A forecast of as many as
 * find none now takes none. */
TEST_WITH(keys_expected_that_cannot_be_held_are_refused_or_not_taken, NULL, stop, NULL) {
    start(4 * MIB);
    char text[200];
    tw_family_options options = rig_options("big", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family *family;
    options.error_text = text;
    options.error_size = sizeof text;
    options.keys_expected = 65537;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_non_null(strstr(text, "keys_expected"));
    assert_i64_equal(test_memory_bytes(rig.engine), 0);
    options.keys_expected = 20000;
    options.memory_share = MIB;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_non_null(strstr(text, "memory_share"));
    options.memory_share = 0;
    options.keys_expected = 65000; /* with the index, more than there is */
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    assert_true(test_memory_bytes(rig.engine) < 4096);
    options.name = "fits";
    options.keys_expected = 20000;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_OK);
    assert_true(test_memory_bytes(rig.engine) > MIB / 8); /* the index; the first keys decide what else */
    for (uint64_t i = 0; i < 100; i++) assert_status(tw_add(family, key_of(i, 12), 1, NULL), TW_OK);
    assert_true(test_memory_bytes(rig.engine) > MIB);
}

/* Goal: a family that is opened takes no memory for a few expected keys. The first key takes it: in the first window,
 * and in a window before which no key came.
 * Method: a family that announces 65 keys beside one that announces none; a window that only one event time opens. */
TEST_WITH(the_first_of_few_expected_keys_takes_their_memory, NULL, stop, NULL) {
    start(4 * MIB);
    tw_family_options options = rig_options("untold", TW_WINDOW_ALIGNED, TW_HOUR);
    options.lateness_ms = 3 * TW_HOUR;
    tw_family *untold = rig_family_of(&rig, &options);
    options.name = "told";
    options.keys_expected = 65;
    tw_family *family = rig_family_of(&rig, &options);
    turns(20);
    assert_i64_equal(test_memory_bytes(rig.engine), 0);
    for (int window = 0; window < 2; window++) {
        int64_t before = test_memory_bytes(rig.engine), now_ms = rig_now(&rig);
        assert_status(tw_add(untold, key_of(0, 8), 1, NULL), TW_OK);
        int64_t between = test_memory_bytes(rig.engine);
        assert_status(tw_add(family, key_of(0, 8), 1, NULL), TW_OK);
        int64_t with_one = test_memory_bytes(rig.engine) - between;
        assert_true(with_one >= between - before + 960); /* an index of 1,024 bytes in place of 64 */
        assert_status(tw_add_at(family, key_of(0, 8), 1, now_ms - TW_HOUR, NULL), TW_OK);
        assert_true(test_memory_bytes(rig.engine) - between - with_one <= between - before);
        struct twi_generation *generation = twi_window_find(family, now_ms - now_ms % TW_HOUR);
        uint64_t root = twi_load_relaxed(&generation->root);
        for (uint64_t i = 1; i < 65; i++) assert_status(tw_add(family, key_of(i, 8), 1, NULL), TW_OK);
        assert_int_equal(twi_load_relaxed(&generation->root), root);
        assert_true(twi_load_relaxed(&generation->area.places[0]) >= 60);
        rig_pass(&rig, 5 * TW_HOUR);
    }
}

/* Goal: if memory is free in small pieces only, the first of few expected keys is counted, as any key.
 * Method: every line of the arena is taken; then runs of a few lines are given back. */
TEST_WITH(few_expected_keys_do_not_need_a_long_piece, NULL, stop, NULL) {
    static uint32_t lines[65536 + 1];
    start(4 * MIB);
    tw_family_options options = rig_options("told", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_expected = 65;
    options.on_full = TW_ON_FULL_REJECT;
    tw_family *family = rig_family_of(&rig, &options);
    uint32_t count = 0, kept = 0;
    while ((lines[count] = twi_arena_take(&rig.engine->arena, 1)) != 0) assert_true(++count < 65537);
    for (uint32_t i = 0; i < count; i++) {
        if (lines[i] % 16 < 8)
            twi_arena_give(&rig.engine->arena, lines[i], 1);
        else
            lines[kept++] = lines[i];
    }
    assert_int_equal(twi_arena_take(&rig.engine->arena, 16), 0);
    for (uint64_t i = 0; i < 30; i++) assert_status(tw_add(family, key_of(i, 8), 1, NULL), TW_OK);
    for (uint32_t i = 0; i < kept; i++) twi_arena_give(&rig.engine->arena, lines[i], 1);
    for (uint64_t i = 30; i < 65; i++) assert_status(tw_add(family, key_of(i, 8), 1, NULL), TW_OK);
}

static int told[32];
static void note_event(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)level;
    told[event]++;
    if (event == TW_EVENT_CRUMBS) assert_non_null(strstr(text, " bytes are free, but in small pieces: "));
}

/* Goal: free memory that is of no use shows in statistics and in the log, however little is in use.
 * Method: every line of the arena is taken, and every second one given back; then a key comes that needs two lines. */
TEST_WITH(crumbs_are_seen_and_told, NULL, stop, NULL) {
    static uint32_t lines[65536];
    rig_init(&rig);
    rig.options.memory_bytes_max = (uint64_t)(4 * MIB);
    rig.options.log_write = note_event;
    rig_start(&rig);
    tw_family *family = open_family("f", 0, TW_ON_FULL_REJECT);
    assert_status(tw_add(family, key_of(0, 300), 1, NULL), TW_OK);
    uint32_t count = 0;
    while ((lines[count] = twi_arena_take(&rig.engine->arena, 1)) != 0) count++;
    turns(1);
    for (uint32_t i = 0; i < count; i += 2) twi_arena_give(&rig.engine->arena, lines[i], 1);
    memset(told, 0, sizeof told);
    fake_clock_advance_ms(&rig.clock, 10 * TW_MINUTE); /* one line in this time */
    turns(1);
    assert_true(test_memory_bytes(rig.engine) < 4 * MIB * 6 / 10);
    assert_true(test_stat_of(rig.engine, memory_free_bytes) > 4 * MIB * 4 / 10);
    assert_true(test_stat_of(rig.engine, memory_usable_bytes) < 4 * MIB / 100);
    assert_int_equal(told[TW_EVENT_MEMORY], 1); /* by what can be had */
    assert_int_equal(told[TW_EVENT_CRUMBS], 0); /* nobody has been refused */
    for (uint64_t i = 1; tw_add(family, key_of(i, 300), 1, NULL) == TW_OK; i++) continue;
    turns(1);
    assert_int_equal(told[TW_EVENT_CRUMBS], 1);
    for (uint32_t i = 1; i < count; i += 2) twi_arena_give(&rig.engine->arena, lines[i], 1);
    assert_true(test_stat_of(rig.engine, memory_usable_bytes) > 4 * MIB * 9 / 10);
    assert_status(tw_add(family, key_of(1, 300), 1, NULL), TW_OK);
}

int main(void) {
    test_skip_alone();
    return test_run();
}
