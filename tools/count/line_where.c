/* line_where.c -- the conditions of --where, which select the lines that count.
 * Always true: a line that does not meet a condition is left out, and is no error. A text that is no number meets no
 * comparison of numbers. */
#include <stdlib.h>

#include "tools/count/line_rule.h"

#define DIGITS_MAX 15 /* as many are exact in a double */
#define NUMBER_MAX 63

const char line_left_out[] = "left out by --where, --since or --until";

bool line_number_read(const char *text, size_t size, double *number) {
    char copy[NUMBER_MAX + 1], *end;
    int64_t value = 0;
    size_t at = 0;
    for (; at < size && at < DIGITS_MAX && text[at] >= '0' && text[at] <= '9'; at++)
        value = value * 10 + (text[at] - '0');
    *number = (double)value;
    if (at == size && size > 0) return true;
    if (size == 0 || size > NUMBER_MAX) return false;
    for (at = 0; at < size; at++) /* "inf" and hexadecimal digits are refused */
        if (strchr("0123456789+-.eE", text[at]) == NULL || text[at] == '\0') return false;
    memcpy(copy, text, size);
    copy[size] = '\0';
    *number = strtod(copy, &end); /* the command sets no locale, so the point is "." */
    return end == copy + size;
}

bool line_whole_read(const char *text, size_t size, int64_t *number) {
    bool is_negative = size > 0 && *text == '-';
    size_t at = is_negative;
    int64_t value = 0;
    for (; at < size && text[at] >= '0' && text[at] <= '9' && value <= TW_DELTA_MAX; at++)
        value = value * 10 + (text[at] - '0');
    *number = is_negative ? -value : value;
    return at == size && value <= TW_DELTA_MAX;
}

static bool where_is_same(tw_key a, tw_key b) {
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static bool contains(tw_key text, tw_key part) {
    return part.size == 0 || memmem(text.data, text.size, part.data, part.size) != NULL;
}

static bool compares(const struct line_condition *condition, tw_key text) {
    double number;
    if (!line_number_read(text.data, text.size, &number)) return false;
    switch (condition->relation) {
    case LINE_LESS: return number < condition->number;
    case LINE_AT_MOST: return number <= condition->number;
    case LINE_GREATER: return number > condition->number;
    default: return number >= condition->number;
    }
}

bool line_where_holds(const struct line_rule *rule, const tw_key *field_at) {
    for (size_t i = 0; i < rule->where_count; i++) {
        const struct line_condition *condition = &rule->where[i];
        bool holds;
        switch (condition->relation) {
        case LINE_EQUAL: holds = where_is_same(field_at[i], condition->value); break;
        case LINE_UNEQUAL: holds = !where_is_same(field_at[i], condition->value); break;
        case LINE_CONTAINS: holds = contains(field_at[i], condition->value); break;
        case LINE_LACKS: holds = !contains(field_at[i], condition->value); break;
        default: holds = compares(condition, field_at[i]); break;
        }
        if (!holds) return false;
    }
    return true;
}
