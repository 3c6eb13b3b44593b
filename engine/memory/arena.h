/* arena.h -- the one place all counting memory comes from: one reserved range of addresses, committed as it is used.
 *
 *   | head | segment | segment | segment ...                    | not yet touched | which lines are free (free_map.h) |
 *            each is 64 KiB: 1024 lines. A small piece lies within one, a big one takes whole neighbours
 *
 * A piece is named by its LINE: its distance from the base in units of 64 bytes (32 bits: up to 256 GiB). Only lines
 * are stored inside the arena, never addresses, so that the same range can later be a file or be shared.
 * What is given back is free by lines, not by pieces: whatever it was, it serves any size from then on, together with
 * what lies free beside it. A small size is cut out of holes first, the tightest that has it; where there are none, it gets
 * a whole segment to carve pieces from, one after the other, and what it has not carved yet is free for all others as
 * soon as they find nothing else. Untouched memory comes last.
 * Always true: a piece is handed out zeroed; bytes_used never passes the bound; nobody is refused while a run of free
 * lines is long enough, but for what other threads have in hand at that moment: a piece or a segment each.
 * Threads: take and give from any thread, lock-free (labels A*). Taking makes no system call. Nor does it cost a page fault
 * while the turn's reserve lasts: it faults in what lies ahead, by how fast segments were taken of late, and nothing where
 * nobody takes any; who outruns it touches fresh pages itself. Elsewhere: when a piece may be given back (epoch.h). */
#ifndef TWI_MEMORY_ARENA_H
#define TWI_MEMORY_ARENA_H

#include "engine/memory/free_map.h"

/* The run of free lines that pieces of one size are carved of. */
struct twi_arena_carve {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t word; /* its first line << 32 | pieces left in it; 0: none */
};

struct twi_arena {
    unsigned char *base; /* set at making, then read by all */
    uint64_t bytes_max;
    void *map; /* what was mapped: the base is its first huge page */
    uint64_t map_bytes;
    uint32_t segments_max;
    /* the turn's own */
    uint32_t segments_touched;            /* faulted in up to here */
    uint32_t segments_seen;               /* taken when it last looked */
    uint32_t segments_left;               /* of the reserve, at its beginning: what it takes itself, it replaces */
    uint32_t segments_lately;             /* taken by others since slice_began_ms */
    uint32_t segments_rate;               /* the same in the busiest slice of late */
    int64_t slice_began_ms;               /* monotonic */
    struct twi_free_map_scan_state round; /* its look at what is free */
    alignas(TWI_LINE_BYTES) _Atomic uint32_t segments_taken; /* segments that were ever handed out */
    _Atomic int64_t bytes_used;                              /* in pieces that are out */
    _Atomic int64_t bytes_high;
    _Atomic uint32_t busy;                    /* threads that may have free lines in hand */
    _Atomic uint64_t refused;                 /* pieces asked for and not had */
    struct twi_arena_carve carves[TWI_SIZES]; /* of each size */
    struct twi_free_map free_map;
};

/* Reserves the range. False: the system gave no addresses. */
bool twi_arena_make(struct twi_arena *arena, uint64_t bytes_max);
void twi_arena_unmake(struct twi_arena *arena);

/* A zeroed piece of at least `lines` lines, or 0. `lines` is rounded up to its class: twi_arena_round() tells. */
uint32_t twi_arena_take(struct twi_arena *arena, uint32_t lines);
/* Gives back a piece that was taken with the same `lines` and that no thread can reach any more. Zeroes it. */
void twi_arena_give(struct twi_arena *arena, uint32_t line, uint32_t lines);
/* The lines that a piece of `lines` really has. */
uint32_t twi_arena_round(uint32_t lines);
int64_t twi_arena_bytes_used(const struct twi_arena *arena);
int64_t twi_arena_bytes_high(const struct twi_arena *arena);
/* Bytes of the range that were ever handed out by segments: what the process has committed at most. */
int64_t twi_arena_bytes_committed(const struct twi_arena *arena);
/* What of the bound is free, and what of that can be had at once. */
struct twi_arena_usage {
    int64_t free_bytes;
    int64_t usable_bytes;  /* in runs that are long enough for whatever counting needs at once */
    int64_t longest_bytes; /* the longest of them */
};
struct twi_arena_usage twi_arena_usage(const struct twi_arena *arena);
/* usable_bytes, by the turn's own look at some segments after the other: of a large arena it may be some 100 ms old. */
int64_t twi_arena_usable(struct twi_arena *arena);
/* How many pieces were asked for and not had, of those that counting has no smaller way for. */
uint64_t twi_arena_refused(const struct twi_arena *arena);

/* Makes sure that whole free segments for `pieces` pieces of `lines` lie ready, faulted in, as far as memory and *work (lines
 * touched) allow. Whoever needs them may take them. False: there is no such memory. Background. */
bool twi_arena_stock(struct twi_arena *arena, uint32_t lines, uint32_t pieces, uint32_t *work);

/* The turn's look at how fast others take fresh segments: once at its beginning, before it takes any for itself. */
void twi_arena_survey(struct twi_arena *arena, int64_t mono_ms);
/* Faults in what lies ahead of whoever takes fresh segments: what was taken in the busiest 50 ms of late, twice, and 2 MiB; never
 * more than 2 MiB and an eighth of what is taken. An arena that nobody takes of gets nothing more, a small one stays within its
 * first 2 MiB. *work bounds the lines touched. By the turn, at its end. */
void twi_arena_keep_ahead(struct twi_arena *arena, uint32_t *work);
/* Faults in a piece that was taken for later use, before anybody else knows it. By the turn. */
void twi_arena_touch(struct twi_arena *arena, uint32_t line, uint32_t lines);

/* Pages outside of any arena that the kernel wipes in a forked child (for epoch.c); NULL: none to be had. */
void *twi_arena_wiped_pages(size_t bytes);

TWI_INLINE void *twi_arena_at(const struct twi_arena *arena, uint32_t line) {
    return arena->base + (uint64_t)line * TWI_LINE_BYTES;
}
TWI_INLINE uint32_t twi_arena_line(const struct twi_arena *arena, const void *piece) {
    return (uint32_t)((uint64_t)((const unsigned char *)piece - arena->base) / TWI_LINE_BYTES);
}

#endif
