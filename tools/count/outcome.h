/* outcome.h -- what became of lines: how many counted, and how many were skipped for which reason.
 * Always true: a reason is one of the constant texts of the parsers. Of each there is an example, which is the first
 * line of the input that has it. */
#ifndef TOOL_OUTCOME_H
#define TOOL_OUTCOME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTCOME_REASONS 12      /* further ones are counted with the last */
#define OUTCOME_EXAMPLE_MAX 100 /* bytes of a line */

struct reason {
    const char *why;
    const char *file; /* NULL within a file */
    uint64_t count;
    uint64_t line; /* of the example, counted from 1 */
    size_t size;
    char example[OUTCOME_EXAMPLE_MAX];
};

struct outcome {
    uint64_t lines;
    uint64_t heads; /* lines that describe the columns of the others */
    uint64_t counted;
    uint64_t skipped;        /* could not be read, or were refused */
    uint64_t unserved;       /* of new keys, for which there was no memory */
    uint64_t skipped_line;   /* the first skipped one, counted from 1 */
    const char *skipped_why; /* NULL if no line was skipped */
    size_t reasons;
    struct reason reason[OUTCOME_REASONS]; /* in the order of their examples */
};

/* Of one line that is too long: `why` says so. */
void outcome_one_skipped(struct outcome *outcome, const char *why);
/* Adds a skipped line. `text` is NULL if it is not there any more. */
void outcome_skip(struct outcome *outcome, uint64_t line, const char *why, const char *text, size_t size);
/* Adds up outcomes. `piece` began after `lines_before` lines of its file, which has this name. Returns true if this is
 * the first outcome with a skipped line. */
bool outcome_fold(struct outcome *total, const struct outcome *piece, uint64_t lines_before, const char *file);

#endif
