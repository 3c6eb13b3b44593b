/* tls.c -- see tls.h.
 *
 *   IDLE --> DIALLING --socket connected--> SHAKING --handshake done--> OPEN
 * OpenSSL reads and writes through our BIO, so that no signal is raised when Redis has closed (MSG_NOSIGNAL). It may
 * have to write in order to read (an answer to a change of keys). Then it waits for writing, too. After the handshake
 * it never reads in order to write, because renegotiation is off.
 * Always true: recv() is 0 only when OpenSSL has no unread bytes, so a caller that reads until 0 may sleep on the
 * descriptor. A connection that is in order is closed with TLS's close message, except in a forked child. */
#include "sync/wire/tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "engine/base/atomic.h"
#include "sync/wire/tls_context.h"

enum state { IDLE, DIALLING, SHAKING, OPEN };

struct link {
    struct twi_tls *tls;
    void *socket; /* of twi_socket_transport */
    enum state state;
    SSL *ssl;
    int fd;           /* the socket's, from SHAKING on */
    int error;        /* errno of the last read or write that failed; 0 if the other end closed */
    bool wants_write; /* OpenSSL has to write before it can continue */
    bool is_full;     /* the last bytes did not go out */
    bool has_heard;   /* Redis has sent data, so a later end is no refusal of TLS */
    bool is_broken;   /* OpenSSL must not send a farewell */
    bool is_refused;  /* the certificate of one side, or the version of TLS, is at fault */
    struct twi_tls_peer peer;
    char why[TWI_TLS_REASON_MAX];
};

/* ---- the BIO ----------------------------------------------------------------------------------------------------- */

static bool tls_would_wait(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static int bio_write(BIO *bio, const char *data, size_t size, size_t *written) {
    struct link *link = BIO_get_data(bio);
    ssize_t sent = twi_socket_send(link->fd, data, size);
    BIO_clear_retry_flags(bio);
    *written = sent > 0 ? (size_t)sent : 0;
    if (sent > 0) return 1;
    link->error = sent < 0 ? errno : 0;
    if (sent < 0 && tls_would_wait(errno)) BIO_set_retry_write(bio);
    return 0;
}

static int bio_read(BIO *bio, char *data, size_t size, size_t *got) {
    struct link *link = BIO_get_data(bio);
    ssize_t came = twi_socket_recv(link->fd, data, size);
    BIO_clear_retry_flags(bio);
    *got = came > 0 ? (size_t)came : 0;
    if (came > 0) return 1;
    link->error = came < 0 ? errno : 0;
    if (came < 0 && tls_would_wait(errno)) BIO_set_retry_read(bio);
    return 0;
}

static long bio_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH; /* this BIO has no buffer; all other commands are unknown here */
}

static BIO_METHOD *method_make(void) {
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tallywheel");
    if (!method) return NULL;
    BIO_meth_set_write_ex(method, bio_write);
    BIO_meth_set_read_ex(method, bio_read);
    BIO_meth_set_ctrl(method, bio_control);
    return method;
}

/* One for all connections of the process. Returns NULL if there is no memory; the next connection tries again. */
static BIO_METHOD *the_method(void) {
    static _Atomic(BIO_METHOD *) shared;
    BIO_METHOD *found = twi_load_acquire(&shared), *own;
    if (found || !(own = method_make())) return found;
    if (twi_cas_acqrel(&shared, &found, own)) return own; /* releases what method_make() has set, to the load above */
    BIO_meth_free(own);
    return found;
}

static BIO *bio_make(struct link *link) {
    BIO_METHOD *method = the_method();
    BIO *bio = method ? BIO_new(method) : NULL;
    if (!bio) return NULL;
    BIO_set_data(bio, link);
    BIO_set_init(bio, 1);
    return bio;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static int tls_fail(struct link *link, const char *what, const char *detail) {
    link->is_broken = true;
    snprintf(link->why, sizeof link->why, "%s: %s", what, detail);
    return -1;
}

static bool is_end(unsigned long error) {
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
    return ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
#else
    return false && error;
#endif
}

/* A call of OpenSSL has failed; a retry would fail, too. */
static int broken(struct link *link, const char *what, int kind) {
    unsigned long error = ERR_peek_last_error(); /* the first errors are the causes of the others */
    link->is_broken = true;
    if (kind == SSL_ERROR_SSL && !is_end(error)) {
        twi_tls_peer_reason(&link->peer, error, link->why, sizeof link->why);
        link->is_refused = !link->has_heard;
        if (link->is_refused) twi_tls_refuse(link->tls);
        return -1;
    }
    if (kind == SSL_ERROR_SYSCALL && link->error != 0) return tls_fail(link, what, strerror(link->error));
    return tls_fail(link, what, link->state == SHAKING ? "closed by Redis in the handshake" : "closed by Redis");
}

/* Returns the event for which OpenSSL waits, by the result of its last call. */
static void tls_watch(struct link *link) {
    twi_socket_wants_write(link->socket, link->wants_write || link->is_full);
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

static void forget_ssl(struct link *link) {
    if (link->ssl) SSL_free(link->ssl);
    link->ssl = NULL;
}

static int begin_failed(struct link *link) {
    forget_ssl(link);
    ERR_clear_error();
    return tls_fail(link, "TLS", "no memory");
}

/* Makes the TLS part over the connected socket. Returns 0, or -1. */
static int tls_begin(struct link *link, const struct twi_endpoint *endpoint) {
    bool wants_write;
    link->fd = twi_socket_transport.fd(link->socket, &wants_write);
    link->wants_write = link->is_full = link->has_heard = link->is_broken = false;
    twi_tls_peer_make(&link->peer, endpoint, twi_tls_options_of(link->tls)->server_name);
    SSL_CTX *context = twi_tls_context(link->tls);
    link->ssl = SSL_new(context);
    BIO *bio = link->ssl ? bio_make(link) : NULL;
    SSL_SESSION *session = bio ? twi_tls_session(link->tls, context, link->peer.key) : NULL;
    SSL_CTX_free(context); /* `ssl` keeps it */
    if (!bio) return begin_failed(link);
    SSL_set_bio(link->ssl, bio, bio);
    SSL_set_connect_state(link->ssl);
    bool good = twi_tls_peer_expect(&link->peer, link->ssl);
    if (session) good = SSL_set_session(link->ssl, session) == 1 && good;
    SSL_SESSION_free(session);
    return good ? 0 : begin_failed(link);
}

/* OpenSSL is sure by now; without a verified certificate this would be our mistake. */
static bool is_verified(struct link *link) {
    if (twi_tls_options_of(link->tls)->insecure) return true;
    X509 *certificate = SSL_get_peer_certificate(link->ssl);
    X509_free(certificate);
    return certificate && SSL_get_verify_result(link->ssl) == X509_V_OK;
}

static int shake(struct link *link) {
    ERR_clear_error();
    int done = SSL_do_handshake(link->ssl);
    int kind = done == 1 ? SSL_ERROR_NONE : SSL_get_error(link->ssl, done);
    link->wants_write = kind == SSL_ERROR_WANT_WRITE;
    tls_watch(link);
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return 0;
    if (done == 1 && is_verified(link)) {
        link->state = OPEN;
        twi_tls_shaken(link->tls, SSL_session_reused(link->ssl));
        return 1;
    }
    if (done == 1) tls_fail(link, "TLS", "the certificate was not verified");
    if (done != 1) broken(link, "TLS", kind);
    twi_tls_session_forget(link->tls, link->peer.key); /* Redis may have refused it */
    ERR_clear_error();
    return -1;
}

static int tls_connect(void *ctx, const struct twi_endpoint *endpoint, int64_t now_ms, int64_t deadline_ms) {
    struct link *link = ctx;
    int done = 0;
    if (link->state == OPEN) return 1;
    if (link->state != SHAKING) {
        link->state = DIALLING;
        link->is_refused = false;
        done = twi_socket_transport.connect(link->socket, endpoint, now_ms, deadline_ms);
        if (done < 0) {
            link->state = IDLE;
            snprintf(link->why, sizeof link->why, "%s", twi_socket_transport.why(link->socket));
        }
        if (done <= 0) return done;
    }
    twi_tls_enter();
    if (link->state == DIALLING) done = tls_begin(link, endpoint);
    if (done >= 0) link->state = SHAKING;
    if (done >= 0) done = shake(link);
    /* A server without TLS mistakes the bytes for a command, and waits for the rest of it. */
    if (done == 0 && now_ms >= deadline_ms)
        done =
            tls_fail(link, "TLS", "no answer to the handshake in time; does this port speak TLS? (without: redis://)");
    twi_tls_leave();
    return done;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Reads the last bytes from Redis, because the reason why a write fails may be in unread bytes. */
static int broken_write(struct link *link, int kind) {
    char rest[256];
    size_t got;
    int error = link->error;
    for (int tries = 0; kind == SSL_ERROR_SYSCALL && tries < 16; tries++) {
        ERR_clear_error();
        if (SSL_read_ex(link->ssl, rest, sizeof rest, &got)) continue;
        if (SSL_get_error(link->ssl, 0) == SSL_ERROR_SSL && !is_end(ERR_peek_last_error()))
            return broken(link, "send", SSL_ERROR_SSL);
        break;
    }
    link->error = error;
    return broken(link, "send", kind);
}

static ssize_t tls_send(void *ctx, const void *data, size_t size) {
    struct link *link = ctx;
    size_t sent = 0;
    if (size == 0) return 0;
    if (link->is_broken) return -1; /* OpenSSL may not be called again; `why` stays */
    twi_tls_enter();
    ERR_clear_error();
    int done = SSL_write_ex(link->ssl, data, size, &sent);
    int kind = done ? SSL_ERROR_NONE : SSL_get_error(link->ssl, done);
    link->is_full = kind == SSL_ERROR_WANT_WRITE;
    tls_watch(link);
    if (!done && kind != SSL_ERROR_WANT_READ && kind != SSL_ERROR_WANT_WRITE) {
        (void)broken_write(link, kind);
        ERR_clear_error();
    }
    twi_tls_leave();
    return link->is_broken ? -1 : (ssize_t)sent;
}

static ssize_t tls_recv(void *ctx, void *data, size_t size) {
    struct link *link = ctx;
    size_t got = 0;
    if (link->is_broken) return -1;
    twi_tls_enter();
    ERR_clear_error();
    int done = SSL_read_ex(link->ssl, data, size, &got);
    int kind = done ? SSL_ERROR_NONE : SSL_get_error(link->ssl, done);
    link->wants_write = kind == SSL_ERROR_WANT_WRITE;
    tls_watch(link);
    if (done) link->has_heard = true;
    if (!done && kind != SSL_ERROR_WANT_READ && kind != SSL_ERROR_WANT_WRITE) {
        (void)broken(link, "recv", kind);
        ERR_clear_error();
    }
    twi_tls_leave();
    return link->is_broken ? -1 : (ssize_t)got;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Keeps a session when its connection was cut, because 10,000 engines may come back at once. OpenSSL would drop it, so
 * both sides are marked as closed. */
static void tls_part(struct link *link, bool says_so) {
    if (!link->ssl) return;
    twi_tls_enter();
    if (says_so && link->state == OPEN && !link->is_broken) (void)SSL_shutdown(link->ssl);
    if (link->state == OPEN) SSL_set_shutdown(link->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    forget_ssl(link);
    ERR_clear_error();
    twi_tls_leave();
}

static void tls_close(void *ctx) {
    struct link *link = ctx;
    tls_part(link, true);
    link->state = IDLE;
    link->wants_write = link->is_full = false;
    link->fd = -1;
    twi_socket_transport.close(link->socket);
}

static int tls_fd(void *ctx, bool *wants_write) {
    return twi_socket_transport.fd(((struct link *)ctx)->socket, wants_write);
}

static const char *tls_why(void *ctx) {
    return ((struct link *)ctx)->why;
}

static bool tls_is_refused(void *ctx) {
    return ((struct link *)ctx)->is_refused;
}

static void *tls_create(void *shared, int set) {
    struct link *link = calloc(1, sizeof *link);
    if (!link) return NULL;
    link->tls = shared;
    link->fd = -1;
    link->socket = twi_socket_transport.create(NULL, set);
    if (link->socket) return link;
    free(link);
    return NULL;
}

static void tls_destroy(void *ctx) {
    struct link *link = ctx;
    if (!link) return;
    tls_part(link, true);
    twi_socket_transport.destroy(link->socket);
    free(link);
}

static void tls_abandon(void *ctx) {
    struct link *link = ctx;
    if (!link) return;
    twi_tls_forked();
    tls_part(link, false);
    twi_socket_transport.abandon(link->socket);
    free(link);
}

const struct twi_transport twi_tls_transport = {
    .connect = tls_connect,
    .send = tls_send,
    .recv = tls_recv,
    .close = tls_close,
    .fd = tls_fd,
    .why = tls_why,
    .is_refused = tls_is_refused,
    .create = tls_create,
    .destroy = tls_destroy,
    .abandon = tls_abandon,
};
