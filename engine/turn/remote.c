/* remote.c -- see remote.h. */
#include "engine/turn/remote.h"

#include "engine/core/options.h"
#include "engine/core/window_map.h"
#include "engine/port/messages.h"
#include "engine/reserve/hold_book.h"
#include "engine/turn/closing.h"
#include "engine/turn/lease_stores.h"
#include "engine/turn/restore_notes.h"

#include <stdio.h>
#include <string.h>

#define AGAIN_MS 1000

/* What the sync of a shared engine leaves to the next one: the engine's notes for a Redis that forgets, and behind them
 * the estate of sync/. Pages that are not used cost nothing. */
struct twi_left {
    struct twi_restore restore;
    struct twi_restore_stores stores;
    struct twi_noted given_up[TWI_NOTED_MAX], adrift[TWI_NOTED_MAX];
    struct twi_dropped_window dropped[TWI_DROPPED_MAX];
    alignas(TWI_LINE_BYTES) unsigned char estate[];
};

void twi_remote_name(tw_engine *engine) {
    unsigned char bytes[16];
    twi_port_random(engine, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) (void)snprintf(engine->in_redis.id + 2 * i, 3, "%02x", bytes[i]);
}

static tw_status refuse(const tw_engine *engine, tw_status status, const char *why) {
    (void)twi_options_refuse(engine->options.error_text, engine->options.error_size, "%s", why);
    return twi_refuse_with(status, "%s", why);
}

static tw_status make_sync(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    twi_check(remote->sync == NULL);
    remote->driver = twi_driver_find();
    if (remote->driver == NULL) return refuse(engine, TW_ERR_REDIS, "redis_url: this library was built without Redis");
    tw_status status =
        remote->driver->create(engine, &engine->options, remote->transport, remote->transport_ctx, &remote->sync);
    if (status == TW_OK && remote->driver->shorts != NULL) remote->shorts = remote->driver->shorts(remote->sync);
    return status;
}

/* Returns false if there is no memory. */
static bool make_estate(tw_engine *engine) {
    const struct twi_driver *driver = engine->here->remote.driver;
    size_t bytes =
        sizeof(struct twi_left) + (driver->estate_bytes != NULL ? driver->estate_bytes(&engine->options) : 0);
    struct twi_left *left = twi_arena_block(bytes, true);
    if (left == NULL) return false;
    left->restore = (struct twi_restore){.stores = &left->stores, .is_shared = true};
    left->restore.given_up = (struct twi_notes){.items = left->given_up, .room = TWI_NOTED_MAX};
    left->restore.adrift = (struct twi_notes){.items = left->adrift, .room = TWI_NOTED_MAX};
    left->restore.dropped = left->dropped;
    left->restore.dropped_room = TWI_DROPPED_MAX;
    engine->restore = &left->restore;
    engine->collector.stores = &left->stores;
    engine->in_redis.left = left;
    engine->in_redis.left_bytes = bytes;
    engine->in_redis.estate = left->estate;
    return true;
}

tw_status twi_remote_open(tw_engine *engine) {
    if (!engine->life.has_redis) return TW_OK;
    tw_status status = make_sync(engine);
    if (status != TW_OK || !engine->life.is_shared) return status;
    twi_remote_end(engine); /* the options are right; the process that leads makes its own */
    if (engine->here->remote.shorts != NULL)
        return refuse(engine, TW_ERR_OPTIONS, "redis_url: redis+cluster:// not yet with TW_SHARED_BY_FORK (shared)");
    return make_estate(engine) ? TW_OK : twi_refuse(TW_ERR_MEMORY, NULL);
}

/* ---- the process that leads ---- */

/* Its sockets are closed. Its batches are in the estate. */
static void let_go(struct twi_remote *remote) {
    remote->driver->hand_over(remote->sync);
    remote->sync = NULL;
}

static void make_own(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    if (twi_clock_mono_ms(&engine->clock) < remote->again_ms) return;
    tw_status status = make_sync(engine);
    if (status == TW_OK) {
        twi_store_relaxed(&engine->turn.leaves_redis, false);
        remote->made = ++engine->in_redis.made;
        remote->driver->inherit(remote->sync);
        return;
    }
    remote->again_ms = twi_clock_mono_ms(&engine->clock) + AGAIN_MS;
    twi_port_last_error(engine, tw_error_text());
    twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_START, "this process leads, and cannot begin its sync: %s (%s)",
                 tw_error_text(), tw_status_text(status));
}

void twi_remote_turn(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    if (!engine->life.is_shared || !engine->life.has_redis) return;
    twi_check(twi_turn_is_owned(engine));
    if (remote->sync != NULL && remote->made == engine->in_redis.made) return;
    if (remote->sync != NULL) let_go(remote); /* another process has led since */
    make_own(engine);
}

bool twi_remote_is_finished(tw_engine *engine) {
    const struct twi_remote *remote = &engine->here->remote;
    return remote->sync == NULL || remote->driver->finish(remote->sync);
}

void twi_remote_leave(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    twi_check(engine->life.is_shared && twi_turn_is_owned(engine));
    if (remote->sync == NULL) return;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        twi_closing_free(family);
    let_go(remote);
}

void twi_remote_end(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    if (remote->sync != NULL) remote->driver->destroy(remote->sync);
    remote->sync = NULL;
}

void twi_remote_free(tw_engine *engine) {
    twi_arena_give_block(engine->in_redis.left, engine->in_redis.left_bytes, true);
}

/* ---- twin ----
 * this process exists twice: a snapshot of it was started a second time, and the other copy uses the same
 * ledger and the same names in Redis.
 *
 * Redis reports this to one of the two (CLASH of a batch, STALE or TWIN of a lease). That copy continues under another
 * name:
 *   holds and gauges    are stated again; those of the other copy stay under the old name
 *   leases              the other copy may spend units of the leases: they are given up, not returned. Units that this
 *                       copy has spent and no batch has acknowledged may also be in the other copy. They are claimed
 *                       under the new name. So Redis counts every unit that is sold twice, and the excess over the
 *                       limit becomes `limit_at_risk` (lease.lua)
 * The unacknowledged part is enough, because the copy that gets the report has had no batch acknowledged since the
 * snapshot. The first batch that the other copy sent has taken its number.
 * Always true: only the turn runs this file. This process never uses the old name again. */

/* A machine that was copied may have the same random bytes in both copies. The copies differ in time. */
static void make_name(tw_engine *engine, char name[33]) {
    uint64_t words[2], now_us = (uint64_t)twi_port_mono_us(engine);
    twi_port_random(engine, words, sizeof words);
    words[1] ^= now_us * UINT64_C(0x9e3779b97f4a7c15);
    (void)snprintf(name, 33, "%016llx%016llx", (unsigned long long)words[0], (unsigned long long)words[1]);
}

/* Returns the units that callers have taken and no batch has acknowledged. Some of them were taken out of `left` and
 * are not counted yet. */
static int64_t unacknowledged(tw_engine *engine, const struct twi_lease *lease, int64_t spent) {
    struct twi_cell *cell = twi_arena_at(&engine->arena, lease->cell);
    uint64_t meta = twi_load_relaxed(&cell->meta);
    int64_t counted = twi_cell_local(cell, meta) - twi_load_relaxed(&twi_cell_cold(cell, meta)->acked);
    int64_t taken = spent - lease->turn.acked_spent;
    if (counted > taken) taken = counted;
    return taken > 0 ? taken : 0;
}

static void renew_lease(tw_engine *engine, struct twi_lease *lease) {
    int64_t left = twi_swap_acqrel(&lease->left, 0); /* J11, because the turn takes units out */
    int64_t claim = unacknowledged(engine, lease, lease->turn.granted - lease->turn.returned - left);
    struct twi_lease_store *store = twi_lease_store_of(engine, lease);
    if (lease->turn.restate) {
        lease->turn.restate = false;
        twi_lease_epoch_restated(store);
    }
    lease->turn.granted = claim;
    lease->turn.returned = lease->turn.sent_returned = lease->turn.acked_returned = lease->turn.acked_spent = 0;
    lease->turn.spent_then = claim;
    lease->turn.acked_incarnation = 0;
    lease->turn.risk = 0;
    lease->turn.has_unacknowledged = false;
    twi_store_relaxed(&lease->low_water, 0);
    if (claim != 0) twi_lease_hold(store, lease);
}

static void renew_window(void *ctx, struct twi_generation *generation) {
    tw_engine *engine = ctx;
    if (engine->turn.now_ms >= generation->end_ms) return;
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4, pairs with J3 */
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        line = lease->attached.older;
        if (lease->turn.granted != 0 || lease->turn.returned != 0) renew_lease(engine, lease);
    }
}

/* The engine comes to each store as an engine that was never there. */
static void leave_epochs(struct twi_leases *leases) {
    for (uint32_t i = 0; i <= leases->room; i++) {
        struct twi_lease_store *store = twi_lease_store_at(leases, i);
        if (store == NULL) continue;
        store->serial = 0; /* messages under way belong to an earlier connection */
        store->known = store->awaiting_epoch = store->is_leaving = false;
        store->request_at_ms = INT64_MIN;
        store->requested_count = store->other_count = 0;
        store->incarnation = 0;
        memset(&store->epoch, 0, sizeof store->epoch);
    }
}

void twi_port_twin(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    char name[33];
    make_name(engine, name);
    twi_hold_book_rename(engine, name);
    engine->leases.names++;
    if (twi_load_relaxed(&engine->leases.exist)) {
        for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
             family = twi_load_acquire(&family->entry.next))
            if (family->kind.is_hard && family->kind.synced) twi_window_visit(family, renew_window, engine);
        leave_epochs(&engine->leases);
    }
    twi_port_presence_resend(engine);
}
