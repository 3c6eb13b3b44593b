/* line.h -- reads one line of a log, with its time, its key and its delta.
 *
 * A line parses if its time and its key can be read; the rest is not checked. So a line whose last field was cut off
 * still counts for its client. It fails only if the cut field is the key.
 *
 * Always true: the parsers read only the given bytes (NUL is a byte like any other), allocate nothing, use no locale
 * and no time zone, and return a key of 1..TW_KEY_SIZE_MAX bytes and a moment that the library can count. Any number of
 * threads may use them. */
#ifndef TOOL_LINE_H
#define TOOL_LINE_H

#include "tools/count/line_rule.h"

/* For a line that describes the columns of the others. */
extern const char line_is_head[];

/* Returns NULL if the line was read, otherwise the error, as words that follow "FILE:34: ". `text` is without its
 * newline; a carriage return at its end is not part of it, nor are a byte order mark and NULs at its start. `head`
 * belongs to the line's file, and a line may change it. If it is NULL, such lines are refused. `joined` has room for
 * TW_KEY_SIZE_MAX bytes, and for LINE_ELEMENT_MAX more if the rule has an element. */
const char *line_parse(const struct line_rule *rule, struct line_head *head, const char *text, size_t size,
                       struct line *line, char *joined);

/* Returns whether a file that begins so has a head, which the lines below it cannot be read without. */
bool line_has_head(const struct line_rule *rule, const char *text, size_t size);
/* Changes the head by the last line of the text that names columns. Returns true if there was one. */
bool line_head_take(const struct line_rule *rule, struct line_head *head, const char *text, size_t size);

#endif
