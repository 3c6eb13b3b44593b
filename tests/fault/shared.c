/* shared.c -- one engine for all processes of a host: forked children count in the same table as their parent, one
 * process makes the turns, and another one does so if it ends.
 * Method: each child writes what it was answered into memory that all share, and the sums are compared. Skipped under
 * sanitizers and valgrind: their own locks do not survive the fork of a process with several threads.
 * Covers: engine/core/processes.c. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include "engine/core/state.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 4
#define KEYS 1000u
#define WINDOWS 4096u
#define WINDOW_MS 1000

static struct child {
    _Atomic uint64_t calls, admitted, leads, told;
    _Atomic uint32_t sold[WINDOWS];
} * children;
static tw_engine *engine;
static tw_family *family;

static _Atomic uint32_t deaths_logged, successions_logged; /* in this process */

static void note_log(void *ctx, int level, int event, const char *text) {
    char words[100];
    (void)ctx;
    if (event != TW_EVENT_DIED || level != TW_LOG_WARNING) return;
    deaths_logged += strncmp(text, "process ", 8) == 0 &&
                     strstr(text, ", which shared this engine, ended without tw_close()") != NULL;
    snprintf(words, sizeof words, "the process that led this engine ended without tw_close(); process %ld leads now",
             (long)getpid());
    successions_logged += strncmp(text, words, strlen(words)) == 0;
}

static void open_with(int64_t window_ms, uint32_t threads) {
    tw_options options;
    tw_options_init(&options);
    options.log_write = note_log;
    options.memory_bytes_max = UINT64_C(64) << 20;
    options.shared = TW_SHARED_BY_FORK;
    options.threads = threads;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family_options one;
    tw_family_options_init(&one);
    one.name = "one";
    one.window = window_ms == 0 ? TW_WINDOW_FOREVER : TW_WINDOW_ALIGNED;
    if (window_ms != 0) one.window_ms = window_ms;
    assert_status(tw_family_open(engine, &one, &family), TW_OK);
    children = children_pages(CHILDREN * sizeof *children);
}

/* The parent leads. */
static void open_shared(int64_t window_ms) {
    open_with(window_ms, TW_OWN_THREAD);
    assert_status(tw_lead(engine), TW_OK);
}

static int64_t figure(size_t offset) {
    tw_stats stats;
    assert_status(tw_stats_read(engine, &stats), TW_OK);
    int64_t value;
    memcpy(&value, (const char *)&stats + offset, sizeof value);
    return value;
}
#define FIGURE(name) figure(offsetof(tw_stats, name))

static void expect_figure(size_t offset, int64_t expected, const char *name) {
    for (int i = 0; figure(offset) != expected; i++) {
        if (i == 3000) fail_msg("%s is %lld, not %lld", name, (long long)figure(offset), (long long)expected);
        usleep(10000);
    }
}
#define EXPECT_FIGURE(name, expected) expect_figure(offsetof(tw_stats, name), expected, #name)

static void close_shared(void) {
    assert_status(tw_close(engine, 1000), TW_OK);
    munmap(children, CHILDREN * sizeof *children);
}

static pid_t begin(void (*work)(struct child *child, uint32_t number), uint32_t number) {
    pid_t pid = child_fork(60);
    if (pid != 0) return pid;
    work(&children[number], number);
    _exit(tw_close(engine, 1000) == TW_OK ? 0 : 9);
}

static void await_word(_Atomic uint64_t *word, uint64_t least) {
    for (int i = 0; *word < least; i++) {
        if (i == 3000) fail_msg("a child has not come so far in 30 s");
        usleep(10000);
    }
}

static tw_key key_of(uint32_t *number) {
    return tw_bytes(number, sizeof *number);
}

/* Counts into windows of a second for some seconds, and returns when few of them exist: they end, as time goes on. */
static void expect_windows_to_end(void) {
    tw_stats stats;
    for (int i = 0;; i++) {
        for (uint32_t key = 0; key < KEYS; key++) assert_status(tw_add(family, key_of(&key), 1, NULL), TW_OK);
        assert_status(tw_stats_read(engine, &stats), TW_OK);
        if (i > 100 && stats.generations <= 3 && stats.windows_closed >= 2) return;
        if (i == 1000) fail_msg("%lld windows exist", (long long)stats.generations);
        usleep(20000);
    }
}

/* ---- root and other users ---------------------------------------------------------------------------------------- */

#define NOBODY 65534

static void lead_as_nobody(struct child *child, uint32_t number) {
    if (setuid(NOBODY) != 0 || tw_add(family, tw_str("key"), 1, NULL) != TW_OK) _exit(2);
    child->calls = 1;
    for (int i = 0; tw_lead(engine) != TW_OK; i++) {
        if (i == 3000) _exit(3);
        usleep(10000);
    }
    child->leads = 1;
    while (child->admitted == 0) usleep(1000);
}

#define NEED(condition) \
    if (!(condition)) { \
        fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, tw_error_text()); \
        _exit(1); \
    }

static bool is_refused(tw_status status) {
    return status == TW_ERR_MODE && strstr(tw_error_text(), "root") != NULL;
}

/* A server that is reloaded: root opens another engine, and a worker of another user leads it. One that no process has
 * joined is closed again. */
static void reload_as_root(void) {
    tw_engine *older = engine;
    for (int i = 0; i < 3; i++) {
        open_with(WINDOW_MS, TW_HOST_DRIVEN);
        NEED(is_refused(tw_add(family, tw_str("key"), 1, NULL)));
        if (i != 2) NEED(tw_close(engine, 1000) == TW_OK);
    }
    pid_t pid = begin(lead_as_nobody, 0);
    await_word(&children[0].leads, 1);
    children[0].admitted = 1;
    child_expect_end(pid);
    NEED(tw_close(engine, 1000) == TW_OK);
    engine = older;
}

/* In a process of its own, because no engine can be used there afterwards. */
static void be_root(bool leads, uint32_t threads) {
    open_with(WINDOW_MS, threads);
    void *map = engine->arena.map;
    NEED(!leads || tw_lead(engine) == TW_OK);
    NEED(tw_add(family, tw_str("key"), 1, NULL) == TW_OK);
    pid_t pid = begin(lead_as_nobody, 0);
    await_word(&children[0].calls, 1);
    NEED(threads == TW_OWN_THREAD || is_refused(tw_turn(engine)));
    await_word(&children[0].leads, 1);
    tw_stats stats;
    NEED(is_refused(tw_lead(engine)));
    NEED(is_refused(tw_stats_read(engine, &stats)));
    NEED(is_refused(tw_stop(engine)));
    tw_status status = TW_OK;
    for (int i = 0; i < 1100 && status == TW_OK; i++) status = tw_add(family, tw_str("key"), 1, NULL);
    NEED(is_refused(status));
    NEED(is_refused(tw_acquire(family, tw_str("key"), 1, 10, NULL)));
    NEED(tw_process_died(engine) == TW_OK);
    children[0].admitted = 1;
    child_expect_end(pid);
    reload_as_root();
    NEED(tw_close(engine, 1000) == TW_OK && (threads == TW_OWN_THREAD || msync(map, 1, MS_ASYNC) != 0));
}

/* Goal: root makes no call after a process of another user has joined, because that one can write pointers which root
 * would follow. It hands over if it led. The others continue. This test is the first one, because the others make this
 * process share its threads with its children. */
TEST(root_leaves_the_engine_to_other_users) {
    if (geteuid() != 0) test_leave_out("only root can change its user: run it as root");
    for (int i = 0; i < 4; i++) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            be_root((i & 1) != 0, i < 2 ? TW_OWN_THREAD : TW_HOST_DRIVEN);
            _exit(0);
        }
        child_expect_end(pid);
    }
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static void add_to_all(struct child *child, uint32_t number) {
    for (uint32_t round = 0; round < 20; round++)
        for (uint32_t key = 0; key < KEYS; key++)
            if (tw_add(family, key_of(&key), 1, NULL) == TW_OK) child->calls++;
}

/* Goal: the counts of all processes are in one table, and none is lost, also where several insert one key. */
TEST(children_count_in_their_parents_table) {
    open_shared(0);
    pid_t pids[CHILDREN];
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = begin(add_to_all, i);
    for (uint32_t i = 0; i < CHILDREN; i++) child_expect_end(pids[i]);
    for (uint32_t key = 0; key < KEYS; key++) {
        int64_t view;
        assert_status(tw_get(family, key_of(&key), &view), TW_OK);
        assert_i64_equal(view, 20 * CHILDREN);
    }
    tw_stats stats;
    assert_status(tw_stats_read(engine, &stats), TW_OK);
    assert_i64_equal(stats.increments, 20 * CHILDREN * KEYS);
    close_shared();
}

#define THREADS 600 /* more than the library keeps records for at first */

static void *count_once_and_stay(void *arg) {
    struct child *child = arg;
    if (tw_add(family, tw_str("key"), 1, NULL) == TW_OK) child->calls++;
    while (child->leads == 0) usleep(10000);
    return NULL;
}

static void have_many_threads(struct child *child, uint32_t number) {
    static pthread_t threads[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &small, count_once_and_stay, child) != 0) _exit(2);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* Goal: a process looks at threads of others, also at so many that it has never had itself. */
TEST(others_have_many_threads) {
    open_shared(WINDOW_MS);
    pid_t pid = begin(have_many_threads, 0);
    await_word(&children[0].calls, THREADS);
    expect_windows_to_end();
    children[0].leads = 1;
    child_expect_end(pid);
    close_shared();
}

static void acquire_until_denied(struct child *child, uint32_t number) {
    for (uint32_t denied = 0; denied < 100;) {
        tw_status status = tw_acquire(family, tw_str("sale"), 1, 1000, NULL);
        child->admitted += status == TW_OK;
        denied += status == TW_DENIED;
        if (status != TW_OK && status != TW_DENIED) _exit(2);
    }
}

/* Goal: four processes under one limit of 1,000 admit exactly 1,000. */
TEST(four_processes_admit_exactly_one_limit) {
    open_shared(0);
    pid_t pids[CHILDREN];
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = begin(acquire_until_denied, i);
    uint64_t admitted = 0;
    for (uint32_t i = 0; i < CHILDREN; i++) {
        child_expect_end(pids[i]);
        admitted += children[i].admitted;
    }
    assert_i64_equal(admitted, 1000);
    close_shared();
}

static void have_grandchildren(struct child *child, uint32_t number) {
    tw_options options;
    tw_family_options one;
    tw_family *other;
    tw_options_init(&options);
    tw_family_options_init(&one);
    one.name = "other";
    if (tw_family_open(engine, &one, &other) != TW_ERR_MODE || tw_family_close(family) != TW_ERR_MODE) _exit(3);
    pid_t pid = fork();
    if (pid == 0) {
        add_to_all(child, number);
        _exit(tw_close(engine, 0) == TW_OK ? 0 : 4);
    }
    add_to_all(child, number);
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0) _exit(5);
}

/* Goal: children of children share the engine, too. They open and close no families. */
TEST(grandchildren_share_it) {
    open_shared(0);
    pid_t pids[CHILDREN];
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = begin(have_grandchildren, i);
    for (uint32_t i = 0; i < CHILDREN; i++) child_expect_end(pids[i]);
    for (uint32_t key = 0; key < KEYS; key++) {
        int64_t view;
        assert_status(tw_get(family, key_of(&key), &view), TW_OK);
        assert_i64_equal(view, 2 * 20 * CHILDREN);
    }
    close_shared();
}

/* ---- changed ----------------------------------------------------------------------------------------------------- */

#define TEN_YEARS (3660 * (int64_t)TW_DAY) /* no window of it ends in a test */

static bool never_told(void *ctx, tw_family *which, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    return false;
}

/* What a process cannot show to others is refused, and changes nothing. */
static void change_for_all(struct child *child, uint32_t number) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "one";
    options.window_ms = TEN_YEARS;
    options.shadow = true;
    options.on_window_closed = never_told;
    if (tw_family_set(family, &options) != TW_ERR_MODE) _exit(2);
    options.on_window_closed = NULL;
    options.memory_share = UINT64_C(1) << 20;
    if (tw_family_set(family, &options) != TW_ERR_MODE) _exit(3);
    options.memory_share = 0;
    if (tw_acquire(family, tw_str("sale"), 1, 3, NULL) != TW_DENIED) _exit(4);
    options.keys_max = 2;
    if (tw_family_set(family, &options) != TW_OK) _exit(5);
    if (tw_acquire(family, tw_str("sale"), 1, 3, NULL) != TW_OK) _exit(6);
    child->admitted = 1;
    while (number == 0) usleep(1000); /* until it is killed */
}

static tw_status take_one(const char *key) {
    tw_verdict verdict;
    tw_status status = tw_acquire(family, tw_str(key), 1, 3, &verdict);
    return status == TW_OK && verdict.decided_by == TW_BY_FULL ? TW_ERR_FULL : status;
}

/* Goal: policies that a child changes are those of all processes, and its end changes nothing. Counts stay. */
TEST(a_child_changes_the_policies_of_all) {
    for (uint32_t number = 0; number < 2; number++) {
        open_shared(TEN_YEARS);
        for (int i = 0; i < 3; i++) assert_status(take_one("sale"), TW_OK);
        assert_status(take_one("sale"), TW_DENIED);
        pid_t pid = begin(change_for_all, number);
        await_word(&children[number].admitted, 1);
        if (number == 0) assert_int_equal(kill(pid, SIGKILL), 0);
        (void)child_await(pid);
        int64_t view;
        assert_status(tw_get(family, tw_str("sale"), &view), TW_OK);
        assert_i64_equal(view, 3);
        assert_status(take_one("sale"), TW_OK); /* shadow */
        assert_status(take_one("second"), TW_OK);
        assert_status(take_one("third"), TW_ERR_FULL); /* keys_max */
        tw_family_options options;
        tw_family_options_init(&options);
        options.name = "one";
        options.window_ms = TEN_YEARS;
        assert_status(tw_family_set(family, &options), TW_OK);
        assert_status(take_one("sale"), TW_DENIED);
        close_shared();
    }
}

/* ---- killed ------------------------------------------------------------------------------------------------------ */

#define LIMIT 50000
static int64_t origin_ms;

static void acquire_for_ever(struct child *child, uint32_t number) {
    for (uint32_t i = 0;; i++) {
        tw_verdict verdict;
        tw_status status = tw_acquire(family, tw_str("rate"), 1, LIMIT, &verdict);
        if (status == TW_OK) child->sold[(verdict.window_start_ms - origin_ms) / WINDOW_MS % WINDOWS]++;
        if ((status != TW_OK && status != TW_DENIED) || verdict.decided_by != TW_BY_LOCAL) _exit(2);
        uint32_t fresh = i / 64 % 25000 * CHILDREN + number; /* the table is never full, which would admit all */
        if (i % 64 == 0) (void)tw_add(family, key_of(&fresh), 1, NULL);
        child->calls++;
    }
}

static void expect_no_window_oversold(void) {
    for (uint32_t window = 0; window < WINDOWS; window++) {
        uint64_t sold = 0;
        for (uint32_t i = 0; i < CHILDREN; i++) sold += children[i].sold[window];
        if (sold > LIMIT) fail_msg("window %u: %llu sold, of a limit of %d", window, (unsigned long long)sold, LIMIT);
    }
}

/* Goal: a killed worker sells nothing twice, its windows end, and its memory returns. */
TEST(killed_children_oversell_nothing) {
    open_shared(WINDOW_MS);
    origin_ms = twi_clock_read(&engine->clock) / WINDOW_MS * WINDOW_MS;
    pid_t pids[CHILDREN];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = begin(acquire_for_ever, i);
    for (uint64_t kills = 0; kills < test_scale(100); kills++) {
        usleep(1000 + (useconds_t)test_prng_below(&prng, 20000));
        uint32_t i = (uint32_t)test_prng_below(&prng, CHILDREN);
        child_kill(pids[i]);
        pids[i] = begin(acquire_for_ever, i);
    }
    for (uint32_t i = 0; i < CHILDREN; i++) child_kill(pids[i]);
    expect_no_window_oversold();
    EXPECT_FIGURE(generations, 0);
    EXPECT_FIGURE(processes, 1);
    int64_t died = FIGURE(processes_died); /* some were killed before they had joined */
    assert_true(died <= (int64_t)test_scale(100) + CHILDREN && died >= CHILDREN);
    assert_i64_equal(FIGURE(leaders_died), 0);
    close_shared();
}

static void lead_until_told(struct child *child, uint32_t number) {
    while (child->told == 0) {
        if (tw_lead(engine) == TW_OK) child->leads = 1;
        tw_status status = tw_turn(engine); /* TW_ERR_MODE with a thread of its own */
        if (status != TW_OK && status != TW_PENDING && status != TW_ERR_MODE) _exit(2);
        usleep(500);
    }
}

static pid_t begin_candidate(uint32_t number) {
    children[number].leads = children[number].told = 0;
    return begin(lead_until_told, number);
}

/* Goal: 100 leaders, one after the other, close while two processes acquire: no leader died, no limit is exceeded, and
 * windows end. */
TEST(a_hundred_leaders_hand_over_under_load) {
    const uint32_t threads[] = {TW_OWN_THREAD, TW_HOST_DRIVEN};
    for (size_t i = 0; i < 2; i++) {
        open_with(WINDOW_MS, threads[i]);
        origin_ms = twi_clock_read(&engine->clock) / WINDOW_MS * WINDOW_MS;
        pid_t load[2] = {begin(acquire_for_ever, 2), begin(acquire_for_ever, 3)}, leader = begin_candidate(0);
        await_word(&children[0].leads, 1);
        for (uint32_t next = 1, hand_overs = 0; hand_overs < 100; hand_overs++, next = 1 - next) {
            pid_t candidate = begin_candidate(next);
            children[1 - next].told = 1;
            child_expect_end(leader);
            await_word(&children[next].leads, 1);
            leader = candidate;
        }
        EXPECT_FIGURE(leaders_died, 0);
        child_kill(load[0]);
        child_kill(load[1]);
        EXPECT_FIGURE(generations, 0);
        assert_i64_equal(FIGURE(leaders_died), 0);
        assert_true(FIGURE(windows_closed) > 0);
        expect_no_window_oversold();
        child_kill(leader);
        close_shared();
    }
}

/* ---- the leader -------------------------------------------------------------------------------------------------- */

static void lead_and_wait(struct child *child, uint32_t number) {
    tw_status status = tw_lead(engine);
    if (status != TW_OK && status != TW_PENDING) _exit(2);
    child->leads = status == TW_OK ? 1 : 2;
    for (;;) pause();
}

/* Goal: when the leader is killed, a process that stands by takes over, and windows end again. */
TEST(a_killed_leader_is_replaced) {
    open_with(WINDOW_MS, TW_OWN_THREAD);
    pid_t first = begin(lead_and_wait, 0);
    await_word(&children[0].leads, 1);
    assert_i64_equal(children[0].leads, 1);
    pid_t second = begin(lead_and_wait, 1);
    await_word(&children[1].leads, 1);
    assert_i64_equal(children[1].leads, 2);
    assert_i64_equal(FIGURE(processes), 3);
    child_kill(first);
    assert_status(tw_process_died(engine), TW_OK);
    expect_windows_to_end();
    assert_status(tw_lead(engine), TW_PENDING); /* the second one leads */
    child_kill(second);
    expect_windows_to_end(); /* this process leads */
    assert_status(tw_lead(engine), TW_OK);
    EXPECT_FIGURE(leaders_died, 2);
    EXPECT_FIGURE(processes_died, 2);
    EXPECT_FIGURE(processes, 1);     /* a death is counted and logged before its place is free */
    assert_true(deaths_logged >= 1); /* by this process, of the second one */
    assert_int_equal(successions_logged, 1);
    close_shared();
}

/* Goal: before any process leads, all count, by the right time, and no window is sealed. */
TEST(without_a_leader_all_count) {
    open_with(WINDOW_MS, TW_OWN_THREAD);
    tw_stats stats;
    for (int i = 0; i < 3; i++) {
        int64_t view;
        assert_status(tw_add(family, tw_str("key"), 1, &view), TW_OK);
        assert_i64_equal(view, 1); /* each in a window of its own */
        usleep(1100000);
    }
    assert_status(tw_stats_read(engine, &stats), TW_OK);
    assert_i64_equal(stats.windows_closed, 0);
    assert_i64_equal(stats.generations, 3);
    assert_i64_equal(stats.leader_age_ms, -1);
    assert_i64_equal(stats.processes, 1);
    assert_status(tw_stop(engine), TW_ERR_MODE);
    close_shared(); /* it only leaves */
}

static bool count_hook(void *ctx, tw_family *of, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)of, (void)start_ms, (void)end_ms, (void)flags;
    ++*(_Atomic uint64_t *)ctx;
    return true;
}

static void lead_and_stay(struct child *child, uint32_t number) {
    child->leads = tw_lead(engine) == TW_OK ? 1 : 2;
    (void)tw_add(family, tw_str("key"), 1, NULL);
    while (child->admitted == 0) usleep(1000);
}

/* Goal: a leader that closes hands over, and no window is reported. The last candidate reports it, when it closes. */
TEST(a_leader_hands_over_and_the_last_one_ends_the_engine) {
    open_with(0, TW_OWN_THREAD);
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "hooked";
    options.window = TW_WINDOW_ALIGNED;
    options.window_ms = 10 * TW_HOUR;
    options.on_window_closed = count_hook;
    _Atomic uint64_t *hooks = &children[3].admitted;
    options.closed_ctx = (void *)hooks;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    pid_t pids[2];
    for (uint32_t i = 0; i < 2; i++) {
        pids[i] = begin(lead_and_stay, i);
        await_word(&children[i].leads, 1);
        assert_i64_equal(children[i].leads, 1 + i);
    }
    children[0].admitted = 1;
    child_expect_end(pids[0]);
    assert_status(tw_add(family, tw_str("key"), 1, NULL), TW_OK);
    tw_status status = tw_lead(engine); /* the other child is the leader by now, or this process is */
    assert_true(status == TW_PENDING || status == TW_OK);
    assert_i64_equal(*hooks, 0);
    assert_i64_equal(FIGURE(leaders_died), 0);
    children[1].admitted = 1;
    child_expect_end(pids[1]);
    assert_status(tw_add(family, tw_str("key"), 1, NULL), TW_OK);
    assert_i64_equal(*hooks, 0);
    assert_status(tw_close(engine, 1000), TW_OK);
    assert_i64_equal(*hooks, 1);
    munmap(children, CHILDREN * sizeof *children);
}

static void lead_and_count(struct child *child, uint32_t number) {
    child->leads = tw_lead(engine) == TW_OK ? 1 : 2;
    int64_t view;
    if (tw_add(family, tw_str("key"), 1, &view) != TW_OK || view != (int64_t)number + 1) _exit(2);
}

/* Goal: the engine outlives each process that uses it, such as a worker of a server that is restarted. A worker that is
 * forked when no other one is left leads, and finds the counts. */
TEST(a_worker_that_is_forked_later_finds_the_counts) {
    const uint32_t threads[] = {TW_OWN_THREAD, TW_HOST_DRIVEN};
    for (size_t i = 0; i < 2; i++) {
        open_with(0, threads[i]);
        for (uint32_t number = 0; number < CHILDREN; number++) {
            child_expect_end(begin(lead_and_count, number));
            assert_i64_equal(children[number].leads, 1);
        }
        assert_i64_equal(FIGURE(leaders_died), 0);
        assert_i64_equal(FIGURE(processes), 1);
        close_shared();
    }
}

static void stop_and_close(struct child *child, uint32_t number) {
    lead_and_count(child, number);
    if (tw_stop(engine) != TW_OK || tw_add(family, tw_str("key"), 1, NULL) != TW_ERR_CLOSED) _exit(3);
}

/* Goal: tw_stop() by the leader ends the engine for all processes, also for those that are forked later. */
TEST(a_leader_stops_the_engine_for_all) {
    open_with(0, TW_OWN_THREAD);
    child_expect_end(begin(stop_and_close, 0));
    assert_status(tw_add(family, tw_str("key"), 1, NULL), TW_ERR_CLOSED);
    assert_status(tw_lead(engine), TW_ERR_CLOSED);
    close_shared();
}

static void turn_until_told(struct child *child, uint32_t number) {
    child->leads = tw_lead(engine) == TW_OK ? 1 : 2;
    while (child->admitted == 0) {
        tw_status status = tw_turn(engine);
        if (status != TW_OK && status != TW_PENDING) _exit(2);
        child->calls += status == TW_OK;
        usleep(tw_timeout_ms(engine) == 0 ? 0 : 1000);
    }
}

/* Goal: in a host-driven engine the thread that leads makes the turns. Other threads and processes make none, until it
 * ends or hands over. */
TEST(a_host_leads_by_its_turns) {
    open_with(WINDOW_MS, TW_HOST_DRIVEN);
    assert_status(tw_turn(engine), TW_PENDING);
    pid_t first = begin(turn_until_told, 0), second;
    await_word(&children[0].calls, 1);
    second = begin(turn_until_told, 1);
    await_word(&children[1].leads, 1);
    assert_i64_equal(children[1].leads, 2);
    assert_status(tw_lead(engine), TW_PENDING);
    assert_true(tw_timeout_ms(engine) <= 1000);
    assert_status(tw_stop(engine), TW_ERR_MODE);
    assert_i64_equal(children[1].calls, 0);
    children[0].admitted = 1;
    child_expect_end(first);
    await_word(&children[1].calls, 1);
    child_kill(second);
    assert_status(tw_process_died(engine), TW_OK);
    assert_status(tw_turn(engine), TW_OK);
    assert_status(tw_stop(engine), TW_OK);
    close_shared();
}

int main(void) {
    test_skip_unshared();
    return test_run();
}
