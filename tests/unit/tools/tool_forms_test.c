/* tool_forms_test.c -- access logs that are not the web servers' own. Their forms, their heads, what is in front of a
 * line; and what is no client, whatever is in its place. */
#include "tests/support/support.h"

#include "tools/count/fields.h"
#include "tools/count/line_form.h"
#include "tools/count/line_prefix.h"

#define WHEN "[17/May/2015:10:05:03 +0000] \"GET /a?b=1 HTTP/1.1\" 200 12 \"-\" \"x\""
#define WHEN_MS INT64_C(1431857103000)

static char joined[TW_KEY_SIZE_MAX + LINE_ELEMENT_MAX];

static struct line_rule rule_of(enum line_format format, const char *key) {
    struct line_rule rule = {.utc_offset_ms = 0};
    struct fields_asked asked = {.format = format, .key = key};
    assert_true(fields_set(&rule, &asked));
    return rule;
}

/* The text in memory of its own size, so that a sanitizer sees a read past its end. */
static const char *parse(const struct line_rule *rule, struct line_head *head, const char *text, size_t size,
                         struct line *line) {
    static char *copy;
    free(copy);
    copy = malloc(size == 0 ? 1 : size);
    assert_non_null(copy);
    memcpy(copy, text, size);
    return line_parse(rule, head, copy, size, line, joined);
}

static void gives(const struct line_rule *rule, struct line_head *head, const char *text, const char *key) {
    struct line line;
    const char *why = parse(rule, head, text, strlen(text), &line);
    if (why != NULL) fail_msg("%s: %s", text, why);
    if (line.key.size != strlen(key) || memcmp(line.key.data, key, line.key.size) != 0)
        fail_msg("%s: key %.*s", text, (int)line.key.size, (const char *)line.key.data);
    assert_i64_equal(line.unix_ms / 1000, WHEN_MS / 1000);
}

static void refuses(const struct line_rule *rule, struct line_head *head, const char *text, const char *why) {
    struct line line;
    const char *said = parse(rule, head, text, strlen(text), &line);
    if (said == NULL) fail_msg("%s: should not parse: %.*s", text, (int)line.key.size, (const char *)line.key.data);
    if (strstr(said, why) == NULL) fail_msg("%s: %s", text, said);
}

/* Goal: a visitor who sends any user changes no other field.
 * Method: users with spaces, brackets, a time, escaped quotes; every field is asked for. */
TEST(a_user_moves_no_other_field) {
    static const char *const users[] = {"-",
                                        "frank",
                                        "john smith",
                                        "a [x] b",
                                        "x [01/Jan/2001:00:00:00 +0000] y",
                                        "x \\\"GET / HTTP/1.1\\\" 200",
                                        "j  s",
                                        "-- -",
                                        "[",
                                        "a [b",
                                        "10.9.9.9 - x",
                                        "10.9.9.9",
                                        "] [",
                                        "[x",
                                        "[x] y",
                                        " ",
                                        "a.example - b",
                                        "\\\"",
                                        ",",
                                        "- -",
                                        "\"\"",
                                        "{",
                                        "1 [01/Jan/2001:00:00:00 +0000]"};
    static const char *const cases[][2] = {
        {"client", "10.0.0.1"}, {"1", "10.0.0.1"}, {"ident", "-"}, {"path", "/a"},
        {"status", "200"},      {"6", "200"},      {"agent", "x"}, {"4", "17/May/2015:10:05:03 +0000"}};
    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        char text[300];
        for (int led = 0; led < 2; led++) {
            snprintf(text, sizeof text, "%s10.0.0.1 - %s " WHEN, led ? "a.example " : "", users[i]);
            struct line_rule user = rule_of(LINE_COMBINED, "user"), host = rule_of(LINE_COMBINED, "host,client");
            gives(&user, NULL, text, users[i]);
            if (led) gives(&host, NULL, text, "a.example:10.0.0.1");
            for (size_t j = 0; j < sizeof cases / sizeof *cases; j++) {
                struct line_rule rule = rule_of(LINE_COMBINED, cases[j][0]);
                gives(&rule, NULL, text, cases[j][1]);
            }
        }
    }
}

/* Goal: a host that only servers have, and an address with its port, keep no line from being counted. */
TEST(a_host_may_have_any_name_that_servers_give_it) {
    static const char *const hosts[] = {"_", "*.example", "[2001:db8::1]:443", "~^(www\\.)?x$", ".example"};
    struct line_rule client = rule_of(LINE_COMBINED, "client"), host = rule_of(LINE_COMBINED, "host");
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        char text[300];
        snprintf(text, sizeof text, "%s 10.0.0.7 - [ " WHEN, hosts[i]);
        gives(&client, NULL, text, "10.0.0.7");
        gives(&host, NULL, text, hosts[i]);
    }
    gives(&client, NULL, "[2001:db8::1]:443 - - " WHEN, "[2001:db8::1]:443");
    gives(&client, NULL, "10.0.0.1 a.example a [b " WHEN, "10.0.0.1"); /* lighttpd */
    gives(&client, NULL, "10.0.0.1 a.example - x " WHEN, "10.0.0.1");
    gives(&host, NULL, "10.0.0.1 a.example - x " WHEN, "a.example");
}

/* Goal: what is no client is not counted as one; what comes with the time is right all the same. */
TEST(what_is_no_host_is_no_client) {
    static const char *const starts[] = {"203.0.113.7, 10.1.1.1 - -",
                                         "203.0.113.7,10.1.1.1 - -",
                                         "\"203.0.113.7, 10.1.1.1\" - -",
                                         "203.0.113.7, 10.1.1.1 10.0.0.1 - -",
                                         "203.0.113.7 10.1.1.1 - -",
                                         "- - -",
                                         "- 10.0.0.1 - -",
                                         "a.example 10.0.0.1 -",
                                         "a.example - 10.0.0.1",
                                         "web-1 nginx: 10.0.0.1 - -",
                                         "2015-05-17 10:05:03 10.0.0.1 - -",
                                         "May 17 10:05:03 10.0.0.1 - -",
                                         "<a> - -",
                                         "10.0.0.1"};
    struct line_rule client = rule_of(LINE_COMBINED, NULL), path = rule_of(LINE_COMBINED, "path,status");
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        char text[300];
        snprintf(text, sizeof text, "%s " WHEN, starts[i]);
        refuses(&client, NULL, text, "");
        gives(&path, NULL, text, "/a:200");
    }
    static const char *const hosts[] = {"10.0.0.1", "::1", "fe80::1%eth0", "web_1.example", "unix:", "[::1]", "desk"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        char text[300];
        snprintf(text, sizeof text, "%s - - " WHEN, hosts[i]);
        gives(&client, NULL, text, hosts[i][0] == '[' ? "::1" : hosts[i]);
    }
}

TEST(a_name_means_what_it_says_or_the_line_is_refused) {
    struct line_rule path = rule_of(LINE_COMBINED, "path"), status = rule_of(LINE_COMBINED, "status");
    struct line_rule agent = rule_of(LINE_COMBINED, "agent"), sixth = rule_of(LINE_COMBINED, "6");
    static const char other[] = "10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"a.example\" \"GET / HTTP/1.1\" 200 12";
    refuses(&path, NULL, other, "no status");
    refuses(&status, NULL, other, "status");
    gives(&sixth, NULL, other, "GET / HTTP/1.1"); /* a number is a place */
    refuses(&agent, NULL, "10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 12 \"-\" 0.1 \"x\"",
            "not in quotes");
    refuses(&path, NULL, "10.0.0.1 - - [17/May/2015:10:05:03 +0000] 0.1 \"GET /\" 200", "no request");
    refuses(&path, NULL, "10.0.0.1 \"GET /\" 200 [17/May/2015:10:05:03 +0000]", "");
    /* the rest of a text that was cut, into which its visitor has written a line */
    refuses(&path, NULL, "x 10.0.0.9 - - [17/May/2015:10:05:03 +0000]\" \"curl\"", "");
}

TEST(prefixes_are_passed_over_as_a_whole) {
    static const char *const wholes[] = {"<190>May 17 10:05:03 web-1 nginx: ",
                                         "<190>May  7 10:05:03 nginx: ",
                                         "May 17 10:05:03.123456 web-1 nginx[12]: ",
                                         "<190>1 2015-05-17T10:05:03Z web-1 nginx 12 - - ",
                                         "<190>1 2015-05-17T10:05:03Z web-1 nginx 12 - [a b=\"c] d\\\" \"] ",
                                         "2015-05-17T10:05:03.123456+00:00 web-1 nginx: ",
                                         "2015-05-17T10:05:03.123456789Z ",
                                         "2015-05-17T10:05:03.123456789Z stdout F ",
                                         "web-1  | ",
                                         "web_1 | 2015-05-17T10:05:03.123456789Z ",
                                         "[pod/web-7d4b9/nginx] ",
                                         "web-1  | <134>May 17 10:05:03 lb haproxy[8]: "};
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        char text[300];
        int size = snprintf(text, sizeof text, "%s10.0.0.1 - - " WHEN, wholes[i]);
        assert_i64_equal(line_prefix(text, (size_t)size, true), strlen(wholes[i]));
        struct line_rule rule = rule_of(LINE_COMBINED, NULL);
        gives(&rule, NULL, text, "10.0.0.1");
    }
    static const char *const none[] = {
        "10.0.0.1 - - ",          "a.example:80 10.0.0.1 - - ", "May - - ",   "10.0.0.1  | x ", "2015-05-17 10:05:03 ",
        "2015-05-17T10:05:03 x ", "<1900>May 17 10:",           "[nginx] x ", "web-1  |x "};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_i64_equal(line_prefix(none[i], strlen(none[i]), true), 0);
    struct line_rule cri = rule_of(LINE_COMBINED, NULL);
    refuses(&cri, NULL, "2015-05-17T10:05:03.123456789Z stdout P 10.0.0.1 - - " WHEN, "piece");
    cri.is_cri = true;
    refuses(&cri, NULL, "10.0.0.1 - - " WHEN, "stdout F");
    gives(&cri, NULL, "2015-05-17T10:05:03.123456789+00:00 stderr F:x 10.0.0.1 - - " WHEN, "10.0.0.1");
}

TEST(marks_and_holes_at_the_start_belong_to_no_client) {
    struct line_rule rule = rule_of(LINE_COMBINED, NULL);
    struct line line;
    static const char marked[] = "\xEF\xBB\xBF"
                                 "10.0.0.1 - - " WHEN,
                      hole[] = "\0\0\0\0\0\0"
                               "10.0.0.1 - - " WHEN;
    static const char within[] = "10.0.0.2 - - [17/M\0\0\0\0\0\0"
                                 "10.0.0.1 - - " WHEN;
    gives(&rule, NULL, marked, "10.0.0.1");
    assert_null(parse(&rule, NULL, hole, sizeof hole - 1, &line));
    assert_true(line.key.size == 8 && memcmp(line.key.data, "10.0.0.1", 8) == 0);
    assert_non_null(parse(&rule, NULL, within, sizeof within - 1, &line));
    assert_string_equal(parse(&rule, NULL, "\0\0\0", 3, &line), "empty line");
}

/* Goal: columns are those that the head names, wherever it changes, and a line that has others is refused. */
TEST(a_head_says_which_columns_a_line_has) {
    struct line_rule rule = rule_of(LINE_W3C, "client,sc-status,path"),
                     guess = rule_of(LINE_COMBINED, "client,status,path");
    static const char fields[] = "#Fields: date time c-ip cs-uri-stem sc-status\r";
    static const char text[] = "#Version: 1.0\n#Fields: date time c-ip cs-uri-stem sc-status\r\nx #Fields: a\n";
    static const char more[] = "x\n#Fields: a b\n#Fields: sc-status date\ty";
    for (int i = 0; i < 2; i++) {
        const struct line_rule *each = i == 0 ? &rule : &guess;
        struct line_head head = {.is_known = false}, found = {.is_known = false};
        struct line line;
        refuses(each, &head, "2015-05-17 10:05:03 10.0.0.1 /a 200", "");
        assert_ptr_equal(parse(each, &head, fields, sizeof fields - 1, &line), line_is_head);
        gives(each, &head, "2015-05-17 10:05:03 10.0.0.1 /a 200", "10.0.0.1:200:/a");
        gives(each, &head, "2015-05-17\t10:05:03.7\t10.0.0.1\t/a b\t200", "10.0.0.1:200:/a b");
        gives(each, &head, "2015-05-17 10:05:03 10.0.0.1 \"/a \"\"b\"\"\" 200", "10.0.0.1:200:/a \"\"b\"\"");
        refuses(each, &head, "2015-05-17 10:05:03 10.0.0.1 /a b 200", "more or fewer columns");
        refuses(each, &head, "2015-05-17 10:05:03 10.0.0.1 200", "more or fewer columns");
        refuses(each, &head, "10.0.0.1 2015-05-17 10:05:03 /a 200", "no date and time");
        gives(each, &head, "2015-05-17 10:05:03 10.0.0.1 /a 200", "10.0.0.1:200:/a");
        assert_true(line_head_take(each, &found, text, sizeof text - 1) && found.columns == 5 && found.date == 1 &&
                    found.time == 2);
        assert_memory_equal(found.column, head.column, sizeof head.column);
        assert_true(line_head_take(each, &found, more, sizeof more - 1) && found.columns == 3 && found.date == 2);
        assert_false(line_head_take(each, &found, text + 20, sizeof text - 21));
        refuses(each, NULL, text, "--resume");
    }
    struct line_rule absent = rule_of(LINE_W3C, "cs-host");
    struct line_head head = {.is_known = false};
    struct line line;
    assert_ptr_equal(parse(&absent, &head, "#Fields: date time", 18, &line), line_is_head);
    refuses(&absent, &head, "2015-05-17 10:05:03", "names no such column");
    refuses(&guess, &head, "# a comment", "comment");
}

/* Goal: whatever the bytes, a parser reads nothing past them and gives a key that the library takes.
 * Method: sound lines with random bytes changed, cut and repeated; memory of exact size (a sanitizer watches). */
TEST(damaged_forms_never_lead_astray) {
    static const struct {
        enum line_format format;
        const char *key, *text;
    } sound[] = {
        {LINE_S3, "client,bucket,path",
         "o b [17/May/2015:10:05:03 +0000] 10.0.0.1 u ID REST.GET.OBJECT k \"GET /k\" 200 - 1 1 1 1 \"-\" \"x\" -"},
        {LINE_ALB, "client,host,path",
         "h2 2015-05-17T10:05:03.1Z lb 10.0.0.1:1 10.0.0.2:2 0 0 0 200 200 1 2 \"GET / HTTP/2\" \"x\" c t g r \"a\""},
        {LINE_ENVOY, "client,agent,path",
         "[2015-05-17T10:05:03.1Z] \"GET / HTTP/1.1\" 200 - 1 2 3 4 \"10.0.0.1\" \"x\" \"i\""},
        {LINE_HAPROXY, "client,server,path",
         "10.0.0.1:1 [17/May/2015:10:05:03.655] f b/s 1/2/3/4/5 200 1 - - ---- 1/1/1/1/0 0/0 {a} \"GET / HTTP/1.1\""},
        {LINE_COMBINED, "client,user,path", "<190>1 2015-05-17T10:05:03Z w n 1 - [a b=\"c\"] 10.0.0.1 - j s " WHEN},
        {LINE_COMBINED, "client",
         "{\"log\":\"10.0.0.1 - - [17/May/2015:10:05:03 +0000] \\\"G /\\\" 200 1\\n\",\"stream\":\"stdout\"}"},
        {LINE_CLOUDFRONT, "client,path", "2015-05-17\t10:05:03\tF\t1\t10.0.0.1\tGET\td\t/a\t200\t-\t\"x\"\t-"}};
    static const char marks[] = "\"[]{}\\ \t:/|-+0\0\r\xff";
    struct test_prng prng;
    unsigned parsed = 0;
    test_prng_seed(&prng, test_seed());
    for (uint64_t turn = 0; turn < test_scale(200000); turn++) {
        char text[300];
        struct line_head head = {.is_known = false};
        size_t i = test_prng_below(&prng, sizeof sound / sizeof *sound), size = strlen(sound[i].text);
        struct line_rule rule =
            rule_of(test_prng_chance(&prng, 1, 2) ? sound[i].format : LINE_COMBINED, i > 3 ? sound[i].key : "client");
        if (rule.format == sound[i].format) rule = rule_of(rule.format, sound[i].key);
        memcpy(text, sound[i].text, size);
        for (uint64_t n = test_prng_below(&prng, 3); n > 0; n--)
            text[test_prng_below(&prng, size)] = marks[test_prng_below(&prng, sizeof marks - 1)];
        if (test_prng_chance(&prng, 1, 3)) size = test_prng_below(&prng, size + 1);
        struct line line;
        if (parse(&rule, &head, text, size, &line) != NULL) continue;
        parsed++;
        assert_in_range(line.key.size, 1, TW_KEY_SIZE_MAX);
    }
    assert_true(parsed > 0);
}
