/* connection.c -- see connection.h.
 *
 *   CLOSED --dial--> DIALLING --connected--> greeting (AUTH, SELECT, INFO) --answered--> UP --any error--> CLOSED
 * A replica is no Redis to ask: what it knows may be old, and if it takes writes they are lost. It is left here; one
 * that becomes a replica later answers READONLY (the scripts see to that). Both times nothing was done, and the call
 * goes on with a new connection. Dialling goes on over several calls, each of which waits for its part only. A
 * connection that is readable while nobody asks was closed by Redis, or babbles: it is not used again. */
#include "sync/ask/connection.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/port/services.h"
#include "sync/batch/reply.h"

/* An answer of ours has at most some hundred bytes, but for a page of names (reclaim.lua): some thousand; INFO has some
 * hundred, an error may quote a name. */
static const struct twi_wire_limits reply_limits = {.bytes_max = 1u << 20, .nodes_max = 64, .depth_max = 2};

#define LOOK_UP_MS 5 /* a look-up has no descriptor: looked at this often */

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
    if (connection->link != NULL) twi_socket_transport.close(connection->link);
    twi_reader_free(connection->reader);
    connection->reader = NULL;
    connection->up = false;
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

static int fd_of(const struct twi_pool_connection *connection, bool *connecting) {
    return twi_socket_transport.fd(connection->link, connecting);
}

static enum twi_pool_connection_outcome send_out(struct twi_pool_connection *connection,
                                                 const struct twi_bytes *command, struct twi_wait *wait) {
    bool connecting;
    for (size_t at = 0; at < command->size;) {
        ssize_t sent = twi_socket_transport.send(connection->link, command->data + at, command->size - at);
        if (sent < 0) return unsent(connection, twi_socket_transport.why(connection->link));
        at += (size_t)sent;
        if (sent != 0) continue;
        if (twi_wait_left_ms(wait, connection->rules->engine) <= 0) return unsent(connection, "no answer in time");
        if (!twi_wait_for(wait, connection->rules, fd_of(connection, &connecting), true, INT32_MAX))
            return unsent(connection, "the engine is being closed");
    }
    return TWI_POOL_CONNECTION_DONE;
}

/* The next answer: DONE or BROKEN. */
static enum twi_pool_connection_outcome hear(struct twi_pool_connection *connection, struct twi_wait *wait,
                                             const struct twi_node **nodes, size_t *count) {
    char chunk[4096];
    bool connecting;
    for (;;) {
        enum twi_wire wire = twi_reader_next(connection->reader, nodes, count);
        if (wire == TWI_WIRE_DONE) return TWI_POOL_CONNECTION_DONE;
        if (wire == TWI_WIRE_BAD) return broken(connection, "an answer that is not the protocol's");
        ssize_t got = twi_socket_transport.recv(connection->link, chunk, sizeof chunk);
        if (got < 0) return broken(connection, twi_socket_transport.why(connection->link));
        if (got > 0 && !twi_reader_feed(connection->reader, chunk, (size_t)got))
            return broken(connection, "an answer too long");
        if (got > 0) continue;
        if (twi_wait_left_ms(wait, connection->rules->engine) <= 0) return broken(connection, "no answer in time");
        if (!twi_wait_for(wait, connection->rules, fd_of(connection, &connecting), false, INT32_MAX))
            return broken(connection, "the engine is being closed");
    }
}

/* ---- from nothing to a connection -------------------------------------------------------------------------------- */

static bool put_auth(struct twi_pool_connection *connection, struct twi_bytes *out, size_t *answers) {
    struct twi_pool_connection_rules *rules = connection->rules;
    char password[1024] = "";
    int length = (int)strnlen(rules->url.password, sizeof password - 1);
    if (rules->password != NULL) {
        pthread_mutex_lock(&rules->password_lock);
        length = rules->password(rules->password_ctx, password, sizeof password);
        pthread_mutex_unlock(&rules->password_lock);
        if (length >= (int)sizeof password) length = -1;
    } else {
        memcpy(password, rules->url.password, (size_t)length);
    }
    if (length > 0) {
        bool has_user = rules->url.user[0] != '\0';
        twi_wire_begin(out, has_user ? 3 : 2);
        twi_wire_put_text(out, "AUTH");
        if (has_user) twi_wire_put_text(out, rules->url.user);
        twi_wire_put(out, password, (size_t)length);
        ++*answers;
    }
    explicit_bzero(password, sizeof password);
    return length >= 0;
}

static enum twi_pool_connection_outcome turned_away(struct twi_pool_connection *connection, const char *why) {
    (void)broken(connection, why);
    return TWI_POOL_CONNECTION_TURNED_AWAY;
}

/* The answer to INFO. Who may not ask is not told: then the scripts alone see to it. */
static bool is_replica(const struct twi_node *info) {
    static const char said[] = "role:slave";
    return info->type == TWI_NODE_STRING && memmem(info->text, info->size, said, sizeof said - 1) != NULL;
}

static enum twi_pool_connection_outcome greet(struct twi_pool_connection *connection, struct twi_wait *wait) {
    struct twi_bytes out = {0};
    size_t answers = 1, count;
    const struct twi_node *nodes;
    bool may = put_auth(connection, &out, &answers);
    if (may && connection->rules->url.db != 0) {
        twi_wire_begin(&out, 2);
        twi_wire_put_text(&out, "SELECT");
        twi_wire_put_u64(&out, connection->rules->url.db);
        answers++;
    }
    twi_wire_begin(&out, 2);
    twi_wire_put_text(&out, "INFO");
    twi_wire_put_text(&out, "replication");
    enum twi_pool_connection_outcome done =
        !may || out.failed ? unsent(connection, "no password") : send_out(connection, &out, wait);
    twi_bytes_wipe(&out);
    twi_bytes_free(&out);
    for (; done == TWI_POOL_CONNECTION_DONE && answers != 0; answers--) {
        done = hear(connection, wait, &nodes, &count);
        if (done != TWI_POOL_CONNECTION_DONE) continue;
        if (answers == 1) {
            if (is_replica(nodes)) done = unsent(connection, "this Redis is a replica: nothing is asked of it");
        } else if (nodes->type == TWI_NODE_ERROR) {
            done = turned_away(connection, "Redis refuses the login or the database");
        }
    }
    return done == TWI_POOL_CONNECTION_BROKEN ? TWI_POOL_CONNECTION_UNSENT : done;
}

static enum twi_pool_connection_outcome dial(struct twi_pool_connection *connection, struct twi_wait *wait) {
    tw_engine *engine = connection->rules->engine;
    if (connection->link == NULL) connection->link = twi_socket_create(&connection->rules->url, true);
    if (connection->link == NULL) return TWI_POOL_CONNECTION_UNSENT;
    int64_t now_ms = twi_port_mono_ms(engine);
    if (connection->dial_deadline_ms != 0 && now_ms >= connection->dial_deadline_ms)
        twi_pool_connection_close(connection);
    if (connection->dial_deadline_ms == 0)
        connection->dial_deadline_ms = now_ms + 10 * (int64_t)connection->rules->timeout_ms;
    for (;;) {
        bool connecting = false;
        int done = twi_socket_transport.connect(connection->link, &connection->rules->url, twi_port_mono_ms(engine),
                                                connection->dial_deadline_ms);
        if (done > 0) return TWI_POOL_CONNECTION_DONE;
        if (done < 0) return unsent(connection, twi_socket_transport.why(connection->link));
        if (twi_wait_left_ms(wait, engine) <= 0) return TWI_POOL_CONNECTION_UNSENT; /* goes on with the next call */
        int fd = fd_of(connection, &connecting);
        if (!twi_wait_for(wait, connection->rules, fd, true, fd < 0 ? LOOK_UP_MS : INT32_MAX))
            return TWI_POOL_CONNECTION_UNSENT;
    }
}

/* Closed by Redis meanwhile, or with an answer that nobody asked for. */
static bool is_stale(const struct twi_pool_connection *connection) {
    bool connecting;
    struct pollfd fd = {.fd = fd_of(connection, &connecting), .events = POLLIN};
    return poll(&fd, 1, 0) != 0;
}

enum twi_pool_connection_outcome twi_pool_connection_open(struct twi_pool_connection *connection,
                                                          struct twi_wait *wait) {
    if (connection->up && is_stale(connection)) twi_pool_connection_close(connection);
    if (connection->up) return TWI_POOL_CONNECTION_DONE;
    enum twi_pool_connection_outcome done = dial(connection, wait);
    if (done != TWI_POOL_CONNECTION_DONE) return done;
    connection->reader = twi_reader_create(&reply_limits);
    done = connection->reader != NULL ? greet(connection, wait) : unsent(connection, "no memory");
    connection->up = done == TWI_POOL_CONNECTION_DONE;
    if (connection->up) twi_port_count(connection->rules->engine, ask_connects, 1);
    return done;
}

/* ---- a question -------------------------------------------------------------------------------------------------- */

static enum twi_pool_connection_outcome refused(struct twi_pool_connection *connection, const struct twi_node *error) {
    char text[120];
    size_t used = 0;
    for (; used < error->size && used + 1 < sizeof text; used++)
        text[used] = error->text[used] >= ' ' && error->text[used] < 127 ? error->text[used] : '?';
    text[used] = '\0';
    enum twi_reply_kind kind = twi_reply_error(error);
    if (kind == TWI_REPLY_NOSCRIPT) return TWI_POOL_CONNECTION_REFUSED;
    twi_port_last_error(connection->rules->engine, text);
    if (kind == TWI_REPLY_REFUSED) return TWI_POOL_CONNECTION_REFUSED;
    bool elsewhere = twi_reply_is_replicas(error); /* perhaps its address shows the master by now */
    twi_pool_connection_close(connection);
    if (elsewhere) return TWI_POOL_CONNECTION_UNSENT;
    return kind == TWI_REPLY_TURNED_AWAY ? TWI_POOL_CONNECTION_TURNED_AWAY : TWI_POOL_CONNECTION_BROKEN;
}

enum twi_pool_connection_outcome twi_pool_connection_exchange(struct twi_pool_connection *connection,
                                                              const struct twi_bytes *command, struct twi_wait *wait,
                                                              const struct twi_node **nodes, size_t *count) {
    enum twi_pool_connection_outcome done =
        command->failed ? unsent(connection, "no memory") : send_out(connection, command, wait);
    if (done == TWI_POOL_CONNECTION_DONE) done = hear(connection, wait, nodes, count);
    return done == TWI_POOL_CONNECTION_DONE && (*nodes)->type == TWI_NODE_ERROR ? refused(connection, *nodes) : done;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void twi_pool_connection_free(struct twi_pool_connection *connection) {
    twi_pool_connection_close(connection);
    twi_socket_destroy(connection->link);
    connection->link = NULL;
}

void twi_pool_connection_abandon(struct twi_pool_connection *connection, bool is_used) {
    bool connecting;
    if (connection->link == NULL) return;
    if (is_used) { /* what it holds in memory may be half changed: left */
        int fd = fd_of(connection, &connecting);
        if (fd >= 0) close(fd);
        return;
    }
    twi_reader_free(connection->reader);
    twi_socket_abandon(connection->link);
}
