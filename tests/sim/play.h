/* play.h -- nodes with visible books (fake_port.h) around the real sync code in a seeded world, and what must be true
 * of them.
 *
 * After every step it checks P2: for each node and key, Redis holds at least the acknowledged units, and at most what
 * was frozen and not returned. It checks P3: a total never contains more of a node than was acknowledged. And P7, P8:
 * no count is reported as lost or uncertain without a cause, nor as late before its time. At the end faults stop,
 * everything must settle (liveness), and the books must agree to the unit. One program of this folder includes it once.
 * Always true: everything follows from the seed. */
#ifndef TEST_PLAY_H
#define TEST_PLAY_H

#include "tests/sim/fake_port.h"

#include "engine/core/options.h"
#include "sync/turn/collect.h"
#include "sync/turn/instance.h"
#include "sync/message/active.h"
#include "sync/message/state.h"

#include <errno.h>
#include <unistd.h>

#define STEPS 4000
#define LIVE_MS 120000 /* back-offs of 5 s and poison waits of 60 s are over by then */
#define LIVES_DEAD (MODEL_NODES - WORLD_NODES)

struct flush {
    uint64_t ticket; /* 0: none */
    uint64_t rolled_over;
    int64_t local[FAKE_CELLS];
};

/* A process that was killed: what it had counted, and what it knew to be in Redis. */
struct dead {
    int life;
    struct twi_cell cells[FAKE_CELLS];
};

struct sim {
    struct world world;
    struct dead dead[LIVES_DEAD];
    size_t dead_count;
    bool silent;        /* a failure ends the process */
    uint16_t shapes[5]; /* of each kind of cell: TWI_ITEM_HASH, TWI_ITEM_ZSET, or 0: strings */
    unsigned tags;      /* into how many hash tags the keys are dealt; 0: names have none, and there is one store */
    bool certain;       /* nothing is a cause of uncertainty */
    /* forgets in so many ways that the final sums need not agree: checks only that no count is doubled */
    bool mixed;
    bool rolls_over; /* windows follow each other */
    bool sleeps;     /* checks after each turn that turns are not requested without end */
    uint32_t timeout_ms, replay_ms, wait_replicas;
    const char *url; /* NULL: redis://sim */
    struct twi_transport transport;
    tw_engine engines[WORLD_NODES];
    struct flush flushes[WORLD_NODES];
    const char *name; /* of the list of seeds */
    uint64_t seed;
    bool forgets;  /* Redis may go back, be wiped, or evict: then only the final sums must agree */
    bool believes; /* another store stays until it is trusted: nothing is replayed, so windows may end meanwhile */
    int64_t (*applied)(const char *name, int life); /* NULL: what the world's one Redis has */
    void (*explain)(int node);                      /* NULL, or prints more of a node that failed */
    void (*around)(void);                           /* NULL, or what happens in each step next to the world's own */
    uint64_t done, refused;
};

static struct sim sim;

/* What Redis has of a life's counts in that key. */
static int64_t applied_of(const char *name, int life) {
    return sim.applied ? sim.applied(name, life) : redis_model_applied(&sim.world.redis, name, life);
}

static void step_world(void) {
    world_step(&sim.world);
    if (sim.around) sim.around();
}

/* ---- allocations that fail --------------------------------------------------------------------------------------- */

static bool in_turn;           /* only allocations of sync/ fail */
static uint32_t fail_of_10000; /* the chance of a failure */
/* With sanitizers nobody asks. */
__attribute__((unused)) static uint64_t failed_allocations;

/* Sanitizers bring their own allocator: there nothing fails. */
#if defined(__has_feature) /* how clang tells it */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_ALLOCATOR 1
#endif
#endif
#if !defined(HAS_OWN_ALLOCATOR) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define CAN_FAIL 1
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static bool must_fail(void) {
    if (!in_turn || !fail_of_10000 || !test_prng_chance(&sim.world.prng, fail_of_10000, 10000)) return false;
    failed_allocations++;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size) {
    return must_fail() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return must_fail() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    return must_fail() ? NULL : __libc_realloc(old, size);
}
#else
#define CAN_FAIL 0
#endif

static void note_failure(const char *what, int node, const struct twi_cell *cell) {
    if (sim.silent) _exit(1);
    test_seed_failed(sim.name, sim.seed);
    const struct world_faults *faults = &sim.world.faults;
    print_error("back %u over %u wipe %u empty %u evict %u twin %u short %u far %u mixed %d\n", faults->roll_back,
                faults->fail_over, faults->wipe, faults->restart_empty, faults->evict_ledgers, faults->twin,
                faults->cut_short, sim.replay_ms, sim.mixed);
    print_error(
        "%s: t %lld node %d key %s local %lld handed %lld acked %lld lost %lld unsure %lld base %lld applied %lld\n",
        what, (long long)sim.world.now_ms, node, cell->name, (long long)cell->local, (long long)cell->handed,
        (long long)cell->acked, (long long)cell->lost, (long long)cell->unsure, (long long)cell->base,
        (long long)applied_of(cell->name, sim.world.nodes[node].life));
    for (int n = 0; n < WORLD_NODES; n++)
        for (size_t i = sim.engines[n].log_count > 16 ? sim.engines[n].log_count - 16 : 0; i < sim.engines[n].log_count;
             i++)
            print_error("  node %d: %s\n", n, sim.engines[n].log[i % 64]);
    if (sim.explain) sim.explain(node);
    fail();
}

/* The world itself always has memory. */
static ssize_t send_freely(void *ctx, const void *data, size_t size) {
    bool was = in_turn;
    in_turn = false;
    ssize_t sent = world_transport.send(ctx, data, size);
    in_turn = was;
    return sent;
}

/* ---- making a world ---------------------------------------------------------------------------------------------- */

static const char *const cell_kinds = "wesfn"; /* window, endless, short, from the first count, going down */

/* Lives from the first count are those of strings; all other kinds may be fields or members. */
static inline void sim_draw_shapes(void) {
    static const uint16_t shapes[] = {0, TWI_ITEM_HASH, TWI_ITEM_ZSET};
    struct test_prng prng;
    test_prng_seed(&prng, sim.seed ^ 0x5a9e);
    for (size_t i = 0; i < 5; i++) sim.shapes[i] = i == 3 ? 0 : shapes[test_prng_below(&prng, 3)];
}

/* Cells of one kind and tag share a hash or a sorted set, but for windows that follow each other: each has its own. */
static void cell_name(char name[16], size_t i) {
    if (i != 0 && sim.shapes[i % 5] != 0)
        snprintf(name, 16, "%c%c%zu", cell_kinds[i % 5], MODEL_INSIDE, i);
    else
        snprintf(name, 16, "%c:%zu", cell_kinds[i % 5], i);
}

static void cell_make(struct twi_cell *cell, const char *name, int64_t expiry_ms, bool from_first, int sign) {
    snprintf(cell->name, sizeof cell->name, "%s%s", cell->tag, name);
    cell->expiry_ms = expiry_ms;
    cell->from_first = from_first;
    cell->sign = sign;
}

static void cells_make(tw_engine *engine) {
    int64_t base_ms = engine->world->base_ms;
    bool ends = !sim.forgets || sim.believes;
    char name[16];
    for (size_t i = 0; i < FAKE_CELLS; i++) {
        struct twi_cell *cell = &engine->cells[i];
        if (sim.tags) snprintf(cell->tag, sizeof cell->tag, "{%u}", 1 + (unsigned)(i / 5) % sim.tags);
        if (i != 0) cell->shape = sim.shapes[i % 5]; /* the rejected key is a string */
        cell_name(name, i);
        switch (i % 5) {
        case 0: cell_make(cell, i ? name : "w:2", base_ms + 3600000, false, 1); break; /* w:2: the rejected key */
        case 1: cell_make(cell, name, 0, false, 1); break;
        /* These windows end during the run. If Redis forgets, a replay would come too late for them, which is no
         * loss. */
        case 2:
        case 3:
            cell_make(cell, name, base_ms + 3600000, i % 5 == 3, 1);
            if (ends) cell->expiry_ms = base_ms + (i % 5 == 2 ? 1000 : 4000) * (int64_t)(cell->shape ? 7 : i);
            if (ends && sim.rolls_over) cell->period_ms = 2000 + 500 * (int64_t)i;
            break;
        default: cell_make(cell, name, 0, false, -1); break;
        }
        fake_cell_begin(engine, i);
    }
}

static void node_make(int index) {
    tw_engine *engine = &sim.engines[index];
    tw_options checked,
        options = {.size = sizeof options, .redis_url = sim.url ? sim.url : "redis://sim", .sync_interval_ms = 20};
    options.redis_timeout_ms = sim.timeout_ms;
    options.replay_ms = sim.replay_ms;
    options.wait_replicas = sim.wait_replicas;
    memset(engine, 0, sizeof *engine);
    engine->world = &sim.world;
    engine->family.engine = engine;
    engine->adds_between = sim.rolls_over;
    engine->clock_lies = sim.world.faults.step_clock != 0;
    test_prng_seed(&engine->prng, sim.seed + 77 * (uint64_t)sim.world.nodes[index].life + 1);
    cells_make(engine);
    assert_int_equal(twi_options_check(&options, &checked), TW_OK);
    assert_int_equal(
        twi_driver_find()->create(engine, &checked, &sim.transport, &sim.world.nodes[index], &engine->sync), TW_OK);
}

/* The state of a node's oldest unsettled batch. */
static enum world_flight flight_of(int node) {
    const struct twi_sync *sync = sim.engines[node].sync;
    if (sync->stores[0]->opening) return FLIGHT_OPENING;
    if (twi_ledger_is_replaying(&sync->stores[0]->ledger)) return FLIGHT_REPLAY;
    const struct twi_batch *batch = twi_ledger_unconfirmed(&sync->stores[0]->ledger);
    if (!batch) return FLIGHT_IDLE;
    if (!batch->copies_open) return FLIGHT_FROZEN;
    bool applied = redis_model_number(&sim.world.redis, sync->stores[0]->ledger.name) >= batch->number;
    if (sync->stores[0]->sent_number >= batch->number && sync->connections[0]->phase == TWI_UP)
        return applied ? FLIGHT_APPLIED : FLIGHT_SENT;
    return applied ? FLIGHT_ADRIFT_APPLIED : FLIGHT_ADRIFT;
}

/* True if each node uses a store that knows it, and has just heard of it. An engine that begins again cannot know which
 * store is the right one, and one that sees another store for long enough has to trust it. */
static bool all_at_home(void) {
    for (int n = 0; n < WORLD_NODES; n++) {
        const struct twi_sync *sync = sim.engines[n].sync;
        if (!sync->stores[0]->assumed.is_open || sync->stores[0]->assumed.unknown_since_ms != 0) return false;
    }
    return true;
}

static void sim_begin(uint64_t seed, const struct world_faults *faults, const char *policy) {
    memset(&sim, 0, sizeof sim);
    world_init(&sim.world, seed);
    sim.name = "sync_faults";
    sim.seed = seed;
    sim.timeout_ms = 100;
    sim.world.faults = *faults;
    sim.world.redis.policy = policy;
    sim.world.flight_of = flight_of;
    sim.world.may_flicker = all_at_home;
    sim.world.other_kinds = OTHER_OLD; /* all but the last kind, which forgets */
    test_tuning.doubt_ms = 2000;
    test_tuning.stores_by_tag = false;
    test_tuning.store_places = TWI_STORE_PLACES;
    test_tuning.tags_wait = false;
    test_tuning.near_keys =
        seed % 3 == 0 ? TWI_NEAR_KEYS : 1 + (uint32_t)(seed % 7); /* few: so that a collection is several batches */
    sim.forgets =
        faults->roll_back || faults->fail_over || faults->wipe || faults->restart_empty || faults->evict_ledgers;
    bool loses_ledgers = faults->wipe || faults->restart_empty || faults->evict_ledgers || faults->lose_marker;
    sim.certain = (!sim.forgets || !loses_ledgers) && !faults->twin && !faults->cut_short;
    sim.world.redis_skew_ms = test_prng_between(&sim.world.prng, -300, 300);
    sim.transport = world_transport;
    sim.transport.send = send_freely;
    in_turn = false;
    fail_of_10000 = 0;
}

/* Called before a node's statistics are discarded. */
static void (*play_note)(const tw_engine *engine);

static void play_note_node(int node) {
    if (play_note) play_note(&sim.engines[node]);
}

static void sim_free(void) {
    for (int i = 0; i < WORLD_NODES; i++) {
        play_note_node(i);
        twi_driver_find()->destroy(sim.engines[i].sync);
        assert_i64_equal(sim.engines[i].outstanding, 0);
    }
    world_free(&sim.world);
}

/* ---- what must be true ------------------------------------------------------------------------------------------- */

static void check_node(int node) {
    tw_engine *engine = &sim.engines[node];
    for (size_t i = 0; i < FAKE_CELLS; i++) {
        struct twi_cell *cell = &engine->cells[i];
        int64_t applied = applied_of(cell->name, sim.world.nodes[node].life) * cell->sign;
        int64_t acked = cell->acked * cell->sign, handed = cell->handed * cell->sign;
        int64_t adrift = (cell->adrift > 0) == (cell->sign > 0) ? cell->adrift * cell->sign : 0;
        if (applied > handed + adrift - cell->lost * cell->sign) note_failure("counted twice", node, cell);
        if (acked + (cell->lost + cell->unsure) * cell->sign > handed) note_failure("settled twice", node, cell);
        if (sim.certain && cell->unsure) note_failure("uncertain without a cause", node, cell);
        if (!sim.forgets && cell->expiry_ms == 0 && cell->lost) note_failure("lost without a cause", node, cell);
        if (sim.forgets) continue;
        if (applied < acked) note_failure("acknowledged, and not in Redis", node, cell);
        if (!cell->has_base || (cell->expiry_ms && !cell->from_first && cell->sign > 0 && i % 5 == 2)) continue;
        /* Expired in Redis, by its clock, or soon. */
        if (cell->expiry_ms && cell->expiry_ms < world_wall_ms(&sim.world) + 5000) continue;
        if (sim.world.faults.evict_counters || sim.world.happened[WORLD_EVICTED_COUNTER]) continue;
        int64_t others = 0;
        for (size_t d = 0; d < sim.dead_count; d++) others += sim.dead[d].cells[i].local * cell->sign;
        for (int n = 0; n < WORLD_NODES; n++)
            if (n != node) others += sim.engines[n].cells[i].local * cell->sign;
        if (!cell->from_first && cell->unsure == 0 && (cell->base * cell->sign < 0 || cell->base * cell->sign > others))
            note_failure("a total that contains too much or too little of ours", node, cell);
    }
    if (sim.certain && fake_stat_of(engine, uncertain))
        note_failure("uncertain without a cause", node, &engine->cells[0]);
    if (!sim.forgets && fake_stat_of(engine, lost)) note_failure("lost without a cause", node, &engine->cells[0]);
    if (engine->outstanding > 20 * FAKE_CELLS) note_failure("batches pile up", node, &engine->cells[0]);
}

/* P2 of processes that were killed: never above what they had counted, and below it by no more than what was not
 *    acknowledged to them. */
static void check_dead(void) {
    for (size_t d = 0; d < sim.dead_count; d++) {
        for (size_t i = 0; i < FAKE_CELLS; i++) {
            const struct twi_cell *cell = &sim.dead[d].cells[i];
            int64_t applied = applied_of(cell->name, sim.dead[d].life) * cell->sign;
            bool twice = applied > (cell->local - cell->lost) * cell->sign;
            bool gone = !sim.forgets && applied < cell->acked * cell->sign;
            if (twice || gone)
                note_failure(twice ? "counted twice by the dead" : "a dead one's counts are gone", 0, cell);
        }
    }
}

static void kill_node(int node) {
    struct dead *dead = &sim.dead[sim.dead_count];
    dead->life = sim.world.nodes[node].life;
    memcpy(dead->cells, sim.engines[node].cells, sizeof dead->cells);
    sim.dead_count++;
    world_kill(&sim.world, node, (int)(WORLD_NODES + sim.dead_count - 1));
    twi_driver_find()->abandon(sim.engines[node].sync, false);
    memset(&sim.flushes[node], 0, sizeof sim.flushes[node]);
    play_note_node(node);
    node_make(node);
}

/* A flush that reports DONE has sent everything. */
static void check_flush(int node) {
    struct flush *flush = &sim.flushes[node];
    if (!flush->ticket) return;
    enum twi_ticket state = twi_driver_find()->ticket_state(sim.engines[node].sync, flush->ticket);
    if (state == TWI_TICKET_OPEN) return;
    flush->ticket = 0;
    if (state == TWI_TICKET_REFUSED) {
        sim.refused++;
        return;
    }
    sim.done++;
    for (size_t i = 0; i < FAKE_CELLS; i++) {
        struct twi_cell *cell = &sim.engines[node].cells[i];
        /* counts of the next window */
        if (cell->period_ms && flush->rolled_over != sim.engines[node].rolled_over) continue;
        /* What was given up before the call does not belong to this flush. */
        if ((cell->acked + cell->lost + cell->unsure) * cell->sign < flush->local[i] * cell->sign)
            note_failure("flushed, not acknowledged", node, cell);
    }
}

static void maybe_flush(int node) {
    struct flush *flush = &sim.flushes[node];
    if (flush->ticket || !test_prng_chance(&sim.world.prng, 1, 100)) return;
    for (size_t i = 0; i < FAKE_CELLS; i++) flush->local[i] = sim.engines[node].cells[i].local;
    flush->rolled_over = sim.engines[node].rolled_over;
    flush->ticket = twi_driver_find()->ticket_take(sim.engines[node].sync);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void add_something(tw_engine *engine) {
    for (uint64_t n = test_prng_below(&sim.world.prng, 4); n > 0; n--) {
        size_t i = test_prng_below(&sim.world.prng, FAKE_CELLS);
        struct twi_cell *cell = &engine->cells[i];
        if (cell->expiry_ms && world_wall_ms(&sim.world) >= cell->expiry_ms) continue; /* the engine would refuse it */
        if (test_prng_chance(&sim.world.prng, 1, 10))
            cell->marked = true; /* only requests its total */
        else
            fake_add(engine, i, test_prng_between(&sim.world.prng, 1, 1000));
    }
}

/* What a node has to do is done in some turns of one moment, or it waits for time or for the network. Otherwise a loop
 * would make turns without end. */
static void check_sleeps(int node) {
    struct twi_sync *sync = sim.engines[node].sync;
    for (int i = 0; twi_driver_find()->wake_ms(sync) <= sim.world.now_ms; i++) {
        if (i == 200) note_failure("turns are requested without end", node, &sim.engines[node].cells[0]);
        twi_driver_find()->turn(sync);
    }
}

static void turn_node(int node) {
    in_turn = true;
    twi_driver_find()->turn(sim.engines[node].sync);
    if (sim.sleeps) check_sleeps(node);
    in_turn = false;
    sim.engines[node].turns++;
    sim.engines[node].breaker_seen[sim.engines[node].sync->connections[0]->breaker.state]++;
    /* It walks the whole replay buffer. */
    for (uint32_t i = 0; sim.engines[node].turns % 8 == 0 && i < sim.engines[node].sync->store_count; i++)
        assert_true(twi_ledger_is_valid(&sim.engines[node].sync->stores[i]->ledger));
    if (sim.engines[node].turns % 8 == 0) assert_true(twi_active_is_sound(sim.engines[node].sync));
    check_node(node);
    check_flush(node);
}

static void play_step(void) {
    step_world();
    int first = (int)test_prng_below(&sim.world.prng, WORLD_NODES);
    for (int i = 0; i < WORLD_NODES; i++) {
        int n = (first + i) % WORLD_NODES;
        check_node(n);
        for (size_t cell = 0; cell < FAKE_CELLS; cell++) fake_roll_over(&sim.engines[n], cell);
        add_something(&sim.engines[n]);
        if (!test_prng_chance(&sim.world.prng, 1, 3)) turn_node(n);
        maybe_flush(n);
        if (sim.dead_count < LIVES_DEAD && sim.world.faults.kill && !world_sees_other(&sim.world, n) &&
            test_prng_chance(&sim.world.prng, sim.world.faults.kill, 10000))
            kill_node(n);
    }
    if (sim.dead_count) check_dead();
}

static void run(uint64_t steps) {
    for (uint64_t step = 0; step < steps; step++) play_step();
}

static bool is_settled(int node) {
    tw_engine *engine = &sim.engines[node];
    if (engine->outstanding || sim.flushes[node].ticket) return false;
    for (uint32_t i = 0; i < engine->sync->store_count; i++)
        if (twi_ledger_is_replaying(&engine->sync->stores[i]->ledger) || engine->sync->stores[i]->parking.count)
            return false;
    for (size_t i = 0; i < FAKE_CELLS; i++)
        if (engine->cells[i].handed != engine->cells[i].local) return false;
    return true;
}

/* Faults stop: everything settles within a bound, and without a storm of messages. */
static void live(void) {
    world_calm(&sim.world);
    for (int n = 0; n < WORLD_NODES; n++) /* who sends nothing to a store does not notice that it was wiped */
        for (size_t i = 0; i == 0 || i < sim.tags; i++) fake_add(&sim.engines[n], 1 + 5 * i, 1);
    int64_t until_ms = sim.world.now_ms + LIVE_MS;
    for (bool settled = false; !settled;) {
        step_world();
        settled = true;
        for (int n = 0; n < WORLD_NODES; n++) {
            turn_node(n);
            settled = settled && is_settled(n);
        }
        if (sim.world.now_ms > until_ms)
            for (int n = 0; n < WORLD_NODES; n++)
                if (!is_settled(n)) note_failure("not settled after the faults stopped", n, &sim.engines[n].cells[0]);
    }
    for (int n = 0; n < WORLD_NODES; n++) check_sleeps(n);
}

/* Each node's local = Redis + what was reported: to the unit for each key, or, if Redis forgot, in the sum. */
static void check_books(void) {
    for (int n = 0; n < WORLD_NODES; n++) {
        tw_engine *engine = &sim.engines[n];
        int64_t missing = 0, unsure = 0;
        int life = sim.world.nodes[n].life;
        for (size_t i = 0; i < FAKE_CELLS; i++) {
            struct twi_cell *cell = &engine->cells[i];
            int64_t applied = applied_of(cell->name, life);
            int64_t gap = (cell->local - applied - cell->lost) * cell->sign;
            if (sim.mixed) continue;
            if (!sim.forgets && (gap < 0 || gap > cell->unsure * cell->sign))
                note_failure("the books do not close", n, cell);
            missing += gap;
            unsure += cell->unsure * cell->sign;
        }
        int64_t lost = fake_stat_of(engine, lost); /* of the fake port: only what Redis forgot */
        unsure += fake_stat_of(engine, uncertain);
        if (sim.forgets && !sim.mixed && (missing < lost || missing > lost + unsure)) {
            print_error("missing %lld lost %lld unsure %lld\n", (long long)missing, (long long)lost, (long long)unsure);
            note_failure("the sums do not close", n, &engine->cells[0]);
        }
    }
}

#endif
