// reclaim.cpp -- models of engine/memory/epoch.* and windows.c: sections and epochs, a window packed.
// Left out: a fork; nested sections; a membarrier that the kernel refuses (then nothing is reached); what a thread that
// has ended left unfinished is one word here (marks.cpp has it).
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/memory/epoch.h:twi_section_enter 3bb97647e9bf
//   engine/memory/epoch.h:twi_section_leave 30b13bc44949
//   engine/memory/epoch.h:twi_section_enter_first fbb2b76c4a4e
//   engine/memory/epoch.h:twi_section_leave_first 38d284f6268b
//   engine/memory/epoch.c:lock_ended 6cc015208bf2
//   engine/memory/epoch.c:clear b8dd2fc0abfd
//   engine/memory/epoch.c:take 34965fab0c46
//   engine/memory/epoch.c:has_ended 396e5325238e
//   engine/memory/epoch.c:twi_thread_next_ended b82f88e3d7c0
//   engine/memory/epoch.c:twi_thread_let_go 154ba178a968
//   engine/memory/epoch.c:new_slot c58796c47ec2
//   engine/memory/epoch.c:twi_epoch_stamp 2da5dd16a78d
//   engine/memory/epoch.c:oldest_before b54add54f33d
//   engine/memory/epoch.c:barrier 2b99356ed954
//   engine/memory/epoch.c:slot_holds f61b6a64af76
//   engine/memory/epoch.c:twi_threads_hold 6e1eb8fa97a3
//   engine/memory/epoch.c:twi_epoch_reached 631a090590c7
//   engine/turn/windows.c:publish 3b78bbad9b73
//   engine/turn/windows.c:shed b9f157a27180
//   engine/table/layout.h:twi_generation_is_packed be54cd2d9a23
//   engine/count/lookup.c:twi_view_in 17745535a470
//   engine/count/walk.c:hold 3e01002e8f4e
//   engine/count/walk.c:hold_all 6724b7df235a
//   engine/count/walk.c:let_go 98c6ede961fc
#include "tests/orderings/model.hpp"

// ---- sections: what is unlinked is reused only when nobody can hold it ----------------------------------------------

enum fence_kind { FULL_FENCES, MEMBARRIER };

// Two readers that come and go, one turn that unlinks two pieces, one after the other, and wipes them.
template <fence_kind kind> struct sections : rl::test_suite<sections<kind>, 3> {
    struct slot {
        rl::atomic<unsigned> epoch;
    };
    slot table[2];
    rl::atomic<unsigned> slots;
    unsigned numbers[2]; // each reader's own: which slot it has
    rl::atomic<unsigned> reclaim_epoch;
    rl::atomic<int> linked; // which piece is reachable: 1, 2; 0: none
    rl::var<int> pieces[3];
    // membarrier(2): each reader runs a full fence at some moment between two of its instructions; the call returns
    // when all have. A reader that is gone has none to run.
    rl::atomic<unsigned> interrupts[2], answers[2];
    unsigned calls;

    void before() {
        calls = 0;
        for (int i = 0; i < 2; i++) {
            twi_store_relaxed(&interrupts[i], 0u);
            twi_store_relaxed(&answers[i], 0u);
        }
        twi_store_relaxed(&reclaim_epoch, 1u);
        twi_store_relaxed(&slots, 0u);
        twi_store_relaxed(&linked, 1);
        for (int i = 0; i < 3; i++) VAR(pieces[i]) = i;
        for (int i = 0; i < 2; i++) twi_store_relaxed(&table[i].epoch, 0u);
    }

    void register_thread(unsigned self) { // new_slot()
        unsigned count = twi_load_relaxed(&slots);
        while (!twi_cas_relaxed(&slots, &count, count + 1)) {
        }
        numbers[self] = count;
    }

    void interrupt(unsigned self) {
        if (kind != MEMBARRIER) return;
        unsigned asked = twi_load_acquire(&interrupts[self], NONE);
        if (asked == twi_load_relaxed(&answers[self])) return;
        twi_fence_seqcst(NONE);
        twi_store_release(&answers[self], asked, NONE);
    }
    void gone(unsigned self) {
        twi_store_release(&answers[self], ~0u, NONE);
    }
    void membarrier() {
        twi_fence_seqcst(NONE);
        calls++;
        for (int i = 0; i < 2; i++) twi_store_release(&interrupts[i], calls, NONE);
        for (int i = 0; i < 2; i++)
            while (twi_load_acquire(&answers[i], NONE) < calls) rl::yield(1, $);
        twi_fence_seqcst(NONE);
    }

    void enter(unsigned self) {
        unsigned epoch = twi_load_acquire(&reclaim_epoch, R3);
        interrupt(self);
        if (kind == MEMBARRIER) {
            twi_store_relaxed(&table[numbers[self]].epoch, epoch); // R1: the compiler keeps it in front of what follows
            interrupt(self);
        } else {
            (void)table[numbers[self]].epoch.exchange(epoch, rl::mo_seq_cst, $);
            twi_fence_seqcst(R1);
        }
    }
    void leave(unsigned self) {
        twi_store_release(&table[numbers[self]].epoch, 0u, R5);
        interrupt(self);
    }

    void read(unsigned self) {
        int piece;
        if (kind == MEMBARRIER && is_weak(R1, STEP)) { // without the compiler's fence: a load moves up
            piece = twi_load_relaxed(&linked);
            interrupt(self);
            enter(self);
        } else {
            enter(self);
            piece = twi_load_relaxed(&linked); // whatever the label there: none of them is to help here
            interrupt(self);
        }
        if (piece != 0) RL_ASSERT(VAR(pieces[piece]) == piece);
        leave(self);
    }

    unsigned stamp() {
        return twi_add_acqrel(&reclaim_epoch, 1u, R4);
    }
    unsigned oldest() {
        unsigned least = ~0u, count = twi_load_relaxed(&slots);
        for (unsigned number = 0; number < count; number++) {
            unsigned epoch = twi_load_seqcst(&table[number].epoch, R6);
            if (epoch != 0 && epoch < least) least = epoch;
        }
        return least;
    }
    unsigned reached() {
        unsigned now = twi_load_seqcst(&reclaim_epoch, NONE);
        if (kind == MEMBARRIER) {
            if (!is_weak(R2, FENCE)) membarrier();
        } else {
            twi_fence_seqcst(R2);
        }
        unsigned least = oldest();
        return least < now ? least : now;
    }
    void replace(int next) {
        int gone = twi_load_relaxed(&linked);
        twi_store_release(&linked, next, NONE);
        unsigned unlinked = stamp();
        for (int tries = 0; tries < 3; tries++) { // it looks again later, and does not wait
            if (unlinked < reached()) {
                VAR(pieces[gone]) = -1; // zeroed, and somebody else's
                return;
            }
            rl::yield(1, $);
        }
    }

    void thread(unsigned index) {
        if (index < 2) {
            interrupt(index);
            if (is_weak(R7, STEP)) { // R7 step: the slot is used, then counted
                numbers[index] = index;
                read(index);
            }
            register_thread(index);
            read(index);
            interrupt(index);
            read(index);
            gone(index);
        } else {
            replace(2);
            replace(0);
        }
    }
};

// ---- a thread that ends ---------------------------------------------------------------------------------------------

// A thread ends in a section, and has said a step that it has not made. The turn heals that, which needs the piece that
// the section keeps. Another thread wants the slot.
struct ending : rl::test_suite<ending, 3> {
    enum { FREE, HELD };
    rl::atomic<unsigned> reclaim_epoch, linked, slot_epoch, marking;
    rl::atomic<unsigned> alive; // the robust mutex of the slot; the kernel frees it
    rl::var<unsigned> pieces[2];
    rl::var<unsigned> record; // what the slot's thread has beside the slot
    unsigned unmade, healed; // steps that a thread has left, and that the turn has made

    void before() {
        twi_store_relaxed(&reclaim_epoch, 1u);
        twi_store_relaxed(&linked, 1u);
        twi_store_relaxed(&slot_epoch, 0u);
        twi_store_relaxed(&marking, 0u);
        twi_store_relaxed(&alive, (unsigned)HELD);
        for (unsigned i = 0; i < 2; i++) VAR(pieces[i]) = i;
        VAR(record) = 0;
        unmade = healed = 0;
    }

    // ---- who has the slot

    void enter() {
        slot_epoch.exchange(twi_load_acquire(&reclaim_epoch, R3), rl::mo_seq_cst, $);
        twi_fence_seqcst(R1);
    }
    void call(bool ends) {
        enter();
        unsigned piece = twi_load_relaxed(&linked);
        twi_store_release(&marking, piece, D9);
        if (piece != 0) RL_ASSERT(VAR(pieces[piece]) == piece);
        if (ends && piece != 0) {
            unmade++;
            return;
        }
        twi_store_release(&marking, 0u, D9);
        twi_store_release(&slot_epoch, 0u, R5);
    }

    // ---- slots

    bool lock_ended() {
        unsigned found = FREE;
        return twi_cas_acqrel(&alive, &found, (unsigned)HELD, NONE);
    }
    void unlock() {
        twi_store_release(&alive, (unsigned)FREE, NONE);
    }
    bool take(model_label step) { // R5, R7 step: it does not look whether something is left
        if (!lock_ended()) return false;
        if (!is_weak(step, STEP) && twi_load_relaxed(&marking) != 0) {
            unlock();
            return false;
        }
        twi_store_release(&slot_epoch, 0u, R5); // clear()
        return true;
    }
    bool has_ended() {
        if (!take(R5)) return false;
        unlock();
        return true;
    }
    void heal() {
        if (twi_load_relaxed(&marking) == 0 || !lock_ended()) return;
        unsigned piece = twi_load_relaxed(&marking);
        if (piece != 0) {
            RL_ASSERT(VAR(pieces[piece]) == piece);
            healed++;
            twi_store_relaxed(&marking, 0u);
            twi_store_release(&slot_epoch, 0u, R5);
        }
        unlock();
    }

    // ---- the turn

    bool reached(unsigned stamp) {
        twi_fence_seqcst(R2);
        unsigned shown = twi_load_seqcst(&slot_epoch, R6);
        return shown == 0 || shown > stamp || has_ended();
    }
    void turn() {
        heal();
        twi_store_release(&linked, 0u, NONE);
        unsigned stamp = twi_add_acqrel(&reclaim_epoch, 1u, R4);
        for (int tries = 0; tries < 3; tries++) {
            if (reached(stamp)) {
                VAR(pieces[1]) = 77;
                return;
            }
            heal();
            rl::yield(1, $);
        }
    }

    void thread(unsigned index) {
        if (index == 0) {
            call(false);
            call(rl::rand(4) != 0);
            VAR(record) = 1;
            unlock(); // the kernel, which orders all that the thread did before
        } else if (index == 1) {
            for (int tries = 0; !take(R7); tries++) {
                if (tries == 10) return;
                rl::yield(1, $);
            }
            VAR(record) = 2;
            call(false);
            unlock();
        } else {
            turn();
        }
    }
    void after() {
        heal();
        RL_ASSERT(healed == unmade);
    }
};

// ---- a window that is packed ----------------------------------------------------------------------------------------

// windows.c and walk.c: a window's packed form takes the place of its table. One thread looks a key up, one walks over
// the window outside of its section, while the turn publishes the packed form and gives the table back.
struct packing : rl::test_suite<packing, 3> {
    rl::atomic<unsigned> epoch, sections[2];
    rl::atomic<unsigned> packed, table_held;
    rl::var<int> table, form;

    void before() {
        twi_store_relaxed(&epoch, 1u);
        twi_store_relaxed(&packed, 0u);
        twi_store_relaxed(&table_held, 0u);
        for (int i = 0; i < 2; i++) twi_store_relaxed(&sections[i], 0u);
        VAR(table) = 7;
        VAR(form) = 0;
    }
    void enter(unsigned self) {
        (void)sections[self].exchange(twi_load_acquire(&epoch, R3), rl::mo_seq_cst, $);
        twi_fence_seqcst(R1);
    }
    void leave(unsigned self) {
        twi_store_release(&sections[self], 0u, R5);
    }
    bool reached(unsigned stamp) {
        twi_fence_seqcst(R2);
        for (int i = 0; i < 2; i++) {
            unsigned shown = twi_load_seqcst(&sections[i], R6);
            if (shown != 0 && shown <= stamp) return false;
        }
        return true;
    }
    void look() { // view_in()
        enter(0);
        if (twi_load_acquire(&packed, K2) == 0)
            RL_ASSERT(VAR(table) == 7);
        else
            RL_ASSERT(VAR(form) == 7);
        leave(0);
    }
    void walk() { // hold(), let_go()
        enter(1);
        unsigned form_there = twi_load_acquire(&packed, K2);
        if (form_there == 0 && !is_weak(K2, STEP)) twi_store_relaxed(&table_held, 1u); // K2 step: no hold
        leave(1);
        if (form_there == 0)
            RL_ASSERT(VAR(table) == 7);
        else
            RL_ASSERT(VAR(form) == 7);
        if (form_there == 0 && !is_weak(K2, STEP)) twi_store_release(&table_held, 0u, R8);
    }
    void thread(unsigned index) {
        if (index < 2) {
            for (int i = 0; i < 2; i++) index == 0 ? look() : walk();
            return;
        }
        VAR(form) = VAR(table);
        twi_store_release(&packed, 1u, K1);
        unsigned stamp = twi_add_acqrel(&epoch, 1u, R4);
        for (int tries = 0; tries < 4; tries++) {
            if ((is_weak(K1, STEP) || reached(stamp)) &&
                twi_load_acquire(&table_held, R9) == 0) { // K1 step: no grace
                VAR(table) = -1;
                return;
            }
            rl::yield(1, $);
        }
    }
};

int main() {
    const model_mutant full[] = {
        {R1, FENCE, NULL},
        {R2, FENCE, NULL},
        {R4, RELEASE, NULL},
        {R5, RELEASE, NULL},
        {R6, ACQUIRE, NULL},
        {R7, STEP, NULL},
        {R3, ACQUIRE, "the fence of R1 that follows acquires as well; needed where membarrier takes its place"},
        {R4, ACQUIRE, "the turn stamps what it has unlinked itself: it has nothing to learn from another turn's stamp"},
    };
    const model_mutant cheap[] = {
        {R1, STEP, NULL},
        {R2, FENCE, NULL},
        {R3, ACQUIRE, NULL},
        {R4, RELEASE, NULL},
        {R5, RELEASE, NULL},
        {R6, ACQUIRE, NULL},
        {R7, STEP, NULL},
        {R4, ACQUIRE, "the turn stamps what it has unlinked itself: it has nothing to learn from another turn's stamp"},
    };
    int wrong = MODEL_RUN(sections<FULL_FENCES>, "sections, fences", 40000, full);
    wrong += MODEL_RUN(sections<MEMBARRIER>, "sections, membarrier", 100000, cheap);
    const model_mutant end[] = {{R5, STEP, NULL}, {R7, STEP, NULL}};
    wrong += MODEL_RUN(ending, "a thread that ends", 40000, end);
    const model_mutant pack[] = {{K1, RELEASE, NULL}, {K1, STEP, NULL},    {K2, ACQUIRE, NULL},
                                 {K2, STEP, NULL},    {R8, RELEASE, NULL}, {R9, ACQUIRE, NULL}};
    wrong += MODEL_RUN(packing, "a window packed", 40000, pack);
    return wrong != 0;
}
