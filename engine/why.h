/* why.h -- why this thread's last refused call was refused: the sentence that tw_error_text() answers.
 * A call that is refused leaves here its status and one sentence, which names the field or the rule first ("limit_mode: ..."). Who
 * refuses says why, at the place where it is decided.
 * Always true: nothing is written where nothing is refused; a sentence is a constant or stands in this thread's own buffer, so it
 * works before any engine is there, in a forked child and while a thread ends, and there is nothing to free.
 * Elsewhere: error_text of the options (options.h), which gets the same words. */
#ifndef TWI_WHY_H
#define TWI_WHY_H

#include "tallywheel.h"

/* NULL: what tw_status_text() says of the status. Both answer `status`. */
tw_status twi_refuse(tw_status status, const char *constant_text);
tw_status twi_refuse_with(tw_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For a call that was refused for several reasons, or was not refused after all. Constant texts only. */
struct twi_why {
    tw_status status;
    const char *text;
};
struct twi_why twi_why_now(void);
void twi_why_again(struct twi_why why);

/* What is said in more than one place. */
tw_status twi_key_refuse(tw_key key);  /* TW_ERR_KEY: its size, or no data */
tw_status twi_delta_refuse(void);      /* TW_ERR_RANGE: a delta */
tw_status twi_sum_refuse(void);        /* TW_ERR_RANGE: the sum that would come of it */
tw_status twi_time_refuse(void);       /* TW_ERR_RANGE: a moment */
tw_status twi_units_refuse(int64_t n); /* TW_ERR_RANGE: n or, where that is good, limit */
tw_status twi_refund_refuse(void);     /* TW_ERR_RANGE: more than there is to give back */
tw_status twi_hold_refuse(void);       /* TW_ERR_RANGE: nothing to release */
tw_status twi_full_refuse(void);       /* TW_ERR_FULL */
tw_status twi_paced_refuse(void);      /* TW_ERR_MODE: times are no counts */
tw_status twi_store_refuse(void);      /* TW_ERR_STORE: there is none */
tw_status twi_token_refuse(void);      /* TW_ERR_UNKNOWN_TOKEN: it cannot be one of ours */

#endif
