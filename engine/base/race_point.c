/* race_point.c -- the pauses at race points, which widen races on purpose. They exist only in builds with
 * -Drace_points=true. Always true: without that option this file is empty. Each thread has a random sequence of pauses.
 * A pause lasts at most about 50 us, and most have no length, so a test's schedule is only disturbed. A thread that has
 * met many race points pauses at every sixteenth, or a test of millions of calls would sleep for minutes. */
#include "engine/base/check.h"

#ifdef TWI_RACE_POINTS
#include <sched.h>
#include <stdint.h>
#include <time.h>

#define NAP_NS_MAX 50000u
#define SPINS_MAX 512u
#define OFTEN 20000u /* race points of a thread that may all pause */

/* Each thread has another sequence, because the address of its state differs, and so does the moment of its first
 * pause. */
static uint32_t next_draw(void) {
    static _Thread_local uint64_t state;
    if (state == 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        state = (uint64_t)(uintptr_t)&state ^ (uint64_t)now.tv_nsec << 20 ^ UINT64_C(0x9e3779b97f4a7c15);
    }
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33);
}

/* Of 64 draws, 40 have no effect, 12 yield, 9 spin, and 3 sleep (about 60 us with the timer slack). */
void twi_race_nap(const char *name) {
    (void)name; /* the name is used in breakpoint conditions of a debugger */
    static _Thread_local uint32_t met;
    uint32_t draw = next_draw(), kind = draw & 63, size = draw >> 6;
    if (met < OFTEN) met++;
    if (kind < 40 || (met == OFTEN && size % 16 != 0)) return;
    size /= 16;
    if (kind < 52) {
        sched_yield();
    } else if (kind < 61) {
        for (volatile uint32_t round = 0; round < size % SPINS_MAX; round++) continue;
    } else {
        struct timespec rest = {.tv_sec = 0, .tv_nsec = (long)(size % NAP_NS_MAX)};
        nanosleep(&rest, NULL);
    }
}
#else
typedef int twi_race_points_are_off; /* ISO C does not allow an empty file */
#endif
