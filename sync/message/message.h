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

#include "sync/message/connection.h"
#include "sync/message/state.h"
#include "sync/wire/wire.h"

/* ---- replicas ----
 * wait_replicas: finds out which writes enough replicas have. See replicas.c. */

struct twi_connection;

/* Puts a WAIT into `out`; the caller awaits its reply. */
void twi_replicas_put(struct twi_connection *connection);
/* Does the same after the batches that were just put into `out`, and awaits the reply. */
void twi_replicas_request(struct twi_connection *connection, int64_t now_ms);
/* Sends a WAIT if one is missing. */
void twi_replicas_step(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms);
twi_taker twi_replicas_reply;
bool twi_replicas_hold(const struct twi_sync *sync); /* the replay buffer is full of batches that the replicas lack */

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

/* ---- waiting ----
 * collected items that wait for a message: gauges (presence.h), and counters of distinct elements
 * (distinct.h).
 *
 *   collected ─▶ waiting ─▶ in a message under way ─▶ answered
 *                   └──────────────┴── the message is refused, or the connection is lost: back to their counters
 * If there are several stores, a message has items of one store, and goes to that.
 * Always true: each item in the queue is answered or returned exactly once, and `answered` counts both. item->store
 * is the store of its key. */

#define TWI_WAITING_MAX 4096u

struct twi_store;
struct twi_sync;

/* Returns true if a flush still waits for items that were in the queue before it began. */
static inline bool twi_waiting_holds_flush(const struct twi_waiting *waiting) {
    return waiting->until != 0 && waiting->answered + 1 < waiting->until;
}
static inline uint32_t twi_waiting_count(const struct twi_waiting *waiting) {
    return waiting->end - waiting->at;
}
static inline bool twi_waiting_is_full(const struct twi_waiting *waiting) {
    return twi_waiting_count(waiting) >= TWI_WAITING_MAX;
}
/* Returns true if items wait, and a store accepts them. */
static inline bool twi_waiting_may_go(const struct twi_waiting *waiting) {
    return twi_waiting_count(waiting) != 0 && !waiting->is_held;
}

/* Returns false if there is no memory; then no item was added. */
bool twi_waiting_take(struct twi_waiting *waiting, const struct twi_item *items, size_t count);
/* Chooses a store that accepts a message of that sender now, and moves at most `count_max` of its items to the
 * front. Returns how many there are, or 0 if no store with items here accepts one. */
uint32_t twi_waiting_choose(struct twi_sync *sync, struct twi_waiting *waiting, enum twi_sender sender,
                            uint32_t count_max, struct twi_store **store);
/* Returns items of the queue to their counters. A flush then ends as refused, or, if the items may be sent at once,
 * begins its round again. */
void twi_waiting_return(struct twi_sync *sync, struct twi_waiting *waiting, const struct twi_item *items,
                        uint32_t count, uint32_t after_ms);
/* A round of tw_flush() collects again, and waits for the answers of what it finds then. */
void twi_waiting_begin_again(struct twi_sync *sync);
/* Returns all waiting items. */
void twi_waiting_return_all(struct twi_sync *sync, struct twi_waiting *waiting, uint32_t after_ms);

#endif
