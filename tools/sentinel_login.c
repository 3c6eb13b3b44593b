/* sentinel_login.c -- see sentinel_login.h. */
#include "sentinel_login.h"

#include <stdio.h>

int sentinel_login_password(void *ctx, char *out, size_t size) {
    const char *password = getenv(SENTINEL_PASSWORD);
    (void)ctx;
    return snprintf(out, size, "%s", password != NULL ? password : "");
}
