/* breaker.h -- when to try Redis again: exponential back-off with full jitter.
 *
 * How soon the breaker finds that Redis is back. After some failures in a row each wait is uniform between the floor
 * and C (retry_max_ms). Redis comes back at some moment within one of these waits. The rest of that wait is C/3 in the
 * mean, 0.29 C in the median and C at most. With the default C this is 0.3 s, and many engines come spread over it.
 * Always true: a wait is at least TWI_BREAKER_FLOOR_MS (no busy loop). It is at most retry_max_ms, except after
 * twi_breaker_fail_slowly(). Only twi_breaker_nudge() ends it early. A success closes the breaker at once. The file is
 * pure: time and random bits come from the caller. */
#ifndef TWI_SYNC_WIRE_BREAKER_H
#define TWI_SYNC_WIRE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#define TWI_BREAKER_FLOOR_MS 10
#define TWI_BREAKER_BASE_MS 50        /* the first ceiling; it doubles at each failure in a row */
#define TWI_BREAKER_RETRY_MAX_MS 1000 /* the last ceiling, unless tw_options.retry_max_ms is set */
#define TWI_BREAKER_SLOW_MS 2000      /* after a refused login, which a person must repair; up to twice this long */

/* When it is closed, Redis is used. When it is open, no request is sent to Redis. When it is trying (half-open), one
 * try is made. */
enum twi_breaker_state { TWI_BREAKER_CLOSED, TWI_BREAKER_OPEN, TWI_BREAKER_TRYING };

struct twi_breaker {
    enum twi_breaker_state state;
    uint32_t failures;     /* in a row */
    int64_t retry_at_ms;   /* in OPEN, when the next try may begin */
    uint32_t retry_max_ms; /* set before use; 0 for the default */
};

void twi_breaker_fail(struct twi_breaker *breaker, int64_t now_ms, uint64_t random);
void twi_breaker_fail_slowly(struct twi_breaker *breaker, int64_t now_ms, uint64_t random);
void twi_breaker_succeed(struct twi_breaker *breaker);
bool twi_breaker_may_try(struct twi_breaker *breaker, int64_t now_ms); /* true if the try has begun */
void twi_breaker_nudge(struct twi_breaker *breaker, int64_t now_ms);   /* a flush waits; the next try may begin now */

#endif
