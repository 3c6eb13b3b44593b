/* each_field_test.c -- tw_each_field(): the fields of a subject, with declared fields and without. Without Redis.
 * Method: each behaviour is asked of two families that get the same counts, one of which declares its fields. */
#include "tests/unit/rig.h"

#include "engine/core/window_map.h"

#define FIELDS "views,likes,shares"

static struct rig rig;
static tw_family *families[2]; /* the second one declares its fields */

static tw_family *open_hash(const char *name, uint32_t window, const char *fields, char separator) {
    tw_family_options options = rig_options(name, window, 0);
    options.redis_shape = TW_REDIS_HASH;
    options.fields = fields;
    options.key_separator = separator;
    return rig_family_of(&rig, &options);
}

static int begin(void **state) {
    rig_open(&rig);
    families[0] = open_hash("any", TW_WINDOW_ALIGNED, NULL, '\0');
    families[1] = open_hash("declared", TW_WINDOW_ALIGNED, FIELDS, '\0');
    return 0;
}

static int end(void **state) {
    rig_close(&rig);
    return 0;
}

static void add_both(const char *key, int64_t delta) {
    for (int i = 0; i < 2; i++) rig_add(families[i], key, delta);
}

struct shown {
    char text[256];
    int calls, most; /* most 0: no end */
};

static bool show(void *ctx, tw_key field, int64_t view) {
    struct shown *shown = ctx;
    size_t used = strlen(shown->text);
    snprintf(shown->text + used, sizeof shown->text - used, "%.*s=%lld ", (int)field.size, (const char *)field.data,
             (long long)view);
    return ++shown->calls != shown->most;
}

static const char *fields_of(tw_family *family, tw_key subject, int64_t unix_ms) {
    static struct shown shown;
    memset(&shown, 0, sizeof shown);
    assert_status(tw_each_field(family, subject, unix_ms, show, &shown), TW_OK);
    return shown.text;
}

/* Both families show these fields: the second one in the order in which it declares them, the first in any. */
static void check(const char *subject, int64_t unix_ms, const char *want) {
    assert_string_equal(fields_of(families[1], tw_str(subject), unix_ms), want);
    const char *any = fields_of(families[0], tw_str(subject), unix_ms);
    assert_int_equal(strlen(any), strlen(want));
    char words[256], *rest = words;
    snprintf(words, sizeof words, "%s", want);
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (strstr(any, word) == NULL) fail_msg("%s is not in: %s", word, any);
}

TEST_WITH(the_fields_of_one_subject_are_shown, begin, end, NULL) {
    add_both("article:7|likes", 2);
    add_both("article:7|views", 30);
    add_both("article:8|views", 4);
    add_both("article:|views", 5);
    add_both("article:77|shares", 6);
    check("article:7", TW_NOW, "views=30 likes=2 ");
    check("article:8", TW_NOW, "views=4 ");
    check("article:77", TW_NOW, "shares=6 ");
    check("article", TW_NOW, "");
    check("nobody", TW_NOW, "");
}

/* A key is split at its last separator, so a subject may have some. */
TEST_WITH(a_subject_may_hold_the_separator, begin, end, NULL) {
    add_both("a|views", 1);
    add_both("a|b|views", 2);
    add_both("a||views", 3);
    add_both("a|views|likes", 4);
    check("a", TW_NOW, "views=1 ");
    check("a|b", TW_NOW, "views=2 ");
    check("a|", TW_NOW, "views=3 ");
    check("a|views", TW_NOW, "likes=4 ");
    tw_family *other = open_hash("other", TW_WINDOW_ALIGNED, NULL, '/');
    rig_add(other, "a|b/c", 5);
    rig_add(other, "x/a|b/d", 6);
    assert_string_equal(fields_of(other, tw_str("a|b"), TW_NOW), "c=5 ");
    assert_string_equal(fields_of(other, tw_str("x/a|b"), TW_NOW), "d=6 ");
}

/* A packed window keeps no counter of 0, and asking for a key may make one: neither may make a difference. */
TEST_WITH(views_of_0_are_not_shown, begin, end, NULL) {
    add_both("a|views", 3);
    add_both("a|likes", 5);
    add_both("a|likes", -5);
    add_both("a|shares", -2);
    check("a", TW_NOW, "views=3 shares=-2 ");
}

/* The window of a moment: open, over, packed, not begun, gone. */
TEST_WITH(each_window_that_is_readable_is_shown, begin, end, NULL) {
    char key[32];
    for (int i = 0; i < 200; i++) { /* enough of them for the window to be packed */
        snprintf(key, sizeof key, "a%d|views", i);
        add_both(key, i + 1);
    }
    add_both("a7|likes", 70);
    add_both("a7|shares", 1);
    add_both("a7|shares", -1);
    rig_pass(&rig, TW_HOUR);
    for (int i = 0; i < 2; i++) assert_true(twi_generation_is_packed(twi_window_find(families[i], RIG_START_MS)));
    add_both("a7|views", 1);
    check("a7", RIG_START_MS, "views=8 likes=70 ");
    check("a7", RIG_START_MS + TW_HOUR - 1, "views=8 likes=70 ");
    check("a199", RIG_START_MS, "views=200 ");
    check("a200", RIG_START_MS, "");
    check("a7", RIG_START_MS + TW_HOUR, "views=1 ");
    check("a7", TW_NOW, "views=1 ");
    check("a7", RIG_START_MS + 3 * TW_HOUR, "");
    rig_pass(&rig, 3 * TW_HOUR);
    for (int i = 0; i < 2; i++) {
        struct shown shown = {.text = ""};
        assert_status(tw_each_field(families[i], tw_str("a7"), RIG_START_MS, show, &shown), TW_ERR_LATE);
        assert_status(tw_each_field(families[i], tw_str("a7"), INT64_MAX, show, &shown), TW_ERR_RANGE);
        assert_int_equal(shown.calls, 0);
    }
    for (int i = 0; i < 2; i++) {
        tw_family *endless = open_hash(i == 0 ? "e0" : "e1", TW_WINDOW_FOREVER, i == 0 ? NULL : FIELDS, '\0');
        rig_add(endless, "a|views", 9);
        assert_string_equal(fields_of(endless, tw_str("a"), TW_NOW), "views=9 ");
        assert_string_equal(fields_of(endless, tw_str("a"), RIG_START_MS), "views=9 ");
    }
}

TEST_WITH(a_visitor_that_has_enough_ends_it, begin, end, NULL) {
    add_both("a|views", 1);
    add_both("a|likes", 2);
    for (int i = 0; i < 2; i++) {
        struct shown shown = {.most = 1};
        assert_status(tw_each_field(families[i], tw_str("a"), TW_NOW, show, &shown), TW_OK);
        assert_int_equal(shown.calls, 1);
    }
}

TEST_WITH(what_no_key_can_be_is_refused, begin, end, NULL) {
    static char long_subject[TW_KEY_SIZE_MAX];
    memset(long_subject, 's', sizeof long_subject);
    struct shown shown = {.text = ""};
    tw_key longest = tw_bytes(long_subject, TW_KEY_SIZE_MAX - 2);
    for (int i = 0; i < 2; i++) {
        assert_status(tw_each_field(families[i], tw_bytes("", 0), TW_NOW, show, &shown), TW_ERR_KEY);
        assert_memory_equal(tw_error_text(), "subject: ", 9);
        assert_status(tw_each_field(families[i], tw_bytes(long_subject, TW_KEY_SIZE_MAX - 1), TW_NOW, show, &shown),
                      TW_ERR_KEY);
        assert_memory_equal(tw_error_text(), "subject: ", 9);
        assert_status(tw_each_field(families[i], longest, TW_NOW, show, &shown), TW_OK); /* no room for "views" */
    }
    char key[TW_KEY_SIZE_MAX];
    memcpy(key, long_subject, longest.size);
    memcpy(key + longest.size, "|v", 2);
    assert_status(tw_add(families[0], tw_bytes(key, sizeof key), 3, NULL), TW_OK);
    assert_string_equal(fields_of(families[0], longest, TW_NOW), "v=3 ");
    tw_family *strings = rig_family(&rig, "strings", TW_WINDOW_ALIGNED, TW_HOUR);
    assert_status(tw_each_field(strings, tw_str("a"), TW_NOW, show, &shown), TW_ERR_MODE);
    assert_memory_equal(tw_error_text(), "redis_shape: ", 13);
    assert_int_equal(shown.calls, 0);
}

/* Counts from inside of the visitor. */
static bool add_more(void *ctx, tw_key field, int64_t view) {
    tw_family *family = ctx;
    char key[64];
    snprintf(key, sizeof key, "other|%.*s", (int)field.size, (const char *)field.data);
    rig_add(family, key, 1);
    return true;
}

TEST_WITH(the_visitor_may_call_the_engine, begin, end, NULL) {
    add_both("a|views", 1);
    add_both("a|likes", 2);
    for (int i = 0; i < 2; i++) {
        assert_status(tw_each_field(families[i], tw_str("a"), TW_NOW, add_more, families[i]), TW_OK);
        assert_int_equal(strlen(fields_of(families[i], tw_str("other"), TW_NOW)), strlen("views=1 likes=1 "));
    }
}

static char of_hook[256];
static bool look_when_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct shown shown = {.text = ""};
    (void)ctx, (void)end_ms, (void)flags;
    if (tw_each_field(family, tw_str("a"), start_ms, show, &shown) == TW_OK)
        snprintf(of_hook, sizeof of_hook, "%s", shown.text);
    return true;
}

/* Also when the engine is being closed. */
TEST(a_closing_hook_reads_its_window) {
    for (int is_declared = 0; is_declared < 2; is_declared++) {
        rig_open(&rig);
        tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
        options.redis_shape = TW_REDIS_HASH;
        options.fields = is_declared ? FIELDS : NULL;
        options.on_window_closed = look_when_closed;
        tw_family *family = rig_family_of(&rig, &options);
        rig_add(family, "a|views", 11);
        of_hook[0] = '\0';
        rig_pass(&rig, TW_HOUR);
        assert_string_equal(of_hook, "views=11 ");
        rig_add(family, "a|views", 12);
        of_hook[0] = '\0';
        rig_close(&rig);
        assert_string_equal(of_hook, "views=12 ");
    }
}

TEST_WITH(a_stopped_engine_shows_nothing, begin, end, NULL) {
    add_both("a|views", 1);
    assert_status(tw_stop(rig.engine), TW_OK);
    struct shown shown = {.text = ""};
    for (int i = 0; i < 2; i++)
        assert_status(tw_each_field(families[i], tw_str("a"), TW_NOW, show, &shown), TW_ERR_CLOSED);
    assert_int_equal(shown.calls, 0);
}
