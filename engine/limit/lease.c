/* lease.c -- tw_acquire() for hard limits: callers spend units from a lease, the part of the limit that Redis granted
 * this engine. This file has the callers' half. lease_renewal.c has the turn's half.
 *
 * A caller takes n units out of the lease by one compare-and-swap (never by add and undo, trap E36), and counts them in
 * the cell. If the lease has too few units, the caller leaves a request for the turn, which runs within milliseconds
 * without being woken, and answers TW_PENDING. If Redis has reported that fewer than n units are unspent, the answer is
 * TW_DENIED (trap L4).
 * Always true: a caller makes no system call and never waits. Units of a lease are spent only in its own window. A call
 * never spends a unit that was drawn under a greater limit than the limit of the call (trap L9). */
#include "engine/limit/lease.h"

#include "engine/base/grow.h"
#include "engine/core/store_map.h"
#include "engine/limit/limit_stats.h"
#include "engine/table/area.h"
#include "engine/limit/counted.h"

#define REASK_MS 1000 /* after this time "sold out" is requested again, because others may have refunded */

/* ---- the lease of a cell ---- */

static void enlist(const struct twi_arena *arena, struct twi_generation *generation, struct twi_lease *lease) {
    twi_check(lease->cell != 0 && lease->generation == twi_arena_line(arena, generation));
    uint32_t line = twi_arena_line(arena, lease), older;
    /* J3, pairs with J4 in restate_window() and others */
    twi_push(&generation->leases, line, older, lease->attached.older = older);
}

/* Returns the lease of the cell. If the cell has no lease, the function makes one. Returns NULL if there is no
 * memory. Lock-free. The lease is in the generation's list before any thread can draw units for it, so all drawn
 * units are sent again (trap L2). If another thread's lease was entered first, this lease stays in the list unused. */
static struct twi_lease *lease_of(const struct twi_call *call, const struct twi_place *place) {
    twi_check_dear(call->family->kind.is_hard && call->family->kind.synced);
    struct twi_lease *lease = twi_lease_of(place->cell);
    if (twi_likely(lease != NULL)) return lease;
    struct twi_arena *arena = &call->engine->arena;
    uint32_t line = twi_piece_take(arena, place->generation, TWI_LEASE_LINES);
    if (line == 0) return NULL;
    lease = twi_arena_at(arena, line);
    lease->generation = twi_arena_line(arena, place->generation);
    lease->cell = twi_arena_line(arena, place->cell);
    enlist(arena, place->generation, lease);
    int64_t none = 0;
    TWI_RACE_POINT(lease_made_not_entered);
    bool entered = twi_cas_acqrel(&place->cell->stripes, &none, (int64_t)line - lease->cell); /* J1, pairs with J2 */
    TWI_RACE_POINT(lease_entered);
    return entered ? lease : twi_lease_of(place->cell);
}

/* ---- asking ---- */

void twi_lease_list(tw_engine *engine, struct twi_lease *lease) {
    twi_check(lease->generation != 0);
    struct twi_thread *self = twi_thread_self;
    void *outer = twi_marking_begin(self, engine, twi_arena_at(&engine->arena, lease->generation),
                                    twi_arena_at(&engine->arena, lease->cell));
    /* J5, pairs with J6, so the thread that clears it sees all earlier changes. A plain load is not enough, because it
     * could show the value from before J6. */
    if (twi_thread_claim(&lease->listed)) {
        TWI_RACE_POINT(lease_claimed_not_pushed);
        uint32_t line = twi_arena_line(&engine->arena, lease), older;
        /* J7, pairs with J8 in twi_lease_stores_sort() */
        twi_push(&engine->leases.requested, line, older, twi_store_relaxed(&lease->next_requested, older));
    }
    twi_marking_end(self, outer);
}

static void request(tw_engine *engine, struct twi_lease *lease, int64_t n) {
    twi_check(n > 0);
    int64_t requested = twi_load_relaxed(&lease->requested_units);
    while ((requested == 0 || n < requested) && !twi_cas_weak_acqrel(&lease->requested_units, &requested, n)) {}
    TWI_RACE_POINT(requested_not_listed);
    twi_lease_list(engine, lease);
}

/* ---- spending ---- */

struct hard {
    struct twi_decision decision;
    bool final; /* according to Redis, the limit is used up */
};

static bool is_away(const struct twi_call *call, const struct twi_place *place) {
    int64_t since_ms = twi_store_away_since(call->engine, place->generation, place->cell);
    if (since_ms == 0) return false;
    return twi_clock_mono_ms(&call->engine->clock) - since_ms >=
           twi_load_relaxed(&call->family->policy.outage_grace_ms);
}

/* Puts units back into the lease. The lease must then be listed for the turn, or the units are never returned to
 * Redis. */
static void put_back(tw_engine *engine, struct twi_lease *lease, int64_t n) {
    twi_check(n > 0);
    void *outer = twi_marking_begin(twi_thread_self, engine, twi_arena_at(&engine->arena, lease->generation),
                                    twi_arena_at(&engine->arena, lease->cell));
    (void)twi_add_acqrel(&lease->left, n); /* J11, pairs with J12 */
    TWI_RACE_POINT(units_put_back_not_listed);
    twi_lease_list(engine, lease);
    twi_marking_end(twi_thread_self, outer);
}

/* The result may be another one after `retry_ms`. */
static tw_status note_cause(struct hard *hard, uint32_t cause, int64_t retry_ms, tw_status status) {
    hard->decision.cause = cause;
    hard->decision.retry_ms = retry_ms;
    return status;
}

static tw_status deny_away(const tw_engine *engine, struct hard *hard) {
    return note_cause(hard, TW_CAUSE_OUTAGE, twi_again_when_away_ms(engine), TW_DENIED);
}

/* Called if the lease has too few units. Decides whether n units can still be drawn. */
static tw_status fall_short(const struct twi_call *call, const struct twi_place *place, struct twi_lease *lease,
                            int64_t n, int64_t limit, struct hard *hard) {
    twi_check_dear(n > 0 && n <= limit);
    if (twi_load_relaxed(&lease->limit) != limit) twi_store_relaxed(&lease->limit, limit);
    int64_t unsold =
        limit - twi_load_acquire(&lease->reported_spent); /* J9, pairs with J10, because `stranded` is read after it */
    int64_t reported_ms = twi_load_relaxed(&lease->reported_ms);
    if (reported_ms == 0 || unsold - twi_load_relaxed(&lease->stranded) >= n) {
        request(call->engine, lease, n);
        if (is_away(call, place)) return deny_away(call->engine, hard);
        return note_cause(hard, TW_CAUSE_SHARE, twi_lease_again_ms(call->engine), TW_PENDING);
    }
    hard->final = unsold <= 0;
    if (twi_clock_mono_ms(&call->engine->clock) - (reported_ms >> 1) >= REASK_MS) request(call->engine, lease, n);
    if (unsold >= n) return note_cause(hard, TW_CAUSE_SHARE, REASK_MS, TW_DENIED); /* of engines that died */
    /* the report may be ahead of the count's total */
    if (hard->decision.view < limit - unsold) hard->decision.view = limit - unsold;
    return TW_DENIED;
}

static tw_status count_units(const struct twi_call *call, const struct twi_place *place, struct twi_lease *lease,
                             int64_t n, struct hard *hard) {
    twi_check_dear(n > 0);
    int64_t local = 0;
    TWI_RACE_POINT(unit_taken_not_counted);
    enum twi_added added = twi_place_add(call, place, n, &local);
    if (twi_likely(added == TWI_ADDED)) {
        hard->decision.view = twi_view_of(place->cell, place->meta, local);
        return TW_OK;
    }
    /* The window was sealed, or the count is at the end of its range. The call then admits no units. */
    put_back(call->engine, lease, n);
    return added == TWI_ADD_FROZEN ? TWI_AGAIN : twi_refuse_for(TWI_WHY_SUM);
}

/* Returns TW_OK, TW_DENIED, TW_PENDING, TW_ERR_RANGE or TWI_AGAIN. */
static tw_status spend(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                       struct hard *hard) {
    twi_check_dear(n >= 0 && limit >= 0);
    hard->decision.view = twi_cell_view(place->cell, place->meta);
    if (n == 0) return hard->decision.view > limit ? TW_DENIED : TW_OK;
    if (n > limit) return TW_DENIED;
    if (twi_load_relaxed(&call->family->policy.on_outage) == TW_OUTAGE_FAIL_CLOSED && is_away(call, place))
        return deny_away(call->engine, hard);
    struct twi_lease *lease = lease_of(call, place);
    if (twi_unlikely(lease == NULL)) return TW_ERR_FULL;
    int64_t left = twi_load_acquire(&lease->left); /* J12, pairs with J11, so `drawn` belongs to these units */
    do {
        if (left < n || limit < twi_load_relaxed(&lease->drawn)) return fall_short(call, place, lease, n, limit, hard);
        TWI_RACE_POINT(lease_seen_not_taken);
    } while (!twi_cas_weak_acqrel(&lease->left, &left, left - n)); /* J12, if the exchange fails */
    tw_status status = count_units(call, place, lease, n, hard);
    if (left - n < twi_load_relaxed(&lease->low_water)) {
        if (twi_load_relaxed(&lease->limit) != limit) twi_store_relaxed(&lease->limit, limit);
        /* A relaxed load is enough, because a lease that has units is in the turn's queue. */
        if (twi_load_relaxed(&lease->listed) == 0) twi_lease_list(call->engine, lease);
    }
    return status;
}

/* Makes a counter for a key that has none in this window. */
static tw_status begin_key(struct twi_call *call, struct twi_place *place, int64_t n, int64_t limit,
                           struct hard *hard) {
    twi_check(n >= 0);
    struct twi_span span = twi_calendar_span(&call->family->rule, call->unix_ms);
    hard->decision.view = 0;
    hard->decision.start_ms = span.start_ms;
    hard->decision.end_ms = span.end_ms;
    if (n > limit) return TW_DENIED;
    tw_status status = twi_place_make(call, place);
    hard->decision.full = status == TW_ERR_FULL;
    return status;
}

static tw_status acquire_once(struct twi_call *call, int64_t n, int64_t limit, struct hard *hard) {
    struct twi_place place;
    bool found = twi_place_find(call, &place);
    tw_status status = found ? TW_OK : begin_key(call, &place, n, limit, hard);
    if (status != TW_OK) return status;
    hard->decision.start_ms = place.generation->start_ms;
    hard->decision.end_ms = place.generation->end_ms;
    status = spend(call, &place, n, limit, hard);
    hard->decision.full = status == TW_ERR_FULL;
    return status;
}

static tw_status acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, struct hard *hard) {
    twi_check(family->kind.is_hard && family->kind.synced);
    struct twi_call call;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    bool exact = false;
    do {
        *hard = (struct hard){0};
        status = twi_call_now(&call);
        hard->decision.now_ms = call.now_ms;
        if (status == TW_OK) status = acquire_once(&call, n, limit, hard);
        if (status == TW_DENIED && !exact) {
            exact = true; /* as acquire.c */
            if (twi_call_is_behind(&call, n > limit ? -1 : twi_decision_left_ms(&hard->decision))) status = TWI_AGAIN;
        }
    } while (status == TWI_AGAIN);
    if (status == TW_OK && n != 0) twi_limit_stats_count(family, call.self, admitted);
    twi_call_end(&call);
    return status == TW_ERR_FULL ? twi_refuse_for(TWI_WHY_FULL) : status;
}

/* The known count is the last total from Redis plus the units that this engine has counted since. The true count is
 * between the known count and the limit, except for refunds that are under way. */
static void fill_verdict(tw_status status, int64_t n, int64_t limit, const struct hard *hard, tw_verdict *verdict) {
    twi_check(verdict != NULL);
    twi_verdict_fill(verdict, true, status, n, limit, &hard->decision);
    verdict->decided_by = hard->decision.full ? TW_BY_FULL : TW_BY_LEASE;
    verdict->error_bound = hard->decision.view < limit ? limit - hard->decision.view : 0;
    verdict->final = hard->final;
}

tw_status twi_lease_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    struct hard hard = {0};
    tw_status status = twi_limit_is_in_range(n, limit) ? acquire(family, key, n, limit, &hard) : twi_units_refuse(n);
    if (verdict != NULL) fill_verdict(status, n, limit, &hard, verdict);
    twi_verdict_add_grain(family, verdict);
    return status;
}

/* ---- before the sale, and after it ---- */

static tw_status warm(struct twi_call *call, int64_t limit) {
    twi_check(limit >= 0);
    struct twi_place place;
    tw_status status = TW_OK;
    if (!twi_place_find(call, &place)) status = twi_place_make(call, &place);
    if (status != TW_OK) return status;
    struct twi_lease *lease = lease_of(call, &place);
    if (lease == NULL) return TW_ERR_FULL;
    twi_store_relaxed(&lease->limit, limit);
    twi_store_relaxed(&lease->warm, 1);
    if (limit != 0 && twi_swap_relaxed(&lease->awaits_first_grant, 1) == 0) {
        (void)twi_add_relaxed(&call->engine->leases.awaiting_first_grant, 1);
        twi_lease_list(call->engine, lease); /* the turn may find that the lease already has units */
    }
    if (twi_load_relaxed(&lease->left) == 0 && limit != 0) request(call->engine, lease, 1);
    return TW_OK;
}

tw_status tw_lease_warm(tw_family *family, tw_key key, int64_t limit) {
    TWI_NEED(family);
    if (!family->kind.is_hard)
        return twi_refuse(TW_ERR_MODE, "limit_mode: tw_lease_warm() is for TW_LIMIT_HARD families");
    if (!twi_limit_is_in_range(0, limit)) return twi_units_refuse(0);
    struct twi_call call;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    do {
        status = twi_call_now(&call);
        if (status == TW_OK && family->kind.synced)
            status = warm(&call, limit); /* without Redis the whole limit is available here */
    } while (status == TWI_AGAIN);
    twi_call_end(&call);
    return status == TW_ERR_FULL ? twi_refuse_for(TWI_WHY_FULL) : status;
}

/* These units were taken off the count, by a refund or an undone call. The function puts them into the lease, so that
 * they can be spent again.
 * Returns false if there is no memory for a lease. */
static bool keep_units(struct twi_call *call, const struct twi_place *place, int64_t n) {
    twi_check(n > 0);
    struct twi_lease *lease = lease_of(call, place);
    if (lease == NULL) return false;
    twi_store_relaxed(&lease->refunded, 1); /* the thread that finds the units in the lease sees this store (J11) */
    put_back(call->engine, lease, n);
    return true;
}

static bool is_final(tw_family *family, tw_key key, int64_t limit) {
    struct twi_call call;
    struct twi_place place;
    if (twi_call_begin(&call, family, key) != TW_OK) return true;
    struct twi_lease *lease = NULL;
    if (twi_call_now(&call) == TW_OK && twi_place_find(&call, &place)) lease = twi_lease_of(place.cell);
    bool is = false;
    if (lease != NULL) {
        int64_t reported_ms = twi_load_acquire(&lease->reported_ms) >> 1; /* J9: the units are that reply's, or newer */
        is = twi_clock_mono_ms(&call.engine->clock) - reported_ms < REASK_MS &&
             twi_load_relaxed(&lease->reported_spent) >= limit;
    }
    twi_call_end(&call);
    return is;
}

static tw_status refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms) {
    twi_check(n > 0);
    return twi_refund_to(family, key, n, window_start_ms, keep_units);
}

static tw_status undo(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms) {
    twi_check(n > 0);
    (void)limit;
    return twi_undo_to(family, key, n, window_start_ms, keep_units);
}

const struct twi_limit_kind twi_limit_leased = {
    .acquire = twi_lease_acquire, .refund = refund, .undo = undo, .is_final = is_final};
