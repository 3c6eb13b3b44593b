/* exporter_page.h -- the pages of several engines as one page in Prometheus's text format.
 * Always true: each metric is described once, and all its samples stand together; each sample has the label socket, and
 * no two sockets have the same. */
#ifndef TOOL_EXPORTER_PAGE_H
#define TOOL_EXPORTER_PAGE_H

#include <stddef.h>

#include "sink.h"

/* Asks every socket that matches one of the patterns (of glob(7)). Returns how many answered. A socket that does not is
 * named by tallywheel_exporter_up 0, and so is a pattern without a wildcard that nothing matches. */
size_t exporter_page(char *const *patterns, size_t count, struct sink *out);

/* Joins pages that are there, which are taken apart in place; names[i] is the label of pages[i]. */
void exporter_join(char *const *pages, const char *const *names, size_t count, struct sink *out);

#endif
