/* closed_again.c -- counts that arrive after the hook was called for their window. The window was flagged, or its hook
 * is called again; never in silence (TW_CLOSED_BY_ONE).
 * Method: engines of one process, each with a wall clock of its own that the test sets; the monotonic clock is the real
 * one. One test calls the script itself, with messages whose life the test chooses. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include "engine/turn/closing.h"
#include "engine/core/state.h"

#include "close_election.lua.h"
#include "window_names.lua.h"

#include <time.h>

#define HOUR_MS INT64_C(1700002800000) /* 2023-11-14T23:00:00Z */
#define LATE_MS INT64_C(60000)
#define WAIT_MS 30000

struct seen {
    int calls;
    uint32_t flags, keys;
    int64_t sum;
};

struct worker {
    _Atomic int64_t ahead_ms; /* its wall clock minus the real one */
    tw_engine *engine;
    tw_family *family;
    _Atomic bool refuses;
    _Atomic int refusals, calls;
    struct seen seen[8];
};

static int64_t real_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t clock_of(void *ctx, int kind) {
    struct worker *worker = ctx;
    if (kind == TW_CLOCK_MONOTONIC) return real_ns(CLOCK_MONOTONIC);
    return real_ns(CLOCK_REALTIME) + atomic_load(&worker->ahead_ms) * 1000000;
}

/* Sets it in small steps, which the engine follows at once; larger ones it observes for a while. */
static void set_clock(struct worker *worker, int64_t wall_ms) {
    int64_t at_ms = worker->engine != NULL ? twi_clock_now_ms(&worker->engine->clock) : wall_ms;
    do {
        at_ms = wall_ms - at_ms > 4000 ? at_ms + 4000 : wall_ms;
        atomic_store(&worker->ahead_ms, at_ms - real_ns(CLOCK_REALTIME) / 1000000);
        while (worker->engine != NULL && twi_clock_now_ms(&worker->engine->clock) < at_ms) test_sleep_ms(1);
    } while (at_ms < wall_ms);
}

static bool see(void *ctx, const tw_count *count) {
    struct seen *seen = ctx;
    seen->sum += count->view;
    seen->keys++;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct worker *worker = ctx;
    struct seen seen = {.flags = flags};
    if (atomic_load(&worker->refuses)) {
        atomic_fetch_add(&worker->refusals, 1);
        return false;
    }
    if (start_ms != HOUR_MS) return true;
    if (tw_each(family, start_ms, see, &seen) != TW_OK) seen.sum = -1;
    int at = atomic_load(&worker->calls);
    if (at < 8) worker->seen[at] = seen;
    atomic_store(&worker->calls, at + 1);
    return true;
}

static void open_worker(struct worker *worker, struct redis_server *server, int64_t wall_ms, bool hooked, uint32_t by) {
    tw_options options;
    tw_family_options family;
    set_clock(worker, wall_ms);
    quick_options(&options, server->url);
    options.clock_now_ns = clock_of;
    options.clock_ctx = worker;
    assert_status(test_open(&options, &worker->engine), TW_OK);
    tw_family_options_init(&family);
    family.name = "stat";
    family.window_ms = TW_HOUR;
    family.lateness_ms = LATE_MS;
    family.retention_ms = 10 * 365 * TW_DAY;
    family.closed_by = by;
    if (test_tuning.stores_by_tag) family.redis_key = "%n:{%t}:%k:%Y%m%d%H";
    family.on_window_closed = hooked ? on_closed : NULL;
    family.closed_ctx = worker;
    assert_status(tw_family_open(worker->engine, &family, &worker->family), TW_OK);
}

static void count_in(struct worker *worker, const char *key, int64_t delta) {
    assert_status(tw_add_at(worker->family, tw_str(key), delta, HOUR_MS + 5, NULL), TW_OK);
    assert_status(tw_flush(worker->engine, TEST_PATIENCE_MS), TW_OK);
}

static bool was_called(void *ctx) {
    return atomic_load((_Atomic int *)ctx) != 0;
}

static bool is_counted_again(void *ctx) {
    return test_stat_of(ctx, windows_again) == 1;
}

/* Asks about the one key whose name is like that: where keys lie in several stores, it has a tag. */
static const char *ask_of(struct redis_server *server, const char *command, const char *pattern) {
    char name[128];
    snprintf(name, sizeof name, "%s", redis_server_ask(server, "KEYS", pattern, NULL));
    name[strcspn(name, "\n")] = '\0';
    return redis_server_ask(server, command, name, NULL);
}

static void close_worker(struct worker *worker) {
    assert_status(tw_close(worker->engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: a rolling restart shortly after the hour. The old process reports what it knows as cut short. The new one takes
 * the late counts and reports the whole window again. */
TEST(a_restart_shortly_after_the_hour_is_reported_again) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    static struct worker before, after;
    open_worker(&before, &server, HOUR_MS + 59 * TW_MINUTE, true, TW_CLOSED_BY_ONE);
    count_in(&before, "a", 5);
    count_in(&before, "b", 2);
    set_clock(&before, HOUR_MS + TW_HOUR + 10000);
    close_worker(&before);
    assert_int_equal(atomic_load(&before.calls), 1);
    assert_i64_equal(before.seen[0].flags, TW_CLOSED_PARTIAL);
    assert_i64_equal(before.seen[0].sum, 7);
    open_worker(&after, &server, HOUR_MS + TW_HOUR + 20000, true, TW_CLOSED_BY_ONE);
    count_in(&after, "a", 3);
    set_clock(&after, HOUR_MS + TW_HOUR + LATE_MS);
    assert_true(test_wait(was_called, &after.calls, WAIT_MS));
    assert_i64_equal(after.seen[0].flags, TW_CLOSED_AGAIN);
    assert_i64_equal(after.seen[0].keys, 2);
    assert_i64_equal(after.seen[0].sum, 10);
    assert_true(test_wait(is_counted_again, after.engine, WAIT_MS)); /* when the hook has returned */
    close_worker(&after);
    assert_int_equal(atomic_load(&after.calls), 1);
    redis_server_destroy(&server);
}

/* Goal: the same if no late counts come, whether the old process leaves in mid-window or after its end: the new process
 * reports the window as final. */
TEST(a_restart_without_late_counts_makes_it_final) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    for (int late = 0; late < 2; late++) {
        static struct worker before, after;
        memset(&before, 0, sizeof before);
        memset(&after, 0, sizeof after);
        int64_t left_ms = HOUR_MS + (late ? TW_HOUR + 10000 : 59 * TW_MINUTE + 10000);
        open_worker(&before, &server, HOUR_MS + 59 * TW_MINUTE, true, TW_CLOSED_BY_ONE);
        count_in(&before, "a", 5);
        count_in(&before, "b", 2);
        set_clock(&before, left_ms);
        close_worker(&before);
        assert_int_equal(atomic_load(&before.calls), 1);
        assert_i64_equal(before.seen[0].flags, TW_CLOSED_PARTIAL);
        open_worker(&after, &server, left_ms + 1000, true, TW_CLOSED_BY_ONE);
        test_sleep_ms(100); /* a call would have come by now */
        assert_int_equal(atomic_load(&after.calls), 0);
        set_clock(&after, HOUR_MS + TW_HOUR + LATE_MS);
        assert_true(test_wait(was_called, &after.calls, WAIT_MS));
        assert_i64_equal(after.seen[0].flags, TW_CLOSED_AGAIN);
        assert_i64_equal(after.seen[0].keys, 2);
        assert_i64_equal(after.seen[0].sum, 7);
        close_worker(&after);
        assert_string_equal(redis_server_ask(&server, "KEYS", "tw:windows:*", NULL), "");
        redis_server_ask(&server, "FLUSHALL", NULL);
    }
    redis_server_destroy(&server);
}

/* Goal: the same if each engine closes for itself: a window that may still get counts is reported as cut short. */
TEST(closed_by_each_an_open_window_is_reported_as_cut_short) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    static struct worker worker;
    open_worker(&worker, &server, HOUR_MS + 59 * TW_MINUTE, true, TW_CLOSED_BY_EACH);
    count_in(&worker, "a", 5);
    set_clock(&worker, HOUR_MS + TW_HOUR + 10000);
    close_worker(&worker);
    assert_int_equal(atomic_load(&worker.calls), 1);
    assert_i64_equal(worker.seen[0].flags, TW_CLOSED_PARTIAL);
    redis_server_destroy(&server);
}

/* Goal: an engine whose clock is behind counts in a window that was reported as final long ago. The window is reported
 * again. If that engine has no hook, its figures show it. */
TEST(an_engine_that_counts_after_the_closing_reports_it_again) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    for (int hooked = 1; hooked >= 0; hooked--) {
        static struct worker before, behind;
        memset(&before, 0, sizeof before);
        memset(&behind, 0, sizeof behind);
        open_worker(&before, &server, HOUR_MS + 59 * TW_MINUTE, true, TW_CLOSED_BY_ONE);
        count_in(&before, "a", 5);
        set_clock(&before, HOUR_MS + TW_HOUR + LATE_MS);
        assert_true(test_wait(was_called, &before.calls, WAIT_MS));
        assert_i64_equal(before.seen[0].flags, 0);
        close_worker(&before);
        open_worker(&behind, &server, HOUR_MS + TW_HOUR + 30000, hooked, TW_CLOSED_BY_ONE);
        count_in(&behind, "a", 3);
        set_clock(&behind, HOUR_MS + TW_HOUR + LATE_MS);
        if (hooked) {
            assert_true(test_wait(was_called, &behind.calls, WAIT_MS));
            assert_i64_equal(behind.seen[0].flags, TW_CLOSED_AGAIN);
            assert_i64_equal(behind.seen[0].sum, 8);
        }
        for (int i = 0; i < WAIT_MS && !hooked && test_stat_of(behind.engine, windows_untold) == 0; i++)
            test_sleep_ms(1);
        assert_i64_equal(test_stat_of(behind.engine, windows_untold), !hooked);
        close_worker(&behind);
        redis_server_ask(&server, "FLUSHALL", NULL);
    }
    redis_server_destroy(&server);
}

static bool are_gone(void *ctx) {
    return redis_server_ask(ctx, "KEYS", "tw:names*", NULL)[0] == '\0';
}

/* Goal: counts that arrive while the window is claimed, perhaps after its figures were read, are reported in a second
 * call, with all keys. */
TEST(counts_that_arrive_during_the_hook_are_reported_again) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    static struct worker first, behind;
    open_worker(&first, &server, HOUR_MS + 59 * TW_MINUTE, true, TW_CLOSED_BY_ONE);
    count_in(&first, "a", 5);
    atomic_store(&first.refuses, true);
    set_clock(&first, HOUR_MS + TW_HOUR + LATE_MS);
    assert_true(test_wait(was_called, &first.refusals, WAIT_MS));
    open_worker(&behind, &server, HOUR_MS + TW_HOUR + 30000, true, TW_CLOSED_BY_ONE);
    count_in(&behind, "b", 3);
    set_clock(&behind, HOUR_MS + TW_HOUR + LATE_MS);
    while (strchr(ask_of(&server, "GET", "tw:closed:stat:*"), '+') == NULL) test_sleep_ms(1);
    atomic_store(&first.refuses, false);
    struct worker *last = &first;
    for (int i = 0; i < WAIT_MS; i++) {
        if (atomic_load(&first.calls) + atomic_load(&behind.calls) == 2) break;
        test_sleep_ms(1);
    }
    assert_int_equal(atomic_load(&first.calls) + atomic_load(&behind.calls), 2);
    assert_i64_equal(first.seen[0].flags, 0);
    if (atomic_load(&first.calls) == 1) last = &behind;
    int at = last == &first ? 1 : 0;
    assert_i64_equal(last->seen[at].flags, TW_CLOSED_AGAIN);
    assert_i64_equal(last->seen[at].sum, 8);
    assert_true(test_wait(are_gone, &server, WAIT_MS));
    close_worker(&behind);
    close_worker(&first);
    assert_int_equal(atomic_load(&first.calls) + atomic_load(&behind.calls), 2);
    redis_server_destroy(&server);
}

/* Goal: the same where keys lie in several stores: names that are added when the window was closed go to other sets
 * than those that are removed then. */
TEST(by_tag_late_counts_are_reported_again) {
    test_tuning.stores_by_tag = true;
    test_tuning.closing_pause_ms = 0;
    counts_that_arrive_during_the_hook_are_reported_again(state);
    an_engine_that_counts_after_the_closing_reports_it_again(state);
}

TEST(by_tag_a_restart_is_reported_again) {
    test_tuning.stores_by_tag = true;
    test_tuning.closing_pause_ms = 0;
    a_restart_shortly_after_the_hour_is_reported_again(state);
    a_restart_without_late_counts_makes_it_final(state);
}

static bool is_known(void *ctx) {
    struct worker *worker = ctx;
    return worker->family->turn.closing.known;
}

/* Goal: where keys lie in several stores, an engine that cannot tell them that it leaves ends all the same, within the
 * time of tw_close(). Method: Redis is killed; the engine has counts that it has not sent, or none. */
TEST(by_tag_a_close_ends_though_redis_is_gone) {
    test_tuning.stores_by_tag = true;
    for (int counts = 0; counts < 4; counts++) {
        struct redis_server server;
        redis_server_start(&server, NULL);
        static struct worker worker;
        memset(&worker, 0, sizeof worker);
        open_worker(&worker, &server, HOUR_MS + TW_MINUTE, true, TW_CLOSED_BY_ONE);
        if (counts >= 2) count_in(&worker, "a", 1);
        assert_true(test_wait(is_known, &worker, WAIT_MS));
        redis_server_kill(&server);
        if (counts % 2 != 0) assert_status(tw_add_at(worker.family, tw_str("a"), 1, HOUR_MS + 5, NULL), TW_OK);
        int64_t begun_ms = test_mono_ms();
        assert_status(tw_close(worker.engine, 1000), counts % 2 != 0 ? TW_ERR_TIMEOUT : TW_OK);
        assert_true(test_mono_ms() - begun_ms < WAIT_MS);
        redis_server_destroy(&server);
    }
}

/* Makes all markers that old, by Redis's clock. */
static void age_markers(struct redis_server *server, const char *age_ms) {
    const char *aged = redis_server_ask(server, "EVAL",
                                        "local time = redis.call('TIME') "
                                        "local made = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[1] "
                                        "local markers = redis.call('KEYS', 'tw:marker*') "
                                        "for _, name in ipairs(markers) do redis.call('HSET', name, 'r', made) end "
                                        "return #markers",
                                        "0", age_ms, NULL);
    assert_true(atoi(aged) > 1);
}

/* Goal: an engine learns with the first reply of a store how old the store is. If all that it meets are older than the
 * pause, it closes a window at once, though the engine that made them still waits. If one is younger, it waits, too. */
TEST(by_tag_an_engine_that_meets_old_stores_closes_at_once) {
    test_tuning.stores_by_tag = true;
    struct redis_server server;
    redis_server_start(&server, NULL);
    for (int are_old = 0; are_old < 2; are_old++) {
        static struct worker first, second;
        memset(&first, 0, sizeof first);
        memset(&second, 0, sizeof second);
        open_worker(&first, &server, HOUR_MS + 59 * TW_MINUTE, true, TW_CLOSED_BY_ONE);
        count_in(&first, "a", 5);
        age_markers(&server, are_old ? "60000" : "20000");
        open_worker(&second, &server, HOUR_MS + 59 * TW_MINUTE, true, TW_CLOSED_BY_ONE);
        count_in(&second, "a", 3);
        set_clock(&first, HOUR_MS + TW_HOUR + LATE_MS);
        set_clock(&second, HOUR_MS + TW_HOUR + LATE_MS);
        if (are_old)
            assert_true(test_wait(was_called, &second.calls, WAIT_MS));
        else
            test_sleep_ms(500); /* a call would have come by now */
        assert_int_equal(atomic_load(&first.calls), 0);
        assert_int_equal(atomic_load(&second.calls), are_old);
        if (are_old) assert_i64_equal(second.seen[0].sum, 8);
        if (are_old) assert_i64_equal(second.seen[0].flags, 0);
        assert_status(tw_close(second.engine, 200), TW_OK);
        assert_status(tw_close(first.engine, 200), TW_OK); /* it would wait for the end of its pause */
        redis_server_ask(&server, "FLUSHALL", NULL);
    }
    redis_server_destroy(&server);
}

/* ---- the script itself ---- */

static int number;

/* Sends one message to the script; returns its status. */
static const char *say(struct redis_server *server, const char *verb, const char *who, const char *life_ms, bool holds,
                       const char *more, const char *more_yet) {
    static char status[16];
    char said[16];
    snprintf(said, sizeof said, "%d", ++number);
    const char *reply = redis_server_ask(server, "EVAL", twi_script_close_election, "4", "tw:closers:f", "tw:closed:f",
                                         "tw:names:f", "tw:windows:f", "1", verb, who, said, "0", life_ms,
                                         holds ? "0" : "1000", ",", "1000", "9999999999999", more, more_yet, NULL);
    snprintf(status, sizeof status, "%.*s", (int)strcspn(reply, "\n"), reply);
    return status;
}

/* A server to which "a" has said that it is there, and the engines' time to come is over. */
static void begin_election(struct redis_server *server) {
    redis_server_start(server, NULL);
    say(server, "word", "a", "60000", false, "0", NULL);
    redis_server_ask(server, "HSET", "tw:closers:f", "f", "0", NULL);
}

/* As say(), of an engine that has recorded names of the window. */
static const char *ask(struct redis_server *server, const char *who, bool is_listed, bool is_through) {
    static char status[16];
    char said[16];
    snprintf(said, sizeof said, "%d", ++number);
    const char *reply =
        redis_server_ask(server, "EVAL", twi_script_close_election, "4", "tw:closers:f", "tw:closed:f", "tw:names:f",
                         "tw:windows:f", "1", "ask", who, said, "0", "60000", is_through ? "1000" : "0", ",", "1000",
                         "9999999999999", is_listed ? "1" : "0", is_through ? "1" : "0", "0", "1", NULL);
    snprintf(status, sizeof status, "%.*s", (int)strcspn(reply, "\n"), reply);
    return status;
}

static bool has_mark(struct redis_server *server, char mark) {
    return strchr(redis_server_ask(server, "GET", "tw:closed:f", NULL), mark) != NULL;
}

/* Goal: names are removed with a closing. Each engine that comes after one is asked for its names again, before it is
 * closed once more; an engine that finds it claimed for the first time is not, for the claim's names stay. */
TEST(who_comes_after_a_closing_records_its_names_again) {
    struct redis_server server;
    begin_election(&server);
    redis_server_ask(&server, "SADD", "tw:names:f", "name", NULL);
    assert_string_equal(ask(&server, "a", false, false), "YOU");
    assert_string_equal(ask(&server, "b", false, false), "OTHER");
    assert_true(has_mark(&server, '+'));
    assert_string_equal(say(&server, "done", "a", "60000", false, "0", NULL), "LATE");
    assert_string_equal(redis_server_ask(&server, "SCARD", "tw:names:f", NULL), "1");
    assert_string_equal(ask(&server, "b", true, true), "AGAIN");
    assert_string_equal(say(&server, "done", "b", "60000", false, "0", NULL), "DONE");
    assert_string_equal(redis_server_ask(&server, "SCARD", "tw:names:f", NULL), "0");
    for (int i = 0; i < 2; i++) {
        const char *who = i == 0 ? "c" : "d";
        assert_string_equal(ask(&server, who, false, false), "LIST");
        assert_true(has_mark(&server, '+'));
        redis_server_ask(&server, "SADD", "tw:names:f", who, NULL); /* what its batch does */
    }
    assert_string_equal(ask(&server, "c", true, false), "WAIT"); /* for d */
    assert_string_equal(ask(&server, "d", true, false), "WAIT"); /* for c, which has not heard the answer */
    assert_string_equal(ask(&server, "c", true, true), "WAIT");
    assert_string_equal(ask(&server, "d", true, true), "AGAIN");
    assert_string_equal(ask(&server, "e", false, false), "LIST"); /* c and d are there alone */
    assert_string_equal(say(&server, "done", "d", "60000", false, "0", NULL), "LATE");
    assert_string_equal(redis_server_ask(&server, "SCARD", "tw:names:f", NULL), "2");
    redis_server_destroy(&server);
}

/* Goal: names that went with a closing are not said to be lost, however an engine that recorded them before asks after:
 * it has heard that another engine closes the window, and no more. Those of after the closing may be lost. */
TEST(names_that_went_with_a_closing_are_not_lost) {
    struct redis_server server;
    begin_election(&server);
    redis_server_ask(&server, "SADD", "tw:names:f", "name", NULL);
    assert_string_equal(ask(&server, "a", true, true), "YOU");
    assert_string_equal(ask(&server, "b", true, true), "OTHER");
    assert_string_equal(say(&server, "done", "a", "60000", false, "0", NULL), "DONE");
    assert_string_equal(ask(&server, "late", false, false), "LIST");
    assert_string_equal(ask(&server, "b", true, true), "LIST");
    assert_string_equal(redis_server_ask(&server, "EXISTS", "tw:names:f", NULL), "0");
    redis_server_ask(&server, "ZADD", "tw:windows:f", "1000", "0", NULL); /* a batch recorded names, now lost */
    assert_string_equal(ask(&server, "b", true, true), "WAIT");
    assert_string_equal(redis_server_ask(&server, "SISMEMBER", "tw:names:f", "", NULL), "1");
    redis_server_destroy(&server);
}

/* Goal: a closing removes the names, and no value that another client has written in their place. */
TEST(a_foreign_value_in_place_of_the_names_stays) {
    static const char *const names[] = {"tw:names:f", "tw:names1:f"}; /* in one store, and by tag */
    struct redis_server server;
    begin_election(&server);
    for (int is_set = 0; is_set < 2; is_set++) {
        redis_server_ask(&server, "DEL", names[0], names[1], "tw:closed:f", NULL);
        for (int i = 0; i < 2; i++) redis_server_ask(&server, is_set ? "SADD" : "SET", names[i], "foreign", NULL);
        assert_string_equal(say(&server, "done", "a", "60000", false, "0", NULL), "DONE");
        redis_server_ask(&server, "EVAL", twi_script_window_names, "1", names[1], "1", "drop", NULL);
        assert_string_equal(redis_server_ask(&server, "EXISTS", names[0], names[1], NULL), is_set ? "0" : "2");
    }
    redis_server_destroy(&server);
}

/* As say(), of an engine whose keys lie in several stores: its names are in `group`, or NULL. */
static const char *say_by_tag(struct redis_server *server, const char *verb, const char *who, const char *life_ms,
                              bool is_listed, bool is_through, const char *group) {
    static char status[16];
    char said[16];
    snprintf(said, sizeof said, "%d", ++number);
    const char *reply =
        redis_server_ask(server, "EVAL", twi_script_close_election, "4", "tw:closers:f", "tw:closed:f", "tw:names:f",
                         "tw:windows:f", "2", verb, who, said, "0", life_ms, is_through ? "1000" : "0", ",", "1000",
                         "9999999999999", is_listed ? "1" : "0", is_through ? "1" : "0", "0", "0", group, NULL);
    snprintf(status, sizeof status, "%.*s", (int)strcspn(reply, "\n"), reply);
    return status;
}

/* Goal: by tag, an engine that is alone claims a window without listing its groups of names. If another engine gets the
 * window after it, that one is told to read all groups, not those of the index alone. */
TEST(by_tag_names_of_an_earlier_claim_are_read) {
    enum { IS_LATE, PASSES, DIES, WAYS };
    struct redis_server server;
    redis_server_start(&server, NULL);
    for (int way = 0; way < WAYS; way++) {
        redis_server_ask(&server, "FLUSHALL", NULL);
        (void)say_by_tag(&server, "word", "a", "60000", false, false, NULL);
        redis_server_ask(&server, "HSET", "tw:closers:f", "f", "0", NULL);
        assert_string_equal(say_by_tag(&server, "ask", "a", "60000", false, false, NULL), "YOU");
        assert_string_equal(say_by_tag(&server, "ask", "b", "60000", false, false, NULL), "LIST");
        assert_string_equal(say_by_tag(&server, "list", "b", "60000", false, false, "7"), "OK");
        if (way == IS_LATE) assert_string_equal(say_by_tag(&server, "done", "a", "60000", false, true, NULL), "LATE");
        if (way == PASSES) assert_string_equal(say_by_tag(&server, "pass", "a", "60000", false, true, NULL), "OK");
        if (way == DIES) { /* its heartbeat and its claim are over */
            redis_server_ask(&server, "HDEL", "tw:closers:f", "i:a", NULL);
            redis_server_ask(&server, "SET", "tw:closed:f", "c a 1", NULL);
        }
        assert_string_equal(say_by_tag(&server, "ask", "b", "60000", true, true, NULL),
                            way == IS_LATE ? "AGAIN" : "YOU");
        assert_string_equal(redis_server_ask(&server, "SISMEMBER", "tw:names:f", "", NULL), "1");
        assert_string_equal(say_by_tag(&server, "done", "b", "60000", false, true, NULL), "DONE");
        assert_string_equal(redis_server_ask(&server, "EXISTS", "tw:names:f", NULL), "0");
    }
    redis_server_destroy(&server);
}

/* Goal: the names of a window are lost. Each engine that has recorded some is asked for them again, and the closer
 * learns that others may lack. */
TEST(lost_names_are_recorded_again) {
    struct redis_server server;
    begin_election(&server);
    assert_string_equal(ask(&server, "a", false, false), "LIST");
    assert_string_equal(redis_server_ask(&server, "SISMEMBER", "tw:names:f", "", NULL), "1");
    assert_string_equal(ask(&server, "b", false, false), "LIST");
    assert_string_equal(ask(&server, "a", true, false), "WAIT");
    assert_string_equal(ask(&server, "b", true, true), "WAIT");
    assert_string_equal(ask(&server, "a", true, true), "YOU");
    redis_server_destroy(&server);
}

/* Goal: a claim whose time is over goes to another engine only if its engine is dead. */
TEST(a_claim_lasts_as_long_as_its_engine_lives) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    for (int dies = 0; dies < 2; dies++) {
        redis_server_ask(&server, "FLUSHALL", NULL);
        say(&server, "word", "a", "60000", true, "0", NULL);
        say(&server, "word", "b", "60000", true, "0", NULL);
        redis_server_ask(&server, "HSET", "tw:closers:f", "f", "0", NULL); /* the engines' time to come is over */
        say(&server, "word", "b", "60000", false, "0", NULL);
        assert_string_equal(say(&server, "ask", "a", "300", false, "1", "1"), "YOU");
        assert_string_equal(say(&server, "ask", "b", "60000", false, "1", "1"), "OTHER");
        if (!dies) say(&server, "word", "a", "60000", false, "0", NULL);
        test_sleep_ms(320); /* the claim of 300 ms is over */
        assert_string_equal(say(&server, "ask", "b", "60000", false, "1", "1"), dies ? "YOU" : "OTHER");
    }
    /* Not for ever: the engine may have closed the window with local figures instead. */
    say(&server, "word", "a", "60000", false, "0", NULL);
    assert_string_equal(say(&server, "ask", "b", "60000", false, "1", "1"), "YOU");
    assert_string_equal(say(&server, "ask", "a", "60000", false, "1", "1"), "OTHER");
    assert_string_equal(say(&server, "pass", "b", "60000", false, NULL, NULL), "OK");
    assert_string_equal(say(&server, "ask", "a", "50", false, "1", "1"), "YOU");
    say(&server, "word", "a", "60000", false, "0", NULL);
    test_sleep_ms(300); /* the 50 ms of the claim, and four lives of the engine that asks */
    assert_string_equal(say(&server, "ask", "b", "50", false, "1", "1"), "YOU");
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
