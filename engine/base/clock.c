/* clock.c -- see clock.h. The only file that reads the system's clocks.
 *
 * "Line" means the monotonic clock + offset_ms. Engine time would follow the line if there were no wall clock. "Drift"
 * means the wall clock minus the line, now. The observation of leaps has two states:
 *   AGREED   leap == 0          drift up to 5 s, either way   -> the line moves to the wall
 *                               drift beyond 5 s forward      -> WATCHED, since now
 *   WATCHED  leap = since, size drift small again             -> AGREED (it was a glitch)
 *                               drift of another size         -> WATCHED, since now
 *                               drift has lasted for 5 s      -> AGREED, with the line on the wall
 * The wall was set back if the drift is more than 5 s backward, or if it is backward at all while engine time is
 * already more than 5 s ahead of the wall. In this case the line stays. This is not a state, because the next reading
 * decides again.
 * In every state engine time = max(engine time, min(wall, line)), or max(engine time, line) if the wall was set back.
 * So engine time never follows a leap that has not lasted. Engine time stops for at most 5 s, because the line moves
 * down only to a wall clock that is at most 5 s behind engine time.
 * Always true: the time in `word` only grows, by a compare-and-swap that stores the greater value. All other state
 * only helps this one rule. A thread may stop between its reading of the clocks and its decision. The worst effect is
 * that an observation is delayed or begins again. */
#include "engine/base/clock.h"

#include "tallywheel.h"

#if TWI_CLOCK_STAMPS
#include <cpuid.h>
#endif
#include <sys/auxv.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)

/* A tick of up to 10 ms (100 Hz kernels) may come between the readings of the two coarse clocks. A drift this small
 * does not count as a step. If it were stored, readers would share a line that is written often. */
#define NOISE_MS 20

/* The `leap` word has the monotonic ms since the origin, plus 1, in the upper 40 bits (35 years of uptime). The
 * lower 24 bits contain the size in steps of 2.5 s (up to 242 days; greater sizes have the same value). Both are in
 * one word, so that one compare-and-swap changes both. */
#define LEAP_SIZE_BITS 24
#define LEAP_STEP_MS 2500
#define LEAP_SIZE_MAX ((INT64_C(1) << (LEAP_SIZE_BITS - 1)) - 1)

/* If a fine clock answers within this time, it is read without a system call, from the vDSO, in 20 to 40 ns. If the
 * vDSO cannot read the machine's time source, the kernel reads it in a microsecond or more. */
#define FINE_NS 500
#define FINE_TRIES 8

static int64_t floor_by(int64_t ns, int64_t by) {
    return ns / by - (ns % by < 0);
}

static int64_t floor_ms(int64_t ns) {
    return floor_by(ns, NS_PER_MS);
}

static int64_t system_ns(clockid_t id) {
    struct timespec now = {0};
    (void)clock_gettime(id, &now); /* the call cannot fail for these clocks */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t system_ms(clockid_t id) {
    return system_ns(id) / NS_PER_MS;
}

static int64_t wall_ms(const struct twi_clock *clock) {
    if (clock->hook != NULL) return floor_ms(clock->hook(clock->ctx, TW_CLOCK_WALL));
    return system_ms(CLOCK_REALTIME_COARSE);
}

void twi_clock_system_monotonic(struct timespec *out) {
    (void)clock_gettime(CLOCK_MONOTONIC, out);
}

int64_t twi_clock_system_ms(void) {
    return system_ms(CLOCK_MONOTONIC_COARSE);
}

int64_t twi_clock_mono_ms(const struct twi_clock *clock) {
    if (clock->hook != NULL) return floor_ms(clock->hook(clock->ctx, TW_CLOCK_MONOTONIC));
    return system_ms(CLOCK_MONOTONIC_COARSE);
}

int64_t twi_clock_mono_us(const struct twi_clock *clock) {
    if (clock->hook != NULL) return clock->hook(clock->ctx, TW_CLOCK_MONOTONIC) / 1000;
    struct timespec now;
    twi_clock_system_monotonic(&now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t fine_us(const struct twi_clock *clock, int kind) {
    int64_t ns = clock->hook != NULL ? clock->hook(clock->ctx, kind)
                                     : system_ns(kind == TW_CLOCK_WALL ? CLOCK_REALTIME : CLOCK_MONOTONIC);
    return floor_by(ns, 1000);
}

/* Returns 0 if the fine clock is quick, otherwise the tick of the coarse clock */
static int64_t find_grain_ms(void) {
    int64_t least_ns = INT64_MAX;
    for (int i = 0; i < FINE_TRIES && getauxval(AT_SYSINFO_EHDR) != 0; i++) {
        int64_t from_ns = system_ns(CLOCK_MONOTONIC), took_ns = system_ns(CLOCK_MONOTONIC) - from_ns;
        if (took_ns < least_ns) least_ns = took_ns;
    }
    if (least_ns <= FINE_NS) return 0;
    struct timespec tick = {0};
    (void)clock_getres(CLOCK_REALTIME_COARSE, &tick);
    return (int64_t)tick.tv_sec * 1000 + tick.tv_nsec / NS_PER_MS + 1;
}

/* Returns true if the time stamp counter never changes its rate, and counts alike on all processors. The kernel knows
 * the second. It reads a clock in the vDSO only if that is so. Where there is no vDSO (as under valgrind), what the
 * processor says must be enough. */
static bool stamps_serve(int64_t grain_ms) {
#if TWI_CLOCK_STAMPS
    uint32_t eax, ebx, ecx, edx;
    if (__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) == 0 || (edx >> 8 & 1) == 0) return false;
    return grain_ms == 0 || getauxval(AT_SYSINFO_EHDR) == 0;
#else
    (void)grain_ms;
    return false;
#endif
}

/* ---- the keeper -------------------------------------------------------------------------------------------------- */

/* A thread's knowledge of the clock that it keeps. */
static _Thread_local struct {
    struct twi_clock *clock; /* NULL means none */
    uint32_t away;           /* how many brackets are open */
    bool is_long;            /* this iteration has lasted for a long time, so one of the brackets belongs to it */
    int64_t began_ms;        /* monotonic time at which this iteration began */
} keeper __attribute__((tls_model("initial-exec")));

static void note_lag(struct twi_clock *clock, int64_t lag_ms) {
    int64_t most = twi_load_relaxed(&clock->lag_max_ms);
    while (lag_ms > most && !twi_cas_relaxed(&clock->lag_max_ms, &most, lag_ms)) continue;
}

/* ---- the word of engine time, and who relies on it --------------------------------------------------------------- */

static int64_t state_of(int64_t word) {
    return word & TWI_CLOCK_STATE;
}

static int64_t time_in_word_ms(const struct twi_clock *clock) {
    return twi_clock_time_of(twi_load_relaxed(&clock->word));
}

/* Returns how long ago the last refresh was. */
static int64_t lag_of_ms(const struct twi_clock *clock) {
    return twi_clock_mono_ms(clock) - twi_load_relaxed(&clock->refreshed_ms);
}

/* Returns for how long the word was used without a refresh, if the keeper must be blocked. Otherwise returns 0.
 * Both readings are coarse, so the grain of the clocks does not count as lateness. */
static int64_t late_by_ms(const struct twi_clock *clock, int64_t word, int64_t now_ms) {
    bool is_used = state_of(word) == TWI_CLOCK_RELIED && keeper.clock != clock;
    if (!is_used || now_ms - twi_clock_time_of(word) <= TWI_CLOCK_REFRESH_MS) return 0;
    int64_t lag_ms = lag_of_ms(clock);
    return lag_ms > TWI_CLOCK_REFRESH_MS ? lag_ms : 0;
}

/* Moves engine time forward to `now_ms`, unless engine time is already there. Returns engine time. A caller that finds
 * the word late makes it READ, too. Relaxed operations are enough, because the word publishes only itself, and all
 * changes of one word have one order. So engine time never goes back. This is lock-free: if the exchange fails, another
 * thread has moved the word. */
static int64_t advance(struct twi_clock *clock, int64_t now_ms) {
    int64_t word = twi_load_relaxed(&clock->word);
    while (twi_clock_time_of(word) < now_ms) {
        int64_t lag_ms = late_by_ms(clock, word, now_ms), state = lag_ms != 0 ? TWI_CLOCK_READ : state_of(word);
        if (!twi_cas_relaxed(&clock->word, &word, TWI_CLOCK_WORD(now_ms) + state)) continue;
        if (lag_ms != 0) note_lag(clock, lag_ms);
        if (keeper.clock != clock) (void)twi_add_relaxed(&clock->moves, 1);
        return now_ms;
    }
    return twi_clock_time_of(word);
}

void twi_clock_distrust(struct twi_clock *clock) {
    (void)twi_or_relaxed(&clock->word, TWI_CLOCK_READ);
}

/* Callers have read the clocks many times since the last refresh. They rely on the word from now on, if that was within
 * 10 ms. The exchange fails if the keeper or another caller has changed the word since this one looked. The second look
 * is for a thread that did not run between the first one and the exchange. */
static void rely(struct twi_clock *clock) {
    int64_t word = twi_load_relaxed(&clock->word);
    if (state_of(word) == TWI_CLOCK_ASKED && lag_of_ms(clock) <= TWI_CLOCK_REFRESH_MS)
        (void)twi_cas_relaxed(&clock->word, &word, word - TWI_CLOCK_ASKED);
    if (lag_of_ms(clock) > TWI_CLOCK_REFRESH_MS) twi_clock_distrust(clock);
}

static void count_readings(struct twi_clock *clock, uint32_t count) {
    uint32_t before = twi_add_relaxed(&clock->readings, count);
    if (before < TWI_CLOCK_READINGS && count >= TWI_CLOCK_READINGS - before) rely(clock);
}

/* The keeper does not block, and the word is up to date. */
static void ask(struct twi_clock *clock) {
    twi_store_relaxed(&clock->readings, 0);
    int64_t word = twi_load_relaxed(&clock->word);
    while (state_of(word) != TWI_CLOCK_ASKED &&
           !twi_cas_relaxed(&clock->word, &word, TWI_CLOCK_WORD(twi_clock_time_of(word)) + TWI_CLOCK_ASKED))
        continue;
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

/* Called if the wall clock is more than 5 s ahead of the line. Returns true if this has been so for 5 s, so that
 * engine time follows the wall clock. */
static bool watch(struct twi_clock *clock, int64_t drift_ms, int64_t mono_ms) {
    int64_t since_ms = mono_ms - clock->mono_origin_ms;
    uint64_t leap = twi_load_relaxed(&clock->leap);
    if (leap_is_same(leap, drift_ms)) return leap_has_stood(leap, since_ms);
    if (since_ms < 0) since_ms = 0; /* the monotonic clock of a hook may go back; this keeps the word valid */
    (void)twi_cas_relaxed(&clock->leap, &leap, leap_pack(since_ms, leap_size(drift_ms)));
    return false; /* the exchange failed, so another thread observes the leap, and its start is as good */
}

static void forget_leap(struct twi_clock *clock) {
    if (twi_load_relaxed(&clock->leap) != 0) twi_store_relaxed(&clock->leap, 0);
}

static void agree(struct twi_clock *clock, int64_t offset_seen_ms, int64_t offset_ms) {
    (void)twi_cas_relaxed(&clock->offset_ms, &offset_seen_ms, offset_ms);
    forget_leap(clock);
}

/* Returns true if the wall was set back so far that engine time follows the line instead of waiting for the wall. */
static bool was_set_back(const struct twi_clock *clock, int64_t drift_ms, int64_t wall) {
    int64_t ahead_ms = time_in_word_ms(clock) - wall;
    return drift_ms < -TWI_CLOCK_LEAP_MS || (drift_ms < -NOISE_MS && ahead_ms > TWI_CLOCK_LEAP_MS);
}

/* Returns the value that these two readings allow for engine time. */
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

/* ---- how long engine time was stopped, a relaxed statistic ------------------------------------------------------- */

static int64_t held_by(const struct twi_clock *clock, int64_t held_since, int64_t mono) {
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

int64_t twi_clock_held_ms(const struct twi_clock *clock) {
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

/* Called with a reading of the wall clock, and the word after it. */
static __attribute__((noinline)) int64_t read_both(struct twi_clock *clock, int64_t wall, int64_t word) {
    int64_t now = read_at(clock, wall, twi_clock_mono_ms(clock));
    if (state_of(word) == TWI_CLOCK_ASKED) count_readings(clock, 1);
    return now;
}

/* Most reads of a coarse clock give a tick that another read has already seen, or a time before that of the last fine
 * reading. Then engine time cannot move, and one reading is enough. A hook is always called for both clocks, as
 * promised, because a test may move only one of them. */
int64_t twi_clock_read(struct twi_clock *clock) {
    if (twi_unlikely(clock->hook != NULL)) {
        int64_t wall = wall_ms(clock);
        return read_both(clock, wall, twi_load_relaxed(&clock->word));
    }
    int64_t wall = system_ms(CLOCK_REALTIME_COARSE), word = twi_load_relaxed(&clock->word);
    int64_t now = twi_clock_time_of(word);
    if (twi_unlikely((uint64_t)(now - wall) > NOISE_MS)) return read_both(clock, wall, word);
    if (state_of(word) == TWI_CLOCK_ASKED) count_readings(clock, 1);
    return now;
}

static __attribute__((noinline)) int64_t read_fine_us(struct twi_clock *clock) {
    int64_t wall_us = fine_us(clock, TW_CLOCK_WALL), wall = floor_by(wall_us, 1000);
    int64_t ahead = wall - time_in_word_ms(clock), now;
    if (ahead >= 0 && ahead <= NOISE_MS && clock->hook == NULL) {
        now = advance(clock, wall); /* no step that requires the other clock */
        return now == wall ? wall_us : now * 1000;
    }
    int64_t mono_us = fine_us(clock, TW_CLOCK_MONOTONIC), mono = floor_by(mono_us, 1000);
    now = read_at(clock, wall, mono);
    if (now == wall) return wall_us;
    int64_t line_us = mono_us + twi_load_relaxed(&clock->offset_ms) * 1000; /* while the wall clock is not followed */
    return floor_by(line_us, 1000) == now ? line_us : now * 1000;
}

int64_t twi_clock_exact_us(struct twi_clock *clock) {
    return clock->grain_ms == 0 ? read_fine_us(clock) : twi_clock_read(clock) * 1000;
}

int64_t twi_clock_pause_ms(struct twi_clock *clock) {
    if (twi_likely(!twi_clock_pauses(clock))) return 0;
    int64_t mono = twi_clock_mono_ms(clock), pause = time_in_word_ms(clock) - allowed_ms(clock, wall_ms(clock), mono);
    return pause > 0 ? pause : 0;
}

/* The word is at least as late as the moment at which the counter had this stamp. Most threads find the stamp written
 * already, and share the line. */
static void put_stamp(struct twi_clock *clock, uint64_t stamp) {
    if (clock->has_stamps && twi_load_relaxed(&clock->stamp) != stamp)
        twi_store_release(&clock->stamp, stamp); /* TS2, pairs with TS1 */
}

int64_t twi_clock_renew_ms(struct twi_clock *clock) {
    uint64_t stamp = twi_clock_stamp();
    int64_t now_ms = twi_clock_read(clock);
    put_stamp(clock, stamp);
    return now_ms;
}

void twi_clock_look(struct twi_clock *clock) {
    if (clock->hook != NULL) return;
    int64_t state = state_of(twi_load_relaxed(&clock->word));
    if (state == TWI_CLOCK_ASKED) count_readings(clock, TWI_CLOCK_LOOK_EVERY);
    (void)twi_clock_read(clock);
}

int64_t twi_clock_drift_ms(struct twi_clock *clock) {
    return wall_ms(clock) - twi_clock_read(clock);
}

/* ---- the work of the keeper -------------------------------------------------------------------------------------- */

static void refresh(struct twi_clock *clock, bool asks) {
    uint64_t stamp = twi_clock_stamp();
    int64_t mono = twi_clock_mono_ms(clock);
    int64_t lag = mono - twi_load_relaxed(&clock->refreshed_ms);
    bool relied_on = state_of(twi_load_relaxed(&clock->word)) == TWI_CLOCK_RELIED;
    (void)read_at(clock, wall_ms(clock), mono);
    put_stamp(clock, stamp);
    twi_store_relaxed(&clock->refreshed_ms, mono);
    if (relied_on) note_lag(clock, lag);
    if (asks && (lag != 0 || !relied_on)) ask(clock); /* the answer is still known if no time has passed */
}

void twi_clock_refresh(struct twi_clock *clock) {
    refresh(clock, keeper.clock == clock && keeper.away == 0);
}

void twi_clock_keep(struct twi_clock *clock) {
    keeper.clock = clock != NULL && clock->cached ? clock : NULL;
    keeper.away = 0;
    keeper.is_long = false;
    if (keeper.clock != NULL) twi_clock_round();
}

void twi_clock_abandon(struct twi_clock *clock) {
    if (!clock->cached) return;
    refresh(clock, false);
    twi_clock_distrust(clock);
}

void twi_clock_away(void) {
    if (keeper.clock == NULL || keeper.away++ != 0) return;
    refresh(keeper.clock, false); /* the lag until here is counted */
    twi_clock_distrust(keeper.clock);
}

void twi_clock_back(void) {
    if (keeper.clock == NULL) return;
    twi_check(keeper.away != 0);
    if (--keeper.away == 0) refresh(keeper.clock, true);
}

void twi_clock_round(void) {
    if (keeper.clock == NULL) return;
    if (keeper.is_long) keeper.away--;
    keeper.is_long = false;
    refresh(keeper.clock, keeper.away == 0);
    keeper.began_ms = twi_load_relaxed(&keeper.clock->refreshed_ms);
}

void twi_clock_tick(void) {
    if (keeper.clock == NULL || keeper.is_long) return;
    int64_t mono_ms = twi_clock_mono_ms(keeper.clock);
    if (mono_ms - keeper.began_ms > TWI_CLOCK_REFRESH_MS) {
        keeper.is_long = true; /* until the end of the iteration, because the length of its next step is unknown */
        twi_clock_away();
    } else if (mono_ms != twi_load_relaxed(&keeper.clock->refreshed_ms)) {
        refresh(keeper.clock, keeper.away == 0);
    }
}

int64_t twi_clock_lag_max_ms(const struct twi_clock *clock) {
    return twi_load_relaxed(&clock->lag_max_ms);
}

void twi_clock_init(struct twi_clock *clock, int64_t (*hook)(void *ctx, int kind), void *ctx, bool cached) {
    clock->hook = hook;
    clock->ctx = ctx;
    clock->cached = cached && hook == NULL;
    clock->grain_ms = hook == NULL ? find_grain_ms() : 0;
    clock->has_stamps = hook == NULL && stamps_serve(clock->grain_ms);
    clock->near_ms = clock->grain_ms == 0 ? TWI_CLOCK_NEAR_MS : INT64_MAX;
    int64_t wall = wall_ms(clock), mono = twi_clock_mono_ms(clock);
    clock->mono_origin_ms = mono;
    atomic_init(&clock->word, TWI_CLOCK_WORD(wall) + TWI_CLOCK_READ);
    atomic_init(&clock->stamp, TWI_CLOCK_NO_STAMP);
    atomic_init(&clock->offset_ms, wall - mono);
    atomic_init(&clock->leap, 0);
    atomic_init(&clock->held_since_ms, 0);
    atomic_init(&clock->held_ms, 0);
    atomic_init(&clock->refreshed_ms, mono);
    atomic_init(&clock->lag_max_ms, 0);
    atomic_init(&clock->moves, 0);
    atomic_init(&clock->readings, 0);
}
