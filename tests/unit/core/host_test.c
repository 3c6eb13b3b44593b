/* host_test.c -- functions of the host's own: they may block, what they may not call is refused, and once a hook was
 * taken away it does not run.
 * Method: engines with threads of their own, by the system's clocks. A function of the host's stands until the test
 * lets it go, so what continued meanwhile went on next to it.
 * Covers: engine/core/operation.c. */
#include "tests/unit/rig.h"

#include "engine/base/threads.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 20000 /* time that a busy machine may need */
#define WINDOW_MS 1000
#define LIMIT 10
#define LATE_MS_MAX 20

/* ---- functions that stand ---------------------------------------------------------------------------------------- */

static struct {
    _Atomic bool is_closed; /* who comes stands */
    _Atomic int standing, calls;
    tw_engine *_Atomic engine;
    tw_family *family;
    _Atomic tw_status close, flush, turn, family_close, add;
} host;

static void stand(void) {
    atomic_fetch_add(&host.calls, 1);
    atomic_fetch_add(&host.standing, 1);
    while (atomic_load(&host.is_closed)) test_sleep_ms(1);
    atomic_fetch_sub(&host.standing, 1);
}
static bool is_standing(void *ctx) {
    return atomic_load(&host.standing) > 0;
}

static void stand_at_log(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)level, (void)event, (void)text;
    stand();
}
static bool stand_at_hook(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)family, (void)start_ms, (void)end_ms, (void)flags;
    stand();
    return true;
}
static int stand_at_password(void *ctx, char *out, size_t size) {
    stand();
    return snprintf(out, size, "secret");
}

static void host_begin(void) {
    memset(&host, 0, sizeof host);
    atomic_store(&host.is_closed, true);
}

static tw_engine *engine_with(void (*log_write)(void *, int, int, const char *), const char *redis_url,
                              int (*password)(void *, char *, size_t)) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.memory_bytes_max = 4 << 20;
    options.log_write = log_write;
    options.redis_url = redis_url;
    options.redis_password = password;
    assert_status(tw_open(&options, &engine), TW_OK);
    return engine;
}

static tw_family *family_with(tw_engine *engine, const char *name,
                              bool (*hook)(void *, tw_family *, int64_t, int64_t, uint32_t), void *ctx) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.window_ms = WINDOW_MS;
    options.on_window_closed = hook;
    options.closed_ctx = ctx;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

/* Brings about a log line without Redis: counts of a window that is over. */
static void ask_for_a_line(tw_engine *engine) {
    tw_family *family = family_with(engine, "late", NULL, NULL);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    assert_status(tw_add_at(family, tw_str("a"), 1, (int64_t)now.tv_sec * 1000 - TW_MINUTE, NULL), TW_ERR_LATE);
}

/* ---- time goes on ------------------------------------------------------------------------------------------------ */

static int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Over two ends of windows a limit admits its units in each window, and never more. A call sees a time that is at most
 * 20 ms behind that at which it began. The windows are distinguished by the verdict. */
static void time_goes_on(tw_engine *engine) {
    tw_family *family = family_with(engine, "limit", NULL, NULL);
    tw_verdict verdict;
    int64_t windows = 0, window_ms = 0, admitted = 0, latest_ms = 0;
    int64_t end_ms = test_mono_ms() + 2 * WINDOW_MS + 100, last_ms = end_ms + TEST_PATIENCE_MS / 2;
    /* a thread that did not run for a window has missed that one */
    while (test_mono_ms() < end_ms || (windows < 3 && test_mono_ms() < last_ms)) {
        int64_t from_ms = wall_ms();
        tw_status status = tw_acquire(family, tw_str("user"), 1, LIMIT, &verdict);
        assert_true(status == TW_OK || status == TW_DENIED);
        if (verdict.window_start_ms != window_ms) admitted = 0, windows++;
        window_ms = verdict.window_start_ms;
        admitted += status == TW_OK;
        assert_true(admitted <= LIMIT);
        if (status == TW_DENIED) assert_i64_equal(admitted, LIMIT);
        int64_t now_ms = window_ms + WINDOW_MS - verdict.reset_after_ms;
        if (from_ms - now_ms > latest_ms) latest_ms = from_ms - now_ms;
    }
    assert_true(windows >= 3);
    assert_true(latest_ms <= LATE_MS_MAX);
}

/* Goal: a log line that is written for ever, to a pipe that no thread reads, stops no engine's time. */
TEST(time_goes_on_while_log_write_blocks) {
    if (test_misses_robust_lists()) return; /* the log says so, too */
    host_begin();
    tw_engine *engine = engine_with(stand_at_log, NULL, NULL);
    ask_for_a_line(engine);
    assert_true(test_wait(is_standing, NULL, PATIENCE_MS));
    time_goes_on(engine);
    assert_int_equal(atomic_load(&host.standing), 1);
    atomic_store(&host.is_closed, false);
    assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
}

TEST(time_goes_on_while_a_hook_blocks) {
    host_begin();
    tw_engine *engine = engine_with(NULL, NULL, NULL);
    assert_status(tw_add(family_with(engine, "hooked", stand_at_hook, NULL), tw_str("a"), 1, NULL), TW_OK);
    assert_true(test_wait(is_standing, NULL, PATIENCE_MS));
    time_goes_on(engine);
    assert_int_equal(atomic_load(&host.standing), 1);
    atomic_store(&host.is_closed, false);
    assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
}

/* A port that takes connections and says nothing. */
static int listen_at(char url[64]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    (void)snprintf(url, 64, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    return fd;
}

/* An engine that asks for a password, and the port that it needs it for. */
static tw_engine *engine_that_asks(int (*password)(void *ctx, char *out, size_t size), int *port) {
    char url[64];
    host_begin();
    *port = listen_at(url);
    return engine_with(NULL, url, password);
}

static void end_asking(tw_engine *engine, int port) {
    (void)tw_close(engine, 100); /* the counted units has nowhere to go */
    close(port);
}

/* Goal: the same of a password that another service is asked for. */
TEST(time_goes_on_while_a_password_is_asked_for) {
    int port;
    if (twi_driver_find() == NULL) {
        test_leave_out("built without Redis: install libhiredis-dev and configure with -Dredis=enabled");
        return;
    }
    tw_engine *engine = engine_that_asks(stand_at_password, &port);
    assert_true(test_wait(is_standing, NULL, PATIENCE_MS));
    time_goes_on(engine);
    assert_int_equal(atomic_load(&host.standing), 1);
    atomic_store(&host.is_closed, false);
    end_asking(engine, port);
}

/* Goal: whoever holds a lock that the background thread wants stops no time.
 * Method: the lock of the families, which a hook takes first. */
static bool is_waited_for(void *ctx) {
    return twi_clock_peek_ms(&((tw_engine *)ctx)->clock) < 0;
}
TEST(time_goes_on_while_a_lock_is_held) {
    host_begin();
    atomic_store(&host.is_closed, false);
    tw_engine *engine = engine_with(NULL, NULL, NULL);
    tw_family *limit = family_with(engine, "limit", NULL, NULL);
    tw_family *hooked = family_with(engine, "hooked", stand_at_hook, NULL);
    twi_lock(&engine->roster.lock);
    assert_status(tw_add(hooked, tw_str("a"), 1, NULL), TW_OK);
    assert_true(test_wait(is_waited_for, engine, PATIENCE_MS));
    int64_t from_ms = wall_ms();
    test_sleep_ms(100); /* the time that the stopped thread must not lose */
    tw_verdict verdict;
    assert_status(tw_acquire(limit, tw_str("user"), 1, LIMIT, &verdict), TW_OK);
    assert_true(verdict.window_start_ms + WINDOW_MS - verdict.reset_after_ms >= from_ms + 100 - LATE_MS_MAX);
    assert_int_equal(atomic_load(&host.calls), 0);
    twi_unlock(&engine->roster.lock);
    assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
    assert_int_equal(atomic_load(&host.calls), 1);
}

/* ---- what they may call ------------------------------------------------------------------------------------------ */

static void call_all(void) {
    tw_engine *engine = atomic_load(&host.engine);
    if (engine == NULL) return;
    atomic_store(&host.add, tw_add(host.family, tw_str("from the host"), 1, NULL));
    atomic_store(&host.family_close, tw_family_close(host.family));
    atomic_store(&host.flush, tw_flush(engine, 10));
    atomic_store(&host.turn, tw_turn(engine));
    atomic_store(&host.close, tw_close(engine, 10));
    atomic_fetch_add(&host.calls, 1);
}
static void call_at_log(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)level, (void)event, (void)text;
    call_all();
}
static int call_at_password(void *ctx, char *out, size_t size) {
    call_all();
    return snprintf(out, size, "secret");
}
static bool has_called(void *ctx) {
    return atomic_load(&host.calls) > 0;
}

static void assert_refused(void) {
    assert_status(atomic_load(&host.add), TW_OK);
    assert_status(atomic_load(&host.family_close), TW_ERR_MODE);
    assert_status(atomic_load(&host.flush), TW_ERR_MODE);
    assert_status(atomic_load(&host.turn), TW_ERR_MODE);
    assert_status(atomic_load(&host.close), TW_ERR_MODE);
}

/* Goal: a logger that ends the program, whose atexit() closes the engine, is refused; the engine continues. */
TEST(log_write_may_count_and_not_close) {
    host_begin();
    tw_engine *engine = engine_with(call_at_log, NULL, NULL);
    host.family = family_with(engine, "f", NULL, NULL);
    atomic_store(&host.engine, engine);
    ask_for_a_line(engine);
    assert_true(test_wait(has_called, NULL, PATIENCE_MS));
    assert_refused();
    assert_status(tw_add(host.family, tw_str("a"), 1, NULL), TW_OK);
    assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
}

TEST(a_password_callback_may_count_and_not_close) {
    int port;
    if (twi_driver_find() == NULL) {
        test_leave_out("built without Redis: install libhiredis-dev and configure with -Dredis=enabled");
        return;
    }
    tw_engine *engine = engine_that_asks(call_at_password, &port);
    host.family = family_with(engine, "f", NULL, NULL);
    atomic_store(&host.engine, engine);
    assert_true(test_wait(has_called, NULL, PATIENCE_MS));
    assert_refused();
    end_asking(engine, port);
}

/* ---- taking a hook away ------------------------------------------------------------------------------------------ */

static tw_family_options options_of(void *ctx, bool (*hook)(void *, tw_family *, int64_t, int64_t, uint32_t)) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "hooked";
    options.window_ms = WINDOW_MS;
    options.on_window_closed = hook;
    options.closed_ctx = ctx;
    return options;
}

static void *let_go_later(void *ctx) {
    _Atomic bool *was_let_go = ctx;
    test_sleep_ms(100); /* the caller waits for the hook by now */
    atomic_store(was_let_go, true);
    atomic_store(&host.is_closed, false);
    return NULL;
}

/* Goal: when tw_family_set() has taken a hook away, no call of it is running. Its ctx may be freed.
 * Method: the hook stands while it is taken away, by another hook, by another ctx, and by none. Another change does not
 * wait. */
TEST(tw_family_set_waits_for_the_hook_that_it_takes_away) {
    int old_ctx, new_ctx;
    for (int way = 0; way < 3; way++) {
        host_begin();
        tw_engine *engine = engine_with(NULL, NULL, NULL);
        tw_family *family = family_with(engine, "hooked", stand_at_hook, &old_ctx);
        assert_status(tw_add(family, tw_str("a"), 1, NULL), TW_OK);
        assert_true(test_wait(is_standing, NULL, PATIENCE_MS));
        tw_family_options options = options_of(&old_ctx, stand_at_hook);
        options.history_ms = TW_HOUR;
        assert_status(tw_family_set(family, &options), TW_OK);
        assert_int_equal(atomic_load(&host.standing), 1);

        _Atomic bool was_let_go = false;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, let_go_later, (void *)&was_let_go), 0);
        if (way == 0) options = options_of(NULL, NULL);
        if (way == 1) options = options_of(&new_ctx, stand_at_hook);
        if (way == 2) options = options_of(&old_ctx, NULL);
        assert_status(tw_family_set(family, &options), TW_OK);
        assert_true(atomic_load(&was_let_go));
        assert_int_equal(atomic_load(&host.standing), 0);
        pthread_join(thread, NULL);
        assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
    }
}

static tw_status set_inside;
static bool take_itself_away(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)start_ms, (void)end_ms, (void)flags;
    tw_family_options options = options_of(NULL, NULL);
    set_inside = tw_family_set(family, &options);
    atomic_fetch_add(&host.calls, 1);
    return true;
}

/* Goal: a hook may take itself away, and does not wait for itself. */
TEST(a_hook_may_take_itself_away) {
    host_begin();
    tw_engine *engine = engine_with(NULL, NULL, NULL);
    tw_family *family = family_with(engine, "hooked", take_itself_away, &host);
    assert_status(tw_add(family, tw_str("a"), 1, NULL), TW_OK);
    assert_true(test_wait(has_called, NULL, PATIENCE_MS));
    assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
    assert_status(set_inside, TW_OK);
    assert_int_equal(atomic_load(&host.calls), 1);
}
