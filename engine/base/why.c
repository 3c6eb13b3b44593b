/* why.c -- see why.h. */
#include "engine/base/why.h"

#include "tallywheel.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- status ----
 * the texts for tw_status, and the version. These are pure functions. Any thread may call them.
 * Always true: every status of the header has one line in the list below, and no function returns NULL. */

#define STATUSES(X) \
    X(TW_OK, "Done.") \
    X(TW_DENIED, "The limit is reached; the call did not count.") \
    X(TW_PENDING, "Not yet: ask again.") \
    X(TW_OVERFLOWED, "Counted in the family's overflow counter, because the table is full.") \
    X(TW_STARTED, "Started: the answer comes to the request's done.") \
    X(TW_ERR_KEY, "The key is empty, longer than 1024 bytes, or has a reserved name; nothing has changed.") \
    X(TW_ERR_OPTIONS, "An option or argument is refused; nothing has changed.") \
    X(TW_ERR_FULL, "There is no room for a new key, and the family rejects; nothing has changed.") \
    X(TW_ERR_MEMORY, "The system gave no memory; nothing has changed.") \
    X(TW_ERR_RANGE, "The delta or the sum is out of range; nothing has changed.") \
    X(TW_ERR_LATE, "The window takes no more counts, or is no longer readable; nothing has changed.") \
    X(TW_ERR_EARLY, "The window lies too far ahead; nothing has changed.") \
    X(TW_ERR_MODE, "Not possible in this kind of family or engine, or not from inside a hook; nothing has changed.") \
    X(TW_ERR_CLOSED, "The engine has been stopped; nothing has changed.") \
    X(TW_ERR_FORKED, "This process is a forked child, and no new engine could be made in it; nothing has changed.") \
    X(TW_ERR_REDIS, "Redis refused, or none is configured.") \
    X(TW_ERR_UNKNOWN_TOKEN, "The token is not known; nothing has changed.") \
    X(TW_ERR_BUSY, "As many calls as calls_max says are under way; nothing has changed.") \
    X(TW_ERR_TIMEOUT, "The time was up; a part may have been done.")

#define TEXT_OF(number) #number
#define TEXT_OF_VALUE(number) TEXT_OF(number)

const char *tw_status_name(tw_status status) {
    switch (status) {
#define STATUS_NAME(number, text) \
    case number: return #number;
        STATUSES(STATUS_NAME)
#undef STATUS_NAME
    default: return "TW_STATUS_UNKNOWN";
    }
}

const char *tw_status_text(tw_status status) {
    switch (status) {
#define STATUS_TEXT(number, text) \
    case number: return text;
        STATUSES(STATUS_TEXT)
#undef STATUS_TEXT
    default: return "This number is no status of this version.";
    }
}

const char *tw_version(void) {
    return TEXT_OF_VALUE(TW_VERSION_MAJOR) "." TEXT_OF_VALUE(TW_VERSION_MINOR) "." TEXT_OF_VALUE(TW_VERSION_PATCH);
}

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

TWI_COLD tw_status twi_refuse_null(const char *constant_text) {
    return twi_refuse(TW_ERR_OPTIONS, constant_text);
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

#define OPTION_TEXT_MAX 320

tw_status twi_options_refuse(char *error, size_t error_size, const char *format, ...) {
    twi_check(strstr(format, ": ") != NULL || strchr(format, '%') != NULL);
    char why[OPTION_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    if (error != NULL && error_size > 0) (void)snprintf(error, error_size, "%s", why);
    return twi_refuse_with(TW_ERR_OPTIONS, "%s", why);
}
