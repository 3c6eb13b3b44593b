/* followers.c -- what a process may do that shares an engine and does not lead: calls that wait, calls that are
 * answered later, queues, walks and statistics, without Redis.
 * Method: real children. The parent leads, or nobody, or the leader is stopped. A child ends with 0 if all its answers
 * were right. Left out under sanitizers and valgrind: their own locks do not survive the fork of a process with several
 * threads.
 * Covers: engine/core/calls.c, engine/core/calls.c, engine/limit/acquire.c. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include "engine/core/state.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 30000

static struct common {
    _Atomic uint32_t ready, steps;
    _Atomic int64_t start_ms; /* of the window of a full key */
} * common;
static tw_engine *engine;
static tw_family *endless, *windows;

#define EXPECT(condition, code) \
    do { \
        if (!(condition)) _exit(code); \
    } while (0)

static tw_family *open_family(const char *name, int64_t window_ms) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.window = window_ms == 0 ? TW_WINDOW_FOREVER : TW_WINDOW_ALIGNED;
    if (window_ms != 0) options.window_ms = window_ms;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static void open_watched(uint32_t threads, bool leads, const char *path) {
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(16) << 20;
    options.shared = TW_SHARED_BY_FORK;
    options.threads = threads;
    options.watch_path = path;
    assert_status(tw_open(&options, &engine), TW_OK);
    endless = open_family("endless", 0);
    windows = open_family("windows", 1000);
    if (leads) assert_status(tw_lead(engine), TW_OK);
    common = children_pages(sizeof *common);
}

static void open_shared(uint32_t threads, bool leads) {
    open_watched(threads, leads, NULL);
}

static void close_shared(void) {
    assert_status(tw_close(engine, 1000), TW_OK);
    munmap(common, sizeof *common);
}

static pid_t begin(void (*work)(void)) {
    pid_t pid = child_fork(60);
    if (pid != 0) return pid;
    work();
    _exit(tw_close(engine, 1000) == TW_OK ? 0 : 99);
}

/* Waits until so many children are ready. */
static void await_ready(uint32_t count) {
    for (int i = 0; twi_load_acquire(&common->ready) < count && i < WAIT_MS; i++) usleep(1000);
    assert_true(twi_load_acquire(&common->ready) >= count);
}

static void say_ready(void) {
    (void)twi_add_acqrel(&common->ready, 1);
}

/* ---- refunds ----------------------------------------------------------------------------------------------------- */

static void wait_for_a_unit(void) {
    tw_verdict verdict;
    EXPECT(tw_acquire(endless, tw_str("stock"), 1, 1, NULL) == TW_DENIED, 1);
    say_ready();
    EXPECT(tw_acquire_wait(endless, tw_str("stock"), 1, 1, WAIT_MS, &verdict) == TW_OK, 2);
    EXPECT(tw_refund(endless, tw_str("stock"), 1, 0) == TW_OK, 3);
}

/* Goal: a refund in one process wakes callers that wait in others; each of them hands the unit on. */
TEST(a_refund_wakes_callers_of_other_processes) {
    open_shared(TW_OWN_THREAD, true);
    assert_status(tw_acquire(endless, tw_str("stock"), 1, 1, NULL), TW_OK);
    pid_t pids[3];
    for (int i = 0; i < 3; i++) pids[i] = begin(wait_for_a_unit);
    await_ready(3);
    usleep(50000);
    assert_status(tw_refund(endless, tw_str("stock"), 1, 0), TW_OK);
    for (int i = 0; i < 3; i++) child_expect_end(pids[i]);
    close_shared();
}

/* ---- calls that are answered later ------------------------------------------------------------------------------- */

struct answer {
    tw_request request;
    _Atomic bool is_done;
};

static void note_answer(tw_request *request) {
    twi_store_release(&((struct answer *)request->ctx)->is_done, true);
}

static void begin_answer(struct answer *answer, tw_queue *queue) {
    tw_request_init(&answer->request);
    answer->request.done = note_answer;
    answer->request.ctx = answer;
    answer->request.queue = queue;
    answer->request.timeout_ms = WAIT_MS;
    twi_store_relaxed(&answer->is_done, false);
}

/* One round of the loop of a host, which waits as long as the engine says. */
static void turn_once(void) {
    struct pollfd fd = {.fd = tw_fd(engine), .events = POLLIN};
    uint32_t left_ms = tw_timeout_ms(engine);
    (void)poll(&fd, 1, left_ms < 1000 ? (int)left_ms : 1000);
    tw_status status = tw_turn(engine);
    EXPECT(status == TW_PENDING || status == TW_ERR_CLOSED, 10);
}

static void await_answer(struct answer *answer, tw_queue *queue) {
    for (int i = 0; !twi_load_acquire(&answer->is_done) && i < WAIT_MS; i++) {
        if (engine->life.host_driven)
            turn_once();
        else
            usleep(1000);
        if (queue != NULL) (void)tw_queue_run(queue, 16);
    }
    EXPECT(twi_load_acquire(&answer->is_done), 11);
}

static void wait_later(tw_queue *queue) {
    static struct answer unit, flush, ready;
    begin_answer(&unit, queue);
    EXPECT(tw_acquire_wait_async(&unit.request, endless, tw_str("stock"), 1, 1) == TW_STARTED, 1);
    say_ready();
    await_answer(&unit, queue);
    EXPECT(unit.request.status == TW_OK && unit.request.verdict.allowed == 1, 2);
    begin_answer(&flush, queue);
    begin_answer(&ready, queue);
    EXPECT(tw_flush_async(&flush.request, engine) == TW_OK, 3); /* nothing to wait for without Redis */
    EXPECT(tw_ready_async(&ready.request, engine) == TW_OK, 4);
    EXPECT(tw_refund(endless, tw_str("stock"), 1, 0) == TW_OK, 5);
}

static void wait_later_without_a_queue(void) {
    wait_later(NULL);
}

static void wait_later_in_a_queue(void) {
    tw_queue *queue;
    EXPECT(tw_queue_open(engine, &queue) == TW_OK, 20);
    EXPECT(tw_queue_fd(queue) >= 0, 21);
    wait_later(queue);
    EXPECT(tw_queue_close(queue) == TW_OK, 22);
}

/* Goal: the same for calls that are answered later, in a queue and without one, with own threads and with a host's. */
TEST(a_refund_answers_calls_of_other_processes) {
    for (uint32_t threads = TW_OWN_THREAD; threads <= TW_HOST_DRIVEN; threads++) {
        open_shared(threads, true);
        assert_status(tw_acquire(endless, tw_str("stock"), 1, 1, NULL), TW_OK);
        pid_t pids[4];
        for (int i = 0; i < 4; i++) pids[i] = begin(i % 2 == 0 ? wait_later_without_a_queue : wait_later_in_a_queue);
        await_ready(4);
        usleep(50000);
        assert_status(tw_refund(endless, tw_str("stock"), 1, 0), TW_OK);
        for (int i = 0; i < 4; i++) child_expect_end(pids[i]);
        close_shared();
    }
}

/* ---- new windows ------------------------------------------------------------------------------------------------- */

static void wait_for_a_window(void) {
    tw_verdict verdict;
    static struct answer later;
    while (tw_acquire(windows, tw_str("rate"), 1, 1, &verdict) == TW_OK) {}
    EXPECT(tw_acquire_wait(windows, tw_str("rate"), 1, 1, WAIT_MS, &verdict) == TW_OK, 1);
    int64_t start_ms = verdict.window_start_ms;
    begin_answer(&later, NULL);
    EXPECT(tw_acquire_wait_async(&later.request, windows, tw_str("rate"), 1, 1) == TW_STARTED, 2);
    await_answer(&later, NULL);
    EXPECT(later.request.status == TW_OK && later.request.verdict.window_start_ms > start_ms, 3);
    say_ready();
}

static void lead_and_stop(void) {
    EXPECT(tw_lead(engine) == TW_OK, 1);
    for (int i = 0; i < 100; i++) (void)tw_add(endless, tw_str("busy"), 1, NULL);
    say_ready();
    pause();
}

/* Goal: a new window wakes callers, whether some process leads, nobody leads, or the leader is stopped. */
TEST(a_new_window_wakes_callers_whoever_leads) {
    for (int kind = 0; kind < 3; kind++) {
        open_shared(TW_OWN_THREAD, kind == 0);
        pid_t leader = kind == 2 ? begin(lead_and_stop) : 0;
        if (leader != 0) {
            await_ready(1);
            assert_int_equal(kill(leader, SIGSTOP), 0);
        }
        child_expect_end(begin(wait_for_a_window));
        if (leader != 0) {
            assert_int_equal(kill(leader, SIGKILL), 0);
            assert_int_equal(waitpid(leader, NULL, 0), leader);
        }
        close_shared();
    }
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void wait_until_stopped(void) {
    say_ready();
    EXPECT(tw_acquire_wait(endless, tw_str("stock"), 1, 1, WAIT_MS, NULL) == TW_ERR_CLOSED, 1);
}

static void wait_later_until_stopped(void) {
    static struct answer unit;
    tw_queue *queue;
    EXPECT(tw_queue_open(engine, &queue) == TW_OK, 20);
    begin_answer(&unit, queue);
    EXPECT(tw_acquire_wait_async(&unit.request, endless, tw_str("stock"), 1, 1) == TW_STARTED, 1);
    say_ready();
    await_answer(&unit, queue);
    EXPECT(unit.request.status == TW_ERR_CLOSED, 2);
    EXPECT(tw_queue_close(queue) == TW_OK, 22);
}

/* Goal: tw_stop() by the leader ends the waits of all processes. */
TEST(a_stop_ends_waits_of_all_processes) {
    for (uint32_t threads = TW_OWN_THREAD; threads <= TW_HOST_DRIVEN; threads++) {
        open_shared(threads, true);
        assert_status(tw_acquire(endless, tw_str("stock"), 1, 1, NULL), TW_OK);
        pid_t pids[2] = {begin(wait_later_until_stopped), 0};
        if (threads == TW_OWN_THREAD) pids[1] = begin(wait_until_stopped);
        await_ready(threads == TW_OWN_THREAD ? 2 : 1);
        assert_status(tw_stop(engine), TW_OK);
        for (int i = 0; i < 2; i++)
            if (pids[i] != 0) child_expect_end(pids[i]);
        close_shared();
    }
}

static void close_while_it_waits(void) {
    static struct answer unit;
    begin_answer(&unit, NULL);
    EXPECT(tw_acquire_wait_async(&unit.request, endless, tw_str("stock"), 1, 1) == TW_STARTED, 1);
    EXPECT(tw_close(engine, 1000) == TW_OK, 2);
    EXPECT(twi_load_acquire(&unit.is_done) && unit.request.status != TW_OK, 3);
    _exit(0);
}

/* Goal: tw_close() in one process answers its own calls, and those of the others wait on. */
TEST(closing_one_process_ends_its_own_waits) {
    open_shared(TW_OWN_THREAD, true);
    assert_status(tw_acquire(endless, tw_str("stock"), 1, 1, NULL), TW_OK);
    pid_t other = begin(wait_later_without_a_queue);
    await_ready(1);
    child_expect_end(begin(close_while_it_waits));
    assert_status(tw_refund(endless, tw_str("stock"), 1, 0), TW_OK);
    child_expect_end(other);
    close_shared();
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool sum_up(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->view;
    return true;
}

static bool note_first(void *ctx, const tw_count *count) {
    *(int64_t *)ctx = count->view;
    return false;
}

static void read_all(void) {
    int64_t view, sum = 0, most = 0;
    tw_stats stats;
    EXPECT(tw_add(endless, tw_str("b"), 2, &view) == TW_OK && view == 5, 1);
    EXPECT(tw_each(endless, TW_NOW, sum_up, &sum) == TW_OK && sum == 6, 2);
    EXPECT(tw_top(endless, 4, TW_NOW, note_first, &most) == TW_OK && most == 5, 3);
    EXPECT(tw_stats_read(engine, &stats) == TW_OK && stats.increments == 3 && stats.entries == 2, 4);
    EXPECT(tw_flush(engine, 1000) == TW_OK && tw_ready(engine, 1000) == TW_OK, 5);
}

/* Goal: walks and statistics show the whole engine in each process. */
TEST(each_process_reads_the_whole_engine) {
    open_shared(TW_OWN_THREAD, true);
    assert_status(tw_add(endless, tw_str("a"), 1, NULL), TW_OK);
    assert_status(tw_add(endless, tw_str("b"), 3, NULL), TW_OK);
    child_expect_end(begin(read_all));
    close_shared();
}

/* ---- watch_path -------------------------------------------------------------------------------------------------- */

static char watch_path[64];

/* Returns true if a leader answers there, and its page has the text. */
static bool is_shown(const char *text) {
    static char page[1 << 20];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t used = 0;
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", watch_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    bool answers = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                   send(fd, "status\n", 7, MSG_NOSIGNAL) == 7 && shutdown(fd, SHUT_WR) == 0;
    for (ssize_t got = 1; answers && got > 0 && used + 1 < sizeof page; used += got > 0 ? (size_t)got : 0)
        got = read(fd, page + used, sizeof page - 1 - used);
    page[used] = '\0';
    (void)close(fd);
    return strstr(page, text) != NULL;
}

static void expect_shown(const char *text) {
    for (int i = 0; !is_shown(text) && i < 3000; i++) usleep(10000);
    assert_true(is_shown(text));
}

static void lead_and_count(void) {
    if (tw_lead(engine) < 0) _exit(1);
    EXPECT(tw_add(endless, tw_str("a"), 1, NULL) == TW_OK, 2);
    say_ready();
    for (;;) {
        usleep(5000);
    }
}

/* Goal: the leader answers on watch_path with what all processes count, and after its end the next leader does so. */
TEST(the_leader_answers_on_watch_path_for_all) {
    char folder[] = "/tmp/followers-XXXXXX";
    assert_non_null(mkdtemp(folder));
    (void)snprintf(watch_path, sizeof watch_path, "%s/socket", folder);
    open_watched(TW_OWN_THREAD, false, watch_path);
    pid_t first = begin(lead_and_count);
    await_ready(1);
    pid_t second = begin(lead_and_count);
    await_ready(2);
    expect_shown("\nstat\tincrements\t2\n");
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(waitpid(first, NULL, 0), first);
    assert_status(tw_process_died(engine), TW_OK);
    assert_status(tw_add(endless, tw_str("a"), 1, NULL), TW_OK);
    expect_shown("\nstat\tincrements\t3\n");
    assert_int_equal(kill(second, SIGKILL), 0);
    assert_int_equal(waitpid(second, NULL, 0), second);
    close_shared();
    (void)unlink(watch_path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    test_skip_unshared();
    return test_run();
}
