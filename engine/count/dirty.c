/* dirty.c -- the marks of the counters that have unsent counts. They are step 2 of the flow in docs/ARCHITECTURE.md.
 *
 *   counter word: DIRTY ─▶ its chunk: one bit ─▶ its generation's list of chunks ─▶ the engine's list of generations
 *
 * If an add returns a word without DIRTY, the adder sets DIRTY and then the other marks, in that order (D1). The
 * collector (turn/collect.c) works in the opposite order. It takes the lists, then the bit, and finally clears DIRTY
 * and reads the word in one operation (D2).
 * A striped counter (stripe.h) has one DIRTY in each word, and one bit for all words. The collector reads all of them.
 * Always true: a counter with DIRTY has all its marks, with two exceptions. A thread may be inside a section, between
 * its DIRTY and its last mark. Or Redis has rejected the key, and its counter waits (turn/rejected.c) until the turn
 * marks it again. tw_flush() waits one grace period before it collects, so it sees every add that returned before it
 * (trap E10).
 * A thread may end between two marks. Its slot names the counter, and a `listed` word has the number of the thread that
 * pushes the member. So the turn can finish the marks (turn/recover.c), and nobody waits for them for ever.
 * Each member of a list has a `listed` word. The collector clears this word before it reads the content of the member.
 * So a later change of the content lists the member again.
 * The turn uses lists of its own for its marks (twi_dirty_owe). Otherwise an adder that stalls between `listed` and
 * its push would hide unsent counts that the turn found while sealing, and the window would count as drained (P2). */
#include "engine/count/dirty.h"

#include "engine/base/grow.h"
#include "engine/core/family.h"
#include "engine/core/state.h"
#include "engine/table/area.h"
#include "engine/table/packed.h"

static void list_generation(tw_engine *engine, struct twi_generation *generation) {
    if (!twi_thread_claim(&generation->marks.listed)) return;
    TWI_RACE_POINT(window_listed_not_pushed);
    uint32_t line = twi_arena_line(&engine->arena, generation), head;
    twi_push(&engine->collector.marked, line, head, generation->marks.next = head); /* D7, pairs with D8 */
}

static void set_bit(struct twi_chunk *chunk, uint64_t meta) {
    uint32_t index = twi_cell_index(meta);
    /* D5, pairs with D6, so the thread that takes the bit reads the word after this DIRTY */
    (void)twi_or_acqrel(&chunk->marks[index / 64], UINT64_C(1) << (index % 64));
}

void twi_dirty_list(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta) {
    if ((meta & TWI_META_OVERFLOW) != 0) {
        (void)twi_swap_acqrel(&generation->marks.overflow, 1);
    } else {
        struct twi_chunk *chunk = twi_cell_chunk(cell, meta);
        set_bit(chunk, meta);
        TWI_RACE_POINT(bit_set_chunk_not_listed);
        if (twi_thread_claim(&chunk->listed)) {
            TWI_RACE_POINT(chunk_listed_not_pushed);
            uint32_t line = twi_arena_line(&engine->arena, chunk), head;
            twi_push(&generation->marks.chunks, line, head, chunk->next_marked = head); /* D7, pairs with D8 */
        }
    }
    list_generation(engine, generation);
}

void twi_dirty_mark(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta) {
    void *outer = twi_marking_begin(twi_thread_self, engine, generation, cell); /* the caller may have begun, too */
    uint64_t word = twi_or_acqrel(&cell->local, TWI_DIRTY);                     /* D1, pairs with D2 */
    /* If DIRTY was set, another thread marks it. If FROZEN was set, sealing looks at every counter itself. */
    if ((word & (TWI_DIRTY | TWI_FROZEN)) == 0) {
        TWI_RACE_POINT(dirty_not_marked);
        twi_dirty_list(engine, generation, cell, meta);
    }
    twi_marking_end(twi_thread_self, outer);
}

/* ---- marks of threads that have ended ---- */

static bool is_in(tw_engine *engine, uint32_t line, const struct twi_chunk *chunk) {
    uint32_t wanted = twi_arena_line(&engine->arena, chunk);
    while (line != 0 && line != wanted) line = ((struct twi_chunk *)twi_arena_at(&engine->arena, line))->next_marked;
    return line != 0;
}

/* If the thread with that number has claimed a member and not pushed it, nobody else will (D11). */
static void take_claims_back(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta,
                             uint32_t number) {
    twi_dirty_take_marked(engine); /* a generation that was pushed has no number after that */
    if (twi_load_relaxed(&generation->marks.listed) == number)
        (void)twi_swap_acqrel(&generation->marks.listed, 0); /* D4 */
    if ((meta & TWI_META_OVERFLOW) != 0) return;
    struct twi_chunk *chunk = twi_cell_chunk(cell, meta);
    if (twi_load_relaxed(&chunk->listed) == number && !is_in(engine, generation->turn.taken, chunk) &&
        !is_in(engine, twi_load_acquire(&generation->marks.chunks), chunk)) /* D8, with the links */
        (void)twi_swap_acqrel(&chunk->listed, 0);                           /* D4 */
}

void twi_dirty_heal(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint32_t number) {
    twi_check(twi_turn_is_owned(engine));
    if (!generation->synced) return;
    uint64_t meta = twi_load_relaxed(&cell->meta);
    take_claims_back(engine, generation, cell, meta, number);
    twi_dirty_owe(engine, generation, cell, meta);
}

static void owe_chunk(tw_engine *engine, struct twi_generation *generation, struct twi_chunk *chunk) {
    if (twi_load_relaxed(&chunk->owed) != 0) return;
    twi_store_relaxed(&chunk->owed, TWI_CHUNK_OWED | generation->turn.owed);
    generation->turn.owed = twi_arena_line(&engine->arena, chunk);
}

void twi_dirty_owe(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell, uint64_t meta) {
    if ((meta & TWI_META_OVERFLOW) != 0) {
        (void)twi_swap_acqrel(&generation->marks.overflow, 1);
    } else {
        struct twi_chunk *chunk = twi_cell_chunk(cell, meta);
        set_bit(chunk, meta);
        owe_chunk(engine, generation, chunk);
    }
    twi_dirty_pend(engine, generation);
}

bool twi_dirty_is_marked(struct twi_cell *cell, uint64_t meta) {
    twi_check((meta & TWI_META_OVERFLOW) == 0);
    uint32_t index = twi_cell_index(meta);
    uint64_t marks = twi_load_relaxed(&twi_cell_chunk(cell, meta)->marks[index / 64]);
    return (twi_load_relaxed(&cell->local) & TWI_DIRTY) != 0 || (marks >> index % 64 & 1) != 0;
}

bool twi_dirty_may_be_sent(struct twi_generation *generation) {
    uint32_t phase = twi_load_relaxed(&generation->phase);
    if (!generation->synced || phase == TWI_DROPPED) return false;
    const struct twi_packed *packed = twi_packed_of(&generation->family->engine->arena, generation);
    return packed == NULL || (phase < TWI_HISTORY && packed->table != TWI_TABLE_GOING);
}

static void owe_listed(tw_engine *engine, struct twi_generation *generation, uint32_t line) {
    while (line != 0) {
        struct twi_chunk *chunk = twi_arena_at(&engine->arena, line);
        line = chunk->next_marked;
        (void)twi_swap_acqrel(&chunk->listed, 0); /* D4 */
        owe_chunk(engine, generation, chunk);
    }
}

void twi_dirty_owe_listed(tw_engine *engine, struct twi_generation *generation) {
    twi_check(twi_turn_is_owned(engine) && twi_dirty_may_be_sent(generation));
    uint32_t taken = generation->turn.taken;
    generation->turn.taken = 0;
    owe_listed(engine, generation, taken);
    owe_listed(engine, generation, twi_swap_acqrel(&generation->marks.chunks, 0)); /* D8 */
    twi_dirty_pend(engine, generation);
}

void twi_dirty_unlist(tw_engine *engine, struct twi_generation *generation, struct twi_chunk *chunk) {
    twi_check(twi_turn_is_owned(engine));
    (void)twi_swap_acqrel(chunk != NULL ? &chunk->listed : &generation->marks.listed, 0); /* D4 */
    if (!twi_dirty_may_be_sent(generation)) return;
    if (chunk != NULL) owe_chunk(engine, generation, chunk);
    twi_dirty_pend(engine, generation);
}

void twi_dirty_pend(tw_engine *engine, struct twi_generation *generation) {
    if (generation->turn.pending) return;
    generation->turn.pending = true;
    generation->turn.next_pending = engine->collector.pending;
    engine->collector.pending = twi_arena_line(&engine->arena, generation);
    engine->collector.pending_new++;
}

void twi_dirty_take_marked(tw_engine *engine) {
    if (twi_load_relaxed(&engine->collector.marked) == 0) return;
    uint32_t line = twi_swap_acqrel(&engine->collector.marked, 0); /* D8, pairs with D7 */
    while (line != 0) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, line);
        uint32_t next = generation->marks.next;
        (void)twi_swap_acqrel(&generation->marks.listed,
                              0); /* D4, pairs with D3, so a mark that is made after this lists the generation again */
        twi_dirty_pend(engine, generation);
        line = next;
    }
}

void twi_dirty_forget(tw_engine *engine, struct twi_generation *generation) {
    twi_dirty_take_marked(engine);
    uint32_t line = twi_arena_line(&engine->arena, generation), *link = &engine->collector.pending;
    uint32_t before = 0;
    for (; *link != line && *link != 0; before++) link = &twi_generation_at(&engine->arena, *link)->turn.next_pending;
    if (*link == line) {
        *link = generation->turn.next_pending;
        if (before < engine->collector.pending_new) engine->collector.pending_new--;
    }
    generation->turn.pending = false;
}

/* ---- how many keys are unsent ---- */

/* A look at a chunk is a cache miss, about 100 ns. So a sample takes at most 1 ms, and all samples together take a
 * thousandth of the time. */
#define SAMPLE_LOOKS 8192u
#define LOOKS_PER_MS 8u

struct sample {
    tw_engine *engine;
    uint32_t looks; /* looks still allowed */
    int64_t keys;
};

static void sample_chunk(struct sample *sample, struct twi_chunk *chunk) {
    for (uint32_t word = 0; word < TWI_CHUNK_MARKS; word++)
        sample->keys += __builtin_popcountll(twi_load_relaxed(&chunk->marks[word])); /* a statistic */
    sample->looks--;
}

/* Samples a list of chunks that adders have marked. The list grows only at its head. Chunks that the turn has also
 * marked were counted before. */
static void sample_marked(struct sample *sample, uint32_t line) {
    while (line != 0 && sample->looks != 0) {
        struct twi_chunk *chunk = twi_arena_at(&sample->engine->arena, line);
        if (twi_load_relaxed(&chunk->owed) == 0) sample_chunk(sample, chunk);
        line = chunk->next_marked;
    }
}

static void sample_generation(struct sample *sample, struct twi_generation *generation) {
    if (sample->looks == 0) return;
    sample->looks--;
    sample->keys += twi_load_relaxed(&generation->marks.overflow) != 0;
    for (uint32_t line = generation->turn.owed; line != 0 && sample->looks != 0;) {
        struct twi_chunk *chunk = twi_arena_at(&sample->engine->arena, line);
        sample_chunk(sample, chunk);
        line = (uint32_t)twi_load_relaxed(&chunk->owed);
    }
    sample_marked(sample, generation->turn.taken);
    sample_marked(sample, twi_load_acquire(&generation->marks.chunks)); /* D8, also for the links */
}

void twi_dirty_sample(tw_engine *engine) {
    if (engine->turn.mono_ms < engine->collector.unsent_look_ms) return;
    struct sample sample = {engine, SAMPLE_LOOKS, engine->collector.items_out};
    for (uint32_t line = engine->collector.pending; line != 0 && sample.looks != 0;) {
        struct twi_generation *generation = twi_arena_at(&engine->arena, line);
        sample_generation(&sample, generation);
        line = generation->turn.next_pending;
    }
    for (uint32_t line = twi_load_acquire(&engine->collector.marked); line != 0 && sample.looks != 0;) { /* D8 */
        struct twi_generation *generation = twi_arena_at(&engine->arena, line);
        if (!generation->turn.pending) sample_generation(&sample, generation);
        line = generation->marks.next;
    }
    twi_stat_set(engine, offsetof(tw_stats, unsent_keys), sample.keys);
    engine->collector.unsent_look_ms = engine->turn.mono_ms + (SAMPLE_LOOKS - sample.looks) / LOOKS_PER_MS;
}

/* ---- contention ----
 * Detects contention, and makes stripes. */

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
