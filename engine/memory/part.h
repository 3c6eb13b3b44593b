/* part.h -- memory that is set aside for one family as its share (memory_share).
 *
 *   arena | ... | part of one family: segments in a row | ... | part of another | ...
 *
 * A part is a separate arena within the whole. It has separate runs to carve from and separate free lines. No other
 * family can take a line of a part, so neither a flood nor small pieces of other families affect it. Its pieces are
 * named by their lines in the whole arena, and twi_arena_give() gives them back to the part. A family has several parts
 * if its share grew, or if no run of free segments was long enough.
 * Always true: parts leave an eighth of the whole arena, and at least one segment, to all other uses. A part is given
 * back when none of its pieces is handed out and its family is freed.
 * Threads: any thread takes pieces. Parts are added and removed under the lock of the roster, while no thread can
 * reach their family. */
#ifndef TWI_MEMORY_PART_H
#define TWI_MEMORY_PART_H

#include "engine/memory/arena.h"

struct twi_part {
    struct twi_arena arena;
    struct twi_part *older; /* the family's next part; set before the part is shared */
    struct twi_part *next;  /* the next of all parts of the whole arena */
    uint32_t segments;
    size_t bytes; /* of its block: this struct, and its map of free lines */
};

/* The parts of a family. */
typedef _Atomic(struct twi_part *) twi_parts;

/* Sets segments aside until the parts have `bytes`. Returns false and changes nothing if there is not enough free
 * memory, or if all parts together would have too much. */
bool twi_parts_extend(struct twi_arena *whole, twi_parts *parts, uint64_t bytes);
/* Returns how many bytes the parts have, and how many could still be set aside for all families by the rule above. */
uint64_t twi_parts_bytes(twi_parts *parts);
uint64_t twi_parts_bytes_left(const struct twi_arena *whole);
/* Takes a piece in the same way as twi_arena_take(), and returns its line in the whole arena. 0 means none. */
uint32_t twi_parts_take(twi_parts *parts, uint32_t lines);
/* Returns true if none of their pieces is handed out. For a family that takes no more pieces. */
bool twi_parts_are_empty(twi_parts *parts);
/* Gives the segments of empty parts back. */
void twi_parts_give(struct twi_arena *whole, twi_parts *parts);
/* Called in a forked child, whose arena is new and empty. Sets the same number of segments aside again. Returns
 * false if there is no memory. */
bool twi_parts_renew(struct twi_arena *whole, twi_parts *parts);
/* Frees the memory of the parts that is outside of the arena. The arena is already freed, or is freed next. */
void twi_parts_free(twi_parts *parts);
/* Calls twi_arena_survey() and twi_arena_keep_ahead() for some of the parts in use, by turns. Called by the turn. */
void twi_parts_keep_ahead(struct twi_arena *whole, int64_t mono_ms, uint32_t *work);

#endif
