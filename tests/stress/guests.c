/* guests.c -- threads and processes flood a family that evicts (TW_ON_FULL_EVICT_IDLE with windows): counters and the
 * overflow counter together have what the callers were told, whatever was given up; and the limit of a client that
 * came when the window was full is exact, because one compare-and-swap decides.
 * Goal: P1 and the limits of guests (engine/table/guests.h). Method: each thread sums up what its calls answered. Other
 * processes note it in shared memory.
 * Covers: engine/table/guests.c, engine/count/lookup.c. */
#include "tests/stress/stress.h"
#include "tests/support/children.h"
#include "tests/support/fake_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#define KEYS 60000u /* ten times as many as fit into a window */
#define HOT 50      /* the limit of the clients that all threads are */
#define CHILDREN 4u

struct field {
    tw_engine *engine;
    tw_family *family;
    int64_t start_ms;
    uint64_t rounds;
    uint32_t hot;
};

static void field_open(struct field *field, uint32_t shared) {
    tw_options options;
    tw_options_init(&options);
    options.shared = shared;
    options.memory_bytes_max = UINT64_C(8) << 20;
    field->engine = stress_open(&options);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "evicts";
    family.window_ms = 3650 * TW_DAY; /* it does not end in this test */
    family.memory_share = UINT64_C(2) << 20;
    family.on_full = TW_ON_FULL_EVICT_IDLE;
    family.on_full_limit = TW_FULL_LIMIT_DENY;
    field->family = stress_family(field->engine, &family);
    tw_verdict verdict;
    assert_status(tw_acquire(field->family, tw_str("first"), 0, 1, &verdict), TW_OK);
    field->start_ms = verdict.window_start_ms;
}

/* Returns by how much the counts rose. */
static int64_t call(const struct field *field, struct test_prng *prng) {
    tw_family *family = field->family;
    uint32_t key = (uint32_t)test_prng_below(prng, KEYS), other = (uint32_t)test_prng_below(prng, KEYS);
    const tw_claim claims[] = {{family, fake_key(&key), 2, 1000}, {family, fake_key(&other), 1, 3}};
    int64_t units = 0;
    switch (test_prng_below(prng, 8)) {
    case 0: return tw_acquire_all(claims, 2, NULL) == TW_OK ? 3 : 0;
    case 1: return tw_refund(family, fake_key(&key), 1, field->start_ms) == TW_OK ? -1 : 0;
    case 2: return tw_reset(family, fake_key(&key), &units) == TW_OK ? -units : 0;
    case 3: return tw_add(family, fake_key(&key), 4, NULL) >= 0 ? 4 : 0;
    default: return tw_acquire(family, fake_key(&key), 1, 10, NULL) == TW_OK ? 1 : 0;
    }
}

static int64_t counted(const struct field *field, int64_t *overflow) {
    struct tally tally = {.seen = NULL};
    assert_status(tw_each(field->family, TW_NOW, tally_count, &tally), TW_OK);
    *overflow = tally.overflow;
    return tally.sum + tally.overflow;
}

static void work(struct member *member) {
    const struct field *field = member->team->ctx;
    for (uint64_t round = 0; round < field->rounds; round++) member->sum += call(field, &member->prng);
}

TEST(a_flood_of_threads_leaves_what_callers_were_told) {
    struct field field = {.rounds = 15000 + test_scale(25000)}; /* fewer are no flood */
    int64_t overflow;
    field_open(&field, 0);
    int64_t told = team_work(8, work, &field);
    assert_i64_equal(counted(&field, &overflow), told);
    tw_stats stats;
    assert_status(tw_stats_read(field.engine, &stats), TW_OK);
    assert_true(overflow > 0 && stats.evicted > 0);
    assert_status(tw_close(field.engine, TEST_PATIENCE_MS), TW_OK);
}

static void be_hot(struct member *member) {
    const struct field *field = member->team->ctx;
    for (uint32_t i = 0; i < HOT; i++) {
        tw_status status = tw_acquire(field->family, fake_key(&field->hot), 1, HOT, NULL);
        expect(status == TW_OK || status == TW_DENIED);
        member->sum += status == TW_OK;
    }
}

TEST(many_threads_are_one_new_client) {
    struct field field = {.rounds = 60000};
    field_open(&field, 0);
    (void)team_work(2, work, &field);
    for (uint64_t round = 0; round < test_scale(200); round++) {
        field.hot = KEYS + (uint32_t)round;
        assert_i64_equal(team_work(8, be_hot, &field), HOT);
    }
    assert_status(tw_close(field.engine, TEST_PATIENCE_MS), TW_OK);
}

/* Each forked worker floods the family of the shared engine. */
TEST(a_flood_of_processes_leaves_what_callers_were_told) {
    if (test_is_slow()) {
        test_leave_out(TEST_NO_FORK_HERE);
        return;
    }
    if (test_misses_robust_lists()) return;
#ifndef __GLIBC__
    test_leave_out("shared engines need glibc: run it in a build with glibc");
    return;
#endif
    struct field field = {.rounds = test_scale(60000)};
    int64_t overflow, told = 0, *sums = children_pages(CHILDREN * sizeof *sums);
    field_open(&field, TW_SHARED_BY_FORK);
    pid_t pids[CHILDREN];
    for (uint32_t i = 0; i < CHILDREN; i++) {
        pids[i] = child_fork(300);
        if (pids[i] != 0) continue;
        struct test_prng prng;
        test_prng_seed(&prng, test_seed() ^ (i + 1));
        for (uint64_t round = 0; round < field.rounds; round++) sums[i] += call(&field, &prng);
        _exit(0);
    }
    for (uint32_t i = 0; i < CHILDREN; i++) child_expect_end(pids[i]);
    for (uint32_t i = 0; i < CHILDREN; i++) told += sums[i];
    assert_i64_equal(counted(&field, &overflow), told);
    assert_true(overflow > 0);
    assert_status(tw_close(field.engine, TEST_PATIENCE_MS), TW_OK);
    munmap(sums, CHILDREN * sizeof *sums);
}
