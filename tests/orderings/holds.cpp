// holds.cpp -- models of engine/reserve/hold_shared.c: slots that processes take and give back, of which one is killed
// between any two steps, and the leader that gives back what it had; how a table and an account are made; a process
// that leaves.
// Left out: the table's cells and their keys (table.cpp), memory that runs out, versions that wrap.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/reserve/hold_shared.c:begin_step d9478eb1055f
//   engine/reserve/hold_shared.c:end_step 76ae9c7d5f01
//   engine/reserve/hold_shared.c:settle 762d467f0e1b
//   engine/reserve/hold_shared.c:slots_of 57c6c42e2501
//   engine/reserve/hold_shared.c:follow 21ab47fef4e8
//   engine/reserve/hold_shared.c:finish_step 9fc18694981b
//   engine/reserve/hold_shared.c:quiet_word 85d09be80121
//   engine/reserve/hold_shared.c:make_step 8d1d807ee330
//   engine/reserve/hold_shared.c:take_slot 7f4e2ae6034b
//   engine/reserve/hold_shared.c:give_slots_back 94e8e05f81b2
//   engine/reserve/hold_shared.c:recover_key b312fd4fcd32
//   engine/core/processes.c:twi_process_leave 7294dd7859d5
//   engine/core/processes.c:twi_process_has_left 537800bcf799
//   engine/core/processes.c:twi_process_clear 8f4971b84955
//   engine/core/processes.c:twi_process_is_alive 9b3659f308d3
#include "tests/orderings/model.hpp"

#define twi_store_seqcst(p, v, label) (p)->store((v), is_weak(label, RELEASE) ? rl::mo_release : rl::mo_seq_cst, $)

// ---- steps of processes, of which one is killed ---------------------------------------------------------------------

enum step { STEP_NONE, STEP_TAKE, STEP_GIVE, STEP_GIVE_ALL };
enum { VERSION_MASK = 255, STEP_SHIFT = 8, PLACE_SHIFT = 10, USED_SHIFT = 12, HELD_SHIFT = 8 };
enum { PROCESSES = 3, LIMIT = 2, VICTIM = 1 }; // places begin at 1

static unsigned version_of(unsigned word) {
    return word & VERSION_MASK;
}
static step step_of(unsigned word) {
    return (step)(word >> STEP_SHIFT & 3);
}
static unsigned place_of(unsigned word) {
    return word >> PLACE_SHIFT & 3;
}
static unsigned used_of(unsigned word) {
    return word >> USED_SHIFT;
}
static unsigned held_of(unsigned account) {
    return account >> HELD_SHIFT;
}
static unsigned begin_step(unsigned before, step step, unsigned place, unsigned account, unsigned used) {
    unsigned version = (version_of(before) + 1) & VERSION_MASK;
    if (version == version_of(account)) version = (version + 1) & VERSION_MASK;
    return used << USED_SHIFT | place << PLACE_SHIFT | (unsigned)step << STEP_SHIFT | version;
}
static unsigned end_step(unsigned word) {
    return word & ~(3u << STEP_SHIFT);
}
static unsigned settle(unsigned account, unsigned word) {
    unsigned held = held_of(account);
    RL_ASSERT(step_of(word) == STEP_TAKE || held != 0);
    held = step_of(word) == STEP_TAKE ? held + 1 : step_of(word) == STEP_GIVE ? held - 1 : 0;
    return held << HELD_SHIFT | version_of(word);
}

struct holding : rl::test_suite<holding, PROCESSES + 1> {
    struct killed {};
    rl::atomic<unsigned> local, accounts[PROCESSES + 1], ended;
    unsigned held[PROCESSES + 1], all_held; // what callers were answered
    unsigned left;                          // steps that the victim makes yet
    bool is_recovered;

    void before() {
        twi_store_relaxed(&local, 0u);
        twi_store_relaxed(&ended, 0u);
        for (unsigned i = 0; i <= PROCESSES; i++) {
            twi_store_relaxed(&accounts[i], 0u);
            held[i] = 0;
        }
        all_held = 0;
        left = 1 + rl::rand(24);
        is_recovered = false;
    }
    void may_die(unsigned self) {
        if (self == VICTIM && --left == 0) throw killed();
    }

    void finish_step(unsigned self, unsigned word) {
        rl::atomic<unsigned> *account = &accounts[place_of(word)];
        // HS6 step: the word is looked at first, then the account
        if (is_weak(HS6, STEP) && twi_load_acquire(&local, HS6) != word) return;
        unsigned now = twi_load_acquire(account, HS6);
        if (!is_weak(HS6, STEP) && twi_load_acquire(&local, HS6) != word) return;
        may_die(self);
        // HS5 step: the account does not say that the step was made
        if (version_of(now) != version_of(word) || is_weak(HS5, STEP))
            (void)twi_cas_acqrel(account, &now, settle(now, word), HS5);
        may_die(self);
        (void)twi_cas_acqrel(&local, &word, end_step(word), HS5);
        may_die(self);
    }
    unsigned quiet_word(unsigned self) {
        for (;;) {
            unsigned word = twi_load_acquire(&local, HS6);
            if (step_of(word) == STEP_NONE) return word;
            finish_step(self, word);
        }
    }
    bool make_step(unsigned self, unsigned place, unsigned before, unsigned account, unsigned begun) {
        may_die(self);
        if (!twi_cas_acqrel(&local, &before, begun, HS5)) return false;
        may_die(self);
        if (twi_cas_acqrel(&accounts[place], &account, settle(account, begun), HS5)) {
            may_die(self);
            (void)twi_cas_acqrel(&local, &begun, end_step(begun), HS5);
        } else {
            finish_step(self, begun);
        }
        may_die(self);
        return true;
    }
    bool take_slot(unsigned self) {
        for (;;) {
            unsigned word = quiet_word(self), used = used_of(word);
            if (used >= LIMIT) return false;
            unsigned account = twi_load_acquire(&accounts[self], HS6);
            unsigned begun = begin_step(word, STEP_TAKE, self, account, used + 1);
            if (make_step(self, self, word, account, begun)) return true;
        }
    }
    bool give_slots_back(unsigned self, unsigned place, bool all) {
        for (;;) {
            unsigned word = quiet_word(self), account = twi_load_acquire(&accounts[place], HS6);
            if (held_of(account) == 0) return false;
            unsigned count = all ? held_of(account) : 1, used = used_of(word);
            if (used < count) continue;
            unsigned begun = begin_step(word, all ? STEP_GIVE_ALL : STEP_GIVE, place, account, used - count);
            if (make_step(self, place, word, account, begun)) return true;
        }
    }

    void take(unsigned self) {
        if (!take_slot(self)) return;
        held[self]++;
        RL_ASSERT(++all_held <= LIMIT);
    }
    void give(unsigned self) {
        if (held[self] == 0) return;
        held[self]--;
        all_held--;
        bool given = give_slots_back(self, self, false);
        RL_ASSERT(given);
    }
    void live(unsigned self) {
        take(self);
        give(self);
        take(self);
    }
    void recover() {
        all_held -= held[VICTIM];
        held[VICTIM] = 0;
        (void)give_slots_back(0, VICTIM, true);
        is_recovered = true;
    }

    void thread(unsigned index) {
        if (index == VICTIM - 1) {
            try {
                live(VICTIM);
            } catch (const killed &) {}
            twi_store_release(&ended, 1u, NONE); // the kernel frees its mutexes
        } else if (index < PROCESSES) {
            live(index + 1);
        } else {
            for (int i = 0; i < 10 && twi_load_acquire(&ended, NONE) == 0; i++) rl::yield(1, $);
            if (twi_load_acquire(&ended, NONE) != 0) recover();
        }
    }
    void after() {
        if (!is_recovered) recover();
        unsigned word = quiet_word(0), sum = 0;
        for (unsigned i = 1; i <= PROCESSES; i++) {
            unsigned account = twi_load_relaxed(&accounts[i]);
            RL_ASSERT(held_of(account) == held[i]);
            sum += held[i];
        }
        RL_ASSERT(used_of(word) == sum);
    }
};

// ---- a table, and a line of accounts, are made by whoever comes first -----------------------------------------------

struct making : rl::test_suite<making, 3> {
    rl::atomic<unsigned> slots, base, words[4]; // 0: none; numbers of threads are 1 to 3
    rl::var<unsigned> tables[4];

    void before() {
        twi_store_relaxed(&slots, 0u);
        twi_store_relaxed(&base, 0u);
        for (int i = 0; i < 4; i++) {
            VAR(tables[i]) = 0;
            twi_store_relaxed(&words[i], 77u); // what the piece of memory had before
        }
    }
    unsigned slots_of(unsigned self) {
        unsigned made = twi_load_acquire(&slots, HS2), none = 0;
        if (made != 0) return made;
        VAR(tables[self]) = self;
        if (twi_cas_acqrel(&slots, &none, self, HS1)) return self;
        VAR(tables[self]) = 0; // given back
        return none;
    }
    unsigned follow(unsigned self, bool makes) {
        unsigned line = twi_load_acquire(&base, HS4);
        if (line == 0 && makes) {
            twi_store_relaxed(&words[self], 0u); // pieces are zero when they are taken
            if (twi_cas_acqrel(&base, &line, self, HS3))
                line = self;
            else
                twi_store_relaxed(&words[self], 77u); // and given back as they are
        }
        return line;
    }
    void thread(unsigned index) {
        unsigned self = index + 1;
        bool makes = index < 2; // the third one gives back, or recovers
        unsigned table = makes ? slots_of(self) : twi_load_acquire(&slots, HS2);
        if (table != 0) RL_ASSERT(VAR(tables[table]) == table);
        unsigned line = follow(self, makes);
        if (line != 0) RL_ASSERT(twi_load_relaxed(&words[line]) == 0);
    }
};

// ---- a process leaves, and its place serves another one -------------------------------------------------------------

// The process steps on its account, with plain words here, and leaves. The leader gives back what it has left, and
// clears its place. Another process takes the place.
struct leaving : rl::test_suite<leaving, 3> {
    enum { CLEARING = 1, FIRST = 2, SECOND = 3 };
    rl::atomic<unsigned> who, has_left;
    rl::var<int> account;

    void before() {
        twi_store_relaxed(&who, (unsigned)FIRST);
        twi_store_relaxed(&has_left, 0u);
        VAR(account) = 0;
    }
    bool is_alive() {
        return twi_load_acquire(&who, NONE) > CLEARING && twi_load_acquire(&has_left, PL2) == 0;
    }
    void clear() {
        twi_store_release(&who, (unsigned)CLEARING, NONE);
        twi_store_relaxed(&has_left, 0u);
        twi_store_release(&who, 0u, NONE);
    }
    void thread(unsigned index) {
        if (index == 0) {
            VAR(account) = 1;
            twi_store_release(&has_left, 1u, PL1);
        } else if (index == 1) {
            for (int i = 0; i < 10; i++) {
                if (twi_load_acquire(&who, NONE) != FIRST || is_alive()) {
                    rl::yield(1, $);
                    continue;
                }
                RL_ASSERT(VAR(account) == 1);
                VAR(account) = 0;
                clear();
                return;
            }
        } else {
            unsigned free = 0;
            if (!twi_cas_acqrel(&who, &free, (unsigned)SECOND, NONE)) return;
            RL_ASSERT(is_alive());
            VAR(account) = 2;
        }
    }
};

// ---- two candidates leave at once -----------------------------------------------------------------------------------

// Each one says that it has left, and then looks for the other one. One of them at least finds nobody, and leads at
// last.
struct last : rl::test_suite<last, 2> {
    rl::atomic<unsigned> has_left[2];
    unsigned is_last[2];

    void before() {
        for (int i = 0; i < 2; i++) twi_store_relaxed(&has_left[i], 0u);
    }
    void thread(unsigned index) {
        twi_store_seqcst(&has_left[index], 1u, PL3);
        is_last[index] = twi_load_seqcst(&has_left[1 - index], PL4);
    }
    void after() {
        RL_ASSERT(is_last[0] != 0 || is_last[1] != 0);
    }
};

// ---- what is weakened -----------------------------------------------------------------------------------------------

int main() {
    const char *read_before = "each exchange is of a value that was loaded before (HS6)";
    const model_mutant of_holding[] = {{HS5, STEP, NULL},
                                       {HS6, STEP, NULL},
                                       {HS5, RELEASE, NULL},
                                       {HS5, ACQUIRE, read_before},
                                       {HS6, ACQUIRE, NULL}};
    const model_mutant of_making[] = {{HS1, RELEASE, NULL}, {HS1, ACQUIRE, NULL}, {HS2, ACQUIRE, NULL},
                                      {HS3, RELEASE, NULL}, {HS3, ACQUIRE, NULL}, {HS4, ACQUIRE, NULL}};
    const model_mutant of_leaving[] = {{PL1, RELEASE, NULL}, {PL2, ACQUIRE, NULL}};
    int wrong = MODEL_RUN(holding, "slots of processes", 50000, of_holding);
    wrong += MODEL_RUN(making, "a table of slots", 20000, of_making);
    wrong += MODEL_RUN(leaving, "a process that leaves", 20000, of_leaving);
    const model_mutant of_last[] = {{PL3, RELEASE, NULL}, {PL4, ACQUIRE, NULL}};
    wrong += MODEL_RUN(last, "two candidates leave at once", 20000, of_last);
    return wrong != 0;
}
