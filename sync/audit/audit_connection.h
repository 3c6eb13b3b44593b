/* audit_connection.h -- one connection of an audit. It sends one command at a time, or a pipeline of a page, and each
 * reply has a deadline. The caller waits.
 * Always true: after the first failure no more is sent, and `status` and `error` describe the failure. */
#ifndef TWI_SYNC_AUDIT_CONNECTION_H
#define TWI_SYNC_AUDIT_CONNECTION_H

#include "engine/port/driver.h"
#include "sync/wire/resolver.h"

struct twi_audit_connection {
    const struct twi_audit *audit;
    const struct twi_where *where;
    struct twi_resolver *resolver; /* NULL means that the endpoint is given */
    struct twi_endpoint endpoint;
    void *link;
    struct twi_reader *reader;
    struct twi_bytes out;
    tw_status status; /* once it is not TW_OK, no command is sent any more */
    char error[256];
};

/* The first failure stays. */
void twi_audit_fail(struct twi_audit_connection *connection, tw_status status, const char *what, const char *detail);
/* Connects to the one Redis, or to the master that the sentinels name, and logs in; `audit` and `where` are set, all
 * else is zero. */
void twi_audit_open(struct twi_audit_connection *connection);
/* Connects to `endpoint`, a node of a cluster, and logs in; `audit`, `where` and `endpoint` are set, all
 * otherwise is zero. If `must_be_master` is true, a server that is no master is refused. */
void twi_audit_open_node(struct twi_audit_connection *connection, bool must_be_master);
void twi_audit_close(struct twi_audit_connection *connection); /* also one that was never opened */

/* Puts a command into `out`. */
void twi_audit_put_words(struct twi_audit_connection *connection, size_t count, const char *const *words);
void twi_audit_send(struct twi_audit_connection *connection); /* sends `out`, and empties it */
/* Returns the next reply, or NULL if none came (`status` has the reason) or it was an error and may_refuse is false. */
const struct twi_node *twi_audit_hear(struct twi_audit_connection *connection, bool may_refuse, size_t *count);

#endif
