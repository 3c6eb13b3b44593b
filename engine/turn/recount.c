/* recount.c -- see recount.h. A thread that inserts a key raises `keys` of the window before the key is there. If it
 * ends in between, `keys` is one too high for as long as the window exists. An endless window exists as long as its
 * engine, so in the end keys_max would be reached without keys.
 * Always true: `keys` falls at most by keys that do not exist. The sections in which keys were being inserted when the
 * count began have ended before the walk. Keys that come during the walk are found or not, so the walk finds too many
 * rather than too few. */
#include "engine/turn/recount.h"

#include "engine/core/window_map.h"

#define LOOKS_TURN 4096u /* records that one turn looks at: a cache miss each */

static bool is_bounded_for_ever(const struct tw_family *family) {
    return family->rule.window == TW_WINDOW_FOREVER && !family->kind.evicts_idle &&
           twi_load_relaxed(&family->quota.keys_max) != 0;
}

static bool count(void *ctx, struct twi_cell *cell, uint64_t meta) {
    (void)cell, (void)meta;
    ++*(uint64_t *)ctx;
    return true;
}

/* Returns the next family whose keys are to be counted: the first one, or one after `family`. */
static struct tw_family *next_bounded(tw_engine *engine, const struct tw_family *family) {
    struct tw_family *next = twi_load_acquire(family == NULL ? &engine->roster.first : &family->entry.next);
    while (next != NULL && (!is_bounded_for_ever(next) || next->turn.generations == 0))
        next = twi_load_acquire(&next->entry.next);
    return next;
}

static void begin(tw_engine *engine, const struct tw_family *family) {
    struct twi_recount *recount = &engine->turn.recount;
    recount->serial = family != NULL ? family->serial : 0;
    if (family == NULL) return;
    recount->before = twi_load_relaxed(&twi_generation_at(&engine->arena, family->turn.generations)->keys);
    recount->found = 0;
    recount->cursor = (struct twi_cursor){.begun = false};
    recount->stamp = twi_epoch_stamp();
}

/* Returns true when all keys of the family have been counted. */
static bool continue_count(tw_engine *engine, const struct tw_family *family) {
    struct twi_recount *recount = &engine->turn.recount;
    struct twi_generation *generation = twi_generation_at(&engine->arena, family->turn.generations);
    if (generation == NULL) return true;
    if (recount->stamp >= twi_epoch_reached()) return false;
    recount->cursor.looks = LOOKS_TURN;
    twi_table_walk(&engine->arena, generation, &recount->cursor, count, &recount->found);
    if (!recount->cursor.done) return false;
    if (recount->found < recount->before) (void)twi_sub_relaxed(&generation->keys, recount->before - recount->found);
    return true;
}

void twi_recount_turn(tw_engine *engine) {
    struct twi_recount *recount = &engine->turn.recount;
    uint32_t ended = twi_threads_ended_inside();
    if (recount->serial == 0 && ended == recount->ended_inside) return;
    if (recount->serial == 0) {
        recount->ended_inside = ended; /* threads that end from now on are for the next count */
        begin(engine, next_bounded(engine, NULL));
    }
    const struct tw_family *family = twi_load_acquire(&engine->roster.first);
    while (family != NULL && family->serial != recount->serial) family = twi_load_acquire(&family->entry.next);
    if (family == NULL)
        recount->serial = 0; /* none is left, or it was closed meanwhile */
    else if (continue_count(engine, family))
        begin(engine, next_bounded(engine, family));
}
