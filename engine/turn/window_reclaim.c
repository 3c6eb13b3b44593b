/* window_reclaim.c -- gives back the memory of dropped windows, in bounded pieces.
 * Always true: the memory is reused no sooner than one grace period after its window was unlinked and one more after
 * it was hidden, and not while a thread reads the window. */
#include "engine/turn/window_reclaim.h"

#include "engine/core/window_map.h"
#include "engine/count/contention.h"
#include "engine/count/dirty.h"
#include "engine/turn/lease_renewal.h"
#include "engine/limit/overshoot.h"
#include "engine/limit/share.h"
#include "engine/turn/history.h"

/* Called when the first grace period is over. No thread has the generation from the map any more, so no thread can
 * make it `current` again. A thread that began after the generation was unlinked may have it from `current`, even if
 * `current` is another one by now. So the generation always waits for a second grace period. */
static void hide(struct twi_generation *generation) {
    twi_check(!generation->turn.dropped.is_hidden);
    struct tw_family *family = generation->family;
    if (twi_load_acquire(&family->current) == generation) twi_store_release(&family->current, &twi_generation_none);
    generation->turn.dropped.stamp = TWI_NOT_RETIRED;
    twi_fence_compiler();
    generation->turn.dropped.is_hidden = true;
    generation->turn.dropped.stamp = twi_epoch_stamp();
}

/* Gives back all but the generation itself. is_walked means that some generation is held. */
static bool empty(tw_engine *engine, struct twi_generation *generation, bool is_walked, uint32_t *work) {
    twi_check(twi_load_relaxed(&generation->phase) == TWI_DROPPED);
    if (!generation->turn.dropped.is_hidden) {
        hide(generation);
        engine->turn.reclaimed = true; /* the next turn looks again without a wait */
        return false;
    }
    if (is_walked && twi_threads_hold(generation, 0)) return false;
    /* The generation is kept, because it is or soon will be on the list of arrivals, or a reply names it. */
    if (!generation->turn.announced || generation->turn.outstanding != 0) return false;
    /* An adder that stopped between DIRTY and its marks may have listed the generation after it was drained. */
    if (generation->turn.pending || twi_load_acquire(&generation->marks.listed) != 0)
        twi_dirty_forget(engine, generation);
    if (!twi_history_unmake(&engine->arena, generation, work)) return false;
    twi_contention_forget(engine, generation);
    twi_leases_forget(engine, generation);
    twi_share_forget(engine, generation);
    twi_overshoot_forget(engine, generation);
    return twi_table_empty(&engine->arena, generation, work);
}

static void reclaim_maps(tw_engine *engine, uint64_t reached) {
    if (engine->unlinked.maps != 0 && engine->unlinked.maps_stamp < reached) {
        while (engine->unlinked.maps != 0) {
            uint32_t line = engine->unlinked.maps, lines = twi_window_map_lines(&engine->arena, line);
            engine->unlinked.maps = twi_window_map_next(&engine->arena, line);
            twi_arena_give(&engine->arena, line, lines);
        }
    }
    if (engine->unlinked.maps == 0 && twi_load_relaxed(&engine->unlinked.new_maps) != 0) {
        engine->unlinked.maps_stamp = UINT64_MAX;
        engine->unlinked.maps = twi_swap_acqrel(&engine->unlinked.new_maps, 0);
        engine->unlinked.maps_stamp = twi_epoch_stamp();
        engine->turn.reclaimed = true;
    }
}

void twi_window_reclaim(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    engine->turn.reclaimed = false;
    if (engine->unlinked.generations == 0 && engine->unlinked.maps == 0 &&
        twi_load_relaxed(&engine->unlinked.new_maps) == 0)
        return;
    uint64_t reached = twi_epoch_reached();
    bool is_walked = twi_threads_hold(NULL, 0); /* what may be given back now gets no new holds */
    uint32_t work = 4 * TWI_WORK_TURN, *link = &engine->unlinked.generations;
    while (*link != 0 && work != 0) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, *link);
        if (generation->turn.dropped.stamp < reached && empty(engine, generation, is_walked, &work)) {
            /* If this thread ends in between, it leaks some hundred bytes. Nothing is ever given back twice. */
            *link = generation->turn.dropped.next;
            generation->family->turn.held--;
            twi_table_give(&engine->arena, generation);
        } else {
            link = &generation->turn.dropped.next;
        }
    }
    reclaim_maps(engine, reached);
    engine->turn.reclaimed = engine->turn.reclaimed || work != 4 * TWI_WORK_TURN;
}
