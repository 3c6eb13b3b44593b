/* rollover.c -- windows end while threads count in them. Each count is in the window of its call's clock; the hook gets
 * each window once, and its figures are final. The clock is fake, and a thread of its own moves it on, so hundreds of
 * windows pass in seconds. */
#include "tests/stress/stress.h"

#define WINDOWS_MAX 4096

struct field {
    struct fake_clock clock;
    tw_engine *engine;
    tw_family *family;
    uint64_t windows, keys;
    int64_t lateness_ms, ttl_ms;
    bool by_event_time;
    atomic_bool hook_balks;
    struct test_prng hook_prng;
    /* of the hook, which the turn calls: never two threads at once */
    int64_t told[WINDOWS_MAX], told_sum;
    uint32_t told_times[WINDOWS_MAX];
    int64_t seen_end_ms;
    /* added by event time, by window */
    _Atomic int64_t added[WINDOWS_MAX];
    _Atomic int64_t late;
    /* firsts of tw_once, by window */
    _Atomic uint32_t *firsts;
    atomic_int stop;
};

static uint64_t window_of(int64_t ms) {
    return (uint64_t)((ms - STRESS_START_MS) / TW_SECOND);
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct field *field = ctx;
    uint64_t window = window_of(start_ms);
    expect(window < WINDOWS_MAX && end_ms == start_ms + TW_SECOND);
    if (atomic_load(&field->hook_balks) && test_prng_chance(&field->hook_prng, 1, 2)) return false;
    struct tally tally = {.seen = calloc(field->keys, 1), .numbers = field->keys};
    if (tally.seen == NULL) return false;
    expect(tw_each(family, start_ms, tally_count, &tally) == TW_OK);
    for (uint64_t number = 0; number < field->keys; number++) expect(tally.seen[number] <= 1);
    free(tally.seen);
    struct tally again = {.seen = NULL};
    expect(tw_each(family, start_ms, tally_count, &again) == TW_OK);
    expect(again.sum == tally.sum); /* final */
    field->told[window] += tally.sum;
    field->told_sum += tally.sum;
    field->told_times[window]++;
    return true;
}

static void field_open(struct field *field, uint32_t threads) {
    memset(field->told, 0, sizeof field->told);
    fake_clock_init(&field->clock, STRESS_START_MS);
    test_prng_seed(&field->hook_prng, test_seed());
    tw_options options;
    tw_options_init(&options);
    options.threads = threads;
    options.memory_bytes_max = UINT64_C(64) << 20;
    fake_clock_install(&field->clock, &options);
    field->engine = stress_open(&options);
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "field";
    if (field->ttl_ms != 0) {
        family.window = TW_WINDOW_FROM_FIRST;
        family.window_ms = field->ttl_ms;
    } else {
        family.window_ms = TW_SECOND;
        family.history_ms = TW_NONE;
        family.keys_expected = test_seed() % 2 == 0 ? 0 : 500;
        family.lateness_ms = field->lateness_ms;
        family.on_window_closed = on_closed;
        family.closed_ctx = field;
    }
    field->family = stress_family(field->engine, &family);
    stress_write_time(field->engine);
    atomic_store(&field->stop, 0);
}

/* The first member lets time pass, in uneven steps, and now and then to the very edge of a window. */
static void let_time_pass(struct field *field, struct member *member) {
    while (window_of(fake_clock_wall_ms(&field->clock)) < field->windows) {
        int64_t step_ms = test_prng_chance(&member->prng, 1, 4) ? 1 : 1 + (int64_t)test_prng_below(&member->prng, 500);
        stress_pass(&field->clock, field->engine, step_ms);
        if (test_prng_chance(&member->prng, 1, 2)) test_sleep_ms(1);
    }
    atomic_store(&field->stop, 1);
}

/* ---- (b) adders -------------------------------------------------------------------------------------------------- */

static void add_by_the_clock(struct field *field, struct member *member, uint64_t number) {
    expect(tw_add(field->family, number_key(&number), 1, NULL) == TW_OK);
    member->sum++;
}

static void add_by_event_time(struct field *field, struct member *member, uint64_t number) {
    int64_t now_ms = stress_now_ms(field->engine);
    int64_t at_ms = now_ms - (int64_t)test_prng_below(&member->prng, (uint64_t)field->lateness_ms + 1500);
    if (at_ms < STRESS_START_MS) at_ms = STRESS_START_MS;
    tw_status status = tw_add_at(field->family, number_key(&number), 1, at_ms, NULL);
    expect(status == TW_OK || status == TW_ERR_LATE);
    if (status == TW_OK) {
        atomic_fetch_add(&field->added[window_of(at_ms)], 1);
        member->sum++;
    } else {
        expect(at_ms - at_ms % TW_SECOND + TW_SECOND + field->lateness_ms <= fake_clock_wall_ms(&field->clock));
        atomic_fetch_add(&field->late, 1);
    }
}

static void count_while_time_passes(struct member *member) {
    struct field *field = member->team->ctx;
    if (member->index == 0) {
        let_time_pass(field, member);
        return;
    }
    while (!atomic_load(&field->stop)) {
        uint64_t number = test_prng_below(&member->prng, field->keys);
        if (field->by_event_time)
            add_by_event_time(field, member, number);
        else
            add_by_the_clock(field, member, number);
        if (member->index == 1 &&
            test_prng_chance(&member->prng, 1, 16)) { /* also reads: windows of now, and some about to go */
            int64_t view;
            expect(tw_get(field->family, number_key(&number), &view) == TW_OK);
            struct tally tally = {.seen = NULL};
            int64_t at_ms = stress_now_ms(field->engine) - (int64_t)test_prng_below(&member->prng, 3000);
            tw_status status = tw_each(field->family, at_ms, tally_count, &tally);
            expect(status == TW_OK || status == TW_ERR_LATE);
            tw_stats stats;
            expect(tw_stats_read(field->engine, &stats) == TW_OK);
        }
    }
}

static void check_rollover(int64_t lateness_ms, bool by_event_time, bool hook_balks) {
    static struct field field;
    memset(&field, 0, sizeof field);
    field.windows = test_scale(200);
    if (field.windows > WINDOWS_MAX - 8) field.windows = WINDOWS_MAX - 8;
    field.keys = 200;
    field.lateness_ms = lateness_ms;
    field.by_event_time = by_event_time;
    atomic_store(&field.hook_balks, hook_balks);
    field_open(&field, TW_OWN_THREAD);
    int64_t added = team_work(5, count_while_time_passes, &field);
    int64_t late = atomic_load(&field.late);
    assert_i64_equal(test_stat_of(field.engine, late_increments), late);
    assert_i64_equal(test_stat_of(field.engine, increments), added);
    assert_i64_equal(test_stat_of(field.engine, overflow_increments), 0);
    atomic_store(&field.hook_balks, false); /* a call that is under way may still return false */
    stress_check_turn(field.engine);
    stress_close(field.engine, &field.clock); /* calls the hook for the windows that are still open */
    assert_i64_equal(field.told_sum, added);
    for (uint64_t window = 0; window < WINDOWS_MAX; window++) {
        if (field.told_times[window] > 1) fail_msg("window %d told %u times", (int)window, field.told_times[window]);
        if (by_event_time) assert_i64_equal(field.told[window], atomic_load(&field.added[window]));
    }
}

/* Goal: the hook gets exactly the added units, each window once and final (P1, P7, E18). Method: adders by the clock,
 * no lateness. */
TEST(each_window_is_reported_once_and_nothing_is_missing) {
    check_rollover(0, false, false);
}
/* Goal: the same for event times, window by window. A call that comes too late gets TW_ERR_LATE and is counted as late
 * (P7, P8). */
TEST(event_times_land_in_their_own_window_or_are_late) {
    check_rollover(2500, true, false);
}
TEST(event_times_without_lateness) {
    check_rollover(0, true, false);
}
/* Goal: a hook that returns false is called again, and no count is lost (R2). */
TEST(a_hook_that_returns_false_is_called_again) {
    check_rollover(500, true, true);
}

/* ---- (d) tw_once at boundaries ----------------------------------------------------------------------------------- */

static void be_first_while_time_passes(struct member *member) {
    struct field *field = member->team->ctx;
    if (member->index == 0) {
        let_time_pass(field, member);
        return;
    }
    while (!atomic_load(&field->stop)) {
        uint64_t number = test_prng_below(&member->prng, field->keys);
        int64_t before_ms = stress_now_ms(field->engine);
        bool first = false;
        expect(tw_once(field->family, number_key(&number), &first) == TW_OK);
        int64_t after_ms = stress_now_ms(field->engine);
        if (!first || window_of(before_ms) != window_of(after_ms)) continue; /* its window is not certain */
        expect(atomic_fetch_add(&field->firsts[window_of(before_ms) * field->keys + number], 1) == 0);
    }
}

/* Goal: each key is the first at most once per window, also at the very boundary. Method: only firsts whose window is
 * certain are noted. */
TEST(one_first_per_key_and_window) {
    static struct field field;
    memset(&field, 0, sizeof field);
    field.windows = test_scale(200);
    if (field.windows > WINDOWS_MAX - 8) field.windows = WINDOWS_MAX - 8;
    field.keys = 16;
    field.firsts = calloc((field.windows + 8) * field.keys, sizeof *field.firsts);
    assert_non_null(field.firsts);
    field_open(&field, TW_OWN_THREAD);
    team_work(5, be_first_while_time_passes, &field);
    stress_check_turn(field.engine);
    stress_close(field.engine, &field.clock);
    free(field.firsts);
}

/* Lives of keys in TW_WINDOW_FROM_FIRST families. A life is known by its end, which the verdict gives if the clock
 * stood still during the call. (A life begins with the call that made the counter, which is not always the admitted
 * one.) */
#define LIVES_MAX 8192
struct life {
    pthread_mutex_t lock;
    int64_t end_ms[LIVES_MAX];
    size_t count;
};

struct lives {
    struct field *field;
    struct life *lives;
};

static void live_while_time_passes(struct member *member) {
    struct lives *all = member->team->ctx;
    struct field *field = all->field;
    if (member->index == 0) {
        let_time_pass(field, member);
        return;
    }
    while (!atomic_load(&field->stop)) {
        uint64_t number = test_prng_below(&member->prng, field->keys);
        int64_t before_ms = stress_now_ms(field->engine);
        tw_verdict verdict;
        tw_status status = tw_acquire(field->family, number_key(&number), 1, 1, &verdict);
        int64_t after_ms = stress_now_ms(field->engine);
        expect(status == TW_OK || status == TW_DENIED);
        if (status != TW_OK || before_ms != after_ms || verdict.reset_after_ms <= 0) continue;
        struct life *life = &all->lives[number];
        pthread_mutex_lock(&life->lock);
        if (life->count < LIVES_MAX) life->end_ms[life->count++] = before_ms + verdict.reset_after_ms;
        pthread_mutex_unlock(&life->lock);
    }
}

static int by_time(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static size_t check_life(const struct field *field, uint64_t number, struct life *life) {
    qsort(life->end_ms, life->count, sizeof life->end_ms[0], by_time);
    for (size_t i = 1; i < life->count; i++)
        if (life->end_ms[i] - life->end_ms[i - 1] < field->ttl_ms)
            fail_msg("key %d: admitted in lives that end at %lld and %lld", (int)number,
                     (long long)(life->end_ms[i - 1] - STRESS_START_MS),
                     (long long)(life->end_ms[i] - STRESS_START_MS));
    return life->count;
}

/* Goal: no key has two lives at once (E22, E23), and each life admits one call (P7). Method: the limit is 1; the ends
 * of lives with an admitted call are at least a whole life apart. */
TEST(lives_from_first_do_not_overlap) {
    static struct field field;
    memset(&field, 0, sizeof field);
    field.windows = test_scale(800);
    if (field.windows > WINDOWS_MAX - 8) field.windows = WINDOWS_MAX - 8;
    field.keys = 12;
    field.ttl_ms = 2 * TW_SECOND;
    struct life *lives = calloc(field.keys, sizeof *lives);
    assert_non_null(lives);
    for (uint64_t number = 0; number < field.keys; number++) pthread_mutex_init(&lives[number].lock, NULL);
    struct lives all = {&field, lives};
    field_open(&field, TW_OWN_THREAD);
    team_work(5, live_while_time_passes, &all);
    stress_check_turn(field.engine);
    stress_close(field.engine, &field.clock);
    size_t admitted = 0;
    for (uint64_t number = 0; number < field.keys; number++) admitted += check_life(&field, number, &lives[number]);
    assert_true(admitted >= field.keys);
    free(lives);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void add_new_keys(struct member *member) {
    struct field *field = member->team->ctx;
    for (uint64_t round = 0; round < 2000; round++) {
        uint64_t number = test_prng_below(&member->prng, 4000);
        expect(tw_add(field->family, number_key(&number), 1, NULL) == TW_OK);
        member->sum++;
    }
}

/* Goal: after many roll-overs the high-water mark is the same as after a few: memory is reused (P6). */
TEST(memory_stays_flat_over_many_windows) {
    static struct field field;
    memset(&field, 0, sizeof field);
    field.keys = 4000;
    field_open(&field, TW_HOST_DRIVEN);
    int64_t high = 0;
    for (int window = 0; window < 40; window++) {
        team_work(3, add_new_keys, &field);
        for (int step = 0; step < 10; step++) {
            stress_pass(&field.clock, field.engine, 100);
            for (int turn = 0; turn < 3; turn++) assert_status(tw_turn(field.engine), TW_OK);
        }
        if (window == 5) high = test_stat_of(field.engine, memory_bytes_high);
    }
    assert_true(test_stat_of(field.engine, memory_bytes_high) <= high + high / 10);
    stress_check_turn(field.engine);
    stress_close(field.engine, &field.clock);
}
