/* settle.c -- applies replies to counters and to the connection. Settles items through the port, and informs the
 * breaker, the clock and the log.   Step 8 of the flow.
 * Always true: an item of a batch is settled once. */
#include "sync/turn/settle.h"

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/base/probe.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- one item ---------------------------------------------------------------------------------------------------- */

/* Whose reply is being settled. */
static const struct twi_connection *said_by(const struct twi_store *store) {
    twi_check(store->route.via != NULL || store->connection != NULL);
    return store->route.via ? store->route.via : store->connection;
}

static void acknowledge(struct twi_store *store, const struct twi_item *item, uint64_t number,
                        const struct twi_item_answer *result, bool take_total) {
    twi_check(result->kind == TWI_ITEM_TOTAL || result->kind == TWI_ITEM_NO_TOTAL);
    struct twi_reply answer = {.total = result->total, .has_total = take_total && result->kind == TWI_ITEM_TOTAL};
    if (result->end_ms) answer.end_ms = result->end_ms - said_by(store)->clock.offset_ms;
    if (store->rejected.count && item->delta) twi_rejected_settled(&store->rejected, item, number);
    twi_port_acknowledge(item, &answer);
}

void twi_settle_give_up_item(struct twi_sync *sync, const struct twi_item *item, int reason) {
    if (item->delta == 0) {
        twi_port_return(item, 0); /* it only requests the total, so no count is lost with it */
        return;
    }
    twi_ticket_refused(&sync->tickets);
    twi_port_give_up(item, reason);
}

/* The window is dead by Redis's clock. The reason states whether Redis could not be reached in time, or the clocks
 * differ. */
static void settle_late(struct twi_sync *sync, struct twi_store *store, const struct twi_item *item, uint64_t number) {
    bool was_rejected = store->rejected.count && twi_rejected_settled(&store->rejected, item, number);
    bool over_here = item->expiry_ms && twi_port_wall_ms(sync->engine) >= item->expiry_ms;
    /* Units that an earlier store has, and that were only sent again to this one, are not lost with it. */
    struct twi_item fresh = *item;
    if (twi_port_end_item(&fresh)) twi_ticket_refused(&sync->tickets);
    if (fresh.delta == 0 && item->delta != 0) {
        struct twi_reply none = {0};
        twi_port_acknowledge(&fresh, &none);
        return;
    }
    twi_settle_give_up_item(sync, &fresh, was_rejected ? TW_LOST_POISON : over_here ? TW_LOST_EXPIRED : TW_LOST_LATE);
}

static void settle_failed(struct twi_sync *sync, struct twi_store *store, const struct twi_item *item,
                          const struct twi_node *error, int64_t now_ms) {
    twi_check(item->delta == 0 || error == NULL || error->type == TWI_NODE_ERROR);
    if (item->delta == 0) {
        struct twi_reply none = {0};
        twi_port_acknowledge(item, &none); /* answered, but there is no total */
        return;
    }
    uint32_t wait_ms = twi_refusal_key(sync, store, item, error, now_ms);
    twi_port_return(item, wait_ms + (uint32_t)(twi_sync_random(sync->engine) % (wait_ms / 4 + 1)));
}

void twi_settle_item(struct twi_sync *sync, struct twi_store *store, const struct twi_item *item, uint64_t number,
                     const struct twi_item_answer *result, bool take_total, int64_t now_ms) {
    switch (result->kind) {
    case TWI_ITEM_TOTAL:
    case TWI_ITEM_NO_TOTAL: acknowledge(store, item, number, result, take_total); break;
    case TWI_ITEM_LATE: settle_late(sync, store, item, number); break;
    case TWI_ITEM_FAILED: settle_failed(sync, store, item, result->error, now_ms); break;
    }
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

void twi_settle_give_back(struct twi_batch *batch) {
    twi_check(batch->items == NULL || batch->item_count != 0 || batch->key_count == 0);
    twi_inflight_outcome_of_all(batch, TWI_OUTCOME_RETURNS);
    twi_inflight_settle(batch);
    for (uint32_t i = 0; batch->items && i < batch->item_count; i++) {
        twi_inflight_next(batch, i);
        twi_port_return(&batch->items[i], 0);
    }
    twi_inflight_forget(batch);
    twi_batch_items_drop(batch);
}

static void give_up(struct twi_sync *sync, struct twi_batch *batch, int reason, bool keeps) {
    twi_inflight_outcome_of_all(batch, TWI_OUTCOME_UNCERTAIN);
    twi_inflight_settle(batch);
    for (uint32_t i = 0; batch->items && i < batch->item_count; i++) {
        twi_inflight_next(batch, i);
        if (keeps) twi_port_keep_item(&batch->items[i]);
        twi_settle_give_up_item(sync, &batch->items[i], reason);
    }
    twi_inflight_forget(batch);
    twi_batch_items_drop(batch);
}

void twi_settle_give_up(struct twi_sync *sync, struct twi_batch *batch, int reason) {
    give_up(sync, batch, reason, false);
}

void twi_settle_keep(struct twi_sync *sync, struct twi_batch *batch) {
    give_up(sync, batch, TW_LOST_UNCERTAIN, true);
}

/* ---- how Redis does ---------------------------------------------------------------------------------------------- */

/* Redis is back. Other engines return at the same time. So no engine begins at once, unless a flush waits, and no
 * engine sends all its counts at once. */
static void spread(struct twi_sync *sync, int64_t away_ms, int64_t now_ms) {
    twi_check(away_ms >= 0);
    sync->collecting.is_under_way = false;
    sync->collecting.at_ms = now_ms + twi_pace_spread_ms(away_ms, twi_sync_random(sync->engine));
}

void twi_settle_success(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    bool was_away = connection->breaker.state != TWI_BREAKER_CLOSED;
    twi_breaker_succeed(&connection->breaker);
    twi_store_relaxed(&sync->published.acked_ms, now_ms ? now_ms : 1); /* a statistic */
    if (!was_away) return;
    bool was_logged = connection->outage.is_logged;
    connection->outage.is_logged = false;
    if (connection->outage.error[0] != '\0') twi_port_error_over(sync->engine, connection->outage.error);
    connection->outage.error[0] = '\0';
    memset(connection->outage.refusals, 0, sizeof connection->outage.refusals);
    if (twi_cluster_is_whole(sync)) twi_port_connected(sync->engine, true);
    int64_t since_ms = connection->outage.since_ms;
    twi_pace_begin(&sync->pace, now_ms);
    if (!connection->is_node) spread(sync, since_ms ? now_ms - since_ms : 0, now_ms);
    if (was_logged)
        twi_port_log(sync->engine, TW_LOG_INFO, TW_EVENT_CONNECTED,
                     "Redis at %s answers and takes counts again, after %" PRId64 " ms", connection->target.name,
                     since_ms ? now_ms - since_ms : 0);
    else
        twi_port_log(sync->engine, TW_LOG_INFO, TW_EVENT_CONNECTED, "Redis at %s answers", connection->target.name);
}

#define CLOCK_WAS_SET_MS 1000 /* more than round trips and the length of a turn can explain */

/* Measures Redis's clock minus ours, by the fastest reply of the last minute. The error is at most half its round trip.
 * A slower reply counts only if it shows that a clock was set since. */
void twi_settle_clock(struct twi_connection *connection, const struct twi_pending *pending, int64_t redis_ms,
                      int64_t now_ms) {
    int64_t rtt_ms = now_ms - pending->sent_ms;
    if (!redis_ms || !pending->sent_ms) return;
    int64_t offset_ms = redis_ms - (pending->wall_ms + rtt_ms / 2), error_ms = (rtt_ms + connection->clock.rtt_ms) / 2;
    bool was_set = llabs(offset_ms - connection->clock.offset_ms) > error_ms + CLOCK_WAS_SET_MS;
    bool is_slower =
        connection->clock.at_ms && rtt_ms > connection->clock.rtt_ms && now_ms - connection->clock.at_ms < 60000;
    if (is_slower && !was_set) return;
    connection->clock.offset_ms = offset_ms;
    connection->clock.rtt_ms = rtt_ms;
    connection->clock.at_ms = now_ms ? now_ms : 1;
    twi_port_clock_offset(connection->engine, connection->clock.offset_ms);
}

void twi_settle_refusal(struct twi_sync *sync, struct twi_connection *connection, struct twi_store *store, bool slowly,
                        int64_t now_ms) {
    twi_port_count(sync->engine, batches_error, 1);
    if (!slowly) {
        twi_port_connected(sync->engine, false);
        store->rewind = true;
        connection->outage.is_logged = true; /* the refusal has its line */
        /* The other replies of the pipeline have the same cause, so this is one failure. */
        if (connection->breaker.state != TWI_BREAKER_OPEN)
            twi_breaker_fail(&connection->breaker, now_ms, twi_sync_random(sync->engine));
        return;
    }
    connection->outage.is_logged = true;
    twi_connection_fail(connection, true, NULL);
}

void twi_settle_refused(struct twi_sync *sync, struct twi_connection *connection, struct twi_store *store,
                        const struct twi_reply_head *head, int64_t now_ms) {
    twi_check(head->error != NULL);
    twi_refusal_report(connection, "a batch", head->error);
    if (head->kind != TWI_REPLY_UNKNOWN) {
        twi_settle_refusal(sync, connection, store, head->kind == TWI_REPLY_TURNED_AWAY, now_ms);
        return;
    }
    twi_port_count(sync->engine, batches_error, 1);
    connection->outage.is_logged = true;
    twi_connection_fail(connection, false, NULL);
}

/* ---- send ---- */

static struct twi_envelope envelope_of(const struct twi_connection *connection, const struct twi_store *store,
                                       bool opens, bool leaves) {
    return (struct twi_envelope){
        .eval = connection->use_eval,
        .ledger_name = opens ? store->candidate.name : store->ledger.name,
        .ledger_size = opens ? store->candidate.name_size : store->ledger.name_size,
        .marker_name = store->marker_name,
        .marker_name_size = store->marker_name_size,
        .marker = opens ? store->candidate.marker : store->ledger.marker,
        .ledger_ttl_ms = leaves ? TWI_LEDGER_LEFT_MS : TWI_LEDGER_TTL_MS,
    };
}

/* The next command may be executed there, although the slot belongs to another node. */
static void put_asking(struct twi_connection *connection) {
    twi_check(connection->is_node);
    twi_wire_begin(&connection->pipeline.out, 1);
    twi_wire_put_text(&connection->pipeline.out, "ASKING");
    twi_pipeline_await(&connection->pipeline, TWI_ASKING, NULL, 1)->alone = false;
}

void twi_send_batch(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch, enum twi_command command,
                    int64_t now_ms) {
    twi_check(command == TWI_BATCH || command == TWI_OPEN);
    twi_check((store->route.asking ? store->route.asking : store->connection) != NULL);
    struct twi_connection *connection = store->route.asking ? store->route.asking : store->connection;
    struct twi_envelope envelope = envelope_of(connection, store, command == TWI_OPEN, sync->leaves);
    twi_pipeline_begin(&connection->pipeline, now_ms);
    if (store->route.asking) put_asking(connection);
    twi_batch_encode(batch, &envelope, &connection->pipeline.out);
    /* the buffer ends with half a command, so Redis would not understand a command after it */
    if (connection->pipeline.out.failed) {
        twi_connection_fail(connection, false, "no memory");
        return;
    }
    connection->use_eval = false;
    if (batch->items) batch->strayed = batch->copies_open != 0; /* without items it is a replay */
    TWI_PROBE3(batch_sent, batch->number, batch->key_count, batch->copies_open);
    batch->copies_open++;
    batch->sent_ms = now_ms;
    struct twi_pending *pending = twi_pipeline_await(&connection->pipeline, command, batch, 1);
    pending->store = store;
    pending->compiles = envelope.eval;
    pending->cost = batch->key_count + TWI_BATCH_COST;
    connection->room.keys_under_way += pending->cost;
    connection->room.bytes_under_way += twi_pending_bytes(pending);
    store->route.via = connection;
    store->awaited++;
    if (command == TWI_BATCH) twi_port_count(sync->engine, batches_sent, 1);
}
