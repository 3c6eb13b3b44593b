/* repeat_fast.h -- tw_add() of one key again and again by one thread. The thread compares the key with the key of the
 * counter that it used last. So it needs no hash and no walk. This is a part of the same template, and add_fast.h is
 * included before it.
 *
 * Other threads have no cost. While `repeats` is not 0, a thread checks whether its adds go to one counter. `repeats`
 * is in the word that the fast functions check before they continue (twi_thread_is_plain), so they leave such a thread
 * to this file. One add in 1,024 begins the check. The first adds then cost more than others. An add to the counter of
 * the previous add raises `repeats` by one. Another add lowers it by more. At 0 the check ends. The counter is
 * remembered in the same way as by a pin (api.c): with the span of engine time in which its memory surely belongs to
 * its window, and with the serial of its family. A family, an engine or a window may have the address of an earlier
 * one. But no two families have one serial, and one family opens a window once.
 * Always true: the counter is used only inside a section, within the span, and for the family with that serial. The
 * record of a thread is wiped upon fork, and a thread that gets a used record begins with `repeats` = 0. */
#ifndef TWI_HOT_NAME
#error "repeat_fast.h is a part of add_fast.h"
#endif

#ifndef TWI_HOT_REPEATED
#define TWI_HOT_REPEATED

#define HOT_REPEATS_MAX 16u
/* By how much an add to another counter lowers `repeats`. So four adds in five must go to the previous counter. */
#define HOT_REPEATS_LOST 4u
static_assert(HOT_REPEATS_BEGIN > HOT_REPEATS_LOST && HOT_REPEATS_MAX <= UINT8_MAX, "the first counter is remembered");

TWI_INLINE void hot_remember(struct twi_thread *self, const tw_family *family, struct twi_generation *generation,
                             struct twi_cell *cell) {
    self->repeated.family = family->serial;
    self->repeated.start_ms = generation->start_ms > 0 ? generation->start_ms : 0; /* twi_clock_peek_ms() */
    self->repeated.end_ms = generation->end_ms;
    self->repeated.generation = generation;
    self->repeated.cell = cell;
}

#endif

/* Adds to another counter than the one that is remembered. It remembers the new counter, or ends the check. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status TWI_HOT_OWN(add_other)(tw_family *family, tw_key key,
                                                                               int64_t delta, int64_t *view) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    bool goes_on = self->repeats > HOT_REPEATS_LOST;
    if (!goes_on || !hot_may_begin(self, engine) || key.size - 4 > TW_KEY_SIZE_MAX - 4 || key.data == NULL ||
        delta != (int32_t)delta) {
        self->repeats = 0;
        return TWI_HOT_NAME(family, key, delta, view);
    }
    self->repeats = (uint8_t)(self->repeats - HOT_REPEATS_LOST);
    uint64_t hash = TWI_HOT_HASH(engine, key);
    twi_section_enter(self);
    struct twi_generation *generation = twi_load_acquire(&family->current); /* W1 */
    if (twi_likely(twi_generation_holds(generation, twi_clock_peek_ms(&engine->clock)))) {
        struct twi_cell *cell = hot_find(engine, generation, hash, TWI_HOT_SYNCED, key);
        if (twi_likely(cell != NULL) && !hot_is_striped(cell)) {
            hot_remember(self, family, generation, cell);
            return TWI_HOT_OWN(count)(engine, self, generation, cell, key, delta, view, hash);
        }
    }
    twi_section_leave(self);
    self->repeats = 0;
    return TWI_HOT_NAME(family, key, delta, view);
}

/* For a thread that checks its adds, and is outside of any section. */
TWI_HOT_CODE __attribute__((noinline)) static tw_status TWI_HOT_OWN(add_repeated)(tw_family *family, tw_key key,
                                                                                  int64_t delta, int64_t *view) {
    tw_engine *engine = family->engine;
    struct twi_thread *self = twi_thread_self;
    if (twi_unlikely(self->repeated.family != family->serial) || twi_unlikely(key.data == NULL) ||
        twi_unlikely(key.size > TW_KEY_SIZE_MAX) || twi_unlikely(delta != (int32_t)delta) ||
        twi_unlikely(twi_load_relaxed(&engine->life.gate)))
        return TWI_HOT_OWN(add_other)(family, key, delta, view);
    hot_enter(self, HOT_OUTSIDE);
    int64_t now_ms = twi_clock_peek_ms(&engine->clock); /* a stale time is in no window */
    TWI_RACE_POINT(repeat_time_read_not_added);
    if (twi_likely(now_ms >= self->repeated.start_ms) && twi_likely(now_ms < self->repeated.end_ms)) {
        struct twi_cell *cell = self->repeated.cell;
        uint64_t before;
        if (hot_may_be(cell, key.size, HOT_NOT_STRIPED) &&
            twi_likely(key.size <= TWI_KEY_INLINE ? TWI_HOT_SHORT_IS(TWI_HOT_SHORT_OF(key), cell->key, key.size)
                                                  : TWI_HOT_LONG_IS(key, cell->key)) &&
            twi_likely(twi_cell_count(cell, delta, &before))) {
            if (twi_unlikely(self->repeats < HOT_REPEATS_MAX)) self->repeats++;
            return TWI_HOT_OWN(counted)(engine, self, HOT_OUTSIDE, self->repeated.generation, cell, delta, view,
                                        before);
        }
    }
    hot_leave(self, HOT_OUTSIDE);
    return TWI_HOT_OWN(add_other)(family, key, delta, view);
}
