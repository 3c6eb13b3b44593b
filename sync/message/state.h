/* state.h -- the state of one engine's sync: the scheduler, with its connections and its stores.
 *
 * Four headers define the state: connection.h (one server), store.h (one ledger and its marker), senders.h (messages
 * besides the batches) and this one (the collection and its times). They define types. A function receives the part
 * that it uses, or struct twi_sync and the store that it works on.
 * One Redis is one connection and one store. A Redis Cluster has a connection for each master in use, and a store for
 * each key slot in use.
 * Always true: only the owner of the turn uses the state, one thread at a time. Any thread may use `published`, and
 * take tickets. */
#ifndef TWI_SYNC_MESSAGE_STATE_H
#define TWI_SYNC_MESSAGE_STATE_H

#include "engine/base/key_slot.h"
#include "sync/batch/ticket.h"
#include "sync/message/connection.h"
#include "sync/message/senders.h"
#include "sync/message/store.h"
#include "sync/wire/pace.h"

struct twi_cluster;
struct twi_dispatcher;
struct twi_estate;
struct twi_sync;

/* The way of unsent counts from counters to frozen batches (turn/collect.c). */
struct twi_collecting {
    struct twi_item *items;   /* the items in the order of collection */
    size_t items_max;         /* the most of one collection */
    int64_t at_ms;            /* when the next collection may begin */
    int64_t near_limit_at_ms; /* counters near their limit are not collected before this time */
    int64_t hold_ms;          /* no collection begins before this time, not even for a flush (no memory, or the pace) */
    int64_t look_until_ms;    /* until this time the expiry of every key is requested */
    bool is_under_way;        /* a collection has begun, and has not yet collected all counters */
    bool begin_again;         /* the round of a tw_flush() starts over */
};

/* Used only if keys have hash tags. There is a store for each key slot in use (turn/stores.h). */
struct twi_by_slot {
    /* Returns the store of that slot, and makes it if it is missing (turn/stores.h). NULL if there is no memory. */
    struct twi_store *(*store_of)(struct twi_sync *sync, uint32_t slot);
    struct twi_item *sorted;        /* TWI_STORES_ITEMS_MAX means collected items, by store */
    struct twi_batch_names names;   /* their items, if there is room */
    uint32_t room;                  /* of sync->stores */
    uint32_t version;               /* of the map, when stores were looked at last */
    uint32_t starts[TWI_KEY_SLOTS]; /* during sorting, the index of the first item of each store */
};

struct twi_store_list {
    struct twi_store *first, *last;
    uint32_t count;
};

/* Which stores have something to do (active.h). */
struct twi_active {
    struct twi_store **stores; /* the active stores, in no order; there is room for all */
    uint32_t count;
    struct twi_store_list idle;    /* in the order in which their ledgers were written */
    struct twi_store_list waiting; /* the stores that wait for a place, in the order in which they came */
    uint32_t places, taken;        /* by stores of users' own tags that are active, and have something to send */
    int64_t waiting_since_ms;      /* since when at least one store waits in each turn; 0 if none waits */
    int64_t logged_ms;             /* when the waiting was logged; 0 if not yet */
};

/* The values that other threads may read. */
struct twi_published {
    _Atomic int64_t wake_ms;
    _Atomic uint32_t breaker_state;  /* at the end of the last turn */
    _Atomic int64_t outage_since_ms; /* monotonic time when the whole outage began; 0 if Redis replies */
    _Atomic uint32_t nodes, stores, stores_away, stores_split, stores_waiting; /* for tw_stats */
    _Atomic int64_t acked_ms; /* monotonic time of the last acknowledgement; 0 before the first one */
};

/* Of a shared engine. */
struct twi_sharing {
    struct twi_estate *estate; /* estate.h; NULL: the engine is not shared */
    struct twi_replay_ring ring;
    size_t replay_bytes;
    uint64_t last_ticket; /* of the flush with which it hands over; 0 before that */
};

struct twi_sync {
    /* set before sharing */
    tw_engine *engine;
    struct twi_dispatcher *dispatcher; /* of calls that wait; NULL in a simulator with one connection, without calls */
    struct twi_where where;            /* how Redis is reached */
    uint32_t interval_ms;
    bool own_thread; /* turns come every tick, whatever wake_ms is */

    /* The first one is made with the engine; with one Redis it is the only one. */
    struct twi_connection **connections;
    uint32_t connection_count;
    /* The first one is made with the engine, and exists even if no key lies in it, because probes and messages need a
     * store. No store is freed, or moves in memory, before the engine ends. */
    struct twi_store **stores;
    uint32_t store_count;
    struct twi_active active;
    struct twi_cluster *cluster; /* NULL for one Redis (cluster.h) */
    struct twi_by_slot *by_slot; /* NULL if there is one store */
    uint64_t serials;            /* the last serial that a store got */
    uint32_t lives;              /* how often this process was found to live twice */
    bool leaves;                 /* the engine closes, and all that it counted is acknowledged (leave.h) */
    uint32_t send_first;         /* the store that sends first in the next turn, modulo the active ones */
    size_t replay_bytes;         /* the bytes of the replay buffers of all stores */
    struct twi_senders senders;

    int64_t turned_ms; /* when the latest turn began */
    struct twi_collecting collecting;
    struct twi_pace pace;
    struct twi_tickets tickets;
    uint64_t nudged; /* the last ticket that has ended a back-off early */
    struct twi_published published;
    struct twi_sharing sharing;
};

/* Drops batches of the replay windows: first the batches of this store that are too old; then, while the batches of all
 * stores are more than their common budget (replay_bytes_max of each ledger), those that were frozen first. */
void twi_sync_trim(struct twi_sync *sync, struct twi_store *store, int64_t now_ms);
/* The store of the key with that name. NULL means no memory. */
struct twi_store *twi_sync_store_of(struct twi_sync *sync, const char *name, size_t size);
uint64_t twi_sync_random(tw_engine *engine);
void twi_sync_fill_random(void *engine, void *out, size_t size);

#endif
