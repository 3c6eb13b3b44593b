// marks.cpp -- models of engine/count/dirty.c and of the collecting in collect.c: who marks what, and that a flush sees
// it. Labels that the table of docs/CONCURRENCY.md has beside D1 to D4: D5, D6 the bits of a chunk (set, taken); D7, D8
// the lists of chunks and of windows (pushed, taken whole).
// Left out: what drivers return, the turn's own lists (`owed`: only the turn touches them), the overflow counter, room
// that runs out, sorting; the window's words are two chunks of two counters.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/count/dirty.c:list_generation 463a678f46de
//   engine/memory/epoch.c:twi_thread_claim 78e2646ed67b
//   engine/memory/epoch.h:twi_marking_begin 97aa86280ad5
//   engine/memory/epoch.h:twi_marking_end b0ff3c30a967
//   engine/count/dirty.c:is_in e7ea6034a992
//   engine/count/dirty.c:take_claims_back b21a1b510950
//   engine/count/dirty.c:twi_dirty_heal 8a7b9d745514
//   engine/count/dirty.c:set_bit e40df7ba745a
//   engine/count/dirty.c:twi_dirty_list af1cd8c05fad
//   engine/count/dirty.c:twi_dirty_mark e236908cbaf1
//   engine/count/dirty.c:twi_dirty_take_marked cfa608c83c73
//   engine/turn/collect.c:make_distinct c7602e071abe
//   engine/turn/collect.c:make_item 937c41ed0439
//   engine/turn/collect.c:collect_chunk c4689fd6ceaf
//   engine/turn/collect.c:next_chunk 638b129e185d
//   engine/turn/collect.c:collect_pass 63dd9ae73ca8
//   engine/turn/collect.c:is_exhausted 50834d255471
//   engine/turn/collect.c:pend_if_marked bcfd97dcade1
//   engine/turn/collect.c:begin_full_collection 7d55aec8267b
//   engine/table/cell.h:twi_cell_add 72eaafb4aea3
#include "tests/orderings/model.hpp"

enum { FROZEN = 1, DIRTY = 2, COUNT_SHIFT = 2, CHUNKS = 2, CELLS = 2 };

struct marks {
    struct cell {
        rl::atomic<unsigned> local;
        rl::atomic<unsigned> raised; // of a counter of distinct elements: a register, which only rises
        unsigned handed;             // the turn's own
    };
    struct chunk {
        rl::atomic<unsigned> bits;
        rl::atomic<unsigned> listed;
        rl::var<unsigned> next_marked;
        cell cells[CELLS];
    };
    chunk chunks[CHUNKS + 1];               // number 0: none
    rl::atomic<unsigned> generation_marked; // newest marked chunk
    rl::atomic<unsigned> generation_listed;
    rl::var<unsigned> generation_next_marked;
    rl::atomic<unsigned> engine_marked; // newest marked window: 1, or none
    bool naps, distinct;
    // A thread that ends in between. Its slot: the counter that it marks (chunk and counter, 0: none); the mutex.
    rl::atomic<unsigned> marking, ended;
    unsigned mortal, last; // the thread, and the step that is its last one
    // the turn's own
    unsigned taken;
    bool owed[CHUNKS + 1], healed;
    bool pending;
    unsigned collected;

    void begin() {
        for (unsigned i = 0; i <= CHUNKS; i++) {
            twi_store_relaxed(&chunks[i].bits, 0u);
            twi_store_relaxed(&chunks[i].listed, 0u);
            for (unsigned k = 0; k < CELLS; k++) {
                twi_store_relaxed(&chunks[i].cells[k].local, 0u);
                twi_store_relaxed(&chunks[i].cells[k].raised, 0u);
                chunks[i].cells[k].handed = 0;
            }
        }
        twi_store_relaxed(&generation_marked, 0u);
        twi_store_relaxed(&generation_listed, 0u);
        twi_store_relaxed(&engine_marked, 0u);
        twi_store_relaxed(&marking, 0u);
        twi_store_relaxed(&ended, 0u);
        for (unsigned i = 0; i <= CHUNKS; i++) owed[i] = false;
        taken = collected = mortal = last = 0;
        pending = naps = distinct = healed = false;
    }
    // TWI_RACE_POINT: now and then a thread stalls here while the others go on.
    void race_point() {
        if (naps && rl::rand(2) == 0)
            for (int i = 0; i < 15; i++) rl::yield(1, $);
    }

    // ---- dirty.c

    bool ends(unsigned self, unsigned step) const {
        return self != 0 && self == mortal && step > last;
    }
    bool claim(rl::atomic<unsigned> *listed, unsigned self) {
        unsigned none = 0, own = is_weak(D11, STEP) ? 1 : self + 1; // D11 step: the same number for all
        while (!twi_cas_acqrel(listed, &none, own, D3)) {
            if (is_weak(D10, STEP)) return false; // D10 step: a failed comparison alone
            if (twi_or_acqrel(listed, 0u, D10) != 0) return false;
            none = 0;
        }
        return true;
    }
    void list_generation(unsigned self) {
        if (ends(self, 4) || !claim(&generation_listed, self) || ends(self, 5)) return;
        race_point(); // window_listed_not_pushed
        unsigned head = twi_load_relaxed(&engine_marked);
        do {
            VAR(generation_next_marked) = head;
        } while (!twi_cas_weak_acqrel(&engine_marked, &head, 1u, D7));
    }
    void list_cell(unsigned number, unsigned index, unsigned self) {
        chunk *chunk = &chunks[number];
        if (ends(self, 1)) return;
        if (is_weak(D3, STEP)) push_chunk(number, self); // D3 step: listed before the content is there
        (void)twi_or_acqrel(&chunk->bits, 1u << index, D5);
        if (!is_weak(D3, STEP)) push_chunk(number, self);
        list_generation(self);
    }
    void push_chunk(unsigned number, unsigned self) {
        chunk *chunk = &chunks[number];
        if (ends(self, 2) || !claim(&chunk->listed, self) || ends(self, 3)) return;
        unsigned head = twi_load_relaxed(&generation_marked);
        do {
            VAR(chunk->next_marked) = head;
        } while (!twi_cas_weak_acqrel(&generation_marked, &head, number, D7));
    }
    void mark(unsigned number, unsigned index, unsigned self) {
        if (self != 0 && self == mortal && !is_weak(D9, STEP)) // D9 step: it does not say what it marks
            twi_store_release(&marking, number * CELLS + index, D9);
        if (is_weak(D1, STEP)) list_cell(number, index, self); // D1 step: marked before DIRTY
        if (ends(self, 0)) return;
        unsigned word = twi_or_acqrel(&chunks[number].cells[index].local, (unsigned)DIRTY, D1);
        if ((word & (DIRTY | FROZEN)) == 0) {
            race_point(); // dirty_not_marked
            if (!is_weak(D1, STEP)) list_cell(number, index, self);
        }
        if (self != 0 && self == mortal && !ends(self, 6)) twi_store_release(&marking, 0u, D9);
    }
    void add(unsigned number, unsigned index, unsigned self = 0) {
        unsigned word = twi_add_relaxed(&chunks[number].cells[index].local, 1u << COUNT_SHIFT);
        if ((word & DIRTY) == 0) mark(number, index, self);
    }

    void raise(unsigned number, unsigned index, unsigned value) {
        rl::atomic<unsigned> *at = &chunks[number].cells[index].raised;
        unsigned before = twi_load_relaxed(at);
        while (before < value &&
               !at->compare_exchange_weak(before, value, rl::mo_relaxed, $, rl::mo_relaxed, $)) {}
        if (before < value) mark(number, index, 0);
    }

    // ---- dirty.c, collect.c

    void take_marked_generations() {
        if (twi_load_relaxed(&engine_marked) == 0) return;
        unsigned line = twi_swap_acqrel(&engine_marked, 0u, D8);
        while (line != 0) {
            line = VAR(generation_next_marked);
            if (!is_weak(D4, STEP)) (void)twi_swap_acqrel(&generation_listed, 0u, D4);
            pending = true;
        }
    }
    void make_item(cell *cell) {
        unsigned word;
        if (is_weak(D2, STEP)) { // D2 step: read, then cleared
            word = twi_load_relaxed(&cell->local);
            (void)twi_and_acqrel(&cell->local, ~(unsigned)DIRTY, NONE);
        } else {
            word = twi_and_acqrel(&cell->local, ~(unsigned)DIRTY, D2);
        }
        unsigned value = word >> COUNT_SHIFT;
        RL_ASSERT(value >= cell->handed);
        collected += value - cell->handed;
        cell->handed = value;
    }
    void make_distinct(cell *cell) {
        unsigned sum = twi_load_relaxed(&cell->raised); // D2 step: read, then cleared
        (void)twi_and_acqrel(&cell->local, ~(unsigned)DIRTY, is_weak(D2, STEP) ? NONE : D2);
        if (!is_weak(D2, STEP)) sum = twi_load_relaxed(&cell->raised);
        RL_ASSERT(sum >= cell->handed);
        collected += sum - cell->handed;
        cell->handed = sum;
    }
    void collect_chunk(chunk *chunk) {
        unsigned bits = twi_load_relaxed(&chunk->bits) != 0 ? twi_swap_acqrel(&chunk->bits, 0u, D6) : 0;
        for (unsigned index = 0; index < CELLS; index++)
            if ((bits >> index & 1) != 0)
                distinct ? make_distinct(&chunk->cells[index]) : make_item(&chunk->cells[index]);
    }
    // ---- dirty.c: marks of a thread that has ended

    bool is_in(unsigned line, unsigned wanted) {
        while (line != 0 && line != wanted) line = VAR(chunks[line].next_marked);
        return line != 0;
    }
    void take_claims_back(unsigned number, unsigned own) {
        take_marked_generations();
        if (twi_load_relaxed(&generation_listed) == own) (void)twi_swap_acqrel(&generation_listed, 0u, D4);
        chunk *chunk = &chunks[number];
        if (twi_load_relaxed(&chunk->listed) == own && !is_in(taken, number) &&
            !is_in(twi_load_acquire(&generation_marked, D8), number))
            (void)twi_swap_acqrel(&chunk->listed, 0u, D4);
    }
    void heal() {
        if (healed || twi_load_acquire(&ended, NONE) == 0) return; // the mutex of the slot
        healed = true;
        unsigned cell = twi_load_relaxed(&marking);
        if (cell == 0) return;
        unsigned number = cell / CELLS, index = cell % CELLS;
        take_claims_back(number, is_weak(D11, STEP) ? 1 : mortal + 1);
        (void)twi_or_acqrel(&chunks[number].bits, 1u << index, D5); // twi_dirty_owe()
        owed[number] = pending = true;
    }

    chunk *next_chunk() {
        for (unsigned i = 1; i <= CHUNKS; i++)
            if (owed[i]) {
                owed[i] = false;
                return &chunks[i];
            }
        if (taken == 0 && twi_load_relaxed(&generation_marked) != 0)
            taken = twi_swap_acqrel(&generation_marked, 0u, D8);
        if (taken == 0) return NULL;
        chunk *chunk = &chunks[taken];
        taken = VAR(chunk->next_marked);
        if (!is_weak(D4, STEP)) (void)twi_swap_acqrel(&chunk->listed, 0u, D4);
        return chunk;
    }
    void collect_pass() {
        if (!pending) return;
        for (chunk *chunk; (chunk = next_chunk()) != NULL;) {
            collect_chunk(chunk);
            if (is_weak(D4, STEP)) { // D4 step: the content read first, `listed` cleared behind
                (void)twi_swap_acqrel(&chunk->listed, 0u, NONE);
                (void)twi_swap_acqrel(&generation_listed, 0u, NONE);
            }
        }
        pending = taken != 0 || twi_load_relaxed(&generation_marked) != 0;
    }
    void collect() {
        take_marked_generations();
        collect_pass();
    }
};

// Adders who add to the same counters and to neighbours, and the turn, which collects all the while. E9, E10, P2.
struct collecting : rl::test_suite<collecting, 3> {
    marks m;
    void before() {
        m.begin();
    }
    void thread(unsigned index) {
        if (index == 0) {
            m.add(1, 0);
            m.add(2, 0);
            m.add(1, 0);
        } else if (index == 1) {
            m.add(1, 1);
            m.add(1, 0);
            m.add(2, 0);
        } else {
            for (int i = 0; i < 3; i++) m.collect();
        }
    }
    void after() { // nobody is between two marks any more
        for (int i = 0; i < 2; i++) m.collect();
        RL_ASSERT(m.collected == 6);
    }
};

// Counters of distinct elements: what is owed lies in other words than DIRTY. So here D1 and D2 order it, too.
struct merging : rl::test_suite<merging, 3> {
    marks m;
    void before() {
        m.begin();
        m.distinct = true;
    }
    void thread(unsigned index) {
        if (index == 0) {
            m.raise(1, 0, 2);
            m.raise(1, 1, 1);
        } else if (index == 1) {
            m.raise(1, 0, 3);
            m.raise(1, 0, 1);
        } else {
            for (int i = 0; i < 3; i++) m.collect();
        }
    }
    void after() {
        for (int i = 0; i < 2; i++) m.collect();
        RL_ASSERT(m.collected == 4);
    }
};

// The turn unaided: two passes after the last adder has gone must find everything, also by loads that need not be
// fresh.
struct turning : rl::test_suite<turning, 3> {
    marks m;
    rl::atomic<unsigned> gone;
    void before() {
        m.begin();
        twi_store_relaxed(&gone, 0u);
    }
    void thread(unsigned index) {
        if (index < 2) {
            m.add(1, index);
            m.add(1, 0);
            (void)twi_add_acqrel(&gone, 1u, NONE);
        } else {
            m.collect();
            bool all = twi_load_acquire(&gone, NONE) == 2;
            for (int i = 0; i < 2; i++) m.collect();
            RL_ASSERT(!all || m.collected == 4);
        }
    }
};

// A thread ends after any of its marks, beside a living adder. The turn finishes its marks when it sees the end, and
// two passes later nothing is left.
struct healing : rl::test_suite<healing, 3> {
    marks m;
    void before() {
        m.begin();
        m.naps = true;
        m.mortal = 1;
        m.last = rl::rand(7);
    }
    void thread(unsigned index) {
        if (index == 0) {
            m.add(1, 0, 1);
            twi_store_release(&m.ended, 1u, NONE);
        } else if (index == 1) {
            m.add(1, 1, 2);
            m.add(1, 0, 2);
            m.add(2, 0, 2);
        } else {
            for (int i = 0; i < 4; i++) {
                m.heal();
                m.collect();
            }
        }
    }
    void after() {
        m.heal();
        for (int i = 0; i < 2; i++) m.collect();
        RL_ASSERT(m.collected == 4);
    }
};

// A flush: what had returned before the ticket is collected by the pass after the grace period, although an adder of
// after the ticket may stall between `listed` and its push. E10.
struct flushing : rl::test_suite<flushing, 4> {
    marks m;
    rl::atomic<unsigned> epoch, sections[3], returned;

    void before() {
        m.begin();
        m.naps = true;
        twi_store_relaxed(&epoch, 1u);
        twi_store_relaxed(&returned, 0u);
        for (int i = 0; i < 3; i++) twi_store_relaxed(&sections[i], 0u);
    }
    void count(unsigned self, unsigned number, unsigned index) {
        sections[self].exchange(twi_load_acquire(&epoch, R3), rl::mo_seq_cst, $);
        twi_fence_seqcst(R1);
        m.add(number, index);
        twi_store_release(&sections[self], 0u, R5);
        (void)twi_add_acqrel(&returned, 1u, NONE);
    }
    bool reached(unsigned stamp) {
        twi_fence_seqcst(R2);
        for (int i = 0; i < 3; i++) {
            unsigned shown = twi_load_seqcst(&sections[i], R6);
            if (shown != 0 && shown <= stamp) return false;
        }
        return true;
    }
    void thread(unsigned index) {
        if (index < 3) { // two on one counter, of which one returns while the other marks it; one on another
            while (index == 2 && twi_load_relaxed(&epoch) == 1) rl::yield(1, $); // the one of after the ticket
            count(index, index < 2 ? 1 : 2, 0);
            return;
        }
        unsigned before = twi_load_acquire(&returned, NONE); // the ticket
        unsigned stamp = twi_add_acqrel(&epoch, 1u, R4);
        if (!is_weak(R2, STEP)) // R2 step: no grace period
            while (!reached(stamp)) rl::yield(1, $);
        // begin_full_collection(): the windows themselves are looked at. D8 step: the list of windows alone
        if (!is_weak(D8, STEP) && twi_load_relaxed(&m.generation_marked) != 0) m.pending = true;
        m.collect();
        RL_ASSERT(m.collected >= before);
    }
};

int main() {
    const char *unseen =
        "relacy runs read-modify-writes in the order of the program; on weaker machines the bit would be seen "
        "before DIRTY, and D2 come too early: argued in docs/CONCURRENCY.md, section 6";
    const char *counts = "that it is one operation is what counts (D2 step); the bit (D5, D6) orders it against DIRTY";
    const model_mutant full[] = {
        {D1, STEP, NULL},
        {D2, STEP, NULL},
        {D3, STEP, NULL},
        {D4, STEP, NULL},
        {D3, ACQUIRE, NULL},
        {D4, RELEASE, NULL},
        {D5, RELEASE, unseen},
        {D6, ACQUIRE, unseen},
        {D7, RELEASE, NULL},
        {D8, ACQUIRE, NULL},
        {D1, ACQUIRE, counts},
        {D1, RELEASE, counts},
        {D2, ACQUIRE, counts},
        {D2, RELEASE, counts},
        {D5, ACQUIRE, "an adder reads nothing behind the bit"},
        {D6, RELEASE, "who sets the bit anew reads nothing that the turn has written"},
        {D7, ACQUIRE,
         "a push stores the number of the next piece; the taker sees all pushes by their release sequence"},
        {D8, RELEASE, "an empty list tells nobody anything; what was read of its links is ordered by D4"},
    };
    const model_mutant turn[] = {
        {D3, RELEASE, "who claims a member pushes it, and the push (D7) releases; who does not, releases by D10"},
        {D4, ACQUIRE, NULL},
        {D10, STEP, NULL},
        {D10, RELEASE, NULL},
    };
    const model_mutant merge[] = {{D2, STEP, NULL}, {D1, RELEASE, NULL}, {D2, ACQUIRE, NULL}};
    const model_mutant flush[] = {{R2, STEP, NULL}, {D8, STEP, NULL}, {R5, RELEASE, NULL}, {R6, ACQUIRE, NULL}};
    const model_mutant heal[] = {{D9, STEP, NULL}, {D10, STEP, NULL}, {D11, STEP, NULL}};
    int wrong = MODEL_RUN(collecting, "collecting", 50000, full);
    wrong += MODEL_RUN(merging, "merging", 50000, merge);
    wrong += MODEL_RUN(turning, "two passes", 100000, turn);
    wrong += MODEL_RUN(healing, "a thread that ends", 50000, heal);
    wrong += MODEL_RUN(flushing, "flushing", 200000, flush);
    return wrong != 0;
}
