/* sandbox.c -- workers of a shared engine in a sandbox that came after the fork and forbids membarrier(2).
 * Goal: a worker that follows never makes that call. It keeps to the way without fences that was chosen before the
 * fork, because the leader's call reaches it. A leader in such a sandbox does everything but reuse memory, and says so.
 * Method: children under a seccomp filter. Skipped under sanitizers and valgrind: their own locks do not survive the
 * fork of a process with several threads. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include "engine/core/state.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHILDREN 4
#define KEYS 1000u
#define WINDOW_MS 1000
#define LIMIT 1000
#define WINDOWS_KEPT 3 /* so many windows end while no memory is reused */

static struct common {
    _Atomic int64_t adds, admitted; /* answered by TW_OK, to all children */
    _Atomic int32_t barriers;       /* lines of the log that name membarrier */
    _Atomic bool is_without, leads, ends, has_ended;
} * common;
static tw_engine *engine;
static tw_family *windows, *total, *rate, *doors;

static void note_log(void *ctx, int level, int event, const char *text) {
    if (event == TW_EVENT_BARRIER && level == TW_LOG_ERROR && strstr(text, "membarrier(2) is refused (error ") == text)
        common->barriers++;
}

static tw_family *family_of(const char *name, int64_t window_ms) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.window = window_ms != 0 ? TW_WINDOW_ALIGNED : TW_WINDOW_FOREVER;
    if (window_ms != 0) {
        options.window_ms = window_ms;
        options.history_ms = TW_NONE;
    }
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static int open_engine(void **state) {
    tw_options options;
    tw_options_init(&options);
    options.log_write = note_log;
    options.memory_bytes_max = UINT64_C(64) << 20;
    options.shared = TW_SHARED_BY_FORK;
    common = children_pages(sizeof *common);
    assert_status(tw_open(&options, &engine), TW_OK);
    windows = family_of("windows", WINDOW_MS);
    total = family_of("total", 0);
    rate = family_of("rate", 0);
    doors = family_of("doors", 0);
    return 0;
}

static int close_engine(void **state) {
    assert_status(tw_close(engine, 1000), TW_OK);
    munmap(common, sizeof *common);
    return 0;
}

static tw_stats figures(void) {
    tw_stats stats;
    assert_status(tw_stats_read(engine, &stats), TW_OK);
    return stats;
}

/* The barrier is answered so in this child. It ends the child if there is no seccomp, or if no barriers are used. */
static void enter_sandbox(uint32_t answer) {
    common->is_without = !twi_epoch_asymmetric || !test_answer_call(SYS_membarrier, answer);
    if (common->is_without) _exit(0);
}

static bool is_left_out(const char *test) {
    if (!common->is_without) return false;
    test_left_out(test, "no seccomp here, or no barriers of the kernel");
    return true;
}

#define NEED(condition) \
    if (!(condition)) { \
        fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, tw_error_text()); \
        _exit(1); \
    }

static void add_to_all(void) {
    for (uint32_t i = 0; i < KEYS; i++) {
        tw_key key = tw_bytes(&i, sizeof i);
        NEED(tw_add(windows, key, 1, NULL) == TW_OK);
        NEED(tw_add(total, key, 1, NULL) == TW_OK);
    }
    common->adds += KEYS;
}

static int64_t sum_of_total(void) {
    int64_t sum = 0, view;
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_status(tw_get(total, tw_bytes(&i, sizeof i), &view), TW_OK);
        sum += view;
    }
    return sum;
}

/* ---- a follower -------------------------------------------------------------------------------------------------- */

static bool meet(void *ctx, const tw_count *count) {
    ++*(int64_t *)ctx;
    return true;
}

static void *add_beside(void *arg) {
    add_to_all();
    return arg;
}

/* All kinds of calls of a worker, until windows have ended meanwhile. */
static void follow(void) {
    enter_sandbox(SECCOMP_RET_KILL_PROCESS);
    for (int i = 0; i < LIMIT; i++) common->admitted += tw_acquire(rate, tw_str("all"), 1, LIMIT, NULL) == TW_OK;
    int64_t closed = figures().windows_closed;
    for (int i = 0; figures().windows_closed < closed + 2; i++) {
        NEED(i < 3000);
        add_to_all();
        NEED(tw_hold(doors, tw_str("door"), CHILDREN, NULL) == TW_OK);
        NEED(tw_hold_release(doors, tw_str("door")) == TW_OK);
        usleep(10000);
    }
    int64_t met = 0;
    NEED(tw_each(total, TW_NOW, meet, &met) == TW_OK && met == KEYS);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, add_beside, NULL) == 0 && pthread_join(thread, NULL) == 0);
    NEED(twi_epoch_asymmetric && twi_epoch_refusal() == 0);
    _exit(tw_close(engine, 1000) == TW_OK ? 0 : 9);
}

/* Goal: workers that would be killed for the call are not killed, one limit is exact, all that was answered is counted,
 * and the leader gives memory back beside them. */
TEST_WITH(a_follower_makes_no_barrier, open_engine, close_engine, NULL) {
    assert_status(tw_lead(engine), TW_OK);
    pid_t pids[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        if ((pids[i] = child_fork(60)) == 0) follow();
    for (int i = 0; i < CHILDREN; i++) child_expect_end(pids[i]);
    if (is_left_out(__func__)) return;
    assert_i64_equal(common->admitted, LIMIT);
    assert_i64_equal(sum_of_total(), common->adds);
    assert_int_equal(common->barriers, 0);
    int64_t bytes = figures().memory_bytes;
    for (int i = 0; figures().memory_bytes >= bytes; i++) { /* the windows of the children */
        assert_true(i < 3000);
        usleep(10000);
    }
}

/* ---- a leader ---------------------------------------------------------------------------------------------------- */

static void lead(void) {
    enter_sandbox(SECCOMP_RET_ERRNO | EPERM);
    tw_status status = tw_lead(engine);
    for (int i = 0; status == TW_PENDING && i < 3000; i++) {
        usleep(10000);
        status = tw_lead(engine);
    }
    NEED(status == TW_OK);
    common->leads = true;
    while (!common->ends) {
        add_to_all();
        usleep(10000);
    }
    NEED(twi_epoch_asymmetric && twi_epoch_refusal() == EPERM);
    common->has_ended = true;
    for (;;) pause();
}

static void await(_Atomic bool *flag) {
    for (int i = 0; !*flag && !common->is_without; i++) {
        if (i == 3000) fail_msg("a child has not come so far in 30 s");
        usleep(10000);
    }
}

/* Goal: under such a leader windows end and counts are right. No memory of ended windows is reused, and the log says
 * why. A leader that may make the call gives all of it back. */
TEST_WITH(a_leader_without_barriers_reuses_no_memory, open_engine, close_engine, NULL) {
    pid_t pid = child_fork(60);
    if (pid == 0) lead();
    await(&common->leads);
    if (is_left_out(__func__)) {
        (void)child_await(pid);
        return;
    }
    tw_stats before = figures(), after = before;
    for (int i = 0; after.windows_closed < before.windows_closed + WINDOWS_KEPT; i++) {
        assert_true(i < 3000);
        add_to_all();
        usleep(10000);
        after = figures();
    }
    common->ends = true;
    await(&common->has_ended);
    assert_i64_equal(sum_of_total(), common->adds);
    assert_int_equal(common->barriers, 1);
    int64_t unsafe = figures().memory_bytes, window = (after.memory_bytes - before.memory_bytes) / WINDOWS_KEPT;
    assert_true(window > KEYS * 8);
    child_kill(pid);
    assert_status(tw_process_died(engine), TW_OK);
    tw_status status = tw_lead(engine);
    assert_true(status == TW_OK || status == TW_PENDING);
    for (int i = 0; figures().memory_bytes > unsafe - (WINDOWS_KEPT - 1) * window; i++) {
        assert_true(i < 3000);
        usleep(10000);
    }
    assert_i64_equal(sum_of_total(), common->adds);
}

int main(void) {
    test_skip_unshared();
    return test_run();
}
