/* chains.h -- a hash index whose chains and entries are in the arena. It grows and shrinks a few chains at a time.
 *
 * An entry has one link for each row in which it can be found. Reservations are found by serial and by buyer, holds by
 * key. While an index is replaced, there are two. The first `moved` chains of the old index are already in the new one.
 * Always true: an entry is in one chain of each row into which it was entered. The newest entry is the first. No call
 * does more than a bounded piece of work, however many entries there are.
 * Threads: the caller has the lock of the book to which the chains belong. */
#ifndef TWI_RESERVE_CHAINS_H
#define TWI_RESERVE_CHAINS_H

#include <stdbool.h>
#include <stdint.h>

#include "tallywheel.h"

struct twi_chains {
    uint32_t index, log2; /* the line of the index, and the chains of each row; 0: no index yet */
    /* the previous index, and how many of its chains have moved; 0 means that there is none */
    uint32_t old_index, old_log2, moved;
};

/* The part of an entry for one row. */
struct twi_chain_link {
    uint32_t *next;
    uint64_t hash;
};

/* Each book has one of these. */
struct twi_chains_kind {
    uint32_t rows;
    struct twi_chain_link (*link)(tw_engine *engine, uint32_t line, uint32_t row);
    /* Takes memory of the arena, within the bounds of the book. Returns a line. 0 means that there is no memory. */
    uint32_t (*take)(tw_engine *engine, uint32_t lines);
    void (*give)(tw_engine *engine, uint32_t line, uint32_t lines);
};

#define TWI_CHAINS_LOG2_FIRST 6u
#define TWI_CHAINS_MOVES_CALL 8u /* chains that a call moves; for one new chain more than one must be moved */

/* Returns the first entry of the chain of that hash. 0 means that the chain is empty. The index may not exist yet. */
uint32_t twi_chain_first(tw_engine *engine, const struct twi_chains *chains, uint64_t hash, uint32_t row);
/* Enters an entry into a row, or removes it. The index must exist. */
void twi_chain_enter(tw_engine *engine, const struct twi_chains *chains, const struct twi_chains_kind *kind,
                     uint32_t line, uint32_t row);
void twi_chain_leave(tw_engine *engine, const struct twi_chains *chains, const struct twi_chains_kind *kind,
                     uint32_t line, uint32_t row);

/* Called before an entry is made. Makes an index with as many chains as there are entries. Returns false if there is
 * no index and no memory for one. */
bool twi_chains_make(tw_engine *engine, struct twi_chains *chains, const struct twi_chains_kind *kind,
                     uint64_t entries);
/* Begins to move to an index of another size. Returns false if there is no memory. The chains then stay as they are. */
bool twi_chains_replace(tw_engine *engine, struct twi_chains *chains, const struct twi_chains_kind *kind,
                        uint32_t log2);
/* Moves at most that many chains of the previous index. */
void twi_chains_move(tw_engine *engine, struct twi_chains *chains, const struct twi_chains_kind *kind, uint32_t count);

#endif
