/* active.c -- see active.h. The idle stores have the order in which their ledgers were written. The first one is
 * due first. Most become idle in that order, so the place of one is searched from the end. */
#include "sync/message/active.h"

#include "engine/base/check.h"
#include "engine/port/services.h"
#include "sync/message/state.h"

#define WAITING_LONG_MS 10000 /* if some store waits in each turn for this long ... */
#define WAITING_LOG_MS 60000  /* ... this is logged, and again after this time */

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Puts the store behind `before`; NULL means at the head. */
static void insert(struct twi_store_list *list, struct twi_store *store, struct twi_store *before) {
    twi_check(store != before && store->place.before == NULL && store->place.after == NULL);
    struct twi_store *after = before ? before->place.after : list->first;
    store->place.at = 0;
    store->place.before = before;
    store->place.after = after;
    *(before ? &before->place.after : &list->first) = store;
    *(after ? &after->place.before : &list->last) = store;
    list->count++;
    if (store->connection) store->connection->use.idle_stores++;
}

/* Takes the store out of the list that it is in. */
static void take_out(struct twi_active *active, struct twi_store *store) {
    twi_check(store->place.at == 0);
    struct twi_store_place *place = &store->place;
    struct twi_store_list *list = place->is_waiting ? &active->waiting : &active->idle;
    *(place->before ? &place->before->place.after : &list->first) = place->after;
    *(place->after ? &place->after->place.before : &list->last) = place->before;
    place->before = place->after = NULL;
    place->is_waiting = false;
    twi_check(list->count != 0);
    list->count--;
    if (store->connection) store->connection->use.idle_stores--;
    twi_check((list->count == 0) == (list->first == NULL));
}

static void put_active(struct twi_active *active, struct twi_store *store) {
    twi_check(!store->place.is_waiting && store->place.before == NULL && store->place.after == NULL);
    active->stores[active->count++] = store;
    store->place.at = active->count;
}

static void put_waiting(struct twi_active *active, struct twi_store *store) {
    twi_check(store->place.is_bounded && !store->place.is_waiting);
    store->place.is_waiting = true;
    insert(&active->waiting, store, active->waiting.last);
}

/* ---- waking ------------------------------------------------------------------------------------------------------ */

static bool has_place(const struct twi_active *active) {
    twi_check(active->taken <= active->count);
    return active->taken < active->places;
}

/* The store that came first gets the next place. */
static bool may_wake(const struct twi_active *active, const struct twi_store *store) {
    return !store->place.is_bounded || (active->waiting.count == 0 && has_place(active));
}

static void start(struct twi_sync *sync, struct twi_store *store) {
    twi_check(!store->place.is_waiting);
    put_active(&sync->active, store);
    sync->active.taken += store->place.is_bounded;
    twi_ticket_join(&sync->tickets, &store->flush);
}

void twi_active_add(struct twi_sync *sync, struct twi_store *store) {
    twi_check(store->place.at == 0);
    if (may_wake(&sync->active, store))
        start(sync, store);
    else
        put_waiting(&sync->active, store);
}

void twi_active_wake(struct twi_sync *sync, struct twi_store *store) {
    if (store->place.at != 0) return;
    take_out(&sync->active, store);
    start(sync, store);
    twi_check(store->place.at == sync->active.count);
}

void twi_active_wake_all(struct twi_sync *sync) {
    while (sync->active.idle.first) twi_active_wake(sync, sync->active.idle.first);
    while (sync->active.waiting.first) twi_active_wake(sync, sync->active.waiting.first);
}

bool twi_active_ask(struct twi_sync *sync, struct twi_store *store) {
    if (store->place.at != 0) return true;
    if (store->place.is_waiting) return false;
    take_out(&sync->active, store);
    twi_active_add(sync, store);
    return store->place.at != 0;
}

void twi_active_join(struct twi_sync *sync) {
    for (uint32_t i = 0; i < sync->active.count; i++) twi_ticket_join(&sync->tickets, &sync->active.stores[i]->flush);
    for (struct twi_store *store = sync->active.waiting.first; store; store = store->place.after)
        if (store->parking.count != 0) twi_ticket_join(&sync->tickets, &store->flush);
}

static void wake_cut_off(struct twi_sync *sync, struct twi_store *store) {
    for (struct twi_store *after; store; store = after) {
        after = store->place.after;
        if (store->connection && !twi_connection_takes(store->connection)) twi_active_wake(sync, store);
    }
}

void twi_active_look(struct twi_sync *sync) {
    bool any = false;
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        const struct twi_connection *connection = sync->connections[i];
        any |= connection->use.idle_stores != 0 && !twi_connection_takes(connection);
    }
    if (!any) return;
    wake_cut_off(sync, sync->active.idle.first);
    wake_cut_off(sync, sync->active.waiting.first);
}

void twi_active_begin(struct twi_sync *sync, int64_t now_ms) {
    struct twi_active *active = &sync->active;
    struct twi_store *store;
    twi_active_look(sync);
    while (twi_active_has_next(sync)) twi_active_wake(sync, active->waiting.first);
    while ((store = active->idle.first) != NULL && now_ms - store->assumed.written_ms > TWI_LEDGER_REFRESH_MS)
        twi_active_wake(sync, store);
}

bool twi_active_has_next(const struct twi_sync *sync) {
    return sync->active.waiting.count != 0 && has_place(&sync->active);
}

/* ---- becoming idle ----------------------------------------------------------------------------------------------- */

static bool has_to_send(const struct twi_store *store) {
    return !store->assumed.is_open || store->opening || store->ledger.confirmed != store->ledger.last ||
           store->parking.count != 0;
}

/* A batch, an opening or a flush may need a turn. */
static bool has_work(const struct twi_store *store) {
    return has_to_send(store) || store->assumed.unknown_since_ms != 0 || store->assumed.is_restoring ||
           store->awaited != 0 || store->rewind || twi_ledger_safe(&store->ledger) != store->ledger.last ||
           store->rejected.count != 0 || store->flush.is_short;
}

static bool is_cut_off(const struct twi_store *store) {
    return !store->connection || !twi_connection_takes(store->connection) || store->route.is_waiting;
}

/* Returns true if the store is not connected to the node of its slot, or if that node may lack acknowledged counts. */
static bool is_astray(const struct twi_store *store) {
    twi_check(!store->place.is_waiting || store->place.is_bounded);
    const struct twi_route *route = &store->route;
    const struct twi_store_look *look = &store->assumed.look;
    return is_cut_off(store) || route->asking || route->detour.is_held || route->unserved_ms != 0 ||
           store->split.state != TWI_SPLIT_UNKNOWN || store->split.asked || look->is_under_way ||
           look->serial != route->serial;
}

static bool takes_place(const struct twi_store *store) {
    return store->place.is_bounded && has_to_send(store) && !is_cut_off(store) && store->assumed.unknown_since_ms == 0;
}

static void put_idle(struct twi_active *active, struct twi_store *store) {
    twi_check(store->place.before == NULL && store->place.after == NULL);
    struct twi_store *before = active->idle.last;
    while (before && before->assumed.written_ms > store->assumed.written_ms) before = before->place.before;
    insert(&active->idle, store, before);
}

static void note_waiting(struct twi_sync *sync, int64_t now_ms) {
    twi_check((sync->active.waiting.count == 0) == (sync->active.waiting.first == NULL));
    struct twi_active *active = &sync->active;
    if (active->waiting.count == 0) {
        active->waiting_since_ms = 0;
        return;
    }
    if (active->waiting_since_ms == 0) active->waiting_since_ms = now_ms ? now_ms : 1;
    if (now_ms - active->waiting_since_ms < WAITING_LONG_MS) return;
    if (active->logged_ms != 0 && now_ms - active->logged_ms < WAITING_LOG_MS) return;
    active->logged_ms = now_ms ? now_ms : 1;
    twi_port_log(sync->engine, TW_LOG_WARNING, TW_EVENT_SPLIT,
                 "%u key slots wait to be written, for at most %u of them are at a time: their counts wait here "
                 "(templates with tags of their own)",
                 active->waiting.count, active->places);
}

void twi_active_drop_idle(struct twi_sync *sync, int64_t now_ms) {
    struct twi_active *active = &sync->active;
    if (!sync->by_slot) return;
    uint32_t count = active->count;
    active->count = active->taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct twi_store *store = active->stores[i];
        active->taken += takes_place(store);
        if (has_work(store) || is_astray(store))
            put_active(active, store);
        else
            put_idle(active, store);
    }
    twi_check(active->count <= count && active->taken <= active->count);
    note_waiting(sync, now_ms);
}

/* ---- the check --------------------------------------------------------------------------------------------------- */

static void check_list(const struct twi_store_list *list, bool is_waiting) {
    const struct twi_store *before = NULL;
    uint32_t count = 0;
    for (const struct twi_store *store = list->first; store; before = store, store = store->place.after, count++) {
        twi_check(store->place.at == 0 && store->place.before == before && store->place.is_waiting == is_waiting);
        twi_check(!is_waiting || store->place.is_bounded);
        twi_check(is_waiting || (!has_work(store) && !is_astray(store)));
        twi_check(is_waiting || !before || before->assumed.written_ms <= store->assumed.written_ms);
    }
    twi_check(list->last == before && list->count == count);
}

bool twi_active_is_sound(const struct twi_sync *sync) {
    const struct twi_active *active = &sync->active;
    uint32_t idle = 0, connected = 0;
    check_list(&active->idle, false);
    check_list(&active->waiting, true);
    for (uint32_t i = 0; i < active->count; i++)
        twi_check(active->stores[i]->place.at == i + 1 && !active->stores[i]->place.is_waiting);
    twi_check(active->count + active->idle.count + active->waiting.count == sync->store_count);
    for (uint32_t i = 0; i < sync->store_count; i++)
        connected += sync->stores[i]->place.at == 0 && sync->stores[i]->connection != NULL;
    for (uint32_t i = 0; i < sync->connection_count; i++) idle += sync->connections[i]->use.idle_stores;
    twi_check(idle == connected);
    return true;
}
