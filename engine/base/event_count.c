/* event_count.c -- see event_count.h. ck_ec has the protocol, and futexes let threads sleep.
 * Always true: this file is empty in a build without libck. */
#include "engine/base/event_count.h"

#ifndef TWI_OWN_EVENT_COUNT
#include "engine/base/clock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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
#else
typedef int twi_event_count_of_libck_is_empty; /* ISO C does not allow an empty file */
#endif
