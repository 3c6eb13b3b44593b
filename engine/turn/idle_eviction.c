/* idle_eviction.c -- endless families where idle keys make room (TW_ON_FULL_EVICT_IDLE): two generations that take turns.
 *
 *   era      0      1      2      3            one generation each: current (the newest) and previous
 *   key a    born ─ used ─ moved ─ used ...    used while in the previous one: goes on in the next current one
 *   key b    born ─ idle ─ gone                what Redis has of it stays in Redis
 *
 * An era plays the part that the clock plays for families from first (lookup.c): callers read it, look into two generations,
 * and decide again when it has moved. The turn alone raises it. The order of one round, all of it the turn's:
 *   1 the current generation is old enough (idle_ms), or nearly full: the previous one is sealed, each cell frozen;
 *   2 a frozen cell that was used goes on as a cell of the current generation, its heir, as far as there is room;
 *   3 what frozen cells still owe is sent from where it is, as from any sealed window; they stay readable meanwhile;
 *   4 nothing is owed: the generation is dropped, and the next era begins. So there are never three that hold keys.
 * A caller that meets a frozen cell makes the heir itself: it waits for nobody.
 * Always true:
 *   G1 at most one cell of a key takes adds: an heir is made after its cell was frozen; a new key's place in the previous
 *      generation is closed before it is inserted in the current one (trap E22).
 *   G2 no count moves: an heir begins with `local` = `handed` = `acked` = the final value, and the same view; so each unit
 *      is sent by the cell that it was added to, once, and a reader of the heir sees all that was added before (P3).
 *   G3 view of an heir = its local + base, where base takes in what its predecessor still owes: a total that Redis tells is
 *      raised by that rest (twi_idle_eviction_take_total), whichever of the two it came with.
 *   G4 a generation takes at most half of keys_max. What has no room there overflows or is refused by the family's policy;
 *      to make no heir loses nothing, its count is on the way to Redis or there. */
#include "engine/turn/idle_eviction.h"

#include "engine/count/dirty.h"
#include "engine/limit/share.h"
#include "engine/core/window_map.h"

#define CARRY_WORK 16u       /* units of a turn's work that making an heir counts for */
#define LOOK_AGAIN_MS 20     /* while the previous generation is on its way out */
#define LOOK_LONGEST_MS 1000 /* how long a generation may fill unseen */

/* ---- totals ---- */

static void set_base(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, int64_t total) {
    uint64_t meta = twi_load_relaxed(&cell->meta);
    struct twi_cold *cold = twi_cell_cold(cell, meta);
    int64_t contained = twi_load_relaxed(&cold->acked) - twi_idle_unsent(generation, cell, meta);
    int64_t base = twi_saturated_sum(total, -contained), before = twi_load_relaxed(&cell->base);
    twi_store_relaxed(&cell->base, base); /* one store (trap E6) */
    twi_store_relaxed(&cold->total_state,
                      twi_share_take_total(engine, twi_load_relaxed(&cold->total_state), base - before));
}

/* An item of a frozen cell brings its heir's total, too: that one may not be counted in again for long (trap E7). */
void twi_idle_eviction_take_total(const struct twi_item *item, int64_t total, int64_t acked) {
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
    struct twi_lookup_key lookup = twi_idle_lookup_key(engine, item->cell);
    struct twi_cell *successor = twi_table_find(&engine->arena, next, &lookup);
    if (successor != NULL && (twi_load_relaxed(&successor->meta) & TWI_META_SUCCESSOR) != 0)
        set_base(engine, next, successor, total);
}

/* ---- the turn ---- */

static bool redis_answers(tw_engine *engine) {
    tw_stats stats = {.redis_connected = twi_stat_get(engine, offsetof(tw_stats, redis_connected))};
    engine->driver->stats(engine->sync, &stats);
    return stats.redis_connected != 0;
}

/* Near its share of the keys, or of the memory. */
static bool is_crowded(struct tw_family *family, struct twi_generation *current) {
    uint64_t share = twi_load_relaxed(&family->quota.keys_max), bytes = (uint64_t)twi_load_relaxed(&current->bytes);
    uint64_t bytes_max = (uint64_t)twi_load_relaxed(&family->quota.bytes_max);
    struct twi_arena *arena = &family->engine->arena;
    if (share != 0 && twi_load_relaxed(&current->keys) >= share - share / 4) return true;
    if (bytes_max != 0 && bytes >= bytes_max / 8 * 3) return true;
    return bytes >= arena->bytes_max / 16 && (uint64_t)twi_arena_bytes_used(arena) >= arena->bytes_max / 4 * 3;
}

static bool is_over(struct tw_family *family, struct twi_generation *current) {
    int64_t age_ms = family->engine->turn_mono_ms - family->epoch_begun_ms;
    return age_ms >= twi_load_relaxed(&family->idle_ms) || (current != NULL && is_crowded(family, current));
}

/* While Redis is away nothing could be let go, and a key in use would only have to find room in the current one. */
bool twi_idle_eviction_is_due(struct tw_family *family, const struct twi_generation *generation) {
    int64_t eviction_epoch = twi_load_relaxed(&family->eviction_epoch);
    if (generation->start_ms < eviction_epoch - 1) return true; /* opened anew by a late-comer, who left it empty */
    return is_over(family, twi_window_find(family, eviction_epoch)) && redis_answers(family->engine);
}

void twi_idle_eviction_frozen(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                              uint32_t *work) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_here();
    int64_t eviction_epoch = twi_load_relaxed(&family->eviction_epoch);
    if ((twi_load_relaxed(&cell->meta) & TWI_META_USED) == 0 || generation->start_ms != eviction_epoch - 1 ||
        self == NULL)
        return;
    twi_section_enter(self);
    struct twi_generation *current = twi_window_open(family, twi_calendar_span(&family->rule, eviction_epoch), 0);
    struct twi_cell *successor = NULL;
    if (current != NULL && twi_idle_insert(current, self, twi_idle_lookup_key(engine, cell), generation, cell,
                                           &successor) == TWI_INSERTED) {
        uint64_t meta = twi_cell_publish(successor);
        if (!twi_cell_is_known(successor, meta))
            twi_dirty_mark(engine, current, successor, meta); /* its total is still to come */
    }
    twi_section_leave(self);
    *work = *work > CARRY_WORK ? *work - CARRY_WORK : 0;
}

void twi_idle_eviction_dropped(struct tw_family *family, struct twi_generation *generation) {
    uint64_t keys = twi_load_relaxed(&generation->keys), successors = twi_load_relaxed(&generation->successors);
    if (keys > successors) twi_port_count(family->engine, evicted, (int64_t)(keys - successors));
}

/* What the family holds: the current generation, and whether there is an older one. */
static struct twi_generation *look_over(struct tw_family *family, bool *older) {
    struct twi_generation *current = NULL;
    int64_t eviction_epoch = twi_load_relaxed(&family->eviction_epoch);
    *older = false;
    for (uint32_t line = family->generations; line != 0;) {
        struct twi_generation *generation = twi_arena_at(&family->engine->arena, line);
        if (generation->start_ms == eviction_epoch) current = generation;
        if (generation->start_ms < eviction_epoch) *older = true;
        line = generation->next_all;
    }
    return current;
}

/* The next generation stands ready before its era begins. False: no memory. */
static bool begin_eviction_epoch(struct tw_family *family) {
    int64_t eviction_epoch = twi_load_relaxed(&family->eviction_epoch) + 1;
    if (twi_window_open(family, twi_calendar_span(&family->rule, eviction_epoch), 0) == NULL) return false;
    twi_store_seqcst(&family->eviction_epoch, eviction_epoch); /* G6, pairs with G5 */
    family->epoch_begun_ms = family->engine->turn_mono_ms;
    return true;
}

int64_t twi_idle_eviction_turn(struct tw_family *family) {
    tw_engine *engine = family->engine;
    if (!family->epoch_begun) family->epoch_begun_ms = engine->turn_mono_ms;
    family->epoch_begun = true;
    bool older;
    struct twi_generation *current = look_over(family, &older);
    int64_t left_ms = family->epoch_begun_ms + twi_load_relaxed(&family->idle_ms) - engine->turn_mono_ms;
    if (!is_over(family, current)) return left_ms < LOOK_LONGEST_MS ? left_ms : LOOK_LONGEST_MS;
    if (older) return LOOK_AGAIN_MS;
    bool has_counted =
        current != NULL && (twi_load_relaxed(&current->keys) != 0 ||
                            twi_cell_local(&current->overflow, twi_load_relaxed(&current->overflow.meta)) != 0);
    if (!has_counted)
        family->epoch_begun_ms = engine->turn_mono_ms;
    else if (!begin_eviction_epoch(family))
        return LOOK_AGAIN_MS;
    return 1;
}
