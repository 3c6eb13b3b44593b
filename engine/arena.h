/* arena.h -- the one place all counting memory comes from: one reserved range of addresses, committed as it is used.
 *
 *   | head | segment | segment | segment ...                    | not yet touched |         base .. base + bytes_max
 *            each 64 KiB segment serves one size class; a run of 2^n segments serves one big piece
 *
 * A piece is named by its LINE: its distance from the base in units of 64 bytes (32 bits: up to 256 GiB). Only lines
 * are stored inside the arena, never addresses, so that the same range can later be a file or be shared.
 * Always true: a piece is handed out zeroed; its first eight bytes are an atomic word in every structure that lives
 * here (a late pop may still read them while they are a free piece's link); bytes_used never passes the bound.
 * Threads: take and give from any thread, lock-free (labels A*). Taking makes no system call. Nor does it cost a page fault
 * while the turn's reserve lasts: it faults in what lies ahead, by how fast segments were taken of late, and nothing where
 * nobody takes any; who outruns it touches fresh pages itself. Elsewhere: when a piece may be given back (reclaim.h). */
#ifndef TWI_ARENA_H
#define TWI_ARENA_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/atomic.h"
#include "engine/check.h"

#define TWI_SEGMENT_BYTES 65536u
#define TWI_SEGMENT_LINES (TWI_SEGMENT_BYTES / TWI_LINE_BYTES)
/* 1 2 3 4 6 8 12 16 ... 768 1024 lines: a size is rounded up by at most a third. Then 2, 4, 8 ... segments. */
#define TWI_ARENA_SMALL_CLASSES 20u
#define TWI_ARENA_CLASSES 40u

struct twi_arena_class {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t free;  /* line of the first free piece | turn count << 32 (no ABA) */
    _Atomic int32_t free_pieces;                    /* about how many those are */
    alignas(TWI_LINE_BYTES) _Atomic uint64_t carve; /* pieces carved of the current segment | segment << 32; 0: none */
};

struct twi_arena {
    unsigned char *base; /* set at making, then read by all */
    uint64_t bytes_max;
    void *map; /* what was mapped: the base is its first huge page */
    uint64_t map_bytes;
    uint32_t segments_max;
    /* the turn's own */
    uint32_t segments_touched; /* faulted in up to here */
    uint32_t segments_seen;    /* taken when it last looked */
    uint32_t segments_left;    /* of the reserve, at its beginning: what it takes itself, it replaces */
    uint32_t segments_lately;  /* taken by others since slice_began_ms */
    uint32_t segments_rate;    /* the same in the busiest slice of late */
    int64_t slice_began_ms;    /* monotonic */
    alignas(TWI_LINE_BYTES) _Atomic uint32_t segments_taken; /* segments that were ever handed out */
    _Atomic int64_t bytes_used;                              /* in pieces that are out */
    _Atomic int64_t bytes_high;
    struct twi_arena_class classes[TWI_ARENA_CLASSES];
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
/* Makes sure that `pieces` free pieces of `lines` lie ready, faulted in, as far as memory and *work (lines touched)
 * allow. Background. */
bool twi_arena_stock(struct twi_arena *arena, uint32_t lines, uint32_t pieces, uint32_t *work);

/* The turn's look at how fast others take fresh segments: once at its beginning, before it takes any for itself. */
void twi_arena_watch(struct twi_arena *arena, int64_t mono_ms);
/* Faults in what lies ahead of whoever takes fresh segments: what was taken in the busiest 50 ms of late, twice, and 2 MiB; never
 * more than 2 MiB and an eighth of what is taken. An arena that nobody takes of gets nothing more, a small one stays within its
 * first 2 MiB. *work bounds the lines touched. By the turn, at its end. */
void twi_arena_keep_ahead(struct twi_arena *arena, uint32_t *work);
/* Faults in a piece that was taken for later use, before anybody else knows it. By the turn. */
void twi_arena_touch(struct twi_arena *arena, uint32_t line, uint32_t lines);

/* Pages outside of any arena that the kernel wipes in a forked child (for reclaim.c); NULL: none to be had. */
void *twi_arena_wiped_pages(size_t bytes);

TWI_INLINE void *twi_arena_at(const struct twi_arena *arena, uint32_t line) {
    return arena->base + (uint64_t)line * TWI_LINE_BYTES;
}
TWI_INLINE uint32_t twi_arena_line(const struct twi_arena *arena, const void *piece) {
    return (uint32_t)((uint64_t)((const unsigned char *)piece - arena->base) / TWI_LINE_BYTES);
}

#endif
