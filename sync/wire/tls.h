/* tls.h -- a connection inside TLS: a transport (socket.h) over the transport of plain sockets.
 *
 * Always true: connect() is done when the handshake is, and the certificate was found to have the name that was
 * requested. Nothing ever goes out in the clear, and nothing is tried without TLS after TLS was refused. What
 * redis_tls_insecure leaves out is the check of the certificate, nothing else. */
#ifndef TWI_SYNC_WIRE_TLS_H
#define TWI_SYNC_WIRE_TLS_H

#include "sync/wire/socket.h"
#include "sync/wire/tls_context.h"

extern const struct twi_transport twi_tls_transport; /* its create() takes a struct twi_tls as `shared` */

#endif
