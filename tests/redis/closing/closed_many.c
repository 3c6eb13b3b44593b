/* closed_many.c -- TW_CLOSED_BY_ONE with many families: their messages share scripts, and each answer is its own
 * family's. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include "close_election.lua.h"

#define FAMILIES 64
#define NAMES 150

struct told {
    int calls, keys;
    uint32_t flags;
};
static struct told told[FAMILIES];
static tw_family *families[FAMILIES];

static bool see_key(void *ctx, const tw_count *count) {
    struct told *one = ctx;
    one->keys += count->key.size != 0;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct told *one = ctx;
    one->calls++;
    one->flags = flags;
    one->keys = 0;
    assert_status(tw_each(family, start_ms, see_key, one), TW_OK);
    return true;
}

static tw_engine *open_families(const char *url, bool with_hook, struct log_lines *lines) {
    tw_options options;
    tw_engine *engine = NULL;
    quick_options(&options, url);
    options.log_write = lines != NULL ? on_log : NULL;
    options.log_ctx = lines;
    assert_status(test_open(&options, &engine), TW_OK);
    for (int i = 0; i < FAMILIES; i++) {
        tw_family_options family;
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        tw_family_options_init(&family);
        family.name = name;
        family.redis_key = "%n:%k:%Y";
        family.window_ms = LONG_WINDOW_MS;
        family.closed_by = TW_CLOSED_BY_ONE;
        family.on_window_closed = with_hook ? on_closed : NULL;
        family.closed_ctx = &told[i];
        assert_status(tw_family_open(engine, &family, &families[i]), TW_OK);
    }
    return engine;
}

static void count_keys(int first, int end) {
    char key[16];
    for (int i = 0; i < FAMILIES; i++)
        for (int k = first; k < end; k++) {
            snprintf(key, sizeof key, "k%d", k);
            assert_status(tw_add(families[i], tw_str(key), 1, NULL), TW_OK);
        }
}

static int64_t scripts_run(struct redis_server *server) {
    const char *at = strstr(redis_server_ask(server, "INFO", "commandstats", NULL), "cmdstat_evalsha:calls=");
    return at != NULL ? atoll(strchr(at, '=') + 1) : 0;
}

/* How many families' elections know an engine. */
static int64_t heartbeats(struct redis_server *server) {
    int64_t sum = 0;
    for (int i = 0; i < FAMILIES; i++) {
        char name[32];
        snprintf(name, sizeof name, "tw:closers:f%d::1970", i);
        sum += strstr(redis_server_ask(server, "HKEYS", name, NULL), "i:") != NULL;
    }
    return sum;
}

static bool all_have_beaten(void *ctx) {
    return heartbeats(ctx) == FAMILIES;
}

/* Goal: heartbeats of 64 families are few scripts, and so are all messages of the close.
 * Method: Redis counts the scripts. Without parcels a close alone takes four for each family. */
TEST(messages_of_many_families_share_scripts) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    memset(told, 0, sizeof told);
    tw_engine *engine = open_families(server.url, true, NULL);
    count_keys(0, 2);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_true(test_wait(all_have_beaten, &server, TEST_PATIENCE_MS));
    int64_t before = scripts_run(&server);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_true(scripts_run(&server) - before <= 2 * FAMILIES);
    for (int i = 0; i < FAMILIES; i++) {
        assert_int_equal(told[i].calls, 1);
        assert_int_equal(told[i].flags, TW_CLOSED_PARTIAL);
        assert_int_equal(told[i].keys, 2);
    }
    assert_i64_equal(heartbeats(&server), 0); /* all have left */
    redis_server_destroy(&server);
}

/* Closes all families within this time, the spoilt one among them. Returns how many others Redis closed: all, or the
 * time was too short. */
static int close_beside_a_spoilt_one(uint32_t timeout_ms, struct log_lines *lines) {
    struct redis_server server;
    int closed = 0;
    redis_server_start(&server, NULL);
    memset(told, 0, sizeof told);
    memset(lines, 0, sizeof *lines);
    redis_server_ask(&server, "SET", "tw:closers:f7::1970", "spoilt", NULL);
    tw_engine *engine = open_families(server.url, true, lines);
    count_keys(0, 2);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    (void)tw_close(engine, timeout_ms);
    for (int i = 0; i < FAMILIES; i++) {
        assert_int_equal(told[i].calls, 1);
        assert_int_equal(told[i].keys, 2);
        if (i == 7) assert_int_equal(told[i].flags, TW_CLOSED_PARTIAL | TW_CLOSED_LOCAL);
        closed += i != 7 && told[i].flags == TW_CLOSED_PARTIAL;
    }
    redis_server_destroy(&server);
    return closed;
}

/* Goal: another program has written a value under one election's name. That family alone is closed without Redis; one
 * log line names the key. Method: for the spoilt family tw_close() uses up its time, so that is short. A crowded
 * machine gets more. */
TEST(a_spoilt_election_spoils_itself_alone) {
    static struct log_lines lines;
    uint32_t timeout_ms = 3000;
    while (close_beside_a_spoilt_one(timeout_ms, &lines) != FAMILIES - 1) {
        assert_true(timeout_ms < TEST_PATIENCE_MS);
        timeout_ms *= 5;
    }
    assert_non_null(strstr(lines.text, "tw:closers:f7::1970"));
    assert_null(strstr(lines.text, "tw:closers:f8::1970"));
}

/* Goal: windows of many keys that others counted are closed together. All names come, though they do not fit into the
 * replies at once. */
TEST(many_names_of_others_all_come) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    memset(told, 0, sizeof told);
    tw_engine *other = open_families(server.url, false, NULL);
    count_keys(1, 1 + NAMES);
    assert_status(tw_close(other, TEST_PATIENCE_MS), TW_OK);
    tw_engine *engine = open_families(server.url, true, NULL);
    count_keys(0, 1);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    for (int i = 0; i < FAMILIES; i++) {
        assert_int_equal(told[i].calls, 1);
        assert_int_equal(told[i].flags, TW_CLOSED_PARTIAL);
        assert_int_equal(told[i].keys, 1 + NAMES);
    }
    redis_server_destroy(&server);
}

/* Goal: the reply to many messages is bounded: what comes behind a thousand elements is to be asked for later. */
TEST(replies_to_many_messages_are_bounded) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    const char *fill = "for i = 1, 128 do redis.call('SADD', KEYS[1], 'name' .. i) end";
    const char *words[300] = {"EVAL", twi_script_close_election, "64"};
    static char keys[16][4][24];
    size_t count = 3;
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 4; k++) {
            snprintf(keys[i][k], sizeof keys[i][k], "%c%d", "ewnl"[k], i);
            words[count++] = keys[i][k];
        }
    words[count++] = "many";
    for (int i = 0; i < 16; i++) {
        redis_server_ask(&server, "EVAL", fill, "1", keys[i][2], NULL);
        static const char *const message[] = {"12", "1", "read",          "abc",           "1", "0", "5000",
                                              "0",  ",", "1900000000000", "1900000000000", "0", "0"};
        for (size_t w = 0; w < 13; w++) words[count++] = message[w];
    }
    const char *reply = redis_server_ask_words(&server, words, count);
    int whole = 0, later = 0;
    for (const char *at = reply; (at = strstr(at, "YOU\n")) != NULL; at++) whole++;
    for (const char *at = reply; (at = strstr(at, "LATER\n")) != NULL; at++) later++;
    assert_true(whole >= 8); /* of 100 names or more */
    assert_true(later > 0);
    assert_int_equal(whole + later, 16);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
