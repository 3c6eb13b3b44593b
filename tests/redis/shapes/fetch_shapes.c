/* fetch_shapes.c -- tw_fetch_fields(), tw_fetch_top(), tw_fetch_rank(): what Redis holds of hashes and sorted sets is
 * shown, and nothing else: not what other programs put there, nor what a server says that is none.
 * Method: a real server, whose contents are written by hand; and a proxy that replies in its place.
 * Covers: engine/ask/fetch_shapes.c, sync/script/totals.lua. */
#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

static struct redis_server server;
static struct proxy *proxy;
static tw_engine *engine;
static tw_family *subjects, *ranks, *by_hour, *proxied;

static tw_family *open_shape(const char *name, uint32_t shape, uint32_t window) {
    test_shape = shape;
    return family_of(engine, name, window, 0);
}

static void open_engine(const char *url, uint32_t timeout_ms) {
    tw_options options;
    quick_options(&options, url);
    options.redis_timeout_ms = timeout_ms;
    assert_status(test_open(&options, &engine), TW_OK);
    subjects = open_shape("subjects", TW_REDIS_HASH, TW_WINDOW_FOREVER);
    ranks = open_shape("ranks", TW_REDIS_ZSET, TW_WINDOW_FOREVER);
    by_hour = open_shape("hourly", TW_REDIS_ZSET, TW_WINDOW_ALIGNED);
    proxied = open_shape("of-proxy", TW_REDIS_ZSET, TW_WINDOW_FOREVER);
}

static int begin(void **state) {
    redis_server_ask(&server, "FLUSHALL", NULL);
    open_engine(server.url, 1000);
    return 0;
}

/* Requests go through the proxy, which knows them by their name. */
static int begin_proxied(void **state) {
    redis_server_ask(&server, "FLUSHALL", NULL);
    proxy = proxy_start(&server, test_seed());
    proxy_only(proxy, "of-proxy");
    open_engine(proxy_url(proxy), 2000);
    return 0;
}

static int end(void **state) {
    redis_server_resume(&server);
    (void)tw_close(engine, 1000);
    if (proxy != NULL) proxy_stop(proxy);
    proxy = NULL;
    return 0;
}

/* ---- what is shown ----------------------------------------------------------------------------------------------- */

struct shown {
    char text[1024];
    int calls, most; /* most 0: no end */
};

static bool show(void *ctx, tw_key name, int64_t total) {
    struct shown *shown = ctx;
    size_t used = strlen(shown->text);
    if (used < sizeof shown->text - 1)
        snprintf(shown->text + used, sizeof shown->text - used, "%.*s=%lld ", (int)name.size, (const char *)name.data,
                 (long long)total);
    return ++shown->calls != shown->most;
}

static const char *fields_of(const char *subject) {
    static struct shown shown;
    memset(&shown, 0, sizeof shown);
    tw_status status = tw_fetch_fields(subjects, tw_str(subject), TW_NOW, 0, show, &shown);
    if (status != TW_OK) fail_msg("%s: %s", tw_status_name(status), tw_error_text());
    return shown.text;
}

static const char *top_of(tw_family *family, size_t n, int64_t unix_ms) {
    static struct shown shown;
    memset(&shown, 0, sizeof shown);
    tw_status status = tw_fetch_top(family, unix_ms, n, 0, show, &shown);
    if (status != TW_OK) fail_msg("%s: %s", tw_status_name(status), tw_error_text());
    return shown.text;
}

static void check_rank(tw_family *family, const char *member, int64_t want_rank, int64_t want_total) {
    int64_t rank = -7, total = -7;
    assert_status(tw_fetch_rank(family, tw_str(member), TW_NOW, 0, &rank, &total), TW_OK);
    assert_i64_equal(rank, want_rank);
    assert_i64_equal(total, want_total);
    assert_status(tw_fetch_rank(family, tw_str(member), TW_NOW, 0, NULL, NULL), TW_OK);
}

TEST_WITH(the_fields_of_a_subject_are_shown_sorted, begin, end, NULL) {
    redis_server_ask(&server, "HSET", "subjects:a:7", "views", "30", "likes", "2", "shares", "-1", "none", "0", NULL);
    redis_server_ask(&server, "HSET", "subjects:a:8", "views", "2305843009213693951", NULL);
    assert_string_equal(fields_of("a:7"), "likes=2 none=0 shares=-1 views=30 ");
    assert_string_equal(fields_of("a:8"), "views=2305843009213693951 ");
    assert_string_equal(fields_of("a:9"), "");
    struct shown shown = {.most = 2};
    assert_status(tw_fetch_fields(subjects, tw_str("a:7"), TW_NOW, 5000, show, &shown), TW_OK);
    assert_string_equal(shown.text, "likes=2 none=0 ");
    assert_string_equal(redis_server_ask(&server, "HLEN", "subjects:a:7", NULL), "4"); /* nothing was changed */
    assert_string_equal(redis_server_ask(&server, "EXISTS", "subjects:a:9", NULL), "0");
}

/* Goal: other programs may keep other things in the same hash: texts, fractions, numbers beyond 64 bits, long names. */
TEST_WITH(what_is_no_count_is_left_out, begin, end, NULL) {
    char name[TW_KEY_SIZE_MAX + 2];
    memset(name, 'n', sizeof name);
    name[TW_KEY_SIZE_MAX + 1] = '\0';
    redis_server_ask(&server, "HSET", "subjects:a", "title", "Hello", "empty", "", "half", "1.5", "big",
                     "9223372036854775808", "bigger", "99999999999999999999999", "plus", "+5", "blank", " 5", "dash",
                     "-", name, "6", "views", "7", NULL);
    assert_string_equal(fields_of("a"), "views=7 ");
    redis_server_ask(&server, "ZADD", "ranks", "1.5", "half", "inf", "endless", "-inf", "nothing", "1e17", "big",
                     "9007199254740992", "most", "9007199254740994", "too much", "8", name, "3", "three", "-2", "two",
                     NULL);
    assert_string_equal(top_of(ranks, 10, TW_NOW), "most=9007199254740992 three=3 two=-2 ");
    assert_string_equal(top_of(ranks, 2, TW_NOW), "most=9007199254740992 three=3 "); /* others follow in their place */
    assert_string_equal(top_of(ranks, 1, TW_NOW), "most=9007199254740992 ");
    check_rank(ranks, "most", 3, TW_DELTA_MAX); /* behind inf, 1e17 and 2^53 + 2 */
    check_rank(ranks, "two", 7, -2);
    int64_t rank = -7;
    assert_status(tw_fetch_rank(ranks, tw_str("half"), TW_NOW, 0, &rank, NULL), TW_ERR_REDIS);
    assert_non_null(strstr(tw_error_text(), "1.5"));
    assert_status(tw_fetch_rank(ranks, tw_str("too much"), TW_NOW, 0, &rank, NULL), TW_ERR_REDIS);
    assert_i64_equal(rank, -7);
}

TEST_WITH(a_ranking_has_the_order_of_redis, begin, end, NULL) {
    redis_server_ask(&server, "ZADD", "ranks", "5", "b", "5", "a", "5", "ab", "5", "B", "9", "nine", "0", "zero", "-4",
                     "less", NULL);
    assert_string_equal(top_of(ranks, 10, TW_NOW), "nine=9 b=5 ab=5 a=5 B=5 zero=0 less=-4 ");
    assert_string_equal(top_of(ranks, 3, TW_NOW), "nine=9 b=5 ab=5 ");
    struct shown shown = {.most = 2};
    assert_status(tw_fetch_top(ranks, TW_NOW, 10000, 0, show, &shown), TW_OK);
    assert_string_equal(shown.text, "nine=9 b=5 ");
    check_rank(ranks, "nine", 0, 9);
    check_rank(ranks, "ab", 2, 5);
    check_rank(ranks, "B", 4, 5);
    check_rank(ranks, "less", 6, -4);
    check_rank(ranks, "nobody", -1, 0);
    assert_string_equal(redis_server_ask(&server, "ZCARD", "ranks", NULL), "7");
}

/* Goal: a ranking is read from Redis 7.2 and later, too, which write some scores as 5e+15. Method: the script, with a
 * `redis` before it that replies so. */
TEST_WITH(scores_with_an_exponent_are_read, begin, end, NULL) {
    static const char later[] =
        "local real = redis\n"
        "local redis = {pcall = function(command, ...)\n"
        "  if command == 'ZREVRANGE' then return {'a', '5e+15', 'b', '12', 'c', '-4.6e+15', 'd', '1e+300'} end\n"
        "  if command == 'ZREVRANK' then return 0 end\n"
        "  return real.pcall(command, ...)\n"
        "end, call = function() return '4.6e+15' end}\n";
    static char script[sizeof later + 16384];
    size_t size = sizeof later - 1;
    memcpy(script, later, size);
    test_read_source("sync/script/totals.lua", script + size, sizeof script - size);
    assert_string_equal(redis_server_ask(&server, "EVAL", script, "1", "k", "0", "7", "0", "top", "0", "10", NULL),
                        "7\nOK\n-1\n1:a16:50000000000000001:b2:121:c17:-4600000000000000");
    assert_string_equal(redis_server_ask(&server, "EVAL", script, "1", "k", "0", "7", "0", "rank", "a", NULL),
                        "7\nOK\n0\n4600000000000000");
}

/* Goal: windows that this process does not hold, and windows to come, can be asked for. */
TEST_WITH(any_window_can_be_asked_for, begin, end, NULL) {
    redis_server_ask(&server, "ZADD", "hourly:2001090901", "3", "long ago", NULL);
    redis_server_ask(&server, "ZADD", "hourly:2286112017", "4", "long hence", NULL);
    assert_string_equal(top_of(by_hour, 5, INT64_C(1000000000000)), "long ago=3 ");
    assert_string_equal(top_of(by_hour, 5, INT64_C(9999999999000)), "long hence=4 ");
    assert_string_equal(top_of(by_hour, 5, TW_NOW), "");
    int64_t rank = -7, total = -7;
    assert_status(tw_fetch_rank(by_hour, tw_str("long ago"), INT64_C(1000000000000), 0, &rank, &total), TW_OK);
    assert_i64_equal(rank, 0);
    assert_i64_equal(total, 3);
    assert_status(tw_fetch_top(by_hour, INT64_MAX, 5, 0, show, &(struct shown){.text = ""}), TW_ERR_RANGE);
}

struct tally {
    int64_t calls, sum;
    char last[32];
};

static bool tally(void *ctx, tw_key name, int64_t total) {
    struct tally *tally = ctx;
    char text[32];
    snprintf(text, sizeof text, "%.*s", (int)name.size, (const char *)name.data);
    assert_true(strcmp(tally->last, text) < 0); /* sorted, so each is shown once */
    memcpy(tally->last, text, sizeof text);
    tally->calls++;
    tally->sum += total;
    return true;
}

/* A hash of many pages is shown whole. */
TEST_WITH(each_field_of_a_large_hash_is_shown_once, begin, end, NULL) {
    static const char fill[] = "for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], 'field' .. i, i) end";
    redis_server_ask(&server, "EVAL", fill, "1", "subjects:a", "5000", NULL);
    struct tally all = {.last = ""};
    assert_status(tw_fetch_fields(subjects, tw_str("a"), TW_NOW, 20000, tally, &all), TW_OK);
    assert_i64_equal(all.calls, 5000);
    assert_i64_equal(all.sum, 5000 * 5001 / 2);
    assert_true(test_stat_of(engine, ask_calls) > 10);
}

/* Members of 1,000 bytes: the ranking takes several replies. */
TEST_WITH(a_ranking_of_long_members_is_shown_whole, begin, end, NULL) {
    static const char fill[] = "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], i % 1000, "
                               "string.format('%06d', i) .. string.rep('x', 994)) end";
    redis_server_ask(&server, "EVAL", fill, "1", "ranks", "2500", NULL);
    struct shown shown = {.text = ""};
    assert_status(tw_fetch_top(ranks, TW_NOW, 10000, 20000, show, &shown), TW_OK);
    assert_int_equal(shown.calls, 2500);
    assert_memory_equal(shown.text, "001999x", 7); /* 999 twice: the greater name first */
    memset(&shown, 0, sizeof shown);
    assert_status(tw_fetch_top(ranks, TW_NOW, 2000, 20000, show, &shown), TW_OK);
    assert_int_equal(shown.calls, 2000);
    assert_i64_equal(test_stat_of(engine, asks_unknown) + test_stat_of(engine, ask_refused), 0);
}

/* ---- what is counted --------------------------------------------------------------------------------------------- */

/* Goal: what two engines count is there after the sync, and what is on its way is not. */
TEST_WITH(what_all_processes_counted_is_there_after_the_sync, begin, end, NULL) {
    tw_engine *first = engine;
    tw_family *here[] = {subjects, ranks};
    open_engine(server.url, 1000);
    tw_family *there[] = {subjects, ranks};
    for (int i = 0; i < 2; i++) {
        assert_status(tw_add(here[i], tw_str("a|views"), 3, NULL), TW_OK);
        assert_status(tw_add(there[i], tw_str("a|views"), 4, NULL), TW_OK);
        assert_status(tw_add(there[i], tw_str("a|likes"), 1, NULL), TW_OK);
    }
    assert_status(tw_flush(first, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_string_equal(fields_of("a"), "likes=1 views=7 ");
    assert_string_equal(top_of(ranks, 10, TW_NOW), "a|views=7 a|likes=1 ");
    check_rank(ranks, "a|likes", 1, 1);
    assert_status(tw_close(first, 1000), TW_OK);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

/* Redis's own words are in tw_error_text(). */
TEST_WITH(another_type_under_the_name_is_refused, begin, end, NULL) {
    struct shown shown = {.text = ""};
    redis_server_ask(&server, "SET", "subjects:a", "5", NULL);
    redis_server_ask(&server, "HSET", "ranks", "m", "5", NULL);
    assert_status(tw_fetch_fields(subjects, tw_str("a"), TW_NOW, 0, show, &shown), TW_ERR_REDIS);
    assert_non_null(strstr(tw_error_text(), "WRONGTYPE"));
    assert_status(tw_fetch_top(ranks, TW_NOW, 10, 0, show, &shown), TW_ERR_REDIS);
    assert_non_null(strstr(tw_error_text(), "WRONGTYPE"));
    assert_status(tw_fetch_rank(ranks, tw_str("m"), TW_NOW, 0, NULL, NULL), TW_ERR_REDIS);
    assert_non_null(strstr(tw_error_text(), "WRONGTYPE"));
    assert_int_equal(shown.calls, 0);
}

TEST_WITH(what_cannot_be_asked_is_refused_by_name, begin, end, NULL) {
    static char long_key[TW_KEY_SIZE_MAX + 1];
    struct shown shown = {.text = ""};
    memset(long_key, 'k', sizeof long_key);
    assert_status(tw_fetch_fields(ranks, tw_str("a"), TW_NOW, 0, show, &shown), TW_ERR_MODE);
    assert_memory_equal(tw_error_text(), "redis_shape: ", 13);
    assert_status(tw_fetch_top(subjects, TW_NOW, 10, 0, show, &shown), TW_ERR_MODE);
    assert_memory_equal(tw_error_text(), "redis_shape: ", 13);
    assert_status(tw_fetch_rank(subjects, tw_str("a"), TW_NOW, 0, NULL, NULL), TW_ERR_MODE);
    assert_status(tw_fetch_fields(subjects, tw_bytes("", 0), TW_NOW, 0, show, &shown), TW_ERR_KEY);
    assert_memory_equal(tw_error_text(), "subject: ", 9);
    assert_status(tw_fetch_fields(subjects, tw_bytes(long_key, sizeof long_key), TW_NOW, 0, show, &shown), TW_ERR_KEY);
    assert_status(tw_fetch_rank(ranks, tw_bytes(long_key, sizeof long_key), TW_NOW, 0, NULL, NULL), TW_ERR_KEY);
    assert_status(tw_fetch_top(ranks, TW_NOW, 0, 0, show, &shown), TW_ERR_RANGE);
    assert_memory_equal(tw_error_text(), "n: ", 3);
    assert_status(tw_fetch_top(ranks, TW_NOW, 10001, 0, show, &shown), TW_ERR_RANGE);
    assert_status(tw_fetch_fields(subjects, tw_str("a"), INT64_MAX, 0, show, &shown), TW_ERR_RANGE);
    tw_enter(engine);
    assert_status(tw_fetch_fields(subjects, tw_str("a"), TW_NOW, 0, show, &shown), TW_ERR_MODE);
    assert_status(tw_fetch_top(ranks, TW_NOW, 10, 0, show, &shown), TW_ERR_MODE);
    tw_leave(engine);
    assert_status(tw_stop(engine), TW_OK);
    assert_status(tw_fetch_fields(subjects, tw_str("a"), TW_NOW, 0, show, &shown), TW_ERR_CLOSED);
    assert_status(tw_fetch_rank(ranks, tw_str("a"), TW_NOW, 0, NULL, NULL), TW_ERR_CLOSED);
    assert_int_equal(shown.calls, 0);
}

/* The bytes of the longest key, with bytes that are no text. */
TEST_WITH(names_are_any_bytes, begin, end, NULL) {
    unsigned char member[TW_KEY_SIZE_MAX];
    int64_t rank = -7, total = -7;
    for (size_t i = 0; i < sizeof member; i++) member[i] = (unsigned char)i;
    assert_status(tw_add(ranks, tw_bytes(member, sizeof member), 6, NULL), TW_OK);
    assert_status(tw_add(subjects, tw_bytes("a\0b|\0:\n", 7), 5, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_fetch_rank(ranks, tw_bytes(member, sizeof member), TW_NOW, 0, &rank, &total), TW_OK);
    assert_i64_equal(rank, 0);
    assert_i64_equal(total, 6);
    struct shown shown = {.text = ""};
    assert_status(tw_fetch_fields(subjects, tw_bytes("a\0b", 3), TW_NOW, 0, show, &shown), TW_OK);
    assert_int_equal(shown.calls, 1);
}

/* ---- servers that reply late, not at all, or wrongly ------------------------------------------------------------- */

TEST_WITH(a_server_that_is_silent_or_gone_shows_nothing, begin, end, NULL) {
    struct shown shown = {.text = ""};
    redis_server_ask(&server, "HSET", "subjects:a", "views", "1", NULL);
    assert_string_equal(fields_of("a"), "views=1 ");
    redis_server_pause(&server);
    assert_status(tw_fetch_fields(subjects, tw_str("a"), TW_NOW, 60, show, &shown), TW_ERR_TIMEOUT);
    assert_memory_equal(tw_error_text(), "timeout_ms: ", 12);
    tw_status status = tw_fetch_top(ranks, TW_NOW, 10, 20, show, &shown); /* by now it may be left alone */
    assert_true(status == TW_ERR_TIMEOUT || status == TW_ERR_REDIS);
    redis_server_resume(&server);
    assert_int_equal(shown.calls, 0);
}

struct reply {
    const char *what, *text;
    tw_status says;
};

/* Replies to the fields of a subject, to the first two of a ranking, to a rank. SERIAL: the call's number. */
#define SERIAL PROXY_SERIAL
#define PAGE "$11\r\n5:views2:30"
static const struct reply of_fields[] = {
    {"a reply that is right", "*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n" PAGE "\r\n", TW_OK},
    {"an empty page", "*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n$0\r\n\r\n", TW_OK},
    {"too few values", "*4\r\n" SERIAL "+OK\r\n$1\r\n0\r\n" PAGE "\r\n", TW_ERR_REDIS},
    {"another word", "*5\r\n" SERIAL "+NO\r\n$2\r\nab\r\n$1\r\n0\r\n" PAGE "\r\n", TW_ERR_REDIS},
    {"a name without a total", "*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n$7\r\n5:views\r\n", TW_ERR_REDIS},
    {"a size beyond the page", "*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n$7\r\n9:views\r\n", TW_ERR_REDIS},
    {"a size beyond all numbers",
     "*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n$27\r\n99999999999999999999:a1:1xx\r\n", TW_ERR_REDIS},
    {"no size", "*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n$5\r\nviews\r\n", TW_ERR_REDIS},
    {"a long history",
     "*5\r\n" SERIAL "+OK\r\n$60\r\n012345678901234567890123456789012345678901234567890123456789\r\n$1\r\n0\r\n" PAGE
     "\r\n",
     TW_ERR_REDIS},
    {"a long cursor", "*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$30\r\n012345678901234567890123456789\r\n" PAGE "\r\n",
     TW_ERR_REDIS},
    {"a type that is another", "*3\r\n" SERIAL "+BAD\r\n$10\r\nWRONG\r\n\a!!\r\n", TW_ERR_REDIS},
    {"a permission that is missing", "-NOPERM no\r\n", TW_ERR_REDIS},
    /* from here on nothing of a reply is trusted, so the call is asked again until its time is over */
    {"a page that is a number", "*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n:5\r\n", TW_ERR_TIMEOUT},
    {"a page that is an array", "*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n*1\r\n:5\r\n", TW_ERR_TIMEOUT},
    {"a huge page", "*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n$999999999\r\n", TW_ERR_TIMEOUT},
    {"a huge array", "*99999999\r\n" SERIAL, TW_ERR_TIMEOUT},
    {"no array", "+OK\r\n", TW_ERR_TIMEOUT},
    {"an error of no meaning", "-ERR no\r\n", TW_ERR_TIMEOUT},
};
static const struct reply of_top[] = {
    {"a ranking that is right", "*4\r\n" SERIAL "+OK\r\n$1\r\n2\r\n$12\r\n1:a1:91:b1:8\r\n", TW_OK},
    {"a shorter one", "*4\r\n" SERIAL "+OK\r\n$2\r\n-1\r\n$6\r\n1:a1:9\r\n", TW_OK},
    {"more than was wanted", "*4\r\n" SERIAL "+OK\r\n$2\r\n-1\r\n$18\r\n1:a1:91:b1:81:c1:7\r\n", TW_ERR_REDIS},
    {"a place that does not move", "*4\r\n" SERIAL "+OK\r\n$1\r\n0\r\n$6\r\n1:a1:9\r\n", TW_ERR_REDIS},
    {"no place", "*4\r\n" SERIAL "+OK\r\n$1\r\nx\r\n$6\r\n1:a1:9\r\n", TW_ERR_REDIS},
};
static const struct reply of_rank[] = {
    {"a rank that is right", "*4\r\n" SERIAL "+OK\r\n$1\r\n2\r\n$2\r\n17\r\n", TW_OK},
    {"a rank that is none", "*4\r\n" SERIAL "+OK\r\n$1\r\nx\r\n$2\r\n17\r\n", TW_ERR_REDIS},
    {"a rank below -1", "*4\r\n" SERIAL "+OK\r\n$2\r\n-2\r\n$2\r\n17\r\n", TW_ERR_REDIS},
    {"a score that is none", "*4\r\n" SERIAL "+OK\r\n$1\r\n2\r\n$3\r\nnan\r\n", TW_ERR_REDIS},
    {"no score", "*3\r\n" SERIAL "+OK\r\n$1\r\n2\r\n", TW_ERR_REDIS},
};

/* Requests get this reply, after `skip` of them. */
static void reply_with(const char *reply, uint32_t skip, uint32_t times) {
    struct proxy_order order = {.fault = PROXY_ANSWER, .skip = skip, .times = times, .text = reply};
    proxy_order(proxy, &order);
}

static tw_status ask_fields(uint32_t timeout_ms, struct shown *shown) {
    return tw_fetch_fields(subjects, tw_str("of-proxy"), TW_NOW, timeout_ms, show, shown);
}
static tw_status ask_top(uint32_t timeout_ms, struct shown *shown) {
    return tw_fetch_top(proxied, TW_NOW, 2, timeout_ms, show, shown);
}
static tw_status ask_rank(uint32_t timeout_ms, struct shown *shown) {
    int64_t rank = -7, total = -7;
    tw_status status = tw_fetch_rank(proxied, tw_str("m"), TW_NOW, timeout_ms, &rank, &total);
    snprintf(shown->text, sizeof shown->text, "%lld %lld", (long long)rank, (long long)total);
    assert_string_equal(shown->text, status == TW_OK ? "2 17" : "-7 -7");
    return status;
}

static void check_replies(const struct reply *replies, size_t count,
                          tw_status (*ask)(uint32_t timeout_ms, struct shown *shown)) {
    for (size_t i = 0; i < count; i++) {
        struct shown shown = {.text = ""};
        reply_with(replies[i].text, 0, 50);
        tw_status status = ask(replies[i].says == TW_ERR_TIMEOUT ? 60 : 5000, &shown);
        bool is_late = status == TW_ERR_REDIS && replies[i].says == TW_ERR_TIMEOUT; /* not sent in that time */
        if (status != replies[i].says && !is_late)
            fail_msg("%s: %s, %s", replies[i].what, tw_status_name(status), tw_error_text());
        assert_true(status == TW_OK || shown.calls == 0);
        proxy_order(proxy, &(struct proxy_order){.fault = PROXY_PASS, .times = 1});
        if (status != TW_ERR_TIMEOUT && replies[i].text[0] != '-') continue;
        (void)tw_close(engine, 0); /* Redis may be left alone for a while now */
        open_engine(proxy_url(proxy), 2000);
        assert_string_equal(fields_of("of-proxy"), "views=1 ");
    }
}

/* Goal: a reply that is no list of totals shows nothing, and says so; the next call works. */
TEST_WITH(wrong_replies_are_refused, begin_proxied, end, NULL) {
    redis_server_ask(&server, "HSET", "subjects:of-proxy", "views", "1", NULL);
    assert_string_equal(fields_of("of-proxy"), "views=1 ");
    check_replies(of_fields, sizeof of_fields / sizeof *of_fields, ask_fields);
    check_replies(of_top, sizeof of_top / sizeof *of_top, ask_top);
    check_replies(of_rank, sizeof of_rank / sizeof *of_rank, ask_rank);
}

/* Goal: HSCAN may give a field twice. It is shown once, with the total that came last. */
TEST_WITH(a_field_that_comes_twice_is_shown_once, begin_proxied, end, NULL) {
    assert_string_equal(fields_of("of-proxy"), "");
    reply_with("*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n$24\r\n1:b1:71:a1:51:b1:81:a1:6\r\n", 0, 1);
    assert_string_equal(fields_of("of-proxy"), "a=6 b=8 ");
}

/* Goal: where another server replies to a later page, its cursor means other fields: all are read again. Without that,
 * the fields of the first page would be shown together with those of the other server. */
TEST_WITH(a_server_that_takes_over_is_read_from_the_beginning, begin_proxied, end, NULL) {
    static const char fill[] = "for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], 'field' .. i, i) end";
    assert_string_equal(fields_of("of-proxy"), ""); /* the script is known from now on */
    redis_server_ask(&server, "EVAL", fill, "1", "subjects:of-proxy", "2000", NULL);
    reply_with("*5\r\n" SERIAL "+OK\r\n$2\r\nab\r\n$1\r\n0\r\n$14\r\n9:a visitor1:5\r\n", 1, 1);
    struct tally all = {.last = ""};
    assert_status(tw_fetch_fields(subjects, tw_str("of-proxy"), TW_NOW, 20000, tally, &all), TW_OK);
    assert_i64_equal(proxy_look(proxy).happened[PROXY_ANSWER], 1);
    assert_i64_equal(all.calls, 2000);
    assert_i64_equal(all.sum, 2000 * 2001 / 2);
}

/* Goal: while a hash grows or shrinks, pages of HSCAN may have a field twice. It is shown once, and none is missing. */
TEST_WITH(a_hash_that_is_resized_meanwhile_is_shown_whole, begin_proxied, end, NULL) {
    static const char *const changes[] = {
        "EVAL \"for i = 1, 20000 do redis.call('HSET', KEYS[1], 'other' .. i, 0) end\" 1 subjects:of-proxy",
        "EVAL \"for i = 1, 20000 do redis.call('HDEL', KEYS[1], 'other' .. i) end\" 1 subjects:of-proxy"};
    static const char fill[] = "for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], 'field' .. i, i) end";
    assert_string_equal(fields_of("of-proxy"), "");
    redis_server_ask(&server, "EVAL", fill, "1", "subjects:of-proxy", "1500", NULL);
    for (int i = 0; i < 2; i++) {
        struct tally all = {.last = ""};
        proxy_order(proxy, &(struct proxy_order){.fault = PROXY_RUN_FIRST, .skip = 2, .times = 1, .text = changes[i]});
        assert_status(tw_fetch_fields(subjects, tw_str("of-proxy"), TW_NOW, 20000, tally, &all), TW_OK);
        assert_i64_equal(proxy_look(proxy).happened[PROXY_RUN_FIRST], i + 1);
        assert_i64_equal(all.sum, 1500 * 1501 / 2);
        assert_true(all.calls >= 1500 && all.calls <= 21500);
    }
}

/* Goal: a reply that is lost is asked for again, in the middle of a hash as well. */
TEST_WITH(a_reply_that_is_lost_is_asked_for_again, begin_proxied, end, NULL) {
    static const enum proxy_fault faults[] = {PROXY_DROP_REQUEST, PROXY_DROP_REPLY, PROXY_RESET};
    static const char fill[] = "for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], 'field' .. i, i) end";
    assert_string_equal(fields_of("of-proxy"), "");
    redis_server_ask(&server, "EVAL", fill, "1", "subjects:of-proxy", "1000", NULL);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct tally all = {.last = ""};
        proxy_order(proxy, &(struct proxy_order){.fault = faults[i], .skip = 1, .times = 1});
        assert_status(tw_fetch_fields(subjects, tw_str("of-proxy"), TW_NOW, 20000, tally, &all), TW_OK);
        assert_i64_equal(all.sum, 1000 * 1001 / 2);
        assert_i64_equal(all.calls, 1000);
    }
    assert_i64_equal(test_stat_of(engine, asked_again), 3);
}

int main(void) {
    redis_server_require();
    redis_server_start(&server, NULL);
    int failed = test_run();
    redis_server_destroy(&server);
    return failed;
}
