/* gcra.c -- TW_SHAPE_GCRA: a bucket of at most `burst` units, which empties evenly by `limit` units in one window
 * length. Each key has one word. The word is the moment at which the bucket of the key will be empty (the theoretical
 * arrival time). n units move this moment by n/limit of a window. They are admitted if the moment is then at most
 * burst/limit ahead of now. One compare-and-swap decides.
 *
 *   word: which limit : 4 | time since the window's start : 58, in 2^-57 windows | CLOSED | FROZEN      0: not yet set
 *
 * A moment has a meaning only together with the limit under which it was computed. If a call names another limit, the
 * units in the bucket stay the same and drain at the new rate from then on, so the moment moves: by the call that
 * names the new limit, also if that is denied. (Otherwise a limit of 3 an hour that is raised to 3600 would lock out
 * longer than before.) The word says which limit it is: the first one of the key in this window (`limit` of the cell),
 * or one of the limits of the window that replaced others. Both are set once and never change, so the compare-and-swap
 * that changes the moment changes its limit. A window has room for 14 limits that replaced others. A key whose new
 * limit finds no room has a moment of an unknown limit: the next call takes it for one of its own limit.
 * Windows exist in these families only so that idle keys are dropped. The moment is at most one window length ahead,
 * because a burst is at most the limit. In the next window the key begins with its previous word, less one length.
 * Before the next window reads the previous word, it sets CLOSED in that word. If the key has no previous word, its
 * place in the previous table is closed. A call that is still running in the previous window finds it closed, and
 * decides again by the clock, which has moved for all (traps E22, E23). A word that is CLOSED or FROZEN never changes.
 * Rounding: n/limit is rounded down to units of time, once per call, and so is the moment under another limit;
 * burst/limit is rounded up. So a call that exact fractions would admit is never denied. Each call may cost up to
 * limit / 2^57 of a unit too little. From an empty bucket the burst is exactly `burst`, for limits below 2^28. The
 * clock counts microseconds, rounded down. The clock that a call has read may lag by some milliseconds. At a high rate
 * many units pass in that time. If units are admitted and the bucket is not empty for longer than that lag, the result
 * is the same at each moment of the lag. All other calls read the exact clock, except calls that request more than the
 * bucket can contain.
 * Always true: a word moves only towards the future, except when units are put back or another limit is named. A denied
 * call does not write, except that it may close a word, name another limit, or note that a guest was used. */
#include "engine/limit/gcra.h"

#include "engine/core/window_map.h"
#include "engine/limit/limit_stats.h"
#include "engine/table/stripe.h"

#define LIMITS 14  /* of a window, that replaced others */
#define UNKNOWN 15 /* the number of a limit that found no room */

/* What a word says: a moment, and the limit under which it was computed; 0 means that it is not known. */
struct bucket {
    int64_t at, limit;
};

struct limits {
    _Atomic int64_t each[LIMITS]; /* 0 means free; used in order */
};
static_assert(sizeof(struct limits) <= TWI_LIMITS_LINES * TWI_LINE_BYTES, "layout.h");

static void set_now(struct twi_gcra_pace *pace, const struct twi_call *call) {
    pace->start_ms = twi_calendar_span(&call->family->rule, call->now_ms).start_ms;
    twi_gcra_pace_set_since(pace, (call->now_ms - pace->start_ms) * 1000, false);
}

/* Returns false if the window has ended by the exact clock. The clock has then moved for all threads, so the call
 * begins again in the next window. */
static bool set_exactly(struct twi_gcra_pace *pace, const struct twi_call *call) {
    twi_check_dear(!pace->is_exact);
    int64_t since_us = twi_clock_exact_us(&call->engine->clock) - pace->start_ms * 1000;
    if (since_us >= pace->window_us) return false;
    twi_gcra_pace_set_since(pace, since_us, true);
    return true;
}

/* ---- the limits of a window ---- */

static struct limits *limits_of(const struct twi_call *call, struct twi_generation *generation) {
    uint32_t line = twi_load_acquire(&generation->limits); /* N7, pairs with N6: it was all 0 before */
    return line != 0 ? twi_arena_at(&call->engine->arena, line) : NULL;
}

static struct limits *make_limits(const struct twi_call *call, struct twi_generation *generation) {
    struct limits *limits = limits_of(call, generation);
    if (limits != NULL) return limits;
    uint32_t line = twi_piece_take(&call->engine->arena, generation, TWI_LIMITS_LINES), none = 0;
    if (line == 0) return NULL;
    if (!twi_cas_acqrel(&generation->limits, &none, line)) /* N6 */
        twi_piece_give(&call->engine->arena, generation, line, TWI_LIMITS_LINES);
    return limits_of(call, generation);
}

/* Stores the limit in a place that is free. Returns true if the place then has this limit. */
static bool has_limit(_Atomic int64_t *place, int64_t limit) {
    int64_t found = twi_load_relaxed(place);
    return found == limit || (found == 0 && (twi_cas_acqrel(place, &found, limit) || found == limit));
}

/* Returns the number of this limit for the key's word. */
static int64_t number_of(const struct twi_call *call, const struct twi_place *place, int64_t limit) {
    twi_check_dear(limit > 0);
    if (has_limit(&place->cell->limit, limit)) return 0;
    struct limits *limits = make_limits(call, place->generation);
    for (int64_t i = 0; limits != NULL && i < LIMITS; i++)
        if (has_limit(&limits->each[i], limit)) return i + 1;
    return UNKNOWN;
}

static int64_t moment_of(int64_t value) {
    return value & ((INT64_C(1) << TWI_GCRA_PACE_MOMENT_BITS) - 1);
}
static int64_t limit_number(int64_t value) {
    return value >> TWI_GCRA_PACE_MOMENT_BITS & UNKNOWN;
}

/* Returns what the value of a word says. It was loaded by an acquire load, after its limit was stored. */
static struct bucket read_word(const struct twi_call *call, struct twi_generation *generation, struct twi_cell *cell,
                               int64_t value) {
    int64_t number = limit_number(value);
    if (twi_unlikely(number == UNKNOWN)) return (struct bucket){moment_of(value), 0};
    _Atomic int64_t *limit = number == 0 ? &cell->limit : &limits_of(call, generation)->each[number - 1];
    return (struct bucket){moment_of(value), twi_load_relaxed(limit)};
}

/* A value of 2^59 and more marks a cell as such (TWI_META_EDGE), as large counts do. */
static uint64_t make_word(struct twi_cell *cell, int64_t number, int64_t moment) {
    twi_check_dear(number >= 0 && number <= UNKNOWN && moment >= 0 && moment >> TWI_GCRA_PACE_MOMENT_BITS == 0);
    if (number > 1) (void)twi_or_relaxed(&cell->meta, TWI_META_EDGE);
    return ((uint64_t)number << TWI_GCRA_PACE_MOMENT_BITS | (uint64_t)moment) << TWI_COUNT_SHIFT;
}

/* ---- guests ----
 * keys that came when their window was full. The value of a guest is its moment, in units of 2^28, rounded down. So
 * each call costs up to 2^-29 of a window too little. Where that is much of what a unit costs, it is rounded up, and
 * a call costs too much. The moment is of the limit of the next call. Nothing closes a guest at the end of its window:
 * what a call admits there at that time may be forgotten, as guests may be. */

#define GUEST_SHIFT (TWI_GCRA_PACE_MOMENT_BITS - TWI_GUEST_VALUE_BITS)
#define GUEST_FINE (INT64_C(256) << GUEST_SHIFT)

static int64_t guest_value_of(const struct twi_gcra_pace *pace) {
    int64_t up = pace->charge < GUEST_FINE ? (INT64_C(1) << GUEST_SHIFT) - 1 : 0;
    int64_t value = (pace->empty + up) >> GUEST_SHIFT;
    return value < 1 ? 1 : value > TWI_GUEST_MOST ? TWI_GUEST_MOST : value;
}

static struct bucket read_guest(const struct twi_guest *guest) {
    return (struct bucket){guest->value << GUEST_SHIFT, 0};
}

static struct bucket guest_in(const struct twi_call *call, struct twi_generation *generation) {
    struct twi_guests *guests = twi_guests_of(&call->engine->arena, generation);
    struct twi_guest guest = {0};
    if (guests != NULL) twi_guest_find(guests, &call->lookup, 0, &guest);
    return read_guest(&guest);
}

/* ---- the window before ---- */

/* Returns the bucket of the previous window, which is closed. Its word no longer changes. */
static struct bucket close_before(const struct twi_call *call) {
    struct twi_arena *arena = &call->engine->arena;
    twi_fence_seqcst(); /* N1, pairs with N2, so a thread that opens that window unseen reads a later clock */
    struct twi_generation *before =
        twi_window_find(call->family, twi_calendar_previous_start(&call->family->rule, call->now_ms));
    if (before == NULL) return (struct bucket){0};
    bool is_sealed = twi_load_acquire(&before->phase) >= TWI_SEALED;
    struct twi_cell *cell =
        is_sealed ? twi_table_find(arena, before, &call->lookup) : twi_table_close_probe(arena, before, &call->lookup);
    if (cell == NULL) return twi_guest_may_be(call->family, before) ? guest_in(call, before) : (struct bucket){0};
    /* N3, pairs with N4, so a call that finds it closed reads a later clock */
    uint64_t word = is_sealed ? TWI_FROZEN : twi_or_acqrel(&cell->local, TWI_GCRA_PACE_CLOSED);
    int64_t value = (word & TWI_FROZEN) != 0 ? twi_cell_local(cell, twi_cell_publish(cell)) : twi_word_value(word);
    return read_word(call, before, cell, value);
}

static struct bucket carried(const struct twi_call *call) {
    struct bucket before = close_before(call);
    before.at = before.at > TWI_GCRA_PACE_WINDOW ? before.at - TWI_GCRA_PACE_WINDOW : 0;
    return before;
}

/* ---- one decision ---- */

/* Returns the moment under another limit. The units that are in the bucket now stay the same, at most a window's. */
static int64_t move(const struct twi_gcra_pace *pace, int64_t at, int64_t from, int64_t to) {
    twi_check_dear(from > 0 && to > 0);
    if (at <= pace->now || from == to) return at;
    twi_wide ahead = (twi_wide)(at - pace->now - 1) * from / to; /* `now` was rounded down */
    return pace->now + (ahead < TWI_GCRA_PACE_WINDOW ? (int64_t)ahead : TWI_GCRA_PACE_WINDOW);
}

static bool has_another_limit(const struct twi_gcra_pace *pace, const struct bucket *bucket) {
    return bucket->limit != pace->limit && bucket->limit != 0 && pace->limit != 0 && bucket->at > pace->now;
}

/* Returns true for a call that names the limit from which the bucket drains from now on. */
static bool names_limit(const struct twi_gcra_pace *pace, const struct bucket *bucket) {
    return has_another_limit(pace, bucket) && pace->n != 0 && pace->n <= pace->burst;
}

/* Returns TW_OK or TW_DENIED for a bucket that is empty at the moment `at`, by the exact clock if it could change the
 * result. Returns TWI_AGAIN if the window has ended. */
static tw_status decide(struct twi_gcra_pace *pace, const struct twi_call *call, int64_t at) {
    twi_check_dear(at >= 0);
    tw_status status = twi_gcra_pace_decide(pace, at);
    if (twi_gcra_pace_is_final(pace, status, at)) return status;
    return set_exactly(pace, call) ? twi_gcra_pace_decide(pace, at) : TWI_AGAIN;
}

/* Returns the same for a bucket that may be of another limit. Its units are then known only by the exact clock. */
static tw_status decide_bucket(struct twi_gcra_pace *pace, const struct twi_call *call, const struct bucket *bucket) {
    if (!has_another_limit(pace, bucket)) return decide(pace, call, bucket->at);
    if (!pace->is_exact && !set_exactly(pace, call)) return TWI_AGAIN;
    return decide(pace, call, move(pace, bucket->at, bucket->limit, pace->limit));
}

/* Returns the word for a bucket that the call leaves empty at pace->empty. */
static uint64_t word_after(const struct twi_gcra_pace *pace, const struct twi_call *call, const struct twi_place *place,
                           int64_t value, const struct bucket *found) {
    bool is_same = value != 0 && found->limit == pace->limit;
    int64_t number = twi_likely(is_same) ? limit_number(value) : number_of(call, place, pace->limit);
    return make_word(place->cell, number, pace->empty);
}

static tw_status take(struct twi_gcra_pace *pace, const struct twi_call *call, const struct twi_place *place) {
    twi_check_dear(place->cell != NULL);
    uint64_t word = twi_load_acquire(&place->cell->local); /* N4 */
    struct bucket begins = twi_word_value(word) == 0 ? carried(call) : (struct bucket){0};
    for (;;) {
        if ((word & (TWI_FROZEN | TWI_GCRA_PACE_CLOSED)) != 0) return TWI_AGAIN;
        int64_t value = twi_word_value(word);
        struct bucket found = value != 0 ? read_word(call, place->generation, place->cell, value) : begins;
        tw_status status = decide_bucket(pace, call, &found);
        bool writes = status == TW_OK ? pace->n != 0 : status == TW_DENIED && names_limit(pace, &found);
        if (!writes) return status;
        uint64_t after = word_after(pace, call, place, value, &found);
        if (twi_cas_weak_acqrel(&place->cell->local, &word, after)) return status; /* N4 */
    }
}

/* A guest whose bucket is empty now is given up first, because it costs nothing. */
static tw_status take_guest(struct twi_gcra_pace *pace, const struct twi_call *call,
                            struct twi_generation *generation) {
    struct twi_guests *guests = twi_guests_of(&call->engine->arena, generation);
    if (guests == NULL) return TW_ERR_FULL;
    struct bucket begins = carried(call);
    pace->is_guest = true;
    for (;;) {
        struct twi_guest guest;
        int64_t spent = pace->now >> GUEST_SHIFT;
        twi_guest_find(guests, &call->lookup, spent, &guest);
        struct bucket found = guest.value != 0 ? read_guest(&guest) : begins;
        tw_status status = decide_bucket(pace, call, &found);
        if (status == TW_DENIED) twi_guest_touch(guests, &guest);
        if (status != TW_OK || pace->n == 0) return status;
        if (!twi_guest_set(guests, &call->lookup, &guest, guest_value_of(pace))) continue;
        if (twi_guest_gives_up(&guest, spent)) twi_port_count(call->engine, evicted, 1);
        return TW_OK;
    }
}

static tw_status acquire_once(struct twi_gcra_pace *pace, struct twi_call *call, bool *full) {
    twi_check_dear(call->family->kind.is_gcra);
    struct twi_place place;
    set_now(pace, call);
    if (!twi_place_find(call, &place)) {
        if (twi_guest_may_be(call->family, place.generation)) {
            tw_status taken = take_guest(pace, call, place.generation);
            *full = taken == TW_ERR_FULL;
            return taken;
        }
        /* no counter is made if the call is denied or takes no units, unless it names another limit */
        struct bucket before = carried(call);
        tw_status decided = decide_bucket(pace, call, &before);
        bool writes = decided == TW_OK ? pace->n != 0 : decided == TW_DENIED && names_limit(pace, &before);
        if (!writes) return decided;
        tw_status status = twi_place_make(call, &place);
        if (status == TW_ERR_FULL && decided == TW_DENIED) return decided;
        if (status == TW_ERR_FULL && twi_guest_begins(call, place.generation)) {
            set_now(pace, call);
            return take_guest(pace, call, place.generation);
        }
        *full = status == TW_ERR_FULL;
        if (status != TW_OK) return status;
    }
    return take(pace, call, &place);
}

static void fill_verdict(const struct twi_gcra_pace *pace, tw_status status, bool full, int64_t grain_ms,
                         tw_verdict *verdict) {
    twi_check_dear(verdict != NULL && grain_ms >= 0);
    int64_t ahead = twi_gcra_pace_ahead(pace), left = twi_gcra_pace_left(pace);
    *verdict = (tw_verdict){.limit = pace->limit,
                            .used = pace->burst - left,
                            .remaining = left,
                            .window_start_ms = pace->start_ms,
                            .error_bound = full || pace->is_guest ? TW_UNBOUNDED : 0,
                            .decided_by = full ? TW_BY_FULL : TW_BY_LOCAL,
                            .allowed = status == TW_OK};
    if (ahead > 0) verdict->reset_after_ms = twi_gcra_pace_until_ms(pace, pace->empty);
    if (status == TW_OK) return;
    bool is_for_now = status == TW_DENIED && pace->n <= pace->burst;
    int64_t retry_ms =
        is_for_now ? twi_gcra_pace_until_ms(pace, pace->empty + pace->charge - pace->most) + grain_ms : -1;
    twi_verdict_not_admitted(verdict, status, is_for_now ? TW_CAUSE_LIMIT : TW_CAUSE_NEVER, retry_ms);
}

static tw_status acquire(tw_family *family, tw_key key, struct twi_gcra_pace *pace, bool *full) {
    twi_check_dear(family->kind.is_gcra);
    struct twi_call call;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    do {
        status = twi_call_now(&call);
        if (status == TW_OK) status = acquire_once(pace, &call, full);
    } while (status == TWI_AGAIN);
    if (*full) status = twi_limit_when_full(family, call.self, pace->n);
    if (status == TW_OK && pace->n != 0 && !*full) twi_limit_stats_count(family, call.self, admitted);
    twi_call_end(&call);
    return status;
}

tw_status twi_gcra_acquire_late(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t late_ms,
                                tw_verdict *verdict) {
    struct twi_gcra_pace pace = {.limit = limit};
    bool full = false;
    tw_status status;
    twi_check_dear(late_ms >= 0);
    if (twi_limit_is_in_range(n, limit)) {
        twi_gcra_pace_begin(&pace, family, n, limit);
        int64_t late_us = late_ms * 1000 < pace.window_us ? late_ms * 1000 : pace.window_us;
        pace.late = twi_share_down(late_us, TWI_GCRA_PACE_WINDOW, pace.window_us);
        status = acquire(family, key, &pace, &full);
    } else {
        status = twi_units_refuse(n);
    }
    if (verdict != NULL) fill_verdict(&pace, status, full, twi_clock_longer_ms(&family->engine->clock), verdict);
    return status;
}

tw_status twi_gcra_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    return twi_gcra_acquire_late(family, key, n, limit, 0, verdict);
}

static tw_status raise_once(struct twi_gcra_pace *pace, struct twi_call *call, int64_t ahead) {
    twi_check_dear(ahead >= 0 && ahead <= TWI_GCRA_PACE_WINDOW);
    struct twi_place place;
    set_now(pace, call);
    if (!twi_place_find(call, &place)) {
        tw_status status = twi_place_make(call, &place);
        if (status != TW_OK) return status;
    }
    uint64_t word = twi_load_acquire(&place.cell->local), after; /* N4 */
    struct bucket begins = twi_word_value(word) == 0 ? carried(call) : (struct bucket){0};
    pace->empty = pace->now + ahead;
    do {
        if ((word & (TWI_FROZEN | TWI_GCRA_PACE_CLOSED)) != 0) return TWI_AGAIN;
        int64_t value = twi_word_value(word);
        struct bucket found = value != 0 ? read_word(call, place.generation, place.cell, value) : begins;
        int64_t at = has_another_limit(pace, &found) ? move(pace, found.at, found.limit, pace->limit) : found.at;
        if (at >= pace->empty) return TW_OK;
        after = word_after(pace, call, &place, value, &found);
    } while (!twi_cas_weak_acqrel(&place.cell->local, &word, after)); /* N4 */
    return TW_OK;
}

void twi_gcra_raise(tw_family *family, tw_key key, int64_t limit, int64_t ahead_ms) {
    struct twi_gcra_pace pace;
    struct twi_call call;
    if (limit == 0) return;
    twi_gcra_pace_begin(&pace, family, 0, limit);
    int64_t window_ms = pace.window_us / 1000;
    if (ahead_ms > window_ms) ahead_ms = window_ms; /* the farthest moment that a word can hold */
    if (ahead_ms <= 0 || twi_call_begin(&call, family, key) != TW_OK) return;
    tw_status status;
    do {
        status = twi_call_now(&call);
        if (status == TW_OK) status = raise_once(&pace, &call, twi_share_up(ahead_ms, TWI_GCRA_PACE_WINDOW, window_ms));
    } while (status == TWI_AGAIN);
    twi_call_end(&call);
}

static tw_status put_back_to_guest(const struct twi_gcra_pace *pace, const struct twi_call *call,
                                   struct twi_generation *generation) {
    struct twi_guests *guests = twi_guests_of(&call->engine->arena, generation);
    struct twi_guest guest = {0};
    if (guests == NULL) return TW_ERR_LATE;
    do {
        twi_guest_find(guests, &call->lookup, 0, &guest);
        if (guest.value == 0) return TW_ERR_LATE; /* it was given up */
    } while (
        !twi_guest_set(guests, &call->lookup, &guest,
                       guest.value > pace->charge >> GUEST_SHIFT ? guest.value - (pace->charge >> GUEST_SHIFT) : 1));
    return TW_OK;
}

/* Returns units for tw_acquire_all(), which knows the limit, and returns only units that it has just taken. If the
 * key has moved to the next window, or another call has named another limit, the function changes the word of that. */
static tw_status put_back_once(const struct twi_gcra_pace *pace, struct twi_call *call) {
    twi_check_dear(pace->charge >= 0);
    struct twi_place place;
    if (!twi_place_find(call, &place))
        return twi_guest_may_be(call->family, place.generation) ? put_back_to_guest(pace, call, place.generation)
                                                                : TW_ERR_LATE;
    uint64_t word = twi_load_acquire(&place.cell->local), after;
    do {
        if ((word & (TWI_FROZEN | TWI_GCRA_PACE_CLOSED)) != 0) return TWI_AGAIN;
        int64_t value = twi_word_value(word);
        if (value == 0) return TW_ERR_LATE;
        struct bucket found = read_word(call, place.generation, place.cell, value);
        bool is_same = found.limit == pace->limit || found.limit == 0;
        twi_wide charge = is_same ? pace->charge : (twi_wide)pace->n * TWI_GCRA_PACE_WINDOW / found.limit;
        after = make_word(place.cell, limit_number(value), found.at > charge ? found.at - (int64_t)charge : 1);
    } while (!twi_cas_weak_acqrel(&place.cell->local, &word, after));
    return TW_OK;
}

/* How far a unit moved the word depends on the limit, and tw_refund() has no argument for the limit. */
tw_status twi_gcra_refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms) {
    (void)family, (void)key, (void)n, (void)window_start_ms;
    return twi_refuse_for(TWI_WHY_GCRA);
}

tw_status twi_gcra_undo(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms) {
    struct twi_gcra_pace pace;
    struct twi_call call;
    (void)window_start_ms;
    twi_gcra_pace_begin(&pace, family, n, limit);
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    call.undoes = true;
    do {
        status = twi_call_now(&call);
        if (status == TW_OK) status = put_back_once(&pace, &call);
    } while (status == TWI_AGAIN);
    twi_call_end(&call);
    return status;
}
