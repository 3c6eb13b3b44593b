/* call.h -- the arguments of one call, and what is derived from them once: the key is checked and hashed, a section
 * entered, the clock read.
 * Always true: a section is open from a twi_call_begin() that returned TW_OK to twi_call_end(). */
#ifndef TWI_COUNT_CALL_H
#define TWI_COUNT_CALL_H

#include "engine/core/family.h"

/* An internal status, never returned to a caller: since this call looked for its counter, the window was sealed or the
 * clock has moved. The call decides again. TW_PENDING, in contrast, is a result: call again, units may yet come. */
#define TWI_AGAIN ((tw_status)100)

/* Where to count. */
struct twi_place {
    struct twi_generation *generation;
    struct twi_cell *cell;
    uint64_t meta;
    /* idle eviction: the key's frozen cell, which only shows the count (idle_eviction.h); NULL: none */
    struct twi_cell *previous;
    struct twi_generation *previous_in;
};

/* The arguments of one call, and what is derived from them once. */
struct twi_call {
    struct tw_family *family;
    tw_engine *engine;
    struct twi_thread *self;
    struct twi_lookup_key lookup;
    bool decided;     /* the clock has been read once: another reading means that a sealed window was met */
    bool without_sum; /* the caller does not want the sum: a striped counter need not be added up */
    bool at;          /* the caller gives an event time: unix_ms decides the window, not the clock */
    int64_t unix_ms;  /* the moment that decides the window */
    int64_t now_ms;   /* engine time */
};

/* TW_OK, or TW_ERR_KEY: a wrong size, no data, or one of the engine's own names. */
tw_status twi_call_check_key(const struct tw_family *family, tw_key key);
/* Checks the key, registers the thread, enters a section, and hashes. Unless it returns TW_OK, no section is open. */
tw_status twi_call_begin(struct twi_call *call, struct tw_family *family, tw_key key);
/* The same with a known hash; 0: not known. */
tw_status twi_call_begin_hashed(struct twi_call *call, struct tw_family *family, tw_key key, uint64_t hash);
/* For a moment that the caller gives. Also refuses families without starts, and moments that no calendar holds. */
tw_status twi_call_begin_at(struct twi_call *call, struct tw_family *family, tw_key key, int64_t unix_ms);
TWI_INLINE void twi_call_end(const struct twi_call *call) {
    twi_section_leave(call->self);
}
/* Reads the clock, and checks that the engine is open. Called before each decision about windows. */
TWI_INLINE tw_status twi_call_now(struct twi_call *call) {
    if (twi_unlikely(twi_load_relaxed(&call->engine->life.stopped))) {
        if (!call->self->in_hook || call->decided)
            return twi_refuse(TW_ERR_CLOSED, NULL); /* second reading: tw_close() has sealed the window */
    }
    call->decided = true;
    call->now_ms = twi_clock_now_ms(&call->engine->clock);
    if (!call->at) call->unix_ms = call->now_ms;
    if (twi_unlikely(call->family->kind.evicts_idle))
        call->unix_ms = twi_load_acquire(&call->family->eviction_epoch); /* G5, pairs with G6 */
    return TW_OK;
}

/* After a denial whose cause is over in `in_ms`; -1: it is never over. True: by the exact clock it may be over already.
 * Then twi_call_now() gives that time or a later one, and the call decides again, as if it began now. */
TWI_INLINE bool twi_call_is_behind(struct twi_call *call, int64_t in_ms) {
    struct twi_clock *clock = &call->engine->clock;
    if (in_ms < 0 || in_ms > clock->near_ms || twi_clock_exact_ms(clock) == call->now_ms) return false;
    call->decided = false;
    return true;
}

#endif
