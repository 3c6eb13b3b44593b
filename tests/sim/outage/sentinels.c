/* sentinels.c -- Redis behind three sentinels, in seeded worlds: masters die or are cut off and continue to take
 * writes, a replica that lags takes over, sentinels learn of it one after the other, late, or not at all.
 *
 * Two servers, m0 and m1. The master is the world's store, whatever it is called; the other server is the replica, the
 * one that died, or the one that was cut off and still says that it is the master. Beyond what play.h checks:
 * - a replica is told nothing: not one batch is applied there;
 * - where all sentinels have named the master for LEFT_MS, nobody is connected to another server any more;
 * - on a kind network, where two of them have named it for FOUND_MS, everybody is connected to it.
 * Always true: everything follows from the seed. */
#include "tests/sim/play.h"

#define SENTINELS 3
#define LEFT_MS 14000 /* a look every 9 to 11 s, its round, and a turn that comes late */
#define FOUND_MS 7000 /* two tries in vain, each a second after the other at most; and turns that come late */
#define RUN_STEPS 6000
#define LAG_EVERY_MS 300

enum old_master { IS_REPLICA, IS_DEAD, IS_CUT_OFF };

static struct scene {
    int master;                 /* m0 or m1 */
    enum old_master old;        /* what the other server is */
    int64_t old_until_ms;       /* then it is a replica */
    int64_t fails_at_ms;        /* the next time that the master fails */
    bool dies;                  /* it dies then; otherwise it is cut off */
    int64_t takes_over_at_ms;   /* 0: nothing is under way */
    struct model_store lagging; /* all that the replica has */
    int64_t lagging_at_ms;
    struct {
        int names;            /* which server; -1: knows no such name */
        int64_t learns_at_ms; /* then it names the master */
        int64_t back_at_ms;   /* down until then */
    } sentinels[SENTINELS];
    uint64_t applied_at_replica;         /* when it became one */
    int64_t wrong_since_ms[WORLD_NODES]; /* connected to the wrong one, though all know better */
    int64_t away_since_ms[WORLD_NODES];  /* connected to none, though two know better */
    size_t log_seen[WORLD_NODES];
    bool is_kind;  /* the network */
    int histories; /* so many data there were */
} scene;

static struct { uint64_t deaths, cut_offs, stale, replicas_dialled, masters_left, unknown, sentinels_down; } seen;

/* ---- the sentinels ----------------------------------------------------------------------------------------------- */

static int place_of(struct world *world, const struct twi_endpoint *endpoint) {
    int number = endpoint->host[1] - '0';
    if (endpoint->host[0] == 's')
        return world->now_ms < scene.sentinels[number].back_at_ms ? WORLD_NOWHERE : WORLD_ASIDE + number;
    if (number == scene.master) return WORLD_STORE;
    seen.replicas_dialled += scene.old == IS_REPLICA;
    return scene.old == IS_DEAD ? WORLD_NOWHERE : WORLD_OTHER;
}

static void add_text(struct twi_bytes *reply, const char *text) {
    twi_bytes_add(reply, text, strlen(text));
}

static void answer(struct world *world, struct world_connection *connection, const struct model_word *words,
                   size_t count, struct twi_bytes *reply) {
    static const char *const masters[] = {"*2\r\n$2\r\nm0\r\n$4\r\n6379\r\n", "*2\r\n$2\r\nm1\r\n$4\r\n6379\r\n"};
    int names = scene.sentinels[connection->aside - WORLD_ASIDE].names;
    assert_true(count == 3 && words[2].size == 4 && memcmp(words[2].data, "shop", 4) == 0);
    if (names != scene.master) seen.stale++;
    add_text(reply, names < 0 ? "*-1\r\n" : masters[names]);
}

static int64_t later(int64_t low_ms, int64_t high_ms) {
    return sim.world.now_ms + test_prng_between(&sim.world.prng, low_ms, high_ms);
}

static bool one_in(uint32_t n) {
    return test_prng_chance(&sim.world.prng, 1, n);
}

/* Most learn within seconds; one in six stays behind for long. */
static void tell_sentinels(void) {
    for (int i = 0; i < SENTINELS; i++)
        scene.sentinels[i].learns_at_ms = one_in(6) ? later(5000, 30000) : later(0, 1500);
}

static void sentinels_step(void) {
    for (int i = 0; i < SENTINELS; i++) {
        if (sim.world.now_ms >= scene.sentinels[i].learns_at_ms) {
            scene.sentinels[i].names = scene.master;
            scene.sentinels[i].learns_at_ms = INT64_MAX;
        }
        if (one_in(12000)) { /* reset by its operator, and configured again */
            seen.unknown++;
            scene.sentinels[i].names = -1;
            scene.sentinels[i].learns_at_ms = later(100, 3000);
        }
        if (one_in(10000)) { /* it names the replica; what for, nobody knows */
            scene.sentinels[i].names = 1 - scene.master;
            scene.sentinels[i].learns_at_ms = later(100, 3000);
        }
        if (!one_in(10000)) continue;
        seen.sentinels_down++;
        scene.sentinels[i].back_at_ms = later(500, 10000);
    }
}

/* ---- the servers ------------------------------------------------------------------------------------------------- */

static void become_replica(void) {
    scene.old = IS_REPLICA;
    sim.world.other.is_replica = true;
    sim.world.other.is_writable = one_in(2);
    world_cut_off(&sim.world, WORLD_OTHER); /* sentinels do that to whom they demote */
    scene.applied_at_replica = sim.world.other.applications;
}

static void fail_master(void) {
    scene.dies = one_in(2);
    scene.takes_over_at_ms = later(1000, 4000);
    if (scene.dies) {
        seen.deaths++;
        world_cut_off(&sim.world, WORLD_STORE);
        sim.world.down_until_ms = INT64_MAX; /* until the replica is the store */
        if (one_in(2)) scene.sentinels[test_prng_below(&sim.world.prng, SENTINELS)].back_at_ms = later(3000, 20000);
    } else {
        seen.cut_offs++; /* it continues to take writes, and the replica hears of none */
    }
}

/* The replica is the store from now on, with what it has; the earlier store is the other server. */
static void take_over(void) {
    struct world *world = &sim.world;
    assert_true(scene.old == IS_REPLICA);
    assert_true(world->other.applications == scene.applied_at_replica);
    world->other.store = world->redis.store;
    world->other.is_replica = world->other.is_writable = false;
    world->other.history = world->redis.history;
    world->redis.history = ++scene.histories;
    world->redis.store = scene.lagging;
    world->redis.has_script = world->redis.has_live_script = one_in(2);
    world->down_until_ms = 0;
    world_swap_places(world);
    scene.master = 1 - scene.master;
    scene.takes_over_at_ms = 0;
    scene.fails_at_ms = later(20000, 40000);
    scene.old = scene.dies ? IS_DEAD : IS_CUT_OFF;
    scene.old_until_ms = later(500, scene.dies ? 8000 : 25000);
    tell_sentinels();
}

static bool all_are_up(void) {
    for (int n = 0; n < WORLD_NODES; n++)
        if (!sim.engines[n].sync->stores[0]->assumed.is_open) return false;
    return true;
}

static void servers_step(void) {
    struct world *world = &sim.world;
    bool follows = scene.takes_over_at_ms == 0 && scene.old == IS_REPLICA;
    if (follows && world->now_ms - scene.lagging_at_ms >= LAG_EVERY_MS && all_are_up()) {
        scene.lagging = world->redis.store;
        world->other.store = scene.lagging;
        scene.lagging_at_ms = world->now_ms;
    }
    if (follows && scene.lagging_at_ms && world->now_ms >= scene.fails_at_ms) fail_master();
    if (scene.takes_over_at_ms && world->now_ms >= scene.takes_over_at_ms) take_over();
    if (scene.old != IS_REPLICA && world->now_ms >= scene.old_until_ms) {
        become_replica();
        scene.lagging_at_ms = 0;
    }
}

/* ---- what must be true ------------------------------------------------------------------------------------------- */

static void count_lines(int node) {
    tw_engine *engine = &sim.engines[node];
    for (; scene.log_seen[node] < engine->log_count; scene.log_seen[node]++) {
        const char *line = engine->log[scene.log_seen[node] % 64];
        seen.masters_left += strstr(line, "more than half of the sentinels") != NULL;
    }
}

static int who_know(void) {
    int count = 0;
    for (int i = 0; i < SENTINELS; i++)
        count += scene.sentinels[i].names == scene.master && sim.world.now_ms >= scene.sentinels[i].back_at_ms;
    return count;
}

static void check_places(void) {
    bool known = who_know() == SENTINELS;
    if (scene.old == IS_REPLICA) assert_true(sim.world.other.applications == scene.applied_at_replica);
    for (int n = 0; n < WORLD_NODES; n++) {
        const struct world_connection *connection = sim.world.nodes[n].connection;
        bool wrong = connection && connection->to_other && sim.engines[n].sync->connections[0]->phase == TWI_UP;
        count_lines(n);
        if (!wrong || !known) scene.wrong_since_ms[n] = sim.world.now_ms;
        bool away = sim.engines[n].sync->connections[0]->phase != TWI_UP && scene.takes_over_at_ms == 0;
        if (!away || who_know() < 2 || !scene.is_kind) scene.away_since_ms[n] = sim.world.now_ms;
        if (sim.world.now_ms - scene.away_since_ms[n] > FOUND_MS)
            note_failure("the master is not found", n, &sim.engines[n].cells[0]);
        if (sim.world.now_ms - scene.wrong_since_ms[n] > LEFT_MS)
            note_failure("still at a master that was replaced", n, &sim.engines[n].cells[0]);
    }
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void scene_begin(uint64_t seed, const struct world_faults *faults) {
    sim_begin(seed, faults, "noeviction");
    memset(&scene, 0, sizeof scene);
    sim.name = "sentinels";
    scene.is_kind = faults->refuse_connect == 0;
    sim.url = "redis+sentinel://s0,s1,s2/shop";
    sim.forgets = true;
    sim.certain = true;
    sim.world.place_of = place_of;
    sim.world.aside = answer;
    sim.world.other.policy = "noeviction";
    scene.histories = 1000;
    scene.fails_at_ms = later(2000, 15000);
    for (int i = 0; i < SENTINELS; i++) scene.sentinels[i].learns_at_ms = INT64_MAX;
    become_replica();
    for (int n = 0; n < WORLD_NODES; n++) {
        scene.away_since_ms[n] = scene.wrong_since_ms[n] = sim.world.now_ms;
        node_make(n);
    }
}

/* Faults stop: the sentinels are up and know the master, and the other server is its replica. */
static void scene_calm(void) {
    if (scene.takes_over_at_ms) take_over();
    if (scene.old != IS_REPLICA) become_replica();
    scene.fails_at_ms = INT64_MAX;
    for (int i = 0; i < SENTINELS; i++) {
        scene.sentinels[i].names = scene.master;
        scene.sentinels[i].back_at_ms = 0;
    }
}

static void run_seed(uint64_t seed, const struct world_faults *faults) {
    test_seed_begins("sentinels", seed);
    scene_begin(seed, faults);
    for (int step = 0; step < RUN_STEPS; step++) {
        servers_step();
        sentinels_step();
        run(1);
        check_places();
    }
    scene_calm();
    live();
    check_books();
    sim_free();
    test_seed_ends();
}

static size_t run_seeds(size_t fresh, const struct world_faults *faults) {
    uint64_t seeds[4000];
    size_t count = test_seeds("sentinels", test_scale(fresh), seeds, 4000);
    memset(&seen, 0, sizeof seen);
    for (size_t i = 0; i < count; i++) run_seed(seeds[i], faults);
    return count;
}

/* Goal: P2 through failovers, whatever the sentinels say meanwhile. Method: a kind network, so that all that happens is
 * the servers' and the sentinels' doing. */
TEST(failovers_lose_and_double_nothing) {
    static const struct world_faults none = {0};
    size_t runs = run_seeds(15, &none);
    if (runs < 10) return;
    assert_true(seen.deaths && seen.cut_offs && seen.stale && seen.unknown && seen.sentinels_down);
    if (runs >= 100)
        assert_true(seen.replicas_dialled && seen.masters_left); /* in one short run of a dozen they are not */
}

/* Goal: the same on a network that loses and delays, to the sentinels as well. */
TEST(on_a_lying_network_too) {
    static const struct world_faults faults = {.refuse_connect = 500,
                                               .black_hole = 300,
                                               .cut_request = 100,
                                               .cut_reply = 100,
                                               .tell_nobody = 3000,
                                               .garbage = 30,
                                               .slow = 100,
                                               .flush_scripts = 5};
    (void)run_seeds(8, &faults);
}
