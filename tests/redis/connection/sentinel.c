/* sentinel.c -- Redis behind real sentinels: it is found through them, and a failover under load loses and doubles
 * nothing that is not reported.
 * Method: a master, a replica, three sentinels (sentinel_stage.h); the master is killed with -9 while an engine counts,
 * and comes back as a replica.
 * Covers: sync/wire/wire.c. */
#include "tests/redis/connection/sentinel_stage.h"

#include <poll.h>

#define KEYS 20
#define FAILOVER_MS 20000

static struct sentinel_stage stage;

static struct scene {
    struct lost lost;
    struct log_lines lines;
    tw_engine *engine;
    tw_family *family, *strict;
    int64_t added;
} scene;

static tw_family *strict_family(tw_engine *engine) {
    tw_family_options options = plain_family_options("strict", TW_WINDOW_FOREVER, 0);
    options.limit_mode = TW_LIMIT_STRICT;
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    return opened_family(engine, options);
}

static char password[] = "hush", wrong_password[] = "wrongsecret";

static int give_password(void *ctx, char *out, size_t size) {
    return snprintf(out, size, "%s", (const char *)ctx);
}

/* `name`: of the family; each test counts in one of its own. */
static void begin(const char *name, uint32_t wait_replicas) {
    tw_options options;
    memset(&scene, 0, sizeof scene);
    quick_options(&options, stage.url);
    options.wait_replicas = wait_replicas;
    if (redis_server_is_at_least(6, 2)) { /* before, sentinels have no users */
        options.sentinel_user = "watcher";
        options.sentinel_password = give_password;
        options.sentinel_password_ctx = password;
    }
    options.on_lost = on_lost;
    options.lost_ctx = &scene.lost;
    options.log_write = on_log;
    options.log_ctx = &scene.lines;
    assert_status(tw_open(&options, &scene.engine), TW_OK);
    scene.family = family_of(scene.engine, name, TW_WINDOW_FOREVER, 0);
    scene.strict = strict_family(scene.engine);
}

static void end(void) {
    assert_status(tw_close(scene.engine, TEST_PATIENCE_MS), TW_OK);
}

/* A load for that time, or (`until`) until that is true. */
static void load(int64_t ms, bool (*until)(struct sentinel_stage *stage)) {
    char key[16];
    int64_t deadline_ms = test_mono_ms() + ms, look_ms = 0;
    for (int i = 0; test_mono_ms() < deadline_ms; i++) {
        snprintf(key, sizeof key, "k%d", i % KEYS);
        assert_status(tw_add(scene.family, tw_str(key), 1, NULL), TW_OK);
        scene.added++;
        if (i % 10 == 0) test_sleep_ms(1);
        if (until == NULL || test_mono_ms() < look_ms) continue;
        if (until(&stage)) return;
        look_ms = test_mono_ms() + 50;
    }
    if (until != NULL) fail_msg("no failover in time");
}

/* How many failovers: some four seconds each. */
static uint64_t rounds(void) {
    return test_scale(1) > 1 ? 2 : 1;
}

static void fail_over_under_load(void) {
    load(200, NULL);
    redis_server_kill(&stage.data[stage.master]);
    load(FAILOVER_MS, stage_has_failed_over);
    stage_rejoin(&stage);
    load(200, NULL);
}

static int64_t in_redis(const char *pattern) {
    return sum_of(&stage.data[stage.master], pattern);
}

static int64_t units_of(int reason) {
    return scene.lost.by_reason[reason];
}

/* Goal: the master is found through sentinels, and after a failover with a replica in sync the sums are exact: each
 * count is in Redis once (P2). Calls that wait, and audits, find the new master, too. */
TEST(a_failover_with_a_replica_in_sync_is_exact) {
    tw_audit_options audit;
    tw_audit_report report;
    begin("synced", 1);
    assert_status(tw_flush(scene.engine, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_acquire(scene.strict, tw_str("k"), 1, 3, NULL), TW_OK);
    for (uint64_t round = 0; round < rounds(); round++) {
        fail_over_under_load();
        assert_status(tw_flush(scene.engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(in_redis("synced:*"), scene.added);
    }
    assert_i64_equal(test_stat_of(scene.engine, lost), 0);
    assert_i64_equal(test_stat_of(scene.engine, uncertain), 0);
    assert_status(tw_acquire(scene.strict, tw_str("k"), 3, 3, NULL), TW_DENIED);
    assert_status(tw_acquire(scene.strict, tw_str("k"), 2, 3, NULL), TW_OK);
    tw_audit_options_init(&audit);
    assert_status(tw_audit(scene.engine, &audit, NULL, NULL, &report), TW_OK);
    assert_true(report.ledgers >= 1);
    audit.redis_url = stage.url;
    assert_status(tw_audit(NULL, &audit, NULL, NULL, &report), TW_OK);
    assert_true(report.ledgers >= 1);
    end();
}

/* Goal: without wait_replicas, too, what a failover loses is sent again as far as the replay window reaches, and what
 * is not made good is reported: Redis has what was added, but for what was reported as lost or uncertain. */
TEST(what_a_failover_loses_is_made_good_or_reported) {
    begin("behind", 0);
    for (uint64_t round = 0; round < rounds(); round++) {
        fail_over_under_load();
        assert_status(tw_flush(scene.engine, TEST_PATIENCE_MS), TW_OK);
        int64_t uncertain = test_stat_of(scene.engine, uncertain);
        int64_t missing = scene.added - in_redis("behind:*") - test_stat_of(scene.engine, lost);
        assert_true(missing >= -uncertain && missing <= uncertain);
    }
    end();
    assert_i64_equal(units_of(TW_LOST_CLOSED), 0);
}

/* Goal: an engine without a thread finds the master, too, by tw_fd() and tw_timeout_ms() alone, and without turning in
 * between: a busy loop would make thousands of turns. One of the sentinels is given by name. */
TEST(a_host_driven_engine_finds_the_master) {
    tw_options options;
    tw_engine *engine;
    tw_reading reading;
    int turns = 0;
    char url[300];
    int head = (int)(strchr(stage.url, ',') - stage.url), at = head + 1 + (int)strlen("127.0.0.1");
    snprintf(url, sizeof url, "%.*s,localhost%s", head, stage.url, stage.url + at);
    quick_options(&options, url);
    options.threads = TW_HOST_DRIVEN;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "driven", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 7, NULL), TW_OK);
    for (int64_t end_ms = test_mono_ms() + 10000;;) {
        uint32_t wait_ms = tw_timeout_ms(engine);
        struct pollfd fd = {.fd = tw_fd(engine), .events = POLLIN};
        (void)poll(&fd, 1, wait_ms > 50 ? 50 : (int)wait_ms);
        assert_status(tw_turn(engine), TW_OK);
        turns++;
        assert_status(tw_read(family, tw_str("k"), &reading), TW_OK);
        if (reading.unsent == 0) break;
        if (test_mono_ms() > end_ms) fail_msg("the count does not arrive");
    }
    assert_i64_equal(redis_server_get(&stage.data[stage.master], "driven:k"), 7);
    assert_true(turns < 500);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

static bool has_line(void *ctx) {
    struct log_lines *lines = ctx;
    return atomic_load(&lines->count) != 0;
}

/* A line comes, and no other one. */
static void assert_one_line(struct log_lines *lines) {
    assert_true(test_wait(has_line, lines, TEST_PATIENCE_MS));
    test_sleep_ms(300); /* some rounds of questions */
    assert_int_equal(atomic_load(&lines->count), 1);
}

/* Goal: a refused login of the sentinels is an outage with one line, without the password. */
TEST(a_refused_login_of_the_sentinels_is_an_outage_of_one_line) {
    tw_options options;
    struct log_lines lines = {0};
    tw_engine *engine;
    if (!redis_server_is_at_least(6, 2)) {
        test_leave_out("before Redis 6.2, sentinels have no users: install Redis 6.2");
        return;
    }
    quick_options(&options, stage.url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    options.sentinel_user = "watcher";
    options.sentinel_password = give_password;
    options.sentinel_password_ctx = wrong_password;
    assert_status(tw_open(&options, &engine), TW_OK);
    assert_one_line(&lines);
    assert_non_null(strstr(lines.text, "refuses the login: WRONGPASS"));
    assert_null(strstr(lines.text, "secret"));
    (void)tw_close(engine, 0);
}

/* Goal: a name that no sentinel knows is an outage with one line that says so; counting goes on. */
TEST(an_unknown_name_is_an_outage_of_one_line) {
    tw_options options;
    char url[300];
    struct log_lines lines = {0};
    tw_engine *engine;
    snprintf(url, sizeof url, "%.*s/nobody", (int)(strlen(stage.url) - strlen("/" MASTER_NAME)), stage.url);
    quick_options(&options, url);
    options.log_write = on_log;
    options.log_ctx = &lines;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family *family = family_of(engine, "g", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_one_line(&lines);
    assert_non_null(strstr(lines.text, "the master nobody"));
    assert_non_null(strstr(lines.text, "knows no master of that name"));
    (void)tw_close(engine, 0);
}

static int stage_up(void **state) {
    stage_begin(&stage);
    return 0;
}

static int stage_down(void **state) {
    stage_end(&stage);
    return 0;
}

int main(void) {
    redis_server_require();
    return test_run_with(stage_up, stage_down);
}
