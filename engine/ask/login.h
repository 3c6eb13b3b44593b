/* login.h -- what connections of their own need to know of an engine: audits, and searches over all masters.
 * Always true: nothing is copied. The engine outlives the call. */
#ifndef TWI_ASK_LOGIN_H
#define TWI_ASK_LOGIN_H

#include "engine/core/family.h"

int64_t twi_login_mono_ms(void);           /* the system's clock */
bool twi_login_goes_on(tw_engine *engine); /* false means that the engine is being closed. NULL: there is none */
/* Where Redis is, and how it is spoken to. */
void twi_login_of_engine(tw_engine *engine, tw_audit_options *options, struct twi_audit *audit);

#endif
