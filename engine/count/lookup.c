/* lookup.c -- see lookup.h. It has incarnations, first inserts, and what overflows. */
#include "engine/count/lookup.h"

#include "engine/base/why.h"
#include "engine/core/window_map.h"
#include "engine/count/dirty.h"
#include "engine/table/index.h"
#include "engine/table/packed.h"
#include "engine/table/spill.h"
#include "engine/table/stripe.h"
#include "tallywheel.h"

/* ---- idle lookup ---- */

struct twi_generation *twi_idle_before(struct tw_family *family, int64_t eviction_epoch) {
    return twi_window_find(family, eviction_epoch - 1);
}

/* ---- finding ---- */

/* Called if the key's cell is in the previous generation. Returns true if the cell accepts adds. Returns false if
 * the cell is frozen and only shows the count. */
static bool use_before(struct twi_place *place, struct twi_generation *before, struct twi_cell *cell) {
    uint64_t meta = twi_cell_publish(cell);
    if (twi_cell_is_frozen(cell)) {
        place->previous = cell;
        place->previous_in = before;
        return false;
    }
    if ((meta & TWI_META_USED) == 0) (void)twi_or_relaxed(&cell->meta, TWI_META_USED);
    place->generation = before;
    place->cell = cell;
    place->meta = meta;
    return true;
}

bool twi_idle_find(const struct twi_call *call, struct twi_place *place) {
    struct twi_arena *arena = &call->engine->arena;
    struct twi_cell *cell = NULL;
    place->previous = NULL;
    if (place->generation != NULL) cell = twi_table_find(arena, place->generation, &call->lookup);
    if (cell != NULL) {
        place->cell = cell;
        place->meta = twi_cell_publish(cell);
        return true;
    }
    TWI_RACE_POINT(not_in_current_epoch);
    struct twi_generation *before = twi_idle_before(call->family, call->unix_ms);
    if (before != NULL) cell = twi_table_find(arena, before, &call->lookup);
    return cell != NULL && use_before(place, before, cell);
}

/* ---- making ---- */

static bool idle_still_current(void *ctx) {
    const struct twi_generation *generation = ctx;
    return twi_load_acquire(&generation->family->eviction_epoch) == generation->start_ms; /* G5, pairs with G6 */
}

static struct twi_inherited inheritance_of(struct twi_cell *frozen) {
    uint64_t meta = twi_load_relaxed(&frozen->meta);
    return (struct twi_inherited){.local = twi_cell_local(frozen, meta),
                                  .base = twi_load_relaxed(&frozen->base),
                                  .total_state = twi_load_relaxed(&twi_cell_cold(frozen, meta)->total_state),
                                  .is_successor = true};
}

enum twi_found twi_idle_insert(struct twi_generation *generation, struct twi_thread *self, struct twi_lookup_key lookup,
                               struct twi_generation *before, struct twi_cell *frozen, struct twi_cell **cell) {
    struct twi_inherited inherited = {0};
    if (frozen != NULL) inherited = inheritance_of(frozen);
    TWI_RACE_POINT(inheritance_read);
    struct twi_insert insert = {.arena = &generation->family->engine->arena,
                                .generation = generation,
                                .self = self,
                                .lookup = lookup,
                                .end_ms = 0,
                                .inherited = &inherited,
                                .vacancy = TWI_NO_VACANCY};
    enum twi_found found = twi_table_insert(&insert, idle_still_current, generation, cell);
    if (found == TWI_INSERTED && frozen != NULL) (void)twi_add_relaxed(&before->successors, 1);
    return found;
}

/* Before the key begins in this epoch, makes sure that it can no longer begin in the previous epoch (G1). */
static bool still_counts_before(const struct twi_call *call, struct twi_place *place) {
    place->previous = NULL;
    twi_fence_seqcst(); /* N1, pairs with N2 */
    struct twi_generation *before = twi_idle_before(call->family, call->unix_ms);
    if (before == NULL) return false;
    struct twi_cell *cell = twi_table_close_probe(&call->engine->arena, before, &call->lookup);
    TWI_RACE_POINT(probe_closed_before);
    return cell != NULL && use_before(place, before, cell);
}

tw_status twi_idle_make(struct twi_call *call, struct twi_place *place) {
    if (still_counts_before(call, place)) return TW_OK;
    place->generation = twi_window_open(call->family, twi_calendar_span(&call->family->rule, call->unix_ms), 0);
    if (place->generation == NULL) return TW_ERR_FULL;
    twi_fence_seqcst(); /* N2, pairs with N1 */
    if (!idle_still_current(place->generation)) return TWI_AGAIN;
    switch (twi_idle_insert(place->generation, call->self, call->lookup, place->previous_in, place->previous,
                            &place->cell)) {
    case TWI_FOUND:
    case TWI_INSERTED: place->meta = twi_cell_publish(place->cell); return TW_OK;
    case TWI_NO_ROOM: return TW_ERR_FULL;
    default: return TWI_AGAIN;
    }
}

/* ---- unsent counts of the previous generation ---- */

struct twi_lookup_key twi_idle_lookup_key(struct twi_hashing *hashing, struct twi_cell *cell) {
    tw_key key = tw_bytes(cell->key, twi_load_relaxed(&cell->meta) & TWI_META_SIZE);
    return twi_lookup_key(hashing->fn(&hashing->secret, key.data, key.size), key);
}

int64_t twi_idle_unsent(struct twi_generation *generation, struct twi_cell *cell, uint64_t meta) {
    if ((meta & TWI_META_SUCCESSOR) == 0) return 0;
    tw_engine *engine = generation->family->engine;
    struct twi_generation *before = twi_idle_before(generation->family, generation->start_ms);
    if (before == NULL) return 0; /* the generation was dropped, so it had no unsent counts */
    struct twi_lookup_key lookup = twi_idle_lookup_key(&engine->hashing, cell);
    struct twi_cell *frozen = twi_table_find(&engine->arena, before, &lookup);
    if (frozen == NULL || !twi_cell_is_frozen(frozen)) return 0;
    uint64_t frozen_meta = twi_load_relaxed(&frozen->meta);
    return twi_cell_local(frozen, frozen_meta) - twi_load_relaxed(&twi_cell_cold(frozen, frozen_meta)->acked);
}

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

/* ---- guests ---- */

bool twi_guest_begins(const struct twi_call *call, struct twi_generation *generation) {
    return twi_unlikely(call->family->kind.takes_guests) && generation != NULL &&
           twi_guests_begin(&call->engine->arena, generation) != NULL;
}

int64_t twi_guest_view(const struct twi_call *call, struct twi_generation *generation) {
    struct twi_guests *guests = twi_guests_of(&call->engine->arena, generation);
    struct twi_guest guest = {0};
    if (guests != NULL) twi_guest_find(guests, &call->lookup, 0, &guest);
    return guest.value;
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
    if (twi_guest_may_be(family, place->generation)) return TW_ERR_FULL; /* a key is not both: counter and guest */
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
    if (insert->vacancy.made == NULL && twi_guest_may_be(insert->generation->family, insert->generation))
        return TWI_NO_ROOM;
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
        if (cell != NULL) return twi_cell_view(cell, twi_cell_publish(cell));
        return twi_guest_may_be(call->family, generation) ? twi_guest_view(call, generation) : 0;
    }
    tw_key key = call->lookup.key;
    struct twi_final final;
    uint64_t hash = call->engine->hashing.fn(&call->engine->hashing.secret, key.data, key.size);
    if (twi_packed_find(arena, packed, hash, key, &final)) return twi_saturated_sum(final.local, final.base);
    return twi_guest_may_be(call->family, generation) ? twi_guest_view(call, generation) : 0;
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

/* ---- overflow ---- */

tw_status twi_overflow_add(struct twi_call *call, struct twi_place *place, int64_t delta, bool is_first,
                           int64_t *view) {
    twi_check_dear(place->generation != NULL);
    uint64_t before;
    place->cell = &place->generation->overflow;
    place->meta = twi_load_relaxed(&place->cell->meta);
    switch (twi_cell_add(place->cell, place->meta, delta, &before)) {
    case TWI_ADD_FROZEN: return TWI_AGAIN;
    case TWI_ADD_RANGE: return twi_refuse_for(TWI_WHY_SUM);
    default: break;
    }
    twi_place_mark(call, place, before);
    struct twi_arena *arena = &call->engine->arena;
    bool noted = is_first ? twi_spill_add_first(arena, place->generation, &call->lookup, call->self->shard, delta)
                          : twi_spill_add(arena, place->generation, &call->lookup, call->self->shard, delta);
    if (!noted) twi_port_count(call->engine, overflow_sketches_refused, 1);
    *view = twi_word_value(before) + delta;
    twi_port_count(call->engine, overflow_increments, 1);
    return TW_OVERFLOWED;
}

/* Changes what is known of the guest. */
static tw_status change(const struct twi_call *call, struct twi_guests *guests, int64_t n, int64_t most,
                        int64_t *view) {
    twi_check_dear(guests != NULL);
    struct twi_guest guest;
    do {
        twi_guest_find(guests, &call->lookup, 0, &guest);
        *view = guest.value;
        if (twi_saturated_sum(guest.value, n) > most) {
            twi_guest_touch(guests, &guest);
            return TW_DENIED;
        }
        if (n == 0) return TW_OK;
        if (n < -guest.value) return TW_ERR_RANGE;
        if (n > TWI_GUEST_MOST - guest.value) return TW_ERR_FULL;
    } while (!twi_guest_set(guests, &call->lookup, &guest, guest.value + n));
    if (twi_guest_gives_up(&guest, 0)) twi_port_count(call->engine, evicted, 1);
    *view += n;
    return TW_OK;
}

tw_status twi_guest_add(struct twi_call *call, struct twi_place *place, int64_t n, int64_t most, int64_t *view) {
    twi_check_dear(place->generation != NULL);
    struct twi_guests *guests = twi_guests_of(&call->engine->arena, place->generation);
    *view = 0;
    if (guests == NULL) return TW_ERR_FULL;
    tw_status status = change(call, guests, n, most, view);
    int64_t all;
    if (status != TW_OK || n == 0) return status;
    status = twi_overflow_add(call, place, n, *view == n, &all);
    if (status == TW_OVERFLOWED) return TW_OK;
    twi_guest_note(call, place->generation, -n); /* the window was sealed, so the units count nowhere */
    return status;
}

void twi_guest_note(const struct twi_call *call, struct twi_generation *generation, int64_t n) {
    struct twi_guests *guests = twi_guests_of(&call->engine->arena, generation);
    int64_t view, known;
    if (guests == NULL) return;
    while (change(call, guests, n, INT64_MAX, &view) == TW_ERR_RANGE) { /* it was given up, and has begun again */
        known = twi_guest_view(call, generation);
        if (known == 0) return;
        if (n < -known) n = -known;
    }
}

/* ---- learn ----
 * 
 * A total T of Redis makes base = T - acked (cell.h). Only the turn changes `acked`, in step with its batches, and here
 * any thread may come with an answer that others have overtaken.
 * Always true: an answer only raises `base`, only while all units of this engine are acknowledged, and only if no batch
 * has brought a total since its call began. Only a batch lowers `base`. An answer with a lower total requests one. */

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
