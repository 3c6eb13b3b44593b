/* line_combined.c -- the web servers' access-log format (common and combined), also with a leading virtual host:
 *
 *     83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a?b=\"c\" HTTP/1.1" 200 203023 "http://..." "Mozilla (...)"
 *     1            2 3 4                            5                         6   7      8            9
 *     shop.example:443 83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 203023 "-" "..."
 *     host             1            2 3 4                            5                 6   7      8   9
 *
 * Spaces separate fields. A field that begins with a quote ends at the next quote without a backslash before it. A
 * field that begins with a bracket ends at the next closing bracket. Both are used without these marks; escapes stay
 * as they are. The time is the first bracketed field that can be read as one, ISO 8601 included: usually the fourth,
 * or the fifth if a user's name has a space in it. The first field is a host if the format says so. It is also a host
 * if the time is the fifth field and the line looks as above: the field after it is not "-" and has a dot or a colon
 * in it, or the first field ends in a colon and a port. */
#include "line.h"

/* A time of the servers' own, or of ISO 8601, as nginx has it in $time_iso8601. */
static bool time_read(const struct line_rule *rule, const char *text, size_t size, int64_t *unix_ms) {
    return line_time_web(text, size, unix_ms) || line_time_iso(text, size, rule->utc_offset_ms, unix_ms);
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
    tw_key request;       /* if a part of it is wanted */
    tw_key field_at[LINE_FIELDS_ALL];
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
            if (time_read(rule, field.text.data, field.text.size, &line->unix_ms)) found->time_number = number;
        }
        if (number == 1) found->first = field.text;
        if (number == 2) found->second = field.text;
        for (size_t i = 0; i < line_field_count(rule); i++) {
            if (rule->fields[i] + lead == number) found->field_at[i] = field.text;
        }
        if (rule->has_parts && number == LINE_FIELD_REQUEST + lead) found->request = field.text;
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

/* ---- parts of the request ---- */

/* Where " HTTP/1.1" begins; the end if the request has none. */
static const char *protocol_find(const char *begin, const char *end) {
    const char *space = memrchr(begin, ' ', (size_t)(end - begin));
    return space != NULL && end - space > 5 && memcmp(space + 1, "HTTP/", 5) == 0 ? space : end;
}

static tw_key part_of(tw_key request, uint16_t part) {
    const char *begin = request.data, *end = begin + request.size;
    const char *space = memchr(begin, ' ', request.size), *protocol = protocol_find(begin, end);
    const char *url = space == NULL ? begin : space + 1, *mark;
    if (part == LINE_FIELD_METHOD) return space == NULL ? tw_str("-") : tw_bytes(begin, (size_t)(space - begin));
    if (part == LINE_FIELD_PROTOCOL)
        return protocol == end ? tw_str("-") : tw_bytes(protocol + 1, (size_t)(end - protocol - 1));
    if (url > protocol) protocol = end; /* "GET HTTP/1.1": no URL */
    size_t size = (size_t)(protocol - url);
    if (part == LINE_FIELD_PATH && (mark = memchr(url, '?', size)) != NULL) size = (size_t)(mark - url);
    return tw_bytes(url, size);
}

static void parts_take(struct found *found) {
    for (size_t i = 0; i < line_field_count(found->rule); i++) {
        uint16_t part = found->rule->fields[i];
        if (part >= LINE_FIELD_METHOD) found->field_at[i] = part_of(found->request, part);
    }
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
    if (rule->has_parts) parts_take(&found);
    line->delta = 1;
    return line_key(rule, found.field_at, line, joined);
}
