/* sentinel_tls.c -- sentinels and a master that speak TLS: both connections are verified, each by itself.
 * Method: one real sentinel that watches a master's TLS port over TLS, and has a TLS port of its own. */
#include "tests/redis/sync_support.h"
#include "tests/support/authority.h"

static struct scene {
    struct authority authority, stranger; /* the stranger has issued nothing here */
    struct issued files;
    struct redis_server master, sentinel;
    const char *extra[12];
    char url[128];
} scene;

/* False: a port was taken meanwhile. */
static bool start_sentinel(void) {
    char lines[1024];
    int tls_port = redis_server_free_port();
    snprintf(lines, sizeof lines,
             "tls-port %d\n"
             "tls-cert-file %s\n"
             "tls-key-file %s\n"
             "tls-ca-cert-file %s\n"
             "tls-auth-clients no\n"
             "tls-replication yes\n"
             "sentinel monitor shop 127.0.0.1 %d 1\n",
             tls_port, scene.files.cert_file, scene.files.key_file, scene.authority.ca_file, scene.master.tls_port);
    snprintf(scene.url, sizeof scene.url, "rediss+sentinel://127.0.0.1:%d/shop", tls_port);
    if (redis_server_start_sentinel(&scene.sentinel, redis_server_free_port(), lines)) return true;
    redis_server_destroy(&scene.sentinel);
    return false;
}

static int scene_begin(void **state) {
    authority_make(&scene.authority);
    authority_make(&scene.stranger);
    scene.files = authority_issue(&scene.authority, "server", &(struct certificate_wish){0});
    const char *const extra[] = {"--tls-cert-file",
                                 scene.files.cert_file,
                                 "--tls-key-file",
                                 scene.files.key_file,
                                 "--tls-ca-cert-file",
                                 scene.authority.ca_file,
                                 "--tls-auth-clients",
                                 "no",
                                 NULL};
    memcpy(scene.extra, extra, sizeof extra);
    redis_server_start_tls(&scene.master, scene.extra);
    for (int tries = 0; !start_sentinel(); tries++)
        if (tries == 4) fail_msg("the sentinel does not answer");
    return 0;
}

static int scene_end(void **state) {
    redis_server_destroy(&scene.sentinel);
    redis_server_destroy(&scene.master);
    authority_destroy(&scene.authority);
    authority_destroy(&scene.stranger);
    return 0;
}

static tw_engine *open_with(const char *ca_file, struct log_lines *lines) {
    tw_options options;
    tw_engine *engine = NULL;
    quick_options(&options, scene.url);
    options.redis_tls_ca_file = ca_file;
    options.log_write = on_log;
    options.log_ctx = lines;
    assert_status(test_open(&options, &engine), TW_OK);
    return engine;
}

TEST(the_master_is_found_and_counted_in_over_tls) {
    struct log_lines lines = {0};
    tw_engine *engine = open_with(scene.authority.ca_file, &lines);
    tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
    for (int i = 0; i < 1000; i++) assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&scene.master, "f:k"), 1000);
    assert_i64_equal(test_stat_of(engine, tls_refused), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: a sentinel that cannot be verified is not trusted: nothing reaches a server that it could name. */
TEST(a_sentinel_that_cannot_be_verified_is_not_believed) {
    struct log_lines lines = {0};
    tw_engine *engine = open_with(scene.stranger.ca_file, &lines);
    tw_family *family = family_of(engine, "g", TW_WINDOW_FOREVER, 0);
    assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
    for (int64_t end_ms = test_mono_ms() + 20000; atomic_load(&lines.count) == 0; test_sleep_ms(2))
        if (test_mono_ms() > end_ms) fail_msg("no line comes");
    assert_non_null(strstr(lines.text, "sentinel 127.0.0.1:"));
    assert_i64_equal(redis_server_get(&scene.master, "g:k"), 0);
    (void)tw_close(engine, 0);
}

int main(void) {
    redis_server_require();
    return test_run_with(scene_begin, scene_end);
}
