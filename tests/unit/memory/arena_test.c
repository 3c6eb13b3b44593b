/* arena_test.c -- pieces are zeroed, do not overlap, stay within the bound, and are used again. */
#include "tests/support/support.h"

#include "engine/memory/arena.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static const uint32_t sizes[] = {1,   2,   3,   4,   5,   6,    7,    8,    12,   13,  100,
                                 383, 512, 513, 768, 769, 1024, 1025, 2048, 2049, 5000};
#define SIZES (sizeof sizes / sizeof *sizes)

TEST(sizes_are_rounded_up_by_a_third_at_most_and_once) {
    for (uint32_t lines = 1; lines <= 1024; lines++) {
        uint32_t round = twi_arena_round(lines);
        assert_true(round >= lines && round <= lines + lines / 2 + 1);
        assert_i64_equal(twi_arena_round(round), round);
    }
    for (uint32_t lines = 1025; lines < 1u << 29; lines = lines * 3 / 2) {
        uint32_t round = twi_arena_round(lines);
        assert_true(round >= lines && (uint64_t)round <= 2 * (uint64_t)lines);
        assert_i64_equal(twi_arena_round(round), round);
    }
}

static void fill(struct twi_arena *arena, uint32_t line, uint32_t lines, unsigned char value) {
    memset(twi_arena_at(arena, line), value, (size_t)lines * TWI_LINE_BYTES);
}
static void check_filled(const struct twi_arena *arena, uint32_t line, uint32_t lines, unsigned char value) {
    const unsigned char *at = twi_arena_at(arena, line);
    for (size_t i = 0; i < (size_t)lines * TWI_LINE_BYTES; i++)
        if (at[i] != value) fail_msg("byte %zu of piece %u is %u", i, line, at[i]);
}

/* Goal: no two pieces overlap, each is zeroed when it comes, the account is exact.
 * Method: random takes and gives. Every piece is filled with its own value, which is checked before it is given
 * back. */
static void check_pieces(bool is_shared) {
    static struct twi_arena arena;
    assert_true(is_shared ? twi_arena_make_shared(&arena, 16 * MIB) : twi_arena_make(&arena, 16 * MIB));
    enum { PIECES = 200 };
    struct {
        uint32_t line, lines;
        unsigned char value;
    } pieces[PIECES] = {0};
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    int64_t used = 0;
    for (uint64_t step = 0; step < test_scale(20000); step++) {
        uint32_t i = (uint32_t)test_prng_below(&prng, PIECES);
        if (pieces[i].line != 0) {
            check_filled(&arena, pieces[i].line, pieces[i].lines, pieces[i].value);
            twi_arena_give(&arena, pieces[i].line, pieces[i].lines);
            used -= (int64_t)twi_arena_round(pieces[i].lines) * TWI_LINE_BYTES;
            pieces[i].line = 0;
        } else {
            pieces[i].lines = sizes[test_prng_below(&prng, SIZES)];
            pieces[i].line = twi_arena_take(&arena, pieces[i].lines);
            if (pieces[i].line == 0) continue;
            uint32_t round = twi_arena_round(pieces[i].lines);
            assert_true((uint64_t)pieces[i].line * TWI_LINE_BYTES + (uint64_t)round * TWI_LINE_BYTES <=
                        arena.map_bytes);
            check_filled(&arena, pieces[i].line, round, 0);
            pieces[i].value = (unsigned char)(1 + step % 255);
            fill(&arena, pieces[i].line, round, pieces[i].value);
            used += (int64_t)round * TWI_LINE_BYTES;
        }
        assert_i64_equal(twi_arena_bytes_used(&arena), used);
        assert_true(used <= (int64_t)(16 * MIB) && twi_arena_bytes_high(&arena) >= used);
        if (step % 500 == 0) assert_true(twi_arena_is_valid(&arena));
    }
    uint32_t lost = twi_arena_take(&arena, 1); /* the check notices a line that no account has */
    (void)twi_sub_relaxed(&arena.bytes_used, TWI_LINE_BYTES);
    assert_true(lost != 0 && !twi_arena_is_valid(&arena));
    twi_arena_unmake(&arena);
}

TEST(pieces_are_apart_zeroed_and_accounted_for) {
    check_pieces(false);
}

/* Goal: the same in shared memory, where the pages of large pieces are given back in another way. */
TEST(shared_pieces_are_apart_zeroed_and_accounted_for) {
    if (test_misses_wiped_pages()) return;
    check_pieces(true);
}

/* Goal: the check notices a run of lines that is empty, or not within the segments. Method: each run is given another
 * place, which changes no account. */
TEST(the_check_notices_a_run_outside_of_the_segments) {
    static struct twi_arena arena;
    assert_true(twi_arena_make(&arena, MIB));
    assert_true(twi_arena_take(&arena, 1) != 0);
    _Atomic uint64_t *used = &arena.carves[0].word, *none = &arena.carves[1].word;
    uint64_t word = twi_load_relaxed(used), lines = (uint64_t)(uint32_t)word * twi_sizes[0];
    uint64_t end = ((uint64_t)arena.segments_max + 1) * TWI_SEGMENT_LINES;
    assert_true(lines != 0 && twi_load_relaxed(none) == 0 && twi_arena_is_valid(&arena));
    const uint64_t firsts[] = {TWI_SEGMENT_LINES, end - lines, TWI_SEGMENT_LINES - 1, end - lines + 1};
    for (size_t i = 0; i < 4; i++) { /* the first two are within */
        twi_store_relaxed(used, firsts[i] << 32 | (uint32_t)word);
        assert_int_equal(twi_arena_is_valid(&arena), i < 2);
    }
    twi_store_relaxed(used, word);
    twi_store_relaxed(none, (uint64_t)TWI_SEGMENT_LINES << 32);
    assert_false(twi_arena_is_valid(&arena));
    twi_store_relaxed(none, 0);
    assert_true(twi_arena_is_valid(&arena));
    twi_arena_unmake(&arena);
}

TEST(a_line_and_an_address_name_each_other) {
    static struct twi_arena arena;
    assert_true(twi_arena_make(&arena, MIB));
    for (int i = 0; i < 100; i++) {
        uint32_t line = twi_arena_take(&arena, 3);
        assert_true(line != 0);
        assert_i64_equal(twi_arena_line(&arena, twi_arena_at(&arena, line)), line);
    }
    twi_arena_unmake(&arena);
}

TEST(a_full_arena_says_so_and_goes_on_when_something_comes_back) {
    for (size_t i = 0; i < SIZES; i++) {
        static struct twi_arena arena;
        assert_true(twi_arena_make(&arena, 4 * MIB));
        uint32_t last = 0, line, count = 0;
        while ((line = twi_arena_take(&arena, sizes[i])) != 0) {
            last = line;
            count++;
        }
        assert_true(count > 0);
        assert_true(twi_arena_bytes_used(&arena) <= (int64_t)(4 * MIB));
        assert_true(twi_arena_bytes_used(&arena) >= (int64_t)(4 * MIB) / 2);
        int64_t full = twi_arena_bytes_used(&arena);
        twi_arena_give(&arena, last, sizes[i]);
        assert_i64_equal(twi_arena_take(&arena, sizes[i]), last);
        assert_i64_equal(twi_arena_take(&arena, sizes[i]), 0);
        assert_i64_equal(twi_arena_bytes_used(&arena), full);
        twi_arena_unmake(&arena);
    }
}

/* Goal: an arena that was full of large pieces, all given back, serves small ones, to the last line.
 * Method: fill with one size, give all back, fill with a smaller one: most of the memory must be found. */
TEST(what_was_one_size_serves_smaller_ones) {
    static uint32_t lines[100000];
    for (size_t large = 0; large < SIZES; large++) {
        for (size_t small = 0; small < large; small++) {
            static struct twi_arena arena;
            assert_true(twi_arena_make(&arena, 2 * MIB));
            size_t count = 0;
            while ((lines[count] = twi_arena_take(&arena, sizes[large])) != 0) count++;
            int64_t full = twi_arena_bytes_used(&arena);
            for (size_t i = 0; i < count; i++) {
                fill(&arena, lines[i], sizes[large], 0xee);
                twi_arena_give(&arena, lines[i], sizes[large]);
            }
            assert_i64_equal(twi_arena_bytes_used(&arena), 0);
            uint32_t line;
            while ((line = twi_arena_take(&arena, sizes[small])) != 0)
                check_filled(&arena, line, twi_arena_round(sizes[small]), 0);
            assert_true(twi_arena_bytes_used(&arena) * 2 >= full);
            twi_arena_unmake(&arena);
        }
    }
}

TEST(stock_lies_ready_and_is_bounded) {
    static struct twi_arena arena;
    assert_true(twi_arena_make(&arena, 4 * MIB));
    uint32_t work = 3 * TWI_SEGMENT_LINES - 1;
    assert_true(twi_arena_stock(&arena, 8, 1000, &work));
    assert_true(work < TWI_SEGMENT_LINES);
    assert_int_equal(twi_free_map_whole(&arena.free_map), 2);
    work = UINT32_MAX;
    assert_true(twi_arena_stock(&arena, 8, 1000, &work));
    assert_int_equal(twi_free_map_whole(&arena.free_map), 8); /* 128 pieces each */
    assert_i64_equal(twi_arena_bytes_used(&arena), 0);
    assert_i64_equal(twi_arena_bytes_committed(&arena), 8 * TWI_SEGMENT_BYTES);
    work = UINT32_MAX;
    assert_false(twi_arena_stock(&arena, 1024, 100, &work)); /* there is no such memory */
    for (int i = 0; i < 1000; i++) check_filled(&arena, twi_arena_take(&arena, 8), 8, 0);
    twi_arena_unmake(&arena);
}

struct taker {
    pthread_t thread;
    struct twi_arena *arena;
    uint64_t seed, steps;
    int64_t held;
};
/* Each piece carries its holder's mark in every line; two holders of one piece would show. */
static void *take_and_give(void *ctx) {
    struct taker *taker = ctx;
    struct test_prng prng;
    test_prng_seed(&prng, taker->seed);
    uint32_t line[32] = {0}, lines[32];
    for (uint64_t step = 0; step < taker->steps; step++) {
        uint32_t i = (uint32_t)test_prng_below(&prng, 32);
        if (line[i] == 0) {
            lines[i] = sizes[test_prng_below(&prng, 17)];
            line[i] = twi_arena_take(taker->arena, lines[i]);
            for (uint32_t at = 0; line[i] != 0 && at < lines[i]; at++) {
                _Atomic uint64_t *word = twi_arena_at(taker->arena, line[i] + at);
                if (atomic_exchange(word, taker->seed) != 0) abort();
            }
        } else {
            for (uint32_t at = 0; at < lines[i]; at++) {
                _Atomic uint64_t *word = twi_arena_at(taker->arena, line[i] + at);
                if (atomic_exchange(word, 0) != taker->seed) abort();
            }
            twi_arena_give(taker->arena, line[i], lines[i]);
            line[i] = 0;
        }
    }
    for (uint32_t i = 0; i < 32; i++)
        if (line[i] != 0) twi_arena_give(taker->arena, line[i], lines[i]);
    return NULL;
}

TEST(threads_never_hold_the_same_piece) {
    static struct twi_arena arena;
    assert_true(twi_arena_make(&arena, 4 * MIB)); /* tight: they take from each other's pieces */
    struct taker takers[4];
    for (uint64_t i = 0; i < 4; i++) {
        takers[i] = (struct taker){.arena = &arena, .seed = test_seed() + i + 1, .steps = test_scale(20000)};
        assert_int_equal(pthread_create(&takers[i].thread, NULL, take_and_give, &takers[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(takers[i].thread, NULL);
    assert_i64_equal(twi_arena_bytes_used(&arena), 0);
    assert_true(twi_arena_is_valid(&arena));
    twi_arena_unmake(&arena);
}

/* Goal: processes that share an arena never hold the same piece either, and what one of them gives back all can take.
 * Method: the arena's own words are shared, too, as they are in an engine. */
TEST(processes_never_hold_the_same_piece) {
    struct twi_arena *arena = mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(arena != MAP_FAILED);
    assert_true(twi_arena_make_shared(arena, 4 * MIB)); /* tight: they take from each other's pieces */
    pid_t children[3];
    fflush(NULL);
    for (uint64_t i = 0; i < 3; i++) {
        struct taker taker = {.arena = arena, .seed = test_seed() + i + 1, .steps = test_scale(5000)};
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] != 0) continue;
        (void)take_and_give(&taker);
        _exit(0);
    }
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_i64_equal(twi_arena_bytes_used(arena), 0);
    uint32_t line = twi_arena_take(arena, 20 * 1024);
    assert_int_not_equal(line, 0);
    check_filled(arena, line, 20 * 1024, 0);
    twi_arena_unmake(arena);
    munmap(arena, sizeof *arena);
}
