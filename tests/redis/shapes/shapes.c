/* shapes.c -- families whose counters are fields of hashes, or members of sorted sets, over a real Redis.
 * Always true: what holds for strings holds here. Each test plays both shapes; restore.c, chaos.c, closed_by_one.c,
 * cluster_load.c and script_model.c play all three. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include <sys/wait.h>
#include <unistd.h>

#define WALL_MS INT64_C(4102444800000) /* 2100-01-01, midnight: by Redis's clock no window is over yet */
#define PROCESSES 3
#define SUBJECTS 5
#define FIELDS 4
#define ROUNDS 200
#define EXACT INT64_C(9007199254740992) /* 2^53 */

#define BOTH_SHAPES(test) TEST_EACH(test, TW_REDIS_HASH, TW_REDIS_ZSET)

/* The total of a key, read as any other program reads it. */
static const char *total_of(struct redis_server *server, const char *family, const char *stamp, const char *subject,
                            const char *field) {
    char name[128], member[128];
    if (test_shape == TW_REDIS_HASH) {
        snprintf(name, sizeof name, "%s:%s%s", family, subject, stamp);
        return redis_server_ask(server, "HGET", name, field, NULL);
    }
    snprintf(name, sizeof name, "%s%s", family, stamp);
    snprintf(member, sizeof member, "%s|%s", subject, field);
    return redis_server_ask(server, "ZSCORE", name, member, NULL);
}

static void write_total(struct redis_server *server, const char *subject, const char *field, const char *total) {
    char name[64], member[64];
    if (test_shape == TW_REDIS_HASH) {
        snprintf(name, sizeof name, "f:%s", subject);
        redis_server_ask(server, "HSET", name, field, total, NULL);
        return;
    }
    snprintf(member, sizeof member, "%s|%s", subject, field);
    redis_server_ask(server, "ZADD", "f", total, member, NULL);
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static void count_as_a_process(const char *url, int process) {
    tw_engine *engine = quick_engine(url, NULL);
    tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    char key[32];
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < SUBJECTS * FIELDS; i++) {
            snprintf(key, sizeof key, "s|%d|f%d", i / FIELDS, i % FIELDS);
            assert_status(tw_add(family, tw_str(key), 1 + i * 10 + process, NULL), TW_OK);
        }
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: what several processes count adds up to the unit, in names and inner keys that other programs find: the key is
 * split at its last separator. */
BOTH_SHAPES(counts_of_several_processes_add_up) {
    play_shape(state);
    struct redis_server server;
    pid_t children[PROCESSES];
    redis_server_start(&server, NULL);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = test_fork();
        assert_true(children[i] >= 0);
        if (children[i] != 0) continue;
        count_as_a_process(server.url, i);
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    for (int i = 0; i < SUBJECTS * FIELDS; i++) {
        char subject[16], field[16];
        snprintf(subject, sizeof subject, "s|%d", i / FIELDS);
        snprintf(field, sizeof field, "f%d", i % FIELDS);
        assert_i64_equal(atoll(total_of(&server, "f", "", subject, field)),
                         ROUNDS * (PROCESSES * (1 + i * 10) + PROCESSES * (PROCESSES - 1) / 2));
    }
    const char *names = redis_server_ask(&server, "EVAL", "return #redis.call('KEYS', 'f*')", "0", NULL);
    assert_int_equal(atoi(names), test_shape == TW_REDIS_HASH ? SUBJECTS : 1);
    redis_server_destroy(&server);
}

static tw_status fetch(tw_family *family, const char *text, int64_t *total) {
    tw_key key = tw_str(text);
    return tw_fetch(family, &key, 1, 20000, total);
}

/* Goal: totals come back: each engine's view has what the other has counted, after a flush, and a key that was never
 * counted here is fetched. */
BOTH_SHAPES(views_have_what_others_counted) {
    play_shape(state);
    struct redis_server server;
    int64_t view = 0;
    redis_server_start(&server, NULL);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *one = family_of(a, "f", TW_WINDOW_FOREVER, 0), *other = family_of(b, "f", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(one, tw_str("s|x"), 5, NULL), TW_OK);
    assert_status(tw_add(one, tw_str("s|y"), -7, NULL), TW_OK);
    assert_status(tw_flush(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_add(other, tw_str("s|x"), 3, NULL), TW_OK);
    assert_status(tw_flush(b, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_get(other, tw_str("s|x"), &view), TW_OK);
    assert_i64_equal(view, 8);
    assert_status(fetch(other, "s|y", &view), TW_OK);
    assert_i64_equal(view, -7);
    assert_status(fetch(other, "s|never", &view), TW_OK);
    assert_i64_equal(view, 0);
    write_total(&server, "s", "z", "1000000000000000"); /* 10^15: a later Redis writes such a score as 1e+15 */
    assert_status(fetch(other, "s|z", &view), TW_OK);
    assert_i64_equal(view, INT64_C(1000000000000000));
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- expiry ------------------------------------------------------------------------------------------------------ */

static int64_t expiry_now(struct redis_server *server) {
    const char *name = test_shape == TW_REDIS_HASH ? "hour:s:2100010100" : "hour:2100010100";
    return redis_server_expiry(server, name);
}

static void add_flushed(tw_engine *engine, tw_family *family, const char *key) {
    assert_status(tw_add(family, tw_str(key), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: there is one expiry for all that stands under a name: the first write sets it, later ones and other inner keys
 * leave it, and it is healed when it is lost (faults 31, 33, 34). Method: host-driven, fake clock; PERSIST, DEL. */
BOTH_SHAPES(one_expiry_is_set_once_and_healed) {
    play_shape(state);
    struct redis_server server;
    struct fake_clock clock;
    tw_options options;
    tw_engine *engine;
    const char *name = test_shape == TW_REDIS_HASH ? "hour:s:2100010100" : "hour:2100010100";
    redis_server_start(&server, NULL);
    fake_clock_init(&clock, WALL_MS + 1000);
    quick_options(&options, server.url);
    options.threads = TW_HOST_DRIVEN;
    fake_clock_install(&clock, &options);
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "hour", TW_WINDOW_ALIGNED, TW_HOUR);
    int64_t want = WALL_MS + TW_HOUR + TW_DAY; /* the end, and the default retention */
    add_flushed(engine, family, "s|x");
    assert_i64_equal(expiry_now(&server), want);
    redis_server_ask(&server, "PEXPIREAT", name, "4102444900000", NULL); /* nobody extends what is there */
    add_flushed(engine, family, "s|x");
    add_flushed(engine, family, "s|y");
    assert_i64_equal(expiry_now(&server), INT64_C(4102444900000));
    redis_server_ask(&server, "PERSIST", name, NULL);
    for (int i = 0; i < 40; i++) { /* 40 s of counting: every expiry is checked at least once */
        fake_clock_advance_ms(&clock, 1000);
        add_flushed(engine, family, "s|x");
    }
    assert_i64_equal(expiry_now(&server), want);
    redis_server_ask(&server, "DEL", name, NULL);
    add_flushed(engine, family, "s|y");
    assert_i64_equal(expiry_now(&server), want);
    assert_i64_equal(atoll(total_of(&server, "hour", ":2100010100", "s", "y")), 1);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- what Redis refuses ------------------------------------------------------------------------------------------ */

/* Goal: a total is exact to the last unit that its type holds; a unit more is refused, said by name, waits, and lands
 * once when there is room. */
BOTH_SHAPES(a_total_beyond_its_type_is_refused_and_lands_later) {
    play_shape(state);
    struct redis_server server;
    struct log_lines lines = {0};
    tw_options options;
    tw_engine *engine;
    bool is_hash = test_shape == TW_REDIS_HASH;
    const char *most = is_hash ? "9223372036854775807" : "9007199254740992";
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    write_total(&server, "s", "x", is_hash ? "9223372036854775800" : "9007199254740985");
    assert_status(tw_add(family, tw_str("s|x"), 7, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(total_of(&server, "f", "", "s", "x"), most);
    assert_status(tw_add(family, tw_str("s|x"), 1, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("s|other"), 3, NULL), TW_OK);
    assert_status(tw_flush(engine, 5000), TW_ERR_REDIS);
    assert_string_equal(total_of(&server, "f", "", "s", "x"), most);
    assert_i64_equal(atoll(total_of(&server, "f", "", "s", "other")), 3);
    assert_i64_equal(test_stat_of(engine, poison_keys), 1);
    write_total(&server, "s", "x", "-9007199254740992"); /* the lower end */
    assert_true(test_wait(is_flushed, engine, TEST_PATIENCE_MS));
    assert_string_equal(total_of(&server, "f", "", "s", "x"), "-9007199254740991");
    if (!is_hash) {
        assert_status(tw_add(family, tw_str("s|x"), -2, NULL), TW_OK);
        assert_status(tw_flush(engine, 5000), TW_ERR_REDIS);
        assert_string_equal(total_of(&server, "f", "", "s", "x"), "-9007199254740991");
        write_total(&server, "s", "x", "0");
        assert_true(test_wait(is_flushed, engine, TEST_PATIENCE_MS));
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_non_null(strstr(lines.text, "would overflow"));
    redis_server_destroy(&server);
}

/* Goal: a name of another type, and a value that is no whole number, are refused; the others land; once it is repaired,
 * each waiting count lands, once. */
BOTH_SHAPES(a_foreign_value_waits_alone_and_lands_once) {
    play_shape(state);
    struct redis_server server;
    struct lost lost = {0};
    bool is_hash = test_shape == TW_REDIS_HASH;
    const char *foreign = is_hash ? "f:list" : "g";
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "RPUSH", foreign, "x", NULL);
    write_total(&server, "s", "odd", is_hash ? "text" : "1.5");
    tw_engine *engine = quick_engine(server.url, &lost);
    tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    tw_family *other = is_hash ? family : family_of(engine, "g", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(other, tw_str("list|x"), 5, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("s|odd"), 6, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("s|good"), 7, NULL), TW_OK);
    assert_status(tw_flush(engine, 5000), TW_ERR_REDIS);
    assert_string_equal(total_of(&server, "f", "", "s", "odd"), is_hash ? "text" : "1.5");
    assert_i64_equal(atoll(total_of(&server, "f", "", "s", "good")), 7);
    assert_i64_equal(test_stat_of(engine, poison_keys), 2);
    redis_server_ask(&server, "DEL", foreign, NULL);
    write_total(&server, "s", "odd", "100");
    assert_true(test_wait(is_flushed, engine, TEST_PATIENCE_MS));
    assert_i64_equal(atoll(total_of(&server, is_hash ? "f" : "g", "", "list", "x")), 5);
    assert_i64_equal(atoll(total_of(&server, "f", "", "s", "odd")), 106);
    assert_i64_equal(atoll(total_of(&server, "f", "", "s", "good")), 7);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(lost.calls, 0);
    redis_server_destroy(&server);
}

/* Goal: what finds no room goes to the window's overflow counter, which stays a string. */
BOTH_SHAPES(the_overflow_counter_is_a_string) {
    play_shape(state);
    struct redis_server server;
    tw_family_options options;
    tw_family *family;
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family_options_init(&options);
    options.name = "f";
    options.window = TW_WINDOW_FOREVER;
    options.keys_max = 1;
    options.redis_shape = test_shape;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    assert_status(tw_add(family, tw_str("s|x"), 1, NULL), TW_OK);
    for (int i = 0; i < 9; i++) {
        char key[16];
        snprintf(key, sizeof key, "s|y%d", i);
        assert_status(tw_add(family, tw_str(key), 2, NULL), TW_OVERFLOWED);
    }
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, test_shape == TW_REDIS_HASH ? "tw:overflow:f:" : "tw:overflow:f"), 18);
    assert_i64_equal(atoll(total_of(&server, "f", "", "s", "x")), 1);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

#define LIMIT 25
#define ENGINES 2

struct limited {
    tw_engine *engines[ENGINES];
    tw_family *families[ENGINES];
    int64_t admitted;
    int denied[ENGINES]; /* since the last call that was admitted */
};

/* A call of each engine, which has just been told the total. True: all is admitted, and each of them has denied ten
 * times since. */
static bool is_spent(void *ctx) {
    struct limited *limited = ctx;
    bool spent = limited->admitted >= LIMIT;
    for (int i = 0; i < ENGINES; i++) {
        tw_verdict verdict;
        int64_t total = -1;
        assert_status(fetch(limited->families[i], "s|calls", &total), TW_OK);
        assert_i64_equal(total, limited->admitted);
        tw_status status = tw_acquire(limited->families[i], tw_str("s|calls"), 1, LIMIT, &verdict);
        assert_true(status == TW_OK || status == TW_DENIED);
        limited->admitted += status == TW_OK;
        limited->denied[i] = status == TW_OK ? 0 : limited->denied[i] + 1;
        spent = spent && limited->denied[i] >= 10;
        assert_status(tw_flush(limited->engines[i], TEST_PATIENCE_MS), TW_OK);
    }
    return spent;
}

/* Goal: a soft limit counts what all processes have admitted: where each knows the total, it is admitted to the last
 * unit and not passed. A refund gives units back to all. */
BOTH_SHAPES(a_soft_limit_counts_the_calls_of_all) {
    play_shape(state);
    struct redis_server server;
    struct limited limited = {.admitted = 0};
    redis_server_start(&server, NULL);
    for (int i = 0; i < ENGINES; i++) {
        limited.engines[i] = quick_engine(server.url, NULL);
        limited.families[i] = family_of(limited.engines[i], "f", TW_WINDOW_FOREVER, 0);
    }
    assert_true(test_wait(is_spent, &limited, TEST_PATIENCE_MS));
    assert_i64_equal(limited.admitted, LIMIT);
    assert_i64_equal(atoll(total_of(&server, "f", "", "s", "calls")), LIMIT);
    assert_status(tw_refund(limited.families[0], tw_str("s|calls"), 5, 0), TW_OK);
    assert_status(tw_flush(limited.engines[0], TEST_PATIENCE_MS), TW_OK);
    limited.admitted -= 5;
    assert_true(test_wait(is_spent, &limited, TEST_PATIENCE_MS));
    assert_i64_equal(limited.admitted, LIMIT);
    assert_i64_equal(atoll(total_of(&server, "f", "", "s", "calls")), LIMIT);
    for (int i = 0; i < ENGINES; i++) assert_status(tw_close(limited.engines[i], TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- windows that are over --------------------------------------------------------------------------------------- */

struct closed {
    struct fake_clock clock;
    tw_engine *engine;
    int64_t x, y; /* views of two keys, in the hook */
    uint32_t flags;
    _Atomic int calls;
};

static bool take_view(void *ctx, const tw_count *count) {
    struct closed *closed = ctx;
    char last = ((const char *)count->key.data)[count->key.size - 1];
    if (last == 'x') closed->x = count->view;
    if (last == 'y') closed->y = count->view;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct closed *closed = ctx;
    closed->flags = flags;
    (void)tw_each(family, start_ms, take_view, ctx);
    atomic_fetch_add(&closed->calls, 1);
    return true;
}

/* Time passes only here. */
static bool was_closed(void *ctx) {
    struct closed *closed = ctx;
    fake_clock_advance_ms(&closed->clock, 5);
    return atomic_load(&closed->calls) != 0;
}

static bool is_packed(void *ctx) {
    struct closed *closed = ctx;
    fake_clock_advance_ms(&closed->clock, 5);
    return test_stat_of(closed->engine, windows_packed) != 0;
}

static void open_minute(tw_engine *engine, struct closed *closed, tw_family **family) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "minute";
    options.window_ms = TW_MINUTE;
    options.history_ms = TW_HOUR;
    options.on_window_closed = on_closed;
    options.closed_ctx = closed;
    options.redis_shape = test_shape;
    assert_status(tw_family_open(engine, &options, family), TW_OK);
}

/* Goal: the hook of a window that is over has the totals of all processes; so has the window in history, packed. The
 * next window counts from 0, under a name of its own, and each name has its expiry. */
BOTH_SHAPES(a_window_that_is_over_shows_all_totals) {
    play_shape(state);
    struct redis_server server;
    struct closed closed = {.flags = 0};
    tw_options options;
    tw_engine *engine, *other;
    tw_family *family, *its;
    int64_t view = 0;
    redis_server_start(&server, NULL);
    fake_clock_init(&closed.clock, WALL_MS);
    quick_options(&options, server.url);
    fake_clock_install(&closed.clock, &options);
    options.threads = TW_HOST_DRIVEN;
    assert_status(test_open(&options, &other), TW_OK);
    options.threads = 0;
    assert_status(test_open(&options, &engine), TW_OK);
    closed.engine = engine;
    open_minute(engine, &closed, &family);
    its = family_of(other, "minute", TW_WINDOW_ALIGNED, TW_MINUTE);
    assert_status(tw_add(its, tw_str("s|x"), 7, NULL), TW_OK);
    assert_status(tw_flush(other, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_add(family, tw_str("s|x"), 5, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("s|y"), -3, NULL), TW_OK);
    for (int i = 0; i < 2000; i++) { /* a small window is not packed */
        char key[32];
        snprintf(key, sizeof key, "s%d|n%d", i % 50, i);
        assert_status(tw_add(family, tw_str(key), i + 1, NULL), TW_OK);
    }
    fake_clock_advance_ms(&closed.clock, TW_MINUTE);
    assert_true(test_wait(was_closed, &closed, TEST_PATIENCE_MS));
    assert_i64_equal(closed.flags, 0);
    assert_i64_equal(closed.x, 12);
    assert_i64_equal(closed.y, -3);
    assert_true(test_wait(is_packed, &closed, TEST_PATIENCE_MS));
    assert_status(tw_get_at(family, tw_str("s|x"), WALL_MS, &view), TW_OK);
    assert_i64_equal(view, 12);
    assert_status(tw_get_at(family, tw_str("s49|n1999"), WALL_MS, &view), TW_OK);
    assert_i64_equal(view, 2000);
    assert_status(tw_get(family, tw_str("s|x"), &view), TW_OK);
    assert_i64_equal(view, 0);
    assert_status(tw_add(family, tw_str("s|x"), 1, NULL), TW_OK);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(atoll(total_of(&server, "minute", ":210001010000", "s", "x")), 12);
    assert_i64_equal(atoll(total_of(&server, "minute", ":210001010001", "s", "x")), 1);
    const char *names = redis_server_ask(&server, "EVAL",
                                         "local n = 0 for _, k in ipairs(redis.call('KEYS', 'minute*')) do "
                                         "if redis.call('PTTL', k) > 0 then n = n + 1 end end return n",
                                         "0", NULL);
    assert_int_equal(atoi(names), test_shape == TW_REDIS_HASH ? 52 : 2);
    assert_status(tw_close(other, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- Redis goes back --------------------------------------------------------------------------------------------- */

static void add_to_all(tw_family *family, int64_t delta, int64_t *added) {
    char key[32];
    for (int i = 0; i < SUBJECTS * FIELDS; i++) {
        snprintf(key, sizeof key, "s%d|f%d", i / FIELDS, i % FIELDS);
        assert_status(tw_add(family, tw_str(key), delta + i, NULL), TW_OK);
        *added += delta + i;
    }
}

/* Goal: a Redis that is killed and comes back with an older file gets the batches since then once more, once; one that
 * comes back without a file gets everything. Method: rounds of counts, each acknowledged; the file is written in the
 * middle of them. */
BOTH_SHAPES(a_redis_that_went_back_gets_the_rest_again) {
    play_shape(state);
    struct redis_server server;
    struct lost lost = {0};
    int64_t added = 0;
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, &lost);
    tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    for (int back = 1; back <= 3; back++) {
        for (int round = 0; round < 12; round++) {
            add_to_all(family, round, &added);
            assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
            if (round == 5) assert_string_equal(redis_server_ask(&server, "SAVE", NULL), "OK");
        }
        assert_i64_equal(sum_of(&server, "f*"), added);
        redis_server_kill(&server);
        add_to_all(family, 1, &added);
        redis_server_restart(&server);
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(sum_of(&server, "f*"), added);
        assert_true(test_stat_of(engine, rollbacks) >= back); /* it had forgotten */
    }
    assert_true(test_stat_of(engine, replayed) > 0);
    assert_i64_equal(test_stat_of(engine, uncertain), 0);
    assert_i64_equal(lost.calls, 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
