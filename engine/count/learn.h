/* learn.h -- totals that come with the answers of strict limits, and not with a batch.
 * Such a total costs Redis nothing, and is newer than one that a batch would bring. */
#ifndef TWI_COUNT_LEARN_H
#define TWI_COUNT_LEARN_H

#include "tallywheel.h"

/* An answer of Redis. */
struct twi_learnt {
    int64_t start_ms; /* of the window that it is about */
    int64_t total;    /* the units that Redis had */
    int64_t began_ms; /* when the call began; monotonic */
};

/* Returns true if the view here now shows that total. Returns false if a batch must request it: none has come yet, one
 * came while the call was under way, units of this engine are on their way, or Redis has fewer units than before. Not
 * for TW_WINDOW_FROM_FIRST, idle eviction and TW_OUTAGE_SHARE. */
bool twi_learn_total(tw_family *family, tw_key key, const struct twi_learnt *learnt);

#endif
