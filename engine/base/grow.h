/* grow.h -- arrays that grow by doubling. An array is a pointer from malloc() or NULL, and `room`, which is how many
 * elements it has memory for. Always true: a failure does not change the array. New elements are not initialised. */
#ifndef TWI_BASE_GROW_H
#define TWI_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes room for `wanted` elements of `element_bytes`, at first for `first`, then twice as many until they suffice.
 * `array` is the address of the pointer, of whatever type; the elements may move. Returns false if there is no
 * memory. */
bool twi_grow(void *array, size_t element_bytes, uint32_t *room, size_t wanted, uint32_t first);

#endif
