/* senders.h -- the messages that each sender has under way (message.h). The senders are leases, gauges and holds,
 * distinct counts, the heartbeat of the registry, and the close election. An engine has one of each.
 *
 * Always true: a message that is under way here is in the connection's queue (message_queue.h). */
#ifndef TWI_SYNC_MESSAGE_SENDERS_H
#define TWI_SYNC_MESSAGE_SENDERS_H

#include "engine/port/messages.h"
#include "sync/message/message_queue.h"

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

/* Collected items that wait for a message (waiting.h). */
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
    bool has_suspects;                      /* some stores may lack writes that they acknowledged (store.h) */
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

#endif
