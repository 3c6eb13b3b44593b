/* breaker.h -- when to try Redis again: exponential back-off with full jitter.
 * Pure: time and random bits come from the caller. Always true: after a failure the next try lies at least
 * TWI_BREAKER_FLOOR_MS ahead (no busy loop) and at most twice the ceiling; a success closes it at once. */
#ifndef TWI_BREAKER_H
#define TWI_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#define TWI_BREAKER_FLOOR_MS 10
#define TWI_BREAKER_BASE_MS 50 /* the first ceiling; doubled at each failure in a row */
#define TWI_BREAKER_CEILING_MS \
    5000 /* 5 s: a Redis that is back is seen within seconds by every node, spread by the jitter */
#define TWI_BREAKER_SLOW_MS \
    2000 /* after a refused login: nothing heals by itself there, and servers log each attempt */

enum twi_breaker_state { TWI_BREAKER_CLOSED, TWI_BREAKER_OPEN, TWI_BREAKER_TRYING };

struct twi_breaker {
    enum twi_breaker_state state;
    uint32_t failures;   /* in a row */
    int64_t retry_at_ms; /* OPEN: when the next try may begin */
};

void twi_breaker_fail(struct twi_breaker *breaker, int64_t now_ms, uint64_t random);
void twi_breaker_fail_slowly(struct twi_breaker *breaker, int64_t now_ms, uint64_t random);
void twi_breaker_succeed(struct twi_breaker *breaker);
bool twi_breaker_may_try(struct twi_breaker *breaker, int64_t now_ms); /* true: the try has begun */
void twi_breaker_nudge(struct twi_breaker *breaker, int64_t now_ms);   /* a flush waits: one try at once */

#endif
