/* calls_support.h -- for tests of calls that answer later: an engine over a driver that answers when the test says so
 * (later_driver.h), and what `done` sees. */
#ifndef TESTS_UNIT_CORE_CALLS_SUPPORT_H
#define TESTS_UNIT_CORE_CALLS_SUPPORT_H

#include "tests/unit/later_driver.h"

static struct rig rig;

static inline int later_setup(void **state) {
    later_open(*state);
    return 0;
}
static inline int later_teardown(void **state) {
    twi_store_relaxed(&later.answers_all, true);
    rig_close(*state);
    return 0;
}
#define LATER_TEST(test) TEST_WITH(test, later_setup, later_teardown, &rig)

static inline tw_family *family_of(uint32_t mode, uint32_t outage) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.limit_mode = mode;
    options.on_outage = outage;
    return rig_family_of(&rig, &options);
}
static inline tw_family *strict_family(void) {
    return family_of(TW_LIMIT_STRICT, TW_OUTAGE_FAIL_CLOSED);
}

/* ---- what `done` sees -------------------------------------------------------------------------------------------- */

struct told {
    tw_request request;
    int times;
    tw_status inside[6];
    void (*more)(struct told *told);
};

static inline void note(tw_request *request) {
    struct told *told = request->ctx;
    told->times++;
    if (told->more != NULL) told->more(told);
}
static inline void prepare(struct told *told, tw_queue *queue) {
    memset(told, 0, sizeof *told);
    tw_request_init(&told->request);
    told->request.done = note;
    told->request.ctx = told;
    told->request.queue = queue;
}
static inline tw_status buy(struct told *told, tw_family *family) {
    return tw_acquire_async(&told->request, family, tw_str("k"), 1, 10);
}

#endif
