/* line_tsv.c -- a plain format that other programs write. It is unix-seconds<TAB>key[<TAB>delta], or with an element
 * unix-seconds<TAB>key<TAB>element. A time of ISO 8601 in place of the number is read, too. So is what
 * `count --output tsv` has written.
 * Always true: a delta is within TW_DELTA_MAX; the key may contain anything but a tab, the element anything. */
#include "tools/count/line_form.h"

#define TIME_DIGITS 15  /* in milliseconds they fit into 64 bits */
#define DELTA_DIGITS 18 /* as many cannot overflow */

/* Reads an optional sign and 1 to `digits` digits, no more. */
static bool integer_read(const char *text, size_t size, size_t digits, int64_t *number) {
    bool negative = size > 0 && text[0] == '-';
    size_t at = size > 0 && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    if (at == size || size - at > digits) return false;
    int64_t value = 0;
    for (; at < size; at++) {
        unsigned digit = (unsigned)(unsigned char)text[at] - '0';
        if (digit > 9) return false;
        value = value * 10 + (int64_t)digit;
    }
    *number = negative ? -value : value;
    return true;
}

static bool tsv_time_read(const struct line_rule *rule, const char *text, size_t size, int64_t *unix_ms) {
    int64_t unix_s;
    if (!integer_read(text, size, TIME_DIGITS, &unix_s)) return line_time_iso(text, size, rule->utc_offset_ms, unix_ms);
    *unix_ms = unix_s * 1000;
    return true;
}

/* The conditions' fields, which are the time, the key, and the fields after them. */
static bool where_holds(const struct line_rule *rule, tw_key time, tw_key key, tw_key third) {
    tw_key field_at[LINE_WHERE_MAX];
    for (size_t i = 0; i < rule->where_count; i++) {
        uint16_t field = rule->fields[rule->element_count + i];
        field_at[i] = field == 1 ? time : field == 2 ? key : third;
    }
    return line_where_holds(rule, field_at);
}

const char *line_tsv(const struct line_rule *rule, const char *text, size_t size, struct line *line) {
    const char *end = text + size;
    const char *tab = memchr(text, '\t', size);
    if (tab == NULL) return "no tab after the time";
    if (!tsv_time_read(rule, text, (size_t)(tab - text), &line->unix_ms))
        return "the time is neither a number of Unix seconds nor like 2015-05-17T10:05:03Z";
    if (!line_time_counts(line->unix_ms)) return line_time_uncounted;
    const char *key = tab + 1;
    const char *key_end = memchr(key, '\t', (size_t)(end - key));
    int64_t delta = 1;
    if (rule->element_count > 0) {
        if (key_end == NULL) return "no tab after the key: the third field is the element";
        line->element = tw_bytes(key_end + 1, (size_t)(end - key_end - 1));
    } else if (key_end != NULL) {
        if (!integer_read(key_end + 1, (size_t)(end - key_end - 1), DELTA_DIGITS, &delta))
            return "the third field is not a whole number";
        if (delta > TW_DELTA_MAX || delta < -TW_DELTA_MAX) return "the delta is out of range";
    } else {
        key_end = end;
    }
    if (key_end == key) return "the key is empty";
    if (key_end - key > TW_KEY_SIZE_MAX) return "the key is longer than 1024 bytes";
    line->delta = delta;
    line->sum = 0;
    line->key = tw_bytes(key, (size_t)(key_end - key));
    if (rule->where_count == 0) return NULL;
    tw_key third = key_end < end ? tw_bytes(key_end + 1, (size_t)(end - key_end - 1)) : tw_bytes("1", 1);
    return where_holds(rule, tw_bytes(text, (size_t)(tab - text)), line->key, third) ? NULL : line_left_out;
}
