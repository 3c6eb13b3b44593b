/* free_map_test.c -- memory that is given back serves any size, whatever its former size, in any order, by any
 * thread. */
#include "tests/support/support.h"

#include "engine/memory/arena.h"

#include <pthread.h>

#define MIB (UINT64_C(1) << 20)
#define LINES_MAX 131072u

static uint32_t taken[LINES_MAX];

static uint32_t fill(struct twi_arena *arena, uint32_t lines) {
    uint32_t count = 0;
    while (count < LINES_MAX && (taken[count] = twi_arena_take(arena, lines)) != 0) count++;
    return count;
}
static void drain(struct twi_arena *arena, uint32_t count, uint32_t lines) {
    for (uint32_t i = 0; i < count; i++) twi_arena_give(arena, taken[i], lines);
}

static const uint32_t all_sizes[] = {1,  2,   3,   4,   6,   8,   12,  16,   24,   32,   48,   64,
                                     96, 128, 192, 256, 341, 512, 768, 1024, 2048, 3072, 16384};
#define SIZES (sizeof all_sizes / sizeof *all_sizes)

/* Goal: an arena that was filled with one size, emptied, filled with another and emptied has as much room for any third
 * size as a fresh arena. No count is lost to remainders, and nothing stays with its former size.
 * Method: all pairs of sizes before; after each pair, another size, and one piece that is all of the arena. That one
 * gives all pages back to the system, and most of the time goes into having them again: so the arena is small. */
TEST(no_history_of_sizes_takes_anything_away) {
    enum { SEGMENTS = 16 };
    static struct twi_arena arena;
    assert_true(twi_arena_make(&arena, SEGMENTS * TWI_SEGMENT_LINES * TWI_LINE_BYTES));
    for (size_t first = 0; first < SIZES; first++) {
        for (size_t second = 0; second < SIZES; second++) {
            drain(&arena, fill(&arena, all_sizes[first]), all_sizes[first]);
            drain(&arena, fill(&arena, all_sizes[second]), all_sizes[second]);
            assert_i64_equal(twi_arena_bytes_used(&arena), 0);
            size_t third = (first * SIZES + second) % SIZES; /* each of them in its turn, and the largest always */
            uint32_t whole = TWI_SEGMENT_LINES / all_sizes[third] * SEGMENTS, lines = SEGMENTS * TWI_SEGMENT_LINES;
            uint32_t wanted = all_sizes[third] <= TWI_SEGMENT_LINES ? whole : lines / all_sizes[third],
                     had = fill(&arena, all_sizes[third]);
            if (had + (all_sizes[third] <= 64 ? 2 : 0) < wanted) /* a few pieces may lie across two others' places */
                fail_msg("%u, then %u: %u pieces of %u, not %u", all_sizes[first], all_sizes[second], had,
                         all_sizes[third], wanted);
            drain(&arena, had, all_sizes[third]);
            uint32_t all = twi_arena_take(&arena, lines);
            assert_true(all != 0);
            twi_arena_give(&arena, all, lines);
        }
    }
    twi_arena_unmake(&arena);
}

/* Goal: three free lines side by side are one piece, wherever they are in a segment, so also if one of them is in the
 * next word of the map. Method: every line is out, and three are given back one by one. */
TEST(neighbours_are_one_piece_wherever_they_are) {
    static struct twi_arena arena;
    static bool is_out[LINES_MAX];
    assert_true(twi_arena_make(&arena, 2 * MIB));
    uint32_t count = fill(&arena, 1);
    for (uint32_t i = 0; i < count; i++) is_out[taken[i] % LINES_MAX] = true;
    for (uint32_t line = 1; line < 4096; line++) {
        if (!is_out[line] || !is_out[line + 1] || !is_out[line + 2]) continue;
        if (line % TWI_SEGMENT_LINES + 3 > TWI_SEGMENT_LINES) continue; /* no piece lies in two segments */
        for (uint32_t i = 0; i < 3; i++) twi_arena_give(&arena, line + i, 1);
        assert_int_equal(twi_arena_take(&arena, 3), line);
    }
    drain(&arena, count, 1);
    twi_arena_unmake(&arena);
}

/* Goal: while pieces are out, every free line can be taken: no remainder is lost.
 * Method: random takes and gives of all sizes; now and then the rest is taken line by line and counted. */
TEST(every_free_line_can_be_had_while_others_are_out) {
    enum { PIECES = 400 };
    static uint32_t line[PIECES], lines[PIECES];
    static struct twi_arena arena;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    memset(line, 0, sizeof line);
    assert_true(twi_arena_make(&arena, 4 * MIB));
    for (uint64_t step = 0; step < test_scale(20000); step++) {
        uint32_t i = (uint32_t)test_prng_below(&prng, PIECES);
        if (line[i] != 0) {
            twi_arena_give(&arena, line[i], lines[i]);
            line[i] = 0;
        } else {
            lines[i] = all_sizes[test_prng_below(&prng, step % 3000 < 1500 ? 10 : SIZES - 1)];
            line[i] = twi_arena_take(&arena, lines[i]);
        }
        if (step % 500 != 0) continue;
        struct twi_arena_usage room = twi_arena_usage(&arena);
        uint64_t left = (4 * MIB - (uint64_t)twi_arena_bytes_used(&arena)) / TWI_LINE_BYTES;
        assert_i64_equal(room.free_bytes, left * TWI_LINE_BYTES);
        assert_true(room.usable_bytes <= room.free_bytes && room.longest_bytes <= room.free_bytes);
        assert_true(twi_arena_is_valid(&arena));
        for (uint32_t round = 0; round < 3; round++) (void)twi_arena_usable(&arena);
        assert_i64_equal(twi_arena_usable(&arena), room.usable_bytes);
        uint32_t had = fill(&arena, 1);
        assert_i64_equal(had, left);
        assert_i64_equal(twi_arena_usage(&arena).free_bytes, 0);
        drain(&arena, had, 1);
    }
    twi_arena_unmake(&arena);
}

/* Goal: a piece of many segments is found where free and untouched segments lie side by side. */
TEST(a_large_piece_is_free_segments_and_untouched_ones_together) {
    static struct twi_arena arena;
    assert_true(twi_arena_make(&arena, MIB)); /* 16 segments */
    uint32_t held[9];
    for (uint32_t i = 0; i < 9; i++) held[i] = twi_arena_take(&arena, 1024);
    for (uint32_t i = 6; i < 9; i++) twi_arena_give(&arena, held[i], 1024);
    assert_true(twi_arena_take(&arena, 10 * 1024) != 0); /* 3 that were given back, 7 that were never used */
    assert_i64_equal(twi_arena_take(&arena, 1), 0);
    assert_i64_equal(twi_arena_refused(&arena), 1);
    twi_arena_unmake(&arena);
}

/* Goal: S3. Line numbers have 32 bits: in the largest arena no piece begins at line 0, which stands for none, or
 * beyond. */
TEST(the_largest_arena_ends_where_line_numbers_end) {
    static struct twi_arena arena;
    if (!twi_arena_make(&arena, UINT64_C(1) << 38)) {
        test_leave_out("this system gives no range of 256 GiB: allow it (ulimit -v unlimited, vm.overcommit_memory=0)");
        return;
    }
    uint32_t most = (uint32_t)((UINT64_C(1) << 32) - 2 * TWI_SEGMENT_LINES), line = twi_arena_take(&arena, most);
    assert_true(line != 0 && (uint64_t)line + most < UINT64_C(1) << 32);
    line = twi_arena_take(&arena, TWI_SEGMENT_LINES);
    assert_i64_equal(line, (UINT64_C(1) << 32) - TWI_SEGMENT_LINES);
    assert_i64_equal(twi_arena_take(&arena, 1), 0);
    twi_arena_unmake(&arena);
}

struct holder {
    pthread_t thread;
    struct twi_arena *arena;
    uint64_t seed, steps;
    uint32_t size, most;
    bool refused;
};

static void *take_as_much_as_there_is(void *ctx) {
    struct holder *holder = ctx;
    struct test_prng prng;
    test_prng_seed(&prng, holder->seed);
    uint32_t held[1024], count = 0;
    for (uint64_t step = 0; step < holder->steps; step++) {
        bool more = test_prng_below(&prng, 4) != 0;
        if (more && count < holder->most) {
            held[count] = twi_arena_take(holder->arena, holder->size);
            if (held[count] == 0) holder->refused = true;
            count += held[count] != 0;
        } else if (count != 0) {
            uint32_t i = (uint32_t)test_prng_below(&prng, count);
            twi_arena_give(holder->arena, held[i], holder->size);
            held[i] = held[--count];
        }
    }
    while (count != 0) twi_arena_give(holder->arena, held[--count], holder->size);
    return NULL;
}

/* Goal: no request fails because other threads are at work, and no line or hint gets lost between threads.
 * Method: four threads together hold all but a segment for each; afterwards one piece is as large as the arena. */
TEST(nobody_is_refused_while_others_work_and_all_is_whole_afterwards) {
    static const uint32_t sizes[] = {1024, 64, 48, 24};
    static struct twi_arena arena;
    assert_true(twi_arena_make(&arena, 2 * MIB));
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct holder holders[4];
        for (uint64_t at = 0; at < 4; at++) {
            holders[at] = (struct holder){.arena = &arena,
                                          .seed = test_seed() + at,
                                          .steps = test_scale(30000),
                                          .size = sizes[i],
                                          .most = 1024 / sizes[i] * 7};
            assert_int_equal(pthread_create(&holders[at].thread, NULL, take_as_much_as_there_is, &holders[at]), 0);
        }
        bool refused = false;
        for (int at = 0; at < 4; at++) {
            pthread_join(holders[at].thread, NULL);
            refused |= holders[at].refused;
        }
        assert_false(refused);
        assert_i64_equal(twi_arena_bytes_used(&arena), 0);
        uint32_t all = twi_arena_take(&arena, 32 * 1024);
        assert_true(all != 0);
        twi_arena_give(&arena, all, 32 * 1024);
    }
    twi_arena_unmake(&arena);
}
