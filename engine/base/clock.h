/* clock.h -- engine time: Unix milliseconds that never go back and do not follow every leap of the wall clock at once.
 *
 * Always true: engine time never goes back, for any two reads of which one happens before the other, in any threads.
 * How engine time follows the wall clock (traps E30, E31):
 *   - The wall clock moves with the monotonic clock, or steps forward by up to 5 s compared with it. Engine time
 *     follows it at once.
 *   - The wall clock leaps forward by more than that. Engine time then follows the monotonic clock alone until the leap
 *     has lasted for 5 s of monotonic time. Then it follows the leap. A leap that ends earlier had no effect.
 *   - The wall clock goes back by up to 5 s. Engine time stops until the wall clock has caught up, for at most 5 s.
 *   - The wall clock goes back by more than that. Engine time then follows the monotonic clock, as long as the wall
 *     clock is more than 5 s behind engine time. It is then ahead of the wall clock by the size of the step. Only a
 *     step of the wall clock forward, or a new engine, ends this state. If engine time stopped or went slowly, callers
 *     of a limit would wait for as long as the step was, and "retry after 40 s" would be false. If engine time went
 *     back, P7 would be broken.
 * So a step back changes neither engine time nor the times that are sent to Redis. Times go to Redis as engine time
 * (civil ends of windows, the same in all engines) or with the measured offset between engine time and Redis's clock
 * (ends of windows that begin with a key's first count). Both are independent of the wall clock (docs/SYNC.md). A
 * suspended machine causes a leap forward, because CLOCK_MONOTONIC stops while the machine sleeps and the wall clock
 * does not. For the first 5 s after waking, engine time continues from its last value. Then it leaps.
 *
 * The hot word contains engine time and who may rely on it:
 *   RELIED  callers only load the word.
 *   ASKED   callers look whether the word is young, or read the clocks. After so many of these (TWI_CLOCK_READINGS) the
 *           next state is RELIED.
 *   READ    callers look whether the word is young, or read the clocks.
 * There are three kinds of engine:
 *   cached        own thread, system clock: the background thread keeps the word.
 *   host-driven   always READ: the coarse system clocks are read (from the vDSO, without a system call).
 *   with a hook   always READ: no word is young. Each call calls the hook, for WALL and for MONOTONIC.
 * The word lags by a refresh, and the coarse clocks lag by a tick, which is some 10 ms together. A decision that could
 * change within such a grain reads the fine clock with twi_clock_exact_us(). This moves the word like every reading.
 *
 * The word is YOUNG if the processor's time stamp counter has not reached the next multiple of 2^24 cycles (4 to 8 ms)
 * since somebody began to read the clocks for the word: a turn, tw_tick(), or the first call that found it old. Only
 * the fast functions (engine/fast) look, in ten instructions. To read the coarse clock takes a call, 60 instructions,
 * and the same time: on the machine of docs/SPEED.md 11 ns, and 12 ns for the counter. So a host need not tick, and may
 * stop to tick: a pause makes the word old. The counter serves if it never changes its rate, and if the kernel relies
 * on it, too (stamps_serve() in clock.c). Otherwise, and on other processors, no word is young.
 *
 * The KEEPER is the thread that refreshes the word of a cached engine, at least every 10 ms. Each refresh makes the
 * word ASKED. So calls that are rare always read the clocks, and need no keeper. Calls that come so often that the
 * readings would cost time rely on the word until the next refresh, and a call in TWI_CLOCK_LOOK_EVERY looks whether it
 * is due. The keeper may belong to another process (processes.h), and nothing shows the others that one is stopped.
 * The word becomes READ whenever nobody may rely on it. There are four cases. New code need not care about them:
 *   - The keeper may block, between twi_clock_away() and twi_clock_back(). Two places have these brackets for all other
 *     code: the calls of the host's functions (core/host.c), and the locks (base/threads.c).
 *   - The keeper sleeps for a long time (turn/turn.c), between the same brackets.
 *   - One iteration of its loop lasts for more than 10 ms. twi_clock_tick(), which is called in many places of the
 *     turn, notices this.
 *   - The keeper does not run, because it is starved, stopped, killed or in a page fault. A thread that reads the
 *     clocks may find the word more than 10 ms late. It then moves the word and makes it READ, for all callers. So does
 *     a process that waits to lead (lead.c), for those who called often and then stopped to call. The keeper makes the
 *     word ASKED when it runs again.
 * Threads: any thread may call any function at any time, and never waits. The exceptions are init, which comes
 * first, and round and abandon, which only the keeper and its owner call. No other file reads the system clock. */
#ifndef TWI_BASE_CLOCK_H
#define TWI_BASE_CLOCK_H

#include "engine/base/atomic.h"
#include "engine/base/check.h"

#include <stdbool.h>
#include <stdint.h>

#define TWI_CLOCK_REFRESH_MS 10 /* the keeper refreshes the word this often; otherwise callers read the clocks */
#define TWI_CLOCK_LOOK_EVERY 64 /* one call of a thread in so many looks at the clock; this is a power of two */
#define TWI_CLOCK_READINGS 1024 /* after so many readings since the last refresh, callers rely on the word */
/* Two refreshes. An event that is due within so many ms of the time that a caller knows may already be due. */
#define TWI_CLOCK_NEAR_MS (2 * TWI_CLOCK_REFRESH_MS)
#define TWI_CLOCK_LEAP_MS 5000  /* a step of more than this, compared with the monotonic clock, is a leap ... */
#define TWI_CLOCK_STAND_MS 5000 /* ... and engine time follows it when it has lasted for this long */

/* The word: engine time in ms, in the lower 62 bits, plus its state. */
#define TWI_CLOCK_WORD(ms) ((ms) & ~TWI_CLOCK_STATE)
#define TWI_CLOCK_STATE (-(INT64_C(1) << 62))
#define TWI_CLOCK_RELIED INT64_C(0)
#define TWI_CLOCK_ASKED INT64_MIN
#define TWI_CLOCK_READ TWI_CLOCK_STATE

#if defined(__x86_64__)
#define TWI_CLOCK_STAMPS 1
#else
#define TWI_CLOCK_STAMPS 0
#endif
#define TWI_CLOCK_NO_STAMP UINT64_MAX

struct twi_clock {
    /* twi_clock_init() sets the fields below; then all threads read them. */
    int64_t (*hook)(void *ctx, int kind); /* NULL means the system's clocks */
    void *ctx;
    bool cached;
    bool has_stamps;        /* otherwise `stamp` is never set */
    int64_t mono_origin_ms; /* the monotonic clock at init, which keeps `leap` small */
    int64_t grain_ms;       /* by how much twi_clock_exact_us() may lag: 0, or a tick if the fine clock is slow */
    int64_t near_ms;        /* TWI_CLOCK_NEAR_MS; INT64_MAX with a grain: every denial may be due */

    _Alignas(TWI_LINE_BYTES) _Atomic int64_t word; /* its time only ever grows */
    /* twi_clock_stamp() before the clocks were read for the word, or TWI_CLOCK_NO_STAMP */
    _Atomic uint64_t stamp;

    /* Any thread that sees the clocks drift apart writes these fields, which is rare. */
    _Alignas(TWI_LINE_BYTES) _Atomic int64_t offset_ms; /* the line: wall clock minus monotonic clock */
    _Atomic uint64_t leap;                              /* the forward leap under observation (clock.c); 0 means none */
    _Atomic int64_t held_since_ms; /* the monotonic time since the origin, plus 1; 0 if engine time is not stopped */
    _Atomic int64_t held_ms;       /* the sum of all stops that have ended */

    _Alignas(TWI_LINE_BYTES) _Atomic int64_t refreshed_ms; /* monotonic; the keeper writes it */
    _Atomic int64_t lag_max_ms;                            /* any thread writes it */
    /* how often callers have moved the word; this shows the keeper whether there are calls */
    _Atomic uint32_t moves;
    _Atomic uint32_t readings; /* since the last refresh, while the word is ASKED */
};

/* `hook` may be NULL. `cached` means that callers load the word and a background thread refreshes it. With a hook it
 * is ignored. The word is up to date when this returns. */
void twi_clock_init(struct twi_clock *clock, int64_t (*hook)(void *ctx, int kind), void *ctx, bool cached);

/* Reads the coarse clocks, moves engine time forward, and returns it. Never waits. Costs some 9 ns. */
int64_t twi_clock_read(struct twi_clock *clock);
/* One call in TWI_CLOCK_LOOK_EVERY calls this function, for all of these. It reads the clocks, unless there is a hook.
 * If callers rely on the word, and no thread has refreshed it, they read the clocks until the keeper runs again. */
void twi_clock_look(struct twi_clock *clock);
/* From now on callers read the clocks, until the keeper runs again. Follows no pointer. */
void twi_clock_distrust(struct twi_clock *clock);

/* Returns engine time if the word alone gives it, and if it is not before 1970. Otherwise returns a moment that is
 * in no window which begins in 1970 or later. If callers do not rely on the word, the result is negative, because the
 * upper bit of the state is the sign. If they do, a moment before 1970 becomes a moment after all calendars. */
TWI_INLINE int64_t twi_clock_peek_ms(const struct twi_clock *clock) {
    return twi_load_relaxed(&clock->word);
}

TWI_INLINE int64_t twi_clock_time_of(int64_t word) {
    return (int64_t)((uint64_t)word << 2) >> 2;
}

/* Returns engine time in Unix milliseconds. Hot. It is relaxed, because the word publishes only itself, and the
 * coherence of one word is enough to make sure that time never goes back. */
TWI_INLINE int64_t twi_clock_now_ms(struct twi_clock *clock) {
    int64_t word = twi_load_relaxed(&clock->word);
    return twi_likely((word & TWI_CLOCK_STATE) == TWI_CLOCK_RELIED) ? twi_clock_time_of(word) : twi_clock_read(clock);
}

/* Returns bits 24 to 55 of the time stamp counter. They repeat after half a year or more. */
TWI_INLINE uint64_t twi_clock_stamp(void) {
#if TWI_CLOCK_STAMPS
    uint64_t stamp;
    __asm__ volatile("rdtsc\n\tshldl $8, %%eax, %%edx" : "=d"(stamp) : : "rax", "cc");
    return stamp;
#else
    return 0;
#endif
}

/* Returns true if the word is young. Then *now_ms is its time. The word is loaded after the stamp: who moves it writes
 * the word first. So no word is older than its stamp says. */
TWI_INLINE bool twi_clock_is_young(const struct twi_clock *clock, int64_t *now_ms) {
    if (!TWI_CLOCK_STAMPS || twi_unlikely(twi_load_acquire(&clock->stamp) != twi_clock_stamp())) return false; /* TS1 */
    *now_ms = twi_clock_time_of(twi_load_relaxed(&clock->word));
    return true;
}

/* Does the same as twi_clock_read(), and then the word is young. */
int64_t twi_clock_renew_ms(struct twi_clock *clock);

/* Returns engine time in microseconds since 1970. It reads the hook, or the system's fine clock if that needs no system
 * call, or otherwise the coarse clock (grain_ms). The result is never behind an earlier reading of engine time in
 * milliseconds. Costs some 25 ns. */
int64_t twi_clock_exact_us(struct twi_clock *clock);
TWI_INLINE int64_t twi_clock_exact_ms(struct twi_clock *clock) {
    int64_t us = twi_clock_exact_us(clock);
    return us / 1000 - (us % 1000 < 0);
}

/* Whether it pauses, because the wall clock was set back. */
TWI_INLINE bool twi_clock_pauses(const struct twi_clock *clock) {
    return twi_load_relaxed(&clock->held_since_ms) != 0;
}
/* Returns for how long engine time pauses from now on, because the wall clock was set back; 0: it does not. A pause of
 * up to 20 ms may not be noticed. Call it after a reading of engine time. Costs a load while the wall clock agrees. */
int64_t twi_clock_pause_ms(struct twi_clock *clock);
/* Returns by how much it may take longer until a moment of engine time than engine time shows. */
TWI_INLINE int64_t twi_clock_longer_ms(struct twi_clock *clock) {
    return clock->grain_ms + twi_clock_pause_ms(clock);
}

/* Returns the monotonic clock (the hook's, or the system's coarse one). It is never cached. */
int64_t twi_clock_mono_ms(const struct twi_clock *clock);
int64_t twi_clock_mono_us(const struct twi_clock *clock); /* it reads the system's fine clock if there is no hook */

/* Returns the system's monotonic clock, even if there is a hook. For sleeping (event_count.c). */
struct timespec;
void twi_clock_system_monotonic(struct timespec *out);
/* The same, in ms. For the time of tw_close(), which must pass even if the hook's clock does not move. */
int64_t twi_clock_system_ms(void);

/* Moves engine time in the same way as twi_clock_read(). The owner of the turn calls it at the start of a turn. */
void twi_clock_refresh(struct twi_clock *clock);

/* ---- the keeper ---- */

/* From now on the calling thread keeps this clock. NULL means that it keeps no clock. A thread keeps at most one
 * clock. This has no effect if the clock is not cached. A forked child's thread keeps no clock. */
void twi_clock_keep(struct twi_clock *clock);
/* Called when the keeper of the clock has ended. From now on callers read the clocks. */
void twi_clock_abandon(struct twi_clock *clock);
/* Called when the keeper begins the next iteration of its loop. */
void twi_clock_round(void);
/* Refreshes the word in a long iteration, if a refresh is due. It is cheap, and without effect in other threads. */
void twi_clock_tick(void);
/* Between away and back, the calling thread may block or sleep for a long time. If it is a keeper, the callers of
 * its engine read the clocks meanwhile. In any other thread this has no effect. The brackets nest. */
void twi_clock_away(void);
void twi_clock_back(void);

/* Returns the sum of all times, including the present one, in which engine time stopped or followed only the
 * monotonic clock, because the wall clock leapt or was set back. */
int64_t twi_clock_held_ms(const struct twi_clock *clock);
/* Returns the wall clock minus engine time, now. Beyond TWI_CLOCK_LEAP_MS engine time does not follow it. */
int64_t twi_clock_drift_ms(struct twi_clock *clock);
/* Returns the longest time for which a cached word was not refreshed while callers used it. */
int64_t twi_clock_lag_max_ms(const struct twi_clock *clock);

#endif
