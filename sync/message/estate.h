/* estate.h -- what the sync of a shared engine leaves to the sync of the process that makes the turns next: the
 * instance, its last number, and the batches in flight (batch/inflight.h). Both processes have this memory together.
 *
 *   this process ─hands over, or ends after any instruction▶ another one: twi_estate_inherit() ▶ the batches in flight
 *   are sent again under their numbers ▶ Redis answers OK or DUP, as after a lost connection
 * The replay buffer lies behind the estate (batch/replay_ring.h), so it is left, too. If Redis goes back, the next
 * process sends the missing batches again.
 * A store that has lost everything is left in three steps, because the next process must know from this memory alone
 * what it may send:
 *   1. twi_estate_intend() saves the identity that the new store has accepted, and that it is being restored.
 *   2. The batches in flight are noted as adrift, and all counts become unsent. Each part of this may be done twice.
 *   3. twi_estate_save() says that this is done. Only then it is reported to the host, which may take long.
 * A process that inherits the intent does step 2 again. So the store that was left is known as such when it is back,
 * and gets nothing twice.
 * Always true: one of the two heads is whole, and `current` says which. A batch's place becomes free after the head has
 * its number, or after its items are noted as adrift. Threads: only the owner of the turn. */
#ifndef TWI_SYNC_MESSAGE_ESTATE_H
#define TWI_SYNC_MESSAGE_ESTATE_H

#include "sync/batch/inflight.h"
#include "sync/batch/reply.h"
#include "sync/message/state.h"

struct twi_estate_head {
    struct twi_identity identity; /* its name has size 0 if there is no instance */
    bool marker_known;
    uint64_t confirmed, acked, plus_sum, minus_sum;
    struct twi_ledger_missing missing;
    uint32_t side; /* of the numbers in the replay buffer */
    struct twi_former_ledgers formers;
    struct twi_known_stores known;
    struct twi_store_assumed assumed;
    uint32_t lives;
    _Atomic uint32_t step;            /* of TWI_ESTATE_ */
    struct twi_restore_before before; /* of TWI_ESTATE_RESTORES */
};
enum {
    TWI_ESTATE_SETTLED,
    TWI_ESTATE_RESTORES, /* this identity is new, and it is not known whether all counts are unsent */
    TWI_ESTATE_REPORTS   /* they are, and this was perhaps not reported to the host */
};

struct twi_estate {
    _Atomic uint32_t current; /* 1 or 2: that head is whole; 0: no sync has met a store yet */
    uint64_t serials;         /* the last serial of a connection: it rises over all syncs, or Redis would see a twin */
    struct twi_estate_head heads[2];
    struct twi_replay_ends replay;
    struct twi_inflight places[TWI_INFLIGHT_PLACES];
};

/* The estate's size, with the replay buffer behind it. Pages that are not used cost nothing. */
size_t twi_estate_bytes(const tw_options *options);
/* Of these, the bytes of the replay buffer. */
size_t twi_estate_replay_bytes(const tw_options *options);
/* NULL if the engine is not shared. */
struct twi_inflight *twi_estate_places(struct twi_estate *estate);
/* Saves the store's instance and its numbers. Does nothing if the engine is not shared. */
void twi_estate_save(struct twi_sync *sync, const struct twi_store *store);
/* Saves the identity that the store has accepted by that reply, before anything is changed for it. */
void twi_estate_intend(struct twi_sync *sync, const struct twi_store *store, const struct twi_reply_head *reply,
                       int64_t now_ms);
/* The restoration was reported to the host. */
void twi_estate_has_reported(struct twi_sync *sync);
/* Takes over what the sync before has left. */
void twi_estate_inherit(struct twi_sync *sync, struct twi_store *store);

#endif
