/* arena_check.c -- see arena_check.h. */
#include "engine/memory/arena_check.h"

/* The run of lines from which the pieces of a size are carved. */
static bool run_is_valid(const struct twi_arena *arena, uint32_t number) {
    uint64_t word = twi_load_relaxed(&arena->carves[number].word);
    uint64_t first = word >> 32, lines = (uint64_t)(uint32_t)word * twi_sizes[number];
    if (word == 0) return true;
    return lines != 0 && first >= TWI_SEGMENT_LINES && (first + lines - 1) / TWI_SEGMENT_LINES <= arena->segments_max;
}

bool twi_arena_is_valid(const struct twi_arena *arena) {
    int64_t used = twi_arena_bytes_used(arena), high = twi_arena_bytes_high(arena);
    uint64_t segments = (uint64_t)arena->segments_max + arena->segments_reserved;
    if (used < 0 || (arena->whole == NULL && used > high)) return false;
    if (segments * TWI_SEGMENT_BYTES > arena->bytes_max) return false;
    if (twi_load_relaxed(&arena->segments_taken) > arena->segments_max) return false;
    if (twi_load_relaxed(&arena->parts.bytes_used) > twi_load_relaxed(&arena->parts.bytes_aside)) return false;
    for (uint32_t number = 0; number < TWI_SIZES; number++)
        if (!run_is_valid(arena, number)) return false;
    return used + twi_arena_usage(arena).free_bytes == (int64_t)(segments * TWI_SEGMENT_BYTES);
}
