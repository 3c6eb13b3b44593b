/* clustered.h -- what one seed does to engines in a Redis Cluster (cluster_world.h). Included once, after play.h.
 *
 * There are five kinds of hardship, because the final check depends on what the cluster forgets: it forgets nothing (to
 * the unit), a master goes back to what its replica had, a master comes back empty (both: the sums close), or masters
 * go in the middle of a move, and the new ones know nothing of it. Then slots are split, and only this is promised:
 * nothing is doubled, and once no slot is split, everything is acknowledged.
 * Beside the checks of play.h: an engine asks for the map at most once in a second, once it knows a master; a store has
 * requests under way on one connection, and away from home only behind ASKING; a map names only owners that some node
 * has named; the content of a number never changes (contents.h); with wait_replicas, no batch leaves the replay window
 * at a new home before a replica of that home has spoken. At the end: an engine knows the markers of its stores; the
 * ends of lives are right though the nodes' clocks differ; a slot that stays half-way is counted in; and of a marker
 * that comes from another state each engine says so. */
#ifndef TEST_CLUSTERED_H
#define TEST_CLUSTERED_H

#include "sync/message/refusal.h"
#include "tests/sim/cluster_world.h"
#include "tests/sim/contents.h"
#include "tests/sim/hardships.h"

#define CLUSTERED_STEPS 700
#define CLUSTERED_TAGS 3u
#define CLUSTERED_REFRESH_MS 1000
#define CLUSTERED_SEEDS_MS 50   /* the same while an engine knows no master */
#define CLUSTERED_ASKED_MS 1500 /* longer ago than this, the masters were not asked before a restore */
#define CLUSTERED_DOUBT_MS 300
#define CLUSTERED_ENDS_MS 12000  /* each window from the first count begins anew within this time */
#define CLUSTERED_END_OFF_MS 120 /* a clock is known to half of a round trip */

enum clustered_kind { CLUSTERED_KEEPS, CLUSTERED_GOES_BACK, CLUSTERED_EMPTIES, CLUSTERED_SPLITS, CLUSTERED_KINDS };

/* What a store had when it came to its node. */
struct clustered_home {
    const struct twi_connection *connection;
    uint64_t trimmed, waits;
    char ledger[TWI_LEDGER_NAME_MAX];
};

static struct {
    enum clustered_kind kind;
    struct cluster_world cluster;
    int64_t asked_ms[MODEL_NODES]; /* when that life last asked for the map; 0: never */
    uint64_t happened[CLUSTER_FAULTS];
    struct clustered_home homes[WORLD_NODES][FAKE_STORES];
    uint64_t waits_before[WORLD_NODES][CLUSTER_WORLD_PORTS]; /* at the last look: the turns came after it */
    uint64_t maps, splits, restored; /* maps that were asked for; steps in which a slot was split; slots restored */
    uint64_t ends, trims;            /* ends of lives that were compared; batches that left the window at a new home */
    uint64_t insides;                /* counts that went into a hash or a sorted set */
} clustered;

/* ---- what must be true ------------------------------------------------------------------------------------------- */

static void clustered_explain(int node) {
    const struct twi_sync *sync = sim.engines[node].sync;
    const struct cluster_world *cluster = &clustered.cluster;
    print_error("  hardship %d, moves kept %d\n", (int)clustered.kind, cluster->model.keeps_moves);
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++)
        print_error("  node %d, port %d: master %d down %d taken over by %d\n", i, cluster->model.nodes[i].port,
                    cluster->model.nodes[i].master, cluster->model.nodes[i].is_down, cluster->servers[i].taken_over_by);
    for (uint32_t i = 0; i < sync->store_count; i++) {
        const struct twi_store *store = sync->stores[i];
        const struct twi_connection *connection = store->connection;
        print_error("  slot %u of node %d by the world, %s: open %d doubt %d split %d awaited %u rewind %d held %d "
                    "waiting %d parked %zu numbers %d to %d\n",
                    store->slot, cluster->model.owners[store->slot], connection ? connection->target.name : "nowhere",
                    store->assumed.is_open, store->assumed.unknown_since_ms != 0, (int)store->split.state,
                    store->awaited, store->rewind, store->route.detour.is_held, store->route.is_waiting,
                    (size_t)store->parking.count, (int)store->ledger.confirmed, (int)store->ledger.last);
    }
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        const struct twi_connection *connection = sync->connections[i];
        print_error("  %s: phase %d breaker %d pending %u wanted %d\n", connection->target.name, (int)connection->phase,
                    (int)connection->breaker.state, connection->pipeline.count, connection->use.is_wanted);
        if (connection->pipeline.count == 0) continue;
        const struct twi_pending *first = &connection->pipeline.pending[connection->pipeline.first];
        print_error("    the first one: command %d sent %lld; now %lld reply %lld late %lld\n", (int)first->command,
                    (long long)first->sent_ms, (long long)sim.world.now_ms, (long long)connection->replied.at_ms,
                    (long long)connection->replied.late_ms);
    }
}

static void clustered_asks(const struct world_node *node) {
    int64_t *asked_ms = &clustered.asked_ms[node->life];
    const struct twi_sync *sync = sim.engines[node->index].sync;
    bool knows_masters = twi_cluster_map_next(sync->cluster->map, 0) != 0;
    clustered.maps++;
    if (*asked_ms && sim.world.now_ms - *asked_ms < (knows_masters ? CLUSTERED_REFRESH_MS : CLUSTERED_SEEDS_MS))
        note_failure("the map is asked for too often", node->index, &sim.engines[node->index].cells[0]);
    *asked_ms = sim.world.now_ms;
}

/* Looks for questions for the map in what is sent. */
static ssize_t clustered_send(void *ctx, const void *data, size_t size) {
    static const char question[] = "CLUSTER\r\n$5\r\nSLOTS\r\n"; /* its first letter comes once */
    struct world_node *node = ctx;
    ssize_t sent = send_freely(ctx, data, size);
    for (ssize_t i = 0; i < sent; i++) {
        char byte = ((const char *)data)[i];
        node->said = byte == question[node->said] ? node->said + 1 : byte == question[0];
        if (node->said < sizeof question - 1) continue;
        node->said = 0;
        clustered_asks(node);
    }
    return sent;
}

static int clustered_port(const struct twi_connection *connection) {
    const struct twi_endpoint *endpoint = twi_resolver_fixed(connection->target.resolver);
    return endpoint ? endpoint->port : 0;
}

/* The home of a store changes by what a node says of the owner, not by ASK. */
static void clustered_check_map(int node) {
    const struct twi_sync *sync = sim.engines[node].sync;
    for (uint32_t i = 0; i < sync->store_count; i++) {
        uint32_t slot = sync->stores[i]->slot;
        uint64_t owner = twi_cluster_map_owner(sync->cluster->map, slot);
        const struct twi_endpoint *endpoint = owner ? twi_cluster_map_endpoint(sync->cluster->map, owner) : NULL;
        if (endpoint && !cluster_world_has_named(&clustered.cluster, slot, endpoint->port))
            note_failure("the map names an owner that no node has named", node, &sim.engines[node].cells[0]);
    }
}

/* What WAIT said at the earlier home says nothing here. */
static void clustered_check_window(int node, const struct twi_store *store) {
    struct clustered_home *home = &clustered.homes[node][store->index];
    uint64_t trimmed = store->ledger.head ? store->ledger.head->before : store->ledger.confirmed;
    uint32_t at = (uint32_t)clustered_port(store->connection) - 7001;
    uint64_t waits = at < CLUSTER_WORLD_PORTS ? clustered.cluster.waits[node][at] : 0;
    if (home->connection != store->connection || strcmp(home->ledger, store->ledger.name) != 0) {
        home->connection = store->connection;
        home->trimmed = trimmed;
        home->waits = at < CLUSTER_WORLD_PORTS ? clustered.waits_before[node][at] : 0;
        memcpy(home->ledger, store->ledger.name, sizeof home->ledger);
    } else if (trimmed > home->trimmed) {
        clustered.trims++;
        if (waits == home->waits)
            note_failure("a batch left the window that no replica has", node, &sim.engines[node].cells[0]);
    }
}

static bool clustered_is_behind_asking(const struct twi_pipeline *pipeline, uint32_t i) {
    return i == 0 || pipeline->pending[(pipeline->first + i - 1) % TWI_PENDING_MAX].command == TWI_ASKING;
}

/* A store that left a connection has nothing under way there. */
static void clustered_check_node(int node) {
    const struct twi_sync *sync = sim.engines[node].sync;
    const struct twi_connection *of[FAKE_STORES] = {NULL};
    for (uint32_t c = 0; c < sync->connection_count; c++) {
        const struct twi_pipeline *pipeline = &sync->connections[c]->pipeline;
        for (uint32_t i = 0; i < pipeline->count; i++) {
            const struct twi_pending *pending = &pipeline->pending[(pipeline->first + i) % TWI_PENDING_MAX];
            if (pending->command != TWI_BATCH && pending->command != TWI_OPEN) continue;
            uint32_t store = pending->store->index;
            if (of[store] && of[store] != sync->connections[c])
                note_failure("a store has requests on two connections", node, &sim.engines[node].cells[0]);
            of[store] = sync->connections[c];
            if (pending->store->connection != sync->connections[c] && !clustered_is_behind_asking(pipeline, i))
                note_failure("a script away from its home is not behind ASKING", node, &sim.engines[node].cells[0]);
        }
    }
    clustered_check_map(node);
    if (sim.wait_replicas && fake_stat_of(&sim.engines[node], lost) != 0)
        note_failure("lost, though replicas were waited for", node, &sim.engines[node].cells[0]);
    for (uint32_t i = 0; sim.wait_replicas && i < sync->store_count; i++)
        if (sync->stores[i]->connection) clustered_check_window(node, sync->stores[i]);
}

/* Whoever asked all masters since the slot was split has heard of it. */
static void clustered_restores(struct world *world, uint32_t slot) {
    clustered.restored++;
    if (cluster_world_split_ms(&clustered.cluster, slot) > CLUSTERED_ASKED_MS)
        note_failure("a split slot is restored", 0, &sim.engines[0].cells[0]);
}

static void clustered_around(void) {
    cluster_world_step(&clustered.cluster);
    for (int n = 0; n < WORLD_NODES; n++) clustered_check_node(n);
    memcpy(clustered.waits_before, clustered.cluster.waits, sizeof clustered.waits_before);
    for (size_t i = 0; clustered.kind == CLUSTERED_SPLITS && i < clustered.cluster.move_count; i++)
        clustered.splits += cluster_world_split_ms(&clustered.cluster, clustered.cluster.moves[i].slot) >= 0;
}

static int64_t clustered_applied(const char *name, int life) {
    return cluster_world_applied(&clustered.cluster, name, life);
}

/* ---- a seed ------------------------------------------------------------------------------------------------------ */

static uint32_t clustered_slot(const char *name) {
    return twi_key_slot_of(name, strlen(name));
}

static void clustered_doses(struct test_prng *prng) {
    static const uint32_t of_10000[CLUSTER_FAULTS] = {
        [CLUSTER_MOVE] = 60,  [CLUSTER_MOVE_AT_ONCE] = 30, [CLUSTER_MOVER_DIES] = 200,   [CLUSTER_HAND_OVER] = 40,
        [CLUSTER_CRASH] = 20, [CLUSTER_RESTART] = 20,      [CLUSTER_ADDRESS] = 15,       [CLUSTER_FORM] = 30,
        [CLUSTER_DOWN] = 15,  [CLUSTER_REFUSE] = 15,       [CLUSTER_FLUSH_SCRIPTS] = 20,
    };
    struct cluster_world *cluster = &clustered.cluster;
    for (int i = 0; i < CLUSTER_FAULTS; i++) cluster->of_10000[i] = of_10000[i] ? dose(prng, of_10000[i]) : 0;
    cluster->covers_whole = test_prng_chance(prng, 1, 2);
    switch (clustered.kind) {
    case CLUSTERED_KEEPS: cluster->model.keeps_moves = test_prng_chance(prng, 1, 2); break;
    case CLUSTERED_GOES_BACK:
        cluster->lags = true;
        cluster->waits_count = sim.wait_replicas != 0;
        cluster->of_10000[CLUSTER_CRASH] = 40;
        cluster->of_10000[CLUSTER_LINGER] = dose(prng, 30);
        break;
    case CLUSTERED_EMPTIES: cluster->of_10000[CLUSTER_EMPTY] = 40; break;
    default:
        cluster->splits = true;
        cluster->lags = test_prng_chance(prng, 1, 4);
        cluster->of_10000[CLUSTER_MOVE] = 200;
        cluster->of_10000[CLUSTER_CRASH] = 60;
        cluster->of_10000[CLUSTER_EMPTY] = dose(prng, 10);
    }
}

static struct world_faults clustered_faults(struct test_prng *prng) {
    struct world_faults faults = common_faults(prng);
    faults.poison = faults.persist = faults.evict_counters = faults.flicker = faults.restart = 0;
    faults.flush_scripts = faults.refuse_writes = 0; /* of the one Redis that is not there */
    if (clustered.kind == CLUSTERED_KEEPS) faults.leap = dose(prng, 6);
    if (clustered.kind == CLUSTERED_KEEPS && test_prng_chance(prng, 1, 4)) faults.cut_short = dose(prng, 60);
    return faults;
}

/* Makes the world of that seed; nothing is played yet. `shaped`: of counters in strings, hashes and sorted sets. */
static void clustered_make(const char *name, uint64_t seed, bool silent, bool shaped) {
    struct test_prng prng;
    test_prng_seed(&prng, seed ^ 0xc105);
    clustered.kind = (enum clustered_kind)test_prng_below(&prng, CLUSTERED_KINDS);
    memset(clustered.asked_ms, 0, sizeof clustered.asked_ms);
    memset(clustered.homes, 0, sizeof clustered.homes);
    contents_forget();
    struct world_faults faults = clustered_faults(&prng);
    sim_begin(seed, &faults, "noeviction");
    sim.name = name;
    sim.silent = silent;
    if (shaped) sim_draw_shapes();
    sim.tags = CLUSTERED_TAGS;
    sim.rolls_over = test_prng_chance(&prng, 3, 4);
    sim.forgets = clustered.kind != CLUSTERED_KEEPS;
    sim.mixed = clustered.kind == CLUSTERED_SPLITS;
    sim.certain = clustered.kind == CLUSTERED_KEEPS && !faults.cut_short;
    if (clustered.kind == CLUSTERED_GOES_BACK && seed / 8 % 2 == 0) {
        sim.wait_replicas = 1;
        sim.replay_ms = 300; /* so that batches leave the window */
    }
    sim.url = CLUSTER_WORLD_URL;
    sim.transport.send = clustered_send;
    sim.applied = clustered_applied;
    sim.around = clustered_around;
    sim.explain = clustered_explain;
    sim.world.flight_of = NULL;
    sim.world.restores = clustered_restores;
    test_tuning.doubt_ms = CLUSTERED_DOUBT_MS;
    if (seed % 3 != 0) { /* so many stores have something to send at a time; the others wait for a place */
        test_tuning.store_places = (uint32_t)(seed % 3);
        test_tuning.tags_wait = true;
    }
    uint32_t slots[] = {clustered_slot("{1}"), clustered_slot("{2}"), clustered_slot("{3}"),
                        clustered_slot("p:tw:live")};
    cluster_world_begin(&clustered.cluster, &sim.world, slots, sizeof slots / sizeof *slots);
    clustered.cluster.waits_own = seed / 16 % 2 == 0; /* what servers differ in */
    clustered.cluster.model.asks_half = seed / 32 % 4 == 0;
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++) clustered.cluster.model.nodes[i].redis.beside = contents_look;
    clustered_doses(&prng);
    for (int n = 0; n < WORLD_NODES; n++) node_make(n);
}

static const struct redis_model *clustered_owner(uint32_t slot) {
    return &clustered.cluster.model.nodes[clustered.cluster.model.owners[slot]].redis;
}

/* Each store has been written since the cluster is calm, but perhaps the one of the registry. */
static void clustered_check_markers(void) {
    for (int n = 0; n < WORLD_NODES; n++) {
        const struct twi_sync *sync = sim.engines[n].sync;
        for (uint32_t i = 1; i < sync->store_count; i++) {
            const struct twi_store *store = sync->stores[i];
            const struct model_key *marker =
                redis_model_find((struct redis_model *)clustered_owner(store->slot), store->marker_name);
            if (!marker || strcmp(marker->text, store->ledger.marker) != 0)
                note_failure("an engine does not know the marker of its store", n, &sim.engines[n].cells[0]);
        }
    }
}

static bool clustered_is_off(int64_t a_ms, int64_t b_ms) {
    return llabs(a_ms - b_ms) > CLUSTERED_END_OFF_MS;
}

/* Windows from the first count begin in a calm cluster: their ends are those of the nodes' clock, in the clock of
 * whichever node has the slot. */
static void clustered_check_ends(void) {
    for (int64_t until_ms = sim.world.now_ms + CLUSTERED_ENDS_MS; sim.world.now_ms < until_ms;) {
        step_world();
        for (int n = 0; n < WORLD_NODES; n++) {
            for (size_t i = 3; i < FAKE_CELLS; i += 5) {
                fake_roll_over(&sim.engines[n], i);
                if (sim.engines[n].cells[i].local == 0) fake_add(&sim.engines[n], i, 1);
            }
            turn_node(n);
        }
    }
    live();
    for (int n = 0; n < WORLD_NODES; n++)
        for (size_t i = 3; i < FAKE_CELLS; i += 5) {
            const struct twi_cell *cell = &sim.engines[n].cells[i];
            uint8_t owner = clustered.cluster.model.owners[clustered_slot(cell->name)];
            const struct model_key *key = redis_model_find(&clustered.cluster.model.nodes[owner].redis, cell->name);
            if (!key || cell->period_ms == 0) continue;
            clustered.ends++;
            int64_t end_ms = key->expiry_ms - clustered.cluster.servers[owner].skew_ms;
            if (clustered_is_off(end_ms, cell->end_ms) || clustered_is_off(cell->expiry_ms, cell->end_ms))
                note_failure("a life ends by the clock of another node", n, cell);
        }
}

/* Nothing asks for totals of other counters of that slot: such a counter may be missing, and its batch would wait. So
 * would that of a counter whose life has ended. */
static bool clustered_rests(uint32_t slot) {
    for (int n = 0; n < WORLD_NODES; n++)
        for (size_t i = 0; i < FAKE_CELLS; i++) {
            struct twi_cell *cell = &sim.engines[n].cells[i];
            if (clustered_slot(cell->name) != slot) continue;
            if (cell->to_resend || cell->period_ms != 0 || sim.engines[n].restore_left != 0) return false;
            cell->marked = false;
        }
    return true;
}

/* A move stops for good when all keys are at the other end. Counters that are there are still counted. */
static void clustered_ask(void) {
    uint32_t slot = clustered_slot("{1}");
    if (!clustered_rests(slot)) return;
    cluster_world_move_half_way(&clustered.cluster, slot);
    live();
    cluster_world_move_ends(&clustered.cluster, slot);
    live();
}

/* A slot moves as soon as the replica has what was counted there. At the new home none speaks for longer than batches
 * stay in the window. */
static void clustered_wait(void) {
    uint32_t slot = clustered_slot("{1}");
    for (int n = 0; n < WORLD_NODES; n++) fake_add(&sim.engines[n], 1, 1);
    for (int step = 0; step < 20; step++) {
        step_world();
        for (int n = 0; n < WORLD_NODES; n++) turn_node(n);
    }
    clustered.cluster.is_deaf = true;
    cluster_world_move_half_way(&clustered.cluster, slot);
    cluster_world_move_ends(&clustered.cluster, slot);
    for (int64_t until_ms = sim.world.now_ms + 5 * (int64_t)sim.replay_ms; sim.world.now_ms < until_ms;) {
        for (int n = 0; n < WORLD_NODES; n++) {
            fake_add(&sim.engines[n], 1, 1);
            turn_node(n);
        }
        step_world();
    }
    clustered.cluster.is_deaf = false;
    live();
}

/* Somebody brings a slot together, and its marker comes from another state. Each engine says so. */
static void clustered_join(void) {
    struct twi_sync *sync = sim.engines[0].sync;
    for (uint32_t i = 1; i < sync->store_count; i++) {
        uint8_t owner = clustered.cluster.model.owners[sync->stores[i]->slot];
        struct model_key *marker =
            redis_model_find(&clustered.cluster.model.nodes[owner].redis, sync->stores[i]->marker_name);
        assert_non_null(marker);
        marker->text[0] = marker->text[0] == 'x' ? 'y' : 'x';
    }
    live();
    clustered_check_markers();
    for (int n = 0; n < WORLD_NODES; n++) {
        const tw_engine *engine = &sim.engines[n];
        bool said = false;
        for (size_t i = engine->log_count > 64 ? engine->log_count - 64 : 0; i < engine->log_count; i++)
            said |= strstr(engine->log[i % 64], "beside the marker of another state") != NULL;
        if (!said) note_failure("nothing is said of another marker", n, &engine->cells[0]);
    }
}

static void clustered_play(void) {
    fail_of_10000 = sim.seed % 4 == 0 ? 300 : 0; /* in a quarter of the worlds memory fails */
    run(CLUSTERED_STEPS);
    fail_of_10000 = 0;
    cluster_world_calm(&clustered.cluster);
    live();
    check_books();
    check_dead();
    clustered_check_markers();
    if (sim.wait_replicas) {
        clustered_wait();
    } else if (sim.seed / 8 % 2 == 0) {
        if (clustered.kind == CLUSTERED_KEEPS && sim.rolls_over) clustered_check_ends();
    } else {
        clustered_ask();
        clustered_join();
    }
    for (int i = 0; i < CLUSTER_FAULTS; i++) clustered.happened[i] += clustered.cluster.happened[i];
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++)
        clustered.insides += clustered.cluster.model.nodes[i].redis.edges[MODEL_ITEM_INSIDE];
}

#endif
