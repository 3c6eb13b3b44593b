/* free_map.h -- which lines of the arena are free, and where a run of them is.
 *
 *   segment | bit of line 0 .. 63 | ... | 960 .. 1023 |    1: free         hint: by the longest run of free lines in it
 *
 * A bit for each line is the truth about it, whatever size the piece was that it came back with: so free lines that lie
 * side by side are one run from the moment on in which the last of them is given, and nobody has to join anything. A
 * run is claimed by compare-and-swap of its words, from the first to the last; who meets a word that others have
 * changed puts back what it has and looks again. A hint a segment, of one byte, says where to look: at most the largest
 * size that its number stands for fits there. Who gives raises it, who looks in vain lowers it. How many segments have
 * which hint is counted, so that a look for what is not there costs a few loads.
 * Always true: a line whose bit is set is zeroed and belongs to nobody; its bit is cleared by who takes it. A hint says no
 * less than what is free, but while the thread that changes it has not looked a second time (A3); one that stays too low
 * because its thread stopped there is mended by the turn.
 * Smaller runs are used before larger ones, and lower segments before higher ones: so what is whole stays whole.
 * Threads: any, lock-free (labels A1 to A4), but for what is said to be the turn's.
 * Elsewhere: sizes of pieces, zeroing, accounts, fresh segments (arena.c). */
#ifndef TWI_MEMORY_FREE_MAP_H
#define TWI_MEMORY_FREE_MAP_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"

#define TWI_SEGMENT_BYTES 65536u
#define TWI_SEGMENT_LINES (TWI_SEGMENT_BYTES / TWI_LINE_BYTES)
#define TWI_SEGMENT_WORDS (TWI_SEGMENT_LINES / 64)

/* 1 2 3 4 6 8 12 16 ... 768 1024 lines: a size is rounded up by at most a third. What is larger takes whole segments. */
#define TWI_SIZES 20u
extern const uint16_t twi_sizes[TWI_SIZES];

/* A hint: 0, no line is free; else 1 + the number of the largest size that may fit. */
#define TWI_FREE_MAP_WHOLE TWI_SIZES

struct twi_free_map_bits {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t words[TWI_SEGMENT_WORDS];
};

struct twi_free_map {
    struct twi_free_map_bits *bits; /* by the number of the segment; this and the next two: set at making */
    _Atomic uint8_t *hints;
    uint32_t segments;                                           /* numbers go from 1 to this */
    alignas(TWI_LINE_BYTES) _Atomic int32_t with[TWI_SIZES + 1]; /* segments with that hint, or more for a moment */
    _Atomic uint32_t from[TWI_SIZES + 1];                        /* where the search for one of them begins */
    alignas(TWI_LINE_BYTES) _Atomic uint32_t end;                /* segments below it may hold free lines */
    _Atomic uint32_t moves; /* rises whenever lines that somebody had in hand, and did not keep, were put back */
};

/* What `segments` segments need. */
size_t twi_free_map_bytes(uint32_t segments);
/* `memory`: so many zeroed bytes, on a line. Nothing is free in the beginning. */
void twi_free_map_begin(struct twi_free_map *map, void *memory, uint32_t segments);

/* The number of the smallest size that holds so many lines, at most TWI_SEGMENT_LINES. */
uint32_t twi_size_number(uint32_t lines);

/* The first of `twi_sizes[number]` free lines, which are the caller's from then on: out of the smallest run that has them, in
 * segments that are not wholly free. 0: there are none. */
uint32_t twi_free_map_take(struct twi_free_map *map, uint32_t number);
/* The first line of `count` wholly free segments in a row. 0: there are none. */
uint32_t twi_free_map_take_segments(struct twi_free_map *map, uint32_t count);
/* How many segments are wholly free. */
uint32_t twi_free_map_whole(const struct twi_free_map *map);
/* How many of those down from `last` are, one below the other; at most `most`. */
uint32_t twi_free_map_whole_below(const struct twi_free_map *map, uint32_t last, uint32_t most);
/* Makes lines free: zeroed, the caller's, and nobody can reach them. They may span segments. */
void twi_free_map_give(struct twi_free_map *map, uint32_t line, uint32_t lines);

/* What is free, in lines. */
struct twi_free_map_usage {
    uint64_t free;   /* all */
    uint64_t usable; /* in runs of at least TWI_FREE_MAP_RUN lines */
    uint64_t longest;
};
/* No piece that counting needs at once is larger: a leaf of the index (table.h). What is larger has a way to do with less. */
#define TWI_FREE_MAP_RUN 64u
/* Goes through all segments that are neither full nor empty. Others may take and give meanwhile. */
struct twi_free_map_usage twi_free_map_usage(const struct twi_free_map *map);

/* The turn's look, which goes round in bounded steps. */
struct twi_free_map_scan_state {
    uint32_t at;
    uint64_t so_far, usable; /* lines: of this round, and of the last one */
};
/* Looks at up to `count` segments, and mends hints that a thread left behind. */
void twi_free_map_scan(struct twi_free_map *map, struct twi_free_map_scan_state *round, uint32_t count);

#endif
