/* cluster_map_test.c -- which master has which slot: MOVED against refreshes, nodes that change their address, when the
 * next refresh is due, and whom it asks. Times are the test's. */
#include "sync/wire/cluster_map.h"
#include "tests/support/cluster_reply.h"

#define THREE \
    "[[0 5460 ['10.0.0.1' 7001 'a1' []]] [5461 10922 ['10.0.0.2' 7002 'b2' []]]" \
    " [10923 16383 ['10.0.0.3' 7003 'c3' []]]]"

static struct twi_endpoint nodes[4]; /* a, b, c, and a seed by another name */

static void name_nodes(void) {
    nodes[0] = endpoint_of("10.0.0.1", 7001);
    nodes[1] = endpoint_of("10.0.0.2", 7002);
    nodes[2] = endpoint_of("10.0.0.3", 7003);
    nodes[3] = endpoint_of("seed.example", 7000);
}

static struct twi_cluster_map *map_of(const char *reply) {
    name_nodes();
    struct twi_cluster_map *map = twi_cluster_map_create(&nodes[3], 1);
    assert_non_null(map);
    if (!reply) return map;
    struct twi_endpoint whom;
    twi_cluster_map_ask(map, 0, &whom);
    slots_reply(reply);
    assert_true(twi_cluster_map_reply(map, &nodes[3], reply_nodes, reply_count, 0, 0));
    return map;
}

static void end(struct twi_cluster_map *map) {
    assert_true(twi_cluster_map_is_valid(map));
    twi_cluster_map_destroy(map);
    reply_end();
}

static void assert_at(const struct twi_cluster_map *map, uint32_t slot, const char *host, uint16_t port) {
    const struct twi_endpoint *endpoint = twi_cluster_map_endpoint(map, twi_cluster_map_owner(map, slot));
    assert_non_null(endpoint);
    assert_string_equal(endpoint->host, host);
    assert_int_equal(endpoint->port, port);
}

static bool tell(struct twi_cluster_map *map, size_t who, const char *reply, int64_t now_ms) {
    slots_reply(reply);
    bool taken = twi_cluster_map_reply(map, &nodes[who], reply_nodes, reply_count, now_ms, 0);
    assert_true(twi_cluster_map_is_valid(map));
    return taken;
}

/* ---- what is known ----------------------------------------------------------------------------------------------- */

TEST(a_refresh_says_all_slots) {
    struct twi_cluster_map *map = map_of(NULL);
    assert_true(twi_cluster_map_owner(map, 7) == 0 && twi_cluster_map_next(map, 0) == 0);
    assert_true(tell(map, 3, THREE, 0));
    assert_at(map, 0, "10.0.0.1", 7001);
    assert_at(map, 5460, "10.0.0.1", 7001);
    assert_at(map, 5461, "10.0.0.2", 7002);
    assert_at(map, 16383, "10.0.0.3", 7003);
    uint32_t masters = 0, slots = 0;
    for (uint64_t node = 0; (node = twi_cluster_map_next(map, node)) != 0; masters++)
        slots += twi_cluster_map_slots(map, node);
    assert_true(masters == 3 && slots == 16384);
    assert_true(tell(map, 3, "[[0 16383 ['10.0.0.2' 7002 'b2' []]]]", 5000));
    assert_at(map, 0, "10.0.0.2", 7002);
    assert_true(tell(map, 3, "[[0 99 ['10.0.0.2' 7002 'b2' []]] [100 200 ['?' 7009 'x9' []]]]", 9000));
    assert_true(twi_cluster_map_owner(map, 99) != 0);
    assert_true(twi_cluster_map_owner(map, 100) == 0); /* its master's address is not known */
    assert_true(twi_cluster_map_owner(map, 201) == 0); /* nobody serves it */
    end(map);
}

/* Goal: a reply that cannot be used, or that knows no master (of a node that was reset), leaves the map as it is. */
TEST(a_refresh_that_cannot_be_used_changes_nothing) {
    static const char *const bad[] = {
        "[]",
        "'text'",
        "[[0 16383 ['10.0.0.2' 7002 'b2']] [5 5 ['10.0.0.1' 7001 'a1']]]",
        "[[0 16383 ['?' 7002 'b2']]]",
        "[[0 99 ['10.0.0.2' 7002 'b2']] [100 200 ['10.0.0.2' 7002 'x2']]]", /* one address, two masters */
        "[[0 99 ['10.0.0.2' 7002 'b2']] [100 200 ['10.0.0.4' 7002 'b2']]]", /* one master, two addresses */
    };
    struct twi_cluster_map *map = map_of(THREE);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(tell(map, 0, bad[i], 20000));
        assert_at(map, 0, "10.0.0.1", 7001);
        assert_at(map, 5461, "10.0.0.2", 7002);
        assert_true(twi_cluster_map_due_ms(map) >= 21000); /* another is asked */
    }
    end(map);
}

/* ---- MOVED against refreshes (C16) ------------------------------------------------------------------------------- */

TEST(moved_changes_its_slot_at_once) {
    struct twi_cluster_map *map = map_of(THREE);
    struct twi_endpoint fresh = endpoint_of("10.0.0.7", 7007);
    uint64_t before = twi_cluster_map_owner(map, 100);
    assert_true(twi_cluster_map_moved(map, 100, &nodes[1], 1000));
    assert_at(map, 100, "10.0.0.2", 7002);
    assert_true(twi_cluster_map_owner(map, 99) == before && twi_cluster_map_owner(map, 101) == before);
    assert_true(twi_cluster_map_due_ms(map) >= TWI_MAP_STALE_MS / 2); /* that was all there was to know */
    assert_true(twi_cluster_map_moved(map, 101, &fresh, 1000));
    assert_at(map, 101, "10.0.0.7", 7007);
    assert_true(twi_cluster_map_due_ms(map) <= 2000); /* a master that nobody has named so far */
    end(map);
}

/* Goal: a master in a minority cannot undo what MOVED said; only two masters that agree can, or time. */
TEST(a_stale_refresh_does_not_undo_moved) {
    struct twi_cluster_map *map = map_of(THREE);
    twi_cluster_map_moved(map, 100, &nodes[1], 1000);
    twi_cluster_map_moved(map, 101, &nodes[1], 1000);
    for (int i = 0; i < 3; i++) assert_true(tell(map, 2, THREE, 2000 + 2000 * i)); /* it says the same thrice */
    assert_at(map, 100, "10.0.0.2", 7002);
    assert_at(map, 101, "10.0.0.2", 7002);
    assert_true(twi_cluster_map_due_ms(map) <= 16000); /* so another master is asked */
    twi_cluster_map_moved(map, 101, &nodes[1], 7000);
    assert_true(tell(map, 0, THREE, 8000)); /* a second one agrees about 100; of 101 it is the first since */
    assert_at(map, 100, "10.0.0.1", 7001);
    assert_at(map, 101, "10.0.0.2", 7002);
    assert_true(tell(map, 0, THREE, 16999));
    assert_at(map, 101, "10.0.0.2", 7002);
    assert_true(tell(map, 0, THREE, 17000)); /* ten seconds have passed */
    assert_at(map, 101, "10.0.0.1", 7001);
    end(map);
}

/* Goal: two masters that contradict MOVED, and each other, change nothing. */
TEST(two_masters_must_say_the_same) {
    struct twi_cluster_map *map = map_of(THREE);
    twi_cluster_map_moved(map, 100, &nodes[1], 1000);
    assert_true(tell(map, 0, THREE, 2000));
    assert_true(tell(map, 2, "[[0 16383 ['10.0.0.3' 7003 'c3' []]]]", 4000));
    assert_at(map, 100, "10.0.0.2", 7002);
    assert_at(map, 99, "10.0.0.3", 7003);
    assert_true(tell(map, 1, "[[0 16383 ['10.0.0.3' 7003 'c3' []]]]", 6000));
    assert_at(map, 100, "10.0.0.3", 7003);
    end(map);
}

/* Goal: whoever is asked under a name that no master has may be one of those that were asked already; so may one that
 * only MOVED has named. */
TEST(a_seed_by_another_name_is_no_second_witness) {
    struct twi_cluster_map *map = map_of(THREE);
    twi_cluster_map_moved(map, 100, &nodes[1], 1000);
    assert_true(tell(map, 0, THREE, 2000));
    assert_true(tell(map, 3, THREE, 4000));
    assert_at(map, 100, "10.0.0.2", 7002);
    twi_cluster_map_moved(map, 200, &nodes[3], 4000);
    assert_true(tell(map, 3, THREE, 5000));
    assert_at(map, 100, "10.0.0.2", 7002);
    end(map);
}

TEST(a_refresh_that_agrees_with_moved_keeps_it_protected) {
    struct twi_cluster_map *map = map_of(THREE);
    twi_cluster_map_moved(map, 0, &nodes[1], 1000);
    assert_true(tell(map, 1, "[[0 0 ['10.0.0.2' 7002 'b2']] [1 16383 ['10.0.0.1' 7001 'a1']]]", 2000));
    assert_true(tell(map, 2, THREE, 4000));
    assert_at(map, 0, "10.0.0.2", 7002);
    end(map);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* Goal: the same node under a new address is dialled again; slots that MOVED named there are its own. */
TEST(a_master_with_a_new_address_is_dialled_anew) {
    struct twi_cluster_map *map = map_of(THREE);
    struct twi_endpoint fresh = endpoint_of("10.0.0.8", 7008);
    uint64_t before = twi_cluster_map_owner(map, 0);
    twi_cluster_map_moved(map, 9000, &fresh, 1000);
    uint64_t there = twi_cluster_map_owner(map, 9000);
    assert_true(tell(map, 1,
                     "[[0 5460 ['10.0.0.8' 7008 'a1' []]] [5461 10922 ['10.0.0.2' 7002 'b2' []]]"
                     " [10923 16383 ['10.0.0.3' 7003 'c3' []]]]",
                     2000));
    assert_at(map, 0, "10.0.0.8", 7008);
    assert_at(map, 9000, "10.0.0.8", 7008);
    assert_true(twi_cluster_map_owner(map, 0) == there && there != before); /* one connection to one address */
    assert_null(twi_cluster_map_endpoint(map, before));
    end(map);
}

TEST(masters_that_exchange_their_addresses_are_kept_apart) {
    struct twi_cluster_map *map = map_of(THREE);
    assert_true(tell(map, 2,
                     "[[0 5460 ['10.0.0.2' 7002 'a1' []]] [5461 10922 ['10.0.0.1' 7001 'b2' []]]"
                     " [10923 16383 ['10.0.0.3' 7003 'c3' []]]]",
                     2000));
    assert_at(map, 0, "10.0.0.2", 7002);
    assert_at(map, 5461, "10.0.0.1", 7001);
    assert_at(map, 10923, "10.0.0.3", 7003);
    end(map);
}

/* Goal: a node that was reset has another id at the same address; its connection may continue. */
TEST(another_master_at_a_known_address_takes_its_place) {
    struct twi_cluster_map *map = map_of(THREE);
    uint64_t before = twi_cluster_map_owner(map, 0);
    assert_true(tell(map, 1, "[[0 16383 ['10.0.0.1' 7001 'x9' []]]]", 2000));
    assert_true(twi_cluster_map_owner(map, 0) == before && twi_cluster_map_owner(map, 16383) == before);
    end(map);
}

TEST(a_node_is_forgotten_a_minute_after_its_last_slot) {
    struct twi_cluster_map *map = map_of(THREE);
    uint64_t gone = twi_cluster_map_owner(map, 0);
    assert_true(tell(map, 1, "[[0 16383 ['10.0.0.2' 7002 'b2' []]]]", 5000));
    assert_int_equal(twi_cluster_map_slots(map, gone), 0);
    twi_cluster_map_sweep(map, 64999);
    assert_non_null(twi_cluster_map_endpoint(map, gone));
    twi_cluster_map_sweep(map, 65000);
    assert_null(twi_cluster_map_endpoint(map, gone));
    assert_true(tell(map, 1, THREE, 70000)); /* it is back, as a node that was never seen */
    assert_true(twi_cluster_map_owner(map, 0) != gone);
    end(map);
}

/* Goal: a hostile cluster that names another node with each answer costs a bounded number of them, and of changes. */
TEST(memory_is_bounded_whatever_is_told) {
    struct twi_cluster_map *map = map_of(THREE);
    uint64_t refused = 0, kept = 0;
    for (uint32_t i = 0; i < 3 * TWI_MAP_NODES_MAX; i++) {
        struct twi_endpoint fresh = endpoint_of("10.1.0.0", (uint16_t)(10000 + i));
        refused += !twi_cluster_map_moved(map, i, &fresh, 1000);
    }
    assert_true(refused != 0 && twi_cluster_map_is_valid(map));
    for (uint64_t node = 0; (node = twi_cluster_map_next(map, node)) != 0;) kept++;
    assert_true(kept == TWI_MAP_NODES_MAX);
    assert_true(tell(map, 1, "[[0 16383 ['10.0.0.2' 7002 'b2' []]]]", 20000)); /* and all is well again */
    assert_at(map, 0, "10.0.0.2", 7002);
    end(map);
}

/* Goal: the random life of a map breaks none of its rules. Method: MOVED, refreshes by random masters with random
 * shares, ids that wander from address to address, time. */
TEST(no_order_of_events_breaks_a_rule) {
    static char reply[4096];
    struct test_prng prng;
    struct twi_cluster_map *map = map_of(NULL);
    int64_t now_ms = 0;
    test_prng_seed(&prng, test_seed());
    for (uint64_t round = 0; round < test_scale(3000); round++) {
        now_ms += test_prng_between(&prng, 0, 4000);
        struct twi_endpoint some = endpoint_of("h", (uint16_t)test_prng_between(&prng, 1, 12));
        uint32_t slot = (uint32_t)test_prng_below(&prng, 40);
        if (test_prng_chance(&prng, 1, 2)) {
            twi_cluster_map_moved(map, slot, &some, now_ms);
        } else {
            size_t used = (size_t)sprintf(reply, "[");
            for (uint32_t first = 0; first < 40;) {
                uint32_t last = first + (uint32_t)test_prng_below(&prng, 20);
                used += (size_t)sprintf(reply + used, "[%u %u ['%s' %d 'n%d']] ", first, last,
                                        test_prng_chance(&prng, 1, 9) ? "?" : "h", (int)test_prng_between(&prng, 1, 12),
                                        (int)test_prng_between(&prng, 1, 8));
                first = last + 1 + (uint32_t)test_prng_below(&prng, 3);
            }
            sprintf(reply + used, "]");
            slots_reply(reply);
            twi_cluster_map_reply(map, &some, reply_nodes, reply_count, now_ms, test_prng_next(&prng));
        }
        twi_cluster_map_sweep(map, now_ms);
        assert_true(twi_cluster_map_is_valid(map));
    }
    end(map);
}

/* ---- when, and whom ---------------------------------------------------------------------------------------------- */

/* Goal: at least a second lies between two refreshes; while the state does not change the pauses double to ten seconds;
 * a change shortens them again, and so does a time of calm. */
TEST(refreshes_come_less_and_less_while_nothing_changes) {
    struct test_prng prng;
    struct twi_endpoint whom;
    test_prng_seed(&prng, test_seed());
    struct twi_cluster_map *map = map_of(NULL);
    assert_true(twi_cluster_map_due_ms(map) <= 0); /* the first one at once */
    static const int64_t ceilings_ms[] = {2000, 4000, 8000, 10000, 10000, 2000, 4000};
    int64_t now_ms = 100;
    for (size_t i = 0; i < 7; i++) {
        twi_cluster_map_want(map, now_ms);
        twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
        assert_i64_equal(twi_cluster_map_due_ms(map), INT64_MAX);
        slots_reply(i < 5 ? THREE : "[[0 16383 ['10.0.0.2' 7002 'b2' []]]]");
        assert_true(twi_cluster_map_reply(map, &whom, reply_nodes, reply_count, now_ms, test_prng_next(&prng)));
        assert_true(twi_cluster_map_due_ms(map) - now_ms >= TWI_MAP_STALE_MS / 2); /* nobody wants one */
        twi_cluster_map_want(map, now_ms);
        int64_t wait_ms = twi_cluster_map_due_ms(map) - now_ms;
        assert_true(wait_ms >= ceilings_ms[i] / 2 && wait_ms <= ceilings_ms[i]);
        now_ms += wait_ms;
    }
    end(map);
    map = map_of(THREE); /* answered at 0 */
    for (int i = 0; i < 5; i++) assert_true(tell(map, 0, THREE, 0));
    twi_cluster_map_want(map, 60000);
    assert_true(twi_cluster_map_due_ms(map) <= 60000);
    assert_true(tell(map, 0, THREE, 60000));
    twi_cluster_map_want(map, 60000);
    assert_true(twi_cluster_map_due_ms(map) <= 64000);
    end(map);
}

/* Goal: a wish that comes while a refresh is under way is not lost. Its answer may be older. */
/* Goal: an engine that is idle, or counts at one master only, learns that the others were replaced, while it knows
 * somebody who can say so. Such a refresh makes none that is wanted later wait for long. */
TEST(a_map_that_nobody_wants_is_read_once_a_minute) {
    struct test_prng prng;
    struct twi_endpoint whom;
    test_prng_seed(&prng, test_seed());
    struct twi_cluster_map *map = map_of(THREE); /* answered at 0 */
    int64_t now_ms = 0;
    for (int i = 0; i < 20; i++) {
        int64_t wait_ms = twi_cluster_map_due_ms(map) - now_ms;
        assert_true(wait_ms >= 30000 && wait_ms <= 60000);
        now_ms += wait_ms;
        twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
        assert_i64_equal(twi_cluster_map_due_ms(map), INT64_MAX);
        slots_reply(THREE);
        assert_true(twi_cluster_map_reply(map, &whom, reply_nodes, reply_count, now_ms, test_prng_next(&prng)));
    }
    twi_cluster_map_want(map, now_ms);
    assert_true(twi_cluster_map_due_ms(map) - now_ms >= 1000 && twi_cluster_map_due_ms(map) - now_ms <= 2000);
    end(map);
}

TEST(a_wish_during_a_refresh_is_kept) {
    struct twi_endpoint whom;
    struct twi_cluster_map *map = map_of(THREE);
    twi_cluster_map_want(map, 5000);
    twi_cluster_map_ask(map, 0, &whom);
    twi_cluster_map_want(map, 5001);
    assert_i64_equal(twi_cluster_map_due_ms(map), INT64_MAX);
    assert_true(tell(map, 0, THREE, 5002));
    assert_true(twi_cluster_map_due_ms(map) >= 6002 && twi_cluster_map_due_ms(map) <= 5002 + 10000);
    end(map);
}

/* Goal: known masters are asked, each as often as the others and never one twice in a row; the seeds while there are
 * none, and now and then while none answers. */
TEST(a_random_master_is_asked_and_a_seed_if_none_answers) {
    struct test_prng prng;
    struct twi_endpoint whom, last = {0};
    uint64_t asked[4] = {0}, first_to_second = 0;
    test_prng_seed(&prng, test_seed());
    struct twi_cluster_map *map = map_of(NULL);
    twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
    assert_true(twi_endpoint_equals(&whom, &nodes[3]));
    assert_true(tell(map, 3, THREE, 0));
    for (int i = 0; i < 3000; i++, last = whom) {
        twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
        assert_false(twi_endpoint_equals(&whom, &last));
        first_to_second += twi_endpoint_equals(&last, &nodes[0]) && twi_endpoint_equals(&whom, &nodes[1]);
        for (size_t n = 0; n < 4; n++) asked[n] += twi_endpoint_equals(&whom, &nodes[n]);
        assert_true(tell(map, 0, THREE, 0));
    }
    for (size_t n = 0; n < 3; n++) assert_true(asked[n] > 800 && asked[n] < 1200);
    assert_true(first_to_second > 350 && first_to_second < 650); /* by chance, and not in turn */
    assert_true(asked[3] == 0);
    int64_t now_ms = 100000, wait_ms = 0;
    for (int i = 0; i < 100; i++) {
        twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
        asked[3] += twi_endpoint_equals(&whom, &nodes[3]);
        assert_true(i > 2 || asked[3] == 0);
        twi_cluster_map_failed(map, false, now_ms, test_prng_next(&prng));
        wait_ms = twi_cluster_map_due_ms(map) - now_ms;
        assert_true(wait_ms >= 50 && wait_ms <= 1000 && (i > 1 || wait_ms <= 200));
    }
    twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
    twi_cluster_map_failed(map, true, now_ms, test_prng_next(&prng)); /* this time it was asked, and did not answer */
    assert_true(twi_cluster_map_due_ms(map) - now_ms >= 1000);
    assert_true(wait_ms >= 500 && asked[3] > 25 && asked[3] < 75);
    end(map);
}

/* Goal: of masters that do not answer, none is asked again before the others. */
TEST(masters_that_do_not_answer_are_asked_in_turn) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    struct twi_cluster_map *map = map_of(THREE);
    for (int round = 0; round < 50; round++) {
        struct twi_endpoint whom[3];
        for (int i = 0; i < 3; i++) {
            twi_cluster_map_ask(map, test_prng_next(&prng), &whom[i]);
            twi_cluster_map_failed(map, false, 0, test_prng_next(&prng));
            for (int earlier = 0; earlier < i; earlier++) assert_false(twi_endpoint_equals(&whom[i], &whom[earlier]));
        }
        for (bool is_told = false; !is_told;) { /* by one that answers at last */
            twi_cluster_map_ask(map, test_prng_next(&prng), &whom[0]);
            is_told = tell(map, 0, THREE, 0);
        }
    }
    end(map);
}

/* Goal: all seeds but one are unreachable when an engine starts. Each is asked once before any is asked again, so the
 * one that is there is found after a short pause for each of the others. Which one is first is random: not all engines
 * ask the same node. Later rounds come more seldom. */
TEST(seeds_are_asked_in_turn) {
    enum { SEEDS_MAX = 8, RUNS = 200 };
    struct test_prng prng;
    struct twi_endpoint seeds[SEEDS_MAX], whom;
    test_prng_seed(&prng, test_seed());
    for (uint16_t i = 0; i < SEEDS_MAX; i++) seeds[i] = endpoint_of("10.0.0.1", (uint16_t)(7000 + i));
    for (uint32_t count = 1; count <= SEEDS_MAX; count++) {
        uint32_t first_seen = 0;
        for (int run = 0; run < RUNS; run++) {
            struct twi_cluster_map *map = twi_cluster_map_create(seeds, count);
            assert_non_null(map);
            int64_t now_ms = 0, wait_ms = 0;
            for (uint32_t round = 0; round < 12; round++) {
                uint32_t seen = 0;
                for (uint32_t i = 0; i < count; i++, now_ms += wait_ms) {
                    twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
                    if (round == 0 && i == 0) first_seen |= 1u << (whom.port - 7000);
                    seen |= 1u << (whom.port - 7000);
                    twi_cluster_map_failed(map, false, now_ms, test_prng_next(&prng));
                    wait_ms = twi_cluster_map_due_ms(map) - now_ms;
                    assert_true(round > 0 || (wait_ms >= 50 && wait_ms <= 100));
                }
                assert_int_equal(seen, (1u << count) - 1);
            }
            assert_true(wait_ms >= 500 && wait_ms <= 1000); /* a cluster that comes back is not missed for long */
            end(map);
        }
        assert_int_equal(first_seen, (1u << count) - 1);
    }
}

/* Goal: a seed that answers, but not with masters, costs no more than one that is unreachable. It loads its data,
 * refuses the user, is no node of a cluster, or has no slots. The next one is asked after a short pause. Once a master
 * is known, such an answer is a refresh as any other. */
TEST(a_seed_that_knows_no_master_is_passed_over) {
    enum { SEEDS = 3 };
    struct test_prng prng;
    struct twi_endpoint whom;
    test_prng_seed(&prng, test_seed());
    name_nodes();
    for (int run = 0; run < 200; run++) {
        struct twi_cluster_map *map = twi_cluster_map_create(nodes, SEEDS);
        int64_t now_ms = 1000;
        uint32_t seen = 0;
        for (int i = 0; i < SEEDS; i++) {
            twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
            for (int n = 0; n < SEEDS; n++) seen |= (uint32_t)twi_endpoint_equals(&whom, &nodes[n]) << n;
            if (i % 2 == 0) {
                twi_cluster_map_failed(map, true, now_ms, test_prng_next(&prng));
            } else {
                slots_reply("[]");
                assert_false(
                    twi_cluster_map_reply(map, &whom, reply_nodes, reply_count, now_ms, test_prng_next(&prng)));
            }
            int64_t wait_ms = twi_cluster_map_due_ms(map) - now_ms;
            assert_true(wait_ms >= 50 && wait_ms <= 100);
            now_ms += wait_ms;
        }
        assert_int_equal(seen, (1u << SEEDS) - 1);
        for (int i = 0; i < 12 * SEEDS; i++) { /* seeds that answer are asked less and less often */
            twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
            twi_cluster_map_failed(map, true, now_ms, test_prng_next(&prng));
        }
        assert_true(twi_cluster_map_due_ms(map) - now_ms >= 5000 && twi_cluster_map_due_ms(map) - now_ms <= 10000);
        assert_true(tell(map, 0, THREE, now_ms));
        twi_cluster_map_want(map, now_ms);
        now_ms = twi_cluster_map_due_ms(map);
        twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
        twi_cluster_map_failed(map, true, now_ms, test_prng_next(&prng));
        assert_true(twi_cluster_map_due_ms(map) - now_ms >= 1000);
        end(map);
    }
}

/* Goal: an engine was idle while nodes of its cluster were replaced, so of all masters and seeds that it knows one is
 * left. That one is found before the pauses grow: each of the others costs it at most two short ones. */
TEST(the_only_node_that_is_left_is_found_soon) {
    enum { MASTERS_MAX = 9, SEEDS_MAX = 8, RUNS = 20 };
    struct test_prng prng;
    struct twi_endpoint seeds[SEEDS_MAX], whom;
    char text[MASTERS_MAX * 60 + 8];
    test_prng_seed(&prng, test_seed());
    for (uint16_t i = 0; i < SEEDS_MAX; i++) seeds[i] = endpoint_of("10.1.0.1", (uint16_t)(7000 + i));
    for (uint32_t masters = 1; masters <= MASTERS_MAX; masters++) {
        size_t used = (size_t)sprintf(text, "[");
        for (uint32_t i = 0; i < masters; i++)
            used += (size_t)sprintf(text + used, "[%u %u ['10.0.0.1' %u 'id%u' []]] ", i, i, 7000 + i, i);
        sprintf(text + used, "]");
        for (uint32_t run = 0; run < SEEDS_MAX * RUNS; run++) {
            uint32_t count = 1 + run % SEEDS_MAX, left = (uint32_t)(test_prng_next(&prng) % (masters + count));
            struct twi_endpoint living = left < count ? seeds[left] : endpoint_of("10.0.0.1", 7000);
            if (left >= count) living.port = (uint16_t)(living.port + left - count);
            struct twi_cluster_map *map = twi_cluster_map_create(seeds, count);
            assert_non_null(map);
            twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
            slots_reply(text);
            assert_true(twi_cluster_map_reply(map, &whom, reply_nodes, reply_count, 0, 0));
            int64_t began_ms = 100000, now_ms = began_ms;
            for (twi_cluster_map_want(map, now_ms);; now_ms = twi_cluster_map_due_ms(map)) {
                twi_cluster_map_ask(map, test_prng_next(&prng), &whom);
                if (twi_endpoint_equals(&whom, &living)) break;
                twi_cluster_map_failed(map, false, now_ms, test_prng_next(&prng));
            }
            assert_true(now_ms - began_ms <= (3 + 2 * (masters > count ? masters : count)) * 100);
            end(map);
        }
    }
}
