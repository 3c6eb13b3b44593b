/* pipeline.h -- what was sent on a connection and awaits its reply: commands go out in one row, and their replies come
 * in the same order.
 * Always true: each command that was put into `out` has its entry in `pending`; the entries stand in the order of the
 * wire. */
#ifndef TWI_SYNC_MESSAGE_PIPELINE_H
#define TWI_SYNC_MESSAGE_PIPELINE_H

#include "sync/message/message_queue.h"
#include "sync/wire/wire.h"

struct twi_sync;
struct twi_batch;

/* Entries at most: a greeting (5), an opening, the batches and their WAIT twice, a rewrite; the messages; their WAITs,
 * two for each lease at worst. */
#define TWI_PENDING_MAX (16u + TWI_MESSAGES_MAX + 2 * TWI_LEASES_MAX)

enum twi_command {
    TWI_AUTH,
    TWI_SELECT,
    TWI_PING,
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
    TWI_REPAIR
};

struct twi_pending {
    enum twi_command command;
    struct twi_batch *batch; /* of OPEN, BATCH and MERGE_PLAIN */
    uint32_t replies;        /* still to come */
    int64_t sent_ms;         /* when its last byte went out; 0: not yet */
    int64_t wall_ms;         /* engine time of that moment */
    int64_t sent_us;         /* the same moment, finer; 0: not yet, or not `alone` */
    uint64_t out_end;        /* where it ends, counted in bytes of this connection */
    uint64_t out_begin;      /* of MERGE_PLAIN: where it begins; else 0 */
    bool alone;              /* nothing else was under way: its reply tells the round trip */
};

struct twi_pipeline {
    struct twi_bytes out; /* commands; the bytes before out_at have been sent */
    size_t out_at;
    uint64_t out_sent;    /* bytes that were sent on this connection */
    int64_t out_moved_ms; /* when bytes were last sent, or when a command was put into an empty `out` */
    struct twi_reader *reader;
    struct twi_pending pending[TWI_PENDING_MAX]; /* a ring; the oldest first */
    uint32_t first, count;
};

/* Takes one reply of an entry; `replies` still counts it. A reply that is not understood is a failure of the
 * connection. */
typedef void twi_taker(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                       size_t count, int64_t now_ms);

/* Call it before a command is put into `out`: the time that `out` may take to be sent begins with its first byte. */
void twi_pipeline_begin(struct twi_pipeline *pipeline, int64_t now_ms);
/* Notes that a command was put into `out` and awaits its reply, or so many. */
struct twi_pending *twi_pipeline_await(struct twi_pipeline *pipeline, enum twi_command command, struct twi_batch *batch,
                                       uint32_t replies);
/* The entry number `i`; 0: the oldest. */
struct twi_pending *twi_pipeline_at(struct twi_pipeline *pipeline, uint32_t i);
/* One reply of the oldest entry is taken. Returns a copy of the entry as it was. */
struct twi_pending twi_pipeline_take(struct twi_pipeline *pipeline);
/* The time at which the last byte of the oldest entry was sent; 0: not yet, or nothing is awaited. */
int64_t twi_pipeline_awaited_since_ms(const struct twi_pipeline *pipeline);
/* How many bytes the connection will have carried once `out` was sent. */
uint64_t twi_pipeline_end(const struct twi_pipeline *pipeline);
bool twi_pipeline_is_sent(const struct twi_pipeline *pipeline); /* every byte of `out` was sent */
/* The connection has ended: nothing is awaited, and what was not sent is wiped (it may be a password). */
void twi_pipeline_clear(struct twi_pipeline *pipeline);

#endif
