/* twin_process.c -- a process that lives twice, as a snapshot that was started a second time: the life that Redis tells
 * continues under a separate name. What both hold counts for both, and no limit is passed without a report.
 * Method: the other life is played. Its batches are those of another engine whose ledger a proxy renames; its leases
 * are written into Redis by the test.
 * Covers: engine/turn/remote.c. */
#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

#define LIMIT 1000

static struct redis_server server;

static tw_family *sale_of(tw_engine *engine) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = "sale";
    options.window = TW_WINDOW_FOREVER;
    options.limit_mode = TW_LIMIT_HARD;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

/* Buys until so many were had, or no unit is left, or the time is over: units of the other life are never had. */
static int64_t buy(tw_family *sale, int64_t units, int64_t for_ms) {
    int64_t had = 0, until_ms = test_mono_ms() + for_ms;
    while (had < units && test_mono_ms() < until_ms) {
        tw_status status = tw_acquire(sale, tw_str("tv"), 1, LIMIT, NULL);
        had += status == TW_OK;
        if (status == TW_DENIED) return had;
        if (status != TW_OK) test_sleep_ms(2);
    }
    return had;
}

static int64_t number(const char *script) {
    return atoll(redis_server_ask(&server, "EVAL", script, "0", NULL));
}

/* How many engines have a field of this lease. */
static int64_t names(void) {
    return number("local n = 0 for _, f in ipairs(redis.call('HKEYS', 'tw:lease:sale:tv')) do "
                  "if #f == 32 then n = n + 1 end end return n");
}

static bool are_two_names(void *ctx) {
    return names() == 2;
}

/* Another life has used the lease. Its field becomes what the Lua expression says of connection, granted, returned,
 * spent. */
static void play_other_life(const char *field) {
    char script[600];
    snprintf(
        script, sizeof script,
        "for _, f in ipairs(redis.call('HKEYS', 'tw:lease:sale:tv')) do if #f == 32 then "
        "local c, g, r, s = string.match(redis.call('HGET', 'tw:lease:sale:tv', f), '^(%%d+) (%%d+) (%%d+) (%%d+)') "
        "redis.call('HSET', 'tw:lease:sale:tv', f, string.format('%%.0f %%.0f %%.0f %%.0f 0', %s)) end end return 1",
        field);
    number(script);
}

/* Goal: a lease that a later connection of the same name uses is given up, once. The engine continues under another
 * name, and both together sell no more than the limit: the other life's units stay out. (TWIN: lease_script.c.) */
TEST(a_lease_that_lives_twice_is_given_up) {
    static const char *const fields[] = {"9000000000000000, g, r, s"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        redis_server_start(&server, NULL);
        struct log_lines lines = {0};
        tw_options options;
        tw_engine *engine;
        quick_options(&options, server.url);
        options.log_write = on_log;
        options.log_ctx = &lines;
        assert_status(test_open(&options, &engine), TW_OK);
        tw_family *sale = sale_of(engine);
        int64_t sold = buy(sale, 100, 20000);
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        play_other_life(fields[i]);
        sold += buy(sale, 200, 2000);
        assert_true(test_wait(are_two_names, NULL, TEST_PATIENCE_MS));
        int64_t others =
            number("local sum = 0 for _, f in ipairs(redis.call('HKEYS', 'tw:lease:sale:tv')) do if #f == 32 "
                   "then local g, r = string.match(redis.call('HGET', 'tw:lease:sale:tv', f), "
                   "'^%d+ (%d+) (%d+)') sum = sum + g - r end end return sum");
        assert_true(others >= sold && others <= 2 * LIMIT);
        sold += buy(sale, LIMIT, 1500);
        assert_true(sold <= LIMIT);
        assert_i64_equal(names(), 2); /* it took another name once */
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        assert_non_null(strstr(lines.text, "another copy of this process"));
        redis_server_destroy(&server);
    }
}

static bool is_eight(void *ctx) {
    return redis_server_get(&server, "online:k") == 8;
}

static bool are_two_holds(void *ctx) {
    return strcmp(redis_server_ask(&server, "ZCARD", "tw:hold:jobs:a", NULL), "2") == 0;
}

static int64_t last_number(const char *ledger) {
    return atoll(redis_server_ask(&server, "HGET", ledger, "n", NULL));
}

/* Goal: an engine whose ledger another one uses states its gauges, its holds and its leases under another name; what
 * was stated under the earlier name stays. Method: both ledgers come to the same number; then the other engine's next
 * batch goes to the ledger of this one, and is the first there. */
TEST(an_engine_whose_ledger_clashes_has_another_name) {
    redis_server_start(&server, NULL);
    struct proxy *proxy = proxy_start(&server, test_seed());
    tw_engine *other = quick_engine(proxy_url(proxy), NULL);
    tw_family *theirs = family_of(other, "theirs", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(theirs, tw_str("x"), 1, NULL), TW_OK);
    assert_status(tw_flush(other, TEST_PATIENCE_MS), TW_OK);
    char from[200];
    snprintf(from, sizeof from, "%s", proxy_look(proxy).ledger);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *gauge = gauge_of(engine), *jobs = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0),
              *sale = sale_of(engine), *counts = family_of(engine, "c", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(gauge, tw_str("k"), 4, NULL), TW_OK);
    assert_status(tw_hold(jobs, tw_str("a"), 5, NULL), TW_OK);
    int64_t sold = buy(sale, 50, 20000);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    const char *found = redis_server_ask(&server, "EVAL",
                                         "for _, k in ipairs(redis.call('KEYS', 'tw:ledger:*')) do "
                                         "if k ~= ARGV[1] then return k end end",
                                         "0", from, NULL);
    char to[200];
    snprintf(to, sizeof to, "%s", found);
    for (int i = 0; i < 200 && last_number(from) != last_number(to); i++) {
        bool is_behind = last_number(from) < last_number(to);
        assert_status(tw_add(is_behind ? theirs : counts, tw_str("x"), 1, NULL), TW_OK);
        assert_status(tw_flush(is_behind ? other : engine, TEST_PATIENCE_MS), TW_OK);
    }
    proxy_impersonate(proxy, from, to);
    assert_status(tw_add(theirs, tw_str("x"), 1, NULL), TW_OK);
    (void)tw_flush(other, 500);
    assert_status(tw_add(counts, tw_str("y"), 1, NULL), TW_OK);
    assert_true(test_wait(is_eight, NULL, TEST_PATIENCE_MS));
    proxy_impersonate(proxy, NULL, NULL);
    assert_true(test_wait(are_two_holds, NULL, TEST_PATIENCE_MS));
    sold += buy(sale, LIMIT, 1500);
    assert_true(sold <= LIMIT);
    assert_true(names() == 2);
    (void)tw_close(other, 5000);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run();
}
