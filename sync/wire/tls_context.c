/* tls_context.c -- see tls_context.h.
 *
 * `lock` guards the context, the stamps of the files, the sessions and the news; it is locked inside of
 * twi_tls_enter()/leave() only, so that it is free in a forked child. A context in use never changes. Files that
 * were read again make another one, and sessions made with the previous one are dropped, because other authorities
 * accepted them. Always true: OpenSSL's own clean-up at exit() is switched off, as far as we are the first to use it
 * in this process. Otherwise OpenSSL would free memory while a thread still uses it. */
#include "sync/wire/tls_context.h"

#include "engine/base/atomic.h"
#include "engine/base/threads.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- tls peer ---- */

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

enum file { CA, CERT, KEY, FILES };

/* The properties that change when a file changes. */
struct stamp {
    bool is_there;
    dev_t device;
    ino_t number;
    off_t size;
    struct timespec changed;
};

/* The last session of an endpoint; the one that was used last comes first. */
struct session {
    struct session *next;
    SSL_SESSION *session;
    const SSL_CTX *context;
    char key[];
};

struct twi_tls {
    struct twi_tls_options options; /* its texts are ours */
    pthread_mutex_t lock;
    SSL_CTX *context;
    struct stamp stamps[FILES]; /* of the files at the last attempt to read them */
    struct session *sessions;
    struct twi_tls_news news; /* `text` is "" if there is none */
    _Atomic int64_t handshakes, resumed, refused;
};

/* ---- fork -------------------------------------------------------------------------------------------------------- */

static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pid_t gate_pid; /* the context of its gate; written before there are threads */

static void gate_close(void) {
    pthread_rwlock_wrlock(&gate);
}

static void gate_open(void) {
    pthread_rwlock_unlock(&gate);
}

void twi_tls_forked(void) {
    if (gate_pid == getpid()) return;
#ifdef __SANITIZE_THREAD__
    pthread_rwlock_unlock(&gate); /* otherwise ThreadSanitizer would always treat it as locked by the child */
#endif
    gate = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP; /* it was closed by the parent */
    gate_pid = getpid();
}

void twi_tls_enter(void) {
    pthread_rwlock_rdlock(&gate);
}

void twi_tls_leave(void) {
    pthread_rwlock_unlock(&gate);
}

static void context_begin(void) {
    gate_pid = getpid();
    pthread_atfork(gate_close, gate_open, twi_tls_forked);
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static const char *const fields[FILES] = {"redis_tls_ca_file", "redis_tls_cert_file", "redis_tls_key_file"};

static const char *path_of(const struct twi_tls *tls, enum file file) {
    const char *const paths[FILES] = {tls->options.ca_file, tls->options.cert_file, tls->options.key_file};
    return paths[file];
}

static struct stamp stamp_of(const char *path) {
    struct stat stat_now;
    if (!path || stat(path, &stat_now) != 0) return (struct stamp){.is_there = false};
    return (struct stamp){true, stat_now.st_dev, stat_now.st_ino, stat_now.st_size, stat_now.st_mtim};
}

static bool stamp_equals(const struct stamp *a, const struct stamp *b) {
    return a->is_there == b->is_there && a->device == b->device && a->number == b->number && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Notes the files as they are now. Returns true if one is not as it was. If no file of authorities is given, the
 * system's is looked at. */
static bool files_changed(struct twi_tls *tls) {
    bool changed = false;
    for (enum file file = CA; file < FILES; file++) {
        const char *path = path_of(tls, file);
        struct stamp now = stamp_of(path || file != CA ? path : X509_get_default_cert_file());
        changed = changed || !stamp_equals(&now, &tls->stamps[file]);
        tls->stamps[file] = now;
    }
    return changed;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static void session_drop(struct session **at) {
    struct session *session = *at;
    *at = session->next;
    SSL_SESSION_free(session->session);
    free(session);
}

static struct session **session_find(struct twi_tls *tls, const char *key) {
    struct session **at = &tls->sessions;
    while (*at && strcmp((*at)->key, key) != 0) at = &(*at)->next;
    return at;
}

/* Called when Redis grants a session. OpenSSL calls this while it reads. Returns 1 if the session now belongs to us. */
static int session_new(SSL *ssl, SSL_SESSION *granted) {
    SSL_CTX *context = SSL_get_SSL_CTX(ssl);
    struct twi_tls *tls = SSL_CTX_get_app_data(context);
    const struct twi_tls_peer *peer = SSL_get_app_data(ssl);
    struct session *session = peer ? malloc(sizeof *session + strlen(peer->key) + 1) : NULL;
    if (!session) return 0;
    strcpy(session->key, peer->key);
    session->session = granted;
    session->context = context;
    twi_lock(&tls->lock);
    struct session **before = session_find(tls, peer->key);
    if (*before) session_drop(before);
    session->next = tls->sessions;
    tls->sessions = session;
    uint32_t count = 0;
    for (struct session **at = &tls->sessions; *at; at = &(*at)->next)
        if (++count > TWI_TLS_SESSIONS_MAX) {
            session_drop(at);
            break;
        }
    twi_unlock(&tls->lock);
    return 1;
}

SSL_SESSION *twi_tls_session(struct twi_tls *tls, const SSL_CTX *context, const char *key) {
    SSL_SESSION *found = NULL;
    twi_lock(&tls->lock);
    struct session *session = *session_find(tls, key);
    if (session && session->context == context && SSL_SESSION_is_resumable(session->session)) {
        found = session->session;
        SSL_SESSION_up_ref(found);
    }
    twi_unlock(&tls->lock);
    return found;
}

void twi_tls_session_forget(struct twi_tls *tls, const char *key) {
    twi_lock(&tls->lock);
    struct session **at = session_find(tls, key);
    if (*at) session_drop(at);
    twi_unlock(&tls->lock);
}

static void sessions_drop_all(struct twi_tls *tls) {
    while (tls->sessions) session_drop(&tls->sessions);
}

/* ---- a context --------------------------------------------------------------------------------------------------- */

static bool context_refuse(char *error, size_t size, const char *field, const char *what) {
    snprintf(error, size, "%s: %s", field, what);
    ERR_clear_error();
    return false;
}

/* Returns why OpenSSL refused a file. */
static bool refuse_file(const struct twi_tls *tls, enum file file, char *error, size_t size) {
    unsigned long why = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(why);
    char text[160];
    if (access(path_of(tls, file), R_OK) != 0) return context_refuse(error, size, fields[file], strerror(errno));
    snprintf(text, sizeof text, "cannot be used (PEM is asked for): %s", reason ? reason : "not understood");
    return context_refuse(error, size, fields[file], text);
}

/* Called for an encrypted key. No password is requested, because no person may be at a terminal. */
static int no_password(char *out, int room, int is_writing, void *asked) {
    (void)out, (void)room, (void)is_writing;
    *(bool *)asked = true;
    return -1;
}

static bool context_take_own(const struct twi_tls *tls, SSL_CTX *context, char *error, size_t size) {
    bool asked = false;
    if (!tls->options.cert_file) return true;
    if (SSL_CTX_use_certificate_chain_file(context, tls->options.cert_file) != 1)
        return refuse_file(tls, CERT, error, size);
    SSL_CTX_set_default_passwd_cb(context, no_password);
    SSL_CTX_set_default_passwd_cb_userdata(context, &asked);
    bool taken = SSL_CTX_use_PrivateKey_file(context, tls->options.key_file, SSL_FILETYPE_PEM) == 1;
    SSL_CTX_set_default_passwd_cb_userdata(context, NULL);
    SSL_CTX_set_default_passwd_cb(context, NULL);
    if (asked) return context_refuse(error, size, fields[KEY], "is encrypted; a key without a password is needed");
    /* A key of another certificate is refused at once, because the certificate was set first. */
    if (!taken && ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH)
        return context_refuse(error, size, fields[KEY], "is not the key of redis_tls_cert_file");
    if (!taken) return refuse_file(tls, KEY, error, size);
    if (SSL_CTX_check_private_key(context) == 1) return true;
    return context_refuse(error, size, fields[KEY], "is not the key of redis_tls_cert_file");
}

static bool take_authorities(const struct twi_tls *tls, SSL_CTX *context, char *error, size_t size) {
    if (tls->options.insecure) {
        SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
        return true;
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, twi_tls_peer_note);
    if (tls->options.ca_file)
        return SSL_CTX_load_verify_locations(context, tls->options.ca_file, NULL) == 1 ||
               refuse_file(tls, CA, error, size);
    return SSL_CTX_set_default_verify_paths(context) == 1 ||
           context_refuse(error, size, fields[CA], "not given, and the system's authorities cannot be read");
}

/* Returns NULL on an error; `error` then has the reason. */
static SSL_CTX *context_make(struct twi_tls *tls, char *error, size_t size) {
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context) {
        context_refuse(error, size, "TLS", "no memory");
        return NULL;
    }
    /* When bytes are sent again, they may have moved in memory, and there may be more of them. Buffers are not kept
     * while a connection is idle, because they need 38 KB each, and have data in them. */
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_read_ahead(context, 1); /* a record's head and body by one call */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, session_new);
    SSL_CTX_set_app_data(context, tls);
    bool good = SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 ||
                context_refuse(error, size, "TLS", "this OpenSSL knows nothing as new as TLS 1.2");
    good = good && take_authorities(tls, context, error, size) && context_take_own(tls, context, error, size);
    ERR_clear_error();
    if (good) return context;
    SSL_CTX_free(context);
    return NULL;
}

/* ---- news, counts ------------------------------------------------------------------------------------------------ */

bool twi_tls_news(struct twi_tls *tls, struct twi_tls_news *news) {
    twi_tls_enter();
    twi_lock(&tls->lock);
    *news = tls->news;
    tls->news.text[0] = '\0';
    twi_unlock(&tls->lock);
    twi_tls_leave();
    return news->text[0] != '\0';
}

/* Called under the lock. Good news does not overwrite bad news. */
static void context_tell(struct twi_tls *tls, bool is_bad, const char *text, const char *detail) {
    if (!is_bad && tls->news.text[0] && tls->news.is_bad) return;
    tls->news.is_bad = is_bad;
    snprintf(tls->news.text, sizeof tls->news.text, "%s%s", text, detail);
}

void twi_tls_shaken(struct twi_tls *tls, bool resumed) {
    twi_add_relaxed(&tls->handshakes, 1);
    if (resumed) twi_add_relaxed(&tls->resumed, 1);
    if (!tls->options.insecure) return;
    twi_lock(&tls->lock);
    context_tell(tls, true, "redis_tls_insecure: Redis's certificate was not looked at; ",
                 "whoever stands in between can read and change everything, the password too");
    twi_unlock(&tls->lock);
}

void twi_tls_refuse(struct twi_tls *tls) {
    twi_add_relaxed(&tls->refused, 1);
}

struct twi_tls_counts twi_tls_counts(const struct twi_tls *tls) {
    return (struct twi_tls_counts){.handshakes = twi_load_relaxed(&tls->handshakes),
                                   .resumed = twi_load_relaxed(&tls->resumed),
                                   .refused = twi_load_relaxed(&tls->refused)};
}

/* ---- the context of now ------------------------------------------------------------------------------------------ */

/* Under the lock. Otherwise whoever reads the key could act as this client. */
static void warn_of_key(struct twi_tls *tls) {
    struct stat status;
    char mode[40];
    const char *path = tls->options.key_file;
    if (!path || stat(path, &status) != 0 || (status.st_mode & S_IROTH) == 0) return;
    snprintf(mode, sizeof mode, "others may read it (mode %04o)", (unsigned)(status.st_mode & 07777));
    context_tell(tls, true, "redis_tls_key_file: ", mode);
}

/* Under the lock. */
static void read_anew(struct twi_tls *tls) {
    char error[TWI_TLS_ERROR_MAX];
    SSL_CTX *context = context_make(tls, error, sizeof error);
    if (!context) {
        context_tell(tls, true, "TLS: files have changed and cannot be used; what was read before stays: ", error);
        return;
    }
    sessions_drop_all(tls);
    SSL_CTX_free(tls->context); /* open connections keep it */
    tls->context = context;
    context_tell(tls, false, "TLS: certificates have changed and were read anew", "");
    warn_of_key(tls);
}

SSL_CTX *twi_tls_context(struct twi_tls *tls) {
    twi_lock(&tls->lock);
    if (files_changed(tls)) read_anew(tls);
    SSL_CTX *context = tls->context;
    SSL_CTX_up_ref(context);
    twi_unlock(&tls->lock);
    return context;
}

const struct twi_tls_options *twi_tls_options_of(const struct twi_tls *tls) {
    return &tls->options;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bool context_copy(const char **text) {
    if (*text && **text == '\0') *text = NULL;
    if (!*text) return true;
    *text = strdup(*text);
    return *text != NULL;
}

/* Returns true, or false with the wrong option in `error`. */
static bool context_check(const struct twi_tls_options *options, char *error, size_t size) {
    if (options->cert_file && !options->key_file)
        return context_refuse(error, size, fields[KEY], "missing: redis_tls_cert_file is given");
    if (options->key_file && !options->cert_file)
        return context_refuse(error, size, fields[CERT], "missing: redis_tls_key_file is given");
    if (options->server_name && strlen(options->server_name) >= TWI_HOST_SIZE)
        return context_refuse(error, size, "redis_tls_server_name", "longer than 255 bytes");
    return true;
}

struct twi_tls *twi_tls_create(const struct twi_tls_options *options, char *error, size_t size) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, context_begin);
    twi_tls_forked();
    struct twi_tls *tls = calloc(1, sizeof *tls);
    if (!tls) {
        context_refuse(error, size, "TLS", "no memory");
        return NULL;
    }
    pthread_mutex_init(&tls->lock, NULL);
    tls->options = *options;
    bool copied = context_copy(&tls->options.ca_file);
    copied = context_copy(&tls->options.cert_file) && copied;
    copied = context_copy(&tls->options.key_file) && copied;
    copied = context_copy(&tls->options.server_name) && copied;
    bool good = copied ? context_check(&tls->options, error, size) : context_refuse(error, size, "TLS", "no memory");
    twi_tls_enter();
    (void)files_changed(tls);
    if (good) tls->context = context_make(tls, error, size);
    if (tls->context) warn_of_key(tls);
    twi_tls_leave();
    if (tls->context) return tls;
    twi_tls_destroy(tls);
    return NULL;
}

void twi_tls_destroy(struct twi_tls *tls) {
    if (!tls) return;
    twi_tls_enter();
    sessions_drop_all(tls);
    SSL_CTX_free(tls->context);
    twi_tls_leave();
    pthread_mutex_destroy(&tls->lock);
    free((void *)(uintptr_t)tls->options.ca_file);
    free((void *)(uintptr_t)tls->options.cert_file);
    free((void *)(uintptr_t)tls->options.key_file);
    free((void *)(uintptr_t)tls->options.server_name);
    free(tls);
}
