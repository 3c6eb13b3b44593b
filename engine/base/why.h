/* why.h -- why this thread's last refused call was refused: the sentence that tw_error_text() returns.
 * A refused call stores its status and one sentence here. The sentence names the field or the rule first ("limit_mode:
 * ..."). The code that decides to refuse also writes the sentence.
 * Always true: nothing is written unless a call is refused. A sentence is a constant or lies in this thread's own
 * buffer. So it works before there is an engine, in a forked child and while a thread exits, and there is nothing to
 * free.
 * Elsewhere: error_text of the options (options.h), which gets the same sentences. */
#ifndef TWI_BASE_WHY_H
#define TWI_BASE_WHY_H

#include "engine/base/check.h"
#include "tallywheel.h"

/* NULL: the text of tw_status_text(). */
void twi_why_set(tw_status status, const char *constant_text);
/* Both return `status`, so that the caller's code shows that it is not TW_OK. */
TWI_INLINE tw_status twi_refuse(tw_status status, const char *constant_text) {
    twi_why_set(status, constant_text);
    return status;
}
tw_status twi_refuse_with(tw_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For a call that fails for several reasons, or that succeeds after all: saves the last refusal, and restores it.
 * Constant texts only. */
struct twi_why {
    tw_status status;
    const char *text;
};
struct twi_why twi_why_now(void);
void twi_why_retry(struct twi_why why);

/* Sentences that several places use. */
void twi_why_key(tw_key key);
void twi_why_delta(void);
void twi_why_sum(void);
void twi_why_time(void);
void twi_why_units(int64_t n);
void twi_why_refund(void);
void twi_why_hold(void);
void twi_why_full(void);
void twi_why_gcra(void);
void twi_why_distinct(void);
void twi_why_redis(void);
void twi_why_token(void);

TWI_INLINE tw_status twi_key_refuse(tw_key key) { /* TW_ERR_KEY: its size, or no data */
    twi_why_key(key);
    return TW_ERR_KEY;
}
TWI_INLINE tw_status twi_delta_refuse(void) { /* TW_ERR_RANGE: a delta */
    twi_why_delta();
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_sum_refuse(void) { /* TW_ERR_RANGE: the sum after the add */
    twi_why_sum();
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_time_refuse(void) { /* TW_ERR_RANGE: a moment */
    twi_why_time();
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_units_refuse(int64_t n) { /* TW_ERR_RANGE: n, or limit if n is valid */
    twi_why_units(n);
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_refund_refuse(void) { /* TW_ERR_RANGE: a refund of more units than were counted */
    twi_why_refund();
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_hold_refuse(void) { /* TW_ERR_RANGE: a release without a hold */
    twi_why_hold();
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_full_refuse(void) { /* TW_ERR_FULL */
    twi_why_full();
    return TW_ERR_FULL;
}
TWI_INLINE tw_status twi_gcra_refuse(void) { /* TW_ERR_MODE: GCRA keeps times, not counts */
    twi_why_gcra();
    return TW_ERR_MODE;
}
TWI_INLINE tw_status twi_distinct_refuse(void) { /* TW_ERR_MODE: sketches are no counts */
    twi_why_distinct();
    return TW_ERR_MODE;
}
TWI_INLINE tw_status twi_redis_refuse(void) { /* TW_ERR_REDIS: no Redis is configured */
    twi_why_redis();
    return TW_ERR_REDIS;
}
TWI_INLINE tw_status twi_token_refuse(void) { /* TW_ERR_UNKNOWN_TOKEN: the token cannot be one of this engine */
    twi_why_token();
    return TW_ERR_UNKNOWN_TOKEN;
}

#endif
