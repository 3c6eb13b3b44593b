/* refund.h -- tw_refund(): units go back to the window they were taken from. */
#ifndef TWI_REFUND_H
#define TWI_REFUND_H

#include "tallywheel.h"

/* How a limit whose units are counts in cells puts them back (struct twi_limit_kind). */
tw_status twi_refund_count(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms);

#endif
