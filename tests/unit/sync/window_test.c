/* window_test.c -- how many calls a link may carry: the rules one by one, and then links that are played, with more
 * callers than they can serve.
 * Always true: the time is the test's. */
#include "sync/ask/window.h"

#include "tests/support/support.h"

#define LIMIT_MS 100

/* ---- the rules --------------------------------------------------------------------------------------------------- */

static void hear(struct twi_window *window, int64_t sent_ms, uint32_t place, int64_t now_ms) {
    struct twi_window_mark mark = {.sent_ms = sent_ms, .place = place};
    twi_window_heard(window, &mark, now_ms, LIMIT_MS);
}

/* Answers that come every millisecond, each `took_ms` after its call. */
static void hear_many(struct twi_window *window, uint32_t count, int64_t took_ms, int64_t *now_ms) {
    for (uint32_t i = 0; i < count; i++) {
        ++*now_ms;
        hear(window, *now_ms - took_ms, window->calls, *now_ms);
    }
}

/* Goal: quick answers open a window that is full, by two calls each; one that is not full stays as it is. */
TEST(a_full_window_grows_with_quick_answers) {
    struct twi_window window;
    int64_t now_ms = 1000;
    twi_window_begin(&window);
    assert_int_equal(window.calls, TWI_WINDOW_FIRST);
    hear_many(&window, 10, 1, &now_ms);
    assert_int_equal(window.calls, TWI_WINDOW_FIRST);
    window.is_full = true;
    hear_many(&window, 10, 1, &now_ms);
    assert_int_equal(window.calls, TWI_WINDOW_FIRST + 20);
}

/* Goal: between an eighth and a quarter of the room the window feels its way: one call for eight answers. */
TEST(slower_answers_open_it_slowly) {
    struct twi_window window;
    int64_t now_ms = 1000;
    twi_window_begin(&window);
    hear_many(&window, 1, 1, &now_ms);
    window.is_full = true;
    hear_many(&window, 16, 20, &now_ms);
    assert_int_equal(window.calls, TWI_WINDOW_FIRST + 2);
}

/* Goal: an answer that took four times too long leaves a quarter of the calls that were under way with it, and the
 * calls that were sent before that have no further say. At least one call may be under way. Method: a call is in time
 * within about 25 ms; answers come each millisecond, so there is no pause. */
TEST(a_late_answer_cuts_the_window_once) {
    struct twi_window window;
    int64_t now_ms = 1000;
    twi_window_begin(&window);
    hear_many(&window, 200, 1, &now_ms);
    hear(&window, now_ms - 104, 64, now_ms);
    assert_in_range(window.calls, 15, 17);
    uint32_t calls = window.calls;
    for (int64_t ms = 1; ms <= 50; ms++) hear(&window, now_ms + ms - 104, 64, now_ms + ms);
    assert_int_equal(window.calls, calls);
    for (int64_t ms = 51; ms <= 250; ms++) hear(&window, now_ms + ms - 90, 1, now_ms + ms);
    assert_int_equal(window.calls, 1);
}

/* Goal: after a cut a full window grows slowly until it is twice as large as the cut left it, and from then on quickly:
 * the link can carry more. */
TEST(a_window_that_was_cut_feels_its_way) {
    struct twi_window window;
    int64_t now_ms = 1000;
    twi_window_begin(&window);
    hear_many(&window, 30, 1, &now_ms);
    hear(&window, now_ms - 104, 64, now_ms);
    uint32_t left = window.calls;
    assert_in_range(left, 15, 17);
    window.is_full = true;
    for (int rounds = 0; window.calls < 2 * left; rounds++) {
        uint32_t before = window.calls;
        hear_many(&window, 8, 1, &now_ms);
        assert_int_equal(window.calls, before + 1);
        assert_true(rounds < 17);
    }
    uint32_t before = window.calls;
    hear_many(&window, 8, 1, &now_ms);
    assert_int_equal(window.calls, before + 16);
}

/* Goal: after a late answer of a thin link calls go out one by one, in the time that each takes of the link, with one
 * more for the time in which nobody came. Quick answers shorten that time, those of calls that were alone at once.
 * Where calls take little of a link there is no pace. Method: of twelve calls that took 85 ms, where one alone takes 4,
 * each takes 6.75 ms. */
TEST(a_thin_link_gets_one_call_after_the_other) {
    struct twi_window window;
    int64_t now_ms = 1000;
    twi_window_begin(&window);
    hear_many(&window, 30, 4, &now_ms);
    for (int i = 0; i < 10; i++) twi_window_sent(&window, now_ms);
    assert_true(twi_window_next_ms(&window) <= now_ms);
    now_ms++;
    hear(&window, now_ms - 85, 12, now_ms);
    assert_int_equal(window.calls, 3);
    now_ms += 1000;
    twi_window_sent(&window, now_ms);
    assert_true(twi_window_next_ms(&window) <= now_ms);
    twi_window_sent(&window, now_ms);
    assert_i64_equal(twi_window_next_ms(&window), now_ms + 7);
    twi_window_sent(&window, now_ms + 7);
    assert_i64_equal(twi_window_next_ms(&window), now_ms + 14);
    hear(&window, now_ms + 10, 2, now_ms + 14);
    assert_true(twi_window_next_ms(&window) > now_ms);
    hear(&window, now_ms + 11, 1, now_ms + 15);
    hear(&window, now_ms + 12, 1, now_ms + 16);
    assert_true(twi_window_next_ms(&window) <= now_ms);
}

/* Goal: a server that stands still for most of the time answers all calls late, and fewer calls would not help. */
TEST(a_pause_is_not_the_fault_of_the_calls) {
    struct twi_window window;
    twi_window_begin(&window);
    for (int64_t now_ms = 1000; now_ms < 3000; now_ms += 80) /* it answers what it has every 80 ms, all at once */
        for (int i = 0; i < 64; i++) hear(&window, now_ms - 75, 64, now_ms);
    assert_int_equal(window.calls, TWI_WINDOW_FIRST);
}

/* Goal: without an answer nothing is known, so a call goes out; with queues it goes only while it has their time, half
 * as much again, and an eighth of the room. */
TEST(a_call_that_would_come_late_is_not_sent) {
    struct twi_window window;
    int64_t now_ms = 1000;
    twi_window_begin(&window);
    assert_true(twi_window_suffices(&window, 1, LIMIT_MS));
    hear_many(&window, 30, 1, &now_ms);
    hear_many(&window, 30, 20, &now_ms);
    int64_t needs_ms = 20 + 19 / 2 + 99 / 8;
    assert_true(twi_window_suffices(&window, needs_ms + 1, LIMIT_MS));
    assert_false(twi_window_suffices(&window, needs_ms - 2, LIMIT_MS));
}

/* Goal: a call with less time than the limit is sent, too, where replies come within it. */
TEST(a_short_caller_is_sent_behind_another_call) {
    struct twi_window window;
    int64_t now_ms = 1000;
    twi_window_begin(&window);
    for (int i = 0; i < 30; i++) {
        twi_window_heard(&window, &(struct twi_window_mark){.sent_ms = now_ms, .place = 1}, now_ms + 1, 5000);
        now_ms += 2;
    }
    assert_true(twi_window_suffices(&window, 20, 20));
    assert_true(twi_window_suffices(&window, 300, 300));
    assert_false(twi_window_suffices(&window, 300, 5000)); /* it has waited for long, and the margin is its own */
}

/* ---- links that are played --------------------------------------------------------------------------------------- */

#define CALLERS_MAX 1000
#define AGAIN_MS 20 /* a caller that was turned away comes again after that time */

struct play {
    int64_t limit_ms, calls_per_s, way_ms;
    uint32_t callers;
    bool has_window; /* false: everything goes out at once, as it did before */
};

struct caller {
    enum { IDLE, WAITING, SENT } state;
    int64_t began_ms, again_ms;
    size_t at; /* in the queue */
};

/* A call under way. Its caller may have left, and then it takes a place in the queue for nothing. */
struct sent {
    uint32_t caller;
    bool is_left;
    struct twi_window_mark mark;
};

static struct caller callers[CALLERS_MAX];
static struct sent queue[1 << 21];
static uint32_t row[CALLERS_MAX]; /* those that wait, in their order */
static size_t first, last;
static uint32_t row_count;

static void leave_row(uint32_t i) {
    row_count--;
    memmove(&row[i], &row[i + 1], (row_count - i) * sizeof *row);
}

static void begin_calls(const struct play *play, int64_t now_ms) {
    for (uint32_t i = 0; i < play->callers; i++) {
        if (callers[i].state != IDLE || callers[i].again_ms > now_ms) continue;
        callers[i] = (struct caller){.state = WAITING, .began_ms = now_ms};
        row[row_count++] = i;
    }
}

static void end_calls(const struct play *play, int64_t now_ms) {
    for (uint32_t i = 0; i < play->callers; i++) {
        if (callers[i].state == IDLE || now_ms < callers[i].began_ms + play->limit_ms) continue;
        if (callers[i].state == SENT) queue[callers[i].at].is_left = true;
        for (uint32_t k = 0; callers[i].state == WAITING && k < row_count; k++)
            if (row[k] == i) {
                leave_row(k);
                break;
            }
        callers[i].state = IDLE;
    }
}

static void fill(const struct play *play, struct twi_window *window, int64_t now_ms) {
    while (row_count != 0 && (!play->has_window || last - first < window->calls)) {
        uint32_t caller = row[0];
        leave_row(0);
        int64_t left_ms = callers[caller].began_ms + play->limit_ms - now_ms;
        if (play->has_window && last != first && !twi_window_suffices(window, left_ms, play->limit_ms)) {
            callers[caller] = (struct caller){.state = IDLE, .again_ms = now_ms + AGAIN_MS};
            continue;
        }
        callers[caller].state = SENT;
        callers[caller].at = last;
        assert_true(last < sizeof queue / sizeof *queue);
        struct twi_window_mark mark = {.sent_ms = now_ms, .place = (uint32_t)(last + 1 - first)};
        queue[last++] = (struct sent){.caller = caller, .mark = mark};
    }
    window->is_full = row_count != 0;
}

/* Returns how many calls were answered in time in the worst of five stretches of two seconds after the first one. */
static int64_t served(const struct play *play) {
    struct twi_window window;
    int64_t credit = 0, in_time = 0, least = INT64_MAX;
    memset(callers, 0, sizeof callers);
    first = last = row_count = 0;
    twi_window_begin(&window);
    for (int64_t now_ms = 1; now_ms <= 12000; now_ms++) {
        credit += play->calls_per_s;
        for (; credit >= 1000 && first < last && queue[first].mark.sent_ms + play->way_ms <= now_ms; credit -= 1000) {
            struct sent *sent = &queue[first++];
            twi_window_heard(&window, &sent->mark, now_ms, play->limit_ms);
            if (sent->is_left) continue;
            callers[sent->caller].state = IDLE;
            in_time++;
        }
        if (first == last && credit > 1000) credit = 1000; /* what is not used is gone */
        end_calls(play, now_ms);
        begin_calls(play, now_ms);
        fill(play, &window, now_ms);
        if (now_ms % 2000 != 0) continue;
        if (now_ms > 2000 && in_time < least) least = in_time;
        in_time = 0;
    }
    return least;
}

/* Goal: a link that has more callers than it can serve serves as many as it can, in every two seconds. Without the
 * window it serves nobody in time. Method: links of 100, 630 and 2,500 calls a second, near and far. */
TEST(a_crowd_is_served) {
    static const struct play plays[] = {
        {100, .calls_per_s = 100, .way_ms = 1, .callers = 16},
        {100, .calls_per_s = 630, .way_ms = 1, .callers = 64},
        {100, .calls_per_s = 1500, .way_ms = 1, .callers = 200},
        {100, .calls_per_s = 2500, .way_ms = 1, .callers = 400},
        {100, .calls_per_s = 2500, .way_ms = 60, .callers = 1000},
        {100, .calls_per_s = 5000, .way_ms = 1, .callers = 1000},
        {20, .calls_per_s = 630, .way_ms = 1, .callers = 64},
        {20, .calls_per_s = 2500, .way_ms = 5, .callers = 500},
        {5, .calls_per_s = 5000, .way_ms = 1, .callers = 128},
        {1000, .calls_per_s = 630, .way_ms = 50, .callers = 1000},
        {1000, .calls_per_s = 100, .way_ms = 1, .callers = 200},
        {300, .calls_per_s = 100, .way_ms = 100, .callers = 200},
    };
    for (size_t i = 0; i < sizeof plays / sizeof *plays; i++) {
        struct play play = plays[i];
        int64_t before = served(&play);
        play.has_window = true;
        int64_t after = served(&play);
        print_message(
            "# limit %d ms, %d calls a second, %d ms away, %u callers: %d of %d in time, without the window %d\n",
            (int)play.limit_ms, (int)play.calls_per_s, (int)play.way_ms, play.callers, (int)after,
            (int)(2 * play.calls_per_s), (int)before);
        assert_true(10 * after >= 8 * 2 * play.calls_per_s);
        assert_true(before < after / 4);
    }
}

/* Goal: far ways and few callers keep what they had: all that the callers ask is under way. */
TEST(a_link_with_room_is_not_held_back) {
    static const struct play plays[] = {{100, .calls_per_s = 100000, .way_ms = 1, .callers = 64},
                                        {100, .calls_per_s = 100000, .way_ms = 60, .callers = 400},
                                        {100, .calls_per_s = 100000, .way_ms = 90, .callers = 64}};
    for (size_t i = 0; i < sizeof plays / sizeof *plays; i++) {
        struct play play = plays[i];
        int64_t before = served(&play);
        play.has_window = true;
        assert_true(100 * served(&play) >= 99 * before);
    }
}
