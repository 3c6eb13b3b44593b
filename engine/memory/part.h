/* part.h -- memory that is set aside for one family as its share (memory_share).
 *
 *   arena | ... | part of one family: segments in a row | ... | part of another | ...
 *
 * A part is a separate arena within the whole. It has separate runs to carve from and separate free lines. No other
 * family can take a line of it, so a flood or small pieces of other families do not reach it. Its pieces are named by
 * their lines in the whole, and twi_arena_give() brings them back to it. A family has several parts if its share grew,
 * or if no run of free segments was long enough.
 * Always true: parts leave an eighth of the whole, and at least one segment, to all else. A part is given back when no
 * piece of it is handed out and its family is gone.
 * Threads: any thread takes. Parts come and go under the lock of the roster, and the family that they serve is not
 * reachable by then. */
#ifndef TWI_MEMORY_PART_H
#define TWI_MEMORY_PART_H

#include "engine/memory/arena.h"

struct twi_part {
    struct twi_arena arena;
    struct twi_part *older; /* the family's next one; set before sharing */
    struct twi_part *next;  /* the next of all parts of the whole */
    uint32_t segments;
};

/* The parts of a family. */
typedef _Atomic(struct twi_part *) twi_parts;

/* Sets segments aside until the parts have `bytes`. Returns false if so much is not free, or more than all parts may
 * have together, and then it has changed nothing. */
bool twi_parts_extend(struct twi_arena *whole, twi_parts *parts, uint64_t bytes);
/* How many bytes the parts have, and how many could still be set aside for all families by the rule above. */
uint64_t twi_parts_bytes(twi_parts *parts);
uint64_t twi_parts_bytes_left(const struct twi_arena *whole);
/* A piece, as by twi_arena_take(); its line in the whole. 0 means that the parts have none, or there are no parts. */
uint32_t twi_parts_take(twi_parts *parts, uint32_t lines);
/* No piece of them is handed out. For a family that takes no more. */
bool twi_parts_are_empty(twi_parts *parts);
/* Gives the segments of empty parts back. */
void twi_parts_give(struct twi_arena *whole, twi_parts *parts);
/* In a forked child, whose arena is new and empty: sets the same number of segments aside again. Returns false if there
 * is no memory. */
bool twi_parts_renew(struct twi_arena *whole, twi_parts *parts);
/* Frees the memory that the parts have outside of the arena, which is gone, or goes with them. */
void twi_parts_free(twi_parts *parts);
/* twi_arena_survey() and twi_arena_keep_ahead() for some of the parts that are in use, in turn. By the turn. */
void twi_parts_keep_ahead(struct twi_arena *whole, int64_t mono_ms, uint32_t *work);

#endif
