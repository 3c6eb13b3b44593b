/* split.c -- see split.h.
 *
 * Half of a slot has moved to another master, the store's ledger with it. Then the source fails over, and the new
 * master has no record of the move (Redis 7 and before). It has the slot without the ledger, and half of the keys. If
 * that were treated as a wipe, restoring all counters would double the keys that are still there. So before an engine
 * assumes that a store was wiped, it counts the keys of that slot on every master:
 *
 *   GONE ─▶ ASKING one master after the other ─all say 0─▶ RULED OUT: it was wiped; an opening is sent
 *             └─one holds keys, or does not answer─▶ FOUND: the store is held; asked again, until all say 0 or the
 *                                                    ledger is back (redis-cli --cluster fix)
 * The opening may have to wait while the slot moves or its master is unreachable. Meanwhile keys may come to masters
 * that had none, and the slot may go to another master, so that the earlier one is one of the others. So RULED OUT
 * is valid for RULING_MS, and for one owner of the slot. After that the masters get the question again. CLUSTER
 * SLOTS names no master without slots, but the first slot may be on its way to such a master. So the node that ASK
 * has named gets the question, too, until it has not answered for a minute. The keys of the store's current master
 * are no evidence here, but its marker is (batch.lua, `k`). A map that is behind may name a former master. That one
 * follows another node by now, and cannot rule anything out. So each master must report its role, too. Always true:
 * while a store is deferred, its counts wait in their counters. */
#include "sync/turn/split.h"

#include "engine/base/check.h"
#include "engine/port/services.h"
#include "sync/message/refusal.h"
#include "sync/turn/settle.h"

#define TARGET_LOST_MS 60000
#define AGAIN_MS 1000  /* the pause between two rounds over all masters; up to half as long again, at random */
#define RULING_MS 3000 /* the reply 0 of all masters counts for this time */

void twi_split_forget(struct twi_store *store) {
    store->split = (struct twi_split){.asked = store->split.asked, .target = store->split.target};
}

bool twi_split_is_ruled_out(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    struct twi_split *split = &store->split;
    if (!sync->cluster) return true;
    uint64_t owner = twi_cluster_map_owner(sync->cluster->map, store->slot);
    bool is_ruled_out = split->state == TWI_SPLIT_RULED_OUT;
    if (is_ruled_out && split->owner == owner && now_ms - split->ruled_ms < RULING_MS) return true;
    bool is_over = split->state == TWI_SPLIT_FOUND && now_ms >= split->again_ms;
    if (is_ruled_out || is_over || split->state == TWI_SPLIT_UNKNOWN) {
        split->state = TWI_SPLIT_ASKING;
        split->owner = owner;
        split->node = 0;
        split->has_asked_target = false;
    }
    return false;
}

static void found(struct twi_sync *sync, struct twi_store *store, const char *name, const char *what, int64_t now_ms) {
    twi_check(sync->cluster != NULL && what != NULL);
    struct twi_split *split = &store->split;
    split->state = TWI_SPLIT_FOUND;
    split->is_found = true;
    twi_cluster_map_want(sync->cluster->map, now_ms); /* the map that named it may be old */
    split->again_ms = now_ms + AGAIN_MS + (int64_t)(twi_sync_random(sync->engine) % (AGAIN_MS / 2));
    if (split->is_logged) return;
    split->is_logged = true;
    twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_SPLIT,
                 "slot %u has lost this engine's ledger, and %s %s: its counts wait here, and nothing is sent again "
                 "(redis-cli --cluster fix)",
                 store->slot, name, what);
}

/* Each ROLE is answered just before its question, so the role is current, whatever other requests are under way
 * there. */
static void put_role(struct twi_connection *connection) {
    twi_wire_begin(&connection->pipeline.out, 1);
    twi_wire_put_text(&connection->pipeline.out, "ROLE");
    twi_pipeline_await(&connection->pipeline, TWI_ROLE, NULL, 1)->alone = false;
}

static void split_put_question(struct twi_connection *connection, struct twi_store *store, int64_t now_ms) {
    twi_check(store->split.asked == NULL && store->slot < TWI_KEY_SLOTS);
    twi_pipeline_begin(&connection->pipeline, now_ms);
    put_role(connection);
    twi_wire_begin(&connection->pipeline.out, 3);
    twi_wire_put_text(&connection->pipeline.out, "CLUSTER");
    twi_wire_put_text(&connection->pipeline.out, "COUNTKEYSINSLOT");
    twi_wire_put_u64(&connection->pipeline.out, store->slot);
    struct twi_pending *pending = twi_pipeline_await(&connection->pipeline, TWI_COUNT_KEYS, NULL, 1);
    pending->store = store;
    pending->alone = false;
    store->split.asked = connection;
}

/* The node is in no map, and has not answered for a long time. It has another address by now, or has ended. */
static bool is_target_lost(struct twi_split *split, int64_t now_ms) {
    twi_check(split->target != NULL);
    if (split->target_away_ms == 0) split->target_away_ms = now_ms ? now_ms : 1;
    return now_ms - split->target_away_ms > TARGET_LOST_MS;
}

/* Sends the question to the next master, if that can be reached now. */
static void ask_next(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(store->split.state == TWI_SPLIT_ASKING && store->split.asked == NULL);
    struct twi_split *split = &store->split;
    const struct twi_cluster_map *map = sync->cluster->map;
    uint64_t node = twi_cluster_map_next(map, split->node);
    if (node != 0 && node == twi_cluster_map_owner(map, store->slot)) {
        split->node = node;
        node = twi_cluster_map_next(map, node);
    }
    bool is_target = node == 0 && split->target && split->target != store->connection && !split->has_asked_target;
    if (node == 0 && !is_target) {
        split->state = TWI_SPLIT_RULED_OUT;
        split->is_found = false;
        split->ruled_ms = now_ms;
        return;
    }
    struct twi_connection *connection = is_target ? split->target : twi_cluster_connection_of(sync, node);
    if (!connection) return;
    connection->use.is_wanted = true;
    bool is_away = connection->phase == TWI_DOWN && connection->breaker.state == TWI_BREAKER_OPEN;
    if (is_away && is_target && is_target_lost(split, now_ms)) {
        split->target = NULL;
        return;
    }
    if (is_away) found(sync, store, connection->target.name, "does not answer", now_ms);
    if (!twi_connection_is_up(connection) || connection->pipeline.count + 8 > TWI_PENDING_MAX) return;
    split->has_asked_target = is_target;
    if (!is_target) split->node = node;
    split_put_question(connection, store, now_ms);
}

void twi_split_step(struct twi_sync *sync, int64_t now_ms) {
    for (uint32_t i = 0; sync->cluster && i < sync->active.count; i++) {
        struct twi_store *store = sync->active.stores[i];
        if (store->split.state == TWI_SPLIT_ASKING && !store->split.asked) ask_next(sync, store, now_ms);
    }
}

void twi_split_reply(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                     const struct twi_node *nodes, size_t count, int64_t now_ms) {
    twi_check(pending->command == TWI_COUNT_KEYS && pending->store != NULL);
    twi_check(count != 0);
    struct twi_store *store = pending->store;
    int64_t keys = 0;
    (void)count;
    store->split.asked = NULL;
    twi_settle_success(sync, connection, now_ms); /* it answers, though it may have no store of ours */
    if (store->split.has_asked_target) store->split.target_away_ms = 0;
    if (store->split.state != TWI_SPLIT_ASKING) return;
    if (nodes->type == TWI_NODE_ERROR || !twi_node_count(nodes, &keys)) {
        if (nodes->type == TWI_NODE_ERROR) twi_refusal_report(connection, "CLUSTER COUNTKEYSINSLOT", nodes);
        found(sync, store, connection->target.name, "does not say what it holds of it", now_ms);
    } else if (connection->server.role == TWI_ROLE_REPLICA) { /* at an ASK's node; its master follows */
        if (!store->split.has_asked_target)
            found(sync, store, connection->target.name, "is no master any more", now_ms);
    } else if (keys != 0) {
        found(sync, store, connection->target.name, "holds keys of it", now_ms);
    }
}

void twi_split_lost(struct twi_sync *sync, const struct twi_connection *connection, int64_t now_ms) {
    for (uint32_t i = 0; sync->cluster && i < sync->store_count; i++) {
        struct twi_store *store = sync->stores[i];
        if (store->split.asked != connection) continue;
        store->split.asked = NULL;
        if (store->split.state == TWI_SPLIT_ASKING)
            found(sync, store, connection->target.name, "does not answer", now_ms);
    }
}
