/* limit_stats_test.c -- the limit statistics of each family in the metrics text, and their sums in tw_stats.
 * Covers: engine/limit/acquire.c. */
#include "tests/unit/hand_driver.h"

#include "engine/core/window_map.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static struct text {
    char bytes[65536];
    size_t size, pieces, stop_after;
} text;

static bool write_text(void *ctx, const char *bytes, size_t size) {
    assert_true(text.size + size < sizeof text.bytes);
    memcpy(text.bytes + text.size, bytes, size);
    text.size += size;
    text.bytes[text.size] = '\0';
    return ++text.pieces != text.stop_after;
}

static tw_status scrape(struct rig *rig, size_t stop_after) {
    text = (struct text){.stop_after = stop_after};
    return tw_metrics_write(rig->engine, TW_METRICS_OPENMETRICS, write_text, NULL);
}

/* True: the text has that line. */
static bool has(const char *line) {
    char framed[300];
    snprintf(framed, sizeof framed, "\n%s\n", line);
    return strstr(text.bytes, framed) != NULL;
}

static void take(tw_family *family, int calls, int64_t limit, tw_status last) {
    tw_status status = TW_OK;
    for (int i = 0; i < calls; i++) status = tw_acquire(family, tw_str("k"), 1, limit, NULL);
    assert_status(status, last);
}

TEST(each_family_has_figures_of_its_own) {
    struct rig rig;
    rig_open(&rig);
    tw_family *plain = rig_family(&rig, "plain", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family_options options = rig_options("a.shadow", TW_WINDOW_ALIGNED, TW_HOUR);
    options.shadow = true;
    tw_family *shadow = rig_family_of(&rig, &options);
    options = rig_options("paced", TW_WINDOW_ALIGNED, TW_HOUR);
    options.limit_shape = TW_SHAPE_GCRA;
    tw_family *paced = rig_family_of(&rig, &options);
    rig_add(rig_family(&rig, "counts-only", TW_WINDOW_ALIGNED, TW_HOUR), "k", 1);
    take(plain, 12, 10, TW_DENIED);
    take(shadow, 13, 10, TW_OK);
    take(paced, 7, 5, TW_DENIED);
    assert_status(tw_acquire(plain, tw_str("k"), 0, 10, NULL), TW_OK); /* a look is no call of a limit */
    assert_status(scrape(&rig, 0), TW_OK);
    assert_true(has("# TYPE tallywheel_family_limit_admitted counter"));
    assert_true(has("tallywheel_family_limit_admitted_total{family=\"a.shadow\"} 10\n"
                    "tallywheel_family_limit_admitted_total{family=\"paced\"} 5\n"
                    "tallywheel_family_limit_admitted_total{family=\"plain\"} 10"));
    assert_true(has("tallywheel_family_limit_denied_total{family=\"a.shadow\",cause=\"limit\"} 3"));
    assert_true(has("tallywheel_family_limit_denied_total{family=\"paced\",cause=\"limit\"} 2"));
    assert_true(has("tallywheel_family_limit_denied_total{family=\"plain\",cause=\"limit\"} 2"));
    assert_true(has("tallywheel_family_limit_near_total{family=\"a.shadow\"} 3\n"
                    "tallywheel_family_limit_near_total{family=\"paced\"} 2\n"
                    "tallywheel_family_limit_near_total{family=\"plain\"} 3"));
    assert_true(has("tallywheel_family_limit_shadow_denied_total{family=\"a.shadow\"} 3\n"
                    "tallywheel_family_limit_shadow_denied_total{family=\"paced\"} 0\n"
                    "tallywheel_family_limit_shadow_denied_total{family=\"plain\"} 0"));
    assert_null(strstr(text.bytes, "counts-only"));
    assert_i64_equal(test_stat_of(rig.engine, limit_admitted), 25);
    assert_i64_equal(test_stat_of(rig.engine, limit_denied), 7);
    assert_i64_equal(test_stat_of(rig.engine, limit_near), 8);
    assert_i64_equal(test_stat_of(rig.engine, limit_shadow_denied), 3);
    rig_close(&rig);
}

static void assert_denied(const char *family, const char *cause, int64_t count) {
    char line[200];
    snprintf(line, sizeof line, "tallywheel_family_limit_denied_total{family=\"%s\",cause=\"%s\"} %lld", family, cause,
             (long long)count);
    if (!has(line)) fail_msg("there is no line %s", line);
}

/* Goal: each call that is not admitted is counted once, under its cause, whichever call it was. All of them together
 * are the engine's figure. */
TEST(denials_are_counted_by_their_cause) {
    static const uint32_t shapes[] = {TW_SHAPE_FIXED, TW_SHAPE_SLIDING, TW_SHAPE_GCRA};
    static const char *const names[] = {"fixed", "sliding", "rate"};
    struct rig rig;
    rig_open(&rig);
    for (int i = 0; i < 3; i++) {
        tw_family_options options = rig_options(names[i], TW_WINDOW_ALIGNED, TW_HOUR);
        options.limit_shape = shapes[i];
        options.keys_max = 1;
        options.on_full_limit = TW_FULL_LIMIT_DENY;
        tw_family *family = rig_family_of(&rig, &options);
        const tw_claim full = {family, tw_str("b"), 1, 5}, never = {family, tw_str("k"), 6, 5};
        take(family, 6, 5, TW_DENIED);
        take(family, 0, 5, TW_OK);
        assert_status(tw_acquire(family, tw_str("k"), 6, 5, NULL), TW_DENIED);
        assert_status(tw_acquire(family, tw_str("new"), 6, 5, NULL), TW_DENIED);
        assert_status(tw_acquire_all(&never, 1, NULL), TW_DENIED);
        assert_status(tw_acquire(family, tw_str("b"), 1, 5, NULL), TW_ERR_FULL);
        assert_status(tw_acquire_all(&full, 1, NULL), TW_ERR_FULL);
        assert_status(tw_acquire(family, tw_str("k"), -1, 5, NULL), TW_ERR_RANGE);
    }
    tw_family_options options = rig_options("sale", TW_WINDOW_FOREVER, 0);
    options.keys_max = 1;
    tw_family *sale = rig_family_of(&rig, &options);
    char token[TW_TOKEN_SIZE];
    tw_key ann = tw_str("ann"), bob = tw_str("bob");
    assert_status(tw_reserve(sale, tw_str("k"), 4, 5, 60000, ann, token, NULL), TW_OK);
    assert_status(tw_reserve(sale, tw_str("k"), 1, 5, 60000, ann, token, NULL), TW_DENIED);
    assert_status(tw_reserve(sale, tw_str("k"), 2, 5, 60000, bob, token, NULL), TW_DENIED);
    assert_status(tw_reserve(sale, tw_str("b"), 1, 5, 60000, bob, token, NULL), TW_ERR_FULL);
    assert_status(tw_hold(sale, tw_str("b"), 1, NULL), TW_ERR_FULL);
    assert_status(scrape(&rig, 0), TW_OK);
    for (int i = 0; i < 3; i++) {
        assert_denied(names[i], "limit", 1);
        assert_denied(names[i], "never", 3);
        assert_denied(names[i], "full", 2);
        assert_denied(names[i], "share", 0);
        assert_denied(names[i], "buyer", 0);
    }
    assert_denied("sale", "buyer", 1);
    assert_denied("sale", "limit", 1);
    assert_denied("sale", "full", 2);
    assert_i64_equal(test_stat_of(rig.engine, limit_denied), 3 * 6 + 4);
    rig_close(&rig);
}

/* Goal: a call that a full table admits is counted as that, once, whichever call it was, and not as admitted. What must
 * be counted is denied. */
TEST(calls_that_a_full_table_admits_are_counted_apart) {
    static const uint32_t shapes[] = {TW_SHAPE_FIXED, TW_SHAPE_SLIDING, TW_SHAPE_GCRA};
    static const char *const names[] = {"fixed", "sliding", "rate"};
    struct rig rig;
    char line[200];
    rig_open(&rig);
    tw_family *plenty = rig_family(&rig, "plenty", TW_WINDOW_ALIGNED, TW_HOUR);
    for (int i = 0; i < 3; i++) {
        tw_family_options options = rig_options(names[i], TW_WINDOW_ALIGNED, TW_HOUR);
        options.limit_shape = shapes[i];
        options.keys_max = 1;
        tw_family *family = rig_family_of(&rig, &options);
        const tw_claim claims[] = {{family, tw_str("b"), 1, 5}, {plenty, tw_str(names[i]), 1, 1}};
        assert_status(tw_acquire(family, tw_str("k"), 1, 5, NULL), TW_OK);
        assert_status(tw_acquire(family, tw_str("b"), 1, 5, NULL), TW_OK);
        assert_status(tw_acquire(family, tw_str("b"), 0, 5, NULL), TW_OK); /* a look */
        assert_status(tw_acquire_all(claims, 2, NULL), TW_OK);
        assert_status(tw_acquire_all(claims, 2, NULL), TW_DENIED); /* the other limit is spent */
    }
    tw_family_options options = rig_options("sale", TW_WINDOW_FOREVER, 0);
    options.keys_max = 1;
    tw_family *sale = rig_family_of(&rig, &options);
    char token[TW_TOKEN_SIZE];
    assert_status(tw_reserve(sale, tw_str("k"), 4, 5, 60000, tw_str("ann"), token, NULL), TW_OK);
    assert_status(tw_reserve(sale, tw_str("b"), 1, 5, 60000, tw_str("bob"), token, NULL), TW_ERR_FULL);
    assert_status(tw_hold(sale, tw_str("b"), 1, NULL), TW_ERR_FULL);
    assert_status(tw_acquire(sale, tw_str("b"), 1, 5, NULL), TW_OK); /* only the calls before must be counted */
    assert_status(scrape(&rig, 0), TW_OK);
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "tallywheel_family_limit_uncounted_total{family=\"%s\"} 2", names[i]);
        if (!has(line)) fail_msg("there is no line %s", line);
        snprintf(line, sizeof line, "tallywheel_family_limit_admitted_total{family=\"%s\"} 1", names[i]);
        if (!has(line)) fail_msg("there is no line %s", line);
    }
    assert_true(has("tallywheel_family_limit_uncounted_total{family=\"plenty\"} 0"));
    assert_true(has("tallywheel_family_limit_uncounted_total{family=\"sale\"} 1"));
    assert_denied("sale", "full", 2);
    assert_i64_equal(test_stat_of(rig.engine, limit_admitted), 3 + 3 + 1);
    rig_close(&rig);
}

TEST(the_engine_keeps_the_figures_of_a_family_that_was_closed) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    take(family, 12, 10, TW_DENIED);
    int64_t increments = test_stat_of(rig.engine, increments);
    assert_i64_equal(increments, 10);
    assert_status(tw_family_close(family), TW_OK);
    assert_i64_equal(test_stat_of(rig.engine, limit_admitted), 10); /* the turn has not seen it yet */
    family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    take(family, 1, 10, TW_OK);
    assert_status(scrape(&rig, 0), TW_OK);
    assert_true(has("tallywheel_family_limit_admitted_total{family=\"f\"} 1"));
    for (int i = 0; i < 1000 && twi_load_relaxed(&family->entry.next) != NULL; i++) rig_pass(&rig, TW_SECOND);
    assert_null(twi_load_relaxed(&family->entry.next)); /* the closed family is gone */
    assert_i64_equal(test_stat_of(rig.engine, limit_admitted), 11);
    assert_i64_equal(test_stat_of(rig.engine, limit_denied), 2);
    assert_i64_equal(test_stat_of(rig.engine, limit_near), 3);
    assert_i64_equal(test_stat_of(rig.engine, increments), 11);
    rig_close(&rig);
}

static void assert_figures(struct rig *rig, int64_t admitted, int64_t near, int64_t denied, int64_t shadow_denied) {
    assert_i64_equal(test_stat_of(rig->engine, limit_admitted), admitted);
    assert_i64_equal(test_stat_of(rig->engine, increments), admitted);
    assert_i64_equal(test_stat_of(rig->engine, limit_near), near);
    assert_i64_equal(test_stat_of(rig->engine, limit_denied), denied);
    assert_i64_equal(test_stat_of(rig->engine, limit_shadow_denied), shadow_denied);
}

/* Goal: of claims that are made together, only those that stay are counted. A claim that was put back was never
 * admitted. */
TEST(a_claim_that_is_put_back_was_not_admitted) {
    for (uint32_t shape = TW_SHAPE_FIXED; shape <= TW_SHAPE_GCRA; shape++) {
        struct rig rig;
        rig_open(&rig);
        tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
        options.limit_shape = shape;
        tw_family *family = rig_family_of(&rig, &options);
        options = rig_options("s", TW_WINDOW_ALIGNED, TW_HOUR);
        options.shadow = true;
        tw_family *shadow = rig_family_of(&rig, &options);
        const tw_claim twice[] = {{family, tw_str("a"), 6, 10}, {family, tw_str("a"), 6, 10}};
        assert_status(tw_acquire_all(twice, 2, NULL), TW_DENIED); /* the first is taken, and put back */
        assert_figures(&rig, 0, 0, 1, 0);
        const tw_claim both[] = {
            {family, tw_str("a"), 9, 10}, {family, tw_str("b"), 1, 10}, {family, tw_str("c"), 0, 1}};
        assert_status(tw_acquire_all(both, 3, NULL), TW_OK);
        assert_figures(&rig, 2, 1, 1, 0);
        const tw_claim over[] = {{shadow, tw_str("a"), 2, 1}, {family, tw_str("b"), 1, 10}};
        assert_status(tw_acquire_all(over, 2, NULL), TW_OK);
        assert_figures(&rig, 3, 1, 2, 1);
        const tw_claim none[] = {{shadow, tw_str("a"), 2, 1}, {family, tw_str("a"), 5, 10}};
        assert_status(tw_acquire_all(none, 2, NULL), TW_DENIED);
        assert_i64_equal(test_stat_of(rig.engine, limit_shadow_denied), 1); /* not let through */
        assert_status(tw_acquire(family, tw_str("b"), 1, 10, NULL), TW_OK);
        assert_i64_equal(test_stat_of(rig.engine, limit_admitted), 4);
        rig_close(&rig);
    }
}

TEST(a_writer_may_end_the_text_at_any_piece) {
    struct rig rig;
    rig_open(&rig);
    take(rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR), 1, 10, TW_OK);
    take(rig_family(&rig, "g", TW_WINDOW_ALIGNED, TW_HOUR), 1, 10, TW_OK);
    assert_status(scrape(&rig, 0), TW_OK);
    size_t pieces = text.pieces;
    for (size_t stop = 1; stop <= pieces; stop++) {
        assert_status(scrape(&rig, stop), TW_DENIED);
        assert_i64_equal(text.pieces, stop);
    }
    rig_close(&rig);
}

/* ---- by how much a limit was passed ---- */

#define NAME "tallywheel_family_limit_overshoot_ratio"

static void hand_turns(struct rig *rig, int64_t ms) {
    fake_clock_advance_ms(&rig->clock, ms);
    for (int i = 0; i < 10; i++) rig_turn(rig);
}

static size_t hand_collect_near(void) {
    size_t count = twi_port_collect_near_limit(hand->engine, hand->held + hand->count);
    hand->count += count;
    return count;
}

static tw_family *open_minutes(struct rig *rig) {
    hand_open(rig);
    hand_live(rig, 1);
    return rig_family(rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
}

/* Redis acknowledges all that was counted, and the window ends. */
static void end_window(struct rig *rig) {
    while (hand_collect(1) != 0) {
        struct twi_item item = hand_pop();
        struct twi_reply answer = {.total = item.delta, .has_total = true};
        twi_port_acknowledge(&item, &answer);
    }
    (void)hand_collect_near();
    while (hand->count != 0) hand_acknowledge(twi_cell_local(hand->held[hand->count - 1].cell, 0));
    hand_turns(rig, TW_MINUTE);
    assert_i64_equal(hand_collect(10), 0);
    assert_i64_equal(hand_collect_near(), 0); /* the others may still be sending */
}

/* Goal: the histogram shows what all engines together counted beyond the limit, by a total from some time after the
 * end. Only counters that came near their limit are measured. */
TEST(what_was_passed_is_measured_when_the_window_is_over) {
    static const struct {
        int64_t total;
        const char *below, *within;
    } cases[] = {{90, NULL, "0.0"},     {100, NULL, "0.0"},    {101, "0.003", "0.01"},
                 {102, "0.01", "0.03"}, {103, "0.01", "0.03"}, {110, "0.03", "0.1"},
                 {200, "0.3", "1.0"},   {201, "1.0", "+Inf"},  {100000, "1.0", "+Inf"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig rig;
        tw_family *family = open_minutes(&rig);
        assert_status(tw_acquire(family, tw_str("near"), 80, 50000, NULL), TW_OK); /* under an earlier, greater limit */
        assert_status(tw_acquire(family, tw_str("near"), 5, 100, NULL), TW_OK);
        assert_status(tw_acquire(family, tw_str("far"), 50, 100, NULL), TW_OK);
        assert_status(tw_acquire(family, tw_str("far"), 0, 50, NULL), TW_OK); /* a look */
        end_window(&rig);
        hand_turns(&rig, 3 * 100);
        assert_i64_equal(test_stat_of(rig.engine, limit_measured), 0);
        assert_i64_equal(hand_collect_near(), 1);
        assert_i64_equal(hand->held[0].delta, 0);
        assert_memory_equal(twi_port_key(&hand->held[0]).data, "near", 4);
        hand_turns(&rig, 20);
        assert_i64_equal(test_stat_of(rig.engine, limit_measured), 0);
        hand_acknowledge(cases[i].total);
        hand_turns(&rig, 20);
        assert_i64_equal(test_stat_of(rig.engine, limit_measured), 1);
        assert_i64_equal(test_stat_of(rig.engine, limit_overshot), cases[i].total > 100);
        assert_status(scrape(&rig, 0), TW_OK);
        char line[200];
        snprintf(line, sizeof line, NAME "_bucket{family=\"f\",le=\"%s\"} 1", cases[i].within);
        assert_true(has(line));
        snprintf(line, sizeof line, NAME "_bucket{family=\"f\",le=\"%s\"} 0", cases[i].below);
        assert_true(cases[i].below == NULL || has(line));
        int64_t over = cases[i].total > 100 ? cases[i].total - 100 : 0;
        snprintf(line, sizeof line, NAME "_sum{family=\"f\"} %lld.%02lld0000", (long long)over / 100,
                 (long long)over % 100);
        assert_true(has(line));
        assert_true(has(NAME "_count{family=\"f\"} 1"));
        assert_true(has("# TYPE " NAME " histogram"));
        hand_turns(&rig, 10 * TW_MINUTE);
        assert_i64_equal(test_stat_of(rig.engine, limit_measured), 1);
        hand_close(&rig);
    }
}

TEST(the_greatest_limit_that_was_named_counts) {
    struct rig rig;
    tw_family *family = open_minutes(&rig);
    assert_status(tw_acquire(family, tw_str("k"), 90, 100, NULL), TW_OK);
    assert_status(tw_acquire(family, tw_str("k"), 90, 200, NULL), TW_OK);
    assert_status(tw_acquire(family, tw_str("k"), 90, 150, NULL), TW_DENIED);
    end_window(&rig);
    hand_turns(&rig, 300);
    assert_i64_equal(hand_collect_near(), 1);
    hand_acknowledge(210);
    hand_turns(&rig, 20);
    assert_status(scrape(&rig, 0), TW_OK);
    assert_true(has(NAME "_sum{family=\"f\"} 0.050000"));
    hand_close(&rig);
}

static uint32_t phase_of_minute(tw_family *family, int64_t start_ms) {
    struct twi_generation *generation = twi_window_find(family, start_ms);
    return generation != NULL ? twi_load_relaxed(&generation->phase) : TWI_DROPPED;
}

/* A request without a reply delays the window's end by some seconds. A request under way delays it until it is
 * settled. */
TEST(a_total_that_does_not_come_is_not_waited_for_for_ever) {
    struct rig rig;
    tw_family *family = open_minutes(&rig);
    assert_status(tw_acquire(family, tw_str("k"), 90, 100, NULL), TW_OK);
    end_window(&rig);
    hand_turns(&rig, 300);
    assert_i64_equal(hand_collect_near(), 1);
    hand_turns(&rig, 6000);
    assert_i64_equal(phase_of_minute(family, RIG_START_MS), TWI_DRAINED);
    struct twi_item item = hand_pop();
    twi_port_return(&item, 0); /* the connection was lost */
    assert_i64_equal(hand_collect(10), 0);
    hand_turns(&rig, 20);
    assert_i64_equal(phase_of_minute(family, RIG_START_MS), TWI_HISTORY);
    assert_i64_equal(test_stat_of(rig.engine, limit_measured), 0);
    hand_close(&rig);
}

TEST(nothing_is_asked_while_redis_is_away) {
    struct rig rig;
    tw_family *family = open_minutes(&rig);
    assert_status(tw_acquire(family, tw_str("k"), 90, 100, NULL), TW_OK);
    end_window(&rig);
    twi_port_outage(rig.engine, 0, 1);
    hand_turns(&rig, 300);
    assert_i64_equal(hand_collect_near(), 0);
    assert_i64_equal(phase_of_minute(family, RIG_START_MS), TWI_HISTORY);
    assert_i64_equal(test_stat_of(rig.engine, limit_measured), 0);
    hand_close(&rig);
}

/* tw_close() waits for no other engine. A request under way at that moment is settled first. */
TEST(an_engine_closes_with_a_question_under_way) {
    struct rig rig;
    tw_family *family = open_minutes(&rig);
    assert_status(tw_acquire(family, tw_str("k"), 90, 100, NULL), TW_OK);
    end_window(&rig);
    hand_turns(&rig, 300);
    assert_i64_equal(hand_collect_near(), 1);
    assert_status(tw_family_close(family), TW_OK);
    hand_turns(&rig, 20);
    assert_i64_equal(phase_of_minute(family, RIG_START_MS), TWI_DRAINED);
    hand_close(&rig);
}

/* The slots of a window's counters; several counters may have one slot. */
struct places {
    const struct twi_arena *arena;
    bool taken[TWI_NOTES];
    int64_t count;
};

static bool take_place(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct places *places = ctx;
    bool *taken = &places->taken[twi_arena_line(places->arena, cell) % TWI_NOTES];
    places->count += !*taken;
    *taken = true;
    return true;
}

static int64_t places_of(tw_engine *engine, tw_family *family) {
    struct places places = {.arena = &engine->arena};
    struct twi_cursor cursor = {0};
    twi_section_enter(twi_thread_here());
    twi_table_walk(&engine->arena, twi_load_acquire(&family->current), &cursor, take_place, &places);
    twi_section_leave(twi_thread_here());
    return places.count;
}

/* A slot serves window after window, each time for one counter: the first that comes near its limit there. */
TEST(notes_are_given_back) {
    struct rig rig;
    tw_family *family = open_minutes(&rig);
    int64_t measured = 0;
    for (int window = 0; window < 5; window++) {
        char key[20];
        for (int i = 0; i < 3000; i++) {
            snprintf(key, sizeof key, "%d", i);
            assert_status(tw_acquire(family, tw_str(key), 10, 10, NULL), TW_OK);
        }
        while (hand_collect_near() != 0 || hand_collect(1000) != 0)
            while (hand->count != 0) hand_acknowledge(10);
        int64_t asked = 0, places = places_of(rig.engine, family);
        hand_turns(&rig, TW_MINUTE);
        for (int round = 0; round < 100; round++) {
            hand_turns(&rig, 101);
            size_t count = hand_collect_near();
            if (count == 0 && round > 10) break;
            asked += (int64_t)count;
            while (hand->count != 0) hand_acknowledge(10);
        }
        assert_i64_equal(asked, places);
        measured += asked;
        assert_i64_equal(test_stat_of(rig.engine, limit_measured), measured);
    }
    hand_close(&rig);
}

/* Goal: the parent's notes lead into memory that a forked child does not have, so the child drops them (E37). */
TEST(a_forked_child_knows_of_no_counter_of_its_parent) {
    if (test_misses_wiped_pages()) return;
    struct rig rig;
    tw_family *family = open_minutes(&rig);
    assert_status(tw_acquire(family, tw_str("k"), 90, 100, NULL), TW_OK);
    assert_true(twi_port_is_near_limit(rig.engine));
    pid_t pid = fork();
    if (pid == 0) {
        bool clean = tw_get(family, tw_str("k"), NULL) == TW_OK && hand_collect_near() == 0;
        for (uint32_t i = 0; i < TWI_NOTES; i++) clean = clean && twi_load_relaxed(&rig.engine->notes[i].of) == 0;
        clean = clean && test_stat_of(rig.engine, limit_admitted) == 0;
        _exit(clean ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_i64_equal(hand_collect_near(), 1);
    assert_i64_equal(test_stat_of(rig.engine, limit_admitted), 1);
    hand_close(&rig);
}

#define BUYERS 12
#define CALLS 6000

static void *buy(void *ctx) {
    for (int i = 0; i < CALLS; i++) (void)tw_acquire(ctx, tw_str("k"), 1, BUYERS * CALLS / 2, NULL);
    return NULL;
}

/* Goal: statistics are exact while threads get lines of their own, and while more threads get more lines. The lines end
 * with the family. Method: few threads first, then many, with turns meanwhile. */
TEST(figures_are_exact_while_lines_are_made) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    pthread_t buyers[BUYERS];
    uint32_t first = 0;
    for (int round = 0; round < 2; round++) {
        int threads = round == 0 ? 1 : BUYERS - 1;
        for (int i = 0; i < threads; i++) assert_int_equal(pthread_create(&buyers[i], NULL, buy, family), 0);
        for (int i = 0; i < 50; i++) rig_turn(&rig);
        for (int i = 0; i < threads; i++) pthread_join(buyers[i], NULL);
        rig_turn(&rig);
        assert_non_null(family->limit_lines);
        if (round == 0) first = family->limit_lines->count;
    }
    assert_true(family->limit_lines->count >= first);
    tw_stats stats;
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    assert_i64_equal(stats.limit_admitted, BUYERS * CALLS / 2);
    assert_i64_equal(stats.limit_denied, BUYERS * CALLS / 2);
    assert_i64_equal(stats.increments, BUYERS * CALLS / 2);
    assert_status(tw_family_close(family), TW_OK);
    for (int i = 0; i < 4; i++) rig_pass(&rig, 1000);
    assert_i64_equal(test_stat_of(rig.engine, memory_bytes), 0);
    assert_i64_equal(test_stat_of(rig.engine, limit_admitted), BUYERS * CALLS / 2);
    rig_close(&rig);
}
