/* resume.h -- `count --redis URL --batch NAME --resume`: counts a log into Redis in steps. A run that was interrupted
 * in any way can be started again, and continues.
 *
 * A step is the counts of some whole lines of one file. Its counts and the position behind these lines are added by one
 * batch, which Redis applies as a whole or not at all. So the position in Redis is always that of the counts there.
 * Always true: only one run of a NAME works at a time (a lock that expires). After each step Redis's position is
 * compared with ours; if they differ, the counted lines are unknown, and no run under this name adds counts any more. A
 * file is recognised by its first line. The bytes before the position are compared, too. */
#ifndef TOOL_RESUME_H
#define TOOL_RESUME_H

#include "tools/count/plan.h"

/* Reads, counts and sends the files. The counts of this run stay in `family`. The engine is host-driven and has Redis.
 * `result` and `windows` become those of the input. */
void resume_run(const struct plan *plan, tw_engine *engine, tw_family *family, tw_family *sums,
                struct windows_shared *windows, struct result *result);
/* Opens the family of the positions. Returns false after a message on standard error. */
bool resume_positions_open(tw_engine *engine, tw_family **positions);
/* Returns whether runs with --resume have begun the batch. An engine with a separate thread. */
tw_status resume_has_begun(tw_family *positions, const char *name, bool *has_begun);

#endif
