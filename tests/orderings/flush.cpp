// flush.cpp -- model of engine/turn/turn.c: processes that flush raise a word, and the leader serves it in rounds.
// Left out: the collection itself (marks.cpp `flushing`: one word stands for a caller's adds), and how the turn goes
// from one leader to the next. A round is lost if its leader ends.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/turn/turn.c:twi_flush_take b127e0ca529d
//   engine/turn/turn.c:twi_flush_state 2f7cf5079230
//   engine/turn/turn.c:end_round b8024a95def3
//   engine/turn/turn.c:twi_flush_serve 2bcebe7f66db
#include "tests/orderings/model.hpp"

struct serving : rl::test_suite<serving, 3> {
    enum { CALLERS = 2 };
    enum ticket { OPEN, DONE, REFUSED };
    rl::atomic<unsigned> counts[CALLERS]; // what each caller has added
    rl::atomic<unsigned> wanted, served, refused, gone;
    rl::var<int> is_sent[CALLERS]; // Redis has it
    // the leader's
    unsigned until;
    bool takes[CALLERS], redis_refuses; // of the round
    bool has_sent[CALLERS];

    void before() {
        for (int i = 0; i < CALLERS; i++) {
            twi_store_relaxed(&counts[i], 0u);
            VAR(is_sent[i]) = 0;
            has_sent[i] = false;
        }
        twi_store_relaxed(&wanted, 0u);
        twi_store_relaxed(&served, 0u);
        twi_store_relaxed(&refused, 0u);
        twi_store_relaxed(&gone, 0u);
        until = 0;
    }

    // ---- a caller

    unsigned take() {
        return twi_add_acqrel(&wanted, 1u, FL1) + 1;
    }
    ticket state(unsigned number) {
        if (twi_load_acquire(&served, FL4) < number) return OPEN;
        return twi_load_relaxed(&refused) >= number ? REFUSED : DONE;
    }
    void flush(unsigned self) {
        twi_store_relaxed(&counts[self], 1u);
        unsigned number = take();
        ticket found;
        while ((found = state(number)) == OPEN) rl::yield(1, $);
        if (found == DONE) RL_ASSERT(VAR(is_sent[self]) == 1);
        (void)twi_add_acqrel(&gone, 1u, NONE);
    }

    // ---- the leader

    void ticket_take() {
        for (int i = 0; i < CALLERS; i++) takes[i] = twi_load_relaxed(&counts[i]) != 0;
        redis_refuses = rl::rand(3) == 0;
    }
    void end_round() {
        if (rl::rand(2) == 0) return; // it is not over yet
        for (int i = 0; i < CALLERS; i++) {
            if (!takes[i] || redis_refuses || has_sent[i]) continue; // what is refused is sent again later
            VAR(is_sent[i]) = 1;
            has_sent[i] = true;
        }
        // FL3 step: served before it is known what was refused
        if (is_weak(FL3, STEP)) twi_store_release(&served, until, FL3);
        if (redis_refuses) twi_store_relaxed(&refused, until);
        if (!is_weak(FL3, STEP)) twi_store_release(&served, until, FL3);
        until = 0;
    }
    void serve() {
        if (rl::rand(8) == 0) until = 0; // another process leads
        if (until != 0) end_round();
        if (until != 0) return;
        if (is_weak(FL2, STEP)) ticket_take(); // FL2 step: the collection begins, then who wants it is looked at
        unsigned seen = twi_load_acquire(&wanted, FL2);
        if (seen == twi_load_relaxed(&served)) return;
        until = seen;
        if (!is_weak(FL2, STEP)) ticket_take();
    }

    void thread(unsigned index) {
        if (index < CALLERS) {
            flush(index);
            return;
        }
        while (twi_load_acquire(&gone, NONE) != CALLERS) {
            serve();
            rl::yield(1, $);
        }
    }
};

int main() {
    const model_mutant mutants[] = {
        {FL1, RELEASE, NULL}, {FL1, ACQUIRE, "a caller reads nothing of who wanted a flush before"},
        {FL2, ACQUIRE, NULL}, {FL2, STEP, NULL},
        {FL3, RELEASE, NULL}, {FL3, STEP, NULL},
        {FL4, ACQUIRE, NULL},
    };
    return MODEL_RUN(serving, "a flush of several processes", 50000, mutants) != 0;
}
