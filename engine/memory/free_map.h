/* free_map.h -- which lines of the arena are free, and where runs of free lines are.
 *
 *   segment | bit of line 0 .. 63 | ... | 960 .. 1023 |    1: free         hint: by the longest run of free lines in it
 *
 * Each line has one bit, whatever the size of its former piece. So adjacent free lines are one run as soon as the last
 * of them is given back. No extra step joins them. A thread claims a run by a compare-and-swap of each of its words,
 * from the first to the last. If another thread has changed one of the words, the thread gives back what it has taken
 * and looks again. Each segment has a hint of one byte, which shows where to look. A piece of a larger size than the
 * hint does not fit into the segment. A thread that gives lines back raises the hint. A thread that finds no run lowers
 * it. The map counts the segments of each hint. So a search for a size that is not available costs only a few loads.
 * Always true: a line whose bit is set is zeroed and belongs to no thread. The thread that takes a line clears its bit.
 * A hint may be too high. It is too low only between a change by a thread and the second look of that thread (A3). If
 * that thread stopped there, the turn repairs the hint.
 * Smaller runs are used before larger ones, and lower segments before higher ones. So whole segments stay free.
 * Threads: any thread calls these functions, lock-free (labels A1 to A4), except the functions of the turn.
 * Elsewhere: sizes of pieces, zeroing, accounts, fresh segments (all in arena.c). */
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

/* The sizes are 1 2 3 4 6 8 12 16 ... 768 1024 lines. Rounding up adds at most a third. Larger: whole segments. */
#define TWI_SIZES 20u
extern const uint16_t twi_sizes[TWI_SIZES];

/* A hint. 0 means that no line is free. Otherwise it is 1 plus the number of the largest size that may fit. */
#define TWI_FREE_MAP_WHOLE TWI_SIZES

struct twi_free_map_bits {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t words[TWI_SEGMENT_WORDS];
};

struct twi_free_map {
    struct twi_free_map_bits *bits; /* indexed by the number of the segment; this field and the next two are set once */
    _Atomic uint8_t *hints;
    uint32_t segments; /* numbers go from 1 to this */
    /* the number of segments with that hint; too high for a moment while a hint changes */
    alignas(TWI_LINE_BYTES) _Atomic int32_t with[TWI_SIZES + 1];
    _Atomic uint32_t from[TWI_SIZES + 1];         /* where the search for each hint begins */
    alignas(TWI_LINE_BYTES) _Atomic uint32_t end; /* the first segment that never had free lines */
    _Atomic uint32_t moves; /* rises whenever a thread gives back lines that it had taken and did not use */
};

/* Returns how many bytes the map of `segments` segments needs. */
size_t twi_free_map_bytes(uint32_t segments);
/* `memory` has this many zeroed bytes, aligned to a line. At first no line is free. */
void twi_free_map_begin(struct twi_free_map *map, void *memory, uint32_t segments);

/* Returns the number of the smallest size of at least `lines` lines. `lines` is at most TWI_SEGMENT_LINES. */
uint32_t twi_size_number(uint32_t lines);

/* Takes `twi_sizes[number]` free lines from the smallest run in which they fit, in segments that are not wholly free.
 * Returns the first line, or 0 if there is no such run. */
uint32_t twi_free_map_take(struct twi_free_map *map, uint32_t number);
/* Takes `count` adjacent segments that are wholly free. Returns the first line, or 0 if there are no such segments. */
uint32_t twi_free_map_take_segments(struct twi_free_map *map, uint32_t count);
/* Returns how many segments are wholly free. */
uint32_t twi_free_map_whole(const struct twi_free_map *map);
/* Returns how many adjacent segments are wholly free, from `last` downwards, and at most `most`. */
uint32_t twi_free_map_whole_below(const struct twi_free_map *map, uint32_t last, uint32_t most);
/* Makes lines free. Gives lines back. They are zeroed and belong to the caller, and no other thread can reach them.
 * They may be in several segments. */
void twi_free_map_give(struct twi_free_map *map, uint32_t line, uint32_t lines);

/* Free lines. */
struct twi_free_map_usage {
    uint64_t free;   /* all */
    uint64_t usable; /* lines in runs of at least TWI_FREE_MAP_RUN lines */
    uint64_t longest;
};
/* The largest piece that counting needs at once is a leaf of the index (table.h), which has this size. Larger pieces
 * can be replaced by smaller ones. */
#define TWI_FREE_MAP_RUN 64u
/* Looks at all segments that are neither full nor empty. Other threads may take and give lines meanwhile. */
struct twi_free_map_usage twi_free_map_usage(const struct twi_free_map *map);

/* The state of the turn's scan, which visits all segments in bounded steps, again and again. */
struct twi_free_map_scan_state {
    uint32_t at;
    uint64_t so_far, usable; /* usable lines found in this round, and in the last complete one */
};
/* Looks at up to `count` segments, and corrects hints that are too low because a thread has stopped. */
void twi_free_map_scan(struct twi_free_map *map, struct twi_free_map_scan_state *round, uint32_t count);

#endif
