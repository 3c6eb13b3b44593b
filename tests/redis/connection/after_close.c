/* after_close.c -- what an engine leaves in Redis when it closes: next to nothing, for a short time, if all that it
 * counted was acknowledged; and nothing that comes late, or from a second life of it, is counted twice.
 * Method: late copies and the second life are played by hand, with the script of batches.
 * Covers: sync/turn/turn.c. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include "batch.lua.h"

#define DAY_MS INT64_C(86400000)
#define LEFT_MS INT64_C(1200000)

static struct redis_server server;

static int64_t number(const char *script) {
    return atoll(redis_server_ask(&server, "EVAL", script, "0", NULL));
}

static int64_t ledgers(void) {
    return number("return #redis.call('KEYS', 'tw:ledger:*')");
}

/* How long the only ledger lives. */
static int64_t ledger_life_ms(void) {
    return number("return redis.call('PTTL', redis.call('KEYS', 'tw:ledger:*')[1])");
}

/* How long ago the only instance wrote, by its entry in the marker. */
static int64_t entry_age_ms(void) {
    return number("local t, m = redis.call('TIME'), redis.call('HGETALL', 'tw:marker') "
                  "for i = 1, #m, 2 do if #m[i] == 32 then return t[1] * 1000 - m[i + 1] end end return -1");
}

static void use_once(const char *url) {
    tw_engine *engine = quick_engine(url, NULL);
    tw_family *family = family_of(engine, "hits", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("a"), 7, NULL), TW_OK);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: the ledger of an engine whose close was acknowledged in full ends within minutes, its entry in the marker after
 * a day; a hundred engines that came and went leave nothing else behind. */
TEST(a_closed_engine_leaves_a_ledger_of_short_life) {
    redis_server_start(&server, NULL);
    use_once(server.url);
    assert_i64_equal(redis_server_get(&server, "hits:a"), 7);
    assert_i64_equal(ledgers(), 1);
    assert_true(ledger_life_ms() > 0 && ledger_life_ms() <= LEFT_MS);
    int64_t age_ms = entry_age_ms();
    assert_true(age_ms > DAY_MS - 60000 && age_ms < DAY_MS + 60000); /* it goes when it is two days old */
    redis_server_destroy(&server);
}

/* Goal: an engine that could not deliver all, and one that was killed, keep their ledgers for a day. */
TEST(an_engine_that_owes_something_keeps_its_ledger) {
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "RPUSH", "hits:b", "x", NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "hits", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("a"), 1, NULL), TW_OK);
    assert_status(tw_add(family, tw_str("b"), 1, NULL), TW_OK);
    assert_status(tw_close(engine, 1000), TW_ERR_TIMEOUT);
    assert_i64_equal(ledgers(), 1);
    assert_true(ledger_life_ms() > DAY_MS - 60000);
    assert_true(entry_age_ms() < 60000);
    redis_server_destroy(&server);
}

static char ledger[80];

/* Batch `of` of the engine that has closed, as a copy that comes late: it adds 7. The status. */
static const char *late_copy(const char *of, const char *before) {
    return redis_server_ask(&server, "EVAL", twi_script_batch, "3", ledger, "tw:marker", "hits:a", "1", of, before,
                            "0123456789abcdef", "86400000", "7", "0", "0123456789abcdef0123456789abcdef", "e", "0", "1",
                            "7", NULL);
}

static const char *late_opening(void) {
    return redis_server_ask(&server, "EVAL", twi_script_batch, "2", ledger, "tw:marker", "1", "0", "0",
                            "0123456789abcdef", "86400000", "0", "0", "0123456789abcdef0123456789abcdef", NULL);
}

static bool begins(const char *reply, const char *status) {
    return strncmp(reply, status, strlen(status)) == 0;
}

/* Goal: late copies of an opening and of batches are refused while the ledger is there, and copies of batches also when
 * it is gone. */
TEST(late_copies_after_a_close_count_nothing) {
    redis_server_start(&server, NULL);
    use_once(server.url);
    snprintf(ledger, sizeof ledger, "%s", redis_server_ask(&server, "KEYS", "tw:ledger:*", NULL));
    ledger[strcspn(ledger, "\n")] = '\0';
    assert_true(begins(late_opening(), "CLASH"));
    int last = atoi(redis_server_ask(&server, "HGET", ledger, "n", NULL));
    assert_true(last >= 2);
    for (int i = 1; i <= last; i++) {
        char of[16], before[16];
        snprintf(of, sizeof of, "%d", i);
        snprintf(before, sizeof before, "%d", i - 1);
        const char *reply = late_copy(of, before);
        assert_true(begins(reply, "CLASH") || begins(reply, "GAP") || begins(reply, "PAST"));
    }
    assert_i64_equal(redis_server_get(&server, "hits:a"), 7);
    redis_server_ask(&server, "DEL", ledger, NULL); /* its life is over */
    assert_true(begins(late_copy("1", "0"), "GONE"));
    assert_true(begins(late_copy("2", "1"), "GONE"));
    assert_i64_equal(redis_server_get(&server, "hits:a"), 7);
    redis_server_destroy(&server);
}

/* Goal: a second life of an engine, such as a snapshot of its machine, that wakes up when the first one has closed and
 * its ledger is gone, does not send again what is there. What it cannot know is uncertain.
 * Method: an engine whose ledger ended as that of a closed one does. */
TEST(a_second_life_after_the_close_counts_nothing_twice) {
    redis_server_start(&server, NULL);
    struct lost lost = {0};
    tw_engine *engine = quick_engine(server.url, &lost);
    tw_family *family = family_of(engine, "hits", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("a"), 7, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    number("local m = redis.call('HGETALL', 'tw:marker') for i = 1, #m, 2 do if #m[i] == 32 then "
           "redis.call('HSET', 'tw:marker', m[i], m[i + 1] - 86400000) end end "
           "redis.call('DEL', redis.call('KEYS', 'tw:ledger:*')[1]) return 1");
    assert_status(tw_add(family, tw_str("a"), 1, NULL), TW_OK);
    (void)tw_flush(engine, 20000);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_true(redis_server_get(&server, "hits:a") <= 8);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
