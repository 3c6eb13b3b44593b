/* authority.c -- see authority.h. */
#include "tests/support/authority.h"
#include "tests/support/support.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#define AUTHORITIES_MAX 8

static struct authority *made[AUTHORITIES_MAX];
static pid_t owner;

#define must(x) must_be((x), #x)
static void must_be(bool is_good, const char *text) {
    if (!is_good) fail_msg("%s failed", text);
}

/* ---- one certificate --------------------------------------------------------------------------------------------- */

static EVP_PKEY *make_key(void) {
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, NULL);
    must(context && EVP_PKEY_keygen_init(context) == 1);
    must(EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1);
    must(EVP_PKEY_keygen(context, &key) == 1);
    EVP_PKEY_CTX_free(context);
    return key;
}

static void extend(X509 *certificate, int nid, const char *value) {
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    must(extension && X509_add_ext(certificate, extension, -1) == 1);
    X509_EXTENSION_free(extension);
}

static X509 *make_certificate(EVP_PKEY *key, const char *common_name, int64_t since_s, int64_t until_s) {
    static long serial;
    X509 *certificate = X509_new();
    must(certificate && X509_set_version(certificate, 2) == 1);
    must(ASN1_INTEGER_set(X509_get_serialNumber(certificate), (long)getpid() * 1000 + ++serial) == 1);
    must(X509_gmtime_adj(X509_getm_notBefore(certificate), (long)since_s));
    must(X509_gmtime_adj(X509_getm_notAfter(certificate), (long)until_s));
    must(X509_set_pubkey(certificate, key) == 1);
    must(X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                                    (const unsigned char *)common_name, -1, -1, 0) == 1);
    return certificate;
}

static void write_certificate(const char *path, X509 *certificate) {
    FILE *file = fopen(path, "we");
    must(file && PEM_write_X509(file, certificate) == 1 && fclose(file) == 0);
}

static void write_key(const char *path, EVP_PKEY *key, const char *password) {
    FILE *file = fopen(path, "we");
    must(file && PEM_write_PrivateKey(file, key, password ? EVP_aes_128_cbc() : NULL, (const unsigned char *)password,
                                      password ? (int)strlen(password) : 0, NULL, NULL) == 1);
    must(fclose(file) == 0);
}

struct issued authority_issue(struct authority *authority, const char *name, const struct certificate_wish *wish) {
    struct issued issued;
    bool always = wish->since_s == 0 && wish->until_s == 0;
    const char *names = wish->names ? wish->names : "DNS:localhost,IP:127.0.0.1";
    EVP_PKEY *key = make_key();
    X509 *certificate = make_certificate(key, wish->common_name ? wish->common_name : "redis",
                                         always ? -3600 : wish->since_s, always ? 86400 : wish->until_s);
    X509_NAME *issuer =
        wish->is_self_signed ? X509_get_subject_name(certificate) : X509_get_subject_name(authority->certificate);
    must(X509_set_issuer_name(certificate, issuer) == 1);
    if (names[0]) extend(certificate, NID_subject_alt_name, names);
    must(X509_sign(certificate, wish->is_self_signed ? key : authority->key, EVP_sha256()) > 0);
    snprintf(issued.cert_file, sizeof issued.cert_file, "%s/%s.crt", authority->folder, name);
    snprintf(issued.key_file, sizeof issued.key_file, "%s/%s.key", authority->folder, name);
    write_certificate(issued.cert_file, certificate);
    write_key(issued.key_file, key, wish->key_password);
    (void)chmod(issued.key_file, 0600);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return issued;
}

/* ---- the authority ----------------------------------------------------------------------------------------------- */

static void destroy_all(void) {
    for (size_t i = 0; i < AUTHORITIES_MAX && getpid() == owner; i++)
        if (made[i]) authority_destroy(made[i]);
}

static void enlist(struct authority *authority) {
    if (owner != getpid()) atexit(destroy_all);
    owner = getpid();
    size_t i = 0;
    while (i < AUTHORITIES_MAX && made[i]) i++;
    must(i < AUTHORITIES_MAX);
    made[i] = authority;
}

void authority_make(struct authority *authority) {
    memset(authority, 0, sizeof *authority);
    strcpy(authority->folder, "/tmp/tallywheel-tls-XXXXXX");
    must(mkdtemp(authority->folder));
    enlist(authority);
    snprintf(authority->ca_file, sizeof authority->ca_file, "%s/ca.crt", authority->folder);
    authority->key = make_key();
    char name[64];
    snprintf(name, sizeof name, "authority of %s", authority->folder + strlen("/tmp/"));
    X509 *certificate = make_certificate(authority->key, name, -7200, 172800);
    must(X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) == 1);
    extend(certificate, NID_basic_constraints, "critical,CA:TRUE");
    extend(certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
    must(X509_sign(certificate, authority->key, EVP_sha256()) > 0);
    authority->certificate = certificate;
    write_certificate(authority->ca_file, certificate);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

void authority_destroy(struct authority *authority) {
    for (size_t i = 0; i < AUTHORITIES_MAX; i++)
        if (made[i] == authority) made[i] = NULL;
    if (authority->folder[0] != '\0') nftw(authority->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    authority->folder[0] = '\0';
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
    authority->key = authority->certificate = NULL;
}
