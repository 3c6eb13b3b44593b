/* contention.c -- see contention.h. Detects contention, and makes stripes. */
#include "engine/count/contention.h"

#include "engine/core/family.h"
#include "engine/table/record.h"

/* ---- who requests stripes --------------------------------------------------------------------------------------- */

/* A cell is contended after 64 adds of one thread to it within some ticks of the clock, if other threads added
 * before half of them. This is more than 10,000 adds a second of each thread. If no other thread adds during the
 * first 8 adds, sampling stops. */
#define DETECT_ADDS 64u
#define DETECT_ADDS_ALONE 8u
#define DETECT_MS 5
/* How many compare-and-swaps are lost to other threads in that time. */
#define DETECT_LOSSES 16u

/* While a thread writes a request, the word is the number of the thread. No line of a generation is 0. */
enum { REQUEST_NONE = 0 };

void twi_contention_request(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                            int64_t limit) {
    uint64_t nothing = REQUEST_NONE;
    /* If the turn has not seen the last request yet, a cell that is still contended requests stripes again. */
    if (twi_load_relaxed(&engine->stripes.of) != REQUEST_NONE) return;
    void *outer = twi_marking_begin(twi_thread_self, engine, generation, cell);
    if (twi_cas_acqrel(&engine->stripes.of, &nothing, twi_thread_any_number(twi_thread_self))) {
        TWI_RACE_POINT(request_claimed_not_written);
        twi_store_relaxed(&engine->stripes.limit, limit);
        uint64_t word =
            (uint64_t)twi_arena_line(&engine->arena, generation) << 32 | twi_arena_line(&engine->arena, cell);
        twi_store_release(&engine->stripes.of, word); /* S5, pairs with S6 */
    }
    twi_marking_end(twi_thread_self, outer);
}

void twi_contention_heal(tw_engine *engine, uint32_t number) {
    uint64_t found = number;
    (void)twi_cas_acqrel(&engine->stripes.of, &found, REQUEST_NONE);
}

static void begin_detection(tw_engine *engine, struct twi_cell *cell, struct twi_thread *self) {
    self->sampled = cell;
    self->sampled_since_ms = twi_clock_read(&engine->clock); /* this is also the look at the clock for such adds */
    self->sampled_adds = self->sampled_others = 0;
}

void twi_contention_detect_add(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                               int64_t before, int64_t delta, struct twi_thread *self) {
    if (cell != self->sampled) {
        begin_detection(engine, cell, self);
        self->sampled_value = before + delta;
        return;
    }
    self->sampled_adds++;
    self->sampled_others += before != self->sampled_value;
    self->sampled_value = before + delta;
    if (self->sampled_adds < DETECT_ADDS && (self->sampled_adds < DETECT_ADDS_ALONE || self->sampled_others != 0))
        return;
    self->sampled = NULL;
    if (self->sampled_others >= DETECT_ADDS / 2 &&
        twi_clock_now_ms(&engine->clock) - self->sampled_since_ms <= DETECT_MS)
        twi_contention_request(engine, generation, cell, TWI_NO_LIMIT);
}

void twi_contention_detect_acquire(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                                   int64_t limit, struct twi_thread *self) {
    if (cell != self->sampled || twi_clock_now_ms(&engine->clock) - self->sampled_since_ms > DETECT_MS)
        begin_detection(engine, cell, self);
    if (++self->sampled_others < DETECT_LOSSES) return;
    self->sampled = NULL;
    twi_contention_request(engine, generation, cell, limit);
}

/* ---- how the turn makes stripes ---- */

void twi_slices_cut(struct twi_stripes *stripes, int64_t limit, int64_t base, int64_t room) {
    int64_t count = (int64_t)stripes->mask + 1, each = room > 0 ? room / count : 0, rest = room > 0 ? room % count : 0;
    stripes->limit = limit;
    stripes->base = base;
    for (uint32_t i = 0; i <= stripes->mask; i++) stripes->each[i].ceiling = each + (i < rest ? 1 : 0);
    twi_store_relaxed(&stripes->shown, limit - (room > 0 ? room : 0));
}

/* Freezes `local`. For slices, the units that are left of the limit at that moment become the ceilings. */
static void freeze_local(struct twi_cell *cell, uint64_t meta, struct twi_stripes *stripes, int64_t limit) {
    _Atomic int64_t *final = twi_cell_final(cell, meta);
    int64_t base = (meta & TWI_META_COLD) != 0 ? twi_load_relaxed(&cell->base) : 0;
    uint64_t word = twi_load_relaxed(&cell->local);
    do {
        int64_t value = twi_word_value(word);
        if (limit != TWI_NO_LIMIT)
            twi_slices_cut(stripes, limit, base, twi_saturated_sum(limit, -twi_saturated_sum(value, base)));
        twi_store_relaxed(final, value);
        TWI_RACE_POINT(final_stored_not_striped);
    } while (!twi_cas_weak_acqrel(&cell->local, &word, word | TWI_FROZEN)); /* C1 */
}

/* Returns true if stripes would make adds faster and there is memory for them. */
static bool may_stripe(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta,
                       int64_t limit) {
    uint64_t word = twi_load_relaxed(&cell->local);
    int64_t value = twi_word_value(word), view = twi_cell_view(cell, meta);
    if ((meta & (TWI_META_STRIPED | TWI_META_EDGE | TWI_META_OVERFLOW)) != 0 || (word & TWI_FROZEN) != 0) return false;
    if (value >= TWI_SHARED_EDGE || value <= -TWI_SHARED_EDGE || generation->turn.striped_cells >= TWI_STRIPED_MAX)
        return false;
    if (limit != TWI_NO_LIMIT &&
        twi_saturated_sum(limit, -view) < twi_slices_room_min(UINT32_C(1) << engine->stripes.log2))
        return false;
    /* The last eighth of the memory is reserved for keys. */
    struct twi_quota_use use = twi_quota_use(&engine->arena, generation->quota);
    return use.used < use.most - use.most / 8;
}

static void finish_stripes(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta,
                           int64_t limit) {
    freeze_local(cell, meta, twi_stripes_of(cell, meta), limit);
    /* An adder that has counted in `local` and then finds it frozen sets no mark. It leaves the mark to the turn
     * (dirty.c). */
    if (generation->synced) twi_dirty_owe(engine, generation, cell, meta);
    twi_port_count(engine, striped, 1);
}

bool twi_contention_make_stripes(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell,
                                 int64_t limit) {
    struct twi_arena *arena = &engine->arena;
    /* These are checked first, because the records of a sealed generation may have been given back already. */
    if (generation->family->kind.from_first || generation->family->kind.evicts_idle) return false;
    if (generation->family->kind.is_hard && generation->synced)
        return false; /* the word contains the lease of the cell */
    if (twi_load_relaxed(&generation->phase) >= TWI_SEALING) return false;
    uint64_t meta = twi_load_relaxed(&cell->meta);
    bool is_begun = (meta & TWI_META_STRIPED) != 0 && !twi_cell_is_frozen(cell); /* by a thread that ended meanwhile */
    if (is_begun) finish_stripes(engine, generation, cell, meta, limit);
    if (!may_stripe(engine, generation, cell, meta, limit)) return false;
    uint32_t count = UINT32_C(1) << engine->stripes.log2;
    uint32_t lines = twi_arena_round(1 + count), line = twi_piece_take(arena, generation, lines);
    if (line == 0) return false;
    struct twi_stripes *stripes = twi_arena_at(arena, line);
    stripes->mask = count - 1;
    stripes->lines = lines;
    stripes->limit = limit;
    stripes->older = generation->turn.striped;
    twi_fence_compiler(); /* if this thread ends in between, the piece leaks (table.h) */
    generation->turn.striped = line;
    generation->turn.striped_cells++;
    twi_store_release(&cell->stripes, (int64_t)line - twi_arena_line(arena, cell)); /* S1, pairs with S2 */
    meta = twi_or_acqrel(&cell->meta, TWI_META_STRIPED) | TWI_META_STRIPED;
    TWI_RACE_POINT(striped_local_open);
    finish_stripes(engine, generation, cell, meta, limit);
    return true;
}

void twi_contention_turn(tw_engine *engine) {
    uint64_t word = twi_load_acquire(&engine->stripes.of); /* S6 */
    if (word >> 32 == 0) return;
    (void)twi_contention_make_stripes(engine, twi_arena_at(&engine->arena, (uint32_t)(word >> 32)),
                                      twi_arena_at(&engine->arena, (uint32_t)word),
                                      twi_load_relaxed(&engine->stripes.limit));
    twi_store_release(&engine->stripes.of, REQUEST_NONE);
}

void twi_contention_forget(tw_engine *engine, const struct twi_generation *generation) {
    uint64_t word = twi_load_acquire(&engine->stripes.of); /* S6 */
    if (word >> 32 == twi_arena_line(&engine->arena, generation)) twi_store_release(&engine->stripes.of, REQUEST_NONE);
}
