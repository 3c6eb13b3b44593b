/* key_template.c -- see key_template.h.
 *
 * Why a fixed frame makes names one-to-one: head and tail have the same sizes in every window. So equal names mean
 * equal key sizes, hence equal keys and equal stamps. Equal stamps mean the same window, and the parser ensures this:
 * the fields %Y, %m, ... that are present without a gap from the year on name a unit of time no longer than a window.
 * Two windows never start within one unit, because starts lie at least the unit's greatest length apart. Fields after a
 * gap (%H without %d) are rendered, but the parser does not rely on them.
 *
 * Why comparing the ends shows whether two templates can meet: a key may be any bytes. So a common name exists exactly
 * if some text can begin like both heads and end like both tails. The surplus of the longer head is key in the other
 * template. */
#include "engine/core/key_template.h"

#include "engine/base/check.h"
#include "engine/core/options.h"

#include <stdio.h>
#include <string.h>

#define RESERVED "tw:"
#define RESERVED_SIZE 3

static const char stamp_fields[] = "YmdHMS"; /* from the coarsest to the finest */
enum { STAMP_FIELDS = sizeof stamp_fields - 1 };

static size_t stamp_width(char field) {
    return field == 'Y' ? 4 : 2;
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

struct parser {
    struct twi_key_template *pattern;
    const char *family_name;
    const struct twi_window_rule *rule;
    bool has_key;
    bool has_field[STAMP_FIELDS];
    char *error;
    size_t error_size;
};

#define refuse(parser, ...) twi_options_refuse((parser)->error, (parser)->error_size, "redis_key: " __VA_ARGS__)

static size_t frame_size(const struct twi_key_template *pattern) {
    return (size_t)pattern->head_size + pattern->tail_size;
}

/* Appends to the head, or, after the key, to the tail. */
static tw_status append(struct parser *parser, const char *bytes, size_t size) {
    struct twi_key_template *pattern = parser->pattern;
    size_t used = frame_size(pattern);
    if (size > TWI_KEY_TEMPLATE_FRAME_BYTES_MAX - used) {
        return refuse(parser, "with the prefix, longer than %d bytes without the key",
                      TWI_KEY_TEMPLATE_FRAME_BYTES_MAX);
    }
    memcpy(pattern->frame + used, bytes, size);
    uint16_t *part = parser->has_key ? &pattern->tail_size : &pattern->head_size;
    *part = (uint16_t)(*part + size);
    return TW_OK;
}

static tw_status append_stamp(struct parser *parser, char field) {
    struct twi_key_template *pattern = parser->pattern;
    if (!twi_calendar_has_starts(parser->rule))
        return refuse(parser, "%%%c, but these windows have no common start", field);
    if (pattern->stamp_count == TWI_KEY_TEMPLATE_STAMPS_MAX) {
        return refuse(parser, "more than %d parts of the time", TWI_KEY_TEMPLATE_STAMPS_MAX);
    }
    size_t offset = frame_size(pattern);
    tw_status status = append(parser, "\0\0\0\0", stamp_width(field));
    if (status != TW_OK) return status;
    pattern->stamps[pattern->stamp_count++] =
        (struct twi_key_template_stamp){.offset = (uint16_t)offset, .field = field};
    parser->has_field[strchr(stamp_fields, field) - stamp_fields] = true;
    return TW_OK;
}

static tw_status append_sequence(struct parser *parser, char letter) {
    switch (letter) {
    case 'k':
        if (parser->has_key) return refuse(parser, "%%k twice");
        parser->has_key = true;
        return TW_OK;
    case 'n': return append(parser, parser->family_name, strlen(parser->family_name));
    case '%': return append(parser, "%", 1);
    case '\0': return refuse(parser, "%% at the end (a percent sign is %%%%)");
    default:
        if (strchr(stamp_fields, letter) != NULL) return append_stamp(parser, letter);
        if (letter < '!' || letter > '~') return refuse(parser, "%% before a byte that means nothing");
        return refuse(parser, "%%%c means nothing; there are %%k %%n %%Y %%m %%d %%H %%M %%S %%%%", letter);
    }
}

static tw_status append_text(struct parser *parser, const char *text) {
    tw_status status = TW_OK;
    while (*text != '\0' && status == TW_OK) {
        size_t literal = strcspn(text, "%");
        status = append(parser, text, literal);
        text += literal;
        if (status != TW_OK || *text == '\0') break;
        status = append_sequence(parser, text[1]);
        text += text[1] != '\0' ? 2 : 1;
    }
    return status;
}

/* ---- is the stamp as fine as the windows? ------------------------------------------------------------------------ */

/* How many fields, from the year on, a stamp needs. */
static size_t fields_needed(const struct twi_window_rule *rule) {
    static const int64_t longest_ms[STAMP_FIELDS] = {366 * TW_DAY, 31 * TW_DAY, TW_DAY, TW_HOUR, TW_MINUTE, TW_SECOND};
    if (!twi_calendar_has_starts(rule)) return 0;
    if (rule->window == TW_WINDOW_MONTH) return 2;
    size_t needed = 1;
    int64_t window_ms = twi_calendar_longest_ms(rule); /* all days, and all weeks, have the same length */
    while (needed < STAMP_FIELDS && longest_ms[needed - 1] > window_ms) needed++;
    return needed;
}

static tw_status check_stamp(struct parser *parser) {
    size_t needed = fields_needed(parser->rule);
    for (size_t index = 0; index < needed; index++) {
        if (parser->has_field[index]) continue;
        return refuse(parser, "%%%c is missing: two windows would have the same name", stamp_fields[index]);
    }
    return TW_OK;
}

/* ---- is it apart from the engine's own names? -------------------------------------------------------------------- */

static tw_status check_reserved(struct parser *parser) {
    struct twi_key_template *pattern = parser->pattern;
    const char *head = pattern->frame + pattern->prefix_size;
    size_t size = (size_t)(pattern->head_size - pattern->prefix_size);
    if (size >= RESERVED_SIZE && memcmp(head, RESERVED, RESERVED_SIZE) == 0) {
        return refuse(parser, "begins with \"" RESERVED "\", which is reserved");
    }
    pattern->guard_reserved = size < RESERVED_SIZE && memcmp(head, RESERVED, size) == 0;
    return TW_OK;
}

bool twi_key_template_key_is_reserved(const struct twi_key_template *pattern, tw_key key) {
    if (!pattern->guard_reserved) return false;
    size_t size = (size_t)(pattern->head_size - pattern->prefix_size); /* the head matches the beginning of RESERVED */
    for (size_t index = 0; size < RESERVED_SIZE && index < key.size; index++, size++)
        if (((const char *)key.data)[index] != RESERVED[size]) return false;
    for (size_t index = 0; size < RESERVED_SIZE; index++, size++)
        if (index == pattern->tail_size || pattern->frame[pattern->head_size + index] != RESERVED[size]) return false;
    return true;
}

/* ---- the default: as fine as the window, and readable ------------------------------------------------------------ */

static const char *default_text(const struct twi_window_rule *rule) {
    if (!twi_calendar_has_starts(rule)) return "%n:%k";
    if (rule->window == TW_WINDOW_MONTH) return "%n:%k:%Y%m";
    if (rule->window != TW_WINDOW_ALIGNED || rule->window_ms % TW_DAY == 0) return "%n:%k:%Y%m%d";
    if (rule->window_ms % TW_HOUR == 0) return "%n:%k:%Y%m%d%H";
    if (rule->window_ms % TW_MINUTE == 0) return "%n:%k:%Y%m%d%H%M";
    return "%n:%k:%Y%m%d%H%M%S";
}

tw_status twi_key_template_parse(struct twi_key_template *pattern, const char *text, const char *family_name,
                                 const char *prefix, const struct twi_window_rule *rule, char *error,
                                 size_t error_size) {
    struct parser parser = {
        .pattern = pattern, .family_name = family_name, .rule = rule, .error = error, .error_size = error_size};
    memset(pattern, 0, sizeof *pattern);
    pattern->utc_offset_ms = rule->utc_offset_ms;
    tw_status status = prefix != NULL ? append(&parser, prefix, strlen(prefix)) : TW_OK;
    pattern->prefix_size = pattern->head_size;
    if (status == TW_OK) status = append_text(&parser, text != NULL ? text : default_text(rule));
    if (status == TW_OK && !parser.has_key)
        status = refuse(&parser, "%%k is missing: all keys would have the same name");
    if (status == TW_OK) status = check_stamp(&parser);
    if (status == TW_OK) status = check_reserved(&parser);
    return status;
}

/* ---- rendering --------------------------------------------------------------------------------------------------- */

static void put_digits(char *out, uint32_t value, size_t width) {
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

/* `shift`: where the part of the frame behind the head lies in `out`, relative to the frame. */
static void put_stamps(const struct twi_key_template *pattern, int64_t start_ms, char *out, size_t shift) {
    if (pattern->stamp_count == 0) return;
    struct twi_civil civil = twi_calendar_civil(start_ms, pattern->utc_offset_ms);
    for (size_t index = 0; index < pattern->stamp_count; index++) {
        const struct twi_key_template_stamp *stamp = &pattern->stamps[index];
        size_t at = stamp->offset < pattern->head_size ? stamp->offset : stamp->offset + shift;
        put_digits(out + at, field_value(&civil, stamp->field), stamp_width(stamp->field));
    }
}

void twi_key_template_stamp(const struct twi_key_template *pattern, int64_t start_ms, char *frame) {
    memcpy(frame, pattern->frame, frame_size(pattern));
    put_stamps(pattern, start_ms, frame, 0);
}

size_t twi_key_template_render_stamped(const struct twi_key_template *pattern, const char *frame, tw_key key,
                                       char *out) {
    twi_check(key.size <= TW_KEY_SIZE_MAX);
    memcpy(out, frame, pattern->head_size);
    if (key.size != 0) memcpy(out + pattern->head_size, key.data, key.size);
    memcpy(out + pattern->head_size + key.size, frame + pattern->head_size, pattern->tail_size);
    return frame_size(pattern) + key.size;
}

size_t twi_key_template_render(const struct twi_key_template *pattern, tw_key key, int64_t start_ms, char *out) {
    size_t size = twi_key_template_render_stamped(pattern, pattern->frame, key, out);
    put_stamps(pattern, start_ms, out, key.size);
    return size;
}

size_t twi_key_template_own(const struct twi_key_template *pattern, const char *what, const char *name, size_t size,
                            char *out) {
    size_t prefix = pattern->prefix_size;
    char own[17]; /* callers have room for 16 bytes more */
    size_t added = (size_t)snprintf(own, sizeof own, "tw:%s:", what);
    twi_check(added < sizeof own);
    memcpy(out, name, prefix);
    memcpy(out + prefix, own, added);
    memcpy(out + prefix + added, name + prefix, size - prefix);
    return size + added;
}

size_t twi_key_template_render_overflow(const struct twi_key_template *pattern, int64_t start_ms, char *out) {
    const size_t inserted = sizeof TWI_KEY_TEMPLATE_OVERFLOW - 1;
    char frame[TWI_KEY_TEMPLATE_FRAME_BYTES_MAX];
    twi_key_template_stamp(pattern, start_ms, frame);
    memcpy(out, frame, pattern->prefix_size);
    memcpy(out + pattern->prefix_size, TWI_KEY_TEMPLATE_OVERFLOW, inserted);
    memcpy(out + pattern->prefix_size + inserted, frame + pattern->prefix_size,
           frame_size(pattern) - pattern->prefix_size);
    return frame_size(pattern) + inserted;
}

/* ---- two templates ----------------------------------------------------------------------------------------------- */

/* A zero byte stands for a stamp (a literal cannot hold one): any digit may be there. */
static bool bytes_can_meet(char one, char other) {
    if (one != '\0' && other != '\0') return one == other;
    char literal = one != '\0' ? one : other;
    return literal == '\0' || (literal >= '0' && literal <= '9');
}

bool twi_key_templates_collide(const struct twi_key_template *one, const struct twi_key_template *other) {
    size_t heads = one->head_size < other->head_size ? one->head_size : other->head_size;
    for (size_t index = 0; index < heads; index++)
        if (!bytes_can_meet(one->frame[index], other->frame[index])) return false;
    size_t tails = one->tail_size < other->tail_size ? one->tail_size : other->tail_size;
    for (size_t index = 1; index <= tails; index++)
        if (!bytes_can_meet(one->frame[frame_size(one) - index], other->frame[frame_size(other) - index])) return false;
    return true;
}
