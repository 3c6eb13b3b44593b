/* startup.c -- at the first connection the log names what is wrong with a Redis: one line each, once, and none about a
 * sound one.
 * Covers: sync/turn/connect.c, sync/message/connection.c. */
#include "tests/redis/sync_support.h"

#include <unistd.h>

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
    return count;
}

static bool is_connected(void *ctx) {
    return test_stat_of(ctx, redis_connected) == 1;
}

/* The log of an engine that uses this server over three connections. */
static struct log_lines lines_of(struct redis_server *server, bool takes_writes) {
    struct log_lines lines = {.text = ""};
    tw_options options;
    tw_engine *engine;
    quick_options(&options, server->url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "start", TW_WINDOW_FOREVER, 0);
    for (int i = 0; i < 3; i++) {
        assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
        assert_status(tw_flush(engine, takes_writes ? 10000 : 300), takes_writes ? TW_OK : TW_ERR_TIMEOUT);
        if (takes_writes) assert_true(test_wait(is_connected, engine, TEST_PATIENCE_MS));
        redis_server_ask(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes", NULL);
    }
    (void)tw_close(engine, takes_writes ? 5000 : 0);
    return lines;
}

#define START "1/16 "
#define ADVICE "2/16 " /* Redis's default is no fault of the setting */

/* Goal: each finding is one line, at the first of several connections only; a sound server gets none. Method: eviction
 * policies, an append-only file that may be cut, and both at once; a replica, which is not used: one line an outage. */
TEST(each_finding_is_one_line_once) {
    static const char *const durable[] = {"--appendonly", "yes", NULL};
    static const char *const policies[] = {"allkeys-lru", "volatile-ttl"};
    struct redis_server server;
    redis_server_start(&server, NULL);
    struct log_lines sound = lines_of(&server, true);
    assert_int_equal(count_of(sound.text, START), 0);
    for (size_t i = 0; i < 2; i++) {
        redis_server_ask(&server, "CONFIG", "SET", "maxmemory-policy", policies[i], NULL);
        struct log_lines evicts = lines_of(&server, true);
        assert_int_equal(count_of(evicts.text, START), 1);
        assert_int_equal(count_of(evicts.text, policies[i]), 1);
    }
    redis_server_destroy(&server);
    redis_server_start(&server, durable);
    struct log_lines cut = lines_of(&server, true);
    assert_int_equal(count_of(cut.text, START), 0);
    assert_int_equal(count_of(cut.text, ADVICE), 1);
    assert_non_null(strstr(cut.text, "aof-load-truncated yes"));
    redis_server_ask(&server, "CONFIG", "SET", "aof-load-truncated", "no", NULL);
    struct log_lines whole = lines_of(&server, true);
    assert_int_equal(count_of(whole.text, START) + count_of(whole.text, ADVICE), 0);
    redis_server_ask(&server, "CONFIG", "SET", "aof-load-truncated", "yes", NULL);
    redis_server_ask(&server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru", NULL);
    struct log_lines all = lines_of(&server, true);
    assert_int_equal(count_of(all.text, START), 1);
    assert_int_equal(count_of(all.text, ADVICE), 1);
    assert_non_null(strstr(all.text, "aof-load-truncated yes"));
    assert_non_null(strstr(all.text, "allkeys-lru"));
    redis_server_ask(&server, "REPLICAOF", "127.0.0.1", "1", NULL);
    struct log_lines replica = lines_of(&server, false);
    assert_int_equal(count_of(replica.text, "is a replica"), 1);
    assert_int_equal(count_of(replica.text, START), 0);
    redis_server_destroy(&server);
}

/* Goal: a refusal of Redis is one line an outage, not one a try. Method: a wrong password, tried for longer than the
 * time for which a repeated line is left out, each flush trying again; then it is right for a while, and wrong
 * again. */
TEST(what_is_refused_is_one_line_an_outage) {
    struct redis_server server;
    struct log_lines lines = {.text = ""};
    tw_options options;
    tw_engine *engine;
    char url[256];
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "ACL", "SETUSER", "tally", "reset", "on", ">right", "~*", "+@all", NULL);
    snprintf(url, sizeof url, "unix://tally:pw@%s", server.socket);
    quick_options(&options, url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "start", TW_WINDOW_FOREVER, 0);
    for (int outage = 1; outage <= 2; outage++) {
        assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
        for (int i = 0; i < 5; i++) assert_status(tw_flush(engine, 300), TW_ERR_TIMEOUT);
        assert_non_null(strstr(tw_error_text(), "the login: WRONGPASS invalid username-password pair"));
        assert_true(atomic_load(&lines.count) > 0);
        assert_int_equal(count_of(lines.text, "refuses the login"), outage); /* no data is sent. The next try is far */
        redis_server_ask(&server, "ACL", "SETUSER", "tally", "resetpass", ">pw", NULL);
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_ask(&server, "ACL", "SETUSER", "tally", "resetpass", ">right", NULL);
        redis_server_ask(&server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes", NULL);
    }
    (void)tw_close(engine, 0);
    redis_server_destroy(&server);
}

/* Goal: Redis may evict whatever it likes for a while, ledger and marker too, and is set back before the engine looks.
 * That is no wipe: what the counters contributed is not sent again.
 * Method: keys with an end are evicted, so that Redis has evicted some; ledger and marker are removed by hand, as
 * allkeys-random may do. */
TEST(what_a_policy_of_a_while_ago_evicted_is_not_restored) {
    struct redis_server one;
    redis_server_start(&one, NULL);
    tw_engine *engine = quick_engine(one.url, NULL);
    tw_family *family = family_of(engine, "hits", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("a"), 7, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_ask(&one, "EVAL",
                     "for i = 1, 200 do redis.call('SET', 'junk' .. i, string.rep('x', 10000), 'EX', 60) end return 1",
                     "0", NULL);
    const char *used = strstr(redis_server_ask(&one, "INFO", "memory", NULL), "used_memory:");
    assert_non_null(used);
    char bound[32];
    snprintf(bound, sizeof bound, "%lld", atoll(used + 12) - 300000);
    redis_server_ask(&one, "CONFIG", "SET", "maxmemory-policy", "volatile-ttl", NULL);
    redis_server_ask(&one, "CONFIG", "SET", "maxmemory", bound, NULL);
    redis_server_ask(&one, "SET", "more", "x", NULL); /* evicts */
    redis_server_ask(&one, "CONFIG", "SET", "maxmemory", "0", NULL);
    redis_server_ask(&one, "CONFIG", "SET", "maxmemory-policy", "noeviction", NULL);
    assert_null(strstr(redis_server_ask(&one, "INFO", "stats", NULL), "evicted_keys:0"));
    assert_i64_equal(redis_server_get(&one, "hits:a"), 7);
    redis_server_ask(&one, "EVAL",
                     "redis.call('DEL', 'tw:marker') for _, k in ipairs(redis.call('KEYS', 'tw:ledger:*')) do "
                     "redis.call('DEL', k) end return 1",
                     "0", NULL);
    assert_status(tw_add(family, tw_str("a"), 1, NULL), TW_OK);
    (void)tw_flush(engine, 20000);
    assert_true(test_stat_of(engine, uncertain) >= 7);
    assert_true(redis_server_get(&one, "hits:a") <= 8);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&one);
}

int main(void) {
    redis_server_require();
    return test_run();
}
