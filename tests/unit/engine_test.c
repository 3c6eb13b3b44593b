/* engine_test.c -- the life of an engine: opening, turning, closing, forking, and what it says of itself.
 * Covers: engine/engine.c, engine/core/state.h. */
#include "tests/support/children.h"
#include "tests/unit/rig.h"

#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* ThreadSanitizer has its own thread, and does not let a forked child start one. */
#if TWI_EPOCH_SEES_FENCES
#define UNDER_TSAN false
#else
#define UNDER_TSAN true
#endif

/* ---- opening ----------------------------------------------------------------------------------------------------- */

TEST(wrong_options_are_named) {
    struct rig rig;
    tw_engine *engine = NULL;
#define REFUSED(field, value) \
    (rig_init(&rig), rig.options.field = (value), memset(rig.error, 'x', sizeof rig.error), \
     assert_status(tw_open(&rig.options, &engine), TW_ERR_OPTIONS), assert_null(engine), \
     assert_int_equal(strncmp(rig.error, #field, strlen(#field)), 0))
    REFUSED(size, 0);
    REFUSED(threads, 2);
    REFUSED(memory_bytes_max, 1000);
    REFUSED(memory_bytes_max, UINT64_MAX);
    REFUSED(sync_interval_ms, 60001);
    REFUSED(redis_timeout_ms, 600001);
}

/* For test_wait(): a thread that was joined is in Linux's list for a moment more. */
static bool has_threads(void *count) {
    return test_thread_count() == *(int64_t *)count;
}

TEST(an_engine_leaves_nothing_behind) {
    struct rig warm;
    rig_open(&warm); /* what a process keeps for ever is kept after the first */
    rig_close(&warm);
    int64_t fds = test_fd_count(), threads = test_thread_count();
    for (int i = 0; i < 20; i++) {
        tw_options options;
        tw_options_init(&options);
        options.threads = i % 2 == 0 ? TW_OWN_THREAD : TW_HOST_DRIVEN;
        tw_engine *engine;
        assert_status(tw_open(&options, &engine), TW_OK);
        if (!UNDER_TSAN) assert_i64_equal(test_thread_count(), threads + (i % 2 == 0));
        struct rig rig = {.engine = engine};
        rig_add(rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR), "a", 1);
        assert_status(tw_close(engine, 100), TW_OK);
        assert_i64_equal(test_fd_count(), fds);
        if (!UNDER_TSAN) assert_true(test_wait(has_threads, &threads, TEST_PATIENCE_MS));
    }
    if (UNDER_TSAN) test_leave_out("ThreadSanitizer's thread is counted with ours: a build without it runs this");
}

TEST(two_engines_know_nothing_of_each_other) {
    struct rig one, two;
    rig_open(&one);
    rig_open(&two);
    tw_family *a = rig_family(&one, "f", TW_WINDOW_ALIGNED, TW_MINUTE),
              *b = rig_family(&two, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    assert_i64_equal(rig_add(a, "k", 1), 1);
    assert_i64_equal(rig_add(b, "k", 2), 2);
    fake_clock_advance_ms(&one.clock, TW_MINUTE);
    assert_i64_equal(rig_get(a, "k"), 0);
    assert_i64_equal(rig_get(b, "k"), 2);
    rig_close(&one);
    assert_i64_equal(rig_add(b, "k", 2), 4);
    rig_close(&two);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void *turn_beside(void *ctx) {
    *(tw_status *)ctx = tw_turn(((void **)ctx)[1]);
    return NULL;
}

struct turning_hook {
    tw_engine *engine;
    tw_status beside;
};
static bool hook_with_a_turn_beside(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)family, (void)start_ms, (void)end_ms, (void)flags;
    struct turning_hook *hook = ctx;
    void *arguments[2] = {NULL, hook->engine};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, turn_beside, arguments), 0);
    pthread_join(thread, NULL);
    memcpy(&hook->beside, arguments, sizeof hook->beside);
    return true;
}

TEST(a_second_turn_at_once_is_pending) {
    struct rig rig;
    rig_open(&rig);
    struct turning_hook hook = {.engine = rig.engine, .beside = 77};
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = hook_with_a_turn_beside;
    options.closed_ctx = &hook;
    rig_add(rig_family_of(&rig, &options), "a", 1);
    rig_pass(&rig, TW_MINUTE);
    assert_status(hook.beside, TW_PENDING);
    rig_close(&rig);
}

/* Goal: a host-driven engine has one descriptor for its life, also without Redis: other threads wake its loop by it. */
TEST(a_host_waits_for_one_descriptor_without_redis_too) {
    struct rig rig;
    rig_open(&rig);
    struct pollfd fd = {.fd = tw_fd(rig.engine), .events = POLLIN};
    assert_true(fd.fd >= 0);
    assert_int_equal(poll(&fd, 1, 0), 0);
    for (int i = 0; i < 3; i++) twi_port_wake(rig.engine);
    assert_int_equal(poll(&fd, 1, 0), 1);
    assert_status(tw_turn(rig.engine), TW_OK);
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(tw_fd(rig.engine), fd.fd);
    assert_true(tw_timeout_ms(rig.engine) > 0);
    rig_add(rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR), "a", 1);
    rig_settle(&rig);
    assert_true(tw_timeout_ms(rig.engine) <= 1000);
    rig_close(&rig);
}

/* ---- the background thread --------------------------------------------------------------------------------------- */

static bool hook_counts(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)start_ms, (void)end_ms;
    if (rig_each(family, start_ms).sum == 3 && flags == 0) atomic_fetch_add((_Atomic int *)ctx, 1);
    return true;
}
static bool was_called(void *ctx) {
    return atomic_load((_Atomic int *)ctx) == 1;
}

TEST(the_background_thread_closes_windows_by_itself) {
    _Atomic int calls = 0;
    struct rig rig;
    rig_init(&rig);
    rig.options.threads = TW_OWN_THREAD;
    rig_start(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = hook_counts;
    options.closed_ctx = (void *)&calls;
    rig_add(rig_family_of(&rig, &options), "a", 3);
    test_sleep_ms(30);
    assert_int_equal(atomic_load(&calls), 0);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE);
    assert_true(test_wait(was_called, (void *)&calls, 5000));
    rig_close(&rig);
}

/* ---- closing ----------------------------------------------------------------------------------------------------- */

static bool never_true(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)family, (void)start_ms, (void)end_ms, (void)flags;
    ++*(int *)ctx;
    return false;
}

TEST(a_close_gives_a_hook_that_will_not_have_it_its_time_and_ends) {
    int calls = 0;
    struct rig rig;
    rig_init(&rig);
    rig.options.clock_now_ns = NULL;
    rig_start(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.on_window_closed = never_true;
    options.closed_ctx = &calls;
    rig_add(rig_family_of(&rig, &options), "a", 3);
    int64_t begun_ms = test_mono_ms();
    assert_status(tw_close(rig.engine, 350), TW_ERR_TIMEOUT);
    assert_true(test_mono_ms() - begun_ms >= 340);
    if (test_is_slow())
        test_leave_out("a sanitizer's time is counted with ours: a build without one runs this");
    else
        assert_true(test_mono_ms() - begun_ms < 2000);
    assert_true(calls >= 3);
}

static bool true_at_last(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)family, (void)start_ms, (void)end_ms, (void)flags;
    return ++*(int *)ctx == 3;
}

/* Goal: the time of tw_close() passes, and a hook that has returned false is called again, also if the host's clock
 * stands. Method: a clock that nobody moves; children, which would wait for ever. */
static void close_with_a_clock_that_stands(bool (*hook)(void *, tw_family *, int64_t, int64_t, uint32_t),
                                           uint32_t timeout_ms, tw_status want) {
    pid_t child = child_fork(30);
    if (child == 0) {
        int calls = 0;
        struct rig rig;
        rig_open(&rig);
        tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
        options.on_window_closed = hook;
        options.closed_ctx = &calls;
        rig_add(rig_family_of(&rig, &options), "a", 3);
        int64_t begun_ms = test_mono_ms();
        tw_status status = tw_close(rig.engine, timeout_ms);
        int64_t took_ms = test_mono_ms() - begun_ms;
        bool is_right = status == want && calls >= 3 && calls < 1000;
        _exit(is_right && (want == TW_OK || took_ms >= timeout_ms - 20) && took_ms < 15000 ? 0 : 1);
    }
    child_expect_end(child);
}

TEST(a_close_ends_although_the_clock_of_the_host_stands) {
    if (test_misses_wiped_pages()) return;
    close_with_a_clock_that_stands(never_true, 350, TW_ERR_TIMEOUT);
    close_with_a_clock_that_stands(true_at_last, 20000, TW_OK);
}

static void *live_and_exit_late(void *ctx) {
    pthread_barrier_t *barriers = ((void **)ctx)[0];
    rig_add(((void **)ctx)[1], "a", 1);
    pthread_barrier_wait(&barriers[0]);
    pthread_barrier_wait(&barriers[1]);
    return NULL;
}

/* Goal: E44. A thread that has counted may exit after the engine is gone. */
TEST(trap_e44_threads_may_outlive_the_engine) {
    struct rig rig;
    rig_open(&rig);
    pthread_barrier_t barriers[2];
    pthread_barrier_init(&barriers[0], NULL, 2);
    pthread_barrier_init(&barriers[1], NULL, 2);
    void *arguments[2] = {barriers, rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, live_and_exit_late, arguments), 0);
    pthread_barrier_wait(&barriers[0]);
    rig_close(&rig);
    rig_open(&rig);
    rig_add(rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR), "a", 1);
    pthread_barrier_wait(&barriers[1]);
    pthread_join(thread, NULL);
    rig_close(&rig);
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

/* In the child, a failed check exits with the line that failed. */
#define child_check(x) ((x) ? (void)0 : _exit(__LINE__ % 250 + 1))

static void child_counts(tw_engine *engine, tw_family *family) {
    int64_t view = 77;
    child_check(tw_get(family, tw_str("a"), &view) == TW_OK && view == 0);
    child_check(tw_add(family, tw_str("a"), 10, &view) == TW_OK && view == 10);
    tw_stats stats;
    child_check(tw_stats_read(engine, &stats) == TW_OK);
    child_check(stats.increments == 1 && stats.entries == 1);
    child_check(tw_family_find(engine, "f") == family);
}

static int exit_status_of(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Goal: E37. A child begins with no counts, no sections and no hooks unsent; the parent continues as if nothing had
 * been.
 * Method: fork inside a section, with a window to be told of; the child counts, turns, closes. */
TEST(trap_e37_a_forked_child_is_a_new_instance) {
    if (test_misses_wiped_pages()) return;
    for (uint32_t threads = UNDER_TSAN ? TW_HOST_DRIVEN : TW_OWN_THREAD; threads <= TW_HOST_DRIVEN; threads++) {
        struct rig rig;
        rig_init(&rig);
        rig.options.threads = threads;
        rig_start(&rig);
        int told = 0;
        tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
        options.on_window_closed = never_true;
        options.closed_ctx = &told;
        tw_family *family = rig_family_of(&rig, &options);
        rig_add(family, "a", 1);
        tw_enter(rig.engine);
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            child_counts(rig.engine, family);
            tw_leave(rig.engine); /* the parent's section: harmless */
            for (int i = 0; i < 3 && threads == TW_HOST_DRIVEN; i++) child_check(tw_turn(rig.engine) == TW_OK);
            options.on_window_closed = NULL;
            child_check(tw_family_set(family, &options) == TW_OK);
            child_check(tw_close(rig.engine, 0) == TW_OK);
            _exit(0);
        }
        tw_leave(rig.engine);
        assert_int_equal(exit_status_of(pid), 0);
        assert_i64_equal(rig_add(family, "a", 1), 2);
        assert_int_equal(told, 0);
        options.on_window_closed = NULL;
        assert_status(tw_family_set(family, &options), TW_OK);
        rig_close(&rig);
    }
    if (UNDER_TSAN) test_leave_out("ThreadSanitizer lets no forked child start a thread: a build without it runs this");
}

TEST(a_grandchild_is_a_new_instance_too) {
    if (test_misses_wiped_pages()) return;
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_HOUR);
    rig_add(family, "a", 1);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        child_counts(rig.engine, family);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            child_counts(rig.engine, family);
            _exit(0);
        }
        int status = 1;
        child_check(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        int64_t view;
        child_check(tw_add(family, tw_str("a"), 1, &view) == TW_OK && view == 11);
        _exit(0);
    }
    assert_int_equal(exit_status_of(pid), 0);
    assert_i64_equal(rig_add(family, "a", 1), 2);
    rig_close(&rig);
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

TEST(statistics_say_what_happened) {
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.keys_max = 2;
    tw_family *family = rig_family_of(&rig, &options);
    options.name = "g";
    options.on_full = TW_ON_FULL_REJECT;
    tw_family *rejecting = rig_family_of(&rig, &options);
    tw_stats stats;
    memset(&stats, 0x55, sizeof stats);
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
#define ZERO(name, kind, text) \
    if (strcmp(#name, "memory_bytes_max") != 0 && strcmp(#name, "memory_free_bytes") != 0 && \
        strcmp(#name, "memory_usable_bytes") != 0 && strcmp(#name, "sync_age_ms") != 0 && \
        strcmp(#name, "processes") != 0 && strcmp(#name, "leader_age_ms") != 0) \
        assert_i64_equal(stats.name, 0);
    TW_STATS(ZERO)
    assert_i64_equal(stats.memory_bytes_max, 64 << 20);
    assert_i64_equal(stats.memory_free_bytes, 64 << 20);
    assert_i64_equal(stats.memory_usable_bytes, 64 << 20);
    assert_i64_equal(stats.sync_age_ms, -1);
    assert_i64_equal(stats.processes, 1);
    assert_i64_equal(stats.leader_age_ms, -1);
    assert_string_equal(stats.last_error, "");
    rig_add(family, "a", 5);
    rig_add(family, "a", 5);
    rig_add(family, "b", 5);
    assert_status(tw_add(family, tw_str("c"), 1, NULL), TW_OVERFLOWED);
    rig_add(rejecting, "a", 1);
    rig_add(rejecting, "b", 1);
    assert_status(tw_add(rejecting, tw_str("c"), 1, NULL), TW_ERR_FULL);
    assert_status(tw_add_at(family, tw_str("a"), 1, RIG_START_MS - 1, NULL), TW_ERR_LATE);
    assert_status(tw_acquire(family, tw_str("a"), 1, 100, NULL), TW_OK);
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    assert_i64_equal(stats.increments, 7);
    assert_i64_equal(stats.entries, 4);
    assert_i64_equal(stats.generations, 2);
    assert_i64_equal(stats.overflow_increments, 1);
    assert_i64_equal(stats.rejected_increments, 1);
    assert_i64_equal(stats.late_increments, 1);
    assert_i64_equal(stats.windows_closed, 0);
    assert_true(stats.memory_bytes > 0 && stats.memory_bytes_high >= stats.memory_bytes);
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(test_stat_of(rig.engine, windows_closed), 2);
    rig_close(&rig);
}

struct text {
    char bytes[32768];
    size_t size, pieces, stop_after;
};
static bool write_text(void *ctx, const char *bytes, size_t size) {
    struct text *text = ctx;
    assert_true(text->size + size < sizeof text->bytes);
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return ++text->pieces != text->stop_after;
}

TEST(metrics_are_the_statistics_as_text) {
    struct rig rig;
    rig_open(&rig);
    rig_add(rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE), "a", 5);
    static struct text text;
    memset(&text, 0, sizeof text);
    assert_status(tw_metrics_write(rig.engine, TW_METRICS_OPENMETRICS, write_text, &text), TW_OK);
    assert_non_null(strstr(text.bytes, "\ntallywheel_increments_total 1\n"));
    assert_non_null(strstr(text.bytes, "\ntallywheel_entries 1\n"));
    assert_string_equal(text.bytes + text.size - 6, "# EOF\n");
    size_t pieces = text.pieces;
    for (size_t stop = 1; stop <= pieces; stop++) {
        memset(&text, 0, sizeof text);
        text.stop_after = stop;
        assert_status(tw_metrics_write(rig.engine, TW_METRICS_OPENMETRICS, write_text, &text), TW_DENIED);
        assert_i64_equal(text.pieces, stop);
    }
    rig_close(&rig);
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

struct log {
    int lines[32];
    char last[512];
};
static void write_log(void *ctx, int level, int event, const char *text) {
    struct log *log = ctx;
    assert_int_equal(level, strstr(text, "agree again") != NULL ? TW_LOG_INFO : TW_LOG_WARNING); /* that it is over */
    assert_true(event > 0 && event < 32);
    log->lines[event]++;
    snprintf(log->last, sizeof log->last, "%s", text);
}

TEST(the_log_tells_of_memory_and_clock_and_not_too_often) {
    if (test_misses_robust_lists()) return; /* the log says so, too */
    struct rig rig;
    struct log log = {0};
    rig_init(&rig);
    rig.options.memory_bytes_max = UINT64_C(8) << 20;
    rig.options.log_write = write_log;
    rig.options.log_ctx = &log;
    rig_start(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    char key[16];
    for (int i = 0; i < 200000; i++) {
        snprintf(key, sizeof key, "%d", i);
        (void)tw_add(family, tw_str(key), 1, NULL);
    }
    for (int i = 0; i < 99; i++) {
        rig_turn(&rig);
        fake_clock_advance_ms(&rig.clock, 10);
    }
    assert_int_equal(log.lines[TW_EVENT_MEMORY], 1);
    fake_clock_advance_ms(&rig.clock, 10 * TW_MINUTE - 1000); /* 990 ms have passed */
    rig_turn(&rig);
    assert_int_equal(log.lines[TW_EVENT_MEMORY], 1);
    fake_clock_advance_ms(&rig.clock, 10);
    rig_turn(&rig);
    assert_int_equal(log.lines[TW_EVENT_MEMORY], 2);
    assert_null(strstr(log.last, "left out"));
    assert_int_equal(log.lines[TW_EVENT_CLOCK], 0);
    fake_clock_step_wall_ms(&rig.clock, TW_DAY);
    rig_turn(&rig);
    assert_int_equal(log.lines[TW_EVENT_CLOCK], 1);
    rig_close(&rig);
}

/* Goal: what may last permanently is told at once, by how much, and then now and then. */
TEST(the_log_tells_of_a_clock_set_back) {
    if (test_misses_robust_lists()) return; /* the log says so, too */
    struct rig rig;
    struct log log = {0};
    rig_init(&rig);
    rig.options.log_write = write_log;
    rig.options.log_ctx = &log;
    rig_start(&rig);
    fake_clock_step_wall_ms(&rig.clock, -TW_HOUR);
    rig_turn(&rig);
    assert_int_equal(log.lines[TW_EVENT_CLOCK], 1);
    assert_non_null(strstr(log.last, "3600000 ms ahead"));
    assert_i64_equal(test_stat_of(rig.engine, clock_ahead_ms), TW_HOUR);
    for (int second = 0; second < 3600; second++) rig_pass(&rig, 1000);
    assert_true(log.lines[TW_EVENT_CLOCK] >= 6 && log.lines[TW_EVENT_CLOCK] <= 8);
    fake_clock_step_wall_ms(&rig.clock, TW_HOUR);
    rig_pass(&rig, 1000);
    assert_i64_equal(test_stat_of(rig.engine, clock_ahead_ms), 0);
    assert_string_equal(log.last, "the wall clock and engine time agree again [TW-E002]");
    int lines = log.lines[TW_EVENT_CLOCK];
    fake_clock_step_wall_ms(&rig.clock, -TW_HOUR); /* the same again is told again */
    rig_pass(&rig, 2000);
    assert_int_equal(log.lines[TW_EVENT_CLOCK], lines + 1);
    rig_close(&rig);
}
