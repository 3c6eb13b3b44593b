// answers.cpp -- models of calls that answer later: a call answered or forgotten, an operation given back before its family is
// freed, an answer for a thread that waits, the second thread that is made by whoever comes first.
// Left out: the lists of operations and of lanes, which mutexes keep; the wake of the thread that waits (events.cpp); the
// second thread's end, which begins when nobody starts or wakes any more.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   sync/ask/lanes.c:twi_lanes_forget de86dc7b05bd
//   sync/ask/lanes.c:twi_lanes_claim c595f7dc9924
//   engine/core/operation.c:twi_operation_give 1b03c3b0f39a
//   engine/turn/rollover.c:free_family 0f78cd1dfd27
//   engine/core/queue.c:twi_queue_push 1aa09e0941fc
//   engine/core/calls.c:twi_call_run 1b4626a94dbd
//   engine/core/second.c:start f1fad913995f
//   engine/core/second.c:twi_second_start bdf3e7a03640
//   engine/core/second.c:twi_second_wake 1d46477aa611
#include "tests/orderings/model.hpp"

// ---- a call is answered or forgotten ------------------------------------------------------------------------------------

// The driver has a reply; its caller goes, and frees what answered() would touch.
struct hearing : rl::test_suite<hearing, 2> {
    static const unsigned number = 5;
    rl::atomic<unsigned> heard;
    rl::var<int> ctx;
    bool is_answered, is_forgotten; // each written by one thread, and read when both have ended

    void before() {
        twi_store_relaxed(&heard, number);
        VAR(ctx) = 1;
        is_answered = is_forgotten = false;
    }

    bool forget(unsigned wanted) {
        if (is_weak(AN7, STEP)) { // AN7 step: the number is looked at, then taken
            if (twi_load_acquire(&heard, NONE) != wanted) return false;
            twi_store_release(&heard, 0u, NONE);
            return true;
        }
        return twi_cas_acqrel(&heard, &wanted, 0u, AN7);
    }

    bool claim() {
        if (is_weak(AN8, STEP)) { // AN8 step: the same
            unsigned seen = twi_load_acquire(&heard, NONE);
            twi_store_release(&heard, 0u, NONE);
            return seen != 0;
        }
        return twi_swap_acqrel(&heard, 0u, AN8) != 0;
    }

    void thread(unsigned index) {
        if (index == 0) {
            is_answered = claim();
            if (is_answered) RL_ASSERT(VAR(ctx) == 1);
        } else {
            is_forgotten = forget(number);
            if (is_forgotten) VAR(ctx) = 0;
        }
    }

    void after() {
        RL_ASSERT(is_answered != is_forgotten);
    }
};

// ---- a family is freed when its last operation has been given back ------------------------------------------------------

// Two operations of a family that is closed, each with the family in hand until it is given back; and the turn.
struct giving : rl::test_suite<giving, 3> {
    rl::atomic<unsigned> started;
    rl::var<int> family[2]; // what each of the two uses of it

    void before() {
        twi_store_relaxed(&started, 2u);
        for (int i = 0; i < 2; i++) VAR(family[i]) = 1;
    }

    void give(unsigned index) {
        VAR(family[index]) = 2; // drop(), and what was done with the operation before
        (void)twi_sub_acqrel(&started, 1u, AN1);
    }

    bool free_family() {
        bool stays = twi_load_acquire(&started, AN2) != 0;
        if (stays) return false;
        for (int i = 0; i < 2; i++) VAR(family[i]) = 0;
        return true;
    }

    void thread(unsigned index) {
        if (index < 2)
            give(index);
        else
            while (!free_family()) rl::yield(1, $);
    }
};

// ---- an answer for a thread that waits ----------------------------------------------------------------------------------

struct waiting : rl::test_suite<waiting, 2> {
    rl::atomic<unsigned> is_over;
    rl::var<int> result;

    void before() {
        twi_store_relaxed(&is_over, 0u);
        VAR(result) = 0;
    }

    void push() {
        VAR(result) = 1; // twi_call_answered(), by the same thread
        twi_store_release(&is_over, 1u, AN3);
    }

    void run() {
        for (;;) {
            if (twi_load_acquire(&is_over, AN4)) return;
            rl::yield(1, $);
        }
    }

    void thread(unsigned index) {
        if (index == 0) {
            push();
            return;
        }
        run();
        RL_ASSERT(VAR(result) == 1);
        VAR(result) = 0; // it is given back, and used for another call
    }
};

// ---- the second thread --------------------------------------------------------------------------------------------------

// Two callers start it and wake it, one thread wakes it if it is there.
struct second : rl::test_suite<second, 3> {
    rl::atomic<unsigned> runs;
    rl::mutex lock;
    rl::var<int> wake_fd;

    void before() {
        twi_store_relaxed(&runs, 0u);
        VAR(wake_fd) = -1;
    }

    void start() {
        if (twi_load_acquire(&runs, AN5)) return;
        lock.lock($);
        if (!twi_load_relaxed(&runs)) {
            VAR(wake_fd) = 7;
            twi_store_release(&runs, 1u, AN6);
        }
        lock.unlock($);
    }

    void wake() {
        if (twi_load_acquire(&runs, AN5)) RL_ASSERT(VAR(wake_fd) == 7);
    }

    void thread(unsigned index) {
        if (index < 2) start();
        wake();
    }
};

// ---- what is weakened ---------------------------------------------------------------------------------------------------

static const char other_half[] = "the other half of a read-modify-write: who gives back reads nothing of who gave back before";

static const char one_word[] = "one of the two has the number; what it leads to was written under the lock of the lanes";

int main() {
    const model_mutant of_hearing[] = {{AN7, STEP, NULL},        {AN7, ACQUIRE, one_word}, {AN7, RELEASE, one_word},
                                       {AN8, STEP, NULL},        {AN8, ACQUIRE, one_word}, {AN8, RELEASE, one_word}};
    const model_mutant of_giving[] = {{AN1, RELEASE, NULL}, {AN1, ACQUIRE, other_half}, {AN2, ACQUIRE, NULL}};
    const model_mutant of_waiting[] = {{AN3, RELEASE, NULL}, {AN4, ACQUIRE, NULL}};
    const model_mutant of_second[] = {{AN5, ACQUIRE, NULL}, {AN6, RELEASE, NULL}};
    int wrong = MODEL_RUN(hearing, "answered or forgotten", 20000, of_hearing);
    wrong += MODEL_RUN(giving, "operations given back", 20000, of_giving);
    wrong += MODEL_RUN(waiting, "an answer for who waits", 20000, of_waiting);
    wrong += MODEL_RUN(second, "the second thread", 20000, of_second);
    return wrong != 0;
}
