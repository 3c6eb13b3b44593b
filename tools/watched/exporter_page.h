/* exporter_page.h -- the pages of several engines as one page in Prometheus's text format.
 * Always true: each metric is described once, and all its samples are together; each sample has the label socket, and
 * no two sockets have the same. A page with one line that is no sample of the library's kind is left out as a whole. So
 * no engine, and no program that listens in its place, can spoil the samples of the others. Time and memory grow as the
 * pages' bytes do. */
#ifndef TOOL_EXPORTER_PAGE_H
#define TOOL_EXPORTER_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/common/sink.h"

#define EXPORTER_PAGE_BYTES_MAX ((size_t)32 << 20) /* of one engine; ten thousand families with limits have 20 MB */
#define EXPORTER_LINES_MAX 400000u                 /* of one page */
#define EXPORTER_METRICS_MAX 4096u                 /* of one page; an engine of this version has 250 */

/* A page, and the label of its samples. */
struct exporter_source {
    const char *page; /* ends with a NUL */
    size_t size;
    const char *socket;
};

/* Returns whether the page can be joined with others. It is whole, and each of its lines is understood. */
bool exporter_page_is_sound(const char *page, size_t size);
/* Joins sound pages. Ends early if a signal comes. Then the page is not whole. */
void exporter_join(const struct exporter_source *sources, size_t count, struct sink *out);
/* socket="..." */
void exporter_put_label(struct sink *out, const char *socket);

#endif
