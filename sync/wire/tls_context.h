/* tls_context.h -- what all TLS connections of an engine have in common: whom they trust, who they say they are, and
 * the sessions that spare them most of a handshake.
 *
 * Certificates and keys are files. They are read when this is made, and again when a connection begins and one of them
 * has changed: certificates live for weeks, engines for months.
 * Always true: no thread waits for another but while files are read; files that cannot be used change nothing. Any
 * thread may call, except where noted. No text that comes from here holds anything of a key. */
#ifndef TWI_SYNC_WIRE_TLS_CONTEXT_H
#define TWI_SYNC_WIRE_TLS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sync/wire/tls_options.h"

#define TWI_TLS_ERROR_MAX 200    /* what an error text needs, with its NUL */
#define TWI_TLS_SESSIONS_MAX 128 /* endpoints whose last session is kept; beyond that the oldest is dropped */

struct ssl_ctx_st;
struct ssl_session_st;

/* What has happened since the beginning. */
struct twi_tls_counts {
    int64_t handshakes; /* that were completed */
    int64_t resumed;    /* of them: with the session of an earlier connection */
    int64_t refused;    /* connections that ended because one side refused the other: a certificate, a version */
};

struct twi_tls; /* opaque */

/* NULL means `error` says which option is wrong, and why. */
struct twi_tls *twi_tls_create(const struct twi_tls_options *options, char *error, size_t error_size);
/* Every connection is gone. NULL is harmless. */
void twi_tls_destroy(struct twi_tls *tls);
/* In a forked child, before anything else of TLS. Harmless elsewhere. */
void twi_tls_forked(void);
struct twi_tls_counts twi_tls_counts(const struct twi_tls *tls);
/* Something that the log should have: files that changed, or a certificate that was not looked at. False if there is
 * none. */
struct twi_tls_news {
    bool is_bad;
    char text[TWI_TLS_ERROR_MAX + 100];
};
bool twi_tls_news(struct twi_tls *tls, struct twi_tls_news *news);

/* ---- for tls.c --------------------------------------------------------------------------------------------------- */

/* Every call of OpenSSL is made between these two. fork() waits for all of them to be outside, so that a child finds no
 * lock of OpenSSL held by a thread that it does not have. */
void twi_tls_enter(void);
void twi_tls_leave(void);

/* From here on: between the two. */

/* The context of a connection that begins now; changed files are read. The caller frees it, and names its peer
 * (tls_peer.h) to it. NULL if there is no memory. */
struct ssl_ctx_st *twi_tls_context(struct twi_tls *tls);
const struct twi_tls_options *twi_tls_options_of(const struct twi_tls *tls);
/* The session of the last connection to that endpoint, made with that context; NULL if there is none. The caller frees
 * it. */
struct ssl_session_st *twi_tls_session(struct twi_tls *tls, const struct ssl_ctx_st *context, const char *key);
void twi_tls_session_forget(struct twi_tls *tls, const char *key);
/* A handshake was completed. */
void twi_tls_shaken(struct twi_tls *tls, bool resumed);
void twi_tls_refuse(struct twi_tls *tls);

#endif
