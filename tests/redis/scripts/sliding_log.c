/* sliding_log.c -- the exact sliding log of strict limits (strict.lua), against a slow reference that knows every
 * admission.
 * Method: calls at random moments, of random sizes, under random limits, over some windows of a second. The test reads
 * Redis's own times of its admissions from the log, so the reference decides by the same clock. */
#include "tests/redis/waiting/strict_support.h"

#include <pthread.h>

#define ADMITTED_MAX 20000

static tw_family *sliding_family(struct strict *strict, const char *name, int64_t window_ms) {
    tw_family_options options = strict_options(name);
    options.window = TW_WINDOW_ALIGNED;
    options.window_ms = window_ms;
    options.limit_shape = TW_SHAPE_SLIDING;
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    return strict_family(strict->engine, &options);
}

struct admitted {
    int64_t at_us, units;
};

/* Reads the newest member of the log. False: the log is empty. */
static bool newest(struct redis_server *server, const char *log, struct admitted *newest) {
    char text[512];
    snprintf(text, sizeof text, "%s", redis_server_ask(server, "ZREVRANGE", log, "0", "0", "WITHSCORES", NULL));
    char *score = strchr(text, '\n');
    if (score == NULL) return false;
    *score++ = '\0';
    newest->at_us = strtoll(score, NULL, 10);
    newest->units = atoll(strrchr(text, ':') + 1);
    return newest->at_us > 0;
}

static int64_t used_at(const struct admitted *admitted, size_t count, int64_t at_us, int64_t window_us) {
    int64_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (admitted[i].at_us > at_us - window_us) used += admitted[i].units;
    return used;
}

static int64_t redis_us(struct redis_server *server) {
    char text[64];
    snprintf(text, sizeof text, "%s", redis_server_ask(server, "TIME", NULL));
    char *micro = strchr(text, '\n');
    return strtoll(text, NULL, 10) * 1000000 + strtoll(micro + 1, NULL, 10);
}

/* When n units will fit, by the reference. */
static int64_t free_at_us(const struct admitted *admitted, size_t count, int64_t now_us, int64_t window_us, int64_t n,
                          int64_t limit) {
    int64_t missing = used_at(admitted, count, now_us, window_us) + n - limit;
    for (size_t i = 0; i < count; i++) {
        if (admitted[i].at_us <= now_us - window_us) continue;
        missing -= admitted[i].units;
        if (missing <= 0) return admitted[i].at_us + window_us;
    }
    return 0;
}

/* Goal: no span of a window's length ever holds more than the limit, no call is denied that fits, and retry_after is
 * the time until it fits. */
TEST(the_log_agrees_with_a_slow_reference) {
    static struct admitted admitted[ADMITTED_MAX];
    const int64_t window_us = 1000000, limit = 20;
    struct strict strict;
    struct test_prng prng;
    size_t count = 0;
    uint64_t seed = test_seed(), denied = 0;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    test_prng_seed(&prng, seed);
    tw_family *family = sliding_family(&strict, "log", 1000);
    int64_t calls = (int64_t)test_scale(600);
    for (int64_t call = 0; call < calls; call++) {
        int64_t n = test_prng_between(&prng, 1, 6);
        tw_verdict verdict;
        int64_t before_us = redis_us(&strict.server);
        tw_status status = tw_acquire(family, tw_str("k"), n, limit, &verdict);
        int64_t after_us = redis_us(&strict.server);
        if (status == TW_OK) {
            assert_true(newest(&strict.server, "tw:log:log:k:19700101000000", &admitted[count]));
            assert_i64_equal(admitted[count].units, n);
            assert_true(admitted[count].at_us >= before_us && admitted[count].at_us <= after_us);
            int64_t used = used_at(admitted, count, admitted[count].at_us, window_us);
            assert_i64_equal(verdict.used, used + n);
            assert_true(used + n <= limit);
            assert_i64_equal(verdict.remaining, limit - used - n);
            count++;
        } else {
            assert_status(status, TW_DENIED);
            /* it did not fit at Redis's moment, which lies between the two moments that the test knows */
            assert_true(used_at(admitted, count, before_us, window_us) + n > limit);
            int64_t free_us = free_at_us(admitted, count, before_us, window_us, n, limit);
            assert_true(verdict.retry_after_ms * 1000 <= free_us - before_us + 1000);
            assert_true(verdict.retry_after_ms * 1000 >= free_us - after_us);
            denied++;
        }
        if (test_prng_chance(&prng, 1, 5)) test_sleep_ms(test_prng_between(&prng, 1, 40));
    }
    if (calls >= 600) assert_true(count > 8 && denied > 20);
    strict_end(&strict);
}

/* Goal: calls in one millisecond are all counted, whoever makes them. */
static void *take_some(void *argument) {
    for (int i = 0; i < 50; i++) (void)tw_acquire(argument, tw_str("k"), 1, 1000000, NULL);
    return NULL;
}
TEST(calls_in_one_millisecond_are_all_counted) {
    struct strict strict;
    pthread_t threads[8];
    strict_begin(&strict, 5000, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = sliding_family(&strict, "log", TW_MINUTE);
    for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_some, family), 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    assert_i64_equal(strict_take(family, "k", 0, 1000000, TW_OK).used, 400);
    strict_end(&strict);
}

/* Fills the limit of 10 of a key, 6 by a call whose reply is lost and 4 by tw_add(). False: a new window began before
 * the next call was denied, and ended the added units. */
static bool fill_within_a_window(struct strict *strict, tw_family *family, const char *key, int64_t window_us) {
    tw_verdict verdict;
    int64_t begun_us = redis_us(&strict->server);
    strict_order(strict, PROXY_DROP_REPLY, 1);
    assert_i64_equal(strict_take(family, key, 6, 10, TW_OK).used, 6);
    assert_status(tw_add(family, tw_str(key), 4, NULL), TW_OK);
    assert_status(tw_flush(strict->engine, TEST_PATIENCE_MS), TW_OK);
    tw_status status = tw_acquire(family, tw_str(key), 1, 10, &verdict);
    if (redis_us(&strict->server) / window_us != begun_us / window_us) return false;
    assert_status(status, TW_DENIED);
    assert_i64_equal(verdict.used, 10);
    assert_int_equal(verdict.final, 1);
    return true;
}

/* Goal: no window boundary admits twice the limit, as it does with a fixed window. A call whose reply was lost is in
 * the log once. What was counted in another way (by a fallback, by tw_add()) counts, too. Method: Redis's own times of
 * both admissions; a machine that is too busy to fill a key within a window begins with another key. */
TEST(no_window_boundary_admits_twice_the_limit) {
    const int64_t window_ms = 2000;
    struct strict strict;
    struct admitted first, last;
    char key[16], log[64];
    bool is_full = false;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *family = sliding_family(&strict, "log", window_ms);
    for (int tries = 0; tries < 20 && !is_full; tries++) {
        snprintf(key, sizeof key, "k%d", tries);
        is_full = fill_within_a_window(&strict, family, key, window_ms * 1000);
    }
    assert_true(is_full);
    snprintf(log, sizeof log, "tw:log:log:%s:19700101000000", key);
    assert_true(newest(&strict.server, log, &first));
    assert_i64_equal(first.units, 6);
    tw_status status = TW_DENIED;
    while (status == TW_DENIED) status = tw_acquire(family, tw_str(key), 10, 10, NULL);
    assert_status(status, TW_OK);
    assert_true(newest(&strict.server, log, &last));
    assert_i64_equal(last.units, 10);
    assert_true(last.at_us - first.at_us >= window_ms * 1000);
    strict_end(&strict);
}

int main(void) {
    redis_server_require();
    return test_run();
}
