/* pipeline.h -- the commands that were sent on a connection and await their replies. Replies come in the order of the
 * commands.
 * Always true: each command in `out` has an entry in `pending`, in the order of the wire. */
#ifndef TWI_SYNC_MESSAGE_PIPELINE_H
#define TWI_SYNC_MESSAGE_PIPELINE_H

#include "sync/message/message_queue.h"
#include "sync/wire/wire.h"

struct twi_sync;
struct twi_connection;
struct twi_batch;
struct twi_store;

/* At most this many entries: a greeting (6), an opening, a rewrite, questions of a cluster's; the batches, each with
 * ASKING and WAIT; the messages; their WAITs, at worst two for each lease. */
#define TWI_PENDING_BATCHES_MAX 64u
#define TWI_PENDING_MAX (32u + 3 * TWI_PENDING_BATCHES_MAX + TWI_MESSAGES_MAX + 2 * TWI_LEASES_MAX)

enum twi_command {
    TWI_AUTH,
    TWI_SELECT,
    TWI_PING,
    TWI_ROLE,
    TWI_INFO,
    TWI_CONFIG,
    TWI_REWRITE,
    TWI_TIME,
    TWI_WAIT,
    TWI_MESSAGE,
    TWI_MESSAGE_WAIT,
    TWI_OPEN,
    TWI_BATCH,
    TWI_MERGE_PLAIN, /* a batch without a script, of many replies */
    TWI_REPAIR,
    TWI_ASKING,     /* before a batch that ASK sent to another node */
    TWI_ABANDONED,  /* a batch or an opening whose store has begun again, so that its reply has no meaning any more */
    TWI_SLOTS,      /* CLUSTER SLOTS */
    TWI_COUNT_KEYS, /* CLUSTER COUNTKEYSINSLOT */
    TWI_COMMANDS
};

struct twi_pending {
    enum twi_command command;
    struct twi_store *store; /* of OPEN, BATCH, MERGE_PLAIN, REPAIR, ABANDONED and COUNT_KEYS; otherwise NULL */
    struct twi_batch *batch; /* of OPEN, BATCH and MERGE_PLAIN */
    uint32_t cost;           /* the batch's part of keys_under_way */
    uint32_t replies;        /* how many replies are still to come */
    int64_t sent_ms;         /* when its last byte was sent; 0 if not yet */
    int64_t wall_ms;         /* the same moment in engine time */
    int64_t sent_us;         /* the same moment in us; 0 if not yet */
    uint64_t out_end;        /* where it ends, in bytes of this connection */
    uint64_t out_begin;      /* where it begins */
    bool compiles;           /* the script's text went with it, and Redis may have to compile that first */
    bool alone;              /* it was the only request under way, so its reply measures the round trip */
};

struct twi_pipeline {
    struct twi_bytes out; /* commands; the bytes before out_at have been sent */
    size_t out_at;
    uint64_t out_sent;    /* bytes sent on this connection */
    uint64_t out_end;     /* where the last command ends */
    int64_t out_moved_ms; /* when bytes were last sent, or when a command was put into an empty `out` */
    struct twi_reader *reader;
    struct twi_pending pending[TWI_PENDING_MAX]; /* a ring, the oldest first */
    uint32_t first, count;
};

/* Takes one reply of an entry; `replies` still counts it. If the function does not understand the reply, it marks the
 * connection as broken. */
typedef void twi_taker(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                       const struct twi_node *nodes, size_t count, int64_t now_ms);

/* To be called before a command is put into an `out` that may be empty. From now on the time for sending counts. */
void twi_pipeline_begin(struct twi_pipeline *pipeline, int64_t now_ms);
/* Notes that a command was put into `out`, and that it has this many replies. */
struct twi_pending *twi_pipeline_await(struct twi_pipeline *pipeline, enum twi_command command, struct twi_batch *batch,
                                       uint32_t replies);
/* Returns entry `i`; 0 is the oldest. */
struct twi_pending *twi_pipeline_at(struct twi_pipeline *pipeline, uint32_t i);
/* Removes one reply of the oldest entry. Returns a copy of the entry from before the call. */
struct twi_pending twi_pipeline_take(struct twi_pipeline *pipeline);
/* Returns when the last byte of the oldest entry was sent; 0 if not yet, or if no reply is awaited. */
int64_t twi_pipeline_awaited_since_ms(const struct twi_pipeline *pipeline);
/* Returns how many bytes of this connection there will be once `out` is sent. */
uint64_t twi_pipeline_end(const struct twi_pipeline *pipeline);
/* Removes an entry with all its commands. */
uint64_t twi_pending_bytes(const struct twi_pending *pending);
bool twi_pipeline_is_sent(const struct twi_pipeline *pipeline); /* all of `out` was sent */
/* The connection has ended. No reply is awaited any more, and `out` is wiped (it may contain a password). */
void twi_pipeline_clear(struct twi_pipeline *pipeline);

#endif
