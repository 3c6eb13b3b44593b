/* replicas.c -- wait_replicas, with a real replica: a flush is done when the replica has the counts, and what it lacks
 * is kept.
 * Always true: adds never wait, whatever the replica does; at the end sums agree.
 * Covers: sync/message/message.c. */
#include "tests/redis/redis_rig.h"
#include "tests/support/side_by_side.h"

#include <unistd.h>

#define PATIENCE_MS 20000 /* time that a busy machine may need; an idle one needs far less */

static bool follows(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "replication", NULL), "master_link_status:up") != NULL;
}

static bool is_online(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "replication", NULL), "state=online") != NULL;
}

static void rig_open(struct rig *rig, void (*change)(tw_options *options)) {
    char port[16];
    tw_options options;
    memset(rig, 0, sizeof *rig);
    redis_server_start_tcp(&rig->server, NULL);
    redis_server_start_tcp(&rig->replica, NULL);
    rig->proxy = proxy_start(&rig->server, test_seed());
    snprintf(port, sizeof port, "%d", rig->server.port);
    redis_server_ask(&rig->server, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
    redis_server_ask(&rig->replica, "REPLICAOF", "127.0.0.1", port, NULL);
    assert_true(test_wait(follows, &rig->replica, PATIENCE_MS));
    assert_true(test_wait(is_online, &rig->server, PATIENCE_MS));
    rig_options(rig, &options, proxy_url(rig->proxy));
    options.wait_replicas = 1;
    if (change) change(&options);
    rig_start(rig, &options);
}

static bool primary_has_all(void *ctx) {
    struct rig *rig = ctx;
    return redis_server_get(&rig->server, "f:k") == rig->added;
}

static bool replica_has_all(void *ctx) {
    struct rig *rig = ctx;
    return redis_server_get(&rig->replica, "f:k") == rig->added;
}

static int64_t short_before; /* how often replicas were short */
static bool replicas_are_short(void *ctx) {
    struct rig *rig = ctx;
    return test_stat_of(rig->engine, replicas_short) > short_before;
}

static bool is_dup(void *ctx) {
    struct rig *rig = ctx;
    return test_stat_of(rig->engine, batches_dup) > 0;
}

/* Checks, however slow the machine is, that Redis has the counts, the replica cannot have them, and no flush returns
 * TW_OK. */
static void assert_no_flush_is_done(struct rig *rig) {
    assert_true(test_wait(primary_has_all, rig, PATIENCE_MS));
    assert_status(tw_flush(rig->engine, 300), TW_ERR_TIMEOUT);
}

static void rig_close(struct rig *rig) {
    (void)tw_close(rig->engine, 1000);
    proxy_stop(rig->proxy);
    redis_server_destroy(&rig->server), redis_server_destroy(&rig->replica);
}

/* Goal: counts are on the replica when a flush returns TW_OK. While the replica is stopped no flush does, counting
 * continues, and one line says so. Method: a replica is stopped and let go. */
TEST(a_flush_is_done_when_the_replica_has_it) {
    struct rig rig;
    rig_open(&rig, NULL);
    for (int i = 0; i < 20; i++) {
        rig_add(&rig, 1 + i);
        assert_status(tw_flush(rig.engine, PATIENCE_MS), TW_OK);
        assert_i64_equal(redis_server_get(&rig.replica, "f:k"), rig.added);
    }
    short_before = test_stat_of(rig.engine, replicas_short); /* a busy machine may need more than one try */
    redis_server_pause(&rig.replica);
    for (int i = 0; i < 3; i++) {
        rig_add(&rig, 1000);
        assert_no_flush_is_done(&rig);
    }
    assert_true(test_wait(replicas_are_short, &rig, PATIENCE_MS));
    assert_i64_equal(test_stat_of(rig.engine, breaker_state), 0); /* Redis answers, so it is no outage */
    redis_server_resume(&rig.replica);
    assert_status(tw_flush(rig.engine, PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&rig.replica, "f:k"), rig.added);
    assert_i64_equal(test_stat_of(rig.engine, disconnects), 0);
    assert_status(tw_close(rig.engine, 1000), TW_OK);
    assert_non_null(strstr(rig.lines.text, "1/21 0 replicas have what Redis at"));
    assert_non_null(strstr(rig.lines.text,
                           " acknowledged; wait_replicas asks for 1 [TW-E021: bring the replicas back, or "
                           "lower wait_replicas]\n2/21 1 replicas have what Redis at"));
    assert_non_null(strstr(rig.lines.text, " acknowledged, as wait_replicas asks [TW-E021]\n"));
    proxy_stop(rig.proxy);
    redis_server_destroy(&rig.server), redis_server_destroy(&rig.replica);
}

static void impatient(tw_options *options) {
    options->redis_timeout_ms = 200;
}

/* Goal: a DUP on a new connection proves nothing about the replicas: as far as Redis's manual promises, WAIT covers
 * what its own connection has written. Method: the replica is stopped, the reply is lost, the batch is sent again. */
TEST(a_dup_is_no_proof_that_the_replica_has_it) {
    struct rig rig;
    rig_open(&rig, impatient);
    rig_add(&rig, 1);
    assert_status(tw_flush(rig.engine, PATIENCE_MS), TW_OK);
    redis_server_pause(&rig.replica);
    proxy_order(rig.proxy, &(struct proxy_order){.fault = PROXY_DROP_REPLY});
    rig_add(&rig, 10);
    assert_true(test_wait(is_dup, &rig, PATIENCE_MS));
    assert_no_flush_is_done(&rig);
    redis_server_resume(&rig.replica);
    assert_status(tw_flush(rig.engine, PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&rig.replica, "f:k"), 11);
    rig_close(&rig);
}

static void short_window(tw_options *options) {
    options->replay_ms = 1;
    options->redis_timeout_ms = 200;
}

/* Goal: batches that the replica lacks stay in the replay buffer however old they are, so a failover to it loses
 * nothing (P4 depends on it). Method: a window of 1 ms; ten batches that the replica does not see; it is promoted. */
TEST(what_the_replica_lacks_is_sent_again_however_old) {
    struct rig rig;
    rig_open(&rig, short_window);
    rig_add(&rig, 1);
    assert_status(tw_flush(rig.engine, PATIENCE_MS), TW_OK);
    redis_server_pause(&rig.replica);
    redis_server_ask(&rig.server, "CLIENT", "KILL", "TYPE", "replica", NULL);
    int64_t until_ok = test_stat_of(rig.engine, batches_ok) + 10, until_ms = test_mono_ms() + PATIENCE_MS;
    for (int i = 0; test_stat_of(rig.engine, batches_ok) < until_ok; i++, test_sleep_ms(10)) {
        rig_add(&rig, 100 + i);
        assert_true(test_mono_ms() < until_ms);
    }
    redis_server_kill(&rig.server);
    redis_server_resume(&rig.replica);
    redis_server_ask(&rig.replica, "REPLICAOF", "NO", "ONE", NULL);
    assert_i64_equal(redis_server_get(&rig.replica, "f:k"), 1);
    proxy_lead_to(rig.proxy, &rig.replica);
    proxy_cut_all(rig.proxy);
    assert_true(test_wait(replica_has_all, &rig, PATIENCE_MS));
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), 1);
    assert_i64_equal(test_stat_of(rig.engine, lost), 0);
    rig_close(&rig);
}

static void small_window(tw_options *options) {
    options->replay_bytes_max = 256 << 10;
    options->redis_timeout_ms = 200; /* a WAIT delays what is behind it by half of that */
}

static void add_to_many(struct rig *rig) {
    char key[16];
    for (int i = 0; i < 1000; i++, rig->added++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_status(tw_add(rig->family, tw_str(key), 1, NULL), TW_OK);
    }
}

/* True if no data was sent for half a second, while counts came all the time. */
static bool nothing_was_sent(void *ctx) {
    struct rig *rig = ctx;
    int64_t sent = test_stat_of(rig->engine, batches_sent);
    for (int round = 0; round < 25; round++, test_sleep_ms(20)) {
        add_to_many(rig);
        if (test_stat_of(rig->engine, batches_sent) != sent) return false;
    }
    return true;
}

/* Goal: while the replica is unreachable the window fills, and then nothing more is sent: counts wait in their
 * counters, memory is bounded (P6), and everything arrives when the replica is back. */
TEST(a_full_window_holds_back_what_is_new) {
    struct rig rig;
    rig_open(&rig, small_window);
    rig_add(&rig, 1);
    assert_status(tw_flush(rig.engine, PATIENCE_MS), TW_OK);
    redis_server_pause(&rig.replica);
    int64_t sent = test_stat_of(rig.engine, batches_sent);
    assert_true(test_wait(nothing_was_sent, &rig, PATIENCE_MS));
    assert_true(test_stat_of(rig.engine, batches_sent) > sent); /* sent before the window was full */
    assert_true(sum_of(&rig.server, "f:*") < rig.added);
    redis_server_resume(&rig.replica);
    assert_status(tw_flush(rig.engine, PATIENCE_MS), TW_OK);
    assert_i64_equal(sum_of(&rig.replica, "f:*"), rig.added);
    rig_close(&rig);
}

static void as_small_user(tw_options *options) {
    static char url[256];
    snprintf(url, sizeof url, "redis://small:pw@%s", options->redis_url + strlen("redis://"));
    options->redis_url = url;
}

/* Goal: if WAIT is forbidden, one line says so; counts reach Redis, and no flush reports that they are on a replica. */
TEST(where_wait_is_forbidden_nothing_is_promised) {
    struct rig rig;
    rig_open(&rig, as_small_user); /* the user does not exist yet. The engine tries again, slowly */
    redis_server_ask(&rig.server, "ACL", "SETUSER", "small", "on", ">pw", "~*", "+@all", "-wait", NULL);
    rig_add(&rig, 5);
    assert_no_flush_is_done(&rig);
    redis_server_ask(&rig.server, "ACL", "SETUSER", "small", "+wait", NULL);
    assert_status(tw_flush(rig.engine, PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&rig.replica, "f:k"), 5);
    assert_status(tw_close(rig.engine, 1000), TW_OK);
    assert_non_null(strstr(rig.lines.text, "refuses WAIT, which wait_replicas needs: NOPERM"));
    proxy_stop(rig.proxy);
    redis_server_destroy(&rig.server), redis_server_destroy(&rig.replica);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
