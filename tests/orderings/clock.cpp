// clock.cpp -- model of the stamp beside the word of the clock: who finds that the word is young has a word that is as
// late as the stamp.
// Left out: the state in the word, and what a counter is. It is a plain variable here, which each thread reads as it
// is.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/base/clock.h:twi_clock_is_young 24ed24cb7295
//   engine/base/clock.c:put_stamp 1e9f73a1c875
//   engine/base/clock.c:twi_clock_renew_ms 1e234c07b9bc
#include "tests/orderings/model.hpp"

struct stamps : rl::test_suite<stamps, 3> {
    unsigned now; // the counter, and the clock
    rl::atomic<unsigned> word, stamp;

    void before() {
        now = 1;
        twi_store_relaxed(&word, 0u);
        twi_store_relaxed(&stamp, 0u);
    }

    void read_clock() {
        unsigned seen = twi_load_relaxed(&word), time = now;
        while (seen < time && !twi_cas_acqrel(&word, &seen, time, NONE)) {}
    }
    void put_stamp(unsigned own) {
        if (twi_load_relaxed(&stamp) != own) twi_store_release(&stamp, own, TS2);
    }
    void renew() {
        unsigned own = now;
        if (is_weak(TS2, STEP)) put_stamp(own); // TS2 step: the stamp is there before the word
        read_clock();
        if (!is_weak(TS2, STEP)) put_stamp(own);
    }
    bool is_young(unsigned *time) {
        if (is_weak(TS1, STEP)) *time = twi_load_relaxed(&word); // TS1 step: the word is loaded before the stamp
        unsigned shown = twi_load_acquire(&stamp, TS1);
        if (shown != now) return false;
        if (!is_weak(TS1, STEP)) *time = twi_load_relaxed(&word);
        RL_ASSERT(*time >= shown);
        return true;
    }

    void thread(unsigned index) {
        unsigned time;
        for (int i = 0; i < 2; i++) {
            if (index == 0) now++;
            if (index < 2)
                renew();
            else
                (void)is_young(&time);
        }
    }
};

int main() {
    const model_mutant of_stamps[] = {{TS1, ACQUIRE, NULL}, {TS1, STEP, NULL}, {TS2, RELEASE, NULL}, {TS2, STEP, NULL}};
    return MODEL_RUN(stamps, "a word that is young", 50000, of_stamps);
}
