/* call_guard.c -- see call_guard.h. */
#include "engine/core/call_guard.h"

#include "engine/core/engines.h"

tw_status twi_guard_thread(const struct twi_thread *self) {
    twi_check(self == NULL || self == twi_thread_self);
    if (!twi_epoch_look_at_users()) return twi_refuse_for(TWI_WHY_ROOT);
    if (self == NULL) return twi_refuse_for(twi_thread_why());
    if (self->in_hook)
        return twi_refuse(TW_ERR_MODE,
                          "not from inside a hook or a callback: the engine that calls it would wait for itself");
    if (self->depth != 0)
        return twi_refuse(TW_ERR_MODE, "not between tw_enter() and tw_leave(): memory would not come back");
    return TW_OK;
}

tw_status twi_guard_engine(const tw_engine *engine) {
    twi_check(engine != NULL);
    if (!engine->life.host_driven) return TW_OK;
    return twi_refuse(TW_ERR_MODE, "threads: this call waits for Redis, and is not for TW_HOST_DRIVEN engines");
}

tw_status twi_guard_redis(const tw_engine *engine) {
    if (engine->here->remote.sync != NULL) return TW_OK;
    if (!engine->life.has_redis) return twi_refuse_for(TWI_WHY_REDIS);
    return twi_refuse(TW_ERR_MODE, "shared: this call needs the connection to Redis, and this process does not lead "
                                   "(tw_lead())");
}

bool twi_guard_is_alone(const tw_engine *engine) {
    const struct twi_here *here = twi_engines_find(engine);
    return here != NULL && twi_engines_is_alone(here);
}

tw_status twi_guard_families(const tw_engine *engine) {
    if (twi_guard_is_alone(engine)) return TW_OK;
    return twi_refuse(TW_ERR_MODE, "shared: families are opened, changed and closed before the first fork, because "
                                   "other processes would not see the change");
}

tw_status twi_guard_may_wait(tw_engine *engine) {
    twi_check(engine != NULL);
    struct twi_thread *self = twi_thread_here();
    tw_status status = twi_guard_thread(self);
    if (status != TW_OK) return status;
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    return twi_load_acquire(&engine->life.stopped) ? twi_refuse(TW_ERR_CLOSED, NULL) : TW_OK;
}
