/* items.h -- the contract on counters: how sync/ collects items, how it settles them, and what their keys are called in
 * Redis.
 *
 * sync/ reaches counters only through the items that it collects here.
 * Threads: the owner of the turn calls everything here (one thread at a time, see core/state.h), except where noted.
 * Always true: a collected item is settled exactly once (acknowledged, returned or given up). From its collection until
 * then, its generation stays in memory. */
#ifndef TWI_PORT_ITEMS_H
#define TWI_PORT_ITEMS_H

#include "tallywheel.h"

struct twi_generation;
struct twi_cell;

enum {
    /* Redis has not yet acknowledged anything of this counter to this engine. The item must set the key's expiry. */
    TWI_ITEM_FIRST = 1,
    /* expiry_ms is the end of the key's life that this engine assumes; the engine adopts the end in the reply */
    TWI_ITEM_FROM_FIRST = 2,
    TWI_ITEM_OVERFLOW = 4,
    TWI_ITEM_GAUGE = 8, /* the item of a gauge (gauge.c), not for a batch. `units` is the whole count of this engine */
    /* A counter of distinct elements (distinct_merge.c), not for a batch. A delta of 0 means that Redis has all of its
     * registers. */
    TWI_ITEM_DISTINCT = 16,
    TWI_ITEM_ASKED = 32,  /* with DISTINCT, the program reads the key, so Redis's registers have to be merged back */
    TWI_ITEM_SEALED = 64, /* with DISTINCT, the window is over, and Redis's estimate is needed */
    TWI_ITEM_HASH = 128,  /* a field of a hash; twi_port_render() writes its name, and twi_port_inner() its field */
    TWI_ITEM_ZSET = 256,  /* a member of a sorted set, in the same way. Without both flags, the item is a string */
    /* One engine closes its window for all, and Redis may lack the name of its key (twi_port_window_names()) */
    TWI_ITEM_NAMED = 512
};

/* One counter's share of a batch. It is plain data and may be copied; its values do not change until it is settled. */
struct twi_item {
    tw_family *family;
    struct twi_generation *generation;
    struct twi_cell *cell;
    int64_t delta;     /* 0 means that only the total is requested */
    int64_t expiry_ms; /* when the key expires, in absolute Unix ms of Redis's clock; 0 means never */
    uint16_t flags;    /* TWI_ITEM_* */
    /* the place of its rendered name, for the code that freezes it; 0 means that the name has to be rendered */
    uint16_t named;
    uint32_t store; /* the store of its key (twi_port_assign()); 0 means the first store, or the only one */
    /* With TWI_ITEM_GAUGE, the whole count of this engine. Otherwise, the part of `delta` that an earlier store has and
     * this one lacks (restore_notes.h). */
    int64_t units;
};

/* the longest rendered name, with its prefix; tw_family_open() refuses templates that could exceed it */
#define TWI_REDIS_KEY_MAX 2048

/* Takes up to `count_max` counters with unsent counts or a requested total. Each counter's delta is frozen
 * into its item (`handed` advances). Closed windows come first; a quarter of the room is reserved for open ones.
 * Returns the number of items. Fewer than count_max means that a full collection is complete. */
size_t twi_port_collect(tw_engine *engine, struct twi_item *items, size_t count_max);
/* Collects counters near their limit, which should not wait for the interval (share.h). Returns at most
 * TWI_NEAR_LIMIT_MAX. */
#define TWI_NEAR_LIMIT_MAX 64u
size_t twi_port_collect_near_limit(tw_engine *engine, struct twi_item *items);
bool twi_port_is_near_limit(tw_engine *engine); /* true means that there may be such counters */
/* Called for the ticket of tw_flush(). Begins a full collection of every delta whose add returned before this call. An
 * adder may be between its add and its mark, so a grace period has to pass first (trap E10). The caller continues to
 * collect, turn by turn, until twi_port_collect_is_done() returns true. Then twi_port_collect() has returned all these
 * deltas in items. */
void twi_port_collect_begin(tw_engine *engine);
bool twi_port_collect_is_done(tw_engine *engine);
/* True if a counter has been marked since the last full collection. Cheap; may be true without a reason. */
bool twi_port_is_dirty(tw_engine *engine);
/* True means that unsent counts are collected now, not at the interval. The engine is closing, or some counts of a
 * sealed window or of gauges would come too late. */
bool twi_port_cannot_wait(tw_engine *engine);
/* Renders the Redis key of an item (prefix and template), not terminated. Returns its size, <= TWI_REDIS_KEY_MAX. */
size_t twi_port_render(const struct twi_item *item, char *out);
/* The part inside that key, which is a hash's field or a sorted set's member. It is empty for strings. */
tw_key twi_port_inner(const struct twi_item *item);
/* Both parts, for a line of the log. Bytes that are not printable become \xHH, and text for which there is no room is
 * left out. Terminated. */
void twi_port_title(const struct twi_item *item, char *out, size_t room);
/* Renders the name of an auxiliary key that belongs to that key. It inserts "tw:", `what` and ":" between the prefix
 * and the rest. `what` has at most 8 letters; `out` has room for TWI_OWN_NAME_MAX bytes. In a cluster both names lie in
 * one key slot. */
size_t twi_port_render_own(const struct twi_item *item, const char *what, char *out);
#define TWI_OWN_NAME_MAX (TWI_REDIS_KEY_MAX + 24)
/* For an item with TWI_ITEM_NAMED, writes the keys in Redis for the names of its window, for the family's list of
 * windows and for the window's state. With several stores it writes only the first one (engine/turn/closing_windows.h).
 * All items of one store and one generation have the same keys. */
#define TWI_WINDOW_NAMES_KEYS 3u
struct twi_window_names {
    uint32_t key_count;
    size_t sizes[TWI_WINDOW_NAMES_KEYS];
    char keys[TWI_WINDOW_NAMES_KEYS][TWI_OWN_NAME_MAX];
    /* the start of the window; the time from which engines that have not counted in it may look after it */
    int64_t start_ms, due_ms;
    bool recorded; /* Redis has acknowledged names of this window to this engine */
};
void twi_port_window_names(const struct twi_item *item, struct twi_window_names *names);
/* The user's key, and the window, for reports. */
tw_key twi_port_key(const struct twi_item *item);
int64_t twi_port_start_ms(const struct twi_item *item);

/* The reply of Redis for one item. */
struct twi_reply {
    int64_t total;  /* the key's value after the batch was applied */
    bool has_total; /* false means that the reply has no total, or it must not be used (during a replay) */
    /* in a family with TW_WINDOW_FROM_FIRST, when the key expires, by this engine's clock; 0 means that the reply
     * did not contain it */
    int64_t end_ms;
};
/* Redis has applied the item's delta. Sets acked += delta and base = total - acked. */
void twi_port_acknowledge(const struct twi_item *item, const struct twi_reply *answer);
/* Redis has certainly not applied it. The delta returns to its counter (handed -= delta). It is collected again, after
 * at least `after_ms` (0 means at the next collection). */
void twi_port_return(const struct twi_item *item, uint32_t after_ms);
/* Items whose store cannot take them for now. The caller keeps the list. A zeroed list is empty. */
struct twi_parked {
    struct twi_generation *generation;
    struct twi_cell *cell;
};
struct twi_parking {
    struct twi_parked *items;
    uint32_t count, room;
};
/* The item's delta returns to its counter, which is not collected again before it is unparked. For items that were just
 * collected; not for gauges. Returns false if there is no memory, and the item is as it was. */
bool twi_port_park(struct twi_parking *parking, const struct twi_item *item);
/* The store can take them again, so up to `count_max` counters are sent again. Returns true if some are still
 * deferred. */
bool twi_port_unpark(tw_engine *engine, struct twi_parking *parking, uint32_t count_max);
void twi_port_parking_free(struct twi_parking *parking); /* at the end of the engine */
/* The item will not be sent again. It is settled, counted, and reported to on_lost with TW_LOST_*. Its window is not
 * reported as complete. */
void twi_port_give_up(const struct twi_item *item, int reason);

/* ---- distinct counts (TWI_ITEM_DISTINCT) ---- */

/* The registers of the item's key, as Redis keeps them (hll_bytes.h). `bytes` has room for TWI_DISTINCT_BYTES_MAX.
 * Returns the size. */
#define TWI_DISTINCT_BYTES_MAX 12304u
size_t twi_port_distinct_bytes(const struct twi_item *item, unsigned char *bytes);
/* Redis's registers of that key, or its estimate; both are 0 if none was requested, or if there is none. */
struct twi_merged {
    const void *bytes;
    size_t size;
    int64_t estimate;
    /* an estimate was requested, and Redis cannot return it, so a closed window is not reported as complete */
    bool is_missing;
};
/* Redis has the item's registers. False means `bytes` are no registers, and the item is not settled. */
bool twi_port_distinct_merged(const struct twi_item *item, const struct twi_merged *merged);
/* That store may lack registers that it had. All its keys of distinct counts are sent again, after the walk that
 * twi_port_restore_some() makes. Merging twice does no harm. */
void twi_port_distinct_again(tw_engine *engine, uint32_t store);

/* ---- several stores, one for each key slot, if names have hash tags ---- */

/* The index of the store that is that slot. Slots get their indexes in the order in which they are met, from 0 on; an
 * engine whose sync never asks has one store, which is everything. UINT32_MAX means no memory. */
uint32_t twi_port_store(tw_engine *engine, uint32_t slot);
/* How many stores were met, and the slot of each. The engine itself meets those of its leases. */
uint32_t twi_port_stores(const tw_engine *engine);
uint32_t twi_port_store_slot(const tw_engine *engine, uint32_t store);
/* Sets item->store, before the item is put into a batch. It renders the key for that, as twi_port_render() does.
 * Returns false if there is no memory. To be called once twi_port_store() was called, and before that item can be
 * acknowledged. */
bool twi_port_assign(struct twi_item *item, char *name, size_t *size);

/* ---- a store that forgets, or comes back ---- */

/* That store lost acknowledged writes, so totals that fall are expected. */
void twi_port_forgotten(tw_engine *engine, uint32_t store);
/* That store has lost everything that it ever acknowledged to this engine. All counts of its live counters that it
 * had acknowledged become unsent again, exactly once, except those that were given up. Its items must not be in a
 * batch. Returns the units that no counter has any more, though their windows were live in Redis. Then the caller
 * calls twi_port_restore_some() in each turn until it returns false (the restoration is complete), and does not
 * collect before that. One walk serves all stores for which this was called before it ended; each call starts the
 * walk again. */
uint64_t twi_port_restore(tw_engine *engine, uint32_t index);
bool twi_port_restore_some(tw_engine *engine);
/* Called before twi_port_restore(), for an item of unknown outcome, which the store that was left may have. */
void twi_port_adrift(const struct twi_item *item);
/* The life of the item's key in Redis is over. The earlier store had its part for as long as it was in use, so that
 * part is not missing now. The part that the store may have is given up as uncertain. The item loses both parts, and
 * the remainder is settled separately. Returns true if a part was given up. */
bool twi_port_end_item(struct twi_item *item);
/* A store that was left is back. It has the counts that were still to be sent again because of its loss, so they are
 * not sent again. All items in flight are settled earlier. An item of unknown outcome loses the part that the earlier
 * store has (twi_port_keep_item), and the item is given up. twi_port_keep() returns true if a restoration has begun
 * since that store was left. *uncertain becomes the number of units that the store may lack, because they were
 * acknowledged after that. */
void twi_port_keep_item(struct twi_item *item);
bool twi_port_keep(tw_engine *engine, uint32_t store, uint64_t *uncertain);

#endif
