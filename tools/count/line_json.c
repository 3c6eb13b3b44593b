/* line_json.c -- one JSON object a line, as web servers, journald and most loggers of programs write them:
 *
 *     {"time_iso8601":"2015-05-17T10:05:03+00:00","remote_addr":"83.149.9.216","status":200,"request":{"uri":"/a"}}
 *
 * Fields have names. The name of a member of an inner object is its path, for example request.uri. A text is used
 * without its quotes, and its escapes are resolved (also \xHH, which nginx writes without escape=json). A number, true
 * and false are used as they are written. The journal writes a text that is no UTF-8 as a list of its bytes. Web
 * servers leave out a missing number (`"rt":,`), which counts as null. A list of one text, as Caddy writes headers, is
 * that text. A prefix that syslog or a container's runtime writes in front of the object is skipped.
 *
 * The time is the first member that has one of the usual names, or the name of --time, and reads as a time. A date
 * without a time of day, and a time of day, are joined; they count only if no other member is a time, and a date alone
 * only if no other member should be one. Only as much of a line is read as is needed. The rest is not checked.
 * Always true: a field that the line lacks, or that is null, is empty text to a condition, and no key. */
#include "tools/count/line_form.h"

#include "tools/count/line_prefix.h"

#define DEPTH_MAX 16      /* of the objects that are searched; deeper ones are skipped */
#define PATH_MAX_SIZE 512 /* of a name with those of its objects */
#define SCRATCH_BYTES (2 * LINE_ELEMENT_MAX)
#define DATE_SIZE 10 /* 2015-05-17 */
#define TIME_MAX 64  /* of a time's text */

static const char broken[] = "not a JSON object";

/* A member's value, as it is written; a text without its quotes. */
struct value {
    const char *text, *end; /* `end` is after the quotes */
    size_t size;
    char kind; /* its first byte: '"', '{', '[', or that of a number or a word */
};

struct scan {
    const struct line_rule *rule;
    const char *end;
    struct value found[LINE_FIELDS_ALL]; /* kind is 0 if not found yet */
    size_t missing;                      /* fields that were not found yet */
    bool has_time;
    bool has_bad_time; /* a member that should be the time has another form */
    int64_t unix_ms;
    size_t date_size, clock_size; /* of the texts that are a part of a time; 0 if there is none */
    char date[DATE_SIZE], clock[TIME_MAX];
    char path[PATH_MAX_SIZE];
    char name[PATH_MAX_SIZE];    /* the one name whose escapes were resolved last */
    char scratch[SCRATCH_BYTES]; /* texts whose escapes were resolved */
    size_t scratch_used;
};

static const char *spaces_pass(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    return at;
}

/* ---- values ---- */

/* The end of the object or the list that begins at `at`; NULL if it has none. */
static const char *container_end(const char *at, const char *end) {
    size_t depth = 0;
    for (; at < end; at++) {
        switch (*at) {
        case '{':
        case '[': depth++; break;
        case '}':
        case ']':
            if (--depth == 0) return at + 1;
            break;
        case '"':
            at = line_quote_end(at + 1, end);
            if (at == NULL) return NULL;
            break;
        default: break;
        }
    }
    return NULL;
}

static const char *json_word_end(const char *at, const char *end) {
    while (at < end && *at != ',' && *at != '}' && *at != ']' && *at != ' ' && *at != '\t') at++;
    return at;
}

/* Returns false if the value has no end. That of an object that is searched is not looked for. */
static bool value_read(const char *at, const char *end, bool is_searched, struct value *value) {
    if (at == end) return false;
    value->kind = *at;
    value->text = *at == '"' ? at + 1 : at;
    if (*at == '"') {
        const char *close = line_quote_end(at + 1, end);
        if (close == NULL) return false;
        value->size = (size_t)(close - value->text);
        value->end = close + 1;
        return true;
    }
    if (*at == '{' && is_searched) return true;
    if (*at == ',' || *at == '}') {
        *value = (struct value){.text = "null", .end = at, .size = 4, .kind = 'n'};
        return true;
    }
    value->end = *at == '{' || *at == '[' ? container_end(at, end) : json_word_end(at, end);
    if (value->end == NULL || value->end == at) return false;
    value->size = (size_t)(value->end - at);
    return true;
}

/* ---- names ---- */

static bool is_name(const struct line_name *name, const char *text, size_t size) {
    return name->size == size && memcmp(name->text, text, size) == 0;
}

static bool json_is_within(const struct line_name *name, const char *path, size_t size) {
    return name->size > size && name->text[size] == '.' && memcmp(name->text, path, size) == 0;
}

/* Returns true if a field or the time is a member of the object that has this path. */
static bool is_searched(const struct line_rule *rule, const char *path, size_t size) {
    if (json_is_within(&rule->time_name, path, size)) return true;
    for (size_t i = 0; i < line_field_count(rule); i++)
        if (json_is_within(&rule->names[i], path, size)) return true;
    return false;
}

static bool is_time_name(const struct line_rule *rule, const char *text, size_t size) {
    static const struct line_name usual[] = {
        {"time", 4},        {"timestamp", 9},  {"@timestamp", 10}, {"ts", 2},   {"time_iso8601", 12},
        {"time_local", 10}, {"msec", 4},       {"datetime", 8},    {"date", 4}, {"__REALTIME_TIMESTAMP", 20},
        {"timeStamp", 9},   {"start_time", 10}};
    if (rule->time_name.size > 0) return is_name(&rule->time_name, text, size);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (is_name(&usual[i], text, size)) return true;
    return false;
}

/* ---- escapes ---- */

static int hex_read(const char *text, const char *end, unsigned count) {
    int value = 0;
    if ((size_t)(end - text) < count) return -1;
    for (unsigned i = 0; i < count; i++) {
        int digit = text[i] >= '0' && text[i] <= '9'   ? text[i] - '0'
                    : text[i] >= 'a' && text[i] <= 'f' ? text[i] - 'a' + 10
                    : text[i] >= 'A' && text[i] <= 'F' ? text[i] - 'A' + 10
                                                       : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

static size_t utf8_write(char *to, unsigned code) {
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, code >>= 6) to[i] = (char)(0x80 | (code & 0x3F));
    to[0] = (char)((size == 2 ? 0xC0 : size == 3 ? 0xE0 : 0xF0) | code);
    return size;
}

/* \uHHHH, two of them for characters beyond U+FFFF. Half a pair becomes U+FFFD. `at` is after the u. Returns where it
 * ends, or NULL. */
static const char *unicode_resolve(const char *at, const char *end, char *to, size_t *size) {
    int code = hex_read(at, end, 4);
    if (code < 0) return NULL;
    at += 4;
    if (code >= 0xD800 && code < 0xE000) {
        int low = end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex_read(at + 2, end, 4) : -1;
        if (code < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
        } else {
            code = 0xFFFD;
        }
    }
    *size = utf8_write(to, (unsigned)code);
    return at;
}

/* The text of an escape; `at` is after the backslash. Returns where it ends, or NULL. */
static const char *escape_resolve(const char *at, const char *end, char *to, size_t *size) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (at == end) return NULL;
    if (*at == 'u') return unicode_resolve(at + 1, end, to, size);
    if (*at == 'x') {
        int byte = hex_read(at + 1, end, 2);
        *to = (char)byte;
        *size = 1;
        return byte < 0 ? NULL : at + 3;
    }
    const char *letter = memchr(letters, *at, sizeof letters - 1);
    if (letter == NULL) return NULL;
    *to = meant[letter - letters];
    *size = 1;
    return at + 1;
}

size_t line_json_text(const char *at, size_t text_size, char *to) {
    const char *end = at + text_size;
    size_t size = 0;
    while (at < end) {
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        size_t plain = (size_t)((escape == NULL ? end : escape) - at);
        memcpy(to + size, at, plain);
        size += plain;
        if (escape == NULL) break;
        size_t step;
        at = escape_resolve(escape + 1, end, to + size, &step);
        if (at == NULL) return SIZE_MAX;
        size += step;
    }
    return size;
}

/* Writes the text of a value, which is never longer than the value. Returns its size; SIZE_MAX means that an escape is
 * wrong. */
static size_t text_resolve(const struct value *value, char *to) {
    return line_json_text(value->text, value->size, to);
}

/* A list of bytes: [104,105]. Writes them, and returns how many; SIZE_MAX means that it is another list. */
static size_t bytes_resolve(const struct value *value, char *to) {
    const char *at = spaces_pass(value->text + 1, value->end), *end = value->end - 1;
    size_t size = 0;
    while (at < end) {
        unsigned byte = 0, digits = 0;
        for (; at < end && *at >= '0' && *at <= '9' && byte <= 255; at++, digits++)
            byte = byte * 10 + (unsigned)(*at - '0');
        if (digits == 0 || byte > 255) return SIZE_MAX;
        to[size++] = (char)byte;
        at = spaces_pass(at, end);
        if (at == end) break;
        if (*at != ',') return SIZE_MAX;
        at = spaces_pass(at + 1, end);
        if (at == end) return SIZE_MAX;
    }
    return size;
}

/* The journal's names are capitals, digits and _. Elsewhere a list of small numbers is that, and no text. */
static bool is_journal_name(const struct line_name *name) {
    for (size_t i = 0; i < name->size; i++) {
        char c = name->text[i];
        if (!(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_') return false;
    }
    return true;
}

/* ---- members ---- */

/* A part of a time. The first of its kind counts. */
static void part_note(const char *text, size_t size, char *part, size_t *part_size) {
    if (*part_size == 0) memcpy(part, text, *part_size = size);
}

static void time_take(struct scan *scan, const struct value *value) {
    char plain[TIME_MAX];
    struct value text = *value;
    bool is_named = scan->rule->time_name.size > 0;
    if (value->kind == 'n' && value->size == 4) return; /* null */
    if (value->kind == '"' && value->size <= sizeof plain && memchr(value->text, '\\', value->size) != NULL) {
        text.size = text_resolve(value, plain);
        text.text = plain;
        if (text.size == SIZE_MAX) text.size = 0;
    }
    if (!line_time_read(text.text, text.size, scan->rule->utc_offset_ms, &scan->unix_ms)) {
        bool is_clock =
            text.size >= 8 && text.size < TIME_MAX - DATE_SIZE && text.text[2] == ':' && text.text[5] == ':';
        if (is_clock)
            part_note(text.text, text.size, scan->clock, &scan->clock_size);
        else
            scan->has_bad_time = true;
    } else if (text.size == DATE_SIZE && text.text[4] == '-' && !is_named) {
        part_note(text.text, text.size, scan->date, &scan->date_size);
    } else {
        scan->has_time = true;
    }
}

/* No member is a whole time. Joins the parts of one. Returns NULL on success, otherwise the error. */
static const char *time_join(struct scan *scan) {
    char whole[DATE_SIZE + 1 + TIME_MAX];
    size_t size = scan->date_size;
    if (size == 0 && scan->clock_size > 0) return "a time of day, and no date";
    if (size == 0 && !scan->has_bad_time) return "no member is the time (--time)";
    if (size == 0 || (scan->clock_size == 0 && scan->has_bad_time)) return "the time is not one that is known";
    memcpy(whole, scan->date, size);
    if (scan->clock_size > 0) {
        whole[size++] = 'T';
        memcpy(whole + size, scan->clock, scan->clock_size);
        size += scan->clock_size;
    }
    return line_time_iso(whole, size, scan->rule->utc_offset_ms, &scan->unix_ms) ? NULL
                                                                                 : "the time is not one that is known";
}

static void member_take(struct scan *scan, const char *path, size_t size, const struct value *value) {
    const struct line_rule *rule = scan->rule;
    if (!scan->has_time && value->kind != '{' && value->kind != '[' && is_time_name(rule, path, size))
        time_take(scan, value);
    for (size_t i = 0; i < line_field_count(rule); i++) {
        if (scan->found[i].kind != 0 || !is_name(&rule->names[i], path, size)) continue;
        scan->found[i] = *value;
        scan->missing--;
    }
}

/* The name of a member with those of the objects around it, which are the first `outer` bytes of scan->path. It fits if
 * it is short enough to be looked for. */
static const char *path_make(struct scan *scan, size_t outer, const char *name, size_t *size) {
    if (outer == 0) return name;
    if (*size > PATH_MAX_SIZE - 1 - outer) *size = PATH_MAX_SIZE - 1 - outer;
    scan->path[outer] = '.';
    memcpy(scan->path + outer + 1, name, *size);
    *size += outer + 1;
    return scan->path;
}

/* Reads the members of one object, and of those within it that are searched; `*at` is behind its brace, then behind its
 * end. Returns NULL on success, at the end or when all fields were found. */
static const char *members_read(struct scan *scan, const char **at_in, size_t outer, unsigned depth) {
    const char *at = spaces_pass(*at_in, scan->end), *end = scan->end;
    bool is_first = true;
    for (;; is_first = false) {
        struct value name, value = {0};
        at = spaces_pass(at, end);
        if (at < end && *at == '}') break;
        if (!is_first && (at == end || *at++ != ',')) return broken;
        at = spaces_pass(at, end);
        if (at == end || *at != '"' || !value_read(at, end, false, &name)) return broken;
        at = spaces_pass(name.end, end);
        if (at == end || *at++ != ':') return broken;
        at = spaces_pass(at, end);
        if (memchr(name.text, '\\', name.size) != NULL && name.size < PATH_MAX_SIZE) {
            size_t plain = text_resolve(&name, scan->name);
            if (plain != SIZE_MAX) name = (struct value){.text = scan->name, .size = plain};
        }
        size_t size = name.size;
        const char *path = path_make(scan, outer, name.text, &size);
        bool enter =
            at < end && *at == '{' && depth < DEPTH_MAX && size < PATH_MAX_SIZE && is_searched(scan->rule, path, size);
        if (!value_read(at, end, enter, &value)) return broken;
        if (!enter) {
            member_take(scan, path, size, &value);
            at = value.end;
        } else {
            if (path != scan->path) memcpy(scan->path, path, size);
            at++;
            const char *wrong = members_read(scan, &at, size, depth + 1);
            if (wrong != NULL) return wrong;
        }
        if (scan->missing == 0 && scan->has_time) return NULL;
    }
    *at_in = at + 1;
    return NULL;
}

/* ---- a line ---- */

static const char *bytes_make(struct scan *scan, const struct value *value, bool is_asked, tw_key *text) {
    char *to = scan->scratch + scan->scratch_used;
    if (value->size / 2 > sizeof scan->scratch - scan->scratch_used) return "a list of bytes is too long";
    size_t size = bytes_resolve(value, to);
    if (size == SIZE_MAX && !is_asked) return "the field is an object or a list";
    *text = size == SIZE_MAX ? tw_bytes(value->text, value->size) : tw_bytes(to, size);
    if (size != SIZE_MAX) scan->scratch_used += size;
    return NULL;
}

/* A list of one text is this text. */
static struct value list_pass(const struct value *list) {
    struct value text = {.kind = '\0'};
    if (list->kind != '[') return *list;
    const char *end = list->end - 1, *at = spaces_pass(list->text + 1, end);
    bool is_text = at < end && *at == '"' && value_read(at, end, false, &text) && spaces_pass(text.end, end) == end;
    return is_text ? text : *list;
}

/* The texts of the fields that were found. */
static const char *texts_make(struct scan *scan, tw_key *field_at) {
    const struct line_rule *rule = scan->rule;
    for (size_t i = 0; i < line_field_count(rule); i++) {
        struct value *value = &scan->found[i];
        *value = list_pass(value);
        bool is_asked = i >= (size_t)rule->field_count + rule->element_count; /* by a condition */
        bool is_null = value->kind == 'n' && value->size == 4;
        if (value->kind == 0 || is_null) {
            if (!is_asked) return "the line has no such field";
            field_at[i] = tw_bytes("", 0);
        } else if (value->kind == '"' && memchr(value->text, '\\', value->size) != NULL) {
            char *to = scan->scratch + scan->scratch_used;
            if (value->size > sizeof scan->scratch - scan->scratch_used) return "a text with escapes is too long";
            size_t size = text_resolve(value, to);
            if (size == SIZE_MAX) return "a text has an escape that JSON does not know";
            field_at[i] = tw_bytes(to, size);
            scan->scratch_used += size;
        } else if (value->kind == '[' && is_journal_name(&rule->names[i])) {
            const char *wrong = bytes_make(scan, value, is_asked, &field_at[i]);
            if (wrong != NULL) return wrong;
        } else if ((value->kind == '{' || value->kind == '[') && !is_asked) {
            return "the field is an object or a list";
        } else {
            field_at[i] = tw_bytes(value->text, value->size);
        }
    }
    return NULL;
}

/* A text of one field without escapes stays in the line. A text in the scratch is copied to a place where it lasts. */
static void json_make_last(const struct scan *scan, tw_key *text, char *room) {
    const char *bytes = text->data;
    if (bytes < scan->scratch || bytes >= scan->scratch + sizeof scan->scratch) return;
    memcpy(room, bytes, text->size);
    text->data = room;
}

static void scan_begin(struct scan *scan, const struct line_rule *rule, const char *end) {
    scan->rule = rule;
    scan->end = end;
    scan->missing = line_field_count(rule);
    for (size_t i = 0; i < scan->missing; i++) scan->found[i].kind = 0;
    scan->has_time = scan->has_bad_time = false;
    scan->date_size = scan->clock_size = 0;
    scan->scratch_used = 0;
}

/* Where the object begins, perhaps behind a prefix; the end if it does not. */
static const char *object_find(const char *text, const char *end) {
    const char *at = spaces_pass(text, end);
    if (at < end && *at != '{') at = spaces_pass(at + line_prefix(at, (size_t)(end - at), true), end);
    return at < end && *at == '{' ? at : end;
}

bool line_json_begins(const char *text, size_t size) {
    return object_find(text, text + size) < text + size;
}

bool line_json_docker(const char *text, size_t size, tw_key *log) {
    static const struct line_rule docker = {
        .field_count = 2, .names = {{"log", 3}, {"stream", 6}}, .time_name = {"time", 4}};
    struct scan scan;
    const char *end = text + size, *at = object_find(text, end);
    if (at == end || memmem(at, (size_t)(end - at), "\"stream\"", 8) == NULL) return false; /* most objects */
    scan_begin(&scan, &docker, end);
    at++;
    (void)members_read(&scan, &at, 0, 0);
    if (scan.found[0].kind != '"' || scan.found[1].kind != '"' || scan.found[1].size != 6) return false;
    bool is_output = memcmp(scan.found[1].text, "stdout", 6) == 0 || memcmp(scan.found[1].text, "stderr", 6) == 0;
    *log = tw_bytes(scan.found[0].text, scan.found[0].size);
    return is_output;
}

const char *line_json(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined) {
    struct scan scan; /* most of it is scratch, so it is not cleared */
    tw_key field_at[LINE_FIELDS_ALL];
    scan_begin(&scan, rule, text + size);
    const char *at = object_find(text, scan.end);
    if (at++ == scan.end) return broken;
    const char *wrong = members_read(&scan, &at, 0, 0);
    if (wrong != NULL) return wrong;
    if (!scan.has_time) wrong = time_join(&scan);
    if (wrong != NULL) return wrong;
    wrong = texts_make(&scan, field_at);
    if (wrong != NULL) return wrong;
    line->unix_ms = scan.unix_ms;
    line->delta = 1;
    wrong = line_key(rule, field_at, line, joined);
    if (wrong != NULL) return wrong;
    json_make_last(&scan, &line->key, joined);
    if (rule->element_count == 0) return NULL;
    if (line->element.size > LINE_ELEMENT_MAX) return "the fields of --distinct are longer than 8192 bytes";
    json_make_last(&scan, &line->element, joined + TW_KEY_SIZE_MAX);
    return NULL;
}
