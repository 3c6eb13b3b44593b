/* lookup.c -- see lookup.h. It has incarnations, and first inserts. */
#include "engine/count/lookup.h"

#include "engine/core/closing_keys.h"
#include "engine/count/contention.h"
#include "engine/table/index.h"
#include "engine/table/packed.h"
#include "engine/table/stripe.h"
#include "engine/core/window_map.h"

#include "tallywheel.h"

/* ---- incarnations (TW_WINDOW_FROM_FIRST families) --------------------------------------------------------------- */

static bool lives_on(const struct twi_call *call, struct twi_cell *cell, struct twi_place *place,
                     struct twi_generation *generation) {
    if (cell == NULL || twi_load_relaxed(&cell->end_ms) <= call->now_ms) return false;
    place->generation = generation;
    place->cell = cell;
    place->meta = twi_cell_publish(cell);
    return true;
}

static bool find_incarnation_in(const struct twi_call *call, struct twi_generation *generation,
                                struct twi_place *place) {
    struct twi_arena *arena = &call->engine->arena;
    if (generation == NULL) return false;
    struct twi_cell *cell = twi_table_find(arena, generation, &call->lookup);
    if (cell == NULL || lives_on(call, cell, place, generation)) return cell != NULL;
    struct twi_lookup_key next_key = twi_lookup_key_next(call->lookup);
    return lives_on(call, twi_table_find(arena, generation, &next_key), place, generation);
}

static struct twi_generation *generation_before(const struct twi_call *call) {
    return twi_window_find(call->family, twi_calendar_previous_start(&call->family->rule, call->now_ms));
}

bool twi_place_find_incarnation(const struct twi_call *call, struct twi_place *place) {
    struct twi_generation *now = place->generation;
    if (find_incarnation_in(call, now, place) || find_incarnation_in(call, generation_before(call), place)) return true;
    place->generation = now;
    return false;
}

/* Before a key begins an incarnation in this generation, makes sure that it can no longer begin one in the previous
 * generation (trap E22). */
static bool still_lives_before(const struct twi_call *call, struct twi_place *place) {
    twi_fence_seqcst(); /* N1, pairs with N2: a call that counts in the previous window cannot open it unseen */
    struct twi_generation *before = generation_before(call);
    if (before == NULL) return false;
    struct twi_lookup_key next_key = twi_lookup_key_next(call->lookup);
    return lives_on(call, twi_table_close_probe(&call->engine->arena, before, &call->lookup), place, before) ||
           lives_on(call, twi_table_close_probe(&call->engine->arena, before, &next_key), place, before);
}

/* ---- first inserts ---- */

struct currency {
    struct twi_generation *generation;
    bool at; /* the call has an event time */
};

/* Reads the clock again. Returns true if this call may still count in the given window. An insert calls it after it
 * found a closed slot, and a call after it opened a window. Engine time never goes back, so a thread that sees the
 * effects of a later moment also reads that moment. */
static bool still_current(void *ctx) {
    struct currency *currency = ctx;
    struct tw_family *family = currency->generation->family;
    int64_t now_ms = twi_clock_now_ms(&family->engine->clock);
    if (currency->at) return now_ms < twi_family_open_until(family, currency->generation->end_ms);
    /* the start of an endless window is 1970, but the window also contains earlier moments */
    if (family->rule.window == TW_WINDOW_FOREVER) return true;
    return twi_generation_holds(currency->generation, now_ms);
}

static tw_status insert(struct twi_call *call, struct twi_place *place, const struct twi_lookup_key *lookup) {
    struct twi_insert insert = {.arena = &call->engine->arena,
                                .generation = place->generation,
                                .self = call->self,
                                .lookup = *lookup,
                                .end_ms = call->family->kind.from_first
                                              ? twi_time_add(call->now_ms, call->family->rule.window_ms)
                                              : 0, /* the word is used for stripes */
                                .vacancy = TWI_NO_VACANCY};
    struct currency currency = {place->generation, call->at};
    switch (twi_table_insert(&insert, still_current, &currency, &place->cell)) {
    case TWI_FOUND:
    case TWI_INSERTED: place->meta = twi_cell_publish(place->cell); return TW_OK;
    case TWI_NO_ROOM: return TW_ERR_FULL;
    default: return TWI_AGAIN;
    }
}

tw_status twi_place_make(struct twi_call *call, struct twi_place *place) {
    struct tw_family *family = call->family;
    if (family->kind.evicts_idle) return twi_idle_make(call, place);
    if (place->generation != NULL && twi_generation_is_packed(place->generation)) return TWI_AGAIN;
    /* The window was found in this section. If it has been sealed or dropped since, its leaves are closed. But a
     * late caller may have opened the window again after the drop, and left it empty (see below). So the function
     * reads the clock again. */
    if (place->generation != NULL && !family->kind.from_first) {
        struct currency found = {place->generation, call->at};
        TWI_RACE_POINT(window_found_not_inserted);
        return still_current(&found) ? insert(call, place, &call->lookup) : TWI_AGAIN;
    }
    struct twi_span span = twi_calendar_span(&family->rule, call->unix_ms);
    if (family->kind.from_first && still_lives_before(call, place)) return TW_OK;
    TWI_RACE_POINT(window_not_opened);
    place->generation = twi_window_open(family, span, call->at ? 0 : twi_window_announced(family));
    if (place->generation == NULL) return TW_ERR_FULL;
    /* the window has ended permanently, even if lateness has become longer */
    if (twi_generation_is_packed(place->generation)) return TWI_AGAIN;
    /* Since the clock was read, the window may have ended, been reported and dropped. It must not be used again,
     * even if another late caller has just opened it again. Or a key may have begun its incarnation in the next
     * window, because its inserter found no window here (trap E22). */
    struct currency currency = {place->generation, call->at};
    twi_fence_seqcst(); /* N2, pairs with N1, so an insert at a later moment sees the window that this call opened */
    if (!still_current(&currency)) return TWI_AGAIN;
    tw_status status = insert(call, place, &call->lookup);
    if (status != TW_OK || !family->kind.from_first || twi_load_relaxed(&place->cell->end_ms) > call->now_ms)
        return status;
    struct twi_lookup_key next_key = twi_lookup_key_next(call->lookup);
    status = insert(call, place, &next_key);
    /* A third incarnation in one window is needed only if Redis ends incarnations sooner than their length. There is
     * no place for a third one. */
    if (status == TW_OK && twi_load_relaxed(&place->cell->end_ms) <= call->now_ms) return TW_ERR_FULL;
    return status;
}

enum twi_found twi_place_insert(const struct twi_insert *insert, struct twi_cell **cell) {
    struct currency currency = {insert->generation, false};
    /* a record that was made in this section is given back to its table, which exists as long as the section */
    if (insert->vacancy.made == NULL && twi_unlikely(twi_generation_is_packed(insert->generation)))
        return TWI_GONE_SEALED;
    return twi_table_insert(insert, still_current, &currency, cell);
}

int64_t twi_view_in(const struct twi_call *call, struct twi_generation *generation) {
    struct twi_arena *arena = &call->engine->arena;
    uint32_t packed = twi_load_acquire(&generation->packed); /* K2, pairs with K1 */
    if (packed == 0) {
        struct twi_cell *cell = twi_table_find(arena, generation, &call->lookup);
        if (cell == NULL && twi_unlikely(call->self->in_hook) &&
            twi_load_relaxed(&call->engine->here->hook.thread) == call->self)
            cell = twi_closing_keys_find(generation, call->lookup.key);
        return cell != NULL ? twi_cell_view(cell, twi_cell_publish(cell)) : 0;
    }
    tw_key key = call->lookup.key;
    struct twi_final final;
    uint64_t hash = call->engine->hashing.fn(&call->engine->hashing.secret, key.data, key.size);
    return twi_packed_find(arena, packed, hash, key, &final) ? twi_saturated_sum(final.local, final.base) : 0;
}

bool twi_may_take_interest(const struct twi_call *call) {
    uint64_t most = twi_load_relaxed(&call->family->quota.keys_max);
    struct twi_generation *generation = twi_window_at(call->family, call->unix_ms, true);
    if (most != 0 && generation != NULL && twi_load_relaxed(&generation->keys) >= most - most / 4) return false;
    struct twi_quota_use use = twi_quota_use(&call->engine->arena, &call->family->quota);
    return use.used < use.most - use.most / 4;
}

tw_status twi_absent_window_status(struct tw_family *family, int64_t unix_ms, int64_t now_ms) {
    struct twi_span span = twi_calendar_span(&family->rule, unix_ms);
    int64_t lateness_ms = twi_load_acquire(&family->policy.lateness_ms); /* F2 */
    int64_t until_ms =
        twi_time_add(twi_time_add(span.end_ms, lateness_ms), twi_load_acquire(&family->policy.history_ms));
    if (now_ms < until_ms && span.end_ms > twi_load_relaxed(&family->marks.gone_ms)) return TW_OK;
    return twi_refuse(TW_ERR_LATE, "unix_ms: its window is over for longer than history_ms keeps it");
}

enum twi_added twi_place_add(const struct twi_call *call, const struct twi_place *place, int64_t delta,
                             int64_t *local) {
    struct twi_counted counted;
    twi_dirty_begin(call->self, call->engine, place->generation, place->cell);
    enum twi_added added = twi_stripes_add(place->cell, place->meta, delta, !call->without_sum, call->self, &counted);
    if (twi_likely(added == TWI_ADDED)) {
        twi_contention_mark(call->engine, place->generation, place->cell, place->meta, &counted);
        *local = counted.local;
    }
    twi_dirty_end(call->self);
    return added;
}

void twi_place_request_total(const struct twi_call *call, const struct twi_place *place) {
    struct twi_cell *cell = place->cell;
    if ((place->meta & TWI_META_STRIPED) == 0) {
        uint64_t word = twi_load_relaxed(&cell->local);
        if ((word & TWI_FROZEN) == 0) {
            if ((word & TWI_DIRTY) != 0) return;
            twi_dirty_mark(call->engine, place->generation, cell, place->meta);
        }
    }
    /* The cell may have become striped before it was marked. Then nobody has marked it (dirty.c). */
    uint64_t meta = twi_load_acquire(&cell->meta); /* S2 */
    if ((meta & TWI_META_STRIPED) == 0) return;
    twi_dirty_begin(call->self, call->engine, place->generation, cell);
    if (twi_stripes_mark_requested(cell)) twi_dirty_list(call->engine, place->generation, cell, meta);
    twi_dirty_end(call->self);
}
