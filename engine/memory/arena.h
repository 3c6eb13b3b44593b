/* arena.h -- the only source of memory for counters: one reserved range of addresses, committed as it is used.
 *
 *   | head | segment | segment | segment ... | not yet touched | reserve | which lines are free (free_map.h) | each is
 *            64 KiB: 1024 lines. A small piece is within one segment, and a large piece is made of whole adjacent
 *            segments
 *
 * The name of a piece is its LINE: its distance from the base in units of 64 bytes (32 bits: up to 256 GiB). The arena
 * stores lines, never addresses, so that the same range can later be a file or be shared. Memory that is given back is
 * free line by line, not piece by piece. Its lines serve pieces of any size, together with adjacent free lines. A small
 * piece comes from the smallest hole in which it fits. If there is no hole, the piece's size takes a whole segment and
 * carves pieces from it, one after the other. It prefers a free segment to an unused one. A thread that finds no memory
 * at all frees the lines that all sizes have not carved yet, and looks again. The last segments are the reserve. They
 * serve counting when all other memory is used up (spill.h). Segments may be detached as a part. A part serves one
 * family alone (part.h). A piece of a part is named by its line in the whole arena. It is given back to the whole
 * arena, which finds the part.
 * Always true: a piece is zeroed when it is handed out. bytes_used never exceeds the bound. While a long enough run of
 * free lines exists, no request fails. Except for what other threads have at that moment, a piece or a segment each.
 * Threads: any thread takes and gives, lock-free (labels A*). Taking makes no system call. It causes no page fault
 * either, while the reserve of the turn lasts. The turn faults in memory in advance, as much as the recent rate of
 * new segments needs. If no thread takes segments, it faults in none. A thread that needs more than this reserve
 * touches fresh pages itself. Elsewhere: when a piece may be given back (epoch.h). */
#ifndef TWI_MEMORY_ARENA_H
#define TWI_MEMORY_ARENA_H

#include "engine/memory/free_map.h"

/* The run of free lines from which pieces of one size are carved. */
struct twi_arena_carve {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t word; /* first line << 32 | pieces left; 0 means no run */
};

/* The parts that belong to a whole arena (part.h). */
struct twi_arena_parts {
    _Atomic(struct twi_arena *) *owners; /* the part that each segment belongs to; NULL means none */
    struct twi_part *first, *next;       /* all parts, and the one to look at next; a separate lock protects them */
    _Atomic int64_t bytes_aside;         /* the bytes of all parts, used or not */
    _Atomic int64_t bytes_used;          /* bytes of parts in pieces that are handed out */
};

struct twi_arena {
    unsigned char *base; /* these fields are set once, then read by all */
    uint64_t bytes_max;
    struct twi_arena *whole; /* the whole to which a part belongs (part.h); NULL means that it is no part */
    uint32_t shift;          /* for a part: its line n is line n + shift of the whole arena */
    struct twi_arena_parts parts;
    void *map; /* the mapping; `base` is its first huge page */
    uint64_t map_bytes;
    bool is_shared;             /* with forked children, which have it at the same addresses */
    uint32_t segments_max;      /* without the reserve */
    uint32_t segments_reserved; /* how many segments the reserve has; the reserve follows `segments` */
    /* only the turn uses the next fields */
    uint32_t segments_touched; /* segments faulted in */
    uint32_t segments_seen;    /* segments_taken at the turn's last look */
    /* the size of the reserve when the turn began, because the turn replaces the segments that it takes itself */
    uint32_t segments_left;
    uint32_t segments_lately;                                /* segments that others took since slice_began_ms */
    uint32_t segments_rate;                                  /* the same number in the busiest recent slice */
    int64_t slice_began_ms;                                  /* monotonic */
    struct twi_free_map_scan_state round;                    /* state of the scan of free lines */
    alignas(TWI_LINE_BYTES) _Atomic uint32_t segments_taken; /* segments that were ever handed out */
    _Atomic int64_t bytes_used; /* bytes in pieces that are handed out, with those of parts */
    _Atomic int64_t bytes_high;
    _Atomic uint32_t busy;                    /* how many threads may have taken free lines and not used them yet */
    _Atomic uint64_t refused;                 /* requests that failed */
    _Atomic uint64_t reserve;                 /* one bit for each free segment of the reserve */
    struct twi_arena_carve carves[TWI_SIZES]; /* one per size */
    struct twi_free_map free_map;
};

/* Reserves the range. Returns false if the system has no addresses left. */
bool twi_arena_make(struct twi_arena *arena, uint64_t bytes_max);
/* Does the same for an arena that forked children share: what one process writes there, all read. */
bool twi_arena_make_shared(struct twi_arena *arena, uint64_t bytes_max);
void twi_arena_unmake(struct twi_arena *arena);
/* Unmaps a shared arena in this process alone. */
void twi_arena_leave(const struct twi_arena *arena);
/* Sets segments aside for the reserve. These are the last segments: a 128th of all, at most 32, and none below 16
 * MiB. Right after twi_arena_make(). */
void twi_arena_set_aside(struct twi_arena *arena);

/* Returns a zeroed piece of at least `lines` lines, or 0. `lines` is rounded up by twi_arena_round(). */
uint32_t twi_arena_take(struct twi_arena *arena, uint32_t lines);
/* Does the same with whole segments of the reserve. *lines is the wanted number. It becomes the number of lines of
 * the piece. This is less if so many adjacent segments are not free. */
uint32_t twi_arena_take_reserved(struct twi_arena *arena, uint32_t *lines);
bool twi_arena_reserve_is_half_free(const struct twi_arena *arena);
/* Gives back a piece and zeroes it. `lines` is the same as when it was taken. The caller makes sure that no thread
 * can reach the piece any more. */
void twi_arena_give(struct twi_arena *arena, uint32_t line, uint32_t lines);
/* Returns the number of lines that a piece of `lines` lines really has. */
uint32_t twi_arena_round(uint32_t lines);
/* Takes adjacent segments for a part, zeroed. bytes_used does not include them. Returns the first line, or 0. */
uint32_t twi_arena_detach(struct twi_arena *arena, uint32_t segments);
/* Gives the segments back and zeroes them. No piece of them may be handed out. */
void twi_arena_attach(struct twi_arena *arena, uint32_t line, uint32_t segments);
int64_t twi_arena_bytes_used(const struct twi_arena *arena);
/* The same figures for the memory outside all parts: how much of it is in use, and its bound. */
int64_t twi_arena_rest_used(const struct twi_arena *arena);
int64_t twi_arena_rest_max(const struct twi_arena *arena);
int64_t twi_arena_bytes_high(const struct twi_arena *arena);
/* Returns the bytes of all segments that were ever handed out. The process has committed no more than that. */
int64_t twi_arena_bytes_committed(const struct twi_arena *arena);
/* Memory that is free within the bound, and how much of it can be used at once. */
struct twi_arena_usage {
    int64_t free_bytes;    /* including the memory of parts */
    int64_t usable_bytes;  /* outside of parts, in runs that are long enough for every piece that counting needs */
    int64_t longest_bytes; /* the longest of these runs */
};
struct twi_arena_usage twi_arena_usage(const struct twi_arena *arena);
/* Returns usable_bytes as measured by the turn's scan, which looks at some segments in each turn. In a large arena
 * the figure may be some 100 ms old. */
int64_t twi_arena_usable(struct twi_arena *arena);
/* Returns how many requests failed for pieces that counting cannot replace by smaller ones. */
uint64_t twi_arena_refused(const struct twi_arena *arena);

/* Makes sure that there are whole free segments for `pieces` pieces of `lines` lines, and faults them in, as far as
 * memory and *work (touched lines) allow. Any thread may take them. Returns false if there is too little. */
bool twi_arena_stock(struct twi_arena *arena, uint32_t lines, uint32_t pieces, uint32_t *work);

/* Measures how fast other threads take fresh segments. Called once at the beginning of a turn, before the turn takes
 * a segment itself. */
void twi_arena_survey(struct twi_arena *arena, int64_t mono_ms);
/* Faults in memory in advance for threads that take fresh segments: twice as much as they took in the busiest recent 50
 * ms, and 2 MiB. This reserve is at most 2 MiB plus an eighth of the memory that is taken. An arena from which no
 * thread takes gets no more memory. A small arena stays within its first 2 MiB. *work limits the number of touched
 * lines. Only the turn calls it, at its end. */
void twi_arena_keep_ahead(struct twi_arena *arena, uint32_t *work);
/* Faults in a piece for later use, before another thread can reach it. Only the turn calls it. */
void twi_arena_touch(struct twi_arena *arena, uint32_t line, uint32_t lines);

/* Addresses outside of any arena (for epoch.c): `bytes` that the kernel wipes in a forked child, and behind them
 * `shared_bytes` that the child shares. NULL means that there are none. Nothing can be read or written there before
 * twi_arena_open_pages(), so mlockall() does not make all of it resident. */
void *twi_arena_wiped_pages(size_t bytes, size_t shared_bytes);
/* Zeroes in place of what lies in such pages, which stay as they are for a child: the first `bytes` wiped, the others
 * shared. Other processes keep the memory that was shared. Returns false if the kernel has no memory. */
bool twi_arena_renew_pages(void *pages, size_t bytes, size_t shared_bytes);
bool twi_arena_open_pages(void *pages, size_t bytes);
/* In a forked child: it shares these pages no more, and finds them zeroed. */
void twi_arena_unshare_pages(void *shared, size_t bytes);

/* A zeroed block outside of any arena. If it is shared, forked children share it, at the same address, and each process
 * gives its own mapping back. Otherwise it is a piece of the heap. NULL means that there is no memory. */
void *twi_arena_block(size_t bytes, bool is_shared);
void twi_arena_give_block(void *block, size_t bytes, bool is_shared);

TWI_INLINE bool twi_arena_has(const struct twi_arena *arena, const void *at) {
    return (uintptr_t)at - (uintptr_t)arena->map < arena->map_bytes;
}

TWI_INLINE void *twi_arena_at(const struct twi_arena *arena, uint32_t line) {
    return arena->base + (uint64_t)line * TWI_LINE_BYTES;
}
TWI_INLINE uint32_t twi_arena_line(const struct twi_arena *arena, const void *piece) {
    return (uint32_t)((uint64_t)((const unsigned char *)piece - arena->base) / TWI_LINE_BYTES);
}

/* ---- arena check ----
 * the check of a whole arena, for tests and level 3.
 * Always true: it changes nothing. It is exact while no thread takes or gives memory. */

/* Every line is in use, free, in the run of a size, in the reserve, or never used. The sums agree. A run may go over
 * the border of two segments, because pieces that are given back continue it. */
bool twi_arena_is_valid(const struct twi_arena *arena);

#endif
