/* event_count.h -- event counts: sleeping until somebody says that something has changed. The door to libck (ck_ec).
 * Raising costs no system call unless somebody sleeps. Callers that count never raise or wait: only tw_flush(),
 * tw_fetch(), tw_close() and the background thread do.
 * Always true: who reads the value, looks whether there is something to do, and then waits for a change of that
 * value, misses nothing. */
#ifndef TWI_BASE_EVENT_COUNT_H
#define TWI_BASE_EVENT_COUNT_H

#include <ck_ec.h>
#include <stdint.h>

struct twi_event_count {
    struct ck_ec32 count;
};

void twi_event_count_make(struct twi_event_count *event);
uint32_t twi_event_count_value(const struct twi_event_count *event);
void twi_event_count_raise(struct twi_event_count *event);
/* Returns when the value is no longer `seen`, or after at most `ms`. */
void twi_event_count_wait(struct twi_event_count *event, uint32_t seen, uint32_t ms);

#endif
