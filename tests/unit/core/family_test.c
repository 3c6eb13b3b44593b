/* family_test.c -- opening, finding, changing and closing families.
 * Covers: engine/family_open.c, engine/core/roster.c, engine/family_open.c. */
#include "tests/unit/rig.h"

#include <pthread.h>

static struct rig rig;

static char error[256];

static void refused(tw_family_options *options, const char *field) {
    tw_family *family = NULL;
    options->error_text = error;
    options->error_size = sizeof error;
    memset(error, 'x', sizeof error);
    assert_status(tw_family_open(rig.engine, options, &family), TW_ERR_OPTIONS);
    assert_null(family);
    if (strncmp(error, field, strlen(field)) != 0) fail_msg("\"%s\" does not begin with \"%s\"", error, field);
}

static bool hook(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)family, (void)start_ms, (void)end_ms, (void)flags;
    return true;
}

RIG_TEST(the_same_name_with_the_same_options_is_the_same_family) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    char name[] = "f", key[] = "%n:%k:%Y%m%d%H%M";
    options.name = name;
    options.redis_key = key;
    options.keys_max = 5;
    tw_family *one = rig_family_of(&rig, &options);
    memset(name, 'z', 1); /* strings are copied */
    memset(key, 'z', sizeof key - 1);
    options.name = "f";
    options.redis_key = "%n:%k:%Y%m%d%H%M";
    options.lateness_ms = 0;
    options.history_ms = TW_MINUTE; /* the default, said aloud */
    assert_ptr_equal(rig_family_of(&rig, &options), one);
    assert_ptr_equal(tw_family_find(rig.engine, "f"), one);
    assert_null(tw_family_find(rig.engine, "g"));
    assert_null(tw_family_find(rig.engine, NULL));
    rig_add(one, "a", 1);
    assert_status(tw_family_close(one), TW_OK); /* as often as opened */
    rig_settle(&rig);
    assert_i64_equal(rig_add(one, "a", 1), 2);
    assert_status(tw_family_close(one), TW_OK);
    assert_null(tw_family_find(rig.engine, "f"));
}

RIG_TEST(the_same_name_with_another_option_names_the_field) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE), other = options;
    tw_family *family = rig_family_of(&rig, &options);
#define REFUSED(field, value) (other = options, other.field = (value), refused(&other, #field))
    REFUSED(window, TW_WINDOW_FROM_FIRST);
    REFUSED(window_ms, TW_HOUR);
    REFUSED(utc_offset_ms, TW_HOUR);
    REFUSED(week_start, 3);
    REFUSED(lateness_ms, 5);
    REFUSED(earliness_ms, 5);
    REFUSED(history_ms, 5);
    REFUSED(retention_ms, 2 * TW_DAY);
    REFUSED(redis_key, "%n:%k:%Y%m%d%H%M");
    REFUSED(keys_max, 5);
    REFUSED(memory_share, 500000);
    REFUSED(on_full, TW_ON_FULL_REJECT);
    REFUSED(on_full_limit, TW_FULL_LIMIT_DENY);
    REFUSED(on_window_closed, hook);
    REFUSED(closed_ctx, error);
    REFUSED(closed_by, TW_CLOSED_BY_ONE);
    assert_ptr_equal(rig_family_of(&rig, &options), family);
}

RIG_TEST(wrong_options_are_named_and_change_nothing) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE), other;
    int64_t before = test_memory_bytes(rig.engine);
    REFUSED(name, NULL);
    REFUSED(name, "");
    REFUSED(name, "with space");
    REFUSED(window, 17);
    REFUSED(window_ms, 1500);
    REFUSED(window_ms, -1000);
    REFUSED(utc_offset_ms, 15 * TW_HOUR);
    REFUSED(week_start, 7);
    REFUSED(lateness_ms, -1);
    REFUSED(history_ms, -2);
    REFUSED(retention_ms, 1);
    REFUSED(redis_key, "no key");
    REFUSED(redis_key, "%k"); /* two minutes under one name */
    REFUSED(memory_share, UINT64_MAX);
    REFUSED(on_full, 3);
    REFUSED(on_full_limit, 2);
    REFUSED(size, 0);
    assert_null(tw_family_find(rig.engine, "f"));
    assert_i64_equal(test_memory_bytes(rig.engine), before);
}

RIG_TEST(policies_can_be_set_and_identity_cannot) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    options.keys_max = 1;
    options.on_full = TW_ON_FULL_REJECT;
    options.lateness_ms = TW_MINUTE;
    assert_status(tw_family_set(family, &options), TW_OK);
    assert_status(tw_add(family, tw_str("b"), 1, NULL), TW_ERR_FULL);
    fake_clock_advance_ms(&rig.clock, TW_MINUTE);
    assert_status(tw_add_at(family, tw_str("a"), 1, RIG_START_MS, NULL), TW_OK);
    const char *fields[] = {"name", "window", "window_ms", "utc_offset_ms", "week_start", "redis_key", "redis_tags"};
    for (int i = 0; i < 7; i++) {
        tw_family_options other = options;
        if (i == 0) other.name = "g";
        if (i == 1) other.window = TW_WINDOW_FROM_FIRST, other.lateness_ms = 0;
        if (i == 2) other.window_ms = TW_HOUR;
        if (i == 3) other.utc_offset_ms = TW_HOUR;
        if (i == 4) other.week_start = 1;
        if (i == 5) other.redis_key = "%n:%k:%Y%m%d%H%M";
        if (i == 6) other.redis_tags = 64;
        other.keys_max = 100;
        other.error_text = error;
        other.error_size = sizeof error;
        assert_status(tw_family_set(family, &other), TW_ERR_OPTIONS);
        assert_int_equal(strncmp(error, fields[i], strlen(fields[i])), 0);
    }
    rig_add(family, "a", 1);
    assert_status(tw_add(family, tw_str("b"), 1, NULL), TW_ERR_FULL); /* nothing was set */
    options.on_full = 9;
    assert_status(tw_family_set(family, &options), TW_ERR_OPTIONS);
    options.on_full = TW_ON_FULL_OVERFLOW;
    options.keys_max = 0;
    assert_status(tw_family_set(family, &options), TW_OK);
    rig_add(family, "b", 1);
    assert_ptr_equal(rig_family_of(&rig, &options), family); /* what was set is what it is now */
}

RIG_TEST(a_closed_family_may_be_opened_anew_and_begins_at_nothing) {
    for (uint32_t window = TW_WINDOW_ALIGNED; window <= TW_WINDOW_FOREVER; window++) {
        tw_family *family = rig_family(&rig, "f", window, window == TW_WINDOW_FOREVER ? 0 : TW_MINUTE);
        rig_add(family, "a", 1);
        assert_status(tw_family_close(family), TW_OK);
        family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR); /* other options: the old one is on its way out */
        assert_i64_equal(rig_get(family, "a"), 0);
        assert_i64_equal(rig_add(family, "a", 5), 5);
        rig_settle(&rig);
        assert_i64_equal(rig_add(family, "a", 5), 10);
        assert_status(tw_family_close(family), TW_OK);
        rig_settle(&rig);
    }
}

RIG_TEST(a_hook_is_not_called_for_a_family_that_was_closed) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.on_window_closed = hook;
    tw_family *family = rig_family_of(&rig, &options);
    rig_add(family, "a", 1);
    assert_status(tw_family_close(family), TW_OK);
    rig_settle(&rig);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
}

struct stats_reader {
    pthread_t thread;
    _Atomic bool over;
};
static void *read_stats(void *ctx) {
    struct stats_reader *reader = ctx;
    while (!atomic_load(&reader->over)) {
        tw_stats stats;
        (void)tw_stats_read(rig.engine, &stats);
        (void)tw_timeout_ms(rig.engine);
        (void)tw_family_find(rig.engine, "f3");
    }
    return NULL;
}

/* Goal: whoever looks at all families does not meet one that is being freed. Under AddressSanitizer or valgrind it
 * would show. */
RIG_TEST(statistics_may_be_read_while_families_come_and_go) {
    struct stats_reader reader = {0};
    assert_int_equal(pthread_create(&reader.thread, NULL, read_stats, &reader), 0);
    for (int i = 0; i < 300; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i % 7);
        tw_family *family = rig_family(&rig, name, TW_WINDOW_ALIGNED, TW_MINUTE);
        rig_add(family, "a", 1);
        assert_status(tw_family_close(family), TW_OK);
        fake_clock_advance_ms(&rig.clock, 5);
        rig_turn(&rig);
    }
    atomic_store(&reader.over, true);
    pthread_join(reader.thread, NULL);
    for (int i = 0; i < 10; i++) rig_pass(&rig, 10);
    assert_i64_equal(test_memory_bytes(rig.engine), 0);
}

RIG_TEST(many_families_live_side_by_side) {
    static tw_family *families[200];
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        families[i] = rig_family(&rig, name, i % 2 == 0 ? TW_WINDOW_ALIGNED : TW_WINDOW_FROM_FIRST, TW_MINUTE);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 200; i++) assert_i64_equal(rig_add(families[i], "a", i), i);
        rig_pass(&rig, TW_MINUTE);
    }
    for (int i = 0; i < 200; i += 2) assert_status(tw_family_close(families[i]), TW_OK);
    rig_settle(&rig);
    for (int i = 1; i < 200; i += 2) assert_i64_equal(rig_add(families[i], "a", i), i);
}

/* Goal: policies set again before 1970 end no window that is open, however far back lateness reaches. */
RIG_TEST(policies_may_be_set_before_1970) {
    struct rig early;
    rig_init(&early);
    fake_clock_init(&early.clock, -10 * TW_MINUTE);
    rig_start(&early);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = TW_UNBOUNDED;
    tw_family *family = rig_family_of(&early, &options);
    assert_status(tw_add_at(family, tw_str("a"), 1, -TW_DAY, NULL), TW_OK);
    assert_status(tw_family_set(family, &options), TW_OK);
    assert_status(tw_add_at(family, tw_str("a"), 1, -TW_DAY, NULL), TW_OK);
    assert_i64_equal(rig_add(family, "a", 1), 1);
    options.lateness_ms = TW_MINUTE;
    assert_status(tw_family_set(family, &options), TW_OK);
    assert_status(tw_add_at(family, tw_str("a"), 1, -TW_DAY, NULL), TW_ERR_LATE);
    assert_status(tw_add_at(family, tw_str("a"), 1, -11 * TW_MINUTE, NULL), TW_OK);
    rig_close(&early);
}
