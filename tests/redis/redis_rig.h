/* redis_rig.h -- an engine that counts one key over a real Redis, and a record of all that it has counted.
 * Always true: `added` is the value that f:k in Redis has once everything is acknowledged; what on_lost and the log
 * report is kept. */
#ifndef TEST_REDIS_RIG_H
#define TEST_REDIS_RIG_H

#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"

struct rig {
    struct redis_server server, replica; /* the servers that the test starts */
    struct proxy *proxy;                 /* the proxy that the test starts */
    struct lost lost;
    struct log_lines lines;
    tw_engine *engine;
    tw_family *family;
    int64_t added;
};

/* The options of a rig's engine, to be changed before rig_start(). */
static inline void rig_options(struct rig *rig, tw_options *options, const char *url) {
    quick_options(options, url);
    options->on_lost = on_lost;
    options->lost_ctx = &rig->lost;
    options->log_write = on_log;
    options->log_ctx = &rig->lines;
}

static inline void rig_start(struct rig *rig, const tw_options *options) {
    assert_status(test_open(options, &rig->engine), TW_OK);
    rig->family = family_of(rig->engine, "f", TW_WINDOW_FOREVER, 0);
}

static inline void rig_add(struct rig *rig, int64_t delta) {
    assert_status(tw_add(rig->family, tw_str("k"), delta, NULL), TW_OK);
    rig->added += delta;
}

static inline void rig_flush(struct rig *rig) {
    assert_status(tw_flush(rig->engine, TEST_PATIENCE_MS), TW_OK);
}

static inline void rig_add_flushed(struct rig *rig, int64_t delta) {
    rig_add(rig, delta);
    rig_flush(rig);
}

/* Checks that everything is in Redis: nothing lost, no count twice, nothing uncertain. */
static inline void rig_check(struct rig *rig, struct redis_server *server) {
    rig_flush(rig);
    assert_i64_equal(redis_server_get(server, "f:k"), rig->added);
    assert_i64_equal(test_stat_of(rig->engine, lost), 0);
    assert_i64_equal(test_stat_of(rig->engine, uncertain), 0);
}

#endif
