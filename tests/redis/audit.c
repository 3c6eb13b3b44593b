/* audit.c -- an audit finds each difference, by key, and changes nothing. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include <unistd.h>

struct seen {
    int64_t by_kind[8];
    char name[8][300]; /* the last one's */
    char text[8][300];
    int64_t expected[8], found[8];
};

static void see(void *ctx, const tw_finding *finding) {
    struct seen *seen = ctx;
    int kind = finding->kind;
    assert_true(kind > 0 && kind < 8);
    seen->by_kind[kind]++;
    snprintf(seen->name[kind], 300, "%.*s", (int)finding->name.size, (const char *)finding->name.data);
    snprintf(seen->text[kind], 300, "%s", finding->text);
    seen->expected[kind] = finding->expected;
    seen->found[kind] = finding->found;
}

static char error[256];

static tw_audit_options asking(const char *url) {
    tw_audit_options options;
    tw_audit_options_init(&options);
    options.error_text = error;
    options.error_size = sizeof error;
    options.redis_url = url;
    error[0] = '\0';
    return options;
}

static struct seen audit(tw_engine *engine, const tw_audit_options *options, tw_audit_report *report) {
    struct seen seen = {0};
    tw_status status = tw_audit(engine, options, see, &seen, report);
    if (status != TW_OK) print_error("%s\n", error);
    assert_status(status, TW_OK);
    return seen;
}

/* All of the data, as one text that any change would change; what the server counts of itself is left out. */
static void digest(struct redis_server *server, char out[64]) {
    snprintf(out, 64, "%s", redis_server_ask(server, "DEBUG", "DIGEST", NULL));
}

/* An audit that changes nothing. Engines say in the registry that they live, now and then, and that changes the data;
 * an audit that changed something would do so each time. */
static struct seen audit_that_only_looks(struct redis_server *server, tw_engine *engine,
                                         const tw_audit_options *options, tw_audit_report *report) {
    char before[64], after[64];
    struct seen seen;
    int tries = 0;
    do {
        assert_true(tries++ < 20);
        digest(server, before);
        seen = audit(engine, options, report);
        digest(server, after);
    } while (strcmp(before, after) != 0);
    return seen;
}

static const char *const debug[] = {"--enable-debug-command", "yes", NULL};

static void put_file(const struct redis_server *server, const char *content, char path[200]) {
    snprintf(path, 200, "%s/totals", server->folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fputs(content, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
}

/* Goal: a healthy engine and its Redis have nothing to be told of, with several engines and by each way to merge. */
static void where_all_is_well_nothing_is_found(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, debug);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *ours = family_of(a, "well", TW_WINDOW_ALIGNED, TW_DAY),
              *theirs = family_of(b, "well", TW_WINDOW_ALIGNED, TW_DAY);
    char key[16];
    for (int n = 0; n < 1200; n++) {
        snprintf(key, sizeof key, "%d", n);
        assert_status(tw_add(ours, tw_str(key), n % 3 ? 2 : -2, NULL), TW_OK);
        assert_status(tw_add(theirs, tw_str(key), 1, NULL), TW_OK);
    }
    assert_status(tw_add(family_of(a, "ever", TW_WINDOW_FOREVER, 0), tw_str("k"), 1, NULL), TW_OK); /* need not end */
    assert_status(tw_flush(a, 5000), TW_OK);
    assert_status(tw_flush(b, 5000), TW_OK);
    tw_audit_options options = asking(NULL);
    tw_audit_report report;
    struct seen seen = audit_that_only_looks(&server, a, &options, &report);
    assert_i64_equal(report.findings, 0);
    assert_i64_equal(report.ledgers, 2);
    assert_true(report.keys >= 1200);
    assert_true(report.memory_used > 0 && report.evicted == 0 && seen.by_kind[TW_AUDIT_LEDGER] == 0);
    assert_status(tw_audit(a, &options, NULL, NULL, NULL), TW_OK); /* neither is wanted */
    assert_status(tw_close(a, 5000), TW_OK);
    assert_status(tw_close(b, 5000), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: an audit beside running counts never takes what is under way for a difference. */
static void counts_under_way_are_no_difference(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "busy", TW_WINDOW_ALIGNED, TW_DAY);
    tw_audit_options options = asking(NULL);
    tw_audit_report report;
    char key[16];
    for (int round = 0; round < 60; round++) {
        for (int n = 0; n < 2500; n++) {
            snprintf(key, sizeof key, "%d", n);
            assert_status(tw_add(family, tw_str(key), n % 2 ? 3 : -1, NULL), TW_OK);
        }
        (void)audit(engine, &options, &report);
        assert_i64_equal(report.findings, 0);
    }
    assert_status(tw_close(engine, 5000), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: what is wrong with our ledger, with any ledger, or with a key's expiry is named, and left as it is. */
static void ledgers_and_expiries_that_are_wrong_are_named(void **state) {
    (void)state;
    struct redis_server server;
    char ledger[128], name[128];
    redis_server_start(&server, debug);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "wrong", TW_WINDOW_ALIGNED, TW_DAY);
    assert_status(tw_add(family, tw_str("k*[?"), 5, NULL), TW_OK);
    assert_status(tw_flush(engine, 5000), TW_OK);
    snprintf(ledger, sizeof ledger, "%s", redis_server_ask(&server, "KEYS", "tw:ledger:*", NULL));
    snprintf(name, sizeof name, "%s", redis_server_ask(&server, "KEYS", "wrong:*", NULL));
    redis_server_ask(&server, "PERSIST", name, NULL);
    redis_server_ask(&server, "SET", "wrong:stranger:2026", "1",
                     NULL); /* no name of the family's: stamps have 8 digits */
    redis_server_ask(&server, "HSET", ledger, "p", "4", NULL);
    redis_server_ask(&server, "HSET", "tw:ledger:cut", "v", "1", "n", "3", "3", "3 abc", NULL);
    tw_audit_options options = asking(NULL);
    tw_audit_report report;
    struct seen seen = audit_that_only_looks(&server, engine, &options, &report);
    assert_i64_equal(seen.by_kind[TW_AUDIT_NO_EXPIRY], 2); /* the key, and the ledger that was cut short */
    assert_string_equal(seen.name[TW_AUDIT_NO_EXPIRY], name);
    assert_i64_equal(seen.by_kind[TW_AUDIT_LEDGER], 2);
    assert_string_equal(seen.name[TW_AUDIT_LEDGER], "tw:ledger:cut"); /* ours comes first */
    assert_i64_equal(seen.found[TW_AUDIT_LEDGER], 3);
    redis_server_ask(&server, "DEL", "tw:ledger:cut", NULL);
    seen = audit(engine, &options, &report);
    assert_string_equal(seen.name[TW_AUDIT_LEDGER], ledger);
    assert_i64_equal(seen.expected[TW_AUDIT_LEDGER], 5);
    assert_i64_equal(seen.found[TW_AUDIT_LEDGER], 4);
    redis_server_ask(&server, "HSET", ledger, "n", "0", NULL);
    seen = audit(engine, &options, &report);
    assert_non_null(strstr(seen.text[TW_AUDIT_LEDGER], "went back"));
    redis_server_ask(&server, "DEL", ledger, NULL);
    seen = audit(engine, &options, &report);
    assert_non_null(strstr(seen.text[TW_AUDIT_LEDGER], "gone"));
    (void)tw_close(engine, 1000);
    redis_server_destroy(&server);
}

/* Goal: a file of totals is compared line by line; lines that are none are named with file and line. More than a
 * page. */
static void totals_of_a_file_are_compared(void **state) {
    (void)state;
    struct redis_server server;
    char path[200], content[40000] = "";
    redis_server_start(&server, debug);
    size_t used = 0;
    for (int n = 0; n < 1100; n++) {
        char name[32], value[16];
        snprintf(name, sizeof name, "t:%d%%:x", n);
        snprintf(value, sizeof value, "%d", n - 5);
        redis_server_ask(&server, "SET", name, value, NULL);
        used += (size_t)snprintf(content + used, sizeof content - used, "%d\t%d\n", n, n == 700 ? 1 : n - 5);
    }
    redis_server_ask(&server, "SET", "t:a\tb%:x", "9007199254740993", NULL);
    redis_server_ask(&server, "RPUSH", "t:list%:x", "1", NULL);
    snprintf(content + used, sizeof content - used, "%s",
             "a\\tb\t9007199254740993\nlist\t1\nmissing\t0\nabsent\t3\nno tab\n\t5\nk\tfive\nk\t5\t6\nbad\\q\t1\n");
    put_file(&server, content, path);
    tw_audit_options options = asking(server.url);
    options.totals_path = path;
    options.totals_name = "t:%k%%:x";
    tw_audit_report report;
    struct seen seen = audit(NULL, &options, &report);
    assert_i64_equal(report.lines, 1109);
    assert_i64_equal(seen.by_kind[TW_AUDIT_TOTAL], 2); /* 700, and `absent`; a missing key counts 0 */
    assert_string_equal(seen.name[TW_AUDIT_TOTAL], "t:absent%:x");
    assert_i64_equal(seen.expected[TW_AUDIT_TOTAL], 3);
    assert_i64_equal(seen.by_kind[TW_AUDIT_NO_COUNT], 1);
    assert_string_equal(seen.name[TW_AUDIT_NO_COUNT], "t:list%:x");
    assert_i64_equal(seen.by_kind[TW_AUDIT_LINE], 5);
    snprintf(content, sizeof content, "%s:1109: ", path);
    assert_memory_equal(seen.text[TW_AUDIT_LINE], content, strlen(content));
    redis_server_destroy(&server);
}

/* Goal: a Redis that evicts, may evict or is nearly full is told of. */
static void memory_and_eviction_are_told_of(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_audit_options options = asking(server.url);
    tw_audit_report report;
    (void)audit(NULL, &options, &report);
    assert_i64_equal(report.findings, 0);
    redis_server_ask(&server, "CONFIG", "SET", "maxmemory-policy", "allkeys-random", NULL);
    redis_server_ask(&server, "SET", "a", "1", NULL);
    redis_server_ask(&server, "CONFIG", "SET", "maxmemory", "1", NULL);
    redis_server_ask(&server, "SET", "b", "1", NULL);
    struct seen seen = audit(NULL, &options, &report);
    assert_i64_equal(seen.by_kind[TW_AUDIT_MEMORY], 3);
    assert_i64_equal(report.memory_max, 1);
    assert_true(report.evicted >= 1);
    redis_server_destroy(&server);
}

/* Goal: wrong options, no Redis, a server that hangs or refuses: a clear answer in time, nothing else. */
static void what_cannot_be_audited_is_said(void **state) {
    (void)state;
    struct redis_server server;
    tw_audit_report report;
    redis_server_start(&server, NULL);
    tw_audit_options options = asking(NULL);
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    assert_memory_equal(error, "redis_url", 9);
    options = asking("http://x");
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    options = asking(server.url);
    options.totals_name = "x%y";
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    options = asking(server.url);
    options.totals_path = "/nonexistent/totals";
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    assert_memory_equal(error, "totals_path", 11);
    options = asking("unix:///nonexistent/redis.sock");
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_REDIS);
    tw_engine *engine = quick_engine(server.url, NULL);
    options = asking(server.url);
    assert_status(tw_audit(engine, &options, NULL, NULL, &report), TW_ERR_OPTIONS); /* it has its own */
    redis_server_ask(&server, "CONFIG", "SET", "requirepass", "secret", NULL);
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_REDIS);
    assert_non_null(strstr(error, "NOAUTH"));
    redis_server_pause(&server);
    options.timeout_ms = 100;
    int64_t began_ms = test_mono_ms();
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_TIMEOUT);
    assert_true(test_mono_ms() - began_ms < 3000);
    redis_server_resume(&server);
    (void)tw_close(engine, 100);
    redis_server_destroy(&server);
}

/* Goal: no more than keys_max keys are looked at, and the report says that there were more. */
static void the_look_at_keys_is_bounded(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "EVAL", "for i = 1, 5000 do redis.call('SET', 'b:' .. i, 1) end", "0", NULL);
    tw_audit_options options = asking(server.url);
    tw_audit_report report;
    options.pattern = "b:*";
    (void)audit(NULL, &options, &report);
    assert_true(report.keys >= 5000 && report.findings == report.keys && report.cut_off == 0);
    options.keys_max = 1000;
    (void)audit(NULL, &options, &report);
    assert_true(report.keys >= 1000 && report.keys < 2500 && report.cut_off == 1);
    redis_server_destroy(&server);
}

/* Goal: where asked for, an engine audits itself, tells what it found, and a close in the midst of it keeps its
 * time. */
static void an_engine_audits_itself_where_asked(void **state) {
    (void)state;
    struct redis_server server;
    static struct log_lines lines;
    tw_options options;
    tw_engine *engine;
    char name[100];
    lines.text[0] = '\0';
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.audit_interval_ms = 1000;
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "self", TW_WINDOW_ALIGNED, TW_DAY);
    assert_status(tw_add(family, tw_str("k"), 5, NULL), TW_OK);
    assert_status(tw_flush(engine, 5000), TW_OK);
    for (int i = 0; i < 500 && test_stat_of(engine, audits) < 1; i++) test_sleep_ms(10);
    assert_i64_equal(test_stat_of(engine, audit_findings), 0);
    snprintf(name, sizeof name, "%s", redis_server_ask(&server, "KEYS", "self:*", NULL));
    redis_server_ask(&server, "PERSIST", name, NULL);
    for (int i = 0; i < 500 && test_stat_of(engine, audit_findings) < 1; i++) test_sleep_ms(10);
    assert_i64_equal(test_stat_of(engine, audit_findings), 1);
    redis_server_pause(&server);
    test_sleep_ms(1100); /* the next one is waiting for an answer, or will be soon */
    int64_t began_ms = test_mono_ms();
    (void)tw_close(engine, 100);
    assert_true(test_mono_ms() - began_ms < 3000);
    assert_non_null(strstr(lines.text, "2/22 an audit found no difference"));
    assert_non_null(strstr(lines.text, "1/22 an audit found 1 differences; the first: the key has no expiry self:k:"));
    redis_server_resume(&server);
    options.threads = TW_HOST_DRIVEN;
    assert_status(tw_open(&options, &engine), TW_ERR_OPTIONS);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_all_is_well_nothing_is_found),
        cmocka_unit_test(counts_under_way_are_no_difference),
        cmocka_unit_test(ledgers_and_expiries_that_are_wrong_are_named),
        cmocka_unit_test(totals_of_a_file_are_compared),
        cmocka_unit_test(memory_and_eviction_are_told_of),
        cmocka_unit_test(what_cannot_be_audited_is_said),
        cmocka_unit_test(the_look_at_keys_is_bounded),
        cmocka_unit_test(an_engine_audits_itself_where_asked),
    };
    return test_run_side_by_side(tests);
}
