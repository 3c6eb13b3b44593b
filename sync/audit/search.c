/* search.c -- looks for hashes by name and field, for tw_lease_reclaim() in a cluster (struct twi_search).
 *
 * It walks the masters as an audit does, over separate connections. Names are read page by page, and the field of each
 * name of a page is requested from the server that has the name's slot.
 * Always true: the search changes no data. If slots could not be looked at, the search ends with an error that gives
 * their number; all others were looked at. */
#include "sync/audit/search.h"

#include <stdlib.h>
#include <string.h>

#include "engine/port/services.h"
#include "sync/audit/audit_search.h"

struct looking {
    const struct twi_search *search;
    struct twi_audit_servers *servers;
    bool is_match[TWI_AUDIT_NAMES_MAX]; /* of the page */
};

/* A key of another type only looks alike. */
static void take_hget(void *ctx, size_t i, tw_key name, const struct twi_node *reply, size_t count) {
    struct looking *looking = ctx;
    (void)count;
    if (reply->type == TWI_NODE_STRING || reply->type == TWI_NODE_NIL)
        looking->is_match[i] =
            looking->search->is_wanted(looking->search->ctx, name, reply->type == TWI_NODE_STRING ? reply->text : NULL);
    if (reply->type == TWI_NODE_ERROR && !twi_node_is(reply, "WRONGTYPE"))
        twi_audit_servers_fail(looking->servers, TW_ERR_REDIS, "Redis refuses", reply->text);
}

static void look(struct twi_audit_search *walk) {
    struct looking *looking = walk->ctx;
    struct twi_audit_question question = {
        .command = "HGET", .words = {looking->search->field}, .may_refuse = true, .take = take_hget, .ctx = looking};
    memset(looking->is_match, 0, sizeof looking->is_match);
    twi_audit_servers_ask(walk->servers, walk->names, &question);
    for (size_t i = 0; i < walk->names->count && !walk->is_over; i++)
        if (looking->is_match[i])
            walk->is_over = !looking->search->found(looking->search->ctx, twi_audit_names_at(walk->names, i));
}

struct all {
    const struct twi_search *searches;
    size_t count;
};

static void search_all(struct twi_audit_servers *servers, struct twi_audit_names *names, struct looking *looking,
                       const struct all *all) {
    uint64_t seen = 0;
    struct twi_audit_search walk = {.servers = servers, .names = names, .seen = &seen, .look = look, .ctx = looking};
    looking->servers = servers;
    for (size_t i = 0; i < all->count && !walk.is_over && twi_audit_servers_any(servers); i++) {
        looking->search = &all->searches[i];
        walk.pattern = all->searches[i].pattern;
        twi_audit_search_all(&walk);
    }
}

static void work(struct twi_audit_servers *servers, void *ctx) {
    struct twi_audit_names *names = twi_audit_names_create();
    struct looking *looking = calloc(1, sizeof *looking);
    if (names && looking)
        search_all(servers, names, looking, ctx);
    else
        twi_audit_servers_fail(servers, TW_ERR_MEMORY, "search", "no memory");
    twi_audit_names_destroy(names);
    free(looking);
}

tw_status twi_search_run(const struct twi_audit *audit, const struct twi_search *searches, size_t count) {
    tw_audit_report report = {0};
    struct twi_audit with_report = *audit;
    struct all all = {searches, count};
    with_report.report = &report;
    tw_status status = twi_audit_servers_run(&with_report, work, &all);
    if (status != TW_OK || report.findings == 0) return status;
    return twi_refuse_with(TW_ERR_REDIS,
                           "Redis: incomplete: %llu keys lie at nodes that do not serve their slots; redis-cli "
                           "--cluster fix brings them home",
                           (unsigned long long)report.findings);
}
