/* cluster_faults.c -- the real sync code of three engines in a Redis Cluster of faults (clustered.h): slots move and
 * stop half-way, masters hand over and die, maps are behind, the network cuts.
 *
 * One thing is left out (cluster_world.c): a replica that lags takes over in the middle of a move, and a counter at the
 * other end is newer than the ledger that this leaves in the slot. MIGRATE does not wait for replicas. The engine sends
 * again what the ledger lacks, and that counter has it twice once the slot is brought together. No engine can know of
 * it (docs/SYNC.md, Limitations). */
#include "tests/sim/clustered.h"

#define SEEDS_MAX 20000

static void play_seed(const char *name, uint64_t seed, bool shaped, bool sleeps) {
    test_seed_begins(name, seed);
    clustered_make(name, seed, false, shaped);
    sim.sleeps = sleeps;
    clustered_play();
    sim_free();
    test_seed_ends();
}

/* Goal: P2 for each store, in a cluster that is never at rest: no count is lost or doubled; a flush that is done has
 * sent everything; once the cluster is calm, all that can be there is. Method: half of the seeds are of strings alone;
 * in the others each kind of counter is drawn to be a string, a field of a hash, or a member of a sorted set. */
TEST(in_a_cluster_each_count_arrives_once) {
    static const char *const names[] = {"sync_cluster", "sync_cluster_shaped"};
    uint64_t seeds[SEEDS_MAX], fresh = test_scale(150);
    size_t count = 0;
    for (int shaped = 0; shaped < 2; shaped++) {
        size_t all = test_seeds(names[shaped], shaped ? fresh - fresh / 2 : fresh / 2, seeds, SEEDS_MAX);
        for (size_t i = 0; i < all; i++) play_seed(names[shaped], seeds[i], shaped, false);
        count += all;
    }
    assert_true(clustered.maps > 0);
    for (int i = 0; count >= 100 && i < CLUSTER_FAULTS; i++) assert_true(clustered.happened[i] > 0);
    if (count >= 100) assert_true(clustered.splits > 0 && clustered.restored > 0);
    if (count >= 100) assert_true(clustered.ends > 0 && clustered.trims > 0 && clustered.insides > 0);
    print_message("# maps %d, splits %d, restored %d, ends %d, trims %d\n", (int)clustered.maps, (int)clustered.splits,
                  (int)clustered.restored, (int)clustered.ends, (int)clustered.trims);
}

/* Goal: the same as in exactly_once.c. */
TEST(no_turn_is_requested_without_end) {
    static const char name[] = "sleeps_cluster";
    uint64_t seeds[SEEDS_MAX];
    size_t count = test_seeds(name, test_scale(30), seeds, SEEDS_MAX);
    for (size_t i = 0; i < count; i++) play_seed(name, seeds[i], true, true);
}
