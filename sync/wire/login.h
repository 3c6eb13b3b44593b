/* login.h -- the user and password for a server, and the AUTH command with them.
 * Always true: a password is in no other memory than the caller's and `out`, which the caller wipes
 * once it was sent. */
#ifndef TWI_SYNC_WIRE_LOGIN_H
#define TWI_SYNC_WIRE_LOGIN_H

#include "sync/wire/wire.h"

#define TWI_PASSWORD_SIZE 1024 /* with its NUL */

/* The texts have another owner. All zero means that there is no login. */
struct twi_login {
    const char *user;                                   /* NULL or "": the default user */
    const char *password;                               /* NULL or "" if there is none, or if ask() gives it */
    int (*ask)(void *ctx, char *password, size_t size); /* writes a C string; returns its length, or -1. May be NULL */
    void *ask_ctx;
};

enum twi_login_put { TWI_LOGIN_FAILED = -1, TWI_LOGIN_NONE = 0, TWI_LOGIN_PUT = 1 };

/* FAILED means that the callback failed, or that its text is too long. NONE means that there is no password, so no
 * command was put. */
enum twi_login_put twi_login_put(const struct twi_login *login, struct twi_bytes *out);

#endif
