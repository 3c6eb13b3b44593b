/* outage_cost.c -- what an outage costs the adding threads: nothing (P9).
 * Method: a forked child counts. A seccomp filter kills it at the first system call of its adding thread, and another
 * thread reads the page faults of that thread from /proc. Meanwhile the parent kills the server, pauses it, and brings
 * it back. Skipped under sanitizers, which make system calls of their own.
 * Always true: a new key is inserted every 100 microseconds. A background thread that waits for half a second still
 * keeps ahead of that. */
#include "tests/redis/sync_support.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define WARM_MS 1500 /* over a window boundary: by then the program's own memory has been touched */
#define RUN_MS 4500

enum { NO_FILTER = 77 };

#ifdef TWI_RACE_POINTS
void twi_race_nap(const char *name); /* race points sleep by system calls: none in this program */
void twi_race_nap(const char *name) {
}
#endif

/* What the child writes for its parent, and its threads for each other. */
struct page {
    _Atomic int64_t added; /* added to the key "hot" */
    _Atomic int64_t faults;
    _Atomic int64_t disconnects, windows;
    _Atomic int thread;
    _Atomic int warm, done, refused;
};
static struct page *page;
static tw_family *endless, *by_second;

static void forbid_system_calls(void) {
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {.len = 1, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(NO_FILTER);
}

static void count(tw_family *family, uint64_t number) {
    if (tw_add(family, tw_bytes(&number, sizeof number), 1, NULL) != TW_OK) atomic_fetch_add(&page->refused, 1);
}

static void *count_in_silence(void *arg) {
    atomic_store(&page->thread, (int)syscall(SYS_gettid));
    int64_t view;
    (void)tw_get(endless, tw_str("hot"), &view); /* the first call of a thread registers it, with a system call */
    forbid_system_calls();
    int64_t began_ms = test_mono_ms(), now_ms; /* the clock of the vDSO: no system call */
    for (uint64_t inserted = 0; (now_ms = test_mono_ms()) < began_ms + WARM_MS + RUN_MS;) {
        if (now_ms >= began_ms + WARM_MS) atomic_store(&page->warm, 1);
        while (inserted < (uint64_t)(now_ms - began_ms) * 10) {
            count(endless, inserted);
            count(by_second, inserted++ % 3000);
        }
        if (tw_add(endless, tw_str("hot"), 1, NULL) != TW_OK) atomic_fetch_add(&page->refused, 1);
        atomic_fetch_add(&page->added, 1);
    }
    atomic_store(&page->done, 1);
    while (atomic_load(&page->done) != 0) continue; /* not even to end */
    return NULL;
}

/* Fields 10 and 12 of proc_pid_stat(5). */
static int64_t faults_of(int thread) {
    char path[64], text[1024] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(text, sizeof text, file) == NULL) _exit(3);
    fclose(file);
    long long minor = -1, major = -1;
    char *after_name = strrchr(text, ')');
    if (after_name == NULL || sscanf(after_name + 2, "%*c %*d %*d %*d %*d %*d %*u %lld %*u %lld", &minor, &major) != 2)
        _exit(3);
    return minor + major;
}

static void be_silent(const char *url) {
    tw_options options;
    tw_engine *engine;
    pthread_t adder;
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* so that each fresh page of 4 KiB shows as a fault */
    quick_options(&options, url);
    options.memory_bytes_max = UINT64_C(512) << 20;
    if (test_open(&options, &engine) != TW_OK) _exit(1);
    endless = family_of(engine, "endless", TW_WINDOW_FOREVER, 0);
    by_second = family_of(engine, "second", TW_WINDOW_ALIGNED, TW_SECOND);
    if (pthread_create(&adder, NULL, count_in_silence, NULL) != 0) _exit(1);
    while (atomic_load(&page->warm) == 0) test_sleep_ms(1);
    int64_t before = faults_of(atomic_load(&page->thread));
    while (atomic_load(&page->done) == 0) test_sleep_ms(1);
    atomic_store(&page->faults, faults_of(atomic_load(&page->thread)) - before);
    if (tw_flush(engine, 2 * TEST_PATIENCE_MS) != TW_OK) _exit(2); /* the adder uses a processor meanwhile */
    atomic_store(&page->disconnects, test_stat_of(engine, disconnects));
    atomic_store(&page->windows, test_stat_of(engine, windows_closed));
    _exit(0);
}

/* Goal: a Redis that vanishes and returns costs the adding thread no system call and no page fault, while its tables
 * grow and windows roll over; and no count is lost. */
TEST(an_outage_costs_the_adding_thread_nothing) {
    struct redis_server server;
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    redis_server_start(&server, durable);
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    fflush(NULL);
    pid_t child = test_fork();
    assert_true(child >= 0);
    if (child == 0) be_silent(server.url);
    test_sleep_ms(WARM_MS + 300); /* the child has begun to measure */
    redis_server_kill(&server);
    test_sleep_ms(1200); /* an outage that callers could notice */
    redis_server_restart(&server);
    test_sleep_ms(500); /* the engine is connected again */
    redis_server_pause(&server);
    test_sleep_ms(1200); /* longer than the reply's deadline */
    redis_server_resume(&server);
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_FILTER) {
        test_leave_out("no seccomp here: run it with a kernel and a container that allow it");
        redis_server_destroy(&server);
        return;
    }
    if (status != 0) fail_msg("status 0x%x%s", status, WTERMSIG(status) == SIGSYS ? ": a system call" : "");
    assert_i64_equal(page->refused, 0);
    assert_i64_equal(redis_server_get(&server, "endless:hot"), page->added);
    assert_true(page->disconnects >= 1 && page->windows >= 4);
    assert_i64_equal(page->faults, 0);
    munmap(page, sizeof *page);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    if (test_is_slow()) test_skip_program("a sanitizer makes system calls of its own: a build without one runs this");
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || madvise(map, 4096, MADV_POPULATE_WRITE) != 0)
        test_skip_program("this kernel has no MADV_POPULATE_WRITE: run it on Linux 5.14");
    munmap(map, 4096);
    return test_run();
}
