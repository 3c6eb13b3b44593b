/* exporter_http.h -- a small HTTP server for one page: GET and HEAD of /metrics.
 * Always true: a client that sends or reads too slowly is dropped, and a client that is slow delays no other one, nor
 * does an engine that is. It ends when a signal comes. */
#ifndef TOOL_EXPORTER_HTTP_H
#define TOOL_EXPORTER_HTTP_H

#include "tools/watched/exporter_round.h"

/* Serves until a signal comes. Returns false if it could not begin; errno then has the reason. */
bool exporter_http_serve(int listener, struct exporter *exporter);

#endif
