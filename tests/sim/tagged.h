/* tagged.h -- what one seed does to a world with several stores on one Redis: keys have hash tags, each tag is a store,
 * and stores forget one by one. Included once, after hardships.h.
 *
 * Beside the checks of play.h: the names of a script's keys lie in one key slot, and the content of a number of a
 * ledger never changes. Always true: what one store forgets, the others still have. */
#ifndef TEST_TAGGED_H
#define TEST_TAGGED_H

#include "tests/sim/contents.h"
#include "tests/sim/hardships.h"

#define TAGS 3u
#define TAGGED_SNAPSHOTS 4u

enum tagged_kind { TAGGED_KEEPS, TAGGED_WIPED, TAGGED_GOES_BACK, TAGGED_EVICTS, TAGGED_KINDS };

static struct {
    enum tagged_kind kind;
    uint32_t of_10000; /* the chance of a fault at each step */
    uint64_t struck[TAGGED_KINDS];
    struct model_store before[TAGGED_SNAPSHOTS];
    uint64_t taken; /* snapshots */
    /* Of a slot that went back, snapshots from above `low` and below `high` are of a time that it has left
     * permanently. */
    uint64_t low[TAGS], high[TAGS];
    int64_t taken_at_ms;
} tagged;

static uint32_t tagged_slot(uint64_t tag) {
    char text[8];
    int size = snprintf(text, sizeof text, "{%u}", 1 + (unsigned)tag);
    return twi_key_slot_of(text, (size_t)size);
}

static void tagged_go_back(uint64_t tag, uint32_t slot) {
    struct redis_model *redis = &sim.world.redis;
    uint64_t snapshots = tagged.taken < TAGGED_SNAPSHOTS ? tagged.taken : TAGGED_SNAPSHOTS;
    uint64_t number = tagged.taken - 1 - test_prng_below(&sim.world.prng, snapshots);
    if (number > tagged.low[tag] && number < tagged.high[tag]) return;
    if (number < tagged.low[tag] || tagged.high[tag] == 0) tagged.low[tag] = number;
    tagged.high[tag] = tagged.taken;
    tagged.struck[TAGGED_GOES_BACK]++;
    redis_model_slot_goes_back(redis, &tagged.before[number % TAGGED_SNAPSHOTS], slot);
    redis->run++; /* a copy took over */
}

static void tagged_strike(void) {
    struct redis_model *redis = &sim.world.redis;
    uint64_t tag = test_prng_below(&sim.world.prng, TAGS);
    uint32_t slot = tagged_slot(tag);
    if (sim.world.now_ms - tagged.taken_at_ms > 400) {
        tagged.before[tagged.taken++ % TAGGED_SNAPSHOTS] = redis->store;
        tagged.taken_at_ms = sim.world.now_ms;
    }
    if (!test_prng_chance(&sim.world.prng, tagged.of_10000, 10000)) return;
    redis->now_ms = world_wall_ms(&sim.world) + sim.world.redis_skew_ms;
    if (tagged.kind != TAGGED_GOES_BACK) tagged.struck[tagged.kind]++;
    switch (tagged.kind) {
    case TAGGED_WIPED: redis_model_wipe_slot(redis, slot); break;
    case TAGGED_EVICTS: redis_model_slot_loses_ledgers(redis, slot); break;
    case TAGGED_GOES_BACK: tagged_go_back(tag, slot); break;
    default: break;
    }
}

/* So many stores have something to send at a time; the others wait for a place. */
static void tagged_bound(uint32_t places) {
    test_tuning.store_places = places;
    test_tuning.tags_wait = true;
}

/* Makes the world of that seed; nothing is played yet. */
static void tagged_make(const char *name, uint64_t seed, bool silent) {
    struct test_prng prng;
    test_prng_seed(&prng, seed ^ 0x7a65);
    uint64_t struck[TAGGED_KINDS];
    memcpy(struck, tagged.struck, sizeof struck);
    memset(&tagged, 0, sizeof tagged);
    memcpy(tagged.struck, struck, sizeof struck);
    contents_forget();
    tagged.kind = (enum tagged_kind)test_prng_below(&prng, TAGGED_KINDS);
    tagged.of_10000 = tagged.kind == TAGGED_KEEPS ? 0 : 10 + 40 * (uint32_t)test_prng_below(&prng, 2);
    struct world_faults faults = common_faults(&prng);
    faults.poison = faults.persist = faults.evict_counters = faults.flicker = 0;
    sim_begin(seed, &faults, tagged.kind == TAGGED_EVICTS ? "volatile-lru" : "noeviction");
    sim.name = name;
    sim.silent = silent;
    sim.tags = TAGS;
    sim.rolls_over = test_prng_chance(&prng, 3, 4);
    sim.forgets = tagged.kind != TAGGED_KEEPS;
    sim.certain = tagged.kind == TAGGED_KEEPS || tagged.kind == TAGGED_GOES_BACK;
    test_tuning.stores_by_tag = true;
    if (seed % 3 != 0) tagged_bound((uint32_t)(seed % 3));
    sim.world.redis.beside = contents_look;
    for (int n = 0; n < WORLD_NODES; n++) node_make(n);
}

static void tagged_play(void) {
    fail_of_10000 = sim.seed % 4 == 0 ? 300 : 0; /* in a quarter of the worlds memory fails */
    for (int step = 0; step < SEED_STEPS; step++) {
        tagged_strike();
        play_step();
    }
    fail_of_10000 = 0;
    live();
    check_books();
    check_dead();
    sim.world.redis.beside = NULL;
}

#endif
