/* audit_cluster.c -- an audit of a real cluster looks at every master, counts each key once, also while slots move, and
 * never says that all is well where it could not look.
 * All tests share three masters. Each leaves them as it found them; the last one kills one.
 * Covers: sync/audit/audit_servers.c, sync/audit/audit_servers.c. */
#include "engine/base/key_slot.h"
#include "tests/redis/sync_support.h"
#include "tests/support/redis_cluster.h"

#include "batch.lua.h"

enum { A, B, C, MASTERS, KEYS = 300 };
#define ID "1234567890abcdef1234567890abcde" /* 31 bytes of a ledger's 32 */

static struct redis_cluster cluster;
static char url[300], error[400];

/* What an audit has found, and what is done in the middle of it. */
struct seen {
    int64_t by_kind[8];
    char name[8][300], text[8][300]; /* of the last finding */
    void (*in_the_middle)(void);     /* upon the first finding */
};

static void see(void *ctx, const tw_finding *finding) {
    struct seen *seen = ctx;
    int kind = finding->kind;
    assert_true(kind > 0 && kind < 8);
    seen->by_kind[kind]++;
    snprintf(seen->name[kind], 300, "%.*s", (int)finding->name.size, (const char *)finding->name.data);
    snprintf(seen->text[kind], 300, "%s", finding->text);
    if (seen->in_the_middle) seen->in_the_middle();
    seen->in_the_middle = NULL;
}

static tw_audit_options asking(const char *pattern) {
    tw_audit_options options;
    tw_audit_options_init(&options);
    options.error_text = error;
    options.error_size = sizeof error;
    options.redis_url = url;
    options.pattern = pattern;
    error[0] = '\0';
    return options;
}

static struct seen audit(const tw_audit_options *options, tw_status want, tw_audit_report *report) {
    struct seen seen = {0};
    tw_status status = tw_audit(NULL, options, see, &seen, report);
    if (status != want) print_error("%s\n", error);
    assert_status(status, want);
    return seen;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static uint32_t slot_of(const char *name) {
    return twi_key_slot_of(name, strlen(name));
}

/* A tag of the master's slots that no test has used yet. */
static int new_tag(size_t node) {
    static int used;
    char name[16];
    do {
        snprintf(name, sizeof name, "%d", ++used);
    } while (cluster.owners[slot_of(name)] != node);
    return used;
}

static const char *at(size_t node, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One command, its words separated by blanks. */
static const char *at(size_t node, const char *format, ...) {
    static char line[1024];
    const char *words[32];
    size_t count = 0;
    char *rest = line;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *word; (word = strsep(&rest, " ")) != NULL && count < 32;) words[count++] = word;
    return redis_server_ask_words(redis_cluster_server(&cluster, node), words, count);
}

/* KEYS keys name:{tag}:1, 2, ... with the values 1, 2, ...; they expire or they do not. */
static void fill(size_t node, const char *name, int tag, bool expires) {
    char key[64];
    snprintf(key, sizeof key, "%s:{%d}:", name, tag);
    const char *script = expires ? "for i = 1, ARGV[1] do redis.call('SET', KEYS[1] .. i, i, 'PX', 1e8) end return 1"
                                 : "for i = 1, ARGV[1] do redis.call('SET', KEYS[1] .. i, i) end return 1";
    assert_string_equal(redis_server_ask(redis_cluster_server(&cluster, node), "EVAL", script, "1", key, "300", NULL),
                        "1");
}

/* A ledger of the tag, as two batches leave it: number 1, 5 added. */
static void write_ledger(size_t node, int tag) {
    char ledger[80], marker[32], counter[32];
    snprintf(ledger, sizeof ledger, "tw:ledger:{%d}:" ID "%d", tag, tag % 10);
    snprintf(marker, sizeof marker, "tw:marker:{%d}", tag);
    snprintf(counter, sizeof counter, "sum:{%d}", tag);
    struct redis_server *server = redis_cluster_server(&cluster, node);
    redis_server_ask(server, "EVAL", twi_script_batch, "2", ledger, marker, "1", "0", "0", "aa", "100000000", "0", "0",
                     "mark", NULL);
    redis_server_ask(server, "EVAL", twi_script_batch, "3", ledger, marker, counter, "1", "1", "0", "bb", "100000000",
                     "5", "0", "mark", "e", "0", "1", "5", NULL);
    assert_string_equal(redis_server_ask(server, "HGET", ledger, "p", NULL), "5");
}

static void empty_all(void) {
    for (size_t i = 0; i < cluster.count; i++)
        if (cluster.nodes[i].server.pid > 0) at(i, "FLUSHALL");
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Goal: keys, ledgers, totals and the memory of all masters are looked at, and each finding names its place. */
static void every_master_is_looked_at(void **state) {
    char content[512] = "", path[200];
    size_t used = 0;
    tw_audit_report report;
    int tags[MASTERS];
    for (size_t i = 0; i < MASTERS; i++) {
        tags[i] = new_tag(i);
        fill(i, "views", tags[i], true);
        write_ledger(i, tags[i]);
        used += (size_t)snprintf(content + used, sizeof content - used, "{%d}:7\t7\n{%d}:8\t8\n", tags[i], tags[i]);
    }
    put_file(redis_cluster_server(&cluster, A), content, path);
    tw_audit_options options = asking("views:*");
    options.totals_path = path;
    options.totals_name = "views:%k";
    struct seen seen = audit(&options, TW_OK, &report);
    assert_i64_equal(report.findings, 0);
    assert_i64_equal(report.ledgers, MASTERS);
    assert_i64_equal(report.keys, MASTERS * KEYS);
    assert_i64_equal(report.lines, 2 * MASTERS);
    assert_true(report.memory_used > 3 * 500000 && report.evicted == 0);
    for (size_t i = 0; i < MASTERS; i++) at(i, "PERSIST views:{%d}:9", tags[i]);
    at(B, "INCR views:{%d}:7", tags[B]);
    at(C, "HDEL tw:ledger:{%d}:" ID "%d v", tags[C], tags[C] % 10);
    at(C, "CONFIG SET maxmemory-policy allkeys-random");
    seen = audit(&options, TW_OK, &report);
    at(C, "CONFIG SET maxmemory-policy noeviction");
    assert_i64_equal(seen.by_kind[TW_AUDIT_NO_EXPIRY], MASTERS);
    assert_i64_equal(seen.by_kind[TW_AUDIT_TOTAL], 1);
    assert_i64_equal(seen.by_kind[TW_AUDIT_LEDGER], 1);
    assert_i64_equal(seen.by_kind[TW_AUDIT_MEMORY], 1);
    snprintf(content, sizeof content, "127.0.0.1:%d: ", cluster.nodes[C].server.port);
    assert_memory_equal(seen.text[TW_AUDIT_MEMORY], content, strlen(content));
    options.keys_max = KEYS / 2;
    (void)audit(&options, TW_OK, &report);
    assert_i64_equal(report.cut_off, 1);
    empty_all();
}

static void compare_totals(const char *content, const char *name, uint32_t shape, int64_t missing) {
    char path[200];
    tw_audit_report report;
    tw_audit_options options = asking(NULL);
    put_file(redis_cluster_server(&cluster, A), content, path);
    options.totals_path = path;
    options.totals_name = name;
    options.redis_shape = shape;
    struct seen seen = audit(&options, TW_OK, &report);
    assert_i64_equal(report.findings, missing);
    assert_i64_equal(seen.by_kind[TW_AUDIT_TOTAL], missing);
}

/* Goal: fields of hashes are compared at all masters, members of a sorted set at its own, also those that have gone to
 * the other end of a move; the missing part is named once. */
static void hashes_and_sorted_sets_are_compared_where_they_are(void **state) {
    char fields[512] = "", set[32], tag[16];
    size_t used = 0;
    int tags[MASTERS];
    for (size_t i = 0; i < MASTERS; i++) {
        tags[i] = new_tag(i);
        at(i, "HSET article:{%d}:s f 7 g 8", tags[i]);
        for (int field = 0; field < 3; field++)
            used += (size_t)snprintf(fields + used, sizeof fields - used, "{%d}:s|%c\t%d\n", tags[i], "fgh"[field],
                                     7 + field);
    }
    at(C, "ZADD ranking:{%d} 7 a -9 b", tags[C]);
    snprintf(set, sizeof set, "ranking:{%d}", tags[C]);
    snprintf(tag, sizeof tag, "%d", tags[C]);
    for (int round = 0; round < 2; round++) {
        compare_totals(fields, "article:%k", TW_REDIS_HASH, MASTERS); /* the fields h */
        compare_totals("a\t7\nb\t-9\nc\t1\n", set, TW_REDIS_ZSET, 1);
        if (round == 1) break;
        redis_cluster_move_begin(&cluster, slot_of(tag), A);
        redis_cluster_move_keys(&cluster, slot_of(tag), A, SIZE_MAX);
    }
    redis_cluster_move_end(&cluster, slot_of(tag), A);
    compare_totals(fields, "article:%k", TW_REDIS_HASH, MASTERS);
    empty_all();
}

static int moving_tag;
static uint32_t moving_slot;

/* Goal: in a slot in mid-move each key is looked at once, at whichever node it is, also a key that is at both. */
static void a_slot_in_mid_move_is_counted_once(void **state) {
    char content[512], path[200], name[64];
    size_t used = 0;
    tw_audit_report report;
    moving_tag = new_tag(C);
    snprintf(name, sizeof name, "{%d}", moving_tag);
    moving_slot = slot_of(name);
    fill(C, "half", moving_tag, false);
    write_ledger(C, moving_tag);
    redis_cluster_move_begin(&cluster, moving_slot, A);
    redis_cluster_move_keys(&cluster, moving_slot, A, KEYS / 2);
    redis_cluster_server(&cluster, A)->asking = true;
    for (int i = 1; i <= KEYS; i += 10) at(A, "SET half:{%d}:%d %d", moving_tag, i, i); /* MIGRATE cut short: at both */
    redis_cluster_server(&cluster, A)->asking = false;
    for (int i = 5; i <= 15; i++)
        used += (size_t)snprintf(content + used, sizeof content - used, "{%d}:%d\t%d\n", moving_tag, i, i);
    put_file(redis_cluster_server(&cluster, A), content, path);
    tw_audit_options options = asking("half:*");
    options.totals_path = path;
    options.totals_name = "half:%k";
    struct seen seen = audit(&options, TW_OK, &report);
    assert_i64_equal(report.keys, KEYS);
    assert_i64_equal(report.ledgers, 1);
    assert_i64_equal(seen.by_kind[TW_AUDIT_NO_EXPIRY], KEYS);
    assert_i64_equal(report.findings, KEYS); /* and no other */
    redis_cluster_server(&cluster, A)->asking = true;
    for (int i = 1; i <= KEYS; i += 10)
        if (strcmp(at(C, "EXISTS half:{%d}:%d", moving_tag, i), "1") == 0) at(A, "DEL half:{%d}:%d", moving_tag, i);
    redis_cluster_server(&cluster, A)->asking = false;
}

/* In the middle of an audit: A was searched. */
static void move_the_rest(void) {
    redis_cluster_move_keys(&cluster, moving_slot, A, SIZE_MAX);
}

/* Goal: a key that goes to a master that was searched before, from one that is searched later, is found all the same;
 * the end of the move is no fault. */
static void keys_that_move_meanwhile_are_found(void **state) {
    tw_audit_report report;
    int tag = new_tag(A);
    at(A, "SET half:{%d}:first 1", tag);
    struct seen seen = {.in_the_middle = move_the_rest};
    tw_audit_options options = asking("half:*");
    assert_status(tw_audit(NULL, &options, see, &seen, &report), TW_OK);
    assert_i64_equal(seen.by_kind[TW_AUDIT_NO_EXPIRY], KEYS + 1);
    redis_cluster_move_end(&cluster, moving_slot, A);
    (void)audit(&options, TW_OK, &report);
    assert_i64_equal(report.keys, KEYS + 1);
    empty_all();
}

static void begin_a_move(void) {
    moving_tag = new_tag(B);
    char name[16];
    snprintf(name, sizeof name, "%d", moving_tag);
    moving_slot = slot_of(name);
    redis_cluster_move_begin(&cluster, moving_slot, A);
}

/* Goal: if a slot begins to move in the middle of an audit, keys may be missed. The audit does not say that all is
 * well. */
static void a_move_that_begins_meanwhile_is_told(void **state) {
    tw_audit_report report;
    at(A, "SET late:{%d}:1 1", new_tag(A));
    struct seen seen = {.in_the_middle = begin_a_move};
    tw_audit_options options = asking("late:*");
    assert_status(tw_audit(NULL, &options, see, &seen, &report), TW_ERR_REDIS);
    assert_string_equal(error, "incomplete: 1 slots began to move; ask again later");
    (void)audit(&options, TW_OK, &report); /* now it is known from the beginning */
    redis_cluster_move_forget(&cluster, moving_slot, A);
    empty_all();
}

/* Goal: keys that have moved, by a move that is forgotten, lie where nobody finds them: they are named. */
static void keys_of_a_forgotten_move_are_named(void **state) {
    tw_audit_report report;
    int tag = new_tag(C);
    char name[16];
    snprintf(name, sizeof name, "%d", tag);
    fill(C, "lost", tag, true);
    redis_cluster_move_begin(&cluster, slot_of(name), A);
    redis_cluster_move_keys(&cluster, slot_of(name), A, 3);
    tw_audit_options options = asking("lost:*");
    (void)audit(&options, TW_OK, &report);
    assert_i64_equal(report.findings, 0);
    assert_i64_equal(report.keys, KEYS);
    /* As after a failover of the source: the target still waits for the rest. */
    at(C, "CLUSTER SETSLOT %u STABLE", slot_of(name));
    struct seen seen = audit(&options, TW_OK, &report);
    assert_i64_equal(seen.by_kind[TW_AUDIT_STRAY], 3);
    redis_cluster_move_forget(&cluster, slot_of(name), A);
    seen = audit(&options, TW_OK, &report);
    assert_i64_equal(seen.by_kind[TW_AUDIT_STRAY], 3);
    assert_memory_equal(seen.name[TW_AUDIT_STRAY], "lost:{", 6);
    assert_i64_equal(report.findings, 3);
    assert_i64_equal(report.keys, KEYS - 3);
    empty_all();
}

static bool always(tw_engine *engine) {
    return true;
}

/* Goal: the ledgers of all of an engine's stores are compared, each at its own master, also one that has moved. */
static void an_engines_ledgers_are_compared_wherever_they_are(void **state) {
    tw_audit_report report = {0};
    tw_audit_options options = asking(NULL);
    struct twi_audit_own own[MASTERS];
    struct seen seen = {0};
    uint32_t slot = 0;
    options.timeout_ms = 1000;
    options.keys_max = 1000;
    for (size_t i = 0; i < MASTERS; i++) {
        int tag = new_tag(i);
        char name[16];
        snprintf(name, sizeof name, "%d", tag);
        slot = slot_of(name);
        write_ledger(i, tag);
        own[i] = (struct twi_audit_own){.number = 1, .plus = 5};
        snprintf(own[i].ledger, sizeof own[i].ledger, "tw:ledger:{%d}:" ID "%d", tag, tag % 10);
    }
    redis_cluster_move_begin(&cluster, slot, B);
    redis_cluster_move_keys(&cluster, slot, B, SIZE_MAX);
    const tw_options server = {.redis_url = options.redis_url};
    struct twi_audit all = {.options = &options,
                            .server = &server,
                            .own = own,
                            .own_count = MASTERS,
                            .mono_ms = test_mono_ms,
                            .goes_on = always,
                            .found = see,
                            .ctx = &seen,
                            .report = &report};
    assert_status(twi_driver_find()->audit(&all), TW_OK);
    assert_i64_equal(report.findings, 0);
    own[A].plus = 6;
    own[B].number = 2;
    own[C].ledger[12] = '9'; /* a tag of another slot */
    assert_status(twi_driver_find()->audit(&all), TW_OK);
    assert_i64_equal(report.findings, MASTERS);
    assert_i64_equal(seen.by_kind[TW_AUDIT_LEDGER], MASTERS);
    redis_cluster_move_forget(&cluster, slot, B);
    empty_all();
}

static tw_family *family_shaped(tw_engine *engine, const char *name, uint32_t shape, uint32_t window) {
    test_shape = shape;
    tw_family *family = family_of(engine, name, window, window == TW_WINDOW_ALIGNED ? LONG_WINDOW_MS : 0);
    test_shape = TW_REDIS_STRING;
    return family;
}

/* Goal: an engine's audit knows the ledgers of all its stores, and its hashes and sorted sets, which lie at all masters
 * by the default template. It finds nothing, and then the ledger that was changed. */
static void an_engine_audits_its_cluster(void **state) {
    char ledger[128], key[16], content[2048] = "", path[200];
    size_t used = 0;
    tw_audit_report report;
    struct seen seen = {0};
    tw_audit_options options = asking(NULL);
    options.redis_url = NULL;
    tw_engine *engine = quick_engine(url, NULL);
    tw_family *family = family_of(engine, "own", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    for (int n = 0; n < KEYS; n++) {
        snprintf(key, sizeof key, "k%d", n);
        assert_status(tw_add(family, tw_str(key), 1, NULL), TW_OK);
    }
    tw_family *article = family_shaped(engine, "article", TW_REDIS_HASH, TW_WINDOW_FOREVER);
    tw_family *ranking = family_shaped(engine, "ranking", TW_REDIS_ZSET, TW_WINDOW_ALIGNED);
    for (int n = 0; n < 90; n++) {
        snprintf(key, sizeof key, "s%d|f%d", n / 3, n % 3);
        assert_status(tw_add(article, tw_str(key), n + 1, NULL), TW_OK);
        assert_status(tw_add(ranking, tw_str(key), n + 1, NULL), TW_OK);
        used += (size_t)snprintf(content + used, sizeof content - used, "%s\t%d\n", key, n + 1);
    }
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    put_file(redis_cluster_server(&cluster, A), content, path);
    options.totals_path = path;
    options.totals_name = "article:{%t}:%k";
    options.redis_shape = TW_REDIS_HASH;
    assert_status(tw_audit(engine, &options, see, &seen, &report), TW_OK);
    assert_i64_equal(report.findings, 0);
    assert_i64_equal(report.lines, 90);
    assert_i64_equal(report.keys, KEYS + 1); /* the sorted set, too; endless ones need no expiry */
    assert_true(report.ledgers > 20);
    for (size_t i = 0; i < MASTERS; i++) {
        snprintf(ledger, sizeof ledger, "%s", at(i, "KEYS tw:ledger:*"));
        ledger[strcspn(ledger, "\n")] = '\0';
        at(i, "HINCRBY %s p 1", ledger);
    }
    assert_status(tw_audit(engine, &options, see, &seen, &report), TW_OK);
    assert_i64_equal(report.findings, MASTERS);
    assert_i64_equal(seen.by_kind[TW_AUDIT_LEDGER], MASTERS);
    (void)tw_close(engine, 1000);
    empty_all();
}

/* Goal: a user who may do what the documentation lists may audit. Without ROLE, INFO says that a node is a master;
 * without both, nothing is trusted. */
static void the_documented_permissions_suffice(void **state) {
    tw_audit_report report;
    char open[256];
    redis_cluster_url(&cluster, open, sizeof open);
    for (size_t i = 0; i < MASTERS; i++)
        at(i, "ACL SETUSER auditor on >hush ~* -@all +scan +hgetall +hmget +pttl +get +info +role +asking "
              "+cluster|slots +cluster|nodes +hget +zscore");
    snprintf(url, sizeof url, "redis+cluster://auditor:hush@%s", open + strlen("redis+cluster://"));
    fill(B, "views", new_tag(B), true);
    tw_audit_options options = asking("views:*");
    (void)audit(&options, TW_OK, &report);
    assert_i64_equal(report.keys, KEYS);
    compare_totals("a|f\t0\n", "article:%k", TW_REDIS_HASH, 0);
    compare_totals("a\t0\n", "ranking", TW_REDIS_ZSET, 0);
    for (size_t i = 0; i < MASTERS; i++) at(i, "ACL SETUSER auditor -role");
    (void)audit(&options, TW_OK, &report);
    assert_i64_equal(report.keys, KEYS);
    at(B, "ACL SETUSER auditor -info");
    (void)audit(&options, TW_ERR_REDIS, &report);
    assert_non_null(strstr(error, "ROLE and INFO are refused"));
    snprintf(url, sizeof url, "%s", open);
    empty_all();
}

/* Goal: a node that has no slots yet, and gets its first ones, is found and searched. No CLUSTER SLOTS names it,
 * but CLUSTER NODES of the node that gives a slot away does. */
static void a_new_node_is_searched_from_its_first_key_on(void **state) {
    tw_audit_report report;
    char name[16];
    int tag = new_tag(B);
    size_t fresh = redis_cluster_add(&cluster);
    snprintf(name, sizeof name, "%d", tag);
    fill(B, "half", tag, false);
    redis_cluster_move_begin(&cluster, slot_of(name), fresh);
    redis_cluster_move_keys(&cluster, slot_of(name), fresh, KEYS / 2);
    tw_audit_options options = asking("half:*");
    (void)audit(&options, TW_OK, &report);
    assert_i64_equal(report.keys, KEYS);
    assert_i64_equal(report.findings, KEYS);
    redis_cluster_move_forget(&cluster, slot_of(name), fresh);
    empty_all();
    redis_cluster_remove(&cluster, fresh);
}

/* Goal: with a master unreachable, the others are looked at, its keys are not reported as missing, and the audit says
 * that it is incomplete, and why. */
static void a_master_that_is_away_makes_it_incomplete(void **state) {
    char content[256] = "", path[200], name[32];
    tw_audit_report report;
    size_t used = 0;
    for (size_t i = 0; i < MASTERS; i++) {
        int tag = new_tag(i);
        fill(i, "views", tag, true);
        write_ledger(i, tag);
        at(i, "PERSIST views:{%d}:9", tag);
        used += (size_t)snprintf(content + used, sizeof content - used, "{%d}:7\t7\n", tag);
    }
    put_file(redis_cluster_server(&cluster, A), content, path);
    redis_server_kill(redis_cluster_server(&cluster, B));
    tw_audit_options options = asking("views:*");
    options.totals_path = path;
    options.totals_name = "views:%k";
    struct seen seen = audit(&options, TW_ERR_REDIS, &report);
    assert_i64_equal(report.keys, 2 * KEYS);
    assert_i64_equal(report.ledgers, 2);
    assert_i64_equal(seen.by_kind[TW_AUDIT_NO_EXPIRY], 2);
    assert_i64_equal(seen.by_kind[TW_AUDIT_TOTAL], 0);
    snprintf(name, sizeof name, "127.0.0.1:%d", cluster.nodes[B].server.port);
    assert_non_null(strstr(error, "incomplete: 546"));
    assert_non_null(strstr(error, name));
    redis_server_pause(redis_cluster_server(&cluster, C));
    options.timeout_ms = 1000; /* on a busy machine a refused connection takes longer than a tenth of it */
    (void)audit(&options, TW_ERR_REDIS, &report);
    assert_i64_equal(report.keys, KEYS);
    redis_server_resume(redis_cluster_server(&cluster, C));
    redis_server_kill(redis_cluster_server(&cluster, A));
    redis_server_kill(redis_cluster_server(&cluster, C));
    (void)audit(&options, TW_ERR_REDIS, &report);
    assert_memory_equal(error, "no node of the cluster says", 27);
}

int main(void) {
    const struct CMUnitTest longer[] = {
        cmocka_unit_test(every_master_is_looked_at),
        cmocka_unit_test(a_new_node_is_searched_from_its_first_key_on),
        cmocka_unit_test(keys_of_a_forgotten_move_are_named),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_master_is_looked_at),
        cmocka_unit_test(a_slot_in_mid_move_is_counted_once),
        cmocka_unit_test(keys_that_move_meanwhile_are_found),
        cmocka_unit_test(hashes_and_sorted_sets_are_compared_where_they_are),
        cmocka_unit_test(a_move_that_begins_meanwhile_is_told),
        cmocka_unit_test(keys_of_a_forgotten_move_are_named),
        cmocka_unit_test(an_engines_ledgers_are_compared_wherever_they_are),
        cmocka_unit_test(an_engine_audits_its_cluster),
        cmocka_unit_test(the_documented_permissions_suffice),
        cmocka_unit_test(a_master_that_is_away_makes_it_incomplete),
    };
    static const char *const options[] = {"--cluster-require-full-coverage", "no", NULL};
    redis_server_require();
    redis_cluster_start(&cluster, MASTERS, 0, options);
    redis_cluster_url(&cluster, url, sizeof url);
    int failed = test_scale(1) > 1 ? test_run_list(longer) : test_run_list(tests);
    redis_cluster_destroy(&cluster);
    return failed;
}
