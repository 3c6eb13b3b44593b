/* hold.h -- tw_hold(): which families it is for, with and without Redis.
 * Always true: a family's kind (takes_holds) says the same from its opening on. */
#ifndef TWI_RESERVE_HOLD_H
#define TWI_RESERVE_HOLD_H

#include "tallywheel.h"

/* Returns why a family with these options is not for tw_hold(), or NULL if it is. */
const char *twi_hold_refusal(const tw_family *family, const tw_family_options *options);

#endif
