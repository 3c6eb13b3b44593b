/* run.c -- one run: calls come, are served or wait in line, things fail, and at the end the admitted calls are
 * counted.
 * Always true: which node a call comes to is drawn from `crowd`. Nothing else draws from it. */
#include "bench/rivals/rivals.h"

#define BEGINS_MS 4000 /* by then engines have found each other, and may be granted leases */
#define SETTLES_MS 30000
#define SLOT_MS 200  /* of bursts: in each slot one node has all calls in a quarter of the time, four times as fast */
#define AHEAD_MS 500 /* demand equal to supply: one in a hundred comes to all nodes, then all are idle, */
#define IDLE_MS 1500 /* then the others come to one */

struct rivals rivals;

const struct rivals_case rivals_cases[CASES] = {
    [EVEN] = {"Calls come evenly to all nodes", LOAD_EVEN, FAULT_NONE, 50000, 75000, 7500},
    [SKEWED] = {"99 % of the calls come to one node", LOAD_SKEWED, FAULT_NONE, 50000, 75000, 7500},
    [BURSTS] = {"Bursts of 2,000 calls within 50 ms, each to some node", LOAD_BURSTS, FAULT_NONE, 50000, 75000, 7500},
    [SUPPLY] = {"Demand equal to supply: 1 % to all nodes, then 99 % to one", LOAD_SUPPLY, FAULT_NONE, 50000, 50000,
                6500},
    [SALE] = {"A sale: 20,000 buyers within half a second, 2,000 units", LOAD_SALE, FAULT_NONE, 2000, 20000, 500},
    [REPLIES] = {"Evenly, and a tenth of the replies is lost", LOAD_EVEN, FAULT_REPLIES, 50000, 75000, 7500},
    [OUTAGE] = {"Evenly, and Redis is away for 3 s, in which the limit is reached", LOAD_EVEN, FAULT_OUTAGE, 50000,
                75000, 7500},
    [KILL] = {"Evenly, and one node is killed", LOAD_EVEN, FAULT_KILL, 50000, 75000, 7500},
};

const struct rivals_scheme *rivals_scheme(int scheme) {
    return scheme == SOFT ? &rivals_soft : scheme == HARD ? &rivals_hard : &rivals_theirs[scheme];
}

static struct {
    struct test_prng crowd;
    int64_t t_ms; /* since the opening */
    int64_t came, admitted;
    int burst_node;
    int64_t burst_slot;
    struct line {
        int64_t *since_ms; /* a ring of when each came */
        size_t first, count, room;
    } lines[RIVALS_NODES];
} run;

/* ---- waiting lines ----------------------------------------------------------------------------------------------- */

static void line_add(struct line *line, int64_t at_ms) {
    if (line->count == line->room) {
        size_t room = line->room ? 2 * line->room : 256;
        int64_t *grown = malloc(room * sizeof *grown);
        assert_non_null(grown);
        for (size_t i = 0; i < line->count; i++) grown[i] = line->since_ms[(line->first + i) % line->room];
        free(line->since_ms);
        *line = (struct line){.since_ms = grown, .count = line->count, .room = room};
    }
    line->since_ms[(line->first + line->count++) % line->room] = at_ms;
}

static int64_t line_take(struct line *line) {
    int64_t at_ms = line->since_ms[line->first];
    line->first = (line->first + 1) % line->room;
    line->count--;
    return at_ms;
}

static void give_up(struct line *line) {
    while (line->count && run.t_ms - line->since_ms[line->first] > rivals.patience_ms) (void)line_take(line);
}

/* ---- arrivals ---------------------------------------------------------------------------------------------------- */

static int living(int node) {
    return rivals.dead[node] ? (node + 1) % rivals.nodes : node;
}

static int any_node(void) {
    return (int)test_prng_below(&run.crowd, (uint64_t)rivals.nodes);
}

/* How many calls should have come by now. */
static int64_t due(void) {
    const struct rivals_case *at = rivals.at;
    int64_t t_ms = run.t_ms < at->lasts_ms ? run.t_ms : at->lasts_ms, slot = t_ms / SLOT_MS, in_slot = t_ms % SLOT_MS;
    if (at->load == LOAD_BURSTS) t_ms = slot * SLOT_MS + (in_slot < SLOT_MS / 4 ? in_slot * 4 : SLOT_MS);
    if (at->load == LOAD_SUPPLY && t_ms < IDLE_MS)
        return at->demand / 100 * (t_ms < AHEAD_MS ? t_ms : AHEAD_MS) / AHEAD_MS;
    if (at->load == LOAD_SUPPLY)
        return at->demand / 100 + (at->demand - at->demand / 100) * (t_ms - IDLE_MS) / (at->lasts_ms - IDLE_MS);
    return t_ms >= at->lasts_ms ? at->demand : at->demand * t_ms / at->lasts_ms;
}

static int where(void) {
    switch (rivals.at->load) {
    case LOAD_SKEWED: return test_prng_chance(&run.crowd, 99, 100) ? 0 : any_node();
    case LOAD_SUPPLY: return run.t_ms > AHEAD_MS ? 0 : any_node();
    case LOAD_BURSTS:
        if (run.t_ms / SLOT_MS != run.burst_slot) {
            run.burst_slot = run.t_ms / SLOT_MS;
            run.burst_node = any_node();
        }
        return run.burst_node;
    default: return any_node();
    }
}

static void arrive(void) {
    for (int64_t until = due(); run.came < until; run.came++) line_add(&run.lines[living(where())], run.t_ms);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static void outage(int64_t for_ms) {
    struct world *world = &rivals.world;
    for (size_t i = 0; i < WORLD_CONNECTIONS; i++)
        if (world->connections[i].used) world->connections[i].broken_at_ms = world->now_ms;
    world->down_until_ms = world->now_ms + for_ms;
}

static void kill_one(void) {
    int node = rivals.nodes - 1;
    world_kill(&rivals.world, node, node);
    rivals.dead[node] = true;
    struct line *line = &run.lines[node];
    while (line->count) line_add(&run.lines[living(node)], line_take(line));
}

static void befall(void) {
    enum rivals_fault fault = rivals.at->fault;
    int64_t lasts_ms = rivals.at->lasts_ms;
    if (fault == FAULT_REPLIES && run.t_ms == 0) rivals.world.faults.cut_reply = 1000;
    if (fault == FAULT_REPLIES && run.t_ms == lasts_ms) world_calm(&rivals.world);
    if (fault == FAULT_OUTAGE && run.t_ms == lasts_ms * 2 / 5 / STEP_MS * STEP_MS) outage(lasts_ms * 2 / 5);
    if (fault == FAULT_KILL && run.t_ms == lasts_ms * 2 / 5 / STEP_MS * STEP_MS) kill_one();
}

/* ---- a run ---- */

/* First come, first served, until one call is refused: the others of this line would be refused as well. */
static void serve(const struct rivals_scheme *scheme, int node) {
    struct line *line = &run.lines[node];
    give_up(line);
    while (line->count && scheme->acquire(node)) {
        (void)line_take(line);
        run.admitted++;
    }
}

static void step(const struct rivals_scheme *scheme, bool is_open) {
    world_step(&rivals.world);
    if (is_open) {
        befall();
        arrive();
    }
    for (int node = 0; node < rivals.nodes; node++) {
        if (rivals.dead[node]) continue;
        if (is_open) serve(scheme, node);
        scheme->turn(node, (int64_t)run.lines[node].count);
    }
    if (is_open) run.t_ms += STEP_MS;
}

static bool is_over(const struct rivals_scheme *scheme) {
    if (run.t_ms <= rivals.at->lasts_ms) return false;
    for (int node = 0; node < rivals.nodes; node++)
        if (!rivals.dead[node] && (run.lines[node].count || !scheme->is_settled(node))) return false;
    return true;
}

static void begin(int which, int nodes, int64_t patience_ms, uint64_t seed) {
    memset(&rivals, 0, sizeof rivals);
    memset(&run, 0, sizeof run);
    rivals.at = &rivals_cases[which];
    rivals.nodes = nodes;
    rivals.patience_ms = patience_ms;
    rivals.seed = seed;
    run.burst_slot = -1;
    test_prng_seed(&run.crowd, seed);
    world_init(&rivals.world, seed);
    rivals.world.step_ms = STEP_MS;
    rivals_redis_init(&rivals.world.redis);
}

static void end(const struct rivals_scheme *scheme) {
    for (int node = 0; node < rivals.nodes; node++) {
        scheme->close(node);
        free(run.lines[node].since_ms);
    }
    world_free(&rivals.world);
}

struct rivals_outcome rivals_run(int which, int scheme_number, int nodes, int64_t patience_ms, uint64_t seed) {
    const struct rivals_scheme *scheme = rivals_scheme(scheme_number);
    begin(which, nodes, patience_ms, seed);
    const struct rivals_case *at = rivals.at;
    for (int node = 0; node < nodes; node++) scheme->open(node);
    for (int64_t ms = 0; ms < BEGINS_MS; ms += STEP_MS) step(scheme, false);
    while (!is_over(scheme)) {
        step(scheme, true);
        assert_true(run.t_ms < at->lasts_ms + patience_ms + SETTLES_MS);
    }
    struct rivals_outcome outcome = {.wanted = at->demand < at->limit ? at->demand : at->limit,
                                     .admitted = run.admitted,
                                     .in_redis = scheme->in_redis ? scheme->in_redis() : run.admitted};
    end(scheme);
    return outcome;
}

int64_t rivals_first_unit_ms(int nodes, uint64_t seed) {
    const struct rivals_scheme *scheme = rivals_scheme(HARD);
    bool has[RIVALS_NODES] = {false};
    int64_t ms;
    begin(EVEN, nodes, 0, seed);
    rivals.nodes = 1;
    scheme->open(0);
    for (ms = 0; ms < BEGINS_MS; ms += STEP_MS) step(scheme, false);
    rivals.nodes = nodes;
    for (int node = 1; node < nodes; node++) scheme->open(node);
    int waiting = nodes - 1;
    for (ms = 0; waiting != 0; ms += STEP_MS) {
        step(scheme, false);
        for (int node = 1; node < nodes; node++) {
            if (has[node] || !scheme->acquire(node)) continue;
            has[node] = true;
            waiting--;
        }
        assert_true(ms < SETTLES_MS);
    }
    end(scheme);
    return ms;
}
