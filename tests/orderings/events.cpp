// events.cpp -- model of the library's own event counts: a thread that raises and one that goes to sleep do not miss
// each other.
// Left out: the deadline, so that a missed wake is a deadlock. The kernel's futex is a mutex and a condition: it looks
// at the word and queues the thread in one step, and takes an order from nobody (its look is relaxed).
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/base/event_count.c:twi_event_count_value 07573d2b0e14
//   engine/base/event_count.c:twi_event_count_raise b38334f2c35b
//   engine/base/event_count.c:twi_event_count_wait a663d3a9c511
//   engine/base/event_count.c:sleep_while c53e274434a2
//   engine/base/event_count.c:wake_all e1fc6c7f45ef
#include "tests/orderings/model.hpp"

#define twi_add_seqcst(p, v, label) (p)->fetch_add((v), is_weak(label, RELEASE) ? rl::mo_relaxed : rl::mo_seq_cst, $)

struct events : rl::test_suite<events, 3> {
    rl::atomic<unsigned> count, sleepers;
    rl::var<int> done; // what the raise tells of
    rl::mutex kernel;
    rl::condition_variable queue;

    void before() {
        twi_store_relaxed(&count, 0u);
        twi_store_relaxed(&sleepers, 0u);
        VAR(done) = 0;
    }

    void sleep_while(unsigned expected) {
        kernel.lock($);
        if (twi_load_relaxed(&count) == expected) queue.wait(kernel, $);
        kernel.unlock($);
    }
    void wake_all() {
        kernel.lock($);
        kernel.unlock($);
        queue.notify_all($);
    }

    void raise() {
        if (is_weak(I2, STEP)) { // I2 step: sleepers are looked for before the count is raised
            bool sleeps = twi_load_seqcst(&sleepers, NONE) != 0;
            (void)twi_add_seqcst(&count, 1u, NONE);
            if (sleeps) wake_all();
            return;
        }
        (void)twi_add_seqcst(&count, 1u, I1);
        if (twi_load_seqcst(&sleepers, I2) != 0) wake_all();
    }

    void wait(unsigned seen) {
        if (twi_load_acquire(&count, I3) != seen) return;
        if (!is_weak(I4, STEP)) (void)twi_add_seqcst(&sleepers, 1u, I4); // I4 step: not counted in before it sleeps
        while (twi_load_seqcst(&count, I4) == seen) sleep_while(seen);
        if (is_weak(I4, STEP)) (void)twi_add_seqcst(&sleepers, 1u, I4);
        (void)twi_sub_relaxed(&sleepers, 1u);
    }

    void thread(unsigned index) {
        if (index == 0) {
            VAR(done) = 1;
            raise();
            return;
        }
        while (twi_load_acquire(&count, I3) == 0) wait(0);
        RL_ASSERT(VAR(done) == 1);
    }
};

int main() {
    const model_mutant mutants[] = {
        {I1, RELEASE, NULL}, {I2, ACQUIRE, NULL}, {I2, STEP, NULL}, {I3, ACQUIRE, NULL},
        {I4, RELEASE, NULL}, {I4, ACQUIRE, NULL}, {I4, STEP, NULL},
    };
    return MODEL_RUN(events, "event counts", 50000, mutants) != 0;
}
