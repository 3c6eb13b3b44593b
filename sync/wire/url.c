/* url.c -- reads a Redis URL. Strict: whatever is not understood is refused by name, so that a typing error never
 * becomes a connection to somewhere else. Always true: nothing of the user part reaches the error text. */
#include "sync/wire/url.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

struct span {
    const char *text;
    size_t size;
};

static bool fail(char *error, size_t size, const char *text) {
    if (error && size) snprintf(error, size, "redis_url: %s", text);
    return false;
}

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Undoes percent-encoding. NULL or what is wrong: a cut or impossible %, a NUL byte, too long. */
static const char *decode(struct span in, char *out, size_t room) {
    size_t used = 0;
    for (size_t i = 0; i < in.size; i++) {
        char c = in.text[i];
        if (c == '%') {
            int high = in.size - i > 2 ? hex(in.text[i + 1]) : -1;
            int low = in.size - i > 2 ? hex(in.text[i + 2]) : -1;
            if (high < 0 || low < 0) return "needs two hexadecimal digits after every %";
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == '\0') return "contains a NUL byte";
        if (used + 1 >= room) return "is too long";
        out[used++] = c;
    }
    out[used] = '\0';
    return NULL;
}

static bool number(struct span in, uint32_t max, uint32_t *value) {
    uint64_t n = 0;
    if (in.size == 0 || in.size > 10) return false;
    for (size_t i = 0; i < in.size; i++) {
        if (in.text[i] < '0' || in.text[i] > '9') return false;
        n = n * 10 + (uint64_t)(in.text[i] - '0');
    }
    if (n > max) return false;
    *value = (uint32_t)n;
    return true;
}

/* The scheme, or why it is refused. */
static const char *parse_scheme(const char **text, bool *is_unix) {
    static const struct {
        const char *scheme, *why;
    } refused[] = {
        {"rediss://", "rediss:// (TLS) is not supported by this version"},
        {"redis+cluster://", "redis+cluster:// is not supported by this version"},
        {"redis+sentinel://", "redis+sentinel:// is not supported by this version"},
    };
    if (strncmp(*text, "redis://", 8) == 0) {
        *text += 8, *is_unix = false;
        return NULL;
    }
    if (strncmp(*text, "unix://", 7) == 0) {
        *text += 7, *is_unix = true;
        return NULL;
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strncmp(*text, refused[i].scheme, strlen(refused[i].scheme)) == 0) return refused[i].why;
    return "must begin with redis:// or unix://";
}

/* user:password@, :password@ or user@ (a user without a password is refused: it would log in as somebody else). */
static const char *parse_login(struct span *rest, struct twi_url *url) {
    const char *slash = memchr(rest->text, '/', rest->size);
    size_t authority = slash ? (size_t)(slash - rest->text) : rest->size;
    const char *at = memrchr(rest->text, '@', authority);
    if (!at) return NULL;
    struct span login = {rest->text, (size_t)(at - rest->text)};
    const char *colon = memchr(login.text, ':', login.size);
    if (!colon) return "a user name needs a password: user:password@ (or :password@ for the default user)";
    const char *why = decode((struct span){login.text, (size_t)(colon - login.text)}, url->user, sizeof url->user);
    if (why) return strcmp(why, "is too long") == 0 ? "the user name is too long" : "the user name is wrongly encoded";
    why = decode((struct span){colon + 1, (size_t)(at - colon - 1)}, url->password, sizeof url->password);
    if (why) return strcmp(why, "is too long") == 0 ? "the password is too long" : "the password is wrongly encoded";
    url->has_password = url->password[0] != '\0';
    if (!url->has_password && url->user[0]) return "the password is empty";
    rest->size -= (size_t)(at + 1 - rest->text);
    rest->text = at + 1;
    return NULL;
}

static const char *parse_port(struct span in, struct twi_url *url) {
    uint32_t port = 0;
    if (!number(in, 65535, &port) || port == 0) return "the port must be a number from 1 to 65535";
    url->port = (uint16_t)port;
    return NULL;
}

static const char *parse_host(struct span authority, struct twi_url *url) {
    struct span host = authority, port = {NULL, 0};
    if (authority.size && authority.text[0] == '[') {
        const char *close = memchr(authority.text, ']', authority.size);
        if (!close) return "an IPv6 address must end with ]";
        host = (struct span){authority.text + 1, (size_t)(close - authority.text - 1)};
        size_t used = (size_t)(close + 1 - authority.text);
        if (used < authority.size) {
            if (authority.text[used] != ':') return "only a port may follow ]";
            port = (struct span){authority.text + used + 1, authority.size - used - 1};
            if (port.size == 0) return "the port must be a number from 1 to 65535";
        }
        if (!memchr(host.text, ':', host.size)) return "brackets are for IPv6 addresses";
    } else {
        const char *colon = memchr(authority.text, ':', authority.size);
        if (colon) {
            host.size = (size_t)(colon - authority.text);
            port = (struct span){colon + 1, authority.size - host.size - 1};
            if (memchr(port.text, ':', port.size)) return "an IPv6 address must stand in brackets";
            if (port.size == 0) return "the port must be a number from 1 to 65535";
        }
    }
    if (host.size == 0) return "the host is missing";
    for (size_t i = 0; i < host.size; i++)
        if ((unsigned char)host.text[i] <= ' ' || host.text[i] == ',' || host.text[i] == 127)
            return "the host contains a character that no host name has";
    const char *why = decode(host, url->host, sizeof url->host);
    if (why) return strcmp(why, "is too long") == 0 ? "the host is too long" : "the host is wrongly encoded";
    return port.text ? parse_port(port, url) : NULL;
}

static const char *parse_redis(struct span rest, struct twi_url *url) {
    const char *slash = memchr(rest.text, '/', rest.size);
    struct span authority = {rest.text, slash ? (size_t)(slash - rest.text) : rest.size};
    if (memchr(rest.text, '?', rest.size) || memchr(rest.text, '#', rest.size))
        return "? and # are not understood here";
    const char *why = parse_host(authority, url);
    if (why || !slash || slash + 1 == rest.text + rest.size) return why;
    struct span db = {slash + 1, rest.size - authority.size - 1};
    return number(db, 999999, &url->db) ? NULL : "the database must be a number, as in redis://host:6379/0";
}

static const char *parse_unix(struct span rest, struct twi_url *url) {
    const char *mark = memchr(rest.text, '?', rest.size);
    struct span path = {rest.text, mark ? (size_t)(mark - rest.text) : rest.size};
    if (path.size == 0 || path.text[0] != '/')
        return "the path of a unix socket must be absolute, as in unix:///run/redis.sock";
    const char *why = decode(path, url->host, sizeof url->host);
    if (!why && strlen(url->host) >= sizeof((struct sockaddr_un *)0)->sun_path) why = "is too long";
    if (why)
        return strcmp(why, "is too long") == 0 ? "the path is longer than a unix socket's can be (107 bytes)"
                                               : "the path is wrongly encoded";
    if (!mark) return NULL;
    struct span db = {mark + 1, rest.size - path.size - 1};
    if (db.size < 3 || memcmp(db.text, "db=", 3) != 0) return "only ?db=N may follow the path";
    return number((struct span){db.text + 3, db.size - 3}, 999999, &url->db) ? NULL
                                                                             : "db must be a number, as in ?db=0";
}

bool twi_url_parse(const char *text, struct twi_url *url, char *error, size_t error_size) {
    memset(url, 0, sizeof *url);
    if (strnlen(text, TWI_URL_SIZE_MAX + 1) > TWI_URL_SIZE_MAX)
        return fail(error, error_size, "is longer than 2048 bytes");
    url->port = 6379;
    const char *why = parse_scheme(&text, &url->is_unix);
    if (!why) {
        struct span rest = {text, strlen(text)};
        why = parse_login(&rest, url);
        if (!why) why = url->is_unix ? parse_unix(rest, url) : parse_redis(rest, url);
    }
    if (!why) return true;
    twi_url_wipe(url);
    return fail(error, error_size, why);
}

void twi_url_wipe(struct twi_url *url) {
    explicit_bzero(url, sizeof *url);
}

void twi_url_name(const struct twi_url *url, char *out, size_t size) {
    if (url->is_unix)
        snprintf(out, size, "%s", url->host);
    else
        snprintf(out, size, strchr(url->host, ':') ? "[%s]:%u" : "%s:%u", url->host, url->port);
}
