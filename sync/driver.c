/* driver.c -- the table through which the engine drives sync (engine/port/driver.h), and the life of struct twi_sync.
 * Always true: create() opens no socket (a host-driven engine's names are looked up here, once); destroy() settles
 * every item that is still held; abandon(), in a forked child, touches nothing that the parent could notice. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/atomic.h"
#include "engine/port/driver.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/ask/pool.h"
#include "sync/audit.h"
#include "sync/turn/connect.h"
#include "sync/turn/merge_plain.h"
#include "sync/turn/settle.h"
#include "sync/message/message.h"
#include "sync/message/presence.h"
#include "sync/message/state.h"
#include "sync/turn/turn.h"

#define INTERVAL_DEFAULT_MS 100
#define INTERVAL_MAX_MS 60000
#define TIMEOUT_DEFAULT_MS 100
#define TIMEOUT_MAX_MS 600000
#define RETRY_MAX_MAX_MS 5000                     /* leases.lua counts on it: RESTARTED_MS */
#define REPLAY_BYTES_DEFAULT (UINT64_C(64) << 20) /* where the engine has not set its own: simulators */
#define REPLAY_DEFAULT_MS 30000
#define PREFIX_MAX (TWI_LEDGER_NAME_MAX - 64) /* "tw:ledger:" and 32 digits follow */

static tw_status refuse(const tw_options *options, const char *text) {
    if (options->error_text && options->error_size) snprintf(options->error_text, options->error_size, "%s", text);
    return twi_refuse_with(TW_ERR_OPTIONS, "%s", text);
}

static tw_status check_options(const tw_options *options) {
    if (options->sync_interval_ms > INTERVAL_MAX_MS)
        return refuse(options, "sync_interval_ms: must be within 1..60000");
    if (options->redis_timeout_ms > TIMEOUT_MAX_MS)
        return refuse(options, "redis_timeout_ms: must be within 1..600000");
    if (options->retry_max_ms > RETRY_MAX_MAX_MS) return refuse(options, "retry_max_ms: must be within 10..5000");
    if (options->redis_prefix && strlen(options->redis_prefix) > PREFIX_MAX)
        return refuse(options, "redis_prefix: is too long");
    return TW_OK;
}

static void free_connection(struct twi_connection *connection) {
    twi_reader_free(connection->pipeline.reader);
    twi_bytes_wipe(&connection->pipeline.out);
    twi_bytes_free(&connection->pipeline.out);
    twi_message_free(&connection->messages);
    twi_url_wipe(&connection->endpoint.url);
}

static void free_store(struct twi_store *store) {
    twi_ledger_free(&store->ledger);
    twi_batch_free(store->opening);
    twi_merge_plain_free(store->merge_plain);
    twi_presence_free(&store->presence);
    twi_poison_free(&store->poison);
}

static void sync_free(struct twi_sync *sync) {
    twi_pool_destroy(sync->pool);
    free_store(&sync->store);
    free_connection(&sync->connection);
    free(sync->collecting.items);
    free(sync);
}

static void set_up_connection(struct twi_connection *connection, tw_engine *engine, const tw_options *options) {
    connection->engine = engine;
    connection->endpoint.password = options->redis_password;
    connection->endpoint.password_ctx = options->redis_password_ctx;
    twi_url_name(&connection->endpoint.url, connection->endpoint.name, sizeof connection->endpoint.name);
    connection->timeout_ms = options->redis_timeout_ms ? options->redis_timeout_ms : TIMEOUT_DEFAULT_MS;
    connection->breaker.retry_max_ms = options->retry_max_ms;
    connection->depth.by_latest = options->threads != TW_OWN_THREAD;
    connection->replicas.wanted = options->wait_replicas;
}

static void set_up_store(struct twi_store *store, tw_engine *engine, const tw_options *options) {
    const char *prefix = options->redis_prefix ? options->redis_prefix : "";
    uint64_t replay_bytes = options->replay_bytes_max ? options->replay_bytes_max : REPLAY_BYTES_DEFAULT;
    store->engine = engine;
    store->merge = options->merge;
    store->marker_name_size = (size_t)snprintf(store->marker_name, sizeof store->marker_name, "%stw:marker", prefix);
    store->ledger.window_bytes_max = replay_bytes < SIZE_MAX ? (size_t)replay_bytes : SIZE_MAX;
    store->ledger.window_ms = options->replay_ms ? options->replay_ms : REPLAY_DEFAULT_MS;
    store->ledger.awaits_replicas = options->wait_replicas != 0;
    if (store->merge == TW_MERGE_SCRIPT) return;
    store->ledger.window_bytes_max = 0; /* without a ledger nothing is ever replayed */
    store->belief.is_open = true;
    twi_port_live_engines(engine, 0); /* nor is there a registry */
}

static void set_up(struct twi_sync *sync, tw_engine *engine, const tw_options *options) {
    sync->engine = engine;
    sync->interval_ms = options->sync_interval_ms ? options->sync_interval_ms : INTERVAL_DEFAULT_MS;
    sync->pace.keys_per_s = options->flush_keys_per_s ? options->flush_keys_per_s : TWI_PACE_KEYS_PER_S;
    sync->own_thread = options->threads == TW_OWN_THREAD;
    sync->published.fd = -1;
    sync->collecting.at_ms = sync->collecting.hold_ms = INT64_MIN;
    set_up_connection(&sync->connection, engine, options);
    set_up_store(&sync->store, engine, options);
}

/* False: no memory. */
static bool allocate(struct twi_sync *sync, const tw_options *options, const struct twi_transport *transport,
                     void *transport_ctx) {
    struct twi_store *store = &sync->store;
    struct twi_endpoint *endpoint = &sync->connection.endpoint;
    sync->collecting.items = malloc(TWI_BATCH_ITEMS_MAX * sizeof *sync->collecting.items);
    if (!sync->collecting.items) return false;
    if (store->merge != TW_MERGE_SCRIPT && !(store->merge_plain = twi_merge_plain_create())) return false;
    endpoint->transport = transport ? transport : &twi_socket_transport;
    endpoint->transport_ctx = transport_ctx;
    if (transport) return true;
    endpoint->transport_ctx = endpoint->socket = twi_socket_create(&endpoint->url, sync->own_thread);
    if (!endpoint->socket) return false;
    if (sync->own_thread) sync->pool = twi_pool_create(sync->engine, &endpoint->url, options);
    return !sync->own_thread || sync->pool != NULL;
}

static tw_status driver_create(tw_engine *engine, const tw_options *options, const struct twi_transport *transport,
                               void *transport_ctx, struct twi_sync **out) {
    tw_status status = check_options(options);
    if (status != TW_OK) return status;
    struct twi_sync *sync = calloc(1, sizeof *sync);
    if (!sync) return twi_refuse(TW_ERR_MEMORY, NULL);
    char why[TWI_URL_ERROR_MAX];
    if (!twi_url_parse(options->redis_url, &sync->connection.endpoint.url, why, sizeof why)) {
        sync_free(sync);
        return refuse(options, why);
    }
    set_up(sync, engine, options);
    if (!allocate(sync, options, transport, transport_ctx)) {
        twi_socket_destroy(sync->connection.endpoint.socket);
        sync_free(sync);
        return twi_refuse(TW_ERR_MEMORY, NULL);
    }
    *out = sync;
    return TW_OK;
}

static void driver_turn(struct twi_sync *sync) {
    twi_sync_turn(sync);
}

static int driver_fd(const struct twi_sync *sync, bool *wants_write) {
    if (wants_write) *wants_write = twi_load_relaxed(&((struct twi_sync *)sync)->published.wants_write);
    return twi_load_relaxed(&((struct twi_sync *)sync)->published.fd);
}

static int64_t driver_wake_ms(const struct twi_sync *sync) {
    return twi_load_relaxed(&((struct twi_sync *)sync)->published.wake_ms);
}

static uint64_t driver_ticket_take(struct twi_sync *sync) {
    return twi_ticket_take(&sync->tickets);
}

static enum twi_ticket driver_ticket_state(struct twi_sync *sync, uint64_t ticket) {
    return twi_ticket_state(&sync->tickets, ticket);
}

static void driver_stats(const struct twi_sync *sync, tw_stats *stats) {
    int64_t acked_ms = twi_load_relaxed(&((struct twi_sync *)sync)->published.acked_ms);
    int64_t since_ms = twi_load_relaxed(&((struct twi_sync *)sync)->published.outage_since_ms);
    stats->breaker_state = twi_load_relaxed(&((struct twi_sync *)sync)->published.breaker_state);
    stats->outage_ms = since_ms ? twi_port_mono_ms(sync->engine) - since_ms : 0;
    stats->sync_age_ms = acked_ms ? twi_port_mono_ms(sync->engine) - acked_ms : -1;
}

/* Of what Redis has surely applied: batches under way may have been, too. */
static void driver_own(const struct twi_sync *sync, struct twi_audit_own *own) {
    const struct twi_store *store = &sync->store;
    const struct twi_ledger *ledger = &store->ledger;
    *own = (struct twi_audit_own){.number = ledger->confirmed, .plus = ledger->plus_sum, .minus = ledger->minus_sum};
    if (store->merge != TW_MERGE_SCRIPT || !store->belief.is_open || twi_ledger_is_replaying(ledger)) return;
    memcpy(own->ledger, ledger->name, ledger->name_size + 1);
    const struct twi_batch *next = twi_ledger_unconfirmed(ledger);
    if (next) own->plus = next->plus_sum - next->plus, own->minus = next->minus_sum - next->minus;
}

static void driver_destroy(struct twi_sync *sync) {
    struct twi_connection *connection = &sync->connection;
    twi_connect_unanswered(sync, twi_port_mono_ms(sync->engine));
    for (struct twi_batch *batch = sync->store.ledger.head; batch; batch = batch->next)
        twi_settle_give_up(sync, batch, batch->copies_open ? TW_LOST_UNCERTAIN : TW_LOST_CLOSED);
    connection->endpoint.transport->close(connection->endpoint.transport_ctx);
    twi_socket_destroy(connection->endpoint.socket);
    sync_free(sync);
}

static enum twi_request_outcome driver_request(struct twi_sync *sync, struct twi_request *ask) {
    return sync->pool ? twi_pool_request(sync->pool, ask) : TWI_REQUEST_UNSENT;
}

static void driver_request_stop(struct twi_sync *sync) {
    if (sync->pool) twi_pool_stop(sync->pool);
}

static void driver_abandon(struct twi_sync *sync) {
    twi_socket_abandon(sync->connection.endpoint.socket);
    twi_pool_abandon(sync->pool);
    sync->pool = NULL;
    sync_free(sync);
}

const struct twi_driver *twi_driver_find(void) {
    static const struct twi_driver driver = {
        .create = driver_create,
        .turn = driver_turn,
        .fd = driver_fd,
        .wake_ms = driver_wake_ms,
        .ticket_take = driver_ticket_take,
        .ticket_state = driver_ticket_state,
        .stats = driver_stats,
        .own = driver_own,
        .audit = twi_audit_run,
        .request = driver_request,
        .request_stop = driver_request_stop,
        .destroy = driver_destroy,
        .abandon = driver_abandon,
    };
    return &driver;
}
