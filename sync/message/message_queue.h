/* message_queue.h -- the small scripts that are under way on a connection, beside the batches. message.h has the calls.
 * Always true: each sender has at most its quota here, under way and held together. */
#ifndef TWI_SYNC_MESSAGE_MESSAGE_QUEUE_H
#define TWI_SYNC_MESSAGE_MESSAGE_QUEUE_H

#include "sync/wire/wire.h"

struct twi_sync;

/* Who sends, and how many each may have under way. A message takes Redis some 20 microseconds, a statement of gauges
 * some 3 ms. */
enum twi_sender { TWI_SENDER_REGISTRY, TWI_SENDER_CLOSING, TWI_SENDER_PRESENCE, TWI_SENDER_LEASES, TWI_SENDERS };
#define TWI_PRESENCE_MAX 4u
#define TWI_CLOSING_SENT_MAX 4u
#define TWI_LEASES_MAX 32u
#define TWI_MESSAGES_MAX (1u + TWI_CLOSING_SENT_MAX + TWI_PRESENCE_MAX + TWI_LEASES_MAX)

enum twi_message_outcome {
    TWI_MESSAGE_ANSWERED,
    TWI_MESSAGE_REFUSED, /* nothing was done; the error reply is there */
    TWI_MESSAGE_UNKNOWN  /* perhaps done; the error reply is there, or nothing (count 0) if the connection was lost */
};

/* Takes the outcome of a message. False: the reply is not understood, which is a failure of the connection. It may send
 * other messages, except where the outcome is UNKNOWN. */
typedef bool twi_message_done(struct twi_sync *sync, void *ctx, enum twi_message_outcome outcome,
                              const struct twi_node *nodes, size_t count, int64_t now_ms);
/* ANSWERED: enough replicas have what the message wrote. REFUSED: too few have it. UNKNOWN: the connection was lost
 * before that was known. */
typedef void twi_message_replicated(struct twi_sync *sync, void *ctx, enum twi_message_outcome outcome);

struct twi_message_pending {
    enum twi_sender sender;
    const struct twi_script_source *script;
    twi_message_done *done;
    twi_message_replicated *replicated;
    void *ctx;
    struct twi_bytes arguments; /* encoded, the number of keys first: for EVAL */
    size_t argument_count;
    bool is_eval;
};

struct twi_messages {
    struct twi_message_pending ring[TWI_MESSAGES_MAX];
    uint32_t first, count;
    uint32_t of[TWI_SENDERS];                        /* of each sender: under way, or held */
    struct twi_message_pending held[TWI_LEASES_MAX]; /* answered; the replicas' answer is awaited */
    uint32_t held_count;
    uint32_t waits; /* WAITs under way: each speaks of all that was answered before it */
    bool unwaited;  /* a message was sent that needs a WAIT, and no WAIT was sent behind it */
};

#endif
