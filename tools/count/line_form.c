/* line_form.c -- access logs whose fields have fixed places, separated by spaces; 1, 2, 3 are their numbers:
 *
 *     OWNER bucket [17/May/2015:10:05:03 +0000] 10.0.0.1 USER ID REST.GET.OBJECT key "GET /key HTTP/1.1" 200 - 12 ...
 *     1     2      3                            4        5    6  7               8   9                   10  11 12   S3
 *     h2 2015-05-17T10:05:03.123456Z app/lb/1 10.0.0.1:2817 10.1.0.1:80 0.0 0.0 0.0 200 200 34 366 "GET https://..."
 *     1  2                           3        4             5           6   7   8   9   10  11 12  13         AWS's ALB
 *     [2015-05-17T10:05:03.123Z] "GET /a HTTP/1.1" 200 - 0 12 5 4 "10.0.0.1" "curl" "ID" "host" "10.1.0.1:80"
 *     1                          2                 3   4 5 6  7 8 9          10     11   12     13            Envoy
 *     10.0.0.1:33317 [17/May/2015:10:05:03.655] front back/server 10/0/30/69/109 200 275 - - ---- 1/1/1/1/0 0/0 "GET
 *     1              2                          3     4           5              6   7   8 9 10   11        12  13
 *                                                                        HAProxy; headers in braces have no number
 *
 * In addition it reads the formats of a classic load balancer (ALB without its first field), Envoy's as Istio
 * configures it, and HAProxy's of connections (without status, cookies and request). A field that has a name is where
 * the table says. */
#include "tools/count/line_form.h"

#define WORDS_MAX 40
#define PROXY_TIME_SIZE 24 /* 17/May/2015:10:05:03.655 */

/* Where the fields with names are; 0 if there is none. */
struct form {
    bool has_port; /* behind the client */
    uint8_t host, client, user, time, request, status, bytes, referer, agent;
};

static const struct form forms[] = {
    {.host = 23,
     .client = 4,
     .user = 5,
     .time = 3,
     .request = 9,
     .status = 10,
     .bytes = 12,
     .referer = 16,
     .agent = 17},
    {.has_port = true, .host = 19, .client = 4, .time = 2, .request = 13, .status = 9, .bytes = 12, .agent = 14},
    {.has_port = true, .client = 3, .time = 1, .request = 12, .status = 8, .bytes = 11, .agent = 13},
    {.host = 12, .client = 9, .time = 1, .request = 2, .status = 3, .bytes = 6, .agent = 10},
    {.has_port = true, .host = 15, .client = 20, .time = 1, .request = 2, .status = 3, .bytes = 9, .agent = 13},
    {.has_port = true, .client = 1, .time = 2, .request = 13, .status = 6, .bytes = 7},
    {.has_port = true, .client = 1, .time = 2, .bytes = 6},
};
enum { FORM_S3, FORM_ALB, FORM_CLASSIC, FORM_ENVOY, FORM_ISTIO, FORM_HAPROXY, FORM_HAPROXY_TCP };

/* ---- words ---- */

struct words {
    struct line_word at[WORDS_MAX];
    size_t count;
    const char *wrong; /* with the word behind the last one; NULL means that the line has ended */
};

static bool form_holds(tw_key text, char c) {
    return memchr(text.data, c, text.size) != NULL;
}

static bool form_is_text(tw_key text, const char *wanted) {
    return text.size == strlen(wanted) && memcmp(text.data, wanted, text.size) == 0;
}

/* Headers that HAProxy has captured: {a|b c}. Returns where they end. */
static const char *braces_pass(const char *at, const char *end) {
    const char *close = at < end && *at == '{' ? memchr(at, '}', (size_t)(end - at)) : NULL;
    return close != NULL && (close + 1 == end || close[1] == ' ') ? close + 1 : at;
}

/* [2001:db8::1]:80 is one word, and not in brackets. */
static const char *word_read(const char *at, const char *end, struct line_word *word) {
    const char *close = *at == '[' ? memchr(at, ']', (size_t)(end - at)) : NULL;
    if (close == NULL || close + 1 == end || close[1] != ':') return line_word_read(at, end, word);
    const char *space = memchr(close, ' ', (size_t)(end - close));
    word->next = space == NULL ? end : space;
    word->text = tw_bytes(at, (size_t)(word->next - at));
    word->mark = '\0';
    return NULL;
}

static void form_words_read(struct words *words, const char *at, const char *end, size_t last, bool has_braces) {
    words->wrong = NULL;
    for (words->count = 0; words->count < last;) {
        while (at < end && *at == ' ') at++;
        const char *behind = has_braces ? braces_pass(at, end) : at;
        if (behind != at) {
            at = behind;
            continue;
        }
        if (at == end) return;
        words->wrong = word_read(at, end, &words->at[words->count]);
        if (words->wrong != NULL) return;
        at = words->at[words->count++].next;
    }
}

/* The word with this number; NULL if the line has fewer. */
static const struct line_word *form_word_at(const struct words *words, size_t number) {
    return number > 0 && number <= words->count ? &words->at[number - 1] : NULL;
}

/* ---- which form ---- */

/* Digits, and - : T in the places of 2015-05-17T10:05:03. */
static bool begins_iso(const char *at, const char *end) {
    return end - at > 19 && at[4] == '-' && at[7] == '-' && at[10] == 'T' && at[13] == ':' && line_digits(at, 4) > 0;
}

static bool is_balancer(tw_key type) {
    static const char *const types[] = {"http", "https", "h2", "grpcs", "ws", "wss"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (form_is_text(type, types[i])) return true;
    return false;
}

static bool is_s3(const struct words *words) {
    const struct line_word *time = form_word_at(words, 3), *client = form_word_at(words, 4),
                           *operation = form_word_at(words, 7);
    int64_t unix_ms;
    if (operation == NULL || time->mark != '[' || client->mark != '\0' || !form_holds(operation->text, '.'))
        return false;
    return line_time_web(time->text.data, time->text.size, &unix_ms) &&
           (line_is_address(client->text) || form_is_text(client->text, "-"));
}

static bool is_classic(const struct words *words) {
    const struct line_word *client = form_word_at(words, 3), *request = form_word_at(words, 5);
    return request != NULL && form_holds(client->text, ':') && line_is_address(line_without_port(client->text)) &&
           (form_holds(request->text, '.') || form_is_text(request->text, "-1"));
}

/* A request, a status and flags, as UF,URX, behind a time. */
static bool is_envoy(const struct words *words) {
    const struct line_word *request = form_word_at(words, 2), *status = form_word_at(words, 3),
                           *flags = form_word_at(words, 4);
    if (flags == NULL || request->mark != '"' || flags->mark != '\0' || status->mark != '\0') return false;
    if (!line_is_number(status->text) || flags->text.size == 0) return false;
    for (size_t i = 0; i < flags->text.size; i++) {
        char c = ((const char *)flags->text.data)[i];
        if (c != '-' && c != ',' && !(c >= 'A' && c <= 'Z')) return false;
    }
    return true;
}

static bool is_haproxy(const struct words *words) {
    const struct line_word *client = form_word_at(words, 1), *time = form_word_at(words, 2);
    return time != NULL && time->mark == '[' && time->text.size == PROXY_TIME_SIZE && form_holds(client->text, ':');
}

enum line_format line_form_of(const char *text, size_t size) {
    struct words words;
    const char *end = text + size, *second;
    if (size > 2 && *text == '[') {
        if (!begins_iso(text + 1, end)) return LINE_COMBINED;
        form_words_read(&words, text, end, 4, false);
        return is_envoy(&words) ? LINE_ENVOY : LINE_COMBINED;
    }
    second = memchr(text, ' ', size);
    if (second == NULL) return LINE_COMBINED;
    tw_key first = tw_bytes(text, (size_t)(second - text));
    if (is_balancer(first)) return begins_iso(second + 1, end) ? LINE_ALB : LINE_COMBINED;
    form_words_read(&words, text, end, 7, false);
    if (begins_iso(text, end)) return is_classic(&words) ? LINE_ALB : LINE_COMBINED;
    return is_haproxy(&words) ? LINE_HAPROXY : is_s3(&words) ? LINE_S3 : LINE_COMBINED;
}

/* How often the text has a character. */
static size_t form_times(tw_key text, char c) {
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++) count += ((const char *)text.data)[i] == c;
    return count;
}

/* The form of a line of this format. Returns NULL if it has none of the forms. */
static const struct form *form_choose(enum line_format format, const struct words *words) {
    const struct line_word *word;
    switch (format) {
    case LINE_S3: return is_s3(words) ? &forms[FORM_S3] : NULL;
    case LINE_ALB:
        word = form_word_at(words, 1);
        if (word != NULL && is_balancer(word->text)) return &forms[FORM_ALB];
        return is_classic(words) ? &forms[FORM_CLASSIC] : NULL;
    case LINE_ENVOY:
        word = form_word_at(words, 5);
        if (!is_envoy(words) || word == NULL || word->mark != '\0') return NULL;
        return line_is_number(word->text) && !form_is_text(word->text, "-") ? &forms[FORM_ENVOY] : &forms[FORM_ISTIO];
    default:
        word = form_word_at(words, 5); /* times; a request has five, a connection three */
        if (!is_haproxy(words) || word == NULL) return NULL;
        return form_times(word->text, '/') == 4   ? &forms[FORM_HAPROXY]
               : form_times(word->text, '/') == 2 ? &forms[FORM_HAPROXY_TCP]
                                                  : NULL;
    }
}

static const char *form_wrong(enum line_format format) {
    switch (format) {
    case LINE_S3: return "the line is not one of S3's access log: OWNER BUCKET [TIME] ADDRESS ...";
    case LINE_ALB: return "the line is not one of a load balancer's access log: https 2015-05-17T10:05:03.123Z ...";
    case LINE_ENVOY:
        return "the line is not one of Envoy's access log: [2015-05-17T10:05:03.123Z] \"GET / ...\" 200 - ...";
    default: return "the line is not one of HAProxy's log: 10.0.0.1:33317 [17/May/2015:10:05:03.655] ...";
    }
}

/* ---- fields ---- */

static uint16_t form_place_of(const struct form *form, uint16_t field) {
    switch (field) {
    case LINE_FIELD_HOST: return form->host;
    case LINE_FIELD_CLIENT: return form->client;
    case LINE_FIELD_IDENT: return 0;
    case LINE_FIELD_USER: return form->user;
    case LINE_FIELD_TIME: return form->time;
    case LINE_FIELD_STATUS: return form->status;
    case LINE_FIELD_BYTES: return form->bytes;
    case LINE_FIELD_REFERER: return form->referer;
    case LINE_FIELD_AGENT: return form->agent;
    case LINE_FIELD_BACKEND:
    case LINE_FIELD_SERVER: return form >= &forms[FORM_HAPROXY] ? 4 : 0;
    default:
        if (field >= LINE_FIELD_METHOD) return form->request;
        return form == &forms[FORM_CLASSIC] ? (uint16_t)(field - 1) : field; /* ALB's number */
    }
}

uint16_t line_field_meant(const struct line_rule *rule, uint16_t field) {
    static const uint16_t combined[] = {LINE_FIELD_HOST,    LINE_FIELD_CLIENT,  LINE_FIELD_IDENT,  LINE_FIELD_USER,
                                        LINE_FIELD_TIME,    LINE_FIELD_REQUEST, LINE_FIELD_STATUS, LINE_FIELD_BYTES,
                                        LINE_FIELD_REFERER, LINE_FIELD_AGENT};
    if (rule->format != LINE_COMBINED || field >= LINE_FIELD_METHOD) return field;
    return field < sizeof combined / sizeof *combined ? combined[field] : LINE_FIELD_NAMES_END;
}

static const char *field_read(const struct words *words, const struct form *form, uint16_t field, tw_key *text) {
    if (field == LINE_FIELD_NAMES_END || form_place_of(form, field) == 0)
        return "lines of this format have no such field";
    const struct line_word *word = form_word_at(words, form_place_of(form, field));
    if (word == NULL) return words->wrong != NULL ? words->wrong : "the line has fewer fields than are asked for";
    struct line_word named = *word;
    if (field == LINE_FIELD_CLIENT && form->has_port) named.text = line_bare_address(named.text);
    const char *wrong = line_named_check(field, &named);
    if (wrong != NULL) return wrong;
    *text = named.text;
    const char *slash = memchr(word->text.data, '/', word->text.size), *begin = word->text.data;
    size_t before = slash == NULL ? word->text.size : (size_t)(slash - begin);
    if (field == LINE_FIELD_BACKEND) *text = tw_bytes(begin, before);
    if (field == LINE_FIELD_SERVER && slash == NULL) return "no server behind the backend";
    if (field == LINE_FIELD_SERVER) *text = tw_bytes(slash + 1, word->text.size - before - 1);
    bool is_part = field >= LINE_FIELD_METHOD && field <= LINE_FIELD_PROTOCOL;
    if (is_part) *text = line_request_part(word->text, field);
    return NULL;
}

static bool form_time_read(const struct line_rule *rule, const struct line_word *word, int64_t *unix_ms) {
    const char *text = word->text.data;
    size_t size = word->text.size;
    return line_time_web(text, size, unix_ms) || line_time_iso(text, size, rule->utc_offset_ms, unix_ms) ||
           line_time_proxy(text, size, rule->utc_offset_ms, unix_ms);
}

/* Reads as many words as the fields and the check of the form need. */
static size_t words_needed(const struct line_rule *rule) {
    return rule->format != LINE_COMBINED && rule->field_last > 30 && rule->field_last < WORDS_MAX ? rule->field_last
                                                                                                  : 30;
}

const char *line_form(const struct line_rule *rule, enum line_format format, const char *text, size_t size,
                      struct line *line, char *joined) {
    tw_key field_at[LINE_FIELDS_ALL];
    struct words words;
    form_words_read(&words, text, text + size, words_needed(rule), format == LINE_HAPROXY);
    const struct form *form = form_choose(format, &words);
    if (form == NULL) return form_wrong(format);
    const struct line_word *time = form_word_at(&words, form->time);
    if (time == NULL || !form_time_read(rule, time, &line->unix_ms)) return form_wrong(format);
    for (size_t i = 0; i < line_field_count(rule); i++) {
        const char *wrong = field_read(&words, form, line_field_meant(rule, rule->fields[i]), &field_at[i]);
        if (wrong != NULL) return wrong;
    }
    line->delta = 1;
    return line_key(rule, field_at, line, joined);
}
