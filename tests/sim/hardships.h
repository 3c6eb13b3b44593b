/* hardships.h -- what one seed does to a world: which faults, how often, and how much Redis forgets.
 *
 * There are seven kinds of hardship, because the final check depends on what Redis forgets. It forgets nothing (half of
 * the seeds; in some of these another store is seen for so long that it is trusted), its last seconds, more than the
 * replay buffer holds, everything, only the ledgers, or a mix of these. In the mix, the test only checks that no count
 * is doubled: what was given up and then forgotten is in nobody's books. For the programs of this folder that play
 * whole seeds; included once, after play.h. */
#ifndef TEST_HARDSHIPS_H
#define TEST_HARDSHIPS_H

#include "tests/sim/play.h"

#define SEED_STEPS 1500 /* each is about two turns of the three nodes */

enum hardship { KEEPS, GOES_BACK, GOES_FAR_BACK, IS_WIPED, EVICTS, MIXED, HARDSHIPS };

/* A fault happens in three of four worlds, in one of three strengths. */
static uint32_t dose(struct test_prng *prng, uint32_t of_10000) {
    if (test_prng_chance(prng, 1, 4)) return 0;
    static const uint32_t halves[] = {1, 2, 4};
    return (of_10000 * halves[test_prng_below(prng, 3)] + 1) / 2;
}

static enum hardship hardship_of(struct test_prng *prng) {
    uint64_t draw = test_prng_below(prng, 12);
    return draw < 5    ? KEEPS
           : draw < 7  ? GOES_BACK
           : draw < 8  ? GOES_FAR_BACK
           : draw < 10 ? IS_WIPED
           : draw < 11 ? EVICTS
                       : MIXED;
}

/* What any network and any server may do. */
static struct world_faults common_faults(struct test_prng *prng) {
    return (struct world_faults){.refuse_connect = dose(prng, 700),
                                 .black_hole = dose(prng, 300),
                                 .cut_request = dose(prng, 200),
                                 .cut_reply = dose(prng, 200),
                                 .tell_nobody = dose(prng, 4000),
                                 .garbage = dose(prng, 40),
                                 .slow = dose(prng, 100),
                                 .run_twice = dose(prng, 200),
                                 .odd_reply = dose(prng, 100),
                                 .restart = dose(prng, 6),
                                 .flush_scripts = dose(prng, 20),
                                 .refuse_writes = dose(prng, 15),
                                 .evict_counters = dose(prng, 8),
                                 .poison = dose(prng, 8),
                                 .persist = dose(prng, 10),
                                 .kill = dose(prng, 6),
                                 .flicker = dose(prng, 30)};
}

static void add_hardship(struct world_faults *faults, enum hardship hardship, struct test_prng *prng) {
    bool mixed = hardship == MIXED;
    if (hardship == KEEPS) {
        faults->lose_marker = dose(prng, 8);
        faults->step_clock = dose(prng, 6);
        faults->leap = dose(prng, 6);
        if (test_prng_chance(prng, 1, 3)) faults->cut_short = dose(prng, 60);
        if (test_prng_chance(prng, 1, 3)) faults->twin = dose(prng, 10);
    }
    if (hardship == GOES_BACK || hardship == GOES_FAR_BACK || mixed) {
        faults->roll_back = dose(prng, 10);
        faults->fail_over = faults->roll_back && test_prng_chance(prng, 1, 2) ? dose(prng, 10) : 10;
    }
    if (hardship == IS_WIPED || mixed) {
        faults->wipe = dose(prng, 8);
        faults->restart_empty = faults->wipe && test_prng_chance(prng, 1, 2) ? dose(prng, 6) : 6;
    }
    if (hardship == EVICTS || mixed) faults->evict_ledgers = 10;
    if (hardship == EVICTS) faults->odd_reply = 400; /* executed, and unknown when the ledger goes */
    /* With ledgers evicted or given up, a lost marker would look like a wipe: docs/SYNC.md, Limitations. */
    if (mixed && test_prng_chance(prng, 1, 3)) {
        faults->lose_marker = 20;
        faults->wipe = faults->restart_empty = faults->evict_ledgers = 0;
    } else if (mixed) {
        faults->twin = faults->step_clock = faults->leap = 4;
        faults->cut_short = 40;
    }
}

/* Another store, empty or seen before, stays until it is trusted. It goes while everything is being re-sent to it, or
 * later. Then no count is doubled in the earlier store, and the missing part there is uncertain. */
static bool stays_elsewhere(enum hardship hardship, uint64_t seed, struct world_faults *faults) {
    struct test_prng prng;
    test_prng_seed(&prng, seed ^ 0xe15e);
    if (hardship != KEEPS || !test_prng_chance(&prng, 1, 4)) return false;
    faults->flicker = 40;
    faults->twin = faults->cut_short = 0;
    return true;
}

static void believe_others(void) {
    test_tuning.doubt_ms = 500;
    sim.world.other_kinds = OTHER_EMPTY + 1;
    sim.world.other_stays_ms = 1500;
    sim.world.flicker_max_ms = 600;
    sim.forgets = true; /* in a sense: the store that is back never got what the other one got */
    sim.certain = false;
    sim.believes = true;
}

/* Makes the world of that seed; nothing is played yet. `shaped`: of counters in strings, hashes and sorted sets. */
static inline void hardship_make(const char *name, uint64_t seed, bool silent, bool shaped) {
    struct test_prng prng;
    test_prng_seed(&prng, seed ^ 0x5eed);
    enum hardship hardship = hardship_of(&prng);
    struct world_faults faults = common_faults(&prng);
    add_hardship(&faults, hardship, &prng);
    bool stays = stays_elsewhere(hardship, seed, &faults);
    const char *policy = hardship == EVICTS || hardship == MIXED ? "volatile-lru" : "noeviction";
    if (hardship == EVICTS && test_prng_chance(&prng, 1, 2)) { /* ledgers and marker alike */
        policy = "allkeys-lru";
        faults.lose_marker = 10;
    }
    sim_begin(seed, &faults, policy);
    sim.name = name;
    sim.silent = silent;
    if (shaped) sim_draw_shapes();
    sim.mixed = hardship == MIXED;
    sim.rolls_over = test_prng_chance(&prng, 3, 4);
    /* What was lost beyond the window, or refused at its replay, stays counted as lost, even if it is sent again
     * because Redis went back to before all of it: docs/SYNC.md, Limitations. */
    /* A key that one store refused and a copy of it took, or the other way round: docs/SYNC.md, Limitations. */
    bool goes_back = hardship == GOES_BACK || hardship == MIXED;
    if (goes_back && !faults.poison) sim.world.other_kinds = OTHERS;
    sim.world.goes_back_to_known = hardship == GOES_FAR_BACK || (goes_back && faults.poison);
    sim.replay_ms = hardship == GOES_FAR_BACK ? 300 : 0;
    if (stays) believe_others();
    if (test_prng_chance(&prng, 1, 8)) sim.world.leap_max_ms = 1800000; /* half an hour: windows end unsent */
    for (int n = 0; n < WORLD_NODES; n++) node_make(n);
}

/* A lost expiry is set again for every key that is written, within the half minute in which each key is looked at
 * once. */
static void check_expiries(void) {
    int64_t until_ms = sim.world.now_ms + 36000;
    while (sim.world.now_ms < until_ms) {
        sim.world.now_ms += test_prng_between(&sim.world.prng, 50, 250);
        for (int n = 0; n < WORLD_NODES; n++)
            for (size_t i = 0; i < FAKE_CELLS; i += 5) fake_add(&sim.engines[n], i, 1);
        for (int round = 0; round < 4; round++) {
            step_world();
            for (int n = 0; n < WORLD_NODES; n++) turn_node(n);
        }
    }
    sim.world.redis.now_ms = world_wall_ms(&sim.world) + sim.world.redis_skew_ms;
    for (size_t i = 0; i < FAKE_CELLS; i += 5) {
        const struct twi_cell *cell = &sim.engines[0].cells[i];
        if (world_wall_ms(&sim.world) > cell->expiry_ms - 60000) continue;
        const struct model_key *key = redis_model_find_outer(&sim.world.redis, cell->name);
        if (key && key->type != MODEL_TEXT && key->expiry_ms == 0)
            note_failure("a key stays without its expiry", 0, cell);
    }
}

static inline void hardship_play(void) {
    bool persisted = sim.world.faults.persist != 0;
    run(SEED_STEPS);
    live();
    if (persisted && sim.world.happened[WORLD_PERSISTED]) {
        check_expiries();
        live();
    }
    check_books();
    check_dead();
}

#endif
