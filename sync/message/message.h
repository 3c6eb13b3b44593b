/* message.h -- small scripts beside the batches: a sender puts one into the pipeline, and is called once with its
 * outcome.
 *
 *   send ─▶ EVALSHA ─answered▶ done
 *              └─NOSCRIPT▶ EVAL ─answered▶ done          the connection is lost: done, UNKNOWN
 * A message may be lost, and is not sent again by itself: each sender decides whether to repeat it.
 * Always true: each sender has at most its quota under way, so batches are never held up by more than these. Each
 * message for which twi_message_send() was true has its `done` called exactly once. No message is sent while the
 * breaker is not closed, or while a rewind waits for all replies. By the owner of the turn. */
#ifndef TWI_SYNC_MESSAGE_MESSAGE_H
#define TWI_SYNC_MESSAGE_MESSAGE_H

#include "sync/message/pipeline.h"
#include "sync/message/state.h"
#include "sync/wire/wire.h"

#define TWI_MESSAGE_BYTES_MAX 16384u /* of copied keys and arguments, as they stand on the wire */

struct twi_message_argument {
    const void *data;
    size_t size;
};

struct twi_message {
    enum twi_sender sender;
    const struct twi_script_source *script;
    const struct twi_message_argument *arguments; /* keys, then arguments; copied */
    size_t key_count, argument_count;             /* argument_count: keys included */
    twi_message_done *done;
    /* With wait_replicas, after `done` was called with ANSWERED: the reply counts once the replicas have what the
     * script wrote. NULL: it counts at once. */
    twi_message_replicated *replicated;
    void *ctx;
};

bool twi_message_may_send(const struct twi_sync *sync, enum twi_sender sender);
/* False: not now (no connection, no room, no memory, too long); `done` is not called. */
bool twi_message_send(struct twi_sync *sync, const struct twi_message *message, int64_t now_ms);
/* The same with arguments that are encoded already (twi_wire_put), the number of keys first; message->arguments is not
 * looked at. Their memory is the queue's from here on, whatever is returned. */
bool twi_message_send_encoded(struct twi_sync *sync, const struct twi_message *message, struct twi_bytes *arguments,
                              int64_t now_ms);
twi_taker twi_message_reply, twi_message_wait_reply;
/* Sends a WAIT, where one is needed. After all senders of the turn. */
void twi_message_step(struct twi_sync *sync, int64_t now_ms);
void twi_message_dropped(struct twi_sync *sync, int64_t now_ms); /* what is under way will not be answered */
void twi_message_free(struct twi_messages *messages);            /* calls no `done` */

#endif
