/* engine_world.h -- the real engine, with the real sync code, in a simulated world (world.h).
 * Always true: it is host-driven, on the world's clock; its random numbers follow from the seed that it was opened
 * with. */
#ifndef TEST_ENGINE_WORLD_H
#define TEST_ENGINE_WORLD_H

#include "engine/port/driver.h"
#include "tests/sim/world.h"

/* To be changed by the test before it opens the engine. */
static inline void engine_world_options(struct world *world, tw_options *options) {
    tw_options_init(options);
    options->redis_url = "redis://sim";
    options->threads = TW_HOST_DRIVEN;
    options->memory_bytes_max = 8 << 20;
    options->clock_now_ns = world_clock_ns;
    options->clock_ctx = world;
}

/* Opens an engine as the world's node of that index. */
static inline tw_engine *engine_world_open(struct world *world, int index, const tw_options *options, uint64_t seed) {
    tw_engine *engine = NULL;
    assert_status(twi_open_with(options,
                                &(struct twi_replacements){.transport = &world_transport,
                                                           .transport_ctx = &world->nodes[index],
                                                           .random_seed = seed,
                                                           .tuning = &test_tuning},
                                &engine),
                  TW_OK);
    return engine;
}

#endif
