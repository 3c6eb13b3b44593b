/* watch_answer.c -- from the line that a client of the watch socket sent to the bytes that it gets. See watch.h. Always
 * true: whatever the request is, the answer is whole lines; it opens no file. Only a `reset` in a scope that writes
 * changes any state. */
#include "extras/watch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WORDS_MAX 4
#define KEYS_DEFAULT 20u

static const char help[] = "status               the engine, its statistics and its families\n"
                           "top FAMILY [N [MS]]  the heaviest keys of the window of now, or of that moment\n"
                           "key FAMILY KEY       the count of one key, which is the rest of the line, escaped as here\n"
                           "reset FAMILY KEY     sets it to 0, if this socket writes\n"
                           "metrics              a page of metrics: Prometheus's text\n"
                           "openmetrics          the same as OpenMetrics\n"
                           "help\n";

/* ---- text that grows ---- */

static bool answer_reserve(struct twi_watch_text *text, size_t more) {
    if (text->failed || more > TWI_WATCH_ANSWER_MAX - text->size) return !(text->failed = true);
    if (text->size + more <= text->room) return true;
    size_t room = text->room != 0 ? text->room : 4096;
    while (room < text->size + more) room *= 2;
    char *bytes = realloc(text->bytes, room);
    if (bytes == NULL) return !(text->failed = true);
    text->bytes = bytes;
    text->room = room;
    return true;
}

static void answer_put(struct twi_watch_text *text, const void *bytes, size_t size) {
    if (size == 0 || !answer_reserve(text, size)) return;
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
}

static void answer_put_text(struct twi_watch_text *text, const char *words) {
    answer_put(text, words, strlen(words));
}

__attribute__((format(printf, 2, 3))) static void print(struct twi_watch_text *text, const char *format, ...) {
    char line[512]; /* every caller's line is shorter, because names have 64 bytes, numbers 20 */
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    answer_put(text, line, size < 0 ? 0 : (size_t)size < sizeof line ? (size_t)size : sizeof line - 1);
}

static void put_escaped(struct twi_watch_text *text, const void *data, size_t size) {
    static const char plain[] = "\t\n\r\\", letters[] = "tnr\\";
    const unsigned char *bytes = data;
    for (size_t at = 0; at < size;) {
        size_t run = 0;
        while (at + run < size && bytes[at + run] >= ' ' && bytes[at + run] != 127 && bytes[at + run] != '\\') run++;
        answer_put(text, bytes + at, run);
        at += run;
        if (at == size) return;
        const char *known = bytes[at] != 0 ? strchr(plain, bytes[at]) : NULL;
        if (known != NULL)
            print(text, "\\%c", letters[known - plain]);
        else
            print(text, "\\x%02X", bytes[at]);
        at++;
    }
}

static void answer_refuse(struct twi_watch_text *text, const char *why) {
    answer_put_text(text, "error\t");
    put_escaped(text, why, strlen(why));
    answer_put_text(text, "\n");
}

/* Why the last call was refused. */
static void answer_refuse_for(struct twi_watch_text *text, tw_status status) {
    answer_refuse(text, *tw_error_text() != '\0' ? tw_error_text() : tw_status_text(status));
}

/* ---- status ---- */

static const char *answer_word_of(const char *const *words, size_t count, uint32_t value) {
    return value < count ? words[value] : "?";
}
#define WORD(words, value) answer_word_of((words), sizeof(words) / sizeof *(words), (value))

static const char *answer_kind_of(uint32_t kind) {
    static const char *const kinds[] = {"counter", "gauge", "distinct"};
    return WORD(kinds, kind);
}

static void answer_put_family(struct twi_watch_text *text, const struct twi_watch_family *family) {
    static const char *const windows[] = {"aligned", "from_first", "forever", "day", "week", "month"};
    static const char *const modes[] = {"soft", "hard", "strict"}, *const shapes[] = {"string", "hash", "zset"};
    print(text, "family\t%s\t%s\t%s\t%" PRId64 "\t%" PRId64 "\t%" PRId64, family->name, answer_kind_of(family->kind),
          WORD(windows, family->window), family->window_ms, family->start_ms, family->end_ms);
    print(text, "\t%s\t%s\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\n",
          WORD(modes, family->limit_mode), WORD(shapes, family->redis_shape), family->windows, family->keys,
          family->admitted, family->denied, family->near, family->shadow_denied);
}

/* Whether a gauge is an amount. Others are times and states. */
static bool answer_is_amount(const char *name) {
    static const char *const amounts[] = {"entries",        "generations", "unsent_keys",   "reservations_held",
                                          "lease_stranded", "ask_active",  "ask_unsettled", "ask_unsent"};
    for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++)
        if (strcmp(name, amounts[i]) == 0) return true;
    return strncmp(name, "memory_", 7) == 0;
}

/* The figure of several engines: counters and amounts add up, of times and states the worst is shown. */
static int64_t answer_join(const char *kind, const char *name, int64_t one, int64_t other) {
    if (strcmp(kind, "counter") == 0 || answer_is_amount(name)) return one + other;
    bool takes_less = strcmp(name, "redis_connected") == 0;
    return (one < other) == takes_less ? one : other;
}

/* Adds the figures of another engine. The last error is the latest one. */
static void answer_add_stats(tw_engine *engine, tw_stats *sum, int64_t *age_ms, bool is_first) {
    tw_stats stats;
    (void)tw_stats_read(engine, &stats);
    int64_t its_age_ms = twi_watch_last_error_age_ms(engine);
    if (is_first) {
        *sum = stats;
        *age_ms = its_age_ms;
        return;
    }
#define JOIN(name, kind, what) sum->name = answer_join(#kind, #name, sum->name, stats.name);
    TW_STATS(JOIN)
#undef JOIN
    if (its_age_ms < 0 || (*age_ms >= 0 && *age_ms <= its_age_ms)) return;
    memcpy(sum->last_error, stats.last_error, sizeof sum->last_error);
    *age_ms = its_age_ms;
}

static void answer_put_stats(const struct twi_watch_scope *scope, struct twi_watch_text *text) {
    tw_stats stats;
    memset(&stats, 0, sizeof stats);
    int64_t age_ms = -1;
    size_t count = scope->engine != NULL ? 1 : scope->engine_count;
    for (size_t i = 0; i < count; i++)
        answer_add_stats(scope->engine != NULL ? scope->engine : scope->engines[i], &stats, &age_ms, i == 0);
#define STAT(name, kind, what) print(text, "stat\t" #name "\t%" PRId64 "\n", stats.name);
    TW_STATS(STAT)
#undef STAT
    answer_put_text(text, "last_error\t");
    put_escaped(text, stats.last_error, strnlen(stats.last_error, sizeof stats.last_error));
    if (age_ms >= 0) print(text, "\t%" PRId64, age_ms);
    answer_put_text(text, "\n");
}

/* The caller frees the list. Returns false if there is no memory. */
static bool answer_families(const struct twi_watch_scope *scope, struct twi_watch_family **list, size_t *count) {
    if (scope->engine != NULL) return twi_watch_families(scope->engine, list, count);
    *count = scope->family_count;
    *list = malloc(scope->family_count * sizeof **list);
    for (size_t i = 0; *list != NULL && i < *count; i++) {
        if (twi_watch_describe(scope->families[i], &(*list)[i])) continue;
        free(*list);
        *list = NULL;
    }
    return *list != NULL;
}

static void put_status(const struct twi_watch_scope *scope, struct twi_watch_text *text) {
    struct twi_watch_family *families;
    size_t count;
    if (!answer_families(scope, &families, &count)) {
        answer_refuse(text, "no memory");
        return;
    }
    tw_engine *first = scope->engine != NULL ? scope->engine : scope->engines[0];
    print(text, "tallywheel\t%s\nnow_ms\t%" PRId64 "\nprocess\t%ld\n", tw_version(), twi_watch_now_ms(first),
          (long)getpid());
    answer_put_stats(scope, text);
    for (size_t i = 0; i < count; i++) answer_put_family(text, &families[i]);
    answer_put_text(text, "end\n");
    free(families);
}

/* ---- one family ---- */

/* Holds the family of that name until answer_let_go(). Refuses a name that none has, and returns NULL then. */
static tw_family *answer_hold(const struct twi_watch_scope *scope, const char *name, struct twi_watch_text *text) {
    tw_family *family = scope->engine != NULL ? twi_watch_hold(scope->engine, name) : NULL;
    for (size_t i = 0; i < scope->family_count && family == NULL; i++)
        if (strcmp(twi_watch_name(scope->families[i]), name) == 0) family = scope->families[i];
    if (family == NULL) answer_refuse(text, "no family of that name is open");
    return family;
}

static void answer_let_go(const struct twi_watch_scope *scope) {
    if (scope->engine != NULL) twi_watch_let_go(scope->engine);
}

/* ---- top ---- */

static bool answer_put_key(void *ctx, const tw_count *count) {
    struct twi_watch_text *text = ctx;
    print(text, "key\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t", count->view, count->local,
          count->error, count->start_ms, count->end_ms);
    put_escaped(text, count->key.data, count->key.size);
    answer_put_text(text, "\n");
    return !text->failed;
}

static void answer_put_top(const struct twi_watch_scope *scope, const char *name, size_t n, int64_t unix_ms,
                           struct twi_watch_text *text) {
    tw_family *family = answer_hold(scope, name, text);
    if (family == NULL) return;
    print(text, "top\t%s\t%s\n", name, answer_kind_of(twi_watch_kind(family)));
    tw_status status = tw_top(family, n, unix_ms, answer_put_key, text);
    answer_let_go(scope);
    if (status == TW_OK)
        answer_put_text(text, "end\n");
    else
        answer_refuse_for(text, status);
}

/* ---- one key ---- */

static int answer_hex(char digit) {
    const char *digits = "0123456789ABCDEF0123456789abcdef", *at = digit != '\0' ? strchr(digits, digit) : NULL;
    return at != NULL ? (int)(at - digits) % 16 : -1;
}

/* Undoes the escapes, to `key`, which has room for as many bytes. Returns false at one that there is not. */
static bool answer_unescape(const char *text, size_t size, char *key, size_t *length) {
    size_t used = 0;
    for (size_t at = 0; at < size; at++) {
        char byte = text[at];
        if (byte == '\\') {
            static const char letters[] = "tnr\\", bytes[] = "\t\n\r\\";
            char letter = at + 1 < size ? text[at + 1] : '\0';
            const char *known = letter != '\0' ? strchr(letters, letter) : NULL;
            int high = letter == 'x' && at + 3 < size ? answer_hex(text[at + 2]) : -1;
            int low = high >= 0 ? answer_hex(text[at + 3]) : -1;
            if (known == NULL && low < 0) return false;
            byte = known != NULL ? bytes[known - letters] : (char)(high * 16 + low);
            at += known != NULL ? 1 : 3;
        }
        key[used++] = byte;
    }
    *length = used;
    return true;
}

static void answer_show_key(tw_family *family, const char *name, tw_key key, struct twi_watch_text *text) {
    tw_count count;
    bool known;
    tw_status status = twi_watch_read(family, key, &count, &known);
    if (status != TW_OK) {
        answer_refuse_for(text, status);
        return;
    }
    print(text, "top\t%s\t%s\n", name, answer_kind_of(twi_watch_kind(family)));
    if (known) (void)answer_put_key(text, &count);
    answer_put_text(text, "end\n");
}

/* A key without a counter gets none. */
static void answer_reset_key(tw_family *family, const char *name, tw_key key, struct twi_watch_text *text) {
    tw_count count;
    bool known = false;
    int64_t taken = 0;
    if (twi_watch_has_leases(family)) { /* the count would be 0, and everybody denied as before */
        answer_refuse(text, "limit_mode: the units of a hard limit with Redis are in leases, which have no reset");
        return;
    }
    tw_status status = twi_watch_read(family, key, &count, &known);
    if (status == TW_OK && known) status = tw_reset(family, key, &taken);
    if (status == TW_OK)
        print(text, "reset\t%s\t%d\t%" PRId64 "\nend\n", name, known, taken);
    else
        answer_refuse_for(text, status);
}

/* `rest` is what comes behind the verb: a family, a space, a key. */
static void answer_key(const struct twi_watch_scope *scope, bool resets, const char *rest, size_t size,
                       struct twi_watch_text *text) {
    char key[TWI_WATCH_REQUEST_MAX], name[65] = "";
    const char *space = memchr(rest, ' ', size);
    size_t name_size = space != NULL ? (size_t)(space - rest) : size, key_size = 0;
    if (space == NULL || name_size + 1 == size) {
        answer_refuse(text, resets ? "reset wants a family and a key: reset FAMILY KEY"
                                   : "key wants a family and a key: key FAMILY KEY");
        return;
    }
    if (!answer_unescape(space + 1, size - name_size - 1, key, &key_size)) {
        answer_refuse(text,
                      "a backslash in a key is followed by t, n, r, a backslash, or x and two hexadecimal digits");
        return;
    }
    if (resets && !scope->writes) {
        answer_put_text(text, "error\tthis socket does not write\tread_only\n");
        return;
    }
    if (name_size < sizeof name) memcpy(name, rest, name_size);
    tw_family *family = answer_hold(scope, name, text);
    if (family == NULL) return;
    if (resets)
        answer_reset_key(family, name, tw_bytes(key, key_size), text);
    else
        answer_show_key(family, name, tw_bytes(key, key_size), text);
    answer_let_go(scope);
}

/* ---- requests ---- */

static bool answer_write_page(void *ctx, const char *page, size_t size) {
    answer_put(ctx, page, size);
    return !((struct twi_watch_text *)ctx)->failed;
}

static bool answer_read_number(const char *word, int64_t low, int64_t high, int64_t *number) {
    char *end;
    bool is_number = (*word >= '0' && *word <= '9') || (*word == '-' && word[1] >= '0' && word[1] <= '9');
    int64_t value = is_number ? strtoll(word, &end, 10) : 0; /* a value out of range becomes the nearest bound */
    if (!is_number || *end != '\0' || value < low || value > high) return false;
    *number = value;
    return true;
}

static void answer_top(const struct twi_watch_scope *scope, char *const *words, size_t count,
                       struct twi_watch_text *text) {
    int64_t n = KEYS_DEFAULT, unix_ms = TW_NOW;
    if (count < 2)
        answer_refuse(text, "top wants a family: top FAMILY [N [MS]]");
    else if (count > 2 && !answer_read_number(words[2], 1, TWI_WATCH_KEYS_MAX, &n))
        answer_refuse(text, "the number of keys is not in 1..1000");
    else if (count > 3 && !answer_read_number(words[3], INT64_MIN + 1, INT64_MAX, &unix_ms))
        answer_refuse(text, "the moment is no number of milliseconds");
    else
        answer_put_top(scope, words[1], (size_t)n, unix_ms, text);
}

/* Parts the line at single spaces; it is of printable ASCII, as names of families are. Returns how many words; 0 means
 * that it is no request. */
static size_t answer_split(const char *request, size_t size, char line[TWI_WATCH_REQUEST_MAX + 1],
                           char *words[WORDS_MAX]) {
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        if (request[i] < ' ' || request[i] > '~') return 0;
    memcpy(line, request, size);
    line[size] = '\0';
    for (char *at = line; at != NULL; count++) {
        if (count == WORDS_MAX) return 0;
        words[count] = at;
        at = strchr(at, ' ');
        if (at != NULL) *at++ = '\0';
    }
    return count;
}

static void answer_page(const struct twi_watch_scope *scope, uint32_t format, struct twi_watch_text *text) {
    if (scope->engine != NULL)
        (void)tw_metrics_write(scope->engine, format, answer_write_page, text);
    else
        answer_refuse(text, "this socket has no page of metrics: the program has it elsewhere");
}

static void answer_words(const struct twi_watch_scope *scope, const char *request, size_t size,
                         struct twi_watch_text *text) {
    char line[TWI_WATCH_REQUEST_MAX + 1], *words[WORDS_MAX];
    size_t count = answer_split(request, size, line, words);
    const char *verb = count > 0 ? words[0] : "";
    if (count == 1 && strcmp(verb, "status") == 0)
        put_status(scope, text);
    else if (count >= 1 && strcmp(verb, "top") == 0)
        answer_top(scope, words, count, text);
    else if (count == 1 && strcmp(verb, "metrics") == 0)
        answer_page(scope, TW_METRICS_PROMETHEUS, text);
    else if (count == 1 && strcmp(verb, "openmetrics") == 0)
        answer_page(scope, TW_METRICS_OPENMETRICS, text);
    else if (count == 1 && strcmp(verb, "help") == 0)
        answer_put_text(text, help);
    else
        answer_refuse(text, "unknown request; help lists those that there are");
}

/* Whether the request begins with the verb. Then *rest is what comes behind it. */
static bool answer_is(const char *request, size_t size, const char *verb, const char **rest, size_t *rest_size) {
    size_t length = strlen(verb);
    if (size < length || memcmp(request, verb, length) != 0 || (size > length && request[length] != ' ')) return false;
    *rest = request + length + (size > length);
    *rest_size = size - length - (size > length);
    return true;
}

void twi_watch_answer(const struct twi_watch_scope *scope, const char *request, size_t size,
                      struct twi_watch_text *text) {
    const char *rest;
    size_t rest_size;
    if (size > 0 && request[size - 1] == '\r') size--;
    if (size > TWI_WATCH_REQUEST_MAX) size = 0;
    if (answer_is(request, size, "key", &rest, &rest_size))
        answer_key(scope, false, rest, rest_size, text);
    else if (answer_is(request, size, "reset", &rest, &rest_size))
        answer_key(scope, true, rest, rest_size, text);
    else
        answer_words(scope, request, size, text);
}
