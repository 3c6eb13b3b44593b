/* driver.c -- the table through which the engine drives sync (engine/port/driver.h), and the life of struct twi_sync.
 * Always true: create() opens no socket, and looks no name up. destroy() settles every item that is left. abandon(), in
 * a forked child, has no effect that the parent could notice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/atomic.h"
#include "engine/port/driver.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/ask/dispatcher.h"
#include "sync/audit/audit.h"
#include "sync/audit/audit_servers.h"
#include "sync/turn/connect.h"
#include "sync/turn/turn.h"
#include "sync/turn/merge_plain.h"
#include "sync/turn/settle.h"
#include "sync/turn/collect.h"
#include "sync/message/active.h"
#include "sync/message/closing.h"
#include "sync/message/refusal.h"
#include "sync/message/lease.h"
#include "sync/message/distinct.h"
#include "sync/message/state.h"
#include "sync/message/presence.h"
#include "sync/wire/cluster_directory.h"
#include "sync/wire/sentinel.h"

static tw_status driver_refuse(const tw_options *options, const char *text) {
    if (options->error_text && options->error_size) snprintf(options->error_text, options->error_size, "%s", text);
    return twi_refuse_with(TW_ERR_OPTIONS, "%s", text);
}

/* Why these options do not fit a cluster; NULL if they do. A brace in the prefix would be a hash tag of every name. */
static const char *why_no_cluster(const tw_options *options) {
    const char *prefix = options->redis_prefix ? options->redis_prefix : "";
    if (options->merge != TW_MERGE_SCRIPT) return "merge: in a cluster counts are merged by script";
    if (strchr(prefix, '{')) return "redis_prefix: in a cluster it has no brace";
    return NULL;
}

static void free_store(struct twi_store *store) {
    if (!store) return;
    twi_ledger_free(&store->ledger);
    twi_batch_free(store->opening);
    twi_merge_plain_free(store->merge_plain);
    twi_rejected_free(&store->rejected);
    twi_port_parking_free(&store->parking);
    free(store);
}

static void free_cluster(struct twi_cluster *cluster) {
    if (!cluster) return;
    twi_cluster_map_destroy(cluster->map);
    twi_directory_destroy(cluster->directory);
    free(cluster);
}

static void sync_free(struct twi_sync *sync) {
    twi_dispatcher_destroy(sync->dispatcher);
    /* Messages that are under way name their stores. The connections go first. */
    for (uint32_t i = 0; i < sync->connection_count; i++) twi_connection_destroy(sync->connections[i]);
    free(sync->connections);
    for (uint32_t i = 0; i < sync->store_count; i++) free_store(sync->stores[i]);
    free(sync->stores);
    free(sync->active.stores);
    twi_stores_end(sync);
    free_cluster(sync->cluster);
    twi_presence_free(&sync->senders.presence);
    twi_distinct_free(&sync->senders.distinct);
    twi_lease_free(&sync->senders.leases);
    twi_closing_sender_free(&sync->senders.closing);
    free(sync->collecting.items);
    twi_where_free(&sync->where);
    free(sync);
}

static void set_up_connection(struct twi_connection *connection, tw_engine *engine, const tw_options *options) {
    connection->engine = engine;
    connection->timeout_ms = options->redis_timeout_ms ? options->redis_timeout_ms : TWI_TIMEOUT_LEAST_MS;
    connection->breaker.retry_max_ms = options->retry_max_ms;
    connection->estimate.by_latest = options->threads != TW_OWN_THREAD;
    connection->near_keys = twi_port_tuning(engine)->near_keys;
    connection->replicas.wanted = options->wait_replicas;
}

static void set_up_store(struct twi_sync *sync, struct twi_store *store, const tw_options *options) {
    const char *prefix = options->redis_prefix ? options->redis_prefix : "";
    uint64_t replay_bytes = options->replay_bytes_max;
    store->engine = sync->engine;
    store->merge = twi_merge_of(options->merge);
    store->ledger.all_replay_bytes = &sync->replay_bytes;
    store->marker_name_size = (size_t)snprintf(store->marker_name, sizeof store->marker_name, "%stw:marker", prefix);
    store->ledger.replay_bytes_max = replay_bytes < SIZE_MAX ? (size_t)replay_bytes : SIZE_MAX;
    store->ledger.replay_ms = options->replay_ms;
    store->ledger.awaits_replicas = options->wait_replicas != 0;
    if (store->merge->has_script) return;
    store->ledger.replay_bytes_max = 0; /* without a ledger there is never a replay */
    store->assumed.is_open = true;
    twi_port_live_engines(sync->engine, 0); /* without scripts there is no registry either */
}

static void set_up(struct twi_sync *sync, tw_engine *engine, const tw_options *options) {
    sync->engine = engine;
    sync->sharing.estate = twi_port_estate(engine);
    sync->sharing.replay_bytes = twi_estate_replay_bytes(options);
    sync->interval_ms = options->sync_interval_ms;
    sync->pace.keys_per_s = options->flush_keys_per_s ? options->flush_keys_per_s : TWI_PACE_KEYS_PER_S;
    sync->own_thread = options->threads == TW_OWN_THREAD;
    sync->collecting.at_ms = sync->collecting.hold_ms = INT64_MIN;
    sync->connections[0]->use.is_wanted = true;
    set_up_connection(sync->connections[0], engine, options);
}

/* Returns false if there is no memory. */
static bool make_staging(struct twi_sync *sync, const tw_options *options) {
    bool by_slot = sync->cluster || (twi_port_tuning(sync->engine)->stores_by_tag && options->merge == TW_MERGE_SCRIPT);
    sync->collecting.items_max = by_slot ? TWI_STORES_ITEMS_MAX : TWI_BATCH_ITEMS_MAX;
    sync->collecting.items = malloc(sync->collecting.items_max * sizeof *sync->collecting.items);
    if (!sync->collecting.items) return false;
    return !by_slot || twi_stores_begin(sync);
}

/* Makes the first store. Returns false if there is no memory. */
static bool make_store(struct twi_sync *sync, const tw_options *options) {
    struct twi_store *store = calloc(1, sizeof *store);
    sync->stores = store ? calloc(1, sizeof(struct twi_store *)) : NULL;
    sync->active.stores = store ? calloc(1, sizeof(struct twi_store *)) : NULL;
    if (!sync->stores || !sync->active.stores) {
        free(store);
        return false;
    }
    sync->stores[sync->store_count++] = store;
    twi_active_add(sync, store);
    store->connection = sync->cluster ? NULL : sync->connections[0];
    set_up_store(sync, store, options);
    if (sync->by_slot && !twi_stores_name_first(sync, store)) return false;
    return store->merge->has_script || (store->merge_plain = twi_merge_plain_create()) != NULL;
}

/* Returns false if there is no memory. */
static bool driver_make_resolver(struct twi_sync *sync) {
    struct twi_target *target = &sync->connections[0]->target;
    struct twi_resolver_rules rules = {.where = &sync->where,
                                       .set = twi_port_socket_set(sync->engine),
                                       .timeout_ms = sync->connections[0]->timeout_ms,
                                       .random = 0};
    if (sync->where.url.kind == TWI_URL_SENTINEL) rules.random = twi_sync_random(sync->engine);
    target->resolver = twi_resolver_create(&rules);
    return target->resolver != NULL;
}

/* Until the first connection. */
static void name_target(struct twi_target *target) {
    const struct twi_endpoint *fixed = twi_resolver_fixed(target->resolver);
    if (fixed)
        twi_endpoint_name(fixed, target->name, sizeof target->name);
    else
        snprintf(target->name, sizeof target->name, "the master %s", target->where->url.master);
}

/* Returns false if there is no memory. */
static bool make_cluster(struct twi_sync *sync) {
    const struct twi_url *url = &sync->where.url;
    struct twi_endpoint seeds[TWI_URL_SEEDS_MAX];
    for (uint32_t i = 0; i < url->seed_count; i++) seeds[i] = twi_url_seed(url, i);
    sync->cluster = calloc(1, sizeof *sync->cluster);
    if (!sync->cluster) return false;
    sync->cluster->map = twi_cluster_map_create(seeds, url->seed_count);
    return sync->cluster->map != NULL;
}

/* Makes the transport of the first connection, to the one Redis or to the first node of the URL. The others are made
 * when they are needed. Returns false if there is no memory. */
static bool driver_make_transport(struct twi_sync *sync) {
    struct twi_target *target = &sync->connections[0]->target;
    sync->connections[0]->is_node = sync->cluster != NULL;
    target->transport_ctx = sync->where.transport->create(sync->where.shared, twi_port_socket_set(sync->engine));
    target->owns_transport = target->transport_ctx != NULL;
    return target->owns_transport;
}

/* Makes the state of calls that wait. Returns false if there is no memory, or no descriptor. */
static bool make_dispatcher(struct twi_sync *sync, const tw_options *options) {
    if (!sync->where.transport->create) return true; /* a simulator's, which has one connection */
    if (sync->cluster) {
        sync->cluster->directory = twi_directory_create();
        if (!sync->cluster->directory) return false;
    }
    struct twi_dispatcher_rules rules = {.engine = sync->engine,
                                         .where = &sync->where,
                                         .options = options,
                                         .directory = sync->cluster ? sync->cluster->directory : NULL,
                                         .host_drives = !sync->own_thread};
    sync->dispatcher = twi_dispatcher_create(&rules);
    return sync->dispatcher != NULL;
}

/* Returns false if there is no memory. */
static bool allocate(struct twi_sync *sync, const tw_options *options, const struct twi_transport *transport,
                     void *transport_ctx) {
    struct twi_target *target = &sync->connections[0]->target;
    target->where = &sync->where;
    if (transport) sync->where.transport = transport, sync->where.shared = target->transport_ctx = transport_ctx;
    if (sync->where.url.kind == TWI_URL_CLUSTER && !make_cluster(sync)) return false;
    if (!make_staging(sync, options)) return false;
    if (!make_store(sync, options)) return false;
    if (!driver_make_resolver(sync)) return false;
    name_target(target);
    if ((sync->cluster || !transport) && !driver_make_transport(sync)) return false;
    return make_dispatcher(sync, options);
}

/* Makes the sync with its first connection. Returns NULL if there is no memory. */
static struct twi_sync *make_sync(void) {
    struct twi_sync *sync = calloc(1, sizeof *sync);
    struct twi_connection *connection = calloc(1, sizeof *connection);
    if (sync) sync->connections = calloc(1, sizeof(struct twi_connection *));
    if (sync && sync->connections && connection) {
        sync->connections[sync->connection_count++] = connection;
        return sync;
    }
    if (sync) free(sync->connections);
    free(sync);
    free(connection);
    return NULL;
}

/* `options` are checked (engine/core/options.h). */
static tw_status driver_create(tw_engine *engine, const tw_options *options, const struct twi_transport *transport,
                               void *transport_ctx, struct twi_sync **out) {
    struct twi_sync *sync = make_sync();
    if (!sync) return twi_refuse(TW_ERR_MEMORY, NULL);
    char why[TWI_TLS_ERROR_MAX];
    if (!twi_where_read(&sync->where, options, why, sizeof why)) {
        sync_free(sync);
        return driver_refuse(options, why);
    }
    const char *unfit = sync->where.url.kind == TWI_URL_CLUSTER ? why_no_cluster(options) : NULL;
    if (unfit) {
        sync_free(sync);
        return driver_refuse(options, unfit);
    }
    set_up(sync, engine, options);
    if (!allocate(sync, options, transport, transport_ctx)) {
        sync_free(sync);
        return twi_refuse(TW_ERR_MEMORY, NULL);
    }
    *out = sync;
    return TW_OK;
}

static int64_t driver_wake_ms(const struct twi_sync *sync) {
    int64_t wake_ms = twi_load_relaxed(&sync->published.wake_ms);
    int64_t ask_ms = sync->dispatcher && !sync->own_thread ? twi_dispatcher_wake_ms(sync->dispatcher) : INT64_MAX;
    return wake_ms < ask_ms ? wake_ms : ask_ms;
}

static const uint32_t *driver_shorts(const struct twi_sync *sync) {
    return sync->cluster ? twi_key_slot_shorts() : NULL;
}

static uint64_t driver_ticket_take(struct twi_sync *sync) {
    return twi_ticket_take(&sync->tickets);
}

static enum twi_ticket driver_ticket_state(struct twi_sync *sync, uint64_t ticket) {
    return twi_ticket_state(&sync->tickets, ticket);
}

static void driver_stats(const struct twi_sync *sync, tw_stats *stats) {
    int64_t acked_ms = twi_load_relaxed(&sync->published.acked_ms);
    int64_t since_ms = twi_load_relaxed(&sync->published.outage_since_ms);
    stats->breaker_state = twi_load_relaxed(&sync->published.breaker_state);
    stats->outage_ms = since_ms ? twi_port_mono_ms(sync->engine) - since_ms : 0;
    stats->redis_nodes = twi_load_relaxed(&sync->published.nodes);
    stats->stores = twi_load_relaxed(&sync->published.stores);
    stats->stores_away = twi_load_relaxed(&sync->published.stores_away);
    stats->stores_split = twi_load_relaxed(&sync->published.stores_split);
    stats->stores_waiting = twi_load_relaxed(&sync->published.stores_waiting);
    if (sync->where.tls) stats->tls_refused = twi_tls_counts(sync->where.tls).refused;
    stats->sync_age_ms = acked_ms ? twi_port_mono_ms(sync->engine) - acked_ms : -1;
}

/* What Redis has certainly applied. It may have applied batches under way, too. False if the store is in doubt. */
static bool own_of_store(const struct twi_store *store, struct twi_audit_own *own) {
    const struct twi_ledger *ledger = &store->ledger;
    if (!store->merge->has_script || !store->assumed.is_open || twi_ledger_is_replaying(ledger)) return false;
    *own = (struct twi_audit_own){.number = ledger->confirmed, .plus = ledger->plus_sum, .minus = ledger->minus_sum};
    memcpy(own->ledger, ledger->name, ledger->name_size + 1);
    const struct twi_batch *next = twi_ledger_unconfirmed(ledger);
    if (next) own->plus = next->plus_sum - next->plus, own->minus = next->minus_sum - next->minus;
    return true;
}

static bool driver_own(const struct twi_sync *sync, struct twi_audit_own **own, size_t *count) {
    *count = 0;
    *own = malloc(sync->store_count * sizeof **own);
    for (uint32_t i = 0; *own && i < sync->store_count; i++) *count += own_of_store(sync->stores[i], *own + *count);
    return *own != NULL;
}

/* Calls that still wait get an answer. Unsent counts stay unsent. */
static void end_calls(struct twi_sync *sync) {
    if (!sync->dispatcher) return;
    twi_dispatcher_stop(sync->dispatcher);
    twi_dispatcher_step(sync->dispatcher);
}

static void driver_inherit(struct twi_sync *sync) {
    twi_check(sync->store_count == 1 && sync->sharing.estate != NULL);
    twi_estate_inherit(sync, sync->stores[0]);
}

/* First everything is sent that was counted until now, as for a flush. Then nothing more is collected. */
static bool driver_finish(struct twi_sync *sync) {
    bool is_settled = true;
    if (sync->sharing.last_ticket == 0) sync->sharing.last_ticket = twi_ticket_take(&sync->tickets);
    if (twi_ticket_state(&sync->tickets, sync->sharing.last_ticket) == TWI_TICKET_OPEN) return false;
    sync->collecting.hold_ms = INT64_MAX;
    for (uint32_t i = 0; i < sync->store_count; i++) {
        const struct twi_ledger *ledger = &sync->stores[i]->ledger;
        is_settled = is_settled && ledger->acked == ledger->last && sync->stores[i]->awaited == 0;
    }
    return is_settled;
}

static void close_connections(struct twi_sync *sync) {
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        struct twi_target *target = &sync->connections[i]->target;
        target->where->transport->close(target->transport_ctx);
    }
}

static void driver_hand_over(struct twi_sync *sync) {
    end_calls(sync);
    close_connections(sync);
    sync_free(sync);
}

static void driver_destroy(struct twi_sync *sync) {
    end_calls(sync);
    for (uint32_t i = 0; i < sync->connection_count; i++)
        twi_connect_unanswered(sync, sync->connections[i], twi_port_mono_ms(sync->engine));
    for (uint32_t i = 0; i < sync->store_count; i++)
        for (struct twi_batch *batch = sync->stores[i]->ledger.head; batch; batch = batch->next)
            twi_settle_give_up(sync, batch, batch->copies_open ? TW_LOST_UNCERTAIN : TW_LOST_CLOSED);
    close_connections(sync);
    sync_free(sync);
}

static uint64_t driver_ask(struct twi_sync *sync, const struct twi_request *request, enum twi_request_outcome *why) {
    *why = TWI_REQUEST_UNSENT;
    return sync->dispatcher ? twi_dispatcher_ask(sync->dispatcher, request, why) : 0;
}

static bool driver_ask_forget(struct twi_sync *sync, uint64_t number) {
    return sync->dispatcher && twi_dispatcher_forget(sync->dispatcher, number);
}

static void driver_ask_end(struct twi_sync *sync, uint64_t number, bool undo) {
    twi_check(sync->dispatcher != NULL);
    twi_dispatcher_end(sync->dispatcher, number, undo);
}

static void driver_ask_step(struct twi_sync *sync) {
    if (sync->dispatcher) twi_dispatcher_step(sync->dispatcher);
}

static int driver_ask_fd(const struct twi_sync *sync) {
    return sync->dispatcher ? twi_dispatcher_fd(sync->dispatcher) : -1;
}

static int64_t driver_ask_wake_ms(const struct twi_sync *sync) {
    return sync->dispatcher ? twi_dispatcher_wake_ms(sync->dispatcher) : INT64_MAX;
}

static void driver_ask_stop(struct twi_sync *sync) {
    if (sync->dispatcher) twi_dispatcher_stop(sync->dispatcher);
}

static uint32_t driver_ask_owed(const struct twi_sync *sync) {
    return sync->dispatcher ? twi_dispatcher_owed(sync->dispatcher) : 0;
}

/* What the parent's thread was changing at the fork is left as it is. In the child this costs only some memory. */
static void driver_abandon(struct twi_sync *sync, bool is_torn) {
    if (sync->where.tls) twi_tls_forked();
    if (is_torn) {
        twi_dispatcher_abandon(sync->dispatcher);
        return;
    }
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        struct twi_target *target = &sync->connections[i]->target;
        if (target->owns_transport) target->where->transport->abandon(target->transport_ctx);
        target->owns_transport = false;
        twi_resolver_abandon(target->resolver);
        target->resolver = NULL;
    }
    twi_dispatcher_abandon(sync->dispatcher);
    sync->dispatcher = NULL;
    sync_free(sync);
}

const struct twi_driver *twi_driver_find(void) {
    static const struct twi_driver driver = {
        .create = driver_create,
        .turn = twi_sync_turn,
        .wake_ms = driver_wake_ms,
        .shorts = driver_shorts,
        .ticket_take = driver_ticket_take,
        .ticket_state = driver_ticket_state,
        .stats = driver_stats,
        .own = driver_own,
        .audit = twi_audit_run,
        .search = twi_search_run,
        .ask = driver_ask,
        .ask_forget = driver_ask_forget,
        .ask_end = driver_ask_end,
        .ask_step = driver_ask_step,
        .ask_fd = driver_ask_fd,
        .ask_wake_ms = driver_ask_wake_ms,
        .ask_stop = driver_ask_stop,
        .ask_owed = driver_ask_owed,
        .leave = twi_leave,
        .estate_bytes = twi_estate_bytes,
        .inherit = driver_inherit,
        .finish = driver_finish,
        .hand_over = driver_hand_over,
        .destroy = driver_destroy,
        .abandon = driver_abandon,
    };
    return &driver;
}
