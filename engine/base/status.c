/* status.c -- the texts for tw_status, and the version. These are pure functions. Any thread may call them.
 * Always true: every status of the header has one line in the list below, and no function returns NULL. */
#include "tallywheel.h"

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
