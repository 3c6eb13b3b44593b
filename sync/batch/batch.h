/* batch.h -- deltas frozen under one number, and how they stand on the wire.   Step 3 of the flow in
 * docs/ARCHITECTURE.md.
 *
 * Always true: what a batch says (keys, deltas, expiries, nonce) never changes once it is frozen, not even by removing
 * a key that Redis refuses: an old copy may still be under way on a dead connection. Only its envelope (EVALSHA or
 * EVAL, the ledger's name) is made anew at each sending. Number and nonce change only together with the ledger, when
 * no old copy can be applied any more. What Redis has refused is struck out once that is known, for replays. */
#ifndef TWI_SYNC_BATCH_BATCH_H
#define TWI_SYNC_BATCH_BATCH_H

#include "engine/port/items.h"
#include "sync/wire/wire.h"

/* How many there are in most batches: depth.h. 1000 keys are about 2 ms of Redis's one thread; 256 KiB bound the
 * longest names, and what one sending may cost us. */
#define TWI_BATCH_ITEMS_MAX 1000u
#define TWI_BATCH_BYTES_MAX (256u * 1024)

struct twi_batch {
    struct twi_batch *next;  /* the ledger's list, by number */
    uint64_t number, before; /* the number, and the one that the ledger must show when it is applied */
    uint64_t nonce;
    struct twi_item *items; /* in the order of the wire; NULL once each was settled */
    uint32_t item_count;
    uint32_t key_count, arg_count;
    struct twi_bytes keys, args;  /* encoded */
    uint64_t plus, minus;         /* what it adds and takes away */
    uint64_t struck;              /* of these, what Redis has refused, in magnitude */
    uint64_t plus_sum, minus_sum; /* running sums of the instance, this batch included */
    bool strayed;         /* it was sent again while nobody knew what had become of a copy: two stores may have it */
    bool was_short;       /* a run of it was cut short, and is counted as uncertain */
    bool is_step;         /* empty: it stands for numbers whose batches are lost */
    uint32_t copies_open; /* sendings whose outcome is not known */
    int64_t sent_ms;      /* the latest sending */
    int64_t frozen_ms;
};

/* What a batch is wrapped in. */
struct twi_envelope {
    bool eval; /* the script's text instead of its SHA-1 */
    const char *ledger_name, *marker_name, *marker;
    size_t ledger_size, marker_name_size;
    int64_t ledger_ttl_ms;
};

struct twi_freeze {
    bool look_always; /* ask for each key's expiry, whatever INCRBY answers: after a reconnect, and now and then */
    int64_t redis_offset_ms; /* Redis's clock minus ours: ends of from-first lives are told by Redis's */
    int64_t now_ms;
    uint32_t keys_max; /* 1..TWI_BATCH_ITEMS_MAX */
};

/* Sorts items so that those of one kind and expiry stand together: one group on the wire. */
void twi_batch_sort(struct twi_item *items, size_t count, bool look_always);
/* Freezes as many of the (sorted) items as one batch holds, at least one. NULL: no memory, nothing frozen. */
struct twi_batch *twi_batch_freeze(const struct twi_item *items, size_t count, const struct twi_freeze *how,
                                   size_t *taken);
/* The same for a merge without a script: nothing is encoded until it is sent. */
struct twi_batch *twi_batch_gather(const struct twi_item *items, size_t count, int64_t now_ms, size_t *taken);
/* A batch without items: refreshes the ledger, asks how it stands, or steps over numbers that are lost. */
struct twi_batch *twi_batch_empty(int64_t now_ms);
void twi_batch_encode(const struct twi_batch *batch, const struct twi_envelope *envelope, struct twi_bytes *out);
/* Makes Redis refuse that delta whenever the batch is sent again. Returns its magnitude; 0: there is none, or none
 * left. */
uint64_t twi_batch_strike(struct twi_batch *batch, uint32_t index);
/* The same, for a delta that goes back to its counter: the batch still knows how much it was. */
uint64_t twi_batch_set_aside(struct twi_batch *batch, uint32_t index);
/* Strikes out what was set aside. Returns its magnitude; 0: nothing was. */
uint64_t twi_batch_take_aside(struct twi_batch *batch, uint32_t index);
size_t twi_batch_bytes(const struct twi_batch *batch); /* memory held */
void twi_batch_items_drop(struct twi_batch *batch);    /* they were settled */
void twi_batch_free(struct twi_batch *batch);

#endif
