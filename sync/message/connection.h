/* connection.h -- one connection to one Redis. It has the address, the phase, the requests under way, and the known
 * facts about the server.
 *
 *   DOWN --back-off over--> CONNECTING --connected--> GREETING --answered--> OPENING (new instance) --> UP
 *     ^------------------------ any error, any deadline -----------------------------------------------'
 * CONNECTING is two steps: the resolver names the endpoint of Redis, and that endpoint is dialled.
 * A step of a turn that finds the connection broken marks it (twi_connection_fail()); the turn ends it in one place
 * (twi_connect_end()). The breaker, what was measured of the link and the difference of the clocks are here, because
 * they describe one server. Another server may be up, near, and have another clock.
 * Only the owner of the turn uses a connection. Always true: a connection has no ledger. The ledger of a batch is in
 * its store (store.h). */
#ifndef TWI_SYNC_MESSAGE_CONNECTION_H
#define TWI_SYNC_MESSAGE_CONNECTION_H

#include "sync/batch/depth.h"
#include "sync/batch/reply.h"
#include "sync/message/message_queue.h"
#include "sync/message/pipeline.h"
#include "sync/wire/breaker.h"
#include "sync/wire/resolver.h"

#include "tallywheel.h"

#define TWI_BATCH_COST 15u     /* Redis's fixed work for a batch, as a number of keys */
#define TWI_REFUSALS_LOGGED 8u /* different refusals in one outage; with more than these, a line may be repeated */

enum twi_phase { TWI_DOWN, TWI_CONNECTING, TWI_GREETING, TWI_OPENING, TWI_UP };

/* Which server to reach, and how. Set before sharing, except for the endpoint. */
struct twi_target {
    const struct twi_where *where; /* that of the engine's sync */
    void *transport_ctx;
    bool owns_transport; /* the transport's create() made transport_ctx; false if it was given */
    struct twi_resolver *resolver;
    struct twi_endpoint endpoint;      /* Redis's endpoint by the resolver; valid as soon as is_located is true */
    struct twi_endpoint last_master;   /* that of the last connection that reached a master */
    char name[TWI_ENDPOINT_NAME_SIZE]; /* for log lines */
};

/* Why the connection is to end. */
struct twi_failure {
    bool is_there;
    bool slowly;      /* the cause lasts until a person repairs it, so the back-off is long */
    bool is_refused;  /* by TLS, of one side or the other */
    const char *why;  /* for the log; NULL if the log has a line already */
    int64_t again_ms; /* the next try comes after this time; 0 if the back-off decides */
    bool is_idle;     /* the connection has no fault; it is unused */
    char text[80];    /* where the number in `why` is stored */
};

/* The server's answers to the greeting. */
struct twi_server {
    char history[41];    /* its master_replid, the history of its data; "" if unknown */
    enum twi_role role;  /* from ROLE, which is sent if the resolver may move */
    bool has_other_keys; /* another of its databases has keys */
    bool may_restore;    /* it is known not to have evicted ledgers and markers */
    int64_t evicted;     /* how many keys it had evicted when it was first greeted, or when an instance began there */
    int64_t evicted_now; /* the same at the last greeting */
    bool is_seven;       /* Redis 7 or later */
    bool has_aof;        /* it keeps an append-only file */
    bool is_checked;     /* the start-up checks were made and logged */
};

/* The lines logged in this outage. */
struct twi_outage_log {
    int64_t since_ms; /* monotonic time when it began; 0 if the server answers */
    bool is_logged;   /* the line that the connection was lost */
    char error[128];  /* its text in tw_stats.last_error, "" if there is none; it is cleared when the outage ends */
    uint64_t refusals[TWI_REFUSALS_LOGGED]; /* hashes of lines about refusals; each line comes once in an outage */
    uint32_t refusals_next;
};

/* Keys that got no expiry in Redis. */
struct twi_unhealed_log {
    int64_t keys, logged_ms; /* since the last line; when that was (monotonic), 0: never */
};

/* BGREWRITEAOF is sent after Redis has lost acknowledged writes. */
struct twi_aof_rewrite {
    bool is_under_way;
    uint32_t tries_left; /* 0 if no rewrite is needed */
};

/* WAIT, to which Redis replies how many replicas have the writes of the connection. */
struct twi_replica_waits {
    uint32_t wanted;    /* wait_replicas; 0 if no WAIT is sent */
    uint32_t waits;     /* WAITs under way, without those of messages */
    int64_t ask_at_ms;  /* when the next WAIT is sent if no batch is */
    uint32_t short_run; /* counts WAITs while replicas lag; all but one of eight are short */
    bool is_short;      /* replicas lag */
    bool is_said;       /* and this was logged */
    int64_t said_ms;    /* monotonic; 0: never */
};

/* Redis's clock minus ours. */
struct twi_clock_offset {
    int64_t offset_ms, rtt_ms, at_ms; /* at_ms is 0 if they are unknown for this connection */
};

/* Which parts of the engine need the connection to a node of a cluster. */
struct twi_node_use {
    uint64_t node;         /* its number in the map; 0 if it is not there */
    bool is_wanted;        /* something needs it; always true for the one Redis */
    int64_t idle_since_ms; /* since when the connection is unused; 0 if it is in use */
    uint32_t idle_stores;  /* stores that are reached over it, and that are idle or wait (active.h) */
};

/* How much may be under way, and how much this turn has sent. */
struct twi_send_room {
    uint32_t keys_under_way;  /* of batches; each batch counts as TWI_BATCH_COST more */
    uint32_t most_keys;       /* with so many of them under way no batch is sent, in this turn */
    uint64_t bytes_under_way; /* of batches */
    uint64_t most_bytes;      /* in this turn a batch waits if it would exceed this; but one is always sent */
    uint32_t most_pending;    /* entries that the pipeline may have when a batch is sent, in this turn */
    bool was_idle;            /* the pipeline was empty before the batches of this turn */
    bool has_sent;            /* a batch was sent in this turn */
};

/* The last reply. */
struct twi_replied {
    int64_t at_ms;
    int64_t at_us;   /* the same moment in Unix time; 0 if no reply has come */
    int64_t late_ms; /* the lateness of turns while the oldest reply is due; it moves the deadline (turn/turn.c) */
    uint64_t bytes;  /* received since then */
};

struct twi_connection {
    /* set before sharing */
    tw_engine *engine;
    struct twi_target target;
    uint32_t timeout_ms;
    bool is_node; /* it is a node of a cluster, and redirects requests for slots that it does not have, whatever its
                   * role */
    struct twi_node_use use;

    enum twi_phase phase;
    bool is_located;           /* in phase CONNECTING, the endpoint is known and is being dialled */
    int64_t phase_deadline_ms; /* in phase CONNECTING, the deadline of the dialling */
    int64_t resolve_again_ms;  /* in phase CONNECTING, when to call the resolver again */
    struct twi_failure failure;
    struct twi_breaker breaker;
    struct twi_pipeline pipeline;
    struct twi_send_room room;
    bool has_more; /* the last turn left bytes that no descriptor reports */
    bool use_eval; /* the next batch goes with the script's text */
    struct twi_replied replied;
    struct twi_estimate estimate;
    uint32_t near_keys; /* the keys of a batch when Redis is near; set before use */
    struct twi_server server;
    struct twi_outage_log outage;
    struct twi_unhealed_log unhealed;
    struct twi_aof_rewrite rewrite;
    struct twi_replica_waits replicas;
    struct twi_clock_offset clock;
    struct twi_messages messages;
};

/* Marks it as broken, because no reply came in time; the reason names the option. */
void twi_connection_time_out(struct twi_connection *connection, int64_t waited_ms);
/* Marks the connection as broken. No more data is sent or read on it, and the outcome of the requests under way is
 * unknown. The first reason stays. */
void twi_connection_fail(struct twi_connection *connection, bool slowly, const char *why);
/* Does the same, with the error of the transport as the reason. */
void twi_connection_break(struct twi_connection *connection);

/* Ends it, because it is unused. */
void twi_connection_rest(struct twi_connection *connection);
/* Closes the connection, and frees it with all that it has. Calls `done` of no message. NULL is harmless. */
void twi_connection_destroy(struct twi_connection *connection);

/* Returns true if the connection accepts requests. */
static inline bool twi_connection_is_up(const struct twi_connection *connection) {
    return connection->phase == TWI_UP && !connection->failure.is_there;
}

/* Returns true if one more batch of so many bytes may be sent in this turn. */
static inline bool twi_connection_has_room(const struct twi_connection *connection, uint64_t bytes) {
    const struct twi_send_room *room = &connection->room;
    return connection->pipeline.count < room->most_pending && room->keys_under_way < room->most_keys &&
           (room->bytes_under_way == 0 || room->bytes_under_way + bytes <= room->most_bytes);
}

static inline struct twi_load twi_connection_load(const struct twi_connection *connection) {
    return twi_depth_load(&connection->estimate, connection->near_keys);
}

/* Returns true if it accepts requests and the server does not refuse them. */
static inline bool twi_connection_takes(const struct twi_connection *connection) {
    return twi_connection_is_up(connection) && connection->breaker.state == TWI_BREAKER_CLOSED;
}

#endif
