/* arena_cut_test.c -- an arena that one size of piece has filled can continue with another size. */
#include "engine/memory/arena.h"
#include "tests/support/support.h"

#include <cmocka.h>

/* Goal: memory given back in large pieces serves small ones when nothing fresh is left, zeroed and without overlap.
 * Method: take everything as segments, give one back, take it again line by line and write each line in full; count the
 * lines. */
TEST(what_was_given_back_in_large_pieces_serves_small_ones) {
    static struct twi_arena arena;
    assert_true(twi_arena_make(&arena, 1 << 20));
    uint32_t line, last = 0, taken = 0;
    while ((line = twi_arena_take(&arena, TWI_SEGMENT_LINES)) != 0) last = line;
    assert_int_equal(twi_arena_take(&arena, 3), 0);
    twi_arena_give(&arena, last, TWI_SEGMENT_LINES);
    while ((line = twi_arena_take(&arena, 1)) != 0) {
        uint64_t *words = twi_arena_at(&arena, line);
        for (int i = 0; i < 8; i++) assert_true(words[i] == 0);
        memset(words, 0xff, TWI_LINE_BYTES);
        assert_true(line >= last && line < last + TWI_SEGMENT_LINES);
        taken++;
    }
    assert_int_equal(taken, TWI_SEGMENT_LINES);
    assert_int_equal(twi_arena_bytes_used(&arena), twi_arena_bytes_committed(&arena));
    twi_arena_unmake(&arena);
}
