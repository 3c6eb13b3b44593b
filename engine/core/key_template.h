/* key_template.h -- from a family's redis_key template to the names its counters have in Redis.
 *
 * A name is head + key + tail: the key occurs once, and every stamp has a fixed width, so head and tail have the same
 * size in every window. Hence, always true of a template that was accepted:
 *   - a name says which key and which window it is of (one-to-one; the stamp is as fine as the windows);
 *   - with any key that twi_key_template_key_is_reserved() does not refuse it stays out of the engine's own names
 * ("tw:"
 *     after the prefix: ledgers, markers, overflow counters);
 *   - it fits TWI_REDIS_KEY_MAX with every key of up to TW_KEY_SIZE_MAX bytes.
 * Pure functions over an immutable struct: any thread. */
#ifndef TWI_CORE_KEY_TEMPLATE_H
#define TWI_CORE_KEY_TEMPLATE_H

#include "engine/base/calendar.h"
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
    bool guard_reserved; /* a key could make a reserved name: ask twi_key_template_key_is_reserved() for each new key */
    int64_t utc_offset_ms;
    struct twi_key_template_stamp {
        uint16_t offset; /* in the frame */
        char field;      /* 'Y' 'm' 'd' 'H' 'M' 'S' */
    } stamps[TWI_KEY_TEMPLATE_STAMPS_MAX];
    char frame[TWI_KEY_TEMPLATE_FRAME_BYTES_MAX]; /* head, then tail; zeros where stamps go */
};

/* `text` NULL: the default ("%n:%k", and ":" and a stamp as fine as the window where windows have starts). `prefix`
 * may be NULL. Answers TW_OK; TW_ERR_OPTIONS, with "redis_key: what is wrong" in `error` (may be NULL), and *pattern
 * undefined. */
tw_status twi_key_template_parse(struct twi_key_template *pattern, const char *text, const char *family_name,
                                 const char *prefix, const struct twi_window_rule *rule, char *error,
                                 size_t error_size);

/* The name of `key` in the window that starts at start_ms (ignored without stamps). `out` has room for
 * TWI_REDIS_KEY_MAX bytes; not terminated. Returns the size. Cost: one civil date and three copies. */
size_t twi_key_template_render(const struct twi_key_template *pattern, tw_key key, int64_t start_ms, char *out);

/* The same in two steps, for many keys of one window: head and tail rendered once, then two copies around each key.
 * `frame` has room for TWI_KEY_TEMPLATE_FRAME_BYTES_MAX bytes. */
void twi_key_template_stamp(const struct twi_key_template *pattern, int64_t start_ms, char *frame);
size_t twi_key_template_render_stamped(const struct twi_key_template *pattern, const char *frame, tw_key key,
                                       char *out);

/* The name of the window's overflow counter: prefix, "tw:overflow:", and the rest rendered with an empty key. */
size_t twi_key_template_render_overflow(const struct twi_key_template *pattern, int64_t start_ms, char *out);

/* From a name to that of what we keep beside it: "tw:", `what` and ":" inserted behind the prefix. `out` has room for 16 bytes more
 * than the name. Returns the size. */
size_t twi_key_template_own(const struct twi_key_template *pattern, const char *what, const char *name, size_t size,
                            char *out);

/* True: this key would be given one of the engine's own names (TW_ERR_KEY). Only possible where guard_reserved. */
bool twi_key_template_key_is_reserved(const struct twi_key_template *pattern, tw_key key);

/* True if some key in some window of one may have the same name as some key in some window of the other. Exact but
 * for stamps, which are taken as any digits. Both have the same prefix. */
bool twi_key_templates_collide(const struct twi_key_template *one, const struct twi_key_template *other);

#endif
