/* strict_support.h -- an engine with a strict family behind a proxy, for short tests.
 * Always true: faults that a test orders from the proxy concern requests that callers wait for alone, never batches. */
#ifndef TEST_STRICT_SUPPORT_H
#define TEST_STRICT_SUPPORT_H

#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

struct strict {
    struct redis_server server;
    struct proxy *proxy;
    tw_engine *engine;
    tw_family *family;
};

static inline tw_family_options strict_options(const char *name) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = name;
    options.window = TW_WINDOW_FOREVER;
    options.limit_mode = TW_LIMIT_STRICT;
    return options;
}

static inline tw_family *strict_family(tw_engine *engine, tw_family_options *options) {
    tw_family *family = NULL;
    char error[256] = "";
    options->error_text = error;
    options->error_size = sizeof error;
    tw_status status = tw_family_open(engine, options, &family);
    if (status != TW_OK) print_error("%s\n", error);
    assert_status(status, TW_OK);
    return family;
}

/* Of a call that is to be decided by Redis, however busy the machine; and of one that waits for replies which never
 * come. A part of it is for the try that has one. */
#define STRICT_LONG_MS 5000
#define STRICT_TRIES_MS 3000
/* Of a call that gets no reply at all. All of it is waited for. It is long enough for the request to be executed. */
#define STRICT_IN_VAIN_MS 1000

/* `timeout_ms`: of a call. The family "s" is endless and fixed; on_outage as given. */
static inline void strict_begin(struct strict *strict, uint32_t timeout_ms, uint32_t on_outage) {
    tw_options options;
    redis_server_start(&strict->server, NULL);
    strict->proxy = proxy_start(&strict->server, test_seed());
    proxy_only(strict->proxy, "tw:calls:");
    quick_options(&options, proxy_url(strict->proxy));
    options.redis_timeout_ms = timeout_ms;
    assert_status(test_open(&options, &strict->engine), TW_OK);
    tw_family_options family_options = strict_options("s");
    family_options.on_outage = on_outage;
    strict->family = strict_family(strict->engine, &family_options);
}

static inline void strict_end(struct strict *strict) {
    assert_status(tw_close(strict->engine, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(strict->proxy);
    redis_server_destroy(&strict->server);
}

static inline void strict_order(struct strict *strict, enum proxy_fault fault, uint32_t times) {
    struct proxy_order order = {.fault = fault, .times = times};
    proxy_order(strict->proxy, &order);
}

static inline bool strict_has_late_copy(void *ctx) {
    return proxy_look(ctx).late == 1;
}

/* The request that PROXY_HOLD kept was executed. */
static inline void strict_await_late_copy(struct strict *strict) {
    assert_true(test_wait(strict_has_late_copy, strict->proxy, TEST_PATIENCE_MS));
}

/* Makes one call, and checks its status. */
static inline tw_verdict strict_take(tw_family *family, const char *key, int64_t n, int64_t limit, tw_status want) {
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_acquire(family, tw_str(key), n, limit, &verdict), want);
    assert_int_equal(verdict.allowed, want == TW_OK);
    return verdict;
}

struct strict_key {
    tw_family *family;
    const char *key;
};

static inline bool strict_is_decided_by_redis(void *ctx) {
    struct strict_key *asked = ctx;
    tw_verdict verdict = {.decided_by = TW_BY_OUTAGE};
    (void)tw_acquire(asked->family, tw_str(asked->key), 0, 1000, &verdict);
    return verdict.decided_by == TW_BY_REDIS;
}

/* Calls until Redis decides: a connection stands, and the breaker is closed. */
static inline void strict_await_redis(tw_family *family, const char *key) {
    assert_true(test_wait(strict_is_decided_by_redis, &(struct strict_key){family, key}, TEST_PATIENCE_MS));
}

/* Takes n units of a key that had none, with Redis's reply, and writes its name. On a busy machine a reply may be
 * later than a short redis_timeout_ms: then another key is begun. */
static inline void strict_begin_key(tw_family *family, int64_t n, int64_t limit, char key[16]) {
    tw_verdict verdict;
    for (int tries = 0; tries < 50; tries++) {
        strict_await_redis(family, "other");
        snprintf(key, 16, "k%d", tries);
        if (tw_acquire(family, tw_str(key), n, limit, &verdict) == TW_OK && verdict.decided_by == TW_BY_REDIS) return;
    }
    fail_msg("Redis decided none of 50 calls");
}

/* The name of the connection that last sent a request about a counter, and the number of its call, from the key
 * tw:calls: of that counter. */
struct strict_call {
    char who[64], serial[24];
};
static inline struct strict_call strict_last_call(struct strict *strict, const char *calls) {
    struct strict_call call = {.who = ""};
    char text[256];
    snprintf(text, sizeof text, "%s", redis_server_ask(&strict->server, "HGETALL", calls, NULL));
    char *value = strchr(text, '\n');
    assert_non_null(value);
    *value++ = '\0';
    snprintf(call.who, sizeof call.who, "%.63s", text);
    snprintf(call.serial, sizeof call.serial, "%.*s", (int)strcspn(value, " "), value);
    return call;
}

/* A thread that takes 1 to 5 units at a time of the key k. */
struct hammer {
    tw_family *family;
    uint64_t seed;
    _Atomic int64_t *admitted;
    int64_t calls, limit;
};

static inline void *hammer_on(void *argument) {
    struct hammer *hammer = argument;
    struct test_prng prng;
    test_prng_seed(&prng, hammer->seed);
    for (int64_t call = 0; call < hammer->calls; call++) {
        int64_t n = test_prng_between(&prng, 1, 5), taken = 0;
        bool some = test_prng_chance(&prng, 1, 3);
        tw_status status = some ? tw_acquire_some(hammer->family, tw_str("k"), n, hammer->limit, &taken, NULL)
                                : tw_acquire(hammer->family, tw_str("k"), n, hammer->limit, NULL);
        if (status == TW_OK) atomic_fetch_add(hammer->admitted, some ? taken : n);
    }
    return NULL;
}

#endif
