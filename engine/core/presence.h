/* presence.h -- how often what is present here (gauges, holds) is said again to Redis, which lets it go with its life
 * (twi_presence_life_ms, port.h). */
#ifndef TWI_CORE_PRESENCE_H
#define TWI_CORE_PRESENCE_H

#include <stdint.h>

/* In ms: a third of that life. Any thread. */
int64_t twi_presence_resend_ms(void);

#endif
