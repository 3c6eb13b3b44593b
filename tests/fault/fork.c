/* fork.c -- fault 43, trap E37: a forked child begins at zero as a new instance, and the parent notices nothing.
 * Method: a child reports by its exit status, the line of its failed expectation. Each child has an alarm, so a
 * deadlock is a failure. Skipped under sanitizers and valgrind: their own locks do not survive the fork of a process
 * with several threads. */
#include "tests/support/children.h"
#include "tests/support/fake_driver.h"

#include "engine/core/state.h"
#include "engine/turn/turn.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_SECONDS 20

/* In a child: a failed expectation ends it with the line's number as its exit status, as far as 8 bits can hold it. */
#define must(x) ((x) ? (void)0 : child_fails(__LINE__, #x))
static _Noreturn void child_fails(int line, const char *text) {
    dprintf(2, "child, line %d: %s\n", line, text);
    _exit(1);
}

struct home {
    tw_engine *engine;
    tw_family *family;
};

static void home_open(struct home *home, uint32_t threads, bool synced) {
    tw_options options;
    tw_options_init(&options);
    options.threads = threads;
    options.memory_bytes_max = UINT64_C(32) << 20;
    fake_driver_reset(0, 0);
    if (synced) fake_driver_install(&options);
    assert_status(tw_open(&options, &home->engine), TW_OK);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "home";
    family.window = TW_WINDOW_FOREVER;
    assert_status(tw_family_open(home->engine, &family, &home->family), TW_OK);
}

static tw_status add(struct home *home, uint32_t key, int64_t delta) {
    return tw_add(home->family, fake_key(&key), delta, NULL);
}

static int64_t get(struct home *home, uint32_t key) {
    int64_t view = INT64_MIN;
    (void)tw_get(home->family, fake_key(&key), &view);
    return view;
}

/* The turns that have begun are over: later ones see what was changed before. */
static void await_next_turn(struct home *home) {
    while (!twi_turn_take(home->engine)) sched_yield();
    twi_turn_leave(home->engine);
}

/* What every child finds: no counts, and it can count by itself. */
static void child_counts(struct home *home) {
    tw_stats stats;
    must(tw_stats_read(home->engine, &stats) == TW_OK);
    must(stats.increments == 0 && stats.entries == 0);
    must(get(home, 1) == 0);
    for (uint32_t key = 0; key < FAKE_KEYS; key++) must(add(home, key, 2) == TW_OK);
    must(get(home, 1) == 2);
    must(tw_stats_read(home->engine, &stats) == TW_OK);
    must(stats.increments == FAKE_KEYS && stats.entries == FAKE_KEYS);
}

/* ---- what the child has ------------------------------------------------------------------------------------------ */

TEST(a_child_begins_at_zero_and_the_parent_goes_on) {
    for (int host = 0; host < 2; host++) {
        struct home home;
        home_open(&home, host ? TW_HOST_DRIVEN : TW_OWN_THREAD, false);
        assert_status(add(&home, 1, 5), TW_OK);
        pid_t pid = child_fork(CHILD_SECONDS);
        if (pid == 0) {
            child_counts(&home);
            must(host || test_thread_count() == 2); /* its own background thread */
            must(tw_close(home.engine, 1000) == TW_OK);
            _exit(0);
        }
        assert_status(add(&home, 1, 6), TW_OK);
        child_expect_end(pid);
        assert_i64_equal(get(&home, 1), 11);
        assert_status(tw_close(home.engine, 1000), TW_OK);
    }
}

/* Goal: unsent counts and batches in flight stay with the parent: what the two processes send adds up (P2). */
TEST(unsent_counts_stay_with_the_parent) {
    struct home home;
    home_open(&home, TW_HOST_DRIVEN, true);
    atomic_store(&fake_driver.settle_nothing, true);
    assert_status(add(&home, 1, 5), TW_OK);
    assert_status(tw_turn(home.engine), TW_OK); /* in flight */
    assert_status(add(&home, 2, 7), TW_OK);     /* unsent */
    assert_i64_equal(atomic_load(&fake_driver.in_flight), 1);
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) {
        atomic_store(&fake_driver.settle_nothing, false);
        must(add(&home, 2, 1) == TW_OK);
        must(tw_flush(home.engine, 5000) == TW_OK);
        must(fake_driver_sum() == 1);
        must(tw_close(home.engine, 5000) == TW_OK);
        must(fake_driver_sum() == 1);
        _exit(0);
    }
    child_expect_end(pid);
    atomic_store(&fake_driver.settle_nothing, false);
    assert_status(tw_flush(home.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(fake_driver_sum(), 12);
    assert_status(tw_close(home.engine, 1000), TW_OK);
}

static uint32_t crumbs;
static void count_crumbs(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)level, (void)text;
    crumbs += event == TW_EVENT_CRUMBS;
}

/* Goal: a child reports nothing that only its parent has seen: no refused allocation, no synchronisation. Method: the
 * parent's memory is full when it forks, and both make a turn with a log. */
TEST(a_child_has_seen_nothing_of_its_parents_troubles) {
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = UINT64_C(32) << 20;
    options.log_write = count_crumbs;
    struct home home;
    assert_status(tw_open(&options, &home.engine), TW_OK);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "home";
    family.window = TW_WINDOW_FOREVER;
    assert_status(tw_family_open(home.engine, &family, &home.family), TW_OK);
    for (uint64_t key = 0; twi_arena_refused(&home.engine->arena) == 0; key++)
        (void)tw_add(home.family, tw_bytes(&key, sizeof key), 1, NULL);
    assert_status(tw_turn(home.engine), TW_OK);
    crumbs = 0;
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) {
        tw_stats stats;
        must(tw_turn(home.engine) == TW_OK);
        must(crumbs == 0);
        must(tw_stats_read(home.engine, &stats) == TW_OK);
        must(stats.sync_age_ms == -1);
        must(tw_close(home.engine, 1000) == TW_OK);
        _exit(0);
    }
    child_expect_end(pid);
    assert_status(tw_close(home.engine, 1000), TW_OK);
}

/* Goal: any call may be the first one in the child. */
TEST(any_call_may_be_the_first_in_the_child) {
    for (int first = 0; first < 12; first++) {
        struct home home;
        home_open(&home, TW_OWN_THREAD, true);
        assert_status(add(&home, 1, 5), TW_OK);
        pid_t pid = child_fork(CHILD_SECONDS);
        if (pid == 0) {
            tw_stats stats;
            bool stopped = false;
            switch (first) {
            case 0: must(tw_stop(home.engine) == TW_OK), stopped = true; break;
            case 1: must(tw_close(home.engine, 1000) == TW_OK), _exit(0);
            case 2: must(tw_flush(home.engine, 5000) == TW_OK); break;
            case 3: must(tw_stats_read(home.engine, &stats) == TW_OK && stats.increments == 0); break;
            case 4: must(tw_fd(home.engine) == -1); break;
            case 5: must(tw_timeout_ms(home.engine) <= 1000); break;
            case 6: tw_enter(home.engine), tw_leave(home.engine); break;
            case 7: must(get(&home, 2) == 0); break;
            case 8: must(tw_family_find(home.engine, "home") == home.family); break;
            case 9: must(tw_family_close(home.family) == TW_OK), stopped = true; break;
            case 10: tw_leave(home.engine); break;
            default: must(tw_turn(home.engine) == TW_ERR_MODE); break;
            }
            if (!stopped) must(get(&home, 1) == 0);
            must(tw_close(home.engine, 5000) == TW_OK);
            must(fake_driver_sum() <= 5); /* what the parent had sent before the fork */
            _exit(0);
        }
        child_expect_end(pid);
        assert_status(tw_close(home.engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(fake_driver_sum(), 5);
    }
}

/* Goal: an engine that was stopped before the fork can be closed in the child, and sends nothing of the parent's
 * counts. */
TEST(a_stopped_engine_can_be_closed_in_the_child) {
    struct home home;
    home_open(&home, TW_OWN_THREAD, true);
    atomic_store(&fake_driver.away, true);
    await_next_turn(&home); /* one that has begun may not have seen it, and would send the count */
    assert_status(add(&home, 1, 5), TW_OK);
    assert_status(tw_stop(home.engine), TW_OK);
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) {
        atomic_store(&fake_driver.away, false);
        must(add(&home, 1, 1) == TW_ERR_CLOSED);
        must(tw_close(home.engine, 5000) == TW_OK);
        must(fake_driver_sum() == 0);
        _exit(0);
    }
    child_expect_end(pid);
    atomic_store(&fake_driver.away, false);
    assert_status(tw_close(home.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(fake_driver_sum(), 5);
}

/* Goal: a fork inside tw_enter() leaves the child outside of it. */
TEST(a_fork_inside_a_section) {
    struct home home;
    home_open(&home, TW_OWN_THREAD, false);
    tw_enter(home.engine);
    assert_status(add(&home, 1, 5), TW_OK);
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) {
        child_counts(&home);
        tw_leave(home.engine);
        must(add(&home, 1, 1) == TW_OK);
        must(tw_close(home.engine, 1000) == TW_OK);
        _exit(0);
    }
    assert_status(add(&home, 1, 5), TW_OK);
    tw_leave(home.engine);
    child_expect_end(pid);
    assert_i64_equal(get(&home, 1), 10);
    assert_status(tw_close(home.engine, 1000), TW_OK);
}

static bool is_child, child_adds;

static bool fork_and_count(void *ctx, const tw_count *count) {
    struct home *home = ctx;
    pid_t pid = is_child ? 0 : child_fork(CHILD_SECONDS); /* once, not at each counter that the child is still shown */
    if (pid != 0) {
        child_expect_end(pid);
        return false;
    }
    is_child = true;
    if (child_adds)
        must(add(home, 1, 1) == TW_OK);
    else
        must(get(home, 1) == 0);
    return true; /* the child goes on walking */
}

/* Goal: a visitor that forks and calls the library in the child does not walk freed memory. Method: the child counts,
 * so that it has a window where the parent had one, or it only reads. */
TEST(a_fork_inside_a_visitor) {
    for (int adds = 0; adds < 2; adds++) {
        struct home home;
        home_open(&home, TW_OWN_THREAD, false);
        pid_t parent = getpid();
        child_adds = adds;
        for (uint32_t key = 0; key < 5000; key++) assert_status(add(&home, key, 1), TW_OK);
        tw_status status = tw_each(home.family, TW_NOW, fork_and_count, &home);
        if (getpid() != parent) {
            must(status == TW_ERR_FORKED);
            must(tw_close(home.engine, 1000) == TW_OK);
            _exit(0);
        }
        assert_status(status, TW_OK);
        assert_status(tw_close(home.engine, 1000), TW_OK);
    }
}

TEST(grandchildren) {
    struct home home;
    home_open(&home, TW_OWN_THREAD, true);
    assert_status(add(&home, 1, 5), TW_OK);
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) {
        child_counts(&home);
        pid = child_fork(CHILD_SECONDS);
        if (pid == 0) {
            child_counts(&home);
            pid = child_fork(CHILD_SECONDS); /* and one more that never calls */
            if (pid == 0) _exit(0);
            child_expect_end(pid);
            must(tw_close(home.engine, 5000) == TW_OK);
            _exit(0);
        }
        must(add(&home, 1, 2) == TW_OK);
        child_expect_end(pid);
        must(get(&home, 1) == 4);
        must(tw_close(home.engine, 5000) == TW_OK);
        _exit(0);
    }
    child_expect_end(pid);
    assert_status(tw_close(home.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(fake_driver_sum(), 5);
}

TEST(fork_and_exec) {
    struct home home;
    home_open(&home, TW_OWN_THREAD, true);
    assert_status(add(&home, 1, 5), TW_OK);
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) {
        /* only 0, 1, 2 and those of ls itself: nothing of the library is inherited */
        execl("/bin/sh", "sh", "-c",
              "for f in /proc/self/fd/*; do case $(readlink $f) in *eventfd*|*socket*) exit 1;; esac; done", NULL);
        _exit(127);
    }
    child_expect_end(pid);
    assert_status(tw_close(home.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(fake_driver_sum(), 5);
}

/* ---- while others are busy --------------------------------------------------------------------------------------- */

static atomic_int stop;
static _Atomic int64_t added;

static void *count_on(void *arg) {
    struct home *home = arg;
    uint32_t key = (uint32_t)(uintptr_t)&key >> 12;
    while (!atomic_load(&stop)) {
        uint32_t number = key++ % 20000;
        if (tw_add(home->family, fake_key(&number), 1, NULL) == TW_OK) atomic_fetch_add(&added, 1);
        if (key % 64 == 0) sched_yield();
    }
    return NULL;
}

static void *come_and_go(void *arg) { /* threads register all the time */
    struct home *home = arg;
    (void)tw_add(home->family, tw_str("a"), 1, NULL);
    atomic_fetch_add(&added, 1);
    return NULL;
}

static void *breed(void *arg) {
    while (!atomic_load(&stop)) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, come_and_go, arg) == 0) pthread_join(thread, NULL);
    }
    return NULL;
}

static bool sum_up(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->local;
    return true;
}

/* Goal: a fork at any moment, while other threads insert, count and register and turns run: no child deadlocks, and no
 * count of the parent changes. */
TEST(forks_while_other_threads_count_and_register) {
    struct home home;
    home_open(&home, TW_OWN_THREAD, false);
    atomic_store(&stop, 0);
    atomic_store(&added, 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i == 3 ? breed : count_on, &home), 0);
    uint64_t forks = test_scale(60);
    if (forks < 20) forks = 20;
    for (uint64_t round = 0; round < forks; round++) {
        pid_t pid = child_fork(CHILD_SECONDS);
        if (pid == 0) {
            must(get(&home, 1) == 0);
            pthread_t pair[2]; /* both threads may be the first to notice the fork */
            for (int i = 0; i < 2; i++) must(pthread_create(&pair[i], NULL, come_and_go, &home) == 0);
            for (int i = 0; i < 2; i++) pthread_join(pair[i], NULL);
            int64_t view = 0;
            must(tw_get(home.family, tw_str("a"), &view) == TW_OK && view == 2);
            must(tw_close(home.engine, 1000) == TW_OK);
            _exit(0);
        }
        child_expect_end(pid);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    int64_t sum = 0;
    assert_status(tw_each(home.family, TW_NOW, sum_up, &sum), TW_OK);
    assert_i64_equal(sum, atomic_load(&added));
    assert_status(tw_close(home.engine, 1000), TW_OK);
}

static void *open_and_close(void *arg) {
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = 1 << 20;
    tw_engine *engine;
    if (tw_open(&options, &engine) == TW_OK) (void)tw_close(engine, 100);
    return NULL;
}

/* Goal: a fork during the very first call of the process does not leave the child with a lock that nobody opens.
 * Method: in a fresh program (this one, run again) many threads open their first engine while the main thread forks. */
static int fork_during_the_first_call(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, open_and_close, NULL);
    for (int round = 0; round < 6; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(CHILD_SECONDS);
            (void)open_and_close(NULL);
            _exit(0);
        }
        int status;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        if (status != 0) return 1;
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    return 0;
}

TEST(a_fork_during_the_first_call_of_the_process) {
    for (uint64_t round = 0; round < test_scale(40); round++) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            execl("/proc/self/exe", "fork", "first-call", NULL);
            _exit(127);
        }
        child_expect_end(pid);
    }
}

int main(int argc, char **argv) {
    if (test_is_emulated()) test_skip_program("qemu-user wipes no pages in a child: run it on an ARM64 machine");
    if (argc > 1 && strcmp(argv[1], "first-call") == 0) return fork_during_the_first_call();
    if (test_is_slow()) test_skip_program(TEST_NO_FORK_HERE);
    return test_run();
}
