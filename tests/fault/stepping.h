/* stepping.h -- kills a forked child after a number of instructions of one call: after 0, after 1, and so on, until the
 * call returns. To be included by the one file of a test program.
 *
 * A first child is stepped through the call with ptrace(2), and its instructions are noted. The others run to a
 * breakpoint at the instruction before which they are killed: a step costs up to 20 us on a virtual machine, and a
 * breakpoint is met at full speed. A child that takes another way than the first one, and does not meet it, is stepped
 * instead. The parent leads the shared engine and is host-driven, so nothing happens between a kill and the judgement.
 * x86-64 alone: some ARM64 machines never leave a loop of exclusive loads and stores when they are stepped. Elsewhere,
 * and under sanitizers and valgrind, the program is skipped by name.
 * Always true: a child is killed in the call itself. Code before and after it is never stepped. */
#ifndef TEST_STEPPING_H
#define TEST_STEPPING_H

#include "tests/support/children.h"
#include "tests/support/support.h"

#include <errno.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* `n` is the number of the child, from 0 on. */
struct step_call {
    const char *name;
    uint32_t stride;                          /* in the short form, one kill in so many instructions */
    void (*prepare)(uint32_t n);              /* in the parent, before the fork; NULL: nothing */
    void (*enter)(uint32_t n);                /* in the child, before the call; NULL: nothing */
    bool (*run)(uint32_t n);                  /* in the child: the call. It returns false if the answer is wrong */
    void (*judge)(uint32_t n, bool answered); /* in the parent, when the child is dead */
};

/* The instructions of a call, by their addresses. An instruction that repeats itself is here once. */
#define STEP_MOST 60000u
/* The shortest way of some children, which is the usual one: now and then an insert makes a table grow. Of long ways
 * two are noted, and a third one if they differ. */
#define STEP_WAYS 3u
#define STEP_WAYS_STEPS 2500u
static struct {
    uint64_t at[STEP_MOST];
    uint32_t count;
} step_way;

enum { STEP_RUNS = 0, STEP_ANSWERED, STEP_WRONG };
static _Atomic int *step_state; /* shared with the children */
static const struct step_call *step_now;
static pid_t step_alive; /* the child that is stopped now; 0: none */

/* ---- a child ---- */

#if defined(__x86_64__)
#define STEP_STOP() __asm__ volatile("int3" ::: "memory")
/* Where the child is, and where it goes on if that is another place. */
static inline uint64_t step_registers(pid_t pid, uint64_t *go_on) {
    struct user_regs_struct registers;
    assert_int_equal(ptrace(PTRACE_GETREGS, pid, NULL, &registers), 0);
    uint64_t at = registers.rip;
    if (go_on == NULL) return at;
    registers.rip = *go_on;
    assert_int_equal(ptrace(PTRACE_SETREGS, pid, NULL, &registers), 0);
    return at;
}
/* Where the function returns to whose first instruction is next. */
static inline uint64_t step_caller(pid_t pid) {
    struct user_regs_struct registers;
    assert_int_equal(ptrace(PTRACE_GETREGS, pid, NULL, &registers), 0);
    return (uint64_t)ptrace(PTRACE_PEEKTEXT, pid, (void *)(uintptr_t)registers.rsp, NULL);
}
#else /* compiled, and left out: step_begin() */
#define STEP_STOP() abort()
static inline uint64_t step_registers(pid_t pid, uint64_t *go_on) {
    (void)pid, (void)go_on;
    return 0;
}
static inline uint64_t step_caller(pid_t pid) {
    (void)pid;
    return 0;
}
#endif

static inline void step_child(uint32_t n) {
    if (step_now->enter != NULL) step_now->enter(n);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(1);
    STEP_STOP();
    bool right = step_now->run(n);
    atomic_store(step_state, right ? STEP_ANSWERED : STEP_WRONG);
    for (;;) STEP_STOP();
}

static inline void step_wait(pid_t pid) {
    int status = child_await(pid); /* it has stopped */
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
        fail_msg("%s: the child has status %x", step_now->name, status);
}

/* Returns a child before the first instruction of its call. */
static inline pid_t step_begin_child(uint32_t n) {
    if (step_now->prepare != NULL) step_now->prepare(n);
    atomic_store(step_state, STEP_RUNS);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) step_child(n);
    step_alive = pid;
    step_wait(pid);
    return pid;
}

static inline bool step_runs(void) {
    return atomic_load(step_state) == STEP_RUNS;
}

/* Also for a teardown: after a failed expectation a child may be left. */
static inline void step_end_child(void) {
    if (step_alive == 0) return;
    (void)kill(step_alive, SIGKILL);
    (void)waitpid(step_alive, NULL, 0);
    step_alive = 0;
}

/* Returns true if the call had returned. */
static inline bool step_kill(pid_t pid) {
    assert_int_equal(kill(pid, SIGKILL), 0);
    int status = child_await(pid);
    step_alive = 0;
    assert_true(WIFSIGNALED(status));
    if (atomic_load(step_state) == STEP_WRONG) fail_msg("%s: a wrong answer", step_now->name);
    return !step_runs();
}

static inline uint64_t step_where(pid_t pid) {
    return step_registers(pid, NULL);
}

static inline void step_once(pid_t pid) {
    assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
    step_wait(pid);
}

/* ---- breakpoints ---- */

static inline void step_write(pid_t pid, uint64_t at, long code) {
    assert_int_equal(ptrace(PTRACE_POKETEXT, pid, (void *)(uintptr_t)at, (void *)code), 0);
}

/* Returns the code that was there. */
static inline long step_break_at(pid_t pid, uint64_t at) {
    errno = 0;
    long code = ptrace(PTRACE_PEEKTEXT, pid, (void *)(uintptr_t)at, NULL);
    assert_int_equal(errno, 0);
    step_write(pid, at, (code & ~0xffL) | 0xccL);
    return code;
}

static inline void step_continue(pid_t pid) {
    assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
    step_wait(pid);
}

/* ---- by steps ---- */

/* The kernel's code for clocks, in each process. It begins again if the clock has ticked meanwhile, so a child that is
 * stepped on a busy machine might never leave it. */
static struct { uint64_t from, to; } step_clocks;

static inline int step_find_clocks(struct dl_phdr_info *object, size_t size, void *ctx) {
    (void)size, (void)ctx;
    if (object->dlpi_addr != getauxval(AT_SYSINFO_EHDR)) return 0;
    step_clocks.from = object->dlpi_addr;
    step_clocks.to = object->dlpi_addr + object->dlpi_phdr[0].p_memsz;
    return 1;
}

static inline bool step_is_in_clocks(uint64_t at) {
    return step_clocks.from <= at && at < step_clocks.to;
}

/* The next instruction, where one that repeats itself counts as one, and the clocks are part of their call. */
static inline uint64_t step_next(pid_t pid) {
    uint64_t before = step_where(pid), at = before;
    while (at == before && step_runs()) {
        step_once(pid);
        at = step_where(pid);
    }
    if (!step_is_in_clocks(at)) return at;
    at = step_caller(pid);
    long code = step_break_at(pid, at);
    step_continue(pid);
    (void)step_registers(pid, &at);
    step_write(pid, at, code);
    return at;
}

/* Returns the number of instructions. */
static inline uint32_t step_note_way(uint32_t n) {
    static uint64_t at[STEP_MOST];
    uint32_t count = 0;
    pid_t pid = step_begin_child(n);
    for (at[0] = step_where(pid); step_runs(); at[count] = step_next(pid)) assert_true(++count < STEP_MOST);
    assert_true(step_kill(pid));
    if (step_way.count != 0 && step_way.count <= count) return count;
    memcpy(step_way.at, at, count * sizeof *at);
    return step_way.count = count;
}

static inline bool step_kill_after(uint32_t n, uint32_t instructions) {
    pid_t pid = step_begin_child(n);
    for (uint32_t i = 0; i < instructions && step_runs(); i++) (void)step_next(pid);
    return step_kill(pid);
}

/* ---- by a breakpoint ---- */

/* Runs until the instruction has been met `times` times, or the call has returned. */
static inline void step_run_to(pid_t pid, uint64_t at, uint32_t times) {
    for (uint32_t met = 0;;) {
        long code = step_break_at(pid, at);
        step_continue(pid);
        if (!step_runs() || ++met == times) return;
        (void)step_registers(pid, &at);
        step_write(pid, at, code);
        step_once(pid);
        if (!step_runs()) return;
    }
}

static inline bool step_kill_before(uint32_t n, uint32_t k) {
    uint32_t times = 0;
    for (uint32_t i = 0; i <= k; i++) times += step_way.at[i] == step_way.at[k];
    pid_t pid = step_begin_child(n);
    if (k != 0 || times != 1) step_run_to(pid, step_way.at[k], times);
    return step_kill(pid);
}

/* ---- all of a call ---- */

#define STEP_AGAIN 800u /* so far a child is stepped that did not meet its breakpoint */
#define STEP_TRIES 5

static inline bool step_judged(uint32_t n, bool answered) {
    step_now->judge(n, answered);
    return !answered;
}

static inline bool step_is_short(void) {
    return test_scale(100) <= 100;
}

/* With TW_SCALE=1000 the way between two kills is a tenth. */
static inline uint32_t step_stride(const struct step_call *call) {
    uint64_t stride = call->stride * UINT64_C(100) / test_scale(100);
    return stride == 0 ? 1 : (uint32_t)stride;
}

/* n children took so many steps together. */
static inline bool step_needs_way(uint32_t n, uint32_t steps) {
    bool differ = steps != n * step_way.count;
    return n < 2 || (n < STEP_WAYS && (steps < STEP_WAYS_STEPS || differ));
}

/* Kills a child before each instruction (in the short form before one in `stride` of them, from a number that the seed
 * chooses). Returns the number of kills. */
static inline uint32_t step_through(const struct step_call *call) {
    step_now = call;
    (void)dl_iterate_phdr(step_find_clocks, NULL);
    uint32_t stride = step_stride(call), kills = 0, n = 0, tries = 0;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    do {
        step_way.count = 0;
        for (uint32_t steps = 0, from = n; step_needs_way(n - from, steps); n++) {
            steps += step_note_way(n);
            (void)step_judged(n, true);
        }
        for (uint32_t k = (uint32_t)test_prng_below(&prng, stride); k < step_way.count; k += stride) {
            bool killed = step_judged(n, step_kill_before(n, k));
            n++;
            if (!killed && k < STEP_AGAIN && !step_is_short()) {
                killed = step_judged(n, step_kill_after(n, k));
                n++;
            }
            kills += killed;
        }
        /* On a busy machine single steps may take so long that a call looks at the clock. At full speed it does not,
         * and does not come to most of these instructions. */
    } while (kills < step_way.count / stride / 4 && ++tries < STEP_TRIES);
    printf("# %s: %u instructions, %u kills, %u children\n", call->name, step_way.count, kills, n);
    assert_true(kills >= step_way.count / stride / 4);
    return kills;
}

/* ---- keys ---- */

struct step_key {
    uint32_t n, round, which;
    char rest[1024];
};
static struct step_key step_key_text;
static size_t step_key_bytes = 12; /* of this round: at least the three numbers */
static uint32_t step_round;

/* Key `which` of child n. Each round of kills has keys of its own. */
static inline tw_key key_of(uint32_t n, uint32_t which) {
    step_key_text.n = n;
    step_key_text.round = step_round;
    step_key_text.which = which;
    return tw_bytes(&step_key_text, step_key_bytes);
}

/* The parent and its children on one processor: each step then is a switch between two processes, and wakes no other
 * processor. */
static inline void step_on_one_processor(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    int here = sched_getcpu();
    if (here < 0) return;
    CPU_SET(here, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

/* At the start of main(). */
static inline void step_begin(void) {
#if !defined(__x86_64__) || !defined(__GLIBC__)
    test_skip_program("it steps through x86-64 instructions, with the shared engines of glibc: run it there");
#endif
    if (test_is_slow())
        test_skip_program(
            "it steps through the library's own instructions: a build without a sanitizer or valgrind runs this");
    if (test_is_emulated()) test_skip_program("an emulator is not stepped: run it on a machine of this kind");
    step_state = children_pages(sizeof *step_state);
    step_on_one_processor();
}

#endif
