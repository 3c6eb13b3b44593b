/* overwritten_keys.c -- a co-tenant of Redis writes into every key, the engine's own bookkeeping included: each value
 * spoils its own key alone.
 * Method: each test has a server, an engine with a family of every kind, and one target: the keys of one pattern. In
 * turn the target is made a value of every type, and every field or member of it is given every number that is none.
 * Meanwhile all kinds of calls continue, for a key that may be hit ("bad") and for one that may not ("good").
 * Always true: what is asserted of "good" holds while the target is spoilt, not only after it was repaired. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include <pthread.h>

enum kind { PLAIN, HASH, ZSET, DISTINCT, GAUGE, HARD, STRICT, SLIDING, RATE, ONCE, STOCK, HELD, CLOSED, KINDS };

/* Which kinds of "good" depend on that key as well: it is shared by all keys of the kind. */
struct target {
    const char *pattern;
    const char *named; /* one log line has it; NULL: nobody has to learn of it */
    enum kind shared;  /* KINDS: none */
};

static const struct target targets[] = {
    {"plain:bad", "plain:bad", KINDS},
    {"hash:bad", "hash:bad", KINDS},
    {"distinct:bad", "distinct:bad", KINDS},
    {"gauge:bad", "gauge:bad", KINDS},
    {"strict:bad", "strict:bad", KINDS},
    {"stock:bad", "stock:bad", KINDS},
    {"tw:ledger:*", "tw:ledger:", KINDS},
    {"tw:marker", "tw:marker", KINDS},
    {"tw:live", "tw:live", KINDS},
    {"tw:gauge:gauge:bad", "gauge:bad", KINDS},
    {"tw:calls:strict:bad", "tw:calls:strict:bad", KINDS},
    {"tw:log:sliding:bad:1970010100", "tw:log:sliding:bad", KINDS},
    {"tw:bucket:rate:bad:1970010100", "tw:bucket:rate:bad", KINDS},
    {"tw:calls:rate:bad:1970010100", "tw:calls:rate:bad", KINDS},
    {"tw:once:once:bad", "tw:once:once:bad", KINDS},
    {"tw:lock:strict:bad", "tw:lock:strict:bad", KINDS},
    {"tw:fence:strict:bad", NULL, KINDS},
    {"tw:stock:stock:bad", "tw:stock:stock:bad", KINDS},
    {"tw:due:stock:bad", "tw:due:stock:bad", KINDS},
    {"tw:token:*", NULL, KINDS},
    {"tw:hold:held:bad", "tw:hold:held:bad", KINDS},
    {"tw:lease:hard:bad", "hard:bad", KINDS},
    {"tw:leases", "tw:leases", HARD},
    {"tw:leases:wanted", NULL, KINDS},
    {"tw:closers:*", NULL, CLOSED},
    {"tw:closed:*", NULL, CLOSED},
    {"tw:names:*", NULL, CLOSED},
};
#define TARGETS (sizeof targets / sizeof *targets)

/* ARGV: pattern, how, value. Answers how many keys it has changed. */
static const char spoil_script[] =
    "local n = 0 "
    "local all = string.find(ARGV[1], '*', 1, true) and redis.call('KEYS', ARGV[1]) or {ARGV[1]} "
    "for _, k in ipairs(all) do "
    "  local how, v, t = ARGV[2], ARGV[3], redis.call('TYPE', k).ok "
    "  if how == 'in' then "
    "    if t == 'hash' then for _, f in ipairs(redis.call('HKEYS', k)) do redis.call('HSET', k, f, v) end "
    "      redis.call('HSET', k, 'foreign', v, string.rep('f', 32), v) "
    "    elseif t == 'zset' then for _, m in ipairs(redis.call('ZRANGE', k, 0, -1)) do "
    "      redis.pcall('ZADD', k, v, m) end redis.pcall('ZADD', k, v, 'foreign', 1, 'stranger') "
    "    elseif t == 'set' then redis.call('SADD', k, v) "
    "    elseif t == 'string' then redis.call('SET', k, v, 'KEEPTTL') end "
    "  else redis.call('DEL', k) "
    "    if how == 'string' then redis.call('SET', k, v) "
    "    elseif how == 'list' then redis.call('RPUSH', k, v) "
    "    elseif how == 'set' then redis.call('SADD', k, v) "
    "    elseif how == 'hash' then redis.call('HSET', k, 'n', v) "
    "    elseif how == 'zset' then redis.call('ZADD', k, 1, v) "
    "    elseif how == 'stream' then redis.call('XADD', k, '*', 'f', v) end "
    "  end n = n + 1 end return n";

static const char *const hows[] = {"string", "list", "set", "hash", "zset", "stream"};
static const char *const values[] = {"x",
                                     "",
                                     "-1",
                                     "1.5",
                                     "nan",
                                     "inf",
                                     "-inf",
                                     "1e400",
                                     "-9223372036854775808",
                                     "9223372036854775807",
                                     "9007199254740993",
                                     "18446744073709551616",
                                     "9999999999999999999999999999999999999999",
                                     "99999999999999999999 99999999999999999999 99999999999999999999 1 1",
                                     "5 1 9999999999999999"};
#define HOWS (sizeof hows / sizeof *hows)
#define VALUES (sizeof values / sizeof *values)
#define WAYS (HOWS + VALUES)

struct lines {
    pthread_mutex_t lock;
    size_t used;
    char text[1 << 18];
};

struct stage {
    struct redis_server server;
    struct lines lines;
    tw_engine *engine;
    tw_family *family[KINDS];
    const struct target *target;
    int64_t added;       /* to "good" of each counter */
    int64_t strict_used; /* of "good" */
    uint64_t turn;
};

static void keep_line(void *ctx, int level, int event, const char *text) {
    struct lines *lines = ctx;
    pthread_mutex_lock(&lines->lock);
    int room = (int)(sizeof lines->text - lines->used);
    int size = snprintf(lines->text + lines->used, (size_t)room, "%d/%d %s\n", level, event, text);
    lines->used += size < room ? (size_t)size : 0;
    pthread_mutex_unlock(&lines->lock);
}

static bool has_line(struct lines *lines, const char *part) {
    pthread_mutex_lock(&lines->lock);
    bool has = strstr(lines->text, part) != NULL;
    pthread_mutex_unlock(&lines->lock);
    return has;
}

static bool take_window(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)family, (void)start_ms, (void)end_ms, (void)flags;
    return true;
}

static void open_family(struct stage *stage, enum kind kind, const char *name) {
    tw_family_options options;
    char error[256] = "";
    tw_family_options_init(&options);
    options.name = name;
    options.window = TW_WINDOW_FOREVER;
    options.error_text = error;
    options.error_size = sizeof error;
    options.on_outage = TW_OUTAGE_FAIL_OPEN;
    if (kind == HASH) options.redis_shape = TW_REDIS_HASH;
    if (kind == ZSET) options.redis_shape = TW_REDIS_ZSET;
    if (kind == DISTINCT) options.kind = TW_KIND_DISTINCT;
    if (kind == GAUGE) options.kind = TW_KIND_GAUGE;
    if (kind == DISTINCT || kind == GAUGE || kind == HASH || kind == ZSET) options.on_outage = 0;
    if (kind == HARD) options.limit_mode = TW_LIMIT_HARD, options.on_outage = 0;
    if (kind == STRICT || kind == SLIDING || kind == RATE || kind == ONCE) options.limit_mode = TW_LIMIT_STRICT;
    if (kind == SLIDING || kind == RATE) options.window = TW_WINDOW_ALIGNED, options.window_ms = TW_HOUR;
    if (kind == SLIDING) options.limit_shape = TW_SHAPE_SLIDING;
    if (kind == RATE) options.limit_shape = TW_SHAPE_GCRA;
    if (kind == CLOSED) {
        options.window = TW_WINDOW_ALIGNED;
        options.window_ms = TW_SECOND;
        options.retention_ms = TW_MINUTE;
        options.closed_by = TW_CLOSED_BY_ONE;
        options.on_window_closed = take_window;
    }
    tw_status status = tw_family_open(stage->engine, &options, &stage->family[kind]);
    if (status != TW_OK) print_error("%s: %s\n", name, error);
    assert_status(status, TW_OK);
}

static void stage_begin(struct stage *stage, const struct target *target) {
    static const char *const names[KINDS] = {"plain",   "hash", "zset", "distinct", "gauge", "hard",  "strict",
                                             "sliding", "rate", "once", "stock",    "held",  "closed"};
    tw_options options;
    memset(stage, 0, sizeof *stage);
    stage->target = target;
    pthread_mutex_init(&stage->lines.lock, NULL);
    redis_server_start(&stage->server, NULL);
    quick_options(&options, stage->server.url);
    options.redis_timeout_ms = 10000;
    options.log_write = keep_line;
    options.log_ctx = &stage->lines;
    assert_status(test_open(&options, &stage->engine), TW_OK);
    for (int kind = 0; kind < KINDS; kind++) open_family(stage, (enum kind)kind, names[kind]);
    assert_status(tw_ready(stage->engine, TEST_PATIENCE_MS), TW_OK);
}

/* Calls of every kind for a key that may be hit: whatever they answer, they end. */
static void use_bad(struct stage *stage) {
    tw_key key = tw_str("bad");
    uint64_t element = stage->turn;
    char token[TW_TOKEN_SIZE];
    bool first;
    int64_t total;
    (void)tw_add(stage->family[PLAIN], key, 1, NULL);
    (void)tw_add(stage->family[HASH], tw_str("bad|f"), 1, NULL);
    (void)tw_add(stage->family[ZSET], key, 1, NULL);
    (void)tw_add(stage->family[CLOSED], key, 1, NULL);
    (void)tw_add(stage->family[GAUGE], key, stage->turn % 2 != 0 ? 1 : -1, NULL);
    (void)tw_distinct_add(stage->family[DISTINCT], key, tw_bytes(&element, sizeof element), NULL);
    (void)tw_distinct_get(stage->family[DISTINCT], key, &total);
    for (int kind = HARD; kind <= RATE; kind++) (void)tw_acquire(stage->family[kind], key, 1, 1000000, NULL);
    (void)tw_once(stage->family[ONCE], key, &first);
    if (tw_reserve(stage->family[STOCK], key, 1, 1000000, 60000, tw_str(""), token, NULL) == TW_OK)
        (void)tw_reserve_confirm(stage->engine, token);
    if (tw_hold(stage->family[HELD], key, 1000000, NULL) == TW_OK && stage->turn % 2 != 0)
        (void)tw_hold_release(stage->family[HELD], key);
    if (tw_lock(stage->family[STRICT], key, 60000, token, NULL) == TW_OK)
        (void)tw_lock_release(stage->family[STRICT], key, token);
}

static void assert_decided(tw_status status, const tw_verdict *verdict) {
    assert_status(status, TW_OK);
    assert_int_equal(verdict->decided_by, TW_BY_REDIS);
}

/* The same for one that may not be hit. All is decided by Redis, and exact. */
static void use_good(struct stage *stage) {
    tw_key key = tw_str("good");
    tw_verdict verdict;
    bool first = true;
    uint64_t element = stage->turn;
    char token[TW_TOKEN_SIZE];
    assert_status(tw_add(stage->family[PLAIN], key, 3, NULL), TW_OK);
    assert_status(tw_add(stage->family[HASH], tw_str("good|f"), 3, NULL), TW_OK);
    assert_status(tw_add(stage->family[ZSET], key, 3, NULL), TW_OK);
    assert_status(tw_add(stage->family[GAUGE], key, 3, NULL), TW_OK);
    stage->added += 3;
    assert_status(tw_distinct_add(stage->family[DISTINCT], key, tw_bytes(&element, sizeof element), NULL), TW_OK);
    assert_decided(tw_acquire(stage->family[STRICT], key, 1, 1000000, &verdict), &verdict);
    assert_i64_equal(verdict.used, ++stage->strict_used);
    assert_decided(tw_acquire(stage->family[SLIDING], key, 1, 1000000, &verdict), &verdict);
    assert_decided(tw_acquire(stage->family[RATE], key, 1, 1000000, &verdict), &verdict);
    assert_status(tw_once(stage->family[ONCE], key, &first), TW_OK);
    assert_int_equal(first, stage->strict_used == 1);
    assert_decided(tw_hold(stage->family[HELD], key, 1, &verdict), &verdict);
    assert_status(tw_hold_release(stage->family[HELD], key), TW_OK);
    if (strncmp(stage->target->pattern, "tw:token", 8) != 0) {
        assert_status(tw_reserve(stage->family[STOCK], key, 1, 1000000, 60000, tw_str(""), token, &verdict), TW_OK);
        assert_status(tw_reserve_confirm(stage->engine, token), TW_OK);
        assert_i64_equal(verdict.used, stage->strict_used);
    }
    if (stage->target->shared != HARD && stage->turn > 50) {
        tw_status status = tw_acquire_wait(stage->family[HARD], key, 1, 1000000, 20000, NULL);
        assert_status(status, TW_OK);
    }
}

static bool is_exact(void *ctx) {
    struct stage *stage = ctx;
    (void)tw_flush(stage->engine, 500); /* TW_ERR_REDIS, because of "bad" */
    return redis_server_get(&stage->server, "plain:good") == stage->added &&
           atoll(redis_server_ask(&stage->server, "HGET", "hash:good", "f", NULL)) == stage->added &&
           atoll(redis_server_ask(&stage->server, "ZSCORE", "zset", "good", NULL)) == stage->added &&
           redis_server_get(&stage->server, "gauge:good") == stage->added;
}

static bool is_named(void *ctx) {
    struct stage *stage = ctx;
    stage->turn++;
    use_bad(stage);
    test_sleep_ms(20);
    return has_line(&stage->lines, stage->target->named);
}

static void spoil(struct stage *stage, size_t way) {
    const char *how = way < HOWS ? hows[way] : "in", *value = way < HOWS ? "x" : values[way - HOWS];
    redis_server_ask(&stage->server, "EVAL", spoil_script, "0", stage->target->pattern, how, value, NULL);
}

/* A number below 0 or no number in a key's place is what its family counts on from: that is not repaired. */
static void repair(struct stage *stage) {
    redis_server_ask(&stage->server, "EVAL",
                     "for _, k in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', k) end", "0",
                     stage->target->pattern, NULL);
}

static void fail_with_lines(struct stage *stage, const char *what, size_t way) {
    fail_msg("%s: %s, way %zu, %s:\n%s", stage->target->pattern, what, way, way < HOWS ? hows[way] : values[way - HOWS],
             stage->lines.text);
}

static void use_both(struct stage *stage, int times) {
    for (int i = 0; i < times; i++) {
        stage->turn++;
        use_bad(stage);
        use_good(stage);
        test_sleep_ms(5);
    }
}

static void play_way(struct stage *stage, size_t way) {
    bool is_ledger = strncmp(stage->target->pattern, "tw:ledger", 9) == 0;
    bool is_own = strncmp(stage->target->pattern, "tw:", 3) == 0;
    use_both(stage, 3);
    spoil(stage, way);
    use_both(stage, 6);
    if (!test_wait(is_exact, stage, 10000)) fail_with_lines(stage, "what was counted is not in Redis", way);
    if (!is_ledger) repair(stage);
    if (is_own) use_both(stage, 2);
}

/* Goal: a value of any type and content under one key changes nothing of any other key. Its units are in Redis to the
 * unit while the value is there, its calls are decided by Redis, no connection ends, and one line names the key. */
static void a_spoilt_key_spoils_itself_alone(void **state) {
    struct stage *stage = malloc(sizeof *stage);
    assert_non_null(stage);
    stage_begin(stage, *state);
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    bool all = test_scale(100) >= 1000;
    use_both(stage, 3);
    assert_true(test_wait(is_exact, stage, TEST_PATIENCE_MS));
    if (stage->target->named) {
        spoil(stage, 1); /* a list is no key of ours */
        if (!test_wait(is_named, stage, 20000)) fail_with_lines(stage, "no line names it", 0);
        repair(stage);
    }
    for (size_t way = 0; way < WAYS; way++)
        if (all || test_prng_chance(&prng, 1, 3)) play_way(stage, way);
    use_both(stage, 3);
    if (!test_wait(is_exact, stage, 20000)) fail_with_lines(stage, "what was counted is not in Redis at the end", 0);
    if (stage->target->shared == HARD)
        assert_status(tw_acquire_wait(stage->family[HARD], tw_str("good"), 1, 1000000, 30000, NULL), TW_OK);
    if (has_line(&stage->lines, "not understood")) fail_with_lines(stage, "a reply was not understood", 0);
    if (strncmp(stage->target->pattern, "tw:ledger", 9) != 0)
        assert_i64_equal(test_stat_of(stage->engine, disconnects), 0);
    tw_stats stats;
    tw_stats_read(stage->engine, &stats);
    if (stats.ask_dropped != 0) print_error("%s\n", stats.last_error);
    assert_i64_equal(stats.ask_dropped, 0);
    (void)tw_close(stage->engine, 2000);
    redis_server_destroy(&stage->server);
    free(stage);
}

int main(void) {
    static struct CMUnitTest tests[TARGETS];
    redis_server_require();
    for (size_t i = 0; i < TARGETS; i++)
        tests[i] = (struct CMUnitTest){.name = targets[i].pattern,
                                       .test_func = a_spoilt_key_spoils_itself_alone,
                                       .initial_state = (void *)(uintptr_t)&targets[i]};
    return test_run_each_apart(tests, TARGETS);
}
