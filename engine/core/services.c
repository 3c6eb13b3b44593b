/* services.c -- the services of the engine for sync/ apart from counters, which are clocks, random bytes and the
 * engine's id (port/). */
#include "engine/core/state.h"

const struct twi_tuning *twi_port_tuning(const tw_engine *engine) {
    return &engine->here->remote.tuning;
}

bool twi_port_is_closing(const tw_engine *engine) {
    return engine->turn.closing || twi_load_relaxed(&engine->turn.leaves_redis);
}

int64_t twi_port_wall_ms(tw_engine *engine) {
    return twi_clock_read(&engine->clock); /* not the turn's time, because a hook may have run for long since */
}
/* Sync reads the time at every step. So this is where the keeper of the clock notices that its iteration is long. */
int64_t twi_port_mono_ms(tw_engine *engine) {
    twi_clock_tick();
    return twi_clock_mono_ms(&engine->clock);
}
int64_t twi_port_mono_us(tw_engine *engine) {
    return twi_clock_mono_us(&engine->clock);
}

/* This is splitmix64. In a simulator all random bytes follow from the seed. */
static uint64_t seeded(tw_engine *engine) {
    uint64_t z =
        twi_add_relaxed(&engine->here->random.state, UINT64_C(0x9E3779B97F4A7C15)) + UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

void twi_port_random(tw_engine *engine, void *out, size_t size) {
    twi_check(out != NULL && size != 0);
    if (twi_load_relaxed(&engine->here->random.state) == 0) {
        if (twi_random_bytes_or(&engine->here->random.key, twi_clock_mono_us(&engine->clock), out, size)) return;
        engine->here->random.failed = true; /* there is no key yet: tw_open() refuses */
        memset(out, 0, size);
        return;
    }
    for (unsigned char *at = out; size != 0;) {
        uint64_t word = seeded(engine);
        size_t part = size < sizeof word ? size : sizeof word;
        memcpy(at, &word, part);
        at += part;
        size -= part;
    }
}

const char *twi_port_engine_id(tw_engine *engine) {
    return engine->in_redis.id;
}

void *twi_port_estate(const tw_engine *engine) {
    return engine->in_redis.estate;
}

/* ---- waiting and waking ---- */

int twi_port_socket_set(const tw_engine *engine) {
    return engine->here->waits.fd;
}

void twi_port_wake(tw_engine *engine) {
    twi_socket_set_ring(&engine->here->waits);
}
