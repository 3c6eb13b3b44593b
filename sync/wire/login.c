/* login.c -- see login.h. */
#include "sync/wire/login.h"

#include "engine/base/check.h"
#include "engine/port/services.h"

#include <stdio.h>
#include <string.h>

static int fetch(const struct twi_login *login, char *password, size_t size) {
    twi_check(size != 0);
    if (login->ask == NULL) return snprintf(password, size, "%s", login->password ? login->password : "");
    return twi_port_ask_password(login->ask, login->ask_ctx, password, size);
}

enum twi_login_put twi_login_put(const struct twi_login *login, struct twi_bytes *out) {
    char password[TWI_PASSWORD_SIZE] = "";
    enum twi_login_put done = TWI_LOGIN_NONE;
    int length = fetch(login, password, sizeof password);
    if (length < 0 || (size_t)length >= sizeof password) {
        done = TWI_LOGIN_FAILED;
    } else if (length > 0) {
        bool has_user = login->user && login->user[0];
        done = TWI_LOGIN_PUT;
        twi_wire_begin(out, has_user ? 3 : 2);
        twi_wire_put_text(out, "AUTH");
        if (has_user) twi_wire_put_text(out, login->user);
        twi_wire_put(out, password, (size_t)length);
    }
    explicit_bzero(password, sizeof password);
    return done;
}
