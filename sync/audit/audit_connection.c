/* audit_connection.c -- see audit_connection.h. */
#include "sync/audit/audit_connection.h"

#include "engine/base/check.h"
#include "engine/base/descriptor.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/wire/fnv.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- audit names ---- */

struct twi_audit_names *twi_audit_names_create(void) {
    return calloc(1, sizeof(struct twi_audit_names));
}

void twi_audit_names_destroy(struct twi_audit_names *names) {
    if (!names) return;
    twi_bytes_free(&names->bytes);
    free(names->met);
    free(names);
}

tw_key twi_audit_names_at(const struct twi_audit_names *names, size_t i) {
    twi_check(i < names->count);
    size_t begin = i ? names->ends[i - 1] : 0;
    return (tw_key){names->bytes.data + begin, names->ends[i] - begin};
}

void twi_audit_names_end(struct twi_audit_names *names) {
    names->ends[names->count++] = names->bytes.size;
}

void twi_audit_names_add(struct twi_audit_names *names, const char *text, size_t size) {
    twi_bytes_add(&names->bytes, text, size);
    twi_audit_names_end(names);
}

void twi_audit_names_empty(struct twi_audit_names *names) {
    names->count = names->bytes.size = 0;
}

void twi_audit_names_keep(struct twi_audit_names *names, bool (*is_kept)(void *ctx, tw_key name), void *ctx) {
    size_t kept = 0, used = 0, begin = 0;
    for (size_t i = 0; i < names->count && !names->bytes.failed; i++) {
        size_t end = names->ends[i], size = end - begin;
        if (is_kept(ctx, (tw_key){names->bytes.data + begin, size})) {
            memmove(names->bytes.data + used, names->bytes.data + begin, size);
            used += size;
            names->ends[kept++] = used;
        }
        begin = end;
    }
    names->count = kept;
    names->bytes.size = used;
}

/* ---- names that were met ----------------------------------------------------------------------------------------- */

/* Returns FNV-1a with its bits mixed; never 0. */
static uint64_t hash_of(const unsigned char *name, size_t size) {
    uint64_t hash = twi_fnv_add(TWI_FNV_BEGIN, name, size);
    hash = (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
    return hash ? hash : 1;
}

/* Returns false if the hash has a place. */
static bool put(uint64_t *places, size_t room, uint64_t hash) {
    size_t i = hash & (room - 1);
    for (; places[i] != 0; i = (i + 1) & (room - 1))
        if (places[i] == hash) return false;
    places[i] = hash;
    return true;
}

/* Keeps half of the places empty. Returns false if there is no memory. */
static bool make_room(struct twi_audit_names *names) {
    if ((names->met_count + 1) * 2 <= names->met_room) return true;
    size_t room = names->met_room ? names->met_room * 2 : 1024;
    uint64_t *places = calloc(room, sizeof *places);
    if (!places) return false;
    for (size_t i = 0; i < names->met_room; i++)
        if (names->met[i] != 0) put(places, room, names->met[i]);
    free(names->met);
    names->met = places;
    names->met_room = room;
    return true;
}

bool twi_audit_names_meet(struct twi_audit_names *names, const void *name, size_t size) {
    if (!make_room(names)) {
        names->bytes.failed = true;
        return false;
    }
    bool is_first = put(names->met, names->met_room, hash_of(name, size));
    names->met_count += is_first;
    return is_first;
}

void twi_audit_names_forget_met(struct twi_audit_names *names) {
    free(names->met);
    names->met = NULL;
    names->met_count = names->met_room = 0;
}

#define STOP_MS 50 /* a waiting audit sees this soon that its engine is being closed */

/* For a page of SCAN, a ledger, one long value, or CLUSTER SLOTS. */
static const struct twi_wire_limits limits = {.bytes_max = 8u << 20, .nodes_max = 1u << 19, .depth_max = 4};

void twi_audit_fail(struct twi_audit_connection *connection, tw_status status, const char *what, const char *detail) {
    twi_check(status != TW_OK);
    if (connection->status != TW_OK) return;
    connection->status = status;
    snprintf(connection->error, sizeof connection->error, "%s: %s", what, detail);
    twi_port_printable(connection->error);
}

/* ---- commands and replies ---------------------------------------------------------------------------------------- */

static void await_fd(int fd, bool to_write, int64_t ms) {
    struct pollfd pollfd = {.fd = fd, .events = to_write ? POLLOUT : POLLIN};
    (void)twi_descriptor_wait(&pollfd, fd >= 0,
                              (int)(fd < 0 && ms > 10 ? 10 : ms)); /* a look-up may have got no descriptor */
}

static void await(struct twi_audit_connection *connection, bool to_write, int64_t ms) {
    twi_check(ms >= 0);
    bool connecting = false;
    int fd = connection->where->transport->fd(connection->link, &connecting);
    await_fd(fd, to_write || connecting, ms);
}

static bool time_is_up(struct twi_audit_connection *connection, int64_t deadline_ms, int64_t *left_ms) {
    *left_ms = deadline_ms - connection->audit->mono_ms();
    if (!connection->audit->goes_on(connection->audit->engine))
        twi_audit_fail(connection, TW_ERR_CLOSED, "audit", "the engine is being closed");
    if (connection->status != TW_OK) return true;
    if (*left_ms > STOP_MS) *left_ms = STOP_MS;
    if (*left_ms > 0) return false;
    twi_audit_fail(connection, TW_ERR_TIMEOUT, "Redis", "no answer in time");
    return true;
}

void twi_audit_send(struct twi_audit_connection *connection) {
    int64_t deadline_ms = connection->audit->mono_ms() + connection->audit->options->timeout_ms, left_ms;
    if (connection->out.failed) twi_audit_fail(connection, TW_ERR_MEMORY, "audit", "no memory");
    for (size_t at = 0; connection->status == TW_OK && at < connection->out.size;) {
        ssize_t sent =
            connection->where->transport->send(connection->link, connection->out.data + at, connection->out.size - at);
        if (sent < 0)
            twi_audit_fail(connection, TW_ERR_REDIS, "Redis", connection->where->transport->why(connection->link));
        if (sent > 0) at += (size_t)sent;
        if (sent == 0 && !time_is_up(connection, deadline_ms, &left_ms)) await(connection, true, left_ms);
    }
    twi_bytes_wipe(&connection->out); /* it may contain a password */
}

/* Waits for the next reply. Returns NULL if none came, or if it was an error and `may_refuse` is false. `status` then
 * has the case. */
const struct twi_node *twi_audit_hear(struct twi_audit_connection *connection, bool may_refuse, size_t *count) {
    const struct twi_node *nodes = NULL;
    char chunk[16384];
    int64_t deadline_ms = connection->audit->mono_ms() + connection->audit->options->timeout_ms, left_ms;
    while (connection->status == TW_OK) {
        enum twi_wire wire = twi_reader_next(connection->reader, &nodes, count);
        if (wire == TWI_WIRE_DONE && nodes->type == TWI_NODE_ERROR && !may_refuse)
            twi_audit_fail(connection, TW_ERR_REDIS, "Redis refuses", nodes->text);
        else if (wire == TWI_WIRE_DONE)
            return nodes;
        if (wire == TWI_WIRE_BAD) twi_audit_fail(connection, TW_ERR_REDIS, "Redis", "not its protocol");
        if (connection->status != TW_OK || time_is_up(connection, deadline_ms, &left_ms)) break;
        ssize_t got = connection->where->transport->recv(connection->link, chunk, sizeof chunk);
        if (got < 0)
            twi_audit_fail(connection, TW_ERR_REDIS, "Redis", connection->where->transport->why(connection->link));
        if (got > 0 && !twi_reader_feed(connection->reader, chunk, (size_t)got))
            twi_audit_fail(connection, TW_ERR_REDIS, "Redis", "an answer too long");
        if (got == 0) await(connection, false, left_ms);
    }
    return NULL;
}

void twi_audit_put_words(struct twi_audit_connection *connection, size_t count, const char *const *words) {
    twi_check(count != 0);
    twi_wire_begin(&connection->out, count);
    for (size_t i = 0; i < count; i++) twi_wire_put_text(&connection->out, words[i]);
}

/* ---- a connection ------------------------------------------------------------------------------------------------ */

static void log_in(struct twi_audit_connection *connection) {
    size_t count;
    enum twi_login_put done = twi_login_put(&connection->where->login, &connection->out);
    if (done == TWI_LOGIN_FAILED) twi_audit_fail(connection, TW_ERR_REDIS, "password", "the callback failed");
    if (done != TWI_LOGIN_PUT) return;
    twi_audit_send(connection);
    const struct twi_node *answer = twi_audit_hear(connection, true, &count);
    if (answer && answer->type == TWI_NODE_ERROR)
        twi_audit_fail(connection, TW_ERR_REDIS, "Redis", "refuses the login");
}

static void choose_database(struct twi_audit_connection *connection) {
    char number[16];
    size_t count;
    if (connection->status != TW_OK || connection->where->url.db == 0) return;
    snprintf(number, sizeof number, "%u", connection->where->url.db);
    twi_audit_put_words(connection, 2, (const char *[]){"SELECT", number});
    twi_audit_send(connection);
    (void)twi_audit_hear(connection, false, &count);
}

/* If the user may not call ROLE, INFO gives the role. Returns false if the named server is no master. */
static bool is_master(struct twi_audit_connection *connection) {
    enum twi_role role = TWI_ROLE_UNKNOWN;
    size_t count;
    twi_audit_put_words(connection, 1, (const char *[]){"ROLE"});
    twi_audit_put_words(connection, 2, (const char *[]){"INFO", "replication"});
    twi_audit_send(connection);
    const struct twi_node *nodes = twi_audit_hear(connection, true, &count);
    if (nodes) role = twi_reply_role(nodes, count);
    const struct twi_node *info = twi_audit_hear(connection, true, &count);
    if (info && role == TWI_ROLE_UNKNOWN) role = twi_reply_info_role(info);
    if (role == TWI_ROLE_UNKNOWN)
        twi_audit_fail(connection, TW_ERR_REDIS, "Redis",
                       "ROLE and INFO are refused: it does not say that it is the master");
    return role != TWI_ROLE_REPLICA;
}

static void locate(struct twi_audit_connection *connection, int64_t deadline_ms) {
    int64_t again_ms, left_ms;
    while (connection->status == TW_OK) {
        bool wants_write = false;
        enum twi_resolved where =
            twi_resolver_ask(connection->resolver, connection->audit->mono_ms(), &connection->endpoint, &again_ms);
        if (where == TWI_WHERE_HERE) return;
        if (where == TWI_WHERE_UNKNOWN)
            twi_audit_fail(connection, TW_ERR_REDIS, "Redis", twi_resolver_why(connection->resolver));
        else if (!time_is_up(connection, deadline_ms, &left_ms))
            await_fd(twi_resolver_fd(connection->resolver, &wants_write), wants_write,
                     again_ms < left_ms ? again_ms : left_ms);
    }
}

/* Returns false if the named server cannot be reached. */
static bool dial(struct twi_audit_connection *connection, int64_t deadline_ms) {
    twi_check(connection->where != NULL);
    int64_t left_ms;
    while (connection->status == TW_OK) {
        int64_t now_ms = connection->audit->mono_ms();
        int done = connection->where->transport->connect(connection->link, &connection->endpoint, now_ms, deadline_ms);
        if (done != 0) return done > 0;
        /* When the time is over, the transport is called once more, because it may have the reason. */
        int64_t last_ms = now_ms < deadline_ms ? deadline_ms + STOP_MS : deadline_ms;
        if (time_is_up(connection, last_ms, &left_ms)) break;
        await(connection, false, left_ms < deadline_ms - now_ms + 1 ? left_ms : deadline_ms - now_ms + 1);
    }
    return true;
}

/* Returns false if the named server is not the master. */
static bool try_endpoint(struct twi_audit_connection *connection, int64_t deadline_ms) {
    twi_check(connection->reader == NULL);
    connection->reader = twi_reader_create(&limits);
    if (!connection->reader) twi_audit_fail(connection, TW_ERR_MEMORY, "audit", "no memory");
    locate(connection, deadline_ms);
    if (!dial(connection, deadline_ms)) return false;
    if (connection->status == TW_OK) log_in(connection);
    bool may_move = connection->status == TW_OK && twi_resolver_may_move(connection->resolver);
    return !may_move || is_master(connection);
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void make_link(struct twi_audit_connection *connection) {
    twi_check(connection->link == NULL);
    connection->link = connection->where->transport->create(connection->where->shared, -1);
    if (!connection->link) twi_audit_fail(connection, TW_ERR_MEMORY, "audit", "no memory");
}

static void make_resolver(struct twi_audit_connection *connection) {
    twi_check(connection->resolver == NULL);
    struct twi_resolver_rules rules = {
        .where = connection->where, .set = -1, .timeout_ms = connection->audit->options->timeout_ms};
    connection->resolver = twi_resolver_create(&rules);
    if (!connection->resolver) twi_audit_fail(connection, TW_ERR_MEMORY, "audit", "no memory");
}

/* Sentinels may name a dead server, or a replica. Then each sentinel gets the question once. */
void twi_audit_open(struct twi_audit_connection *connection) {
    int64_t deadline_ms = connection->audit->mono_ms() + 10 * (int64_t)connection->audit->options->timeout_ms;
    make_link(connection);
    make_resolver(connection);
    bool may_move = connection->status == TW_OK && twi_resolver_may_move(connection->resolver);
    for (uint32_t left = may_move ? connection->where->url.seed_count : 1; connection->status == TW_OK; left--) {
        if (try_endpoint(connection, deadline_ms)) break;
        if (left == 1 && !may_move)
            twi_audit_fail(connection, TW_ERR_REDIS, "Redis", connection->where->transport->why(connection->link));
        else if (left == 1)
            twi_audit_fail(connection, TW_ERR_REDIS, "Redis", "the sentinels name one that is not there, or a replica");
        connection->where->transport->close(connection->link);
        twi_reader_free(connection->reader);
        connection->reader = NULL;
        twi_resolver_distrust(connection->resolver);
    }
    choose_database(connection);
}

void twi_audit_open_node(struct twi_audit_connection *connection, bool must_be_master) {
    int64_t deadline_ms = connection->audit->mono_ms() + 3 * (int64_t)connection->audit->options->timeout_ms;
    make_link(connection);
    connection->reader = twi_reader_create(&limits);
    if (!connection->reader) twi_audit_fail(connection, TW_ERR_MEMORY, "audit", "no memory");
    if (!dial(connection, deadline_ms))
        twi_audit_fail(connection, TW_ERR_REDIS, "Redis", connection->where->transport->why(connection->link));
    if (connection->status == TW_OK) log_in(connection);
    if (connection->status != TW_OK || !must_be_master || is_master(connection)) return;
    twi_audit_fail(connection, TW_ERR_REDIS, "Redis", "the cluster names it as a master, and it is none");
}

void twi_audit_close(struct twi_audit_connection *connection) {
    if (connection->where) connection->where->transport->destroy(connection->link);
    twi_resolver_destroy(connection->resolver);
    twi_reader_free(connection->reader);
    twi_bytes_free(&connection->out);
}
