/* layout_time.c -- times in the form that a layout says, with the conversions of strftime() and four more:
 *
 *     %1  milliseconds, three digits       %6  microseconds, six digits
 *     %3  Unix time in milliseconds        %9  Unix time in microseconds
 *
 * Names of months are English, as servers write them. Names of days are passed over, and so is that of a time zone,
 * unless it is UTC or GMT. Always true: a time that is read is a moment of the calendar. */
#include "tools/count/layout.h"

static const char *time_digits(const char *at, const char *end, size_t least, size_t most, uint64_t *value) {
    size_t count = 0;
    for (*value = 0; count < most && at < end && *at >= '0' && *at <= '9'; at++, count++)
        *value = *value * 10 + (uint64_t)(*at - '0');
    return count < least ? NULL : at;
}

/* A number within bounds; with `is_padded` a space may be in place of its first digit. */
static const char *time_number(const char *at, const char *end, size_t digits, unsigned low, unsigned high,
                               bool is_padded, unsigned *number) {
    uint64_t value;
    bool has_space = is_padded && at < end && *at == ' ';
    at = time_digits(at + has_space, end, is_padded ? 1 : digits, digits - has_space, &value);
    if (at == NULL || value < low || value > high) return NULL;
    *number = (unsigned)value;
    return at;
}

static const char *time_letters(const char *at, const char *end) {
    const char *begin = at;
    while (at < end && ((*at >= 'A' && *at <= 'Z') || (*at >= 'a' && *at <= 'z'))) at++;
    return at == begin ? NULL : at;
}

/* "May", or the whole name. */
static const char *time_month(const char *at, const char *end, bool is_whole, unsigned *month) {
    static const char *const names[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};
    for (unsigned i = 0; i < 12; i++) {
        size_t size = is_whole ? strlen(names[i]) : 3;
        if ((size_t)(end - at) < size || memcmp(at, names[i], size) != 0) continue;
        *month = i + 1;
        return at + size;
    }
    return NULL;
}

/* Z, +0200 or +02:00. */
static const char *time_offset(const char *at, const char *end, int64_t *offset_ms) {
    unsigned hours, minutes;
    *offset_ms = 0;
    if (at < end && *at == 'Z') return at + 1;
    if (at == end || (*at != '+' && *at != '-')) return NULL;
    bool is_west = *at == '-';
    at = time_number(at + 1, end, 2, 0, 14, false, &hours);
    if (at != NULL && at < end && *at == ':') at++;
    if (at != NULL) at = time_number(at, end, 2, 0, 59, false, &minutes);
    if (at != NULL) *offset_ms = (int64_t)(hours * 60 + minutes) * (is_west ? -60000 : 60000);
    return at;
}

static const char *time_zone(const char *at, const char *end, struct layout_moment *moment) {
    const char *close = time_letters(at, end);
    bool is_utc = close != NULL && close - at == 3 && (memcmp(at, "UTC", 3) == 0 || memcmp(at, "GMT", 3) == 0);
    if (is_utc) moment->parts |= LAYOUT_OFFSET;
    if (is_utc) moment->offset_ms = 0;
    return close;
}

static const char *time_unix(const char *at, const char *end, int64_t per_second, struct layout_moment *moment) {
    uint64_t value;
    at = time_digits(at, end, 1, 18, &value);
    if (at == NULL) return NULL;
    moment->unix_ms = per_second == 1 ? (int64_t)value : (int64_t)(value / (uint64_t)(per_second / 1000));
    if (per_second == 1 && value > UINT64_C(1) << 40) return NULL;
    if (per_second == 1) moment->unix_ms *= 1000;
    return at;
}

static const char *time_half(const char *at, const char *end, bool *is_afternoon) {
    bool has = end - at >= 2 && (at[0] == 'A' || at[0] == 'P') && at[1] == 'M';
    if (has) *is_afternoon = at[0] == 'P';
    return has ? at + 2 : NULL;
}

/* Conversions that are several others; NULL if it is not one of them. */
static const char *time_expand(char letter) {
    switch (letter) {
    case 'T': return "%H:%M:%S";
    case 'R': return "%H:%M";
    case 'F': return "%Y-%m-%d";
    case 'D': return "%m/%d/%y";
    case 'r': return "%I:%M:%S %p";
    case 'c': return "%a %b %e %H:%M:%S %Y";
    case 'n': return "\n";
    case 't': return "\t";
    default: return NULL;
    }
}

/* The part that a conversion is; UINT_MAX if it is not known. */
static unsigned time_part(char letter) {
    switch (letter) {
    case 'Y':
    case 'y': return LAYOUT_YEAR;
    case 'm':
    case 'b':
    case 'h':
    case 'B': return LAYOUT_MONTH;
    case 'd':
    case 'e': return LAYOUT_DAY;
    case 'j': return LAYOUT_DAY_OF_YEAR;
    case 'H':
    case 'k': return LAYOUT_HOUR;
    case 'I':
    case 'l': return LAYOUT_HALF_HOUR;
    case 'p': return LAYOUT_HALF;
    case 'M': return LAYOUT_MINUTE;
    case 'z': return LAYOUT_OFFSET;
    case 's':
    case '3':
    case '9': return LAYOUT_UNIX;
    case 'S':
    case 'a':
    case 'A':
    case 'Z':
    case '1':
    case '6':
    case '%': return 0;
    default: return ~0U;
    }
}

static const char *time_conversion(char letter, const char *at, const char *end, struct layout_moment *moment) {
    unsigned ignored;
    switch (letter) {
    case 'Y': return time_number(at, end, 4, 1, 9999, false, &moment->year);
    case 'y':
        at = time_number(at, end, 2, 0, 99, false, &moment->year);
        if (at != NULL) moment->year += moment->year < 69 ? 2000 : 1900;
        return at;
    case 'm': return time_number(at, end, 2, 1, 12, false, &moment->month);
    case 'b':
    case 'h': return time_month(at, end, false, &moment->month);
    case 'B': return time_month(at, end, true, &moment->month);
    case 'd':
    case 'e': return time_number(at, end, 2, 1, 31, letter == 'e', &moment->day);
    case 'j': return time_number(at, end, 3, 1, 366, false, &moment->day_of_year);
    case 'H':
    case 'k': return time_number(at, end, 2, 0, 23, letter == 'k', &moment->hour);
    case 'I':
    case 'l': return time_number(at, end, 2, 1, 12, letter == 'l', &moment->hour);
    case 'p': return time_half(at, end, &moment->is_afternoon);
    case 'M': return time_number(at, end, 2, 0, 59, false, &moment->minute);
    case 'S': return time_number(at, end, 2, 0, 60, false, &moment->second);
    case '1': return time_number(at, end, 3, 0, 999, false, &moment->ms);
    case '6':
        at = time_number(at, end, 6, 0, 999999, false, &ignored);
        if (at != NULL) moment->ms = ignored / 1000;
        return at;
    case 's': return time_unix(at, end, 1, moment);
    case '3': return time_unix(at, end, 1000, moment);
    case '9': return time_unix(at, end, 1000000, moment);
    case 'z': return time_offset(at, end, &moment->offset_ms);
    case 'Z': return time_zone(at, end, moment);
    case 'a':
    case 'A': return time_letters(at, end);
    default: return at < end && *at == '%' ? at + 1 : NULL;
    }
}

const char *layout_time_check(struct line_name form, struct layout_moment *moment) {
    for (size_t i = 0; i < form.size; i++) {
        if (form.text[i] != '%') continue;
        if (++i == form.size) return form.text + i - 1;
        const char *more = time_expand(form.text[i]);
        unsigned part = more == NULL ? time_part(form.text[i]) : 0;
        if (part == ~0U) return form.text + i - 1;
        if (more != NULL) (void)layout_time_check((struct line_name){more, strlen(more)}, moment);
        moment->parts |= part;
    }
    return NULL;
}

const char *layout_time_take(struct line_name form, const char *at, const char *end, struct layout_moment *moment) {
    for (size_t i = 0; i < form.size && at != NULL; i++) {
        if (form.text[i] != '%') {
            at = at < end && *at == form.text[i] ? at + 1 : NULL;
            continue;
        }
        char letter = form.text[++i];
        const char *more = time_expand(letter);
        if (more != NULL) {
            at = layout_time_take((struct line_name){more, strlen(more)}, at, end, moment);
        } else {
            at = time_conversion(letter, at, end, moment);
            moment->parts |= time_part(letter);
        }
    }
    return at;
}

const char *layout_time_lack(const struct layout_moment *moment) {
    unsigned parts = moment->parts, half = LAYOUT_HALF_HOUR | LAYOUT_HALF;
    if ((parts & LAYOUT_UNIX) != 0) return NULL;
    if ((parts & LAYOUT_YEAR) == 0) return "year";
    if ((parts & LAYOUT_DAY_OF_YEAR) == 0 && (parts & LAYOUT_MONTH) == 0) return "month";
    if ((parts & LAYOUT_DAY_OF_YEAR) == 0 && (parts & LAYOUT_DAY) == 0) return "day";
    if ((parts & LAYOUT_HOUR) == 0 && (parts & half) != half) return "hour";
    return (parts & LAYOUT_MINUTE) == 0 ? "minute" : NULL;
}

bool layout_time_make(const struct layout_moment *moment, int64_t utc_offset_ms, int64_t *unix_ms) {
    unsigned hour = moment->hour, month = moment->month, day = moment->day;
    int64_t days = 0;
    *unix_ms = moment->unix_ms + (int64_t)moment->ms;
    if ((moment->parts & LAYOUT_UNIX) != 0) return true;
    if ((moment->parts & LAYOUT_HOUR) == 0) hour = hour % 12 + (moment->is_afternoon ? 12 : 0);
    if ((moment->parts & LAYOUT_OFFSET) != 0) utc_offset_ms = moment->offset_ms;
    if ((moment->parts & LAYOUT_DAY) == 0 || (moment->parts & LAYOUT_MONTH) == 0) {
        days = moment->day_of_year - 1;
        month = day = 1;
    }
    if (!line_date_is_valid(moment->year, month, day)) return false;
    *unix_ms = (line_unix_s(moment->year, month, day, hour, moment->minute, moment->second) + days * 86400) * 1000 +
               (int64_t)moment->ms - utc_offset_ms;
    return days < 365 || line_date_is_valid(moment->year, 2, 29);
}
