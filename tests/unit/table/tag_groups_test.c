/* tag_groups_test.c -- tag groups: a window with a forecast finds every key that the index has, no other, and gives
 * every record back. */
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
    (void)ctx;
    return true;
}

/* A window for so many keys, whose tag groups are still put off. */
static void field_begin_untouched(struct field *field, uint64_t bytes, uint64_t expected, bool synced, uint32_t lines) {
    memset(field, 0, sizeof *field);
    field->lines = lines;
    for (size_t i = 0; i < 4; i++) field->secret.words[i] = test_prng_next(&prng);
    assert_true(twi_arena_make(&field->arena, bytes));
    field->generation = twi_table_make(&field->arena, &field->quota, expected, synced);
    assert_non_null(field->generation);
    assert_i64_equal(twi_tag_groups_chunks(field->generation), 0);
    assert_int_equal(twi_load_relaxed(&field->generation->told), expected >= TWI_TAG_GROUPS_KEYS_MIN ? expected : 0);
}

/* The same with tag groups, for records of so many lines. */
static void field_begin_for(struct field *field, uint64_t bytes, uint64_t expected, bool synced, uint32_t lines) {
    struct twi_tag_groups_plan plan;
    uint32_t work = UINT32_MAX;
    field_begin_untouched(field, bytes, expected, synced, lines);
    twi_store_relaxed(&field->generation->told, 0);
    if (twi_tag_groups_begin(&field->arena, field->generation, (struct twi_tag_groups_forecast){expected, lines},
                             INT64_MAX, &plan))
        assert_true(twi_tag_groups_fill(&field->arena, field->generation, &plan, &work));
}
static void field_begin(struct field *field, uint64_t bytes, uint64_t expected, bool synced) {
    field_begin_for(field, bytes, expected, synced, 1);
}
static uint32_t chunks_in(const struct field *field) {
    return twi_tag_groups_chunks(field->generation) & ~TWI_TAG_GROUPS_LONG;
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

/* By its home alone, by the index alone. */
static void look(struct field *field, uint32_t number, struct twi_cell **home, struct twi_cell **index) {
    unsigned char bytes[KEY_BYTES];
    tw_key key = key_of(field, number, bytes);
    struct twi_lookup_key wanted = wanted_of(field, key);
    uint32_t chunks = twi_tag_groups_serving(field->generation, key.size);
    *home = chunks != 0 ? twi_tag_groups_find(field->generation, chunks, &wanted) : NULL;
    *index = twi_index_find(&field->arena, field->generation, &wanted);
}

/* The chunk of an entry, its tags, and how many of its records are in groups: the last group of an only chunk may lack
 * some. */
static struct twi_chunk *chunk_of(struct field *field, uint32_t number) {
    struct twi_tag_groups_entry *entries = twi_tag_groups_entries(field->generation, &field->generation->tag_groups);
    return (struct twi_chunk *)((unsigned char *)field->generation + entries[number].records) - 1;
}
static _Atomic uint8_t *tags_of(struct field *field, uint32_t number) {
    struct twi_tag_groups_entry *entries = twi_tag_groups_entries(field->generation, &field->generation->tag_groups);
    return (_Atomic uint8_t *)((unsigned char *)field->generation + entries[number].tags);
}
static uint32_t grouped_of(struct field *field, uint32_t number) {
    uint32_t places = (uint32_t)field->generation->tag_groups.groups * TWI_TAG_GROUP_SIZE;
    uint32_t records = chunk_of(field, number)->capacity;
    return places < records ? places : records;
}

/* Tags that are neither free nor a filler: records of groups that are taken. */
static uint64_t tags_taken(struct field *field) {
    uint64_t taken = 0;
    for (uint32_t c = 0; c < chunks_in(field); c++) {
        _Atomic uint8_t *tags = tags_of(field, c);
        for (uint32_t i = 0; i < grouped_of(field, c); i++) taken += twi_load_relaxed(&tags[i]) != 0;
    }
    return taken;
}

struct tally {
    uint64_t cells, in_groups;
    uint32_t groups;
    struct field *field;
};
static bool tally_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct tally *tally = ctx;
    tally->cells++;
    for (uint32_t c = 0; c < chunks_in(tally->field); c++)
        if (chunk_of(tally->field, c) == twi_cell_chunk(cell, meta) &&
            twi_cell_index(meta) < grouped_of(tally->field, c))
            tally->in_groups++;
    return true;
}
static struct tally tally_of(struct field *field) {
    struct tally tally = {.field = field};
    struct twi_cursor cursor = {0};
    twi_table_walk(&field->arena, field->generation, &cursor, tally_cell, &tally);
    assert_true(cursor.done);
    return tally;
}

/* Goal: H1, H2. Whatever the forecast, the tag groups find the cell that the index finds, or nothing, and with a right
 * forecast they find most keys.
 * Method: every size of forecast and of records, filled to a half, in full and to three times of it. Each key is looked
 * up both ways, and so are keys that were never inserted. */
static void a_home_answers_what_the_index_answers_or_nothing(void **state) {
    (void)state;
    const uint32_t forecasts[] = {20, 24, 32, 44, 66, 90, 128, 200, 1000, 1024, 4000, 20000};
    struct twi_thread *self = twi_thread_here();
    for (size_t f = 0; f < sizeof forecasts / sizeof *forecasts; f++) {
        for (int way = 0; way < 8; way++) {
            static struct field field;
            field_begin_for(&field, UINT64_C(256) << 20, forecasts[f], way % 2 != 0, 1 + (uint32_t)way / 2);
            twi_section_enter(self);
            assert_true(chunks_in(&field) != 0);
            uint32_t at_home = 0, total = forecasts[f] * 3;
            for (uint32_t i = 1; i <= total; i++) {
                struct twi_cell *home, *index, *cell;
                look(&field, i, &home, &index);
                bool is_new = index == NULL;
                assert_null(is_new ? home : NULL);
                enum twi_found found = put(&field, self, i, &cell);
                assert_int_equal(found, is_new ? TWI_INSERTED : TWI_FOUND);
                look(&field, i, &home, &index);
                assert_ptr_equal(index, cell);
                assert_true(home == NULL || home == cell);
                if (i <= forecasts[f]) at_home += home != NULL;
            }
            for (uint32_t i = 1; i <= total + 1000; i++) {
                struct twi_cell *home, *index;
                look(&field, i, &home, &index);
                assert_true(i > total || index != NULL);
                assert_true(home == NULL || home == index);
            }
            /* a sixteenth of the keys are of all sizes, most of which have no tag groups here */
            assert_true(at_home >= forecasts[f] * 85 / 100);
            struct tally tally = tally_of(&field);
            assert_i64_equal(tally.cells, twi_load_relaxed(&field.generation->keys));
            assert_i64_equal(tally.in_groups, tags_taken(&field)); /* no record was forgotten, none shared */
            twi_section_leave(self);
            field_end(&field);
        }
    }
}

/* Goal: an inserter that loses the race for a key gives its record back, and no lookup ever finds that record.
 * Method: several threads insert the same keys in the same order into tag groups that are too small. All must get one
 * cell per key, and the taken records are the published ones. */
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
        struct twi_cell *home, *index;
        twi_section_enter(self);
        racer->inserted += put(racer->field, self, i, &racer->cells[i]) == TWI_INSERTED;
        look(racer->field, i, &home, &index);
        if (index != racer->cells[i] || (home != NULL && home != index)) racer->cells[i] = NULL;
        if (racer->cells[i] != NULL) (void)twi_add_relaxed(&racer->cells[i]->local, UINT64_C(1) << TWI_COUNT_SHIFT);
        twi_section_leave(self);
    }
    return NULL;
}
static void check_race(bool put_off, uint32_t lines) {
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
    assert_i64_equal(tally.in_groups, tags_taken(&field));
    for (uint32_t i = 1; i <= keys; i++) {
        unsigned char bytes[KEY_BYTES];
        if (key_of(&field, i, bytes).size < 5) continue; /* several numbers, one key */
        sum += twi_word_value(twi_load_relaxed(&racers[0].cells[i]->local)) - THREADS;
    }
    assert_i64_equal(sum, 0);
    twi_section_leave(self);
    assert_int_equal(field.generation->tag_groups.lines, lines);
    assert_i64_equal(twi_load_relaxed(&field.generation->told), 0);
    for (int t = 0; t < THREADS; t++) free(racers[t].cells);
    field_end(&field);
}
static void who_loses_a_race_gives_its_record_back(void **state) {
    (void)state;
    for (uint32_t lines = 1; lines <= TWI_TAG_GROUPS_LINES_MAX; lines++) check_race(false, lines);
}
/* The same in windows whose tag groups are laid out while the threads go on. */
static void tag_groups_come_while_threads_insert(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 3 * TWI_TAG_GROUPS_LINES_MAX; round++)
        check_race(true, 1 + round % TWI_TAG_GROUPS_LINES_MAX);
}

/* Goal: a window of which only the number of keys is known gets tag groups for the records that most of its first keys
 * have, and as many as these are likely to be.
 * Method: first keys of one length, and mixed ones; how many tag groups there are, and that few keys came too early. */
static void the_first_keys_decide_for_whom_the_tag_groups_are(void **state) {
    (void)state;
    struct twi_thread *self = twi_thread_here();
    static const uint32_t forecasts[] = {20, 65, 1024, 20000};
    for (size_t f = 0; f < sizeof forecasts / sizeof *forecasts; f++) {
        for (int way = 0; way < 8; way++) {
            uint32_t lines = 1 + (uint32_t)way / 2, in_groups = 0;
            static struct field field;
            field_begin_untouched(&field, UINT64_C(256) << 20, forecasts[f], way % 2 != 0, lines);
            twi_section_enter(self);
            for (uint32_t i = 1; i <= forecasts[f]; i++) {
                struct twi_cell *home, *index, *cell;
                uint32_t number = i + (i - 1) / 15; /* none divisible by 16: all of one kind */
                assert_int_equal(put(&field, self, number, &cell), TWI_INSERTED);
                look(&field, number, &home, &index);
                assert_ptr_equal(index, cell);
                assert_true(home == NULL || home == cell);
                in_groups += home != NULL;
            }
            assert_int_equal(field.generation->tag_groups.lines, lines);
            assert_int_equal(twi_tag_groups_are_short(twi_tag_groups_chunks(field.generation)), lines == 1);
            assert_true(in_groups >= forecasts[f] * 9 / 10);
            struct tally tally = tally_of(&field);
            assert_i64_equal(tally.cells, forecasts[f]);
            assert_i64_equal(tally.in_groups, tags_taken(&field));
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
        assert_int_equal(field.generation->tag_groups.lines, lines);
        uint32_t records = chunks_in(&field) * field.generation->tag_groups.groups * TWI_TAG_GROUP_SIZE;
        assert_true(records >= 20000 && records <= 32000);
        field_end(&field);
    }
}

/* Goal: in a large window no insert waits until the memory for all keys is laid out.
 * Method: the window has its tag groups when it is made, for short keys; long ones are counted all the same. */
static void a_large_window_is_laid_out_when_it_is_made(void **state) {
    (void)state;
    struct twi_thread *self = twi_thread_here();
    static struct field field = {.lines = 2};
    assert_true(twi_arena_make(&field.arena, UINT64_C(256) << 20));
    field.generation = twi_table_make(&field.arena, &field.quota, 150000, false);
    assert_non_null(field.generation);
    int64_t bytes = twi_load_relaxed(&field.generation->bytes);
    assert_true(twi_tag_groups_are_short(twi_tag_groups_chunks(field.generation)));
    assert_i64_equal(twi_load_relaxed(&field.generation->told), 0);
    twi_section_enter(self);
    for (uint32_t i = 1; i <= 1000; i++) {
        struct twi_cell *cell, *home, *index;
        assert_int_equal(put(&field, self, i + (i - 1) / 15, &cell), TWI_INSERTED);
        look(&field, i + (i - 1) / 15, &home, &index);
        assert_ptr_equal(index, cell);
        assert_null(home);
    }
    twi_section_leave(self);
    assert_true(twi_load_relaxed(&field.generation->bytes) - bytes < 1000 * 160 + 65536);
    field_end(&field);
}

/* Goal: a window for which too little memory is left goes on without tag groups.
 * Method: the announced keys take more than half of what there is. */
static void tag_groups_that_find_no_room_are_done_without(void **state) {
    (void)state;
    struct twi_thread *self = twi_thread_here();
    static struct field field;
    field_begin_untouched(&field, UINT64_C(4) << 20, 12000, false, 4);
    twi_section_enter(self);
    for (uint32_t i = 1; i <= 4000; i++) {
        struct twi_cell *cell;
        assert_int_equal(put(&field, self, i + (i - 1) / 15, &cell), TWI_INSERTED);
    }
    twi_section_leave(self);
    assert_i64_equal(twi_tag_groups_chunks(field.generation), 0);
    assert_i64_equal(twi_load_relaxed(&field.generation->told), 0);
    field_end(&field);
}

/* Goal: a match by words names every tag that a look at each byte names.
 * Method: random groups, with tags that are likely. The portable form may name more, never fewer; what it names too
 * much is compared by key anyway. */
static void a_match_leaves_no_record_out(void **state) {
    (void)state;
    alignas(16) _Atomic uint8_t tags[TWI_TAG_GROUP_SIZE];
    for (int round = 0; round < 20000; round++) {
        uint8_t tag = (uint8_t)test_prng_below(&prng, 4);
        uint32_t expected = 0;
        for (uint32_t i = 0; i < TWI_TAG_GROUP_SIZE; i++) {
            uint8_t value = (uint8_t)test_prng_below(&prng, round % 2 == 0 ? 4 : 256);
            twi_store_relaxed(&tags[i], value);
            expected |= (uint32_t)(value == tag) << i;
        }
        uint32_t match = twi_tag_group_match(tags, tag);
        assert_int_equal(match & expected, expected);
        assert_true((match != 0) == (expected != 0));
    }
    for (uint32_t tag = 0; tag < UINT32_C(1) << 16; tag++) {
        uint8_t value = twi_tag_group_tag(tag << 16);
        assert_true(value >= TWI_TAG_LOWEST && value != 0 && value != TWI_TAG_OVERFLOW);
    }
}

/* Goal: tag groups are built in steps, used only when they are complete, and never take memory that others need.
 * Method: small steps; an arena with too little room. */
static void a_home_is_built_in_steps_or_not_at_all(void **state) {
    (void)state;
    static struct field field;
    struct twi_tag_groups_plan plan;
    struct twi_tag_groups_forecast few = {30000, 1}, many = {40000, 1};
    field_begin(&field, UINT64_C(64) << 20, 0, true);
    assert_true(twi_tag_groups_begin(&field.arena, field.generation, few, INT64_MAX, &plan));
    uint32_t steps = 0, work = 0;
    for (; !twi_tag_groups_fill(&field.arena, field.generation, &plan, &work); work = 400, steps++)
        assert_i64_equal(twi_tag_groups_chunks(field.generation), 0);
    assert_true(steps > 50);
    assert_i64_equal(twi_tag_groups_chunks(field.generation), plan.next);
    field_end(&field);

    field_begin(&field, UINT64_C(64) << 20, 0, false); /* given up half-way */
    assert_true(twi_tag_groups_begin(&field.arena, field.generation, few, INT64_MAX, &plan));
    work = 10000;
    assert_false(twi_tag_groups_fill(&field.arena, field.generation, &plan, &work));
    twi_tag_groups_abandon(field.generation, &plan);
    field_end(&field);

    field_begin(&field, UINT64_C(4) << 20, 0, false); /* would take more than half of what there is */
    assert_false(twi_tag_groups_begin(&field.arena, field.generation, many, INT64_MAX, &plan));
    many.keys = UINT64_MAX / 2;
    assert_false(twi_tag_groups_begin(&field.arena, field.generation, many, INT64_MAX, &plan));
    many = (struct twi_tag_groups_forecast){12000, 3};
    assert_false(twi_tag_groups_begin(&field.arena, field.generation, many, INT64_MAX, &plan));
    field.quota.bytes_max = INT64_C(1) << 20;
    many = (struct twi_tag_groups_forecast){12000, 1};
    assert_false(twi_tag_groups_begin(&field.arena, field.generation, many, INT64_MAX, &plan));
    field.quota.bytes_max = 0;
    field_end(&field);
}

/* Goal: a hit in a small window reads no line of a directory, and no record of a small chunk is left without a tag.
 * Method: forecasts of all sizes about the bounds: a window of one chunk has its entry in itself, one of several has
 * not. A tag is free for each record of the groups, and for nothing else; the last group lacks half of its records at
 * most. What is built is given back. */
static void an_only_chunk_stands_in_its_window(void **state) {
    (void)state;
    static const uint32_t most[2][TWI_TAG_GROUPS_LINES_MAX] = {{1008, 496, 336, 240}, {224, 160, 112, 80}};
    for (int way = 0; way < 2 * (int)TWI_TAG_GROUPS_LINES_MAX; way++) {
        bool synced = way % 2 != 0;
        uint32_t lines = 1 + (uint32_t)way / 2;
        for (uint32_t expected = TWI_TAG_GROUPS_KEYS_MIN; expected < 1200; expected++) {
            static struct field field;
            field_begin_for(&field, UINT64_C(16) << 20, expected, synced, lines);
            const struct twi_tag_groups_at *at = &field.generation->tag_groups;
            assert_int_equal(chunks_in(&field) == 1, expected + expected / 4 <= most[synced][lines - 1]);
            assert_int_equal(at->directory == TWI_TAG_GROUPS_ONLY, chunks_in(&field) == 1);
            uint32_t grouped = 0;
            for (uint32_t c = 0; c < chunks_in(&field); c++) {
                grouped += grouped_of(&field, c);
                assert_true(at->groups * TWI_TAG_GROUP_SIZE - grouped_of(&field, c) <= TWI_TAG_GROUP_SIZE / 2);
                for (uint32_t i = 0; i < (at->groups + 3u) / 4 * TWI_LINE_BYTES; i++) {
                    bool free = twi_load_relaxed(&tags_of(&field, c)[i]) == 0;
                    assert_int_equal(free, i < grouped_of(&field, c));
                }
                assert_true(twi_load_relaxed(&chunk_of(&field, c)->used) == grouped_of(&field, c));
            }
            assert_true(grouped >= expected + expected / 8);
            field_end(&field);
        }
    }
}

/* Goal: a small family is small: a window of 65 keys takes 120 bytes a key, of which 64 are the record.
 * Method: told and untold, and fewer keys; what the generation has taken, by its own account. */
static void a_small_window_takes_little(void **state) {
    (void)state;
    static const struct {
        uint32_t keys;
        int64_t bytes_max[2];
    } cases[] = {{4, {1152, 1152}}, {32, {4736, 4032}}, {65, {7808, 7680}}, {128, {18048, 14912}}};
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

/* Goal: the whole engine with tag groups: a family with keys_expected, and one whose windows learn their size. Views,
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
            if (i == KEYS / 2 && (expected >= TWI_TAG_GROUPS_KEYS_MIN || window != 0))
                assert_true(twi_tag_groups_serving(generation, keys[0].size) != 0);
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
static void windows_with_homes_count_as_windows_do(void **state) {
    (void)state;
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

/* Goal: the next window has tag groups for the kind of record that most keys have, as many as there are such keys; for
 * keys that are too long for any it has none.
 * Method: a window of so many keys of each length; then the next one, once it is prepared. */
static void a_forecast_gives_homes_to_the_keys_of_most(void **state) {
    (void)state;
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
        uint32_t chunks = twi_tag_groups_chunks(next) & ~TWI_TAG_GROUPS_LONG;
        uint64_t records = (uint64_t)chunks * next->tag_groups.groups * TWI_TAG_GROUP_SIZE;
        assert_int_equal(next->tag_groups.lines, cases[c].lines);
        assert_true(records >= cases[c].records);
        assert_true(records <= 2 * cases[c].records);
        for (uint32_t length = 0; length < LENGTHS; length++)
            assert_int_equal(twi_tag_groups_serving(next, sizes[length]) != 0, length + 1 == cases[c].lines);
        rig_close(&rig);
    }
}

int main(void) {
    test_prng_seed(&prng, test_seed());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_home_answers_what_the_index_answers_or_nothing),
        cmocka_unit_test(who_loses_a_race_gives_its_record_back),
        cmocka_unit_test(tag_groups_come_while_threads_insert),
        cmocka_unit_test(the_first_keys_decide_for_whom_the_tag_groups_are),
        cmocka_unit_test(a_large_window_is_laid_out_when_it_is_made),
        cmocka_unit_test(tag_groups_that_find_no_room_are_done_without),
        cmocka_unit_test(a_match_leaves_no_record_out),
        cmocka_unit_test(a_home_is_built_in_steps_or_not_at_all),
        cmocka_unit_test(an_only_chunk_stands_in_its_window),
        cmocka_unit_test(a_small_window_takes_little),
        cmocka_unit_test(windows_with_homes_count_as_windows_do),
        cmocka_unit_test(a_forecast_gives_homes_to_the_keys_of_most),
    };
    return cmocka_run_group_tests_name("home", tests, NULL, NULL);
}
