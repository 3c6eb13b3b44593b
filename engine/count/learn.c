/* learn.c -- see learn.h.
 * A total T of Redis makes base = T - acked (cell.h). Only the turn changes `acked`, in step with its batches, and here
 * any thread may come with an answer that others have overtaken.
 * Always true: an answer only raises `base`, only while all units of this engine are acknowledged, and only if no batch
 * has brought a total since its call began. Only a batch lowers `base`. An answer with a lower total requests one. */
#include "engine/count/learn.h"

#include "engine/count/lookup.h"

#define EXACT_MAX (INT64_C(1) << 53) /* the scripts' numbers have gaps beyond it */

static bool raise_base(const struct twi_place *place, const struct twi_learnt *learnt) {
    struct twi_cell *cell = place->cell;
    struct twi_cold *cold = twi_cell_cold(cell, place->meta);
    int64_t total_state = twi_load_relaxed(&cold->total_state);
    bool is_latest = total_state != 0 && twi_total_state_ms(total_state) < learnt->began_ms;
    if (!is_latest || (place->meta & TWI_META_STRIPED) != 0) return false;
    uint64_t word = twi_load_acquire(&cell->local); /* C2 */
    int64_t base = twi_load_relaxed(&cell->base), acked = twi_load_relaxed(&cold->acked);
    bool is_quiet = twi_word_value(word) == acked && twi_load_relaxed(&cold->handed) == acked;
    if (!is_quiet || (word & TWI_FROZEN) != 0) return false;
    int64_t others = twi_saturated_sum(learnt->total, -acked);
    /* relaxed, because `base` alone is a whole value (trap E6). If the turn or another answer changes it meanwhile, a
     * batch finds out which total is the latest. */
    return others == base || (others > base && twi_cas_relaxed(&cell->base, &base, others));
}

bool twi_learn_total(tw_family *family, tw_key key, const struct twi_learnt *learnt) {
    struct twi_call call;
    struct twi_place place;
    twi_check(family->kind.synced && !family->kind.from_first && !family->kind.evicts_idle);
    if (learnt->total < 0 || learnt->total >= EXACT_MAX) return false;
    if (twi_call_begin(&call, family, key) != TW_OK) return false;
    bool is_here = twi_call_now(&call) == TW_OK && twi_place_find(&call, &place) &&
                   twi_generation_start_ms(place.generation) == learnt->start_ms;
    bool is_learnt = is_here && raise_base(&place, learnt);
    twi_call_end(&call);
    return is_learnt;
}
