/* engine_model.c -- random operations on a host-driven engine without Redis, on a clock that the test controls,
 * compared with a simple twin. In half of the seeds families are also of hashes and sorted sets: without Redis that
 * shows in the keys of hashes, which are a subject, a separator and a field, and in tw_each_field().
 *
 * Goal: every answer, count, verdict and hook is what the header says, in any order of calls, clock steps and turns,
 * whichever path a call takes.
 * Method: each seed makes an engine, some families of any kind and some hundred operations; each answer is compared
 * with the twin's. The same seed gives the same run: nothing depends on an address, a hash or the time of day. TW_SEED
 * repeats one.
 * Ways: an add may go through a pin that was opened some windows ago, wish no view, or be made inside a section; a
 * decision may wish no verdict. In half of the seeds the engine's time is where an engine with a thread writes it, so
 * that the shortest paths are taken (add_fast.h), and limits have lines of statistics, as those need (acquire_fast.h);
 * in half the hash is the portable one. Some engines live before 1970. */
#include "tests/model/twin.h"

#include "engine/core/family.h"
#include "engine/limit/limit_stats.h"
#include "engine/memory/arena.h"
#include "engine/table/cell.h"
#include "engine/table/packed.h"
#include "engine/turn/turn_check.h"
#include "engine/core/window_map.h"

#define FAMILIES_MAX 4u
#define START_MS INT64_C(1709200000000) /* 2024-02-29T09:46:40Z: a leap day, a Thursday */

#define PINS 3u

struct member {
    tw_family *family;
    struct twin twin;
    tw_pin *pins[PINS]; /* NULL: not opened yet */
    uint32_t pinned[PINS];
    char name[24];
    int64_t told_ms; /* the start of the window whose hook was called last */
    bool is_gone;    /* its family was closed: its remaining windows are being reported */
};
#define GONE_MAX 256u

struct model {
    struct test_prng prng;
    bool shaped; /* families are drawn to be of strings, hashes or sorted sets */
    struct test_prng shapes;
    struct test_prng ways;
    bool holds_time;
    struct fake_clock clock;
    tw_engine *engine;
    struct member members[FAMILIES_MAX];
    uint32_t member_count;
    struct member gone[GONE_MAX];
    uint32_t gone_count;
    bool tight; /* memory may run out at any insert */
    bool stopped;
    bool closing;
    int64_t settled_ms; /* engine time up to which all turns have run */
    int64_t now_ms;
    int64_t increments, overflow_increments, rejected_increments, late_increments;
    uint64_t step;
    const char *doing;
};

static uint64_t seed_running;
static const char *name_running; /* of the list of seeds */
/* Over all seeds: shows if history is no longer tried, or hashes. */
static int64_t windows_packed, packs_refused, packed_reads, keys_refused, fields_seen;
static struct model *running;

static unsigned char key_bytes[TWIN_KEYS][TW_KEY_SIZE_MAX];
static size_t key_sizes[TWIN_KEYS];

/* Keys of every size class, with every kind of byte; three each differ only in their last byte. As keys of a hash most
 * of them have a good place for the separator, and these three are fields of one subject. */
static void make_keys(void) {
    static const size_t sizes[] = {1,  2,  7,  8,  9,  15,  16,  17,  31,  32,   33,
                                   63, 64, 65, 96, 97, 224, 225, 480, 481, 1023, 1024};
    for (uint32_t key = 0; key < TWIN_KEYS; key++) {
        size_t size = sizes[(key / 3 + 2) % (sizeof sizes / sizeof *sizes)];
        memset(key_bytes[key], "\0\xff\r\nk"[key / 3 % 5], size);
        if (size > 2) key_bytes[key][size / 2] = '|';
        key_bytes[key][size - 1] = (unsigned char)key;
        key_sizes[key] = size;
    }
}

static tw_key key_of(uint32_t key) {
    return tw_bytes(key_bytes[key], key_sizes[key]);
}

static void fail_here(const char *file, int line) {
    printf("# at step %llu: %s\n", (unsigned long long)running->step, running->doing);
    test_seed_failed(name_running, seed_running);
    _fail(file, line);
}
#define check_that(x) ((x) ? (void)0 : (print_error("not so: %s\n", #x), fail_here(__FILE__, __LINE__)))
#define check_i64(got, want) check_i64_at((got), (want), #got, __FILE__, __LINE__)
static void check_i64_at(int64_t got, int64_t want, const char *text, const char *file, int line) {
    if (got == want) return;
    print_error("%s is %lld, should be %lld\n", text, (long long)got, (long long)want);
    fail_here(file, line);
}

/* Whether it is so; then the call must have answered this. */
static bool answers(bool is_so, tw_status status, tw_status want) {
    if (is_so) check_i64(status, want);
    return is_so;
}

static uint64_t draw(struct model *model, uint64_t bound) {
    return test_prng_below(&model->prng, bound);
}
static bool chance(struct model *model, uint32_t percent) {
    return test_prng_chance(&model->prng, percent, 100);
}
#define PICK(model, ...) TEST_PRNG_PICK(&(model)->prng, __VA_ARGS__)

/* ---- hashes ------------------------------------------------------------------------------------------------------ */

/* How long the subject of that key is: up to the last separator. 0: no key of a hash. */
static size_t subject_size(const struct twin *twin, uint32_t key) {
    size_t found = 0;
    for (size_t at = 0; at < key_sizes[key]; at++)
        if (key_bytes[key][at] == (unsigned char)twin->options.key_separator) found = at;
    return found + 1 == key_sizes[key] ? 0 : found;
}

/* The answer to any call with this key is TW_ERR_KEY, and nothing changes. */
static bool key_is_wrong(const struct twin *twin, uint32_t key, tw_status status) {
    if (twin->options.redis_shape != TW_REDIS_HASH || subject_size(twin, key) != 0) return false;
    check_i64(status, TW_ERR_KEY);
    keys_refused++;
    return true;
}

/* ---- visiting: what tw_each() shows must be what the twin has
 * -------------------------------------------------------- */

struct visit {
    struct model *model;
    struct twin *twin;
    bool seen[TWIN_KEYS];
    uint64_t counters;
    int64_t overflow;
};

static uint32_t number_of(tw_key key) {
    for (uint32_t number = 0; number < TWIN_KEYS; number++)
        if (key.size == key_sizes[number] && memcmp(key.data, key_bytes[number], key.size) == 0) return number;
    return TWIN_KEYS;
}

static bool visit_one(void *ctx, const tw_count *count) {
    struct visit *visit = ctx;
    check_i64(count->view, count->local);
    if (count->key.size == 0) {
        visit->overflow += count->local;
        return true;
    }
    uint32_t key = number_of(count->key);
    check_that(key < TWIN_KEYS);
    check_that(!visit->seen[key]);
    visit->seen[key] = true;
    visit->counters++;
    bool from_first = visit->twin->options.window == TW_WINDOW_FROM_FIRST;
    struct twin_window *window = from_first ? twin_window_of_key(visit->twin, key, visit->model->now_ms)
                                            : twin_window_at(visit->twin, count->start_ms);
    check_that(window != NULL && window->present[key]);
    check_i64(count->local, window->count[key]);
    check_i64(count->start_ms, window->start_ms);
    check_i64(count->end_ms, from_first ? window->life_end_ms[key] : window->end_ms);
    return true;
}

/* All counters of one window; in a TW_WINDOW_FROM_FIRST family, all that live. */
static void check_visit(struct visit *visit, struct twin_window *window) {
    struct twin *twin = visit->twin;
    uint64_t counters = 0;
    int64_t overflow = 0;
    for (uint32_t key = 0; key < TWIN_KEYS; key++) {
        if (twin->options.window == TW_WINDOW_FROM_FIRST)
            counters += twin_window_of_key(twin, key, visit->model->now_ms) != NULL;
        else
            counters += window != NULL && window->present[key];
    }
    if (twin->options.window == TW_WINDOW_FROM_FIRST) {
        int64_t start_ms, end_ms, before_ms;
        twin_span(twin, visit->model->now_ms, &start_ms, &end_ms);
        before_ms = start_ms - (end_ms - start_ms);
        if (twin_window_at(twin, start_ms) != NULL) overflow += twin_window_at(twin, start_ms)->overflow;
        if (twin_window_at(twin, before_ms) != NULL) overflow += twin_window_at(twin, before_ms)->overflow;
    } else if (window != NULL) {
        overflow = window->overflow;
    }
    check_i64((int64_t)visit->counters, (int64_t)counters);
    check_i64(visit->overflow, overflow);
}

/* ---- the hook ---------------------------------------------------------------------------------------------------- */

/* The member that the family was opened for, or what is left of it; the latest one, if memory was reused. */
static struct member *member_of(struct model *model, struct member *member, tw_family *family) {
    if (member->family == family) return member;
    for (uint32_t i = model->gone_count; i != 0; i--)
        if (model->gone[i - 1].family == family) return &model->gone[i - 1];
    return NULL;
}

static bool window_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct model *model = running;
    struct member *member = member_of(model, ctx, family);
    check_that(member != NULL);
    struct twin_window *window = twin_window_at(&member->twin, start_ms);
    check_that(window != NULL && twin_has_counted(window));
    check_i64(end_ms, window->end_ms);
    check_i64(window->told, 0);
    model->now_ms = twi_clock_read(&model->engine->clock);
    bool over = twin_is_over(&member->twin, end_ms, model->now_ms);
    check_i64(flags, model->now_ms < end_ms || (member->is_gone && !over) ? TW_CLOSED_PARTIAL : 0);
    check_that(over || model->closing || member->is_gone);
    check_that(start_ms >= member->told_ms); /* in order of time */
    member->told_ms = start_ms;
    struct visit visit = {.model = model, .twin = &member->twin};
    check_i64(tw_each(family, start_ms, visit_one, &visit), TW_OK);
    check_visit(&visit, window);
    check_i64(tw_turn(model->engine), TW_ERR_MODE);
    check_i64(tw_flush(model->engine, 0), TW_ERR_MODE);
    check_i64(tw_close(model->engine, 0), TW_ERR_MODE);
    check_i64(tw_family_close(family), TW_ERR_MODE);
    if (!model->closing && !member->is_gone && chance(model, 30)) return false;
    window->told++;
    return true;
}

/* ---- families ---------------------------------------------------------------------------------------------------- */

static tw_family_options draw_options(struct model *model, struct member *member) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = member->name;
    options.window =
        (uint32_t)PICK(model, TW_WINDOW_ALIGNED, TW_WINDOW_ALIGNED, TW_WINDOW_ALIGNED, TW_WINDOW_FROM_FIRST,
                       TW_WINDOW_FROM_FIRST, TW_WINDOW_FOREVER, TW_WINDOW_DAY, TW_WINDOW_WEEK, TW_WINDOW_MONTH);
    bool has_starts = options.window != TW_WINDOW_FROM_FIRST && options.window != TW_WINDOW_FOREVER;
    if (options.window == TW_WINDOW_ALIGNED || options.window == TW_WINDOW_FROM_FIRST)
        options.window_ms = PICK(model, 0, TW_SECOND, 7 * TW_SECOND, TW_MINUTE, TW_HOUR, TW_DAY);
    options.utc_offset_ms = PICK(model, 0, 0, 8 * TW_HOUR, -330 * TW_MINUTE);
    options.week_start = (uint32_t)draw(model, 7);
    if (has_starts) {
        options.lateness_ms = PICK(model, 0, 0, 500, TW_MINUTE, TW_DAY, TW_UNBOUNDED);
        options.earliness_ms = PICK(model, 0, 0, 1, TW_HOUR, TW_UNBOUNDED);
        options.history_ms = PICK(model, 0, 0, TW_NONE, 1000, TW_DAY, TW_UNBOUNDED);
        if (chance(model, 70)) {
            options.on_window_closed = window_closed;
            options.closed_ctx = member;
        }
    }
    options.keys_max = (uint64_t)PICK(model, 0, 0, 1, 3, 20, 80);
    if (model->tight && chance(model, 40)) options.memory_share = (uint64_t)PICK(model, 1024, 4096, 20000, 100000);
    if (options.memory_share != 0 && has_starts) options.history_ms = TW_NONE; /* in a share, history may give way */
    options.on_full = (uint32_t)draw(model, 2);
    options.on_full_limit = (uint32_t)draw(model, 2);
    options.keys_expected = (uint64_t)PICK(model, 0, 0, 50, 130, 2000);
    if (options.memory_share != 0 && options.keys_expected > options.memory_share / 96)
        options.keys_expected = 0; /* else refused: its share could never hold that many */
    if (model->shaped && options.window != TW_WINDOW_FROM_FIRST)
        options.redis_shape = (uint32_t)test_prng_below(&model->shapes, 3);
    if (options.redis_shape == TW_REDIS_HASH) /* of a few, no key is good but those of one kind of byte */
        options.key_separator = "||||k\r\n\xff"[test_prng_below(&model->shapes, 8)];
    return options;
}

static void open_member(struct model *model, struct member *member) {
    tw_family_options options = draw_options(model, member);
    tw_status status = tw_family_open(model->engine, &options, &member->family);
    if (status == TW_ERR_OPTIONS && options.memory_share != 0) { /* others have, or use, too much to set it aside */
        options.memory_share = 0;
        status = tw_family_open(model->engine, &options, &member->family);
    }
    check_i64(status, TW_OK);
    twin_make(&member->twin, &options);
    options.name = member->name;
    member->told_ms = INT64_MIN;
    if (!model->holds_time) return;
    twi_store_relaxed(&member->family->requests.limit_lines, true);
    twi_limit_stats_turn(member->family);
}

static void close_pins(struct member *member) {
    for (size_t i = 0; i < PINS; i++) tw_pin_close(member->pins[i]);
    memset(member->pins, 0, sizeof member->pins);
}

static void close_member(struct model *model, struct member *member) {
    check_that(model->gone_count < GONE_MAX);
    struct member *gone = &model->gone[model->gone_count++];
    close_pins(member);
    *gone = *member; /* its windows, too */
    gone->is_gone = true;
    check_i64(tw_family_close(member->family), TW_OK);
    memset(&member->twin, 0, sizeof member->twin);
    member->family = NULL;
}

/* ---- adding ------------------------------------------------------------------------------------------------------ */

static bool is_within(int64_t value) {
    return value <= TW_COUNT_MAX && value >= -TW_COUNT_MAX;
}

/* A new key may be refused only if the bound is reached, or if memory may be short. */
static bool may_be_full(const struct model *model, const struct twin *twin, const struct twin_window *window) {
    return model->tight || (twin->options.keys_max != 0 && window->keys >= twin->options.keys_max);
}
static bool must_be_full(const struct twin *twin, const struct twin_window *window) {
    return twin->options.keys_max != 0 && window->keys >= twin->options.keys_max;
}

static void begin_key(struct twin *twin, struct twin_window *window, uint32_t key, int64_t now_ms) {
    check_that(!must_be_full(twin, window));
    check_that(!window->present[key]);
    window->present[key] = true;
    window->count[key] = 0;
    if (twin->options.window == TW_WINDOW_FROM_FIRST)
        window->life_end_ms[key] = now_ms + (window->end_ms - window->start_ms);
    window->keys++;
}

/* Checks the answer of an add to a window that takes counts. */
static void check_added(struct model *model, struct member *member, uint32_t key, int64_t delta, int64_t unix_ms,
                        tw_status status, int64_t view) {
    struct twin *twin = &member->twin;
    struct twin_window *window =
        twin->options.window == TW_WINDOW_FROM_FIRST ? twin_window_of_key(twin, key, unix_ms) : NULL;
    if (window == NULL) window = twin_window_make(twin, unix_ms);
    if (window->present[key]) {
        int64_t sum = window->count[key] + delta;
        check_i64(status, is_within(sum) ? TW_OK : TW_ERR_RANGE);
        if (status != TW_OK) return;
        window->count[key] = sum;
    } else if (status == TW_OK) {
        begin_key(twin, window, key, model->now_ms);
        window->count[key] = delta;
    } else if (status == TW_OVERFLOWED) {
        check_that(may_be_full(model, twin, window) && twin->options.on_full == TW_ON_FULL_OVERFLOW);
        window->overflow += delta;
        check_i64(view, window->overflow);
        model->overflow_increments++;
        model->increments++;
        return;
    } else if (status == TW_ERR_RANGE) {
        check_that(may_be_full(model, twin, window) && !is_within(window->overflow + delta));
        return;
    } else {
        check_i64(status, TW_ERR_FULL);
        check_that(may_be_full(model, twin, window));
        check_that(twin->options.on_full == TW_ON_FULL_REJECT || model->tight);
        model->rejected_increments++;
        return;
    }
    check_i64(view, window->count[key]);
    model->increments++;
}

static int64_t draw_delta(struct model *model) {
    if (chance(model, 80)) return test_prng_between(&model->prng, -5, 20);
    return PICK(model, 0, TW_DELTA_MAX, -TW_DELTA_MAX, TW_DELTA_MAX + 1, -TW_DELTA_MAX - 1, INT64_MAX, INT64_MIN,
                (INT64_C(1) << 40) - 1, INT64_C(1) << 40, -(INT64_C(1) << 40));
}

static uint32_t draw_key(struct model *model) {
    return (uint32_t)draw(model, chance(model, 70) ? 8 : TWIN_KEYS);
}

static struct member *draw_member(struct model *model) {
    return &model->members[draw(model, model->member_count)];
}

static int64_t draw_moment(struct model *model, const struct twin *twin) {
    int64_t start_ms, end_ms;
    twin_span(twin, model->now_ms, &start_ms, &end_ms);
    if (end_ms == TW_UNBOUNDED || chance(model, 5))
        return PICK(model, INT64_MIN, INT64_MAX, 0, -1, INT64_C(253402300800000), model->now_ms, -TW_DAY);
    int64_t length_ms = end_ms - start_ms;
    switch (draw(model, 4)) {
    case 0: return start_ms + PICK(model, -1, 0, 1) + length_ms * test_prng_between(&model->prng, -3, 3);
    case 1: return test_prng_between(&model->prng, start_ms, end_ms - 1);
    case 2: return model->now_ms + PICK(model, 0, 1, -1, TW_HOUR, -TW_HOUR, 1000, -1000);
    default: return test_prng_between(&model->prng, model->now_ms - 5 * length_ms, model->now_ms + 3 * length_ms);
    }
}

static bool calendar_knows(int64_t unix_ms) {
    return unix_ms >= INT64_C(-30610224000000) && unix_ms <= INT64_C(253370764799999);
}

static bool delta_is_wrong(int64_t delta) {
    return delta > TW_DELTA_MAX || delta < -TW_DELTA_MAX;
}

static void check_add(struct model *model, struct member *member, uint32_t key, int64_t delta, tw_status status,
                      int64_t view) {
    if (answers(delta_is_wrong(delta), status, TW_ERR_RANGE)) return;
    if (key_is_wrong(&member->twin, key, status)) return;
    if (answers(model->stopped, status, TW_ERR_CLOSED)) return;
    check_added(model, member, key, delta, model->now_ms, status, view);
}

static void check_add_at(struct model *model, struct member *member, uint32_t key, int64_t delta, int64_t unix_ms,
                         tw_status status, int64_t view) {
    if (answers(delta_is_wrong(delta), status, TW_ERR_RANGE)) return;
    if (answers(!twin_has_starts(&member->twin), status, TW_ERR_MODE)) return;
    if (answers(!calendar_knows(unix_ms), status, TW_ERR_RANGE)) return;
    if (key_is_wrong(&member->twin, key, status)) return;
    if (answers(model->stopped, status, TW_ERR_CLOSED)) return;
    tw_status may = twin_may_add_at(&member->twin, unix_ms, model->now_ms);
    if (may == TW_ERR_LATE) model->late_increments++;
    if (answers(may != TW_OK, status, may)) return;
    check_added(model, member, key, delta, unix_ms, status, view);
}

/* What the view of an add would have been, by what it answered. */
static int64_t view_by_twin(struct model *model, struct member *member, uint32_t key, int64_t delta, tw_status status) {
    struct twin *twin = &member->twin;
    struct twin_window *window = twin_window_of_key(twin, key, model->now_ms);
    if (status == TW_OK) return window != NULL ? window->count[key] + delta : delta;
    int64_t start_ms, end_ms;
    twin_span(twin, model->now_ms, &start_ms, &end_ms);
    window = twin_window_at(twin, start_ms);
    return status == TW_OVERFLOWED && window != NULL ? window->overflow + delta : delta;
}

/* A pin of that key; NULL: it has none, or must not have one. */
static tw_pin *pin_of(struct model *model, struct member *member, uint32_t key) {
    size_t i = test_prng_below(&model->ways, PINS);
    if (member->pins[i] != NULL && member->pinned[i] == key) return member->pins[i];
    if (model->stopped || (member->twin.options.redis_shape == TW_REDIS_HASH && subject_size(&member->twin, key) == 0))
        return NULL;
    tw_pin_close(member->pins[i]);
    check_i64(tw_pin_open(member->family, key_of(key), &member->pins[i]), TW_OK);
    member->pinned[i] = key;
    return member->pins[i];
}

static void do_add(struct model *model) {
    struct member *member = draw_member(model);
    uint32_t key = draw_key(model);
    int64_t delta = draw_delta(model), view = 0;
    bool blind = test_prng_chance(&model->ways, 1, 3), inside = test_prng_chance(&model->ways, 1, 8);
    tw_pin *pin = test_prng_chance(&model->ways, 1, 3) ? pin_of(model, member, key) : NULL;
    if (inside) tw_enter(model->engine);
    tw_status status = pin != NULL ? tw_pin_add(pin, delta, blind ? NULL : &view)
                                   : tw_add(member->family, key_of(key), delta, blind ? NULL : &view);
    if (inside) tw_leave(model->engine);
    if (blind && status >= 0) view = view_by_twin(model, member, key, delta, status);
    check_add(model, member, key, delta, status, view);
}

static void do_add_at(struct model *model) {
    struct member *member = draw_member(model);
    uint32_t key = draw_key(model);
    int64_t delta = draw_delta(model), unix_ms = draw_moment(model, &member->twin), view = 0;
    tw_status status = tw_add_at(member->family, key_of(key), delta, unix_ms, &view);
    check_add_at(model, member, key, delta, unix_ms, status, view);
}

static tw_status worse(tw_status a, tw_status b) {
    if (a < 0 || b < 0) return a < b ? a : b;
    return a > b ? a : b;
}

static void do_many(struct model *model) {
    struct member *member = draw_member(model);
    enum { MANY = 70 };
    tw_key keys[MANY];
    uint32_t numbers[MANY];
    int64_t deltas[MANY], moments[MANY], views[MANY];
    tw_status each[MANY], worst = TW_OK;
    size_t count = draw(model, MANY + 1);
    bool at = chance(model, 40), ones = chance(model, 30);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = draw_key(model);
        keys[i] = key_of(numbers[i]);
        deltas[i] = ones ? 1 : draw_delta(model);
        moments[i] = draw_moment(model, &member->twin);
        views[i] = 0;
    }
    tw_status status = at ? tw_add_many_at(member->family, keys, ones ? NULL : deltas, count, moments, NULL, each)
                          : tw_add_many(member->family, keys, ones ? NULL : deltas, count, views, each);
    for (size_t i = 0; i < count; i++) {
        worst = worse(worst, each[i]);
        if (at) { /* no views are given: uses the twin's value */
            struct twin_window *window = NULL;
            int64_t start_ms, end_ms;
            if (each[i] >= 0) {
                twin_span(&member->twin, moments[i], &start_ms, &end_ms);
                window = twin_window_at(&member->twin, start_ms);
                views[i] = each[i] == TW_OVERFLOWED ? (window != NULL ? window->overflow : 0) + deltas[i]
                           : window != NULL && window->present[numbers[i]] ? window->count[numbers[i]] + deltas[i]
                                                                           : deltas[i];
            }
            check_add_at(model, member, numbers[i], deltas[i], moments[i], each[i], views[i]);
        } else {
            check_add(model, member, numbers[i], deltas[i], each[i], views[i]);
        }
    }
    check_i64(status, worst);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int64_t value_now(struct model *model, struct member *member, uint32_t key) {
    struct twin_window *window = twin_window_of_key(&member->twin, key, model->now_ms);
    return window != NULL ? window->count[key] : 0;
}

static void do_get(struct model *model) {
    struct member *member = draw_member(model);
    uint32_t key = draw_key(model);
    int64_t view = 77;
    tw_status status = tw_get(member->family, key_of(key), &view);
    if (key_is_wrong(&member->twin, key, status)) return;
    if (answers(model->stopped, status, TW_ERR_CLOSED)) return;
    check_i64(status, TW_OK);
    check_i64(view, value_now(model, member, key));
    tw_reading reading;
    memset(&reading, 0x55, sizeof reading);
    check_i64(tw_read(member->family, key_of(key), &reading), TW_OK);
    check_i64(reading.view, view);
    check_i64(reading.local, view);
    check_i64(reading.total, 0);
    check_i64(reading.unsent, 0);
    check_i64(reading.age_ms, TW_UNBOUNDED);
    check_i64(reading.error_bound, 0);
    check_that(reading.known);
}

/* Is the window of that moment certainly gone, certainly readable, or either? */
enum readable { READABLE, GONE, EITHER };
static enum readable is_readable(struct model *model, struct twin *twin, int64_t unix_ms) {
    int64_t start_ms, end_ms;
    twin_span(twin, unix_ms, &start_ms, &end_ms);
    int64_t until_ms = twin_readable_until(twin, end_ms);
    if (model->now_ms < twin_readable_at_least(twin, end_ms)) return READABLE;
    if (model->now_ms < until_ms) return EITHER;
    struct twin_window *window = twin_window_at(twin, start_ms);
    bool waits =
        window != NULL && twin_has_counted(window) && twin->options.on_window_closed != NULL && window->told == 0;
    return model->settled_ms >= until_ms && !waits ? GONE : EITHER; /* else the turn may not have reached it yet */
}

static void note_read(struct member *member, int64_t start_ms) {
    struct twi_generation *generation = twi_window_find(member->family, start_ms);
    packed_reads += generation != NULL && twi_generation_is_packed(generation);
}

static void do_get_at(struct model *model) {
    struct member *member = draw_member(model);
    uint32_t key = draw_key(model);
    int64_t view = 77, unix_ms = draw_moment(model, &member->twin);
    tw_status status = tw_get_at(member->family, key_of(key), unix_ms, &view);
    if (answers(!twin_has_starts(&member->twin), status, TW_ERR_MODE)) return;
    if (answers(!calendar_knows(unix_ms), status, TW_ERR_RANGE)) return;
    if (key_is_wrong(&member->twin, key, status)) return;
    if (answers(model->stopped, status, TW_ERR_CLOSED)) return;
    enum readable readable = is_readable(model, &member->twin, unix_ms);
    if (answers(readable == GONE || (readable == EITHER && status != TW_OK), status, TW_ERR_LATE)) return;
    check_i64(status, TW_OK);
    int64_t start_ms, end_ms;
    twin_span(&member->twin, unix_ms, &start_ms, &end_ms);
    note_read(member, start_ms);
    struct twin_window *window = twin_window_at(&member->twin, start_ms);
    check_i64(view, window != NULL && window->present[key] ? window->count[key] : 0);
}

/* The fields of a subject, as tw_each_field() must show them. */
struct fields {
    struct twin *twin;
    const struct twin_window *window; /* NULL: nothing was counted */
    tw_key subject;
    bool seen[TWIN_KEYS];
};

static bool is_of_subject(const struct fields *fields, uint32_t key) {
    size_t size = subject_size(fields->twin, key);
    return size != 0 && size == fields->subject.size && memcmp(fields->subject.data, key_bytes[key], size) == 0;
}

static bool visit_field(void *ctx, tw_key field, int64_t view) {
    struct fields *fields = ctx;
    size_t size = fields->subject.size;
    uint32_t key = 0;
    for (; key < TWIN_KEYS; key++)
        if (is_of_subject(fields, key) && field.size == key_sizes[key] - size - 1 &&
            memcmp(field.data, key_bytes[key] + size + 1, field.size) == 0)
            break;
    check_that(key < TWIN_KEYS);
    check_that(!fields->seen[key] && fields->window != NULL && fields->window->present[key]);
    check_i64(view, fields->window->count[key]);
    fields->seen[key] = true;
    fields_seen++;
    return true;
}

/* What tw_each() has just answered, tw_each_field() answers of a subject. */
static void check_fields(struct model *model, struct member *member, int64_t unix_ms, tw_status each_status) {
    struct fields fields = {.twin = &member->twin};
    uint32_t key = (uint32_t)test_prng_below(&model->shapes, test_prng_chance(&model->shapes, 2, 3) ? 9 : TWIN_KEYS);
    int64_t start_ms, end_ms;
    size_t size = subject_size(&member->twin, key);
    fields.subject = tw_bytes(key_bytes[key], size != 0 ? size : key_sizes[key]);
    if (unix_ms == TW_NOW || calendar_knows(unix_ms)) {
        twin_span(&member->twin, unix_ms == TW_NOW ? model->now_ms : unix_ms, &start_ms, &end_ms);
        fields.window = twin_window_at(&member->twin, start_ms);
    }
    tw_status status = tw_each_field(member->family, fields.subject, unix_ms, visit_field, &fields);
    if (answers(member->twin.options.redis_shape != TW_REDIS_HASH, status, TW_ERR_MODE)) return;
    if (answers(fields.subject.size > TW_KEY_SIZE_MAX - 2, status, TW_ERR_KEY)) return;
    if (answers(unix_ms != TW_NOW && !calendar_knows(unix_ms), status, TW_ERR_RANGE)) return;
    check_i64(status, each_status);
    for (uint32_t i = 0; i < TWIN_KEYS && status == TW_OK && fields.window != NULL; i++)
        check_i64(fields.seen[i],
                  is_of_subject(&fields, i) && fields.window->present[i] && fields.window->count[i] != 0);
}

static void do_each(struct model *model) {
    struct member *member = draw_member(model);
    int64_t unix_ms = chance(model, 50) ? TW_NOW : draw_moment(model, &member->twin);
    bool from_first = member->twin.options.window == TW_WINDOW_FROM_FIRST;
    if (unix_ms == INT64_MIN) unix_ms = TW_NOW;
    struct visit visit = {.model = model, .twin = &member->twin};
    tw_status status = tw_each(member->family, unix_ms, visit_one, &visit);
    if (model->shaped) check_fields(model, member, unix_ms, status);
    if (answers(model->stopped, status, TW_ERR_CLOSED)) return;
    if (answers(unix_ms != TW_NOW && from_first, status, TW_ERR_MODE)) return;
    if (answers(unix_ms != TW_NOW && !calendar_knows(unix_ms), status, TW_ERR_RANGE)) return;
    int64_t at_ms = unix_ms == TW_NOW ? model->now_ms : unix_ms, start_ms, end_ms;
    if (twin_has_starts(&member->twin)) {
        enum readable readable = is_readable(model, &member->twin, at_ms);
        if (readable == GONE || (readable == EITHER && status != TW_OK)) {
            check_i64((int64_t)visit.counters, 0);
            check_i64(status, TW_ERR_LATE);
            return;
        }
    }
    check_i64(status, TW_OK);
    twin_span(&member->twin, at_ms, &start_ms, &end_ms);
    note_read(member, start_ms);
    check_visit(&visit, from_first ? NULL : twin_window_at(&member->twin, start_ms));
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void check_verdict(struct model *model, const tw_verdict *verdict, tw_status status, int64_t n, int64_t limit,
                          int64_t used, int64_t start_ms, int64_t end_ms, bool full) {
    int64_t left_ms = end_ms == TW_UNBOUNDED ? TW_UNBOUNDED : end_ms - model->now_ms;
    if (verdict == NULL) return;
    check_i64(verdict->limit, limit);
    check_i64(verdict->used, used);
    check_i64(verdict->remaining, used < limit ? limit - used : 0);
    check_i64(verdict->reset_after_ms, verdict->used <= 0 ? 0 : left_ms);
    int64_t retry_ms = end_ms == TW_UNBOUNDED ? TW_UNBOUNDED : left_ms + twi_clock_pause_ms(&model->engine->clock);
    uint32_t denied = n > limit ? TW_CAUSE_NEVER : TW_CAUSE_LIMIT;
    check_i64(verdict->cause, status == TW_DENIED ? denied : status == TW_ERR_FULL ? TW_CAUSE_FULL : 0);
    if (status == TW_ERR_FULL)
        check_that(verdict->retry_after_ms > 0 && verdict->retry_after_ms <= TW_MINUTE);
    else
        check_i64(verdict->retry_after_ms, status != TW_DENIED ? 0 : n > limit ? -1 : retry_ms);
    check_i64(verdict->error_bound, full ? TW_UNBOUNDED : 0);
    check_i64(verdict->window_start_ms, start_ms);
    check_i64(verdict->decided_by, full ? TW_BY_FULL : TW_BY_LOCAL);
    check_i64(verdict->allowed, status == TW_OK);
    check_i64(verdict->final, 0);
    check_i64(verdict->claim, 0);
}

/* Checks a decision on a key that is not there; returns true if the key exists from then on. */
static bool check_new_limit(struct model *model, struct member *member, uint32_t key, int64_t n, int64_t limit,
                            tw_status status, const tw_verdict *verdict) {
    struct twin *twin = &member->twin;
    int64_t start_ms, end_ms;
    twin_span(twin, model->now_ms, &start_ms, &end_ms);
    if (twin->options.window == TW_WINDOW_FROM_FIRST)
        end_ms = model->now_ms + (end_ms - start_ms), start_ms = model->now_ms;
    if (n > limit || n == 0) {
        check_i64(status, n > limit ? TW_DENIED : TW_OK);
        check_verdict(model, verdict, status, n, limit, 0, start_ms, end_ms, false);
        return false;
    }
    struct twin_window *window = twin_window_make(twin, model->now_ms);
    bool full = verdict != NULL && verdict->decided_by == TW_BY_FULL;
    if (full || must_be_full(twin, window)) {
        check_that(may_be_full(model, twin, window));
        check_i64(status, twin->options.on_full_limit == TW_FULL_LIMIT_ADMIT ? TW_OK : TW_ERR_FULL);
        check_verdict(model, verdict, status, n, limit, 0, start_ms, end_ms, true);
        return false;
    }
    check_i64(status, TW_OK);
    begin_key(twin, window, key, model->now_ms);
    window->count[key] = n;
    model->increments++;
    check_verdict(model, verdict, status, n, limit, n, start_ms, end_ms, false);
    return true;
}

static void do_acquire(struct model *model) {
    struct member *member = draw_member(model);
    uint32_t key = draw_key(model);
    int64_t n =
        chance(model, 80) ? (int64_t)draw(model, 6) : PICK(model, -1, TW_DELTA_MAX, TW_DELTA_MAX + 1, INT64_MIN, 0);
    int64_t limit = chance(model, 80) ? (int64_t)draw(model, 40) : PICK(model, -1, TW_DELTA_MAX, TW_DELTA_MAX + 1, 0);
    tw_verdict filled, *verdict = &filled;
    memset(&filled, 0x55, sizeof filled);
    if (!model->tight && test_prng_chance(&model->ways, 1, 3)) verdict = NULL;
    bool inside = test_prng_chance(&model->ways, 1, 8);
    if (inside) tw_enter(model->engine);
    tw_status status = tw_acquire(member->family, key_of(key), n, limit, verdict);
    if (inside) tw_leave(model->engine);
    if (verdict != NULL) check_i64(verdict->limit, limit);
    if (answers(n < 0 || limit < 0 || n > TW_DELTA_MAX || limit > TW_DELTA_MAX, status, TW_ERR_RANGE)) return;
    if (key_is_wrong(&member->twin, key, status)) return;
    if (answers(model->stopped, status, TW_ERR_CLOSED)) return;
    struct twin_window *window = twin_window_of_key(&member->twin, key, model->now_ms);
    if (window == NULL) {
        (void)check_new_limit(model, member, key, n, limit, status, verdict);
        return;
    }
    bool admits = window->count[key] + n <= limit;
    check_i64(status, admits ? TW_OK : TW_DENIED);
    if (admits) window->count[key] += n;
    if (admits && n != 0) model->increments++;
    /* each key's life has its own begin and end */
    bool from_first = member->twin.options.window == TW_WINDOW_FROM_FIRST;
    int64_t end_ms = from_first ? window->life_end_ms[key] : window->end_ms;
    int64_t start_ms = from_first ? end_ms - (window->end_ms - window->start_ms) : window->start_ms;
    check_verdict(model, verdict, status, n, limit, window->count[key], start_ms, end_ms, false);
}

static void do_once(struct model *model) {
    struct member *member = draw_member(model);
    uint32_t key = draw_key(model);
    bool first = false;
    tw_status status = tw_once(member->family, key_of(key), &first);
    if (key_is_wrong(&member->twin, key, status)) return;
    if (answers(model->stopped, status, TW_ERR_CLOSED)) return;
    struct twin *twin = &member->twin;
    struct twin_window *window = twin_window_of_key(twin, key, model->now_ms);
    if (window != NULL) {
        check_i64(status, TW_OK);
        check_i64(first, window->count[key] <= 0);
        if (first) {
            window->count[key]++;
            model->increments++;
        }
        return;
    }
    window = twin_window_make(twin, model->now_ms);
    if (must_be_full(twin, window)) {
        check_i64(status, twin->options.on_full_limit == TW_FULL_LIMIT_ADMIT ? TW_OK : TW_ERR_FULL);
        if (status == TW_OK) check_that(first);
        return;
    }
    int64_t view = 0;
    bool taken = tw_get(member->family, key_of(key), &view) == TW_OK && view == 1;
    tw_status when_full = twin->options.on_full_limit == TW_FULL_LIMIT_ADMIT ? TW_OK : TW_ERR_FULL;
    if (answers(model->tight && !taken, status, when_full)) return;
    check_i64(status, TW_OK);
    check_that(first && taken);
    begin_key(twin, window, key, model->now_ms);
    window->count[key] = 1;
    model->increments++;
}

static void do_reset(struct model *model) {
    struct member *member = draw_member(model);
    uint32_t key = draw_key(model);
    int64_t last = 77;
    tw_status status = tw_reset(member->family, key_of(key), &last);
    if (key_is_wrong(&member->twin, key, status)) return;
    if (answers(model->stopped, status, TW_ERR_CLOSED)) return;
    check_i64(status, TW_OK);
    struct twin_window *window = twin_window_of_key(&member->twin, key, model->now_ms);
    check_i64(last, window != NULL ? window->count[key] : 0);
    if (window == NULL) return;
    window->count[key] = 0;
    model->increments++;
}

/* ---- time and turns ---------------------------------------------------------------------------------------------- */

static void do_turn(struct model *model) {
    tw_status status = tw_turn(model->engine);
    check_i64(status, model->stopped ? TW_ERR_CLOSED : TW_OK);
}

static void settle(struct model *model) {
    if (model->stopped) return;
    for (int turns = 0; turns == 0 || (turns < 1000 && tw_timeout_ms(model->engine) == 0); turns++) do_turn(model);
    model->settled_ms = twi_clock_read(&model->engine->clock);
}

static void do_clock(struct model *model) {
    struct member *member = draw_member(model);
    int64_t start_ms, end_ms, boundary_ms;
    twin_span(&member->twin, model->now_ms, &start_ms, &end_ms);
    boundary_ms = end_ms == TW_UNBOUNDED ? 1000 : end_ms - model->now_ms;
    switch (draw(model, 8)) {
    case 0: fake_clock_advance_ms(&model->clock, (int64_t)draw(model, 20)); break;
    case 1: fake_clock_advance_ms(&model->clock, boundary_ms - 1); break;
    case 2: fake_clock_advance_ms(&model->clock, boundary_ms); break;
    case 3: fake_clock_advance_ms(&model->clock, (int64_t)draw(model, (uint64_t)boundary_ms + 2)); break;
    case 4: fake_clock_advance_ms(&model->clock, (int64_t)draw(model, 8 * TW_HOUR)); break;
    case 5: fake_clock_advance_ms(&model->clock, PICK(model, 1000, TW_MINUTE, TW_HOUR, TW_DAY, 3 * TW_DAY)); break;
    case 6: fake_clock_step_wall_ms(&model->clock, PICK(model, -10, 10, -4000, 4000, -TW_HOUR, TW_HOUR, TW_DAY)); break;
    default: break;
    }
    model->now_ms = twi_clock_read(&model->engine->clock);
    if (chance(model, 60)) settle(model);
    model->now_ms = twi_clock_read(&model->engine->clock);
}

/* Sets a watermark; half of the time one that is behind, or ahead of the clock. */
static void do_close_until(struct model *model) {
    struct member *member = draw_member(model);
    struct twin *twin = &member->twin;
    int64_t unix_ms = draw_moment(model, twin), start_ms, end_ms;
    tw_status status = tw_close_until(member->family, unix_ms);
    if (answers(!twin_has_starts(twin), status, TW_ERR_MODE)) return;
    if (answers(!calendar_knows(unix_ms), status, TW_ERR_RANGE)) return;
    if (answers(model->stopped, status, TW_ERR_CLOSED)) return;
    twin_span(twin, unix_ms, &start_ms, &end_ms);
    struct twin ahead = *twin;
    ahead.watermark_ms = INT64_MIN;
    ahead.options.lateness_ms = TW_UNBOUNDED;
    check_i64(status, twin_may_add_at(&ahead, unix_ms, model->now_ms)); /* counts may be this far ahead */
    if (status == TW_OK && unix_ms > twin->watermark_ms) twin->watermark_ms = unix_ms;
    if (chance(model, 60)) settle(model);
}

static void do_reopen(struct model *model) {
    if (model->stopped || model->gone_count == GONE_MAX || !chance(model, 30)) return;
    struct member *member = draw_member(model);
    tw_family *again;
    check_i64(tw_family_open(model->engine, &member->twin.options, &again), TW_OK);
    check_that(again == member->family);
    check_i64(tw_family_close(member->family), TW_OK);
    check_that(tw_family_find(model->engine, member->name) == member->family);
    close_member(model, member);
    open_member(model, member);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

struct operation {
    const char *name;
    void (*run)(struct model *model);
    uint32_t weight;
};
static const struct operation operations[] = {
    {"add", do_add, 30},
    {"add_at", do_add_at, 20},
    {"many", do_many, 3},
    {"get", do_get, 8},
    {"get_at", do_get_at, 8},
    {"each", do_each, 4},
    {"acquire", do_acquire, 8},
    {"once", do_once, 4},
    {"reset", do_reset, 2},
    {"clock", do_clock, 10},
    {"turn", do_turn, 4},
    {"reopen", do_reopen, 1},
    {"close_until", do_close_until, 2},
};

/* Whether callers find the time written down, or must read the clock. Within one call the time stands still. */
static void hold_time(struct model *model, bool held) {
    _Atomic int64_t *word = &model->engine->clock.word;
    if (held && model->holds_time)
        (void)twi_and_acqrel(word, ~TWI_CLOCK_STATE);
    else
        (void)twi_or_relaxed(word, TWI_CLOCK_READ);
}

static void step(struct model *model) {
    uint32_t total = 0;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) total += operations[i].weight;
    uint64_t drawn = draw(model, total);
    size_t index = 0;
    while (drawn >= operations[index].weight) drawn -= operations[index++].weight;
    model->doing = operations[index].name;
    model->now_ms = twi_clock_read(&model->engine->clock);
    hold_time(model, true);
    operations[index].run(model);
    hold_time(model, false);
}

/* Takes most of the arena away, so that inserts fail sometimes. */
static void hog_memory(struct model *model) {
    uint64_t left = draw(model, 12);
    uint32_t taken = 0;
    while (taken + left < 15 && twi_arena_take(&model->engine->arena, TWI_SEGMENT_LINES) != 0) taken++;
}

static void check_statistics(struct model *model) {
    tw_stats stats;
    check_i64(tw_stats_read(model->engine, &stats), TW_OK);
    check_i64(stats.increments, model->increments);
    check_i64(stats.overflow_increments, model->overflow_increments);
    check_i64(stats.rejected_increments, model->rejected_increments);
    check_i64(stats.late_increments, model->late_increments);
    windows_packed += stats.windows_packed;
    packs_refused += stats.packs_refused;
    check_that(stats.memory_bytes <= stats.memory_bytes_max && stats.memory_bytes <= stats.memory_bytes_high);
}

static bool check_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    bool *all = ctx;
    return *all = twi_cell_is_valid(cell);
}

/* The table with its cells, or its packed form. */
static bool is_valid(tw_engine *engine, struct twi_generation *generation) {
    const struct twi_packer packer = {&engine->arena, generation, engine->hashing.fn, &engine->hashing.secret, 0};
    uint32_t packed = twi_load_acquire(&generation->packed);
    struct twi_cursor cursor = {0};
    bool all = true;
    if (packed != 0) return twi_packed_is_valid(&packer, packed);
    twi_table_walk(&engine->arena, generation, &cursor, check_cell, &all);
    if (!all) return false;
    return twi_table_is_valid(&engine->arena, generation, &engine->hashing.secret, engine->hashing.fn);
}

static void end_run(struct model *model) {
    model->doing = "close";
    for (uint32_t i = 0; i < model->member_count && !model->stopped; i++) {
        struct member *member = &model->members[i];
        for (size_t w = 0; w < member->twin.window_count; w++) {
            struct twin_window *window = member->twin.windows[w];
            struct twi_generation *generation = twi_window_find(member->family, window->start_ms);
            if (generation == NULL) continue;
            check_that(is_valid(model->engine, generation));
        }
    }
    check_that(twi_turn_is_valid(model->engine));
    check_that(twi_arena_is_valid(&model->engine->arena));
    model->closing = true;
    for (uint32_t i = 0; i < model->member_count; i++) close_pins(&model->members[i]);
    check_i64(tw_close(model->engine, 0), TW_OK);
    for (uint32_t i = 0; i < model->member_count + model->gone_count; i++) {
        bool gone = i >= model->member_count;
        struct twin *twin = gone ? &model->gone[i - model->member_count].twin : &model->members[i].twin;
        for (size_t w = 0; w < twin->window_count && twin->options.on_window_closed != NULL; w++)
            check_i64(twin->windows[w]->told, twin_has_counted(twin->windows[w]));
        twin_free(twin);
    }
}

static void run_seed(const char *name, uint64_t seed, bool shaped) {
    struct model *model = calloc(1, sizeof *model);
    running = model;
    model->settled_ms = INT64_MIN; /* no turn has run */
    seed_running = seed;
    name_running = name;
    test_seed_begins(name, seed);
    model->doing = "open";
    test_prng_seed(&model->prng, seed);
    model->shaped = shaped;
    test_prng_seed(&model->shapes, seed ^ 0x5a9e);
    test_prng_seed(&model->ways, seed ^ 0x3a75);
    model->holds_time = test_prng_chance(&model->ways, 1, 2);
    int64_t since_ms = (int64_t)draw(model, 400 * TW_DAY);
    if (test_prng_chance(&model->ways, 1, 8)) since_ms = since_ms % (4 * TW_DAY) - 4 * TW_DAY - START_MS;
    fake_clock_init(&model->clock, START_MS + since_ms);
    tw_options options;
    tw_options_init(&options);
    fake_clock_install(&model->clock, &options);
    options.threads = TW_HOST_DRIVEN;
    model->tight = chance(model, 30);
    options.memory_bytes_max = model->tight ? UINT64_C(1) << 20 : UINT64_C(256) << 20;
    check_i64(tw_open(&options, &model->engine), TW_OK);
    if (model->tight) hog_memory(model);
    if (test_prng_chance(&model->ways, 1, 2)) model->engine->hashing.fn = twi_hash_sip; /* families choose by it */
    model->member_count = 1 + (uint32_t)draw(model, FAMILIES_MAX);
    for (uint32_t i = 0; i < model->member_count; i++) {
        snprintf(model->members[i].name, sizeof model->members[i].name, "family-%u", i);
        open_member(model, &model->members[i]);
    }
    uint64_t steps = 100 + draw(model, 500);
    for (model->step = 0; model->step < steps; model->step++) {
        if (model->step == steps - 20 && chance(model, 20)) {
            check_i64(tw_stop(model->engine), TW_OK);
            model->stopped = true;
        }
        step(model);
    }
    check_statistics(model);
    end_run(model);
    free(model);
    test_seed_ends();
}

TEST(an_engine_answers_as_its_twin) {
    enum { SEEDS_MAX = 100000 };
    static uint64_t seeds[SEEDS_MAX];
    static const char *const names[] = {"engine_model", "engine_model_shaped"};
    uint64_t fresh = test_scale(6000);
    size_t count = 0;
    make_keys();
    for (int shaped = 0; shaped < 2; shaped++) {
        size_t all = test_seeds(names[shaped], shaped ? fresh - fresh / 2 : fresh / 2, seeds, SEEDS_MAX);
        for (size_t i = 0; i < all; i++) run_seed(names[shaped], seeds[i], shaped);
        count += all;
    }
    printf("# %zu seeds; %lld windows packed and read %lld times, %lld refused; %lld keys refused, %lld fields\n",
           count, (long long)windows_packed, (long long)packed_reads, (long long)packs_refused, (long long)keys_refused,
           (long long)fields_seen);
    if (count > 1000) assert_true(packed_reads > 0 && packs_refused > 0 && keys_refused > 0 && fields_seen > 0);
}
