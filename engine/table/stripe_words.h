/* stripe_words.h -- what a cell that is STRIPED asks of its stripes (stripe.h). */
#ifndef TWI_TABLE_STRIPE_WORDS_H
#define TWI_TABLE_STRIPE_WORDS_H

#include <stdbool.h>
#include <stdint.h>

struct twi_cell;

/* What the stripes hold; the same, and no more is added to them (sealing); the same,
 * and their DIRTY is cleared (*sealed: nothing can follow); by who wants the total: marks it, false if it was. */
int64_t twi_stripes_count(struct twi_cell *cell);
int64_t twi_stripes_freeze(struct twi_cell *cell);
int64_t twi_stripes_take_dirty(struct twi_cell *cell, bool *sealed);
bool twi_stripes_mark_requested(struct twi_cell *cell);

#endif
