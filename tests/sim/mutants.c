/* mutants.c -- a test of the tests: each mistake of sync/batch/mutant.h, made on purpose, must be caught within 1,000 seeds.
 *
 * Every mutant plays in a process of its own, because some end in a failed check of the code itself, which is as good; so
 * does the code without a mutant, which must survive. The time of each is bounded. Built with the sources of sync/ and of the
 * model once more, under -DTWI_MUTANTS. */
#include "tests/sim/hardships.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define SEEDS_UNTIL_CAUGHT 1000
#define SEEDS_OF_THE_SOUND 60
#define MUTANT_SECONDS 100

enum twi_mutant twi_mutant;

static const char *const names[TWI_MUTANTS_END] = {
    [TWI_MUTANT_NONE] = "none",
    [TWI_MUTANT_LEDGER_LAST] = "ledger written last",
    [TWI_MUTANT_THAWED] = "retry without the frozen batch",
    [TWI_MUTANT_TTL_BY_VALUE] = "TTL by value == delta alone",
    [TWI_MUTANT_GAP_APPLIED] = "GAP ignored by the script",
    [TWI_MUTANT_GAP_IGNORED] = "GAP ignored by the engine",
    [TWI_MUTANT_MARK_CLEARED_LAST] = "mark cleared after the read",
    [TWI_MUTANT_NUMBER_REUSED] = "number reused after NOSCRIPT",
    [TWI_MUTANT_NEW_INSTANCE] = "resend under a new instance",
    [TWI_MUTANT_SHRUNK] = "content shrunk",
    [TWI_MUTANT_DUP_RETURNED] = "DUP taken as not applied",
    [TWI_MUTANT_PROBED] = "wiped store told by probing",
    [TWI_MUTANT_WINDOW_DROPPED] = "window dropped with a batch in flight",
    [TWI_MUTANT_LAPSED] = "ledger expiry lapsed",
    [TWI_MUTANT_UNKNOWN_CLOSED] = "unknown outcome taken as not applied",
    [TWI_MUTANT_REPLICA_DENIES] = "replica denies",
    [TWI_MUTANT_REPLICA_TAKES] = "replica takes",
    [TWI_MUTANT_NO_DOUBT] = "other store told everything at once",
    [TWI_MUTANT_KEPT_IGNORED] = "ledger of before not asked for",
    [TWI_MUTANT_PAST_CLASHES] = "PAST taken as CLASH",
    [TWI_MUTANT_ANY_SERVER] = "any server that greets anew is believed",
    [TWI_MUTANT_TOLD_AGAIN] = "store of before told again",
    [TWI_MUTANT_KEPT_SILENTLY] = "store of before lacks in silence",
    [TWI_MUTANT_ADRIFT] = "adrift taken as not applied",
    [TWI_MUTANT_LATE_LOST] = "all of a late delta lost",
};

/* ---- the mistakes that need more than a line ------------------------------------------------------------------------- */

/* The content of `batch` becomes that of `items`; number and nonce stay. */
static void refill(struct twi_batch *batch, struct twi_item *items, size_t count) {
    struct twi_freeze how = {.now_ms = batch->frozen_ms, .keys_max = TWI_BATCH_ITEMS_MAX};
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

void twi_mutant_thaw(struct twi_sync *sync, struct twi_batch *batch) {
    if (batch->copies_open == 0 || !batch->items) return;
    struct twi_item items[FAKE_CELLS];
    for (uint32_t i = 0; i < batch->item_count; i++) twi_port_return(&batch->items[i], 0);
    size_t count = twi_port_collect(sync->engine, items, FAKE_CELLS);
    if (count) refill(batch, items, count);
}

void twi_mutant_reuse(struct twi_sync *sync, struct twi_batch *batch) {
    if (batch != sync->ledger.tail || !batch->items || sync->pending_count) return;
    for (uint32_t i = 0; i < batch->item_count; i++) twi_port_return(&batch->items[i], 0);
    twi_batch_items_drop(batch);
    sync->ledger.plus_sum -= batch->plus;
    sync->ledger.minus_sum -= batch->minus;
    sync->ledger.last = batch->before;
    twi_ledger_remove(&sync->ledger, batch);
    twi_batch_free(batch);
}

void twi_mutant_shrink(struct twi_sync *sync, struct twi_batch *batch) {
    (void)sync;
    if (!batch->items || batch->item_count < 2) return;
    struct twi_item items[FAKE_CELLS];
    uint32_t left = batch->item_count - 1;
    memcpy(items, batch->items, left * sizeof *items);
    twi_port_return(&batch->items[left], 0);
    refill(batch, items, left);
}

/* Is one of three of our keys still there? */
bool twi_mutant_probe(const struct twi_sync *sync) {
    for (size_t i = 0; i < 3; i++) {
        size_t cell = test_prng_below(&sync->engine->prng, FAKE_CELLS);
        if (redis_model_find(&sim.world.redis, sync->engine->cells[cell].name)) return true;
    }
    return false;
}

/* ---- the test -------------------------------------------------------------------------------------------------------- */

/* What a process that plays tells the one that waits for it. */
struct played {
    _Atomic uint64_t count, seed; /* of the last one begun */
};

/* In a process of its own: plays until something is caught. */
static void play_until_caught(uint64_t seed, size_t seeds, struct played *played) {
    struct test_prng prng;
    test_prng_seed(&prng, seed);
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(3);
    alarm(MUTANT_SECONDS);
    for (size_t i = 0; i < seeds; i++) {
        played->count++;
        played->seed = test_prng_next(&prng);
        hardship_make("mutants", played->seed, true);
        hardship_play();
        sim_free();
    }
    _exit(0);
}

/* Whether it was caught; by the how manieth seed, and which. */
static bool is_caught(enum twi_mutant mutant, size_t seeds, uint64_t *seed_count, uint64_t *by) {
    struct played *played = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(played != MAP_FAILED);
    uint64_t seed = test_seed() + (uint64_t)mutant;
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        twi_mutant = mutant;
        play_until_caught(seed, seeds, played);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    *seed_count = played->count;
    *by = played->seed;
    munmap(played, 4096);
    bool out_of_time = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    return !out_of_time && (WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

/* Goal: the simulator sees what it is there to see. Method: as above, all mutants; the seeds differ from run to run. TW_MUTANT
 * begins with that one. */
static void every_mutant_is_caught(void **state) {
    (void)state;
    uint64_t seeds = 0, by = 0, survivors = 0;
    int first = getenv("TW_MUTANT") ? atoi(getenv("TW_MUTANT")) : TWI_MUTANT_NONE + 1;
    for (int mutant = first; mutant < TWI_MUTANTS_END; mutant++) {
        bool caught = is_caught((enum twi_mutant)mutant, SEEDS_UNTIL_CAUGHT, &seeds, &by);
        printf("# %-40s %s by seed %d\n", names[mutant], caught ? "caught" : "NOT CAUGHT", (int)seeds);
        survivors += !caught;
    }
    assert_int_equal(survivors, 0);
}

/* Goal: it sees nothing where there is nothing. */
static void the_code_as_it_is_survives(void **state) {
    (void)state;
    uint64_t seeds = 0, by = 0;
    bool fell = is_caught(TWI_MUTANT_NONE, test_scale(SEEDS_OF_THE_SOUND), &seeds, &by);
    if (fell) test_seed_failed("exactly_once", by); /* the same worlds */
    assert_false(fell);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_code_as_it_is_survives),
        cmocka_unit_test(every_mutant_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
