/* tls_context.h -- the common state of all TLS connections of an engine. It has the trusted certificates, the client
 * certificate, and the sessions that shorten later handshakes.
 *
 * Certificates and keys are files. They are read when the context is made, and when a connection begins and one of them
 * has changed. Certificates live for weeks, engines for months.
 * Always true: a thread waits for another only while files are read, and unusable files leave the state unchanged. Any
 * thread may call, except if noted otherwise. No text from here contains any part of a key. */
#ifndef TWI_SYNC_WIRE_TLS_CONTEXT_H
#define TWI_SYNC_WIRE_TLS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sync/wire/tls_options.h"

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
 * peer (tls_peer.h) to it. Returns NULL if there is no memory. */
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
