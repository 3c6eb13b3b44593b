/* lookup.h -- finds the cell to count in from a family and a key, which is the common part of tw_add(), tw_get() and
 * tw_acquire().
 * Always true: all of it runs inside a section, and a cell that it returns is published (T9, table.c). */
#ifndef TWI_COUNT_LOOKUP_H
#define TWI_COUNT_LOOKUP_H

#include "engine/count/call.h"
#include "engine/count/dirty.h"
#include "engine/count/idle_lookup.h"
#include "engine/core/window_map.h"

/* The live cell of a key in TW_WINDOW_FROM_FIRST families. It is in this generation or the previous one, or a second
 * incarnation (layout.h). */
bool twi_place_find_incarnation(const struct twi_call *call, struct twi_place *place);

/* Finds the key's cell in the call's window. place->generation is the window's generation, or NULL if it is not
 * held. */
TWI_INLINE bool twi_place_find(const struct twi_call *call, struct twi_place *place) {
    struct tw_family *family = call->family;
    place->generation = twi_window_at(family, call->unix_ms, !call->at);
    if (twi_unlikely(family->kind.from_first)) return twi_place_find_incarnation(call, place);
    if (twi_unlikely(family->kind.evicts_idle)) return twi_idle_find(call, place);
    if (twi_unlikely(place->generation == NULL)) return false;
    /* Only with event time. By the clock, no call reaches a window that is over permanently (docs/CONCURRENCY.md). */
    if (twi_unlikely(call->at) && twi_generation_is_packed(place->generation)) return false;
    place->cell = twi_table_find(&call->engine->arena, place->generation, &call->lookup);
    if (twi_unlikely(place->cell == NULL)) return false;
    place->meta = twi_cell_publish(place->cell);
    return true;
}

/* Makes the key's cell, or finds the one that another thread made. TW_ERR_FULL means place->generation may be set; then
 * its overflow counter can take the count. TWI_AGAIN means that the clock has moved or the window was sealed, so decide
 * again. */
tw_status twi_place_make(struct twi_call *call, struct twi_place *place);

/* The same for a call by the clock whose look-up did not find its key in a window. The caller has read the clock after
 * it had found the window, which held that moment. Not for TW_WINDOW_FROM_FIRST families and idle eviction. */
enum twi_found twi_place_insert(const struct twi_insert *insert, struct twi_cell **cell);

/* True means enough memory and keys are left for reading an unknown key to make a counter (trap E41). */
bool twi_may_take_interest(const struct twi_call *call);

/* The view of the call's key in a window that is held, from its table or its packed form. Inside a section. */
int64_t twi_view_in(const struct twi_call *call, struct twi_generation *generation);

/* The window at unix_ms is not held. TW_OK means that it may be empty; TW_ERR_LATE means that it is over
 * permanently. */
tw_status twi_absent_window_status(struct tw_family *family, int64_t unix_ms, int64_t now_ms);

/* Marks the counter after an add that returned `before`. */
TWI_INLINE void twi_place_mark(const struct twi_call *call, const struct twi_place *place, uint64_t before) {
    if ((before & TWI_DIRTY) == 0 && call->family->kind.synced)
        twi_dirty_mark(call->engine, place->generation, place->cell, place->meta);
}

/* With Redis, makes a later collection request the key's total. It does so once per collection and key, because DIRTY
 * stays until then. */
void twi_place_request_total(const struct twi_call *call, const struct twi_place *place);

/* Adds to the counter, wherever it counts, and marks it. *local becomes the sum after the add, unless without_sum is
 * set. */
enum twi_added twi_place_add(const struct twi_call *call, const struct twi_place *place, int64_t delta, int64_t *local);

#endif
