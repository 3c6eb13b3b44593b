/* utf8.h -- which bytes of a key are text.
 * Always true: only well-formed UTF-8 counts (no overlong forms, no surrogates, nothing past U+10FFFF). */
#ifndef TOOL_UTF8_H
#define TOOL_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* The number of bytes of the character at `text`, 1..4; 0 means that no character begins there. size > 0. */
size_t utf8_size(const unsigned char *text, size_t size);
bool utf8_is_valid(const unsigned char *text, size_t size);
/* A control character. It is C0, DEL, or C1 (U+0080..U+009F), which terminals obey, too. `size` is utf8_size()'s. */
bool utf8_is_control(const unsigned char *text, size_t size);
/* A character that moves others. It ends a line or a paragraph, or turns the direction of the text after it (U+2028 to
 * U+202E, U+2066 to U+2069). On a page a key with one would be read as another, or would reach into other columns. */
bool utf8_moves_text(const unsigned char *text, size_t size);

#endif
