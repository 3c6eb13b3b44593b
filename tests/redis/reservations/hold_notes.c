/* hold_notes.c -- tw_hold_notes(): slots of a process that was killed are released by another one, all of them, and no
 * slot of a process that lives. Method: real processes, each with an engine and a shared memory of its own, are killed
 * with SIGKILL. A slot lives for ten minutes here, so none becomes free by itself.
 * Covers: engine/reserve/hold_notes.c, engine/reserve/hold_book.c. */
#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

#include "engine/core/family.h"
#include "engine/reserve/hold_book.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIFE_MS 600000
#define NOTES 64u
#define BYTES ((size_t)(NOTES * TW_HOLD_NOTE_BYTES))
#define KEYS 3

static struct redis_server server;

/* What a child and the test share. */
struct child {
    pid_t pid;
    _Atomic int *steps; /* what the child has done so far */
    void *memory;
};

static void *map_shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* Returns true in the child. */
static bool is_child(struct child *child) {
    child->steps = map_shared(4096);
    child->memory = map_shared(BYTES);
    child->pid = test_fork();
    return child->pid == 0;
}

static bool has_begun(void *ctx) {
    return atomic_load(((struct child *)ctx)->steps) != 0;
}

static void await_child(struct child *child) {
    assert_true(test_wait(has_begun, child, TEST_PATIENCE_MS));
}

static void kill_child(struct child *child) {
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
}

static void forget_child(struct child *child) {
    munmap((void *)child->steps, 4096);
    munmap(child->memory, BYTES);
}

static void report_and_sleep(struct child *child) {
    atomic_fetch_add(child->steps, 1);
    for (;;) test_sleep_ms(1000); /* until it is killed */
}

static int64_t in_flight(const char *key) {
    char name[64];
    snprintf(name, sizeof name, "tw:hold:jobs:%s", key);
    return atoll(redis_server_ask(&server, "ZCOUNT", name, "0", "+inf", NULL));
}

/* An engine whose slots are noted in that memory. */
static tw_family *open_noted(const char *url, void *memory, size_t bytes) {
    tw_engine *engine = quick_engine(url, NULL);
    tw_status status = tw_hold_notes(engine, memory, bytes);
    assert_status(status, TW_OK);
    return family_of(engine, "jobs", TW_WINDOW_FOREVER, 0);
}

static bool may_hold(void *ctx) {
    return tw_hold(ctx, tw_str("a"), 100, NULL) == TW_OK;
}

static void hold(tw_family *jobs, int times) {
    while (times-- > 0) assert_true(test_wait(may_hold, jobs, TEST_PATIENCE_MS));
}

struct heir {
    tw_engine *engine;
    void *memory;
    size_t bytes;
};

static bool has_cleared(void *ctx) {
    struct heir *heir = ctx;
    tw_status status = tw_hold_notes(heir->engine, heir->memory, heir->bytes);
    assert_true(status == TW_OK || status == TW_PENDING || status == TW_ERR_BUSY);
    return status == TW_OK;
}

static void inherit(tw_engine *engine, void *memory) {
    assert_true(test_wait(has_cleared, &(struct heir){engine, memory, BYTES}, TEST_PATIENCE_MS));
}

static void forget_redis(void) {
    redis_server_ask(&server, "FLUSHALL", NULL);
}

/* Goal: two processes are killed at once, and their slots are free; those of a third one are not. The memory serves the
 * next process. */
TEST(slots_of_killed_processes_return_and_no_other_one) {
    struct child children[3];
    forget_redis();
    for (int i = 0; i < 3; i++)
        if (is_child(&children[i])) {
            tw_family *jobs = open_noted(server.url, children[i].memory, BYTES);
            hold(jobs, 3 + i);
            assert_status(tw_hold_release(jobs, tw_str("a")), TW_OK);
            report_and_sleep(&children[i]);
        }
    for (int i = 0; i < 3; i++) await_child(&children[i]);
    assert_i64_equal(in_flight("a"), 2 + 3 + 4);
    void *own = map_shared(BYTES);
    tw_family *jobs = open_noted(server.url, own, BYTES);
    hold(jobs, 1);
    kill_child(&children[0]);
    kill_child(&children[1]);
    for (int i = 0; i < 2; i++) inherit(jobs->engine, children[i].memory);
    assert_i64_equal(in_flight("a"), 4 + 1);
    const struct twi_hold_note *notes = children[0].memory;
    for (uint32_t i = 0; i < NOTES; i++) assert_i64_equal(atomic_load(&notes[i].state), 0);
    assert_status(tw_hold_release(jobs, tw_str("a")), TW_OK);
    assert_status(tw_close(jobs->engine, TEST_PATIENCE_MS), TW_OK);
    kill_child(&children[2]);
    jobs = open_noted(server.url, own, BYTES); /* another engine, and one of the first memories */
    inherit(jobs->engine, children[0].memory);
    inherit(jobs->engine, children[2].memory);
    assert_i64_equal(in_flight("a"), 0);
    assert_status(tw_close(jobs->engine, TEST_PATIENCE_MS), TW_OK);
    for (int i = 0; i < 3; i++) forget_child(&children[i]);
    munmap(own, BYTES);
}

static void use_slots(tw_family *jobs, struct child *child) {
    char key[8];
    for (uint64_t i = 0;; i++) {
        snprintf(key, sizeof key, "k%d", (int)(i % KEYS));
        if (tw_hold(jobs, tw_str(key), 4, NULL) != TW_OK) continue;
        atomic_fetch_add(child->steps, 1);
        if (i % 3 == 0) twi_hold_book_resend(jobs->engine);
        if (i % 5 != 0) (void)tw_hold_release(jobs, tw_str(key));
        if (i % 7 == 0) (void)tw_hold_release(jobs, tw_str("k0"));
    }
}

/* Goal: at whatever moment a process is killed, all of its slots return. Method: it takes and gives slots, and states
 * them again, all the time. */
TEST(killed_at_any_moment) {
    uint64_t seed = test_seed();
    void *own = map_shared(BYTES);
    tw_family *jobs = open_noted(server.url, own, BYTES);
    for (uint64_t i = 0; i < test_scale(12); i++) {
        struct child child;
        if (is_child(&child)) use_slots(open_noted(server.url, child.memory, BYTES), &child);
        await_child(&child);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        usleep((useconds_t)(seed >> 33) % 20000);
        kill_child(&child);
        inherit(jobs->engine, child.memory);
        int64_t found = in_flight("k0") + in_flight("k1") + in_flight("k2");
        if (found != 0) fail_msg("%lld slots of a killed process are in use", (long long)found);
        forget_child(&child);
    }
    assert_status(tw_close(jobs->engine, TEST_PATIENCE_MS), TW_OK);
    munmap(own, BYTES);
}

static bool was_held(void *ctx) {
    return proxy_look(ctx).happened[PROXY_HOLD] == 1;
}

static bool came_late(void *ctx) {
    return proxy_look(ctx).late == 1;
}

/* Goal: a request that was under way when its process was killed, and comes to Redis after the release, takes nothing.
 */
TEST(a_request_that_comes_after_the_release) {
    struct proxy *proxy = proxy_start(&server, test_seed());
    struct proxy_order keep = {.fault = PROXY_HOLD, .times = 1};
    struct child child;
    forget_redis();
    proxy_only(proxy, "tw:hold:");
    if (is_child(&child)) {
        tw_options options;
        tw_engine *engine;
        quick_options(&options, proxy_url(proxy));
        options.redis_timeout_ms = 10 * 60 * 1000;
        assert_status(test_open(&options, &engine), TW_OK);
        assert_status(tw_hold_notes(engine, child.memory, BYTES), TW_OK);
        tw_family *jobs = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0);
        hold(jobs, 1);
        atomic_fetch_add(child.steps, 1);
        while (atomic_load(child.steps) < 2) test_sleep_ms(1);
        (void)tw_hold(jobs, tw_str("late"), 5, NULL);
        report_and_sleep(&child);
    }
    await_child(&child);
    proxy_order(proxy, &keep);
    proxy_manner(proxy, PROXY_REFUSE);
    atomic_fetch_add(child.steps, 1);
    assert_true(test_wait(was_held, proxy, TEST_PATIENCE_MS));
    kill_child(&child);
    proxy_manner(proxy, PROXY_OPEN);
    tw_engine *engine = quick_engine(proxy_url(proxy), NULL);
    assert_status(tw_ready(engine, TEST_PATIENCE_MS), TW_OK);
    inherit(engine, child.memory);
    assert_true(test_wait(came_late, proxy, TEST_PATIENCE_MS));
    assert_i64_equal(in_flight("late"), 0);
    assert_i64_equal(in_flight("a"), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
    forget_child(&child);
}

/* Goal: the process that releases is killed, too, before Redis has answered it. The next one does it. */
TEST(the_heir_is_killed_too) {
    struct proxy *proxy = proxy_start(&server, test_seed());
    struct child children[2];
    forget_redis();
    if (is_child(&children[0])) {
        hold(open_noted(server.url, children[0].memory, BYTES), 5);
        report_and_sleep(&children[0]);
    }
    await_child(&children[0]);
    kill_child(&children[0]);
    proxy_manner(proxy, PROXY_SILENT);
    if (is_child(&children[1])) {
        tw_engine *engine = quick_engine(proxy_url(proxy), NULL);
        assert_status(tw_hold_notes(engine, children[0].memory, BYTES), TW_PENDING);
        report_and_sleep(&children[1]);
    }
    await_child(&children[1]);
    kill_child(&children[1]);
    assert_i64_equal(in_flight("a"), 5);
    tw_engine *engine = quick_engine(server.url, NULL);
    inherit(engine, children[0].memory); /* it is the engine's own from now on */
    assert_i64_equal(in_flight("a"), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
    for (int i = 0; i < 2; i++) forget_child(&children[i]);
}

/* Goal: denied and released slots leave no note behind, so a memory for one slot suffices for many calls. A slot that
 * is not noted stays until its end. */
TEST(notes_are_used_again) {
    struct child child;
    forget_redis();
    if (is_child(&child)) {
        tw_family *jobs = open_noted(server.url, child.memory, TW_HOLD_NOTE_BYTES);
        hold(jobs, 1);
        assert_status(tw_hold_release(jobs, tw_str("a")), TW_OK);
        for (int i = 0; i < 20; i++) {
            assert_status(tw_hold(jobs, tw_str("a"), 0, NULL), TW_DENIED);
            assert_status(tw_hold(jobs, tw_str("a"), 1, NULL), TW_OK);
            assert_status(tw_hold_release(jobs, tw_str("a")), TW_OK);
        }
        assert_status(tw_hold(jobs, tw_str("a"), 9, NULL), TW_OK);
        assert_status(tw_hold(jobs, tw_str("b"), 9, NULL), TW_OK);
        report_and_sleep(&child);
    }
    await_child(&child);
    kill_child(&child);
    tw_engine *engine = quick_engine(server.url, NULL);
    assert_true(test_wait(has_cleared, &(struct heir){engine, child.memory, TW_HOLD_NOTE_BYTES}, TEST_PATIENCE_MS));
    assert_i64_equal(in_flight("a"), 0);
    assert_i64_equal(in_flight("b"), 1);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    forget_child(&child);
}

/* Goal: a slot that the policy admitted during an outage is noted, too. */
TEST(slots_of_an_outage_return) {
    struct redis_server other;
    struct child child;
    redis_server_start(&other, NULL);
    if (is_child(&child)) {
        tw_options options;
        tw_engine *engine;
        quick_options(&options, other.url);
        options.redis_timeout_ms = 300;
        assert_status(test_open(&options, &engine), TW_OK);
        assert_status(tw_hold_notes(engine, child.memory, BYTES), TW_OK);
        tw_family *jobs = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0);
        atomic_fetch_add(child.steps, 1);
        tw_verdict verdict = {0};
        while (verdict.decided_by != TW_BY_OUTAGE)
            if (tw_hold(jobs, tw_str("out"), 1000000, &verdict) == TW_OK && verdict.decided_by != TW_BY_OUTAGE)
                (void)tw_hold_release(jobs, tw_str("out"));
        atomic_fetch_add(child.steps, 1);
        report_and_sleep(&child);
    }
    await_child(&child);
    redis_server_kill(&other);
    for (int i = 0; i < TEST_PATIENCE_MS && atomic_load(child.steps) < 3; i++) test_sleep_ms(1);
    redis_server_restart(&other);
    int64_t held = 0;
    for (int i = 0; i < TEST_PATIENCE_MS / 10 && held == 0; i++) {
        test_sleep_ms(10);
        held = atoll(redis_server_ask(&other, "ZCOUNT", "tw:hold:jobs:out", "0", "+inf", NULL));
    }
    assert_i64_equal(held, 1); /* it is stated */
    kill_child(&child);
    tw_engine *engine = quick_engine(other.url, NULL);
    inherit(engine, child.memory);
    assert_string_equal(redis_server_ask(&other, "ZCOUNT", "tw:hold:jobs:out", "0", "+inf", NULL), "0");
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&other);
    forget_child(&child);
}

/* Goal: bytes that no engine has written harm nobody. */
TEST(any_bytes_are_read) {
    uint64_t seed = test_seed();
    void *memory = map_shared(BYTES);
    forget_redis();
    for (size_t i = 0; i < BYTES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)memory)[i] = (unsigned char)(seed >> 40);
    }
    struct twi_hold_note *notes = (struct twi_hold_note *)memory;
    struct twi_hold_note_text *texts = (struct twi_hold_note_text *)(notes + NOTES);
    for (uint32_t i = 0; i < NOTES; i += 2) { /* those that look whole */
        notes[i].name_size = i + 1;
        memcpy(texts[i].member, "x", 2);
    }
    tw_engine *engine = quick_engine(server.url, NULL);
    inherit(engine, memory);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    munmap(memory, BYTES);
}

TEST(what_is_refused) {
    tw_options options;
    tw_engine *engine = quick_engine(server.url, NULL), *plain;
    char *memory = map_shared(BYTES);
    assert_status(tw_hold_notes(engine, NULL, BYTES), TW_ERR_OPTIONS);
    assert_status(tw_hold_notes(engine, memory + 4, BYTES - 4), TW_ERR_OPTIONS);
    assert_status(tw_hold_notes(engine, memory, TW_HOLD_NOTE_BYTES - 1), TW_ERR_OPTIONS);
    assert_status(tw_hold_notes(engine, memory, BYTES), TW_OK);
    assert_status(tw_hold_notes(engine, memory, BYTES), TW_OK); /* once more */
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    tw_options_init(&options);
    assert_status(test_open(&options, &plain), TW_OK);
    assert_status(tw_hold_notes(plain, memory, BYTES), TW_ERR_REDIS);
    assert_status(tw_close(plain, 0), TW_OK);
    options.shared = TW_SHARED_BY_FORK;
    assert_status(test_open(&options, &plain), TW_OK);
    assert_status(tw_hold_notes(plain, memory, BYTES), TW_ERR_MODE);
    assert_status(tw_close(plain, 0), TW_OK);
    munmap(memory, BYTES);
}

int main(void) {
    redis_server_require();
    test_tuning.presence_life_ms = LIFE_MS;
    redis_server_start(&server, NULL);
    int failed = test_run();
    redis_server_destroy(&server);
    return failed;
}
