/* call.h -- one call's arguments, and what is derived from them once: the key is checked and hashed, a section entered, the clock
 * read.
 * Always true: between twi_call_begin() that answered TW_OK and twi_call_end() a section is open. */
#ifndef TWI_COUNT_CALL_H
#define TWI_COUNT_CALL_H

#include "engine/core/family.h"

/* A status of the inside, which no caller is ever answered: the window was sealed, or the clock has moved, since this call looked for
 * its counter. It decides anew. TW_PENDING is an answer: ask again, units may yet come. */
#define TWI_AGAIN ((tw_status)100)

/* Where to count. */
struct twi_place {
    struct twi_generation *generation;
    struct twi_cell *cell;
    uint64_t meta;
    /* families that age: the key's frozen cell, which only shows (idle_eviction.h); NULL: none */
    struct twi_cell *previous;
    struct twi_generation *previous_in;
};

/* One call's arguments and what was derived from them once. */
struct twi_call {
    struct tw_family *family;
    tw_engine *engine;
    struct twi_thread *self;
    struct twi_lookup_key lookup;
    bool decided;     /* the clock has been read once: who comes again met a sealed window */
    bool without_sum; /* the sum is not asked for: a striped counter need not be added up */
    bool at;          /* event time is given: unix_ms decides the window, not the clock */
    int64_t unix_ms;  /* the moment that decides the window */
    int64_t now_ms;   /* engine time */
};

/* TW_OK, or TW_ERR_KEY: size, no data, or one of the engine's own names. */
tw_status twi_call_check_key(const struct tw_family *family, tw_key key);
/* Checks the key, registers the thread, enters a section, and hashes. On any answer but TW_OK no section is open. */
tw_status twi_call_begin(struct twi_call *call, struct tw_family *family, tw_key key);
/* The same where the hash is known; 0: not yet. */
tw_status twi_call_begin_hashed(struct twi_call *call, struct tw_family *family, tw_key key, uint64_t hash);
TWI_INLINE void twi_call_end(const struct twi_call *call) {
    twi_section_leave(call->self);
}
/* Reads the clock, and says if the engine is closed. Before each decision about windows. */
TWI_INLINE tw_status twi_call_now(struct twi_call *call) {
    if (twi_unlikely(twi_load_relaxed(&call->engine->stopped))) {
        if (!call->self->in_hook || call->decided)
            return twi_refuse(TW_ERR_CLOSED, NULL); /* again: tw_close() has sealed the window */
    }
    call->decided = true;
    call->now_ms = twi_clock_now_ms(&call->engine->clock);
    if (!call->at) call->unix_ms = call->now_ms;
    if (twi_unlikely(call->family->evicts_idle))
        call->unix_ms = twi_load_acquire(&call->family->eviction_epoch); /* G5, pairs with G6 */
    return TW_OK;
}

#endif
