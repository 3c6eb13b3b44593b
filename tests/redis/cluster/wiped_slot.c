/* wiped_slot.c -- a slot of a cluster that comes back without its marker: which of its keys may be left from before, so
 * that nothing is sent again (batch.lua, k of the marker).
 * Method: a real cluster of one node; the script itself, and an engine whose turns the test runs, so that others write
 * into the slot before it knows of the wipe. */
#include "tests/redis/cluster/cluster_support.h"

#include "batch.lua.h"

#include <poll.h>

#define TAG "{14}"
#define WHO "00112233445566778899aabbccddeeff"

static struct redis_server *node(void) {
    return redis_cluster_server(&cluster, 0);
}

/* What the marker says that an opening makes now. */
static int64_t survivors(const char *prefix) {
    char ledger[80], marker[48], slot[16];
    snprintf(ledger, sizeof ledger, "%stw:ledger:" TAG ":" WHO, prefix);
    snprintf(marker, sizeof marker, "%stw:marker:" TAG, prefix);
    snprintf(slot, sizeof slot, "%u", twi_key_slot_of("14", 2));
    const char *reply = redis_server_ask(node(), "EVAL", twi_script_batch, "2", ledger, marker, "1", "0", "0", "aa",
                                         "86400000", "0", "0", "m", slot, NULL);
    assert_memory_equal(reply, "OK\n", 3);
    int64_t keys = atoll(redis_server_ask(node(), "HGET", marker, "k", NULL));
    redis_server_ask(node(), "FLUSHALL", NULL);
    return keys;
}

static int64_t survivors_beside(const char *prefix, const char *command, const char *key, const char *a,
                                const char *b) {
    redis_server_ask(node(), command, key, a, b, NULL);
    return survivors(prefix);
}

/* Goal: a counter, and a key that only an opened store can hold, are left from before. Keys of waiting calls, of other
 * prefixes, and values that no counter has, are not. */
TEST(only_what_may_be_left_of_before_counts) {
    static const struct {
        const char *prefix, *command, *key, *a, *b;
        int64_t survivors;
    } cases[] = {
        {"p:", "SET", "p:views:" TAG ":a", "5", NULL, 1},
        {"p:", "SET", "p:views:" TAG ":a", "-3", NULL, 1},
        {"p:", "SET", "p:views:" TAG ":a", "text", NULL, 0},
        {"p:", "HSET", "p:views:" TAG ":a", "field", "5", 1},
        {"p:", "HSET", "p:views:" TAG ":a", "field", "-5", 1},
        {"p:", "HSET", "p:views:" TAG ":a", "field", "text", 0},
        {"p:", "ZADD", "p:top:" TAG, "5", "member", 1},
        {"p:", "ZADD", "p:top:" TAG, "1e16", "member", 1},
        {"p:", "ZADD", "p:top:" TAG, "0.5", "member", 0},
        {"p:", "ZADD", "p:top:" TAG, "inf", "member", 0},
        {"p:", "RPUSH", "p:list:" TAG, "5", "6", 0},
        {"p:", "SET", "p:tw:overflow:views:" TAG ":", "5", NULL, 1},
        {"p:", "HSET", "p:tw:ledger:" TAG ":ffff", "v", "1", 1},
        {"p:", "HSET", "p:tw:lease:views:" TAG ":a", "t", "5", 1},
        {"p:", "HSET", "p:tw:calls:views:" TAG ":a", "who", "1", 0},
        {"p:", "SET", "p:tw:fence:views:" TAG ":a", "7", NULL, 0},
        {"p:", "SET", "p:tw:bucket:views:" TAG ":a", "1795262400000000", NULL, 0},
        {"p:", "SET", "views:" TAG ":a", "5", NULL, 0},
        {"", "SET", "views:" TAG ":a", "5", NULL, 1},
        {"", "HSET", "views:" TAG ":a", "field", "text", 0},
        {"", "SET", "tw:once:views:" TAG ":a", "123", NULL, 0},
    };
    assert_i64_equal(survivors("p:"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t found = survivors_beside(cases[i].prefix, cases[i].command, cases[i].key, cases[i].a, cases[i].b);
        if (found != cases[i].survivors) print_error("%s %s\n", cases[i].command, cases[i].key);
        assert_i64_equal(found, cases[i].survivors);
    }
}

/* Goal: where the keys cannot be looked at, all of them may be left from before.
 * Method: a user without GETKEYSINSLOT, one without COUNTKEYSINSLOT, and more keys than are looked at. */
TEST(keys_that_nobody_looks_at_all_count) {
    static const char fill[] = "for i = 1, 1001 do redis.call('SET', KEYS[1] .. i, 'text') end";
    if (redis_server_is_at_least(7, 0)) { /* before, no single subcommand can be forbidden */
        redis_server_ask(node(), "ACL", "SETUSER", "default", "-cluster|getkeysinslot", NULL);
        assert_i64_equal(survivors_beside("", "SET", "views:" TAG ":a", "text", NULL), 1);
    }
    redis_server_ask(node(), "ACL", "SETUSER", "default", "-cluster", NULL);
    assert_i64_equal(survivors_beside("", "SET", "views:" TAG ":a", "text", NULL), -1);
    redis_server_ask(node(), "ACL", "SETUSER", "default", "+@all", NULL);
    redis_server_ask(node(), "EVAL", fill, "1", TAG, NULL);
    assert_i64_equal(survivors(""), 1001);
}

/* ---- an engine --------------------------------------------------------------------------------------------------- */

static void be_hosted(tw_options *options) {
    options->threads = TW_HOST_DRIVEN;
}

static void turn_until(bool (*is_true)(void)) {
    for (int i = 0; i < 5000; i++) {
        struct pollfd fd = {.fd = tw_fd(rig.engine), .events = POLLIN};
        poll(&fd, 1, 10);
        assert_status(tw_turn(rig.engine), TW_OK);
        if (is_true()) return;
    }
    fail_msg("the counts were not sent: %d unsent keys, %d rollbacks", (int)test_stat_of(rig.engine, unsent_keys),
             (int)test_stat_of(rig.engine, rollbacks));
}

static int beside; /* keys of somebody else */

/* Each store has its marker and ledger, and each key its counter. */
static bool all_keys_are_there(void) {
    return atoll(redis_server_ask(node(), "DBSIZE", NULL)) >= beside + CLUSTER_KEYS + 2 * CLUSTER_TAGS;
}

/* As the engine believes: a figure of its turns. */
static bool all_stores_are_filled_again(void) {
    return test_stat_of(rig.engine, rollbacks) >= CLUSTER_TAGS && test_stat_of(rig.engine, unsent_keys) == 0 &&
           all_keys_are_there();
}

/* Somebody writes into every slot of the family. */
static void write_beside(const char *command, const char *a, const char *b) {
    for (int tag = 0; tag < CLUSTER_TAGS; tag++) {
        char key[48];
        snprintf(key, sizeof key, "mine:{%u}", (unsigned)twi_key_slot_tags(CLUSTER_TAGS)[tag]);
        redis_server_ask(node(), command, key, a, b, NULL);
        beside++;
    }
}

/* Goal: a user's own hashes of texts that come into wiped slots before the engine keep nothing from being sent again.
 * A number that stands there may be an earlier counter, so nothing is doubled. */
TEST(others_who_write_into_a_wiped_slot_first_do_no_harm) {
    for (int are_numbers = 0; are_numbers < 2; are_numbers++) {
        cluster_open_engine(are_numbers ? "numbers" : "hashes", be_hosted);
        cluster_add_all(5);
        turn_until(all_keys_are_there);
        redis_server_ask(node(), "FLUSHALL", NULL);
        write_beside(are_numbers ? "SET" : "HSET", are_numbers ? "1" : "field", are_numbers ? NULL : "text");
        cluster_add_all(1);
        turn_until(all_stores_are_filled_again);
        if (are_numbers)
            assert_i64_equal(test_stat_of(rig.engine, uncertain), 5 * CLUSTER_KEYS);
        else
            cluster_assert_sums();
        assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_ask(node(), "FLUSHALL", NULL);
        beside = 0;
    }
}

int main(void) {
    static const char *const options[] = {"--save", "", NULL};
    redis_server_require();
    redis_cluster_start(&cluster, 1, 0, options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
