/* table_test.c -- one generation: every key is found, once, while leaves are closed, copied and split; all memory is
 * given back. */
#include "tests/unit/rig.h"

#include "engine/table/index.h"

#include <pthread.h>

struct table {
    struct twi_arena arena;
    struct twi_quota quota;
    struct twi_generation *generation;
    struct twi_thread *self;
};

static bool always(void *ctx) {
    return true;
}
static bool never(void *ctx) {
    return false;
}

static void table_begin(struct table *table, uint64_t bytes, uint64_t keys_expected, bool synced) {
    memset(table, 0, sizeof *table);
    assert_true(twi_arena_make(&table->arena, bytes));
    table->self = twi_thread_here();
    twi_section_enter(table->self);
    table->generation = twi_table_make(&table->arena, &table->quota, keys_expected, synced);
}
/* Gives all back; nothing may be left in any account. */
static void table_end(struct table *table) {
    uint32_t work = UINT32_MAX;
    if (table->generation != NULL) assert_true(twi_table_unmake(&table->arena, table->generation, &work));
    assert_i64_equal(twi_arena_bytes_used(&table->arena), 0);
    assert_i64_equal(twi_load_relaxed(&table->quota.bytes), 0);
    twi_section_leave(table->self);
    twi_arena_unmake(&table->arena);
}

/* A hash of the test's choice: the tag in the upper half decides everything. */
static struct twi_lookup_key wanted_of(const uint32_t *number, uint32_t tag) {
    return twi_lookup_key((uint64_t)tag << 32, tw_bytes(number, sizeof *number));
}
static uint32_t mixed(uint32_t number) {
    uint64_t z = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)((z ^ z >> 31) * UINT64_C(0xBF58476D1CE4E5B9) >> 32);
}

static enum twi_found put(struct table *table, uint32_t number, uint32_t tag, struct twi_cell **cell) {
    struct twi_insert insert = {&table->arena, table->generation, table->self, wanted_of(&number, tag), 0, NULL, 0,
                                TWI_NO_VACANCY};
    return twi_table_insert(&insert, always, NULL, cell);
}
static struct twi_cell *look(struct table *table, uint32_t number, uint32_t tag) {
    struct twi_lookup_key wanted = wanted_of(&number, tag);
    return twi_table_find(&table->arena, table->generation, &wanted);
}

static bool count_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    (void)cell, (void)meta;
    ++*(uint64_t *)ctx;
    return true;
}
static uint64_t walk_count(struct table *table) {
    uint64_t count = 0;
    struct twi_cursor cursor = {0};
    twi_table_walk(&table->arena, table->generation, &cursor, count_cell, &count);
    assert_true(cursor.done);
    return count;
}

/* Goal: T1..T4. Whatever size the table was made for, an inserted key is found at the same address from then on, and
 * any other key is not found.
 * Method: grow far past the forecast; look at every key now and then. */
TEST(keys_stay_where_they_are_while_the_table_grows) {
    const uint64_t forecasts[] = {0, 5, 100, 1000, 50000, 1000000};
    for (size_t f = 0; f < sizeof forecasts / sizeof *forecasts; f++) {
        for (int synced = 0; synced < 2; synced++) {
            static struct table table;
            table_begin(&table, UINT64_C(256) << 20, forecasts[f], synced != 0);
            assert_non_null(table.generation);
            uint32_t count = (uint32_t)test_scale(40000);
            struct twi_cell **cells = calloc(count, sizeof *cells);
            for (uint32_t i = 0; i < count; i++) {
                assert_null(look(&table, i, mixed(i)));
                assert_int_equal(put(&table, i, mixed(i), &cells[i]), TWI_INSERTED);
                uint32_t old = mixed(i * 7) % (i + 1);
                assert_ptr_equal(look(&table, old, mixed(old)), cells[old]);
                struct twi_cell *again;
                if (i % 16 == 0) assert_int_equal(put(&table, old, mixed(old), &again), TWI_FOUND);
                if (i % 16 == 0) assert_ptr_equal(again, cells[old]);
            }
            for (uint32_t i = 0; i < count; i++) assert_ptr_equal(look(&table, i, mixed(i)), cells[i]);
            assert_i64_equal(walk_count(&table), count);
            assert_i64_equal(twi_load_relaxed(&table.generation->keys), count);
            free(cells);
            table_end(&table);
        }
    }
}

/* Goal: a look at a line answers for each word by itself, whatever stands next to it; the two words of a leaf's head
 * are no slots, whatever they hold. The hot path's look shows the first of the matching words.
 * Method: random words of four kinds, against a loop over them. */
TEST(a_look_at_a_line_answers_for_each_word) {
    struct twi_leaf *leaf = aligned_alloc(TWI_LINE_BYTES, 2 * TWI_LINE_BYTES);
    _Atomic uint64_t *words = twi_leaf_words(leaf, 0);
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    const uint32_t tags[] = {0, 1, UINT32_MAX, UINT32_C(0x80000000), 77};
    for (uint32_t round = 0; round < test_scale(20000); round++) {
        uint32_t tag = tags[round % 5], match = 0, vacant = 0;
        for (uint32_t i = 0; i < 2 * TWI_LINE_WORDS; i++) {
            uint64_t cell = 2 + test_prng_below(&prng, UINT32_MAX - 2), other = test_prng_below(&prng, UINT32_MAX);
            const uint64_t kinds[] = {TWI_SLOT_EMPTY, TWI_SLOT_CLOSED, (uint64_t)tag << 32 | cell, other << 32 | cell};
            uint64_t word = kinds[test_prng_below(&prng, 4)];
            twi_store_relaxed(&words[i], word);
            match |= (uint32_t)((uint32_t)(word >> 32) == tag) << i;
            vacant |= (uint32_t)(word <= TWI_SLOT_CLOSED) << i;
        }
        for (uint32_t line = 0; line < 2; line++) {
            uint32_t shift = line * TWI_LINE_WORDS, slots = line == 0 ? 0xfc : 0xff;
            struct twi_line_look look = twi_line_look(twi_leaf_words(leaf, line), tag);
            assert_int_equal(look.match, match >> shift & 0xff);
            assert_int_equal(look.vacant, vacant >> shift & 0xff);
            look = twi_leaf_look(leaf, line, tag);
            assert_int_equal(look.match, match >> shift & slots);
            assert_int_equal(look.vacant, vacant >> shift & slots);
            size_t twice = 0;
            bool shows = twi_line_shows(twi_leaf_words(leaf, line), (uint64_t)tag << 32 | round, &twice);
            assert_int_equal(shows, (match >> shift & 0xff) != 0);
            if (shows) assert_int_equal(twice, 2 * __builtin_ctz(match >> shift & 0xff));
        }
    }
    free(leaf);
}

/* Goal: T1, T4. A walk that has passed full lines goes round the leaf, past its head, and ends at the first vacant slot
 * in the order of lines and slots, in a leaf of any size; a copy has each key where such a walk finds it.
 * Method: tags that all begin in the last line of a leaf. */
TEST(a_walk_goes_round_by_lines) {
    static struct table table;
    for (uint32_t lines = 1; lines <= 64; lines *= 4) {
        table_begin(&table, UINT64_C(16) << 20, 0, false);
        uint64_t entry = twi_load_relaxed(&table.generation->root);
        struct twi_cell *cell;
        uint32_t count = 0;
        for (; twi_leaf_lines(entry) < lines; count++) { /* the leaf grows to that size */
            assert_int_equal(put(&table, count, mixed(count) << 6 | 63, &cell), TWI_INSERTED);
            entry = twi_index_leaf(&table.arena, table.generation, 0);
        }
        assert_int_equal(twi_leaf_lines(entry), lines);
        struct twi_leaf *leaf = twi_arena_at(&table.arena, TWI_ENTRY_LINE(entry));
        uint32_t slots = twi_leaf_slots(lines), expected = lines == 1 ? 0 : slots - TWI_LINE_WORDS;
        for (uint32_t seen = 0; seen < slots; seen++, expected = expected + 1 == slots ? 0 : expected + 1) {
            uint64_t stop;
            uint32_t at;
            struct twi_lookup_key absent = wanted_of(&(uint32_t){UINT32_MAX}, 63);
            if (seen < count) { /* taken, one after the other */
                assert_true(twi_load_relaxed(&leaf->slots[expected]) > TWI_SLOT_CLOSED);
                continue;
            }
            if (seen > count) break;
            assert_null(twi_leaf_find(&table.arena, entry, &absent, &stop, &at));
            assert_int_equal(stop, TWI_SLOT_EMPTY);
            assert_int_equal(at, expected);
        }
        for (uint32_t i = 0; i < count; i++) assert_non_null(look(&table, i, mixed(i) << 6 | 63));
        table_end(&table);
    }
}

/* The insert of a key whose look-up has ended where the walk of `tag` begins in the root leaf. */
static struct twi_insert seen_free(struct table *table, const uint32_t *number, uint32_t tag) {
    struct twi_insert insert = {&table->arena, table->generation, table->self, wanted_of(number, tag), 0, NULL, 0,
                                TWI_NO_VACANCY};
    uint64_t root = twi_load_relaxed(&table->generation->root);
    insert.vacancy.leaf = twi_arena_at(&table->arena, TWI_ENTRY_LINE(root));
    uint32_t line = twi_leaf_line(tag, twi_leaf_lines(root));
    insert.vacancy.at = line == 0 ? 0 : line * TWI_LINE_WORDS - TWI_LEAF_HEAD_WORDS;
    return insert;
}
static bool begins_at_a_taken_slot(struct table *table, uint32_t tag) {
    struct twi_insert insert = seen_free(table, &tag, tag);
    return twi_load_relaxed(&insert.vacancy.leaf->slots[insert.vacancy.at]) != TWI_SLOT_EMPTY;
}
static uint32_t records_left(struct table *table) {
    struct twi_chunk *chunk = twi_arena_at(&table->arena, twi_load_relaxed(&table->generation->chunks[0]));
    return chunk->capacity - twi_load_relaxed(&chunk->used);
}

/* Goal: an insert where the look-up ended needs no second walk. If another thread has taken the slot meanwhile, the
 * record serves the walk that follows, or is kept for a later insert; each key is counted once. */
TEST(a_record_that_lost_its_slot_is_used_elsewhere) {
    for (int synced = 0; synced < 2; synced++) {
        static struct table table;
        struct twi_cell *cell, *found;
        uint32_t first = 1, second = 2, third = 3, keys = 0, tag = 1;
        table_begin(&table, UINT64_C(16) << 20, TWI_AREA_KEYS_MIN - 1, synced != 0); /* without an area */
        do {
            assert_int_equal(put(&table, 100 + keys, mixed(keys), &cell), TWI_INSERTED);
        } while (++keys < 20 && records_left(&table) < 3);
        while (begins_at_a_taken_slot(&table, tag)) tag++;

        struct twi_insert insert = seen_free(&table, &first, tag);
        cell = twi_insert_at_vacancy(&insert, synced != 0);
        assert_non_null(cell);
        assert_ptr_equal(look(&table, first, tag), cell);
        /* another key whose walk begins there. The slot is no longer empty */
        insert = seen_free(&table, &second, tag);
        assert_null(twi_insert_at_vacancy(&insert, synced != 0));
        assert_non_null(insert.vacancy.made);
        assert_int_equal(twi_table_insert(&insert, always, NULL, &found), TWI_INSERTED);
        assert_ptr_equal(found, insert.vacancy.made);
        assert_ptr_equal(look(&table, second, tag), found);
        /* the same key again */
        insert = seen_free(&table, &first, tag);
        assert_null(twi_insert_at_vacancy(&insert, synced != 0));
        struct twi_cell *made = insert.vacancy.made;
        assert_non_null(made);
        assert_int_equal(twi_table_insert(&insert, always, NULL, &found), TWI_FOUND);
        assert_ptr_equal(found, cell);
        assert_int_equal(put(&table, third, tag, &found), TWI_INSERTED);
        assert_ptr_equal(found, made);
        assert_i64_equal(twi_load_relaxed(&table.generation->keys), keys + 3);
        assert_i64_equal(walk_count(&table), keys + 3);
        table_end(&table);
    }
}

/* Goal: tags that agree in many bits, by chance or by an attacker, split deep and lose nothing.
 * Method: all tags share their upper 20 bits, or their lower ones. */
TEST(tags_that_agree_in_many_bits_split_deep) {
    for (uint32_t low = 0; low < 2; low++) {
        static struct table table;
        table_begin(&table, UINT64_C(64) << 20, 0, false);
        struct twi_cell *cell;
        for (uint32_t i = 0; i < 2000; i++) {
            uint32_t tag = low ? i << 20 : UINT32_C(0xabcde000) | i * 2;
            assert_int_equal(put(&table, i, tag, &cell), TWI_INSERTED);
        }
        for (uint32_t i = 0; i < 2000; i++) {
            uint32_t tag = low ? i << 20 : UINT32_C(0xabcde000) | i * 2;
            cell = look(&table, i, tag);
            assert_non_null(cell);
            assert_memory_equal(cell->key, &i, sizeof i);
        }
        table_end(&table);
    }
}

/* Returns how many bits of the tag lead to the leaf of a key. */
static uint32_t bits_to(struct table *table, uint32_t tag) {
    _Atomic uint64_t *where;
    uint32_t bits;
    (void)twi_index_descend(&table->arena, &table->generation->root, tag, &where, &bits);
    return bits;
}
static uint64_t root_of(struct table *table) {
    return twi_load_relaxed(&table->generation->root);
}

/* Goal: a look-up in a window that has grown reads one node, as in a window of known size, and the nodes take next to
 * no memory. Method: as many keys as need some 512 leaves; every key's way, and what the window has taken. */
TEST(a_window_that_grows_has_one_node_above_its_leaves) {
    enum { KEYS = 131072 };
    const uint64_t forecasts[] = {0, 1000, 50000};
    const int64_t bytes_max[] = {100, 100, 92};
    for (size_t f = 0; f < sizeof forecasts / sizeof *forecasts; f++) {
        static struct table table;
        table_begin(&table, UINT64_C(64) << 20, forecasts[f], false);
        struct twi_cell *cell;
        for (uint32_t i = 0; i < KEYS; i++) assert_int_equal(put(&table, i, mixed(i), &cell), TWI_INSERTED);
        assert_int_equal(twi_node_bits(root_of(&table)), 9);
        for (uint32_t i = 0; i < KEYS; i++) {
            assert_int_equal(bits_to(&table, mixed(i)), 9);
            assert_non_null(look(&table, i, mixed(i)));
        }
        assert_i64_equal(walk_count(&table), KEYS);
        int64_t bytes = twi_load_relaxed(&table.generation->bytes);
        if (bytes > bytes_max[f] * KEYS) fail_msg("%f bytes a key, forecast %u", (double)bytes / KEYS, (unsigned)f);
        table_end(&table);
    }
}

/* Goal: a thread that has loaded a root before wider ones replaced it finds every key, and what it repairs on its way
 * misleads nobody, though entries of the newest root name a leaf that has split twice since they were copied.
 * Method: few keys in a quarter of the tags, until the root is wide; then more, so that this quarter's leaf splits. The
 * newest root gets its former entries back. All look-ups and inserts of known keys go by each root that there was. */
static uint32_t tag_beside(uint32_t number) {
    return mixed(number) | UINT32_C(1) << 30;
}
static uint32_t tag_within(uint32_t number) {
    return mixed(number) >> 2;
}
static void find_all_by(struct table *table, uint64_t root, uint32_t beside, uint32_t all) {
    twi_store_relaxed(&table->generation->root, root);
    for (uint32_t i = 0; i < all; i++) {
        uint32_t tag = i < beside ? tag_beside(i) : tag_within(i);
        struct twi_cell *cell = look(table, i, tag), *again;
        assert_non_null(cell);
        assert_int_equal(put(table, i, tag, &again), TWI_FOUND);
        assert_ptr_equal(again, cell);
        assert_ptr_equal(look(table, i, tag), cell);
    }
}
TEST(whoever_still_uses_a_root_that_was_replaced_finds_all) {
    enum { BESIDE = 30000, ALL = 34000 };
    static struct table table;
    table_begin(&table, UINT64_C(64) << 20, 1000, false);
    struct twi_cell *cell;
    uint64_t roots[16] = {root_of(&table)}, former[256];
    uint32_t count = 1;
    assert_int_equal(twi_node_bits(roots[0]), 2);
    for (uint32_t i = 0; i < BESIDE; i++) {
        assert_int_equal(put(&table, i, tag_beside(i), &cell), TWI_INSERTED);
        if (root_of(&table) != roots[count - 1]) roots[count++] = root_of(&table);
    }
    assert_true(count >= 5);
    uint64_t newest = roots[count - 1];
    struct twi_node *node = twi_arena_at(&table.arena, TWI_ENTRY_LINE(newest));
    uint32_t quarter = (1u << twi_node_bits(newest)) / 4;
    for (uint32_t i = 0; i < quarter; i++) former[i] = twi_load_relaxed(&node->entries[i]);
    assert_true(former[0] == former[quarter - 1]);
    for (uint32_t i = BESIDE; i < ALL; i++) assert_int_equal(put(&table, i, tag_within(i), &cell), TWI_INSERTED);
    assert_true(root_of(&table) == newest);
    for (uint32_t i = 0; i < quarter; i++) twi_store_relaxed(&node->entries[i], former[i]);
    for (uint32_t r = 0; r < count; r++) find_all_by(&table, roots[r], BESIDE, ALL);
    for (uint32_t r = count; r-- != 0;) find_all_by(&table, roots[r], BESIDE, ALL);
    twi_store_relaxed(&table.generation->root, newest);
    for (uint32_t i = ALL; i < 2 * ALL; i++) assert_int_equal(put(&table, i, tag_within(i), &cell), TWI_INSERTED);
    find_all_by(&table, root_of(&table), BESIDE, 2 * ALL);
    assert_i64_equal(walk_count(&table), 2 * ALL);
    table_end(&table);
}

/* Goal: if many keys agree in the bits that the root uses, one full leaf has a node of its own below the root. The root
 * stays as it is, however many keys come, because a wider one could not name a part of that node. */
static uint32_t agreeing(uint32_t number) {
    return UINT32_C(0xab000000) | number << 8;
}
TEST(a_root_above_a_node_stays) {
    enum { KEYS = 131072 };
    static struct table table;
    table_begin(&table, UINT64_C(64) << 20, 0, false);
    struct twi_cell *cell;
    for (uint32_t i = 0; i < 2000; i++) assert_int_equal(put(&table, i, agreeing(i), &cell), TWI_INSERTED);
    assert_true((root_of(&table) & TWI_ROOT_STAYS) != 0);
    for (uint32_t i = 2000; i < KEYS; i++) assert_int_equal(put(&table, i, mixed(i), &cell), TWI_INSERTED);
    assert_int_equal(twi_node_bits(root_of(&table)), TWI_NODE_LOG2);
    for (uint32_t i = 0; i < KEYS; i++) assert_non_null(look(&table, i, i < 2000 ? agreeing(i) : mixed(i)));
    assert_i64_equal(walk_count(&table), KEYS);
    table_end(&table);
}

/* Goal: keys of one tag are distinguished by their bytes; when no leaf can hold them all, the table says that there is
 * no room, and nothing hangs. */
TEST(keys_of_one_tag_fill_a_leaf_and_no_more) {
    const uint32_t tags[] = {0, 1, UINT32_MAX, 0x12345678};
    for (size_t t = 0; t < 4; t++) {
        static struct table table;
        table_begin(&table, UINT64_C(64) << 20, 0, false);
        struct twi_cell *cell;
        uint32_t count = 0;
        while (put(&table, count, tags[t], &cell) == TWI_INSERTED) count++;
        assert_true(count >= 400 && count <= 510);
        assert_int_equal(put(&table, count, tags[t], &cell), TWI_NO_ROOM);
        assert_int_equal(put(&table, 0, tags[t], &cell), TWI_FOUND);
        for (uint32_t i = 0; i < count; i++) assert_non_null(look(&table, i, tags[t]));
        assert_null(look(&table, count, tags[t]));
        for (uint32_t i = 0; i < 1000; i++) { /* others are not harmed */
            if (mixed(i) >> 8 != tags[t] >> 8) assert_int_equal(put(&table, i + 100000, mixed(i), &cell), TWI_INSERTED);
        }
        table_end(&table);
    }
}

/* Goal: E15. Without memory for a copy, a leaf takes further keys; its keys stay, and memory that becomes free later is
 * used.
 * Method: arenas that end at every possible place. */
TEST(trap_e15_without_memory_leaves_fill_up_and_nothing_is_lost) {
    for (uint32_t left = 0; left < 400; left += 1 + left / 16) {
        static struct table table;
        table_begin(&table, UINT64_C(1) << 20, 0, left % 2 == 0);
        uint32_t taken[20000], count = 0, inserted = 0;
        for (uint32_t lines = 1024; lines != 0; lines /= 2)
            while (count < 20000 && (taken[count] = twi_arena_take(&table.arena, lines)) != 0) count++;
        struct twi_cell *cell;
        /* let so many lines go that something can grow, and something cannot */
        for (uint32_t back = 0; back < left && count != 0; back++) {
            /* the last taken are single lines */
            twi_arena_give(&table.arena, taken[--count], 1);
        }
        while (put(&table, inserted, mixed(inserted), &cell) == TWI_INSERTED) inserted++;
        assert_int_equal(put(&table, inserted, mixed(inserted), &cell), TWI_NO_ROOM);
        for (uint32_t i = 0; i < inserted; i++) {
            assert_non_null(look(&table, i, mixed(i)));
            assert_int_equal(put(&table, i, mixed(i), &cell), TWI_FOUND);
        }
        assert_i64_equal(walk_count(&table), inserted);
        assert_i64_equal(twi_load_relaxed(&table.generation->keys), inserted);
        uint32_t work = UINT32_MAX;
        assert_true(twi_table_unmake(&table.arena, table.generation, &work));
        assert_i64_equal(twi_load_relaxed(&table.quota.bytes), 0);
        twi_section_leave(table.self);
        twi_arena_unmake(&table.arena);
    }
}

TEST(a_generation_that_cannot_be_made_leaves_nothing) {
    static struct table table;
    table_begin(&table, UINT64_C(1) << 20, 0, false);
    for (uint32_t lines = 1024; lines != 0; lines /= 2)
        while (twi_arena_take(&table.arena, lines) != 0) continue;
    int64_t full = twi_arena_bytes_used(&table.arena);
    assert_null(twi_table_make(&table.arena, &table.quota, 0, false));
    assert_i64_equal(twi_arena_bytes_used(&table.arena), full);
    twi_section_leave(table.self);
    twi_arena_unmake(&table.arena);
}

/* Goal: E3. A forecast that finds no room commits nothing and cuts nothing up: the window starts small. */
TEST(a_forecast_that_finds_no_room_takes_none) {
    static struct table table;
    table_begin(&table, UINT64_C(1) << 20, 10000000, false);
    assert_non_null(table.generation);
    assert_true(twi_arena_bytes_used(&table.arena) <= 10 * TWI_LINE_BYTES);
    table_end(&table);
}

TEST(the_bound_of_keys_is_exact) {
    static struct table table;
    table_begin(&table, UINT64_C(16) << 20, 0, false);
    twi_store_relaxed(&table.quota.keys_max, 1000);
    struct twi_cell *cell;
    for (uint32_t i = 0; i < 1000; i++) assert_int_equal(put(&table, i, mixed(i), &cell), TWI_INSERTED);
    for (uint32_t i = 1000; i < 1100; i++) assert_int_equal(put(&table, i, mixed(i), &cell), TWI_NO_ROOM);
    for (uint32_t i = 0; i < 1000; i++) assert_int_equal(put(&table, i, mixed(i), &cell), TWI_FOUND);
    twi_store_relaxed(&table.quota.keys_max, 1001);
    assert_int_equal(put(&table, 1000, mixed(1000), &cell), TWI_INSERTED);
    table_end(&table);
}

/* ---- sealing ----------------------------------------------------------------------------------------------------- */

struct frozen {
    uint64_t cells;
    int64_t sum;
};
static void note(void *ctx, struct twi_cell *cell, uint64_t meta, int64_t final) {
    struct frozen *frozen = ctx;
    if ((meta & TWI_META_OVERFLOW) != 0) {
        assert_i64_equal(final, 0);
        return;
    }
    frozen->cells++;
    frozen->sum += final;
    assert_i64_equal(twi_cell_local(cell, meta), final);
}

/* Goal: E18. Sealing freezes each cell once, in steps of any size, and afterwards nothing can be added or inserted. */
TEST(trap_e18_sealing_in_steps_freezes_every_cell_once) {
    for (uint32_t step = 1; step < 100000; step *= 30) {
        for (uint32_t count = 0; count < 5000; count = count * 6 + 1) {
            static struct table table;
            table_begin(&table, UINT64_C(64) << 20, 0, count % 2 == 0);
            struct twi_cell *cell;
            uint64_t before;
            for (uint32_t i = 0; i < count; i++) {
                assert_int_equal(put(&table, i, mixed(i), &cell), TWI_INSERTED);
                assert_int_equal(twi_cell_add(cell, twi_load_relaxed(&cell->meta), i, &before), TWI_ADDED);
            }
            struct frozen frozen = {0, 0};
            uint32_t work = step;
            for (uint32_t turns = 0; !twi_table_seal(&table.arena, table.generation, &work, note, &frozen); turns++) {
                assert_true(turns < 10000);
                work = step;
            }
            assert_i64_equal(frozen.cells, count);
            assert_i64_equal(frozen.sum, (int64_t)count * ((int64_t)count - 1) / 2);
            for (uint32_t i = 0; i < count; i++) {
                cell = look(&table, i, mixed(i));
                assert_non_null(cell);
                assert_int_equal(twi_cell_add(cell, twi_load_relaxed(&cell->meta), 1, &before), TWI_ADD_FROZEN);
                assert_i64_equal(twi_cell_local(cell, twi_load_relaxed(&cell->meta)), i);
            }
            for (uint32_t i = count; i < count + 100; i++) {
                assert_int_equal(put(&table, i, mixed(i), &cell), TWI_GONE_SEALED);
                assert_null(look(&table, i, mixed(i)));
            }
            table_end(&table);
        }
    }
}

/* Goal: a sealer or a grower that stopped leaves a leaf half closed; the next thread finishes it. */
TEST(a_leaf_left_half_closed_is_finished_by_the_next) {
    for (uint32_t filled = 0; filled < 300; filled += 7) {
        static struct table table;
        table_begin(&table, UINT64_C(16) << 20, 0, false);
        struct twi_cell *cell;
        for (uint32_t i = 0; i < filled; i++) assert_int_equal(put(&table, i, mixed(i), &cell), TWI_INSERTED);
        for (uint32_t tag = 0; tag < 16; tag++) {
            uint64_t entry = twi_index_leaf(&table.arena, table.generation, tag << 28);
            struct twi_leaf *leaf = twi_arena_at(&table.arena, TWI_ENTRY_LINE(entry));
            uint32_t slots = twi_leaf_slots(twi_leaf_lines(entry));
            for (uint32_t at = tag % 2; at < slots; at += 2) {
                uint64_t found = TWI_SLOT_EMPTY;
                (void)twi_cas_acqrel(&leaf->slots[at], &found, TWI_SLOT_CLOSED);
            }
        }
        for (uint32_t i = 0; i < filled; i++) assert_non_null(look(&table, i, mixed(i)));
        for (uint32_t i = filled; i < filled + 100; i++) {
            assert_null(look(&table, i, mixed(i)));
            assert_int_equal(put(&table, i, mixed(i), &cell), TWI_INSERTED);
            assert_ptr_equal(look(&table, i, mixed(i)), cell);
        }
        assert_i64_equal(walk_count(&table), filled + 100);
        table_end(&table);
    }
}

/* Goal: E22. A closed probe is for its key alone, for ever; other keys of the leaf that are there stay, and an inserter
 * whose clock has moved is told so. */
TEST(trap_e22_a_closed_probe_keeps_its_key_out) {
    for (uint32_t filled = 0; filled < 1000; filled = filled * 2 + 3) {
        static struct table table;
        table_begin(&table, UINT64_C(16) << 20, 0, false);
        struct twi_cell *cell;
        for (uint32_t i = 0; i < filled; i++) assert_int_equal(put(&table, i, mixed(i), &cell), TWI_INSERTED);
        for (uint32_t i = 0; i < filled + 50; i++) {
            struct twi_lookup_key wanted = wanted_of(&i, mixed(i));
            cell = twi_table_close_probe(&table.arena, table.generation, &wanted);
            assert_int_equal(cell != NULL, i < filled);
        }
        for (uint32_t i = filled; i < filled + 50; i++) {
            struct twi_insert insert = {
                &table.arena, table.generation, table.self, wanted_of(&i, mixed(i)), 0, NULL, 0, TWI_NO_VACANCY};
            enum twi_found found = twi_table_insert(&insert, never, NULL, &cell);
            assert_true(found == TWI_CLOCK_MOVED || found == TWI_GONE_SEALED);
            found = put(&table, i, mixed(i), &cell); /* even for one whose clock has not moved */
            assert_int_equal(found, TWI_GONE_SEALED);
            assert_null(look(&table, i, mixed(i)));
        }
        struct frozen frozen = {0, 0};
        uint32_t work = UINT32_MAX;
        assert_true(twi_table_seal(&table.arena, table.generation, &work, note, &frozen));
        assert_i64_equal(frozen.cells, filled);
        table_end(&table);
    }
}

TEST(giving_back_in_steps_gives_all_back) {
    static struct table table;
    table_begin(&table, UINT64_C(64) << 20, 0, false);
    struct twi_cell *cell;
    for (uint32_t i = 0; i < 20000; i++) assert_int_equal(put(&table, i, mixed(i), &cell), TWI_INSERTED);
    uint32_t turns = 0, work;
    do {
        work = 2000;
        turns++;
    } while (!twi_table_unmake(&table.arena, table.generation, &work));
    assert_true(turns > 5 && turns < 1000);
    table.generation = NULL;
    table_end(&table);
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

struct limited {
    uint64_t count, limit;
};
static bool count_some(void *ctx, struct twi_cell *cell, uint64_t meta) {
    (void)cell, (void)meta;
    struct limited *limited = ctx;
    return ++limited->count % limited->limit != 0;
}

TEST(a_walk_in_pieces_sees_each_cell_once) {
    static struct table table;
    table_begin(&table, UINT64_C(64) << 20, 0, false);
    struct twi_cell *cell;
    for (uint32_t i = 0; i < 5000; i++) assert_int_equal(put(&table, i, mixed(i), &cell), TWI_INSERTED);
    for (uint64_t limit = 1; limit < 10000; limit = limit * 3 + 1) {
        struct limited limited = {0, limit};
        struct twi_cursor cursor = {0};
        while (!cursor.done) twi_table_walk(&table.arena, table.generation, &cursor, count_some, &limited);
        assert_i64_equal(limited.count, 5000);
    }
    table_end(&table);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

struct inserter {
    pthread_t thread;
    struct table *table;
    uint32_t from, to, step;
    uint64_t inserted;
};
static void *insert_range(void *ctx) {
    struct inserter *inserter = ctx;
    struct table *table = inserter->table;
    struct twi_thread *self = twi_thread_here();
    for (uint32_t i = inserter->from; i != inserter->to; i += inserter->step) {
        struct twi_insert insert = {&table->arena, table->generation, self, wanted_of(&i, mixed(i)), 0, NULL, 0,
                                    TWI_NO_VACANCY};
        struct twi_cell *cell = NULL;
        uint64_t before;
        twi_section_enter(self);
        enum twi_found found = twi_table_insert(&insert, always, NULL, &cell);
        if (found == TWI_INSERTED) inserter->inserted++;
        if (cell == NULL || memcmp(cell->key, &i, sizeof i) != 0) abort();
        if (twi_cell_add(cell, twi_cell_publish(cell), 1, &before) != TWI_ADDED) abort();
        twi_section_leave(self);
    }
    return NULL;
}

static bool sum_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    *(int64_t *)ctx += twi_cell_local(cell, meta);
    return true;
}

/* Goal: E12. Threads that insert the same keys from both ends agree on one cell for each, through all growth: of
 * leaves, and of a root that is too small. */
TEST(trap_e12_inserters_of_the_same_keys_agree) {
    for (int round = 0; round < 12; round++) {
        static struct table table;
        table_begin(&table, UINT64_C(64) << 20, round % 4 < 2 ? 0 : 1000, round % 2 == 0);
        uint32_t count = (uint32_t)test_scale(10000);
        struct inserter inserters[3] = {{.table = &table, .from = 0, .to = count, .step = 1},
                                        {.table = &table, .from = count - 1, .to = UINT32_MAX, .step = UINT32_MAX},
                                        {.table = &table, .from = 0, .to = count, .step = 1}};
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&inserters[i].thread, NULL, insert_range, &inserters[i]), 0);
        for (int i = 0; i < 3; i++) pthread_join(inserters[i].thread, NULL);
        assert_i64_equal(inserters[0].inserted + inserters[1].inserted + inserters[2].inserted, count);
        assert_i64_equal(walk_count(&table), count);
        int64_t sum = 0;
        struct twi_cursor cursor = {0};
        twi_table_walk(&table.arena, table.generation, &cursor, sum_cell, &sum);
        assert_i64_equal(sum, 3 * (int64_t)count);
        table_end(&table);
    }
}

/* Goal: a key takes the lines that it needs, and its share of the index, not twice as much.
 * Method: a window that grows to keys of one length; what it has taken by its own account. */
TEST(a_long_key_takes_little_more_than_its_lines) {
    static const size_t sizes[] = {33, 48, 96, 97, 100, 160, 161, 224};
    uint32_t keys = (uint32_t)test_scale(20000);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        static struct table table;
        table_begin(&table, UINT64_C(64) << 20, 0, false);
        unsigned char bytes[256] = {0};
        for (uint32_t number = 0; number < keys; number++) {
            struct twi_cell *cell;
            memcpy(bytes, &number, sizeof number);
            struct twi_insert insert = {&table.arena,
                                        table.generation,
                                        table.self,
                                        twi_lookup_key((uint64_t)mixed(number) << 32, tw_bytes(bytes, sizes[i])),
                                        0,
                                        NULL,
                                        0,
                                        TWI_NO_VACANCY};
            assert_int_equal(twi_table_insert(&insert, always, NULL, &cell), TWI_INSERTED);
        }
        int64_t lines = (int64_t)((TWI_LINE_BYTES - TWI_KEY_INLINE + sizes[i] + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
        int64_t most = keys * (lines * TWI_LINE_BYTES * 102 / 100 + 40) + 65536;
        if (twi_load_relaxed(&table.generation->bytes) > most)
            fail_msg("%u keys of %zu bytes: %lld bytes", keys, sizes[i],
                     (long long)twi_load_relaxed(&table.generation->bytes));
        table_end(&table);
    }
}

/* Goal: a key whose earlier cell was at the edge of the range is counted carefully from its first unit on. Method: the
 * last value that is plain, and the first that is not, on both sides. */
TEST(a_successor_at_the_edge_is_counted_carefully) {
    static const struct {
        int64_t local;
        bool is_edge;
    } cases[] = {
        {TWI_VALUE_EDGE - 1, false}, {TWI_VALUE_EDGE, true}, {-TWI_VALUE_EDGE + 1, false}, {-TWI_VALUE_EDGE, true}};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct table table; /* a sanitizer aligns what is on the stack to less than a line */
        struct twi_cell *cell;
        const struct twi_inherited inherited = {.local = cases[i].local, .is_successor = true};
        table_begin(&table, UINT64_C(4) << 20, 10, true);
        struct twi_insert insert = {
            &table.arena, table.generation, table.self, wanted_of(&i, mixed(i)), 0, &inherited, 0, TWI_NO_VACANCY};
        assert_int_equal(twi_table_insert(&insert, always, NULL, &cell), TWI_INSERTED);
        uint64_t meta = twi_load_relaxed(&cell->meta);
        assert_int_equal((meta & TWI_META_EDGE) != 0, cases[i].is_edge);
        assert_i64_equal(twi_cell_local(cell, meta), cases[i].local);
        table_end(&table);
    }
}
