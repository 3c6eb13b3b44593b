// near.cpp -- models of share.c twi_share_request_sync() and collect.c twi_port_collect_near_limit(): counters near
// their limit, which are sent before their interval is over; and of the notes of overshoot.c.
// Left out: what makes a counter near, and what is sent; a ring of two slots; a counter whose slot another one holds
// waits for its interval, as one does that finds itself there already.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/limit/share.c:twi_share_request_sync 3616f4263a70
//   engine/turn/collect.c:twi_port_is_near_limit 35d3bb9cbcb0
//   engine/turn/collect.c:twi_port_collect_near_limit d6030c31c279
//   engine/limit/limit_stats.c:twi_overshoot_note 9577e0e60757
//   engine/limit/limit_stats.c:let_go b8c54f962ba7
//   engine/limit/limit_stats.c:observe_all a5d391082a17
#include "tests/orderings/model.hpp"

struct coming : rl::test_suite<coming, 3> {
    rl::atomic<unsigned> any_near_limit, near[2];
    rl::var<unsigned> cell[2]; // what the turn reads of a counter
    unsigned entered[2], sent[2];

    void before() {
        twi_store_relaxed(&any_near_limit, 0u);
        for (int i = 0; i < 2; i++) {
            twi_store_relaxed(&near[i], 0u);
            entered[i] = sent[i] = 0;
        }
    }
    void hurry(unsigned own) {
        unsigned none = 0;
        if (twi_load_relaxed(&near[own]) != 0) return;
        if (is_weak(Q1, STEP)) { // Q1 step: a store, where another may have come
            twi_store_release(&near[own], 1u, NONE);
            entered[own]++;
        } else if (twi_cas_acqrel(&near[own], &none, 1u, Q1)) {
            entered[own]++;
        } else {
            return;
        }
        if (is_weak(Q3, STEP)) { // Q3 step: stored over what another one showed
            twi_store_release(&any_near_limit, 1u, NONE);
            return;
        }
        (void)twi_swap_acqrel(&any_near_limit, 1u, Q3);
    }
    void collect_near_limit() {
        if (twi_load_relaxed(&any_near_limit) == 0) return;
        if (!is_weak(Q4, STEP)) (void)twi_swap_acqrel(&any_near_limit, 0u, Q4);
        for (int i = 0; i < 2; i++) {
            if (twi_load_relaxed(&near[i]) == 0 || twi_swap_acqrel(&near[i], 0u, Q2) == 0) continue;
            RL_ASSERT(VAR(cell[i]) == 1);
            sent[i]++;
        }
        if (is_weak(Q4, STEP)) (void)twi_swap_acqrel(&any_near_limit, 0u, NONE); // Q4 step: cleared behind
    }
    void thread(unsigned index) {
        if (index < 2) {
            VAR(cell[index]) = 1;
            hurry(index);
            if (index == 0) hurry(0);
            return;
        }
        for (int i = 0; i < 2; i++) collect_near_limit();
    }
    void after() {
        collect_near_limit();
        for (int i = 0; i < 2; i++) RL_ASSERT(sent[i] == entered[i] && sent[i] != 0);
    }
};

// Two that come to one slot at once: one is entered, the other is told to wait, and no one is overwritten.
struct meeting : rl::test_suite<meeting, 2> {
    rl::atomic<unsigned> near;
    unsigned entered;
    void before() {
        twi_store_relaxed(&near, 0u);
        entered = 0;
    }
    void thread(unsigned index) {
        unsigned none = 0;
        if (twi_load_relaxed(&near) != 0) return;
        if (is_weak(Q1, STEP)) {
            twi_store_release(&near, index + 1, NONE);
            entered++;
        } else if (twi_cas_acqrel(&near, &none, index + 1, Q1)) {
            entered++;
        }
    }
    void after() {
        RL_ASSERT(entered == 1);
    }
};

// overshoot.c: a note is taken, written, looked at by the turn, let go and taken by another: never its name with
// another's limit.
struct notes : rl::test_suite<notes, 3> {
    enum { BUSY = 1 };
    rl::atomic<unsigned> of;
    rl::atomic<int> limit;
    void before() {
        twi_store_relaxed(&of, 0u);
        twi_store_relaxed(&limit, 0);
    }
    void note(unsigned own, int named) {
        unsigned found = twi_load_acquire(&of, O1);
        if (found != 0 && found != own) return;
        int noted = found == own ? twi_load_relaxed(&limit) : 0;
        if (noted >= named || !twi_cas_acqrel(&of, &found, (unsigned)BUSY, NONE)) return;
        if (is_weak(O2, STEP)) twi_store_release(&of, own, NONE); // O2 step: the name first
        twi_store_relaxed(&limit, named);
        if (!is_weak(O2, STEP)) twi_store_release(&of, own, O2);
    }
    void thread(unsigned index) {
        if (index < 2) {
            note(2 + index, 10 + (int)index);
            return;
        }
        for (int i = 0; i < 3; i++) {
            unsigned own = twi_load_acquire(&of, O1);
            if (own <= BUSY) continue;
            RL_ASSERT(twi_load_relaxed(&limit) == 8 + (int)own);
            twi_store_release(&of, 0u, O2);
        }
    }
};

int main() {
    const char *one_way =
        "the turn shows nothing to who comes near; that one swap takes what the other left is what counts";
    const model_mutant come[] = {
        {Q1, RELEASE, NULL}, {Q2, ACQUIRE, NULL},    {Q3, RELEASE, NULL},    {Q3, STEP, NULL},      {Q4, ACQUIRE, NULL},
        {Q4, STEP, NULL},    {Q1, ACQUIRE, one_way}, {Q2, RELEASE, one_way}, {Q4, RELEASE, one_way},
    };
    const model_mutant meet[] = {{Q1, STEP, NULL}};
    int wrong = MODEL_RUN(coming, "near limits", 50000, come);
    wrong += MODEL_RUN(meeting, "near limits, one slot", 10000, meet);
    const model_mutant note[] = {{O1, ACQUIRE, NULL}, {O2, RELEASE, NULL}, {O2, STEP, NULL}};
    wrong += MODEL_RUN(notes, "notes of limits", 30000, note);
    return wrong != 0;
}
