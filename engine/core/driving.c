/* driving.c -- see driving.h. */
#include "engine/core/driving.h"

#include "engine/core/state.h"

static bool has_calls(const struct twi_remote *remote) {
    twi_check(remote->sync == NULL || remote->driver != NULL);
    return remote->sync != NULL && remote->driver->ask_step != NULL;
}

void twi_driving_step(tw_engine *engine) {
    if (has_calls(&engine->here->remote)) engine->here->remote.driver->ask_step(engine->here->remote.sync);
}

int64_t twi_driving_wake_ms(const tw_engine *engine) {
    return has_calls(&engine->here->remote) ? engine->here->remote.driver->ask_wake_ms(engine->here->remote.sync)
                                            : INT64_MAX;
}

int twi_driving_fd(const tw_engine *engine) {
    return has_calls(&engine->here->remote) ? engine->here->remote.driver->ask_fd(engine->here->remote.sync) : -1;
}
