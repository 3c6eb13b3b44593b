/* key_template.h -- makes the names of a family's counters in Redis from its redis_key template.
 *
 * A name is head + key + tail. The key occurs once, and every stamp has a fixed width. So head and tail have the same
 * sizes in every window. The head may have a hash tag of Redis Cluster, "{%t}". It is the group of the key, as a number
 * that puts the name into a slot of the group (engine/base/key_slot.h). It is the first text in braces, so it can be
 * read from the name although it has 1 to 4 digits.
 * With hashes, the key in the name is only the subject. With sorted sets the name has no key, and the whole name is the
 * head. Functions with a key as an argument get the whole key, and split it.
 * Always true for an accepted template:
 *   - a name identifies its key (its subject) and its window (one-to-one; the stamp is as fine as the windows);
 *   - no name is one of the engine's own names ("tw:" after the prefix: ledgers, markers, overflow counters), for any
 *     key that twi_key_template_key_is_reserved() accepts;
 *   - a name fits into TWI_REDIS_KEY_MAX with every key of up to TW_KEY_SIZE_MAX bytes.
 * These are pure functions on a struct that does not change. Any thread may call them. */
#ifndef TWI_CORE_KEY_TEMPLATE_H
#define TWI_CORE_KEY_TEMPLATE_H

#include "engine/base/calendar.h"
#include "engine/port/items.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- redis shape ----
 * the type that Redis uses for the counters of a family.
 *
 *   string      each key has a name
 *   hash        a key is a subject, the separator, and a field: the subject has the name, and the field is the field of
 *               the hash. The key is split at the last separator, because only subjects may contain it
 *   sorted set  the window has the name, and the key is a member
 *
 * The part that is not in the name is called the inner key. Always true: name and inner key together identify the
 * counter in its window, in the same way as the key. */

#define TWI_FIELDS_MAX 64

struct twi_redis_shape {
    uint8_t kind;   /* TW_REDIS_* */
    char separator; /* the separator of a hash */
};

/* Splits a key into the part for the name (the subject) and the inner key. With strings the whole key is the
 * subject. Hashes are described above. With sorted sets the whole key is the inner key. Returns false if the key of
 * a hash has no separator, or one of its parts is empty. Then the whole key is the subject. */
bool twi_redis_shape_split(struct twi_redis_shape shape, tw_key key, tw_key *subject, tw_key *inner);

/* The fields that a family declares. They point into the family's text. */
struct twi_fields {
    uint32_t count;
    tw_key each[TWI_FIELDS_MAX];
};
/* Reads a comma-separated list. Returns NULL if it is valid, otherwise half a sentence with the reason. */
const char *twi_fields_read(const char *text, char separator, struct twi_fields *fields);
bool twi_fields_have(const struct twi_fields *fields, tw_key field);

/* ---- names ---- */

#define TWI_KEY_TEMPLATE_OVERFLOW "tw:overflow:"
#define TWI_KEY_TEMPLATE_FRAME_BYTES_MAX \
    (TWI_REDIS_KEY_MAX - TW_KEY_SIZE_MAX) /* the size of head and tail together, including the prefix */
#define TWI_KEY_TEMPLATE_STAMPS_MAX 32

struct twi_key_template {
    uint16_t prefix_size; /* the prefix of the engine is at the beginning of the head */
    uint16_t head_size;
    uint16_t tail_size;
    uint16_t stamp_count;
    struct twi_redis_shape shape;
    /* some keys would give a reserved name, so twi_key_template_key_is_reserved() must check each key */
    bool guard_reserved;
    uint16_t tag_offset;    /* the tag of the key is inserted before this byte of the frame */
    uint32_t tag_count;     /* a power of two; 0 means that names have no tag */
    const uint16_t *tags;   /* the tags by group; NULL means that names have no tag */
    const uint32_t *shorts; /* the table of a cluster, for twi_key_slot_brace(). NULL means that there is one Redis */
    int64_t utc_offset_ms;
    struct twi_key_template_stamp {
        uint16_t offset; /* in the frame */
        char field;      /* 'Y' 'm' 'd' 'H' 'M' 'S' */
        uint8_t
            /* 0: before the tag, or in the head of a name without a tag; 1: after the tag; 2: in the tail */
            place;
    } stamps[TWI_KEY_TEMPLATE_STAMPS_MAX];
    char frame[TWI_KEY_TEMPLATE_FRAME_BYTES_MAX]; /* the head, then the tail; stamps are zero bytes */
};

/* If `text` is NULL, the default is used ("%n:%k", in a cluster "%n:{%t}:%k", with sorted sets "%n"; and, if windows
 * have starts, ":" and a stamp as fine as the window). `prefix` may be NULL. `tags` is the number of groups into
 * which %t divides the keys. `shorts` is the table of a cluster; NULL means that there is one Redis. If `shape` is
 * NULL, the counters are strings. Returns TW_OK. Returns TW_ERR_OPTIONS with "redis_key: " and the reason in `error`
 * (which may be NULL). Then *pattern is undefined. */
tw_status twi_key_template_parse(struct twi_key_template *pattern, const char *text, const char *family_name,
                                 const char *prefix, uint32_t tags, const uint32_t *shorts,
                                 const struct twi_window_rule *rule, const struct twi_redis_shape *shape, char *error,
                                 size_t error_size);

/* Writes the name of `key` in the window that starts at start_ms (ignored if there are no stamps). `out` has room
 * for TWI_REDIS_KEY_MAX bytes; it is not terminated. Returns the size. Cost: one civil date and three copies; with a
 * tag also a CRC of the key. */
size_t twi_key_template_render(const struct twi_key_template *pattern, tw_key key, int64_t start_ms, char *out);

/* Returns the number of the key's group, which replaces {%t}. Numbers begin at 0. Without a tag there is one group. */
uint32_t twi_key_template_group(const struct twi_key_template *pattern, tw_key key);
/* Writes the name that an empty key would have if it belonged to that group. It is in the slot of the group. */
size_t twi_key_template_render_group(const struct twi_key_template *pattern, uint32_t group, int64_t start_ms,
                                     char *out);

/* twi_key_template_render() in two steps, for many keys of one window: Head and tail are written once. Then each key
 * needs two copies.
 * `frame` has room for TWI_KEY_TEMPLATE_FRAME_BYTES_MAX bytes. */
void twi_key_template_stamp(const struct twi_key_template *pattern, int64_t start_ms, char *frame);
size_t twi_key_template_render_stamped(const struct twi_key_template *pattern, const char *frame, tw_key key,
                                       char *out);

/* Writes the name of the window's overflow counter. It has the prefix, "tw:overflow:", and the rest, written for an
 * empty key. */
size_t twi_key_template_render_overflow(const struct twi_key_template *pattern, int64_t start_ms, char *out);

/* Writes the name of a key that belongs to the counter with the given name. It inserts "tw:", `what` and ":" after
 * the prefix. In a cluster both names are in one slot. A name without a tag gets the short of its slot, after the
 * second colon. `out` has room for 24 more bytes than the name. Returns the size. */
size_t twi_key_template_own(const struct twi_key_template *pattern, const char *what, const char *name, size_t size,
                            char *out);

/* Writes the name of the counter to which such a key belongs. The inverse of twi_key_template_own(); `out` has room. */
size_t twi_key_template_counter_of(const struct twi_key_template *pattern, const char *what, tw_key own, char *out);

/* Returns true if this key would get one of the engine's own names (TW_ERR_KEY). Needs guard_reserved. */
bool twi_key_template_key_is_reserved(const struct twi_key_template *pattern, tw_key key);

/* Writes a pattern for all names that have `word` after the prefix ("" means counters), for the MATCH of SCAN,
 * terminated. `word` is itself a pattern of at most 32 bytes.
 * `out` has room for TWI_KEY_TEMPLATE_GLOB_MAX bytes. Names that only look similar may match, too. */
#define TWI_KEY_TEMPLATE_GLOB_MAX (4 * TWI_KEY_TEMPLATE_FRAME_BYTES_MAX + 48)
void twi_key_template_glob(const struct twi_key_template *pattern, const char *word, char *out);

/* Returns true if some key in some window of one may have the same name as some key in some window of the other. The
 * result is exact, except that a stamp and a tag are assumed to be any digits. Both have one prefix. */
bool twi_key_templates_collide(const struct twi_key_template *one, const struct twi_key_template *other);

#endif
