/* collect.c -- from counters with unsent deltas to frozen batches. This is step 2 to 3 of the flow.
 *
 * While Redis is unreachable, deltas stay in their counters and merge there. They are frozen only when they can be sent
 * soon. So even an outage of hours leaves no more batches than the pipeline holds.
 * Always true: when twi_collect() returns, each item that the port handed out is in a batch of the ledger's list, in
 * a message (gauges, distinct counts), or back in its counter. */
#include "sync/turn/collect.h"

#include "engine/base/check.h"
#include "engine/base/grow.h"
#include "engine/base/key_slot.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#include "sync/message/active.h"
#include "sync/message/distinct.h"
#include "sync/message/message.h"
#include "sync/message/state.h"
#include "sync/turn/connect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- stores ---- */

#define ROOM_FIRST 8u

void twi_stores_name(const struct twi_sync *sync, struct twi_store *store, uint32_t slot) {
    twi_check(slot < TWI_KEY_SLOTS);
    const char *prefix = twi_port_prefix(sync->engine);
    store->slot = slot;
    snprintf(store->tag, sizeof store->tag, "{%u}", twi_key_slot_shorts()[slot]);
    store->marker_name_size =
        (size_t)snprintf(store->marker_name, sizeof store->marker_name, "%stw:marker:%s", prefix, store->tag);
}

bool twi_stores_name_first(struct twi_sync *sync, struct twi_store *store) {
    char name[TWI_LEDGER_NAME_MAX];
    int size = snprintf(name, sizeof name, "%stw:live", twi_port_prefix(sync->engine));
    uint32_t slot = twi_key_slot_of(name, (size_t)size);
    if (twi_port_store(sync->engine, slot) != 0) return false;
    twi_stores_name(sync, store, slot);
    return true;
}

/* ---- making stores ----------------------------------------------------------------------------------------------- */

/* Makes a store like the first one, except for its name. Returns NULL if there is no memory. */
static struct twi_store *stores_make(const struct twi_sync *sync) {
    twi_check(sync->store_count != 0);
    const struct twi_store *first = sync->stores[0];
    struct twi_store *store = calloc(1, sizeof *store);
    if (!store) return NULL;
    store->engine = first->engine;
    store->connection = sync->connections[0]->is_node ? NULL : first->connection;
    store->route.serial = first->route.serial;
    store->merge = first->merge;
    store->ledger.all_replay_bytes = first->ledger.all_replay_bytes;
    store->ledger.replay_bytes_max = first->ledger.replay_bytes_max;
    store->ledger.replay_ms = first->ledger.replay_ms;
    store->ledger.awaits_replicas = first->ledger.awaits_replicas;
    return store;
}

static bool stores_has_room(struct twi_sync *sync) {
    twi_check(sync->store_count <= sync->by_slot->room);
    struct twi_by_slot *by_slot = sync->by_slot;
    uint32_t room = by_slot->room, wanted = sync->store_count + 1;
    return twi_grow(&sync->stores, sizeof(struct twi_store *), &room, wanted, ROOM_FIRST) &&
           twi_grow(&sync->active.stores, sizeof(struct twi_store *), &by_slot->room, wanted, ROOM_FIRST);
}

/* The tags of the default template always have their places. */
static bool needs_place(const struct twi_sync *sync, uint32_t slot) {
    twi_check(slot < TWI_KEY_SLOTS);
    uint32_t group = slot / (TWI_KEY_SLOTS / TWI_KEY_SLOT_TAGS_MAX);
    bool is_default = twi_key_slot_shorts()[slot] == twi_key_slot_tags(TWI_KEY_SLOT_TAGS_MAX)[group];
    return !is_default || twi_port_tuning(sync->engine)->tags_wait;
}

/* Makes the store with the next index. Returns false if there is no memory. */
static bool make_next(struct twi_sync *sync) {
    struct twi_store *store = stores_has_room(sync) ? stores_make(sync) : NULL;
    if (!store) return false;
    store->index = sync->store_count;
    twi_stores_name(sync, store, twi_port_store_slot(sync->engine, store->index));
    store->place.is_bounded = needs_place(sync, store->slot);
    sync->stores[sync->store_count++] = store;
    twi_active_add(sync, store);
    twi_check(sync->stores[store->index] == store);
    return true;
}

/* Returns true if the store with that index is there. The engine may have used other stores before it. */
static bool has_store(struct twi_sync *sync, uint32_t index) {
    while (sync->store_count <= index)
        if (!make_next(sync)) return false;
    return true;
}

static struct twi_store *stores_store_of(struct twi_sync *sync, uint32_t slot) {
    twi_check(slot < TWI_KEY_SLOTS);
    uint32_t index = twi_port_store(sync->engine, slot);
    return index != UINT32_MAX && has_store(sync, index) ? sync->stores[index] : NULL;
}

bool twi_stores_begin(struct twi_sync *sync) {
    twi_check(sync->by_slot == NULL);
    struct twi_by_slot *by_slot = sync->by_slot = calloc(1, sizeof *by_slot);
    if (!by_slot) return false;
    by_slot->store_of = stores_store_of;
    by_slot->room = 1;
    sync->active.places = twi_port_tuning(sync->engine)->store_places;
    by_slot->sorted = malloc(TWI_STORES_ITEMS_MAX * sizeof *by_slot->sorted);
    by_slot->names.ends = calloc(TWI_STORES_ITEMS_MAX + 1, sizeof *by_slot->names.ends);
    return by_slot->sorted && by_slot->names.ends;
}

void twi_stores_end(struct twi_sync *sync) {
    if (!sync->by_slot) return;
    free(sync->by_slot->sorted);
    free(sync->by_slot->names.ends);
    twi_bytes_free(&sync->by_slot->names.bytes);
    free(sync->by_slot);
    sync->by_slot = NULL;
}

void twi_stores_make(struct twi_sync *sync) {
    if (sync->by_slot) (void)has_store(sync, twi_port_stores(sync->engine) - 1);
}

/* ---- sorting ----------------------------------------------------------------------------------------------------- */

/* Keeps the item's name for its batch. If there is no room or memory, it is rendered again. */
static void keep_name(struct twi_batch_names *names, struct twi_item *item, const char *name, size_t size) {
    twi_check(size != 0 && size <= TWI_REDIS_KEY_MAX);
    item->named = 0;
    if (names->bytes.size + size > TWI_STORES_NAMES_MAX) return;
    twi_bytes_add(&names->bytes, name, size);
    if (names->bytes.failed) return;
    twi_check(names->count < TWI_STORES_ITEMS_MAX);
    names->ends[++names->count] = (uint32_t)names->bytes.size;
    item->named = (uint16_t)names->count;
}

/* Returns items without a store to their counters. Returns how many are left. */
static size_t assign(struct twi_sync *sync, struct twi_item *items, size_t count) {
    twi_check(count <= TWI_STORES_ITEMS_MAX);
    struct twi_batch_names *names = &sync->by_slot->names;
    char name[TWI_REDIS_KEY_MAX];
    size_t kept = 0, size;
    names->count = 0;
    names->bytes.size = 0;
    names->bytes.failed = false;
    for (size_t i = 0; i < count; i++) {
        struct twi_item item = items[i];
        if (twi_port_assign(&item, name, &size) && has_store(sync, item.store)) {
            keep_name(names, &item, name, size);
            items[kept++] = item;
        } else {
            twi_port_return(&items[i], 0);
        }
    }
    return kept;
}

size_t twi_stores_sort(struct twi_sync *sync, size_t count) {
    twi_check(sync->by_slot != NULL && count <= sync->collecting.items_max);
    struct twi_item *items = sync->collecting.items, *sorted = sync->by_slot->sorted;
    uint32_t *starts = sync->by_slot->starts, at = 0;
    count = assign(sync, items, count);
    memset(starts, 0, sync->store_count * sizeof *starts);
    for (size_t i = 0; i < count; i++) starts[items[i].store]++;
    for (uint32_t i = 0; i < sync->store_count; i++) {
        uint32_t size = starts[i];
        starts[i] = at;
        at += size;
    }
    twi_check(at == count);
    for (size_t i = 0; i < count; i++) sorted[starts[items[i].store]++] = items[i];
    memcpy(items, sorted, count * sizeof *items);
    return count;
}

/* ---- which store accepts batches --------------------------------------------------------------------------------- */

bool twi_stores_may_take(const struct twi_store *store) {
    return store->connection && twi_connection_takes(store->connection) && !store->route.is_waiting &&
           store->assumed.is_open && store->assumed.unknown_since_ms == 0 && !twi_ledger_is_replaying(&store->ledger);
}

void twi_stores_open(struct twi_sync *sync, int64_t now_ms) {
    for (uint32_t i = 0; i < sync->active.count; i++) {
        struct twi_store *store = sync->active.stores[i];
        struct twi_connection *connection = store->connection;
        if (store->assumed.is_open || store->awaited != 0 || store->route.is_waiting) continue;
        if (!connection || !twi_connection_is_up(connection) || !twi_connection_has_room(connection, 0)) continue;
        store->rewind = false; /* no batch is under way, so the reply to the opening counts */
        twi_connect_open(sync, store, now_ms);
    }
}

#define BATCHES_AHEAD 2u     /* of one of several stores: the next one is ready when the reply to the first one comes */
#define LOOK_PERIOD_MS 30000 /* every half minute ... */
#define TAG_BATCHES 4u       /* a batch of one of several stores may be this many times as large */
#define HOLD_MAX_MS 500      /* how long a collection waits for memory */
#define UNPARK_MAX 4096u     /* counters of one store that become unsent again in one turn */
#define LOOK_SHARE_MS \
    3000 /* ... for three seconds each key's expiry is checked; this repairs a lost one, for a tenth of the cost */

uint64_t twi_sync_unsettled(const struct twi_store *store) {
    return store->ledger.last - store->ledger.acked;
}

/* Returns the most batches of one store that may wait to be settled. */
static uint64_t most_unsettled(const struct twi_store *store) {
    twi_check(store->ledger.confirmed <= store->ledger.last);
    uint64_t batches = store->connection ? twi_connection_load(store->connection).batches : 0;
    return batches > BATCHES_AHEAD ? batches : BATCHES_AHEAD;
}

bool twi_sync_is_full(const struct twi_sync *sync) {
    twi_check(sync->store_count != 0);
    bool has_ledger = sync->stores[0]->merge->has_script;
    uint64_t most = has_ledger ? twi_connection_load(sync->connections[0]).batches : TWI_PIPELINE_MAX, unsettled = 0;
    if (sync->by_slot && most < sync->store_count) most = sync->store_count; /* on average one for each store */
    for (uint32_t i = 0; i < sync->active.count && unsettled < most; i++) {
        const struct twi_store *store = sync->active.stores[i];
        /* Batches for an unreachable store delay no other store. */
        bool counts = sync->store_count == 1 || (store->assumed.is_open && store->assumed.unknown_since_ms == 0);
        if (counts) unsettled += twi_sync_unsettled(store);
    }
    return unsettled >= most;
}

/* If there are several stores, each has only a part of the keys. That part goes into one batch, if it is not large. */
static uint32_t keys_max(const struct twi_sync *sync, const struct twi_connection *connection) {
    twi_check(connection->near_keys != 0);
    uint32_t keys = twi_connection_load(connection).keys, whole = TAG_BATCHES * connection->near_keys;
    return sync->by_slot && keys < whole ? whole : keys;
}

/* The next collection waits, for as long as a caller that closes can wait. */
static void no_memory(struct twi_sync *sync, int64_t now_ms) {
    sync->collecting.hold_ms = now_ms + (sync->interval_ms < HOLD_MAX_MS ? sync->interval_ms : HOLD_MAX_MS);
}

/* Freezes items of one store into batches. Returns false if there is no memory; the items that are left went back. */
static bool freeze(struct twi_sync *sync, struct twi_store *store, struct twi_item *items, size_t count,
                   int64_t now_ms) {
    twi_check(store->connection != NULL || count == 0);
    const struct twi_connection *connection = store->connection;
    struct twi_freeze how = {
        .look_always = now_ms < sync->collecting.look_until_ms || now_ms % LOOK_PERIOD_MS < LOOK_SHARE_MS,
        .redis_offset_ms = connection->clock.offset_ms,
        .now_ms = now_ms,
        .keys_max = keys_max(sync, connection),
        .bytes_max = twi_depth_batch_bytes(&connection->estimate, connection->timeout_ms),
        .names = sync->by_slot ? &sync->by_slot->names : NULL,
    };
    twi_batch_sort(items, count, how.look_always);
    for (size_t at = 0, taken = 0; at < count; at += taken) {
        struct twi_batch *batch = store->merge->freeze(items + at, count - at, &how, &taken);
        if (batch) {
            twi_ledger_append(&store->ledger, batch, twi_sync_random(sync->engine));
            continue;
        }
        /* The items go back without a delay. If a flush begins a collection again, it does not include delayed
         * items. Instead, the next collection waits. */
        for (; at < count; at++) twi_port_return(&items[at], 0);
        no_memory(sync, now_ms);
        return false;
    }
    return true;
}

/* The counters of a store that accepts no batches now wait in its list. Returns false if there is no memory;
 * the remaining items then went back. */
static bool park(struct twi_sync *sync, struct twi_store *store, struct twi_item *items, size_t count, int64_t now_ms) {
    twi_check(count != 0);
    size_t at = 0;
    if (store->place.is_waiting) twi_ticket_join(&sync->tickets, &store->flush);
    while (at < count && twi_port_park(&store->parking, &items[at])) at++;
    if (at == count) return true;
    for (; at < count; at++) twi_port_return(&items[at], 0);
    no_memory(sync, now_ms);
    return false;
}

/* Moves items with that flag behind the others. Returns how many others there are. */
static size_t put_behind(struct twi_item *items, size_t count, uint16_t flag) {
    twi_check(flag != 0);
    size_t others = 0;
    for (size_t i = 0; i < count; i++) {
        if ((items[i].flags & flag) != 0) continue;
        struct twi_item item = items[i];
        items[i] = items[others];
        items[others++] = item;
    }
    twi_check(others <= count);
    return others;
}

/* Items go into messages, not into batches. Returns false if there is no memory; they went back. */
static bool collect_set_aside(struct twi_sync *sync, struct twi_waiting *waiting, const struct twi_item *items,
                              size_t count, int64_t now_ms) {
    if (count == 0 || twi_waiting_take(waiting, items, count)) return true;
    for (size_t i = 0; i < count; i++) twi_port_return(&items[i], 0);
    no_memory(sync, now_ms);
    return false;
}

/* Called when the store accepts the items. Counters are put in batches, and distinct counts in separate messages. */
static bool collect_give(struct twi_sync *sync, struct twi_store *store, struct twi_item *items, size_t count,
                         int64_t now_ms) {
    size_t counters = put_behind(items, count, TWI_ITEM_DISTINCT);
    bool whole = collect_set_aside(sync, &sync->senders.distinct.waiting, items + counters, count - counters, now_ms);
    return freeze(sync, store, items, counters, now_ms) && whole;
}

/* Gives all staged items to their stores. Returns false if there is no memory; some went back. */
static bool deal_out(struct twi_sync *sync, size_t count, int64_t now_ms) {
    twi_check(count <= sync->collecting.items_max);
    struct twi_item *items = sync->collecting.items;
    if (!sync->by_slot) return collect_give(sync, sync->stores[0], items, count, now_ms);
    size_t sorted = twi_stores_sort(sync, count);
    bool whole = sorted == count;
    for (size_t at = 0, end; at < sorted; at = end) {
        struct twi_store *store = sync->stores[items[at].store];
        for (end = at + 1; end < sorted && items[end].store == store->index;) end++;
        bool is_active = twi_active_ask(sync, store);
        if (is_active && twi_stores_may_take(store) && twi_sync_unsettled(store) < most_unsettled(store))
            whole = collect_give(sync, store, items + at, end - at, now_ms) && whole;
        else
            whole = park(sync, store, items + at, end - at, now_ms) && whole;
    }
    if (!whole) no_memory(sync, now_ms);
    return whole;
}

/* If there are several stores, finds the store of each gauge. Returns false if there is no memory. */
static bool assign_gauges(struct twi_sync *sync, struct twi_item *items, size_t count) {
    twi_check(items != NULL);
    char name[TWI_REDIS_KEY_MAX];
    for (size_t i = 0; sync->by_slot && i < count; i++) {
        uint32_t slot = twi_key_slot_of(name, twi_port_render(&items[i], name));
        const struct twi_store *store = sync->by_slot->store_of(sync, slot);
        if (!store) return false;
        items[i].store = store->index;
    }
    return true;
}

/* Gauges go into presence statements. They have absolute values, and cannot be deferred. Returns false if there is
 * no memory; all items went back. */
static bool set_gauges_aside(struct twi_sync *sync, size_t *count, int64_t now_ms) {
    twi_check(*count <= sync->collecting.items_max);
    struct twi_item *staging = sync->collecting.items;
    size_t kept = put_behind(staging, *count, TWI_ITEM_GAUGE), gauges = *count - kept;
    bool is_whole = assign_gauges(sync, staging + kept, gauges);
    if (is_whole) {
        *count = kept;
        is_whole = collect_set_aside(sync, &sync->senders.presence.waiting, staging + kept, gauges, now_ms);
    }
    if (is_whole) return true;
    for (size_t i = 0; i < *count; i++) twi_port_return(&staging[i], 0);
    no_memory(sync, now_ms);
    return false;
}

bool twi_collect_may_unpark(const struct twi_store *store) {
    return store->parking.count != 0 && twi_stores_may_take(store) && twi_sync_unsettled(store) < most_unsettled(store);
}

/* Makes the counters unsent whose store accepts batches again. A flush then collects again for that store. */
static void unpark(struct twi_sync *sync) {
    for (uint32_t i = 0; i < sync->active.count; i++) {
        struct twi_store *store = sync->active.stores[i];
        if (!twi_collect_may_unpark(store)) continue;
        if (twi_port_unpark(sync->engine, &store->parking, UNPARK_MAX)) continue; /* the others in the next turns */
        if (store->flush.again && twi_ticket_renew_share(&sync->tickets, &store->flush)) twi_waiting_begin_again(sync);
    }
}

/* Decides whether to collect now. The answer is at once for a flush and for an engine that closes, otherwise at the
 * interval. */
static bool collect_begin(struct twi_sync *sync, int64_t now_ms) {
    bool is_new = twi_ticket_begin(&sync->tickets);
    if (is_new || sync->collecting.begin_again) {
        sync->collecting.begin_again = false;
        if (is_new) twi_active_join(sync);
        /* Refused counters wait and stay unsent. */
        for (uint32_t i = 0; i < sync->active.count; i++)
            if (twi_rejected_count(&sync->active.stores[i]->rejected, now_ms)) twi_ticket_refused(&sync->tickets);
        twi_port_collect_begin(sync->engine);
        return true;
    }
    if (sync->collecting.is_under_way || sync->tickets.collecting) return true;
    bool is_due = now_ms >= sync->collecting.at_ms || twi_port_cannot_wait(sync->engine);
    if (!is_due || !twi_port_is_dirty(sync->engine)) return false;
    /* Jittered, so that nodes that began together do not stay together: 3/4 to 5/4 of the interval. */
    int64_t interval_ms = sync->interval_ms;
    sync->collecting.at_ms =
        now_ms + interval_ms * 3 / 4 + (int64_t)(twi_sync_random(sync->engine) % (uint64_t)(interval_ms / 2 + 1));
    return true;
}

/* Returns true if the messages with the flush's items are answered. */
static bool collect_is_answered(struct twi_waiting *waiting) {
    twi_check(waiting->answered <= waiting->taken);
    if (waiting->until == 0) waiting->until = waiting->taken + 1;
    return !twi_waiting_holds_flush(waiting);
}

/* A flush's collection ends when all of it is in batches and the messages with its gauges and its distinct counts are
 * answered. */
static void end_round(struct twi_sync *sync) {
    struct twi_waiting *gauges = &sync->senders.presence.waiting, *sketches = &sync->senders.distinct.waiting;
    if (sync->collecting.is_under_way || !sync->tickets.collecting || !twi_port_collect_is_done(sync->engine)) return;
    bool gauges_answered = collect_is_answered(gauges), sketches_answered = collect_is_answered(sketches);
    if (!gauges_answered || !sketches_answered) return;
    gauges->until = sketches->until = 0;
    twi_ticket_collected(&sync->tickets);
    for (uint32_t i = 0; i < sync->active.count; i++)
        if (sync->active.stores[i]->parking.count == 0) /* otherwise the flush waits for the deferred counters */
            twi_ticket_await(&sync->active.stores[i]->flush, sync->active.stores[i]->ledger.last);
}

/* A flush may be done without another reply, because there was perhaps no batch to send. */
static void collect_look_at_flush(struct twi_sync *sync) {
    if (!sync->tickets.active) return;
    for (uint32_t i = 0; i < sync->active.count; i++) {
        struct twi_store *store = sync->active.stores[i];
        twi_ticket_acknowledged(&sync->tickets, &store->flush, twi_ledger_safe(&store->ledger));
    }
    twi_ticket_settle(&sync->tickets);
}

/* Sends counters near their limit early, some hundred bytes, at most sixteen times in an interval. */
static void collect_near_limit(struct twi_sync *sync, int64_t now_ms) {
    if (now_ms < sync->collecting.near_limit_at_ms || !twi_port_is_near_limit(sync->engine)) return;
    sync->collecting.near_limit_at_ms = now_ms + sync->interval_ms / 16 + 1;
    size_t count = twi_port_collect_near_limit(sync->engine, sync->collecting.items);
    if (!deal_out(sync, count, now_ms) && sync->collecting.is_under_way && twi_ticket_renew(&sync->tickets))
        twi_waiting_begin_again(sync);
}

static bool any_takes(const struct twi_sync *sync) {
    for (uint32_t i = 0; i < sync->active.count; i++)
        if (twi_stores_may_take(sync->active.stores[i])) return true;
    return sync->active.idle.count != 0;
}

static void append_empty(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    (void)twi_ledger_append_empty(&store->ledger, twi_sync_random(sync->engine), now_ms);
}

/* After a reconnect a batch probes Redis. This is a waiting batch, or an empty one. */
static void probe(struct twi_sync *sync, const struct twi_connection *connection, int64_t now_ms) {
    struct twi_store *first = NULL;
    if (!twi_connection_is_up(connection) || connection->breaker.state == TWI_BREAKER_CLOSED) return;
    for (uint32_t i = 0; i < sync->active.count; i++) {
        struct twi_store *store = sync->active.stores[i];
        if (store->connection != connection || !store->assumed.is_open) continue;
        if (twi_ledger_unconfirmed(&store->ledger)) return;
        if (!first) first = store;
    }
    if (first) append_empty(sync, first, now_ms);
}

/* Makes ledgers due that were not written for a while. */
static void collect_refresh(struct twi_sync *sync, int64_t now_ms) {
    for (uint32_t i = 0; i < sync->active.count; i++) {
        struct twi_store *store = sync->active.stores[i];
        if (!store->assumed.is_open) continue;
        if (now_ms - store->assumed.written_ms > TWI_LEDGER_REFRESH_MS && twi_sync_unsettled(store) == 0)
            append_empty(sync, store, now_ms);
    }
}

void twi_collect(struct twi_sync *sync, int64_t now_ms) {
    const struct twi_waiting *gauges = &sync->senders.presence.waiting, *sketches = &sync->senders.distinct.waiting;
    for (uint32_t i = 0; i < sync->connection_count; i++) probe(sync, sync->connections[i], now_ms);
    twi_distinct_restate(sync, now_ms);
    if (!any_takes(sync)) return;
    collect_refresh(sync, now_ms);
    if (twi_port_restore_some(sync->engine)) { /* deltas to be restored go before new ones */
        sync->collecting.is_under_way = true;
        return;
    }
    unpark(sync);
    if (twi_replicas_hold(sync) || twi_waiting_holds_flush(gauges) || twi_waiting_holds_flush(sketches)) return;
    if (now_ms < sync->collecting.hold_ms || twi_sync_is_full(sync)) return;
    collect_near_limit(sync, now_ms);
    if (twi_sync_is_full(sync) || !collect_begin(sync, now_ms)) return;
    sync->collecting.is_under_way = true;
    while (sync->collecting.is_under_way && !twi_sync_is_full(sync) && !twi_waiting_is_full(gauges) &&
           !twi_waiting_is_full(sketches)) {
        int64_t wait_ms = 0;
        size_t room = twi_pace_room(&sync->pace, sync->collecting.items_max, now_ms, &wait_ms);
        if (room == 0) {
            sync->collecting.hold_ms = now_ms + wait_ms;
            return;
        }
        size_t count = twi_port_collect(sync->engine, sync->collecting.items, room);
        twi_check(count <= room);
        sync->collecting.is_under_way = count == room;
        twi_pace_took(&sync->pace, count, !sync->collecting.is_under_way);
        if (!set_gauges_aside(sync, &count, now_ms) || !deal_out(sync, count, now_ms)) {
            /* The round lacks the items that were returned. */
            if (twi_ticket_renew(&sync->tickets)) twi_waiting_begin_again(sync);
            return;
        }
    }
    end_round(sync);
    collect_look_at_flush(sync);
}
