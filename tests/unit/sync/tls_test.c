/* tls_test.c -- bytes through TLS: cut anywhere, delayed anywhere, none lost, none slept on; sessions; certificates
 * that change.
 * Covers: sync/wire/url.c, sync/wire/tls_context.c. */
#include "tests/unit/sync/tls_rig.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static void fill(char *bytes, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i++) bytes[i] = (char)(i * 31 + seed + i / 251);
}

/* Goal: a network that hands over a byte at a time costs time and nothing else. */
TEST(a_handshake_and_an_answer_come_byte_by_byte) {
    struct tls_rig rig;
    rig_make(&rig);
    rig.chunk = 1;
    rig_connect_whole(&rig);
    assert_int_equal(rig_send(&rig, "PING", 4), 4);
    char got[8] = "";
    for (int steps = 0; steps < 1000 && got[0] == '\0'; steps++) {
        rig_server_step(&rig);
        (void)SSL_read(rig.ssl, got, sizeof got - 1);
    }
    assert_string_equal(got, "PING");
    rig_hear(&rig, "+PONG\r\n");
    assert_i64_equal(twi_tls_counts(rig.tls).handshakes, 1);
    assert_i64_equal(twi_tls_counts(rig.tls).refused, 0);
    rig_unmake(&rig);
}

/* What the server has read so far, up to `size`. */
static size_t server_read(struct tls_rig *rig, char *got, size_t used, size_t size) {
    rig_server_step(rig);
    for (int more; used < size && (more = SSL_read(rig->ssl, got + used, (int)(size - used))) > 0;)
        used += (size_t)more;
    ERR_clear_error();
    return used;
}

/* Goal: a write that could not go out whole is repeated from other memory, with more bytes behind it. Method: the
 * socket holds little and no thread reads; then the server reads on. */
TEST(a_full_socket_takes_the_rest_later_from_wherever_it_lies_then) {
    enum { SIZE = 300000 };
    struct tls_rig rig;
    char *want = malloc(SIZE), *got = malloc(SIZE);
    int small = 4096;
    size_t sent = 0, used = 0;
    fill(want, SIZE, 7);
    rig_make(&rig);
    rig_connect_whole(&rig);
    bool wants_write;
    setsockopt(twi_tls_transport.fd(rig.link, &wants_write), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    bool was_full = false;
    for (int steps = 0; used < SIZE && steps < 100000; steps++) {
        size_t end = sent + 50000 + (size_t)steps; /* a repeated write is never a shorter one */
        if (end > SIZE) end = SIZE;
        char *copy = malloc(end - sent + 1); /* each try is from other memory */
        memcpy(copy, want + sent, end - sent);
        ssize_t taken = rig_send(&rig, copy, end - sent);
        memset(copy, 0xEE, end - sent);
        free(copy);
        assert_true(taken >= 0);
        was_full = was_full || (taken == 0 && end > sent);
        sent += (size_t)taken;
        if (taken == 0) used = server_read(&rig, got, used, SIZE);
    }
    assert_true(was_full);
    assert_int_equal(used, SIZE);
    assert_memory_equal(got, want, SIZE);
    free(want), free(got);
    rig_unmake(&rig);
}

/* C19. Goal: what OpenSSL has decrypted and nobody has read raises no poll; recv() says 0 only when there is none.
 * Method: all of the server's bytes have come; small reads; the socket must be empty long before the last read. */
TEST(recv_gives_everything_that_openssl_holds_before_it_says_nothing) {
    struct tls_rig rig;
    char bytes[16000], got[16000];
    size_t used = 0;
    bool wants_write;
    fill(bytes, sizeof bytes, 3);
    rig_make(&rig);
    rig_connect_whole(&rig);
    assert_int_equal(SSL_write(rig.ssl, bytes, sizeof bytes), sizeof bytes);
    while (BIO_pending(rig.out)) rig_server_flush(&rig);
    struct pollfd socket = {.fd = twi_tls_transport.fd(rig.link, &wants_write), .events = POLLIN};
    assert_int_equal(poll(&socket, 1, 1000), 1);
    bool was_silent = false;
    for (ssize_t more = 1; more > 0;) {
        more = rig_recv(&rig, got + used, 100);
        assert_true(more >= 0);
        used += (size_t)more;
        was_silent = was_silent || (more > 0 && used < sizeof got && poll(&socket, 1, 0) == 0);
    }
    assert_true(was_silent);
    assert_int_equal(used, sizeof bytes);
    assert_memory_equal(got, bytes, sizeof bytes);
    rig_unmake(&rig);
}

/* Goal: Redis may ask for new keys at any time, in the middle of a full socket too: no count is lost or delayed.
 * Method: what was sent before, what comes behind the request, and what is sent after it are all there. */
TEST(a_change_of_keys_in_a_full_socket_loses_nothing) {
    enum { SIZE = 200000 };
    struct tls_rig rig;
    char *want = malloc(SIZE), *got = malloc(SIZE), word[64] = "";
    int small = 4096;
    size_t sent = 0, used = 0;
    bool wants_write;
    fill(want, SIZE, 11);
    rig_make(&rig);
    rig_connect_whole(&rig);
    setsockopt(twi_tls_transport.fd(rig.link, &wants_write), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    for (ssize_t taken = 1; taken > 0; sent += (size_t)taken) taken = rig_send(&rig, want + sent, SIZE / 2 - sent);
    assert_int_equal(SSL_key_update(rig.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    assert_int_equal(SSL_write(rig.ssl, "+PONG", 5), 5);
    for (int steps = 0; used < SIZE && steps < 100000; steps++) {
        rig_server_flush(&rig);
        ssize_t came = rig_recv(&rig, word + strlen(word), 5), taken = rig_send(&rig, want + sent, SIZE - sent);
        assert_true(came >= 0 && taken >= 0);
        sent += (size_t)taken;
        if (taken == 0) used = server_read(&rig, got, used, SIZE);
    }
    assert_string_equal(word, "+PONG");
    assert_int_equal(used, SIZE);
    assert_memory_equal(got, want, SIZE);
    free(want), free(got);
    rig_unmake(&rig);
}

/* Goal: while the handshake waits for the server, no caller is informed to wait for writing: that would be a busy
 * loop. */
TEST(a_handshake_that_waits_for_the_server_waits_for_reading) {
    struct tls_rig rig;
    rig_make(&rig);
    int done = 0;
    for (int steps = 0; rig.fd < 0 && done == 0 && steps < 1000; steps++) {
        done = rig_connect_step(&rig);
        if (rig.fd < 0) rig_server_accept(&rig);
    }
    for (int again = 0; again < 3; again++) {
        assert_int_equal(rig_connect_step(&rig), 0);
        assert_false(rig_wants_write(&rig));
    }
    assert_int_equal(rig_connect(&rig), 1);
    rig_unmake(&rig);
}

/* Goal: a server that is gone is an error, not a signal (SIGPIPE ends this program), and not a refusal of TLS. */
TEST(a_server_that_hangs_up_is_an_error_and_no_signal) {
    struct tls_rig rig;
    char byte;
    signal(SIGPIPE, SIG_DFL);
    rig_make(&rig);
    rig_connect_whole(&rig);
    rig_hear(&rig, "+OK\r\n");
    rig_server_hang_up(&rig);
    ssize_t sent = 0;
    for (int tries = 0; sent >= 0 && tries < 1000; tries++) sent = rig_send(&rig, "PING\r\n", 6);
    assert_int_equal(sent, -1);
    assert_int_equal(rig_send(&rig, "PING\r\n", 6), -1);
    assert_int_equal(rig_recv(&rig, &byte, 1), -1);
    rig_close(&rig);
    rig_connect_whole(&rig);
    SSL_shutdown(rig.ssl); /* a farewell, this time */
    while (BIO_pending(rig.out)) rig_server_flush(&rig);
    ssize_t got = 0;
    for (int tries = 0; got == 0 && tries < 1000; tries++) got = rig_recv(&rig, &byte, 1);
    assert_int_equal(got, -1);
    assert_string_equal(rig_why(&rig), "recv: closed by Redis");
    assert_i64_equal(twi_tls_counts(rig.tls).refused, 0);
    rig_unmake(&rig);
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static bool resumes(struct tls_rig *rig) {
    int64_t before = twi_tls_counts(rig->tls).resumed;
    rig_connect_whole(rig);
    bool resumed = SSL_session_reused(rig->ssl);
    assert_i64_equal(twi_tls_counts(rig->tls).resumed - before, resumed);
    rig_hear(rig, "+OK\r\n"); /* the session itself has come with it */
    return resumed;
}

TEST(the_second_connection_resumes_the_session_of_the_first) {
    struct tls_rig rig;
    rig_make(&rig);
    assert_false(resumes(&rig));
    rig_close(&rig);
    assert_true(resumes(&rig));
    rig_server_hang_up(&rig); /* a cut: the server is gone, nobody said farewell */
    char byte;
    while (rig_recv(&rig, &byte, 1) >= 0) continue;
    rig_close(&rig);
    assert_true(resumes(&rig));
    rig_close(&rig);
    rig.endpoint.verify_name[0] = '\0';
    strcpy(rig.endpoint.verify_name, "localhost"); /* another name: nobody has looked for it yet */
    assert_false(resumes(&rig));
    rig_unmake(&rig);
}

TEST(a_session_of_tls_1_2_is_resumed_too) {
    struct tls_rig rig;
    rig_make(&rig);
    SSL_CTX_set_max_proto_version(rig.context, TLS1_2_VERSION);
    assert_false(resumes(&rig));
    rig_close(&rig);
    assert_true(resumes(&rig));
    rig_unmake(&rig);
}

/* Goal: a server that does not know the session any more is no failure. */
TEST(a_server_that_forgot_the_session_makes_a_new_one) {
    struct tls_rig rig;
    rig_make(&rig);
    assert_false(resumes(&rig));
    rig_close(&rig);
    rig_server_context(&rig, &rig.server); /* with other keys for its tickets */
    assert_false(resumes(&rig));
    rig_close(&rig);
    assert_true(resumes(&rig));
    rig_unmake(&rig);
}

/* Goal: the list of sessions has an end, and keeps those used last. */
TEST(only_so_many_endpoints_have_their_session_kept) {
    struct tls_rig rig;
    rig_begin(&rig);
    struct issued all =
        authority_issue(&rig.authority, "all", &(struct certificate_wish){.names = "DNS:*.cache.example"});
    rig_server_context(&rig, &all);
    rig_make_with(&rig, &(struct twi_tls_options){.ca_file = rig.authority.ca_file});
    for (uint32_t i = 0; i <= TWI_TLS_SESSIONS_MAX; i++) {
        snprintf(rig.endpoint.verify_name, sizeof rig.endpoint.verify_name, "n%u.cache.example", i);
        assert_false(resumes(&rig));
        rig_close(&rig);
    }
    strcpy(rig.endpoint.verify_name, "n1.cache.example");
    assert_true(resumes(&rig));
    rig_close(&rig);
    strcpy(rig.endpoint.verify_name, "n0.cache.example");
    assert_false(resumes(&rig));
    rig_unmake(&rig);
}

/* ---- files that change ------------------------------------------------------------------------------------------- */

static struct twi_tls_news news_of(struct tls_rig *rig) {
    struct twi_tls_news news;
    if (!twi_tls_news(rig->tls, &news)) assert_string_equal(news.text, "");
    return news;
}

static void spoil(const char *path) {
    FILE *file = fopen(path, "we");
    assert_true(file && fputs("no certificate\n", file) >= 0 && fclose(file) == 0);
}

/* Goal: certificates of weeks under an engine of months: what changes is read at the next connect, what is broken
 * changes nothing and is told once. */
TEST(a_changed_certificate_is_read_at_the_next_connect) {
    struct tls_rig rig;
    rig_begin(&rig);
    struct issued client = authority_issue(&rig.authority, "client", &(struct certificate_wish){.common_name = "one"});
    rig_server_wants_client(&rig);
    rig_make_with(&rig, &(struct twi_tls_options){.ca_file = rig.authority.ca_file,
                                                  .cert_file = client.cert_file,
                                                  .key_file = client.key_file});
    static const char *const names[] = {"one", "two", "two", "three"};
    for (size_t i = 0; i < 4; i++) {
        if (i == 1) authority_issue(&rig.authority, "client", &(struct certificate_wish){.common_name = "two"});
        if (i == 2) spoil(client.cert_file);
        if (i == 3) authority_issue(&rig.authority, "client", &(struct certificate_wish){.common_name = "three"});
        rig_connect_whole(&rig);
        char name[64] = "";
        X509 *shown = SSL_get_peer_certificate(rig.ssl);
        X509_NAME_get_text_by_NID(X509_get_subject_name(shown), NID_commonName, name, sizeof name);
        X509_free(shown);
        assert_string_equal(name, names[i]);
        rig_hear(&rig, "+OK\r\n");
        struct twi_tls_news news = news_of(&rig);
        assert_int_equal(news.is_bad, i == 2);
        if (i == 2) assert_non_null(strstr(news.text, "redis_tls_cert_file: cannot be used"));
        if (i != 2 && i != 0) assert_string_equal(news.text, "TLS: certificates have changed and were read anew");
        rig_close(&rig);
        if (i == 2) rig_connect_whole(&rig); /* the same broken file: no second line */
        if (i == 2) assert_string_equal(news_of(&rig).text, "");
        rig_close(&rig);
    }
    rig_unmake(&rig);
}

/* Goal: an authority that is trusted no more ends sessions that were made under it. */
TEST(sessions_end_with_the_files_that_they_were_made_under) {
    struct tls_rig rig;
    struct authority other;
    rig_make(&rig);
    assert_false(resumes(&rig));
    rig_close(&rig);
    assert_true(resumes(&rig));
    rig_close(&rig);
    authority_make(&other);
    assert_int_equal(rename(other.ca_file, rig.authority.ca_file), 0);
    assert_int_equal(rig_connect(&rig), -1);
    assert_non_null(strstr(rig_why(&rig), "no authority that is believed"));
    authority_destroy(&other);
    rig_unmake(&rig);
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

/* Goal: a child closes its copy and says nothing: the parent's connection continues. */
TEST(a_forked_child_abandons_without_a_word) {
    struct tls_rig rig;
    int status;
    rig_make(&rig);
    rig_connect_whole(&rig);
    rig_hear(&rig, "+OK\r\n");
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        twi_tls_transport.abandon(rig.link);
        twi_tls_destroy(rig.tls);
        struct twi_tls *tls = rig_tls(&(struct twi_tls_options){.ca_file = rig.authority.ca_file});
        _exit(tls == NULL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rig_hear(&rig, "+PONG\r\n");
    rig_unmake(&rig);
}
