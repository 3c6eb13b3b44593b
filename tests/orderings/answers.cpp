// answers.cpp -- models of calls that answer later: a call answered or forgotten, an operation given back before its
// family is freed, an answer for a thread that waits, the second thread that is made by whoever comes first, and what
// two threads of a process of a shared engine may come to at once: the waiters, the dispatcher and its making.
// Left out: the lists of operations and of lanes, which mutexes keep; the wake of the thread that waits (events.cpp);
// the second thread's end, which begins when nobody starts or wakes any more.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   sync/ask/lanes.c:twi_lanes_forget 9faa0d1c46d5
//   sync/ask/lanes.c:twi_lanes_claim c595f7dc9924
//   engine/core/operation.c:twi_operation_give 5147efbd5693
//   engine/turn/rollover.c:free_family cc9cf403ec0d
//   engine/core/queue.c:twi_queue_push 1aa09e0941fc
//   engine/core/calls.c:sleep_until_over 9a685cfd3df8
//   engine/core/calls.c:twi_waiters_turn 120a5fc04080
//   engine/core/operation.c:twi_driving_sync 266b1eb5d62b
//   engine/core/operation.c:twi_driving_begin 15e8625eb6eb
//   engine/core/operation.c:twi_driving_step 99f78adc06e3
//   engine/core/calls.c:start b84768e47e51
//   engine/core/calls.c:twi_second_start bdf3e7a03640
//   engine/core/calls.c:twi_second_wake 44188791728d
#include "tests/orderings/model.hpp"

// ---- a call is answered or forgotten --------------------------------------------------------------------------------

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

// ---- a family is freed when its last operation has been given back --------------------------------------------------

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

// ---- an answer for a thread that waits ------------------------------------------------------------------------------

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

// ---- the second thread ----------------------------------------------------------------------------------------------

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

// ---- the leader's turn and the second thread of its process ---------------------------------------------------------

// `waits`: they look at the waiters, otherwise they drive the calls.
template <bool waits> struct one_at_a_time : rl::test_suite<one_at_a_time<waits>, 2> {
    rl::atomic<unsigned> is_taken;
    rl::var<int> looks;

    void before() {
        twi_store_relaxed(&is_taken, 0u);
        VAR(looks) = 0;
    }
    void step() {
        const model_label take = waits ? AN9 : AN11, leave = waits ? AN10 : AN12;
        if (is_weak(take, STEP)) { // AN9, AN11 step: looked at, then taken
            if (twi_load_acquire(&is_taken, NONE)) return;
            twi_store_relaxed(&is_taken, 1u);
        } else if (twi_swap_acqrel(&is_taken, 1u, take)) {
            return;
        }
        VAR(looks) = VAR(looks) + 1;
        twi_store_release(&is_taken, 0u, leave);
    }
    void thread(unsigned index) {
        (void)index;
        for (int i = 0; i < 2; i++) step();
    }
};

// Two threads make the dispatcher, of which one is kept, and a third one uses it.
struct dispatching : rl::test_suite<dispatching, 3> {
    rl::atomic<unsigned> asks; // 0: none
    rl::var<int> made[3];

    void before() {
        twi_store_relaxed(&asks, 0u);
        for (int i = 0; i < 3; i++) VAR(made[i]) = 0;
    }
    unsigned sync() {
        return twi_load_acquire(&asks, AN14);
    }
    void begin(unsigned self) {
        if (sync() != 0) return;
        unsigned none = 0;
        VAR(made[self]) = 1;
        if (is_weak(AN13, STEP)) { // AN13 step: the later one is kept
            twi_store_release(&asks, self, NONE);
            none = twi_load_acquire(&asks, NONE);
            if (none != self) VAR(made[self]) = 0;
        } else if (!twi_cas_acqrel(&asks, &none, self, AN13)) {
            VAR(made[self]) = 0;
        }
    }
    void thread(unsigned index) {
        if (index < 2) begin(index + 1);
        unsigned found = sync();
        if (found != 0) RL_ASSERT(VAR(made[found]) == 1);
    }
};

// ---- what is weakened -----------------------------------------------------------------------------------------------

static const char other_half[] =
    "the other half of a read-modify-write: who gives back reads nothing of who gave back before";

static const char taken_alone[] = "who finds it taken goes, and reads nothing";
static const char kept[] = "who is too late destroys its own, and looks again for that of the other (AN14)";

static const char one_word[] =
    "one of the two has the number; what it leads to was written under the lock of the lanes";

int main() {
    const model_mutant of_hearing[] = {{AN7, STEP, NULL},        {AN7, ACQUIRE, one_word}, {AN7, RELEASE, one_word},
                                       {AN8, STEP, NULL},        {AN8, ACQUIRE, one_word}, {AN8, RELEASE, one_word}};
    const model_mutant of_giving[] = {{AN1, RELEASE, NULL}, {AN1, ACQUIRE, other_half}, {AN2, ACQUIRE, NULL}};
    const model_mutant of_waiting[] = {{AN3, RELEASE, NULL}, {AN4, ACQUIRE, NULL}};
    const model_mutant of_second[] = {{AN5, ACQUIRE, NULL}, {AN6, RELEASE, NULL}};
    const model_mutant of_waiters[] = {
        {AN9, STEP, NULL}, {AN9, ACQUIRE, NULL}, {AN9, RELEASE, taken_alone}, {AN10, RELEASE, NULL}};
    const model_mutant of_driving[] = {
        {AN11, STEP, NULL}, {AN11, ACQUIRE, NULL}, {AN11, RELEASE, taken_alone}, {AN12, RELEASE, NULL}};
    const model_mutant of_dispatching[] = {
        {AN13, STEP, NULL}, {AN13, RELEASE, NULL}, {AN13, ACQUIRE, kept}, {AN14, ACQUIRE, NULL}};
    int wrong = MODEL_RUN(hearing, "answered or forgotten", 20000, of_hearing);
    wrong += MODEL_RUN(giving, "operations given back", 20000, of_giving);
    wrong += MODEL_RUN(waiting, "an answer for who waits", 20000, of_waiting);
    wrong += MODEL_RUN(second, "the second thread", 20000, of_second);
    wrong += MODEL_RUN(one_at_a_time<true>, "who looks at the waiters", 20000, of_waiters);
    wrong += MODEL_RUN(one_at_a_time<false>, "who drives the calls", 20000, of_driving);
    wrong += MODEL_RUN(dispatching, "a dispatcher is made", 20000, of_dispatching);
    return wrong != 0;
}
