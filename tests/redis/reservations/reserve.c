/* reserve.c -- reservations over a real Redis: exact over engines, killed processes and a network that loses replies.
 * The same call has the same result at any engine. Units that are not confirmed return without any call.
 * Covers: engine/reserve/reserve.c, sync/script/reserve.lua. */
#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

#include "engine/ask/redis_call.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct redis_server server;
static const tw_key nobody = {NULL, 0};

static tw_status reserve(tw_family *family, const char *key, int64_t n, int64_t limit, uint32_t ttl_ms, char *token) {
    return tw_reserve(family, tw_str(key), n, limit, ttl_ms, nobody, token, NULL);
}

struct want {
    const char *name;
    int64_t value;
};
static bool redis_has(void *ctx) {
    struct want *want = ctx;
    return redis_server_get(&server, want->name) == want->value;
}
static void await_redis(const char *name, int64_t value, int64_t within_ms) {
    struct want want = {name, value};
    if (!test_wait(redis_has, &want, within_ms))
        fail_msg("%s is %lld, not %lld", name, (long long)redis_server_get(&server, name), (long long)value);
}

/* Goal: any engine may confirm or cancel, any number of times; units that are not confirmed return by themselves. */
TEST(reservations_are_settled_from_anywhere) {
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *of_a = family_of(a, "sale", TW_WINDOW_FOREVER, 0), *of_b = family_of(b, "sale", TW_WINDOW_FOREVER, 0);
    char sold[TW_TOKEN_SIZE], cancelled[TW_TOKEN_SIZE], over[TW_TOKEN_SIZE], none[TW_TOKEN_SIZE];
    tw_verdict verdict;
    assert_status(tw_reserve(of_a, tw_str("x"), 3, 10, 60000, nobody, sold, &verdict), TW_OK);
    assert_i64_equal(verdict.used, 3);
    assert_i64_equal(verdict.remaining, 7);
    assert_i64_equal(verdict.decided_by, TW_BY_REDIS);
    assert_i64_equal(verdict.error_bound, 0);
    assert_i64_equal(verdict.allowed, 1);
    assert_status(reserve(of_b, "x", 4, 10, 60000, cancelled), TW_OK);
    assert_status(reserve(of_b, "x", 3, 10, 300, over), TW_OK);
    assert_status(tw_reserve(of_a, tw_str("x"), 1, 10, 60000, nobody, none, &verdict), TW_DENIED);
    assert_i64_equal(strlen(none), 0);
    assert_i64_equal(verdict.used, 10);
    assert_i64_equal(verdict.final, 0);
    assert_true(verdict.retry_after_ms >= 0 && verdict.retry_after_ms <= 300);
    for (int again = 0; again < 2; again++) {
        assert_status(tw_reserve_confirm(b, sold), TW_OK);
        assert_status(tw_reserve_confirm(a, sold), TW_OK);
        assert_status(tw_reserve_cancel(b, sold), TW_ERR_LATE);
        assert_status(tw_reserve_cancel(a, cancelled), TW_OK);
        assert_status(tw_reserve_confirm(b, cancelled), TW_ERR_LATE);
    }
    await_redis("sale:x", 3, 2000); /* the third reservation returned without any call */
    assert_string_equal(redis_server_ask(&server, "EXISTS", "tw:due:sale:x", NULL), "0");
    assert_status(tw_reserve_confirm(b, over), TW_ERR_LATE);
    assert_status(tw_reserve_cancel(b, over), TW_OK);
    assert_status(reserve(of_a, "x", 7, 10, 60000, sold), TW_OK);
    assert_status(tw_reserve_confirm(a, sold), TW_OK);
    assert_status(tw_reserve(of_b, tw_str("x"), 1, 10, 60000, nobody, none, &verdict), TW_DENIED);
    assert_i64_equal(verdict.final, 1);
    int64_t total;
    tw_key key = tw_str("x");
    assert_status(tw_fetch(of_b, &key, 1, 5000, &total), TW_OK);
    assert_i64_equal(total, 10);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: one buyer buys once over all engines, and a second try deducts nothing. */
TEST(a_buyer_buys_once_anywhere) {
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *of_a = family_of(a, "sale", TW_WINDOW_ALIGNED, LONG_WINDOW_MS),
              *of_b = family_of(b, "sale", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    tw_key ann = tw_bytes("an\0n\r\n", 6), bob = tw_bytes("an\0n", 4);
    char token[TW_TOKEN_SIZE], none[TW_TOKEN_SIZE];
    tw_verdict verdict;
    assert_status(tw_reserve(of_a, tw_str("y"), 1, 10, 60000, ann, token, NULL), TW_OK);
    assert_status(tw_reserve(of_b, tw_str("y"), 1, 10, 60000, ann, none, &verdict), TW_DENIED);
    assert_i64_equal(verdict.decided_by, TW_BY_BUYER);
    assert_i64_equal(verdict.used, 1);
    assert_true(verdict.retry_after_ms > 50000 && verdict.retry_after_ms <= 60000);
    assert_status(tw_reserve(of_b, tw_str("y"), 1, 10, 60000, bob, none, NULL), TW_OK);
    assert_status(tw_reserve_cancel(b, token), TW_OK);
    assert_status(tw_reserve(of_b, tw_str("y"), 1, 10, 60000, ann, token, NULL), TW_OK);
    assert_status(tw_reserve_confirm(a, token), TW_OK);
    assert_status(tw_reserve(of_a, tw_str("y"), 1, 10, 60000, ann, none, &verdict), TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, -1);
    assert_i64_equal(verdict.final, 0);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
}

TEST(wrong_calls_and_unknown_tokens_are_refused) {
    tw_options options;
    tw_engine *hosted, *engine = quick_engine(server.url, NULL), *local;
    quick_options(&options, server.url);
    options.threads = TW_HOST_DRIVEN;
    assert_status(test_open(&options, &hosted), TW_OK);
    char token[TW_TOKEN_SIZE], here[TW_TOKEN_SIZE];
    tw_family *family = family_of(engine, "sale", TW_WINDOW_FOREVER, 0),
              *in_hosted = family_of(hosted, "sale", TW_WINDOW_FOREVER, 0);
    assert_status(reserve(family, "z", 1, 10, 60000, token), TW_OK);
    assert_status(reserve(in_hosted, "z", 1, 10, 60000, here), TW_ERR_MODE);
    assert_status(tw_reserve_confirm(hosted, token), TW_ERR_MODE);
    assert_status(tw_hold(in_hosted, tw_str("z"), 1, NULL), TW_ERR_MODE);
    assert_status(tw_hold_release(in_hosted, tw_str("z")), TW_ERR_MODE);
    tw_enter(engine);
    assert_status(reserve(family, "z", 1, 10, 60000, here), TW_ERR_MODE);
    tw_leave(engine);
    assert_status(tw_close(hosted, 0), TW_OK);
    tw_family_options hard;
    tw_family_options_init(&hard);
    hard.name = "hard";
    hard.limit_mode = TW_LIMIT_HARD;
    tw_family *leased;
    assert_status(tw_family_open(engine, &hard, &leased), TW_OK);
    assert_status(reserve(leased, "z", 1, 10, 60000, here), TW_ERR_MODE);
    assert_status(reserve(family_of(engine, "lives", TW_WINDOW_FROM_FIRST, 0), "z", 1, 10, 60000, here), TW_ERR_MODE);
    assert_status(reserve(family, "z", 0, 10, 60000, here), TW_ERR_RANGE);
    assert_status(reserve(family, "", 1, 10, 60000, here), TW_ERR_KEY);
    /* A token of this form that was never given. */
    struct twi_token made = {.id = "0123456789abcdef0123456789abcdef"};
    twi_token_write(&made, here);
    assert_status(tw_reserve_confirm(engine, here), TW_ERR_UNKNOWN_TOKEN);
    assert_status(tw_reserve_cancel(engine, here), TW_ERR_UNKNOWN_TOKEN);
    /* A token of a cluster, although this Redis knows its id. */
    assert_true(twi_token_read(token, &made));
    made.has_slot = true;
    twi_token_write(&made, here);
    assert_status(tw_reserve_confirm(engine, here), TW_ERR_UNKNOWN_TOKEN);
    assert_status(tw_reserve_cancel(engine, here), TW_ERR_UNKNOWN_TOKEN);
    tw_options_init(&options);
    assert_status(test_open(&options, &local), TW_OK);
    assert_status(reserve(family_of(local, "sale", TW_WINDOW_FOREVER, 0), "z", 1, 10, 60000, here), TW_OK);
    assert_status(tw_reserve_confirm(engine, here), TW_ERR_UNKNOWN_TOKEN);
    assert_status(tw_reserve_confirm(local, token), TW_ERR_UNKNOWN_TOKEN);
    assert_status(tw_close(local, 0), TW_OK);
    redis_server_pause(&server);
    int64_t began_ms = test_mono_ms();
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    tw_status status = tw_reserve(family, tw_str("z"), 1, 10, 60000, nobody, here, &verdict);
    assert_true(status == TW_ERR_TIMEOUT || status == TW_ERR_REDIS);
    assert_true(test_mono_ms() - began_ms < 5000);
    assert_i64_equal(verdict.allowed, 0);
    assert_i64_equal(strlen(here) != 0, status == TW_ERR_TIMEOUT);
    redis_server_resume(&server);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_ask(&server, "FLUSHALL", NULL);
}

/* Goal: a prefix stands before every name, and any process with the same prefix can confirm. */
TEST(the_prefix_is_before_every_name) {
    tw_options options;
    tw_engine *engine;
    quick_options(&options, server.url);
    options.redis_prefix = "shop:";
    redis_server_ask(&server, "FLUSHALL", NULL);
    assert_status(test_open(&options, &engine), TW_OK);
    char token[TW_TOKEN_SIZE];
    assert_status(tw_reserve(family_of(engine, "sale", TW_WINDOW_ALIGNED, LONG_WINDOW_MS), tw_str("x"), 2, 10, 60000,
                             tw_str("ann"), token, NULL),
                  TW_OK);
    assert_status(tw_reserve_confirm(engine, token), TW_OK);
    assert_status(tw_reserve_cancel(engine, token), TW_ERR_LATE);
    assert_status(tw_add(family_of(engine, "views", TW_WINDOW_ALIGNED, LONG_WINDOW_MS), tw_str("x"), 1, NULL), TW_OK);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK); /* after it the engine has written everything */
    const char *keys = redis_server_ask(&server, "KEYS", "*", NULL);
    for (const char *line = keys; line != NULL; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        assert_memory_equal(line, "shop:", 5);
    const char *endless = redis_server_ask(&server, "EVAL",
                                           "local n = {} for _, k in ipairs(redis.call('KEYS', '*')) do "
                                           "if redis.call('PTTL', k) == -1 then n[#n + 1] = k end end return n",
                                           "0", NULL);
    assert_string_equal(endless, "shop:tw:marker"); /* everything else has an expiry */
}

/* Goal: strict limits and reservations share the same units, exactly. */
TEST(strict_calls_and_reservations_share_a_stock) {
    tw_family_options options;
    tw_family *sale;
    char token[TW_TOKEN_SIZE];
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family_options_init(&options);
    options.name = "strict";
    options.limit_mode = TW_LIMIT_STRICT;
    assert_status(tw_family_open(engine, &options, &sale), TW_OK);
    assert_status(tw_acquire(sale, tw_str("x"), 4, 10, NULL), TW_OK);
    assert_status(reserve(sale, "x", 7, 10, 60000, token), TW_DENIED);
    assert_status(reserve(sale, "x", 6, 10, 60000, token), TW_OK);
    assert_status(tw_acquire(sale, tw_str("x"), 1, 10, NULL), TW_DENIED);
    assert_status(tw_reserve_cancel(engine, token), TW_OK);
    assert_status(tw_acquire(sale, tw_str("x"), 6, 10, NULL), TW_OK);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: the permissions in docs/KEYS.md suffice for reservations, holds and gauges. */
TEST(the_permissions_of_the_manual_suffice) {
    static const char *const commands[] = {"+evalsha",       "+eval",
                                           "+ping",          "+info",
                                           "+time",          "+get",
                                           "+hmget",         "+hset",
                                           "+hscan",         "+hdel",
                                           "+incrby",        "+pttl",
                                           "+pexpire",       "+pexpireat",
                                           "+hget",          "+zadd",
                                           "+zcard",         "+zrange",
                                           "+zrem",          "+zscore",
                                           "+decrby",        "+hgetall",
                                           "+psetex",        "+del",
                                           "+zrangebyscore", "+zremrangebyscore"};
    char url[256], token[TW_TOKEN_SIZE];
    tw_engine *engine;
    tw_options options;
    redis_server_ask(&server, "ACL", "SETUSER", "tally", "reset", "on", ">pw", "~acl:*", redis_server_no_channels(),
                     "-@all", NULL);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        redis_server_ask(&server, "ACL", "SETUSER", "tally", commands[i], NULL);
    snprintf(url, sizeof url, "unix://tally:pw@%s", server.socket);
    quick_options(&options, url);
    options.redis_prefix = "acl:";
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *sale = family_of(engine, "sale", TW_WINDOW_ALIGNED, LONG_WINDOW_MS),
              *jobs = family_of(engine, "jobs", TW_WINDOW_FOREVER, 0);
    assert_status(tw_reserve(sale, tw_str("x"), 1, 2, 60000, tw_str("ann"), token, NULL), TW_OK);
    assert_status(tw_reserve_confirm(engine, token), TW_OK);
    assert_status(reserve(sale, "x", 1, 2, 1, token), TW_OK);
    test_sleep_ms(5);
    assert_status(reserve(sale, "x", 1, 2, 60000, token), TW_OK);
    assert_status(tw_reserve_cancel(engine, token), TW_OK);
    assert_status(tw_hold(jobs, tw_str("a"), 1, NULL), TW_OK);
    assert_status(tw_hold(jobs, tw_str("a"), 1, NULL), TW_DENIED);
    assert_status(tw_hold_release(jobs, tw_str("a")), TW_OK);
    tw_family_options gauge;
    tw_family *online;
    tw_family_options_init(&gauge);
    gauge.name = "online";
    gauge.window = TW_WINDOW_FOREVER;
    gauge.kind = TW_KIND_GAUGE;
    assert_status(tw_family_open(engine, &gauge, &online), TW_OK);
    assert_status(tw_add(online, tw_str("a"), 2, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "acl:online:a"), 2);
    assert_status(tw_add(online, tw_str("a"), -2, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(redis_server_ask(&server, "EXISTS", "acl:online:a", NULL), "0");
    assert_i64_equal(test_stat_of(engine, poison_keys), 0);
    redis_server_ask(&server, "ACL", "SETUSER", "tally", "-zadd",
                     NULL); /* and without one of them nothing is half done */
    tw_family *endless = family_of(engine, "endless", TW_WINDOW_FOREVER, 0);
    assert_true(reserve(endless, "y", 1, 2, 60000, token) != TW_OK);
    assert_i64_equal(redis_server_get(&server, "acl:endless:y"), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* ---- a network that loses replies -------------------------------------------------------------------------------- */

/* Makes a call again until its outcome is known; returns that. */
static tw_status until_known(tw_status (*call)(tw_engine *, const char *), tw_engine *engine, const char *token) {
    for (;;) {
        tw_status status = call(engine, token);
        if (status != TW_ERR_TIMEOUT && status != TW_ERR_REDIS) return status;
    }
}

/* Goal: thousands of calls go through a network that loses requests and replies. At the end Redis has exactly what was
 * confirmed, and it never had more than the limit. */
TEST(lost_answers_neither_double_nor_lose) {
    enum { LIMIT = 200 };
    struct proxy *proxy = proxy_start(&server, test_seed());
    tw_options options;
    tw_engine *engine;
    quick_options(&options, proxy_url(proxy));
    options.redis_timeout_ms = 200;
    redis_server_ask(&server, "FLUSHALL", NULL);
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *sale = family_of(engine, "sale", TW_WINDOW_FOREVER, 0);
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    proxy_chance(proxy, PROXY_DROP_REPLY, 800);
    proxy_chance(proxy, PROXY_DROP_REQUEST, 500);
    proxy_chance(proxy, PROXY_CUT_REPLY, 300);
    proxy_chance(proxy, PROXY_CUT_REQUEST, 300);
    int64_t sold = 0, calls[3] = {0};
    for (uint64_t step = 0; step < test_scale(800); step++) {
        char token[TW_TOKEN_SIZE];
        int64_t n = test_prng_between(&prng, 1, 3);
        tw_status status = reserve(sale, "x", n, LIMIT, 400, token);
        calls[status == TW_OK ? 0 : status == TW_DENIED ? 1 : 2]++;
        if (status == TW_ERR_REDIS || status == TW_DENIED) continue;
        if (test_prng_chance(&prng, 1, 5)) {
            tw_status confirmed = until_known(tw_reserve_confirm, engine, token);
            if (confirmed == TW_OK) sold += n;
            if (status == TW_OK) assert_true(confirmed == TW_OK || confirmed == TW_ERR_LATE);
        } else if (test_prng_chance(&prng, 3, 4)) {
            tw_status cancelled = until_known(tw_reserve_cancel, engine, token);
            if (status == TW_OK) assert_status(cancelled, TW_OK);
        }
        assert_true(redis_server_get(&server, "sale:x") <= LIMIT);
    }
    for (int i = 0; i < PROXY_FAULTS; i++) proxy_chance(proxy, (enum proxy_fault)i, 0);
    await_redis("sale:x", sold, 3000);
    assert_true(calls[0] > (int64_t)test_scale(50));
    struct proxy_seen seen = proxy_look(proxy);
    assert_true(seen.happened[PROXY_DROP_REPLY] > (test_is_slow() ? 0 : 10)); /* a tenth of the steps */
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
}

static bool late_copy_came(void *ctx) {
    return proxy_look(ctx).late != 0;
}

/* Goal: a reservation that timed out, and reaches Redis after its cancel found an unknown token, holds nothing: neither
 * if its caller cancels the token, nor if the caller leaves that to the engine. Method: each copy of the request stays
 * on the way, on a connection that has ended for the engine, until a later request was answered. */
TEST(a_reservation_that_comes_after_its_cancel_holds_nothing) {
    for (int cancels = 0; cancels < 2; cancels++) {
        struct proxy *proxy = proxy_start(&server, test_seed());
        char token[TW_TOKEN_SIZE], other[TW_TOKEN_SIZE];
        tw_options options;
        tw_engine *engine;
        quick_options(&options, proxy_url(proxy));
        options.redis_timeout_ms = 1000;
        redis_server_ask(&server, "FLUSHALL", NULL);
        assert_status(test_open(&options, &engine), TW_OK);
        tw_family *sale = family_of(engine, "sale", TW_WINDOW_FOREVER, 0);
        proxy_only(proxy, "tw:token:");
        assert_status(reserve(sale, "warm", 1, 10, 600000, other), TW_OK);
        proxy_order(proxy, &(struct proxy_order){.fault = PROXY_HOLD, .times = 1000});
        assert_status(reserve(sale, "x", 3, 10, 600000, token), TW_ERR_TIMEOUT);
        proxy_order(proxy, &(struct proxy_order){.fault = PROXY_PASS});
        tw_status status = cancels != 0 ? until_known(tw_reserve_cancel, engine, token) : TW_OK;
        assert_true(status == TW_OK || status == TW_ERR_UNKNOWN_TOKEN);
        while (!late_copy_came(proxy)) {
            (void)reserve(sale, "another", 1, 1000000, 600000, other);
            test_sleep_ms(1);
        }
        await_redis("sale:x", 0, TEST_PATIENCE_MS);
        assert_string_equal(redis_server_ask(&server, "ZCARD", "tw:due:sale:x", NULL), "0");
        status = until_known(tw_reserve_confirm, engine, token);
        assert_true(status == TW_ERR_LATE || status == TW_ERR_UNKNOWN_TOKEN);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(redis_server_get(&server, "sale:x"), 0);
        proxy_stop(proxy);
    }
}

/* ---- processes that are killed ---- */

#define LIVES 12
struct page {
    _Atomic int64_t begun[LIVES], sold[LIVES]; /* units: before tw_reserve_confirm(), and after it returned TW_OK */
    _Atomic bool stop;
};

static int sell(struct page *page, int index) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed() ^ (uint64_t)index);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *sale = family_of(engine, "sale", TW_WINDOW_FOREVER, 0);
    while (!atomic_load(&page->stop)) {
        char token[TW_TOKEN_SIZE], buyer[32];
        int64_t n = test_prng_between(&prng, 1, 3);
        snprintf(buyer, sizeof buyer, "%d.%d", index, (int)test_prng_below(&prng, 100000));
        if (tw_reserve(sale, tw_str("hot"), n, 500, 300, tw_str(buyer), token, NULL) != TW_OK) {
            test_sleep_ms(1);
            continue;
        }
        uint64_t what = test_prng_below(&prng, 10);
        if (what == 0) continue; /* forgotten */
        if (what < 8) {
            if (tw_reserve_cancel(engine, token) != TW_OK) return 2;
            continue;
        }
        atomic_fetch_add(&page->begun[index], n);
        tw_status status = tw_reserve_confirm(engine, token);
        if (status == TW_OK) atomic_fetch_add(&page->sold[index], n);
        if (status == TW_ERR_LATE) atomic_fetch_sub(&page->begun[index], n);
        if (status != TW_OK && status != TW_ERR_LATE) return 3;
    }
    return tw_close(engine, 5000) == TW_OK ? 0 : 4;
}

/* Goal: processes are killed in the middle of it: never more than the limit is sold, their reservations return, and at
 * the end Redis has at least what was confirmed, and at most what was to be confirmed. */
TEST(killed_processes_lose_and_double_nothing) {
    struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct test_prng prng;
    pid_t pids[4] = {0};
    int next = 0;
    redis_server_ask(&server, "FLUSHALL", NULL);
    test_prng_seed(&prng, test_seed());
    for (int round = 0; round < LIVES; round++) {
        int slot = round % 4;
        if (pids[slot] != 0) {
            kill(pids[slot], SIGKILL);
            waitpid(pids[slot], NULL, 0);
        }
        pids[slot] = test_fork();
        if (pids[slot] == 0) _exit(sell(page, next));
        next++;
        for (int i = 0; i < 20; i++) {
            assert_true(redis_server_get(&server, "sale:hot") <= 500);
            test_sleep_ms((int64_t)test_prng_below(&prng, 6));
        }
    }
    atomic_store(&page->stop, true);
    for (int slot = 0; slot < 4; slot++) {
        int status;
        waitpid(pids[slot], &status, 0);
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    test_sleep_ms(350); /* all reservations are over; the next call takes them back */
    tw_engine *engine = quick_engine(server.url, NULL);
    char token[TW_TOKEN_SIZE];
    assert_status(reserve(family_of(engine, "sale", TW_WINDOW_FOREVER, 0), "hot", 1, 501, 60000, token), TW_OK);
    assert_status(tw_reserve_cancel(engine, token), TW_OK);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    int64_t sold = 0, begun = 0, now = redis_server_get(&server, "sale:hot");
    for (int i = 0; i < LIVES; i++) sold += atomic_load(&page->sold[i]), begun += atomic_load(&page->begun[i]);
    if (now < sold || now > begun || now > 500)
        fail_msg("%lld in Redis; %lld confirmed, %lld begun", (long long)now, (long long)sold, (long long)begun);
    assert_true(sold > 0);
    munmap(page, sizeof *page);
}

int main(void) {
    redis_server_require();
    redis_server_start(&server, NULL);
    int failed = test_run();
    redis_server_destroy(&server);
    return failed;
}
