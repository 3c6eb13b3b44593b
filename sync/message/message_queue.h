/* message_queue.h -- the messages under way on a connection, besides the batches. message.h has the calls. Always true:
 * each sender has at most its quota here, counting messages under way and messages that wait for replicas. */
#ifndef TWI_SYNC_MESSAGE_MESSAGE_QUEUE_H
#define TWI_SYNC_MESSAGE_MESSAGE_QUEUE_H

#include "sync/wire/wire.h"

struct twi_sync;
struct twi_connection;
struct twi_store;

/* The senders, and how many messages each may have under way on one connection. A message costs Redis some 20
 * microseconds. A statement of gauges, or a merge of distinct counts, costs some 3 ms. */
enum twi_sender {
    TWI_SENDER_REGISTRY,
    TWI_SENDER_CLOSING,
    TWI_SENDER_PRESENCE,
    TWI_SENDER_DISTINCT,
    TWI_SENDER_LEASES,
    TWI_SENDERS
};
#define TWI_PRESENCE_MAX 4u
#define TWI_DISTINCT_MAX 2u
#define TWI_CLOSING_SENT_MAX 4u
#define TWI_CLOSING_MESSAGES_MAX 16u /* the most messages in one parcel; 16 heartbeats cost Redis some 0.2 ms */
#define TWI_LEASES_MAX 32u
#define TWI_MESSAGES_MAX (1u + TWI_CLOSING_SENT_MAX + TWI_PRESENCE_MAX + TWI_DISTINCT_MAX + TWI_LEASES_MAX)

enum twi_message_outcome {
    TWI_MESSAGE_ANSWERED,
    TWI_MESSAGE_REFUSED, /* not executed; `nodes` is the error reply */
    TWI_MESSAGE_UNKNOWN  /* perhaps executed; `nodes` is the error reply, or count is 0 if the connection was lost */
};

/* Takes the outcome of a message. Returns false if the reply is not understood; the connection then ends. The
 * function may send other messages, except if the outcome is UNKNOWN. */
typedef bool twi_message_done(struct twi_sync *sync, struct twi_connection *connection, void *ctx,
                              enum twi_message_outcome outcome, const struct twi_node *nodes, size_t count,
                              int64_t now_ms);
/* ANSWERED means that enough replicas have the message's writes. REFUSED means that too few have them. UNKNOWN means
 * that the connection was lost before Redis reported it. */
typedef void twi_message_replicated(struct twi_sync *sync, void *ctx, enum twi_message_outcome outcome);

struct twi_message_pending {
    enum twi_sender sender;
    struct twi_store *store; /* where its keys lie */
    const struct twi_script_source *script;
    twi_message_done *done;
    twi_message_replicated *replicated;
    void *ctx;
    struct twi_bytes arguments; /* encoded, the number of keys first; kept for EVAL */
    size_t argument_count;
    bool is_eval;
};

struct twi_messages {
    struct twi_message_pending ring[TWI_MESSAGES_MAX];
    uint32_t first, count;
    uint32_t of[TWI_SENDERS];                        /* for each sender, messages under way or waiting for replicas */
    struct twi_message_pending held[TWI_LEASES_MAX]; /* answered; the reply to WAIT is awaited */
    uint32_t held_count;
    uint32_t waits; /* WAITs under way; each covers all messages that were answered before its reply */
    bool unwaited;  /* a message that needs a WAIT was sent, and no WAIT after it */
};

#endif
