// leases.cpp -- models of engine/limit/lease.c and lease_renewal.c: leases are made, listed, drawn on, spent, given
// back and said again while threads acquire and refund.
// Left out: the count in the cell, how much is drawn, the words on the wire (all of that: tests/model/leases.c), time.
// What Redis answers is decided in one step of the turn. Sections are those of epoch.h with the full fence (R1 to R6:
// reclaim.cpp). A process that ends while it raises `drawn` (the next one stamps).
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/limit/lease.h:twi_lease_of 66d4c05ca353
//   engine/limit/lease.c:enlist 5bfd71852e92
//   engine/limit/lease.c:lease_of 90889b19d516
//   engine/limit/lease.c:twi_lease_list 321da8736798
//   engine/limit/lease.c:request f56b1da54168
//   engine/limit/lease.c:put_back c1299b246c1f
//   engine/limit/lease.c:fall_short 810d5541a599
//   engine/limit/lease.c:spend 5a16cff29488
//   engine/limit/lease.c:keep_units 676a4aa508e4
//   engine/turn/lease_renewal.c:take_out a7dd96b72507
//   engine/turn/lease_renewal.c:may_draw 05b5822e8f6a
//   engine/turn/lease_renewal.c:is_quiescent c79e47aefa30
//   engine/turn/lease_stores.c:twi_lease_stores_sort 9e37b00356d7
//   engine/turn/lease_renewal.c:take_numbers ca9e431a8bbe
//   engine/turn/lease_renewal.c:restate_window 2d8f7c2e6d9c
//   engine/turn/lease_renewal.c:restate_all 895cfe2a7528
#include "tests/orderings/model.hpp"

enum { LEASES = 4 };

// Sections, and what the turn knows of them.
struct sections {
    rl::atomic<unsigned> epoch, shown[4];
    void begin() {
        twi_store_relaxed(&epoch, 1u);
        for (int i = 0; i < 4; i++) twi_store_relaxed(&shown[i], 0u);
    }
    void enter(unsigned self) {
        (void)shown[self].exchange(twi_load_acquire(&epoch, NONE), rl::mo_seq_cst, $);
        twi_fence_seqcst(NONE);
    }
    void leave(unsigned self) {
        twi_store_release(&shown[self], 0u, NONE);
    }
    unsigned stamp() {
        return twi_add_acqrel(&epoch, 1u, NONE);
    }
    bool reached(unsigned stamp) {
        twi_fence_seqcst(NONE);
        for (int i = 0; i < 4; i++) {
            unsigned open = twi_load_seqcst(&shown[i], NONE);
            if (open != 0 && open <= stamp) return false;
        }
        return true;
    }
};

// ---- making, listing, saying again ----------------------------------------------------------------------------------

struct lists {
    struct lease { // number 0: none
        rl::var<unsigned> cell, older;
        rl::atomic<unsigned> asked, listed, next_requested;
        unsigned granted; // the turn's own
    };
    lease leases[LEASES];
    rl::atomic<unsigned> taken;      // pieces
    rl::atomic<unsigned> way[2];     // of the cells: the number of the lease
    rl::atomic<unsigned> generation; // its newest lease
    rl::atomic<unsigned> asked;      // the newest that the turn is to look at

    void begin() {
        twi_store_relaxed(&taken, 1u);
        twi_store_relaxed(&generation, 0u);
        twi_store_relaxed(&asked, 0u);
        for (int i = 0; i < 2; i++) twi_store_relaxed(&way[i], 0u);
        for (unsigned i = 0; i < LEASES; i++) {
            twi_store_relaxed(&leases[i].asked, 0u);
            twi_store_relaxed(&leases[i].listed, 0u);
            twi_store_relaxed(&leases[i].next_requested, 0u);
            leases[i].granted = 0;
        }
    }

    // ---- lease.c

    void enlist(unsigned line) {
        unsigned head = twi_load_relaxed(&generation);
        do {
            VAR(leases[line].older) = head;
        } while (!twi_cas_weak_acqrel(&generation, &head, line, J3));
    }
    unsigned lease_of(unsigned cell) {
        unsigned there = twi_load_acquire(&way[cell], J2), none = 0;
        if (there != 0) return there;
        unsigned line = twi_add_relaxed(&taken, 1u);
        RL_ASSERT(line < LEASES);
        VAR(leases[line].cell) = cell;
        if (!is_weak(J3, STEP)) enlist(line);
        if (twi_cas_acqrel(&way[cell], &none, line, J1)) {
            if (is_weak(J3, STEP)) enlist(line); // J3 step: others find it before the turn can
            return line;
        }
        return twi_load_acquire(&way[cell], J2);
    }
    void list(unsigned line) {
        if (is_weak(J5, STEP) && twi_load_relaxed(&leases[line].listed) != 0) return; // J5 step: a look first
        // twi_thread_claim() writes in any case, as this swap does; marks.cpp has it step by step
        if (twi_swap_acqrel(&leases[line].listed, 1u, J5) != 0) return;
        unsigned head = twi_load_relaxed(&asked);
        do {
            twi_store_relaxed(&leases[line].next_requested, head);
        } while (!twi_cas_weak_acqrel(&asked, &head, line, J7));
    }
    void ask(unsigned line) {
        unsigned found = twi_load_relaxed(&leases[line].asked);
        while (found == 0 && !twi_cas_weak_acqrel(&leases[line].asked, &found, 1u, NONE)) {}
        list(line);
    }

    // ---- lease_stores.c, lease_renewal.c

    template <typename looker> void take_listed(looker look) {
        if (twi_load_relaxed(&asked) == 0) return;
        for (unsigned line = twi_swap_acqrel(&asked, 0u, J8); line != 0;) {
            unsigned own = line;
            line = twi_load_relaxed(&leases[own].next_requested);
            if (is_weak(J6, STEP)) look(own); // J6 step: looked at, then taken off the list
            (void)twi_swap_acqrel(&leases[own].listed, 0u, J6);
            if (!is_weak(J6, STEP)) look(own);
        }
    }
    void grant(unsigned line) {
        RL_ASSERT(VAR(leases[line].cell) < 2);
        if (twi_swap_acqrel(&leases[line].asked, 0u, NONE) != 0) leases[line].granted++;
    }
    void draw() {
        take_listed([this](unsigned line) { grant(line); });
    }
    void say_again() { // restate_all(): of all that was ever granted
        bool said[LEASES] = {false, false, false, false};
        for (unsigned line = twi_load_acquire(&generation, J4); line != 0; line = VAR(leases[line].older))
            said[line] = true;
        for (unsigned i = 1; i < LEASES; i++) RL_ASSERT(leases[i].granted == 0 || said[i]);
    }
};

// Two that find no lease of one cell, one of which then needs another's; the turn draws, and says all again. L2.
struct making : rl::test_suite<making, 3> {
    lists l;
    void before() {
        l.begin();
    }
    void thread(unsigned index) {
        if (index < 2) {
            for (unsigned i = 0; i <= index; i++) {
                unsigned line = l.lease_of(i);
                RL_ASSERT(VAR(l.leases[line].cell) == i);
                l.ask(line);
            }
            return;
        }
        for (int i = 0; i < 2; i++) {
            l.draw();
            l.say_again();
        }
    }
    void after() {
        l.draw();
        for (unsigned cell = 0; cell < 2; cell++) RL_ASSERT(l.leases[l.lease_of(cell)].granted != 0);
        l.say_again();
    }
};

// Units that come back into leases which rest: none is overlooked, so that it could go home. P5.
struct returning : rl::test_suite<returning, 3> {
    lists l;
    rl::atomic<int> left[3];
    bool active[3];
    void before() {
        l.begin();
        for (int i = 0; i < 3; i++) twi_store_relaxed(&left[i], 0);
        for (int i = 0; i < 3; i++) active[i] = false;
    }
    void put_back(unsigned line) {
        (void)twi_add_acqrel(&left[line], 1, J11);
        l.list(line);
    }
    void look(unsigned line) { // take_out(), is_quiescent()
        int units = twi_load_relaxed(&left[line]);
        while (units != 0 && !twi_cas_weak_acqrel(&left[line], &units, 0, NONE)) {}
        active[line] = twi_load_relaxed(&left[line]) != 0;
    }
    void thread(unsigned index) {
        if (index < 2) {
            put_back(1);
            put_back(index + 1);
            return;
        }
        for (int i = 0; i < 3; i++) {
            l.take_listed([this](unsigned line) { look(line); });
            for (unsigned line = 1; line < 3; line++)
                if (active[line]) look(line);
        }
    }
    void after() {
        l.take_listed([this](unsigned line) { look(line); });
        for (unsigned line = 1; line < 3; line++) RL_ASSERT(active[line] || twi_load_relaxed(&left[line]) == 0);
    }
};

// ---- units and the limit they were drawn under ----------------------------------------------------------------------

struct units {
    sections s;
    rl::atomic<int> left, drawn;
    rl::atomic<unsigned> refunded;
    // the turn's own
    int granted;
    unsigned raised;
    // the truth at each moment: under which limits the units in hand were drawn; a refunded one under none
    int most_in_hand, in_hand;

    void begin() {
        s.begin();
        twi_store_relaxed(&left, 0);
        twi_store_relaxed(&drawn, 0);
        twi_store_relaxed(&refunded, 0u);
        granted = most_in_hand = in_hand = 0;
        raised = 0;
    }
    void changed(int by, int limit) { // in the same step as `left`
        in_hand += by;
        if (limit > most_in_hand) most_in_hand = limit;
        if (in_hand == 0) most_in_hand = 0;
    }
    bool spend(int limit) {
        int seen = twi_load_acquire(&left, J12);
        do {
            if (seen < 1 || limit < twi_load_relaxed(&drawn)) return false;
        } while (!twi_cas_weak_acqrel(&left, &seen, seen - 1, J12));
        RL_ASSERT(most_in_hand <= limit); // L9
        changed(-1, 0);
        return true;
    }
    void put_back() {
        twi_store_relaxed(&refunded, 1u);
        (void)twi_add_acqrel(&left, 1, J11);
        changed(1, 0);
    }
    bool may_draw(int limit) {
        if (limit > twi_load_relaxed(&drawn)) {
            if (!is_weak(J11, STEP)) twi_store_relaxed(&drawn, limit);
            bool is_first = granted == 0 && twi_add_acqrel(&left, 0, J11) == 0 && twi_load_relaxed(&refunded) == 0;
            if (is_weak(J11, STEP)) twi_store_relaxed(&drawn, limit); // J11 step: what is in hand is looked at first
            raised = is_first || is_weak(J12, STEP) ? 0 : s.stamp(); // J12 step: nobody is waited for
        }
        if (raised != 0 && !s.reached(raised)) return false;
        raised = 0;
        return true;
    }
    void draw(int limit) {
        while (!may_draw(limit)) rl::yield(1, $);
        granted++;
        (void)twi_add_relaxed(&left, 1);
        changed(1, limit);
    }
    void take_out() {
        int seen = twi_load_relaxed(&left);
        do {
            if (seen <= 0) return;
        } while (!twi_cas_weak_acqrel(&left, &seen, 0, NONE));
        changed(-seen, 0);
    }
    bool buy(unsigned self, int limit) {
        s.enter(self);
        bool bought = spend(limit);
        s.leave(self);
        return bought;
    }
};

// Buyers that name 10 and 20, and the turn, which draws under the one, takes it out, and draws under the other.
struct raising : rl::test_suite<raising, 3> {
    units u;
    void before() {
        u.begin();
    }
    void thread(unsigned index) {
        if (index < 2) {
            for (int i = 0; i < 2; i++) (void)u.buy(index, index == 0 ? 10 : 20);
            return;
        }
        if (rl::rand(2) == 0) {
            u.draw(10);
            u.take_out();
        }
        u.draw(20);
    }
    void after() {
        RL_ASSERT(twi_load_relaxed(&u.left) == u.in_hand && u.in_hand >= 0);
    }
};

// The first draw, beside a refund that makes units be in hand before it.
struct refunding : rl::test_suite<refunding, 3> {
    units u;
    void before() {
        u.begin();
    }
    void thread(unsigned index) {
        if (index == 0) {
            (void)u.buy(0, 10);
        } else if (index == 1) {
            u.s.enter(1);
            u.put_back();
            u.s.leave(1);
            (void)u.buy(1, 20);
        } else {
            u.draw(20);
        }
    }
};

// ---- what Redis told of all -----------------------------------------------------------------------------------------

// Four units that were stranded turn out to be spent: at no moment are less than two unsold that nobody holds.
struct telling : rl::test_suite<telling, 2> {
    enum { LIMIT = 8, NEEDS = 2 };
    rl::atomic<int> reported_spent, stranded;
    void before() {
        twi_store_relaxed(&reported_spent, 2);
        twi_store_relaxed(&stranded, 4);
    }
    void thread(unsigned index) {
        if (index == 0) { // take_numbers()
            twi_store_relaxed(&stranded, 0);
            twi_store_release(&reported_spent, 6, J10);
            return;
        }
        int held = is_weak(J9, STEP) ? twi_load_relaxed(&stranded) : 0; // J9 step: the other one first
        int unsold = LIMIT - twi_load_acquire(&reported_spent, J9);
        if (!is_weak(J9, STEP)) held = twi_load_relaxed(&stranded);
        RL_ASSERT(unsold - held >= NEEDS); // TW_PENDING, not TW_DENIED
    }
};

// A reply that says "not all is spent" comes while a caller waits, who has seen the one before: its wait goes on.
struct believing : rl::test_suite<believing, 2> {
    enum { LIMIT = 8, BEFORE = 1, NOW = 2 };
    rl::atomic<int> reported_spent, reported_ms;
    void before() {
        twi_store_relaxed(&reported_spent, LIMIT);
        twi_store_relaxed(&reported_ms, BEFORE);
    }
    void thread(unsigned index) {
        if (index == 0) { // take_numbers()
            if (is_weak(J10, STEP)) twi_store_release(&reported_ms, NOW, J10); // J10 step: the other one first
            twi_store_release(&reported_spent, LIMIT - 1, J10);
            if (!is_weak(J10, STEP)) twi_store_release(&reported_ms, NOW, J10);
            return;
        }
        // is_final()
        bool is_fresh = twi_load_acquire(&reported_ms, J9) == NOW;
        RL_ASSERT(!(is_fresh && twi_load_relaxed(&reported_spent) >= LIMIT));
    }
};

int main() {
    const char *pushes =
        "a push stores the number of the next one; the taker sees all pushes by their release sequence";
    const char *later = "only a load that sees a later store of who lists it again would show it; relacy has none";
    const char *fresh = "who makes the way reads nothing behind it, and who loses loads it (J2)";
    const model_mutant make[] = {
        {J1, RELEASE, NULL}, {J2, ACQUIRE, NULL},   {J3, RELEASE, NULL},   {J3, STEP, NULL},     {J4, ACQUIRE, NULL},
        {J7, RELEASE, NULL}, {J8, ACQUIRE, NULL},   {J1, ACQUIRE, fresh},  {J3, ACQUIRE, pushes}, {J7, ACQUIRE, pushes},
        {J8, RELEASE, "an empty list tells nobody anything"},
    };
    const model_mutant back[] = {
        {J5, RELEASE, NULL}, {J5, STEP, NULL},     {J6, ACQUIRE, NULL},  {J6, STEP, NULL},
        {J7, RELEASE, NULL}, {J5, ACQUIRE, later}, {J6, RELEASE, later},
    };
    const model_mutant raise[] = {
        {J11, RELEASE, NULL},
        {J11, STEP, NULL},
        {J12, ACQUIRE, NULL},
        {J12, STEP, NULL},
        {J12, RELEASE, "who takes units shows nothing; it continues the release sequence of J11"},
    };
    const model_mutant refund[] = {{J11, ACQUIRE, NULL}, {J11, RELEASE, NULL}, {J11, STEP, NULL}};
    const model_mutant tell[] = {{J9, ACQUIRE, NULL}, {J9, STEP, NULL}, {J10, RELEASE, NULL}};
    const model_mutant believe[] = {{J9, ACQUIRE, NULL}, {J10, RELEASE, NULL}, {J10, STEP, NULL}};
    int wrong = MODEL_RUN(making, "leases", 50000, make);
    wrong += MODEL_RUN(returning, "leases, units that come back", 50000, back);
    wrong += MODEL_RUN(raising, "leases, limits", 100000, raise);
    wrong += MODEL_RUN(refunding, "leases, refunds", 400000, refund);
    wrong += MODEL_RUN(telling, "leases, what Redis told", 30000, tell);
    wrong += MODEL_RUN(believing, "leases, a reply while a caller waits", 30000, believe);
    return wrong != 0;
}
