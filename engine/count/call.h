/* call.h -- the arguments of one call, and the values that are computed from them once. At its beginning the key is
 * checked and hashed, a section is entered, and the clock is read.
 * Always true: a section is open from a twi_call_begin() that returned TW_OK until twi_call_end(). */
#ifndef TWI_COUNT_CALL_H
#define TWI_COUNT_CALL_H

#include "engine/core/family.h"

/* An internal status, never returned to a caller. It means that, since this call looked for its counter, the window
 * was sealed or the clock has moved. The call then decides again. TW_PENDING is different: it is a result, and means
 * that units may still arrive, so the caller should call again. */
#define TWI_AGAIN ((tw_status)100)

/* Where to count. */
struct twi_place {
    struct twi_generation *generation;
    struct twi_cell *cell;
    uint64_t meta;
    /* idle eviction: the frozen cell of the key, which only shows the count (idle_eviction.h); NULL means none */
    struct twi_cell *previous;
    struct twi_generation *previous_in;
};

/* The arguments of one call, and the values that are computed from them once. */
struct twi_call {
    struct tw_family *family;
    tw_engine *engine;
    struct twi_thread *self;
    struct twi_lookup_key lookup;
    bool decided;     /* the clock has been read once; a second reading means that the call has found a sealed window */
    bool without_sum; /* the caller does not need the sum, so the stripes of a counter need not be added up */
    bool at;          /* the caller gives an event time, so unix_ms decides the window instead of the clock */
    bool undoes;      /* takes back what an earlier part of the call has counted, also after tw_stop() */
    int64_t unix_ms;  /* the moment that decides the window */
    int64_t now_ms;   /* engine time */
};

/* Returns TW_OK. Returns TW_ERR_KEY for a wrong size, missing data, or one of the engine's own names. */
tw_status twi_call_check_key(const struct tw_family *family, tw_key key);
/* Checks the key, registers the thread, enters a section, and hashes. Unless it returns TW_OK, no section is open. */
tw_status twi_call_begin(struct twi_call *call, struct tw_family *family, tw_key key);
/* Does the same with a known hash; 0 means that the hash is not known. */
tw_status twi_call_begin_hashed(struct twi_call *call, struct tw_family *family, tw_key key, uint64_t hash);
/* The same for a moment that the caller gives. It refuses families without starts, and moments outside the calendar. */
tw_status twi_call_begin_at(struct twi_call *call, struct tw_family *family, tw_key key, int64_t unix_ms);
TWI_INLINE void twi_call_end(const struct twi_call *call) {
    twi_section_leave(call->self);
}
/* Checks whether a thread keeps the clock. Returns TW_OK. It is not `cold`, because gcc would take all code before a
 * return behind such a call for cold, and make it small. */
__attribute__((noinline)) tw_status twi_call_look(tw_engine *engine, int64_t calls);
/* Called at the end of a fast call. `calls` is a count that it has raised. One in so many calls looks at the clock. */
TWI_INLINE tw_status twi_call_over(tw_engine *engine, int64_t calls) {
    return twi_likely((calls & (TWI_CLOCK_LOOK_EVERY - 1)) != 0) ? TW_OK : twi_call_look(engine, calls);
}
/* Does the same in calls that raise no count. */
TWI_INLINE void twi_call_looks(tw_engine *engine, struct twi_thread *self) {
    (void)twi_call_over(engine, ++self->looks);
}
/* The same for n calls at once. */
TWI_INLINE void twi_call_looks_for(tw_engine *engine, struct twi_thread *self, uint32_t n) {
    uint32_t before = self->looks, rest = TWI_CLOCK_LOOK_EVERY - before % TWI_CLOCK_LOOK_EVERY;
    self->looks += n;
    if (n >= rest) (void)twi_call_look(engine, before + rest);
}
/* Checks that the engine is open, for a call that needs no time. Called before each decision. */
TWI_INLINE tw_status twi_call_goes_on(struct twi_call *call) {
    if (twi_unlikely(twi_load_relaxed(&call->engine->life.stopped))) {
        /* until tw_close() seals all windows, what a call has counted can be taken back */
        bool may = call->undoes ? !call->engine->turn.closing : call->self->in_hook && !call->decided;
        if (!may) return twi_refuse(TW_ERR_CLOSED, NULL); /* at the second reading, tw_close() has sealed the window */
    }
    call->decided = true;
    twi_call_looks(call->engine, call->self);
    return TW_OK;
}
/* The same, and reads the clock. Called before each decision about windows. */
TWI_INLINE tw_status twi_call_now(struct twi_call *call) {
    tw_status status = twi_call_goes_on(call);
    if (twi_unlikely(status != TW_OK)) return status;
    call->now_ms = twi_clock_now_ms(&call->engine->clock);
    if (!call->at) call->unix_ms = call->now_ms;
    if (twi_unlikely(call->family->kind.evicts_idle))
        call->unix_ms = twi_load_acquire(&call->family->eviction_epoch); /* G5, pairs with G6 */
    return TW_OK;
}

/* Called after a denial whose cause ends in `in_ms`; -1 means that it never ends. Returns true if by the exact clock
 * the cause may have ended already, or if no thread has kept the time that the call has read. Then twi_call_now()
 * gives that time or a later one, and the call decides again, as if it began now. */
TWI_INLINE bool twi_call_is_behind(struct twi_call *call, int64_t in_ms) {
    struct twi_clock *clock = &call->engine->clock;
    if (in_ms < 0) return false;
    int64_t late_ms = twi_clock_read(clock) - call->now_ms;
    bool is_near = in_ms - late_ms <= clock->near_ms && twi_clock_exact_ms(clock) != call->now_ms;
    if (!is_near && late_ms <= TWI_CLOCK_REFRESH_MS) return false;
    call->decided = false;
    return true;
}

/* Called before the first units of a key are taken. Returns false if the clocks show that the window of the call has
 * ended. The call then decides again. New keys are so rare that the call can look at the clocks. */
TWI_INLINE bool twi_call_is_current(struct twi_call *call) {
    int64_t now_ms = twi_clock_read(&call->engine->clock);
    if (now_ms == call->now_ms || call->at || call->family->kind.evicts_idle) return true;
    if (call->family->kind.from_first) return now_ms - call->now_ms <= TWI_CLOCK_REFRESH_MS;
    if (now_ms >= twi_calendar_span(&call->family->rule, call->now_ms).end_ms) return false;
    call->now_ms = call->unix_ms = now_ms;
    return true;
}

/* ---- event time ----
 * decides which windows still accept calls with an event time. */

/* Returns TW_OK if the window of call->unix_ms accepts counts at call->now_ms. TW_ERR_LATE is counted in tw_stats. */
tw_status twi_event_check(const struct twi_call *call);

/* Called if the window was sealed after twi_event_check() (TWI_AGAIN). TW_ERR_LATE means that the call is late from now
 * on, even if its clock is a little behind that of the turn. TWI_AGAIN means that the call decides again. */
tw_status twi_event_after_seal(const struct twi_call *call);

#endif
