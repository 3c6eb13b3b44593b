/* sync_faults.c -- the real sync code in seeded worlds of faults, over counters whose books lie open (fake_port.h).
 *
 * Checked after every step (P2): of each node and key, what Redis holds is at least what was acknowledged and at most
 * what was frozen and not taken back; and a total that was taken never contains more of ours than was acknowledged
 * (P3). At the end faults stop, and everything must settle (liveness) and agree to the unit. */
#include "tests/sim/fake_port.h"

#include "sync/sync.h"

#include <errno.h>

#define STEPS 4000
#define LIVE_MS 120000 /* back-offs of 5 s and poison waits of 60 s are over by then */

struct flush {
    uint64_t ticket; /* 0: none */
    int64_t local[FAKE_CELLS], lost[FAKE_CELLS];
};

struct sim {
    struct world world;
    tw_engine engines[WORLD_NODES];
    struct flush flushes[WORLD_NODES];
    uint64_t seed;
    bool forgets; /* Redis may go back, be wiped, or evict: then only the ends must meet */
    uint64_t done, refused;
};

static struct sim sim;

/* ---- allocations that fail --------------------------------------------------------------------------------------- */

static bool in_turn;           /* only what sync asks for */
static uint32_t fail_of_10000; /* the chance */
static uint64_t failed_allocations;

/* Sanitizers bring their own allocator: there nothing fails. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
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
    test_seed_failed("sync_faults", sim.seed);
    print_error(
        "%s: t %lld node %d key %s local %lld handed %lld acked %lld lost %lld unsure %lld base %lld applied %lld\n",
        what, (long long)sim.world.now_ms, node, cell->name, (long long)cell->local, (long long)cell->handed,
        (long long)cell->acked, (long long)cell->lost, (long long)cell->unsure, (long long)cell->base,
        (long long)redis_model_applied(&sim.world.redis, cell->name, node));
    for (int n = 0; n < WORLD_NODES; n++)
        for (size_t i = sim.engines[n].log_count > 8 ? sim.engines[n].log_count - 8 : 0; i < sim.engines[n].log_count;
             i++)
            print_error("  node %d: %s\n", n, sim.engines[n].log[i % 64]);
    fail();
}

/* The world has all the memory it wants. */
static ssize_t send_freely(void *ctx, const void *data, size_t size) {
    bool was = in_turn;
    in_turn = false;
    ssize_t sent = world_transport.send(ctx, data, size);
    in_turn = was;
    return sent;
}

/* ---- making a world ---------------------------------------------------------------------------------------------- */

static void cell_make(struct twi_cell *cell, const char *name, int64_t expiry_ms, bool from_first, int sign) {
    snprintf(cell->name, sizeof cell->name, "%s", name);
    cell->expiry_ms = expiry_ms;
    cell->from_first = from_first;
    cell->sign = sign;
}

static void cells_make(tw_engine *engine) {
    int64_t now_ms = world_wall_ms(engine->world);
    char name[16];
    for (size_t i = 0; i < FAKE_CELLS; i++) {
        snprintf(name, sizeof name, "%c:%zu", "wesfn"[i % 5], i);
        switch (i % 5) {
        case 0:
            cell_make(&engine->cells[i], i ? name : "w:2", now_ms + 3600000, false, 1);
            break; /* w:2: the poisoned one */
        case 1: cell_make(&engine->cells[i], name, 0, false, 1); break;
        /* Over in mid-run; but where Redis forgets, a replay would come too late for them, and that is no loss. */
        case 2:
            cell_make(&engine->cells[i], name, now_ms + (sim.forgets ? 3600000 : 1000 * (int64_t)i), false, 1);
            break;
        case 3:
            cell_make(&engine->cells[i], name, now_ms + (sim.forgets ? 3600000 : 4000 * (int64_t)i), true, 1);
            break;
        default: cell_make(&engine->cells[i], name, 0, false, -1); break;
        }
    }
}

static void sim_make(uint64_t seed, const struct world_faults *faults, const char *policy, uint32_t timeout_ms) {
    memset(&sim, 0, sizeof sim);
    world_init(&sim.world, seed);
    sim.seed = seed;
    sim.world.faults = *faults;
    sim.world.redis.policy = policy;
    sim.forgets = faults->roll_back || faults->wipe || faults->evict_ledgers;
    sim.world.redis_skew_ms = test_prng_between(&sim.world.prng, -300, 300);
    static struct twi_transport transport;
    transport = world_transport;
    transport.send = send_freely;
    in_turn = false;
    fail_of_10000 = 0;
    tw_options options = {.size = sizeof options, .redis_url = "redis://sim", .sync_interval_ms = 20};
    options.redis_timeout_ms = timeout_ms;
    for (int i = 0; i < WORLD_NODES; i++) {
        tw_engine *engine = &sim.engines[i];
        engine->world = &sim.world;
        engine->family.engine = engine;
        test_prng_seed(&engine->prng, seed + 77 * (uint64_t)i + 1);
        cells_make(engine);
        assert_int_equal(twi_driver_find()->create(engine, &options, &transport, &sim.world.nodes[i], &engine->sync),
                         TW_OK);
    }
}

static void sim_free(void) {
    for (int i = 0; i < WORLD_NODES; i++) {
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
        int64_t applied = redis_model_applied(&sim.world.redis, cell->name, node) * cell->sign;
        int64_t acked = cell->acked * cell->sign, handed = cell->handed * cell->sign;
        if (applied > handed - cell->lost * cell->sign) note_failure("counted twice", node, cell);
        if (sim.forgets) continue;
        if (applied < acked) note_failure("acknowledged, and not in Redis", node, cell);
        if (!cell->has_base || (cell->expiry_ms && !cell->from_first && cell->sign > 0 && i % 5 == 2)) continue;
        int64_t others = 0;
        for (int n = 0; n < WORLD_NODES; n++)
            if (n != node) others += sim.engines[n].cells[i].local * cell->sign;
        if (!cell->from_first && cell->unsure == 0 && (cell->base * cell->sign < 0 || cell->base * cell->sign > others))
            note_failure("a total that contains too much or too little of ours", node, cell);
    }
    if (engine->outstanding > 20 * FAKE_CELLS) note_failure("batches pile up", node, &engine->cells[0]);
}

/* A flush that says DONE means it. */
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
        /* What was given up before the call is no business of this flush. */
        if ((cell->acked + cell->lost + cell->unsure) * cell->sign < flush->local[i] * cell->sign)
            note_failure("flushed, not acknowledged", node, cell);
    }
}

static void maybe_flush(int node) {
    struct flush *flush = &sim.flushes[node];
    if (flush->ticket || !test_prng_chance(&sim.world.prng, 1, 100)) return;
    for (size_t i = 0; i < FAKE_CELLS; i++) flush->local[i] = sim.engines[node].cells[i].local;
    flush->ticket = twi_driver_find()->ticket_take(sim.engines[node].sync);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void add_something(tw_engine *engine) {
    for (uint64_t n = test_prng_below(&sim.world.prng, 4); n > 0; n--) {
        size_t i = test_prng_below(&sim.world.prng, FAKE_CELLS);
        struct twi_cell *cell = &engine->cells[i];
        if (cell->expiry_ms && world_wall_ms(&sim.world) >= cell->expiry_ms) continue; /* the engine would refuse it */
        if (test_prng_chance(&sim.world.prng, 1, 10))
            cell->marked = true; /* only asks */
        else
            fake_add(engine, i, test_prng_between(&sim.world.prng, 1, 1000));
    }
}

static void turn_node(int node) {
    in_turn = true;
    twi_driver_find()->turn(sim.engines[node].sync);
    in_turn = false;
    assert_true(twi_ledger_is_valid(&sim.engines[node].sync->ledger) || !sim.engines[node].sync->is_open);
    check_node(node);
    check_flush(node);
}

static void run(void) {
    for (uint64_t step = 0; step < STEPS; step++) {
        world_step(&sim.world);
        for (int n = 0; n < WORLD_NODES; n++) {
            check_node(n);
            add_something(&sim.engines[n]);
            if (!test_prng_chance(&sim.world.prng, 1, 3)) turn_node(n);
            maybe_flush(n);
        }
    }
}

static bool is_settled(int node) {
    tw_engine *engine = &sim.engines[node];
    if (engine->outstanding || sim.flushes[node].ticket || twi_ledger_is_replaying(&engine->sync->ledger)) return false;
    for (size_t i = 0; i < FAKE_CELLS; i++)
        if (engine->cells[i].handed != engine->cells[i].local) return false;
    return true;
}

/* Faults stop: everything settles within a bound, and without a storm of messages. */
static void live(void) {
    world_calm(&sim.world);
    int64_t until_ms = sim.world.now_ms + LIVE_MS;
    for (bool settled = false; !settled;) {
        world_step(&sim.world);
        settled = true;
        for (int n = 0; n < WORLD_NODES; n++) {
            turn_node(n);
            settled = settled && is_settled(n);
        }
        if (sim.world.now_ms > until_ms)
            for (int n = 0; n < WORLD_NODES; n++)
                if (!is_settled(n)) note_failure("not settled after the faults stopped", n, &sim.engines[n].cells[0]);
    }
}

/* Each node's local = Redis + what was reported: to the unit for each key, or, where Redis forgot, in the sum. */
static void check_books(void) {
    for (int n = 0; n < WORLD_NODES; n++) {
        tw_engine *engine = &sim.engines[n];
        int64_t missing = 0, unsure = 0;
        for (size_t i = 0; i < FAKE_CELLS; i++) {
            struct twi_cell *cell = &engine->cells[i];
            int64_t applied = redis_model_applied(&sim.world.redis, cell->name, n);
            int64_t gap = (cell->local - applied - cell->lost) * cell->sign;
            if (!sim.forgets && (gap < 0 || gap > cell->unsure * cell->sign))
                note_failure("the books do not close", n, cell);
            missing += gap;
            unsure += cell->unsure * cell->sign;
        }
        int64_t lost = fake_stat_of(engine, lost); /* of the fake port: only what Redis forgot */
        unsure += fake_stat_of(engine, uncertain);
        if (sim.forgets && (missing < lost || missing > lost + unsure)) {
            print_error("missing %lld lost %lld unsure %lld\n", (long long)missing, (long long)lost, (long long)unsure);
            note_failure("the sums do not close", n, &engine->cells[0]);
        }
    }
}

static uint64_t happened[WORLD_FAULTS];
static int64_t seen_dup, seen_gap, seen_poison, seen_replayed;
static uint64_t seen_rewrites;

/* A fault that never happened was not tested. (One seed, given by hand, need not show them all.) */
static void assert_happened(size_t runs, enum world_fault first, enum world_fault last) {
    for (int i = (int)first; runs >= 10 && i <= (int)last; i++) assert_true(happened[i] > 0);
}

static void run_seed(uint64_t seed, const struct world_faults *faults, const char *policy) {
    sim_make(seed, faults, policy, 100);
    run();
    live();
    check_books();
    seen_rewrites += sim.world.redis.rewrites;
    for (int i = 0; i < WORLD_FAULTS; i++) happened[i] += sim.world.happened[i];
    for (int n = 0; n < WORLD_NODES; n++) {
        seen_replayed += fake_stat_of(&sim.engines[n], replayed);
        seen_dup += fake_stat_of(&sim.engines[n], batches_dup);
        seen_gap += fake_stat_of(&sim.engines[n], batches_gap);
        seen_poison += fake_stat_of(&sim.engines[n], poison_keys);
    }
    sim_free();
}

static size_t run_seeds(const char *name, size_t fresh, const struct world_faults *faults, const char *policy) {
    uint64_t seeds[20000];
    size_t count = test_seeds(name, test_scale(fresh), seeds, 20000);
    memset(happened, 0, sizeof happened);
    seen_dup = seen_gap = seen_poison = seen_replayed = 0;
    seen_rewrites = 0;
    for (size_t i = 0; i < count; i++) run_seed(seeds[i], faults, policy);
    return count;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Goal: P2 on a network that lies, with a Redis that keeps what it was given.
 * Method: cuts at any byte, silence, refusals, restarts, flushed scripts, a poisoned key; every fault must have
 * happened. */
static void no_delta_is_lost_or_doubled_on_a_lying_network(void **state) {
    (void)state;
    static const struct world_faults faults = {.refuse_connect = 1000,
                                               .black_hole = 500,
                                               .cut_request = 300,
                                               .cut_reply = 300,
                                               .tell_nobody = 5000,
                                               .garbage = 50,
                                               .slow = 100,
                                               .restart = 5,
                                               .flush_scripts = 10,
                                               .refuse_writes = 10,
                                               .poison = 5};
    size_t runs = run_seeds("sync_faults", 100, &faults, "noeviction");
    assert_happened(runs, WORLD_REFUSED_CONNECT, WORLD_REFUSED_WRITE);
    assert_happened(runs, WORLD_POISONED, WORLD_POISONED);
    if (runs >= 10) assert_true(seen_dup > 0 && seen_gap > 0 && seen_poison > 0);
}

/* Goal: a kind network needs no second sending. Method: no faults at all; nothing is sent again. */
static void on_a_kind_network_each_batch_is_sent_once(void **state) {
    (void)state;
    static const struct world_faults none = {0};
    sim_make(test_seed(), &none, "noeviction", 1000); /* the world leaps by 300 ms now and then */
    run();
    live();
    check_books();
    for (int n = 0; n < WORLD_NODES; n++) {
        assert_i64_equal(fake_stat_of(&sim.engines[n], batches_dup), 0);
        assert_i64_equal(fake_stat_of(&sim.engines[n], disconnects), 0);
    }
    assert_true(sim.done > 0);
    sim_free();
}

/* Goal: a Redis that goes back is given again what it forgot, as far as the window reaches; the rest is reported to
 * the unit. Method: snapshots at most some seconds old are restored at random, on top of a lying network. */
static void what_redis_forgets_is_sent_again(void **state) {
    (void)state;
    static const struct world_faults faults = {
        .cut_request = 200, .cut_reply = 200, .tell_nobody = 3000, .restart = 2, .roll_back = 4, .flush_scripts = 5};
    size_t runs = run_seeds("sync_rollback", 60, &faults, "noeviction");
    assert_happened(runs, WORLD_ROLLED_BACK, WORLD_UNBORN);
    if (runs >= 10) assert_true(seen_rewrites > 0 && seen_replayed > 0);
}

/* Goal: a wiped Redis gets the window back; what it cannot get is counted. */
static void a_wiped_redis_gets_the_window_back(void **state) {
    (void)state;
    static const struct world_faults faults = {.cut_request = 100, .cut_reply = 100, .restart = 2, .wipe = 3};
    size_t runs = run_seeds("sync_wipe", 60, &faults, "noeviction");
    assert_happened(runs, WORLD_WIPED, WORLD_WIPED);
}

/* Goal: an evicted ledger leads to a new instance; nothing is doubled, and at most what was in flight is uncertain. */
static void an_evicted_ledger_doubles_nothing(void **state) {
    (void)state;
    static const struct world_faults faults = {
        .cut_request = 200, .cut_reply = 200, .tell_nobody = 3000, .evict_ledgers = 5};
    size_t runs = run_seeds("sync_evict", 60, &faults, "volatile-lru");
    assert_happened(runs, WORLD_EVICTED, WORLD_EVICTED);
}

/* Goal: an allocation that fails costs time and nothing else (fault 45). Method: one in twenty fails inside turns. */
static void without_memory_nothing_is_lost_or_doubled(void **state) {
    (void)state;
    static const struct world_faults faults = {.cut_request = 100, .cut_reply = 100, .restart = 2, .flush_scripts = 5};
    uint64_t seeds[1000];
    size_t count = test_seeds("sync_memory", test_scale(30), seeds, 1000);
    failed_allocations = 0;
    for (size_t i = 0; i < count; i++) {
        sim_make(seeds[i], &faults, "noeviction", 100);
        fail_of_10000 = 500;
        run();
        fail_of_10000 = 0;
        live();
        check_books();
        sim_free();
    }
    if (CAN_FAIL) assert_true(failed_allocations > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_nothing_is_lost_or_doubled),
        cmocka_unit_test(on_a_kind_network_each_batch_is_sent_once),
        cmocka_unit_test(no_delta_is_lost_or_doubled_on_a_lying_network),
        cmocka_unit_test(what_redis_forgets_is_sent_again),
        cmocka_unit_test(a_wiped_redis_gets_the_window_back),
        cmocka_unit_test(an_evicted_ledger_doubles_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
