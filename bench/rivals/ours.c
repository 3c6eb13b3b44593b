/* ours.c -- Tallywheel in the comparison: real engines over the real sync code, driven by hand on the simulated
 * clock. Soft limits use shares of what is left (engine/limit/share.c), hard limits use leases
 * (engine/limit/lease.c, engine/turn/lease_renewal.c).
 * Always true: after its node died, an engine is not turned again until the run is measured. */
#include "engine/port/driver.h"
#include "bench/rivals/rivals.h"

static struct {
    tw_engine *engine;
    tw_family *family;
} ours[RIVALS_NODES];

static void ours_open(int node, const tw_family_options *family) {
    tw_options options;
    tw_options_init(&options);
    options.redis_url = "redis://sim";
    options.sync_interval_ms = RIVALS_INTERVAL_MS;
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 4 << 20;
    options.clock_now_ns = world_clock_ns;
    options.clock_ctx = &rivals.world;
    assert_status(twi_open_with(&options,
                                &(struct twi_replacements){.transport = &world_transport,
                                                           .transport_ctx = &rivals.world.nodes[node],
                                                           .random_seed = rivals.seed * 67 + (uint64_t)node + 1,
                                                           .tuning = &test_tuning},
                                &ours[node].engine),
                  TW_OK);
    assert_status(tw_family_open(ours[node].engine, family, &ours[node].family), TW_OK);
}

static void soft_open(int node) {
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "ours";
    family.window_ms = TW_DAY;
    family.on_outage = TW_OUTAGE_SHARE;
    ours_open(node, &family);
}

static void hard_open(int node) {
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "ours";
    family.window_ms = TW_DAY;
    family.limit_mode = TW_LIMIT_HARD;
    ours_open(node, &family);
}

static bool ours_acquire(int node) {
    tw_verdict verdict;
    tw_status status = tw_acquire(ours[node].family, tw_str(RIVALS_KEY), 1, rivals.at->limit, &verdict);
    assert_true(status == TW_OK || status == TW_DENIED || status == TW_PENDING);
    return status == TW_OK;
}

static void ours_turn(int node, int64_t waiting) {
    (void)waiting;
    assert_status(tw_turn(ours[node].engine), TW_OK);
}

static bool ours_is_settled(int node) {
    tw_reading reading;
    assert_status(tw_read(ours[node].family, tw_str(RIVALS_KEY), &reading), TW_OK);
    return reading.unsent == 0;
}

static int64_t ours_in_redis(void) {
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        const struct model_key *key = &rivals.world.redis.store.keys[i];
        if (key->type == MODEL_INTEGER && strncmp(key->name, "ours:", 5) == 0) return key->value;
    }
    return 0;
}

static void ours_close(int node) {
    (void)tw_close(ours[node].engine, 0);
}

const struct rivals_scheme rivals_soft = {"Tallywheel, soft", soft_open,     ours_acquire, ours_turn,
                                          ours_is_settled,    ours_in_redis, ours_close};
const struct rivals_scheme rivals_hard = {"Tallywheel, hard", hard_open,     ours_acquire, ours_turn,
                                          ours_is_settled,    ours_in_redis, ours_close};
