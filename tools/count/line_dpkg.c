/* line_dpkg.c -- the package manager's log, /var/log/dpkg.log:
 *
 *     2024-05-01 12:00:01 install foo:amd64 <none> 1.2-3
 *     1          2        3       4         5      6
 *
 * dpkg writes local time without its offset. The rule's offset is assumed (--utc-offset; UTC by default). Spaces
 * separate fields; the default key is the action, field 3. */
#include "tools/count/line_form.h"

#define TIME_SIZE 19 /* 2024-05-01 12:00:01 */

static bool time_read(const char *text, int64_t *unix_s) {
    if (text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' || text[16] != ':') return false;
    int year = line_digits(text, 4), month = line_digits(text + 5, 2), day = line_digits(text + 8, 2);
    int hour = line_digits(text + 11, 2), minute = line_digits(text + 14, 2), second = line_digits(text + 17, 2);
    if (year < 0 || month < 0 || day < 0 || !line_date_is_valid((unsigned)year, (unsigned)month, (unsigned)day))
        return false;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) return false;
    *unix_s = line_unix_s(year, (unsigned)month, (unsigned)day, (unsigned)hour, (unsigned)minute, (unsigned)second);
    return true;
}

const char *line_dpkg(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined) {
    const char *at = text, *end = text + size;
    tw_key field_at[LINE_FIELDS_ALL];
    int64_t unix_s;
    if (size <= TIME_SIZE || text[TIME_SIZE] != ' ' || !time_read(text, &unix_s)) {
        return "no time like 2024-05-01 12:00:01 at the start";
    }
    for (uint16_t number = 1; number <= rule->field_last; number++) {
        while (at < end && *at == ' ') at++;
        if (at == end) return number <= 3 ? "no action after the time" : line_too_short(rule);
        const char *close = memchr(at, ' ', (size_t)(end - at));
        if (close == NULL) close = end;
        for (size_t i = 0; i < line_field_count(rule); i++) {
            if (rule->fields[i] == number) field_at[i] = tw_bytes(at, (size_t)(close - at));
        }
        at = close;
    }
    line->unix_ms = unix_s * 1000 - rule->utc_offset_ms;
    line->delta = 1;
    return line_key(rule, field_at, line, joined);
}
