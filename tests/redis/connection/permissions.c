/* permissions.c -- a user who lacks one of the permissions in docs/KEYS.md: a log line says so, nothing is lost, and
 * once it is permitted everything is counted once. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include "engine/turn/closing.h"

#include <unistd.h>

struct permission {
    const char *command;
    const char *says; /* what the log must contain; NULL: counting does not need it */
    bool counts;      /* everything is counted without it */
};

static const struct permission permissions[] = {
    {"evalsha", "refuses a batch: NOPERM", false},
    {"eval", "refuses a batch: NOPERM", false},
    {"time", "refuses a batch: ", false},
    {"hmget", "refuses a batch: ", false},
    {"hset", "refuses a batch: ", false},
    {"incrby", "refuses a command on the keys of a batch: ", false},
    {"pexpireat", "keys stay without an expiry in Redis", true},
    {"pexpire", "keys stay without an expiry in Redis", true},
    {"ping", NULL, true},
    {"info", NULL, true},
    {"get", NULL, true},
    {"hscan", NULL, true},
    {"hdel", NULL, true},
    {"pttl", NULL, true},
    {"zadd", "refuses the registry of live engines", true},
    {"zcard", "refuses the registry of live engines", true},
    {"zremrangebyscore", NULL, true},
};
#define PERMISSIONS (sizeof permissions / sizeof *permissions)

/* Makes the user of docs/KEYS.md. */
static void make_user(struct redis_server *server) {
    redis_server_ask(server, "ACL", "SETUSER", "tally", "reset", "on", ">pw", "~acl:*", redis_server_no_channels(),
                     "-@all", NULL);
    for (size_t i = 0; i < PERMISSIONS; i++) {
        char word[32];
        snprintf(word, sizeof word, "+%s", permissions[i].command);
        redis_server_ask(server, "ACL", "SETUSER", "tally", word, NULL);
    }
}

static void permit(struct redis_server *server, const struct permission *permission, bool may) {
    char word[32];
    snprintf(word, sizeof word, "%c%s", may ? '+' : '-', permission->command);
    redis_server_ask(server, "ACL", "SETUSER", "tally", word, NULL);
}

/* Adds totals beyond 2^53, which are fetched; windows, which get an expiry; lives, whose end is read. */
static void add_round(tw_family **families) {
    for (int i = 0; i < 3; i++) assert_status(tw_add(families[i], tw_str("k"), TW_DELTA_MAX, NULL), TW_OK);
}

static bool flushed(void *ctx) {
    return tw_flush(ctx, 2000) == TW_OK;
}

static void check_one(struct redis_server *server, const struct permission *permission) {
    struct log_lines lines = {.text = ""};
    tw_options options;
    tw_engine *engine;
    char url[256];
    redis_server_ask(server, "FLUSHALL", NULL);
    redis_server_ask(server, "SCRIPT", "FLUSH", NULL);
    make_user(server);
    permit(server, permission, false);
    snprintf(url, sizeof url, "unix://tally:pw@%s", server->socket);
    quick_options(&options, url);
    options.redis_prefix = "acl:";
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *families[] = {family_of(engine, "e", TW_WINDOW_FOREVER, 0),
                             family_of(engine, "h", TW_WINDOW_ALIGNED, LONG_WINDOW_MS),
                             family_of(engine, "f", TW_WINDOW_FROM_FIRST, TW_HOUR)};
    for (int i = 0; i < 3; i++) {
        add_round(families);
        tw_status status = tw_flush(engine, permission->counts ? TEST_PATIENCE_MS : 150);
        if (permission->counts) assert_status(status, TW_OK);
        if (!permission->counts) assert_true(status == TW_ERR_TIMEOUT || status == TW_ERR_REDIS);
    }
    if (permission->counts) assert_i64_equal(redis_server_get(server, "acl:e:k"), 3 * TW_DELTA_MAX);
    permit(server, permission, true);
    assert_true(test_wait(flushed, engine, TEST_PATIENCE_MS));
    assert_i64_equal(redis_server_get(server, "acl:e:k"), 3 * TW_DELTA_MAX);
    assert_i64_equal(atoll(redis_server_ask(server, "EVAL",
                                            "local n = 0 for _, p in ipairs({'acl:h:*', 'acl:f:*'}) do "
                                            "for _, k in ipairs(redis.call('KEYS', p)) do "
                                            "if redis.call('GET', k) == ARGV[1] then n = n + 1 end end end return n",
                                            "0", "27021597764222976", NULL)),
                     2);
    assert_i64_equal(test_stat_of(engine, lost) + test_stat_of(engine, uncertain), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    if (permission->says && strstr(lines.text, permission->says) == NULL) fail_msg("%s", lines.text);
    assert_null(strstr(lines.text, "pw"));
}

#define PARTS 4u

/* Goal: NOPERM on each command in turn: a clear line where it matters, nothing lost, nothing twice (fault 26). Method:
 * every fourth command of the table, beginning with the part's number. */
TEST_EACH(each_missing_permission_is_named_and_nothing_is_lost, 0, 1, 2, 3) {
    size_t part = (size_t)(uintptr_t)*state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    for (size_t i = part; i < PERMISSIONS; i += PARTS) {
        print_message("# without %s\n", permissions[i].command);
        check_one(&server, &permissions[i]);
    }
    redis_server_destroy(&server);
}

/* Goal: a batch is executed, its key becomes something else, and the batch is sent again. It is not counted again when
 * the key is repaired: DUP of a key that cannot be read is no refusal. */
TEST(what_a_dup_cannot_read_is_not_counted_again) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    make_user(&server);
    char url[256];
    snprintf(url, sizeof url, "unix://tally:pw@%s", server.socket);
    tw_options options;
    tw_engine *engine;
    quick_options(&options, url);
    options.redis_prefix = "acl:";
    options.redis_timeout_ms = 300;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "e", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_pause(&server);
    assert_status(tw_add(family, tw_str("k"), 10, NULL), TW_OK);
    test_sleep_ms(1500); /* sent, given up, sent again on other connections: all copies wait in the server's sockets */
    redis_server_resume(&server);
    permit(&server, &(struct permission){.command = "get"}, false);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    permit(&server, &(struct permission){.command = "get"}, true);
    test_sleep_ms(300); /* what is sent again would be counted by now */
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "acl:e:k"), 11);
    assert_i64_equal(test_stat_of(engine, poison_keys), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- what features need beyond counting ---- */

struct feature {
    const char *name, *commands; /* as in docs/KEYS.md */
    const char *spare;           /* commands that it can do without, with less service; blanks around each */
    bool (*works)(tw_engine *engine, int64_t within_ms);
};

/* Reserves, buys once, confirms, cancels, lets one return by itself, sells all. */
static bool stock_works(tw_engine *engine, int64_t within_ms) {
    tw_family *family = family_of(engine, "st", TW_WINDOW_FOREVER, 0);
    char token[TW_TOKEN_SIZE];
    tw_key key = tw_str("k"), buyer = tw_str("b"), anybody = tw_str("");
    bool works = tw_reserve(family, key, 3, 10, 60000, buyer, token, NULL) == TW_OK;
    works = works && tw_reserve(family, key, 1, 10, 60000, buyer, token, NULL) == TW_DENIED;
    works = works && tw_reserve(family, key, 1, 10, 60000, tw_str("c"), token, NULL) == TW_OK;
    works = works && tw_reserve_confirm(engine, token) == TW_OK;
    works = works && tw_reserve(family, key, 5, 10, 60000, tw_str("d"), token, NULL) == TW_OK;
    works = works && tw_reserve_cancel(engine, token) == TW_OK;
    works = works && tw_reserve(family, key, 6, 10, 1, anybody, token, NULL) == TW_OK;
    test_sleep_ms(10);
    works = works && tw_reserve(family, key, 6, 10, 60000, anybody, token, NULL) == TW_OK;
    return works && tw_reserve(family, key, 1, 10, 60000, anybody, token, NULL) == TW_DENIED;
}

static bool holds_work(tw_engine *engine, int64_t within_ms) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = "jobs";
    options.window = TW_WINDOW_FOREVER;
    options.limit_mode = TW_LIMIT_STRICT;
    options.on_outage = TW_OUTAGE_FAIL_CLOSED; /* the engine decides nothing by itself */
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    tw_key key = tw_str("k");
    bool works = tw_hold(family, key, 2, NULL) == TW_OK && tw_hold(family, key, 2, NULL) == TW_OK;
    works = works && tw_hold(family, key, 2, NULL) == TW_DENIED;
    works = works && tw_hold_release(family, key) == TW_OK && tw_hold(family, key, 2, NULL) == TW_OK;
    return tw_hold_release(family, key) == TW_OK && tw_hold_release(family, key) == TW_OK && works;
}

static bool hard_limits_work(tw_engine *engine, int64_t within_ms) {
    tw_family_options options;
    tw_family *family;
    tw_verdict verdict = {0};
    tw_family_options_init(&options);
    options.name = "sale";
    options.window = TW_WINDOW_FOREVER;
    options.limit_mode = TW_LIMIT_HARD;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    int64_t until_ms = test_mono_ms() + within_ms, sold = 0;
    while (!verdict.final && test_mono_ms() < until_ms) {
        tw_status status = tw_acquire(family, tw_str("k"), 1, 20, &verdict);
        sold += status == TW_OK;
        if (status != TW_OK) test_sleep_ms(1);
    }
    return verdict.final && sold == 20;
}

/* Redis decides, denials included. */
static bool strict_limits_work(tw_engine *engine, int64_t within_ms) {
    tw_family_options options;
    tw_family *family;
    tw_verdict verdict = {0};
    tw_family_options_init(&options);
    options.name = "strict";
    options.window = TW_WINDOW_FOREVER;
    options.limit_mode = TW_LIMIT_STRICT;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    bool works = tw_acquire(family, tw_str("k"), 1, 1, &verdict) == TW_OK && verdict.decided_by == TW_BY_REDIS;
    return works && tw_acquire(family, tw_str("k"), 1, 1, &verdict) == TW_DENIED && verdict.decided_by == TW_BY_REDIS;
}

static bool shape_works(tw_engine *engine, uint32_t shape, const char *name, int64_t within_ms) {
    tw_key key = tw_str("s|x");
    int64_t total = 0;
    test_shape = shape;
    tw_family *family = family_of(engine, name, TW_WINDOW_FOREVER, 0);
    test_shape = TW_REDIS_STRING;
    if (tw_add(family, key, 5, NULL) != TW_OK || tw_flush(engine, (uint32_t)within_ms) != TW_OK) return false;
    test_sleep_ms(30); /* the total of the flush is too old then, so the fetch asks Redis */
    return tw_fetch(family, &key, 1, (uint32_t)within_ms, &total) == TW_OK && total == 5;
}

static bool hashes_work(tw_engine *engine, int64_t within_ms) {
    return shape_works(engine, TW_REDIS_HASH, "article", within_ms);
}

static bool sorted_sets_work(tw_engine *engine, int64_t within_ms) {
    return shape_works(engine, TW_REDIS_ZSET, "ranking", within_ms);
}

static struct redis_server *current_server; /* of the feature that is tested */

static bool see_total(void *ctx, tw_key name, int64_t total) {
    *(int64_t *)ctx += total;
    return true;
}

static tw_family *family_shaped(tw_engine *engine, const char *name, uint32_t shape) {
    test_shape = shape;
    tw_family *family = family_of(engine, name, TW_WINDOW_FOREVER, 0);
    test_shape = TW_REDIS_STRING;
    return family;
}

static bool fields_are_read(tw_engine *engine, int64_t within_ms) {
    tw_family *family = family_shaped(engine, "article", TW_REDIS_HASH);
    int64_t sum = 0;
    redis_server_ask(current_server, "HSET", "acl:article:s", "x", "5", NULL);
    return tw_fetch_fields(family, tw_str("s"), TW_NOW, (uint32_t)within_ms, see_total, &sum) == TW_OK && sum == 5;
}

static bool rankings_are_read(tw_engine *engine, int64_t within_ms) {
    tw_family *family = family_shaped(engine, "ranking", TW_REDIS_ZSET);
    int64_t sum = 0, rank = -7;
    redis_server_ask(current_server, "ZADD", "acl:ranking", "5", "m", NULL);
    return tw_fetch_top(family, TW_NOW, 10, (uint32_t)within_ms, see_total, &sum) == TW_OK && sum == 5 &&
           tw_fetch_rank(family, tw_str("m"), TW_NOW, (uint32_t)within_ms, &rank, NULL) == TW_OK && rank == 0;
}

static struct feature features[] = {
    {"strict limits", "hget hdel", " hdel ", strict_limits_work}, /* without it each denial takes two requests */
    {"stock", "hget zadd zcard zrange zrangebyscore zrem zscore decrby", "", stock_works},
    {"holds", "zadd zcard zrem zremrangebyscore zscore", "", holds_work},
    /* without these the idle units of others are not called back and count as stranded; nothing is cleaned up */
    {"hard limits", "hget hset hdel hgetall hlen zadd zrangebyscore zremrangebyscore",
     " hget hdel zadd zrangebyscore zremrangebyscore ", hard_limits_work},
    {"hashes", "hincrby hget", "", hashes_work},
    {"sorted sets", "zscore zincrby", "", sorted_sets_work},
    {"fields", "hscan hdel info", " info ", fields_are_read}, /* without it a server that takes over is not noticed */
    {"rankings", "zrevrange zrevrank zscore zrem", "", rankings_are_read},
};

/* True if the feature works for a user with the permissions for counting and for the feature, less one command. */
static bool works_without(struct redis_server *server, const struct feature *feature, const char *missing,
                          struct log_lines *lines, int64_t within_ms) {
    char words[128], url[256], word[32], *rest = words;
    tw_options options;
    tw_engine *engine;
    redis_server_ask(server, "FLUSHALL", NULL);
    redis_server_ask(server, "SCRIPT", "FLUSH", NULL);
    make_user(server);
    snprintf(words, sizeof words, "%s", feature->commands);
    for (char *command; (command = strtok_r(rest, " ", &rest)) != NULL;) {
        snprintf(word, sizeof word, "+%s", command);
        redis_server_ask(server, "ACL", "SETUSER", "tally", word, NULL);
    }
    if (missing != NULL) permit(server, &(struct permission){.command = missing}, false);
    snprintf(url, sizeof url, "unix://tally:pw@%s", server->socket);
    quick_options(&options, url);
    options.redis_prefix = "acl:";
    options.redis_timeout_ms = (uint32_t)within_ms; /* a busy machine is no refusal */
    options.log_write = on_log;
    options.log_ctx = lines;
    lines->text[0] = '\0';
    assert_status(test_open(&options, &engine), TW_OK);
    bool works = feature->works(engine, within_ms);
    (void)tw_close(engine, 1000);
    return works;
}

static bool is_spare(const struct feature *feature, const char *command) {
    char word[32];
    snprintf(word, sizeof word, " %s ", command);
    return strstr(feature->spare, word) != NULL;
}

/* Goal: for each feature the permissions in docs/KEYS.md suffice; without any one of them the engine reports it or does
 * less, as that page says. */
TEST_EACH(each_feature_needs_what_the_manual_says, 0, 1, 2, 3, 4, 5, 6, 7) {
    const struct feature *feature = &features[(uintptr_t)*state];
    struct redis_server server;
    static struct log_lines lines;
    char words[128], *rest = words;
    redis_server_start(&server, NULL);
    current_server = &server;
    if (!works_without(&server, feature, NULL, &lines, 60000))
        fail_msg("%s: the line of the manual does not suffice: %s", feature->name, lines.text);
    assert_null(strstr(lines.text, "refuses"));
    snprintf(words, sizeof words, "%s", feature->commands);
    for (char *command; (command = strtok_r(rest, " ", &rest)) != NULL;) {
        bool spare = is_spare(feature, command);
        print_message("# %s without %s\n", feature->name, command);
        if (works_without(&server, feature, command, &lines, spare ? 60000 : 2500) != spare)
            fail_msg("%s %s without %s: %s", feature->name, spare ? "fail" : "work", command, lines.text);
    }
    redis_server_destroy(&server);
}

/* ---- windows that one engine closes ---- */

static const char *const closing[] = {"+hgetall", "+hlen", "+set", "+sadd", "+sscan", "+exists", "+unlink"};

struct closed {
    _Atomic int calls;
    _Atomic uint32_t flags;
    _Atomic int64_t sum;
};

static bool add_view(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->view;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct closed *closed = ctx;
    int64_t sum = 0;
    if (tw_each(family, start_ms, add_view, &sum) != TW_OK) return false;
    atomic_store(&closed->flags, flags);
    atomic_store(&closed->sum, sum);
    atomic_fetch_add(&closed->calls, 1);
    return true;
}

static bool was_closed(void *ctx) {
    return atomic_load(&((struct closed *)ctx)->calls) != 0;
}

static tw_family *family_closed_once(tw_engine *engine, struct closed *closed) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = "c";
    options.window_ms = 1000;
    options.lateness_ms = 2000;
    options.earliness_ms = TW_MINUTE;
    options.closed_by = TW_CLOSED_BY_ONE;
    options.on_window_closed = on_closed;
    options.closed_ctx = closed;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

/* Goal: the permissions in docs/KEYS.md suffice for TW_CLOSED_BY_ONE. Without them one line says so, and each engine
 * closes with what it knows. */
TEST(closing_by_one_needs_what_the_manual_names) {
    test_tuning.closing_wait_ms = 3000;
    for (int permitted = 0; permitted < 2; permitted++) {
        struct redis_server server;
        struct log_lines lines = {.text = ""};
        struct closed closed = {0};
        tw_engine *engines[2];
        char url[256];
        struct timespec now;
        redis_server_start(&server, NULL);
        make_user(&server);
        for (size_t i = 0; permitted && i < sizeof closing / sizeof *closing; i++)
            redis_server_ask(&server, "ACL", "SETUSER", "tally", closing[i], NULL);
        snprintf(url, sizeof url, "unix://tally:pw@%s", server.socket);
        clock_gettime(CLOCK_REALTIME, &now);
        int64_t start_ms = (now.tv_sec + 2) * 1000;
        for (int i = 0; i < 2; i++) {
            tw_options options;
            quick_options(&options, url);
            options.redis_prefix = "acl:";
            options.log_write = i == 0 ? on_log : NULL;
            options.log_ctx = &lines;
            assert_status(test_open(&options, &engines[i]), TW_OK);
            tw_family *family = family_closed_once(engines[i], &closed);
            assert_status(tw_add_at(family, tw_str(i == 0 ? "a" : "b"), 2, start_ms, NULL), TW_OK);
        }
        assert_true(test_wait(was_closed, &closed, TEST_PATIENCE_MS));
        assert_i64_equal(atomic_load(&closed.flags), permitted ? 0 : TW_CLOSED_LOCAL);
        if (permitted) assert_i64_equal(atomic_load(&closed.sum), 4);
        for (int i = 0; i < 2; i++) assert_status(tw_close(engines[i], TEST_PATIENCE_MS), TW_OK);
        const char *line = strstr(lines.text, "refuses the choice of one engine to close a window");
        assert_true((line == NULL) == (permitted == 1));
        if (line != NULL) assert_null(strstr(line + 1, "refuses the choice of one engine"));
        redis_server_destroy(&server);
    }
    test_tuning.closing_wait_ms = 60000;
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
