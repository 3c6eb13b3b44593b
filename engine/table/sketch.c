/* sketch.c -- see sketch.h. It raises registers, grows, estimates, reads, seals and gives back sketches. */
#include "engine/table/sketch.h"

#include "engine/base/grow.h"
#include "engine/memory/epoch.h"
#include "engine/table/area.h"

#include <string.h>

struct sparse {
    _Atomic uint32_t next_retired; /* used after the piece was retired */
    uint16_t lines;                /* set before sharing */
    _Atomic uint16_t used;         /* slots that are taken, which decides growth. It may be late */
    _Atomic uint32_t slots[];
};

#define SLOT_EMPTY UINT32_C(0)
#define SLOT_CLOSED (UINT32_C(1) << 31)
#define SLOT_INDEX_SHIFT 6
#define SLOT_VALUE UINT32_C(63)
#define HEAD_SLOTS ((uint32_t)(sizeof(struct sparse) / sizeof(uint32_t)))
#define LINE_SLOTS ((uint32_t)(TWI_LINE_BYTES / sizeof(uint32_t)))
#define WORDS (TWI_HLL_REGISTERS / 8)

static uint32_t slot_of(uint32_t index, uint32_t value) {
    return index << SLOT_INDEX_SHIFT | value;
}
static uint32_t slot_index(uint32_t slot) {
    return (slot & ~SLOT_CLOSED) >> SLOT_INDEX_SHIFT;
}
static bool slot_is_empty(uint32_t slot) {
    return (slot & SLOT_VALUE) == 0; /* a register in a slot is 1 or more */
}
static uint32_t slots_of(const struct sparse *piece) {
    return piece->lines * LINE_SLOTS - HEAD_SLOTS;
}
/* Returns the place where the walk for a register begins. It is the same for all threads. */
static uint32_t walk_start(uint32_t index, uint32_t slots) {
    uint32_t mixed = index * UINT32_C(0x9e3779b1); /* neighbours lie apart */
    return (uint32_t)((uint64_t)mixed * slots >> 32);
}
static uint64_t local_of(uint32_t form, uint32_t line) {
    return (uint64_t)line << TWI_SKETCH_LINE_SHIFT | (uint64_t)form << TWI_SKETCH_FORM_SHIFT;
}

/* ---- growing ---- */

/* Puts a register into a piece that no other thread can reach. */
static void put_private(void *piece, uint32_t form, uint32_t index, uint32_t value) {
    if (form == TWI_SKETCH_DENSE) {
        _Atomic uint64_t *word = (_Atomic uint64_t *)piece + index / 8;
        twi_store_relaxed(word, twi_load_relaxed(word) | (uint64_t)value << index % 8 * 8);
        return;
    }
    struct sparse *sparse = piece;
    uint32_t slots = slots_of(sparse), at = walk_start(index, slots);
    while (!slot_is_empty(twi_load_relaxed(&sparse->slots[at]))) at = at + 1 == slots ? 0 : at + 1;
    twi_store_relaxed(&sparse->slots[at], slot_of(index, value));
    twi_store_relaxed(&sparse->used, (uint16_t)(twi_load_relaxed(&sparse->used) + 1));
}

/* Ends all changes to the old piece, and copies its registers. One operation closes a slot and reads it, so the
 * copied value is final (Y2). It is relaxed, because U1 publishes the copy, and a slot makes no statement about
 * other memory. */
static void close_and_copy(struct sparse *old, void *piece, uint32_t form) {
    uint32_t slots = slots_of(old);
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t slot = twi_or_relaxed(&old->slots[i], SLOT_CLOSED);
        if (!slot_is_empty(slot)) put_private(piece, form, slot_index(slot), slot & SLOT_VALUE);
        if (i == 0) {
            TWI_RACE_POINT(sketch_slot_closed);
        }
    }
}

/* The old piece is in no cell any more, but threads may still read it. The piece no longer counts as memory of its
 * generation, because the generation may be dropped before the turn gives the piece back. */
static void retire(const struct twi_sketch *sketch, struct sparse *old) {
    uint32_t line = twi_arena_line(sketch->arena, old), head;
    twi_piece_disown(sketch->generation, old->lines);
    /* U3, pairs with U4 */
    twi_push(&sketch->retired->newest, line, head, twi_store_relaxed(&old->next_retired, head));
}

/* Publishes the copy in place of the piece that `local` names. Returns false if another thread has published a copy,
 * or the turn seals the sketch. */
static bool publish(struct twi_cell *cell, uint64_t local, uint64_t copy) {
    TWI_RACE_POINT(sketch_copied_not_published);
    for (;;) {
        uint64_t found = local;
        if (twi_cas_acqrel(&cell->local, &found, copy | (local & TWI_SKETCH_FLAGS)))
            return true; /* U1, pairs with U2 */
        if (((found ^ local) & ~TWI_DIRTY) != 0) return false;
        local = found;
    }
}

/* Makes the next larger piece, unless another thread has done so first. TWI_RAISE_NONE means that there is another
 * piece now. TWI_RAISE_NO_ROOM means that there is no memory, and that no slot was closed. */
static enum twi_raise grow(const struct twi_sketch *sketch, uint64_t local) {
    uint32_t form = twi_sketch_form(local) + 1, lines = twi_sketch_lines_of_form(form);
    /* memory is taken before the first slot is closed (E15) */
    uint32_t line = twi_piece_take(sketch->arena, sketch->generation, lines);
    if (line == 0) return TWI_RAISE_NO_ROOM;
    void *piece = twi_arena_at(sketch->arena, line);
    struct sparse *old = NULL;
    if (form != TWI_SKETCH_DENSE) ((struct sparse *)piece)->lines = (uint16_t)lines;
    if (twi_sketch_form(local) != TWI_SKETCH_NONE) {
        old = twi_arena_at(sketch->arena, twi_sketch_line(local));
        close_and_copy(old, piece, form);
    }
    if (!publish(sketch->cell, local, local_of(form, line)))
        twi_piece_give(sketch->arena, sketch->generation, line, lines);
    else if (old != NULL)
        retire(sketch, old);
    return TWI_RAISE_NONE;
}

/* ---- raising ---- */

static enum twi_raise raise_dense(_Atomic uint64_t *words, struct twi_hll_element element) {
    _Atomic uint64_t *at = &words[element.index / 8];
    uint32_t shift = element.index % 8 * 8;
    uint64_t word = twi_load_relaxed(at), after;
    do {
        if ((word & TWI_SKETCH_WORD_CLOSED) != 0) return TWI_RAISE_FROZEN;
        if ((word >> shift & TWI_SKETCH_VALUE_MASK) >= element.value) return TWI_RAISE_NONE;
        after = (word & ~(TWI_SKETCH_VALUE_MASK << shift)) | (uint64_t)element.value << shift;
    } while (!twi_cas_relaxed(at, &word, after)); /* relaxed, because a word makes no statement about other memory */
    return TWI_RAISED;
}

/* A piece of one line is filled to its last slot. A larger piece is not, so that walks stay short. */
static bool is_filled(struct sparse *piece) {
    uint32_t slots = slots_of(piece);
    return piece->lines > 1 && twi_load_relaxed(&piece->used) >= slots - slots / 4;
}

enum seen { SEEN_NONE, SEEN_RAISED, SEEN_CLOSED, SEEN_FULL };

/* Raises the register in its slot, or in the first EMPTY slot. `may_take` means that an EMPTY slot may be taken. */
static enum seen raise_sparse(struct sparse *piece, struct twi_hll_element element, bool may_take) {
    uint32_t slots = slots_of(piece), at = walk_start(element.index, slots), left = slots;
    uint32_t wanted = slot_of(element.index, element.value), slot = twi_load_relaxed(&piece->slots[at]);
    while (left != 0) {
        bool is_empty = slot_is_empty(slot);
        if ((slot & SLOT_CLOSED) != 0) return SEEN_CLOSED;
        if (is_empty && !may_take) return SEEN_FULL;
        if (is_empty || slot_index(slot) == element.index) {
            if (slot >= wanted) return SEEN_NONE;
            TWI_RACE_POINT(sketch_slot_seen);
            if (!twi_cas_relaxed(&piece->slots[at], &slot, wanted)) continue; /* Y1: looks at the same slot again */
            if (is_empty) (void)twi_add_relaxed(&piece->used, 1);
            return SEEN_RAISED;
        }
        at = at + 1 == slots ? 0 : at + 1;
        left--;
        slot = twi_load_relaxed(&piece->slots[at]);
    }
    return SEEN_FULL;
}

enum twi_raise twi_sketch_raise_slow(const struct twi_sketch *sketch, struct twi_hll_element element) {
    bool has_memory = true; /* if there is no memory, the rest of the piece is filled before the call is refused */
    for (;;) {
        uint64_t local = twi_load_acquire(&sketch->cell->local); /* U2 */
        uint32_t form = twi_sketch_form(local);
        bool is_sealed = (local & (TWI_FROZEN | TWI_SKETCH_SEALING)) != 0;
        if (form == TWI_SKETCH_DENSE) return raise_dense(twi_arena_at(sketch->arena, twi_sketch_line(local)), element);
        enum seen seen = SEEN_FULL;
        if (form != TWI_SKETCH_NONE) {
            struct sparse *piece = twi_arena_at(sketch->arena, twi_sketch_line(local));
            seen = raise_sparse(piece, element, !has_memory || !is_filled(piece));
        }
        if (seen == SEEN_NONE || seen == SEEN_RAISED) return seen == SEEN_RAISED ? TWI_RAISED : TWI_RAISE_NONE;
        if (is_sealed) return TWI_RAISE_FROZEN;
        if (!has_memory) return TWI_RAISE_NO_ROOM;
        has_memory = grow(sketch, local) != TWI_RAISE_NO_ROOM;
    }
}

/* ---- estimating ---- */

static void count_dense(_Atomic uint64_t *words, struct twi_hll_histogram *histogram) {
    for (uint32_t i = 0; i < WORDS; i++) {
        uint64_t word = twi_load_relaxed(&words[i]);
        for (uint32_t shift = 0; shift < 64; shift += 8) histogram->registers[word >> shift & TWI_SKETCH_VALUE_MASK]++;
    }
}

static void count_sparse(struct sparse *piece, struct twi_hll_histogram *histogram) {
    uint32_t slots = slots_of(piece), set = 0;
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t slot = twi_load_relaxed(&piece->slots[i]);
        if (slot_is_empty(slot)) continue;
        histogram->registers[slot & SLOT_VALUE]++;
        set++;
    }
    histogram->registers[0] = TWI_HLL_REGISTERS - set;
}

static int64_t estimate(const struct twi_arena *arena, uint64_t local) {
    struct twi_hll_histogram histogram = {{0}};
    if (twi_sketch_form(local) == TWI_SKETCH_NONE) return 0;
    void *piece = twi_arena_at(arena, twi_sketch_line(local));
    if (twi_sketch_form(local) == TWI_SKETCH_DENSE)
        count_dense(piece, &histogram);
    else
        count_sparse(piece, &histogram);
    return twi_hll_estimate(&histogram);
}

int64_t twi_sketch_estimate(const struct twi_arena *arena, struct twi_cell *cell, uint64_t meta) {
    uint64_t local = twi_load_acquire(&cell->local); /* U2; C2, pairs with C1: `final` */
    if ((local & TWI_FROZEN) != 0) return twi_load_relaxed(twi_cell_final(cell, meta));
    return estimate(arena, local);
}

/* ---- for Redis ---- */

void twi_sketch_read(const struct twi_arena *arena, struct twi_cell *cell, uint8_t registers[TWI_HLL_REGISTERS]) {
    uint64_t local = twi_load_acquire(&cell->local); /* U2 */
    void *piece = twi_arena_at(arena, twi_sketch_line(local));
    memset(registers, 0, TWI_HLL_REGISTERS);
    if (twi_sketch_form(local) == TWI_SKETCH_DENSE) {
        for (uint32_t i = 0; i < TWI_HLL_REGISTERS; i += 8) {
            uint64_t word = twi_load_relaxed((_Atomic uint64_t *)piece + i / 8);
            for (uint32_t k = 0; k < 8; k++) registers[i + k] = (uint8_t)(word >> 8 * k & TWI_SKETCH_VALUE_MASK);
        }
    } else if (twi_sketch_form(local) != TWI_SKETCH_NONE) {
        struct sparse *sparse = piece;
        for (uint32_t i = 0; i < slots_of(sparse); i++) {
            uint32_t slot = twi_load_relaxed(&sparse->slots[i]);
            if (!slot_is_empty(slot)) registers[slot_index(slot)] = (uint8_t)(slot & SLOT_VALUE);
        }
    }
}

/* Four sums of 16 bits in one word: the sum of 256 words with two registers each is below 2^16. */
#define SUM_WORDS 256u
#define SUM_LANES UINT64_C(0x003f003f003f003f)

static int64_t sum_dense(_Atomic uint64_t *words) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < WORDS; i += SUM_WORDS) {
        uint64_t lanes = 0;
        for (uint32_t k = i; k < i + SUM_WORDS; k++) {
            uint64_t word = twi_load_relaxed(&words[k]);
            lanes += (word & SUM_LANES) + (word >> 8 & SUM_LANES);
        }
        for (uint32_t shift = 0; shift < 64; shift += 16) sum += (int64_t)(lanes >> shift & 0xffff);
    }
    return sum;
}

int64_t twi_sketch_sum(const struct twi_arena *arena, struct twi_cell *cell) {
    uint64_t local = twi_load_acquire(&cell->local); /* U2 */
    int64_t sum = 0;
    void *piece = twi_arena_at(arena, twi_sketch_line(local));
    if (twi_sketch_form(local) == TWI_SKETCH_DENSE) return sum_dense(piece);
    if (twi_sketch_form(local) == TWI_SKETCH_NONE) return 0;
    struct sparse *sparse = piece;
    for (uint32_t i = 0; i < slots_of(sparse); i++) sum += (int64_t)(twi_load_relaxed(&sparse->slots[i]) & SLOT_VALUE);
    return sum;
}

/* ---- sealing ---- */

static void close_all(const struct twi_arena *arena, uint64_t local) {
    void *piece = twi_arena_at(arena, twi_sketch_line(local));
    if (twi_sketch_form(local) == TWI_SKETCH_DENSE) {
        _Atomic uint64_t *words = piece;
        for (uint32_t i = 0; i < WORDS; i++) (void)twi_or_relaxed(&words[i], TWI_SKETCH_WORD_CLOSED);
    } else if (twi_sketch_form(local) != TWI_SKETCH_NONE) {
        struct sparse *sparse = piece;
        for (uint32_t i = 0; i < slots_of(sparse); i++) (void)twi_or_relaxed(&sparse->slots[i], SLOT_CLOSED);
    }
}

int64_t twi_sketch_freeze(const struct twi_arena *arena, struct twi_cell *cell, uint64_t meta, uint32_t *lines) {
    _Atomic int64_t *final = twi_cell_final(cell, meta);
    *lines = 0;
    if ((twi_load_relaxed(&cell->local) & TWI_FROZEN) != 0) return twi_load_relaxed(final);
    /* U5, pairs with U1, so from here on the piece stays, and it is complete */
    uint64_t local = twi_or_acqrel(&cell->local, TWI_SKETCH_SEALING);
    TWI_RACE_POINT(sketch_sealing_not_closed);
    close_all(arena, local);
    int64_t value = estimate(arena, local);
    twi_store_relaxed(final, value);
    TWI_RACE_POINT(final_stored_not_frozen);
    (void)twi_or_acqrel(&cell->local, TWI_FROZEN); /* C1, pairs with C2: `final` is stored before FROZEN */
    *lines = 1 + twi_sketch_lines_of_form(twi_sketch_form(local));
    return value;
}

/* ---- giving back ---- */

bool twi_sketch_give(struct twi_arena *arena, struct twi_generation *generation, struct twi_chunk *chunk,
                     uint32_t *work) {
    uint32_t used = twi_load_relaxed(&chunk->used);
    if (used > chunk->capacity) used = chunk->capacity;
    for (uint32_t index = 0; index < used; index++) {
        struct twi_cell *cell = twi_chunk_cell(chunk, index, generation->synced);
        uint64_t local = twi_load_relaxed(&cell->local);
        uint32_t lines = twi_sketch_lines_of_form(twi_sketch_form(local));
        if (lines == 0) continue;
        if (*work < lines) return false;
        *work -= lines;
        twi_store_relaxed(&cell->local, 0);
        twi_piece_give(arena, generation, twi_sketch_line(local), lines);
    }
    return true;
}

bool twi_sketch_reclaim(struct twi_arena *arena, struct twi_sketch_retired *retired) {
    if (retired->waiting == 0 && twi_load_relaxed(&retired->newest) == 0) return false;
    if (retired->waiting != 0 && retired->stamp < twi_epoch_reached()) {
        while (retired->waiting != 0) {
            struct sparse *piece = twi_arena_at(arena, retired->waiting);
            uint32_t line = retired->waiting;
            retired->waiting = twi_load_relaxed(&piece->next_retired);
            twi_arena_give(arena, line, piece->lines);
        }
    }
    if (retired->waiting == 0) {
        retired->stamp = UINT64_MAX;
        retired->waiting = twi_swap_acqrel(&retired->newest, 0); /* U4, pairs with U3 */
        if (retired->waiting != 0) retired->stamp = twi_epoch_stamp();
    }
    return retired->waiting != 0;
}
