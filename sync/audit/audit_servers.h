/* audit_servers.h -- the servers that an audit asks, and searches over all of them. They are the one Redis, or each
 * master of a cluster.
 *
 * In a cluster CLUSTER SLOTS names the masters, and each master reports which slots it serves and which are on their
 * way (cluster_nodes.h). A question about a name goes to the server of its slot, and follows MOVED and ASK. Always
 * true: no more questions go to a server that fails, but the others still get theirs. The audit then ends with an
 * error, and so it does if slots have no master, or begin to move while it looks. An audit that ends with TW_OK has
 * seen all. */
#ifndef TWI_SYNC_AUDIT_SERVERS_H
#define TWI_SYNC_AUDIT_SERVERS_H

#include "sync/audit/audit_connection.h"
#include "sync/wire/cluster_nodes.h"
#include "engine/port/driver.h"

struct twi_audit_server {
    struct twi_audit_connection connection;
    char name[TWI_ENDPOINT_NAME_SIZE]; /* of a cluster's node */
    struct twi_own_slots own;
};

/* Which server has which slot, as the servers report it themselves. */
struct twi_audit_slots {
    uint16_t owner[TWI_KEY_SLOTS]; /* a server, plus 1; 0 if no server has the slot, or if its server fails */
    struct twi_slot_set moves;
};

struct twi_audit_servers {
    const struct twi_audit *audit;
    struct twi_where where;
    bool is_cluster;
    struct twi_audit_server **all;
    uint16_t count;
    uint32_t room;
    struct twi_audit_slots slots; /* when the audit began */
    struct twi_slot_set strays;   /* slots of which a key was met on a server where clients do not look */
    uint64_t lost;                /* names for which no server could be asked */

    tw_status status; /* not TW_OK: the audit as a whole has failed */
    char error[400];
};

/* Returns false if `why` names the option that is refused. `audit` is set, all else is zero. */
bool twi_audit_servers_read(struct twi_audit_servers *servers, char *why, size_t size);
void twi_audit_servers_open(struct twi_audit_servers *servers);
/* Looks again which server has which slot. Returns how the audit ends; `error` then has the reason. */
tw_status twi_audit_servers_conclude(struct twi_audit_servers *servers);
void twi_audit_servers_close(struct twi_audit_servers *servers);
/* Does all of that, and calls `work` between the opening and the end. The error is in options->error_text, too. */
tw_status twi_audit_servers_run(const struct twi_audit *audit,
                                void (*work)(struct twi_audit_servers *servers, void *ctx), void *ctx);

/* The first failure stays. */
void twi_audit_servers_fail(struct twi_audit_servers *servers, tw_status status, const char *what, const char *detail);
/* Returns false if the server, or the audit as a whole, has failed. */
bool twi_audit_servers_goes_on(const struct twi_audit_servers *servers, uint16_t server);
bool twi_audit_servers_any(const struct twi_audit_servers *servers); /* any server continues */

/* A difference. */
void twi_audit_find(const struct twi_audit *audit, int kind, tw_key name, int64_t expected, int64_t found,
                    const char *text);
/* The same, of a field or member, too. */
void twi_audit_find_whole(const struct twi_audit *audit, const tw_finding *finding);

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* How a name relates to the server that has shown it. */
enum twi_audit_place {
    TWI_AUDIT_HERE,       /* the server has its slot */
    TWI_AUDIT_ON_ITS_WAY, /* its slot moves, so another server may show it, too */
    TWI_AUDIT_STRAY       /* another server has its slot and redirects no client here, so no client finds it */
};
enum twi_audit_place twi_audit_servers_place(struct twi_audit_servers *servers, uint16_t server, const void *name,
                                             size_t size);

#define TWI_AUDIT_WORDS_MAX 3u
/* One command about each name of a page. */
struct twi_audit_question {
    const char *command;                        /* COMMAND name WORD ... */
    const char *words[TWI_AUDIT_WORDS_MAX];     /* the words behind the name; NULL if there are fewer */
    tw_key (*inner)(const void *ctx, size_t i); /* one more word, for each name; NULL if there is none */
    bool may_refuse;                            /* false means that an error reply ends the asking of that server */
    void (*take)(void *ctx, size_t i, tw_key name, const struct twi_node *reply, size_t count);
    void *ctx;
};
/* Sends the questions, and calls `take` once for each name that has a reply. */
void twi_audit_servers_ask(struct twi_audit_servers *servers, struct twi_audit_names *names,
                           const struct twi_audit_question *question);

/* ---- audit search ----
 * walks all names that match a pattern, on the one Redis or on each master of a cluster, page by
 * page.
 *
 * Always true: a key of a slot that moves is looked at once, although two masters may show it. A key on a server
 * where no client finds it is reported (TW_AUDIT_STRAY), and is not looked at. */

struct twi_audit_search {
    struct twi_audit_servers *servers;
    struct twi_audit_names *names; /* of the page */
    const char *pattern;           /* for the MATCH of SCAN */
    uint64_t *seen;                /* names so far; the walk ends at options->keys_max, and notes that in the report */
    void (*look)(struct twi_audit_search *search); /* at a page */
    void *ctx;
    bool is_over; /* set by look() to end the walk */

    uint16_t server; /* that is searched */
    bool is_second;  /* only names whose keys are moving */
};

void twi_audit_search_all(struct twi_audit_search *search);

/* ---- search ----
 * looks for hashes by name and field, on all masters of Redis. See audit_servers.c. */

tw_status twi_search_run(const struct twi_audit *audit, const struct twi_search *searches, size_t count);

#endif
