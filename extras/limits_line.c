/* limits_line.c -- reads one line of a limits file, FAMILY KEY LIMIT WINDOW [WORD...]. See tw_limits_open() in the
 * header. The parser is strict. It refuses unknown words, and names them. So a typing error never becomes another
 * limit. Always true: the parser never reads outside of the line. The parser has no state, so it can be fuzzed. */
#include <stdarg.h>
#include <stdio.h>

#include "engine/base/check.h"
#include "extras/limits.h"

#define WORDS_MAX 12

struct word {
    char *text;
    size_t size;
};

struct reader {
    struct word words[WORDS_MAX];
    size_t count;
    char *error;
    size_t error_size;
};

__attribute__((format(printf, 2, 3))) static bool fail(const struct reader *reader, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (reader->error_size > 0) vsnprintf(reader->error, reader->error_size, format, arguments);
    va_end(arguments);
    return false;
}

/* A word as shown in an error, which is its beginning, without control bytes. */
struct shown {
    char text[44];
};
static struct shown line_show(struct word word) {
    struct shown shown;
    size_t size = word.size < 40 ? word.size : 40;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)word.text[i];
        shown.text[i] = byte >= 0x20 && byte < 0x7f ? (char)byte : '?';
    }
    strcpy(shown.text + size, size < word.size ? "..." : "");
    return shown;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* Words are separated by blanks. A word that begins with # begins a comment. */
static bool line_split(struct reader *reader, char *text, size_t size) {
    size_t at = 0;
    for (;;) {
        while (at < size && is_blank(text[at])) at++;
        if (at == size || text[at] == '#') return true;
        if (reader->count == WORDS_MAX) return fail(reader, "more than %d words", WORDS_MAX);
        struct word *word = &reader->words[reader->count++];
        word->text = text + at;
        while (at < size && !is_blank(text[at])) at++;
        word->size = (size_t)(text + at - word->text);
    }
}

static bool word_is(struct word word, const char *text) {
    return word.size == strlen(text) && memcmp(word.text, text, word.size) == 0;
}

/* ---- FAMILY ---- */

static bool line_name_byte_is_good(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           byte == '.' || byte == '_' || byte == '-';
}

static bool read_family(struct reader *reader, struct twi_limits_line *line) {
    struct word word = reader->words[0];
    if (word.size > TWI_LIMITS_NAME_BYTES_MAX)
        return fail(reader, "family '%s': longer than %u bytes", line_show(word).text, TWI_LIMITS_NAME_BYTES_MAX);
    for (size_t i = 0; i < word.size; i++) {
        if (line_name_byte_is_good(word.text[i])) continue;
        return fail(reader, "family '%s': byte %zu (0x%02x) is not a letter, a digit, '.', '_' or '-'",
                    line_show(word).text, i + 1, (unsigned)(unsigned char)word.text[i]);
    }
    line->family = word.text; /* the NUL is set when all words have been read */
    return true;
}

/* ---- KEY ---- */

static int line_hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes the escape at word[*at], which is a backslash. -1 means no valid escape. *at moves to its last byte. */
static int line_unescape(struct word word, size_t *at) {
    size_t left = word.size - *at - 1;
    char c = left > 0 ? word.text[++*at] : '\0';
    if (c == '\\' || c == '*') return c;
    if (c == 't') return '\t';
    if (c == 'n') return '\n';
    if (c != 'x' || left < 3) return -1;
    int high = line_hex(word.text[*at + 1]), low = line_hex(word.text[*at + 2]);
    *at += 2;
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool read_key(struct reader *reader, struct twi_limits_line *line) {
    struct word word = reader->words[1];
    struct shown shown = line_show(word); /* copied before the word is overwritten */
    size_t size = 0;
    line->is_prefix = false;
    for (size_t i = 0; i < word.size; i++) {
        int byte = (unsigned char)word.text[i];
        if (byte == '*') {
            if (i + 1 != word.size)
                return fail(reader, "key '%s': * may stand at the end only; the byte itself is \\*", shown.text);
            line->is_prefix = true;
            break;
        }
        if (byte == '\\') byte = line_unescape(word, &i);
        if (byte < 0) return fail(reader, "key '%s': after \\ comes \\, *, t, n or xHH", shown.text);
        word.text[size++] = (char)byte;
    }
    if (size > TW_KEY_SIZE_MAX) return fail(reader, "key '%s': longer than %d bytes", shown.text, TW_KEY_SIZE_MAX);
    line->key = word.text;
    line->key_size = (uint32_t)size;
    return true;
}

/* ---- LIMIT and WINDOW ---- */

/* Digits only, at most `max`. */
static bool line_read_number(struct word word, int64_t max, int64_t *number) {
    int64_t value = 0;
    if (word.size == 0 || word.size > 16) return false;
    for (size_t i = 0; i < word.size; i++) {
        if (word.text[i] < '0' || word.text[i] > '9') return false;
        value = value * 10 + (word.text[i] - '0');
    }
    *number = value;
    return value <= max;
}

static bool read_limit(struct reader *reader, struct twi_limits_line *line) {
    struct word word = reader->words[2];
    line->limit = TW_UNBOUNDED;
    if (word_is(word, "unlimited") || line_read_number(word, TW_DELTA_MAX, &line->limit)) return true;
    return fail(reader, "limit '%s': must be a whole number from 0 to %lld, or unlimited", line_show(word).text,
                (long long)TW_DELTA_MAX);
}

static int64_t line_unit_ms(char unit) {
    return unit == 's' ? TW_SECOND : unit == 'm' ? TW_MINUTE : unit == 'h' ? TW_HOUR : unit == 'd' ? TW_DAY : 0;
}

static bool read_window(struct reader *reader, struct twi_limits_line *line) {
    struct word word = reader->words[3], digits = {word.text, word.size - 1};
    int64_t number = 0, unit = line_unit_ms(word.text[word.size - 1]);
    if (unit == 0 || !line_read_number(digits, INT64_C(999999999), &number) || number == 0) {
        return fail(reader, "window '%s': must be a number with s, m, h or d, as in 30s, 1m, 1h, 1d",
                    line_show(word).text);
    }
    line->policy.window_ms = number * unit;
    return true;
}

/* ---- the words after them ---- */

/* Returns true if the word is KEY=VALUE of that key. Writes its value. */
static bool word_sets(struct word word, const char *key, struct word *value) {
    size_t size = strlen(key);
    if (word.size <= size || memcmp(word.text, key, size) != 0 || word.text[size] != '=') return false;
    *value = (struct word){word.text + size + 1, word.size - size - 1};
    return true;
}

/* Finds `value` among `names`, which are in the order of the header's constants. */
static bool line_choose(const struct reader *reader, struct word word, struct word value, const char *const *names,
                        uint32_t *choice) {
    char all[64] = "";
    for (uint32_t i = 0; names[i] != NULL; i++) {
        *choice = i;
        if (word_is(value, names[i])) return true;
        size_t used = strlen(all);
        (void)snprintf(all + used, sizeof all - used, "%s%s", i != 0 ? ", " : "", names[i]);
    }
    return fail(reader, "'%s': must be one of %s", line_show(word).text, all);
}

/* `open` and `closed` are the names in files from before 0.1.0. */
static bool choose_outage(const struct reader *reader, struct word word, struct word value, uint32_t *choice) {
    static const char *const names[] = {"local", "fail-open", "fail-closed", "share", NULL};
    bool is_open = word_is(value, "open");
    if (!is_open && !word_is(value, "closed")) return line_choose(reader, word, value, names, choice);
    *choice = is_open ? TW_OUTAGE_FAIL_OPEN : TW_OUTAGE_FAIL_CLOSED;
    return true;
}

static bool read_count(const struct reader *reader, struct word word, struct word value, int64_t max, int64_t *count) {
    if (line_read_number(value, max, count) && *count > 0) return true;
    return fail(reader, "'%s': must be a whole number from 1 to %lld", line_show(word).text, (long long)max);
}

static bool read_option(struct reader *reader, struct word word, struct twi_limits_policy *policy) {
    static const char *const modes[] = {"soft", "hard", "strict", NULL};
    static const char *const shapes[] = {"fixed", "sliding", "gcra", NULL};
    static const char *const busy[] = {"refuse", "outage", NULL};
    struct word value;
    if (word_sets(word, "mode", &value)) return line_choose(reader, word, value, modes, &policy->mode);
    if (word_sets(word, "shape", &value)) return line_choose(reader, word, value, shapes, &policy->shape);
    if (word_sets(word, "outage", &value)) return choose_outage(reader, word, value, &policy->outage);
    if (word_sets(word, "busy", &value)) return line_choose(reader, word, value, busy, &policy->busy);
    if (word_sets(word, "burst", &value)) return read_count(reader, word, value, TW_DELTA_MAX, &policy->burst);
    if (word_sets(word, "sub-windows", &value)) {
        int64_t count = 0;
        bool is_good = read_count(reader, word, value, TW_SUB_WINDOWS_MAX, &count);
        policy->sub_windows = (uint32_t)count;
        return is_good;
    }
    if (word_is(word, "from-first")) {
        policy->window = TW_WINDOW_FROM_FIRST;
    } else if (word_is(word, "shadow")) {
        policy->shadow = true;
    } else {
        return fail(reader,
                    "'%s': unknown; there are from-first, shadow, mode=, shape=, burst=, sub-windows=, outage=, busy=",
                    line_show(word).text);
    }
    return true;
}

/* Returns the size of a word up to its `=`. */
static size_t subject_size(struct word word) {
    const char *end = memchr(word.text, '=', word.size);
    return end != NULL ? (size_t)(end - word.text) : word.size;
}

/* One of two words would have no effect, and the choice would be a guess. */
static bool is_repeated(const struct reader *reader, size_t index) {
    struct word word = reader->words[index];
    size_t size = subject_size(word);
    for (size_t i = 4; i < index; i++)
        if (subject_size(reader->words[i]) == size && memcmp(reader->words[i].text, word.text, size) == 0) return true;
    return false;
}

static bool line_read_options(struct reader *reader, struct twi_limits_line *line) {
    for (size_t i = 4; i < reader->count; i++) {
        if (!read_option(reader, reader->words[i], &line->policy)) return false;
        if (!is_repeated(reader, i)) continue;
        return fail(reader, "'%s': its option is in this line twice", line_show(reader->words[i]).text);
    }
    return true;
}

/* ---- the line ---- */

static bool has_words(const struct reader *reader) {
    static const char *const missing[] = {"", "the key is", "the limit is", "the window is"};
    bool is_unlimited = reader->count >= 3 && word_is(reader->words[2], "unlimited");
    if (is_unlimited && reader->count > 3) return fail(reader, "nothing may follow unlimited: it has no window");
    if (is_unlimited || reader->count >= 4) return true;
    return fail(reader, "%s missing: a line is FAMILY KEY LIMIT WINDOW, as in: calls user:* 100 1m",
                missing[reader->count]);
}

int twi_limits_line_read(char *text, size_t size, struct twi_limits_line *line, char *error, size_t error_size) {
    struct reader reader = {.error = error, .error_size = error_size};
    *line = (struct twi_limits_line){.policy = {.window = TW_WINDOW_ALIGNED}};
    if (memchr(text, '\0', size) != NULL) {
        (void)fail(&reader, "a NUL byte: is this a text file?");
        return TWI_LIMITS_BAD;
    }
    if (!line_split(&reader, text, size)) return TWI_LIMITS_BAD;
    if (reader.count == 0) return TWI_LIMITS_EMPTY;
    if (!has_words(&reader) || !read_family(&reader, line) || !read_key(&reader, line) || !read_limit(&reader, line))
        return TWI_LIMITS_BAD;
    if (line->limit != TW_UNBOUNDED && (!read_window(&reader, line) || !line_read_options(&reader, line)))
        return TWI_LIMITS_BAD;
    reader.words[0].text[reader.words[0].size] = '\0';
    return TWI_LIMITS_GOOD;
}
