// spill.cpp -- models of spill.c: an entry whose key is replaced, or whose count rises, while others read it; the lock
// of a shard; and how a sketch comes to be.
// Left out: heap and index, which are under the lock; more than two words of an entry; more than two tries of a reader.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/table/spill.c:begin 392b8539c13d
//   engine/table/spill.c:add_shard 8ca0edcc1b03
//   engine/table/spill.c:write_entry a6e1a8b1ba28
//   engine/table/spill.c:enter f90a4c1e76ce
//   engine/table/spill.c:count_in da7c5e5da3df
//   engine/table/spill.c:lock_one b62882d8edf6
//   engine/table/spill.c:twi_spill_add 9b4e8027ad54
//   engine/table/spill.c:twi_spill_of bf8ad39142f5
//   engine/table/spill.c:twi_spill_shard_of 9172c012fe00
//   engine/table/spill.c:twi_spill_read 31f61a9bef7a
#include "tests/orderings/model.hpp"

// Key 1 has the entry, with a count of 1; key 2 takes it over, and then key 3. A reader sees one of them whole. If it
// does not see key 1 any more, or cannot read the entry, it sees a floor of 1 at least.
// What a given-up entry may have had below zero is added to `debt` next to the floor, so the same orders hold for it.
struct entry : rl::test_suite<entry, 2> {
    rl::atomic<unsigned> version, key, count, floor;
    void before() {
        twi_store_relaxed(&version, 2u);
        twi_store_relaxed(&key, 1u);
        twi_store_relaxed(&count, 1u);
        twi_store_relaxed(&floor, 0u);
    }
    void write_entry(unsigned next) {
        unsigned now = twi_load_relaxed(&version);
        twi_store_release(&version, now + 1, B1);
        twi_store_release(&key, next, B1);
        twi_store_release(&count, next, B1);
        twi_store_release(&version, now + 2, B1);
    }
    void enter(unsigned next) {
        if (!is_weak(B1, STEP)) twi_store_relaxed(&floor, next - 1);
        write_entry(next);
        if (is_weak(B1, STEP)) twi_store_relaxed(&floor, next - 1); // B1 step: the floor behind
    }
    void read() {
        unsigned seen = 0;
        for (int reads = 0; reads < 2 && seen == 0; reads++) {
            unsigned now = twi_load_acquire(&version, B2);
            if ((now & 1) != 0) continue;
            unsigned key_seen = twi_load_acquire(&key, B2), count_seen = twi_load_acquire(&count, B2);
            if (twi_load_relaxed(&version) != now && !is_weak(B2, STEP)) continue; // B2 step: not looked at again
            RL_ASSERT(key_seen == count_seen);
            seen = key_seen;
        }
        unsigned floor_seen = twi_load_relaxed(&floor);
        RL_ASSERT(seen == 1 || floor_seen >= 1);
        RL_ASSERT(seen != 3 || floor_seen >= 2);
    }
    void thread(unsigned index) {
        if (index == 1) return read();
        enter(2);
        enter(3);
    }
};

// One thread gives the entry of key 1 to key 2, another one counts in whatever key it finds there. A reader never sees
// the key of the one with the count of the other, though the version stays as it is where a count rises.
struct rising : rl::test_suite<rising, 3> {
    rl::atomic<unsigned> lock, version, key, count;
    void before() {
        twi_store_relaxed(&lock, 0u);
        twi_store_relaxed(&version, 2u);
        twi_store_relaxed(&key, 1u);
        twi_store_relaxed(&count, 10u);
    }
    void write_entry() {
        twi_store_release(&version, 3u, B1);
        twi_store_release(&key, 2u, B1);
        twi_store_release(&count, 20u, B1);
        twi_store_release(&version, 4u, B1);
    }
    void count_in() {
        twi_store_release(&count, twi_load_relaxed(&count) + 1, B7);
    }
    void read() {
        unsigned now = twi_load_acquire(&version, B2);
        if ((now & 1) != 0) return;
        unsigned key_seen = twi_load_acquire(&key, B2), count_seen = twi_load_acquire(&count, B2);
        if (twi_load_relaxed(&version) != now) return;
        RL_ASSERT(count_seen / 10 == key_seen);
    }
    void thread(unsigned index) {
        if (index == 2) return read();
        if (twi_swap_acquire(&lock, 1u, B3) != 0) return;
        index == 0 ? write_entry() : count_in();
        twi_store_release(&lock, 0u, B4);
    }
};

// The lock of a shard: what is not atomic is used by one thread at a time. A thread that finds it held goes elsewhere.
struct shard : rl::test_suite<shard, 3> {
    rl::atomic<unsigned> lock, missed;
    rl::var<unsigned> heap;
    void before() {
        twi_store_relaxed(&lock, 0u);
        twi_store_relaxed(&missed, 0u);
        VAR(heap) = 0;
    }
    void add() {
        if (twi_load_relaxed(&lock) != 0 || twi_swap_acquire(&lock, 1u, B3) != 0) {
            twi_add_relaxed(&missed, 1u);
            return;
        }
        VAR(heap) = VAR(heap) + 1;
        twi_store_release(&lock, 0u, B4);
    }
    void thread(unsigned) {
        add();
        add();
    }
    void after() {
        RL_ASSERT(VAR(heap) + twi_load_relaxed(&missed) == 6);
    }
};

// Two threads make the sketch at once, a third one looks: all use the same, and find it filled in.
struct beginning : rl::test_suite<beginning, 3> {
    rl::atomic<unsigned> sketch;
    rl::var<unsigned> content[3];
    unsigned used[2];
    void before() {
        twi_store_relaxed(&sketch, 0u);
        used[0] = used[1] = 0;
    }
    unsigned begin(unsigned own) {
        unsigned found = 0;
        VAR(content[own]) = own;
        if (is_weak(B5, STEP)) { // B5 step: stored over what another one brought
            twi_store_release(&sketch, own, NONE);
            return own;
        }
        return twi_cas_acqrel(&sketch, &found, own, B5) ? own : found;
    }
    void thread(unsigned index) {
        unsigned line = twi_load_acquire(&sketch, B6);
        if (line == 0 && index < 2) line = begin(index + 1);
        if (line == 0) return;
        RL_ASSERT(VAR(content[line]) == line);
        if (index < 2) used[index] = line;
    }
    void after() {
        RL_ASSERT(used[0] == used[1]);
    }
};

int main() {
    const model_mutant of_entry[] = {
        {B1, RELEASE, NULL}, {B1, STEP, NULL}, {B2, ACQUIRE, NULL}, {B2, STEP, NULL}};
    const model_mutant of_rising[] = {{B7, RELEASE, NULL}, {B2, ACQUIRE, NULL}};
    const model_mutant of_shard[] = {{B3, ACQUIRE, NULL}, {B4, RELEASE, NULL}};
    const model_mutant of_beginning[] = {
        {B5, RELEASE, NULL}, {B5, ACQUIRE, NULL}, {B5, STEP, NULL}, {B6, ACQUIRE, NULL}};
    int wrong = MODEL_RUN(entry, "sketch, an entry", 50000, of_entry);
    wrong += MODEL_RUN(rising, "sketch, a count that rises", 50000, of_rising);
    wrong += MODEL_RUN(shard, "sketch, a lock", 20000, of_shard);
    wrong += MODEL_RUN(beginning, "sketch, its beginning", 20000, of_beginning);
    return wrong != 0;
}
