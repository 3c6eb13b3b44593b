/* cluster_world.c -- see cluster_world.h. Nodes of the cluster are places of the world from WORLD_ASIDE on. */
#include "tests/sim/cluster_world.h"

#include <string.h>

#define NOBODY CLUSTER_MODEL_NOBODY

static bool one_in(struct cluster_world *cluster, uint32_t n) {
    return test_prng_chance(&cluster->world->prng, 1, n);
}

static int64_t later(const struct cluster_world *cluster, int64_t low_ms, int64_t high_ms) {
    return cluster->world->now_ms + test_prng_between(&cluster->world->prng, low_ms, high_ms);
}

/* False: another time. */
static bool strikes(struct cluster_world *cluster, enum cluster_fault fault) {
    uint32_t of_10000 = cluster->of_10000[fault];
    return of_10000 && test_prng_chance(&cluster->world->prng, of_10000, 10000);
}

static struct cluster_model_node *node_of(struct cluster_world *cluster, int index) {
    return &cluster->model.nodes[index];
}

static int any_node(struct cluster_world *cluster) {
    return (int)test_prng_below(&cluster->world->prng, CLUSTER_MODEL_NODES);
}

/* It runs, and is the master of its slots. */
static bool is_leading(const struct cluster_world *cluster, int index) {
    const struct cluster_model_node *node = &cluster->model.nodes[index];
    const struct cluster_server *server = &cluster->servers[index];
    return !node->is_down && node->master == NOBODY && server->taken_over_by < 0 && server->takes_over_ms == 0;
}

static int replica_of(const struct cluster_world *cluster, int master) {
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++)
        if (cluster->model.nodes[i].master == master && !cluster->model.nodes[i].is_down) return i;
    return -1;
}

/* What its master has written so far reaches the replica. */
static void replicate(struct cluster_world *cluster, int replica) {
    cluster_model_replicate(&cluster->model, replica);
    cluster->servers[replica].heard_ms = cluster->world->now_ms;
    cluster->servers[replica].heard = cluster->scripts;
}

static void cut_off(struct cluster_world *cluster, int index) {
    world_cut_off(cluster->world, WORLD_ASIDE + index);
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

static int place_of(struct world *world, const struct twi_endpoint *endpoint) {
    struct cluster_world *cluster = world->beyond;
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++)
        if (cluster->model.nodes[i].port == endpoint->port)
            return cluster->model.nodes[i].is_down ? WORLD_NOWHERE : WORLD_ASIDE + i;
    if (endpoint->port > 6999) return WORLD_NOWHERE;
    int first = any_node(cluster); /* one of the two names of the URL */
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++)
        if (!cluster->model.nodes[(first + i) % CLUSTER_MODEL_NODES].is_down)
            return WORLD_ASIDE + (first + i) % CLUSTER_MODEL_NODES;
    return WORLD_NOWHERE;
}

static bool is(const struct model_word *word, const char *text) {
    return word->size >= strlen(text) && memcmp(word->data, text, strlen(text)) == 0;
}

/* Whether the replica has what came over the connection. If nothing did, Redis says at once that it has. */
static void answer_wait(struct cluster_world *cluster, const struct world_connection *connection,
                        struct twi_bytes *reply) {
    int index = connection->aside - WORLD_ASIDE, replica = replica_of(cluster, index);
    uint32_t port = (uint32_t)node_of(cluster, index)->port - 7001;
    bool hears = cluster->is_calm && !cluster->is_deaf;
    bool has_all = replica >= 0 && (hears || cluster->servers[replica].heard >= connection->wrote);
    if (has_all && port < CLUSTER_WORLD_PORTS) cluster->waits[connection->index][port]++;
    twi_bytes_add(reply, has_all ? ":1\r\n" : ":0\r\n", 4);
}

static void answer(struct world *world, struct world_connection *connection, const struct model_word *words,
                   size_t count, struct twi_bytes *reply) {
    struct cluster_world *cluster = world->beyond;
    struct cluster_model_link link = {.is_asking = connection->is_asking};
    if (is(&words[0], "WAIT")) {
        answer_wait(cluster, connection, reply);
        return;
    }
    size_t before = reply->size;
    bool runs = cluster_model_run(&cluster->model, connection->aside - WORLD_ASIDE, &link, words, count, reply);
    assert_true(runs); /* else the connection was cut off */
    bool has_written = !cluster->waits_own || !memmem(reply->data + before, reply->size - before, "\nDUP\r", 5);
    cluster->scripts += is(&words[0], "EVAL"); /* EVALSHA, too */
    if (is(&words[0], "EVAL") && has_written) connection->wrote = cluster->scripts;
    connection->is_asking = link.is_asking;
}

static struct redis_model *redis_at(struct world *world, int place) {
    return &((struct cluster_world *)world->beyond)->model.nodes[place - WORLD_ASIDE].redis;
}

/* ---- moves ------------------------------------------------------------------------------------------------------- */

static bool is_free(const struct cluster_world *cluster, const struct cluster_move *move, int to) {
    int from = cluster->model.owners[move->slot];
    bool lead = is_leading(cluster, from) && is_leading(cluster, to);
    /* Both know of the move before: else Redis refuses to begin another. */
    return to != from && lead && cluster->model.nodes[from].owners[move->slot] == from &&
           cluster->model.nodes[to].owners[move->slot] == from;
}

/* Some nodes hear of it at once, the others when the nodes talk. */
static void end_move(struct cluster_world *cluster, struct cluster_move *move) {
    uint32_t from = 1u << cluster->model.owners[move->slot], to = 1u << move->to;
    uint32_t told = (uint32_t)test_prng_next(&cluster->world->prng);
    const uint32_t choices[] = {UINT32_MAX, from | to, to, from, told};
    told = choices[test_prng_below(&cluster->world->prng, 5)];
    cluster_model_move_end(&cluster->model, move->slot, move->to, told);
    move->state = MOVE_NONE;
    move->ended_ms = cluster->world->now_ms;
}

static void begin_move(struct cluster_world *cluster, struct cluster_move *move) {
    int to = any_node(cluster);
    bool at_once = strikes(cluster, CLUSTER_MOVE_AT_ONCE);
    if (!at_once && !strikes(cluster, CLUSTER_MOVE)) return;
    if (!is_free(cluster, move, to)) return;
    /* A replica that lagged may have keys of the slot: Redis would say BUSYKEY. */
    if (cluster_model_keys_in_slot(&cluster->model, to, move->slot) != 0) return;
    if (cluster->lags) redis_model_wipe_slot(&node_of(cluster, to)->redis, move->slot); /* and the books of such keys */
    cluster->happened[at_once ? CLUSTER_MOVE_AT_ONCE : CLUSTER_MOVE]++;
    cluster_model_move_begin(&cluster->model, move->slot, move->to = to);
    move->state = MOVE_RUNS;
    move->begun_ms = cluster->world->now_ms;
    move->again_ms = later(cluster, 0, 100);
    if (!at_once) return;
    while (cluster_model_move_key(&cluster->model, move->slot, to, NULL)) {}
    end_move(cluster, move);
}

/* The source keeps its flag, unless nothing has moved: without it, the slot would be split. */
static void mover_dies(struct cluster_world *cluster, struct cluster_move *move) {
    bool has_moved = cluster_model_keys_in_slot(&cluster->model, move->to, move->slot) != 0;
    cluster->happened[CLUSTER_MOVER_DIES]++;
    move->state = MOVE_LEFT;
    move->again_ms = later(cluster, 50, 3000);
    if (one_in(cluster, 2)) node_of(cluster, move->to)->importing[move->slot] = NOBODY;
    if (has_moved && !cluster->splits) return;
    if (one_in(cluster, 2)) node_of(cluster, cluster->model.owners[move->slot])->migrating[move->slot] = NOBODY;
}

/* The owner gets the keys that are at the other end, but for those that it has. */
static void take_back(struct cluster_world *cluster, struct cluster_move *move) {
    struct redis_model *from = &node_of(cluster, move->to)->redis;
    struct redis_model *to = &node_of(cluster, cluster->model.owners[move->slot])->redis;
    for (size_t i = 0; i < from->store.keys_end; i++) {
        char name[MODEL_NAME_MAX];
        memcpy(name, from->store.keys[i].name, sizeof name);
        bool is_here = from->store.keys[i].type != MODEL_NONE && !redis_model_is_inner(name);
        if (!is_here || twi_key_slot_of(name, strlen(name)) != move->slot) continue;
        if (!redis_model_find(to, name)) (void)redis_model_move(from, to, name);
    }
    if (!cluster->splits) redis_model_move_books(from, to, move->slot); /* of keys that have expired */
    redis_model_wipe_slot(from, move->slot);
    cluster_model_move_forget(&cluster->model, move->slot, move->to);
    move->state = MOVE_NONE;
}

/* Somebody finds the slot half-way. */
static void resume(struct cluster_world *cluster, struct cluster_move *move) {
    int from = cluster->model.owners[move->slot];
    if (!is_leading(cluster, from) || !is_leading(cluster, move->to)) return;
    if (cluster->splits) {
        take_back(cluster, move);
        return;
    }
    cluster_model_move_begin(&cluster->model, move->slot, move->to);
    move->state = MOVE_RUNS;
}

static void go_on_moving(struct cluster_world *cluster, struct cluster_move *move) {
    int from = cluster->model.owners[move->slot];
    if (!is_leading(cluster, from) || !is_leading(cluster, move->to)) return;
    if (strikes(cluster, CLUSTER_MOVER_DIES)) {
        mover_dies(cluster, move);
        return;
    }
    move->moved_ms = cluster->world->now_ms;
    if (!cluster_model_move_key(&cluster->model, move->slot, move->to, NULL)) end_move(cluster, move);
    move->again_ms = one_in(cluster, 12) ? later(cluster, 20, 1000) : later(cluster, 0, 20); /* it may stop */
}

static void step_moves(struct cluster_world *cluster) {
    for (size_t i = 0; i < cluster->move_count; i++) {
        struct cluster_move *move = &cluster->moves[i];
        if (move->state == MOVE_NONE)
            begin_move(cluster, move);
        else if (cluster->world->now_ms < move->again_ms)
            continue;
        else if (move->state == MOVE_RUNS)
            go_on_moving(cluster, move);
        else
            resume(cluster, move);
    }
}

static bool has_move(const struct cluster_world *cluster, int index) {
    for (size_t i = 0; i < cluster->move_count; i++) {
        const struct cluster_move *move = &cluster->moves[i];
        if (move->state != MOVE_NONE && (move->to == index || cluster->model.owners[move->slot] == index)) return true;
    }
    return false;
}

/* ---- masters ----------------------------------------------------------------------------------------------------- */

static bool may_go(struct cluster_world *cluster, int index, enum cluster_fault fault) {
    if (!is_leading(cluster, index)) return false;
    if (cluster->splits || !has_move(cluster, index) || fault == CLUSTER_RESTART) return true;
    return fault != CLUSTER_EMPTY && cluster->model.keeps_moves;
}

static void another_life(struct cluster_world *cluster, int index) {
    struct redis_model *redis = &node_of(cluster, index)->redis;
    redis->run += CLUSTER_MODEL_NODES;
    redis->history += CLUSTER_MODEL_NODES;
    redis->has_script = redis->has_live_script = false;
}

/* True if a counter that has moved away from this master since the replica last heard of it is not at the replica. It
 * was made meanwhile, so it is newer than the ledger that the replica has. */
static bool lacks_what_moved(struct cluster_world *cluster, int master, int replica) {
    for (size_t i = 0; i < cluster->move_count; i++) {
        const struct cluster_move *move = &cluster->moves[i];
        bool is_source = move->state != MOVE_NONE && cluster->model.owners[move->slot] == master;
        if (!is_source || cluster->servers[replica].heard_ms > move->moved_ms) continue;
        const struct redis_model *target = &node_of(cluster, move->to)->redis;
        for (size_t k = 0; k < target->store.keys_end; k++) {
            const struct model_key *key = &target->store.keys[k];
            bool has_counts = key->type == MODEL_INTEGER || key->type == MODEL_HASH || key->type == MODEL_ZSET;
            bool is_here = has_counts && !redis_model_is_inner(key->name) &&
                           twi_key_slot_of(key->name, strlen(key->name)) == move->slot;
            if (is_here && !redis_model_find(&node_of(cluster, replica)->redis, key->name)) return true;
        }
    }
    return false;
}

/* What came by a move may be what replicas of its former home had: then that counts, and is in nobody's window. */
static bool lacks_what_came(const struct cluster_world *cluster, int master, int replica) {
    for (size_t i = 0; cluster->waits_count && i < cluster->move_count; i++) {
        const struct cluster_move *move = &cluster->moves[i];
        bool is_owner = cluster->model.owners[move->slot] == master;
        if (is_owner && move->ended_ms >= cluster->servers[replica].heard_ms) return true;
    }
    return false;
}

/* Of a slot that is on its way to its master, the replica may have keys of an earlier stay. Among them may be a ledger
 * that is older than what the source still has. */
static void forget_earlier_stay(struct cluster_world *cluster, const struct cluster_move *move, int replica) {
    if (cluster->servers[replica].heard_ms <= move->begun_ms)
        redis_model_wipe_slot(&node_of(cluster, replica)->redis, move->slot);
}

static void take_over(struct cluster_world *cluster, int replica) {
    int master = node_of(cluster, replica)->master;
    bool in_middle = has_move(cluster, master), has_all = !cluster->lags || one_in(cluster, 2);
    bool lacks = lacks_what_moved(cluster, master, replica) || lacks_what_came(cluster, master, replica);
    if (has_all || lacks) replicate(cluster, replica);
    for (size_t i = 0; i < cluster->move_count; i++) {
        struct cluster_move *move = &cluster->moves[i];
        bool concerns = move->to == master || cluster->model.owners[move->slot] == master;
        if (move->state == MOVE_NONE || !concerns) continue;
        if (move->to == master) forget_earlier_stay(cluster, move, replica);
        if (move->to == master) move->to = replica;
        if (cluster->model.keeps_moves) continue;
        move->state = MOVE_LEFT;
        move->again_ms = later(cluster, 100, 4000);
    }
    cluster_model_fail_over(&cluster->model, replica);
    cluster->servers[master].heard_ms = cluster->world->now_ms;
    cluster->happened[CLUSTER_IN_MIDDLE] += in_middle;
}

static void hand_over(struct cluster_world *cluster, int master) {
    int replica = replica_of(cluster, master);
    if (replica < 0 || !may_go(cluster, master, CLUSTER_HAND_OVER)) return;
    cluster->happened[CLUSTER_HAND_OVER]++;
    take_over(cluster, replica);
    if (one_in(cluster, 2) || cluster->waits_count) cut_off(cluster, master);
}

/* Its replica takes over, if it has one. */
static void stop(struct cluster_world *cluster, int master, enum cluster_fault fault) {
    struct cluster_server *server = &cluster->servers[master];
    bool leaves = fault == CLUSTER_CRASH || fault == CLUSTER_LINGER;
    int replica = replica_of(cluster, master);
    if (server->back_ms || !may_go(cluster, master, fault) || (leaves && replica < 0)) return;
    cluster->happened[fault]++;
    server->back_ms = later(cluster, 20, leaves ? 4000 : 600);
    server->takes_over_ms = leaves ? later(cluster, 0, 1500) : 0;
    if (fault == CLUSTER_LINGER) return;
    node_of(cluster, master)->is_down = true;
    cut_off(cluster, master);
    if (fault == CLUSTER_EMPTY) redis_model_wipe(&node_of(cluster, master)->redis);
    if (fault == CLUSTER_EMPTY && replica >= 0) replicate(cluster, replica);
    for (int i = 0; cluster->covers_whole && leaves && i < CLUSTER_MODEL_NODES; i++)
        if (i != master) cluster->servers[i].down_ms = server->takes_over_ms;
}

/* If it takes over, it has what its master has now. In the middle of a move that is one key, and not another: no engine
 * can know. */
static bool may_hear(const struct cluster_world *cluster, int master) {
    return !cluster->lags || cluster->splits || !has_move(cluster, master);
}

static void begin_to_follow(struct cluster_world *cluster, int index) {
    struct cluster_server *server = &cluster->servers[index];
    struct cluster_model_node *node = node_of(cluster, index);
    node->master = (uint8_t)server->taken_over_by;
    memcpy(node->owners, cluster->model.owners, sizeof node->owners);
    replicate(cluster, index);
    server->taken_over_by = -1;
    /* An engine that asks nothing until it leads again would take what WAIT says then for the earlier data. */
    if (cluster->waits_count) cut_off(cluster, index);
}

static void come_back(struct cluster_world *cluster, int index) {
    struct cluster_model_node *node = node_of(cluster, index);
    cluster->servers[index].back_ms = 0;
    if (node->is_down) another_life(cluster, index);
    node->is_down = false;
    if (cluster->servers[index].taken_over_by >= 0) begin_to_follow(cluster, index);
}

static void step_server(struct cluster_world *cluster, int index) {
    struct cluster_server *server = &cluster->servers[index];
    struct cluster_model_node *node = node_of(cluster, index);
    int64_t now_ms = cluster->world->now_ms;
    if (server->takes_over_ms && now_ms >= server->takes_over_ms) {
        int replica = replica_of(cluster, index);
        bool was_down = node->is_down;
        server->takes_over_ms = 0;
        node->is_down = true; /* it does not hear of it */
        if (replica >= 0) {
            take_over(cluster, replica);
            server->taken_over_by = replica;
        }
        node->is_down = was_down;
        if (server->back_ms <= now_ms) server->back_ms = later(cluster, 0, 3000);
    }
    bool may_come = server->taken_over_by < 0 || may_hear(cluster, server->taken_over_by);
    if (server->back_ms && now_ms >= server->back_ms && server->takes_over_ms == 0 && may_come)
        come_back(cluster, index);
    if (now_ms >= server->refuses_ms) node->redis.refuses = NULL;
    node->is_failed = now_ms < server->down_ms;
    node->redis.now_ms = world_wall_ms(cluster->world) + server->skew_ms;
}

/* ---- small things ------------------------------------------------------------------------------------------------ */

static void change_address(struct cluster_world *cluster) {
    int index = any_node(cluster), other = any_node(cluster);
    struct cluster_model_node *node = node_of(cluster, index);
    int port = node->port;
    cluster->happened[CLUSTER_ADDRESS]++;
    cut_off(cluster, index);
    if (one_in(cluster, 2)) {
        node->port = ++cluster->ports;
        return;
    }
    cut_off(cluster, other);
    node->port = node_of(cluster, other)->port;
    node_of(cluster, other)->port = port;
}

/* For a while it answers CLUSTERDOWN. Perhaps it does not even know who has which slot. */
static void go_down(struct cluster_world *cluster) {
    int index = any_node(cluster);
    cluster->happened[CLUSTER_DOWN]++;
    cluster->servers[index].down_ms = later(cluster, 10, 800);
    if (has_move(cluster, index) || !one_in(cluster, 4)) return;
    for (size_t i = 0; i < cluster->move_count; i++) node_of(cluster, index)->owners[cluster->moves[i].slot] = NOBODY;
}

static void refuse(struct cluster_world *cluster) {
    int index = any_node(cluster);
    cluster->happened[CLUSTER_REFUSE]++;
    node_of(cluster, index)->redis.refuses = world_refusal(cluster->world);
    cluster->servers[index].refuses_ms = later(cluster, 10, 500);
}

static void step_small_things(struct cluster_world *cluster) {
    int index = any_node(cluster);
    if (strikes(cluster, CLUSTER_ADDRESS)) change_address(cluster);
    if (strikes(cluster, CLUSTER_DOWN)) go_down(cluster);
    if (strikes(cluster, CLUSTER_REFUSE)) refuse(cluster);
    if (strikes(cluster, CLUSTER_FORM)) {
        cluster->happened[CLUSTER_FORM]++;
        node_of(cluster, index)->form = (enum cluster_model_form)test_prng_below(&cluster->world->prng, 3);
    }
    if (strikes(cluster, CLUSTER_FLUSH_SCRIPTS)) {
        cluster->happened[CLUSTER_FLUSH_SCRIPTS]++;
        node_of(cluster, index)->redis.has_script = node_of(cluster, index)->redis.has_live_script = false;
    }
}

/* Nodes talk, replicas hear of what was written. */
static void step_talk(struct cluster_world *cluster) {
    int index = any_node(cluster);
    const struct cluster_model_node *node = node_of(cluster, index);
    if (node->is_down || cluster->servers[index].taken_over_by >= 0) return;
    if (one_in(cluster, 40)) cluster_model_gossip(&cluster->model, index);
    bool hears = cluster->lags && node->master != NOBODY && may_hear(cluster, node->master);
    if (hears && one_in(cluster, 20)) replicate(cluster, index);
}

/* Masters that run, and can be asked. */
static bool is_split(struct cluster_world *cluster, uint32_t slot) {
    int owner = cluster->model.owners[slot];
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++) {
        if (i == owner || !is_leading(cluster, i) || node_of(cluster, owner)->migrating[slot] == i) continue;
        if (cluster_model_keys_in_slot(&cluster->model, i, slot) != 0) return true;
    }
    return false;
}

static void note_splits(struct cluster_world *cluster) {
    for (size_t i = 0; i < cluster->move_count; i++) {
        struct cluster_move *move = &cluster->moves[i];
        if (!is_split(cluster, move->slot))
            move->split_since_ms = 0;
        else if (move->split_since_ms == 0)
            move->split_since_ms = cluster->world->now_ms;
    }
}

static void note_names(struct cluster_world *cluster) {
    for (size_t i = 0; i < cluster->move_count; i++)
        for (int n = 0; n < CLUSTER_MODEL_NODES; n++) {
            uint8_t owner = node_of(cluster, n)->owners[cluster->moves[i].slot];
            if (owner != NOBODY) cluster->moves[i].named |= (uint8_t)(1u << owner);
        }
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

void cluster_world_begin(struct cluster_world *cluster, struct world *world, const uint32_t *slots, size_t count) {
    memset(cluster, 0, sizeof *cluster);
    cluster->world = world;
    cluster_model_init(&cluster->model, CLUSTER_WORLD_MASTERS);
    assert_true(count <= CLUSTER_WORLD_SLOTS);
    for (size_t i = 0; i < count; i++) {
        uint8_t owner = (uint8_t)test_prng_below(&world->prng, CLUSTER_WORLD_MASTERS);
        cluster->moves[cluster->move_count++] = (struct cluster_move){.slot = slots[i]};
        cluster->model.owners[slots[i]] = owner;
        for (int n = 0; n < CLUSTER_WORLD_MASTERS; n++) cluster->model.nodes[n].owners[slots[i]] = owner;
    }
    for (int i = 0; i < CLUSTER_WORLD_MASTERS; i++) (void)cluster_model_replica(&cluster->model, i);
    assert_int_equal(cluster->model.count, CLUSTER_MODEL_NODES);
    cluster->ports = node_of(cluster, CLUSTER_MODEL_NODES - 1)->port;
    world->redis_skew_ms = -300;
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++) {
        struct cluster_server *server = &cluster->servers[i];
        server->taken_over_by = -1;
        server->skew_ms = test_prng_between(&world->prng, -300, 300);
        if (world->redis_skew_ms < server->skew_ms) world->redis_skew_ms = server->skew_ms;
        cluster->model.nodes[i].redis.now_ms = world_wall_ms(world) + server->skew_ms;
    }
    note_names(cluster);
    world->place_of = place_of;
    world->aside = answer;
    world->redis_at = redis_at;
    world->beyond = cluster;
}

void cluster_world_step(struct cluster_world *cluster) {
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++) step_server(cluster, i);
    if (cluster->lags || cluster->splits) note_splits(cluster);
    note_names(cluster);
    if (cluster->is_calm) return;
    step_moves(cluster);
    for (enum cluster_fault fault = CLUSTER_CRASH; fault <= CLUSTER_EMPTY; fault++)
        if (strikes(cluster, fault)) stop(cluster, any_node(cluster), fault);
    if (strikes(cluster, CLUSTER_HAND_OVER)) hand_over(cluster, any_node(cluster));
    step_small_things(cluster);
    step_talk(cluster);
    note_names(cluster);
}

static void end_all_moves(struct cluster_world *cluster) {
    for (size_t i = 0; i < cluster->move_count; i++) {
        struct cluster_move *move = &cluster->moves[i];
        if (move->state == MOVE_NONE) continue;
        if (cluster->splits || one_in(cluster, 2)) {
            take_back(cluster, move);
            continue;
        }
        while (cluster_model_move_key(&cluster->model, move->slot, move->to, NULL)) {}
        end_move(cluster, move);
    }
}

/* What a replica that lagged still had of a slot that has gone elsewhere. */
static void tidy(struct cluster_world *cluster, uint32_t slot) {
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++) {
        struct cluster_model_node *node = node_of(cluster, i);
        node->migrating[slot] = node->importing[slot] = NOBODY;
        bool has_keys = cluster_model_keys_in_slot(&cluster->model, i, slot) != 0;
        if (cluster->model.owners[slot] == i || node->master != NOBODY || !has_keys) continue;
        assert_true(cluster->lags || cluster->splits); /* else the world itself is wrong */
        redis_model_wipe_slot(&node->redis, slot);
    }
}

void cluster_world_calm(struct cluster_world *cluster) {
    memset(cluster->of_10000, 0, sizeof cluster->of_10000);
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++) {
        struct cluster_server *server = &cluster->servers[i];
        server->takes_over_ms = server->refuses_ms = server->down_ms = 0;
        node_of(cluster, i)->form = CLUSTER_MODEL_IP;
        if (server->back_ms) come_back(cluster, i);
        step_server(cluster, i);
    }
    end_all_moves(cluster);
    for (size_t i = 0; i < cluster->move_count; i++) tidy(cluster, cluster->moves[i].slot);
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++) {
        cluster_model_gossip(&cluster->model, i);
        if (node_of(cluster, i)->master != NOBODY) replicate(cluster, i);
    }
    cluster->is_calm = true;
}

static struct cluster_move *move_of(struct cluster_world *cluster, uint32_t slot) {
    size_t i = 0;
    while (i < cluster->move_count && cluster->moves[i].slot != slot) i++;
    assert_true(i < cluster->move_count);
    return &cluster->moves[i];
}

void cluster_world_move_half_way(struct cluster_world *cluster, uint32_t slot) {
    struct cluster_move *move = move_of(cluster, slot);
    move->to = 0;
    while (node_of(cluster, move->to)->master != NOBODY || move->to == cluster->model.owners[slot]) move->to++;
    redis_model_wipe_slot(&node_of(cluster, move->to)->redis, slot); /* the books of an earlier stay */
    cluster_model_move_begin(&cluster->model, slot, move->to);
    while (cluster_model_move_key(&cluster->model, slot, move->to, NULL)) {}
    node_of(cluster, move->to)->redis.has_script = false;
}

void cluster_world_move_ends(struct cluster_world *cluster, uint32_t slot) {
    cluster_model_move_end(&cluster->model, slot, move_of(cluster, slot)->to, UINT32_MAX);
}

int64_t cluster_world_applied(const struct cluster_world *cluster, const char *name, int life) {
    bool is_exact = cluster->is_calm || (!cluster->lags && !cluster->splits);
    int64_t sum = 0, most = 0;
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++) {
        if (cluster->model.nodes[i].master != NOBODY) continue;
        int64_t applied = redis_model_applied(&cluster->model.nodes[i].redis, name, life);
        if (cluster->servers[i].taken_over_by < 0) sum += applied;
        if (llabs(applied) > llabs(most)) most = applied;
    }
    return is_exact ? sum : most;
}

bool cluster_world_has_named(const struct cluster_world *cluster, uint32_t slot, int port) {
    unsigned named = 0, at = 0;
    for (size_t i = 0; i < cluster->move_count; i++)
        if (cluster->moves[i].slot == slot) named = cluster->moves[i].named;
    for (unsigned n = 0; n < CLUSTER_MODEL_NODES; n++)
        if (cluster->model.nodes[n].port == port) at = 1u << n;
    return cluster->happened[CLUSTER_ADDRESS] != 0 || (named & at) != 0;
}

int64_t cluster_world_split_ms(const struct cluster_world *cluster, uint32_t slot) {
    for (size_t i = 0; i < cluster->move_count; i++)
        if (cluster->moves[i].slot == slot && cluster->moves[i].split_since_ms)
            return cluster->world->now_ms - cluster->moves[i].split_since_ms;
    return -1;
}
