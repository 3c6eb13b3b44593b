/* takeover.c -- the leader of a shared engine is killed in the middle of its turns, again and again, also while it
 * makes the state of a killed leader whole. Others count on.
 * Method: this process counts. A child leads, and ends itself by SIGKILL before one instruction of a turn, which is
 * drawn from all that were met in turns. Some children step through their turns one instruction after the other, and
 * note them. The next child takes over. The hook adds up in memory that all share. At the end a leader that is not
 * killed has to end all windows.
 * Covers: engine/turn/recover.c, engine/turn/recover.c, engine/core/processes.c. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include "engine/core/family.h"
#include "engine/count/dirty.h"
#include "engine/count/lookup.h"
#include "engine/turn/turn.h"
#include "engine/turn/turn_check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define WINDOW_MS 1000
#define FASTER 20 /* engine time runs by so much: a window lasts 50 ms */
#define WINDOWS 65536u
#define LIMIT 40
#define KEYS 64u
#define NOTED_TURNS 4          /* that a child steps through */
#define NOTED_EVERY 500        /* one child in so many steps */
#define LEFT_BYTES (32u << 10) /* of the endless family */
#define LEAK_BYTES 1024u       /* in a kill, on average */
#define TEXT_BYTES (8u << 20)

#ifdef __x86_64__
extern char __executable_start[], etext[];
#endif

static struct shared {
    _Atomic int64_t told[WINDOWS];   /* by the hook, of each window */
    _Atomic uint32_t calls[WINDOWS]; /* of the hook */
    _Atomic uint64_t kills_in_turn, turns;
    _Atomic int64_t now_ns;
    _Atomic bool steps; /* a child steps */
    uint32_t met;
    bool is_met[TEXT_BYTES]; /* an instruction that begins there was met in a turn */
} * shared;
static tw_engine *engine;
static tw_family *pages, *rate, *totals;
static int64_t origin_ms, counted[WINDOWS], sold[WINDOWS];

static uint32_t window_of(int64_t start_ms) {
    return (uint32_t)((start_ms - origin_ms) / WINDOW_MS) % WINDOWS;
}

static bool add_count(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->local;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)end_ms, (void)flags;
    int64_t sum = 0;
    if (tw_each(family, start_ms, add_count, &sum) != TW_OK) return false;
    atomic_store(&shared->told[window_of(start_ms)], sum);
    atomic_fetch_add(&shared->calls[window_of(start_ms)], 1);
    return true;
}

static tw_family *open_family(const char *name, int64_t history_ms, bool hook) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.window = history_ms == 0 ? TW_WINDOW_FOREVER : TW_WINDOW_ALIGNED;
    if (history_ms != 0) options.window_ms = WINDOW_MS;
    if (history_ms != 0) options.history_ms = history_ms;
    if (hook) options.on_window_closed = on_closed;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static int64_t fast_clock(void *ctx, int kind) {
    return (kind == TW_CLOCK_WALL ? INT64_C(1700000000000000000) : INT64_C(1000000000000)) + shared->now_ns;
}

/* Engine time stops while a child steps, because a step is a thousand times slower than an instruction. */
static void move_time(void) {
    static int64_t before_ms;
    int64_t now_ms = test_mono_ms(), passed_ms = now_ms - before_ms;
    before_ms = now_ms;
    if (!shared->steps) shared->now_ns += (passed_ms < 20 ? passed_ms : 20) * FASTER * 1000000;
}

static void open_all(void) {
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(256) << 20;
    options.shared = TW_SHARED_BY_FORK;
    options.threads = TW_HOST_DRIVEN;
#ifdef __x86_64__
    assert_true((uint64_t)(etext - __executable_start) <= TEXT_BYTES);
#endif
    shared = children_pages(sizeof *shared);
    assert_status(tw_open(&options, &engine), TW_OK);
    memset((void *)&engine->clock, 0, sizeof engine->clock);
    twi_clock_init(&engine->clock, fast_clock, NULL, false);
    pages = open_family("pages", 4 * WINDOW_MS, true);
    rate = open_family("rate", TW_NONE, false);
    totals = open_family("totals", 0, false);
    memset(counted, 0, sizeof counted);
    memset(sold, 0, sizeof sold);
    origin_ms = twi_clock_read(&engine->clock) / WINDOW_MS * WINDOW_MS;
}

/* ---- the leader, which ends itself ------------------------------------------------------------------------------- */

#ifdef __x86_64__
/* The processor raises SIGTRAP after each instruction while this flag is set. */
#define STEP_FLAG 0x100

static void note_step(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    const ucontext_t *at = context;
    uint64_t offset = (uint64_t)at->uc_mcontext.gregs[REG_RIP] - (uint64_t)(uintptr_t)__executable_start;
    if (offset < (uint64_t)(etext - __executable_start)) shared->is_met[offset] = true;
}

static void on_signal(int signal_number, void (*action)(int, siginfo_t *, void *)) {
    struct sigaction how = {.sa_sigaction = action, .sa_flags = SA_SIGINFO};
    sigaction(signal_number, &how, NULL);
}

static void set_steps(bool on) {
    if (on) on_signal(SIGTRAP, note_step);
    __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; andq %0, (%%rsp); orq %1, (%%rsp); popfq; lea 128(%%rsp), %%rsp"
                     :
                     : "r"(~(uint64_t)STEP_FLAG), "r"((uint64_t)(on ? STEP_FLAG : 0))
                     : "memory", "cc");
}

static void die(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    if (twi_turn_is_owned(engine)) atomic_fetch_add(&shared->kills_in_turn, 1);
    (void)kill(getpid(), SIGKILL);
}

/* Ends this process before the instruction there; 0 means nowhere. Its text is its own. */
static void die_at(uint64_t offset) {
    if (offset == 0) return;
    unsigned char *at = (unsigned char *)__executable_start + offset;
    uintptr_t page = (uintptr_t)at & ~(uintptr_t)4095;
    on_signal(SIGTRAP, die);
    if (mprotect((void *)page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) _exit(4);
    *at = 0xcc;
}
#else /* random times alone */
static void set_steps(bool on) {
}
static void die_at(uint64_t offset) {
}
#endif

static void make_turns(uint32_t count) {
    for (uint32_t turn = 0; turn < count; turn++) {
        if (tw_turn(engine) != TW_OK) _exit(5);
        atomic_fetch_add(&shared->turns, 1);
        usleep(1000);
    }
}

/* Steps through the takeover, and through turns that have windows to end. */
static void note_way(uint64_t turns) {
    bool leads = true;
    for (uint64_t i = 0; leads && i < turns; i++) {
        shared->steps = true;
        set_steps(true);
        leads = (i != 0 || tw_lead(engine) == TW_OK) && tw_turn(engine) == TW_OK;
        set_steps(false);
        shared->steps = false;
        usleep(i == 0 ? 60000 : 2000);
    }
    (void)kill(getpid(), leads ? SIGKILL : SIGABRT);
}

/* The kill is by a breakpoint, or, if this leader does not come there, by a timer. */
static void lead_and_die(uint64_t offset, uint32_t whole_turns) {
    struct itimerval timer = {.it_value.tv_usec = 20000 + (suseconds_t)((uint64_t)getpid() * 7919 % 20000)};
    if (whole_turns == 0) die_at(offset);
    (void)signal(SIGALRM, SIG_DFL); /* not the watchdog's: no hang is to be reported */
    setitimer(ITIMER_REAL, &timer, NULL);
    if (tw_lead(engine) != TW_OK) _exit(3);
    make_turns(whole_turns);
    if (whole_turns != 0) die_at(offset);
    for (;;) make_turns(1);
}

/* ---- this process counts ----------------------------------------------------------------------------------------- */

static void request(const uint32_t *key) {
    struct twi_call call;
    struct twi_place place;
    if (twi_call_begin(&call, pages, tw_bytes(key, sizeof *key)) != TW_OK) return;
    if (twi_call_now(&call) == TW_OK && twi_place_find(&call, &place))
        twi_contention_request(engine, place.generation, place.cell, TWI_NO_LIMIT);
    twi_call_end(&call);
}

static void count_some(struct test_prng *prng) {
    move_time();
    for (int i = 0; i < 40; i++) {
        uint32_t key = (uint32_t)test_prng_below(prng, KEYS);
        tw_verdict verdict;
        if (tw_acquire(rate, tw_str("rate"), 1, LIMIT, &verdict) == TW_OK) sold[window_of(verdict.window_start_ms)]++;
        assert_status(tw_acquire(pages, tw_bytes(&key, sizeof key), 1, 1000000, &verdict), TW_OK);
        counted[window_of(verdict.window_start_ms)]++;
        assert_status(tw_add(totals, tw_bytes(&key, sizeof key), 1, NULL), TW_OK);
        if (i % 16 == 0) request(&key);
    }
}

static void await_end_of(pid_t pid, struct test_prng *prng) {
    int status;
    for (pid_t ended = 0; ended != pid;) {
        count_some(prng);
        usleep(500);
        ended = waitpid(pid, &status, WNOHANG);
        assert_true(ended >= 0);
    }
    if (!WIFSIGNALED(status) || (WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGALRM))
        fail_msg("a leader ended by %d, not by its kill", status);
}

/* Draws an instruction. Each has the same chance, so a turn's rare steps are met as often as the others. */
static uint64_t draw(struct test_prng *prng) {
    static uint32_t offsets[TEXT_BYTES / 2];
    uint32_t count = 0;
    for (uint32_t i = 0; i < TEXT_BYTES; i++)
        if (shared->is_met[i]) offsets[count++] = i;
    shared->met = count;
    return count != 0 ? offsets[test_prng_below(prng, count)] : 0;
}

static pid_t begin_leader(struct test_prng *prng, bool notes) {
    uint64_t offset = draw(prng), turns = test_prng_below(prng, 6);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0) return pid;
    if (notes) note_way(NOTED_TURNS);
    lead_and_die(offset, turns < 2 ? 0 : (uint32_t)turns);
    _exit(2);
}

/* A leader that is not killed ends all windows, and gives their memory back. */
static void expect_all_to_end(void) {
    tw_stats stats;
    assert_status(tw_lead(engine), TW_OK);
    for (int i = 0; i < 600; i++) {
        move_time();
        assert_status(tw_turn(engine), TW_OK);
        assert_status(tw_stats_read(engine, &stats), TW_OK);
        if (stats.generations == 1 && engine->unlinked.generations == 0) break;
        usleep(5000);
    }
    assert_i64_equal(stats.generations, 1);
    assert_int_equal(pages->turn.held + rate->turn.held, 0);
    assert_true(twi_turn_take(engine));
    assert_true(twi_turn_is_valid(engine));
    twi_turn_leave(engine);
    for (uint32_t i = 0; i < WINDOWS; i++) {
        if (counted[i] != 0 && atomic_load(&shared->calls[i]) == 0)
            fail_msg("the hook of window %u was never called", i);
        assert_i64_equal(atomic_load(&shared->told[i]), counted[i]);
        assert_true(sold[i] <= LIMIT);
    }
}

static void check_totals(void) {
    int64_t sum = 0, all = 0;
    assert_status(tw_each(totals, 0, add_count, &sum), TW_OK);
    for (uint32_t i = 0; i < WINDOWS; i++) all += counted[i];
    assert_i64_equal(sum, all);
}

static void kill_leaders(uint64_t kills) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    open_all();
    for (uint64_t i = 0; i < kills; i++) {
        if (i % NOTED_EVERY == 10) await_end_of(begin_leader(&prng, true), &prng);
        await_end_of(begin_leader(&prng, false), &prng);
    }
    expect_all_to_end();
    check_totals();
    tw_stats stats;
    assert_status(tw_stats_read(engine, &stats), TW_OK);
    print_message("# %llu kills, %llu inside a turn, %u instructions; %llu whole turns; %lld bytes in use\n",
                  (unsigned long long)kills, (unsigned long long)atomic_load(&shared->kills_in_turn), shared->met,
                  (unsigned long long)atomic_load(&shared->turns), (long long)stats.memory_bytes);
    /* What a leader has in its hands leaks: some hundred bytes as a rule, a segment at most. */
    assert_true(stats.memory_bytes <= (int64_t)(TWI_SEGMENT_BYTES + LEFT_BYTES + kills * LEAK_BYTES));
    assert_status(tw_close(engine, 1000), TW_OK);
    munmap(shared, sizeof *shared);
}

/* Goal: wherever in a turn a leader is killed, or in taking over from one that was killed: all windows end, their hooks
 * are called with all that was counted, no limit is passed, and nothing is in use that nobody gives back. */
TEST(a_leader_killed_anywhere_in_a_turn_leaves_nothing_stuck) {
    kill_leaders(test_scale(100));
}

int main(void) {
    test_skip_unshared();
    return test_run();
}
