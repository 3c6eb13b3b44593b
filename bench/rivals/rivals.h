/* rivals.h -- one limit, many nodes, and more demand than there are units: the same for every scheme of keeping
 * limits.
 *
 * A CASE says which calls come when, and what fails. A SCHEME is what each node does about it. Tallywheel's schemes
 * are real engines over the real sync code (ours.c); the others are small models of what is done elsewhere
 * (theirs.c). All use the same model of Redis through the same network (world.h). Always true: which calls come, and
 * when something fails, depends on case, number of nodes and seed alone, never on the scheme.
 *
 * A refused call waits in line at its node for up to `patience_ms`. So a refusal costs a sale only where units stay
 * out of reach. */
#ifndef BENCH_RIVALS_H
#define BENCH_RIVALS_H

#include "tests/sim/world.h"

#define RIVALS_NODES WORLD_NODES
#define RIVALS_KEY "hot"
#define RIVALS_INTERVAL_MS 100
#define STEP_MS 2

enum rivals_load { LOAD_EVEN, LOAD_SKEWED, LOAD_BURSTS, LOAD_SUPPLY, LOAD_SALE };
enum rivals_fault { FAULT_NONE, FAULT_REPLIES, FAULT_OUTAGE, FAULT_KILL };

struct rivals_case {
    const char *title;
    enum rivals_load load;
    enum rivals_fault fault;
    int64_t limit, demand, lasts_ms;
};

struct rivals_scheme {
    const char *name;
    void (*open)(int node);
    bool (*acquire)(int node); /* one unit, now */
    void (*turn)(int node, int64_t waiting);
    bool (*is_settled)(int node); /* nothing is under way or owed to Redis */
    int64_t (*in_redis)(void);    /* what Redis has counted; NULL: the scheme does not count in Redis */
    void (*close)(int node);
};

struct rivals_outcome {
    int64_t wanted;   /* what an exact limit would admit of that demand */
    int64_t admitted; /* what was admitted */
    int64_t in_redis;
};

enum { EVEN, SKEWED, BURSTS, SUPPLY, SALE, REPLIES, OUTAGE, KILL, CASES };
extern const struct rivals_case rivals_cases[CASES];

/* The current run. */
struct rivals {
    struct world world;
    const struct rivals_case *at;
    int nodes;
    int64_t patience_ms;
    uint64_t seed;
    bool dead[RIVALS_NODES];
};
extern struct rivals rivals;

enum { CLEARED, SENT_AGAIN, INTERVAL_SYNC, FIXED_SHARE, BATCHES, THEIRS, SOFT = THEIRS, HARD, SCHEMES };
extern const struct rivals_scheme rivals_theirs[THEIRS];
extern const struct rivals_scheme rivals_soft, rivals_hard;
const struct rivals_scheme *rivals_scheme(int scheme);

/* Sits between the network of the world and the model of Redis. Adds the commands of the other schemes, and the
 * scripts of leases. */
void rivals_redis_init(struct redis_model *model);

/* How long after the opening the last of `nodes` - 1 new engines has its first unit of a hard limit. One engine was
 * there before, so the epoch stands. */
int64_t rivals_first_unit_ms(int nodes, uint64_t seed);

struct rivals_outcome rivals_run(int which, int scheme, int nodes, int64_t patience_ms, uint64_t seed);

#endif
