/* driving.c -- see driving.h. */
#include "engine/core/driving.h"

#include "engine/core/operation.h"
#include "engine/core/state.h"

struct twi_sync *twi_driving_sync(const tw_engine *engine) {
    const struct twi_remote *remote = &engine->here->remote;
    struct twi_sync *sync = engine->life.is_shared ? twi_load_acquire(&remote->asks) : remote->sync; /* AN14 */
    return sync != NULL && remote->driver->ask != NULL ? sync : NULL;
}

tw_status twi_driving_begin(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    bool has_calls = engine->life.has_redis && remote->driver != NULL && remote->driver->ask != NULL;
    if (has_calls && twi_driving_sync(engine) != NULL) return TW_OK;
    if (!has_calls || !engine->life.is_shared) return twi_refuse_for(TWI_WHY_REDIS);
    struct twi_sync *made, *none = NULL;
    tw_status status =
        remote->driver->create(engine, &engine->options, remote->transport, remote->transport_ctx, &made);
    if (status != TW_OK) return status;
    if (!twi_cas_acqrel(&remote->asks, &none, made)) remote->driver->destroy(made); /* AN13, pairs with AN14 */
    return TW_OK;
}

void twi_driving_step(tw_engine *engine) {
    struct twi_calls *calls = engine->here->calls;
    struct twi_sync *sync = twi_driving_sync(engine);
    /* In a shared engine the thread that leads and another one that calls tw_turn() may come here at once. */
    if (sync == NULL) return;
    if (twi_swap_acqrel(&calls->is_driven, true)) return; /* AN11, pairs with AN12 */
    engine->here->remote.driver->ask_step(sync);
    twi_store_release(&calls->is_driven, false); /* AN12 */
}

int64_t twi_driving_wake_ms(const tw_engine *engine) {
    struct twi_sync *sync = twi_driving_sync(engine);
    return sync != NULL ? engine->here->remote.driver->ask_wake_ms(sync) : INT64_MAX;
}

int twi_driving_fd(const tw_engine *engine) {
    struct twi_sync *sync = twi_driving_sync(engine);
    return sync != NULL ? engine->here->remote.driver->ask_fd(sync) : -1;
}

void twi_driving_stop(tw_engine *engine) {
    struct twi_sync *sync = twi_driving_sync(engine);
    if (sync != NULL) engine->here->remote.driver->ask_stop(sync);
}

uint32_t twi_driving_owed(const tw_engine *engine) {
    struct twi_sync *sync = twi_driving_sync(engine);
    return sync != NULL ? engine->here->remote.driver->ask_owed(sync) : 0;
}

void twi_driving_end(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    struct twi_sync *asks = twi_load_acquire(&remote->asks); /* AN14 */
    if (asks == NULL) return;
    twi_store_relaxed(&remote->asks, NULL);
    remote->driver->destroy(asks);
}

void twi_driving_abandon(tw_engine *engine) {
    struct twi_remote *remote = &engine->here->remote;
    struct twi_sync *asks = twi_load_acquire(&remote->asks); /* AN14 */
    twi_store_relaxed(&remote->asks, NULL);
    if (asks != NULL) remote->driver->abandon(asks, false); /* it has no turns */
}
