/* gcra.c -- TW_SHAPE_GCRA: a bucket of at most `burst` units, which empties evenly by `limit` units in one window
 * length. Each key has one word. The word is the moment at which the bucket of the key will be empty (the theoretical
 * arrival time). n units move this moment by n/limit of a window. They are admitted if the moment is then at most
 * burst/limit ahead of now. One compare-and-swap decides.
 *
 *   word: time since the window's start : 62 bits, in 2^-57 windows | CLOSED | FROZEN          0: not yet set
 *
 * Windows exist in these families only so that idle keys are dropped. The moment is at most one window length ahead,
 * because a burst is at most the limit. In the next window the key begins with its previous word, less one length.
 * Before the next window reads the previous word, it sets CLOSED in that word. If the key has no previous word, its
 * place in the previous table is closed. A call that is still running in the previous window finds it closed, and
 * decides again by the clock, which has moved for all (traps E22, E23). A word that is CLOSED or FROZEN never changes.
 * Rounding: n/limit is rounded down to units of time, once per call; burst/limit is rounded up. So a call that exact
 * fractions would admit is never denied. Each call may cost up to limit / 2^57 of a unit too little. From an empty
 * bucket the burst is exactly `burst`, for limits below 2^28. The clock counts microseconds, rounded down. The clock
 * that a call has read may lag by some milliseconds. At a high rate many units pass in that time. If units are admitted
 * and the bucket is not empty for longer than that lag, the result is the same at each moment of the lag. All other
 * calls read the exact clock, except calls that request more than the bucket can contain.
 * Always true: a word moves only towards the future, except when units are put back. A denied call does not write,
 * except that it may close a word. */
#include "engine/limit/gcra.h"

#include "engine/limit/limit_stats.h"
#include "engine/limit/shape.h"
#include "engine/table/stripe.h"
#include "engine/core/window_map.h"

#define WINDOW_UNITS (INT64_C(1) << 57)
#define CLOSED TWI_DIRTY /* no GCRA word is ever sent to Redis, so the bit is free */

struct pace {
    int64_t n, limit;
    int64_t charge, most; /* in units of time, for n units and for the burst */
    int64_t burst;
    int64_t window_us;
    int64_t start_ms, since_us, now; /* `now` counts from the start of the window, in the unit of the word */
    bool is_exact;                   /* `now` was read from the exact clock */
    int64_t empty;                   /* the moment that the word will contain after the call */
};

static void begin_pace(struct pace *pace, const struct tw_family *family, int64_t n, int64_t limit) {
    twi_check_dear(n >= 0 && limit >= 0 && limit <= TW_DELTA_MAX);
    *pace = (struct pace){.n = n, .limit = limit, .window_us = family->rule.window_ms * 1000};
    pace->burst = twi_limit_most_at_once(family, limit);
    if (limit == 0) return;
    pace->charge = n <= limit ? twi_share_down(n, WINDOW_UNITS, limit) : 0;
    pace->most = twi_share_up(pace->burst, WINDOW_UNITS, limit);
}

static void set_since(struct pace *pace, int64_t since_us, bool is_exact) {
    twi_check_dear(pace->window_us > 0);
    pace->since_us = since_us;
    pace->now = twi_share_down(since_us, WINDOW_UNITS, pace->window_us);
    pace->is_exact = is_exact;
}

static void set_now(struct pace *pace, const struct twi_call *call) {
    pace->start_ms = twi_calendar_span(&call->family->rule, call->now_ms).start_ms;
    set_since(pace, (call->now_ms - pace->start_ms) * 1000, false);
}

/* Returns false if the window has ended by the exact clock. The clock has then moved for all threads, so the call
 * begins again in the next window. */
static bool set_exactly(struct pace *pace, const struct twi_call *call) {
    twi_check_dear(!pace->is_exact);
    int64_t since_us = twi_clock_exact_us(&call->engine->clock) - pace->start_ms * 1000;
    if (since_us >= pace->window_us) return false;
    set_since(pace, since_us, true);
    return true;
}

/* Returns the word of the previous window, which is closed. The word no longer changes. */
static int64_t close_before(const struct twi_call *call) {
    struct twi_arena *arena = &call->engine->arena;
    twi_fence_seqcst(); /* N1, pairs with N2, so a thread that opens that window unseen reads a later clock */
    struct twi_generation *before =
        twi_window_find(call->family, twi_calendar_previous_start(&call->family->rule, call->now_ms));
    if (before == NULL) return 0;
    if (twi_load_acquire(&before->phase) >= TWI_SEALED) return twi_view_in(call, before);
    struct twi_cell *cell = twi_table_close_probe(arena, before, &call->lookup);
    if (cell == NULL) return 0;
    uint64_t word =
        twi_or_acqrel(&cell->local, CLOSED); /* N3, pairs with N4, so a call that finds it closed reads a later clock */
    return (word & TWI_FROZEN) != 0 ? twi_cell_local(cell, twi_load_relaxed(&cell->meta)) : twi_word_value(word);
}

static int64_t carried(const struct twi_call *call) {
    int64_t before = close_before(call);
    return before > WINDOW_UNITS ? before - WINDOW_UNITS : 0;
}

/* Returns TW_OK or TW_DENIED for a bucket that is empty at the moment `at`. */
static tw_status decide_by_now(struct pace *pace, int64_t at) {
    twi_check_dear(pace->charge >= 0 && pace->most >= 0);
    twi_check_dear(pace->burst <= pace->limit);
    int64_t from = at > pace->now ? at : pace->now;
    pace->empty = at;
    if (pace->n > pace->burst) return TW_DENIED;
    if (pace->n == 0) return TW_OK;
    if (from + pace->charge - pace->now > pace->most) return TW_DENIED;
    pace->empty = from + pace->charge;
    return TW_OK;
}

/* Returns the same, by the exact clock if it could change the result. Returns TWI_AGAIN if the window has ended. */
static tw_status decide(struct pace *pace, const struct twi_call *call, int64_t at) {
    twi_check_dear(at >= 0);
    tw_status status = decide_by_now(pace, at);
    if (pace->is_exact || pace->n > pace->burst) return status;
    int64_t near = (WINDOW_UNITS / pace->window_us + 1) * (TWI_CLOCK_NEAR_MS * 1000); /* rounded up */
    if (status == TW_OK && at >= pace->now + near) return status;
    return set_exactly(pace, call) ? decide_by_now(pace, at) : TWI_AGAIN;
}

static tw_status take(struct pace *pace, const struct twi_call *call, struct twi_cell *cell) {
    twi_check_dear(cell != NULL);
    uint64_t word = twi_load_acquire(&cell->local); /* N4 */
    int64_t begins = twi_word_value(word) == 0 ? carried(call) : 0;
    for (;;) {
        if ((word & (TWI_FROZEN | CLOSED)) != 0) return TWI_AGAIN;
        int64_t at = twi_word_value(word);
        tw_status status = decide(pace, call, at != 0 ? at : begins);
        if (status != TW_OK || pace->n == 0) return status;
        if (twi_cas_weak_acqrel(&cell->local, &word, (uint64_t)pace->empty << TWI_COUNT_SHIFT)) return TW_OK; /* N4 */
    }
}

static tw_status acquire_once(struct pace *pace, struct twi_call *call, bool *full) {
    twi_check_dear(call->family->kind.is_gcra);
    struct twi_place place;
    set_now(pace, call);
    if (!twi_place_find(call, &place)) {
        /* no counter is made if the call is denied or takes no units */
        tw_status status = decide(pace, call, carried(call));
        if (status != TW_OK || pace->n == 0) return status;
        status = twi_place_make(call, &place);
        *full = status == TW_ERR_FULL;
        if (status != TW_OK) return status;
    }
    return take(pace, call, place.cell);
}

/* Returns the time from now until a moment of the word. */
static int64_t until_ms(const struct pace *pace, int64_t moment) {
    twi_check_dear(pace->window_us > 0);
    return (twi_share_up(moment, pace->window_us, WINDOW_UNITS) - pace->since_us + 999) / 1000;
}

static void fill_verdict(const struct pace *pace, tw_status status, bool full, int64_t grain_ms, tw_verdict *verdict) {
    twi_check_dear(verdict != NULL && grain_ms >= 0);
    int64_t ahead = pace->empty > pace->now ? pace->empty - pace->now : 0, room = pace->most - ahead;
    int64_t left = pace->limit <= 0 || room < 0 ? 0 : twi_share_up(room + 1, pace->limit, WINDOW_UNITS) - 1;
    if (left > pace->burst) left = pace->burst;
    *verdict = (tw_verdict){.limit = pace->limit,
                            .used = pace->burst - left,
                            .remaining = left,
                            .window_start_ms = pace->start_ms,
                            .error_bound = full ? TW_UNBOUNDED : 0,
                            .decided_by = full ? TW_BY_FULL : TW_BY_LOCAL,
                            .allowed = status == TW_OK};
    if (ahead > 0) verdict->reset_after_ms = until_ms(pace, pace->empty);
    if (status != TW_DENIED) return;
    verdict->retry_after_ms =
        pace->n > pace->burst ? -1 : until_ms(pace, pace->empty + pace->charge - pace->most) + grain_ms;
}

static tw_status acquire(tw_family *family, tw_key key, struct pace *pace, bool *full) {
    twi_check_dear(family->kind.is_gcra);
    struct twi_call call;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    do {
        status = twi_call_now(&call);
        if (status == TW_OK) status = acquire_once(pace, &call, full);
    } while (status == TWI_AGAIN);
    if (*full)
        status = twi_load_relaxed(&family->policy.on_full_limit) == TW_FULL_LIMIT_ADMIT ? TW_OK
                                                                                        : twi_refuse_for(TWI_WHY_FULL);
    if (status == TW_OK && pace->n != 0 && !*full) twi_limit_stats_count(family, call.self, admitted);
    twi_call_end(&call);
    return status;
}

static tw_status acquire_gcra(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    struct pace pace = {.limit = limit};
    bool full = false;
    tw_status status;
    if (twi_limit_is_in_range(n, limit)) {
        begin_pace(&pace, family, n, limit);
        status = acquire(family, key, &pace, &full);
    } else {
        status = twi_units_refuse(n);
    }
    if (verdict != NULL) fill_verdict(&pace, status, full, family->engine->clock.grain_ms, verdict);
    return status;
}

static tw_status raise_once(struct pace *pace, struct twi_call *call, int64_t ahead) {
    twi_check_dear(ahead >= 0 && ahead <= WINDOW_UNITS);
    struct twi_place place;
    set_now(pace, call);
    if (!twi_place_find(call, &place)) {
        tw_status status = twi_place_make(call, &place);
        if (status != TW_OK) return status;
    }
    uint64_t word = twi_load_acquire(&place.cell->local); /* N4 */
    uint64_t after = (uint64_t)(pace->now + ahead) << TWI_COUNT_SHIFT;
    int64_t begins = twi_word_value(word) == 0 ? carried(call) : 0;
    do {
        if ((word & (TWI_FROZEN | CLOSED)) != 0) return TWI_AGAIN;
        int64_t at = twi_word_value(word);
        if ((at != 0 ? at : begins) >= pace->now + ahead) return TW_OK;
    } while (!twi_cas_weak_acqrel(&place.cell->local, &word, after)); /* N4 */
    return TW_OK;
}

void twi_gcra_raise(tw_family *family, tw_key key, int64_t ahead_ms) {
    struct pace pace;
    struct twi_call call;
    begin_pace(&pace, family, 0, 0);
    int64_t window_ms = pace.window_us / 1000;
    if (ahead_ms > window_ms) ahead_ms = window_ms; /* the farthest moment that a word can hold */
    if (ahead_ms <= 0 || twi_call_begin(&call, family, key) != TW_OK) return;
    tw_status status;
    do {
        status = twi_call_now(&call);
        if (status == TW_OK) status = raise_once(&pace, &call, twi_share_up(ahead_ms, WINDOW_UNITS, window_ms));
    } while (status == TWI_AGAIN);
    twi_call_end(&call);
}

/* Returns units for tw_acquire_all(), which knows the limit, and returns only units that it has just taken. If the
 * key has moved to the next window, the function changes the word in the next window. */
static tw_status put_back_once(const struct pace *pace, struct twi_call *call) {
    twi_check_dear(pace->charge >= 0);
    struct twi_place place;
    if (!twi_place_find(call, &place)) return TW_ERR_LATE;
    uint64_t word = twi_load_acquire(&place.cell->local), after;
    do {
        if ((word & (TWI_FROZEN | CLOSED)) != 0) return TWI_AGAIN;
        int64_t at = twi_word_value(word);
        if (at == 0) return TW_ERR_LATE;
        after = (uint64_t)(at > pace->charge ? at - pace->charge : 0) << TWI_COUNT_SHIFT;
    } while (!twi_cas_weak_acqrel(&place.cell->local, &word, after));
    return TW_OK;
}

/* How far a unit moved the word depends on the limit, and tw_refund() has no argument for the limit. */
static tw_status refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms) {
    (void)family, (void)key, (void)n, (void)window_start_ms;
    return twi_refuse_for(TWI_WHY_GCRA);
}

static tw_status undo(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms) {
    struct pace pace;
    struct twi_call call;
    (void)window_start_ms;
    begin_pace(&pace, family, n, limit);
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    do {
        status = twi_call_now(&call);
        if (status == TW_OK) status = put_back_once(&pace, &call);
    } while (status == TWI_AGAIN);
    twi_call_end(&call);
    return status;
}

const struct twi_limit_kind twi_limit_gcra = {.acquire = acquire_gcra, .refund = refund, .undo = undo};
