/* line_dpkg.c -- the package manager's log, /var/log/dpkg.log:
 *
 *     2024-05-01 12:00:01 install foo:amd64 <none> 1.2-3
 *     1          2        3       4         5      6
 *
 * dpkg writes local time without its offset. The rule's offset is assumed (--utc-offset; UTC by default). Spaces
 * separate fields; the default key is the action, field 3. */
#include "tools/count/line_form.h"

#define TIME_SIZE 19 /* 2024-05-01 12:00:01 */

static bool dpkg_time_read(const struct line_rule *rule, const char *text, int64_t *unix_ms) {
    return text[10] == ' ' && text[16] == ':' && line_time_iso(text, TIME_SIZE, rule->utc_offset_ms, unix_ms);
}

const char *line_dpkg(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined) {
    const char *at = text, *end = text + size;
    tw_key field_at[LINE_FIELDS_ALL];
    if (size <= TIME_SIZE || text[TIME_SIZE] != ' ' || !dpkg_time_read(rule, text, &line->unix_ms)) {
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
    line->delta = 1;
    return line_key(rule, field_at, line, joined);
}
