/* pin_test.c -- pins: adding to one counter without a lookup, from one add and one window to the next. */
#include "tests/unit/rig.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static tw_pin *pin_of(tw_family *family, const char *key) {
    tw_pin *pin;
    assert_status(tw_pin_open(family, tw_str(key), &pin), TW_OK);
    return pin;
}

static int64_t count_of(tw_family *family, const char *key) {
    int64_t view = -1;
    assert_status(tw_get(family, tw_str(key), &view), TW_OK);
    return view;
}

/* Goal: a pin counts in the same counter as the key. Method: both in turn, negative deltas and edges included. */
TEST(a_pin_and_its_key_are_one_counter) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_pin *pin = pin_of(family, "key");
    int64_t view = 0;
    assert_i64_equal(count_of(family, "key"), 0);
    assert_status(tw_pin_add(pin, 5, &view), TW_OK);
    assert_i64_equal(view, 5);
    assert_status(tw_add(family, tw_str("key"), 7, &view), TW_OK);
    assert_i64_equal(view, 12);
    assert_status(tw_pin_add(pin, -20, &view), TW_OK);
    assert_i64_equal(view, -8);
    assert_status(tw_pin_add(pin, TW_DELTA_MAX, &view), TW_OK);
    assert_i64_equal(view, TW_DELTA_MAX - 8);
    assert_status(tw_pin_add(pin, TW_DELTA_MAX + 1, &view), TW_ERR_RANGE);
    assert_i64_equal(count_of(family, "key"), TW_DELTA_MAX - 8);
    tw_stats stats;
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    assert_i64_equal(stats.increments, 4);
    tw_pin_close(pin);
    rig_close(&rig);
}

TEST(a_pin_checks_its_key_and_knows_a_stopped_engine) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_pin *pin = NULL;
    char big[TW_KEY_SIZE_MAX + 1] = {0};
    assert_status(tw_pin_open(family, tw_bytes("", 0), &pin), TW_ERR_KEY);
    assert_status(tw_pin_open(family, tw_bytes(big, sizeof big), &pin), TW_ERR_KEY);
    assert_null(pin);
    assert_status(tw_pin_open(family, tw_bytes(big, TW_KEY_SIZE_MAX), &pin), TW_OK);
    assert_status(tw_pin_add(pin, 1, NULL), TW_OK);
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_status(tw_pin_add(pin, 1, NULL), TW_ERR_CLOSED);
    tw_pin_close(pin);
    tw_pin_close(NULL);
    rig_close(&rig);
}

/* Goal: a pin follows its key into the next window, and never touches memory that its window no longer owns (trap E32).
 * Method: hundreds of windows end, are dropped and their memory is used again, with other keys counting in it; after
 * each boundary the pin adds, sometimes several windows later. */
TEST(trap_e32_a_pin_follows_its_key_and_counts_for_no_stranger) {
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.history_ms = TW_NONE;
    tw_family *family = rig_family_of(&rig, &options);
    tw_pin *pin = pin_of(family, "pinned");
    for (int window = 0; window < 300; window++) {
        char key[16];
        for (int i = 0; i < 20; i++) {
            snprintf(key, sizeof key, "%d-%d", window, i);
            assert_status(tw_add(family, tw_str(key), 1, NULL), TW_OK);
        }
        int64_t view = 0;
        if (window % 3 != 1) {
            assert_status(tw_pin_add(pin, 2, &view), TW_OK);
            assert_i64_equal(view, 2);
            assert_status(tw_pin_add(pin, 3, &view), TW_OK);
            assert_i64_equal(view, 5);
        }
        for (int i = 0; i < 20; i++) {
            snprintf(key, sizeof key, "%d-%d", window, i);
            assert_i64_equal(count_of(family, key), 1);
        }
        assert_i64_equal(count_of(family, "pinned"), window % 3 != 1 ? 5 : 0);
        rig_pass(&rig, TW_MINUTE);
    }
    tw_pin_close(pin);
    rig_close(&rig);
}

/* Goal: callers that only peek at the clock do not count in a window that is over because its time lies before 1970,
 * where a stale time looks like a moment (clock.h). Method: time passes and no thread reads the clock; then one call
 * adds. Some windows end in 1970 or begin in it. */
TEST(before_1970_a_call_reads_the_clock) {
    for (int64_t start_ms = -3 * TW_MINUTE; start_ms <= TW_MINUTE; start_ms += TW_MINUTE / 2) {
        struct rig rig;
        rig_init(&rig);
        fake_clock_init(&rig.clock, start_ms);
        rig_start(&rig);
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
        tw_pin *pin = pin_of(family, "pinned");
        for (int window = 0; window < 8; window++) {
            int64_t view = 0;
            fake_clock_advance_ms(&rig.clock, TW_MINUTE);
            for (int adds = 1; adds < 4; adds++) {
                if (window % 2 == 0) {
                    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
                    assert_i64_equal(view, adds);
                    assert_i64_equal(rig_add(family, "looked up", 1), adds);
                } else {
                    assert_i64_equal(rig_add(family, "looked up", 1), adds);
                    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
                    assert_i64_equal(view, adds);
                }
            }
        }
        tw_pin_close(pin);
        rig_close(&rig);
    }
}

/* Goal: in TW_WINDOW_FROM_FIRST families, a pin begins a new window for its key when the old one has ended. */
TEST(a_pin_from_first_begins_a_new_life) {
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    tw_pin *pin = pin_of(family, "key");
    int64_t view = 0;
    rig_pass(&rig, 50 * TW_SECOND);
    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
    rig_pass(&rig, 59 * TW_SECOND);
    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
    assert_i64_equal(view, 2);
    rig_pass(&rig, 1 * TW_SECOND);
    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
    assert_i64_equal(view, 1);
    tw_pin_close(pin);
    rig_close(&rig);
}

/* Goal: in a forked child a pin counts from zero, and leaves the parent's counter alone. */
TEST(a_pin_in_a_forked_child_counts_from_zero) {
    if (test_misses_wiped_pages()) return;
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    tw_pin *pin = pin_of(family, "key");
    int64_t view = 0;
    assert_status(tw_pin_add(pin, 41, &view), TW_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int64_t seen = 0;
        bool right = tw_pin_add(pin, 1, &seen) == TW_OK && seen == 1 && tw_pin_add(pin, 1, &seen) == TW_OK && seen == 2;
        tw_pin_close(pin);
        _exit(right ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
    assert_i64_equal(view, 42);
    tw_pin_close(pin);
    rig_close(&rig);
}

/* Goal: pins of many threads on one key lose nothing while windows roll.
 * Method: four threads with a pin each, the clock moved by the test, the closing hook adds up. */
struct pinner {
    tw_family *family;
    int64_t added;
};
static void *add_through_pin(void *arg) {
    struct pinner *pinner = arg;
    tw_pin *pin = pin_of(pinner->family, "key");
    for (uint32_t i = 0; i < test_scale(20000); i++)
        if (tw_pin_add(pin, 1, NULL) == TW_OK) pinner->added++;
    tw_pin_close(pin);
    return NULL;
}
static bool add_up(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->view;
    return true;
}
static bool add_up_window(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)end_ms, (void)flags;
    return tw_each(family, start_ms, add_up, ctx) == TW_OK;
}

TEST(pins_of_many_threads_lose_nothing_over_boundaries) {
    struct rig rig;
    rig_open(&rig);
    int64_t handed = 0, added = 0;
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_SECOND);
    options.on_window_closed = add_up_window;
    options.closed_ctx = &handed;
    tw_family *family = rig_family_of(&rig, &options);
    struct pinner pinners[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        pinners[i] = (struct pinner){family, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, add_through_pin, &pinners[i]), 0);
    }
    for (int i = 0; i < 200; i++) {
        fake_clock_advance_ms(&rig.clock, 100);
        rig_turn(&rig);
        usleep(100);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        added += pinners[i].added;
    }
    rig_close(&rig); /* hands the last windows over */
    assert_i64_equal(handed, added);
}
