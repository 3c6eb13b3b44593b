/* line_tsv.c -- a plain format that other programs write: unix-seconds<TAB>key[<TAB>delta], or with an element
 * unix-seconds<TAB>key<TAB>element.
 * Always true: a time is in the years 1 to 9999, a delta within TW_DELTA_MAX; the key may contain anything but a
 * tab, the element anything. */
#include "line.h"

#define UNIX_S_MIN INT64_C(-62135596800) /* 0001-01-01T00:00:00Z */
#define UNIX_S_MAX INT64_C(253402300799) /* 9999-12-31T23:59:59Z */

/* An optional sign and 1..18 digits (which cannot overflow), and nothing else. */
static bool integer_read(const char *text, size_t size, int64_t *number) {
    bool negative = size > 0 && text[0] == '-';
    size_t at = size > 0 && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    if (at == size || size - at > 18) return false;
    int64_t value = 0;
    for (; at < size; at++) {
        unsigned digit = (unsigned)(unsigned char)text[at] - '0';
        if (digit > 9) return false;
        value = value * 10 + (int64_t)digit;
    }
    *number = negative ? -value : value;
    return true;
}

const char *line_tsv(const struct line_rule *rule, const char *text, size_t size, struct line *line) {
    const char *end = text + size;
    const char *tab = memchr(text, '\t', size);
    int64_t unix_s;
    if (tab == NULL) return "no tab after the time";
    if (!integer_read(text, (size_t)(tab - text), &unix_s) || unix_s < UNIX_S_MIN || unix_s > UNIX_S_MAX) {
        return "the time is not a number of Unix seconds";
    }
    const char *key = tab + 1;
    const char *key_end = memchr(key, '\t', (size_t)(end - key));
    int64_t delta = 1;
    if (rule->element_count > 0) {
        if (key_end == NULL) return "no tab after the key: the third field is the element";
        line->element = tw_bytes(key_end + 1, (size_t)(end - key_end - 1));
    } else if (key_end != NULL) {
        if (!integer_read(key_end + 1, (size_t)(end - key_end - 1), &delta))
            return "the third field is not a whole number";
        if (delta > TW_DELTA_MAX || delta < -TW_DELTA_MAX) return "the delta is out of range";
    } else {
        key_end = end;
    }
    if (key_end == key) return "the key is empty";
    if (key_end - key > TW_KEY_SIZE_MAX) return "the key is longer than 1024 bytes";
    line->unix_ms = unix_s * 1000;
    line->delta = delta;
    line->key = tw_bytes(key, (size_t)(key_end - key));
    return NULL;
}
