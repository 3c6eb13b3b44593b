/* distinct_merge.c -- distinct counts of several engines and a real Redis: PFCOUNT answers for all engines, and so does
 * tw_distinct_get() of a key that is read. Nothing that was added is missing after a repeat, an outage, a wipe or a
 * restart of Redis, as long as the process that added it lives.
 * Method: a twin has the registers of all that was added; Redis's estimate must be that of the twin, to the unit.
 * Covers: sync/message/distinct.c, sync/script/distinct.lua, engine/turn/settle.c. */
#include "tests/redis/sync_support.h"
#include "tests/support/hll_twin.h"
#include "tests/support/proxy.h"
#include "tests/support/side_by_side.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "visitors:k"
#define KEY tw_str("k")
#define WAIT_MS 60000 /* at the very most: a machine may be busy */

static struct redis_server server;

static tw_family *visitors_in(tw_engine *engine, uint32_t window, int64_t window_ms) {
    tw_family_options options;
    tw_family *family = NULL;
    char error[256] = "";
    tw_family_options_init(&options);
    options.name = "visitors";
    options.kind = TW_KIND_DISTINCT;
    options.window = window;
    options.window_ms = window_ms;
    options.error_text = error;
    options.error_size = sizeof error;
    if (tw_family_open(engine, &options, &family) != TW_OK) fail_msg("%s", error);
    return family;
}

static tw_family *visitors(tw_engine *engine) {
    return visitors_in(engine, TW_WINDOW_FOREVER, 0);
}

/* Adds the elements `first` and the `count` - 1 after it; to the twin, too, if there is one. */
static void visit(tw_family *family, const char *key, uint64_t first, uint64_t count, struct twin *twin) {
    enum { GROUP = 256 };
    char text[GROUP][24];
    tw_key elements[GROUP];
    while (count > 0) {
        size_t part = count < GROUP ? (size_t)count : GROUP;
        for (size_t i = 0; i < part; i++) {
            elements[i] = tw_bytes(text[i], (size_t)snprintf(text[i], sizeof text[i], "visitor %" PRIu64, first + i));
            if (twin != NULL) (void)twin_add(twin, elements[i]);
        }
        assert_status(tw_distinct_add_many(family, tw_str(key), elements, part, NULL), TW_OK);
        first += part;
        count -= part;
    }
}

static int64_t pfcount(const char *name) {
    return atoll(redis_server_ask(&server, "PFCOUNT", name, NULL));
}

struct want {
    tw_family *family;
    int64_t estimate;
};

static bool shows(void *ctx) {
    struct want *want = ctx;
    int64_t estimate = -1;
    return tw_distinct_get(want->family, KEY, &estimate) == TW_OK && estimate == want->estimate;
}
static bool redis_shows(void *ctx) {
    struct want *want = ctx;
    return pfcount(NAME) == want->estimate;
}

static void await_all(tw_family *family, const struct twin *twin) {
    struct want want = {family, twin_estimate(twin)};
    if (!test_wait(redis_shows, &want, WAIT_MS))
        fail_msg("Redis estimates %lld, not %lld", (long long)pfcount(NAME), (long long)want.estimate);
    if (family != NULL && !test_wait(shows, &want, WAIT_MS)) {
        int64_t estimate = -1;
        (void)tw_distinct_get(family, KEY, &estimate);
        fail_msg("the engine estimates %lld, not %lld", (long long)estimate, (long long)want.estimate);
    }
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

/* Goal: at each size Redis and both engines have the estimate of all elements, to the unit. TW_SCALE=1000: ten million
 * elements. */
TEST(two_engines_and_redis_have_one_estimate) {
    static struct twin twin;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *of_a = visitors(a), *of_b = visitors(b);
    uint64_t most = test_scale(1000000), added = 0;
    memset(&twin, 0, sizeof twin);
    for (uint64_t upto = 1; upto <= most; upto *= upto == 10000 ? 100 : 10) {
        uint64_t more = upto - added, half = (more + 1) / 2;
        visit(of_a, "k", added, half, &twin);
        visit(of_b, "k", added + half, more - half, &twin);
        visit(of_b, "k", added, half / 2, &twin); /* both have some */
        added = upto;
        assert_status(tw_flush(a, WAIT_MS), TW_OK);
        assert_status(tw_flush(b, WAIT_MS), TW_OK);
        assert_i64_equal(pfcount(NAME), twin_estimate(&twin));
        await_all(of_a, &twin);
        await_all(of_b, &twin);
    }
    assert_string_equal(redis_server_ask(&server, "KEYS", "tw:merge:*", NULL), "");
    assert_i64_equal(test_stat_of(a, lost) + test_stat_of(a, uncertain) + test_stat_of(a, rollbacks), 0);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(pfcount(NAME), twin_estimate(&twin));
    redis_server_destroy(&server);
}

/* Goal: what Redis's own PFADD has added stays, and is seen by the engine; a key that is only read here, too. */
TEST(what_pfadd_wrote_is_joined) {
    static struct twin twin;
    int64_t estimate = -1;
    redis_server_start(&server, NULL);
    memset(&twin, 0, sizeof twin);
    redis_server_ask(&server, "PFADD", NAME, "ann", "bob", "eve", NULL);
    (void)twin_add(&twin, tw_str("ann")), (void)twin_add(&twin, tw_str("bob")), (void)twin_add(&twin, tw_str("eve"));
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = visitors(engine);
    assert_status(tw_distinct_get(family, KEY, &estimate), TW_OK);
    await_all(family, &twin);
    visit(family, "k", 0, 100, &twin);
    assert_status(tw_flush(engine, WAIT_MS), TW_OK);
    await_all(family, &twin);
    redis_server_ask(&server, "PFADD", NAME, "joe", NULL);
    (void)twin_add(&twin, tw_str("joe"));
    await_all(family, &twin);
    assert_status(tw_distinct_get(family, tw_str("nobody"), &estimate), TW_OK);
    assert_i64_equal(estimate, 0);
    assert_status(tw_flush(engine, WAIT_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "EXISTS", "visitors:nobody", NULL), "0"); /* reading makes no key */
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

static int64_t left_ms_of(const char *pattern) {
    char name[128];
    snprintf(name, sizeof name, "%s", redis_server_ask(&server, "KEYS", pattern, NULL));
    return atoll(redis_server_ask(&server, "PTTL", name, NULL));
}

/* Goal: a key expires as a counter's does, also if it has lost its expiry. */
TEST(each_key_expires) {
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = visitors_in(engine, TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    visit(family, "k", 0, 10, NULL);
    assert_status(tw_add(family_of(engine, "views", TW_WINDOW_ALIGNED, LONG_WINDOW_MS), KEY, 1, NULL), TW_OK);
    assert_status(tw_flush(engine, WAIT_MS), TW_OK);
    int64_t left_ms = left_ms_of("visitors:k:*"), of_counter_ms = left_ms_of("views:k:*");
    assert_true(left_ms > TW_DAY && llabs(left_ms - of_counter_ms) < WAIT_MS);
    char name[128];
    snprintf(name, sizeof name, "%s", redis_server_ask(&server, "KEYS", "visitors:k:*", NULL));
    redis_server_ask(&server, "PERSIST", name, NULL);
    visit(family, "k", 10, 10, NULL);
    assert_status(tw_flush(engine, WAIT_MS), TW_OK);
    assert_true(left_ms_of("visitors:k:*") > TW_DAY);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- what Redis refuses ------------------------------------------------------------------------------------------ */

/* Goal: a key that holds something else is left alone; its counter waits, with one log line, and others continue. */
TEST(a_foreign_value_stays_and_its_counter_waits) {
    static const char *const foreign[] = {"7", "HYLL\x01 this is no sketch at all"};
    for (int i = 0; i < 2; i++) {
        static struct twin twin;
        struct log_lines lines = {.text = ""};
        tw_options options;
        tw_engine *engine;
        redis_server_start(&server, NULL);
        memset(&twin, 0, sizeof twin);
        redis_server_ask(&server, "SET", NAME, foreign[i], NULL);
        quick_options(&options, server.url);
        options.log_write = on_log;
        options.log_ctx = &lines;
        assert_status(test_open(&options, &engine), TW_OK);
        tw_family *family = visitors(engine);
        visit(family, "k", 0, 20, &twin);
        visit(family, "other", 0, 20, NULL);
        assert_status(tw_flush(engine, WAIT_MS), TW_ERR_REDIS);
        visit(family, "k", 20, 1, &twin);
        assert_i64_equal(pfcount("visitors:other"), 20);
        assert_string_equal(redis_server_ask(&server, "GET", NAME, NULL), foreign[i]);
        assert_i64_equal(test_stat_of(engine, poison_keys), 1);
        redis_server_ask(&server, "DEL", NAME, NULL);
        await_all(family, &twin);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        const char *line = strstr(lines.text, "Redis refuses the key visitors:k");
        assert_true(line != NULL && strstr(line + 1, "Redis refuses the key") == NULL);
        redis_server_destroy(&server);
    }
}

/* ---- what Redis loses -------------------------------------------------------------------------------------------- */

/* Goal: after FLUSHALL and after a restart without its data Redis has again all that the engines hold, also of keys
 * that no thread adds to any more. */
TEST(a_redis_that_forgot_gets_everything_again) {
    static struct twin twin;
    redis_server_start(&server, NULL);
    memset(&twin, 0, sizeof twin);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *of_a = visitors(a), *of_b = visitors(b);
    visit(of_a, "k", 0, 3000, &twin);
    visit(of_b, "k", 2000, 3000, &twin);
    assert_status(tw_flush(a, WAIT_MS), TW_OK);
    assert_status(tw_flush(b, WAIT_MS), TW_OK);
    await_all(NULL, &twin);
    redis_server_ask(&server, "FLUSHALL", NULL);
    visit(of_a, "other", 0, 1, NULL); /* the next message shows the wipe; an idle engine looks within 30 s */
    visit(of_b, "other", 0, 1, NULL);
    await_all(NULL, &twin);
    redis_server_kill(&server);
    redis_server_restart(&server);
    await_all(of_a, &twin);
    await_all(of_b, &twin);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

struct closed {
    struct fake_clock clock;
    _Atomic int64_t view;
};

static bool take_view(void *ctx, const tw_count *count) {
    struct closed *closed = ctx;
    if (count->key.size == 1) atomic_store(&closed->view, count->view);
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)end_ms, (void)flags;
    (void)tw_each(family, start_ms, take_view, ctx);
    return true;
}

/* Time passes only here. */
static bool was_closed(void *ctx) {
    struct closed *closed = ctx;
    fake_clock_advance_ms(&closed->clock, 5);
    return atomic_load(&closed->view) != 0;
}
static bool was_merged(void *ctx) {
    struct closed *closed = ctx;
    fake_clock_advance_ms(&closed->clock, 5);
    return *redis_server_ask(&server, "KEYS", "visitors:k:*", NULL) != '\0';
}

/* Goal: the hook of a window that is over shows the estimate of all engines; so does the window in history. */
TEST(a_window_that_is_over_shows_the_union) {
    struct closed closed = {.view = 0};
    int64_t estimate = 0;
    redis_server_start(&server, NULL);
    tw_options options;
    tw_engine *engine;
    quick_options(&options, server.url);
    fake_clock_init(&closed.clock, 1795262400000);
    fake_clock_install(&closed.clock, &options);
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family_options how;
    tw_family *family;
    tw_family_options_init(&how);
    how.name = "visitors";
    how.kind = TW_KIND_DISTINCT;
    how.window_ms = TW_MINUTE;
    how.history_ms = TW_HOUR;
    how.on_window_closed = on_closed;
    how.closed_ctx = &closed;
    assert_status(tw_family_open(engine, &how, &family), TW_OK);
    visit(family, "k", 0, 10, NULL);
    assert_true(test_wait(was_merged, &closed, WAIT_MS));
    char name[128];
    snprintf(name, sizeof name, "%s", redis_server_ask(&server, "KEYS", "visitors:k:*", NULL));
    redis_server_ask(&server, "PFADD", name, "ann", "bob", NULL); /* as another engine would */
    fake_clock_advance_ms(&closed.clock, TW_MINUTE);
    assert_true(test_wait(was_closed, &closed, WAIT_MS));
    assert_i64_equal(atomic_load(&closed.view), 12);
    assert_status(tw_distinct_get_at(family, KEY, 1795262400000, &estimate), TW_OK);
    assert_i64_equal(estimate, 12);
    assert_status(tw_close(engine, 0), TW_OK);
    redis_server_destroy(&server);
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

#define PROCESSES 4
#define PART 2000u /* elements of one process in one half; neighbours share a quarter of them */

struct page {
    char url[128];
    _Atomic int half;                /* to be added now */
    _Atomic int flushed[PROCESSES];  /* the last half that Redis has acknowledged */
    _Atomic int64_t seen[PROCESSES]; /* what the process estimates now */
};

static uint64_t first_of(int process, int half) {
    return (uint64_t)half * 1000000 + (uint64_t)process * (PART - PART / 4);
}

static int live(struct page *page, int process) {
    while (atomic_load(&page->half) == 0) test_sleep_ms(1);
    tw_options options;
    tw_engine *engine;
    quick_options(&options, page->url);
    options.redis_timeout_ms = 300;
    if (test_open(&options, &engine) != TW_OK) return 2;
    tw_family *family = visitors(engine);
    int64_t estimate = 0;
    for (int half = 1; atomic_load(&page->half) != 0;) {
        if (half <= atomic_load(&page->half)) {
            for (uint64_t i = 0; i < PART; i += 100) {
                visit(family, "k", first_of(process, half) + i, 100, NULL);
                test_sleep_ms(2);
            }
            while (tw_flush(engine, 600) != TW_OK) continue;
            atomic_store(&page->flushed[process], half++);
        }
        if (tw_distinct_get(family, KEY, &estimate) == TW_OK) atomic_store(&page->seen[process], estimate);
        test_sleep_ms(2);
    }
    return tw_close(engine, 5000) == TW_OK ? 0 : 1;
}

struct halves {
    struct page *page;
    int half, processes;
    int64_t estimate;
};

static bool all_are_through(void *ctx) {
    const struct halves *halves = ctx;
    for (int i = 0; i < halves->processes; i++)
        if (atomic_load(&halves->page->flushed[i]) < halves->half) return false;
    return true;
}

/* The union of what the first `processes` add in that half. */
static void know(struct twin *twin, int half, int processes) {
    char text[24];
    for (int process = 0; process < processes; process++)
        for (uint64_t i = 0; i < PART; i++)
            (void)twin_add(twin, tw_bytes(text, (size_t)snprintf(text, sizeof text, "visitor %" PRIu64,
                                                                 first_of(process, half) + i)));
}

static bool all_see_it(void *ctx) {
    const struct halves *halves = ctx;
    for (int i = 0; i < halves->processes; i++)
        if (atomic_load(&halves->page->seen[i]) != halves->estimate) return false;
    return true;
}

static void await_half(struct halves *halves, const struct twin *twin) {
    halves->estimate = twin_estimate(twin);
    assert_true(test_wait(all_are_through, halves, WAIT_MS));
    await_all(NULL, twin);
    if (!test_wait(all_see_it, halves, WAIT_MS))
        fail_msg("one process sees %lld, not %lld", (long long)halves->page->seen[0], (long long)halves->estimate);
}

/* Goal: four processes count while replies and requests are lost, Redis is killed and comes back empty, and one process
 * is killed. In the end Redis and all others have the union, to the unit. */
TEST(four_processes_have_one_union) {
    static struct twin twin;
    struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    struct halves halves = {page, 1, PROCESSES, 0};
    pid_t children[PROCESSES];
    redis_server_start(&server, NULL);
    memset(&twin, 0, sizeof twin);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = test_fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) _exit(live(page, i)); /* before this process has a thread */
    }
    struct proxy *proxy = proxy_start(&server, test_seed());
    snprintf(page->url, sizeof page->url, "%s", proxy_url(proxy));
    atomic_store(&page->half, 1);
    proxy_chance(proxy, PROXY_DROP_REPLY, 800);
    proxy_chance(proxy, PROXY_DROP_REQUEST, 400);
    proxy_chance(proxy, PROXY_HOLD, 400);
    proxy_chance(proxy, PROXY_TWICE, 100);
    test_sleep_ms(60);
    redis_server_kill(&server);
    test_sleep_ms(20);
    redis_server_restart(&server);
    know(&twin, 1, PROCESSES);
    await_half(&halves, &twin);
    assert_int_equal(kill(children[PROCESSES - 1], SIGKILL), 0);
    assert_int_equal(waitpid(children[PROCESSES - 1], NULL, 0), children[PROCESSES - 1]);
    halves = (struct halves){page, 2, PROCESSES - 1, 0};
    atomic_store(&page->half, 2);
    know(&twin, 2, PROCESSES - 1);
    await_half(&halves, &twin);
    for (int fault = PROXY_DROP_REQUEST; fault < PROXY_FAULTS; fault++) proxy_chance(proxy, (enum proxy_fault)fault, 0);
    atomic_store(&page->half, 0);
    for (int i = 0; i < PROCESSES - 1; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    await_all(NULL, &twin);
    proxy_stop(proxy);
    redis_server_destroy(&server);
    munmap(page, sizeof *page);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
