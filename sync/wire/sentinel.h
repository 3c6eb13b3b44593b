/* sentinel.h -- finds the current master by questions to sentinels, one question to one sentinel at a time.
 *
 * Before a connection is made they get the question in turn, beginning with the one that answered last, until one names
 * the master. That answer is used until the ROLE of the server contradicts it. While a connection is open, all get the
 * question every ten seconds, because a master that was cut off from the sentinels looks alive to clients on its side.
 * If more than half of the URL's sentinels name another master, that one is used. The file does not use messages that
 * sentinels send, because a sentinel that dies with its master sends none.
 * Always true: no call waits; a question to all of them ends within three times `timeout_ms`; each connection to a
 * sentinel carries one question, and is closed after it. */
#ifndef TWI_SYNC_WIRE_SENTINEL_H
#define TWI_SYNC_WIRE_SENTINEL_H

#include "sync/wire/wire.h"
#include "sync/wire/socket.h"
#include "sync/wire/tls_context.h"
#include "sync/wire/url.h"
#include "tallywheel.h"

/* ---- where ----
 * how a server is reached. The options about it are read once for all connections.
 * Always true: after twi_where_read() it never changes, so any thread may read it. It outlives everything that was made
 * from it, and does not move. The logins point to the texts of the URL. */

struct twi_where {
    struct twi_url url;
    struct twi_tls *tls; /* NULL without TLS */
    const struct twi_transport *transport;
    void *shared; /* for the transport's create() */
    struct twi_login login, sentinel_login;
};

/* Reads redis_url, redis_tls_*, redis_password, sentinel_user and sentinel_password. The callbacks and the texts of
 * the sentinels' login must exist longer than `where`. Returns false if `error` names the refused option. The caller
 * frees `where` in any case. */
bool twi_where_read(struct twi_where *where, const tw_options *options, char *error, size_t error_size);
/* Frees what twi_where_read() made; `where` may be all zero. No connection may exist any more. */
void twi_where_free(struct twi_where *where);

enum twi_resolved {
    TWI_WHERE_HERE,    /* *endpoint is where Redis is */
    TWI_WHERE_NOT_YET, /* ask again in *again_ms, or once the resolver's descriptor is ready */
    TWI_WHERE_UNKNOWN  /* this time no sentinel named it */
};

/* Whom to ask, and how. */
struct twi_resolver_rules {
    const struct twi_where *where; /* exists longer than everything that is made from the rules */
    int set;                       /* the socket set, as in the transport's create(); -1 if there is none */
    uint32_t timeout_ms;           /* of one answer */
    uint64_t random;               /* so that not all engines ask the same sentinel first */
};

/* ---- one answer -------------------------------------------------------------------------------------------------- */

enum twi_sentinel_says {
    TWI_SENTINEL_MASTER,       /* host and port of *endpoint are set */
    TWI_SENTINEL_UNKNOWN_NAME, /* it has no master of that name */
    TWI_SENTINEL_REFUSES,      /* an error */
    TWI_SENTINEL_NONSENSE      /* no answer to this question */
};

extern const struct twi_wire_limits twi_sentinel_limits;
/* The answer to SENTINEL get-master-addr-by-name. Pure. */
enum twi_sentinel_says twi_sentinel_read(const struct twi_node *nodes, size_t count, struct twi_endpoint *endpoint);

/* ---- asking ------------------------------------------------------------------------------------------------------ */

struct twi_sentinels;

struct twi_sentinels *twi_sentinels_create(const struct twi_resolver_rules *rules); /* NULL if there is no memory */
void twi_sentinels_destroy(struct twi_sentinels *sentinels);
void twi_sentinels_abandon(struct twi_sentinels *sentinels); /* in a forked child */

/* Begins to look for the endpoint of a new connection, or continues. */
enum twi_resolved twi_sentinels_ask(struct twi_sentinels *sentinels, int64_t now_ms, struct twi_endpoint *endpoint,
                                    int64_t *again_ms);
/* The last named endpoint was unreachable, or was no master. The next question goes to another sentinel first. */
void twi_sentinels_distrust(struct twi_sentinels *sentinels);
/* Called if the sentinels are not needed for a while. The round under way ends. */
void twi_sentinels_rest(struct twi_sentinels *sentinels);

/* For an open connection. The first is to be called when it opens, the second in each turn from then on. Returns
 * true if Redis has moved. */
void twi_sentinels_found(struct twi_sentinels *sentinels, int64_t now_ms);
bool twi_sentinels_look(struct twi_sentinels *sentinels, int64_t now_ms, const struct twi_endpoint *here);
int64_t twi_sentinels_look_due_ms(const struct twi_sentinels *sentinels, int64_t now_ms); /* when next */

int twi_sentinels_fd(const struct twi_sentinels *sentinels, bool *wants_write); /* -1 if no question is under way */
const char *twi_sentinels_why(const struct twi_sentinels *sentinels);           /* the last error */

/* ---- resolver ----
 * finds the endpoint of Redis. A resolver answers with an endpoint, or with "not yet". Each connection
 * has a separate resolver: the engine's connection, the link of calls that wait, an audit.
 *
 * There are two kinds. One has the fixed endpoint of a URL, the other finds the master that sentinels name
 * (sentinel.h). Always true: no call waits. One thread at a time uses a resolver. A resolver only names an endpoint.
 * The caller decides how often to try, and checks whether the server there is a master. */

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
