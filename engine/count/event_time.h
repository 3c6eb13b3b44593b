/* event_time.h -- decides which windows still accept calls with an event time. */
#ifndef TWI_COUNT_EVENT_TIME_H
#define TWI_COUNT_EVENT_TIME_H

#include "engine/count/call.h"

/* Returns TW_OK if the window of call->unix_ms accepts counts at call->now_ms. TW_ERR_LATE is counted in tw_stats. */
tw_status twi_event_check(const struct twi_call *call);

/* Called if the window was sealed after twi_event_check() (TWI_AGAIN). TW_ERR_LATE means that the call is late from now
 * on, even if its clock is a little behind that of the turn. TWI_AGAIN means that the call decides again. */
tw_status twi_event_after_seal(const struct twi_call *call);

#endif
