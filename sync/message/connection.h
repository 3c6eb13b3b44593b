/* connection.h -- one connection to one Redis: where it is, how far it has come, what is under way on it, and what that
 * server is known to be.
 *
 *   DOWN --back-off over--> CONNECTING --connected--> GREETING --answered--> OPENING (new instance) --> UP
 *     ^------------------------ any error, any deadline -----------------------------------------------'
 * A step of a turn that finds the connection broken marks it (twi_connection_fail()); the turn ends it in one place
 * (twi_connect_end()). The breaker, the depth of the pipeline and the difference of the clocks stand here, because they
 * are found out about one server: another server may be up, near, and in another time.
 * Owner: whoever owns the turn. Always true: a connection knows no ledger; what a batch means is the store's
 * (store.h). */
#ifndef TWI_SYNC_MESSAGE_CONNECTION_H
#define TWI_SYNC_MESSAGE_CONNECTION_H

#include "sync/batch/depth.h"
#include "sync/message/message_queue.h"
#include "sync/message/pipeline.h"
#include "sync/wire/breaker.h"
#include "sync/wire/socket.h"
#include "sync/wire/url.h"

#include "tallywheel.h"

#define TWI_REFUSALS_LOGGED 8u /* different refusals in one outage; a line beyond them may come again */

enum twi_phase { TWI_DOWN, TWI_CONNECTING, TWI_GREETING, TWI_OPENING, TWI_UP };

/* Where Redis is, and how it is reached. Set before sharing. */
struct twi_endpoint {
    const struct twi_transport *transport;
    void *transport_ctx;
    struct twi_socket *socket; /* ours; NULL: a transport was given */
    struct twi_url url;
    int (*password)(void *ctx, char *out, size_t size);
    void *password_ctx;
    char name[300]; /* for log lines */
};

/* Why the connection is to end. */
struct twi_failure {
    bool is_there;
    bool slowly;      /* nothing heals by itself */
    const char *why;  /* for the log; NULL: the log has its line */
    int64_t again_ms; /* the next try comes after so long; 0: as the back-off says */
};

/* What the server said at the greeting. */
struct twi_server {
    char run[41];        /* its run_id; "": it does not say */
    bool has_other_keys; /* another database of it holds keys */
    bool may_restore;    /* its eviction policy is known not to drop ledgers and markers alike */
    bool is_seven;       /* Redis 7 or later */
    bool has_aof;        /* it keeps an append-only file */
    bool is_checked;     /* the start-up checks have had their lines */
};

/* What the log has of this outage. */
struct twi_outage_log {
    bool is_logged;                         /* that the connection was lost */
    uint64_t refusals[TWI_REFUSALS_LOGGED]; /* hashes of lines on what Redis refuses: each comes once an outage */
    uint32_t refusals_next;
};

/* BGREWRITEAOF, after Redis went back. */
struct twi_aof_rewrite {
    bool is_under_way;
    uint32_t tries_left; /* 0: none is owed */
};

/* WAIT, which asks what enough replicas have. */
struct twi_replica_waits {
    uint32_t wanted;    /* wait_replicas; 0: nobody asks */
    uint32_t waits;     /* WAITs under way, those of messages apart */
    int64_t ask_at_ms;  /* the next WAIT, where nothing new is sent */
    uint32_t short_run; /* short WAITs since the last long one */
    bool is_short;      /* replicas lag, and the log says so */
};

/* Redis's clock minus ours. */
struct twi_clock_offset {
    int64_t offset_ms, rtt_ms, at_ms; /* at_ms 0: not known for this connection */
};

struct twi_connection {
    /* set before sharing */
    tw_engine *engine;
    struct twi_endpoint endpoint;
    uint32_t timeout_ms;

    enum twi_phase phase;
    int64_t phase_deadline_ms;
    struct twi_failure failure;
    struct twi_breaker breaker;
    uint64_t serial; /* it rises with each connection that was made */
    struct twi_pipeline pipeline;
    bool use_eval;    /* the next batch goes with its script */
    int64_t reply_ms; /* when the last reply came */
    int64_t late_ms;  /* turns came so much too late while the oldest reply is awaited: that time is not Redis's */
    struct twi_depth depth;
    struct twi_server server;
    struct twi_outage_log outage;
    struct twi_aof_rewrite rewrite;
    struct twi_replica_waits replicas;
    struct twi_clock_offset clock;
    struct twi_messages messages;
};

/* The connection is broken: nothing more is sent or taken on it, and what was under way is of unknown outcome. The
 * first reason stays. */
void twi_connection_fail(struct twi_connection *connection, bool slowly, const char *why);

#endif
