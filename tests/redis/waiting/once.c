/* once.c -- tw_once and tw_lock with Redis: one first caller, one holder, also when replies are lost.
 * Covers: engine/ask/once.c, engine/ask/lock.c, sync/script/once.lua, sync/script/lock.lua. */
#include "tests/redis/waiting/strict_support.h"

#include "once.lua.h"

#include <pthread.h>

static bool is_first(tw_family *family, const char *key) {
    bool first = false;
    assert_status(tw_once(family, tw_str(key), &first), TW_OK);
    return first;
}

/* Opens a second engine, connected straight to the server. */
static tw_family *neighbour(struct strict *strict, tw_engine **engine, uint32_t mode) {
    *engine = quick_engine(strict->server.url, NULL);
    tw_family_options options = strict_options("s");
    options.limit_mode = mode;
    return strict_family(*engine, &options);
}

/* ---- once -------------------------------------------------------------------------------------------------------- */

/* Goal: of the callers of two engines one is the first, until it is cancelled; the count is 1. */
TEST(one_caller_of_all_engines_is_first) {
    struct strict strict;
    tw_engine *other;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *there = neighbour(&strict, &other, TW_LIMIT_STRICT);
    assert_true(is_first(strict.family, "order"));
    assert_false(is_first(strict.family, "order"));
    assert_false(is_first(there, "order"));
    assert_i64_equal(redis_server_get(&strict.server, "s:order"), 1);
    assert_status(tw_once_cancel(there, tw_str("order")), TW_OK);
    assert_i64_equal(redis_server_get(&strict.server, "s:order"), 0);
    assert_true(is_first(there, "order"));
    assert_status(tw_once_cancel(there, tw_str("never")), TW_OK);
    assert_i64_equal(redis_server_get(&strict.server, "s:never"), 0);
    assert_status(tw_close(other, 1000), TW_OK);
    strict_end(&strict);
}

/* Goal: the first caller is still the first when its reply is lost (trap L10). */
TEST(the_first_stays_first_when_its_reply_is_lost) {
    static const enum proxy_fault faults[] = {PROXY_DROP_REPLY, PROXY_CUT_REPLY, PROXY_RESET};
    struct strict strict;
    strict_begin(&strict, STRICT_TRIES_MS, TW_OUTAGE_FAIL_CLOSED);
    for (size_t i = 0; i < 3; i++) {
        char key[16];
        snprintf(key, sizeof key, "order%zu", i);
        strict_order(&strict, faults[i], 1);
        assert_true(is_first(strict.family, key));
        assert_false(is_first(strict.family, key));
    }
    assert_i64_equal(test_stat_of(strict.engine, asked_again), 3);
    strict_end(&strict);
}

/* Goal: a copy that arrives late, after the first call was cancelled, makes nobody the first. */
TEST(a_late_copy_makes_nobody_the_first) {
    struct strict strict;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    assert_true(is_first(strict.family, "other"));
    tw_engine *other;
    tw_family *there = neighbour(&strict, &other, TW_LIMIT_STRICT);
    strict_order(&strict, PROXY_HOLD, 1);
    assert_true(is_first(strict.family, "order")); /* the copy arrives after this call's reply */
    strict_await_late_copy(&strict);
    assert_status(tw_once_cancel(there, tw_str("order")), TW_OK);
    struct strict_call call = strict_last_call(&strict, "tw:calls:s:order"); /* and another copy arrives only now */
    assert_non_null(
        strstr(redis_server_ask(&strict.server, "EVALSHA", twi_script_once_sha1, "3", "tw:calls:s:order",
                                "tw:once:s:order", "s:order", call.who, call.serial, "1", "O", "token", "0", "0", NULL),
               "STALE"));
    assert_true(is_first(there, "order"));
    assert_false(is_first(strict.family, "order"));
    assert_status(tw_close(other, 1000), TW_OK);
    strict_end(&strict);
}

/* Goal: a call of unknown outcome in a fail-closed family returns an error. What it may have written is taken back, so
 * that the key can still have its first call. */
TEST(an_unknown_first_is_taken_back) {
    struct strict strict;
    bool first = true;
    strict_begin(&strict, STRICT_IN_VAIN_MS, TW_OUTAGE_FAIL_CLOSED);
    assert_true(is_first(strict.family, "other"));
    strict_order(&strict, PROXY_LOSE_REPLY, 20);
    assert_status(tw_once(strict.family, tw_str("order"), &first), TW_ERR_TIMEOUT);
    strict_order(&strict, PROXY_PASS, 1);
    assert_i64_equal(redis_server_get(&strict.server, "s:order"), 1);
    for (int i = 0; i < 200 && tw_once(strict.family, tw_str("order"), &first) != TW_OK; i++) test_sleep_ms(5);
    assert_true(first);
    assert_i64_equal(redis_server_get(&strict.server, "s:order"), 1);
    strict_end(&strict);
}

/* Goal: a soft family decides by what it knows, sends it, and denies as soon as it knows of the other engine's call. */
TEST(soft_families_learn_of_each_others_first_call) {
    struct strict strict;
    tw_engine *one, *two;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    tw_family *here = neighbour(&strict, &one, TW_LIMIT_SOFT), *there = neighbour(&strict, &two, TW_LIMIT_SOFT);
    int64_t totals[1];
    assert_true(is_first(here, "order"));
    assert_false(is_first(here, "order"));
    assert_status(tw_flush(one, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_fetch(there, (tw_key[]){tw_str("order")}, 1, 2000, totals), TW_OK);
    assert_false(is_first(there, "order"));
    assert_false(is_first(strict.family, "order")); /* a strict family sees it, too */
    assert_status(tw_once_cancel(there, tw_str("order")), TW_OK);
    assert_status(tw_flush(two, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&strict.server, "s:order"), 0);
    assert_true(is_first(there, "order"));
    assert_status(tw_close(one, 1000), TW_OK);
    assert_status(tw_close(two, 1000), TW_OK);
    strict_end(&strict);
}

/* ---- locks ------------------------------------------------------------------------------------------------------- */

/* Goal: a lock has one holder; fencing tokens rise; an engine without the lock can neither extend nor release it. */
TEST(a_lock_has_one_holder) {
    struct strict strict;
    char mine[TW_TOKEN_SIZE], theirs[TW_TOKEN_SIZE] = "x";
    uint64_t fence = 0, next = 0;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    assert_status(tw_lock(strict.family, tw_str("job"), 60000, mine, &fence), TW_OK);
    assert_status(tw_lock(strict.family, tw_str("job"), 60000, theirs, NULL), TW_DENIED);
    assert_string_equal(theirs, "");
    assert_status(tw_lock_release(strict.family, tw_str("job"), theirs), TW_ERR_UNKNOWN_TOKEN);
    assert_status(tw_lock_extend(strict.family, tw_str("job"), mine, 90000), TW_OK);
    assert_true(atoi(redis_server_ask(&strict.server, "PTTL", "tw:lock:s:job", NULL)) > 80000);
    assert_status(tw_lock_extend(strict.family, tw_str("job"), mine, 5), TW_OK); /* its life never gets shorter */
    assert_true(atoi(redis_server_ask(&strict.server, "PTTL", "tw:lock:s:job", NULL)) > 80000);
    assert_status(tw_lock_release(strict.family, tw_str("job"), mine), TW_OK);
    assert_status(tw_lock_release(strict.family, tw_str("job"), mine), TW_ERR_LATE);
    assert_status(tw_lock_extend(strict.family, tw_str("job"), mine, 10), TW_ERR_LATE);
    assert_status(tw_lock(strict.family, tw_str("job"), 20, theirs, &next), TW_OK);
    assert_true(next > fence);
    test_sleep_ms(30); /* over */
    redis_server_ask(&strict.server, "SET", "tw:fence:s:job", "8000000000000000",
                     NULL); /* Redis's clock was ahead once */
    assert_status(tw_lock(strict.family, tw_str("job"), 60000, mine, &next), TW_OK);
    assert_i64_equal(next, INT64_C(8000000000000001));
    assert_status(tw_lock_release(strict.family, tw_str("job"), theirs), TW_ERR_LATE);
    assert_status(tw_lock(strict.family, tw_str("job"), 0, mine, NULL), TW_ERR_RANGE);
    strict_end(&strict);
}

/* Goal: the reply to a lock, its extension or its release is lost: the holder is still the holder, with the same
 * fencing token. */
TEST(the_holder_stays_the_holder_when_its_reply_is_lost) {
    struct strict strict;
    char token[TW_TOKEN_SIZE];
    uint64_t fence;
    strict_begin(&strict, STRICT_LONG_MS, TW_OUTAGE_FAIL_CLOSED);
    strict_order(&strict, PROXY_DROP_REPLY, 1);
    assert_status(tw_lock(strict.family, tw_str("job"), 60000, token, &fence), TW_OK);
    assert_i64_equal(strtoll(redis_server_ask(&strict.server, "GET", "tw:fence:s:job", NULL), NULL, 10), fence);
    strict_order(&strict, PROXY_DROP_REPLY, 1);
    assert_status(tw_lock_extend(strict.family, tw_str("job"), token, 90000), TW_OK);
    strict_order(&strict, PROXY_DROP_REPLY, 1);
    assert_status(tw_lock_release(strict.family, tw_str("job"), token), TW_OK);
    assert_status(tw_lock(strict.family, tw_str("job"), 60000, token, NULL), TW_OK);
    strict_end(&strict);
}

/* Goal: a copy of tw_lock() that arrives after the release locks nothing; a lock of unknown outcome is released. */
TEST(nobody_holds_a_lock_without_knowing) {
    struct strict strict;
    char token[TW_TOKEN_SIZE];
    strict_begin(&strict, STRICT_IN_VAIN_MS, TW_OUTAGE_FAIL_CLOSED);
    assert_status(tw_lock(strict.family, tw_str("warm"), 60000, token, NULL), TW_OK);
    strict_order(&strict, PROXY_LOSE_REPLY, 20);
    assert_status(tw_lock(strict.family, tw_str("job"), 60000, token, NULL), TW_ERR_TIMEOUT);
    assert_string_equal(token, "");
    strict_order(&strict, PROXY_PASS, 1);
    assert_string_not_equal(redis_server_ask(&strict.server, "GET", "tw:lock:s:job", NULL), "");
    tw_status status = TW_ERR_REDIS;
    for (int i = 0; i < 200 && status != TW_OK; i++) {
        status = tw_lock(strict.family, tw_str("job"), 60000, token, NULL);
        test_sleep_ms(5);
    }
    assert_status(status, TW_OK);
    strict_end(&strict);
}

struct contest {
    tw_family *family;
    _Atomic int64_t inside, rounds, broken;
    uint64_t fence;
};

static void *contend(void *argument) {
    struct contest *contest = argument;
    char token[TW_TOKEN_SIZE];
    uint64_t fence;
    for (int64_t won = 0; won < 20;) {
        tw_status status = tw_lock(contest->family, tw_str("job"), 60000, token, &fence);
        if (status != TW_OK && status != TW_DENIED) atomic_fetch_add(&contest->broken, 1);
        if (status != TW_OK) continue;
        if (atomic_fetch_add(&contest->inside, 1) != 0 || fence <= contest->fence)
            atomic_fetch_add(&contest->broken, 1);
        contest->fence = fence;
        atomic_fetch_sub(&contest->inside, 1);
        if (tw_lock_release(contest->family, tw_str("job"), token) != TW_OK) atomic_fetch_add(&contest->broken, 1);
        won++;
    }
    return NULL;
}

/* Goal: while replies are lost, contending threads never hold the lock together, and each fencing token is above all
 * earlier ones. */
TEST(contenders_are_never_inside_together) {
    struct strict strict;
    strict_begin(&strict, 5000, TW_OUTAGE_FAIL_CLOSED);
    struct contest contest = {.family = strict.family};
    proxy_chance(strict.proxy, PROXY_DROP_REPLY, 300);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, contend, &contest), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_i64_equal(contest.broken, 0);
    strict_end(&strict);
}

int main(void) {
    redis_server_require();
    return test_run();
}
