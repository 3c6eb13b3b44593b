/* rig.h -- a host-driven engine on a clock that obeys, for tests that must know what happens when.
 * Always true: time moves only when a test moves it; turns are made only by rig_turn() and by the calls that make
 * them. */
#ifndef TEST_RIG_H
#define TEST_RIG_H

#include "tests/support/support.h"

#include "engine/count/lookup.h"
#include "engine/turn/turn.h"

#define RIG_START_MS INT64_C(1700002800000) /* 2023-11-14T23:00:00Z: the start of an hour */

struct rig {
    struct fake_clock clock;
    tw_options options;
    char error[256];
    tw_engine *engine;
};

/* The options of a rig's engine, to be changed before rig_open(). */
static inline void rig_init(struct rig *rig) {
    struct twi_thread *self = twi_thread_here();
    while (self->depth != 0)
        twi_section_leave(self); /* a test that failed inside a section must not fail the next ones */
    memset(rig, 0, sizeof *rig);
    fake_clock_init(&rig->clock, RIG_START_MS);
    tw_options_init(&rig->options);
    rig->options.error_text = rig->error;
    rig->options.error_size = sizeof rig->error;
    rig->options.threads = TW_HOST_DRIVEN;
    rig->options.memory_bytes_max = UINT64_C(64) << 20;
    fake_clock_install(&rig->clock, &rig->options);
}

static inline void rig_start(struct rig *rig) {
    assert_status(tw_open(&rig->options, &rig->engine), TW_OK);
}

static inline void rig_open(struct rig *rig) {
    rig_init(rig);
    rig_start(rig);
}

static inline void rig_close(struct rig *rig) {
    assert_status(tw_close(rig->engine, 0), TW_OK);
}

/* A test that begins with the file's own `rig` open and ends with closing it. */
#define RIG_TEST(test) TEST_WITH(test, rig_setup, rig_teardown, &rig)
static inline int rig_setup(void **state) {
    rig_open(*state);
    return 0;
}
static inline int rig_teardown(void **state) {
    rig_close(*state);
    return 0;
}

/* Family options with a name and a window. */
static inline tw_family_options rig_options(const char *name, uint32_t window, int64_t window_ms) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = name;
    options.window = window;
    options.window_ms = window_ms;
    return options;
}

static inline tw_family *rig_family_of(struct rig *rig, const tw_family_options *options) {
    tw_family *family;
    assert_status(tw_family_open(rig->engine, options, &family), TW_OK);
    return family;
}

static inline tw_family *rig_family(struct rig *rig, const char *name, uint32_t window, int64_t window_ms) {
    tw_family_options options = rig_options(name, window, window_ms);
    return rig_family_of(rig, &options);
}

static inline void rig_turn(struct rig *rig) {
    assert_status(tw_turn(rig->engine), TW_OK);
}

/* One turn, and not those that tw_turn() makes besides. */
static inline void rig_run_turn(tw_engine *engine) {
    assert_true(twi_turn_take(engine));
    twi_turn_run(engine);
    twi_turn_leave(engine);
}

/* Turns until everything that can be done now is done. */
static inline void rig_settle(struct rig *rig) {
    test_turn(rig->engine, 10000);
}

/* Time passes in one step, and the engine is given the turns it wants. */
static inline void rig_pass(struct rig *rig, int64_t ms) {
    fake_clock_advance_ms(&rig->clock, ms);
    rig_settle(rig);
}

static inline int64_t rig_now(struct rig *rig) {
    return fake_clock_wall_ms(&rig->clock);
}

/* Adds, and answers the view; any answer but TW_OK fails. */
static inline int64_t rig_add(tw_family *family, const char *key, int64_t delta) {
    int64_t view = INT64_MIN;
    assert_status(tw_add(family, tw_str(key), delta, &view), TW_OK);
    return view;
}

static inline int64_t rig_get(tw_family *family, const char *key) {
    int64_t view = INT64_MIN;
    assert_status(tw_get(family, tw_str(key), &view), TW_OK);
    return view;
}

static inline tw_reading rig_read(tw_family *family, const char *key) {
    tw_reading reading;
    assert_status(tw_read(family, tw_str(key), &reading), TW_OK);
    return reading;
}

/* What tw_each() shows of a window. */
struct rig_seen {
    uint64_t counters;
    int64_t sum;
    int64_t overflow;
};

static inline bool rig_see(void *ctx, const tw_count *count) {
    struct rig_seen *seen = ctx;
    if (count->key.size == 0) {
        seen->overflow += count->local;
    } else {
        seen->counters++;
        seen->sum += count->local;
    }
    return true;
}

static inline struct rig_seen rig_each(tw_family *family, int64_t unix_ms) {
    struct rig_seen seen = {0};
    assert_status(tw_each(family, unix_ms, rig_see, &seen), TW_OK);
    return seen;
}

#endif
