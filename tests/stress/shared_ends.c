/* shared_ends.c -- eight processes share an engine and are ended in every way: SIGKILL at any moment, SIGSTOP, exec,
 * children that fork, threads that end inside a section; and the leader is killed again and again.
 * Method: real children. Each notes in shared memory what it was answered, and when it is inside a call. No window of a
 * limit admits too much. A window in which a call was denied admitted all, less at most one unit for each process that
 * was ended inside a call. A counter has what was answered, and at most what was not answered besides. At the end
 * windows end, and memory and sections come back. Left out under sanitizers and valgrind: their own locks do not
 * survive the fork of a process with several threads.
 * Covers: engine/core/processes.c, engine/turn/recover.c, engine/turn/recover.c. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include "engine/core/processes.h"
#include "engine/core/state.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 8u
#define KEYS 64u
#define WINDOWS 4096u
#define WINDOW_MS 1000
#define LIMIT 4000
#define BACK_MS 20000 /* until windows and memory are back: a busy machine may need long */

enum { WORK = 0, EXEC, EXEC_IN_SECTION, FORK, THREAD };

/* What the processes in one place have been answered, one after the other. */
static struct place {
    _Atomic uint32_t order;  /* what the process does next */
    _Atomic uint32_t inside; /* it is in a call, or has not noted the answer yet */
    _Atomic uint32_t leads;
    _Atomic uint64_t calls;
    _Atomic int64_t counted[KEYS];
    _Atomic uint32_t admitted[WINDOWS], denied[WINDOWS];
} * places;
static tw_engine *engine;
static tw_family *rate, *hits;
static int64_t origin_ms;
static int64_t ended_inside;
static pid_t pids[CHILDREN];
static struct test_prng prng;

/* ---- a child ---- */

static tw_key key_of(const uint32_t *number) {
    return tw_bytes(number, sizeof *number);
}

static void count(struct place *place, uint32_t draw) {
    uint32_t key = draw % KEYS;
    atomic_fetch_add(&place->inside, 1);
    if (tw_add(hits, key_of(&key), 1, NULL) != TW_OK) _exit(2);
    atomic_fetch_add(&place->counted[key], 1);
    atomic_fetch_sub(&place->inside, 1);
}

static void acquire(struct place *place) {
    tw_verdict verdict;
    atomic_fetch_add(&place->inside, 1);
    tw_status status = tw_acquire(rate, tw_str("all"), 1, LIMIT, &verdict);
    if (status != TW_OK && status != TW_DENIED) _exit(3);
    uint32_t window = (uint32_t)((verdict.window_start_ms - origin_ms) / WINDOW_MS) % WINDOWS;
    atomic_fetch_add(status == TW_OK ? &place->admitted[window] : &place->denied[window], 1);
    atomic_fetch_sub(&place->inside, 1);
}

static void *run_thread(void *place) {
    for (uint32_t i = 0; i < 50; i++) count(place, i);
    tw_enter(engine); /* the thread ends in it */
    return NULL;
}

static void obey(struct place *place, uint32_t order) {
    if (order == EXEC_IN_SECTION) tw_enter(engine);
    if (order == EXEC || order == EXEC_IN_SECTION) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(4);
    }
    if (order == FORK) {
        pid_t pid = fork();
        if (pid == 0) {
            for (uint32_t i = 0; i < 100; i++) count(place, i);
            _exit(0);
        }
        (void)waitpid(pid, NULL, 0);
    }
    pthread_t thread;
    if (order == THREAD && pthread_create(&thread, NULL, run_thread, place) == 0) pthread_join(thread, NULL);
}

static _Noreturn void work(struct place *place, uint64_t seed, bool is_candidate) {
    struct test_prng own;
    test_prng_seed(&own, seed);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (is_candidate && tw_lead(engine) < TW_OK) _exit(5);
    for (;;) {
        uint32_t order = atomic_exchange(&place->order, WORK);
        if (order != WORK) obey(place, order);
        acquire(place);
        count(place, (uint32_t)test_prng_next(&own));
        atomic_store(&place->leads, twi_leader_leads(engine));
        atomic_fetch_add(&place->calls, 1);
        if (atomic_load(&place->calls) % 4096 == 0) usleep(1000);
    }
}

/* ---- the parent ---- */

static void start(uint32_t i, bool is_candidate) {
    uint64_t seed = test_prng_next(&prng);
    places[i].order = WORK;
    places[i].leads = 0;
    fflush(NULL);
    pids[i] = fork();
    assert_true(pids[i] >= 0);
    if (pids[i] == 0) work(&places[i], seed, is_candidate);
}

/* Waits for the end of a child. It may have ended inside a call. */
static void note_end(uint32_t i, bool was_killed) {
    int status = child_await(pids[i]);
    if (was_killed ? !WIFSIGNALED(status) : !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("child %u ended by itself: status %x", i, status);
    ended_inside += atomic_exchange(&places[i].inside, 0);
    assert_status(tw_process_died(engine), TW_OK);
}

static void kill_child(uint32_t i) {
    assert_int_equal(kill(pids[i], SIGKILL), 0);
    note_end(i, true);
}

static void open_shared(void) {
    tw_options options;
    tw_options_init(&options);
    options.shared = TW_SHARED_BY_FORK;
    options.memory_bytes_max = UINT64_C(64) << 20;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "rate";
    family.window_ms = WINDOW_MS;
    family.history_ms = TW_NONE;
    assert_status(tw_family_open(engine, &family, &rate), TW_OK);
    tw_family_options_init(&family);
    family.name = "hits";
    family.window = TW_WINDOW_FOREVER;
    assert_status(tw_family_open(engine, &family, &hits), TW_OK);
    places = children_pages(CHILDREN * sizeof *places);
    origin_ms = twi_clock_read(&engine->clock) / WINDOW_MS * WINDOW_MS;
    ended_inside = 0;
    test_prng_seed(&prng, test_seed());
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* children of killed children */
}

static void end_all(void) {
    for (uint32_t i = 0; i < CHILDREN; i++) kill_child(i);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {}
    for (uint32_t i = 0; i < CHILDREN; i++) ended_inside += atomic_exchange(&places[i].inside, 0);
}

static void expect_exact_limits(void) {
    for (uint32_t window = 0; window < WINDOWS; window++) {
        int64_t admitted = 0, denied = 0;
        for (uint32_t i = 0; i < CHILDREN; i++) {
            admitted += places[i].admitted[window];
            denied += places[i].denied[window];
        }
        if (admitted > LIMIT) fail_msg("window %u admitted %lld", window, (long long)admitted);
        if (denied != 0 && admitted < LIMIT - ended_inside)
            fail_msg("window %u admitted only %lld", window, (long long)admitted);
    }
}

static void expect_all_counted(void) {
    int64_t besides = 0;
    for (uint32_t key = 0; key < KEYS; key++) {
        int64_t counted = 0, view;
        for (uint32_t i = 0; i < CHILDREN; i++) counted += places[i].counted[key];
        assert_status(tw_get(hits, key_of(&key), &view), TW_OK);
        if (view < counted) fail_msg("key %u: %lld of %lld", key, (long long)view, (long long)counted);
        besides += view - counted;
    }
    if (besides > ended_inside)
        fail_msg("%lld counts too many, and %lld ended inside a call", (long long)besides, (long long)ended_inside);
}

static bool all_is_back(void *ctx) {
    tw_stats stats;
    assert_status(tw_stats_read(engine, &stats), TW_OK);
    return stats.generations == 1 && stats.sections_oldest_ms < 1000; /* the endless window */
}

static void expect_all_back(void) {
    expect_exact_limits();
    expect_all_counted();
    if (!test_wait(all_is_back, NULL, BACK_MS))
        fail_msg("%lld windows, a section of %lld ms", (long long)test_stat_of(engine, generations),
                 (long long)test_stat_of(engine, sections_oldest_ms));
    assert_status(tw_close(engine, 1000), TW_OK);
    munmap(places, CHILDREN * sizeof *places);
}

/* One hardship for one child. */
static void harass(void) {
    uint32_t i = (uint32_t)test_prng_below(&prng, CHILDREN), what = (uint32_t)test_prng_below(&prng, 8);
    if (what < 3) {
        kill_child(i);
        start(i, false);
    } else if (what == 3) {
        assert_int_equal(kill(pids[i], SIGSTOP), 0);
        usleep((useconds_t)test_prng_below(&prng, 50000));
        assert_int_equal(kill(pids[i], SIGCONT), 0);
    } else {
        uint32_t order = what - 4 + EXEC;
        atomic_store(&places[i].order, order);
        if (order != EXEC && order != EXEC_IN_SECTION) return;
        note_end(i, false);
        start(i, false);
    }
}

/* Goal: whatever ends a worker, a limit stays exact, no answered count is lost, and nothing that it had stays. */
TEST(workers_end_in_every_way) {
    open_shared();
    assert_status(tw_lead(engine), TW_OK);
    for (uint32_t i = 0; i < CHILDREN; i++) start(i, false);
    for (uint64_t n = 0; n < test_scale(150); n++) {
        usleep((useconds_t)test_prng_below(&prng, 20000));
        harass();
    }
    end_all();
    printf("# %lld ended inside a call\n", (long long)ended_inside);
    expect_all_back();
}

static bool somebody_leads(void *at) {
    for (uint32_t i = 0; i < CHILDREN; i++)
        if (atomic_load(&places[i].leads) != 0) {
            *(uint32_t *)at = i;
            return true;
        }
    return false;
}

/* Goal: whenever the leader is killed, another process leads soon. Limits stay exact, and windows end. */
TEST(the_leader_is_killed) {
    open_shared();
    for (uint32_t i = 0; i < CHILDREN; i++) start(i, true);
    for (uint64_t n = 0; n < test_scale(60); n++) {
        uint32_t leader = 0;
        if (!test_wait(somebody_leads, &leader, 3000))
            fail_msg("after %llu leaders nobody leads", (unsigned long long)n);
        usleep((useconds_t)test_prng_below(&prng, 30000));
        kill_child(leader);
        start(leader, true);
    }
    end_all();
    printf("# %lld ended inside a call\n", (long long)ended_inside);
    assert_status(tw_lead(engine), TW_OK);
    expect_all_back();
}

int main(void) {
    test_skip_unshared();
    alarm(600);
    return test_run();
}
