/* event_count_own.c -- see event_count.h. Without libck, with C11 atomics and futexes.
 * Always true: this file is empty in a build with libck. If one thread raises while another one goes to sleep,
 * either the sleeper sees the new count or it is woken. tests/orderings/events.cpp is the model. */
#include "engine/base/event_count.h"

#ifdef TWI_OWN_EVENT_COUNT
#include "engine/base/atomic.h"
#include "engine/base/clock.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if __has_include(<linux/futex.h>)
#include <linux/futex.h>
#else /* musl-gcc has no headers of the kernel, so the numbers are repeated here; they never change */
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#endif

static int64_t monotonic_ns(void) {
    struct timespec now;
    twi_clock_system_monotonic(&now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Sleeps while *word is `expected`. The kernel compares the word again before it sleeps. It may return early. */
static void sleep_while(_Atomic uint32_t *word, uint32_t expected, int64_t ns) {
    struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, expected, &left, NULL, 0);
}

static void wake_all(_Atomic uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void twi_event_count_make(struct twi_event_count *event) {
    twi_store_relaxed(&event->count, 0);
    twi_store_relaxed(&event->sleepers, 0);
}

uint32_t twi_event_count_value(const struct twi_event_count *event) {
    return twi_load_acquire(&event->count); /* I3, pairs with I1, so changes that were made before the raise are seen */
}

void twi_event_count_raise(struct twi_event_count *event) {
    (void)twi_add_seqcst(&event->count, 1);                              /* I1, pairs with I3 and I4 */
    if (twi_load_seqcst(&event->sleepers) != 0) wake_all(&event->count); /* I2, pairs with I4 */
}

void twi_event_count_wait(struct twi_event_count *event, uint32_t seen, uint32_t ms) {
    if (twi_event_count_value(event) != seen) return;
    int64_t deadline = monotonic_ns() + ms * INT64_C(1000000), left = deadline - monotonic_ns();
    (void)twi_add_seqcst(&event->sleepers, 1); /* I4, pairs with I1 and I2; counted before the last look */
    for (; left > 0 && twi_load_seqcst(&event->count) == seen; left = deadline - monotonic_ns()) {
        sleep_while(&event->count, seen, left);
    }
    (void)twi_sub_relaxed(&event->sleepers, 1); /* one wake-up too many does no harm */
}
#else
typedef int twi_own_event_count_is_empty; /* ISO C does not allow an empty file */
#endif
