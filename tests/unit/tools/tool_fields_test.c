/* tool_fields_test.c -- fields by name and number, conditions, times of every kind, JSON lines of the command. */
#include "tests/support/support.h"

#include <time.h>

#include "tools/count/fields.h"

static char joined[TW_KEY_SIZE_MAX + LINE_ELEMENT_MAX];

static struct line_rule rule_of(const struct fields_asked *asked) {
    struct line_rule rule = {.utc_offset_ms = 0};
    assert_true(fields_set(&rule, asked));
    return rule;
}

static struct line_rule json_rule(const char *key, const char *where) {
    return rule_of(&(struct fields_asked){
        .format = LINE_JSON, .key = key, .where = {where}, .where_count = where == NULL ? 0 : 1});
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

static void gives(const struct line_rule *rule, const char *text, int64_t unix_ms, const char *key) {
    struct line line;
    const char *why = parse(rule, text, strlen(text), &line);
    if (why != NULL) fail_msg("%s: %s", text, why);
    assert_i64_equal(line.unix_ms, unix_ms);
    assert_i64_equal(line.delta, 1);
    if (line.key.size != strlen(key) || memcmp(line.key.data, key, line.key.size) != 0)
        fail_msg("%s: key %.*s", text, (int)line.key.size, (const char *)line.key.data);
}

static void refuses(const struct line_rule *rule, const char *text, const char *why) {
    struct line line;
    const char *said = parse(rule, text, strlen(text), &line);
    if (said == NULL || said == line_left_out) fail_msg("%s: should not parse", text);
    if (strstr(said, why) == NULL) fail_msg("%s: %s", text, said);
}

static bool meets(const struct line_rule *rule, const char *text) {
    struct line line;
    const char *why = parse(rule, text, strlen(text), &line);
    if (why != NULL && why != line_left_out) fail_msg("%s: %s", text, why);
    return why == NULL;
}

/* ---- fields ---- */

static const char web[] =
    "h.example:80 10.0.0.1 - ann [17/May/2015:10:05:03 +0000] \"GET /a?b=1 HTTP/1.1\" 404 12 \"-\" \"x\"";

TEST(fields_have_names_and_numbers) {
    static const char *const cases[][2] = {{"client", "10.0.0.1"},
                                           {"host", "h.example:80"},
                                           {"user,status", "ann:404"},
                                           {"request", "GET /a?b=1 HTTP/1.1"},
                                           {"method,path,protocol", "GET:/a:HTTP/1.1"},
                                           {"url", "/a?b=1"},
                                           {"status,6,bytes,referer,agent", "404:404:12:-:x"},
                                           {"time", "17/May/2015:10:05:03 +0000"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct line_rule rule = rule_of(&(struct fields_asked){.key = cases[i][0]});
        gives(&rule, web, 1431857103000, cases[i][1]);
    }
    struct line_rule rule = rule_of(&(struct fields_asked){.format = LINE_DPKG, .key = "package,action"});
    gives(&rule, "2024-05-01 12:00:01 install foo:amd64 <none> 1.0", 1714564801000, "foo:amd64:install");
    static const char *const wrong[] = {"",     "0",       "1,",   ",1",          "1,,2",
                                        "1001", "a",       "1;2",  "1 ,2",        "package",
                                        "-1",   "client,", "2001", "99999999999", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(fields_set(&rule, &(struct fields_asked){.key = wrong[i]}));
    assert_false(fields_set(&rule, &(struct fields_asked){.format = LINE_JSON}));
    assert_false(fields_set(&rule, &(struct fields_asked){.format = LINE_TSV, .key = "key"}));
    assert_false(fields_set(&rule, &(struct fields_asked){.format = LINE_DPKG, .key = "host"}));
    assert_false(fields_set(&rule, &(struct fields_asked){.time = "ts"}));
}

/* Goal: requests that are none, as scanners send them, have a path all the same. */
TEST(odd_requests_have_parts) {
    static const char *const cases[][2] = {{"-", "-|-|-|-"},
                                           {"GET /", "GET|/|/|-"},
                                           {"GET /a b?c HTTP/1.0", "GET|/a b?c|/a b|HTTP/1.0"},
                                           {"GET HTTP/1.1", "GET|HTTP/1.1|HTTP/1.1|HTTP/1.1"},
                                           {"\\x16\\x03", "-|\\x16\\x03|\\x16\\x03|-"},
                                           {"CONNECT a:443 HTTP/1.1", "CONNECT|a:443|a:443|HTTP/1.1"}};
    static const char *const parts[] = {"method", "url", "path", "protocol"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200], want[64];
        const char *at = cases[i][1];
        snprintf(text, sizeof text, "10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"%s\" 200 1", cases[i][0]);
        for (size_t part = 0; part < 4; part++) {
            size_t size = strcspn(at, "|");
            snprintf(want, sizeof want, "%.*s", (int)size, at);
            at += size + 1;
            struct line_rule rule = rule_of(&(struct fields_asked){.key = parts[part]});
            gives(&rule, text, 1431857103000, want);
        }
    }
}

/* ---- conditions ---- */

TEST(conditions_choose_lines) {
    static const struct {
        const char *where;
        bool holds;
    } cases[] = {{"status>=404", true},
                 {"status>404", false},
                 {"status<405", true},
                 {"status<=403", false},
                 {"status=404", true},
                 {"status==404", true},
                 {"status!=404", false},
                 {"path=/a", true},
                 {"path~a", true},
                 {"path~b", false},
                 {"url!~b=", false},
                 {"agent=", false},
                 {"client=10.0.0.1", true},
                 {"host~example", true},
                 {"6>=4.04e2", true},
                 {"referer>0", false},
                 {"referer<0", false},
                 {"bytes>11.5", true},
                 {"path~", true},
                 {"user!=bob", true},
                 {"request=GET /a?b=1 HTTP/1.1", true},
                 {"agent!=<none>", true},
                 {"agent=<none>", false},
                 {"path~>", false},
                 {"bytes<00000000000000000000013", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct line_rule rule = rule_of(&(struct fields_asked){.where = {cases[i].where}, .where_count = 1});
        if (meets(&rule, web) != cases[i].holds) fail_msg("%s", cases[i].where);
    }
    struct line_rule rule = rule_of(&(struct fields_asked){.where = {"status>=400", "method=GET"}, .where_count = 2});
    assert_true(meets(&rule, web));
    rule = rule_of(&(struct fields_asked){.where = {"status>=400", "method=PUT"}, .where_count = 2});
    assert_false(meets(&rule, web));
    static const char *const wrong[] = {"",           "status",      "=1",         "status>",   "status>=abc",
                                        "status<nan", "status<0x10", "colour=red", "status=>5", "status=<5",
                                        "status===5", "path~=a"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(fields_set(&rule, &(struct fields_asked){.where = {wrong[i]}, .where_count = 1}));
    static const char dpkg[] = "2024-05-01 12:00:01 install foo:amd64 <none> 1.2-3";
    rule = rule_of(&(struct fields_asked){.format = LINE_DPKG, .where = {"5=<none>"}, .where_count = 1});
    assert_true(meets(&rule, dpkg));
    rule = rule_of(&(struct fields_asked){.format = LINE_DPKG, .where = {"5!=<none>"}, .where_count = 1});
    assert_false(meets(&rule, dpkg));
    rule = rule_of(&(struct fields_asked){.format = LINE_TSV, .where = {"delta>3", "key!=b"}, .where_count = 2});
    struct line line;
    assert_null(parse(&rule, "5\ta\t4", 5, &line));
    assert_ptr_equal(parse(&rule, "5\tb\t4", 5, &line), line_left_out);
    assert_ptr_equal(parse(&rule, "5\ta\t3", 5, &line), line_left_out);
    assert_ptr_equal(parse(&rule, "5\ta", 3, &line), line_left_out);
    assert_false(fields_set(&rule, &(struct fields_asked){.format = LINE_TSV, .where = {"4=1"}, .where_count = 1}));
}

TEST(a_span_of_time_is_half_open) {
    struct line_rule rule = rule_of(&(struct fields_asked){.format = LINE_TSV});
    rule.has_span = true;
    rule.since_ms = 10000;
    rule.until_ms = 12000;
    assert_false(meets(&rule, "9\ta"));
    assert_true(meets(&rule, "10\ta"));
    assert_true(meets(&rule, "11\ta"));
    assert_false(meets(&rule, "12\ta"));
}

/* ---- times ---- */

TEST(times_of_every_kind_are_read) {
    static const struct {
        const char *text;
        int64_t unix_ms; /* with an offset of +01:00 where the text has none */
    } cases[] = {{"2015-05-17T10:05:03Z", 1431857103000},
                 {"2015-05-17t10:05:03z", 1431857103000},
                 {"2015-05-17T10:05:03.123456789+02:00", 1431857103123 - 7200000},
                 {"2015-05-17 10:05:03,9 -0330", 1431857103900 + 12600000},
                 {"2015-05-17T10:05:03+02", 1431857103000 - 7200000},
                 {"2015-05-17T10:05:03", 1431857103000 - 3600000},
                 {"2015-05-17 10:05", 1431857100000 - 3600000},
                 {"2015-05-17", 1431820800000 - 3600000},
                 {"2016-12-31T23:59:60Z", 1483228800000},
                 {"17/May/2015:10:05:03 +0200", 1431857103000 - 7200000},
                 {"1431857103", 1431857103000},
                 {"1431857103.5", 1431857103500},
                 {"1431857103123", 1431857103123},
                 {"1431857103123456", 1431857103123},
                 {"1431857103123456789", 1431857103123}};
    int64_t unix_ms;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!line_time_read(cases[i].text, strlen(cases[i].text), TW_HOUR, &unix_ms)) fail_msg("%s", cases[i].text);
        assert_i64_equal(unix_ms, cases[i].unix_ms);
    }
    static const char *const wrong[] = {"",
                                        "0.003",
                                        "99999999",
                                        "2015-02-29T00:00:00Z",
                                        "2015-05-17T24:00:00Z",
                                        "2015-05-17T10",
                                        "2015-05-17T10:60:00Z",
                                        "2015-05-17T10:05:61Z",
                                        "2015-05-17T10:05:03.Z",
                                        "2015-05-17T10:05:03+1",
                                        "2015-05-17T10:05:03+15:00",
                                        "2015-05-17T10:05:03Z ",
                                        "2015-05-17T10:05:03+02:0",
                                        "2015-05-1",
                                        "0000-05-17T10:05:03Z",
                                        "14318571031234567890",
                                        "1431857103x",
                                        "-1431857103",
                                        "17/May/2015",
                                        "2015-5-17T10:05:03Z"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (line_time_read(wrong[i], strlen(wrong[i]), 0, &unix_ms)) fail_msg("%s", wrong[i]);
    }
}

/* Goal: ISO times are those of the C library.
 * Method: random moments of the years 1900 to 2200, written by strftime(). */
TEST(iso_times_agree_with_the_library) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int turn = 0; turn < 20000; turn++) {
        time_t unix_s = (time_t)((int64_t)test_prng_below(&prng, 9467000000) - 2208988800);
        char text[64];
        struct tm tm;
        int64_t unix_ms;
        gmtime_r(&unix_s, &tm);
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
        assert_true(line_time_iso(text, strlen(text), 0, &unix_ms));
        assert_i64_equal(unix_ms, (int64_t)unix_s * 1000);
    }
}

TEST(access_logs_and_tsv_take_iso_times) {
    struct line_rule rule = rule_of(&(struct fields_asked){.format = LINE_COMBINED});
    gives(&rule, "10.0.0.1 - - [2015-05-17T12:05:03+02:00] \"GET / HTTP/1.1\" 200 1", 1431857103000, "10.0.0.1");
    rule = rule_of(&(struct fields_asked){.format = LINE_TSV});
    gives(&rule, "2015-05-17T10:05:03Z\ta", 1431857103000, "a");
}

/* ---- JSON ---- */

TEST(json_members_are_found) {
    static const char caddy[] =
        "{\"level\":\"info\",\"ts\":1431857103.25,\"request\":{\"remote_ip\":\"10.0.0.1\",\"headers\":"
        "{\"A\":[\"}\",\"\\\"]\"]},\"uri\":\"/a\"},\"status\":404,\"ok\":true}";
    static const char *const cases[][2] = {{"status", "404"},
                                           {"request.uri", "/a"},
                                           {"request.remote_ip,status", "10.0.0.1:404"},
                                           {"ok,level", "true:info"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct line_rule rule = json_rule(cases[i][0], NULL);
        gives(&rule, caddy, 1431857103250, cases[i][1]);
    }
    struct line_rule rule = json_rule("a", NULL);
    gives(&rule, " { \"time\" : \"2015-05-17T10:05:03Z\" , \"a\" : \"x\" } \r", 1431857103000, "x");
    gives(&rule, "{\"a\":\"x\",\"time\":\"17/May/2015:10:05:03 +0000\"}", 1431857103000, "x");
    gives(&rule, "{\"a\":\"x\",\"time\":\"17\\/May\\/2015:10:05:03 +0000\"}", 1431857103000, "x");
    gives(&rule, "{\"a\":\"x\",\"time\":0.002,\"msec\":1431857103.000}", 1431857103000,
          "x"); /* the first is a duration */
    gives(&rule, "{\"a\":-1.5,\"__REALTIME_TIMESTAMP\":\"1431857103000001\"}", 1431857103000, "-1.5");
    gives(&rule, "{\"b\":{\"a\":1},\"a\":2,\"ts\":1431857103,\"what follows", 1431857103000, "2");
    rule = json_rule("a.b", NULL); /* a name that has a point in it */
    gives(&rule, "{\"a.b\":1,\"ts\":1431857103}", 1431857103000, "1");
    gives(&rule, "{\"a\":{\"x\":{\"b\":3},\"b\":2},\"ts\":1431857103}", 1431857103000, "2");
    rule = rule_of(&(struct fields_asked){.format = LINE_JSON, .key = "a", .element = "b", .time = "x.at"});
    struct line line;
    static const char text[] = "{\"ts\":1,\"x\":{\"at\":1431857103},\"a\":1,\"b\":\"\\u0041\"}";
    assert_null(parse(&rule, text, strlen(text), &line));
    assert_true(line.unix_ms == 1431857103000 && line.element.size == 1 && *(const char *)line.element.data == 'A');
}

/* Goal: a date is a time only if nothing better is in the line, wherever it is; with a time of day it is one. */
TEST(json_dates_and_times_of_day_are_joined) {
    static const struct {
        const char *text;
        int64_t unix_ms; /* with an offset of +01:00 where the text has none */
    } cases[] = {{"{\"date\":\"2015-05-17\",\"time\":\"10:05:03\",\"k\":1}", 1431857103000 - 3600000},
                 {"{\"time\":\"10:05:03.25\",\"k\":1,\"date\":\"2015-05-17\"}", 1431857103250 - 3600000},
                 {"{\"time\":\"10:05:03Z\",\"k\":1,\"date\":\"2015-05-17\"}", 1431857103000},
                 {"{\"date\":\"2015-05-17\",\"timestamp\":\"2015-05-17T10:05:03Z\",\"k\":1}", 1431857103000},
                 {"{\"date\":\"2015-05-17\",\"time\":\"09:00:00\",\"ts\":1431857103,\"k\":1}", 1431857103000},
                 {"{\"ts\":1431857103,\"date\":\"2015-05-17\",\"k\":1}", 1431857103000},
                 {"{\"date\":\"2015-05-17\",\"k\":1}", 1431820800000 - 3600000},
                 {"{\"date\":\"2015-05-17\",\"time\":null,\"k\":1}", 1431820800000 - 3600000},
                 {"{\"ts\":1.431857103e9,\"k\":1}", 1431857103000},
                 {"{\"ts\":1.431857103125E+09,\"k\":1}", 1431857103125}};
    struct line_rule rule = json_rule("k", NULL);
    rule.utc_offset_ms = TW_HOUR;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) gives(&rule, cases[i].text, cases[i].unix_ms, "1");
    refuses(&rule, "{\"time\":\"10:05:03\",\"k\":1}", "no date");
    refuses(&rule, "{\"date\":\"2015-05-17\",\"time\":\"noon\",\"k\":1}", "not one that is known");
    refuses(&rule, "{\"date\":\"2015-05-17\",\"time\":\"25:00:00\",\"k\":1}", "not one that is known");
    rule = rule_of(&(struct fields_asked){.format = LINE_JSON, .key = "k", .time = "day"});
    gives(&rule, "{\"time\":\"10:05:03\",\"k\":1,\"day\":\"2015-05-17\"}", 1431820800000, "1");
}

/* Goal: headers, which Caddy writes as lists, are keys and conditions if they have one value. */
TEST(a_json_list_of_one_text_is_this_text) {
    struct line_rule rule = json_rule("h.User-Agent", NULL), where = json_rule("k", "h.A=x\"y");
    gives(&rule, "{\"ts\":1431857103,\"h\":{\"User-Agent\":[\"curl\"]}}", 1431857103000, "curl");
    gives(&rule, "{\"ts\":1431857103,\"h\":{\"User-Agent\":[ \"a\\u0041]\" ]}}", 1431857103000, "aA]");
    refuses(&rule, "{\"ts\":1431857103,\"h\":{\"User-Agent\":[\"a\",\"b\"]}}", "an object or a list");
    refuses(&rule, "{\"ts\":1431857103,\"h\":{\"User-Agent\":[]}}", "an object or a list");
    refuses(&rule, "{\"ts\":1431857103,\"h\":{\"User-Agent\":[1]}}", "an object or a list");
    assert_true(meets(&where, "{\"ts\":1431857103,\"k\":1,\"h\":{\"A\":[\"x\\\"y\"]}}"));
    assert_false(meets(&where, "{\"ts\":1431857103,\"k\":1,\"h\":{\"A\":[\"x\\\"y\",\"z\"]}}"));
}

TEST(json_escapes_are_resolved) {
    static const char *const cases[][2] = {{"a\\\"b\\\\c\\/d", "a\"b\\c/d"},
                                           {"\\b\\f\\n\\r\\t", "\b\f\n\r\t"},
                                           {"\\u0041\\u00e9\\u20AC", "A\xC3\xA9\xE2\x82\xAC"},
                                           {"\\ud83d\\ude00", "\xF0\x9F\x98\x80"},
                                           {"\\ud83dx", "\xEF\xBF\xBDx"},
                                           {"\\ude00", "\xEF\xBF\xBD"},
                                           {"\\x22\\xFF", "\"\xFF"},
                                           {"\xC3\xA9", "\xC3\xA9"}};
    struct line_rule rule = json_rule("k", NULL), two = json_rule("k,n", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200], want[64];
        snprintf(text, sizeof text, "{\"k\":\"%s\",\"n\":1,\"ts\":1431857103}", cases[i][0]);
        snprintf(want, sizeof want, "%s:1", cases[i][1]);
        gives(&rule, text, 1431857103000, cases[i][1]);
        gives(&two, text, 1431857103000, want);
    }
    refuses(&rule, "{\"k\":\"\\q\",\"ts\":1431857103}", "escape");
    refuses(&rule, "{\"k\":\"\\u12\",\"ts\":1431857103}", "escape");
}

TEST(what_is_no_json_is_refused) {
    struct line_rule rule = json_rule("k", NULL);
    static const char *const broken[] = {"x",
                                         "[1]",
                                         "{",
                                         "{\"k\"",
                                         "{\"k\":",
                                         "{\"k\":1",
                                         "{\"k\":1 \"ts\":1431857103}",
                                         "{k:1}",
                                         "{\"k\":\"1",
                                         "{\"k\":\"\\\"}",
                                         "{\"x\":[1,{\"k\":1}",
                                         "{,}",
                                         "\"k\"",
                                         "{\"k\":1,\"ts\"}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) refuses(&rule, broken[i], "not a JSON object");
    refuses(&rule, "{}", "no member is the time");
    refuses(&rule, "{\"k\":1}", "no member is the time");
    refuses(&rule, "{\"k\":1,\"time\":\"noon\"}", "the time is not one that is known");
    refuses(&rule, "{\"ts\":1431857103}", "no such field");
    refuses(&rule, "{\"ts\":1431857103,\"k\":null}", "no such field");
    refuses(&rule, "{\"ts\":1431857103,\"k\":}", "no such field"); /* nginx's number that is missing */
    refuses(&rule, "{\"k\":,\"ts\":1431857103}", "no such field");
    refuses(&rule, "{\"ts\":1431857103,\"k\":\"\"}", "empty");
    refuses(&rule, "{\"ts\":1431857103,\"k\":[1]}", "an object or a list");
}

TEST(json_conditions_take_what_is_missing_as_empty) {
    struct line_rule rule = json_rule("k", "level!=debug");
    assert_true(meets(&rule, "{\"ts\":1431857103,\"k\":1}"));
    assert_true(meets(&rule, "{\"ts\":1431857103,\"k\":1,\"level\":null}"));
    assert_false(meets(&rule, "{\"ts\":1431857103,\"k\":1,\"level\":\"debug\"}"));
    rule = json_rule("k", "http.status>=500");
    assert_true(meets(&rule, "{\"ts\":1431857103,\"k\":1,\"http\":{\"status\":502}}"));
    assert_true(meets(&rule, "{\"ts\":1431857103,\"k\":1,\"http\":{\"status\":\"502\"}}"));
    assert_false(meets(&rule, "{\"ts\":1431857103,\"k\":1,\"http\":{\"status\":404}}"));
    assert_false(meets(&rule, "{\"ts\":1431857103,\"k\":1}"));
    rule = json_rule("k", "msg~a\"b");
    assert_true(meets(&rule, "{\"ts\":1431857103,\"k\":1,\"msg\":\"xa\\\"b\"}"));
}

/* Goal: whatever the bytes, no data is read past them, and what parses has a key that the library takes. */
TEST(damaged_json_never_leads_astray) {
    static const char sound[] =
        "{\"ts\":1431857103.25,\"r\":{\"u\":\"/\\u0041\\\"\",\"x\":[1,{}]},\"s\":4,\"time\":\"2015-05-17T10:05:03Z\"}";
    static const char marks[] = "\"[]{}\\ \t:,u.-+0e\0\xff";
    struct test_prng prng;
    struct line_rule rule = rule_of(&(struct fields_asked){
        .format = LINE_JSON, .key = "r.u,s", .element = "s", .where = {"s<9", "r.x!=1"}, .where_count = 2});
    unsigned parsed = 0;
    test_prng_seed(&prng, test_seed());
    for (uint64_t turn = 0; turn < test_scale(200000); turn++) {
        char text[sizeof sound];
        size_t size = sizeof sound - 1;
        memcpy(text, sound, size);
        for (uint64_t n = test_prng_below(&prng, 4); n > 0; n--)
            text[test_prng_below(&prng, size)] = marks[test_prng_below(&prng, sizeof marks - 1)];
        if (test_prng_chance(&prng, 1, 3)) size = test_prng_below(&prng, size + 1);
        struct line line;
        if (parse(&rule, text, size, &line) != NULL) continue;
        parsed++;
        assert_in_range(line.key.size, 1, TW_KEY_SIZE_MAX);
        assert_true(line.element.size <= LINE_ELEMENT_MAX);
    }
    assert_true(parsed > 0);
}

/* Goal: long texts with escapes are refused or whole, at each of the bounds. */
TEST(long_json_texts_keep_their_bounds) {
    static char text[3 * LINE_ELEMENT_MAX];
    struct line_rule key = json_rule("k", NULL), where = json_rule("n", "k~aaa");
    struct line_rule element = rule_of(&(struct fields_asked){.format = LINE_JSON, .key = "n", .element = "k"});
    static const size_t sizes[] = {
        1023, 1024, 1025, LINE_ELEMENT_MAX, LINE_ELEMENT_MAX + 1, 2 * LINE_ELEMENT_MAX - 1, 2 * LINE_ELEMENT_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct line line;
        int head = sprintf(text, "{\"n\":1,\"ts\":1431857103,\"k\":\"\\n");
        memset(text + head, 'a', sizes[i] - 1);
        size_t size = (size_t)head + sizes[i] - 1;
        memcpy(text + size, "\"}", 2);
        assert_int_equal(parse(&key, text, size + 2, &line) == NULL, sizes[i] <= TW_KEY_SIZE_MAX);
        assert_int_equal(parse(&element, text, size + 2, &line) == NULL, sizes[i] <= LINE_ELEMENT_MAX);
        if (sizes[i] <= LINE_ELEMENT_MAX) assert_i64_equal(line.element.size, sizes[i]);
        assert_int_equal(parse(&where, text, size + 2, &line) == NULL, sizes[i] < 2 * LINE_ELEMENT_MAX);
    }
}
