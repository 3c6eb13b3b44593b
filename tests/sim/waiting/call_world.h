/* call_world.h -- a world for calls that wait for Redis: a server that runs a model of strict.lua (the same notes and
 * the same answers, without a language), and the ways to it, which are slow, cut or left behind unread.
 * Always true: everything follows from the seed. */
#ifndef TESTS_SIM_WAITING_CALL_WORLD_H
#define TESTS_SIM_WAITING_CALL_WORLD_H

#include "engine/core/state.h"
#include "sync/wire/socket.h"
#include "tests/support/support.h"

#include <inttypes.h>

#define KEYS 3
#define CONNECTIONS 64
#define NOTES 4096
#define BYTES (1 << 20)

/* ---- the server -------------------------------------------------------------------------------------------------- */

/* Bytes on their way, with the time at which each piece arrives. */
struct way {
    char *bytes;
    size_t size, taken;
    struct {
        size_t end;
        int64_t at_ms;
    } pieces[4096];
    size_t first, count;
    int64_t busy_us; /* until then a thin way carries what it has */
    bool is_wide;    /* it is never thin */
};

struct connection {
    bool is_used, is_closed; /* by the client; what it has sent may still arrive */
    bool is_cut;             /* the client sees the end */
    bool names_m1;           /* it leads to the sentinel s1 */
    bool has_lost;           /* a reply. An error has no number, and would pass for that reply. It is cut before one */
    struct way there, back;
};

struct note {
    char who[32], serial[32];
    int key;
    int64_t given;
};

struct world {
    struct fake_clock clock;
    struct test_prng prng;
    tw_engine *engine;
    int64_t now_ms;
    struct connection connections[CONNECTIONS];
    struct note notes[NOTES];
    uint32_t note_count;
    int64_t counts[KEYS];
    bool knows_script;
    int64_t way_ms, paused_until_ms;
    int64_t bytes_per_s; /* of each way; 0: any number */
    size_t piece;        /* a thin way brings so many bytes at a time, or as many as it got at once; 0: PIECE */
    int thin_port;       /* 0: all are as thin as that, otherwise only the ways to this port */
    uint32_t refuse_of_1000, lose_of_1000;
    int64_t texts, cancels, cancels_of_nothing, requests;
    bool is_away;    /* nobody accepts a connection */
    int64_t late_ms; /* by how much turns came too late, all together */
};
static struct world world;

#define PIECE 128 /* so many bytes */

static inline void way_add_piece(struct way *way, const char *data, size_t size, int64_t at_ms) {
    if (way->bytes == NULL) way->bytes = malloc(BYTES);
    if (way->count == 4096 || way->size + size > BYTES) fail_msg("the model's way is full");
    memcpy(way->bytes + way->size, data, size);
    if (world.bytes_per_s != 0 && !way->is_wide) {
        if (way->busy_us < world.now_ms * 1000) way->busy_us = world.now_ms * 1000;
        way->busy_us += (int64_t)size * 1000000 / world.bytes_per_s;
        at_ms += way->busy_us / 1000 - world.now_ms;
    }
    way->size += size;
    if (way->count != 0 && way->pieces[(way->first + way->count - 1) % 4096].at_ms > at_ms)
        at_ms = way->pieces[(way->first + way->count - 1) % 4096].at_ms;
    way->pieces[(way->first + way->count++) % 4096].end = way->size;
    way->pieces[(way->first + way->count - 1) % 4096].at_ms = at_ms;
}

static inline void way_add(struct way *way, const char *data, size_t size, int64_t at_ms) {
    size_t piece = world.piece != 0 ? world.piece : PIECE,
           most = world.bytes_per_s != 0 && !way->is_wide ? piece : size;
    for (size_t at = 0; at < size; at += most)
        way_add_piece(way, data + at, size - at < most ? size - at : most, at_ms);
}

/* How many bytes have arrived. */
static inline size_t way_arrived(const struct way *way) {
    size_t end = way->taken;
    for (size_t i = 0; i < way->count && way->pieces[(way->first + i) % 4096].at_ms <= world.now_ms; i++)
        end = way->pieces[(way->first + i) % 4096].end;
    return end;
}

static inline void way_take(struct way *way, size_t size) {
    way->taken += size;
    for (; way->count != 0 && way->pieces[way->first].end <= way->taken; way->count--)
        way->first = (way->first + 1) % 4096;
    if (way->taken == way->size) way->taken = way->size = way->first = way->count = 0;
    if (way->taken < BYTES / 2) return;
    memmove(way->bytes, way->bytes + way->taken, way->size - way->taken);
    for (size_t i = 0; i < way->count; i++) way->pieces[(way->first + i) % 4096].end -= way->taken;
    way->size -= way->taken;
    way->taken = 0;
}

static inline void way_clear(struct way *way) {
    way->size = way->taken = way->first = way->count = 0;
    way->busy_us = 0;
}

#define WORDS_MAX 24
struct command {
    struct {
        const char *data;
        size_t size;
    } words[WORDS_MAX];
    size_t count;
};

/* Returns the bytes of the first command; 0: it is not whole. */
static inline size_t read_command(const char *data, size_t size, struct command *command) {
    const char *at = data, *end = data + size;
    if (size == 0 || *at != '*') return 0;
    command->count = strtoul(at + 1, NULL, 10);
    assert_true(command->count <= WORDS_MAX);
    for (size_t i = 0; i <= command->count; i++) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        if (line == NULL) return 0;
        size_t length = i == 0 ? 0 : strtoul(at + 1, NULL, 10);
        at = line + 1;
        if (i == 0) continue;
        if ((size_t)(end - at) < length + 2) return 0;
        command->words[i - 1].data = at;
        command->words[i - 1].size = length;
        at += length + 2;
    }
    return (size_t)(at - data);
}

static inline bool word_is(const struct command *command, size_t i, const char *text) {
    return command->words[i].size == strlen(text) && memcmp(command->words[i].data, text, strlen(text)) == 0;
}

static inline void word_copy(const struct command *command, size_t i, char *out, size_t size) {
    snprintf(out, size, "%.*s", (int)command->words[i].size, command->words[i].data);
}

static inline struct note *note_of(const char *who, int key) {
    for (uint32_t i = 0; i < world.note_count; i++)
        if (world.notes[i].key == key && strcmp(world.notes[i].who, who) == 0) return &world.notes[i];
    if (world.note_count == NOTES) fail_msg("the model has no room for notes");
    struct note *note = &world.notes[world.note_count++];
    *note = (struct note){.key = key};
    snprintf(note->who, sizeof note->who, "%s", who);
    return note;
}

/* As strict.lua. Writes the status, returns the units. */
static inline int64_t decide(struct note *note, const char *serial, int verb, int64_t limit, const char **status) {
    bool is_known = strcmp(note->serial, serial) == 0;
    int64_t given = is_known ? note->given : 0, *count = &world.counts[note->key];
    *status = "STALE";
    if (note->serial[0] != '\0' && !is_known && strtoull(note->serial, NULL, 10) >= strtoull(serial, NULL, 10))
        return 0;
    *status = "OK";
    if (verb == 0) {
        world.cancels++;
        world.cancels_of_nothing += given == 0;
        *count -= given;
    } else if (is_known) {
        *status = given > 0 ? "OK" : "DENIED";
        return given;
    } else {
        given = *count < limit;
        *status = given > 0 ? "OK" : "DENIED";
        *count += given;
        if (given == 0 && verb == 1) return 0; /* a denied call changes nothing, unless a copy may still come */
    }
    snprintf(note->serial, sizeof note->serial, "%s", serial);
    note->given = verb == 0 ? 0 : given;
    return given;
}

static inline void run_script(const struct command *command, char *reply, size_t size) {
    char who[32], serial[32], limit[24];
    const char *status;
    bool is_text = word_is(command, 0, "EVAL");
    world.texts += is_text;
    world.requests++;
    if (!is_text && !world.knows_script) {
        snprintf(reply, size, "-NOSCRIPT No matching script.\r\n");
        return;
    }
    world.knows_script = true;
    if (test_prng_chance(&world.prng, world.refuse_of_1000, 1000)) {
        snprintf(reply, size, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
        return;
    }
    word_copy(command, 5, who, sizeof who);
    word_copy(command, 6, serial, sizeof serial);
    word_copy(command, 9, limit, sizeof limit);
    int key = command->words[4].data[1] - '0';
    int64_t given = decide(note_of(who, key), serial, command->words[7].data[0] - '0', atoll(limit), &status);
    snprintf(reply, size, "*6\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$1\r\n%d\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n0\r\n",
             strlen(serial), serial, strlen(status), status, (int)given);
}

/* The sentinel s1 names the server m1, which has died. */
static inline void name_master(const struct connection *connection, char *reply, size_t size) {
    snprintf(reply, size, "*2\r\n$2\r\n%s\r\n$4\r\n6379\r\n", connection->names_m1 ? "m1" : "m2");
}

static inline void serve(struct connection *connection) {
    struct command command;
    struct way *there = &connection->there;
    for (;;) {
        size_t arrived = there->bytes != NULL ? way_arrived(there) - there->taken : 0;
        size_t size = read_command(there->bytes + there->taken, arrived, &command);
        char reply[256] = "+OK\r\n";
        if (size == 0) return;
        if (word_is(&command, 0, "INFO")) snprintf(reply, sizeof reply, "$11\r\nrole:master\r\n");
        if (word_is(&command, 0, "ROLE")) snprintf(reply, sizeof reply, "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
        if (word_is(&command, 0, "SENTINEL")) name_master(connection, reply, sizeof reply);
        bool is_script = word_is(&command, 0, "EVAL") || word_is(&command, 0, "EVALSHA");
        if (is_script) run_script(&command, reply, sizeof reply);
        way_take(there, size);
        bool is_lost = is_script && test_prng_chance(&world.prng, world.lose_of_1000, 1000);
        connection->is_cut = connection->is_cut || (connection->has_lost && reply[0] == '-');
        connection->has_lost = connection->has_lost || is_lost;
        if (!connection->is_closed && !is_lost)
            way_add(&connection->back, reply, strlen(reply), world.now_ms + world.way_ms);
    }
}

static inline void world_run(int64_t ms) {
    for (; ms > 0; ms--) {
        world.now_ms++;
        fake_clock_advance_ms(&world.clock, 1);
        if (world.now_ms < world.paused_until_ms) continue;
        for (int i = 0; i < CONNECTIONS; i++)
            if (world.connections[i].is_used) serve(&world.connections[i]);
    }
}

/* ---- the transport ----------------------------------------------------------------------------------------------- */

struct link {
    struct connection *connection; /* NULL: none */
};

static inline void *sim_create(void *shared, int set) {
    (void)shared, (void)set;
    return calloc(1, sizeof(struct link));
}

/* The engine's own connection, for batches, which is no matter here, finds nobody. */
static struct link nobody;

static inline int sim_connect(void *ctx, const struct twi_endpoint *endpoint, int64_t now_ms, int64_t deadline_ms) {
    struct link *link = ctx;
    (void)now_ms, (void)deadline_ms;
    if (link == &nobody || world.is_away) return -1;
    if (strcmp(endpoint->host, "m1") == 0 || strcmp(endpoint->host, "none") == 0) return -1;
    for (int i = 0; i < CONNECTIONS && link->connection == NULL; i++) {
        struct connection *connection = &world.connections[i];
        if (connection->is_used && !(connection->is_closed && connection->there.count == 0)) continue;
        way_clear(&connection->there), way_clear(&connection->back);
        connection->is_used = true;
        connection->is_closed = connection->is_cut = connection->has_lost = false;
        connection->names_m1 = strcmp(endpoint->host, "s1") == 0;
        connection->there.is_wide = connection->back.is_wide =
            world.thin_port != 0 && endpoint->port != world.thin_port;
        link->connection = connection;
    }
    if (link->connection == NULL) fail_msg("the model has no connection left");
    return 1;
}

static inline ssize_t sim_send(void *ctx, const void *data, size_t size) {
    struct connection *connection = ((struct link *)ctx)->connection;
    if (connection->is_cut) return -1;
    size_t part = test_prng_chance(&world.prng, 1, 8) ? 1 + test_prng_below(&world.prng, size) : size;
    if (connection->there.count > 3000) return 0;
    way_add(&connection->there, data, part, world.now_ms + world.way_ms);
    return (ssize_t)part;
}

static inline ssize_t sim_recv(void *ctx, void *data, size_t size) {
    struct connection *connection = ((struct link *)ctx)->connection;
    if (connection->is_cut) return -1;
    size_t arrived = connection->back.bytes != NULL ? way_arrived(&connection->back) - connection->back.taken : 0;
    if (arrived > size) arrived = size;
    if (arrived != 0) memcpy(data, connection->back.bytes + connection->back.taken, arrived);
    way_take(&connection->back, arrived);
    return (ssize_t)arrived;
}

static inline void sim_close(void *ctx) {
    struct link *link = ctx;
    if (link->connection != NULL) link->connection->is_closed = true;
    link->connection = NULL;
}

static inline int sim_fd(void *ctx, bool *wants_write) {
    *wants_write = false;
    return -1;
}

static inline const char *sim_why(void *ctx) {
    return "a fault of the model";
}

static inline void sim_destroy(void *ctx) {
    sim_close(ctx);
    free(ctx);
}

static const struct twi_transport transport = {.connect = sim_connect,
                                               .send = sim_send,
                                               .recv = sim_recv,
                                               .close = sim_close,
                                               .fd = sim_fd,
                                               .why = sim_why,
                                               .create = sim_create,
                                               .destroy = sim_destroy,
                                               .abandon = sim_destroy};

#endif
