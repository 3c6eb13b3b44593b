/* sentinel.c -- see sentinel.h.
 *
 *   round: seat --answer--> next seat --...--> all were asked, or (for a connection) one has named the master
 *   seat:  REST --> DIALLING --connected--> TALKING --answered, failed, or its time is up--> REST
 * Each seat that still has to get the question may use its share of the remaining time of the round. So a silent
 * sentinel leaves time for the others. A late look of ours is not a fault of the sentinel. Its lateness is added, up
 * to nine times timeout_ms a round. Always true: only the seat `sentinel_at()` has an open connection, and only
 * outside REST; a login is wiped from `out` as soon as it went out, and only the first word of an error is kept. */
#include "sync/wire/sentinel.h"

#include "engine/base/check.h"
#include "sync/wire/tls.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where ---- */

/* where->tls is NULL if the URL names no TLS. */
static bool read_tls(struct twi_where *where, const tw_options *options, char *error, size_t error_size) {
    const struct twi_tls_options tls = {.ca_file = options->redis_tls_ca_file,
                                        .cert_file = options->redis_tls_cert_file,
                                        .key_file = options->redis_tls_key_file,
                                        .server_name = options->redis_tls_server_name,
                                        .insecure = options->redis_tls_insecure != 0};
    if (!where->url.is_tls) return twi_tls_options_are_unset(&tls, error, error_size);
    where->tls = twi_tls_create(&tls, error, error_size);
    return where->tls != NULL;
}

bool twi_where_read(struct twi_where *where, const tw_options *options, char *error, size_t error_size) {
    *where = (struct twi_where){0};
    if (!twi_url_parse(options->redis_url, &where->url, error, error_size)) return false;
    twi_check(where->url.seed_count >= 1 && where->url.seed_count <= TWI_URL_SEEDS_MAX);
    where->login = (struct twi_login){.user = where->url.user,
                                      .password = where->url.password,
                                      .ask = options->redis_password,
                                      .ask_ctx = options->redis_password_ctx};
    where->sentinel_login = (struct twi_login){
        .user = options->sentinel_user, .ask = options->sentinel_password, .ask_ctx = options->sentinel_password_ctx};
    if (!read_tls(where, options, error, error_size)) return false;
    twi_check((where->tls != NULL) == where->url.is_tls);
    where->transport = where->tls ? &twi_tls_transport : &twi_socket_transport;
    where->shared = where->tls;
    return true;
}

void twi_where_free(struct twi_where *where) {
    twi_tls_destroy(where->tls);
    twi_url_wipe(&where->url);
}

#define LOOK_FIRST_MS 500    /* the interval after a connection was made, and as much more at random */
#define LOOK_EVERY_MS 9000   /* and up to 2 s more */
#define STEP_MS 100          /* during a question, how often to check whether the next address has to be tried */
#define SHARES_OF_TIMEOUT 3u /* a round may last so many times timeout_ms */
#define CODE_MAX 24          /* of an error's first word */
#define LATE_MS 5            /* a smaller delay is no lateness */
#define LATE_TIMES 9         /* this many times timeout_ms, in one round */

/* Two texts; an error may quote the name. */
const struct twi_wire_limits twi_sentinel_limits = {.bytes_max = 4096, .nodes_max = 8, .depth_max = 2};

enum step { REST, DIALLING, TALKING };
enum purpose { NONE, TO_CONNECT, TO_COMPARE };

/* One sentinel of the URL. */
struct seat {
    struct twi_endpoint endpoint;
    void *link;               /* the transport's */
    struct twi_endpoint said; /* for TO_COMPARE, the master that it named in this round; port 0 if there is none */
};

struct twi_sentinels {
    struct twi_resolver_rules rules;
    enum purpose purpose; /* of the round under way */
    enum step step;
    uint32_t first, asked; /* the round began at that seat, and so many have got the question */
    int64_t round_deadline_ms, seat_deadline_ms;
    int64_t due_ms, late_left_ms; /* the next look was to come then; so much lateness is still forgiven */
    bool was_late;                /* in this round */
    struct twi_bytes out;
    size_t out_at;
    uint32_t replies_due;
    struct twi_reader *reader;
    int64_t look_at_ms;
    uint64_t random;
    char why[TWI_ENDPOINT_NAME_SIZE + 100];
    uint32_t count;
    struct seat seats[];
};

/* ---- one answer -------------------------------------------------------------------------------------------------- */

/* Whether the text may be a host's name or an address. It has no blank, and no byte that a log should not have. */
static bool read_host(const struct twi_node *node, struct twi_endpoint *endpoint) {
    if (node->type != TWI_NODE_STRING || node->size == 0 || node->size >= sizeof endpoint->host) return false;
    for (size_t i = 0; i < node->size; i++)
        if (!isgraph((unsigned char)node->text[i])) return false;
    memcpy(endpoint->host, node->text, node->size);
    endpoint->host[node->size] = '\0';
    return true;
}

enum twi_sentinel_says twi_sentinel_read(const struct twi_node *nodes, size_t count, struct twi_endpoint *endpoint) {
    twi_check(count != 0);
    int64_t port = 0;
    if (nodes[0].type == TWI_NODE_ERROR) return TWI_SENTINEL_REFUSES;
    if (nodes[0].type == TWI_NODE_NIL) return TWI_SENTINEL_UNKNOWN_NAME;
    if (nodes[0].type != TWI_NODE_ARRAY || nodes[0].integer != 2 || count != 3) return TWI_SENTINEL_NONSENSE;
    if (nodes[2].type == TWI_NODE_ARRAY || !twi_node_i64(&nodes[2], &port) || port < 1 || port > 65535)
        return TWI_SENTINEL_NONSENSE;
    if (!read_host(&nodes[1], endpoint)) return TWI_SENTINEL_NONSENSE;
    endpoint->port = (uint16_t)port;
    endpoint->is_unix = false;
    return TWI_SENTINEL_MASTER;
}

/* ---- one sentinel ------------------------------------------------------------------------------------------------ */

static struct seat *sentinel_at(struct twi_sentinels *sentinels) {
    twi_check(sentinels->count != 0);
    return &sentinels->seats[(sentinels->first + sentinels->asked) % sentinels->count];
}

static uint64_t random_below(struct twi_sentinels *sentinels, uint64_t below) {
    twi_check(below != 0);
    sentinels->random = sentinels->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (sentinels->random >> 33) % below;
}

/* Ends the conversation with this sentinel. */
static void seat_end(struct twi_sentinels *sentinels) {
    if (sentinels->step != REST) sentinels->rules.where->transport->close(sentinel_at(sentinels)->link);
    sentinels->step = REST;
    twi_reader_free(sentinels->reader);
    sentinels->reader = NULL;
    twi_bytes_wipe(&sentinels->out);
    sentinels->out_at = 0;
}

static enum twi_resolved seat_failed(struct twi_sentinels *sentinels, const char *what, const char *detail) {
    char name[TWI_ENDPOINT_NAME_SIZE];
    twi_endpoint_name(&sentinel_at(sentinels)->endpoint, name, sizeof name);
    snprintf(sentinels->why, sizeof sentinels->why, "sentinel %s %s%s", name, what, detail);
    return TWI_WHERE_UNKNOWN;
}

static void sentinel_put_question(struct twi_sentinels *sentinels) {
    twi_check(sentinels->rules.where->url.master[0] != '\0');
    twi_wire_begin(&sentinels->out, 3);
    twi_wire_put_text(&sentinels->out, "SENTINEL");
    twi_wire_put_text(&sentinels->out, "get-master-addr-by-name");
    twi_wire_put_text(&sentinels->out, sentinels->rules.where->url.master);
}

static enum twi_resolved seat_connected(struct twi_sentinels *sentinels) {
    twi_check(sentinels->step == DIALLING && sentinels->reader == NULL);
    enum twi_login_put login = twi_login_put(&sentinels->rules.where->sentinel_login, &sentinels->out);
    sentinel_put_question(sentinels);
    sentinels->replies_due = login == TWI_LOGIN_PUT ? 2 : 1;
    sentinels->reader = twi_reader_create(&twi_sentinel_limits);
    if (login == TWI_LOGIN_FAILED) return seat_failed(sentinels, "was not asked: ", "sentinel_password failed");
    if (!sentinels->reader || sentinels->out.failed) return seat_failed(sentinels, "was not asked: ", "no memory");
    sentinels->step = TALKING;
    return TWI_WHERE_NOT_YET;
}

static enum twi_resolved seat_dial(struct twi_sentinels *sentinels, int64_t now_ms) {
    twi_check(sentinels->step == DIALLING);
    const struct twi_transport *transport = sentinels->rules.where->transport;
    struct seat *seat = sentinel_at(sentinels);
    int done = transport->connect(seat->link, &seat->endpoint, now_ms, sentinels->seat_deadline_ms);
    if (done < 0) return seat_failed(sentinels, "", transport->why(seat->link));
    return done > 0 ? seat_connected(sentinels) : TWI_WHERE_NOT_YET;
}

/* Returns the first word of an error. The rest may quote arguments that were sent. */
static enum twi_resolved seat_refused(struct twi_sentinels *sentinels, const char *what, const struct twi_node *error) {
    twi_check(error->type == TWI_NODE_ERROR);
    char code[CODE_MAX];
    size_t used = 0;
    while (used < error->size && used + 1 < sizeof code && isgraph((unsigned char)error->text[used])) {
        code[used] = error->text[used];
        used++;
    }
    code[used] = '\0';
    return seat_failed(sentinels, what, code);
}

static enum twi_resolved sentinel_take_reply(struct twi_sentinels *sentinels, const struct twi_node *nodes,
                                             size_t count, struct twi_endpoint *endpoint) {
    twi_check(sentinels->replies_due != 0 && count != 0);
    if (--sentinels->replies_due != 0) { /* AUTH's */
        bool refuses = nodes->type == TWI_NODE_ERROR;
        return refuses ? seat_refused(sentinels, "refuses the login: ", nodes) : TWI_WHERE_NOT_YET;
    }
    *endpoint = (struct twi_endpoint){.is_tls = sentinels->rules.where->url.is_tls};
    switch (twi_sentinel_read(nodes, count, endpoint)) {
    case TWI_SENTINEL_MASTER: return TWI_WHERE_HERE;
    case TWI_SENTINEL_UNKNOWN_NAME: return seat_failed(sentinels, "knows no master of that name", "");
    case TWI_SENTINEL_REFUSES: return seat_refused(sentinels, "refuses the question: ", nodes);
    default: return seat_failed(sentinels, "answers what is not understood", "");
    }
}

static enum twi_resolved seat_send(struct twi_sentinels *sentinels) {
    twi_check(sentinels->out_at <= sentinels->out.size);
    const struct twi_transport *transport = sentinels->rules.where->transport;
    void *link = sentinel_at(sentinels)->link;
    while (sentinels->out_at < sentinels->out.size) {
        ssize_t sent =
            transport->send(link, sentinels->out.data + sentinels->out_at, sentinels->out.size - sentinels->out_at);
        if (sent < 0) return seat_failed(sentinels, "", transport->why(link));
        if (sent == 0) return TWI_WHERE_NOT_YET;
        sentinels->out_at += (size_t)sent;
    }
    if (sentinels->out.size) twi_bytes_wipe(&sentinels->out); /* the login */
    sentinels->out_at = 0;
    return TWI_WHERE_NOT_YET;
}

static enum twi_resolved seat_hear(struct twi_sentinels *sentinels, struct twi_endpoint *endpoint) {
    twi_check(sentinels->reader != NULL);
    const struct twi_transport *transport = sentinels->rules.where->transport;
    void *link = sentinel_at(sentinels)->link;
    char chunk[1024];
    for (;;) {
        const struct twi_node *nodes;
        size_t count;
        enum twi_wire wire = twi_reader_next(sentinels->reader, &nodes, &count);
        if (wire == TWI_WIRE_BAD) return seat_failed(sentinels, "does not speak the protocol", "");
        if (wire == TWI_WIRE_DONE) {
            enum twi_resolved where = sentinel_take_reply(sentinels, nodes, count, endpoint);
            if (where != TWI_WHERE_NOT_YET) return where;
            continue;
        }
        ssize_t got = transport->recv(link, chunk, sizeof chunk);
        if (got == 0) return TWI_WHERE_NOT_YET;
        if (got < 0) return seat_failed(sentinels, "", transport->why(link));
        if (!twi_reader_feed(sentinels->reader, chunk, (size_t)got))
            return seat_failed(sentinels, "answers too much", "");
    }
}

/* Continues with the sentinel that has the question. UNKNOWN means that the sentinel does not name a master. */
static enum twi_resolved seat_step(struct twi_sentinels *sentinels, int64_t now_ms, struct twi_endpoint *endpoint) {
    twi_check(sentinels->asked < sentinels->count);
    enum twi_resolved where = TWI_WHERE_NOT_YET;
    if (sentinels->step == DIALLING) where = seat_dial(sentinels, now_ms);
    if (where == TWI_WHERE_NOT_YET && sentinels->step == TALKING) where = seat_send(sentinels);
    if (where == TWI_WHERE_NOT_YET && sentinels->step == TALKING) where = seat_hear(sentinels, endpoint);
    if (where == TWI_WHERE_NOT_YET && now_ms >= sentinels->seat_deadline_ms)
        where = seat_failed(sentinels, "gives no answer in time", "");
    return where;
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

static void round_end(struct twi_sentinels *sentinels) {
    seat_end(sentinels);
    sentinels->purpose = NONE;
    sentinels->asked = 0;
}

static void round_begin(struct twi_sentinels *sentinels, enum purpose purpose, int64_t now_ms) {
    twi_check(purpose != NONE);
    round_end(sentinels);
    sentinels->purpose = purpose;
    sentinels->round_deadline_ms = now_ms + SHARES_OF_TIMEOUT * (int64_t)sentinels->rules.timeout_ms;
    sentinels->due_ms = now_ms;
    sentinels->late_left_ms = LATE_TIMES * (int64_t)sentinels->rules.timeout_ms;
    sentinels->was_late = false;
    for (uint32_t i = 0; i < sentinels->count; i++) sentinels->seats[i].said.port = 0;
}

/* The lateness of a look does not count, and once in a round there is time for one more look. This does not happen
 * for each late look: on a busy machine every look is a little late, and the deadline would move faster than time. */
static void sentinel_note_lateness(struct twi_sentinels *sentinels, int64_t now_ms) {
    int64_t late_ms = now_ms - sentinels->due_ms;
    if (late_ms < LATE_MS) return;
    if (!sentinels->was_late) late_ms += sentinels->rules.timeout_ms / 4;
    sentinels->was_late = true;
    if (late_ms > sentinels->late_left_ms) late_ms = sentinels->late_left_ms;
    sentinels->late_left_ms -= late_ms;
    sentinels->round_deadline_ms += late_ms;
    sentinels->seat_deadline_ms += late_ms;
}

/* The next answer of the round. UNKNOWN means that all got the question. Otherwise the seat sentinel_at() has
 * the question, or had it. */
static enum twi_resolved round_step(struct twi_sentinels *sentinels, int64_t now_ms, struct twi_endpoint *endpoint) {
    while (sentinels->asked < sentinels->count) {
        if (sentinels->step == REST) {
            int64_t left_ms = sentinels->round_deadline_ms - now_ms;
            sentinels->seat_deadline_ms = now_ms + left_ms / (sentinels->count - sentinels->asked);
            sentinels->step = DIALLING;
        }
        enum twi_resolved where = seat_step(sentinels, now_ms, endpoint);
        if (where == TWI_WHERE_NOT_YET) return where;
        seat_end(sentinels);
        if (where == TWI_WHERE_HERE) return where;
        sentinels->asked++;
    }
    return TWI_WHERE_UNKNOWN;
}

enum twi_resolved twi_sentinels_ask(struct twi_sentinels *sentinels, int64_t now_ms, struct twi_endpoint *endpoint,
                                    int64_t *again_ms) {
    if (sentinels->purpose != TO_CONNECT) round_begin(sentinels, TO_CONNECT, now_ms);
    sentinel_note_lateness(sentinels, now_ms);
    enum twi_resolved where = round_step(sentinels, now_ms, endpoint);
    *again_ms = 0;
    if (where == TWI_WHERE_NOT_YET) {
        *again_ms = sentinels->seat_deadline_ms - now_ms;
        if (*again_ms > STEP_MS) *again_ms = STEP_MS;
        sentinels->due_ms = now_ms + *again_ms;
        return where;
    }
    if (where == TWI_WHERE_HERE) sentinels->first = (sentinels->first + sentinels->asked) % sentinels->count;
    round_end(sentinels);
    return where;
}

void twi_sentinels_distrust(struct twi_sentinels *sentinels) {
    round_end(sentinels);
    sentinels->first = (sentinels->first + 1) % sentinels->count;
}

void twi_sentinels_rest(struct twi_sentinels *sentinels) {
    round_end(sentinels);
}

/* ---- while a connection is open ---------------------------------------------------------------------------------- */

void twi_sentinels_found(struct twi_sentinels *sentinels, int64_t now_ms) {
    round_end(sentinels);
    sentinels->look_at_ms = now_ms + LOOK_FIRST_MS + (int64_t)random_below(sentinels, LOOK_FIRST_MS);
}

/* Do more than half of all name one that is not `here`? Then the next round begins with one of these. */
static bool is_elsewhere(struct twi_sentinels *sentinels, const struct twi_endpoint *here) {
    for (uint32_t i = 0; i < sentinels->count; i++) {
        const struct twi_endpoint *said = &sentinels->seats[i].said;
        uint32_t votes = 0;
        if (said->port == 0 || twi_endpoint_equals(said, here)) continue;
        for (uint32_t j = 0; j < sentinels->count; j++) {
            const struct twi_endpoint *other = &sentinels->seats[j].said;
            votes += other->port != 0 && twi_endpoint_equals(said, other);
        }
        if (2 * votes <= sentinels->count) continue;
        sentinels->first = i;
        return true;
    }
    return false;
}

bool twi_sentinels_look(struct twi_sentinels *sentinels, int64_t now_ms, const struct twi_endpoint *here) {
    struct twi_endpoint named;
    if (sentinels->purpose == NONE && now_ms < sentinels->look_at_ms) return false;
    if (sentinels->purpose != TO_COMPARE) round_begin(sentinels, TO_COMPARE, now_ms);
    sentinel_note_lateness(sentinels, now_ms);
    for (;;) {
        enum twi_resolved where = round_step(sentinels, now_ms, &named);
        sentinels->due_ms = now_ms + STEP_MS;
        if (where == TWI_WHERE_NOT_YET) return false;
        if (where == TWI_WHERE_UNKNOWN) break;
        sentinel_at(sentinels)->said = named;
        sentinels->asked++;
    }
    round_end(sentinels);
    sentinels->look_at_ms = now_ms + LOOK_EVERY_MS + (int64_t)random_below(sentinels, 2000);
    return is_elsewhere(sentinels, here);
}

int64_t twi_sentinels_look_due_ms(const struct twi_sentinels *sentinels, int64_t now_ms) {
    return sentinels->purpose == TO_COMPARE ? now_ms + STEP_MS : sentinels->look_at_ms;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

struct twi_sentinels *twi_sentinels_create(const struct twi_resolver_rules *rules) {
    twi_check(rules->where->url.kind == TWI_URL_SENTINEL && rules->where->url.seed_count >= 1);
    uint32_t count = rules->where->url.seed_count;
    struct twi_sentinels *sentinels = calloc(1, sizeof *sentinels + count * sizeof *sentinels->seats);
    if (!sentinels) return NULL;
    sentinels->rules = *rules;
    sentinels->random = rules->random;
    sentinels->first = (uint32_t)random_below(sentinels, count);
    for (; sentinels->count < count; sentinels->count++) {
        struct seat *seat = &sentinels->seats[sentinels->count];
        seat->endpoint = twi_url_seed(&rules->where->url, sentinels->count);
        seat->link = rules->where->transport->create(rules->where->shared, rules->set);
        if (seat->link) continue;
        twi_sentinels_destroy(sentinels);
        return NULL;
    }
    return sentinels;
}

static void free_all(struct twi_sentinels *sentinels, void (*part_with)(void *link)) {
    for (uint32_t i = 0; i < sentinels->count; i++) part_with(sentinels->seats[i].link);
    twi_reader_free(sentinels->reader);
    twi_bytes_wipe(&sentinels->out);
    twi_bytes_free(&sentinels->out);
    free(sentinels);
}

void twi_sentinels_destroy(struct twi_sentinels *sentinels) {
    free_all(sentinels, sentinels->rules.where->transport->destroy);
}

void twi_sentinels_abandon(struct twi_sentinels *sentinels) {
    free_all(sentinels, sentinels->rules.where->transport->abandon);
}

int twi_sentinels_fd(const struct twi_sentinels *sentinels, bool *wants_write) {
    *wants_write = false;
    if (sentinels->step == REST) return -1;
    void *link = sentinels->seats[(sentinels->first + sentinels->asked) % sentinels->count].link;
    int fd = sentinels->rules.where->transport->fd(link, wants_write);
    if (sentinels->out_at < sentinels->out.size) *wants_write = true;
    return fd;
}

const char *twi_sentinels_why(const struct twi_sentinels *sentinels) {
    return sentinels->why;
}

/* ---- resolver ---- */

struct twi_resolver {
    struct twi_endpoint one;
    struct twi_sentinels *sentinels; /* NULL means `one` is it */
};

struct twi_resolver *twi_resolver_create(const struct twi_resolver_rules *rules) {
    twi_check(rules->where != NULL && rules->where->url.seed_count >= 1);
    struct twi_resolver *resolver = calloc(1, sizeof *resolver);
    if (!resolver) return NULL;
    if (rules->where->url.kind == TWI_URL_SENTINEL)
        resolver->sentinels = twi_sentinels_create(rules);
    else
        resolver->one = twi_url_seed(&rules->where->url, 0);
    if (rules->where->url.kind != TWI_URL_SENTINEL || resolver->sentinels) return resolver;
    free(resolver);
    return NULL;
}

struct twi_resolver *twi_resolver_create_at(const struct twi_endpoint *endpoint) {
    twi_check(endpoint->host[0] != '\0');
    struct twi_resolver *resolver = calloc(1, sizeof *resolver);
    if (resolver) resolver->one = *endpoint;
    return resolver;
}

void twi_resolver_destroy(struct twi_resolver *resolver) {
    if (resolver && resolver->sentinels) twi_sentinels_destroy(resolver->sentinels);
    free(resolver);
}

void twi_resolver_abandon(struct twi_resolver *resolver) {
    if (resolver && resolver->sentinels) twi_sentinels_abandon(resolver->sentinels);
    free(resolver);
}

const struct twi_endpoint *twi_resolver_fixed(const struct twi_resolver *resolver) {
    return resolver->sentinels ? NULL : &resolver->one;
}

bool twi_resolver_may_move(const struct twi_resolver *resolver) {
    return resolver->sentinels != NULL;
}

enum twi_resolved twi_resolver_ask(struct twi_resolver *resolver, int64_t now_ms, struct twi_endpoint *endpoint,
                                   int64_t *again_ms) {
    if (resolver->sentinels) return twi_sentinels_ask(resolver->sentinels, now_ms, endpoint, again_ms);
    *endpoint = resolver->one;
    *again_ms = 0;
    return TWI_WHERE_HERE;
}

int twi_resolver_fd(const struct twi_resolver *resolver, bool *wants_write) {
    *wants_write = false;
    return resolver->sentinels ? twi_sentinels_fd(resolver->sentinels, wants_write) : -1;
}

const char *twi_resolver_why(const struct twi_resolver *resolver) {
    return resolver->sentinels ? twi_sentinels_why(resolver->sentinels) : "";
}

void twi_resolver_distrust(struct twi_resolver *resolver) {
    if (resolver->sentinels) twi_sentinels_distrust(resolver->sentinels);
}

void twi_resolver_rest(struct twi_resolver *resolver) {
    if (resolver->sentinels) twi_sentinels_rest(resolver->sentinels);
}

void twi_resolver_found(struct twi_resolver *resolver, int64_t now_ms) {
    if (resolver->sentinels) twi_sentinels_found(resolver->sentinels, now_ms);
}

bool twi_resolver_look(struct twi_resolver *resolver, int64_t now_ms, const struct twi_endpoint *here) {
    return resolver->sentinels && twi_sentinels_look(resolver->sentinels, now_ms, here);
}

int64_t twi_resolver_look_due_ms(const struct twi_resolver *resolver, int64_t now_ms) {
    return resolver->sentinels ? twi_sentinels_look_due_ms(resolver->sentinels, now_ms) : INT64_MAX;
}
