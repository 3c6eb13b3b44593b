// limits.cpp -- model of extras/limits.c: tables are swapped and freed while readers look things up in them.
// Left out: what is looked up; one word stands for a table, and freeing is a write to it. A slot for each reader; a
// place is used again by the table after the next.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   extras/limits.c:look_up 0eebb797a49f
//   extras/limits.c:wait_for_readers 61c3929ae26e
//   extras/limits.c:reload d480ec01cabf
//   extras/limits.c:tw_limits_reload a80c813dffba
#include "tests/orderings/model.hpp"

#define twi_add_seqcst(p, v, label) (p)->fetch_add((v), is_weak(label, STEP) ? rl::mo_relaxed : rl::mo_seq_cst, $)
#define twi_store_seqcst(p, v, label) (p)->store((v), is_weak(label, RELEASE) ? rl::mo_relaxed : rl::mo_seq_cst, $)

enum { READERS = 2, FREED = -1 };

struct swapping : rl::test_suite<swapping, READERS + 2> {
    rl::atomic<unsigned> current, side, reloading, inside[READERS][2];
    rl::var<int> table[2];
    rl::var<int> opened; // what only who reloads may touch

    void before() {
        twi_store_relaxed(&current, 0u);
        twi_store_relaxed(&side, 0u);
        twi_store_relaxed(&reloading, 0u);
        for (int i = 0; i < READERS; i++)
            for (int j = 0; j < 2; j++) twi_store_relaxed(&inside[i][j], 0u);
        VAR(table[0]) = 1;
        VAR(table[1]) = FREED;
        VAR(opened) = 0;
    }

    void find(unsigned self) {
        unsigned early = twi_load_relaxed(&current), from = twi_load_relaxed(&side);
        (void)twi_add_seqcst(&inside[self][from], 1u, V1);
        unsigned place = twi_load_seqcst(&current, V2);
        if (is_weak(V2, STEP)) place = early; // V2 step: loaded before it was counted
        RL_ASSERT(VAR(table[place]) != FREED);
        (void)twi_sub_acqrel(&inside[self][from], 1u, V5);
    }

    void wait_for_readers() {
        for (int turn = 0; turn < 2; turn++) {
            unsigned from = twi_load_relaxed(&side);
            twi_store_relaxed(&side, 1 - from);
            if (is_weak(V4, STEP) && turn == 1) return; // V4 step: one side is enough
            for (int i = 0; i < READERS; i++)
                while (twi_load_seqcst(&inside[i][from], V4) != 0) rl::yield(1, $);
        }
    }

    void reload() {
        unsigned nobody = 0;
        if (!twi_cas_acqrel(&reloading, &nobody, 1u, V6)) return;
        unsigned old = twi_load_relaxed(&current);
        VAR(opened) = VAR(opened) + 1;
        VAR(table[1 - old]) = 1;
        if (is_weak(V3, STEP)) wait_for_readers(); // V3 step: waited for, then swapped
        twi_store_seqcst(&current, 1 - old, V3);
        if (!is_weak(V3, STEP)) wait_for_readers();
        VAR(table[old]) = FREED;
        twi_store_release(&reloading, 0u, V7);
    }

    void thread(unsigned index) {
        for (int i = 0; i < 2; i++) {
            if (index < READERS) {
                find(index);
            } else {
                reload();
            }
        }
    }
};

int main() {
    const model_mutant mutants[] = {
        {V1, STEP, NULL}, {V2, STEP, NULL},    {V2, ACQUIRE, NULL}, {V3, STEP, NULL},    {V3, RELEASE, NULL},
        {V4, STEP, NULL}, {V4, ACQUIRE, NULL}, {V5, RELEASE, NULL}, {V6, ACQUIRE, NULL}, {V7, RELEASE, NULL},
    };
    return MODEL_RUN(swapping, "swapping tables", 100000, mutants) != 0;
}
