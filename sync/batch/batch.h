/* batch.h -- deltas frozen under one number, and their bytes on the wire.   Step 3 of the flow in
 * docs/ARCHITECTURE.md.
 *
 * Always true: the keys, deltas, expiries and nonce of a frozen batch do not change. A key that Redis refuses is not
 * removed. The reason: an old copy of the batch may still be under way on a dead connection. There is one exception.
 * As soon as a refusal is known, the refused delta is overwritten with letters, so that a replay does not apply it.
 * Only the envelope (EVALSHA or EVAL, the ledger's name) is made again at each sending. Number and nonce change only
 * together with the ledger, when no old copy can be applied any more. */
#ifndef TWI_SYNC_BATCH_BATCH_H
#define TWI_SYNC_BATCH_BATCH_H

#include "engine/port/items.h"
#include "sync/wire/wire.h"
#include "sync/wire/pace.h"

/* The most keys of one batch; batch.h says how many most batches have. 1000 keys take about 2 ms of Redis's one thread.
 * 256 KiB bound a batch with the longest names, and so the time of one sending. */
#define TWI_BATCH_ITEMS_MAX 1000u
#define TWI_BATCH_BYTES_MAX (256u * 1024)

struct twi_inflight;

struct twi_batch {
    struct twi_batch *next;     /* the ledger's list, by number */
    struct twi_inflight *place; /* of a shared engine, while it is in flight (reply.h); otherwise NULL */
    /* The batch's number, and the number that the ledger must show for the batch to be applied. */
    uint64_t number, before;
    uint64_t nonce;
    struct twi_item *items; /* in the order of the wire; NULL once all are settled */
    uint32_t item_count;
    uint32_t key_count, arg_count; /* the keys of the items */
    uint32_t name_keys;            /* keys after those, for the names that it records (put_names() in batch.c) */
    struct twi_bytes keys, args;   /* encoded */
    uint64_t plus, minus;          /* units that it adds and subtracts */
    uint64_t struck;               /* of these units, those that Redis has refused */
    uint64_t plus_sum, minus_sum;  /* the running sums of the instance, including this batch */
    bool strayed;         /* sent again while the outcome of an earlier copy was unknown, so two stores may have it */
    bool was_short;       /* Redis cut a run of its script short; its units are counted as uncertain */
    bool is_step;         /* it has no items, and replaces numbers whose batches are lost */
    bool is_kept;         /* its bytes are in the memory that all processes share (replay_ring.h) */
    uint32_t copies_open; /* how many sendings have an unknown outcome */
    int64_t sent_ms;      /* the latest sending */
    int64_t frozen_ms;
};

/* The envelope that a sending puts around a batch. */
struct twi_envelope {
    bool eval; /* the script's text instead of its SHA-1 */
    const char *ledger_name, *marker_name, *marker;
    size_t ledger_size, marker_name_size;
    int64_t ledger_ttl_ms;
};

/* Names in Redis that were rendered already, one behind the other. Name `named` of an item ends at ends[named]. */
struct twi_batch_names {
    struct twi_bytes bytes;
    uint32_t *ends; /* ends[0] is 0 */
    uint32_t count;
};

struct twi_freeze {
    const struct twi_batch_names *names; /* for items with `named`; may be NULL if there are no such items */
    /* Check each key's expiry, whatever INCRBY answers. Set after a reconnect, and now and then. */
    bool look_always;
    /* Redis's clock minus ours. The end of a life from the first count (TW_WINDOW_FROM_FIRST) is sent in Redis's
     * time. */
    int64_t redis_offset_ms;
    int64_t now_ms;
    uint32_t keys_max;  /* 1..TWI_BATCH_ITEMS_MAX */
    uint32_t bytes_max; /* on the wire, roughly; at most TWI_BATCH_BYTES_MAX. One item always fits */
};

/* Sorts items so that those of one kind and expiry are adjacent. They are one group on the wire. */
void twi_batch_sort(struct twi_item *items, size_t count, bool look_always);
/* Freezes as many of the (sorted) items as fit in one batch, at least one. Returns NULL if there is no memory; then no
 * item was frozen. */
struct twi_batch *twi_batch_freeze(const struct twi_item *items, size_t count, const struct twi_freeze *how,
                                   size_t *taken);
/* Does the same for a merge without a script. Such a batch is encoded only when it is sent. */
struct twi_batch *twi_batch_gather(const struct twi_item *items, size_t count, const struct twi_freeze *how,
                                   size_t *taken);
/* Makes a batch without items. It refreshes the ledger, requests its state, or replaces numbers whose batches are
 * lost. */
struct twi_batch *twi_batch_empty(int64_t now_ms);
void twi_batch_encode(const struct twi_batch *batch, const struct twi_envelope *envelope, struct twi_bytes *out);
/* Strikes the delta of an item out, so that Redis refuses it whenever the batch is sent again. Returns its magnitude,
 * or 0 if the item has no delta or it was overwritten before. */
uint64_t twi_batch_strike(struct twi_batch *batch, uint32_t index);
/* Does the same for a delta that goes back to its counter. The batch still contains the amount. */
uint64_t twi_batch_set_aside(struct twi_batch *batch, uint32_t index);
/* Strikes out a delta that was set aside. Returns its magnitude; 0 if it was not set aside. */
uint64_t twi_batch_take_aside(struct twi_batch *batch, uint32_t index);
size_t twi_batch_bytes(const struct twi_batch *batch);  /* memory in use */
uint64_t twi_batch_size(const struct twi_batch *batch); /* bytes on the wire, without the envelope */
void twi_batch_items_drop(struct twi_batch *batch);     /* returns true if all items are settled */
void twi_batch_free(struct twi_batch *batch);

/* ---- depth ----
 * how much is under way to Redis at once: no more than the distance to Redis requires, and no more than the
 * link carries in time.
 *
 * Redis processes the whole input of one client before it looks at the next client. So other clients wait for all
 * our keys under way, not for one batch. That is a microsecond or two for each key. Near Redis one small batch at a
 * time is enough to keep it busy. It serves others while we read the reply and make the next batch. Far from Redis,
 * as many keys are under way as it could process in half of the round trip. So a client as far away as we are waits
 * at most half as long again as without us. A thin link counts as a distance. While a key is on its way, Redis
 * serves other clients. The bytes under way have a separate bound. The reply to the last request has to come before
 * its deadline (pace.h). Always true: 1 to TWI_PIPELINE_MAX batches of near_keys to TWI_BATCH_ITEMS_MAX keys;
 * more of either only for a longer distance. */

#define TWI_PIPELINE_MAX 4u /* batches in flight: 4000 keys a round trip; the ledger remembers eight */

struct twi_load {
    uint32_t keys;    /* in a batch */
    uint32_t batches; /* at once */
};

/* `near_keys` is the number of keys of a batch when Redis is near. */
struct twi_load twi_depth_load(const struct twi_estimate *estimate, uint32_t near_keys);
/* Returns the bytes of one batch. Two are under way at once, so that the link is never idle. */
uint32_t twi_depth_batch_bytes(const struct twi_estimate *estimate, uint32_t timeout_ms);

#endif
