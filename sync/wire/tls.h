/* tls.h -- a connection inside TLS. It is a transport (socket.h) over the transport of plain sockets.
 *
 * Always true: connect() is done when the handshake is, and the certificate has the requested name. No data ever goes
 * out unencrypted, and there is no try without TLS after TLS was refused. The option redis_tls_insecure leaves out only
 * the check of the certificate. */
#ifndef TWI_SYNC_WIRE_TLS_H
#define TWI_SYNC_WIRE_TLS_H

#include "sync/wire/socket.h"
#include "sync/wire/tls_context.h"

extern const struct twi_transport twi_tls_transport; /* its create() needs a struct twi_tls as `shared` */

#endif
