/* closed_by_one.c -- TW_CLOSED_BY_ONE by real processes: each window is closed by one of them, with the figures of all, whoever dies,
 * sleeps or is cut off, and whatever Redis forgets.
 * Method: each process is told, through a page that all share, in which window to count (by event time, which stays open for two
 * seconds after its end), and writes into that page what its hook is shown: so no kill can lose it.
 * Always true: process i counts i + 1 under a key of its own, and 1 under a key of all. */
#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

#include "engine/closing.h"

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
    int64_t found; /* what tw_get_at() says of all keys that tw_each() has shown */
    bool told;
};

struct page {
    char url[PROCESSES_MAX][128];
    int64_t life_ms, wait_ms;
    bool without_hook[PROCESSES_MAX];
    _Atomic bool refuses[PROCESSES_MAX]; /* its hook answers false */
    _Atomic int ready;
    _Atomic int64_t start_ms[PROCESSES_MAX]; /* the window to count in; 0: none */
    _Atomic int counted[PROCESSES_MAX];      /* how often it has; -1: it came too late */
    _Atomic bool ends[PROCESSES_MAX];
    _Atomic int calls;
    struct call call[CALLS_MAX];
};
static struct page *page;
static pid_t children[PROCESSES_MAX];
static int processes;

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

static bool see(void *ctx, const tw_count *count) {
    struct seen *seen = ctx;
    int64_t view = 0;
    seen->call->sum += count->view;
    seen->call->keys++;
    if (count->key.size == 3) seen->call->of_all = count->view;
    if (tw_get_at(seen->family, count->key, count->start_ms, &view) == TW_OK) seen->call->found += view;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct process *process = ctx;
    struct call call = {.process = process->number, .start_ms = start_ms, .flags = flags};
    (void)end_ms;
    if (tw_each(family, start_ms, see, &(struct seen){&call, family}) != TW_OK) call.sum = -1;
    call.told = !atomic_load(&page->refuses[process->number]);
    int at = atomic_load(&page->calls);
    bool again = at > 0 && !call.told && page->call[at - 1].process == call.process && !page->call[at - 1].told;
    if (again) return false; /* one line for a row of refusals */
    at = atomic_fetch_add(&page->calls, 1);
    if (at < CALLS_MAX) page->call[at] = call;
    return call.told;
}

static tw_status count_in(const struct process *process, int64_t start_ms) {
    char own[8];
    snprintf(own, sizeof own, "own-%d", process->number);
    tw_status status = tw_add_at(process->family, tw_str("all"), 1, start_ms, NULL);
    if (status != TW_OK) return status;
    return tw_add_at(process->family, tw_str(own), process->number + 1, start_ms, NULL);
}

static bool open_process(struct process *process) {
    tw_options options;
    tw_family_options family;
    quick_options(&options, page->url[process->number]);
    options.redis_timeout_ms = 500;
    if (tw_open(&options, &process->engine) != TW_OK) return false;
    tw_family_options_init(&family);
    family.name = "stat";
    family.window_ms = WINDOW_MS;
    family.lateness_ms = LATE_MS;
    family.earliness_ms = LONG_MS;
    family.history_ms = LONG_MS;
    family.closed_by = TW_CLOSED_BY_ONE;
    if (!page->without_hook[process->number]) family.on_window_closed = on_closed;
    family.closed_ctx = process;
    return tw_family_open(process->engine, &family, &process->family) == TW_OK;
}

static int run_process(int number) {
    struct process process = {.number = number};
    pid_t parent = getppid();
    atomic_store(&twi_close_life_ms, page->life_ms);
    atomic_store(&twi_close_wait_ms, page->wait_ms);
    if (!open_process(&process)) return 2;
    atomic_fetch_add(&page->ready, 1);
    while (!atomic_load(&page->ends[number]) && getppid() == parent) {
        int64_t start_ms = atomic_exchange(&page->start_ms[number], 0);
        if (start_ms == 0) {
            test_sleep_ms(1);
            continue;
        }
        bool counted = count_in(&process, start_ms) == TW_OK;
        if (counted) (void)tw_flush(process.engine, 1000);
        atomic_store(&page->counted[number], counted ? atomic_load(&page->counted[number]) + 1 : -1);
    }
    tw_status status = tw_close(process.engine, 20000);
    return status == TW_OK ? 0 : 1;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static bool are_ready(void *ctx) {
    (void)ctx;
    return atomic_load(&page->ready) == processes;
}

static void begin(int count, const char *url, int64_t life_ms, int64_t wait_ms) {
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    processes = count;
    page->life_ms = life_ms;
    page->wait_ms = wait_ms;
    for (int i = 0; i < PROCESSES_MAX; i++) snprintf(page->url[i], sizeof page->url[i], "%s", url);
}

static void start(void) {
    fflush(NULL);
    for (int i = 0; i < processes; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) _exit(run_process(i));
    }
    assert_true(test_wait(are_ready, NULL, LONG_MS));
}

static void end_process(int number) {
    int status = 0;
    atomic_store(&page->ends[number], true);
    assert_int_equal(waitpid(children[number], &status, 0), children[number]);
    children[number] = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void end(void) {
    for (int i = 0; i < processes; i++)
        if (children[i] != 0) end_process(i);
    munmap(page, sizeof *page);
}

static void kill_process(int number) {
    kill(children[number], SIGKILL);
    waitpid(children[number], NULL, 0);
    children[number] = 0;
}

static int64_t real_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool have_counted(void *ctx) {
    const int *before = ctx;
    for (int i = 0; i < processes; i++)
        if (children[i] != 0 && atomic_load(&page->counted[i]) == before[i]) return false;
    return true;
}

/* All count in that window. False: one came too late. */
static bool count_at(int64_t start_ms) {
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

/* In one that begins soon, or in one after that; its start. */
static int64_t count_all(void) {
    int64_t start_ms;
    do {
        start_ms = (real_ms() / WINDOW_MS + 1) * WINDOW_MS;
    } while (!count_at(start_ms));
    return start_ms;
}

/* ---- what was closed --------------------------------------------------------------------------------------------- */

static int closings_of(int64_t start_ms, struct call *last) {
    int count = 0, calls = atomic_load(&page->calls);
    assert_true(calls <= CALLS_MAX);
    for (int i = 0; i < calls; i++) {
        if (page->call[i].start_ms != start_ms || !page->call[i].told) continue;
        *last = page->call[i];
        count++;
    }
    return count;
}

static bool is_closed(void *ctx) {
    struct call call;
    return closings_of(*(int64_t *)ctx, &call) != 0;
}

static int64_t truth(void) {
    return processes + processes * (processes + 1) / 2;
}

/* Closed once, with all figures. */
static struct call assert_closed(int64_t start_ms, int64_t sum) {
    struct call call = {0};
    assert_true(test_wait(is_closed, &start_ms, LONG_MS));
    test_sleep_ms(300); /* a second one would have come */
    assert_i64_equal(closings_of(start_ms, &call), 1);
    assert_i64_equal(call.flags, 0);
    assert_i64_equal(call.sum, sum);
    assert_i64_equal(call.found, sum);
    return call;
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static void one_process_closes_each_window_with_the_figures_of_all(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, server.url, 30000, LONG_MS);
    start();
    for (int round = 0; round < 3; round++) {
        struct call call = assert_closed(count_all(), truth());
        assert_i64_equal(call.keys, 4);
        assert_i64_equal(call.of_all, 3);
    }
    assert_string_equal(redis_server_ask(&server, "KEYS", "tw:names:*", NULL), "");
    end();
    redis_server_destroy(&server);
}

static bool has_call(void *ctx) {
    return atomic_load(&page->calls) > *(int *)ctx;
}

static void refuse_all(bool refuses) {
    for (int i = 0; i < processes; i++) atomic_store(&page->refuses[i], refuses);
}

/* Goal: the one that was chosen is killed before its hook has answered true: another is chosen when its claim is over, and shows all the
 * same, the keys of the dead one included. */
static void the_chosen_one_is_killed_and_another_follows(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, server.url, 4000, LONG_MS);
    start();
    refuse_all(true);
    int none = 0;
    int64_t start_ms = count_all(), sum = truth();
    assert_true(test_wait(has_call, &none, LONG_MS));
    int dead = page->call[0].process;
    assert_i64_equal(page->call[0].sum, sum);
    kill_process(dead);
    refuse_all(false);
    struct call call = assert_closed(start_ms, sum);
    assert_int_not_equal(call.process, dead);
    end();
    redis_server_destroy(&server);
}

/* Goal: a process that sleeps is waited for no longer than a word of its lives, and closes nothing again when it wakes. */
static void a_sleeper_is_not_waited_for_for_ever(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, server.url, 4000, LONG_MS);
    start();
    int64_t start_ms = count_all(), closed_ms = start_ms;
    kill(children[1], SIGSTOP);
    assert_true(test_wait(is_closed, &closed_ms, LONG_MS));
    kill(children[1], SIGCONT);
    test_sleep_ms(2500);
    struct call call = {0};
    assert_i64_equal(closings_of(start_ms, &call), 1);
    assert_i64_equal(call.flags, 0);
    assert_i64_equal(call.of_all, 3);
    assert_int_not_equal(call.process, 1);
    assert_closed(count_all(), truth());
    end();
    redis_server_destroy(&server);
}

/* Goal: what one has counted and could not send holds the window up; when it is there, the figures are whole.
 * Method: a proxy between it and Redis; the others have drained long before. */
static void an_engine_that_is_cut_off_holds_the_window_up(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, server.url, 30000, LONG_MS);
    struct proxy *proxy = proxy_start(&server, 1); /* a thread; the children use none of it but its port */
    snprintf(page->url[2], sizeof page->url[2], "%s", proxy_url(proxy));
    start();
    assert_closed(count_all(), truth());
    proxy_manner(proxy, PROXY_SILENT);
    proxy_cut_all(proxy);
    int64_t start_ms = count_all();
    int64_t sealed_ms = start_ms + WINDOW_MS + LATE_MS, wait_ms = sealed_ms + 2000 - real_ms();
    if (wait_ms > 0) test_sleep_ms(wait_ms);
    struct call call;
    assert_i64_equal(closings_of(start_ms, &call), 0);
    proxy_manner(proxy, PROXY_OPEN);
    assert_closed(start_ms, truth());
    end();
    proxy_stop(proxy);
    redis_server_destroy(&server);
}

static bool all_have_closed(void *ctx) {
    struct call call;
    return closings_of(*(int64_t *)ctx, &call) >= processes;
}

/* Goal: Redis away for longer than the wait: each hook gets its own figures, marked so, once; and nothing again when Redis is back. */
static void in_an_outage_each_closes_with_its_own_figures(void **state) {
    (void)state;
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct redis_server server;
    redis_server_start(&server, durable);
    begin(3, server.url, 30000, 1500);
    start();
    assert_closed(count_all(), truth());
    int before = atomic_load(&page->calls);
    redis_server_kill(&server);
    int64_t start_ms = count_all();
    assert_true(test_wait(all_have_closed, &start_ms, LONG_MS));
    redis_server_restart(&server);
    test_sleep_ms(3000);
    assert_i64_equal(atomic_load(&page->calls), before + 3);
    for (int i = before; i < before + 3; i++) {
        assert_i64_equal(page->call[i].flags, TW_CLOSED_LOCAL);
        assert_i64_equal(page->call[i].sum, page->call[i].process + 2);
    }
    assert_closed(count_all(), truth());
    end();
    redis_server_destroy(&server);
}

/* Goal: Redis is wiped while a window that two have drained waits for the third: they tell it all again before one is chosen. */
static void a_wiped_redis_is_told_everything_before_one_is_chosen(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, server.url, 6000, LONG_MS);
    start();
    int64_t start_ms = count_all();
    kill(children[1], SIGSTOP);
    int64_t wait_ms = start_ms + WINDOW_MS + LATE_MS + 700 - real_ms();
    if (wait_ms > 0) test_sleep_ms(wait_ms);
    redis_server_ask(&server, "FLUSHALL", NULL);
    kill(children[1], SIGCONT);
    assert_closed(start_ms, truth());
    end();
    redis_server_destroy(&server);
}

/* Goal: keys of a process without a hook are in the figures of the one that has one. */
static void a_process_without_a_hook_takes_part(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, server.url, 30000, LONG_MS);
    page->without_hook[0] = page->without_hook[2] = true;
    start();
    struct call call = assert_closed(count_all(), truth());
    assert_int_equal(call.process, 1);
    assert_i64_equal(call.keys, 4);
    end();
    redis_server_destroy(&server);
}

/* Goal: a hook that answers false for longer than the wait leaves the window to another engine's. */
static void a_hook_that_never_will_leaves_it_to_another(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(2, server.url, 30000, 2000);
    start();
    atomic_store(&page->refuses[0], true);
    for (int round = 0; round < 2; round++) { /* it is not always chosen first */
        struct call call = assert_closed(count_all(), truth());
        assert_int_equal(call.process, 1);
    }
    atomic_store(&page->refuses[0], false);
    end();
    redis_server_destroy(&server);
}

/* Goal: an engine that is closed in mid-window leaves it to the others, its keys included; the last one is told that it was cut short. */
static void who_leaves_in_mid_window_leaves_it_to_the_others(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, server.url, 30000, LONG_MS);
    start();
    int64_t start_ms = (real_ms() / WINDOW_MS + 6) * WINDOW_MS;
    while (!count_at(start_ms)) start_ms += 5 * WINDOW_MS;
    end_process(0);
    struct call call = assert_closed(start_ms, truth());
    assert_i64_equal(call.keys, 4);
    end();
    redis_server_destroy(&server);
}

/* Goal: the last one that leaves in mid-window is told of it, that it was cut short, with the figures of all; who comes after it closes
 * it all the same. */
static void the_last_to_leave_is_told_that_it_was_cut_short(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(2, server.url, 30000, LONG_MS);
    start();
    int64_t start_ms = (real_ms() / WINDOW_MS + 30) * WINDOW_MS;
    assert_true(count_at(start_ms));
    end_process(0);
    end_process(1);
    assert_int_equal(atomic_load(&page->calls), 1);
    assert_i64_equal(page->call[0].start_ms, start_ms);
    assert_i64_equal(page->call[0].flags, TW_CLOSED_PARTIAL);
    assert_int_equal(page->call[0].process, 1);
    assert_i64_equal(page->call[0].sum, truth());
    end();
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_closes_each_window_with_the_figures_of_all),
        cmocka_unit_test(the_chosen_one_is_killed_and_another_follows),
        cmocka_unit_test(a_sleeper_is_not_waited_for_for_ever),
        cmocka_unit_test(an_engine_that_is_cut_off_holds_the_window_up),
        cmocka_unit_test(in_an_outage_each_closes_with_its_own_figures),
        cmocka_unit_test(a_wiped_redis_is_told_everything_before_one_is_chosen),
        cmocka_unit_test(a_process_without_a_hook_takes_part),
        cmocka_unit_test(a_hook_that_never_will_leaves_it_to_another),
        cmocka_unit_test(who_leaves_in_mid_window_leaves_it_to_the_others),
        cmocka_unit_test(the_last_to_leave_is_told_that_it_was_cut_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
