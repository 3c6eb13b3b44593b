/* audit_servers.c -- see audit_servers.h. */
#include "sync/audit/audit_servers.h"

#include "engine/base/check.h"
#include "engine/base/grow.h"
#include "engine/port/services.h"
#include "sync/wire/cluster_map.h"
#include "sync/wire/cluster_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVERS_MAX 2000u /* masters that CLUSTER SLOTS names, and those to which the first slot moves */

void twi_audit_servers_fail(struct twi_audit_servers *servers, tw_status status, const char *what, const char *detail) {
    twi_check(status != TW_OK);
    if (servers->status != TW_OK) return;
    servers->status = status;
    snprintf(servers->error, sizeof servers->error, "%s: %s", what, detail);
    twi_port_printable(servers->error);
}

bool twi_audit_servers_goes_on(const struct twi_audit_servers *servers, uint16_t server) {
    return servers->status == TW_OK && servers->all[server]->connection.status == TW_OK;
}

bool twi_audit_servers_any(const struct twi_audit_servers *servers) {
    for (uint16_t i = 0; i < servers->count; i++)
        if (twi_audit_servers_goes_on(servers, i)) return true;
    return false;
}

void twi_audit_find_whole(const struct twi_audit *audit, const tw_finding *finding) {
    audit->report->findings++;
    if (audit->found) audit->found(audit->ctx, finding);
}

void twi_audit_find(const struct twi_audit *audit, int kind, tw_key name, int64_t expected, int64_t found,
                    const char *text) {
    tw_finding finding = {
        .kind = kind, .name = name, .expected = expected, .found = found, .text = text, .inner = {"", 0}};
    twi_audit_find_whole(audit, &finding);
}

/* ---- who there is ------------------------------------------------------------------------------------------------ */

/* If `endpoint` is NULL, it is the one Redis. Returns NULL if there is no memory. */
static struct twi_audit_server *add(struct twi_audit_servers *servers, const struct twi_endpoint *endpoint) {
    bool has_room = twi_grow(&servers->all, sizeof(struct twi_audit_server *), &servers->room, servers->count + 1u, 4);
    struct twi_audit_server *server = has_room ? calloc(1, sizeof *server) : NULL;
    if (!server) {
        twi_audit_servers_fail(servers, TW_ERR_MEMORY, "audit", "no memory");
        return NULL;
    }
    servers->all[servers->count++] = server;
    server->connection.audit = servers->audit;
    server->connection.where = &servers->where;
    if (!endpoint) return server;
    server->connection.endpoint = *endpoint;
    twi_endpoint_name(endpoint, server->name, sizeof server->name);
    return server;
}

/* The server at this endpoint, plus 1; 0 if there is none. */
static uint16_t find(const struct twi_audit_servers *servers, const struct twi_endpoint *endpoint) {
    for (uint16_t i = 0; i < servers->count; i++)
        if (twi_endpoint_equals(&servers->all[i]->connection.endpoint, endpoint)) return (uint16_t)(i + 1);
    return 0;
}

/* Fetches the map from one node. Returns false on an error; `error` then has the reason. */
static bool ask_for_map(struct twi_audit_servers *servers, const struct twi_endpoint *whom, struct twi_cluster_map *map,
                        char *error, size_t size) {
    struct twi_audit_connection connection = {.audit = servers->audit, .where = &servers->where, .endpoint = *whom};
    size_t count;
    twi_audit_open_node(&connection, false);
    twi_audit_put_words(&connection, 2, (const char *[]){"CLUSTER", "SLOTS"});
    twi_audit_send(&connection);
    const struct twi_node *nodes = twi_audit_hear(&connection, false, &count);
    if (nodes && !twi_cluster_map_reply(map, whom, nodes, count, 0, 0))
        twi_audit_fail(&connection, TW_ERR_REDIS, "Redis", "an answer to CLUSTER SLOTS that names no master");
    if (!nodes) twi_cluster_map_failed(map, false, 0, 0);
    bool done = connection.status == TW_OK;
    if (!done) {
        char name[TWI_ENDPOINT_NAME_SIZE];
        twi_endpoint_name(whom, name, sizeof name);
        snprintf(error, size, "%.150s: %.90s", name, connection.error);
    }
    twi_audit_close(&connection);
    return done;
}

/* Asks one seed after the other. */
static void find_masters(struct twi_audit_servers *servers, struct twi_cluster_map *map) {
    struct twi_endpoint whom;
    char error[256] = "";
    bool done = false;
    for (uint32_t i = 0; i < servers->where.url.seed_count && !done; i++) {
        whom = twi_url_seed(&servers->where.url, i);
        done = ask_for_map(servers, &whom, map, error, sizeof error);
    }
    if (!done) twi_audit_servers_fail(servers, TW_ERR_REDIS, "no node of the cluster says which masters it has", error);
    if (!done) return;
    for (uint64_t node = 0; (node = twi_cluster_map_next(map, node)) != 0;)
        if (!add(servers, twi_cluster_map_endpoint(map, node))) return;
}

/* A node that has no slots yet, and gets its first one, is named by those whose slot it is. */
static void add_targets(struct twi_audit_servers *servers, const struct twi_endpoint *asked, const char *text) {
    struct twi_endpoint target;
    for (size_t at = 0; twi_cluster_nodes_target(text, asked, &at, &target);)
        if (!find(servers, &target) && servers->count < SERVERS_MAX) (void)add(servers, &target);
}

/* Returns false if the connection has failed. */
static bool ask_for_own(struct twi_audit_servers *servers, struct twi_audit_connection *connection,
                        struct twi_own_slots *own, bool is_first) {
    size_t count;
    twi_audit_put_words(connection, 2, (const char *[]){"CLUSTER", "NODES"});
    twi_audit_send(connection);
    const struct twi_node *reply = twi_audit_hear(connection, false, &count);
    if (!reply) return false;
    if (reply->type != TWI_NODE_STRING || !twi_cluster_nodes_own(reply->text, own)) {
        twi_audit_fail(connection, TW_ERR_REDIS, "Redis", "an answer to CLUSTER NODES that is not understood");
        return false;
    }
    if (is_first) add_targets(servers, &connection->endpoint, reply->text);
    return true;
}

static void note_slots(struct twi_audit_slots *slots, uint16_t server, const struct twi_own_slots *own) {
    twi_check(own != NULL);
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++)
        if (twi_slot_set_has(&own->serves, slot)) slots->owner[slot] = (uint16_t)(server + 1);
    for (size_t i = 0; i < sizeof slots->moves.bits; i++) slots->moves.bits[i] |= own->moves.bits[i];
}

bool twi_audit_servers_read(struct twi_audit_servers *servers, char *why, size_t size) {
    if (!twi_where_read(&servers->where, servers->audit->server, why, size)) return false;
    servers->is_cluster = servers->where.url.kind == TWI_URL_CLUSTER;
    return true;
}

static void open_cluster(struct twi_audit_servers *servers) {
    const uint32_t seeds = servers->where.url.seed_count;
    struct twi_endpoint *endpoints = malloc(seeds * sizeof *endpoints);
    for (uint32_t i = 0; endpoints && i < seeds; i++) endpoints[i] = twi_url_seed(&servers->where.url, i);
    struct twi_cluster_map *map = endpoints ? twi_cluster_map_create(endpoints, seeds) : NULL;
    free(endpoints);
    if (!map) {
        twi_audit_servers_fail(servers, TW_ERR_MEMORY, "audit", "no memory");
        return;
    }
    find_masters(servers, map);
    twi_cluster_map_destroy(map);
    for (uint16_t i = 0; i < servers->count && servers->status == TW_OK; i++) { /* `count` may grow */
        struct twi_audit_server *server = servers->all[i];
        twi_audit_open_node(&server->connection, true);
        if (ask_for_own(servers, &server->connection, &server->own, true)) note_slots(&servers->slots, i, &server->own);
    }
}

void twi_audit_servers_open(struct twi_audit_servers *servers) {
    if (servers->is_cluster) {
        open_cluster(servers);
        return;
    }
    struct twi_audit_server *server = add(servers, NULL);
    if (!server) return;
    twi_audit_open(&server->connection);
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) servers->slots.owner[slot] = 1;
}

void twi_audit_servers_close(struct twi_audit_servers *servers) {
    for (uint16_t i = 0; i < servers->count; i++) {
        twi_audit_close(&servers->all[i]->connection);
        free(servers->all[i]);
    }
    free(servers->all);
    twi_where_free(&servers->where);
}

/* ---- how it ends ------------------------------------------------------------------------------------------------- */

/* Slots without a server that has replied to all. */
static uint32_t count_unseen(const struct twi_audit_servers *servers) {
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
        uint16_t owner = servers->slots.owner[slot];
        count += !owner || servers->all[owner - 1]->connection.status != TW_OK;
    }
    return count;
}

/* A slot that moves when the audit begins is looked at with care. One that begins to move later is not. Its keys may
 * have gone to where a SCAN has been already. */
static uint32_t count_begun(struct twi_audit_servers *servers) {
    struct twi_audit_slots *now = calloc(1, sizeof *now);
    uint32_t count = 0;
    for (uint16_t i = 0; now && i < servers->count; i++) {
        struct twi_own_slots own;
        if (twi_audit_servers_goes_on(servers, i) && ask_for_own(servers, &servers->all[i]->connection, &own, false))
            note_slots(now, i, &own);
    }
    for (uint32_t slot = 0; now && slot < TWI_KEY_SLOTS; slot++) {
        bool is_elsewhere = now->owner[slot] != servers->slots.owner[slot] || twi_slot_set_has(&now->moves, slot);
        count += is_elsewhere && !twi_slot_set_has(&servers->slots.moves, slot);
    }
    if (!now) twi_audit_servers_fail(servers, TW_ERR_MEMORY, "audit", "no memory");
    free(now);
    return count;
}

static void say_incomplete(struct twi_audit_servers *servers, tw_status status, const char *why) {
    char what[80];
    snprintf(what, sizeof what, "incomplete: %u of 16384 slots could not be looked at", count_unseen(servers));
    twi_audit_servers_fail(servers, status, what, why);
}

static void conclude_cluster(struct twi_audit_servers *servers) {
    char why[256];
    uint32_t begun = servers->status == TW_OK ? count_begun(servers) : 0;
    for (uint16_t i = 0; i < servers->count; i++) {
        const struct twi_audit_server *server = servers->all[i];
        if (server->connection.status == TW_OK) continue;
        snprintf(why, sizeof why, "%.150s: %.90s", server->name, server->connection.error);
        say_incomplete(servers, server->connection.status, why);
    }
    if (count_unseen(servers)) say_incomplete(servers, TW_ERR_REDIS, "no master serves them");
    snprintf(why, sizeof why, "%u slots began to move; ask again later", begun);
    if (begun) twi_audit_servers_fail(servers, TW_ERR_REDIS, "incomplete", why);
    if (servers->lost) twi_audit_servers_fail(servers, TW_ERR_REDIS, "incomplete", "keys have gone to unknown nodes");
}

tw_status twi_audit_servers_conclude(struct twi_audit_servers *servers) {
    if (servers->is_cluster) conclude_cluster(servers);
    const struct twi_audit_connection *first = servers->count ? &servers->all[0]->connection : NULL;
    if (!servers->is_cluster && servers->status == TW_OK && first && first->status != TW_OK) {
        servers->status = first->status;
        snprintf(servers->error, sizeof servers->error, "%s", first->error);
    }
    return servers->status;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void write_error(const tw_audit_options *options, const char *text) {
    if (options->error_text && options->error_size) snprintf(options->error_text, options->error_size, "%s", text);
}

tw_status twi_audit_servers_run(const struct twi_audit *audit,
                                void (*work)(struct twi_audit_servers *servers, void *ctx), void *ctx) {
    char why[TWI_TLS_ERROR_MAX];
    struct twi_audit_servers *servers = calloc(1, sizeof *servers);
    if (!servers) return twi_refuse(TW_ERR_MEMORY, NULL);
    servers->audit = audit;
    if (!twi_audit_servers_read(servers, why, sizeof why)) {
        twi_audit_servers_close(servers);
        free(servers);
        write_error(audit->options, why);
        return twi_refuse_with(TW_ERR_OPTIONS, "%s", why);
    }
    twi_audit_servers_open(servers);
    work(servers, ctx);
    tw_status status = twi_audit_servers_conclude(servers);
    if (status != TW_OK) {
        write_error(audit->options, servers->error);
        (void)twi_refuse_with(status, "%s", servers->error);
    }
    twi_audit_servers_close(servers);
    free(servers);
    return status;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Whether the owner of the slot keeps it, and redirects no client. It may have begun to move the slot since the audit
 * began, so it gets the question again, once for each slot. */
static bool keeps(struct twi_audit_servers *servers, uint16_t owner, uint32_t slot) {
    struct twi_own_slots own;
    if (twi_slot_set_has(&servers->all[owner]->own.moves, slot)) return false;
    if (twi_slot_set_has(&servers->strays, slot)) return true;
    if (!ask_for_own(servers, &servers->all[owner]->connection, &own, false)) return false;
    if (!twi_slot_set_has(&own.serves, slot) || twi_slot_set_has(&own.moves, slot)) return false;
    twi_slot_set_add(&servers->strays, slot);
    return true;
}

enum twi_audit_place twi_audit_servers_place(struct twi_audit_servers *servers, uint16_t server, const void *name,
                                             size_t size) {
    if (!servers->is_cluster) return TWI_AUDIT_HERE;
    uint32_t slot = twi_key_slot_of(name, size);
    uint16_t owner = servers->slots.owner[slot];
    if (owner != 0 && owner != server + 1 && keeps(servers, (uint16_t)(owner - 1), slot)) return TWI_AUDIT_STRAY;
    bool moves = twi_slot_set_has(&servers->slots.moves, slot);
    return moves || owner != server + 1 ? TWI_AUDIT_ON_ITS_WAY : TWI_AUDIT_HERE;
}

enum { LOST = 0, DONE = UINT16_MAX }; /* names->where is a server, plus 1, or one of these */

/* The reply redirects us, or the server serves no client. */
static bool sends_on(struct twi_audit_servers *servers, struct twi_audit_connection *connection,
                     const struct twi_node *reply, uint16_t *where, bool *asking) {
    struct twi_redirect redirect;
    if (!servers->is_cluster || reply->type != TWI_NODE_ERROR) return false;
    twi_redirect_read(reply, &connection->endpoint, &redirect);
    if (redirect.kind == TWI_REDIRECT_NONE || redirect.kind == TWI_REDIRECT_NON_LOCAL) return false;
    *where = redirect.has_endpoint ? find(servers, &redirect.to) : LOST;
    *asking = redirect.kind == TWI_REDIRECT_ASK;
    if (redirect.kind != TWI_REDIRECT_MOVED && redirect.kind != TWI_REDIRECT_ASK)
        twi_audit_fail(connection, TW_ERR_REDIS, "Redis refuses", reply->text);
    return true;
}

/* The reply about name number `i`, whose question went to this server. */
static void take_reply(struct twi_audit_servers *servers, uint16_t server, struct twi_audit_names *names, size_t i,
                       const struct twi_audit_question *question) {
    struct twi_audit_connection *connection = &servers->all[server]->connection;
    size_t count;
    if (names->asking[i]) (void)twi_audit_hear(connection, true, &count);
    const struct twi_node *reply = twi_audit_hear(connection, true, &count);
    names->where[i] = LOST;
    if (!reply || sends_on(servers, connection, reply, &names->where[i], &names->asking[i])) return;
    names->where[i] = DONE;
    if (reply->type == TWI_NODE_ERROR && !question->may_refuse)
        twi_audit_fail(connection, TW_ERR_REDIS, "Redis refuses", reply->text);
    else
        question->take(question->ctx, i, twi_audit_names_at(names, i), reply, count);
}

static void put_question(const struct twi_audit_question *question, size_t i, struct twi_bytes *out, tw_key name) {
    size_t count = 0;
    while (count < TWI_AUDIT_WORDS_MAX && question->words[count]) count++;
    twi_wire_begin(out, 2 + count + (question->inner != NULL));
    twi_wire_put_text(out, question->command);
    twi_wire_put(out, name.data, name.size);
    for (size_t k = 0; k < count; k++) twi_wire_put_text(out, question->words[k]);
    if (!question->inner) return;
    tw_key inner = question->inner(question->ctx, i);
    twi_wire_put(out, inner.data, inner.size);
}

static void ask_server(struct twi_audit_servers *servers, uint16_t server, struct twi_audit_names *names,
                       const struct twi_audit_question *question) {
    struct twi_audit_connection *connection = &servers->all[server]->connection;
    size_t asked = 0, last = 0;
    for (size_t i = 0; i < names->count; i++) {
        if (names->where[i] != server + 1) continue;
        if (names->asking[i]) twi_audit_put_words(connection, 1, (const char *[]){"ASKING"});
        put_question(question, i, &connection->out, twi_audit_names_at(names, i));
        asked++, last = i;
    }
    if (asked) twi_audit_send(connection);
    for (size_t i = 0; asked && i <= last; i++)
        if (names->where[i] == server + 1) take_reply(servers, server, names, i, question);
}

static bool is_asked_of(const struct twi_audit_names *names, uint16_t server) {
    for (size_t i = 0; i < names->count; i++)
        if (names->where[i] == server + 1) return true;
    return false;
}

void twi_audit_servers_ask(struct twi_audit_servers *servers, struct twi_audit_names *names,
                           const struct twi_audit_question *question) {
    for (size_t i = 0; i < names->count; i++) {
        tw_key name = twi_audit_names_at(names, i);
        names->where[i] = servers->is_cluster ? servers->slots.owner[twi_key_slot_of(name.data, name.size)] : 1;
        names->asking[i] = false;
    }
    for (uint32_t hops = 0; hops <= TWI_REDIRECT_HOPS_MAX; hops++)
        for (uint16_t i = 0; i < servers->count; i++)
            if (is_asked_of(names, i) && servers->status == TW_OK) ask_server(servers, i, names, question);
    for (size_t i = 0; i < names->count; i++) servers->lost += names->where[i] != DONE;
}

/* ---- audit search ---- */

static bool is_wanted(void *ctx, tw_key name) {
    struct twi_audit_search *search = ctx;
    switch (twi_audit_servers_place(search->servers, search->server, name.data, name.size)) {
    case TWI_AUDIT_HERE: return !search->is_second;
    case TWI_AUDIT_ON_ITS_WAY: return twi_audit_names_meet(search->names, name.data, name.size);
    case TWI_AUDIT_STRAY: break;
    }
    if (!search->is_second)
        twi_audit_find(search->servers->audit, TW_AUDIT_STRAY, name, 0, 0,
                       "the key lies at a node that does not serve its slot: nobody finds it there");
    return false;
}

/* Reads the next page of SCAN. With the last page, `cursor` becomes "0". */
static void scan(struct twi_audit_search *search, char cursor[24]) {
    struct twi_audit_connection *connection = &search->servers->all[search->server]->connection;
    struct twi_audit_names *names = search->names;
    char page[16];
    size_t count;
    snprintf(page, sizeof page, "%u", TWI_AUDIT_PAGE);
    twi_audit_put_words(connection, 6, (const char *[]){"SCAN", cursor, "MATCH", search->pattern, "COUNT", page});
    twi_audit_send(connection);
    twi_audit_names_empty(names);
    const struct twi_node *nodes = twi_audit_hear(connection, false, &count);
    if (!nodes) return;
    if (count < 3 || nodes[1].type != TWI_NODE_STRING || nodes[1].size >= 24 || nodes[2].type != TWI_NODE_ARRAY ||
        count - 3 > TWI_AUDIT_NAMES_MAX) {
        twi_audit_fail(connection, TW_ERR_REDIS, "Redis", "an answer to SCAN that is not understood");
        return;
    }
    memcpy(cursor, nodes[1].text, nodes[1].size + 1);
    for (size_t i = 3; i < count; i++) twi_audit_names_add(names, nodes[i].text ? nodes[i].text : "", nodes[i].size);
    twi_audit_names_keep(names, is_wanted, search);
    if (names->bytes.failed) twi_audit_servers_fail(search->servers, TW_ERR_MEMORY, "audit", "no memory");
}

/* Looks at a server's names, until `keys_max` names were seen or look() has ended the walk. Returns false if look()
 * has ended it. */
static bool search_server(struct twi_audit_search *search) {
    const struct twi_audit *audit = search->servers->audit;
    char cursor[24] = "0";
    do {
        scan(search, cursor);
        if (!twi_audit_servers_goes_on(search->servers, search->server)) return true;
        *search->seen += search->names->count;
        search->look(search);
        if (search->is_over) return false;
        if (*search->seen >= audit->options->keys_max && strcmp(cursor, "0") != 0) {
            audit->report->cut_off = 1;
            return false;
        }
    } while (twi_audit_servers_goes_on(search->servers, search->server) && strcmp(cursor, "0") != 0);
    return true;
}

/* A key may go to a server that was searched before, from one that is searched later. So servers to which slots come
 * are searched again, for the keys of these slots that were not met. */
void twi_audit_search_all(struct twi_audit_search *search) {
    struct twi_audit_servers *servers = search->servers;
    for (int pass = 0; pass < 2; pass++)
        for (uint16_t i = 0; i < servers->count; i++) {
            if ((pass == 1 && !servers->all[i]->own.imports) || !twi_audit_servers_goes_on(servers, i)) continue;
            bool is_full = (i > 0 || pass == 1) && *search->seen >= servers->audit->options->keys_max;
            if (is_full) servers->audit->report->cut_off = 1;
            search->server = i;
            search->is_second = pass == 1;
            if (is_full || !search_server(search)) return;
        }
    twi_audit_names_forget_met(search->names);
}

/* ---- search ----
 * looks for hashes by name and field, for tw_lease_reclaim() in a cluster (struct twi_search).
 *
 * It walks the masters as an audit does, over separate connections. Names are read page by page, and the field of each
 * name of a page is requested from the server that has the name's slot.
 * Always true: the search changes no data. If slots could not be looked at, the search ends with an error that gives
 * their number; all others were looked at. */

struct looking {
    const struct twi_search *search;
    struct twi_audit_servers *servers;
    bool is_match[TWI_AUDIT_NAMES_MAX]; /* of the page */
};

/* A key of another type only looks alike. */
static void take_hget(void *ctx, size_t i, tw_key name, const struct twi_node *reply, size_t count) {
    struct looking *looking = ctx;
    (void)count;
    if (reply->type == TWI_NODE_STRING || reply->type == TWI_NODE_NIL)
        looking->is_match[i] =
            looking->search->is_wanted(looking->search->ctx, name, reply->type == TWI_NODE_STRING ? reply->text : NULL);
    if (reply->type == TWI_NODE_ERROR && !twi_node_is(reply, "WRONGTYPE"))
        twi_audit_servers_fail(looking->servers, TW_ERR_REDIS, "Redis refuses", reply->text);
}

static void look(struct twi_audit_search *walk) {
    struct looking *looking = walk->ctx;
    struct twi_audit_question question = {
        .command = "HGET", .words = {looking->search->field}, .may_refuse = true, .take = take_hget, .ctx = looking};
    memset(looking->is_match, 0, sizeof looking->is_match);
    twi_audit_servers_ask(walk->servers, walk->names, &question);
    for (size_t i = 0; i < walk->names->count && !walk->is_over; i++)
        if (looking->is_match[i])
            walk->is_over = !looking->search->found(looking->search->ctx, twi_audit_names_at(walk->names, i));
}

struct all {
    const struct twi_search *searches;
    size_t count;
};

static void search_all(struct twi_audit_servers *servers, struct twi_audit_names *names, struct looking *looking,
                       const struct all *all) {
    uint64_t seen = 0;
    struct twi_audit_search walk = {.servers = servers, .names = names, .seen = &seen, .look = look, .ctx = looking};
    looking->servers = servers;
    for (size_t i = 0; i < all->count && !walk.is_over && twi_audit_servers_any(servers); i++) {
        looking->search = &all->searches[i];
        walk.pattern = all->searches[i].pattern;
        twi_audit_search_all(&walk);
    }
}

static void work(struct twi_audit_servers *servers, void *ctx) {
    struct twi_audit_names *names = twi_audit_names_create();
    struct looking *looking = calloc(1, sizeof *looking);
    if (names && looking)
        search_all(servers, names, looking, ctx);
    else
        twi_audit_servers_fail(servers, TW_ERR_MEMORY, "search", "no memory");
    twi_audit_names_destroy(names);
    free(looking);
}

tw_status twi_search_run(const struct twi_audit *audit, const struct twi_search *searches, size_t count) {
    tw_audit_report report = {0};
    struct twi_audit with_report = *audit;
    struct all all = {searches, count};
    with_report.report = &report;
    tw_status status = twi_audit_servers_run(&with_report, work, &all);
    if (status != TW_OK || report.findings == 0) return status;
    return twi_refuse_with(TW_ERR_REDIS,
                           "Redis: incomplete: %llu keys lie at nodes that do not serve their slots; redis-cli "
                           "--cluster fix brings them home",
                           (unsigned long long)report.findings);
}
