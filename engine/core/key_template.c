/* key_template.c -- see key_template.h.
 *
 * Head and tail have the same sizes in every window, so a name has exactly one key and one stamp. A tag may have any
 * number of digits. But it ends with the first closing brace after the first opening brace, and the places of both are
 * fixed. So equal names have equal tags. So equal names have equal key sizes, and therefore equal keys and equal
 * stamps. Equal stamps mean the same window. The parser makes sure of that: The fields %Y, %m, ... that follow each
 * other without a gap from the year on name a unit of time that is no longer than a window. Two windows never start
 * within one such unit, because the distance of their starts is at least the greatest length of the unit. Fields after
 * a gap (%H without %d) are written, but the parser does not rely on them.
 *
 * To find out whether two templates can have a common name, it is enough to compare their ends, because a key may be
 * any bytes. So a common name exists exactly if some text can begin with both heads and end with both tails. The
 * longer head reaches into the key of the other template. */
#include "engine/core/key_template.h"

#include "engine/base/check.h"
#include "engine/base/key_slot.h"
#include "engine/base/why.h"

#include <stdio.h>
#include <string.h>

#define RESERVED "tw:"
#define RESERVED_SIZE 3

static const char stamp_fields[] = "YmdHMS"; /* from the coarsest unit to the finest */
enum { STAMP_FIELDS = sizeof stamp_fields - 1 };

static size_t stamp_width(char field) {
    return field == 'Y' ? 4 : 2;
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

struct parser {
    struct twi_key_template *pattern;
    const char *family_name;
    const struct twi_window_rule *rule;
    uint32_t tags;
    bool has_key;
    bool has_field[STAMP_FIELDS];
    char *error;
    size_t error_size;
};

#define refuse(parser, ...) twi_options_refuse((parser)->error, (parser)->error_size, "redis_key: " __VA_ARGS__)

static size_t frame_size(const struct twi_key_template *pattern) {
    return (size_t)pattern->head_size + pattern->tail_size;
}

static size_t room_left(const struct twi_key_template *pattern) {
    size_t tag = pattern->tags != NULL ? TWI_KEY_SLOT_TAG_DIGITS : 0;
    return TWI_KEY_TEMPLATE_FRAME_BYTES_MAX - tag - frame_size(pattern);
}

static tw_status too_long(struct parser *parser) {
    return refuse(parser, "with the prefix, longer than %d bytes without the key", TWI_KEY_TEMPLATE_FRAME_BYTES_MAX);
}

/* Adds bytes to the head or, after the key, to the tail. */
static tw_status append(struct parser *parser, const char *bytes, size_t size) {
    twi_check(frame_size(parser->pattern) <= TWI_KEY_TEMPLATE_FRAME_BYTES_MAX);
    struct twi_key_template *pattern = parser->pattern;
    if (size > room_left(pattern)) return too_long(parser);
    memcpy(pattern->frame + frame_size(pattern), bytes, size);
    uint16_t *part = parser->has_key ? &pattern->tail_size : &pattern->head_size;
    *part = (uint16_t)(*part + size);
    return TW_OK;
}

static tw_status append_stamp(struct parser *parser, char field) {
    twi_check(strchr(stamp_fields, field) != NULL);
    struct twi_key_template *pattern = parser->pattern;
    if (!twi_calendar_has_starts(parser->rule))
        return refuse(parser, "%%%c, but these windows have no common start", field);
    if (pattern->stamp_count == TWI_KEY_TEMPLATE_STAMPS_MAX) {
        return refuse(parser, "more than %d parts of the time", TWI_KEY_TEMPLATE_STAMPS_MAX);
    }
    size_t offset = frame_size(pattern);
    tw_status status = append(parser, "\0\0\0\0", stamp_width(field));
    if (status != TW_OK) return status;
    uint8_t place = parser->has_key ? 2 : pattern->tags != NULL;
    pattern->stamps[pattern->stamp_count++] =
        (struct twi_key_template_stamp){.offset = (uint16_t)offset, .field = field, .place = place};
    parser->has_field[strchr(stamp_fields, field) - stamp_fields] = true;
    return TW_OK;
}

/* The tag must be the first text in braces, and come before the key, which may contain braces. Otherwise Redis
 * Cluster would see another tag, or none. */
static tw_status append_tag(struct parser *parser, char next) {
    twi_check(parser->tags != 0 && (parser->tags & (parser->tags - 1)) == 0);
    struct twi_key_template *pattern = parser->pattern;
    size_t used = frame_size(pattern);
    if (pattern->shape.kind == TW_REDIS_ZSET)
        return refuse(parser, "%%t, but a sorted set has all keys of a window: they cannot be dealt out");
    if (pattern->tags != NULL) return refuse(parser, "%%t twice");
    if (parser->has_key) return refuse(parser, "%%t behind %%k: a key may hold braces");
    if (used == 0 || pattern->frame[used - 1] != '{' || next != '}')
        return refuse(parser, "%%t must be alone in braces, as {%%t}");
    if (memchr(pattern->frame, '{', used - 1) != NULL)
        return refuse(parser, "a { before {%%t}, perhaps in redis_prefix: Redis Cluster looks at the first one only");
    if (TWI_KEY_SLOT_TAG_DIGITS > room_left(pattern)) return too_long(parser);
    pattern->tag_offset = (uint16_t)used;
    pattern->tag_count = parser->tags;
    pattern->tags = twi_key_slot_tags(parser->tags);
    return TW_OK;
}

static tw_status append_sequence(struct parser *parser, const char *sequence) {
    char letter = sequence[0];
    switch (letter) {
    case 'k':
        if (parser->pattern->shape.kind == TW_REDIS_ZSET)
            return refuse(parser, "%%k, but a sorted set is of a window, and the keys are its members");
        if (parser->has_key) return refuse(parser, "%%k twice");
        parser->has_key = true;
        return TW_OK;
    case 'n': return append(parser, parser->family_name, strlen(parser->family_name));
    case 't': return append_tag(parser, sequence[1]);
    case '%': return append(parser, "%", 1);
    case '\0': return refuse(parser, "%% at the end (a percent sign is %%%%)");
    default:
        if (strchr(stamp_fields, letter) != NULL) return append_stamp(parser, letter);
        if (letter < '!' || letter > '~') return refuse(parser, "%% before a byte that means nothing");
        return refuse(parser, "%%%c means nothing; there are %%k %%n %%t %%Y %%m %%d %%H %%M %%S %%%%", letter);
    }
}

static tw_status append_text(struct parser *parser, const char *text) {
    twi_check(text != NULL);
    tw_status status = TW_OK;
    while (*text != '\0' && status == TW_OK) {
        size_t literal = strcspn(text, "%");
        status = append(parser, text, literal);
        text += literal;
        if (status != TW_OK || *text == '\0') break;
        status = append_sequence(parser, text + 1);
        text += text[1] != '\0' ? 2 : 1;
    }
    return status;
}

/* ---- is the stamp as fine as the windows? ------------------------------------------------------------------------ */

/* Returns how many fields, from the year on, a stamp needs. */
static size_t fields_needed(const struct twi_window_rule *rule) {
    static const int64_t longest_ms[STAMP_FIELDS] = {366 * TW_DAY, 31 * TW_DAY, TW_DAY, TW_HOUR, TW_MINUTE, TW_SECOND};
    if (!twi_calendar_has_starts(rule)) return 0;
    if (rule->window == TW_WINDOW_MONTH) return 2;
    size_t needed = 1;
    int64_t window_ms = twi_calendar_longest_ms(rule); /* all days have the same length, and so have all weeks */
    while (needed < STAMP_FIELDS && longest_ms[needed - 1] > window_ms) needed++;
    return needed;
}

static tw_status check_stamp(struct parser *parser) {
    twi_check(parser->pattern->stamp_count <= TWI_KEY_TEMPLATE_STAMPS_MAX);
    size_t needed = fields_needed(parser->rule);
    for (size_t index = 0; index < needed; index++) {
        if (parser->has_field[index]) continue;
        return refuse(parser, "%%%c is missing: two windows would have the same name", stamp_fields[index]);
    }
    return TW_OK;
}

/* ---- is it apart from the engine's own names? -------------------------------------------------------------------- */

static tw_status check_reserved(struct parser *parser) {
    twi_check(parser->pattern->prefix_size <= parser->pattern->head_size);
    struct twi_key_template *pattern = parser->pattern;
    const char *head = pattern->frame + pattern->prefix_size;
    size_t size = (size_t)(pattern->head_size - pattern->prefix_size);
    if (size >= RESERVED_SIZE && memcmp(head, RESERVED, RESERVED_SIZE) == 0) {
        return refuse(parser, "begins with \"" RESERVED "\", which is reserved");
    }
    pattern->guard_reserved =
        pattern->shape.kind != TW_REDIS_ZSET && size < RESERVED_SIZE && memcmp(head, RESERVED, size) == 0;
    return TW_OK;
}

static tw_key subject_of(const struct twi_key_template *pattern, tw_key key) {
    twi_check(key.data != NULL || key.size == 0);
    tw_key subject, inner;
    (void)twi_redis_shape_split(pattern->shape, key, &subject, &inner);
    return subject;
}

bool twi_key_template_key_is_reserved(const struct twi_key_template *pattern, tw_key key) {
    twi_check(key.size - 1 < TW_KEY_SIZE_MAX);
    if (!pattern->guard_reserved) return false;
    key = subject_of(pattern, key);
    size_t size = (size_t)(pattern->head_size - pattern->prefix_size); /* the head equals the beginning of RESERVED */
    for (size_t index = 0; size < RESERVED_SIZE && index < key.size; index++, size++)
        if (((const char *)key.data)[index] != RESERVED[size]) return false;
    for (size_t index = 0; size < RESERVED_SIZE; index++, size++)
        if (index == pattern->tail_size || pattern->frame[pattern->head_size + index] != RESERVED[size]) return false;
    return true;
}

/* ---- the default, as fine as the window, and readable ------------------------------------------------------------ */

static const char *default_stamp(const struct twi_window_rule *rule) {
    if (!twi_calendar_has_starts(rule)) return "";
    if (rule->window == TW_WINDOW_MONTH) return ":%Y%m";
    if (rule->window != TW_WINDOW_ALIGNED || rule->window_ms % TW_DAY == 0) return ":%Y%m%d";
    if (rule->window_ms % TW_HOUR == 0) return ":%Y%m%d%H";
    if (rule->window_ms % TW_MINUTE == 0) return ":%Y%m%d%H%M";
    return ":%Y%m%d%H%M%S";
}

static tw_status append_default(struct parser *parser) {
    bool has_keys = parser->pattern->shape.kind != TW_REDIS_ZSET, is_cluster = parser->pattern->shorts != NULL;
    tw_status status = append_text(parser, !has_keys ? "%n" : is_cluster ? "%n:{%t}:%k" : "%n:%k");
    return status == TW_OK ? append_text(parser, default_stamp(parser->rule)) : status;
}

tw_status twi_key_template_parse(struct twi_key_template *pattern, const char *text, const char *family_name,
                                 const char *prefix, uint32_t tags, const uint32_t *shorts,
                                 const struct twi_window_rule *rule, const struct twi_redis_shape *shape, char *error,
                                 size_t error_size) {
    twi_check(family_name != NULL && rule != NULL);
    twi_check(twi_key_slot_tags_fit(tags) && tags != 0);
    struct parser parser = {.pattern = pattern,
                            .family_name = family_name,
                            .rule = rule,
                            .tags = tags,
                            .error = error,
                            .error_size = error_size};
    memset(pattern, 0, sizeof *pattern);
    pattern->utc_offset_ms = rule->utc_offset_ms;
    pattern->shorts = shorts;
    if (shape != NULL) pattern->shape = *shape;
    tw_status status = prefix != NULL ? append(&parser, prefix, strlen(prefix)) : TW_OK;
    pattern->prefix_size = pattern->head_size;
    if (status == TW_OK) status = text != NULL ? append_text(&parser, text) : append_default(&parser);
    if (status == TW_OK && !parser.has_key && pattern->shape.kind != TW_REDIS_ZSET)
        status = refuse(&parser, "%%k is missing: all keys would have the same name");
    if (status == TW_OK && pattern->head_size == pattern->prefix_size && pattern->shape.kind == TW_REDIS_ZSET)
        status = refuse(&parser, "empty");
    if (status == TW_OK) status = check_stamp(&parser);
    if (status == TW_OK) status = check_reserved(&parser);
    return status;
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

static void put_digits(char *out, uint32_t value, size_t width) {
    twi_check(width <= 4);
    while (width-- > 0) {
        out[width] = (char)('0' + value % 10);
        value /= 10;
    }
}

static uint32_t field_value(const struct twi_civil *civil, char field) {
    switch (field) {
    case 'Y': return (uint32_t)civil->year;
    case 'm': return civil->month;
    case 'd': return civil->day;
    case 'H': return civil->hour;
    case 'M': return civil->minute;
    default: return civil->second;
    }
}

/* `tag` is the number of digits before the byte of the frame at tag_offset. `key` is the size of the key. */
static void put_stamps(const struct twi_key_template *pattern, int64_t start_ms, char *out, size_t tag, size_t key) {
    twi_check(tag <= TWI_KEY_SLOT_TAG_DIGITS && key <= TW_KEY_SIZE_MAX);
    if (pattern->stamp_count == 0) return;
    const size_t shifts[] = {0, tag, tag + key};
    struct twi_civil civil = twi_calendar_civil(start_ms, pattern->utc_offset_ms);
    for (size_t index = 0; index < pattern->stamp_count; index++) {
        const struct twi_key_template_stamp *stamp = &pattern->stamps[index];
        put_digits(out + stamp->offset + shifts[stamp->place], field_value(&civil, stamp->field),
                   stamp_width(stamp->field));
    }
}

void twi_key_template_stamp(const struct twi_key_template *pattern, int64_t start_ms, char *frame) {
    memcpy(frame, pattern->frame, frame_size(pattern));
    put_stamps(pattern, start_ms, frame, 0, 0);
}

static uint32_t group_of(const struct twi_key_template *pattern, tw_key subject) {
    return pattern->tags != NULL ? twi_key_slot_crc16(subject.data, subject.size) & (pattern->tag_count - 1) : 0;
}

uint32_t twi_key_template_group(const struct twi_key_template *pattern, tw_key key) {
    return group_of(pattern, subject_of(pattern, key));
}

/* Writes the head with the tag of the group. Returns its size. */
static size_t put_head(const struct twi_key_template *pattern, const char *frame, uint32_t group, char *out) {
    twi_check(pattern->tags == NULL || group < pattern->tag_count);
    twi_check(pattern->tag_offset <= pattern->head_size);
    size_t before = pattern->tag_offset;
    if (pattern->tags == NULL) {
        memcpy(out, frame, pattern->head_size);
        return pattern->head_size;
    }
    memcpy(out, frame, before);
    size_t digits = twi_key_slot_decimal(pattern->tags[group], out + before);
    memcpy(out + before + digits, frame + before, pattern->head_size - before);
    return pattern->head_size + digits;
}

static size_t render_subject(const struct twi_key_template *pattern, const char *frame, tw_key subject, char *out) {
    twi_check(subject.size <= TW_KEY_SIZE_MAX);
    size_t size = put_head(pattern, frame, group_of(pattern, subject), out);
    if (subject.size != 0) memcpy(out + size, subject.data, subject.size);
    memcpy(out + size + subject.size, frame + pattern->head_size, pattern->tail_size);
    return size + subject.size + pattern->tail_size;
}

size_t twi_key_template_render_stamped(const struct twi_key_template *pattern, const char *frame, tw_key key,
                                       char *out) {
    return render_subject(pattern, frame, subject_of(pattern, key), out);
}

size_t twi_key_template_render(const struct twi_key_template *pattern, tw_key key, int64_t start_ms, char *out) {
    twi_check(key.size <= TW_KEY_SIZE_MAX);
    twi_check(pattern->head_size + pattern->tail_size <= TWI_KEY_TEMPLATE_FRAME_BYTES_MAX);
    tw_key subject = subject_of(pattern, key);
    size_t size = render_subject(pattern, pattern->frame, subject, out);
    put_stamps(pattern, start_ms, out, size - frame_size(pattern) - subject.size, subject.size);
    return size;
}

size_t twi_key_template_render_group(const struct twi_key_template *pattern, uint32_t group, int64_t start_ms,
                                     char *out) {
    twi_check(pattern->tags == NULL ? group == 0 : group < pattern->tag_count);
    size_t size = put_head(pattern, pattern->frame, group, out);
    memcpy(out + size, pattern->frame + pattern->head_size, pattern->tail_size);
    put_stamps(pattern, start_ms, out, size - pattern->head_size, 0);
    return size + pattern->tail_size;
}

size_t twi_key_template_own(const struct twi_key_template *pattern, const char *what, const char *name, size_t size,
                            char *out) {
    twi_check(size >= pattern->prefix_size && size <= TWI_REDIS_KEY_MAX);
    size_t prefix = pattern->prefix_size;
    char own[17]; /* callers have room for 16 more bytes, and for the brace */
    size_t added = (size_t)snprintf(own, sizeof own, "tw:%s:", what);
    twi_check(added < sizeof own);
    memcpy(out, name, prefix);
    memcpy(out + prefix, own, added);
    added += twi_key_slot_brace(pattern->shorts, name, size, out + prefix + added);
    memcpy(out + prefix + added, name + prefix, size - prefix);
    return size + added;
}

/* A short after the second colon may be the tag of the counter itself. Then it does not return the same name. */
size_t twi_key_template_counter_of(const struct twi_key_template *pattern, const char *what, tw_key own, char *out) {
    const char *name = own.data;
    size_t prefix = pattern->prefix_size, added = strlen(what) + sizeof "tw::" - 1, size = own.size - added;
    char bare[TWI_REDIS_KEY_MAX], again[TWI_OWN_NAME_MAX];
    memcpy(out, name, prefix);
    memcpy(out + prefix, name + prefix + added, size - prefix);
    const char *end = size > prefix && out[prefix] == '{' ? memchr(out + prefix, '}', size - prefix) : NULL;
    if (end == NULL) return size;
    size_t tag = (size_t)(end + 1 - (out + prefix));
    memcpy(bare, out, prefix);
    memcpy(bare + prefix, end + 1, size - prefix - tag);
    size_t whole = twi_key_template_own(pattern, what, bare, size - tag, again);
    if (whole != own.size || memcmp(again, name, whole) != 0) return size;
    memcpy(out, bare, size - tag);
    return size - tag;
}

size_t twi_key_template_render_overflow(const struct twi_key_template *pattern, int64_t start_ms, char *out) {
    const size_t inserted = sizeof TWI_KEY_TEMPLATE_OVERFLOW - 1, prefix = pattern->prefix_size;
    char name[TWI_REDIS_KEY_MAX];
    size_t size = twi_key_template_render(pattern, tw_bytes("", 0), start_ms, name);
    memcpy(out, name, prefix);
    memcpy(out + prefix, TWI_KEY_TEMPLATE_OVERFLOW, inserted);
    memcpy(out + prefix + inserted, name + prefix, size - prefix);
    return size + inserted;
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

static char *put_literal(char *out, const char *frame, size_t size) {
    for (size_t index = 0; index < size; index++) {
        if (frame[index] == '\0') { /* the zero byte is a digit of the time stamp */
            *out++ = '?';
            continue;
        }
        out = twi_glob_put(out, frame[index]);
    }
    return out;
}

void twi_key_template_glob(const struct twi_key_template *pattern, const char *word, char *out) {
    twi_check(strlen(word) <= 32);
    static const char any_tag[] = "[0-9]*";
    size_t before = pattern->tags != NULL ? pattern->tag_offset : pattern->head_size, prefix = pattern->prefix_size;
    const char *frame = pattern->frame;
    out = put_literal(out, frame, prefix);
    out = stpcpy(out, word);
    out = put_literal(out, frame + prefix, before - prefix);
    if (pattern->tags != NULL) out = stpcpy(out, any_tag);
    out = put_literal(out, frame + before, pattern->head_size - before);
    if (pattern->shape.kind != TW_REDIS_ZSET) *out++ = '*';
    *put_literal(out, frame + pattern->head_size, pattern->tail_size) = '\0';
}

/* ---- two templates ----------------------------------------------------------------------------------------------- */

/* A zero byte is a digit of a stamp (a literal cannot contain one), so any digit may be at its place. */
static bool bytes_can_meet(char one, char other) {
    if (one != '\0' && other != '\0') return one == other;
    char literal = one != '\0' ? one : other;
    return literal == '\0' || (literal >= '0' && literal <= '9');
}

static bool is_digit(char byte) {
    return byte == '\0' || (byte >= '0' && byte <= '9');
}

/* Returns true if some text can begin with both heads. At the place of the tag of one template, the other has its
 * tag, or digits, or ends. */
static bool heads_can_meet(const struct twi_key_template *one, const struct twi_key_template *other) {
    twi_check(one->prefix_size == other->prefix_size);
    size_t a = 0, b = 0;
    bool one_tags = one->tags != NULL, other_tags = other->tags != NULL;
    while (a < one->head_size && b < other->head_size) {
        bool at_one = one_tags && a == one->tag_offset, at_other = other_tags && b == other->tag_offset;
        if (at_one) one_tags = false;
        if (at_other) other_tags = false;
        if (at_one != at_other) {
            const struct twi_key_template *literal = at_one ? other : one;
            size_t *at = at_one ? &b : &a, from = *at;
            while (*at < literal->head_size && is_digit(literal->frame[*at])) ++*at;
            if (*at == literal->head_size) return true;
            if (*at == from) return false;
        }
        if (!bytes_can_meet(one->frame[a++], other->frame[b++])) return false;
    }
    return true;
}

/* Returns true if the name without a key, which begins with the head of the other template, can end with its tail,
 * with a key and perhaps a tag in between. */
static bool fixed_can_meet(const struct twi_key_template *fixed, const struct twi_key_template *other) {
    twi_check(fixed->shape.kind == TW_REDIS_ZSET && fixed->tail_size == 0);
    size_t least = frame_size(other) + (other->tags != NULL) + 1;
    if (fixed->head_size < least) return false;
    for (size_t index = 1; index <= other->tail_size; index++)
        if (!bytes_can_meet(fixed->frame[fixed->head_size - index], other->frame[frame_size(other) - index]))
            return false;
    return true;
}

bool twi_key_templates_collide(const struct twi_key_template *one, const struct twi_key_template *other) {
    if (!heads_can_meet(one, other)) return false;
    bool one_is_fixed = one->shape.kind == TW_REDIS_ZSET, other_is_fixed = other->shape.kind == TW_REDIS_ZSET;
    if (one_is_fixed && other_is_fixed) return one->head_size == other->head_size;
    if (one_is_fixed) return fixed_can_meet(one, other);
    if (other_is_fixed) return fixed_can_meet(other, one);
    size_t tails = one->tail_size < other->tail_size ? one->tail_size : other->tail_size;
    for (size_t index = 1; index <= tails; index++)
        if (!bytes_can_meet(one->frame[frame_size(one) - index], other->frame[frame_size(other) - index])) return false;
    return true;
}

/* ---- redis shape ------------------------------------------------------------------------------------------------ */

bool twi_redis_shape_split(struct twi_redis_shape shape, tw_key key, tw_key *subject, tw_key *inner) {
    twi_check(shape.kind <= TW_REDIS_ZSET);
    twi_check(key.size <= TW_KEY_SIZE_MAX);
    const char *bytes = key.data;
    *subject = key;
    *inner = tw_bytes(bytes, 0);
    if (shape.kind == TW_REDIS_STRING) return true;
    if (shape.kind == TW_REDIS_ZSET) {
        *subject = tw_bytes(bytes, 0);
        *inner = key;
        return true;
    }
    for (size_t at = key.size; at-- > 0;) {
        if (bytes[at] != shape.separator) continue;
        if (at == 0 || at + 1 == key.size) return false;
        *subject = tw_bytes(bytes, at);
        *inner = tw_bytes(bytes + at + 1, key.size - at - 1);
        return true;
    }
    return false;
}

const char *twi_fields_read(const char *text, char separator, struct twi_fields *fields) {
    twi_check(text != NULL && separator != '\0');
    fields->count = 0;
    for (;;) {
        size_t size = strcspn(text, ",");
        if (size == 0) return "one of them is empty";
        if (size > TW_KEY_SIZE_MAX - 2) return "one of them leaves no room for a subject in a key";
        if (memchr(text, separator, size) != NULL) return "one of them has key_separator in it";
        if (fields->count == TWI_FIELDS_MAX) return "more than 64 of them";
        tw_key field = tw_bytes(text, size);
        if (twi_fields_have(fields, field)) return "one of them is there twice";
        fields->each[fields->count++] = field;
        if (text[size] == '\0') return NULL;
        text += size + 1;
    }
}

bool twi_fields_have(const struct twi_fields *fields, tw_key field) {
    twi_check(fields->count <= TWI_FIELDS_MAX);
    for (uint32_t i = 0; i < fields->count; i++)
        if (fields->each[i].size == field.size && memcmp(fields->each[i].data, field.data, field.size) == 0)
            return true;
    return false;
}
