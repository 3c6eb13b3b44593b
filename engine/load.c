/* load.c -- see port/save.h: the counters of a file are counted, by tw_load().
 * Counters of windows that accept counts are added as tw_add_at() adds them. A window that only a sliding limit looks
 * at accepts none. It is built unseen, and joins the family when all counters are loaded, as a window whose closing
 * hook has had it: the process that counted it has called the hook.
 * Always true: no other call counts in these families meanwhile, as the header demands. So what they have when an error
 * ends the loading was added here, and is taken back. A window that ends meanwhile is over for the file, too. */
#include "engine/save.h"

#include "engine/base/grow.h"
#include "engine/base/lock.h"
#include "engine/core/roster.h"
#include "engine/core/window_map.h"
#include "engine/count/api.h"
#include "engine/count/call.h"

#include <stdlib.h>

#define HIDDEN_FIRST 8u

struct twi_loading {
    tw_engine *engine;
    struct twi_held_families held;  /* by their numbers in the file */
    struct twi_generation **hidden; /* windows that are built unseen */
    uint32_t hidden_count, hidden_room;
    /* the window of the next counters */
    tw_family *family;
    int64_t start_ms;
    enum twi_saved_fate fate;
    struct twi_generation *unseen; /* TWI_SAVED_PREVIOUS: its window among `hidden`; NULL before its first counter */
    bool adds;                     /* counts have been added */
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
    return TW_OK;
}

static void note_counted(void *ctx, struct twi_generation *generation) {
    bool *has_counted = ctx;
    int64_t overflow = twi_cell_local(&generation->overflow, twi_load_relaxed(&generation->overflow.meta));
    *has_counted = *has_counted || twi_load_relaxed(&generation->keys) != 0 || overflow != 0;
}

static bool has_counted(tw_family *family) {
    bool answer = false;
    twi_section_enter(twi_thread_self);
    twi_window_visit(family, note_counted, &answer);
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

tw_status twi_load_window(struct twi_loading *loading, uint32_t family, int64_t start_ms) {
    if (family >= loading->held.count) return twi_refuse(TW_ERR_OPTIONS, "a window of no family");
    loading->family = loading->held.list[family];
    loading->start_ms = start_ms;
    const struct twi_window_rule *rule = &loading->family->rule;
    int64_t now_ms = twi_clock_read(&loading->engine->clock);
    int64_t ahead_ms = twi_load_relaxed(&loading->family->policy.earliness_ms);
    const char *name = loading->family->options.name;
    if (twi_calendar_span(rule, start_ms).start_ms != start_ms)
        return twi_refuse_with(TW_ERR_OPTIONS, "family \"%s\" has no window that begins then", name);
    if (start_ms > now_ms && twi_time_add(now_ms, ahead_ms) < start_ms)
        return twi_refuse_with(TW_ERR_EARLY,
                               "family \"%s\" has counts further ahead of the engine's clock than "
                               "earliness_ms: was the clock set back?",
                               name);
    loading->fate = twi_saved_fate(loading->family, start_ms);
    loading->unseen = NULL;
    for (uint32_t i = 0; i < loading->hidden_count; i++)
        if (loading->hidden[i]->family == loading->family && loading->hidden[i]->start_ms == start_ms)
            loading->unseen = loading->hidden[i];
    return TW_OK;
}

tw_status twi_load_check(struct twi_loading *loading, tw_key key, int64_t count) {
    if (loading->family == NULL) return twi_refuse(TW_ERR_OPTIONS, "a counter of no window");
    if (count > TW_COUNT_MAX || count < -TW_COUNT_MAX) return twi_refuse(TW_ERR_OPTIONS, "a count out of range");
    if (key.size == 0 || twi_call_check_key(loading->family, key) == TW_OK) return TW_OK;
    return twi_refuse_with(TW_ERR_KEY, "family \"%s\" cannot have a key of the file (redis_shape, fields)",
                           loading->family->options.name);
}

/* ---- counting ---- */

/* Its window has ended. */
static tw_status skip(struct twi_loading *loading) {
    twi_port_count(loading->engine, load_skipped, 1);
    return TW_OK;
}

static tw_status add_counter(struct twi_loading *loading, tw_key key, int64_t count) {
    struct twi_call call;
    int64_t seen;
    tw_family *family = loading->family;
    tw_status status = family->kind.has_starts
                           ? twi_call_begin_at(&call, family, key, twi_saved_moment(loading->start_ms))
                           : twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    call.without_sum = true;
    status = twi_add_call(&call, count, &seen);
    twi_call_end(&call);
    if (status == TW_OVERFLOWED) loading->overflowed = true;
    return status == TW_ERR_LATE ? skip(loading) : status < 0 ? status : TW_OK;
}

/* Inside a section. */
static tw_status count_in(struct twi_loading *loading, struct twi_cell *cell, uint64_t meta, int64_t count) {
    uint64_t before;
    switch (twi_cell_add(cell, meta, count, &before)) {
    case TWI_ADD_FROZEN: return skip(loading);
    case TWI_ADD_RANGE: return twi_refuse_for(TWI_WHY_SUM);
    default: return TW_OK;
    }
}

static tw_status add_to_overflow(struct twi_loading *loading, struct twi_generation *generation, int64_t count) {
    return count_in(loading, &generation->overflow, twi_load_relaxed(&generation->overflow.meta), count);
}

static tw_status add_overflow(struct twi_loading *loading, int64_t count) {
    tw_family *family = loading->family;
    tw_status status;
    twi_section_enter(twi_thread_self);
    struct twi_generation *generation = twi_window_open(family, twi_calendar_span(&family->rule, loading->start_ms), 0);
    twi_fence_seqcst(); /* N2, pairs with N5, as in twi_place_make(): the window may have ended and be gone */
    if (generation == NULL)
        status = twi_refuse_for(TWI_WHY_FULL);
    else if (twi_saved_fate(family, loading->start_ms) != TWI_SAVED_OPEN)
        status = skip(loading);
    else
        status = add_to_overflow(loading, generation, count);
    twi_section_leave(twi_thread_self);
    return status;
}

static bool is_always_current(void *ctx) {
    (void)ctx;
    return true;
}

/* Makes the window that no other thread can reach. Returns false if there is no memory. */
static bool make_unseen(struct twi_loading *loading) {
    if (!twi_grow(&loading->hidden, sizeof(struct twi_generation *), &loading->hidden_room,
                  (size_t)loading->hidden_count + 1, HIDDEN_FIRST))
        return false;
    struct twi_span span = twi_calendar_span(&loading->family->rule, loading->start_ms);
    loading->unseen = twi_window_make(loading->family, span, 0);
    if (loading->unseen == NULL) return false;
    loading->hidden[loading->hidden_count++] = loading->unseen;
    return true;
}

static tw_status add_unseen(struct twi_loading *loading, tw_key key, int64_t count) {
    tw_engine *engine = loading->engine;
    struct twi_cell *cell;
    if (loading->unseen == NULL && !make_unseen(loading)) return twi_refuse_for(TWI_WHY_FULL);
    if (key.size == 0) return add_to_overflow(loading, loading->unseen, count);
    struct twi_insert insert = {
        .arena = &engine->arena,
        .generation = loading->unseen,
        .self = twi_thread_self,
        .lookup = twi_lookup_key(engine->hashing.fn(&engine->hashing.secret, key.data, key.size), key),
        .vacancy = TWI_NO_VACANCY};
    enum twi_found found = twi_table_insert(&insert, is_always_current, NULL, &cell);
    if (found == TWI_FOUND || found == TWI_INSERTED) return count_in(loading, cell, twi_cell_publish(cell), count);
    if (twi_load_relaxed(&loading->family->policy.on_full) == TW_ON_FULL_REJECT) return twi_refuse_for(TWI_WHY_FULL);
    loading->overflowed = true;
    return add_to_overflow(loading, loading->unseen, count);
}

tw_status twi_load_add(struct twi_loading *loading, tw_key key, int64_t count) {
    twi_check(loading->family != NULL);
    loading->adds = true;
    if (loading->fate == TWI_SAVED_OVER) return skip(loading);
    if (loading->fate == TWI_SAVED_OPEN)
        return key.size != 0 ? add_counter(loading, key, count) : add_overflow(loading, count);
    twi_section_enter(twi_thread_self);
    tw_status status = add_unseen(loading, key, count);
    twi_section_leave(twi_thread_self);
    return status;
}

/* ---- the end ---- */

/* A family that was open before that window ended may hold it, without counts. Then there is no place for this one. */
static void show_hidden(struct twi_loading *loading) {
    twi_section_enter(twi_thread_self);
    for (uint32_t i = 0; i < loading->hidden_count; i++) {
        loading->hidden[i]->turn.hook_done = true;
        if (twi_window_publish(loading->hidden[i]->family, loading->hidden[i]))
            loading->hidden[i] = NULL;
        else
            twi_port_count(loading->engine, load_skipped, (int64_t)twi_load_relaxed(&loading->hidden[i]->keys));
    }
    twi_section_leave(twi_thread_self);
}

/* Those that the family has not got. */
static void free_hidden(struct twi_loading *loading) {
    for (uint32_t i = 0; i < loading->hidden_count; i++) {
        uint32_t work = UINT32_MAX;
        if (loading->hidden[i] != NULL) (void)twi_table_unmake(&loading->engine->arena, loading->hidden[i], &work);
    }
    free(loading->hidden);
}

static bool take_back(void *ctx, const tw_count *count) {
    struct twi_loading *loading = ctx;
    if (count->local != 0) (void)twi_load_add(loading, count->key, -count->local);
    return true;
}

static void take_all_back(struct twi_loading *loading) {
    struct twi_why why = twi_why_now();
    for (uint32_t number = 0; number < loading->held.count; number++) {
        struct twi_saved_windows windows;
        bool has_memory = twi_saved_windows(loading->held.list[number], &windows);
        for (uint32_t i = 0; has_memory && i < windows.count; i++)
            if (twi_load_window(loading, number, windows.starts[i]) == TW_OK && loading->fate == TWI_SAVED_OPEN)
                (void)tw_each(loading->family, twi_saved_moment(loading->start_ms), take_back, loading);
        free(windows.starts);
    }
    twi_why_restore(why);
}

tw_status twi_load_end(struct twi_loading *loading, tw_status status) {
    if (status >= 0)
        show_hidden(loading);
    else if (loading->adds)
        take_all_back(loading);
    if (status == TW_OK && loading->overflowed) status = TW_OVERFLOWED;
    free_hidden(loading);
    twi_saved_let_go(&loading->held);
    free(loading);
    return status;
}
