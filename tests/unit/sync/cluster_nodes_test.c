/* cluster_nodes_test.c -- the reply to CLUSTER NODES: what a node says of its own slots is read whole or refused
 * whole. */
#include "sync/wire/cluster_nodes.h"
#include "tests/support/support.h"

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define ID_C "cccccccccccccccccccccccccccccccccccccccc"

static const struct twi_endpoint asked = {.port = 7009, .host = "10.0.0.9"};

static const char whole[] =
    ID_B " 10.0.0.2:7002@17002,b.example master - 0 1 2 connected 6000-16383\n" ID_A
         " :7001@17001 myself,master - 0 0 1 connected 0-99 101 5000-5001 [100-<-" ID_B "] [5->-" ID_B "] [6->-" ID_B
         "] [7->-" ID_C "]\n" ID_C " 2001:db8::1:7003@17003 master - 0 1 3 connected\n";

/* Goal: the node's own slots, those that come and those that go are read from its own line, wherever that stands. */
TEST(a_nodes_own_slots_and_moves_are_read) {
    struct twi_own_slots own;
    assert_true(twi_cluster_nodes_own(whole, &own));
    unsigned serves = 0, moves = 0;
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
        serves += twi_slot_set_has(&own.serves, slot);
        moves += twi_slot_set_has(&own.moves, slot);
    }
    assert_int_equal(serves, 100 + 1 + 2);
    assert_true(twi_slot_set_has(&own.serves, 0) && twi_slot_set_has(&own.serves, 101));
    assert_true(twi_slot_set_has(&own.serves, 5001) && !twi_slot_set_has(&own.serves, 100));
    assert_int_equal(moves, 4);
    assert_true(twi_slot_set_has(&own.moves, 100) && twi_slot_set_has(&own.moves, 7) && own.imports);
    assert_true(twi_cluster_nodes_own(ID_A " 10.0.0.1:7001@17001 myself,slave " ID_B " 0 0 1 connected\r\n", &own));
    assert_false(own.imports);
}

/* Goal: each node to which a slot moves is found by its id, with an address in any form. */
TEST(the_targets_of_moves_are_found) {
    struct twi_endpoint target;
    size_t at = 0;
    for (int i = 0; i < 2; i++) { /* slots 5 and 6 */
        assert_true(twi_cluster_nodes_target(whole, &asked, &at, &target));
        assert_string_equal(target.host, "10.0.0.2");
        assert_int_equal(target.port, 7002);
    }
    assert_true(twi_cluster_nodes_target(whole, &asked, &at, &target));
    assert_string_equal(target.host, "2001:db8::1");
    assert_int_equal(target.port, 7003);
    assert_false(twi_cluster_nodes_target(whole, &asked, &at, &target));
    at = 0; /* an address that is not known yet, and an id that stands nowhere */
    assert_true(twi_cluster_nodes_target(ID_A " h:1@2 myself,master - 0 0 1 connected [1->-" ID_C "] [2->-" ID_B
                                              "]\n" ID_B " :7002@17002 master - 0 1 2 connected\n",
                                         &asked, &at, &target));
    assert_string_equal(target.host, "10.0.0.9");
}

/* Goal: what is no reply, or none of a node that names itself, is refused. */
TEST(what_cannot_be_read_is_refused) {
    static const char *const texts[] = {
        "",
        "ERR",
        ID_A " 10.0.0.1:7001@17001 master - 0 0 1 connected 0-99",
        ID_A " 10.0.0.1:7001@17001 myself,master - 0 0",
        ID_A " 10.0.0.1:7001@17001 myself,master - 0 0 1 connected 16384",
        ID_A " 10.0.0.1:7001@17001 myself,master - 0 0 1 connected 9-8",
        ID_A " 10.0.0.1:7001@17001 myself,master - 0 0 1 connected 1-2-3",
        ID_A " 10.0.0.1:7001@17001 myself,master - 0 0 1 connected x",
        ID_A " 10.0.0.1:7001@17001 myself,master - 0 0 1 connected 99999999999999999999",
        ID_A " 10.0.0.1:7001@17001 myself,master - 0 0 1 connected [5-",
        ID_A " 10.0.0.1:7001@17001 myself,master - 0 0 1 connected [5=>-" ID_B "]",
        ID_A " 10.0.0.1:7001@17001 myself,master - 0 0 1 connected [",
    };
    struct twi_own_slots own;
    struct twi_endpoint target;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t at = 0;
        if (twi_cluster_nodes_own(texts[i], &own)) fail_msg("%s", texts[i]);
        assert_false(twi_cluster_nodes_target(texts[i], &asked, &at, &target));
    }
}
