/* area_test.c -- areas of records: every record of an area is used once, whatever the place of its key, and all memory
 * is given back. */
#include "tests/unit/rig.h"

#include "engine/core/window_map.h"

#include <pthread.h>

static struct test_prng prng;

struct field {
    struct twi_arena arena;
    struct twi_quota quota;
    struct twi_generation *generation;
    struct twi_hash_secret secret;
    uint32_t lines; /* of most keys' records */
};

static bool always(void *ctx) {
    return true;
}

static uint32_t places_in(const struct field *field) {
    return twi_load_relaxed(&field->generation->area.places[0]) + twi_load_relaxed(&field->generation->area.places[1]);
}

/* A window for so many keys, whose area is still put off. */
static void field_begin_untouched(struct field *field, uint64_t bytes, uint64_t expected, bool synced, uint32_t lines) {
    memset(field, 0, sizeof *field);
    field->lines = lines;
    for (size_t i = 0; i < 4; i++) field->secret.words[i] = test_prng_next(&prng);
    assert_true(twi_arena_make(&field->arena, bytes));
    field->generation = twi_table_make(&field->arena, &field->quota, expected, synced);
    assert_non_null(field->generation);
    assert_i64_equal(places_in(field), 0);
    assert_int_equal(twi_load_relaxed(&field->generation->announced), expected >= TWI_AREA_KEYS_MIN ? expected : 0);
}

/* The same with an area, for records of so many lines. */
static void field_begin_for(struct field *field, uint64_t bytes, uint64_t expected, bool synced, uint32_t lines) {
    struct twi_area_plan plan;
    uint32_t work = UINT32_MAX;
    field_begin_untouched(field, bytes, expected, synced, lines);
    twi_store_relaxed(&field->generation->announced, 0);
    if (twi_area_begin(&field->arena, field->generation, (struct twi_area_forecast){expected, lines}, INT64_MAX, &plan))
        assert_true(twi_area_fill(&field->arena, field->generation, &plan, &work));
}
static void field_begin(struct field *field, uint64_t bytes, uint64_t expected, bool synced) {
    field_begin_for(field, bytes, expected, synced, 1);
}

static void field_end(struct field *field) {
    uint32_t work = 0;
    while (!twi_table_unmake(&field->arena, field->generation, &work)) work = 2048; /* in steps */
    assert_i64_equal(twi_arena_bytes_used(&field->arena), 0);
    assert_i64_equal(twi_load_relaxed(&field->quota.bytes), 0);
    twi_arena_unmake(&field->arena);
}

/* Key number `number`: most have records of so many lines, with Redis and without; the others have 1 to 100 bytes. */
#define KEY_BYTES 256
static tw_key key_of(const struct field *field, uint32_t number, unsigned char *bytes) {
    static const size_t least[] = {5, 33, 97, 161};
    size_t size = number % 16 == 0 ? 1 + number / 16 % 100 : least[field->lines - 1] + number % 28;
    memset(bytes, (int)(number & 0xff), size);
    if (size >= 5) {
        bytes[0] = (unsigned char)size;
        memcpy(bytes + 1, &number, 4);
    } else {
        memcpy(bytes, &number, size); /* small ones may be the same key: the table says so */
    }
    return tw_bytes(bytes, size);
}

static struct twi_lookup_key wanted_of(const struct field *field, tw_key key) {
    return twi_lookup_key(twi_hash_sip(&field->secret, key.data, key.size), key);
}

static enum twi_found put(struct field *field, struct twi_thread *self, uint32_t number, struct twi_cell **cell) {
    unsigned char bytes[KEY_BYTES];
    tw_key key = key_of(field, number, bytes);
    struct twi_insert insert = {&field->arena, field->generation, self, wanted_of(field, key), 0, NULL, 0,
                                TWI_NO_VACANCY};
    return twi_table_insert(&insert, always, NULL, cell);
}

static struct twi_cell *look(struct field *field, uint32_t number) {
    unsigned char bytes[KEY_BYTES];
    struct twi_lookup_key wanted = wanted_of(field, key_of(field, number, bytes));
    return twi_table_find(&field->arena, field->generation, &wanted);
}

/* True: the cell lies in the area. *at_place: at the place of its key, or next to it: a look-up asks for both. */
static bool is_in_area(const struct field *field, struct twi_cell *cell, bool *at_place) {
    const struct twi_generation *generation = field->generation;
    const struct twi_area *area = &generation->area;
    const unsigned char *first = area->first, *bytes = (const unsigned char *)cell;
    *at_place = false;
    if (places_in(field) == 0 || bytes < first || bytes >= first + (size_t)(area->taken - 1) * TWI_LINE_BYTES)
        return false;
    uint64_t meta = twi_load_relaxed(&cell->meta);
    tw_key key = tw_bytes(cell->key, meta & TWI_META_SIZE);
    uint64_t place = twi_area_place((uint32_t)twi_hash_sip(&field->secret, key.data, key.size), places_in(field));
    const unsigned char *home = first + twi_area_distance(place, area->lines, generation->synced) * TWI_LINE_BYTES;
    const unsigned char *pair = first + twi_area_distance(place ^ 1, area->lines, generation->synced) * TWI_LINE_BYTES;
    if (area->lines == 1 && !generation->synced) /* the line that makes a pair with it, which begins at an even line */
        pair = (const unsigned char *)((uintptr_t)home ^ TWI_LINE_BYTES);
    *at_place = bytes == home || bytes == pair;
    return true;
}

struct tally {
    uint64_t cells, in_area, at_place;
    struct field *field;
};
static bool tally_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct tally *tally = ctx;
    bool at_place;
    bool in_area = is_in_area(tally->field, cell, &at_place);
    tally->cells++;
    tally->in_area += in_area;
    tally->at_place += at_place;
    struct twi_chunk *chunk = twi_cell_chunk(cell, meta);
    assert_int_equal(chunk->lines == 0, in_area);
    assert_ptr_equal(twi_chunk_cell(chunk, twi_cell_index(meta), tally->field->generation->synced), cell);
    return true;
}
static struct tally tally_of(struct field *field) {
    struct tally tally = {.field = field};
    struct twi_cursor cursor = {0};
    twi_table_walk(&field->arena, field->generation, &cursor, tally_cell, &tally);
    assert_true(cursor.done);
    return tally;
}

/* Goal: whatever the forecast, each key is found and walked once; with a right forecast nearly all keys of the area's
 * kind have their record in it, and more than half of them where a look-up asks for it.
 * Method: every size of forecast and of records, filled to the forecast and to three times of it. */
TEST(keys_lie_at_their_place_or_elsewhere) {
    const uint32_t forecasts[] = {20, 24, 32, 44, 66, 90, 128, 200, 1000, 1024, 4000, 20000};
    struct twi_thread *self = twi_thread_here();
    for (size_t f = 0; f < sizeof forecasts / sizeof *forecasts; f++) {
        for (int way = 0; way < 8; way++) {
            static struct field field;
            field_begin_for(&field, UINT64_C(256) << 20, forecasts[f], way % 2 != 0, 1 + (uint32_t)way / 2);
            twi_section_enter(self);
            assert_true(places_in(&field) * 10 >= forecasts[f] * 6);
            uint32_t total = forecasts[f] * 3;
            for (uint32_t i = 1; i <= total; i++) {
                struct twi_cell *cell;
                bool is_new = look(&field, i) == NULL;
                assert_int_equal(put(&field, self, i, &cell), is_new ? TWI_INSERTED : TWI_FOUND);
                assert_ptr_equal(look(&field, i), cell);
                if (i != forecasts[f]) continue;
                struct tally tally = tally_of(&field);
                /* a sixteenth of the keys are of all sizes */
                assert_true(tally.in_area >= forecasts[f] * UINT64_C(60) / 100);
                assert_true(forecasts[f] < 1000 || tally.at_place * 100 >= tally.in_area * 55);
            }
            for (uint32_t i = 1; i <= total; i++) assert_non_null(look(&field, i));
            struct tally tally = tally_of(&field);
            assert_i64_equal(tally.cells, twi_load_relaxed(&field.generation->keys));
            assert_true(tally.in_area * 100 >= places_in(&field) * UINT64_C(99)); /* nearly all are used in the end */
            twi_section_leave(self);
            field_end(&field);
        }
    }
}

/* Goal: two inserters never take one record, and a record that lost its race is used by a later key.
 * Method: several threads insert the same keys in the same order into an area that is too small. All must get one cell
 * per key. */
struct racer {
    struct field *field;
    struct twi_cell **cells;
    uint32_t keys;
    uint64_t inserted;
};
static void *race(void *ctx) {
    struct racer *racer = ctx;
    struct twi_thread *self = twi_thread_here();
    for (uint32_t i = 1; i <= racer->keys; i++) {
        twi_section_enter(self);
        racer->inserted += put(racer->field, self, i, &racer->cells[i]) == TWI_INSERTED;
        if (look(racer->field, i) != racer->cells[i]) racer->cells[i] = NULL;
        if (racer->cells[i] != NULL) (void)twi_add_relaxed(&racer->cells[i]->local, UINT64_C(1) << TWI_COUNT_SHIFT);
        twi_section_leave(self);
    }
    return NULL;
}
/* Returns whether a third of the keys are in the area. The first ones may be unlike the others. */
static bool check_race(bool put_off, uint32_t lines) {
    enum { THREADS = 4 };
    static struct field field;
    uint32_t keys = (uint32_t)test_scale(6000);
    if (put_off)
        field_begin_untouched(&field, UINT64_C(256) << 20, keys * 3 / 4, false, lines);
    else
        field_begin_for(&field, UINT64_C(256) << 20, keys * 3 / 4, false, lines);
    pthread_t threads[THREADS];
    struct racer racers[THREADS];
    for (int t = 0; t < THREADS; t++) {
        racers[t] = (struct racer){&field, calloc(keys + 1, sizeof(struct twi_cell *)), keys, 0};
        assert_non_null(racers[t].cells);
        assert_int_equal(pthread_create(&threads[t], NULL, race, &racers[t]), 0);
    }
    uint64_t inserted = 0;
    for (int t = 0; t < THREADS; t++) {
        assert_int_equal(pthread_join(threads[t], NULL), 0);
        inserted += racers[t].inserted;
    }
    struct twi_thread *self = twi_thread_here();
    twi_section_enter(self);
    int64_t sum = 0;
    for (uint32_t i = 1; i <= keys; i++) {
        assert_non_null(racers[0].cells[i]);
        for (int t = 1; t < THREADS; t++) assert_ptr_equal(racers[t].cells[i], racers[0].cells[i]);
    }
    assert_i64_equal(inserted, twi_load_relaxed(&field.generation->keys));
    struct tally tally = tally_of(&field);
    assert_i64_equal(tally.cells, inserted);
    for (uint32_t i = 1; i <= keys; i++) {
        unsigned char bytes[KEY_BYTES];
        if (key_of(&field, i, bytes).size < 5) continue; /* several numbers, one key */
        sum += twi_word_value(twi_load_relaxed(&racers[0].cells[i]->local)) - THREADS;
    }
    assert_i64_equal(sum, 0);
    twi_section_leave(self);
    assert_int_equal(field.generation->area.lines, lines);
    bool is_over = twi_load_relaxed(&field.generation->announced) == 0;
    assert_true(is_over || (put_off && tally.in_area == 0)); /* the thread that began it lost its processor */
    for (int t = 0; t < THREADS; t++) free(racers[t].cells);
    field_end(&field);
    return tally.in_area > inserted / 3;
}
TEST(a_record_is_taken_by_one) {
    for (uint32_t lines = 1; lines <= TWI_AREA_LINES_MAX; lines++) assert_true(check_race(false, lines));
}
/* The same in windows whose area is laid out while the threads go on. The thread that does so may lose its processor,
 * and the others insert all keys elsewhere: not in each round. */
TEST(an_area_comes_while_threads_insert) {
    uint32_t used = 0;
    for (uint32_t round = 0; round < 3 * TWI_AREA_LINES_MAX; round++)
        used += check_race(true, 1 + round % TWI_AREA_LINES_MAX);
    assert_true(used != 0);
}

/* Goal: a window of which only the number of keys is known gets an area for the records that most of its first keys
 * have, and as many as these are likely to be.
 * Method: first keys of one length, and mixed ones; how many places there are, and that few keys came too early. */
TEST(the_first_keys_decide_for_whom_the_area_is) {
    struct twi_thread *self = twi_thread_here();
    static const uint32_t forecasts[] = {20, 65, 1024, 20000};
    for (size_t f = 0; f < sizeof forecasts / sizeof *forecasts; f++) {
        for (int way = 0; way < 8; way++) {
            uint32_t lines = 1 + (uint32_t)way / 2;
            static struct field field;
            field_begin_untouched(&field, UINT64_C(256) << 20, forecasts[f], way % 2 != 0, lines);
            twi_section_enter(self);
            for (uint32_t i = 1; i <= forecasts[f]; i++) {
                struct twi_cell *cell;
                uint32_t number = i + (i - 1) / 15; /* none divisible by 16: all of one kind */
                assert_int_equal(put(&field, self, number, &cell), TWI_INSERTED);
                assert_ptr_equal(look(&field, number), cell);
            }
            assert_int_equal(field.generation->area.lines, lines);
            assert_int_equal(twi_load_relaxed(&field.generation->area.places[0]) != 0, lines == 1);
            struct tally tally = tally_of(&field);
            assert_i64_equal(tally.cells, forecasts[f]);
            assert_true(tally.in_area >= forecasts[f] * UINT64_C(6) / 10);
            twi_section_leave(self);
            field_end(&field);
        }
    }
    for (uint32_t lines = 1; lines <= 2; lines++) { /* two of three keys have such records, the others twice as many */
        static struct field field;
        field_begin_untouched(&field, UINT64_C(256) << 20, 30000, false, lines);
        twi_section_enter(self);
        for (uint32_t i = 1; i < 3000; i++) {
            struct twi_cell *cell;
            field.lines = i % 3 == 0 ? 2 * lines : lines;
            assert_int_equal(put(&field, self, i + (i - 1) / 15, &cell), TWI_INSERTED);
        }
        twi_section_leave(self);
        assert_int_equal(field.generation->area.lines, lines);
        assert_true(places_in(&field) >= 20000 && places_in(&field) <= 32000);
        field_end(&field);
    }
}

/* How many chunks of the area have their heads: all but those that nobody has made yet. */
static uint32_t chunks_made(const struct field *field) {
    const struct twi_area *area = &field->generation->area;
    if (area->taken == 0) return 0;
    uint32_t all = (area->taken + area->stride - area->lines_of_chunk) / area->stride, made = 0;
    for (uint32_t i = 0; i < all; i++) {
        const struct twi_chunk *head = (const void *)(area->first + ((size_t)i * area->stride - 1) * TWI_LINE_BYTES);
        made += head->capacity != 0;
    }
    return made;
}

/* Goal: a large window of which only the number of keys is known has an area for the keys that come, long ones too, and
 * no insert lays out more than one chunk of it. Method: windows of keys of each size, with Redis and without; how many
 * chunks each insert makes, and what a key takes in the end. */
TEST(a_large_window_is_laid_out_in_steps_for_the_keys_that_come) {
    static const int64_t bytes_most[2][TWI_AREA_LINES_MAX] = {{112, 170, 235, 300}, {140, 170, 235, 300}};
    struct twi_thread *self = twi_thread_here();
    uint32_t keys = 150000;
    for (int way = 0; way < 2 * (int)TWI_AREA_LINES_MAX; way++) {
        static struct field field;
        uint32_t lines = 1 + (uint32_t)way / 2, made = 0, inserts = 0;
        field_begin_untouched(&field, UINT64_C(256) << 20, keys, way % 2 != 0, lines);
        twi_section_enter(self);
        for (uint32_t i = 1; i <= keys; i++) {
            struct twi_cell *cell;
            uint32_t number = i + (i - 1) / 15; /* none divisible by 16: all of one kind */
            assert_int_equal(put(&field, self, number, &cell), TWI_INSERTED);
            if (places_in(&field) != 0) continue;
            uint32_t now = chunks_made(&field);
            assert_true(now <= made + 1);
            made = now;
            inserts++;
        }
        assert_true(made > 100 && inserts < 64 + made + 4);
        assert_int_equal(field.generation->area.lines, lines);
        assert_true(places_in(&field) + 1024 >= keys); /* a segment that would be half full is left out */
        struct tally tally = tally_of(&field);
        assert_i64_equal(tally.cells, keys);
        assert_true(tally.in_area >= keys - inserts - 1100);
        int64_t bytes = twi_load_relaxed(&field.generation->bytes) / keys;
        if (bytes > bytes_most[way % 2][lines - 1])
            fail_msg("%u lines%s: %lld bytes a key", lines, way % 2 != 0 ? ", synced" : "", (long long)bytes);
        twi_section_leave(self);
        field_end(&field);
    }
}

/* Goal: a window for which too little memory is left goes on without an area.
 * Method: the announced keys take more than half of what there is. */
TEST(an_area_that_finds_no_room_is_done_without) {
    struct twi_thread *self = twi_thread_here();
    static struct field field;
    field_begin_untouched(&field, UINT64_C(4) << 20, 12000, false, 4);
    twi_section_enter(self);
    for (uint32_t i = 1; i <= 4000; i++) {
        struct twi_cell *cell;
        assert_int_equal(put(&field, self, i + (i - 1) / 15, &cell), TWI_INSERTED);
    }
    twi_section_leave(self);
    assert_i64_equal(places_in(&field), 0);
    assert_i64_equal(twi_load_relaxed(&field.generation->announced), 0);
    field_end(&field);
}

/* Goal: an area is built in steps, used only when it is complete, and never takes memory that others need. If its
 * memory is not free in a row, a smaller one serves.
 * Method: small steps; an arena with too little room, and one that is cut up. */
TEST(an_area_is_built_in_steps_or_not_at_all) {
    static struct field field;
    struct twi_area_plan plan;
    struct twi_area_forecast few = {30000, 1}, many = {40000, 1};
    field_begin(&field, UINT64_C(64) << 20, 0, true);
    assert_true(twi_area_begin(&field.arena, field.generation, few, INT64_MAX, &plan));
    uint32_t steps = 0, work = 0;
    for (; !twi_area_fill(&field.arena, field.generation, &plan, &work); work = 400, steps++)
        assert_i64_equal(places_in(&field), 0);
    assert_true(steps > 50);
    assert_true(places_in(&field) >= 30000);
    field_end(&field);

    field_begin(&field, UINT64_C(64) << 20, 0, false); /* given up half-way */
    assert_true(twi_area_begin(&field.arena, field.generation, few, INT64_MAX, &plan));
    work = 10000;
    assert_false(twi_area_fill(&field.arena, field.generation, &plan, &work));
    field_end(&field);

    field_begin(&field, UINT64_C(4) << 20, 0, false); /* would take more than half of what there is */
    assert_false(twi_area_begin(&field.arena, field.generation, many, INT64_MAX, &plan));
    many.keys = UINT64_MAX / 2;
    assert_false(twi_area_begin(&field.arena, field.generation, many, INT64_MAX, &plan));
    many = (struct twi_area_forecast){12000, 3};
    assert_false(twi_area_begin(&field.arena, field.generation, many, INT64_MAX, &plan));
    field.quota.bytes_max = INT64_C(1) << 20;
    many = (struct twi_area_forecast){12000, 1};
    assert_false(twi_area_begin(&field.arena, field.generation, many, INT64_MAX, &plan));
    field.quota.bytes_max = 0;
    field_end(&field);

    field_begin(&field, UINT64_C(8) << 20, 0, false); /* every tenth segment is taken */
    static uint32_t taken[128];
    uint32_t count = 0, line;
    while (count < 128 && (line = twi_arena_take(&field.arena, TWI_SEGMENT_LINES)) != 0) taken[count++] = line;
    for (uint32_t i = 0; i < count; i++)
        if (i % 10 != 0) twi_arena_give(&field.arena, taken[i], TWI_SEGMENT_LINES);
    assert_true(twi_area_begin(&field.arena, field.generation, few, INT64_MAX, &plan));
    work = UINT32_MAX;
    assert_true(twi_area_fill(&field.arena, field.generation, &plan, &work));
    assert_true(places_in(&field) >= 3000 && places_in(&field) < 30000);
    for (uint32_t i = 0; i < count; i += 10) twi_arena_give(&field.arena, taken[i], TWI_SEGMENT_LINES);
    field_end(&field);
}

/* Places that have no record: between two chunks. */
static uint32_t lost_in(const struct field *field) {
    uint32_t per_chunk = field->generation->area.per_chunk;
    uint32_t each = field->generation->synced && field->generation->area.lines == 1 ? 2 : 1;
    return places_in(field) / per_chunk * each;
}

/* Goal: each record of an area belongs to one place, no two records overlap, and none lies on the head of a chunk.
 * Method: forecasts of all sizes about the bounds of chunks; each record is taken, and all its lines are marked. What
 * is built is given back. */
TEST(records_of_an_area_lie_apart) {
    static uint8_t lines_used[64 * 1024];
    static const uint32_t forecasts[] = {20,  21,  31,  64,  100, 203, 204,  205,  206,  255,  256,  257,
                                         300, 400, 817, 818, 819, 820, 1000, 1022, 1023, 1024, 1300, 5000};
    for (int way = 0; way < 2 * (int)TWI_AREA_LINES_MAX; way++) {
        bool synced = way % 2 != 0;
        uint32_t lines = 1 + (uint32_t)way / 2;
        for (size_t f = 0; f < sizeof forecasts / sizeof *forecasts; f++) {
            static struct field field;
            field_begin_for(&field, UINT64_C(16) << 20, forecasts[f], synced, lines);
            memset(lines_used, 0, sizeof lines_used);
            uint32_t places = places_in(&field), taken = 0, lost = lost_in(&field);
            struct twi_cell *cell;
            if (places * 10 < forecasts[f] * 6)
                fail_msg("%u keys, synced %d, %u lines: %u places", forecasts[f], synced, lines, places);
            for (uint32_t tries = 0; tries < 4 * places; tries++) {
                cell = twi_area_take(field.generation, (uint32_t)test_prng_next(&prng), 1, lines - 1, 32);
                if (cell == NULL) continue;
                uint64_t meta = twi_load_relaxed(&cell->meta);
                assert_int_equal(meta & TWI_META_SIZE, 1);
                taken++;
                struct twi_chunk *chunk = twi_cell_chunk(cell, meta);
                assert_true(chunk->capacity > twi_cell_index(meta) && chunk->kind == lines - 1);
                uint64_t base = (uint64_t)(field.generation->area.first - field.arena.base) / TWI_LINE_BYTES - 1;
                uint64_t head = twi_arena_line(&field.arena, chunk) - base;
                assert_true(head < field.generation->area.taken);
                lines_used[head] |= 2;
                for (uint32_t i = 0; i < lines; i++) {
                    uint64_t at = twi_arena_line(&field.arena, cell) - base + i;
                    assert_true(at < field.generation->area.taken);
                    assert_int_equal(lines_used[at], 0);
                    lines_used[at] = 1;
                }
            }
            assert_int_equal(taken, places - lost);
            for (uint32_t i = 0; i < field.generation->area.taken; i++) assert_true(lines_used[i] != 3);
            field_end(&field);
        }
    }
}

/* Goal: a small family is small: a window of 65 keys takes 101 bytes a key, of which 64 are the record.
 * Method: with keys_expected and without, and fewer keys; what the generation has taken, by its own account. */
TEST(a_small_window_takes_little) {
    static const struct {
        uint32_t keys;
        int64_t bytes_max[2];
    } cases[] = {{4, {1152, 1152}},   {32, {4736, 3840}},    {65, {6528, 6336}},
                 {100, {9600, 9600}}, {128, {15744, 12160}}, {300, {29056, 26432}}};
    struct twi_thread *self = twi_thread_here();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int told = 0; told < 2; told++) {
            static struct field field;
            field_begin_untouched(&field, UINT64_C(16) << 20, told != 0 ? cases[c].keys : 0, false, 1);
            twi_section_enter(self);
            for (uint32_t i = 0; i < cases[c].keys; i++) {
                struct twi_cell *cell;
                assert_int_equal(put(&field, self, i + i / 15 + 1, &cell), TWI_INSERTED); /* none divisible by 16 */
            }
            twi_section_leave(self);
            int64_t bytes = twi_load_relaxed(&field.generation->bytes);
            if (bytes > cases[c].bytes_max[told])
                fail_msg("%u keys, told %d: %lld bytes", cases[c].keys, told, (long long)bytes);
            field_end(&field);
        }
    }
}

/* Goal: the whole engine with areas: a family with keys_expected, and one whose windows learn their size. Views,
 * batches, reads, walks and roll-over are right.
 * Method: every key counted in three ways in three windows. */
static void check_windows(uint64_t expected, const char *form) {
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("homes", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.keys_expected = expected;
    options.history_ms = 10 * TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    enum { KEYS = 3000 };
    static char names[KEYS][KEY_BYTES];
    static tw_key keys[KEYS];
    static int64_t views[KEYS];
    for (int i = 0; i < KEYS; i++) {
        int size = snprintf(names[i], sizeof names[i], form, i % 7, i * 7919);
        keys[i] = tw_bytes(names[i], (size_t)size);
    }
    for (int window = 0; window < 3; window++) {
        int64_t now_ms = rig_now(&rig);
        assert_status(tw_add(family, keys[0], 0, NULL), TW_OK);
        struct twi_generation *generation = twi_window_find(family, now_ms - now_ms % TW_MINUTE);
        for (int i = 0; i < KEYS; i++) {
            if (i == KEYS / 2 && (expected >= TWI_AREA_KEYS_MIN || window != 0))
                assert_true(twi_load_relaxed(&generation->area.places[keys[0].size > TWI_KEY_INLINE]) != 0);
            int64_t view = 0;
            assert_status(tw_add(family, keys[i], i, &view), TW_OK);
            assert_i64_equal(view, i);
        }
        for (int part = 0; part < 2; part++) { /* the turn prepares in the second half of a window */
            rig_pass(&rig, TW_MINUTE / 2);
            if (part == 0) {
                assert_status(tw_add_many(family, keys, NULL, KEYS, views, NULL), TW_OK);
                for (int i = 0; i < KEYS; i++) assert_i64_equal(views[i], i + 1);
            }
        }
        struct rig_seen seen = rig_each(family, now_ms);
        assert_i64_equal(seen.counters, KEYS);
        assert_i64_equal(seen.sum, (int64_t)KEYS * (KEYS - 1) / 2 + KEYS);
        for (int i = 0; i < KEYS; i += 97) {
            int64_t view = 0;
            assert_status(tw_get_at(family, keys[i], now_ms, &view), TW_OK);
            assert_i64_equal(view, i + 1);
            assert_status(tw_get(family, keys[i], &view), TW_OK);
            assert_i64_equal(view, 0);
        }
    }
    rig_close(&rig);
}
TEST(windows_with_areas_count_as_windows_do) {
    static const char *const forms[] = {
        "app%d:%d", "app%d:a key whose record has two lines of memory:%d",
        "app%d:a key whose record has three lines of memory, which is so because it has about a hundred bytes:%d"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        check_windows(0, forms[i]);
        check_windows(100, forms[i]);
        check_windows(3000, forms[i]);
        check_windows(100000, forms[i]);
    }
}

/* Goal: the next window has an area for the kind of record that most keys have, as large as there are such keys; for
 * keys that are too long for any it has none.
 * Method: a window of so many keys of each length; then the next one, once it is prepared. */
TEST(a_forecast_lays_out_an_area_for_the_keys_of_most) {
    enum { LENGTHS = 5 };
    static const size_t sizes[LENGTHS] = {16, 48, 100, 200, 300};
    static const struct {
        uint32_t count[LENGTHS], lines, records;
    } cases[] = {
        {{2000, 0, 0, 0, 0}, 1, 2000},    {{0, 2000, 0, 0, 0}, 2, 2000},     {{0, 0, 1500, 0, 0}, 3, 1500},
        {{0, 0, 0, 1500, 0}, 4, 1500},    {{0, 0, 0, 0, 2000}, 0, 0},        {{1500, 4500, 500, 0, 0}, 2, 4500},
        {{2500, 0, 0, 0, 2600}, 1, 2500}, {{900, 500, 1000, 0, 0}, 3, 1000}, {{1000, 1000, 0, 0, 0}, 1, 1000}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct rig rig;
        rig_init(&rig);
        rig_start(&rig);
        tw_family *family = rig_family(&rig, "mixed", TW_WINDOW_ALIGNED, TW_MINUTE);
        for (uint32_t length = 0; length < LENGTHS; length++) {
            for (uint32_t i = 0; i < cases[c].count[length]; i++) {
                char key[512];
                memset(key, 'k', sizeof key);
                memcpy(key, &i, sizeof i);
                assert_status(tw_add(family, tw_bytes(key, sizes[length]), 1, NULL), TW_OK);
            }
        }
        int64_t next_ms = twi_calendar_span(&family->rule, rig_now(&rig)).end_ms;
        for (int i = 0; i < 58; i++) {
            fake_clock_advance_ms(&rig.clock, rig_now(&rig) + 1000 < next_ms ? 1000 : 0);
            rig_turn(&rig);
        }
        struct twi_generation *next = twi_window_find(family, next_ms);
        assert_non_null(next);
        uint64_t places = (uint64_t)twi_load_relaxed(&next->area.places[0]) + twi_load_relaxed(&next->area.places[1]);
        assert_int_equal(next->area.lines, cases[c].lines);
        assert_true(places >= cases[c].records);
        assert_true(places <= 2 * cases[c].records);
        assert_int_equal(twi_load_relaxed(&next->area.places[0]) != 0, cases[c].lines == 1);
        rig_close(&rig);
    }
}

int main(void) {
    test_prng_seed(&prng, test_seed());
    return test_run();
}
