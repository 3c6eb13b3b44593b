/* lost_data.c -- a real Redis forgets: it is killed under each kind of persistence, its file is cut, a stale or empty
 * replica is promoted. The engine sends again what Redis forgot; what it cannot send again is counted as lost, exactly.
 * Always true: at the end of each test, Redis's sum plus what the metrics report as lost is the sum of all
 * increments. */
#include "tests/redis/redis_rig.h"
#include "tests/support/side_by_side.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const always[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
static const char *const everysec[] = {"--appendonly", "yes", "--appendfsync", "everysec", NULL};
/* A server that does not rewrite its file, whoever requests it. */
static const char *const unrewritten[] = {
    "--appendonly", "yes", "--appendfsync", "always", "--rename-command", "BGREWRITEAOF", "", NULL};

static void rig_open(struct rig *rig, const char *url) {
    tw_options options;
    memset(rig, 0, sizeof *rig);
    rig_options(rig, &options, url);
    rig_start(rig, &options);
}

/* ---- persistence ------------------------------------------------------------------------------------------------- */

static void killed_at_random(const char *const *persistence, bool saves) {
    struct redis_server server;
    struct rig rig;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    redis_server_start(&server, persistence);
    rig_open(&rig, server.url);
    rig_add_flushed(&rig, 1);
    for (int round = 0; round < 4; round++) {
        uint64_t save_at = test_prng_below(&prng, 60);
        for (uint64_t i = 0, n = 40 + test_prng_below(&prng, 80); i < n; i++, test_sleep_ms(1)) {
            rig_add(&rig, test_prng_between(&prng, 1, 1000));
            if (saves && i == save_at) redis_server_ask(&server, "SAVE", NULL);
        }
        redis_server_kill(&server);
        for (int i = 0; i < 20; i++) rig_add(&rig, 1);
        redis_server_restart(&server);
    }
    rig_check(&rig, &server);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: kill -9 of a Redis that syncs each write, or leaves writing to the system, loses nothing (fault 13). */
TEST(a_killed_append_only_server_forgets_nothing) {
    killed_at_random(always, false);
    killed_at_random(everysec, false);
}

/* Goal: after kill -9 of a Redis that keeps snapshots, or nothing, what it forgot is sent again (fault 13). */
TEST(a_killed_server_that_forgets_is_given_it_again) {
    killed_at_random(NULL, true);
    killed_at_random(NULL, false);
}

/* Cuts `bytes` off the append-only file that grows. */
static void cut_tail(const struct redis_server *server, off_t bytes) {
    char pattern[160];
    glob_t found;
    struct stat info;
    snprintf(pattern, sizeof pattern, "%s/appendonlydir/*.incr.aof", server->folder);
    if (glob(pattern, 0, NULL, &found) != 0) { /* before Redis 7 it was one file */
        snprintf(pattern, sizeof pattern, "%s/appendonly.aof", server->folder);
        assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    }
    const char *path = found.gl_pathv[found.gl_pathc - 1];
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size > bytes);
    assert_int_equal(truncate(path, info.st_size - bytes), 0);
    globfree(&found);
}

/* Stops the registry's heartbeats for half a minute, so that the last batch is the end of the file. A restart of the
 * server forgets it. */
static void without_registry(struct redis_server *server) {
    redis_server_ask(server, "ACL", "SETUSER", "default", "-zadd", NULL);
}

static bool is_rewritten(void *ctx) {
    const char *info = redis_server_ask(ctx, "INFO", "persistence", NULL);
    return strstr(info, "aof_rewrite_in_progress:0") && strstr(info, "aof_rewrite_scheduled:0");
}

/* Goal: an append-only file that lost its last bytes makes Redis go back; what it forgot is sent again. After the file
 * is rewritten, a clean restart keeps the sum (faults 14, 15). Method: cuts of 1 byte to some batches, seeded. */
TEST(a_torn_append_only_file_is_made_good) {
    struct redis_server server;
    struct rig rig;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    redis_server_start(&server, always);
    without_registry(&server);
    rig_open(&rig, server.url);
    for (int i = 0; i < 5; i++) rig_add_flushed(&rig, 1);
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 5; i++) rig_add_flushed(&rig, test_prng_between(&prng, 1, 1000));
        redis_server_kill(&server);
        cut_tail(&server, round == 0 ? 1 : test_prng_between(&prng, 1, 900)); /* a batch is some 300 bytes */
        redis_server_restart(&server);
        without_registry(&server);
        rig_check(&rig, &server);
        rig_add_flushed(&rig, 1);
        assert_true(test_stat_of(rig.engine, rollbacks) >= round + 1);
        redis_server_ask(&server, "BGREWRITEAOF", NULL);
        assert_true(test_wait(is_rewritten, &server, TEST_PATIENCE_MS));
        redis_server_stop(&server);
        redis_server_restart(&server);
        without_registry(&server);
        rig_check(&rig, &server);
    }
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: the limit of P2 that docs state is real: without the rewrite, Redis itself counts the rest of the torn
 * transaction at its next restart (fault 16). If a server no longer does, the warning may go. Method: EXEC is torn, so
 * the file is cut inside the transaction; the EXEC of the batch that is sent again later runs both. */
TEST(redis_counts_a_torn_transaction_twice_if_not_rewritten) {
    struct redis_server server;
    struct rig rig;
    redis_server_start(&server, unrewritten);
    bool known = strstr(redis_server_ask(&server, "INFO", "server", NULL), "redis_version:7.0.") != NULL;
    without_registry(&server);
    rig_open(&rig, server.url);
    rig_add_flushed(&rig, 1);
    rig_add_flushed(&rig, 1000);
    redis_server_kill(&server);
    cut_tail(&server, 5);
    redis_server_restart(&server);
    rig_check(&rig, &server); /* still right */
    assert_true(test_stat_of(rig.engine, rollbacks) >= 1);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_stop(&server);
    redis_server_restart(&server);
    int64_t after = redis_server_get(&server, "f:k");
    print_message("# 1001 counted, %lld after a clean restart\n", (long long)after);
    if (known) assert_i64_equal(after, 2001);
    redis_server_destroy(&server);
}

/* ---- failover ---------------------------------------------------------------------------------------------------- */

static bool follows(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "replication", NULL), "master_link_status:up") != NULL;
}

static bool has_one(void *ctx) {
    return redis_server_get(ctx, "f:k") == 10;
}

/* Goal: a replica that has not seen the last 150 acknowledged batches is promoted, and gets them again (fault 17).
 * Method: the replica is stopped and its link killed; 150 batches; the primary is killed, the replica goes on alone. */
TEST(a_stale_replica_is_given_what_it_missed) {
    struct redis_server primary, replica;
    struct rig rig;
    char port[16];
    redis_server_start_tcp(&primary, NULL);
    redis_server_start_tcp(&replica, NULL);
    struct proxy *proxy = proxy_start(&primary, test_seed());
    snprintf(port, sizeof port, "%d", primary.port);
    redis_server_ask(&primary, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
    redis_server_ask(&replica, "REPLICAOF", "127.0.0.1", port, NULL);
    assert_true(test_wait(follows, &replica, TEST_PATIENCE_MS));
    rig_open(&rig, proxy_url(proxy));
    rig_add_flushed(&rig, 10);
    assert_true(test_wait(has_one, &replica, TEST_PATIENCE_MS));
    redis_server_pause(&replica);
    redis_server_ask(&primary, "CLIENT", "KILL", "TYPE", "replica", NULL);
    int64_t before = test_stat_of(rig.engine, batches_ok);
    for (int i = 0; i < 150; i++) rig_add_flushed(&rig, i + 1);
    assert_true(test_stat_of(rig.engine, batches_ok) - before >= 150);
    assert_i64_equal(redis_server_get(&primary, "f:k"), rig.added);
    redis_server_kill(&primary);
    redis_server_resume(&replica);
    redis_server_ask(&replica, "REPLICAOF", "NO", "ONE", NULL);
    assert_i64_equal(redis_server_get(&replica, "f:k"), 10);
    proxy_lead_to(proxy, &replica);
    proxy_cut_all(proxy);
    rig_add(&rig, 7);
    rig_check(&rig, &replica);
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), 1);
    assert_true(test_stat_of(rig.engine, batches_ok) - before >= 301);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
    redis_server_destroy(&primary), redis_server_destroy(&replica);
}

/* Goal: an empty server takes the place of the one that counted, and later gives it back. Each time all of it is
 * counted (fault 18). */
TEST(an_empty_server_is_given_everything) {
    struct redis_server first, empty;
    struct rig rig;
    redis_server_start(&first, NULL);
    redis_server_start(&empty, NULL);
    struct proxy *proxy = proxy_start(&first, test_seed());
    rig_open(&rig, proxy_url(proxy));
    for (int i = 0; i < 20; i++) rig_add_flushed(&rig, i + 1);
    proxy_lead_to(proxy, &empty);
    proxy_cut_all(proxy);
    rig_add(&rig, 7);
    rig_check(&rig, &empty);
    redis_server_ask(&empty, "FLUSHALL", NULL);
    rig_add(&rig, 70);
    rig_check(&rig, &empty);
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), 2);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    proxy_stop(proxy);
    redis_server_destroy(&first), redis_server_destroy(&empty);
}

/* ---- beyond the window ------------------------------------------------------------------------------------------- */

/* Goal: what Redis forgot beyond the replay buffer is counted as lost, exactly (fault 19). Method: 2 MiB of memory
 * leave a window of 256 KiB; the 40 batches of 1000 keys since the snapshot are far more. */
TEST(what_is_beyond_the_window_is_counted_to_the_unit) {
    struct redis_server server;
    tw_options options;
    tw_engine *engine;
    char name[32];
    int64_t added = 0;
    redis_server_start(&server, NULL);
    quick_options(&options, server.url);
    options.memory_bytes_max = 2 << 20;
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 1000; i++) {
            snprintf(name, sizeof name, "k%d", i);
            assert_status(tw_add(family, tw_str(name), i + 1 + round, NULL), TW_OK);
            added += i + 1 + round;
        }
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        if (round == 3) redis_server_ask(&server, "SAVE", NULL);
    }
    assert_i64_equal(sum_of(&server, "f:*"), added);
    redis_server_kill(&server);
    redis_server_restart(&server);
    assert_status(tw_add(family, tw_str("k0"), 1, NULL), TW_OK);
    (void)tw_flush(engine, 20000);
    int64_t lost = test_stat_of(engine, lost);
    assert_i64_equal(sum_of(&server, "f:*") + lost, added + 1);
    assert_i64_equal(test_stat_of(engine, rollbacks), 1);
    assert_i64_equal(test_stat_of(engine, uncertain), 0);
    assert_true(lost > 0);
    (void)tw_close(engine, 5000);
    redis_server_destroy(&server);
}

/* Goal: after a ledger expired while nothing was in flight, counting starts again without losses (fault 22). */
TEST(an_expired_ledger_is_a_clean_start) {
    struct redis_server server;
    struct rig rig;
    redis_server_start(&server, NULL);
    rig_open(&rig, server.url);
    for (int i = 0; i < 5; i++) {
        rig_add_flushed(&rig, 1);
        redis_server_ask(&server, "EVAL",
                         "for _, k in ipairs(redis.call('KEYS', 'tw:ledger:*')) do redis.call('PEXPIRE', k, 1) end",
                         "0", NULL);
        test_sleep_ms(5);
    }
    rig_add(&rig, 1);
    rig_check(&rig, &server);
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), 0);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
