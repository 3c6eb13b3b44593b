/* tls_memory_test.c -- no memory: each allocation of OpenSSL's and of ours in a TLS connection fails in turn.
 * Method: OpenSSL asks this program for its memory, and the n-th armed call fails, while the files are read, a session
 * is resumed, bytes pass and the connection ends. Only our side is armed. */
#include "tests/unit/sync/tls_rig.h"

#include <openssl/crypto.h>

static int64_t fail_in = INT64_MAX; /* the how-manieth call from now on fails */
static bool has_failed;

static bool fails(void) {
    if (fail_in == INT64_MAX || --fail_in > 0) return false;
    fail_in = INT64_MAX;
    return has_failed = true;
}

static void *give(size_t size, const char *file, int line) {
    (void)file, (void)line;
    return fails() ? NULL : malloc(size);
}
static void *give_again(void *old, size_t size, const char *file, int line) {
    (void)file, (void)line;
    return fails() ? NULL : realloc(old, size);
}
static void take_back(void *block, const char *file, int line) {
    (void)file, (void)line;
    free(block);
}

/* One whole life of a connection, in which the n-th allocation of our side fails. False: none was left to fail. */
static bool live_without(struct tls_rig *rig, int64_t n) {
    char byte;
    int done = 0;
    fail_in = n;
    has_failed = false;
    for (int steps = 0; done == 0 && steps < 10000; steps++) {
        done = rig_connect_step(rig);
        int64_t kept = fail_in;
        fail_in = INT64_MAX;
        rig_server_step(rig);
        fail_in = kept;
    }
    assert_int_not_equal(done, 0);
    if (done < 0) assert_true(rig_why(rig)[0] != '\0');
    ssize_t got = done < 0 ? -1 : 0;
    if (got == 0) got = rig_send(rig, "PING\r\n", 6) < 0 ? -1 : 0;
    for (int steps = 0; got == 0 && steps < 10000; steps++) {
        int64_t kept = fail_in;
        fail_in = INT64_MAX;
        rig_server_step(rig);
        if (SSL_read(rig->ssl, &byte, 1) == 1) SSL_write(rig->ssl, "+PONG", 5);
        rig_server_flush(rig);
        fail_in = kept;
        got = rig_recv(rig, &byte, 1);
    }
    if (done == 1 && got == 0) fail_msg("neither an answer nor an end");
    twi_tls_transport.close(rig->link);
    fail_in = INT64_MAX;
    rig_server_hang_up(rig);
    if (!has_failed) assert_true(done == 1 && got == 1); /* what failed before is over */
    return has_failed;
}

/* Every third in ./dev check, fewer at other times; which ones is drawn. */
static int64_t step(void) {
    return test_scale(10) >= 100 ? 3 : 23;
}

/* Goal: without memory a connection ends with an error, or continues; the next one with memory is as good as ever. */
TEST(a_connection_without_memory_is_an_error_and_no_more) {
    struct tls_rig rig;
    int64_t failures = 0, begin = 1 + (int64_t)(test_seed() % (uint64_t)step());
    rig_make(&rig);
    for (int64_t n = begin; live_without(&rig, n) && n < 5000; n += step()) {
        if (++failures % 20 != 0) continue;
        rig_connect_whole(&rig);
        rig_hear(&rig, "+OK\r\n");
        rig_close(&rig);
    }
    assert_true(failures * step() > 300);
    rig_unmake(&rig);
}

/* Goal: files that cannot be read for want of memory are refused, or, when they change, leave what was there. */
TEST(files_without_memory_are_refused_or_change_nothing) {
    struct tls_rig rig;
    char error[TWI_TLS_ERROR_MAX];
    rig_make(&rig);
    struct issued client = authority_issue(&rig.authority, "client", &(struct certificate_wish){0});
    struct twi_tls_options options = {
        .ca_file = rig.authority.ca_file, .cert_file = client.cert_file, .key_file = client.key_file};
    int64_t refused = 0;
    for (int64_t n = 1 + (int64_t)(test_seed() % (uint64_t)step());; n += step()) {
        fail_in = n, has_failed = false, error[0] = '\0';
        struct twi_tls *tls = twi_tls_create(&options, error, sizeof error);
        fail_in = INT64_MAX;
        refused += tls == NULL;
        assert_true(tls != NULL || error[0] != '\0');
        twi_tls_destroy(tls);
        if (!has_failed) break;
    }
    assert_true(refused > 3);
    rig_unmake(&rig);
}

int main(void) {
    if (CRYPTO_set_mem_functions(give, give_again, take_back) != 1)
        test_skip_program("OpenSSL has already asked for memory: run it with an OpenSSL that asks later (Debian 12)");
    return test_run();
}
