/* tls_peer.h -- the other end of one TLS connection. The name that its certificate must have, and the faults of that
 * certificate, in words.
 * Always true: a text names both names, the one that was requested and those of the certificate; bytes of a certificate
 * that are not printable ASCII are question marks in it. */
#ifndef TWI_SYNC_WIRE_TLS_PEER_H
#define TWI_SYNC_WIRE_TLS_PEER_H

#include <stdbool.h>
#include <stddef.h>

#include "sync/wire/endpoint.h"

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

#endif
