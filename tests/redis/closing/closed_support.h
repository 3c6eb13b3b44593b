/* closed_support.h -- processes that count, and one of which closes each window (TW_CLOSED_BY_ONE).
 * Method: a page that all processes share tells each one in which window to count (by event time, which stays open for
 * two seconds after its end). Each process writes into that page what its hook gets, so no kill can lose it.
 * Always true: process i counts i + 1 under each key of its own (one, unless a test wants more), and 1 under a key of
 * all, which has three bytes. Families have the shape that play_shape() has chosen. */
#ifndef TEST_CLOSED_SUPPORT_H
#define TEST_CLOSED_SUPPORT_H

#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

#include "engine/turn/closing.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES_MAX 4
#define CALLS_MAX 64
#define WINDOW_MS 1000
#define LATE_MS 2000
#define LONG_MS 60000

struct call {
    int process;
    int64_t start_ms, sum, of_all;
    uint32_t flags, keys;
    int64_t found; /* what tw_get_at() returns for all keys that tw_each() has shown */
    bool told;
};

struct page {
    char url[PROCESSES_MAX][128];
    int64_t life_ms, wait_ms, pause_ms;
    _Atomic uint32_t flush_ms; /* how long a process waits until Redis has what it counted; short in an outage */
    int keys;
    uint64_t tags;  /* the keys lie in so many groups, each of which is a store; 0: there is one store */
    bool odd_names; /* names begin with a zero byte, or look like a size */
    bool without_hook[PROCESSES_MAX];
    _Atomic bool refuses[PROCESSES_MAX]; /* its hook returns false */
    _Atomic bool go;
    _Atomic int ready;
    _Atomic int64_t start_ms[PROCESSES_MAX]; /* the window to count in; 0: none */
    _Atomic int counted[PROCESSES_MAX];      /* how often it has counted; -1: it came too late */
    _Atomic bool ends[PROCESSES_MAX];
    _Atomic int calls; /* places that were taken in `call`; a hook may still be writing the last ones */
    _Atomic bool is_written[CALLS_MAX];
    struct call call[CALLS_MAX];
};
static struct page *page;
static pid_t children[PROCESSES_MAX];
static int processes;
static struct redis_server *stage; /* where all of them meet */

/* ---- a process --------------------------------------------------------------------------------------------------- */

struct process {
    int number;
    tw_engine *engine;
    tw_family *family;
};

struct seen {
    struct call *call;
    tw_family *family;
};

static inline bool see(void *ctx, const tw_count *count) {
    struct seen *seen = ctx;
    int64_t view = 0;
    seen->call->sum += count->view;
    seen->call->keys++;
    if (count->key.size == 3) seen->call->of_all = count->view;
    if (tw_get_at(seen->family, count->key, count->start_ms, &view) == TW_OK) seen->call->found += view;
    return true;
}

/* page->call[at] can be read. */
static inline bool has_call(int at) {
    return at >= 0 && at < CALLS_MAX && atomic_load(&page->is_written[at]);
}

static inline bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct process *process = ctx;
    struct call call = {.process = process->number, .start_ms = start_ms, .flags = flags};
    if (tw_each(family, start_ms, see, &(struct seen){&call, family}) != TW_OK) call.sum = -1;
    call.told = !atomic_load(&page->refuses[process->number]);
    int at = atomic_load(&page->calls);
    bool again = has_call(at - 1) && !call.told && page->call[at - 1].process == call.process &&
                 page->call[at - 1].start_ms == start_ms && !page->call[at - 1].told;
    if (again) return false; /* one line for several refusals in a row */
    at = atomic_fetch_add(&page->calls, 1);
    if (at >= CALLS_MAX) return call.told;
    page->call[at] = call;
    atomic_store(&page->is_written[at], true);
    return call.told;
}

static inline tw_status count_in(const struct process *process, int64_t start_ms) {
    char own[32];
    bool is_hash = test_shape == TW_REDIS_HASH;
    tw_status status = tw_add_at(process->family, tw_str(is_hash ? "a|l" : "all"), 1, start_ms, NULL);
    for (int i = 0; i < page->keys && status == TW_OK; i++) {
        int size = snprintf(own, sizeof own, is_hash ? "own-%d-%d|f" : "own-%d-%d", process->number, i);
        if (page->odd_names) memcpy(own, i % 2 == 0 ? "\0001:" : "3:a", 3);
        status = tw_add_at(process->family, tw_bytes(own, (size_t)size), process->number + 1, start_ms, NULL);
    }
    return status;
}

static inline bool open_process(struct process *process) {
    tw_options options;
    tw_family_options family;
    quick_options(&options, page->url[process->number]);
    options.redis_timeout_ms = 500;
    if (test_open(&options, &process->engine) != TW_OK) return false;
    tw_family_options_init(&family);
    family.name = "stat";
    family.window_ms = WINDOW_MS;
    family.lateness_ms = LATE_MS;
    family.earliness_ms = LONG_MS;
    family.history_ms = LONG_MS;
    family.closed_by = TW_CLOSED_BY_ONE;
    family.redis_shape = test_shape;
    if (page->tags != 0) {
        family.redis_key = "%n:{%t}:%k:%Y%m%d%H%M%S";
        family.redis_tags = page->tags;
    }
    if (!page->without_hook[process->number]) family.on_window_closed = on_closed;
    family.closed_ctx = process;
    return tw_family_open(process->engine, &family, &process->family) == TW_OK;
}

static inline int run_process(int number) {
    struct process process = {.number = number};
    pid_t parent = getppid();
    test_tuning.closing_life_ms = page->life_ms;
    test_tuning.closing_wait_ms = page->wait_ms;
    test_tuning.closing_pause_ms = page->pause_ms;
    test_tuning.stores_by_tag = page->tags != 0;
    while (!atomic_load(&page->go) && getppid() == parent) test_sleep_ms(1);
    if (!open_process(&process)) return 2;
    atomic_fetch_add(&page->ready, 1);
    while (!atomic_load(&page->ends[number]) && getppid() == parent) {
        int64_t start_ms = atomic_exchange(&page->start_ms[number], 0);
        if (start_ms == 0) {
            test_sleep_ms(1);
            continue;
        }
        bool counted = count_in(&process, start_ms) == TW_OK;
        if (counted) (void)tw_flush(process.engine, page->flush_ms);
        atomic_store(&page->counted[number], counted ? atomic_load(&page->counted[number]) + 1 : -1);
    }
    tw_status status = tw_close(process.engine, LONG_MS);
    return status == TW_OK ? 0 : 1;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static inline bool are_ready(void *ctx) {
    return atomic_load(&page->ready) == processes;
}

/* Redis has heard of each engine. Until then an engine that leaves, or asks for a window, takes itself to be alone. */
static inline bool all_are_members(void *ctx) {
    char name[64];
    snprintf(name, sizeof name, "%s", redis_server_ask(stage, "KEYS", "tw:closers:*", NULL));
    if (name[0] == '\0') return false;
    int count = 0;
    for (const char *at = redis_server_ask(stage, "HKEYS", name, NULL); (at = strstr(at, "i:")) != NULL; at++) count++;
    return count == processes;
}

static inline void begin(int count, struct redis_server *server, int64_t life_ms, int64_t wait_ms) {
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    processes = count;
    stage = server;
    page->life_ms = life_ms;
    page->wait_ms = wait_ms;
    page->flush_ms = LONG_MS;
    page->keys = 1;
    for (int i = 0; i < PROCESSES_MAX; i++) snprintf(page->url[i], sizeof page->url[i], "%s", server->url);
}

/* Call it before this process has a thread: a lock that a thread holds, such as an allocator's, would stay locked in
 * the child. */
static inline void fork_all(void) {
    fflush(NULL);
    for (int i = 0; i < processes; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) _exit(run_process(i));
    }
}

static inline void start_all(void) {
    atomic_store(&page->go, true);
    assert_true(test_wait(are_ready, NULL, LONG_MS));
    assert_true(test_wait(all_are_members, NULL, LONG_MS));
}

static inline void start(void) {
    fork_all();
    start_all();
}

static inline void end_process(int number) {
    int status = 0;
    atomic_store(&page->ends[number], true);
    assert_int_equal(waitpid(children[number], &status, 0), children[number]);
    children[number] = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static inline void end(void) {
    for (int i = 0; i < processes; i++)
        if (children[i] != 0) end_process(i);
    munmap(page, sizeof *page);
}

static inline void kill_process(int number) {
    kill(children[number], SIGKILL);
    waitpid(children[number], NULL, 0);
    children[number] = 0;
}

static inline int64_t real_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline bool have_counted(void *ctx) {
    const int *before = ctx;
    for (int i = 0; i < processes; i++)
        if (children[i] != 0 && atomic_load(&page->counted[i]) == before[i]) return false;
    return true;
}

/* Makes all processes count in that window, and flush it. False: one came too late. */
static inline bool count_at(int64_t start_ms) {
    int before[PROCESSES_MAX];
    bool late = false;
    for (int i = 0; i < processes; i++) {
        if (atomic_load(&page->counted[i]) < 0) atomic_store(&page->counted[i], 0);
        before[i] = atomic_load(&page->counted[i]);
        atomic_store(&page->start_ms[i], start_ms);
    }
    assert_true(test_wait(have_counted, before, LONG_MS));
    for (int i = 0; i < processes; i++) late = late || (children[i] != 0 && atomic_load(&page->counted[i]) < 0);
    return !late;
}

/* Makes all count in a window that begins soon, or in a later one; returns its start. */
static inline int64_t count_all(void) {
    int64_t start_ms;
    do {
        start_ms = (real_ms() / WINDOW_MS + 1) * WINDOW_MS;
    } while (!count_at(start_ms));
    return start_ms;
}

/* ---- what was closed --------------------------------------------------------------------------------------------- */

static inline int closings_of(int64_t start_ms, struct call *last) {
    int count = 0, calls = atomic_load(&page->calls);
    assert_true(calls <= CALLS_MAX);
    for (int i = 0; i < calls; i++) {
        if (!has_call(i) || page->call[i].start_ms != start_ms || !page->call[i].told) continue;
        *last = page->call[i];
        count++;
    }
    return count;
}

/* Returns the first call for that window, also if the hook refused it, or NULL. */
static inline const struct call *first_call_of(int64_t start_ms) {
    for (int i = 0, calls = atomic_load(&page->calls); i < calls; i++)
        if (has_call(i) && page->call[i].start_ms == start_ms) return &page->call[i];
    return NULL;
}

static inline bool has_first_call(void *ctx) {
    return first_call_of(*(int64_t *)ctx) != NULL;
}

static inline bool is_closed(void *ctx) {
    struct call call;
    return closings_of(*(int64_t *)ctx, &call) != 0;
}

static inline void refuse_all(bool refuse) {
    for (int i = 0; i < processes; i++) atomic_store(&page->refuses[i], refuse);
}

/* As count_all(), and each hook refuses the window. A window for which one came too late must not be refused, for later
 * ones wait for it. */
static inline int64_t count_all_refused(void) {
    for (;;) {
        int64_t start_ms = (real_ms() / WINDOW_MS + 1) * WINDOW_MS;
        refuse_all(true);
        if (count_at(start_ms)) return start_ms;
        refuse_all(false);
        (void)test_wait(is_closed, &start_ms, 10000); /* in vain, if all came too late */
    }
}

static inline int64_t truth(void) {
    return processes + page->keys * processes * (processes + 1) / 2;
}

/* The name in Redis of the names of a window; `tag`: "", or "{*}:" for those of all tags. */
static inline void name_of_names_in(const char *tag, int64_t start_ms, char *name, size_t room) {
    time_t seconds = (time_t)(start_ms / 1000);
    struct tm utc;
    char stamp[32];
    gmtime_r(&seconds, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%d%H%M%S", &utc);
    snprintf(name, room, "tw:names:stat:%s:%s", tag, stamp);
}
static inline void name_of_names(int64_t start_ms, char *name, size_t room) {
    name_of_names_in("", start_ms, name, room);
}

/* Redis has no names of a window. They are deleted some time after the hook was called. */
static inline bool are_gone(void *ctx) {
    bool no_names = redis_server_ask(ctx, "KEYS", "tw:names*", NULL)[0] == '\0';
    return no_names && redis_server_ask(ctx, "KEYS", "tw:groups:*", NULL)[0] == '\0';
}

/* Checks that the window was closed once, with all figures. */
static inline struct call assert_closed(int64_t start_ms, int64_t sum) {
    struct call call = {0};
    assert_true(test_wait(is_closed, &start_ms, LONG_MS));
    test_sleep_ms(300); /* a second call would have come by now */
    assert_i64_equal(closings_of(start_ms, &call), 1);
    assert_i64_equal(call.flags, 0);
    if (call.sum != sum)
        print_error("process %d shows %u keys, %lld under that of all\n", call.process, call.keys,
                    (long long)call.of_all);
    assert_i64_equal(call.sum, sum);
    assert_i64_equal(call.found, sum);
    return call;
}

#endif
