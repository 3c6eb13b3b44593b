/* walk_test.c -- walks hold their windows by the slot of their thread: within a visitor of another walk, and not beyond
 * the end of the thread. */
#include "tests/unit/rig.h"

#include <pthread.h>

static struct rig rig;

static tw_family *family_with_history(int64_t history_ms) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.history_ms = history_ms;
    return rig_family_of(&rig, &options);
}

struct nest {
    tw_family *family;
    int depth;
    tw_status refused;
    bool has_reason;
    struct rig_seen seen[3];
};

static bool walk_within(void *ctx, const tw_count *count) {
    struct nest *nest = ctx;
    (void)rig_see(&nest->seen[nest->depth], count);
    nest->depth++;
    tw_status status = tw_each(nest->family, TW_NOW, walk_within, nest);
    nest->depth--;
    if (status == TW_OK) return true;
    nest->refused = status;
    nest->has_reason = strstr(tw_error_text(), "visitor") != NULL;
    return true;
}

/* Goal: a visitor may walk, also over the same window. A visitor of that walk may not, and is refused with the reason.
 * Afterwards both places are free again. */
RIG_TEST(a_walk_within_a_walk_is_allowed_and_no_third_one) {
    struct nest nest = {.family = family_with_history(TW_NONE)};
    rig_add(nest.family, "a", 1);
    rig_add(nest.family, "b", 2);
    for (int round = 1; round <= 3; round++) {
        nest.refused = TW_OK;
        assert_status(tw_each(nest.family, TW_NOW, walk_within, &nest), TW_OK);
        assert_status(nest.refused, TW_ERR_MODE);
        assert_true(nest.has_reason);
        assert_i64_equal(nest.seen[0].counters, 2 * round);
        assert_i64_equal(nest.seen[1].counters, 4 * round);
        assert_i64_equal(nest.seen[2].counters, 0);
    }
    assert_status(tw_each(nest.family, RIG_START_MS - TW_HOUR, walk_within, &nest), TW_ERR_LATE);
    assert_int_equal(twi_thread_here()->walks, 0);
    assert_false(twi_threads_hold(NULL, 0));
}

static int64_t memory(void) {
    return test_stat_of(rig.engine, memory_bytes);
}

struct pass {
    tw_family *family;
    int64_t high;
    bool entered;
};

/* While the first counter is shown, the window ends, and all that is given back is given back. */
static bool let_windows_pass(void *ctx, const tw_count *count) {
    struct pass *pass = ctx;
    if (pass->entered) return true;
    pass->entered = true;
    for (int i = 0; i < 5; i++) rig_pass(&rig, TW_MINUTE);
    pass->high = memory();
    return true;
}

/* Goal: a window is kept as long as it is walked, in memory that nobody else uses, and then given back. */
RIG_TEST(a_window_is_kept_while_it_is_walked) {
    struct pass pass = {.family = family_with_history(TW_NONE)};
    rig_pass(&rig, 1);
    int64_t before = memory();
    char key[16];
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(pass.family, key, 1);
    }
    assert_status(tw_each(pass.family, TW_NOW, let_windows_pass, &pass), TW_OK);
    assert_true(pass.high - before > 5000 * 64);
    for (int i = 0; i < 3; i++) rig_pass(&rig, TW_MINUTE);
    assert_true(memory() - before < 5000 * 64);
}

static bool end_thread(void *ctx, const tw_count *count) {
    pthread_exit(NULL);
}

static void *walk_and_end(void *ctx) {
    (void)tw_each(ctx, TW_NOW, end_thread, NULL);
    return ctx;
}

/* Goal: a thread that ends inside a visitor holds its window no longer, and the next thread with its slot may walk. */
RIG_TEST(a_thread_that_ends_in_a_visitor_holds_nothing) {
    if (test_misses_robust_lists()) return;
    tw_family *family = family_with_history(TW_NONE);
    rig_pass(&rig, 1);
    int64_t before = memory();
    char key[16];
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "%d", i);
        rig_add(family, key, 1);
    }
    for (int round = 0; round < 4; round++) {
        pthread_t thread;
        void *answer;
        assert_int_equal(pthread_create(&thread, NULL, walk_and_end, family), 0);
        pthread_join(thread, &answer);
        assert_null(answer);
    }
    for (int i = 0; i < 5; i++) rig_pass(&rig, TW_MINUTE);
    assert_true(memory() - before < 5000 * 64);
}
