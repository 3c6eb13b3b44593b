/* text.c -- the parsers for values on the command line. See text.h.
 * Always true: overflow is checked before each addition, so no text, however long, wraps a number. */
#include "tools/common/text.h"

#include <string.h>

#define SPAN_MS_MAX (INT64_C(36500) * 86400000) /* a hundred years; far longer than any window, far from overflow */

/* Reads digits; returns where they end, or NULL if there are none or the number exceeds UINT64_MAX. */
static const char *digits_read(const char *text, uint64_t *number) {
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10) return NULL;
        value = value * 10 + digit;
    }
    if (at == text) return NULL;
    *number = value;
    return at;
}

bool text_number(const char *text, uint64_t low, uint64_t high, uint64_t *number) {
    uint64_t value, scale = 1;
    const char *end = digits_read(text, &value);
    if (end == NULL) return false;
    switch (*end) {
    case 'K': scale = 1000; break;
    case 'M': scale = 1000000; break;
    case 'G': scale = 1000000000; break;
    default: break;
    }
    if (scale > 1) end++;
    if (*end != '\0' || value > UINT64_MAX / scale) return false;
    value *= scale;
    if (value < low || value > high) return false;
    *number = value;
    return true;
}

bool text_size(const char *text, uint64_t *bytes) {
    static const char units[] = "KMGT";
    uint64_t value;
    const char *end = digits_read(text, &value);
    if (end == NULL) return false;
    unsigned shift = 0;
    if (*end != '\0') {
        char unit = *end >= 'a' && *end <= 'z' ? (char)(*end - 'a' + 'A') : *end;
        const char *found = strchr(units, unit);
        if (found == NULL || end[1] != '\0') return false;
        shift = 10 * (unsigned)(found - units + 1);
    }
    if (value > UINT64_MAX >> shift) return false;
    *bytes = value << shift;
    return true;
}

static int64_t text_unit_ms(char unit) {
    switch (unit) {
    case 's': return 1000;
    case 'm': return 60 * 1000;
    case 'h': return 3600 * 1000;
    case 'd': return 86400 * 1000;
    default: return 0;
    }
}

bool text_span(const char *text, int64_t *ms) {
    uint64_t value;
    const char *end = digits_read(text, &value);
    if (end == NULL || *end == '\0' || end[1] != '\0') return false;
    int64_t unit = text_unit_ms(*end);
    if (unit == 0 || value > (uint64_t)(SPAN_MS_MAX / unit)) return false;
    *ms = (int64_t)value * unit;
    return true;
}

/* One or two digits. */
static const char *two_digits(const char *text, unsigned *number) {
    if (*text < '0' || *text > '9') return NULL;
    *number = (unsigned)(*text++ - '0');
    if (*text >= '0' && *text <= '9') *number = *number * 10 + (unsigned)(*text++ - '0');
    return text;
}

bool text_offset(const char *text, int64_t *ms) {
    if (strcmp(text, "Z") == 0 || strcmp(text, "UTC") == 0) {
        *ms = 0;
        return true;
    }
    if (*text != '+' && *text != '-') return false;
    unsigned hours, minutes = 0;
    const char *at = two_digits(text + 1, &hours);
    if (at == NULL) return false;
    if (*at != '\0') {
        if (*at == ':') at++;
        const char *end = two_digits(at, &minutes);
        if (end == NULL || end - at != 2 || *end != '\0') return false;
    }
    if (minutes > 59 || hours * 60 + minutes > 14 * 60) return false;
    int64_t offset_ms = (int64_t)(hours * 60 + minutes) * 60000;
    *ms = *text == '-' ? -offset_ms : offset_ms;
    return true;
}

#define WORD_MAX 32

/* The edit distance of two words (insert, delete, replace, swap adjacent letters). */
static unsigned distance(const char *a, const char *b) {
    unsigned table[WORD_MAX + 1][WORD_MAX + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > WORD_MAX || m > WORD_MAX) return WORD_MAX;
    for (size_t i = 0; i <= n; i++) table[i][0] = (unsigned)i;
    for (size_t j = 0; j <= m; j++) table[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            unsigned best = table[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (table[i - 1][j] + 1 < best) best = table[i - 1][j] + 1;
            if (table[i][j - 1] + 1 < best) best = table[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && table[i - 2][j - 2] + 1 < best) {
                best = table[i - 2][j - 2] + 1;
            }
            table[i][j] = best;
        }
    }
    return table[n][m];
}

/* A third of the word may be wrong. So "--windwo" means "--window", and "--xyz" has no match. A prefix of a word
 * matches, too. */
const char *text_nearest(const char *word, const char *const *words) {
    const char *nearest = NULL;
    size_t size = strlen(word);
    unsigned least = (unsigned)size / 3 + 1;
    for (; *words != NULL; words++) {
        unsigned edits = distance(word, *words);
        if (edits < least || (edits == least && nearest == NULL && edits <= 2 && size > 3)) {
            least = edits;
            nearest = *words;
        } else if (nearest == NULL && size >= 3 && strncmp(word, *words, size) == 0) {
            nearest = *words;
        }
    }
    return nearest;
}

uint64_t text_hash(uint64_t hash, const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}
