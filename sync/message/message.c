/* message.c -- see message.h. */
#include "sync/message/message.h"

#include "engine/base/check.h"
#include "sync/batch/reply.h"
#include "sync/message/cluster.h"
#include "sync/message/replicas.h"

static struct twi_message_pending *pending_at(struct twi_messages *messages, uint32_t i) {
    return &messages->ring[(messages->first + i) % TWI_MESSAGES_MAX];
}

/* If there are several stores, each may come back empty alone. Then this engine writes no message there before it has
 * found the cause. */
static bool message_is_known(const struct twi_sync *sync, const struct twi_store *store) {
    return !sync->by_slot || (store->assumed.is_open && store->assumed.unknown_since_ms == 0);
}

bool twi_message_store_takes(const struct twi_sync *sync, const struct twi_store *store) {
    const struct twi_connection *connection = store->connection;
    return connection && twi_connection_takes(connection) && !store->route.is_waiting && message_is_known(sync, store);
}

bool twi_message_may_send(const struct twi_sync *sync, const struct twi_store *store, enum twi_sender sender) {
    twi_check(sender < TWI_SENDERS);
    if (!store) store = sync->stores[0];
    static const uint32_t quotas[TWI_SENDERS] = {[TWI_SENDER_LEASES] = TWI_LEASES_MAX,
                                                 [TWI_SENDER_REGISTRY] = 1,
                                                 [TWI_SENDER_CLOSING] = TWI_CLOSING_SENT_MAX,
                                                 [TWI_SENDER_PRESENCE] = TWI_PRESENCE_MAX,
                                                 [TWI_SENDER_DISTINCT] = TWI_DISTINCT_MAX};
    return twi_message_store_takes(sync, store) && store->connection->messages.of[sender] < quotas[sender] &&
           !store->rewind && store->merge->has_script;
}

/* If memory fails here, the turn ends the connection, and that calls `done`. */
static void message_put(struct twi_connection *connection, const struct twi_message_pending *pending, int64_t now_ms) {
    struct twi_bytes *out = &connection->pipeline.out;
    twi_pipeline_begin(&connection->pipeline, now_ms);
    twi_wire_begin_script(out, pending->script, pending->is_eval, 1 + pending->argument_count);
    twi_bytes_add(out, pending->arguments.data, pending->arguments.size);
    if (pending->replicated != NULL && connection->replicas.wanted != 0) connection->messages.unwaited = true;
    struct twi_pending *awaited = twi_pipeline_await(&connection->pipeline, TWI_MESSAGE, NULL, 1);
    awaited->compiles = pending->is_eval;
    if (pending->sender == TWI_SENDER_PRESENCE || pending->sender == TWI_SENDER_DISTINCT)
        awaited->alone = false; /* too slow to measure the round trip */
}

static void enqueue(struct twi_connection *connection, const struct twi_message_pending *pending, int64_t now_ms) {
    twi_check(connection->messages.count < TWI_MESSAGES_MAX);
    struct twi_messages *messages = &connection->messages;
    *pending_at(messages, messages->count++) = *pending;
    messages->of[pending->sender]++;
    pending->store->route.messages++;
    message_put(connection, pending, now_ms);
}

bool twi_message_send_encoded(struct twi_sync *sync, const struct twi_message *message, struct twi_bytes *arguments,
                              int64_t now_ms) {
    twi_check(message->done != NULL && message->sender < TWI_SENDERS);
    twi_check(arguments->failed || message->argument_count != 0);
    struct twi_store *store = message->store ? message->store : sync->stores[0];
    struct twi_message_pending pending = {.sender = message->sender,
                                          .store = store,
                                          .script = message->script,
                                          .done = message->done,
                                          .replicated = message->replicated,
                                          .ctx = message->ctx,
                                          .arguments = *arguments,
                                          .argument_count = message->argument_count};
    *arguments = (struct twi_bytes){0};
    if (pending.arguments.failed || !twi_message_may_send(sync, store, message->sender)) {
        twi_bytes_free(&pending.arguments);
        return false;
    }
    enqueue(store->connection, &pending, now_ms);
    return true;
}

bool twi_message_send(struct twi_sync *sync, const struct twi_message *message, int64_t now_ms) {
    twi_check(message->arguments != NULL || message->argument_count == 0);
    struct twi_bytes encoded = {0};
    if (!twi_message_may_send(sync, message->store, message->sender)) return false;
    twi_wire_put_u64(&encoded, message->key_count);
    for (size_t i = 0; i < message->argument_count; i++)
        twi_wire_put(&encoded, message->arguments[i].data, message->arguments[i].size);
    if (encoded.size > TWI_MESSAGE_BYTES_MAX) encoded.failed = true;
    return twi_message_send_encoded(sync, message, &encoded, now_ms);
}

static struct twi_message_pending message_take_first(struct twi_messages *messages) {
    twi_check(messages->count != 0 && messages->count <= TWI_MESSAGES_MAX);
    struct twi_message_pending pending = *pending_at(messages, 0);
    *pending_at(messages, 0) = (struct twi_message_pending){0};
    messages->first = (messages->first + 1) % TWI_MESSAGES_MAX;
    messages->count--;
    twi_check(messages->of[pending.sender] != 0);
    messages->of[pending.sender]--;
    twi_check(pending.store == NULL || pending.store->route.messages != 0);
    if (pending.store) pending.store->route.messages--;
    return pending;
}

static enum twi_message_outcome outcome_of(const struct twi_node *nodes) {
    twi_check(nodes != NULL);
    if (nodes->type != TWI_NODE_ERROR) return TWI_MESSAGE_ANSWERED;
    return twi_reply_error(nodes) == TWI_REPLY_UNKNOWN ? TWI_MESSAGE_UNKNOWN : TWI_MESSAGE_REFUSED;
}

void twi_message_reply(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *awaited,
                       const struct twi_node *nodes, size_t count, int64_t now_ms) {
    twi_check(count != 0 && awaited->command == TWI_MESSAGE);
    (void)awaited;
    struct twi_messages *messages = &connection->messages;
    struct twi_message_pending pending = message_take_first(messages);
    if (!pending.is_eval && twi_reply_needs_script(nodes)) {
        pending.is_eval = true;
        enqueue(connection, &pending, now_ms);
        return;
    }
    twi_bytes_free(&pending.arguments);
    enum twi_message_outcome outcome = outcome_of(nodes);
    if (twi_cluster_redirects(sync, connection, pending.store, nodes, now_ms)) { /* later, or elsewhere */
        (void)pending.done(sync, connection, pending.ctx, TWI_MESSAGE_UNKNOWN, NULL, 0, now_ms);
        return;
    }
    if (!pending.done(sync, connection, pending.ctx, outcome, nodes, count, now_ms)) {
        twi_connection_fail(connection, false, "a reply that is not understood");
    } else if (pending.replicated != NULL && connection->replicas.wanted != 0 && outcome == TWI_MESSAGE_ANSWERED) {
        twi_check(messages->held_count < TWI_LEASES_MAX);
        messages->held[messages->held_count++] = pending;
        messages->of[pending.sender]++;
    }
}

/* ---- replicas ---------------------------------------------------------------------------------------------------- */

void twi_message_step(struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->messages.count <= TWI_MESSAGES_MAX);
    if (!connection->messages.unwaited) return;
    twi_pipeline_begin(&connection->pipeline, now_ms);
    twi_replicas_put(connection);
    (void)twi_pipeline_await(&connection->pipeline, TWI_MESSAGE_WAIT, NULL, 1);
    connection->messages.unwaited = false;
    connection->messages.waits++;
}

static void release(struct twi_sync *sync, struct twi_messages *messages, enum twi_message_outcome outcome) {
    twi_check(messages->held_count <= TWI_LEASES_MAX);
    for (uint32_t i = 0; i < messages->held_count; i++) {
        twi_check(messages->of[messages->held[i].sender] != 0);
        messages->of[messages->held[i].sender]--;
        messages->held[i].replicated(sync, messages->held[i].ctx, outcome);
    }
    messages->held_count = 0;
}

void twi_message_wait_reply(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *awaited,
                            const struct twi_node *answer, size_t count, int64_t now_ms) {
    twi_check(connection->messages.waits != 0);
    int64_t replicas = 0;
    (void)awaited, (void)count, (void)now_ms;
    connection->messages.waits--;
    bool enough = twi_node_count(answer, &replicas) && replicas >= (int64_t)connection->replicas.wanted;
    release(sync, &connection->messages, enough ? TWI_MESSAGE_ANSWERED : TWI_MESSAGE_REFUSED);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void twi_message_dropped(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->messages.count <= TWI_MESSAGES_MAX);
    struct twi_messages *messages = &connection->messages;
    release(sync, messages, TWI_MESSAGE_UNKNOWN);
    messages->waits = 0;
    messages->unwaited = false;
    while (messages->count != 0) {
        struct twi_message_pending pending = message_take_first(messages);
        twi_bytes_free(&pending.arguments);
        (void)pending.done(sync, connection, pending.ctx, TWI_MESSAGE_UNKNOWN, NULL, 0, now_ms);
    }
}
