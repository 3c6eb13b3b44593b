/* transfer.c -- sends and receives the bytes of one connection, and limits the time for a reply.   Steps 5 and 6.
 *
 * A reply has `timeout_ms` from the moment its request went out whole, or from the reply before it, even if its bytes
 * arrive one by one. It has longer if measurements show that this is too short. Then it has four round trips, twice the
 * time that the link needs for the request's bytes, and twice as long after each deadline that passed (pace.h). A
 * connection that is not up yet has ten times `timeout_ms` for a reply. A request has ten times `timeout_ms` to go out.
 * Always true: a turn reads at most RECEIVE_BYTES_MAX. Replies behind the one that shows the connection broken are not
 * read. */
#include "sync/turn/transfer.h"

#include "engine/base/check.h"
#include "engine/base/probe.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/message/message.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"
#include "sync/turn/connect.h"
#include "sync/turn/instance.h"
#include "sync/turn/merge_plain.h"
#include "sync/turn/nodes.h"
#include "sync/turn/settle.h"
#include "sync/turn/split.h"

#include <inttypes.h>

/* ---- outcome ----
 * the effect of a reply on batches, and through settle.c on counters.   Steps 7 and 8 of the flow.
 *
 *   reply       the batch                                     the connection
 *   OK, DUP     confirmed; its items settled, once            continues
 *   GAP         waits; behind `confirmed`: Redis went back    continues, from `confirmed` + 1
 *   PAST        waits; the store is asked about the numbers   continues, from the first of these
 *               that it remembers
 *   GONE        waits                                         ends; an opening, if that store stays
 *   CLASH       of a step: the ledger is behind it, so the    continues, behind the ledger's last number
 *               numbers are replaced already
 *               else uncertain, if it was perhaps applied     ends, new instance
 *   NOSCRIPT    waits                                         continues, with the script's text
 *   REFUSED     waits                                         continues after a back-off
 *   TURNED_AWAY waits                                         ends, slowly tried again
 *   UNKNOWN     waits, its outcome open                       ends
 *   none        waits, its outcome open: no reply in time,    ends; the same batch is sent again under its number, and
 *               or the connection was lost before one came    OK or DUP says what became of it
 * instance.c decides about the instance after GONE.
 * Always true: an item is settled only by the first reply that shows that its batch was applied, or when its batch is
 * given up. Replies about batches out of turn are ignored. These batches are sent again and answered DUP. */

static const char clash[] = "two engines use one ledger, or another version does";

/* ---- applied ----------------------------------------------------------------------------------------------------- */

static enum twi_inflight_outcome outcome_of(const struct twi_item_answer *result) {
    if (result->kind == TWI_ITEM_FAILED) return TWI_OUTCOME_RETURNS;
    return result->kind == TWI_ITEM_LATE ? TWI_OUTCOME_LATE : TWI_OUTCOME_APPLIED;
}

static bool items_are_whole(struct twi_batch *batch, const struct twi_node *nodes, size_t count, size_t at) {
    twi_check(at >= 1);
    struct twi_item_answer result;
    for (uint32_t i = 0; i < batch->key_count; i++) {
        if (!twi_reply_item(nodes, count, &at, &result)) return false;
        if (batch->items) twi_inflight_outcome(batch, i, outcome_of(&result));
    }
    return at == count;
}

/* Settles an item that Redis refused. Its delta leaves the batch. A replay must not bring it to Redis, and a loss of
 * the batch does not include it. */
static void settle_refused_item(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch, uint32_t index,
                                const struct twi_item_answer *result, int64_t now_ms) {
    twi_check(index < batch->item_count);
    twi_check(result->kind == TWI_ITEM_FAILED || result->kind == TWI_ITEM_LATE);
    bool returns = result->kind == TWI_ITEM_FAILED;
    uint64_t units = returns ? twi_batch_set_aside(batch, index) : twi_batch_strike(batch, index);
    twi_ledger_note_missing(&store->ledger, batch->number, units);
    twi_settle_item(sync, store, &batch->items[index], batch->number, result, false, now_ms);
}

static void settle_items(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch,
                         const struct twi_node *nodes, size_t count, const struct twi_reply_head *head,
                         int64_t now_ms) {
    twi_check(batch->items != NULL && batch->item_count == batch->key_count);
    size_t at = head->items_at;
    bool uncertain = head->kind == TWI_REPLY_DUP && !head->done;
    batch->was_short = uncertain;
    if (uncertain) twi_inflight_outcome_of_all(batch, TWI_OUTCOME_UNCERTAIN);
    twi_inflight_settle(batch);
    for (uint32_t i = 0; i < batch->item_count; i++) {
        struct twi_item_answer result;
        twi_inflight_next(batch, i);
        bool whole = twi_reply_item(nodes, count, &at, &result);
        twi_check(whole); /* items_are_whole() has walked it */
        if (uncertain && batch->items[i].delta)
            twi_settle_give_up_item(sync, &batch->items[i], TW_LOST_UNCERTAIN);
        else if (result.kind == TWI_ITEM_FAILED || result.kind == TWI_ITEM_LATE)
            settle_refused_item(sync, store, batch, i, &result, now_ms);
        else
            twi_settle_item(sync, store, &batch->items[i], batch->number, &result, head->last == batch->number, now_ms);
    }
    twi_inflight_next(batch, batch->item_count);
    twi_batch_items_drop(batch);
}

struct replayed {
    uint64_t refused; /* units not restored, because Redis refuses the key by now (a late item's key has ended) */
    uint64_t twice;   /* this store has them, but another one refused them, so they went back to their counters */
};

static struct replayed replay_items(struct twi_store *store, struct twi_batch *batch, const struct twi_node *nodes,
                                    size_t count, size_t at) {
    twi_check(batch->items == NULL);
    struct replayed units = {0};
    for (uint32_t i = 0; i < batch->key_count; i++) {
        struct twi_item_answer result;
        bool whole = twi_reply_item(nodes, count, &at, &result);
        twi_check(whole); /* items_are_whole() has walked it */
        if (result.kind == TWI_ITEM_FAILED)
            units.refused += twi_batch_strike(batch, i);
        else if (result.kind != TWI_ITEM_LATE)
            units.twice += twi_batch_take_aside(batch, i);
    }
    twi_ledger_note_missing(&store->ledger, batch->number, units.refused);
    return units;
}

/* One store applied a delta, and another store refused it before we knew that. The delta went back to its counter,
 * so the first store gets it a second time. */
static void note_twice(struct twi_sync *sync, uint64_t units) {
    if (units == 0) return;
    twi_port_count(sync->engine, uncertain, (int64_t)units);
    twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_POISON,
                 "a key was refused by one store and taken by another: %" PRIu64 " units are perhaps counted twice",
                 units);
}

static void settle_replay(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch,
                          const struct twi_node *nodes, size_t count, const struct twi_reply_head *head,
                          int64_t now_ms) {
    twi_check(batch->items == NULL && batch->struck <= batch->plus + batch->minus);
    int64_t units = (int64_t)(batch->plus + batch->minus - batch->struck);
    if (head->kind == TWI_REPLY_DUP && !head->done) { /* that run was cut short */
        if (!batch->was_short) twi_port_count(sync->engine, uncertain, units);
        batch->was_short = true;
        return;
    }
    bool went_back = head->kind == TWI_REPLY_OK && batch->number <= store->ledger.looked;
    if (went_back) twi_instance_went_back(sync, store, store->ledger.looked - batch->before, 0, now_ms);
    struct replayed of = replay_items(store, batch, nodes, count, head->items_at);
    if (!batch->was_short) twi_port_count(sync->engine, lost, (int64_t)of.refused);
    note_twice(sync, of.twice);
    if (head->kind == TWI_REPLY_OK) twi_port_count(sync->engine, replayed, units - (int64_t)of.refused);
}

static void settle_applied(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch,
                           const struct twi_node *nodes, size_t count, const struct twi_reply_head *head,
                           int64_t now_ms) {
    twi_check(head->kind == TWI_REPLY_OK || head->kind == TWI_REPLY_DUP);
    if (!twi_instance_is_ours(sync, store, head)) return;
    /* A reply of "applied" with a ledger number before the batch's own makes no sense, whoever sent it. */
    if (head->last < batch->number || !items_are_whole(batch, nodes, count, head->items_at)) {
        twi_connection_fail(store->route.via, false, "a reply that is not understood");
        return;
    }
    if (batch->before != store->ledger.confirmed) { /* out of turn */
        store->rewind = true;
        return;
    }
    if (head->kind == TWI_REPLY_OK)
        twi_port_count(sync->engine, batches_ok, 1);
    else
        twi_port_count(sync->engine, batches_dup, 1);
    if (batch->items)
        settle_items(sync, store, batch, nodes, count, head, now_ms);
    else
        settle_replay(sync, store, batch, nodes, count, head, now_ms);
    twi_replay_ring_note(batch);
    twi_ledger_confirm(&store->ledger, batch);
    twi_ledger_keep(&store->ledger, batch);
    twi_instance_note(sync, store, head);
    if (head->kind == TWI_REPLY_OK) twi_instance_entered(store, head, now_ms); /* a DUP writes nothing */
    twi_estate_save(sync, store);
    twi_inflight_forget(batch); /* after its number is saved */
    if (head->kind == TWI_REPLY_OK && store->route.via == store->connection)
        store->wrote_number = batch->number; /* that connection has written it */
    twi_sync_trim(sync, store, now_ms);      /* this may free `batch` */
    twi_settle_success(sync, store->route.via, now_ms);
    if (!twi_ledger_is_replaying(&store->ledger) && store->assumed.is_restoring) {
        store->assumed.is_restoring = false;
        twi_port_log(sync->engine, TW_LOG_INFO, TW_EVENT_ROLLBACK, "what could be restored in Redis has been restored");
    }
    twi_refusal_unhealed(store->route.via, head->unhealed, now_ms);
    twi_ticket_acknowledged(&sync->tickets, &store->flush, twi_ledger_safe(&store->ledger));
}

/* ---- Redis went back, or another engine has our ledger ----------------------------------------------------------- */

static void settle_gap(struct twi_sync *sync, const struct twi_connection *connection, struct twi_store *store,
                       const struct twi_reply_head *head, int64_t now_ms) {
    twi_check(head->kind == TWI_REPLY_GAP);
    twi_port_count(sync->engine, batches_gap, 1);
    twi_instance_at_own_store(connection, store);
    twi_instance_at(sync, store, head, now_ms);
}

/* The store went back, got batches again, and is now further than that, at its former number. Another store was seen in
 * between. */
static void settle_past(struct twi_sync *sync, struct twi_store *store, const struct twi_batch *batch,
                        const struct twi_reply_head *head) {
    twi_check(head->kind == TWI_REPLY_PAST);
    if (!twi_instance_is_ours(sync, store, head)) return;
    store->rewind = true;
    if (batch->before != store->ledger.confirmed) return; /* out of turn */
    if (!twi_ledger_skip_to(&store->ledger, head->last)) twi_instance_lose(sync, store, clash);
}

/* A step over batches that could not be replayed meets a store that has their numbers after all. The step is
 * confirmed. */
static void settle_clash(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch,
                         const struct twi_reply_head *head) {
    twi_check(head->kind == TWI_REPLY_CLASH);
    if (!batch->is_step || !head->has_last || head->last < batch->number || head->last > store->ledger.last) {
        twi_instance_lose(sync, store, clash);
        return;
    }
    store->rewind = true;
    if (batch->before != store->ledger.confirmed) return;
    twi_ledger_confirm(&store->ledger, batch);
    twi_ledger_keep(&store->ledger, batch);
    twi_estate_save(sync, store);
    twi_inflight_forget(batch);
}

/* ---- every reply ------------------------------------------------------------------------------------------------- */

void twi_outcome_reply(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                       const struct twi_node *nodes, size_t count, int64_t now_ms) {
    twi_check(pending->command == TWI_BATCH && pending->store != NULL && pending->batch != NULL);
    struct twi_store *store = pending->store;
    struct twi_reply_head head;
    struct twi_batch *batch = pending->batch;
    if (!twi_reply_read(nodes, count, &head)) {
        twi_connection_fail(connection, false, "a reply that is not understood");
        return;
    }
    TWI_PROBE3(batch_answered, batch->number, (int)head.kind, now_ms - batch->sent_ms);
    twi_settle_clock(connection, pending, head.redis_ms, now_ms);
    /* A reply "not applied" closes a copy. A copy that was applied, or perhaps applied, stays open until its batch
     * is confirmed. If the ledger vanishes before that, the batch is uncertain, not "surely not applied". */
    bool applied = head.kind == TWI_REPLY_OK || head.kind == TWI_REPLY_DUP || head.kind == TWI_REPLY_UNKNOWN;
    if (!applied && batch->copies_open) batch->copies_open--;
    if (head.kind != TWI_REPLY_NOSCRIPT) store->route.asking = NULL;
    if (head.error && twi_cluster_redirects(sync, connection, store, head.error, now_ms)) {
        twi_cluster_sent_away(sync, store, head.error, now_ms);
        twi_settle_success(sync, connection, now_ms); /* the node answers */
        return;
    }
    if (head.kind != TWI_REPLY_NOSCRIPT) twi_detour_end(&store->route.detour);
    switch (head.kind) {
    case TWI_REPLY_OK:
    case TWI_REPLY_DUP:
        twi_instance_at_own_store(connection, store);
        store->assumed.written_ms = now_ms;
        settle_applied(sync, store, batch, nodes, count, &head, now_ms);
        break;
    case TWI_REPLY_GAP: settle_gap(sync, connection, store, &head, now_ms); break;
    case TWI_REPLY_PAST: settle_past(sync, store, batch, &head); break;
    case TWI_REPLY_GONE: twi_instance_gone(sync, store, now_ms); break;
    case TWI_REPLY_CLASH: settle_clash(sync, store, batch, &head); break;
    case TWI_REPLY_KEPT: twi_connection_fail(connection, false, "a reply that is not understood"); break;
    case TWI_REPLY_NOSCRIPT: store->rewind = connection->use_eval = true; break;
    default: twi_settle_refused(sync, connection, store, &head, now_ms);
    }
}

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
