/* mutants.c -- plays hardships.h, tagged.h and clustered.h until a check fails: the program that must catch each
 * mistake of tests/sim/mutants/.
 *
 *     sim_mutants          the test that correct code fails no check
 *     sim_mutants SEEDS    the test that a check fails within SEEDS seeds: scripts/mutants.py builds and runs this in a
 *                          copy of the tree, once for each patch
 *
 * Each run plays in a separate process, because some mistakes end in a failed check of the code itself, which counts as
 * caught. Its processor time is bounded. */
#include "tests/sim/mutants.h"
#include "tests/sim/clustered.h"
#include "tests/sim/hardships.h"
#include "tests/sim/tagged.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define SEEDS_OF_THE_SOUND 60
#define MUTANT_SECONDS 100 /* of the processor: next to others a run lasts as long as it needs */

/* ---- the mistakes that need more than one line
 * ----------------------------------------------------------------------- */

/* The content of `batch` becomes that of `items`; number and nonce stay. */
static void refill(struct twi_batch *batch, struct twi_item *items, size_t count) {
    struct twi_freeze how = {
        .now_ms = batch->frozen_ms, .keys_max = TWI_BATCH_ITEMS_MAX, .bytes_max = TWI_BATCH_BYTES_MAX};
    size_t taken = 0;
    twi_batch_sort(items, count, false);
    struct twi_batch *fresh = twi_batch_freeze(items, count, &how, &taken);
    assert_non_null(fresh);
    assert_int_equal(taken, count);
    struct twi_batch old = *batch;
    batch->keys = fresh->keys;
    batch->args = fresh->args;
    batch->items = fresh->items;
    batch->key_count = fresh->key_count;
    batch->arg_count = fresh->arg_count;
    batch->item_count = fresh->item_count;
    fresh->keys = old.keys;
    fresh->args = old.args;
    fresh->items = old.items;
    twi_batch_free(fresh);
}

void mutant_thaw(struct twi_sync *sync, struct twi_batch *batch) {
    if (batch->copies_open == 0 || !batch->items) return;
    struct twi_item items[FAKE_CELLS];
    for (uint32_t i = 0; i < batch->item_count; i++) twi_port_return(&batch->items[i], 0);
    size_t count = twi_port_collect(sync->engine, items, FAKE_CELLS);
    if (count) refill(batch, items, count);
}

void mutant_reuse(struct twi_sync *sync, struct twi_batch *batch) {
    if (batch != sync->stores[0]->ledger.tail || !batch->items || sync->connections[0]->pipeline.count) return;
    for (uint32_t i = 0; i < batch->item_count; i++) twi_port_return(&batch->items[i], 0);
    twi_batch_items_drop(batch);
    sync->stores[0]->ledger.plus_sum -= batch->plus;
    sync->stores[0]->ledger.minus_sum -= batch->minus;
    sync->stores[0]->ledger.last = batch->before;
    twi_ledger_remove(&sync->stores[0]->ledger, batch);
    twi_batch_free(batch);
}

void mutant_shrink(struct twi_sync *sync, struct twi_batch *batch) {
    if (!batch->items || batch->item_count < 2) return;
    struct twi_item items[FAKE_CELLS];
    uint32_t left = batch->item_count - 1;
    memcpy(items, batch->items, left * sizeof *items);
    twi_port_return(&batch->items[left], 0);
    refill(batch, items, left);
}

/* True if one of three counters of this engine is still in Redis. */
bool mutant_probe(const struct twi_sync *sync) {
    for (size_t i = 0; i < 3; i++) {
        size_t cell = test_prng_below(&sync->engine->prng, FAKE_CELLS);
        if (redis_model_find(&sim.world.redis, sync->engine->cells[cell].name)) return true;
    }
    return false;
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

/* What a playing process reports to the process that waits for it. */
struct played {
    _Atomic uint64_t count, seed; /* of the last one begun */
};

/* Plays until a check fails, in a separate process. */
static void play_until_caught(uint64_t seed, size_t seeds, struct played *played) {
    struct test_prng prng;
    test_prng_seed(&prng, seed);
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(3);
    struct rlimit bound = {.rlim_cur = MUTANT_SECONDS, .rlim_max = MUTANT_SECONDS + 10};
    (void)setrlimit(RLIMIT_CPU, &bound);
    for (size_t i = 0; i < seeds; i++) {
        played->count++;
        played->seed = test_prng_next(&prng);
        if (i % 4 == 1) {
            clustered_make("mutants", played->seed, true, false);
            clustered_play();
        } else if (i % 4 == 2) {
            tagged_make("mutants", played->seed, true);
            tagged_play();
        } else {
            hardship_make("mutants", played->seed, true, false);
            hardship_play();
        }
        sim_free();
    }
    _exit(0);
}

/* Returns whether a check failed; by which seed, and after how many. */
static bool is_caught(size_t seeds, uint64_t *seed_count, uint64_t *by) {
    struct played *played = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(played != MAP_FAILED);
    uint64_t seed = test_seed();
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) play_until_caught(seed, seeds, played);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    *seed_count = played->count;
    *by = played->seed;
    munmap(played, 4096);
    bool out_of_time = WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU;
    return !out_of_time && (WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

/* Goal: the simulator reports nothing for correct code. */
static void the_code_as_it_is_survives(void **state) {
    uint64_t seeds = 0, by = 0;
    bool fell = is_caught(test_scale(SEEDS_OF_THE_SOUND), &seeds, &by);
    if (fell) test_seed_failed("exactly_once", by); /* the same worlds */
    assert_false(fell);
}

static size_t seeds_max;

/* Goal: the simulator detects the mistakes that it exists for. Method: in a copy of the tree with one mistake; the
 * seeds differ from run to run. */
static void the_mistake_is_caught(void **state) {
    uint64_t seeds = 0, by = 0;
    bool caught = is_caught(seeds_max, &seeds, &by);
    printf("# %s by seed %" PRIu64 ": %" PRIu64 "\n", caught ? "caught" : "not caught", seeds, by);
    assert_true(caught);
}

int main(int argc, char **argv) {
    const struct CMUnitTest sound[] = {cmocka_unit_test(the_code_as_it_is_survives)};
    const struct CMUnitTest mistake[] = {cmocka_unit_test(the_mistake_is_caught)};
    seeds_max = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    return seeds_max ? test_run_list(mistake) : test_run_list(sound);
}
