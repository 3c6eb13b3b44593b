/* resolver.h -- finds the endpoint of Redis. A resolver answers with an endpoint, or with "not yet". Each connection
 * has a separate resolver: the engine's connection, the link of calls that wait, an audit.
 *
 * There are two kinds. One has the fixed endpoint of a URL, the other finds the master that sentinels name
 * (sentinel.h). Always true: no call waits. One thread at a time uses a resolver. A resolver only names an endpoint.
 * The caller decides how often to try, and checks whether the server there is a master. */
#ifndef TWI_SYNC_WIRE_RESOLVER_H
#define TWI_SYNC_WIRE_RESOLVER_H

#include "sync/wire/sentinel.h"

struct twi_resolver;

/* Returns NULL if there is no memory. */
struct twi_resolver *twi_resolver_create(const struct twi_resolver_rules *rules);
/* For one node of a cluster, which never moves. Returns NULL if there is no memory. */
struct twi_resolver *twi_resolver_create_at(const struct twi_endpoint *endpoint);
void twi_resolver_destroy(struct twi_resolver *resolver); /* NULL is harmless */
void twi_resolver_abandon(struct twi_resolver *resolver); /* in a forked child. NULL is harmless */

/* Returns the fixed endpoint of Redis; NULL if Redis may move. */
const struct twi_endpoint *twi_resolver_fixed(const struct twi_resolver *resolver);
bool twi_resolver_may_move(const struct twi_resolver *resolver);

/* Begins to look for the endpoint of a new connection, or continues. */
enum twi_resolved twi_resolver_ask(struct twi_resolver *resolver, int64_t now_ms, struct twi_endpoint *endpoint,
                                   int64_t *again_ms);
/* Returns the descriptor of the sentinel that gets the question; -1 if there is none. */
int twi_resolver_fd(const struct twi_resolver *resolver, bool *wants_write);
const char *twi_resolver_why(const struct twi_resolver *resolver); /* the last error */
/* Called if the last named endpoint was unreachable, or was no master. */
void twi_resolver_distrust(struct twi_resolver *resolver);
/* The resolver is not needed for a while. It ends its question, and leaves no descriptor in a socket set. */
void twi_resolver_rest(struct twi_resolver *resolver);

/* For an open connection. The first is to be called when it reached a master, the second in each turn from then on.
 * Returns true if Redis has moved. */
void twi_resolver_found(struct twi_resolver *resolver, int64_t now_ms);
bool twi_resolver_look(struct twi_resolver *resolver, int64_t now_ms, const struct twi_endpoint *here);
int64_t twi_resolver_look_due_ms(const struct twi_resolver *resolver, int64_t now_ms); /* INT64_MAX if never */

#endif
