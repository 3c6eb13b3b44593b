/* closed_by_one_faults.c -- TW_CLOSED_BY_ONE while engines die, are stopped or are cut off, and while Redis is
 * unreachable or forgets. */
#include "tests/redis/closing/closed_support.h"
#include "tests/support/side_by_side.h"

static bool is_closed_again(void *ctx) {
    struct call call;
    return closings_of(*(int64_t *)ctx, &call) == 2;
}

/* Goal: the chosen engine is killed before its hook has returned true. Another engine is chosen when the claim is over,
 * and reports all counts, the keys of the dead engine included. */
TEST(the_chosen_engine_is_killed_and_another_closes_the_window) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, &server, 4000, LONG_MS);
    start();
    int64_t start_ms = count_all_refused(), sum = truth();
    assert_true(test_wait(has_first_call, &start_ms, LONG_MS));
    int dead = first_call_of(start_ms)->process;
    assert_i64_equal(first_call_of(start_ms)->sum, sum);
    kill_process(dead);
    refuse_all(false);
    struct call call = assert_closed(start_ms, sum);
    assert_int_not_equal(call.process, dead);
    end();
    redis_server_destroy(&server);
}

/* Goal: the others wait for a stopped process no longer than its last message is valid. When it continues, the counts
 * that only it had are reported again. */
TEST(a_stopped_process_does_not_hold_a_window_up_for_ever) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, &server, 4000, LONG_MS);
    start();
    int64_t start_ms;
    for (int tries = 0;; tries++) { /* on a busy machine it may have said before that it no longer needs the window */
        start_ms = count_all();
        kill(children[1], SIGSTOP);
        if (real_ms() < start_ms + WINDOW_MS || tries == 20) break;
        kill(children[1], SIGCONT);
    }
    assert_true(test_wait(is_closed, &start_ms, LONG_MS));
    struct call call = {0};
    assert_i64_equal(closings_of(start_ms, &call), 1);
    assert_i64_equal(call.flags, 0);
    assert_i64_equal(call.of_all, 3);
    assert_int_not_equal(call.process, 1);
    kill(children[1], SIGCONT);
    assert_true(test_wait(is_closed_again, &start_ms, LONG_MS));
    test_sleep_ms(1500); /* a third call would have come by now */
    assert_i64_equal(closings_of(start_ms, &call), 2);
    assert_i64_equal(call.flags, TW_CLOSED_AGAIN);
    assert_i64_equal(call.of_all, 3);
    assert_true(call.sum >= 3 + 2); /* its own key and the shared one, whichever engine reported it */
    assert_closed(count_all(), truth());
    end();
    redis_server_destroy(&server);
}

/* Goal: counts that one engine could not send hold the window up; once they arrive, the figures are complete. Method: a
 * proxy between that engine and Redis; the others have drained long before. */
TEST(an_engine_that_is_cut_off_holds_the_window_up) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, &server, 30000, LONG_MS);
    fork_all();
    struct proxy *proxy = proxy_start(&server, 1);
    snprintf(page->url[2], sizeof page->url[2], "%s", proxy_url(proxy));
    start_all();
    assert_closed(count_all(), truth());
    proxy_manner(proxy, PROXY_SILENT);
    proxy_cut_all(proxy);
    atomic_store(&page->flush_ms, 1000);
    int64_t start_ms = count_all();
    int64_t sealed_ms = start_ms + WINDOW_MS + LATE_MS, wait_ms = sealed_ms + 2000 - real_ms();
    if (wait_ms > 0) test_sleep_ms(wait_ms);
    struct call call;
    assert_i64_equal(closings_of(start_ms, &call), 0);
    proxy_manner(proxy, PROXY_OPEN);
    assert_closed(start_ms, truth());
    end();
    proxy_stop(proxy);
    redis_server_destroy(&server);
}

static bool all_have_closed(void *ctx) {
    struct call call;
    return closings_of(*(int64_t *)ctx, &call) >= processes;
}

/* Goal: Redis is unreachable for longer than the wait. Each hook gets its own figures once, flagged as local, and
 * nothing again when Redis is back. */
TEST(in_an_outage_each_closes_with_its_own_figures) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct redis_server server;
    redis_server_start(&server, durable);
    begin(3, &server, 30000, 8000); /* what Redis has not acknowledged by then is TW_CLOSED_LOCAL */
    start();
    assert_closed(count_all(), truth());
    redis_server_kill(&server);
    atomic_store(&page->flush_ms, 1000);
    int64_t start_ms = count_all();
    struct call last;
    assert_true(test_wait(all_have_closed, &start_ms, LONG_MS));
    redis_server_restart(&server);
    atomic_store(&page->flush_ms, LONG_MS);
    test_sleep_ms(3000); /* a fourth call would have come by now */
    assert_i64_equal(closings_of(start_ms, &last), 3);
    for (int i = 0; i < atomic_load(&page->calls); i++) {
        const struct call *call = &page->call[i];
        if (!has_call(i) || call->start_ms != start_ms)
            continue; /* count_all() may have tried a window that was over for some */
        assert_i64_equal(call->flags, TW_CLOSED_LOCAL);
        assert_i64_equal(call->sum, call->process + 2);
    }
    assert_closed(count_all(), truth());
    end();
    redis_server_destroy(&server);
}

/* Goal: Redis is wiped while a window that two engines have drained waits for the third. They send it all again before
 * one is chosen. */
TEST(a_wiped_redis_gets_everything_again_before_an_engine_is_chosen) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, &server, 6000, LONG_MS);
    start();
    int64_t start_ms = count_all();
    kill(children[1], SIGSTOP);
    int64_t wait_ms = start_ms + WINDOW_MS + LATE_MS + 700 - real_ms();
    if (wait_ms > 0) test_sleep_ms(wait_ms);
    redis_server_ask(&server, "FLUSHALL", NULL);
    kill(children[1], SIGCONT);
    assert_closed(start_ms, truth());
    end();
    redis_server_destroy(&server);
}

#define LIFE_MS 4000
/* What the closing may take besides the lifetime: the next heartbeat, the next claim, all messages, and a busy machine.
 * A claim that outlived its engine would take another three lifetimes. */
#define ASKING_MS 5000

/* How long after its time the window was closed. */
static int64_t closed_late_ms(int64_t start_ms) {
    assert_true(test_wait(is_closed, &start_ms, LONG_MS));
    return real_ms() - (start_ms + WINDOW_MS + LATE_MS);
}

/* Goal: a killed engine, with the claim or without, delays the closing by its lifetime and a few seconds at most
 * (docs/OPTIONS.md). Method: one is killed while it holds the window up, and the one that is chosen in its hook. */
TEST(killed_engines_delay_a_window_for_a_lifetime_each) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, &server, LIFE_MS, LONG_MS);
    start();
    int64_t start_ms = count_all_refused();
    kill_process(1);
    assert_true(test_wait(has_first_call, &start_ms, LONG_MS));
    assert_true(real_ms() - (start_ms + WINDOW_MS + LATE_MS) <= LIFE_MS + ASKING_MS);
    int64_t killed_ms = real_ms();
    kill_process(first_call_of(start_ms)->process);
    refuse_all(false);
    (void)closed_late_ms(start_ms);
    assert_true(real_ms() - killed_ms <= LIFE_MS + ASKING_MS);
    end();
    redis_server_destroy(&server);
}

/* Goal: the same for a wipe, after which no engine is chosen for a lifetime. */
TEST(a_wipe_delays_a_window_for_a_lifetime) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(2, &server, LIFE_MS, LONG_MS);
    start();
    int64_t start_ms = count_all();
    redis_server_ask(&server, "FLUSHALL", NULL);
    assert_true(closed_late_ms(start_ms) <= LIFE_MS + ASKING_MS);
    end();
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
