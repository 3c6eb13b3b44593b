/* line_combined.c -- the web servers' access-log format (common and combined), also with a leading virtual host:
 *
 *     83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a?b=\"c\" HTTP/1.1" 200 203023 "http://..." "Mozilla (...)"
 *     1            2 3 4                            5                         6   7      8            9
 *     shop.example:443 83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 203023 "-" "..."
 *     host             1            2 3 4                            5                 6   7      8   9
 *
 * Spaces separate fields. A field that begins with a quote ends at the next quote without a backslash before it. A
 * field that begins with a bracket ends at the next closing bracket. Both are used without these marks; escapes stay as
 * they are. The time is the first bracketed field that can be read as one: usually the fourth, or the fifth if a user's
 * name has a space in it. The first field is a host if the format says so. It is also a host if the time is the fifth
 * field and the line looks as above: the field after it is not "-" and has a dot or a colon in it, or the first field
 * ends in a colon and a port. */
#include "line.h"

#define TIME_SIZE 26 /* 17/May/2015:10:05:03 +0000 */

static unsigned month_read(const char *name) {
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (unsigned month = 0; month < 12; month++) {
        if (memcmp(names + (size_t)month * 3, name, 3) == 0) return month + 1;
    }
    return 0;
}

/* Reads the offset in seconds east of UTC, from "+0000". */
static bool offset_read(const char *text, int64_t *offset_s) {
    if (text[0] != '+' && text[0] != '-') return false;
    int hours = line_digits(text + 1, 2), minutes = line_digits(text + 3, 2);
    if (hours < 0 || hours > 14 || minutes < 0 || minutes > 59) return false;
    int seconds = hours * 3600 + minutes * 60;
    *offset_s = text[0] == '-' ? -seconds : seconds;
    return true;
}

/* Second 60 is a leap second and belongs to the next minute, as always with Unix time. */
static bool time_read(const char *text, size_t size, int64_t *unix_ms) {
    if (size != TIME_SIZE || text[2] != '/' || text[6] != '/' || text[11] != ':' || text[14] != ':' ||
        text[17] != ':' || text[20] != ' ') {
        return false;
    }
    int day = line_digits(text, 2), year = line_digits(text + 7, 4);
    int hour = line_digits(text + 12, 2), minute = line_digits(text + 15, 2), second = line_digits(text + 18, 2);
    unsigned month = month_read(text + 3);
    int64_t offset_s;
    if (day < 0 || year < 0 || !line_date_is_valid((unsigned)year, month, (unsigned)day)) return false;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) return false;
    if (!offset_read(text + 21, &offset_s)) return false;
    *unix_ms =
        (line_unix_s(year, month, (unsigned)day, (unsigned)hour, (unsigned)minute, (unsigned)second) - offset_s) * 1000;
    return true;
}

/* The end of the quoted text that begins at `at`; NULL: it has none. */
static const char *quote_end(const char *at, const char *end) {
    for (; at < end; at++) {
        if (*at == '"') return at;
        if (*at == '\\') at++;
    }
    return NULL;
}

/* One field: its text without marks, and where the next one may begin. */
struct field {
    tw_key text;
    const char *next;
    bool bracketed;
};

/* Returns NULL on success. `at` is not a space and lies before `end`. */
static const char *field_read(const char *at, const char *end, struct field *field) {
    const char *close;
    field->bracketed = *at == '[';
    if (*at != '"' && *at != '[') {
        close = memchr(at, ' ', (size_t)(end - at));
        if (close == NULL) close = end;
        field->text = tw_bytes(at, (size_t)(close - at));
        field->next = close;
        return NULL;
    }
    close = *at == '"' ? quote_end(at + 1, end) : memchr(at + 1, ']', (size_t)(end - at - 1));
    if (close == NULL) return *at == '"' ? "a quote is not closed" : "a bracket is not closed";
    if (close + 1 < end && close[1] != ' ') return "a field continues after its closing mark";
    field->text = tw_bytes(at + 1, (size_t)(close - at - 1));
    field->next = close + 1;
    return NULL;
}

/* ---- a line ---- */

struct found {
    const struct line_rule *rule;
    uint16_t time_number; /* counted as the fields are in the line */
    tw_key first, second; /* these too */
    tw_key field_at[2 * LINE_FIELDS_MAX];
};

/* Reads all fields up to the time and to the last one of the key. `lead`: how many fields come before the one that
 * counts as the first. */
static const char *fields_read(struct found *found, uint16_t lead, const char *text, size_t size, struct line *line) {
    const struct line_rule *rule = found->rule;
    const char *at = text, *end = text + size;
    bool bracket_seen = false;
    found->time_number = 0;
    for (uint16_t number = 1; found->time_number == 0 || number <= rule->field_last + lead; number++) {
        struct field field;
        while (at < end && *at == ' ') at++;
        if (at == end && found->time_number != 0) return line_too_short(rule);
        if (at == end) return bracket_seen ? "no time like [17/May/2015:10:05:03 +0000]" : "no time in brackets";
        const char *wrong = field_read(at, end, &field);
        if (wrong != NULL) return wrong;
        if (field.bracketed && found->time_number == 0) {
            bracket_seen = true;
            if (time_read(field.text.data, field.text.size, &line->unix_ms)) found->time_number = number;
        }
        if (number == 1) found->first = field.text;
        if (number == 2) found->second = field.text;
        for (size_t i = 0; i < line_field_count(rule); i++) {
            if (rule->fields[i] + lead == number) found->field_at[i] = field.text;
        }
        at = field.next;
        if (number == UINT16_MAX - 1) return "too many fields";
    }
    return NULL;
}

/* "name:443", but not an address with many colons. */
static bool ends_in_port(tw_key text) {
    const char *bytes = text.data, *colon = memchr(bytes, ':', text.size);
    if (colon == NULL || colon + 1 == bytes + text.size) return false;
    for (const char *at = colon + 1; at < bytes + text.size; at++)
        if (*at < '0' || *at > '9') return false;
    return true;
}

/* True if the second field names a client. Without a leading host, this field is a user's identity, which hardly any
 * server knows. */
static bool may_be_led(const struct found *found) {
    return found->time_number >= 5 && !(found->second.size == 1 && *(const char *)found->second.data == '-');
}

static bool looks_led(const struct found *found) {
    tw_key second = found->second;
    if (found->time_number != 5 || !may_be_led(found)) return false;
    return memchr(second.data, '.', second.size) != NULL || memchr(second.data, ':', second.size) != NULL ||
           ends_in_port(found->first);
}

const char *line_combined(const struct line_rule *rule, const char *text, size_t size, struct line *line,
                          char *joined) {
    struct found found = {.rule = rule};
    bool led = rule->format == LINE_VHOST_COMBINED;
    const char *wrong = fields_read(&found, led, text, size, line);
    if (!led && looks_led(&found)) {
        led = true;
        wrong = fields_read(&found, 1, text, size, line);
    }
    if (wrong != NULL) return wrong;
    if (led && !may_be_led(&found)) return "the line does not begin with a virtual host";
    for (size_t i = 0; i < line_field_count(rule); i++) {
        if (rule->fields[i] != LINE_FIELD_HOST) continue;
        if (!led) return "the line does not begin with a virtual host";
        found.field_at[i] = found.first;
    }
    line->delta = 1;
    return line_key(rule, found.field_at, line, joined);
}
