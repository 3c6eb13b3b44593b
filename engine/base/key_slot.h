/* key_slot.h -- the key slot of a name in a Redis Cluster, short texts for any slot, decimal digits and patterns.
 *
 * Redis Cluster hashes a name by CRC16 to one of 16,384 slots. A name may have a hash tag: the bytes between the first
 * "{" and the first "}" after it, if there are any. Then only the tag is hashed, so names with one tag are in one slot.
 *
 *   group   CRC16(key) mod T: keys are divided into T groups, T a power of two (redis_tags)
 *   tag     of a group: the smallest decimal number whose slot lies in [group * 16384 / T, (group + 1) * 16384 / T). So
 *           the tags are spread evenly over the slots, and each master of a cluster gets an even part of the groups.
 *           The tags of a smaller T are also tags of each larger T
 *   short   of a slot: the smallest decimal number with exactly that slot
 *
 * Always true: tags and shorts are parts of names in Redis, so they are the same in every process and version. These
 * are pure functions. Any thread may call them. */
#ifndef TWI_BASE_KEY_SLOT_H
#define TWI_BASE_KEY_SLOT_H

#include "engine/base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWI_KEY_SLOTS 16384u
#define TWI_KEY_SLOT_TAGS_MAX 1024u
#define TWI_KEY_SLOT_TAG_DIGITS 4u /* the longest tag is 3157, for 1024 groups */
#define TWI_KEY_SLOT_BRACE_MAX 8u  /* the longest short, in braces, is "{109757}" */

/* Returns true if keys can be divided into that many groups (0 means the default). */
static inline bool twi_key_slot_tags_fit(uint64_t tags) {
    return tags <= TWI_KEY_SLOT_TAGS_MAX && (tags & (tags - 1)) == 0;
}

/* Returns the CRC16 of XMODEM: polynomial 0x1021, starting with 0, the highest bit first. */
uint16_t twi_key_slot_crc16(const void *data, size_t size);

/* Returns the slot of a name. */
uint32_t twi_key_slot_of(const void *name, size_t size);

/* Returns the tags of all groups, by the number of the group. `count` is T. The table is never freed. */
const uint16_t *twi_key_slot_tags(uint32_t count);

/* Returns the shorts of all slots, by the number of the slot. Cost: some milliseconds, once in a process. */
const uint32_t *twi_key_slot_shorts(void);

/* Writes the text "{short}", which puts any other name into the slot of this name. The text is empty if the name has
 * a tag (the other name then contains the tag), or if `of_slots` is NULL (there is one Redis). Returns the size. */
size_t twi_key_slot_brace(const uint32_t *of_slots, const void *name, size_t size, char out[TWI_KEY_SLOT_BRACE_MAX]);

/* Writes the digits of a number, at most 10. Returns how many. */
size_t twi_key_slot_decimal(uint32_t number, char *out);

/* ---- decimal ----
 * writes a number in decimal digits, for names and commands in which snprintf() would cost more than
 * all the rest. Always true: the text has no leading zeros, no sign and no NUL. */

#define TWI_DECIMAL_MAX 20 /* the most digits of a uint64_t */

/* Writes the digits of `value` in front of `end`. Returns the first digit. */
TWI_INLINE char *twi_decimal_before(char *end, uint64_t value) {
    do *--end = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    return end;
}

/* ---- glob ----
 * patterns for the MATCH of SCAN.
 * Always true: a literal byte matches only itself. */

/* Writes a literal byte as one byte or two. Returns the place behind them. */
char *twi_glob_put(char *out, char byte);

/* Writes the terminated pattern of all names that begin with `prefix` and continue with `rest`. `rest` is a pattern
 * of less than 40 bytes. A prefix that is too long is cut. */
void twi_glob_names(const char *prefix, const char *rest, char *out, size_t size);

#endif
