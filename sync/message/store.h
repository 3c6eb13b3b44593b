/* store.h -- one store of Redis. It has one ledger, one marker, and all state that depends on whether Redis still has
 * this engine's ledger there.
 *
 * One Redis is one store. If keys have hash tags, a store is the data of one key slot. A store exists longer than the
 * connections to it. After a reconnect it may turn out to be another store, or to have lost acknowledged writes
 * (instance.c).
 * Only the owner of the turn uses it. Always true: each collected item is in exactly one batch of the list of one
 * store's ledger, or was settled; a gauge's item is with its sender instead (senders.h). In flight are an opening, or
 * batches of the list in the order of their numbers. */
#ifndef TWI_SYNC_MESSAGE_STORE_H
#define TWI_SYNC_MESSAGE_STORE_H

#include "sync/batch/ledger.h"
#include "engine/port/rejected.h"
#include "sync/batch/ticket.h"
#include "sync/wire/redirect.h"

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
    bool has_left;            /* the last batch of this engine was sent to it (leave.h) */
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

#endif
