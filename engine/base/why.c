/* why.c -- see why.h. */
#include "engine/base/why.h"

#include <stdarg.h>
#include <stdio.h>

#define TEXT_BYTES 512 /* room for a path and a line of a limits file, and for the error there */

/* Initial-exec, like twi_thread_self. The memory exists with the thread, so a refusal does not allocate. */
static _Thread_local struct twi_why last __attribute__((tls_model("initial-exec")));
/* Larger, and only for sentences with figures. If the library was loaded late, this may come from the allocator. */
static _Thread_local char own_text[TEXT_BYTES];

__attribute__((cold, noinline)) void twi_why_set(tw_status status, const char *constant_text) {
    last = (struct twi_why){status, constant_text};
}

__attribute__((cold)) tw_status twi_refuse_with(tw_status status, const char *format, ...) {
    char text[TEXT_BYTES]; /* the previous sentence may be one of the arguments */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(own_text, text, sizeof text);
    return twi_refuse(status, own_text);
}

static const struct twi_why reasons[TWI_REASONS] = {
    [TWI_WHY_KEY_EMPTY] = {TW_ERR_KEY, "key: it is empty"},
    [TWI_WHY_KEY_LONG] = {TW_ERR_KEY, "key: it is longer than 1024 bytes"},
    [TWI_WHY_KEY_NULL] = {TW_ERR_KEY, "key: its data is NULL"},
    [TWI_WHY_DELTA] = {TW_ERR_RANGE, "delta: not within +-TW_DELTA_MAX"},
    [TWI_WHY_SUM] = {TW_ERR_RANGE, "delta: the count would not be within +-TW_COUNT_MAX"},
    [TWI_WHY_TIME] = {TW_ERR_RANGE, "unix_ms: not within the years 1000 to 9998"},
    [TWI_WHY_UNITS] = {TW_ERR_RANGE, "n: not within 0..TW_DELTA_MAX"},
    [TWI_WHY_LIMIT] = {TW_ERR_RANGE, "limit: not within 0..TW_DELTA_MAX"},
    [TWI_WHY_REFUND] = {TW_ERR_RANGE, "n: more than was counted"},
    [TWI_WHY_HOLD] = {TW_ERR_RANGE, "key: this process holds none"},
    [TWI_WHY_FULL] = {TW_ERR_FULL, "memory: there is no room for a new key (memory_bytes_max, memory_share, keys_max)"},
    [TWI_WHY_GCRA] = {TW_ERR_MODE, "limit_shape: a TW_SHAPE_GCRA family keeps times, and no counts to read or change"},
    [TWI_WHY_DISTINCT] = {TW_ERR_MODE, "kind: a TW_KIND_DISTINCT family counts distinct elements: take "
                                       "tw_distinct_add() and tw_distinct_get()"},
    [TWI_WHY_REDIS] = {TW_ERR_REDIS, "redis_url: this engine has none"},
    [TWI_WHY_TOKEN] = {TW_ERR_UNKNOWN_TOKEN, "token: malformed, or of another engine or Redis"},
    [TWI_WHY_ROOT] = {TW_ERR_MODE, "shared: root may not use an engine that a process of another user shares, because "
                                   "that one could make root run its code"},
    [TWI_WHY_UNSEEN] = {TW_ERR_MEMORY, "shared: the kernel would not tell other processes that this thread has ended, "
                                       "because get_robust_list is refused, or clone() made this process"},
    [TWI_WHY_THREAD] = {TW_ERR_MEMORY, "no record for this thread: the system has no memory, or 65,535 threads live"},
};

TWI_COLD tw_status twi_why_set_for(enum twi_reason reason) {
    twi_check(reason < TWI_REASONS && reasons[reason].text != NULL && reasons[reason].status != TW_OK);
    last = reasons[reason];
    return last.status;
}

struct twi_why twi_why_now(void) {
    return last;
}

void twi_why_restore(struct twi_why why) {
    last = why;
}

const char *tw_error_text(void) {
    if (last.text != NULL) return last.text;
    return last.status != TW_OK ? tw_status_text(last.status) : "No call of this thread was refused yet.";
}
