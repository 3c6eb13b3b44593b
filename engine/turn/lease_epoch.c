/* lease_epoch.c -- see lease_epoch.h. */
#include "engine/turn/lease_epoch.h"

#include <stdio.h>
#include <string.h>

/* how often the epoch is requested, unless Redis requests a longer interval; leases.lua relies on it */
#define EPOCH_MS 150
#define EPOCH_IDLE_MS 500 /* with several stores, the interval to a store where all leases are idle */
#define REFUSED_MS 250    /* the pause before a message that Redis refused is sent again */
#define UNUSED_MS 10000   /* with several stores, the engine leaves a store after this time without leases in it */

bool twi_lease_epoch_is_joined(const tw_engine *engine, const struct twi_lease_store *store) {
    twi_check(store != NULL);
    return store->is_used || engine->peers.stores == NULL;
}

/* ---- requests ---- */

/* With several stores: returns true if the engine has no units of this store, and has requested none for long. */
static bool is_unused(const tw_engine *engine, struct twi_lease_store *store) {
    bool is_idle = store->head == 0 && store->listed == 0 && store->holding == 0 && store->restating == 0;
    if (!is_idle || engine->peers.stores == NULL) store->unused_ms = 0;
    if (!is_idle || engine->peers.stores == NULL) return false;
    if (store->unused_ms == 0) store->unused_ms = engine->turn.mono_ms;
    return store->known && engine->turn.mono_ms - store->unused_ms >= UNUSED_MS;
}

bool twi_lease_epoch_request(tw_engine *engine, struct twi_lease_store *store, uint64_t serial, bool is_over,
                             struct twi_lease_message *message) {
    if (store->serial != serial) {
        store->serial = serial;
        store->known = store->awaiting_epoch = false;
        store->request_at_ms = INT64_MIN;
    }
    bool leaves = store->is_leaving || is_over || is_unused(engine, store);
    if (store->awaiting_epoch || store->left ||
        (engine->turn.mono_ms < store->request_at_ms && (!leaves || store->is_leaving)))
        return false;
    struct twi_lease_epoch *epoch = &store->epoch;
    memcpy(epoch->instance, engine->in_redis.id, sizeof engine->in_redis.id);
    *message = (struct twi_lease_message){
        .store = store->index, .serial = serial, .requested_since_ms = store->requested_since_ms, .leaves = leaves};
    memcpy(message->epoch, epoch->id, sizeof message->epoch);
    if (store->restating == 0) memcpy(epoch->resent_in, epoch->id, sizeof epoch->resent_in);
    memcpy(message->resent_in, epoch->resent_in, sizeof message->resent_in);
    if (epoch->incarnation[0] == '\0') epoch->changes = -1;
    message->wants_members = !store->known || strcmp(epoch->resent_in, epoch->id) != 0;
    store->awaiting_epoch = true;
    store->is_leaving = leaves && !is_over;
    return true;
}

/* ---- requests of other engines ---- */

static uint64_t hash_of(const char *name, size_t size) {
    twi_check(name != NULL && size != 0);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    return hash | 1;
}

void twi_port_lease_requested(tw_engine *engine, uint32_t store, const char *name, size_t size) {
    twi_check(name != NULL);
    struct twi_lease_store *of = twi_lease_store_at(&engine->leases, store);
    if (of != NULL && of->requested_count < TWI_LEASE_REQUESTED_MAX)
        of->requested_names[of->requested_count++] = hash_of(name, size);
}

static void set_name(const tw_engine *engine, struct twi_lease *lease) {
    char text[TWI_OWN_NAME_MAX];
    struct twi_generation *generation = twi_lease_generation(&engine->arena, lease);
    struct twi_item item = {
        .family = generation->family, .generation = generation, .cell = twi_arena_at(&engine->arena, lease->cell)};
    lease->turn.name_hash = hash_of(text, twi_port_render_own(&item, "lease", text));
}

/* If two names have the same hash, a lease may return units although no other engine wants them. This is harmless. */
static void mark_requested(tw_engine *engine, struct twi_lease_store *store) {
    twi_check(store->requested_count <= TWI_LEASE_REQUESTED_MAX);
    for (uint32_t line = store->requested_count != 0 ? store->head : 0; line != 0;) {
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        line = lease->turn.in.next_active;
        if (lease->turn.name_hash == 0) set_name(engine, lease);
        for (uint32_t i = 0; i < store->requested_count && !lease->turn.wanted_by_others; i++)
            lease->turn.wanted_by_others = lease->turn.name_hash == store->requested_names[i];
        if (lease->turn.wanted_by_others) store->walk_at_ms = INT64_MIN;
    }
    store->requested_count = 0;
}

/* ---- the engines that take part ---- */

void twi_port_lease_other(tw_engine *engine, uint32_t store, const char *instance, bool takes_part) {
    twi_check(instance != NULL);
    struct twi_lease_store *of = twi_lease_store_at(&engine->leases, store);
    if (of != NULL && of->other_count < TWI_LEASE_OTHERS_MAX)
        (void)snprintf(of->others[of->other_count++], sizeof of->others[0], "%c%s", takes_part ? '+' : '-', instance);
}

/* If there is no room, the newest engines are kept, because Redis may forget those first. */
static void take_other(struct twi_lease_epoch *epoch, const char *change) {
    twi_check(change[0] == '+' || change[0] == '-');
    twi_check(epoch->other_count <= TWI_LEASE_OTHERS_MAX);
    uint32_t at = 0;
    while (at < epoch->other_count && strcmp(epoch->others[at], change + 1) != 0) at++;
    bool is_there = at < epoch->other_count;
    if (!is_there && (change[0] == '-' || strcmp(change + 1, epoch->instance) == 0)) return;
    if (!is_there && at == TWI_LEASE_OTHERS_MAX) at = 0;
    if (at < epoch->other_count) {
        epoch->other_count--;
        memmove(epoch->others[at], epoch->others[at + 1], (epoch->other_count - at) * sizeof epoch->others[0]);
    }
    if (change[0] == '+') memcpy(epoch->others[epoch->other_count++], change + 1, sizeof epoch->others[0]);
}

/* Until all leases are stated again, the function keeps the earlier list of other engines, because Redis may have
 * forgotten some of them. */
static void take_others(struct twi_lease_store *store, const struct twi_lease_answer *answer, bool is_new) {
    twi_check(store->other_count <= TWI_LEASE_OTHERS_MAX);
    struct twi_lease_epoch *epoch = &store->epoch;
    bool may = !is_new && strcmp(epoch->resent_in, epoch->id) == 0;
    if (may && answer->whole) epoch->other_count = 0;
    for (uint32_t i = 0; i < store->other_count && may; i++) take_other(epoch, store->others[i]);
    bool is_known = may && (answer->whole || epoch->changes >= 0);
    epoch->changes = is_known ? answer->changes : -1;
    store->other_count = 0;
}

/* ---- replies ---- */

/* Called when the engine has left the store, and stays open. If a lease was requested since then, it comes again. */
static void has_left(tw_engine *engine, struct twi_lease_store *store) {
    twi_check(store->is_leaving);
    bool is_idle = store->head == 0 && store->listed == 0 && store->holding == 0;
    if (is_idle) {
        twi_lease_store_drop(&engine->leases, store);
        return;
    }
    twi_lease_store_leave(store);
}

/* Computes when the next heartbeat is sent. */
static void set_next(tw_engine *engine, struct twi_lease_store *store, const struct twi_lease_answer *answer) {
    bool busy = store->head != 0;
    int64_t every_ms = answer->every_ms > EPOCH_MS ? answer->every_ms : EPOCH_MS;
    if (busy && every_ms <= TWI_LEASE_BUSY_MS && twi_lease_busy_ms(engine) < every_ms)
        every_ms = twi_lease_busy_ms(engine);
    if (!busy && engine->peers.stores != NULL && every_ms < EPOCH_IDLE_MS) every_ms = EPOCH_IDLE_MS;
    if (answer->kind != TWI_LEASE_NUMBERS)
        every_ms = answer->refused ? REFUSED_MS : 0; /* if the message was not refused, Redis did not have the script */
    store->request_at_ms = engine->turn.mono_ms + every_ms;
}

static void take_epoch(tw_engine *engine, struct twi_lease_store *store, const struct twi_lease_answer *answer) {
    twi_check(answer->kind == TWI_LEASE_NUMBERS);
    struct twi_lease_epoch *epoch = &store->epoch;
    bool is_new = strcmp(epoch->id, answer->id) != 0;
    epoch->every_ms = answer->every_ms;
    if (strcmp(epoch->incarnation, answer->incarnation) != 0) {
        (void)snprintf(epoch->incarnation, sizeof epoch->incarnation, "%s", answer->incarnation);
        store->incarnation = ++engine->leases.incarnations;
    }
    take_others(store, answer, is_new);
    if (!is_new) return;
    (void)snprintf(epoch->id, sizeof epoch->id, "%s", answer->id);
    (void)snprintf(epoch->run, sizeof epoch->run, "%s", answer->run);
}

bool twi_lease_epoch_answered(tw_engine *engine, struct twi_lease_store *store, const struct twi_lease_message *message,
                              const struct twi_lease_answer *answer) {
    twi_check(message->lease == NULL && message->store == store->index);
    if (message->serial != store->serial) { /* made for an earlier connection of the store */
        store->requested_count = store->other_count = 0;
        return false;
    }
    store->awaiting_epoch = false;
    set_next(engine, store, answer);
    if (answer->kind != TWI_LEASE_NUMBERS) {
        store->requested_count = store->other_count = 0;
        return false;
    }
    if (message->leaves && store->is_leaving) {
        has_left(engine, store);
        return false;
    }
    store->left = message->leaves;
    store->requested_since_ms = answer->redis_ms;
    store->known = !message->leaves;
    if (message->leaves) return false;
    bool is_new = strcmp(store->epoch.id, answer->id) != 0;
    take_epoch(engine, store, answer);
    if (is_new) store->walk_at_ms = INT64_MIN;
    /* The engine waits until the epoch has begun, or must report that all leases are stated again. */
    if (is_new || !answer->open)
        store->request_at_ms = engine->turn.mono_ms + (is_new ? 0 : twi_lease_again_ms(engine));
    mark_requested(engine, store);
    return is_new;
}

void twi_lease_epoch_restated(struct twi_lease_store *store) {
    twi_check(store->restating != 0);
    if (--store->restating == 0) store->request_at_ms = INT64_MIN; /* request the epoch at once */
}

const struct twi_lease_epoch *twi_port_lease_epoch(tw_engine *engine, uint32_t store) {
    static const struct twi_lease_epoch none;
    const struct twi_lease_store *of = twi_lease_store_at(&engine->leases, store);
    return of != NULL ? &of->epoch : &none;
}
