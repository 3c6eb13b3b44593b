/* random.h -- unpredictable bytes: the one door to the system's random numbers. */
#ifndef TWI_BASE_RANDOM_H
#define TWI_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>

/* Fills `out` with bytes nobody can foresee. False: the system gives none (then `out` is undefined, and whoever needs a
 * secret must not go on). Any thread; may enter the kernel. */
bool twi_random_bytes(void *out, size_t size);

#endif
