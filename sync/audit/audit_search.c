/* audit_search.c -- see audit_search.h. */
#include "sync/audit/audit_search.h"

#include <stdio.h>
#include <string.h>

static bool is_wanted(void *ctx, tw_key name) {
    struct twi_audit_search *search = ctx;
    switch (twi_audit_servers_place(search->servers, search->server, name.data, name.size)) {
    case TWI_AUDIT_HERE: return !search->is_second;
    case TWI_AUDIT_ON_ITS_WAY: return twi_audit_names_meet(search->names, name.data, name.size);
    case TWI_AUDIT_STRAY: break;
    }
    if (!search->is_second)
        twi_audit_find(search->servers->audit, TW_AUDIT_STRAY, name, 0, 0,
                       "the key lies at a node that does not serve its slot: nobody finds it there");
    return false;
}

/* Reads the next page of SCAN. With the last page, `cursor` becomes "0". */
static void scan(struct twi_audit_search *search, char cursor[24]) {
    struct twi_audit_connection *connection = &search->servers->all[search->server]->connection;
    struct twi_audit_names *names = search->names;
    char page[16];
    size_t count;
    snprintf(page, sizeof page, "%u", TWI_AUDIT_PAGE);
    twi_audit_put_words(connection, 6, (const char *[]){"SCAN", cursor, "MATCH", search->pattern, "COUNT", page});
    twi_audit_send(connection);
    twi_audit_names_empty(names);
    const struct twi_node *nodes = twi_audit_hear(connection, false, &count);
    if (!nodes) return;
    if (count < 3 || nodes[1].type != TWI_NODE_STRING || nodes[1].size >= 24 || nodes[2].type != TWI_NODE_ARRAY ||
        count - 3 > TWI_AUDIT_NAMES_MAX) {
        twi_audit_fail(connection, TW_ERR_REDIS, "Redis", "an answer to SCAN that is not understood");
        return;
    }
    memcpy(cursor, nodes[1].text, nodes[1].size + 1);
    for (size_t i = 3; i < count; i++) twi_audit_names_add(names, nodes[i].text ? nodes[i].text : "", nodes[i].size);
    twi_audit_names_keep(names, is_wanted, search);
    if (names->bytes.failed) twi_audit_servers_fail(search->servers, TW_ERR_MEMORY, "audit", "no memory");
}

/* Looks at a server's names, until `keys_max` names were seen or look() has ended the walk. Returns false if look()
 * has ended it. */
static bool search_server(struct twi_audit_search *search) {
    const struct twi_audit *audit = search->servers->audit;
    char cursor[24] = "0";
    do {
        scan(search, cursor);
        if (!twi_audit_servers_goes_on(search->servers, search->server)) return true;
        *search->seen += search->names->count;
        search->look(search);
        if (search->is_over) return false;
        if (*search->seen >= audit->options->keys_max && strcmp(cursor, "0") != 0) {
            audit->report->cut_off = 1;
            return false;
        }
    } while (twi_audit_servers_goes_on(search->servers, search->server) && strcmp(cursor, "0") != 0);
    return true;
}

/* A key may go to a server that was searched before, from one that is searched later. So servers to which slots come
 * are searched again, for the keys of these slots that were not met. */
void twi_audit_search_all(struct twi_audit_search *search) {
    struct twi_audit_servers *servers = search->servers;
    for (int pass = 0; pass < 2; pass++)
        for (uint16_t i = 0; i < servers->count; i++) {
            if ((pass == 1 && !servers->all[i]->own.imports) || !twi_audit_servers_goes_on(servers, i)) continue;
            bool is_full = (i > 0 || pass == 1) && *search->seen >= servers->audit->options->keys_max;
            if (is_full) servers->audit->report->cut_off = 1;
            search->server = i;
            search->is_second = pass == 1;
            if (is_full || !search_server(search)) return;
        }
    twi_audit_names_forget_met(search->names);
}
