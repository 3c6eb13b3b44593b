/* awake.c -- see awake.h. The stores at rest stand in the order in which their ledgers were written: the first one is
 * due first. Most go to rest in that order, so the place of one is looked for from the end. */
#include "sync/message/awake.h"

#include "engine/base/check.h"
#include "engine/port/services.h"
#include "sync/message/state.h"

#define WAITING_LONG_MS 10000 /* some store waits in each turn for so long ... */
#define WAITING_LOG_MS 60000  /* ... then this is logged, so often */

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Puts the store behind `before`; NULL: at the head. */
static void insert(struct twi_store_list *list, struct twi_store *store, struct twi_store *before) {
    twi_check(store != before && store->place.before == NULL && store->place.after == NULL);
    struct twi_store *after = before ? before->place.after : list->first;
    store->place.at = 0;
    store->place.before = before;
    store->place.after = after;
    *(before ? &before->place.after : &list->first) = store;
    *(after ? &after->place.before : &list->last) = store;
    list->count++;
    if (store->connection) store->connection->use.resting++;
}

/* Takes the store out of the list that it is in. */
static void take_out(struct twi_awake *awake, struct twi_store *store) {
    twi_check(store->place.at == 0);
    struct twi_store_place *place = &store->place;
    struct twi_store_list *list = place->is_waiting ? &awake->waiting : &awake->resting;
    *(place->before ? &place->before->place.after : &list->first) = place->after;
    *(place->after ? &place->after->place.before : &list->last) = place->before;
    place->before = place->after = NULL;
    place->is_waiting = false;
    twi_check(list->count != 0);
    list->count--;
    if (store->connection) store->connection->use.resting--;
    twi_check((list->count == 0) == (list->first == NULL));
}

static void put_awake(struct twi_awake *awake, struct twi_store *store) {
    twi_check(!store->place.is_waiting && store->place.before == NULL && store->place.after == NULL);
    awake->stores[awake->count++] = store;
    store->place.at = awake->count;
}

static void put_waiting(struct twi_awake *awake, struct twi_store *store) {
    twi_check(store->place.is_bounded && !store->place.is_waiting);
    store->place.is_waiting = true;
    insert(&awake->waiting, store, awake->waiting.last);
}

/* ---- waking ------------------------------------------------------------------------------------------------------ */

static bool has_place(const struct twi_awake *awake) {
    twi_check(awake->taken <= awake->count);
    return awake->taken < awake->places;
}

/* Who came first gets the next place. */
static bool may_wake(const struct twi_awake *awake, const struct twi_store *store) {
    return !store->place.is_bounded || (awake->waiting.count == 0 && has_place(awake));
}

static void start(struct twi_sync *sync, struct twi_store *store) {
    twi_check(!store->place.is_waiting);
    put_awake(&sync->awake, store);
    sync->awake.taken += store->place.is_bounded;
    twi_ticket_join(&sync->tickets, &store->flush);
}

void twi_awake_add(struct twi_sync *sync, struct twi_store *store) {
    twi_check(store->place.at == 0);
    if (may_wake(&sync->awake, store))
        start(sync, store);
    else
        put_waiting(&sync->awake, store);
}

void twi_awake_wake(struct twi_sync *sync, struct twi_store *store) {
    if (store->place.at != 0) return;
    take_out(&sync->awake, store);
    start(sync, store);
    twi_check(store->place.at == sync->awake.count);
}

void twi_awake_wake_all(struct twi_sync *sync) {
    while (sync->awake.resting.first) twi_awake_wake(sync, sync->awake.resting.first);
    while (sync->awake.waiting.first) twi_awake_wake(sync, sync->awake.waiting.first);
}

bool twi_awake_ask(struct twi_sync *sync, struct twi_store *store) {
    if (store->place.at != 0) return true;
    if (store->place.is_waiting) return false;
    take_out(&sync->awake, store);
    twi_awake_add(sync, store);
    return store->place.at != 0;
}

void twi_awake_join(struct twi_sync *sync) {
    for (uint32_t i = 0; i < sync->awake.count; i++) twi_ticket_join(&sync->tickets, &sync->awake.stores[i]->flush);
    for (struct twi_store *store = sync->awake.waiting.first; store; store = store->place.after)
        if (store->parking.count != 0) twi_ticket_join(&sync->tickets, &store->flush);
}

static void wake_cut_off(struct twi_sync *sync, struct twi_store *store) {
    for (struct twi_store *after; store; store = after) {
        after = store->place.after;
        if (store->connection && !twi_connection_takes(store->connection)) twi_awake_wake(sync, store);
    }
}

void twi_awake_look(struct twi_sync *sync) {
    bool any = false;
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        const struct twi_connection *connection = sync->connections[i];
        any |= connection->use.resting != 0 && !twi_connection_takes(connection);
    }
    if (!any) return;
    wake_cut_off(sync, sync->awake.resting.first);
    wake_cut_off(sync, sync->awake.waiting.first);
}

void twi_awake_begin(struct twi_sync *sync, int64_t now_ms) {
    struct twi_awake *awake = &sync->awake;
    struct twi_store *store;
    twi_awake_look(sync);
    while (twi_awake_has_next(sync)) twi_awake_wake(sync, awake->waiting.first);
    while ((store = awake->resting.first) != NULL && now_ms - store->belief.written_ms > TWI_LEDGER_REFRESH_MS)
        twi_awake_wake(sync, store);
}

bool twi_awake_has_next(const struct twi_sync *sync) {
    return sync->awake.waiting.count != 0 && has_place(&sync->awake);
}

/* ---- going to rest ----------------------------------------------------------------------------------------------- */

static bool has_to_send(const struct twi_store *store) {
    return !store->belief.is_open || store->opening || store->ledger.confirmed != store->ledger.last ||
           store->parking.count != 0;
}

/* A batch, an opening or a flush may need a turn. */
static bool has_work(const struct twi_store *store) {
    return has_to_send(store) || store->belief.doubt_since_ms != 0 || store->belief.is_restoring ||
           store->awaited != 0 || store->rewind || twi_ledger_safe(&store->ledger) != store->ledger.last ||
           store->rejected.count != 0 || store->flush.is_short;
}

static bool is_cut_off(const struct twi_store *store) {
    return !store->connection || !twi_connection_takes(store->connection) || store->route.is_waiting;
}

/* It is not at home, or not sure that its node still has what it acknowledged. */
static bool is_astray(const struct twi_store *store) {
    twi_check(!store->place.is_waiting || store->place.is_bounded);
    const struct twi_route *route = &store->route;
    const struct twi_store_look *look = &store->belief.look;
    return is_cut_off(store) || route->asking || route->detour.is_held || route->unserved_ms != 0 ||
           store->split.state != TWI_SPLIT_UNKNOWN || store->split.asked || look->is_under_way ||
           look->serial != route->serial;
}

static bool takes_place(const struct twi_store *store) {
    return store->place.is_bounded && has_to_send(store) && !is_cut_off(store) && store->belief.doubt_since_ms == 0;
}

static void put_to_rest(struct twi_awake *awake, struct twi_store *store) {
    twi_check(store->place.before == NULL && store->place.after == NULL);
    struct twi_store *before = awake->resting.last;
    while (before && before->belief.written_ms > store->belief.written_ms) before = before->place.before;
    insert(&awake->resting, store, before);
}

static void note_waiting(struct twi_sync *sync, int64_t now_ms) {
    twi_check((sync->awake.waiting.count == 0) == (sync->awake.waiting.first == NULL));
    struct twi_awake *awake = &sync->awake;
    if (awake->waiting.count == 0) {
        awake->waiting_since_ms = 0;
        return;
    }
    if (awake->waiting_since_ms == 0) awake->waiting_since_ms = now_ms ? now_ms : 1;
    if (now_ms - awake->waiting_since_ms < WAITING_LONG_MS) return;
    if (awake->logged_ms != 0 && now_ms - awake->logged_ms < WAITING_LOG_MS) return;
    awake->logged_ms = now_ms ? now_ms : 1;
    twi_port_log(sync->engine, TW_LOG_WARNING, TW_EVENT_SPLIT,
                 "%u key slots wait to be written, for at most %u of them are at a time: their counts wait here "
                 "(templates with tags of their own)",
                 awake->waiting.count, awake->places);
}

void twi_awake_rest(struct twi_sync *sync, int64_t now_ms) {
    struct twi_awake *awake = &sync->awake;
    if (!sync->by_slot) return;
    uint32_t count = awake->count;
    awake->count = awake->taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct twi_store *store = awake->stores[i];
        awake->taken += takes_place(store);
        if (has_work(store) || is_astray(store))
            put_awake(awake, store);
        else
            put_to_rest(awake, store);
    }
    twi_check(awake->count <= count && awake->taken <= awake->count);
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
        twi_check(is_waiting || !before || before->belief.written_ms <= store->belief.written_ms);
    }
    twi_check(list->last == before && list->count == count);
}

bool twi_awake_is_sound(const struct twi_sync *sync) {
    const struct twi_awake *awake = &sync->awake;
    uint32_t resting = 0, connected = 0;
    check_list(&awake->resting, false);
    check_list(&awake->waiting, true);
    for (uint32_t i = 0; i < awake->count; i++)
        twi_check(awake->stores[i]->place.at == i + 1 && !awake->stores[i]->place.is_waiting);
    twi_check(awake->count + awake->resting.count + awake->waiting.count == sync->store_count);
    for (uint32_t i = 0; i < sync->store_count; i++)
        connected += sync->stores[i]->place.at == 0 && sync->stores[i]->connection != NULL;
    for (uint32_t i = 0; i < sync->connection_count; i++) resting += sync->connections[i]->use.resting;
    twi_check(resting == connected);
    return true;
}
