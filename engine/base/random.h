/* random.h -- unpredictable bytes. This is the only source of the system's random numbers. */
#ifndef TWI_BASE_RANDOM_H
#define TWI_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>

/* Fills `out` with unpredictable bytes. Returns false if the system gives no such bytes. Then `out` is undefined,
 * and a caller that needs a secret must stop. Any thread may call it. It may enter the kernel. */
bool twi_random_bytes(void *out, size_t size);

#endif
