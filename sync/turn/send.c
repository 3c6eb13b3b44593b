/* send.c -- see send.h. */
#include "sync/turn/send.h"

#include "engine/base/check.h"
#include "engine/base/probe.h"
#include "engine/port/services.h"
#include "sync/message/state.h"

static struct twi_envelope envelope_of(const struct twi_connection *connection, const struct twi_store *store,
                                       bool opens, bool leaves) {
    return (struct twi_envelope){
        .eval = connection->use_eval,
        .ledger_name = opens ? store->candidate.name : store->ledger.name,
        .ledger_size = opens ? store->candidate.name_size : store->ledger.name_size,
        .marker_name = store->marker_name,
        .marker_name_size = store->marker_name_size,
        .marker = opens ? store->candidate.marker : store->ledger.marker,
        .ledger_ttl_ms = leaves ? TWI_LEDGER_LEFT_MS : TWI_LEDGER_TTL_MS,
    };
}

/* The next command may be executed there, although the slot belongs to another node. */
static void put_asking(struct twi_connection *connection) {
    twi_check(connection->is_node);
    twi_wire_begin(&connection->pipeline.out, 1);
    twi_wire_put_text(&connection->pipeline.out, "ASKING");
    twi_pipeline_await(&connection->pipeline, TWI_ASKING, NULL, 1)->alone = false;
}

void twi_send_batch(struct twi_sync *sync, struct twi_store *store, struct twi_batch *batch, enum twi_command command,
                    int64_t now_ms) {
    twi_check(command == TWI_BATCH || command == TWI_OPEN);
    twi_check((store->route.asking ? store->route.asking : store->connection) != NULL);
    struct twi_connection *connection = store->route.asking ? store->route.asking : store->connection;
    struct twi_envelope envelope = envelope_of(connection, store, command == TWI_OPEN, sync->leaves);
    twi_pipeline_begin(&connection->pipeline, now_ms);
    if (store->route.asking) put_asking(connection);
    twi_batch_encode(batch, &envelope, &connection->pipeline.out);
    /* the buffer ends with half a command, so Redis would not understand a command after it */
    if (connection->pipeline.out.failed) {
        twi_connection_fail(connection, false, "no memory");
        return;
    }
    connection->use_eval = false;
    if (batch->items) batch->strayed = batch->copies_open != 0; /* without items it is a replay */
    TWI_PROBE3(batch_sent, batch->number, batch->key_count, batch->copies_open);
    batch->copies_open++;
    batch->sent_ms = now_ms;
    struct twi_pending *pending = twi_pipeline_await(&connection->pipeline, command, batch, 1);
    pending->store = store;
    pending->compiles = envelope.eval;
    pending->cost = batch->key_count + TWI_BATCH_COST;
    connection->room.keys_under_way += pending->cost;
    connection->room.bytes_under_way += twi_pending_bytes(pending);
    store->route.via = connection;
    store->awaited++;
    if (command == TWI_BATCH) twi_port_count(sync->engine, batches_sent, 1);
}
