/* svg.h -- `count --svg FILE` draws a picture of the counts, with one bar a window over time, and the greatest keys of
 * all windows.
 * Always true: a file is written whole or not at all (under another name, then renamed); a pipe, a device or a link is
 * written directly. The picture is well-formed whatever the keys are, and needs no other file. */
#ifndef TOOL_SVG_H
#define TOOL_SVG_H

#include "tools/count/plan.h"

/* Draws what `family` has counted in these windows. Returns false after a message on standard error. */
bool svg_write(const struct plan *plan, tw_family *family, const struct windows *windows);

#endif
