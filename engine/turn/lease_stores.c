/* lease_stores.c -- see lease_stores.h. */
#include "engine/turn/lease_stores.h"

#include "engine/base/grow.h"
#include "engine/core/store_map.h"
#include "engine/core/window_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 8u

/* ---- records ---- */

static bool has_room(struct twi_leases *leases, uint32_t index) {
    twi_check(index != 0);
    uint32_t room = leases->room;
    if (!twi_grow(&leases->more, sizeof(struct twi_lease_store *), &leases->room, index, ROOM_FIRST)) return false;
    memset(leases->more + room, 0, (leases->room - room) * sizeof(struct twi_lease_store *));
    return true;
}

/* Returns NULL if there is no memory. */
static struct twi_lease_store *store_made(struct twi_leases *leases, uint32_t index) {
    if (index != 0 && !has_room(leases, index)) return NULL;
    struct twi_lease_store *store = twi_lease_store_at(leases, index);
    if (store == NULL) store = leases->more[index - 1] = calloc(1, sizeof *store);
    if (store == NULL) return NULL;
    store->index = index;
    store->is_used = true;
    return store;
}

void twi_lease_store_drop(struct twi_leases *leases, struct twi_lease_store *store) {
    twi_check(store->active == 0 && store->listed == 0);
    twi_check(store->index == 0 || leases->more[store->index - 1] == store);
    if (store->index == 0) {
        memset(store, 0, sizeof *store);
        return;
    }
    leases->more[store->index - 1] = NULL;
    free(store);
}

void twi_lease_store_leave(struct twi_lease_store *store) {
    store->left = store->is_leaving = store->known = false;
    store->request_at_ms = INT64_MIN;
    store->requested_count = store->other_count = 0;
    store->incarnation = 0;
    memset(&store->epoch, 0, sizeof store->epoch);
}

void twi_lease_stores_free(struct twi_leases *leases) {
    for (uint32_t i = 0; i < leases->room; i++) free(leases->more[i]);
    free(leases->more);
    leases->more = NULL;
    leases->room = 0;
}

/* Returns the index of the store of the lease's name. Returns TWI_STORE_NONE if there is no memory. */
static uint32_t index_of(tw_engine *engine, const struct twi_lease *lease) {
    if (engine->peers.stores == NULL) return 0;
    struct twi_generation *generation = twi_lease_generation(&engine->arena, lease);
    struct twi_item item = {
        .family = generation->family, .generation = generation, .cell = twi_arena_at(&engine->arena, lease->cell)};
    char name[TWI_REDIS_KEY_MAX];
    return twi_port_store(engine, twi_key_slot_of(name, twi_port_render(&item, name)));
}

/* Returns the record of the lease's store. Returns NULL if there is no memory. */
static struct twi_lease_store *place(tw_engine *engine, struct twi_lease *lease) {
    twi_check(lease->generation != 0 && lease->cell != 0);
    uint32_t index = lease->turn.in.is_placed ? lease->turn.in.store : index_of(engine, lease);
    struct twi_lease_store *store = index != TWI_STORE_NONE ? store_made(&engine->leases, index) : NULL;
    if (store == NULL) return NULL;
    lease->turn.in.store = index;
    lease->turn.in.is_placed = true;
    return store;
}

/* ---- chains ---- */

static void put_first(const struct twi_arena *arena, uint32_t *chain, struct twi_lease *lease) {
    twi_check(!lease->turn.in.is_listed);
    lease->turn.in.is_listed = true;
    lease->turn.in.next_listed = *chain;
    *chain = twi_arena_line(arena, lease);
}

static struct twi_lease *take_first(const struct twi_arena *arena, uint32_t *chain) {
    twi_check(*chain != 0);
    struct twi_lease *lease = twi_lease_at(arena, *chain);
    *chain = lease->turn.in.next_listed;
    lease->turn.in.is_listed = false;
    return lease;
}

static void list(tw_engine *engine, struct twi_lease *lease) {
    if (lease->turn.in.is_listed) return;
    struct twi_lease_store *store = place(engine, lease);
    put_first(&engine->arena, store != NULL ? &store->listed : &engine->leases.unplaced, lease);
}

void twi_lease_stores_sort(tw_engine *engine) {
    struct twi_leases *leases = &engine->leases;
    uint32_t unplaced = leases->unplaced;
    for (leases->unplaced = 0; unplaced != 0;) list(engine, take_first(&engine->arena, &unplaced));
    if (twi_load_relaxed(&leases->requested) == 0) return;
    uint32_t line = twi_swap_acqrel(&leases->requested, 0); /* J8, pairs with J7 */
    while (line != 0) {
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        line = twi_load_relaxed(&lease->next_requested);
        /* J6, pairs with J5: if a caller requests units after this point, it lists the lease again */
        (void)twi_swap_acqrel(&lease->listed, 0);
        list(engine, lease);
    }
}

void twi_lease_stores_unlist(tw_engine *engine, struct twi_lease *lease) {
    (void)twi_swap_acqrel(&lease->listed, 0); /* J6 */
    list(engine, lease);
}

void twi_lease_stores_heal(tw_engine *engine, struct twi_cell *cell, uint32_t number) {
    struct twi_lease *lease = twi_lease_of(cell);
    if (lease == NULL) return;
    twi_lease_stores_sort(engine); /* a lease that was pushed has no number after that */
    if (twi_load_relaxed(&lease->listed) == number) (void)twi_swap_acqrel(&lease->listed, 0); /* J6 */
    list(engine, lease);
}

struct twi_lease *twi_lease_store_next(tw_engine *engine, struct twi_lease_store *store) {
    return store->listed != 0 ? take_first(&engine->arena, &store->listed) : NULL;
}

/* ---- queues ---- */

void twi_lease_enqueue(tw_engine *engine, struct twi_lease_store *store, struct twi_lease *lease) {
    twi_check(lease->turn.in.is_placed || store->index == 0);
    twi_check((store->head == 0) == (store->active == 0));
    if (lease->turn.in.is_active) return;
    uint32_t line = twi_arena_line(&engine->arena, lease);
    lease->turn.in.is_active = true;
    lease->turn.in.next_active = 0;
    if (store->head == 0)
        store->head = line;
    else
        twi_lease_at(&engine->arena, store->tail)->turn.in.next_active = line;
    store->tail = line;
    store->active++;
}

struct twi_lease *twi_lease_dequeue(tw_engine *engine, struct twi_lease_store *store) {
    twi_check(store->head != 0 && store->active != 0);
    struct twi_lease *lease = twi_lease_at(&engine->arena, store->head);
    store->head = lease->turn.in.next_active;
    if (store->head == 0) store->tail = 0;
    lease->turn.in.is_active = false;
    store->active--;
    return lease;
}

void twi_lease_hold(struct twi_lease_store *store, struct twi_lease *lease) {
    twi_check(lease->turn.in.store == store->index);
    if (!lease->turn.in.is_held) store->holding++;
    lease->turn.in.is_held = true;
}

/* ---- forgetting ---- */

static void forget_chain(const struct twi_arena *arena, uint32_t *chain, const struct twi_generation *generation) {
    uint32_t rest = *chain;
    for (*chain = 0; rest != 0;) {
        struct twi_lease *lease = take_first(arena, &rest);
        if (twi_lease_generation(arena, lease) != generation) put_first(arena, chain, lease);
    }
}

void twi_lease_stores_forget(tw_engine *engine, const struct twi_generation *generation) {
    struct twi_leases *leases = &engine->leases;
    twi_lease_stores_sort(engine); /* the turn cannot search the callers' list */
    forget_chain(&engine->arena, &leases->unplaced, generation);
    for (uint32_t i = 0; i <= leases->room; i++) {
        struct twi_lease_store *store = twi_lease_store_at(leases, i);
        if (store == NULL) continue;
        forget_chain(&engine->arena, &store->listed, generation);
        for (uint32_t left = store->active; left != 0; left--) {
            struct twi_lease *lease = twi_lease_dequeue(engine, store);
            if (twi_lease_generation(&engine->arena, lease) != generation) twi_lease_enqueue(engine, store, lease);
        }
    }
}

/* ---- another process continues ---- */

/* If the process before had not restated all its leases in this epoch, the epoch counts as a new one. If it was the
 * last one, the engine has left the store. */
static void inherit_store(struct twi_lease_store *store) {
    if (store->left) twi_lease_store_leave(store);
    store->listed = store->head = store->tail = store->active = store->restating = store->holding = 0;
    store->serial = 0; /* messages under way belong to an earlier connection */
    store->known = store->awaiting_epoch = store->is_leaving = false;
    store->request_at_ms = store->walk_at_ms = INT64_MIN;
    store->requested_count = store->other_count = 0;
    if (strcmp(store->epoch.resent_in, store->epoch.id) != 0) store->epoch.id[0] = '\0';
}

static void inherit_window(void *ctx, struct twi_generation *generation) {
    tw_engine *engine = ctx;
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4, pairs with J3 */
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        line = lease->attached.older;
        /* A lease that came too late to its cell has none of the counter's numbers (limit/lease.c). */
        if (twi_lease_of(twi_arena_at(&engine->arena, lease->cell)) != lease) continue;
        lease->turn.in_flight = lease->turn.restate = false;
        lease->turn.in.is_listed = lease->turn.in.is_active = false;
        lease->turn.has_unacknowledged = true;
        lease->turn.retry_ms = INT64_MIN;
        if (lease->turn.raised == TWI_LEASE_RAISING) lease->turn.raised = twi_epoch_stamp();
        if (lease->turn.in.is_held) twi_lease_store_of(engine, lease)->holding++;
        list(engine, lease);
    }
}

void twi_leases_inherit(tw_engine *engine) {
    struct twi_leases *leases = &engine->leases;
    twi_check(leases->room == 0); /* one Redis is one store */
    if (!twi_load_relaxed(&leases->exist)) return;
    leases->unplaced = 0;
    inherit_store(&leases->first);
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        if (family->kind.is_hard && family->kind.synced) twi_window_visit(family, inherit_window, engine);
}

/* ---- checks ---- */

bool twi_lease_is_valid(tw_engine *engine, const struct twi_lease *lease) {
    const struct twi_lease_turn *turn = &lease->turn;
    if (lease->generation == 0 || lease->cell == 0 || twi_load_relaxed(&lease->left) < 0) return false;
    if (turn->granted < 0 || turn->returned < 0 || twi_load_relaxed(&lease->stranded) < 0) return false;
    if (turn->acked_returned > turn->returned || turn->sent_returned > turn->returned) return false;
    if (turn->in_flight && twi_lease_generation(&engine->arena, lease)->turn.outstanding == 0) return false;
    const struct twi_lease_store *store = twi_lease_store_of(engine, lease);
    bool needs_store = turn->in.is_active || turn->in.is_held || turn->restate || turn->in_flight;
    return !needs_store || (turn->in.is_placed && store != NULL && store->index == turn->in.store);
}

/* Checks that every lease in the chain or queue is marked as its member. */
static bool members_are_valid(tw_engine *engine, const struct twi_lease_store *store) {
    uint32_t active = 0, last = 0;
    for (uint32_t line = store->head; line != 0; active++) {
        const struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        if (!lease->turn.in.is_active || lease->turn.in.store != store->index) return false;
        last = line;
        line = lease->turn.in.next_active;
    }
    for (uint32_t line = store->listed; line != 0; line = twi_lease_at(&engine->arena, line)->turn.in.next_listed)
        if (!twi_lease_at(&engine->arena, line)->turn.in.is_listed) return false;
    return active == store->active && last == store->tail;
}

bool twi_lease_stores_are_valid(tw_engine *engine) {
    struct twi_leases *leases = &engine->leases;
    for (uint32_t i = 0; i <= leases->room; i++) {
        const struct twi_lease_store *store = twi_lease_store_at(leases, i);
        if (store != NULL && (store->index != i || !members_are_valid(engine, store))) return false;
    }
    return true;
}

/* ---- lease epoch ---- */

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
