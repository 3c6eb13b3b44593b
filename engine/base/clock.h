/* clock.h -- engine time: Unix milliseconds that never go back and do not believe every leap of the wall clock.
 *
 * Always true: engine time never goes back, for any two reads of which one happens before the other, in any threads.
 * How it follows the wall clock (traps E30, E31):
 *   - the wall goes with the monotonic clock, or steps forward by up to 5 s against it: followed at once;
 *   - it leaps forward by more: engine time runs by the monotonic clock alone until the leap has stood for 5 s of
 *     monotonic time, then it is believed; a leap that goes away before that was a glitch and is forgotten;
 *   - it goes back by up to 5 s: engine time stands still until the wall has caught up, so for 5 s at most;
 *   - it goes back by more: engine time goes on by the monotonic clock, as if nothing had happened, for as long as the
 *     wall is more than 5 s behind it. It is then ahead of the wall by what the wall was set back; only the wall's own
 *     way forward, or a new engine, ends that. Why not stand still, or go slowly: a limit would hold its callers for
 *     as long as the step was, and "retry after 40 s" would be no truth. Why not go back: P7.
 * So a step back changes nothing in engine time, and nothing in what is said to Redis: times go there by engine time
 * (ends of windows, civil and so the same in all engines) or by the measured offset between engine time and Redis's
 * clock (ends of lives from first), and neither moves with the wall (docs/SYNC.md).
 * A suspended machine is a leap forward: CLOCK_MONOTONIC stops while it sleeps, the wall does not, so for the first 5 s
 * after waking engine time goes on from where it was, then it leaps to the present.
 *
 * The hot word holds engine time and one flag, "read for yourself". Who reads it (three kinds of engine):
 *   cached        own thread, system clock: the thread refreshes the word at least every 10 ms; callers only load it.
 *                 While the thread is busy elsewhere (a hook, a long round) twi_clock_direct() sets the flag.
 *   host-driven   the flag is always set: callers read the coarse system clocks (the vDSO's: no system call).
 *   with a hook   the flag is always set: each call asks the hook, for WALL and for MONOTONIC.
 * Threads: every function but init may be called by any thread at any time and waits for none; refresh and direct are
 * for the background thread alone. This is the one door to the system clock. */
#ifndef TWI_BASE_CLOCK_H
#define TWI_BASE_CLOCK_H

#include "engine/base/atomic.h"
#include "engine/base/check.h"

#include <stdbool.h>
#include <stdint.h>

#define TWI_CLOCK_REFRESH_MS 10 /* the background thread calls twi_clock_refresh() at least this often */
#define TWI_CLOCK_LEAP_MS 5000  /* a step of more than this against the monotonic clock is a leap ... */
#define TWI_CLOCK_STAND_MS 5000 /* ... and believed when it has stood for this long */

struct twi_clock {
    /* Set by init, then read by all. */
    int64_t (*hook)(void *ctx, int kind); /* NULL: the system's clocks */
    void *ctx;
    bool cached;
    int64_t mono_origin_ms; /* the monotonic clock at init: keeps `leap` small */

    _Alignas(TWI_LINE_BYTES) _Atomic int64_t word; /* engine time in ms, times two, plus the flag; only ever grows */

    /* Written by whoever sees the clocks part, which is rare. */
    _Alignas(TWI_LINE_BYTES) _Atomic int64_t offset_ms; /* wall minus monotonic, as last followed: the line */
    _Atomic uint64_t leap;                              /* the leap forward under observation (see clock.c); 0: none */
    _Atomic int64_t held_since_ms;                      /* monotonic since the origin, plus 1; 0: not held */
    _Atomic int64_t held_ms;                            /* holds that are over, added up */

    /* Written by the background thread. */
    _Alignas(TWI_LINE_BYTES) _Atomic int64_t refreshed_ms; /* monotonic */
    _Atomic int64_t lag_max_ms;
};

/* `hook` may be NULL. `cached`: callers read the word and a background thread refreshes it; ignored with a hook. The
 * word is fresh when this returns. */
void twi_clock_init(struct twi_clock *clock, int64_t (*hook)(void *ctx, int kind), void *ctx, bool cached);

/* Reads the clocks, moves engine time forward, returns it. Never waits. */
int64_t twi_clock_read(struct twi_clock *clock);

/* The same where no clock need be read; else TWI_CLOCK_STALE. */
#define TWI_CLOCK_STALE INT64_MIN
TWI_INLINE int64_t twi_clock_peek_ms(const struct twi_clock *clock) {
    int64_t word = twi_load_relaxed(&clock->word);
    return twi_likely((word & 1) == 0) ? word >> 1 : TWI_CLOCK_STALE;
}

/* Engine time in Unix milliseconds. Hot. Relaxed: the word stands for itself; coherence of one word is what keeps time
 * from going back. */
TWI_INLINE int64_t twi_clock_now_ms(struct twi_clock *clock) {
    int64_t word = twi_load_relaxed(&clock->word);
    return twi_likely((word & 1) == 0) ? word >> 1 : twi_clock_read(clock);
}

/* The monotonic clock (the hook's, or the system's coarse one), never cached. */
int64_t twi_clock_mono_ms(struct twi_clock *clock);
int64_t twi_clock_mono_us(struct twi_clock *clock); /* the system's fine one, in place of the coarse */

/* The system's monotonic clock, whatever the hook says: for sleeping (event_count.c). */
struct timespec;
void twi_clock_system_monotonic(struct timespec *out);

/* Background thread, at least every TWI_CLOCK_REFRESH_MS. Harmless in engines that are not cached. */
void twi_clock_refresh(struct twi_clock *clock);
/* Background thread: from now on callers read for themselves (on), or rely on refreshes again (off, which refreshes).
 * No effect in engines that are not cached. */
void twi_clock_direct(struct twi_clock *clock, bool on);

/* How long engine time has stood still or run alone because the wall clock leapt or was set back, all such times added
 * up, the present one included. */
int64_t twi_clock_held_ms(struct twi_clock *clock);
/* Wall clock minus engine time, now: beyond TWI_CLOCK_LEAP_MS either way while the two disagree in earnest. */
int64_t twi_clock_drift_ms(struct twi_clock *clock);
/* The longest that a cached word was not refreshed while callers relied on it. */
int64_t twi_clock_lag_max_ms(struct twi_clock *clock);

#endif
