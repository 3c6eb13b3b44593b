/* breaker.c -- see breaker.h. CLOSED --fail--> OPEN --time--> TRYING --succeed--> CLOSED, or --fail--> OPEN for
 * longer. */
#include "sync/wire/breaker.h"

#include "engine/base/check.h"

static void open_for(struct twi_breaker *breaker, int64_t now_ms, int64_t wait_ms) {
    twi_check(wait_ms >= 0);
    breaker->state = TWI_BREAKER_OPEN;
    breaker->retry_at_ms = now_ms + wait_ms;
}

void twi_breaker_fail(struct twi_breaker *breaker, int64_t now_ms, uint64_t random) {
    int64_t most_ms = breaker->retry_max_ms != 0 ? breaker->retry_max_ms : TWI_BREAKER_RETRY_MAX_MS;
    int64_t ceiling_ms = TWI_BREAKER_BASE_MS;
    for (uint32_t i = 0; i < breaker->failures && ceiling_ms < most_ms; i++) ceiling_ms *= 2;
    if (ceiling_ms > most_ms) ceiling_ms = most_ms;
    if (breaker->failures < UINT32_MAX) breaker->failures++;
    int64_t span_ms = ceiling_ms > TWI_BREAKER_FLOOR_MS ? ceiling_ms - TWI_BREAKER_FLOOR_MS + 1 : 1;
    open_for(breaker, now_ms, TWI_BREAKER_FLOOR_MS + (int64_t)(random % (uint64_t)span_ms));
}

void twi_breaker_fail_slowly(struct twi_breaker *breaker, int64_t now_ms, uint64_t random) {
    twi_breaker_fail(breaker, now_ms, random);
    open_for(breaker, now_ms, TWI_BREAKER_SLOW_MS + (int64_t)(random % TWI_BREAKER_SLOW_MS));
}

void twi_breaker_succeed(struct twi_breaker *breaker) {
    *breaker = (struct twi_breaker){.state = TWI_BREAKER_CLOSED, .retry_max_ms = breaker->retry_max_ms};
}

bool twi_breaker_may_try(struct twi_breaker *breaker, int64_t now_ms) {
    twi_check(breaker->state == TWI_BREAKER_CLOSED || breaker->state == TWI_BREAKER_OPEN ||
              breaker->state == TWI_BREAKER_TRYING);
    if (breaker->state == TWI_BREAKER_OPEN && now_ms < breaker->retry_at_ms) return false;
    breaker->state = TWI_BREAKER_TRYING;
    return true;
}

void twi_breaker_nudge(struct twi_breaker *breaker, int64_t now_ms) {
    if (breaker->state == TWI_BREAKER_OPEN && breaker->retry_at_ms > now_ms) breaker->retry_at_ms = now_ms;
}
