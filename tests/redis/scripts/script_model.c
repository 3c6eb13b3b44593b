/* script_model.c -- the simulator's Redis and a real one reply alike: this is what makes the simulator's results count.
 * Method: the same random commands, encoded as sync encodes them, go to both; the replies are compared element by
 * element. Times may differ by the milliseconds between the two.
 * Covers: sync/script/batch.lua. */
#include "tests/redis/alike.h"
#include "tests/redis/sync_support.h"
#include "tests/sim/redis_model.h"

#include <inttypes.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "batch.lua.h"

#define NAMES 12
#define INNERS 3

struct both {
    struct test_prng prng;
    struct redis_model model;
    int socket;
    struct twi_reader *real, *modelled;
    uint64_t number; /* the last number in the ledger */
    uint64_t nonces[8];
    struct twi_bytes sent[8]; /* the last batches, to be sent again */
    uint64_t seen_dup, seen_gap, seen_late, seen_failed, seen_clash, seen_gone;
};

static const struct twi_wire_limits limits = {.bytes_max = 1 << 20, .nodes_max = 4096, .depth_max = 3};

static void real_connect(struct both *both, const struct redis_server *server) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", server->socket);
    both->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(both->socket, (struct sockaddr *)&address, sizeof address), 0);
}

static void both_begin(struct both *both, const struct redis_server *server) {
    memset(both, 0, sizeof *both);
    test_prng_seed(&both->prng, test_seed());
    redis_model_init(&both->model);
    both->model.has_script = true;
    both->real = twi_reader_create(&limits);
    both->modelled = twi_reader_create(&limits);
    real_connect(both, server);
}

static void both_end(struct both *both) {
    for (size_t i = 0; i < 8; i++) twi_bytes_free(&both->sent[i]);
    twi_reader_free(both->real);
    twi_reader_free(both->modelled);
    close(both->socket);
}

static const struct twi_node *real_answer(struct both *both, const struct twi_bytes *command, size_t *count) {
    const struct twi_node *nodes = NULL;
    char chunk[4096];
    assert_int_equal(write(both->socket, command->data, command->size), command->size);
    while (twi_reader_next(both->real, &nodes, count) != TWI_WIRE_DONE) {
        ssize_t got = read(both->socket, chunk, sizeof chunk);
        assert_true(got > 0);
        assert_true(twi_reader_feed(both->real, chunk, (size_t)got));
    }
    return nodes;
}

static const struct twi_node *model_answer(struct both *both, const struct twi_bytes *command, size_t *count) {
    static struct model_word words[2048];
    const struct twi_node *nodes = NULL;
    struct twi_bytes reply = {0};
    size_t word_count, used;
    assert_true(redis_model_parse(command->data, command->size, words, 2048, &word_count, &used));
    redis_model_run(&both->model, words, word_count, &reply);
    assert_true(twi_reader_feed(both->modelled, reply.data, reply.size));
    assert_int_equal(twi_reader_next(both->modelled, &nodes, count), TWI_WIRE_DONE);
    twi_bytes_free(&reply);
    return nodes;
}

static void note(struct both *both, const struct twi_node *nodes, size_t count) {
    if (nodes[0].type == TWI_NODE_ARRAY) {
        both->seen_dup += twi_node_is(&nodes[1], "DUP");
        both->seen_gap += twi_node_is(&nodes[1], "GAP");
        both->seen_clash += twi_node_is(&nodes[1], "CLASH");
        both->seen_gone += twi_node_is(&nodes[1], "GONE");
    }
    for (size_t i = 1; i < count; i++) {
        both->seen_late += nodes[i].type == TWI_NODE_STATUS;
        both->seen_failed += nodes[i].type == TWI_NODE_ERROR;
    }
}

static void ask_both(struct both *both, const struct twi_bytes *command) {
    size_t real_count, model_count;
    const struct twi_node *real = real_answer(both, command, &real_count);
    if (real[0].type == TWI_NODE_ARRAY && real_count > 8) both->model.now_ms = real[2].integer; /* one clock for both */
    const struct twi_node *model = model_answer(both, command, &model_count);
    assert_alike(0, real, real_count, model, model_count);
    note(both, real, real_count);
}

/* ---- random batches ---------------------------------------------------------------------------------------------- */

/* A name of strings (k, e: without expiry), hashes (h) or sorted sets (z). Now and then of another shape. */
static void draw_name(struct both *both, char shape, char kind, char name[16]) {
    static const char letters[] = "khz";
    char letter = shape ? shape : kind == 'e' ? 'e' : 'k';
    if (test_prng_chance(&both->prng, 1, 30)) letter = letters[test_prng_below(&both->prng, 3)];
    snprintf(name, 16, "%c%d", letter, (int)test_prng_below(&both->prng, NAMES));
}

/* Mostly small; now and then huge, or about what a double holds exactly. */
static int64_t draw_delta(struct both *both, bool shaped) {
    if (!test_prng_chance(&both->prng, 1, 6)) return test_prng_between(&both->prng, -5, 5);
    if (!shaped) return test_prng_between(&both->prng, 0, INT64_MAX / 2);
    int64_t edge = (INT64_C(1) << 53) + test_prng_between(&both->prng, -2, 2);
    switch (test_prng_below(&both->prng, 4)) {
    case 0: return edge;
    case 1: return -edge;
    default: return test_prng_between(&both->prng, -INT64_MAX / 2, INT64_MAX / 2);
    }
}

static void put_group(struct both *both, bool shaped, struct twi_bytes *keys, struct twi_bytes *args, size_t *key_count,
                      size_t *arg_count) {
    static const char kinds[] = "rewWRfF", shapes[] = "hz";
    char kind = kinds[test_prng_below(&both->prng, shaped ? 4 : 7)], name[16];
    char shape = shaped ? shapes[test_prng_below(&both->prng, 2)] : '\0', letters[] = {shape, kind};
    int64_t count = test_prng_between(&both->prng, 0, 4);
    bool over = test_prng_chance(&both->prng, 1, 6);
    int64_t far = both->model.now_ms +
                  (over ? test_prng_between(&both->prng, -2000, 0) : test_prng_between(&both->prng, 60000, 3600000));
    twi_wire_put(args, letters + !shaped, 2 - !shaped);
    twi_wire_put_i64(args, far);
    twi_wire_put_i64(args, count);
    *arg_count += 3;
    for (; count > 0; count--) {
        draw_name(both, shape, kind, name);
        twi_wire_put_text(keys, name);
        ++*key_count;
        if (kind != 'r' && kind != 'R') {
            if (test_prng_chance(&both->prng, 1, 12))
                twi_wire_put_text(args, "xxx"); /* struck out */
            else
                twi_wire_put_i64(args, draw_delta(both, shaped));
            ++*arg_count;
        }
        if (kind == 'f' || kind == 'F') {
            twi_wire_put_i64(args, far);
            ++*arg_count;
        }
        if (!shaped) continue;
        snprintf(name, sizeof name, "i%d", (int)test_prng_below(&both->prng, INNERS));
        twi_wire_put_text(args, name);
        ++*arg_count;
    }
}

static void encode_as(struct both *both, const char *ledger, const char *former, bool eval, uint64_t number,
                      uint64_t before, uint64_t nonce, struct twi_bytes *out) {
    struct twi_bytes keys = {0}, args = {0};
    size_t key_count = 2, arg_count = 8;
    bool shaped = false; /* groups of strings come first */
    char text[20];
    if (former) {
        twi_wire_put_text(&keys, former);
        key_count++;
    }
    for (uint64_t groups = number ? test_prng_below(&both->prng, 5) : 0; groups > 0; groups--) {
        shaped = shaped || test_prng_chance(&both->prng, 1, 3);
        put_group(both, shaped, &keys, &args, &key_count, &arg_count);
    }
    snprintf(text, sizeof text, "%016" PRIx64, nonce);
    out->size = 0;
    twi_wire_begin(out, 3 + key_count + arg_count);
    twi_wire_put_text(out, eval ? "EVAL" : "EVALSHA");
    twi_wire_put_text(out, eval ? twi_script_batch : twi_script_batch_sha1);
    twi_wire_put_u64(out, key_count);
    twi_wire_put_text(out, ledger);
    twi_wire_put_text(out, "M");
    twi_bytes_add(out, keys.data, keys.size);
    twi_wire_put_text(out, "1");
    twi_wire_put_u64(out, number);
    twi_wire_put_u64(out, before);
    twi_wire_put_text(out, text);
    twi_wire_put_text(out, "86400000");
    twi_wire_put_u64(out, number * 10);
    twi_wire_put_u64(out, number);
    twi_wire_put_text(out, "marker");
    twi_bytes_add(out, args.data, args.size);
    twi_bytes_free(&keys);
    twi_bytes_free(&args);
}

static void encode(struct both *both, bool eval, uint64_t number, uint64_t before, uint64_t nonce,
                   struct twi_bytes *out) {
    encode_as(both, "L", NULL, eval, number, before, nonce, out);
}

static void send_next(struct both *both, bool eval) {
    struct twi_bytes *slot = &both->sent[++both->number % 8];
    encode(both, eval, both->number, both->number - 1, test_prng_next(&both->prng), slot);
    ask_both(both, slot);
}

/* An operator writes a field or a score: one that is no whole number, or one at the edge of what is exact. */
static void write_inside(struct both *both, struct redis_server *server) {
    bool is_hash = test_prng_chance(&both->prng, 1, 2), is_odd = test_prng_chance(&both->prng, 1, 2);
    int64_t edge = (INT64_C(1) << 53) - test_prng_between(&both->prng, -4, 4);
    char name[16], inner[16], text[32];
    snprintf(name, sizeof name, "%c%d", is_hash ? 'h' : 'z', (int)test_prng_below(&both->prng, NAMES));
    snprintf(inner, sizeof inner, "i%d", (int)test_prng_below(&both->prng, INNERS));
    const struct model_key *key = redis_model_find(&both->model, name);
    if (key && key->type != (is_hash ? MODEL_HASH : MODEL_ZSET)) return;
    if (!is_hash) edge &= ~INT64_C(1); /* beyond 2^53 a double is even */
    snprintf(text, sizeof text, "%" PRId64, edge);
    if (is_odd) snprintf(text, sizeof text, is_hash ? "text" : "1.5");
    if (is_hash)
        redis_server_ask(server, "HSET", name, inner, text, NULL);
    else
        redis_server_ask(server, "ZADD", name, text, inner, NULL);
    struct model_key *value = redis_model_make_inner(&both->model, name, is_hash ? MODEL_HASH : MODEL_ZSET, inner,
                                                     is_odd ? MODEL_TEXT : MODEL_INTEGER);
    value->value = edge;
    snprintf(value->text, sizeof value->text, "%s", text);
}

static void step(struct both *both, struct redis_server *server) {
    struct twi_bytes odd = {0};
    char name[16];
    switch (test_prng_below(&both->prng, 14)) {
    case 0: /* one of the last eight again */
        if (both->number >= 8) ask_both(both, &both->sent[test_prng_below(&both->prng, 8)]);
        break;
    case 1: /* a number too far ahead */
        encode(both, true, both->number + 2, both->number + 1, 7, &odd);
        ask_both(both, &odd);
        break;
    case 2: /* another engine's batch under this number */
        if (both->number == 0) break;
        encode(both, true, both->number, both->number - 1, 8, &odd);
        ask_both(both, &odd);
        break;
    case 3: /* an operator writes a value that is no number */
        snprintf(name, sizeof name, "k%d", (int)test_prng_below(&both->prng, NAMES));
        redis_server_ask(server, "SET", name, "text", NULL);
        redis_model_make(&both->model, name, MODEL_TEXT)->expiry_ms = 0;
        snprintf(redis_model_find(&both->model, name)->text, 40, "text");
        break;
    case 4: /* an operator deletes the key */
        draw_name(both, "\0hz"[test_prng_below(&both->prng, 3)], 'w', name);
        redis_server_ask(server, "DEL", name, NULL);
        if (redis_model_find(&both->model, name)) redis_model_make(&both->model, name, MODEL_NONE);
        break;
    case 5: write_inside(both, server); break;
    default: send_next(both, test_prng_chance(&both->prng, 1, 10)); break;
    }
    twi_bytes_free(&odd);
}

/* Deletes the ledger and keeps the marker, which knows the instance unless it has forgotten it. */
static void gone_and_back(struct both *both, struct redis_server *server) {
    struct twi_bytes next = {0};
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        redis_server_ask(server, "DEL", "L", NULL);
        redis_model_delete_ledgers(&both->model);
        if (forgotten) {
            redis_server_ask(server, "HDEL", "M", "L", NULL);
            redis_model_unborn(&both->model, "L");
        }
        encode(both, true, both->number + 1, both->number, 9, &next);
        ask_both(both, &next);
    }
    redis_server_ask(server, "DEL", "M", NULL);
    redis_model_wipe(&both->model);
    encode(both, true, both->number + 1, both->number, 9, &next);
    ask_both(both, &next);
    encode(both, true, 0, 0, 1, &next);
    ask_both(both, &next);
    twi_bytes_free(&next);
}

/* No reply has the expiry of a hash or a sorted set. */
static void assert_same_expiries(struct both *both, struct redis_server *server) {
    for (int i = 0; i < 2 * NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%c%d", i % 2 == 0 ? 'h' : 'z', i / 2);
        const struct model_key *key = redis_model_find(&both->model, name);
        int64_t modelled = !key ? -2 : key->expiry_ms == 0 ? -1 : key->expiry_ms;
        assert_i64_equal(redis_server_expiry(server, name), modelled);
    }
}

/* Goal: model and server agree on every kind of group, DUP, GAP, CLASH, GONE, errors, expiries and large totals; of
 * strings, hashes and sorted sets. */
TEST(the_model_answers_as_redis_does) {
    struct redis_server server;
    static struct both both;
    redis_server_start(&server, NULL);
    both_begin(&both, &server);
    struct twi_bytes open = {0};
    encode(&both, true, 1, 0, 1, &open);
    ask_both(&both, &open); /* GONE */
    encode(&both, true, 0, 0, 1, &open);
    ask_both(&both, &open);
    ask_both(&both, &open); /* CLASH: an opening is never repeated */
    for (uint64_t i = 0; i < test_scale(3000); i++) {
        step(&both, &server);
        if (i % 100 == 0) assert_same_expiries(&both, &server);
    }
    assert_true(both.model.edges[MODEL_ITEM_INSIDE] > 0);
    gone_and_back(&both, &server);
    print_message("# dup %d gap %d late %d failed %d clash %d gone %d\n", (int)both.seen_dup, (int)both.seen_gap,
                  (int)both.seen_late, (int)both.seen_failed, (int)both.seen_clash, (int)both.seen_gone);
    assert_true(both.seen_dup > 0 && both.seen_gap > 0 && both.seen_late > 0 && both.seen_failed > 0 &&
                both.seen_clash > 0 && both.seen_gone > 0);
    twi_bytes_free(&open);
    both_end(&both);
    redis_server_destroy(&server);
}

/* Goal: an opening reports whether the earlier ledger is there, and makes none then; else it reports what the marker
 * knows of it. Method: another instance opens while the first one's ledger is there, evicted or forgotten, and after a
 * wipe. */
TEST(an_opening_tells_of_the_ledger_before) {
    struct redis_server server;
    static struct both both;
    struct twi_bytes open = {0};
    static const char *const fresh[] = {"A", "B", "C", "D"};
    redis_server_start(&server, NULL);
    both_begin(&both, &server);
    encode(&both, true, 0, 0, 1, &open);
    ask_both(&both, &open);
    for (int i = 0; i < 12; i++) send_next(&both, true);
    for (int i = 0; i < 4; i++) {
        if (i == 1) redis_server_ask(&server, "DEL", "L", NULL), redis_model_delete_ledgers(&both.model);
        if (i == 2) redis_server_ask(&server, "HDEL", "M", "L", NULL), redis_model_unborn(&both.model, "L");
        if (i == 3) redis_server_ask(&server, "FLUSHALL", NULL), redis_model_wipe(&both.model);
        encode_as(&both, fresh[i], "L", true, 0, 0, 1, &open);
        ask_both(&both, &open);
        assert_string_equal(redis_server_ask(&server, "EXISTS", fresh[i], NULL), i == 0 ? "0" : "1");
    }
    twi_bytes_free(&open);
    both_end(&both);
    redis_server_destroy(&server);
}

/* The roles of a store that gets a message. */
static const struct {
    const char *host, *read_only; /* of REPLICAOF; "NO": it is a master */
    bool is_replica, is_writable;
} roles[] = {{"127.0.0.1", "yes", true, false}, {"127.0.0.1", "no", true, true}, {"NO", "yes", false, false}};

static void become(struct both *both, struct redis_server *server, size_t role) {
    bool is_replica = roles[role].is_replica;
    redis_server_ask(server, "CONFIG", "SET", "replica-read-only", roles[role].read_only, NULL);
    redis_server_ask(server, "REPLICAOF", roles[role].host, is_replica ? "1" : "ONE", NULL);
    both->model.is_replica = is_replica;
    both->model.is_writable = roles[role].is_writable;
}

static void ask_each(struct both *both, const uint64_t (*asked)[2], size_t count) {
    struct twi_bytes command = {0};
    for (size_t i = 0; i < count; i++) {
        encode(both, true, asked[i][0], asked[i][1], 7, &command);
        ask_both(both, &command);
    }
    twi_bytes_free(&command);
}

/* Goal: no replica denies anything, read-only or not, synced or empty: it never replies GAP, GONE or CLASH, and opens
 * nothing. Its replies change when it is promoted or demoted. Model and server agree (found.md, R1). Method: each
 * message goes to a store with a ledger and to one without, in each role. */
TEST(a_replica_denies_nothing) {
    static const uint64_t with_ledger[][2] = {{9, 8}, {1, 0}, {0, 0}}, without[][2] = {{2, 1}, {0, 0}};
    struct redis_server server;
    static struct both both;
    redis_server_start(&server, NULL);
    both_begin(&both, &server);
    ask_each(&both, without, 2); /* GONE, then opened */
    send_next(&both, true);
    for (size_t role = 0; role < 3; role++) {
        uint64_t before = both.seen_gap + both.seen_clash;
        become(&both, &server, role);
        ask_each(&both, with_ledger, 3);
        assert_int_equal(both.seen_gap + both.seen_clash - before, roles[role].is_replica ? 0 : 3);
    }
    redis_server_ask(&server, "FLUSHALL", NULL);
    redis_model_wipe(&both.model);
    for (size_t role = 0; role < 3; role++) {
        uint64_t before = both.seen_gone;
        become(&both, &server, role);
        ask_each(&both, without, 2);
        assert_int_equal(both.seen_gone - before, roles[role].is_replica ? 0 : 1);
        assert_string_equal(redis_server_ask(&server, "EXISTS", "L", NULL), roles[role].is_replica ? "0" : "1");
    }
    both_end(&both);
    redis_server_destroy(&server);
}

/* ---- older copies of a store ------------------------------------------------------------------------------------- */

/* Sends the numbers around `last`, of which some are known and some are not, and an opening that names the earlier
 * ledger. */
static void ask_around(struct both *both, const struct twi_bytes *known, size_t known_count, uint64_t last) {
    struct twi_bytes odd = {0};
    for (size_t i = 0; i < known_count; i++) ask_both(both, &known[i]);
    for (size_t i = 0; i < 8; i++) ask_both(both, &both->sent[i]);
    encode(both, true, last + 2, last + 1, 7, &odd);
    ask_both(both, &odd);
    encode_as(both, "A", "L", true, 0, 0, 1, &odd);
    ask_both(both, &odd);
    twi_bytes_free(&odd);
}

static void run_shell(const char *format, const char *folder) {
    char line[400];
    snprintf(line, sizeof line, format, folder, folder);
    assert_int_equal(system(line), 0);
}

static void reconnect(struct both *both, const struct redis_server *server) {
    close(both->socket);
    real_connect(both, server);
}

static const struct {
    const char *appendonly, *keep, *bring_back;
} persistence[] = {
    {"no", "cp %s/dump.rdb %s/old.rdb", "mv %s/old.rdb %s/dump.rdb"},
    /* a folder, or before Redis 7 one file */
    {"yes", "cd %s && mkdir old && cp -r appendonly* old", "cd %s && rm -r appendonly* && mv old/* ."},
};

/* Goal: a server on which an older snapshot was restored, and the model that goes back to one, reply alike. What it had
 * then is DUP or PAST; what came since is GAP; another batch under a number of then is CLASH; and the ledger is KEPT.
 * Method: a snapshot or an append-only file is put aside, and brought back under a killed server; then both go on. */
TEST(a_restored_snapshot_is_answered_alike) {
    static struct both both;
    static struct model_store before;
    for (size_t kind = 0; kind < 2; kind++) {
        /* Without "always" Redis may answer first and write the file up to 2 s later, while an fsync is under way. */
        const char *extra[] = {"--appendonly", persistence[kind].appendonly, "--appendfsync", "always", NULL};
        struct redis_server server;
        struct twi_bytes known[2] = {{0}, {0}}, open = {0};
        redis_server_start(&server, extra);
        both_begin(&both, &server);
        encode(&both, true, 0, 0, 1, &open);
        ask_both(&both, &open);
        for (int i = 1; i <= 12; i++) {
            send_next(&both, true);
            if (i == 2 || i == 12) twi_bytes_add(&known[i == 12], both.sent[i % 8].data, both.sent[i % 8].size);
        }
        if (kind == 0) redis_server_ask(&server, "SAVE", NULL);
        run_shell(persistence[kind].keep, server.folder);
        before = both.model.store;
        for (int i = 0; i < 12; i++) send_next(&both, true);
        redis_server_kill(&server);
        run_shell(persistence[kind].bring_back, server.folder);
        redis_server_restart(&server);
        reconnect(&both, &server);
        both.model.store = before;
        uint64_t dup = both.seen_dup, gap = both.seen_gap, clash = both.seen_clash;
        ask_around(&both, known, 2, 12);
        assert_true(both.seen_dup > dup && both.seen_gap >= gap + 9);
        both.number = 12;
        send_next(&both, true);
        encode(&both, true, 13, 12, 99, &open);
        ask_both(&both, &open);
        assert_true(both.seen_clash > clash);
        for (int i = 0; i < 4; i++) twi_bytes_free(i < 2 ? &known[i] : &open);
        both_end(&both);
        redis_server_destroy(&server);
    }
}

static bool has_synced(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "replication", NULL), "master_link_status:up") != NULL;
}

/* Goal: the same for a replica that lags behind its master: it denies nothing; promoted, it is an older copy of the
 * store; demoted, it denies nothing again. Method: a replica is cut off, twelve batches go to its master, and then the
 * replica gets the messages. */
TEST(a_replica_that_lags_and_is_promoted_is_answered_alike) {
    static struct both both;
    static struct model_store before;
    struct redis_server master, replica;
    struct twi_bytes open = {0};
    char port[16];
    redis_server_start_tcp(&master, NULL);
    redis_server_start(&replica, NULL);
    both_begin(&both, &master);
    encode(&both, true, 0, 0, 1, &open);
    ask_both(&both, &open);
    for (int i = 0; i < 12; i++) send_next(&both, true);
    redis_server_ask(&master, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
    snprintf(port, sizeof port, "%d", master.port);
    redis_server_ask(&replica, "REPLICAOF", "127.0.0.1", port, NULL);
    assert_true(test_wait(has_synced, &replica, TEST_PATIENCE_MS));
    before = both.model.store;
    become(&both, &replica, 0);
    both.model.is_replica = false; /* the server that gets the messages */
    for (int i = 0; i < 12; i++) send_next(&both, true);
    both.model.store = before;
    both.model.is_replica = true;
    reconnect(&both, &replica);
    for (int role = 0; role < 4; role++) {
        become(&both, &replica, role == 3 ? 0 : (size_t)role);
        uint64_t gap = both.seen_gap;
        ask_around(&both, NULL, 0, 12);
        assert_true(both.model.is_replica ? both.seen_gap == gap : both.seen_gap >= gap + 9);
    }
    twi_bytes_free(&open);
    both_end(&both);
    redis_server_destroy(&master);
    redis_server_destroy(&replica);
}

/* Goal: databases that change places reply as a store that is empty, and as one that is back. */
TEST(swapped_databases_are_answered_alike) {
    static struct both both;
    static struct model_store aside;
    struct redis_server server;
    struct twi_bytes open = {0};
    redis_server_start(&server, NULL);
    both_begin(&both, &server);
    encode(&both, true, 0, 0, 1, &open);
    ask_both(&both, &open);
    for (int i = 0; i < 12; i++) send_next(&both, true);
    aside = both.model.store;
    redis_server_ask(&server, "SWAPDB", "0", "1", NULL);
    redis_model_wipe(&both.model);
    uint64_t gone = both.seen_gone, dup = both.seen_dup;
    ask_around(&both, NULL, 0, 12);
    assert_int_equal(both.seen_gone - gone, 9);
    redis_server_ask(&server, "SWAPDB", "0", "1", NULL);
    both.model.store = aside;
    ask_around(&both, NULL, 0, 12);
    assert_int_equal(both.seen_dup - dup, 8);
    twi_bytes_free(&open);
    both_end(&both);
    redis_server_destroy(&server);
}

/* Goal: a Redis before 7.0, without PEXPIREAT ... NX, sets expiries all the same. Method: the script with an option in
 * its place that no Redis knows; a new key, and one whose expiry was lost. */
TEST(expiries_are_set_where_nx_is_not_known) {
    struct redis_server server;
    char script[sizeof twi_script_batch], in_an_hour[24];
    redis_server_start(&server, NULL);
    memcpy(script, twi_script_batch, sizeof script);
    char *option = strstr(script, "'NX'");
    assert_non_null(option);
    option[1] = 'Y';
    snprintf(in_an_hour, sizeof in_an_hour, "%lld", (long long)time(NULL) * 1000 + 3600000);
    redis_server_ask(&server, "EVAL", script, "2", "L", "M", "1", "0", "0", "aa", "86400000", "0", "0", "marker", NULL);
    redis_server_ask(&server, "SET", "lost", "5", NULL);
    redis_server_ask(&server, "SET", "kept", "5", "EX", "60", NULL);
    const char *said =
        redis_server_ask(&server, "EVAL", script, "5", "L", "M", "new", "lost", "kept", "1", "1", "0", "ab", "86400000",
                         "3", "0", "marker", "W", in_an_hour, "3", "1", "1", "1", NULL);
    assert_memory_equal(said, "OK", 2);
    assert_i64_equal(redis_server_expiry(&server, "new"), atoll(in_an_hour));
    assert_i64_equal(redis_server_expiry(&server, "lost"), atoll(in_an_hour));
    assert_true(atoll(redis_server_ask(&server, "PTTL", "kept", NULL)) <= 60000);
    assert_i64_equal(redis_server_get(&server, "new"), 1);
    assert_i64_equal(redis_server_get(&server, "lost"), 6);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run();
}
