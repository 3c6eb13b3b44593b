/* grow.h -- arrays that grow by doubling, a lock-free push, and results of any size. An array is a pointer from
 * malloc(), or NULL, and `room`, the number of elements for which it has memory. Always true: a failure does not
 * change the array. New elements are undefined. */
#ifndef TWI_BASE_GROW_H
#define TWI_BASE_GROW_H

#include "engine/base/atomic.h"
#include "engine/base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Makes room for `wanted` elements of `element_bytes`. The first size is `first`, and it doubles until it is enough.
 * `array` is the address of the pointer, which may have any type. The elements may move. Returns false if there is
 * no memory. */
bool twi_grow(void *array, size_t element_bytes, uint32_t *room, size_t wanted, uint32_t first);

/* ---- push ----
 * the lock-free push onto a list that its reader takes as a whole.
 * Always true: the list grows only at its head, and no thread takes a single item, so there is no ABA problem. The swap
 * releases everything that was written to the item before, including its link. It pairs with the twi_swap_acqrel() or
 * the acquiring load with which the reader takes the list. Before the swap only the pusher uses the item. */

/* Pushes `item` onto the list that begins at `head`. `link` is a statement that links the item to `older`, the
 * previous head. */
#define twi_push(head, item, older, link) \
    do { \
        (older) = twi_load_relaxed(head); \
        do { \
            link; \
        } while (!twi_cas_weak_acqrel((head), &(older), (item))); \
    } while (0)

/* ---- sized ----
 * results in a struct of the caller. The caller may have an older or a newer header.
 * Always true: every byte of the caller's struct is written, and no byte beyond it. Fields that the library does not
 * have become 0. */

TWI_INLINE void twi_sized_copy(void *out, size_t out_bytes, const void *whole, size_t whole_bytes) {
    size_t known = out_bytes < whole_bytes ? out_bytes : whole_bytes;
    memcpy(out, whole, known);
    memset((char *)out + known, 0, out_bytes - known);
}

#endif
