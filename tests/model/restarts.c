/* restarts.c -- random lives of an engine without Redis, joined by tw_save() and tw_load(), compared with a twin that
 * never restarts.
 *
 * Goal: what is in the file is PARTIAL in the old process and final in the new one, whatever comes between: so over all
 * lives each window is final once, with all of its counts, and no count is lost or doubled.
 * Method: each seed makes some families and some lives. In a life there are adds, also early and late ones, decisions,
 * holds that are refused, watermarks, clock steps, turns, and hooks that return false. A life ends with tw_stop(), then
 * saves that may fail or be repeated, and turns as an engine's own thread makes them; the clock may go on at each step.
 * The next life may have less room, or have waited with empty windows before the load. TW_SEED repeats one.
 * The rules of adds are a subject of engine_model.c; this twin takes each answer as it is. */
#include "tests/model/twin.h"

#include "engine/core/family.h"
#include "engine/turn/turn.h"

#include <unistd.h>

#define FAMILIES_MAX 3u
#define KEYS 30u
#define START_MS INT64_C(1709200000000)

struct member {
    tw_family *family;
    struct twin twin;
    char name[24];
};

struct model {
    struct test_prng prng;
    struct fake_clock clock;
    tw_engine *engine;
    struct member members[FAMILIES_MAX];
    uint32_t member_count;
    bool has_saved; /* in this life */
    bool closing;   /* hooks return true */
    uint64_t step;
    const char *doing;
};

static struct model *running;
static uint64_t seed_running;
static char path[64];
static int64_t saves, finals, late_finals, refused_loads; /* over all seeds: shows if one is no longer tried */

static void fail_here(const char *file, int line) {
    printf("# at step %llu: %s\n", (unsigned long long)running->step, running->doing);
    test_seed_failed("restarts", seed_running);
    _fail(file, line);
}
#define check_that(x) ((x) ? (void)0 : (print_error("not so: %s\n", #x), fail_here(__FILE__, __LINE__)))
#define check_i64(got, want) check_i64_at((got), (want), #got, __FILE__, __LINE__)
static void check_i64_at(int64_t got, int64_t want, const char *text, const char *file, int line) {
    if (got == want) return;
    print_error("%s is %lld, should be %lld (%s)\n", text, (long long)got, (long long)want, tw_error_text());
    fail_here(file, line);
}

static uint64_t draw(struct model *model, uint64_t bound) {
    return test_prng_below(&model->prng, bound);
}
static bool chance(struct model *model, uint32_t percent) {
    return test_prng_chance(&model->prng, percent, 100);
}
#define PICK(model, ...) TEST_PRNG_PICK(&(model)->prng, __VA_ARGS__)

static tw_key key_of(uint32_t number, char text[80]) {
    int size =
        snprintf(text, 80, number % 3 == 0 ? "a key that is longer than a short one has to be: %u" : "k%u", number);
    return tw_bytes(text, (size_t)size);
}

/* Between two lives there is no engine. */
static int64_t now_of(struct model *model) {
    return model->engine != NULL ? twi_clock_read(&model->engine->clock) : fake_clock_wall_ms(&model->clock);
}

/* ---- what a window has ------------------------------------------------------------------------------------------- */

static int64_t sum_of(const struct twin_window *window) {
    int64_t sum = window->overflow;
    for (uint32_t key = 0; key < KEYS; key++) sum += window->count[key];
    return sum;
}

static bool has_counts(const struct twin_window *window) {
    bool has = window->overflow != 0;
    for (uint32_t key = 0; key < KEYS; key++) has |= window->count[key] != 0;
    return has;
}

static bool sees_all(void *ctx, const tw_count *count) {
    struct twin_window *seen = ctx;
    char text[80];
    if (count->key.size == 0) {
        seen->overflow = count->view;
        return true;
    }
    uint32_t key = 0;
    for (; key < KEYS; key++) {
        tw_key tried = key_of(key, text);
        if (tried.size == count->key.size && memcmp(tried.data, count->key.data, tried.size) == 0) break;
    }
    check_that(key < KEYS);
    seen->count[key] += count->view;
    return true;
}

static void compare(const struct twin_window *seen, const struct twin_window *window) {
    check_i64(seen->overflow, window->overflow);
    for (uint32_t key = 0; key < KEYS; key++) check_i64(seen->count[key], window->count[key]);
}

/* ---- the hook ---------------------------------------------------------------------------------------------------- */

static bool window_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct model *model = running;
    struct member *member = ctx;
    struct twin_window *window = twin_window_at(&member->twin, start_ms), seen = {.overflow = 0};
    if (!model->closing && chance(model, 20)) return false;
    check_i64(tw_each(family, start_ms, sees_all, &seen), TW_OK);
    if (window == NULL) { /* keys without counts are left of a load that was refused */
        check_that(!has_counts(&seen));
        return true;
    }
    compare(&seen, window);
    bool is_over = twin_is_over(&member->twin, end_ms, now_of(model)), is_partial = (flags & TW_CLOSED_PARTIAL) != 0;
    check_that(is_partial || is_over || model->closing);
    if (is_partial) check_that(model->has_saved || (!is_over && model->closing));
    if (is_partial || !has_counts(window)) return true;
    check_that(!model->has_saved); /* all that was not final is in the file */
    check_i64(++window->told, 1);
    finals++;
    return true;
}

/* ---- families ---------------------------------------------------------------------------------------------------- */

static tw_family_options draw_options(struct model *model, struct member *member) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = member->name;
    options.window = (uint32_t)PICK(model, TW_WINDOW_ALIGNED, TW_WINDOW_ALIGNED, TW_WINDOW_ALIGNED, TW_WINDOW_DAY,
                                    TW_WINDOW_FOREVER);
    if (options.window == TW_WINDOW_ALIGNED) options.window_ms = PICK(model, TW_SECOND, 7 * TW_SECOND, TW_MINUTE);
    options.keys_max = (uint64_t)PICK(model, 0, 0, 3, 20);
    options.on_full = (uint32_t)draw(model, 2);
    options.on_full_limit = TW_FULL_LIMIT_DENY;
    if (options.window == TW_WINDOW_FOREVER) return options;
    if (chance(model, 30)) options.limit_shape = TW_SHAPE_SLIDING;
    options.lateness_ms = PICK(model, 0, 0, 500, TW_MINUTE, TW_UNBOUNDED);
    options.earliness_ms = PICK(model, 0, 1, 1000, TW_HOUR);
    options.history_ms = options.limit_shape == TW_SHAPE_SLIDING ? 0 : PICK(model, 0, 0, TW_NONE, 1000, TW_DAY);
    options.on_window_closed = window_closed;
    options.closed_ctx = member;
    return options;
}

static void settle(struct model *model) {
    for (int turns = 0; turns == 0 || (turns < 1000 && tw_timeout_ms(model->engine) == 0); turns++)
        check_i64(tw_turn(model->engine), TW_OK);
}

static void pass(struct model *model) {
    struct member *member = &model->members[draw(model, model->member_count)];
    int64_t start_ms, end_ms;
    twin_span(&member->twin, now_of(model), &start_ms, &end_ms);
    int64_t length_ms = end_ms == TW_UNBOUNDED ? TW_MINUTE : end_ms - start_ms;
    fake_clock_advance_ms(&model->clock, PICK(model, 0, 1, length_ms / 2, length_ms, 2 * length_ms, 100, TW_MINUTE));
}

/* The turns that the engine's own thread would make after tw_stop(). */
static void turn_at_end(struct model *model) {
    for (uint64_t turns = draw(model, 6); turns != 0; turns--) {
        check_that(twi_turn_take(model->engine));
        twi_turn_run(model->engine);
        twi_turn_leave(model->engine);
    }
}

/* ---- the steps of a life ----------------------------------------------------------------------------------------- */

static void note_added(struct model *model, struct member *member, uint32_t key, int64_t delta, int64_t at_ms,
                       tw_status status) {
    (void)model;
    if (status != TW_OK && status != TW_OVERFLOWED) return;
    struct twin_window *window = twin_window_make(&member->twin, at_ms);
    check_i64(window->told, 0);
    if (status == TW_OK)
        window->count[key] += delta;
    else
        window->overflow += delta;
}

static void count(struct model *model) {
    struct member *member = &model->members[draw(model, model->member_count)];
    uint32_t key = (uint32_t)draw(model, KEYS);
    char text[80];
    int64_t delta = test_prng_between(&model->prng, -3, 9), now_ms = now_of(model), at_ms = now_ms;
    bool has_starts = twin_has_starts(&member->twin);
    tw_verdict verdict;
    tw_status status;
    switch (draw(model, 10)) {
    case 0:
    case 1:
        if (!has_starts) return;
        at_ms += PICK(model, -TW_MINUTE, -1000, -400, 1, 900, 5000, TW_MINUTE, TW_HOUR);
        status = tw_add_at(member->family, key_of(key, text), delta, at_ms, NULL);
        break;
    case 2:
        delta = 1;
        status = tw_acquire(member->family, key_of(key, text), delta, 12, &verdict);
        if (status == TW_OK && verdict.decided_by == TW_BY_FULL) return;
        break;
    case 3: /* denied, or refused for the window or because the table is full */
        status = tw_hold(member->family, key_of(key, text), -1, &verdict);
        check_that(status == TW_ERR_MODE || status == TW_ERR_RANGE);
        if (!has_starts && twin_window_make(&member->twin, now_ms)->count[key] >= 0) {
            status = tw_hold(member->family, key_of(key, text), 0, &verdict);
            check_that(status == TW_DENIED || status == TW_ERR_FULL);
        }
        if (has_starts || member->twin.options.on_full != TW_ON_FULL_REJECT) return;
        for (key = 0; key < KEYS; key++) { /* a key for which there is no room */
            struct twin_window *window = twin_window_make(&member->twin, now_ms);
            if (member->twin.options.keys_max == 0 || window->count[key] != 0) continue;
            if (tw_add(member->family, key_of(key, text), 1, NULL) == TW_ERR_FULL)
                check_i64(tw_hold(member->family, key_of(key, text), 5, &verdict), TW_ERR_FULL);
            else
                window->count[key]++;
            return;
        }
        return;
    case 4:
        if (!has_starts || member->twin.options.lateness_ms != TW_UNBOUNDED || !chance(model, 20)) return;
        at_ms -= PICK(model, 0, 1000, TW_MINUTE);
        if (tw_close_until(member->family, at_ms) == TW_OK && at_ms > member->twin.watermark_ms)
            member->twin.watermark_ms = at_ms;
        return;
    default: status = tw_add(member->family, key_of(key, text), delta, NULL);
    }
    note_added(model, member, key, delta, at_ms, status);
}

static void live(struct model *model) {
    model->doing = "live";
    for (uint64_t steps = 5 + draw(model, 60); steps != 0; steps--) {
        model->step++;
        if (chance(model, 80)) count(model);
        if (chance(model, 10)) pass(model);
        if (chance(model, 25)) settle(model);
    }
}

static void end_life(struct model *model) {
    model->doing = "save";
    check_i64(tw_stop(model->engine), TW_OK);
    if (chance(model, 30)) pass(model);
    if (chance(model, 30)) turn_at_end(model);
    if (chance(model, 20)) check_i64(tw_save(model->engine, "/proc/self/counts"), TW_ERR_OPTIONS);
    for (uint64_t times = 1 + draw(model, 2); times != 0; times--) {
        if (chance(model, 30)) turn_at_end(model);
        check_i64(tw_save(model->engine, path), TW_OK);
        check_that(strcmp(tw_error_text(), "Every family was saved.") == 0);
        model->has_saved = true;
        saves++;
        if (chance(model, 50)) pass(model);
        if (chance(model, 50)) turn_at_end(model);
    }
    model->doing = "close";
    model->closing = true;
    check_i64(tw_close(model->engine, 0), TW_OK);
    model->closing = model->has_saved = false;
    model->engine = NULL;
}

/* What was not final yet is there, key by key. Where there was no room for some keys, the overflow counter has their
 * counts. */
static void check_loaded(struct model *model, bool overflowed) {
    for (uint32_t i = 0; i < model->member_count; i++) {
        struct member *member = &model->members[i];
        bool has_starts = twin_has_starts(&member->twin);
        for (size_t w = 0; w < member->twin.window_count; w++) {
            struct twin_window *window = member->twin.windows[w], seen = {.overflow = 0};
            if (window->told != 0 || !has_counts(window)) continue;
            check_i64(tw_each(member->family, has_starts ? window->start_ms : TW_NOW, sees_all, &seen), TW_OK);
            check_i64(sum_of(&seen), sum_of(window));
            if (!overflowed) compare(&seen, window);
            memcpy(window->count, seen.count, sizeof seen.count);
            window->overflow = seen.overflow;
            if (has_starts && twin_is_over(&member->twin, window->end_ms, now_of(model))) late_finals++;
        }
    }
}

static void begin_engine(struct model *model, bool is_first) {
    tw_options options;
    tw_options_init(&options);
    fake_clock_install(&model->clock, &options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = UINT64_C(64) << 20;
    check_i64(tw_open(&options, &model->engine), TW_OK);
    for (uint32_t i = 0; i < model->member_count; i++) {
        struct member *member = &model->members[i];
        if (is_first) {
            tw_family_options drawn = draw_options(model, member);
            twin_make(&member->twin, &drawn);
            member->twin.options.name = member->name;
        }
        /* after a load of more keys than keys_max, what find no room differs from life to life */
        member->twin.options.keys_expected = (uint64_t)PICK(model, 0, 0, 50);
        if (!is_first) member->twin.options.keys_max = (uint64_t)PICK(model, 0, 3, 20);
        check_i64(tw_family_open(model->engine, &member->twin.options, &member->family), TW_OK);
    }
}

static void begin_life(struct model *model) {
    model->doing = "load";
    if (chance(model, 30)) pass(model);
    begin_engine(model, false);
    while (chance(model, 30)) {
        pass(model);
        settle(model);
    }
    tw_status status = tw_load(model->engine, path);
    while (status == TW_ERR_FULL) { /* more room, and again */
        refused_loads++;
        for (uint32_t i = 0; i < model->member_count; i++) {
            model->members[i].twin.options.keys_max = 0;
            check_i64(tw_family_set(model->members[i].family, &model->members[i].twin.options), TW_OK);
        }
        if (chance(model, 30)) pass(model);
        status = tw_load(model->engine, path);
        check_that(status != TW_ERR_FULL);
    }
    check_that(status == TW_OK || status == TW_OVERFLOWED);
    check_loaded(model, status == TW_OVERFLOWED);
    check_i64(tw_load(model->engine, path), TW_ERR_MODE);
    for (uint32_t i = 0; i < model->member_count; i++) { /* a watermark is the host's, who sets it again */
        int64_t watermark_ms = model->members[i].twin.watermark_ms;
        if (watermark_ms != INT64_MIN) check_i64(tw_close_until(model->members[i].family, watermark_ms), TW_OK);
    }
}

/* Everything becomes final. */
static void end_run(struct model *model) {
    model->doing = "the end";
    model->closing = true;
    for (uint32_t i = 0; i < model->member_count; i++) {
        struct member *member = &model->members[i];
        fake_clock_advance_ms(&model->clock, TW_DAY);
        if (member->twin.options.lateness_ms != TW_UNBOUNDED) continue;
        check_i64(tw_close_until(member->family, now_of(model)), TW_OK);
        member->twin.watermark_ms = now_of(model);
    }
    fake_clock_advance_ms(&model->clock, TW_DAY);
    settle(model);
    for (uint32_t i = 0; i < model->member_count; i++) {
        struct member *member = &model->members[i];
        for (size_t w = 0; w < member->twin.window_count; w++) {
            struct twin_window *window = member->twin.windows[w];
            bool is_due = twin_has_starts(&member->twin) && has_counts(window) &&
                          twin_is_over(&member->twin, window->end_ms, now_of(model));
            if (is_due) check_i64(window->told, 1);
        }
    }
    check_i64(tw_close(model->engine, 0), TW_OK);
    for (uint32_t i = 0; i < model->member_count; i++) twin_free(&model->members[i].twin);
}

static void run_seed(uint64_t seed) {
    struct model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    running = model;
    seed_running = seed;
    test_seed_begins("restarts", seed);
    test_prng_seed(&model->prng, seed);
    fake_clock_init(&model->clock, START_MS + (int64_t)draw(model, TW_DAY));
    model->member_count = 1 + (uint32_t)draw(model, FAMILIES_MAX);
    for (uint32_t i = 0; i < model->member_count; i++) snprintf(model->members[i].name, 24, "family-%u", i);
    model->doing = "open";
    begin_engine(model, true);
    live(model);
    for (uint64_t lives = 1 + draw(model, 4); lives != 0; lives--) {
        end_life(model);
        begin_life(model);
        live(model);
    }
    end_run(model);
    free(model);
    test_seed_ends();
}

TEST(over_all_lives_each_window_is_final_once_with_all_of_its_counts) {
    enum { SEEDS_MAX = 100000 };
    static uint64_t seeds[SEEDS_MAX];
    char memory[] = "/dev/shm/restarts-XXXXXX", disk[] = "/tmp/restarts-XXXXXX", *folder = mkdtemp(memory);
    if (folder == NULL) folder = mkdtemp(disk); /* slower: each save waits for the disk */
    assert_non_null(folder);
    snprintf(path, sizeof path, "%s/counts", folder);
    size_t count = test_seeds("restarts", test_scale(1500), seeds, SEEDS_MAX);
    for (size_t i = 0; i < count; i++) run_seed(seeds[i]);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
    printf("# %zu seeds; %lld saves, %lld windows final, %lld loaded after their end, %lld loads refused\n", count,
           (long long)saves, (long long)finals, (long long)late_finals, (long long)refused_loads);
    if (count > 500) assert_true(finals > 0 && late_finals > 0 && refused_loads > 0);
}
