/* audit.c -- what Redis holds, compared with what it should: see tw_audit() in the header.
 *
 * A connection of its own, one question at a time or a pipeline of a page, each answer within its deadline; whoever
 * calls waits. The engine's own connection goes on beside it.
 * Always true: only commands that read are sent: AUTH SELECT INFO SCAN HGETALL HMGET PTTL GET. */
#include "sync/audit.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/port/services.h"
#include "sync/message/state.h"

#define PAGE 500u /* keys a SCAN or a pipeline: some 100 us of Redis's time */

#define STOP_MS 50 /* how soon a waiting audit sees that its engine is being closed */

/* A page of SCAN, or a ledger; one long value among them. */
static const struct twi_wire_limits limits = {.bytes_max = 8u << 20, .nodes_max = 65536, .depth_max = 3};

struct connection {
    const struct twi_audit *audit;
    struct twi_url url;
    struct twi_socket *link;
    struct twi_reader *reader;
    struct twi_bytes out;
    tw_status status; /* once it is not TW_OK nothing more is asked */
};

/* Names, one after the other. */
struct names {
    struct twi_bytes bytes;
    size_t ends[PAGE * 20]; /* SCAN may return more than it was asked for */
    size_t count;
};

/* ---- saying ------------------------------------------------------------------------------------------------------ */

static void fail(struct connection *connection, tw_status status, const char *what, const char *detail) {
    const tw_audit_options *options = connection->audit->options;
    if (connection->status != TW_OK) return;
    connection->status = status;
    if (options->error_text && options->error_size)
        snprintf(options->error_text, options->error_size, "%s: %s", what, detail);
    (void)twi_refuse_with(status, "%s: %s", what, detail);
}

static void find(struct connection *connection, int kind, tw_key name, int64_t expected, int64_t found,
                 const char *text) {
    const struct twi_audit *audit = connection->audit;
    tw_finding finding = {.kind = kind, .name = name, .expected = expected, .found = found, .text = text};
    audit->report->findings++;
    if (audit->found) audit->found(audit->ctx, &finding);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static void await(struct connection *connection, bool to_write, int64_t ms) {
    bool connecting = false;
    struct pollfd fd = {.fd = twi_socket_transport.fd(connection->link, &connecting),
                        .events = to_write || connecting ? POLLOUT : POLLIN};
    (void)poll(&fd, fd.fd >= 0, (int)(fd.fd < 0 && ms > 10 ? 10 : ms)); /* a look-up has no descriptor */
}

static bool time_is_up(struct connection *connection, int64_t deadline_ms, int64_t *left_ms) {
    *left_ms = deadline_ms - connection->audit->mono_ms();
    if (!connection->audit->goes_on(connection->audit->engine))
        fail(connection, TW_ERR_CLOSED, "audit", "the engine is being closed");
    if (connection->status != TW_OK) return true;
    if (*left_ms > STOP_MS) *left_ms = STOP_MS;
    if (*left_ms > 0) return false;
    fail(connection, TW_ERR_TIMEOUT, "Redis", "no answer in time");
    return true;
}

static void send_out(struct connection *connection) {
    int64_t deadline_ms = connection->audit->mono_ms() + connection->audit->options->timeout_ms, left_ms;
    if (connection->out.failed) fail(connection, TW_ERR_MEMORY, "audit", "no memory");
    for (size_t at = 0; connection->status == TW_OK && at < connection->out.size;) {
        ssize_t sent =
            twi_socket_transport.send(connection->link, connection->out.data + at, connection->out.size - at);
        if (sent < 0) fail(connection, TW_ERR_REDIS, "Redis", twi_socket_transport.why(connection->link));
        if (sent > 0) at += (size_t)sent;
        if (sent == 0 && !time_is_up(connection, deadline_ms, &left_ms)) await(connection, true, left_ms);
    }
    twi_bytes_wipe(&connection->out); /* a password */
}

/* The next answer; NULL: none came (talk->status says why), or `may_refuse` is false and it was an error. */
static const struct twi_node *hear(struct connection *connection, bool may_refuse, size_t *count) {
    const struct twi_node *nodes = NULL;
    char chunk[16384];
    int64_t deadline_ms = connection->audit->mono_ms() + connection->audit->options->timeout_ms, left_ms;
    while (connection->status == TW_OK) {
        enum twi_wire wire = twi_reader_next(connection->reader, &nodes, count);
        if (wire == TWI_WIRE_DONE && nodes->type == TWI_NODE_ERROR && !may_refuse)
            fail(connection, TW_ERR_REDIS, "Redis refuses", nodes->text);
        else if (wire == TWI_WIRE_DONE)
            return nodes;
        if (wire == TWI_WIRE_BAD) fail(connection, TW_ERR_REDIS, "Redis", "not its protocol");
        if (connection->status != TW_OK || time_is_up(connection, deadline_ms, &left_ms)) break;
        ssize_t got = twi_socket_transport.recv(connection->link, chunk, sizeof chunk);
        if (got < 0) fail(connection, TW_ERR_REDIS, "Redis", twi_socket_transport.why(connection->link));
        if (got > 0 && !twi_reader_feed(connection->reader, chunk, (size_t)got))
            fail(connection, TW_ERR_REDIS, "Redis", "an answer too long");
        if (got == 0) await(connection, false, left_ms);
    }
    return NULL;
}

static void put_words(struct connection *connection, size_t count, const char *const *words) {
    twi_wire_begin(&connection->out, count);
    for (size_t i = 0; i < count; i++) twi_wire_put_text(&connection->out, words[i]);
}

static void put_of_key(struct connection *connection, const char *word, tw_key name) {
    twi_wire_begin(&connection->out, 2);
    twi_wire_put_text(&connection->out, word);
    twi_wire_put(&connection->out, name.data, name.size);
}

/* ---- a connection ------------------------------------------------------------------------------------------------ */

static void log_in(struct connection *connection) {
    char password[1024] = "";
    const struct twi_audit *audit = connection->audit;
    size_t count;
    if (audit->password) {
        int size = audit->password(audit->password_ctx, password, sizeof password);
        if (size < 0 || (size_t)size >= sizeof password)
            fail(connection, TW_ERR_REDIS, "password", "the callback failed");
    } else if (connection->url.has_password)
        memcpy(password, connection->url.password, sizeof password);
    const char *words[] = {"AUTH", connection->url.user, password};
    if (connection->status == TW_OK && password[0]) {
        const char *without_user[] = {"AUTH", password};
        put_words(connection, connection->url.user[0] ? 3 : 2, connection->url.user[0] ? words : without_user);
        send_out(connection);
        const struct twi_node *answer = hear(connection, true, &count);
        if (answer && answer->type == TWI_NODE_ERROR) fail(connection, TW_ERR_REDIS, "Redis", "refuses the login");
    }
    explicit_bzero(password, sizeof password);
}

static void choose_database(struct connection *connection) {
    char number[16];
    size_t count;
    if (connection->status != TW_OK || connection->url.db == 0) return;
    snprintf(number, sizeof number, "%u", connection->url.db);
    put_words(connection, 2, (const char *[]){"SELECT", number});
    send_out(connection);
    (void)hear(connection, false, &count);
}

static void open_connection(struct connection *connection) {
    int64_t deadline_ms = connection->audit->mono_ms() + 10 * (int64_t)connection->audit->options->timeout_ms, left_ms;
    connection->link = twi_socket_create(&connection->url, true);
    connection->reader = twi_reader_create(&limits);
    if (!connection->link || !connection->reader) fail(connection, TW_ERR_MEMORY, "audit", "no memory");
    while (connection->status == TW_OK) {
        int done =
            twi_socket_transport.connect(connection->link, &connection->url, connection->audit->mono_ms(), deadline_ms);
        if (done > 0) break;
        if (done < 0)
            fail(connection, TW_ERR_REDIS, "Redis", twi_socket_transport.why(connection->link));
        else if (!time_is_up(connection, deadline_ms, &left_ms))
            await(connection, true, left_ms);
    }
    if (connection->status == TW_OK) log_in(connection);
    choose_database(connection);
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

static void look_at_memory(struct connection *connection) {
    static const tw_key none = {"", 0};
    tw_audit_report *report = connection->audit->report;
    char policy[64] = "", text[160];
    size_t count;
    put_words(connection, 1, (const char *[]){"INFO"});
    send_out(connection);
    const struct twi_node *info = hear(connection, true, &count);
    if (!info || info->type != TWI_NODE_STRING) return; /* forbidden: the report says -1 */
    report->memory_used = info_number(info, "used_memory");
    report->memory_max = info_number(info, "maxmemory");
    report->evicted = info_number(info, "evicted_keys");
    if (info_text(info, "maxmemory_policy", policy, sizeof policy) && strcmp(policy, "noeviction") != 0) {
        snprintf(text, sizeof text, "Redis may evict counters before their time (maxmemory-policy %s)", policy);
        find(connection, TW_AUDIT_MEMORY, none, 0, 0, text);
    }
    if (report->evicted > 0) find(connection, TW_AUDIT_MEMORY, none, 0, report->evicted, "Redis has evicted keys");
    if (report->memory_max > 0 && report->memory_used > report->memory_max / 10 * 9)
        find(connection, TW_AUDIT_MEMORY, none, report->memory_max, report->memory_used, "Redis is nearly full");
}

/* ---- pages of names ---------------------------------------------------------------------------------------------- */

static tw_key name_at(const struct names *names, size_t i) {
    size_t begin = i ? names->ends[i - 1] : 0;
    return (tw_key){names->bytes.data + begin, names->ends[i] - begin};
}

static void names_add(struct names *names, const char *text, size_t size) {
    twi_bytes_add(&names->bytes, text, size);
    names->ends[names->count++] = names->bytes.size;
}

/* The next page of SCAN; `cursor` becomes "0" with the last one. */
static void scan(struct connection *connection, const char *pattern, char cursor[24], struct names *names) {
    char page[16];
    size_t count;
    snprintf(page, sizeof page, "%u", PAGE);
    put_words(connection, 6, (const char *[]){"SCAN", cursor, "MATCH", pattern, "COUNT", page});
    send_out(connection);
    names->count = names->bytes.size = 0;
    const struct twi_node *nodes = hear(connection, false, &count);
    if (!nodes) return;
    if (count < 3 || nodes[1].type != TWI_NODE_STRING || nodes[1].size >= 24 || nodes[2].type != TWI_NODE_ARRAY ||
        count - 3 > sizeof names->ends / sizeof *names->ends) {
        fail(connection, TW_ERR_REDIS, "Redis", "an answer to SCAN that is not understood");
        return;
    }
    memcpy(cursor, nodes[1].text, nodes[1].size + 1);
    for (size_t i = 3; i < count; i++) names_add(names, nodes[i].text ? nodes[i].text : "", nodes[i].size);
    if (names->bytes.failed) fail(connection, TW_ERR_MEMORY, "audit", "no memory");
}

/* Shows every page of a pattern, until `keys_max` names were seen. */
static void each_page(struct connection *connection, const char *pattern, struct names *names, uint64_t *seen,
                      void (*look)(struct connection *connection, const struct names *names)) {
    char cursor[24] = "0";
    do {
        scan(connection, pattern, cursor, names);
        if (connection->status != TW_OK) return;
        *seen += names->count;
        look(connection, names);
        if (*seen >= connection->audit->options->keys_max && strcmp(cursor, "0") != 0) {
            connection->audit->report->cut_off = 1;
            return;
        }
    } while (connection->status == TW_OK && strcmp(cursor, "0") != 0);
}

static void look_at_expiries(struct connection *connection, const struct names *names) {
    size_t count;
    for (size_t i = 0; i < names->count; i++) put_of_key(connection, "PTTL", name_at(names, i));
    if (names->count) send_out(connection);
    for (size_t i = 0; i < names->count; i++) {
        const struct twi_node *ttl = hear(connection, false, &count);
        if (!ttl) return;
        if (ttl->type == TWI_NODE_INTEGER && ttl->integer == -1)
            find(connection, TW_AUDIT_NO_EXPIRY, name_at(names, i), 0, 0, "the key has no expiry");
    }
}

/* ---- ledgers ----------------------------------------------------------------------------------------------------- */

static bool is_whole(const struct twi_node *batch) { /* "number nonce +failures" */
    return strstr(batch->text, " +") != NULL;
}

static void look_at_ledger(struct connection *connection, tw_key name, const struct twi_node *nodes, size_t count) {
    bool known = false;
    for (size_t i = 1; i + 1 < count; i += 2) {
        const struct twi_node *field = &nodes[i], *value = &nodes[i + 1];
        if (field->type != TWI_NODE_STRING || value->type != TWI_NODE_STRING || field->size != 1) continue;
        if (field->text[0] == 'v') known = strcmp(value->text, "1") == 0;
        if (field->text[0] >= '0' && field->text[0] <= '7' && !is_whole(value))
            find(connection, TW_AUDIT_LEDGER, name, 0, strtoll(value->text, NULL, 10),
                 "a batch was cut short: some of it may not have been counted");
    }
    if (!known) find(connection, TW_AUDIT_LEDGER, name, 0, 0, "a ledger of another version, or none at all");
}

static void look_at_ledgers(struct connection *connection, const struct names *names) {
    size_t count;
    for (size_t i = 0; i < names->count; i++) put_of_key(connection, "HGETALL", name_at(names, i));
    if (names->count) send_out(connection);
    for (size_t i = 0; i < names->count; i++) {
        const struct twi_node *nodes = hear(connection, true, &count);
        if (!nodes) return;
        if (nodes->type == TWI_NODE_ARRAY && nodes->integer == 0) continue; /* it ended between the two questions */
        look_at_ledger(connection, name_at(names, i), nodes, count);
    }
    look_at_expiries(connection, names);
}

/* Our own: it may be ahead of what we knew when we were asked, never behind, and never with less in its sums. */
static void look_at_own(struct connection *connection) {
    const struct twi_audit_own *own = &connection->audit->own;
    tw_key name = {own->ledger, strlen(own->ledger)};
    uint64_t reported[3];
    size_t count;
    if (connection->status != TW_OK || name.size == 0) return;
    put_words(connection, 5, (const char *[]){"HMGET", own->ledger, "n", "p", "m"});
    send_out(connection);
    const struct twi_node *nodes = hear(connection, false, &count);
    if (!nodes) return;
    for (size_t i = 0; i < 3; i++)
        if (count != 4 || !twi_node_u64(&nodes[1 + i], &reported[i])) {
            find(connection, TW_AUDIT_LEDGER, name, (int64_t)own->number, 0, "our ledger is gone");
            return;
        }
    bool same = reported[0] == own->number;
    if (reported[0] < own->number)
        find(connection, TW_AUDIT_LEDGER, name, (int64_t)own->number, (int64_t)reported[0], "our ledger went back");
    else if (same ? reported[1] != own->plus : reported[1] < own->plus)
        find(connection, TW_AUDIT_LEDGER, name, (int64_t)own->plus, (int64_t)reported[1],
             "our ledger's sum of additions differs");
    else if (same ? reported[2] != own->minus : reported[2] < own->minus)
        find(connection, TW_AUDIT_LEDGER, name, (int64_t)own->minus, (int64_t)reported[2],
             "our ledger's sum of subtractions differs");
}

/* ---- a file of totals -------------------------------------------------------------------------------------------- */

struct totals {
    struct names names;
    int64_t counts[PAGE];
    uint64_t line;
};

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* \t \n \\ \xHH, in place. False: a backslash before anything else. */
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

/* What is wrong with the line; NULL: nothing. */
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

static void add_name(struct totals *totals, const char *template, tw_key key) {
    struct twi_bytes *bytes = &totals->names.bytes;
    for (; *template; template ++) {
        if (*template != '%')
            twi_bytes_add(bytes, template, 1);
        else if (*++template == 'k')
            twi_bytes_add(bytes, key.data, key.size);
        else
            twi_bytes_add(bytes, "%", 1);
    }
    totals->names.ends[totals->names.count++] = bytes->size;
}

static void compare(struct connection *connection, struct totals *totals) {
    struct names *names = &totals->names;
    size_t count;
    if (names->bytes.failed) fail(connection, TW_ERR_MEMORY, "audit", "no memory");
    for (size_t i = 0; i < names->count && connection->status == TW_OK; i++)
        put_of_key(connection, "GET", name_at(names, i));
    if (names->count && connection->status == TW_OK) send_out(connection);
    for (size_t i = 0; i < names->count; i++) {
        const struct twi_node *node = hear(connection, true, &count);
        int64_t value = 0;
        if (!node) break;
        if (node->type != TWI_NODE_NIL && !twi_node_i64(node, &value))
            find(connection, TW_AUDIT_NO_COUNT, name_at(names, i), totals->counts[i], 0,
                 node->type == TWI_NODE_ERROR ? node->text : "the key holds no number");
        else if (value != totals->counts[i])
            find(connection, TW_AUDIT_TOTAL, name_at(names, i), totals->counts[i], value,
                 node->type == TWI_NODE_NIL ? "the key is missing" : "the counts differ");
    }
    names->count = names->bytes.size = 0;
}

static void take_line(struct connection *connection, struct totals *totals, char *line, size_t size) {
    const tw_audit_options *options = connection->audit->options;
    static const tw_key none = {"", 0};
    char text[600];
    tw_key key;
    totals->line++;
    connection->audit->report->lines++;
    const char *wrong = parse_line(line, size, &key, &totals->counts[totals->names.count]);
    if (wrong) {
        snprintf(text, sizeof text, "%.400s:%" PRIu64 ": %s", options->totals_path, totals->line, wrong);
        find(connection, TW_AUDIT_LINE, none, 0, 0, text);
        return;
    }
    add_name(totals, options->totals_name, key);
    if (totals->names.count == PAGE) compare(connection, totals);
}

static void look_at_totals(struct connection *connection) {
    const tw_audit_options *options = connection->audit->options;
    if (connection->status != TW_OK || !options->totals_path) return;
    FILE *file = fopen(options->totals_path, "re");
    struct totals *totals = file ? calloc(1, sizeof *totals) : NULL;
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    if (!file) fail(connection, TW_ERR_OPTIONS, "totals_path", strerror(errno));
    if (file && !totals) fail(connection, TW_ERR_MEMORY, "audit", "no memory");
    while (connection->status == TW_OK && (size = getline(&line, &room, file)) >= 0) {
        if (size && line[size - 1] == '\n') line[--size] = '\0';
        take_line(connection, totals, line, (size_t)size);
    }
    if (connection->status == TW_OK && ferror(file)) fail(connection, TW_ERR_OPTIONS, "totals_path", "cannot be read");
    if (connection->status == TW_OK) compare(connection, totals);
    free(line);
    if (totals) twi_bytes_free(&totals->names.bytes);
    free(totals);
    if (file) fclose(file);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void look_at_names(struct connection *connection) {
    const struct twi_audit *audit = connection->audit;
    char pattern[1200];
    const char *prefix = audit->options->redis_prefix ? audit->options->redis_prefix : "";
    struct names *names = calloc(1, sizeof *names);
    if (!names) fail(connection, TW_ERR_MEMORY, "audit", "no memory");
    size_t used = 0;
    for (; *prefix && used + 40 < sizeof pattern; prefix++) {
        if (strchr("*?[]\\", *prefix)) pattern[used++] = '\\';
        pattern[used++] = *prefix;
    }
    snprintf(pattern + used, sizeof pattern - used, "tw:ledger:*");
    if (connection->status == TW_OK) each_page(connection, pattern, names, &audit->report->ledgers, look_at_ledgers);
    for (size_t i = 0; i < audit->pattern_count && connection->status == TW_OK; i++)
        each_page(connection, audit->patterns[i], names, &audit->report->keys, look_at_expiries);
    if (names) twi_bytes_free(&names->bytes);
    free(names);
}

tw_status twi_audit_run(const struct twi_audit *audit) {
    const tw_audit_options *options = audit->options;
    struct connection connection = {.audit = audit, .status = TW_OK};
    char why[TWI_URL_ERROR_MAX];
    if (!twi_url_parse(options->redis_url, &connection.url, why, sizeof why)) {
        if (options->error_text && options->error_size) snprintf(options->error_text, options->error_size, "%s", why);
        return twi_refuse_with(TW_ERR_OPTIONS, "%s", why);
    }
    open_connection(&connection);
    if (connection.status == TW_OK) look_at_memory(&connection);
    look_at_own(&connection);
    if (connection.status == TW_OK) look_at_names(&connection);
    look_at_totals(&connection);
    if (connection.link) {
        twi_socket_transport.close(connection.link);
        twi_socket_destroy(connection.link);
    }
    twi_reader_free(connection.reader);
    twi_bytes_free(&connection.out);
    twi_url_wipe(&connection.url);
    return connection.status;
}
