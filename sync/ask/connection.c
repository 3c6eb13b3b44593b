/* connection.c -- see connection.h.
 *
 *   CLOSED --dial--> DIALLING --connected--> greeting (AUTH, SELECT, INFO, ROLE) --answered--> UP --any error--> CLOSED
 * Nothing is requested of a replica: its data may be old, and if it takes writes they are lost. The greeting drops a
 * connection to a replica. A server that becomes a replica later replies READONLY (the scripts do that). In both cases
 * nothing was done, and the call goes on with a new connection. One dialling may last over several calls, and each call
 * waits only for its part. If a connection is readable while no reply is due, Redis has closed it, or sends what nobody
 * requested: it is not used again. In a cluster the greeting is the same, but for ROLE, and a replica is not dropped:
 * it replies MOVED, and so says who the master is. */
#include "sync/ask/connection.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/atomic.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"

/* A reply of the scripts has at most some hundred bytes; with a page of names (reclaim.lua) some thousand, with one of
 * totals (totals.lua) up to 901,100. INFO has some hundred, and an error may quote a name. */
static const struct twi_wire_limits reply_limits = {.bytes_max = 1u << 20, .nodes_max = 1024, .depth_max = 3};

#define LOOK_UP_MS 5 /* a look-up has no descriptor: this is how often dial() looks */

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

int64_t twi_wait_left_ms(struct twi_wait *wait, tw_engine *engine) {
    int64_t left_ms = wait->deadline_ms - twi_port_mono_ms(engine);
    return left_ms < wait->budget_ms ? left_ms : wait->budget_ms;
}

bool twi_wait_for(struct twi_wait *wait, const struct twi_pool_connection_rules *rules, int fd, bool to_write,
                  int64_t most_ms) {
    int64_t left_ms = twi_wait_left_ms(wait, rules->engine);
    if (left_ms > most_ms) left_ms = most_ms;
    if (left_ms < 0) left_ms = 0;
    if (left_ms > 60000) left_ms = 60000;
    struct pollfd fds[2] = {{.fd = rules->stop_fd, .events = POLLIN},
                            {.fd = fd, .events = to_write ? POLLOUT : POLLIN}};
    if (poll(fds, 2, (int)left_ms) == 0) wait->budget_ms -= left_ms;
    return fds[0].revents == 0;
}

/* ---- one connection ---------------------------------------------------------------------------------------------- */

void twi_pool_connection_close(struct twi_pool_connection *connection) {
    if (connection->link != NULL) connection->rules->transport->close(connection->link);
    twi_reader_free(connection->reader);
    connection->reader = NULL;
    connection->up = connection->is_located = false;
    connection->dial_deadline_ms = 0;
}

static enum twi_pool_connection_outcome broken(struct twi_pool_connection *connection, const char *why) {
    twi_port_last_error(connection->rules->engine, why);
    twi_pool_connection_close(connection);
    return TWI_POOL_CONNECTION_BROKEN;
}

static enum twi_pool_connection_outcome unsent(struct twi_pool_connection *connection, const char *why) {
    (void)broken(connection, why);
    return TWI_POOL_CONNECTION_UNSENT;
}

static int fd_of(const struct twi_pool_connection *connection, bool *wants_write) {
    return connection->rules->transport->fd(connection->link, wants_write);
}

static enum twi_pool_connection_outcome send_out(struct twi_pool_connection *connection,
                                                 const struct twi_bytes *command, struct twi_wait *wait) {
    bool wants_write;
    for (size_t at = 0; at < command->size;) {
        ssize_t sent = connection->rules->transport->send(connection->link, command->data + at, command->size - at);
        if (sent < 0) return unsent(connection, connection->rules->transport->why(connection->link));
        at += (size_t)sent;
        if (sent != 0) continue;
        if (twi_wait_left_ms(wait, connection->rules->engine) <= 0) return unsent(connection, "no answer in time");
        if (!twi_wait_for(wait, connection->rules, fd_of(connection, &wants_write), true, INT32_MAX))
            return unsent(connection, "the engine is being closed");
    }
    return TWI_POOL_CONNECTION_DONE;
}

/* Waits for the next reply. Returns DONE or BROKEN. */
static enum twi_pool_connection_outcome hear(struct twi_pool_connection *connection, struct twi_wait *wait,
                                             const struct twi_node **nodes, size_t *count) {
    char chunk[4096];
    bool wants_write;
    for (;;) {
        enum twi_wire wire = twi_reader_next(connection->reader, nodes, count);
        if (wire == TWI_WIRE_DONE) return TWI_POOL_CONNECTION_DONE;
        if (wire == TWI_WIRE_BAD) return broken(connection, "an answer that is not the protocol's");
        ssize_t got = connection->rules->transport->recv(connection->link, chunk, sizeof chunk);
        if (got < 0) return broken(connection, connection->rules->transport->why(connection->link));
        if (got > 0 && !twi_reader_feed(connection->reader, chunk, (size_t)got))
            return broken(connection, "an answer too long");
        if (got > 0) continue;
        if (twi_wait_left_ms(wait, connection->rules->engine) <= 0) return broken(connection, "no answer in time");
        int fd = fd_of(connection, &wants_write);
        if (!twi_wait_for(wait, connection->rules, fd, wants_write, INT32_MAX))
            return broken(connection, "the engine is being closed");
    }
}

/* ---- from nothing to a connection -------------------------------------------------------------------------------- */

static bool put_auth(struct twi_pool_connection *connection, struct twi_bytes *out, size_t *answers) {
    enum twi_login_put done = twi_login_put(&connection->rules->login, out);
    *answers += done == TWI_LOGIN_PUT;
    return done != TWI_LOGIN_FAILED;
}

static enum twi_pool_connection_outcome turned_away(struct twi_pool_connection *connection, const char *why) {
    (void)broken(connection, why);
    return TWI_POOL_CONNECTION_TURNED_AWAY;
}

/* A cluster has masters enough. A node that is none replies MOVED. */
static bool may_move(const struct twi_pool_connection *connection) {
    return !connection->rules->is_cluster && twi_resolver_may_move(connection->resolver);
}

static void distrust(struct twi_pool_connection *connection) {
    if (!connection->rules->is_cluster) twi_resolver_distrust(connection->resolver);
}

/* Puts AUTH, SELECT, INFO and, where Redis may move, ROLE. False: no login. */
static bool put_greeting(struct twi_pool_connection *connection, struct twi_bytes *out, size_t *answers) {
    *answers = 1;
    if (!put_auth(connection, out, answers)) return false;
    if (connection->rules->url.db != 0) {
        twi_wire_begin(out, 2);
        twi_wire_put_text(out, "SELECT");
        twi_wire_put_u64(out, connection->rules->url.db);
        ++*answers;
    }
    twi_wire_begin(out, 2);
    twi_wire_put_text(out, "INFO");
    twi_wire_put_text(out, "replication");
    if (!may_move(connection)) return true;
    twi_wire_begin(out, 1);
    twi_wire_put_text(out, "ROLE");
    ++*answers;
    return true;
}

/* If the user may not call INFO, the scripts alone detect a replica; where Redis may move, the server itself has to say
 * that it is the master. */
static enum twi_pool_connection_outcome judge(struct twi_pool_connection *connection, enum twi_role by_info,
                                              enum twi_role by_role) {
    if (connection->rules->is_cluster) return TWI_POOL_CONNECTION_DONE;
    if (by_info == TWI_ROLE_REPLICA || by_role == TWI_ROLE_REPLICA)
        return unsent(connection, "this Redis is a replica: nothing is asked of it");
    if (may_move(connection) && by_info != TWI_ROLE_MASTER && by_role != TWI_ROLE_MASTER)
        return unsent(connection, "ROLE and INFO are refused: it does not say that it is the master");
    return TWI_POOL_CONNECTION_DONE;
}

static enum twi_pool_connection_outcome hear_greeting(struct twi_pool_connection *connection, size_t answers,
                                                      struct twi_wait *wait) {
    enum twi_role by_info = TWI_ROLE_UNKNOWN, by_role = TWI_ROLE_UNKNOWN;
    size_t roles = may_move(connection), count;
    const struct twi_node *nodes;
    for (; answers != 0; answers--) {
        enum twi_pool_connection_outcome done = hear(connection, wait, &nodes, &count);
        if (done != TWI_POOL_CONNECTION_DONE) return TWI_POOL_CONNECTION_UNSENT;
        if (answers > 1 + roles && nodes->type == TWI_NODE_ERROR)
            return turned_away(connection, "Redis refuses the login or the database");
        if (answers == 1 + roles) by_info = twi_reply_info_role(nodes);
        if (answers == roles) by_role = twi_reply_role(nodes, count);
    }
    return judge(connection, by_info, by_role);
}

static enum twi_pool_connection_outcome greet(struct twi_pool_connection *connection, struct twi_wait *wait) {
    struct twi_bytes out = {0};
    size_t answers;
    bool may = put_greeting(connection, &out, &answers);
    enum twi_pool_connection_outcome done =
        !may || out.failed ? unsent(connection, "no password") : send_out(connection, &out, wait);
    twi_bytes_wipe(&out);
    twi_bytes_free(&out);
    return done == TWI_POOL_CONNECTION_DONE ? hear_greeting(connection, answers, wait) : done;
}

static bool make_resolver(struct twi_pool_connection *connection) {
    const struct twi_pool_connection_rules *rules = connection->rules;
    struct twi_resolver_rules asking = {.url = &rules->url,
                                        .transport = rules->transport,
                                        .transport_ctx = rules->tls,
                                        .set = -1,
                                        .timeout_ms = rules->timeout_ms,
                                        .sentinel_login = rules->sentinel_login};
    if (rules->url.kind == TWI_URL_SENTINEL) twi_port_random(rules->engine, &asking.random, sizeof asking.random);
    connection->resolver = twi_resolver_create(&asking);
    return connection->resolver != NULL;
}

/* False: no memory. */
static bool make_link(struct twi_pool_connection *connection) {
    bool has_resolver = connection->rules->is_cluster || connection->resolver != NULL;
    if (!has_resolver && !make_resolver(connection)) return false;
    if (connection->link == NULL) connection->link = connection->rules->transport->create(connection->rules->tls, -1);
    return connection->link != NULL;
}

/* DONE: the endpoint is known. */
static enum twi_pool_connection_outcome locate(struct twi_pool_connection *connection, struct twi_wait *wait) {
    tw_engine *engine = connection->rules->engine;
    connection->moves = twi_load_relaxed(&connection->rules->moves);
    connection->is_located = connection->rules->is_cluster;
    while (!connection->is_located) {
        bool wants_write = false;
        int64_t again_ms = 0;
        enum twi_where where =
            twi_resolver_ask(connection->resolver, twi_port_mono_ms(engine), &connection->endpoint, &again_ms);
        connection->is_located = where == TWI_WHERE_HERE;
        if (connection->is_located) break;
        if (where == TWI_WHERE_UNKNOWN) return unsent(connection, twi_resolver_why(connection->resolver));
        if (twi_wait_left_ms(wait, engine) <= 0) return TWI_POOL_CONNECTION_UNSENT; /* goes on with the next call */
        int fd = twi_resolver_fd(connection->resolver, &wants_write);
        if (!twi_wait_for(wait, connection->rules, fd, wants_write, again_ms)) return TWI_POOL_CONNECTION_UNSENT;
    }
    return TWI_POOL_CONNECTION_DONE;
}

static enum twi_pool_connection_outcome dial(struct twi_pool_connection *connection, struct twi_wait *wait) {
    tw_engine *engine = connection->rules->engine;
    if (!make_link(connection)) return TWI_POOL_CONNECTION_UNSENT;
    int64_t now_ms = twi_port_mono_ms(engine);
    if (connection->dial_deadline_ms != 0 && now_ms >= connection->dial_deadline_ms)
        twi_pool_connection_close(connection);
    if (!connection->is_located && locate(connection, wait) != TWI_POOL_CONNECTION_DONE)
        return TWI_POOL_CONNECTION_UNSENT;
    if (connection->dial_deadline_ms == 0)
        connection->dial_deadline_ms = twi_port_mono_ms(engine) + 10 * (int64_t)connection->rules->timeout_ms;
    for (;;) {
        bool wants_write = false;
        int done = connection->rules->transport->connect(connection->link, &connection->endpoint,
                                                         twi_port_mono_ms(engine), connection->dial_deadline_ms);
        if (done > 0) return TWI_POOL_CONNECTION_DONE;
        if (done < 0) distrust(connection);
        if (done < 0) return unsent(connection, connection->rules->transport->why(connection->link));
        if (twi_wait_left_ms(wait, engine) <= 0) return TWI_POOL_CONNECTION_UNSENT; /* the next call goes on dialling */
        int fd = fd_of(connection, &wants_write);
        if (!twi_wait_for(wait, connection->rules, fd, wants_write, fd < 0 ? LOOK_UP_MS : INT32_MAX))
            return TWI_POOL_CONNECTION_UNSENT;
    }
}

/* Redis has closed the connection, or has sent what nobody requested. */
static bool is_stale(const struct twi_pool_connection *connection) {
    char byte; /* what TLS says to itself is no reply */
    return connection->rules->transport->recv(connection->link, &byte, 1) != 0;
}

enum twi_pool_connection_outcome twi_pool_connection_open(struct twi_pool_connection *connection,
                                                          struct twi_wait *wait) {
    bool is_elsewhere = connection->moves != twi_load_relaxed(&connection->rules->moves);
    if (connection->up && (is_elsewhere || is_stale(connection))) twi_pool_connection_close(connection);
    if (connection->up) return TWI_POOL_CONNECTION_DONE;
    enum twi_pool_connection_outcome done = dial(connection, wait);
    if (done != TWI_POOL_CONNECTION_DONE) return done;
    connection->reader = twi_reader_create(&reply_limits);
    done = connection->reader != NULL ? greet(connection, wait) : unsent(connection, "no memory");
    connection->up = done == TWI_POOL_CONNECTION_DONE;
    if (!connection->up) distrust(connection);
    if (connection->up) twi_port_count(connection->rules->engine, ask_connects, 1);
    return done;
}

void twi_pool_connection_lead(struct twi_pool_connection *connection, const struct twi_endpoint *to) {
    if (twi_endpoint_equals(&connection->endpoint, to)) return;
    twi_pool_connection_close(connection);
    connection->endpoint = *to;
}

bool twi_pool_connection_is_at(const struct twi_pool_connection *connection, const struct twi_endpoint *endpoint) {
    bool is_begun = connection->up || connection->dial_deadline_ms != 0;
    return is_begun && twi_endpoint_equals(&connection->endpoint, endpoint);
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

static void say(struct twi_pool_connection *connection, const struct twi_node *error) {
    char text[120];
    size_t used = 0;
    for (; used < error->size && used + 1 < sizeof text; used++)
        text[used] = error->text[used] >= ' ' && error->text[used] < 127 ? error->text[used] : '?';
    text[used] = '\0';
    twi_port_last_error(connection->rules->engine, text);
}

static enum twi_pool_connection_outcome refused(struct twi_pool_connection *connection, const struct twi_node *error) {
    enum twi_reply_kind kind = twi_reply_error(error);
    if (kind == TWI_REPLY_NOSCRIPT) return TWI_POOL_CONNECTION_REFUSED;
    say(connection, error);
    if (kind == TWI_REPLY_REFUSED) return TWI_POOL_CONNECTION_REFUSED;
    if (kind == TWI_REPLY_SPOILT) return TWI_POOL_CONNECTION_SPOILT;
    bool elsewhere = twi_reply_is_replicas(error); /* its address may lead to the master by now */
    twi_pool_connection_close(connection);
    if (elsewhere) return TWI_POOL_CONNECTION_UNSENT;
    return kind == TWI_REPLY_TURNED_AWAY ? TWI_POOL_CONNECTION_TURNED_AWAY : TWI_POOL_CONNECTION_BROKEN;
}

/* What a node of a cluster says of slots; else as of one Redis. */
static enum twi_pool_connection_outcome refused_by_node(struct twi_pool_connection *connection,
                                                        const struct twi_node *error) {
    twi_redirect_read(error, &connection->endpoint, &connection->redirect);
    switch (connection->redirect.kind) {
    case TWI_REDIRECT_NONE: return refused(connection, error);
    case TWI_REDIRECT_MOVED:
    case TWI_REDIRECT_ASK: return TWI_POOL_CONNECTION_REDIRECTED; /* nothing is wrong */
    case TWI_REDIRECT_TRYAGAIN:
    case TWI_REDIRECT_UNSERVED:
    case TWI_REDIRECT_DOWN: say(connection, error); return TWI_POOL_CONNECTION_REDIRECTED;
    case TWI_REDIRECT_CROSSSLOT:
        twi_port_last_error(connection->rules->engine, "CROSSSLOT: the keys of one call lie in several key slots");
        return TWI_POOL_CONNECTION_REFUSED;
    case TWI_REDIRECT_NON_LOCAL: say(connection, error); return TWI_POOL_CONNECTION_BROKEN;
    }
    return refused(connection, error);
}

enum twi_pool_connection_outcome twi_pool_connection_exchange(struct twi_pool_connection *connection,
                                                              const struct twi_bytes *command, size_t replies,
                                                              struct twi_wait *wait, const struct twi_node **nodes,
                                                              size_t *count) {
    enum twi_pool_connection_outcome done =
        command->failed ? unsent(connection, "no memory") : send_out(connection, command, wait);
    for (; done == TWI_POOL_CONNECTION_DONE && replies != 0; replies--) done = hear(connection, wait, nodes, count);
    if (done != TWI_POOL_CONNECTION_DONE || (*nodes)->type != TWI_NODE_ERROR) return done;
    return connection->rules->is_cluster ? refused_by_node(connection, *nodes) : refused(connection, *nodes);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void twi_pool_connection_free(struct twi_pool_connection *connection) {
    twi_pool_connection_close(connection);
    connection->rules->transport->destroy(connection->link);
    twi_resolver_destroy(connection->resolver);
    connection->link = NULL;
    connection->resolver = NULL;
}

void twi_pool_connection_abandon(struct twi_pool_connection *connection, bool is_used) {
    bool wants_write;
    if (connection->link == NULL && (is_used || connection->resolver == NULL)) return;
    if (is_used) { /* its memory may be half changed: it is not freed */
        int fd = fd_of(connection, &wants_write);
        if (fd >= 0) close(fd);
        return;
    }
    twi_reader_free(connection->reader);
    twi_resolver_abandon(connection->resolver);
    connection->rules->transport->abandon(connection->link);
}
