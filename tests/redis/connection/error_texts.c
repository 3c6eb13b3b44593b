/* error_texts.c -- tw_error_text() after requests to Redis: what Redis refused, in its own words, or what its reply
 * said.
 * Method: a server that is out of memory, keys of another type, tokens and locks that are gone. */
#include "tests/redis/sync_support.h"

static struct redis_server server;
static tw_engine *engine;
static tw_family *hour, *strict;

static int begin(void **state) {
    redis_server_start(&server, NULL);
    engine = quick_engine(server.url, NULL);
    hour = family_of(engine, "hour", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "strict";
    options.limit_mode = TW_LIMIT_STRICT;
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    assert_status(tw_family_open(engine, &options, &strict), TW_OK);
    return 0;
}

static int end(void **state) {
    (void)tw_close(engine, 2000);
    redis_server_destroy(&server);
    return 0;
}

static void assert_says(const char *begins, const char *holds) {
    const char *text = tw_error_text();
    if (strncmp(text, begins, strlen(begins)) != 0 || strstr(text, holds) == NULL)
        fail_msg("\"%s\" is not \"%s...%s...\"", text, begins, holds);
}

TEST_WITH(what_redis_refuses_is_named_in_its_words, begin, end, NULL) {
    char token[TW_TOKEN_SIZE];
    redis_server_ask(&server, "CONFIG", "SET", "maxmemory", "1", NULL);
    assert_status(tw_lock(hour, tw_str("a"), 1000, token, NULL), TW_ERR_REDIS);
    assert_says("Redis: it refuses", "OOM");
    assert_status(tw_reserve(hour, tw_str("a"), 1, 10, 1000, tw_bytes("", 0), token, NULL), TW_ERR_REDIS);
    assert_says("Redis: it refuses", "OOM");
    assert_status(tw_once(strict, tw_str("a"), NULL), TW_ERR_REDIS);
    assert_says("Redis: it refuses", "OOM");
    redis_server_ask(&server, "CONFIG", "SET", "maxmemory", "0", NULL);
}

TEST_WITH(what_is_gone_in_redis_is_told_apart, begin, end, NULL) {
    char token[TW_TOKEN_SIZE];
    tw_key key = tw_str("b"), nobody = tw_bytes("", 0);
    assert_status(tw_lock(hour, key, 60000, token, NULL), TW_OK);
    assert_status(tw_lock_release(hour, key, token), TW_OK);
    assert_status(tw_lock_release(hour, key, token), TW_ERR_LATE);
    assert_says("token: ", "hold the lock");
    assert_status(tw_reserve(hour, key, 1, 10, 60000, nobody, token, NULL), TW_OK);
    assert_status(tw_reserve_cancel(engine, token), TW_OK);
    assert_status(tw_reserve_confirm(engine, token), TW_ERR_LATE);
    assert_says("token: ", "returned");
    assert_status(tw_reserve(hour, key, 1, 10, 60000, nobody, token, NULL), TW_OK);
    assert_status(tw_reserve_confirm(engine, token), TW_OK);
    assert_status(tw_reserve_cancel(engine, token), TW_ERR_LATE);
    assert_says("token: ", "sold");
    assert_status(tw_reserve_confirm(engine, "0123456789abcdef0123456789abcdef"), TW_ERR_UNKNOWN_TOKEN);
    assert_says("token: ", "");
}

TEST_WITH(a_flush_that_was_refused_in_part_says_so, begin, end, NULL) {
    tw_family *endless = family_of(engine, "endless", TW_WINDOW_FOREVER, 0);
    redis_server_ask(&server, "RPUSH", "endless:list", "no number", NULL);
    assert_status(tw_add(endless, tw_str("list"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, 5000), TW_ERR_REDIS);
    assert_says("Redis: some of it", "on_lost");
}

int main(void) {
    redis_server_require();
    return test_run();
}
