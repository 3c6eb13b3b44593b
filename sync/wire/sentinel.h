/* sentinel.h -- which Redis is the master now? Asked of sentinels: one question to one of them at a time.
 *
 * Before a connection is made they are asked in turn, from the one that answered last on, until one names the master.
 * That answer is used until the server itself says otherwise (its ROLE). While a connection is open all are asked every
 * ten seconds, for a master that was cut off from the sentinels looks alive to clients on its side: if
 * more than half of the URL's sentinels name another one, that one is it. No message of theirs is waited for: a
 * sentinel that dies with its master takes the only one along.
 * Always true: no call waits; a question to all of them ends within three times `timeout_ms`; each connection to a
 * sentinel carries one question, and is closed after it. */
#ifndef TWI_SYNC_WIRE_SENTINEL_H
#define TWI_SYNC_WIRE_SENTINEL_H

#include "sync/wire/where.h"

enum twi_resolved {
    TWI_WHERE_HERE,    /* *endpoint is where Redis is */
    TWI_WHERE_NOT_YET, /* ask again in *again_ms, or once the resolver's descriptor is ready */
    TWI_WHERE_UNKNOWN  /* this time nobody could say */
};

/* Whom to ask, and how. */
struct twi_resolver_rules {
    const struct twi_where *where; /* outlives what is made of the rules */
    int set;                       /* the socket set, as in the transport's create(); -1 if none */
    uint32_t timeout_ms;           /* of one answer */
    uint64_t random;               /* so that not all engines ask the same sentinel first */
};

/* ---- one answer -------------------------------------------------------------------------------------------------- */

enum twi_sentinel_says {
    TWI_SENTINEL_MASTER,       /* host and port of *endpoint are set */
    TWI_SENTINEL_UNKNOWN_NAME, /* it knows no master of that name */
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

/* For a connection that is to be made: begins to ask, or continues. */
enum twi_resolved twi_sentinels_ask(struct twi_sentinels *sentinels, int64_t now_ms, struct twi_endpoint *endpoint,
                                    int64_t *again_ms);
/* What was named last could not be reached, or was no master. Another sentinel is asked first next time. */
void twi_sentinels_distrust(struct twi_sentinels *sentinels);
/* Nobody will ask or look for a while: the round under way ends. */
void twi_sentinels_rest(struct twi_sentinels *sentinels);

/* For an open connection: since now; and in each turn from then on. True means that Redis is elsewhere. */
void twi_sentinels_found(struct twi_sentinels *sentinels, int64_t now_ms);
bool twi_sentinels_look(struct twi_sentinels *sentinels, int64_t now_ms, const struct twi_endpoint *here);
int64_t twi_sentinels_look_due_ms(const struct twi_sentinels *sentinels, int64_t now_ms); /* when next */

int twi_sentinels_fd(const struct twi_sentinels *sentinels, bool *wants_write); /* -1 if nobody is being asked */
const char *twi_sentinels_why(const struct twi_sentinels *sentinels);           /* what went wrong last */

#endif
