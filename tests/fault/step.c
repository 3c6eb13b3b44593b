/* step.c -- a worker of a shared engine is killed after every single instruction of a call: what it was answered is
 * counted, the next call is right, and nothing that it held stays.
 *
 * Method: stepping.h. For each number of instructions a forked child makes one call and is killed in it. Then the
 * parent, which leads, looks: a call that had returned is counted once, one that had not is counted once or not at
 * all. In the parent no lock stays taken (it would hang, and an alarm ends it). At the end of each case the thread
 * slots are free again, no section is open, windows end, and memory has grown by a few pieces at most.
 * The short form kills after some of the instructions, a different choice for each seed; TW_SCALE=100000 after all. */
#include "tests/fault/stepping.h"

#include "engine/core/state.h"

#define WHOLE_SECONDS 900
#define LONG_WINDOW_MS (5 * 365 * (int64_t)TW_DAY)
#define LIMIT 8
#define SLOTS_OF_PARENT 2u
#define SPENT 5 /* units that the parent takes before the child's call */

static tw_engine *engine;
static tw_family *counters, *windows, *rate, *sliding, *bucket, *own_window, *visitors;
static int64_t now_ms;

static void is_endless(tw_family_options *options) {
    options->window = TW_WINDOW_FOREVER;
    options->window_ms = 0;
}
static void is_of_seconds(tw_family_options *options) {
    options->window_ms = 1000;
    options->lateness_ms = TW_UNBOUNDED;
    options->history_ms = TW_NONE;
}
static void is_plain(tw_family_options *options) {
}
static void is_sliding(tw_family_options *options) {
    options->limit_shape = TW_SHAPE_SLIDING;
}
static void is_bucket(tw_family_options *options) {
    options->limit_shape = TW_SHAPE_GCRA;
}
static void is_from_first(tw_family_options *options) {
    options->window = TW_WINDOW_FROM_FIRST;
}
static void is_of_visitors(tw_family_options *options) {
    is_endless(options);
    options->kind = TW_KIND_DISTINCT;
}

#define KEYS_BEFORE 64u /* in each family of one window, because the first inserts of a table make it grow */
#define LONG_WINDOWS 6  /* which do not end */

static tw_family *family_of(const char *name, void (*fill)(tw_family_options *options)) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.window_ms = LONG_WINDOW_MS;
    fill(&options);
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    for (uint32_t i = 0; i < KEYS_BEFORE && fill != is_of_seconds; i++)
        if (options.kind == TW_KIND_DISTINCT)
            assert_status(tw_distinct_add(family, tw_bytes(&i, sizeof i), tw_str("one"), NULL), TW_OK);
        else
            assert_status(tw_acquire(family, tw_bytes(&i, sizeof i), 1, LIMIT, NULL), TW_OK);
    return family;
}

static int open_engine(void **state) {
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = UINT64_C(64) << 20;
    options.shared = TW_SHARED_BY_FORK;
    assert_status(tw_open(&options, &engine), TW_OK);
    counters = family_of("counters", is_endless);
    windows = family_of("windows", is_of_seconds);
    rate = family_of("rate", is_plain);
    sliding = family_of("sliding", is_sliding);
    bucket = family_of("bucket", is_bucket);
    own_window = family_of("own_window", is_from_first);
    visitors = family_of("visitors", is_of_visitors);
    assert_status(tw_lead(engine), TW_OK);
    now_ms = twi_clock_read(&engine->clock);
    return 0;
}

static int close_engine(void **state) {
    step_end_child();
    assert_status(tw_close(engine, 0), TW_OK);
    return 0;
}

/* ---- what every case looks at ---- */

static int64_t count_of(tw_family *family, tw_key key) {
    int64_t view = INT64_MIN;
    assert_status(tw_get(family, key, &view), TW_OK);
    return view;
}

/* The child's thread is registered before it is stepped. */
static void has_counted(uint32_t n) {
    (void)tw_add(counters, tw_str("warm"), 1, NULL);
}

static void turn(void) {
    assert_status(tw_turn(engine), TW_OK);
}

static uint32_t slots_taken(void) {
    return twi_load_relaxed(&twi_domain->slots);
}

/* Of one case. A child that was killed in some steps, such as those that open a window, keeps its slot until the next
 * turn, so each kill of a case may cost one. Those of the cases before are used again. */
static uint32_t most_kills;

/* Kills in one case, and what is left of the children then. Returns the number of kills. */
static uint32_t run_case(const struct step_call *call, size_t size) {
    step_key_bytes = size;
    step_round++;
    uint32_t kills = step_through(call);
    for (int i = 0; i < 8; i++) turn();
    tw_stats stats;
    assert_status(tw_stats_read(engine, &stats), TW_OK);
    assert_i64_equal(stats.sections_oldest_ms, 0);
    if (kills > most_kills) most_kills = kills;
    print_message("# %u thread slots\n", slots_taken());
    assert_true(slots_taken() <= SLOTS_OF_PARENT + most_kills);
    assert_false(twi_threads_hold(NULL, 0));
    return kills;
}

/* ---- counting ---- */

static int64_t counted_before; /* by the parent, under the key of the call */
static int64_t change;         /* by the call */

static void count_before(uint32_t n) {
    if (counted_before != 0) assert_status(tw_add(counters, key_of(n, 0), counted_before, NULL), TW_OK);
}

/* Counted once, or not at all if there was no answer, and the next add is right. */
static void judge_key(tw_family *family, tw_key key, int64_t before, int64_t by, bool answered) {
    int64_t view = count_of(family, key), next;
    if (answered || view != before) assert_i64_equal(view, before + by);
    assert_status(tw_add(family, key, 1, &next), TW_OK);
    assert_i64_equal(next, view + 1);
}

static void judge_count(uint32_t n, bool answered) {
    judge_key(counters, key_of(n, 0), counted_before, change, answered);
}

static bool adds_and_views(uint32_t n) {
    int64_t view;
    return tw_add(counters, key_of(n, 0), 1, &view) == TW_OK && view == counted_before + 1;
}
static bool adds(uint32_t n) {
    return tw_add(counters, key_of(n, 0), 1, NULL) == TW_OK;
}
static bool resets(uint32_t n) {
    int64_t last;
    return tw_reset(counters, key_of(n, 0), &last) == TW_OK && last == counted_before;
}

static void run_count(const char *name, bool (*run)(uint32_t n), size_t size, int64_t before, int64_t by) {
    counted_before = before;
    change = by;
    run_case(&(struct step_call){name, 23, count_before, has_counted, run, judge_count}, size);
}

TEST_WITH(a_new_key, open_engine, close_engine, NULL) {
    run_count("insert with its view", adds_and_views, 12, 0, 1);
    run_count("insert", adds, 12, 0, 1);
}
TEST_WITH(a_long_new_key, open_engine, close_engine, NULL) {
    run_count("insert of 60 bytes", adds_and_views, 60, 0, 1);
    run_count("insert of 700 bytes", adds_and_views, 700, 0, 1);
}
TEST_WITH(a_known_key, open_engine, close_engine, NULL) {
    run_count("add with its view", adds_and_views, 12, 1, 1);
    run_count("add", adds, 12, 1, 1);
    run_count("add to 700 bytes", adds, 700, 1, 1);
    run_count("reset", resets, 12, 5, -5);
}

/* The child's first call registers its thread and joins the engine. */
TEST_WITH(the_first_call, open_engine, close_engine, NULL) {
    counted_before = 1, change = 1;
    run_case(&(struct step_call){"first call", 101, count_before, NULL, adds_and_views, judge_count}, 12);
}

#define MANY 8u
static void count_many_before(uint32_t n) {
    for (uint32_t i = 0; i < MANY; i += 2) assert_status(tw_add(counters, key_of(n, i), 1, NULL), TW_OK);
}
static bool adds_many(uint32_t n) {
    static char texts[MANY][64];
    tw_key keys[MANY];
    int64_t views[MANY];
    tw_status each[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        tw_key key = key_of(n, i);
        memcpy(texts[i], key.data, key.size);
        keys[i] = tw_bytes(texts[i], key.size);
    }
    return tw_add_many(counters, keys, NULL, MANY, views, each) == TW_OK && views[0] == 2 && views[1] == 1;
}
static void judge_many(uint32_t n, bool answered) {
    for (uint32_t i = 0; i < MANY; i++) judge_key(counters, key_of(n, i), i % 2 == 0, 1, answered);
}

TEST_WITH(a_group_of_keys, open_engine, close_engine, NULL) {
    run_case(&(struct step_call){"add_many", 101, count_many_before, has_counted, adds_many, judge_many}, 12);
}

/* ---- windows and growth ---- */

static uint32_t keys_before; /* in the window, by the parent */

/* Each kill has a window of its own. */
static int64_t window_of(uint32_t n) {
    return now_ms - 1000 * (int64_t)(n + 1);
}
static void fill_window(uint32_t n) {
    for (uint32_t i = 0; i < keys_before; i++)
        assert_status(tw_add_at(windows, key_of(0, i), 1, window_of(n), NULL), TW_OK);
}
static bool adds_at(uint32_t n) {
    int64_t view;
    return tw_add_at(windows, key_of(0, keys_before), 1, window_of(n), &view) == TW_OK && view == 1;
}
static void expect_in_window(uint32_t n, uint32_t key, int64_t want) {
    int64_t view;
    assert_status(tw_get_at(windows, key_of(0, key), window_of(n), &view), TW_OK);
    assert_i64_equal(view, want);
}
static void judge_window(uint32_t n, bool answered) {
    int64_t view, next;
    assert_status(tw_get_at(windows, key_of(0, keys_before), window_of(n), &view), TW_OK);
    if (answered || view != 0) assert_i64_equal(view, 1);
    for (uint32_t key = keys_before; key < keys_before + 20; key++) {
        assert_status(tw_add_at(windows, key_of(0, key), 1, window_of(n), &next), TW_OK);
        assert_i64_equal(next, key == keys_before ? view + 1 : 1);
    }
    for (uint32_t i = 0; i < keys_before; i++) expect_in_window(n, i, 1);
}

static bool only_the_longest_windows_are_left(void *ctx) {
    turn();
    return test_stat_of(engine, generations) == LONG_WINDOWS;
}

/* All windows of seconds end, and their memory returns. */
static void end_windows(void) {
    assert_status(tw_close_until(windows, now_ms), TW_OK);
    if (!test_wait(only_the_longest_windows_are_left, NULL, 10000))
        fail_msg("%lld windows never end", (long long)test_stat_of(engine, generations) - LONG_WINDOWS);
}

static bool memory_is_back(void *bytes_max) {
    turn();
    return test_memory_bytes(engine) < *(int64_t *)bytes_max;
}

/* A window that a killed child was making, or its old map, is not found again: at most one piece of memory a kill. */
TEST_WITH(a_window_is_opened, open_engine, close_engine, NULL) {
    keys_before = 0;
    int64_t bytes = test_memory_bytes(engine);
    uint32_t kills =
        run_case(&(struct step_call){"first add of a window", 61, fill_window, has_counted, adds_at, judge_window}, 12);
    end_windows();
    bytes += 1024 * (64 + (int64_t)kills);
    if (!test_wait(memory_is_back, &bytes, 10000))
        fail_msg("memory_bytes is %lld, above %lld", (long long)test_memory_bytes(engine), (long long)bytes);
}

/* The inserts at which a window takes memory: for its first, second, third, ... leaf, node or piece of counters. */
static size_t find_growth(uint32_t *found, size_t most) {
    size_t count = 0;
    int64_t before = INT64_MAX;
    for (uint32_t i = 0; i < 400 && count < most; i++) {
        assert_status(tw_add_at(windows, key_of(0, i), 1, window_of(99999), NULL), TW_OK);
        int64_t bytes = test_memory_bytes(engine);
        if (bytes > before) found[count++] = i;
        before = bytes;
    }
    return count;
}

TEST_WITH(an_insert_that_grows, open_engine, close_engine, NULL) {
    uint32_t at[64];
    size_t count = find_growth(at, 64);
    assert_true(count > 4);
    for (size_t i = 1; i < count; i += step_is_short() ? count / 3 : 1) {
        char name[64];
        keys_before = at[i];
        (void)snprintf(name, sizeof name, "insert %u of a window", keys_before + 1);
        run_case(&(struct step_call){name, 151, fill_window, has_counted, adds_at, judge_window}, 12);
    }
    end_windows();
}

/* ---- limits ---- */

static tw_family *limited; /* of this case */

static void spend_before(uint32_t n) {
    for (int i = 0; i < SPENT; i++) assert_status(tw_acquire(limited, key_of(n, 0), 1, LIMIT, NULL), TW_OK);
}
static void spend_all_but_one(uint32_t n) {
    for (int i = 0; i < LIMIT - 1; i++) assert_status(tw_acquire(limited, key_of(n, 0), 1, LIMIT, NULL), TW_OK);
}
static bool acquires(uint32_t n) {
    return tw_acquire(limited, key_of(n, 0), 1, LIMIT, NULL) == TW_OK;
}
static bool acquires_some(uint32_t n) {
    int64_t taken;
    return tw_acquire_some(limited, key_of(n, 0), LIMIT, LIMIT, &taken, NULL) == TW_OK && taken == LIMIT - SPENT;
}
static bool refunds(uint32_t n) {
    return tw_refund(limited, key_of(n, 0), SPENT, 0) == TW_OK;
}

/* The units that are left are `left`, or as many as before the call if it did not return. */
static void judge_rest(uint32_t n, bool answered, int64_t before, int64_t left) {
    int64_t rest = 0;
    while (tw_acquire(limited, key_of(n, 0), 1, LIMIT, NULL) == TW_OK) rest++;
    if (answered || rest != before) assert_i64_equal(rest, left);
}
static void judge_one_taken(uint32_t n, bool answered) {
    judge_rest(n, answered, LIMIT - SPENT, LIMIT - SPENT - 1);
}
static void judge_first_taken(uint32_t n, bool answered) {
    judge_rest(n, answered, LIMIT, LIMIT - 1);
}
static void judge_last_taken(uint32_t n, bool answered) {
    judge_rest(n, answered, 1, 0);
}
static void judge_all_taken(uint32_t n, bool answered) {
    judge_rest(n, answered, LIMIT - SPENT, 0);
}
static void judge_refunded(uint32_t n, bool answered) {
    judge_rest(n, answered, LIMIT - SPENT, LIMIT);
}

static void has_acquired(uint32_t n) {
    (void)tw_acquire(limited, tw_str("warm"), 1, LIMIT, NULL);
}

TEST_WITH(a_unit_is_taken, open_engine, close_engine, NULL) {
    tw_family *families[] = {counters, rate, sliding, bucket, own_window};
    const char *names[] = {"endless", "aligned", "sliding", "rate", "from first"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char name[64];
        limited = families[i];
        (void)snprintf(name, sizeof name, "acquire, %s", names[i]);
        run_case(&(struct step_call){name, 31, spend_before, has_acquired, acquires, judge_one_taken}, 12);
        (void)snprintf(name, sizeof name, "first acquire, %s", names[i]);
        if (families[i] != own_window) /* it begins again while the clock moves, and a step is slower than the clock */
            run_case(&(struct step_call){name, 67, NULL, has_acquired, acquires, judge_first_taken}, 12);
        (void)snprintf(name, sizeof name, "last acquire, %s", names[i]);
        run_case(&(struct step_call){name, 67, spend_all_but_one, has_acquired, acquires, judge_last_taken}, 12);
    }
}

TEST_WITH(units_are_taken_and_given_back, open_engine, close_engine, NULL) {
    limited = counters;
    run_case(&(struct step_call){"acquire_some", 61, spend_before, has_acquired, acquires_some, judge_all_taken}, 12);
    run_case(&(struct step_call){"refund", 31, spend_before, has_acquired, refunds, judge_refunded}, 12);
}

static bool acquires_all(uint32_t n) {
    tw_claim claims[2] = {{rate, key_of(n, 0), 1, LIMIT}, {counters, tw_str("all"), 1, INT64_C(1) << 40}};
    return tw_acquire_all(claims, 2, NULL) == TW_OK;
}
TEST_WITH(several_limits_at_once, open_engine, close_engine, NULL) {
    limited = rate;
    run_case(&(struct step_call){"acquire_all", 101, spend_before, has_acquired, acquires_all, judge_one_taken}, 12);
}

/* ---- distinct counts ---- */

static uint32_t elements_before;

static void visit_before(uint32_t n) {
    for (uint32_t i = 0; i < elements_before; i++)
        assert_status(tw_distinct_add(visitors, key_of(n, 0), tw_bytes(&i, sizeof i), NULL), TW_OK);
}
static bool visits(uint32_t n) {
    bool changed;
    return tw_distinct_add(visitors, key_of(n, 0), tw_str("new"), &changed) == TW_OK && changed;
}
static int64_t visitors_of(uint32_t n) {
    int64_t estimate;
    assert_status(tw_distinct_get(visitors, key_of(n, 0), &estimate), TW_OK);
    return estimate;
}
/* An element that was not answered may be in the sketch. Adding it again then changes nothing. */
static void judge_visits(uint32_t n, bool answered) {
    int64_t before = visitors_of(n);
    bool changed;
    assert_status(tw_distinct_add(visitors, key_of(n, 0), tw_str("new"), &changed), TW_OK);
    if (answered) assert_false(changed);
    assert_i64_equal(visitors_of(n), before + changed);
    assert_i64_equal(before + changed, elements_before + 1);
}
static void has_visited(uint32_t n) {
    (void)tw_distinct_add(visitors, tw_str("warm"), tw_str("warm"), NULL);
}

/* A sketch grows after 14 elements. */
TEST_WITH(an_element, open_engine, close_engine, NULL) {
    uint32_t numbers[] = {0, 3, 14};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char name[64];
        elements_before = numbers[i];
        (void)snprintf(name, sizeof name, "element %u", elements_before + 1);
        run_case(&(struct step_call){name, 101, visit_before, has_visited, visits, judge_visits}, 12);
    }
}

/* ---- slots in use ---- */

/* The parent has one slot. */
static void hold_before(uint32_t n) {
    assert_status(tw_hold(counters, key_of(n, 0), 1, NULL), TW_OK);
}
static bool holds(uint32_t n) {
    return tw_hold(counters, key_of(n, 0), 2, NULL) == TW_OK;
}
static bool releases(uint32_t n) {
    return tw_hold_release(counters, key_of(n, 0)) == TW_OK;
}
static void has_held(uint32_t n) {
    has_counted(n);
    if (tw_hold(counters, tw_str("warm"), 100, NULL) != TW_OK || tw_hold_release(counters, tw_str("warm")) != TW_OK)
        _exit(1);
}
static void holds_a_slot(uint32_t n) {
    has_held(n);
    if (!holds(n)) _exit(1);
}
static bool only_one_slot_is_used(void *n) {
    turn();
    tw_verdict verdict;
    return tw_hold(counters, key_of(*(uint32_t *)n, 0), 1, &verdict) == TW_DENIED && verdict.used == 1;
}
/* The slots of the child are free, and the slot of the parent is not. */
static void judge_slots(uint32_t n, bool answered) {
    assert_status(tw_process_died(engine), TW_OK);
    assert_true(test_wait(only_one_slot_is_used, &n, TEST_PATIENCE_MS));
    assert_true(holds(n));
    assert_status(tw_hold(counters, key_of(n, 0), 2, NULL), TW_DENIED);
    assert_true(releases(n));
    assert_true(releases(n));
    assert_status(tw_hold_release(counters, key_of(n, 0)), TW_ERR_RANGE);
}

TEST_WITH(a_slot_in_use, open_engine, close_engine, NULL) {
    run_case(&(struct step_call){"hold", 67, hold_before, has_held, holds, judge_slots}, 12);
    run_case(&(struct step_call){"hold_release", 67, hold_before, holds_a_slot, releases, judge_slots}, 12);
}

/* ---- calls that change nothing ---- */

static bool count_one(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->view;
    return true;
}
static bool walks(uint32_t n) {
    int64_t sum = 0;
    return tw_each(rate, TW_NOW, count_one, &sum) == TW_OK && sum == KEYS_BEFORE;
}
static bool ranks(uint32_t n) {
    int64_t sum = 0;
    return tw_top(rate, 4, TW_NOW, count_one, &sum) == TW_OK && sum == 4;
}
static bool reads_statistics(uint32_t n) {
    tw_stats stats;
    return tw_stats_read(engine, &stats) == TW_OK && stats.increments >= KEYS_BEFORE;
}
static bool finds(uint32_t n) {
    return tw_family_find(engine, "rate") == rate;
}
static bool reads(uint32_t n) {
    int64_t view;
    return tw_get(rate, key_of(n, 0), &view) == TW_OK && view == 0;
}
static bool leaves(uint32_t n) {
    return tw_close(engine, 1000) == TW_OK;
}

/* The same calls work in the parent. A lock that stayed taken would stop it here. */
static void judge_calls(uint32_t n, bool answered) {
    turn();
    assert_true(walks(n));
    assert_true(ranks(n));
    assert_true(reads_statistics(n));
    assert_true(finds(n));
    assert_true(reads(n));
}

TEST_WITH(calls_that_read, open_engine, close_engine, NULL) {
    struct {
        const char *name;
        bool (*run)(uint32_t n);
        uint32_t stride;
    } calls[] = {{"each", walks, 131},       {"top", ranks, 301}, {"stats_read", reads_statistics, 101},
                 {"family_find", finds, 41}, {"get", reads, 41},  {"close", leaves, 151}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        run_case(&(struct step_call){calls[i].name, calls[i].stride, NULL, has_counted, calls[i].run, judge_calls}, 12);
}

int main(void) {
    step_begin();
    alarm(WHOLE_SECONDS);
    return test_run();
}
