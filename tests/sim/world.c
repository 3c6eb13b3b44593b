/* world.c -- see world.h. A transport for each node, and a network between them and the model of Redis.
 * Always true: the bytes of one direction arrive in order, or not at all from some byte on. */
#include "tests/sim/world.h"

struct twi_tuning test_tuning = TWI_TUNING;

#define POISONED_KEY "w:2" /* the key that an operator overwrites with a text by mistake, for a while */

const char *const world_fault_names[WORLD_FAULTS] = {"connect refused",
                                                     "black hole",
                                                     "request cut",
                                                     "reply cut",
                                                     "garbage",
                                                     "late execution",
                                                     "run twice",
                                                     "odd reply",
                                                     "cut short",
                                                     "restart",
                                                     "scripts flushed",
                                                     "write refused",
                                                     "rolled back",
                                                     "back unborn",
                                                     "failover",
                                                     "wiped",
                                                     "restarted empty",
                                                     "ledgers evicted",
                                                     "counter evicted",
                                                     "poisoned",
                                                     "expiry lost",
                                                     "marker lost",
                                                     "twin",
                                                     "clock stepped",
                                                     "leap",
                                                     "killed",
                                                     "saw empty",
                                                     "saw empty replica",
                                                     "saw old replica",
                                                     "saw writable one",
                                                     "saw full one",
                                                     "saw old one"};

void world_note(struct world *world, enum world_fault fault, int node) {
    world->happened[fault]++;
    for (int n = 0; world->flight_of && n < WORLD_NODES; n++)
        if (node < 0 || n == node) world->pairs[world->flight_of(n)][fault]++;
}

static bool chance(struct world *world, uint32_t of_10000) {
    return of_10000 && test_prng_chance(&world->prng, of_10000, 10000);
}

static int64_t between(struct world *world, int64_t low, int64_t high) {
    return test_prng_between(&world->prng, low, high);
}

int64_t world_wall_ms(const struct world *world) {
    return world->now_ms + world->wall_offset_ms;
}
int64_t world_clock_ns(void *ctx, int kind) {
    const struct world *world = ctx;
    return (kind == TW_CLOCK_WALL ? world_wall_ms(world) : world->now_ms) * 1000000;
}

/* ---- pipes ------------------------------------------------------------------------------------------------------- */

static void pipe_add(struct world *world, struct world_pipe *pipe, const void *data, size_t size, size_t cut_after) {
    if (pipe->cut) return;
    if (cut_after < size) {
        size = cut_after;
        pipe->cut = true;
    }
    if (size == 0) return;
    int64_t at_ms = world->now_ms + (world->is_near ? 0 : between(world, 0, 3));
    if (chance(world, world->faults.slow)) at_ms += between(world, 20, 400);
    size_t last = (pipe->piece_first + pipe->piece_count - 1) % 256;
    if (pipe->piece_count && pipe->pieces[last].at_ms > at_ms) at_ms = pipe->pieces[last].at_ms;
    assert_true(pipe->piece_count < 256);
    twi_bytes_add(&pipe->bytes, data, size);
    pipe->total += size;
    last = (pipe->piece_first + pipe->piece_count++) % 256;
    pipe->pieces[last].at_ms = at_ms;
    pipe->pieces[last].end = pipe->total;
}

/* How many bytes have arrived and were not taken yet. */
static size_t pipe_arrived(struct world *world, struct world_pipe *pipe) {
    size_t end = pipe->passed;
    for (size_t i = 0; i < pipe->piece_count; i++) {
        size_t at = (pipe->piece_first + i) % 256;
        if (pipe->pieces[at].at_ms > world->now_ms) break;
        end = pipe->pieces[at].end;
    }
    return end - pipe->passed;
}

static void pipe_take(struct world_pipe *pipe, void *out, size_t size) {
    memcpy(out, pipe->bytes.data, size);
    twi_bytes_drop_front(&pipe->bytes, size);
    pipe->passed += size;
    while (pipe->piece_count && pipe->pieces[pipe->piece_first].end <= pipe->passed) {
        pipe->piece_first = (pipe->piece_first + 1) % 256;
        pipe->piece_count--;
    }
}

static void pipe_free(struct world_pipe *pipe) {
    twi_bytes_free(&pipe->bytes);
    memset(pipe, 0, sizeof *pipe);
}

static void connection_free(struct world_connection *connection) {
    pipe_free(&connection->to_redis);
    pipe_free(&connection->to_client);
    twi_bytes_free(&connection->request);
    memset(connection, 0, sizeof *connection);
}

/* ---- the transport ----------------------------------------------------------------------------------------------- */

bool world_sees_other(const struct world *world, int node) {
    return world->now_ms < world->other_until_ms[node];
}

static int because(struct world_node *node, const char *why) {
    snprintf(node->why, sizeof node->why, "%s", why);
    return -1;
}

static struct world_connection *connection_new(struct world *world, struct world_node *node) {
    for (size_t i = 0; i < WORLD_CONNECTIONS; i++) {
        struct world_connection *connection = &world->connections[i];
        if (connection->used) continue;
        connection->used = connection->client_open = true;
        connection->node = node->life;
        connection->index = node->index;
        connection->broken_at_ms = INT64_MAX;
        connection->up_at_ms = world->now_ms + between(world, 0, 5);
        return connection;
    }
    return NULL;
}

static int sim_connect(void *ctx, const struct twi_endpoint *endpoint, int64_t now_ms, int64_t deadline_ms) {
    struct world_node *node = ctx;
    struct world *world = node->world;
    assert_i64_equal(now_ms, world->now_ms);
    if (node->connection) return world->now_ms >= node->connection->up_at_ms;
    int place = world_sees_other(world, node->index) ? WORLD_OTHER : WORLD_STORE;
    if (world->place_of) place = world->place_of(world, endpoint);
    bool is_down = world->now_ms < world->down_until_ms && place == WORLD_STORE;
    if (is_down || place == WORLD_NOWHERE || chance(world, world->faults.refuse_connect)) {
        world_note(world, WORLD_REFUSED_CONNECT, node->index);
        return because(node, "connection refused");
    }
    node->connection = connection_new(world, node);
    if (!node->connection) return because(node, "too many connections");
    node->connection->to_other = place == WORLD_OTHER;
    node->connection->aside = place >= WORLD_ASIDE ? place : 0;
    if (chance(world, world->faults.black_hole)) {
        world_note(world, WORLD_BLACK_HOLE, node->index);
        node->connection->up_at_ms = INT64_MAX;
        return 0;
    }
    return world->now_ms >= node->connection->up_at_ms;
}

static bool is_broken(const struct world_node *node) {
    return !node->connection || node->connection->broken_at_ms <= node->world->now_ms;
}

/* Cuts a connection; the client learns it soon, or never. */
static void cut(struct world *world, struct world_connection *connection) {
    bool never = chance(world, world->faults.tell_nobody);
    connection->broken_at_ms = never ? INT64_MAX : world->now_ms + between(world, 0, 50);
}

static ssize_t sim_send(void *ctx, const void *data, size_t size) {
    struct world_node *node = ctx;
    struct world *world = node->world;
    if (is_broken(node)) return because(node, "broken pipe");
    size_t taken = test_prng_chance(&world->prng, 1, 8) ? (size_t)between(world, 0, (int64_t)size) : size;
    size_t cut_after = SIZE_MAX;
    if (taken && chance(world, world->faults.cut_request)) {
        world_note(world, WORLD_CUT_REQUEST, node->index);
        cut_after = (size_t)between(world, 0, (int64_t)taken);
        cut(world, node->connection);
    }
    pipe_add(world, &node->connection->to_redis, data, taken, cut_after);
    return (ssize_t)taken;
}

static ssize_t sim_recv(void *ctx, void *data, size_t size) {
    struct world_node *node = ctx;
    struct world *world = node->world;
    if (!node->connection) return because(node, "not connected");
    size_t arrived = pipe_arrived(world, &node->connection->to_client);
    if (arrived > size) arrived = size;
    if (arrived > 1 && test_prng_chance(&world->prng, 1, 4)) arrived = (size_t)between(world, 1, (int64_t)arrived);
    if (arrived == 0) return is_broken(node) ? because(node, "closed by Redis") : 0;
    pipe_take(&node->connection->to_client, data, arrived);
    return (ssize_t)arrived;
}

static void sim_close(void *ctx) {
    struct world_node *node = ctx;
    if (!node->connection) return;
    node->connection->client_open = false; /* what was sent is in flight, and may still be executed */
    node->connection = NULL;
}

static int sim_fd(void *ctx, bool *wants_write) {
    *wants_write = false;
    return -1;
}

static const char *sim_why(void *ctx) {
    return ((struct world_node *)ctx)->why;
}

static void *sim_create(void *ctx, int set) {
    const struct world_node *beside = ctx;
    struct world_node *node = calloc(1, sizeof *node);
    if (node) *node = (struct world_node){.world = beside->world, .index = beside->index, .life = beside->life};
    return node;
}

static void sim_destroy(void *ctx) {
    if (ctx) sim_close(ctx);
    free(ctx);
}

const struct twi_transport world_transport = {
    .create = sim_create,
    .destroy = sim_destroy,
    .abandon = sim_destroy,
    .connect = sim_connect,
    .send = sim_send,
    .recv = sim_recv,
    .close = sim_close,
    .fd = sim_fd,
    .why = sim_why,
};

/* ---- Redis's side ------------------------------------------------------------------------------------------------ */

static void redis_answer(struct world *world, struct world_connection *connection, struct twi_bytes *reply) {
    if (chance(world, world->faults.garbage) && reply->size > 1) {
        world_note(world, WORLD_GARBAGE, connection->index);
        reply->data[0] = (char)between(world, 0, 32); /* no reply begins with this byte */
    }
    size_t cut_after = SIZE_MAX;
    if (chance(world, world->faults.cut_reply)) {
        world_note(world, WORLD_CUT_REPLY, connection->index);
        cut_after = (size_t)between(world, 0, (int64_t)reply->size - 1);
        cut(world, connection);
        connection->to_redis.cut = true;
    }
    pipe_add(world, &connection->to_client, reply->data, reply->size, cut_after);
}

/* The model that the connection leads to. NULL: it leads to something that is no Redis. */
static struct redis_model *redis_of(struct world *world, const struct world_connection *connection) {
    if (connection->aside) return world->redis_at ? world->redis_at(world, connection->aside) : NULL;
    return connection->to_other ? &world->other : &world->redis;
}

static void run_words(struct world *world, struct world_connection *connection, const struct model_word *words,
                      size_t count) {
    world->scratch.size = 0;
    if (connection->aside)
        world->aside(world, connection, words, count, &world->scratch);
    else
        redis_model_run(redis_of(world, connection), words, count, &world->scratch);
}

/* A script that is run twice, or ends in its middle. Its reply may be one that nobody knows. */
static void run_script(struct world *world, struct world_connection *connection, struct redis_model *redis,
                       const struct model_word *words, size_t count) {
    static const char odd[] = "-ERR something that nobody has heard of\r\n";
    bool was_asking = connection->is_asking;
    if (chance(world, world->faults.run_twice)) {
        world_note(world, WORLD_RUN_TWICE, connection->index);
        run_words(world, connection, words, count);
        connection->is_asking = was_asking;
    }
    bool short_before = redis->was_cut_short;
    if (chance(world, world->faults.cut_short)) redis->items_max = (size_t)between(world, 0, 3);
    run_words(world, connection, words, count);
    redis->items_max = SIZE_MAX;
    if (redis->was_cut_short && !short_before) { /* no reply comes in this case */
        redis->was_cut_short = false;
        world_note(world, WORLD_CUT_SHORT, connection->index);
        cut(world, connection);
        connection->to_redis.cut = connection->to_client.cut = true;
    }
    if (!chance(world, world->faults.odd_reply)) return;
    world_note(world, WORLD_ODD_REPLY, connection->index);
    world->scratch.size = 0;
    twi_bytes_add(&world->scratch, odd, sizeof odd - 1);
}

static void execute(struct world *world, struct world_connection *connection) {
    struct model_word words[4096];
    size_t count, used;
    struct redis_model *redis = redis_of(world, connection);
    while (redis_model_parse(connection->request.data, connection->request.size, words, 4096, &count, &used)) {
        if (redis) {
            redis->node = connection->node;
            if (!connection->aside) redis->now_ms = world_wall_ms(world) + world->redis_skew_ms;
            if (redis->refuses && words[0].size > 4) world_note(world, WORLD_REFUSED_WRITE, connection->index);
            if (!connection->client_open) world_note(world, WORLD_LATE_EXECUTION, connection->index);
        }
        if (redis && words[0].size >= 4 && memcmp(words[0].data, "EVAL", 4) == 0)
            run_script(world, connection, redis, words, count);
        else
            run_words(world, connection, words, count);
        redis_answer(world, connection, &world->scratch);
        twi_bytes_drop_front(&connection->request, used);
    }
}

static void connection_step(struct world *world, struct world_connection *connection) {
    char bytes[4096];
    if (!connection->used) return;
    size_t arrived;
    while ((arrived = pipe_arrived(world, &connection->to_redis)) > 0) {
        if (arrived > sizeof bytes) arrived = sizeof bytes;
        pipe_take(&connection->to_redis, bytes, arrived);
        twi_bytes_add(&connection->request, bytes, arrived);
        execute(world, connection);
    }
    if (!connection->client_open && connection->to_redis.piece_count == 0) connection_free(connection);
}

static int place_of_connection(const struct world_connection *connection) {
    return connection->aside ? connection->aside : connection->to_other ? WORLD_OTHER : WORLD_STORE;
}

void world_cut_off(struct world *world, int place) {
    for (size_t i = 0; i < WORLD_CONNECTIONS; i++) {
        struct world_connection *connection = &world->connections[i];
        if (!connection->used || place_of_connection(connection) != place) continue;
        pipe_free(&connection->to_redis);
        twi_bytes_free(&connection->request);
        connection->to_redis.cut = connection->to_client.cut = true;
        cut(world, connection);
    }
}

void world_swap_places(struct world *world) {
    for (size_t i = 0; i < WORLD_CONNECTIONS; i++)
        if (world->connections[i].used && !world->connections[i].aside)
            world->connections[i].to_other = !world->connections[i].to_other;
}

/* Redis dies: what has not been executed never will be. */
static void redis_down(struct world *world, int64_t for_ms) {
    world_cut_off(world, WORLD_STORE);
    world->down_until_ms = world->now_ms + for_ms;
    world->redis.run++;
    world->redis.history++;
    world->redis.has_script = world->redis.has_live_script = false;
}

const char *world_refusal(struct world *world) {
    static const char *const errors[] = {"OOM command not allowed when used memory > 'maxmemory'.",
                                         "READONLY You can't write against a read only replica.",
                                         "MISCONF Redis is configured to save RDB snapshots",
                                         "NOREPLICAS Not enough good replicas to write.",
                                         "LOADING Redis is loading the dataset in memory",
                                         "ERR something that nobody has heard of"};
    return errors[test_prng_below(&world->prng, sizeof errors / sizeof *errors)];
}

static void refuse_writes(struct world *world) {
    world->redis.refuses = world_refusal(world);
    world->refuses_until_ms = world->now_ms + between(world, 10, 500);
}

static void poison(struct world *world) {
    struct model_key *key = redis_model_find(&world->redis, POISONED_KEY);
    if (!key || key->type != MODEL_INTEGER) return; /* its value is kept aside, as a careful operator would do */
    world_note(world, WORLD_POISONED, -1);
    key->type = MODEL_TEXT;
    snprintf(key->text, sizeof key->text, "a text");
    world->poison_until_ms = world->now_ms + between(world, 50, 3000);
}

static void heal_what_is_over(struct world *world) {
    if (world->redis.refuses && world->now_ms >= world->refuses_until_ms) world->redis.refuses = NULL;
    struct model_key *key = redis_model_find(&world->redis, POISONED_KEY);
    if (key && key->type == MODEL_TEXT && world->now_ms >= world->poison_until_ms) key->type = MODEL_INTEGER;
}

/* False if the snapshot comes from before an instance was opened. */
static bool knows_all_ledgers(const struct model_store *before, const struct model_store *store) {
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        bool known = store->keys[i].type != MODEL_LEDGER;
        for (size_t j = 0; !known && j < MODEL_KEYS; j++)
            known = before->keys[j].type == MODEL_LEDGER && strcmp(before->keys[j].name, store->keys[i].name) == 0;
        if (!known) return false;
    }
    return true;
}

static void take_snapshot_perhaps(struct world *world) {
    if (world->before_count == 0 || world->now_ms - world->before_at_ms > 400) {
        if (world->before_count == WORLD_SNAPSHOTS) {
            memmove(world->before, world->before + 1, (WORLD_SNAPSHOTS - 1) * sizeof *world->before);
            world->before_count--;
        }
        world->before[world->before_count++] = world->redis.store;
        world->before_at_ms = world->now_ms;
    }
}

/* Redis forgets some seconds; or a lagging replica takes over, and what was written meanwhile is forgotten. */
static void go_back_perhaps(struct world *world) {
    bool back = chance(world, world->faults.roll_back), over = !back && chance(world, world->faults.fail_over);
    if (!back && !over) return;
    size_t i = test_prng_below(&world->prng, world->before_count);
    if (over) i = world->before_count - 1;
    if (world->goes_back_to_known && !knows_all_ledgers(&world->before[i], &world->redis.store)) return;
    world_note(world, back ? WORLD_ROLLED_BACK : WORLD_FAILED_OVER, -1);
    if (!knows_all_ledgers(&world->before[i], &world->redis.store)) world_note(world, WORLD_UNBORN, -1);
    redis_down(world, back ? between(world, 0, 500) : 0);
    if (over && world->redis.history % 2) world->redis.run--; /* the server that led before the last one */
    world->redis.store = world->before[i];
    world->before_count = i + 1;
    if (over && test_prng_chance(&world->prng, 1, 2)) { /* not promoted yet */
        world->redis.refuses = "READONLY You can't write against a read only replica.";
        world->refuses_until_ms = world->now_ms + between(world, 10, 500);
    }
}

/* ---- another store, seen for a while ---- */

void world_turn_to(struct world *world, int node, int64_t until_ms) {
    world->other_until_ms[node] = until_ms;
    for (size_t i = 0; i < WORLD_CONNECTIONS; i++) {
        struct world_connection *connection = &world->connections[i];
        if (!connection->used || connection->aside || connection->index != node ||
            connection->to_other == (until_ms != 0))
            continue;
        connection->to_redis.cut = connection->to_client.cut = true;
        cut(world, connection);
    }
}

/* A store that begins now, or the one that was seen the last time. */
static void prepare_other(struct world *world, enum world_other kind) {
    struct redis_model *other = &world->other;
    bool is_master = kind == OTHER_EMPTY || kind == OTHER_OLD;
    if (!(is_master && world->other_known && test_prng_chance(&world->prng, 1, 2))) {
        int run = other->run, history = other->history;
        uint64_t edges[MODEL_EDGES];
        memcpy(edges, other->edges, sizeof edges);
        redis_model_init(other);
        memcpy(other->edges, edges, sizeof edges);
        other->history = (history ? history : 1000000) + 1;
        other->run = other->history % 2 ? (run ? run : 1000000) + 1 : world->redis.run; /* it led before, perhaps */
        if (kind == OTHER_OLD_REPLICA || kind == OTHER_WRITABLE_REPLICA || kind == OTHER_OLD)
            other->store = world->before[test_prng_below(&world->prng, world->before_count)];
    }
    other->policy = world->redis.policy;
    other->beside = world->redis.beside;
    other->is_replica = !is_master && kind != OTHER_FULL;
    other->refuses = kind == OTHER_FULL ? "OOM command not allowed when used memory > 'maxmemory'." : NULL;
    other->is_writable = kind == OTHER_WRITABLE_REPLICA;
    world->other_known = is_master;
}

/* The other store is trusted, and everything is being re-sent to it. */
static void leave_in_the_middle(struct world *world) {
    uint64_t opened = world->other.edges[MODEL_OPENED];
    if (opened == world->other_opened || world->other_stays_ms == 0) return;
    world->other_opened = opened;
    for (int n = 0; n < WORLD_NODES; n++)
        if (world_sees_other(world, n) && test_prng_chance(&world->prng, 1, 2))
            world->other_until_ms[n] = world->now_ms + between(world, 1, 60);
}

/* One node sees the other store, or all do. */
static void flicker_perhaps(struct world *world) {
    leave_in_the_middle(world);
    for (int n = 0; n < WORLD_NODES; n++)
        if (world->other_until_ms[n] && !world_sees_other(world, n)) world_turn_to(world, n, 0);
    if (!chance(world, world->faults.flicker) || world->before_count == 0 || world->other_kinds == 0) return;
    for (int n = 0; n < WORLD_NODES; n++)
        if (world_sees_other(world, n)) return;
    if (world->may_flicker && !world->may_flicker()) return;
    enum world_other kind = (enum world_other)test_prng_below(&world->prng, (uint64_t)world->other_kinds);
    if (world->other_kinds == OTHERS && test_prng_chance(&world->prng, 1, 2)) kind = OTHER_OLD;
    prepare_other(world, kind);
    int who = (int)test_prng_below(&world->prng, WORLD_NODES + 1);
    for (int n = 0; n < WORLD_NODES; n++) {
        if (who != n && who != WORLD_NODES) continue;
        world_note(world, WORLD_SAW_OTHER + kind, n);
        int64_t max_ms = world->flicker_max_ms * (kind == OTHER_FULL ? 4 : 1); /* nothing can be opened there */
        int64_t min_ms = world->other_stays_ms ? max_ms : 5;
        world_turn_to(world, n, world->now_ms + between(world, min_ms, max_ms + world->other_stays_ms));
    }
}

/* A random key of the store that `wanted` accepts. NULL: there is none. */
static struct model_key *pick(struct world *world, bool (*wanted)(const struct model_key *key)) {
    size_t start = test_prng_below(&world->prng, MODEL_KEYS);
    for (size_t i = 0; i < MODEL_KEYS; i++) {
        struct model_key *key = &world->redis.store.keys[(start + i) % MODEL_KEYS];
        if (wanted(key)) return key;
    }
    return NULL;
}

/* Fields and members go with their hash or sorted set. */
static bool is_counter(const struct model_key *key) {
    bool has_counters = key->type == MODEL_INTEGER || key->type == MODEL_HASH || key->type == MODEL_ZSET;
    return has_counters && !redis_model_is_inner(key->name);
}

static bool ends(const struct model_key *key) {
    return is_counter(key) && key->expiry_ms;
}

static bool is_marker(const struct model_key *key) {
    return key->type == MODEL_TEXT && strstr(key->name, "tw:marker");
}

static bool is_ledger(const struct model_key *key) {
    return key->type == MODEL_LEDGER;
}

static void break_one_key(struct world *world) {
    const struct world_faults *faults = &world->faults;
    struct model_key *key;
    if (chance(world, faults->persist) && (key = pick(world, ends))) {
        world_note(world, WORLD_PERSISTED, -1);
        key->expiry_ms = 0;
    }
    if (chance(world, faults->evict_counters) && (key = pick(world, is_counter))) {
        world_note(world, WORLD_EVICTED_COUNTER, -1);
        memset(key, 0, sizeof *key);
    }
    if (chance(world, faults->lose_marker) && (key = pick(world, is_marker))) {
        world_note(world, WORLD_LOST_MARKER, -1);
        memset(key, 0, sizeof *key);
    }
    if (chance(world, faults->twin) && (key = pick(world, is_ledger))) {
        world_note(world, WORLD_TWIN, -1);
        redis_model_twin(&world->redis, key);
    }
}

static void break_something(struct world *world) {
    const struct world_faults *faults = &world->faults;
    world->redis.now_ms = world_wall_ms(world) + world->redis_skew_ms;
    if (chance(world, faults->restart)) {
        world_note(world, WORLD_RESTART, -1);
        redis_down(world, between(world, 0, 1500));
    }
    if (chance(world, faults->flush_scripts)) {
        world_note(world, WORLD_FLUSHED_SCRIPTS, -1);
        world->redis.has_script = world->redis.has_live_script = false;
    }
    if (chance(world, faults->refuse_writes)) refuse_writes(world);
    if (chance(world, faults->poison)) poison(world);
    if (faults->roll_back || faults->fail_over || faults->flicker) take_snapshot_perhaps(world);
    if (faults->roll_back || faults->fail_over) go_back_perhaps(world);
    flicker_perhaps(world);
    if (chance(world, faults->wipe)) {
        world_note(world, WORLD_WIPED, -1);
        redis_model_wipe(&world->redis);
        world->before_count = 0;
    }
    if (chance(world, faults->restart_empty)) {
        world_note(world, WORLD_RESTARTED_EMPTY, -1);
        redis_down(world, between(world, 0, 1500));
        redis_model_wipe(&world->redis);
        world->before_count = 0;
    }
    if (chance(world, faults->evict_ledgers)) {
        world_note(world, WORLD_EVICTED, -1);
        redis_model_delete_ledgers(&world->redis);
    }
    break_one_key(world);
    if (chance(world, faults->step_clock)) {
        world_note(world, WORLD_STEPPED_CLOCK, -1);
        world->redis_skew_ms = between(world, -1500, 1500);
    }
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

void world_init(struct world *world, uint64_t seed) {
    memset(world, 0, sizeof *world);
    test_prng_seed(&world->prng, seed);
    redis_model_init(&world->redis);
    world->now_ms = 1000000;
    world->wall_offset_ms = INT64_C(1700000000000) - world->now_ms;
    for (int i = 0; i < WORLD_NODES; i++) world->nodes[i] = (struct world_node){.world = world, .index = i, .life = i};
    redis_model_init(&world->other);
    world->flicker_max_ms = 1500;
    world->leap_max_ms = 40000;
    world->base_ms = world_wall_ms(world);
}

void world_step(struct world *world) {
    if (world->step_ms)
        world->now_ms += world->step_ms;
    else
        world->now_ms += test_prng_chance(&world->prng, 1, 50) ? between(world, 20, 300) : between(world, 0, 5);
    if (chance(world, world->faults.leap)) {
        world_note(world, WORLD_LEAPT, -1);
        world->now_ms += between(world, 1000, world->leap_max_ms);
    }
    heal_what_is_over(world);
    break_something(world);
    for (size_t i = 0; i < WORLD_CONNECTIONS; i++) connection_step(world, &world->connections[i]);
}

void world_kill(struct world *world, int node, int life) {
    world_note(world, WORLD_KILLED, node);
    sim_close(&world->nodes[node]);
    world->nodes[node].life = life;
}

void world_calm(struct world *world) {
    memset(&world->faults, 0, sizeof world->faults);
    world->refuses_until_ms = world->poison_until_ms = world->down_until_ms = 0;
    for (int n = 0; n < WORLD_NODES; n++)
        if (world->other_until_ms[n]) world_turn_to(world, n, 0);
}

void world_free(struct world *world) {
    for (size_t i = 0; i < WORLD_CONNECTIONS; i++) connection_free(&world->connections[i]);
    twi_bytes_free(&world->scratch);
}
