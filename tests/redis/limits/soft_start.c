/* soft_start.c -- how far a soft limit is passed by fresh processes that spend it as fast as they can. `soft_start
 * table LIMIT` prints the table of docs/LIMITS.md: 2, 4, 8 and 16 processes, three starts each; `soft_start first`
 * prints how soon a new process has a unit of a hard limit. Without arguments the program is a test of four processes.
 * Each process records in shared memory what it was admitted.
 * Always true: all processes are forked before the first engine is made; each has a family, a key and threads of its
 * own. */
#include "tests/redis/sync_support.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 16
#define THREADS 2

enum start {
    COLD,          /* opened and spent from at once */
    COLD_EXPECTED, /* the same, with engines_expected */
    READY,         /* after tw_ready() */
    RUSH,          /* engines that have lived for two seconds, and a key that is new to all */
    CALM,          /* the same, 10,000 calls a second of all together */
    STARTS
};
static const char *const names[STARTS] = {"cold", "cold, engines_expected", "cold, tw_ready()", "rush", "calm"};

struct shared {
    _Atomic int ready;
    _Atomic bool go;
    _Atomic int64_t admitted[PROCESSES], denied[PROCESSES];
};

struct run {
    struct shared *shared;
    enum start start;
    int processes, index;
    int64_t limit, spend_ms;
    const char *url;
    tw_family *family;
};

static void *spend(void *arg) {
    struct run *run = arg;
    int64_t admitted = 0, denied = 0, began_ms = test_mono_ms();
    double per_ms = 10.0 / run->processes / THREADS;
    for (;;) {
        int64_t passed_ms = test_mono_ms() - began_ms;
        if (passed_ms >= run->spend_ms) break;
        for (int i = 0; i < 32; i++) {
            if (run->start == CALM && (double)(admitted + denied) >= per_ms * (double)passed_ms) break;
            if (tw_acquire(run->family, tw_str("hot"), 1, run->limit, NULL) == TW_OK)
                admitted++;
            else
                denied++;
        }
        if (run->start == CALM) usleep(500);
    }
    atomic_fetch_add(&run->shared->admitted[run->index], admitted);
    atomic_fetch_add(&run->shared->denied[run->index], denied);
    return NULL;
}

static void await(_Atomic bool *flag) {
    while (!atomic_load(flag)) usleep(200);
}

/* One process. */
static void live(struct run *run) {
    tw_options options;
    tw_engine *engine;
    pthread_t threads[THREADS];
    tw_options_init(&options);
    options.redis_url = run->url;
    options.memory_bytes_max = 16 << 20;
    if (run->start == COLD_EXPECTED) options.engines_expected = (uint32_t)run->processes;
    if (run->start <= COLD_EXPECTED) {
        atomic_fetch_add(&run->shared->ready, 1);
        await(&run->shared->go);
    }
    assert_status(test_open(&options, &engine), TW_OK);
    run->family = family_of(engine, "s", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    if (run->start == READY) assert_status(tw_ready(engine, TEST_PATIENCE_MS), TW_OK);
    if (run->start >= RUSH) {
        while (test_stat_of(engine, live_engines) < run->processes) usleep(5000);
        usleep(2000000); /* every engine has seen the others for some sync intervals */
    }
    if (run->start >= READY) {
        atomic_fetch_add(&run->shared->ready, 1);
        await(&run->shared->go);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, spend, run), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    (void)tw_close(engine, 5000);
}

/* Returns how many units all of them were admitted. */
static int64_t admitted_by_all(enum start start, int processes, int64_t limit, int64_t spend_ms) {
    struct redis_server server;
    struct run run = {.start = start, .processes = processes, .limit = limit, .spend_ms = spend_ms};
    redis_server_start(&server, NULL);
    run.url = server.url;
    run.shared = mmap(NULL, sizeof *run.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(run.shared != MAP_FAILED);
    pid_t children[PROCESSES];
    for (run.index = 0; run.index < processes; run.index++) {
        children[run.index] = test_fork();
        assert_true(children[run.index] >= 0);
        if (children[run.index] != 0) continue;
        live(&run);
        _exit(0);
    }
    while (atomic_load(&run.shared->ready) < processes) usleep(1000);
    atomic_store(&run.shared->go, true);
    int64_t sum = 0;
    for (int i = 0; i < processes; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
        sum += atomic_load(&run.shared->admitted[i]);
    }
    redis_server_destroy(&server);
    munmap(run.shared, sizeof *run.shared);
    return sum;
}

/* ---- first units of a hard limit ---- */

#define ROUNDS 3

/* How long after test_open() one process has its first unit; one of its threads requests it as fast as it can, or each
 * 0.2 ms. */
static int64_t first_unit_us(const char *url, bool fast) {
    tw_options options;
    tw_family_options family;
    tw_engine *engine;
    tw_family *hard;
    struct timespec from, to;
    tw_options_init(&options);
    options.redis_url = url;
    options.memory_bytes_max = 16 << 20;
    tw_family_options_init(&family);
    family.name = "h";
    family.window_ms = TW_DAY;
    family.limit_mode = TW_LIMIT_HARD;
    clock_gettime(CLOCK_MONOTONIC, &from);
    assert_status(test_open(&options, &engine), TW_OK);
    assert_status(tw_family_open(engine, &family, &hard), TW_OK);
    while (tw_acquire(hard, tw_str("hot"), 1, 1000000, NULL) != TW_OK)
        if (!fast) usleep(200);
    clock_gettime(CLOCK_MONOTONIC, &to);
    usleep(1000000); /* it keeps running while others begin */
    (void)tw_close(engine, 5000);
    return (to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000;
}

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Starts so many processes at once, next to an engine that has run for three seconds. The epoch is open. */
static void first_units(int processes, bool fast, int64_t *us) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pid_t children[PROCESSES + 1];
    for (int i = 0; i <= processes; i++) {
        children[i] = test_fork();
        assert_true(children[i] >= 0);
        if (children[i] != 0) continue;
        if (i < processes) await(&shared->go);
        int64_t took_us = first_unit_us(server.url, fast && i < processes);
        if (i < processes) atomic_store(&shared->admitted[i], took_us);
        if (i == processes) usleep(3500000); /* it stays alive while the others buy */
        _exit(0);
    }
    usleep(3000000); /* the first engine is known, and no engine is new any more */
    atomic_store(&shared->go, true);
    for (int i = 0; i <= processes; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
        if (i < processes) us[i] = atomic_load(&shared->admitted[i]);
    }
    redis_server_destroy(&server);
    munmap(shared, sizeof *shared);
}

static int first_table(void) {
    printf("| ms to a first unit of a hard limit: median, most | 1 | 4 | 15 |\n| --- | --- | --- | --- |\n");
    for (int fast = 0; fast < 2; fast++) {
        printf("| %s |", fast ? "asked for as fast as a thread can" : "asked for each 0.2 ms");
        static const int counts[] = {1, 4, 15};
        for (int c = 0; c < 3; c++) {
            int64_t us[ROUNDS * PROCESSES];
            int count = counts[c], all = ROUNDS * count;
            for (int i = 0; i < ROUNDS; i++) first_units(count, fast, us + (ptrdiff_t)i * count);
            qsort(us, (size_t)all, sizeof *us, by_number);
            printf(" %.0f, %.0f |", (double)us[all / 2] / 1000, (double)us[all - 1] / 1000);
            fflush(stdout);
        }
        printf("\n");
    }
    return 0;
}

static int table(int64_t limit) {
    printf("| beyond a limit of %lld, in percent | 2 | 4 | 8 | 16 |\n| --- | --- | --- | --- | --- |\n",
           (long long)limit);
    for (enum start start = COLD; start < STARTS; start++) {
        printf("| %s |", names[start]);
        for (int processes = 2; processes <= PROCESSES; processes *= 2) {
            int64_t most = INT64_MIN, least = INT64_MAX;
            for (int i = 0; i < 3; i++) {
                int64_t sum = admitted_by_all(start, processes, limit, 4000);
                if (sum > most) most = sum;
                if (sum < least) least = sum;
            }
            printf(" %+.2f to %+.2f |", 100.0 * (double)(least - limit) / (double)limit,
                   100.0 * (double)(most - limit) / (double)limit);
            fflush(stdout);
        }
        printf("\n");
    }
    return 0;
}

#define TRIES 5

/* Goal: four fresh processes pass a soft limit by at most 3 % if they know how many they are, by at most 10 % if not
 * (R13), and spend all of it in both cases. What starved processes cannot send for intervals is in nobody's bound
 * (docs/LIMITS.md): then they try again. The simulator has the bounds of starved ones (sim/limits/starts.c). */
TEST(fresh_processes_keep_a_soft_limit) {
    for (enum start start = COLD; start <= COLD_EXPECTED; start++) {
        bool is_kept = false;
        for (int i = 0; i < TRIES && !is_kept; i++) {
            int64_t sum = admitted_by_all(start, 4, 20000, 2500);
            print_message("# %s: %lld of 20000\n", names[start], (long long)sum);
            is_kept = sum <= 20000 + (start == COLD ? 2000 : 600) && sum >= 20000 - 200;
        }
        assert_true(is_kept);
    }
}

int main(int argc, char **argv) {
    redis_server_require();
    if (argc > 1 && strcmp(argv[1], "table") == 0) return table(argc > 2 ? atoll(argv[2]) : 20000);
    if (argc > 1 && strcmp(argv[1], "first") == 0) return first_table();
    if (test_is_slow())
        test_skip_program(
            "a sanitizer starves a process for longer than Redis is waited for: a build without one runs this");
    return test_run();
}
