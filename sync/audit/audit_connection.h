/* audit_connection.h -- one connection of an audit. It sends one command at a time, or a pipeline of a page, and each
 * reply has a deadline. The caller waits.
 * Always true: after the first failure no more is sent, and `status` and `error` describe the failure. */
#ifndef TWI_SYNC_AUDIT_CONNECTION_H
#define TWI_SYNC_AUDIT_CONNECTION_H

#include "sync/wire/wire.h"
#include "tallywheel.h"
#include "engine/port/driver.h"
#include "sync/wire/sentinel.h"

/* ---- audit names ----
 * a page of names of an audit: those of one reply to SCAN, or of some hundred lines of a file.
 *
 * In a cluster a key whose slot is moving may be met at two nodes, and again in a second SCAN. Such names are
 * remembered by 64-bit hashes. Two names with one hash, of which the second would be missed, are too unlikely to
 * expect.
 * Always true: names lie in the memory of their page until it is emptied. */

#define TWI_AUDIT_PAGE 500u                        /* keys in one SCAN or one pipeline: some 100 us of Redis's time */
#define TWI_AUDIT_NAMES_MAX (TWI_AUDIT_PAGE * 20u) /* SCAN may return more names than requested */

struct twi_audit_names {
    struct twi_bytes bytes; /* one after the other: */
    size_t ends[TWI_AUDIT_NAMES_MAX];
    size_t count;
    uint16_t where[TWI_AUDIT_NAMES_MAX]; /* for audit_servers.c, the server to ask */
    bool asking[TWI_AUDIT_NAMES_MAX];    /* for audit_servers.c, whether ASKING comes first */

    uint64_t *met; /* hashes of names, by open addressing; 0 means an empty place */
    size_t met_count, met_room;
};

struct twi_audit_names *twi_audit_names_create(void); /* NULL means no memory */
void twi_audit_names_destroy(struct twi_audit_names *names);

tw_key twi_audit_names_at(const struct twi_audit_names *names, size_t i);
void twi_audit_names_add(struct twi_audit_names *names, const char *text, size_t size);
/* Ends the name whose bytes were appended to `bytes`. */
void twi_audit_names_end(struct twi_audit_names *names);
void twi_audit_names_empty(struct twi_audit_names *names);
/* Keeps the names for which `is_kept` is true. */
void twi_audit_names_keep(struct twi_audit_names *names, bool (*is_kept)(void *ctx, tw_key name), void *ctx);

/* Returns whether the name is met for the first time. If there is no memory, `bytes.failed` is set. */
bool twi_audit_names_meet(struct twi_audit_names *names, const void *name, size_t size);
void twi_audit_names_forget_met(struct twi_audit_names *names);

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
