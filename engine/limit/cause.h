/* cause.h -- why a call was not admitted (enum tw_cause), and when it is worth asking again.
 * Always true: only cause.c and decision.h write `cause`. It is 0 in the verdict of an admitted call. In an outage, and
 * if the way is full, nobody knows what is left, and `remaining` is 0. What is not exact is 1 ms to a minute. */
#ifndef TWI_LIMIT_CAUSE_H
#define TWI_LIMIT_CAUSE_H

#include "engine/core/family.h"

static_assert(TW_CAUSE_NEVER == TWI_CAUSES - 1, "the last one");
/* The words of the causes, as metrics have them. */
extern const char *const twi_cause_words[TWI_CAUSES];

#define TWI_AGAIN_MAX_MS 60000 /* no caller waits longer for what nobody can know */

/* The call is not admitted. `retry_ms` is exact for TW_CAUSE_LIMIT, and does not matter for TW_CAUSE_NEVER. A buyer who
 * has bought has -1; otherwise it is a time after which asking is worth it. */
void twi_verdict_deny(tw_verdict *verdict, uint32_t cause, int64_t retry_ms);
/* The same for TW_CAUSE_OUTAGE, TW_CAUSE_BUSY or TW_CAUSE_FULL: nobody knows when the call would be admitted. */
void twi_verdict_deny_unknown(tw_verdict *verdict, const tw_engine *engine, uint32_t cause);
/* The call ended with that error. If the error has a cause, the verdict gets it; a wrong call has none. A call whose
 * outcome is unknown keeps TW_CAUSE_BUSY, if its caller has noted that. */
void twi_verdict_refuse(tw_verdict *verdict, const tw_engine *engine, tw_status status);
/* The call is admitted, whatever the limit says. */
void twi_verdict_admit(tw_verdict *verdict);
/* A decision of this process that is not TW_OK. `cause` and `retry_ms` are those of a denial. */
TWI_COLD void twi_verdict_not_admitted(tw_verdict *verdict, tw_status status, uint32_t cause, int64_t retry_ms);

/* The time after which Redis may reply again. */
int64_t twi_again_when_away_ms(const tw_engine *engine);

#endif
