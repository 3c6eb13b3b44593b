/* presence.h -- how often what is present here (gauges, holds) is said again to Redis, which lets it go with its life
 * (twi_part_life_ms, port.h). */
#ifndef TWI_CORE_PRESENCE_H
#define TWI_CORE_PRESENCE_H

#include <stdint.h>

/* In ms: a third of that life. Any thread. */
int64_t twi_part_again_ms(void);

#endif
