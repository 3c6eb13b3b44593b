/* fails.c -- faults 45 and 47: each allocation and each system call of the engine fails in turn. And P9: the calls of
 * an existing key make no system call, take no lock and allocate nothing.
 * Method: this program defines malloc and its relatives, mmap, madvise, eventfd, pthread_create and getrandom itself,
 * in front of libc's. They count what is allocated, and the n-th armed call fails. A seccomp filter on the adding
 * thread kills the process at any system call. Skipped under sanitizers, which define the same functions.
 * Always true: only the thread that armed itself meets failures. */
#include "tests/support/fake_driver.h"

#include "engine/port/messages.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in front of libc -------------------------------------------------------------------------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

static _Thread_local int64_t fail_in = INT64_MAX; /* this many calls from now, one fails */
static _Thread_local bool forbidden;              /* P9: none of these may be called */
static _Atomic int64_t blocks, mapped_bytes;      /* held */
static _Thread_local bool has_failed;

static bool fails(void) {
    if (forbidden) __builtin_trap();
    if (fail_in == INT64_MAX || --fail_in > 0) return false;
    fail_in = INT64_MAX;
    has_failed = true;
    return true;
}

static void *held(void *block) {
    if (block != NULL) atomic_fetch_add(&blocks, 1);
    return block;
}

void *malloc(size_t size) {
    return fails() ? (errno = ENOMEM, NULL) : held(__libc_malloc(size));
}
void *calloc(size_t count, size_t size) {
    return fails() ? (errno = ENOMEM, NULL) : held(__libc_calloc(count, size));
}
void *aligned_alloc(size_t alignment, size_t size) {
    return fails() ? (errno = ENOMEM, NULL) : held(__libc_memalign(alignment, size));
}
void *realloc(void *old, size_t size) {
    if (fails()) return errno = ENOMEM, NULL;
    void *block = __libc_realloc(old, size);
    return old == NULL ? held(block) : block;
}
void free(void *block) {
    if (block != NULL) atomic_fetch_sub(&blocks, 1);
    __libc_free(block);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (fails()) return errno = ENOMEM, MAP_FAILED;
    long map = syscall(SYS_mmap, at, size, protection, flags, fd, offset);
    if (map != -1) atomic_fetch_add(&mapped_bytes, (int64_t)size);
    return (void *)map;
}
int munmap(void *at, size_t size) {
    atomic_fetch_sub(&mapped_bytes, (int64_t)size);
    return (int)syscall(SYS_munmap, at, size);
}
int madvise(void *at, size_t size, int advice) {
    return fails() ? (errno = EINVAL, -1) : (int)syscall(SYS_madvise, at, size, advice);
}
int eventfd(unsigned value, int flags) {
    return fails() ? (errno = EMFILE, -1) : (int)syscall(SYS_eventfd2, value, flags);
}
ssize_t getrandom(void *out, size_t size, unsigned flags) {
    return fails() ? (errno = ENOSYS, -1) : syscall(SYS_getrandom, out, size, flags);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (fails()) return EAGAIN;
    int64_t after = fail_in;
    fail_in = INT64_MAX; /* libc's own memory for a thread: not counted, and not freed at once */
    int64_t before = atomic_load(&blocks);
    int answer = real(thread, attributes, run, arg);
    atomic_store(&blocks, before);
    fail_in = after;
    return answer;
}
int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static int (*real)(pthread_mutex_t *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (forbidden) __builtin_trap();
    return real(mutex);
}

/* ---- each call fails in turn ------------------------------------------------------------------------------------- */

#ifdef TWI_RACE_POINTS
void twi_race_nap(const char *name); /* race points sleep by system calls: none in this program */
void twi_race_nap(const char *name) {
}
#endif

static bool swallow_count(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->local;
    return true;
}

static bool is_answer(tw_status status) {
    return status == TW_OK || status == TW_OVERFLOWED || status == TW_ERR_FULL || status == TW_ERR_MEMORY;
}

static void count_and_look(tw_engine *engine, tw_family *family) {
    int64_t added = 0, seen = 0;
    char key[200];
    memset(key, 'k', sizeof key);
    for (uint32_t number = 0; number < 300; number++) {
        memcpy(key, &number, sizeof number);
        tw_status status = tw_add(family, tw_bytes(key, 4 + number % 196), 1, NULL);
        assert_true(is_answer(status));
        if (status >= 0) added++;
    }
    int64_t armed = fail_in;
    fail_in = INT64_MAX;
    assert_status(tw_each(family, TW_NOW, swallow_count, &seen), TW_OK);
    assert_true(seen >= added); /* what TW_OK reported as counted is there */
    fail_in = armed;
    tw_stats stats;
    (void)tw_stats_read(engine, &stats);
}

static void live_once(uint32_t threads, bool synced) {
    tw_options options;
    tw_options_init(&options);
    options.threads = threads;
    options.memory_bytes_max = 4 << 20;
    options.redis_prefix = synced ? "p:" : NULL;
    if (synced) fake_driver_install(&options);
    fake_driver_reset(0, 0);               /* before the engine has its thread: no turn runs during it */
    atomic_store(&fake_driver.away, true); /* keys here are not the fake's 4 bytes */
    tw_engine *engine = NULL;
    tw_status status = tw_open(&options, &engine);
    if (status != TW_OK) {
        assert_true(status == TW_ERR_MEMORY);
        assert_null(engine);
        return;
    }
    tw_family_options family_options;
    tw_family_options_init(&family_options);
    family_options.name = "f";
    family_options.window = TW_WINDOW_FOREVER;
    family_options.redis_key = "f:%k";
    tw_family *family = NULL;
    status = tw_family_open(engine, &family_options, &family);
    assert_true(status == TW_OK || status == TW_ERR_MEMORY);
    if (status == TW_OK) count_and_look(engine, family);
    if (status == TW_ERR_MEMORY) assert_null(tw_family_find(engine, "f"));
    status = tw_close(engine, 0);
    assert_true(status == TW_OK || status == TW_ERR_TIMEOUT);
}

/* Goal: whichever call fails, the result is an error or a counted overflow; nothing leaks and nothing crashes. */
static void check_each_failure(uint32_t threads, bool synced) {
    live_once(threads, synced); /* a first life makes what the process makes only once */
    int64_t fds_before = test_fd_count(), blocks_before = atomic_load(&blocks),
            mapped_before = atomic_load(&mapped_bytes);
    int64_t nth = 0;
    do {
        has_failed = false;
        fail_in = ++nth;
        live_once(threads, synced);
        fail_in = INT64_MAX;
        assert_true(test_wait(test_is_alone, NULL, TEST_PATIENCE_MS));
        if (atomic_load(&blocks) != blocks_before || atomic_load(&mapped_bytes) != mapped_before)
            fail_msg("failure of call %lld leaks %lld blocks, %lld mapped bytes", (long long)nth,
                     (long long)(atomic_load(&blocks) - blocks_before),
                     (long long)(atomic_load(&mapped_bytes) - mapped_before));
        assert_i64_equal(test_fd_count(), fds_before);
    } while (has_failed && nth < 1000);
    assert_true(nth > 4 && nth < 1000);
}

TEST(each_failure_in_a_host_driven_engine) {
    check_each_failure(TW_HOST_DRIVEN, false);
}
TEST(each_failure_in_an_engine_with_a_thread) {
    check_each_failure(TW_OWN_THREAD, false);
}
TEST(each_failure_in_an_engine_with_redis) {
    check_each_failure(TW_OWN_THREAD, true);
}

/* ---- the very first call of a process
 * ----------------------------------------------------------------------------------- */

static int first_call_fails(int64_t nth) {
    fail_in = nth;
    live_once(TW_OWN_THREAD, false);
    fail_in = INT64_MAX;
    live_once(TW_OWN_THREAD, false); /* afterwards everything works */
    return 0;
}

static void run_again(const char *mode, const char *number) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(30);
        execl("/proc/self/exe", "fails", mode, number, NULL);
        _exit(127);
    }
    int status;
    assert_true(waitpid(pid, &status, 0) == pid);
    if (status != 0)
        fail_msg("%s %s: status 0x%x%s", mode, number, status,
                 WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS ? ": a system call" : "");
}

TEST(each_failure_of_the_first_call_of_a_process) {
    char number[16];
    for (int nth = 1; nth <= 16; nth++) {
        snprintf(number, sizeof number, "%d", nth);
        run_again("first-call", number);
    }
}

/* ---- P9 ---------------------------------------------------------------------------------------------------------- */

static tw_engine *engine;
static tw_family *families[3]; /* endless, by the second, from first */
static atomic_int ready, done;

static void forbid_system_calls(void) {
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {.len = 1, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        atomic_store(&done, 2); /* no seccomp here */
        for (;;) pause();
    }
}

/* Once the filter is set, this thread may not make one system call, not even to end. The process ends around it. */
static void *count_in_silence(void *arg) {
    bool with_new_keys = arg != NULL;
    int64_t until_ms = test_mono_ms() + 2300; /* two windows end meanwhile */
    uint32_t key = 1, fresh = 0;
    for (size_t i = 0; i < 3; i++) {
        (void)tw_add(families[i], fake_key(&key), 1, NULL);
        (void)tw_acquire(families[i], fake_key(&key), 1, 1 << 30, NULL);
    }
    forbid_system_calls();
    forbidden = true;
    atomic_fetch_add(&ready, 1);
    while (test_mono_ms() < until_ms) { /* the clock of the vDSO: no system call */
        int64_t view;
        for (size_t i = 0; i < 3; i++) {
            if (tw_add(families[i], fake_key(&key), 1, &view) != TW_OK) __builtin_trap();
            if (tw_get(families[i], fake_key(&key), &view) != TW_OK) __builtin_trap();
            if (i == 0 && view < 1) __builtin_trap(); /* other windows may have ended between the calls */
            if (tw_acquire(families[i], fake_key(&key), 1, 1 << 30, NULL) != TW_OK) __builtin_trap();
            if (with_new_keys) { /* a first insert takes no lock and no system call either */
                uint32_t number = 2 + fresh++ % (FAKE_KEYS - 2);
                if (tw_add(families[i], fake_key(&number), 1, NULL) != TW_OK) __builtin_trap();
            }
        }
    }
    atomic_fetch_add(&done, 4);
    for (;;) continue;
}

static void *grow(void *arg) {
    while (!atomic_load(&ready)) sched_yield();
    for (uint32_t number = 0; number < 100000; number++) {
        if (!atomic_load(&fake_driver.away)) break; /* its ledger knows keys of 4 bytes only */
        uint64_t key = number;
        (void)tw_add(families[0], tw_bytes(&key, sizeof key), 1, NULL);
        if (number % 100 == 0) usleep(1000);
    }
    return NULL;
}

/* One child. Exit status 0: it made no system call, and called none of the watched functions. */
static int be_silent(int mode) {
    bool synced = (mode & 1) != 0, host = (mode & 2) != 0;
    tw_options options;
    tw_options_init(&options);
    options.threads = host ? TW_HOST_DRIVEN : TW_OWN_THREAD;
    options.memory_bytes_max = UINT64_C(64) << 20;
    fake_driver_reset(0, 0);
    atomic_store(&fake_driver.away, !synced);
    if (synced) fake_driver_install(&options);
    if (tw_open(&options, &engine) != TW_OK) return 1;
    if (synced)
        twi_port_live_engines(engine, 0); /* the fake driver does not report it; shares would be small at first */
    const uint32_t windows[] = {TW_WINDOW_FOREVER, TW_WINDOW_ALIGNED, TW_WINDOW_FROM_FIRST};
    const char *names[] = {"endless", "second", "first"};
    for (size_t i = 0; i < 3; i++) {
        tw_family_options family;
        tw_family_options_init(&family);
        family.name = names[i];
        family.window = windows[i];
        family.window_ms = i == 0 ? 0 : TW_SECOND;
        if (tw_family_open(engine, &family, &families[i]) != TW_OK) return 2;
    }
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, count_in_silence, NULL);
    pthread_create(&threads[1], NULL, count_in_silence, threads); /* this one also inserts */
    pthread_create(&threads[2], NULL, grow, NULL);
    for (int64_t until_ms = test_mono_ms() + 10000; test_mono_ms() < until_ms && atomic_load(&done) < 8; usleep(1000)) {
        if (host) (void)tw_turn(engine);
        if (atomic_load(&done) == 2) _exit(77);
    }
    _exit(atomic_load(&done) == 8 ? 0 : 3);
}

/* Goal: tw_add, tw_get and tw_acquire make no system call, take no lock, allocate nothing, during growth, roll-over and
 * sync (P9). */
TEST(existing_keys_are_counted_without_system_calls_locks_or_allocations) {
    run_again("silent", "0");
    run_again("silent", "1");
    run_again("silent", "2");
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "first-call") == 0) return first_call_fails(strtol(argv[2], NULL, 10));
    if (argc > 2 && strcmp(argv[1], "silent") == 0) return be_silent((int)strtol(argv[2], NULL, 10));
    if (test_is_slow()) test_skip_program("sanitizers define malloc themselves: a build without one runs this");
    if (test_is_emulated()) test_skip_program("an emulator has a thread of its own: run it on an ARM64 machine");
    return test_run();
}
