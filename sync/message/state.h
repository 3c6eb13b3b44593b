/* state.h -- the state of one engine's sync: the scheduler, with its connections and its stores.
 *
 * Two headers define the state: connection.h (one server), and this one. Below are first the messages besides the
 * batches, then a store (one ledger and its marker), then the collection and its times. They define types. A
 * function receives the part that it uses, or struct twi_sync and the store that it works on.
 * One Redis is one connection and one store. A Redis Cluster has a connection for each master in use, and a store for
 * each key slot in use.
 * Always true: only the owner of the turn uses the state, one thread at a time. Any thread may use `published`, and
 * take tickets. */
#ifndef TWI_SYNC_MESSAGE_STATE_H
#define TWI_SYNC_MESSAGE_STATE_H

#include "engine/port/messages.h"
#include "sync/message/connection.h"
#include "sync/batch/ledger.h"
#include "engine/port/items.h"
#include "sync/wire/cluster_nodes.h"
#include "engine/base/key_slot.h"
#include "sync/wire/pace.h"
#include "sync/batch/reply.h"

/* ---- senders ----
 * the messages that each sender has under way (message.h). The senders are leases, gauges and holds,
 * distinct counts, the heartbeat of the registry, and the close election. An engine has one of each.
 *
 * Always true: a message that is under way here is in the connection's queue (connection.h). */

struct twi_store;

/* A message about leases that is not answered yet. */
struct twi_lease_pending {
    struct twi_lease_message message;
    bool is_under_way;
    struct twi_lease_answer answer;        /* the reply of a message that waits for the replicas */
    char id[33], run[41], incarnation[33]; /* its texts */
};
/* A connection has at most TWI_LEASES_MAX under way. With several connections more blocks are made, which do not
 * move. */
struct twi_lease_block {
    struct twi_lease_pending sent[TWI_LEASES_MAX];
    struct twi_lease_block *next;
};
struct twi_lease_sender {
    struct twi_lease_block first;
    uint32_t turns; /* the store that sends first, modulo the number of stores */
};

/* Collected items that wait for a message (message.h). */
struct twi_waiting {
    struct twi_item *items; /* a queue: from `at` to `end` */
    uint32_t at, end, room;
    bool is_held;             /* the stores of all waiting items accept no message now */
    uint64_t taken, answered; /* the number of answered items since the start */
    uint64_t until;           /* a flush waits until `until - 1` items are answered; 0 if no flush waits */
};

/* A statement on gauges or holds, or a sweep of reservations. */
struct twi_statement {
    enum { TWI_STATEMENT_GAUGES, TWI_STATEMENT_HOLDS, TWI_STATEMENT_SWEEP, TWI_STATEMENTS } what;
    bool is_under_way;
    struct twi_item *items; /* GAUGES */
    uint32_t count;
    uint64_t serial; /* for a SWEEP, the engine's number for it; for HOLDS, its number among the statements on holds */
};
struct twi_presence {
    struct twi_waiting waiting; /* gauges */
    struct twi_statement statements[TWI_PRESENCE_MAX];
    uint32_t count;  /* statements under way */
    uint64_t number; /* of the last statement on gauges */
    /* The engine learns of the statements on holds in the order in which they were made. Replies may come in another
     * order: if Redis does not know the script, the statement is sent again, behind others. */
    uint64_t holds_sent, holds_answered;
    uint32_t holds_done; /* bit i is set if statement holds_answered + 1 + i was answered */
};

/* A message under way that merges counters of distinct elements. */
struct twi_distinct_sent {
    struct twi_store *store;
    struct twi_item *items;
    uint32_t count;
    bool is_under_way;
};
#define TWI_DISTINCT_SENT_MAX 8u /* the number on all connections together */
struct twi_distinct_sender {
    struct twi_waiting waiting;
    struct twi_distinct_sent sent[TWI_DISTINCT_SENT_MAX];
    uint32_t count;                         /* messages under way */
    bool has_suspects;                      /* some stores may lack writes that they acknowledged (state.h) */
    int64_t again_ms;                       /* their keys are not sent again before this time, except for a flush */
    bool is_refusal_logged, is_late_logged; /* a line about a refused message, or about windows that are over, is out */
};

/* The place of this engine in the registry of live engines. */
struct twi_registry {
    int64_t at_ms;             /* the next heartbeat */
    int64_t pause_ms;          /* the time from that heartbeat to the next one */
    uint32_t reported, before; /* the number of live engines, as last reported, and before this connection */
    int64_t before_until_ms;   /* until then a number smaller than `before` is not used */
    bool has_left;             /* the engine closes, and has announced it */
    bool awaiting, is_logged;  /* a reply is awaited; a refusal was logged */
};

/* Messages about windows that one engine closes for all, under way as one. */
struct twi_closing_sent {
    bool busy;
    uint32_t count;
    struct twi_closing_message messages[TWI_CLOSING_MESSAGES_MAX]; /* without their names */
};
struct twi_closing_sender {
    struct twi_closing_sent *sent[TWI_CLOSING_SENT_MAX]; /* NULL if not needed yet */
    uint64_t number;                                     /* of the last message */
    uint32_t suspects;                                   /* how many stores are suspected (see closing.h) */
    int64_t suspects_ms;                                 /* when that number last rose */
    bool is_logged;
};

struct twi_senders {
    struct twi_lease_sender leases;
    struct twi_presence presence;
    struct twi_distinct_sender distinct;
    struct twi_registry registry;
    struct twi_closing_sender closing;
};

/* ---- store ----
 * one store of Redis. It has one ledger, one marker, and all state that depends on whether Redis still has
 * this engine's ledger there.
 *
 * One Redis is one store. If keys have hash tags, a store is the data of one key slot. A store exists longer than the
 * connections to it. After a reconnect it may turn out to be another store, or to have lost acknowledged writes
 * (instance.c).
 * Only the owner of the turn uses it. Always true: each collected item is in exactly one batch of the list of one
 * store's ledger, or was settled; a gauge's item is with its sender instead (state.h). In flight are an opening, or
 * batches of the list in the order of their numbers. */

#define TWI_FORMERS 4u      /* a store that returns after more ledgers than this is recognised by its marker only */
#define TWI_STORES_KNOWN 8u /* a store that returns after more stores than this counts as new */

/* The markers of the stores in which this engine has counted, as a ring. An empty place is "". */
struct twi_known_stores {
    char markers[TWI_STORES_KNOWN][40];
    uint32_t next;
};

/* The ledgers that this engine had before its current one, as a ring. */
struct twi_former_ledgers {
    char names[TWI_FORMERS][TWI_LEDGER_NAME_MAX];
    uint32_t next;
    bool has_any; /* Redis may still have counts of an instance that was given up */
};

/* The check that the store still has all acknowledged counts, before windows are closed (closing.c). */
struct twi_store_look {
    bool is_under_way;  /* until the ledger is written again */
    int64_t written_ms; /* the value of written_ms when the look began; another value ends it */
    uint64_t serial;    /* the number of the connection that the last look used */
};

/* The state of distinct counts in the store (distinct.h). */
struct twi_store_merged {
    bool is_there;    /* it has answered a merge ... */
    char history[41]; /* ... over a connection to the server with this master_replid; "" if unknown */
    bool is_suspect;  /* it may lack acknowledged registers, so its keys are to be sent again */
};

/* The assumed state of this engine in the store. */
struct twi_store_assumed {
    bool is_open;             /* it has the ledger of this instance */
    bool is_restoring;        /* it lost acknowledged writes, and batches are sent to it again */
    bool lacks_marker;        /* a key of another type has the marker's name */
    bool has_left;            /* the last batch of this engine was sent to it (sync/turn) */
    uint32_t life;            /* sync->lives when this instance began */
    bool is_joined;           /* its marker came from another state, and may be younger than our counts there */
    char history[41];         /* master_replid of the server that last had the ledger; "" if unknown */
    int64_t unknown_since_ms; /* since when the store has no record of this engine; 0 if it has one */
    int64_t written_ms;       /* when the ledger was last written */
    int64_t entered_ms;       /* when the marker's entry of this engine was last written, by the store's clock ... */
    int64_t entered_redis_ms; /* ... and by Redis's clock */
    struct twi_store_look look;
    struct twi_store_merged merged;
};

struct twi_connection;

/* How requests of a store reach it. With one Redis all but `serial` and `via` stays zero. */
struct twi_route {
    int64_t unserved_ms;           /* since when no node serves its slot; 0 if one does, or if that is unknown */
    uint64_t serial;               /* rises with each connection that the store comes to */
    struct twi_connection *via;    /* the connection where its batches are under way; valid if `awaited` is not 0 */
    struct twi_connection *asking; /* the node that ASK named, for the next batch, behind ASKING; NULL without one */
    struct twi_detour detour;      /* redirects, and how long they make it wait */
    bool is_waiting;               /* this turn sends no request for it */
    uint32_t messages;             /* messages to this store that are under way */
};

/* For a store of a cluster without a record of this engine: whether other masters still have keys of its slot
 * (turn/split.h). */
struct twi_split {
    enum { TWI_SPLIT_UNKNOWN, TWI_SPLIT_ASKING, TWI_SPLIT_FOUND, TWI_SPLIT_RULED_OUT } state;
    uint64_t owner;               /* in ASKING and RULED OUT, the owner of the slot when the questions began */
    int64_t ruled_ms;             /* since when the state is RULED OUT */
    uint64_t node;                /* in ASKING, the last master that got the question; 0 before the first one */
    struct twi_connection *asked; /* the connection whose reply is awaited; NULL if no reply is awaited */
    /* The master that ASK named last. Part of the slot may be there. NULL if ASK has named no master. */
    struct twi_connection *target;
    int64_t target_away_ms; /* since when it does not answer; 0 if it answers, or was not asked */
    bool has_asked_target;  /* in ASKING, it got the question, too */
    bool is_logged;
    bool is_found;    /* the state is FOUND, or ASKING again since then; tw_stats counts the store until this ends */
    int64_t again_ms; /* in FOUND, when the masters get the question again */
};

/* Whether the store has something to do (active.h). */
struct twi_store_place {
    uint32_t at;                      /* in active.stores, plus 1; 0 if it is idle, or waits for a place */
    struct twi_store *before, *after; /* its neighbours in the list of idle stores, or of those that wait */
    bool is_waiting;                  /* for a place */
    bool is_bounded;                  /* its tag is a user's, so it needs a place before it may become active */
};

struct twi_freeze;
struct twi_merge_plain;
struct twi_sync;

/* How counts are merged, by tw_options.merge (turn/merge_plain.c). */
struct twi_merge {
    /* Redis keeps a ledger, and there are messages. Returns false if one batch is under way at a time, and TIME is
     * sent. */
    bool has_script;
    bool is_multi; /* without a script; a batch is a transaction */
    /* Makes a batch of the first items. NULL if there is no memory. */
    struct twi_batch *(*freeze)(const struct twi_item *items, size_t count, const struct twi_freeze *how,
                                size_t *taken);
    void (*send)(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch, int64_t now_ms);
    void (*dropped)(struct twi_sync *sync); /* called when the requests under way get no reply */
};

struct twi_store {
    /* set before sharing */
    tw_engine *engine;
    uint32_t slot;  /* its key slot, if there are several stores */
    uint32_t index; /* in sync->stores, and for the engine (twi_port_store()) */
    const struct twi_merge *merge;
    char tag[16]; /* the tag "{14}" in the names of its keys; "" if there is one store */
    char marker_name[TWI_LEDGER_NAME_MAX];
    size_t marker_name_size;

    struct twi_connection *connection; /* the connection to the server that has it; NULL if that is unknown */
    struct twi_route route;
    struct twi_split split;
    struct twi_ledger ledger;      /* with the batches in the replay buffer, and the unsettled batches */
    uint32_t awaited;              /* replies that are due to its requests on the connection */
    uint64_t sent_number;          /* in flight: confirmed + 1 .. sent_number */
    uint64_t wrote_number;         /* the last batch that this connection has written; 0 before the first one */
    bool rewind;                   /* a reply was not "applied": await its others, then send again from confirmed + 1 */
    struct twi_batch *opening;     /* number 0 of a new instance, in flight */
    struct twi_identity candidate; /* the identity of that instance */
    struct twi_ticket_share flush; /* the batches of this store for which a flush waits */
    struct twi_former_ledgers formers;
    struct twi_known_stores known;
    struct twi_store_assumed assumed;
    struct twi_store_place place;
    struct twi_rejected rejected;        /* its keys that Redis rejects */
    struct twi_parking parking;          /* counters that wait until it accepts batches */
    struct twi_merge_plain *merge_plain; /* NULL if merge->has_script */
};

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
    struct twi_estate *estate; /* state.h; NULL: the engine is not shared */
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
    bool leaves;                 /* the engine closes, and all that it counted is acknowledged (sync/turn) */
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

/* ---- estate ----
 * what the sync of a shared engine leaves to the sync of the process that makes the turns next: the
 * instance, its last number, and the batches in flight (batch/reply.h). Both processes have this memory together.
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
