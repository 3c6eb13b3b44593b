/* distinct.c -- tw_distinct_add() and similar calls, for counters of distinct elements. A counter has a sketch in place
 * of a count (sketch.h).
 * Always true: if a call returned TW_OK, every later estimate of its window includes its elements. Adding an element
 * again has no effect, so a refused call may be repeated. */
#include "engine/count/distinct.h"

#include "engine/count/api.h"

#include "engine/core/window_map.h"
#include "engine/count/dirty.h"
#include "engine/count/call.h"
#include "engine/count/lookup.h"
#include "engine/table/sketch.h"

#define GROUP 128u /* elements added in one section, so that a long list does not delay the reuse of memory */

static tw_status refuse_kind(void) {
    return twi_refuse(TW_ERR_MODE, "kind: the tw_distinct_ calls are for TW_KIND_DISTINCT families");
}

/* If `unix_ms` is NULL, the call counts at the time of the clock. */
TWI_INLINE tw_status begin(struct twi_call *call, tw_family *family, tw_key key, const int64_t *unix_ms) {
    twi_check(family != NULL);
    if (twi_unlikely(!family->kind.is_distinct)) return refuse_kind();
    return unix_ms == NULL ? twi_call_begin(call, family, key) : twi_call_begin_at(call, family, key, *unix_ms);
}

/* ---- adding ---- */

/* The elements of one call, and the results. */
struct adding {
    const tw_key *elements;
    const int64_t *unix_ms; /* the event time; NULL means now */
    size_t count, done;     /* the number of elements, and how many of them were processed */
    size_t changed;         /* how many of those raised a register, */
    size_t refused;         /* and how many found no room */
};

TWI_INLINE struct twi_hll_element element_of(tw_key element) {
    return twi_hll_element(twi_hll_hash(element.data, element.size));
}

/* Finds or makes the sketch of the call's key. Returns TW_ERR_FULL and TWI_AGAIN like twi_place_make(). */
TWI_INLINE tw_status sketch_of(struct twi_call *call, struct twi_sketch *sketch) {
    struct twi_place place;
    if (twi_unlikely(!twi_place_find(call, &place))) {
        tw_status status = twi_place_make(call, &place);
        if (status != TW_OK) return status;
    }
    *sketch = (struct twi_sketch){&call->engine->arena, place.generation, &call->engine->unlinked.sketches, place.cell};
    return TW_OK;
}

/* Adds until all are added. TWI_AGAIN means that the window was sealed; the others belong to a later one. */
TWI_INLINE tw_status add_once(struct twi_call *call, struct adding *adding) {
    struct twi_sketch sketch;
    if (twi_unlikely(adding->count == 0)) return TW_OK; /* a call without elements makes no key */
    tw_status status = sketch_of(call, &sketch);
    if (twi_unlikely(status != TW_OK)) return status;
    size_t before = adding->changed;
    for (; adding->done < adding->count; adding->done++) {
        enum twi_raise raised = twi_sketch_raise(&sketch, element_of(adding->elements[adding->done]));
        if (twi_likely(raised == TWI_RAISE_NONE)) continue;
        if (raised == TWI_RAISE_FROZEN) {
            status = TWI_AGAIN;
            break;
        }
        if (raised == TWI_RAISED) adding->changed++;
        if (raised == TWI_RAISE_NO_ROOM) adding->refused++;
    }
    if (call->family->kind.synced && adding->changed != before) {
        TWI_RACE_POINT(sketch_raised_not_marked);
        twi_dirty_mark(call->engine, sketch.generation, sketch.cell, twi_load_relaxed(&sketch.cell->meta));
    }
    return status;
}

static tw_status refuse_full(tw_engine *engine, size_t elements) {
    twi_port_count(engine, rejected_increments, (int64_t)elements);
    return twi_refuse_for(TWI_WHY_FULL);
}

/* Adds a group of elements in one section. */
TWI_INLINE tw_status add_group(tw_family *family, tw_key key, struct adding *adding) {
    struct twi_call call;
    tw_status status = begin(&call, family, key, adding->unix_ms);
    if (twi_unlikely(status != TW_OK)) return status;
    do {
        status = twi_call_now(&call);
        if (twi_unlikely(call.at) && status == TW_OK) status = twi_event_check(&call);
        if (twi_likely(status == TW_OK)) status = add_once(&call, adding);
        if (twi_unlikely(status == TWI_AGAIN) && call.at) status = twi_event_after_seal(&call);
    } while (twi_unlikely(status == TWI_AGAIN));
    (void)twi_count_increments(call.engine, call.self, (int64_t)(adding->done - adding->refused));
    twi_call_end(&call);
    if (twi_unlikely(status == TW_ERR_FULL)) adding->refused += adding->count - adding->done;
    if (twi_unlikely(adding->refused != 0)) return refuse_full(family->engine, adding->refused);
    return status;
}

static tw_status check_element(tw_key element) {
    if (twi_likely(element.data != NULL) || element.size == 0) return TW_OK;
    return twi_refuse(TW_ERR_KEY, "element: its data is NULL");
}

static tw_status add_one(tw_family *family, tw_key key, tw_key element, const int64_t *unix_ms, bool *changed) {
    struct adding adding = {.elements = &element, .unix_ms = unix_ms, .count = 1};
    tw_status status = check_element(element);
    if (twi_likely(status == TW_OK)) status = add_group(family, key, &adding);
    if (changed != NULL && status == TW_OK) *changed = adding.changed != 0;
    return status;
}

tw_status twi_distinct_add_slow(tw_family *family, tw_key key, tw_key element, bool *changed) {
    return add_one(family, key, element, NULL, changed);
}

tw_status tw_distinct_add_at(tw_family *family, tw_key key, tw_key element, int64_t unix_ms, bool *changed) {
    TWI_NEED(family);
    return add_one(family, key, element, &unix_ms, changed);
}

tw_status tw_distinct_add(tw_family *family, tw_key key, tw_key element, bool *changed) {
    TWI_NEED(family);
    return family->kind.hot_distinct(family, key, element, changed);
}

tw_status tw_distinct_add_many(tw_family *family, tw_key key, const tw_key *elements, size_t count, size_t *changed) {
    TWI_NEED(family);
    if (count != 0) TWI_NEED(elements);
    tw_status status = TW_OK;
    size_t done = 0, raised = 0;
    bool is_full = false;
    for (size_t i = 0; i < count && status == TW_OK; i++) status = check_element(elements[i]);
    if (status != TW_OK) return status;
    do {
        size_t part = count - done < GROUP ? count - done : GROUP;
        struct adding adding = {.elements = elements + done, .count = part};
        status = add_group(family, key, &adding);
        raised += adding.changed;
        done += part;
        is_full = is_full || status == TW_ERR_FULL;
    } while (done < count && (status == TW_OK || status == TW_ERR_FULL));
    if (is_full && status == TW_OK) status = twi_refuse_for(TWI_WHY_FULL);
    if (changed != NULL && (status == TW_OK || status == TW_ERR_FULL)) *changed = raised;
    return status;
}

/* ---- reading ---- */

/* For a window that has ended, `base` is the amount by which Redis's estimate is above that of this process. */
static int64_t estimate_of(const struct twi_call *call, struct twi_cell *cell, uint64_t meta) {
    return twi_view_of(cell, meta, twi_sketch_estimate(&call->engine->arena, cell, meta));
}

/* With Redis, reading a key makes it a key of this engine. So a later collection requests its registers from Redis. */
static bool find_with_interest(struct twi_call *call, struct twi_place *place) {
    bool found = twi_place_find(call, place);
    if (!call->family->kind.synced) return found;
    if (!found && (!twi_may_take_interest(call) || twi_place_make(call, place) != TW_OK)) return false;
    if (twi_load_relaxed(&place->cell->asked) == 0) twi_store_relaxed(&place->cell->asked, 1);
    /* it requests them even if they were requested earlier, because the collector may have missed that */
    twi_place_request_total(call, place);
    return true;
}

tw_status tw_distinct_get(tw_family *family, tw_key key, int64_t *estimate) {
    TWI_NEED(family);
    struct twi_call call;
    struct twi_place place;
    tw_status status = begin(&call, family, key, NULL);
    if (status != TW_OK) return status;
    int64_t seen = 0;
    status = twi_call_now(&call);
    if (status == TW_OK && find_with_interest(&call, &place)) seen = estimate_of(&call, place.cell, place.meta);
    twi_call_end(&call);
    if (estimate != NULL && status == TW_OK) *estimate = seen;
    return status;
}

/* Returns the estimate in a window that still exists, from its table or from its packed form. The packed form has only
 * estimates. Call it inside a section. */
static int64_t estimate_in(const struct twi_call *call, struct twi_generation *generation) {
    if (twi_generation_is_packed(generation)) return twi_view_in(call, generation);
    struct twi_cell *cell = twi_table_find(&call->engine->arena, generation, &call->lookup);
    return cell != NULL ? estimate_of(call, cell, twi_cell_publish(cell)) : 0;
}

tw_status tw_distinct_get_at(tw_family *family, tw_key key, int64_t unix_ms, int64_t *estimate) {
    TWI_NEED(family);
    struct twi_call call;
    tw_status status = begin(&call, family, key, &unix_ms);
    if (status != TW_OK) return status;
    int64_t seen = 0;
    status = twi_call_now(&call);
    struct twi_generation *generation = twi_window_find(family, twi_calendar_span(&family->rule, unix_ms).start_ms);
    if (status == TW_OK && generation != NULL)
        seen = estimate_in(&call, generation);
    else if (status == TW_OK)
        status = twi_absent_window_status(family, unix_ms, call.now_ms);
    twi_call_end(&call);
    if (estimate != NULL && status == TW_OK) *estimate = seen;
    return status;
}
