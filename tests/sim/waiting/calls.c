/* calls.c -- calls that wait for Redis, in a simulated world: the dispatcher (sync/ask/) over links that are slow, cut
 * or left behind unread, at a server that pauses, forgets its scripts and refuses, driven by a host that comes late.
 * Method: a real engine on a clock that obeys, over the transport and the server of call_world.h. Calls are begun,
 * forgotten and given up at random. In the end the faults stop, and everything must settle in a bounded time. All that
 * the server has is the admitted units.
 * Always true: everything follows from the seed. A call is answered once or forgotten once, and no later than its
 * deadline and the host's lateness say.
 * Covers: sync/ask/lanes.c, sync/ask/dispatcher.c, sync/ask/way.h, sync/ask/lanes.c, sync/ask/link.c,
 * sync/ask/dispatcher.c, sync/ask/verdict.c, sync/ask/way.c. */
#include "tests/sim/waiting/callers.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#define CALLS 200

/* ---- one seed ---------------------------------------------------------------------------------------------------- */

static struct call calls[CALLS];

static struct connection *any_connection(void) {
    for (int tries = 0; tries < 20; tries++) {
        struct connection *connection = &world.connections[test_prng_below(&world.prng, CONNECTIONS)];
        if (connection->is_used && !connection->is_closed) return connection;
    }
    return NULL;
}

/* Cut, with what is on the way or without; or one that the client leaves behind. */
static void cut(void) {
    struct connection *connection = any_connection();
    if (connection == NULL) return;
    connection->is_cut = true;
    if (test_prng_chance(&world.prng, 1, 2)) way_clear(&connection->there);
}

static void make_a_fault(void) {
    switch (test_prng_below(&world.prng, 8)) {
    case 0: cut(); return;
    case 1: world.knows_script = false; return;
    case 2: world.paused_until_ms = world.now_ms + test_prng_between(&world.prng, 1, 250); return;
    case 3:
        world.way_ms = test_prng_between(&world.prng, 0, 40);
        world.bytes_per_s = test_prng_chance(&world.prng, 1, 4) ? test_prng_between(&world.prng, 100000, 400000) : 0;
        return;
    case 4: world.refuse_of_1000 = (uint32_t)test_prng_below(&world.prng, 20); return;
    case 5: world.lose_of_1000 = (uint32_t)test_prng_below(&world.prng, 5); return;
    case 6: world.is_away = test_prng_chance(&world.prng, 1, 3); return;
    case 7: { /* the host is busy */
        int64_t ms = test_prng_between(&world.prng, 1, 400);
        world_run(ms);
        world.late_ms += ms + 12; /* the engine may have waited for that turn for a step */
        return;
    }
    }
}

static void call_some(void) {
    for (uint32_t n = (uint32_t)test_prng_below(&world.prng, 20); n > 0; n--) {
        struct call *call = &calls[test_prng_below(&world.prng, CALLS)];
        if (call->kept != 0) end_kept(call, test_prng_chance(&world.prng, 1, 3));
        if (call->number == 0) call->may_go = test_prng_chance(&world.prng, 1, 2);
        if (call->number == 0)
            (void)ask(call, (int)test_prng_below(&world.prng, KEYS), test_prng_between(&world.prng, 1, 300));
        else if (test_prng_chance(&world.prng, 1, 10))
            forget(call);
    }
}

static void play(uint64_t seed) {
    world_begin(seed);
    memset(calls, 0, sizeof calls);
    if (test_prng_chance(&world.prng, 1, 3)) limit = test_prng_between(&world.prng, 1, 100);
    for (int step = 0; step < 600; step++) {
        call_some();
        if (test_prng_chance(&world.prng, 1, 12)) make_a_fault();
        world_run(test_prng_between(&world.prng, 0, 12));
        turn();
    }
    world.refuse_of_1000 = world.lose_of_1000 = 0;
    world.is_away = false;
    world.way_ms = 1;
    world.bytes_per_s = 0;
    for (int i = 0; i < 1000 && owed() != 0; i++) {
        for (int k = 0; k < CALLS; k++)
            if (calls[k].kept != 0) end_kept(&calls[k], k % 2 == 0);
        world_run(10);
        turn();
    }
    assert_int_equal(owed(), 0);
    world_run(100); /* what was left behind arrives */
    int64_t has = 0;
    for (int k = 0; k < KEYS; k++) {
        assert_true(world.counts[k] <= limit);
        has += world.counts[k];
    }
    assert_i64_equal(has, admitted);
    assert_i64_equal(answered + forgotten, begun);
    assert_i64_equal(test_stat_of(world.engine, ask_ms), waited_ms);
    world_end();
}

/* Goal: whatever happens, each unit that was admitted is charged once, and nothing else is. */
TEST(what_is_charged_is_what_was_admitted) {
    uint64_t seeds[64];
    size_t count = test_seeds("calls", test_is_slow() ? 10 : 60, seeds, 64);
    int64_t all[7] = {0};
    for (size_t i = 0; i < count; i++) {
        test_seed_begins("calls", seeds[i]);
        play(seeds[i]);
        test_seed_ends();
        all[0] += begun, all[1] += admitted, all[2] += unknown, all[3] += unsent, all[4] += refused,
            all[5] += forgotten, all[6] += undone;
    }
    print_message("# %" PRId64 " begun, %" PRId64 " admitted, %" PRId64 " unknown, %" PRId64 " unsent, %" PRId64
                  " refused, %" PRId64 " forgotten, %" PRId64 " undone\n",
                  all[0], all[1], all[2], all[3], all[4], all[5], all[6]);
    assert_true(all[1] > 0 && all[2] > 0 && all[3] > 0 && all[4] > 0 && all[5] > 0 && all[6] > 0);
}

/* What malloc() has given away; 0 where a sanitizer has its place, or another library. */
static size_t test_allocated(void) {
#ifdef __GLIBC__
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */

/* The call was answered, the second one to be admitted after warm_up()'s, and charged once. */
static void assert_admitted_once(const struct call *call) {
    assert_i64_equal(call->number, 0);
    assert_i64_equal(admitted, 2);
    assert_i64_equal(world.counts[0], 2);
}

/* Goal: a deadline that passes while the reply lies in the socket, for the host was busy, is not passed (trap 6 of
 * calls that answer later): what is there is read first. */
TEST(a_reply_that_is_there_is_in_time) {
    struct call call = {0};
    world_begin(1);
    warm_up();
    assert_true(ask(&call, 0, 50));
    turn();
    world_run(500); /* the host is busy */
    world.late_ms += 500;
    turn();
    assert_admitted_once(&call);
    assert_i64_equal(unknown, 0);
    world_end();
}

/* Goal: a call that was begun just before the host was busy is sent all the same: that time does not count. */
TEST(lateness_does_not_count) {
    struct call call = {0};
    world_begin(2);
    warm_up();
    assert_true(ask(&call, 0, 50));
    world_run(500);
    world.late_ms += 500;
    turns(10);
    assert_admitted_once(&call);
    world_end();
}

/* Goal: a call that is begun when the host has been busy has hardly more time for that. Method: another one
 * is under way, so the driver is late. */
TEST(lateness_before_a_call_is_hardly_its_own) {
    struct call before = {0}, call = {0};
    world_begin(19);
    warm_up();
    world.paused_until_ms = world.now_ms + 10000;
    assert_true(ask(&before, 0, 80));
    turn();
    world_run(500); /* the host is busy */
    world.late_ms += 500;
    assert_true(ask(&call, 0, 50));
    turns(100);
    assert_i64_equal(call.number, 0);
    world_end();
}

/* Goal: when the server forgets its scripts under many calls, its text goes out once. */
TEST(one_text_is_enough) {
    world_begin(3);
    warm_up();
    world.knows_script = false;
    int64_t texts = world.texts;
    for (int i = 0; i < CALLS; i++) assert_true(ask(&calls[i], 0, 1000));
    turns(30);
    assert_i64_equal(admitted, 1 + CALLS);
    assert_i64_equal(world.texts - texts, 1);
    world_end();
}

/* Goal: late denials owe nothing: no cancel follows. Late admissions are taken back. Calls beyond the first window are
 * not sent at all. */
TEST(a_late_denial_owes_nothing) {
    const int64_t sent = TWI_WINDOW_FIRST;
    for (int round = 0; round < 2; round++) {
        world_begin(4);
        warm_up();
        limit = round == 0 ? 1 : LIMIT;
        world.way_ms = 40;
        for (int i = 0; i < CALLS; i++) assert_true(ask(&calls[i], 0, 50));
        turns(60);
        assert_i64_equal(unknown, sent);
        assert_i64_equal(busy, CALLS - sent);
        turns(200);
        assert_int_equal(owed(), 0);
        assert_i64_equal(world.cancels, round == 0 ? 0 : sent);
        assert_i64_equal(world.counts[0], 1);
        assert_i64_equal(test_stat_of(world.engine, asks_settled), sent);
        world_end();
    }
}

/* Goal: a caller whose time is short ends no link and opens no breaker. */
TEST(a_short_caller_harms_nobody) {
    struct call call = {0};
    world_begin(5);
    warm_up();
    world.way_ms = 30; /* a round trip of 60 ms; the link may be silent for 100 */
    for (int i = 0; i < 20; i++) {
        assert_true(ask(&calls[i], 0, 10));
        turns(20);
    }
    assert_i64_equal(unknown + busy, 20); /* once it is known that the way takes longer, a call goes out alone */
    assert_true(unknown >= 3 && by_outage == 0);
    assert_true(ask(&call, 0, 90));
    turns(90);
    assert_i64_equal(call.number, 0);
    assert_i64_equal(admitted, 2);
    assert_i64_equal(test_stat_of(world.engine, ask_connects), 1);
    turns(200);
    assert_i64_equal(world.counts[0], 2);
    assert_i64_equal(test_stat_of(world.engine, ask_timeouts), unknown);
    world_end();
}

/* Goal: a server that stops reading and answering is left after redis_timeout_ms; then the breaker is open, and calls
 * are refused at once; once it answers, the charged units in vain is taken back. */
TEST(silence_ends_the_link) {
    world_begin(6);
    warm_up();
    world.paused_until_ms = world.now_ms + 1000;
    for (int i = 0; i < 50; i++) assert_true(ask(&calls[i], 0, 80));
    turns(80);
    assert_i64_equal(unknown, 50);
    turns(40);
    assert_i64_equal(test_stat_of(world.engine, ask_timeouts), 50); /* those that the silent link had, once */
    struct call late = {0};
    for (int i = 0; i < 50 && ask(&late, 0, 1); i++) turns(2);
    assert_i64_equal(late.number, 0);
    assert_true(test_stat_of(world.engine, ask_away) > 0);
    turns(4000);
    assert_int_equal(owed(), 0);
    assert_i64_equal(world.counts[0], 1);
    world_end();
}

/* Goal: a reply that is lost without a word is asked for again once the link was silent for redis_timeout_ms, by a call
 * that has more time than that; it is charged once. */
TEST(a_lost_reply_is_asked_for_again) {
    struct call call = {0};
    world_begin(12);
    warm_up();
    world.lose_of_1000 = 1000;
    assert_true(ask(&call, 0, 1000));
    turns(20);
    world.lose_of_1000 = 0;
    turns(500);
    assert_admitted_once(&call);
    assert_i64_equal(test_stat_of(world.engine, asked_again), 1);
    assert_i64_equal(test_stat_of(world.engine, ask_timeouts), 1);
    world_end();
}

/* Goal: a try without a reply is counted once, also if the call's time ends later, while it waits to go out again. */
TEST(a_try_without_a_reply_is_counted_once) {
    struct call call = {0};
    world_begin(15);
    warm_up();
    world.paused_until_ms = world.now_ms + 1000;
    assert_true(ask(&call, 0, TIMEOUT_MS + 50));
    turns(5);
    world.is_away = true;
    turns(TIMEOUT_MS);
    assert_i64_equal(unknown, 0);
    assert_i64_equal(test_stat_of(world.engine, ask_timeouts), 1);
    turns(60);
    assert_i64_equal(unknown, 1);
    assert_i64_equal(test_stat_of(world.engine, ask_timeouts), 1);
    world_end();
}

/* Goal: a call whose time ends before it could be sent is counted as one without a reply in time. */
TEST(a_call_that_could_not_be_sent_in_time_is_counted) {
    struct call call = {0};
    world_begin(16);
    world.is_away = true;
    assert_true(ask(&call, 0, 20));
    turns(30);
    assert_i64_equal(unsent, 1);
    assert_i64_equal(test_stat_of(world.engine, ask_timeouts), 1);
    assert_i64_equal(test_stat_of(world.engine, ask_away), 0);
    world_end();
}

/* Goal: if the server that a sentinel names accepts no connection, another sentinel is asked. Method: either of the two
 * may be the first. */
TEST(a_sentinel_that_names_a_dead_server_is_passed_over) {
    for (uint64_t seed = 17; seed < 25; seed++) {
        struct call call = {0};
        world_begin_at("redis+sentinel://s1,s2/shop", seed);
        assert_true(ask(&call, 0, 80));
        turns(80);
        assert_i64_equal(call.number, 0);
        assert_i64_equal(admitted, 1);
        world_end();
    }
}

/* Goal: with calls_max calls under way the next one is refused at once, and that is no outage. */
TEST(a_full_table_is_no_outage) {
    static struct call many[1100];
    world_begin(7);
    warm_up();
    int64_t taken = 0;
    for (int i = 0; i < 1100; i++) taken += ask(&many[i], 0, 1000);
    assert_i64_equal(taken, 1024);
    assert_i64_equal(test_stat_of(world.engine, ask_busy), 1100 - 1024);
    assert_i64_equal(test_stat_of(world.engine, ask_away), 0);
    turns(100);
    assert_i64_equal(admitted, 1 + 1024);
    world_end();
}

/* Goal: without a call there are no lanes; with 1,024 under way they need at most 1.5 MiB, and once each has been used
 * a call allocates nothing. Method: the allocator's own figures; the model allocates nothing by then. */
TEST(lanes_need_little_memory) {
    static struct call many[1024];
    world_begin(11);
    uint32_t made = world.engine->here->remote.driver->ask_owed(world.engine->here->remote.sync);
    assert_int_equal(made, 0);
    warm_up();
    world.way_ms = 5;
    size_t before = test_allocated();
    for (int i = 0; i < 1024; i++) assert_true(ask(&many[i], i % KEYS, 2000));
    assert_true(test_allocated() - before <= 3 << 19);
    turns(200);
    before = test_allocated();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1024; i++) assert_true(ask(&many[i], i % KEYS, 2000));
        turns(200);
    }
    assert_i64_equal(admitted, 1 + 4 * 1024);
    assert_true(test_allocated() <= before);
    world_end();
}

/* Goal: calls that are forgotten before there is a link leave their lanes to others at once. */
TEST(forgotten_calls_leave_their_lanes) {
    static struct call many[1024];
    struct call more = {0};
    world_begin(13);
    world.is_away = true;
    for (int i = 0; i < 1024; i++) assert_true(ask(&many[i], 0, 1000));
    assert_false(ask(&more, 0, 1000));
    turn();
    for (int i = 0; i < 1024; i++) forget(&many[i]);
    turn();
    assert_int_equal(owed(), 0);
    assert_true(ask(&more, 0, 1000));
    world.is_away = false;
    turns(50);
    assert_i64_equal(admitted, 1);
    assert_i64_equal(world.requests, 2); /* one without the script's text */
    world_end();
}

/* Goal: a call whose caller goes after the answer, and before it has it, is taken back until the server answers, also
 * if another call has begun meanwhile; one whose caller has the answer stays, and its lane is free. */
TEST(a_call_is_undone_after_its_answer) {
    for (int round = 0; round < 2; round++) {
        struct call call = {.may_go = true}, other = {0};
        world_begin(18);
        warm_up();
        assert_true(ask(&call, 0, 100));
        turns(20);
        assert_true(call.kept != 0);
        assert_int_equal(owed(), 1);
        assert_true(ask(&other, 0, 100));
        turns(20);
        assert_i64_equal(world.counts[0], 3);
        world.paused_until_ms = world.now_ms + 3 * TIMEOUT_MS; /* the first cancel is lost with its connection */
        end_kept(&call, round == 0);
        assert_i64_equal(test_stat_of(world.engine, ask_unsettled), 0); /* the driver does not know of it yet */
        turns(4000);
        assert_int_equal(owed(), 0);
        assert_i64_equal(world.counts[0], round == 0 ? 2 : 3);
        assert_i64_equal(test_stat_of(world.engine, asks_forgotten), 0);
        world_end();
    }
}

/* Another life of this process makes its next call. The first call of this life is warm_up()'s. */
static void another_life_calls(void) {
    char *serial = world.notes[0].serial;
    int number = atoi(serial);
    snprintf(serial, sizeof world.notes[0].serial, "%d:0badcafe", number + 1);
}

/* Goal: two lives of one process have the same names and numbers; the later one takes a new name, and is charged. */
TEST(another_life_is_not_taken_for_this_one) {
    struct call call = {0};
    world_begin(8);
    warm_up();
    struct note twin = world.notes[0]; /* another life makes its next call first */
    another_life_calls();
    world.notes[0].given = 1;
    world.counts[0]++;
    assert_true(ask(&call, 0, 100));
    turns(20);
    assert_i64_equal(admitted, 2);
    assert_i64_equal(world.counts[0], 3);
    assert_int_equal(world.note_count, 2);
    assert_string_not_equal(world.notes[1].who, twin.who);
    world_end();
}

/* Goal: a charge that another life of this process has hidden cannot be undone, and is counted as forgotten. Method:
 * the other life makes its call after the charge, and before the late answer, which has to be taken back, is here. */
TEST(a_charge_that_another_life_has_hidden_is_forgotten) {
    struct call call = {0};
    world_begin(14);
    warm_up();
    world.way_ms = 30;
    assert_true(ask(&call, 0, 10));
    turns(45);
    assert_i64_equal(unknown, 1);
    assert_i64_equal(world.counts[0], 2);
    another_life_calls();
    assert_i64_equal(test_stat_of(world.engine, asks_forgotten), 0);
    turns(200);
    assert_int_equal(owed(), 0);
    assert_i64_equal(world.counts[0], 2);
    assert_i64_equal(test_stat_of(world.engine, asks_forgotten), 1);
    assert_i64_equal(test_stat_of(world.engine, ask_units_kept), 1);
    assert_i64_equal(test_stat_of(world.engine, asks_settled), 0);
    world_end();
}

/* Goal: a call that goes out again says so: then its denial is noted, and a copy of it that was left behind on the
 * connection before charges nothing when there is room. */
TEST(a_copy_that_was_left_behind_charges_nothing) {
    struct call call = {0};
    world_begin(9);
    limit = 1;
    warm_up(); /* that is the one unit */
    world.way_ms = 60;
    assert_true(ask(&call, 0, 1000));
    turns(2);
    for (int i = 0; i < CONNECTIONS; i++) world.connections[i].is_cut = world.connections[i].is_used;
    world.way_ms = 1;
    turns(30);
    assert_i64_equal(call.number, 0);
    assert_i64_equal(admitted, 1);
    world.counts[0] = 0; /* there is room, and the copy arrives */
    turns(100);
    assert_i64_equal(world.counts[0], 0);
    world_end();
}

/* The number and nonce of a call that is begun `ms` after a moment that all lives of a process have in common. */
static void serial_after(int64_t ms, char serial[32]) {
    struct call call = {0};
    world_begin(10);
    warm_up();
    world_run(ms);
    assert_true(ask(&call, 0, 100));
    turns(20);
    assert_i64_equal(call.number, 0);
    memcpy(serial, world.notes[0].serial, 32);
    world_end();
}

/* Goal: two lives of one process, which have all of their memory in common, are distinguished by the nonce of a
 * call. */
TEST(the_nonce_tells_two_lives_apart) {
    char one[32], other[32], again[32];
    serial_after(1, one);
    serial_after(1, again);
    serial_after(2, other);
    assert_string_equal(one, again);
    assert_int_equal(atoi(one), atoi(other));
    assert_string_not_equal(one, other);
}
