/* key_template_test.c -- names in Redis are one-to-one, are never reserved names, and fit their size.
 * Refusals are tried by rule and text. One-to-one is tested by rendering long runs of windows and comparing
 * neighbours. */
#include "tests/support/support.h"

#include "engine/core/key_template.h"

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
    if (twi_key_template_parse(template, text, "views", prefix, rule, error, sizeof error) == TW_OK) return;
    fail_msg("%s: %s", text != NULL ? text : "(default)", error);
}

static void assert_refused(const char *text, const char *prefix, const struct twi_window_rule *rule,
                           const char *reason) {
    struct twi_key_template template;
    char error[200] = "";
    assert_status(twi_key_template_parse(&template, text, "views", prefix, rule, error, sizeof error), TW_ERR_OPTIONS);
    assert_memory_equal(error, "redis_key: ", 11);
    if (strstr(error, reason) == NULL) fail_msg("%s: \"%s\" does not say \"%s\"", text, error, reason);
    assert_status(twi_key_template_parse(&template, text, "views", prefix, rule, NULL, 0), TW_ERR_OPTIONS);
    char small[5] = "xxxx";
    assert_status(twi_key_template_parse(&template, text, "views", prefix, rule, small, sizeof small), TW_ERR_OPTIONS);
    assert_string_equal(small, "redi");
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

static void the_default_has_a_stamp_as_fine_as_the_window(void **state) {
    (void)state;
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

static void every_sequence_is_rendered(void **state) {
    (void)state;
    struct twi_key_template template;
    struct twi_window_rule secondly = {.window_ms = TW_SECOND};
    assert_accepted(&template, "100%%/%n/%Y-%m-%dT%k:%H.%M.%S/%Y%%k", "p%k:", &secondly);
    assert_string_equal(rendered(&template, plain("key"), INT64_C(951868799000)),
                        "p%k:100%/views/2000-02-29Tkey:23.59.59/2000%k");
}

static void any_bytes_can_be_a_key(void **state) {
    (void)state;
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

static void rendering_in_two_steps_gives_the_same(void **state) {
    (void)state;
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

static void overflow_counters_have_names_of_the_engine(void **state) {
    (void)state;
    struct twi_key_template template;
    char out[TWI_REDIS_KEY_MAX];
    assert_accepted(&template, NULL, "p:", &hourly);
    size_t size = twi_key_template_render_overflow(&template, 0, out);
    assert_int_equal(size, strlen("p:tw:overflow:views::1970010100"));
    assert_memory_equal(out, "p:tw:overflow:views::1970010100", size);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void templates_that_make_no_sense_are_refused_by_name(void **state) {
    (void)state;
    assert_refused("", NULL, &hourly, "%k is missing");
    assert_refused("%n:%Y%m%d%H", NULL, &hourly, "%k is missing");
    assert_refused("%%k:%Y%m%d%H", NULL, &hourly, "%k is missing");
    assert_refused("%k:%k:%Y%m%d%H", NULL, &hourly, "%k twice");
    assert_refused("%k:%y%m%d%H", NULL, &hourly, "%y means nothing");
    assert_refused("%k:%t", NULL, &hourly, "%t means nothing");
    assert_refused("%k:%\x01", NULL, &hourly, "means nothing");
    assert_refused("%k:%\xff", NULL, &hourly, "means nothing");
    assert_refused("%k:%Y%m%d%H%", NULL, &hourly, "at the end");
    assert_refused("tw:%k:%Y%m%d%H", NULL, &hourly, "reserved");
    assert_refused("tw:%k:%Y%m%d%H", "p:", &hourly, "reserved");
    struct twi_key_template template;
    char error[100];
    assert_status(twi_key_template_parse(&template, NULL, "tw", NULL, &hourly, error, sizeof error), TW_ERR_OPTIONS);
    assert_non_null(strstr(error, "reserved"));
    assert_accepted(&template, "%k:%Y%m%d%H",
                    "tw:", &hourly); /* a prefix of the user's: the names behind it are what is guarded */
}

static void a_stamp_must_be_as_fine_as_the_windows(void **state) {
    (void)state;
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

static void windows_without_a_common_start_take_no_stamp(void **state) {
    (void)state;
    const struct twi_window_rule forever = {.window = TW_WINDOW_FOREVER},
                                 from_first = {.window = TW_WINDOW_FROM_FIRST, .window_ms = 1000};
    assert_refused("%k:%Y", NULL, &forever, "%Y, but these windows");
    assert_refused("%k:%S", NULL, &from_first, "%S, but these windows");
}

static void a_name_that_could_be_too_long_is_refused(void **state) {
    (void)state;
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

static void keys_that_would_make_a_reserved_name_are_found(void **state) {
    (void)state;
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

static void accepted_stamps_tell_neighbouring_windows_apart(void **state) {
    (void)state;
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
            if (twi_key_template_parse(&template, text, "views", NULL, &rule, NULL, 0) != TW_OK) continue;
            for (int run = 0; run < 8; run++) {
                int64_t from_ms = run == 0 ? INT64_C(1704067200000) - 5 * TW_DAY /* before 2024-01-01 */
                                           : test_prng_between(&prng, 0, 20000 * TW_DAY);
                assert_false(has_equal_neighbours(&rule, fields, from_ms, 1000));
            }
        }
    }
}

/* Goal: two templates said to be apart never give one name; said to meet, they can. Method: small alphabets, so that
 * equal names are frequent; all keys of up to three bytes. */
static void templates_that_are_said_to_be_apart_never_meet(void **state) {
    (void)state;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    const struct twi_window_rule forever = {.window = TW_WINDOW_FOREVER};
    size_t apart = 0, together = 0;
    for (size_t round = 0; round < test_scale(3000); round++) {
        struct twi_key_template templates[2];
        for (int side = 0; side < 2; side++) {
            char text[16] = "";
            for (uint64_t left = test_prng_below(&prng, 3); left > 0; left--)
                strcat(text, test_prng_below(&prng, 2) ? "a" : "b");
            strcat(text, "%k");
            for (uint64_t left = test_prng_below(&prng, 3); left > 0; left--)
                strcat(text, test_prng_below(&prng, 2) ? "a" : "b");
            assert_accepted(&templates[side], text, NULL, &forever);
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
    assert_true(apart > 100 && together > 100);
}

static void templates_of_two_families_are_told_apart(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_has_a_stamp_as_fine_as_the_window),
        cmocka_unit_test(every_sequence_is_rendered),
        cmocka_unit_test(any_bytes_can_be_a_key),
        cmocka_unit_test(rendering_in_two_steps_gives_the_same),
        cmocka_unit_test(overflow_counters_have_names_of_the_engine),
        cmocka_unit_test(templates_that_make_no_sense_are_refused_by_name),
        cmocka_unit_test(a_stamp_must_be_as_fine_as_the_windows),
        cmocka_unit_test(windows_without_a_common_start_take_no_stamp),
        cmocka_unit_test(a_name_that_could_be_too_long_is_refused),
        cmocka_unit_test(keys_that_would_make_a_reserved_name_are_found),
        cmocka_unit_test(accepted_stamps_tell_neighbouring_windows_apart),
        cmocka_unit_test(templates_that_are_said_to_be_apart_never_meet),
        cmocka_unit_test(templates_of_two_families_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
