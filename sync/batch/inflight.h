/* inflight.h -- the batches of a shared engine that were sent and are not settled, in memory that its processes share.
 * The process that makes the turns next sends them again, with the same bytes under the same numbers. So Redis says
 * what became of each, as it does after a lost connection.
 *
 *   free ─before the first byte is sent▶ sent ─Redis has answered, its outcomes are noted▶ settling ─all settled▶ free
 *                                            ├─the next process cannot send it again▶ giving up ─all given up─▶┤
 *                                            └─it went to a store that was left▶ adrift ─all are noted as that─▶┘
 * A process may end after any instruction. So the words are written in an order in which each state is complete, and
 * while a batch is settled, it is noted which item is next.
 * Always true: a batch that was sent, and has an unsettled item, is in one place. A batch of an engine that is not
 * shared has no place. Threads: only the owner of the turn. */
#ifndef TWI_SYNC_BATCH_INFLIGHT_H
#define TWI_SYNC_BATCH_INFLIGHT_H

#include "sync/batch/batch.h"

/* More than a pipeline holds, because empty batches need a place, too. */
#define TWI_INFLIGHT_PLACES 16u
/* A batch with so many names that it is larger is uncertain if its process ends. */
#define TWI_INFLIGHT_BYTES (TWI_BATCH_BYTES_MAX + 64u * 1024)

enum twi_inflight_outcome {
    TWI_OUTCOME_APPLIED,
    TWI_OUTCOME_RETURNS,  /* Redis has not applied this item */
    TWI_OUTCOME_LATE,     /* TW_LOST_LATE */
    TWI_OUTCOME_UNCERTAIN /* TW_LOST_UNCERTAIN */
};

struct twi_inflight {
    _Atomic uint32_t state;   /* of TWI_INFLIGHT_ */
    _Atomic uint32_t settled; /* while it is settled, so many items are; the next one may be half settled */
    struct twi_batch batch;   /* its numbers and sums; its pointers mean nothing here */
    size_t key_bytes, arg_bytes;
    struct twi_item items[TWI_BATCH_ITEMS_MAX];
    int64_t acked_before[TWI_BATCH_ITEMS_MAX]; /* twi_port_acked() of each item, before it was settled */
    unsigned char outcomes[TWI_BATCH_ITEMS_MAX];
    char bytes[TWI_INFLIGHT_BYTES]; /* keys, then args */
};
enum { TWI_INFLIGHT_FREE, TWI_INFLIGHT_SENT, TWI_INFLIGHT_SETTLING, TWI_INFLIGHT_GIVING_UP, TWI_INFLIGHT_ADRIFT };

/* Notes a batch that is sent next. Does nothing if it is noted, or if `places` is NULL. Returns false if no place is
 * free. Then it must not be sent. */
bool twi_inflight_note(struct twi_inflight *places, struct twi_batch *batch);
/* Notes the outcome of an item, before any is settled. */
void twi_inflight_outcome(struct twi_batch *batch, uint32_t item, enum twi_inflight_outcome outcome);
void twi_inflight_outcome_of_all(struct twi_batch *batch, enum twi_inflight_outcome outcome);
/* All outcomes are noted, and the items are settled next, in their order. */
void twi_inflight_settle(struct twi_batch *batch);
/* This item is settled next; the number of all items means that none is left. */
void twi_inflight_next(struct twi_batch *batch, uint32_t item);
/* Notes that the store which the engine leaves may have the items that are not noted yet (twi_port_adrift()). */
void twi_inflight_note_adrift(struct twi_inflight *place);
/* Gives the place back, because all items are settled, or because no copy of it can be applied any more. */
void twi_inflight_forget(struct twi_batch *batch);
void twi_inflight_free(struct twi_inflight *place);

/* ---- in the next process ---- */

/* The item that the process before was settling is not settled. Called for each place, before
 * twi_port_inherit_begin(). */
void twi_inflight_undo(struct twi_inflight *place);
/* The items of that place that are not settled are in flight again. Then those of a batch that was being settled are
 * settled by their outcomes, without a total. Returns the batch if it is to be sent again, with its items; NULL if it
 * was settled, or if there is no memory (`has_memory` is false, or there is none): then its items are given up as
 * uncertain. After NULL the caller frees the place. */
struct twi_batch *twi_inflight_inherit(struct twi_inflight *place, bool has_memory);
/* A batch that was being settled, as it is kept to be sent again: without items, and without the deltas that Redis has
 * refused. NULL if there is no memory, or if the place had no room for its bytes. */
struct twi_batch *twi_inflight_settled(const struct twi_inflight *place);

#endif
