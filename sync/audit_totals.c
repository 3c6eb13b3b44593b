/* audit_totals.c -- see audit_totals.h. */
#include "sync/audit_totals.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lines until a page of them is compared. */
struct totals {
    struct twi_audit_servers *servers;
    struct twi_audit_names *names;
    int64_t counts[TWI_AUDIT_PAGE];
    uint64_t line;
};

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Decodes \t \n \\ \xHH in place. False: a backslash before anything else. */
static bool unescape(char *key, size_t *size) {
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

/* Reads key<TAB>count. Returns what is wrong with the line, or NULL. */
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

static void put_get(void *ctx, struct twi_bytes *out, tw_key name) {
    (void)ctx;
    twi_wire_begin(out, 2);
    twi_wire_put_text(out, "GET");
    twi_wire_put(out, name.data, name.size);
}

static void take_count(void *ctx, size_t i, tw_key name, const struct twi_node *reply, size_t count) {
    const struct totals *totals = ctx;
    int64_t value = 0;
    (void)count;
    if (reply->type != TWI_NODE_NIL && !twi_node_i64(reply, &value))
        twi_audit_find(totals->servers->audit, TW_AUDIT_NO_COUNT, name, totals->counts[i], 0,
                       reply->type == TWI_NODE_ERROR ? reply->text : "the key holds no number");
    else if (value != totals->counts[i])
        twi_audit_find(totals->servers->audit, TW_AUDIT_TOTAL, name, totals->counts[i], value,
                       reply->type == TWI_NODE_NIL ? "the key is missing" : "the counts differ");
}

static void compare(struct totals *totals) {
    struct twi_audit_question question = {.put = put_get, .may_refuse = true, .take = take_count, .ctx = totals};
    if (totals->names->bytes.failed) twi_audit_servers_fail(totals->servers, TW_ERR_MEMORY, "audit", "no memory");
    twi_audit_servers_ask(totals->servers, totals->names, &question);
    twi_audit_names_empty(totals->names);
}

static void take_line(struct totals *totals, char *line, size_t size) {
    const struct twi_audit *audit = totals->servers->audit;
    static const tw_key none = {"", 0};
    char text[600];
    tw_key key;
    totals->line++;
    audit->report->lines++;
    const char *wrong = parse_line(line, size, &key, &totals->counts[totals->names->count]);
    if (wrong) {
        snprintf(text, sizeof text, "%.400s:%" PRIu64 ": %s", audit->options->totals_path, totals->line, wrong);
        twi_audit_find(audit, TW_AUDIT_LINE, none, 0, 0, text);
        return;
    }
    add_name(totals, audit->options, key);
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
    free(totals);
}
