/* audit.c -- compares the data in Redis with the expected data. See tw_audit() in tallywheel.h.
 *
 * The audit has separate connections, one to the one Redis or one to each master of a cluster. It sends one command at
 * a time, or a page of them, and each reply has a deadline. The caller waits.
 * Always true: apart from AUTH, SELECT and ASKING the audit sends only commands that read: ROLE INFO SCAN HGETALL HMGET
 * PTTL GET HGET ZSCORE, CLUSTER SLOTS, CLUSTER NODES. */
#include "sync/audit/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/glob.h"
#include "sync/audit/audit_search.h"
#include "sync/audit/audit_totals.h"

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
