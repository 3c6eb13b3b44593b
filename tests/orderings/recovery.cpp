// recovery.cpp -- model of engine/turn/recover.c and recover_flags.c: the owner of the turn dies in the middle of a
// collection, and the next one makes the marks whole beside adders that live.
// Left out: all lists but that of a window's chunks (the others have the same flag, order and look afterwards); heal.c
// (marks.cpp); that `handed` is computed again (turn/inherit.c), so counting an item is one step here. An adder also
// says marks of another engine, of which nothing else is modelled.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/memory/epoch.h:twi_marking_set 6b555ff44d9a
//   engine/memory/epoch.h:twi_marking_end b0ff3c30a967
//   engine/memory/epoch.c:twi_thread_claim 78e2646ed67b
//   engine/memory/epoch.c:twi_thread_next_marking b3adf29762e9
//   engine/count/dirty.c:twi_dirty_list af1cd8c05fad
//   engine/count/dirty.c:owe_listed 1b573bcfbe74
//   engine/count/dirty.c:twi_dirty_owe_listed bf6cee66dffb
//   engine/count/dirty.c:twi_dirty_unlist 1af9ad362f53
//   engine/count/dirty.c:twi_dirty_owe bef0c448d3dd
//   engine/turn/turn.c:twi_turn_take e7283d5c8602
//   engine/turn/recover.c:mark_again 147276fab164
//   engine/turn/recover.c:owe_chunks 3d1f06e70932
//   engine/turn/recover.c:take_back f23e07b1b667
//   engine/turn/recover.c:is_said c1ac70201b73
//   engine/turn/recover.c:is_orphan 79ee4c9922bf
//   engine/turn/recover.c:check_chunk c3432f629809
//   engine/turn/collect.c:next_chunk 638b129e185d
//   engine/turn/collect.c:collect_chunk c4689fd6ceaf
#include "tests/orderings/model.hpp"

enum { DIRTY = 1, COUNT_SHIFT = 1, CHUNKS = 2, CELLS = 2, ADDERS = 2, HERE = 1, ELSEWHERE = 2 };

struct taking_over : rl::test_suite<taking_over, ADDERS + 2> {
    struct cell {
        rl::atomic<unsigned> local;
        unsigned handed; // the turn's own
    };
    struct chunk { // number 0: none
        rl::atomic<unsigned> bits, listed, next_marked;
        cell cells[CELLS];
    };
    struct marking {
        rl::atomic<unsigned> engine, cell, generation; // a chunk is the only one of its window; cell 0: none
    };
    chunk chunks[CHUNKS + 1];
    marking slots[ADDERS];
    rl::atomic<unsigned> marked;         // newest marked chunk
    bool is_pushed[CHUNKS + 1];          // what a look at the list from outside would show
    rl::atomic<unsigned> owned, mutexes; // the owner of the turn: 1, 2; the kernel has freed the mutex of the first
    // the turn's own
    unsigned taken, collected;
    bool owed[CHUNKS + 1], has_doubts;
    unsigned left; // steps that the first owner makes yet

    void before() {
        for (unsigned i = 0; i <= CHUNKS; i++) {
            twi_store_relaxed(&chunks[i].bits, 0u);
            twi_store_relaxed(&chunks[i].listed, 0u);
            twi_store_relaxed(&chunks[i].next_marked, 0u);
            for (unsigned k = 0; k < CELLS; k++) {
                twi_store_relaxed(&chunks[i].cells[k].local, 0u);
                chunks[i].cells[k].handed = 0;
            }
            is_pushed[i] = owed[i] = false;
        }
        for (unsigned i = 0; i < ADDERS; i++) {
            twi_store_relaxed(&slots[i].engine, 0u);
            twi_store_relaxed(&slots[i].generation, 0u);
            twi_store_relaxed(&slots[i].cell, 0u);
        }
        twi_store_relaxed(&marked, 0u);
        twi_store_relaxed(&owned, 1u);
        twi_store_relaxed(&mutexes, 0u);
        taken = collected = 0;
        has_doubts = false;
        left = rl::rand(12);
    }
    void race_point() { // now and then a thread stalls here while the others go on
        if (rl::rand(2) == 0)
            for (int i = 0; i < 10; i++) rl::yield(1, $);
    }

    // ---- adders

    void say(unsigned self, unsigned engine, unsigned number, unsigned index) {
        twi_store_release(&slots[self].engine, engine, D9);
        twi_store_release(&slots[self].generation, number, D9);
        twi_store_release(&slots[self].cell, number * CELLS + index, D9);
    }
    void say_end(unsigned self) {
        twi_store_release(&slots[self].cell, 0u, D9);
    }
    bool claim(unsigned number, unsigned self) {
        unsigned none = 0;
        while (!twi_cas_acqrel(&chunks[number].listed, &none, self + 1, D3)) {
            if (twi_or_acqrel(&chunks[number].listed, 0u, D10) != 0) return false;
            none = 0;
        }
        return true;
    }
    void list(unsigned number, unsigned index, unsigned self) {
        chunk *chunk = &chunks[number];
        (void)twi_or_acqrel(&chunk->bits, 1u << index, D5);
        if (!claim(number, self)) return;
        race_point();
        unsigned head = twi_load_relaxed(&marked);
        do {
            twi_store_relaxed(&chunk->next_marked, head);
        } while (!twi_cas_weak_acqrel(&marked, &head, number, D7));
        RL_ASSERT(!is_pushed[number]);
        is_pushed[number] = true;
    }
    void add(unsigned number, unsigned index, unsigned self) {
        cell *cell = &chunks[number].cells[index];
        if ((twi_add_relaxed(&cell->local, 1u << COUNT_SHIFT) & DIRTY) != 0) return;
        if (!is_weak(D9, STEP)) say(self, HERE, number, index); // D9 step: the thread says nothing
        if ((twi_or_acqrel(&cell->local, (unsigned)DIRTY, D1) & DIRTY) == 0) list(number, index, self);
        say_end(self);
    }

    // ---- the turn. `mortal`: by the first owner, which dies after some steps

    bool dies(bool mortal) {
        if (!mortal) return false;
        if (left == 0) return true;
        left--;
        return false;
    }
    unsigned take_list() {
        if (twi_load_relaxed(&marked) == 0) return 0;
        unsigned head = twi_swap_acqrel(&marked, 0u, D8);
        for (unsigned i = 1; i <= CHUNKS; i++) is_pushed[i] = false;
        return head;
    }
    void collect_chunk(chunk *chunk, bool mortal) {
        unsigned bits = twi_load_relaxed(&chunk->bits) != 0 ? twi_swap_acqrel(&chunk->bits, 0u, D6) : 0;
        for (unsigned index = 0; index < CELLS; index++) {
            cell *cell = &chunk->cells[index];
            if ((bits >> index & 1) == 0) continue;
            if (dies(mortal)) return;
            unsigned value = twi_and_acqrel(&cell->local, ~(unsigned)DIRTY, D2) >> COUNT_SHIFT;
            collected += value - cell->handed;
            cell->handed = value;
        }
    }
    chunk *next_chunk(bool mortal) {
        for (unsigned i = 1; i <= CHUNKS; i++)
            if (owed[i]) {
                owed[i] = false;
                return &chunks[i];
            }
        if (taken == 0) taken = take_list();
        if (taken == 0 || dies(mortal)) return NULL;
        chunk *chunk = &chunks[taken];
        taken = twi_load_relaxed(&chunk->next_marked);
        if (dies(mortal)) return NULL;
        (void)twi_swap_acqrel(&chunk->listed, 0u, D4);
        return chunk;
    }
    void collect(bool mortal) {
        for (chunk *chunk; (chunk = next_chunk(mortal)) != NULL && !dies(mortal);) collect_chunk(chunk, mortal);
    }

    // ---- the next owner

    bool take_turn() {
        unsigned found = 1;
        if (twi_load_acquire(&mutexes, NONE) == 0) return false; // twi_thread_lock_ended()
        bool is_ours = twi_cas_acqrel(&owned, &found, 2u, NONE);
        RL_ASSERT(is_ours);
        recover();
        return true;
    }
    void take_back() {
        taken = 0;
        for (unsigned line = take_list(); line != 0;) {
            chunk *chunk = &chunks[line];
            line = twi_load_relaxed(&chunk->next_marked);
            (void)twi_swap_acqrel(&chunk->listed, 0u, D4);
        }
        for (unsigned i = 1; i <= CHUNKS; i++) owed[i] = twi_load_relaxed(&chunks[i].bits) != 0;
        for (unsigned i = 1; i <= CHUNKS; i++)
            for (unsigned index = 0; index < CELLS; index++)
                if ((twi_load_relaxed(&chunks[i].cells[index].local) & DIRTY) != 0) {
                    (void)twi_or_acqrel(&chunks[i].bits, 1u << index, D5);
                    owed[i] = true;
                }
    }
    bool next_marking(unsigned *number, unsigned *generation, unsigned *cell) {
        while (*number < ADDERS) {
            marking *marking = &slots[(*number)++];
            do {
                *cell = twi_load_acquire(&marking->cell, D9);
                *generation = twi_load_acquire(&marking->generation, D9);
            } while (twi_load_acquire(&marking->cell, D9) != *cell);
            if (*cell != 0 && twi_load_acquire(&marking->engine, D9) == HERE) return true;
        }
        return false;
    }
    bool is_said(unsigned number) {
        unsigned generation, cell;
        for (unsigned at = 0; next_marking(&at, &generation, &cell);)
            if (generation == number && cell / CELLS == number) return true;
        return false;
    }
    bool has_chunk(unsigned line, unsigned number) {
        while (line != 0 && line != number) line = twi_load_relaxed(&chunks[line].next_marked);
        return line != 0;
    }
    void check_chunk(unsigned number) {
        bool early = is_weak(D8, STEP) && has_chunk(twi_load_acquire(&marked, D8), number);
        if (twi_load_acquire(&chunks[number].listed, D3) == 0) return;
        bool said = is_said(number);
        // D8 step: the list is looked at before the flag, and before what the threads say
        bool in_list = is_weak(D8, STEP) ? early : has_chunk(twi_load_acquire(&marked, D8), number);
        if (said) has_doubts = true;
        if (said || in_list) return;
        (void)twi_swap_acqrel(&chunks[number].listed, 0u, D4);
        if (!is_weak(D4, STEP)) owed[number] = true; // D4 step: nobody looks at what was marked while the flag was set
    }
    void owe_listed(unsigned line) {
        while (line != 0) {
            chunk *chunk = &chunks[line];
            owed[line] = true;
            line = twi_load_relaxed(&chunk->next_marked);
            (void)twi_swap_acqrel(&chunk->listed, 0u, D4);
        }
    }
    void recover_flags() {
        has_doubts = false;
        owe_listed(taken);
        taken = 0;
        owe_listed(take_list());
        for (unsigned i = 1; i <= CHUNKS; i++) check_chunk(i);
    }
    void recover() {
        take_back();
        recover_flags();
    }
    void turn() {
        if (has_doubts) recover_flags();
        collect(false);
    }

    void thread(unsigned index) {
        if (index < ADDERS) {
            add(1, index, index);
            race_point();
            if (index == 0) {
                say(0, ELSEWHERE, 1, 0);
                say_end(0);
            }
            add(2, 0, index);
            race_point();
            add(1, 0, index);
        } else if (index == ADDERS) {
            for (int i = 0; i < 3 && left != 0; i++) collect(true);
            twi_store_release(&mutexes, 1u, NONE);
        } else {
            while (!take_turn()) rl::yield(1, $);
            for (int i = 0; i < 3; i++) turn();
        }
    }
    void after() { // nobody is between two marks any more
        for (int i = 0; i < 3; i++) turn();
        RL_ASSERT(!has_doubts);
        RL_ASSERT(collected == 3 * ADDERS);
    }
};

int main() {
    const model_mutant mutants[] = {
        {D9, STEP, NULL}, {D9, RELEASE, NULL}, {D9, ACQUIRE, NULL}, {D3, RELEASE, NULL}, {D3, ACQUIRE, NULL},
        {D4, STEP, NULL}, {D8, STEP, NULL},    {D8, ACQUIRE, NULL}, {D7, RELEASE, NULL}, {D10, RELEASE, NULL},
    };
    return MODEL_RUN(taking_over, "a turn taken over", 50000, mutants) != 0;
}
