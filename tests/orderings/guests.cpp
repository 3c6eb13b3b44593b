// guests.cpp -- a model of guests.c: how the table of a window's guests comes to be.
// Left out: a table for which there is no memory; the places, one word each, changed by one CAS.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/table/guests.c:twi_guests_begin 898b4eda5e1d
//   engine/table/guests.c:twi_guests_of 0a187bfc63c9
#include "tests/orderings/model.hpp"

// Two threads make the table at once, a third one looks: all use the same, and find it filled in.
struct beginning : rl::test_suite<beginning, 3> {
    rl::atomic<unsigned> guests;
    rl::var<unsigned> content[3];
    unsigned used[2];
    void before() {
        twi_store_relaxed(&guests, 0u);
        used[0] = used[1] = 0;
    }
    unsigned guests_of() {
        return twi_load_acquire(&guests, B9);
    }
    unsigned begin(unsigned own) {
        unsigned none = 0;
        if (twi_load_relaxed(&guests) != 0) return guests_of();
        VAR(content[own]) = own;
        if (is_weak(B8, STEP)) // B8 step: stored over what another one brought
            twi_store_release(&guests, own, NONE);
        else
            (void)twi_cas_acqrel(&guests, &none, own, B8);
        return guests_of();
    }
    void thread(unsigned index) {
        unsigned line = index < 2 ? begin(index + 1) : guests_of();
        if (line == 0) return;
        RL_ASSERT(VAR(content[line]) == line);
        if (index < 2) used[index] = line;
    }
    void after() {
        RL_ASSERT(used[0] == used[1]);
    }
};

int main() {
    const model_mutant of_beginning[] = {{B8, RELEASE, NULL},
                                         {B8, ACQUIRE, "the line is read once more, by B9"},
                                         {B8, STEP, NULL},
                                         {B9, ACQUIRE, NULL}};
    return MODEL_RUN(beginning, "guests, their table", 20000, of_beginning) != 0;
}
