/* arena.h -- the only source of memory for counters: one reserved range of addresses, committed as it is used.
 *
 *   | head | segment | segment | segment ...          | not yet touched | reserve | which lines are free (free_map.h) |
 *            each is 64 KiB: 1024 lines. A small piece lies within one, a big piece takes whole adjacent ones
 *
 * The name of a piece is its LINE: its distance from the base in units of 64 bytes (32 bits: up to 256 GiB). The arena
 * stores lines, never addresses, so that the same range can later be a file or be shared.
 * Memory that is given back is free by lines, not by pieces. It serves pieces of any size, together with the free lines
 * next to it. A small piece comes from a hole first, the tightest in which it fits. If there is no hole, its size takes
 * a whole segment, a free one before an untouched one, and carves pieces from it, one after the other. A thread that
 * finds nothing at all frees what all sizes have not carved yet, and looks again.
 * The last segments are the reserve. They serve the needs of counting when all other memory is used up (spill.h).
 * Segments may be detached as a part, which serves one family alone (part.h). A piece of a part is named by its line in
 * the whole, and given back to the whole, which finds the part.
 * Always true: a piece is zeroed when it is handed out. bytes_used never exceeds the bound. While a long enough run of
 * free lines exists, no request fails, except for what other threads hold in hand at that moment: a piece or a segment
 * each.
 * Threads: take and give from any thread, lock-free (labels A*). Taking makes no system call. It costs no page fault
 * either, while the turn's reserve lasts. The turn faults in memory ahead, as much as the recent rate of new segments
 * needs, and none if nobody takes any. A thread that outruns the reserve touches fresh pages itself. Elsewhere: when a
 * piece may be given back (epoch.h). */
#ifndef TWI_MEMORY_ARENA_H
#define TWI_MEMORY_ARENA_H

#include "engine/memory/free_map.h"

/* The run of free lines from which pieces of one size are carved. */
struct twi_arena_carve {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t word; /* first line << 32 | pieces left; 0 means no run */
};

/* The parts of a whole, which are set aside (part.h). */
struct twi_arena_parts {
    _Atomic(struct twi_arena *) *owners; /* the part that each segment belongs to; NULL means none */
    struct twi_part *first, *next;       /* all parts, and the one to look at next; under a lock of theirs */
    _Atomic int64_t bytes_aside;         /* bytes of all parts, used or not */
    _Atomic int64_t bytes_used;          /* in pieces of parts that are handed out */
};

struct twi_arena {
    unsigned char *base; /* these fields are set once, then read by all */
    uint64_t bytes_max;
    struct twi_arena *whole; /* the whole to which a part belongs (part.h); NULL means that it is no part */
    uint32_t shift;          /* for a part, its line n is the whole's line n + shift */
    struct twi_arena_parts parts;
    void *map; /* the mapping; the base is its first huge page */
    uint64_t map_bytes;
    uint32_t segments_max;      /* without the reserve */
    uint32_t segments_reserved; /* how many segments the reserve has, which are the next ones */
    /* used by the turn alone */
    uint32_t segments_touched; /* segments faulted in */
    uint32_t segments_seen;    /* segments_taken at the turn's last look */
    /* size of the reserve when the turn began, because the turn replaces the segments that it takes itself */
    uint32_t segments_left;
    uint32_t segments_lately;                                /* segments that others took since slice_began_ms */
    uint32_t segments_rate;                                  /* the same, in the busiest recent slice */
    int64_t slice_began_ms;                                  /* monotonic */
    struct twi_free_map_scan_state round;                    /* state of the scan of free lines */
    alignas(TWI_LINE_BYTES) _Atomic uint32_t segments_taken; /* segments that were ever handed out */
    _Atomic int64_t bytes_used;                              /* in pieces that are handed out, those of parts as well */
    _Atomic int64_t bytes_high;
    _Atomic uint32_t busy;                    /* threads that may have free lines in hand */
    _Atomic uint64_t refused;                 /* requests that failed */
    _Atomic uint64_t reserve;                 /* bits of the segments of the reserve that are free */
    struct twi_arena_carve carves[TWI_SIZES]; /* one per size */
    struct twi_free_map free_map;
};

/* Reserves the range. Returns false if the system has no addresses left. */
bool twi_arena_make(struct twi_arena *arena, uint64_t bytes_max);
void twi_arena_unmake(struct twi_arena *arena);
/* Sets segments aside for the reserve. These are the last ones, a 128th of all, 32 at most, and no segment below 16
 * MiB. Right after twi_arena_make(). */
void twi_arena_set_aside(struct twi_arena *arena);

/* A zeroed piece of at least `lines` lines, or 0. `lines` is rounded up to its size class, see twi_arena_round(). */
uint32_t twi_arena_take(struct twi_arena *arena, uint32_t lines);
/* The same, of whole segments of the reserve. *lines is the wanted number. It becomes the lines of the piece, which are
 * fewer if so many segments are not free in a row. */
uint32_t twi_arena_take_reserved(struct twi_arena *arena, uint32_t *lines);
bool twi_arena_reserve_is_half_free(const struct twi_arena *arena);
/* Gives back a piece and zeroes it. `lines` is the same as when it was taken. No thread can reach the piece any
 * more. */
void twi_arena_give(struct twi_arena *arena, uint32_t line, uint32_t lines);
/* The number of lines that a piece of `lines` lines really has. */
uint32_t twi_arena_round(uint32_t lines);
/* Segments in a row for a part, zeroed; not in bytes_used. Returns the first line, or 0 if there are none. */
uint32_t twi_arena_detach(struct twi_arena *arena, uint32_t segments);
/* Gives them back and zeroes them. No piece of them is handed out any more. */
void twi_arena_attach(struct twi_arena *arena, uint32_t line, uint32_t segments);
int64_t twi_arena_bytes_used(const struct twi_arena *arena);
/* The same for the memory outside all parts, which is how much of it is in use, and its bound. */
int64_t twi_arena_rest_used(const struct twi_arena *arena);
int64_t twi_arena_rest_max(const struct twi_arena *arena);
int64_t twi_arena_bytes_high(const struct twi_arena *arena);
/* Bytes of all segments that were ever handed out. The process has committed at most that much. */
int64_t twi_arena_bytes_committed(const struct twi_arena *arena);
/* Memory that is free within the bound, and how much of it can be used at once. */
struct twi_arena_usage {
    int64_t free_bytes;    /* that of parts as well */
    int64_t usable_bytes;  /* outside of parts, in runs that are long enough for every piece that counting needs */
    int64_t longest_bytes; /* the longest run of those */
};
struct twi_arena_usage twi_arena_usage(const struct twi_arena *arena);
/* usable_bytes, by the turn's scan, which looks at some segments per turn. In a large arena the figure may be some 100
 * ms old. */
int64_t twi_arena_usable(struct twi_arena *arena);
/* How many requests failed, for pieces that counting cannot replace by smaller ones. */
uint64_t twi_arena_refused(const struct twi_arena *arena);

/* Makes sure that there are whole free segments for `pieces` pieces of `lines` lines, faulted in, as far as memory and
 * *work (lines touched) allow. Any thread may take them. Returns false if there is no such memory. Background. */
bool twi_arena_stock(struct twi_arena *arena, uint32_t lines, uint32_t pieces, uint32_t *work);

/* Measures how fast others take fresh segments. Once at the beginning of a turn, before the turn takes any for
 * itself. */
void twi_arena_survey(struct twi_arena *arena, int64_t mono_ms);
/* Faults in memory ahead of the threads that take fresh segments: twice what they took in the busiest recent 50 ms, and
 * 2 MiB. The reserve is at most 2 MiB and an eighth of what is taken. An arena from which no thread takes gets no more
 * memory, and a small one stays within its first 2 MiB. *work bounds the lines touched. Only the turn calls it, at its
 * end. */
void twi_arena_keep_ahead(struct twi_arena *arena, uint32_t *work);
/* Faults in a piece for later use, before another thread can reach it. Only the turn calls it. */
void twi_arena_touch(struct twi_arena *arena, uint32_t line, uint32_t lines);

/* Pages outside of any arena that the kernel wipes in a forked child (for epoch.c). NULL means that none are
 * available. */
void *twi_arena_wiped_pages(size_t bytes);

TWI_INLINE void *twi_arena_at(const struct twi_arena *arena, uint32_t line) {
    return arena->base + (uint64_t)line * TWI_LINE_BYTES;
}
TWI_INLINE uint32_t twi_arena_line(const struct twi_arena *arena, const void *piece) {
    return (uint32_t)((uint64_t)((const unsigned char *)piece - arena->base) / TWI_LINE_BYTES);
}

#endif
