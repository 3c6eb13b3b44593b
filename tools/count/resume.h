/* resume.h -- `count --redis URL --batch NAME --resume`: a log that is counted into Redis in steps. A run that was
 * interrupted, however it ended, is run again and continues.
 *
 * A step is the counts of some whole lines of one file. Its counts and the position behind these lines are added by one
 * batch, which Redis applies as a whole or not at all. So the position in Redis is always that of the counts there.
 * Always true: runs of one NAME take turns (a lock that ends by itself). After each step Redis's position is compared
 * with ours; if they differ, nobody can know what was counted, and no run under this name adds anything any more.
 * A file is known by its first line; what is before the position is compared, too. */
#ifndef TOOL_RESUME_H
#define TOOL_RESUME_H

#include "tools/count/plan.h"

/* Reads, counts and sends the files; what this run counted stays in `family`. The engine is host-driven and has Redis.
 * `result` and `windows` become those of the input. */
void resume_run(const struct plan *plan, tw_engine *engine, tw_family *family, struct windows_shared *windows,
                struct result *result);
/* Opens the family of the positions. Returns false after a message on standard error. */
bool resume_positions_open(tw_engine *engine, tw_family **positions);
/* Whether runs with --resume have begun the batch. An engine with a separate thread. */
tw_status resume_has_begun(tw_family *positions, const char *name, bool *has_begun);

#endif
