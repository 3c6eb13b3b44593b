/* estate.h -- what the sync of a shared engine leaves to the sync of the process that makes the turns next: the
 * instance, its last number, and the batches in flight (batch/inflight.h). Both processes have this memory together.
 *
 *   this process ─hands over, or ends after any instruction▶ another one: twi_estate_inherit() ▶ the batches in flight
 *   are sent again under their numbers ▶ Redis answers OK or DUP, as after a lost connection
 * The replay buffer is not left. If Redis goes back beyond the last number soon after, those units are `lost`, counted
 * by the sums of the ledger.
 * Always true: one of the two heads is whole, and `current` says which. A batch's place becomes free after the head has
 * its number. Threads: only the owner of the turn. */
#ifndef TWI_SYNC_MESSAGE_ESTATE_H
#define TWI_SYNC_MESSAGE_ESTATE_H

#include "sync/batch/inflight.h"
#include "sync/message/state.h"

struct twi_estate_head {
    struct twi_identity identity; /* its name has size 0 if there is no instance */
    bool marker_known;
    uint64_t acked, plus_sum, minus_sum;
    struct twi_former_ledgers formers;
    struct twi_known_stores known;
    struct twi_store_assumed assumed;
    uint32_t lives;
};

struct twi_estate {
    _Atomic uint32_t current; /* 1 or 2: that head is whole; 0: no sync has met a store yet */
    uint64_t serials;         /* the last serial of a connection: it rises over all syncs, or Redis would see a twin */
    struct twi_estate_head heads[2];
    struct twi_inflight places[TWI_INFLIGHT_PLACES];
};

/* NULL if the engine is not shared. */
struct twi_inflight *twi_estate_places(struct twi_estate *estate);
/* Saves the store's instance and its numbers. Does nothing if the engine is not shared. */
void twi_estate_save(struct twi_sync *sync, const struct twi_store *store);
/* Takes over what the sync before has left. */
void twi_estate_inherit(struct twi_sync *sync, struct twi_store *store);

#endif
