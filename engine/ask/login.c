/* login.c -- see login.h. */
#include "engine/ask/login.h"

#include <time.h>

int64_t twi_login_mono_ms(void) {
    struct timespec now;
    twi_clock_system_monotonic(&now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool twi_login_goes_on(tw_engine *engine) {
    return engine == NULL || !twi_load_acquire(&engine->life.stopped);
}

void twi_login_of_engine(tw_engine *engine, tw_audit_options *options, struct twi_audit *audit) {
    options->redis_prefix = engine->options.redis_prefix;
    audit->options = options;
    audit->server = &engine->options;
    audit->mono_ms = twi_login_mono_ms;
    audit->goes_on = twi_login_goes_on;
    audit->engine = engine;
}
