/* tls_peer.c -- see tls_peer.h. */
#include "sync/wire/tls_peer.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/* ---- the name that is requested ---------------------------------------------------------------------------------- */

static bool is_address(const char *name) {
    unsigned char bytes[16];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

void twi_tls_peer_make(struct twi_tls_peer *peer, const struct twi_endpoint *endpoint, const char *server_name) {
    memset(peer, 0, sizeof *peer);
    const char *name = endpoint->verify_name[0] ? endpoint->verify_name : server_name ? server_name : endpoint->host;
    snprintf(peer->name, sizeof peer->name, "%s", name);
    size_t size = strlen(peer->name);
    if (size > 1 && peer->name[size - 1] == '.') peer->name[size - 1] = '\0'; /* no certificate has the root's dot */
    peer->is_address = is_address(peer->name);
    snprintf(peer->key, sizeof peer->key, "%s\n%u\n%s", endpoint->host, endpoint->port, peer->name);
}

bool twi_tls_peer_expect(struct twi_tls_peer *peer, SSL *ssl) {
    if (SSL_set_app_data(ssl, peer) != 1) return false;
    if (peer->is_address) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), peer->name) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return SSL_set1_host(ssl, peer->name) == 1 && SSL_set_tlsext_host_name(ssl, peer->name) == 1;
}

/* ---- the contents of a certificate ------------------------------------------------------------------------------- */

/* Appends bytes of a certificate, made harmless, after a comma if there are others. */
static void peer_append(char *out, size_t room, const unsigned char *bytes, size_t size) {
    size_t used = strlen(out);
    if (used + 8 >= room) return;
    if (used) used += (size_t)snprintf(out + used, room - used, ", ");
    for (size_t i = 0; i < size && used + 1 < room; i++)
        out[used++] = bytes[i] >= ' ' && bytes[i] < 127 ? (char)bytes[i] : '?';
    out[used] = '\0';
}

static void append_address(char *out, size_t room, const ASN1_OCTET_STRING *address) {
    char digits[INET6_ADDRSTRLEN] = "";
    int size = ASN1_STRING_length(address);
    if (size == 4 || size == 16)
        (void)inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(address), digits, sizeof digits);
    if (digits[0]) peer_append(out, room, (const unsigned char *)digits, strlen(digits));
}

static void read_names(X509 *certificate, char *out, size_t room) {
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    out[0] = '\0';
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type == GEN_DNS)
            peer_append(out, room, ASN1_STRING_get0_data(name->d.dNSName), (size_t)ASN1_STRING_length(name->d.dNSName));
        if (name->type == GEN_IPADD) append_address(out, room, name->d.iPAddress);
    }
    GENERAL_NAMES_free(names);
}

static void read_common_name(X509 *certificate, char *out, size_t room) {
    X509_NAME *subject = X509_get_subject_name(certificate);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    out[0] = '\0';
    if (at < 0) return;
    const ASN1_STRING *name = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
    peer_append(out, room, ASN1_STRING_get0_data(name), (size_t)ASN1_STRING_length(name));
}

static void peer_read_time(const ASN1_TIME *time, char *out, size_t room) {
    struct tm parts;
    out[0] = '\0';
    if (ASN1_TIME_to_tm(time, &parts)) strftime(out, room, "%Y-%m-%d %H:%M UTC", &parts);
}

int twi_tls_peer_note(int is_good, X509_STORE_CTX *store) {
    const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct twi_tls_peer *peer = ssl ? SSL_get_app_data(ssl) : NULL;
    if (is_good || !peer || peer->error) return is_good;
    X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    if (!certificate) certificate = X509_STORE_CTX_get0_cert(store);
    peer->error = X509_STORE_CTX_get_error(store);
    if (!certificate) return is_good;
    read_common_name(certificate, peer->subject, sizeof peer->subject);
    read_names(certificate, peer->names, sizeof peer->names);
    peer->has_no_names = !peer->names[0];
    if (!peer->names[0]) memcpy(peer->names, peer->subject, sizeof peer->subject);
    peer_read_time(X509_get0_notBefore(certificate), peer->since, sizeof peer->since);
    peer_read_time(X509_get0_notAfter(certificate), peer->until, sizeof peer->until);
    return is_good;
}

/* ---- in words ---------------------------------------------------------------------------------------------------- */

/* The fault of the certificate that was shown. */
static void certificate_reason(const struct twi_tls_peer *peer, char *out, size_t size) {
    const char *names = peer->names[0] ? peer->names : "nobody";
    switch (peer->error) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        if (peer->has_no_names) {
            snprintf(out, size,
                     "TLS: the certificate has its name (%s) as common name alone; asked for: %s as subjectAltName",
                     names, peer->name);
            return;
        }
        snprintf(out, size, "TLS: the certificate is for %s, not for %s (redis_tls_server_name names another)", names,
                 peer->name);
        return;
    case X509_V_ERR_CERT_HAS_EXPIRED:
        snprintf(out, size, "TLS: the certificate of %s expired at %s (asked for: %s)", names, peer->until, peer->name);
        return;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        snprintf(out, size, "TLS: the certificate of %s begins at %s (asked for: %s)", names, peer->since, peer->name);
        return;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        snprintf(out, size, "TLS: the certificate of %s is self-signed, and not in redis_tls_ca_file (asked for: %s)",
                 names, peer->name);
        return;
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE: /* the authority has the same name and is another one */
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        snprintf(
            out, size,
            "TLS: no authority that is believed (redis_tls_ca_file) stands behind the certificate of %s (asked for: "
            "%s)",
            names, peer->name);
        return;
    default:
        snprintf(out, size, "TLS: the certificate of %s: %s (asked for: %s)", names,
                 X509_verify_cert_error_string(peer->error), peer->name);
    }
}

/* The meaning of the other end's alert, or the reason why the two ends could not agree. NULL if it is another error. */
static const char *reason_of(int reason) {
    switch (reason) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "Redis wants a client certificate (redis_tls_cert_file, redis_tls_key_file)";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
        return "Redis refuses the handshake: it may want a client certificate (redis_tls_cert_file), or other ciphers";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA: return "Redis does not know the authority of our certificate";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED: return "Redis says that our certificate has expired";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED: return "Redis says that our certificate is revoked";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED: return "Redis refuses our certificate";
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_UNSUPPORTED_PROTOCOL: return "the other end speaks nothing as new as TLS 1.2";
    case SSL_R_WRONG_VERSION_NUMBER: return "what answers on this port does not speak TLS";
    default: return NULL;
    }
}

void twi_tls_peer_reason(const struct twi_tls_peer *peer, unsigned long error, char *out, size_t size) {
    if (peer->error && ERR_GET_REASON(error) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        certificate_reason(peer, out, size);
        return;
    }
    const char *reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? reason_of(ERR_GET_REASON(error)) : NULL;
    if (!reason) reason = ERR_reason_error_string(error);
    snprintf(out, size, "TLS: %s (asked for: %s)", reason ? reason : "failed", peer->name);
}
