/* key_template_test.c -- names in Redis are one-to-one, are never reserved names, and fit their size.
 * Refusals are tried by rule and text. One-to-one is tested by rendering long runs of windows and comparing
 * neighbours. */
#include "tests/support/support.h"

#include "engine/base/key_slot.h"
#include "engine/core/key_template.h"

#include <fnmatch.h>
#include <time.h>

static const struct twi_window_rule hourly = {.window = TW_WINDOW_ALIGNED, .window_ms = TW_HOUR};

static tw_key plain(const char *text) {
    return tw_str(text);
}

static const char *rendered(const struct twi_key_template *template, tw_key key, int64_t start_ms) {
    static char out[TWI_REDIS_KEY_MAX + 1];
    size_t size = twi_key_template_render(template, key, start_ms, out);
    assert_true(size <= TWI_REDIS_KEY_MAX);
    out[size] = '\0';
    return out;
}

static void assert_accepted(struct twi_key_template *template, const char *text, const char *prefix,
                            const struct twi_window_rule *rule) {
    char error[200] = "";
    if (twi_key_template_parse(template, text, "views", prefix, 128, NULL, rule, NULL, error, sizeof error) == TW_OK)
        return;
    fail_msg("%s: %s", text != NULL ? text : "(default)", error);
}

static void assert_refused(const char *text, const char *prefix, const struct twi_window_rule *rule,
                           const char *reason) {
    struct twi_key_template template;
    char error[200] = "";
    assert_status(twi_key_template_parse(&template, text, "views", prefix, 128, NULL, rule, NULL, error, sizeof error),
                  TW_ERR_OPTIONS);
    assert_memory_equal(error, "redis_key: ", 11);
    if (strstr(error, reason) == NULL) fail_msg("%s: \"%s\" does not say \"%s\"", text, error, reason);
    assert_status(twi_key_template_parse(&template, text, "views", prefix, 128, NULL, rule, NULL, NULL, 0),
                  TW_ERR_OPTIONS);
    char small[5] = "xxxx";
    assert_status(twi_key_template_parse(&template, text, "views", prefix, 128, NULL, rule, NULL, small, sizeof small),
                  TW_ERR_OPTIONS);
    assert_string_equal(small, "redi");
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

TEST(the_default_has_a_stamp_as_fine_as_the_window) {
    const int64_t start_ms = INT64_C(1690995600000); /* 2023-08-02 17:00:00 UTC */
    const struct {
        struct twi_window_rule rule;
        const char *name;
    } cases[] = {
        {{.window_ms = TW_HOUR}, "views:k:2023080217"},
        {{.window_ms = 6 * TW_HOUR}, "views:k:2023080217"},
        {{.window_ms = TW_HOUR, .utc_offset_ms = 8 * TW_HOUR}, "views:k:2023080301"},
        {{.window_ms = TW_DAY}, "views:k:20230802"},
        {{.window_ms = 30 * TW_DAY}, "views:k:20230802"},
        {{.window_ms = TW_MINUTE}, "views:k:202308021700"},
        {{.window_ms = 25 * TW_MINUTE}, "views:k:202308021700"},
        {{.window_ms = TW_SECOND}, "views:k:20230802170000"},
        {{.window_ms = 90 * TW_SECOND}, "views:k:20230802170000"},
        {{.window = TW_WINDOW_DAY}, "views:k:20230802"},
        {{.window = TW_WINDOW_WEEK}, "views:k:20230802"},
        {{.window = TW_WINDOW_MONTH}, "views:k:202308"},
        {{.window = TW_WINDOW_FOREVER}, "views:k"},
        {{.window = TW_WINDOW_FROM_FIRST, .window_ms = TW_HOUR}, "views:k"},
    };
    for (size_t index = 0; index < sizeof cases / sizeof *cases; index++) {
        struct twi_key_template template;
        assert_accepted(&template, NULL, NULL, &cases[index].rule);
        assert_string_equal(rendered(&template, plain("k"), start_ms), cases[index].name);
        assert_false(template.guard_reserved);
    }
}

TEST(every_sequence_is_rendered) {
    struct twi_key_template template;
    struct twi_window_rule secondly = {.window_ms = TW_SECOND};
    assert_accepted(&template, "100%%/%n/%Y-%m-%dT%k:%H.%M.%S/%Y%%k", "p%k:", &secondly);
    assert_string_equal(rendered(&template, plain("key"), INT64_C(951868799000)),
                        "p%k:100%/views/2000-02-29Tkey:23.59.59/2000%k");
}

TEST(any_bytes_can_be_a_key) {
    struct twi_key_template template;
    assert_accepted(&template, NULL, "p:", &hourly);
    char key[TW_KEY_SIZE_MAX], out[TWI_REDIS_KEY_MAX];
    for (size_t index = 0; index < sizeof key; index++) key[index] = (char)index;
    for (size_t size = 0; size <= sizeof key; size += 31) {
        assert_int_equal(twi_key_template_render(&template, tw_bytes(key, size), 0, out), 8 + size + 11);
        assert_memory_equal(out, "p:views:", 8);
        assert_memory_equal(out + 8, key, size);
        assert_memory_equal(out + 8 + size, ":1970010100", 11);
    }
}

TEST(rendering_in_two_steps_gives_the_same) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    const char *texts[] = {NULL, "%Y%m%d%H%k", "%k%Y%m%d%H", "a%Y%mb%k%dc%H%M", "%Y:%k:%m%d%H%Y"};
    for (size_t step = 0; step < test_scale(2000); step++) {
        struct twi_window_rule rule = {.window_ms = TW_HOUR,
                                       .utc_offset_ms = test_prng_between(&prng, -14, 14) * TW_HOUR};
        struct twi_key_template template;
        assert_accepted(&template, texts[step % 5], step % 3 == 0 ? "prefix:" : NULL, &rule);
        int64_t start_ms = test_prng_between(&prng, TWI_CALENDAR_MIN_MS, TWI_CALENDAR_MAX_MS);
        char frame[TWI_KEY_TEMPLATE_FRAME_BYTES_MAX], one[TWI_REDIS_KEY_MAX], other[TWI_REDIS_KEY_MAX];
        tw_key key = tw_bytes("0123456789", (size_t)test_prng_below(&prng, 10));
        size_t size = twi_key_template_render(&template, key, start_ms, one);
        twi_key_template_stamp(&template, start_ms, frame);
        assert_int_equal(twi_key_template_render_stamped(&template, frame, key, other), size);
        assert_memory_equal(one, other, size);
    }
}

TEST(overflow_counters_have_names_of_the_engine) {
    struct twi_key_template template;
    char out[TWI_REDIS_KEY_MAX];
    assert_accepted(&template, NULL, "p:", &hourly);
    size_t size = twi_key_template_render_overflow(&template, 0, out);
    assert_int_equal(size, strlen("p:tw:overflow:views::1970010100"));
    assert_memory_equal(out, "p:tw:overflow:views::1970010100", size);
}

/* ---- hashes and sorted sets -------------------------------------------------------------------------------------- */

static const struct twi_redis_shape hash = {TW_REDIS_HASH, '|'}, zset = {TW_REDIS_ZSET, '\0'};

static void parse_shaped(struct twi_key_template *template, const char *text, const struct twi_redis_shape *shape,
                         const uint32_t *shorts) {
    assert_status(twi_key_template_parse(template, text, "views", NULL, 16, shorts, &hourly, shape, NULL, 0), TW_OK);
}

/* Goal: a hash's name has the subject, whatever the field is; a sorted set's name has no key; with a tag, all fields of
 * a subject are of one group. Overflow counters, patterns and own names follow. */
TEST(a_shape_decides_what_of_the_key_is_in_the_name) {
    struct twi_key_template template;
    char glob[TWI_KEY_TEMPLATE_GLOB_MAX], out[TWI_REDIS_KEY_MAX];
    const uint32_t *shorts = twi_key_slot_shorts();
    parse_shaped(&template, NULL, &hash, NULL);
    assert_string_equal(rendered(&template, tw_str("a|b|likes"), 0), "views:a|b:1970010100");
    assert_string_equal(rendered(&template, tw_str("a|b|"), 0), "views:a|b|:1970010100"); /* no key: all is subject */
    assert_string_equal(rendered(&template, tw_str(""), 0), "views::1970010100");
    parse_shaped(&template, "%Y%m%d%H%k.%n", &hash, NULL);
    assert_string_equal(rendered(&template, tw_str("a|b"), TW_HOUR), "1970010101a.views");
    parse_shaped(&template, NULL, &hash, shorts);
    assert_int_equal(twi_key_template_group(&template, tw_str("a|b")),
                     twi_key_template_group(&template, tw_str("a|c")));
    assert_int_equal(twi_key_template_group(&template, tw_str("a|b")), twi_key_slot_crc16("a", 1) % 16);
    parse_shaped(&template, NULL, &zset, NULL);
    assert_string_equal(rendered(&template, tw_str("a|b"), TW_HOUR), "views:1970010101");
    twi_key_template_glob(&template, "", glob);
    assert_string_equal(glob, "views:\?\?\?\?\?\?\?\?\?\?");
    size_t size = twi_key_template_render_overflow(&template, 0, out);
    assert_memory_equal(out, "tw:overflow:views:1970010100", size);
    parse_shaped(&template, NULL, &zset, shorts); /* no tag: the name decides the slot */
    assert_string_equal(rendered(&template, tw_str("a"), 0), "views:1970010100");
}

TEST(a_sorted_set_takes_no_key_and_no_tag) {
    static const struct {
        const char *text, *says;
    } cases[] = {{"%n:%k:%Y%m%d%H", "%k"}, {"%n:{%t}:%Y%m%d%H", "%t"}, {"%n", "%Y is missing"}, {"", "empty"}};
    struct twi_key_template template;
    char error[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_status(twi_key_template_parse(&template, cases[i].text, "views", NULL, 128, NULL, &hourly, &zset, error,
                                             sizeof error),
                      TW_ERR_OPTIONS);
        assert_memory_equal(error, "redis_key: ", 11);
        assert_non_null(strstr(error, cases[i].says));
    }
}

/* Goal: of the key of a hash, the subject may make a reserved name. */
TEST(a_subject_that_would_make_a_reserved_name_is_found) {
    struct twi_key_template template;
    parse_shaped(&template, "%k:%Y%m%d%H", &hash, NULL);
    assert_true(twi_key_template_key_is_reserved(&template, tw_str("tw:x|f")));
    assert_true(twi_key_template_key_is_reserved(&template, tw_str("tw|f")));
    assert_false(twi_key_template_key_is_reserved(&template, tw_str("t|w:f")));
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

TEST(templates_that_make_no_sense_are_refused_by_name) {
    assert_refused("", NULL, &hourly, "%k is missing");
    assert_refused("%n:%Y%m%d%H", NULL, &hourly, "%k is missing");
    assert_refused("%%k:%Y%m%d%H", NULL, &hourly, "%k is missing");
    assert_refused("%k:%k:%Y%m%d%H", NULL, &hourly, "%k twice");
    assert_refused("%k:%y%m%d%H", NULL, &hourly, "%y means nothing");
    assert_refused("%k:%T", NULL, &hourly, "%T means nothing");
    assert_refused("%k:%\x01", NULL, &hourly, "means nothing");
    assert_refused("%k:%\xff", NULL, &hourly, "means nothing");
    assert_refused("%k:%Y%m%d%H%", NULL, &hourly, "at the end");
    assert_refused("tw:%k:%Y%m%d%H", NULL, &hourly, "reserved");
    assert_refused("tw:%k:%Y%m%d%H", "p:", &hourly, "reserved");
    struct twi_key_template template;
    char error[100];
    assert_status(twi_key_template_parse(&template, NULL, "tw", NULL, 128, NULL, &hourly, NULL, error, sizeof error),
                  TW_ERR_OPTIONS);
    assert_non_null(strstr(error, "reserved"));
    assert_accepted(&template, "%k:%Y%m%d%H",
                    "tw:", &hourly); /* a prefix of the user's: the names behind it are what is guarded */
}

/* The names next to a counter are in its slot, whether it has a tag or not. */
TEST(a_cluster_has_another_default_and_own_names_in_the_slot) {
    const uint32_t *shorts = twi_key_slot_shorts();
    struct twi_key_template template;
    char name[TWI_REDIS_KEY_MAX], own[TWI_REDIS_KEY_MAX + 24];
    for (int tagged = 0; tagged < 2; tagged++) {
        assert_status(twi_key_template_parse(&template, tagged ? NULL : "%n:%k:%Y%m%d%H", "views", NULL, 128, shorts,
                                             &hourly, NULL, NULL, 0),
                      TW_OK);
        size_t size = twi_key_template_render(&template, tw_str("page"), 0, name);
        assert_int_equal(memchr(name, '{', size) != NULL, tagged);
        size_t own_size = twi_key_template_own(&template, "lease", name, size, own);
        assert_int_equal(twi_key_slot_of(own, own_size), twi_key_slot_of(name, size));
    }
    char expected[64];
    unsigned tag = twi_key_slot_tags(128)[twi_key_slot_crc16("page", 4) % 128];
    int size = snprintf(expected, sizeof expected, "views:{%u}:page:1970010100", tag);
    assert_int_equal(twi_key_template_render(&template, tw_str("page"), 0, name), size);
    assert_memory_equal(name, expected, (size_t)size);
}

TEST(a_stamp_must_be_as_fine_as_the_windows) {
    const struct twi_window_rule minutely = {.window_ms = TW_MINUTE}, month = {.window = TW_WINDOW_MONTH},
                                 week = {.window = TW_WINDOW_WEEK}, long_ones = {.window_ms = 31 * TW_DAY},
                                 thirty = {.window_ms = 30 * TW_DAY}, years = {.window_ms = 366 * TW_DAY};
    struct twi_key_template template;
    assert_refused("%n:{%k}", NULL, &hourly, "%Y is missing"); /* trap S22 */
    assert_refused("%k:%Y%m%d", NULL, &hourly, "%H is missing");
    assert_refused("%k:%Y%m%H", NULL, &hourly, "%d is missing");
    assert_refused("%k:%m%d%H", NULL, &hourly, "%Y is missing"); /* the same every year */
    assert_refused("%k:%Y%m%d%H", NULL, &minutely, "%M is missing");
    assert_refused("%k:%Y", NULL, &month, "%m is missing");
    assert_refused("%k:%Y%m", NULL, &week, "%d is missing");
    assert_refused("%k:%Y%m", NULL, &thirty, "%d is missing");
    assert_accepted(&template, "%k:%Y%m", NULL, &long_ones);
    assert_accepted(&template, "%k:%Y", NULL, &years);
    assert_accepted(&template, "%k:%d.%m.%Y, %H h", NULL, &hourly);
    assert_accepted(&template, "%Y%m%d%H%M%S:%k", NULL, &hourly);
}

TEST(windows_without_a_common_start_take_no_stamp) {
    const struct twi_window_rule forever = {.window = TW_WINDOW_FOREVER},
                                 from_first = {.window = TW_WINDOW_FROM_FIRST, .window_ms = 1000};
    assert_refused("%k:%Y", NULL, &forever, "%Y, but these windows");
    assert_refused("%k:%S", NULL, &from_first, "%S, but these windows");
}

TEST(a_name_that_could_be_too_long_is_refused) {
    struct twi_key_template template;
    char text[TWI_KEY_TEMPLATE_FRAME_BYTES_MAX + 20];
    const struct twi_window_rule forever = {.window = TW_WINDOW_FOREVER};
    memset(text, 'a', sizeof text);
    memcpy(text + TWI_KEY_TEMPLATE_FRAME_BYTES_MAX - 10, "%k", 3);
    assert_accepted(&template, text, "0123456789", &forever);
    char key[TW_KEY_SIZE_MAX], out[TWI_REDIS_KEY_MAX];
    memset(key, 'k', sizeof key);
    assert_int_equal(twi_key_template_render(&template, tw_bytes(key, sizeof key), 0, out), TWI_REDIS_KEY_MAX);
    assert_true(twi_key_template_render_overflow(&template, 0, out) <= TWI_REDIS_KEY_MAX);
    assert_refused(text, "0123456789a", &forever, "longer than 1024 bytes");
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_refused(text, text, &forever, "longer than");
    char stamps[2 * TWI_KEY_TEMPLATE_STAMPS_MAX + 10] = "%k";
    for (int index = 0; index <= TWI_KEY_TEMPLATE_STAMPS_MAX; index++) strcat(stamps, "%Y");
    assert_refused(stamps, NULL, &hourly, "more than 32 parts");
}

TEST(keys_that_would_make_a_reserved_name_are_found) {
    const struct {
        const char *text, *key;
        bool is_reserved;
    } cases[] = {
        {"%k", "tw:", true},   {"%k", "tw:ledger", true}, {"%k", "tw", false},    {"%k", "tx:", false},
        {"t%k", "w:x", true},  {"t%k", "w", false},       {"t%k", "tw:", false},  {"tw%k", ":", true},
        {"tw%k", "x:", false}, {"%k:x", "tw", true},      {"%kw:", "t", true},    {"%kw:", "tw:", true},
        {"%kw:", "tt", false}, {"a%k", "tw:", false},     {"%n%k", "tw:", false}, {"%k:", "tw", true},
    };
    const struct twi_window_rule forever = {.window = TW_WINDOW_FOREVER};
    for (size_t index = 0; index < sizeof cases / sizeof *cases; index++) {
        for (int prefixed = 0; prefixed < 2; prefixed++) {
            struct twi_key_template template;
            assert_accepted(&template, cases[index].text, prefixed ? "p:" : NULL, &forever);
            tw_key key = plain(cases[index].key);
            const char *name = rendered(&template, key, 0) + (prefixed ? 2 : 0);
            assert_int_equal(twi_key_template_key_is_reserved(&template, key), cases[index].is_reserved);
            assert_int_equal(strncmp(name, "tw:", 3) == 0, cases[index].is_reserved);
            if (cases[index].is_reserved) assert_true(template.guard_reserved);
        }
    }
    struct twi_key_template stamped;
    assert_accepted(&stamped, "%k%Y%m%d%H", NULL, &hourly);
    assert_true(twi_key_template_key_is_reserved(&stamped, plain("tw:")));
    assert_false(twi_key_template_key_is_reserved(&stamped, plain("tw")));
}

/* ---- one to one -------------------------------------------------------------------------------------------------- */

/* Goal: S22. Whatever is accepted names neighbouring windows differently.
 * Method: all subsets of the fields, many rules, named by strftime; 1000 windows in a row from random times, and
 * about the turn of a year and of a leap month. */
static bool has_equal_neighbours(const struct twi_window_rule *rule, unsigned fields, int64_t from_ms, int windows) {
    char last[64] = "";
    int64_t at_ms = from_ms;
    for (int window = 0; window < windows; window++) {
        struct twi_span span = twi_calendar_span(rule, at_ms);
        time_t seconds = (time_t)((span.start_ms + rule->utc_offset_ms) / 1000);
        struct tm civil;
        gmtime_r(&seconds, &civil);
        char name[64] = "";
        for (size_t field = 0; field < 6; field++) {
            const char *formats[] = {"%Y", "%m", "%d", "%H", "%M", "%S"};
            if (fields >> field & 1) strftime(name + strlen(name), 8, formats[field], &civil);
        }
        if (strcmp(name, last) == 0) return true;
        strcpy(last, name);
        at_ms = span.end_ms;
    }
    return false;
}

TEST(accepted_stamps_tell_neighbouring_windows_apart) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    const int64_t windows_ms[] = {1000,         7000,   TW_MINUTE,    90000,       TW_HOUR,     5400000,
                                  12 * TW_HOUR, TW_DAY, 25 * TW_HOUR, 30 * TW_DAY, 31 * TW_DAY, 366 * TW_DAY};
    const size_t lengths = sizeof windows_ms / sizeof *windows_ms;
    for (size_t which = 0; which < lengths + 3; which++) {
        struct twi_window_rule rule = {.utc_offset_ms = test_prng_between(&prng, -14 * 60, 14 * 60) * TW_MINUTE};
        if (which < lengths) {
            rule.window_ms = windows_ms[which];
        } else {
            rule.window = TW_WINDOW_DAY + (uint32_t)(which - lengths);
        }
        for (unsigned fields = 0; fields < 64; fields++) {
            char text[32] = "%k:";
            for (size_t field = 0; field < 6; field++) {
                const char *sequences[] = {"%Y", "%m", "%d", "%H", "%M", "%S"};
                if (fields >> field & 1) strcat(text, sequences[field]);
            }
            struct twi_key_template template;
            if (twi_key_template_parse(&template, text, "views", NULL, 128, NULL, &rule, NULL, NULL, 0) != TW_OK)
                continue;
            for (int run = 0; run < 8; run++) {
                int64_t from_ms = run == 0 ? INT64_C(1704067200000) - 5 * TW_DAY /* before 2024-01-01 */
                                           : test_prng_between(&prng, 0, 20000 * TW_DAY);
                assert_false(has_equal_neighbours(&rule, fields, from_ms, 1000));
            }
        }
    }
}

/* Goal: two templates said to be apart never give one name; said to meet, they can. Method: small alphabets, so that
 * equal names are frequent; all keys of up to five bytes; now and then the name of a sorted set, which has no key. */
TEST(templates_that_are_said_to_be_apart_never_meet) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    const struct twi_window_rule forever = {.window = TW_WINDOW_FOREVER};
    size_t apart = 0, together = 0;
    for (size_t round = 0; round < test_scale(3000); round++) {
        struct twi_key_template templates[2];
        for (int side = 0; side < 2; side++) {
            char text[16] = "";
            bool is_zset = test_prng_chance(&prng, 1, 4);
            const struct twi_redis_shape shape = {is_zset ? TW_REDIS_ZSET : TW_REDIS_STRING, '\0'};
            if (is_zset) strcat(text, "a");
            for (uint64_t left = test_prng_below(&prng, 3); left > 0; left--)
                strcat(text, test_prng_below(&prng, 2) ? "a" : "b");
            if (!is_zset) strcat(text, "%k");
            for (uint64_t left = test_prng_below(&prng, 3); left > 0; left--)
                strcat(text, test_prng_below(&prng, 2) ? "a" : "b");
            assert_status(
                twi_key_template_parse(&templates[side], text, "views", NULL, 128, NULL, &forever, &shape, NULL, 0),
                TW_OK);
        }
        bool meet = false;
        char names[2][64];
        for (unsigned pair = 0; pair < 62 * 62 && !meet; pair++) { /* keys of 1 to 5 letters of {a, b} */
            size_t sizes[2];
            for (int side = 0; side < 2; side++) {
                unsigned number = (side == 0 ? pair / 62 : pair % 62) + 2, bits = 0;
                while (number >> (bits + 1)) bits++;
                char key[8];
                for (unsigned bit = 0; bit < bits; bit++) key[bit] = number >> bit & 1 ? 'a' : 'b';
                sizes[side] = twi_key_template_render(&templates[side], tw_bytes(key, bits), 0, names[side]);
            }
            meet = sizes[0] == sizes[1] && memcmp(names[0], names[1], sizes[0]) == 0;
        }
        assert_int_equal(twi_key_templates_collide(&templates[0], &templates[1]), meet);
        assert_int_equal(twi_key_templates_collide(&templates[1], &templates[0]), meet);
        meet ? together++ : apart++;
    }
    assert_true(apart > test_scale(100) && together > test_scale(100));
}

TEST(templates_of_two_families_are_told_apart) {
    const struct twi_window_rule minutely = {.window_ms = TW_MINUTE};
    const struct {
        const char *one, *other;
        bool collide;
    } cases[] = {
        {"a:%k:%Y%m%d%H", "b:%k:%Y%m%d%H", false},   {"a:%k:%Y%m%d%H", "a:%k:%Y%m%d%H", true},
        {"a:%k:%Y%m%d%H", "a:%k:%Y%m%d%H%M", false}, /* a colon where the other has a digit */
        {"%k:%Y%m%d%H", "a:%k:%Y%m%d%H", true},      {"%k:%Y%m%d%H:a", "%k:%Y%m%d%H:b", false},
        {"%Y%m%d%H:%k", "%Y-%m%d%H:%k", false},      {"%Y%m%d%H:%k", "2024010100:%Y%m%d%H%k", true},
        {"a:%k:%Y%m%d%H", "a:x:%k:%Y%m%d%H", true},  {"a%k:%Y%m%d%H", "ab%k:%Y%m%d%H", true},
    };
    for (size_t index = 0; index < sizeof cases / sizeof *cases; index++) {
        struct twi_key_template one, other;
        assert_accepted(&one, cases[index].one, "p:", &hourly);
        const struct twi_window_rule *rule = strstr(cases[index].other, "%M") != NULL ? &minutely : &hourly;
        assert_accepted(&other, cases[index].other, "p:", rule);
        assert_int_equal(twi_key_templates_collide(&one, &other), cases[index].collide);
        assert_int_equal(twi_key_templates_collide(&other, &one), cases[index].collide);
    }
}

/* ---- hash tags --------------------------------------------------------------------------------------------------- */

/* The name by the template's text, letter by letter, as the header describes it; of 128 groups. */
static const char *as_described(const char *text, const char *prefix, const char *key, const struct tm *start) {
    static char out[4096];
    size_t used = (size_t)sprintf(out, "%s", prefix);
    for (; *text != '\0'; text++) {
        char *end = out + used, field[] = {'%', text[1], '\0'};
        if (*text != '%') {
            used += (size_t)sprintf(end, "%c", *text);
            continue;
        }
        text++;
        if (*text == 'k')
            used += (size_t)sprintf(end, "%s", key);
        else if (*text == 'n')
            used += (size_t)sprintf(end, "views");
        else if (*text == 't')
            used += (size_t)sprintf(end, "%u", twi_key_slot_tags(128)[twi_key_slot_crc16(key, strlen(key)) % 128]);
        else
            used += strftime(end, 16, field, start);
    }
    return out;
}

/* Goal: names without a tag are what they always were, and a tag adds its digits and nothing else. */
TEST(names_are_as_their_template_reads) {
    static const char *const texts[] = {
        "%n:%k:%Y%m%d%H",  "%Y%m%d%H:%k",         "%k%Y%m%d%H",     "{%k}:%Y%m%d%H%%",   "a{b}%n%k:%d.%m.%Y %H:%M:%S",
        "{%t}%k:%Y%m%d%H", "%n:{%t}:%k:%Y%m%d%H", "%Y%m{%t}%d%H%k", "%Y%m%d%H{%t}:%k%S", "}{%t}%Y%k%m%d%H"};
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int round = 0; round < 4000; round++) {
        struct twi_key_template template;
        const char *text = texts[round % (sizeof texts / sizeof *texts)],
                   *prefix = test_prng_below(&prng, 2) ? "p:" : "";
        time_t start = (time_t)test_prng_below(&prng, INT64_C(4000000000)) / 3600 * 3600;
        struct tm civil;
        char key[16], frame[TWI_KEY_TEMPLATE_FRAME_BYTES_MAX], name[TWI_REDIS_KEY_MAX];
        snprintf(key, sizeof key, "%.*s", (int)test_prng_below(&prng, 9), &"{k}ey 12}"[test_prng_below(&prng, 8)]);
        assert_accepted(&template, text, prefix, &hourly);
        const char *want = as_described(text, prefix, key, gmtime_r(&start, &civil));
        assert_string_equal(rendered(&template, tw_str(key), start * 1000), want);
        twi_key_template_stamp(&template, start * 1000, frame);
        assert_int_equal(twi_key_template_render_stamped(&template, frame, tw_str(key), name), strlen(want));
        assert_memory_equal(name, want, strlen(want));
    }
}

TEST(a_tag_puts_the_name_into_its_groups_slots) {
    static const uint32_t counts[] = {1, 2, 128, 1024};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int number = 0; number < 500; number++) {
            struct twi_key_template template;
            char key[16];
            size_t size = (size_t)snprintf(key, sizeof key, "}{k%d}", number);
            assert_status(twi_key_template_parse(&template, "%n:{%t}%k:%Y%m%d%H", "views", "p", counts[i], NULL,
                                                 &hourly, NULL, NULL, 0),
                          TW_OK);
            const char *name = rendered(&template, tw_bytes(key, size), 0);
            assert_int_equal(twi_key_slot_of(name, strlen(name)) / (TWI_KEY_SLOTS / counts[i]),
                             twi_key_slot_crc16(key, size) % counts[i]);
        }
}

TEST(a_tag_that_a_cluster_would_not_see_is_refused) {
    assert_refused("{%t}{%t}%k:%Y%m%d%H", NULL, &hourly, "%t twice");
    assert_refused("%k{%t}:%Y%m%d%H", NULL, &hourly, "%t behind %k");
    assert_refused("%t:%k:%Y%m%d%H", NULL, &hourly, "alone in braces");
    assert_refused("{%t:%k}:%Y%m%d%H", NULL, &hourly, "alone in braces");
    assert_refused("{a%t}:%k:%Y%m%d%H", NULL, &hourly, "alone in braces");
    assert_refused("{%t", NULL, &hourly, "alone in braces");
    assert_refused("{}{%t}%k:%Y%m%d%H", NULL, &hourly, "before {%t}");
    assert_refused("{%Y}{%t}%k:%m%d%H", NULL, &hourly, "before {%t}");
    assert_refused("%n:{%t}%k:%Y%m%d%H", "my{", &hourly, "redis_prefix");
    assert_refused("tw:{%t}%k:%Y%m%d%H", NULL, &hourly, "reserved");
}

TEST(a_tag_counts_among_the_longest_names_bytes) {
    struct twi_key_template template;
    char text[TWI_KEY_TEMPLATE_FRAME_BYTES_MAX + 20], key[TW_KEY_SIZE_MAX], out[TWI_REDIS_KEY_MAX];
    const struct twi_window_rule forever = {.window = TW_WINDOW_FOREVER};
    memset(text, 'a', sizeof text);
    memset(key, 'k', sizeof key);
    memcpy(text, "{%t}", 4);
    strcpy(text + TWI_KEY_TEMPLATE_FRAME_BYTES_MAX - 2, "%k"); /* 2 bytes for %t, which are 4 at most */
    assert_accepted(&template, text, NULL, &forever);
    assert_true(twi_key_template_render(&template, tw_bytes(key, sizeof key), 0, out) <= TWI_REDIS_KEY_MAX);
    assert_refused(text, "1", &forever, "longer than 1024 bytes");
    memset(text, 'a', sizeof text);
    strcpy(text + TWI_KEY_TEMPLATE_FRAME_BYTES_MAX - 5, "{%t}%k");
    assert_refused(text, NULL, &forever, "longer than 1024 bytes");
}

TEST(the_pattern_of_a_family_matches_its_names) {
    static const char *const texts[] = {"%n:%k:%Y%m%d%H", "a*[b]?\\{%t}%Y:%k:%m%d%H", "{%t}%k:%Y%m%d%H",
                                        "{x}%k%Y%m%d%H*"};
    char glob[TWI_KEY_TEMPLATE_GLOB_MAX], own[TWI_OWN_NAME_MAX + 1];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct twi_key_template template;
        assert_accepted(&template, texts[i], "p*:", &hourly);
        for (int number = 0; number < 100; number++) {
            char key[16];
            snprintf(key, sizeof key, "k%d", number);
            const char *name = rendered(&template, plain(key), number * TW_DAY);
            twi_key_template_glob(&template, "", glob);
            if (fnmatch(glob, name, 0) != 0) fail_msg("%s does not match %s", glob, name);
            own[twi_key_template_own(&template, "lease", name, strlen(name), own)] = '\0';
            twi_key_template_glob(&template, "tw:lease:", glob);
            if (fnmatch(glob, own, 0) != 0) fail_msg("%s does not match %s", glob, own);
            assert_int_not_equal(fnmatch(glob, name, 0), 0);
        }
    }
}

TEST(own_names_lie_beside_their_counter) {
    static const char *const texts[] = {"%n:%k:%Y%m%d%H", "%n:{%t}:%k:%Y%m%d%H", "{x}%k:%Y%m%d%H", "{}%k:%Y%m%d%H"};
    const uint32_t *shorts = twi_key_slot_shorts();
    char own[TWI_OWN_NAME_MAX];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int number = 0; number < 200; number++) {
            struct twi_key_template template;
            char key[16];
            snprintf(key, sizeof key, "%s%d}", number % 2 ? "k{" : "k", number);
            assert_accepted(&template, texts[i], "p:", &hourly);
            const char *name = rendered(&template, plain(key), 0);
            size_t plain_size = twi_key_template_own(&template, "stock", name, strlen(name), own);
            assert_int_equal(plain_size, strlen(name) + strlen("tw:stock:"));
            assert_memory_equal(own, "p:tw:stock:", 11);
            assert_memory_equal(own + 11, name + 2, strlen(name) - 2);
            template.shorts = shorts;
            size_t size = twi_key_template_own(&template, "stock", name, strlen(name), own);
            assert_true(size <= sizeof own);
            assert_int_equal(twi_key_slot_of(own, size), twi_key_slot_of(name, strlen(name)));
            if (i == 1 || i == 2) assert_int_equal(size, plain_size);
        }
}

/* Goal: as templates_that_are_said_to_be_apart_never_meet, with tags. One direction only: a tag is taken as any
 * digits. */
TEST(tagged_templates_that_are_said_to_be_apart_never_meet) {
    static const char *const heads[] = {"",    "{",     "{1",    "{10}", "{1}",   "a",     "1",   "{%t}",
                                        "{0}", "{%t}1", "{%t}a", "{0}1", "a{%t}", "{%t}{", "{1a", "{}"};
    enum { HEADS = sizeof heads / sizeof *heads, KEYS = 6 + 36 + 216 };
    static const char letters[] = "{}01a%";
    static char names[2][KEYS][24];
    const struct twi_window_rule forever = {.window = TW_WINDOW_FOREVER};
    size_t apart = 0;
    for (size_t pair = 0; pair < HEADS * HEADS; pair++) {
        struct twi_key_template templates[2];
        for (int side = 0; side < 2; side++) {
            char text[24];
            snprintf(text, sizeof text, "%s%%k", heads[side == 0 ? pair / HEADS : pair % HEADS]);
            assert_status(twi_key_template_parse(&templates[side], text, "f", NULL, 16, NULL, &forever, NULL, NULL, 0),
                          TW_OK);
            for (unsigned i = 0; i < KEYS; i++) {
                unsigned size = i < 6 ? 1 : i < 42 ? 2 : 3, number = i - (i < 6 ? 0 : i < 42 ? 6 : 42);
                char key[3];
                for (unsigned at = 0; at < size; at++, number /= 6) key[at] = letters[number % 6];
                strcpy(names[side][i], rendered(&templates[side], tw_bytes(key, size), 0));
            }
        }
        bool meet = twi_key_templates_collide(&templates[0], &templates[1]);
        assert_int_equal(twi_key_templates_collide(&templates[1], &templates[0]), meet);
        apart += !meet;
        for (unsigned one = 0; one < KEYS && !meet; one++)
            for (unsigned other = 0; other < KEYS; other++) assert_string_not_equal(names[0][one], names[1][other]);
    }
    assert_true(apart > HEADS * HEADS / 8);
}
