/* cluster_messages.c -- what goes next to the batches, over a real Redis Cluster: one engine closes a window for all,
 * with names that lie by tag; gauges, of which each statement has keys of one slot. */
#include "tests/redis/cluster/cluster_support.h"

#include <time.h>

#define KEYS 300

struct closed {
    _Atomic int calls;
    int64_t sum;
    uint32_t keys, flags;
};

static bool see(void *ctx, const tw_count *count) {
    struct closed *closed = ctx;
    closed->sum += count->view;
    closed->keys++;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct closed *closed = ctx;
    (void)end_ms;
    closed->flags = flags;
    closed->sum = closed->keys = 0;
    if (tw_each(family, start_ms, see, closed) != TW_OK) return false;
    atomic_fetch_add(&closed->calls, 1);
    return true;
}

static tw_engine *open_engine(void) {
    char url[512];
    tw_options options;
    tw_engine *engine = NULL;
    redis_cluster_url(&cluster, url, sizeof url);
    quick_options(&options, url);
    options.redis_timeout_ms = 500;
    assert_status(test_open(&options, &engine), TW_OK);
    return engine;
}

static bool was_closed(void *ctx) {
    return atomic_load(&((struct closed *)ctx)->calls) != 0;
}

static bool names_are_gone(void *ctx) {
    (void)ctx;
    for (size_t i = 0; i < CLUSTER_MASTERS; i++) {
        struct redis_server *server = redis_cluster_server(&cluster, i);
        if (redis_server_ask(server, "KEYS", "tw:names*", NULL)[0] != '\0') return false;
        if (redis_server_ask(server, "KEYS", "tw:groups*", NULL)[0] != '\0') return false;
    }
    return true;
}

/* Goal: keys of two engines lie on all masters. One hook is called, once, with all of them; then no names are left. */
static void one_engine_closes_a_window_of_all_masters(void **state) {
    (void)state;
    static struct closed closed;
    tw_engine *engines[2];
    struct timespec now;
    test_tuning.closing_pause_ms = 500;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t start_ms = (now.tv_sec + 2) * 1000;
    for (int i = 0; i < 2; i++) {
        tw_family *family = NULL;
        tw_family_options options;
        char key[16];
        engines[i] = open_engine();
        tw_family_options_init(&options);
        options.name = "stat";
        options.window_ms = 1000;
        options.lateness_ms = 2000;
        options.earliness_ms = TW_MINUTE;
        options.closed_by = TW_CLOSED_BY_ONE;
        options.on_window_closed = on_closed;
        options.closed_ctx = &closed;
        assert_status(tw_family_open(engines[i], &options, &family), TW_OK);
        for (int k = 0; k < KEYS; k++) {
            snprintf(key, sizeof key, "%d-%d", k % 3 == 0 ? 2 : i, k); /* a third of them is of both */
            assert_status(tw_add_at(family, tw_str(key), 1 + i, start_ms, NULL), TW_OK);
        }
    }
    assert_true(test_wait(was_closed, &closed, 60000));
    assert_i64_equal(closed.flags, 0);
    assert_i64_equal(closed.sum, 3 * KEYS);
    assert_i64_equal(closed.keys, 2 * KEYS - KEYS / 3);
    assert_true(test_wait(names_are_gone, NULL, 20000));
    for (int i = 0; i < 2; i++) assert_status(tw_close(engines[i], 20000), TW_OK);
    assert_i64_equal(atomic_load(&closed.calls), 1);
}

static bool all_show(void *ctx) {
    int64_t view = 0;
    char key[16];
    for (int k = 0; k < KEYS; k++) {
        snprintf(key, sizeof key, "g%d", k);
        if (tw_get(ctx, tw_str(key), &view) != TW_OK || view != 3) return false;
    }
    return true;
}

/* Goal: the gauges of two engines, with keys on all masters, show the sum of both. */
static void gauges_of_all_masters_show_the_sum(void **state) {
    (void)state;
    tw_engine *engines[2] = {open_engine(), open_engine()};
    tw_family *families[2];
    char key[16];
    for (int i = 0; i < 2; i++) {
        families[i] = gauge_of(engines[i]);
        for (int k = 0; k < KEYS; k++) {
            snprintf(key, sizeof key, "g%d", k);
            assert_status(tw_add(families[i], tw_str(key), 1 + i, NULL), TW_OK);
        }
    }
    for (int i = 0; i < 2; i++) assert_status(tw_flush(engines[i], 20000), TW_OK);
    for (int i = 0; i < 2; i++) assert_true(test_wait(all_show, families[i], 20000));
    for (int i = 0; i < 2; i++) assert_status(tw_close(engines[i], 20000), TW_OK);
}

int main(void) {
    redis_server_require();
    redis_cluster_start(&cluster, CLUSTER_MASTERS, 0, cluster_server_options);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_engine_closes_a_window_of_all_masters),
        cmocka_unit_test(gauges_of_all_masters_show_the_sum),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_cluster_destroy(&cluster);
    return failed;
}
