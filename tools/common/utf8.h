/* utf8.h -- which bytes of a key are text.
 * Always true: only well-formed UTF-8 counts (no overlong forms, no surrogates, nothing past U+10FFFF). */
#ifndef TOOL_UTF8_H
#define TOOL_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the number of bytes of the character at `text`, 1..4, or 0 if no character begins there. size > 0. */
size_t utf8_size(const unsigned char *text, size_t size);
bool utf8_is_valid(const unsigned char *text, size_t size);
/* True for a control character: C0, DEL, or C1 (U+0080..U+009F; terminals obey it). `size` is utf8_size()'s. */
bool utf8_is_control(const unsigned char *text, size_t size);
/* True for a character that ends a line or a paragraph, or turns the direction of the text after it (U+2028 to U+202E,
 * U+2066 to U+2069). On a page a key with one would look like another key, or reach into other columns. */
bool utf8_moves_text(const unsigned char *text, size_t size);

#endif
