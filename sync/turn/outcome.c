/* outcome.c -- the effect of a reply on batches, and through settle.c on counters.   Steps 7 and 8 of the flow.
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
#include "sync/turn/outcome.h"

#include "engine/base/probe.h"
#include <inttypes.h>

#include "engine/base/check.h"
#include "engine/port/services.h"
#include "sync/turn/instance.h"
#include "sync/turn/settle.h"
#include "sync/batch/inflight.h"
#include "sync/message/cluster.h"
#include "sync/message/estate.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

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
