/* resolver.h -- where is Redis now? A resolver answers with an endpoint, or with "not yet". Whoever wants to connect
 * has a resolver of its own: the engine's connection, the link of calls that wait, an audit.
 *
 * Two kinds: the one server of a URL, whose endpoint is fixed; and the master that sentinels name (sentinel.h).
 * Always true: no call waits. One thread at a time uses a resolver. A resolver says where to try, and no more: how
 * often is tried is the caller's, and so is whether what is there is a master. */
#ifndef TWI_SYNC_WIRE_RESOLVER_H
#define TWI_SYNC_WIRE_RESOLVER_H

#include "sync/wire/sentinel.h"

struct twi_resolver;

/* NULL if there is no memory. */
struct twi_resolver *twi_resolver_create(const struct twi_resolver_rules *rules);
/* For one node of a cluster, which is there or nowhere. NULL if there is no memory. */
struct twi_resolver *twi_resolver_create_at(const struct twi_endpoint *endpoint);
void twi_resolver_destroy(struct twi_resolver *resolver); /* NULL is harmless */
void twi_resolver_abandon(struct twi_resolver *resolver); /* in a forked child. NULL is harmless */

/* Where Redis always is; NULL if it may move. */
const struct twi_endpoint *twi_resolver_fixed(const struct twi_resolver *resolver);
bool twi_resolver_may_move(const struct twi_resolver *resolver);

/* For a connection that is to be made: begins to ask, or continues. */
enum twi_resolved twi_resolver_ask(struct twi_resolver *resolver, int64_t now_ms, struct twi_endpoint *endpoint,
                                   int64_t *again_ms);
/* While it is asked: the descriptor of whoever was asked; -1 if none. */
int twi_resolver_fd(const struct twi_resolver *resolver, bool *wants_write);
const char *twi_resolver_why(const struct twi_resolver *resolver); /* the last error */
/* What was named last could not be reached, or was no master. */
void twi_resolver_distrust(struct twi_resolver *resolver);
/* Nobody will ask or look for a while: whoever is being asked is asked no longer, and waits in no socket set. */
void twi_resolver_rest(struct twi_resolver *resolver);

/* For a connection that was made: to a master, now; and in each turn from then on. Returns true if Redis is elsewhere
 * by now. */
void twi_resolver_found(struct twi_resolver *resolver, int64_t now_ms);
bool twi_resolver_look(struct twi_resolver *resolver, int64_t now_ms, const struct twi_endpoint *here);
int64_t twi_resolver_look_due_ms(const struct twi_resolver *resolver, int64_t now_ms); /* INT64_MAX if never */

#endif
