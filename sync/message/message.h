/* message.h -- small scripts beside the batches: a turn puts them into the pipeline, and tells whoever sent one what came of it.
 *
 *   send ─▶ EVALSHA ─answered▶ told
 *              └─NOSCRIPT▶ EVAL ─answered▶ told          a connection that is lost: told "unknown"
 * What is sent this way may be lost and is not sent again by itself: each sender decides whether to say it once more.
 * Always true: each sender has at most its quota under way, so batches are never held up by more than these; whoever was answered
 * true by twi_message_send() is told exactly once; none is sent while the breaker is not closed or a rewind waits for all answers. By the owner of the turn. */
#ifndef TWI_SYNC_MESSAGE_MESSAGE_H
#define TWI_SYNC_MESSAGE_MESSAGE_H

#include "sync/message/pipeline.h"
#include "sync/wire/wire.h"

/* Who sends, and how many each may have under way: some 20 microseconds of Redis each; a statement of gauges some 3 ms. */
enum twi_sender { TWI_SENDER_REGISTRY, TWI_SENDER_CLOSING, TWI_SENDER_PRESENCE, TWI_SENDER_LEASES, TWI_SENDERS };
#define TWI_PRESENCE_MAX 4u
#define TWI_CLOSING_SENT_MAX 4u
#define TWI_LEASES_MAX 32u
#define TWI_MESSAGES_MAX (1u + TWI_CLOSING_SENT_MAX + TWI_PRESENCE_MAX + TWI_LEASES_MAX)
#define TWI_MESSAGE_BYTES_MAX 16384u /* keys and arguments of one whose words are copied, as they stand on the wire */

struct twi_message_script {
    const char *text, *sha1;
};

struct twi_message_argument {
    const void *data;
    size_t size;
};

enum twi_message_outcome {
    TWI_MESSAGE_ANSWERED,
    TWI_MESSAGE_REFUSED, /* nothing was done; the error reply is there */
    TWI_MESSAGE_UNKNOWN /* perhaps done; the error reply is there, or, where the connection was lost, nothing (count 0) */
};

/* False: a reply that is not understood: a failure of the connection. May send others, but where the outcome is UNKNOWN. */
typedef bool twi_message_done(struct twi_sync *sync, void *ctx, enum twi_message_outcome outcome,
                              const struct twi_node *nodes, size_t count, int64_t now_ms);
/* ANSWERED: enough replicas have what it wrote; REFUSED: too few; UNKNOWN: the connection was lost before that was known. */
typedef void twi_message_replicated(struct twi_sync *sync, void *ctx, enum twi_message_outcome outcome);

struct twi_message {
    enum twi_sender sender;
    const struct twi_message_script *script;
    const struct twi_message_argument *words; /* keys, then arguments; copied */
    size_t key_count, word_count;
    twi_message_done *done;
    /* With wait_replicas, after `done` was told ANSWERED: its word counts once the replicas have it. NULL: it counts at once. */
    twi_message_replicated *replicated;
    void *ctx;
};

struct twi_message_pending {
    enum twi_sender sender;
    const struct twi_message_script *script;
    twi_message_done *done;
    twi_message_replicated *replicated;
    void *ctx;
    struct twi_bytes words; /* encoded, the number of keys first: for EVAL */
    size_t word_count;
    bool is_eval;
};

struct twi_messages {
    struct twi_message_pending ring[TWI_MESSAGES_MAX];
    uint32_t first, count;
    uint32_t of[TWI_SENDERS];                        /* of each: under way, or held */
    struct twi_message_pending held[TWI_LEASES_MAX]; /* answered, and waiting for the replicas */
    uint32_t held_count;
    uint32_t waits; /* WAITs under way: each speaks of all that was answered before it */
    bool unwaited;  /* something was sent that needs one, and has none behind it */
};

bool twi_message_may_send(const struct twi_sync *sync, enum twi_sender sender);
/* False: not now (no connection, no room, no memory, too long); nobody will be told. */
bool twi_message_send(struct twi_sync *sync, const struct twi_message *message, int64_t now_ms);
/* The same of words that are encoded already (twi_wire_put), the number of keys first; side->words is not looked at. Their memory is the
 * queue's from here on, whatever the answer. */
bool twi_message_send_encoded(struct twi_sync *sync, const struct twi_message *message, struct twi_bytes *words,
                              int64_t now_ms);
twi_taker twi_message_reply, twi_message_wait_reply;
void twi_message_step(struct twi_sync *sync, int64_t now_ms);    /* once all have sent: a WAIT, where one is needed */
void twi_message_dropped(struct twi_sync *sync, int64_t now_ms); /* what is under way will not be answered */
void twi_message_free(struct twi_messages *messages);            /* without a word to anybody */

#endif
