/* pin.c -- adds to one counter without looking it up each time.
 *
 * A pin remembers a cell, and the span of engine time in which the memory of this cell surely belongs to its window.
 * The span is the window itself. A generation is closed, and later dropped, only when engine time has reached its end.
 * So a thread that reads an earlier time inside a section entered that section before the generation was unlinked, and
 * reclamation waits for it (trap E32). Outside the span, the pin looks its key up again. It also does so if the cell is
 * frozen or at an edge of its range.
 * Always true: `cell` is used only inside a section, within the span, and in the process that found it. */
#include "engine/count/api.h"
#include "engine/count/contention.h"
#include "engine/table/stripe.h"

#include "engine/count/lookup.h"

#include <stdlib.h>

struct tw_pin {
    tw_family *family;
    struct twi_generation *generation;
    struct twi_cell *cell; /* NULL means that the key must be looked up */
    int64_t start_ms, end_ms;
    uint32_t process; /* the process that found the cell; after a fork the cell belongs to the parent */
    bool is_plain;    /* the family has no Redis, and short sections are allowed */
    uint32_t key_size;
    unsigned char key[];
};

tw_status tw_pin_open(tw_family *family, tw_key key, tw_pin **pin) {
    twi_check(family != NULL && pin != NULL);
    tw_status status = twi_call_check_key(family, key);
    if (status != TW_OK) return status;
    if (twi_load_relaxed(&family->engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    tw_pin *made = calloc(1, sizeof *made + key.size);
    if (made == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    made->family = family;
    made->key_size = (uint32_t)key.size;
    made->is_plain = !family->kind.synced && twi_section_may_be_short();
    memcpy(made->key, key.data, key.size);
    *pin = made;
    return TW_OK;
}

void tw_pin_close(tw_pin *pin) {
    free(pin);
}

/* Remembers where the key is counted now. Call it inside a section. */
static void remember(tw_pin *pin, const struct twi_call *call) {
    struct twi_place place;
    pin->cell = NULL;
    if (pin->family->kind.from_first || pin->family->kind.evicts_idle || !twi_place_find(call, &place))
        return; /* in these families cells end one by one, so the key is looked up each time */
    pin->generation = place.generation;
    pin->start_ms = place.generation->start_ms > 0 ? place.generation->start_ms : 0; /* twi_clock_peek_ms() */
    pin->end_ms = place.generation->end_ms;
    pin->process = call->self->process;
    pin->cell = place.cell;
}

static tw_status add_anew(tw_pin *pin, int64_t delta, int64_t *view) {
    struct twi_call call;
    int64_t seen = 0;
    if (delta > TW_DELTA_MAX || delta < -TW_DELTA_MAX) return twi_refuse_for(TWI_WHY_DELTA);
    tw_status status = twi_call_begin(&call, pin->family, tw_bytes(pin->key, pin->key_size));
    if (status != TW_OK) return status;
    call.without_sum = view == NULL;
    status = twi_add_call(&call, delta, &seen);
    if (status == TW_OK) remember(pin, &call);
    twi_call_end(&call);
    if (view != NULL && status >= 0) *view = seen;
    return status;
}

/* Adds to a counter that is not plain: it is striped, without DIRTY, sampled, or at an edge of its range. */
static __attribute__((noinline)) tw_status add_to(tw_pin *pin, int64_t delta, int64_t *view) {
    tw_family *family = pin->family;
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    twi_section_enter(self);
    int64_t now_ms = twi_clock_now_ms(&engine->clock);
    struct twi_cell *cell = pin->cell;
    struct twi_counted counted;
    uint64_t meta;
    if (twi_unlikely(now_ms < pin->start_ms || now_ms >= pin->end_ms)) goto anew;
    meta = twi_load_relaxed(&cell->meta);
    twi_dirty_begin(self, engine, pin->generation, cell);
    if (twi_unlikely(twi_stripes_add(cell, meta, delta, view != NULL, self, &counted) != TWI_ADDED)) goto anew;
    twi_contention_mark(engine, pin->generation, cell, meta, &counted);
    twi_dirty_end(self);
    int64_t count = twi_count_increments(engine, self, 1);
    if (view != NULL)
        *view = twi_view_of(cell, meta, counted.local);
    else if ((meta & TWI_META_STRIPED) == 0)
        twi_contention_detect(engine, pin->generation, cell, counted.local - delta, delta, count, self);
    twi_section_leave(self);
    return twi_call_over(engine, count);
anew:
    twi_dirty_end(self);
    twi_section_leave(self);
    return add_anew(pin, delta, view);
}

/* Called after a plain add without a view has counted. Samples whether other threads have added since. The caller is
 * inside a section, short or not, and this function leaves the section. */
static TWI_COLD tw_status sample(const tw_pin *pin, int64_t before, int64_t delta, int64_t count) {
    struct twi_thread *self = twi_thread_self;
    self->depth++; /* the called functions enter their own sections */
    twi_contention_detect_add(pin->family->engine, pin->generation, pin->cell, before, delta, self);
    twi_section_leave(self);
    return twi_call_over(pin->family->engine, count);
}

/* In the plain case, a family without Redis, the code calls no function. */
tw_status tw_pin_add(tw_pin *pin, int64_t delta, int64_t *view) {
    twi_check(pin != NULL);
    tw_engine *engine = pin->family->engine;
    struct twi_thread *self = twi_thread_self;
    /* In a forked child the record is wiped, and the cell belongs to the parent. */
    if (twi_unlikely(self->process != pin->process) || twi_unlikely(pin->cell == NULL) ||
        twi_unlikely(delta != (int32_t)delta) || twi_unlikely(twi_load_relaxed(&engine->life.gate)))
        return add_anew(pin, delta, view);
    if (twi_unlikely(!pin->is_plain)) return add_to(pin, delta, view);
    bool outermost = twi_section_enter_short(self);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock); /* a stale time is in no window of a pin */
    TWI_RACE_POINT(pin_time_read_not_added);
    struct twi_cell *cell = pin->cell;
    uint64_t before;
    if (twi_unlikely(now_ms < pin->start_ms) || twi_unlikely(now_ms >= pin->end_ms) ||
        twi_unlikely((twi_load_relaxed(&cell->meta) & (TWI_META_EDGE | TWI_META_STRIPED)) != 0) ||
        twi_unlikely(!twi_cell_count(cell, delta, &before))) {
        twi_section_leave_short(self, outermost);
        return add_to(pin, delta, view);
    }
    int64_t count = twi_count_increments(engine, self, 1);
    if (view != NULL)
        *view = twi_word_value(before) + delta;
    else if (twi_unlikely(cell == self->sampled) || twi_unlikely((count & (TWI_CONTENTION_EVERY - 1)) == 0))
        return sample(pin, twi_word_value(before), delta, count);
    twi_section_leave_short(self, outermost);
    return twi_call_over(engine, count);
}
