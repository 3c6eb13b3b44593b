/* stripe_words.h -- the functions of stripe.c that a cell needs when it is STRIPED (stripe.h). */
#ifndef TWI_TABLE_STRIPE_WORDS_H
#define TWI_TABLE_STRIPE_WORDS_H

#include <stdbool.h>
#include <stdint.h>

struct twi_cell;

/* Returns the sum of the stripes. Freezes the stripes, so that no thread can add to them (sealing), and returns the
 * sum. Clears DIRTY in each word, and returns the sum (*sealed means that no add can follow). Marks the counter
 * because its total is needed. Returns false if the counter was already marked, or is sealed. */
int64_t twi_stripes_count(struct twi_cell *cell);
int64_t twi_stripes_freeze(struct twi_cell *cell);
int64_t twi_stripes_take_dirty(struct twi_cell *cell, bool *sealed);
bool twi_stripes_mark_requested(struct twi_cell *cell);

#endif
