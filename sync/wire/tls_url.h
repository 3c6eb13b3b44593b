/* tls_url.h -- where Redis is, read together with what is said of TLS: neither is whole without the other. */
#ifndef TWI_SYNC_WIRE_TLS_URL_H
#define TWI_SYNC_WIRE_TLS_URL_H

#include "sync/wire/tls_context.h"
#include "sync/wire/url.h"

/* `*tls` is NULL where the URL names no TLS. False: `error` names the refused option. The caller wipes `url` and
 * destroys `*tls` in any case. */
bool twi_tls_url_read(const char *text, const struct twi_tls_options *options, struct twi_url *url,
                      struct twi_tls **tls, char *error, size_t error_size);

#endif
