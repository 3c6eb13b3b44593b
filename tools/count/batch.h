/* batch.h -- `count --redis URL --batch NAME`: counts a log into Redis exactly once, however often the command runs.
 *
 * The input is counted here first. Only when all of it was read are the counts sent, and two marks in Redis show the
 * progress: NAME was begun, NAME is done. Redis decides which run sets a mark first.
 * Always true: a run that was interrupted during reading has sent no counts, and the next one starts again. A batch
 * that was begun and is not done is never sent again. It is reported. */
#ifndef TOOL_BATCH_H
#define TOOL_BATCH_H

#include "tools/count/plan.h"
#include "tools/count/marks.h"

/* Sends what `family` has counted, unless NAME was sent before. Returns false after a message on standard error. */
bool batch_send(const struct plan *plan, tw_family *family, tw_family *sums, const struct result *result);

#endif
