/* replicas.c -- wait_replicas: what Redis acknowledged counts as safe only when so many replicas have it, too.
 *
 *   batches ─▶ WAIT n ms ─▶ "m replicas"     m >= n: all that this connection had written before it is on n replicas
 *
 * WAIT blocks this connection at the server, for half of redis_timeout_ms at most, and nothing here; once a replica
 * lags, most questions are short, so that it does not hold up what could be sent. It speaks of what the connection has
 * written: a DUP writes nothing, so a connection that has only had those says nothing of them, and gets an empty batch
 * to write.
 * Always true: `replicated` moves only upon such an answer, to a batch that was answered OK on this connection before
 * it; a batch beyond it stays in the replay window, and no flush is done that needs it. While the window is full of
 * such batches nothing more is collected: deltas wait in their counters. */
#include "sync/message/replicas.h"

#include "engine/port/services.h"
#include "sync/message/pipeline.h"
#include "sync/message/refusal.h"
#include "sync/message/state.h"

#define SHORT_MS 20           /* how long a question waits while replicas lag ... */
#define SHORT_RUN 8u          /* ... but for one of eight: they may be further away than that */
#define AGAIN_MS 100          /* between two questions, where the replicas lag */
#define AGAIN_REFUSED_MS 2000 /* where WAIT is refused */

bool twi_replicas_hold(const struct twi_sync *sync) {
    const struct twi_ledger *ledger = &sync->store.ledger;
    return sync->connection.replicas.wanted != 0 && ledger->replicated < ledger->confirmed &&
           ledger->window_bytes > ledger->window_bytes_max;
}

static uint64_t patience_ms(struct twi_connection *connection) {
    uint64_t long_ms = connection->timeout_ms / 2 + 1;
    bool is_short = connection->replicas.is_short && ++connection->replicas.short_run % SHORT_RUN != 0;
    return is_short && long_ms > SHORT_MS ? SHORT_MS : long_ms;
}

void twi_replicas_put(struct twi_connection *connection) {
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

/* Something is acknowledged and not known to be on the replicas, and no answer about it is under way. */
void twi_replicas_step(struct twi_sync *sync, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_connection *connection = &sync->connection;
    const struct twi_ledger *ledger = &store->ledger;
    if (connection->replicas.wanted == 0 || ledger->replicated >= ledger->confirmed) return;
    if (connection->pipeline.count != connection->messages.count + connection->messages.waits) return;
    if (now_ms < connection->replicas.ask_at_ms || connection->breaker.state != TWI_BREAKER_CLOSED) return;
    if (store->wrote_number != 0) {
        twi_pipeline_begin(&connection->pipeline, now_ms);
        twi_replicas_request(connection, now_ms);
    } else if (!twi_ledger_unconfirmed(ledger)) {
        (void)twi_ledger_append_empty(&store->ledger, twi_sync_random(sync->engine), now_ms);
        connection->replicas.ask_at_ms = now_ms + AGAIN_MS;
    }
}

static void note_short(struct twi_connection *connection, int64_t replicas) {
    twi_port_count(connection->engine, replicas_short, 1);
    if (connection->replicas.is_short) return;
    connection->replicas.is_short = true;
    twi_port_log(connection->engine, TW_LOG_WARNING, TW_EVENT_REPLICAS,
                 "%lld replicas have what Redis at %s acknowledged; wait_replicas asks for %u", (long long)replicas,
                 connection->endpoint.name, connection->replicas.wanted);
}

void twi_replicas_reply(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *answer,
                        size_t count, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_connection *connection = &sync->connection;
    struct twi_ledger *ledger = &store->ledger;
    (void)pending, (void)count;
    connection->replicas.waits--;
    connection->replicas.ask_at_ms = now_ms + AGAIN_MS;
    if (answer->type == TWI_NODE_ERROR) {
        connection->replicas.ask_at_ms = now_ms + AGAIN_REFUSED_MS;
        twi_refusal_report(connection, "WAIT, which wait_replicas needs", answer);
        return;
    }
    int64_t replicas = 0;
    if (!twi_node_i64(answer, &replicas) || replicas < (int64_t)connection->replicas.wanted) {
        note_short(connection, replicas);
        return;
    }
    connection->replicas.is_short = false;
    if (store->wrote_number <= ledger->replicated) return;
    ledger->replicated = store->wrote_number;
    twi_ledger_trim(ledger, now_ms);
    twi_ticket_acknowledged(&sync->tickets, twi_ledger_safe(ledger));
}
