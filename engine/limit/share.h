/* share.h -- soft limits over Redis: how much of a limit this engine may spend before it receives the other engines'
 * counts again.
 *
 *   total T ─▶ what remains R = limit - T ─▶ up to T + max(1, n, R / live engines) by our view ─▶ next total, early
 * A key of unknown total may be spent up to max(1, limit / live). A NEW key may not be spent further than that for an
 * interval and a half after its first total, whatever this total leaves. The reason is that each total of a new key
 * misses all units that other engines have spent and not sent.
 * While Redis has not replied for longer than the family's grace, the family's policy decides. TW_OUTAGE_LOCAL decides
 * TWI_BRIEF_MS later if there may be other engines. With several stores, "Redis" means here the key's store.
 * A key that is near its limit, or of unknown total, is put into a small ring. The turn empties the ring into a batch
 * at once: callers make no system call. If a slot of the ring is taken, the key is not added; it is sent at the next
 * regular sync.
 * Always true: each slot of the ring belongs to a generation that is still held. A denied call has counted no unit.
 *
 * THE BOUND, |used - truth|. This engine does not know two numbers. One is the units that the others had counted and
 * not sent when Redis reported T. The other is the units that they have counted since (the age of T). The first lasts
 * at most one interval of theirs, jittered to 5/4 of it. The totals themselves show how fast the others count: `pace`,
 * units of others per ms, smoothed over some intervals. So
 *      B1 = (1 + u) * pace * (age + 5/4 interval)   u: their unevenness: 0.3; of two others 0.4, of one 0.55
 *      B2 = (live - 1) * max(n, (R + B1) / live + 1)     the others, too, spend only a share of R
 * and the bound is the smaller one. If the others were idle, or their pace is unknown, B2 alone holds. If only few
 * intervals have been seen, the others may still decide on older totals; then the bound is all that remains, plus their
 * shares of the whole limit. B1 assumes that the others continue as before: a sudden burst elsewhere shows one interval
 * later.
 * The bound is TW_UNBOUNDED if the others cannot be seen: the registry is unknown, or Redis does not reply. */
#ifndef TWI_LIMIT_SHARE_H
#define TWI_LIMIT_SHARE_H

#include "engine/core/peers.h"
#include "engine/count/lookup.h"
#include "engine/limit/decision.h"

/* THE FIRST SECONDS. Engines that start together do not know of each other, and each would spend the whole limit. So an
 * engine passes through these states:
 *   opened ─Redis has reported how many live▶ meeting ─TWI_MEETING_MS, reported again▶ young
 *   young ─no new engine for TWI_YOUNG_MS▶ grown
 * - An engine whose first reply took long is meeting for twice that time, because engines that began with it are as
 * slow.
 * - opened, meeting (unless engines_expected is set), and young for keys of unknown total: it may spend a small part
 *   of each limit.
 * - meeting with engines_expected, and young: it may spend at most limit / live of each window, besides the rule above.
 *   The reason is that totals that are on their way may each miss a share of all others.
 * Here live is the larger of the reported number and engines_expected. An engine with engines_expected is young until
 * so many engines live and no new one has come for TWI_EXPECTED_MS. No engine is young after TWI_YOUNG_MAX_MS.
 * If Redis may not be asked, does not reply for TWI_BRIEF_MS, or reports no number for TWI_OPENED_MS, the engine counts
 * as alone, or as one of engines_expected. In the latter case it takes a share until TWI_YOUNG_MAX_MS.
 * peers.h has the times, and the number of live engines. */
#define TWI_BRIEF_MS 1000   /* a shorter outage does not count for TW_OUTAGE_LOCAL, if there may be other engines */
#define TWI_LITTLE_PART 128 /* a late engine may spend this part of a sold-out limit; three of four: 2.3 % */
#define TWI_LITTLE_UNITS 64 /* but at least this many units, because so few are no rush */

/* ---- the short way (acquire_fast.h), for a known key while Redis replies ---- */

struct twi_share_estimate {
    int64_t most;           /* the greatest count, by the view, that may be admitted */
    int64_t no_check_below; /* an admission below this needs no further check; otherwise call twi_share_decided() */
    int64_t bound;          /* the bound of such an admission, with several engines or a pace of others (share.c) */
};
/* Returns false if the complete decision is needed. */
bool twi_share_estimate_among(const struct tw_family *family, struct twi_cell *cell, const struct twi_cold *cold,
                              int64_t n, int64_t limit, struct twi_share_estimate *estimate);
TWI_INLINE bool twi_share_estimate(const struct tw_family *family, struct twi_cell *cell, int64_t n, int64_t limit,
                                   struct twi_share_estimate *estimate) {
    tw_engine *engine = family->engine;
    struct twi_cold *cold = twi_cell_cold(cell, twi_load_relaxed(&cell->meta));
    int64_t total_state = twi_load_relaxed(&cold->total_state);
    uint32_t live = twi_load_relaxed(&engine->peers.live_engines);
    if (twi_unlikely(total_state == 0) || twi_unlikely(live == 0)) return false;
    if (twi_unlikely(twi_load_relaxed(&engine->peers.away_since_ms) != 0)) return false;
    if (live != 1 || twi_total_state_middle(total_state) != 0)
        return twi_share_estimate_among(family, cell, cold, n, limit, estimate);
    *estimate = (struct twi_share_estimate){.most = limit, .no_check_below = twi_limit_near(limit)};
    return true;
}

/* ---- the long way ---- */

/* The complete decision of a limit that engines share. */
twi_hot_acquire twi_share_acquire;
/* Its parts (counted.h). twi_share_unknown() is for a key without a counter here; `decision` has the start of the
 * window. */
int64_t twi_share_unknown(const struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision);
tw_status twi_share_take(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                         struct twi_decision *decision);
/* Called after units were taken or denied. Sets the bound and the retry time, and requests the next total if it is
 * needed. */
void twi_share_decided(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                       tw_status status, struct twi_decision *decision);
/* Requests the key's total before its regular interval. */
void twi_share_request_sync(const struct twi_call *call, const struct twi_place *place);

/* Called by the turn when a total has come. Returns the new twi_cold.total_state, with the pace of the others. */
int64_t twi_share_take_total(const tw_engine *engine, int64_t total_state, int64_t others);
/* Called when no thread can reach this generation any more. Clears its slots in the ring. */
void twi_share_forget(tw_engine *engine, struct twi_generation *generation);

#endif
