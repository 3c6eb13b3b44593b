/* turn.c -- one bounded round: connect, receive, collect, send. Never waits.
 *
 * Bounds: one connection step, TWI_RECEIVE_BYTES_MAX in, TWI_PIPELINE_MAX batches collected and sent.
 * Deadlines: each reply has `timeout_ms` from the moment its request had gone out whole, or from the reply before it,
 * dripping or not; a request has ten times that to go out. Time in which no turn came though one was due (a starved
 * thread, a stopped process) is no evidence against Redis: it is added, up to nine times `timeout_ms`.
 * A step that finds the connection broken marks it, and is the last one: replies that were read behind the one that shows it are not
 * looked at, and nothing more is sent. The connection ends here, in one place.
 * Always true: at the end of a turn fd, wants_write and wake_ms tell what to wait for. */
#include "sync/turn/turn.h"

#include <string.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "sync/turn/collect.h"
#include "sync/turn/connect.h"
#include "sync/turn/instance.h"
#include "sync/turn/outcome.h"
#include "sync/turn/merge_plain.h"
#include "sync/message/replicas.h"
#include "sync/message/state.h"

#define LATE_MS 5 /* less than that is no lateness: a scheduler's, a clock's grain */
#define LATE_TIMES 9

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* How many batches may be in flight: as many as the way asks for, or one to try with, or none before the back-off is over. */
static uint32_t pipeline_room(struct twi_sync *sync, int64_t now_ms) {
    if (sync->breaker.state == TWI_BREAKER_CLOSED)
        return sync->merge == TW_MERGE_SCRIPT ? twi_depth_load(&sync->depth).batches : 1;
    return twi_breaker_may_try(&sync->breaker, now_ms) ? 1 : 0;
}

static void send_batches(struct twi_sync *sync, int64_t now_ms) {
    if (sync->rewind) {
        if (sync->pending_count) return; /* their answers belong to the old order */
        sync->rewind = false;
        sync->sent_number = sync->ledger.confirmed;
    }
    uint32_t room = pipeline_room(sync, now_ms);
    /* The answers of these are awaited beside those of batches. */
    room += sync->rewriting + sync->waits + sync->messages.count + sync->messages.waits;
    uint64_t before = sync->sent_number;
    bool was_idle = sync->pending_count == 0;
    struct twi_batch *batch = twi_ledger_unconfirmed(&sync->ledger);
    while (batch && batch->number <= sync->sent_number) batch = batch->next;
    for (; batch && sync->pending_count < room && !sync->failure.is_there; batch = batch->next) {
        sync->sent_number = batch->number;
        if (sync->merge == TW_MERGE_SCRIPT)
            twi_pipeline_batch(sync, batch, TWI_BATCH, now_ms);
        else
            twi_merge_plain_send(sync, batch, now_ms);
    }
    if (!sync->wait_replicas || sync->sent_number == before || sync->failure.is_there) return;
    twi_replicas_request(sync, now_ms);
    if (was_idle) /* its answer tells how long all of the way takes, the replicas' with it */
        sync->pending[(sync->pending_first + sync->pending_count - 1) % TWI_PENDING_MAX].alone = true;
}

static void mark_sent(struct twi_sync *sync, int64_t now_ms) {
    for (uint32_t i = 0; i < sync->pending_count; i++) {
        struct twi_pending *pending = &sync->pending[(sync->pending_first + i) % TWI_PENDING_MAX];
        if (pending->out_end > sync->out_sent) break;
        if (pending->sent_ms) continue;
        pending->sent_ms = now_ms ? now_ms : 1;
        pending->wall_ms = twi_port_wall_ms(sync->engine);
        if (pending->alone) pending->sent_us = twi_port_mono_us(sync->engine);
    }
}

static void flush_out(struct twi_sync *sync, int64_t now_ms) {
    while (sync->out_at < sync->out.size) {
        ssize_t sent =
            sync->transport->send(sync->transport_ctx, sync->out.data + sync->out_at, sync->out.size - sync->out_at);
        if (sent < 0) {
            twi_sync_fail(sync, false, sync->transport->why(sync->transport_ctx));
            return;
        }
        if (sent == 0) break;
        sync->out_at += (size_t)sent;
        sync->out_sent += (uint64_t)sent;
        sync->out_moved_ms = now_ms;
    }
    mark_sent(sync, now_ms);
    if (sync->out_at < sync->out.size) return;
    sync->out_at = 0;
    if (sync->phase == TWI_GREETING)
        twi_bytes_wipe(&sync->out); /* the password */
    else
        sync->out.size = 0;
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
static bool was_asked(const struct twi_sync *sync, const struct twi_pending *pending) {
    return pending->sent_ms || (pending->command == TWI_MERGE_PLAIN && sync->out_sent > sync->merge_plain.out_begin);
}

/* How far Redis is, by what was under way alone. Where replicas are waited for, they are a part of the way. */
static void note_way(struct twi_sync *sync, const struct twi_pending *pending) {
    if (pending->sent_us == 0 || pending->command == TWI_MERGE_PLAIN) return;
    if (sync->wait_replicas != 0 && pending->command != TWI_WAIT) return;
    int64_t now_us = twi_port_mono_us(sync->engine);
    twi_depth_note(&sync->depth, now_us - pending->sent_us, pending->batch ? pending->batch->key_count : 0, now_us);
}

/* Every whole reply that is there, up to one that shows the connection broken. */
static void take_replies(struct twi_sync *sync, int64_t now_ms) {
    while (!sync->failure.is_there) {
        const struct twi_node *nodes;
        size_t count;
        enum twi_wire wire = twi_reader_next(sync->reader, &nodes, &count);
        if (wire == TWI_WIRE_MORE) return;
        bool asked = sync->pending_count > 0 && was_asked(sync, &sync->pending[sync->pending_first]);
        if (wire == TWI_WIRE_BAD || !asked) {
            twi_sync_fail(sync, false, wire == TWI_WIRE_BAD ? "not the Redis protocol" : "an answer nobody asked for");
            return;
        }
        struct twi_pending pending = sync->pending[sync->pending_first];
        if (--sync->pending[sync->pending_first].replies == 0) {
            sync->pending_first = (sync->pending_first + 1) % TWI_PENDING_MAX;
            sync->pending_count--;
        }
        sync->reply_ms = now_ms;
        sync->late_ms = 0;
        note_way(sync, &pending);
        takers[pending.command](sync, &pending, nodes, count, now_ms);
    }
}

static void receive(struct twi_sync *sync, int64_t now_ms) {
    char chunk[16384];
    for (size_t total = 0; total < TWI_RECEIVE_BYTES_MAX && !sync->failure.is_there;) {
        ssize_t got = sync->transport->recv(sync->transport_ctx, chunk, sizeof chunk);
        if (got == 0) return;
        if (got < 0) {
            twi_sync_fail(sync, false, sync->transport->why(sync->transport_ctx));
        } else if (!twi_reader_feed(sync->reader, chunk, (size_t)got)) {
            twi_sync_fail(sync, false, "a reply too long");
        } else {
            total += (size_t)got;
            take_replies(sync, now_ms);
        }
    }
}

/* When the connection is given up if nothing comes; INT64_MAX: nothing is awaited. */
static int64_t deadline_of(const struct twi_sync *sync) {
    int64_t out_ms = sync->out_at < sync->out.size ? sync->out_moved_ms + 10 * (int64_t)sync->timeout_ms : INT64_MAX;
    if (sync->pending_count == 0 || !sync->pending[sync->pending_first].sent_ms) return out_ms;
    int64_t since_ms = sync->pending[sync->pending_first].sent_ms;
    if (sync->reply_ms > since_ms) since_ms = sync->reply_ms;
    bool is_first = sync->phase != TWI_UP && sync->breaker.failures == 0; /* has ten times the time, as its dialling */
    int64_t reply_ms = since_ms + (is_first ? 10 : 1) * (int64_t)sync->timeout_ms + sync->late_ms;
    enum twi_command command = sync->pending[sync->pending_first].command;
    if (command == TWI_WAIT || command == TWI_MESSAGE_WAIT) reply_ms += TWI_WAIT_SLACK_MS;
    return reply_ms < out_ms ? reply_ms : out_ms;
}

/* ---- the round --------------------------------------------------------------------------------------------------- */

/* A flush cuts a back-off short, once: whoever waits may know that Redis is back. */
static void nudge(struct twi_sync *sync, int64_t now_ms) {
    uint64_t taken = twi_load_relaxed(&sync->tickets.taken);
    if (taken == sync->nudged || !twi_ticket_waits(&sync->tickets)) return;
    sync->nudged = taken;
    twi_breaker_nudge(&sync->breaker, now_ms);
}

static int64_t earlier(int64_t a_ms, int64_t b_ms) {
    return a_ms < b_ms ? a_ms : b_ms;
}

/* This turn may come later than the one before wished for. Nobody has looked since, and Redis may have been as short of time. */
static void note_lateness(struct twi_sync *sync, int64_t now_ms) {
    int64_t due_ms = twi_load_relaxed(&sync->wake_ms), most_ms = LATE_TIMES * (int64_t)sync->timeout_ms;
    if (sync->own_thread) due_ms = earlier(due_ms, sync->turned_ms + TWI_TICK_MS);
    if (due_ms < sync->turned_ms) due_ms = sync->turned_ms;
    sync->turned_ms = now_ms;
    if (sync->pending_count == 0 || !sync->pending[sync->pending_first].sent_ms) {
        sync->late_ms = 0;
    } else if (now_ms - due_ms >= LATE_MS) {
        sync->late_ms += now_ms - due_ms + sync->timeout_ms / 4; /* and a while to look once more */
        if (sync->late_ms > most_ms) sync->late_ms = most_ms;
    }
}

/* When there is something to do that no byte from Redis announces. */
static int64_t wake_at(const struct twi_sync *sync, int64_t now_ms, int fd) {
    const struct twi_breaker *breaker = &sync->breaker;
    if (sync->phase == TWI_DOWN) return breaker->state == TWI_BREAKER_OPEN ? breaker->retry_at_ms : now_ms;
    if (sync->phase == TWI_CONNECTING) /* 10 ms: a look-up has no descriptor; else: the next address's turn */
        return earlier(now_ms + (fd < 0 ? 10 : sync->timeout_ms), sync->phase_deadline_ms);
    int64_t wake_ms = deadline_of(sync);
    if (sync->phase == TWI_UP && !sync->rewind && sync->messages.of[TWI_SENDER_LEASES] < TWI_LEASES_MAX &&
        breaker->state == TWI_BREAKER_CLOSED)
        wake_ms = earlier(wake_ms, twi_port_lease_due(sync->engine));
    if (sync->phase == TWI_UP && !sync->rewind && twi_presence_wait(&sync->presence) &&
        breaker->state == TWI_BREAKER_CLOSED)
        return now_ms;
    if (sync->phase == TWI_UP && !sync->rewind && breaker->state == TWI_BREAKER_CLOSED)
        wake_ms = earlier(earlier(wake_ms, twi_registry_due_ms(sync)), twi_closing_sender_due_ms(sync));
    if (breaker->state == TWI_BREAKER_OPEN) return earlier(wake_ms, breaker->retry_at_ms);
    if (sync->phase != TWI_UP || twi_sync_is_full(sync) || breaker->state != TWI_BREAKER_CLOSED) return wake_ms;
    if (sync->rewind && sync->pending_count == 0) return now_ms;
    if (twi_ledger_is_replaying(&sync->ledger)) return sync->pending_count ? wake_ms : now_ms;
    if (now_ms < sync->collect_hold_ms) return earlier(wake_ms, sync->collect_hold_ms);
    if (twi_replicas_hold(sync)) return earlier(wake_ms, sync->wait_at_ms > now_ms ? sync->wait_at_ms : now_ms + 1);
    if (sync->collecting || sync->begin_again ||
        (twi_ticket_waits((struct twi_tickets *)&sync->tickets) && !sync->tickets.active))
        return now_ms;
    if (sync->tickets.collecting) return now_ms + 1; /* adders of before are setting their marks */
    /* Due, but nothing was marked: look again soon; marks raise no alarm (P9). */
    int64_t look_ms = sync->collect_at_ms > now_ms ? sync->collect_at_ms : now_ms + sync->interval_ms / 4 + 1;
    return earlier(wake_ms, look_ms);
}

static void publish(struct twi_sync *sync, int64_t now_ms) {
    bool wants_write = false;
    int fd = sync->transport->fd(sync->transport_ctx, &wants_write);
    if (sync->out_at < sync->out.size) wants_write = true;
    twi_store_relaxed(&sync->fd, fd); /* hints: whoever reads an old one wakes once too often or at its own tick */
    twi_store_relaxed(&sync->wants_write, wants_write);
    bool away = sync->phase != TWI_UP || sync->breaker.state != TWI_BREAKER_CLOSED;
    int64_t since_ms = twi_load_relaxed(&sync->outage_since_ms);
    if (away && since_ms == 0) since_ms = now_ms ? now_ms : 1;
    twi_store_relaxed(&sync->outage_since_ms, away ? since_ms : 0);
    twi_port_lease_outage(sync->engine, away && sync->breaker.failures != 0 ? since_ms : 0);
    twi_store_relaxed(&sync->breaker_state, sync->breaker.state);
    twi_store_relaxed(&sync->wake_ms, wake_at(sync, now_ms, fd));
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void look_at_deadline(struct twi_sync *sync, int64_t now_ms) {
    if (now_ms >= deadline_of(sync)) twi_sync_fail(sync, false, "no answer in time");
}

static void open_again(struct twi_sync *sync, int64_t now_ms) {
    if (sync->phase == TWI_OPENING && sync->pending_count == 0 && pipeline_room(sync, now_ms))
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
    int64_t now_ms = twi_port_mono_ms(sync->engine);
    note_lateness(sync, now_ms);
    nudge(sync, now_ms);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !sync->failure.is_there; i++) {
        if (sync->phase < steps[i].from) continue;
        steps[i].make(sync, now_ms);
        if (sync->out.failed) twi_sync_fail(sync, false, "no memory");
    }
    if (sync->failure.is_there) twi_connect_end(sync, now_ms);
    twi_check_full(twi_ledger_is_valid(&sync->ledger));
    publish(sync, now_ms);
}
