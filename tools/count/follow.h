/* follow.h -- `count --follow` counts logs that grow. */
#ifndef TOOL_FOLLOW_H
#define TOOL_FOLLOW_H

#include "tools/count/plan.h"

/* Reads and prints until a signal or the end of every input. */
void follow_run(const struct plan *plan, tw_family *family, tw_family_options *options, struct print *print,
                struct result *result);

#endif
