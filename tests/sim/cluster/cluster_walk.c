/* cluster_walk.c -- one engine's way through a cluster that is never at rest: the map (cluster_map.*), what it does
 * with redirects and how long it waits (redirect.*), against the simulator's cluster. No network: a command is answered
 * at once.
 *
 * Slots move key by key, and only some nodes learn of the end of a move; nodes talk late; a master hands over or dies,
 * and its replica takes over, up to date. Counters are strings, fields of hashes and members of sorted sets.
 * Always true: each batch is applied once, in order, whatever it was answered before; refreshes are at least a second
 * apart; in 15 simulated seconds of calm every tag makes progress.
 * Covers: sync/turn/nodes.c, sync/message/refusal.c. */
#include "sync/wire/cluster_map.h"
#include "sync/wire/cluster_nodes.h"
#include "tests/sim/cluster_model.h"
#include "tests/support/support.h"

#include <inttypes.h>

enum { MASTERS = 4, TAGS = 6, STEP_MS = 5 };

struct walker {
    int number; /* the tag */
    char shape; /* of its counter: 'h', 'z', or 0: a string */
    uint32_t slot;
    uint64_t next; /* of its ledger; 0: it is not opened yet */
    struct twi_detour detour;
    bool is_asked; /* the next try goes to `ask`, behind ASKING */
    struct twi_endpoint ask;
    bool use_eval;
    int to;        /* the slot moves there; -1: it does not move */
    uint64_t hops; /* MOVED and ASK since the last answer */
};

struct walk {
    struct test_prng prng;
    struct cluster_model cluster;
    struct cluster_model_link links[CLUSTER_MODEL_NODES];
    struct twi_cluster_map *map;
    struct twi_reader *reader;
    struct walker tags[TAGS];
    int follows; /* whom a dead node will follow */
    int64_t now_ms, refreshed_ms;
    uint64_t refreshes, moved, asked, tryagain, held;
};

static struct walk walk;

/* ---- one command ------------------------------------------------------------------------------------------------- */

static int node_at(const struct twi_endpoint *endpoint) {
    for (int i = 0; i < walk.cluster.count; i++)
        if (walk.cluster.nodes[i].port == endpoint->port) return i;
    return -1;
}

/* NULL: the node is down. */
static const struct twi_node *say_to(int node, const struct twi_bytes *command, size_t *count) {
    static struct model_word words[64];
    const struct twi_node *nodes = NULL;
    struct twi_bytes reply = {0};
    size_t word_count, used;
    assert_true(redis_model_parse(command->data, command->size, words, 64, &word_count, &used));
    bool answered = cluster_model_run(&walk.cluster, node, &walk.links[node], words, word_count, &reply);
    if (answered) {
        assert_true(twi_reader_feed(walk.reader, reply.data, reply.size));
        assert_int_equal(twi_reader_next(walk.reader, &nodes, count), TWI_WIRE_DONE);
    }
    twi_bytes_free(&reply);
    return nodes;
}

static const struct twi_node *say_words(int node, const char *a, const char *b, size_t *count) {
    struct twi_bytes command = {0};
    twi_wire_begin(&command, b ? 2 : 1);
    twi_wire_put_text(&command, a);
    if (b) twi_wire_put_text(&command, b);
    const struct twi_node *reply = say_to(node, &command, count);
    twi_bytes_free(&command);
    return reply;
}

/* Ledger, marker and one counter: an opening has no counter. */
static void encode(const struct walker *tag, struct twi_bytes *out) {
    char name[64];
    const char kind[] = {tag->shape ? tag->shape : 'e', tag->shape ? 'e' : '\0', '\0'};
    bool opens = tag->next == 0;
    twi_wire_begin(out, opens ? 13 : tag->shape ? 19 : 18);
    twi_wire_put_text(out, tag->use_eval ? "EVAL" : "EVALSHA");
    twi_wire_put_text(out, "script");
    twi_wire_put_u64(out, opens ? 2 : 3);
    snprintf(name, sizeof name, "tw:ledger:{%d}:%032d", tag->number, 7);
    twi_wire_put_text(out, name);
    snprintf(name, sizeof name, "tw:marker:{%d}", tag->number);
    twi_wire_put_text(out, name);
    snprintf(name, sizeof name, "k:{%d}", tag->number);
    if (!opens) twi_wire_put_text(out, name);
    snprintf(name, sizeof name, "%016" PRIx64, tag->next);
    twi_wire_put_text(out, "1");
    twi_wire_put_u64(out, tag->next);
    twi_wire_put_u64(out, opens ? 0 : tag->next - 1);
    twi_wire_put_text(out, name);
    twi_wire_put_text(out, "86400000");
    twi_wire_put_u64(out, tag->next);
    twi_wire_put_u64(out, 0);
    twi_wire_put_text(out, "marker");
    if (opens) return;
    twi_wire_put_text(out, kind);
    twi_wire_put_u64(out, 0);
    twi_wire_put_u64(out, 1);
    twi_wire_put_u64(out, 1);
    if (tag->shape) twi_wire_put_text(out, "inner");
}

/* ---- the engine's side ------------------------------------------------------------------------------------------- */

static void hold(struct walker *tag) {
    tag->is_asked = false;
    walk.held++;
    twi_cluster_map_want(walk.map, walk.now_ms);
    twi_detour_hold(&tag->detour, walk.now_ms, test_prng_next(&walk.prng));
}

static void take_redirect(struct walker *tag, const struct twi_node *error, const struct twi_endpoint *asked) {
    struct twi_redirect redirect;
    if (twi_node_is(error, "NOSCRIPT")) {
        tag->use_eval = true; /* with ASKING once more, if it had one: `is_asked` stays */
        return;
    }
    twi_redirect_read(error, asked, &redirect);
    assert_true(redirect.kind != TWI_REDIRECT_NONE && redirect.kind != TWI_REDIRECT_CROSSSLOT);
    tag->is_asked = redirect.kind == TWI_REDIRECT_ASK;
    if (tag->is_asked) tag->ask = redirect.to;
    if (redirect.kind == TWI_REDIRECT_MOVED)
        assert_true(twi_cluster_map_moved(walk.map, redirect.slot, &redirect.to, walk.now_ms));
    if (redirect.kind == TWI_REDIRECT_UNSERVED || redirect.kind == TWI_REDIRECT_DOWN)
        twi_cluster_map_want(walk.map, walk.now_ms);
    walk.moved += redirect.kind == TWI_REDIRECT_MOVED;
    walk.asked += redirect.kind == TWI_REDIRECT_ASK;
    walk.tryagain += redirect.kind == TWI_REDIRECT_TRYAGAIN;
    twi_detour_note(&tag->detour, redirect.kind, walk.now_ms, test_prng_next(&walk.prng));
    tag->hops += redirect.kind == TWI_REDIRECT_MOVED || redirect.kind == TWI_REDIRECT_ASK;
    assert_true(tag->hops <= 1 || tag->detour.again_ms > walk.now_ms);
    assert_true(tag->hops <= TWI_REDIRECT_HOPS_MAX || tag->detour.is_held);
}

static void try_batch(struct walker *tag) {
    const struct twi_endpoint *home = twi_cluster_map_endpoint(walk.map, twi_cluster_map_owner(walk.map, tag->slot));
    struct twi_bytes command = {0};
    size_t count;
    if (!tag->is_asked && !home) {
        hold(tag);
        return;
    }
    struct twi_endpoint there = tag->is_asked ? tag->ask : *home;
    int node = node_at(&there);
    if (tag->is_asked) say_words(node, "ASKING", NULL, &count);
    encode(tag, &command);
    const struct twi_node *reply = say_to(node, &command, &count);
    twi_bytes_free(&command);
    if (!reply) {
        hold(tag);
    } else if (reply[0].type == TWI_NODE_ERROR) {
        take_redirect(tag, reply, &there);
    } else {
        assert_true(twi_node_is(&reply[1], "OK")); /* never DUP, GAP or GONE: it was done once, or not at all */
        tag->next++;
        tag->is_asked = tag->use_eval = false;
        tag->hops = 0;
        twi_detour_end(&tag->detour);
    }
}

static void refresh(void) {
    struct twi_endpoint whom;
    size_t count;
    if (walk.now_ms < twi_cluster_map_due_ms(walk.map)) return;
    twi_cluster_map_ask(walk.map, test_prng_next(&walk.prng), &whom);
    const struct twi_node *reply = say_words(node_at(&whom), "CLUSTER", "SLOTS", &count);
    if (!reply) {
        twi_cluster_map_failed(walk.map, false, walk.now_ms, test_prng_next(&walk.prng));
        return;
    }
    assert_true(walk.refreshes++ == 0 || walk.now_ms - walk.refreshed_ms >= 1000);
    walk.refreshed_ms = walk.now_ms;
    assert_true(twi_cluster_map_reply(walk.map, &whom, reply, count, walk.now_ms, test_prng_next(&walk.prng)));
}

/* One step of time. */
static void go_on(void) {
    walk.now_ms += STEP_MS;
    for (int i = 0; i < walk.cluster.count; i++) walk.cluster.nodes[i].redis.now_ms = walk.now_ms;
    refresh();
    for (int i = 0; i < TAGS; i++)
        if (walk.now_ms >= walk.tags[i].detour.again_ms) try_batch(&walk.tags[i]);
    twi_cluster_map_sweep(walk.map, walk.now_ms);
}

/* ---- the cluster's side ------------------------------------------------------------------------------------------ */

static bool is_leading(int node) {
    return !walk.cluster.nodes[node].is_down && walk.cluster.nodes[node].master == CLUSTER_MODEL_NOBODY;
}

static void move(struct walker *tag) {
    int to = (int)test_prng_below(&walk.prng, (uint64_t)walk.cluster.count);
    int from = walk.cluster.owners[tag->slot];
    if (tag->to < 0) {
        /* Both know of the move before: else Redis refuses to begin another. */
        if (to == from || !is_leading(to) || walk.cluster.nodes[from].owners[tag->slot] != from) return;
        if (walk.cluster.nodes[to].owners[tag->slot] != from) return;
        cluster_model_move_begin(&walk.cluster, tag->slot, tag->to = to);
    } else if (!cluster_model_move_key(&walk.cluster, tag->slot, tag->to, NULL)) {
        uint32_t told = (uint32_t)test_prng_next(&walk.prng); /* perhaps neither end, or only the source */
        cluster_model_move_end(&walk.cluster, tag->slot, tag->to, told);
        tag->to = -1;
    }
}

/* A master hands over, or dies, with no move under way. */
static void fail_over(int replica) {
    int master = walk.cluster.nodes[replica].master;
    for (int i = 0; i < TAGS; i++)
        if (walk.tags[i].to >= 0) return;
    for (int i = 0; i < walk.cluster.count; i++) cluster_model_gossip(&walk.cluster, i); /* no end of a move is open */
    cluster_model_replicate(&walk.cluster, replica);
    walk.cluster.nodes[master].is_down = test_prng_chance(&walk.prng, 1, 2);
    cluster_model_fail_over(&walk.cluster, replica);
    walk.follows = replica;
}

/* The dead one comes back, and follows the new master. */
static void revive(int node) {
    walk.cluster.nodes[node].is_down = false;
    walk.cluster.nodes[node].master = (uint8_t)walk.follows;
    cluster_model_gossip(&walk.cluster, node);
    cluster_model_replicate(&walk.cluster, node);
}

static void change_masters(void) {
    for (int i = 0; i < walk.cluster.count; i++) {
        if (walk.cluster.nodes[i].is_down) {
            revive(i);
            return;
        }
        if (walk.cluster.nodes[i].master != CLUSTER_MODEL_NOBODY) {
            fail_over(i);
            return;
        }
    }
}

static void disturb(void) {
    if (test_prng_chance(&walk.prng, 1, 4)) move(&walk.tags[test_prng_below(&walk.prng, TAGS)]);
    if (test_prng_chance(&walk.prng, 1, 60))
        cluster_model_gossip(&walk.cluster, (int)test_prng_below(&walk.prng, (uint64_t)walk.cluster.count));
    if (test_prng_chance(&walk.prng, 1, 200))
        walk.cluster.nodes[test_prng_below(&walk.prng, MASTERS)].redis.has_script = false;
    if (test_prng_chance(&walk.prng, 1, 300)) change_masters();
}

/* Two tags in one slot would move it to two nodes at a time. */
static bool is_taken(int number) {
    for (int i = 0; i < number; i++)
        if (walk.tags[i].slot == walk.tags[number].slot) return true;
    return false;
}

static void begin(uint64_t seed) {
    static const struct twi_wire_limits limits = {.bytes_max = 8 << 20, .nodes_max = 1 << 19, .depth_max = 4};
    struct twi_endpoint seeds[2] = {{.port = 7001, .host = "127.0.0.1"}, {.port = 7003, .host = "127.0.0.1"}};
    char name[16];
    memset(&walk, 0, sizeof walk);
    test_prng_seed(&walk.prng, seed);
    cluster_model_init(&walk.cluster, MASTERS);
    cluster_model_replica(&walk.cluster, (int)test_prng_below(&walk.prng, MASTERS));
    walk.map = twi_cluster_map_create(seeds, 2);
    walk.reader = twi_reader_create(&limits);
    walk.now_ms = INT64_C(1700000000000);
    for (int i = 0; i < TAGS; i++) {
        struct walker *tag = &walk.tags[i];
        do {
            tag->number = (int)test_prng_below(&walk.prng, 1000) * TAGS + i;
            snprintf(name, sizeof name, "%d", tag->number);
            tag->slot = twi_key_slot_of(name, strlen(name));
        } while (is_taken(i));
        tag->to = -1;
        tag->shape = "\0hz"[i % 3];
    }
}

/* Every move ends, and the nodes talk. */
static void calm_down(void) {
    for (int i = 0; i < TAGS; i++)
        while (walk.tags[i].to >= 0) move(&walk.tags[i]);
    for (int i = 0; i < walk.cluster.count; i++) cluster_model_gossip(&walk.cluster, i);
}

static void check(void) {
    char name[32];
    uint64_t before[TAGS];
    calm_down();
    for (int i = 0; i < TAGS; i++) before[i] = walk.tags[i].next;
    for (int64_t until_ms = walk.now_ms + 15000; walk.now_ms < until_ms;) go_on();
    assert_true(twi_cluster_map_is_valid(walk.map));
    for (int i = 0; i < TAGS; i++) {
        const struct walker *tag = &walk.tags[i];
        int owner = walk.cluster.owners[tag->slot];
        assert_true(tag->next > before[i] && tag->next > 1 && !tag->detour.is_held);
        assert_int_equal(node_at(twi_cluster_map_endpoint(walk.map, twi_cluster_map_owner(walk.map, tag->slot))),
                         owner);
        snprintf(name, sizeof name, "k:{%d}", tag->number);
        struct redis_model *redis = &walk.cluster.nodes[owner].redis;
        const struct model_key *counter =
            tag->shape ? redis_model_find_inner(redis, name, "inner") : redis_model_find(redis, name);
        assert_non_null(counter);
        assert_i64_equal(counter->value, tag->next - 1);
    }
    twi_cluster_map_destroy(walk.map);
    twi_reader_free(walk.reader);
}

TEST(each_batch_finds_its_way_once) {
    static uint64_t seeds[4096];
    size_t count = test_seeds("cluster_walk", test_scale(6), seeds, 4096);
    uint64_t moved = 0, asked = 0, tryagain = 0, held = 0, refreshes = 0;
    for (size_t i = 0; i < count; i++) {
        test_seed_begins("cluster_walk", seeds[i]);
        begin(seeds[i]);
        for (int step = 0; step < 2500; step++) {
            disturb();
            go_on();
        }
        moved += walk.moved, asked += walk.asked, tryagain += walk.tryagain, held += walk.held;
        refreshes += walk.refreshes;
        check();
        test_seed_ends();
    }
    print_message("# MOVED %d, ASK %d, TRYAGAIN %d, held %d, refreshes %d\n", (int)moved, (int)asked, (int)tryagain,
                  (int)held, (int)refreshes);
    assert_true(moved && asked && tryagain && refreshes);
}
