/* line_combined.c -- the web servers' access-log format (common and combined), also with a leading virtual host:
 *
 *     83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a?b=\"c\" HTTP/1.1" 200 203023 "http://..." "Mozilla (...)"
 *     1            2 3 4                            5                         6   7      8            9
 *     shop.example:443 83.149.9.216 - john smith [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 203023 "-" "..."
 *     host             1            2 3          4                            5                 6   7      8   9
 *
 * A visitor chooses the user, and servers leave spaces and brackets in it, but no quote. So the time is the text in
 * brackets before the request, which is in quotes. All fields are counted from there. Client and identity are bare
 * words, and the user is all text up to the time: no user keeps a line from being counted. The time may also be one of
 * ISO 8601 or Unix time. A line that was cut after its time is valid, too.
 *
 * The client is the first field if that is an address, or if the identity, which hardly any server records, is "-". A
 * host is in front of it if the format has one, or if the third field is "-" and the second looks like a client. A
 * prefix that syslog, a container's runtime or kubectl writes is passed over. Any other line is refused, but only if a
 * field before the time is requested. */
#include "tools/count/line_form.h"
#include "tools/count/line_prefix.h"

#define WEB_TIME_SIZE 26 /* 17/May/2015:10:05:03 +0000 */
#define LEAD_WORDS 4     /* as many are looked at */

/* Where the time's bracket opens and closes, and the request begins; the end if the line was cut before it. */
struct place {
    const char *open, *close, *request;
};

/* A time of the servers' own, or one of nginx's $time_iso8601 and $msec. */
static bool combined_time_read(const struct line_rule *rule, const char *text, size_t size, int64_t *unix_ms) {
    return line_time_web(text, size, unix_ms) || line_time_read(text, size, rule->utc_offset_ms, unix_ms);
}

/* Is the bracket that closes here the end of a time? */
static bool time_ends(const struct line_rule *rule, const char *text, const char *close, struct place *place,
                      int64_t *unix_ms) {
    const char *open = close - text > WEB_TIME_SIZE && close[-WEB_TIME_SIZE - 1] == '['
                           ? close - WEB_TIME_SIZE - 1
                           : memrchr(text, '[', (size_t)(close - text));
    if (open == NULL || !combined_time_read(rule, open + 1, (size_t)(close - open - 1), unix_ms)) return false;
    *place = (struct place){open, close, close + 2};
    return true;
}

/* A line without a request. It may have been cut right after its time. */
static const char *time_last(const struct line_rule *rule, const char *text, const char *end, struct place *place,
                             int64_t *unix_ms) {
    const char *open = memchr(text, '[', (size_t)(end - text));
    if (open == NULL) return "no time in brackets";
    while (end[-1] == ' ') end--;
    if (end[-1] == ']' && time_ends(rule, text, end - 1, place, unix_ms)) {
        place->request = end;
        return NULL;
    }
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (close == NULL) return "a bracket is not closed";
    return combined_time_read(rule, open + 1, (size_t)(close - open - 1), unix_ms)
               ? "no request in quotes after the time"
               : "no time like [17/May/2015:10:05:03 +0000]";
}

static const char no_time[] = "no time in brackets with a request in quotes behind it";

/* Finds the time. Texts in quotes before it are skipped. */
static const char *time_find(const struct line_rule *rule, const char *text, const char *end, struct place *place,
                             int64_t *unix_ms) {
    for (const char *at = text;;) {
        const char *quote = memchr(at, '"', (size_t)(end - at));
        if (quote == NULL) return time_last(rule, text, end, place, unix_ms);
        bool begins = quote == text || quote[-1] == ' ';
        if (quote - text > 4 && begins && quote[-2] == ']' && time_ends(rule, text, quote - 2, place, unix_ms))
            return NULL;
        at = quote + 1;
        if (!begins && quote[-1] == '\\') continue; /* of a user */
        if (!begins) return no_time; /* the rest of a text, whose visitor may have written a time into it */
        const char *close = line_quote_end(at, end);
        if (close == NULL) return "a quote is not closed";
        at = close + 1;
        if (at < end && *at != ' ') return "a field continues after its closing mark";
    }
}

/* ---- before the time ---- */

struct lead {
    tw_key host, client, ident, user; /* data is NULL if there is none */
};

/* A bare word, [::1] or "..." without its marks. [::1]:80 is bare, and so is a bracket that is not closed. */
static bool lead_word_read(const char *at, const char *end, struct line_word *word) {
    bool is_quoted = *at == '"', is_closed = is_quoted && line_word_read(at, end, word) == NULL;
    if (is_quoted) return is_closed;
    const char *space = memchr(at, ' ', (size_t)(end - at));
    word->next = space == NULL ? end : space;
    bool in_brackets = *at == '[' && word->next - at > 2 && word->next[-1] == ']';
    word->mark = in_brackets ? '[' : '\0';
    word->text = tw_bytes(at + in_brackets, (size_t)(word->next - at) - (in_brackets ? 2 : 0));
    return true;
}

/* Up to LEAD_WORDS words before the time. A quote that is not closed ends them: it can only be in a user. */
static size_t lead_words_read(const char *at, const char *end, struct line_word *words) {
    size_t count = 0;
    for (; count < LEAD_WORDS; at = words[count++].next) {
        while (at < end && *at == ' ') at++;
        if (at == end || !lead_word_read(at, end, &words[count])) break;
    }
    return count;
}

static bool is_dash(tw_key text) {
    return text.size == 1 && *(const char *)text.data == '-';
}

static bool has_point_or_colon(tw_key text) {
    return memchr(text.data, '.', text.size) != NULL || memchr(text.data, ':', text.size) != NULL;
}

/* "name:443", an address of four numbers with a port, or [2001:db8::1]:443. */
static bool ends_in_port(tw_key text) {
    bool has_one = memchr(text.data, ':', text.size) == memrchr(text.data, ':', text.size);
    return (has_one || memmem(text.data, text.size, "]:", 2) != NULL) && line_without_port(text).size != text.size;
}

static const char *const no_client = "no client, identity and user before the time, as 10.0.0.1 - - [";

/* [10.0.0.1] - frank: ingress-nginx of old has the addresses once more in front of the user. */
static const char *addresses_pass(const struct line_word *word, const char *end) {
    bool has_more = word->mark == '[' && line_is_address(word->text) && end - word->next > 3;
    return has_more && memcmp(word->next, " - ", 3) == 0 ? word->next + 3 : NULL;
}

/* All from the identity to the time, whatever the visitor has chosen: spaces, brackets, nothing but spaces. */
static tw_key user_from(const struct line_word *ident, const char *end) {
    struct line_word word;
    const char *begin = ident->next, *close = end;
    while (begin < end && *begin == ' ') begin++;
    while (close > begin && close[-1] == ' ') close--;
    if (begin == close) /* without the spaces that separate fields */
        return end - ident->next < 3 ? (tw_key){.data = NULL}
                                     : tw_bytes(ident->next + 1, (size_t)(end - ident->next - 2));
    if (!lead_word_read(begin, close, &word)) return tw_bytes(begin, (size_t)(close - begin));
    if (word.mark == '"' && word.next == close && word.text.size > 0) return word.text;
    const char *behind = addresses_pass(&word, close);
    if (behind != NULL) begin = behind;
    return tw_bytes(begin, (size_t)(close - begin));
}

/* The words are a client, its identity and its user; or in front of these a host. `end` is the time's bracket. */
static const char *lead_take(struct lead *lead, const struct line_word *words, size_t count, bool is_led,
                             const char *end) {
    const struct line_word *client = words + is_led;
    if (count < (size_t)is_led + 2) return no_client;
    if (is_led) lead->host = words->text;
    lead->client = client->text;
    lead->ident = client[1].text;
    lead->user = user_from(&client[1], end);
    if (!line_is_host(client->text)) return "what should be the client is no host";
    return NULL;
}

/* A virtual host, also one that is a name of nginx's alone, as _ or *.example. */
static bool is_served(const struct line_word *word) {
    bool is_bare = word->mark == '\0' || (word->mark == '[' && line_is_address(word->text));
    return is_bare && !is_dash(word->text) && memchr(word->text.data, ',', word->text.size) == NULL;
}

/* The third word is an identity with something behind it, if only a user of spaces. */
static bool has_third_ident(const struct line_word *words, size_t count, const char *end) {
    return count > 3 || (count == 3 && end - words[2].next > 2);
}

/* Returns whether there is a host in front, if the format does not state it. An address that begins the line is the
 * client, whatever user follows: that is the visitor's choice. */
static const char *lead_guess(struct lead *lead, const struct line_word *words, size_t count, const char *end) {
    if (count < 2) return no_client;
    tw_key first = words[0].text, second = words[1].text;
    bool is_client = line_is_address(first) && !ends_in_port(first);
    if (first.size > 0 && ((const char *)first.data)[first.size - 1] == ',')
        return "a list of addresses is where the client should be";
    if (is_dash(second)) {
        if (!line_is_address(first) && count > 2 && words[2].mark == '\0' && line_is_address(words[2].text))
            return "an address is where the user should be";
        return lead_take(lead, words, count, false, end);
    }
    if (count < 3) return no_client;
    bool looks_led = has_point_or_colon(second) || ends_in_port(first);
    bool is_lighttpd = is_client && line_is_host(second) && !line_is_address(second);
    if (looks_led && is_lighttpd) { /* which has the host where others have the identity */
        lead->host = second;
        return lead_take(lead, words, count, false, end);
    }
    if (looks_led && has_third_ident(words, count, end) && is_dash(words[2].text)) {
        if (is_client)
            return "two addresses begin the line, and either may be the client (--format vhost_combined: the second)";
        return is_served(&words[0]) ? lead_take(lead, words, count, true, end) : "what should be the host is none";
    }
    if (looks_led || !has_point_or_colon(first)) return no_client;
    if (!line_is_address(first) && line_is_address(words[2].text)) return no_client;
    return lead_take(lead, words, count, false, end); /* an identity */
}

static const char *lead_read(const struct line_rule *rule, const char *text, const char *end, struct lead *lead) {
    struct line_word words[LEAD_WORDS];
    size_t count = lead_words_read(text, end, words);
    if (rule->format != LINE_VHOST_COMBINED) return lead_guess(lead, words, count, end);
    if (!has_third_ident(words, count, end) || is_dash(words[1].text))
        return "the line does not begin with a virtual host";
    return lead_take(lead, words, count, true, end);
}

static bool is_plain(unsigned char c) {
    return (c >= '0' && c <= ':') || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || (c >= 'A' && c <= 'Z');
}

/* "10.0.0.1 - - ": most lines. */
static bool lead_is_plain(const char *text, const char *end, struct lead *lead) {
    const char *at = text;
    while (at < end && is_plain((unsigned char)*at)) at++;
    if (end - at != 4 || memcmp(at, " - -", 4) != 0 || at == text || (at == text + 1 && *text == '-')) return false;
    lead->client = tw_bytes(text, (size_t)(at - text));
    lead->ident = tw_bytes(at + 1, 1);
    lead->user = tw_bytes(at + 3, 1);
    return true;
}

/* `end` is the place where the time's bracket opens. */
static const char *lead_find(const struct line_rule *rule, const char *text, const char *end, struct lead *lead) {
    const char *close = end;
    while (close > text && close[-1] == ' ') close--;
    if (rule->format == LINE_COMBINED && lead_is_plain(text, close, lead)) return NULL;
    text += line_prefix(text, (size_t)(end - text), true);
    return lead_read(rule, text, end, lead);
}

/* A field by its number or its name. Its data is NULL if the line does not have it. */
static tw_key lead_field(const struct lead *lead, uint16_t field) {
    switch (field) {
    case LINE_FIELD_HOST: return lead->host;
    case 1:
    case LINE_FIELD_CLIENT: return lead->client;
    case 2:
    case LINE_FIELD_IDENT: return lead->ident;
    default: return lead->user;
    }
}

/* ---- a line ---- */

static const char *lead_fields_take(const struct line_rule *rule, const char *text, const char *end, tw_key *field_at) {
    struct lead lead = {.user.data = NULL};
    const char *wrong = lead_find(rule, text, end, &lead);
    if (wrong != NULL) return wrong;
    for (size_t i = 0; i < line_field_count(rule); i++) {
        uint16_t field = rule->fields[i];
        if (rule->places[i] > 3) continue;
        field_at[i] = lead_field(&lead, field);
        if (field_at[i].data == NULL)
            return field == LINE_FIELD_HOST ? "the line does not begin with a virtual host" : no_client;
    }
    return NULL;
}

static const char *word_take(const struct line_rule *rule, uint16_t number, const struct line_word *word,
                             tw_key *field_at) {
    for (size_t i = 0; i < line_field_count(rule); i++) {
        if (rule->places[i] != number) continue;
        field_at[i] = word->text;
        uint16_t field = rule->fields[i];
        if (field < LINE_FIELD_METHOD) continue;
        const char *wrong = line_named_check(field, word);
        if (wrong != NULL) return wrong;
        if (number == 5) field_at[i] = line_request_part(word->text, field);
    }
    return NULL;
}

/* Whether some fields after the time were requested by their names, which must then be where others have them. */
static bool asks_by_name(const struct line_rule *rule) {
    for (size_t i = 0; i < line_field_count(rule); i++)
        if (rule->places[i] > 4 && rule->fields[i] >= LINE_FIELD_METHOD) return true;
    return false;
}

static const char *rest_fields_take(const struct line_rule *rule, const struct place *place, const char *end,
                                    tw_key *field_at) {
    const char *at = place->request, *wrong;
    struct line_word word = {tw_bytes(place->open + 1, (size_t)(place->close - place->open - 1)), at, '['};
    (void)word_take(rule, 4, &word, field_at); /* which refuses no time */
    for (uint16_t number = 5; number <= rule->field_last; number++) {
        while (at < end && *at == ' ') at++;
        if (at >= end) return line_too_short(rule);
        wrong = line_word_read(at, end, &word);
        if (wrong == NULL) wrong = word_take(rule, number, &word, field_at);
        if (wrong != NULL) return wrong;
        at = word.next;
        bool is_status = end - at < 2 || at[1] == '-' || (at[1] >= '0' && at[1] <= '9');
        if (number == 5 && !is_status && asks_by_name(rule)) return "no status after the first text in quotes";
    }
    return NULL;
}

/* Reads a line of another format, with or without a prefix. `wrong` is the error if it has no such format. */
static const char *other_read(const struct line_rule *rule, const char *text, size_t size, const char *wrong,
                              struct line *line, char *joined) {
    enum line_format format = rule->format == LINE_COMBINED ? line_form_of(text, size) : LINE_COMBINED;
    if (rule->format == LINE_COMBINED && format == LINE_COMBINED) {
        size_t lead = line_prefix(text, size, true);
        text += lead;
        size -= lead;
        if (lead > 0) format = line_form_of(text, size);
    }
    return format == LINE_COMBINED ? wrong : line_form(rule, format, text, size, line, joined);
}

/* Only a prefix is before the time, as in Envoy's log. A missing user ends in "-". */
static bool is_bare(const char *text, const char *open) {
    if (open - text >= 2 && open[-2] == '-') return false;
    return open == text || line_prefix(text, (size_t)(open - text), true) == (size_t)(open - text);
}

const char *line_combined(const struct line_rule *rule, const char *text, size_t size, struct line *line,
                          char *joined) {
    tw_key field_at[LINE_FIELDS_ALL];
    struct place place;
    const char *end = text + size, *wrong;
    if (*text == '<') text += line_prefix(text, size, true); /* its structured data may have quotes */
    if (text == end) return no_client;
    wrong = time_find(rule, text, end, &place, &line->unix_ms);
    if (wrong != NULL || is_bare(text, place.open)) {
        const char *other =
            other_read(rule, text, (size_t)(end - text), wrong == NULL ? no_client : wrong, line, joined);
        if (wrong != NULL || other != no_client) return other;
    }
    if (rule->field_last >= 4) wrong = rest_fields_take(rule, &place, end, field_at);
    if (wrong == NULL && rule->has_lead) wrong = lead_fields_take(rule, text, place.open, field_at);
    if (wrong != NULL) return wrong;
    line->delta = 1;
    return line_key(rule, field_at, line, joined);
}
