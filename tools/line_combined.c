/* line_combined.c -- the web servers' access-log format (common and combined):
 *
 *     83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a?b=\"c\" HTTP/1.1" 200 203023 "http://..." "Mozilla/5.0
 * (...)"
 *     1            2 3 4                            5                         6   7      8            9
 *
 * Fields are separated by spaces. One that begins with a quote ends at the next quote without a backslash before it,
 * one that begins with a bracket at the next closing bracket; both count without their marks, escapes stay as they
 * stand. The time is the first bracketed field that reads as one: the fourth, as a rule, the fifth where a virtual host
 * leads the line or a user's name has a space in it. */
#include "line.h"

#define TIME_SIZE 26 /* 17/May/2015:10:05:03 +0000 */

static unsigned month_read(const char *name) {
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (unsigned month = 0; month < 12; month++) {
        if (memcmp(names + (size_t)month * 3, name, 3) == 0) return month + 1;
    }
    return 0;
}

/* The offset's seconds east of UTC, from "+0000". */
static bool offset_read(const char *text, int64_t *offset_s) {
    if (text[0] != '+' && text[0] != '-') return false;
    int hours = line_digits(text + 1, 2), minutes = line_digits(text + 3, 2);
    if (hours < 0 || hours > 14 || minutes < 0 || minutes > 59) return false;
    int seconds = hours * 3600 + minutes * 60;
    *offset_s = text[0] == '-' ? -seconds : seconds;
    return true;
}

/* Second 60 is a leap second and falls into the next minute, as everywhere where Unix time counts. */
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

/* Where the quoted text that begins at `at` ends; NULL: nowhere. */
static const char *quote_end(const char *at, const char *end) {
    for (; at < end; at++) {
        if (*at == '"') return at;
        if (*at == '\\') at++;
    }
    return NULL;
}

/* One field: its text without marks, and where the next may begin. */
struct field {
    tw_key text;
    const char *next;
    bool bracketed;
};

/* NULL: read. `at` is not a space and lies before `end`. */
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
    if (close + 1 < end && close[1] != ' ') return "a field goes on after its closing mark";
    field->text = tw_bytes(at + 1, (size_t)(close - at - 1));
    field->next = close + 1;
    return NULL;
}

const char *line_combined(const struct line_rule *rule, const char *text, size_t size, struct line *line,
                          char *joined) {
    const char *at = text, *end = text + size;
    tw_key field_at[LINE_FIELDS_MAX];
    bool timed = false, bracket_seen = false;
    for (uint16_t number = 1; !timed || number <= rule->field_last; number++) {
        struct field field;
        while (at < end && *at == ' ') at++;
        if (at == end && timed) return "the line has fewer fields than --key asks for";
        if (at == end) return bracket_seen ? "no time as [17/May/2015:10:05:03 +0000]" : "no time in brackets";
        const char *wrong = field_read(at, end, &field);
        if (wrong != NULL) return wrong;
        if (field.bracketed && !timed) {
            bracket_seen = true;
            timed = time_read(field.text.data, field.text.size, &line->unix_ms);
        }
        for (uint16_t i = 0; i < rule->field_count; i++) {
            if (rule->fields[i] == number) field_at[i] = field.text;
        }
        at = field.next;
        if (number == UINT16_MAX) return "too many fields";
    }
    line->delta = 1;
    return line_key(rule, field_at, line, joined);
}
