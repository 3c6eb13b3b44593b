// arena.cpp -- models of free_map.c, arena.c and part.c: lines that are free, the hint to them, a segment that is
// carved, who is refused, and a part that is set aside while others count.
// Left out: which of several runs is taken, untouched segments, sizes, what is gathered before a large piece is looked
// for; where a search begins, and how many segments have which hint; the reserve, one word of bits by the same labels.
// Of parts: several in a list, and when one is empty: only the turn gives pieces of a family that is closed.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/memory/free_map.c:run_around b961367682ba
//   engine/memory/free_map.c:change_hint aba96854f66b
//   engine/memory/free_map.c:raise_hint 4bbf6861a554
//   engine/memory/free_map.c:renew_hint 8d8d48ed579a
//   engine/memory/free_map.c:set_bits 70896ef41543
//   engine/memory/free_map.c:clear_bits 38729c6f2b66
//   engine/memory/arena.c:carve 5325808069dc
//   engine/memory/arena.c:begin_segment b29a667a2f89
//   engine/memory/arena.c:gather 5faa5d6417b8
//   engine/memory/arena.c:take_small 32840770953d
//   engine/memory/arena.c:search 5f77c6c316b1
//   engine/memory/arena.c:keep_for_next d824bbec04ff
//   engine/memory/arena.c:twi_arena_give e7de4be80374
//   engine/memory/part.c:own f973cefcf620
//   engine/memory/part.c:begin f5fb364c8bce
//   engine/memory/part.c:make b1a82fda94d7
//   engine/memory/part.c:give a20ca01be089
//   engine/memory/part.c:twi_parts_extend a56bf3ac365d
//   engine/memory/part.c:twi_parts_take 82f29fee43d0
#include "tests/orderings/model.hpp"

// One segment of two words with two lines each. Three threads take runs of it, write to them, zero them and give them
// back.
struct runs : rl::test_suite<runs, 3> {
    enum { LINES = 4 };
    rl::atomic<unsigned> words[2]; // a bit a line: free
    rl::atomic<unsigned> hint;     // the longest run, or more
    rl::var<int> lines[LINES];

    void before() {
        for (int i = 0; i < 2; i++) twi_store_relaxed(&words[i], 3u);
        for (int i = 0; i < LINES; i++) VAR(lines[i]) = 0;
        twi_store_relaxed(&hint, (unsigned)LINES);
    }
    unsigned read_words() {
        unsigned low = twi_load_relaxed(&words[0]);
        return low | twi_load_relaxed(&words[1]) << 2;
    }
    static unsigned longest(unsigned bits) {
        unsigned most = 0, length = 0;
        for (unsigned at = 0; at < LINES; at++) {
            length = (bits >> at & 1) != 0 ? length + 1 : 0;
            if (length > most) most = length;
        }
        return most;
    }
    // The run that lines `at` to `end` belong to.
    unsigned run_around(unsigned at, unsigned end) {
        unsigned bits = read_words();
        while (at > 0 && (bits >> (at - 1) & 1) != 0) at--;
        while (end < LINES && (bits >> end & 1) != 0) end++;
        return end - at;
    }
    void raise_hint(unsigned at, unsigned end) {
        twi_fence_seqcst(A3);
        unsigned was = twi_load_relaxed(&hint), now = run_around(at, end);
        while (was < now && !hint.compare_exchange_strong(was, now, rl::mo_relaxed, $)) continue;
    }
    void renew_hint() {
        for (;;) {
            twi_fence_seqcst(A3);
            unsigned was = twi_load_relaxed(&hint), now = longest(read_words());
            if (was == now) return;
            (void)hint.compare_exchange_strong(was, now, rl::mo_relaxed, $);
            if (is_weak(A3, STEP)) return; // A3 step: no second look
        }
    }
    static unsigned mask_of(unsigned at, unsigned end) {
        unsigned mask = 0;
        for (; at < end; at++) {
            mask |= 1u << at % 2;
            if (at % 2 == 1) break;
        }
        return mask;
    }
    void set_bits(unsigned at, unsigned end) {
        for (; at < end; at = (at | 1) + 1) {
            unsigned mask = mask_of(at, end), before = twi_or_acqrel(&words[at / 2], mask, A2);
            RL_ASSERT((before & mask) == 0);
        }
    }
    bool clear_bits(unsigned first, unsigned end) {
        for (unsigned at = first; at < end; at = (at | 1) + 1) {
            unsigned mask = mask_of(at, end), found = twi_load_relaxed(&words[at / 2]);
            if (is_weak(A1, STEP)) { // A1 step: cleared whatever is there
                (void)twi_and_acqrel(&words[at / 2], ~mask, NONE);
                continue;
            }
            while ((found & mask) == mask)
                if (twi_cas_weak_acqrel(&words[at / 2], &found, found & ~mask, A1)) break;
            if ((found & mask) == mask) continue;
            if (at != first) {
                set_bits(first, at & ~1u);
                raise_hint(first, at & ~1u);
            }
            return false;
        }
        return true;
    }
    void take_and_give(unsigned first, unsigned end) {
        if (!clear_bits(first, end)) {
            renew_hint();
            return;
        }
        for (unsigned at = first; at < end; at++) {
            RL_ASSERT(VAR(lines[at]) == 0); // zeroed, and nobody else's
            VAR(lines[at]) = 1;
        }
        for (unsigned at = first; at < end; at++) VAR(lines[at]) = 0;
        set_bits(first, end);
        raise_hint(first, end);
    }
    void thread(unsigned index) {
        if (index == 0) take_and_give(1, 4);
        take_and_give(index, index + 2);
    }
    void after() {
        RL_ASSERT(read_words() == 15);               // what was put back half-way is there, too
        RL_ASSERT(twi_load_relaxed(&hint) == LINES); // all are one run
    }
};

// One segment of three pieces, and two sizes that carve pieces of it.
struct carving {
    enum { PIECES = 3, ALL = 7 };
    rl::atomic<unsigned> bits;      // of the segment: all free, or what has come back
    rl::atomic<unsigned> carves[2]; // of each size: the next piece + 1 << 4 | pieces left; 0: nothing to carve
    rl::atomic<unsigned> busy, moves;
    rl::var<int> pieces[PIECES];

    void begin() {
        twi_store_relaxed(&bits, 0u);
        for (int i = 0; i < 2; i++) twi_store_relaxed(&carves[i], 0u);
        twi_store_relaxed(&busy, 0u);
        twi_store_relaxed(&moves, 0u);
    }
    int carve(unsigned size) {
        unsigned found = twi_load_relaxed(&carves[size]);
        while (found != 0) {
            unsigned then = (found & 15) == 1 ? 0 : found + (1 << 4) - 1;
            if (twi_cas_weak_acqrel(&carves[size], &found, then, A5)) return (int)(found >> 4) - 1;
        }
        return -1;
    }
    void give_run(unsigned run) {
        (void)twi_or_acqrel(&bits, ((1u << (run & 15)) - 1) << ((run >> 4) - 1), A2);
    }
    // A piece that comes back begins or continues the run of its size.
    void give(unsigned size, int piece) {
        unsigned found = twi_load_relaxed(&carves[size]), first = (unsigned)piece + 1;
        bool fits = found == 0 || (found >> 4) + (found & 15) == first;
        if (!fits || !twi_cas_acqrel(&carves[size], &found, found == 0 ? first << 4 | 1 : found + 1, A4))
            give_run(first << 4 | 1);
    }
    int take_hole() {
        unsigned found = twi_load_relaxed(&bits);
        while (found != 0 && found != ALL) {
            unsigned at = (found & 1) != 0 ? 0 : (found & 2) != 0 ? 1 : 2;
            if (twi_cas_weak_acqrel(&bits, &found, found & ~(1u << at), A1)) return (int)at;
        }
        return -1;
    }
    int begin_segment(unsigned size) {
        unsigned all = ALL, none = 0;
        if (!twi_cas_acqrel(&bits, &all, 0u, A1)) return -1;
        if (!twi_cas_acqrel(&carves[size], &none, 2u << 4 | 2, A4)) give_run(2u << 4 | 2);
        (void)twi_add_acqrel(&moves, 1u, A6);
        return 0;
    }
    bool gather() {
        bool any = false;
        for (int i = 0; i < 2; i++) {
            unsigned found = twi_load_relaxed(&carves[i]) != 0 ? twi_swap_acqrel(&carves[i], 0u, A5) : 0;
            if (found == 0) continue;
            give_run(found);
            (void)twi_add_acqrel(&moves, 1u, A6);
            any = true;
        }
        return any;
    }
    int take_small(unsigned size) {
        int piece = carve(size);
        if (piece < 0) piece = take_hole();
        return piece >= 0 ? piece : begin_segment(size);
    }
    // -1: refused; -2: it has looked often enough, and somebody is still busy
    int search(unsigned size) {
        int piece = -2;
        if (!is_weak(A6, STEP)) (void)twi_add_acqrel(&busy, 1u, A6); // A6 step: nobody shows that he is at it
        for (unsigned looks = 0; looks < 4; looks++) {
            unsigned seen = twi_load_acquire(&moves, A7);
            int found = take_small(size);
            if (found >= 0) {
                piece = found;
                break;
            }
            if (gather()) continue;
            twi_fence_seqcst(A7);
            if (is_weak(A6, STEP) ||
                (twi_load_acquire(&busy, A7) == 1 && (is_weak(A7, STEP) || twi_load_acquire(&moves, A7) == seen))) {
                piece = -1; // A7 step: what was put back meanwhile is not looked for
                break;
            }
        }
        if (!is_weak(A6, STEP)) (void)twi_sub_acqrel(&busy, 1u, A6);
        return piece;
    }
    int take(unsigned size) {
        int piece = carve(size);
        if (piece < 0) piece = search(size);
        if (piece < 0) return piece;
        RL_ASSERT(VAR(pieces[piece]) == 0);
        VAR(pieces[piece]) = 1;
        return piece;
    }
};

// A segment comes back zeroed; one thread begins it, another carves the next piece: it sees the zeroes.
struct handed_on : rl::test_suite<handed_on, 3>, carving {
    void before() {
        begin();
        for (int i = 0; i < PIECES; i++) VAR(pieces[i]) = 1;
    }
    void thread(unsigned index) {
        if (index == 2) {
            for (int i = 0; i < PIECES; i++) VAR(pieces[i]) = 0;
            (void)twi_or_acqrel(&bits, (unsigned)ALL, A2);
            return;
        }
        for (int i = 0; i < 2; i++) {
            int piece = index == 0 && i == 0 ? begin_segment(0) : carve(0);
            if (piece < 0) continue;
            RL_ASSERT(VAR(pieces[piece]) == 0);
            VAR(pieces[piece]) = 1;
        }
    }
};

// Each thread takes a piece, writes to it, zeroes it and gives it back, and takes another.
struct coming_back : rl::test_suite<coming_back, 3>, carving {
    void before() {
        begin();
        twi_store_relaxed(&bits, (unsigned)ALL);
        for (int i = 0; i < PIECES; i++) VAR(pieces[i]) = 0;
    }
    void thread(unsigned index) {
        for (int i = 0; i < 2; i++) {
            int piece = take(index == 2);
            if (piece < 0) continue;
            VAR(pieces[piece]) = 0;
            give(index == 2, piece);
        }
    }
    void after() {
        (void)gather();
        RL_ASSERT(twi_load_relaxed(&bits) == ALL);
    }
};

// Three threads, two sizes, three pieces: nobody is told that there is none.
struct refusing : rl::test_suite<refusing, 3>, carving {
    void before() {
        begin();
        twi_store_relaxed(&bits, (unsigned)ALL);
        for (int i = 0; i < PIECES; i++) VAR(pieces[i]) = 0;
    }
    void thread(unsigned index) {
        RL_ASSERT(take(index == 2) != -1);
    }
};

// One segment of the whole, of two lines.
struct parting {
    enum { LINES = 2, ALL = 3 };
    rl::atomic<unsigned> bits;  // of the whole: free lines
    rl::atomic<unsigned> owner; // of the segment: 1: the part
    rl::var<int> lines[LINES];

    void begin(unsigned whole, unsigned part) {
        twi_store_relaxed(&bits, whole);
        twi_store_relaxed(&owner, part);
        for (int i = 0; i < LINES; i++) VAR(lines[i]) = 0;
    }
    static int take_of(rl::atomic<unsigned> *word, unsigned line) {
        unsigned found = twi_load_relaxed(word), mask = 1u << line;
        while ((found & mask) != 0)
            if (twi_cas_weak_acqrel(word, &found, found & ~mask, A1)) return (int)line;
        return -1;
    }
    // Its taker writes to it, zeroes it and gives it back; to whom, `owner` says.
    void use_and_give(rl::atomic<unsigned> *word, int line, unsigned expected) {
        RL_ASSERT(VAR(lines[line]) == 0);
        VAR(lines[line]) = 1;
        RL_ASSERT(twi_load_relaxed(&owner) == expected); // else it comes back to the wrong arena
        VAR(lines[line]) = 0;
        (void)twi_or_acqrel(word, 1u << line, A2);
    }
};

// Lines come back to the whole, zeroed; one thread sets the segment aside, the two others take of the family's newest
// part.
struct set_aside : rl::test_suite<set_aside, 3>, parting {
    rl::atomic<unsigned> parts; // the family's newest part; 0: none
    rl::atomic<unsigned> own_bits;
    rl::var<int> segments; // of the part

    void before() {
        begin(1, 0);
        VAR(lines[1]) = 1; // the last one in the hand of its taker
        VAR(segments) = 0;
        twi_store_relaxed(&parts, 0u);
        twi_store_relaxed(&own_bits, 0u);
    }
    void extend() {
        unsigned all = ALL;
        if (!twi_cas_acqrel(&bits, &all, 0u, A1)) return;
        VAR(segments) = 1;
        twi_store_relaxed(&own_bits, (unsigned)ALL);
        twi_store_relaxed(&owner, 1u);
        twi_store_release(&parts, 1u, A8);
    }
    void take_and_give(unsigned index) {
        if (twi_load_acquire(&parts, A9) == 0) return;
        RL_ASSERT(VAR(segments) == 1);
        int line = take_of(&own_bits, index % LINES);
        if (line >= 0) use_and_give(&own_bits, line, 1);
    }
    void thread(unsigned index) {
        if (index == 1) {
            VAR(lines[1]) = 0;
            (void)twi_or_acqrel(&bits, 2u, A2);
        }
        if (index == 0)
            for (int i = 0; i < 3; i++) extend();
        else
            for (unsigned i = 0; i < 2; i++) take_and_give(index + i);
    }
};

// The part is given back: whoever takes its lines of the whole then gives them back to the whole.
struct given_back : rl::test_suite<given_back, 3>, parting {
    void before() {
        begin(0, 1);
        for (int i = 0; i < LINES; i++) VAR(lines[i]) = 1;
    }
    void thread(unsigned index) {
        if (index == 0) {
            twi_store_relaxed(&owner, 0u);
            for (int i = 0; i < LINES; i++) VAR(lines[i]) = 0;
            (void)twi_or_acqrel(&bits, (unsigned)ALL, A2);
            return;
        }
        for (unsigned i = 0; i < 2; i++) {
            int line = take_of(&bits, (index + i) % LINES);
            if (line >= 0) use_and_give(&bits, line, 0);
        }
    }
};

int main() {
    const model_mutant run[] = {
        {A1, STEP, NULL},
        {A2, RELEASE, NULL},
        {A3, FENCE, NULL},
        {A3, STEP, NULL},
        {A1, ACQUIRE, NULL},
        {A1, RELEASE, "who clears bits hands nothing on; the release of who set others in the word lives on behind it"},
        {A2, ACQUIRE, "who gives lines looks into nobody else's"},
    };
    int wrong = MODEL_RUN(runs, "runs of free lines", 60000, run);
    const model_mutant hand[] = {
        {A1, ACQUIRE, NULL},
        {A2, RELEASE, NULL},
        {A4, RELEASE, NULL},
        {A5, ACQUIRE, NULL},
        {A4, ACQUIRE, "who brings a segment has nothing to learn from the one before, which is carved up"},
        {A5, RELEASE, "every change of the word is a read-modify-write, so the release of A4 is still seen behind it"},
    };
    wrong += MODEL_RUN(handed_on, "a segment carved by others", 40000, hand);
    const model_mutant back[] = {{A2, RELEASE, NULL}, {A4, RELEASE, NULL}, {A5, ACQUIRE, NULL}};
    wrong += MODEL_RUN(coming_back, "pieces that come back", 40000, back);
    const model_mutant refuse[] = {
        {A6, STEP, NULL},    {A6, RELEASE, NULL}, {A7, FENCE, NULL},
        {A7, ACQUIRE, NULL}, {A7, STEP, NULL},    {A6, ACQUIRE, "who shows that it is busy learns nothing by that"},
    };
    wrong += MODEL_RUN(refusing, "nobody is refused", 60000, refuse);
    const model_mutant aside[] = {{A8, RELEASE, NULL}, {A9, ACQUIRE, NULL}, {A1, ACQUIRE, NULL}, {A2, RELEASE, NULL}};
    wrong += MODEL_RUN(set_aside, "a part set aside while others take", 40000, aside);
    const model_mutant returned[] = {{A1, ACQUIRE, NULL}, {A2, RELEASE, NULL}};
    wrong += MODEL_RUN(given_back, "a part given back", 40000, returned);
    return wrong != 0;
}
