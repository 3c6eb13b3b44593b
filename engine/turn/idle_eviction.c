/* idle_eviction.c -- idle eviction in endless families (TW_ON_FULL_EVICT_IDLE). The keys are in two generations, which
 * change by turns.
 *
 *   epoch    0      1      2      3            one generation each: current (the newest) and previous
 *   key a    born ─ used ─ moved ─ used ...    used while in the previous one: gets a successor in the next current one
 *   key b    born ─ idle ─ gone                Redis keeps its total
 *
 * The eviction epoch has the same function as the clock in TW_WINDOW_FROM_FIRST families (lookup.c). Callers read the
 * epoch, look into two generations, and decide again if the epoch has changed. Only the turn raises the epoch. One
 * round has four steps, and all of them are made in the turn:
 *   1 The current generation is old enough (idle_ms) or nearly full. The previous one is sealed, its cells are frozen.
 *   2 A frozen cell that was used gets a successor cell in the current generation, as long as there is room.
 *   3 The unsent counts of frozen cells are sent from there, like from any sealed window. They stay readable meanwhile.
 *   4 When no count is unsent, the generation is dropped, and the next epoch begins. So three generations never have
 *     keys at once.
 * A caller that finds a frozen cell makes the successor itself, so the caller never waits.
 * Always true:
 *   G1 At most one cell of a key accepts adds. A successor is made only after its predecessor was frozen. Before a new
 *      key is inserted in the current generation, its place in the previous one is closed (trap E22).
 *   G2 No count is moved. A successor begins with `local` = `handed` = `acked` = the final value, and with the same
 *      view. So each unit is sent once, by the cell that it was added to; a reader of the successor sees all earlier
 *      adds (P3).
 *   G3 The view of a successor is its local + base. Its base includes its predecessor's unsent counts. Every total from
 *      Redis is raised by that amount (twi_idle_eviction_take_total), for both cells.
 *   G4 A generation has at most half of keys_max. A key without room overflows or is refused, by the family's
 *      policy. A cell without a successor loses no count, because its count is in Redis or on the way there. */
#include "engine/turn/idle_eviction.h"

#include "engine/count/dirty.h"
#include "engine/limit/share.h"
#include "engine/core/window_map.h"

#define CARRY_WORK 16u       /* units of a turn's work that making one successor costs */
#define LOOK_AGAIN_MS 20     /* the pause while the previous generation is being dropped */
#define LOOK_LONGEST_MS 1000 /* how long a generation may fill without a check */

/* ---- totals ---- */

static void set_base(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, int64_t total) {
    twi_check(generation->family->kind.evicts_idle);
    uint64_t meta = twi_load_relaxed(&cell->meta);
    struct twi_cold *cold = twi_cell_cold(cell, meta);
    int64_t contained = twi_load_relaxed(&cold->acked) - twi_idle_unsent(generation, cell, meta);
    int64_t base = twi_saturated_sum(total, -contained), before = twi_load_relaxed(&cell->base);
    twi_store_relaxed(&cell->base, base); /* one store, so that no reader sees half of a view (trap E6) */
    twi_store_relaxed(&cold->total_state,
                      twi_share_take_total(engine, twi_load_relaxed(&cold->total_state), base - before));
}

/* The total for the item of a frozen cell is also a total for its successor, because no thread may count in the
 * successor for a long time (trap E7). */
void twi_idle_eviction_take_total(const struct twi_item *item, int64_t total, int64_t acked) {
    twi_check(item->family->kind.evicts_idle);
    struct tw_family *family = item->family;
    tw_engine *engine = family->engine;
    if ((item->flags & TWI_ITEM_OVERFLOW) != 0) {
        twi_store_relaxed(&item->cell->base, twi_saturated_sum(total, -acked));
        return;
    }
    set_base(engine, item->generation, item->cell, total);
    if (!twi_cell_is_frozen(item->cell)) return;
    struct twi_generation *next = twi_window_find(family, item->generation->start_ms + 1);
    if (next == NULL) return;
    struct twi_lookup_key lookup = twi_idle_lookup_key(&engine->hashing, item->cell);
    struct twi_cell *successor = twi_table_find(&engine->arena, next, &lookup);
    if (successor != NULL && (twi_load_relaxed(&successor->meta) & TWI_META_SUCCESSOR) != 0)
        set_base(engine, next, successor, total);
}

/* ---- the turn ---- */

/* Returns true if the generation is near its share of the keys or of the memory. */
static bool is_crowded(struct tw_family *family, struct twi_generation *current) {
    twi_check(current->family == family);
    uint64_t share = twi_load_relaxed(&family->quota.keys_max);
    int64_t bytes = twi_load_relaxed(&current->bytes), bytes_max = twi_load_relaxed(&family->quota.bytes_max);
    if (share != 0 && twi_load_relaxed(&current->keys) >= share - share / 4) return true;
    if (bytes_max != 0) return bytes >= bytes_max / 8 * 3;
    struct twi_quota_use use = twi_quota_use(&family->engine->arena, &family->quota);
    return bytes >= use.most / 16 && use.used >= use.most / 4 * 3;
}

static bool is_over(struct tw_family *family, struct twi_generation *current) {
    int64_t age_ms = family->engine->turn.mono_ms - family->turn.eviction.begun_ms;
    return age_ms >= twi_load_relaxed(&family->policy.idle_ms) || (current != NULL && is_crowded(family, current));
}

/* While Redis does not reply, no generation can be dropped, and used keys would only have to find room in the
 * current generation. */
bool twi_idle_eviction_is_due(struct tw_family *family, const struct twi_generation *generation) {
    twi_check(family->kind.evicts_idle);
    int64_t eviction_epoch = twi_load_relaxed(&family->eviction_epoch);
    if (generation->start_ms < eviction_epoch - 1) return true; /* a late caller opened it, and left it empty */
    return is_over(family, twi_window_find(family, eviction_epoch)) &&
           twi_load_relaxed(&family->engine->peers.is_connected);
}

void twi_idle_eviction_frozen(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                              uint32_t *work) {
    twi_check(twi_cell_is_frozen(cell));
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_here();
    int64_t eviction_epoch = twi_load_relaxed(&family->eviction_epoch);
    if ((twi_load_relaxed(&cell->meta) & TWI_META_USED) == 0 || generation->start_ms != eviction_epoch - 1 ||
        self == NULL)
        return;
    twi_section_enter(self);
    struct twi_generation *current = twi_window_open(family, twi_calendar_span(&family->rule, eviction_epoch), 0);
    struct twi_cell *successor = NULL;
    if (current != NULL && twi_idle_insert(current, self, twi_idle_lookup_key(&engine->hashing, cell), generation, cell,
                                           &successor) == TWI_INSERTED) {
        uint64_t meta = twi_cell_publish(successor);
        if (!twi_cell_is_known(successor, meta))
            twi_dirty_mark(engine, current, successor, meta); /* its total has not come yet */
    }
    twi_section_leave(self);
    *work = *work > CARRY_WORK ? *work - CARRY_WORK : 0;
}

void twi_idle_eviction_dropped(struct tw_family *family, struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) >= TWI_HISTORY);
    uint64_t keys = twi_load_relaxed(&generation->keys), successors = twi_load_relaxed(&generation->successors);
    if (keys > successors) twi_port_count(family->engine, evicted, (int64_t)(keys - successors));
}

/* Returns the current generation. *older becomes true if there is an older one. */
static struct twi_generation *look_over(struct tw_family *family, bool *older) {
    struct twi_generation *current = NULL;
    int64_t eviction_epoch = twi_load_relaxed(&family->eviction_epoch);
    *older = false;
    for (uint32_t line = family->turn.generations; line != 0;) {
        struct twi_generation *generation = twi_arena_at(&family->engine->arena, line);
        if (generation->start_ms == eviction_epoch) current = generation;
        if (generation->start_ms < eviction_epoch) *older = true;
        line = generation->turn.next_all;
    }
    return current;
}

/* Prepares the next generation before its epoch begins. Returns false if there is no memory. */
static bool begin_eviction_epoch(struct tw_family *family) {
    twi_check(family->kind.evicts_idle);
    int64_t eviction_epoch = twi_load_relaxed(&family->eviction_epoch) + 1;
    if (twi_window_open(family, twi_calendar_span(&family->rule, eviction_epoch), 0) == NULL) return false;
    twi_store_seqcst(&family->eviction_epoch, eviction_epoch); /* G6, pairs with G5 */
    /* The clock is read after the store, because keys were used in the previous epoch until now, even if this turn
     * began long ago. */
    family->turn.eviction.begun_ms = twi_clock_mono_ms(&family->engine->clock);
    return true;
}

int64_t twi_idle_eviction_turn(struct tw_family *family) {
    twi_check(family->kind.evicts_idle);
    tw_engine *engine = family->engine;
    if (!family->turn.eviction.begun) family->turn.eviction.begun_ms = engine->turn.mono_ms;
    family->turn.eviction.begun = true;
    bool older;
    struct twi_generation *current = look_over(family, &older);
    int64_t left_ms = family->turn.eviction.begun_ms + twi_load_relaxed(&family->policy.idle_ms) - engine->turn.mono_ms;
    if (!is_over(family, current)) return left_ms < LOOK_LONGEST_MS ? left_ms : LOOK_LONGEST_MS;
    if (older) return LOOK_AGAIN_MS;
    bool has_counted =
        current != NULL && (twi_load_relaxed(&current->keys) != 0 ||
                            twi_cell_local(&current->overflow, twi_load_relaxed(&current->overflow.meta)) != 0);
    if (!has_counted)
        family->turn.eviction.begun_ms = engine->turn.mono_ms;
    else if (!begin_eviction_epoch(family))
        return LOOK_AGAIN_MS;
    return 1;
}
