/* offset_test.c -- twi_settle_clock(): what the engine takes for the difference between Redis's clock and its own. */
#include "tests/support/support.h"

#include "sync/message/connection.h"
#include "sync/turn/settle.h"

#define START_MS INT64_C(1700000000000)

static tw_engine *engine;
static int open_engine(void **state) {
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    return tw_open(&options, &engine);
}
static int close_engine(void **state) {
    return tw_close(engine, 0);
}

static int64_t hear(struct twi_connection *connection, int64_t sent_ms, int64_t rtt_ms, int64_t redis_minus_ours_ms) {
    struct twi_pending pending = {.sent_ms = sent_ms, .wall_ms = START_MS + sent_ms};
    twi_settle_clock(connection, &pending, pending.wall_ms + rtt_ms / 2 + redis_minus_ours_ms, sent_ms + rtt_ms);
    assert_i64_equal(test_stat_of(engine, redis_clock_offset_ms), connection->clock.offset_ms);
    return connection->clock.offset_ms;
}

TEST(the_quickest_answer_of_a_minute_counts) {
    struct twi_connection connection = {.engine = engine};
    assert_i64_equal(hear(&connection, 1000, 20, 500), 500);
    assert_i64_equal(hear(&connection, 2000, 200, 580), 500);
    assert_i64_equal(hear(&connection, 3000, 4, 503), 503);
    assert_i64_equal(hear(&connection, 50000, 200, 580), 503);
    assert_i64_equal(hear(&connection, 64000, 200, 580), 580);
}

/* Goal: ends of lives follow this difference; one that a clock's step has made wrong must not be trusted for a
 * minute. */
TEST(a_clock_that_was_set_is_believed_at_once) {
    const int64_t steps_ms[] = {-TW_DAY, -TW_HOUR, -2000, 2000, TW_HOUR, TW_DAY};
    for (size_t i = 0; i < sizeof steps_ms / sizeof *steps_ms; i++) {
        struct twi_connection connection = {.engine = engine};
        assert_i64_equal(hear(&connection, 1000, 2, 500), 500);
        assert_i64_equal(hear(&connection, 2000, 100, 500 + steps_ms[i]), 500 + steps_ms[i]);
        assert_i64_equal(hear(&connection, 3000, 3000, 500 + steps_ms[i] + 1400), 500 + steps_ms[i]); /* only slow */
    }
}

int main(void) {
    return test_run_with(open_engine, close_engine);
}
