/* stores.c -- see stores.h. */
#include "sync/turn/stores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/base/grow.h"
#include "engine/base/key_slot.h"
#include "engine/port/services.h"
#include "sync/message/active.h"
#include "sync/message/state.h"
#include "sync/turn/connect.h"

#define ROOM_FIRST 8u

static struct twi_store *stores_store_of(struct twi_sync *sync, uint32_t slot);

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
