/* distinct_fast.h -- tw_distinct_add() to an existing key in an open window. The whole path is one function, in the
 * same way as add_fast.h for tw_add(). It is a part of the same template, and add_fast.h is included before it. With
 * Redis, a call that has raised a register marks the counter (dirty.c). Other calls do not pay for that. All cases
 * except the plain one go to twi_distinct_add_slow(), which begins again and handles every case. Adding an element
 * twice changes only the result `changed`, so beginning again loses no count. Always true: this path does only what
 * twi_distinct_add_slow() also does. */
#include "engine/count/dirty.h"
#include "engine/count/distinct.h"
#include "engine/table/sketch.h"

#ifndef TWI_HOT_DISTINCT
#error "distinct_fast.h is a template: define TWI_HOT_DISTINCT first"
#endif

TWI_HOT_CODE tw_status TWI_HOT_DISTINCT(tw_family *family, tw_key key, tw_key element, bool *changed) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(!hot_may_begin(self, engine)) || twi_unlikely(key.size - 1 >= TW_KEY_SIZE_MAX) ||
        twi_unlikely(key.data == NULL) || twi_unlikely(element.data == NULL))
        return twi_distinct_add_slow(family, key, element, changed);
    struct twi_hll_element raise = twi_hll_element(twi_hll_hash(element.data, element.size));
    uint64_t hash = TWI_HOT_HASH(engine, key);
    bool outermost = twi_section_enter_short(self);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    int64_t now_ms = twi_clock_peek_ms(&engine->clock);                     /* a stale time is in no window */
    if (!hot_holds(generation, now_ms) && !hot_holds_young(engine, generation, &now_ms)) {
        now_ms = twi_clock_renew_ms(&engine->clock);
        if (twi_unlikely(!twi_generation_holds(generation, now_ms))) goto slow;
    }
    struct twi_cell *cell = hot_find(engine, generation, hash, TWI_HOT_DISTINCT_SYNCED, key);
    if (twi_unlikely(cell == NULL)) goto slow;
    const struct twi_sketch sketch = {&engine->arena, generation, &engine->unlinked.sketches, cell};
    enum twi_raise raised = twi_sketch_raise(&sketch, raise);
    if (twi_unlikely(raised != TWI_RAISE_NONE) && twi_unlikely(raised != TWI_RAISED)) goto slow;
    if (TWI_HOT_DISTINCT_SYNCED && raised == TWI_RAISED)
        twi_dirty_mark(engine, generation, cell, twi_load_relaxed(&cell->meta));
    int64_t calls = twi_count_increments(engine, self, 1);
    twi_section_leave_short(self, outermost);
    if (changed != NULL) *changed = raised == TWI_RAISED;
    return twi_call_over(engine, calls);
slow:
    twi_section_leave_short(self, outermost);
    return twi_distinct_add_slow(family, key, element, changed);
}

#undef TWI_HOT_DISTINCT
#undef TWI_HOT_DISTINCT_SYNCED
