/* audit.c -- compares the data in Redis with the expected data. See tw_audit() in tallywheel.h.
 *
 * The audit has separate connections, one to the one Redis or one to each master of a cluster. It sends one command at
 * a time, or a page of them, and each reply has a deadline. The caller waits.
 * Always true: apart from AUTH, SELECT and ASKING the audit sends only commands that read: ROLE INFO SCAN HGETALL HMGET
 * PTTL GET HGET ZSCORE, CLUSTER SLOTS, CLUSTER NODES. */
#include "sync/audit/audit.h"

#include "engine/base/check.h"
#include "engine/base/key_slot.h"
#include "sync/audit/audit_servers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- audit totals ---- */

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

/* Splits a key into its part in the name and its part in the value, as the engine does (key_template.h). Returns NULL,
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

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool info_text(const struct twi_node *info, const char *name, char *out, size_t size) {
    size_t length = strlen(name);
    for (const char *line = info->text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, name, length) != 0 || line[length] != ':') continue;
        snprintf(out, size, "%.*s", (int)strcspn(line + length + 1, "\r\n"), line + length + 1);
        return true;
    }
    return false;
}

static int64_t info_number(const struct twi_node *info, const char *name) {
    char text[32];
    return info_text(info, name, text, sizeof text) ? strtoll(text, NULL, 10) : -1;
}

/* -1 means not known. Returns the server's own figure. */
static int64_t sum_up(int64_t *sum, int64_t figure) {
    if (figure >= 0) *sum = figure + (*sum > 0 ? *sum : 0);
    return figure;
}

static void find_memory(const struct twi_audit *audit, const char *server, int64_t expected, int64_t found,
                        const char *what) {
    static const tw_key none = {"", 0};
    char text[TWI_ENDPOINT_NAME_SIZE + 200];
    snprintf(text, sizeof text, "%s%s%s", server, *server ? ": " : "", what);
    twi_audit_find(audit, TW_AUDIT_MEMORY, none, expected, found, text);
}

static void look_at_memory(const struct twi_audit *audit, struct twi_audit_server *server) {
    struct twi_audit_connection *connection = &server->connection;
    tw_audit_report *report = audit->report;
    char policy[64] = "", text[160];
    size_t count;
    twi_audit_put_words(connection, 1, (const char *[]){"INFO"});
    twi_audit_send(connection);
    const struct twi_node *info = twi_audit_hear(connection, true, &count);
    if (!info || info->type != TWI_NODE_STRING) return; /* INFO is forbidden, so the report has -1 */
    int64_t used = sum_up(&report->memory_used, info_number(info, "used_memory"));
    int64_t most = sum_up(&report->memory_max, info_number(info, "maxmemory"));
    int64_t evicted = sum_up(&report->evicted, info_number(info, "evicted_keys"));
    if (info_text(info, "maxmemory_policy", policy, sizeof policy) && strcmp(policy, "noeviction") != 0) {
        snprintf(text, sizeof text, "Redis may evict counters before their time (maxmemory-policy %s)", policy);
        find_memory(audit, server->name, 0, 0, text);
    }
    if (info_text(info, "rdb_last_bgsave_status", policy, sizeof policy) && strcmp(policy, "ok") != 0)
        find_memory(
            audit, server->name, 0, 0,
            "the last snapshot failed: Redis refuses writes (MISCONF) unless stop-writes-on-bgsave-error is no");
    if (info_text(info, "aof_last_write_status", policy, sizeof policy) && strcmp(policy, "ok") != 0)
        find_memory(audit, server->name, 0, 0,
                    "the append-only file cannot be written: Redis refuses writes (MISCONF)");
    if (evicted > 0) find_memory(audit, server->name, 0, evicted, "Redis has evicted keys");
    if (most > 0 && used > most / 10 * 9) find_memory(audit, server->name, most, used, "Redis is nearly full");
}

/* ---- expiries ---------------------------------------------------------------------------------------------------- */

static void take_pttl(void *ctx, size_t i, tw_key name, const struct twi_node *ttl, size_t count) {
    const struct twi_audit_search *search = ctx;
    (void)i, (void)count;
    if (ttl->type == TWI_NODE_INTEGER && ttl->integer == -1)
        twi_audit_find(search->servers->audit, TW_AUDIT_NO_EXPIRY, name, 0, 0, "the key has no expiry");
}

static void look_at_expiries(struct twi_audit_search *search) {
    struct twi_audit_question question = {.command = "PTTL", .take = take_pttl, .ctx = search};
    twi_audit_servers_ask(search->servers, search->names, &question);
}

/* ---- ledgers ----------------------------------------------------------------------------------------------------- */

static void look_at_ledger(const struct twi_audit *audit, tw_key name, const struct twi_node *nodes, size_t count) {
    bool known = false;
    for (size_t i = 1; i + 1 < count; i += 2) {
        const struct twi_node *field = &nodes[i], *value = &nodes[i + 1];
        if (field->type != TWI_NODE_STRING || value->type != TWI_NODE_STRING || field->size != 1) continue;
        if (field->text[0] == 'v') known = strcmp(value->text, "1") == 0;
        if (field->text[0] >= '0' && field->text[0] <= '7' && !strstr(value->text, " +")) /* "number nonce +failures" */
            twi_audit_find(audit, TW_AUDIT_LEDGER, name, 0, strtoll(value->text, NULL, 10),
                           "a batch was cut short: some of it may not have been counted");
    }
    if (!known) twi_audit_find(audit, TW_AUDIT_LEDGER, name, 0, 0, "a ledger of another version, or none at all");
}

static void take_hgetall(void *ctx, size_t i, tw_key name, const struct twi_node *nodes, size_t count) {
    const struct twi_audit_search *search = ctx;
    (void)i;
    if (nodes->type == TWI_NODE_ARRAY && nodes->integer == 0) return; /* it expired after the SCAN */
    look_at_ledger(search->servers->audit, name, nodes, count);
}

static void look_at_ledgers(struct twi_audit_search *search) {
    struct twi_audit_question question = {
        .command = "HGETALL", .may_refuse = true, .take = take_hgetall, .ctx = search};
    twi_audit_servers_ask(search->servers, search->names, &question);
    look_at_expiries(search);
}

/* A page of the engine's own ledgers. */
struct own_page {
    const struct twi_audit *audit;
    const struct twi_audit_own *own;
};

static void take_own(void *ctx, size_t at, tw_key name, const struct twi_node *nodes, size_t count) {
    const struct own_page *page = ctx;
    const struct twi_audit *audit = page->audit;
    const struct twi_audit_own *own = &page->own[at];
    uint64_t reported[3];
    for (size_t i = 0; i < 3; i++)
        if (count != 4 || !twi_node_u64(&nodes[1 + i], &reported[i])) {
            twi_audit_find(audit, TW_AUDIT_LEDGER, name, (int64_t)own->number, 0, "our ledger is gone");
            return;
        }
    bool same = reported[0] == own->number;
    if (reported[0] < own->number)
        twi_audit_find(audit, TW_AUDIT_LEDGER, name, (int64_t)own->number, (int64_t)reported[0],
                       "our ledger went back");
    else if (same ? reported[1] != own->plus : reported[1] < own->plus)
        twi_audit_find(audit, TW_AUDIT_LEDGER, name, (int64_t)own->plus, (int64_t)reported[1],
                       "our ledger's sum of additions differs");
    else if (same ? reported[2] != own->minus : reported[2] < own->minus)
        twi_audit_find(audit, TW_AUDIT_LEDGER, name, (int64_t)own->minus, (int64_t)reported[2],
                       "our ledger's sum of subtractions differs");
}

/* Compares this engine's ledgers with the engine's state at the beginning of the audit (`own`). A ledger may be ahead
 * of that, but never behind, and its sums never have less. */
static void look_at_own(struct twi_audit_servers *servers, struct twi_audit_names *names) {
    const struct twi_audit *audit = servers->audit;
    for (size_t begin = 0; begin < audit->own_count; begin += TWI_AUDIT_PAGE) {
        struct own_page page = {.audit = audit, .own = audit->own + begin};
        struct twi_audit_question question = {
            .command = "HMGET", .words = {"n", "p", "m"}, .take = take_own, .ctx = &page};
        twi_audit_names_empty(names);
        for (size_t i = begin; i < audit->own_count && i - begin < TWI_AUDIT_PAGE; i++)
            twi_audit_names_add(names, audit->own[i].ledger, strlen(audit->own[i].ledger));
        twi_audit_servers_ask(servers, names, &question);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void look_at_names(struct twi_audit_servers *servers, struct twi_audit_names *names) {
    const struct twi_audit *audit = servers->audit;
    char pattern[1200];
    const char *prefix = audit->options->redis_prefix ? audit->options->redis_prefix : "";
    twi_glob_names(prefix, "tw:ledger:*", pattern, sizeof pattern);
    struct twi_audit_search search = {.servers = servers,
                                      .names = names,
                                      .pattern = pattern,
                                      .seen = &audit->report->ledgers,
                                      .look = look_at_ledgers};
    twi_audit_search_all(&search);
    search.seen = &audit->report->keys;
    search.look = look_at_expiries;
    for (size_t i = 0; i < audit->pattern_count && twi_audit_servers_any(servers); i++) {
        search.pattern = audit->patterns[i];
        twi_audit_search_all(&search);
    }
}

static void look_at_all(struct twi_audit_servers *servers, void *ctx) {
    (void)ctx;
    struct twi_audit_names *names = twi_audit_names_create();
    if (!names) {
        twi_audit_servers_fail(servers, TW_ERR_MEMORY, "audit", "no memory");
        return;
    }
    for (uint16_t i = 0; i < servers->count; i++)
        if (twi_audit_servers_goes_on(servers, i)) look_at_memory(servers->audit, servers->all[i]);
    look_at_own(servers, names);
    look_at_names(servers, names);
    twi_audit_totals_look(servers, names);
    twi_audit_names_destroy(names);
}

tw_status twi_audit_run(const struct twi_audit *audit) {
    return twi_audit_servers_run(audit, look_at_all, NULL);
}
