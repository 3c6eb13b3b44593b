/* push.h -- the lock-free push onto a list that its reader takes as a whole.
 * Always true: the list grows only at its head, and no thread takes a single item, so there is no ABA problem. The swap
 * releases everything that was written to the item before, including its link. It pairs with the twi_swap_acqrel() or
 * the acquiring load with which the reader takes the list. Before the swap only the pusher uses the item. */
#ifndef TWI_BASE_PUSH_H
#define TWI_BASE_PUSH_H

#include "engine/base/atomic.h"

/* Pushes `item` onto the list that begins at `head`. `link` is a statement that links the item to `older`, the
 * previous head. */
#define twi_push(head, item, older, link) \
    do { \
        (older) = twi_load_relaxed(head); \
        do { \
            link; \
        } while (!twi_cas_weak_acqrel((head), &(older), (item))); \
    } while (0)

#endif
