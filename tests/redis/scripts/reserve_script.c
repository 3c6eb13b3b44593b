/* reserve_script.c -- the scripts of reservations, holds and gauges against slow models: each call replies, and leaves
 * behind, what a plain list of reservations, holds or parts gives; a repeated call changes nothing.
 * Method: a real server, EVAL, a few keys, thousands of random calls. The test ends a life early by setting its end
 * back. */
#include "tests/redis/sync_support.h"

#include "gauge.lua.h"
#include "hold.lua.h"
#include "reserve.lua.h"

static struct redis_server server;

static const char *text_of(int64_t number) {
    static char texts[8][24];
    static unsigned next;
    char *text = texts[next++ % 8];
    snprintf(text, sizeof texts[0], "%lld", (long long)number);
    return text;
}

/* The first line of a reply. */
static const char *first_of(const char *reply) {
    static char word[128];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(reply, "\n"), reply);
    return word;
}

/* ---- reservations ------------------------------------------------------------------------------------------------ */

#define KEPT_MAX 3000

struct kept {
    char id[16];
    int64_t n;
    int key, buyer; /* buyer -1: nobody */
    enum { HELD, SOLD, BACK } state;
};
static struct kept kept[KEPT_MAX];
static int kept_count;

struct names {
    char counter[16], stock[24], due[24], token[32];
};

static struct names names_of(int key, const char *id) {
    struct names names;
    snprintf(names.counter, sizeof names.counter, "sale:%d", key);
    snprintf(names.stock, sizeof names.stock, "tw:stock:sale:%d", key);
    snprintf(names.due, sizeof names.due, "tw:due:sale:%d", key);
    snprintf(names.token, sizeof names.token, "tw:token:%s", id);
    return names;
}

/* Returns what follows the number of the call, which is 5. */
static const char *behind_number(const char *reply) {
    return strncmp(reply, "5\n", 2) == 0 ? reply + 2 : reply;
}

static const char *run_stock(const char *what, int key, const char *id, int64_t n, int64_t limit, const char *buyer,
                             int64_t expiry_ms) {
    struct names names = names_of(key, id);
    if (strcmp(what, "confirm") == 0 || strcmp(what, "cancel") == 0)
        return behind_number(redis_server_ask(&server, "EVAL", twi_script_reserve, "4", names.counter, names.stock,
                                              names.due, names.token, "me", "5", "1", what, id, NULL));
    if (strcmp(what, "sweep") == 0)
        return behind_number(redis_server_ask(&server, "EVAL", twi_script_reserve, "3", names.counter, names.stock,
                                              names.due, "me", "5", "1", what, "", NULL));
    return behind_number(redis_server_ask(&server, "EVAL", twi_script_reserve, "4", names.counter, names.stock,
                                          names.due, names.token, "me", "5", "1", what, id, text_of(n), text_of(limit),
                                          "60000", buyer, text_of(expiry_ms), "86400000", NULL));
}

static int64_t used_of(int key) {
    int64_t used = 0;
    for (int i = 0; i < kept_count; i++)
        if (kept[i].key == key && kept[i].state != BACK) used += kept[i].n;
    return used;
}

static bool has_come(int key, int buyer) {
    for (int i = 0; i < kept_count; i++)
        if (kept[i].key == key && kept[i].buyer == buyer && kept[i].state != BACK) return true;
    return false;
}

static void step_reserve(struct test_prng *prng) {
    char buyer[16] = "";
    int key = (int)test_prng_below(prng, 2), who = (int)test_prng_below(prng, 40) - 20;
    int64_t n = test_prng_between(prng, 1, 5), limit = 30 + 30 * key;
    struct kept *each = &kept[kept_count];
    snprintf(each->id, sizeof each->id, "id%d", kept_count);
    if (who < 0) who = -1;
    if (who >= 0) snprintf(buyer, sizeof buyer, "b %d\n", who); /* a buyer with a space and a line end */
    *each = (struct kept){.n = n, .key = key, .buyer = who, .state = HELD};
    snprintf(each->id, sizeof each->id, "id%d", kept_count);
    const char *want = who >= 0 && has_come(key, who) ? "BUYER" : used_of(key) + n > limit ? "DENIED" : "OK";
    uint64_t times = 1 + test_prng_below(prng, 2); /* twice: its reply may have been lost */
    for (uint64_t i = 0; i < times; i++)
        assert_string_equal(first_of(run_stock("reserve", key, each->id, n, limit, buyer, 0)), want);
    kept_count += strcmp(want, "OK") == 0;
}

static void step_settle(struct test_prng *prng) {
    if (kept_count == 0) return;
    int back = (int)test_prng_below(prng, (uint64_t)(kept_count < 30 ? kept_count : 30));
    struct kept *each = &kept[kept_count - 1 - back];
    struct names names = names_of(each->key, each->id);
    uint64_t what = test_prng_below(prng, 3), times = 1 + test_prng_below(prng, 2);
    bool was_held = each->state == HELD;
    if (was_held && what != 2) each->state = what == 0 ? SOLD : BACK;
    for (uint64_t i = 0; i < times && what == 0; i++)
        assert_string_equal(first_of(run_stock("confirm", each->key, each->id, 0, 0, "", 0)),
                            each->state == SOLD ? "OK" : "LATE");
    for (uint64_t i = 0; i < times && what == 1; i++)
        assert_string_equal(first_of(run_stock("cancel", each->key, each->id, 0, 0, "", 0)),
                            each->state == SOLD ? "SOLD" : "OK");
    if (what != 2 || !was_held) return;
    each->state = BACK; /* its time is over */
    redis_server_ask(&server, "ZADD", names.due, "0", each->id, NULL);
    if (test_prng_chance(prng, 1, 2)) run_stock("sweep", each->key, "", 0, 0, "", 0);
    if (test_prng_chance(prng, 1, 2))
        assert_string_equal(first_of(run_stock("confirm", each->key, each->id, 0, 0, "", 0)), "LATE");
}

/* Goal: thousands of calls, many of them twice, agree with a list; nothing is left over. */
TEST(stock_agrees_with_a_slow_list) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t step = 0; step < test_scale(6000) && kept_count < KEPT_MAX; step++) {
        if (test_prng_chance(&prng, 1, 2))
            step_reserve(&prng);
        else
            step_settle(&prng);
        if (step % 16 != 0) continue;
        for (int key = 0; key < 2; key++) {
            run_stock("sweep", key, "", 0, 0, "", 0);
            assert_i64_equal(redis_server_get(&server, names_of(key, "").counter), used_of(key));
        }
    }
    for (int key = 0; key < 2; key++) { /* what has become due since the last call */
        run_stock("sweep", key, "", 0, 0, "", 0);
        assert_i64_equal(redis_server_get(&server, names_of(key, "").counter), used_of(key));
    }
    int64_t held = 0;
    for (int i = 0; i < kept_count; i++) held += kept[i].state == HELD;
    int64_t listed = 0;
    for (int key = 0; key < 2; key++) listed += atoll(redis_server_ask(&server, "ZCARD", names_of(key, "").due, NULL));
    assert_i64_equal(listed, held);
}

/* Goal: of many reservations that are due at once each call takes some back, and no call is denied because of the
 * rest. */
TEST(many_that_are_due_are_taken_back_in_parts) {
    char id[16];
    const char *reply;
    redis_server_ask(&server, "FLUSHALL", NULL);
    for (int i = 0; i < 450; i++) {
        snprintf(id, sizeof id, "m%d", i);
        assert_string_equal(first_of(run_stock("reserve", 7, id, 1, 450, "", 0)), "OK");
        redis_server_ask(&server, "ZADD", names_of(7, "").due, "1", id, NULL);
        /* the next call takes it back, unless its time is set far ahead: */
        if (i < 449) redis_server_ask(&server, "ZADD", names_of(7, "").due, "99999999999999", id, NULL);
    }
    for (int i = 0; i < 450; i++) {
        snprintf(id, sizeof id, "m%d", i);
        redis_server_ask(&server, "ZADD", names_of(7, "").due, "1", id, NULL);
    }
    assert_string_equal(first_of(run_stock("reserve", 7, "all", 450, 450, "", 0)), "MORE");
    assert_i64_equal(redis_server_get(&server, "sale:7"), 250);
    assert_string_equal(first_of(run_stock("reserve", 7, "all", 450, 450, "", 0)), "MORE");
    reply = run_stock("reserve", 7, "all", 450, 450, "", 0);
    assert_string_equal(first_of(reply), "OK");
    assert_memory_equal(run_stock("reserve", 7, "none", 1, 450, "", 0), "DENIED\n450\n1\n", 13);
}

/* Goal: everything of a window ends with it; a call after its end is late; keys of a wrong type change nothing. */
TEST(stock_ends_with_its_window) {
    redis_server_ask(&server, "FLUSHALL", NULL);
    int64_t now_ms = atoll(redis_server_ask(&server, "TIME", NULL)) * 1000;
    assert_string_equal(first_of(run_stock("reserve", 1, "w", 1, 10, "ann", now_ms + 100000)), "OK");
    struct names names = names_of(1, "w");
    const char *ending[] = {names.counter, names.stock, names.due};
    for (int i = 0; i < 3; i++) {
        int64_t left_ms = atoll(redis_server_ask(&server, "PTTL", ending[i], NULL));
        assert_true(left_ms > 90000 && left_ms <= 100000);
    }
    assert_true(atoll(redis_server_ask(&server, "PTTL", names.token, NULL)) > 86400000);
    assert_string_equal(first_of(run_stock("reserve", 1, "x", 1, 10, "", now_ms - 1)), "LATE");
    assert_i64_equal(redis_server_get(&server, names.counter), 1);
    redis_server_ask(&server, "DEL", names.counter, names.stock, names.due, NULL); /* as at the window's end */
    assert_string_equal(first_of(run_stock("confirm", 1, "w", 0, 0, "", 0)), "LATE");
    assert_string_equal(redis_server_ask(&server, "EXISTS", names.counter, NULL), "0");
    assert_string_equal(first_of(run_stock("confirm", 1, "never", 0, 0, "", 0)), "UNKNOWN");
    assert_string_equal(first_of(run_stock("cancel", 1, "never", 0, 0, "", 0)), "UNKNOWN");
    redis_server_ask(&server, "SET", names.stock, "a stranger's", NULL);
    assert_non_null(strstr(run_stock("reserve", 1, "y", 1, 10, "", 0), "WRONGTYPE"));
    redis_server_ask(&server, "DEL", names.stock, NULL);
    redis_server_ask(&server, "SET", names.counter, "no number", NULL);
    assert_string_equal(first_of(run_stock("reserve", 1, "y", 1, 10, "", 0)), "BAD");
    assert_string_equal(redis_server_ask(&server, "EXISTS", names.stock, names.due, NULL), "0");
}

/* ---- holds ------------------------------------------------------------------------------------------------------- */

static const char *run_hold(const char *what, int64_t limit, const char *member) {
    return behind_number(redis_server_ask(&server, "EVAL", twi_script_hold, "1", "tw:hold:jobs:a", "me", "5", "1", what,
                                          "15000", text_of(limit), member, NULL));
}

/* Goal: thousands of holds, releases, ends, deaths and statements agree with a set; never more than the limit is
 * admitted. What has ended neither a request nor a statement brings back. */
TEST(holds_agree_with_a_slow_set) {
    enum { MEMBERS = 40 };
    bool in[MEMBERS] = {false}, has_ended[MEMBERS] = {false};
    struct test_prng prng;
    redis_server_ask(&server, "FLUSHALL", NULL);
    test_prng_seed(&prng, test_seed() ^ 1);
    for (uint64_t step = 0; step < test_scale(5000); step++) {
        char member[24];
        int which = (int)test_prng_below(&prng, MEMBERS);
        int64_t limit = test_prng_between(&prng, 0, 20), inside = 0;
        snprintf(member, sizeof member, "node%d:%d", which % 3, which);
        for (int i = 0; i < MEMBERS; i++) inside += in[i];
        uint64_t what = test_prng_below(&prng, 6);
        const char *reply;
        if (test_prng_chance(&prng, 1, 20) && has_ended[which]) { /* the time of its mark is over */
            redis_server_ask(&server, "ZREM", "tw:hold:jobs:a", member, NULL);
            has_ended[which] = false;
        }
        if (what < 2) {
            bool may = !has_ended[which] && (in[which] || inside < limit);
            reply = run_hold("hold", limit, member);
            assert_string_equal(first_of(reply), may ? "OK" : "DENIED");
            inside += may && !in[which];
            in[which] = in[which] || may;
        } else if (what == 2) {
            reply = run_hold("release", 0, member);
            inside -= in[which];
            in[which] = false;
        } else if (what == 3) {
            reply = run_hold("state", 0, member);
            inside += !in[which] && !has_ended[which];
            in[which] = !has_ended[which];
        } else if (what == 4) {
            reply = run_hold("end", 0, member);
            inside -= in[which];
            in[which] = false;
            has_ended[which] = true;
        } else {
            if (in[which]) redis_server_ask(&server, "ZADD", "tw:hold:jobs:a", "XX", "1", member, NULL); /* it died */
            inside -= in[which];
            in[which] = false;
            reply = run_hold("state", 0, "node:x");
            assert_i64_equal(atoll(strchr(reply, '\n') + 1), inside + 1);
            reply = run_hold("release", 0, "node:x");
        }
        assert_i64_equal(atoll(strchr(reply, '\n') + 1), inside);
    }
    run_hold("state", 0, "node:x");
    assert_true(atoll(redis_server_ask(&server, "PTTL", "tw:hold:jobs:a", NULL)) > 14000);
}

/* ---- gauges ------------------------------------------------------------------------------------------------------ */

static const char *run_gauge(const char *instance, int64_t number, int64_t units, int64_t others) {
    return redis_server_ask(&server, "EVAL", twi_script_gauge, "4", "online:a", "tw:gauge:online:a", "online:b",
                            "tw:gauge:online:b", instance, "15000", text_of(number), text_of(units), text_of(others),
                            NULL);
}

/* Goal: the sum is that of the living parts, with statements in any order, repeated and overtaken, and with parts that
 * end. */
TEST(gauges_agree_with_a_slow_sum) {
    enum { NODES = 5 };
    int64_t part[NODES] = {0}, stated[NODES] = {0}, number = 100;
    struct test_prng prng;
    redis_server_ask(&server, "FLUSHALL", NULL);
    test_prng_seed(&prng, test_seed() ^ 2);
    for (uint64_t step = 0; step < test_scale(5000); step++) {
        char instance[16];
        int node = (int)test_prng_below(&prng, NODES);
        snprintf(instance, sizeof instance, "node%d", node);
        int64_t units = test_prng_between(&prng, -4, 8), sum = 0;
        bool any = false; /* somebody counts more than 0 */
        if (units > 4) units = 0;
        if (test_prng_chance(&prng, 1, 8) && part[node] != 0) { /* it dies */
            redis_server_ask(&server, "HSET", "tw:gauge:online:a", instance, "5 1 1", NULL);
            part[node] = 0;
            continue;
        }
        bool stale = test_prng_chance(&prng, 1, 8) && part[node] != 0;
        if (!stale) part[node] = units;
        if (!stale) stated[node] = ++number;
        /* Parts below 0 are kept, and count while somebody counts more than 0. */
        for (int i = 0; i < NODES; i++) {
            sum += part[i];
            any = any || part[i] > 0;
        }
        if (!any) sum = 0;
        const char *reply = run_gauge(instance, stale ? stated[node] - 1 : number, units, 3);
        if (test_prng_chance(&prng, 1, 4)) reply = run_gauge(instance, stale ? stated[node] - 1 : number, units, 3);
        assert_i64_equal(atoll(first_of(reply)), sum);
        const char *shown = redis_server_ask(&server, "GET", "online:a", NULL);
        assert_i64_equal(atoll(shown), sum > 0 ? sum : 0);
        if (sum > 0) assert_true(atoll(redis_server_ask(&server, "PTTL", "online:a", NULL)) > 0);
    }
    for (int i = 0; i < NODES; i++) {
        char instance[16];
        snprintf(instance, sizeof instance, "node%d", i);
        assert_memory_equal(run_gauge(instance, ++number, 0, 0), "", 0);
    }
    assert_string_equal(redis_server_ask(&server, "DBSIZE", NULL), "0"); /* nothing is left over */
}

/* Goal: a decrement alone makes no sum, and its part waits for those who count more than 0; a key of a wrong type fails
 * alone and is not touched. */
TEST(a_decrement_alone_makes_no_sum) {
    redis_server_ask(&server, "FLUSHALL", NULL);
    assert_string_equal(run_gauge("node0", 1, -5, 0), "0\n0");
    assert_string_equal(redis_server_ask(&server, "EXISTS", "online:a", NULL), "0");
    assert_string_equal(run_gauge("node1", 2, 7, 0), "2\n0");
    redis_server_ask(&server, "FLUSHALL", NULL);
    redis_server_ask(&server, "LPUSH", "online:a", "a stranger's", NULL);
    const char *reply = run_gauge("node0", 2, 5, 6);
    assert_memory_equal(reply, "WRONGTYPE", 9);
    assert_string_equal(strchr(reply, '\n') + 1, "6");
    assert_string_equal(redis_server_ask(&server, "LLEN", "online:a", NULL), "1");
    assert_string_equal(redis_server_ask(&server, "EXISTS", "tw:gauge:online:a", NULL), "0");
}

int main(void) {
    redis_server_require();
    redis_server_start(&server, NULL);
    int failed = test_run();
    redis_server_destroy(&server);
    return failed;
}
