/* why.h -- why this thread's last refused call was refused, as the sentence that tw_error_text() returns.
 * A refused call stores its status and one sentence here. The sentence names the field or the rule first ("limit_mode:
 * ..."). The code that decides to refuse also writes the sentence.
 * Always true: it is written only when a call is refused. A sentence is a constant or lies in a buffer of this thread.
 * So it works before there is an engine, in a forked child and while a thread exits, and there is nothing to free.
 * The error_text of options gets the same sentences. */
#ifndef TWI_BASE_WHY_H
#define TWI_BASE_WHY_H

#include "engine/base/check.h"
#include "tallywheel.h"

/* NULL means the text of tw_status_text(). */
void twi_why_set(tw_status status, const char *constant_text);
/* Both return `status`, so that the caller's code shows that it is not TW_OK. */
TWI_INLINE tw_status twi_refuse(tw_status status, const char *constant_text) {
    twi_why_set(status, constant_text);
    return status;
}
tw_status twi_refuse_with(tw_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes "<field>: <what is wrong>" into `error`, and returns TW_ERR_OPTIONS. `error` may be NULL. */
tw_status twi_options_refuse(char *error, size_t error_size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For a call that fails for several reasons, or that succeeds after all: saves the last refusal, and restores it.
 * Constant texts only. */
struct twi_why {
    tw_status status;
    const char *text;
};
struct twi_why twi_why_now(void);
void twi_why_restore(struct twi_why why);

/* Reasons that several places give. why.c has the status and the sentence of each. */
enum twi_reason {
    TWI_WHY_KEY_EMPTY,
    TWI_WHY_KEY_LONG,
    TWI_WHY_KEY_NULL,
    TWI_WHY_DELTA,
    TWI_WHY_SUM, /* the count after the add */
    TWI_WHY_TIME,
    TWI_WHY_UNITS,
    TWI_WHY_LIMIT,
    TWI_WHY_REFUND, /* a refund of more units than were counted */
    TWI_WHY_HOLD,   /* a release without a hold */
    TWI_WHY_FULL,
    TWI_WHY_GCRA,
    TWI_WHY_DISTINCT,
    TWI_WHY_REDIS,
    TWI_WHY_TOKEN,
    TWI_WHY_THREAD, /* no record for the calling thread */
    TWI_WHY_UNSEEN, /* the same: nobody would learn that it has ended */
    TWI_WHY_ROOT,   /* root, and another user shares the engine */
    TWI_REASONS
};
tw_status twi_why_set_for(enum twi_reason reason); /* returns the status of that reason */
/* Like twi_refuse(), it shows the caller's code that the status is not TW_OK. */
TWI_INLINE tw_status twi_refuse_for(enum twi_reason reason) {
    tw_status status = twi_why_set_for(reason);
    if (status == TW_OK) __builtin_unreachable();
    return status;
}

/* At the beginning of a public call: a pointer that the call needs. The host passed it, so NULL is wrong data, and no
 * wrong code. The text begins with the name that the argument has in the public header. */
#define TWI_NEED_AS(pointer, name) \
    do { \
        if (twi_unlikely((pointer) == NULL)) return twi_refuse_null(name ": it may not be NULL"); \
    } while (0)
#define TWI_NEED(pointer) TWI_NEED_AS(pointer, #pointer)
tw_status twi_refuse_null(const char *constant_text);

TWI_INLINE tw_status twi_key_refuse(tw_key key) { /* its size is refused, or its data is NULL */
    return twi_refuse_for(key.size == 0                ? TWI_WHY_KEY_EMPTY
                          : key.size > TW_KEY_SIZE_MAX ? TWI_WHY_KEY_LONG
                                                       : TWI_WHY_KEY_NULL);
}
TWI_INLINE tw_status twi_units_refuse(int64_t n) { /* n is refused, or the limit if n is valid */
    return twi_refuse_for(n < 0 || n > TW_DELTA_MAX ? TWI_WHY_UNITS : TWI_WHY_LIMIT);
}

#endif
