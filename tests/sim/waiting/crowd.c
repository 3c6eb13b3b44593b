/* crowd.c -- more calls than a link to Redis answers in their time, in the simulated world of call_world.h: the link's
 * window (sync/ask/window.h) serves as many as it can, the others are busy, and only silence is an outage.
 * Method: a host that turns every millisecond, callers that call again as soon as they are answered, and ways that
 * carry so many bytes a second. A way that is thin by nature answers all of its calls when they have enough time, and
 * that is the measure.
 * Always true: everything follows from the seed, and all that the server has is the admitted units.
 * Covers: sync/ask/window.c, sync/ask/window.h. */
#include "tests/sim/waiting/callers.h"
#include "tests/sim/waiting/owners.h"

#define CALLERS_MAX 1024

static struct call calls[CALLERS_MAX];

/* Runs for `ms` with so many callers. */
static void crowd(int callers, int64_t time_ms, int64_t ms) {
    for (; ms > 0; ms--) {
        for (int i = 0; i < callers; i++)
            if (calls[i].number == 0 && calls[i].again_ms <= world.now_ms) (void)ask(&calls[i], 0, time_ms);
        turns(1);
    }
}

static void crowd_begin(uint64_t seed, int64_t bytes_per_s) {
    world_begin(seed);
    memset(calls, 0, sizeof calls);
    limit = INT64_C(1) << 40;
    warm_up();
    world.bytes_per_s = bytes_per_s;
}

/* All that is under way ends, and then the server has the admitted units. */
static void crowd_end(void) {
    world.bytes_per_s = 0;
    for (int i = 0; i < 4000 && owed() != 0; i++) turns(10);
    assert_int_equal(owed(), 0);
    assert_i64_equal(answered + forgotten, begun);
    assert_i64_equal(world.counts[0], admitted);
    world_end();
}

/* The fewest calls that are decided in two seconds, of so many times two. */
static int64_t served(int callers, int64_t time_ms, int times) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < times; i++) {
        int64_t before = admitted;
        crowd(callers, time_ms, 2000);
        if (admitted - before < least) least = admitted - before;
    }
    return least;
}

/* Goal: a thin way serves a crowd as if its calls had any time: in each two seconds at least 80 % of that number, and
 * half of it in the first two, also a way that brings several calls and their replies in one piece. None of them is an
 * outage. */
TEST(a_thin_way_serves_a_crowd) {
    static const struct {
        int64_t bytes_per_s;
        int callers;
        size_t piece;
    } ways[] = {{20000, 16, 128},    {60000, 64, 128},  {125000, 64, 128}, {125000, 500, 128},
                {500000, 1000, 128}, {14000, 16, 1024}, {16000, 16, 512}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        crowd_begin(20 + i, ways[i].bytes_per_s);
        world.piece = ways[i].piece;
        crowd(ways[i].callers < 64 ? ways[i].callers : 64, 5000, 3000);
        int64_t most = served(ways[i].callers < 64 ? ways[i].callers : 64, 5000, 1);
        crowd_end();
        crowd_begin(20 + i, ways[i].bytes_per_s);
        world.piece = ways[i].piece;
        int64_t first = served(ways[i].callers, TIMEOUT_MS, 1), rest = served(ways[i].callers, TIMEOUT_MS, 4);
        print_message("# %d bytes a second, %d callers: %d, then %d of %d; %d busy, %d late\n",
                      (int)ways[i].bytes_per_s, ways[i].callers, (int)first, (int)rest, (int)most, (int)busy,
                      (int)unknown);
        assert_true(2 * first >= most);
        assert_true(10 * rest >= 8 * most);
        assert_i64_equal(by_outage, 0);
        assert_i64_equal(test_stat_of(world.engine, ask_connects), 1);
        crowd_end();
    }
}

/* Goal: a call that ends unsent costs no byte and no cancel. Method: the server counts what comes. */
TEST(what_is_not_sent_costs_nothing) {
    crowd_begin(30, 60000);
    crowd(400, TIMEOUT_MS, 1000);
    int64_t requests = world.requests, answers = admitted + unknown;
    crowd(400, TIMEOUT_MS, 2000);
    int64_t sent = admitted + unknown - answers;
    assert_true(busy > 1000);
    assert_true(test_stat_of(world.engine, ask_busy) >= busy);
    assert_in_range(test_stat_of(world.engine, ask_window), 1, 32);
    assert_in_range(test_stat_of(world.engine, ask_unsent), 300, 400);
    assert_in_range(world.requests - requests, sent - 64, sent + (int)unknown + 64);
    crowd_end();
}

/* Goal: a server that stops under a crowd is an outage as soon as it has been silent for redis_timeout_ms; the crowd is
 * served again within two seconds after it is back. */
TEST(silence_under_a_crowd_is_an_outage) {
    crowd_begin(31, 0);
    world.way_ms = 20;
    crowd(CALLERS_MAX - 24, TIMEOUT_MS, 1000);
    int64_t most = served(CALLERS_MAX - 24, TIMEOUT_MS, 1);
    assert_i64_equal(by_outage, 0);
    world.paused_until_ms = world.now_ms + 3000;
    crowd(CALLERS_MAX - 24, TIMEOUT_MS, 2 * TIMEOUT_MS + 10);
    int64_t away = test_stat_of(world.engine, ask_away);
    assert_true(away > 0);
    int64_t busy_then = busy;
    crowd(CALLERS_MAX - 24, TIMEOUT_MS, 3000 - 2 * TIMEOUT_MS - 10);
    assert_i64_equal(busy, busy_then);
    crowd(CALLERS_MAX - 24, TIMEOUT_MS, 2000);
    assert_true(10 * served(CALLERS_MAX - 24, TIMEOUT_MS, 1) >= 8 * most);
    crowd_end();
}

/* Goal: one call alone to a server that has stopped is an outage when its time is over, as ever. */
TEST(silence_for_one_call_is_an_outage) {
    struct call call = {0};
    world_begin(32);
    warm_up();
    world.paused_until_ms = world.now_ms + 1000;
    assert_true(ask(&call, 0, TIMEOUT_MS));
    turns(TIMEOUT_MS + 10);
    assert_i64_equal(unknown, 1);
    assert_i64_equal(by_outage, 1);
    turns(2000);
    world_end();
}

/* Goal: a process that comes so late that the time of its call is over before the call gets to the driver has not seen
 * an outage. */
TEST(a_call_that_comes_too_late_is_no_outage) {
    struct call call = {0};
    world_begin(33);
    warm_up();
    for (int i = 0; i < 5; i++) {
        assert_true(ask(&call, 0, -i));
        turns(1);
        assert_i64_equal(call.number, 0);
    }
    assert_i64_equal(by_outage, 0);
    assert_i64_equal(busy, 5);
    world_end();
}

/* Goal: a short silence is no outage for calls with little time, whatever the limit is: a busy machine makes it. */
TEST(a_short_silence_is_no_outage_for_short_calls) {
    struct call call = {0};
    world_begin(34);
    warm_up();
    for (int i = 0; i < 20; i++) {
        world.paused_until_ms = world.now_ms + 250;
        assert_true(ask(&call, 0, 5));
        turns(300);
        assert_i64_equal(call.number, 0);
    }
    assert_true(unknown > 0);
    assert_i64_equal(by_outage, 0);
    world_end();
}

/* Goal: while the first connection is being made nothing is known to be away, so calls whose time ends are busy; when
 * it takes too long, or fails, that is an outage. */
TEST(before_the_first_greeting_nothing_is_away) {
    struct call call = {0};
    world_begin(35);
    world.way_ms = 200; /* the greeting takes 400 */
    for (int i = 0; i < 3; i++) {
        assert_true(ask(&call, 0, TIMEOUT_MS));
        turns(TIMEOUT_MS + 10);
        assert_i64_equal(call.number, 0);
    }
    assert_i64_equal(busy, 3);
    turns(1000);
    world_end();
    world_begin(36);
    world.paused_until_ms = world.now_ms + 5000;
    for (int i = 0; i < 9; i++) {
        assert_true(ask(&call, 0, TIMEOUT_MS));
        turns(TIMEOUT_MS + 10);
        assert_i64_equal(call.number, 0);
    }
    assert_in_range(busy, 5, 7);
    assert_i64_equal(unsent, 9 - busy);
    assert_i64_equal(by_outage, 9 - busy);
    turns(6000);
    world_end();
}

/* Goal: in a crowd a server that has forgotten its scripts gets the text at once: a call that was there goes before
 * those that were not. */
TEST(a_text_goes_before_the_crowd) {
    crowd_begin(37, 60000);
    crowd(400, TIMEOUT_MS, 1000);
    world.knows_script = false;
    int64_t texts = world.texts, most = admitted;
    crowd(400, TIMEOUT_MS, 300); /* the text takes 150 ms of them */
    assert_i64_equal(world.texts - texts, 1);
    crowd(400, TIMEOUT_MS, 1000);
    assert_true(admitted - most > 60);
    crowd_end();
}

#define LATE_MS 16 /* less than what moves deadlines */

/* Runs for `ms` in steps that all come a little late: a call has always been waiting for them. */
static void late_crowd(int callers, int64_t time_ms, int64_t ms) {
    for (; ms > 0; ms -= LATE_MS) {
        for (int i = 0, fresh = 0; i < callers && fresh < callers / 4; i++)
            if (calls[i].number == 0) fresh += ask(&calls[i], 0, time_ms);
        world_run(LATE_MS);
        turn();
    }
}

/* Goal: a silence of the server is none as far as the process itself got no processor, also if that is never for long:
 * it may share the machine with the server. A server that has gone is still found to be. Method: where steps come in
 * time, a silence of 100 ms ends the link. */
TEST(a_busy_process_takes_no_silence_for_an_outage) {
    crowd_begin(38, 0);
    late_crowd(32, 50, 1000);
    for (int i = 0; i < 5; i++) {
        world.paused_until_ms = world.now_ms + 500;
        late_crowd(32, 50, 1000);
    }
    assert_true(admitted > 100);
    assert_true(unknown > 100);
    assert_i64_equal(by_outage, 0);
    world.paused_until_ms = world.now_ms + 8000;
    late_crowd(32, 50, 1500);
    assert_true(by_outage > 0);
    late_crowd(32, 50, 10000);
    crowd_end();
}

/* ---- a busy machine ---------------------------------------------------------------------------------------------- */

#define RUNS_MS 4 /* who runs, runs for so long; with another program on the same processor, the others wait as long */

/* For how long a process waits for a processor: mostly for one to three others, and `long_of_100` times for many. */
static int64_t others_run_ms(uint32_t long_of_100) {
    if (test_prng_chance(&world.prng, long_of_100, 100)) return test_prng_between(&world.prng, 30, 70);
    return test_prng_between(&world.prng, RUNS_MS, 3 * RUNS_MS);
}

/* Runs two seconds on a machine where the host and the server each get a processor for a while, and then others. */
static int64_t served_beside_others(int callers, int64_t time_ms, uint32_t long_of_100) {
    int64_t before = admitted, host_ms = 0, server_ms = 0;
    for (int64_t end_ms = world.now_ms + 2000; world.now_ms < end_ms;) {
        if (world.now_ms >= server_ms) world.paused_until_ms = world.now_ms + others_run_ms(long_of_100);
        if (world.now_ms >= server_ms) server_ms = world.paused_until_ms + RUNS_MS;
        if (world.now_ms >= host_ms + RUNS_MS) {
            host_ms = world.now_ms + others_run_ms(long_of_100);
            world.late_ms += host_ms - world.now_ms;
        }
        if (world.now_ms >= host_ms) crowd(callers, time_ms, 1);
        if (world.now_ms < host_ms) world_run(1);
    }
    return admitted - before;
}

/* Goal: where the host and the server wait for a processor again and again, a crowd is served as if its calls had any
 * time: 80 % in each two seconds where each wait is short, and 60 % where one of twenty takes most of a call's time. No
 * wait is an outage. */
TEST(a_busy_machine_serves_a_crowd) {
    static const struct {
        uint32_t long_of_100;
        int percent;
    } machines[] = {{0, 80}, {5, 60}};
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        int64_t most = INT64_MAX;
        for (int has_time = 1; has_time >= 0; has_time--) {
            int64_t least = INT64_MAX;
            crowd_begin(40 + i, 1000000);
            world.piece = 65536;
            for (int k = 0; k < 5; k++) {
                int64_t decided = served_beside_others(1000, has_time ? 2000 : TIMEOUT_MS, machines[i].long_of_100);
                if (k > 0 && decided < least) least = decided;
            }
            print_message("# %d of 100 waits are long: %d in two seconds; %d busy, %d late\n",
                          (int)machines[i].long_of_100, (int)least, (int)busy, (int)unknown);
            if (has_time) most = least;
            assert_true(100 * least >= machines[i].percent * most);
            assert_i64_equal(by_outage, 0);
            crowd_end();
        }
    }
}

/* ---- a cluster --------------------------------------------------------------------------------------------------- */

#define SLOW 6379
#define QUICK 6380

/* Goal: in a cluster one slow master delays nobody else, however many calls come for it: those that wait for it take at
 * most half of calls_max, so each call of another master is sent at once. Method: 1,600 callers of the slow one, of
 * which at most 40 call in a millisecond, and 16 of the other. */
TEST(a_slow_master_delays_no_other) {
    static struct call slow[1600], quick[16];
    world_begin_at("redis+cluster://none", 39);
    memset(slow, 0, sizeof slow);
    memset(quick, 0, sizeof quick);
    limit = INT64_C(1) << 40;
    world.bytes_per_s = 60000;
    world.thin_port = SLOW;
    owner_is(world.engine->here->remote.sync, "c0", SLOW);
    owner_is(world.engine->here->remote.sync, "c1", QUICK);
    for (int ms = 0; ms < 2000; ms++) {
        for (int i = 0, fresh = 0; i < 1600 && fresh < 40; i++)
            if (slow[i].number == 0 && slow[i].again_ms <= world.now_ms) fresh += ask(&slow[i], 0, TIMEOUT_MS);
        for (int i = 0; i < 16; i++)
            if (quick[i].number == 0) (void)ask(&quick[i], 1, TIMEOUT_MS);
        turns(1);
        for (int i = 0; i < 16 && ms > 100; i++) {
            assert_i64_equal(quick[i].again_ms, 0); /* it was never turned away */
            assert_true(quick[i].number == 0 || world.now_ms - quick[i].began_ms < 10);
        }
    }
    assert_true(world.counts[1] > 16 * 2000 / 10);
    assert_true(world.counts[0] > 100);
    assert_true(busy > 1600);
    assert_i64_equal(by_outage, 0);
    world.bytes_per_s = 0;
    for (int i = 0; i < 4000 && owed() != 0; i++) turns(10);
    assert_i64_equal(world.counts[0] + world.counts[1], admitted);
    world_end();
}
