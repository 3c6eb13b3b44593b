/* store.h -- one store of Redis: one ledger, one marker, and all that depends on whether that store remembers us.
 *
 * A store outlives the connections to it. After a reconnect it may turn out to be another one, or to have gone back in
 * time (instance.c).
 * Owner: whoever owns the turn. Always true: every item collected is in exactly one batch of the ledger's list, or was
 * settled; in flight are only batches of the list, in the order of their numbers. */
#ifndef TWI_SYNC_MESSAGE_STORE_H
#define TWI_SYNC_MESSAGE_STORE_H

#include "engine/port/messages.h"
#include "sync/batch/ledger.h"
#include "sync/batch/poison.h"
#include "sync/message/message_queue.h"

#define TWI_FORMERS 4u      /* a store that comes back after four others is known by its marker */
#define TWI_STORES_KNOWN 8u /* a store that comes back after eight wipes is taken for a new one */

/* Stores in which we have counted, by their markers: a ring. "": none yet. */
struct twi_known_stores {
    char markers[TWI_STORES_KNOWN][40];
    uint32_t next;
};

/* The ledgers that we had before this one: a ring. */
struct twi_former_ledgers {
    char names[TWI_FORMERS][TWI_LEDGER_NAME_MAX];
    uint32_t next;
    bool has_any; /* something of a lost identity may still be in Redis */
};

/* What the store is believed to know of us. */
struct twi_store_belief {
    bool is_open;             /* it has made the ledger of this instance */
    bool is_restoring;        /* it went back, and batches are sent to it again */
    char run[41];             /* run_id of the server that last knew our ledger; "": none, or it does not say */
    int64_t doubt_since_ms;   /* since when the store does not know us; 0: it does */
    int64_t written_ms;       /* when the ledger was last written */
    int64_t entered_ms;       /* when the marker's entry of us was last written: by our clock ... */
    int64_t entered_redis_ms; /* ... and by Redis's */
};

/* The leases' messages that are not answered yet. */
struct twi_lease_pending {
    struct twi_lease_message message;
    bool is_under_way;
    struct twi_lease_answer answer;        /* of one that waits for the replicas */
    char id[33], run[41], incarnation[33]; /* the texts of that answer */
};
struct twi_lease_sender {
    struct twi_lease_pending sent[TWI_LEASES_MAX];
};

/* Statements on gauges and holds, and sweeps of reservations. */
struct twi_statement {
    enum { TWI_STATEMENT_GAUGES, TWI_STATEMENT_HOLDS, TWI_STATEMENT_SWEEP, TWI_STATEMENTS } what;
    bool is_under_way;
    struct twi_item *items; /* of gauges */
    uint32_t count;
    uint64_t serial; /* of a sweep; of holds: its number among their statements */
};
struct twi_presence {
    struct twi_item *waiting; /* a queue; from `at` on */
    uint32_t at, end, room;
    struct twi_statement statements[TWI_PRESENCE_MAX];
    uint32_t count; /* of these, under way */
    uint64_t number;
    uint64_t taken, answered; /* items, since ever */
    uint64_t until;           /* 0: nobody waits; else one more than how many were taken then */
    /* The engine hears of the statements on holds in the order in which they were made. A script that Redis did not
     * have goes again, behind others. */
    uint64_t holds_sent, holds_answered;
    uint32_t holds_done; /* bit 0: the one after holds_answered was answered; and so on */
};

/* This engine's place in the registry of live engines. */
struct twi_registry {
    int64_t at_ms;             /* the next heartbeat */
    int64_t pause_ms;          /* from that to the one after it */
    uint32_t reported, before; /* how many engines live; how many lived before this connection */
    int64_t before_until_ms;
    bool awaiting, is_logged;
};

/* Windows that one engine closes for all: what is under way about them. */
struct twi_closing_sent {
    struct twi_closing_message message; /* without its names, which were sent */
    bool busy;
};
struct twi_closing_sender {
    struct twi_closing_sent messages[TWI_CLOSING_SENT_MAX];
    uint64_t number;
    bool doubts;       /* the store may have been wiped: closing.h */
    int64_t doubts_ms; /* when the ledger was last written, as the doubt began */
    bool is_logged;
};

struct twi_merge_plain;

struct twi_store {
    /* set before sharing */
    tw_engine *engine;
    uint32_t merge; /* TW_MERGE_* */
    char marker_name[TWI_LEDGER_NAME_MAX];
    size_t marker_name_size;

    struct twi_ledger ledger;      /* and with it the batches: the replay window, and what is unsettled */
    uint64_t sent_number;          /* in flight: confirmed + 1 .. sent_number */
    uint64_t wrote_number;         /* the last batch that this connection has written; 0: none yet */
    bool rewind;                   /* a reply was not "applied": await the rest, then send from confirmed + 1 again */
    struct twi_batch *opening;     /* number 0 of a new instance, in flight */
    struct twi_identity candidate; /* who that instance would be */
    struct twi_former_ledgers formers;
    struct twi_known_stores known;
    struct twi_store_belief belief;
    struct twi_poison poison;
    struct twi_merge_plain *merge_plain; /* NULL: it merges by script */

    struct twi_lease_sender leases;
    struct twi_presence presence;
    struct twi_registry registry;
    struct twi_closing_sender closing;
};

#endif
