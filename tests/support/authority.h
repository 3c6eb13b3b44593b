/* authority.h -- a certificate authority of the test's own, in a fresh folder: it issues what a test asks for, expired
 * and wrongly named certificates too. Only in builds with TLS.
 * Always true: keys are made new for each run; the folder is removed with authority_destroy(), or at exit. */
#ifndef TEST_AUTHORITY_H
#define TEST_AUTHORITY_H

#include <stdbool.h>
#include <stdint.h>

struct authority {
    char folder[64];
    char ca_file[96];
    void *key, *certificate;
};

/* Zeros are the defaults. */
struct certificate_wish {
    const char *common_name;  /* default "redis" */
    const char *names;        /* as OpenSSL's subjectAltName: "DNS:localhost,IP:127.0.0.1", the default; "": none */
    int64_t since_s, until_s; /* from now on; both 0: -3600 to 86400 */
    bool is_self_signed;      /* by its own key, not by the authority */
    const char *key_password; /* its key is encrypted with it */
};

struct issued {
    char cert_file[128], key_file[128];
};

void authority_make(struct authority *authority);
/* Writes folder/NAME.crt and NAME.key; files of that name are replaced. */
struct issued authority_issue(struct authority *authority, const char *name, const struct certificate_wish *wish);
void authority_destroy(struct authority *authority);

#endif
