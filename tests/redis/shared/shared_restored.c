/* shared_restored.c -- the leader of a shared engine ends while it restores an empty Redis, and then the first Redis is
 * back: no unit is sent to it twice.
 * Method: a child leads and has sent all to the first Redis. Its last batch is executed, and the reply is lost. Then
 * the address shows an empty Redis, which the child accepts. It is killed while it restores: after an instruction
 * between the three steps of sync/message/state.h, or in the host's function for log lines. The address shows the
 * first Redis again, this process leads, and the sums there are compared with what was added.
 * Covers: sync/message/state.c. */
#include "tests/redis/shared/shared_support.h"
#include "tests/support/proxy.h"

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#define twi_node twi_wire_node /* the engine has these names, too */
#define twi_phase twi_wire_phase
#define TWI_OPEN TWI_WIRE_OPEN
#include "sync/message/state.h"
#undef twi_node
#undef twi_phase
#undef TWI_OPEN

#include <ucontext.h>

#define UNITS INT64_C(1000) /* of each key, before */
#define FEW 20u             /* keys */
/* In these the intent is saved, and the restoration is not done. */
#define FIRST_STEPS 10000u
#define NEXT_STEPS 24000u

static struct notes {
    _Atomic bool has_sent, is_last, has_added, is_logging, is_back;
    _Atomic int64_t added;
    _Atomic uint64_t steps; /* from the breakpoint to the log line, or to the kill */
} * notes;

enum where { AT_STEP, IN_LOG, IN_SLOW_LOG, WHEN_REPORTED };
static enum where where;
static uint64_t step_last; /* the child is killed after so many instructions; UINT64_MAX: in the log line */
static struct redis_server first, other;
static struct proxy *proxy;
static tw_engine *engine;
static tw_family *family;
static struct lost lost;
static pid_t leader;

/* ---- the child --------------------------------------------------------------------------------------------------- */

static void end_here(void) {
    (void)kill(getpid(), SIGKILL);
}

static void end_in_log(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)level, (void)text;
    if (event != TW_EVENT_ROLLBACK || getpid() != leader) return;
    atomic_store(&notes->is_logging, true);
    if (where == IN_SLOW_LOG) test_sleep_ms(10000);
    if (where != WHEN_REPORTED) end_here();
}

#ifdef __x86_64__
#define STEP_FLAG 0x100
static unsigned char *breakpoint, first_byte;
static uintptr_t end_before; /* the child is killed before the first instruction there */

/* The first trap is the breakpoint. From there on the processor traps after each instruction. */
static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    ucontext_t *at = context;
    if (*breakpoint == 0xcc) {
        *breakpoint = first_byte;
        at->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)breakpoint;
        at->uc_mcontext.gregs[REG_EFL] |= STEP_FLAG;
    }
    bool is_there = (uintptr_t)at->uc_mcontext.gregs[REG_RIP] == end_before;
    if (notes->steps++ == step_last || is_there) end_here();
}

static void step_from(uintptr_t function, uintptr_t until) {
    end_before = until;
    struct sigaction how = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &how, NULL);
    if (mprotect((void *)(function & ~(uintptr_t)4095), 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) _exit(4);
    breakpoint = (unsigned char *)function;
    first_byte = *breakpoint;
    *breakpoint = 0xcc;
}
#else
static void step_from(uintptr_t function, uintptr_t until) {
    (void)function, (void)until;
}
#endif

static void turn_for(int64_t ms) {
    for (int64_t end_ms = test_mono_ms() + ms; test_mono_ms() < end_ms; test_sleep_ms(1)) (void)tw_turn(engine);
}

static void add_to_all(int64_t delta) {
    for (uint32_t i = 0; i < FEW; i++) {
        char name[16];
        if (tw_add(family, key_name(i, name), delta, NULL) != TW_OK) _exit(2);
        notes->added += delta;
    }
}

/* A leader that is not killed in time ends by its alarm, which its parent does not expect. */
static void lead(void) {
    leader = getpid();
    if (tw_lead(engine) != TW_OK) _exit(3);
    add_to_all(UNITS);
    while (tw_flush(engine, 1000) != TW_OK) continue;
    if (where == AT_STEP) step_from((uintptr_t)twi_estate_intend, 0);
    atomic_store(&notes->has_sent, true);
    while (!atomic_load(&notes->is_last)) turn_for(1);
    add_to_all(1);
    atomic_store(&notes->has_added, true);
    while (!atomic_load(&notes->is_back)) turn_for(1);
    if (where == WHEN_REPORTED) step_from((uintptr_t)twi_port_keep, (uintptr_t)twi_port_last_error);
    add_to_all(1);
    for (;;) turn_for(1000);
}

/* It takes over from a leader that was killed, and is killed, too. */
static void take_over(void) {
    leader = getpid();
    notes->steps = 0;
    step_from((uintptr_t)twi_estate_inherit, 0);
    if (tw_lead(engine) != TW_OK) _exit(3);
    for (;;) turn_for(1000);
}

/* ---- this process ------------------------------------------------------------------------------------------------ */

static void open_engine(void) {
    tw_options options;
    quick_options(&options, proxy_url(proxy));
    options.on_lost = on_lost;
    options.lost_ctx = &lost;
    options.log_write = end_in_log;
    options.shared = TW_SHARED_BY_FORK;
    options.threads = TW_HOST_DRIVEN;
    assert_status(test_open(&options, &engine), TW_OK);
    family = opened_family(engine, plain_family_options("f", TW_WINDOW_FOREVER, 0));
}

static int64_t sum_in(struct redis_server *server) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < FEW; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "f:k%u", i);
        sum += redis_server_get(server, name);
    }
    return sum;
}
static bool has_all(void *server) {
    return sum_in(server) == notes->added;
}

static bool is_set(void *flag) {
    return atomic_load((_Atomic bool *)flag);
}
static bool is_last_lost(void *unused) {
    (void)unused;
    return proxy_look(proxy).happened[PROXY_LOSE_REPLY] != 0;
}

static void show(struct redis_server *server) {
    proxy_lead_to(proxy, server);
    proxy_cut_all(proxy);
}

/* The last batch arrives, and its reply does not. Then the empty Redis is there. */
static void leave_first(void) {
    assert_true(test_wait(is_set, &notes->has_sent, TEST_PATIENCE_MS));
    proxy_order(proxy, &(struct proxy_order){.fault = PROXY_LOSE_REPLY});
    atomic_store(&notes->is_last, true);
    assert_true(test_wait(is_set, &notes->has_added, TEST_PATIENCE_MS));
    assert_true(test_wait(is_last_lost, NULL, TEST_PATIENCE_MS));
    show(&other);
}

static void expect_nothing_twice(void) {
    assert_status(tw_lead(engine), TW_OK);
    assert_true(test_wait(is_flushed, engine, TEST_PATIENCE_MS));
    int64_t sum = sum_in(&first), uncertain = test_stat_of(engine, uncertain);
    int64_t missing = notes->added - sum;
    if (missing < 0 || missing > uncertain || uncertain > 2 * (int64_t)FEW)
        fail_msg("%lld of %lld units in Redis, %lld uncertain; killed after %llu instructions", (long long)sum,
                 (long long)notes->added, (long long)uncertain, (unsigned long long)notes->steps);
    add_to_all(1);
    assert_true(test_wait(is_flushed, engine, TEST_PATIENCE_MS));
    assert_i64_equal(sum_in(&first), sum + FEW);
}

static void expect_kill(pid_t pid) {
    int status = child_await(pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) fail_msg("a child ended by itself: status %x", status);
}

/* `next`: so many instructions a second child makes; UINT64_MAX: there is none. Returns how many instructions the last
 * child made from its breakpoint on. */
static uint64_t play_both(enum where kills, uint64_t steps, uint64_t next) {
    where = kills;
    step_last = steps;
    notes = children_pages(sizeof *notes);
    redis_server_start(&first, NULL);
    redis_server_start(&other, NULL);
    proxy = proxy_start(&first, test_seed());
    open_engine();
    pid_t pid = child_fork(60);
    if (pid == 0) lead();
    leave_first();
    if (kills == WHEN_REPORTED) {
        assert_true(test_wait(is_set, &notes->is_logging, TEST_PATIENCE_MS));
        assert_true(test_wait(has_all, &other, TEST_PATIENCE_MS));
        show(&first);
        atomic_store(&notes->is_back, true);
        expect_kill(pid);
    } else if (kills == IN_SLOW_LOG) {
        assert_true(test_wait(is_set, &notes->is_logging, TEST_PATIENCE_MS));
        child_kill(pid);
    } else {
        expect_kill(pid);
    }
    step_last = next;
    if (next != UINT64_MAX) {
        pid = child_fork(60);
        if (pid == 0) take_over();
        expect_kill(pid);
    }
    show(&first);
    expect_nothing_twice();
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
    redis_server_destroy(&first);
    redis_server_destroy(&other);
    uint64_t made = notes->steps;
    munmap(notes, sizeof *notes);
    return made;
}

static uint64_t play(enum where kills, uint64_t steps) {
    return play_both(kills, steps, UINT64_MAX);
}

TEST(a_leader_that_is_killed_while_it_logs_sends_nothing_twice) {
    (void)play(IN_LOG, 0);
}

TEST(a_leader_that_is_killed_in_a_slow_log_function_sends_nothing_twice) {
    (void)play(IN_SLOW_LOG, 0);
}

/* Goal: units are uncertain once. Method: the first Redis is back while the child lives. The child leaves the other
 * one, and is killed when it reports that. Of each key, one unit was on its way when it left the first one, and perhaps
 * one more. */
TEST(units_are_uncertain_once) {
#ifdef __x86_64__
    (void)play(WHEN_REPORTED, UINT64_MAX);
#else
    test_leave_out("the processor does not stop after each instruction: x86-64 runs this");
#endif
}

/* Goal: the same after any instruction from the intent to the log line. The first kill finds out how many there are. */
TEST(a_leader_that_is_killed_after_any_instruction_sends_nothing_twice) {
#ifdef __x86_64__
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    uint64_t steps = play(AT_STEP, UINT64_MAX), kills = test_scale(24);
    for (uint64_t i = 0; i < kills; i++) {
        uint64_t from = steps * i / kills, to = steps * (i + 1) / kills;
        (void)play(AT_STEP, from + test_prng_below(&prng, to > from ? to - from : 1));
    }
    print_message("# %llu kills within %llu instructions\n", (unsigned long long)kills, (unsigned long long)steps);
#else
    test_leave_out("the processor does not stop after each instruction: x86-64 runs this");
#endif
}

/* Goal: the same if the next leader is killed, too, after any instruction of the first ones that it makes. */
TEST(the_next_leader_may_be_killed_too) {
#ifdef __x86_64__
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t i = 0, kills = test_scale(16); i < kills; i++)
        (void)play_both(AT_STEP, test_prng_below(&prng, FIRST_STEPS),
                        NEXT_STEPS * i / kills + test_prng_below(&prng, NEXT_STEPS / kills));
#else
    test_leave_out("the processor does not stop after each instruction: x86-64 runs this");
#endif
}

int main(void) {
    redis_server_require();
    test_skip_unshared();
    return test_run();
}
