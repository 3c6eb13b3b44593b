/* flush_serve.c -- see flush_serve.h. */
#include "engine/turn/flush_serve.h"

uint64_t twi_flush_take(tw_engine *engine) {
    const struct twi_remote *remote = &engine->here->remote;
    if (!engine->life.is_shared) return remote->driver->ticket_take(remote->sync);
    return twi_add_acqrel(&engine->flushes.wanted, 1) + 1; /* FL1 releases the caller's earlier adds */
}

enum twi_ticket twi_flush_state(const tw_engine *engine, uint64_t number) {
    const struct twi_remote *remote = &engine->here->remote;
    if (!engine->life.is_shared) return remote->driver->ticket_state(remote->sync, number);
    if (twi_load_acquire(&engine->flushes.served) < number) return TWI_TICKET_OPEN; /* FL4, pairs with FL3 */
    /* A later round that was refused counts, too, because TW_OK would promise too much. */
    return twi_load_relaxed(&engine->flushes.refused) >= number ? TWI_TICKET_REFUSED : TWI_TICKET_DONE;
}

static void end_round(tw_engine *engine) {
    struct twi_flush_round *round = &engine->here->flushes;
    const struct twi_remote *remote = &engine->here->remote;
    enum twi_ticket state = remote->driver->ticket_state(remote->sync, round->ticket);
    if (state == TWI_TICKET_OPEN) return;
    if (state == TWI_TICKET_REFUSED) twi_store_relaxed(&engine->flushes.refused, round->until);
    twi_store_release(&engine->flushes.served, round->until); /* FL3 */
    round->until = 0;
}

void twi_flush_serve(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    struct twi_flush_round *round = &engine->here->flushes;
    const struct twi_remote *remote = &engine->here->remote;
    if (!engine->life.is_shared || remote->sync == NULL) return;
    if (round->made != remote->made) *round = (struct twi_flush_round){.made = remote->made};
    if (round->until != 0) end_round(engine);
    uint64_t wanted = twi_load_acquire(&engine->flushes.wanted); /* FL2, pairs with FL1 */
    if (round->until != 0 || wanted == twi_load_relaxed(&engine->flushes.served)) return;
    round->until = wanted;
    round->ticket = remote->driver->ticket_take(remote->sync);
}
