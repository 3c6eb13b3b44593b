/* processes.c -- which of the processes that share an engine have gone (engine/core/processes.h).
 * Goal: each end of a process is found, and no living process is taken for dead, whatever became of its threads.
 * Method: real children, each of which ends or lives on in its own way. A child says in shared memory that it is ready.
 * Left out under sanitizers and valgrind: their own locks do not survive the fork of a process with several threads. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include "engine/core/processes.h"
#include "engine/core/state.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct common {
    _Atomic uint32_t place;
    _Atomic bool ends;
} * common;
static tw_engine *engine;

static void open_engine(void) {
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.shared = TW_SHARED_BY_FORK;
    assert_status(tw_open(&options, &engine), TW_OK);
}

static void open_shared(void) {
    open_engine();
    common = children_pages(sizeof *common);
    assert_int_equal(engine->here->process, 1);
    assert_true(twi_process_is_alive(engine, 1));
}

static void close_shared(void) {
    munmap(common, sizeof *common);
    assert_status(tw_close(engine, 1000), TW_OK);
}

/* If the main thread has not called, the process has its place soon after its first call. */
static void say_ready(void) {
    while (engine->here->process == 0) usleep(1000);
    twi_store_release(&common->place, engine->here->process);
}

static pid_t begin(void (*work)(void)) {
    twi_store_relaxed(&common->place, 0);
    twi_store_relaxed(&common->ends, false);
    pid_t pid = child_fork(60);
    if (pid == 0) {
        work();
        _exit(0);
    }
    for (int i = 0; twi_load_acquire(&common->place) == 0 && i < 20000; i++) usleep(1000);
    return pid;
}

static void wait_for_end(void) {
    while (!twi_load_acquire(&common->ends)) usleep(1000);
}

/* The child of each test has place 2: places are taken from the lowest on. */
static void expect_alive(void) {
    assert_int_equal(twi_load_acquire(&common->place), 2);
    assert_true(twi_process_is_alive(engine, 2));
    assert_int_equal(twi_process_next_gone(engine, 0), 0);
    assert_int_equal(twi_processes_count(engine), 2);
}

static void expect_gone(bool has_left) {
    for (int i = 0; twi_process_next_gone(engine, 0) == 0 && i < 5000; i++) usleep(1000);
    assert_int_equal(twi_process_next_gone(engine, 0), 2);
    assert_int_equal(twi_process_next_gone(engine, 0), 2); /* until it is cleared */
    assert_int_equal(twi_process_next_gone(engine, 2), 0);
    assert_true(twi_process_has_left(engine, 2) == has_left);
    twi_process_clear(engine, 2);
    assert_int_equal(twi_process_next_gone(engine, 0), 0);
    assert_int_equal(twi_processes_count(engine), 1);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void enter_and_wait(void) {
    (void)twi_thread_here();
    say_ready();
    wait_for_end();
}

/* Goal: a killed process is found before its parent has waited for it, and after that. */
TEST(a_killed_process_is_found) {
    open_shared();
    for (int reaped = 0; reaped < 2; reaped++) {
        pid_t pid = begin(enter_and_wait);
        expect_alive();
        assert_int_equal(twi_process_id(engine, 2), pid);
        assert_int_equal(kill(pid, SIGKILL), 0);
        if (reaped) (void)child_await(pid);
        expect_gone(false);
        if (!reaped) (void)child_await(pid);
    }
    close_shared();
}

static void enter_and_exec(void) {
    (void)twi_thread_here();
    say_ready();
    wait_for_end();
    (void)execl("/bin/sleep", "sleep", "50", (char *)NULL);
    _exit(127);
}

/* Goal: a process that has become another program is found, although its number and its beginning are the same. */
TEST(a_process_that_calls_exec_is_found) {
    open_shared();
    pid_t pid = begin(enter_and_exec);
    expect_alive();
    twi_store_release(&common->ends, true);
    expect_gone(false);
    assert_int_equal(kill(pid, SIGKILL), 0);
    (void)child_await(pid);
    close_shared();
}

static void enter_and_leave(void) {
    (void)twi_thread_here();
    say_ready();
    wait_for_end();
    if (tw_close(engine, 0) != TW_OK) _exit(1);
    pause();
}

TEST(a_process_that_closes_the_engine_has_left) {
    open_shared();
    pid_t pid = begin(enter_and_leave);
    expect_alive();
    twi_store_release(&common->ends, true);
    expect_gone(true);
    assert_int_equal(kill(pid, SIGKILL), 0);
    (void)child_await(pid);
    close_shared();
}

/* ---- lives ------------------------------------------------------------------------------------------------------- */

static void *enter(void *ctx) {
    (void)twi_thread_here();
    return ctx;
}

static void enter_by_a_thread_that_ends(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, enter, NULL) != 0) _exit(1);
    pthread_join(thread, NULL);
    say_ready();
    wait_for_end();
}

/* Goal: the end of every thread that has called the library is not the end of the process. */
TEST(a_process_without_registered_threads_lives) {
    open_shared();
    pid_t pid = begin(enter_by_a_thread_that_ends);
    expect_alive();
    assert_int_equal(kill(pid, SIGSTOP), 0);
    expect_alive();
    assert_int_equal(kill(pid, SIGKILL), 0);
    (void)child_await(pid);
    expect_gone(false);
    close_shared();
}

static void *outlive(void *ctx) {
    (void)twi_thread_here();
    say_ready();
    wait_for_end();
    _exit(0);
}

static void end_the_main_thread(void) {
    pthread_t thread;
    (void)twi_thread_here();
    if (pthread_create(&thread, NULL, outlive, NULL) != 0) _exit(1);
    pthread_exit(NULL);
}

/* Goal: a process whose main thread has ended is shown as a zombie, and lives while another thread of it does that has
 * called. */
TEST(a_process_without_its_main_thread_lives) {
    open_shared();
    pid_t pid = begin(end_the_main_thread);
    usleep(50000);
    expect_alive();
    twi_store_release(&common->ends, true);
    (void)child_await(pid);
    expect_gone(false);
    close_shared();
}

/* ---- the first process of a daemon ------------------------------------------------------------------------------- */

static int64_t processes_died(void) {
    tw_stats stats;
    return tw_stats_read(engine, &stats) == TW_OK ? stats.processes_died : -1;
}

/* Leads until this process is the only one. Says how many have died, and one more. */
static void lead_as_daemon(void) {
    while (tw_lead(engine) != TW_OK || twi_processes_count(engine) != 1) {
        (void)tw_turn(engine);
        usleep(1000);
    }
    twi_store_release(&common->place, (uint32_t)processes_died() + 1);
}

/* Goal: a daemon's first process opens the engine, forks the daemon and exits, and no death is reported. If it was a
 * candidate, one is. */
TEST(the_first_process_of_a_daemon_may_end) {
    for (uint32_t was_candidate = 0; was_candidate < 2; was_candidate++) {
        common = children_pages(sizeof *common);
        pid_t first = child_fork(60);
        if (first == 0) {
            open_engine();
            if (was_candidate) (void)tw_lead(engine);
            if (child_fork(60) == 0) lead_as_daemon();
            _exit(0);
        }
        child_expect_end(first);
        for (int i = 0; twi_load_acquire(&common->place) == 0 && i < 20000; i++) usleep(1000);
        assert_int_equal(twi_load_acquire(&common->place), 1 + was_candidate);
        munmap(common, sizeof *common);
    }
}

int main(void) {
    test_skip_unshared();
    return test_run();
}
