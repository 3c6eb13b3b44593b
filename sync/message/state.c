/* state.c -- see state.h. */
#include "sync/message/state.h"

#include "engine/base/check.h"
#include "engine/port/services.h"

/* The ledger whose window begins with the oldest batch that may be dropped. While a rewind awaits replies, these may
 * belong to any batch of the replay buffer. Returns NULL if there is none. */
static struct twi_ledger *oldest(const struct twi_sync *sync) {
    struct twi_ledger *first = NULL;
    for (uint32_t i = 0; i < sync->store_count; i++) {
        struct twi_ledger *ledger = &sync->stores[i]->ledger;
        if (sync->stores[i]->rewind || !twi_ledger_may_drop(ledger)) continue;
        if (!first || ledger->head->frozen_ms < first->head->frozen_ms) first = ledger;
    }
    return first;
}

void twi_sync_trim(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(sync->store_count != 0);
    struct twi_ledger *ledger;
    twi_ledger_trim(&store->ledger, now_ms);
    if (sync->store_count == 1) return; /* the ledger has done it */
    while (sync->replay_bytes > store->ledger.replay_bytes_max && (ledger = oldest(sync)) != NULL)
        twi_ledger_drop_first(ledger);
}

struct twi_store *twi_sync_store_of(struct twi_sync *sync, const char *name, size_t size) {
    return sync->by_slot ? sync->by_slot->store_of(sync, twi_key_slot_of(name, size)) : sync->stores[0];
}

uint64_t twi_sync_random(tw_engine *engine) {
    uint64_t bits;
    twi_port_random(engine, &bits, sizeof bits);
    return bits;
}

void twi_sync_fill_random(void *engine, void *out, size_t size) {
    twi_check(out != NULL && size != 0);
    twi_port_random(engine, out, size);
}
