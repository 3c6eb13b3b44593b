/* generation_list.h -- sorted lists of generations, linked by line. One holds a family's windows by their start
 * (rollover.c), the other the windows to be sent by their deadline (collect.c).
 * Threads: only the turn calls these functions. */
#ifndef TWI_TURN_GENERATION_LIST_H
#define TWI_TURN_GENERATION_LIST_H

#include "engine/core/family.h"

/* Which link is used, and the order, in which the smallest comes first. */
struct twi_generation_order {
    uint32_t *(*next)(struct twi_generation *generation);
    int64_t (*at_ms)(const struct twi_generation *generation);
};

/* Sorts the first `count` items of the list and merges them with the others, which are already sorted. Items that
 * are equal keep their order. Returns the first item. */
uint32_t twi_generations_sort(struct twi_arena *arena, const struct twi_generation_order *order, uint32_t list,
                              uint32_t count);

#endif
