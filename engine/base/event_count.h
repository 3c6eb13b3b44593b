/* event_count.h -- event counts, with which a thread sleeps until another thread signals a change. They are
 * ck_ec of libck, or our own by C11 atomics, for builds without libck (-Dck=disabled, the one file, musl).
 * Raising an event costs no system call unless a thread sleeps. Each turn raises one, and each refund raises another
 * one. Only calls that may wait (tw_flush(), tw_fetch(), tw_close(), tw_acquire_wait() and similar calls) sleep here.
 * tw_add(), tw_get() and tw_acquire() neither raise an event nor sleep.
 * An event in shared memory is for the threads of all processes that have it, so the futexes are not private ones. That
 * costs nothing unless a thread sleeps.
 * Always true: a thread that reads the value, then looks for work, and then waits for a change of that value, misses no
 * event. */
#ifndef TWI_BASE_EVENT_COUNT_H
#define TWI_BASE_EVENT_COUNT_H

#include <stdint.h>

#ifdef TWI_OWN_EVENT_COUNT
struct twi_event_count {
    _Atomic uint32_t count;
    _Atomic uint32_t sleepers; /* how many threads sleep or are about to; each raise wakes all of them */
};
#else
#include <ck_ec.h>

struct twi_event_count {
    struct ck_ec32 count;
};
#endif

void twi_event_count_make(struct twi_event_count *event);
uint32_t twi_event_count_value(const struct twi_event_count *event);
void twi_event_count_raise(struct twi_event_count *event);
/* Returns when the value differs from `seen`, or after at most `ms`. */
void twi_event_count_wait(struct twi_event_count *event, uint32_t seen, uint32_t ms);

#endif
