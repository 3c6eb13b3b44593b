// windows.cpp -- models of engine/core/window_map.c, of family.h and lookup.c where windows change, and of the turn's
// ownership. The map of windows: opening, replacing the map, unlinking what is dropped (W3 to W6); the short cut
// `current` (W1, W2); a key that begins a life behind the back of another (N1, N2); a window that is told to be over
// (N5, N2); a bucket's word that goes on in the next window (N3, N4); times of a family that are made longer (F1, F2);
// who owns the turn (E1, E2). W7 is the phase of a window, as copiers read it.
// Left out: memory that runs out, a map that is replaced before it is full, a copy given up half-way, announcing to the
// wheel, reuse of a retired map (reclaim.cpp), lives beyond the second.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/core/window_map.c:look 86a6249374fb
//   engine/core/window_map.c:live_in 25b43972e087
//   engine/core/window_map.c:copy_into 0e124ecd137d
//   engine/core/window_map.c:count_live 6c5557ad7dd1
//   engine/core/window_map.c:replace_map 21e0cb6cac1b
//   engine/core/window_map.c:twi_window_find 91e51dd7d8ef
//   engine/core/window_map.c:enter 5ea09f4e1436
//   engine/core/window_map.c:twi_window_unlink_dropped 7c90f8d1d030
//   engine/core/window_map.h:twi_window_at 6f72d006eac9
//   engine/core/family.h:twi_family_takes_until 51f16a67c676
//   engine/count/lookup.c:still_lives_before e1bc234bbb4d
//   engine/count/lookup.c:still_current ab201d73d019
//   engine/count/lookup.c:twi_place_make c781690ce0c6
//   engine/turn/closing.c:fill_heartbeat d9b9ebaa6c7a
//   engine/turn/window_end.c:is_its_turn 9f29a7618e33
//   engine/limit/gcra.c:close_before 92b9b801539c
//   engine/limit/gcra.c:take 3139e1a26180
//   engine/family_open.c:note_what_is_over 378d2a29a1b9
//   engine/family_open.c:apply_policies 6898e7d9a5c2
//   engine/count/lookup.c:twi_absent_window_status c51a10e10c1b
//   engine/turn/turn.c:twi_turn_take e7283d5c8602
//   engine/turn/turn.c:twi_turn_leave a33128fd95bd
#include "tests/orderings/model.hpp"

enum { EMPTY = 0, CLOSED = 1, GONE = 2, MAPS = 8, SLOTS = 4, WINDOWS = 6 };
static unsigned slot_of(unsigned generation) {
    return generation + 8;
}
static unsigned generation_of(unsigned slot) {
    return slot - 8;
}

struct family {
    struct map {
        rl::atomic<unsigned> used;
        rl::var<unsigned> capacity;
        rl::atomic<unsigned> slots[SLOTS];
    };
    struct generation {
        rl::atomic<unsigned> dropped; // its phase
        rl::var<unsigned> start;
    };
    map maps[MAPS];
    generation generations[WINDOWS];
    rl::atomic<unsigned> word; // turns << 8 | number of the map
    rl::atomic<unsigned> maps_taken, generations_taken;
    rl::atomic<unsigned> current;

    void begin(unsigned capacity) {
        twi_store_relaxed(&maps_taken, 2u);
        twi_store_relaxed(&generations_taken, 1u);
        twi_store_relaxed(&current, 0u);
        map_make(1, capacity);
        twi_store_relaxed(&word, 1u);
    }
    void map_make(unsigned number, unsigned capacity) {
        VAR(maps[number].capacity) = capacity;
        twi_store_relaxed(&maps[number].used, 0u);
        for (unsigned i = 0; i < SLOTS; i++) twi_store_relaxed(&maps[number].slots[i], (unsigned)EMPTY);
    }

    unsigned look(map *map, unsigned start, unsigned *at, unsigned *stop) {
        unsigned capacity = VAR(map->capacity), i = start % capacity;
        for (unsigned left = capacity; left != 0; left--) {
            unsigned slot = twi_load_acquire(&map->slots[i], W4);
            *at = i;
            *stop = slot;
            if (slot <= CLOSED) return 0;
            if (slot != GONE && VAR(generations[generation_of(slot)].start) == start) return generation_of(slot);
            if (++i == capacity) i = 0;
        }
        *stop = CLOSED;
        return 0;
    }
    unsigned live_in(unsigned slot) {
        if (slot <= GONE) return 0;
        return twi_load_acquire(&generations[generation_of(slot)].dropped, W7) == 0 ? generation_of(slot) : 0;
    }
    unsigned count_live(map *map) {
        unsigned live = 0;
        for (unsigned i = 0; i < VAR(map->capacity); i++) live += live_in(twi_load_acquire(&map->slots[i], W4)) != 0;
        return live;
    }
    void replace_map(unsigned old_word) {
        map *old = &maps[old_word & 0xff];
        unsigned capacity = count_live(old) + 2, number = twi_add_relaxed(&maps_taken, 1u);
        RL_ASSERT(number < MAPS);
        if (capacity > SLOTS) capacity = SLOTS;
        map_make(number, capacity);
        for (unsigned i = 0; i < VAR(old->capacity); i++) {
            unsigned found = EMPTY;
            if (twi_load_relaxed(&old->slots[i]) == EMPTY)
                (void)twi_cas_acqrel(&old->slots[i], &found, (unsigned)CLOSED, W5);
        }
        if (count_live(old) >= capacity) return; // more came while we looked
        for (unsigned i = 0; i < VAR(old->capacity); i++) {
            unsigned slot = twi_load_acquire(&old->slots[i], W4);
            if (live_in(slot) == 0) continue;
            unsigned at = VAR(generations[generation_of(slot)].start) % capacity;
            while (twi_load_relaxed(&maps[number].slots[at]) != EMPTY)
                if (++at == capacity) at = 0;
            twi_store_relaxed(&maps[number].slots[at], slot);
            (void)twi_add_relaxed(&maps[number].used, 1u);
        }
        unsigned found = old_word;
        (void)twi_cas_acqrel(&word, &found, (old_word & ~0xffu) | number, W3);
    }
    unsigned find(unsigned start) {
        for (;;) {
            unsigned seen = twi_load_acquire(&word, W6), at, stop;
            unsigned generation = look(&maps[seen & 0xff], start, &at, &stop);
            if (generation != 0 || stop == EMPTY || twi_load_acquire(&word, W6) == seen) return generation;
        }
    }
    unsigned make(unsigned start) {
        unsigned number = twi_add_relaxed(&generations_taken, 1u);
        RL_ASSERT(number < WINDOWS);
        twi_store_relaxed(&generations[number].dropped, 0u);
        VAR(generations[number].start) = start;
        return number;
    }
    unsigned open(unsigned start) { // enter()
        unsigned mine = 0;
        for (;;) {
            unsigned seen = twi_load_acquire(&word, W6), at, stop;
            map *map = &maps[seen & 0xff];
            unsigned there = look(map, start, &at, &stop);
            if (there != 0) return there;
            if (stop == CLOSED) {
                replace_map(seen);
                continue;
            }
            if (mine == 0) mine = make(start);
            unsigned found = EMPTY;
            if (twi_cas_acqrel(&map->slots[at], &found, slot_of(mine), W5)) {
                (void)twi_add_relaxed(&map->used, 1u);
                return mine;
            }
        }
    }
    void unlink_dropped() {
        unsigned seen = twi_load_acquire(&word, W6);
        for (;;) {
            map *map = &maps[seen & 0xff];
            for (unsigned i = 0; i < VAR(map->capacity); i++) {
                unsigned slot = twi_load_acquire(&map->slots[i], W4);
                if (slot > GONE && live_in(slot) == 0) twi_store_release(&map->slots[i], (unsigned)GONE, NONE);
            }
            if (is_weak(W3, STEP)) return; // W3 step: the word is not raised
            if (twi_cas_acqrel(&word, &seen, seen + 0x100, W3)) return;
        }
    }
    bool names(unsigned generation) {
        map *map = &maps[twi_load_acquire(&word, W6) & 0xff];
        for (unsigned i = 0; i < VAR(map->capacity); i++)
            if (twi_load_acquire(&map->slots[i], W4) == slot_of(generation)) return true;
        return false;
    }
};

// Two openers of one window and of one each, in a map that is soon full, while the turn drops another window.
struct opening : rl::test_suite<opening, 3> {
    family f;
    unsigned dropped, opened[2];

    void before() {
        f.begin(2);
        dropped = f.open(1);
    }
    void thread(unsigned index) {
        if (index < 2) {
            opened[index] = f.open(2);
            RL_ASSERT(VAR(f.generations[opened[index]].start) == 2);
            RL_ASSERT(f.find(2) == opened[index]);
            if (index == 0) f.open(3);
        } else {
            (void)f.find(2);
            twi_store_release(&f.generations[dropped].dropped, 1u, W7);
            f.unlink_dropped();
            RL_ASSERT(!f.names(dropped));
        }
    }
    void after() {
        RL_ASSERT(opened[0] == opened[1]);
        RL_ASSERT(!f.names(dropped)); // no copy has brought it back
        RL_ASSERT(f.find(2) == opened[0] && f.find(3) != 0);
    }
};

// The short cut: who finds the window there may use it as if found in the map.
struct shortcut : rl::test_suite<shortcut, 3> {
    family f;
    void before() {
        f.begin(2);
    }
    void thread(unsigned index) {
        if (index == 0) {
            unsigned made = f.open(1);
            twi_store_release(&f.current, made, W2);
            return;
        }
        unsigned seen = twi_load_acquire(&f.current, W1);
        if (seen == 0 && (seen = f.find(1)) != 0) twi_store_release(&f.current, seen, W2);
        if (seen != 0) RL_ASSERT(VAR(f.generations[seen].start) == 1);
    }
};

// A life in the earlier window, opened late, and one in the window of now: never both. E22.
struct lives : rl::test_suite<lives, 3> {
    family f;
    rl::atomic<unsigned> clock;
    bool lived_before, lives_now;

    void before() {
        f.begin(2);
        twi_store_relaxed(&clock, 1u);
        lived_before = lives_now = false;
    }
    void thread(unsigned index) {
        if (index == 0) {
            twi_store_relaxed(&clock, 2u); // the turn
        } else if (index == 1) {           // twi_place_make() with a clock that was read before
            if (twi_load_relaxed(&clock) != 1) return;
            (void)f.open(1);
            twi_fence_seqcst(N2);
            if (is_weak(N2, STEP) || twi_load_relaxed(&clock) == 1)
                lived_before = true; // N2 step: the clock is not read again
        } else {                     // still_lives_before()
            if (twi_load_relaxed(&clock) != 2) return;
            twi_fence_seqcst(N1);
            if (f.find(1) == 0) lives_now = true; // twi_table_close_probe() would close it
        }
    }
    void after() {
        RL_ASSERT(!(lived_before && lives_now));
    }
};

// closing_send.c: what an engine says that it has drained, nobody counts in any more. Trap R1. The turn raises the
// clock, and then looks.
struct told : rl::test_suite<told, 2> {
    family f;
    rl::atomic<unsigned> clock;
    bool counted, said_over;

    void before() {
        f.begin(2);
        twi_store_relaxed(&clock, 1u);
        counted = said_over = false;
    }
    void thread(unsigned index) {
        if (index == 0) {                                            // fill_heartbeat()
            bool looked_first = is_weak(N5, STEP) && f.find(1) == 0; // N5 step: looked before the clock was raised
            twi_store_relaxed(&clock, 2u);
            twi_fence_seqcst(N5);
            said_over = looked_first || f.find(1) == 0;
        } else { // twi_place_make() with a clock that was read before
            if (twi_load_relaxed(&clock) != 1) return;
            (void)f.open(1);
            twi_fence_seqcst(N2);
            if (twi_load_relaxed(&clock) == 1) counted = true;
        }
    }
    void after() {
        RL_ASSERT(!(counted && said_over));
    }
};

// window_end.c, closing_send.c with a watermark that a third raises: what the turn has seen it pass, nobody counts in
// who opens it unseen.
struct passed : rl::test_suite<passed, 3> {
    family f;
    rl::atomic<unsigned> watermark;
    bool counted, said_over;

    void before() {
        f.begin(2);
        twi_store_relaxed(&watermark, 0u);
        counted = said_over = false;
    }
    void thread(unsigned index) {
        if (index == 0) { // tw_close_until()
            unsigned found = 0;
            (void)twi_cas_acqrel(&watermark, &found, 1u, NONE);
        } else if (index == 1) { // is_its_turn(), fill_heartbeat()
            bool looked_first = is_weak(N5, STEP) && f.find(1) == 0;
            bool over = twi_load_relaxed(&watermark) != 0;
            twi_fence_seqcst(N5);
            said_over = over && (looked_first || f.find(1) == 0);
        } else { // twi_place_make(), by event time
            (void)f.open(1);
            twi_fence_seqcst(N2);
            if (twi_load_relaxed(&watermark) == 0) counted = true;
        }
    }
    void after() {
        RL_ASSERT(!(counted && said_over));
    }
};

// gcra.c: who finds the bucket's word of the window before closed finds the clock past that window; what was charged
// there is carried over, each charge once. E22, E23.
struct buckets : rl::test_suite<buckets, 3> {
    enum { CLOSED_WORD = 1, CHARGE = 2 };
    rl::atomic<unsigned> clock, word;
    int charged;
    unsigned carried;
    void before() {
        twi_store_relaxed(&clock, 1u);
        twi_store_relaxed(&word, 0u);
        charged = -1;
        carried = 0;
    }
    bool take() { // in the earlier window; false: closed
        unsigned seen = twi_load_acquire(&word, N4);
        do {
            if ((seen & CLOSED_WORD) != 0) return false;
        } while (!twi_cas_weak_acqrel(&word, &seen, seen + CHARGE, N4));
        return true;
    }
    void thread(unsigned index) {
        if (index == 0) {
            twi_store_relaxed(&clock, 2u); // the turn
        } else if (index == 1) {
            unsigned before = is_weak(N3, STEP) ? twi_or_acqrel(&word, (unsigned)CLOSED_WORD, NONE) : 0;
            if (twi_load_relaxed(&clock) != 2) return; // N3 step: closed before the clock was read
            carried = is_weak(N3, STEP) ? before : twi_or_acqrel(&word, (unsigned)CLOSED_WORD, N3);
        } else {
            int took = 0;
            while (twi_load_relaxed(&clock) == 1 && took < 2) {
                if (!take()) {
                    RL_ASSERT(twi_load_relaxed(&clock) == 2);
                    break;
                }
                took++;
            }
            charged = took;
        }
    }
    void after() {
        bool closed = (twi_load_relaxed(&word) & CLOSED_WORD) != 0;
        RL_ASSERT(!closed || carried == (unsigned)charged * CHARGE);
    }
};

// family.c: who sees a longer lateness, or a longer history, sees what was over before it.
struct lateness : rl::test_suite<lateness, 2> {
    rl::atomic<int> lateness_ms, history_ms, over_ms, gone_ms;
    void before() {
        twi_store_relaxed(&lateness_ms, 1);
        twi_store_relaxed(&history_ms, 1);
        twi_store_relaxed(&over_ms, 0);
        twi_store_relaxed(&gone_ms, 0);
    }
    void note_what_is_over() {
        twi_store_relaxed(&over_ms, 9);
        twi_store_relaxed(&gone_ms, 8);
    }
    void thread(unsigned index) {
        if (index == 0) {
            if (!is_weak(F1, STEP)) note_what_is_over();
            twi_store_release(&lateness_ms, 5, F1);
            twi_store_release(&history_ms, 5, F1);
            if (is_weak(F1, STEP)) note_what_is_over(); // F1 step: noted behind
            return;
        }
        if (rl::rand(2) == 0) { // twi_family_takes_until()
            int longer = twi_load_acquire(&lateness_ms, F2);
            RL_ASSERT(longer == 1 || twi_load_relaxed(&over_ms) == 9);
        } else { // twi_absent_window_status()
            int longer = twi_load_acquire(&history_ms, F2);
            RL_ASSERT(longer == 1 || twi_load_relaxed(&gone_ms) == 8);
        }
    }
};

// Of three that would run a turn one does, and sees what the last one left.
struct turns : rl::test_suite<turns, 3> {
    rl::atomic<unsigned> owned;
    rl::var<unsigned> state;
    void before() {
        twi_store_relaxed(&owned, 0u);
        VAR(state) = 0;
    }
    void thread(unsigned) {
        for (int i = 0; i < 2; i++) {
            if (is_weak(E1, STEP)) { // E1 step: looked at, then taken
                if (twi_load_acquire(&owned, NONE) != 0) continue;
                twi_store_release(&owned, 1u, NONE);
            } else if (twi_swap_acqrel(&owned, 1u, E1) != 0) {
                continue;
            }
            VAR(state) = VAR(state) + 1;
            twi_store_release(&owned, 0u, E2);
        }
    }
};

int main() {
    const char *stale =
        "a copier that still takes the dropped for alive loses its swap: the turn raises the word behind (W3)";
    const model_mutant map[] = {
        {W3, RELEASE, NULL},
        {W3, STEP, NULL},
        {W4, ACQUIRE, NULL},
        {W5, RELEASE, NULL},
        {W6, ACQUIRE, NULL},
        {W3, ACQUIRE, NULL},
        {W5, ACQUIRE, "behind EMPTY there is nothing to see, and who loses walks again, by W4"},
        {W7, RELEASE, stale},
        {W7, ACQUIRE, stale},
    };
    const model_mutant cut[] = {{W1, ACQUIRE, NULL}, {W2, RELEASE, NULL}};
    const model_mutant life[] = {{N1, FENCE, NULL}, {N2, FENCE, NULL}, {N2, STEP, NULL}};
    const model_mutant over[] = {{N5, FENCE, NULL}, {N2, FENCE, NULL}, {N5, STEP, NULL}};
    const model_mutant turn[] = {
        {E1, ACQUIRE, NULL},
        {E1, STEP, NULL},
        {E2, RELEASE, NULL},
        {E1, RELEASE, "the next owner learns from who leaves (E2), not from who came"},
    };
    const char *carries = "what is carried over stands in the word itself; whoever charges shows nothing else";
    const model_mutant bucket[] = {
        {N3, RELEASE, NULL}, {N3, STEP, NULL}, {N4, ACQUIRE, NULL}, {N3, ACQUIRE, carries}, {N4, RELEASE, carries},
    };
    const model_mutant late[] = {{F1, RELEASE, NULL}, {F1, STEP, NULL}, {F2, ACQUIRE, NULL}};
    int wrong = MODEL_RUN(opening, "the map of windows", 50000, map);
    wrong += MODEL_RUN(shortcut, "the current window", 30000, cut);
    wrong += MODEL_RUN(lives, "one key, one life", 100000, life);
    wrong += MODEL_RUN(told, "a window told to be over", 100000, over);
    wrong += MODEL_RUN(passed, "a window that a watermark has passed", 100000, over);
    wrong += MODEL_RUN(buckets, "buckets", 30000, bucket);
    wrong += MODEL_RUN(lateness, "a longer lateness", 30000, late);
    wrong += MODEL_RUN(turns, "the owner of the turn", 30000, turn);
    return wrong != 0;
}
