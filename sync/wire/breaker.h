/* breaker.h -- when to try Redis again: exponential back-off with full jitter.
 * Pure: time and random bits come from the caller. Always true: after a failure the next try lies at least
 * TWI_BREAKER_FLOOR_MS ahead (no busy loop) and, but for slow ones, at most retry_max_ms; a success closes it at once.
 * How soon a Redis that is back is found: it comes back within a wait that is even between the floor and the most, C.
 * What is left of such a wait is C/3 in the mean, 0.29 C in the middle, C at most; so 0.3 s of the default, and many
 * engines come spread over it. */
#ifndef TWI_SYNC_WIRE_BREAKER_H
#define TWI_SYNC_WIRE_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#define TWI_BREAKER_FLOOR_MS 10
#define TWI_BREAKER_BASE_MS 50        /* the first ceiling; doubled at each failure in a row */
#define TWI_BREAKER_RETRY_MAX_MS 1000 /* the last ceiling, where tw_options.retry_max_ms names no other */
#define TWI_BREAKER_SLOW_MS \
    2000 /* after a refused login: nothing heals by itself there, and servers log each attempt */

enum twi_breaker_state { TWI_BREAKER_CLOSED, TWI_BREAKER_OPEN, TWI_BREAKER_TRYING };

struct twi_breaker {
    enum twi_breaker_state state;
    uint32_t failures;     /* in a row */
    int64_t retry_at_ms;   /* OPEN: when the next try may begin */
    uint32_t retry_max_ms; /* set before use; 0: the default */
};

void twi_breaker_fail(struct twi_breaker *breaker, int64_t now_ms, uint64_t random);
void twi_breaker_fail_slowly(struct twi_breaker *breaker, int64_t now_ms, uint64_t random);
void twi_breaker_succeed(struct twi_breaker *breaker);
bool twi_breaker_may_try(struct twi_breaker *breaker, int64_t now_ms); /* true: the try has begun */
void twi_breaker_nudge(struct twi_breaker *breaker, int64_t now_ms);   /* a flush waits: one try at once */

#endif
