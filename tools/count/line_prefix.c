/* line_prefix.c -- the prefix of a line. See line_prefix.h.
 * Each function returns where its part ends, behind the space that follows it; NULL means that it is not there. */
#include "tools/count/line_prefix.h"

#define PARTS_MAX 6       /* compose, a time, the runtime, syslog ... */
#define PRIORITY_DIGITS 3 /* <190> */

static const char *prefix_word_end(const char *at, const char *end) {
    while (at < end && *at != ' ') at++;
    return at;
}

/* Skips a word of at least one of these characters, and the space after it. */
static const char *word_pass(const char *at, const char *end) {
    const char *close = prefix_word_end(at, end);
    return close > at && close < end ? close + 1 : NULL;
}

static const char *text_pass(const char *at, const char *end, const char *text) {
    size_t size = strlen(text);
    return (size_t)(end - at) >= size && memcmp(at, text, size) == 0 ? at + size : NULL;
}

/* Skips a time with its date, a T and an offset. */
static const char *iso_pass(const char *at, const char *end) {
    int64_t unix_ms;
    const char *next = word_pass(at, end);
    if (next == NULL || next - at < 21 || at[10] != 'T') return NULL;
    if (!line_time_iso(at, (size_t)(next - 1 - at), 0, &unix_ms)) return NULL;
    return memchr(at + 19, 'Z', (size_t)(next - 1 - at - 19)) != NULL ||
                   memchr(at + 19, '+', (size_t)(next - 1 - at - 19)) != NULL ||
                   memchr(at + 19, '-', (size_t)(next - 1 - at - 19)) != NULL
               ? next
               : NULL;
}

size_t line_prefix_cri(const char *text, size_t size, bool *is_piece) {
    const char *end = text + size, *at = line_prefix_may_be_cri(text, size) ? iso_pass(text, end) : NULL, *next;
    if (at == NULL) return 0;
    next = text_pass(at, end, "stdout ");
    if (next == NULL) next = text_pass(at, end, "stderr ");
    if (next == NULL || next == end || (*next != 'F' && *next != 'P')) return 0;
    *is_piece = *next == 'P';
    at = prefix_word_end(next, end); /* more tags may follow, behind colons */
    if (at > next + 1 && next[1] != ':') return 0;
    return (size_t)((at < end ? at + 1 : at) - text);
}

/* ---- syslog ---- */

static const char *priority_pass(const char *at, const char *end) {
    const char *digits = at + 1;
    if (at == end || *at != '<') return NULL;
    for (at = digits; at < end && *at >= '0' && *at <= '9'; at++) {}
    return at > digits && at - digits <= PRIORITY_DIGITS && at < end && *at == '>' ? at + 1 : NULL;
}

/* "nginx[12]: ", "nginx: ": the name of a program. A time or an address has other colons. */
static const char *tag_pass(const char *at, const char *end) {
    const char *close = prefix_word_end(at, end);
    if (close - at < 2 || close == end || close[-1] != ':') return NULL;
    for (const char *c = at; c < close - 1; c++)
        if (*c == ':' || *c == '"' || *c == '|') return NULL;
    return close + 1;
}

/* "web-1 nginx[12]: ", or the program alone. */
static const char *host_and_tag_pass(const char *at, const char *end) {
    const char *next = tag_pass(at, end);
    if (next != NULL) return next;
    next = word_pass(at, end);
    return next == NULL ? NULL : tag_pass(next, end);
}

/* "May 17 10:05:03 ", "May  7 10:05:03.123456 ". */
static const char *old_time_pass(const char *at, const char *end) {
    static const char months[] = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec ";
    int64_t ms;
    if (end - at < 16 || at[3] != ' ' || at[6] != ' ') return NULL;
    const char *month = memmem(months, sizeof months - 1, at, 4);
    bool has_day = (at[4] == ' ' || (at[4] >= '0' && at[4] <= '3')) && at[5] >= '0' && at[5] <= '9';
    const char *next = word_pass(at + 7, end);
    if (month == NULL || (month - months) % 4 != 0 || !has_day || next == NULL) return NULL;
    return line_time_of_day(at + 7, (size_t)(next - 1 - (at + 7)), &ms) ? next : NULL;
}

/* "[id name="value"] " or "- ". */
static const char *structured_pass(const char *at, const char *end) {
    const char *next = text_pass(at, end, "- ");
    bool in_quotes = false;
    if (next != NULL || at == end || *at != '[') return next;
    for (; at < end; at++) {
        if (*at == '\\')
            at++;
        else if (*at == '"')
            in_quotes = !in_quotes;
        else if (*at == ']' && !in_quotes && at + 1 < end && at[1] == ' ')
            return at + 2;
    }
    return NULL;
}

/* "1 2015-05-17T10:05:03Z web-1 nginx 12 - - ", behind the priority. */
static const char *new_syslog_pass(const char *at, const char *end) {
    at = text_pass(at, end, "1 ");
    if (at != NULL) at = iso_pass(at, end);
    for (int words = 0; words < 4 && at != NULL; words++) at = word_pass(at, end);
    if (at != NULL) at = structured_pass(at, end);
    const char *marked = at == NULL ? NULL : text_pass(at, end, "\xEF\xBB\xBF");
    return marked != NULL ? marked : at;
}

static const char *syslog_pass(const char *at, const char *end) {
    const char *priority = priority_pass(at, end), *next;
    if (priority != NULL && (next = new_syslog_pass(priority, end)) != NULL) return next;
    const char *time = old_time_pass(priority == NULL ? at : priority, end);
    if (time == NULL) time = iso_pass(priority == NULL ? at : priority, end);
    return time == NULL ? NULL : host_and_tag_pass(time, end);
}

/* ---- the others ---- */

/* "web-1  | ": a container's name, spaces up to the same column in each line, a bar. */
static const char *compose_pass(const char *at, const char *end) {
    bool has_letter = false;
    for (; at < end; at++) {
        bool is_letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
        has_letter = has_letter || is_letter;
        if (!is_letter && (*at < '0' || *at > '9') && *at != '_' && *at != '-' && *at != '.') break;
    }
    if (!has_letter || at == end || *at != ' ') return NULL;
    while (at < end && *at == ' ') at++;
    return text_pass(at, end, "| ");
}

/* "[pod/web-7d4b9/nginx] " */
static const char *kubectl_pass(const char *at, const char *end) {
    const char *next = text_pass(at, end, "[pod/");
    if (next == NULL) return NULL;
    next = word_pass(next, end);
    return next != NULL && next[-2] == ']' ? next : NULL;
}

size_t line_prefix(const char *text, size_t size, bool with_bare_time) {
    const char *at = text, *end = text + size;
    for (int parts = 0; parts < PARTS_MAX && at < end; parts++) {
        bool is_piece;
        const char *next = syslog_pass(at, end);
        if (next == NULL) next = compose_pass(at, end);
        if (next == NULL) next = kubectl_pass(at, end);
        if (next == NULL) next = text_pass(at, end, "@cee: "); /* JSON in syslog */
        if (next == NULL) {
            size_t cri = line_prefix_cri(at, (size_t)(end - at), &is_piece);
            if (cri > 0) next = at + cri;
        }
        if (next == NULL && with_bare_time) next = iso_pass(at, end);
        if (next == NULL) break;
        at = next;
    }
    return (size_t)(at - text);
}

const char *line_lead_pass(const struct line_rule *rule, const char **text, size_t *size) {
    while (*size > 0 && **text == '\0') ++*text, --*size;
    if (*size >= 3 && memcmp(*text, "\xEF\xBB\xBF", 3) == 0) *text += 3, *size -= 3;
    if (*size == 0) return "empty line";
    bool is_piece;
    size_t lead = line_prefix_cri(*text, *size, &is_piece);
    if (lead == 0) return rule->is_cri ? "the line does not begin as 2015-05-17T10:05:03.123Z stdout F" : NULL;
    if (is_piece) return "the container's runtime has cut the line: this is a piece of it (P)";
    *text += lead;
    *size -= lead;
    return *size == 0 ? "empty line" : NULL;
}
