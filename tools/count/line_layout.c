/* line_layout.c -- reads a line by the layout of its log (--log-format).
 *
 * The fields follow each other, with the format's own text between them. A time, a number, a word or a text in quotes
 * shows its end itself. Any other text ends at the first place from which on the whole rest of the line has its form.
 * So a user that contains the text behind it is found as a whole.
 * Always true: a line is read if all of it has the form of the layout. The work for a line is bounded, whoever has
 * written it. */
#include "tools/count/layout.h"
#include "tools/count/line_form.h"
#include "tools/count/line_prefix.h"

#define STEPS_MAX 100000

static const char no_match[] = "the line has another form than --log-format";
static const char no_time[] = "no time where --log-format has it";

enum match_state { MATCH_NO, MATCH_YES, MATCH_NEVER /* nor with a later start */ };

struct match {
    const struct line_layout *layout;
    const char *begin, *end;
    unsigned steps;
    const char *wrong;
    struct layout_moment moment;
    tw_key *found;
};

static enum match_state fields_match(struct match *match, size_t index, const char *at);

/* Passes the format's own text. Returns where it ends, or NULL. */
static const char *literal_pass(const struct match *match, struct line_name literal, const char *at) {
    const char *text = literal.text;
    size_t size = literal.size;
    bool is_behind = at == match->begin || at[-1] == ' ';
    bool is_joined = match->layout->joins_spaces && is_behind && size > 0 && *text == ' ';
    if (is_joined) text++, size--;
    if (size == 0) return at; /* and no text */
    return (size_t)(match->end - at) >= size && memcmp(at, text, size) == 0 ? at + size : NULL;
}

/* The field lies from `at` to `close`; the rest follows. */
static enum match_state rest_match(struct match *match, size_t index, const char *at, const char *close) {
    if (++match->steps > STEPS_MAX) {
        match->wrong = "the line can be read by --log-format in too many ways";
        return MATCH_NEVER;
    }
    const char *next = literal_pass(match, match->layout->field[index].behind, close);
    if (next == NULL) return MATCH_NO;
    match->found[index] = tw_bytes(at, (size_t)(close - at));
    return fields_match(match, index + 1, next);
}

/* Tries each end that the text behind the field allows, up to `last`. */
static enum match_state ends_match(struct match *match, size_t index, const char *at, const char *last) {
    struct line_name behind = match->layout->field[index].behind;
    if (behind.size == 0) return last == match->end ? rest_match(match, index, at, last) : MATCH_NO;
    size_t more = (size_t)(match->end - last) < behind.size ? (size_t)(match->end - last) : behind.size;
    for (const char *from = at; from <= last;) {
        const char *close = memmem(from, (size_t)(last - from) + more, behind.text, behind.size);
        if (close == NULL) break;
        enum match_state state = rest_match(match, index, at, close);
        if (state != MATCH_NO) return state;
        from = close + 1;
    }
    return MATCH_NO;
}

static enum match_state time_match(struct match *match, size_t index, const char *at) {
    struct layout_moment before = match->moment, other = {.parts = 0};
    bool is_whole = layout_time_lack(&before) == NULL; /* the first whole time counts */
    const char *close =
        layout_time_take(match->layout->field[index].time, at, match->end, is_whole ? &other : &match->moment);
    if (close == NULL) match->wrong = no_time;
    enum match_state state = close == NULL ? MATCH_NO : rest_match(match, index, at, close);
    if (state == MATCH_NO) match->moment = before;
    return state;
}

static const char *number_end(const char *at, const char *end) {
    while (at < end && ((*at >= '0' && *at <= '9') || *at == '-' || *at == '+' || *at == '.')) at++;
    return at;
}

static const char *headers_end(const char *at, const char *end) {
    const char *close = at < end && *at == '{' ? memchr(at, '}', (size_t)(end - at)) : NULL;
    return close == NULL ? at : close + 1;
}

static enum match_state fields_match(struct match *match, size_t index, const char *at) {
    const struct layout_field *field = &match->layout->field[index];
    const char *end = match->end, *close;
    if (index == match->layout->count) return at == end ? MATCH_YES : MATCH_NO;
    switch (field->kind) {
    case LAYOUT_TIME: return time_match(match, index, at);
    case LAYOUT_NUMBER:
        close = number_end(at, end);
        return close == at ? MATCH_NO : rest_match(match, index, at, close);
    case LAYOUT_QUOTED:
        close = line_quote_end(at, end);
        return close == NULL ? MATCH_NO : rest_match(match, index, at, close);
    case LAYOUT_HEADERS: return rest_match(match, index, at, headers_end(at, end));
    case LAYOUT_WORD:
        close = memchr(at, ' ', (size_t)(end - at));
        return ends_match(match, index, at, close == NULL ? end : close);
    default:
        /* With a later start there would be fewer ends to try: what is before need not be tried again. */
        return ends_match(match, index, at, end) == MATCH_YES ? MATCH_YES : MATCH_NEVER;
    }
}

static const char *layout_match(struct match *match, const char *text, size_t size) {
    match->begin = text;
    match->end = text + size;
    match->steps = 0;
    match->wrong = no_match;
    match->moment = (struct layout_moment){.parts = 0};
    const char *at = literal_pass(match, match->layout->lead, text);
    if (at == NULL) return no_match;
    return fields_match(match, 0, at) == MATCH_YES ? NULL : match->wrong;
}

/* ---- fields ---- */

/* What was asked of a field: all of it, or a part of a request or URL. */
static const char *meant_take(const struct layout_field *field, uint16_t asked, tw_key *text) {
    struct line_word word = {.text = *text};
    const char *mark;
    if (asked == LINE_FIELD_CLIENT || asked == LINE_FIELD_STATUS || asked == LINE_FIELD_BYTES)
        return line_named_check(asked, &word);
    if (field->meaning == LINE_FIELD_REQUEST && asked >= LINE_FIELD_METHOD && asked <= LINE_FIELD_PROTOCOL)
        *text = line_request_part(*text, asked);
    if (field->meaning == LINE_FIELD_URL && asked == LINE_FIELD_PATH &&
        (mark = memchr(text->data, '?', text->size)) != NULL)
        text->size = (size_t)(mark - (const char *)text->data);
    return NULL;
}

static const char *layout_line(const struct line_rule *rule, const char *text, size_t size, struct line *line,
                               char *joined) {
    tw_key found[LAYOUT_FIELDS_MAX], field_at[LINE_FIELDS_ALL];
    struct match match = {.layout = rule->layout, .found = found};
    const char *wrong = layout_match(&match, text, size);
    size_t lead = wrong == NULL ? 0 : line_prefix(text, size, true);
    if (lead > 0) wrong = layout_match(&match, text + lead, size - lead);
    if (wrong != NULL) return wrong;
    if (!layout_time_make(&match.moment, rule->utc_offset_ms, &line->unix_ms)) return no_time;
    for (size_t i = 0; i < line_field_count(rule); i++) {
        size_t place = rule->places[i] - 1U;
        field_at[i] = found[place];
        wrong = meant_take(&rule->layout->field[place], rule->fields[i], &field_at[i]);
        if (wrong != NULL) return wrong;
    }
    line->delta = 1;
    return line_key(rule, field_at, line, joined);
}

const char *line_layout(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined) {
    const char *wrong = layout_line(rule, text, size, line, joined);
    if ((wrong != no_match && wrong != no_time) || !line_json_begins(text, size)) return wrong;
    const char *inner = line_docker(layout_line, rule, text, size, line, joined);
    return inner == line_not_docker ? wrong : inner;
}
