/* cluster_facts.c -- what Tallywheel's way through Redis Cluster relies on, asked of a real cluster.
 *
 * Each test is a row or two of what was found before the design: a script while its slot moves, ASKING, failovers, what
 * a node knows of keys, maps. If a later Redis answers otherwise, the design has to be looked at again. The simulator's
 * cluster is held to the same answers by cluster_model.c.
 * The keys of a test have one tag, so one slot: each test has a slot of its own. */
#include "tests/redis/cluster/cluster_link.h"

#include "engine/base/key_slot.h"
#include "sync/wire/cluster_map.h"
#include "sync/wire/cluster_nodes.h"

/* Adds 1 to each key. */
#define ADD "for i = 1, #KEYS do redis.call('INCRBY', KEYS[i], 1) end return #KEYS"

enum { A, B, C, A_REPLICA, NODES };

static struct redis_cluster cluster;
static struct link links[NODES];

static uint32_t slot_of(const char *name) {
    return twi_key_slot_of(name, strlen(name));
}

/* Asks a node, and compares the reply's first word. */
#define says(node, want, ...) \
    do { \
        link_ask(&links[node], __VA_ARGS__, NULL); \
        assert_string_equal(link_said(&links[node]), want); \
    } while (0)

/* The same behind ASKING. */
#define says_asked(node, want, ...) \
    do { \
        link_ask(&links[node], "ASKING", NULL); \
        says(node, want, __VA_ARGS__); \
    } while (0)

/* A tag whose slot is the master's: the first number from `from` on. */
static int tag_at(size_t node, int from) {
    char name[16];
    for (;; from++) {
        snprintf(name, sizeof name, "%d", from);
        if (cluster.owners[slot_of(name)] == node) return from;
    }
}

struct keys {
    char a[24], b[24], c[24], d[24];
    uint32_t slot;
};

static struct keys keys_at(size_t node) {
    static int used;
    struct keys keys;
    int tag = used = tag_at(node, used + 1);
    snprintf(keys.a, sizeof keys.a, "a:{%d}", tag);
    snprintf(keys.b, sizeof keys.b, "b:{%d}", tag);
    snprintf(keys.c, sizeof keys.c, "c:{%d}", tag);
    snprintf(keys.d, sizeof keys.d, "d:{%d}", tag);
    keys.slot = slot_of(keys.a);
    return keys;
}

static bool is_valkey(void) {
    return strstr(link_ask(&links[A], "INFO", "server", NULL)->text, "valkey_version:") != NULL;
}

/* MIGRATE of one key, of the test's choice. */
static void move_key(const char *name, size_t from, size_t to) {
    char port[16];
    snprintf(port, sizeof port, "%d", redis_cluster_server(&cluster, to)->port);
    says(from, "OK", "MIGRATE", "127.0.0.1", port, name, "0", "10000");
}

/* ---- a script while its slot moves ------------------------------------------------------------------------------- */

/* Goal: at the source a script runs with all of its keys, or not at all; an expired key counts as missing. Redis 6
 * sends a request to the target that has only some of its keys here, and the target says TRYAGAIN. */
TEST(at_the_source_a_script_runs_with_all_its_keys_or_not_at_all) {
    const char *half = redis_server_is_at_least(7, 0) ? "TRYAGAIN" : "ASK";
    struct keys k = keys_at(A);
    says(A, "2", "EVAL", ADD, "2", k.a, k.b);
    redis_cluster_move_begin(&cluster, k.slot, B);
    says(A, "2", "EVAL", ADD, "2", k.a, k.b);
    says(A, half, "EVAL", ADD, "2", k.a, k.c);  /* a new key */
    says(A, "ASK", "EVAL", ADD, "2", k.c, k.d); /* only new keys */
    says(A, "ASK", "EVAL", ADD, "1", k.c);
    move_key(k.b, A, B);
    says(A, half, "EVAL", ADD, "2", k.a, k.b);
    says(A, "ASK", "EVAL", ADD, "1", k.b);
    says(A, "1", "EVAL", ADD, "1", k.a);
    says(A, "OK", "SET", k.a, "1", "PX", "1");
    test_sleep_ms(5);
    says(A, "ASK", "EVAL", ADD, "2", k.a, k.b);
    redis_cluster_move_keys(&cluster, k.slot, B, 100);
    redis_cluster_move_end(&cluster, k.slot, B);
    says(B, "3", "EVAL", ADD " + 1", "2", k.b, k.c);
    says(B, "3", "GET", k.b); /* nothing was done by those that were refused */
    says(B, "1", "GET", k.c);
}

TEST(at_the_target_several_keys_run_only_if_all_are_there) {
    struct keys k = keys_at(A);
    says(A, "2", "EVAL", ADD, "2", k.a, k.b);
    redis_cluster_move_begin(&cluster, k.slot, B);
    says(B, "MOVED", "EVAL", ADD, "1", k.a); /* without ASKING */
    move_key(k.a, A, B);
    says_asked(B, "TRYAGAIN", "EVAL", ADD, "2", k.a, k.b);
    says_asked(B, "TRYAGAIN", "EVAL", ADD, "2", k.a, k.c); /* it exists nowhere */
    says_asked(B, "TRYAGAIN", "EVAL", ADD, "2", k.c, k.d);
    says_asked(B, "1", "EVAL", ADD, "1", k.d); /* one new key is made */
    move_key(k.b, A, B);
    says_asked(B, "2", "EVAL", ADD, "2", k.a, k.b);
    says(B, "MOVED", "EVAL", ADD, "2", k.a, k.b); /* ASKING is for one command */
    redis_cluster_move_end(&cluster, k.slot, B);
    says(B, "2", "GET", k.b);
}

/* Goal: ASKING before EVALSHA is used up by NOSCRIPT: the EVAL needs one of its own. */
TEST(asking_is_used_up_by_noscript) {
    struct keys k = keys_at(A);
    static const char unknown[] = "ffffffffffffffffffffffffffffffffffffffff";
    says(A, "1", "SETNX", k.a, "5");
    redis_cluster_move_begin(&cluster, k.slot, B);
    move_key(k.a, A, B);
    says_asked(B, "NOSCRIPT", "EVALSHA", unknown, "1", k.a);
    says(B, "MOVED", "EVAL", ADD, "1", k.a);
    says_asked(B, "1", "EVAL", ADD, "1", k.a);
    redis_cluster_move_end(&cluster, k.slot, B);
}

/* Goal: in a slot that moves, a script fails in its middle when it touches a key that it has deleted or emptied itself,
 * or one that was not declared and is not there. What it had written stays. */
TEST(a_script_can_stop_in_its_middle) {
    static const char *const bodies[] = {
        "redis.call('INCRBY', KEYS[1], 10) redis.call('DEL', KEYS[2]) return redis.call('GET', KEYS[2])",
        "redis.call('INCRBY', KEYS[1], 10) redis.call('HDEL', KEYS[2], 'f') return redis.call('HGET', KEYS[2], 'f')",
        "redis.call('INCRBY', KEYS[1], 10) return redis.call('GET', ARGV[1])",
    };
    for (size_t i = 0; i < 3; i++) {
        struct keys k = keys_at(A);
        struct twi_redirect redirect;
        says(A, "OK", "SET", k.a, "1");
        says(A, "1", "HSET", k.b, "f", "1");
        redis_cluster_move_begin(&cluster, k.slot, B);
        says(A, "ERR", "EVAL", bodies[i], "2", k.a, k.b, k.c);
        twi_redirect_read(links[A].reply, &(struct twi_endpoint){.port = 1, .host = "a"}, &redirect);
        assert_int_equal(redirect.kind, TWI_REDIRECT_NON_LOCAL);
        says(A, "11", "GET", k.a);
        redis_cluster_move_forget(&cluster, k.slot, B);
    }
}

TEST(ledgers_and_lives_arrive_with_a_slot) {
    struct keys k = keys_at(A);
    says(A, "2", "HSET", k.a, "n", "7", "p", "12");
    says(A, "OK", "SET", k.b, "5", "PX", "3600000");
    redis_cluster_move(&cluster, k.slot, k.slot, B);
    says(A, "MOVED", "GET", k.b);
    says(B, "7", "HGET", k.a, "n");
    says(B, "-1", "PTTL", k.a);
    assert_true(link_ask(&links[B], "PTTL", k.b, NULL)->integer > 3500000);
}

/* ---- what a node says of itself ---------------------------------------------------------------------------------- */

/* Goal: any node counts the keys that it has itself of any slot, also in a script; a slot that was never its own has
 * none. */
TEST(each_node_counts_its_own_keys_of_a_slot) {
    struct keys k = keys_at(A);
    char slot[16];
    snprintf(slot, sizeof slot, "%u", k.slot);
    says(A, "2", "EVAL", ADD, "2", k.a, k.b);
    redis_cluster_move_begin(&cluster, k.slot, B);
    move_key(k.b, A, B);
    says(A, "1", "CLUSTER", "COUNTKEYSINSLOT", slot);
    says(B, "1", "CLUSTER", "COUNTKEYSINSLOT", slot);
    says(C, "0", "CLUSTER", "COUNTKEYSINSLOT", slot);
    says(A_REPLICA, "1", "CLUSTER", "COUNTKEYSINSLOT", slot);
    says(A, "1", "EVAL", "return redis.call('CLUSTER', 'COUNTKEYSINSLOT', ARGV[1])", "1", k.a, slot);
    redis_cluster_move_keys(&cluster, k.slot, B, 100);
    redis_cluster_move_end(&cluster, k.slot, B);
}

/* Goal: WAIT speaks of what the connection's last write left behind, whoever wrote before. (Up to Redis 7.0 any command
 * will do for a write.) As the first command it speaks of nothing, and says "1" at once, while the replica has nothing
 * of what MIGRATE brought.
 * Method: the replica stands still while the slot comes. Valkey from 8 on moves no slot without the replica. */
TEST(wait_as_the_first_command_says_nothing_of_what_migrate_brought) {
    struct keys k = keys_at(B);
    struct link fresh;
    if (is_valkey()) {
        test_leave_out("Valkey moves a slot only if the replica of its new master has heard of it: install Redis");
        return;
    }
    says(B, "OK", "SET", k.a, "1");
    redis_server_pause(redis_cluster_server(&cluster, A_REPLICA));
    redis_cluster_move(&cluster, k.slot, k.slot, A);
    link_open(&fresh, redis_cluster_server(&cluster, A));
    int64_t at_once = link_ask(&fresh, "WAIT", "1", "100", NULL)->integer;
    link_ask(&fresh, "SET", k.b, "1", NULL);
    int64_t behind_a_write = link_ask(&fresh, "WAIT", "1", "100", NULL)->integer;
    redis_server_resume(redis_cluster_server(&cluster, A_REPLICA));
    assert_i64_equal(at_once, 1);
    assert_i64_equal(behind_a_write, 0);
    assert_i64_equal(link_ask(&fresh, "WAIT", "1", "10000", NULL)->integer, 1);
    link_close(&fresh);
}

TEST(keys_of_two_slots_are_our_mistake) {
    struct keys k = keys_at(A), other = keys_at(A);
    says(A, "CROSSSLOT", "EVAL", ADD, "2", k.a, other.a);
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

static void ask_map(struct twi_cluster_map *map, size_t node) {
    struct twi_endpoint asked = {.port = (uint16_t)redis_cluster_server(&cluster, node)->port, .host = "127.0.0.1"};
    link_ask(&links[node], "CLUSTER", "SLOTS", NULL);
    assert_true(twi_cluster_map_reply(map, &asked, links[node].reply, links[node].count, 0, 0));
    assert_true(twi_cluster_map_is_valid(map));
}

static void assert_map(const struct twi_cluster_map *map) {
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
        const struct twi_endpoint *endpoint = twi_cluster_map_endpoint(map, twi_cluster_map_owner(map, slot));
        assert_non_null(endpoint);
        assert_string_equal(endpoint->host, "127.0.0.1");
        assert_int_equal(endpoint->port, redis_cluster_server(&cluster, cluster.owners[slot])->port);
    }
}

/* Goal: the map reads what every node says, with addresses, without, and with names that only some nodes have; MOVED
 * and ASK lead to the nodes that are meant. */
TEST(the_map_is_what_the_nodes_say) {
    struct keys k = keys_at(A);
    struct twi_endpoint seed = {.port = 1, .host = "seed"}, asked = {.port = 1, .host = "127.0.0.1"};
    struct twi_redirect redirect;
    struct twi_cluster_map *map = twi_cluster_map_create(&seed, 1);
    for (size_t node = 0; node < NODES; node++) {
        ask_map(map, node);
        assert_map(map);
    }
    redis_cluster_move_begin(&cluster, k.slot, B);
    static const char *const forms[] = {"ip", "unknown-endpoint", "hostname"};
    for (size_t form = redis_server_is_at_least(7, 0) ? 0 : 3; form < 3; form++) { /* before, addresses only */
        says(A, "OK", "CONFIG", "SET", "cluster-preferred-endpoint-type", forms[form]);
        says(A, "ASK", "GET", k.a);
        twi_redirect_read(links[A].reply, &asked, &redirect);
        assert_true(redirect.kind == TWI_REDIRECT_ASK && redirect.slot == k.slot);
        assert_int_equal(redirect.has_endpoint, form < 2);
        if (form == 2) break;
        assert_string_equal(redirect.to.host, "127.0.0.1");
        assert_int_equal(redirect.to.port, redis_cluster_server(&cluster, B)->port);
        ask_map(map, A);
        assert_map(map);
    }
    link_ask(&links[A], "CLUSTER", "SLOTS", NULL); /* no node has a name: nobody is anywhere */
    assert_true(twi_cluster_slots_valid(links[A].reply, links[A].count, &asked));
    if (redis_server_is_at_least(7, 0)) says(A, "OK", "CONFIG", "SET", "cluster-preferred-endpoint-type", "ip");
    redis_cluster_move_forget(&cluster, k.slot, B);
    twi_cluster_map_destroy(map);
}

/* ---- failovers --------------------------------------------------------------------------------------------------- */

static void read_info(size_t node, const char *field, char out[48]) {
    const char *info = link_ask(&links[node], "INFO", NULL)->text;
    const char *at = strstr(info, field);
    assert_non_null(at);
    snprintf(out, 48, "%.40s", at + strlen(field));
}

/* Goal: a new master knows nothing of a move that was under way: what has moved reads as nil there, and lies locked in
 * the target, which forgets whose the slot was (Redis 8 does not). With Valkey 8 both know of the move. The demoted one
 * answers MOVED, not READONLY. run_id is the same after the way there and back, master_replid is not, and a script can
 * read it. */
TEST(a_new_master_knows_nothing_of_a_move) {
    struct keys k = keys_at(A);
    char run_id[48], replid[48], there[48], back[48], again[48], slot[16];
    bool knows = is_valkey(), target_knows = redis_server_is_at_least(8, 0);
    snprintf(slot, sizeof slot, "%u", k.slot);
    says(A, "2", "EVAL", ADD, "2", k.a, k.b);
    read_info(A, "run_id:", run_id);
    read_info(A, "master_replid:", replid);
    redis_cluster_move_begin(&cluster, k.slot, B);
    move_key(k.b, A, B);
    redis_cluster_failover(&cluster, A_REPLICA);
    says(A, "MOVED", "GET", k.a);
    says(A, "MOVED", "EVAL", ADD, "1", k.a);
    says(A_REPLICA, "1", "GET", k.a);
    says(A_REPLICA, knows ? "ASK" : "nil", "GET", k.b);
    says(A_REPLICA, knows ? "TRYAGAIN" : "2", "EVAL", ADD, "2", k.a, k.c);
    says(B, target_knows ? "MOVED" : "CLUSTERDOWN", "GET",
         k.b); /* a target that has forgotten would not be told, too */
    says_asked(B, target_knows ? "1" : "CLUSTERDOWN", "GET", k.b);
    says(B, "1", "CLUSTER", "COUNTKEYSINSLOT", slot); /* all that shows that a part of the slot is there */
    read_info(A_REPLICA, "master_replid:", there);
    assert_string_not_equal(there, replid);
    redis_cluster_failover(&cluster, A);
    read_info(A, "run_id:", again);
    read_info(A, "master_replid:", back);
    assert_string_equal(again, run_id);
    assert_string_not_equal(back, replid);
    assert_string_not_equal(back, there);
    link_ask(&links[A], "EVAL", "return redis.call('INFO', 'replication')", "1", k.a, NULL);
    assert_non_null(strstr(links[A].reply->text, back));
}

/* Goal: a slot that nobody serves costs its own keys only, unless cluster-require-full-coverage says otherwise. It is
 * the last test: a node that has a message without these slots may believe for good that their owner does not claim
 * them (redis_cluster.c), and does not learn of them after a failover. */
TEST(a_slot_that_nobody_serves) {
    struct keys k = keys_at(A), other = keys_at(A), third = keys_at(A);
    struct twi_redirect redirect;
    struct twi_endpoint any = {.port = 1, .host = "a"};
    char slot[16], third_slot[16];
    snprintf(slot, sizeof slot, "%u", k.slot), snprintf(third_slot, sizeof third_slot, "%u", third.slot);
    says(A, "OK", "CLUSTER", "DELSLOTS", slot);
    says(A, "CLUSTERDOWN", "GET", k.a);
    twi_redirect_read(links[A].reply, &any, &redirect);
    assert_int_equal(redirect.kind, TWI_REDIRECT_UNSERVED);
    says(A, "1", "EVAL", ADD, "1", other.a);
    says(A, "OK", "CONFIG", "SET", "cluster-require-full-coverage", "yes");
    says(A, "OK", "CLUSTER", "DELSLOTS", third_slot); /* the node looks at its state again */
    says(A, "CLUSTERDOWN", "EVAL", ADD, "1", other.a);
    twi_redirect_read(links[A].reply, &any, &redirect);
    assert_int_equal(redirect.kind, TWI_REDIRECT_DOWN);
    says(A, "OK", "CONFIG", "SET", "cluster-require-full-coverage", "no");
    says(A, "OK", "CLUSTER", "ADDSLOTS", slot, third_slot);
    redis_cluster_wait(&cluster);
}

static int begin(void **state) {
    static const char *const options[] = {"--cluster-require-full-coverage", "no", NULL};
    redis_cluster_start(&cluster, 3, 1, options);
    for (size_t i = 0; i < NODES; i++) link_open(&links[i], redis_cluster_server(&cluster, i));
    return 0;
}

static int end(void **state) {
    for (size_t i = 0; i < NODES; i++) link_close(&links[i]);
    redis_cluster_destroy(&cluster);
    return 0;
}

int main(void) {
    redis_server_require();
    return test_run_with(begin, end);
}
