/* collect.c -- from counters that owe Redis something to frozen batches.   Step 2 to 3 of the flow.
 *
 * Deltas wait in their counters while Redis is away, and merge there; they are frozen only when they can be sent soon,
 * so an outage of hours holds no more than the pipeline in batches.
 * Always true: whatever the port handed out is in the ledger's list, or went back, when this returns. */
#include "sync/turn/collect.h"

#include "engine/port/items.h"
#include "sync/message/presence.h"
#include "sync/message/replicas.h"
#include "sync/message/state.h"

#define LOOK_PERIOD_MS 30000 /* every half minute ... */
#define LOOK_SHARE_MS \
    3000 /* ... for three seconds each key's expiry is looked at: a lost one is healed, for a tenth of the cost */

uint64_t twi_sync_unsettled(const struct twi_store *store) {
    return store->ledger.last - store->ledger.acked;
}

bool twi_sync_is_full(const struct twi_sync *sync) {
    const struct twi_store *store = &sync->store;
    bool has_ledger = store->merge == TW_MERGE_SCRIPT;
    return twi_sync_unsettled(store) >=
           (has_ledger ? twi_depth_load(&sync->connection.depth).batches : TWI_PIPELINE_MAX);
}

/* Everything that was staged becomes batches; without memory, what is left goes back. */
static bool freeze(struct twi_sync *sync, size_t count, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_connection *connection = &sync->connection;
    struct twi_freeze how = {
        .look_always = now_ms < sync->collecting.look_until_ms || now_ms % LOOK_PERIOD_MS < LOOK_SHARE_MS,
        .redis_offset_ms = connection->clock.offset_ms,
        .now_ms = now_ms,
        .keys_max = twi_depth_load(&connection->depth).keys,
    };
    twi_batch_sort(sync->collecting.items, count, how.look_always);
    for (size_t at = 0, taken = 0; at < count; at += taken) {
        struct twi_batch *batch = store->merge == TW_MERGE_SCRIPT
                                      ? twi_batch_freeze(sync->collecting.items + at, count - at, &how, &taken)
                                      : twi_batch_gather(sync->collecting.items + at, count - at, now_ms, &taken);
        if (batch) {
            twi_ledger_append(&store->ledger, batch, twi_sync_random(sync->engine));
            continue;
        }
        /* At once, not after a while: what waits in a delay is not in the collection that a flush begins anew. We
         * wait. */
        for (; at < count; at++) twi_port_return(&sync->collecting.items[at], 0);
        sync->collecting.hold_ms = now_ms + sync->interval_ms;
        return false;
    }
    return true;
}

/* Gauges go another way than batches. False: no memory; everything went back. */
static bool set_gauges_aside(struct twi_sync *sync, size_t *count, int64_t now_ms) {
    struct twi_item *staging = sync->collecting.items, gauge;
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        if ((staging[i].flags & TWI_ITEM_GAUGE) != 0) continue;
        gauge = staging[kept];
        staging[kept++] = staging[i];
        staging[i] = gauge;
    }
    if (kept == *count || twi_presence_take(&sync->store.presence, staging + kept, *count - kept)) {
        *count = kept;
        return true;
    }
    for (size_t i = 0; i < *count; i++) twi_port_return(&staging[i], 0);
    sync->collecting.hold_ms = now_ms + sync->interval_ms;
    return false;
}

/* Is it time, and for whom? A flush is not throttled by the interval. */
static bool begin(struct twi_sync *sync, int64_t now_ms) {
    if (sync->collecting.begin_again || twi_ticket_begin(&sync->tickets)) {
        sync->collecting.begin_again = false;
        if (twi_poison_count(&sync->store.poison, now_ms)) twi_ticket_refused(&sync->tickets); /* it waits, unsent */
        twi_port_collect_begin(sync->engine);
        return true;
    }
    if (sync->collecting.is_under_way || sync->tickets.collecting) return true;
    if (now_ms < sync->collecting.at_ms || !twi_port_is_dirty(sync->engine)) return false;
    /* Jittered, so that nodes that began together do not stay together: 3/4 to 5/4 of the interval. */
    int64_t interval_ms = sync->interval_ms;
    sync->collecting.at_ms =
        now_ms + interval_ms * 3 / 4 + (int64_t)(twi_sync_random(sync->engine) % (uint64_t)(interval_ms / 2 + 1));
    return true;
}

/* A flush's collection is over when all of it is in batches, and what went beside them is told. */
static void end_round(struct twi_sync *sync) {
    struct twi_store *store = &sync->store;
    struct twi_presence *presence = &store->presence;
    if (sync->collecting.is_under_way || !sync->tickets.collecting || !twi_port_collect_is_done(sync->engine)) return;
    if (presence->until == 0) presence->until = presence->taken + 1;
    if (presence->answered + 1 < presence->until) return;
    presence->until = 0;
    twi_ticket_collected(&sync->tickets, store->ledger.last);
}

/* Counters near their limit go at once: some hundred bytes, at most sixteen times in an interval. */
static void collect_near_limit(struct twi_sync *sync, int64_t now_ms) {
    if (now_ms < sync->collecting.near_limit_at_ms || !twi_port_is_near_limit(sync->engine)) return;
    sync->collecting.near_limit_at_ms = now_ms + sync->interval_ms / 16 + 1;
    size_t count = twi_port_collect_near_limit(sync->engine, sync->collecting.items);
    if (!freeze(sync, count, now_ms) && sync->collecting.is_under_way)
        sync->collecting.begin_again = twi_ticket_renew(&sync->tickets);
}

void twi_collect(struct twi_sync *sync, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_connection *connection = &sync->connection;
    /* Something must ask how Redis is, after a reconnect: a batch that waits, or an empty one. */
    if (connection->breaker.state != TWI_BREAKER_CLOSED && !twi_ledger_unconfirmed(&store->ledger))
        (void)twi_ledger_append_empty(&store->ledger, twi_sync_random(sync->engine), now_ms);
    if (connection->breaker.state != TWI_BREAKER_CLOSED || twi_ledger_is_replaying(&store->ledger)) return;
    if (now_ms - store->belief.written_ms > TWI_LEDGER_REFRESH_MS && twi_sync_unsettled(store) == 0)
        (void)twi_ledger_append_empty(&store->ledger, twi_sync_random(sync->engine), now_ms);
    if (twi_port_restore_some(sync->engine)) { /* first: what is owed again is taken before what is new */
        sync->collecting.is_under_way = true;
        return;
    }
    if (twi_replicas_hold(sync) || twi_presence_holds_flush(&store->presence)) return;
    if (now_ms < sync->collecting.hold_ms || twi_sync_is_full(sync)) return;
    collect_near_limit(sync, now_ms);
    if (twi_sync_is_full(sync) || !begin(sync, now_ms)) return;
    sync->collecting.is_under_way = true;
    while (sync->collecting.is_under_way && !twi_sync_is_full(sync) && !twi_presence_are_full(&store->presence)) {
        int64_t wait_ms = 0;
        size_t room = twi_pace_room(&sync->pace, TWI_BATCH_ITEMS_MAX, now_ms, &wait_ms);
        if (room == 0) {
            sync->collecting.hold_ms = now_ms + wait_ms;
            return;
        }
        size_t count = twi_port_collect(sync->engine, sync->collecting.items, room);
        sync->collecting.is_under_way = count == room;
        twi_pace_took(&sync->pace, count, !sync->collecting.is_under_way);
        if (!set_gauges_aside(sync, &count, now_ms) || !freeze(sync, count, now_ms)) {
            sync->collecting.begin_again =
                twi_ticket_renew(&sync->tickets); /* what went back is not in this round yet */
            return;
        }
    }
    end_round(sync);
    twi_ticket_acknowledged(&sync->tickets, twi_ledger_safe(&store->ledger)); /* there may have been nothing to send */
}
