// sketches.cpp -- models of engine/table/sketch.*: registers rise while the sketch grows, is read and is sealed.
// A sketch has pieces of one slot, of two, and a dense one of three registers; all three are in the walk of each. Left
// out: memory that runs out, `used` (a piece is full when its slots are), several registers in a dense word, and the
// grace period of retired pieces (reclaim.cpp), whose list is a model of its own.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/table/sketch.h:twi_sketch_raise 992af0e7ebc0
//   engine/table/sketch.c:put_private f2b8263f7ca5
//   engine/table/sketch.c:close_and_copy 4c5720c04492
//   engine/table/sketch.c:retire d20cfce03b70
//   engine/table/sketch.c:publish 81345e94233c
//   engine/table/sketch.c:grow 0ebedf9ef22c
//   engine/table/sketch.c:raise_dense 83b42914fe3d
//   engine/table/sketch.c:raise_sparse 6b7b0c3390aa
//   engine/table/sketch.c:twi_sketch_raise_slow 5b960aa15512
//   engine/table/sketch.c:estimate 1b3155c9b577
//   engine/table/sketch.c:twi_sketch_estimate bcbcfede190e
//   engine/table/sketch.c:close_all 4ca0bb3db62a
//   engine/table/sketch.c:twi_sketch_freeze d1940d6a5bbd
//   engine/table/sketch.c:twi_sketch_reclaim 34a40ae0df69
#include "tests/orderings/model.hpp"

enum { FROZEN = 1, SEALING = 2, FLAGS = 3, PIECE_SHIFT = 2 };
enum { CLOSED = 0x80, INDEX_SHIFT = 4, VALUE = 0xf };
enum { REGISTERS = 3, DENSE = 3, PIECES = 12 }; // forms: pieces of 1 slot, of 2 slots, dense
enum raise { NOTHING, RAISED, RAISE_FROZEN };
enum seen { SEEN_NONE, SEEN_RAISED, SEEN_CLOSED, SEEN_FULL };

// What is counted of a sketch: each register in four bits.
struct sketch {
    struct piece {
        rl::var<unsigned> form; // set before sharing
        rl::atomic<unsigned> slots[REGISTERS];
    };
    rl::atomic<unsigned> local;
    rl::atomic<int> final;
    rl::atomic<unsigned> taken; // the arena
    piece pieces[PIECES];

    void begin() {
        twi_store_relaxed(&local, 0u);
        twi_store_relaxed(&final, 0);
        twi_store_relaxed(&taken, 1u);
        for (unsigned i = 0; i < PIECES; i++)
            for (unsigned j = 0; j < REGISTERS; j++) twi_store_relaxed(&pieces[i].slots[j], 0u);
    }
    static bool is_empty(unsigned slot) {
        return (slot & VALUE) == 0;
    }
    static unsigned index_of(unsigned slot) {
        return (slot & ~(unsigned)CLOSED) >> INDEX_SHIFT;
    }
    unsigned form_of(unsigned word) {
        return word >> PIECE_SHIFT == 0 ? 0 : VAR(pieces[word >> PIECE_SHIFT].form);
    }

    // ---- growing

    void put_private(piece *to, unsigned form, unsigned index, unsigned value) {
        unsigned at = form == DENSE ? index : 0;
        while (form != DENSE && !is_empty(twi_load_relaxed(&to->slots[at]))) at++;
        twi_store_relaxed(&to->slots[at], index << INDEX_SHIFT | value);
    }
    void close_and_copy(piece *old, unsigned slots, piece *to, unsigned form) {
        for (unsigned i = 0; i < slots; i++) {
            unsigned slot = 0;
            if (is_weak(U1, STEP)) { // U1 step: read, then closed
                slot = twi_load_relaxed(&old->slots[i]);
                (void)twi_or_relaxed(&old->slots[i], (unsigned)CLOSED);
            } else {
                slot = twi_or_relaxed(&old->slots[i], (unsigned)CLOSED);
            }
            if (!is_empty(slot)) put_private(to, form, index_of(slot), slot & VALUE);
        }
    }
    bool publish(unsigned word, unsigned copy) {
        unsigned found = word; // there is no DIRTY here: a failure is another piece, or the seal
        return twi_cas_acqrel(&local, &found, copy << PIECE_SHIFT | (word & FLAGS), U1);
    }
    void grow(unsigned word) {
        unsigned form = form_of(word) + 1, number = twi_add_relaxed(&taken, 1u);
        RL_ASSERT(number < PIECES);
        VAR(pieces[number].form) = form;
        if (form > 1) close_and_copy(&pieces[word >> PIECE_SHIFT], form - 1, &pieces[number], form);
        (void)publish(word, number);
    }

    // ---- raising

    raise raise_dense(piece *to, unsigned index, unsigned value) {
        unsigned slot = twi_load_relaxed(&to->slots[index]);
        for (;;) {
            if ((slot & CLOSED) != 0) return RAISE_FROZEN;
            if ((slot & VALUE) >= value) return NOTHING;
            if (to->slots[index].compare_exchange_strong(slot, index << INDEX_SHIFT | value, rl::mo_relaxed, $,
                                                         rl::mo_relaxed, $))
                return RAISED;
        }
    }
    seen raise_sparse(piece *to, unsigned slots, unsigned index, unsigned value) {
        unsigned at = 0, wanted = index << INDEX_SHIFT | value, slot = twi_load_relaxed(&to->slots[0]);
        while (at < slots) {
            if ((slot & CLOSED) != 0) return SEEN_CLOSED;
            if (is_empty(slot) || index_of(slot) == index) {
                if (slot >= wanted) return SEEN_NONE;
                if (!to->slots[at].compare_exchange_strong(slot, wanted, rl::mo_relaxed, $, rl::mo_relaxed, $))
                    continue;
                return SEEN_RAISED;
            }
            if (++at < slots) slot = twi_load_relaxed(&to->slots[at]);
        }
        return SEEN_FULL;
    }
    raise add(unsigned index, unsigned value) {
        for (;;) {
            unsigned word = twi_load_acquire(&local, U2), form = form_of(word);
            if (form == DENSE) return raise_dense(&pieces[word >> PIECE_SHIFT], index, value);
            seen seen = SEEN_FULL;
            if (form != 0) seen = raise_sparse(&pieces[word >> PIECE_SHIFT], form, index, value);
            if (seen == SEEN_NONE || seen == SEEN_RAISED) return seen == SEEN_RAISED ? RAISED : NOTHING;
            if ((word & (FROZEN | SEALING)) != 0) return RAISE_FROZEN;
            grow(word);
        }
    }

    // ---- estimating and sealing

    int count(unsigned word) {
        int all = 0;
        unsigned form = form_of(word);
        for (unsigned i = 0; i < form; i++) {
            unsigned slot = twi_load_relaxed(&pieces[word >> PIECE_SHIFT].slots[i]);
            if (!is_empty(slot)) {
                RL_ASSERT((all >> 4 * index_of(slot) & 15) == 0); // Y1
                all |= (int)(slot & VALUE) << 4 * index_of(slot);
            }
        }
        return all;
    }
    int read() {
        unsigned word = twi_load_acquire(&local, is_weak(C2, ACQUIRE) ? C2 : U2);
        if ((word & FROZEN) != 0) return twi_load_relaxed(&final);
        return count(word);
    }
    int seal() {
        unsigned word;
        if (is_weak(U5, STEP)) // U5 step: closed, and nobody is told that it is for good
            word = twi_load_acquire(&local, NONE);
        else
            word = twi_or_acqrel(&local, (unsigned)SEALING, U5);
        unsigned form = form_of(word);
        for (unsigned i = 0; i < form; i++)
            (void)twi_or_relaxed(&pieces[word >> PIECE_SHIFT].slots[i], (unsigned)CLOSED);
        int value = count(word);
        if (!is_weak(C1, STEP)) twi_store_relaxed(&final, value);
        (void)twi_or_acqrel(&local, (unsigned)(FROZEN | SEALING), C1);
        if (is_weak(C1, STEP)) twi_store_relaxed(&final, value); // C1 step: FROZEN first
        return value;
    }
};

static bool holds(int all, unsigned index, unsigned value) {
    return (all >> 4 * index & 15) >= (int)value;
}

// Three registers, raised by two threads, through all forms; a third one reads, or seals. What was added is read, by
// the adder at once (P3), and by anybody who knows of it; nothing else is; of two that add one element one is told of a
// change.
template <bool seals> struct raising : rl::test_suite<raising<seals>, 3> {
    sketch s;
    rl::atomic<int> same_raised; // by how many threads the element that both add raised its register
    rl::atomic<int> added[REGISTERS];
    int sealed;
    void before() {
        s.begin();
        sealed = -1;
        twi_store_relaxed(&same_raised, 0);
        for (int i = 0; i < REGISTERS; i++) twi_store_relaxed(&added[i], 0);
    }
    void add(unsigned index, unsigned value, bool is_same) {
        raise done = s.add(index, value);
        RL_ASSERT(seals || done != RAISE_FROZEN);
        if (done == RAISE_FROZEN) return;
        if (is_same && done == RAISED) (void)twi_add_relaxed(&same_raised, 1);
        int most = twi_load_relaxed(&added[index]);
        while (most < (int)value &&
               !added[index].compare_exchange_strong(most, (int)value, rl::mo_acq_rel, $, rl::mo_acquire, $)) {}
        RL_ASSERT(holds(s.read(), index, value)); // P3
    }
    void thread(unsigned index) {
        if (index == 0) {
            add(0, 1, false);
            add(1, 2, true);
            add(2, 1, false);
        } else if (index == 1) {
            add(2, 3, false);
            add(1, 2, true);
            add(0, 2, false);
        } else if (seals) {
            sealed = s.seal();
            RL_ASSERT(s.read() == sealed);
        } else {
            int returned[REGISTERS];
            for (int i = 0; i < REGISTERS; i++) returned[i] = twi_load_acquire(&added[i], NONE);
            int all = s.read();
            for (unsigned i = 0; i < REGISTERS; i++) RL_ASSERT(holds(all, i, (unsigned)returned[i]));
        }
    }
    void after() {
        int all = 0;
        for (int i = 0; i < REGISTERS; i++) all |= twi_load_relaxed(&added[i]) << 4 * i;
        RL_ASSERT(s.read() == all);
        RL_ASSERT(!seals || sealed == all);
        RL_ASSERT(twi_load_relaxed(&same_raised) <= 1);
    }
};

// Two threads retire pieces, the turn takes the list whole: each piece is given back once.
struct retiring : rl::test_suite<retiring, 3> {
    enum { EACH = 2 };
    rl::atomic<unsigned> newest;
    rl::atomic<unsigned> next[2 * EACH + 1];
    rl::atomic<unsigned> given[2 * EACH + 1];
    void before() {
        twi_store_relaxed(&newest, 0u);
        for (unsigned i = 0; i <= 2 * EACH; i++) {
            twi_store_relaxed(&next[i], 0u);
            twi_store_relaxed(&given[i], 0u);
        }
    }
    void give(unsigned line) {
        while (line != 0) {
            unsigned older = twi_load_relaxed(&next[line]);
            RL_ASSERT(twi_add_relaxed(&given[line], 1u) == 0);
            line = older;
        }
    }
    void thread(unsigned index) {
        if (index == 2) {
            for (int i = 0; i < 2; i++) give(twi_swap_acqrel(&newest, 0u, U4));
            return;
        }
        for (unsigned i = 0; i < EACH; i++) {
            unsigned line = 1 + index * EACH + i, head = twi_load_relaxed(&newest);
            do {
                twi_store_relaxed(&next[line], head);
            } while (!twi_cas_weak_acqrel(&newest, &head, line, U3));
        }
    }
    void after() {
        give(twi_swap_acqrel(&newest, 0u, NONE));
        for (unsigned i = 1; i <= 2 * EACH; i++) RL_ASSERT(twi_load_relaxed(&given[i]) == 1);
    }
};

typedef raising<false> raising_open;
typedef raising<true> raising_sealed;

int main() {
    const char *reads =
        "the copier has acquired that piece before (U2), and its swap writes what the next one acquires";
    const model_mutant grow[] = {
        {U1, RELEASE, NULL},
        {U1, STEP, NULL},
        {U2, ACQUIRE, NULL},
        {U1, ACQUIRE, reads},
    };
    const model_mutant seal[] = {
        {U5, ACQUIRE, NULL},
        {U5, STEP, NULL},
        {U5, RELEASE, "the turn has written nothing that others read through this word"},
        {C1, STEP, NULL},
        {C1, RELEASE, NULL},
        {C2, ACQUIRE, NULL},
        {U1, RELEASE, NULL},
    };
    const model_mutant retire[] = {
        {U3, RELEASE, NULL},
        {U4, ACQUIRE, NULL},
        {U3, ACQUIRE, "a pusher reads nothing of the pieces below"},
        {U4, RELEASE, "the turn has written nothing yet"},
    };
    int wrong = MODEL_RUN(raising_open, "sketches", 50000, grow);
    wrong += MODEL_RUN(raising_sealed, "sketches, sealed", 50000, seal);
    wrong += MODEL_RUN(retiring, "retired pieces", 30000, retire);
    return wrong != 0;
}
