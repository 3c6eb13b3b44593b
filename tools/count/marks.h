/* marks.h -- the marks of a batch that `count --batch` writes to Redis. They outlive every window.
 * Always true: Redis decides who sets a mark first. */
#ifndef TOOL_MARKS_H
#define TOOL_MARKS_H

#include "tallywheel.h"

#define BATCH_NAME_MAX 200
#define MARK_KEY_MAX (BATCH_NAME_MAX + 16)
#define MARKS_FETCH_MS 10000 /* how long the look-up of marks may last */

/* Begun means that a run without --resume sends the batch. Done means that all of it is in Redis. Torn means that a run
 * with --resume cannot find out which counts are in Redis. Lock is the name under which runs with --resume follow one
 * another. */
enum mark { MARK_BEGUN, MARK_DONE, MARK_TORN, MARK_LOCK };

/* Opens an endless strict family. Returns false after a message on standard error. */
bool marks_open(tw_engine *engine, tw_family **marks);
/* Writes the key of a mark; `text` has MARK_KEY_MAX bytes. */
tw_key mark_key(enum mark mark, const char *name, char *text);

#endif
