/* closed_by_one.c -- TW_CLOSED_BY_ONE with real processes: one of them closes each window, with the figures of all.
 * Covers: sync/message/closing.c, sync/script/close_election.lua. */
#include "tests/redis/closing/closed_support.h"
#include "tests/support/side_by_side.h"

EACH_SHAPE(one_process_closes_each_window_with_the_figures_of_all) {
    play_shape(state);
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, &server, 30000, LONG_MS);
    start();
    for (int round = 0; round < 3; round++) {
        struct call call = assert_closed(count_all(), truth());
        assert_i64_equal(call.keys, 4);
        assert_i64_equal(call.of_all, 3);
    }
    assert_true(test_wait(are_gone, &server, LONG_MS));
    end();
    redis_server_destroy(&server);
}

/* Goal: all keys are reported when there are more than one page holds, of names listed and of names read. */
EACH_SHAPE(thousands_of_keys_are_all_there) {
    play_shape(state);
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(2, &server, 30000, LONG_MS);
    page->keys = 2000;
    start();
    struct call call = assert_closed(count_all(), truth());
    assert_i64_equal(call.keys, 4001);
    end();
    redis_server_destroy(&server);
}

/* Goal: keys of a process without a hook are in the figures of the process that has one. */
TEST(a_process_without_a_hook_takes_part) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, &server, 30000, LONG_MS);
    page->without_hook[0] = page->without_hook[2] = true;
    start();
    struct call call = assert_closed(count_all(), truth());
    assert_int_equal(call.process, 1);
    assert_i64_equal(call.keys, 4);
    end();
    redis_server_destroy(&server);
}

/* Goal: if a hook returns false for longer than the wait, another engine's hook gets the window. */
TEST(a_hook_that_always_returns_false_leaves_the_window_to_another) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(2, &server, 30000, 8000); /* what Redis has not acknowledged by then is TW_CLOSED_LOCAL */
    start();
    atomic_store(&page->refuses[0], true);
    for (int round = 0; round < 2; round++) { /* that engine is not always chosen first */
        struct call call = assert_closed(count_all(), truth());
        assert_int_equal(call.process, 1);
    }
    atomic_store(&page->refuses[0], false);
    end();
    redis_server_destroy(&server);
}

/* Goal: an engine that is closed in mid-window leaves the window to the others, its keys included. The last engine gets
 * it as cut short. */
TEST(an_engine_that_leaves_in_mid_window_leaves_it_to_the_others) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(3, &server, 30000, LONG_MS);
    start();
    int64_t start_ms = (real_ms() / WINDOW_MS + 6) * WINDOW_MS;
    while (!count_at(start_ms)) start_ms += 5 * WINDOW_MS;
    end_process(0);
    struct call call = assert_closed(start_ms, truth());
    assert_i64_equal(call.keys, 4);
    end();
    redis_server_destroy(&server);
}

/* Goal: the last engine that leaves in mid-window gets the window, flagged as cut short, with the figures of all. */
TEST_EACH(the_last_engine_to_leave_gets_the_window_as_cut_short, TW_REDIS_STRING, TW_REDIS_HASH) {
    play_shape(state);
    struct redis_server server;
    redis_server_start(&server, NULL);
    begin(2, &server, 30000, LONG_MS);
    start();
    int64_t start_ms = (real_ms() / WINDOW_MS + 30) * WINDOW_MS;
    assert_true(count_at(start_ms));
    end_process(0);
    end_process(1);
    assert_int_equal(atomic_load(&page->calls), 1);
    assert_i64_equal(page->call[0].start_ms, start_ms);
    assert_i64_equal(page->call[0].flags, TW_CLOSED_PARTIAL);
    assert_int_equal(page->call[0].process, 1);
    assert_i64_equal(page->call[0].sum, truth());
    end();
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
