/* limits_test.c -- limits from a file: the closest line decides, errors name file and line and change nothing, and a
 * reload delays no reader. Each test writes whole files into a separate folder. */
#include "tests/support/cause.h"
#include "tests/support/children.h"
#include "tests/unit/rig.h"

#include "extras/limits.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static struct rig rig;
static tw_limits *limits;
static char folder[64], path[96], error[400];

static int begin(void **state) {
    rig_open(&rig);
    limits = NULL;
    strcpy(folder, "/tmp/limits-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/limits", folder);
    return 0;
}

static int end(void **state) {
    assert_status(tw_limits_close(limits), TW_OK);
    rig_close(&rig);
    unlink(path);
    return rmdir(folder);
}

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

static void write_bytes(const char *bytes, size_t size) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void write_file(const char *text) {
    write_bytes(text, strlen(text));
}

static tw_status load(void) {
    strcpy(error, "nothing said");
    return tw_limits_open(rig.engine, path, error, sizeof error, &limits);
}

static tw_status reload(void) {
    strcpy(error, "nothing said");
    return tw_limits_reload(limits, error, sizeof error);
}

static void load_text(const char *text) {
    write_file(text);
    if (load() != TW_OK) fail_msg("%s", error);
    assert_string_equal(error, "nothing said");
}

/* The error begins with the file's name and, if not 0, the line. */
static void assert_error(uint32_t line, const char *what) {
    char head[120];
    snprintf(head, sizeof head, line > 0 ? "%s:%u: " : "%s: ", path, line);
    assert_string_equal(tw_error_text(), error);
    if (strncmp(error, head, strlen(head)) == 0 && strstr(error, what) != NULL) return;
    fail_msg("\"%s\" is not \"%s...%s\"", error, head, what);
}

/* What holds for a key; -1: the family is unknown, TW_UNBOUNDED: unlimited. */
static int64_t limit_of(const char *family, const char *key) {
    int64_t limit = -1;
    tw_status status = tw_limits_find(limits, family, tw_str(key), NULL, &limit);
    assert_status(status, limit == -1 ? TW_ERR_OPTIONS : TW_OK);
    return limit;
}

static tw_verdict acquire(const char *family, const char *key, int64_t n, tw_status want) {
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_limits_acquire(limits, family, tw_str(key), n, &verdict), want);
    return verdict;
}

/* ---- which line decides ------------------------------------------------------------------------------------------ */

TEST_WITH(the_closest_line_decides, begin, end, NULL) {
    load_text("api user:vip* 5000 1m\n"
              "api * 10 1m\n"
              "api user:vip 7 1m\n"
              "\t# a comment\n"
              "\n"
              "api\tuser:*  100 1m # another\r\n"
              "api user:vip:admin unlimited\n"
              "login ip:* 5 1h\n");
    assert_i64_equal(limit_of("api", "x"), 10);
    assert_i64_equal(limit_of("api", "user"), 10);
    assert_i64_equal(limit_of("api", "user:"), 100);
    assert_i64_equal(limit_of("api", "user:bob"), 100);
    assert_i64_equal(limit_of("api", "user:vi"), 100);
    assert_i64_equal(limit_of("api", "user:vip"), 7);
    assert_i64_equal(limit_of("api", "user:vip2"), 5000);
    assert_i64_equal(limit_of("api", "user:vip:admin"), TW_UNBOUNDED);
    assert_i64_equal(limit_of("api", "user:vip:admin2"), 5000);
    assert_i64_equal(limit_of("api", "user:w"), 100);
    assert_i64_equal(limit_of("login", "ip:1"), 5);
    assert_i64_equal(limit_of("login", "user:1"), TW_UNBOUNDED);
    assert_i64_equal(limit_of("logi", "ip:1"), -1);
    assert_i64_equal(limit_of("login2", "ip:1"), -1);
}

TEST_WITH(keys_are_any_bytes, begin, end, NULL) {
    load_text("f a\\*b 1 1m\nf a\\x20b\\t\\n\\\\ 2 1m\nf \\x00\\xfF* 3 1m\nf \\x23 4 1m\nf a\\** 5 1m\n");
    int64_t limit;
    assert_i64_equal(limit_of("f", "a*b"), 1);
    assert_i64_equal(limit_of("f", "a b\t\n\\"), 2);
    assert_status(tw_limits_find(limits, "f", tw_bytes("\0\xff\0", 3), NULL, &limit), TW_OK);
    assert_i64_equal(limit, 3);
    assert_i64_equal(limit_of("f", "#"), 4);
    assert_i64_equal(limit_of("f", "a*c"), 5);
    assert_i64_equal(limit_of("f", "ab"), TW_UNBOUNDED);
    char long_key[TW_KEY_SIZE_MAX + 1] = {0};
    assert_status(tw_limits_find(limits, "f", tw_bytes(long_key, TW_KEY_SIZE_MAX), NULL, &limit), TW_OK);
    limit = 77;
    assert_status(tw_limits_find(limits, "f", tw_bytes(long_key, TW_KEY_SIZE_MAX + 1), NULL, &limit), TW_ERR_KEY);
    assert_status(tw_limits_find(limits, "f", tw_str(""), NULL, &limit), TW_ERR_KEY);
    assert_status(tw_limits_find(limits, "f", tw_bytes(NULL, 5), NULL, &limit), TW_ERR_KEY);
    assert_string_equal(tw_error_text(), "key: its data is NULL");
    assert_i64_equal(limit, 77);
}

/* Goal: lookups agree with a slow twin that tries every line. Few letters, so that patterns nest and meet keys. */
struct twin_rule {
    char key[8];
    bool is_prefix;
    int64_t limit;
};

static void draw_key(struct test_prng *prng, char *key, uint32_t size_max) {
    uint32_t size = (uint32_t)test_prng_between(prng, 0, size_max);
    for (uint32_t i = 0; i < size; i++) key[i] = (char)test_prng_between(prng, 'a', 'c');
    key[size] = '\0';
}

static int64_t twin_limit(const struct twin_rule *rules, size_t count, const char *key) {
    int64_t limit = TW_UNBOUNDED;
    size_t best = 0;
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(rules[i].key), worth = 2 * size + 1 + !rules[i].is_prefix;
        bool matches = rules[i].is_prefix ? strncmp(key, rules[i].key, size) == 0 : strcmp(key, rules[i].key) == 0;
        if (matches && worth > best) best = worth, limit = rules[i].limit;
    }
    return limit;
}

TEST_WITH(lookups_agree_with_a_twin_that_tries_every_line, begin, end, NULL) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int round = 0; round < 60; round++) {
        struct twin_rule rules[60];
        char text[4000] = "other ab* 999999 1m\nzother * 999999 1m\nf zzz 1 1m\n", *end = text + strlen(text);
        size_t count = 0, want = (size_t)test_prng_between(&prng, 1, 60);
        rules[count++] = (struct twin_rule){"zzz", false, 1};
        while (count < want) {
            struct twin_rule rule = {.is_prefix = test_prng_chance(&prng, 1, 2), .limit = (int64_t)count + 1};
            bool is_new = true;
            draw_key(&prng, rule.key, 5);
            if (rule.key[0] == '\0') rule.is_prefix = true;
            for (size_t i = 0; i < count; i++)
                is_new = is_new && (strcmp(rules[i].key, rule.key) != 0 || rules[i].is_prefix != rule.is_prefix);
            if (!is_new && want-- > 0) continue;
            end += sprintf(end, "f %s%s %d %s\n", rule.key, rule.is_prefix ? "*" : "", (int)rule.limit,
                           test_prng_chance(&prng, 1, 2) ? "1m" : "2h");
            rules[count++] = rule;
        }
        tw_limits *old = limits;
        load_text(text);
        assert_status(tw_limits_close(old), TW_OK);
        for (int i = 0; i < 300; i++) {
            char key[8];
            draw_key(&prng, key, 7);
            if (key[0] != '\0' && limit_of("f", key) != twin_limit(rules, count, key)) {
                test_seed_failed("limits_test", test_seed());
                fail_msg("%s: %lld, by the twin %lld, in:\n%s", key, (long long)limit_of("f", key),
                         (long long)twin_limit(rules, count, key), text);
            }
        }
    }
}

/* ---- what is decided --------------------------------------------------------------------------------------------- */

TEST_WITH(calls_are_decided_by_the_files_limit, begin, end, NULL) {
    load_text("api user:* 2 1m\napi user:0 0 1m\napi free* unlimited\n");
    tw_verdict verdict = acquire("api", "user:1", 2, TW_OK);
    assert_i64_equal(verdict.limit, 2);
    assert_i64_equal(verdict.remaining, 0);
    assert_i64_equal(verdict.reset_after_ms, 60000);
    verdict = acquire("api", "user:1", 1, TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    verdict = acquire("api", "user:2", 1, TW_OK);
    test_assert_no_cause(&verdict);
    verdict = acquire("api", "user:0", 1, TW_DENIED);
    test_assert_cause(&verdict, TW_CAUSE_NEVER);
    rig_pass(&rig, 60000);
    (void)acquire("api", "user:1", 1, TW_OK);
    tw_family *family = tw_family_find(rig.engine, "api.1m"), *found = NULL;
    assert_status(tw_limits_find(limits, "api", tw_str("user:1"), &found, NULL), TW_OK);
    assert_ptr_equal(found, family);
    assert_i64_equal(rig_get(family, "user:1"), 1);
}

TEST_WITH(what_is_unlimited_is_admitted_and_not_counted, begin, end, NULL) {
    load_text("api user:* 2 1m\napi free* unlimited\n");
    const char *keys[] = {"free:1", "nobody"};
    for (size_t i = 0; i < 2; i++) {
        tw_verdict verdict = acquire("api", keys[i], TW_DELTA_MAX, TW_OK), want = {0};
        want.limit = want.remaining = TW_UNBOUNDED;
        want.allowed = 1;
        assert_memory_equal(&verdict, &want, sizeof want);
        verdict = acquire("api", keys[i], -1, TW_ERR_RANGE);
        assert_i64_equal(verdict.allowed, 0);
        (void)acquire("api", keys[i], TW_DELTA_MAX + 1, TW_ERR_RANGE);
    }
    tw_family *found = (tw_family *)&rig;
    assert_status(tw_limits_find(limits, "api", tw_str("free"), &found, NULL), TW_OK);
    assert_null(found);
    assert_i64_equal(test_stat_of(rig.engine, increments), 0);
    assert_status(tw_limits_acquire(limits, "api", tw_str("nobody"), 1, NULL), TW_OK);
}

TEST_WITH(a_family_that_no_line_names_is_an_error, begin, end, NULL) {
    load_text("api user:* 2 1m\n");
    tw_verdict verdict = acquire("apo", "user:1", 1, TW_ERR_OPTIONS);
    assert_i64_equal(verdict.allowed, 0);
    assert_i64_equal(verdict.remaining, 0);
    assert_status(tw_limits_acquire(limits, "apo", tw_str("x"), 1, NULL), TW_ERR_OPTIONS);
    (void)acquire("api", "", 1, TW_ERR_KEY);
    assert_status(tw_limits_acquire(limits, "api", tw_bytes(NULL, 5), 1, NULL), TW_ERR_KEY);
}

static int64_t limit_by_handle(tw_limited *limited, const char *key) {
    int64_t limit = -1;
    assert_status(tw_limited_find(limited, tw_str(key), NULL, &limit), TW_OK);
    return limit;
}

/* Goal: a handle leads to what the name leads to, in every table: reloads move its family to another place, and add
 * others. */
TEST_WITH(a_handle_goes_by_the_lines_that_hold_now, begin, end, NULL) {
    tw_limited *middle = NULL, *again = NULL, *first = NULL;
    tw_verdict verdict;
    load_text("m user:* 2 1m\nm free unlimited\nz * 9 1m\n");
    assert_status(tw_limits_family(limits, "m", &middle), TW_OK);
    assert_status(tw_limits_family(limits, "m", &again), TW_OK);
    assert_ptr_equal(middle, again);
    assert_i64_equal(limit_by_handle(middle, "user:1"), 2);
    assert_i64_equal(limit_by_handle(middle, "free"), TW_UNBOUNDED);
    assert_status(tw_limited_acquire(middle, tw_str("user:1"), 2, &verdict), TW_OK);
    assert_i64_equal(verdict.limit, 2);
    write_file("a * 7 1m\nm user:* 3 1m\nz * 9 1m\nzz * 5 1m\n");
    assert_status(reload(), TW_OK);
    assert_i64_equal(limit_by_handle(middle, "user:1"), 3);
    assert_status(tw_limits_family(limits, "m", &again), TW_OK);
    assert_ptr_equal(middle, again);
    assert_status(tw_limits_family(limits, "a", &first), TW_OK);
    assert_i64_equal(limit_by_handle(first, "x"), 7);
    assert_status(tw_limited_acquire(middle, tw_str("user:1"), 1, NULL), TW_OK);
    assert_status(tw_limited_acquire(middle, tw_str("user:1"), 1, &verdict), TW_DENIED);
    assert_i64_equal(verdict.used, 3);
    write_file("a * 8 1m\nb * 8 1m\nm user:* 4 1m\nz * 9 1m\nzz * 5 90\n");
    assert_status(reload(), TW_ERR_OPTIONS); /* and nothing has changed */
    assert_i64_equal(limit_by_handle(middle, "user:1"), 3);
    write_file("a * 8 1m\nb * 8 1m\nm user:* 4 1m burst=1\nz * 9 1m\nzz * 5 1m\n");
    assert_status(reload(), TW_ERR_OPTIONS); /* found when its families are opened */
    assert_status(tw_limits_family(limits, "b", &again), TW_ERR_OPTIONS);
    assert_i64_equal(limit_by_handle(middle, "user:1"), 3);
}

TEST_WITH(a_handle_refuses_as_the_name_does, begin, end, NULL) {
    tw_limited *limited = (tw_limited *)&rig;
    load_text("api user:* 2 1m\n");
    assert_status(tw_limits_family(limits, "apo", &limited), TW_ERR_OPTIONS);
    assert_ptr_equal(limited, &rig);
    assert_string_equal(tw_error_text(), "family: no line of the limits file names it");
    assert_status(tw_limits_family(limits, "api", &limited), TW_OK);
    tw_verdict verdict;
    memset(&verdict, 0x55, sizeof verdict);
    assert_status(tw_limited_acquire(limited, tw_str(""), 1, &verdict), TW_ERR_KEY);
    assert_i64_equal(verdict.allowed, 0);
    assert_status(tw_limited_find(limited, tw_str(""), NULL, NULL), TW_ERR_KEY);
    assert_status(tw_limited_acquire(limited, tw_str("nobody"), -1, &verdict), TW_ERR_RANGE);
    assert_status(tw_limited_find(limited, tw_str("user:1"), NULL, NULL), TW_OK);
}

TEST_WITH(a_line_may_count_sub_windows, begin, end, NULL) {
    load_text("api user:* 10 1m shape=sliding sub-windows=6\n");
    (void)acquire("api", "user:1", 10, TW_OK);
    rig_pass(&rig, 60000);
    (void)acquire("api", "user:1", 2, TW_DENIED); /* by two windows alone it would have faded by now, by a tenth */
    (void)acquire("api", "user:1", 1, TW_DENIED);
    rig_pass(&rig, 10000);
    (void)acquire("api", "user:1", 10, TW_OK);
}

/* Goal: the words of files before 0.1.0 mean what they meant. */
TEST_WITH(what_an_outage_does_has_an_old_word_too, begin, end, NULL) {
    static const struct {
        const char *word;
        uint32_t policy;
    } words[] = {{"local", TW_OUTAGE_LOCAL},        {"fail-open", TW_OUTAGE_FAIL_OPEN},
                 {"open", TW_OUTAGE_FAIL_OPEN},     {"fail-closed", TW_OUTAGE_FAIL_CLOSED},
                 {"closed", TW_OUTAGE_FAIL_CLOSED}, {"share", TW_OUTAGE_SHARE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct twi_limits_line line;
        char text[60], what[300] = "";
        int size = snprintf(text, sizeof text, "f * 1 1m outage=%s", words[i].word);
        assert_int_equal(twi_limits_line_read(text, (size_t)size, &line, what, sizeof what), TWI_LIMITS_GOOD);
        assert_int_equal(line.policy.outage, words[i].policy);
    }
}

TEST_WITH(windows_and_words_become_families, begin, end, NULL) {
    load_text("a x 1 60s\na y 1 1m\na z 1 90s\nb * 1 24h from-first\nc * 1 7d mode=soft shape=fixed outage=local\n"
              "d * 1 1h mode=hard outage=fail-closed\n");
    assert_non_null(tw_family_find(rig.engine, "a.1m"));
    assert_null(tw_family_find(rig.engine, "a.60s"));
    assert_non_null(tw_family_find(rig.engine, "a.90s"));
    assert_non_null(tw_family_find(rig.engine, "b.1d"));
    assert_non_null(tw_family_find(rig.engine, "c.7d"));
    assert_status(tw_lease_warm(tw_family_find(rig.engine, "d.1h"), tw_str("k"), 1), TW_OK);
    fake_clock_advance_ms(&rig.clock, 5000);
    tw_verdict verdict = acquire("b", "k", 1, TW_OK);
    assert_i64_equal(verdict.reset_after_ms, TW_DAY);
}

TEST_WITH(a_rate_with_a_burst_is_a_line_too, begin, end, NULL) {
    load_text("api user:* 10 1s shape=gcra burst=3\n"); /* ten a second: one each 100 ms, three at once */
    for (int i = 0; i < 3; i++) (void)acquire("api", "user:1", 1, TW_OK);
    tw_verdict verdict = acquire("api", "user:1", 1, TW_DENIED);
    assert_i64_equal(verdict.retry_after_ms, 100);
    test_assert_cause(&verdict, TW_CAUSE_LIMIT);
    rig_pass(&rig, 100);
    (void)acquire("api", "user:1", 1, TW_OK);
    write_file("api user:* 10 1s shape=gcra burst=5\n");
    assert_status(reload(), TW_OK);
    for (int i = 0; i < 2; i++) (void)acquire("api", "user:1", 1, TW_OK);
    (void)acquire("api", "user:1", 1, TW_DENIED);
    write_file("api user:* 10 1s shape=sliding\n");
    assert_status(reload(), TW_ERR_OPTIONS);
    assert_error(1, "api.1s: limit_shape: cannot be changed");
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static const struct bad {
    const char *text;
    uint32_t line;
    const char *what;
} bad_files[] = {
    {"", 0, "it has no line with a limit"},
    {"\n \t\r\n# f * 1 1m\n", 0, "it has no line with a limit"},
    {"f", 1, "the last line has no end"},
    {"f * 1 1m\nf x 1 1m", 2, "the last line has no end: is the file whole?"},
    {"f\n", 1, "the key is missing"},
    {"f *\n", 1, "the limit is missing: a line is FAMILY KEY LIMIT WINDOW"},
    {"f * 1\n", 1, "the window is missing"},
    {"f * 1 # 1m\n", 1, "the window is missing"},
    {"f * unlimited 1m\n", 1, "nothing may follow unlimited"},
    {"# one\n\nf * 1 1m\nf/g * 1 1m\n", 4, "family 'f/g': byte 2 (0x2f)"},
    {"\xef\xbb\xbf"
     "f * 1 1m\n",
     1, "family '???f': byte 1 (0xef)"},
    {"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvw * 1 1m\n", 1, "longer than 48 bytes"},
    {"f a*b 1 1m\n", 1, "key 'a*b': * may stand at the end only"},
    {"f ** 1 1m\n", 1, "* may stand at the end only"},
    {"f a\\ 1 1m\n", 1, "key 'a\\': after \\ comes"},
    {"f a\\q 1 1m\n", 1, "after \\ comes"},
    {"f \\x0g 1 1m\n", 1, "after \\ comes"},
    {"f \\x0 1 1m\n", 1, "after \\ comes"},
    {"f \\x 1 1m\n", 1, "after \\ comes"},
    {"f * -1 1m\n", 1, "limit '-1'"},
    {"f * +1 1m\n", 1, "limit '+1'"},
    {"f * 1.5 1m\n", 1, "limit '1.5'"},
    {"f * 1k 1m\n", 1, "limit '1k'"},
    {"f * 10O 1m\n", 1, "limit '10O': must be a whole number from 0 to 9007199254740992, or unlimited"},
    {"f * Unlimited 1m\n", 1, "limit 'Unlimited'"},
    {"f * 9007199254740993 1m\n", 1, "limit '9007199254740993'"},
    {"f * 99999999999999999999999999 1m\n", 1, "limit '999"},
    {"f * 1 1\n", 1, "window '1'"},
    {"f * 1 m\n", 1, "window 'm'"},
    {"f * 1 0s\n", 1, "window '0s'"},
    {"f * 1 -1s\n", 1, "window '-1s'"},
    {"f * 1 1ms\n", 1, "window '1ms'"},
    {"f * 1 1w\n", 1, "window '1w': must be a number with s, m, h or d"},
    {"f * 1 1.5h\n", 1, "window '1.5h'"},
    {"f * 1 9999999999s\n", 1, "window '9999999999s'"},
    {"f * 1 999999999d\n", 1, "f.999999999d: window_ms: more than ten years"},
    {"f * 1 1m fast\n", 1, "'fast': unknown; there are from-first"},
    {"f * 1 1m mode\n", 1, "'mode': unknown"},
    {"f * 1 1m mode=\n", 1, "'mode=': must be one of soft, hard, strict"},
    {"f * 1 1m mode=Hard\n", 1, "'mode=Hard'"},
    {"f * 1 1m shape=round\n", 1, "must be one of fixed, sliding, gcra"},
    {"f * 1 1m busy=later\n", 1, "must be one of refuse, outage"},
    {"f * 1 1m outage=ajar\n", 1, "must be one of local, fail-open, fail-closed, share"},
    {"f * 1 1m burst=0\n", 1, "'burst=0'"},
    {"f * 1 1m burst=x\n", 1, "'burst=x'"},
    {"f * 1 1m burst=5\n", 1, "f.1m: burst: belongs to TW_SHAPE_GCRA"},
    {"f * 1 1m mode=hard outage=fail-open\n", 1, "f.1m: on_outage: TW_LIMIT_HARD allows only"},
    {"f * 1 1m\na * 1 1m\nb * 1 1m mode=hard shape=sliding\n", 3, "b.1m: limit_shape: TW_LIMIT_HARD allows only"},
    {"f * 1 1m sub-windows=2\n", 1, "f.1m: sub_windows: belongs to TW_SHAPE_SLIDING"},
    {"f * 1 1m shape=sliding sub-windows=0\n", 1, "'sub-windows=0': must be a whole number from 1 to 64"},
    {"f * 1 1m shape=sliding sub-windows=65\n", 1, "'sub-windows=65'"},
    {"f a 1 1m shape=sliding sub-windows=6\nf b 2 1m shape=sliding\n", 2, "a family and window has one sub-windows"},
    {"f * 1 1m mode=strict mode=soft\n", 1, "'mode=soft': its option is in this line twice"},
    {"f * 1 1m mode=soft shadow mode=soft\n", 1, "'mode=soft': its option is in this line twice"},
    {"f * 1 1m shadow from-first shadow\n", 1, "'shadow': its option is in this line twice"},
    {"f * 1 1m a b c d e f g h i j k l m n\n", 1, "more than 12 words"},
    {"f * 1 1m\n\nf * 2 1h\n", 3, "the same family and key as on line 1"},
    {"f a\\x62 1 1m\nf ab 2 1m\n", 2, "the same family and key as on line 1"},
    {"f a 1 1m\nf b 2 1m shadow\n", 2, "f.1m: differs from line 1: a family and window has one shadow"},
    {"f a 1 1m\nf b 2 60s from-first\n", 2, "f.1m: differs from line 1: a family and window has one from-first"},
};

TEST_WITH(a_wrong_file_is_refused_by_file_and_line, begin, end, NULL) {
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        write_file(bad_files[i].text);
        limits = NULL;
        assert_status(load(), TW_ERR_OPTIONS);
        assert_null(limits);
        assert_error(bad_files[i].line, bad_files[i].what);
        assert_null(tw_family_find(rig.engine, "f.1m"));
        assert_null(tw_family_find(rig.engine, "a.1m"));
        assert_status(tw_limits_open(rig.engine, path, NULL, 0, &limits), TW_ERR_OPTIONS);
        char small[6] = "xxxxx";
        assert_status(tw_limits_open(rig.engine, path, small, sizeof small, &limits), TW_ERR_OPTIONS);
        assert_string_equal(small, "/tmp/");
    }
    write_bytes("f * 1\0 1m\n", 10);
    assert_status(load(), TW_ERR_OPTIONS);
    assert_error(1, "a NUL byte");
}

TEST_WITH(a_key_and_a_line_have_their_greatest_size, begin, end, NULL) {
    char text[6000], *at = text;
    at += sprintf(at, "f ");
    for (int i = 0; i < TW_KEY_SIZE_MAX; i++) at += sprintf(at, "\\x41");
    strcpy(at, " 9007199254740992 1m\n");
    load_text(text);
    char key[TW_KEY_SIZE_MAX + 1];
    memset(key, 'A', TW_KEY_SIZE_MAX);
    key[TW_KEY_SIZE_MAX] = '\0';
    assert_i64_equal(limit_of("f", key), TW_DELTA_MAX);
    strcpy(at, "A 1 1m\n");
    write_file(text);
    assert_status(reload(), TW_ERR_OPTIONS);
    assert_error(1, "longer than 1024 bytes");
    assert_i64_equal(limit_of("f", key), TW_DELTA_MAX);
}

TEST_WITH(what_is_no_file_of_a_good_size_is_refused, begin, end, NULL) {
    assert_status(load(), TW_ERR_OPTIONS);
    assert_error(0, "No such file or directory");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_status(load(), TW_ERR_OPTIONS); /* and does not wait for a writer */
    assert_error(0, "not a regular file");
    unlink(path);
    assert_status(tw_limits_open(rig.engine, folder, error, sizeof error, &limits), TW_ERR_OPTIONS);
    write_file("f * 1 1m\n");
    assert_int_equal(truncate(path, (4 << 20) + 1), 0);
    assert_status(load(), TW_ERR_OPTIONS);
    assert_error(0, "larger than 4 MiB");
}

TEST_WITH(the_number_of_limits_and_of_families_is_bounded, begin, end, NULL) {
    FILE *file = fopen(path, "w");
    for (int i = 0; i <= 100000; i++) fprintf(file, "f k%d %d 1m\n", i, i);
    assert_int_equal(fclose(file), 0);
    assert_status(load(), TW_ERR_OPTIONS);
    assert_error(100001, "more than 100000 limits");
    file = fopen(path, "w");
    for (int i = 0; i < 100000; i++) fprintf(file, "f k%d %d 1m\n", i, i);
    assert_int_equal(fclose(file), 0);
    assert_status(load(), TW_OK);
    assert_i64_equal(limit_of("f", "k77777"), 77777);
    file = fopen(path, "w");
    for (int i = 1; i <= 257; i++) fprintf(file, "f k%d 1 %ds\n", i, i);
    assert_int_equal(fclose(file), 0);
    assert_status(reload(), TW_ERR_OPTIONS);
    assert_error(257, "more than 256 families and windows");
    file = fopen(path, "w");
    for (int i = 1; i <= 256; i++) fprintf(file, "f k%d 1 %ds\n", i, i + 100);
    assert_int_equal(fclose(file), 0);
    assert_status(reload(), TW_ERR_OPTIONS); /* f.1m is open, so there is room for 255 */
    assert_error(256, "more than 256 families and windows since tw_limits_open()");
    assert_null(tw_family_find(rig.engine, "f.101s"));
    assert_i64_equal(limit_of("f", "k77777"), 77777);
}

/* ---- reloading --------------------------------------------------------------------------------------------------- */

TEST_WITH(a_reload_changes_limits_and_keeps_counts, begin, end, NULL) {
    load_text("api user:* 2 1m\n");
    (void)acquire("api", "user:1", 2, TW_OK);
    (void)acquire("api", "user:1", 1, TW_DENIED);
    write_file("api user:* 3 1m\napi user:2 5 1h\nnew * 1 1s\n");
    assert_status(reload(), TW_OK);
    tw_verdict verdict = acquire("api", "user:1", 1, TW_OK);
    assert_i64_equal(verdict.used, 3);
    assert_i64_equal(acquire("api", "user:2", 1, TW_OK).limit, 5);
    (void)acquire("new", "x", 1, TW_OK);
    write_file("api user:* 5 2m\nnew * unlimited\n"); /* another window begins from 0 */
    assert_status(reload(), TW_OK);
    assert_i64_equal(acquire("api", "user:1", 1, TW_OK).used, 1);
    write_file("api user:* 3 60s\nnew * 2 1s\n"); /* and the first one is as it was left */
    assert_status(reload(), TW_OK);
    (void)acquire("api", "user:1", 1, TW_DENIED);
    assert_i64_equal(acquire("new", "x", 1, TW_OK).used, 2);
}

TEST_WITH(a_reload_that_fails_changes_nothing, begin, end, NULL) {
    static const char good[] = "api user:* 2 1m\nb * 4 1h mode=hard\n";
    load_text(good);
    const struct bad more[] = {
        {"api user:* 3 1m\n", 0, "family b has no line any more; to lift its limits, write: b * unlimited"},
        {"api user:* 3 1m\nb * 5 1h\n", 2, "b.1h: limit_mode: cannot be changed"},
        {"api user:* 3 1m outage=fail-closed mode=hard\nb * 5 1h mode=hard\n", 1,
         "api.1m: limit_mode: cannot be changed"},
        {"api user:* 3 1m\nb * 5 1h mode=hard outage=fail-closed\nc * 1 1m burst=1\n", 3, "c.1m: burst"},
        {"api user:* 3 1m\nc * 1 1m\nb * 5 1h mode=hard outage=fail-open\n", 3, "b.1h: on_outage"},
    };
    const size_t files = sizeof bad_files / sizeof *bad_files;
    for (size_t i = 0; i < files + sizeof more / sizeof *more; i++) {
        const struct bad *each = i < files ? &bad_files[i] : &more[i - files];
        write_file(each->text);
        assert_status(reload(), TW_ERR_OPTIONS);
        if (i >= files) assert_error(each->line, each->what);
        assert_i64_equal(limit_of("api", "user:1"), 2);
        assert_i64_equal(limit_of("b", "user:1"), 4);
        assert_i64_equal(limit_of("c", "x"), -1);
        assert_null(tw_family_find(rig.engine, "c.1m"));
        assert_null(tw_family_find(rig.engine, "f.1m"));
    }
    unlink(path);
    assert_status(reload(), TW_ERR_OPTIONS);
    assert_error(0, "No such file");
    write_file(good);
    assert_status(reload(), TW_OK);
    /* The policy of b.1h was changed and changed back: opened with the first policy, it is the same family. */
    tw_family_options options = rig_options("b.1h", TW_WINDOW_ALIGNED, TW_HOUR);
    options.limit_mode = TW_LIMIT_HARD;
    assert_status(tw_family_close(rig_family_of(&rig, &options)), TW_OK);
    (void)acquire("api", "user:1", 2, TW_OK);
}

TEST_WITH(an_engine_that_has_stopped_takes_no_limits, begin, end, NULL) {
    load_text("api * 2 1m\n");
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_status(reload(), TW_ERR_CLOSED);
    assert_error(1, "api.1m: ");
    (void)acquire("api", "x", 1, TW_ERR_CLOSED);
    tw_limits *other = NULL;
    assert_status(tw_limits_open(rig.engine, path, error, sizeof error, &other), TW_ERR_CLOSED);
    assert_null(other);
}

static bool free_inside(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)family, (void)start_ms, (void)end_ms, (void)flags;
    *(tw_status *)ctx = tw_limits_close(limits);
    return true;
}

TEST_WITH(limits_are_not_freed_from_inside_a_hook, begin, end, NULL) {
    tw_status answered = TW_OK;
    tw_family_options options = rig_options("hooked", TW_WINDOW_ALIGNED, TW_SECOND);
    options.on_window_closed = free_inside;
    options.closed_ctx = &answered;
    (void)rig_add(rig_family_of(&rig, &options), "x", 1);
    load_text("api * 2 1m\n");
    rig_pass(&rig, 3000);
    assert_status(answered, TW_ERR_MODE);
    (void)acquire("api", "x", 1, TW_OK);
}

/* ---- threads and forks ------------------------------------------------------------------------------------------- */

struct reader {
    pthread_t thread;
    tw_limited *limited;
    int64_t mixed, failed;
    _Atomic int64_t lookups;
};
static _Atomic bool stop, pause_readers;

/* Both keys have one limit in every file; a reader that looks at a table while it is freed finds anything. */
static void *read_on(void *argument) {
    struct reader *reader = argument;
    while (!atomic_load(&stop)) {
        if (atomic_load(&pause_readers)) {
            test_sleep_ms(1);
            continue;
        }
        int64_t limit = 0;
        tw_status status = tw_limits_find(limits, "f", tw_str("a"), NULL, &limit);
        if (status != TW_OK) reader->failed++;
        if (limit != 1000 && limit != 2000) reader->mixed++;
        if (reader->limited == NULL) (void)tw_limits_family(limits, "f", &reader->limited);
        status = tw_limited_find(reader->limited, tw_str("a"), NULL, &limit);
        if (status != TW_OK) reader->failed++;
        if (limit != 1000 && limit != 2000) reader->mixed++;
        /* A reader that never rests is preempted inside, and on a busy machine a reload waits for its next turn. */
        if (atomic_fetch_add(&reader->lookups, 1) % 64 == 63) (void)usleep(50);
    }
    return NULL;
}

static void write_limits(int limit) {
    char text[2000], *at = text;
    for (int i = 0; i < 30; i++) at += sprintf(at, "f b%d %d 1m\n", i, limit);
    sprintf(at, "f a %d 1m\n", limit);
    write_file(text);
}

static void start_readers(struct reader *readers, int count) {
    atomic_store(&stop, false);
    atomic_store(&pause_readers, false);
    for (int i = 0; i < count; i++) {
        readers[i] = (struct reader){0};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]), 0);
    }
}

static void end_readers(struct reader *readers, int count) {
    atomic_store(&stop, true);
    for (int i = 0; i < count; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_i64_equal(readers[i].mixed, 0);
        assert_i64_equal(readers[i].failed, 0);
    }
}

/* Goal: a table is freed after its last reader, and readers continue meanwhile. (AddressSanitizer sees a table freed
 * early.) */
TEST_WITH(readers_go_on_while_tables_are_swapped, begin, end, NULL) {
    struct reader readers[3];
    write_limits(1000);
    assert_status(load(), TW_OK);
    start_readers(readers, 3);
    for (uint64_t i = 0; i < test_scale(60); i++) {
        write_limits(i % 2 == 0 ? 2000 : 1000);
        assert_status(reload(), TW_OK);
        assert_i64_equal(limit_of("f", "a"), i % 2 == 0 ? 2000 : 1000);
    }
    end_readers(readers, 3);
}

/* OK, PENDING, anything else; by both threads. */
static _Atomic int64_t answered[3];

static void *reload_on(void *argument) {
    char text[100];
    while (!atomic_load(&stop)) {
        tw_status status = tw_limits_reload(limits, text, sizeof text);
        atomic_fetch_add(&answered[status == TW_OK ? 0 : status == TW_PENDING ? 1 : 2], 1);
    }
    return argument;
}

static bool two_have_met(void *ctx) {
    return atomic_load(&answered[1]) > 0 && atomic_load(&answered[0]) > 0;
}

TEST_WITH(of_two_reloads_at_once_one_is_told_to_ask_again, begin, end, NULL) {
    pthread_t threads[2];
    write_limits(1000);
    assert_status(load(), TW_OK);
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, reload_on, NULL), 0);
    bool met = test_wait(two_have_met, NULL, 20000);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_true(met);
    assert_i64_equal(atomic_load(&answered[2]), 0);
}

static bool all_have_looked(void *ctx) {
    const struct reader *readers = ctx;
    return atomic_load(&readers[0].lookups) > 0 && atomic_load(&readers[1].lookups) > 0 &&
           atomic_load(&readers[2].lookups) > 0;
}

/* Goal: a child does not wait for the parent's threads, which were inside when it was made. All of them look up while
 * it is made. While it works they pause: on a crowded machine three that spin would leave it no processor. */
TEST_WITH(a_forked_child_reloads_by_itself, begin, end, NULL) {
    if (test_misses_wiped_pages()) return;
    if (test_is_slow()) {
        test_leave_out(TEST_NO_FORK_HERE);
        return;
    }
    struct reader readers[3];
    write_limits(1000);
    assert_status(load(), TW_OK);
    start_readers(readers, 3);
    write_limits(2000);
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 3; k++) atomic_store(&readers[k].lookups, 0);
        atomic_store(&pause_readers, false);
        assert_true(test_wait(all_have_looked, readers, TEST_PATIENCE_MS));
        pid_t child = child_fork(60);
        if (child == 0) {
            int64_t limit = 0;
            bool good = tw_limits_reload(limits, NULL, 0) == TW_OK &&
                        tw_limits_find(limits, "f", tw_str("a"), NULL, &limit) == TW_OK && limit == 2000 &&
                        tw_limits_acquire(limits, "f", tw_str("a"), 2000, NULL) == TW_OK;
            _exit(good ? 0 : 1);
        }
        atomic_store(&pause_readers, true);
        child_expect_end(child);
    }
    end_readers(readers, 3);
    assert_i64_equal(limit_of("f", "a"), 1000);
}

int main(void) {
    return test_run();
}
