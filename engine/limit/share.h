/* share.h -- soft limits over Redis: how much of a limit this engine may spend before it receives the other engines'
 * counts again.
 *
 *   total T ─▶ what remains R = limit - T ─▶ up to T + max(1, n, R / live engines) by our view ─▶ next total, early
 * If the total of a key is unknown, the engine may spend max(1, limit / live) units of the key. The same bound applies
 * to a NEW key: for one and a half intervals after its first total, whatever this total leaves. The reason is that each
 * total of a new key lacks all units that other engines have spent and not sent.
 * If Redis has not replied for longer than the family's grace, the family's policy decides. If there may be other
 * engines, TW_OUTAGE_LOCAL decides TWI_BRIEF_MS later. With several stores, "Redis" means here the key's store. A key
 * that is near its limit, or whose total is unknown, is put into a small ring. The turn soon moves the keys of the ring
 * into a batch, so callers make no system call. If the slot of a key is in use, the key is not added to the ring. Then
 * its counts are sent at the next regular sync.
 * Always true: each slot of the ring belongs to a generation that still exists. A denied call counts no unit.
 *
 * THE BOUND of |used - truth|. This engine does not know two numbers. One is the units that the others had counted and
 * not sent when Redis reported T. The other is the units that the others have counted since then (during the age of T).
 * The first number covers at most one interval of the others, which jitter makes at most 5/4 of it. The totals
 * themselves show how fast the others count. `pace` is the units of others per ms, smoothed over some intervals. So
 *      B1 = (1 + u) * pace * (age + 5/4 interval)   u: their unevenness: 0.3; of two others 0.4, of one 0.55
 *      B2 = (live - 1) * max(n, (R + B1) / live + 1)     the others, too, spend only a share of R
 * The bound is the smaller of the two. If the others were idle, or their pace is unknown, only B2 is used. If only few
 * intervals have been seen, the others may still decide by older totals. Then the bound is all that remains, plus their
 * shares of the whole limit. B1 assumes that the others continue at their pace. A sudden burst in another engine is
 * visible one interval later.
 * The bound is TW_UNBOUNDED if the others cannot be seen, because the registry is unknown or Redis does not reply. */
#ifndef TWI_LIMIT_SHARE_H
#define TWI_LIMIT_SHARE_H

#include "engine/core/peers.h"
#include "engine/count/lookup.h"
#include "engine/limit/decision.h"

/* THE FIRST SECONDS. Engines that start together do not know each other, and each of them would spend the whole limit.
 * So an engine passes through these states:
 *   opened ─Redis has reported how many live▶ meeting ─TWI_MEETING_MS, reported again▶ young
 *   young ─no new engine for TWI_YOUNG_MS▶ grown
 * - An engine whose first reply took long stays in the state "meeting" for twice that time, because engines that began
 *   with it are as slow.
 * - opened: "meeting" (unless engines_expected is set), and "young" for keys of unknown total. It may spend a small
 *   part of each limit.
 * - "meeting" with engines_expected, and "young": it may spend at most limit / live of each window, besides the rule
 *   above. The reason is that each total that is on its way may lack a share of all other engines.
 * Here `live` is the larger of the reported number and engines_expected. An engine with engines_expected stays young
 * until so many engines live and no new engine has come for TWI_EXPECTED_MS. No engine is young after TWI_YOUNG_MAX_MS.
 * The engine assumes that it is alone, or one of engines_expected, if it may not ask Redis, if Redis does not reply for
 * TWI_BRIEF_MS, or if Redis reports no number for TWI_OPENED_MS. If engines_expected is set, the engine then spends
 * only its share until TWI_YOUNG_MAX_MS. peers.h has the times, and the number of live engines. */
#define TWI_BRIEF_MS 1000   /* a shorter outage does not count for TW_OUTAGE_LOCAL if there may be other engines */
#define TWI_LITTLE_PART 128 /* a late engine may spend this part of a sold-out limit; three spend 2.3 % */
#define TWI_LITTLE_UNITS 64 /* at least this many units may be spent, because so few are no rush */

/* ---- the short way (acquire_fast.h): the key is known, and Redis replies ---- */

struct twi_share_estimate {
    int64_t most;           /* by the view, the greatest count that may be admitted */
    int64_t no_check_below; /* a smaller count needs no further check; otherwise twi_share_decided() */
    int64_t bound;          /* the bound of such an admission (share.c) */
};
/* Returns true if this engine is alone with a known total, and Redis replies: then the limit is as one of this process
 * below twi_limit_near(). */
TWI_INLINE bool twi_share_is_alone(const struct tw_family *family, struct twi_cell *cell) {
    const struct twi_peers *peers = &family->engine->peers;
    const struct twi_cold *cold = twi_cell_cold(cell, twi_load_relaxed(&cell->meta));
    int64_t total_state = twi_load_relaxed(&cold->total_state);
    return twi_likely(total_state != 0) && twi_load_relaxed(&peers->live_engines) == 1 &&
           twi_likely(twi_load_relaxed(&peers->away_since_ms) == 0) && twi_total_state_middle(total_state) == 0;
}
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

/* ---- the complete way ---- */

/* The complete decision of a limit that engines share. */
twi_hot_acquire twi_share_acquire;
/* The parts of that decision (counted.h). twi_share_unknown() is called for a key without a counter here;
 * `decision` has the start of the window. */
int64_t twi_share_unknown(const struct twi_call *call, int64_t n, int64_t limit, struct twi_decision *decision);
tw_status twi_share_take(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                         struct twi_decision *decision);
/* Called after units were taken or denied. Sets the bound and the retry time, and requests the next total if it is
 * needed. */
void twi_share_decided(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                       tw_status status, struct twi_decision *decision);
/* Requests the key's total before its regular interval. */
void twi_share_request_sync(const struct twi_call *call, const struct twi_place *place);

/* Called by the turn when a total has arrived. Returns the new twi_cold.total_state, with the pace of the others. */
int64_t twi_share_take_total(const tw_engine *engine, int64_t total_state, int64_t others);
/* Called when no thread can reach this generation any more. Removes the generation from the ring. */
void twi_share_forget(tw_engine *engine, struct twi_generation *generation);

#endif
