/* pipeline.c -- see pipeline.h. */
#include "sync/message/pipeline.h"

#include "engine/base/check.h"
#include "sync/message/state.h"

struct twi_pending *twi_pipeline_await(struct twi_sync *sync, enum twi_command command, struct twi_batch *batch,
                                       uint32_t replies) {
    twi_check(sync->pending_count < TWI_PENDING_MAX);
    bool alone = sync->pending_count == 0;
    struct twi_pending *pending = &sync->pending[(sync->pending_first + sync->pending_count++) % TWI_PENDING_MAX];
    *pending = (struct twi_pending){.command = command, .batch = batch, .replies = replies, .alone = alone};
    pending->out_end = sync->out_sent + (sync->out.size - sync->out_at);
    return pending;
}

void twi_pipeline_batch(struct twi_sync *sync, struct twi_batch *batch, enum twi_command command, int64_t now_ms) {
    bool opens = command == TWI_OPEN;
    struct twi_envelope envelope = {
        .eval = sync->use_eval,
        .ledger_name = opens ? sync->candidate.name : sync->ledger.name,
        .ledger_size = opens ? sync->candidate.name_size : sync->ledger.name_size,
        .marker_name = sync->marker_name,
        .marker_name_size = sync->marker_name_size,
        .marker = opens ? sync->candidate.marker : sync->ledger.marker,
        .ledger_ttl_ms = TWI_LEDGER_TTL_MS,
    };
    if (sync->out.size == 0) sync->out_moved_ms = now_ms;
    twi_batch_encode(batch, &envelope, &sync->out);
    if (sync->out.failed) { /* half a command stands there: nothing after it would be understood */
        twi_sync_fail(sync, false, "no memory");
        return;
    }
    sync->use_eval = false;
    if (batch->items) batch->strayed = batch->copies_open != 0; /* later ones are replays */
    batch->copies_open++;
    batch->sent_ms = now_ms;
    (void)twi_pipeline_await(sync, command, batch, 1);
    if (command == TWI_BATCH) twi_port_count(sync->engine, batches_sent, 1);
}
