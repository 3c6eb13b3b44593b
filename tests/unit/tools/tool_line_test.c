/* tool_line_test.c -- the line parsers of the command: times, fields, keys, and what is none of them. */
#include "tests/support/support.h"

#include <time.h>

#include "tools/count/line.h"

static char joined[TW_KEY_SIZE_MAX + LINE_ELEMENT_MAX];

static struct line_rule rule_of(enum line_format format, const uint16_t *fields, size_t count) {
    struct line_rule rule = {.utc_offset_ms = 0};
    line_rule_set(&rule, format, fields, count);
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

static void parses(const struct line_rule *rule, const char *text, int64_t unix_s, const char *key, int64_t delta) {
    struct line line;
    const char *why = parse(rule, text, strlen(text), &line);
    if (why != NULL) fail_msg("%s: %s", text, why);
    assert_i64_equal(line.unix_ms, unix_s * 1000);
    assert_i64_equal(line.delta, delta);
    assert_i64_equal(line.key.size, strlen(key));
    assert_memory_equal(line.key.data, key, line.key.size);
}

static void refuses(const struct line_rule *rule, const char *text) {
    struct line line;
    if (parse(rule, text, strlen(text), &line) == NULL) fail_msg("%s: should not parse", text);
}

/* Goal: our civil time is the C library's.
 * Method: every day from 1600 to 2400, and random seconds, against timegm(). */
TEST(civil_time_agrees_with_timegm) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int64_t day = -135140; day < 157054; day++) {
        time_t unix_s = (time_t)(day * 86400 + (int64_t)test_prng_below(&prng, 86400));
        struct tm tm;
        gmtime_r(&unix_s, &tm);
        assert_true(line_date_is_valid((unsigned)tm.tm_year + 1900, (unsigned)tm.tm_mon + 1, (unsigned)tm.tm_mday));
        assert_i64_equal(line_unix_s(tm.tm_year + 1900, (unsigned)tm.tm_mon + 1, (unsigned)tm.tm_mday,
                                     (unsigned)tm.tm_hour, (unsigned)tm.tm_min, (unsigned)tm.tm_sec),
                         unix_s);
    }
    assert_false(line_date_is_valid(2015, 2, 29));
    assert_false(line_date_is_valid(1900, 2, 29));
    assert_true(line_date_is_valid(2000, 2, 29));
    assert_false(line_date_is_valid(2015, 4, 31));
    assert_false(line_date_is_valid(2015, 13, 1));
    assert_false(line_date_is_valid(2015, 0, 1));
    assert_false(line_date_is_valid(2015, 1, 0));
}

/* Goal: fields of an access log are found whatever is in them. */
TEST(a_combined_line_is_taken_apart) {
    static const char text[] =
        "2001:db8::1 - frank [17/May/2015:10:05:03 +0000] \"GET /\\\"x\\\\\" 200 12 \"-\" \"An [odd] agent\"";
    for (uint16_t field = 1; field <= 9; field++) {
        static const char *const want[] = {"2001:db8::1",    "-",   "frank", "17/May/2015:10:05:03 +0000",
                                           "GET /\\\"x\\\\", "200", "12",    "-",
                                           "An [odd] agent"};
        struct line_rule rule = rule_of(LINE_COMBINED, &field, 1);
        parses(&rule, text, 1431857103, want[field - 1], 1);
    }
    static const uint16_t several[] = {9, 1, 1};
    struct line_rule rule = rule_of(LINE_COMBINED, several, 3);
    parses(&rule, text, 1431857103, "An [odd] agent:2001:db8::1:2001:db8::1", 1);
    uint16_t absent = 10;
    rule = rule_of(LINE_COMBINED, &absent, 1);
    refuses(&rule, text);
}

TEST(the_offset_of_a_time_is_honoured) {
    struct line_rule rule = rule_of(LINE_COMBINED, NULL, 0);
    parses(&rule, "a - - [17/May/2015:10:05:03 +0000]", 1431857103, "a", 1);
    parses(&rule, "a - - [17/May/2015:10:05:03 +0200] \"", 1431857103 - 7200, "a", 1);
    parses(&rule, "a - - [17/May/2015:10:05:03 -0330]", 1431857103 + 12600, "a", 1);
    parses(&rule, "a - - [31/Dec/2016:23:59:60 +0000]", 1483228800, "a", 1);
    parses(&rule, "a - - [17/May/2015:10:05:03.000999 +0000]", 1431857103, "a", 1);
    parses(&rule, "a - - [17/May/2015:10:05:03,0 +0200] \"", 1431857103 - 7200, "a", 1);
    parses(&rule, "a - - [1431857103.000] \"", 1431857103, "a", 1); /* nginx: [$msec] */
    parses(&rule, "a - john smith [17/May/2015:10:05:03 +0000]\r", 1431857103, "a", 1);
    parses(&rule, "host:80 a - john smith [17/May/2015:10:05:03 +0000]\r", 1431857103, "a", 1);
}

TEST(broken_combined_lines_are_refused) {
    static const char *const texts[] = {"",
                                        "\r",
                                        " ",
                                        "a",
                                        "a - -",
                                        "a - - []",
                                        "a - - [",
                                        "a - - [17/May/2015:10:05:03 +0000",
                                        "a - - 17/May/2015:10:05:03 +0000",
                                        "a - - [17/May/2015:10:05:03]",
                                        "a - - [17/may/2015:10:05:03 +0000]",
                                        "a - - [00/May/2015:10:05:03 +0000]",
                                        "a - - [17/May/2015:10:05:03 +0060]",
                                        "a - - [17/May/2015:10:05:03 +0000]x",
                                        "a - - [+7/May/2015:10:05:03 +0000]",
                                        "a - - [17/May/2015:10:05:03. +0000]",
                                        "a - - [17/May/2015:10:05:03.123+0000]",
                                        "a - - [17/May/2015:10:05:03.123 +00000]",
                                        "\"a - - [17/May/2015:10:05:03 +0000]",
                                        "\"\" - - [17/May/2015:10:05:03 +0000]",
                                        "\"a\"b - - [17/May/2015:10:05:03 +0000]"};
    struct line_rule rule = rule_of(LINE_COMBINED, NULL, 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) refuses(&rule, texts[i]);
    uint16_t request = 5;
    rule = rule_of(LINE_COMBINED, &request, 1);
    refuses(&rule, "a - - [17/May/2015:10:05:03 +0000] \"GET /");
    refuses(&rule, "a - - [17/May/2015:10:05:03 +0000] \"GET /\\\"");
}

TEST(dpkg_lines_are_read_in_the_offset_given) {
    struct line_rule rule = rule_of(LINE_DPKG, NULL, 0);
    parses(&rule, "2024-05-01 12:00:01 install foo:amd64 <none> 1.0", 1714564801, "install", 1);
    parses(&rule, "2024-05-01 12:00:01 status", 1714564801, "status", 1);
    rule.utc_offset_ms = 2 * TW_HOUR;
    parses(&rule, "2024-05-01 12:00:01 status installed", 1714564801 - 7200, "status", 1);
    refuses(&rule, "2024-05-01 12:00:01");
    refuses(&rule, "2024-05-01 12:00:01 ");
    refuses(&rule, "2024-05-01T12:00:01 install");
    refuses(&rule, "2024-13-01 12:00:01 install");
    refuses(&rule, "24-05-01 12:00:01 install");
    refuses(&rule, "install");
}

TEST(tsv_lines_have_a_time_a_key_and_perhaps_a_delta) {
    struct line_rule rule = rule_of(LINE_TSV, NULL, 0);
    parses(&rule, "1431857103\tkey", 1431857103, "key", 1);
    parses(&rule, "-1\tsome key\t-5", -1, "some key", -5);
    parses(&rule, "0\tk\t+9007199254740992\r", 0, "k", TW_DELTA_MAX);
    static const char *const texts[] = {"1",
                                        "1\t",
                                        "\tk",
                                        "x\tk",
                                        "1.5\tk",
                                        "1\tk\t",
                                        "1\tk\tx",
                                        "1\tk\t1\t1",
                                        "1\tk\t-",
                                        " 1\tk",
                                        "1\tk\t9007199254740993",
                                        "253402300800\tk",
                                        "99999999999999999999\tk",
                                        "0x1\tk"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) refuses(&rule, texts[i]);
}

/* Goal: keys of 1 and of 1,024 bytes pass, longer ones do not, one field or several. NUL is a byte. */
TEST(keys_have_the_sizes_the_library_takes) {
    static const uint16_t twice[] = {1, 2};
    char text[4096];
    struct line line;
    struct line_rule one = rule_of(LINE_COMBINED, NULL, 0), two = rule_of(LINE_COMBINED, twice, 2);
    memset(text, 'k', sizeof text);
    memcpy(text + 1024, " - - [17/May/2015:10:05:03 +0000]", 33);
    assert_null(parse(&one, text, 1057, &line));
    assert_i64_equal(line.key.size, 1024);
    assert_non_null(parse(&two, text, 1057, &line));
    assert_null(parse(&two, text + 2, 1055, &line));
    assert_i64_equal(line.key.size, 1024);
    memmove(text + 1025, text + 1024, 33);
    text[1024] = 'k';
    assert_non_null(parse(&one, text, 1058, &line));
    struct line_rule tsv = rule_of(LINE_TSV, NULL, 0);
    assert_null(parse(&tsv, "5\ta\0b", 5, &line));
    assert_i64_equal(line.key.size, 3);
}

/* Goal: whatever the bytes, a parser reads nothing past them and gives a key that the library takes.
 * Method: sound lines with random bytes changed, cut and repeated; memory of exact size (a sanitizer watches). */
TEST(damaged_lines_never_lead_astray) {
    static const char *const sound[] = {
        "1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET /\\\"a HTTP/1.1\" 200 1 \"-\" \"x\"",
        "a.example:443 1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET /\\\"a HTTP/1.1\" 200 1 \"-\" \"x\"",
        "2024-05-01 12:00:01 install foo:amd64 <none> 1.0", "1431857103\tkey\t-12"};
    static const char marks[] = "\"[]\\ \t:/-+0\0\r\xff";
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t turn = 0; turn < test_scale(200000); turn++) {
        enum line_format format = (enum line_format)test_prng_below(&prng, 4);
        uint16_t lowest = format == LINE_DPKG; /* there is no host in dpkg's (plan.c) */
        uint16_t fields[2] = {(uint16_t)(lowest + test_prng_below(&prng, 10)),
                              (uint16_t)(lowest + test_prng_below(&prng, 10))};
        struct line_rule rule = rule_of(format, fields, format == LINE_TSV ? 0 : test_prng_below(&prng, 3));
        char text[256];
        size_t size = strlen(sound[format]);
        memcpy(text, sound[format], size);
        for (uint64_t n = test_prng_below(&prng, 4); n > 0; n--) {
            text[test_prng_below(&prng, size)] = marks[test_prng_below(&prng, sizeof marks - 1)];
        }
        if (test_prng_chance(&prng, 1, 3)) size = test_prng_below(&prng, size + 1);
        struct line line;
        const char *why = parse(&rule, text, size, &line);
        if (why != NULL) continue;
        assert_in_range(line.key.size, 1, TW_KEY_SIZE_MAX);
        assert_true(line.unix_ms % 1000 == 0);
        assert_true(line.delta >= -TW_DELTA_MAX && line.delta <= TW_DELTA_MAX);
    }
}

/* Goal: a host that leads the line is recognised where it is one, and no client is taken for one.
 * Method: lines of servers as they are configured, clients of every kind, users of one and two words. */
TEST(a_virtual_host_is_told_from_a_client) {
    static const char when[] = "[17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1";
    static const struct {
        const char *start, *client, *host; /* host NULL: there is none */
    } cases[] = {
        {"1.2.3.4 - -", "1.2.3.4", NULL},
        {"1.2.3.4 - frank", "1.2.3.4", NULL},
        {"1.2.3.4 - john smith", "1.2.3.4", NULL},
        {"2001:db8::1 - john smith", "2001:db8::1", NULL},
        {"1.2.3.4 ident john smith", "1.2.3.4", NULL}, /* an identity without dot or colon is no client */
        {"a.example:443 1.2.3.4 - -", "1.2.3.4", "a.example:443"},
        {"a.example 1.2.3.4 - frank", "1.2.3.4", "a.example"},
        {"a.example:80 2001:db8::1 - -", "2001:db8::1", "a.example:80"},
        {"a:80 desk - -", "desk", "a:80"},
        {"a.example desk.example - -", "desk.example", "a.example"},
        {"10.0.0.1:8080 ::1 - -", "::1", "10.0.0.1:8080"},
    };
    const uint16_t host = LINE_FIELD_HOST, request = 5;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        struct line_rule clients = rule_of(LINE_COMBINED, NULL, 0), hosts = rule_of(LINE_COMBINED, &host, 1);
        struct line_rule strict = rule_of(LINE_VHOST_COMBINED, NULL, 0), requests = rule_of(LINE_COMBINED, &request, 1);
        snprintf(text, sizeof text, "%s %s", cases[i].start, when);
        parses(&clients, text, 1431857103, cases[i].client, 1);
        if (cases[i].host == NULL) {
            refuses(&hosts, text);
            continue;
        }
        parses(&hosts, text, 1431857103, cases[i].host, 1);
        parses(&strict, text, 1431857103, cases[i].client, 1);
        parses(&requests, text, 1431857103, "GET / HTTP/1.1", 1);
    }
    struct line_rule strict = rule_of(LINE_VHOST_COMBINED, NULL, 0);
    refuses(&strict, "1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1");
    refuses(&strict, "1.2.3.4 - john smith [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1");
}

TEST(an_element_is_read_beside_the_key) {
    static const uint16_t request = 5, client_and_user[] = {1, 3};
    static const char text[] = "10.0.0.1 - ann [17/May/2015:10:05:03 +0000] \"GET /\" 200 1";
    struct line line;
    struct line_rule rule = rule_of(LINE_COMBINED, &request, 1);
    line_rule_set_element(&rule, client_and_user, 2);
    assert_null(parse(&rule, text, strlen(text), &line));
    assert_true(line.key.size == 5 && memcmp(line.key.data, "GET /", 5) == 0);
    assert_true(line.element.size == 12 && memcmp(line.element.data, "10.0.0.1:ann", 12) == 0);
    static char wide[2 * LINE_ELEMENT_MAX];
    for (size_t size = LINE_ELEMENT_MAX - 2; size <= LINE_ELEMENT_MAX; size++) {
        int used = snprintf(wide, sizeof wide, "%0*d - u [17/May/2015:10:05:03 +0000] \"GET /\"", (int)size, 1);
        bool fits = size + 2 <= LINE_ELEMENT_MAX; /* with ":u" */
        assert_int_equal(parse(&rule, wide, (size_t)used, &line) == NULL, fits);
        if (fits) assert_i64_equal(line.element.size, LINE_ELEMENT_MAX);
    }
}

/* Goal: what the library does not count is refused here, with the reason, in every format. */
TEST(a_moment_is_one_that_the_library_counts) {
    struct line_rule combined = rule_of(LINE_COMBINED, NULL, 0), dpkg = rule_of(LINE_DPKG, NULL, 0);
    struct line_rule tsv = rule_of(LINE_TSV, NULL, 0);
    parses(&tsv, "-30610224000\tk", LINE_MS_MIN / 1000, "k", 1);
    parses(&tsv, "253370764799\tk", LINE_MS_MAX / 1000, "k", 1);
    parses(&combined, "c - - [01/Jan/1000:00:00:00 +0000]", LINE_MS_MIN / 1000, "c", 1);
    parses(&dpkg, "9998-12-31 23:59:59 install", LINE_MS_MAX / 1000, "install", 1);
    const struct {
        const struct line_rule *rule;
        const char *text;
    } cases[] = {{&tsv, "-30610224001\tk"},
                 {&tsv, "253370764800\tk"},
                 {&tsv, "1431857103000\tk"},
                 {&tsv, "0999-12-31\tk"},
                 {&combined, "c - - [31/Dec/0999:23:59:59 +0000]"},
                 {&combined, "c - - [01/Jan/1000:00:00:00 +0100]"},
                 {&combined, "c - - [9999-01-01T00:00:00Z]"},
                 {&dpkg, "0999-12-31 23:59:59 install"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct line line;
        const char *why = parse(cases[i].rule, cases[i].text, strlen(cases[i].text), &line);
        if (why == NULL) fail_msg("%s: should not parse", cases[i].text);
        assert_string_equal(why, "its time is not in the years 1000 to 9998");
    }
}

/* Goal: a time of ISO 8601 without an offset has the rule's, in an access log as elsewhere. */
TEST(a_time_without_offset_has_that_of_the_rule) {
    struct line_rule rule = rule_of(LINE_COMBINED, NULL, 0);
    rule.utc_offset_ms = 8 * TW_HOUR;
    parses(&rule, "c - - [2015-05-17T18:05:03]", 1431857103, "c", 1);
    parses(&rule, "c - - [2015-05-17T10:05:03Z]", 1431857103, "c", 1);
    parses(&rule, "c - - [17/May/2015:10:05:03 +0000]", 1431857103, "c", 1);
}
