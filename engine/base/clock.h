/* clock.h -- engine time: Unix milliseconds that never go back and do not follow every leap of the wall clock.
 *
 * Always true: engine time never goes back, for any two reads of which one happens before the other, in any threads.
 * How engine time follows the wall clock (traps E30, E31):
 *   - The wall moves with the monotonic clock, or steps forward by up to 5 s against it. Engine time follows at once.
 *   - The wall leaps forward by more. Engine time then follows the monotonic clock alone until the leap has lasted for
 *     5 s of monotonic time. Then it follows the leap. A leap that ends earlier was a glitch and has no effect.
 *   - The wall goes back by up to 5 s. Engine time stops until the wall has caught up, so for 5 s at most.
 *   - The wall goes back by more. Engine time then follows the monotonic clock, as long as the wall is more than 5 s
 *     behind it. It is then ahead of the wall by the size of the step. Only a step of the wall forward, or a new
 *     engine, ends that. Stopping or going slowly would delay callers of a limit for as long as the step was, and
 *     "retry after 40 s" would be false. Going back would break P7.
 * So a step back changes neither engine time nor the times that Redis receives. Times go to Redis as engine time (civil
 * ends of windows, the same in all engines) or with the measured offset between engine time and Redis's clock (ends of
 * windows that begin with a key's first count). Neither moves with the wall (docs/SYNC.md).
 * A suspended machine is a leap forward, because CLOCK_MONOTONIC stops while the machine sleeps and the wall clock does
 * not. For the first 5 s after waking, engine time continues from its last value. Then it leaps to the present.
 *
 * The hot word contains engine time and one flag, "callers read the clocks". There are three kinds of engine:
 *   cached        own thread, system clock: the background thread keeps the word, callers only load it.
 *   host-driven   the flag is always set: callers read the coarse system clocks (from the vDSO, without a system call).
 *   with a hook   the flag is always set: each call asks the hook, for WALL and for MONOTONIC.
 * The word and the coarse clocks lag by a refresh and a tick, some 10 ms together. A decision that such a grain can
 * change reads the fine clock with twi_clock_exact_us(), which moves the word like every reading.
 *
 * The KEEPER is the thread that refreshes the word of a cached engine, at least every 10 ms. The flag is set whenever
 * callers must not rely on it. There are four cases. Code that is added need not care about them:
 *   - It may block, between twi_clock_away() and twi_clock_back(). Two places have these brackets for all others, the
 *     calls of the host's functions (core/host.c) and the locks (base/lock.c).
 *   - It sleeps for long (turn/turn.c), between the same brackets.
 *   - One iteration of its loop lasts for more than 10 ms. twi_clock_tick(), called all over the turn, notices that.
 *   - It does not run, because it is starved, stopped or in a page fault. A thread that reads the clocks (a denied
 *     call, a new key, one call in TWI_CLOCK_LOOK_EVERY) and finds the word more than 10 ms late moves it and sets the
 *     flag, for all callers. The keeper clears it when it runs again.
 * Threads: any thread may call any function at any time, and never waits, except init, and except round and abandon,
 * which are the keeper's and its owner's. No other file reads the system clock. */
#ifndef TWI_BASE_CLOCK_H
#define TWI_BASE_CLOCK_H

#include "engine/base/atomic.h"
#include "engine/base/check.h"

#include <stdbool.h>
#include <stdint.h>

#define TWI_CLOCK_REFRESH_MS 10   /* the keeper refreshes the word at least this often, or callers read the clocks */
#define TWI_CLOCK_LOOK_EVERY 1024 /* one call of a thread in so many looks at the clock; a power of two */
/* Two refreshes. An event due within so many ms of the time that a caller knows may be due now. */
#define TWI_CLOCK_NEAR_MS (2 * TWI_CLOCK_REFRESH_MS)
#define TWI_CLOCK_LEAP_MS 5000  /* a step of more than this against the monotonic clock is a leap ... */
#define TWI_CLOCK_STAND_MS 5000 /* ... and engine time follows it when it has lasted for this long */

struct twi_clock {
    /* Set by init, then read by all. */
    int64_t (*hook)(void *ctx, int kind); /* NULL means the system's clocks */
    void *ctx;
    bool cached;
    int64_t mono_origin_ms; /* the monotonic clock at init, which keeps `leap` small */
    int64_t grain_ms;       /* by how much twi_clock_exact_us() may lag: 0, or a tick if the fine clock is slow */
    int64_t near_ms;        /* TWI_CLOCK_NEAR_MS, or INT64_MAX with a grain, for which every denial must then allow */

    _Alignas(TWI_LINE_BYTES) _Atomic int64_t word; /* engine time in ms, times two, plus the flag; only ever grows */

    /* Written by any thread that sees the clocks drift apart, which is rare. */
    _Alignas(TWI_LINE_BYTES) _Atomic int64_t offset_ms; /* the line, which is wall minus monotonic, as last followed */
    _Atomic uint64_t leap;         /* the forward leap under observation (see clock.c); 0 means none */
    _Atomic int64_t held_since_ms; /* monotonic since the origin, plus 1; 0 if not stopped */
    _Atomic int64_t held_ms;       /* sum of all stops that have ended */

    _Alignas(TWI_LINE_BYTES) _Atomic int64_t refreshed_ms; /* monotonic; written by the keeper */
    _Atomic int64_t lag_max_ms;                            /* written by any thread */
    /* how often callers have moved the word, by which the keeper sees whether there are calls */
    _Atomic uint32_t moves;
};

/* `hook` may be NULL. `cached` means that callers load the word, and a background thread refreshes it; ignored with a
 * hook. The word is fresh when this returns. */
void twi_clock_init(struct twi_clock *clock, int64_t (*hook)(void *ctx, int kind), void *ctx, bool cached);

/* Reads the coarse clocks, moves engine time forward, returns it. Never waits. Some 9 ns. */
int64_t twi_clock_read(struct twi_clock *clock);
/* One call in TWI_CLOCK_LOOK_EVERY calls this. If no thread has refreshed the word, all callers read the clocks from
 * now on, until the keeper runs again. */
void twi_clock_look(struct twi_clock *clock);

/* Engine time if the word alone gives it, and it is not before 1970. Otherwise a moment in no window that begins in
 * 1970 or later. With the flag, which becomes the sign, it is negative. Without the flag, a moment before 1970 becomes
 * one after all calendars. */
TWI_INLINE int64_t twi_clock_peek_ms(const struct twi_clock *clock) {
    uint64_t word = (uint64_t)twi_load_relaxed(&clock->word);
    return (int64_t)(word >> 1 | word << 63);
}

/* Engine time in Unix milliseconds. Hot. Relaxed, because the word publishes only itself, and the coherence of one word
 * is enough to keep time from going back. */
TWI_INLINE int64_t twi_clock_now_ms(struct twi_clock *clock) {
    int64_t word = twi_load_relaxed(&clock->word);
    return twi_likely((word & 1) == 0) ? word >> 1 : twi_clock_read(clock);
}

/* Engine time in microseconds since 1970, read now from the hook, or from the system's fine clock if that needs no
 * system call, otherwise from the coarse one (grain_ms). It is never behind a reading of engine time that happened
 * before, in milliseconds. Some 25 ns. */
int64_t twi_clock_exact_us(struct twi_clock *clock);
TWI_INLINE int64_t twi_clock_exact_ms(struct twi_clock *clock) {
    int64_t us = twi_clock_exact_us(clock);
    return us / 1000 - (us % 1000 < 0);
}

/* The monotonic clock (the hook's, or the system's coarse one), never cached. */
int64_t twi_clock_mono_ms(const struct twi_clock *clock);
int64_t twi_clock_mono_us(const struct twi_clock *clock); /* without a hook, the system's fine clock */

/* The system's monotonic clock, whether there is a hook or not. For sleeping (event_count.c). */
struct timespec;
void twi_clock_system_monotonic(struct timespec *out);

/* Moves engine time, as twi_clock_read(). By the owner of the turn, at its start. */
void twi_clock_refresh(struct twi_clock *clock);

/* ---- the keeper ---- */

/* The calling thread keeps this clock from now on, or no clock for NULL. A thread keeps one clock at most. No effect
 * with a clock that is not cached. A forked child's thread keeps no clock. */
void twi_clock_keep(struct twi_clock *clock);
/* The keeper of the clock has ended. Callers read the clocks from now on. */
void twi_clock_abandon(struct twi_clock *clock);
/* The keeper begins the next iteration of its loop. */
void twi_clock_round(void);
/* Refreshes the word in a long iteration, if that is due. Cheap for the keeper, without effect in any other thread. */
void twi_clock_tick(void);
/* The calling thread may block, or sleep for long, from away to back. If it is a keeper, the callers of its engine read
 * the clocks meanwhile. Without effect in any other thread. The brackets nest. */
void twi_clock_away(void);
void twi_clock_back(void);

/* Sum of all times, the present one included, in which engine time stopped or followed the monotonic clock alone,
 * because the wall clock leapt or was set back. */
int64_t twi_clock_held_ms(const struct twi_clock *clock);
/* Wall clock minus engine time, now. Beyond TWI_CLOCK_LEAP_MS, either way, engine time does not follow the wall. */
int64_t twi_clock_drift_ms(struct twi_clock *clock);
/* The longest time for which a cached word was not refreshed while callers relied on it. */
int64_t twi_clock_lag_max_ms(const struct twi_clock *clock);

#endif
