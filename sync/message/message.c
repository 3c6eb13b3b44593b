/* message.c -- see message.h. */
#include "sync/message/message.h"

#include "engine/base/check.h"
#include "engine/base/grow.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/message/connection.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include <string.h>

/* ---- replicas ----
 * for wait_replicas. Acknowledged data counts as safe only when enough replicas have it, too.
 *
 *   batches ─▶ WAIT n ms ─▶ "m replicas"     m >= n means that all earlier writes of this connection are on n replicas
 *
 * WAIT blocks this connection at the server, for about half of redis_timeout_ms at most. It does not block this
 * process. While a replica lags, most WAITs are short, so that they do not delay batches. The reply is about the writes
 * of this connection. A batch with the reply DUP has not written. If a connection has only had such replies, it sends
 * an empty batch first.
 * Always true: only such a reply moves `replicated`, to a batch that was answered OK on this connection before it. A
 * batch above `replicated` stays in the replay buffer, and a flush that needs it is not done. While the buffer is full
 * of such batches, no counter is collected, and deltas wait in their counters. */

#define SHORT_MS 20           /* how long a WAIT lasts while replicas lag ... */
#define SHORT_RUN 8u          /* ... except one of eight, because replicas may be further away than that */
#define AGAIN_MS 100          /* from a WAIT or its reply to the next WAIT, if no batch is sent */
#define AGAIN_REFUSED_MS 2000 /* the same after a refused WAIT */
#define SAY_EVERY_MS 10000    /* replicas may lag for a moment again and again */

bool twi_replicas_hold(const struct twi_sync *sync) {
    size_t most = sync->stores[0]->ledger.replay_bytes_max;
    if (sync->connections[0]->replicas.wanted == 0 || sync->replay_bytes <= most) return false;
    for (uint32_t i = 0; i < sync->active.count; i++)
        if (sync->active.stores[i]->ledger.replicated < sync->active.stores[i]->ledger.confirmed) return true;
    return false;
}

static uint64_t patience_ms(struct twi_connection *connection) {
    twi_check(connection->timeout_ms != 0);
    uint64_t long_ms = connection->timeout_ms / 2 + 1;
    bool is_short = connection->replicas.is_short && ++connection->replicas.short_run % SHORT_RUN != 0;
    return is_short && long_ms > SHORT_MS ? SHORT_MS : long_ms;
}

void twi_replicas_put(struct twi_connection *connection) {
    twi_check(connection->replicas.wanted != 0);
    twi_wire_begin(&connection->pipeline.out, 3);
    twi_wire_put_text(&connection->pipeline.out, "WAIT");
    twi_wire_put_u64(&connection->pipeline.out, connection->replicas.wanted);
    twi_wire_put_u64(&connection->pipeline.out, patience_ms(connection));
}

void twi_replicas_request(struct twi_connection *connection, int64_t now_ms) {
    twi_replicas_put(connection);
    connection->replicas.waits++;
    connection->replicas.ask_at_ms = now_ms + AGAIN_MS;
    (void)twi_pipeline_await(&connection->pipeline, TWI_WAIT, NULL, 1);
}

/* Acts if replicas may lack data that a store acknowledged, and no reply about it is under way. */
void twi_replicas_step(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    bool has_written = false;
    if (connection->replicas.wanted == 0) return;
    if (connection->pipeline.count != connection->messages.count + connection->messages.waits) return;
    if (now_ms < connection->replicas.ask_at_ms || connection->breaker.state != TWI_BREAKER_CLOSED) return;
    for (uint32_t i = 0; i < sync->active.count; i++) {
        struct twi_store *store = sync->active.stores[i];
        if (store->connection != connection || store->ledger.replicated >= store->ledger.confirmed) continue;
        if (store->wrote_number != 0) {
            has_written = true;
        } else if (!twi_ledger_unconfirmed(&store->ledger)) {
            (void)twi_ledger_append_empty(&store->ledger, twi_sync_random(sync->engine), now_ms);
            connection->replicas.ask_at_ms = now_ms + AGAIN_MS;
        }
    }
    if (!has_written) return;
    twi_pipeline_begin(&connection->pipeline, now_ms);
    twi_replicas_request(connection, now_ms);
}

static void note_short(struct twi_connection *connection, int64_t replicas) {
    twi_check(connection->replicas.wanted != 0);
    twi_port_count(connection->engine, replicas_short, 1);
    connection->replicas.is_short = true;
    int64_t now_ms = twi_port_mono_ms(connection->engine);
    bool is_due = connection->replicas.said_ms == 0 || now_ms - connection->replicas.said_ms >= SAY_EVERY_MS;
    if (connection->replicas.is_said || !is_due) return;
    connection->replicas.is_said = true;
    connection->replicas.said_ms = now_ms != 0 ? now_ms : 1;
    twi_port_log(connection->engine, TW_LOG_WARNING, TW_EVENT_REPLICAS,
                 "%lld replicas have what Redis at %s acknowledged; wait_replicas asks for %u", (long long)replicas,
                 connection->target.name, connection->replicas.wanted);
}

/* Called if the replicas have the writes of this connection to that store. */
static void take_replicated(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(store->connection != NULL);
    struct twi_ledger *ledger = &store->ledger;
    if (store->wrote_number <= ledger->replicated) return;
    ledger->replicated = store->wrote_number;
    twi_check(ledger->replicated <= twi_ledger_known(ledger));
    twi_sync_trim(sync, store, now_ms);
    twi_ticket_acknowledged(&sync->tickets, &store->flush, twi_ledger_safe(ledger));
}

void twi_replicas_reply(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                        const struct twi_node *answer, size_t count, int64_t now_ms) {
    twi_check(connection->replicas.waits != 0 && pending->command == TWI_WAIT);
    (void)pending, (void)count;
    connection->replicas.waits--;
    connection->replicas.ask_at_ms = now_ms + AGAIN_MS;
    if (answer->type == TWI_NODE_ERROR) {
        connection->replicas.ask_at_ms = now_ms + AGAIN_REFUSED_MS;
        twi_refusal_report(connection, "WAIT, which wait_replicas needs", answer);
        return;
    }
    int64_t replicas = 0;
    if (!twi_node_count(answer, &replicas) || replicas < (int64_t)connection->replicas.wanted) {
        note_short(connection, replicas);
        return;
    }
    if (connection->replicas.is_said)
        twi_port_log(connection->engine, TW_LOG_INFO, TW_EVENT_REPLICAS,
                     "%lld replicas have what Redis at %s acknowledged, as wait_replicas asks", (long long)replicas,
                     connection->target.name);
    connection->replicas.is_short = connection->replicas.is_said = false;
    for (uint32_t i = 0; i < sync->active.count; i++)
        if (sync->active.stores[i]->connection == connection) take_replicated(sync, sync->active.stores[i], now_ms);
}

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

/* ---- waiting ---- */

#define ROOM_FIRST 128u

bool twi_waiting_take(struct twi_waiting *waiting, const struct twi_item *items, size_t count) {
    twi_check(waiting->at <= waiting->end && waiting->end <= waiting->room);
    size_t before = twi_waiting_count(waiting);
    if (waiting->at != 0) {
        memmove(waiting->items, waiting->items + waiting->at, before * sizeof *waiting->items);
        waiting->at = 0;
        waiting->end = (uint32_t)before;
    }
    if (!twi_grow(&waiting->items, sizeof *waiting->items, &waiting->room, before + count, ROOM_FIRST)) return false;
    memcpy(waiting->items + waiting->end, items, count * sizeof *items);
    waiting->end += (uint32_t)count;
    waiting->taken += count;
    twi_check(waiting->end <= waiting->room);
    return true;
}

/* The other items keep their order, except those that change places with these. */
uint32_t twi_waiting_choose(struct twi_sync *sync, struct twi_waiting *waiting, enum twi_sender sender,
                            uint32_t count_max, struct twi_store **store) {
    twi_check(count_max != 0 && waiting->at <= waiting->end);
    uint32_t count = 0, passed = UINT32_MAX; /* the last store that accepts no message */
    *store = NULL;
    for (uint32_t i = waiting->at; i < waiting->end && count < count_max; i++) {
        struct twi_item item = waiting->items[i];
        struct twi_store *of = sync->stores[item.store];
        if (*store ? of != *store : item.store == passed) continue;
        if (!*store && !twi_message_may_send(sync, of, sender)) {
            passed = item.store;
            continue;
        }
        *store = of;
        waiting->items[i] = waiting->items[waiting->at + count];
        waiting->items[waiting->at + count++] = item;
    }
    twi_check(count <= count_max && (count == 0) == (*store == NULL));
    return count;
}

void twi_waiting_return(struct twi_sync *sync, struct twi_waiting *waiting, const struct twi_item *items,
                        uint32_t count, uint32_t after_ms) {
    twi_check(waiting->answered + count <= waiting->taken);
    for (uint32_t i = 0; i < count; i++) twi_port_return(&items[i], after_ms);
    waiting->answered += count;
    if (after_ms != 0)
        twi_ticket_refused(&sync->tickets);
    else if (twi_ticket_renew(&sync->tickets))
        twi_waiting_begin_again(sync);
}

void twi_waiting_begin_again(struct twi_sync *sync) {
    twi_check(sync->tickets.active && sync->tickets.collecting);
    sync->collecting.begin_again = true;
    sync->senders.presence.waiting.until = sync->senders.distinct.waiting.until = 0;
}

void twi_waiting_return_all(struct twi_sync *sync, struct twi_waiting *waiting, uint32_t after_ms) {
    twi_check(waiting->at <= waiting->end);
    uint32_t count = twi_waiting_count(waiting);
    if (count != 0) twi_waiting_return(sync, waiting, waiting->items + waiting->at, count, after_ms);
    waiting->at = waiting->end = 0;
}
