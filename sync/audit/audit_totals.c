/* audit_totals.c -- see audit_totals.h. */
#include "sync/audit/audit_totals.h"

#include "engine/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many lines are compared as one page. */
struct totals {
    struct twi_audit_servers *servers;
    struct twi_audit_names *names;
    struct twi_bytes inner; /* the fields or members, one after the other: */
    size_t inner_ends[TWI_AUDIT_PAGE];
    int64_t counts[TWI_AUDIT_PAGE];
    uint64_t line;
};

/* How a counter of each shape (TW_REDIS_*) is requested and described. */
static const struct shape {
    const char *command, *missing, *no_number;
} shapes[] = {
    [TW_REDIS_STRING] = {"GET", "the key is missing", "the key holds no number"},
    [TW_REDIS_HASH] = {"HGET", "the field is missing", "the field holds no number"},
    [TW_REDIS_ZSET] = {"ZSCORE", "the member is missing", "the member's score is no whole number within 2^53"}};

static uint32_t shape_of(const struct totals *totals) {
    return totals->servers->audit->options->redis_shape;
}

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Decodes \t \n \\ \xHH in place. Returns false if there is a backslash before any other character. */
static bool unescape(char *key, size_t *size) {
    twi_check(size != NULL);
    size_t used = 0;
    for (size_t i = 0; i < *size; i++) {
        if (key[i] != '\\') {
            key[used++] = key[i];
            continue;
        }
        char letter = ++i < *size ? key[i] : '\0';
        if (letter == 't' || letter == 'n' || letter == '\\') {
            key[used++] = (char)(letter == 't' ? '\t' : letter == 'n' ? '\n' : '\\');
            continue;
        }
        if (letter != 'x' || *size - i < 3 || hex_value(key[i + 1]) < 0 || hex_value(key[i + 2]) < 0) return false;
        key[used++] = (char)(hex_value(key[i + 1]) << 4 | hex_value(key[i + 2]));
        i += 2;
    }
    *size = used;
    return true;
}

/* Reads key<TAB>count. Returns the error of the line, or NULL. */
static const char *parse_line(char *line, size_t size, tw_key *key, int64_t *count) {
    char *tab = memchr(line, '\t', size), *end = NULL;
    if (size && line[size - 1] == '\r') line[--size] = '\0';
    if (!tab || memchr(line, '\0', size)) return "no key<TAB>count";
    if (memchr(tab + 1, '\t', size - (size_t)(tab + 1 - line))) return "more than two columns";
    size_t key_size = (size_t)(tab - line);
    if (key_size == 0) return "an empty key";
    bool digits = tab[1] == '-' ? tab[2] >= '0' && tab[2] <= '9' : tab[1] >= '0' && tab[1] <= '9';
    errno = 0;
    *count = strtoll(tab + 1, &end, 10);
    if (!digits || end != line + size || errno) return "the count is no whole number";
    if (!unescape(line, &key_size)) return "a backslash that is none of \\t \\n \\\\ \\xHH";
    *key = (tw_key){line, key_size};
    return NULL;
}

/* Splits a key into its part in the name and its part in the value, as the engine does (redis_shape.h). Returns NULL,
 * or the error of the key. */
static const char *split_key(const tw_audit_options *options, tw_key key, tw_key *subject, tw_key *inner) {
    const char *bytes = key.data;
    *subject = *inner = tw_bytes(bytes, 0);
    if (options->redis_shape == TW_REDIS_STRING) *subject = key;
    if (options->redis_shape == TW_REDIS_ZSET) *inner = key;
    if (options->redis_shape != TW_REDIS_HASH) return NULL;
    size_t at = key.size;
    while (at > 0 && bytes[at - 1] != options->key_separator) at--;
    if (at <= 1 || at == key.size) return "the key is no subject, separator and field";
    *subject = tw_bytes(bytes, at - 1);
    *inner = tw_bytes(bytes + at, key.size - at);
    return NULL;
}

static void add_tag(struct twi_bytes *bytes, uint64_t tags, tw_key key) {
    char digits[TWI_KEY_SLOT_TAG_DIGITS];
    uint32_t count = (uint32_t)tags, group = twi_key_slot_crc16(key.data, key.size) % count;
    twi_bytes_add(bytes, digits, twi_key_slot_decimal(twi_key_slot_tags(count)[group], digits));
}

static void add_name(struct totals *totals, const tw_audit_options *options, tw_key key) {
    const char *template = options->totals_name;
    struct twi_bytes *bytes = &totals->names->bytes;
    for (; *template; template ++) {
        if (*template != '%')
            twi_bytes_add(bytes, template, 1);
        else if (*++template == 'k')
            twi_bytes_add(bytes, key.data, key.size);
        else if (*template == 't')
            add_tag(bytes, options->redis_tags, key);
        else
            twi_bytes_add(bytes, "%", 1);
    }
    twi_audit_names_end(totals->names);
}

static tw_key inner_at(const void *ctx, size_t i) {
    const struct totals *totals = ctx;
    size_t begin = i ? totals->inner_ends[i - 1] : 0;
    return tw_bytes(totals->inner.data ? totals->inner.data + begin : "", totals->inner_ends[i] - begin);
}

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

#define EXPONENT_MAX 400 /* larger than any exponent of a double */

/* The score of a counter is a whole number within 2^53. A later Redis writes some as 5e+15 or 4.6e+15. This is done by
 * hand, because the point of strtod() depends on the host's locale. */
static bool read_score(const struct twi_node *reply, int64_t *value) {
    if (reply->type != TWI_NODE_STRING) return false;
    const char *text = reply->text + (reply->text[0] == '-');
    int64_t digits = 0;
    long zeros = 0; /* to be appended */
    bool is_fraction = false;
    if (!is_digit(*text)) return false;
    for (; is_digit(*text) || (*text == '.' && !is_fraction); text++) {
        if (*text == '.') {
            is_fraction = true;
            continue;
        }
        if (digits > TW_DELTA_MAX) return false;
        digits = digits * 10 + (*text - '0');
        zeros -= is_fraction;
    }
    if (*text == 'e') {
        char *end = NULL;
        long exponent = strtol(text + 1, &end, 10);
        if (exponent < -EXPONENT_MAX || exponent > EXPONENT_MAX) return false;
        zeros += exponent;
        text = end;
    }
    for (; zeros > 0 && digits != 0 && digits <= TW_DELTA_MAX; zeros--) digits *= 10;
    for (; zeros < 0 && digits % 10 == 0 && digits != 0; zeros++) digits /= 10;
    if (text != reply->text + reply->size || digits > TW_DELTA_MAX || (zeros != 0 && digits != 0)) return false;
    *value = reply->text[0] == '-' ? -digits : digits;
    return true;
}

static void take_count(void *ctx, size_t i, tw_key name, const struct twi_node *reply, size_t count) {
    const struct totals *totals = ctx;
    const struct twi_audit *audit = totals->servers->audit;
    const struct shape *shape = &shapes[shape_of(totals)];
    tw_finding finding = {.name = name, .inner = inner_at(totals, i), .expected = totals->counts[i]};
    (void)count;
    bool is_there = reply->type != TWI_NODE_NIL;
    bool is_score = shape_of(totals) == TW_REDIS_ZSET;
    bool is_count = is_score ? read_score(reply, &finding.found) : twi_node_i64(reply, &finding.found);
    if (is_there && !is_count) {
        finding.kind = TW_AUDIT_NO_COUNT;
        finding.found = 0;
        finding.text = reply->type == TWI_NODE_ERROR ? reply->text : shape->no_number;
        twi_audit_find_whole(audit, &finding);
    } else if (finding.found != finding.expected) {
        finding.kind = TW_AUDIT_TOTAL;
        finding.text = is_there ? "the counts differ" : shape->missing;
        twi_audit_find_whole(audit, &finding);
    }
}

static void compare(struct totals *totals) {
    struct twi_audit_question question = {.command = shapes[shape_of(totals)].command,
                                          .inner = shape_of(totals) == TW_REDIS_STRING ? NULL : inner_at,
                                          .may_refuse = true,
                                          .take = take_count,
                                          .ctx = totals};
    if (totals->names->bytes.failed || totals->inner.failed)
        twi_audit_servers_fail(totals->servers, TW_ERR_MEMORY, "audit", "no memory");
    twi_audit_servers_ask(totals->servers, totals->names, &question);
    twi_audit_names_empty(totals->names);
    totals->inner.size = 0;
}

static void take_line(struct totals *totals, char *line, size_t size) {
    const struct twi_audit *audit = totals->servers->audit;
    static const tw_key none = {"", 0};
    char text[600];
    size_t i = totals->names->count;
    tw_key key, subject, inner;
    totals->line++;
    audit->report->lines++;
    const char *wrong = parse_line(line, size, &key, &totals->counts[i]);
    if (!wrong) wrong = split_key(audit->options, key, &subject, &inner);
    if (wrong) {
        snprintf(text, sizeof text, "%.400s:%" PRIu64 ": %s", audit->options->totals_path, totals->line, wrong);
        twi_audit_find(audit, TW_AUDIT_LINE, none, 0, 0, text);
        return;
    }
    twi_bytes_add(&totals->inner, inner.data, inner.size);
    totals->inner_ends[i] = totals->inner.size;
    add_name(totals, audit->options, subject);
    if (totals->names->count == TWI_AUDIT_PAGE) compare(totals);
}

static void compare_file(struct totals *totals, FILE *file) {
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    while (twi_audit_servers_any(totals->servers) && (size = getline(&line, &room, file)) >= 0) {
        if (size && line[size - 1] == '\n') line[--size] = '\0';
        take_line(totals, line, (size_t)size);
    }
    if (ferror(file)) twi_audit_servers_fail(totals->servers, TW_ERR_OPTIONS, "totals_path", "cannot be read");
    compare(totals);
    free(line);
}

void twi_audit_totals_look(struct twi_audit_servers *servers, struct twi_audit_names *names) {
    const tw_audit_options *options = servers->audit->options;
    if (!twi_audit_servers_any(servers) || !options->totals_path) return;
    FILE *file = fopen(options->totals_path, "re");
    struct totals *totals = calloc(1, sizeof *totals);
    if (!file)
        twi_audit_servers_fail(servers, TW_ERR_OPTIONS, "totals_path", strerror(errno));
    else if (!totals)
        twi_audit_servers_fail(servers, TW_ERR_MEMORY, "audit", "no memory");
    if (file && totals) {
        totals->servers = servers;
        totals->names = names;
        twi_audit_names_empty(names);
        compare_file(totals, file);
    }
    if (file) fclose(file);
    if (totals) twi_bytes_free(&totals->inner);
    free(totals);
}
