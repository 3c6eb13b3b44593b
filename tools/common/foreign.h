/* foreign.h -- text that others chose, as the command prints it: keys, names of files and families, messages of Redis
 * and of engines. All such text passes through here.
 * Always true: printed text is valid UTF-8 on one line, and controls no terminal. JSON stays JSON, a CSV cell stays one
 * cell, and no spreadsheet treats a cell as a formula. */
#ifndef TOOL_FOREIGN_H
#define TOOL_FOREIGN_H

#include "tools/common/sink.h"

/* Writes a line. Control characters, backslashes and bytes that are no UTF-8 are \t \n \\ \xHH. */
void foreign_line(struct sink *sink, const void *text, size_t size);
/* Writes for people only. It also escapes characters that turn the direction of writing, and their kind. */
void foreign_shown(struct sink *sink, const void *text, size_t size);
/* Writes a sentence that contains backslashes, which stay. */
void foreign_message(struct sink *sink, const void *text, size_t size);
/* Writes a cell, like foreign_line(), but quoted if that is needed (RFC 4180). A text that a spreadsheet would treat as
 * a formula gets an apostrophe in front. */
void foreign_csv(struct sink *sink, const void *text, size_t size);
/* Writes a string with its quotes. U+FFFD replaces each byte that is no UTF-8. Returns false if there was one. */
bool foreign_json(struct sink *sink, const void *text, size_t size);
/* Writes the members "key" and, if the key is no UTF-8, "key_hex". */
void foreign_json_key(struct sink *sink, const void *key, size_t size);

#endif
