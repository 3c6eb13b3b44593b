/* transfer.c -- sends and receives the bytes of one connection, and limits the time for a reply.   Steps 5 and 6.
 *
 * A reply has `timeout_ms` from the moment its request went out whole, or from the reply before it, even if its bytes
 * arrive one by one. It has longer if measurements show that this is too short. Then it has four round trips, twice the
 * time that the link needs for the request's bytes, and twice as long after each deadline that passed (estimate.h). A
 * connection that is not up yet has ten times `timeout_ms` for a reply. A request has ten times `timeout_ms` to go out.
 * Always true: a turn reads at most RECEIVE_BYTES_MAX. Replies behind the one that shows the connection broken are not
 * read. */
#include "sync/turn/transfer.h"

#include "engine/base/check.h"
#include "engine/port/services.h"
#include "sync/turn/connect.h"
#include "sync/turn/instance.h"
#include "sync/turn/merge_plain.h"
#include "sync/turn/nodes.h"
#include "sync/turn/outcome.h"
#include "sync/turn/split.h"
#include "sync/message/message.h"
#include "sync/message/replicas.h"
#include "sync/message/state.h"

#define RECEIVE_BYTES_MAX (1u << 20) /* per turn */
#define KEY_US 2                     /* roughly how long Redis's thread needs for a key */
#define WAIT_SLACK_MS 250            /* Redis checks ten times a second which WAIT is over, and may be late with that */

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static void mark_sent(struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->pipeline.count <= TWI_PENDING_MAX);
    for (uint32_t i = 0; i < connection->pipeline.count; i++) {
        struct twi_pending *pending = twi_pipeline_at(&connection->pipeline, i);
        if (pending->out_end > connection->pipeline.out_sent) break;
        if (pending->sent_ms) continue;
        pending->sent_ms = now_ms ? now_ms : 1;
        pending->wall_ms = twi_port_wall_ms(connection->engine);
        pending->sent_us = twi_port_mono_us(connection->engine);
    }
}

void twi_transfer_send(struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->phase >= TWI_GREETING);
    while (!twi_pipeline_is_sent(&connection->pipeline)) {
        size_t left = connection->pipeline.out.size - connection->pipeline.out_at;
        ssize_t sent = connection->target.where->transport->send(
            connection->target.transport_ctx, connection->pipeline.out.data + connection->pipeline.out_at, left);
        if (sent < 0 || (size_t)sent > left) { /* the system, or the library for TLS, may answer anything */
            twi_connection_break(connection);
            return;
        }
        if (sent == 0) break;
        connection->pipeline.out_at += (size_t)sent;
        connection->pipeline.out_sent += (uint64_t)sent;
        connection->pipeline.out_moved_ms = now_ms;
    }
    mark_sent(connection, now_ms);
    if (!twi_pipeline_is_sent(&connection->pipeline)) return;
    connection->pipeline.out_at = 0;
    if (connection->phase == TWI_GREETING)
        twi_bytes_wipe(&connection->pipeline.out); /* the password */
    else
        connection->pipeline.out.size = 0;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

static void take_nothing(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                         const struct twi_node *nodes, size_t count, int64_t now_ms) {
    (void)sync, (void)connection, (void)pending, (void)nodes, (void)count, (void)now_ms;
}

static twi_taker *const takers[TWI_COMMANDS] = {
    [TWI_AUTH] = twi_connect_reply,
    [TWI_SELECT] = twi_connect_reply,
    [TWI_PING] = twi_connect_reply,
    [TWI_ROLE] = twi_connect_reply,
    [TWI_INFO] = twi_connect_reply,
    [TWI_CONFIG] = twi_connect_reply,
    [TWI_REWRITE] = twi_connect_reply,
    [TWI_TIME] = twi_merge_plain_time,
    [TWI_WAIT] = twi_replicas_reply,
    [TWI_MESSAGE] = twi_message_reply,
    [TWI_MESSAGE_WAIT] = twi_message_wait_reply,
    [TWI_OPEN] = twi_instance_reply,
    [TWI_BATCH] = twi_outcome_reply,
    [TWI_MERGE_PLAIN] = twi_merge_plain_reply,
    [TWI_REPAIR] = twi_merge_plain_reply,
    [TWI_ASKING] = take_nothing,
    [TWI_ABANDONED] = take_nothing,
    [TWI_SLOTS] = twi_nodes_reply,
    [TWI_COUNT_KEYS] = twi_split_reply,
};

/* Whether the oldest pending request went out. This means its last byte, or any byte if it has many commands. */
static bool was_asked(const struct twi_pipeline *pipeline) {
    const struct twi_pending *pending = &pipeline->pending[pipeline->first];
    if (pipeline->count == 0) return false;
    return pending->sent_ms || (pending->command == TWI_MERGE_PLAIN && pipeline->out_sent > pending->out_begin);
}

/* Learns from a reply. If replicas are awaited, they are a part of the round trip. */
static void measure(struct twi_connection *connection, const struct twi_pending *pending) {
    twi_check(pending->out_begin <= pending->out_end);
    int64_t now_us = twi_port_mono_us(connection->engine), since_us = pending->sent_us;
    struct twi_measure reply = {.bytes = twi_pending_bytes(pending) + connection->replied.bytes,
                                .is_alone = pending->alone};
    if (connection->replied.at_us > since_us) since_us = connection->replied.at_us;
    connection->replied.at_us = now_us;
    connection->replied.bytes = 0;
    if (connection->phase == TWI_UP) twi_estimate_answered(&connection->estimate);
    if (pending->sent_us == 0 || pending->compiles || pending->command == TWI_MERGE_PLAIN) return;
    if (connection->replicas.wanted != 0 && pending->command != TWI_WAIT) return;
    reply.took_us = now_us - since_us;
    reply.work_us = pending->batch ? (int64_t)pending->batch->key_count * KEY_US : 0;
    twi_estimate_note(&connection->estimate, &reply, now_us);
}

/* If Redis may move, a replica's refusal is a reason to look for the master. */
static bool was_demoted(const struct twi_connection *connection, const struct twi_node *reply) {
    return reply->type == TWI_NODE_ERROR && twi_resolver_may_move(connection->target.resolver) &&
           twi_reply_is_replicas(reply);
}

/* Called when a request of a store was answered. A question about its slot is not a request of the store. */
static void note_replied(struct twi_connection *connection, const struct twi_pending *pending) {
    twi_check(connection->room.keys_under_way >= pending->cost);
    twi_check(pending->cost == 0 || connection->room.bytes_under_way >= twi_pending_bytes(pending));
    connection->room.keys_under_way -= pending->cost;
    if (pending->cost != 0) connection->room.bytes_under_way -= twi_pending_bytes(pending);
    bool is_last = pending->store && pending->replies == 1 && pending->command != TWI_COUNT_KEYS;
    twi_check(!is_last || pending->store->awaited != 0);
    if (is_last) pending->store->awaited--;
}

/* Handles every whole reply that is there, up to one that shows the connection broken. */
static void take_replies(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->pipeline.reader != NULL);
    while (!connection->failure.is_there) {
        const struct twi_node *nodes;
        size_t count;
        enum twi_wire wire = twi_reader_next(connection->pipeline.reader, &nodes, &count);
        if (wire == TWI_WIRE_MORE) return;
        bool asked = was_asked(&connection->pipeline);
        if (wire == TWI_WIRE_BAD || !asked) {
            twi_connection_fail(connection, false,
                                wire == TWI_WIRE_BAD ? "not the Redis protocol" : "an answer nobody asked for");
            return;
        }
        struct twi_pending pending = twi_pipeline_take(&connection->pipeline);
        note_replied(connection, &pending);
        connection->replied.at_ms = now_ms;
        connection->replied.late_ms = 0;
        measure(connection, &pending);
        if (was_demoted(connection, nodes)) twi_connect_not_master(connection, "this Redis is no master any more");
        twi_check(takers[pending.command] != NULL);
        takers[pending.command](sync, connection, &pending, nodes, count, now_ms);
    }
}

/* A proxy that knows only some commands answers PING, and closes at the next command. */
static void note_closed(struct twi_connection *connection) {
    twi_check(!connection->failure.is_there);
    const struct twi_pipeline *pipeline = &connection->pipeline;
    bool is_at_info = connection->phase == TWI_GREETING && pipeline->count != 0 &&
                      twi_pipeline_at(&connection->pipeline, 0)->command == TWI_INFO;
    if (is_at_info)
        twi_connection_fail(connection, false,
                            "closed at INFO: is it a proxy that lets only some commands through (as twemproxy)? Name "
                            "Redis itself");
    else
        twi_connection_break(connection);
}

void twi_transfer_receive(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->phase >= TWI_GREETING);
    char chunk[16384];
    connection->has_more = false;
    for (size_t total = 0; total < RECEIVE_BYTES_MAX && !connection->failure.is_there;) {
        ssize_t got = connection->target.where->transport->recv(connection->target.transport_ctx, chunk, sizeof chunk);
        if (got == 0) return;
        if (got < 0) {
            note_closed(connection);
        } else if ((size_t)got > sizeof chunk) {
            twi_connection_fail(connection, false, "recv: more bytes than there was room for");
        } else if (!twi_reader_feed(connection->pipeline.reader, chunk, (size_t)got)) {
            twi_connection_fail(connection, false, "a reply too long");
        } else {
            total += (size_t)got;
            connection->replied.bytes += (size_t)got;
            take_replies(sync, connection, now_ms);
        }
    }
    connection->has_more = true; /* bytes within TLS raise no event, so the descriptor may be silent */
}

int64_t twi_transfer_deadline_ms(const struct twi_connection *connection) {
    twi_check(connection->timeout_ms != 0);
    int64_t out_ms = !twi_pipeline_is_sent(&connection->pipeline)
                         ? connection->pipeline.out_moved_ms + 10 * (int64_t)connection->timeout_ms
                         : INT64_MAX;
    int64_t since_ms = twi_pipeline_awaited_since_ms(&connection->pipeline);
    if (since_ms == 0) return out_ms;
    if (connection->replied.at_ms > since_ms) since_ms = connection->replied.at_ms;
    const struct twi_pending *pending = &connection->pipeline.pending[connection->pipeline.first];
    int64_t reply_ms = since_ms + connection->replied.late_ms +
                       twi_estimate_wait_ms(&connection->estimate, connection->timeout_ms, twi_pending_bytes(pending),
                                            connection->phase != TWI_UP);
    if (pending->command == TWI_WAIT || pending->command == TWI_MESSAGE_WAIT) reply_ms += WAIT_SLACK_MS;
    return reply_ms < out_ms ? reply_ms : out_ms;
}

void twi_transfer_expire(struct twi_connection *connection, int64_t now_ms) {
    int64_t since_ms = twi_pipeline_awaited_since_ms(&connection->pipeline);
    if (now_ms < twi_transfer_deadline_ms(connection)) return;
    if (connection->replied.at_ms > since_ms) since_ms = connection->replied.at_ms;
    int64_t waited_ms = now_ms - since_ms;
    twi_connection_time_out(connection, waited_ms);
    if (connection->phase <= TWI_GREETING || connection->pipeline.count == 0) return; /* it has its longest time */
    twi_estimate_timed_out(&connection->estimate, twi_pending_bytes(twi_pipeline_at(&connection->pipeline, 0)),
                           waited_ms);
}
