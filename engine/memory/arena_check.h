/* arena_check.h -- the check of a whole arena, for tests and level 3.
 * Always true: it changes nothing. It is exact while no thread takes or gives memory. */
#ifndef TWI_MEMORY_ARENA_CHECK_H
#define TWI_MEMORY_ARENA_CHECK_H

#include "engine/memory/arena.h"

/* Every line is in use, free, in the run of a size, in the reserve, or never used. The sums agree. A run may go over
 * the border of two segments, because pieces that are given back continue it. */
bool twi_arena_is_valid(const struct twi_arena *arena);

#endif
