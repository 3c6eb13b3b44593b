/* driver.c -- the table through which the engine drives sync (engine/port/port.h), and the life of struct twi_sync.
 * Always true: create() opens no socket (a host-driven engine's names are looked up here, once); destroy() settles
 * every item that is still held; abandon(), in a forked child, touches nothing that the parent could notice. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/atomic.h"
#include "sync/ask/pool.h"
#include "sync/audit.h"
#include "sync/turn/connect.h"
#include "sync/turn/settle.h"
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

static void sync_free(struct twi_sync *sync) {
    twi_pool_destroy(sync->pool);
    twi_ledger_free(&sync->ledger);
    twi_batch_free(sync->opening);
    twi_reader_free(sync->reader);
    twi_bytes_wipe(&sync->out);
    twi_bytes_free(&sync->out);
    twi_bytes_free(&sync->merge_plain.repairs);
    twi_presence_free(sync);
    twi_message_free(&sync->messages);
    twi_poison_free(&sync->poison);
    twi_url_wipe(&sync->url);
    free(sync->staging);
    free(sync);
}

static void set_up(struct twi_sync *sync, tw_engine *engine, const tw_options *options) {
    sync->engine = engine;
    sync->password = options->redis_password;
    sync->password_ctx = options->redis_password_ctx;
    sync->interval_ms = options->sync_interval_ms ? options->sync_interval_ms : INTERVAL_DEFAULT_MS;
    sync->timeout_ms = options->redis_timeout_ms ? options->redis_timeout_ms : TIMEOUT_DEFAULT_MS;
    uint64_t replay_bytes = options->replay_bytes_max ? options->replay_bytes_max : REPLAY_BYTES_DEFAULT;
    sync->ledger.window_bytes_max = replay_bytes < SIZE_MAX ? (size_t)replay_bytes : SIZE_MAX;
    sync->merge = options->merge;
    sync->ledger.window_ms = options->replay_ms ? options->replay_ms : REPLAY_DEFAULT_MS;
    sync->pace.keys_per_s = options->flush_keys_per_s ? options->flush_keys_per_s : TWI_PACE_KEYS_PER_S;
    sync->breaker.retry_max_ms = options->retry_max_ms;
    sync->own_thread = options->threads == TW_OWN_THREAD;
    sync->depth.by_latest = !sync->own_thread;
    sync->wait_replicas = options->wait_replicas;
    sync->ledger.awaits_replicas = options->wait_replicas != 0;
    if (sync->merge != TW_MERGE_SCRIPT) { /* without a ledger nothing is ever replayed */
        sync->ledger.window_bytes_max = 0;
        sync->is_open = true;
        twi_port_live_engines(engine, 0); /* nor is there a registry */
    }
    sync->fd = -1;
    sync->collect_at_ms = sync->collect_hold_ms = INT64_MIN;
    const char *prefix = options->redis_prefix ? options->redis_prefix : "";
    sync->marker_name_size = (size_t)snprintf(sync->marker_name, sizeof sync->marker_name, "%stw:marker", prefix);
    twi_url_name(&sync->url, sync->name, sizeof sync->name);
}

static tw_status driver_create(tw_engine *engine, const tw_options *options, const struct twi_transport *transport,
                               void *transport_ctx, struct twi_sync **out) {
    tw_status status = check_options(options);
    if (status != TW_OK) return status;
    struct twi_sync *sync = calloc(1, sizeof *sync);
    if (!sync) return twi_refuse(TW_ERR_MEMORY, NULL);
    char why[TWI_URL_ERROR_MAX];
    if (!twi_url_parse(options->redis_url, &sync->url, why, sizeof why)) {
        sync_free(sync);
        return refuse(options, why);
    }
    set_up(sync, engine, options);
    sync->staging = malloc(TWI_BATCH_ITEMS_MAX * sizeof *sync->staging);
    sync->transport = transport ? transport : &twi_socket_transport;
    if (!transport) sync->link = twi_socket_create(&sync->url, sync->own_thread);
    sync->transport_ctx = transport ? transport_ctx : sync->link;
    bool may_wait = !transport && sync->own_thread;
    if (may_wait) sync->pool = twi_pool_create(engine, &sync->url, options);
    if (!sync->staging || (!transport && !sync->link) || (may_wait && !sync->pool)) {
        twi_socket_destroy(sync->link);
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
    if (wants_write) *wants_write = twi_load_relaxed(&((struct twi_sync *)sync)->wants_write);
    return twi_load_relaxed(&((struct twi_sync *)sync)->fd);
}

static int64_t driver_wake_ms(const struct twi_sync *sync) {
    return twi_load_relaxed(&((struct twi_sync *)sync)->wake_ms);
}

static uint64_t driver_ticket_take(struct twi_sync *sync) {
    return twi_ticket_take(&sync->tickets);
}

static enum twi_ticket driver_ticket_state(struct twi_sync *sync, uint64_t ticket) {
    return twi_ticket_state(&sync->tickets, ticket);
}

static void driver_stats(const struct twi_sync *sync, tw_stats *stats) {
    int64_t acked_ms = twi_load_relaxed(&((struct twi_sync *)sync)->acked_ms);
    int64_t since_ms = twi_load_relaxed(&((struct twi_sync *)sync)->outage_since_ms);
    stats->breaker_state = twi_load_relaxed(&((struct twi_sync *)sync)->breaker_state);
    stats->outage_ms = since_ms ? twi_port_mono_ms(sync->engine) - since_ms : 0;
    stats->sync_age_ms = acked_ms ? twi_port_mono_ms(sync->engine) - acked_ms : -1;
}

/* Of what Redis has surely applied: batches under way may have been, too. */
static void driver_own(const struct twi_sync *sync, struct twi_audit_own *own) {
    const struct twi_ledger *ledger = &sync->ledger;
    *own = (struct twi_audit_own){.number = ledger->confirmed, .plus = ledger->plus_sum, .minus = ledger->minus_sum};
    if (sync->merge != TW_MERGE_SCRIPT || !sync->is_open || twi_ledger_is_replaying(ledger)) return;
    memcpy(own->ledger, ledger->name, ledger->name_size + 1);
    const struct twi_batch *next = twi_ledger_unconfirmed(ledger);
    if (next) own->plus = next->plus_sum - next->plus, own->minus = next->minus_sum - next->minus;
}

static void driver_destroy(struct twi_sync *sync) {
    twi_connect_unanswered(sync, twi_port_mono_ms(sync->engine));
    for (struct twi_batch *batch = sync->ledger.head; batch; batch = batch->next)
        twi_settle_give_up(sync, batch, batch->copies_open ? TW_LOST_UNCERTAIN : TW_LOST_CLOSED);
    sync->transport->close(sync->transport_ctx);
    twi_socket_destroy(sync->link);
    sync_free(sync);
}

static enum twi_request_outcome driver_request(struct twi_sync *sync, struct twi_request *ask) {
    return sync->pool ? twi_pool_request(sync->pool, ask) : TWI_REQUEST_UNSENT;
}

static void driver_request_stop(struct twi_sync *sync) {
    if (sync->pool) twi_pool_stop(sync->pool);
}

static void driver_abandon(struct twi_sync *sync) {
    twi_socket_abandon(sync->link);
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
