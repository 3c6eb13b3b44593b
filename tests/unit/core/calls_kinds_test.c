/* calls_kinds_test.c -- each kind of call that answers later: what it brings, and what a late cancel of it undoes. */
#include "tests/unit/core/calls_support.h"

/* ---- the other calls --------------------------------------------------------------------------------------------- */

/* Goal: once, lock and their cancels bring what the blocking forms bring. */
LATER_TEST(once_and_lock_answer_later) {
    static struct told told;
    tw_family *family = strict_family();
    prepare(&told, NULL);
    assert_status(tw_once_async(&told.request, family, tw_str("k")), TW_STARTED);
    assert_string_equal(later_arg(0, 0), "O");
    later_answer(0, "FIRST");
    rig_turn(&rig);
    assert_status(told.request.status, TW_OK);
    assert_true(told.request.first);
    assert_status(tw_lock_async(&told.request, family, tw_str("k"), 1000), TW_STARTED);
    assert_string_equal(told.request.token, "");
    later_answer(0, "OK 4711");
    rig_turn(&rig);
    assert_status(told.request.status, TW_OK);
    assert_i64_equal(told.request.fence, 4711);
    char token[TW_TOKEN_SIZE];
    memcpy(token, told.request.token, sizeof token);
    assert_status(tw_lock_extend_async(&told.request, family, tw_str("k"), token, 1000), TW_STARTED);
    later_answer(0, "GONE");
    rig_turn(&rig);
    assert_status(told.request.status, TW_ERR_LATE);
    assert_non_null(strstr(tw_error_text(), "token:"));
    assert_status(tw_lock_release_async(NULL, family, tw_str("k"), token), TW_STARTED);
    assert_string_equal(later_arg(0, 0), "U");
    later_answer(0, "OK 0");
    rig_turn(&rig);
    assert_status(tw_lock_release_async(NULL, family, tw_str("k"), "nonsense"), TW_ERR_UNKNOWN_TOKEN);
    later.is_busy = true;
    assert_i64_equal(test_stat_of(rig.engine, asks_forgotten), 0);
    assert_status(tw_lock_release_async(NULL, family, tw_str("k"), token), TW_ERR_BUSY);
    assert_i64_equal(test_stat_of(rig.engine, asks_forgotten), 1);
    later.is_busy = false;
    assert_int_equal(told.times, 3);
}

/* An answer waits in the queue when its caller goes. What it charged is taken back under the number of the call. */
static void go_before_delivery(struct told *told, const char *answer, bool has_charged) {
    int64_t undone = later.undone;
    later_answer(0, answer);
    rig_turn(&rig);
    assert_int_equal(later_count(), 0);
    assert_status(tw_request_cancel(&told->request), TW_OK);
    assert_i64_equal(later.undone - undone, has_charged);
    assert_int_equal(later_count(), 0);
}
LATER_TEST(a_late_cancel_undoes_by_number) {
    static struct told told;
    tw_family *family = strict_family();
    tw_family_options options = rig_options("h", TW_WINDOW_FOREVER, 0);
    tw_family *holds = rig_family_of(&rig, &options);
    tw_queue *queue;
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    prepare(&told, queue);
    assert_status(tw_once_async(&told.request, family, tw_str("k")), TW_STARTED);
    go_before_delivery(&told, "FIRST", true);
    assert_status(tw_once_async(&told.request, family, tw_str("k")), TW_STARTED);
    go_before_delivery(&told, "SECOND", false);
    assert_status(tw_lock_async(&told.request, family, tw_str("k"), 1000), TW_STARTED);
    go_before_delivery(&told, "OK 12", true);
    assert_status(tw_lock_async(&told.request, family, tw_str("k"), 1000), TW_STARTED);
    go_before_delivery(&told, "HELD 0", false);
    assert_status(tw_hold_async(&told.request, holds, tw_str("k"), 3), TW_STARTED);
    go_before_delivery(&told, "OK 1", true);
    assert_status(tw_reserve_async(&told.request, family, tw_str("k"), 1, 3, 1000, tw_str("you")), TW_STARTED);
    go_before_delivery(&told, "OK 1 0 0", true);
    assert_int_equal(told.times, 0);
    assert_status(tw_queue_close(queue), TW_OK);
}

/* Goal: a hold is asked again while MORE dead ones are cleared; it is entered when it is answered; its release is one
 * request, or waits for the statement that may be under way. */
LATER_TEST(holds_answer_later) {
    static struct told told;
    tw_family_options options = rig_options("h", TW_WINDOW_FOREVER, 0);
    tw_family *family = rig_family_of(&rig, &options);
    prepare(&told, NULL);
    assert_status(tw_hold_async(&told.request, family, tw_str("k"), 3), TW_STARTED);
    later_answer(0, "MORE 0");
    rig_turn(&rig);
    assert_int_equal(told.times, 0);
    later_answer(0, "OK 2");
    rig_turn(&rig);
    assert_int_equal(told.times, 1);
    assert_status(told.request.status, TW_OK);
    assert_i64_equal(told.request.verdict.used, 2);
    struct twi_hold_member member;
    fake_clock_advance_ms(&rig.clock, 6000);
    assert_true(twi_port_hold_due(rig.engine, &member)); /* a statement that has it is being sent */
    twi_port_holds_sent(rig.engine);
    assert_status(tw_hold_release_async(&told.request, family, tw_str("k")), TW_STARTED);
    rig_turn(&rig);
    assert_int_equal(later_count(), 0);
    twi_port_holds_answered(rig.engine);
    rig_turn(&rig);
    assert_int_equal(later_count(), 1);
    assert_string_equal(later_arg(0, 0), "release");
    later_answer(0, "OK 1");
    rig_turn(&rig);
    assert_int_equal(told.times, 2);
    assert_status(told.request.status, TW_OK);
    assert_status(tw_hold_release_async(&told.request, family, tw_str("k")), TW_ERR_RANGE);
    assert_status(tw_hold_release_async(NULL, family, tw_str("k")), TW_ERR_RANGE);
}

/* Holds a slot, and answers the request. */
static void hold_a_slot(struct told *told, tw_family *family, bool is_copied) {
    assert_status(tw_hold_async(&told->request, family, tw_str("k"), 3), TW_STARTED);
    later.sync->requests[0].answer.is_copied = is_copied;
    later_answer(0, "OK 1");
    rig_turn(&rig);
    assert_status(told->request.status, TW_OK);
}

static void released_by(struct told *told, const char *word) {
    assert_string_equal(later_arg(0, 0), word);
    later_answer(0, "OK 0");
    rig_turn(&rig);
    assert_status(told->request.status, TW_OK);
}

/* Goal: if a lost message may bring a slot back, its release leaves a mark: a statement that was lost, or is not
 * answered in time; a copy of the hold's own request; also a release that found no lane, and is called again. */
LATER_TEST(a_release_leaves_a_mark_where_a_copy_may_come) {
    static struct told told;
    struct twi_hold_member member;
    tw_family_options options = rig_options("h", TW_WINDOW_FOREVER, 0);
    tw_family *family = rig_family_of(&rig, &options);
    prepare(&told, NULL);
    for (int is_lost = 0; is_lost < 2; is_lost++) {
        hold_a_slot(&told, family, false);
        fake_clock_advance_ms(&rig.clock, 6000);
        assert_true(twi_port_hold_due(rig.engine, &member));
        twi_port_holds_sent(rig.engine);
        if (is_lost) twi_port_holds_unsure(rig.engine);
        if (is_lost) twi_port_holds_answered(rig.engine);
        assert_status(tw_hold_release_async(&told.request, family, tw_str("k")), TW_STARTED);
        if (!is_lost) fake_clock_advance_ms(&rig.clock, 6000);
        rig_turn(&rig);
        released_by(&told, "end");
        if (!is_lost) twi_port_holds_answered(rig.engine);
    }
    hold_a_slot(&told, family, true);
    assert_status(tw_hold_release_async(&told.request, family, tw_str("k")), TW_STARTED);
    released_by(&told, "end");
    hold_a_slot(&told, family, false);
    assert_status(tw_hold_release_async(&told.request, family, tw_str("k")), TW_STARTED);
    released_by(&told, "release");
}

/* Redis says in which counter the reservation is. */
static void answer_where(const char *counter) {
    assert_string_equal(later_arg(0, 0), "where");
    later.sync->requests[0].answer.long_text = strdup(counter);
    later.sync->requests[0].answer.long_size = strlen(counter);
    later_answer(0, "OK");
    rig_turn(&rig);
}

/* Goal: a reservation brings its token; confirming asks where it is, then confirms there. */
LATER_TEST(reservations_answer_later) {
    static struct told told;
    tw_family *family = strict_family();
    prepare(&told, NULL);
    char key[] = "k", buyer[] = "you";
    assert_status(tw_reserve_async(&told.request, family, tw_str(key), 1, 3, 0, tw_str(buyer)), TW_ERR_RANGE);
    assert_status(tw_reserve_async(&told.request, family, tw_str(key), 1, 3, 1000, tw_str(buyer)), TW_STARTED);
    assert_string_equal(later_arg(0, 5), "you");
    memset(buyer, 'x', 3);
    later_answer(0, "MORE 0 0 0");
    rig_turn(&rig);
    assert_string_equal(later_arg(0, 5), "you");
    later_answer(0, "OK 1 1 0");
    rig_turn(&rig);
    assert_status(told.request.status, TW_OK);
    char token[TW_TOKEN_SIZE];
    memcpy(token, told.request.token, sizeof token);
    assert_status(tw_reserve_confirm_async(&told.request, rig.engine, token), TW_STARTED);
    later_answer(0, "UNKNOWN");
    rig_turn(&rig);
    assert_status(told.request.status, TW_ERR_UNKNOWN_TOKEN);
    assert_int_equal(told.times, 2);
    assert_status(tw_reserve_confirm_async(&told.request, rig.engine, token), TW_STARTED);
    answer_where("f:k");
    assert_int_equal(later_count(), 1);
    assert_string_equal(later_arg(0, 0), "confirm");
    assert_int_equal(told.times, 2);
    later_answer(0, "OK 1 0 -1");
    rig_turn(&rig);
    assert_int_equal(told.times, 3);
    assert_status(told.request.status, TW_OK);
    assert_status(tw_reserve_cancel_async(NULL, rig.engine, token), TW_STARTED);
    later_answer(0, "UNKNOWN");
    rig_turn(&rig);
    assert_status(tw_reserve_cancel_async(&told.request, rig.engine, "x"), TW_ERR_UNKNOWN_TOKEN);
    assert_int_equal(told.times, 3);
}
