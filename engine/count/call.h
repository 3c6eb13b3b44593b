/* call.h -- the arguments of one call, and the values that are derived from them once. The key is checked and hashed, a
 * section entered, the clock read.
 * Always true: a section is open from a twi_call_begin() that returned TW_OK to twi_call_end(). */
#ifndef TWI_COUNT_CALL_H
#define TWI_COUNT_CALL_H

#include "engine/core/family.h"

/* An internal status, never returned to a caller. Since this call looked for its counter, the window was sealed or the
 * clock has moved. The call decides again. TW_PENDING, in contrast, is a result. Call again, units may yet come. */
#define TWI_AGAIN ((tw_status)100)

/* Where to count. */
struct twi_place {
    struct twi_generation *generation;
    struct twi_cell *cell;
    uint64_t meta;
    /* idle eviction: the key's frozen cell, which only shows the count (idle_eviction.h); NULL means none */
    struct twi_cell *previous;
    struct twi_generation *previous_in;
};

/* The arguments of one call, and the values that are derived from them once. */
struct twi_call {
    struct tw_family *family;
    tw_engine *engine;
    struct twi_thread *self;
    struct twi_lookup_key lookup;
    bool decided;     /* the clock has been read once; another reading means that a sealed window was met */
    bool without_sum; /* the caller does not need the sum, so a striped counter need not be added up */
    bool at;          /* the caller gives an event time, so unix_ms decides the window, not the clock */
    int64_t unix_ms;  /* the moment that decides the window */
    int64_t now_ms;   /* engine time */
};

/* Returns TW_OK, or TW_ERR_KEY for a wrong size, no data, or one of the engine's own names. */
tw_status twi_call_check_key(const struct tw_family *family, tw_key key);
/* Checks the key, registers the thread, enters a section, and hashes. Unless it returns TW_OK, no section is open. */
tw_status twi_call_begin(struct twi_call *call, struct tw_family *family, tw_key key);
/* The same with a known hash; 0 means not known. */
tw_status twi_call_begin_hashed(struct twi_call *call, struct tw_family *family, tw_key key, uint64_t hash);
/* For a moment that the caller gives. Also refuses families without starts, and moments that no calendar holds. */
tw_status twi_call_begin_at(struct twi_call *call, struct tw_family *family, tw_key key, int64_t unix_ms);
TWI_INLINE void twi_call_end(const struct twi_call *call) {
    twi_section_leave(call->self);
}
/* Looks whether anybody keeps the clock. TW_OK. */
TWI_COLD tw_status twi_call_look(tw_engine *engine);
/* The end of a fast call. `calls` is a count that it has raised. One in so many looks. */
TWI_INLINE tw_status twi_call_over(tw_engine *engine, int64_t calls) {
    return twi_likely((calls & (TWI_CLOCK_LOOK_EVERY - 1)) != 0) ? TW_OK : twi_call_look(engine);
}
/* The same in calls that raise no count. */
TWI_INLINE void twi_call_looks(tw_engine *engine, struct twi_thread *self) {
    (void)twi_call_over(engine, ++self->looks);
}
/* Reads the clock, and checks that the engine is open. Called before each decision about windows. */
TWI_INLINE tw_status twi_call_now(struct twi_call *call) {
    if (twi_unlikely(twi_load_relaxed(&call->engine->life.stopped))) {
        if (!call->self->in_hook || call->decided)
            return twi_refuse(TW_ERR_CLOSED, NULL); /* at the second reading, tw_close() has sealed the window */
    }
    call->decided = true;
    twi_call_looks(call->engine, call->self);
    call->now_ms = twi_clock_now_ms(&call->engine->clock);
    if (!call->at) call->unix_ms = call->now_ms;
    if (twi_unlikely(call->family->kind.evicts_idle))
        call->unix_ms = twi_load_acquire(&call->family->eviction_epoch); /* G5, pairs with G6 */
    return TW_OK;
}

/* After a denial whose cause is over in `in_ms`; -1 means that it is never over. Returns true if by the exact clock it
 * may be over already, or if no thread has kept the time that the call has read. Then twi_call_now() gives that time or
 * a later one, and the call decides again, as if it began now. */
TWI_INLINE bool twi_call_is_behind(struct twi_call *call, int64_t in_ms) {
    struct twi_clock *clock = &call->engine->clock;
    if (in_ms < 0) return false;
    int64_t late_ms = twi_clock_read(clock) - call->now_ms;
    bool is_near = in_ms - late_ms <= clock->near_ms && twi_clock_exact_ms(clock) != call->now_ms;
    if (!is_near && late_ms <= TWI_CLOCK_REFRESH_MS) return false;
    call->decided = false;
    return true;
}

/* Before a key's first units are taken. Returns false if the clocks say that its window is over, and the call decides
 * again. A new key is rare enough to look at them. */
TWI_INLINE bool twi_call_is_current(struct twi_call *call) {
    int64_t now_ms = twi_clock_read(&call->engine->clock);
    if (now_ms == call->now_ms || call->at || call->family->kind.evicts_idle) return true;
    if (call->family->kind.from_first) return now_ms - call->now_ms <= TWI_CLOCK_REFRESH_MS;
    if (now_ms >= twi_calendar_span(&call->family->rule, call->now_ms).end_ms) return false;
    call->now_ms = call->unix_ms = now_ms;
    return true;
}

#endif
