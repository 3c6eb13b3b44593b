/* sketch.h -- the sketch of a counter of distinct elements. It has the registers of a HyperLogLog (hll.h), and its
 * memory grows with the counter.
 *
 *   cell.local    | line of the piece : 32 | form : 8 | ............ : 21 | SEALING | DIRTY | FROZEN |
 *   sparse piece  | link : 32 | lines : 16 | used : 16 | slot ...         |    1, 2, 4 ... 128 lines
 *   slot          | CLOSED : 1 | ... : 11 | index : 14 | value : 6        |    0: EMPTY
 *   dense piece   | 8 registers ... | 2048 words. Each register has 8 bits; the highest bit of a word is CLOSED
 *
 * A sketch begins as one line with 14 slots, one slot for each register that is not 0. Its size doubles, and at last it
 * becomes dense. A slot changes from EMPTY to (index, value) by compare-and-swap. Then its index never changes, and its
 * value only rises. A dense register only rises, too. So the maximum of a register is exact under any interleaving.
 *
 * A sparse piece grows like a leaf of the index (table.h). Memory for the copy is taken first. Then every slot is
 * CLOSED, which ends all changes. The copy is filled, and one compare-and-swap of `local` publishes it (U1). Any thread
 * can do all of these steps, so a thread that finds CLOSED makes the copy itself and does not wait. The thread whose
 * copy was published retires the old piece. Other threads may still read the old piece, so the turn gives it back one
 * grace period later (twi_sketch_reclaim()). A thread whose copy was not published gives that copy back at once. No
 * other thread has seen it.
 *
 * The turn seals a sketch in three steps. First SEALING, after which no copy is published (U5). Then every slot or word
 * becomes CLOSED. Then `final` becomes the estimate, and FROZEN marks it as valid (C1). Without SEALING, a thread that
 * finds CLOSED would assume that the sketch grows.
 *
 * Always true:
 *   Y1 a register is in at most one slot of a piece: all threads walk the same slots and take the first EMPTY one.
 *   Y2 each register of a CLOSED piece is in its copy. The copy is made of closed slots, which never change.
 *   Y3 if a raise returned TWI_RAISED or TWI_RAISE_NONE, it is in `final`, and in each estimate that begins later. A
 *   piece is in exactly one place: in a cell, in the list of retired pieces, or in use by one thread.
 * Threads: any thread calls all functions except those of the turn, lock-free, inside a section.
 * Elsewhere: proofs (docs/CONCURRENCY.md), the calls (count/distinct.c). */
#ifndef TWI_TABLE_SKETCH_H
#define TWI_TABLE_SKETCH_H

#include "engine/base/hll.h"
#include "engine/table/layout.h"

#define TWI_SKETCH_SEALING UINT64_C(4) /* a bit of cell.local, next to TWI_FROZEN and TWI_DIRTY */
#define TWI_SKETCH_FLAGS (TWI_FROZEN | TWI_DIRTY | TWI_SKETCH_SEALING)
#define TWI_SKETCH_FORM_SHIFT 24
#define TWI_SKETCH_LINE_SHIFT 32

/* Forms: 0 has no element yet; 1 + log2 of the number of lines is a sparse piece; the last form is dense. */
enum { TWI_SKETCH_NONE = 0, TWI_SKETCH_SPARSE_LAST = 8, TWI_SKETCH_DENSE = 9 };
#define TWI_SKETCH_DENSE_LINES (TWI_HLL_REGISTERS / TWI_LINE_BYTES)
#define TWI_SKETCH_WORD_CLOSED (UINT64_C(1) << 63)
#define TWI_SKETCH_VALUE_MASK UINT64_C(63)

/* Pieces that a copy has replaced and that threads may still read. */
struct twi_sketch_retired {
    _Atomic uint32_t newest; /* any thread pushes a piece; the turn takes the whole list */
    uint32_t waiting;        /* only the turn uses the next fields; this is a list that waits for its grace period */
    uint64_t stamp;
};

/* A sketch, and the parameters of its growth. */
struct twi_sketch {
    struct twi_arena *arena;
    struct twi_generation *generation;
    struct twi_sketch_retired *retired;
    struct twi_cell *cell;
};

enum twi_raise {
    TWI_RAISE_NONE,   /* the register was already that high */
    TWI_RAISED,       /* the register is higher now */
    TWI_RAISE_FROZEN, /* the counter is sealed or is being sealed, so the call decides again by the clock */
    TWI_RAISE_NO_ROOM /* there is no memory for a larger piece, and no register was changed */
};

TWI_INLINE uint32_t twi_sketch_form(uint64_t local) {
    return (uint32_t)(local >> TWI_SKETCH_FORM_SHIFT) & 0xff;
}
TWI_INLINE uint32_t twi_sketch_line(uint64_t local) {
    return (uint32_t)(local >> TWI_SKETCH_LINE_SHIFT);
}
TWI_INLINE uint32_t twi_sketch_lines_of_form(uint32_t form) {
    return form == TWI_SKETCH_DENSE ? TWI_SKETCH_DENSE_LINES : form == TWI_SKETCH_NONE ? 0 : UINT32_C(1) << (form - 1);
}

/* Returns how many lines the sketch has now. */
TWI_INLINE uint32_t twi_sketch_lines(struct twi_cell *cell) {
    return twi_sketch_lines_of_form(twi_sketch_form(twi_load_relaxed(&cell->local)));
}

/* Handles all cases: sparse pieces, growth, and a dense word that must be changed. */
enum twi_raise twi_sketch_raise_slow(const struct twi_sketch *sketch, struct twi_hll_element element);

/* Raises the register of the element. In the usual case, a dense register that is high enough, this needs two loads. */
TWI_INLINE enum twi_raise twi_sketch_raise(const struct twi_sketch *sketch, struct twi_hll_element element) {
    uint64_t local = twi_load_acquire(&sketch->cell->local); /* U2, pairs with U1: the piece is complete */
    if (twi_likely(twi_sketch_form(local) == TWI_SKETCH_DENSE)) {
        _Atomic uint64_t *words = twi_arena_at(sketch->arena, twi_sketch_line(local));
        /* relaxed, because a word makes no statement about other memory */
        uint64_t word = twi_load_relaxed(&words[element.index / 8]);
        uint32_t value = (uint32_t)(word >> element.index % 8 * 8 & TWI_SKETCH_VALUE_MASK);
        if (twi_likely(value >= element.value) && twi_likely((word & TWI_SKETCH_WORD_CLOSED) == 0))
            return TWI_RAISE_NONE;
    }
    return twi_sketch_raise_slow(sketch, element);
}

/* Returns the estimate of an open counter or of a frozen one. It includes each element whose add returned earlier.
 * Cost: it reads the whole sketch. */
int64_t twi_sketch_estimate(const struct twi_arena *arena, struct twi_cell *cell, uint64_t meta);

/* Called by the turn. Reads all registers, one byte each. They include each raise that was made before a thread set
 * the DIRTY that the turn has cleared (D2). */
void twi_sketch_read(const struct twi_arena *arena, struct twi_cell *cell, uint8_t registers[TWI_HLL_REGISTERS]);
/* Called by the turn. Returns the sum of all registers. Each raise increases the sum, so the sum shows whether there
 * was a raise. */
int64_t twi_sketch_sum(const struct twi_arena *arena, struct twi_cell *cell);

/* Called by the turn. Seals the sketch. Returns the estimate, which is in `final` from then on. *lines becomes the
 * number of lines that were closed, or 0 if the sketch was already frozen. */
int64_t twi_sketch_freeze(const struct twi_arena *arena, struct twi_cell *cell, uint64_t meta, uint32_t *lines);

/* Called by the turn, when no thread can reach the records of this chunk any more. Gives the sketches of its records
 * back. Returns false if *work is used up. The next call continues. */
bool twi_sketch_give(struct twi_arena *arena, struct twi_generation *generation, struct twi_chunk *chunk,
                     uint32_t *work);

/* Called by the turn. Gives back the pieces that were retired a grace period ago. True: some still wait for that. */
bool twi_sketch_reclaim(struct twi_arena *arena, struct twi_sketch_retired *retired);

#endif
