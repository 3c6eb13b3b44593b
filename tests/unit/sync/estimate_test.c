/* estimate_test.c -- what is learnt of a link, and what follows from it. The link is played: a round trip, a pace, and
 * requests of so many bytes. */
#include "sync/wire/pace.h"

#include "sync/message/state.h"
#include "sync/turn/transfer.h"
#include "tests/support/support.h"

#define TIMEOUT_MS 100
#define WAIT_SLACK_MS 250 /* transfer.c */

static int64_t took_us(int64_t way_us, int64_t bytes_per_s, uint64_t bytes) {
    return way_us + (int64_t)bytes * 1000000 / bytes_per_s;
}

static void note(struct twi_estimate *estimate, int64_t took, uint64_t bytes, int64_t now_us) {
    struct twi_measure measure = {.took_us = took, .bytes = bytes, .is_alone = true};
    twi_estimate_note(estimate, &measure, now_us);
}

static void note_light(struct twi_estimate *estimate, int64_t took, int64_t work_us, int64_t now_us) {
    struct twi_measure measure = {.took_us = took, .work_us = work_us, .bytes = 300, .is_alone = true};
    twi_estimate_note(estimate, &measure, now_us);
}

/* Goal: a Redis that is busy for a while, and a thread that wakes late, are not taken for a long way. The quickest
 * answer counts; Redis's own work is no part of it. */
TEST(the_quickest_answer_tells_the_way) {
    struct twi_estimate estimate = {0};
    assert_i64_equal(twi_estimate_way_us(&estimate), 0);
    note_light(&estimate, 20000, 0, 0);
    note_light(&estimate, 100, 0, 1000000);
    note_light(&estimate, 30000, 0, 2000000);
    assert_i64_equal(twi_estimate_way_us(&estimate), 100);
    note_light(&estimate, 180, 128, 3000000);
    assert_i64_equal(twi_estimate_way_us(&estimate), 180 - 128);
    note_light(&estimate, 50, 128, 3000000); /* a quicker Redis than we reckon with */
    assert_i64_equal(twi_estimate_way_us(&estimate), 1);
}

/* Goal: a way that has become longer is known after ten seconds at most, and not before five; a shorter one at once. */
TEST(a_way_that_became_longer_is_known_in_ten_seconds) {
    for (int64_t offset_ms = 0; offset_ms < 5000; offset_ms += 500) {
        struct twi_estimate estimate = {0};
        int64_t now_ms = 1, known_ms = 0;
        for (; now_ms < 7000 + offset_ms; now_ms += 100) note_light(&estimate, 100, 0, now_ms * 1000);
        for (int64_t since_ms = now_ms; known_ms == 0; now_ms += 100) {
            note_light(&estimate, 5000, 0, now_ms * 1000);
            if (twi_estimate_way_us(&estimate) == 5000) known_ms = now_ms - since_ms + 1;
            assert_true(now_ms - since_ms <= 10000);
        }
        assert_true(known_ms >= 4900);
        note_light(&estimate, 90, 0, now_ms * 1000);
        assert_i64_equal(twi_estimate_way_us(&estimate), 90);
    }
}

/* Goal: where nothing can be timed, for all the time something is under way, what was known stays. After a long silence
 * the next answer is alone. A clock that leaps back is no harm. */
TEST(what_was_known_stays_until_something_is_timed) {
    struct twi_estimate estimate = {0};
    note_light(&estimate, 100, 0, 1);
    assert_i64_equal(twi_estimate_way_us(&estimate), 100); /* an hour later still: nothing here asks for the time */
    note_light(&estimate, 700, 0, INT64_C(3600000000));
    assert_i64_equal(twi_estimate_way_us(&estimate), 700);
    note_light(&estimate, 900, 0, 5);
    assert_true(twi_estimate_way_us(&estimate) >= 700);
}

/* Goal: a host that runs turns every ten milliseconds, and quicker ones while it flushes, is known as far as its turns
 * make it. */
TEST(where_the_host_runs_the_turns_the_latest_answer_tells) {
    struct twi_estimate estimate = {.by_latest = true};
    note_light(&estimate, 100, 0, 1000);
    note_light(&estimate, 10000, 0, 11000);
    assert_i64_equal(twi_estimate_way_us(&estimate), 10000);
    twi_estimate_forget(&estimate);
    assert_i64_equal(twi_estimate_way_us(&estimate), 0);
    assert_true(estimate.by_latest);
}

/* Goal: on every link from 20,000 to a thousand million bytes a second, near and 150 ms away, what may be under way is
 * answered within the time that a reply may take, with room for a link that becomes half as fast; and it is at least
 * what the link carries in a round trip, so that the link is not idle. Method: eight replies, each to as much as was
 * allowed when it was sent, 64 KiB at most. */
TEST(what_may_be_under_way_is_answered_in_time) {
    static const int64_t ways_us[] = {50, 1000, 20000, 150000};
    for (size_t w = 0; w < sizeof ways_us / sizeof *ways_us; w++) {
        for (int64_t rate = 20000; rate < 1000000000; rate += rate / 3) {
            struct twi_estimate estimate = {0};
            int64_t now_us = 1000000;
            note_light(&estimate, ways_us[w], 0, now_us);
            for (int i = 0; i < 8; i++) {
                uint64_t bytes = twi_estimate_bytes(&estimate, TIMEOUT_MS);
                if (bytes > 65536) bytes = 65536;
                int64_t took = took_us(ways_us[w], rate, bytes);
                now_us += took;
                note(&estimate, took, bytes, now_us);
            }
            uint64_t bytes = twi_estimate_bytes(&estimate, TIMEOUT_MS);
            int64_t needs_us = took_us(ways_us[w], rate / 2, bytes);
            assert_true(bytes > TWI_ESTIMATE_BYTES_MIN || rate < 30000);
            assert_true(needs_us <= 1000 * twi_estimate_wait_ms(&estimate, TIMEOUT_MS, bytes, false));
            assert_true((int64_t)bytes >= rate / 1000000 * ways_us[w]);
            assert_in_range(twi_estimate_way_us(&estimate), ways_us[w] / 2, ways_us[w] + 300);
        }
    }
}

/* Goal: keys of a thin link may be many in a batch, since Redis is idle while they travel; those of a fast one may not.
 * It is as near as its round trip says. */
TEST(a_thin_link_is_a_distance) {
    struct twi_estimate thin = {0}, fast = {0};
    note_light(&thin, 200, 0, 1000000);
    note_light(&fast, 200, 0, 1000000);
    assert_i64_equal(twi_estimate_distance_us(&thin), 200);
    note(&thin, took_us(200, 20000, 8192), 8192, 2000000);
    note(&fast, took_us(200, 1000000000, 8192), 8192, 2000000);
    assert_true(twi_estimate_distance_us(&thin) > 40000);
    assert_true(twi_estimate_distance_us(&fast) < 250);
}

/* Goal: each deadline that passes doubles the next one, ten times the configured time at most; a reply ends that. */
TEST(the_deadline_doubles_until_a_reply_comes) {
    struct twi_estimate estimate = {0};
    static const int64_t times[] = {1, 2, 4, 8, 10, 10, 10};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        int64_t wait_ms = twi_estimate_wait_ms(&estimate, TIMEOUT_MS, 300, false);
        assert_in_range(wait_ms, times[i] * TIMEOUT_MS, times[i] * TIMEOUT_MS + 50);
        twi_estimate_timed_out(&estimate, 300, wait_ms);
    }
    for (int i = 0; i < 1000; i++) twi_estimate_timed_out(&estimate, 300, INT64_MAX);
    twi_estimate_forget(&estimate); /* a new connection */
    assert_true(twi_estimate_wait_ms(&estimate, TIMEOUT_MS, 300, false) >= 10 * TIMEOUT_MS);
    twi_estimate_answered(&estimate);
    assert_in_range(twi_estimate_wait_ms(&estimate, TIMEOUT_MS, 300, false), TIMEOUT_MS, TIMEOUT_MS + 50);
    assert_true(twi_estimate_wait_ms(&estimate, TIMEOUT_MS, 300, true) >= 10 * TIMEOUT_MS);
}

/* Goal: a batch that was frozen while the link was fast arrives, though the link has become thin in one direction, so
 * that a greeting does not show it. Method: 256 KiB at 20,000 bytes a second; each try waits as long as it may. */
TEST(a_large_batch_arrives_in_the_end) {
    struct twi_estimate estimate = {0};
    const int64_t needs_ms = 262144 / 20;
    int tries = 0;
    for (; tries < 12; tries++) {
        twi_estimate_forget(&estimate);
        note_light(&estimate, 200, 0, 1000000 * (tries + 1));
        note(&estimate, 300, 5500, 1000000 * (tries + 1)); /* the greeting was quick */
        int64_t wait_ms = twi_estimate_wait_ms(&estimate, TIMEOUT_MS, 262144, false);
        if (wait_ms >= needs_ms) break;
        twi_estimate_timed_out(&estimate, 262144, wait_ms);
    }
    assert_in_range(tries, 2, 8);
    assert_true(twi_estimate_bytes(&estimate, TIMEOUT_MS) < 65536);
}

/* Goal: what deadlines said is forgotten once heavy replies come again: after a while of congestion, or a server that
 * stood still, a fast link is a fast one. Method: three deadlines pass; then replies come within half a millisecond. */
TEST(what_deadlines_said_is_forgotten_as_replies_come) {
    struct twi_estimate estimate = {0};
    for (int i = 1; i < 5; i++) note(&estimate, 400, 8192, 1000000 * i);
    uint64_t bytes = twi_estimate_bytes(&estimate, TIMEOUT_MS);
    int64_t wait_ms = twi_estimate_wait_ms(&estimate, TIMEOUT_MS, 65536, false);
    for (int i = 0; i < 3; i++) twi_estimate_timed_out(&estimate, 8192, 1000);
    assert_true(twi_estimate_bytes(&estimate, TIMEOUT_MS) < bytes / 10);
    twi_estimate_answered(&estimate);
    note(&estimate, 400, 8192, 6000000);
    assert_true(twi_estimate_bytes(&estimate, TIMEOUT_MS) < bytes / 10); /* not at once */
    for (int i = 0; i < 80; i++) note(&estimate, 400, 8192, 6100000 + 20000 * i);
    assert_true(twi_estimate_bytes(&estimate, TIMEOUT_MS) >= bytes);
    assert_true(twi_estimate_wait_ms(&estimate, TIMEOUT_MS, 65536, false) <= wait_ms);
}

/* Goal: one reply that was delayed, by a thread without time, does not make a fast link a thin one. */
TEST(one_late_reply_is_no_thin_link) {
    struct twi_estimate estimate = {0};
    for (int i = 1; i < 5; i++) note(&estimate, 400, 8192, 1000000 * i);
    note(&estimate, 300000, 8192, 6000000);
    assert_true(twi_estimate_bytes(&estimate, TIMEOUT_MS) > 300000);
    assert_true(twi_estimate_distance_us(&estimate) < 250);
}

/* Goal: where redis_timeout_ms is not set, it is four round trips, from 100 ms to 2 s. */
TEST(the_time_of_a_call_follows_the_way) {
    static const struct {
        int64_t way_us;
        uint32_t timeout_ms;
    } table[] = {{150, 100}, {25000, 100}, {25001, 101}, {40000, 160}, {300000, 1200}, {500000, 2000}, {9000000, 2000}};
    struct twi_estimate unknown = {0};
    assert_int_equal(twi_estimate_timeout_ms(&unknown), 100);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct twi_estimate estimate = {0};
        note_light(&estimate, table[i].way_us, 0, 1000000);
        assert_int_equal(twi_estimate_timeout_ms(&estimate), table[i].timeout_ms);
    }
}

/* When the connection is given up, if this request was sent at `sent_ms` and has no reply. */
static int64_t given_up_ms(enum twi_command command, int64_t sent_ms) {
    static struct twi_connection connection;
    memset(&connection, 0, sizeof connection);
    connection.timeout_ms = TIMEOUT_MS;
    connection.phase = TWI_UP;
    connection.pipeline.count = 1;
    connection.pipeline.pending[0] = (struct twi_pending){.command = command, .sent_ms = sent_ms};
    return twi_transfer_deadline_ms(&connection);
}

/* Goal: Redis looks ten times a second for a WAIT whose time is over. So its reply may come later than any other. */
TEST(the_reply_to_a_wait_may_be_late) {
    assert_i64_equal(given_up_ms(TWI_BATCH, 5000), 5000 + TIMEOUT_MS);
    assert_i64_equal(given_up_ms(TWI_MESSAGE, 5000), 5000 + TIMEOUT_MS);
    assert_i64_equal(given_up_ms(TWI_WAIT, 5000), 5000 + TIMEOUT_MS + WAIT_SLACK_MS);
    assert_i64_equal(given_up_ms(TWI_MESSAGE_WAIT, 5000), 5000 + TIMEOUT_MS + WAIT_SLACK_MS);
}
