/* stress.h -- what the stress programs share: a team of threads that begin together, and what they add. For programs of
 * this folder; each includes it once.
 * Always true: a failed expectation in a thread of the team is noted, not thrown (cmocka's asserts belong to the test's
 * own thread), and makes team_join() fail. */
#ifndef TEST_STRESS_H
#define TEST_STRESS_H

#include "tests/support/support.h"

#include "engine/core/state.h"
#include "engine/turn/turn.h"
#include "engine/turn/turn_check.h"

#include <pthread.h>
#include <sched.h>

/* What the turn knows is sound, also while others count. */
static inline void stress_check_turn(tw_engine *engine) {
    while (!twi_turn_take(engine)) sched_yield();
    assert_true(twi_turn_is_valid(engine));
    twi_turn_leave(engine);
}

#define TEAM_MAX 16
#define STRESS_START_MS INT64_C(1700000000000)

struct team;
struct member {
    struct team *team;
    unsigned index;
    pthread_t thread;
    struct test_prng prng;
    int64_t sum; /* for the thread's function: mostly the sum of the deltas that returned TW_OK */
    int64_t other;
};

struct team {
    void *ctx;
    void (*work)(struct member *member);
    unsigned count;
    struct member members[TEAM_MAX];
    pthread_barrier_t start;
    atomic_int stop;
};

static _Atomic(const char *) stress_failure;

/* In any thread: notes the first expectation that failed. */
#define expect(x) ((x) ? (void)0 : stress_note(#x))
static inline void stress_note(const char *text) {
    const char *none = NULL;
    atomic_compare_exchange_strong(&stress_failure, &none, text);
}
static inline void stress_check_noted(void) {
    const char *failure = atomic_exchange(&stress_failure, NULL);
    if (failure != NULL) fail_msg("in a thread or a hook: %s", failure);
}

static inline void *team_run(void *arg) {
    struct member *member = arg;
    pthread_barrier_wait(&member->team->start);
    member->team->work(member);
    return NULL;
}

static inline void team_start(struct team *team, unsigned count, void (*work)(struct member *member), void *ctx) {
    memset(team, 0, sizeof *team);
    team->ctx = ctx;
    team->work = work;
    team->count = count;
    pthread_barrier_init(&team->start, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        struct member *member = &team->members[i];
        member->team = team;
        member->index = i;
        test_prng_seed(&member->prng, test_seed() ^ (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
        assert_int_equal(pthread_create(&member->thread, NULL, team_run, member), 0);
    }
}

/* Waits for all; returns the sum of their sums. */
static inline int64_t team_join(struct team *team) {
    int64_t sum = 0;
    for (unsigned i = 0; i < team->count; i++) {
        pthread_join(team->members[i].thread, NULL);
        sum += team->members[i].sum;
    }
    pthread_barrier_destroy(&team->start);
    stress_check_noted();
    return sum;
}

static inline int64_t team_others(const struct team *team) {
    int64_t sum = 0;
    for (unsigned i = 0; i < team->count; i++) sum += team->members[i].other;
    return sum;
}

static inline int64_t team_work(unsigned count, void (*work)(struct member *member), void *ctx) {
    struct team team;
    team_start(&team, count, work, ctx);
    return team_join(&team);
}

static inline tw_key number_key(const uint64_t *number) {
    return tw_bytes(number, sizeof *number);
}

/* What tw_each() shows: the number of counters, their sum, and in `seen` how often each number below `numbers` came. */
struct tally {
    int64_t counters, sum, overflow;
    uint8_t *seen;
    uint64_t numbers;
};

static inline bool tally_count(void *ctx, const tw_count *count) {
    struct tally *tally = ctx;
    if (count->key.size == 0) {
        tally->overflow += count->local;
        return true;
    }
    tally->counters++;
    tally->sum += count->local;
    uint64_t number = UINT64_MAX;
    if (tally->seen != NULL && count->key.size == sizeof number) {
        memcpy(&number, count->key.data, sizeof number);
        if (number < tally->numbers) tally->seen[number]++;
    }
    return true;
}

/* Whether callers find the time written down, as in an engine on the system's clock. Then they take the shortest paths
 * (add_fast.h), also over the ends of windows. Drawn by the seed. */
static inline void stress_write_time(tw_engine *engine) {
    if (test_seed() / 2 % 2 != 0) (void)twi_and_acqrel(&engine->clock.word, ~TWI_CLOCK_STATE);
}
/* Time passes, and is written down. */
static inline void stress_pass(struct fake_clock *clock, tw_engine *engine, int64_t ms) {
    fake_clock_advance_ms(clock, ms);
    (void)twi_clock_read(&engine->clock);
}
/* As the engine's callers have it: if it is written down, it may be behind the fake clock. */
static inline int64_t stress_now_ms(tw_engine *engine) {
    return twi_clock_now_ms(&engine->clock);
}

static inline tw_engine *stress_open(tw_options *options) {
    tw_engine *engine;
    assert_status(tw_open(options, &engine), TW_OK);
    return engine;
}

/* Closes an engine whose clock has stood until now. The clock goes on first, because the engine waits by it. Fails if
 * not everything is settled, or if an expectation of a hook has failed. */
static inline void stress_close(tw_engine *engine, struct fake_clock *clock) {
    fake_clock_go(clock);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    stress_check_noted();
}

static inline tw_family *stress_family(tw_engine *engine, const tw_family_options *options) {
    tw_family *family;
    assert_status(tw_family_open(engine, options, &family), TW_OK);
    return family;
}

#endif
