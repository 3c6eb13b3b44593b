/* support.c -- see support.h. The tests' own access to the system clock, /proc and the environment.
 * Always true: it uses the library only through public calls. */
#include "tests/support/support.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_STEP_MS_MAX 10 /* of test_wait() */
#define WAIT_FACTOR_MAX 10

/* ---- comparing --------------------------------------------------------------------------------------------------- */

void test_i64_equal(int64_t got, int64_t want, const char *text, const char *file, int line) {
    if (got == want) return;
    print_error("%s is %" PRId64 ", should be %" PRId64 "\n", text, got, want);
    _fail(file, line);
}

/* ---- seeds and scale --------------------------------------------------------------------------------------------- */

static bool seed_of_environment(uint64_t *seed) {
    const char *text = getenv("TW_SEED");
    if (text == NULL || *text == '\0') return false;
    char *end;
    *seed = strtoull(text, &end, 0);
    if (*end != '\0') {
        fprintf(stderr, "TW_SEED=%s is no number\n", text);
        exit(2);
    }
    return true;
}

/* The seed of this program in a round: FNV-1a over both. */
static bool seed_of_round(uint64_t *seed) {
    const char *round = getenv("TW_SEED_ROUND");
    if (round == NULL || *round == '\0') return false;
    *seed = 0xcbf29ce484222325u;
    for (const char *c = round; *c != '\0'; c++) *seed = (*seed ^ (uint8_t)*c) * 0x100000001b3u;
    for (const char *c = program_invocation_short_name; *c != '\0'; c++) *seed = (*seed ^ (uint8_t)*c) * 0x100000001b3u;
    return true;
}

static uint64_t the_seed;

static void draw_seed(void) {
    if (!seed_of_environment(&the_seed) && !seed_of_round(&the_seed) &&
        getrandom(&the_seed, sizeof the_seed, 0) != (ssize_t)sizeof the_seed)
        the_seed = 1;
    printf("# seed 0x%" PRIx64 "\n", the_seed);
    fflush(stdout);
}

uint64_t test_seed(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, draw_seed);
    return the_seed;
}

static const char *tests_folder(void) {
    const char *tests = getenv("TW_TESTS");
    return tests != NULL ? tests : TEST_SOURCE_DIR;
}

void test_read_source(const char *name, char *text, size_t size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/../%s", tests_folder(), name);
    FILE *file = fopen(path, "r");
    if (file == NULL) fail_msg("%s cannot be read", path);
    size_t got = file != NULL ? fread(text, 1, size, file) : size;
    if (file != NULL) fclose(file);
    assert_true(got < size);
    text[got] = '\0';
}

static FILE *seed_file_open(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/seeds/%s.txt", tests_folder(), name);
    return fopen(path, "r");
}

static size_t seeds_that_failed(const char *name, uint64_t *seeds, size_t count_max) {
    FILE *file = seed_file_open(name);
    if (file == NULL) return 0;
    char line[256];
    size_t count = 0;
    while (count < count_max && fgets(line, sizeof line, file) != NULL) {
        char *end;
        uint64_t seed = strtoull(line, &end, 0);
        if (end != line) seeds[count++] = seed;
    }
    fclose(file);
    return count;
}

size_t test_seeds(const char *name, size_t fresh, uint64_t *seeds, size_t count_max) {
    uint64_t seed = test_seed();
    if (seed_of_environment(&seed)) {
        if (count_max > 0) seeds[0] = seed;
        return count_max > 0 ? 1 : 0;
    }
    size_t count = seeds_that_failed(name, seeds, count_max);
    struct test_prng prng;
    test_prng_seed(&prng, seed);
    for (size_t index = 0; index < fresh && count < count_max; index++) seeds[count++] = test_prng_next(&prng);
    return count;
}

/* The line for the current seed, made in advance, so that a signal handler only has to write it. */
static char seed_line[256];
static volatile sig_atomic_t seed_runs;
static const int deadly[] = {SIGILL, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGTERM, SIGALRM};
#define DEADLY (sizeof deadly / sizeof *deadly)
static struct sigaction before_us[DEADLY];

static void seed_line_make(const char *name, uint64_t seed) {
    snprintf(seed_line, sizeof seed_line,
             "# %s failed; to repeat: TW_SEED=0x%" PRIx64 "; then keep it in tests/seeds/%s.txt\n", name, seed, name);
}

static void seed_line_print(void) {
    if (!seed_runs) return;
    seed_runs = 0;
    printf("%s", seed_line);
    fflush(stdout);
}

void test_seed_failed(const char *name, uint64_t seed) {
    seed_line_make(name, seed);
    seed_runs = 1;
    seed_line_print();
}

/* Writes the line and leaves the rest to the earlier handler. The signal comes again, and goes to it. */
static void seed_died(int signal_number) {
    if (seed_runs) (void)!write(STDOUT_FILENO, seed_line, strlen(seed_line));
    seed_runs = 0;
    for (size_t i = 0; i < DEADLY; i++) sigaction(deadly[i], &before_us[i], NULL);
    /* the other signals come again by themselves */
    if (signal_number == SIGTERM || signal_number == SIGALRM) raise(signal_number);
}

void test_seed_begins(const char *name, uint64_t seed) {
    static bool is_known;
    seed_line_make(name, seed);
    seed_runs = 1;
    if (!is_known) atexit(seed_line_print);
    is_known = true;
    fflush(stdout); /* so that earlier output comes before it */
    struct sigaction now, ours = {.sa_handler = seed_died};
    for (size_t i = 0; i < DEADLY; i++) /* cmocka installs its own handlers for each test */
        if (sigaction(deadly[i], NULL, &now) == 0 && now.sa_handler != seed_died)
            sigaction(deadly[i], &ours, &before_us[i]);
}

void test_seed_ends(void) {
    seed_runs = 0;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define BUILT_SLOW true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define BUILT_SLOW true
#endif
#endif
#ifndef BUILT_SLOW
#define BUILT_SLOW false
#endif

bool test_is_emulated(void) {
    return getenv("TW_EMULATED") != NULL;
}

bool test_answer_call(long number, uint32_t answer) {
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, answer), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool test_is_slow(void) {
    /* valgrind preloads its own libraries into the program that it runs. */
    const char *preload = getenv("LD_PRELOAD");
    return BUILT_SLOW || (preload != NULL && strstr(preload, "vgpreload") != NULL);
}

uint64_t test_scale(uint64_t n) {
    const char *text = getenv("TW_SCALE");
    uint64_t percent = text != NULL && *text != '\0' ? strtoull(text, NULL, 10) : 100;
    uint64_t scaled = n * percent / 100;
    if (test_is_slow()) scaled /= 10;
    return scaled > 0 ? scaled : 1;
}

void test_skip_program(const char *reason) {
    const char *output = getenv("CMOCKA_MESSAGE_OUTPUT");
    bool tap = output != NULL && strcasecmp(output, "TAP") == 0;
    printf(tap ? "1..0 # SKIP %s\n" : "skipped: %s\n", reason);
    fflush(stdout);
    exit(tap ? 0 : 77);
}

void test_skip_alone(void) {
#ifdef __SANITIZE_THREAD__
    test_skip_program("one thread, which has nobody to race with: a build without ThreadSanitizer runs this");
#endif
}

void test_skip_unshared(void) {
    if (test_is_slow()) test_skip_program(TEST_NO_FORK_HERE);
    if (test_is_emulated()) test_skip_program("qemu-user has no robust lists: run it on an ARM64 machine");
#ifndef __GLIBC__
    test_skip_program("shared engines need glibc: run it in a build with glibc");
#endif
}

void test_left_out(const char *test, const char *why) {
    printf("# left out: %s: %s\n", test, why);
    fflush(stdout);
}

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

static uint64_t splitmix_next(uint64_t *state) {
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

void test_prng_seed(struct test_prng *prng, uint64_t seed) {
    for (size_t index = 0; index < 4; index++) prng->state[index] = splitmix_next(&seed);
}

static uint64_t rotate_left(uint64_t value, int bits) {
    return value << bits | value >> (64 - bits);
}

/* xoshiro256**: a long period, and every bit is good enough for a remainder. */
uint64_t test_prng_next(struct test_prng *prng) {
    uint64_t *state = prng->state;
    uint64_t result = rotate_left(state[1] * 5, 7) * 9, shifted = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotate_left(state[3], 45);
    return result;
}

uint64_t test_prng_below(struct test_prng *prng, uint64_t bound) {
    return test_prng_next(prng) % bound;
}

int64_t test_prng_between(struct test_prng *prng, int64_t low, int64_t high) {
    uint64_t span = (uint64_t)high - (uint64_t)low + 1;
    uint64_t drawn = test_prng_next(prng);
    return (int64_t)((uint64_t)low + (span == 0 ? drawn : drawn % span));
}

bool test_prng_chance(struct test_prng *prng, uint32_t numerator, uint32_t denominator) {
    return test_prng_below(prng, denominator) < numerator;
}

int64_t test_prng_pick(struct test_prng *prng, const int64_t *values, size_t count) {
    return values[test_prng_below(prng, count)];
}

/* ---- a clock that tests control
 * -------------------------------------------------------------------------------------- */

void fake_clock_init(struct fake_clock *clock, int64_t wall_ms) {
    atomic_init(&clock->wall_ns, wall_ms * 1000000);
    atomic_init(&clock->mono_ns, INT64_C(1000) * 1000000000);
    atomic_init(&clock->goes_since_ns, 0);
}

static int64_t system_mono_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t fake_clock_now_ns(void *ctx, int kind) {
    struct fake_clock *clock = ctx;
    int64_t since_ns = atomic_load(&clock->goes_since_ns), gone_ns = since_ns == 0 ? 0 : system_mono_ns() - since_ns;
    return gone_ns + (kind == TW_CLOCK_WALL ? atomic_load(&clock->wall_ns) : atomic_load(&clock->mono_ns));
}

void fake_clock_install(struct fake_clock *clock, tw_options *options) {
    options->clock_now_ns = fake_clock_now_ns;
    options->clock_ctx = clock;
}

void fake_clock_advance_ms(struct fake_clock *clock, int64_t ms) {
    atomic_fetch_add(&clock->mono_ns, ms * 1000000);
    atomic_fetch_add(&clock->wall_ns, ms * 1000000);
}

void fake_clock_step_wall_ms(struct fake_clock *clock, int64_t ms) {
    atomic_fetch_add(&clock->wall_ns, ms * 1000000);
}

int64_t fake_clock_wall_ms(struct fake_clock *clock) {
    return fake_clock_now_ns(clock, TW_CLOCK_WALL) / 1000000;
}

void fake_clock_go(struct fake_clock *clock) {
    int64_t stands = 0;
    atomic_compare_exchange_strong(&clock->goes_since_ns, &stands, system_mono_ns());
}

/* ---- resources of the process
 * ---------------------------------------------------------------------------------------- */

static int64_t entries_of(const char *folder) {
    DIR *dir = opendir(folder);
    if (dir == NULL) return -1;
    int64_t count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

int64_t test_rss_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return -1;
    long long total = 0, resident = 0;
    int read = fscanf(file, "%lld %lld", &total, &resident);
    fclose(file);
    return read == 2 ? resident * sysconf(_SC_PAGESIZE) : -1;
}

int64_t test_fd_count(void) {
    return entries_of("/proc/self/fd") - 1; /* without the folder's own */
}

int64_t test_thread_count(void) {
    return entries_of("/proc/self/task");
}

#ifdef __SANITIZE_THREAD__ /* it has a thread of its own, from the first on, and one more in a forked child */
static pid_t begun_as;
__attribute__((constructor)) static void note_process(void) {
    begun_as = getpid();
}
#define THREADS_OF_OTHERS (getpid() == begun_as ? 1 : 2)
#else
#define THREADS_OF_OTHERS 0
#endif

bool test_is_alone(void *unused) {
    return test_thread_count() <= 1 + THREADS_OF_OTHERS;
}

int64_t test_mono_ms(void) {
    return system_mono_ns() / 1000000;
}

void test_sleep_ms(int64_t ms) {
    struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&rest, &rest) != 0) continue;
}

pid_t test_fork(void) {
    pid_t parent = getpid(), child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* the parent died before PR_SET_PDEATHSIG was set */
    return 0;
}

int test_hear_child(pid_t child, const int ends[2], char *said, size_t size) {
    size_t used = 0;
    int status = 0;
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], said + used, size - 1 - used)) > 0;) used += (size_t)got;
    said[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

int64_t test_starved_ms(void) {
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (file == NULL) return 0;
    long long ran_ns, starved_ns = 0;
    int read = fscanf(file, "%lld %lld", &ran_ns, &starved_ns);
    fclose(file);
    return read == 2 ? starved_ns / 1000000 : 0;
}

bool test_wait(bool (*is_true)(void *ctx), void *ctx, int64_t timeout_ms) {
    int64_t begun_ms = test_mono_ms(), last_ms = begun_ms, waited_ms = 0;
    for (;;) {
        bool is_over = waited_ms >= timeout_ms || last_ms - begun_ms >= WAIT_FACTOR_MAX * timeout_ms;
        if (is_true(ctx)) return true; /* also after the last nap, however long it was */
        if (is_over) return false;
        test_sleep_ms(1);
        int64_t now_ms = test_mono_ms(), step_ms = now_ms - last_ms;
        waited_ms += step_ms < WAIT_STEP_MS_MAX ? step_ms : WAIT_STEP_MS_MAX;
        last_ms = now_ms;
    }
}

/* ---- a thread that waits ----------------------------------------------------------------------------------------- */

pid_t test_own_thread(void) {
    return (pid_t)syscall(SYS_gettid);
}

/* The state of proc_pid_stat(5). */
static bool is_asleep(pid_t thread) {
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    char *read = fgets(text, sizeof text, file);
    fclose(file);
    char *after_name = read == NULL ? NULL : strrchr(text, ')');
    return after_name != NULL && after_name[1] == ' ' && after_name[2] == 'S';
}

static bool sleeps_on(void *thread) {
    pid_t number = atomic_load((_Atomic pid_t *)thread);
    for (int look = 0; look < 10; look++) {
        if (number == 0 || !is_asleep(number)) return false;
        test_sleep_ms(5);
    }
    return true;
}

void test_await_asleep(_Atomic pid_t *thread) {
    assert_true(test_wait(sleeps_on, thread, TEST_PATIENCE_MS));
}
