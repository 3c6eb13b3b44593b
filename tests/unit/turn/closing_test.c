/* closing_test.c -- TW_CLOSED_BY_ONE, with Redis played by hand: what is said of a window, in which order, and what
 * each answer does.
 * Covers: engine/turn/closing_election.c, engine/turn/closing_reply.c, engine/turn/closing.c,
 * engine/core/window_map.c. */
#include "tests/unit/hand_driver.h"

#include "engine/turn/closing.h"
#include "engine/turn/rollover.h"
#include "engine/turn/turn.h"

struct told {
    int calls;
    bool answers;
    uint32_t flags, keys;
    int64_t sum, found;
    tw_family *family;
};

static bool see(void *ctx, const tw_count *count) {
    struct told *told = ctx;
    int64_t view = 0;
    told->keys++;
    told->sum += count->view;
    if (count->key.size != 0) assert_status(tw_get_at(told->family, count->key, count->start_ms, &view), TW_OK);
    told->found += count->key.size != 0 ? view : count->view;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct told *told = ctx;
    told->calls++;
    told->flags = flags;
    told->keys = 0;
    told->sum = told->found = 0;
    told->family = family;
    assert_status(tw_each(family, start_ms, see, told), TW_OK);
    return told->answers;
}

static struct told told;
static char logged[1024]; /* the last line about a window that is closed */

static void note_line(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)level;
    if (event == TW_EVENT_CLOSED) snprintf(logged, sizeof logged, "%s", text);
}

static struct rig rig;
static tw_key names[TWI_CLOSING_NAMES_MAX];
static struct twi_closing_message say = {.names = names};

static tw_family_options options_of(void) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.closed_by = TW_CLOSED_BY_ONE;
    options.on_window_closed = on_closed;
    options.closed_ctx = &told;
    return options;
}

static tw_family *open_family(void) {
    memset(&told, 0, sizeof told);
    told.answers = true;
    logged[0] = '\0';
    hand_init(&rig);
    rig.options.log_write = note_line;
    rig_start(&rig);
    twi_port_connected(rig.engine, true);
    tw_family_options options = options_of();
    return rig_family_of(&rig, &options);
}

static void answer_again(void) {
    twi_port_closing_answered(
        rig.engine, &say, &(struct twi_closing_answer){.kind = TWI_CLOSING_REPLY_YOU, .is_repeat = true, .scan = "0"});
}

static void answer(enum twi_closing_kind kind) {
    twi_port_closing_answered(rig.engine, &say, &(struct twi_closing_answer){.kind = kind, .scan = "0"});
}

/* The set of names, with what drain_window() has counted. */
static void answer_names(void) {
    twi_port_closing_name(rig.engine, &say, tw_str("a"));
    answer(TWI_CLOSING_REPLY_YOU);
}

/* The next thing that is said, words apart, which are heard; false: nothing. */
static bool next_say(void) {
    for (int i = 0; i < 100 && twi_port_closing(rig.engine, &say); i++) {
        if (say.verb != TWI_CLOSING_SEND_HEARTBEAT) return true;
        answer(TWI_CLOSING_REPLY_OK);
    }
    return false;
}

static void expect(enum twi_closing_verb verb) {
    rig_pass(&rig, 30);
    assert_true(next_say());
    assert_int_equal(say.verb, verb);
}

/* A word, as the next one would be. */
static void expect_word(void) {
    rig_pass(&rig, 1000);
    assert_true(twi_port_closing(rig.engine, &say));
    assert_int_equal(say.verb, TWI_CLOSING_SEND_HEARTBEAT);
}

static void acknowledge_all(int64_t total) {
    while (hand_collect(100) != 0) {}
    while (hand->count != 0) hand_acknowledge(total);
}

/* Counts and drains one window. */
static void drain_window(tw_family *family) {
    rig_add(family, "a", 5);
    rig_pass(&rig, TW_MINUTE);
    acknowledge_all(5);
    rig_pass(&rig, 30);
}

/* Redis may lack the names, so they come again, with a request for each total. */
static void record_again(size_t keys, int64_t total) {
    rig_pass(&rig, 30);
    assert_i64_equal(hand_collect(100), keys + 1); /* and the overflow counter */
    size_t named = 0;
    for (size_t i = 0; i < hand->count; i++) {
        assert_i64_equal(hand->held[i].delta, 0);
        named += (hand->held[i].flags & TWI_ITEM_NAMED) != 0;
    }
    assert_i64_equal(named, keys);
    while (hand->count != 0) hand_acknowledge(total);
}

/* Redis has lost all data. Returns the item of the only counter, which is sent again. */
static const struct twi_item *forget_and_collect(void) {
    (void)twi_port_restore(rig.engine, 0);
    while (twi_port_restore_some(rig.engine)) {}
    assert_i64_equal(hand_collect(100), 1);
    assert_i64_equal(hand->held[0].units, 5);
    return &hand->held[0];
}

/* What is owed to tw_close(). */
static void close_rig(void) {
    hand->settle_at_turns = true;
    (void)tw_close(rig.engine, 0);
}

/* ---- the tests ---- */

/* Goal: a key brings its name with its first counts. After Redis has lost the names, it brings it again, because the
 * engine that closes the window needs it. */
TEST(names_come_with_first_counts_and_with_restored_ones) {
    tw_family *family = open_family();
    rig_add(family, "a", 3);
    assert_i64_equal(hand_collect(100), 1);
    assert_true((hand->held[0].flags & TWI_ITEM_NAMED) != 0);
    hand_acknowledge(3);
    rig_add(family, "a", 2);
    assert_i64_equal(hand_collect(100), 1);
    assert_false((hand->held[0].flags & TWI_ITEM_NAMED) != 0);
    hand_acknowledge(5);
    assert_true((forget_and_collect()->flags & TWI_ITEM_NAMED) != 0);
    close_rig();
}

/* Goal: the whole way; the hook sees the totals of then, and keys that only others counted, by tw_each() and by
 * tw_get_at(). */
TEST(the_chosen_engine_shows_the_figures_of_all) {
    tw_family *family = open_family();
    drain_window(family);
    expect(TWI_CLOSING_SEND_CLAIM);
    assert_false(say.flag);
    assert_i64_equal(say.start_ms, RIG_START_MS);
    assert_i64_equal(say.end_ms, RIG_START_MS + TW_MINUTE);
    assert_true(say.recorded);
    answer(TWI_CLOSING_REPLY_LIST);
    expect_word();
    assert_int_equal(say.end_count, 1); /* until its names are there it holds the others up */
    answer(TWI_CLOSING_REPLY_OK);
    assert_false(next_say());
    record_again(1, 5);
    expect(TWI_CLOSING_SEND_CLAIM);
    assert_true(say.flag);
    assert_false(say.through);
    assert_int_equal(say.end_count, 1);
    answer(TWI_CLOSING_REPLY_WAIT);
    expect(TWI_CLOSING_SEND_CLAIM); /* at once: the others may have waited for this engine alone */
    assert_true(say.through);
    assert_int_equal(say.end_count, 0);
    answer(TWI_CLOSING_REPLY_WAIT);
    assert_false(next_say());
    rig_pass(&rig, 200);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_YOU);
    expect(TWI_CLOSING_SEND_READ);
    for (int i = 0; i < 300; i++) { /* some come twice */
        char name[16];
        snprintf(name, sizeof name, "other-%d", i % 200);
        twi_port_closing_name(rig.engine, &say, tw_str(name));
    }
    twi_port_closing_name(rig.engine, &say, tw_str("a"));
    answer(TWI_CLOSING_REPLY_YOU);
    rig_pass(&rig, 30);
    assert_i64_equal(told.calls, 0);
    assert_i64_equal(hand_collect(1000), 202); /* and the overflow counter */
    for (size_t i = 0; i < hand->count; i++) assert_i64_equal(hand->held[i].delta, 0);
    while (hand->count != 0) hand_acknowledge(7);
    rig_pass(&rig, 30);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.flags, 0);
    assert_i64_equal(told.keys, 202);
    assert_i64_equal(told.sum, 202 * 7);
    assert_i64_equal(told.found, 202 * 7);
    expect(TWI_CLOSING_SEND_DONE);
    answer(TWI_CLOSING_REPLY_RESEND);
    rig_pass(&rig, 200);
    expect(TWI_CLOSING_SEND_DONE);
    answer(TWI_CLOSING_REPLY_DONE);
    rig_pass(&rig, 1000);
    assert_false(next_say());
    assert_i64_equal(told.calls, 1);
    int64_t view;
    assert_status(tw_get_at(family, tw_str("other-7"), RIG_START_MS, &view), TW_OK); /* by what was packed of it */
    assert_i64_equal(view, 7);
    close_rig();
}

/* Goal: what another has closed is not told here; and every answer but YOU calls nobody. */
TEST(what_another_closes_is_not_told_here) {
    tw_family *family = open_family();
    drain_window(family);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_OTHER);
    rig_pass(&rig, 1000);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_REFUSED);
    rig_pass(&rig, 1000);
    assert_false(next_say());
    rig_pass(&rig, 4000);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_DONE);
    rig_pass(&rig, 5000);
    assert_false(next_say());
    assert_i64_equal(told.calls, 0);
    close_rig();
}

/* Goal: under a claim that is too old nothing is told. It is renewed first, and if another has it by then, it is
 * his. */
TEST(an_old_claim_calls_no_hook) {
    tw_family *family = open_family();
    drain_window(family);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_YOU);
    expect(TWI_CLOSING_SEND_READ);
    answer_names();
    rig_pass(&rig, 30);
    fake_clock_advance_ms(&rig.clock, 16000); /* it slept */
    acknowledge_all(9);
    rig_pass(&rig, 30);
    assert_i64_equal(told.calls, 0);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_OTHER);
    rig_pass(&rig, 1000);
    assert_i64_equal(told.calls, 0);
    expect(TWI_CLOSING_SEND_CLAIM); /* it has died */
    answer(TWI_CLOSING_REPLY_YOU);
    expect(TWI_CLOSING_SEND_READ);
    answer_names();
    rig_pass(&rig, 30);
    acknowledge_all(11);
    rig_pass(&rig, 30);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.sum, 22);
    expect(TWI_CLOSING_SEND_DONE);
    answer(TWI_CLOSING_REPLY_DONE);
    close_rig();
}

/* Goal: while the hook answers false the claim is renewed; after the wait another may try. */
TEST(a_hook_that_refuses_keeps_its_claim_for_a_while) {
    tw_family *family = open_family();
    told.answers = false;
    drain_window(family);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_YOU);
    expect(TWI_CLOSING_SEND_READ);
    answer_names();
    rig_pass(&rig, 30);
    acknowledge_all(5);
    rig_pass(&rig, 30);
    assert_i64_equal(told.calls, 1);
    for (int tenth = 0; tenth < 600; tenth++) { /* of a second; it has been chosen less than one before */
        rig_pass(&rig, 100);
        bool is_last = tenth == 599, renews = tenth % 100 == 0; /* a claim lives for 30 s, and is renewed every 10 */
        assert_i64_equal(told.calls, 2 + tenth);
        assert_int_equal(next_say(), renews || is_last);
        if (renews) assert_int_equal(say.verb, TWI_CLOSING_SEND_CLAIM);
        if (is_last) assert_int_equal(say.verb, TWI_CLOSING_SEND_PASS);
        if (renews || is_last) answer(renews ? TWI_CLOSING_REPLY_YOU : TWI_CLOSING_REPLY_OK);
    }
    rig_pass(&rig, 4000);
    assert_false(next_say());
    rig_pass(&rig, 1000);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_DONE);
    close_rig();
}

/* Goal: an engine says that it delays what it may still count in and what it has not drained, and nothing else. */
TEST(a_word_says_what_is_held_up) {
    tw_family *family = open_family();
    expect_word();
    assert_true(say.floor_ms <= RIG_START_MS + 1000);
    assert_false(say.known);
    answer(TWI_CLOSING_REPLY_OK);
    int64_t first_ms = RIG_START_MS + TW_MINUTE;
    rig_add(family, "a", 1);
    rig_pass(&rig, TW_MINUTE); /* sealed, not drained */
    expect_word();
    assert_true(say.known);
    assert_true(say.floor_ms >= first_ms);
    assert_int_equal(say.end_count, 1);
    assert_i64_equal(say.ends_ms[0], first_ms);
    answer(TWI_CLOSING_REPLY_OK);
    for (int i = 1; i < 20; i++) { /* more than can be listed: the earliest are */
        rig_add(family, "a", 1);
        rig_pass(&rig, TW_MINUTE);
    }
    expect_word();
    assert_int_equal(say.end_count, TWI_CLOSING_ENDS_MAX);
    for (uint32_t i = 0; i < TWI_CLOSING_ENDS_MAX; i++) assert_i64_equal(say.ends_ms[i], first_ms + i * TW_MINUTE);
    assert_i64_equal(say.floor_ms, first_ms + TWI_CLOSING_ENDS_MAX * TW_MINUTE - 1);
    answer(TWI_CLOSING_REPLY_OK);
    close_rig();
}

/* Goal: nothing heard for a minute: local figures, once. Heard, but not drained: no hook, whatever time passes. */
TEST(without_redis_the_hook_gets_what_is_known_here) {
    tw_family *family = open_family();
    rig_add(family, "a", 5);
    rig_pass(&rig, TW_MINUTE);
    for (int i = 0; i < 50; i++) { /* Redis answers */
        rig_pass(&rig, 1000);
        (void)next_say();
    }
    assert_i64_equal(told.calls, 0);
    for (int i = 0; i < 58; i++) rig_pass(&rig, 1000);
    assert_i64_equal(told.calls, 0);
    for (int i = 0; i < 3; i++) rig_pass(&rig, 1000);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.flags, TW_CLOSED_LOCAL);
    assert_i64_equal(told.sum, 5);
    acknowledge_all(9);
    rig_pass(&rig, 1000);
    assert_false(next_say());
    assert_i64_equal(told.calls, 1);
    close_rig();
}

/* Goal: a Redis that forgot us is told again what it was told: names, and windows that were closed; and nobody tells on
 * an earlier claim. */
TEST(a_redis_that_forgot_is_told_again) {
    tw_family *family = open_family();
    drain_window(family);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_DONE); /* one that is closed */
    drain_window(family);
    expect(TWI_CLOSING_SEND_CLAIM);
    answer(TWI_CLOSING_REPLY_YOU);
    expect(TWI_CLOSING_SEND_READ);
    answer(TWI_CLOSING_REPLY_NEW);
    record_again(1, 5);
    rig_pass(&rig, 200);
    assert_i64_equal(told.calls, 0);
    bool again = false, asked = false;
    while (next_say()) {
        if (say.verb == TWI_CLOSING_SEND_DONE) {
            assert_i64_equal(say.start_ms, RIG_START_MS);
            assert_null(say.election);
            again = true;
            answer(TWI_CLOSING_REPLY_DONE);
        } else {
            assert_int_equal(say.verb, TWI_CLOSING_SEND_CLAIM);
            assert_int_equal(say.through, asked); /* after the first answer it holds nobody up */
            asked = true;
            answer(TWI_CLOSING_REPLY_WAIT);
        }
    }
    assert_true(again && asked);
    close_rig();
}

/* Goal: Redis has forgotten batches of an open window. Before the window is closed, the names come again, once; while
 * it is open, a known key costs no name. If the names do not arrive in time, this engine holds nobody up for ever, and
 * is heard when they have arrived. */
TEST(forgotten_batches_bring_their_names_again) {
    for (int late = 0; late < 2; late++) {
        tw_family *family = open_family();
        rig_add(family, "a", 5);
        acknowledge_all(5);
        twi_port_forgotten(rig.engine, 0);
        rig_add(family, "a", 2);
        assert_i64_equal(hand_collect(100), 1);
        assert_false((hand->held[0].flags & TWI_ITEM_NAMED) != 0);
        hand_acknowledge(7);
        rig_pass(&rig, TW_MINUTE);
        rig_pass(&rig, 30);
        assert_i64_equal(hand_collect(100), 2);
        for (int i = 0; late && i < 60; i++) { /* Redis answers heartbeats */
            assert_false(next_say());
            rig_pass(&rig, 1000);
        }
        if (!late) acknowledge_all(7);
        expect(TWI_CLOSING_SEND_CLAIM);
        assert_true(say.flag);
        assert_false(say.through);
        answer(TWI_CLOSING_REPLY_DONE);
        rig_pass(&rig, 1000);
        assert_false(next_say());
        if (late) {
            acknowledge_all(7);
            rig_pass(&rig, 30);
            record_again(1, 7);
            expect(TWI_CLOSING_SEND_CLAIM);
            assert_false(say.through);
            answer(TWI_CLOSING_REPLY_DONE);
        }
        rig_pass(&rig, 1000);
        assert_false(next_say());
        close_rig();
    }
}

/* Goal: who leaves in mid-window says that it has no more counts, and tells only if nobody else is there; then it says
 * that it is gone. */
TEST(who_leaves_in_mid_window_asks_whether_it_is_the_last) {
    for (int last = 0; last < 2; last++) {
        tw_family *family = open_family();
        rig_add(family, "a", 5);
        acknowledge_all(5);
        (void)next_say();
        twi_port_connected(rig.engine, true);
        twi_rollover_begin_end(rig.engine); /* what tw_close() does, turn by turn */
        rig_run_turn(rig.engine);
        rig_run_turn(rig.engine);
        assert_true(next_say());
        assert_int_equal(say.verb, TWI_CLOSING_SEND_LIST);
        answer(TWI_CLOSING_REPLY_OK);
        assert_true(next_say());
        assert_int_equal(say.verb, TWI_CLOSING_SEND_LAST);
        answer(last ? TWI_CLOSING_REPLY_YOU : TWI_CLOSING_REPLY_OTHER);
        if (last) {
            assert_true(next_say());
            assert_int_equal(say.verb, TWI_CLOSING_SEND_READ);
            answer_names();
            rig_run_turn(rig.engine);
            acknowledge_all(5);
        }
        for (int i = 0; i < 4; i++) rig_run_turn(rig.engine);
        assert_i64_equal(told.calls, last);
        if (last) {
            assert_i64_equal(told.flags, TW_CLOSED_PARTIAL);
            assert_true(next_say()); /* so that whoever closes it later knows that it was told before */
            assert_int_equal(say.verb, TWI_CLOSING_SEND_PARTIAL);
            answer(TWI_CLOSING_REPLY_OK);
            rig_run_turn(rig.engine);
        }
        assert_false(twi_closing_is_over(rig.engine));
        assert_true(next_say());
        assert_int_equal(say.verb, TWI_CLOSING_SEND_LEAVE);
        answer(TWI_CLOSING_REPLY_OK);
        assert_true(twi_closing_is_over(rig.engine));
        assert_false(next_say());
        close_rig();
    }
}

static void lose_connection(void) {
    answer(TWI_CLOSING_REPLY_RESEND);
}

/* Goal: out of time, tw_close() tells the known state here, unless another has claimed it; an answer that is under way
 * harms nobody. */
TEST(out_of_time_the_hook_gets_local_figures) {
    for (int claimed = 0; claimed < 2; claimed++) {
        tw_family *family = open_family();
        drain_window(family);
        expect(TWI_CLOSING_SEND_CLAIM);
        if (claimed) answer(TWI_CLOSING_REPLY_OTHER);
        if (!claimed) hand->at_destroy = lose_connection;
        assert_status(tw_close(rig.engine, 0), TW_OK);
        assert_i64_equal(told.calls, 1 - claimed);
        if (!claimed) assert_i64_equal(told.flags, TW_CLOSED_LOCAL);
    }
}

/* Goal: a family that is closed in mid-window says that it has no more counts, leaves it to others or tells it as cut
 * short, says that it is gone, and goes. */
TEST(a_family_that_goes_leaves_its_names) {
    for (int last = 0; last < 2; last++) {
        tw_family *family = open_family();
        twi_port_connected(rig.engine, true);
        rig_add(family, "a", 5);
        (void)next_say();
        assert_status(tw_family_close(family), TW_OK);
        rig_pass(&rig, 30);
        acknowledge_all(5);
        expect(TWI_CLOSING_SEND_LIST);
        answer(TWI_CLOSING_REPLY_OK);
        expect(TWI_CLOSING_SEND_LAST);
        answer(last ? TWI_CLOSING_REPLY_YOU : TWI_CLOSING_REPLY_OTHER);
        if (last) {
            expect(TWI_CLOSING_SEND_READ);
            answer_names();
            rig_pass(&rig, 30);
            acknowledge_all(5);
            expect(TWI_CLOSING_SEND_PARTIAL);
            answer(TWI_CLOSING_REPLY_OK);
        }
        rig_pass(&rig, 30);
        expect(TWI_CLOSING_SEND_LEAVE);
        assert_non_null(twi_load_relaxed(&rig.engine->roster.first));
        answer(TWI_CLOSING_REPLY_OK);
        rig_pass(&rig, 1000);
        rig_pass(&rig, 1000);
        assert_null(twi_load_relaxed(&rig.engine->roster.first));
        assert_i64_equal(told.calls, last);
        if (last) assert_i64_equal(told.flags, TW_CLOSED_PARTIAL);
        close_rig();
    }
}

/* Goal: a family that is closed tells windows that are over as ever, and one that is claimed is not lost for a hook
 * that will not have it: after a minute another may. */
TEST(a_family_that_goes_tells_what_is_over) {
    for (int refuses = 0; refuses < 2; refuses++) {
        tw_family *family = open_family();
        twi_port_connected(rig.engine, true);
        told.answers = !refuses;
        drain_window(family);
        assert_status(tw_family_close(family), TW_OK);
        rig_pass(&rig, 30);
        expect(TWI_CLOSING_SEND_CLAIM);
        answer(TWI_CLOSING_REPLY_YOU);
        expect(TWI_CLOSING_SEND_READ);
        answer_names();
        rig_pass(&rig, 30);
        acknowledge_all(5);
        rig_pass(&rig, 30);
        assert_i64_equal(told.calls, 1);
        assert_i64_equal(told.flags, 0);
        for (int i = 0; refuses && i < 700; i++) {
            rig_pass(&rig, 100);
            if (!next_say()) continue;
            if (say.verb == TWI_CLOSING_SEND_PASS) break;
            answer(TWI_CLOSING_REPLY_YOU);
        }
        if (!refuses) expect(TWI_CLOSING_SEND_DONE);
        answer(refuses ? TWI_CLOSING_REPLY_OK : TWI_CLOSING_REPLY_DONE);
        rig_pass(&rig, 30);
        expect(TWI_CLOSING_SEND_LEAVE);
        answer(TWI_CLOSING_REPLY_OK);
        rig_pass(&rig, 1000);
        rig_pass(&rig, 1000);
        assert_null(twi_load_relaxed(&rig.engine->roster.first));
        assert_i64_equal(test_stat_of(rig.engine, windows_untold), refuses);
        assert_string_equal(logged, refuses
                                        ? "no hook was called for a window of family \"f\": its hook returned false "
                                          "until the family had to close; another engine's hook may accept it "
                                          "[TW-E023: let a hook take the window, and Redis the tw:* keys of its names]"
                                        : "");
        close_rig();
    }
}

/* Goal: who leaves while its window still takes late counts tells it as cut short, and only if nobody else continues
 * with it. */
TEST(who_leaves_within_the_lateness_does_not_call_it_final) {
    memset(&told, 0, sizeof told);
    told.answers = true;
    hand_open(&rig);
    tw_family_options options = options_of();
    options.lateness_ms = 20000;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 5);
    rig_pass(&rig, TW_MINUTE + 10000);
    acknowledge_all(5);
    twi_port_connected(rig.engine, true);
    twi_rollover_begin_end(rig.engine);
    rig_run_turn(rig.engine);
    rig_run_turn(rig.engine);
    assert_true(next_say());
    assert_int_equal(say.verb, TWI_CLOSING_SEND_LIST);
    answer(TWI_CLOSING_REPLY_OK);
    assert_true(next_say());
    assert_int_equal(say.verb, TWI_CLOSING_SEND_LAST);
    answer(TWI_CLOSING_REPLY_YOU);
    assert_true(next_say());
    answer_names();
    rig_run_turn(rig.engine);
    acknowledge_all(5);
    rig_run_turn(rig.engine);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.flags, TW_CLOSED_PARTIAL);
    close_rig();
}

/* Goal: a window that was told before, here or elsewhere, is told with TW_CLOSED_AGAIN; also where what made it so came
 * while it was being told. */
TEST(what_was_told_before_is_told_as_such) {
    tw_family *family = open_family();
    drain_window(family);
    expect(TWI_CLOSING_SEND_CLAIM);
    assert_false(say.through);
    answer(TWI_CLOSING_REPLY_YOU);
    expect(TWI_CLOSING_SEND_READ);
    answer_names();
    rig_pass(&rig, 30);
    acknowledge_all(5);
    expect(TWI_CLOSING_SEND_DONE);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.flags, 0);
    answer(TWI_CLOSING_REPLY_LATE);
    expect(TWI_CLOSING_SEND_CLAIM);
    assert_true(say.through);
    answer_again();
    expect(TWI_CLOSING_SEND_READ);
    twi_port_closing_name(rig.engine, &say, tw_str("late"));
    answer(TWI_CLOSING_REPLY_YOU);
    rig_pass(&rig, 30);
    acknowledge_all(9);
    expect(TWI_CLOSING_SEND_DONE);
    assert_i64_equal(told.calls, 2);
    assert_i64_equal(told.flags, TW_CLOSED_AGAIN);
    assert_i64_equal(told.sum, 27); /* the overflow counter, too */
    assert_i64_equal(test_stat_of(rig.engine, windows_again), 1);
    answer(TWI_CLOSING_REPLY_DONE);
    rig_pass(&rig, 1000);
    assert_false(next_say());
    close_rig();
}

/* Goal: who still owes of a window when another has closed it asks for it again when Redis has all, as one that comes
 * too late; and does not where nothing more has come. */
TEST(what_is_sent_after_the_closing_is_told_again) {
    for (int comes = 0; comes < 2; comes++) {
        tw_family *family = open_family();
        rig_add(family, "a", 5);
        rig_add(family, "b", 5);
        rig_pass(&rig, TW_MINUTE);
        while (hand_collect(100) != 0) {}
        for (int i = 0; i < 70; i++) { /* Redis answers, and b is not acknowledged */
            rig_pass(&rig, 1000);
            if (next_say()) break;
        }
        assert_int_equal(say.verb, TWI_CLOSING_SEND_CLAIM);
        answer(TWI_CLOSING_REPLY_DONE);
        rig_pass(&rig, 1000);
        assert_false(next_say());
        while (hand->count != 0) {
            struct twi_item item = hand_pop();
            if (comes)
                twi_port_acknowledge(&item, &(struct twi_reply){.total = 5, .has_total = true});
            else
                twi_port_give_up(&item, TW_LOST_POISON);
        }
        rig_pass(&rig, 1000);
        assert_int_equal(next_say(), comes);
        if (comes) {
            assert_int_equal(say.verb, TWI_CLOSING_SEND_CLAIM);
            assert_false(say.through);
            answer(TWI_CLOSING_REPLY_RESEND);
        }
        assert_i64_equal(told.calls, 0);
        close_rig();
    }
}

/* Goal: who comes first closes what the last one left before its time, with all, though nothing more is counted in it;
 * and takes no start for one that is none of its family's. */
TEST(who_comes_closes_what_was_left) {
    tw_family *family = open_family();
    rig_pass(&rig, 10000);
    expect_word();
    twi_port_closing_window(rig.engine, &say, RIG_START_MS - TW_HOUR);
    twi_port_closing_window(rig.engine, &say, RIG_START_MS);
    twi_port_closing_window(rig.engine, &say, RIG_START_MS + 1);
    twi_port_closing_window(rig.engine, &say, INT64_MIN);
    answer(TWI_CLOSING_REPLY_OK);
    for (int i = 0; i < 2; i++) {
        if (i == 1) { /* it is over by now */
            rig_pass(&rig, TW_MINUTE);
            expect_word();
            twi_port_closing_window(rig.engine, &say, RIG_START_MS);
            answer(TWI_CLOSING_REPLY_OK);
        }
        expect(TWI_CLOSING_SEND_CLAIM);
        assert_i64_equal(say.start_ms, i == 0 ? RIG_START_MS - TW_HOUR : RIG_START_MS);
        answer_again();
        expect(TWI_CLOSING_SEND_READ);
        twi_port_closing_name(rig.engine, &say, tw_str("left"));
        answer(TWI_CLOSING_REPLY_YOU);
        rig_pass(&rig, 30);
        acknowledge_all(4);
        expect(TWI_CLOSING_SEND_DONE);
        answer(TWI_CLOSING_REPLY_DONE);
        assert_i64_equal(told.calls, i + 1);
        assert_i64_equal(told.flags, TW_CLOSED_AGAIN);
        assert_i64_equal(told.sum, 8); /* the overflow counter, too */
    }
    rig_pass(&rig, TW_MINUTE);
    assert_false(next_say());
    assert_i64_equal(rig_get(family, "left"), 0);
    close_rig();
}

/* Goal: an engine without a hook that comes too late says so by its figures. */
TEST(without_a_hook_late_counts_are_counted) {
    memset(&told, 0, sizeof told);
    logged[0] = '\0';
    hand_init(&rig);
    rig.options.log_write = note_line;
    rig_start(&rig);
    twi_port_connected(rig.engine, true);
    tw_family_options options = options_of();
    options.on_window_closed = NULL;
    tw_family *family = rig_family_of(&rig, &options);
    for (int late = 0; late < 2; late++) {
        drain_window(family);
        expect(TWI_CLOSING_SEND_LIST);
        answer(late ? TWI_CLOSING_REPLY_LATE : TWI_CLOSING_REPLY_OK);
        rig_pass(&rig, 1000);
        assert_false(next_say());
        assert_i64_equal(test_stat_of(rig.engine, windows_untold), late);
    }
    assert_string_equal(logged,
                        "no hook was called for a window of family \"f\": counts came after another engine had "
                        "closed it, and this engine has no hook [TW-E023: let a hook take the window, and Redis "
                        "the tw:* keys of its names]");
    close_rig();
}

#define LACKS(why) \
    "the figures of a window of family \"f\" may lack keys: " why \
    " [TW-E023: let a hook take the window, and Redis the tw:* keys of its names]"

/* Goal: figures that may lack keys are flagged, and one line says why. */
TEST(figures_that_may_lack_keys_are_named) {
    for (int fault = 0; fault < 3; fault++) {
        tw_family *family = open_family();
        if (fault == 2) { /* another engine's, which has ended */
            rig_pass(&rig, 10000);
            expect_word();
            twi_port_closing_window(rig.engine, &say, RIG_START_MS - TW_HOUR);
            answer(TWI_CLOSING_REPLY_OK);
        } else {
            drain_window(family);
        }
        expect(TWI_CLOSING_SEND_CLAIM);
        const struct twi_closing_answer yours = {.kind = TWI_CLOSING_REPLY_YOU, .scan = "0", .lacks_names = fault == 1};
        twi_port_closing_answered(rig.engine, &say, &yours);
        expect(TWI_CLOSING_SEND_READ);
        if (fault == 0) twi_port_closing_name(rig.engine, &say, tw_bytes("", 0));
        if (fault == 0) twi_port_closing_name(rig.engine, &say, tw_bytes("", 0));
        answer(TWI_CLOSING_REPLY_YOU);
        for (int i = 0; i < 50 && told.calls == 0; i++) {
            rig_pass(&rig, 30);
            acknowledge_all(5);
            if (next_say()) answer(TWI_CLOSING_REPLY_YOU);
        }
        static const char *const lines[] = {
            LACKS("names of keys that were counted there were lost in Redis"),
            LACKS("counts were announced after it had been closed, and their process is gone"),
            LACKS("it has counts, and Redis has no name of a key")};
        assert_string_equal(logged, lines[fault]);
        assert_i64_equal(told.calls, 1);
        assert_int_equal(told.flags & TW_CLOSED_LOCAL, TW_CLOSED_LOCAL);
        close_rig();
    }
}

/* Goal: without Redis, too, a family that is closed tells its windows, those that are not over as cut short; a hook
 * that answers false is asked for a minute, and what it did not take is counted. */
TEST(a_family_that_goes_without_redis_tells_its_windows) {
    for (int refuses = 0; refuses < 2; refuses++) {
        memset(&told, 0, sizeof told);
        told.answers = !refuses;
        rig_open(&rig);
        tw_family_options options = options_of();
        tw_family *family = rig_family_of(&rig, &options);
        rig_add(family, "a", 5);
        fake_clock_advance_ms(&rig.clock, TW_MINUTE);
        rig_add(family, "a", 7);
        assert_status(tw_family_close(family), TW_OK);
        rig_settle(&rig);
        for (int i = 0; i < 620; i++) rig_pass(&rig, 100);
        assert_null(twi_load_relaxed(&rig.engine->roster.first));
        if (refuses)
            assert_i64_equal(told.calls, 601 + 1); /* the one ten times a second for a minute, then the other */
        if (!refuses) assert_i64_equal(told.calls, 2);
        if (!refuses) assert_i64_equal(told.flags, TW_CLOSED_PARTIAL);
        if (!refuses) assert_i64_equal(told.sum, 7);
        assert_i64_equal(test_stat_of(rig.engine, windows_untold), refuses ? 2 : 0);
        rig_close(&rig);
    }
}

/* Goal: without Redis it is as TW_CLOSED_BY_EACH. */
TEST(without_a_redis_url_it_is_as_by_each) {
    memset(&told, 0, sizeof told);
    told.answers = true;
    rig_open(&rig);
    tw_family_options options = options_of();
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 5);
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(told.calls, 1);
    assert_i64_equal(told.flags, 0);
    assert_i64_equal(told.sum, 5);
    rig_close(&rig);
}

#define MANY 200

/* The family that is due first, by a walk over all. */
static int64_t first_due(tw_family *const *families) {
    int64_t due_ms = INT64_MAX;
    for (int i = 0; i < MANY; i++) {
        const struct twi_family_close_state *closing = &families[i]->turn.closing;
        if (!closing->in_flight && closing->at_ms < due_ms) due_ms = closing->at_ms;
    }
    return due_ms;
}

/* Goal: of many families the one that is due for longest is the next that says something, whatever Redis has answered
 * the others, and one that is not due says nothing. Method: answers at random, against a walk over all. */
TEST(of_many_families_the_one_due_for_longest_is_next) {
    static tw_family *families[MANY];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    families[0] = open_family();
    for (int i = 1; i < MANY; i++) {
        tw_family_options options = options_of();
        char name[16];
        (void)snprintf(name, sizeof name, "f%d", i);
        options.name = name;
        families[i] = rig_family_of(&rig, &options);
    }
    rig_settle(&rig);
    for (int turn = 0; turn < 400; turn++) {
        rig_pass(&rig, 1 + (int64_t)test_prng_below(&prng, 40));
        for (int64_t due_ms; (due_ms = first_due(families)) <= rig.engine->turn.mono_ms;) {
            assert_i64_equal(twi_port_closing_due(rig.engine), due_ms);
            assert_true(twi_port_closing(rig.engine, &say));
            assert_int_equal(say.verb, TWI_CLOSING_SEND_HEARTBEAT);
            assert_true(say.family->turn.closing.in_flight);
            struct twi_closing_answer result = {.kind = test_prng_below(&prng, 4) == 0 ? TWI_CLOSING_REPLY_RESEND
                                                                                       : TWI_CLOSING_REPLY_OK,
                                                .scan = "0",
                                                .every_ms = 1000 + (int64_t)test_prng_below(&prng, 5000)};
            twi_port_closing_answered(rig.engine, &say, &result);
        }
        assert_false(twi_port_closing(rig.engine, &say));
        assert_i64_equal(twi_port_closing_due(rig.engine), first_due(families));
    }
    close_rig();
}
