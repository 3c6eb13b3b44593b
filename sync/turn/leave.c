/* leave.c -- see leave.h. Each store gets one more empty batch, and with it a lifetime of TWI_LEDGER_LEFT_MS. */
#include "sync/turn/leave.h"

#include "engine/base/check.h"
#include "engine/port/services.h"
#include "sync/message/active.h"
#include "sync/message/state.h"

/* Returns true if the store has a record of this engine and accepts a batch. */
static bool can_be_sent(const struct twi_store *store) {
    const struct twi_connection *connection = store->connection;
    return store->merge->has_script && store->assumed.is_open && store->assumed.unknown_since_ms == 0 && connection &&
           twi_connection_takes(connection) && !store->route.is_waiting && !twi_ledger_is_replaying(&store->ledger);
}

bool twi_leave(struct twi_sync *sync) {
    twi_check(sync->store_count != 0);
    bool is_done = true;
    if (!sync->leaves && sync->by_slot) twi_active_wake_all(sync);
    sync->leaves = true;
    for (uint32_t i = 0; i < sync->store_count; i++) {
        struct twi_store *store = sync->stores[i];
        if (!can_be_sent(store)) continue;
        if (!store->assumed.has_left && twi_ledger_unconfirmed(&store->ledger) == NULL)
            store->assumed.has_left =
                twi_ledger_append_empty(&store->ledger, twi_sync_random(sync->engine), twi_port_mono_ms(sync->engine));
        is_done = is_done && twi_ledger_unconfirmed(&store->ledger) == NULL;
    }
    return is_done;
}
