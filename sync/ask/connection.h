/* connection.h -- one blocking connection of the pool: it dials, greets, sends a command and waits for the reply.
 * Always true: one thread at a time uses a connection (pool.c says which). A function here waits at most until its
 * deadline or the pool's stop. A connection with an unexpected reply is closed at once, and the outcome of what was on
 * it is unknown. */
#ifndef TWI_SYNC_ASK_CONNECTION_H
#define TWI_SYNC_ASK_CONNECTION_H

#include "tallywheel.h"

#include "sync/wire/redirect.h"
#include "sync/wire/resolver.h"
#include "sync/wire/socket.h"
#include "sync/wire/wire.h"

#include <pthread.h>

/* A callback that several connections may need at once: one thread at a time calls it. */
struct twi_pool_secret {
    int (*ask)(void *ctx, char *password, size_t size);
    void *ctx;
    pthread_mutex_t *lock;
};

/* What all connections of a pool have in common. Set before other threads see the pool. */
struct twi_pool_connection_rules {
    tw_engine *engine;
    const struct twi_transport *transport;
    struct twi_tls *tls; /* the engine's; NULL: none */
    struct twi_url url;
    struct twi_login login, sentinel_login;
    struct twi_pool_secret password, sentinel_password; /* what the logins ask */
    pthread_mutex_t password_lock;
    uint32_t timeout_ms;
    bool is_cluster;        /* the caller says where each connection leads; no resolver does */
    int stop_fd;            /* readable once the pool is stopped */
    _Atomic uint32_t moves; /* how often Redis was found elsewhere. The one that changes */
};

/* How long a call may still wait. The budget counts the time that it has waited, for clocks that stand still. */
struct twi_wait {
    int64_t deadline_ms; /* monotonic */
    int64_t budget_ms;
};

struct twi_pool_connection {
    struct twi_pool_connection_rules *rules;
    struct twi_resolver *resolver; /* NULL: none yet; in a cluster never */
    void *link;                    /* the transport's; NULL: none yet */
    struct twi_reader *reader;
    struct twi_endpoint endpoint;
    bool is_located;              /* the endpoint is known, and is being dialled */
    int64_t dial_deadline_ms;     /* 0: not dialling */
    uint32_t moves;               /* the rules' count when the endpoint was asked for */
    bool up;                      /* greeted: it takes commands */
    struct twi_redirect redirect; /* after REDIRECTED */
};

enum twi_pool_connection_outcome {
    TWI_POOL_CONNECTION_DONE,
    TWI_POOL_CONNECTION_REFUSED,     /* Redis replied, and certainly did nothing; the connection stays */
    TWI_POOL_CONNECTION_TURNED_AWAY, /* the same, and the connection is closed */
    TWI_POOL_CONNECTION_UNSENT,      /* no connection, not all sent, or sent to a replica: certainly not executed */
    TWI_POOL_CONNECTION_REDIRECTED,  /* by a node of a cluster, as `redirect` says: certainly not executed */
    TWI_POOL_CONNECTION_SPOILT,      /* Redis replied that a key holds something else; the connection stays */
    /* Sent, and no reply that can be believed: perhaps executed. The connection is closed; but it stays where a script
     * of a cluster stopped in its middle. */
    TWI_POOL_CONNECTION_BROKEN,
};

int64_t twi_wait_left_ms(struct twi_wait *wait, tw_engine *engine); /* <= 0: the time is over */
/* Waits until `fd` (-1: none) is ready, for at most `most_ms`. False: the pool was stopped. */
bool twi_wait_for(struct twi_wait *wait, const struct twi_pool_connection_rules *rules, int fd, bool to_write,
                  int64_t most_ms);

/* Makes a connection that takes commands, if there is none. Returns DONE, UNSENT or TURNED_AWAY. */
enum twi_pool_connection_outcome twi_pool_connection_open(struct twi_pool_connection *connection,
                                                          struct twi_wait *wait);
/* In a cluster: the next calls go there. A connection to another endpoint is closed. */
void twi_pool_connection_lead(struct twi_pool_connection *connection, const struct twi_endpoint *to);
/* Whether it leads there, and is up or being dialled. */
bool twi_pool_connection_is_at(const struct twi_pool_connection *connection, const struct twi_endpoint *endpoint);
/* Sends commands with so many replies, and waits for the last of these. The nodes are valid until the connection is
 * used again. */
enum twi_pool_connection_outcome twi_pool_connection_exchange(struct twi_pool_connection *connection,
                                                              const struct twi_bytes *command, size_t replies,
                                                              struct twi_wait *wait, const struct twi_node **nodes,
                                                              size_t *count);
void twi_pool_connection_close(struct twi_pool_connection *connection);
void twi_pool_connection_free(struct twi_pool_connection *connection);
/* In a forked child. `is_used`: a thread that the child does not have was using it, and may have been changing it. */
void twi_pool_connection_abandon(struct twi_pool_connection *connection, bool is_used);

#endif
