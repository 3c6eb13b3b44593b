/* load.c -- see port/extras.h: the counters of a file are counted, by tw_load().
 * A window of the file is built unseen, and joins its family when all counters are loaded. If the family holds the
 * window already, empty (keys_expected), the counts go there while it can take them; an empty window that cannot any
 * more gives its place up. A window whose time is over is reported by the next turn, as any other; one that the process
 * before has reported as final is there for a sliding limit alone.
 * Always true: this thread owns the turn from begin to end, so no window ends meanwhile, and no other call counts in
 * these families, as the header demands. So what they have when an error ends the loading was added here, and is taken
 * back: then no count has changed, and the file can be loaded again. */
#include "engine/save.h"

#include "engine/base/grow.h"
#include "engine/base/threads.h"
#include "engine/core/roster.h"
#include "engine/core/window_map.h"
#include "engine/count/api.h"
#include "engine/count/call.h"
#include "engine/table/spill.h"
#include "engine/turn/rollover.h"
#include "engine/turn/turn.h"

#include <stdlib.h>

#define TARGETS_FIRST 8u
#define NO_TARGET UINT32_MAX

/* A window that takes counters of the file. */
struct target {
    struct twi_generation *generation;
    bool is_unseen; /* the family has not got it yet */
    bool is_final;  /* no hook gets it any more */
};

struct twi_loading {
    tw_engine *engine;
    struct twi_held_families held; /* by their numbers in the file */
    struct target *targets;
    uint32_t target_count, target_room;
    /* the window of the next counters */
    tw_family *family;
    int64_t start_ms;
    enum twi_saved_fate fate;
    bool is_final;
    bool is_ahead;   /* further than earliness_ms */
    uint32_t target; /* NO_TARGET before its first counter */
    bool overflowed;
};

/* ---- checking ---- */

tw_status twi_load_begin(tw_engine *engine, struct twi_loading **loading) {
    twi_check(engine != NULL && loading != NULL);
    tw_status status = twi_saved_may(engine);
    if (status != TW_OK) return status;
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    *loading = calloc(1, sizeof **loading);
    if (*loading == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    (*loading)->engine = engine;
    status = twi_saved_take_turn(engine);
    if (status == TW_OK) return TW_OK;
    free(*loading);
    *loading = NULL;
    return status;
}

static bool is_untouched(void *ctx, struct twi_cell *cell, uint64_t meta) {
    bool *has_counted = ctx;
    *has_counted = (meta & TWI_META_STRIPED) != 0 || twi_cell_local(cell, meta) != 0;
    return !*has_counted;
}

static void note_counted(void *ctx, struct twi_generation *generation) {
    bool *has_counted = ctx;
    struct twi_cursor cursor = {0};
    bool has_keys = twi_load_relaxed(&generation->keys) != 0;
    if (twi_cell_local(&generation->overflow, twi_load_relaxed(&generation->overflow.meta)) != 0 ||
        (has_keys && twi_generation_is_packed(generation)))
        *has_counted = true;
    if (!*has_counted && has_keys)
        twi_table_walk(&generation->family->engine->arena, generation, &cursor, is_untouched, has_counted);
}

/* Keys with the count 0 are no counts. A load that failed may have left some. */
static bool has_counted(tw_family *family) {
    bool answer = twi_load_relaxed(&family->marks.had_counts);
    twi_section_enter(twi_thread_self);
    if (!answer) twi_window_visit(family, note_counted, &answer);
    twi_section_leave(twi_thread_self);
    return answer;
}

static tw_status check_alike(const tw_family *family, const struct twi_saved_family *saved) {
    struct twi_saved_family here;
    twi_saved_describe(family, &here);
    for (size_t i = 0; i < TWI_SAVED_FIELDS; i++)
        if (here.fields[i] != saved->fields[i])
            return twi_refuse_with(TW_ERR_OPTIONS, "%s: family \"%s\" has %lld, and had %lld when it was saved",
                                   twi_saved_names[i], saved->name, (long long)here.fields[i],
                                   (long long)saved->fields[i]);
    return TW_OK;
}

static tw_status hold_family(struct twi_loading *loading, const char *name) {
    tw_status status = TW_OK;
    twi_lock(&loading->engine->roster.lock);
    tw_family *family = twi_roster_find(loading->engine, name);
    if (family == NULL)
        status = twi_refuse_with(TW_ERR_OPTIONS, "family \"%s\" was saved, and is not open", name);
    else if (!twi_saved_hold(&loading->held, family))
        status = twi_refuse(TW_ERR_MEMORY, NULL);
    twi_unlock(&loading->engine->roster.lock);
    return status;
}

tw_status twi_load_family(struct twi_loading *loading, const struct twi_saved_family *saved) {
    twi_check(memchr(saved->name, '\0', sizeof saved->name) != NULL);
    tw_status status = hold_family(loading, saved->name);
    if (status != TW_OK) return status;
    tw_family *family = loading->held.list[loading->held.count - 1];
    status = check_alike(family, saved);
    if (status != TW_OK || !has_counted(family)) return status;
    return twi_refuse_with(TW_ERR_MODE, "family \"%s\" has counted already: tw_load() comes before all counts",
                           saved->name);
}

tw_status twi_load_window(struct twi_loading *loading, uint32_t family, int64_t start_ms,
                          enum twi_saved_report report) {
    if (family >= loading->held.count) return twi_refuse(TW_ERR_OPTIONS, "a window of no family");
    loading->family = loading->held.list[family];
    loading->start_ms = start_ms;
    int64_t now_ms = twi_clock_read(&loading->engine->clock);
    int64_t ahead_ms = twi_load_relaxed(&loading->family->policy.earliness_ms);
    if (twi_calendar_span(&loading->family->rule, start_ms).start_ms != start_ms)
        return twi_refuse_with(TW_ERR_OPTIONS, "family \"%s\" has no window that begins then",
                               loading->family->options.name);
    loading->is_ahead = start_ms > now_ms && twi_time_add(now_ms, ahead_ms) < start_ms;
    loading->fate = twi_saved_fate(loading->family, start_ms, report == TWI_REPORTED);
    bool is_reported = report == TWI_REPORTED || (report == TWI_REPORT_UNKNOWN && loading->family->kind.slides);
    loading->is_final = is_reported && loading->fate != TWI_SAVED_OPEN; /* else the clock was set back */
    loading->target = NO_TARGET;
    for (uint32_t i = 0; i < loading->target_count; i++) {
        const struct twi_generation *generation = loading->targets[i].generation;
        if (generation->family == loading->family && generation->start_ms == start_ms) loading->target = i;
    }
    return TW_OK;
}

tw_status twi_load_check(struct twi_loading *loading, tw_key key, int64_t count) {
    if (loading->family == NULL) return twi_refuse(TW_ERR_OPTIONS, "a counter of no window");
    if (count > TW_COUNT_MAX || count < -TW_COUNT_MAX) return twi_refuse(TW_ERR_OPTIONS, "a count out of range");
    const char *name = loading->family->options.name;
    if (loading->is_ahead)
        return twi_refuse_with(TW_ERR_EARLY,
                               "family \"%s\" has counts further ahead of the engine's clock than "
                               "earliness_ms: was the clock set back?",
                               name);
    if (key.size == 0 || twi_call_check_key(loading->family, key) == TW_OK) return TW_OK;
    return twi_refuse_with(TW_ERR_KEY, "family \"%s\" cannot have a key of the file (redis_shape, fields)", name);
}

/* ---- counting, inside a section ---- */

static tw_status count_in(struct twi_cell *cell, uint64_t meta, int64_t count) {
    uint64_t before;
    switch (twi_cell_add(cell, meta, count, &before)) {
    case TWI_ADD_FROZEN: return twi_refuse(TW_ERR_MODE, "other calls count in the families of the file meanwhile");
    case TWI_ADD_RANGE: return twi_refuse_for(TWI_WHY_SUM);
    default: return TW_OK;
    }
}

static tw_status add_to_overflow(struct twi_generation *generation, int64_t count) {
    return count_in(&generation->overflow, twi_load_relaxed(&generation->overflow.meta), count);
}

/* There is no room for the key. */
static tw_status overflow(struct twi_loading *loading, const struct twi_insert *insert, int64_t count) {
    tw_engine *engine = loading->engine;
    if (twi_load_relaxed(&loading->family->policy.on_full) == TW_ON_FULL_REJECT) return twi_refuse_for(TWI_WHY_FULL);
    tw_status status = add_to_overflow(insert->generation, count);
    if (status != TW_OK) return status;
    loading->overflowed = true;
    twi_port_count(engine, overflow_increments, 1);
    if (!twi_spill_add(&engine->arena, insert->generation, &insert->lookup, insert->self->shard, count))
        twi_port_count(engine, overflow_sketches_refused, 1);
    return TW_OK;
}

static bool is_always_current(void *ctx) {
    (void)ctx;
    return true;
}

static tw_status add(struct twi_loading *loading, struct twi_generation *generation, tw_key key, int64_t count) {
    tw_engine *engine = loading->engine;
    struct twi_cell *cell;
    if (key.size == 0) return add_to_overflow(generation, count);
    struct twi_insert insert = {
        .arena = &engine->arena,
        .generation = generation,
        .self = twi_thread_self,
        .lookup = twi_lookup_key(engine->hashing.fn(&engine->hashing.secret, key.data, key.size), key),
        .vacancy = TWI_NO_VACANCY};
    enum twi_found found = twi_table_insert(&insert, is_always_current, NULL, &cell);
    tw_status status = found == TWI_FOUND || found == TWI_INSERTED ? count_in(cell, twi_cell_publish(cell), count)
                                                                   : overflow(loading, &insert, count);
    if (status == TW_OK) (void)twi_count_increments(engine, twi_thread_self, 1);
    return status;
}

/* Returns the window that takes the counters, or NULL if there is no memory. */
static struct twi_generation *target_of(struct twi_loading *loading) {
    if (loading->target != NO_TARGET) return loading->targets[loading->target].generation;
    if (!twi_grow(&loading->targets, sizeof *loading->targets, &loading->target_room, (size_t)loading->target_count + 1,
                  TARGETS_FIRST))
        return NULL;
    struct twi_span span = twi_calendar_span(&loading->family->rule, loading->start_ms);
    struct target target = {.is_final = loading->is_final,
                            .generation = twi_window_find(loading->family, span.start_ms)};
    if (target.generation == NULL || twi_load_relaxed(&target.generation->phase) >= TWI_SEALING) {
        target.is_unseen = true;
        target.generation = twi_window_make(loading->family, span, 0);
    }
    if (target.generation == NULL) return NULL;
    loading->target = loading->target_count++;
    loading->targets[loading->target] = target;
    return target.generation;
}

tw_status twi_load_add(struct twi_loading *loading, tw_key key, int64_t count) {
    twi_check(loading->family != NULL);
    if (loading->is_final && loading->fate == TWI_SAVED_OVER) { /* no limit looks at it any more */
        twi_port_count(loading->engine, load_skipped, 1);
        return TW_OK;
    }
    twi_section_enter(twi_thread_self);
    struct twi_generation *generation = target_of(loading);
    tw_status status = generation != NULL ? add(loading, generation, key, count) : twi_refuse_for(TWI_WHY_FULL);
    twi_section_leave(twi_thread_self);
    return status;
}

/* ---- the end ---- */

/* An empty window whose time is over gives its place to the one that was built. */
static tw_status make_way(struct twi_loading *loading) {
    for (uint32_t i = 0; i < loading->target_count; i++) {
        const struct target *target = &loading->targets[i];
        if (!target->is_unseen) continue;
        struct twi_generation *there = twi_window_find(target->generation->family, target->generation->start_ms);
        if (there == NULL) continue;
        if (twi_load_relaxed(&there->phase) < TWI_SEALING)
            return twi_refuse(TW_ERR_MODE, "other calls count in the families of the file meanwhile");
        twi_rollover_take_away(loading->engine, there);
    }
    return TW_OK;
}

static tw_status show_unseen(struct twi_loading *loading) {
    tw_status status = make_way(loading);
    for (uint32_t i = 0; i < loading->target_count && status == TW_OK; i++) {
        struct target *target = &loading->targets[i];
        if (target->is_final) { /* it was final, so nobody counts in it any more, whatever lateness_ms is */
            target->generation->turn.hook_done = true;
            (void)twi_family_raise(&target->generation->family->marks.over_ms, target->generation->end_ms);
        }
        if (!target->is_unseen) continue;
        target->is_unseen = !twi_window_publish(target->generation->family, target->generation);
        if (target->is_unseen) status = twi_refuse_for(TWI_WHY_FULL); /* of the map of windows */
    }
    return status;
}

static bool take_back(void *ctx, struct twi_cell *cell, uint64_t meta) {
    int64_t count = twi_cell_local(cell, meta);
    (void)ctx;
    if (count != 0) (void)count_in(cell, meta, -count);
    return true;
}

/* What the families have got. Inside a section. */
static void take_all_back(struct twi_loading *loading) {
    struct twi_why why = twi_why_now();
    for (uint32_t i = 0; i < loading->target_count; i++) {
        struct twi_generation *generation = loading->targets[i].generation;
        struct twi_cursor cursor = {0};
        if (loading->targets[i].is_unseen) continue;
        twi_table_walk(&loading->engine->arena, generation, &cursor, take_back, NULL);
        (void)take_back(NULL, &generation->overflow, twi_load_relaxed(&generation->overflow.meta));
    }
    twi_why_restore(why);
}

/* Those that the families have not got. */
static void free_unseen(struct twi_loading *loading) {
    for (uint32_t i = 0; i < loading->target_count; i++) {
        uint32_t work = UINT32_MAX;
        if (loading->targets[i].is_unseen)
            (void)twi_table_unmake(&loading->engine->arena, loading->targets[i].generation, &work);
    }
    free(loading->targets);
}

tw_status twi_load_end(struct twi_loading *loading, tw_status status) {
    twi_section_enter(twi_thread_self);
    if (status >= 0) {
        tw_status shown = show_unseen(loading);
        if (shown != TW_OK) status = shown;
    }
    if (status < 0) take_all_back(loading);
    twi_section_leave(twi_thread_self);
    for (uint32_t number = 0; number < loading->held.count && status >= 0; number++)
        twi_store_relaxed(&loading->held.list[number]->marks.had_counts, true);
    if (status == TW_OK && loading->overflowed) status = TW_OVERFLOWED;
    free_unseen(loading);
    twi_turn_leave(loading->engine);
    twi_saved_let_go(&loading->held);
    free(loading);
    return status;
}
