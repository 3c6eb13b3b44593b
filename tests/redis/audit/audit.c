/* audit.c -- an audit finds each difference, by key, and changes nothing.
 * Covers: engine/ask/lease_reclaim.c, sync/audit/audit.c, sync/audit/audit_connection.c, sync/audit/audit_connection.c,
 * engine/base/key_slot.c, engine/audit.c. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct seen {
    int64_t by_kind[8];
    char name[8][300];  /* of the last finding */
    char inner[8][300]; /* the field or member */
    char text[8][300];
    int64_t expected[8], found[8];
};

static void see(void *ctx, const tw_finding *finding) {
    struct seen *seen = ctx;
    int kind = finding->kind;
    assert_true(kind > 0 && kind < 8);
    seen->by_kind[kind]++;
    snprintf(seen->name[kind], 300, "%.*s", (int)finding->name.size, (const char *)finding->name.data);
    snprintf(seen->inner[kind], 300, "%.*s", (int)finding->inner.size, (const char *)finding->inner.data);
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
    options.timeout_ms = TEST_PATIENCE_MS; /* a busy machine is no silent server */
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

/* A digest of all data: any change of the data changes it. The server's own statistics are left out. */
static void digest(struct redis_server *server, char out[64]) {
    snprintf(out, 64, "%s", redis_server_ask(server, "DEBUG", "DIGEST", NULL));
}

/* Runs an audit, and checks that it changes nothing. The registry's heartbeats change the data now and then; an audit
 * that changed something would do so each time. */
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

/* Goal: an audit of healthy engines and their Redis finds nothing, with several engines and by each way to merge. */
TEST(where_all_is_well_nothing_is_found) {
    struct redis_server server;
    redis_server_start(&server, debug);
    tw_engine *a = quick_engine(server.url, NULL), *b = quick_engine(server.url, NULL);
    tw_family *ours = family_of(a, "well", TW_WINDOW_ALIGNED, LONG_WINDOW_MS),
              *theirs = family_of(b, "well", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    char key[16];
    for (int n = 0; n < 1200; n++) {
        snprintf(key, sizeof key, "%d", n);
        assert_status(tw_add(ours, tw_str(key), n % 3 ? 2 : -2, NULL), TW_OK);
        assert_status(tw_add(theirs, tw_str(key), 1, NULL), TW_OK);
    }
    assert_status(tw_add(family_of(a, "ever", TW_WINDOW_FOREVER, 0), tw_str("k"), 1, NULL),
                  TW_OK); /* needs no expiry */
    assert_status(tw_flush(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_flush(b, TEST_PATIENCE_MS), TW_OK);
    tw_audit_options options = asking(NULL);
    tw_audit_report report;
    struct seen seen = audit_that_only_looks(&server, a, &options, &report);
    assert_i64_equal(report.findings, 0);
    assert_i64_equal(report.ledgers, 2);
    assert_true(report.keys >= 1200);
    assert_true(report.memory_used > 0 && report.evicted == 0 && seen.by_kind[TW_AUDIT_LEDGER] == 0);
    assert_status(tw_audit(a, &options, NULL, NULL, NULL), TW_OK); /* neither is wanted */
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: an audit next to running counts never reports counts in flight as a difference. */
TEST(counts_under_way_are_no_difference) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "busy", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
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
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: an audit names what is wrong with its own ledger, with any ledger and with a key's expiry, and leaves it as it
 * is. */
TEST(ledgers_and_expiries_that_are_wrong_are_named) {
    struct redis_server server;
    char ledger[128], name[128];
    redis_server_start(&server, debug);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = family_of(engine, "wrong", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    assert_status(tw_add(family, tw_str("k*[?"), 5, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    snprintf(ledger, sizeof ledger, "%s", redis_server_ask(&server, "KEYS", "tw:ledger:*", NULL));
    snprintf(name, sizeof name, "%s", redis_server_ask(&server, "KEYS", "wrong:*", NULL));
    redis_server_ask(&server, "PERSIST", name, NULL);
    redis_server_ask(&server, "SET", "wrong:stranger:2026", "1",
                     NULL); /* not a name of the family: stamps have 8 digits */
    redis_server_ask(&server, "HSET", ledger, "p", "4", NULL);
    redis_server_ask(&server, "HSET", "tw:ledger:cut", "v", "1", "n", "3", "3", "3 abc", NULL);
    tw_audit_options options = asking(NULL);
    tw_audit_report report;
    struct seen seen = audit_that_only_looks(&server, engine, &options, &report);
    assert_i64_equal(seen.by_kind[TW_AUDIT_NO_EXPIRY], 2); /* the key, and the ledger whose life was shortened */
    assert_string_equal(seen.name[TW_AUDIT_NO_EXPIRY], name);
    assert_i64_equal(seen.by_kind[TW_AUDIT_LEDGER], 2);
    assert_string_equal(seen.name[TW_AUDIT_LEDGER], "tw:ledger:cut"); /* its own ledger comes first */
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

/* Goal: an audit compares a file of totals line by line, also more than a page of them, and names each malformed line
 * by file and number. */
TEST(totals_of_a_file_are_compared) {
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

/* Goal: for a family whose names have hash tags, an audit finds the keys under these names, checks their expiry, and
 * compares a file of totals by the names that the template gives. */
TEST(names_with_hash_tags_are_found) {
    struct redis_server server;
    char content[2048] = "", path[200], key[16], error_text[200];
    size_t used = 0;
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family_options family_options;
    tw_family *family = NULL;
    tw_family_options_init(&family_options);
    family_options.name = "t";
    family_options.window = TW_WINDOW_FROM_FIRST;
    family_options.window_ms = TW_DAY;
    family_options.redis_key = "%n:{%t}:%k";
    family_options.redis_tags = 64;
    family_options.error_text = error_text;
    family_options.error_size = sizeof error_text;
    assert_status(tw_family_open(engine, &family_options, &family), TW_OK);
    for (int n = 0; n < 100; n++) {
        snprintf(key, sizeof key, "k%d", n);
        assert_status(tw_add(family, tw_str(key), n + 1, NULL), TW_OK);
        used += (size_t)snprintf(content + used, sizeof content - used, "%s\t%d\n", key, n + 1);
    }
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "t:{343}:k69"), 70); /* the tag of group CRC16 mod 64 = 19 */
    put_file(&server, content, path);
    tw_audit_options options = asking(NULL);
    options.totals_path = path;
    options.totals_name = "t:{%t}:%k";
    options.redis_tags = 64;
    tw_audit_report report;
    (void)audit(engine, &options, &report);
    assert_i64_equal(report.findings, 0);
    assert_i64_equal(report.lines, 100);
    assert_i64_equal(report.keys, 100); /* by the family's pattern */
    options.redis_tags = 128;
    (void)audit(engine, &options, &report);
    assert_true(report.findings > 10); /* keys with tags of other groups */
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- hashes and sorted sets -------------------------------------------------------------------------------------- */

enum { LINES = 1100 }; /* more than two pages */

static bool is_hash(void) {
    return test_shape == TW_REDIS_HASH;
}

static tw_family *open_shaped(tw_engine *engine) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = "t";
    options.window_ms = LONG_WINDOW_MS;
    options.redis_shape = test_shape;
    options.redis_key = is_hash() ? "%n:{%t}%%:%k:%Y%m%d" : "%n%%:%Y%m%d";
    if (is_hash()) options.key_separator = ':', options.redis_tags = 64;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

/* Some subjects hold the separator, and their fields do not. */
static void key_of_line(int n, char key[32]) {
    snprintf(key, 32, "s:%d:f%d", n % 40, n / 40);
}

/* What the name of a counter ends with: the stamp of its window. */
static const char *stamp_of(struct redis_server *server) {
    static char stamp[16];
    char name[64];
    snprintf(name, sizeof name, "%s",
             redis_server_ask(server, "EVAL", "return redis.call('KEYS', 't[:%]*')[1]", "0", NULL));
    snprintf(stamp, sizeof stamp, "%s", strrchr(name, ':'));
    return stamp;
}

/* The name of what holds subject s:7, or all. */
static const char *name_of_seven(struct redis_server *server) {
    static char name[64];
    snprintf(name, sizeof name, "%s", redis_server_ask(server, "KEYS", is_hash() ? "t:{*}%:s:7:*" : "t%:*", NULL));
    return name;
}

/* Sets field f1 of subject s:7. */
static void write_seven(struct redis_server *server, const char *total) {
    if (is_hash())
        redis_server_ask(server, "HSET", name_of_seven(server), "f1", total, NULL);
    else
        redis_server_ask(server, "ZADD", name_of_seven(server), total, "s:7:f1", NULL);
}

static void assert_named(struct redis_server *server, const struct seen *seen, int kind, const char *text) {
    assert_i64_equal(seen->by_kind[kind], 1);
    assert_string_equal(seen->name[kind], name_of_seven(server));
    assert_string_equal(seen->inner[kind], is_hash() ? "f1" : "s:7:f1");
    assert_string_equal(seen->text[kind], text);
}

/* Goal: totals of hashes and of sorted sets are compared line by line, by the names that the family's template gives,
 * with an engine and without one. Each difference is named with its field or member: another total, none, one that is
 * no number, another type, a key that has no field. */
TEST_EACH(totals_of_hashes_and_sorted_sets_are_compared, TW_REDIS_HASH, TW_REDIS_ZSET) {
    play_shape(state);
    struct redis_server server;
    static char content[40000];
    char path[200], name[64], key[32];
    tw_audit_report report;
    size_t used = 0;
    redis_server_start(&server, debug);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = open_shaped(engine);
    for (int n = 0; n < LINES; n++) {
        key_of_line(n, key);
        assert_status(tw_add(family, tw_str(key), n % 2 ? n + 1 : -n - 1, NULL), TW_OK);
        used += (size_t)snprintf(content + used, sizeof content - used, "%s\t%d\n", key, n % 2 ? n + 1 : -n - 1);
    }
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    put_file(&server, content, path);
    tw_audit_options options = asking(NULL);
    snprintf(name, sizeof name, is_hash() ? "t:{%%t}%%%%:%%k%s" : "t%%%%%s", stamp_of(&server));
    options.totals_path = path;
    options.totals_name = name;
    options.redis_shape = test_shape;
    if (is_hash()) options.key_separator = ':', options.redis_tags = 64;
    (void)audit_that_only_looks(&server, engine, &options, &report);
    assert_i64_equal(report.findings, 0);
    assert_i64_equal(report.lines, LINES);
    assert_i64_equal(report.keys, is_hash() ? 40 : 1); /* each has its expiry */
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);

    options.redis_url = server.url;
    (void)audit(NULL, &options, &report);
    assert_i64_equal(report.findings, 0);
    write_seven(&server, "49");
    struct seen seen = audit(NULL, &options, &report);
    assert_named(&server, &seen, TW_AUDIT_TOTAL, "the counts differ");
    assert_i64_equal(seen.expected[TW_AUDIT_TOTAL], 48);
    assert_i64_equal(seen.found[TW_AUDIT_TOTAL], 49);
    write_seven(&server, is_hash() ? "many" : "48.5");
    seen = audit(NULL, &options, &report);
    assert_named(&server, &seen, TW_AUDIT_NO_COUNT,
                 is_hash() ? "the field holds no number" : "the member's score is no whole number within 2^53");
    write_seven(&server, is_hash() ? "9223372036854775807" : "1e17"); /* a counter of a set ends at 2^53 */
    seen = audit(NULL, &options, &report);
    assert_i64_equal(seen.found[TW_AUDIT_TOTAL], is_hash() ? INT64_MAX : 0);
    assert_i64_equal(seen.by_kind[TW_AUDIT_NO_COUNT], !is_hash());
    redis_server_ask(&server, is_hash() ? "HDEL" : "ZREM", name_of_seven(&server), is_hash() ? "f1" : "s:7:f1", NULL);
    seen = audit(NULL, &options, &report);
    assert_named(&server, &seen, TW_AUDIT_TOTAL, is_hash() ? "the field is missing" : "the member is missing");
    assert_i64_equal(report.findings, 1);
    options.redis_shape = is_hash() ? TW_REDIS_ZSET : TW_REDIS_HASH;
    options.key_separator = '\0';
    snprintf(name, sizeof name, "%s", name_of_seven(&server));
    if (!is_hash()) snprintf(name, sizeof name, "t%%%%%s%%k", stamp_of(&server));
    if (is_hash()) /* its % is none of a template */
        snprintf(name, sizeof name, "%.*s%%%%%s", (int)(strchr(name_of_seven(&server), '%') - name_of_seven(&server)),
                 name_of_seven(&server), strchr(name_of_seven(&server), '%') + 1);
    put_file(&server, "|\t1\nx|\t1\n|x\t1\nx\t1\n", path);
    seen = audit(NULL, &options, &report);
    assert_i64_equal(seen.by_kind[is_hash() ? TW_AUDIT_NO_COUNT : TW_AUDIT_LINE], 4);
    if (is_hash()) assert_memory_equal(seen.text[TW_AUDIT_NO_COUNT], "WRONGTYPE", 9);
    if (!is_hash()) assert_non_null(strstr(seen.text[TW_AUDIT_LINE], ":4: the key is no subject, separator and field"));
    redis_server_destroy(&server);
}

/* Goal: a hash of a million fields delays nobody: whatever its size, it is asked for field by field, in pages.
 * Method: Redis's own record of commands. */
TEST(a_hash_of_a_million_fields_is_asked_field_by_field) {
    struct redis_server server;
    static char content[60000];
    char path[200];
    size_t used = 0;
    tw_audit_report report;
    redis_server_start(&server, NULL);
    for (int i = 0; i < 100; i++) { /* each part is done within the patience of redis_server_ask() */
        char first[16];
        snprintf(first, sizeof first, "%d", i * 10000);
        redis_server_ask(&server, "EVAL",
                         "for i = ARGV[1], ARGV[1] + 9999 do redis.call('HSET', 'h:big', 'f' .. i, i) end", "0", first,
                         NULL);
    }
    assert_string_equal(redis_server_ask(&server, "HLEN", "h:big", NULL), "1000000");
    for (int n = 0; n < 2 * LINES; n++)
        used += (size_t)snprintf(content + used, sizeof content - used, "big|f%d\t%d\n", n * 450, n * 450);
    put_file(&server, content, path);
    redis_server_ask(&server, "CONFIG", "RESETSTAT", NULL);
    tw_audit_options options = asking(server.url);
    options.totals_path = path;
    options.totals_name = "h:%k";
    options.redis_shape = TW_REDIS_HASH;
    (void)audit(NULL, &options, &report);
    assert_i64_equal(report.findings, 0);
    assert_i64_equal(report.lines, 2 * LINES);
    const char *commands = redis_server_ask(&server, "INFO", "commandstats", NULL);
    assert_non_null(strstr(commands, "cmdstat_hget:calls=2200,"));
    assert_null(strstr(commands, "cmdstat_hgetall"));
    assert_null(strstr(commands, "cmdstat_hmget"));
    redis_server_destroy(&server);
}

/* A Redis that says one thing to the first who comes, and waits until that one has left. */
static void *say_once(void *argument) {
    static const char words[] = "-ERR no INFO\r\n*2\r\n$1\r\n0\r\n*0\r\n" /* SCAN: no ledgers */
                                "$5\r\n5e+15\r\n$8\r\n-4.6e+15\r\n$16\r\n9007199254740992\r\n$5\r\n4e+17\r\n"
                                "$4\r\n1e-1\r\n$3\r\ninf\r\n$2\r\n-0\r\n$3\r\n1e+\r\n";
    char bytes[4096];
    int *listener = argument, fd = accept(*listener, NULL, NULL);
    if (fd < 0) return NULL;
    (void)!send(fd, words, sizeof words - 1, MSG_NOSIGNAL);
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {}
    close(fd);
    return NULL;
}

/* Goal: scores as a later Redis writes them are read to the unit, and what is no count is named. */
TEST(scores_with_an_exponent_are_read_to_the_unit) {
    struct redis_server server; /* for its folder */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[200], url[160];
    pthread_t thread;
    tw_audit_report report;
    redis_server_start(&server, NULL);
    put_file(&server, "a\t5000000000000000\nb\t-4600000000000000\nc\t9007199254740992\nd\t1\ne\t1\nf\t1\ng\t0\nh\t1\n",
             path);
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s/once", server.folder);
    snprintf(url, sizeof url, "unix://%s", address.sun_path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, say_once, &listener), 0);
    tw_audit_options options = asking(url);
    options.totals_path = path;
    options.totals_name = "ranking";
    options.redis_shape = TW_REDIS_ZSET;
    struct seen seen = audit(NULL, &options, &report);
    assert_i64_equal(seen.by_kind[TW_AUDIT_NO_COUNT], 4); /* d e f h */
    assert_i64_equal(report.findings, 4);
    pthread_join(thread, NULL);
    close(listener);
    redis_server_destroy(&server);
}

/* Goal: an audit reports a Redis that evicts, may evict or is nearly full. */
TEST(memory_and_eviction_are_reported) {
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

/* Goal: with wrong options, no Redis, or a server that hangs or refuses, an audit returns a clear error in time and
 * does nothing else. */
TEST(an_audit_that_cannot_run_returns_an_error) {
    struct redis_server server;
    tw_audit_report report;
    redis_server_start(&server, NULL);
    tw_audit_options options = asking(NULL);
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    assert_memory_equal(error, "redis_url", 9);
    options = asking("http://x");
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    options = asking(server.url);
    static const char *const names[] = {"x%y", "%t%k", "%k{%t}", "{%t}{%t}%k", "{x}{%t}%k", "{%t}"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        options.totals_name = names[i];
        assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
        assert_memory_equal(error, "totals_name", 11);
    }
    static const char *const of_sets[] = {"x:%k", "{%t}x"};
    options.redis_shape = TW_REDIS_ZSET;
    for (size_t i = 0; i < sizeof of_sets / sizeof *of_sets; i++) {
        options.totals_name = of_sets[i];
        assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
        assert_memory_equal(error, "totals_name: of a sorted set", 28);
    }
    options.totals_name = NULL;
    options.totals_path = "x";
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    assert_memory_equal(error, "totals_name: missing", 20);
    options = asking(server.url);
    options.redis_shape = 3;
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    assert_memory_equal(error, "redis_shape", 11);
    options.redis_shape = TW_REDIS_STRING;
    options.key_separator = '|';
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    assert_memory_equal(error, "key_separator", 13);
    options = asking(server.url);
    options.redis_tags = 12;
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    assert_memory_equal(error, "redis_tags", 10);
    options = asking(server.url);
    options.totals_path = "/nonexistent/totals";
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_OPTIONS);
    assert_memory_equal(error, "totals_path", 11);
    options = asking("unix:///nonexistent/redis.sock");
    assert_status(tw_audit(NULL, &options, NULL, NULL, &report), TW_ERR_REDIS);
    tw_engine *engine = quick_engine(server.url, NULL);
    options = asking(server.url);
    assert_status(tw_audit(engine, &options, NULL, NULL, &report), TW_ERR_OPTIONS); /* it has its own audit */
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

/* Goal: an audit reads at most keys_max keys, and reports that there were more. */
TEST(an_audit_reads_at_most_keys_max_keys) {
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

static int64_t slow_clock(void *ctx, int kind) {
    struct timespec now;
    clock_gettime(kind == TW_CLOCK_MONOTONIC ? CLOCK_MONOTONIC : CLOCK_REALTIME, &now);
    int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    return kind == TW_CLOCK_MONOTONIC ? ns / 2 : ns;
}

/* Goal: an engine with the option audits itself and logs each audit. A close in the middle of an audit keeps its time.
 * By the engine's clock the audits lie less than a second apart: log lines of other events would be left out. */
TEST(an_engine_audits_itself_where_asked) {
    struct redis_server server;
    static struct log_lines lines;
    tw_options options;
    tw_engine *engine;
    char name[100];
    lines.text[0] = '\0';
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.audit_interval_ms = 1000;
    options.clock_now_ns = slow_clock;
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "self", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    assert_status(tw_add(family, tw_str("k"), 5, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    for (int i = 0; i < 500 && test_stat_of(engine, audits) < 1; i++) test_sleep_ms(10);
    assert_i64_equal(test_stat_of(engine, audit_findings), 0);
    snprintf(name, sizeof name, "%s", redis_server_ask(&server, "KEYS", "self:*", NULL));
    redis_server_ask(&server, "PERSIST", name, NULL);
    for (int i = 0; i < 500 && test_stat_of(engine, audit_findings) < 1; i++) test_sleep_ms(10);
    assert_i64_equal(test_stat_of(engine, audit_findings), 1);
    redis_server_pause(&server);
    test_sleep_ms(1100); /* the next audit waits for a reply, or will soon */
    int64_t began_ms = test_mono_ms();
    (void)tw_close(engine, 100);
    assert_true(test_mono_ms() - began_ms < 3000);
    assert_non_null(strstr(lines.text, "2/22 an audit found no difference"));
    assert_non_null(strstr(lines.text, "1/22 an audit found 1 differences; the first: the key has no expiry self:k:"));
    redis_server_resume(&server);
    options.threads = TW_HOST_DRIVEN;
    assert_status(test_open(&options, &engine), TW_ERR_OPTIONS);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
