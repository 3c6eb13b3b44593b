/* event_count.c -- see event_count.h. Futexes let threads sleep. The protocol is our own, or that of ck_ec.
 * Always true of our own: if one thread raises while another one goes to sleep, either the sleeper sees the new count
 * or it is woken. tests/orderings/events.cpp is the model. */
#include "engine/base/event_count.h"

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

#ifdef TWI_OWN_EVENT_COUNT
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
static int now(const struct ck_ec_ops *ops, struct timespec *out) {
    (void)ops;
    twi_clock_system_monotonic(out);
    return 0;
}

static void wait32(const struct ck_ec_wait_state *state, const uint32_t *address, uint32_t expected,
                   const struct timespec *deadline) {
    struct timespec left = {0, 0};
    if (deadline != NULL) {
        struct timespec at;
        (void)now(state->ops, &at);
        int64_t ns = (deadline->tv_sec - at.tv_sec) * INT64_C(1000000000) + (deadline->tv_nsec - at.tv_nsec);
        if (ns <= 0) return;
        left.tv_sec = ns / 1000000000;
        left.tv_nsec = ns % 1000000000;
    }
    (void)syscall(SYS_futex, address, FUTEX_WAIT, expected, deadline != NULL ? &left : NULL, NULL, 0);
}

static void wake32(const struct ck_ec_ops *ops, const uint32_t *address) {
    (void)ops;
    (void)syscall(SYS_futex, address, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* The library does not use 64-bit counts, but ck_ec requires the functions. */
static void wait64(const struct ck_ec_wait_state *state, const uint64_t *address, uint64_t expected,
                   const struct timespec *deadline) {
    wait32(state, (const uint32_t *)(const void *)address, (uint32_t)expected, deadline);
}
static void wake64(const struct ck_ec_ops *ops, const uint64_t *address) {
    wake32(ops, (const uint32_t *)(const void *)address);
}

/* A waiting thread does not spin but sleeps at once, because the cores belong to the application. */
static const struct ck_ec_ops ops = {
    .gettime = now,
    .wait32 = wait32,
    .wait64 = wait64,
    .wake32 = wake32,
    .wake64 = wake64,
    .busy_loop_iter = 1,
    .initial_wait_ns = 1000000000,
};
static const struct ck_ec_mode mode = {.ops = &ops, .single_producer = false};

void twi_event_count_make(struct twi_event_count *event) {
    ck_ec32_init(&event->count, 0);
}
uint32_t twi_event_count_value(const struct twi_event_count *event) {
    return ck_ec32_value(&event->count);
}
void twi_event_count_raise(struct twi_event_count *event) {
    ck_ec32_inc(&event->count, &mode);
}

/* ck_ec waits as long as its back-off says, even beyond the deadline. This ends each wait at the deadline. */
static int end_in_time(const struct ck_ec_wait_state *state, struct timespec *iteration) {
    *iteration = *(const struct timespec *)state->data;
    return 0;
}

void twi_event_count_wait(struct twi_event_count *event, uint32_t seen, uint32_t ms) {
    struct timespec time_out = {ms / 1000, (long)(ms % 1000) * 1000000}, deadline;
    if (ck_ec_deadline(&deadline, &mode, &time_out) != 0) return;
    (void)ck_ec32_wait_pred(&event->count, &mode, seen, end_in_time, &deadline, &deadline);
}
#endif
