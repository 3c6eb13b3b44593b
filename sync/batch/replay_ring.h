/* replay_ring.h -- the replay buffer of a shared engine, in memory that its processes share: the bytes of settled
 * batches, which the next leader sends again if Redis goes back (message/state.h).
 *
 *   | free | record | record | ... | record | free, or a gap before the edge |      records by number, oldest first
 *          first ─────────────────────────▶ end
 * A batch of the ledger's list that is kept here has its bytes here and no others (`is_kept`). So the list of the
 * process that leads and the records are the same batches, except for a batch that found no room.
 * A process may end after any instruction. A record is whole before `end` shows it. It is not overwritten before
 * `first` has passed it. Numbers change together, and with the instance's name: a record has room for two sets of
 * numbers, and the head of the estate says which set counts.
 * Always true: the process that leads computes with its own first and end, and writes the shared ones for the next one.
 * Pages that no record needs go back to the system. Threads: only the owner of the turn. */
#ifndef TWI_SYNC_BATCH_REPLAY_RING_H
#define TWI_SYNC_BATCH_REPLAY_RING_H

#include "sync/batch/batch.h"

/* Its size and its address are multiples of this. No system has larger pages for small memory. */
#define TWI_REPLAY_RING_GRAIN (64u * 1024)

/* In shared memory. Zeroed memory is an empty ring. Positions only rise; modulo the size they are offsets. */
struct twi_replay_ends {
    _Atomic uint64_t first, end;
};

struct twi_replay_ring {
    struct twi_replay_ends *ends;
    char *bytes;
    uint64_t size;       /* 0: nothing is kept */
    uint64_t first, end; /* what `ends` shows */
    uint64_t given;      /* pages up to this position went back to the system, or are used again */
    uint32_t side;       /* of the numbers that count: 0 or 1 */
};

/* This process leads from now on. It continues with the records that are there. */
void twi_replay_ring_begin(struct twi_replay_ring *ring, struct twi_replay_ends *ends, char *bytes, uint64_t size,
                           uint32_t side);
/* Moves the bytes of a settled batch into the ring. Returns false if there is no room; then nothing has changed. */
bool twi_replay_ring_keep(struct twi_replay_ring *ring, struct twi_batch *batch);
/* Returns whether a batch of that size can ever be kept. */
bool twi_replay_ring_fits(const struct twi_replay_ring *ring, const struct twi_batch *batch);
/* The record of the oldest kept batch leaves the ring. The bytes stay readable until the next batch is kept, or until
 * their pages go back. */
void twi_replay_ring_drop(struct twi_replay_ring *ring, const struct twi_batch *batch);
void twi_replay_ring_drop_all(struct twi_replay_ring *ring);
/* Notes what a reply has changed in a kept batch besides its bytes. Does nothing with another one. */
void twi_replay_ring_note(struct twi_batch *batch);
/* Writes the batch's new numbers into the other set. twi_replay_ring_turn() then makes them count in this process;
 * in the next process they count when the estate has been saved. */
void twi_replay_ring_renumber(struct twi_replay_ring *ring, const struct twi_batch *batch);
void twi_replay_ring_turn(struct twi_replay_ring *ring);
/* ---- in the next process ---- */

/* Fills `batch` from the record at *position, and moves *position behind it. The batch is not linked, and has no items.
 * Returns false at the end. If a record makes no sense, it returns false and sets *is_damaged. */
bool twi_replay_ring_read(const struct twi_replay_ring *ring, uint64_t *position, struct twi_batch *batch,
                          bool *is_damaged);

#endif
