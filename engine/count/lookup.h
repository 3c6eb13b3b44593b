/* lookup.h -- finds the cell in which a key of a family is counted. tw_add(), tw_get() and tw_acquire() use it.
 * Always true: all of these functions run inside a section, and a cell that they return is published (T9, table.c). */
#ifndef TWI_COUNT_LOOKUP_H
#define TWI_COUNT_LOOKUP_H

#include "engine/count/call.h"
#include "engine/count/dirty.h"
#include "engine/core/window_map.h"
#include "engine/table/guests.h"
#include "tallywheel.h"

/* ---- idle lookup ----
 * with idle eviction, finds a key in two generations, and makes it in the current one (idle_eviction.c
 * has the picture). Callers and the turn call these functions inside a section.
 * Always true: at most one cell of a key accepts adds (G1). */

/* Finds the cell that accepts adds to the key, in the current or the previous generation. Returns false if there is no
 * such cell. Then place->previous is the frozen cell in the previous generation that still shows the count, or NULL. */
bool twi_idle_find(const struct twi_call *call, struct twi_place *place);
/* Makes the cell of the key, like twi_place_make(). The new cell inherits the values of the frozen cell of the key. */
tw_status twi_idle_make(struct twi_call *call, struct twi_place *place);
/* Inserts the key, with the values of `frozen` (or NULL). */
enum twi_found twi_idle_insert(struct twi_generation *generation, struct twi_thread *self, struct twi_lookup_key lookup,
                               struct twi_generation *before, struct twi_cell *frozen, struct twi_cell **cell);
/* Returns the generation of the previous epoch. NULL means that it no longer exists. */
struct twi_generation *twi_idle_before(struct tw_family *family, int64_t eviction_epoch);
/* Returns the units that are still unsent in the frozen cell that this cell has replaced. */
int64_t twi_idle_unsent(struct twi_generation *generation, struct twi_cell *cell, uint64_t meta);
/* Returns the lookup key for the key of a cell, to find the key in another generation. */
struct twi_lookup_key twi_idle_lookup_key(struct twi_hashing *hashing, struct twi_cell *cell);

/* Finds the live cell of a key in a TW_WINDOW_FROM_FIRST family. The cell is in this generation or the previous one,
 * or it is a second incarnation (layout.h). */
bool twi_place_find_incarnation(const struct twi_call *call, struct twi_place *place);

/* Finds the key's cell in the call's window. place->generation is the generation of that window, or NULL if it does
 * not exist here. */
TWI_INLINE bool twi_place_find(const struct twi_call *call, struct twi_place *place) {
    struct tw_family *family = call->family;
    place->generation = twi_window_at(family, call->unix_ms, !call->at);
    if (twi_unlikely(family->kind.from_first)) return twi_place_find_incarnation(call, place);
    if (twi_unlikely(family->kind.evicts_idle)) return twi_idle_find(call, place);
    if (twi_unlikely(place->generation == NULL)) return false;
    /* Only with event time: by the clock no call comes to such a window (docs/CONCURRENCY.md). */
    if (twi_unlikely(call->at) && twi_generation_is_packed(place->generation)) return false;
    place->cell = twi_table_find(&call->engine->arena, place->generation, &call->lookup);
    if (twi_unlikely(place->cell == NULL)) return false;
    place->meta = twi_cell_publish(place->cell);
    return true;
}

/* Makes the key's cell, or finds the one that another thread has made. After TW_ERR_FULL place->generation may be
 * set. Then its overflow counter can be used. TWI_AGAIN means that the clock has moved or the window was sealed, so
 * the caller decides again. */
tw_status twi_place_make(struct twi_call *call, struct twi_place *place);

/* Does the same for a call by the clock that did not find its key in a window. The caller has read the clock after it
 * found the window, and the window contained that moment. Not for TW_WINDOW_FROM_FIRST and idle eviction. */
enum twi_found twi_place_insert(const struct twi_insert *insert, struct twi_cell **cell);

/* Returns true if enough memory and keys are left, so that reading an unknown key may make a counter (trap E41). */
bool twi_may_take_interest(const struct twi_call *call);

/* Returns the view of the call's key in a window here, from its table or its packed form. Call it inside a section. */
int64_t twi_view_in(const struct twi_call *call, struct twi_generation *generation);

/* Returns the status of a call for a window at unix_ms that does not exist here. TW_OK means that the window may be
 * empty. TW_ERR_LATE means that it has ended permanently. */
tw_status twi_absent_window_status(struct tw_family *family, int64_t unix_ms, int64_t now_ms);

/* ---- guests ----
 * keys that came when their window was full (table/guests.h), in families with `takes_guests`. */

/* Returns true if the window is full and has guests. */
TWI_INLINE bool twi_guest_may_be(const struct tw_family *family, struct twi_generation *generation) {
    return twi_unlikely(family->kind.takes_guests) && generation != NULL && twi_guests_have_come(generation);
}
/* Called when there was no room for the key's counter. Returns true if the window has guests from now on. */
bool twi_guest_begins(const struct twi_call *call, struct twi_generation *generation);
/* Returns the units of the guest that are known; 0 if it is none. */
int64_t twi_guest_view(const struct twi_call *call, struct twi_generation *generation);

/* Marks the counter after an add that returned `before`. */
TWI_INLINE void twi_place_mark(const struct twi_call *call, const struct twi_place *place, uint64_t before) {
    if ((before & TWI_DIRTY) == 0 && call->family->kind.synced)
        twi_dirty_mark(call->engine, place->generation, place->cell, place->meta);
}

/* ---- overflow ----
 * counts of keys that have no counter, because there was no room: in the overflow counter of the window, and in a
 * family with `takes_guests` also by key.
 * Each unit of a guest is in the overflow counter, too. So a guest that is given up takes no unit with it, and the sum
 * of all counters with the overflow counter is what was counted (P1).
 * Always true: the key has no counter in the window. */

/* Adds to the overflow counter of place->generation. Returns TW_OVERFLOWED. TWI_AGAIN means that the window was sealed.
 * `is_first` means that the key has probably not come before. *view becomes the count of the overflow counter. */
tw_status twi_overflow_add(struct twi_call *call, struct twi_place *place, int64_t delta, bool is_first, int64_t *view);
/* Adds n to the guest, if it then has 0 to `most` units, and to the overflow counter of place->generation. Returns
 * TW_DENIED above `most`, TW_ERR_RANGE below 0, TW_ERR_FULL if there is no place or the place cannot hold so many
 * units, or what twi_overflow_add() returns. *view becomes the count after the call. */
tw_status twi_guest_add(struct twi_call *call, struct twi_place *place, int64_t n, int64_t most, int64_t *view);
/* The units are in the overflow counter already, or leave it with another call. Only what is known of the guest
 * changes, and no error is possible. */
void twi_guest_note(const struct twi_call *call, struct twi_generation *generation, int64_t n);

/* With Redis, lets a later collection request the key's total. This happens once for each collection and key,
 * because DIRTY stays until then. */
void twi_place_request_total(const struct twi_call *call, const struct twi_place *place);

/* Adds to the counter, in whatever form it counts, and marks it. *local becomes the sum after the add, unless
 * without_sum is set. */
enum twi_added twi_place_add(const struct twi_call *call, const struct twi_place *place, int64_t delta, int64_t *local);

/* ---- learn ----
 * totals that come with the answers of strict limits, and not with a batch.
 * Such a total costs Redis nothing, and is newer than one that a batch would bring. */

/* An answer of Redis. */
struct twi_learnt {
    int64_t start_ms; /* of the window that it is about */
    int64_t total;    /* the units that Redis had */
    int64_t began_ms; /* when the call began; monotonic */
};

/* Returns true if the view here now shows that total. Returns false if a batch must request it: none has come yet, one
 * came while the call was under way, units of this engine are on their way, or Redis has fewer units than before. Not
 * for TW_WINDOW_FROM_FIRST, idle eviction and TW_OUTAGE_SHARE. */
bool twi_learn_total(tw_family *family, tw_key key, const struct twi_learnt *learnt);

#endif
