/* hard_processes.c -- a flash sale by real processes and threads: Redis is killed and restarted, replies are lost, a
 * process dies.
 * Always true: each admission is counted in a page of the test that all processes share. A kill can come between the
 * admission and its count; `selling` says so. */
#include "tests/redis/limits/hard_support.h"
#include "tests/support/proxy.h"
#include "tests/support/side_by_side.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY tw_str("phone")
#define PROCESSES_MAX 8
#define THREADS_MAX 4

struct page {
    char url[PROCESSES_MAX][128];
    _Atomic bool go, enough;
    int64_t limit;
    int threads;
    int64_t tries; /* tries of each thread */
    int64_t pause_ms;
    _Atomic int64_t admitted[PROCESSES_MAX], tried, final_early;
    _Atomic int64_t stranded[PROCESSES_MAX]; /* what each engine sees while it has nothing to sell */
    _Atomic int selling[PROCESSES_MAX];      /* calls whose unit, if they get one, is not counted yet */
    _Atomic int64_t last_sold_ms;
    _Atomic int finals; /* threads that had a "final" denial */
};
static struct page *page;

static int64_t admitted(void) {
    int64_t sum = 0;
    for (int i = 0; i < PROCESSES_MAX; i++) sum += atomic_load(&page->admitted[i]);
    return sum;
}

struct seller {
    pthread_t thread;
    tw_engine *engine;
    tw_family *family;
    int process;
};

/* Makes its tries, and then continues until a denial is "final" or the test says stop. */
static void *sell_as_thread(void *arg) {
    struct seller *seller = arg;
    tw_verdict verdict;
    int64_t tried = 0;
    for (bool over = false; !(over && tried >= page->tries) && !atomic_load(&page->enough); tried++) {
        atomic_fetch_add(&page->selling[seller->process], 1);
        tw_status status = tw_acquire(seller->family, KEY, 1, page->limit, &verdict);
        if (status == TW_OK) atomic_fetch_add(&page->admitted[seller->process], 1);
        atomic_fetch_sub(&page->selling[seller->process], 1);
        if (status == TW_OK) {
            atomic_store(&page->last_sold_ms, test_mono_ms());
            test_sleep_ms(page->pause_ms);
        } else if (verdict.final) {
            if (!over && admitted() < page->limit) { /* the last one may be sold, and not yet noted */
                test_sleep_ms(50);
                if (admitted() < page->limit) atomic_fetch_add(&page->final_early, 1);
            }
            if (!over) atomic_fetch_add(&page->finals, 1);
            over = true;
        } else {
            if (tried % 64 == 0)
                atomic_store(&page->stranded[seller->process], test_stat_of(seller->engine, lease_stranded));
            test_sleep_ms(1);
        }
    }
    atomic_fetch_add(&page->tried, tried);
    return NULL;
}

static int sell_as_process(int process) {
    while (!atomic_load(&page->go)) test_sleep_ms(1);
    tw_options options;
    tw_engine *engine = NULL;
    quick_options(&options, page->url[process]);
    options.redis_timeout_ms = 200;
    if (test_open(&options, &engine) != TW_OK) return 2;
    tw_family *family = hard_family(engine, "sale");
    struct seller sellers[THREADS_MAX];
    for (int i = 0; i < page->threads; i++) {
        sellers[i] = (struct seller){.engine = engine, .family = family, .process = process};
        if (pthread_create(&sellers[i].thread, NULL, sell_as_thread, &sellers[i]) != 0) return 3;
    }
    for (int i = 0; i < page->threads; i++) pthread_join(sellers[i].thread, NULL);
    return tw_close(engine, 5000) == TW_OK ? 0 : 1;
}

static pid_t children[PROCESSES_MAX];

/* Call it before this process has a thread. */
static void begin_processes(int processes, int threads, int64_t limit, int64_t tries, int64_t pause_ms) {
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    page->limit = limit;
    page->threads = threads;
    page->tries = tries;
    page->pause_ms = pause_ms;
    fflush(NULL);
    for (int i = 0; i < processes; i++) {
        children[i] = test_fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) _exit(sell_as_process(i));
    }
}

static void open_the_doors(int processes, const char *url) {
    for (int i = 0; i < processes; i++) snprintf(page->url[i], sizeof page->url[i], "%s", url);
    atomic_store(&page->go, true);
}

static void end_crowd(int processes, int but) {
    for (int i = 0; i < processes; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        if (i == but) continue;
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static bool is_sold_out(void *ctx) {
    return admitted() >= *(int64_t *)ctx;
}

static bool all_are_told(void *ctx) {
    return atomic_load(&page->finals) >= *(int *)ctx;
}

/* Goal: never more than the limit is sold, and all of it, while Redis is killed and restarted (append-only file, fsync
 * always) and replies are lost; no denial is "final" before. Long form: 8 processes, 4 threads each, 10,000 units, a
 * million tries. */
TEST(processes_buy_exactly_the_limit_through_restarts_and_lost_replies) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    bool is_long = test_scale(100) >= 1000;
    int processes = is_long ? 8 : 4, threads = is_long ? 4 : 2, tellers = processes * threads;
    int64_t limit = is_long ? 10000 : 2000;
    begin_processes(processes, threads, limit, is_long ? 31250 : 500, 8);
    struct redis_server server;
    redis_server_start(&server, durable);
    struct proxy *proxy = proxy_start(&server, test_seed());
    open_the_doors(processes, proxy_url(proxy));
    test_sleep_ms(1600); /* the epoch is open, the sale continues */
    proxy_chance(proxy, PROXY_DROP_REPLY, 300);
    int64_t some = limit / 4;
    assert_true(test_wait(is_sold_out, &some, TEST_PATIENCE_MS));
    redis_server_kill(&server);
    test_sleep_ms(200); /* buyers meet a Redis that is gone */
    redis_server_restart(&server);
    some = limit * 3 / 4;
    assert_true(test_wait(is_sold_out, &some, TEST_PATIENCE_MS));
    assert_true(admitted() <= limit);
    proxy_chance(proxy, PROXY_PASS, 0);
    int64_t calm_ms = test_mono_ms();
    assert_true(test_wait(is_sold_out, &limit, TEST_PATIENCE_MS));
    assert_true(test_wait(all_are_told, &tellers, TEST_PATIENCE_MS));
    print_message("# %lld tries; the last unit sold %lld ms after the last fault\n",
                  (long long)atomic_load(&page->tried), (long long)(atomic_load(&page->last_sold_ms) - calm_ms));
    end_crowd(processes, -1);
    assert_i64_equal(admitted(), limit);
    assert_i64_equal(atomic_load(&page->final_early), 0);
    assert_i64_equal(redis_server_get(&server, "sale:phone"), limit);
    proxy_stop(proxy);
    redis_server_destroy(&server);
    munmap(page, sizeof *page);
}

static bool is_stuck(void *ctx) {
    static int64_t then, since_ms;
    int64_t now = admitted();
    if (now != then || since_ms == 0) then = now, since_ms = test_mono_ms();
    return test_mono_ms() - since_ms > 6500;
}

/* What the process `dead` holds, but for units that it may have sold and not counted. */
static int64_t missing_with(int dead) {
    int64_t missing = page->limit - admitted();
    assert_true(missing >= 0);
    missing -= atomic_load(&page->selling[dead]);
    return missing > 0 ? missing : 0;
}

static int64_t seen_stranded_but_by(int dead) {
    int64_t most = 0;
    for (int i = 0; i < PROCESSES_MAX; i++)
        if (i != dead && atomic_load(&page->stranded[i]) > most) most = atomic_load(&page->stranded[i]);
    return most;
}

static bool is_seen(void *ctx) {
    int dead = *(int *)ctx;
    return missing_with(dead) <= seen_stranded_but_by(dead);
}

/* Goal: a process that dies strands at most its lease: the others sell the rest and report the missing part as
 * stranded, and no denial is "final". */
TEST(a_process_that_is_killed_strands_at_most_its_lease) {
    int dead = 1;
    begin_processes(3, 2, 600, 1 << 30, 5);
    struct redis_server server;
    redis_server_start(&server, NULL);
    open_the_doors(3, server.url);
    int64_t some = 150;
    assert_true(test_wait(is_sold_out, &some, TEST_PATIENCE_MS));
    kill(children[dead], SIGKILL);
    assert_true(test_wait(is_stuck, NULL, TEST_PATIENCE_MS));
    /* They look once a second, and whom they have not heard of for five seconds counts as gone. */
    if (!test_wait(is_seen, &dead, 20000))
        fail_msg("%lld units are missing, %lld are seen to be stranded", (long long)missing_with(dead),
                 (long long)seen_stranded_but_by(dead));
    int64_t stranded = seen_stranded_but_by(dead);
    atomic_store(&page->enough, true);
    end_crowd(3, dead);
    int64_t missing = page->limit - admitted();
    assert_true(missing_with(dead) <= stranded);
    if (missing > 0) assert_int_equal(atomic_load(&page->finals), 0);
    print_message("# %lld units are missing, %lld are seen to be stranded\n", (long long)missing, (long long)stranded);
    redis_server_destroy(&server);
    munmap(page, sizeof *page);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
