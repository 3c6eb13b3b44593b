/* tool_layout_test.c -- formats of servers (--log-format): what is refused, times in all their forms, and lines that
 * somebody has damaged. */
#include "tests/support/support.h"

#include "tools/count/fields.h"

static char joined[TW_KEY_SIZE_MAX + LINE_ELEMENT_MAX];

static struct line_rule rule_of(struct line_layout *layout, const char *format, const char *key) {
    struct line_rule rule = {.utc_offset_ms = 0};
    if (!layout_read(format, layout)) fail_msg("%s", format);
    struct fields_asked asked = {.format = LINE_LAYOUT, .layout = layout, .key = key};
    assert_true(fields_set(&rule, &asked));
    return rule;
}

/* The text in memory of its own size, so that a sanitizer sees a read past its end. */
static const char *parse(const struct line_rule *rule, const char *text, size_t size, struct line *line) {
    static char *copy;
    free(copy);
    copy = malloc(size == 0 ? 1 : size);
    assert_non_null(copy);
    memcpy(copy, text, size);
    return line_parse(rule, NULL, copy, size, line, joined);
}

/* Goal: each conversion of a time is read, and none is taken for another.
 * Method: forms of Apache, a text of each, and the moment by hand. */
TEST(times_are_read_in_the_form_that_the_format_says) {
    static const struct {
        const char *form, *text;
        int64_t unix_ms; /* -1 means refused */
    } cases[] = {{"%d/%b/%Y:%H:%M:%S %z", "17/May/2015:12:05:03 +0200", 1431857103000},
                 {"%d/%b/%Y:%H:%M:%S %z", "17/May/2015:12:05:03 +02:00", 1431857103000},
                 {"%FT%T%z", "2015-05-17T10:05:03Z", 1431857103000},
                 {"%F %T", "2015-05-17 13:05:03", 1431857103000}, /* three hours east, by the rule */
                 {"%F %T %Z", "2015-05-17 10:05:03 UTC", 1431857103000},
                 {"%F %T %Z", "2015-05-17 13:05:03 MSK", 1431857103000},
                 {"%D %R", "05/17/15 13:05", 1431857100000},
                 {"%D %R", "01/01/69 03:00", -31536000000},
                 {"%D %R", "01/01/68 03:00", 3092601600000},
                 {"%A, %e %B %Y %r", "Sunday,  7 June 2015 12:00:00 AM", 1433624400000},
                 {"%e %b %Y %l:%M %p", "17 May 2015  1:05 PM", 1431857100000},
                 {"%c", "Sun May 17 13:05:03 2015", 1431857103000},
                 {"%Y.%j %k:%M", "2015.137 13:05", 1431857100000},
                 {"%Y.%j %k:%M", "2015.365  3:00", 1451520000000},
                 {"%Y.%j %k:%M", "2016.366  3:00", 1483142400000},
                 {"%Y.%j %k:%M", "2015.366  3:00", -1},
                 {"%s", "1431857103", 1431857103000},
                 {"%s", "99999999999999999", -1},
                 {"%F %T", "2015-02-29 10:05:03", -1},
                 {"%F %T", "2015-05-17 24:05:03", -1},
                 {"%F %T", "2015-05-17 10:60:03", -1},
                 {"%F %T", "2015-05-17 10:05:61", -1},
                 {"%F %T", "2015-5-17 10:05:03", -1},
                 {"%F %T%z", "2015-05-17 10:05:03+1500", -1},
                 {"%F %T%z", "2015-05-17 10:05:03", -1},
                 {"%F %T %%", "2015-05-17 13:05:03 %", 1431857103000}};
    static struct line_layout layout;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char format[100], text[100];
        struct line line;
        snprintf(format, sizeof format, "%%h [%%{%s}t]", cases[i].form);
        snprintf(text, sizeof text, "10.0.0.1 [%s]", cases[i].text);
        struct line_rule rule = rule_of(&layout, format, NULL);
        rule.utc_offset_ms = 3 * TW_HOUR;
        const char *why = parse(&rule, text, strlen(text), &line);
        if ((why == NULL) != (cases[i].unix_ms != -1)) fail_msg("%s: %s: %s", format, text, why);
        if (why == NULL && line.unix_ms != cases[i].unix_ms)
            fail_msg("%s: %s: %lld", format, text, (long long)line.unix_ms);
    }
}

/* Goal: whatever the bytes, nothing is read past them, and what parses has a key that the library takes.
 * Method: sound lines with random bytes changed, cut and repeated; memory of exact size (a sanitizer watches). */
TEST(damaged_lines_never_lead_astray) {
    static const char *const formats[] = {
        "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_user_agent\"",
        "%v:%p %h %l %u %t \"%r\" %>s %O", "%{%F %T}t.%{msec_frac}t|%h|%{X}i|%{Y}i|%s",
        "%ci:%cp [%tr] %b/%s %ST %B %hr %hs %{+Q}r"};
    static const char *const lines[] = {
        "10.0.0.1 - a [b [17/May/2015:10:05:03 +0000] \"GET /\\\"a HTTP/1.1\" 200 12 \"x\"",
        "a.example:443 10.0.0.1 - x y [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 12",
        "2015-05-17 10:05:03.123|10.0.0.1|a|b|c|200",
        "2001:db8::1:33 [17/May/2015:10:05:03.655] b/s 200 12 {a|b} \"GET /\""};
    static const char marks[] = "\"[]{}|\\ \t:/-+0\0\r\xff";
    static struct line_layout layout;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t i = 0; i < 4; i++) {
        struct line_rule rule = rule_of(&layout, formats[i], "client,1");
        struct line line;
        assert_null(parse(&rule, lines[i], strlen(lines[i]), &line));
        for (uint64_t turn = 0; turn < test_scale(50000); turn++) {
            char text[256];
            size_t size = strlen(lines[i]);
            memcpy(text, lines[i], size);
            for (uint64_t n = test_prng_below(&prng, 4); n > 0; n--)
                text[test_prng_below(&prng, size)] = marks[test_prng_below(&prng, sizeof marks - 1)];
            if (test_prng_chance(&prng, 1, 3)) size = test_prng_below(&prng, size + 1);
            if (parse(&rule, text, size, &line) != NULL) continue;
            assert_in_range(line.key.size, 1, TW_KEY_SIZE_MAX);
            assert_true(line_time_counts(line.unix_ms));
        }
    }
}

/* Goal: no text given as a format reads past its end, or leaves a layout in which two fields touch.
 * Method: random pieces of formats behind each other. */
TEST(any_text_is_a_format_or_refused) {
    static const char *const pieces[] = {
        "%",  "$",  "{", "}",   "%h", "%t",  "%{%F %T}t",    "$time_local", "$a",        "${b}",
        "\\", "\"", "'", " ",   "[",  "]",   "%[",           "%{+Q}",       "%ci",       "%o",
        "%%", "^t", ";", "end", "%>", "%!2", "%{begin:%s}t", "log_format ", "LogFormat "};
    static struct line_layout layout;
    struct test_prng prng;
    unsigned good = 0;
    test_prng_seed(&prng, test_seed());
    for (uint64_t turn = 0; turn < test_scale(2000); turn++) {
        char text[200] = "";
        for (uint64_t n = test_prng_below(&prng, 8); n > 0; n--)
            strcat(text, pieces[test_prng_below(&prng, sizeof pieces / sizeof *pieces)]);
        char *copy = strdup(text);
        assert_non_null(copy);
        if (layout_read(copy, &layout)) {
            good++;
            assert_in_range(layout.count, 1, LAYOUT_FIELDS_MAX);
            assert_true(layout.room_used <= sizeof layout.room);
            for (size_t i = 0; i + 1 < layout.count; i++)
                assert_true(layout.field[i].behind.size > 0 ||
                            (layout.field[i].kind == LAYOUT_TIME && layout.field[i + 1].kind == LAYOUT_TIME));
        }
        free(copy);
    }
    assert_true(good > 0);
}
