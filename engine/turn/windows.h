/* windows.h -- the lists of a family's windows, how the next one is made, and the packing of those that have ended.
 * Windows that have ended stay readable. They are packed, and their tables are given back. Called by the turn. */
#ifndef TWI_TURN_WINDOWS_H
#define TWI_TURN_WINDOWS_H

#include "engine/core/family.h"
#include "tallywheel.h"

/* ---- generation list ----
 * sorted lists of generations, linked by line. One holds a family's windows by their start
 * (rollover.c), the other the windows to be sent by their deadline (collect.c).
 * Threads: only the turn calls these functions. */

/* Which link is used, and the order, in which the smallest comes first. */
struct twi_generation_order {
    uint32_t *(*next)(struct twi_generation *generation);
    int64_t (*at_ms)(const struct twi_generation *generation);
};

/* Sorts the first `count` items of the list and merges them with the others, which are already sorted. Items that
 * are equal keep their order. Returns the first item. */
uint32_t twi_generations_sort(struct twi_arena *arena, const struct twi_generation_order *order, uint32_t list,
                              uint32_t count);

/* ---- rollover parts ----
 * the state of one family's turn. The files of the roll-over share it (rollover.h).
 * Threads: only the turn uses it. */

/* Returns true if every window of the family is in this phase or a later one, as far as the turn has seen. */
static inline bool twi_family_has_reached(const struct tw_family *family, enum twi_phase phase) {
    for (uint32_t line = family->turn.generations; line != 0;) {
        const struct twi_generation *generation = twi_generation_at(&family->engine->arena, line);
        if (twi_load_relaxed(&generation->phase) < (uint32_t)phase) return false;
        line = generation->turn.next_all;
    }
    return true;
}

struct twi_rollover {
    /* Called for a window that is not yet in the family's list. It joins the list; `ctx` is the rollover */
    void (*meet)(void *ctx, struct twi_generation *generation);
    tw_engine *engine;
    struct tw_family *family;
    uint32_t work;   /* how much work is left in this turn */
    int64_t due_ms;  /* engine time */
    int64_t look_ms; /* monotonic */
    bool dropped;
    int64_t over_ms;      /* windows that end at or before this time have ended; this turn uses no later time */
    bool arrives;         /* the present generation has not come to its place in the list yet */
    bool held_up;         /* the hook of an earlier window must be called first */
    bool swept, is_whole; /* the map was searched for windows that are not in the list; the search found none */
};

static inline void twi_rollover_due(struct twi_rollover *rollover, int64_t at_ms) {
    if (at_ms < rollover->due_ms) rollover->due_ms = at_ms;
}
static inline void twi_rollover_look(struct twi_rollover *rollover, int64_t after_ms) {
    int64_t at_ms = rollover->engine->turn.mono_ms + after_ms;
    if (at_ms < rollover->look_ms) rollover->look_ms = at_ms;
}
static inline void twi_rollover_enter(struct twi_generation *generation, enum twi_phase phase) {
    twi_store_release(&generation->phase, (uint8_t)phase);
}

/* A dropped generation is listed first, so that it is in a list if this thread ends in between (recover.c). It is not
 * given back before its stamp. */
static inline void twi_rollover_drop(tw_engine *engine, struct twi_generation *generation) {
    generation->turn.dropped.stamp = TWI_NOT_RETIRED;
    generation->turn.dropped.next = engine->unlinked.generations;
    twi_fence_compiler();
    engine->unlinked.generations = twi_arena_line(&engine->arena, generation);
    twi_rollover_enter(generation, TWI_DROPPED);
}

static inline bool twi_rollover_is_ending(const struct twi_rollover *rollover) {
    return rollover->engine->turn.closing || twi_load_relaxed(&rollover->family->requests.close_requested);
}

/* ---- window next ----
 * the next window of a family. Called by the turn. */

/* From the middle of the present window on, continues to prepare the next window. */
void twi_window_prepare(struct twi_rollover *rollover);
/* Gives up the window that is being prepared. */
void twi_window_abandon(struct twi_rollover *rollover);

struct tw_family;
struct twi_arena;
struct twi_generation;

/* Queues a window for packing. Such a window has ended and stays readable for a while. Called by the turn. */
void twi_history_enter(tw_engine *engine, struct twi_generation *generation);
/* Continues packing, for one turn's work. */
void twi_history_turn(tw_engine *engine, struct tw_family *family);
/* Removes generations whose phase is DROPPED from the packing queue. */
void twi_history_forget_dropped(struct twi_arena *arena, struct tw_family *family);
/* Begins to give back the table of a packed generation, or the records that it has again. No thread uses them. */
void twi_history_begin_shed(tw_engine *engine, struct twi_generation *generation);
/* Continues to give back the table of a packed generation. Returns true when the whole table is given back. */
bool twi_history_shed(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);
/* After a turn that did not end, by the thread that took over: the family has no list of windows to pack, and this
 * window, which is not dropped, enters the list again where it has to. `stamp` is an epoch stamp of now. */
void twi_history_recover(tw_engine *engine, struct twi_generation *generation, uint64_t stamp);
/* Continues to give back the packed forms of a generation. Returns true when all packed forms are given back. */
bool twi_history_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *work);

#endif
