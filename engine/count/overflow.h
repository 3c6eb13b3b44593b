/* overflow.h -- counts of keys that have no counter, because there was no room: in the overflow counter of the window,
 * and in a family with `takes_guests` also by key (table/guests.h).
 * Each unit of a guest is in the overflow counter, too. So a guest that is given up takes no unit with it, and the sum
 * of all counters with the overflow counter is what was counted (P1).
 * Always true: all of these functions run inside a section, and the key has no counter in the window. */
#ifndef TWI_COUNT_OVERFLOW_H
#define TWI_COUNT_OVERFLOW_H

#include "engine/count/lookup.h"

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

#endif
