/* any_bytes.c -- keys of any bytes and any number reach Redis unchanged, in batches that keep their bounds. */
#include "tests/redis/sync_support.h"

/* Goal: NUL, line ends, 0xFF and the longest key arrive unchanged (fault 52). */
TEST(keys_of_any_bytes_arrive_verbatim) {
    static const char odd[] = "a\0b\r\n$3\r\n\xff{x}";
    struct redis_server server;
    char longest[TW_KEY_SIZE_MAX];
    redis_server_start(&server, NULL);
    memset(longest, 'L', sizeof longest);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "odd", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_bytes(odd, sizeof odd - 1), 3, NULL), TW_OK);
    assert_status(tw_add(family, tw_bytes(longest, sizeof longest), 4, NULL), TW_OK);
    assert_status(tw_add(family, tw_bytes("\0", 1), 5, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(
        redis_server_ask(&server, "EVAL", "return redis.call('GET', 'odd:a\\0b\\r\\n$3\\r\\n\\255{x}')", "0", NULL),
        "3");
    assert_string_equal(
        redis_server_ask(&server, "EVAL", "return redis.call('GET', 'odd:' .. string.rep('L', 1024))", "0", NULL), "4");
    assert_string_equal(redis_server_ask(&server, "EVAL", "return redis.call('GET', 'odd:\\0')", "0", NULL), "5");
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

static void many_keys(size_t key_size, int count) {
    struct redis_server server;
    char key[TW_KEY_SIZE_MAX];
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "many", TW_WINDOW_FOREVER, 0);
    memset(key, 'k', sizeof key);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < count; i++) {
            snprintf(key, 9, "%08d", i);
            key[8] = 'k';
            assert_status(tw_add(family, tw_bytes(key, key_size), i + 1, NULL), TW_OK);
        }
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    }
    static const char sum[] = "local n, s = 0, 0 for _, k in ipairs(redis.call('KEYS', 'many:*')) do "
                              "n = n + 1 s = s + redis.call('GET', k) end return n .. ' ' .. s";
    char want[64];
    snprintf(want, sizeof want, "%d %lld", count, (long long)count * (count + 1));
    assert_string_equal(redis_server_ask(&server, "EVAL", sum, "0", NULL), want);
    assert_i64_equal(test_stat_of(engine, batches_error), 0);
    assert_true(test_stat_of(engine, batches_ok) >= 2 * (count / 1000));
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: more keys than a batch holds, and keys longer than its bytes, are split over several batches, and all arrive,
 * twice (fault 61). */
TEST(more_than_a_batch_is_split) {
    many_keys(16, 12345);
    many_keys(TW_KEY_SIZE_MAX, 3001); /* about 240 of them fill 256 KiB */
}

int main(void) {
    redis_server_require();
    return test_run();
}
