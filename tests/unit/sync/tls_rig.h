/* tls_rig.h -- a connection of ours and a TLS server of OpenSSL's, in one thread: the test moves each byte.
 *
 * The server speaks through two pieces of memory; rig_server_step() carries bytes between these and its socket, `chunk`
 * of them at most. Always true: nothing here waits; the clock is a number. */
#ifndef TEST_TLS_RIG_H
#define TEST_TLS_RIG_H

#include "sync/wire/tls.h"
#include "tests/support/authority.h"
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

struct tls_rig {
    struct authority authority;
    struct issued server; /* the server's certificate */
    struct twi_tls *tls;
    void *link;
    struct twi_endpoint endpoint;

    int listener, fd;
    SSL_CTX *context;
    SSL *ssl;
    BIO *in, *out;
    size_t chunk;
    bool is_plain;    /* it does not speak TLS */
    bool is_rejected; /* the server has ended the handshake */
    char asked_name[256];
};

/* ---- the server -------------------------------------------------------------------------------------------------- */

static inline void rig_server_context(struct tls_rig *rig, const struct issued *issued) {
    SSL_CTX_free(rig->context);
    rig->context = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate_chain_file(rig->context, issued->cert_file), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(rig->context, issued->key_file, SSL_FILETYPE_PEM), 1);
    assert_int_equal(SSL_CTX_set_session_id_context(rig->context, (const unsigned char *)"rig", 3), 1);
}

static inline void rig_server_wants_client(struct tls_rig *rig) {
    SSL_CTX_set_verify(rig->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    assert_int_equal(SSL_CTX_load_verify_locations(rig->context, rig->authority.ca_file, NULL), 1);
}

static inline void rig_server_listen(struct tls_rig *rig) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    rig->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(rig->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(rig->listener, 16), 0);
    assert_int_equal(getsockname(rig->listener, (struct sockaddr *)&address, &size), 0);
    rig->endpoint.port = ntohs(address.sin_port);
}

static inline void rig_server_hang_up(struct tls_rig *rig) {
    if (rig->fd >= 0) close(rig->fd);
    SSL_free(rig->ssl);
    rig->fd = -1;
    rig->ssl = NULL;
    rig->in = rig->out = NULL;
}

static inline void rig_server_accept(struct tls_rig *rig) {
    rig->fd = accept4(rig->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    int on = 1;
    if (rig->fd >= 0) setsockopt(rig->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (rig->fd < 0 || rig->is_plain) return;
    rig->ssl = SSL_new(rig->context);
    rig->in = BIO_new(BIO_s_mem()), rig->out = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(rig->in, -1);
    SSL_set_bio(rig->ssl, rig->in, rig->out);
    SSL_set_accept_state(rig->ssl);
    rig->is_rejected = false;
}

/* Bytes that wait in the server's memory go out, `chunk` of them. */
static inline void rig_server_flush(struct tls_rig *rig) {
    char bytes[65536];
    size_t most = rig->chunk < sizeof bytes ? rig->chunk : sizeof bytes;
    if (rig->fd < 0) return;
    char *waiting = NULL;
    size_t size = (size_t)BIO_get_mem_data(rig->out, &waiting);
    if (size > most) size = most;
    ssize_t sent = size ? send(rig->fd, waiting, size, MSG_NOSIGNAL) : 0;
    if (sent > 0) assert_int_equal(BIO_read(rig->out, bytes, (int)sent), sent);
}

static inline void rig_server_take(struct tls_rig *rig) {
    char bytes[65536];
    ssize_t got = recv(rig->fd, bytes, rig->chunk < sizeof bytes ? rig->chunk : sizeof bytes, 0);
    if (got > 0) assert_int_equal(BIO_write(rig->in, bytes, (int)got), got);
}

static inline void rig_server_step(struct tls_rig *rig) {
    if (rig->fd < 0) rig_server_accept(rig);
    if (rig->fd < 0 || rig->is_plain) return;
    rig_server_take(rig);
    if (!SSL_is_init_finished(rig->ssl) && !rig->is_rejected) {
        ERR_clear_error();
        int done = SSL_do_handshake(rig->ssl);
        rig->is_rejected = done != 1 && SSL_get_error(rig->ssl, done) == SSL_ERROR_SSL;
        const char *name = SSL_get_servername(rig->ssl, TLSEXT_NAMETYPE_host_name);
        snprintf(rig->asked_name, sizeof rig->asked_name, "%s", name ? name : "");
    }
    rig_server_flush(rig);
    ERR_clear_error();
}

/* ---- ours -------------------------------------------------------------------------------------------------------- */

static inline int rig_connect_step(struct tls_rig *rig) {
    return twi_tls_transport.connect(rig->link, &rig->endpoint, 0, 1000);
}

static inline bool rig_wants_write(struct tls_rig *rig) {
    bool wants_write = false;
    (void)twi_tls_transport.fd(rig->link, &wants_write);
    return wants_write;
}

static inline ssize_t rig_send(struct tls_rig *rig, const void *data, size_t size) {
    return twi_tls_transport.send(rig->link, data, size);
}

static inline ssize_t rig_recv(struct tls_rig *rig, void *data, size_t size) {
    return twi_tls_transport.recv(rig->link, data, size);
}

static inline const char *rig_why(struct tls_rig *rig) {
    return twi_tls_transport.why(rig->link);
}

static inline struct twi_tls *rig_tls(const struct twi_tls_options *options) {
    char error[TWI_TLS_ERROR_MAX] = "";
    struct twi_tls *tls = twi_tls_create(options, error, sizeof error);
    if (!tls) fail_msg("%s", error);
    return tls;
}

/* 1 or -1, with both ends stepping. */
static inline int rig_connect(struct tls_rig *rig) {
    for (int steps = 0; steps < 100000; steps++) {
        int done = rig_connect_step(rig);
        if (done != 0) return done;
        rig_server_step(rig);
    }
    fail_msg("the handshake does not end");
    return 0;
}

/* The server has heard all, too, and its sessions are on their way. */
static inline void rig_connect_whole(struct tls_rig *rig) {
    if (rig_connect(rig) != 1) fail_msg("%s", rig_why(rig));
    while (!SSL_is_init_finished(rig->ssl) || BIO_pending(rig->out)) rig_server_step(rig);
}

static inline void rig_close(struct tls_rig *rig) {
    twi_tls_transport.close(rig->link);
    rig_server_hang_up(rig);
}

/* The whole text comes from the server: our end reads until there is nothing left. */
static inline void rig_hear(struct tls_rig *rig, const char *text) {
    char got[256] = "";
    size_t used = 0, size = strlen(text);
    assert_int_equal(SSL_write(rig->ssl, text, (int)size), size);
    for (int steps = 0; steps < 100000 && used < size; steps++) {
        rig_server_step(rig);
        ssize_t more = rig_recv(rig, got + used, sizeof got - 1 - used);
        if (more < 0) fail_msg("%s", rig_why(rig));
        used += (size_t)more;
    }
    assert_string_equal(got, text);
}

static inline void rig_make_with(struct tls_rig *rig, const struct twi_tls_options *options) {
    rig->tls = rig_tls(options);
    rig->link = twi_tls_transport.create(rig->tls, -1);
    assert_non_null(rig->link);
}

static inline void rig_unmake_ours(struct tls_rig *rig) {
    twi_tls_transport.destroy(rig->link);
    twi_tls_destroy(rig->tls);
}

static inline void rig_begin(struct tls_rig *rig) {
    memset(rig, 0, sizeof *rig);
    rig->fd = rig->listener = -1;
    rig->chunk = SIZE_MAX;
    authority_make(&rig->authority);
    rig->endpoint = (struct twi_endpoint){.is_tls = true, .host = "127.0.0.1"};
    rig->server = authority_issue(&rig->authority, "server", &(struct certificate_wish){0});
    rig_server_context(rig, &rig->server);
    rig_server_listen(rig);
}

/* A server with a good certificate, and one of ours that trusts its authority. */
static inline void rig_make(struct tls_rig *rig) {
    rig_begin(rig);
    rig_make_with(rig, &(struct twi_tls_options){.ca_file = rig->authority.ca_file});
}

static inline void rig_unmake(struct tls_rig *rig) {
    rig_unmake_ours(rig);
    rig_server_hang_up(rig);
    if (rig->listener >= 0) close(rig->listener);
    SSL_CTX_free(rig->context);
    authority_destroy(&rig->authority);
}

#endif
