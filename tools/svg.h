/* svg.h -- `count --svg FILE`: a picture of the counts: one bar a window over time, and the greatest keys of
 * all windows.
 * Always true: the file is written whole or not at all (under another name, then renamed); it needs nothing from
 * elsewhere, and no key can break out of its text. */
#ifndef TOOL_SVG_H
#define TOOL_SVG_H

#include "count.h"

/* Draws what `family` has counted in these windows. Returns false after a message on standard error. */
bool svg_write(const struct plan *plan, tw_family *family, const struct windows *windows);

#endif
