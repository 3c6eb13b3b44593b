/* remote.c -- see remote.h. */
#include "engine/turn/remote.h"

#include "engine/core/options.h"
#include "engine/turn/closing.h"
#include "engine/turn/restore_notes.h"

#include <stdio.h>

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
