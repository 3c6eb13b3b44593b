/* outages.c -- see outages.h. */
#include "sync/turn/outages.h"

#include "engine/base/check.h"
#include "engine/port/services.h"
#include "sync/message/cluster.h"
#include "sync/message/state.h"

#include <stdio.h>

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
