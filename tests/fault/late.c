/* late.c -- time goes on in a shared engine, whatever becomes of the process that keeps it: no call counts in a window
 * that ended more than a second ago.
 * Method: one child leads, another one adds at some pace. It notes the second of each call before it calls. The leader
 * is stopped, killed, kept from running, or is never there. In the end a process leads that runs, and its hook adds up
 * what was counted in each window of a second. The tests of this program run side by side, because they mostly wait. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS 64
#define WINDOW_MS 1000
#define FAULT_MS 5200
#define RUN_MS 15      /* so long runs a leader that is kept from running, ... */
#define STARVE_MS 2500 /* ... once in this time */

static struct shared {
    _Atomic int64_t made[SECONDS], told[SECONDS]; /* in the seconds since origin_ms */
    _Atomic bool leads, waits, is_fault, is_over;
} * shared;
static int64_t origin_ms;
static tw_engine *engine;
static tw_family *family;

static int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static bool add_count(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->local;
    return true;
}

static bool on_closed(void *ctx, tw_family *closed, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms, (void)flags;
    int64_t sum = 0;
    if (tw_each(closed, start_ms, add_count, &sum) != TW_OK) return false;
    shared->told[(start_ms - origin_ms) / WINDOW_MS] = sum;
    return true;
}

static void open_all(void) {
    tw_options options;
    tw_family_options one;
    shared = children_pages(sizeof *shared);
    origin_ms = wall_ms() / WINDOW_MS * WINDOW_MS;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    options.shared = TW_SHARED_BY_FORK;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family_options_init(&one);
    one.name = "seconds";
    one.window_ms = WINDOW_MS;
    one.on_window_closed = on_closed;
    assert_status(tw_family_open(engine, &one, &family), TW_OK);
}

/* ---- the processes ----------------------------------------------------------------------------------------------- */

/* How the calls come: `burst` calls without a pause, then a pause, which is another one until the fault. An engine that
 * has fewer than a hundred calls in a second is idle, and its callers read the clocks in any case. */
struct pace {
    int64_t pause_ms, before_ms;
    int burst;
};

static pid_t begin_adder(struct pace pace) {
    pid_t pid = child_fork(60);
    if (pid != 0) return pid;
    while (!shared->is_over) {
        for (int i = 0; i < pace.burst; i++) {
            shared->made[(wall_ms() - origin_ms) / WINDOW_MS]++;
            if (tw_add(family, tw_str("key"), 1, NULL) != TW_OK) _exit(2);
        }
        int64_t pause_ms = shared->is_fault ? pace.pause_ms : pace.before_ms;
        if (pause_ms != 0) test_sleep_ms(pause_ms);
    }
    _exit(0);
}

/* It leads, or waits to lead. */
static pid_t begin_candidate(void) {
    pid_t pid = child_fork(60);
    if (pid != 0) return pid;
    for (;; test_sleep_ms(20)) {
        tw_status status = tw_lead(engine);
        if (status == TW_OK) shared->leads = true;
        if (status == TW_PENDING) shared->waits = true;
    }
}

static bool is_true(void *flag) {
    return *(_Atomic bool *)flag;
}

static pid_t begin_leader(void) {
    pid_t pid = begin_candidate();
    assert_true(test_wait(is_true, &shared->leads, TEST_PATIENCE_MS));
    return pid;
}

static void send(pid_t pid, int number) {
    assert_int_equal(kill(pid, number), 0);
}

/* ---- what is expected -------------------------------------------------------------------------------------------- */

static int64_t sum_of(const _Atomic int64_t *each, int64_t last) {
    int64_t sum = 0;
    for (int64_t i = 0; i <= last && i < SECONDS; i++) sum += each[i];
    return sum;
}

static bool all_are_told(void *unused) {
    (void)unused;
    return sum_of(shared->told, SECONDS) == sum_of(shared->made, SECONDS);
}

/* A window has no calls but those that began before it ended, or in the second after that. */
static void expect_no_call_late(void) {
    bool are_told = test_wait(all_are_told, NULL, TEST_PATIENCE_MS);
    int64_t late = 0, more;
    for (int64_t i = 0; i < SECONDS; i++) {
        more = sum_of(shared->told, i) - sum_of(shared->made, i + 1);
        if (more > late) late = more;
    }
    if (are_told && late == 0) return;
    for (int i = 0; i < SECONDS; i++)
        if (shared->made[i] + shared->told[i] != 0)
            print_message("# second %d: %lld calls, %lld told\n", i, (long long)shared->made[i],
                          (long long)shared->told[i]);
    fail_msg("%lld calls counted in a window that had ended more than a second before%s", (long long)late,
             are_told ? "" : "; not all windows were told of");
}

enum fault { STOPPED, KILLED, STARVED, NEVER_THERE };

static void pass_with(enum fault fault, pid_t leader) {
    int64_t end_ms = test_mono_ms() + FAULT_MS;
    if (fault == STOPPED || fault == STARVED) send(leader, SIGSTOP);
    if (fault == KILLED) child_kill(leader);
    shared->is_fault = true;
    while (fault == STARVED && test_mono_ms() < end_ms) {
        test_sleep_ms(STARVE_MS);
        send(leader, SIGCONT);
        test_sleep_ms(RUN_MS);
        send(leader, SIGSTOP);
    }
    for (; test_mono_ms() < end_ms; test_sleep_ms(10)) continue;
    if (fault == STOPPED || fault == STARVED) send(leader, SIGCONT);
}

static void play(enum fault fault, struct pace pace, bool has_candidate) {
    open_all();
    pid_t leader = fault == NEVER_THERE ? 0 : begin_leader(), other = has_candidate ? begin_candidate() : 0;
    if (has_candidate) assert_true(test_wait(is_true, &shared->waits, TEST_PATIENCE_MS));
    pid_t adder = begin_adder(pace);
    test_sleep_ms(1200);
    pass_with(fault, leader);
    if (fault == KILLED || fault == NEVER_THERE) leader = begin_leader();
    test_sleep_ms(500);
    shared->is_over = true;
    child_expect_end(adder);
    expect_no_call_late();
    if (has_candidate) child_kill(other);
    child_kill(leader);
    munmap(shared, sizeof *shared);
}

static const struct pace one_in_a_second = {.burst = 1, .pause_ms = 1000, .before_ms = 3},
                         in_30_ms = {.burst = 1, .pause_ms = 30, .before_ms = 3},
                         in_5_ms = {.burst = 1, .pause_ms = 5, .before_ms = 5},
                         bursts = {.burst = 60, .pause_ms = 300, .before_ms = 300}, without_pause = {.burst = 1000};

TEST(calls_with_pauses_see_that_the_leader_is_stopped) {
    play(STOPPED, in_30_ms, false);
}
TEST(one_call_in_a_second_sees_that_the_leader_is_stopped) {
    play(STOPPED, one_in_a_second, false);
}
TEST(bursts_of_calls_see_that_the_leader_is_stopped) {
    play(STOPPED, bursts, false);
}
TEST(calls_without_a_pause_see_that_the_leader_is_stopped) {
    play(STOPPED, without_pause, false);
}
TEST(calls_with_pauses_see_that_the_leader_was_killed) {
    play(KILLED, in_5_ms, false);
}
TEST(one_call_in_a_second_sees_that_the_leader_was_killed) {
    play(KILLED, one_in_a_second, false);
}
TEST(calls_with_pauses_see_that_the_leader_hardly_runs) {
    play(STARVED, in_5_ms, false);
}
TEST(bursts_of_calls_see_that_the_leader_hardly_runs) {
    play(STARVED, bursts, false);
}
TEST(calls_need_no_leader_at_all) {
    play(NEVER_THERE, in_30_ms, false);
}

/* Goal: a process that waits to lead looks for those who called too often to look.
 * Method: before the leader is stopped calls come without a pause. After that they come with pauses. */
TEST(a_candidate_looks_for_those_who_do_not) {
    play(STOPPED, (struct pace){.burst = 1, .pause_ms = 600}, true);
}

int main(void) {
    test_skip_unshared();
    return test_run_side_by_side();
}
