/* nodes.c -- see nodes.h.
 *
 *   store:  no node known ─map─▶ its connection is being made ─▶ up ─MOVED, or a new map─▶ leaving ─▶ the next one
 * The map is refreshed over an open connection, if there is one to the node that gets the question. A refresh that
 * cannot be sent, or is not answered, has failed, and the map says when another one may begin. An unreachable node is
 * noticed late. An attempt to connect may last ten times redis_timeout_ms. The map does not wait for that.
 * Always true: a store leaves a connection only when it has no batch, no opening and no message under way there.
 * While the store leaves, nothing more is sent for it. A connection is dialled only while it is needed. */
#include "sync/turn/nodes.h"

#include "engine/base/check.h"
#include "engine/port/services.h"
#include "sync/message/active.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"
#include "sync/turn/connect.h"
#include "sync/turn/settle.h"
#include "sync/turn/split.h"
#include "sync/wire/cluster_directory.h"

#include <stdio.h>

/* ---- outages ---- */

#define SILENT_MS 5000 /* an outage is silent no longer than that */

bool twi_outages_is_away(const struct twi_connection *connection) {
    return connection->phase != TWI_UP || connection->breaker.state != TWI_BREAKER_CLOSED;
}

static int64_t outages_first_of(int64_t a_ms, int64_t b_ms) {
    return a_ms == 0 || (b_ms != 0 && b_ms < a_ms) ? b_ms : a_ms;
}

int64_t twi_outages_of_store_ms(const struct twi_store *store) {
    const struct twi_connection *connection = store->connection;
    if (!connection) return store->route.unserved_ms;
    return twi_outages_is_away(connection) && connection->breaker.failures != 0 ? connection->outage.since_ms : 0;
}

static const char *what_it_does(const struct twi_connection *connection) {
    twi_check(twi_outages_is_away(connection));
    switch (connection->phase) {
    case TWI_DOWN: return "waits for the next try";
    case TWI_CONNECTING: return connection->is_located ? "is being dialled" : "is being looked up";
    case TWI_GREETING: return "has not answered the greeting yet";
    case TWI_OPENING:
    case TWI_UP: break;
    }
    return "takes no batches yet";
}

static void outages_say(const struct twi_sync *sync, const char *text, int64_t silent_ms) {
    twi_check(text != NULL && silent_ms >= 0);
    twi_port_last_error(sync->engine, text);
    twi_port_log(sync->engine, TW_LOG_WARNING, TW_EVENT_LOST_CONNECTION, "%s (for %d s so far)", text,
                 (int)(silent_ms / 1000));
}

static bool is_silent(int64_t since_ms, bool is_logged, int64_t now_ms) {
    twi_check(since_ms >= 0);
    return since_ms != 0 && !is_logged && now_ms - since_ms >= SILENT_MS;
}

static void look_at_connection(const struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    struct twi_outage_log *outage = &connection->outage;
    if (!twi_outages_is_away(connection))
        outage->since_ms = 0;
    else if (outage->since_ms == 0)
        outage->since_ms = now_ms ? now_ms : 1;
    if (!is_silent(outage->since_ms, outage->is_logged, now_ms)) return;
    snprintf(outage->error, sizeof outage->error, "no connection to Redis at %.60s: it %s", connection->target.name,
             what_it_does(connection));
    outage->is_logged = true;
    outages_say(sync, outage->error, now_ms - outage->since_ms);
}

/* Returns the store that has had no node for the longest time, or NULL if each has one. */
static const struct twi_store *unserved(const struct twi_sync *sync) {
    const struct twi_store *first = NULL;
    for (uint32_t i = 0; sync->cluster && i < sync->active.count; i++) {
        const struct twi_store *store = sync->active.stores[i];
        if (store->connection || store->route.unserved_ms == 0) continue;
        if (!first || store->route.unserved_ms < first->route.unserved_ms) first = store;
    }
    return first;
}

static int64_t look_at_stores(struct twi_sync *sync, int64_t now_ms) {
    const struct twi_store *store = unserved(sync);
    if (!sync->cluster) return 0;
    if (!store) {
        if (sync->cluster->unserved_error[0] != '\0') twi_port_error_over(sync->engine, sync->cluster->unserved_error);
        sync->cluster->unserved_error[0] = '\0';
        return 0;
    }
    if (is_silent(store->route.unserved_ms, sync->cluster->unserved_error[0] != '\0', now_ms)) {
        snprintf(sync->cluster->unserved_error, sizeof sync->cluster->unserved_error,
                 "no master with an address is known for key slot %u (CLUSTER SLOTS): its counts wait", store->slot);
        outages_say(sync, sync->cluster->unserved_error, now_ms - store->route.unserved_ms);
    }
    return store->route.unserved_ms;
}

int64_t twi_outages_look(struct twi_sync *sync, int64_t now_ms) {
    twi_check(sync->connection_count != 0);
    int64_t since_ms = look_at_stores(sync, now_ms);
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        struct twi_connection *connection = sync->connections[i];
        if (!connection->use.is_wanted) continue;
        look_at_connection(sync, connection, now_ms);
        since_ms = outages_first_of(since_ms, connection->outage.since_ms);
    }
    return since_ms;
}

int64_t twi_outages_due_ms(const struct twi_sync *sync) {
    const struct twi_store *store = unserved(sync);
    int64_t due_ms = INT64_MAX;
    if (store && sync->cluster->unserved_error[0] == '\0') due_ms = store->route.unserved_ms + SILENT_MS;
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        const struct twi_connection *connection = sync->connections[i];
        const struct twi_outage_log *outage = &connection->outage;
        if (!connection->use.is_wanted || outage->is_logged || outage->since_ms == 0) continue;
        if (outage->since_ms + SILENT_MS < due_ms) due_ms = outage->since_ms + SILENT_MS;
    }
    return due_ms;
}

#define IDLE_MS 60000 /* a connection without use is closed after this time */

/* ---- the map ----------------------------------------------------------------------------------------------------- */

static void refresh_failed(struct twi_sync *sync, bool was_sent, int64_t now_ms) {
    twi_check(sync->cluster != NULL);
    struct twi_cluster *cluster = sync->cluster;
    cluster->asked = NULL;
    cluster->has_tried = true;
    twi_cluster_map_failed(cluster->map, was_sent, now_ms, twi_sync_random(sync->engine));
}

/* Chooses whom to ask. Returns the connection; NULL if it failed at once. */
static struct twi_connection *begin_refresh(struct twi_sync *sync, int64_t now_ms) {
    twi_check(sync->cluster->asked == NULL);
    struct twi_cluster *cluster = sync->cluster;
    struct twi_endpoint whom;
    twi_cluster_map_ask(cluster->map, twi_sync_random(sync->engine), &whom);
    cluster->asked = twi_cluster_connection(sync, &whom);
    cluster->was_sent = false;
    cluster->asked_ms = now_ms;
    bool is_away = cluster->asked && cluster->asked->phase == TWI_DOWN &&
                   cluster->asked->breaker.state == TWI_BREAKER_OPEN && now_ms < cluster->asked->breaker.retry_at_ms;
    if (!cluster->asked || is_away) refresh_failed(sync, false, now_ms);
    return cluster->asked;
}

static bool knows_masters(const struct twi_cluster *cluster) {
    return twi_cluster_map_next(cluster->map, 0) != 0;
}

static void send_refresh(struct twi_cluster *cluster, struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->pipeline.count <= TWI_PENDING_MAX);
    if (cluster->was_sent || !twi_connection_is_up(connection)) return;
    twi_pipeline_begin(&connection->pipeline, now_ms);
    twi_wire_begin(&connection->pipeline.out, 2);
    twi_wire_put_text(&connection->pipeline.out, "CLUSTER");
    twi_wire_put_text(&connection->pipeline.out, "SLOTS");
    twi_pipeline_await(&connection->pipeline, TWI_SLOTS, NULL, 1)->alone = false;
    cluster->was_sent = true;
    cluster->asked_ms = now_ms;
}

void twi_nodes_reply(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                     const struct twi_node *nodes, size_t count, int64_t now_ms) {
    twi_check(sync->cluster != NULL && pending->command == TWI_SLOTS);
    struct twi_cluster *cluster = sync->cluster;
    bool is_late = cluster->asked != connection; /* now another node has the question */
    (void)pending;
    if (is_late && (nodes->type == TWI_NODE_ERROR || knows_masters(cluster))) return;
    if (nodes->type == TWI_NODE_ERROR) {
        twi_refusal_report(connection, "CLUSTER SLOTS", nodes);
        if (twi_outages_is_away(connection)) connection->outage.is_logged = true; /* the outage has its line */
        refresh_failed(sync, true, now_ms);
        return;
    }
    cluster->asked = NULL;
    cluster->has_tried = true;
    cluster->version++;
    twi_settle_success(sync, connection, now_ms); /* the node replies, even if it has no store of ours */
    twi_port_count(sync->engine, map_refreshes, 1);
    (void)twi_cluster_map_reply(cluster->map, &connection->target.endpoint, nodes, count, now_ms,
                                twi_sync_random(sync->engine));
}

void twi_nodes_lost(struct twi_sync *sync, const struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->phase == TWI_DOWN);
    if (!sync->cluster) return;
    twi_split_lost(sync, connection, now_ms);
    if (sync->cluster->asked == connection) refresh_failed(sync, sync->cluster->was_sent, now_ms);
    twi_cluster_map_want(sync->cluster->map, now_ms);
}

/* Puts the notes of waiting callers into the map, and publishes the map to them. */
static void share_map(struct twi_sync *sync, int64_t now_ms) {
    twi_check(sync->cluster->map != NULL);
    struct twi_cluster *cluster = sync->cluster;
    struct twi_endpoint to;
    uint32_t slot;
    if (!cluster->directory) return;
    while (twi_directory_take_moved(cluster->directory, &slot, &to)) {
        if (!twi_cluster_map_moved(cluster->map, slot, &to, now_ms)) twi_cluster_map_want(cluster->map, now_ms);
        cluster->version++;
    }
    if (twi_directory_take_wanted(cluster->directory)) twi_cluster_map_want(cluster->map, now_ms);
    bool is_new = cluster->published != cluster->version;
    if (is_new && twi_directory_set(cluster->directory, cluster->map)) cluster->published = cluster->version;
}

/* Returns when to send the question to another node, although the connection to this one may still come up. The
 * attempt continues. While no master is known, an answer may also come later, and is then used. That is the rest of
 * the time of a call that waits for the map. */
static int64_t give_up_ms(const struct twi_cluster *cluster) {
    twi_check(cluster->asked != NULL);
    if (cluster->was_sent && knows_masters(cluster)) return INT64_MAX;
    return cluster->asked_ms + cluster->asked->timeout_ms / 2;
}

static void nodes_give_up(struct twi_sync *sync, int64_t now_ms) {
    twi_check(sync->cluster->asked != NULL);
    sync->cluster->asked = NULL;
    twi_cluster_map_failed(sync->cluster->map, false, now_ms, twi_sync_random(sync->engine));
}

static void nodes_refresh(struct twi_sync *sync, int64_t now_ms) {
    struct twi_cluster *cluster = sync->cluster;
    share_map(sync, now_ms);
    struct twi_connection *asked = cluster->asked;
    if (!asked && now_ms >= twi_cluster_map_due_ms(cluster->map)) asked = begin_refresh(sync, now_ms);
    if (asked) send_refresh(cluster, asked, now_ms);
    if (cluster->asked && now_ms >= give_up_ms(cluster)) nodes_give_up(sync, now_ms);
}

/* ---- stores ------------------------------------------------------------------------------------------------------ */

/* Called if the owner of its slot is unknown. */
static void leave_unserved(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(sync->cluster != NULL && store->slot < TWI_KEY_SLOTS);
    twi_cluster_map_want(sync->cluster->map, now_ms);
    if (store->awaited == 0 && store->route.messages == 0) store->connection = NULL;
    if (store->route.unserved_ms == 0 && sync->cluster->has_tried) store->route.unserved_ms = now_ms ? now_ms : 1;
    store->rewind = true;
}

/* Returns false if the store is not at the node that has its slot. */
static bool follow_owner(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(store->slot < TWI_KEY_SLOTS);
    uint64_t node = twi_cluster_map_owner(sync->cluster->map, store->slot);
    if (store->connection && store->connection->use.node == node && node != 0) return true;
    if (node == 0) {
        leave_unserved(sync, store, now_ms);
        return false;
    }
    store->rewind = true; /* nothing more is sent over the earlier connection */
    if (store->awaited != 0 || store->route.messages != 0) return false;
    struct twi_connection *connection = twi_cluster_connection_of(sync, node);
    if (!connection) return false;
    twi_connect_attach(sync, connection, store);
    twi_check(connection->use.node == node);
    return true;
}

/* Returns true if something may be sent for the store in this turn. */
static void nodes_look_at(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(store->awaited == 0 || store->route.via != NULL);
    bool is_home = !sync->cluster || follow_owner(sync, store, now_ms);
    store->route.is_waiting = !is_home || now_ms < store->route.detour.again_ms;
    if (store->connection) store->connection->use.is_wanted = true;
    if (store->route.asking) store->route.asking->use.is_wanted = true;
    if (store->awaited != 0) store->route.via->use.is_wanted = true;
    if (store->split.asked) store->split.asked->use.is_wanted = true;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static void nodes_end_idle(struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->is_node);
    bool is_used = connection->use.is_wanted || connection->pipeline.count != 0;
    if (is_used || connection->phase == TWI_DOWN)
        connection->use.idle_since_ms = 0;
    else if (connection->use.idle_since_ms == 0)
        connection->use.idle_since_ms = now_ms ? now_ms : 1;
    else if (now_ms - connection->use.idle_since_ms > IDLE_MS)
        twi_connection_rest(connection);
}

/* Marks an idle connection as needed or not. A node that the map has forgotten has no number any more. */
static void look_at_use(const struct twi_cluster *cluster, struct twi_connection *connection) {
    struct twi_node_use *use = &connection->use;
    use->is_wanted = use->idle_stores != 0 || (cluster->asked && connection == cluster->asked);
    if (use->node != 0 && !twi_cluster_map_endpoint(cluster->map, use->node)) use->node = 0;
}

void twi_nodes_step(struct twi_sync *sync, int64_t now_ms) {
    if (!sync->by_slot) return;
    if (sync->cluster) {
        nodes_refresh(sync, now_ms);
        twi_cluster_map_sweep(sync->cluster->map, now_ms);
        for (uint32_t i = 0; i < sync->connection_count; i++) look_at_use(sync->cluster, sync->connections[i]);
        if (sync->by_slot->version != sync->cluster->version)
            twi_active_wake_all(sync); /* their slots may have moved */
        sync->by_slot->version = sync->cluster->version;
    }
    for (uint32_t i = 0; i < sync->active.count; i++) nodes_look_at(sync, sync->active.stores[i], now_ms);
    for (uint32_t i = 0; sync->cluster && i < sync->connection_count; i++) nodes_end_idle(sync->connections[i], now_ms);
}

int64_t twi_nodes_wake_ms(const struct twi_sync *sync, int64_t now_ms) {
    int64_t wake_ms = INT64_MAX;
    if (sync->cluster)
        wake_ms = sync->cluster->asked ? give_up_ms(sync->cluster) : twi_cluster_map_due_ms(sync->cluster->map);
    for (uint32_t i = 0; sync->by_slot && i < sync->active.count; i++) {
        const struct twi_store *store = sync->active.stores[i];
        /* If the time has ended, the store waits for another event, a reply or a connection. */
        int64_t again_ms = store->route.is_waiting ? store->route.detour.again_ms : 0;
        if (again_ms > now_ms && again_ms < wake_ms) wake_ms = again_ms;
    }
    return wake_ms > now_ms ? wake_ms : now_ms;
}

static bool nodes_is_of(const struct twi_connection *connection, const struct twi_store *store) {
    return store->connection == connection || store->route.asking == connection || store->split.target == connection;
}

/* The first connection stays. Other connections are made from it. */
void twi_nodes_sweep(struct twi_sync *sync) {
    for (uint32_t i = sync->connection_count; sync->cluster && i-- > 1;) {
        const struct twi_connection *connection = sync->connections[i];
        bool is_used = connection->use.is_wanted || connection->phase != TWI_DOWN || connection->pipeline.count != 0;
        for (uint32_t k = 0; k < sync->store_count && !is_used; k++) is_used = nodes_is_of(connection, sync->stores[k]);
        if (!is_used && connection->use.node == 0) twi_cluster_drop_connection(sync, i);
    }
}

/* ---- what the engine learns -------------------------------------------------------------------------------------- */

void twi_nodes_publish(struct twi_sync *sync) {
    if (sync->cluster && twi_cluster_is_whole(sync)) twi_port_connected(sync->engine, true);
}
