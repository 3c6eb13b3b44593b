/* holds_shared.c -- tw_hold() without Redis in an engine that processes share: one limit for all, and the slots of a
 * process that has gone are given back, exactly.
 * Method: real children. Each has the slots that it says it has, in shared memory. A child is killed anywhere, also in
 * the middle of a call, and later all slots must be free again. Left out under sanitizers and valgrind: their own locks
 * do not survive the fork of a process with several threads.
 * Covers: engine/reserve/hold_shared.c, engine/fast/all_fast.h, engine/turn/recover.c, engine/core/processes.c. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include "engine/core/processes.h"
#include "engine/core/state.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 4u
#define KEYS 8u

static struct child {
    _Atomic uint64_t calls, held;
    _Atomic bool is_ready, ends;
} * children;
static tw_engine *engine;
static tw_family *family;

static tw_key key_of(uint32_t *number) {
    return tw_bytes(number, sizeof *number);
}

static void open_shared(void) {
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    options.shared = TW_SHARED_BY_FORK;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family_options one;
    tw_family_options_init(&one);
    one.name = "jobs";
    one.window = TW_WINDOW_FOREVER;
    assert_status(tw_family_open(engine, &one, &family), TW_OK);
    assert_status(tw_lead(engine), TW_OK);
    children = children_pages(64 * sizeof *children);
}

static void close_shared(void) {
    munmap(children, 64 * sizeof *children);
    assert_status(tw_close(engine, 1000), TW_OK);
}

static pid_t begin(void (*work)(struct child *child, uint32_t number), uint32_t number) {
    children[number] = (struct child){0};
    pid_t pid = child_fork(60);
    if (pid != 0) return pid;
    work(&children[number], number);
    _exit(0);
}

static void await_ready(uint32_t number) {
    for (int i = 0; !twi_load_acquire(&children[number].is_ready) && i < 20000; i++) usleep(1000);
    assert_true(twi_load_acquire(&children[number].is_ready));
}

static void stop(pid_t pid, int signal) {
    assert_int_equal(kill(pid, signal), 0);
    (void)child_await(pid);
}

static int64_t used(tw_key key) {
    tw_verdict verdict;
    tw_status status = tw_hold(family, key, 0, &verdict);
    assert_status(status, TW_DENIED);
    return verdict.used;
}

/* The leader looks once a second, and if it is called. */
static void expect_used(tw_key key, int64_t wanted) {
    for (int i = 0; used(key) != wanted && i < 1000; i++) {
        assert_status(tw_process_died(engine), TW_OK);
        usleep(10000);
    }
    assert_i64_equal(used(key), wanted);
}

/* ---- one limit --------------------------------------------------------------------------------------------------- */

static void hold_until_denied(struct child *child, uint32_t number) {
    for (uint32_t denied = 0; denied < 100;) {
        tw_status status = tw_hold(family, tw_str("all"), 1000, NULL);
        child->held += status == TW_OK;
        denied += status == TW_DENIED;
        if (status != TW_OK && status != TW_DENIED) _exit(2);
    }
    twi_store_release(&child->is_ready, true);
    while (!twi_load_acquire(&child->ends)) usleep(1000);
    for (uint64_t held = child->held; held != 0; held--)
        if (tw_hold_release(family, tw_str("all")) != TW_OK) _exit(3);
    if (tw_hold_release(family, tw_str("all")) != TW_ERR_RANGE) _exit(4);
    if (tw_close(engine, 1000) != TW_OK) _exit(5);
}

/* Goal: four processes hold exactly `limit` slots together. Each releases its own ones, and no more. */
TEST(four_processes_hold_exactly_one_limit) {
    open_shared();
    pid_t pids[CHILDREN];
    uint64_t held = 0;
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = begin(hold_until_denied, i);
    for (uint32_t i = 0; i < CHILDREN; i++) await_ready(i);
    for (uint32_t i = 0; i < CHILDREN; i++) held += children[i].held;
    assert_i64_equal(held, 1000);
    assert_i64_equal(used(tw_str("all")), 1000);
    assert_status(tw_hold_release(family, tw_str("all")), TW_ERR_RANGE); /* none of them is this process's */
    for (uint32_t i = 0; i < CHILDREN; i++) twi_store_release(&children[i].ends, true);
    for (uint32_t i = 0; i < CHILDREN; i++) child_expect_end(pids[i]);
    assert_i64_equal(used(tw_str("all")), 0);
    close_shared();
}

/* ---- ends of processes ------------------------------------------------------------------------------------------- */

static void hold_and_wait(struct child *child, uint32_t number) {
    for (uint32_t i = 0; i < number + 1; i++)
        if (tw_hold(family, tw_str("all"), 1000, NULL) != TW_OK) _exit(2);
    twi_store_release(&child->is_ready, true);
    while (!twi_load_acquire(&child->ends)) usleep(1000);
    if (number == 1) (void)execl("/bin/sleep", "sleep", "50", (char *)NULL);
    if (number == 2 && tw_close(engine, 0) != TW_OK) _exit(3);
    if (number == 2) pause();
}

/* Goal: slots return whether a process is killed, becomes another program, closes the engine or ends; those of a
 * stopped process do not. */
TEST(slots_return_however_a_process_ends) {
    open_shared();
    pid_t pids[5];
    int64_t wanted = 0;
    for (uint32_t i = 0; i < 5; i++) {
        pids[i] = begin(hold_and_wait, i);
        await_ready(i);
        wanted += i + 1;
    }
    expect_used(tw_str("all"), wanted);
    assert_int_equal(kill(pids[4], SIGSTOP), 0);
    stop(pids[0], SIGKILL);
    expect_used(tw_str("all"), wanted -= 1);
    for (uint32_t i = 1; i < 4; i++) {
        twi_store_release(&children[i].ends, true);
        expect_used(tw_str("all"), wanted -= i + 1);
    }
    usleep(1200000); /* more than a look of the leader */
    assert_i64_equal(used(tw_str("all")), 5);
    for (uint32_t i = 1; i < 5; i++) stop(pids[i], SIGKILL);
    expect_used(tw_str("all"), 0);
    close_shared();
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static void hold_one(struct child *child, uint32_t number) {
    if (tw_hold(family, tw_str("all"), 1000, NULL) != TW_OK) _exit(2);
    twi_store_release(&child->is_ready, true);
    pause();
}

static bool is_alone(void *ctx) {
    return twi_processes_count(engine) == 1;
}

/* Goal: accounts of many processes, which need several lines, are as exact. */
TEST(forty_processes_have_accounts) {
    open_shared();
    pid_t pids[40];
    for (uint32_t i = 0; i < 40; i++) pids[i] = begin(hold_one, i);
    for (uint32_t i = 0; i < 40; i++) await_ready(i);
    assert_i64_equal(used(tw_str("all")), 40);
    for (uint32_t i = 0; i < 40; i++) stop(pids[i], SIGKILL);
    expect_used(tw_str("all"), 0);
    assert_true(test_wait(is_alone, NULL, TEST_PATIENCE_MS)); /* a place is free just after its slots are */
    close_shared();
}

/* ---- killed anywhere --------------------------------------------------------------------------------------------- */

#define LIMIT 3

static void hold_and_release_for_ever(struct child *child, uint32_t number) {
    uint32_t key = number, has[KEYS] = {0};
    for (uint32_t random = number * 7919 + (uint32_t)getpid();; random = random * 1664525 + 1013904223) {
        key = (random >> 16) % KEYS;
        if (random >> 31) {
            tw_status status = tw_hold(family, key_of(&key), LIMIT, NULL);
            if (status != TW_OK && status != TW_DENIED) _exit(2);
            has[key] += status == TW_OK;
        } else if (tw_hold_release(family, key_of(&key)) != (has[key] != 0 ? TW_OK : TW_ERR_RANGE)) {
            _exit(3);
        } else {
            has[key] -= has[key] != 0;
        }
        child->calls++;
    }
}

/* Goal: of processes that are killed anywhere in a call nothing is left, and none of the others' slots is lost. Each
 * child checks all answers of its releases. */
TEST(killed_processes_leave_no_slots) {
    open_shared();
    pid_t pids[CHILDREN];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint32_t i = 0; i < CHILDREN; i++) pids[i] = begin(hold_and_release_for_ever, i);
    for (uint64_t kills = 0; kills < test_scale(200); kills++) {
        usleep(500 + (useconds_t)test_prng_below(&prng, 8000));
        uint32_t i = (uint32_t)test_prng_below(&prng, CHILDREN);
        assert_int_equal(kill(pids[i], SIGKILL), 0);
        int status = child_await(pids[i]);
        if (WIFEXITED(status)) fail_msg("a child found a wrong answer (%d)", WEXITSTATUS(status));
        for (uint32_t key = 0; key < KEYS; key++) assert_true(used(key_of(&key)) <= LIMIT);
        pids[i] = begin(hold_and_release_for_ever, i);
    }
    for (uint32_t i = 0; i < CHILDREN; i++) stop(pids[i], SIGKILL);
    for (uint32_t key = 0; key < KEYS; key++) expect_used(key_of(&key), 0);
    /* a limit that was never exact would show now */
    for (uint32_t key = 0; key < KEYS; key++)
        for (int i = 0; i < LIMIT + 1; i++)
            assert_status(tw_hold(family, key_of(&key), LIMIT, NULL), i < LIMIT ? TW_OK : TW_DENIED);
    close_shared();
}

int main(void) {
    test_skip_unshared();
    return test_run();
}
