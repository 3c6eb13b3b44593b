/* layout.c -- reads the text of a format, as nginx, Apache or HAProxy has it in its configuration. See layout.h.
 *
 *     $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent       nginx: log_format
 *     %h %l %u %t \"%r\" %>s %b \"%{User-Agent}i\"                                        Apache: LogFormat
 *     %ci:%cp [%tr] %ft %b/%s %ST %B %hr %{+Q}r                                           HAProxy: log-format
 *
 * The text may have its quotes and the words of its configuration around it. Its fields show which server it is of.
 * Always true: a refusal names the place, counted from 1 in the text as it was given. */
#include "tools/count/layout.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/common/tool.h"

/* ---- the text ---- */

/* The text of the format, without what its configuration has around it. */
struct draft_text {
    const char *given;
    size_t size;
    char text[LAYOUT_TEXT_MAX];
    uint16_t from[LAYOUT_TEXT_MAX + 1]; /* the place of each byte in what was given, and that of the end */
};

static bool text_refuse(const struct draft_text *draft, size_t at, const char *why) {
    tool_complain("--log-format, character %u: %s", draft->from[at] + 1U, why);
    return false;
}

static void text_add(struct draft_text *draft, char c, const char *at) {
    draft->from[draft->size] = (uint16_t)(at - draft->given);
    draft->text[draft->size++] = c;
}

static const char *blanks_pass(const char *at) {
    while (isspace((unsigned char)*at)) at++;
    return at;
}

static const char *word_skip(const char *at) {
    while (*at != '\0' && !isspace((unsigned char)*at)) at++;
    return blanks_pass(at);
}

/* "log_format NAME [escape=...]", "LogFormat", "log-format". */
static const char *directive_pass(const char *at) {
    at = blanks_pass(at);
    if (strncmp(at, "LogFormat ", 10) == 0 || strncmp(at, "log-format ", 11) == 0) return word_skip(at);
    if (strncmp(at, "log_format ", 11) != 0) return at;
    at = word_skip(word_skip(at));
    return strncmp(at, "escape=", 7) == 0 ? word_skip(at) : at;
}

/* The quote that ends the text; NULL if it has none. */
static const char *close_find(const char *at, char quote) {
    for (; *at != '\0' && *at != quote; at++)
        if (*at == '\\' && at[1] != '\0') at++;
    return *at == quote ? at : NULL;
}

/* Returns whether it is texts in quotes alone: '...' '...'; and perhaps a word behind them, as Apache has. */
static bool is_wrapped(const char *at) {
    char quote = *at;
    bool was_word = false;
    if (quote != '\'' && quote != '"') return false;
    while (*at != '\0' && !was_word) {
        const char *close = *at == quote ? close_find(at + 1, quote) : NULL;
        was_word = close == NULL;
        if (!was_word && close[1] != '\0' && close[1] != ';' && !isspace((unsigned char)close[1])) return false;
        if (!was_word) at = blanks_pass(close + 1);
    }
    while (isalnum((unsigned char)*at) || *at == '_' || *at == ';') at++;
    return *at == '\0';
}

/* A backslash takes the next character as it is. */
static const char *piece_take(struct draft_text *draft, const char *at, const char *end) {
    for (; at < end; at++) {
        const char *from = at;
        if (*at == '\\' && at + 1 < end) at++;
        text_add(draft, at > from && *at == 't' ? '\t' : *at, from);
    }
    return at;
}

static bool text_read(struct draft_text *draft, const char *given) {
    size_t size = strlen(given);
    draft->given = given;
    draft->size = 0;
    if (size >= LAYOUT_TEXT_MAX) {
        tool_complain("--log-format: at most %d bytes are taken", LAYOUT_TEXT_MAX - 1);
        return false;
    }
    const char *at = directive_pass(given), *end = given + size;
    if (is_wrapped(at)) {
        char quote = *at;
        while (*at == quote) {
            const char *close = close_find(at + 1, quote);
            (void)piece_take(draft, at + 1, close);
            end = close;
            at = blanks_pass(close + 1);
        }
    } else {
        (void)piece_take(draft, at, end);
    }
    draft->from[draft->size] = (uint16_t)(end - given);
    return true;
}

/* ---- fields ---- */

struct reader {
    struct draft_text draft;
    struct line_layout *layout;
    size_t at, field_at; /* in the text; where the last field begins */
    bool in_quotes;      /* HAProxy: all fields are in quotes (%{+Q}o) */
};

static const struct field_kind any_text = {NULL, LAYOUT_TEXT, 0, NULL};

static const struct field_kind *kind_find(const struct field_kind *kinds, const char *name, size_t size) {
    while (kinds->name != NULL && (strlen(kinds->name) != size || memcmp(kinds->name, name, size) != 0)) kinds++;
    return kinds;
}

static struct line_name room_take(struct line_layout *layout, const char *text, size_t size) {
    struct line_name name = {layout->room + layout->room_used, size};
    if (size != 0 && text != NULL) memcpy(layout->room + layout->room_used, text, size);
    layout->room_used += size;
    return name;
}

/* The text behind the last field grows; before the first field it is the lead. */
static void literal_add(struct line_layout *layout, char c) {
    struct line_name *literal = layout->count == 0 ? &layout->lead : &layout->field[layout->count - 1].behind;
    if (literal->size == 0) literal->text = layout->room + layout->room_used;
    layout->room[layout->room_used++] = c;
    literal->size++;
}

/* A field that begins at `begin`. `room` has place for every byte of the format twice. */
static bool field_add(struct reader *reader, size_t begin, const struct field_kind *kind, struct line_name name,
                      const char *time, size_t time_size) {
    struct line_layout *layout = reader->layout;
    struct layout_field *last = layout->count == 0 ? NULL : &layout->field[layout->count - 1];
    bool is_time = kind->kind == LAYOUT_TIME;
    if (last != NULL && last->behind.size == 0 && (last->kind != LAYOUT_TIME || !is_time))
        return text_refuse(&reader->draft, begin, "two fields touch: nothing shows where the first one ends");
    if (layout->count == LAYOUT_FIELDS_MAX) return text_refuse(&reader->draft, begin, "at most 64 fields are taken");
    struct layout_field *field = &layout->field[layout->count++];
    *field = (struct layout_field){.kind = kind->kind, .meaning = kind->meaning};
    field->name = room_take(layout, name.text, name.size);
    if (is_time && kind->time != NULL) field->time = (struct line_name){kind->time, strlen(kind->time)};
    if (is_time && kind->time == NULL) field->time = room_take(layout, time, time_size);
    reader->field_at = begin;
    return true;
}

static bool is_name_letter(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* $name or ${name} */
static bool nginx_read(struct reader *reader) {
    struct draft_text *draft = &reader->draft;
    size_t begin = reader->at, at = begin + 1;
    bool in_braces = at < draft->size && draft->text[at] == '{';
    size_t name = at += in_braces;
    while (at < draft->size && is_name_letter(draft->text[at])) at++;
    if (at == name || (in_braces && (at == draft->size || draft->text[at] != '}')))
        return text_refuse(draft, begin, "a name is wanted behind $, as $remote_addr");
    reader->at = at + in_braces;
    struct line_name text = {draft->text + name, at - name};
    return field_add(reader, begin, kind_find(layout_nginx, text.text, text.size), text, NULL, 0);
}

/* The text in braces at `*at`, which then is behind them. */
static bool braces_read(const struct draft_text *draft, size_t *at, struct line_name *text) {
    *text = (struct line_name){NULL, 0};
    if (*at == draft->size || draft->text[*at] != '{') return true;
    const char *begin = draft->text + *at + 1, *close = memchr(begin, '}', draft->size - *at - 1);
    if (close == NULL) return text_refuse(draft, *at, "a brace is not closed");
    *text = (struct line_name){begin, (size_t)(close - begin)};
    *at = (size_t)(close + 1 - draft->text);
    return true;
}

/* %{...}t: a name of its own, or a form of strftime(). */
static bool apache_time(struct reader *reader, size_t begin, struct line_name form) {
    struct layout_moment said = {.parts = 0};
    bool has_side = form.size > 4 && memcmp(form.text, "end:", 4) == 0;
    if (form.size > 6 && memcmp(form.text, "begin:", 6) == 0) form.text += 6, form.size -= 6;
    if (has_side) form.text += 4, form.size -= 4;
    const struct field_kind *kind = kind_find(layout_apache_times, form.text, form.size);
    const char *unknown = kind->name == NULL ? layout_time_check(form, &said) : NULL;
    if (unknown != NULL)
        return text_refuse(&reader->draft, (size_t)(unknown - reader->draft.text),
                           "this conversion of strftime() is not known here");
    return field_add(reader, begin, kind, form, form.text, form.size);
}

/* %h, %>s, %{Referer}i, %!200{X}o, %{X}^ti */
static bool apache_read(struct reader *reader) {
    struct draft_text *draft = &reader->draft;
    size_t begin = reader->at, at = begin + 1;
    struct line_name argument;
    while (at < draft->size && strchr("<>!,0123456789", draft->text[at]) != NULL) at++;
    if (!braces_read(draft, &at, &argument)) return false;
    while (at < draft->size && strchr("<>", draft->text[at]) != NULL) at++;
    bool is_trailer = at + 2 < draft->size && draft->text[at] == '^' && draft->text[at + 1] == 't';
    if (is_trailer) at += 2;
    if (at == draft->size) return text_refuse(draft, begin, "a letter is wanted behind %, as %h");
    struct line_name letter = {draft->text + at, 1};
    reader->at = at + 1;
    if (*letter.text == 't' && argument.text != NULL) return apache_time(reader, begin, argument);
    const struct field_kind *kind = kind_find(layout_apache, letter.text, 1);
    bool is_named = argument.text != NULL && strchr("ioenCcx", *letter.text) != NULL;
    if (is_named)
        kind = *letter.text == 'i' ? kind_find(layout_apache_headers, argument.text, argument.size) : &any_text;
    if (kind->name == NULL && !is_named) return text_refuse(draft, begin, "LogFormat of Apache has no such field");
    return field_add(reader, begin, kind, is_named ? argument : letter, NULL, 0);
}

/* Where the bracket at `at` closes. */
static size_t bracket_end(const struct draft_text *draft, size_t at) {
    size_t depth = 0;
    for (; at < draft->size; at++) {
        depth += draft->text[at] == '[';
        if (draft->text[at] == ']' && --depth == 0) return at;
    }
    return at;
}

/* %ci, %{+Q}r, %[src], %{+Q}o */
static bool haproxy_read(struct reader *reader) {
    struct draft_text *draft = &reader->draft;
    size_t begin = reader->at, at = begin + 1;
    struct line_name flags;
    if (!braces_read(draft, &at, &flags)) return false;
    bool in_quotes = flags.text != NULL && memmem(flags.text, flags.size, "+Q", 2) != NULL;
    bool has_none = flags.text != NULL && memmem(flags.text, flags.size, "-Q", 2) != NULL;
    bool is_sample = at < draft->size && draft->text[at] == '[';
    size_t name = at + is_sample;
    if (is_sample) at = bracket_end(draft, at);
    while (!is_sample && at < draft->size && is_name_letter(draft->text[at])) at++;
    if (at == name || (is_sample && at == draft->size))
        return text_refuse(draft, begin, "a name is wanted behind %, as %ci");
    reader->at = at + is_sample;
    struct line_name text = {draft->text + name, at - name};
    if (!is_sample && text.size == 1 && *text.text == 'o') {
        reader->in_quotes = (reader->in_quotes || in_quotes) && !has_none;
        return true;
    }
    const struct field_kind *kind = is_sample ? &any_text : kind_find(layout_haproxy, text.text, text.size);
    if (kind->name == NULL && !is_sample) return text_refuse(draft, begin, "log-format of HAProxy has no such field");
    in_quotes =
        (in_quotes || reader->in_quotes) && !has_none && (kind->kind == LAYOUT_TEXT || kind->kind == LAYOUT_WORD);
    if (in_quotes) literal_add(reader->layout, '"');
    bool added = field_add(reader, begin, kind, text, NULL, 0);
    if (in_quotes) literal_add(reader->layout, '"');
    return added;
}

/* ---- which server ---- */

static bool is_nginx(const struct draft_text *draft) {
    for (size_t i = 0; i + 1 < draft->size; i++)
        if (draft->text[i] == '$' && (isalpha((unsigned char)draft->text[i + 1]) || draft->text[i + 1] == '{'))
            return true;
    return false;
}

/* A field that only HAProxy has. */
static bool is_haproxy_format(const struct draft_text *draft) {
    static const char *const own[] = {"ci", "cp", "si", "ft",  "tr", "ST", "TR",
                                      "HM", "HU", "HP", "tsc", "[",  "{+", "{-"};
    for (size_t i = 0; i + 1 < draft->size; i++) {
        if (draft->text[i] != '%') continue;
        for (size_t k = 0; k < sizeof own / sizeof *own; k++) {
            size_t size = strlen(own[k]);
            if (draft->size - i > size && memcmp(draft->text + i + 1, own[k], size) == 0) return true;
        }
        i++;
    }
    return false;
}

/* ---- the whole ---- */

static bool fields_read(struct reader *reader) {
    struct draft_text *draft = &reader->draft;
    bool nginx = is_nginx(draft), haproxy = !nginx && is_haproxy_format(draft);
    char mark = nginx ? '$' : '%';
    reader->layout->joins_spaces = haproxy;
    while (reader->at < draft->size) {
        char c = draft->text[reader->at];
        bool is_field = c == mark;
        if (is_field && !nginx && reader->at + 1 < draft->size && draft->text[reader->at + 1] == '%') {
            is_field = false; /* %% */
            reader->at++;
        }
        if (is_field && !(nginx ? nginx_read(reader) : haproxy ? haproxy_read(reader) : apache_read(reader)))
            return false;
        if (!is_field) literal_add(reader->layout, c);
        if (!is_field) reader->at++;
    }
    return true;
}

/* A text in quotes ends at the quote; all times together are one. */
static bool layout_finish(struct reader *reader) {
    struct line_layout *layout = reader->layout;
    struct layout_moment said = {.parts = 0};
    char why[160];
    const struct line_name *before = &layout->lead;
    for (size_t i = 0; i < layout->count; i++) {
        struct layout_field *field = &layout->field[i];
        bool begins = before->size > 0 && before->text[before->size - 1] == '"';
        bool ends = field->behind.size > 0 && *field->behind.text == '"';
        if (field->kind <= LAYOUT_WORD && begins && ends) field->kind = LAYOUT_QUOTED;
        if (field->kind == LAYOUT_TIME) (void)layout_time_check(field->time, &said);
        before = &field->behind;
    }
    if (said.parts == 0)
        return text_refuse(&reader->draft, reader->draft.size, "the format ends without a field that is the time");
    const char *lack = layout_time_lack(&said);
    if (lack == NULL) return true;
    snprintf(why, sizeof why, "the format ends, and its time has no %s", lack);
    return text_refuse(&reader->draft, reader->draft.size, why);
}

bool layout_read(const char *given, struct line_layout *layout) {
    struct reader *reader = calloc(1, sizeof *reader);
    *layout = (struct line_layout){.count = 0};
    if (reader == NULL) {
        tool_complain("no memory");
        return false;
    }
    reader->layout = layout;
    bool good = text_read(&reader->draft, given) && fields_read(reader);
    if (good && layout->count == 0)
        good = text_refuse(&reader->draft, 0, "no field is in it: they begin with $ (nginx) or % (Apache, HAProxy)");
    good = good && layout_finish(reader);
    free(reader);
    return good;
}

/* ---- by name ---- */

static const struct {
    const char *name;
    uint16_t meaning;
} meant[] = {{"host", LAYOUT_HOST},           {"client", LINE_FIELD_CLIENT},
             {"ident", LINE_FIELD_IDENT},     {"user", LINE_FIELD_USER},
             {"time", LINE_FIELD_TIME},       {"request", LINE_FIELD_REQUEST},
             {"method", LINE_FIELD_METHOD},   {"url", LINE_FIELD_URL},
             {"path", LINE_FIELD_PATH},       {"protocol", LINE_FIELD_PROTOCOL},
             {"status", LINE_FIELD_STATUS},   {"bytes", LINE_FIELD_BYTES},
             {"referer", LINE_FIELD_REFERER}, {"agent", LINE_FIELD_AGENT},
             {"backend", LINE_FIELD_BACKEND}, {"server", LINE_FIELD_SERVER}};

static uint16_t meaning_place(const struct line_layout *layout, uint16_t meaning) {
    for (size_t i = 0; i < layout->count; i++)
        if (layout->field[i].meaning == meaning) return (uint16_t)(i + 1);
    return 0;
}

uint16_t layout_place(const struct line_layout *layout, uint16_t field) {
    if (field < LINE_FIELD_METHOD) return field;
    uint16_t place = meaning_place(layout, field);
    if (place == 0 && field == LINE_FIELD_PATH) place = meaning_place(layout, LINE_FIELD_URL);
    bool is_part = field >= LINE_FIELD_METHOD && field <= LINE_FIELD_PROTOCOL;
    return place == 0 && is_part ? meaning_place(layout, LINE_FIELD_REQUEST) : place;
}

bool layout_find(const struct line_layout *layout, const char *name, size_t size, uint16_t *field) {
    unsigned number = 0;
    size_t digits = 0;
    for (; digits < size && digits < 3 && isdigit((unsigned char)name[digits]); digits++)
        number = number * 10 + (unsigned)(name[digits] - '0');
    *field = (uint16_t)number;
    if (digits == size) return number > 0 && number <= layout->count;
    for (size_t i = 0; i < layout->count; i++) {
        const struct line_name *own = &layout->field[i].name;
        if (own->size != size || memcmp(own->text, name, size) != 0) continue;
        *field = (uint16_t)(i + 1);
        return true;
    }
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++) {
        if (strlen(meant[i].name) != size || memcmp(meant[i].name, name, size) != 0) continue;
        *field = meant[i].meaning;
        return layout_place(layout, *field) > 0;
    }
    return false;
}

void layout_names(const struct line_layout *layout, char *list, size_t size) {
    size_t used = 0;
    list[0] = '\0';
    for (size_t i = 0; i < sizeof meant / sizeof *meant && used < size; i++)
        if (layout_place(layout, meant[i].meaning) > 0)
            used += (size_t)snprintf(list + used, size - used, "%s%s", used == 0 ? "" : ", ", meant[i].name);
    for (size_t i = 0; i < layout->count && used < size; i++)
        used += (size_t)snprintf(list + used, size - used, ", %.*s", (int)layout->field[i].name.size,
                                 layout->field[i].name.text);
}
