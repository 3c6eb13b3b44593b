/* step_sync.c -- a worker of a shared engine with Redis is killed after every single instruction of a call: each flush
 * is complete, and no count stays unsent.
 *
 * Method: stepping.h, with a driver that keeps a ledger in place of Redis. After each kill the parent, which leads,
 * adds once to the same key and flushes. Then the ledger has what the view shows, for this key and in sum for all:
 * a mark that the child left half made must hide neither the child's count nor later ones of its neighbours.
 * Always true: what was answered is in the ledger after the next flush, and nothing is there twice. */
#include "tests/fault/stepping.h"
#include "tests/support/fake_driver.h"

#include "engine/core/state.h"

#define WHOLE_SECONDS 300
#define FLUSH_MS 20000
#define MANY 8u

static tw_engine *engine;
static tw_family *counters, *windows;
static int64_t now_ms;

/* The ledger: of the keys of this child, and in all. */
static int64_t sent[MANY], sent_in_all, counted_in_all;

static void take(tw_key key, int64_t start_ms, int64_t delta) {
    const struct step_key *text = key.data;
    sent_in_all += delta;
    if (key.size >= 12 && text->round == step_round && text->n == step_key_text.n) sent[text->which] += delta;
}

static int open_engine(void **state) {
    tw_options options;
    fake_driver_share(&options);
    fake_driver.taken = take;
    sent_in_all = counted_in_all = 0;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "counters";
    family.window = TW_WINDOW_FOREVER;
    assert_status(tw_family_open(engine, &family, &counters), TW_OK);
    tw_family_options_init(&family);
    family.name = "windows";
    family.window_ms = 1000;
    family.lateness_ms = TW_UNBOUNDED;
    family.history_ms = TW_NONE;
    assert_status(tw_family_open(engine, &family, &windows), TW_OK);
    assert_status(tw_lead(engine), TW_OK);
    now_ms = twi_clock_read(&engine->clock);
    return 0;
}

static int close_engine(void **state) {
    step_end_child();
    assert_status(tw_close(engine, 1000), TW_OK);
    return 0;
}

/* The child's thread is registered before the call, and has marked a counter. */
static void has_counted(uint32_t n) {
    (void)tw_add(counters, tw_str("warm"), 1, NULL);
}

static void flush(void) {
    assert_status(tw_flush(engine, FLUSH_MS), TW_OK);
}

/* One add in the parent: returns what the view was before it. The call of the child counted `by`, or nothing if it had
 * not returned. */
static int64_t add_after(uint32_t n, uint32_t which, int64_t before, int64_t by, bool answered) {
    int64_t view, next;
    assert_status(tw_get(counters, key_of(n, which), &view), TW_OK);
    if (answered || view != before) assert_i64_equal(view, before + by);
    assert_status(tw_add(counters, key_of(n, which), 1, &next), TW_OK);
    assert_i64_equal(next, view + 1);
    return view;
}

static void run_case(const struct step_call *call, size_t size) {
    step_key_bytes = size;
    step_round++;
    step_through(call);
    flush();
    tw_stats stats;
    assert_status(tw_stats_read(engine, &stats), TW_OK);
    assert_i64_equal(stats.sections_oldest_ms, 0);
    assert_i64_equal(stats.unsent_keys, 0);
    assert_true(twi_load_relaxed(&twi_domain->slots) <= 8);
}

/* ---- one key ---- */

static int64_t counted_before; /* by the parent, under the key of the call */
static bool is_sent_before;    /* so the key has no mark when the call begins */
static int64_t change;         /* by the call */

/* Every child counts under "warm" once. */
static void count_before(uint32_t n) {
    memset(sent, 0, sizeof sent);
    counted_in_all += 1 + counted_before;
    if (counted_before == 0) return;
    assert_status(tw_add(counters, key_of(n, 0), counted_before, NULL), TW_OK);
    if (is_sent_before) flush();
}
static void judge_count(uint32_t n, bool answered) {
    int64_t view = add_after(n, 0, counted_before, change, answered);
    counted_in_all += view - counted_before + 1;
    flush();
    assert_i64_equal(sent[0], view + 1);
    assert_i64_equal(sent_in_all, counted_in_all);
}

static bool adds_and_views(uint32_t n) {
    int64_t view;
    return tw_add(counters, key_of(n, 0), 1, &view) == TW_OK && view == counted_before + 1;
}
static bool adds(uint32_t n) {
    return tw_add(counters, key_of(n, 0), 1, NULL) == TW_OK;
}
static bool acquires(uint32_t n) {
    return tw_acquire(counters, key_of(n, 0), 1, 100, NULL) == TW_OK;
}
static bool refunds(uint32_t n) {
    return tw_refund(counters, key_of(n, 0), 2, 0) == TW_OK;
}
static bool resets(uint32_t n) {
    int64_t last;
    return tw_reset(counters, key_of(n, 0), &last) == TW_OK && last == counted_before;
}

static void run_count(const char *name, bool (*run)(uint32_t n), size_t size, int64_t before, int64_t by,
                      bool is_sent) {
    counted_before = before;
    is_sent_before = is_sent;
    change = by;
    run_case(&(struct step_call){name, 31, count_before, has_counted, run, judge_count}, size);
}

TEST_WITH(a_new_key, open_engine, close_engine, NULL) {
    run_count("insert with its view", adds_and_views, 12, 0, 1, false);
    run_count("insert", adds, 12, 0, 1, false);
    run_count("insert of 60 bytes", adds, 60, 0, 1, false);
    run_count("insert of 700 bytes", adds, 700, 0, 1, false);
    run_count("first acquire", acquires, 12, 0, 1, false);
}

TEST_WITH(a_known_key, open_engine, close_engine, NULL) {
    run_count("add with its view", adds_and_views, 12, 1, 1, true);
    run_count("add", adds, 12, 1, 1, true);
    run_count("add to a marked key", adds, 12, 1, 1, false);
    run_count("acquire", acquires, 12, 1, 1, true);
    run_count("refund", refunds, 12, 5, -2, true);
    run_count("reset", resets, 12, 5, -5, true);
}

/* ---- a group of keys ---- */

static void count_many_before(uint32_t n) {
    memset(sent, 0, sizeof sent);
    counted_in_all += 1 + MANY / 2;
    for (uint32_t i = 0; i < MANY; i += 2) assert_status(tw_add(counters, key_of(n, i), 1, NULL), TW_OK);
    flush();
}
static bool adds_many(uint32_t n) {
    static struct step_key texts[MANY];
    tw_key keys[MANY];
    tw_status each[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        (void)key_of(n, i);
        texts[i] = step_key_text;
        keys[i] = tw_bytes(&texts[i], step_key_bytes);
    }
    return tw_add_many(counters, keys, NULL, MANY, NULL, each) == TW_OK;
}
static void judge_many(uint32_t n, bool answered) {
    int64_t views[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        views[i] = add_after(n, i, i % 2 == 0, 1, answered);
        counted_in_all += views[i] - (i % 2 == 0) + 1;
    }
    flush();
    for (uint32_t i = 0; i < MANY; i++) assert_i64_equal(sent[i], views[i] + 1);
    assert_i64_equal(sent_in_all, counted_in_all);
}

TEST_WITH(a_group_of_keys, open_engine, close_engine, NULL) {
    run_case(&(struct step_call){"add_many", 131, count_many_before, has_counted, adds_many, judge_many}, 12);
}

/* ---- windows: a window is given back only after all its counts are sent ---- */

static int64_t window_of(uint32_t n) {
    return now_ms - 1000 * (int64_t)(n + 1);
}
static void is_in_no_window(uint32_t n) {
    counted_in_all += 1;
}
static bool adds_at(uint32_t n) {
    int64_t view;
    return tw_add_at(windows, key_of(n, 0), 1, window_of(n), &view) == TW_OK && view == 1;
}
/* Nobody counts in this window any more. Whether the call counted is seen in the view. */
static void judge_window(uint32_t n, bool answered) {
    int64_t view;
    assert_status(tw_get_at(windows, key_of(n, 0), window_of(n), &view), TW_OK);
    if (answered || view != 0) assert_i64_equal(view, 1);
    counted_in_all += view;
    assert_status(tw_turn(engine), TW_OK);
}
static bool all_windows_end(void *ctx) {
    assert_status(tw_turn(engine), TW_OK);
    return test_stat_of(engine, generations) == 1; /* the endless one */
}

TEST_WITH(a_window_is_opened, open_engine, close_engine, NULL) {
    run_case(&(struct step_call){"first add of a window", 61, is_in_no_window, has_counted, adds_at, judge_window}, 12);
    assert_i64_equal(sent_in_all, counted_in_all);
    assert_status(tw_close_until(windows, now_ms), TW_OK);
    assert_true(test_wait(all_windows_end, NULL, TEST_PATIENCE_MS));
    assert_i64_equal(sent_in_all, counted_in_all);
}

int main(void) {
    step_begin();
    alarm(WHOLE_SECONDS);
    return test_run();
}
