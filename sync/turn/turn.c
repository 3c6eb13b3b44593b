/* turn.c -- one bounded round: connect, receive, collect, send. Never waits.
 *
 * Bounds: one connection step, RECEIVE_BYTES_MAX in, TWI_PIPELINE_MAX batches collected and sent.
 * Deadlines: each reply has `timeout_ms` from the moment its request had gone out whole, or from the reply before it,
 * dripping or not; a request has ten times that to go out. Time in which no turn came though one was due (a starved
 * thread, a stopped process) is no evidence against Redis: it is added, up to nine times `timeout_ms`.
 * A step that finds the connection broken marks it, and is the last one: replies that were read behind the one that
 * shows it are not looked at, and nothing more is sent. The connection ends here, in one place.
 * Always true: at the end of a turn fd, wants_write and wake_ms tell what to wait for. */
#include "sync/turn/turn.h"

#include <string.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/turn/collect.h"
#include "sync/turn/connect.h"
#include "sync/turn/instance.h"
#include "sync/turn/outcome.h"
#include "sync/turn/merge_plain.h"
#include "sync/turn/send.h"
#include "sync/message/closing.h"
#include "sync/message/lease.h"
#include "sync/message/message.h"
#include "sync/message/presence.h"
#include "sync/message/registry.h"
#include "sync/message/replicas.h"
#include "sync/message/state.h"

#define LATE_MS 5 /* less than that is no lateness: a scheduler's, a clock's grain */
#define LATE_TIMES 9
#define RECEIVE_BYTES_MAX (1u << 20) /* per turn */
#define WAIT_SLACK_MS 250 /* Redis looks ten times a second at whose WAIT is over, and may be late for that */

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* How many batches may be in flight: as many as the way asks for, or one to try with, or none before the back-off is
 * over. */
static uint32_t pipeline_room(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    if (connection->breaker.state == TWI_BREAKER_CLOSED)
        return sync->store.merge == TW_MERGE_SCRIPT ? twi_depth_load(&connection->depth).batches : 1;
    return twi_breaker_may_try(&connection->breaker, now_ms) ? 1 : 0;
}

static void send_batches(struct twi_sync *sync, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_connection *connection = &sync->connection;
    if (store->rewind) {
        if (connection->pipeline.count) return; /* their answers belong to the old order */
        store->rewind = false;
        store->sent_number = store->ledger.confirmed;
    }
    uint32_t room = pipeline_room(sync, now_ms);
    /* The answers of these are awaited beside those of batches. */
    room += connection->rewrite.is_under_way + connection->replicas.waits + connection->messages.count +
            connection->messages.waits;
    uint64_t before = store->sent_number;
    bool was_idle = connection->pipeline.count == 0;
    struct twi_batch *batch = twi_ledger_unconfirmed(&store->ledger);
    while (batch && batch->number <= store->sent_number) batch = batch->next;
    for (; batch && connection->pipeline.count < room && !connection->failure.is_there; batch = batch->next) {
        store->sent_number = batch->number;
        if (store->merge == TW_MERGE_SCRIPT)
            twi_send_batch(sync, batch, TWI_BATCH, now_ms);
        else
            twi_merge_plain_send(sync, batch, now_ms);
    }
    if (!connection->replicas.wanted || store->sent_number == before || connection->failure.is_there) return;
    twi_replicas_request(connection, now_ms);
    if (was_idle) /* its answer tells how long all of the way takes, the replicas' with it */
        twi_pipeline_at(&connection->pipeline, connection->pipeline.count - 1)->alone = true;
}

static void mark_sent(struct twi_connection *connection, int64_t now_ms) {
    for (uint32_t i = 0; i < connection->pipeline.count; i++) {
        struct twi_pending *pending = twi_pipeline_at(&connection->pipeline, i);
        if (pending->out_end > connection->pipeline.out_sent) break;
        if (pending->sent_ms) continue;
        pending->sent_ms = now_ms ? now_ms : 1;
        pending->wall_ms = twi_port_wall_ms(connection->engine);
        if (pending->alone) pending->sent_us = twi_port_mono_us(connection->engine);
    }
}

static void flush_out(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    while (!twi_pipeline_is_sent(&connection->pipeline)) {
        ssize_t sent = connection->endpoint.transport->send(
            connection->endpoint.transport_ctx, connection->pipeline.out.data + connection->pipeline.out_at,
            connection->pipeline.out.size - connection->pipeline.out_at);
        if (sent < 0) {
            twi_connection_fail(connection, false,
                                connection->endpoint.transport->why(connection->endpoint.transport_ctx));
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

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static twi_taker *const takers[] = {
    [TWI_AUTH] = twi_connect_reply,
    [TWI_SELECT] = twi_connect_reply,
    [TWI_PING] = twi_connect_reply,
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
};

/* Its last byte went out; or, of many commands, the first of them did. */
static bool was_asked(const struct twi_pipeline *pipeline) {
    const struct twi_pending *pending = &pipeline->pending[pipeline->first];
    if (pipeline->count == 0) return false;
    return pending->sent_ms || (pending->command == TWI_MERGE_PLAIN && pipeline->out_sent > pending->out_begin);
}

/* How far Redis is, by what was under way alone. Where replicas are waited for, they are a part of the way. */
static void note_way(struct twi_connection *connection, const struct twi_pending *pending) {
    if (pending->sent_us == 0 || pending->command == TWI_MERGE_PLAIN) return;
    if (connection->replicas.wanted != 0 && pending->command != TWI_WAIT) return;
    int64_t now_us = twi_port_mono_us(connection->engine);
    twi_depth_note(&connection->depth, now_us - pending->sent_us, pending->batch ? pending->batch->key_count : 0,
                   now_us);
}

/* Every whole reply that is there, up to one that shows the connection broken. */
static void take_replies(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
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
        connection->reply_ms = now_ms;
        connection->late_ms = 0;
        note_way(connection, &pending);
        takers[pending.command](sync, &pending, nodes, count, now_ms);
    }
}

static void receive(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    char chunk[16384];
    for (size_t total = 0; total < RECEIVE_BYTES_MAX && !connection->failure.is_there;) {
        ssize_t got = connection->endpoint.transport->recv(connection->endpoint.transport_ctx, chunk, sizeof chunk);
        if (got == 0) return;
        if (got < 0) {
            twi_connection_fail(connection, false,
                                connection->endpoint.transport->why(connection->endpoint.transport_ctx));
        } else if (!twi_reader_feed(connection->pipeline.reader, chunk, (size_t)got)) {
            twi_connection_fail(connection, false, "a reply too long");
        } else {
            total += (size_t)got;
            take_replies(sync, now_ms);
        }
    }
}

/* When the connection is given up if nothing comes; INT64_MAX: nothing is awaited. */
static int64_t deadline_of(const struct twi_connection *connection) {
    int64_t out_ms = !twi_pipeline_is_sent(&connection->pipeline)
                         ? connection->pipeline.out_moved_ms + 10 * (int64_t)connection->timeout_ms
                         : INT64_MAX;
    int64_t since_ms = twi_pipeline_awaited_since_ms(&connection->pipeline);
    if (since_ms == 0) return out_ms;
    if (connection->reply_ms > since_ms) since_ms = connection->reply_ms;
    bool is_first =
        connection->phase != TWI_UP && connection->breaker.failures == 0; /* has ten times the time, as its dialling */
    int64_t reply_ms = since_ms + (is_first ? 10 : 1) * (int64_t)connection->timeout_ms + connection->late_ms;
    enum twi_command command = connection->pipeline.pending[connection->pipeline.first].command;
    if (command == TWI_WAIT || command == TWI_MESSAGE_WAIT) reply_ms += WAIT_SLACK_MS;
    return reply_ms < out_ms ? reply_ms : out_ms;
}

/* ---- the round --------------------------------------------------------------------------------------------------- */

/* A flush cuts a back-off short, once: whoever waits may know that Redis is back. */
static void nudge(struct twi_sync *sync, int64_t now_ms) {
    uint64_t taken = twi_load_relaxed(&sync->tickets.taken);
    if (taken == sync->nudged || !twi_ticket_waits(&sync->tickets)) return;
    sync->nudged = taken;
    twi_breaker_nudge(&sync->connection.breaker, now_ms);
}

static int64_t earlier(int64_t a_ms, int64_t b_ms) {
    return a_ms < b_ms ? a_ms : b_ms;
}

/* This turn may come later than the one before wished for. Nobody has looked since, and Redis may have been as short of
 * time. */
static void note_lateness(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    int64_t due_ms = twi_load_relaxed(&sync->published.wake_ms), most_ms = LATE_TIMES * (int64_t)connection->timeout_ms;
    if (sync->own_thread) due_ms = earlier(due_ms, sync->turned_ms + TWI_TICK_MS);
    if (due_ms < sync->turned_ms) due_ms = sync->turned_ms;
    sync->turned_ms = now_ms;
    if (twi_pipeline_awaited_since_ms(&connection->pipeline) == 0) {
        connection->late_ms = 0;
    } else if (now_ms - due_ms >= LATE_MS) {
        connection->late_ms += now_ms - due_ms + connection->timeout_ms / 4; /* and a while to look once more */
        if (connection->late_ms > most_ms) connection->late_ms = most_ms;
    }
}

/* When there is something to do that no byte from Redis announces. */
static int64_t wake_at(const struct twi_sync *sync, int64_t now_ms, int fd) {
    const struct twi_store *store = &sync->store;
    const struct twi_connection *connection = &sync->connection;
    const struct twi_breaker *breaker = &connection->breaker;
    if (connection->phase == TWI_DOWN) return breaker->state == TWI_BREAKER_OPEN ? breaker->retry_at_ms : now_ms;
    if (connection->phase == TWI_CONNECTING) /* 10 ms: a look-up has no descriptor; else: the next address's turn */
        return earlier(now_ms + (fd < 0 ? 10 : connection->timeout_ms), connection->phase_deadline_ms);
    int64_t wake_ms = deadline_of(connection);
    if (connection->phase == TWI_UP && !store->rewind && connection->messages.of[TWI_SENDER_LEASES] < TWI_LEASES_MAX &&
        breaker->state == TWI_BREAKER_CLOSED)
        wake_ms = earlier(wake_ms, twi_port_lease_due(sync->engine));
    if (connection->phase == TWI_UP && !store->rewind && twi_presence_wait(&store->presence) &&
        breaker->state == TWI_BREAKER_CLOSED)
        return now_ms;
    if (connection->phase == TWI_UP && !store->rewind && breaker->state == TWI_BREAKER_CLOSED)
        wake_ms = earlier(earlier(wake_ms, twi_registry_due_ms(store)), twi_closing_sender_due_ms(store));
    if (breaker->state == TWI_BREAKER_OPEN) return earlier(wake_ms, breaker->retry_at_ms);
    if (connection->phase != TWI_UP || twi_sync_is_full(sync) || breaker->state != TWI_BREAKER_CLOSED) return wake_ms;
    if (store->rewind && connection->pipeline.count == 0) return now_ms;
    if (twi_ledger_is_replaying(&store->ledger)) return connection->pipeline.count ? wake_ms : now_ms;
    if (now_ms < sync->collecting.hold_ms) return earlier(wake_ms, sync->collecting.hold_ms);
    if (twi_replicas_hold(sync))
        return earlier(wake_ms, connection->replicas.ask_at_ms > now_ms ? connection->replicas.ask_at_ms : now_ms + 1);
    if (sync->collecting.is_under_way || sync->collecting.begin_again ||
        (twi_ticket_waits((struct twi_tickets *)&sync->tickets) && !sync->tickets.active))
        return now_ms;
    if (sync->tickets.collecting) return now_ms + 1; /* adders of before are setting their marks */
    /* Due, but nothing was marked: look again soon; marks raise no alarm (P9). */
    int64_t look_ms = sync->collecting.at_ms > now_ms ? sync->collecting.at_ms : now_ms + sync->interval_ms / 4 + 1;
    return earlier(wake_ms, look_ms);
}

static void publish(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    bool wants_write = false;
    int fd = connection->endpoint.transport->fd(connection->endpoint.transport_ctx, &wants_write);
    if (!twi_pipeline_is_sent(&connection->pipeline)) wants_write = true;
    twi_store_relaxed(&sync->published.fd,
                      fd); /* hints: whoever reads an old one wakes once too often or at its own tick */
    twi_store_relaxed(&sync->published.wants_write, wants_write);
    bool away = connection->phase != TWI_UP || connection->breaker.state != TWI_BREAKER_CLOSED;
    int64_t since_ms = twi_load_relaxed(&sync->published.outage_since_ms);
    if (away && since_ms == 0) since_ms = now_ms ? now_ms : 1;
    twi_store_relaxed(&sync->published.outage_since_ms, away ? since_ms : 0);
    twi_port_outage(sync->engine, away && connection->breaker.failures != 0 ? since_ms : 0);
    twi_store_relaxed(&sync->published.breaker_state, connection->breaker.state);
    twi_store_relaxed(&sync->published.wake_ms, wake_at(sync, now_ms, fd));
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void look_at_deadline(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    if (now_ms >= deadline_of(connection)) twi_connection_fail(connection, false, "no answer in time");
}

static void open_again(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    if (connection->phase == TWI_OPENING && connection->pipeline.count == 0 && pipeline_room(sync, now_ms))
        twi_connect_open(sync, now_ms);
}

/* In this order, each in the phases from `from` on. */
static const struct {
    void (*make)(struct twi_sync *sync, int64_t now_ms);
    enum twi_phase from;
} steps[] = {
    {twi_connect_step, TWI_DOWN}, {receive, TWI_GREETING},       {look_at_deadline, TWI_GREETING},
    {open_again, TWI_OPENING},    {twi_connect_rewrite, TWI_UP}, {twi_replicas_step, TWI_UP},
    {twi_collect, TWI_UP},        {send_batches, TWI_UP},        {twi_lease_step, TWI_UP},
    {twi_presence_step, TWI_UP},  {twi_registry_step, TWI_UP},   {twi_closing_sender_step, TWI_UP},
    {twi_message_step, TWI_UP},   {flush_out, TWI_GREETING},
};

void twi_sync_turn(struct twi_sync *sync) {
    struct twi_connection *connection = &sync->connection;
    int64_t now_ms = twi_port_mono_ms(sync->engine);
    note_lateness(sync, now_ms);
    nudge(sync, now_ms);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !connection->failure.is_there; i++) {
        if (connection->phase < steps[i].from) continue;
        steps[i].make(sync, now_ms);
        if (connection->pipeline.out.failed) twi_connection_fail(connection, false, "no memory");
    }
    if (connection->failure.is_there) twi_connect_end(sync, now_ms);
    twi_check_full(twi_ledger_is_valid(&sync->store.ledger));
    publish(sync, now_ms);
}
