/* support.h -- what every test program uses: seeds, scale, random numbers, a clock that tests control.
 *
 * A test program is a cmocka program with ONE group (its TAP output has one plan). It includes this header instead of
 * <cmocka.h>. cmocka's skip() must not be used: 1.1.5 reports it as a failure. If a program cannot run here, it calls
 * test_skip_program() at the start of main(). If a test cannot, it calls test_leave_out().
 * Always true: a run can be repeated. TW_SEED=0x... gives the same numbers, TW_SCALE=percent the same amount of
 * work. */
#ifndef TEST_SUPPORT_H
#define TEST_SUPPORT_H

#include "tests/support/run.h" /* TEST() */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "tallywheel.h"

/* assert_int_equal() of cmocka 1.1.5 prints 64-bit numbers in hexadecimal; these print both in decimal. */
#define assert_i64_equal(got, want) test_i64_equal((int64_t)(got), (int64_t)(want), #got, __FILE__, __LINE__)
#define assert_status(got, want) test_status_equal((got), (want), #got, __FILE__, __LINE__)
void test_i64_equal(int64_t got, int64_t want, const char *text, const char *file, int line);
void test_status_equal(tw_status got, tw_status want, const char *text, const char *file, int line);

/* ---- seeds and scale --------------------------------------------------------------------------------------------- */

/* The seed of this run: TW_SEED, else one that follows from TW_SEED_ROUND and the program's name, else unpredictable.
 * Printed once ("# seed 0x..."). */
uint64_t test_seed(void);
/* The seeds for a test that runs with many: first those that once failed (tests/seeds/NAME.txt, one per line, # begins
 * a comment), then `fresh` ones drawn from test_seed(). If TW_SEED is set: only that one. Returns how many, <=
 * count_max. */
size_t test_seeds(const char *name, size_t fresh, uint64_t *seeds, size_t count_max);
/* Prints the line that repeats a failure. */
void test_seed_failed(const char *name, uint64_t seed);
/* From here to test_seed_ends(), that line is printed automatically if the test fails in any way: an assertion, a trap,
 * an abort, a signal that ends a test out of time. */
void test_seed_begins(const char *name, uint64_t seed);
void test_seed_ends(void);

/* `n` times TW_SCALE percent; a tenth of it under ThreadSanitizer, AddressSanitizer or valgrind. At least 1. */
uint64_t test_scale(uint64_t n);
/* True under a sanitizer or valgrind: timings mean little there, and address space is scarce. */
bool test_is_slow(void);
/* True under qemu-user (scripts/check.sh says so). It has no robust lists, no seccomp and no clock that is read without
 * a system call, and it wipes no pages. What needs one of these is left out there. */
bool test_is_emulated(void);
/* From here on the kernel answers this thread's system calls of that number with SECCOMP_RET_…, and those of threads
 * and processes that it begins. Returns false if there is no seccomp here. */
bool test_answer_call(long number, uint32_t answer);

/* Ends the program as skipped, before any test ran: TAP "1..0 # SKIP reason", else exit status 77. A reason, here and
 * below, is "WHAT is missing: HOW to get it" (scripts/layers.sh). */
_Noreturn void test_skip_program(const char *reason);

#define TEST_NO_FORK_HERE "a sanitizer does not survive the fork of several threads: a build without one runs this"

/* Under ThreadSanitizer: test_skip_program(). For long programs of one thread, which has nobody to race with. */
void test_skip_alone(void);

/* Where processes cannot share an engine, or a child of several threads does not live: test_skip_program(). */
void test_skip_unshared(void);

/* Reports that this test, or a part of it, does not run here, and why. scripts/count_tests.py counts it as skipped,
 * never as passed. The caller returns, or continues with the rest. The line has the name of the test: a function shared
 * by several tests passes the name on. */
#define test_leave_out(why) test_left_out(__func__, (why))
void test_left_out(const char *test, const char *why);
/* What qemu-user does not have. If it is missing, the test is left out, and returns. A child shares the slots of its
 * parent's threads where no pages are wiped, so no child may call an engine there. */
#define test_misses_wiped_pages() \
    (test_is_emulated() && (test_leave_out("qemu-user wipes no pages in a child: run it on an ARM64 machine"), true))
#define test_misses_robust_lists() \
    (test_is_emulated() && (test_leave_out("qemu-user has no robust lists: run it on an ARM64 machine"), true))

/* Reads a file of the source, such as "docs/KEYS.md", and adds a NUL; fails if it cannot be read or has no room. */
void test_read_source(const char *name, char *text, size_t size);

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* xoshiro-like state filled by splitmix64. Not shared between threads: each gets its own, seeded from seed ^ index. */
struct test_prng {
    uint64_t state[4];
};

void test_prng_seed(struct test_prng *prng, uint64_t seed);
uint64_t test_prng_next(struct test_prng *prng);
uint64_t test_prng_below(struct test_prng *prng, uint64_t bound);             /* 0 .. bound - 1; bound > 0 */
int64_t test_prng_between(struct test_prng *prng, int64_t low, int64_t high); /* low .. high, both included */
bool test_prng_chance(struct test_prng *prng, uint32_t numerator, uint32_t denominator);
int64_t test_prng_pick(struct test_prng *prng, const int64_t *values, size_t count);
/* One of the values behind the first argument. */
#define TEST_PRNG_PICK(prng, ...) \
    test_prng_pick((prng), (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* ---- a clock that tests control
 * ------------------------------------------------------------------------------------ */

struct fake_clock {
    _Atomic int64_t wall_ns;
    _Atomic int64_t mono_ns;
    _Atomic int64_t goes_since_ns; /* the system's monotonic clock at fake_clock_go(); 0: this clock stands */
};

/* Both clocks: wall at `wall_ms`, monotonic at 1000 s. */
void fake_clock_init(struct fake_clock *clock, int64_t wall_ms);
/* tw_options.clock_now_ns; ctx is the fake_clock. */
int64_t fake_clock_now_ns(void *ctx, int kind);
/* Sets options->clock_now_ns and clock_ctx. */
void fake_clock_install(struct fake_clock *clock, tw_options *options);
void fake_clock_advance_ms(struct fake_clock *clock, int64_t ms);   /* time passes: both clocks */
void fake_clock_step_wall_ms(struct fake_clock *clock, int64_t ms); /* sets the wall clock, forward or back */
int64_t fake_clock_wall_ms(struct fake_clock *clock);
/* From here on time passes by itself, as on the system's clock. For the end of a test in which other threads run: what
 * they wait for by this clock would never come if it stood. */
void fake_clock_go(struct fake_clock *clock);

/* ---- resources of the process
 * -------------------------------------------------------------------------------------- */

int64_t test_rss_bytes(void);     /* resident memory of this process */
int64_t test_fd_count(void);      /* open file descriptors */
int64_t test_thread_count(void);  /* threads of this process */
bool test_is_alone(void *unused); /* for test_wait(): no thread is left but the one that asks */
/* Waits until thread `*thread` of this process, which writes its number there when it begins, has slept for 50 ms
 * without a break: it is inside a call that waits. Fails after TEST_PATIENCE_MS. */
void test_await_asleep(_Atomic pid_t *thread);
pid_t test_own_thread(void); /* its number */
int64_t test_mono_ms(void);  /* the system's monotonic clock, for deadlines of tests */
void test_sleep_ms(int64_t ms);
/* fork(), and the child ends with the thread that made it: a test that is killed leaves nobody behind that works on. */
pid_t test_fork(void);
/* What a child writes into the pipe `ends` until it ends, with a NUL behind it. Returns the status of waitpid(). */
int test_hear_child(pid_t child, const int ends[2], char *said, size_t size);
/* How long this thread was ready to run while no processor was free, since it began. A time limit that a test checks is
 * about what the code waits for, and not about who else works on the machine: subtract this. 0 where Linux does not
 * tell. */
int64_t test_starved_ms(void);
/* Calls `is_true(ctx)` every millisecond until it returns true or the time is over; returns its last value. A step
 * counts as 10 ms at most, so the patience is not used up while the process gets no processor; it ends after ten times
 * timeout_ms in any case. */
bool test_wait(bool (*is_true)(void *ctx), void *ctx, int64_t timeout_ms);
/* How long a test waits for what must happen: a flush, a close, a condition. It ends a test that hangs. It is no bound
 * of the library's, so a crowded machine may use it up to the end. */
#define TEST_PATIENCE_MS 60000

/* tw_stats.memory_bytes of an engine: what its counting memory holds now. */
int64_t test_memory_bytes(tw_engine *engine);
int64_t test_stat(tw_engine *engine, size_t offset);
#define test_stat_of(engine, field) test_stat((engine), offsetof(tw_stats, field))
/* A turn of a host-driven engine on a fake clock, and those that it requests at once. Fails if they are more. */
void test_turn(tw_engine *engine, int turns_max);
#define TEST_TURNS_MAX 200 /* of the engines of simulations */

#endif
