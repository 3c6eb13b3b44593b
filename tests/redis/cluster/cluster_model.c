/* cluster_model.c -- the simulator's cluster and a real one answer alike: the same commands go to both, node by node,
 * while slots move key by key, stop half-way, and a master fails over in the middle.
 * Method: as in script_model.c. Nodes have the same ports and ids in both, so redirects are compared by the letter. */
#include "tests/redis/alike.h"
#include "tests/redis/cluster/cluster_link.h"
#include "tests/sim/cluster_model.h"

#include <inttypes.h>

#include "batch.lua.h"
#include "sync/wire/cluster_map.h"

enum { A, B, C, A_REPLICA, NODES, TAGS = 3, NAMES = 4 };

struct tag {
    int number;
    uint32_t slot;
    uint64_t last; /* number of its ledger, as far as was answered */
    int to;        /* the slot moves there; -1: it does not move */
    struct twi_bytes sent;
};

struct both {
    struct test_prng prng;
    struct redis_cluster real;
    struct cluster_model model;
    struct link links[NODES];
    struct cluster_model_link modelled[NODES];
    struct twi_reader *reader;
    struct tag tags[TAGS];
    uint64_t seen_ok, seen_ask, seen_moved, seen_tryagain, seen_noscript, seen_error;
};

static struct both both;

static const struct twi_node *model_answer(int node, const struct twi_bytes *command, size_t *count) {
    static struct model_word words[256];
    const struct twi_node *nodes = NULL;
    struct twi_bytes reply = {0};
    size_t word_count, used;
    assert_true(redis_model_parse(command->data, command->size, words, 256, &word_count, &used));
    assert_true(cluster_model_run(&both.model, node, &both.modelled[node], words, word_count, &reply));
    assert_true(twi_reader_feed(both.reader, reply.data, reply.size));
    assert_int_equal(twi_reader_next(both.reader, &nodes, count), TWI_WIRE_DONE);
    twi_bytes_free(&reply);
    return nodes;
}

static void note(const struct twi_node *reply) {
    both.seen_ok += reply[0].type == TWI_NODE_ARRAY;
    both.seen_ask += twi_node_is(reply, "ASK");
    both.seen_moved += twi_node_is(reply, "MOVED");
    both.seen_tryagain += twi_node_is(reply, "TRYAGAIN");
    both.seen_noscript += twi_node_is(reply, "NOSCRIPT");
    both.seen_error += reply[0].type == TWI_NODE_ERROR;
}

/* Returns the reply that both gave. */
static const struct twi_node *ask_both(int node, const struct twi_bytes *command) {
    size_t model_count;
    const struct twi_node *real = link_send(&both.links[node], command);
    size_t count = both.links[node].count;
    if (real[0].type == TWI_NODE_ARRAY && count > 8)
        for (int i = 0; i < NODES; i++) both.model.nodes[i].redis.now_ms = real[2].integer; /* one clock for all */
    const struct twi_node *model = model_answer(node, command, &model_count);
    assert_alike(node, real, count, model, model_count);
    note(real);
    return real;
}

static const struct twi_node *ask_both_words(int node, const char *a, const char *b, const char *c) {
    struct twi_bytes command = {0};
    const char *words[] = {a, b, c};
    size_t count = c ? 3 : b ? 2 : 1;
    twi_wire_begin(&command, count);
    for (size_t i = 0; i < count; i++) twi_wire_put_text(&command, words[i]);
    const struct twi_node *reply = ask_both(node, &command);
    twi_bytes_free(&command);
    return reply;
}

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

/* A batch of the tag's ledger, with some of its counters, in the order of their names. */
static void encode(const struct tag *tag, bool eval, uint64_t number, uint32_t counters, struct twi_bytes *out) {
    char name[64];
    size_t count = (size_t)__builtin_popcount(counters);
    out->size = 0;
    twi_wire_begin(out, 3 + 2 + count + 8 + (count ? 3 + count : 0));
    twi_wire_put_text(out, eval ? "EVAL" : "EVALSHA");
    twi_wire_put_text(out, eval ? twi_script_batch : twi_script_batch_sha1);
    twi_wire_put_u64(out, 2 + count);
    snprintf(name, sizeof name, "tw:ledger:{%d}:%032d", tag->number, 7);
    twi_wire_put_text(out, name);
    snprintf(name, sizeof name, "tw:marker:{%d}", tag->number);
    twi_wire_put_text(out, name);
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "k%d:{%d}", i, tag->number);
        if (counters & 1u << i) twi_wire_put_text(out, name);
    }
    snprintf(name, sizeof name, "%016" PRIx64, number);
    twi_wire_put_text(out, "1");
    twi_wire_put_u64(out, number);
    twi_wire_put_u64(out, number ? number - 1 : 0);
    twi_wire_put_text(out, name);
    twi_wire_put_text(out, "86400000");
    twi_wire_put_u64(out, number * 10);
    twi_wire_put_u64(out, number);
    twi_wire_put_text(out, "marker");
    if (count == 0) return;
    twi_wire_put_text(out, "e");
    twi_wire_put_u64(out, 0);
    twi_wire_put_u64(out, count);
    for (size_t i = 0; i < count; i++) twi_wire_put_i64(out, (int64_t)i + 1);
}

static void send_batch(int node, struct tag *tag, bool eval, uint64_t number, uint32_t counters) {
    encode(tag, eval, number, counters, &tag->sent);
    const struct twi_node *reply = ask_both(node, &tag->sent);
    if (reply[0].type == TWI_NODE_ARRAY && twi_node_is(&reply[1], "OK")) tag->last = number;
}

/* ---- moves, in both ---------------------------------------------------------------------------------------------- */

/* Of masters: a replica gets what is written some time later. */
static void compare_counts(void) {
    char slot[16];
    for (size_t t = 0; t < TAGS; t++)
        for (int node = 0; node < NODES; node++) {
            if (both.model.nodes[node].master != CLUSTER_MODEL_NOBODY) continue;
            snprintf(slot, sizeof slot, "%u", both.tags[t].slot);
            ask_both_words(node, "CLUSTER", "COUNTKEYSINSLOT", slot);
        }
}

static void begin_move(struct tag *tag) {
    int from = both.real.owners[tag->slot];
    tag->to = (from + 1 + (int)test_prng_below(&both.prng, 2)) % 3;
    redis_cluster_move_begin(&both.real, tag->slot, (size_t)tag->to);
    cluster_model_move_begin(&both.model, tag->slot, tag->to);
}

/* One of the keys that the source has. REPLACE: an earlier move may have left one of that name. False: it has none. */
static bool move_one(struct tag *tag) {
    char slot[16], port[16], name[128];
    size_t from = both.real.owners[tag->slot];
    snprintf(slot, sizeof slot, "%u", tag->slot);
    snprintf(port, sizeof port, "%d", redis_cluster_server(&both.real, (size_t)tag->to)->port);
    const struct twi_node *keys = link_ask(&both.links[from], "CLUSTER", "GETKEYSINSLOT", slot, "100", NULL);
    if (keys[0].integer == 0) return false;
    const struct twi_node *key = &keys[1 + test_prng_below(&both.prng, (uint64_t)keys[0].integer)];
    snprintf(name, sizeof name, "%s", key->text);
    link_ask(&both.links[from], "MIGRATE", "127.0.0.1", port, name, "0", "10000", "REPLACE", NULL);
    assert_string_equal(link_said(&both.links[from]), "OK");
    assert_true(cluster_model_move_key(&both.model, tag->slot, tag->to, name));
    return true;
}

static void end_move(struct tag *tag) {
    while (move_one(tag)) continue;
    redis_cluster_move_end(&both.real, tag->slot, (size_t)tag->to);
    cluster_model_move_end(&both.model, tag->slot, tag->to, UINT32_MAX);
    tag->to = -1;
}

static void forget_move(struct tag *tag) {
    redis_cluster_move_forget(&both.real, tag->slot, (size_t)tag->to);
    cluster_model_move_forget(&both.model, tag->slot, tag->to);
    tag->to = -1;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void copy_names(void) {
    for (size_t i = 0; i < both.real.count; i++) {
        both.model.nodes[i].port = both.real.nodes[i].server.port;
        snprintf(both.model.nodes[i].id, 41, "%.40s", both.real.nodes[i].id);
        memcpy(both.model.nodes[i].owners, both.real.owners, sizeof both.real.owners);
        link_open(&both.links[i], &both.real.nodes[i].server);
    }
    memcpy(both.model.owners, both.real.owners, sizeof both.real.owners);
}

/* The tags' slots are the masters', one each. */
static int begin(void **state) {
    static const struct twi_wire_limits limits = {.bytes_max = 8 << 20, .nodes_max = 1 << 19, .depth_max = 4};
    static const char *const options[] = {"--cluster-require-full-coverage", "no", NULL};
    char name[16];
    test_prng_seed(&both.prng, test_seed());
    redis_cluster_start(&both.real, 3, 1, options);
    cluster_model_init(&both.model, 3);
    cluster_model_replica(&both.model, A);
    const char *info = redis_server_ask(&both.real.nodes[A].server, "INFO", "server", NULL);
    both.model.keeps_moves = strstr(info, "valkey_version:") != NULL;
    copy_names();
    both.reader = twi_reader_create(&limits);
    for (int tag = 0, number = 0; tag < TAGS; number++) {
        snprintf(name, sizeof name, "%d", number);
        uint32_t slot = twi_key_slot_of(name, strlen(name));
        if (both.real.owners[slot] != tag) continue;
        both.tags[tag++] = (struct tag){.number = number, .slot = slot, .to = -1};
    }
    return 0;
}

static int end(void **state) {
    for (size_t i = 0; i < NODES; i++) link_close(&both.links[i]);
    for (size_t i = 0; i < TAGS; i++) twi_bytes_free(&both.tags[i].sent);
    twi_reader_free(both.reader);
    redis_cluster_destroy(&both.real);
    return 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void ask_batch(struct tag *tag) {
    int node = (int)test_prng_below(&both.prng, 3), owner = both.real.owners[tag->slot];
    bool at_owner = test_prng_chance(&both.prng, 1, 2), at_target = tag->to >= 0 && test_prng_chance(&both.prng, 2, 3);
    if (at_owner) node = owner;
    if (!at_owner && at_target) node = tag->to;
    if (test_prng_chance(&both.prng, node == owner ? 1 : 9, 10)) ask_both_words(node, "ASKING", NULL, NULL);
    bool eval = test_prng_chance(&both.prng, 1, 2);
    uint64_t number = test_prng_chance(&both.prng, 1, 8) ? 0 : tag->last + 1;
    if (test_prng_chance(&both.prng, 1, 12)) number++; /* a gap */
    uint32_t counters = (uint32_t)test_prng_below(&both.prng, 1u << NAMES);
    if (tag->sent.size != 0 && test_prng_chance(&both.prng, 1, 6))
        ask_both(node, &tag->sent); /* once more */
    else
        send_batch(node, tag, eval, number, number ? counters : 0);
}

/* Goal: the rows of cluster_facts.c in every mixture: batches and openings at the source, the target and elsewhere,
 * with ASKING and without, while some keys have moved, and after moves that were given up half-way. */
TEST(the_model_answers_as_a_cluster_does) {
    for (uint64_t i = 0; i < test_scale(3000); i++) {
        struct tag *tag = &both.tags[test_prng_below(&both.prng, TAGS)];
        switch (test_prng_below(&both.prng, 16)) {
        case 0:
            if (tag->to < 0) begin_move(tag);
            break;
        case 1:
        case 2:
            if (tag->to >= 0) move_one(tag);
            break;
        case 3:
            if (tag->to >= 0 && test_prng_chance(&both.prng, 1, 4)) end_move(tag);
            break;
        case 4:
            if (tag->to >= 0 && test_prng_chance(&both.prng, 1, 8)) forget_move(tag);
            break;
        case 5: { /* each node runs out of its scripts */
            int node = (int)test_prng_below(&both.prng, 3);
            link_ask(&both.links[node], "SCRIPT", "FLUSH", NULL);
            both.model.nodes[node].redis.has_script = false;
            both.modelled[node].is_asking = false;
            break;
        }
        case 6: compare_counts(); break;
        default: ask_batch(tag); break;
        }
    }
    print_message("# %d answers, %d errors: ASK %d, MOVED %d, TRYAGAIN %d, NOSCRIPT %d\n", (int)both.seen_ok,
                  (int)both.seen_error, (int)both.seen_ask, (int)both.seen_moved, (int)both.seen_tryagain,
                  (int)both.seen_noscript);
    assert_true(both.seen_ok && both.seen_ask && both.seen_moved && both.seen_tryagain && both.seen_noscript);
}

/* A batch of each tag, at each node, with and without ASKING. */
static void ask_everybody(void) {
    for (size_t t = 0; t < TAGS; t++)
        for (int node = 0; node < NODES; node++)
            for (int asking = 0; asking < 2; asking++) {
                if (asking) ask_both_words(node, "ASKING", NULL, NULL);
                send_batch(node, &both.tags[t], true, both.tags[t].last + 1, (uint32_t)(node + 1));
                if (asking) ask_both_words(node, "ASKING", NULL, NULL);
                send_batch(node, &both.tags[t], true, 0, 0);
            }
    compare_counts();
}

static void compare_maps(void) {
    struct twi_endpoint asked = {.port = 1, .host = "127.0.0.1"};
    for (int node = 0; node < 3; node++) {
        struct twi_cluster_map *maps[2];
        struct twi_bytes command = {0};
        size_t count;
        twi_wire_begin(&command, 2);
        twi_wire_put_text(&command, "CLUSTER");
        twi_wire_put_text(&command, "SLOTS");
        for (size_t i = 0; i < 2; i++) {
            maps[i] = twi_cluster_map_create(&asked, 1);
            const struct twi_node *reply =
                i == 0 ? link_send(&both.links[node], &command) : model_answer(node, &command, &count);
            if (i == 0) count = both.links[node].count;
            assert_true(twi_cluster_map_reply(maps[i], &asked, reply, count, 0, 0));
        }
        for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
            const struct twi_endpoint *a = twi_cluster_map_endpoint(maps[0], twi_cluster_map_owner(maps[0], slot));
            const struct twi_endpoint *b = twi_cluster_map_endpoint(maps[1], twi_cluster_map_owner(maps[1], slot));
            assert_true((!a && !b) || (a && b && twi_endpoint_equals(a, b)));
        }
        twi_cluster_map_destroy(maps[0]);
        twi_cluster_map_destroy(maps[1]);
        twi_bytes_free(&command);
    }
}

/* Goal: a failover in the middle of a move: the new master knows nothing of the move, the target forgets whose the slot
 * was, the demoted one answers MOVED; and all of it once more when the former master is back. */
TEST(a_failover_in_the_middle_of_a_move_is_answered_alike) {
    struct tag *tag = &both.tags[0];
    if (redis_server_is_at_least(8, 0) && !both.model.keeps_moves) {
        test_leave_out("the model forgets as Redis 7 does, and Redis 8 remembers whose the slot was: install Redis 7");
        return;
    }
    for (size_t t = 0; t < TAGS; t++) {
        if (both.tags[t].to >= 0) end_move(&both.tags[t]);
        if (both.real.owners[both.tags[t].slot] == t) continue;
        both.tags[t].to = (int)t;
        redis_cluster_move_begin(&both.real, both.tags[t].slot, t);
        cluster_model_move_begin(&both.model, both.tags[t].slot, (int)t);
        end_move(&both.tags[t]);
    }
    redis_cluster_wait(&both.real); /* the replica learns of moves when the nodes talk */
    ask_everybody();
    compare_maps();
    tag->to = B;
    redis_cluster_move_begin(&both.real, tag->slot, B);
    cluster_model_move_begin(&both.model, tag->slot, B);
    assert_true(move_one(tag) && move_one(tag));
    ask_everybody();
    for (int replica = A_REPLICA; replica >= A; replica -= A_REPLICA) { /* there, and back */
        cluster_model_replicate(&both.model, replica);
        redis_cluster_failover(&both.real, (size_t)replica);
        cluster_model_fail_over(&both.model, replica);
        for (int node = 0; node < NODES; node++) cluster_model_gossip(&both.model, node);
        for (int node = 0; node < NODES; node++) both.model.nodes[node].redis.has_script = true;
        ask_everybody();
        compare_maps();
    }
}

int main(void) {
    redis_server_require();
    if (!redis_server_is_at_least(7, 0))
        test_skip_program(
            "nodes of Redis 6 disagree for a while about owners of slots, the model never: install Redis 7");
    return test_run_with(begin, end);
}
