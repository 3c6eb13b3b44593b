/* cell_test.c -- the counter word: counts of either sign up to the range, flags that no sum can change, and
 * freezing. */
#include "tests/support/support.h"

#include "engine/table/cell.h"

#include <pthread.h>

static struct twi_cell cell;

static uint64_t set(int64_t value, uint64_t flags) {
    memset((void *)&cell, 0, sizeof cell);
    twi_store_relaxed(&cell.local, (uint64_t)value << TWI_COUNT_SHIFT | flags);
    return 0;
}

TEST(trap_e3_no_sum_touches_the_flags) {
    const int64_t values[] = {
        0, 1, -1, 5, -5, (INT64_C(1) << 58) - 1, -(INT64_C(1) << 58), TW_COUNT_MAX, -TW_COUNT_MAX};
    const int64_t deltas[] = {
        0, 1, -1, 1000, -1000, (INT64_C(1) << 40) - 1, -(INT64_C(1) << 40) + 1, TW_DELTA_MAX, -TW_DELTA_MAX};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        for (size_t d = 0; d < sizeof deltas / sizeof *deltas; d++) {
            for (uint64_t dirty = 0; dirty <= TWI_DIRTY; dirty += TWI_DIRTY) {
                uint64_t meta = set(values[v], dirty), before;
                int64_t sum = values[v] + deltas[d];
                if (sum > TW_COUNT_MAX || sum < -TW_COUNT_MAX) meta = TWI_META_EDGE;
                enum twi_added added = twi_cell_add(&cell, meta, deltas[d], &before);
                uint64_t word = twi_load_relaxed(&cell.local);
                assert_i64_equal(word & (TWI_FROZEN | TWI_DIRTY), dirty);
                assert_i64_equal(before & (TWI_FROZEN | TWI_DIRTY), dirty);
                assert_i64_equal(twi_word_value(before), values[v]);
                bool fits = sum <= TW_COUNT_MAX && sum >= -TW_COUNT_MAX;
                assert_int_equal(added, fits ? TWI_ADDED : TWI_ADD_RANGE);
                assert_i64_equal(twi_word_value(word), fits ? sum : values[v]);
            }
        }
    }
}

/* Goal: E4. Adds of any size that creep up to the end of the range are refused before they pass it; the mark of the
 * edge comes in time.
 * Method: the largest plain deltas from just below the edge. */
TEST(trap_e4_plain_adds_notice_the_edge_in_time) {
    for (int64_t sign = -1; sign <= 1; sign += 2) {
        (void)set(sign * (TWI_VALUE_EDGE - 1), 0);
        uint64_t before;
        int adds = 0;
        while (twi_cell_add(&cell, twi_load_relaxed(&cell.meta), sign * (TWI_DELTA_PLAIN - 1), &before) == TWI_ADDED) {
            adds++;
            int64_t value = twi_word_value(twi_load_relaxed(&cell.local));
            assert_true(value <= TW_COUNT_MAX && value >= -TW_COUNT_MAX);
            if (adds == 2) assert_true((twi_load_relaxed(&cell.meta) & TWI_META_EDGE) != 0);
            if (adds == 10)
                (void)twi_add_relaxed(&cell.local,
                                      (uint64_t)(sign * (TW_COUNT_MAX - TWI_VALUE_EDGE - 100 * TWI_DELTA_PLAIN))
                                          << TWI_COUNT_SHIFT); /* the long way, in one step */
        }
        assert_true(adds > 10 && adds < 200);
    }
}

TEST(a_frozen_cell_counts_no_more_and_keeps_its_final_value) {
    for (int64_t value = -3; value <= 3; value++) {
        uint64_t meta = set(value, TWI_DIRTY), before;
        assert_i64_equal(twi_cell_freeze(&cell, meta), value);
        assert_i64_equal(twi_cell_freeze(&cell, meta), value);
        for (int i = 0; i < 10; i++) {
            assert_int_equal(twi_cell_add(&cell, meta, 7, &before), TWI_ADD_FROZEN);
            assert_int_equal(twi_cell_add(&cell, meta, TW_DELTA_MAX, &before), TWI_ADD_FROZEN);
            assert_i64_equal(twi_cell_local(&cell, meta), value);
            assert_i64_equal(twi_cell_view(&cell, meta), value);
            assert_i64_equal(twi_cell_freeze(&cell, meta), value);
        }
    }
}

TEST(the_cold_part_stands_apart_from_cells_and_keys) {
    alignas(64) static unsigned char memory[64 * 64];
    for (uint32_t kind = 0; kind < TWI_KINDS; kind++) {
        for (uint32_t index = 0; index < 2; index++) {
            size_t lines = kind == 0 ? index * 2 : index * twi_kinds[kind].lines;
            struct twi_cell *at = (struct twi_cell *)(memory + 64 + lines * 64);
            uint64_t meta =
                (uint64_t)index << TWI_META_INDEX_SHIFT | (uint64_t)kind << TWI_META_KIND_SHIFT | TWI_META_COLD;
            unsigned char *cold = (unsigned char *)twi_cell_cold(at, meta), *key = at->key;
            assert_true(cold >= key + twi_kinds[kind].key_synced ||
                        cold + sizeof(struct twi_cold) <= (unsigned char *)at);
            assert_true((uintptr_t)cold % 32 == 0);
        }
        assert_true(twi_kinds[kind].key_local + 32 <= twi_kinds[kind].lines * 64);
    }
    struct twi_cell *a = (struct twi_cell *)memory, *b = (struct twi_cell *)(memory + 128);
    uint64_t second = UINT64_C(1) << TWI_META_INDEX_SHIFT;
    assert_true((unsigned char *)twi_cell_cold(b, second) - (unsigned char *)twi_cell_cold(a, 0) ==
                sizeof(struct twi_cold));
}

TEST(every_key_size_has_a_kind_that_holds_it) {
    for (size_t size = 1; size <= TW_KEY_SIZE_MAX; size++) {
        uint32_t local = twi_kind_for(size, false), synced = twi_kind_for(size, true);
        assert_true(local < TWI_KINDS && twi_kinds[local].key_local >= size);
        assert_true(synced < TWI_KINDS && twi_kinds[synced].key_synced >= size);
        assert_true(local == 0 || twi_kinds[local - 1].key_local < size);
        assert_true(synced == 0 || twi_kinds[synced - 1].key_synced < size);
        for (int way = 0; way < 2 && size > TWI_KEY_INLINE; way++) { /* the same without a table */
            uint32_t kind = way != 0 ? synced : local, lines = twi_kinds[kind].lines;
            assert_true(lines <= 4 ? twi_long_lines(size, way != 0) == lines : twi_long_lines(size, way != 0) > 4);
            assert_int_equal(twi_long_kind(size, way != 0), lines <= 4 ? lines - 2 : 3);
            assert_true(lines > 4 || kind + 1 == lines);
        }
    }
}

/* Goal: keys that are common, also those of about 100 bytes, have no record that is twice as large as they need.
 * Method: the lines of records at the bounds of each size of up to four lines. */
TEST(a_key_has_no_more_lines_than_it_needs) {
    for (size_t size = 1; size <= 224; size++) {
        assert_int_equal(twi_kinds[twi_kind_for(size, false)].lines, (32 + size + 63) / 64);
        size_t with_cold = size <= TWI_KEY_INLINE ? 1 : (64 + size + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES;
        if (size <= 192) assert_int_equal(twi_kinds[twi_kind_for(size, true)].lines, with_cold);
    }
    assert_int_equal(twi_kinds[twi_kind_for(100, false)].lines, 3);
    assert_int_equal(twi_kinds[twi_kind_for(100, true)].lines, 3);
}

TEST(keys_are_equal_when_all_their_bytes_are) {
    unsigned char a[128], b[128];
    for (size_t size = 1; size <= 100; size++) {
        memset(a, 'k', sizeof a);
        memset(b, 'k', sizeof b);
        memset(a + size, 'x', sizeof a - size); /* what is behind does not matter */
        assert_true(twi_key_equal(a, b, size));
        for (size_t at = 0; at < size; at++) {
            b[at] ^= 0x80;
            assert_false(twi_key_equal(a, b, size));
            b[at] ^= 0x80;
        }
    }
}

/* Goal: a record has all bytes of its key, and none next to them is read or written.
 * Method: every size, from memory of just that size. */
TEST(a_key_is_copied_with_all_its_bytes_and_no_others) {
    for (size_t size = 1; size <= TW_KEY_SIZE_MAX; size++) {
        unsigned char *from = malloc(size), to[1 + TW_KEY_SIZE_MAX + 1];
        assert_non_null(from);
        for (size_t at = 0; at < size; at++) from[at] = (unsigned char)(at * 37 + size);
        memset(to, 0xee, sizeof to);
        twi_key_copy(to + 1, from, size);
        assert_memory_equal(to + 1, from, size);
        assert_int_equal(to[0], 0xee);
        for (size_t at = 1 + size; at < sizeof to; at++) assert_int_equal(to[at], 0xee);
        free(from);
    }
}

TEST(sums_saturate) {
    assert_i64_equal(twi_saturated_sum(INT64_MAX, 1), INT64_MAX);
    assert_i64_equal(twi_saturated_sum(INT64_MIN, -1), INT64_MIN);
    assert_i64_equal(twi_saturated_sum(INT64_MIN, INT64_MIN), INT64_MIN);
    assert_i64_equal(twi_saturated_sum(INT64_MAX, INT64_MIN), -1);
    assert_i64_equal(twi_saturated_sum(-5, 7), 2);
}

struct adder {
    pthread_t thread;
    int64_t added;
};
static _Atomic bool go;
static void *add_until_frozen(void *ctx) {
    struct adder *adder = ctx;
    uint64_t before;
    while (!atomic_load(&go)) continue;
    for (int64_t i = 1;; i++) {
        int64_t delta = i % 3 == 0 ? (INT64_C(1) << 41) : i % 7 - 3; /* the careful way, too */
        if (twi_cell_add(&cell, 0, delta, &before) != TWI_ADDED) break;
        adder->added += delta;
        if (i % 3 == 0) adder->added -= twi_cell_add(&cell, 0, -delta, &before) == TWI_ADDED ? delta : 0;
    }
    return NULL;
}

/* Goal: E1. The value at the freeze is exactly the sum of the adds that returned success. */
TEST(trap_e1_a_freeze_amid_adds_loses_nothing_and_takes_nothing_twice) {
    for (uint64_t round = 0; round < test_scale(200); round++) {
        uint64_t meta = set(0, 0);
        struct adder adders[2] = {{0}, {0}};
        atomic_store(&go, false);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&adders[i].thread, NULL, add_until_frozen, &adders[i]), 0);
        atomic_store(&go, true);
        for (volatile uint64_t spin = 0; spin < round * 100; spin++) continue;
        int64_t final = twi_cell_freeze(&cell, meta);
        for (int i = 0; i < 2; i++) pthread_join(adders[i].thread, NULL);
        assert_i64_equal(final, adders[0].added + adders[1].added);
        assert_i64_equal(twi_cell_local(&cell, meta), final);
    }
}

/* Goal: the check of a cell notices what breaks one of its rules.
 * Method: sound cells, and each with one rule broken. */
TEST(a_cell_with_a_broken_rule_is_not_valid) {
    const struct {
        int64_t value;
        uint64_t flags, meta;
        bool is_sound;
    } cells[] = {
        {0, 0, 8, true},
        {-5, TWI_DIRTY, 32, true},
        {0, 0, 33, false}, /* the key is longer than its record */
        {0, 0, UINT64_C(33) | UINT64_C(1) << TWI_META_KIND_SHIFT, true},
        {0, 0, UINT64_C(9) << TWI_META_KIND_SHIFT, false},
        {0, 0, TWI_META_OVERFLOW, true},
        {0, 0, TWI_META_OVERFLOW | 1, false},
        {0, TWI_FROZEN, 8 | TWI_META_STRIPED, true},
        {0, 0, 8 | TWI_META_STRIPED, false},
        {0, 0, 8 | TWI_META_PARKED, false},
        {TWI_VALUE_EDGE + 1, 0, 8 | TWI_META_EDGE, true},
        {TWI_VALUE_EDGE + 1, 0, 8, false},
    };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        (void)set(cells[i].value, cells[i].flags);
        twi_store_relaxed(&cell.meta, cells[i].meta);
        assert_int_equal(twi_cell_is_valid(&cell), cells[i].is_sound);
    }
}
