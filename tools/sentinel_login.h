/* sentinel_login.h -- the login of sentinels, for every command that goes to a Redis: out of the environment, for the
 * arguments of a command are seen by everybody. */
#ifndef TOOL_SENTINEL_LOGIN_H
#define TOOL_SENTINEL_LOGIN_H

#include <stddef.h>
#include <stdlib.h>

#define SENTINEL_USER "TALLYWHEEL_SENTINEL_USER"
#define SENTINEL_PASSWORD "TALLYWHEEL_SENTINEL_PASSWORD"

/* In the help text, behind --redis. */
#define SENTINEL_LOGIN_HELP \
    "                      (the login of the sentinels: " SENTINEL_USER ",\n" \
    "                      " SENTINEL_PASSWORD " in the environment)\n"

/* A callback of tw_options and tw_audit_options. */
int sentinel_login_password(void *ctx, char *out, size_t size);

/* `options`: a tw_options or a tw_audit_options. */
#define sentinel_login_apply(options) \
    ((options)->sentinel_user = getenv(SENTINEL_USER), \
     (options)->sentinel_password = getenv(SENTINEL_PASSWORD) != NULL ? sentinel_login_password : NULL)

#endif
