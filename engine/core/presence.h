/* presence.h -- how often presence statements (gauges, holds) are re-sent to Redis. Redis drops a statement at the end
 * of its life (twi_presence_life_ms, port/). */
#ifndef TWI_CORE_PRESENCE_H
#define TWI_CORE_PRESENCE_H

#include <stdint.h>

/* In ms: a third of that life. Any thread. */
int64_t twi_presence_resend_ms(void);

#endif
