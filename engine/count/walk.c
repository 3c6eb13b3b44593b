/* walk.c -- see walk.h. */
#include "engine/count/walk.h"

#include "engine/core/family.h"
#include "engine/count/lookup.h"
#include "engine/port/extras.h"
#include "engine/table/packed.h"
#include "engine/table/sketch.h"

#include <stdalign.h>

/* how many records are looked at in one section; this takes far less than 5 ms, even if each misses the cache */
#define PIECE_RECORDS 2048u

struct walk {
    const struct twi_walker *walker;
    struct twi_thread *self;
    tw_engine *engine;
    int64_t now_ms;
    bool lives_only; /* in TW_WINDOW_FROM_FIRST families: counters whose lifetime has ended are not shown */
    bool is_split;   /* with idle eviction, a key may be in both generations */
    struct twi_generation *held[2];
    uint32_t packed[2]; /* the packed form that is walked; 0 means that the table is walked */
};

/* The walk through one generation. */
struct walk_part {
    const struct walk *walk;
    struct twi_generation *generation;
    struct twi_cursor cursor; /* the position in the table, and in the packed form */
    struct twi_packed_cursor packed_cursor;
    uint32_t packed_left; /* how many entries this piece may still show */
    /* With idle eviction: the other of the two generations. A key that is in both is shown with the older
     * generation, using the cell of the newer one. The successor may be made after its generation was walked, but
     * the frozen cell existed before. */
    struct twi_generation *newer, *older;
};

static struct twi_cell *same_key_in(struct twi_generation *generation, struct twi_cell *cell, uint64_t meta) {
    tw_engine *engine = generation->family->engine;
    tw_key key = tw_bytes(cell->key, meta & TWI_META_SIZE);
    struct twi_lookup_key lookup = twi_lookup_key(engine->hashing.fn(&engine->hashing.secret, key.data, key.size), key);
    return twi_table_find(&engine->arena, generation, &lookup);
}

static tw_count count_in(struct twi_generation *generation, tw_key key, int64_t view, int64_t local) {
    return (tw_count){.key = key,
                      .view = view,
                      .local = local,
                      .start_ms = twi_generation_start_ms(generation),
                      .end_ms = twi_generation_end_ms(generation)};
}

/* Returns the count of this process. An estimate takes as long as looking at several records. */
static int64_t local_of(struct walk_part *part, struct twi_cell *cell, uint64_t meta) {
    if (!part->generation->family->kind.is_distinct) return twi_cell_local(cell, meta);
    uint32_t work = twi_sketch_lines(cell) / 2;
    part->cursor.looks = part->cursor.looks > work ? part->cursor.looks - work : 1;
    return twi_sketch_estimate(&part->walk->engine->arena, cell, meta);
}

static bool take_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct walk_part *part = ctx;
    const struct walk *walk = part->walk;
    if (part->older != NULL && same_key_in(part->older, cell, meta) != NULL) return true;
    struct twi_cell *successor = part->newer != NULL ? same_key_in(part->newer, cell, meta) : NULL;
    if (successor != NULL) {
        cell = successor;
        meta = twi_cell_publish(successor);
    }
    int64_t local = local_of(part, cell, meta);
    tw_count count =
        count_in(part->generation, tw_bytes(cell->key, meta & TWI_META_SIZE), twi_view_of(cell, meta, local), local);
    if (walk->lives_only) {
        count.end_ms = twi_load_relaxed(&cell->end_ms);
        if (count.end_ms <= walk->now_ms) return true;
    }
    if (walk->walker->take(walk->walker->ctx, &count)) return true;
    part->cursor.index--; /* the next piece shows this counter again */
    return false;
}

static bool take_final(void *ctx, tw_key key, struct twi_final final) {
    struct walk_part *part = ctx;
    if (part->packed_left == 0) return false;
    tw_count count = count_in(part->generation, key, twi_saturated_sum(final.local, final.base), final.local);
    if (!part->walk->walker->take(part->walk->walker->ctx, &count)) return false;
    part->packed_left--;
    return true;
}

/* Returns false if the visitor ends the walk. Also returns false in a child that the visitor has forked, because the
 * window does not exist there. */
static bool walk_part(struct walk_part *part, uint32_t packed) {
    const struct walk *walk = part->walk;
    const struct twi_walker *walker = walk->walker;
    while (!part->cursor.done && !part->packed_cursor.done) {
        part->cursor.looks = part->packed_left = PIECE_RECORDS;
        twi_section_enter(walk->self);
        if (packed != 0)
            twi_packed_walk(&walk->engine->arena, packed, &part->packed_cursor, take_final, part);
        else
            twi_table_walk(&walk->engine->arena, part->generation, &part->cursor, take_cell, part);
        twi_section_leave(walk->self);
        if (walker->rest != NULL && !walker->rest(walker->ctx)) return false;
        if (twi_thread_self != walk->self) return false;
    }
    struct twi_cell *spill = &part->generation->overflow;
    uint64_t meta = twi_load_relaxed(&spill->meta);
    int64_t others = twi_load_relaxed(&part->generation->turn.wants_totals) ? twi_load_relaxed(&spill->base) : 0;
    int64_t local = twi_cell_local(spill, meta); /* the word is read only once, because adds continue meanwhile */
    tw_count count = count_in(part->generation, tw_bytes(NULL, 0), twi_saturated_sum(local, others), local);
    return walker->end == NULL || (walker->end(walker->ctx, &count) && twi_thread_self == walk->self);
}

/* The holds of the innermost walk of this thread. */
static _Atomic uintptr_t *holds_of(struct twi_thread *self) {
    twi_check(self->walks != 0 && self->walks <= TWI_WALKS_MAX);
    return twi_thread_slot(self)->holds[self->walks - 1];
}

/* A hold keeps the generation, also between two sections, and its table, if the table is walked. If there is no packed
 * form yet, this section began before its publication. The turn gives the table back after this section, and by then
 * it sees the hold. Inside a section. */
static void hold(struct walk *walk, int number, struct twi_generation *generation) {
    if (generation == NULL) return;
    walk->held[number] = generation;
    walk->packed[number] = twi_load_acquire(&generation->packed); /* K2, pairs with K1 */
    TWI_RACE_POINT(each_form_chosen);
    twi_store_relaxed(&holds_of(walk->self)[number],
                      (uintptr_t)generation | (walk->packed[number] == 0 ? TWI_HOLDS_TABLE : 0));
}

static void let_go(const struct walk *walk) {
    for (int number = 0; number < 2; number++)
        twi_store_release(&holds_of(walk->self)[number], 0); /* R8, pairs with R9 */
    walk->self->walks--;
}

/* Keeps the generations that may have counters of the window at at_ms, in the order of the walk. */
static void hold_all(struct walk *walk, tw_family *family, int64_t at_ms) {
    walk->self->walks++;
    twi_section_enter(walk->self);
    if (family->kind.evicts_idle) {
        int64_t eviction_epoch = twi_load_acquire(&family->eviction_epoch); /* G5 */
        hold(walk, 0, twi_window_find(family, eviction_epoch - 1));
        hold(walk, 1, twi_window_find(family, eviction_epoch));
    } else {
        hold(walk, 0, twi_window_find(family, twi_calendar_span(&family->rule, at_ms).start_ms));
        if (family->kind.from_first)
            hold(walk, 1, twi_window_find(family, twi_calendar_previous_start(&family->rule, at_ms)));
    }
    twi_section_leave(walk->self);
}

static void walk_held(const struct walk *walk) {
    const struct twi_walker *walker = walk->walker;
    if (walker->begin != NULL) {
        struct twi_generation *generations[2];
        size_t count = 0;
        for (int number = 0; number < 2; number++)
            if (walk->held[number] != NULL) generations[count++] = walk->held[number];
        if (!walker->begin(walker->ctx, generations, count)) return;
    }
    for (int number = 0; number < 2; number++) {
        struct walk_part part = {.walk = walk, .generation = walk->held[number]};
        if (part.generation == NULL) continue;
        if (walk->is_split && number == 0) part.newer = walk->held[1];
        if (walk->is_split && number == 1) part.older = walk->held[0];
        if (!walk_part(&part, walk->packed[number])) return;
    }
}

tw_status twi_walk(tw_family *family, int64_t unix_ms, const struct twi_walker *walker) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_here();
    if (self == NULL) return twi_refuse_for(twi_thread_why());
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (twi_load_relaxed(&engine->life.stopped) && !self->in_hook && !walker->at_end)
        return twi_refuse(TW_ERR_CLOSED, NULL);
    int64_t now_ms = twi_clock_now_ms(&engine->clock), at_ms = unix_ms == TW_NOW ? now_ms : unix_ms;
    if (unix_ms != TW_NOW && !family->kind.has_starts && family->kind.from_first)
        return twi_refuse(TW_ERR_MODE,
                          "unix_ms: in a TW_WINDOW_FROM_FIRST family tw_each() and tw_top() know TW_NOW only");
    if (unix_ms != TW_NOW && !twi_calendar_holds(unix_ms)) return twi_refuse_for(TWI_WHY_TIME);
    if (self->walks == TWI_WALKS_MAX)
        return twi_refuse(TW_ERR_MODE, "visit: a walk inside a visitor that runs inside another visitor");
    struct walk walk = {.walker = walker,
                        .self = self,
                        .engine = engine,
                        .now_ms = now_ms,
                        .lives_only = family->kind.from_first,
                        .is_split = family->kind.evicts_idle};
    TWI_RACE_POINT(walk_time_read);
    hold_all(&walk, family, at_ms);
    bool is_absent = walk.held[0] == NULL && family->kind.has_starts;
    if (!is_absent) walk_held(&walk);
    if (twi_thread_self != self) /* the visitor has forked and counted in the child; the window belongs to the parent */
        return twi_refuse(TW_ERR_FORKED, "visit: it has forked; what was visited is the parent's");
    let_go(&walk);
    return is_absent ? twi_absent_window_status(family, at_ms, now_ms) : TW_OK;
}

/* ---- one key, for the watch socket ---- */

/* Inside a section. With idle eviction, the cell of the epoch before shows the count until a call needs the key. */
static bool find_shown(const struct twi_call *call, struct twi_place *place) {
    place->previous = NULL;
    if (twi_place_find(call, place)) return true;
    if (!call->family->kind.evicts_idle || place->previous == NULL) return false;
    place->cell = place->previous;
    place->generation = place->previous_in;
    place->meta = twi_load_relaxed(&place->cell->meta);
    return true;
}

tw_status twi_watch_read(tw_family *family, tw_key key, tw_count *count, bool *known) {
    struct twi_call call;
    struct twi_place place;
    *known = false;
    if (family->kind.is_gcra) return twi_refuse_for(TWI_WHY_GCRA);
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    status = twi_call_now(&call);
    if (status == TW_OK && find_shown(&call, &place)) {
        bool is_distinct = family->kind.is_distinct;
        int64_t local = is_distinct ? twi_sketch_estimate(&call.engine->arena, place.cell, place.meta)
                                    : twi_cell_local(place.cell, place.meta);
        *known = true;
        *count = count_in(place.generation, key, twi_view_of(place.cell, place.meta, local), local);
        if (family->kind.from_first) count->end_ms = twi_load_relaxed(&place.cell->end_ms);
    }
    twi_call_end(&call);
    return status;
}

/* ---- each ----
 * tw_each() shows every counter of a window to a visitor. See walk.h. Inside a section the counts are
 * copied into a buffer. Outside of the section they are shown to the visitor. So a slow visitor delays only the
 * walked window (walk.h). */

#define EACH_BYTES 8192

struct each {
    bool (*wants)(void *ctx, tw_key key); /* NULL means all */
    bool (*visit)(void *ctx, const tw_count *count);
    void *ctx;
    struct twi_thread *self;
    size_t used;
    alignas(8) unsigned char buffer[EACH_BYTES];
};
static_assert(sizeof(tw_count) + TW_KEY_SIZE_MAX <= EACH_BYTES, "the longest key fits");

/* Returns false if the buffer is full. */
static bool copy(void *ctx, const tw_count *count) {
    struct each *each = ctx;
    if (each->wants != NULL && !each->wants(each->ctx, count->key)) return true;
    size_t size = sizeof *count + ((count->key.size + 7) & ~(size_t)7);
    if (each->used + size > EACH_BYTES) return false;
    memcpy(each->buffer + each->used, count, sizeof *count);
    memcpy(each->buffer + each->used + sizeof *count, count->key.data, count->key.size);
    each->used += size;
    return true;
}

static bool show_buffer(void *ctx) {
    struct each *each = ctx;
    for (size_t at = 0; at < each->used;) {
        tw_count count;
        memcpy(&count, each->buffer + at, sizeof count);
        count.key.data = each->buffer + at + sizeof count;
        if (!each->visit(each->ctx, &count) || twi_thread_self != each->self) return false;
        at += sizeof count + ((count.key.size + 7) & ~(size_t)7);
    }
    each->used = 0;
    return true;
}

static bool show_overflow(void *ctx, const tw_count *spill) {
    const struct each *each = ctx;
    return each->wants != NULL || (spill->local == 0 && spill->view == 0) || each->visit(each->ctx, spill);
}

/* The caller has set `wants`. */
static tw_status show(struct each *each, bool at_end, tw_family *family, int64_t unix_ms,
                      bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    each->visit = visit;
    each->ctx = ctx;
    each->self = twi_thread_here();
    each->used = 0;
    const struct twi_walker walker = {
        .ctx = each, .at_end = at_end, .take = copy, .rest = show_buffer, .end = show_overflow};
    return twi_walk(family, unix_ms, &walker);
}

tw_status twi_each_wanted(tw_family *family, int64_t unix_ms, bool (*wants)(void *ctx, tw_key key),
                          bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    struct each each; /* the buffer is not cleared */
    each.wants = wants;
    return show(&each, false, family, unix_ms, visit, ctx);
}

tw_status twi_each_at_end(tw_family *family, int64_t unix_ms, bool (*visit)(void *ctx, const tw_count *count),
                          void *ctx) {
    struct each each;
    each.wants = NULL;
    return show(&each, true, family, unix_ms, visit, ctx);
}

tw_status tw_each(tw_family *family, int64_t unix_ms, bool (*visit)(void *ctx, const tw_count *count), void *ctx) {
    TWI_NEED(family);
    TWI_NEED(visit);
    return twi_each_wanted(family, unix_ms, NULL, visit, ctx);
}

/* ---- each field ----
 * tw_each_field() shows the counters of one subject in this process, field by field (key_template.h). If
 * the family declares its fields, the call looks up each of them. Otherwise the call looks at all counters of the
 * window, as tw_each() does, because there is no index of subjects.
 * Always true: both ways show the same fields with the same views. A view of 0 is not shown. Such a counter may only
 * have been requested, and a packed window has no such counter. */

tw_status twi_hash_check(const tw_family *family, tw_key subject) {
    if (family->template.shape.kind != TW_REDIS_HASH)
        return twi_refuse(TW_ERR_MODE, "redis_shape: fields are of families of TW_REDIS_HASH");
    if (subject.data == NULL || subject.size == 0) return twi_refuse(TW_ERR_KEY, "subject: it is empty");
    if (subject.size > TW_KEY_SIZE_MAX - 2)
        return twi_refuse(TW_ERR_KEY, "subject: it leaves no room for a field in a key");
    return TW_OK;
}

bool twi_hash_key(const tw_family *family, tw_key subject, tw_key field, unsigned char bytes[TW_KEY_SIZE_MAX],
                  tw_key *key) {
    if (subject.size + 1 + field.size > TW_KEY_SIZE_MAX) return false;
    memcpy(bytes, subject.data, subject.size);
    bytes[subject.size] = (unsigned char)family->template.shape.separator;
    memcpy(bytes + subject.size + 1, field.data, field.size);
    *key = tw_bytes(bytes, subject.size + 1 + field.size);
    return true;
}

struct each_field {
    tw_family *family;
    tw_key subject;
    bool (*visit)(void *ctx, tw_key field, int64_t view);
    void *ctx;
};

static bool is_of_subject(void *ctx, tw_key key) {
    const struct each_field *each = ctx;
    tw_key subject, field;
    return key.size > each->subject.size && memcmp(key.data, each->subject.data, each->subject.size) == 0 &&
           twi_redis_shape_split(each->family->template.shape, key, &subject, &field) &&
           subject.size == each->subject.size;
}

static bool show_field(void *ctx, const tw_count *count) {
    const struct each_field *each = ctx;
    tw_key subject, field;
    if (count->view == 0 || !twi_redis_shape_split(each->family->template.shape, count->key, &subject, &field))
        return true;
    return each->visit(each->ctx, field, count->view);
}

static tw_status look_up(const struct each_field *each, tw_key field, int64_t unix_ms, int64_t *view) {
    unsigned char bytes[TW_KEY_SIZE_MAX];
    tw_key key;
    tw_family *family = each->family;
    *view = 0;
    if (!twi_hash_key(family, each->subject, field, bytes, &key)) return TW_OK; /* too long, so it was never counted */
    bool is_open = unix_ms == TW_NOW || !family->kind.has_starts;               /* an endless window is always open */
    return is_open ? tw_get(family, key, view) : tw_get_at(family, key, unix_ms, view);
}

static tw_status look_each_up(const struct each_field *each, int64_t unix_ms) {
    const struct twi_fields *fields = each->family->fields;
    const struct twi_thread *self = twi_thread_here();
    uint32_t process = self != NULL ? self->process : 0;
    for (uint32_t i = 0; i < fields->count; i++) {
        int64_t view;
        tw_status status = look_up(each, fields->each[i], unix_ms, &view);
        if (status != TW_OK) return status;
        if (view == 0) continue;
        if (!each->visit(each->ctx, fields->each[i], view)) return TW_OK;
        self = twi_thread_here(); /* in the process that forked, too, the thread may have another record */
        if (self == NULL || self->process != process)
            return twi_refuse(TW_ERR_FORKED, "visit: it has forked; what was visited is the parent's");
    }
    return TW_OK;
}

tw_status tw_each_field(tw_family *family, tw_key subject, int64_t unix_ms,
                        bool (*visit)(void *ctx, tw_key field, int64_t view), void *ctx) {
    TWI_NEED(family);
    TWI_NEED(visit);
    tw_status status = twi_hash_check(family, subject);
    if (status != TW_OK) return status;
    if (unix_ms != TW_NOW && !twi_calendar_holds(unix_ms)) return twi_refuse_for(TWI_WHY_TIME);
    struct each_field each = {.family = family, .subject = subject, .visit = visit, .ctx = ctx};
    if (family->fields != NULL) return look_each_up(&each, unix_ms);
    return twi_each_wanted(family, unix_ms, is_of_subject, show_field, &each);
}
