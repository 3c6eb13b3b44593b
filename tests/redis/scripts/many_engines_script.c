/* many_engines_script.c -- thousands of engines at one Redis, each played by its script calls: the cost of a message
 * does not grow with the number of engines, and they agree as a few engines do. Figures: ./dev bench engines,
 * docs/SCALE.md.
 * Method: the commands that the scripts run are counted (INFO commandstats), never time. */
#include "tests/support/redis_server.h"
#include "tests/support/support.h"

#include "close_election.lua.h"
#include "leases.lua.h"
#include "registry.lua.h"

#define CROWD 3000
#define LINES 12

struct answer {
    char line[LINES][64];
};

static struct answer split(const char *reply) {
    struct answer answer = {0};
    for (int i = 0; i < LINES; i++) {
        snprintf(answer.line[i], sizeof answer.line[0], "%.*s", (int)strcspn(reply, "\n"), reply);
        reply = strchr(reply, '\n');
        if (reply == NULL) break;
        reply++;
    }
    return answer;
}

static const char *name(int i) {
    static char text[33];
    snprintf(text, sizeof text, "%032x", i);
    return text;
}

static int64_t calls_of(struct redis_server *server, const char *command) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "cmdstat_%s:calls=", command);
    const char *at = strstr(redis_server_ask(server, "INFO", "commandstats", NULL), wanted);
    return at != NULL ? atoll(at + strlen(wanted)) : 0;
}

/* ---- the registry ---- */

static struct answer lives(struct redis_server *server, int i) {
    return split(redis_server_ask(server, "EVAL", twi_script_registry, "1", "tw:live", "1", name(i), "5000", NULL));
}

/* Goal: with many engines each heartbeat is sent less often and is valid for longer; with few engines the state does
 * not change. */
TEST(the_registry_is_written_less_often_by_many_engines) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    struct answer alone = lives(&server, 0);
    assert_string_equal(alone.line[2], "1");
    assert_string_equal(alone.line[3], "1000");
    redis_server_ask(&server, "EVAL",
                     "local till = redis.call('TIME')[1] * 1000 + 30000 "
                     "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], till, string.format('%032x', i)) end",
                     "1", "tw:live", "9999", NULL);
    struct answer one = lives(&server, 0);
    assert_string_equal(one.line[2], "10000");
    assert_string_equal(one.line[3], "5000");
    int64_t until_ms = atoll(redis_server_ask(&server, "ZSCORE", "tw:live", name(0), NULL));
    assert_i64_equal(until_ms - atoll(one.line[1]), 25000);
    redis_server_destroy(&server);
}

/* Goal: an engine that closes leaves the registry at once, and all others stay in it. */
TEST(an_engine_that_leaves_removes_nobody_else) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    for (int i = 0; i < 3; i++) (void)lives(&server, i);
    struct answer left =
        split(redis_server_ask(&server, "EVAL", twi_script_registry, "1", "tw:live", "1", name(1), "0", NULL));
    assert_string_equal(left.line[2], "2");
    assert_string_equal(redis_server_ask(&server, "ZSCORE", "tw:live", name(1), NULL), "");
    assert_true(atoll(redis_server_ask(&server, "ZSCORE", "tw:live", name(0), NULL)) > 0);
    assert_string_equal(lives(&server, 0).line[2], "2");
    redis_server_destroy(&server);
}

/* ---- the epoch ---- */

static struct answer takes_part(struct redis_server *server, int i, const char *epoch, const char *changes) {
    return split(redis_server_ask(server, "EVAL", twi_script_leases, "2", "tw:leases", "tw:leases:wanted", "2", name(i),
                                  epoch, "", epoch, "an epoch", "0", "0", changes, "150", NULL));
}

/* Goal: an engine that knows the others gets only what has changed, read from a few fields. All fields are read only
 * once in a while. */
TEST(an_engine_that_knows_the_others_gets_only_changes) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    struct answer first = takes_part(&server, 0, "", "-1");
    assert_string_equal(first.line[6], "150");
    redis_server_ask(&server, "EVAL",
                     "local t = redis.call('TIME')[1] * 1000 for i = 1, ARGV[1] do local e = string.format('%032x', i) "
                     "redis.call('HSET', KEYS[1], 'i:' .. e, t, 'b:' .. e, t) end redis.call('HSET', KEYS[1], 'n', "
                     "ARGV[1] + 1)",
                     "1", "tw:leases", "2999", NULL);
    struct answer all = takes_part(&server, 0, "an epoch", "-1");
    assert_string_equal(all.line[6], "3000");
    assert_string_equal(all.line[8], "1");
    assert_true(atoi(all.line[9]) > 50 && atoi(all.line[9]) <= 100);
    (void)takes_part(&server, CROWD + 1, "", "-1");
    redis_server_ask(&server, "CONFIG", "RESETSTAT", NULL);
    struct answer news = takes_part(&server, 0, "an epoch", all.line[7]);
    assert_string_equal(news.line[8], "0");
    assert_string_equal(news.line[9], "1");
    assert_string_equal(news.line[10] + 1, name(CROWD + 1));
    assert_i64_equal(news.line[10][0], '+');
    for (int i = 0; i < 20; i++) assert_string_equal(takes_part(&server, 0, "an epoch", news.line[7]).line[9], "0");
    assert_i64_equal(calls_of(&server, "hgetall"), 0);
    assert_true(calls_of(&server, "hscan") < 20); /* clean-up runs once a second */
    redis_server_destroy(&server);
}

/* ---- windows that one engine closes ---- */

static struct answer closes(struct redis_server *server, int i, int64_t number, const char *verb, const char *floor) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    return split(redis_server_ask(server, "EVAL", twi_script_close_election, "4", "tw:closers:f:0", "tw:closed:f:1000",
                                  "tw:names:f:1000", "tw:windows:f:0", "1", verb, name(i), text, "1", "30000", floor,
                                  ",", "2000", "0", "1", NULL));
}

static void fill_closers(struct redis_server *server, const char *count, const char *floor) {
    redis_server_ask(server, "EVAL",
                     "local t = redis.call('TIME')[1] * 1000 for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], "
                     "'i:' .. string.format('%032x', i), string.format('%.0f', t + 25000) .. ' 1 ' .. ARGV[2] .. ' ,') "
                     "end redis.call('HSET', KEYS[1], 'h', string.format('%.0f', t), 'f', '0')",
                     "1", "tw:closers:f:0", count, floor, NULL);
}

/* Goal: an engine's message reads no other engine's field. A single engine among many holds a window up, whichever it
 * is; when none does, the window is claimed. */
TEST(one_engine_among_many_holds_a_window_up) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    (void)closes(&server, 0, 1, "word", "9000");
    fill_closers(&server, "2999", "9000");
    redis_server_ask(&server, "CONFIG", "RESETSTAT", NULL);
    struct answer word = {0};
    for (int i = 2; i < 22; i++) word = closes(&server, 0, i, "word", "9000");
    assert_string_equal(word.line[0], "OK");
    assert_true(atoi(word.line[3]) >= 2100 && atoi(word.line[3]) < 2110); /* the hash has a few more fields */
    assert_i64_equal(calls_of(&server, "hgetall"), 0);
    (void)closes(&server, 1234, 2, "word", "1999"); /* the window's end is 2000 */
    assert_string_equal(closes(&server, 0, 30, "ask", "9000").line[0], "WAIT");
    redis_server_ask(&server, "CONFIG", "RESETSTAT", NULL);
    assert_string_equal(closes(&server, 0, 31, "ask", "9000").line[0], "WAIT");
    assert_true(calls_of(&server, "hscan") <= 1); /* the engine that holds it up is known */
    (void)closes(&server, 77, 2, "word", "1999");
    (void)closes(&server, 1234, 3, "word", "2000");
    assert_string_equal(closes(&server, 0, 32, "ask", "9000").line[0], "WAIT");
    (void)closes(&server, 77, 3, "word", "2000");
    assert_string_equal(closes(&server, 0, 33, "ask", "9000").line[0], "YOU");
    assert_string_equal(closes(&server, 5, 2, "ask", "9000").line[0], "OTHER");
    redis_server_destroy(&server);
}

/* Goal: time in which no engine at all was heard ends no engine's life; time in which others were heard does. */
TEST(a_pause_of_all_engines_ends_no_life) {
    static const char pass[] = "for _, f in ipairs({'h', ARGV[2]}) do local v = redis.call('HGET', KEYS[1], f) "
                               "redis.call('HSET', KEYS[1], f, (string.gsub(v, '^%d+', function(n) return "
                               "string.format('%.0f', n - ARGV[1]) end))) end";
    struct redis_server server;
    char field[40];
    redis_server_start(&server, NULL);
    (void)closes(&server, 0, 1, "word", "9000");
    (void)closes(&server, 1, 1, "word", "1999"); /* it holds the window up */
    redis_server_ask(&server, "HSET", "tw:closers:f:0", "f", "0", NULL);
    snprintf(field, sizeof field, "i:%s", name(1));
    redis_server_ask(&server, "EVAL", pass, "1", "tw:closers:f:0", "100000", field, NULL); /* 100 s of silence */
    assert_string_equal(closes(&server, 0, 2, "ask", "9000").line[0], "WAIT");
    assert_string_equal(closes(&server, 0, 3, "ask", "9000").line[0], "WAIT");
    redis_server_ask(&server, "EVAL", pass, "1", "tw:closers:f:0", "0", field, NULL);
    redis_server_ask(&server, "HSET", "tw:closers:f:0", field, "1 1 1999 ,", NULL); /* its life is over */
    assert_string_equal(closes(&server, 0, 4, "ask", "9000").line[0], "YOU");
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run();
}
