/* demo.c -- `tallywheel demo` lets several processes sell one stock and count visits. Redis is killed in the middle,
 * and in the end all counts agree.
 *
 *     0 s  workers count, Redis combines their counts. Every process has the totals of all
 *   2.5 s  the sale begins; each process has acquired some units from Redis and sells them
 *     4 s  Redis is killed. Counting continues, and the counters keep the unsent counts. Each process sells
 *       the units that it has acquired, then no thread can buy
 *     7 s  Redis comes back. The kept counts are sent exactly once, and the sale continues
 *    10 s  (or some seconds later, when all is sold) everything is sent, and the books are compared (demo.h describes
 *       them)
 *
 * With --cluster Redis is three masters of a cluster, and one is killed: the one that has the stock.
 *
 * Always true: however the demo ends, its processes are ended and its folder is removed; it exits with 0 only if the
 * books agree. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/demo/demo.h"
#include "tools/common/moment.h"
#include "tools/common/options.h"
#include "tools/common/stop.h"
#include "tools/common/tool.h"

#define KILL_MS 4000
#define RESTART_MS 7000
#define END_MS 10000
#define SOLD_OUT_MS 20000    /* a sale that is not over by then has failed */
#define WORKERS_END_MS 14000 /* a worker drains within 12 s (demo_worker.c), or it hangs */
#define FETCH_MS 5000

static const char help[] =
    "Usage: tallywheel demo [--engines N] [--threads N] [--cluster | --no-redis]\n"
    "A flash sale: several processes sell one stock and count visits through a Redis of their own, which is\n"
    "killed and comes back; then the books are compared: what the threads noted, what the engines counted,\n"
    "what Redis holds.\n"
    "With --cluster: through a Redis Cluster of three masters on loopback ports; the one that has the stock is\n"
    "killed and comes back.\n"
    "Without redis-server, or with --no-redis: one process sells a stock, to the unit. Takes some 11 seconds.\n"
    "Exit status: 0 the books agree; 1 they do not, or something failed; 2 wrong usage.\n";

struct demo {
    unsigned engines, threads;
    bool no_redis, is_cluster, is_terminal;
    struct demo_redis redis;
    struct demo_board *board;
    int board_fd;
    pid_t workers[DEMO_ENGINES_MAX];
    unsigned killed; /* which of the redis-servers */
    int64_t begun_ms;
    unsigned lines_drawn;
    char redis_says[80];
};

/* ---- options ---- */

#define DIGITS(number) #number
#define FROM_1_TO(number) "must be a whole number from 1 to " DIGITS(number)
static const struct option_rule rules[] = {
    OPTION_NUMBER("engines", struct demo, engines, 1, DEMO_ENGINES_MAX, FROM_1_TO(DEMO_ENGINES_MAX)),
    OPTION_NUMBER("threads", struct demo, threads, 1, DEMO_THREADS_MAX, FROM_1_TO(DEMO_THREADS_MAX)),
    OPTION_FLAG("no-redis", struct demo, no_redis), OPTION_FLAG("cluster", struct demo, is_cluster), OPTIONS_END};

/* Returns -1 to continue, otherwise the exit status. */
static int demo_read_options(int argc, char **argv, struct demo *demo) {
    int status = options_read(argc, argv, rules, help, NULL, demo);
    if (status >= 0) return status;
    if (demo->is_cluster && demo->no_redis) {
        tool_complain("--cluster and --no-redis exclude each other");
        return EXIT_USAGE;
    }
    if (optind == argc) return -1;
    tool_complain("demo takes no argument '%s'", argv[optind]);
    return EXIT_USAGE;
}

/* ---- workers ---- */

static bool board_make(struct demo *demo) {
    demo->board_fd = memfd_create("tallywheel-demo", 0); /* inherited by the workers */
    if (demo->board_fd < 0 || ftruncate(demo->board_fd, sizeof *demo->board) != 0) {
        tool_complain("the shared page: %s", strerror(errno));
        return false;
    }
    demo->board = mmap(NULL, sizeof *demo->board, PROT_READ | PROT_WRITE, MAP_SHARED, demo->board_fd, 0);
    if (demo->board != MAP_FAILED) return true;
    tool_complain("the shared page: %s", strerror(errno));
    return false;
}

static bool worker_start(struct demo *demo, unsigned number) {
    char fd[16], index[16], threads[16];
    snprintf(fd, sizeof fd, "%d", demo->board_fd);
    snprintf(index, sizeof index, "%u", number);
    snprintf(threads, sizeof threads, "%u", demo->threads);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(127);
        setpgid(0, 0); /* Ctrl-C is for the parent, which lets the workers finish */
        execl("/proc/self/exe", TOOL_NAME, "demo-worker", fd, index, threads, demo->redis.url, (char *)NULL);
        _exit(127);
    }
    if (pid < 0) tool_complain("a worker: %s", strerror(errno));
    demo->workers[number] = pid < 0 ? 0 : pid;
    return pid > 0;
}

/* Returns true if all have ended with success. Workers that are too slow are killed. */
static bool workers_end(struct demo *demo) {
    int64_t begun_ms = moment_mono_ms();
    bool good = true;
    atomic_store(&demo->board->order, DEMO_STOP);
    for (unsigned i = 0; i < demo->engines; i++) {
        int status = 0;
        if (demo->workers[i] == 0) continue;
        while (waitpid(demo->workers[i], &status, WNOHANG) == 0) {
            if (moment_mono_ms() - begun_ms > WORKERS_END_MS) kill(demo->workers[i], SIGKILL);
            stop_wait(-1, 10);
        }
        demo->workers[i] = 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_DONE) {
            tool_complain("process %u did not end well", i + 1);
            good = false;
        }
    }
    return good;
}

/* ---- the table ---- */

static int64_t recorded_of(const struct demo_engine *engine, unsigned page) {
    int64_t sum = 0;
    for (unsigned thread = 0; thread < DEMO_THREADS_MAX; thread++) sum += atomic_load(&engine->recorded[thread][page]);
    return sum;
}

static int64_t recorded_all(const struct demo *demo, unsigned page) {
    int64_t sum = 0;
    for (unsigned i = 0; i < demo->engines; i++) sum += recorded_of(&demo->board->engines[i], page);
    return sum;
}

static int64_t recorded_total(const struct demo *demo) {
    int64_t sum = 0;
    for (unsigned page = 0; page < DEMO_PAGES; page++) sum += recorded_all(demo, page);
    return sum;
}

static int64_t demo_sold_of(const struct demo_engine *engine) {
    int64_t sum = 0;
    for (unsigned thread = 0; thread < DEMO_THREADS_MAX; thread++) sum += atomic_load(&engine->sold[thread]);
    return sum;
}

static int64_t sold_all(const struct demo *demo) {
    int64_t sum = 0;
    for (unsigned i = 0; i < demo->engines; i++) sum += demo_sold_of(&demo->board->engines[i]);
    return sum;
}

/* Redraws in place on a terminal. Each column is the total that one process has. */
static void table_draw(struct demo *demo) {
    unsigned lines = 0;
    if (demo->lines_drawn > 0) printf("\033[%uA", demo->lines_drawn);
    printf("\033[K%5.1f s   %lld of %d phones sold, %lld views   Redis %s\n\033[K\n",
           (double)(moment_mono_ms() - demo->begun_ms) / 1000.0, (long long)sold_all(demo), DEMO_STOCK,
           (long long)recorded_total(demo), demo->redis_says);
    printf("\033[K%-14s%12s", "page", "visited");
    for (unsigned i = 0; i < demo->engines; i++) printf("  process %u says", i + 1);
    printf("\n");
    lines += 3;
    for (unsigned page = 0; page < DEMO_PAGES; page++, lines++) {
        printf("\033[K%-14s%12lld", demo_pages[page], (long long)recorded_all(demo, page));
        for (unsigned i = 0; i < demo->engines; i++) {
            printf("%16lld", (long long)atomic_load(&demo->board->engines[i].view[page]));
        }
        printf("\n");
    }
    printf("\033[K%-26s", "phones sold by each");
    for (unsigned i = 0; i < demo->engines; i++) printf("%16lld", (long long)demo_sold_of(&demo->board->engines[i]));
    printf("\n\033[K%-26s", "who got none just then");
    for (unsigned i = 0; i < demo->engines; i++)
        printf("%16lld", (long long)atomic_load(&demo->board->engines[i].turned_away));
    printf("\n\033[K%-26s", "Redis, as they see it");
    for (unsigned i = 0; i < demo->engines; i++) {
        printf("%16s", atomic_load(&demo->board->engines[i].connected) != 0 ? "connected" : "away");
    }
    printf("\n");
    demo->lines_drawn = lines + 3;
    fflush(stdout);
}

/* Elsewhere: one line a second. */
static void line_print(const struct demo *demo) {
    printf("%5.1f s   sold %5lld of %d   visited %9lld", (double)(moment_mono_ms() - demo->begun_ms) / 1000.0,
           (long long)sold_all(demo), DEMO_STOCK, (long long)recorded_total(demo));
    for (unsigned i = 0; i < demo->engines; i++) {
        int64_t sum = 0;
        for (unsigned page = 0; page < DEMO_PAGES; page++) sum += atomic_load(&demo->board->engines[i].view[page]);
        printf("   process %u says %9lld", i + 1, (long long)sum);
    }
    printf("   Redis %s\n", demo->redis_says);
    fflush(stdout);
}

/* Shows the progress until `until_ms` after the beginning. Returns false after a signal. */
static bool demo_watch(struct demo *demo, int64_t until_ms) {
    int64_t shown_ms = -1000;
    for (;;) {
        int64_t now_ms = moment_mono_ms() - demo->begun_ms;
        if (now_ms - shown_ms >= (demo->is_terminal ? 200 : 1000)) {
            if (demo->is_terminal) {
                table_draw(demo);
            } else {
                line_print(demo);
            }
            shown_ms = now_ms;
        }
        if (stop_signal() != 0) return false;
        if (now_ms >= until_ms) return true;
        stop_wait(-1, 50);
    }
}

/* ---- the books ---- */

/* Reads the counts in Redis, through an engine that has not counted. */
static bool redis_ask(const struct demo *demo, int64_t *totals, int64_t *sold) {
    struct demo_shop shop;
    tw_key keys[DEMO_PAGES], item = tw_str(DEMO_ITEM);
    for (unsigned page = 0; page < DEMO_PAGES; page++) keys[page] = tw_str(demo_pages[page]);
    if (!demo_open(demo->redis.url, &shop)) return false;
    tw_status status = tw_fetch(shop.views, keys, DEMO_PAGES, FETCH_MS, totals);
    if (status == TW_OK) status = tw_fetch(shop.sale, &item, 1, FETCH_MS, sold);
    if (status != TW_OK) tool_complain("Redis does not reply what it holds: %s", tw_status_text(status));
    tw_close(shop.engine, 1000);
    return status == TW_OK;
}

/* The sale's line. A sale that was ended early may have units left. */
static bool sale_compare(const struct demo *demo, int64_t in_redis) {
    int64_t sold = sold_all(demo), counted = 0;
    for (unsigned i = 0; i < demo->engines; i++) counted += atomic_load(&demo->board->engines[i].sale_counted);
    bool whole = stop_signal() != 0 ? sold <= DEMO_STOCK : sold == DEMO_STOCK;
    bool agree = whole && sold == counted && sold == in_redis;
    printf("%-14s%16lld%16lld%16lld%s\n", "phones sold", (long long)sold, (long long)counted, (long long)in_redis,
           agree ? "" : "   <--");
    printf("%-14s%16d\n", "in stock were", DEMO_STOCK);
    return agree;
}

static bool books_compare(const struct demo *demo) {
    int64_t in_redis[DEMO_PAGES], sold_in_redis, sums[3] = {0, 0, 0};
    bool agree = true;
    if (!redis_ask(demo, in_redis, &sold_in_redis)) return false;
    printf("\n%-14s%16s%16s%16s\n", "page", "threads noted", "engines counted", "Redis holds");
    for (unsigned page = 0; page < DEMO_PAGES; page++) {
        int64_t recorded = recorded_all(demo, page), counted = 0;
        for (unsigned i = 0; i < demo->engines; i++) counted += atomic_load(&demo->board->engines[i].counted[page]);
        bool same = recorded == counted && recorded == in_redis[page];
        printf("%-14s%16lld%16lld%16lld%s\n", demo_pages[page], (long long)recorded, (long long)counted,
               (long long)in_redis[page], same ? "" : "   <--");
        agree = agree && same;
        sums[0] += recorded;
        sums[1] += counted;
        sums[2] += in_redis[page];
    }
    printf("%-14s%16lld%16lld%16lld\n\n", "all pages", (long long)sums[0], (long long)sums[1], (long long)sums[2]);
    agree = sale_compare(demo, sold_in_redis) && agree;
    if (agree && sold_all(demo) == DEMO_STOCK) printf("\nsold = stock: no unit sold twice, none left");
    printf("\n%s\n", agree ? "counted = recorded = in Redis: no count lost or doubled" : "THE BOOKS DO NOT AGREE");
    return agree;
}

/* ---- the whole ---- */

/* Shows the progress until the end, and until all is sold. */
static void watch_to_the_end(struct demo *demo) {
    bool on = demo_watch(demo, END_MS);
    for (int64_t until_ms = END_MS + 200; on && sold_all(demo) < DEMO_STOCK && until_ms < SOLD_OUT_MS; until_ms += 200)
        on = demo_watch(demo, until_ms);
}

/* In a cluster only one of the masters is spoken of, once it is killed. */
static void say_of_redis(struct demo *demo, const char *what) {
    char which[32] = "";
    if (demo->is_cluster && demo->killed < DEMO_MASTERS) snprintf(which, sizeof which, "master %u ", demo->killed + 1);
    snprintf(demo->redis_says, sizeof demo->redis_says, "%s%s", which, what);
}

static bool perform(struct demo *demo) {
    demo->killed = DEMO_MASTERS; /* none is killed yet */
    say_of_redis(demo, "answers");
    demo->begun_ms = moment_mono_ms();
    demo->board->sellers = demo->engines * demo->threads;
    demo->board->begun_ms = demo->begun_ms;
    bool good = true;
    for (unsigned i = 0; i < demo->engines; i++) good = worker_start(demo, i) && good;
    if (good && demo_watch(demo, KILL_MS)) {
        demo->killed = demo->is_cluster ? demo_cluster_seller(&demo->redis) : 0;
        demo_redis_kill(&demo->redis, demo->killed);
        say_of_redis(demo, "KILLED: counting goes on, and selling what was drawn");
        bool on = demo_watch(demo, RESTART_MS);
        good = demo_redis_start(&demo->redis);
        say_of_redis(demo, "is back");
        if (on && good) watch_to_the_end(demo);
    }
    return workers_end(demo) && good && books_compare(demo);
}

static int demo_with_redis(struct demo *demo) {
    bool good = demo_redis_begin(&demo->redis, demo->is_cluster ? DEMO_MASTERS : 1) && demo_redis_start(&demo->redis) &&
                (!demo->is_cluster || demo_cluster_await(&demo->redis)) && board_make(demo);
    if (good) {
        printf("%u processes, %u threads each, sell %d phones and count page views; %s of their own brings them "
               "together.\n\n",
               demo->engines, demo->threads, DEMO_STOCK,
               demo->is_cluster ? "a Redis Cluster of three masters" : "a Redis");
        good = perform(demo);
    }
    demo_redis_end(&demo->redis);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        tool_complain("cannot write the output");
        good = false;
    }
    return good ? EXIT_DONE : EXIT_TROUBLE;
}

/* A library without Redis support refuses any URL. */
static bool library_has_redis(void) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.memory_bytes_max = 1 << 20;
    options.redis_url = "unix:///nowhere/redis.sock";
    tw_status status = tw_open(&options, &engine);
    if (status == TW_OK) tw_close(engine, 0);
    return status != TW_ERR_REDIS;
}

int demo_main(int argc, char **argv) {
    struct demo demo = {.engines = 3, .threads = 4, .is_terminal = isatty(STDOUT_FILENO) == 1};
    int status = demo_read_options(argc, argv, &demo);
    if (status >= 0) return status;
    if (!stop_begin()) {
        tool_complain("cannot watch for signals: %s", strerror(errno));
        return EXIT_TROUBLE;
    }
    if (!demo.no_redis && demo_redis_is_installed() && library_has_redis()) return demo_with_redis(&demo);
    return demo_local(demo.threads * 2 > DEMO_THREADS_MAX ? DEMO_THREADS_MAX : demo.threads * 2);
}
