/* limit_stats.c -- see limit_stats.h. */
#include "engine/limit/limit_stats.h"

#include "engine/base/threads.h"
#include "engine/core/agenda.h"
#include "engine/core/store_map.h"

#include <stdlib.h>

/* ---- overshoot ---- */

/* how many intervals after sealing the counts of the other engines are in Redis, if they arrive at all */
#define SETTLED_INTERVALS 2
#define PATIENCE_MS INT64_C(5000) /* after that time, the turn waits for a total for this long */
#define RATIO_MAX 1000            /* a greater ratio is added to the sum as this value */

const char *const twi_overshoot_bounds[TWI_OVERSHOOT_BUCKETS] = {"0.0", "0.001", "0.003", "0.01", "0.03",
                                                                 "0.1", "0.3",   "1.0",   "+Inf"};
static const double bounds[TWI_OVERSHOOT_BUCKETS - 1] = {0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1};

/* ---- callers ---- */

static uint64_t name_of(const struct twi_arena *arena, const struct twi_generation *generation,
                        const struct twi_cell *cell) {
    return (uint64_t)twi_arena_line(arena, generation) << 32 | twi_arena_line(arena, cell);
}

void twi_overshoot_note(struct tw_family *family, struct twi_generation *generation, struct twi_cell *cell,
                        int64_t limit) {
    twi_check(limit > 0 && twi_overshoot_is_measured(family));
    tw_engine *engine = family->engine;
    uint64_t own = name_of(&engine->arena, generation, cell);
    struct twi_note *note = &engine->notes[(uint32_t)own % TWI_NOTES];
    uint64_t of = twi_load_acquire(&note->of); /* O1, pairs with O2 */
    if (of != 0 && of != own) return;
    /* The note keeps the greatest limit of all calls, because each caller was promised at most its own limit. */
    int64_t noted = of == own ? twi_load_relaxed(&note->limit) : 0;
    if (noted >= limit) return;
    void *outer = twi_marking_begin(twi_thread_self, engine, generation, cell);
    /* While a thread writes the note, the note has the number of the thread. No line of a generation is 0. */
    if (twi_cas_acqrel(&note->of, &of, twi_thread_any_number(twi_thread_self))) {
        TWI_RACE_POINT(note_taken_not_written);
        twi_store_relaxed(&note->limit, limit);
        twi_store_release(&note->of, own); /* O2 */
    }
    twi_marking_end(twi_thread_self, outer);
}

/* ---- the turn ---- */

struct looked {
    uint32_t notes, unknown, busy;
};

static struct twi_cell *cell_of(const struct twi_arena *arena, uint64_t of) {
    return twi_arena_at(arena, (uint32_t)of);
}
static bool is_of(const struct twi_arena *arena, uint64_t of, const struct twi_generation *generation) {
    return of >> 32 == twi_arena_line(arena, generation);
}

static int64_t settled_ms(const tw_engine *engine, const struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) >= TWI_SEALED);
    return generation->turn.sealed_mono_ms + SETTLED_INTERVALS * (int64_t)engine->options.sync_interval_ms;
}

static bool is_known(const tw_engine *engine, const struct twi_generation *generation, struct twi_cell *cell) {
    int64_t total_state = twi_load_relaxed(&twi_cell_cold(cell, twi_load_relaxed(&cell->meta))->total_state);
    return total_state != 0 && twi_total_state_ms(total_state) >= settled_ms(engine, generation);
}

/* Examines the notes of a generation. `is_settled` means that enough time has passed for all totals to arrive. The
 * function then expects no total from a store that is unreachable. If `requests` is true, the function marks the
 * unknown totals for a request. */
static struct looked look_at_notes(tw_engine *engine, struct twi_generation *generation, bool is_settled,
                                   bool requests) {
    struct looked looked = {0};
    for (uint32_t i = 0; i < TWI_NOTES; i++) {
        struct twi_note *note = &engine->notes[i];
        uint64_t of = twi_load_acquire(&note->of); /* O1 */
        if (!is_of(&engine->arena, of, generation)) continue;
        looked.notes++;
        struct twi_cell *cell = cell_of(&engine->arena, of);
        if (is_known(engine, generation, cell)) continue;
        if (is_settled && twi_store_away_since(engine, generation, cell) != 0) continue;
        looked.unknown++;
        if (requests && engine->turn.mono_ms >= note->request_again_ms) note->requests = true;
        if (note->requests) (void)twi_swap_acqrel(&engine->near_ring.any, true); /* Q3 */
    }
    return looked;
}

static void observe(struct tw_family *family, int64_t total, int64_t limit) {
    twi_check(limit > 0);
    int64_t over = total > limit ? total - limit : 0; /* totals and limits are within 2^61 */
    double ratio = (double)over / (double)limit;
    uint32_t bucket = 0;
    while (bucket < TWI_OVERSHOOT_BUCKETS - 1 && ratio > bounds[bucket]) bucket++;
    int64_t ppm = (int64_t)((ratio < RATIO_MAX ? ratio : RATIO_MAX) * 1e6 + 0.5);
    twi_store_relaxed(&family->overshoot.overshoots[bucket],
                      twi_load_relaxed(&family->overshoot.overshoots[bucket]) + 1);
    twi_store_relaxed(&family->overshoot.overshoot_ppm, twi_load_relaxed(&family->overshoot.overshoot_ppm) + ppm);
    twi_port_count(family->engine, limit_measured, 1);
    if (over != 0) twi_port_count(family->engine, limit_overshot, 1);
}

static void let_go(struct twi_note *note) {
    twi_check(twi_load_relaxed(&note->of) != 0);
    note->requests = false;
    note->request_again_ms = 0;
    twi_store_release(&note->of, 0); /* O2 */
}

/* Nobody knows whether its limit was already written. The next call near the limit makes a note again. */
void twi_overshoot_heal(tw_engine *engine, const struct twi_generation *generation, const struct twi_cell *cell,
                        uint32_t number) {
    struct twi_note *note = &engine->notes[(uint32_t)name_of(&engine->arena, generation, cell) % TWI_NOTES];
    if (twi_load_acquire(&note->of) == number) let_go(note); /* O1 */
}

/* Redis's total contains the units of this engine that Redis had acknowledged at that time, and the units that the
 * other engines had sent. */
static void observe_all(tw_engine *engine, struct twi_generation *generation) {
    twi_check(twi_generation_is_drained(generation));
    for (uint32_t i = 0; i < TWI_NOTES; i++) {
        struct twi_note *note = &engine->notes[i];
        uint64_t of = twi_load_acquire(&note->of); /* O1 */
        if (!is_of(&engine->arena, of, generation)) continue;
        struct twi_cell *cell = cell_of(&engine->arena, of);
        struct twi_cold *cold = twi_cell_cold(cell, twi_load_relaxed(&cell->meta));
        int64_t total = twi_saturated_sum(twi_load_relaxed(&cell->base), twi_load_relaxed(&cold->acked));
        if (is_known(engine, generation, cell)) observe(generation->family, total, twi_load_relaxed(&note->limit));
        let_go(note);
    }
}

bool twi_overshoot_measure(tw_engine *engine, struct twi_generation *generation, bool ends) {
    twi_check(twi_load_relaxed(&generation->phase) == TWI_DRAINED);
    if (!twi_overshoot_is_measured(generation->family)) return true;
    int64_t over_ms = engine->turn.mono_ms - settled_ms(engine, generation);
    bool gives_up = ends || over_ms >= PATIENCE_MS;
    struct looked looked = look_at_notes(engine, generation, over_ms >= 0, over_ms >= 0 && !gives_up);
    if (looked.notes == 0) return true;
    if (looked.unknown != 0 && !gives_up) return false;
    if (!twi_generation_is_drained(generation)) return false; /* a request is under way, or was returned */
    observe_all(engine, generation);
    return true;
}

size_t twi_overshoot_requests(tw_engine *engine, struct twi_item *items, size_t room) {
    twi_check(room <= TWI_NEAR_LIMIT_MAX);
    size_t count = 0;
    for (uint32_t i = 0; i < TWI_NOTES; i++) {
        struct twi_note *note = &engine->notes[i];
        if (!note->requests) continue;
        if (count == room) {
            (void)twi_swap_acqrel(&engine->near_ring.any, true); /* Q3: the next call takes the other notes */
            break;
        }
        uint64_t of = twi_load_acquire(&note->of); /* O1 */
        note->requests = false;
        if (of >> 32 == 0) continue;
        struct twi_generation *generation = twi_arena_at(&engine->arena, (uint32_t)(of >> 32));
        if (twi_load_relaxed(&generation->phase) != TWI_DRAINED)
            continue; /* otherwise the table may already be freed (windows.c) */
        note->request_again_ms = engine->turn.mono_ms + engine->options.sync_interval_ms + 1;
        items[count++] = (struct twi_item){.family = generation->family,
                                           .generation = generation,
                                           .cell = cell_of(&engine->arena, of),
                                           .expiry_ms = generation->expiry_ms,
                                           .flags = generation->family->kind.item_flags};
        generation->turn.outstanding++;
    }
    return count;
}

void twi_overshoot_forget(tw_engine *engine, const struct twi_generation *generation) {
    if (!twi_overshoot_is_measured(generation->family)) return;
    for (uint32_t i = 0; i < TWI_NOTES; i++)
        if (is_of(&engine->arena, twi_load_acquire(&engine->notes[i].of), generation))
            let_go(&engine->notes[i]); /* O1 */
}

void twi_overshoot_clear(tw_engine *engine) {
    memset(engine->notes, 0, sizeof engine->notes);
}

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

void twi_limit_stats_count_uncounted(tw_family *family, const struct twi_thread *self) {
    if (self->shard != TWI_SHARD_ASIDE) (void)twi_add_relaxed(&family->limits_shared.uncounted, 1);
}

tw_status twi_limit_when_full(tw_family *family, const struct twi_thread *self, int64_t n) {
    if (self->must_count || twi_load_relaxed(&family->policy.on_full_limit) != TW_FULL_LIMIT_ADMIT)
        return twi_refuse_for(TWI_WHY_FULL);
    if (n != 0) twi_limit_stats_count_uncounted(family, self);
    return TW_OK;
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
    sum->uncounted += twi_load_relaxed(&family->limits_shared.uncounted);
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
            totals->limits.shadow_denied == 0 && totals->limits.uncounted == 0)
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
