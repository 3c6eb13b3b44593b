/* marks.h -- what `count --batch` remembers in Redis of a batch: marks that outlive every window.
 * Always true: Redis decides who sets a mark first. */
#ifndef TOOL_MARKS_H
#define TOOL_MARKS_H

#include "tallywheel.h"

#define BATCH_NAME_MAX 200
#define MARK_KEY_MAX (BATCH_NAME_MAX + 16)
#define MARKS_FETCH_MS 10000 /* how long Redis may take to say which marks there are */

/* Begun: a run without --resume sends the batch. Done: all of it is in Redis. Torn: a run with --resume cannot know
 * what is in Redis. Lock: the name under which runs with --resume take turns. */
enum mark { MARK_BEGUN, MARK_DONE, MARK_TORN, MARK_LOCK };

/* An endless family, strict. Returns false after a message on standard error. */
bool marks_open(tw_engine *engine, tw_family **marks);
/* The key of a mark; `text` has MARK_KEY_MAX bytes. */
tw_key mark_key(enum mark mark, const char *name, char *text);

#endif
