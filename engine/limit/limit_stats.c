/* limit_stats.c -- see limit_stats.h. */
#include "engine/limit/limit_stats.h"

#include "engine/core/agenda.h"
#include "engine/limit/overshoot.h"
#include "engine/base/lock.h"

#include <stdlib.h>

/* ---- the lines in which calls count ---- */

#define SHARED_OFTEN 1024 /* if the shared line counts this many calls, one line for each thread is worth the memory */

void twi_limit_stats_count_shared(tw_family *family, const struct twi_thread *self, size_t at) {
    twi_check_dear(at + sizeof(int64_t) <= sizeof(struct twi_limit_shard));
    if (self->shard == TWI_SHARD_ASIDE) return;
    _Atomic int64_t *count = (_Atomic int64_t *)((unsigned char *)&family->limits_shared.shard + at);
    int64_t before = twi_add_relaxed(count, 1);
    if (before % SHARED_OFTEN != SHARED_OFTEN - 1 || self->shard == TWI_SHARD_SHARED) return;
    twi_store_relaxed(&family->requests.limit_lines, true);
    twi_agenda_notify(family);
}

void twi_limit_stats_count_cause(tw_family *family, const struct twi_thread *self, uint32_t cause) {
    twi_check_dear(cause != TW_CAUSE_LIMIT && cause < TWI_CAUSES);
    if (self->shard != TWI_SHARD_ASIDE) (void)twi_add_relaxed(&family->limits_shared.denied_for[cause], 1);
}

tw_status twi_limit_stats_answered(tw_family *family, int64_t n, tw_status status, tw_verdict *verdict) {
    twi_check(status != TW_STARTED);
    const struct twi_thread *self = twi_thread_here();
    twi_verdict_refuse(verdict, family->engine, status);
    if (self == NULL || n == 0) return status;
    if (status == TW_OK)
        twi_limit_stats_count(family, self, admitted_there);
    else if (status == TW_DENIED || verdict->cause != 0) /* a wrong call has no cause */
        twi_limit_stats_count_denied(family, self, verdict->cause);
    return status;
}

static struct twi_limit_lines *older_lines(const struct tw_family *family, const struct twi_limit_lines *lines) {
    twi_check_dear(lines->count < lines->lines);
    return lines->older != 0 ? twi_arena_at(&family->engine->arena, lines->older) : NULL;
}

void twi_limit_stats_turn(struct tw_family *family) {
    twi_check_dear(family->engine != NULL);
    if (!twi_load_relaxed(&family->requests.limit_lines)) return;
    twi_store_relaxed(&family->requests.limit_lines, false);
    struct twi_arena *arena = &family->engine->arena;
    struct twi_limit_lines *old = twi_load_relaxed(&family->limit_lines), *lines;
    uint32_t threads = twi_epoch_shards(), count = old != NULL ? old->count : 0;
    if (threads > TWI_SHARD_ASIDE) threads = TWI_SHARD_ASIDE;
    if (threads <= count) return;
    uint32_t piece = twi_arena_round(1 + (threads > 2 * count ? threads : 2 * count)),
             line = twi_arena_take(arena, piece);
    if (line == 0) return; /* all threads keep using the shared line */
    lines = twi_arena_at(arena, line);
    lines->count = piece - 1 < TWI_SHARD_ASIDE ? piece - 1 : TWI_SHARD_ASIDE;
    lines->lines = piece;
    lines->older = old != NULL ? twi_arena_line(arena, old) : 0;
    twi_store_release(&family->limit_lines, lines); /* S1, pairs with S2 */
}

void twi_limit_stats_free(struct tw_family *family) {
    twi_check_dear(twi_load_relaxed(&family->requests.close_requested) || family->engine->turn.closing);
    struct twi_limit_lines *lines = twi_load_relaxed(&family->limit_lines);
    twi_store_relaxed(&family->limit_lines, NULL);
    while (lines != NULL) {
        struct twi_limit_lines *older = older_lines(family, lines);
        struct twi_arena *arena = &family->engine->arena;
        twi_arena_give(arena, twi_arena_line(arena, lines), lines->lines);
        lines = older;
    }
}

/* ---- reading ---- */

static void add_shard(const struct twi_limit_shard *shard, struct twi_limit_stats *sum) {
    int64_t here = twi_load_relaxed(&shard->admitted); /* relaxed, because statistics need no order */
    sum->admitted_here += here;
    sum->admitted += here + twi_load_relaxed(&shard->admitted_there);
    sum->denied[TW_CAUSE_LIMIT] += twi_load_relaxed(&shard->denied);
    sum->near += twi_load_relaxed(&shard->near);
    sum->shadow_denied += twi_load_relaxed(&shard->shadow_denied);
}

int64_t twi_limit_stats_denied(const struct twi_limit_stats *stats) {
    int64_t sum = 0;
    for (uint32_t cause = 0; cause < TWI_CAUSES; cause++) sum += stats->denied[cause];
    return sum;
}

void twi_limit_stats_add(const struct tw_family *family, struct twi_limit_stats *sum) {
    add_shard(&family->limits_shared.shard, sum);
    struct twi_limit_lines *lines = twi_load_acquire(&family->limit_lines); /* S2 */
    for (; lines != NULL; lines = older_lines(family, lines))
        for (uint32_t i = 0; i < lines->count; i++) add_shard(&lines->shards[i], sum);
    for (uint32_t cause = 0; cause < TWI_CAUSES; cause++)
        sum->denied[cause] += twi_load_relaxed(&family->limits_shared.denied_for[cause]);
    for (uint32_t i = 0; i < TWI_OVERSHOOT_BUCKETS; i++)
        sum->overshoots[i] += twi_load_relaxed(&family->overshoot.overshoots[i]);
    sum->overshoot_ppm += twi_load_relaxed(&family->overshoot.overshoot_ppm);
}

void twi_limit_stats_read(tw_engine *engine, tw_stats *stats) {
    struct twi_limit_stats sum = {0};
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        twi_limit_stats_add(family, &sum);
    stats->increments += sum.admitted_here;
    stats->limit_admitted += sum.admitted;
    stats->limit_denied += twi_limit_stats_denied(&sum);
    stats->limit_near += sum.near;
    stats->limit_shadow_denied += sum.shadow_denied;
}

void twi_limit_stats_keep(struct tw_family *family) {
    twi_check_dear(twi_load_relaxed(&family->requests.close_requested));
    struct twi_limit_stats sum = {0};
    tw_engine *engine = family->engine;
    twi_limit_stats_add(family, &sum);
    twi_port_count(engine, increments, sum.admitted_here);
    twi_port_count(engine, limit_admitted, sum.admitted);
    twi_port_count(engine, limit_denied, twi_limit_stats_denied(&sum));
    twi_port_count(engine, limit_near, sum.near);
    twi_port_count(engine, limit_shadow_denied, sum.shadow_denied);
}

void twi_limit_stats_clear(struct tw_family *family) {
    memset((void *)&family->limits_shared, 0, sizeof family->limits_shared);
    twi_store_relaxed(&family->limit_lines, NULL); /* it was in the parent's arena */
    for (uint32_t i = 0; i < TWI_OVERSHOOT_BUCKETS; i++) twi_store_relaxed(&family->overshoot.overshoots[i], 0);
    twi_store_relaxed(&family->overshoot.overshoot_ppm, 0);
}

/* ---- by family ---- */

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct twi_family_limit_stats *)a)->name, ((const struct twi_family_limit_stats *)b)->name);
}

/* A family that is being closed no longer owns its name, because another family may have that name by now. */
static size_t list_families(struct twi_roster *roster, struct twi_family_limit_stats *list) {
    size_t count = 0;
    for (struct tw_family *family = twi_load_acquire(&roster->first); family != NULL;
         family = twi_load_acquire(&family->entry.next)) {
        struct twi_family_limit_stats *totals = &list[count];
        if (twi_load_relaxed(&family->requests.close_requested)) continue;
        memset(totals, 0, sizeof *totals);
        twi_limit_stats_add(family, &totals->limits);
        if (totals->limits.admitted == 0 && twi_limit_stats_denied(&totals->limits) == 0 &&
            totals->limits.shadow_denied == 0)
            continue;
        totals->is_measured = twi_overshoot_is_measured(family);
        memcpy(totals->name, family->options.name, strnlen(family->options.name, sizeof totals->name - 1));
        count++;
    }
    return count;
}

bool twi_limit_stats_list(tw_engine *engine, struct twi_family_limit_stats **list, size_t *count) {
    twi_lock(&engine->roster.lock); /* under this lock no family is removed or added */
    *list = calloc(twi_load_relaxed(&engine->roster.count) + (size_t)1, sizeof **list);
    *count = *list != NULL ? list_families(&engine->roster, *list) : 0;
    twi_unlock(&engine->roster.lock);
    if (*list != NULL) qsort(*list, *count, sizeof **list, compare_names);
    return *list != NULL;
}
