/* limit_stats.h -- the statistics of each family's limits: how many calls were admitted and denied, and by how much
 * limits were exceeded. Each caller counts its own calls. At first all threads use one shared line. When a family's
 * limits are used often, each thread gets a separate line (core/family.h). Engine-wide statistics are sums of these
 * lines.
 * The turn measures the overshoot (limit_stats.h).
 * Always true: no statistic of a family falls while the family is open, and no statistic of the engine ever falls. */
#ifndef TWI_LIMIT_LIMIT_STATS_H
#define TWI_LIMIT_LIMIT_STATS_H

#include "engine/limit/decision.h"

/* ---- overshoot ----
 * measures by how much soft limits with Redis were exceeded, after their window has ended.
 *
 *   a call comes near the limit ─▶ note (counter, limit) ─▶ the window is sealed, and drained
 *   ─▶ two intervals later: its total is requested once more ─▶ (total - limit) / limit, into the family's histogram
 * By then the other engines that reach Redis have sent their counts of that window. A note is made only for a counter
 * that came near its limit in this engine. If a counter exceeded its limit, the counter came near the limit in every
 * engine that counted in it. Some counters are not measured: those in windows without a fixed end (endless families,
 * windows from the first add), and those of exact limits (hard, strict, without Redis).
 *
 *   note: 0 ─▶ BUSY (its limit is being written, by one caller) ─▶ the counter ─▶ 0 (by the turn)
 * Always true: a counter has at most one note, in the slot that its line chooses. If two counters have the same
 * slot, the second one is not measured. Callers never wait. Only the turn clears a note, so a note belongs to a
 * generation that still exists. */

TWI_INLINE bool twi_overshoot_is_measured(const struct tw_family *family) {
    return family->kind.shares && !family->kind.is_strict && family->kind.has_starts;
}

/* Called when a call was decided near its limit. Notes the counter. The caller is inside the call's section. */
void twi_overshoot_note(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                        int64_t limit);
TWI_INLINE void twi_overshoot_check(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                                    int64_t n, int64_t view, int64_t limit) {
    if (n == 0 || limit <= 0 || !twi_overshoot_is_measured(family)) return;
    if (view >= limit || twi_limit_is_near(view, limit)) twi_overshoot_note(family, generation, cell, limit);
}

/* ---- by the turn ---- */

/* Measures a drained generation. `ends` means that this is the last opportunity. Returns true if the generation is
 * finished and no request for it is under way. */
bool twi_overshoot_measure(tw_engine *engine, struct twi_generation *generation, bool ends);
/* Fills `items` with at most `room` requests for Redis. */
size_t twi_overshoot_requests(tw_engine *engine, struct twi_item *items, size_t room);
/* Called when the thread with this number ended while it may have written the note of this counter. Drops the note. */
void twi_overshoot_heal(tw_engine *engine, const struct twi_generation *generation, const struct twi_cell *cell,
                        uint32_t number);
/* Called when no thread can reach this generation any more. Clears its notes. */
void twi_overshoot_forget(tw_engine *engine, const struct twi_generation *generation);
/* Called in a forked child, which has no counters. */
void twi_overshoot_clear(tw_engine *engine);

/* Upper bounds of the buckets, as text; the last bucket has no upper bound. */
extern const char *const twi_overshoot_bounds[TWI_OVERSHOOT_BUCKETS];

struct twi_limit_stats {
    int64_t admitted, admitted_here; /* `admitted_here` of them also count in a cell, as increments */
    int64_t denied[TWI_CAUSES];      /* by cause */
    int64_t near, shadow_denied;
    int64_t uncounted; /* admitted without a count, because the table was full; not in `admitted` */
    int64_t overshoots[TWI_OVERSHOOT_BUCKETS], overshoot_ppm;
};

/* Returns the denials of all causes. */
int64_t twi_limit_stats_denied(const struct twi_limit_stats *stats);
/* Adds the statistics of this family's limits to *sum. Any thread. */
void twi_limit_stats_add(const struct tw_family *family, struct twi_limit_stats *sum);
/* Adds the statistics of all families, including closed ones. The caller has the engine's lock. */
void twi_limit_stats_read(tw_engine *engine, tw_stats *stats);
/* When the family is about to leave the list. The engine keeps its statistics. The caller has the engine's lock. */
void twi_limit_stats_keep(struct tw_family *family);
/* Called by the turn. Makes the lines that callers have requested. */
void twi_limit_stats_turn(struct tw_family *family);
/* Called by the turn. The family is about to be freed, so its lines are returned to the arena. */
void twi_limit_stats_free(struct tw_family *family);
/* Called in a forked child, where no call has been counted yet. */
void twi_limit_stats_clear(struct tw_family *family);

/* A copy of a family's statistics with its name, to be written out without a lock. */
struct twi_family_limit_stats {
    char name[65];
    bool is_measured; /* limit_stats.h */
    struct twi_limit_stats limits;
};
/* Lists the families whose limit was ever used, sorted by name. The caller frees the list. Returns false if there is
 * no memory. */
bool twi_limit_stats_list(tw_engine *engine, struct twi_family_limit_stats **list, size_t *count);

/* Counts the call in the shared line. For frequent calls it requests a line for each thread. `at` is its offset in a
 * shard. */
TWI_COLD void twi_limit_stats_count_shared(tw_family *family, const struct twi_thread *self, size_t at);
/* Counts a denial of another cause than TW_CAUSE_LIMIT. */
TWI_COLD void twi_limit_stats_count_cause(tw_family *family, const struct twi_thread *self, uint32_t cause);
/* Counts a call that a full table admitted. */
TWI_COLD void twi_limit_stats_count_uncounted(tw_family *family, const struct twi_thread *self);
/* The table is full, and two keys never share one counter (trap E40). on_full_limit decides about n units. A call that
 * must be counted is not admitted. */
TWI_COLD tw_status twi_limit_when_full(tw_family *family, const struct twi_thread *self, int64_t n);

/* Raises a count in the calling thread's own line. Only this thread writes the line. Returns the new count. */
TWI_INLINE int64_t twi_limit_stats_raise(_Atomic int64_t *count) {
    int64_t raised = twi_load_relaxed(count) + 1;
    twi_store_relaxed(count, raised);
    return raised;
}

/* Returns the line of the calling thread in this family, or NULL if it has none. */
TWI_INLINE struct twi_limit_shard *twi_limit_stats_line(const tw_family *family, const struct twi_thread *self) {
    struct twi_limit_lines *lines = twi_load_acquire(&family->limit_lines); /* S2, pairs with S1 */
    if (twi_hardly(lines == NULL) || twi_hardly(self->shard >= lines->count)) return NULL;
    static_assert(sizeof(struct twi_limit_shard) == TWI_LINE_BYTES, "shard_bytes is a number of lines");
    return (struct twi_limit_shard *)((char *)lines->shards + self->shard_bytes);
}

TWI_INLINE void twi_limit_stats_count_at(tw_family *family, const struct twi_thread *self, size_t at) {
    struct twi_limit_shard *line = twi_limit_stats_line(family, self);
    if (twi_unlikely(line == NULL))
        twi_limit_stats_count_shared(family, self, at);
    else
        (void)twi_limit_stats_raise((_Atomic int64_t *)((unsigned char *)line + at));
}
#define twi_limit_stats_count(family, self, field) \
    twi_limit_stats_count_at((family), (self), offsetof(struct twi_limit_shard, field))

/* Counts a call that was admitted and counted in a cell. */
TWI_INLINE void twi_limit_stats_count_admitted(tw_family *family, struct twi_thread *self, int64_t used,
                                               int64_t limit) {
    twi_limit_stats_count(family, self, admitted);
    if (twi_unlikely(twi_limit_is_near(used, limit))) twi_limit_stats_count(family, self, near);
}
/* Counts a call that was not admitted. */
TWI_INLINE void twi_limit_stats_count_denied(tw_family *family, const struct twi_thread *self, uint32_t cause) {
    if (twi_likely(cause == TW_CAUSE_LIMIT))
        twi_limit_stats_count(family, self, denied);
    else
        twi_limit_stats_count_cause(family, self, cause);
}
/* For a call of n units that ended with this status and that no other function counts. The verdict of an error gets its
 * cause (cause.h). Returns the status. */
tw_status twi_limit_stats_answered(tw_family *family, int64_t n, tw_status status, tw_verdict *verdict);

#endif
