/* grow.h -- arrays that grow by doubling. An array is a pointer from malloc(), or NULL, and `room`, the number of
 * elements for which it has memory. Always true: a failure does not change the array. New elements are undefined. */
#ifndef TWI_BASE_GROW_H
#define TWI_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes room for `wanted` elements of `element_bytes`. The first size is `first`, and it doubles until it is enough.
 * `array` is the address of the pointer, which may have any type. The elements may move. Returns false if there is
 * no memory. */
bool twi_grow(void *array, size_t element_bytes, uint32_t *room, size_t wanted, uint32_t first);

#endif
