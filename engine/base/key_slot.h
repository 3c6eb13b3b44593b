/* key_slot.h -- where a name lies in a Redis Cluster (its key slot), and short texts for any slot.
 *
 * Redis Cluster hashes a name by CRC16 to one of 16,384 slots. A name may have a hash tag, the bytes between the first
 * "{" and the first "}" behind it, if there are any. Then only the tag is hashed. Names with one tag lie in one slot.
 *
 *   group   CRC16(key) mod T: keys are divided into T groups, T a power of two (redis_tags)
 *   tag     of a group: the smallest decimal number whose slot lies in [group * 16384 / T, (group + 1) * 16384 / T). So
 *           the tags lie evenly over the slots, and each master of a cluster gets an even part of the groups. The tags
 *           of a smaller T are among the tags of each larger one
 *   short   of a slot: the smallest decimal number with exactly that slot
 *
 * Always true: tags and shorts are parts of names in Redis, so they are the same in every process and version.
 * Pure functions; any thread. */
#ifndef TWI_BASE_KEY_SLOT_H
#define TWI_BASE_KEY_SLOT_H

#include <stddef.h>
#include <stdint.h>

#define TWI_KEY_SLOTS 16384u
#define TWI_KEY_SLOT_TAGS_MAX 1024u
#define TWI_KEY_SLOT_TAG_DIGITS 4u /* the longest tag: 3157, of 1024 */
#define TWI_KEY_SLOT_BRACE_MAX 8u  /* "{109757}": the longest short, in braces */

/* CRC16 as in XMODEM, with polynomial 0x1021, from 0 on, the highest bit first. */
uint16_t twi_key_slot_crc16(const void *data, size_t size);

/* The slot of a name. */
uint32_t twi_key_slot_of(const void *name, size_t size);

/* The tags of all groups, by group. `count` is T. The table is for ever. */
const uint16_t *twi_key_slot_tags(uint32_t count);

/* The shorts of all slots, by slot. Cost: some milliseconds, once in a process, which keeps the table. */
const uint32_t *twi_key_slot_shorts(void);

/* The text "{short}" that puts any other name into this name's slot. Empty if the name has a tag (the other name then
 * contains it), or if `of_slots` is NULL (there is one Redis). Returns the size. */
size_t twi_key_slot_brace(const uint32_t *of_slots, const void *name, size_t size, char out[TWI_KEY_SLOT_BRACE_MAX]);

/* Writes a number's digits; at most 10. Returns how many. */
size_t twi_key_slot_decimal(uint32_t number, char *out);

#endif
