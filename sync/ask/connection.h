/* connection.h -- one connection of the pool: dialled, greeted, asked; by one thread at a time (pool.c says which).
 * Always true: what talk functions wait for ends at the deadline, at the pool's stop, or before; a connection that
 * answered anything unexpected is closed at once, and what was on it is of unknown outcome. */
#ifndef TWI_SYNC_ASK_CONNECTION_H
#define TWI_SYNC_ASK_CONNECTION_H

#include "tallywheel.h"

#include "sync/wire/socket.h"
#include "sync/wire/wire.h"

#include <pthread.h>

/* What all connections of a pool have in common; set before sharing. */
struct twi_pool_connection_rules {
    tw_engine *engine;
    struct twi_url url;
    int (*password)(void *ctx, char *out, size_t size);
    void *password_ctx;
    pthread_mutex_t password_lock; /* the callback is called by one thread at a time */
    uint32_t timeout_ms;
    int stop_fd; /* readable from the stop on */
};

/* How long a call may still wait. Counts also what it has waited, for clocks that stand still. */
struct twi_wait {
    int64_t deadline_ms; /* monotonic */
    int64_t budget_ms;
};

struct twi_pool_connection {
    struct twi_pool_connection_rules *rules;
    struct twi_socket *link; /* NULL: none yet */
    struct twi_reader *reader;
    int64_t dial_deadline_ms; /* 0: not dialling */
    bool up;                  /* greeted */
};

enum twi_pool_connection_outcome {
    TWI_POOL_CONNECTION_DONE,
    TWI_POOL_CONNECTION_REFUSED,     /* an answer, surely nothing was done; the connection stays */
    TWI_POOL_CONNECTION_TURNED_AWAY, /* the same, and it is closed */
    TWI_POOL_CONNECTION_UNSENT,      /* no connection, or not all of it went out: surely not executed */
    TWI_POOL_CONNECTION_BROKEN,      /* went out, no answer that can be believed: perhaps executed */
};

int64_t twi_wait_left_ms(struct twi_wait *wait, tw_engine *engine); /* <= 0: time is up */
/* Until `fd` (-1: none) is ready, or for `most_ms`. False: the pool was stopped. */
bool twi_wait_for(struct twi_wait *wait, const struct twi_pool_connection_rules *rules, int fd, bool to_write,
                  int64_t most_ms);

/* A connection that takes commands: DONE, UNSENT or TURNED_AWAY. */
enum twi_pool_connection_outcome twi_pool_connection_open(struct twi_pool_connection *connection,
                                                          struct twi_wait *wait);
/* Sends one command and hears its answer; the nodes are valid until the next use. */
enum twi_pool_connection_outcome twi_pool_connection_exchange(struct twi_pool_connection *connection,
                                                              const struct twi_bytes *command, struct twi_wait *wait,
                                                              const struct twi_node **nodes, size_t *count);
void twi_pool_connection_close(struct twi_pool_connection *connection);
void twi_pool_connection_free(struct twi_pool_connection *connection);
/* In a forked child. `is_used`: by a thread that is not there, perhaps in the middle of changing it. */
void twi_pool_connection_abandon(struct twi_pool_connection *connection, bool is_used);

#endif
