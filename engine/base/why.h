/* why.h -- why this thread's last refused call was refused: the sentence that tw_error_text() answers.
 * A call that is refused leaves here its status and one sentence, which names the field or the rule first ("limit_mode: ..."). Who
 * refuses says why, at the place where it is decided.
 * Always true: nothing is written where nothing is refused; a sentence is a constant or stands in this thread's own buffer, so it
 * works before any engine is there, in a forked child and while a thread ends, and there is nothing to free.
 * Elsewhere: error_text of the options (options.h), which gets the same words. */
#ifndef TWI_BASE_WHY_H
#define TWI_BASE_WHY_H

#include "engine/base/check.h"
#include "tallywheel.h"

/* NULL: what tw_status_text() says of the status. */
void twi_why_set(tw_status status, const char *constant_text);
/* Both answer `status`. Here, so that whoever reads the caller sees that it is no TW_OK. */
TWI_INLINE tw_status twi_refuse(tw_status status, const char *constant_text) {
    twi_why_set(status, constant_text);
    return status;
}
tw_status twi_refuse_with(tw_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For a call that was refused for several reasons, or was not refused after all. Constant texts only. */
struct twi_why {
    tw_status status;
    const char *text;
};
struct twi_why twi_why_now(void);
void twi_why_retry(struct twi_why why);

/* What is said in more than one place. */
void twi_why_key(tw_key key);
void twi_why_delta(void);
void twi_why_sum(void);
void twi_why_time(void);
void twi_why_units(int64_t n);
void twi_why_refund(void);
void twi_why_hold(void);
void twi_why_full(void);
void twi_why_gcra(void);
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
TWI_INLINE tw_status twi_sum_refuse(void) { /* TW_ERR_RANGE: the sum that would come of it */
    twi_why_sum();
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_time_refuse(void) { /* TW_ERR_RANGE: a moment */
    twi_why_time();
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_units_refuse(int64_t n) { /* TW_ERR_RANGE: n or, where that is good, limit */
    twi_why_units(n);
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_refund_refuse(void) { /* TW_ERR_RANGE: more than there is to give back */
    twi_why_refund();
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_hold_refuse(void) { /* TW_ERR_RANGE: nothing to release */
    twi_why_hold();
    return TW_ERR_RANGE;
}
TWI_INLINE tw_status twi_full_refuse(void) { /* TW_ERR_FULL */
    twi_why_full();
    return TW_ERR_FULL;
}
TWI_INLINE tw_status twi_gcra_refuse(void) { /* TW_ERR_MODE: times are no counts */
    twi_why_gcra();
    return TW_ERR_MODE;
}
TWI_INLINE tw_status twi_redis_refuse(void) { /* TW_ERR_REDIS: there is none */
    twi_why_redis();
    return TW_ERR_REDIS;
}
TWI_INLINE tw_status twi_token_refuse(void) { /* TW_ERR_UNKNOWN_TOKEN: it cannot be one of ours */
    twi_why_token();
    return TW_ERR_UNKNOWN_TOKEN;
}

#endif
