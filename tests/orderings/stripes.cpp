// stripes.cpp -- models of engine/table/stripe.* and slice.c: a counter becomes striped while threads add, read, take
// and seal.
// Left out: which adder asks and when (but not the asking: S5, S6), the edge of the range, DIRTY of each word (as in
// marks.cpp, word by word), `base` and `shown`, a look without units; two stripes, limits of a few units.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/table/cell.h:twi_cell_local 37154efab913
//   engine/table/cell.c:twi_cell_freeze 63808179fb4b
//   engine/limit/counted.h:twi_counted_take 4b2865c02848
//   engine/table/stripe.h:twi_stripes_of b8b96f71c712
//   engine/table/stripe.h:twi_stripes_add 634f5e6e5dc0
//   engine/table/stripe.c:twi_stripes_sum c4504971a11f
//   engine/table/stripe.c:twi_stripes_count 4416f2b4db85
//   engine/table/stripe.c:freeze_word b719c2d7cef8
//   engine/table/stripe.c:twi_stripes_collapse 65e72fdea681
//   engine/table/stripe.c:twi_stripes_freeze 09288895197a
//   engine/table/stripe.c:add_to_stripe f67f58d57090
//   engine/table/stripe.c:add_to_shared 8f289ef0593b
//   engine/table/stripe.c:add_striped 68c9f5c833e0
//   engine/table/stripe.c:twi_stripes_add_anew e43f11e0c7ba
//   engine/count/dirty.c:twi_contention_request 04e313aa8517
//   engine/count/dirty.c:freeze_local a8559353ffca
//   engine/count/dirty.c:twi_contention_make_stripes 582bde019b2a
//   engine/count/dirty.c:twi_contention_turn 48ad92415c70
//   engine/count/dirty.c:twi_slices_cut 599b0eeae6e6
//   engine/limit/counted.c:take_of 19d7dc1276c2
//   engine/limit/counted.c:take_of_any 9e670f8244d9
//   engine/limit/counted.c:are_true 641acbc8a0ef
//   engine/limit/counted.c:take_exactly 465de808a286
//   engine/limit/counted.c:twi_slices_take 9fba4ad7c24b
//   engine/table/table.c:freeze_counter e09e1788b7ee
//   engine/table/table.c:twi_table_seal e58cc008c888
#include "tests/orderings/model.hpp"

enum { FROZEN = 1, COUNT_SHIFT = 2, STRIPED = 2, STRIPES = 2, NO_LIMIT = -1 };
enum answer { ADDED, ADD_FROZEN };
enum verdict { OK, DENIED, PENDING };

static int value_of(unsigned word) {
    return (int)word >> COUNT_SHIFT;
}

struct striped {
    rl::atomic<unsigned> local, meta, way;
    rl::atomic<int> final;
    // struct twi_stripes
    rl::atomic<unsigned> shared_stripe;
    rl::atomic<int> collapsed;
    rl::atomic<unsigned> is_collapsed;
    rl::var<unsigned> mask;
    rl::var<int> limit;
    struct {
        rl::atomic<unsigned> word;
        rl::var<int> ceiling;
    } each[STRIPES];

    void begin() {
        twi_store_relaxed(&local, 0u);
        twi_store_relaxed(&meta, 0u);
        twi_store_relaxed(&way, 0u);
        twi_store_relaxed(&final, 0);
        twi_store_relaxed(&shared_stripe, 0u);
        twi_store_relaxed(&collapsed, 0);
        twi_store_relaxed(&is_collapsed, 0u);
        for (int i = 0; i < STRIPES; i++) twi_store_relaxed(&each[i].word, 0u);
    }

    // ---- reading, folding, freezing

    bool stripes_of(unsigned seen) {
        return (seen & STRIPED) != 0 && twi_load_acquire(&way, S2) != 0;
    }
    int sum() {
        if (twi_load_acquire(&is_collapsed, S4) != 0) return twi_load_relaxed(&collapsed);
        int all = 0;
        for (unsigned i = 0; i <= VAR(mask); i++) all += value_of(twi_load_acquire(&each[i].word, NONE));
        return all;
    }
    int read() { // twi_cell_local(), with the meta that the cell was found with
        unsigned seen = twi_load_relaxed(&meta), word = twi_load_acquire(&local, C2);
        if ((word & FROZEN) == 0) return value_of(word);
        int whole = twi_load_relaxed(&final);
        if (!stripes_of(seen)) return whole;
        return whole + value_of(twi_load_acquire(&shared_stripe, NONE)) + sum();
    }
    int freeze_word(rl::atomic<unsigned> *word) {
        unsigned found = twi_load_relaxed(word);
        if (is_weak(S3, STEP)) { // S3 step: read, then frozen
            (void)twi_or_acqrel(word, (unsigned)FROZEN, NONE);
            return value_of(found);
        }
        if ((found & FROZEN) == 0) found = twi_or_acqrel(word, (unsigned)FROZEN, NONE);
        return value_of(found);
    }
    int collapse() {
        if (twi_load_acquire(&is_collapsed, S4) != 0) return twi_load_relaxed(&collapsed);
        int all = 0;
        for (unsigned i = 0; i <= VAR(mask); i++) all += freeze_word(&each[i].word);
        twi_store_relaxed(&collapsed, all);
        twi_store_release(&is_collapsed, 1u, S3);
        return all;
    }

    // ---- adding

    bool add_to_stripe(unsigned own) {
        unsigned word = twi_load_relaxed(&each[own].word);
        do {
            if ((word & FROZEN) != 0) return false;
        } while (!twi_cas_weak_acqrel(&each[own].word, &word, word + (1u << COUNT_SHIFT), NONE));
        return true;
    }
    answer add_to_shared(bool wants_sum, int *view) {
        unsigned word = twi_load_acquire(&shared_stripe, NONE);
        do {
            if ((word & FROZEN) != 0) return ADD_FROZEN;
        } while (!twi_cas_weak_acqrel(&shared_stripe, &word, word + (1u << COUNT_SHIFT), NONE));
        if (wants_sum) *view = value_of(word) + 1 + twi_load_relaxed(&final) + sum();
        return ADDED;
    }
    answer add_anew(bool wants_sum, unsigned own, int *view) {
        if ((twi_load_acquire(&local, C2) & FROZEN) == 0) {
            unsigned word = twi_add_relaxed(&local, 1u << COUNT_SHIFT);
            if ((word & FROZEN) == 0) {
                *view = value_of(word) + 1;
                return ADDED;
            }
            (void)twi_load_acquire(&local, C2);
        }
        unsigned seen = twi_load_acquire(&meta, S2); // behind FROZEN: what is not striped is sealed
        if (!stripes_of(seen)) return ADD_FROZEN;
        if (!wants_sum && VAR(limit) == NO_LIMIT) {
            if (add_to_stripe(own & VAR(mask))) return ADDED;
            (void)collapse();
        }
        return add_to_shared(wants_sum, view);
    }
    answer add(bool wants_sum, unsigned own, int *view) {
        if ((twi_load_relaxed(&meta) & STRIPED) == 0) {
            unsigned word = twi_add_relaxed(&local, 1u << COUNT_SHIFT);
            if ((word & FROZEN) == 0) {
                *view = value_of(word) + 1;
                return ADDED;
            }
        }
        return add_anew(wants_sum, own, view);
    }

    // ---- slices

    verdict take_exactly(int beside, int n, int most) {
        unsigned word = twi_load_acquire(&shared_stripe, NONE);
        int fixed = beside + collapse();
        do {
            if ((word & FROZEN) != 0) return PENDING;
            if (fixed + value_of(word) + n > most) return DENIED;
        } while (!twi_cas_weak_acqrel(&shared_stripe, &word, word + ((unsigned)n << COUNT_SHIFT), NONE));
        return OK;
    }
    bool take_of(unsigned i, int n) {
        unsigned word = twi_load_relaxed(&each[i].word);
        do {
            if ((word & FROZEN) != 0 || value_of(word) > VAR(each[i].ceiling) - n) return false;
        } while (!twi_cas_weak_acqrel(&each[i].word, &word, word + ((unsigned)n << COUNT_SHIFT), NONE));
        return true;
    }
    verdict slices_take(unsigned seen, int n, int most, unsigned own) {
        if (!stripes_of(seen)) return PENDING;
        int beside = twi_load_relaxed(&final);
        unsigned word = twi_load_acquire(&shared_stripe, NONE);
        if (VAR(limit) != NO_LIMIT && most >= VAR(limit) && value_of(word) <= 0 && twi_load_relaxed(&is_collapsed) == 0)
            for (unsigned i = 0; i <= VAR(mask); i++)
                if (take_of((own + i) & VAR(mask), n)) return OK;
        return take_exactly(beside, n, most);
    }
    verdict take(int n, int most, unsigned own) { // tw_acquire()
        unsigned word = twi_load_acquire(&local, C2);
        do {
            if ((word & FROZEN) != 0) return slices_take(twi_load_acquire(&meta, S2), n, most, own);
            if (value_of(word) + n > most) return DENIED;
        } while (!twi_cas_weak_acqrel(&local, &word, word + ((unsigned)n << COUNT_SHIFT), C2));
        return OK;
    }

    // ---- the turn

    void make(int most) {
        VAR(mask) = STRIPES - 1;
        VAR(limit) = most;
        twi_store_release(&way, 1u, S1);
        (void)twi_or_acqrel(&meta, (unsigned)STRIPED, NONE);
        unsigned word = twi_load_relaxed(&local);
        do {
            int room = most == NO_LIMIT ? 0 : most - value_of(word);
            if (room < 0) room = 0;
            VAR(each[0].ceiling) = (room + 1) / 2;
            VAR(each[1].ceiling) = room / 2;
            if (!is_weak(C1, STEP)) twi_store_relaxed(&final, value_of(word));
        } while (!twi_cas_weak_acqrel(&local, &word, word | FROZEN, C1));
        if (is_weak(C1, STEP)) twi_store_relaxed(&final, value_of(word)); // C1 step: FROZEN before final
    }
    int seal() { // twi_table_seal(): the stripes, then the cell's own word
        int shared = (twi_load_relaxed(&meta) & STRIPED) != 0 ? seal_words() : 0;
        return shared + freeze();
    }
    int freeze() {
        unsigned word = twi_load_relaxed(&local);
        do {
            if ((word & FROZEN) != 0) return twi_load_relaxed(&final);
            twi_store_relaxed(&final, value_of(word));
        } while (!twi_cas_weak_acqrel(&local, &word, word | FROZEN, C1));
        return value_of(word);
    }
    int seal_words() {
        if (is_weak(S4, STEP)) { // S4 step: the trunk first (E34)
            int shared = freeze_word(&shared_stripe);
            return shared + collapse();
        }
        int all = collapse();
        return all + freeze_word(&shared_stripe);
    }
};

// Adders with and without a view, a reader, and the turn, which stripes the cell and, perhaps, seals it. P1, P3, E1,
// E34.
template <bool seals> struct adding : rl::test_suite<adding<seals>, 4> {
    striped s;
    rl::atomic<int> added;
    int sealed;
    void before() {
        s.begin();
        twi_store_relaxed(&added, 0);
        sealed = -1;
    }
    void thread(unsigned index) {
        if (index < 2) {
            int own = 0, view = 0;
            for (int i = 0; i < 2; i++) {
                answer done = s.add(index == 1 && i == 1, index, &view);
                if (done == ADDED) {
                    (void)twi_add_acqrel(&added, 1, NONE);
                    own++;
                }
                RL_ASSERT(seals || own == i + 1);
            }
            RL_ASSERT(s.read() >= own); // P3
            if (index == 1 && !seals) RL_ASSERT(view >= 2);
        } else if (index == 2) {
            s.make(NO_LIMIT);
            if (seals) sealed = s.seal();
        } else {
            int returned = twi_load_acquire(&added, NONE), seen = s.read();
            RL_ASSERT(seen >= returned && seen <= 4);
        }
    }
    void after() {
        RL_ASSERT(s.read() == twi_load_relaxed(&added));
        RL_ASSERT(!seals || sealed == twi_load_relaxed(&added));
    }
};

// Takers of a limit that is cut into slices meanwhile: never more than the limit; who is denied was denied rightly.
// E35, E36.
struct taking : rl::test_suite<taking, 4> {
    enum { LIMIT = 4 };
    striped s;
    rl::atomic<int> taken;
    bool denied;
    void before() {
        s.begin();
        twi_store_relaxed(&taken, 0);
        denied = false;
    }
    void thread(unsigned index) {
        if (index == 3) {
            s.make(LIMIT);
            return;
        }
        for (int i = 0; i < 2; i++) {
            verdict answer = s.take(1, LIMIT, index);
            RL_ASSERT(answer != PENDING || (twi_load_relaxed(&s.meta) & STRIPED) == 0);
            if (answer == OK) RL_ASSERT(twi_add_relaxed(&taken, 1) < LIMIT);
            if (answer == DENIED) denied = true;
        }
    }
    void after() {
        RL_ASSERT(s.read() == twi_load_relaxed(&taken));
        RL_ASSERT(!denied || twi_load_relaxed(&taken) == LIMIT);
    }
};

// Two that ask for stripes, each with a limit of its own, and the turn that answers.
struct asking : rl::test_suite<asking, 3> {
    rl::atomic<unsigned> asked;
    rl::atomic<int> asked_limit;
    void before() {
        twi_store_relaxed(&asked, 0u);
        twi_store_relaxed(&asked_limit, 0);
    }
    void ask(unsigned cell, int limit) {
        unsigned nothing = 0;
        if (twi_load_relaxed(&asked) != 0) return;
        if (is_weak(S5, STEP)) // S5 step: not claimed first
            twi_store_relaxed(&asked, 1u);
        else if (!twi_cas_acqrel(&asked, &nothing, 1u, NONE))
            return;
        twi_store_relaxed(&asked_limit, limit);
        twi_store_release(&asked, cell, S5);
    }
    void thread(unsigned index) {
        if (index < 2) {
            ask(10 + index, 100 + (int)index);
            return;
        }
        for (int i = 0; i < 3; i++) {
            unsigned word = twi_load_acquire(&asked, S6);
            if (word <= 1) continue;
            RL_ASSERT(twi_load_relaxed(&asked_limit) == 90 + (int)word);
            twi_store_release(&asked, 0u, NONE);
        }
    }
};

typedef adding<false> adding_open;
typedef adding<true> adding_sealed;

int main() {
    const char *frozen = "who comes here has seen `local` frozen, and with it (C1, C2) all that was there before";
    const model_mutant add[] = {
        {C1, RELEASE, NULL}, {C1, STEP, NULL}, {C2, ACQUIRE, NULL}, {S1, RELEASE, frozen}, {S2, ACQUIRE, frozen},
    };
    const model_mutant seal[] = {
        {S3, STEP, NULL},
        {S3, RELEASE, NULL},
        {S4, ACQUIRE, NULL},
        {S4, STEP, "a word that is not frozen yet is still read by the fold: either order counts everything"},
    };
    const model_mutant take[] = {
        {S3, RELEASE, NULL}, {S4, ACQUIRE, NULL},   {C1, RELEASE, NULL},
        {C2, ACQUIRE, NULL}, {S1, RELEASE, frozen}, {S2, ACQUIRE, frozen},
    };
    const model_mutant ask[] = {{S5, RELEASE, NULL}, {S5, STEP, NULL}, {S6, ACQUIRE, NULL}};
    int wrong = MODEL_RUN(adding_open, "stripes", 50000, add);
    wrong += MODEL_RUN(adding_sealed, "stripes, sealed", 50000, seal);
    wrong += MODEL_RUN(taking, "slices", 50000, take);
    wrong += MODEL_RUN(asking, "asking for stripes", 30000, ask);
    return wrong != 0;
}
