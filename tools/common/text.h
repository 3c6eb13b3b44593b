/* text.h -- the parsers for values on the command line: numbers, sizes, time spans, offsets, misspelt words.
 * Always true: a parser reads the whole text, or returns false and does not change its result; it uses no locale. */
#ifndef TOOL_TEXT_H
#define TOOL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 4096, 64K, 2M, 1G: digits, then perhaps a letter that multiplies by 1000, 1000^2 or 1000^3. Within [low, high]. */
bool text_number(const char *text, uint64_t low, uint64_t high, uint64_t *number);
/* 4096, 64K, 512M, 2G, 1T. The letters are multiples of 1024. */
bool text_size(const char *text, uint64_t *bytes);
/* N followed by s, m, h or d, up to a hundred years. Zero is allowed. */
bool text_span(const char *text, int64_t *ms);
/* +08:00, -0330, +8, Z. All are within 14 hours of UTC. */
bool text_offset(const char *text, int64_t *ms);
/* The word of a NULL-terminated list that a misspelt one most likely means; NULL if no word is close. */
const char *text_nearest(const char *word, const char *const *words);
/* FNV-1a. Continues the earlier hash, at first TEXT_HASH_BEGIN, with these bytes. */
#define TEXT_HASH_BEGIN UINT64_C(0xcbf29ce484222325)
uint64_t text_hash(uint64_t hash, const void *bytes, size_t size);

#endif
