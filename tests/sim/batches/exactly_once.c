/* exactly_once.c -- the real sync code through every hardship at once, seed after seed, and a table of what happened.
 *
 * TW_COVERAGE=1 prints the table. A run of 5,000 seeds or more fails if an entry of it is zero: what never happened was
 * not tested. From 300 seeds on, every fault and every reply of the script must have happened.
 * Covers: sync/turn/turn.c, sync/turn/settle.c, sync/turn/transfer.c, sync/turn/settle.c, sync/turn/instance.c,
 * sync/message/state.c, sync/batch/batch.c. */
#include "tests/sim/coverage.h"
#include "tests/sim/hardships.h"

#define SEEDS_MAX 200000

static struct coverage coverage;

static void note_node(const tw_engine *engine) {
    size_t lines = engine->log_count < 64 ? engine->log_count : 64;
    for (size_t i = 0; i < lines; i++) coverage_read_log(&coverage, engine->log[i]);
    coverage.events[SAW_REPLAYED] += (uint64_t)fake_stat_of(engine, replayed);
    coverage.events[SAW_LOST_BEYOND_WINDOW] += (uint64_t)fake_stat_of(engine, lost);
    coverage.events[SAW_RESTORED] += (uint64_t)fake_stat_of(engine, restored);
    coverage.events[SAW_ROLL_OVER] += engine->rolled_over;
    for (size_t i = 0; i < FAKE_CELLS; i++) coverage.events[SAW_UNCERTAIN] += engine->cells[i].unsure != 0;
    for (int state = 0; state < 3; state++) coverage.events[SAW_BREAKER_CLOSED + state] += engine->breaker_seen[state];
    coverage.turns += engine->turns;
}

static void play(const char *name, uint64_t seed, bool shaped, bool sleeps) {
    test_seed_begins(name, seed);
    hardship_make(name, seed, false, shaped);
    sim.sleeps = sleeps;
    int64_t start_ms = sim.world.now_ms;
    play_note = note_node;
    hardship_play();
    coverage.simulated_ms += sim.world.now_ms - start_ms;
    coverage.seeds++;
    coverage.events[SAW_FLUSH_DONE] += sim.done;
    coverage.events[SAW_FLUSH_REFUSED] += sim.refused;
    coverage_add_world(&coverage, &sim.world);
    sim_free();
    test_seed_ends();
}

/* Goal: P2, P3, P7, P8 through all possible faults at once, and a table that shows that they happened. Method:
 * hardships.h; 300 seeds, 6,000 in the long suite, and those that once failed. Every third is of strings alone; in the
 * others each kind of counter is drawn to be a string, a field of a hash, or a member of a sorted set. */
TEST(each_count_arrives_exactly_once_whatever_fails) {
    static const char *const names[] = {"exactly_once", "exactly_once_shaped"};
    static uint64_t seeds[SEEDS_MAX];
    uint64_t fresh = test_scale(300);
    size_t count = 0;
    if (fresh >= 3000) fresh *= 2;
    for (int shaped = 0; shaped < 2; shaped++) {
        size_t all = test_seeds(names[shaped], shaped ? fresh - fresh / 3 : fresh / 3, seeds, SEEDS_MAX);
        for (size_t i = 0; i < all; i++) play(names[shaped], seeds[i], shaped, false);
        count += all;
    }
    if (getenv("TW_COVERAGE")) coverage_print(&coverage);
    printf("# %d seeds, %lld simulated seconds\n", (int)count, (long long)(coverage.simulated_ms / 1000));
    if (count >= 300) assert_int_equal(coverage_gaps(&coverage, count >= 5000), 0);
}

/* Goal: what a turn leaves to do is done in some turns, or waits for time or for the network. Otherwise a host's loop
 * would use a whole processor (tw_timeout_ms() would be 0). */
TEST(no_turn_is_requested_without_end) {
    static const char name[] = "sleeps";
    static uint64_t seeds[SEEDS_MAX];
    size_t count = test_seeds(name, test_scale(50), seeds, SEEDS_MAX);
    for (size_t i = 0; i < count; i++) play(name, seeds[i], true, true);
}
