/* endpoint.h -- where one server listens, and with which protocol. It has all data that a transport needs in order to
 * connect. Pure data: no login, no database, no state. Always true: a copy of an endpoint is as good as the
 * endpoint. */
#ifndef TWI_SYNC_WIRE_ENDPOINT_H
#define TWI_SYNC_WIRE_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWI_HOST_SIZE 256          /* of a host, with its NUL */
#define TWI_ENDPOINT_NAME_SIZE 300 /* of "host:port", with its NUL */

struct twi_endpoint {
    bool is_unix;                    /* `host` is the path of a socket, and `port` is unused */
    bool is_tls;                     /* TLS is spoken from the first byte on */
    uint16_t port;                   /* 1 to 65535 */
    char host[TWI_HOST_SIZE];        /* a name, or an address without brackets. A path has at most 107 bytes */
    char verify_name[TWI_HOST_SIZE]; /* with TLS, the name that the certificate must have; "" for `host` */
};

/* How a node of a Redis Cluster describes the place of another one. */
enum twi_endpoint_found {
    TWI_ENDPOINT_HERE,
    TWI_ENDPOINT_UNKNOWN, /* it is unknown to the node */
    TWI_ENDPOINT_BAD      /* no host name or address, or no port */
};

/* Reads a host and a port. An empty host means the host of `asked`, which is the node that sent it; "?" means an
 * unknown host. TLS and the name to verify are those of `asked`. */
enum twi_endpoint_found twi_endpoint_read(const struct twi_endpoint *asked, const char *host, size_t size, int64_t port,
                                          struct twi_endpoint *endpoint);
bool twi_endpoint_equals(const struct twi_endpoint *a, const struct twi_endpoint *b);
/* Writes "host:port", "[::1]:port" or the path, for log lines. */
void twi_endpoint_name(const struct twi_endpoint *endpoint, char *out, size_t size);

#endif
