/* items.h -- the contract on counters: how sync/ collects and settles items, and the names of their keys in Redis.
 *
 * sync/ reaches counters only through the items that it collects here.
 * Threads: only the owner of the turn calls these functions (one thread at a time, see core/state.h), except where a
 * comment names others.
 * Always true: a collected item is settled exactly once: it is acknowledged, returned or given up. Between its
 * collection and its settling, its generation stays in memory. */
#ifndef TWI_PORT_ITEMS_H
#define TWI_PORT_ITEMS_H

#include "tallywheel.h"

struct twi_generation;
struct twi_cell;

enum {
    /* Redis has acknowledged no units of this counter to this engine. The item must set the expiry of the key. */
    TWI_ITEM_FIRST = 1,
    /* expiry_ms is the end that this engine assumes; the engine adopts the end that the reply has */
    TWI_ITEM_FROM_FIRST = 2,
    TWI_ITEM_OVERFLOW = 4,
    TWI_ITEM_GAUGE = 8, /* the item of a gauge (gauge.c), not for a batch; `units` is the whole count of this engine */
    /* A counter of distinct elements (distinct_merge.c). Its counts are in no batch. A delta of 0 means that Redis has
     * all registers of the counter. */
    TWI_ITEM_DISTINCT = 16,
    TWI_ITEM_ASKED = 32,  /* with DISTINCT: the program reads the key, so the registers of Redis must be merged back */
    TWI_ITEM_SEALED = 64, /* with DISTINCT: the window has ended, and Redis's estimate is needed */
    TWI_ITEM_HASH = 128,  /* a field of a hash: twi_port_render() writes the hash, twi_port_inner() the field */
    TWI_ITEM_ZSET = 256,  /* a member of a sorted set, in the same way. Without both flags the item is a string */
    /* One engine closes its window for all, and Redis may lack the name of its key (twi_port_window_names()) */
    TWI_ITEM_NAMED = 512
};

/* The part of a batch that belongs to one counter. It may be copied, and does not change before it is settled. */
struct twi_item {
    tw_family *family;
    struct twi_generation *generation;
    struct twi_cell *cell;
    int64_t delta;     /* 0 means that only the total is requested */
    int64_t expiry_ms; /* when the key expires, in Unix ms of Redis's clock; 0 means never */
    uint16_t flags;    /* TWI_ITEM_* */
    /* where its rendered name is, for the code that freezes it; 0 means that the name must be rendered */
    uint16_t named;
    uint32_t store; /* the store of its key (twi_port_assign()); 0 means the first or only store */
    /* For TWI_ITEM_GAUGE, the whole count of this engine. For other items, the part of `delta` that an earlier store
     * has and this store lacks (restore_notes.h). */
    int64_t units;
};

/* the longest rendered name, with its prefix; tw_family_open() refuses templates whose names could be longer */
#define TWI_REDIS_KEY_MAX 2048

/* Takes up to `count_max` counters that have unsent counts or a requested total. The delta of each counter is frozen
 * into its item (`handed` rises). Closed windows come first; a quarter of the room is reserved for open ones.
 * Returns the number of items. A smaller number than count_max means that a full collection is complete. */
size_t twi_port_collect(tw_engine *engine, struct twi_item *items, size_t count_max);
/* Collects counters that are near their limit, which should not wait for the interval (share.h). Returns the number
 * of items, at most TWI_NEAR_LIMIT_MAX. */
#define TWI_NEAR_LIMIT_MAX 64u
size_t twi_port_collect_near_limit(tw_engine *engine, struct twi_item *items);
bool twi_port_is_near_limit(tw_engine *engine); /* returns true if there may be such counters */
/* Called for the ticket of a tw_flush(). Begins a full collection of every delta whose add returned before this
 * call. An adder may be between its add and its mark, so a grace period must end first (trap E10). The caller
 * continues to collect in each turn, until twi_port_collect_is_done() returns true. Then twi_port_collect() has
 * returned all these deltas in items. */
void twi_port_collect_begin(tw_engine *engine);
bool twi_port_collect_is_done(tw_engine *engine);
/* Returns true if a counter was marked since the last full collection. Cheap; may return true without a reason. */
bool twi_port_is_dirty(tw_engine *engine);
/* Returns true if unsent counts must be collected now, and not only at the interval. Then the engine is closing, or
 * counts of a sealed window or of gauges would come too late. */
bool twi_port_cannot_wait(tw_engine *engine);
/* Writes the Redis key of an item (prefix and template), not terminated. Returns its size, <= TWI_REDIS_KEY_MAX. */
size_t twi_port_render(const struct twi_item *item, char *out);
/* Returns the part inside that key: the field of a hash or the member of a sorted set. It is empty for a string. */
tw_key twi_port_inner(const struct twi_item *item);
/* Writes both parts for a line of the log. Bytes that are not printable become \xHH. Text that is too long is cut.
 * Terminated. */
void twi_port_title(const struct twi_item *item, char *out, size_t room);
/* Writes the name of an auxiliary key that belongs to that key. It inserts "tw:", `what` and ":" between the prefix
 * and the rest. `what` has at most 8 letters. `out` has room for TWI_OWN_NAME_MAX bytes. In a cluster both names are
 * in one key slot. */
size_t twi_port_render_own(const struct twi_item *item, const char *what, char *out);
#define TWI_OWN_NAME_MAX (TWI_REDIS_KEY_MAX + 24)
/* For an item with TWI_ITEM_NAMED, writes three keys in Redis: for the names of its window, for the family's list of
 * windows, and for the state of the window. With several stores it writes only the first one
 * (engine/turn/closing_election.h). All items of one store and one generation have the same keys. */
#define TWI_WINDOW_NAMES_KEYS 3u
struct twi_window_names {
    uint32_t key_count;
    size_t sizes[TWI_WINDOW_NAMES_KEYS];
    char keys[TWI_WINDOW_NAMES_KEYS][TWI_OWN_NAME_MAX];
    /* the start of the window, and the time from which engines that have not counted in it may adopt it */
    int64_t start_ms, due_ms;
    bool recorded; /* Redis has acknowledged names of this window to this engine */
};
void twi_port_window_names(const struct twi_item *item, struct twi_window_names *names);
/* Return the key of the user, and the window, for reports. */
tw_key twi_port_key(const struct twi_item *item);
int64_t twi_port_start_ms(const struct twi_item *item);

/* The reply of Redis for one item. */
struct twi_reply {
    int64_t total;  /* the key's value after the batch was applied */
    bool has_total; /* false means that the reply has no total, or that the total must not be used (during a replay) */
    /* in a family with TW_WINDOW_FROM_FIRST: when the key expires, by the clock of this engine; 0 means that the
     * reply did not contain it */
    int64_t end_ms;
};
/* Called if Redis has applied the delta of the item. It adds the delta to `acked`, and sets base = total - acked. */
void twi_port_acknowledge(const struct twi_item *item, const struct twi_reply *answer);
/* Called if Redis has certainly not applied the delta. The delta returns to its counter (`handed` falls by it). It
 * is collected again, after at least `after_ms` (0 means at the next collection). */
void twi_port_return(const struct twi_item *item, uint32_t after_ms);
/* Items that their store cannot accept for now. The caller keeps the list. A zeroed list is empty. */
struct twi_parked {
    struct twi_generation *generation;
    struct twi_cell *cell;
};
struct twi_parking {
    struct twi_parked *items;
    uint32_t count, room;
};
/* Returns the delta of the item to its counter. The counter is not collected again before it is unparked. Only for
 * items that were just collected, and not for gauges. Returns false if there is no memory, and changes nothing. */
bool twi_port_park(struct twi_parking *parking, const struct twi_item *item);
/* Called when the store can accept them again. Up to `count_max` counters are then sent again. Returns true if some
 * are still deferred. */
bool twi_port_unpark(tw_engine *engine, struct twi_parking *parking, uint32_t count_max);
void twi_port_parking_free(struct twi_parking *parking); /* called at the end of the engine */
/* Called for an item that will not be sent again. The item is settled, counted, and reported to on_lost with a
 * TW_LOST_ reason. Its window is not reported as complete. */
void twi_port_give_up(const struct twi_item *item, int reason);

/* ---- another process continues with the items in flight (recover.c) ---- */

/* The units of the item's counter that are settled. */
int64_t twi_port_acked(const struct twi_item *item);
/* The item was being settled, and is not settled: that number is `acked`. */
void twi_port_undo_acked(const struct twi_item *item, int64_t acked);
/* From now on no item is in flight. What every counter has beyond the settled units is unsent, until
 * twi_port_inherit() says that a part of it is in flight. twi_port_inherit_end() marks the counters with unsent
 * units. Between these calls nothing is collected. */
void twi_port_inherit_begin(tw_engine *engine);
void twi_port_inherit(const struct twi_item *item);
void twi_port_inherit_end(tw_engine *engine);

/* ---- distinct counts (TWI_ITEM_DISTINCT) ---- */

/* Writes the registers of the item's key, in the form of Redis (hll.h). `bytes` has room for
 * TWI_DISTINCT_BYTES_MAX bytes. Returns the size. */
#define TWI_DISTINCT_BYTES_MAX 12304u
size_t twi_port_distinct_bytes(const struct twi_item *item, unsigned char *bytes);
/* The registers of that key in Redis, or its estimate. Both are 0 if none was requested, or if Redis has none. */
struct twi_merged {
    const void *bytes;
    size_t size;
    int64_t estimate;
    /* an estimate was requested, and Redis cannot return it, so the closed window is not reported as complete */
    bool is_missing;
};
/* Called when Redis has the registers of the item. Returns false if `bytes` are no registers, and settles nothing. */
bool twi_port_distinct_merged(const struct twi_item *item, const struct twi_merged *merged);
/* Called if that store may lack registers that it had before. All its keys of distinct counts are sent again, after
 * the walk by twi_port_restore_some(). It does no harm to merge registers twice. */
void twi_port_distinct_again(tw_engine *engine, uint32_t store);

/* ---- several stores: one for each key slot, if names have hash tags ---- */

/* Returns the index of the store of that slot. Slots get their indexes in the order in which they are used first,
 * beginning with 0. Without calls there is one store. Returns UINT32_MAX if there is no memory. */
uint32_t twi_port_store(tw_engine *engine, uint32_t slot);
/* Return how many stores are known, and the slot of each. The engine itself adds the stores of its leases. */
uint32_t twi_port_stores(const tw_engine *engine);
uint32_t twi_port_store_slot(const tw_engine *engine, uint32_t store);
/* Sets item->store. Called before the item is put into a batch. It renders the key for this, in the same way as
 * twi_port_render(). Returns false if there is no memory. Call it after twi_port_store() was called, and before that
 * item can be acknowledged. */
bool twi_port_assign(struct twi_item *item, char *name, size_t *size);

/* ---- a store that has forgotten data, or has come back ---- */

/* Called if that store lost acknowledged writes, so that falling totals are expected. */
void twi_port_forgotten(tw_engine *engine, uint32_t store);
/* Called if that store has lost everything that it ever acknowledged to this engine. All counts of its live counters
 * that it had acknowledged become unsent again, exactly once. The exception are counts that were given up. No batch
 * may contain its items. Returns the number of units that no counter has any more, although their windows still
 * existed in Redis. Then the caller calls twi_port_restore_some() in each turn until it returns false (the
 * restoration is complete). Before that it does not collect. One walk serves all stores for which this was called
 * before the walk ended. Each call starts the walk again. */
uint64_t twi_port_restore(tw_engine *engine, uint32_t index);
/* What twi_port_restore() would count twice if it is called again for the same loss, because the process that called it
 * has ended: its values before, which _undo() gives back. */
struct twi_restore_before {
    uint32_t begun;
    uint64_t to_resend, away, lacked;
};
struct twi_restore_before twi_port_restore_before(const tw_engine *engine, uint32_t index);
void twi_port_restore_undo(tw_engine *engine, uint32_t index, const struct twi_restore_before *before);
bool twi_port_restore_some(tw_engine *engine);
/* Called before twi_port_restore() for an item of unknown outcome, which the store that the engine left may have. */
void twi_port_adrift(const struct twi_item *item);
/* Called when the lifetime of the item's key in Redis has ended. The earlier store had its part for as long as the part
 * was in use, so this part is not missing now. The part that the store may have is given up as uncertain. The item
 * loses both parts, and the rest is settled separately. Returns true if a part was given up. */
bool twi_port_end_item(struct twi_item *item);
/* Called when a store that the engine had left is back. The store has the counts that were still to be sent again,
 * so they are not sent again. All items in flight were settled before. An item of unknown outcome loses the part
 * that the earlier store has (twi_port_keep_item), and the item is given up. twi_port_keep() returns true if a
 * restoration has begun since that store was left. *uncertain becomes the number of units that the store may lack,
 * because they were acknowledged after that. */
void twi_port_keep_item(struct twi_item *item);
bool twi_port_keep(tw_engine *engine, uint32_t store, uint64_t *uncertain);

/* ---- rejected ----
 * the book of counters whose keys Redis rejects (wrong type, overflow, no number). All others are sent.
 *
 *   rejected ─▶ returned with a wait ─▶ the wait is over: to be sent again ─▶ acknowledged, or rejected again
 * There are two kinds of such books. The book of the engine (collector.rejected) has the counters that wait, and the
 * end of each wait. During the wait the collector skips the counter and leaves its DIRTY set, so that adders do not
 * mark it again. So a rejected key costs one attempt for each wait, however often threads count it. Each store of sync/
 * has a book of the counters that are rejected, with the length of the next wait. The wait doubles with each rejected
 * try. A request that was under way when the key was rejected does not count as a new try.
 * Always true: a book contains a counter at most once. Only the owner of the turn uses a book. If there is no room
 * for a counter, it is sent again at the next interval and not counted as new. No count is lost. */

#define TWI_REJECTED_MAX 65536u /* some 4 MiB; rejected keys are rare, but a faulty program may produce many */
#define TWI_REJECTED_WAIT_MIN_MS 1000
#define TWI_REJECTED_WAIT_MAX_MS 60000

struct twi_rejected_key {
    struct twi_generation *generation;
    struct twi_cell *cell;
    int64_t due_ms;   /* the monotonic end of the wait; a rejection before it does not count as a new try */
    int64_t until_ms; /* for sync: the entry is dropped after this time */
    uint64_t number;  /* for sync: batches up to this number were frozen before the last rejection */
    uint32_t wait_ms; /* for sync: the length of the last wait */
    uint32_t next;    /* index + 1 of the next entry of its bucket */
    bool has_delta;   /* for the engine: the item had a delta */
};

/* A zeroed struct is an empty book. */
struct twi_rejected {
    struct twi_rejected_key *keys;
    uint32_t *buckets; /* words with index + 1 of the first entry of each bucket; 0: empty */
    /* bucket_count is a power of two. It is equal to room, unless memory was short */
    uint32_t count, room, bucket_count;
    int64_t due_ms; /* for the engine: if count is not 0, no wait ends before this time */
};

void twi_rejected_clear(struct twi_rejected *rejected);
void twi_rejected_free(struct twi_rejected *rejected);
/* Checks that each entry is in the chain of its bucket, and in no other chain. For checks. */
bool twi_rejected_is_valid(const struct twi_rejected *rejected);

/* ---- for the engine: counters that wait ---- */

enum twi_waiting_since {
    TWI_WAITS_FROM_NOW,
    TWI_WAITS_ALREADY, /* it was already waiting; the later time is used */
    TWI_WAITS_NOT      /* there is no room, or no memory */
};
enum twi_waiting_since twi_rejected_wait(struct twi_rejected *rejected, const struct twi_item *item, int64_t due_ms);
bool twi_rejected_waits(const struct twi_rejected *rejected, const struct twi_generation *generation,
                        const struct twi_cell *cell);
/* Takes one entry whose wait has ended. Begin with *at = 0. Returns false if there are no more such entries. Then
 * due_ms is computed again. */
bool twi_rejected_take(struct twi_rejected *rejected, int64_t now_ms, uint32_t *at, struct twi_rejected_key *key);
void twi_rejected_end_waits(struct twi_rejected *rejected, int64_t now_ms); /* every wait ends now */

/* ---- for a store: counters that are rejected ---- */

/* Called when a counter was rejected. `last` was the last batch that was frozen. Returns how long the counter must
 * wait. `*first` becomes true if it was not rejected earlier. */
uint32_t twi_rejected_again(struct twi_rejected *rejected, const struct twi_item *item, uint64_t last, int64_t now_ms,
                            bool *first);
/* Called when a counter was settled as a part of batch `number`. Returns true if the counter has an entry. The entry
 * stays if that batch was frozen before its latest rejection. */
bool twi_rejected_settled(struct twi_rejected *rejected, const struct twi_item *item, uint64_t number);
void twi_rejected_renumber(struct twi_rejected *rejected, uint64_t last); /* batches got new numbers, up to `last` */
/* Returns how many counters are rejected now. Drops entries that were not rejected again for three times their wait.
 * The windows of such entries were dropped, or their units were given up. */
uint32_t twi_rejected_count(struct twi_rejected *rejected, int64_t now_ms);

#endif
