/* options_test.c -- the range and default of each field; a refusal names its field and changes nothing. */
#include "tests/support/support.h"

#include "engine/core/options.h"

static const struct twi_options_context context = {.has_redis = true, .memory_bytes_max = 1 << 20};
static char error[200];

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

static tw_options good_engine(void) {
    tw_options options;
    tw_options_init(&options);
    options.error_text = error;
    options.error_size = sizeof error;
    return options;
}

static int64_t no_clock(void *ctx, int kind) {
    (void)ctx, (void)kind;
    return 0;
}

static tw_family_options good_family(void) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "views";
    options.error_text = error;
    options.error_size = sizeof error;
    return options;
}

static void assert_error_names(const char *field) {
    size_t size = strlen(field);
    if (strncmp(error, field, size) != 0 || strncmp(error + size, ": ", 2) != 0)
        fail_msg("\"%s\" does not name %s", error, field);
}

static void assert_engine_refused(tw_options options, const char *field) {
    tw_options out, before;
    memset(&out, 0x5a, sizeof out);
    memcpy(&before, &out, sizeof out);
    strcpy(error, "nothing said");
    assert_status(twi_options_check(&options, &out), TW_ERR_OPTIONS);
    assert_error_names(field);
    assert_string_equal(tw_error_text(), error);
    assert_memory_equal(&out, &before, sizeof out);
}

static void assert_family_refused(tw_family_options options, const char *field) {
    tw_family_options out, before;
    memset(&out, 0x5a, sizeof out);
    memcpy(&before, &out, sizeof out);
    strcpy(error, "nothing said");
    assert_status(twi_family_options_check(&options, &out, &context), TW_ERR_OPTIONS);
    assert_error_names(field);
    assert_string_equal(tw_error_text(), error);
    assert_memory_equal(&out, &before, sizeof out);
}

static tw_options engine_accepted(tw_options options) {
    tw_options out;
    strcpy(error, "nothing said");
    tw_status status = twi_options_check(&options, &out);
    if (status != TW_OK) fail_msg("%s", error);
    assert_string_equal(error, "");
    return out;
}

static tw_family_options family_accepted(tw_family_options options) {
    tw_family_options out;
    strcpy(error, "nothing said");
    tw_status status = twi_family_options_check(&options, &out, &context);
    if (status != TW_OK) fail_msg("%s", error);
    assert_string_equal(error, "");
    return out;
}

#define ENGINE_REFUSED(field, value) \
    do { \
        tw_options options = good_engine(); \
        options.field = (value); \
        assert_engine_refused(options, #field); \
    } while (0)

/* With a window of the given kind. */
#define FAMILY_REFUSED_IN(kind, field, value) \
    do { \
        tw_family_options options = good_family(); \
        options.window = (kind); \
        options.field = (value); \
        assert_family_refused(options, #field); \
    } while (0)
#define FAMILY_REFUSED(field, value) FAMILY_REFUSED_IN(TW_WINDOW_ALIGNED, field, value)

#define FAMILY_TAKES_IN(kind, field, value, want) \
    do { \
        tw_family_options options = good_family(); \
        options.window = (kind); \
        options.field = (value); \
        assert_i64_equal(family_accepted(options).field, (want)); \
    } while (0)
#define FAMILY_TAKES(field, value) FAMILY_TAKES_IN(TW_WINDOW_ALIGNED, field, value, value)

/* ---- size -------------------------------------------------------------------------------------------------------- */

TEST(init_zeroes_what_the_caller_has_and_no_more) {
    unsigned char room[sizeof(tw_options) + 64];
    memset(room, 0x5a, sizeof room);
    tw_options_init_sized((tw_options *)(void *)room, sizeof(tw_options) + 8);
    size_t size;
    memcpy(&size, room, sizeof size);
    assert_int_equal(size, sizeof(tw_options) + 8);
    for (size_t index = sizeof size; index < sizeof room; index++) {
        assert_int_equal(room[index], index < sizeof(tw_options) + 8 ? 0 : 0x5a);
    }
}

/* A struct on the stack that nobody has filled: what stands where error_text would be is no address. */
static void assert_uninitialised_refused(size_t size, int filled_with, const char *says) {
    tw_options options, out;
    tw_family_options family, family_out;
    memset(&options, filled_with, sizeof options);
    memset(&family, filled_with, sizeof family);
    options.size = family.size = size;
    assert_status(twi_options_check(&options, &out), TW_ERR_OPTIONS);
    assert_non_null(strstr(tw_error_text(), says));
    assert_status(twi_family_options_check(&family, &family_out, &context), TW_ERR_OPTIONS);
    assert_non_null(strstr(tw_error_text(), says));
}

TEST(a_struct_that_nobody_initialised_is_refused_and_not_believed) {
    for (int filled_with = 0; filled_with < 256; filled_with += 51) {
        assert_uninitialised_refused(0, filled_with, "size: 0; fill the struct with its init function first");
        assert_uninitialised_refused(8, filled_with, "size: 8 bytes are fewer than this struct ever had");
        assert_uninitialised_refused(32, filled_with, "size: 32 bytes are fewer than this struct ever had");
        assert_uninitialised_refused(5000, filled_with, "is the struct initialised?");
        assert_uninitialised_refused(SIZE_MAX, filled_with, "is the struct initialised?");
    }
    ENGINE_REFUSED(size, 0); /* zeroed instead of initialised: the text goes where it is wanted */
    FAMILY_REFUSED(size, 0);
    const size_t sizes[] = {8, 32, offsetof(tw_options, lost_ctx), 5000, SIZE_MAX};
    for (size_t index = 0; index < sizeof sizes / sizeof sizes[0]; index++) { /* any other: no data is written there */
        tw_options options = good_engine(), out;
        strcpy(error, "nothing said");
        options.size = sizes[index];
        assert_status(twi_options_check(&options, &out), TW_ERR_OPTIONS);
        assert_string_equal(error, "nothing said");
        assert_non_null(strstr(tw_error_text(), "size: "));
    }
    tw_family_options family = good_family(), family_out;
    family.size = offsetof(tw_family_options, closed_ctx); /* shorter than the first that was released */
    assert_status(twi_family_options_check(&family, &family_out, &context), TW_ERR_OPTIONS);
    assert_non_null(strstr(tw_error_text(), "fewer than this struct ever had"));
}

TEST(a_longer_struct_of_a_later_version_is_taken_while_its_new_fields_are_zero) {
    struct {
        tw_family_options known;
        uint64_t later[2];
    } longer = {.known = good_family()};
    longer.known.size = sizeof longer;
    tw_family_options out;
    assert_status(twi_family_options_check(&longer.known, &out, &context), TW_OK);
    assert_int_equal(out.size, sizeof out);
    longer.later[1] = UINT64_C(1) << 63;
    assert_status(twi_family_options_check(&longer.known, &out, &context), TW_ERR_OPTIONS);
    assert_error_names("size");
    struct {
        tw_options known;
        unsigned char later;
    } engine_longer = {.known = good_engine(), .later = 1};
    engine_longer.known.size = offsetof(__typeof__(engine_longer), later) + 1;
    tw_options engine_out;
    assert_status(twi_options_check(&engine_longer.known, &engine_out), TW_ERR_OPTIONS);
    assert_error_names("size");
}

TEST(a_refusal_fits_any_buffer) {
    tw_options options = good_engine(), out;
    options.threads = 7;
    memset(error, 'x', sizeof error);
    for (size_t size = 0; size < 40; size++) {
        options.error_size = size;
        assert_status(twi_options_check(&options, &out), TW_ERR_OPTIONS);
        if (size > 0) assert_true(strnlen(error, size) < size);
        assert_int_equal(error[size], 'x');
    }
    options.error_text = NULL;
    assert_status(twi_options_check(&options, &out), TW_ERR_OPTIONS);
}

/* ---- the engine's fields ----------------------------------------------------------------------------------------- */

TEST(an_engine_has_the_defaults_of_the_header) {
    tw_options options = engine_accepted(good_engine());
    assert_int_equal(options.size, sizeof options);
    assert_i64_equal(options.memory_bytes_max, 1 << 30);
    assert_i64_equal(options.threads, TW_OWN_THREAD);
    assert_i64_equal(options.sync_interval_ms, 100);
    assert_i64_equal(options.redis_timeout_ms, 0); /* it follows the round trip */
    assert_i64_equal(options.replay_ms, 30000);
    assert_i64_equal(options.replay_bytes_max, 64 << 20);
    assert_null(options.redis_url);
}

TEST(memory_bytes_max_is_between_1_mib_and_what_can_be_addressed) {
    ENGINE_REFUSED(memory_bytes_max, 1);
    ENGINE_REFUSED(memory_bytes_max, (1 << 20) - 1);
    ENGINE_REFUSED(memory_bytes_max, TWI_MEMORY_BYTES_MAX + 1);
    ENGINE_REFUSED(memory_bytes_max, UINT64_MAX);
    tw_options options = good_engine();
    options.memory_bytes_max = 1 << 20;
    assert_i64_equal(engine_accepted(options).memory_bytes_max, 1 << 20);
}

TEST(threads_is_one_of_two) {
    ENGINE_REFUSED(threads, 2);
    ENGINE_REFUSED(threads, UINT32_MAX);
    tw_options options = good_engine();
    options.threads = TW_HOST_DRIVEN;
    assert_i64_equal(engine_accepted(options).threads, TW_HOST_DRIVEN);
}

TEST(shared_is_one_of_two_and_refuses_what_one_process_has) {
    tw_options options = good_engine();
    options.shared = 2;
    assert_engine_refused(options, "shared");
    options.shared = TW_SHARED_BY_FORK;
    assert_i64_equal(engine_accepted(options).shared, TW_SHARED_BY_FORK);
    options.redis_url = "redis://localhost";
    assert_i64_equal(engine_accepted(options).shared, TW_SHARED_BY_FORK);
    options.merge = TW_MERGE_MULTI;
    assert_engine_refused(options, "merge");
    options = good_engine();
    options.shared = TW_SHARED_BY_FORK;
    options.clock_now_ns = no_clock;
    assert_engine_refused(options, "clock_now_ns");
}

TEST(a_shared_engine_refuses_gauges_and_idle_eviction) {
    const struct twi_options_context shared = {.has_redis = true, .memory_bytes_max = 1 << 20, .is_shared = true};
    tw_family_options gauge = good_family(), evicting = good_family(), out;
    gauge.window = evicting.window = TW_WINDOW_FOREVER;
    gauge.kind = TW_KIND_GAUGE;
    evicting.on_full = TW_ON_FULL_EVICT_IDLE;
    assert_status(twi_family_options_check(&gauge, &out, &context), TW_OK);
    assert_status(twi_family_options_check(&evicting, &out, &context), TW_OK);
    assert_status(twi_family_options_check(&gauge, &out, &shared), TW_ERR_OPTIONS);
    assert_error_names("kind");
    assert_status(twi_family_options_check(&evicting, &out, &shared), TW_ERR_OPTIONS);
    assert_error_names("on_full");
}

TEST(the_replay_window_is_at_most_a_day_and_within_the_memory) {
    ENGINE_REFUSED(replay_ms, 86400001);
    ENGINE_REFUSED(wait_replicas, 1001);
    ENGINE_REFUSED(flush_keys_per_s, 1000000001);
    ENGINE_REFUSED(retry_max_ms, 9);
    ENGINE_REFUSED(retry_max_ms, 5001);
    ENGINE_REFUSED(engines_expected, 1000001);
    tw_options plain = good_engine();
    plain.merge = TW_MERGE_MULTI;
    plain.wait_replicas = 1;
    assert_engine_refused(plain, "wait_replicas");
    ENGINE_REFUSED(replay_bytes_max, (UINT64_C(1) << 30) + 1);
    ENGINE_REFUSED(replay_bytes_max, UINT64_MAX);
    tw_options options = good_engine();
    options.memory_bytes_max = 16 << 20;
    assert_i64_equal(engine_accepted(options).replay_bytes_max, 2 << 20);
    options.replay_ms = 86400000;
    options.wait_replicas = 1000;
    options.replay_bytes_max = 16 << 20;
    assert_i64_equal(engine_accepted(options).replay_ms, 86400000);
    assert_i64_equal(engine_accepted(options).replay_bytes_max, 16 << 20);
}

TEST(sync_interval_ms_is_at_most_a_minute) {
    ENGINE_REFUSED(sync_interval_ms, 60001);
    ENGINE_REFUSED(sync_interval_ms, UINT32_MAX);
    tw_options options = good_engine();
    options.sync_interval_ms = 60000;
    assert_i64_equal(engine_accepted(options).sync_interval_ms, 60000);
}

TEST(merge_is_one_of_three) {
    ENGINE_REFUSED(merge, 3);
    tw_options options = good_engine();
    assert_i64_equal(engine_accepted(options).merge, TW_MERGE_SCRIPT);
    options.merge = TW_MERGE_SETNX;
    assert_i64_equal(engine_accepted(options).merge, TW_MERGE_SETNX);
}

TEST(audit_interval_ms_is_at_least_a_second_and_needs_redis_and_a_thread) {
    ENGINE_REFUSED(audit_interval_ms, 999);
    ENGINE_REFUSED(audit_interval_ms, 1000); /* no redis_url */
    tw_options options = good_engine();
    options.redis_url = "redis://localhost";
    options.audit_interval_ms = TW_HOUR;
    assert_i64_equal(engine_accepted(options).audit_interval_ms, TW_HOUR);
    options.threads = TW_HOST_DRIVEN;
    assert_engine_refused(options, "audit_interval_ms");
    options.threads = TW_OWN_THREAD;
    options.shared = TW_SHARED_BY_FORK;
    assert_engine_refused(options, "audit_interval_ms");
}

TEST(redis_timeout_ms_is_at_most_ten_minutes) {
    ENGINE_REFUSED(redis_timeout_ms, 600001);
    tw_options options = good_engine();
    options.redis_timeout_ms = 1;
    assert_i64_equal(engine_accepted(options).redis_timeout_ms, 1);
}

TEST(a_user_of_the_sentinels_needs_a_password) {
    tw_options options = good_engine();
    options.sentinel_user = "watcher";
    (void)engine_accepted(options); /* without Redis it means nothing */
    options.redis_url = "redis+sentinel://a/main";
    assert_engine_refused(options, "sentinel_user");
}

TEST(redis_prefix_is_bounded) {
    char prefix[TWI_PREFIX_BYTES_MAX + 2];
    memset(prefix, 'p', sizeof prefix);
    prefix[sizeof prefix - 1] = '\0';
    ENGINE_REFUSED(redis_prefix, prefix);
    tw_options options = good_engine();
    options.redis_prefix = prefix + 1;
    assert_ptr_equal(engine_accepted(options).redis_prefix, prefix + 1);
}

TEST(no_refusal_shows_a_password) {
    tw_options options = good_engine();
    options.redis_url = "redis://user:geheim@host/0";
    options.threads = 9;
    assert_engine_refused(options, "threads");
    assert_null(strstr(error, "geheim"));
}

/* ---- a family's fields ------------------------------------------------------------------------------------------- */

TEST(a_family_has_the_defaults_of_the_header) {
    tw_family_options options = family_accepted(good_family());
    assert_int_equal(options.size, sizeof options);
    assert_i64_equal(options.window_ms, TW_HOUR);
    assert_i64_equal(options.lateness_ms, 0);
    assert_i64_equal(options.redis_tags, 128);
    assert_i64_equal(options.earliness_ms, TW_HOUR);
    assert_i64_equal(options.history_ms, TW_HOUR);
    assert_i64_equal(options.retention_ms, TW_DAY);
    assert_i64_equal(options.on_full, TW_ON_FULL_OVERFLOW);
    struct twi_window_rule rule = twi_options_rule(&options);
    assert_i64_equal(twi_calendar_span(&rule, 1).end_ms, TW_HOUR);
}

TEST(calendar_windows_count_by_their_longest) {
    const int64_t longest_ms[] = {TW_DAY, 7 * TW_DAY, 31 * TW_DAY};
    for (uint32_t kind = 0; kind < 3; kind++) {
        FAMILY_TAKES_IN(TW_WINDOW_DAY + kind, earliness_ms, 0, longest_ms[kind]);
        FAMILY_TAKES_IN(TW_WINDOW_DAY + kind, history_ms, 0, longest_ms[kind]);
        FAMILY_TAKES_IN(TW_WINDOW_DAY + kind, retention_ms, 0, longest_ms[kind]);
        FAMILY_TAKES_IN(TW_WINDOW_DAY + kind, window_ms, 0, 0);
    }
}

TEST(name_is_1_to_64_good_bytes) {
    char longest[66];
    memset(longest, 'n', sizeof longest);
    longest[65] = '\0';
    FAMILY_REFUSED(name, NULL);
    FAMILY_REFUSED(name, "");
    FAMILY_REFUSED(name, longest);
    FAMILY_REFUSED(name, "with space");
    FAMILY_REFUSED(name, "colon:");
    FAMILY_REFUSED(name, "perc%nt");
    FAMILY_REFUSED(name, "gr\xc3\xbcn");
    FAMILY_REFUSED(name, "line\n");
    tw_family_options options = good_family();
    options.name = longest + 1;
    family_accepted(options);
    options.name = "Aa.Zz_0-9";
    family_accepted(options);
}

TEST(window_is_one_of_six) {
    FAMILY_REFUSED(window, 6);
    FAMILY_REFUSED(window, UINT32_MAX);
}

TEST(window_ms_is_a_positive_multiple_of_a_second) {
    for (uint32_t kind = TW_WINDOW_ALIGNED; kind <= TW_WINDOW_FROM_FIRST; kind++) {
        FAMILY_REFUSED_IN(kind, window_ms, -1000);
        FAMILY_REFUSED_IN(kind, window_ms, INT64_MIN);
        FAMILY_REFUSED_IN(kind, window_ms, 1);
        FAMILY_REFUSED_IN(kind, window_ms, 1500);
        FAMILY_REFUSED_IN(kind, window_ms, TWI_WINDOW_MS_MAX + 1000);
        FAMILY_REFUSED_IN(kind, window_ms, INT64_MAX);
        FAMILY_TAKES_IN(kind, window_ms, 1000, 1000);
        FAMILY_TAKES_IN(kind, window_ms, TWI_WINDOW_MS_MAX, TWI_WINDOW_MS_MAX);
        FAMILY_TAKES_IN(kind, window_ms, 0, TW_HOUR);
    }
    for (uint32_t kind = TW_WINDOW_FOREVER; kind <= TW_WINDOW_MONTH; kind++) {
        FAMILY_REFUSED_IN(kind, window_ms, 1000);
        FAMILY_REFUSED_IN(kind, window_ms, -1);
    }
}

TEST(utc_offset_ms_is_within_14_hours_in_whole_minutes) {
    FAMILY_REFUSED(utc_offset_ms, 14 * TW_HOUR + TW_MINUTE);
    FAMILY_REFUSED(utc_offset_ms, -14 * TW_HOUR - TW_MINUTE);
    FAMILY_REFUSED(utc_offset_ms, INT64_MIN);
    FAMILY_REFUSED(utc_offset_ms, 30000);
    FAMILY_REFUSED(utc_offset_ms, -1);
    FAMILY_TAKES(utc_offset_ms, 14 * TW_HOUR);
    FAMILY_TAKES(utc_offset_ms, -14 * TW_HOUR);
    FAMILY_TAKES(utc_offset_ms, 345 * TW_MINUTE);
}

TEST(week_start_is_a_weekday) {
    FAMILY_REFUSED_IN(TW_WINDOW_WEEK, week_start, 7);
    FAMILY_TAKES_IN(TW_WINDOW_WEEK, week_start, 6, 6);
}

TEST(hash_tags_are_a_power_of_two) {
    FAMILY_REFUSED(redis_tags, 3);
    FAMILY_REFUSED(redis_tags, 2048);
    FAMILY_REFUSED(redis_tags, UINT64_MAX);
    FAMILY_TAKES(redis_tags, 1);
    FAMILY_TAKES(redis_tags, 1024);
}

static tw_family_options shaped(uint32_t shape) {
    tw_family_options options = good_family();
    options.redis_shape = shape;
    return options;
}

/* Goal: hashes and sorted sets are counters of windows that have one end for all keys, merged by the script; all else
 * is refused by name. */
TEST(hashes_and_sorted_sets_are_for_counters) {
    FAMILY_REFUSED(redis_shape, 3);
    FAMILY_REFUSED(key_separator, '|');
    FAMILY_REFUSED(fields, "a");
    for (uint32_t shape = TW_REDIS_HASH; shape <= TW_REDIS_ZSET; shape++) {
        tw_family_options options = family_accepted(shaped(shape));
        assert_int_equal(options.key_separator, shape == TW_REDIS_HASH ? '|' : '\0');
        options = shaped(shape), options.kind = TW_KIND_GAUGE, options.window = TW_WINDOW_FOREVER;
        assert_family_refused(options, "redis_shape");
        assert_non_null(strstr(error, "gauges"));
        options = shaped(shape), options.limit_mode = TW_LIMIT_HARD;
        assert_family_refused(options, "redis_shape");
        options = shaped(shape), options.limit_mode = TW_LIMIT_STRICT;
        assert_family_refused(options, "redis_shape");
        assert_non_null(strstr(error, "limit"));
        options = shaped(shape), options.limit_shape = TW_SHAPE_SLIDING;
        assert_family_refused(options, "redis_shape");
        options = shaped(shape), options.window = TW_WINDOW_FROM_FIRST, options.window_ms = TW_MINUTE;
        assert_family_refused(options, "redis_shape");
        options = shaped(shape), options.window = TW_WINDOW_FOREVER, options.on_full = TW_ON_FULL_EVICT_IDLE;
        (void)family_accepted(options);
        tw_family_options out;
        for (uint32_t merge = TW_MERGE_SCRIPT; merge <= TW_MERGE_SETNX; merge++) {
            struct twi_options_context other = context;
            other.merge = merge;
            options = shaped(shape);
            tw_status want = merge == TW_MERGE_SCRIPT ? TW_OK : TW_ERR_OPTIONS;
            assert_status(twi_family_options_check(&options, &out, &other), want);
            other.has_redis = false;
            assert_status(twi_family_options_check(&options, &out, &other), TW_OK);
        }
    }
    tw_family_options options = shaped(TW_REDIS_ZSET);
    options.key_separator = ':';
    assert_family_refused(options, "key_separator");
}

TEST(fields_are_a_list_of_at_most_64) {
    static const char *const bad[] = {"", ",", "a,", ",a", "a,,b", "a,b,a", "a,b|c"};
    char many[65 * 3 + 1] = "";
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tw_family_options options = shaped(TW_REDIS_HASH);
        options.fields = bad[i];
        assert_family_refused(options, "fields");
    }
    for (int i = 0; i < 65; i++) snprintf(many + i * 3, 4, "%02d,", i);
    for (int count = 65; count >= 64; count--) {
        tw_family_options options = shaped(TW_REDIS_HASH);
        many[count * 3 - 1] = '\0';
        options.fields = many;
        if (count == 65)
            assert_family_refused(options, "fields");
        else
            assert_ptr_equal(family_accepted(options).fields, many);
    }
    tw_family_options options = shaped(TW_REDIS_HASH);
    options.fields = "a|b";
    options.key_separator = ':';
    (void)family_accepted(options);
}

TEST(durations_are_not_negative_and_at_most_a_hundred_years) {
    FAMILY_REFUSED(lateness_ms, -1);
    FAMILY_REFUSED(lateness_ms, INT64_MIN);
    FAMILY_REFUSED(lateness_ms, INT64_MAX - 1);
    FAMILY_TAKES(lateness_ms, 1);
    FAMILY_TAKES(lateness_ms, TW_UNBOUNDED);
    FAMILY_REFUSED(earliness_ms, -1);
    FAMILY_REFUSED(earliness_ms, TWI_DURATION_MS_MAX + 1);
    FAMILY_TAKES(earliness_ms, TWI_DURATION_MS_MAX);
    FAMILY_TAKES(earliness_ms, TW_UNBOUNDED);
    FAMILY_REFUSED(history_ms, -2);
    FAMILY_REFUSED(history_ms, INT64_MAX - 1);
    FAMILY_TAKES(history_ms, TW_UNBOUNDED);
    FAMILY_TAKES_IN(TW_WINDOW_ALIGNED, history_ms, TW_NONE, 0);
}

TEST(retention_ms_is_at_least_one_window) {
    FAMILY_REFUSED(retention_ms, -1);
    FAMILY_REFUSED(retention_ms, TW_HOUR - 1);
    FAMILY_REFUSED(retention_ms, TW_UNBOUNDED);
    FAMILY_REFUSED_IN(TW_WINDOW_MONTH, retention_ms, 31 * TW_DAY - 1);
    FAMILY_REFUSED_IN(TW_WINDOW_FROM_FIRST, retention_ms, TW_HOUR - 1);
    FAMILY_REFUSED_IN(TW_WINDOW_FOREVER, retention_ms, -1);
    FAMILY_TAKES(retention_ms, TW_HOUR);
    FAMILY_TAKES_IN(TW_WINDOW_FROM_FIRST, retention_ms, TW_HOUR, 0); /* ends in Redis exactly at its end */
    FAMILY_TAKES_IN(TW_WINDOW_FOREVER, retention_ms, 1, 0);
    tw_family_options options = good_family();
    options.window_ms = 3 * TW_DAY;
    assert_i64_equal(family_accepted(options).retention_ms, 3 * TW_DAY);
}

static bool hook(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)family, (void)start_ms, (void)end_ms, (void)flags;
    return true;
}

TEST(what_needs_windows_with_starts_is_refused_elsewhere) {
    for (uint32_t kind = TW_WINDOW_FROM_FIRST; kind <= TW_WINDOW_FOREVER; kind++) {
        FAMILY_REFUSED_IN(kind, lateness_ms, 1);
        FAMILY_REFUSED_IN(kind, lateness_ms, TW_UNBOUNDED);
        FAMILY_REFUSED_IN(kind, earliness_ms, 1);
        FAMILY_REFUSED_IN(kind, history_ms, 1);
        FAMILY_REFUSED_IN(kind, history_ms, TW_NONE);
        FAMILY_REFUSED_IN(kind, on_window_closed, hook);
        FAMILY_TAKES_IN(kind, history_ms, 0, 0);
        FAMILY_TAKES_IN(kind, earliness_ms, 0, 0);
    }
    tw_family_options options = good_family();
    options.on_window_closed = hook;
    assert_true(family_accepted(options).on_window_closed == hook);
}

TEST(one_engine_closes_windows_that_have_starts) {
    FAMILY_REFUSED(closed_by, 2);
    FAMILY_TAKES_IN(TW_WINDOW_ALIGNED, closed_by, TW_CLOSED_BY_ONE, TW_CLOSED_BY_ONE);
    FAMILY_REFUSED_IN(TW_WINDOW_FOREVER, closed_by, TW_CLOSED_BY_ONE);
    FAMILY_REFUSED_IN(TW_WINDOW_FROM_FIRST, closed_by, TW_CLOSED_BY_ONE);
    struct twi_options_context plain = context;
    tw_family_options one = good_family(), out;
    plain.merge = TW_MERGE_MULTI;
    one.closed_by = TW_CLOSED_BY_ONE;
    assert_status(twi_family_options_check(&one, &out, &plain), TW_ERR_OPTIONS);
    assert_memory_equal(error, "closed_by:", 10);
    plain.has_redis = false;
    assert_status(twi_family_options_check(&one, &out, &plain), TW_OK);
}

TEST(memory_policies_are_of_their_lists) {
    FAMILY_REFUSED(on_full, 2);
    FAMILY_REFUSED(on_full_limit, 2);
    FAMILY_REFUSED(memory_share, context.memory_bytes_max + 1);
    FAMILY_TAKES(on_full, TW_ON_FULL_REJECT);
    FAMILY_TAKES(on_full_limit, TW_FULL_LIMIT_DENY);
    FAMILY_TAKES(memory_share, context.memory_bytes_max);
    FAMILY_TAKES(keys_max, UINT64_MAX);
    FAMILY_TAKES(keys_expected, 10922); /* of 96 bytes each, in 1 MiB */
}

TEST(every_status_has_a_name_and_a_sentence) {
    const tw_status numbers[] = {0, 1, 2, 3, 4, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12, -13, -100};
    for (size_t index = 0; index < sizeof numbers / sizeof *numbers; index++) {
        assert_memory_equal(tw_status_name(numbers[index]), "TW_", 3);
        assert_string_not_equal(tw_status_name(numbers[index]), "TW_STATUS_UNKNOWN");
        size_t size = strlen(tw_status_text(numbers[index]));
        assert_true(size > 4 && tw_status_text(numbers[index])[size - 1] == '.');
        for (size_t other = 0; other < index; other++) {
            assert_string_not_equal(tw_status_name(numbers[index]), tw_status_name(numbers[other]));
        }
    }
    assert_string_equal(tw_status_name(TW_ERR_FULL), "TW_ERR_FULL");
    assert_string_equal(tw_status_name(5), "TW_STATUS_UNKNOWN");
    assert_string_equal(tw_status_name(INT32_MIN), "TW_STATUS_UNKNOWN");
    assert_non_null(tw_status_text(4711));
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", TW_VERSION_MAJOR, TW_VERSION_MINOR, TW_VERSION_PATCH);
    assert_string_equal(tw_version(), version);
}
