/* clock.c -- see clock.h. The one file that asks the system for the time.
 *
 * The line is monotonic + offset_ms: where engine time would be without the wall. drift: how far the wall is from it now.
 *   AGREED   leap == 0          drift up to 5 s, either way   -> the line moves to the wall
 *                               drift beyond 5 s forward      -> WATCHED, since now
 *   WATCHED  leap = since, size drift small again             -> AGREED (a glitch, forgotten)
 *                               drift of another size         -> WATCHED, since now
 *                               drift stood for 5 s           -> AGREED, on the wall's line
 *   drift beyond 5 s back, or a step back while engine time is more than 5 s ahead of the wall already: the line stays.
 *                               This is no state: the next reading asks again.
 * In every state engine time = max(engine time, min(wall, line)), with the line alone while the wall is behind it by more
 * than 5 s. So it never passes a line nobody believes in, and stands still for 5 s at most: the line is lowered only to a
 * wall that engine time is no more than 5 s ahead of.
 * Always true: `word` only grows (compare-and-swap for the greater). Everything else here is advice to that one rule:
 * a thread that sleeps between its reading of the clocks and its verdict can at worst delay or restart a watch. */
#include "engine/base/clock.h"

#include "tallywheel.h"

#include <time.h>

#define NS_PER_MS INT64_C(1000000)

/* Two coarse clocks are read one after the other, and a tick of up to 10 ms (100 Hz kernels) may fall between: a drift
 * this small is no step, and writing it down would share a line between all readers for nothing. */
#define NOISE_MS 20

/* The leap word: monotonic ms since the origin, plus 1, in the upper 40 bits (35 years of uptime); the size in steps of
 * 2.5 s in the lower 24 (242 days, greater ones look alike). One word, so that it changes by one compare-and-swap. */
#define LEAP_SIZE_BITS 24
#define LEAP_STEP_MS 2500
#define LEAP_SIZE_MAX ((INT64_C(1) << (LEAP_SIZE_BITS - 1)) - 1)

static int64_t floor_ms(int64_t ns) {
    return ns / NS_PER_MS - (ns % NS_PER_MS < 0);
}

static int64_t system_ms(clockid_t id) {
    struct timespec now = {0};
    (void)clock_gettime(id, &now); /* cannot fail for these clocks */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
}

static int64_t wall_ms(const struct twi_clock *clock) {
    if (clock->hook != NULL) return floor_ms(clock->hook(clock->ctx, TW_CLOCK_WALL));
    return system_ms(CLOCK_REALTIME_COARSE);
}

void twi_clock_system_monotonic(struct timespec *out) {
    (void)clock_gettime(CLOCK_MONOTONIC, out);
}

int64_t twi_clock_mono_ms(struct twi_clock *clock) {
    if (clock->hook != NULL) return floor_ms(clock->hook(clock->ctx, TW_CLOCK_MONOTONIC));
    return system_ms(CLOCK_MONOTONIC_COARSE);
}

int64_t twi_clock_mono_us(struct twi_clock *clock) {
    if (clock->hook != NULL) return clock->hook(clock->ctx, TW_CLOCK_MONOTONIC) / 1000;
    struct timespec now;
    twi_clock_system_monotonic(&now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- the word: engine time, and whether callers read for themselves ---------------------------------------------- */

static int64_t word_of(int64_t now_ms, int64_t flag) {
    return now_ms * 2 | flag;
}

/* Moves engine time forward to `now_ms` unless it is there already; returns what it is then. Relaxed throughout: one
 * word, and nobody takes anything else from having seen it; all modifications of one word have one order, which is
 * all that "never goes back" needs. Lock-free: a failed exchange means that another thread has moved it. */
static int64_t advance(struct twi_clock *clock, int64_t now_ms) {
    int64_t word = twi_load_relaxed(&clock->word);
    while ((word >> 1) < now_ms)
        if (twi_cas_relaxed(&clock->word, &word, word_of(now_ms, word & 1))) return now_ms;
    return word >> 1;
}

/* ---- leaps ------------------------------------------------------------------------------------------------------- */

static int64_t leap_size(int64_t drift_ms) {
    int64_t size = drift_ms / LEAP_STEP_MS;
    return size > LEAP_SIZE_MAX ? LEAP_SIZE_MAX : size < -LEAP_SIZE_MAX ? -LEAP_SIZE_MAX : size;
}

static uint64_t leap_pack(int64_t since_ms, int64_t size) {
    uint64_t since = (uint64_t)since_ms + 1;
    return since << LEAP_SIZE_BITS | ((uint64_t)size & ((UINT64_C(1) << LEAP_SIZE_BITS) - 1));
}

static bool leap_is_same(uint64_t leap, int64_t drift_ms) {
    int64_t watched = (int64_t)(leap << (64 - LEAP_SIZE_BITS)) >> (64 - LEAP_SIZE_BITS);
    int64_t apart = (watched - leap_size(drift_ms)) * LEAP_STEP_MS;
    return leap != 0 && apart >= -TWI_CLOCK_LEAP_MS && apart <= TWI_CLOCK_LEAP_MS;
}

static bool leap_has_stood(uint64_t leap, int64_t mono_ms) {
    int64_t since_ms = (int64_t)(leap >> LEAP_SIZE_BITS) - 1;
    return mono_ms - since_ms >= TWI_CLOCK_STAND_MS;
}

/* The wall is more than 5 s ahead of the line. True: it has been so for long enough, believe it. */
static bool watch(struct twi_clock *clock, int64_t drift_ms, int64_t mono_ms) {
    int64_t since_ms = mono_ms - clock->mono_origin_ms;
    uint64_t leap = twi_load_relaxed(&clock->leap);
    if (leap_is_same(leap, drift_ms)) return leap_has_stood(leap, since_ms);
    if (since_ms < 0) since_ms = 0; /* a hook whose monotonic clock is none: still no nonsense in the word */
    (void)twi_cas_relaxed(&clock->leap, &leap, leap_pack(since_ms, leap_size(drift_ms)));
    return false; /* lost the exchange: another thread watches, its start is as good */
}

static void forget_leap(struct twi_clock *clock) {
    if (twi_load_relaxed(&clock->leap) != 0) twi_store_relaxed(&clock->leap, 0);
}

static void agree(struct twi_clock *clock, int64_t offset_seen_ms, int64_t offset_ms) {
    (void)twi_cas_relaxed(&clock->offset_ms, &offset_seen_ms, offset_ms);
    forget_leap(clock);
}

/* The wall is to be waited for no longer than a step: then the line is followed, whatever the wall says. */
static bool was_set_back(struct twi_clock *clock, int64_t drift_ms, int64_t wall) {
    int64_t ahead_ms = (twi_load_relaxed(&clock->word) >> 1) - wall;
    return drift_ms < -TWI_CLOCK_LEAP_MS || (drift_ms < -NOISE_MS && ahead_ms > TWI_CLOCK_LEAP_MS);
}

/* How far engine time may go by these two readings. */
static int64_t allowed_ms(struct twi_clock *clock, int64_t wall, int64_t mono) {
    int64_t offset = twi_load_relaxed(&clock->offset_ms);
    int64_t drift = wall - mono - offset;
    if (drift >= -NOISE_MS && drift <= NOISE_MS && twi_load_relaxed(&clock->leap) == 0) return wall;
    if (was_set_back(clock, drift, wall)) {
        forget_leap(clock);
        return mono + offset;
    }
    if (drift <= TWI_CLOCK_LEAP_MS || watch(clock, drift, mono)) {
        agree(clock, offset, wall - mono);
        return wall;
    }
    return mono + offset;
}

/* ---- how long it was held: a statistic, relaxed ------------------------------------------------------------------ */

static int64_t held_by(struct twi_clock *clock, int64_t held_since, int64_t mono) {
    int64_t held = held_since == 0 ? 0 : mono - clock->mono_origin_ms - (held_since - 1);
    return held > 0 ? held : 0;
}

static void note_hold(struct twi_clock *clock, bool is_held, int64_t mono) {
    int64_t since = twi_load_relaxed(&clock->held_since_ms);
    if (twi_likely(is_held == (since != 0))) return;
    int64_t next = is_held ? mono - clock->mono_origin_ms + 1 : 0;
    if (!twi_cas_relaxed(&clock->held_since_ms, &since, next) || is_held) return;
    twi_add_relaxed(&clock->held_ms, held_by(clock, since, mono));
}

int64_t twi_clock_held_ms(struct twi_clock *clock) {
    int64_t since = twi_load_relaxed(&clock->held_since_ms);
    int64_t held = twi_load_relaxed(&clock->held_ms);
    return since == 0 ? held : held + held_by(clock, since, twi_clock_mono_ms(clock));
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int64_t read_at(struct twi_clock *clock, int64_t wall, int64_t mono) {
    int64_t now = advance(clock, allowed_ms(clock, wall, mono));
    note_hold(clock, wall - now > NOISE_MS || now - wall > NOISE_MS, mono);
    return now;
}

int64_t twi_clock_read(struct twi_clock *clock) {
    int64_t wall = wall_ms(clock);
    int64_t now = twi_load_relaxed(&clock->word) >> 1;
    /* Most reads of a coarse clock fall into a tick that somebody has seen: nothing can move, and one reading was
     * enough. A hook is asked for both, as promised: a test may move one of them alone. */
    if (wall == now && clock->hook == NULL) return now;
    return read_at(clock, wall, twi_clock_mono_ms(clock));
}

int64_t twi_clock_drift_ms(struct twi_clock *clock) {
    return wall_ms(clock) - twi_clock_read(clock);
}

/* ---- the background thread --------------------------------------------------------------------------------------- */

void twi_clock_refresh(struct twi_clock *clock) {
    int64_t mono = twi_clock_mono_ms(clock);
    int64_t lag = mono - twi_load_relaxed(&clock->refreshed_ms); /* relaxed: this thread wrote it */
    bool relied_on = (twi_load_relaxed(&clock->word) & 1) == 0;  /* relaxed: this thread alone sets the flag */
    (void)read_at(clock, wall_ms(clock), mono);
    twi_store_relaxed(&clock->refreshed_ms, mono);
    if (relied_on && lag > twi_load_relaxed(&clock->lag_max_ms)) twi_store_relaxed(&clock->lag_max_ms, lag);
}

void twi_clock_direct(struct twi_clock *clock, bool on) {
    if (!clock->cached) return;
    twi_clock_refresh(clock); /* off: the word must be fresh before callers rely on it; on: the lag up to here counts */
    if (on) {
        twi_or_relaxed(&clock->word, 1);
    } else {
        (void)twi_and_acqrel(&clock->word, ~INT64_C(1)); /* relaxed would do, as above: no partner */
    }
}

int64_t twi_clock_lag_max_ms(struct twi_clock *clock) {
    return twi_load_relaxed(&clock->lag_max_ms);
}

void twi_clock_init(struct twi_clock *clock, int64_t (*hook)(void *ctx, int kind), void *ctx, bool cached) {
    clock->hook = hook;
    clock->ctx = ctx;
    clock->cached = cached && hook == NULL;
    int64_t wall = wall_ms(clock), mono = twi_clock_mono_ms(clock);
    clock->mono_origin_ms = mono;
    atomic_init(&clock->word, word_of(wall, clock->cached ? 0 : 1));
    atomic_init(&clock->offset_ms, wall - mono);
    atomic_init(&clock->leap, 0);
    atomic_init(&clock->held_since_ms, 0);
    atomic_init(&clock->held_ms, 0);
    atomic_init(&clock->refreshed_ms, mono);
    atomic_init(&clock->lag_max_ms, 0);
}
