/* message.h -- small scripts besides the batches. A sender puts one into the pipeline, and its `done` is called once
 * with the outcome.
 *
 *   send ─▶ EVALSHA ─answered▶ done
 *              └─NOSCRIPT▶ EVAL ─answered▶ done          the connection is lost: done, UNKNOWN
 * A message may be lost. The queue does not send it again. Its sender decides that.
 * Always true: each sender has at most its quota under way, so messages delay batches by no more than these. If
 * twi_message_send() returned true, `done` of the message is called exactly once. No message is sent while the breaker
 * is not closed, or while a rewind waits for all replies. Only the owner of the turn calls these functions. */
#ifndef TWI_SYNC_MESSAGE_MESSAGE_H
#define TWI_SYNC_MESSAGE_MESSAGE_H

#include "sync/message/pipeline.h"
#include "sync/message/state.h"
#include "sync/wire/wire.h"

#define TWI_MESSAGE_BYTES_MAX 16384u /* of keys and arguments, on the wire; checked by twi_message_send() only */

struct twi_message_argument {
    const void *data;
    size_t size;
};

struct twi_message {
    enum twi_sender sender;
    struct twi_store *store; /* where its keys lie; NULL for the first store */
    const struct twi_script_source *script;
    const struct twi_message_argument *arguments; /* keys, then arguments; copied */
    size_t key_count, argument_count;             /* argument_count includes the keys */
    twi_message_done *done;
    /* With wait_replicas, after `done` was called with ANSWERED. The reply counts once the replicas have what the
     * script wrote. NULL if the reply counts at once. */
    twi_message_replicated *replicated;
    void *ctx;
};

/* Returns false if the store accepts no message from any sender. Then its server is unreachable, its slot moves, or
 * it is unknown whether it remembers us. */
bool twi_message_store_takes(const struct twi_sync *sync, const struct twi_store *store);
/* If `store` is NULL, the first store is used. */
bool twi_message_may_send(const struct twi_sync *sync, const struct twi_store *store, enum twi_sender sender);
/* Returns false if it was not sent (no connection, no room, no memory, too long), and `done` is not called. */
bool twi_message_send(struct twi_sync *sync, const struct twi_message *message, int64_t now_ms);
/* Does the same with encoded arguments (twi_wire_put), the number of keys first. message->arguments is ignored. The
 * queue becomes the owner of the memory of `arguments`, whatever it returns. */
bool twi_message_send_encoded(struct twi_sync *sync, const struct twi_message *message, struct twi_bytes *arguments,
                              int64_t now_ms);
twi_taker twi_message_reply, twi_message_wait_reply;
/* Sends a WAIT, if a message needs one. The turn calls it after all senders. */
void twi_message_step(struct twi_connection *connection, int64_t now_ms);
/* Called if no more replies come to the messages under way. */
void twi_message_dropped(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms);

#endif
