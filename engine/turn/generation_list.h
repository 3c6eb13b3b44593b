/* generation_list.h -- lists of generations, linked by line, that are kept in an order, which are a family's windows by
 * their start (rollover.c), and those that are to be sent by their deadline (collect.c).
 * Threads: the turn only. */
#ifndef TWI_TURN_GENERATION_LIST_H
#define TWI_TURN_GENERATION_LIST_H

#include "engine/core/family.h"

/* Which link is used, and the order, where the smallest is first. */
struct twi_generation_order {
    uint32_t *(*next)(struct twi_generation *generation);
    int64_t (*at_ms)(const struct twi_generation *generation);
};

/* Sorts the first `count` items of the list and merges them with the others, which are in order. Of equal ones, those
 * that are first in the list stay first. Returns the first item. */
uint32_t twi_generations_sort(struct twi_arena *arena, const struct twi_generation_order *order, uint32_t list,
                              uint32_t count);

#endif
