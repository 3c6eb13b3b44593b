/* connection.c -- see connection.h.
 *
 *   CLOSED --dial--> DIALLING --connected--> greeting (AUTH, SELECT, INFO) --answered--> UP --any error--> CLOSED
 * A replica is no Redis to ask: what it knows may be old, and if it takes writes they are lost. It is left here; one that becomes a
 * replica later answers READONLY (the scripts see to that). Both times nothing was done, and the call goes on with a new connection.
 * Dialling goes on over several calls, each of which waits for its part only. A connection that is readable while nobody
 * asks was closed by Redis, or babbles: it is not used again. */
#include "sync/ask/connection.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sync/batch/reply.h"

/* An answer of ours has at most some hundred bytes, but for a page of names (reclaim.lua): some thousand; INFO has some hundred, an
 * error may quote a name. */
static const struct twi_wire_limits reply_limits = {.bytes_max = 1u << 20, .nodes_max = 64, .depth_max = 2};

#define LOOK_UP_MS 5 /* a look-up has no descriptor: looked at this often */

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

int64_t twi_wait_left_ms(struct twi_wait *wait, tw_engine *engine) {
    int64_t left_ms = wait->deadline_ms - twi_port_mono_ms(engine);
    return left_ms < wait->budget_ms ? left_ms : wait->budget_ms;
}

bool twi_wait_for(struct twi_wait *wait, const struct twi_talk_rules *rules, int fd, bool to_write, int64_t most_ms) {
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

void twi_talk_close(struct twi_talk *talk) {
    if (talk->link != NULL) twi_link_transport.close(talk->link);
    twi_reader_free(talk->reader);
    talk->reader = NULL;
    talk->up = false;
    talk->dial_deadline_ms = 0;
}

static enum twi_talked broken(struct twi_talk *talk, const char *why) {
    twi_port_last_error(talk->rules->engine, why);
    twi_talk_close(talk);
    return TWI_TALK_BROKEN;
}

static enum twi_talked unsent(struct twi_talk *talk, const char *why) {
    (void)broken(talk, why);
    return TWI_TALK_UNSENT;
}

static int fd_of(const struct twi_talk *talk, bool *connecting) {
    return twi_link_transport.fd(talk->link, connecting);
}

static enum twi_talked send_out(struct twi_talk *talk, const struct twi_bytes *command, struct twi_wait *wait) {
    bool connecting;
    for (size_t at = 0; at < command->size;) {
        ssize_t sent = twi_link_transport.send(talk->link, command->data + at, command->size - at);
        if (sent < 0) return unsent(talk, twi_link_transport.why(talk->link));
        at += (size_t)sent;
        if (sent != 0) continue;
        if (twi_wait_left_ms(wait, talk->rules->engine) <= 0) return unsent(talk, "no answer in time");
        if (!twi_wait_for(wait, talk->rules, fd_of(talk, &connecting), true, INT32_MAX))
            return unsent(talk, "the engine is being closed");
    }
    return TWI_TALK_DONE;
}

/* The next answer: DONE or BROKEN. */
static enum twi_talked hear(struct twi_talk *talk, struct twi_wait *wait, const struct twi_node **nodes,
                            size_t *count) {
    char chunk[4096];
    bool connecting;
    for (;;) {
        enum twi_wire wire = twi_reader_next(talk->reader, nodes, count);
        if (wire == TWI_WIRE_DONE) return TWI_TALK_DONE;
        if (wire == TWI_WIRE_BAD) return broken(talk, "an answer that is not the protocol's");
        ssize_t got = twi_link_transport.recv(talk->link, chunk, sizeof chunk);
        if (got < 0) return broken(talk, twi_link_transport.why(talk->link));
        if (got > 0 && !twi_reader_feed(talk->reader, chunk, (size_t)got)) return broken(talk, "an answer too long");
        if (got > 0) continue;
        if (twi_wait_left_ms(wait, talk->rules->engine) <= 0) return broken(talk, "no answer in time");
        if (!twi_wait_for(wait, talk->rules, fd_of(talk, &connecting), false, INT32_MAX))
            return broken(talk, "the engine is being closed");
    }
}

/* ---- from nothing to a connection -------------------------------------------------------------------------------- */

static bool put_auth(struct twi_talk *talk, struct twi_bytes *out, size_t *answers) {
    struct twi_talk_rules *rules = talk->rules;
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

static enum twi_talked turned_away(struct twi_talk *talk, const char *why) {
    (void)broken(talk, why);
    return TWI_TALK_TURNED_AWAY;
}

/* The answer to INFO. Who may not ask is not told: then the scripts alone see to it. */
static bool is_replica(const struct twi_node *info) {
    static const char said[] = "role:slave";
    return info->type == TWI_NODE_STRING && memmem(info->text, info->size, said, sizeof said - 1) != NULL;
}

static enum twi_talked greet(struct twi_talk *talk, struct twi_wait *wait) {
    struct twi_bytes out = {0};
    size_t answers = 1, count;
    const struct twi_node *nodes;
    bool may = put_auth(talk, &out, &answers);
    if (may && talk->rules->url.db != 0) {
        twi_wire_begin(&out, 2);
        twi_wire_put_text(&out, "SELECT");
        twi_wire_put_u64(&out, talk->rules->url.db);
        answers++;
    }
    twi_wire_begin(&out, 2);
    twi_wire_put_text(&out, "INFO");
    twi_wire_put_text(&out, "replication");
    enum twi_talked done = !may || out.failed ? unsent(talk, "no password") : send_out(talk, &out, wait);
    twi_bytes_wipe(&out);
    twi_bytes_free(&out);
    for (; done == TWI_TALK_DONE && answers != 0; answers--) {
        done = hear(talk, wait, &nodes, &count);
        if (done != TWI_TALK_DONE) continue;
        if (answers == 1) {
            if (is_replica(nodes)) done = unsent(talk, "this Redis is a replica: nothing is asked of it");
        } else if (nodes->type == TWI_NODE_ERROR) {
            done = turned_away(talk, "Redis refuses the login or the database");
        }
    }
    return done == TWI_TALK_BROKEN ? TWI_TALK_UNSENT : done;
}

static enum twi_talked dial(struct twi_talk *talk, struct twi_wait *wait) {
    tw_engine *engine = talk->rules->engine;
    if (talk->link == NULL) talk->link = twi_link_create(&talk->rules->url, true);
    if (talk->link == NULL) return TWI_TALK_UNSENT;
    int64_t now_ms = twi_port_mono_ms(engine);
    if (talk->dial_deadline_ms != 0 && now_ms >= talk->dial_deadline_ms) twi_talk_close(talk);
    if (talk->dial_deadline_ms == 0) talk->dial_deadline_ms = now_ms + 10 * (int64_t)talk->rules->timeout_ms;
    for (;;) {
        bool connecting = false;
        int done =
            twi_link_transport.connect(talk->link, &talk->rules->url, twi_port_mono_ms(engine), talk->dial_deadline_ms);
        if (done > 0) return TWI_TALK_DONE;
        if (done < 0) return unsent(talk, twi_link_transport.why(talk->link));
        if (twi_wait_left_ms(wait, engine) <= 0) return TWI_TALK_UNSENT; /* goes on with the next call */
        int fd = fd_of(talk, &connecting);
        if (!twi_wait_for(wait, talk->rules, fd, true, fd < 0 ? LOOK_UP_MS : INT32_MAX)) return TWI_TALK_UNSENT;
    }
}

/* Closed by Redis meanwhile, or with an answer that nobody asked for. */
static bool is_stale(const struct twi_talk *talk) {
    bool connecting;
    struct pollfd fd = {.fd = fd_of(talk, &connecting), .events = POLLIN};
    return poll(&fd, 1, 0) != 0;
}

enum twi_talked twi_talk_open(struct twi_talk *talk, struct twi_wait *wait) {
    if (talk->up && is_stale(talk)) twi_talk_close(talk);
    if (talk->up) return TWI_TALK_DONE;
    enum twi_talked done = dial(talk, wait);
    if (done != TWI_TALK_DONE) return done;
    talk->reader = twi_reader_create(&reply_limits);
    done = talk->reader != NULL ? greet(talk, wait) : unsent(talk, "no memory");
    talk->up = done == TWI_TALK_DONE;
    if (talk->up) twi_port_count(talk->rules->engine, ask_connects, 1);
    return done;
}

/* ---- a question -------------------------------------------------------------------------------------------------- */

static enum twi_talked refused(struct twi_talk *talk, const struct twi_node *error) {
    char text[120];
    size_t used = 0;
    for (; used < error->size && used + 1 < sizeof text; used++)
        text[used] = error->text[used] >= ' ' && error->text[used] < 127 ? error->text[used] : '?';
    text[used] = '\0';
    enum twi_answer_kind kind = twi_answer_error(error);
    if (kind == TWI_ANSWER_NOSCRIPT) return TWI_TALK_REFUSED;
    twi_port_last_error(talk->rules->engine, text);
    if (kind == TWI_ANSWER_REFUSED) return TWI_TALK_REFUSED;
    bool elsewhere = twi_answer_is_replicas(error); /* perhaps its address shows the master by now */
    twi_talk_close(talk);
    if (elsewhere) return TWI_TALK_UNSENT;
    return kind == TWI_ANSWER_TURNED_AWAY ? TWI_TALK_TURNED_AWAY : TWI_TALK_BROKEN;
}

enum twi_talked twi_talk_exchange(struct twi_talk *talk, const struct twi_bytes *command, struct twi_wait *wait,
                                  const struct twi_node **nodes, size_t *count) {
    enum twi_talked done = command->failed ? unsent(talk, "no memory") : send_out(talk, command, wait);
    if (done == TWI_TALK_DONE) done = hear(talk, wait, nodes, count);
    return done == TWI_TALK_DONE && (*nodes)->type == TWI_NODE_ERROR ? refused(talk, *nodes) : done;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void twi_talk_free(struct twi_talk *talk) {
    twi_talk_close(talk);
    twi_link_destroy(talk->link);
    talk->link = NULL;
}

void twi_talk_abandon(struct twi_talk *talk, bool is_used) {
    bool connecting;
    if (talk->link == NULL) return;
    if (is_used) { /* what it holds in memory may be half changed: left */
        int fd = fd_of(talk, &connecting);
        if (fd >= 0) close(fd);
        return;
    }
    twi_reader_free(talk->reader);
    twi_link_abandon(talk->link);
}
