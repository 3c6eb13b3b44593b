/* distinct.h -- the slower way of tw_distinct_add(), which the fast path (distinct_fast.h) leaves to distinct.c. */
#ifndef TWI_COUNT_DISTINCT_H
#define TWI_COUNT_DISTINCT_H

#include "tallywheel.h"

/* Does tw_distinct_add() in every case. Refuses families of other kinds. */
tw_status twi_distinct_add_slow(tw_family *family, tw_key key, tw_key element, bool *changed);

#endif
