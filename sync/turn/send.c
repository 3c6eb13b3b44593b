/* send.c -- see send.h. */
#include "sync/turn/send.h"

#include "engine/port/services.h"
#include "sync/message/state.h"

static struct twi_envelope envelope_of(const struct twi_sync *sync, bool opens) {
    const struct twi_store *store = &sync->store;
    return (struct twi_envelope){
        .eval = sync->connection.use_eval,
        .ledger_name = opens ? store->candidate.name : store->ledger.name,
        .ledger_size = opens ? store->candidate.name_size : store->ledger.name_size,
        .marker_name = store->marker_name,
        .marker_name_size = store->marker_name_size,
        .marker = opens ? store->candidate.marker : store->ledger.marker,
        .ledger_ttl_ms = TWI_LEDGER_TTL_MS,
    };
}

void twi_send_batch(struct twi_sync *sync, struct twi_batch *batch, enum twi_command command, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    struct twi_envelope envelope = envelope_of(sync, command == TWI_OPEN);
    twi_pipeline_begin(&connection->pipeline, now_ms);
    twi_batch_encode(batch, &envelope, &connection->pipeline.out);
    if (connection->pipeline.out.failed) { /* half a command stands there: nothing after it would be understood */
        twi_connection_fail(connection, false, "no memory");
        return;
    }
    connection->use_eval = false;
    if (batch->items) batch->strayed = batch->copies_open != 0; /* later ones are replays */
    batch->copies_open++;
    batch->sent_ms = now_ms;
    (void)twi_pipeline_await(&connection->pipeline, command, batch, 1);
    if (command == TWI_BATCH) twi_port_count(sync->engine, batches_sent, 1);
}
