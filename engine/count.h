/* count.h -- from a family and a key to the cell to count in: what tw_add, tw_get and tw_acquire have in common.
 * Always true: all of it runs inside a section; a cell that is answered has been published (table.h, T9). */
#ifndef TWI_COUNT_H
#define TWI_COUNT_H

#include "engine/dirty.h"
#include "engine/family.h"

/* Where to count. */
struct twi_place {
    struct twi_generation *generation;
    struct twi_cell *cell;
    uint64_t meta;
    /* families that age: the key's frozen cell, which only shows (ageing.h); NULL: none */
    struct twi_cell *aged;
    struct twi_generation *aged_in;
};

/* One call's arguments and what was derived from them once. */
struct twi_call {
    struct tw_family *family;
    tw_engine *engine;
    struct twi_thread *self;
    struct twi_wanted wanted;
    bool decided;    /* the clock has been read once: who comes again met a sealed window */
    bool blind;      /* the sum is not asked for: a striped counter need not be added up */
    bool at;         /* event time is given: unix_ms decides the window, not the clock */
    int64_t unix_ms; /* the moment that decides the window */
    int64_t now_ms;  /* engine time */
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
    if (twi_unlikely(call->family->ages)) call->unix_ms = twi_load_acquire(&call->family->era); /* G5, pairs with G6 */
    return TW_OK;
}

/* The live cell of families from first: this generation's, or the one before's, or a later life (table.h). */
bool twi_place_find_life(const struct twi_call *call, struct twi_place *place);

/* ageing.c: the cell that takes the key's adds, of the current generation or of the previous one. False: there is none; then
 * place->aged is the frozen cell in the previous one that still shows the count, or NULL. */
bool twi_ageing_find(const struct twi_call *call, struct twi_place *place);

/* The key's cell in the call's window, or false. place->generation is the window's, or NULL if it is not held. */
TWI_INLINE bool twi_place_find(const struct twi_call *call, struct twi_place *place) {
    struct tw_family *family = call->family;
    place->generation = twi_window_at(family, call->unix_ms, !call->at);
    if (twi_unlikely(family->from_first)) return twi_place_find_life(call, place);
    if (twi_unlikely(family->ages)) return twi_ageing_find(call, place);
    if (twi_unlikely(place->generation == NULL)) return false;
    /* Event time only: by the clock nobody comes to a window that is over for good (docs/CONCURRENCY.md). */
    if (twi_unlikely(call->at) && twi_generation_is_packed(place->generation)) return false;
    place->cell = twi_table_find(&call->engine->arena, place->generation, &call->wanted);
    if (twi_unlikely(place->cell == NULL)) return false;
    place->meta = twi_cell_publish(place->cell);
    return true;
}

/* Makes the key's cell (or finds that somebody has). TW_OK; TW_ERR_FULL (place->generation may be set: its overflow
 * counter can take the count); TW_PENDING: the clock has moved or the window was sealed, decide again. */
tw_status twi_place_make(struct twi_call *call, struct twi_place *place);

/* What a window that is held shows of the call's key: by its table, or by what was packed of it. Inside a section. */
int64_t twi_view_in(const struct twi_call *call, struct twi_generation *generation);

/* One add of a call that has begun: into the window of the clock, or of its event time (api.c). Inside a section. */
tw_status twi_add_call(struct twi_call *call, int64_t delta, int64_t *view);

/* After an add that returned `before`. */
TWI_INLINE void twi_place_mark(const struct twi_call *call, const struct twi_place *place, uint64_t before) {
    if ((before & TWI_DIRTY) == 0 && call->family->synced)
        twi_dirty_mark(call->engine, place->generation, place->cell, place->meta);
}

/* With Redis: sees to it that the key's total comes with a later collection. Once per collection and key: DIRTY stays until
 * then. */
void twi_place_ask(const struct twi_call *call, const struct twi_place *place);

/* Adds to the counter, wherever it counts, and marks it. *local: the sum after it, unless the call is blind. */
enum twi_added twi_place_add(const struct twi_call *call, const struct twi_place *place, int64_t delta, int64_t *local);

#endif
