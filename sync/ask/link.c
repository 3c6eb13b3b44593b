/* link.c -- see link.h. */
#include "sync/ask/link.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/port/services.h"

/* A reply of the scripts has at most some hundred bytes; with a page of names (reclaim.lua) some thousand, with one of
 * totals (totals.lua) up to 901,100. INFO has some hundred, and an error may quote a name. Several replies may wait in
 * the parser. */
static const struct twi_wire_limits reply_limits = {.bytes_max = 2u << 20, .nodes_max = 1024, .depth_max = 3};

#define CHUNK 16384u
#define DIAL_TIMES 10    /* redis_timeout_ms */
#define DIAL_LOOK_MS 100 /* returns true if the next address must be tried */
#define PAUSE_MS 5       /* the pause before a link is made again; it doubles */
#define PAUSE_MAX_MS 100
#define SILENCE_MS 100       /* a shorter silence is none */
#define TIGHT_MS 75          /* a call, or redis_timeout_ms, with less than that ... */
#define TIGHT_SILENCE_MS 300 /* ... needs such a silence, because a busy machine makes shorter ones */
#define EXCUSES 9            /* times such a silence, at most, are excused because the driver was a little late */
#define BEGIN_MS 750         /* for so long nothing is known of a server that has not answered a call yet */
#define MADE_MS 2000         /* the least time for dialling, the greeting, the first answer, and the text of a script */

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* redis_timeout_ms, or a measured value if it is not set. */
static int64_t timeout_ms(const struct twi_link *link) {
    return twi_port_timeout_ms(link->rules->engine);
}

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t made_within_ms(const struct twi_link *link) {
    return later(DIAL_TIMES * timeout_ms(link), MADE_MS);
}

/* The text of a script is on its way, for which a thin way needs a while. */
static bool is_loading(const struct twi_link *link) {
    return memchr(link->loading, true, sizeof link->loading) != NULL;
}

/* Nothing is known of the server: it has not answered a call yet, or gets a text, and no try has failed. */
static bool is_beginning(const struct twi_link *link) {
    bool has_failed = link->pause_ms != PAUSE_MS || link->breaker.state != TWI_BREAKER_CLOSED;
    return !has_failed && (link->phase != TWI_LINK_UP || link->window.least_ms < 0 || is_loading(link));
}

/* After such a silence a link is left. */
static int64_t silence_ms(const struct twi_link *link) {
    int64_t limit_ms = timeout_ms(link);
    if (is_beginning(link) || is_loading(link)) return later(limit_ms, MADE_MS);
    return later(limit_ms, limit_ms < TIGHT_MS ? TIGHT_SILENCE_MS : SILENCE_MS);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

void twi_link_make(struct twi_link *link, const struct twi_link_rules *rules, const struct twi_endpoint *endpoint) {
    twi_check(rules->engine != NULL && rules->where->transport != NULL && rules->is_cluster == (endpoint != NULL));
    *link = (struct twi_link){.rules = rules, .pause_ms = PAUSE_MS};
    link->breaker.retry_max_ms = rules->retry_max_ms;
    if (endpoint != NULL) link->endpoint = *endpoint;
}

static void close_connection(struct twi_link *link) {
    if (link->transport != NULL) link->rules->where->transport->close(link->transport);
    twi_reader_free(link->reader);
    link->reader = NULL;
    twi_bytes_wipe(&link->out);
    link->out.failed = false;
    link->out_at = 0;
    memset(link->loading, 0, sizeof link->loading);
    link->phase = TWI_LINK_DOWN;
    twi_check(link->reader == NULL && link->out.size == 0);
}

void twi_link_unmake(struct twi_link *link) {
    twi_check(link->rules != NULL);
    close_connection(link);
    if (link->transport != NULL) link->rules->where->transport->destroy(link->transport);
    twi_resolver_destroy(link->resolver);
    twi_bytes_free(&link->out);
    link->transport = NULL;
    link->resolver = NULL;
}

void twi_link_abandon(struct twi_link *link, bool is_used) {
    if (is_used) return; /* its memory may be half changed, so it is not freed */
    twi_reader_free(link->reader);
    twi_bytes_free(&link->out);
    twi_resolver_abandon(link->resolver);
    if (link->transport != NULL) link->rules->where->transport->abandon(link->transport);
}

void twi_link_end(struct twi_link *link, enum twi_link_end ended, const char *why) {
    twi_check(ended != TWI_LINK_LIVES);
    if (why != NULL) twi_port_last_error(link->rules->engine, why);
    if (link->ended == TWI_LINK_LIVES) link->ended = ended;
    close_connection(link);
}

static const char *transport_why(const struct twi_link *link) {
    twi_check(link->transport != NULL);
    return link->rules->where->transport->why(link->transport);
}

static void distrust(struct twi_link *link) {
    if (link->resolver != NULL) twi_resolver_distrust(link->resolver);
}

static void end_unmade(struct twi_link *link, const char *why) {
    twi_check(link->phase != TWI_LINK_UP);
    distrust(link);
    twi_link_end(link, TWI_LINK_UNMADE, why);
}

static void end_up(struct twi_link *link, const char *why) {
    twi_check(link->phase == TWI_LINK_GREETING || link->phase == TWI_LINK_UP);
    if (link->phase == TWI_LINK_UP)
        twi_link_end(link, TWI_LINK_CUT, why);
    else
        end_unmade(link, why);
}

/* ---- the greeting ------------------------------------------------------------------------------------------------ */

static bool may_move(const struct twi_link *link) {
    return link->resolver != NULL && twi_resolver_may_move(link->resolver);
}

static bool put_auth(struct twi_link *link) {
    twi_check(link->phase == TWI_LINK_GREETING);
    enum twi_login_put done = twi_login_put(&link->rules->where->login, &link->out);
    link->greeting.left += done == TWI_LOGIN_PUT;
    return done != TWI_LOGIN_FAILED;
}

/* Puts AUTH, SELECT, INFO and, if Redis may move, ROLE. */
static void greet(struct twi_link *link, int64_t now_ms) {
    twi_check(link->phase == TWI_LINK_DIALLING && link->reader == NULL);
    twi_check(link->sent.first == NULL); /* a new connection has no due replies */
    struct twi_bytes *out = &link->out;
    link->phase = TWI_LINK_GREETING;
    link->deadline_ms = now_ms + made_within_ms(link);
    link->put_total = link->sent_total = 0;
    link->greeting = (struct twi_link_greeting){.left = 1, .roles = may_move(link)};
    twi_window_begin(&link->window);
    link->reader = twi_reader_create(&reply_limits);
    if (link->reader == NULL || !put_auth(link)) {
        end_unmade(link, link->reader != NULL ? "no password" : "no memory");
        return;
    }
    if (link->rules->where->url.db != 0) {
        twi_wire_begin(out, 2);
        twi_wire_put_text(out, "SELECT");
        twi_wire_put_u64(out, link->rules->where->url.db);
        link->greeting.left++;
    }
    twi_wire_begin(out, 2);
    twi_wire_put_text(out, "INFO");
    twi_wire_put_text(out, "replication");
    if (link->greeting.roles == 0) return;
    twi_wire_begin(out, 1);
    twi_wire_put_text(out, "ROLE");
    link->greeting.left++;
}

/* If the user may not call INFO, the scripts alone detect a replica; if Redis may move, ROLE has to show that the
 * server is the master. */
static void judge(struct twi_link *link) {
    twi_check(link->phase == TWI_LINK_GREETING && link->greeting.left == 0);
    enum twi_role by_info = link->greeting.by_info, by_role = link->greeting.by_role;
    bool is_replica = by_info == TWI_ROLE_REPLICA || by_role == TWI_ROLE_REPLICA;
    bool is_master = by_info == TWI_ROLE_MASTER || by_role == TWI_ROLE_MASTER;
    if (!link->rules->is_cluster && is_replica) {
        end_unmade(link, "this Redis is a replica: nothing is asked of it");
    } else if (may_move(link) && !is_master) {
        end_unmade(link, "ROLE and INFO are refused: it does not say that it is the master");
    } else {
        link->phase = TWI_LINK_UP;
        twi_port_count(link->rules->engine, ask_connects, 1);
    }
}

static void hear_greeting(struct twi_link *link, const struct twi_node *nodes, size_t count) {
    twi_check(link->greeting.left != 0 && link->greeting.roles <= link->greeting.left && count != 0);
    size_t left = link->greeting.left--, roles = link->greeting.roles;
    if (left > 1 + roles && nodes->type == TWI_NODE_ERROR) {
        distrust(link);
        twi_link_end(link, TWI_LINK_DENIED, "Redis refuses the login or the database");
        return;
    }
    if (left == 1 + roles) link->greeting.by_info = twi_reply_info_role(nodes);
    if (left == roles) link->greeting.by_role = twi_reply_role(nodes, count);
    if (link->greeting.left == 0) judge(link);
}

/* ---- from nothing to a connection -------------------------------------------------------------------------------- */

static bool make_resolver(struct twi_link *link) {
    twi_check(link->resolver == NULL && !link->rules->is_cluster);
    const struct twi_link_rules *rules = link->rules;
    struct twi_resolver_rules asking = {
        .where = rules->where, .set = rules->set, .timeout_ms = twi_port_timeout_ms(rules->engine)};
    if (rules->where->url.kind == TWI_URL_SENTINEL)
        twi_port_random(rules->engine, &asking.random, sizeof asking.random);
    link->resolver = twi_resolver_create(&asking);
    return link->resolver != NULL;
}

/* Returns false if there is no memory. */
static bool make_transport(struct twi_link *link) {
    if (!link->rules->is_cluster && link->resolver == NULL && !make_resolver(link)) return false;
    if (link->transport == NULL)
        link->transport = link->rules->where->transport->create(link->rules->where->shared, link->rules->set);
    return link->transport != NULL;
}

static bool is_wanted(const struct twi_link *link) {
    return link->waiting.first != NULL || link->sent.first != NULL;
}

static void dial_from(struct twi_link *link, int64_t now_ms) {
    twi_check(link->phase == TWI_LINK_LOCATING && link->transport != NULL);
    link->phase = TWI_LINK_DIALLING;
    link->deadline_ms = now_ms + made_within_ms(link);
}

static void locate(struct twi_link *link, int64_t now_ms) {
    twi_check(link->resolver != NULL);
    int64_t again_ms = 0;
    enum twi_resolved where = twi_resolver_ask(link->resolver, now_ms, &link->endpoint, &again_ms);
    link->again_ms = now_ms + again_ms;
    if (where == TWI_WHERE_HERE) twi_resolver_rest(link->resolver);
    if (where == TWI_WHERE_HERE) dial_from(link, now_ms);
    if (where == TWI_WHERE_UNKNOWN) twi_link_end(link, TWI_LINK_UNMADE, twi_resolver_why(link->resolver));
}

static void begin(struct twi_link *link, int64_t now_ms) {
    twi_check(link->phase == TWI_LINK_DOWN && link->reader == NULL);
    bool is_time = link->breaker.state == TWI_BREAKER_OPEN ? twi_breaker_may_try(&link->breaker, now_ms)
                                                           : now_ms >= link->again_ms;
    if (!is_wanted(link) || !is_time) return;
    if (link->failing_since_ms == 0) link->failing_since_ms = now_ms != 0 ? now_ms : 1;
    if (!make_transport(link)) {
        twi_link_end(link, TWI_LINK_UNMADE, "no memory");
        return;
    }
    link->phase = TWI_LINK_LOCATING;
    if (link->rules->is_cluster) dial_from(link, now_ms);
}

void twi_link_connect(struct twi_link *link, int64_t now_ms) {
    if (link->phase == TWI_LINK_DOWN) begin(link, now_ms);
    if (link->phase == TWI_LINK_LOCATING) locate(link, now_ms);
    if (link->phase != TWI_LINK_DIALLING) return;
    twi_check(link->transport != NULL && link->sent.first == NULL);
    int done = link->rules->where->transport->connect(link->transport, &link->endpoint, now_ms, link->deadline_ms);
    if (done > 0) greet(link, now_ms);
    if (done < 0) end_unmade(link, transport_why(link));
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Returns false if no bytes have come, or if the link has ended. */
static bool receive(struct twi_link *link, size_t *room, int64_t now_ms) {
    twi_check(link->reader != NULL && *room != 0);
    char chunk[CHUNK];
    size_t most = *room < CHUNK ? *room : CHUNK;
    ssize_t got = link->rules->where->transport->recv(link->transport, chunk, most);
    if (got < 0 || (size_t)got > most)
        end_up(link, got < 0 ? transport_why(link) : "recv: more than there was room for");
    if (got <= 0 || (size_t)got > most) return false;
    *room -= (size_t)got;
    link->has_heard = true;
    link->heard_ms = link->silence.byte_ms = now_ms;
    link->silence.excused_ms = 0;
    if (!twi_reader_feed(link->reader, chunk, (size_t)got)) end_up(link, "an answer too long");
    return link->phase != TWI_LINK_DOWN;
}

/* No reply is due any more. Further bytes, perhaps the end, are read in a separate step. */
static bool is_through(const struct twi_link *link) {
    return link->has_heard && link->phase == TWI_LINK_UP && link->sent.first == NULL;
}

bool twi_link_hear(struct twi_link *link, size_t *room, const struct twi_node **nodes, size_t *count, int64_t now_ms) {
    while (link->phase == TWI_LINK_GREETING || link->phase == TWI_LINK_UP) {
        enum twi_wire wire = twi_reader_next(link->reader, nodes, count);
        if (wire == TWI_WIRE_BAD) {
            end_up(link, "an answer that is not the protocol's");
        } else if (wire == TWI_WIRE_MORE) {
            if (*room == 0 || is_through(link) || !receive(link, room, now_ms)) return false;
        } else if (link->phase == TWI_LINK_GREETING) {
            hear_greeting(link, *nodes, *count);
        } else if (link->sent.first == NULL) {
            end_up(link, "an answer that nobody asked for");
        } else {
            return true;
        }
    }
    return false;
}

void twi_link_put(struct twi_link *link, struct twi_lane *lane, size_t bytes, int64_t now_ms) {
    twi_check(link->phase == TWI_LINK_UP && lane->link == link);
    twi_check(lane->state == TWI_LANE_SENT || lane->state == TWI_LANE_CANCELLING);
    if (link->sent.first == NULL) {
        link->heard_ms = now_ms;
        link->silence.excused_ms = 0;
    }
    link->put_total += bytes;
    lane->tries.end_at = link->put_total;
    twi_lane_list_add(&link->sent, lane);
    link->used_ms = now_ms;
}

void twi_link_send(struct twi_link *link, int64_t now_ms) {
    (void)now_ms;
    if (link->phase != TWI_LINK_GREETING && link->phase != TWI_LINK_UP) return;
    twi_check(link->transport != NULL && link->out_at <= link->out.size);
    if (link->out.failed) {
        end_up(link, "no memory");
        return;
    }
    while (link->out_at < link->out.size) {
        size_t left = link->out.size - link->out_at;
        ssize_t sent = link->rules->where->transport->send(link->transport, link->out.data + link->out_at, left);
        if (sent < 0 || (size_t)sent > left) {
            end_up(link, transport_why(link));
            return;
        }
        if (sent == 0) return;
        link->out_at += (size_t)sent;
        if (link->phase == TWI_LINK_UP) link->sent_total += (uint64_t)sent;
    }
    if (link->phase == TWI_LINK_GREETING && link->out.size != 0) twi_bytes_wipe(&link->out); /* it had a password */
    link->out.size = link->out_at = 0;
}

/* ---- when to leave it alone -------------------------------------------------------------------------------------- */

void twi_link_look(struct twi_link *link, int64_t now_ms) {
    bool is_made = link->phase == TWI_LINK_UP, is_begun = link->phase >= TWI_LINK_DIALLING;
    if (is_made && link->sent.first != NULL && now_ms - link->heard_ms >= silence_ms(link))
        twi_link_end(link, TWI_LINK_SILENT, "no answer in time");
    else if (!is_made && is_begun && now_ms >= link->deadline_ms)
        end_unmade(link, link->phase == TWI_LINK_DIALLING ? "connect: no answer in time" : "no answer in time");
}

void twi_link_excuse(struct twi_link *link, int64_t late_ms) {
    twi_check(late_ms >= 0);
    link->heard_ms += late_ms;
    link->deadline_ms += late_ms;
    if (link->failing_since_ms != 0) link->failing_since_ms += late_ms;
}

void twi_link_excuse_silence(struct twi_link *link, int64_t late_ms) {
    twi_check(late_ms >= 0 && link->silence.excused_ms >= 0);
    int64_t most_ms = EXCUSES * silence_ms(link) - link->silence.excused_ms;
    if (late_ms > most_ms) late_ms = most_ms > 0 ? most_ms : 0;
    link->heard_ms += late_ms;
    link->silence.excused_ms += late_ms;
}

static uint64_t random_of(const struct twi_link *link) {
    uint64_t random;
    twi_port_random(link->rules->engine, &random, sizeof random);
    return random;
}

void twi_link_failed(struct twi_link *link, int64_t now_ms) {
    twi_check(link->ended != TWI_LINK_LIVES && link->phase == TWI_LINK_DOWN && link->sent.first == NULL);
    enum twi_link_end ended = link->ended;
    link->ended = TWI_LINK_LIVES;
    if (ended == TWI_LINK_DISMISSED) return;
    if (link->failing_since_ms == 0) link->failing_since_ms = now_ms != 0 ? now_ms : 1;
    bool is_lasting = ended == TWI_LINK_SILENT || link->breaker.state != TWI_BREAKER_CLOSED ||
                      now_ms - link->failing_since_ms >= timeout_ms(link);
    if (ended == TWI_LINK_DENIED) {
        twi_breaker_fail_slowly(&link->breaker, now_ms, random_of(link));
    } else if (is_lasting) {
        twi_breaker_fail(&link->breaker, now_ms, random_of(link));
    } else {
        link->again_ms = now_ms + link->pause_ms;
        link->pause_ms = earlier(2 * link->pause_ms, PAUSE_MAX_MS);
        twi_check(link->pause_ms >= PAUSE_MS);
    }
}

void twi_link_answered(struct twi_link *link) {
    twi_check(link->phase == TWI_LINK_UP);
    if (link->breaker.state != TWI_BREAKER_CLOSED) twi_breaker_succeed(&link->breaker);
    link->breaker.failures = 0;
    link->failing_since_ms = 0;
    link->pause_ms = PAUSE_MS;
}

bool twi_link_serves(const struct twi_link *link, const struct twi_lane_caller *caller, int64_t now_ms) {
    if (link->breaker.state != TWI_BREAKER_CLOSED) return false;
    if (link->phase != TWI_LINK_UP) {
        bool has_begun = link->failing_since_ms != 0;
        return is_beginning(link) && (!has_begun || now_ms - link->failing_since_ms < BEGIN_MS);
    }
    int64_t limit_ms = timeout_ms(link), silent_ms = link->sent.first != NULL ? now_ms - link->heard_ms : 0;
    if (is_beginning(link)) return silent_ms < BEGIN_MS;
    if (caller->time_ms < TIGHT_MS) return silent_ms < later(TIGHT_SILENCE_MS, limit_ms / 2);
    bool has_heard = link->silence.byte_ms > caller->began_ms; /* in the same millisecond it may have come before */
    return silent_ms < (has_heard ? later(SILENCE_MS, limit_ms / 2) : earlier(limit_ms, caller->time_ms) / 2);
}

bool twi_link_has_room(const struct twi_link *link, int64_t now_ms) {
    return link->phase == TWI_LINK_UP && link->sent.count < link->window.calls &&
           twi_window_next_ms(&link->window) <= now_ms && link->out.size - link->out_at < TWI_LINK_OUT_MAX;
}

/* Returns true if a caller waits for one of these calls. The other calls are cancels, or will be. */
static bool has_caller(const struct twi_lane_list *list) {
    for (const struct twi_lane *lane = list->first; lane != NULL; lane = lane->next)
        if (lane->state == TWI_LANE_QUEUED || lane->state == TWI_LANE_SENT) return true;
    return false;
}

int64_t twi_link_closed_until_ms(const struct twi_link *link) {
    if (link->breaker.state == TWI_BREAKER_CLOSED) return 0;
    if (has_caller(&link->waiting) || has_caller(&link->sent)) return INT64_MAX;
    return link->breaker.state == TWI_BREAKER_OPEN ? link->breaker.retry_at_ms : 0;
}

/* When a call may be sent that waits for nothing else, or when the link is silent for too long. */
static int64_t up_wake_ms(const struct twi_link *link, int64_t now_ms) {
    int64_t next_ms = twi_window_next_ms(&link->window);
    bool is_paced = link->waiting.first != NULL && link->sent.count < link->window.calls && next_ms > now_ms;
    int64_t silent_ms = link->sent.first != NULL ? link->heard_ms + silence_ms(link) : INT64_MAX;
    return is_paced ? earlier(next_ms, silent_ms) : silent_ms;
}

int64_t twi_link_wake_ms(const struct twi_link *link, int64_t now_ms) {
    switch (link->phase) {
    case TWI_LINK_DOWN:
        if (!is_wanted(link)) return INT64_MAX;
        return link->breaker.state == TWI_BREAKER_OPEN ? link->breaker.retry_at_ms : link->again_ms;
    case TWI_LINK_LOCATING: return link->again_ms;
    case TWI_LINK_DIALLING: return earlier(link->deadline_ms, now_ms + DIAL_LOOK_MS);
    case TWI_LINK_GREETING: return link->deadline_ms;
    case TWI_LINK_UP: return up_wake_ms(link, now_ms);
    }
    return INT64_MAX;
}
