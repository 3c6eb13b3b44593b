/* exporter_http.h -- a small HTTP server for one page, /metrics.
 * Always true: no client waits for another one that is slow, silent or wrong; only the making of a page is waited for.
 * A client that has sent no whole request, or taken no whole answer, within two seconds is dropped, and sooner if its
 * place is needed. */
#ifndef TOOL_EXPORTER_HTTP_H
#define TOOL_EXPORTER_HTTP_H

#include "sink.h"

/* Makes the page. False: a signal came meanwhile; what is there is not whole. */
typedef bool exporter_make(void *ctx, struct sink *page);

/* Serves until a signal comes (stop.h). The listener stays the caller's. False: the system refused, errno says why. */
bool exporter_http_serve(int listener, exporter_make *make, void *ctx);

#endif
