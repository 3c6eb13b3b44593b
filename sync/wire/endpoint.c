/* endpoint.c -- see endpoint.h. */
#include "sync/wire/endpoint.h"

#include "engine/base/check.h"

#include <stdio.h>
#include <string.h>

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
