/* clock.h -- engine time: Unix milliseconds that never go back and do not follow every leap of the wall clock.
 *
 * Always true: engine time never goes back, for any two reads of which one happens before the other, in any threads.
 * How engine time follows the wall clock (traps E30, E31):
 *   - The wall moves with the monotonic clock, or steps forward by up to 5 s against it: engine time follows at once.
 *   - The wall leaps forward by more: engine time runs by the monotonic clock alone until the leap has lasted for 5 s
 *     of monotonic time. Then it follows the leap. A leap that ends earlier was a glitch and has no effect.
 *   - The wall goes back by up to 5 s: engine time stands still until the wall has caught up, so for 5 s at most.
 *   - The wall goes back by more: engine time goes on by the monotonic clock, as long as the wall is more than 5 s
 *     behind it. It is then ahead of the wall by the size of the step. Only a step of the wall forward, or a new
 *     engine, ends that. Standing still or going slowly would hold callers of a limit for as long as the step was, and
 *     "retry after 40 s" would be false. Going back would break P7.
 * So a step back changes neither engine time nor what Redis receives. Times go to Redis as engine time (ends of
 * windows: civil, and so the same in all engines) or by the measured offset between engine time and Redis's clock (ends
 * of windows that begin with a key's first count). Neither moves with the wall (docs/SYNC.md).
 * A suspended machine is a leap forward: CLOCK_MONOTONIC stops while the machine sleeps, the wall clock does not. For
 * the first 5 s after waking, engine time goes on from where it was. Then it leaps to the present.
 *
 * The hot word holds engine time and one flag, "callers read the clocks". There are three kinds of engine:
 *   cached        own thread, system clock: the thread refreshes the word at least every 10 ms; callers only load it.
 *                 While the thread is busy elsewhere (a hook, a long turn) twi_clock_direct() sets the flag.
 *   host-driven   the flag is always set: callers read the coarse system clocks (from the vDSO, without a system call).
 *   with a hook   the flag is always set: each call asks the hook, for WALL and for MONOTONIC.
 * The word and the coarse clocks lag: by a refresh and a tick, some 10 ms together. A decision that such a grain can
 * change reads the fine clock, by twi_clock_exact_us(), which moves the word as every reading does.
 * Threads: any thread may call any function but init at any time, and never waits. Only the background thread calls
 * refresh and direct. No other file reads the system clock. */
#ifndef TWI_BASE_CLOCK_H
#define TWI_BASE_CLOCK_H

#include "engine/base/atomic.h"
#include "engine/base/check.h"

#include <stdbool.h>
#include <stdint.h>

#define TWI_CLOCK_REFRESH_MS 10 /* the background thread calls twi_clock_refresh() at least this often */
/* What is due within so many ms of the time that a caller knows may be due now: two refreshes. */
#define TWI_CLOCK_NEAR_MS (2 * TWI_CLOCK_REFRESH_MS)
#define TWI_CLOCK_LEAP_MS 5000  /* a step of more than this against the monotonic clock is a leap ... */
#define TWI_CLOCK_STAND_MS 5000 /* ... and engine time follows it when it has lasted for this long */

struct twi_clock {
    /* Set by init, then read by all. */
    int64_t (*hook)(void *ctx, int kind); /* NULL: the system's clocks */
    void *ctx;
    bool cached;
    int64_t mono_origin_ms; /* the monotonic clock at init: keeps `leap` small */
    int64_t grain_ms;       /* by how much twi_clock_exact_us() may lag: 0, or a tick if the fine clock is slow */
    int64_t near_ms;        /* TWI_CLOCK_NEAR_MS; INT64_MAX with a grain: then every denial must allow for it */

    _Alignas(TWI_LINE_BYTES) _Atomic int64_t word; /* engine time in ms, times two, plus the flag; only ever grows */

    /* Written by any thread that sees the clocks drift apart, which is rare. */
    _Alignas(TWI_LINE_BYTES) _Atomic int64_t offset_ms; /* wall minus monotonic, as last followed: the line */
    _Atomic uint64_t leap;                              /* the forward leap under observation (see clock.c); 0: none */
    _Atomic int64_t held_since_ms;                      /* monotonic since the origin, plus 1; 0: not held */
    _Atomic int64_t held_ms;                            /* sum of all holds that have ended */

    /* Written by the background thread. */
    _Alignas(TWI_LINE_BYTES) _Atomic int64_t refreshed_ms; /* monotonic */
    _Atomic int64_t lag_max_ms;
};

/* `hook` may be NULL. `cached`: callers load the word, and a background thread refreshes it; ignored with a hook. The
 * word is fresh when this returns. */
void twi_clock_init(struct twi_clock *clock, int64_t (*hook)(void *ctx, int kind), void *ctx, bool cached);

/* Reads the clocks, moves engine time forward, returns it. Never waits. */
int64_t twi_clock_read(struct twi_clock *clock);

/* Engine time if the word alone gives it, and it is not before 1970. Else a moment in no window that begins in 1970 or
 * later: with the flag, which becomes the sign, it is negative; without, a moment before 1970 becomes one after all
 * calendars. */
TWI_INLINE int64_t twi_clock_peek_ms(const struct twi_clock *clock) {
    uint64_t word = (uint64_t)twi_load_relaxed(&clock->word);
    return (int64_t)(word >> 1 | word << 63);
}

/* Engine time in Unix milliseconds. Hot. Relaxed: the word publishes nothing but itself, and the coherence of one word
 * is enough to keep time from going back. */
TWI_INLINE int64_t twi_clock_now_ms(struct twi_clock *clock) {
    int64_t word = twi_load_relaxed(&clock->word);
    return twi_likely((word & 1) == 0) ? word >> 1 : twi_clock_read(clock);
}

/* Engine time in microseconds since 1970, read now: by the hook, or by the system's fine clock if that answers without
 * a system call, else by the coarse one (grain_ms). It is never behind a reading of engine time that happened before,
 * in milliseconds. Some 25 ns. */
int64_t twi_clock_exact_us(struct twi_clock *clock);
TWI_INLINE int64_t twi_clock_exact_ms(struct twi_clock *clock) {
    int64_t us = twi_clock_exact_us(clock);
    return us / 1000 - (us % 1000 < 0);
}

/* The monotonic clock (the hook's, or the system's coarse one), never cached. */
int64_t twi_clock_mono_ms(const struct twi_clock *clock);
int64_t twi_clock_mono_us(const struct twi_clock *clock); /* without a hook, the system's fine clock */

/* The system's monotonic clock, whether there is a hook or not: for sleeping (event_count.c). */
struct timespec;
void twi_clock_system_monotonic(struct timespec *out);

/* Background thread, at least every TWI_CLOCK_REFRESH_MS. No effect in engines that are not cached. */
void twi_clock_refresh(struct twi_clock *clock);
/* Background thread. on: from now on callers read the clocks. off: refreshes, and callers rely on refreshes again. No
 * effect in engines that are not cached. */
void twi_clock_direct(struct twi_clock *clock, bool on);

/* Sum of all times, the present one included, in which engine time stood still or ran by the monotonic clock alone,
 * because the wall clock leapt or was set back. */
int64_t twi_clock_held_ms(const struct twi_clock *clock);
/* Wall clock minus engine time, now. Beyond TWI_CLOCK_LEAP_MS, either way, engine time does not follow the wall. */
int64_t twi_clock_drift_ms(struct twi_clock *clock);
/* The longest time for which a cached word was not refreshed while callers relied on it. */
int64_t twi_clock_lag_max_ms(const struct twi_clock *clock);

#endif
