/* limit_stats.h -- what the limits of each family have done: how often they admitted and denied, and by how much a limit was passed.
 * Calls are counted by those who make them: in one line for all at first, each thread in a line of its own once a family's limits
 * are much in use (acquire.h); engine-wide figures are sums of them.
 * Overshoot is measured by the turn (overshoot.h).
 * Always true: no figure ever falls, for a family as long as it is open, for the engine as long as it lives. */
#ifndef TWI_LIMIT_LIMIT_STATS_H
#define TWI_LIMIT_LIMIT_STATS_H

#include "engine/limit/decision.h"

struct twi_limit_stats {
    int64_t admitted, admitted_here; /* here: and counted, as an increment */
    int64_t denied, near, shadow_denied;
    int64_t overshoots[TWI_OVERSHOOT_BUCKETS], overshoot_ppm;
};

/* Adds what this family's limits have done. Any thread. */
void twi_limit_stats_add(const struct tw_family *family, struct twi_limit_stats *sum);
/* Adds what those of all families have done, the closed ones too. Under the engine's lock. */
void twi_limit_stats_read(tw_engine *engine, tw_stats *stats);
/* The family is about to leave the list: the engine keeps its figures. Under the engine's lock. */
void twi_limit_stats_keep(struct tw_family *family);
/* By the turn: makes the lines that were asked for. */
void twi_limit_stats_turn(struct tw_family *family);
/* The family is about to be freed: gives its lines back. By the turn. */
void twi_limit_stats_free(struct tw_family *family);
/* In a forked child: nothing has been counted. */
void twi_limit_stats_clear(struct tw_family *family);

/* A family's figures under its name, for whoever writes them down without a lock. */
struct twi_family_limit_stats {
    char name[65];
    bool is_measured; /* overshoot.h */
    struct twi_limit_stats limits;
};
/* The families of which a limit was asked, in the order of their names; to be freed. False: no memory. */
bool twi_limit_stats_list(tw_engine *engine, struct twi_family_limit_stats **list, size_t *count);

/* Into the line of all, and asks for lines of their own for threads that come often. `at`: in a shard. */
TWI_COLD void twi_limit_stats_count_shared(tw_family *family, const struct twi_thread *self, size_t at);

TWI_INLINE void twi_limit_stats_count_at(tw_family *family, const struct twi_thread *self, size_t at) {
    struct twi_limit_lines *lines = twi_load_acquire(&family->limit_lines); /* S2, pairs with S1 */
    if (twi_unlikely(lines == NULL) || twi_unlikely(self->shard >= lines->count)) {
        twi_limit_stats_count_shared(family, self, at);
        return;
    }
    _Atomic int64_t *count = (_Atomic int64_t *)((unsigned char *)&lines->shards[self->shard] + at);
    twi_store_relaxed(count, twi_load_relaxed(count) + 1); /* its only writer */
}
#define twi_limit_stats_count(family, self, field) \
    twi_limit_stats_count_at((family), (self), offsetof(struct twi_limit_shard, field))

/* Of a call that was admitted and counted in a cell. */
TWI_INLINE void twi_limit_stats_count_admitted(tw_family *family, struct twi_thread *self, int64_t used,
                                               int64_t limit) {
    twi_limit_stats_count(family, self, admitted);
    if (twi_unlikely(twi_limit_is_near(used, limit))) twi_limit_stats_count(family, self, near);
}
TWI_INLINE void twi_limit_stats_count_denied(tw_family *family, struct twi_thread *self) {
    twi_limit_stats_count(family, self, denied);
}

#endif
