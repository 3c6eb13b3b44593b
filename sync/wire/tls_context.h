/* tls_context.h -- the common state of all TLS connections of an engine. It has the trusted certificates, the client
 * certificate, and the sessions that shorten later handshakes.
 *
 * Certificates and keys are files. They are read when the context is made, and when a connection begins and one of them
 * has changed. Certificates live for weeks, engines for months.
 * Always true: a thread waits for another only while files are read, and unusable files leave the state unchanged. Any
 * thread may call, except if noted otherwise. No text from here contains any part of a key. */
#ifndef TWI_SYNC_WIRE_TLS_CONTEXT_H
#define TWI_SYNC_WIRE_TLS_CONTEXT_H

#include "sync/wire/url.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tls peer ----
 * the other end of one TLS connection. The name that its certificate must have, and the faults of that
 * certificate, in words.
 * Always true: a text names both names, the one that was requested and those of the certificate; bytes of a certificate
 * that are not printable ASCII are question marks in it. */

struct ssl_st;
struct x509_store_ctx_st;

#define TWI_TLS_REASON_MAX 400

struct twi_tls_peer {
    char name[TWI_HOST_SIZE]; /* a host's, or an address in digits */
    bool is_address;
    char key[2 * TWI_HOST_SIZE + 8]; /* the key of its session, different for each endpoint */
    /* the first thing that was wrong */
    int error; /* X509_V_ERR_...; 0 if there is none */
    char subject[64];
    char names[160];   /* of the certificate */
    bool has_no_names; /* there is no subjectAltName; `names` is the common name, which is never verified */
    char since[24], until[24];
};

/* `server_name` is used if the endpoint names no other. */
void twi_tls_peer_make(struct twi_tls_peer *peer, const struct twi_endpoint *endpoint, const char *server_name);
/* Tells OpenSSL what to request. Returns false if there is no memory. */
bool twi_tls_peer_expect(struct twi_tls_peer *peer, struct ssl_st *ssl);
/* The callback of the verification. It only notes the fault, and does not change the result. */
int twi_tls_peer_note(int is_good, struct x509_store_ctx_st *store);
/* Why a connection failed, from the error of ERR_get_error() and the noted faults. */
void twi_tls_peer_reason(const struct twi_tls_peer *peer, unsigned long error, char *out, size_t size);

#define TWI_TLS_ERROR_MAX 200    /* size of an error text, with its NUL */
#define TWI_TLS_SESSIONS_MAX 128 /* endpoints whose last session is kept; beyond that the oldest is dropped */

struct ssl_ctx_st;
struct ssl_session_st;

/* Counts of events since the beginning. */
struct twi_tls_counts {
    int64_t handshakes; /* that were completed */
    int64_t resumed;    /* handshakes with the session of an earlier connection; they are part of the first count */
    int64_t refused;    /* connections that ended because one side refused the other (certificate, version) */
};

struct twi_tls; /* opaque */

/* Returns NULL if an option is wrong; `error` then names the option and the reason. */
struct twi_tls *twi_tls_create(const struct twi_tls_options *options, char *error, size_t error_size);
/* No connection may exist any more. NULL is harmless. */
void twi_tls_destroy(struct twi_tls *tls);
/* To be called in a forked child, before any other TLS function. Harmless elsewhere. */
void twi_tls_forked(void);
struct twi_tls_counts twi_tls_counts(const struct twi_tls *tls);
/* The next text for the log, about changed files or an unchecked certificate. Returns false if there is none. */
struct twi_tls_news {
    bool is_bad;
    char text[TWI_TLS_ERROR_MAX + 100];
};
bool twi_tls_news(struct twi_tls *tls, struct twi_tls_news *news);

/* ---- for tls.c --------------------------------------------------------------------------------------------------- */

/* Every call of OpenSSL is made between these two. fork() waits until all threads are outside, so that in a child no
 * lock of OpenSSL belongs to a thread that it does not have. */
void twi_tls_enter(void);
void twi_tls_leave(void);

/* The functions from here on are called between the two. */

/* Returns the context of a connection that begins now; changed files are read. The caller frees it, and names its
 * peer (tls_context.h) to it. Returns NULL if there is no memory. */
struct ssl_ctx_st *twi_tls_context(struct twi_tls *tls);
const struct twi_tls_options *twi_tls_options_of(const struct twi_tls *tls);
/* Returns the session of the last connection to that endpoint, made with that context; NULL if there is none. The
 * caller frees it. */
struct ssl_session_st *twi_tls_session(struct twi_tls *tls, const struct ssl_ctx_st *context, const char *key);
void twi_tls_session_forget(struct twi_tls *tls, const char *key);
/* Called when a handshake was completed. */
void twi_tls_shaken(struct twi_tls *tls, bool resumed);
void twi_tls_refuse(struct twi_tls *tls);

#endif
