/* where.h -- how a server is reached. The options about it are read once for all connections.
 * Always true: after twi_where_read() it never changes, so any thread may read it. It outlives everything that was made
 * from it, and does not move. The logins point to the texts of the URL. */
#ifndef TWI_SYNC_WIRE_WHERE_H
#define TWI_SYNC_WIRE_WHERE_H

#include "sync/wire/login.h"
#include "sync/wire/socket.h"
#include "sync/wire/tls_context.h"
#include "sync/wire/url.h"

#include "tallywheel.h"

struct twi_where {
    struct twi_url url;
    struct twi_tls *tls; /* NULL without TLS */
    const struct twi_transport *transport;
    void *shared; /* for the transport's create() */
    struct twi_login login, sentinel_login;
};

/* Reads redis_url, redis_tls_*, redis_password, sentinel_user and sentinel_password. The callbacks and the texts of
 * the sentinels' login must exist longer than `where`. Returns false if `error` names the refused option. The caller
 * frees `where` in any case. */
bool twi_where_read(struct twi_where *where, const tw_options *options, char *error, size_t error_size);
/* Frees what twi_where_read() made; `where` may be all zero. No connection may exist any more. */
void twi_where_free(struct twi_where *where);

#endif
