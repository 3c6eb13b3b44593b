/* redis_shape_test.c -- the keys of hashes: every call that takes one checks it, whichever way it takes, and changes
 * nothing when it refuses. */
#include "tests/unit/rig.h"

#include "engine/core/key_template.h"

static struct rig rig;

static tw_family *open_hash(const char *fields, char separator) {
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.lateness_ms = TW_MINUTE;
    options.redis_shape = TW_REDIS_HASH;
    options.fields = fields;
    options.key_separator = separator;
    return rig_family_of(&rig, &options);
}

static void assert_split(const char *key, bool is_good, const char *subject, const char *inner) {
    const struct twi_redis_shape shape = {TW_REDIS_HASH, '|'};
    tw_key parts[2];
    assert_int_equal(twi_redis_shape_split(shape, tw_str(key), &parts[0], &parts[1]), is_good);
    assert_int_equal(parts[0].size, strlen(subject));
    assert_memory_equal(parts[0].data, subject, strlen(subject));
    assert_int_equal(parts[1].size, strlen(inner));
    assert_memory_equal(parts[1].data, inner, strlen(inner));
}

TEST(a_key_is_split_at_its_last_separator) {
    assert_split("a|b", true, "a", "b");
    assert_split("a|b|c", true, "a|b", "c");
    assert_split("||c", true, "|", "c");
    assert_split("ab", false, "ab", "");
    assert_split("|b", false, "|b", "");
    assert_split("a|", false, "a|", "");
    assert_split("a|b|", false, "a|b|", "");
    assert_split("|", false, "|", "");
}

static void assert_refused(tw_status status, const char *says) {
    assert_status(status, TW_ERR_KEY);
    assert_non_null(strstr(tw_error_text(), says));
}

/* Goal: no call that counts or reads takes a key without a field, or with one that was not declared. Method: each call,
 * before there is a window, and while other keys are there (so that the short path looks for it). */
RIG_TEST(a_key_without_a_known_field_is_refused_by_every_call) {
    static const char *const bad[] = {"views",    "a|",     "|views",
                                      "a|clicks", "a|view", "a long key above all, of more than 32 bytes"};
    tw_family *family = open_hash("views,likes", '\0');
    tw_reading reading;
    tw_verdict verdict;
    tw_pin *pin = NULL;
    bool first;
    int64_t view = 77;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            tw_key key = tw_str(bad[i]);
            const char *says =
                strcmp(bad[i], "a|clicks") == 0 || strcmp(bad[i], "a|view") == 0 ? "fields" : "separator";
            assert_refused(tw_add(family, key, 1, NULL), says);
            assert_refused(tw_add(family, key, 1, &view), says);
            assert_refused(tw_add_at(family, key, 1, RIG_START_MS, &view), says);
            assert_refused(tw_get(family, key, &view), says);
            assert_refused(tw_get_at(family, key, RIG_START_MS, &view), says);
            assert_refused(tw_read(family, key, &reading), says);
            assert_refused(tw_reset(family, key, &view), says);
            assert_refused(tw_acquire(family, key, 1, 10, &verdict), says);
            assert_refused(tw_once(family, key, &first), says);
            assert_refused(tw_pin_open(family, key, &pin), says);
            assert_i64_equal(view, 77);
            tw_key keys[] = {tw_str("a|views"), key};
            tw_status each[2];
            assert_status(tw_add_many(family, keys, NULL, 2, NULL, each), TW_ERR_KEY);
            assert_status(each[0], TW_OK);
            assert_status(each[1], TW_ERR_KEY);
        }
    }
    assert_status(tw_get(family, tw_str("a|views"), &view), TW_OK);
    assert_i64_equal(view, (int64_t)(2 * sizeof bad / sizeof *bad));
    rig_add(family, "a|likes", 5);
    assert_i64_equal(rig_add(family, "a|likes", 5), 10);
    assert_status(tw_family_close(family), TW_OK);
    rig_settle(&rig);
}

RIG_TEST(another_separator_is_taken_and_belongs_to_the_family) {
    tw_family *family = open_hash(NULL, ':'), *other = NULL;
    assert_i64_equal(rig_add(family, "a|b:c", 1), 1);
    assert_status(tw_add(family, tw_str("a|b"), 1, NULL), TW_ERR_KEY);
    char error[128];
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"key_separator", "fields", "redis_shape"};
        tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
        options.lateness_ms = TW_MINUTE;
        options.redis_shape = i == 2 ? TW_REDIS_ZSET : TW_REDIS_HASH;
        options.key_separator = i == 0 ? '|' : i == 1 ? ':' : '\0';
        options.fields = i == 1 ? "c" : NULL;
        options.error_text = error;
        options.error_size = sizeof error;
        assert_status(tw_family_open(rig.engine, &options, &other), TW_ERR_OPTIONS);
        assert_memory_equal(error, names[i], strlen(names[i]));
        assert_status(tw_family_set(family, &options), TW_ERR_OPTIONS);
        assert_memory_equal(error, names[i], strlen(names[i]));
    }
    assert_status(tw_family_close(family), TW_OK);
    rig_settle(&rig);
}

RIG_TEST(holds_stock_and_locks_stay_with_strings) {
    for (uint32_t shape = TW_REDIS_HASH; shape <= TW_REDIS_ZSET; shape++) {
        tw_family_options options = rig_options("f", TW_WINDOW_FOREVER, 0);
        char token[TW_TOKEN_SIZE];
        options.redis_shape = shape;
        tw_family *family = rig_family_of(&rig, &options);
        tw_key key = tw_str("a|b");
        assert_status(tw_hold(family, key, 1, NULL), TW_ERR_MODE);
        assert_non_null(strstr(tw_error_text(), "redis_shape"));
        assert_status(tw_hold_release(family, key), TW_ERR_MODE);
        assert_status(tw_reserve(family, key, 1, 10, 1000, tw_bytes(NULL, 0), token, NULL), TW_ERR_MODE);
        assert_non_null(strstr(tw_error_text(), "redis_shape"));
        assert_status(tw_lock(family, key, 1000, token, NULL), TW_ERR_MODE);
        assert_non_null(strstr(tw_error_text(), "redis_shape"));
        assert_status(tw_family_close(family), TW_OK);
        rig_settle(&rig);
    }
}
