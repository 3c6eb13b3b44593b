/* key_template.h -- turns a family's redis_key template into the names of its counters in Redis.
 *
 * A name is head + key + tail. The key occurs once, and every stamp has a fixed width. So head and tail have the same
 * sizes in every window. The head may have a hash tag of Redis Cluster, "{%t}": the key's group, by a number that puts
 * the name into the group's slots (engine/base/key_slot.h). It is the first thing in braces, and it is closed, so it
 * can be read from the name, though its digits are 1 to 4.
 * With hashes, "the key" in the name is the subject alone. With sorted sets the name has no key, and all of it is head
 * (redis_shape.h). Functions that take a key take the whole key, and split it.
 * Always true of an accepted template:
 *   - a name identifies its key (its subject) and its window (one-to-one; the stamp is as fine as the windows);
 *   - no name is one of the engine's own ("tw:" after the prefix: ledgers, markers, overflow counters), for any key
 *     that twi_key_template_key_is_reserved() accepts;
 *   - it fits TWI_REDIS_KEY_MAX with every key of up to TW_KEY_SIZE_MAX bytes.
 * Pure functions on an immutable struct: any thread. */
#ifndef TWI_CORE_KEY_TEMPLATE_H
#define TWI_CORE_KEY_TEMPLATE_H

#include "engine/base/calendar.h"
#include "engine/core/redis_shape.h"
#include "engine/port/items.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWI_KEY_TEMPLATE_OVERFLOW "tw:overflow:"
#define TWI_KEY_TEMPLATE_FRAME_BYTES_MAX \
    (TWI_REDIS_KEY_MAX - TW_KEY_SIZE_MAX) /* head and tail together, prefix included */
#define TWI_KEY_TEMPLATE_STAMPS_MAX 32

struct twi_key_template {
    uint16_t prefix_size; /* the engine's prefix, at the beginning of the head */
    uint16_t head_size;
    uint16_t tail_size;
    uint16_t stamp_count;
    struct twi_redis_shape shape;
    /* some keys give a reserved name, so each key has to be checked by twi_key_template_key_is_reserved() */
    bool guard_reserved;
    uint16_t tag_offset;    /* the byte of the frame before which the key's tag is inserted */
    uint32_t tag_count;     /* a power of two; 0 means names have no tag */
    const uint16_t *tags;   /* by group; NULL means names have no tag */
    const uint32_t *shorts; /* the table of a cluster, for twi_key_slot_brace(). NULL means one Redis */
    int64_t utc_offset_ms;
    struct twi_key_template_stamp {
        uint16_t offset; /* in the frame */
        char field;      /* 'Y' 'm' 'd' 'H' 'M' 'S' */
        uint8_t
            /* 0 means before the tag, or in the head of a name without a tag. 1 means behind the tag, and 2 means in
             * the tail */
            place;
    } stamps[TWI_KEY_TEMPLATE_STAMPS_MAX];
    char frame[TWI_KEY_TEMPLATE_FRAME_BYTES_MAX]; /* head, then tail; zeros in place of stamps */
};

/* If `text` is NULL, it uses the default ("%n:%k", in a cluster "%n:{%t}:%k", with sorted sets "%n"; and ":" and a
 * stamp as fine as the window if windows have starts). `prefix` may be NULL. `tags` is the number of groups into which
 * %t divides the keys. `shorts` is the table of a cluster; NULL means that there is one Redis. If `shape` is NULL, the
 * counters are strings. Returns TW_OK; or TW_ERR_OPTIONS, with "redis_key: " and the reason in `error` (may be NULL),
 * and *pattern is undefined. */
tw_status twi_key_template_parse(struct twi_key_template *pattern, const char *text, const char *family_name,
                                 const char *prefix, uint32_t tags, const uint32_t *shorts,
                                 const struct twi_window_rule *rule, const struct twi_redis_shape *shape, char *error,
                                 size_t error_size);

/* Writes the name of `key` in the window that starts at start_ms (ignored without stamps). `out` has room for
 * TWI_REDIS_KEY_MAX bytes; it is not terminated. Returns the size. Cost: one civil date and three copies; with a tag
 * also a CRC of the key. */
size_t twi_key_template_render(const struct twi_key_template *pattern, tw_key key, int64_t start_ms, char *out);

/* The number of the key's group, which replaces {%t}. Numbers begin at 0. Without a tag there is one group. */
uint32_t twi_key_template_group(const struct twi_key_template *pattern, tw_key key);
/* The name that an empty key would have if it were of that group. It lies in the slot of the group's counters. */
size_t twi_key_template_render_group(const struct twi_key_template *pattern, uint32_t group, int64_t start_ms,
                                     char *out);

/* twi_key_template_render() in two steps, for many keys of one window. Head and tail are rendered once, then each key
 * takes two copies.
 * `frame` has room for TWI_KEY_TEMPLATE_FRAME_BYTES_MAX bytes. */
void twi_key_template_stamp(const struct twi_key_template *pattern, int64_t start_ms, char *frame);
size_t twi_key_template_render_stamped(const struct twi_key_template *pattern, const char *frame, tw_key key,
                                       char *out);

/* The name of the window's overflow counter. It consists of the prefix, "tw:overflow:", and the rest, rendered with an
 * empty key. */
size_t twi_key_template_render_overflow(const struct twi_key_template *pattern, int64_t start_ms, char *out);

/* From a counter's name to the name of a key that belongs to it. Inserts "tw:", `what` and ":" behind the prefix. In a
 * cluster both lie in one slot. A name without a tag gets the short of its slot, behind the second colon. `out` has
 * room for 24 bytes more than the name. Returns the size. */
size_t twi_key_template_own(const struct twi_key_template *pattern, const char *what, const char *name, size_t size,
                            char *out);

/* The counter that such a key belongs to. It is the inverse of twi_key_template_own(). `out` has room for the name. */
size_t twi_key_template_counter_of(const struct twi_key_template *pattern, const char *what, tw_key own, char *out);

/* Returns true if this key would get one of the engine's own names (TW_ERR_KEY). Possible only with guard_reserved. */
bool twi_key_template_key_is_reserved(const struct twi_key_template *pattern, tw_key key);

/* Writes a pattern for the names that have `word` behind the prefix ("": counters), for the MATCH of SCAN; terminated.
 * `word` is a pattern itself, of at most 32 bytes.
 * `out` has room for TWI_KEY_TEMPLATE_GLOB_MAX bytes. Names that only look alike may match, too. */
#define TWI_KEY_TEMPLATE_GLOB_MAX (4 * TWI_KEY_TEMPLATE_FRAME_BYTES_MAX + 48)
void twi_key_template_glob(const struct twi_key_template *pattern, const char *word, char *out);

/* Returns true if some key in some window of one may have the same name as some key in some window of the other. Exact,
 * except that a stamp and a tag are taken as any digits. Both templates have the same prefix. */
bool twi_key_templates_collide(const struct twi_key_template *one, const struct twi_key_template *other);

#endif
