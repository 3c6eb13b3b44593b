/* turn_check.c -- see turn_check.h. */
#include "engine/turn/turn_check.h"

#include "engine/core/agenda.h"
#include "engine/core/roster.h"
#include "engine/turn/lease_stores.h"

static bool leases_are_valid(tw_engine *engine, struct twi_generation *generation) {
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4, pairs with J3 in enlist() */
        const struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        if (twi_lease_generation(&engine->arena, lease) != generation || !twi_lease_is_valid(engine, lease))
            return false;
        line = lease->attached.older;
    }
    return true;
}

bool twi_generation_is_valid(tw_engine *engine, struct twi_generation *generation) {
    const struct twi_generation_turn *turn = &generation->turn;
    uint32_t phase = twi_load_relaxed(&generation->phase);
    if (generation->family == NULL || generation->start_ms >= generation->end_ms || phase > TWI_DROPPED) return false;
    if (!generation->synced && (turn->outstanding != 0 || turn->pending || turn->owed != 0 || turn->acked_units != 0))
        return false;
    if (turn->restore.listed && turn->outstanding == 0) return false;
    if (turn->history.packing != 0 && twi_generation_is_packed(generation)) return false;
    if (turn->history.in_hand && phase < TWI_SEALED) return false;
    return leases_are_valid(engine, generation);
}

static bool family_is_valid(tw_engine *engine, const struct tw_family *family) {
    uint32_t count = 0;
    int64_t start_ms = INT64_MIN;
    for (uint32_t line = family->turn.generations; line != 0; count++) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, line);
        if (generation->family != family || !generation->turn.known || !twi_generation_is_valid(engine, generation))
            return false;
        if (count >= family->turn.unsorted && generation->start_ms < start_ms) return false;
        if (count >= family->turn.unsorted) start_ms = generation->start_ms;
        line = generation->turn.next_all;
    }
    return count <= family->turn.held && family->turn.unsorted <= count;
}

bool twi_turn_is_valid(tw_engine *engine) {
    if (!twi_roster_is_valid(engine) || !twi_agenda_is_valid(engine) || !twi_lease_stores_are_valid(engine))
        return false;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL; /* as in roster.c */
         family = twi_load_acquire(&family->entry.next))
        if (!family_is_valid(engine, family)) return false;
    return true;
}
