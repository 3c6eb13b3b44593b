/* refusals.c -- a real Redis that refuses: at each of its refusals the batch waits and a line says so; afterwards
 * everything is counted once. (In network_faults.c the proxy sends the same errors; here the server does.)
 * Covers: sync/message/refusal.c, sync/wire/fnv.h. */
#include "tests/redis/redis_rig.h"
#include "tests/support/side_by_side.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void rig_open(struct rig *rig, const char *const *extra) {
    tw_options options;
    memset(rig, 0, sizeof *rig);
    redis_server_start(&rig->server, extra);
    rig_options(rig, &options, rig->server.url);
    options.redis_timeout_ms = 300;
    rig_start(rig, &options);
}

/* Checks that nothing is written while Redis refuses, and that adds go on. */
static void rig_is_refused(struct rig *rig) {
    int64_t before = rig->added;
    for (int i = 0; i < 3; i++) {
        rig_add(rig, 100);
        assert_status(tw_flush(rig->engine, 100), TW_ERR_TIMEOUT);
    }
    assert_i64_equal(redis_server_get(&rig->server, "f:k"), before);
}

static void rig_close(struct rig *rig, const char *says) {
    assert_true(test_wait(is_flushed, rig->engine, TEST_PATIENCE_MS));
    rig_check(rig, &rig->server);
    assert_status(tw_close(rig->engine, TEST_PATIENCE_MS), TW_OK);
    if (!strstr(rig->lines.text, says)) fail_msg("\"%s\" is not in the log:\n%s", says, rig->lines.text);
    redis_server_destroy(&rig->server);
}

/* Goal: a primary that becomes a replica refuses; promoted again it gets everything (fault 24: READONLY, MASTERDOWN).
 * Method: REPLICAOF a port where nobody answers, so its data stay. */
TEST(a_replica_refuses_until_it_is_promoted) {
    static const char *const stale[][2] = {{"yes", "READONLY"}, {"no", "MASTERDOWN"}};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig;
        rig_open(&rig, NULL);
        rig_add_flushed(&rig, 1);
        redis_server_ask(&rig.server, "CONFIG", "SET", "replica-serve-stale-data", stale[i][0], NULL);
        redis_server_ask(&rig.server, "REPLICAOF", "127.0.0.1", "1", NULL);
        for (int n = 0; n < 3; n++) {
            rig_add(&rig, 10);
            assert_status(tw_flush(rig.engine, 100), TW_ERR_TIMEOUT);
        }
        redis_server_ask(&rig.server, "REPLICAOF", "NO", "ONE", NULL);
        rig_close(&rig, stale[i][1]);
    }
}

static bool save_has_failed(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "persistence", NULL), "rdb_last_bgsave_status:err") != NULL;
}

static bool save_is_well(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "persistence", NULL), "rdb_last_bgsave_status:ok") != NULL;
}

/* Goal: a Redis that cannot save its snapshot refuses writes; when it can, everything is counted (fault 24: MISCONF).
 * Method: a folder has the name of the snapshot. */
TEST(a_server_that_cannot_save_refuses) {
    struct rig rig;
    char path[160];
    rig_open(&rig, NULL);
    rig_add_flushed(&rig, 1);
    snprintf(path, sizeof path, "%s/dump.rdb", rig.server.folder);
    assert_int_equal(mkdir(path, 0700), 0);
    redis_server_ask(&rig.server, "CONFIG", "SET", "save", "3600 1", NULL);
    redis_server_ask(&rig.server, "BGSAVE", NULL);
    assert_true(test_wait(save_has_failed, &rig.server, TEST_PATIENCE_MS));
    rig_is_refused(&rig);
    assert_int_equal(rmdir(path), 0);
    redis_server_ask(&rig.server, "BGSAVE", NULL);
    assert_true(test_wait(save_is_well, &rig.server, TEST_PATIENCE_MS));
    rig_close(&rig, "MISCONF");
}

/* Goal: out of memory or short of replicas, over and over: nothing is written until it may be, and then once (faults
 * 23, 24). Method: another client fills the server up to maxmemory under noeviction, and then it gets room. */
TEST(a_server_without_memory_refuses) {
    struct rig rig;
    rig_open(&rig, NULL);
    rig_add_flushed(&rig, 1);
    redis_server_ask(&rig.server, "CONFIG", "SET", "maxmemory-policy", "noeviction", NULL);
    redis_server_ask(&rig.server, "CONFIG", "SET", "maxmemory", "100kb", NULL);
    rig_is_refused(&rig);
    redis_server_ask(&rig.server, "CONFIG", "SET", "maxmemory", "0", NULL);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    if (redis_server_is_at_least(7, 0)) {
        redis_server_ask(&rig.server, "CONFIG", "SET", "min-replicas-to-write", "2", NULL);
        rig_is_refused(&rig);
        redis_server_ask(&rig.server, "CONFIG", "SET", "min-replicas-to-write", "0", NULL);
    } else {
        test_leave_out("before Redis 7, min-replicas-to-write does not concern scripts: install Redis 7");
    }
    assert_i64_equal(test_stat_of(rig.engine, disconnects), 0);
    rig_close(&rig, "OOM");
}

/* Goal: while Redis loads its data it answers LOADING, and nothing is taken for lost (fault 24). Method: 400 keys are
 * loaded at 3 ms each; the engine sends meanwhile. */
TEST(a_server_that_loads_is_waited_for) {
    static const char *const slowly[] = {"--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024",
                                         NULL};
    struct rig rig;
    if (!redis_server_is_at_least(7, 0)) {
        test_leave_out("before Redis 7, no client is answered while so small a file is loaded: install Redis 7");
        return;
    }
    rig_open(&rig, slowly);
    redis_server_ask(&rig.server, "EVAL",
                     "for i = 1, 400 do redis.call('SET', 'other:' .. i, string.rep('x', 200)) end", "0", NULL);
    rig_add_flushed(&rig, 1);
    redis_server_ask(&rig.server, "SAVE", NULL);
    redis_server_kill(&rig.server);
    rig_add(&rig, 10);
    redis_server_restart(&rig.server); /* returns when the server answers */
    rig_add(&rig, 100);
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), 0);
    rig_close(&rig, "LOADING");
}

static void run_script_beside(struct redis_server *server, const char *script, pid_t *pid) {
    *pid = test_fork();
    assert_true(*pid >= 0);
    if (*pid != 0) return;
    redis_server_ask(server, "EVAL", script, "0", NULL);
    _exit(0);
}

static bool is_busy(void *ctx) {
    return strncmp(redis_server_ask(ctx, "PING", NULL), "BUSY", 4) == 0;
}

/* Goal: another client's script keeps Redis busy, is killed, or cannot be killed because it has written: no count is
 * doubled (fault 25: BUSY, UNKILLABLE). */
TEST(a_busy_server_is_waited_for) {
    static const char *const scripts[] = {
        "while true do end",
        "redis.call('SET', 'written', '1') local n = 0 while n < 150000000 do n = n + 1 end return n"};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig;
        pid_t pid;
        int status;
        rig_open(&rig, NULL);
        rig_add_flushed(&rig, 1);
        redis_server_ask(&rig.server, "CONFIG", "SET", "lua-time-limit", "50", NULL);
        run_script_beside(&rig.server, scripts[i], &pid);
        assert_true(test_wait(is_busy, &rig.server, TEST_PATIENCE_MS));
        rig_add(&rig, 10);
        (void)tw_flush(rig.engine, 400);
        const char *said = redis_server_ask(&rig.server, "SCRIPT", "KILL", NULL);
        if (i == 1) assert_true(strncmp(said, "UNKILLABLE", 10) == 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        rig_close(&rig, "BUSY");
    }
}

/* Goal: counters of a wrong type and sums that would overflow are poison keys: they wait alone, whatever they hold
 * (faults 27, 28). Method: a list, a set, a hash, a text, both ends of the range; then they are repaired. */
TEST(keys_of_every_wrong_kind_wait_alone) {
    static const char *const make[][4] = {{"RPUSH", "f:list", "x", NULL},
                                          {"SADD", "f:set", "x", NULL},
                                          {"HSET", "f:hash", "x", "1"},
                                          {"SET", "f:text", "a text", NULL},
                                          {"SET", "f:max", "9223372036854775807", NULL},
                                          {"SET", "f:float", "1.5", NULL}};
    static const char *const keys[] = {"list", "set", "hash", "text", "max", "float"};
    struct rig rig;
    rig_open(&rig, NULL);
    rig_add_flushed(&rig, 1);
    for (size_t i = 0; i < 6; i++) redis_server_ask(&rig.server, make[i][0], make[i][1], make[i][2], make[i][3], NULL);
    for (size_t i = 0; i < 6; i++) assert_status(tw_add(rig.family, tw_str(keys[i]), 7, NULL), TW_OK);
    rig_add(&rig, 1000);
    assert_status(tw_flush(rig.engine, 10000), TW_ERR_REDIS);
    assert_i64_equal(redis_server_get(&rig.server, "f:k"), rig.added);
    assert_i64_equal(test_stat_of(rig.engine, poison_keys), 6);
    for (size_t i = 0; i < 6; i++) redis_server_ask(&rig.server, "DEL", make[i][1], NULL);
    assert_true(test_wait(is_flushed, rig.engine, TEST_PATIENCE_MS));
    for (size_t i = 0; i < 6; i++) assert_i64_equal(redis_server_get(&rig.server, make[i][1]), 7);
    rig_close(&rig, "Redis refuses the key f:");
}

/* Puts a key of another type in the place of a key of the engine. */
static void overwrite(struct rig *rig, const char *pattern, char name[128]) {
    static const char set[] = "local k = redis.call('KEYS', ARGV[1])[1] redis.call('SET', k, 'x') return k";
    snprintf(name, 128, "%s", redis_server_ask(&rig->server, "EVAL", set, "0", pattern, NULL));
    assert_non_null(strstr(name, "tw:"));
}

static size_t lines_with(const struct log_lines *lines, const char *part) {
    size_t count = 0;
    for (const char *at = lines->text; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
    return count;
}

/* Goal: a ledger that was overwritten by a key of another type counts as a lost ledger (R11). The batch that met it was
 * certainly not applied: it goes on under a new ledger at once, and nothing is uncertain. The foreign key stays as it
 * is. */
TEST(a_ledger_that_was_overwritten_makes_nothing_uncertain) {
    struct rig rig;
    char name[128];
    rig_open(&rig, NULL);
    for (int i = 0; i < 3; i++) {
        rig_add_flushed(&rig, 5);
        overwrite(&rig, "tw:ledger:*", name);
        rig_add_flushed(&rig, 7);
        assert_string_equal(redis_server_ask(&rig.server, "GET", name, NULL), "x");
        assert_string_equal(redis_server_ask(&rig.server, "PTTL", name, NULL), "-1");
        redis_server_ask(&rig.server, "DEL", name, NULL);
    }
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 0);
    tw_stats stats;
    tw_stats_read(rig.engine, &stats);
    assert_non_null(strstr(stats.last_error, "overwritten"));
    rig_close(&rig, "does not know this engine");
    assert_int_equal(lines_with(&rig.lines, "WRONGTYPE"), 0);
}

/* Goal: a ledger whose numbers somebody else has written counts as a lost ledger, and never stops the engine: another
 * instance begins, one line names the key, and every unit is counted once. Method: each value of the first field is
 * written to a ledger in use, then more is counted. */
TEST(a_ledger_with_spoilt_numbers_stops_nothing) {
    static const char *const values[][2] = {{"n", "abc"},
                                            {"n", "99999"},
                                            {"n", "1"},
                                            {"n", ""},
                                            {"n", "1.5"},
                                            {"n", "-3"},
                                            {"n", "1e5"},
                                            {"n", "0x10"},
                                            {"n", "007"},
                                            {"n", "inf"},
                                            {"n", "nan"},
                                            {"n", " 4"},
                                            {"v", "abc"},
                                            {"n", "99999999999999999999999999"},
                                            {"p", "junk"},
                                            {"m", "-1"},
                                            {"0", "x"},
                                            {"1", "9 9"},
                                            {"2", "9999999999999999 f +"}};
    static const char set[] = "local k = redis.call('KEYS', 'tw:ledger:*') "
                              "for i = 1, #k do redis.call('HSET', k[i], ARGV[1], ARGV[2]) end return k[1]";
    struct rig rig;
    rig_open(&rig, NULL);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        rig_add_flushed(&rig, 5);
        redis_server_ask(&rig.server, "EVAL", set, "0", values[i][0], values[i][1], NULL);
        for (int n = 0; n < 3; n++) rig_add_flushed(&rig, 7);
    }
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 0);
    rig_close(&rig, "(tw:ledger:");
    assert_int_equal(lines_with(&rig.lines, "not understood"), 0);
}

/* Goal: a marker that was overwritten stops nothing: each unit is counted once, one line names the key, the foreign key
 * stays as it is; and a ledger that is lost while the marker is foreign makes counts uncertain, never double. Method:
 * the marker is overwritten; then the ledger is deleted as well, and then the foreign key. */
TEST(a_marker_that_was_overwritten_stops_nothing) {
    struct rig rig;
    char name[128];
    rig_open(&rig, NULL);
    rig_add_flushed(&rig, 5);
    overwrite(&rig, "tw:marker", name);
    for (int i = 0; i < 5; i++) rig_add_flushed(&rig, 7);
    assert_i64_equal(test_stat_of(rig.engine, disconnects), 0);
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 0);
    assert_i64_equal(redis_server_get(&rig.server, "f:k"), rig.added);
    assert_string_equal(redis_server_ask(&rig.server, "GET", "tw:marker", NULL), "x");
    redis_server_ask(&rig.server, "EVAL",
                     "for _, k in ipairs(redis.call('KEYS', 'tw:ledger:*')) do redis.call('DEL', k) end", "0", NULL);
    rig_add_flushed(&rig, 11);
    assert_i64_equal(redis_server_get(&rig.server, "f:k"), rig.added);
    redis_server_ask(&rig.server, "DEL", "tw:marker", NULL);
    for (int i = 0; i < 3; i++) rig_add_flushed(&rig, 13);
    assert_i64_equal(redis_server_get(&rig.server, "f:k"), rig.added);
    assert_string_equal(redis_server_ask(&rig.server, "TYPE", "tw:marker", NULL), "hash");
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    assert_int_equal(lines_with(&rig.lines, "tw:marker"), 1);
    redis_server_destroy(&rig.server);
}

/* Goal: whatever stands in the fields of the marker, an engine opens its ledger and counts. */
TEST(a_marker_with_spoilt_fields_stops_nothing) {
    static const char *const values[] = {"abc", "", "1e400", "-9223372036854775808", "9999999999999999999999"};
    static const char set[] = "local all = redis.call('HKEYS', 'tw:marker') all[#all + 1] = 'c' all[#all + 1] = 'k' "
                              "for i = 1, #all do redis.call('HSET', 'tw:marker', all[i], ARGV[1]) end "
                              "redis.call('HSET', 'tw:marker', string.rep('a', 32), ARGV[1]) "
                              "if ARGV[2] then for _, k in ipairs(redis.call('KEYS', 'tw:ledger:*')) do "
                              "redis.call('DEL', k) end end";
    struct rig rig;
    rig_open(&rig, NULL);
    for (size_t i = 0; i < 2 * sizeof values / sizeof *values; i++) {
        rig_add_flushed(&rig, 5);
        redis_server_ask(&rig.server, "EVAL", set, "0", values[i / 2], i % 2 != 0 ? "lose" : NULL, NULL);
        for (int n = 0; n < 3; n++) rig_add_flushed(&rig, 7);
        assert_i64_equal(redis_server_get(&rig.server, "f:k"), rig.added);
    }
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    assert_int_equal(lines_with(&rig.lines, "not understood"), 0);
    redis_server_destroy(&rig.server);
}

/* Goal: counts that Redis refuses until the engine is closed are lost as refused, not as uncertain: their outcome was
 * never in doubt (R11). */
TEST(what_is_refused_to_the_end_is_lost_as_refused) {
    struct redis_server server;
    struct lost lost = {0};
    tw_options options;
    tw_engine *engine;
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.on_lost = on_lost;
    options.lost_ctx = &lost;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    redis_server_ask(&server, "LPUSH", "f:k", "x", NULL);
    assert_status(tw_add(family, tw_str("k"), 10, NULL), TW_OK);
    assert_status(tw_flush(engine, 10000), TW_ERR_REDIS);
    assert_status(tw_add(family, tw_str("k"), 5, NULL), TW_OK);
    assert_status(tw_close(engine, 400), TW_ERR_TIMEOUT); /* tried once during it, then only a second later */
    assert_i64_equal(lost.by_reason[TW_LOST_POISON], 15);
    assert_i64_equal(lost.by_reason[TW_LOST_UNCERTAIN] + lost.by_reason[TW_LOST_CLOSED], 0);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
