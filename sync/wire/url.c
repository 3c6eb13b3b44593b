/* url.c -- reads a Redis URL. The parser is strict. It refuses everything that it does not understand, and names it. So
 * a typing error never becomes a connection to another server.
 * Always true: no part of the user name or the password reaches the error text. */
#include "sync/wire/url.h"

#include "engine/base/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

/* ---- endpoint ---- */

/* As in a URL, there are no blanks, no control characters, and no characters that separate hosts from other parts. */
static bool is_host(const char *host, size_t size) {
    if (size >= TWI_HOST_SIZE) return false;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)host[i] <= ' ' || host[i] == 127 || strchr(",/@[]", host[i])) return false;
    return true;
}

enum twi_endpoint_found twi_endpoint_read(const struct twi_endpoint *asked, const char *host, size_t size, int64_t port,
                                          struct twi_endpoint *endpoint) {
    twi_check(host != NULL || size == 0);
    if (port < 0 || port > 65535 || !is_host(host, size)) return TWI_ENDPOINT_BAD;
    if (port == 0 || (size == 1 && host[0] == '?')) return TWI_ENDPOINT_UNKNOWN;
    *endpoint = *asked;
    endpoint->is_unix = false;
    endpoint->port = (uint16_t)port;
    if (size == 0) return TWI_ENDPOINT_HERE;
    memset(endpoint->host, 0, sizeof endpoint->host);
    memcpy(endpoint->host, host, size);
    return TWI_ENDPOINT_HERE;
}

bool twi_endpoint_equals(const struct twi_endpoint *a, const struct twi_endpoint *b) {
    return a->is_unix == b->is_unix && a->is_tls == b->is_tls && (a->is_unix || a->port == b->port) &&
           strcmp(a->host, b->host) == 0 && strcmp(a->verify_name, b->verify_name) == 0;
}

void twi_endpoint_name(const struct twi_endpoint *endpoint, char *out, size_t size) {
    twi_check(size != 0);
    if (endpoint->is_unix)
        snprintf(out, size, "%s", endpoint->host);
    else
        snprintf(out, size, strchr(endpoint->host, ':') ? "[%s]:%u" : "%s:%u", endpoint->host, endpoint->port);
}

/* ---- tls options ---- */

bool twi_tls_options_are_unset(const struct twi_tls_options *options, char *error, size_t error_size) {
    const struct {
        const char *name, *value;
    } fields[] = {
        {"redis_tls_ca_file", options->ca_file},
        {"redis_tls_cert_file", options->cert_file},
        {"redis_tls_key_file", options->key_file},
        {"redis_tls_server_name", options->server_name},
        {"redis_tls_insecure", options->insecure ? "1" : NULL},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].value || !*fields[i].value) continue;
        snprintf(error, error_size, "%s: needs a redis_url that begins with rediss", fields[i].name);
        return false;
    }
    return true;
}

#define REDIS_PORT 6379
#define SENTINEL_PORT 26379

struct span {
    const char *text;
    size_t size;
};

static bool url_fail(char *error, size_t size, const char *text) {
    if (error && size) snprintf(error, size, "redis_url: %s", text);
    return false;
}

static int url_hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Undoes percent-encoding. Returns NULL, or the error, which is a bad %, a NUL byte, or a text that is too long. */
static const char *decode(struct span in, char *out, size_t room) {
    size_t used = 0;
    for (size_t i = 0; i < in.size; i++) {
        char c = in.text[i];
        if (c == '%') {
            int high = in.size - i > 2 ? url_hex(in.text[i + 1]) : -1;
            int low = in.size - i > 2 ? url_hex(in.text[i + 2]) : -1;
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

static bool url_number(struct span in, uint32_t max, uint32_t *value) {
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

struct scheme {
    const char *text;
    enum twi_url_kind kind;
    bool is_tls, is_unix;
};

static const struct scheme schemes[] = {
    {"redis://", TWI_URL_ONE, false, false},
    {"rediss://", TWI_URL_ONE, true, false},
    {"redis+cluster://", TWI_URL_CLUSTER, false, false},
    {"rediss+cluster://", TWI_URL_CLUSTER, true, false},
    {"redis+sentinel://", TWI_URL_SENTINEL, false, false},
    {"rediss+sentinel://", TWI_URL_SENTINEL, true, false},
    {"valkey://", TWI_URL_ONE, false, false},
    {"valkeys://", TWI_URL_ONE, true, false},
    {"valkey+cluster://", TWI_URL_CLUSTER, false, false},
    {"valkeys+cluster://", TWI_URL_CLUSTER, true, false},
    {"valkey+sentinel://", TWI_URL_SENTINEL, false, false},
    {"valkeys+sentinel://", TWI_URL_SENTINEL, true, false},
    {"unix://", TWI_URL_ONE, false, true},
};

/* Reads the scheme. Returns NULL, or why the scheme is refused. */
static const char *parse_scheme(const char **text, struct twi_url *url) {
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t size = strlen(schemes[i].text);
        if (strncmp(*text, schemes[i].text, size) != 0) continue;
        *text += size;
        url->kind = schemes[i].kind;
        url->is_tls = schemes[i].is_tls;
        url->is_unix = schemes[i].is_unix;
        return NULL;
    }
    return "must begin with redis:// or unix:// (or rediss://, redis+cluster://, redis+sentinel://)";
}

/* Reads user:password@ or :password@. A user without a password (user@) is refused, because without AUTH the connection
 * would act as the default user. */
static const char *parse_login(struct span *rest, struct twi_url *url) {
    const char *slash = memchr(rest->text, '/', rest->size);
    size_t authority = slash ? (size_t)(slash - rest->text) : rest->size;
    const char *at = memrchr(rest->text, '@', authority);
    if (!at) {
        /* A database has no @, and the part after the hosts of a cluster has no @. */
        bool is_cut =
            slash && !url->is_unix && url->kind != TWI_URL_SENTINEL && memchr(slash, '@', rest->size - authority);
        return is_cut ? "a / in a user name or a password is written %2F" : NULL;
    }
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

/* ---- seeds ------------------------------------------------------------------------------------------------------- */

static const char bad_port[] = "the port must be a number from 1 to 65535";

/* Returns where the next host of `hosts` begins. */
static size_t hosts_end(const struct twi_url *url) {
    if (url->seed_count == 0) return 0;
    size_t last = url->seeds[url->seed_count - 1].host_at;
    return last + strlen(url->hosts + last) + 1;
}

/* Decoded, a text is never longer than it was in the URL, and a comma leaves the room for a NUL. So all fit. */
static const char *add_seed(struct twi_url *url, struct span host, uint16_t port, size_t size_max) {
    twi_check(url->seed_count < TWI_URL_SEEDS_MAX);
    size_t at = hosts_end(url), room = sizeof url->hosts - at;
    const char *why = decode(host, url->hosts + at, room < size_max ? room : size_max);
    if (why) return why;
    url->seeds[url->seed_count++] = (struct twi_url_seed){.host_at = (uint16_t)at, .port = port};
    return NULL;
}

/* Cuts "[host]" or "[host]:port". */
static const char *split_brackets(struct span authority, struct span *host, struct span *port) {
    const char *close = memchr(authority.text, ']', authority.size);
    if (!close) return "an IPv6 address must end with ]";
    *host = (struct span){authority.text + 1, (size_t)(close - authority.text - 1)};
    size_t used = (size_t)(close + 1 - authority.text);
    if (!memchr(host->text, ':', host->size)) return "brackets are for IPv6 addresses";
    if (used == authority.size) return NULL;
    if (authority.text[used] != ':') return "only a port may follow ]";
    *port = (struct span){authority.text + used + 1, authority.size - used - 1};
    return NULL;
}

/* Cuts "host", "host:port" or the text in brackets. `port` has no text if the URL gives no port. */
static const char *split(struct span authority, struct span *host, struct span *port) {
    *port = (struct span){NULL, 0};
    if (authority.size && authority.text[0] == '[') return split_brackets(authority, host, port);
    *host = authority;
    const char *colon = memchr(authority.text, ':', authority.size);
    if (!colon) return NULL;
    host->size = (size_t)(colon - authority.text);
    *port = (struct span){colon + 1, authority.size - host->size - 1};
    return memchr(port->text, ':', port->size) ? "an IPv6 address must stand in brackets" : NULL;
}

static const char *parse_host(struct span authority, struct twi_url *url) {
    struct span host, port_text;
    uint32_t port = url->kind == TWI_URL_SENTINEL ? SENTINEL_PORT : REDIS_PORT;
    const char *why = split(authority, &host, &port_text);
    if (why) return why;
    if (port_text.text && (!url_number(port_text, 65535, &port) || port == 0)) return bad_port;
    if (host.size == 0) return "the host is missing";
    for (size_t i = 0; i < host.size; i++)
        if ((unsigned char)host.text[i] <= ' ' || host.text[i] == ',' || host.text[i] == 127)
            return "the host contains a character that no host name has (lists: redis+cluster://, redis+sentinel://)";
    why = add_seed(url, host, (uint16_t)port, TWI_HOST_SIZE);
    if (why) return strcmp(why, "is too long") == 0 ? "the host is too long" : "the host is wrongly encoded";
    return NULL;
}

/* Hosts with commas between them. */
static const char *parse_hosts(struct span list, struct twi_url *url) {
    if (list.size == 0) return "the list of hosts is empty: the host is missing";
    for (;;) {
        const char *comma = memchr(list.text, ',', list.size);
        struct span host = {list.text, comma ? (size_t)(comma - list.text) : list.size};
        if (url->seed_count == TWI_URL_SEEDS_MAX) return "more than 64 hosts";
        const char *why = parse_host(host, url);
        if (why || !comma) return why;
        list = (struct span){comma + 1, list.size - host.size - 1};
    }
}

/* ---- what follows the hosts -------------------------------------------------------------------------------------- */

/* "" or a number. */
static const char *parse_db(struct span db, struct twi_url *url) {
    if (db.size == 0 || url_number(db, 999999, &url->db)) return NULL;
    return "the database must be a number, as in redis://host:6379/0";
}

/* name, name/ or name/db */
static const char *parse_master(struct span path, struct twi_url *url) {
    const char *slash = memchr(path.text, '/', path.size);
    struct span name = {path.text, slash ? (size_t)(slash - path.text) : path.size};
    if (name.size == 0) return "the name of the master is missing, as in redis+sentinel://host:26379/name";
    if (decode(name, url->master, sizeof url->master) != NULL) return "the name of the master is wrongly encoded";
    return slash ? parse_db((struct span){slash + 1, path.size - name.size - 1}, url) : NULL;
}

static const char *parse_path(struct span path, struct twi_url *url) {
    if (url->kind == TWI_URL_SENTINEL) return parse_master(path, url);
    if (url->kind == TWI_URL_ONE) return parse_db(path, url);
    return path.size ? "a cluster has no databases: nothing may follow its hosts" : NULL;
}

static const char *parse_redis(struct span rest, struct twi_url *url) {
    for (size_t i = 0; i < rest.size; i++)
        if (rest.text[i] == '?' || rest.text[i] == '#')
            return "? and # are not understood here: a database is /N, all else stands in tw_options";
    const char *slash = memchr(rest.text, '/', rest.size);
    struct span authority = {rest.text, slash ? (size_t)(slash - rest.text) : rest.size};
    const char *why = url->kind == TWI_URL_ONE ? parse_host(authority, url) : parse_hosts(authority, url);
    if (why) return why;
    struct span path = {rest.text + rest.size, 0};
    if (slash) path = (struct span){slash + 1, rest.size - authority.size - 1};
    return parse_path(path, url);
}

static const char *parse_unix(struct span rest, struct twi_url *url) {
    const char *mark = memchr(rest.text, '?', rest.size);
    struct span path = {rest.text, mark ? (size_t)(mark - rest.text) : rest.size};
    if (path.size == 0 || path.text[0] != '/')
        return "the path of a unix socket must be absolute, as in unix:///run/redis.sock";
    const char *why = add_seed(url, path, 0, sizeof((struct sockaddr_un *)0)->sun_path);
    if (why)
        return strcmp(why, "is too long") == 0 ? "the path is longer than a unix socket's can be (107 bytes)"
                                               : "the path is wrongly encoded";
    if (!mark) return NULL;
    struct span db = {mark + 1, rest.size - path.size - 1};
    if (db.size < 3 || memcmp(db.text, "db=", 3) != 0) return "only ?db=N may follow the path";
    return url_number((struct span){db.text + 3, db.size - 3}, 999999, &url->db) ? NULL
                                                                                 : "db must be a number, as in ?db=0";
}

bool twi_url_parse(const char *text, struct twi_url *url, char *error, size_t error_size) {
    twi_check(text != NULL);
    memset(url, 0, sizeof *url);
    if (strnlen(text, TWI_URL_SIZE_MAX + 1) > TWI_URL_SIZE_MAX)
        return url_fail(error, error_size, "is longer than 2048 bytes");
    const char *why = parse_scheme(&text, url);
    if (!why) {
        struct span rest = {text, strlen(text)};
        why = parse_login(&rest, url);
        if (!why) why = url->is_unix ? parse_unix(rest, url) : parse_redis(rest, url);
    }
    twi_check(why || url->seed_count >= 1);
    if (!why) return true;
    twi_url_wipe(url);
    return url_fail(error, error_size, why);
}

void twi_url_wipe(struct twi_url *url) {
    explicit_bzero(url, sizeof *url);
}

struct twi_endpoint twi_url_seed(const struct twi_url *url, uint32_t i) {
    twi_check(i < url->seed_count);
    struct twi_endpoint endpoint = {.is_unix = url->is_unix, .is_tls = url->is_tls, .port = url->seeds[i].port};
    snprintf(endpoint.host, sizeof endpoint.host, "%s", url->hosts + url->seeds[i].host_at);
    return endpoint;
}
