/* refusal.c -- see refusal.h. */
#include "sync/message/refusal.h"

#include "engine/base/check.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/message/active.h"
#include "sync/message/state.h"
#include "sync/wire/fnv.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNHEALED_LOG_MS (10 * INT64_C(60000)) /* a permission that is missing is missed all the time */

/* Redis 7 ends an error with the digest of the script, which is no news and takes the room of what is. */
static const char *end_of(const char *said) {
    const char *digest = strstr(said, " script: ");
    return digest ? digest : said + strlen(said);
}

void twi_refusal_text(const struct twi_node *error, bool first_word, char *out, size_t size) {
    twi_check(size != 0);
    size_t used = 0;
    const char *said = twi_reply_said(error);
    for (const char *end = end_of(said); said < end && used + 1 < size; said++) {
        if (first_word && *said == ' ') break;
        out[used++] = isprint((unsigned char)*said) ? *said : '?';
    }
    out[used] = '\0';
}

/* True means that the line was logged in this outage. */
static bool was_logged(struct twi_outage_log *outage, const char *line) {
    uint64_t hash = twi_fnv_add(TWI_FNV_BEGIN, line, strlen(line));
    for (size_t i = 0; i < TWI_REFUSALS_LOGGED; i++)
        if (outage->refusals[i] == hash) return true;
    outage->refusals[outage->refusals_next++ % TWI_REFUSALS_LOGGED] = hash;
    return false;
}

/* Returns true if the whole sentence comes from Redis. Other sentences repeat arguments, as Redis does in quotes for an
 * unknown command. */
static bool is_without_secret(const struct twi_login *login, const char *text) {
    twi_check(text != NULL);
    if (login->ask || strpbrk(text, "'`\"")) return false;
    bool has_password = login->password && login->password[0];
    return !has_password || !strstr(text, login->password);
}

static void refusal_report(struct twi_connection *connection, const struct twi_node *error, const char *what,
                           bool of_login) {
    twi_check(error->type == TWI_NODE_ERROR && what != NULL);
    char text[120], line[260];
    twi_refusal_text(error, false, text, sizeof text);
    if (of_login && !is_without_secret(&connection->target.where->login, text))
        twi_refusal_text(error, true, text, sizeof text);
    /* Within a script Redis does not name the command. */
    const char *page = !of_login && twi_reply_is_forbidden(error) ? " (docs/KEYS.md, Permissions)" : "";
    snprintf(line, sizeof line, "%s: %s%s", what, text, page);
    if (!was_logged(&connection->outage, line))
        twi_port_log(connection->engine, TW_LOG_ERROR, TW_EVENT_REFUSED, "Redis at %s refuses %s",
                     connection->target.name, line);
    twi_port_last_error(connection->engine, line);
}

void twi_refusal_report(struct twi_connection *connection, const char *what, const struct twi_node *error) {
    refusal_report(connection, error, what, false);
}

void twi_refusal_unhealed(struct twi_connection *connection, int64_t keys, int64_t now_ms) {
    twi_check(keys >= 0);
    struct twi_unhealed_log *unhealed = &connection->unhealed;
    unhealed->keys += keys;
    if (keys == 0 || (unhealed->logged_ms != 0 && now_ms - unhealed->logged_ms < UNHEALED_LOG_MS)) return;
    unhealed->logged_ms = now_ms ? now_ms : 1;
    twi_port_log(connection->engine, TW_LOG_WARNING, TW_EVENT_REFUSED,
                 "%" PRId64 " keys stay without an expiry in Redis, which refuses PEXPIREAT or PEXPIRE (docs/KEYS.md, "
                 "Permissions)",
                 unhealed->keys);
    unhealed->keys = 0;
}

void twi_refusal_end(struct twi_connection *connection, enum twi_message_outcome outcome,
                     const struct twi_node *error) {
    if (twi_reply_is_replicas(error)) {
        connection->outage.is_logged = true; /* the report of the refusal is the line of this outage */
        twi_connection_fail(connection, true, NULL);
    } else if (outcome == TWI_MESSAGE_UNKNOWN) {
        twi_connection_fail(connection, false, "a reply that is not understood");
    }
}

void twi_refusal_login(struct twi_connection *connection, const char *what, const struct twi_node *error) {
    refusal_report(connection, error, what, true);
}

void twi_refusal_read(struct twi_connection *connection, const struct twi_item *item, const struct twi_node *error) {
    twi_check(item->delta == 0);
    char title[96], what[120];
    twi_port_title(item, title, sizeof title);
    snprintf(what, sizeof what, "the key %s", title);
    twi_refusal_report(connection, what, error);
}

uint32_t twi_refusal_key(struct twi_sync *sync, struct twi_store *store, const struct twi_item *item,
                         const struct twi_node *error, int64_t now_ms) {
    char text[120];
    bool first = false;
    uint32_t wait_ms = twi_rejected_again(&store->rejected, item, store->ledger.last, now_ms, &first);
    if (first) twi_port_count(sync->engine, poison_keys, 1);
    if (first && error && twi_reply_is_forbidden(error)) { /* the key is in order; it needs no line for each key */
        twi_refusal_report(store->connection, "a command on the keys of a batch", error);
    } else if (first) {
        twi_port_title(item, text, sizeof text);
        twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_POISON, "Redis refuses the key %s: %.100s", text,
                     error ? twi_reply_said(error) : "");
    }
    twi_ticket_refused(&sync->tickets);
    return wait_ms;
}

/* ---- cluster ---- */

/* ---- connections ------------------------------------------------------------------------------------------------- */

/* Like the first connection, but to another endpoint. Returns NULL if there is no memory. */
static struct twi_connection *cluster_make(const struct twi_sync *sync, const struct twi_endpoint *endpoint) {
    twi_check(sync->connection_count != 0 && sync->connections[0]->is_node);
    const struct twi_connection *first = sync->connections[0];
    struct twi_connection *connection = calloc(1, sizeof *connection);
    if (!connection) return NULL;
    connection->engine = first->engine;
    connection->timeout_ms = first->timeout_ms;
    connection->is_node = true;
    connection->breaker.retry_max_ms = first->breaker.retry_max_ms;
    connection->estimate.by_latest = first->estimate.by_latest;
    connection->near_keys = first->near_keys;
    connection->replicas.wanted = first->replicas.wanted;
    connection->server.is_checked = first->server.is_checked;
    struct twi_target *target = &connection->target;
    target->where = first->target.where;
    target->resolver = twi_resolver_create_at(endpoint);
    twi_endpoint_name(endpoint, target->name, sizeof target->name);
    if (target->resolver)
        target->transport_ctx =
            target->where->transport->create(target->where->shared, twi_port_socket_set(first->engine));
    target->owns_transport = target->transport_ctx != NULL;
    if (target->owns_transport) return connection;
    twi_resolver_destroy(target->resolver);
    free(connection);
    return NULL;
}

struct twi_connection *twi_cluster_connection(struct twi_sync *sync, const struct twi_endpoint *endpoint) {
    twi_check(sync->cluster != NULL);
    for (uint32_t i = 0; i < sync->connection_count; i++)
        if (twi_endpoint_equals(twi_resolver_fixed(sync->connections[i]->target.resolver), endpoint))
            return sync->connections[i];
    struct twi_connection **connections =
        realloc(sync->connections, (sync->connection_count + 1) * sizeof(struct twi_connection *));
    if (!connections) return NULL;
    sync->connections = connections;
    struct twi_connection *connection = cluster_make(sync, endpoint);
    if (connection) connections[sync->connection_count++] = connection;
    return connection;
}

struct twi_connection *twi_cluster_connection_of(struct twi_sync *sync, uint64_t node) {
    twi_check(node != 0 && sync->cluster != NULL);
    for (uint32_t i = 0; i < sync->connection_count; i++)
        if (sync->connections[i]->use.node == node) return sync->connections[i];
    const struct twi_endpoint *endpoint = twi_cluster_map_endpoint(sync->cluster->map, node);
    struct twi_connection *connection = endpoint ? twi_cluster_connection(sync, endpoint) : NULL;
    if (connection) connection->use.node = node; /* the earlier number was forgotten, for the address is the same */
    return connection;
}

void twi_cluster_drop_connection(struct twi_sync *sync, uint32_t i) {
    twi_check(i != 0 && i < sync->connection_count);
    twi_connection_destroy(sync->connections[i]);
    sync->connections[i] = sync->connections[--sync->connection_count];
}

bool twi_cluster_is_whole(const struct twi_sync *sync) {
    for (uint32_t i = 0; i < sync->active.count; i++) { /* the connections of all others accept requests */
        const struct twi_connection *connection = sync->active.stores[i]->connection;
        if (!connection || !twi_connection_takes(connection)) return false;
    }
    return true;
}

/* ---- redirects --------------------------------------------------------------------------------------------------- */

/* The slot of a redirect is the slot of the store, unless the node is faulty. */
static void follow_moved(struct twi_sync *sync, struct twi_store *store, const struct twi_redirect *redirect,
                         int64_t now_ms) {
    twi_check(redirect->kind == TWI_REDIRECT_MOVED);
    struct twi_cluster *cluster = sync->cluster;
    bool is_known = redirect->has_endpoint && redirect->slot == store->slot &&
                    twi_cluster_map_moved(cluster->map, redirect->slot, &redirect->to, now_ms);
    if (!is_known) twi_cluster_map_want(cluster->map, now_ms);
    cluster->version++;
    store->split.target = NULL; /* the move that ASK belonged to has ended */
}

/* The next batch goes to the node that was named. An opening cannot: one of its keys is new, and the node would wait
 * for the rest of the slot. */
static void follow_ask(struct twi_sync *sync, struct twi_store *store, const struct twi_redirect *redirect) {
    twi_check(redirect->kind == TWI_REDIRECT_ASK);
    struct twi_connection *target = redirect->has_endpoint ? twi_cluster_connection(sync, &redirect->to) : NULL;
    store->route.asking = store->assumed.is_open ? target : NULL;
    if (target != store->split.target) store->split.target_away_ms = 0;
    if (target) store->split.target = target; /* the map does not name a master without slots */
}

static void cluster_note(struct twi_sync *sync, struct twi_connection *connection, struct twi_store *store,
                         const struct twi_redirect *redirect, const struct twi_node *reply, int64_t now_ms) {
    twi_check(sync->cluster != NULL && redirect->kind != TWI_REDIRECT_NONE);
    enum twi_redirect_kind kind = redirect->kind;
    switch (kind) {
    case TWI_REDIRECT_MOVED:
        twi_port_count(sync->engine, moved, 1);
        follow_moved(sync, store, redirect, now_ms);
        break;
    case TWI_REDIRECT_ASK:
        twi_port_count(sync->engine, asked, 1);
        follow_ask(sync, store, redirect);
        if (!store->route.asking) kind = TWI_REDIRECT_TRYAGAIN;
        break;
    case TWI_REDIRECT_TRYAGAIN: twi_port_count(sync->engine, tryagain, 1); break;
    case TWI_REDIRECT_UNSERVED: twi_cluster_map_want(sync->cluster->map, now_ms); break;
    case TWI_REDIRECT_CROSSSLOT: twi_refusal_report(connection, "keys of several slots in one script", reply); break;
    default: break;
    }
    twi_detour_note(&store->route.detour, kind, now_ms, twi_sync_random(sync->engine));
}

bool twi_cluster_redirects(struct twi_sync *sync, struct twi_connection *connection, struct twi_store *store,
                           const struct twi_node *reply, int64_t now_ms) {
    struct twi_redirect redirect;
    if (!sync->cluster || reply->type != TWI_NODE_ERROR) return false;
    twi_redirect_read(reply, &connection->target.endpoint, &redirect);
    if (redirect.kind == TWI_REDIRECT_DOWN) twi_cluster_map_want(sync->cluster->map, now_ms);
    if (redirect.kind == TWI_REDIRECT_NONE || redirect.kind == TWI_REDIRECT_DOWN) return false;
    twi_active_wake(sync, store); /* a message may have caused it */
    /* Of the replies to one pipeline only the first one counts. */
    if (redirect.kind == TWI_REDIRECT_MOVED) connection->server.history[0] = '\0'; /* others may own the data by now */
    if (!store->rewind) cluster_note(sync, connection, store, &redirect, reply, now_ms);
    store->rewind = true;
    return true;
}

void twi_cluster_sent_away(struct twi_sync *sync, struct twi_store *store, const struct twi_node *reply,
                           int64_t now_ms) {
    twi_check(reply->type == TWI_NODE_ERROR);
    struct twi_detour *detour = &store->route.detour;
    if (detour->since_ms == 0) detour->since_ms = now_ms ? now_ms : 1;
    if (detour->is_logged || now_ms - detour->since_ms < twi_port_tuning(sync->engine)->apart_ms) return;
    detour->is_logged = true;
    twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_SPLIT,
                 "slot %u has sent this engine away for %" PRId64 " ms, last by \"%.80s\": its counts wait here "
                 "(redis-cli --cluster fix)",
                 store->slot, now_ms - detour->since_ms, reply->text);
}

void twi_cluster_answered(struct twi_store *store) {
    store->route.detour.since_ms = 0;
    store->route.detour.is_logged = false;
}
