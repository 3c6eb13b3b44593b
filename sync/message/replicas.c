/* replicas.c -- for wait_replicas. Acknowledged data counts as safe only when enough replicas have it, too.
 *
 *   batches ─▶ WAIT n ms ─▶ "m replicas"     m >= n means that all earlier writes of this connection are on n replicas
 *
 * WAIT blocks this connection at the server, for about half of redis_timeout_ms at most. It does not block this
 * process. While a replica lags, most WAITs are short, so that they do not delay batches. The reply is about the writes
 * of this connection. A batch with the reply DUP has not written. If a connection has only had such replies, it sends
 * an empty batch first.
 * Always true: only such a reply moves `replicated`, to a batch that was answered OK on this connection before it. A
 * batch above `replicated` stays in the replay buffer, and a flush that needs it is not done. While the buffer is full
 * of such batches, no counter is collected, and deltas wait in their counters. */
#include "sync/message/replicas.h"

#include "engine/base/check.h"
#include "engine/port/services.h"
#include "sync/message/pipeline.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#define SHORT_MS 20           /* how long a WAIT lasts while replicas lag ... */
#define SHORT_RUN 8u          /* ... except one of eight, because replicas may be further away than that */
#define AGAIN_MS 100          /* from a WAIT or its reply to the next WAIT, if no batch is sent */
#define AGAIN_REFUSED_MS 2000 /* the same after a refused WAIT */
#define SAY_EVERY_MS 10000    /* replicas may lag for a moment again and again */

bool twi_replicas_hold(const struct twi_sync *sync) {
    size_t most = sync->stores[0]->ledger.replay_bytes_max;
    if (sync->connections[0]->replicas.wanted == 0 || sync->replay_bytes <= most) return false;
    for (uint32_t i = 0; i < sync->active.count; i++)
        if (sync->active.stores[i]->ledger.replicated < sync->active.stores[i]->ledger.confirmed) return true;
    return false;
}

static uint64_t patience_ms(struct twi_connection *connection) {
    twi_check(connection->timeout_ms != 0);
    uint64_t long_ms = connection->timeout_ms / 2 + 1;
    bool is_short = connection->replicas.is_short && ++connection->replicas.short_run % SHORT_RUN != 0;
    return is_short && long_ms > SHORT_MS ? SHORT_MS : long_ms;
}

void twi_replicas_put(struct twi_connection *connection) {
    twi_check(connection->replicas.wanted != 0);
    twi_wire_begin(&connection->pipeline.out, 3);
    twi_wire_put_text(&connection->pipeline.out, "WAIT");
    twi_wire_put_u64(&connection->pipeline.out, connection->replicas.wanted);
    twi_wire_put_u64(&connection->pipeline.out, patience_ms(connection));
}

void twi_replicas_request(struct twi_connection *connection, int64_t now_ms) {
    twi_replicas_put(connection);
    connection->replicas.waits++;
    connection->replicas.ask_at_ms = now_ms + AGAIN_MS;
    (void)twi_pipeline_await(&connection->pipeline, TWI_WAIT, NULL, 1);
}

/* Acts if replicas may lack data that a store acknowledged, and no reply about it is under way. */
void twi_replicas_step(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    bool has_written = false;
    if (connection->replicas.wanted == 0) return;
    if (connection->pipeline.count != connection->messages.count + connection->messages.waits) return;
    if (now_ms < connection->replicas.ask_at_ms || connection->breaker.state != TWI_BREAKER_CLOSED) return;
    for (uint32_t i = 0; i < sync->active.count; i++) {
        struct twi_store *store = sync->active.stores[i];
        if (store->connection != connection || store->ledger.replicated >= store->ledger.confirmed) continue;
        if (store->wrote_number != 0) {
            has_written = true;
        } else if (!twi_ledger_unconfirmed(&store->ledger)) {
            (void)twi_ledger_append_empty(&store->ledger, twi_sync_random(sync->engine), now_ms);
            connection->replicas.ask_at_ms = now_ms + AGAIN_MS;
        }
    }
    if (!has_written) return;
    twi_pipeline_begin(&connection->pipeline, now_ms);
    twi_replicas_request(connection, now_ms);
}

static void note_short(struct twi_connection *connection, int64_t replicas) {
    twi_check(connection->replicas.wanted != 0);
    twi_port_count(connection->engine, replicas_short, 1);
    connection->replicas.is_short = true;
    int64_t now_ms = twi_port_mono_ms(connection->engine);
    bool is_due = connection->replicas.said_ms == 0 || now_ms - connection->replicas.said_ms >= SAY_EVERY_MS;
    if (connection->replicas.is_said || !is_due) return;
    connection->replicas.is_said = true;
    connection->replicas.said_ms = now_ms != 0 ? now_ms : 1;
    twi_port_log(connection->engine, TW_LOG_WARNING, TW_EVENT_REPLICAS,
                 "%lld replicas have what Redis at %s acknowledged; wait_replicas asks for %u", (long long)replicas,
                 connection->target.name, connection->replicas.wanted);
}

/* Called if the replicas have the writes of this connection to that store. */
static void take_replicated(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(store->connection != NULL);
    struct twi_ledger *ledger = &store->ledger;
    if (store->wrote_number <= ledger->replicated) return;
    ledger->replicated = store->wrote_number;
    twi_check(ledger->replicated <= twi_ledger_known(ledger));
    twi_sync_trim(sync, store, now_ms);
    twi_ticket_acknowledged(&sync->tickets, &store->flush, twi_ledger_safe(ledger));
}

void twi_replicas_reply(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                        const struct twi_node *answer, size_t count, int64_t now_ms) {
    twi_check(connection->replicas.waits != 0 && pending->command == TWI_WAIT);
    (void)pending, (void)count;
    connection->replicas.waits--;
    connection->replicas.ask_at_ms = now_ms + AGAIN_MS;
    if (answer->type == TWI_NODE_ERROR) {
        connection->replicas.ask_at_ms = now_ms + AGAIN_REFUSED_MS;
        twi_refusal_report(connection, "WAIT, which wait_replicas needs", answer);
        return;
    }
    int64_t replicas = 0;
    if (!twi_node_count(answer, &replicas) || replicas < (int64_t)connection->replicas.wanted) {
        note_short(connection, replicas);
        return;
    }
    if (connection->replicas.is_said)
        twi_port_log(connection->engine, TW_LOG_INFO, TW_EVENT_REPLICAS,
                     "%lld replicas have what Redis at %s acknowledged, as wait_replicas asks", (long long)replicas,
                     connection->target.name);
    connection->replicas.is_short = connection->replicas.is_said = false;
    for (uint32_t i = 0; i < sync->active.count; i++)
        if (sync->active.stores[i]->connection == connection) take_replicated(sync, sync->active.stores[i], now_ms);
}
