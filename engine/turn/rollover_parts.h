/* rollover_parts.h -- the state of one family's turn. The files of the roll-over share it (rollover.h).
 * Threads: only the turn uses it. */
#ifndef TWI_TURN_ROLLOVER_PARTS_H
#define TWI_TURN_ROLLOVER_PARTS_H

#include "engine/core/family.h"

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

#endif
