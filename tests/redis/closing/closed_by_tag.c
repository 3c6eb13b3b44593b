/* closed_by_tag.c -- TW_CLOSED_BY_ONE where keys lie in several stores: the names of keys lie by tag
 * (engine/turn/closing_election.h), and each store may be wiped for itself. Method: one Redis that each process takes
 * for a cluster, with a store for each key slot. */
#include "tests/redis/closing/closed_support.h"
#include "tests/support/side_by_side.h"

#include "engine/base/key_slot.h"

#define TAGS 128

static void begin_by_tag(int count, struct redis_server *server, int64_t life_ms, uint64_t tags) {
    begin(count, server, life_ms, LONG_MS);
    page->tags = tags;
}

/* Goal: one call of one hook has all keys of all tags; then the names are gone everywhere. While the hook refuses, they
 * are there, in the slots of their counters. */
TEST_EACH(one_process_closes_with_the_keys_of_all_tags, TW_REDIS_STRING, TW_REDIS_HASH) {
    play_shape(state);
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin_by_tag(3, &server, 30000, TAGS);
    page->keys = 1000;
    start();
    int64_t start_ms = count_all_refused();
    assert_true(test_wait(has_first_call, &start_ms, LONG_MS));
    char names[64];
    name_of_names_in("{*}:", start_ms, names, sizeof names); /* a window that was over too soon has some, too */
    const char *sets = redis_server_ask(&server, "KEYS", names, NULL);
    int count = 0;
    for (const char *at = sets; (at = strstr(at, "tw:names:stat:{")) != NULL; at++) count++;
    assert_int_equal(count, TAGS);
    refuse_all(false);
    struct call call = assert_closed(start_ms, truth());
    assert_i64_equal(call.keys, 3001);
    assert_i64_equal(call.of_all, 3);
    assert_true(test_wait(are_gone, &server, LONG_MS));
    end();
    redis_server_destroy(&server);
}

/* Goal: the chosen engine is killed when it has read the names. Another one finds them all, and removes them. */
TEST(the_chosen_engine_is_killed_and_another_finds_all_names) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin_by_tag(3, &server, 4000, 16);
    page->keys = 200;
    start();
    int64_t start_ms = count_all_refused(), sum = truth();
    assert_true(test_wait(has_first_call, &start_ms, LONG_MS));
    int dead = first_call_of(start_ms)->process;
    assert_i64_equal(first_call_of(start_ms)->sum, sum);
    kill_process(dead);
    refuse_all(false);
    struct call call = assert_closed(start_ms, sum);
    assert_int_not_equal(call.process, dead);
    assert_i64_equal(call.keys, 601);
    assert_true(test_wait(are_gone, &server, LONG_MS));
    end();
    redis_server_destroy(&server);
}

/* All that is in one key slot is gone: counters, names, ledgers and the marker. */
static void wipe(struct redis_server *server, uint32_t tag) {
    char pattern[32];
    snprintf(pattern, sizeof pattern, "*{%u}*", tag);
    const char *gone = redis_server_ask(server, "EVAL",
                                        "local keys = redis.call('KEYS', ARGV[1]) "
                                        "redis.call('DEL', unpack(keys)) return #keys",
                                        "0", pattern, NULL);
    assert_true(atoi(gone) > 100);
}

/* Goal: one store is wiped when all engines have drained a window (cluster.md, C18). No hook is called before all have
 * noticed it, and have sent again what was lost: then one hook gets everything. */
TEST(a_store_that_was_wiped_gets_everything_again_before_a_window_is_closed) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    test_tuning.doubt_ms = 300;
    begin_by_tag(2, &server, 30000, 4);
    page->pause_ms = 2500;
    page->keys = 200;
    start();
    int64_t start_ms = count_all();
    wipe(&server, twi_key_slot_tags(4)[2]);
    struct call call = assert_closed(start_ms, truth());
    assert_i64_equal(call.keys, 401);
    assert_true(test_wait(are_gone, &server, LONG_MS));
    assert_closed(count_all(), truth());
    end();
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
