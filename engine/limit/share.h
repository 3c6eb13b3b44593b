/* share.h -- soft limits over Redis: how much of a limit this engine may spend before it has heard of the others again.
 *
 *   total T ─▶ what remains R = limit - T ─▶ up to T + max(1, n, R / live engines) by our own view ─▶ asked for anew, early
 * A key of unknown total: up to max(1, limit / live); and no more for an interval and a half after its first total, whatever that
 * leaves: a NEW key's totals each miss what all others have spent of it and not sent.
 * While Redis is away the family's policy decides (twi_outage_is_on; TW_OUTAGE_LOCAL TWI_BRIEF_MS later, where there may be others).
 * Near its limit, or unknown, a key is put into a small ring that the turn empties into a batch at once: callers make no
 * system call. The ring forgets what it has no room for: that is synced at its interval, as all others.
 * Always true: what is in the ring belongs to a generation that is held; a denied call has counted nothing.
 *
 * THE BOUND, |used - truth|. Not known to us is what others had counted and not sent when Redis told T (at most one interval
 * of theirs, for they send what is owed, jittered to 5/4 of it), and what they have counted since (the age of T). How fast
 * they count is known from T itself, total by total: `pace`, units of others per ms, smoothed over some intervals. So
 *      B1 = (1 + u) * pace * (age + 5/4 interval)             u for the unevenness of their batches: 0.3; of two others 0.4, of one 0.55
 *      B2 = (live - 1) * max(n, (R + B1) / live + 1)          they, too, spend no more than a share of what is left
 * and the bound is the smaller one. Where the others were idle, or nothing is known of their pace, B2 alone holds; where less than
 * some intervals have been seen, they may still decide on totals of before, so all that remains and their shares of the
 * whole limit are counted. B1 trusts that others go on as they did: a sudden burst elsewhere shows one interval later.
 * TW_UNBOUNDED is said where others are out of sight: the registry is not known, or Redis is away. */
#ifndef TWI_LIMIT_SHARE_H
#define TWI_LIMIT_SHARE_H

#include "engine/count/lookup.h"
#include "engine/limit/decision.h"

/* THE FIRST SECONDS. Engines that start together do not know of each other, and each would spend the whole limit. So
 *   opened ─Redis has told how many live▶ meeting ─TWI_MEETING_MS, told again▶ young ─nobody has come for TWI_YOUNG_MS▶ grown
 *   (who was slow to its first answer is meeting for twice as long as that took: who began with it is as slow)
 *   opened, meeting (unless engines_expected says how many), and while young of keys of unknown total: a little of each limit
 *   meeting with engines_expected, young: of each window limit / live at most, besides what the rule above says: totals that are on
 *   their way may each miss a share of all others
 * where live is the larger of what Redis told and engines_expected. Who has named a number is young until so many are there, and
 * nobody has come for TWI_EXPECTED_MS; nobody is after TWI_YOUNG_MAX_MS.
 * Where Redis may not be asked, fails to answer for TWI_BRIEF_MS, or says nothing for TWI_OPENED_MS, an engine is alone, or one of
 * engines_expected; of those it takes a share until TWI_YOUNG_MAX_MS. */
#define TWI_OPENED_MS 3000
#define TWI_MEETING_MS \
    100 /* the registry is asked several times by then (sync/message/registry.c): processes of one start find each other */
#define TWI_YOUNG_MS 1000
#define TWI_EXPECTED_MS 3000
#define TWI_YOUNG_MAX_MS 5000
#define TWI_BRIEF_MS 1000   /* an outage that is younger is none to TW_OUTAGE_LOCAL where there may be others */
#define TWI_LITTLE_PART 128 /* of four engines that come late each spends so much of what is sold out: 2.3 % */
#define TWI_LITTLE_UNITS 64 /* but so much at least, for few units are no rush */

/* How many engines decide on the same limits; at least 1. Any thread. */
TWI_INLINE uint32_t twi_live_engines(const tw_engine *engine) {
    tw_engine *own = (tw_engine *)engine;
    uint32_t live = twi_load_relaxed(&own->live_engines); /* hints, all three: as old as the last word */
    if (live != 0) return live;
    live = twi_load_relaxed(&own->live_reported);
    if (live < own->options.engines_expected) live = own->options.engines_expected;
    return live != 0 ? live : 1;
}
void twi_share_open(tw_engine *engine); /* nobody has told anything; also in a forked child */
/* How many live is known, as well as ever; or it cannot be. Any thread. */
bool twi_share_is_settled(const tw_engine *engine);

/* By the turn: Redis fails to answer since then (0: it answers), before away_since_ms says so. */
void twi_share_outage(tw_engine *engine, int64_t since_ms);
/* From when on Redis has what all engines had counted until `mono_ms`, as far as their way to it is ours: two intervals later; after an
 * outage, when all must be back. What it tells is on its way for redis_timeout_ms at most. Any thread. */
int64_t twi_share_is_in_ms(const tw_engine *engine, int64_t mono_ms);

/* Redis has failed to answer for longer than the family's grace: on_outage decides. Any thread. */
bool twi_outage_is_on(const tw_family *family);

/* ---- the short way (acquire_fast.h): a known key, Redis is there ---- */

struct twi_share_estimate {
    int64_t most;           /* up to where it may count, by the view */
    int64_t no_check_below; /* an admission that stays below needs nothing further; else twi_share_decided() */
    int64_t bound;          /* then; more than one engine, or a pace of others: share.c */
};
/* False: the long way must look. */
bool twi_share_estimate_among(const struct tw_family *family, struct twi_cell *cell, const struct twi_cold *cold,
                              int64_t n, int64_t limit, struct twi_share_estimate *estimate);
TWI_INLINE bool twi_share_estimate(const struct tw_family *family, struct twi_cell *cell, int64_t n, int64_t limit,
                                   struct twi_share_estimate *estimate) {
    tw_engine *engine = family->engine;
    struct twi_cold *cold = twi_cell_cold(cell, twi_load_relaxed(&cell->meta));
    int64_t total_state = twi_load_relaxed(&cold->total_state);
    uint32_t live = twi_load_relaxed(&engine->live_engines);
    if (twi_unlikely(total_state == 0) || twi_unlikely(live == 0)) return false;
    if (twi_unlikely(twi_load_relaxed(&engine->leases.away_since_ms) != 0)) return false;
    if (live != 1 || twi_total_state_middle(total_state) != 0)
        return twi_share_estimate_among(family, cell, cold, n, limit, estimate);
    *estimate = (struct twi_share_estimate){.most = limit, .no_check_below = twi_limit_near(limit)};
    return true;
}

/* ---- the long way ---- */

/* Before take(): up to where it may count, by the view. `decision` learns on what that rests. */
int64_t twi_share_ceiling(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                          struct twi_decision *decision);
/* After it. */
void twi_share_decided(const struct twi_call *call, const struct twi_place *place, int64_t n, int64_t limit,
                       tw_status status, struct twi_decision *decision);
/* For a key that nobody has counted here: up to where it may count at the very most. */
int64_t twi_share_unknown(const tw_family *family, int64_t n, int64_t limit, struct twi_decision *decision);
/* The key's total is wanted before its interval. */
void twi_share_request_sync(const struct twi_call *call, const struct twi_place *place);

/* By the turn: a total has come. The word of twi_cold.asked that says so, with what it tells of the others' pace. */
int64_t twi_share_take_total(const tw_engine *engine, int64_t total_state, int64_t others);
/* Nobody can reach this generation any more. */
void twi_share_forget(tw_engine *engine, struct twi_generation *generation);

#endif
