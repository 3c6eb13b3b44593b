/* why_test.c -- tw_error_text(): each refusal names its field or rule, only in the thread whose call was refused.
 * Method: a table of refused calls, each with its status and the first words of its reason. Engines: without Redis,
 * with a Redis that is unreachable (no process listens on its socket), with a thread and without. */
#include "tests/unit/rig.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY "unix:///nonexistent/redis.sock"

static struct rig rig;                       /* host-driven, no Redis */
static tw_engine *threaded, *away, *stopped; /* with a thread: no Redis, Redis unreachable, stopped */
static tw_engine *driven;                    /* host-driven, Redis unreachable */
static tw_family *hour, *first, *endless, *paced, *hard, *shadow, *gauge, *rejects, *denies, *of_hook;
static tw_family *there, *there_endless, *there_strict, *there_hard, *there_ages, *there_paced, *there_full;
static tw_family *driven_hour, *threaded_paced, *stopped_hour;
static tw_verdict verdict;
static char token[TW_TOKEN_SIZE];
static tw_key key, long_key, no_key, no_data;

static tw_family *open_with(tw_engine *engine, tw_family_options options) {
    tw_family *family = NULL;
    char error[200] = "";
    options.error_text = error, options.error_size = sizeof error;
    if (tw_family_open(engine, &options, &family) != TW_OK) fail_msg("%s: %s", options.name, error);
    return family;
}

static tw_engine *open_engine(uint32_t threads, const char *url) {
    tw_engine *engine = NULL;
    tw_options options;
    tw_options_init(&options);
    options.threads = threads;
    options.redis_url = url;
    options.memory_bytes_max = 16 << 20;
    options.redis_timeout_ms = 20;
    assert_status(tw_open(&options, &engine), TW_OK);
    return engine;
}

static tw_status open_options(const char *url, uint32_t merge) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.redis_url = url;
    options.merge = merge;
    return tw_open(&options, &engine); /* without an error_text */
}

static tw_status open_bad_family(const char *name, int64_t window_ms) {
    tw_family_options options = rig_options(name, TW_WINDOW_ALIGNED, window_ms);
    tw_family *family;
    return tw_family_open(rig.engine, &options, &family);
}

static tw_status set_other_window(void) {
    tw_family_options options = rig_options("hour", TW_WINDOW_ALIGNED, TW_DAY);
    return tw_family_set(hour, &options);
}

static bool visit(void *ctx, const tw_count *count) {
    (void)ctx, (void)count;
    return true;
}

static tw_status reserve(tw_family *family) {
    return tw_reserve(family, key, 1, 10, 1000, no_key, token, NULL);
}

static tw_status audit(tw_engine *engine, const char *url) {
    tw_audit_options options;
    tw_audit_options_init(&options);
    options.redis_url = url;
    options.timeout_ms = 200;
    return tw_audit(engine, &options, NULL, NULL, NULL);
}

static tw_status claim(tw_family *family, size_t count) {
    tw_claim claims[] = {{family, key, 1, 10}};
    return tw_acquire_all(claims, count, NULL);
}

static tw_status add_many(void) { /* the lowest status is that of the second */
    tw_key keys[] = {key, key, key};
    int64_t deltas[] = {1, 1, TW_DELTA_MAX + 1}, times[] = {0, 0, 0};
    times[0] = times[2] = rig_now(&rig);
    times[1] = rig_now(&rig) - 10 * TW_DAY;
    return tw_add_many_at(hour, keys, deltas, 3, times, NULL, NULL);
}

static tw_status limits(const char *path) {
    tw_limits *loaded;
    return tw_limits_open(rig.engine, path, NULL, 0, &loaded);
}

static tw_status forget_token(const char *text) {
    return tw_reserve_confirm(rig.engine, text);
}

static tw_status confirm_what_was_cancelled(void) {
    if (reserve(hour) != TW_OK || tw_reserve_cancel(rig.engine, token) != TW_OK) return TW_OK;
    return tw_reserve_confirm(rig.engine, token);
}

static tw_status cancel_what_was_sold(void) {
    if (reserve(hour) != TW_OK || tw_reserve_confirm(rig.engine, token) != TW_OK) return TW_OK;
    return tw_reserve_cancel(rig.engine, token);
}

static tw_status reach_the_end(void) {
    for (tw_status status = TW_OK;;) {
        status = tw_add(hour, tw_str("vast"), TW_DELTA_MAX, NULL);
        if (status != TW_OK) return status;
    }
}

static tw_status two_keys(tw_family *family) {
    tw_status status = tw_add(family, key, 1, NULL);
    return status == TW_OK ? tw_add(family, tw_str("another"), 1, NULL) : status;
}

/* Name, status, what the reason begins with, the call. */
#define REFUSALS(X) \
    /* counting and reading */ \
    X(empty_key, TW_ERR_KEY, "key: it is empty", tw_add(hour, no_key, 1, NULL)) \
    X(key_too_long, TW_ERR_KEY, "key: it is longer", tw_get(hour, long_key, NULL)) \
    X(key_without_data, TW_ERR_KEY, "key: its data", tw_acquire(hour, no_data, 1, 10, NULL)) \
    X(delta_too_large, TW_ERR_RANGE, "delta: ", tw_add(hour, key, TW_DELTA_MAX + 1, NULL)) \
    X(count_too_large, TW_ERR_RANGE, "delta: the count", reach_the_end()) \
    X(of_many_the_lowest, TW_ERR_LATE, "unix_ms: its window has ended", add_many()) \
    X(year_too_late, TW_ERR_RANGE, "unix_ms: ", tw_add_at(hour, key, 1, INT64_MAX - 1, NULL)) \
    X(too_late, TW_ERR_LATE, "unix_ms: its window has ended", tw_add_at(hour, key, 1, rig_now(&rig) - TW_DAY, NULL)) \
    X(too_early, TW_ERR_EARLY, "unix_ms: further ahead", tw_add_at(hour, key, 1, rig_now(&rig) + TW_DAY, NULL)) \
    X(at_without_windows, TW_ERR_MODE, "window: calls with a time", tw_add_at(endless, key, 1, rig_now(&rig), NULL)) \
    X(watermark_without_windows, TW_ERR_MODE, "window: a watermark", tw_close_until(endless, rig_now(&rig))) \
    X(watermark_of_times, TW_ERR_MODE, "limit_shape: ", tw_close_until(paced, rig_now(&rig))) \
    X(watermark_too_early, TW_ERR_EARLY, "unix_ms: further ahead", tw_close_until(hour, rig_now(&rig) + TW_DAY)) \
    X(watermark_of_no_year, TW_ERR_RANGE, "unix_ms: ", tw_close_until(hour, INT64_MAX - 1)) \
    X(at_from_first, TW_ERR_MODE, "window: calls with a time", tw_get_at(first, key, rig_now(&rig), NULL)) \
    X(no_longer_readable, TW_ERR_LATE, "unix_ms: its window is over", \
      tw_get_at(hour, key, rig_now(&rig) - TW_DAY, NULL)) \
    X(each_from_first, TW_ERR_MODE, "unix_ms: ", tw_each(first, rig_now(&rig) - 1, visit, NULL)) \
    X(each_of_no_year, TW_ERR_RANGE, "unix_ms: ", tw_each(hour, INT64_MAX - 1, visit, NULL)) \
    X(add_of_times, TW_ERR_MODE, "limit_shape: ", tw_add(paced, key, 1, NULL)) \
    X(add_at_of_times, TW_ERR_MODE, "limit_shape: ", tw_add_at(paced, key, 1, rig_now(&rig), NULL)) \
    X(get_of_times, TW_ERR_MODE, "limit_shape: ", tw_get(paced, key, NULL)) \
    X(get_at_of_times, TW_ERR_MODE, "limit_shape: ", tw_get_at(paced, key, rig_now(&rig), NULL)) \
    X(reset_of_times, TW_ERR_MODE, "limit_shape: ", tw_reset(paced, key, NULL)) \
    X(once_of_times, TW_ERR_MODE, "limit_shape: ", tw_once(paced, key, NULL)) \
    X(once_of_a_gauge, TW_ERR_MODE, "kind: ", tw_once_cancel(gauge, key)) \
    X(once_of_leases, TW_ERR_MODE, "limit_mode: ", tw_once(there_hard, key, NULL)) \
    X(table_full, TW_ERR_FULL, "on_full: ", two_keys(rejects)) \
    X(stopped_add, TW_ERR_CLOSED, "The engine has been stopped", tw_add(stopped_hour, key, 1, NULL)) \
    /* limits */ \
    X(n_negative, TW_ERR_RANGE, "n: ", tw_acquire(hour, key, -1, 10, &verdict)) \
    X(limit_negative, TW_ERR_RANGE, "limit: ", tw_acquire(hour, key, 1, -1, &verdict)) \
    X(n_negative_of_times, TW_ERR_RANGE, "n: ", tw_acquire(paced, key, -1, 10, &verdict)) \
    X(n_negative_strict, TW_ERR_RANGE, "n: ", tw_acquire(there_strict, key, -1, 10, &verdict)) \
    X(n_negative_leased, TW_ERR_RANGE, "n: ", tw_acquire(there_hard, key, -1, 10, &verdict)) \
    X(some_of_too_many, TW_ERR_RANGE, "n: ", tw_acquire_some(hour, key, TW_DELTA_MAX + 1, 10, NULL, NULL)) \
    X(table_full_limit, TW_ERR_FULL, \
      "memory: ", (tw_acquire(denies, key, 1, 9, NULL), tw_acquire(denies, tw_str("b"), 1, 9, NULL))) \
    X(refund_too_much, TW_ERR_RANGE, "n: more than", tw_refund(hour, tw_str("none"), 1, RIG_START_MS)) \
    X(refund_too_late, TW_ERR_LATE, "window_start_ms: ", tw_refund(hour, key, 1, RIG_START_MS - TW_HOUR)) \
    X(refund_too_early, TW_ERR_EARLY, "window_start_ms: ", tw_refund(hour, key, 1, RIG_START_MS + TW_HOUR)) \
    X(refund_of_times, TW_ERR_MODE, "limit_shape: ", tw_refund(paced, key, 1, RIG_START_MS)) \
    X(refund_of_times_there, TW_ERR_MODE, "limit_shape: ", tw_refund(there_paced, key, 1, RIG_START_MS)) \
    X(no_claims, TW_ERR_RANGE, "count: ", claim(hour, 0)) \
    X(claim_of_redis, TW_ERR_MODE, "limit_mode: ", claim(there_strict, 1)) \
    X(wait_without_thread, TW_ERR_MODE, "threads: ", tw_acquire_wait(hour, key, 1, 10, 5, NULL)) \
    X(warm_soft, TW_ERR_MODE, "limit_mode: ", tw_lease_warm(hour, key, 10)) \
    X(warm_nothing, TW_ERR_RANGE, "limit: ", tw_lease_warm(hard, key, -1)) \
    X(reclaim_soft, TW_ERR_MODE, "limit_mode: ", tw_lease_reclaim(there, "x", NULL)) \
    X(stranded_soft, TW_ERR_MODE, "limit_mode: ", tw_lease_stranded(there, "x", NULL)) \
    X(reclaim_nobody, TW_ERR_UNKNOWN_TOKEN, "instance: ", tw_lease_reclaim(there_hard, "x", NULL)) \
    X(reclaim_away, TW_ERR_REDIS, "Redis: ", tw_lease_reclaim(there_hard, "0123456789abcdef0123456789abcdef", NULL)) \
    /* stock */ \
    X(reserve_from_first, TW_ERR_MODE, "window: tw_reserve()", reserve(first)) \
    X(reserve_ages, TW_ERR_MODE, "on_full: tw_reserve()", reserve(there_ages)) \
    X(reserve_gauge, TW_ERR_MODE, "kind: tw_reserve()", reserve(gauge)) \
    X(reserve_hard, TW_ERR_MODE, "limit_mode: tw_reserve() is not for TW_LIMIT_HARD", reserve(hard)) \
    X(reserve_times, TW_ERR_MODE, "limit_shape: tw_reserve()", reserve(paced)) \
    X(reserve_shadow, TW_ERR_MODE, "shadow: tw_reserve()", reserve(shadow)) \
    X(reserve_without_thread, TW_ERR_MODE, "threads: ", reserve(driven_hour)) \
    X(reserve_away, TW_ERR_REDIS, "Redis: ", reserve(there)) \
    X(reserve_nothing, TW_ERR_RANGE, "n: ", tw_reserve(hour, key, 0, 10, 9, no_key, token, NULL)) \
    X(reserve_no_limit, TW_ERR_RANGE, "limit: ", tw_reserve(hour, key, 1, -1, 9, no_key, token, NULL)) \
    X(reserve_no_time, TW_ERR_RANGE, "ttl_ms: ", tw_reserve(hour, key, 1, 10, 0, no_key, token, NULL)) \
    X(reserve_long_buyer, TW_ERR_KEY, "buyer: ", tw_reserve(hour, key, 1, 10, 9, long_key, token, NULL)) \
    X(token_malformed, TW_ERR_UNKNOWN_TOKEN, "token: ", forget_token("x")) \
    X(token_cancelled, TW_ERR_LATE, "token: its units have returned", confirm_what_was_cancelled()) \
    X(token_sold, TW_ERR_LATE, "token: its units are sold", cancel_what_was_sold()) \
    X(hold_of_a_window, TW_ERR_MODE, "window: tw_hold()", tw_hold(hour, key, 1, NULL)) \
    X(hold_ages, TW_ERR_MODE, "on_full: tw_hold()", tw_hold(there_ages, key, 1, NULL)) \
    X(hold_negative, TW_ERR_RANGE, "limit: ", tw_hold(endless, key, -1, NULL)) \
    X(release_nothing, TW_ERR_RANGE, "key: ", tw_hold_release(endless, tw_str("unheld"))) \
    X(release_nothing_there, TW_ERR_RANGE, "key: ", tw_hold_release(there_endless, tw_str("unheld"))) \
    X(lock_without_redis, TW_ERR_REDIS, "redis_url: ", tw_lock(threaded_paced, key, 9, token, NULL)) \
    X(lock_without_thread, TW_ERR_MODE, "threads: ", tw_lock(driven_hour, key, 9, token, NULL)) \
    X(lock_away, TW_ERR_REDIS, "Redis: ", tw_lock(there, key, 9, token, NULL)) \
    X(lock_no_time, TW_ERR_RANGE, "ttl_ms: ", tw_lock(there, key, 0, token, NULL)) \
    X(unlock_malformed, TW_ERR_UNKNOWN_TOKEN, "token: ", tw_lock_release(there, key, "x")) \
    X(once_away, TW_ERR_REDIS, "Redis: ", tw_once(there_strict, key, NULL)) \
    X(once_cancel_away, TW_ERR_REDIS, "Redis: ", tw_once_cancel(there_strict, key)) \
    /* waiting */ \
    X(fetch_without_thread, TW_ERR_MODE, "threads: ", tw_fetch(driven_hour, &key, 1, 1, NULL)) \
    X(fetch_of_times, TW_ERR_MODE, "limit_shape: ", tw_fetch(threaded_paced, &key, 1, 1, NULL)) \
    X(fetch_without_redis, TW_ERR_REDIS, "redis_url: ", tw_fetch(of_hook, &key, 1, 1, NULL)) \
    X(fetch_away, TW_ERR_TIMEOUT, "timeout_ms: ", tw_fetch(there, &key, 1, 1, NULL)) \
    X(flush_away, TW_ERR_TIMEOUT, "timeout_ms: ", (tw_add(there, key, 1, NULL), tw_flush(away, 1))) \
    X(turn_of_a_thread, TW_ERR_MODE, "threads: tw_turn()", tw_turn(threaded)) \
    X(flush_stopped, TW_ERR_CLOSED, "The engine has been stopped", tw_flush(stopped, 1)) \
    X(audit_without_thread, TW_ERR_MODE, "threads: ", audit(driven, NULL)) \
    X(audit_without_redis, TW_ERR_REDIS, "redis_url: ", audit(threaded, NULL)) \
    X(audit_without_options, TW_ERR_OPTIONS, "options: NULL", tw_audit(NULL, NULL, NULL, NULL, NULL)) \
    X(audit_nowhere, TW_ERR_OPTIONS, "redis_url: ", audit(NULL, NULL)) \
    X(audit_of_a_bad_url, TW_ERR_OPTIONS, "redis_url: ", audit(NULL, "http://a/")) \
    X(audit_away, TW_ERR_REDIS, "Redis: ", audit(NULL, NOBODY)) \
    /* options, without a buffer for the reason */ \
    X(engine_bad_url, TW_ERR_OPTIONS, "redis_url: ", open_options("http://a/", 0)) \
    X(engine_bad_merge, TW_ERR_OPTIONS, "merge: ", open_options(NULL, 9)) \
    X(family_bad_name, TW_ERR_OPTIONS, "name: ", open_bad_family("a b", TW_HOUR)) \
    X(family_bad_window, TW_ERR_OPTIONS, "window_ms: ", open_bad_family("a", 1)) \
    X(family_open_already, TW_ERR_OPTIONS, "window_ms: family \"hour\" is open", open_bad_family("hour", TW_DAY)) \
    X(family_set_window, TW_ERR_OPTIONS, "window_ms: ", set_other_window()) \
    X(limits_no_file, TW_ERR_OPTIONS, "/nonexistent: ", limits("/nonexistent"))

#define FUNCTION(name, want, begins, call) \
    static tw_status refused_##name(void) { \
        return call; \
    }
REFUSALS(FUNCTION)
#undef FUNCTION

struct refusal {
    const char *name, *begins;
    tw_status want;
    tw_status (*call)(void);
};
#define ROW(name, want, begins, call) {#name, begins, want, refused_##name},
static const struct refusal refusals[] = {REFUSALS(ROW)};
#undef ROW

static void check(const struct refusal *refusal) {
    (void)tw_reserve_confirm(rig.engine, ""); /* so that an earlier reason does not count */
    tw_status status = refusal->call();
    const char *text = tw_error_text();
    if (status != refusal->want)
        fail_msg("%s: %s instead of %s", refusal->name, tw_status_name(status), tw_status_name(refusal->want));
    if (strncmp(text, refusal->begins, strlen(refusal->begins)) != 0)
        fail_msg("%s: \"%s\" does not begin with \"%s\"", refusal->name, text, refusal->begins);
    if (strchr(text, '\n') != NULL) fail_msg("%s: more than a line", refusal->name);
    bool is_named = status == TW_ERR_MODE || status == TW_ERR_REDIS || status == TW_ERR_OPTIONS;
    if (is_named && strcmp(text, tw_status_text(status)) == 0)
        fail_msg("%s: says no more than its status", refusal->name);
}

TEST(each_refusal_names_its_field_or_rule) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) check(&refusals[i]);
}

/* ---- from inside hooks and sections ---- */

static tw_status flush_here(void) {
    return tw_flush(rig.engine, 1);
}
static tw_status turn_here(void) {
    return tw_turn(rig.engine);
}
static tw_status close_here(void) {
    return tw_close(rig.engine, 1);
}
static tw_status close_family_here(void) {
    return tw_family_close(hour);
}
static tw_status wait_here(void) {
    return tw_acquire_wait(hour, key, 1, 10, 1, NULL);
}
static tw_status lock_here(void) {
    return tw_lock(there, key, 9, token, NULL);
}
static tw_status audit_here(void) {
    return audit(away, NULL);
}
static const struct refusal waiting[] = {
    {"flush", "not ", TW_ERR_MODE, flush_here}, {"turn", "not ", TW_ERR_MODE, turn_here},
    {"close", "not ", TW_ERR_MODE, close_here}, {"wait", "not ", TW_ERR_MODE, wait_here},
    {"lock", "not ", TW_ERR_MODE, lock_here},   {"audit", "not ", TW_ERR_MODE, audit_here},
};
static int hooks;

static bool hook(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)family, (void)start_ms, (void)end_ms, (void)flags;
    static const struct refusal only_hook = {"close family", "not from inside a hook", TW_ERR_MODE, close_family_here};
    hooks++;
    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++) {
        check(&waiting[i]);
        assert_non_null(strstr(tw_error_text(), "hook"));
    }
    check(&only_hook);
    return true;
}

TEST(a_call_that_waits_names_the_hook_or_the_section_it_was_made_in) {
    tw_enter(rig.engine);
    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++) {
        check(&waiting[i]);
        assert_non_null(strstr(tw_error_text(), "tw_enter()"));
    }
    tw_leave(rig.engine);
    tw_family_options options = rig_options("hooked", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = hook;
    tw_family *hooked = open_with(rig.engine, options);
    rig_add(hooked, "a", 1);
    rig_pass(&rig, 2 * TW_MINUTE);
    assert_int_equal(hooks, 1);
    assert_status(tw_family_close(hooked), TW_OK);
}

/* ---- whose reason it is, and for how long ---- */

TEST(a_reason_stays_while_calls_are_answered_well) {
    assert_status(reserve(hard), TW_ERR_MODE);
    const char *text = tw_error_text();
    char before[300];
    snprintf(before, sizeof before, "%s", text);
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        assert_true(tw_add(there_full, tw_str(name), 1, NULL) >= 0);        /* overflows */
        assert_true(tw_acquire(there_full, tw_str(name), 1, 2, NULL) >= 0); /* admitted, though full */
        assert_true(tw_acquire(hour, tw_str("few"), 1, 2, NULL) >= 0);      /* denied */
    }
    assert_ptr_equal(tw_error_text(), text);
    assert_string_equal(tw_error_text(), before);
}

static void *refused_in_a_thread(void *ctx) {
    assert_string_equal(tw_error_text(), "No call of this thread was refused yet.");
    assert_status(tw_acquire(hour, key, -1, 10, NULL), TW_ERR_RANGE);
    snprintf(ctx, 100, "%s", tw_error_text());
    return NULL;
}

TEST(each_thread_has_its_own_reason) {
    char other[100] = "";
    pthread_t thread;
    assert_status(reserve(hard), TW_ERR_MODE);
    pthread_create(&thread, NULL, refused_in_a_thread, other);
    pthread_join(thread, NULL);
    assert_string_equal(other, "n: not within 0..TW_DELTA_MAX");
    assert_memory_equal(tw_error_text(), "limit_mode: ", 12);
}

static pthread_key_t late_key;
static char late_text[100];

static void refused_at_exit(void *ctx) {
    static int rounds; /* after the library's own destructor, too; a sanitizer ends a thread after the first */
    if (++rounds < (test_is_slow() ? 1 : 3)) {
        pthread_setspecific(late_key, ctx);
        return;
    }
    (void)open_bad_family("a b", TW_HOUR);
    snprintf(late_text, sizeof late_text, "%s", tw_error_text());
}

static void *leave_a_destructor(void *ctx) {
    pthread_setspecific(late_key, ctx);
    return NULL;
}

TEST(there_is_a_reason_while_a_thread_ends) {
    pthread_t thread;
    assert_int_equal(pthread_key_create(&late_key, refused_at_exit), 0);
    pthread_create(&thread, NULL, leave_a_destructor, &late_key);
    pthread_join(thread, NULL);
    pthread_key_delete(late_key);
    assert_memory_equal(late_text, "name: ", 6);
}

TEST(there_is_a_reason_in_a_forked_child_and_before_any_engine) {
    if (test_misses_wiped_pages()) return;
    assert_status(reserve(hard), TW_ERR_MODE);
    pid_t pid = fork();
    if (pid == 0) {
        bool inherited = strncmp(tw_error_text(), "limit_mode: ", 12) == 0;
        bool refused =
            open_options("http://a/", 0) == TW_ERR_OPTIONS && strncmp(tw_error_text(), "redis_url: ", 11) == 0;
        bool counted = tw_add(hour, no_key, 1, NULL) == TW_ERR_KEY && strncmp(tw_error_text(), "key: ", 5) == 0;
        /* Another program ends it: valgrind would look for leaks among the parent's threads, which are not there. */
        if (inherited && refused && counted) execl("/bin/true", "true", NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

TEST(no_password_is_in_a_reason) {
    assert_status(open_options("redis://user:verysecret@host:port/0", 0), TW_ERR_OPTIONS);
    assert_null(strstr(tw_error_text(), "secret"));
    assert_memory_equal(tw_error_text(), "redis_url: ", 11);
}

/* ---- the engines ---- */

static int open_all(void **state) {
    static char letters[TW_KEY_SIZE_MAX + 1];
    memset(letters, 'k', sizeof letters);
    key = tw_str("key"), long_key = tw_bytes(letters, sizeof letters), no_key = tw_bytes(letters, 0);
    no_data = tw_bytes(NULL, 4);
    assert_string_equal(tw_error_text(), "No call of this thread was refused yet.");
    rig_open(&rig);
    hour = rig_family(&rig, "hour", TW_WINDOW_ALIGNED, TW_HOUR);
    first = rig_family(&rig, "first", TW_WINDOW_FROM_FIRST, TW_HOUR);
    endless = rig_family(&rig, "endless", TW_WINDOW_FOREVER, 0);
    tw_family_options options = rig_options("paced", TW_WINDOW_ALIGNED, TW_HOUR);
    options.limit_shape = TW_SHAPE_GCRA;
    paced = open_with(rig.engine, options);
    options = rig_options("hard", TW_WINDOW_ALIGNED, TW_HOUR), options.limit_mode = TW_LIMIT_HARD;
    hard = open_with(rig.engine, options);
    options = rig_options("shadow", TW_WINDOW_ALIGNED, TW_HOUR), options.shadow = true;
    shadow = open_with(rig.engine, options);
    options = rig_options("gauge", TW_WINDOW_FOREVER, 0), options.kind = TW_KIND_GAUGE;
    gauge = open_with(rig.engine, options);
    options = rig_options("rejects", TW_WINDOW_ALIGNED, TW_HOUR), options.keys_max = 1,
    options.on_full = TW_ON_FULL_REJECT;
    rejects = open_with(rig.engine, options);
    options = rig_options("denies", TW_WINDOW_ALIGNED, TW_HOUR), options.keys_max = 1,
    options.on_full_limit = TW_FULL_LIMIT_DENY;
    denies = open_with(rig.engine, options);

    threaded = open_engine(TW_OWN_THREAD, NULL);
    options = rig_options("paced", TW_WINDOW_ALIGNED, TW_HOUR), options.limit_shape = TW_SHAPE_GCRA;
    threaded_paced = open_with(threaded, options);
    of_hook = open_with(threaded, rig_options("hour", TW_WINDOW_ALIGNED, TW_HOUR));
    stopped = open_engine(TW_OWN_THREAD, NULL);
    stopped_hour = open_with(stopped, rig_options("hour", TW_WINDOW_ALIGNED, TW_HOUR));
    assert_status(tw_stop(stopped), TW_OK);
    driven = open_engine(TW_HOST_DRIVEN, NOBODY);
    driven_hour = open_with(driven, rig_options("hour", TW_WINDOW_ALIGNED, TW_HOUR));

    away = open_engine(TW_OWN_THREAD, NOBODY);
    there = open_with(away, rig_options("hour", TW_WINDOW_ALIGNED, TW_HOUR));
    there_endless = open_with(away, rig_options("endless", TW_WINDOW_FOREVER, 0));
    options = rig_options("strict", TW_WINDOW_ALIGNED, TW_HOUR), options.limit_mode = TW_LIMIT_STRICT;
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    there_strict = open_with(away, options);
    options = rig_options("hard", TW_WINDOW_ALIGNED, TW_HOUR), options.limit_mode = TW_LIMIT_HARD;
    there_hard = open_with(away, options);
    options = rig_options("ages", TW_WINDOW_FOREVER, 0), options.on_full = TW_ON_FULL_EVICT_IDLE;
    there_ages = open_with(away, options);
    options = rig_options("paced", TW_WINDOW_ALIGNED, TW_HOUR), options.limit_mode = TW_LIMIT_STRICT;
    options.limit_shape = TW_SHAPE_GCRA;
    there_paced = open_with(away, options);
    options = rig_options("full", TW_WINDOW_ALIGNED, TW_HOUR), options.keys_max = 1;
    there_full = open_with(away, options);
    return 0;
}

static int close_all(void **state) {
    (void)tw_close(away, 0);
    (void)tw_close(driven, 0);
    (void)tw_close(threaded, 0);
    (void)tw_close(stopped, 0);
    rig_close(&rig);
    return 0;
}

int main(void) {
    return test_run_with(open_all, close_all);
}
