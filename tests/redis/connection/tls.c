/* tls.c -- a real Redis that speaks TLS: counting, asking, auditing; what is refused, and in which words; certificates
 * that change; cuts in the middle of anything. */
#include "tests/redis/redis_rig.h"
#include "tests/support/authority.h"
#include "tests/support/relay.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sync/wire/tls.h"

#define PASSWORD "one-secret-for-all"

struct scene {
    struct authority authority;
    struct issued server_files, client;
    struct redis_server server;
    const char *extra[24];
    char url[128];
    tw_engine *engine;
    tw_family *family;
    struct log_lines lines;
    struct lost lost;
    int64_t added;
};

static bool wants_client; /* the next server asks for certificates */

/* A server with this certificate, and an authority. */
static void scene_begin(struct scene *scene, const struct certificate_wish *wish) {
    memset(scene, 0, sizeof *scene);
    authority_make(&scene->authority);
    scene->server_files = authority_issue(&scene->authority, "server", wish);
    scene->client = authority_issue(&scene->authority, "client", &(struct certificate_wish){.common_name = "us"});
    const char *const extra[] = {"--tls-cert-file",
                                 scene->server_files.cert_file,
                                 "--tls-key-file",
                                 scene->server_files.key_file,
                                 "--tls-ca-cert-file",
                                 scene->authority.ca_file,
                                 "--tls-auth-clients",
                                 wants_client ? "yes" : "no",
                                 "--user",
                                 "counter",
                                 "on",
                                 ">" PASSWORD,
                                 "~*",
                                 "+@all",
                                 redis_server_is_at_least(6, 2) ? "&*" : NULL,
                                 NULL};
    memcpy(scene->extra, extra, sizeof extra);
    redis_server_start_tls(&scene->server, scene->extra);
    snprintf(scene->url, sizeof scene->url, "rediss://counter:" PASSWORD "@127.0.0.1:%d", scene->server.tls_port);
}

static tw_options scene_options(struct scene *scene, const char *url) {
    tw_options options;
    quick_options(&options, url);
    options.redis_tls_ca_file = scene->authority.ca_file;
    options.log_write = on_log;
    options.log_ctx = &scene->lines;
    options.on_lost = on_lost;
    options.lost_ctx = &scene->lost;
    return options;
}

static void scene_open(struct scene *scene, const tw_options *options) {
    assert_status(test_open(options, &scene->engine), TW_OK);
    scene->family = family_of(scene->engine, "f", TW_WINDOW_FOREVER, 0);
}

static void scene_add(struct scene *scene, int64_t delta) {
    assert_status(tw_add(scene->family, tw_str("k"), delta, NULL), TW_OK);
    scene->added += delta;
}

static void scene_check(struct scene *scene) {
    assert_status(tw_flush(scene->engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&scene->server, "f:k"), scene->added);
    assert_i64_equal(test_stat_of(scene->engine, lost), 0);
    assert_i64_equal(test_stat_of(scene->engine, uncertain), 0);
}

static void scene_close(struct scene *scene) {
    assert_status(tw_close(scene->engine, TEST_PATIENCE_MS), TW_OK);
    scene->engine = NULL;
}

static void scene_end(struct scene *scene) {
    if (scene->engine) scene_close(scene);
    assert_null(strstr(scene->lines.text, PASSWORD));
    redis_server_destroy(&scene->server);
    authority_destroy(&scene->authority);
}

/* Waits until the log has so many lines. */
static void await_lines(struct scene *scene, int count) {
    for (int64_t end_ms = test_mono_ms() + 20000; atomic_load(&scene->lines.count) < count; test_sleep_ms(2))
        if (test_mono_ms() > end_ms) fail_msg("no line comes: %s", scene->lines.text);
}

/* ---- counting, asking, auditing ---------------------------------------------------------------------------------- */

TEST(counts_calls_and_audits_go_through_tls) {
    struct scene scene;
    scene_begin(&scene, &(struct certificate_wish){0});
    tw_options options = scene_options(&scene, scene.url);
    options.redis_timeout_ms = TEST_PATIENCE_MS; /* each call waits for its answer */
    scene_open(&scene, &options);
    tw_family_options strict;
    tw_family *asked;
    tw_family_options_init(&strict);
    strict.name = "s";
    strict.window = TW_WINDOW_FOREVER;
    strict.limit_mode = TW_LIMIT_STRICT;
    strict.on_outage = TW_OUTAGE_FAIL_CLOSED;
    assert_status(tw_family_open(scene.engine, &strict, &asked), TW_OK);
    tw_verdict verdict;
    for (int call = 1; call <= 20; call++) { /* one link; the calls after the first find it standing */
        assert_status(tw_acquire(asked, tw_str("k"), 1, 20, &verdict), TW_OK);
        assert_int_equal(verdict.decided_by, TW_BY_REDIS);
        assert_i64_equal(verdict.used, call);
    }
    assert_status(tw_acquire(asked, tw_str("k"), 1, 20, &verdict), TW_DENIED);
    assert_i64_equal(test_stat_of(scene.engine, ask_connects), 1);
    for (int i = 0; i < 5000; i++) {
        char key[32];
        snprintf(key, sizeof key, "many-%d", i);
        assert_status(tw_add(scene.family, tw_str(key), 3, NULL), TW_OK);
    }
    scene_add(&scene, 41);
    scene_check(&scene);
    assert_i64_equal(sum_of(&scene.server, "f:*"), 3 * 5000 + 41);
    assert_i64_equal(test_stat_of(scene.engine, tls_refused), 0);
    tw_audit_options audit;
    tw_audit_report report;
    char error[256] = "";
    tw_audit_options_init(&audit);
    audit.error_text = error;
    audit.error_size = sizeof error;
    assert_status(tw_audit(scene.engine, &audit, NULL, NULL, &report), TW_OK);
    assert_i64_equal(report.ledgers, 1);
    audit.redis_url = scene.url;
    audit.redis_tls_ca_file = scene.authority.ca_file;
    assert_status(tw_audit(scene.engine, &audit, NULL, NULL, &report), TW_ERR_OPTIONS);
    assert_status(tw_audit(NULL, &audit, NULL, NULL, &report), TW_OK);
    assert_i64_equal(report.ledgers, 1);
    audit.redis_tls_ca_file = NULL;
    assert_status(tw_audit(NULL, &audit, NULL, NULL, &report), TW_ERR_REDIS);
    assert_non_null(strstr(error, "Redis: TLS: no authority that is believed"));
    scene_end(&scene);
}

/* Goal: a host that waits as the header says gets its counts through, and is not woken in vain all the time. Method:
 * poll() as long as tw_timeout_ms() says; a busy loop would make many more turns. */
TEST(a_host_drives_an_engine_through_tls) {
    struct scene scene;
    scene_begin(&scene, &(struct certificate_wish){0});
    tw_options options = scene_options(&scene, scene.url);
    options.threads = TW_HOST_DRIVEN;
    scene_open(&scene, &options);
    int turns = 0;
    for (int round = 0; round < 5; round++) {
        scene_add(&scene, 100 + round);
        while (redis_server_get(&scene.server, "f:k") != scene.added) {
            assert_status(tw_turn(scene.engine), TW_OK);
            uint32_t wait_ms = tw_timeout_ms(scene.engine);
            struct pollfd fd = {.fd = tw_fd(scene.engine), .events = POLLIN};
            (void)poll(&fd, 1, wait_ms > 50 ? 50 : (int)wait_ms);
            if (++turns > 3000) fail_msg("%d turns, and not done", turns);
        }
    }
    scene_check(&scene);
    scene_end(&scene);
}

TEST(a_second_connection_resumes_the_session) {
    struct scene scene;
    char error[TWI_TLS_ERROR_MAX], got[64];
    scene_begin(&scene, &(struct certificate_wish){0});
    struct twi_tls *tls =
        twi_tls_create(&(struct twi_tls_options){.ca_file = scene.authority.ca_file}, error, sizeof error);
    assert_non_null(tls);
    struct twi_endpoint endpoint = {.is_tls = true, .port = (uint16_t)scene.server.tls_port, .host = "127.0.0.1"};
    void *link = twi_tls_transport.create(tls, -1);
    for (int i = 0; i < 3; i++) {
        int done = 0;
        for (int64_t end_ms = test_mono_ms() + 10000; done == 0 && test_mono_ms() < end_ms; test_sleep_ms(1))
            done = twi_tls_transport.connect(link, &endpoint, test_mono_ms(), end_ms);
        assert_int_equal(done, 1);
        assert_int_equal(twi_tls_transport.send(link, "PING\r\n", 6), 6);
        ssize_t size = 0;
        for (int64_t end_ms = test_mono_ms() + 10000; size == 0 && test_mono_ms() < end_ms; test_sleep_ms(1))
            size = twi_tls_transport.recv(link, got, sizeof got);
        assert_int_equal(size, 7);
        assert_memory_equal(got, "+PONG\r\n", 7);
        twi_tls_transport.close(link);
    }
    assert_i64_equal(twi_tls_counts(tls).handshakes, 3);
    assert_i64_equal(twi_tls_counts(tls).resumed, 2);
    twi_tls_transport.destroy(link);
    twi_tls_destroy(tls);
    scene_end(&scene);
}

/* Goal: rediss+sentinel:// speaks TLS to the sentinel, and to the master that it names. Method: the sentinel names the
 * master's port with TLS; its own port without TLS is not in the URL. */
TEST(a_sentinel_and_the_master_that_it_names_are_spoken_to_in_tls) {
    struct scene scene;
    struct redis_server sentinel;
    char lines[1024], url[256];
    scene_begin(&scene, &(struct certificate_wish){0});
    int tls_port = 0;
    bool answers = false;
    for (int tries = 0; tries < 5 && !answers; tries++) {
        tls_port = redis_server_free_port();
        snprintf(lines, sizeof lines,
                 "tls-port %d\ntls-replication yes\ntls-auth-clients no\ntls-cert-file %s\ntls-key-file %s\n"
                 "tls-ca-cert-file %s\nsentinel monitor m 127.0.0.1 %d 1\n",
                 tls_port, scene.server_files.cert_file, scene.server_files.key_file, scene.authority.ca_file,
                 scene.server.tls_port);
        answers = redis_server_start_sentinel(&sentinel, redis_server_free_port(), lines);
        if (!answers) redis_server_destroy(&sentinel);
    }
    assert_true(answers);
    snprintf(url, sizeof url, "rediss+sentinel://counter:" PASSWORD "@127.0.0.1:%d/m", tls_port);
    tw_options options = scene_options(&scene, url);
    scene_open(&scene, &options);
    scene_add(&scene, 17);
    scene_check(&scene);
    tw_audit_report report;
    tw_audit_options audit;
    tw_audit_options_init(&audit);
    assert_status(tw_audit(scene.engine, &audit, NULL, NULL, &report), TW_OK);
    assert_i64_equal(test_stat_of(scene.engine, tls_refused), 0);
    scene_close(&scene);
    redis_server_destroy(&sentinel);
    scene_end(&scene);
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

/* Such a server is refused: one line of the event TW_EVENT_TLS, with these words, and nothing was said to it. */
static void expect_refusal(const struct certificate_wish *wish, const char *words) {
    struct scene scene;
    tw_stats stats;
    scene_begin(&scene, wish);
    tw_options options = scene_options(&scene, scene.url);
    scene_open(&scene, &options);
    scene_add(&scene, 5);
    await_lines(&scene, 1);
    assert_status(tw_flush(scene.engine, 0), TW_ERR_TIMEOUT);
    assert_status(tw_stats_read(scene.engine, &stats), TW_OK);
    assert_true(stats.tls_refused > 0);
    assert_memory_equal(stats.last_error, "TLS: ", 5);
    assert_i64_equal(stats.connects, 0);
    (void)tw_close(scene.engine, 0);
    scene.engine = NULL;
    char head[160];
    snprintf(head, sizeof head, "%d/%d no connection to Redis at 127.0.0.1:%d: TLS: ", TW_LOG_ERROR, TW_EVENT_TLS,
             scene.server.tls_port);
    assert_memory_equal(scene.lines.text, head, strlen(head));
    if (!strstr(scene.lines.text, words)) fail_msg("no '%s' in: %s", words, scene.lines.text);
    assert_null(strstr(redis_server_ask(&scene.server, "INFO", "commandstats", NULL), "cmdstat_auth"));
    scene_end(&scene);
}

TEST(wrong_certificates_are_refused_with_a_clear_line) {
    expect_refusal(&(struct certificate_wish){.names = "DNS:redis.example"}, "is for redis.example, not for 127.0.0.1");
    expect_refusal(&(struct certificate_wish){.since_s = -7200, .until_s = -60},
                   "of localhost, 127.0.0.1 expired at 20");
    expect_refusal(&(struct certificate_wish){.is_self_signed = true}, "of localhost, 127.0.0.1 is self-signed");
    wants_client = true;
    expect_refusal(&(struct certificate_wish){0}, "Redis wants a client certificate (redis_tls_cert_file");
    wants_client = false;
}

/* Goal: rediss:// never becomes redis://, whoever answers. */
TEST(a_port_without_tls_hears_no_command) {
    struct scene scene;
    scene_begin(&scene, &(struct certificate_wish){0});
    char url[128];
    snprintf(url, sizeof url, "rediss://counter:" PASSWORD "@127.0.0.1:%d", scene.server.port);
    tw_options options = scene_options(&scene, url);
    options.redis_timeout_ms = 20;
    scene_open(&scene, &options);
    scene_add(&scene, 5);
    await_lines(&scene, 1);
    (void)tw_close(scene.engine, 0);
    scene.engine = NULL;
    assert_null(strstr(redis_server_ask(&scene.server, "INFO", "commandstats", NULL), "cmdstat_auth"));
    assert_i64_equal(redis_server_get(&scene.server, "f:k"), 0);
    scene_end(&scene);
}

static void expect_options(tw_options *options, const char *text) {
    char error[256] = "";
    tw_engine *engine = NULL;
    options->error_text = error;
    options->error_size = sizeof error;
    assert_status(tw_open(options, &engine), TW_ERR_OPTIONS);
    assert_string_equal(error, text);
}

TEST(options_that_do_not_fit_are_refused_by_name) {
    tw_options options;
    quick_options(&options, "redis://127.0.0.1:1");
    options.redis_tls_ca_file = "ca.pem";
    expect_options(&options, "redis_tls_ca_file: needs a redis_url that begins with rediss");
    quick_options(&options, "unix:///tmp/x");
    options.redis_tls_insecure = 1;
    expect_options(&options, "redis_tls_insecure: needs a redis_url that begins with rediss");
    quick_options(&options, "rediss://127.0.0.1:1");
    options.redis_tls_ca_file = "/nowhere/ca.pem";
    expect_options(&options, "redis_tls_ca_file: No such file or directory");
    quick_options(&options, "rediss://127.0.0.1:1");
    options.redis_tls_insecure = 2;
    expect_options(&options, "redis_tls_insecure: 2 is neither 0 nor 1");
}

/* ---- certificates that change ------------------------------------------------------------------------------------ */

/* Goal: an expired certificate of ours is replaced while the engine runs; nobody opens it anew. */
TEST(a_new_client_certificate_is_taken_without_a_restart) {
    struct scene scene;
    wants_client = true;
    scene_begin(&scene, &(struct certificate_wish){0});
    wants_client = false;
    authority_issue(&scene.authority, "client", &(struct certificate_wish){.since_s = -7200, .until_s = -60});
    tw_options options = scene_options(&scene, scene.url);
    options.redis_tls_cert_file = scene.client.cert_file;
    options.redis_tls_key_file = scene.client.key_file;
    scene_open(&scene, &options);
    scene_add(&scene, 7);
    await_lines(&scene, 1);
    authority_issue(&scene.authority, "client", &(struct certificate_wish){0});
    scene_check(&scene); /* the flush cuts the back-off short */
    assert_i64_equal(test_stat_of(scene.engine, redis_connected), 1);
    scene_close(&scene);
    assert_non_null(strstr(scene.lines.text, "Redis says that our certificate has expired"));
    scene_end(&scene);
}

TEST(insecure_is_said_at_the_connect) {
    struct scene scene;
    scene_begin(&scene, &(struct certificate_wish){.is_self_signed = true});
    tw_options options = scene_options(&scene, scene.url);
    options.redis_tls_ca_file = NULL;
    options.redis_tls_insecure = 1;
    scene_open(&scene, &options);
    scene_add(&scene, 7);
    scene_check(&scene);
    scene_close(&scene);
    char head[64];
    snprintf(head, sizeof head, "%d/%d redis_tls_insecure: ", TW_LOG_WARNING, TW_EVENT_TLS);
    assert_memory_equal(scene.lines.text, head, strlen(head));
    scene_end(&scene);
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

/* Goal: P2 through TLS: whatever record, handshake or reply a cut hits, each count arrives once. Method: a relay hands
 * on small pieces and ends each connection after some thousand bytes. */
TEST(counts_are_exact_through_cuts_anywhere) {
    struct scene scene;
    scene_begin(&scene, &(struct certificate_wish){0});
    struct relay *relay = relay_start(scene.server.tls_port, test_seed());
    relay_pieces(relay, 700);
    relay_cuts(relay, 12000);
    char url[128];
    snprintf(url, sizeof url, "rediss://counter:" PASSWORD "@127.0.0.1:%d", relay_port(relay));
    tw_options options = scene_options(&scene, url);
    options.retry_max_ms = 20;
    options.sync_interval_ms = 5;
    scene_open(&scene, &options);
    int64_t others = 0, rounds = (int64_t)test_scale(60), end_ms = test_mono_ms() + 30000;
    for (int64_t round = 0; round < rounds || relay_cut_count(relay) < 5; round++) {
        assert_true(test_mono_ms() < end_ms);
        for (int i = 0; i < 50; i++) {
            char key[32];
            snprintf(key, sizeof key, "other-%d", i);
            assert_status(tw_add(scene.family, tw_str(key), 1, NULL), TW_OK);
            others++;
        }
        scene_add(&scene, round);
        test_sleep_ms(10);
    }
    relay_cuts(relay, 0);
    relay_pieces(relay, SIZE_MAX);
    scene_check(&scene);
    assert_i64_equal(sum_of(&scene.server, "f:other-*"), others);
    scene_close(&scene);
    relay_stop(relay);
    scene_end(&scene);
}

/* Goal: a network that hands over single bytes slows batches down and does nothing else. */
TEST(batches_arrive_through_a_network_of_single_bytes) {
    struct scene scene;
    scene_begin(&scene, &(struct certificate_wish){0});
    struct relay *relay = relay_start(scene.server.tls_port, test_seed());
    relay_pieces(relay, 3);
    char url[128];
    snprintf(url, sizeof url, "rediss://counter:" PASSWORD "@127.0.0.1:%d", relay_port(relay));
    tw_options options = scene_options(&scene, url);
    options.redis_timeout_ms = 10000;
    scene_open(&scene, &options);
    for (int i = 0; i < 20; i++) {
        scene_add(&scene, i);
        test_sleep_ms(5);
    }
    scene_check(&scene);
    assert_i64_equal(test_stat_of(scene.engine, disconnects), 0);
    scene_close(&scene);
    relay_stop(relay);
    scene_end(&scene);
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

/* Goal: a child begins anew, over a connection of its own; its parent's connection notices nothing. */
TEST(a_forked_child_counts_over_a_connection_of_its_own) {
    struct scene scene;
    int status;
    if (test_is_slow()) {
        test_leave_out(TEST_NO_FORK_HERE);
        return;
    }
    scene_begin(&scene, &(struct certificate_wish){0});
    tw_options options = scene_options(&scene, scene.url);
    scene_open(&scene, &options);
    for (int i = 0; i < 5; i++) {
        scene_add(&scene, 10);
        if (i % 2) assert_status(tw_flush(scene.engine, TEST_PATIENCE_MS), TW_OK);
        pid_t child = test_fork();
        if (child == 0) {
            alarm(20);
            bool good = tw_add(scene.family, tw_str("k"), 1, NULL) == TW_OK && tw_flush(scene.engine, 15000) == TW_OK &&
                        tw_close(scene.engine, 1000) == TW_OK;
            _exit(!good);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        scene.added++;
    }
    scene_check(&scene);
    assert_i64_equal(test_stat_of(scene.engine, disconnects), 0);
    scene_end(&scene);
}

int main(void) {
    redis_server_require();
    return test_run();
}
