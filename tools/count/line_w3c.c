/* line_w3c.c -- the extended log format of W3C, as IIS and CloudFront write it. The file names its columns.
 *
 *     #Fields: date time c-ip cs-method cs-uri-stem sc-status
 *     2015-05-17 10:05:03 10.0.0.1 GET /a 200
 *
 * Columns are separated by tabs if the line has any, otherwise by spaces. A text in quotes is one column, and two
 * quotes in it mean one quote. Texts are used as they are written. CloudFront writes %20 for a space, IIS writes +.
 * Times are in UTC, as the format requires, whatever --utc-offset is. A line that has more or fewer columns than the
 * head names is refused, because it is unknown which of them is missing.
 *
 * A field is requested by the column's name, by its number, or by one of the names that access logs have. CloudFront's
 * columns are known also where a line has no head above it. */
#include "tools/count/line.h"

#include "tools/count/line_form.h"
#include "tools/count/line_prefix.h"

static const struct {
    const char *name; /* as in --key */
    uint16_t field;
    const char *column; /* the first one that the head has */
} meanings[] = {{"host", LINE_FIELD_HOST, "x-host-header"},
                {"host", LINE_FIELD_HOST, "cs-host"},
                {"host", LINE_FIELD_HOST, "cs(Host)"},
                {"client", LINE_FIELD_CLIENT, "c-ip"},
                {"user", LINE_FIELD_USER, "cs-username"},
                {"method", LINE_FIELD_METHOD, "cs-method"},
                {"url", LINE_FIELD_URL, "cs-uri"},
                {"path", LINE_FIELD_PATH, "cs-uri-stem"},
                {"protocol", LINE_FIELD_PROTOCOL, "cs-protocol-version"},
                {"protocol", LINE_FIELD_PROTOCOL, "cs-version"},
                {"status", LINE_FIELD_STATUS, "sc-status"},
                {"bytes", LINE_FIELD_BYTES, "sc-bytes"},
                {"referer", LINE_FIELD_REFERER, "cs(Referer)"},
                {"agent", LINE_FIELD_AGENT, "cs(User-Agent)"}};

static const char cloudfront_columns[] =
    "date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent)"
    " cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken"
    " x-forwarded-for ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status"
    " fle-encrypted-fields c-port time-to-first-byte x-edge-detailed-result-type sc-content-type sc-content-len"
    " sc-range-start sc-range-end";

const char line_is_head[] = "a line of the file's head";

static const char fields_mark[] = "#Fields:";

/* ---- the head ---- */

static bool is_word(const char *text, size_t size, const char *word) {
    return strlen(word) == size && strncasecmp(text, word, size) == 0;
}

/* Returns the number of the column that has this name, or 0. */
static uint16_t column_find(const char *at, const char *end, const char *name, size_t size) {
    for (uint16_t number = 1; at < end && number < UINT16_MAX; number++) {
        while (at < end && (*at == ' ' || *at == '\t')) at++;
        const char *begin = at;
        while (at < end && *at != ' ' && *at != '\t') at++;
        if ((size_t)(at - begin) == size && strncasecmp(begin, name, size) == 0) return number;
    }
    return 0;
}

static uint16_t columns_count(const char *at, const char *end) {
    size_t count = 0;
    while (at < end) {
        while (at < end && (*at == ' ' || *at == '\t')) at++;
        count += at < end;
        while (at < end && *at != ' ' && *at != '\t') at++;
    }
    return count < UINT16_MAX ? (uint16_t)count : 0;
}

/* Finds a column by the meaning of a field of access logs. */
static uint16_t meaning_find(const char *at, const char *end, const struct line_name *name, uint16_t field) {
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        bool is_meant = name->size > 0 ? is_word(name->text, name->size, meanings[i].name) : meanings[i].field == field;
        uint16_t column = is_meant ? column_find(at, end, meanings[i].column, strlen(meanings[i].column)) : 0;
        if (column > 0) return column;
    }
    return 0;
}

/* If the size of `name` is 0, the rule is for combined lines, and uses the meaning of the field. */
static uint16_t w3c_column_of(const char *at, const char *end, const struct line_name *name, uint16_t field) {
    unsigned number = 0;
    size_t digits = 0;
    while (digits < name->size && digits < 5 && name->text[digits] >= '0' && name->text[digits] <= '9')
        number = number * 10 + (unsigned)(name->text[digits++] - '0');
    if (digits > 0 && digits == name->size) return number < UINT16_MAX ? (uint16_t)number : 0;
    uint16_t column = name->size > 0 ? column_find(at, end, name->text, name->size) : 0;
    return column > 0 ? column : meaning_find(at, end, name, field);
}

/* `at` has the names of the columns, without the word before them. */
static void head_set(const struct line_rule *rule, struct line_head *head, const char *at, const char *end) {
    static const struct line_name none = {NULL, 0};
    bool by_name = rule->format != LINE_COMBINED;
    *head = (struct line_head){.is_known = true, .columns = columns_count(at, end)};
    head->date = column_find(at, end, "date", 4);
    head->time = column_find(at, end, "time", 4);
    if (head->date == 0) head->time = column_find(at, end, "timestamp", 9);
    for (size_t i = 0; i < line_field_count(rule); i++)
        head->column[i] =
            w3c_column_of(at, end, by_name ? &rule->names[i] : &none, line_field_meant(rule, rule->fields[i]));
}

bool line_has_head(const struct line_rule *rule, const char *text, size_t size) {
    if (rule->format == LINE_W3C || rule->format == LINE_CLOUDFRONT) return true;
    if (size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3, size -= 3;
    return rule->format == LINE_COMBINED && size > 0 && *text == '#';
}

static bool begins_fields(const char *text, const char *end) {
    return (size_t)(end - text) >= sizeof fields_mark - 1 && memcmp(text, fields_mark, sizeof fields_mark - 1) == 0;
}

/* Does the line that has this mark begin with it? */
static bool is_head_line(const struct line_rule *rule, const char *text, const char *mark, const char *end) {
    const char *newline = memrchr(text, '\n', (size_t)(mark - text));
    const char *line = newline == NULL ? text : newline + 1;
    size_t size = (size_t)(end - line);
    return line == mark ? !rule->is_cri : line_lead_pass(rule, &line, &size) == NULL && line == mark;
}

bool line_head_take(const struct line_rule *rule, struct line_head *head, const char *text, size_t size) {
    const char *end = text + size, *last = NULL, *at = text;
    while ((at = memmem(at, (size_t)(end - at), fields_mark, sizeof fields_mark - 1)) != NULL) {
        if (is_head_line(rule, text, at, end)) last = at;
        at++;
    }
    if (last == NULL) return false;
    const char *close = memchr(last, '\n', (size_t)(end - last));
    if (close == NULL) close = end;
    if (close[-1] == '\r') close--;
    head_set(rule, head, last + sizeof fields_mark - 1, close);
    return true;
}

/* A line that begins with # and describes the file. Other lines are no head. */
static bool is_directive(const char *text, const char *end) {
    static const char *const words[] = {
        "#Version:", "#Fields:", "#Software:", "#Start-Date:", "#Date:", "#End-Date:", "#Remark:"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((size_t)(end - text) >= strlen(words[i]) && memcmp(text, words[i], strlen(words[i])) == 0) return true;
    return false;
}

/* ---- a line ---- */

/* Where a column ends that begins here. */
static const char *column_end(const char *at, const char *end, char separator, tw_key *text) {
    const char *close = at;
    if (at < end && *at == '"') {
        for (close = at + 1; close < end; close++) {
            if (*close == '"' && close + 1 < end && close[1] == '"')
                close++;
            else if (*close == '"')
                break;
        }
        *text = tw_bytes(at + 1, (size_t)(close - at - 1));
        if (close < end) close++;
        if (close == end || *close == separator) return close;
    }
    close = memchr(at, separator, (size_t)(end - at));
    if (close == NULL) close = end;
    *text = tw_bytes(at, (size_t)(close - at));
    return close;
}

struct found {
    tw_key date, time;
    tw_key *field_at;
    bool has_field[LINE_FIELDS_ALL];
};

static void column_take(const struct line_rule *rule, const struct line_head *head, uint16_t number, tw_key text,
                        struct found *found) {
    if (number == head->date) found->date = text;
    if (number == head->time) found->time = text;
    for (size_t i = 0; i < line_field_count(rule); i++) {
        if (head->column[i] != number) continue;
        found->field_at[i] = text;
        found->has_field[i] = true;
    }
}

/* Returns how many columns the line has. */
static size_t columns_read(const struct line_rule *rule, const struct line_head *head, const char *at, const char *end,
                           struct found *found) {
    char separator = memchr(at, '\t', (size_t)(end - at)) != NULL ? '\t' : ' ';
    size_t count = 0;
    while (at <= end) {
        tw_key text;
        while (separator == ' ' && at < end && *at == ' ') at++;
        if (at == end && separator == ' ') break;
        at = column_end(at, end, separator, &text) + 1;
        if (++count < UINT16_MAX) column_take(rule, head, (uint16_t)count, text, found);
    }
    return count;
}

static bool w3c_time_read(const struct line_head *head, const struct found *found, int64_t *unix_ms) {
    int64_t day_ms, ms;
    if (head->time == 0 || found->time.data == NULL) return false;
    if (head->date == 0) return line_time_read(found->time.data, found->time.size, 0, unix_ms);
    if (found->date.data == NULL || found->date.size != 10 || !line_time_iso(found->date.data, 10, 0, &day_ms) ||
        !line_time_of_day(found->time.data, found->time.size, &ms)) {
        return false;
    }
    *unix_ms = day_ms + ms;
    return true;
}

static const char *columns_parse(const struct line_rule *rule, const struct line_head *head, const char *text,
                                 const char *end, struct line *line, char *joined) {
    tw_key field_at[LINE_FIELDS_ALL];
    struct found found = {.field_at = field_at};
    if (head->time == 0) return "the head (#Fields) names no columns date and time";
    size_t count = columns_read(rule, head, text, end, &found);
    if (head->columns > 0 && count != head->columns)
        return "the line has more or fewer columns than its head (#Fields)";
    if (!w3c_time_read(head, &found, &line->unix_ms)) return "no date and time where its head (#Fields) has them";
    for (size_t i = 0; i < line_field_count(rule); i++)
        if (!found.has_field[i])
            return head->column[i] == 0 ? "the head (#Fields) names no such column" : line_too_short(rule);
    line->delta = 1;
    return line_key(rule, field_at, line, joined);
}

const char *line_w3c(const struct line_rule *rule, struct line_head *head, const char *text, size_t size,
                     struct line *line, char *joined) {
    const char *end = text + size;
    if (*text == '#') {
        if (rule->format == LINE_COMBINED && !is_directive(text, end)) return "a comment, and no line of an access log";
        if (head == NULL) return "--resume does not go with files whose columns are named by a head (#Fields)";
        if (begins_fields(text, end)) head_set(rule, head, text + sizeof fields_mark - 1, end);
        return line_is_head;
    }
    if (head != NULL && head->is_known) return columns_parse(rule, head, text, end, line, joined);
    if (rule->format != LINE_CLOUDFRONT)
        return "no line like #Fields: date time ... came before, which names the columns";
    struct line_head known;
    head_set(rule, &known, cloudfront_columns, cloudfront_columns + sizeof cloudfront_columns - 1);
    known.columns = 0; /* there were fewer of them once */
    if (head != NULL) *head = known;
    return columns_parse(rule, &known, text, end, line, joined);
}
