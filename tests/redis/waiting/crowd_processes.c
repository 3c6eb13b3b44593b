/* crowd_processes.c -- two processes with many threads, little time and one limit: a crowd, or a process that gets
 * hardly any processor, is no outage, so the limit of the two together is never passed.
 * Method: on_outage is TW_OUTAGE_LOCAL, the default, by which each process alone would admit the whole limit. The
 * starved processes have the least priority, beside programs that calculate. The server has a normal one.
 * Always true: each process counts what it admits in a page that all share. A server that got no processor itself,
 * so that it does not answer the test either, may be taken for one that is away: such a run is left out, and so is one
 * whose buyers got less of the processors than they need to reach the limit.
 * Covers: sync/ask/link.c, sync/ask/dispatcher.c. */
#include "tests/redis/sync_support.h"
#include "tests/support/children.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PROCESSES 2
#define THREADS_MAX 250
#define CALCULATING 4
#define LIMIT 3000
#define SECONDS 300    /* of a child, which the test ends long before, whoever else works on the machine */
#define SILENCE_MS 150 /* half of the silence that makes an outage for such calls (sync/ask/link.c) */
#define MORE_MS 300    /* for so long the processes go on when the limit is spent */
#define NEED_MS 3000   /* of processors, more than the buyers of a run use until then */

struct crowd {
    const char *url;
    int threads;
    uint32_t timeout_ms;
    bool is_starved;
};

struct page {
    _Atomic bool stops;
    _Atomic int64_t outage_ms; /* when a call was decided by outage first; 0 if none was */
    _Atomic int64_t admitted, by_redis, by_outage, denied, refused;
};
static struct page *page;

struct buyer {
    pthread_t thread;
    tw_family *family;
};

static void *buy(void *arg) {
    struct buyer *buyer = arg;
    while (!atomic_load(&page->stops)) {
        tw_verdict verdict = {0};
        tw_status status = tw_acquire(buyer->family, tw_str("k"), 1, LIMIT, &verdict);
        bool is_decided = status == TW_OK || status == TW_DENIED;
        atomic_fetch_add(&page->admitted, status == TW_OK);
        atomic_fetch_add(&page->denied, status == TW_DENIED);
        atomic_fetch_add(&page->refused, !is_decided);
        atomic_fetch_add(&page->by_redis, is_decided && verdict.decided_by == TW_BY_REDIS);
        bool is_outage = is_decided && verdict.decided_by == TW_BY_OUTAGE;
        if (is_outage && atomic_fetch_add(&page->by_outage, 1) == 0) atomic_store(&page->outage_ms, test_mono_ms());
    }
    return NULL;
}

static void work(const struct crowd *crowd) {
    static struct buyer buyers[THREADS_MAX];
    tw_options options;
    tw_engine *engine;
    if (crowd->is_starved) (void)setpriority(PRIO_PROCESS, 0, 19);
    tw_options_init(&options);
    options.redis_url = crowd->url;
    options.redis_timeout_ms = crowd->timeout_ms;
    options.memory_bytes_max = 64 << 20;
    if (test_open(&options, &engine) != TW_OK) _exit(2);
    tw_family_options family = plain_family_options("sale", TW_WINDOW_FOREVER, 0);
    family.limit_mode = TW_LIMIT_STRICT;
    for (int i = 0; i < crowd->threads; i++) {
        buyers[i].family = i == 0 ? opened_family(engine, family) : buyers[0].family;
        if (pthread_create(&buyers[i].thread, NULL, buy, &buyers[i]) != 0) _exit(3);
    }
    for (int i = 0; i < crowd->threads; i++) pthread_join(buyers[i].thread, NULL);
    _exit(tw_close(engine, TEST_PATIENCE_MS) == TW_OK ? 0 : 1);
}

/* What the test asks the server itself. */
struct watch {
    struct redis_server *server;
    int64_t spent, longest_ms; /* the longest time without an answer, before a call was decided by outage */
};

static bool is_spent(void *ctx) {
    struct watch *watch = ctx;
    int64_t began_ms = test_mono_ms();
    watch->spent = redis_server_get(watch->server, "sale:k");
    int64_t ended_ms = test_mono_ms(), outage_ms = atomic_load(&page->outage_ms);
    if (outage_ms != 0 && outage_ms < ended_ms) ended_ms = outage_ms;
    if (ended_ms - began_ms > watch->longest_ms) watch->longest_ms = ended_ms - began_ms;
    return watch->spent >= LIMIT;
}

static bool never(void *ctx) {
    (void)is_spent(ctx);
    return false;
}

static void calculate(void) {
    for (volatile uint64_t turns = 0;; turns++) continue;
}

#define TOO_BUSY "a processor for each: run it on a machine with less load"

/* Two such processes buy, with programs that calculate beside them if they are to starve. Returns false if the limit
 * was passed and the server had no processor, or if it was not reached and the buyers had none. */
static bool two_buy(struct crowd *crowd) {
    struct redis_server server;
    pid_t buyers[PROCESSES], others[CALCULATING];
    redis_server_start(&server, NULL);
    page = children_pages(sizeof *page);
    crowd->url = server.url;
    for (int i = 0; i < CALCULATING && crowd->is_starved; i++)
        if ((others[i] = child_fork(SECONDS)) == 0) calculate();
    for (int i = 0; i < PROCESSES; i++)
        if ((buyers[i] = child_fork(SECONDS)) == 0) work(crowd);
    struct watch watch = {.server = &server};
    bool is_reached = test_wait(is_spent, &watch, TEST_PATIENCE_MS);
    (void)test_wait(never, &watch, MORE_MS);
    int64_t used_ms = 0;
    for (int i = 0; i < PROCESSES; i++) used_ms += child_processor_ms(buyers[i]);
    atomic_store(&page->stops, true);
    for (int i = 0; i < CALCULATING && crowd->is_starved; i++) child_kill(others[i]);
    for (int i = 0; i < PROCESSES; i++) child_expect_end(buyers[i]);
    print_message("# %d threads, %d ms%s: %d of %d admitted; %d by Redis, %d by outage, %d denied, %d refused; the "
                  "server needed up to %d ms, the buyers %d ms of processors\n",
                  crowd->threads, (int)crowd->timeout_ms, crowd->is_starved ? ", starved" : "", (int)page->admitted,
                  LIMIT, (int)page->by_redis, (int)page->by_outage, (int)page->denied, (int)page->refused,
                  (int)watch.longest_ms, (int)used_ms);
    bool is_kept = page->admitted <= LIMIT;
    int64_t longest_ms = watch.longest_ms;
    munmap(page, sizeof *page);
    redis_server_destroy(&server);
    assert_true(is_kept || longest_ms >= SILENCE_MS);
    assert_true(is_reached || used_ms < NEED_MS);
    return is_kept && is_reached;
}

/* Goal: many threads of two processes, each call with 20 ms, never pass the limit. */
TEST(five_hundred_threads_pass_no_limit) {
    if (!two_buy(&(struct crowd){.threads = 250, .timeout_ms = 20})) test_leave_out(TOO_BUSY);
}

/* Goal: nor do calls with 5 ms, which a normal machine often answers later. */
TEST(short_calls_pass_no_limit) {
    if (!two_buy(&(struct crowd){.threads = 64, .timeout_ms = 5})) test_leave_out(TOO_BUSY);
}

/* Goal: nor do many threads of processes that get hardly any processor. */
TEST(starved_threads_pass_no_limit) {
    if (!two_buy(&(struct crowd){.threads = 250, .timeout_ms = 20, .is_starved = true})) test_leave_out(TOO_BUSY);
}

/* Goal: nor do short calls of such processes. */
TEST(starved_short_calls_pass_no_limit) {
    if (!two_buy(&(struct crowd){.threads = 64, .timeout_ms = 5, .is_starved = true})) test_leave_out(TOO_BUSY);
}

int main(void) {
    if (test_is_slow())
        test_skip_program(
            "five hundred threads starve all other tests under a sanitizer: a build without one runs this");
    redis_server_require();
    return test_run();
}
