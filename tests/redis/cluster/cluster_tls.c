/* cluster_tls.c -- a real cluster whose nodes speak TLS, to each other and to clients. Their certificate has names of
 * hosts, while the cluster names its nodes by address: so every node is verified under one name
 * (redis_tls_server_name), or refused.
 *
 * Always true: no data is sent to a node that was not verified. */
#include "tests/redis/cluster/cluster_support.h"
#include "tests/support/authority.h"

#define NAMES "DNS:*.cache.example"
#define NAME "node.cache.example"

static struct scene {
    struct authority authority, next; /* the next one takes over in the middle */
    struct issued files;
    const char *extra[16];
} scene;

static int begin(void **state) {
    authority_make(&scene.authority);
    authority_make(&scene.next);
    scene.files = authority_issue(&scene.authority, "server", &(struct certificate_wish){.names = NAMES});
    const char *const extra[] = {"--tls-cluster",
                                 "yes",
                                 "--tls-auth-clients",
                                 "no",
                                 "--tls-cert-file",
                                 scene.files.cert_file,
                                 "--tls-key-file",
                                 scene.files.key_file,
                                 "--tls-ca-cert-file",
                                 scene.authority.ca_file,
                                 NULL};
    memcpy(scene.extra, extra, sizeof extra);
    redis_cluster_start(&cluster, CLUSTER_MASTERS, 0, scene.extra);
    return 0;
}

static int end(void **state) {
    redis_cluster_destroy(&cluster);
    authority_destroy(&scene.authority);
    authority_destroy(&scene.next);
    return 0;
}

static void believe(tw_options *options) {
    options->redis_tls_ca_file = scene.authority.ca_file;
}

static void believe_under_one_name(tw_options *options) {
    believe(options);
    options->redis_tls_server_name = NAME;
}

/* The text of the audit's error; "": it went well. */
static const char *audit(const char *server_name, tw_audit_report *report) {
    static char error[256];
    char url[512];
    tw_audit_options options;
    redis_cluster_url(&cluster, url, sizeof url);
    tw_audit_options_init(&options);
    options.redis_url = url;
    options.redis_tls_ca_file = scene.authority.ca_file;
    options.redis_tls_server_name = server_name;
    options.error_text = error;
    options.error_size = sizeof error;
    error[0] = '\0';
    tw_status status = tw_audit(NULL, &options, NULL, NULL, report);
    assert_int_equal(status == TW_OK, error[0] == '\0');
    return error;
}

static int64_t keys_in_all(void) {
    int64_t keys = 0;
    for (size_t i = 0; i < CLUSTER_MASTERS; i++)
        keys += atoll(redis_server_ask(redis_cluster_server(&cluster, i), "DBSIZE", NULL));
    return keys;
}

static bool has_line(void *ctx) {
    return atomic_load(&rig.lines.count) > 0;
}

/* Goal: certificates that do not name the address are refused, at every node, with a line that has both names. */
TEST(a_certificate_of_another_name_is_refused) {
    tw_audit_report report;
    cluster_open_engine("refused", believe);
    cluster_add_all(1);
    assert_true(test_wait(has_line, NULL, TEST_PATIENCE_MS));
    assert_status(tw_flush(rig.engine, 500), TW_ERR_TIMEOUT);
    assert_true(test_stat_of(rig.engine, tls_refused) > 0);
    assert_i64_equal(test_stat_of(rig.engine, redis_nodes), 0);
    assert_i64_equal(test_stat_of(rig.engine, connects), 0);
    (void)tw_close(rig.engine, 0);
    assert_non_null(strstr(rig.lines.text, "TLS: "));
    assert_non_null(strstr(rig.lines.text, "is for *.cache.example, not for 127.0.0.1"));
    assert_non_null(strstr(audit(NULL, &report), "is for *.cache.example, not for 127.0.0.1"));
    assert_i64_equal(keys_in_all(), 0);
}

/* Goal: under their one name all nodes are verified, those too that only the map or a redirect has named. Counts, calls
 * that wait and an audit go through; a slot moves. */
TEST(one_name_verifies_all_nodes) {
    tw_audit_report report;
    tw_family *strict;
    tw_family_options options;
    uint32_t slot = cluster_slot_of_tag(3);
    size_t home = cluster.owners[slot];
    cluster_open_engine("verified", believe_under_one_name);
    for (int round = 0; round < 3; round++) {
        cluster_add_all(1);
        assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
        if (round == 0) redis_cluster_move(&cluster, slot, slot, (home + 1) % CLUSTER_MASTERS);
    }
    cluster_assert_sums();
    assert_i64_equal(test_stat_of(rig.engine, redis_nodes), CLUSTER_MASTERS);
    assert_true(test_stat_of(rig.engine, moved) > 0);
    tw_family_options_init(&options);
    options.name = "asked";
    options.window = TW_WINDOW_FOREVER;
    options.limit_mode = TW_LIMIT_STRICT;
    options.redis_tags = CLUSTER_TAGS;
    assert_status(tw_family_open(rig.engine, &options, &strict), TW_OK);
    for (int i = 0; i < 40; i++) {
        char key[16];
        tw_verdict verdict;
        snprintf(key, sizeof key, "k%d", i % 20);
        assert_status(tw_acquire(strict, tw_str(key), 1, 2, &verdict), TW_OK);
        assert_int_equal(verdict.decided_by, TW_BY_REDIS);
    }
    assert_string_equal(audit(NAME, &report), "");
    assert_true(report.ledgers >= CLUSTER_TAGS);
    assert_i64_equal(test_stat_of(rig.engine, tls_refused), 0);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
    redis_cluster_move(&cluster, slot, slot, home);
}

static void copy_file(const char *from, const char *to) {
    char text[16384];
    FILE *file = fopen(from, "re");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    file = fopen(to, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    fclose(file);
}

/* Goal: another authority takes over while an engine runs: at its next connects it trusts the new one, and counts
 * continue. Method: nodes read their new certificates, and end all connections. */
TEST(a_new_authority_is_believed_at_the_next_connects) {
    cluster_open_engine("renewed", believe_under_one_name);
    cluster_add_all(1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    int64_t connects = test_stat_of(rig.engine, connects);
    struct issued files =
        authority_issue(&scene.next, "server", &(struct certificate_wish){.names = NAMES, .common_name = "renewed"});
    copy_file(files.cert_file, scene.files.cert_file);
    copy_file(files.key_file, scene.files.key_file);
    copy_file(scene.next.ca_file, scene.authority.ca_file);
    for (size_t i = 0; i < CLUSTER_MASTERS; i++) {
        struct redis_server *server = redis_cluster_server(&cluster, i);
        assert_string_equal(redis_server_ask(server, "CONFIG", "SET", "tls-cert-file", scene.files.cert_file,
                                             "tls-key-file", scene.files.key_file, "tls-ca-cert-file",
                                             scene.authority.ca_file, NULL),
                            "OK");
        redis_server_ask(server, "CLIENT", "KILL", "TYPE", "normal", NULL);
    }
    cluster_add_all(1);
    assert_status(tw_flush(rig.engine, TEST_PATIENCE_MS), TW_OK);
    cluster_assert_sums();
    assert_i64_equal(test_stat_of(rig.engine, connects), connects + CLUSTER_MASTERS);
    assert_i64_equal(test_stat_of(rig.engine, redis_nodes), CLUSTER_MASTERS);
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

int main(void) {
    redis_server_require();
    return test_run_with(begin, end);
}
