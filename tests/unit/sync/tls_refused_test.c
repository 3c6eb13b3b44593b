/* tls_refused_test.c -- whom TLS refuses, and in which words: certificates of theirs and of ours, versions, names,
 * files. Each text is what a user reads in the log.
 * Covers: sync/wire/tls_context.c. */
#include "tests/unit/sync/tls_rig.h"

#include <sys/stat.h>

/* ---- the server's certificate ------------------------------------------------------------------------------------ */

/* The server shows such a certificate: why we refuse it. */
static const char *refused(struct tls_rig *rig, const struct certificate_wish *wish) {
    struct issued issued = authority_issue(&rig->authority, "wrong", wish);
    int64_t before = twi_tls_counts(rig->tls).refused;
    rig_server_context(rig, &issued);
    assert_int_equal(rig_connect(rig), -1);
    assert_i64_equal(twi_tls_counts(rig->tls).refused, before + 1);
    rig_close(rig);
    return rig_why(rig);
}

TEST(a_certificate_of_another_name_is_refused_by_both_names) {
    struct tls_rig rig;
    rig_make(&rig);
    assert_string_equal(
        refused(&rig, &(struct certificate_wish){.names = "DNS:*.cache.example,IP:10.0.0.7"}),
        "TLS: the certificate is for *.cache.example, 10.0.0.7, not for 127.0.0.1 (redis_tls_server_name names "
        "another)");
    strcpy(rig.endpoint.verify_name, "redis.example");
    assert_string_equal(
        refused(&rig, &(struct certificate_wish){.names = "DNS:a.example,DNS:redis.example.com"}),
        "TLS: the certificate is for a.example, redis.example.com, not for redis.example (redis_tls_server_name names "
        "another)");
    /* Without names there is the common name; bytes that could confuse a terminal are not repeated. */
    assert_non_null(strstr(refused(&rig, &(struct certificate_wish){.common_name = "a\033[2Jb", .names = ""}),
                           "has its name (a?[2Jb) as common name alone; asked for: redis.example"));
    assert_non_null(
        strstr(refused(&rig, &(struct certificate_wish){.names = "DNS:*.example,DNS:*example"}), "not for"));
    rig_unmake(&rig);
}

TEST(a_certificate_out_of_its_time_is_refused_with_the_time) {
    struct tls_rig rig;
    rig_make(&rig);
    const char *why = refused(&rig, &(struct certificate_wish){.since_s = -7200, .until_s = -3600});
    assert_non_null(strstr(why, "TLS: the certificate of localhost, 127.0.0.1 expired at 20"));
    assert_non_null(strstr(why, " UTC (asked for: 127.0.0.1)"));
    why = refused(&rig, &(struct certificate_wish){.since_s = 3600, .until_s = 7200});
    assert_non_null(strstr(why, "TLS: the certificate of localhost, 127.0.0.1 begins at 20"));
    rig_unmake(&rig);
}

TEST(a_certificate_that_nobody_believed_signed_is_refused) {
    struct tls_rig rig;
    struct authority other;
    rig_make(&rig);
    assert_string_equal(refused(&rig, &(struct certificate_wish){.is_self_signed = true}),
                        "TLS: the certificate of localhost, 127.0.0.1 is self-signed, and not in redis_tls_ca_file "
                        "(asked for: 127.0.0.1)");
    authority_make(&other);
    struct issued issued = authority_issue(&other, "server", &(struct certificate_wish){0});
    rig_server_context(&rig, &issued);
    assert_int_equal(rig_connect(&rig), -1);
    assert_string_equal(rig_why(&rig), "TLS: no authority that is believed (redis_tls_ca_file) stands behind the "
                                       "certificate of localhost, 127.0.0.1 (asked for: 127.0.0.1)");
    authority_destroy(&other);
    rig_unmake(&rig);
}

/* Goal: the system's authorities are trusted where no file is named, and none of ours is among them. */
TEST(without_a_file_the_systems_authorities_are_asked) {
    struct tls_rig rig;
    rig_begin(&rig);
    rig_make_with(&rig, &(struct twi_tls_options){.ca_file = ""});
    assert_int_equal(rig_connect(&rig), -1);
    assert_non_null(strstr(rig_why(&rig), "no authority that is believed"));
    rig_unmake(&rig);
}

/* ---- names that fit ---------------------------------------------------------------------------------------------- */

static void expect_name(struct tls_rig *rig, const char *host, const char *verify_name, const char *asked) {
    strcpy(rig->endpoint.host, host);
    strcpy(rig->endpoint.verify_name, verify_name);
    rig_connect_whole(rig);
    assert_string_equal(rig->asked_name, asked);
    rig_close(rig);
}

/* Goal: hosts and addresses are verified; a host is named to the server (SNI), an address is not. C20: one name for
 * every node of a cluster whose certificates name hosts. */
TEST(the_host_or_the_name_given_for_it_is_verified) {
    struct tls_rig rig;
    rig_begin(&rig);
    struct issued named =
        authority_issue(&rig.authority, "named", &(struct certificate_wish){.names = "DNS:cache.example,IP:127.0.0.1"});
    rig_server_context(&rig, &named);
    rig_make_with(&rig, &(struct twi_tls_options){.ca_file = rig.authority.ca_file});
    expect_name(&rig, "127.0.0.1", "", "");
    expect_name(&rig, "127.0.0.1", "cache.example", "cache.example");
    expect_name(&rig, "127.0.0.1", "cache.example.", "cache.example");
    rig_unmake_ours(&rig);
    rig_make_with(&rig, &(struct twi_tls_options){.ca_file = rig.authority.ca_file, .server_name = "cache.example"});
    expect_name(&rig, "127.0.0.1", "", "cache.example");
    rig_unmake(&rig);
}

TEST(insecure_leaves_the_certificate_unseen_and_says_so) {
    struct tls_rig rig;
    struct twi_tls_news news;
    rig_begin(&rig);
    struct issued wrong =
        authority_issue(&rig.authority, "wrong", &(struct certificate_wish){.names = "DNS:x", .is_self_signed = true});
    rig_server_context(&rig, &wrong);
    rig_make_with(&rig, &(struct twi_tls_options){.insecure = true});
    rig_connect_whole(&rig);
    assert_true(twi_tls_news(rig.tls, &news));
    assert_true(news.is_bad);
    assert_non_null(strstr(news.text, "redis_tls_insecure: Redis's certificate was not looked at"));
    assert_false(twi_tls_news(rig.tls, &news));
    rig_unmake(&rig);
}

/* ---- what the server refuses ------------------------------------------------------------------------------------- */

/* Connects, sends, and reads until the server's word comes. */
static const char *turned_away(struct tls_rig *rig) {
    char byte;
    ssize_t got = rig_connect(rig) == 1 ? 0 : -1;
    if (got == 0) (void)rig_send(rig, "AUTH secret-of-mine\r\n", 21);
    for (int steps = 0; got == 0 && steps < 1000; steps++) {
        rig_server_step(rig);
        got = rig_recv(rig, &byte, 1);
    }
    assert_int_equal(got, -1);
    assert_i64_equal(twi_tls_counts(rig->tls).refused, 1);
    return rig_why(rig);
}

TEST(a_server_that_wants_a_certificate_of_ours_says_so) {
    struct tls_rig rig;
    rig_make(&rig);
    rig_server_wants_client(&rig);
    assert_string_equal(turned_away(&rig), "TLS: Redis wants a client certificate (redis_tls_cert_file, "
                                           "redis_tls_key_file) (asked for: 127.0.0.1)");
    rig_unmake(&rig);
    rig_make(&rig);
    rig_server_wants_client(&rig);
    SSL_CTX_set_max_proto_version(rig.context, TLS1_2_VERSION);
    assert_non_null(strstr(turned_away(&rig), "TLS: Redis refuses the handshake: it may want a client certificate"));
    rig_unmake(&rig);
}

TEST(a_client_certificate_of_a_stranger_is_refused_by_the_server) {
    struct tls_rig rig;
    struct authority other;
    authority_make(&other);
    struct issued client = authority_issue(&other, "client", &(struct certificate_wish){0});
    rig_begin(&rig);
    rig_server_wants_client(&rig);
    rig_make_with(&rig, &(struct twi_tls_options){.ca_file = rig.authority.ca_file,
                                                  .cert_file = client.cert_file,
                                                  .key_file = client.key_file});
    assert_non_null(strstr(turned_away(&rig), "TLS: Redis does not know the authority of our certificate"));
    rig_unmake(&rig);
    authority_destroy(&other);
}

TEST(a_server_without_tls_is_told_from_one_with_it) {
    struct tls_rig rig;
    rig_make(&rig);
    rig.is_plain = true;
    int done = 0;
    for (int steps = 0; done == 0 && steps < 1000; steps++) {
        done = rig_connect_step(&rig);
        rig_server_step(&rig);
        if (rig.fd >= 0) (void)!send(rig.fd, "-ERR unknown command\r\n", 22, MSG_NOSIGNAL);
    }
    assert_int_equal(done, -1);
    assert_string_equal(rig_why(&rig), "TLS: what answers on this port does not speak TLS (asked for: 127.0.0.1)");
    rig_unmake(&rig);
}

/* A plain Redis takes the first bytes for a part of a command, and waits for more. */
TEST(a_server_that_waits_for_more_is_asked_whether_it_speaks_tls) {
    struct tls_rig rig;
    rig_make(&rig);
    rig.is_plain = true;
    int done = 0;
    for (int steps = 0; done == 0 && steps < 100; steps++) {
        done = rig_connect_step(&rig);
        rig_server_step(&rig);
    }
    assert_int_equal(done, 0);
    assert_int_equal(twi_tls_transport.connect(rig.link, &rig.endpoint, 2000, 2000), -1);
    assert_non_null(strstr(rig_why(&rig), "no answer to the handshake in time; does this port speak TLS?"));
    rig_unmake(&rig);
}

/* Goal: a name is verified by subjectAltName alone, as browsers do. */
TEST(a_certificate_with_a_common_name_alone_is_refused) {
    struct tls_rig rig;
    rig_begin(&rig);
    struct issued named = authority_issue(&rig.authority, "named",
                                          &(struct certificate_wish){.common_name = "cache.example", .names = ""});
    rig_server_context(&rig, &named);
    rig_make_with(&rig, &(struct twi_tls_options){.ca_file = rig.authority.ca_file, .server_name = "cache.example"});
    assert_int_equal(rig_connect(&rig), -1);
    assert_non_null(
        strstr(rig_why(&rig), "has its name (cache.example) as common name alone; asked for: cache.example"));
    rig_unmake(&rig);
}

/* Goal: a key that others may read is used, and named. */
TEST(a_key_that_others_may_read_is_named) {
    struct tls_rig rig;
    struct twi_tls_news news;
    rig_begin(&rig);
    struct issued client = authority_issue(&rig.authority, "client", &(struct certificate_wish){0});
    struct twi_tls_options options = {
        .ca_file = rig.authority.ca_file, .cert_file = client.cert_file, .key_file = client.key_file};
    rig_make_with(&rig, &options);
    assert_false(twi_tls_news(rig.tls, &news));
    rig_unmake_ours(&rig);
    assert_int_equal(chmod(client.key_file, 0644), 0);
    rig_make_with(&rig, &options);
    assert_true(twi_tls_news(rig.tls, &news));
    assert_true(news.is_bad);
    assert_string_equal(news.text, "redis_tls_key_file: others may read it (mode 0644)");
    rig_unmake(&rig);
}

TEST(what_is_older_than_tls_1_2_is_refused) {
    struct tls_rig rig;
    rig_make(&rig);
    SSL_CTX_set_cipher_list(rig.context, "DEFAULT:@SECLEVEL=0");
    SSL_CTX_set_min_proto_version(rig.context, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(rig.context, TLS1_1_VERSION);
    assert_int_equal(rig_connect(&rig), -1);
    assert_non_null(strstr(rig_why(&rig), "speaks nothing as new as TLS 1.2"));
    rig_unmake(&rig);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void expect_options(const struct twi_tls_options *options, const char *text) {
    char error[TWI_TLS_ERROR_MAX] = "";
    struct twi_tls *tls = twi_tls_create(options, error, sizeof error);
    assert_null(tls);
    if (strstr(error, text) != error) fail_msg("'%s' is not '%s...'", error, text);
}

TEST(files_that_cannot_be_used_are_named_by_their_option) {
    struct authority authority;
    char broken[128], missing[128];
    authority_make(&authority);
    struct issued one = authority_issue(&authority, "one", &(struct certificate_wish){0});
    struct issued two = authority_issue(&authority, "two", &(struct certificate_wish){0});
    struct issued locked = authority_issue(&authority, "locked", &(struct certificate_wish){.key_password = "secret"});
    snprintf(broken, sizeof broken, "%s/broken", authority.folder);
    snprintf(missing, sizeof missing, "%s/missing", authority.folder);
    FILE *file = fopen(broken, "we");
    assert_true(file && fputs("-----BEGIN CERTIFICATE-----\nMIIB\n", file) >= 0 && fclose(file) == 0);
    expect_options(&(struct twi_tls_options){.ca_file = missing}, "redis_tls_ca_file: No such file or directory");
    expect_options(&(struct twi_tls_options){.ca_file = broken},
                   "redis_tls_ca_file: cannot be used (PEM is asked for): ");
    expect_options(&(struct twi_tls_options){.cert_file = one.cert_file}, "redis_tls_key_file: missing");
    expect_options(&(struct twi_tls_options){.key_file = one.key_file}, "redis_tls_cert_file: missing");
    expect_options(&(struct twi_tls_options){.cert_file = missing, .key_file = one.key_file},
                   "redis_tls_cert_file: No such file or directory");
    expect_options(&(struct twi_tls_options){.cert_file = one.cert_file, .key_file = missing},
                   "redis_tls_key_file: No such file or directory");
    expect_options(&(struct twi_tls_options){.cert_file = one.cert_file, .key_file = broken},
                   "redis_tls_key_file: cannot be used");
    expect_options(&(struct twi_tls_options){.cert_file = one.cert_file, .key_file = two.key_file},
                   "redis_tls_key_file: is not the key of redis_tls_cert_file");
    expect_options(&(struct twi_tls_options){.cert_file = locked.cert_file, .key_file = locked.key_file},
                   "redis_tls_key_file: is encrypted; a key without a password is needed");
    char name[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    expect_options(&(struct twi_tls_options){.server_name = name}, "redis_tls_server_name: longer than 255 bytes");
    authority_destroy(&authority);
}
