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
 * its store (state.h). */
#ifndef TWI_SYNC_MESSAGE_CONNECTION_H
#define TWI_SYNC_MESSAGE_CONNECTION_H

#include "sync/wire/wire.h"
#include "sync/batch/batch.h"
#include "sync/batch/reply.h"
#include "sync/wire/pace.h"
#include "sync/wire/sentinel.h"
#include "tallywheel.h"

/* ---- message queue ----
 * the messages under way on a connection, besides the batches. message.h has the calls. Always true:
 * each sender has at most its quota here, counting messages under way and messages that wait for replicas. */

struct twi_sync;
struct twi_connection;
struct twi_store;

/* The senders, and how many messages each may have under way on one connection. A message costs Redis some 20
 * microseconds. A statement of gauges, or a merge of distinct counts, costs some 3 ms. */
enum twi_sender {
    TWI_SENDER_REGISTRY,
    TWI_SENDER_CLOSING,
    TWI_SENDER_PRESENCE,
    TWI_SENDER_DISTINCT,
    TWI_SENDER_LEASES,
    TWI_SENDERS
};
#define TWI_PRESENCE_MAX 4u
#define TWI_DISTINCT_MAX 2u
#define TWI_CLOSING_SENT_MAX 4u
#define TWI_CLOSING_MESSAGES_MAX 16u /* the most messages in one parcel; 16 heartbeats cost Redis some 0.2 ms */
#define TWI_LEASES_MAX 32u
#define TWI_MESSAGES_MAX (1u + TWI_CLOSING_SENT_MAX + TWI_PRESENCE_MAX + TWI_DISTINCT_MAX + TWI_LEASES_MAX)

enum twi_message_outcome {
    TWI_MESSAGE_ANSWERED,
    TWI_MESSAGE_REFUSED, /* not executed; `nodes` is the error reply */
    TWI_MESSAGE_UNKNOWN  /* perhaps executed; `nodes` is the error reply, or count is 0 if the connection was lost */
};

/* Takes the outcome of a message. Returns false if the reply is not understood; the connection then ends. The
 * function may send other messages, except if the outcome is UNKNOWN. */
typedef bool twi_message_done(struct twi_sync *sync, struct twi_connection *connection, void *ctx,
                              enum twi_message_outcome outcome, const struct twi_node *nodes, size_t count,
                              int64_t now_ms);
/* ANSWERED means that enough replicas have the message's writes. REFUSED means that too few have them. UNKNOWN means
 * that the connection was lost before Redis reported it. */
typedef void twi_message_replicated(struct twi_sync *sync, void *ctx, enum twi_message_outcome outcome);

struct twi_message_pending {
    enum twi_sender sender;
    struct twi_store *store; /* where its keys lie */
    const struct twi_script_source *script;
    twi_message_done *done;
    twi_message_replicated *replicated;
    void *ctx;
    struct twi_bytes arguments; /* encoded, the number of keys first; kept for EVAL */
    size_t argument_count;
    bool is_eval;
};

struct twi_messages {
    struct twi_message_pending ring[TWI_MESSAGES_MAX];
    uint32_t first, count;
    uint32_t of[TWI_SENDERS];                        /* for each sender, messages under way or waiting for replicas */
    struct twi_message_pending held[TWI_LEASES_MAX]; /* answered; the reply to WAIT is awaited */
    uint32_t held_count;
    uint32_t waits; /* WAITs under way; each covers all messages that were answered before its reply */
    bool unwaited;  /* a message that needs a WAIT was sent, and no WAIT after it */
};

/* ---- pipeline ----
 * the commands that were sent on a connection and await their replies. Replies come in the order of the
 * commands.
 * Always true: each command in `out` has an entry in `pending`, in the order of the wire. */

struct twi_sync;
struct twi_connection;
struct twi_batch;
struct twi_store;

/* At most this many entries: a greeting (6), an opening, a rewrite, questions of a cluster's; the batches, each with
 * ASKING and WAIT; the messages; their WAITs, at worst two for each lease. */
#define TWI_PENDING_BATCHES_MAX 64u
#define TWI_PENDING_MAX (32u + 3 * TWI_PENDING_BATCHES_MAX + TWI_MESSAGES_MAX + 2 * TWI_LEASES_MAX)

enum twi_command {
    TWI_AUTH,
    TWI_SELECT,
    TWI_PING,
    TWI_ROLE,
    TWI_INFO,
    TWI_CONFIG,
    TWI_REWRITE,
    TWI_TIME,
    TWI_WAIT,
    TWI_MESSAGE,
    TWI_MESSAGE_WAIT,
    TWI_OPEN,
    TWI_BATCH,
    TWI_MERGE_PLAIN, /* a batch without a script, of many replies */
    TWI_REPAIR,
    TWI_ASKING,     /* before a batch that ASK sent to another node */
    TWI_ABANDONED,  /* a batch or an opening whose store has begun again, so that its reply has no meaning any more */
    TWI_SLOTS,      /* CLUSTER SLOTS */
    TWI_COUNT_KEYS, /* CLUSTER COUNTKEYSINSLOT */
    TWI_COMMANDS
};

struct twi_pending {
    enum twi_command command;
    struct twi_store *store; /* of OPEN, BATCH, MERGE_PLAIN, REPAIR, ABANDONED and COUNT_KEYS; otherwise NULL */
    struct twi_batch *batch; /* of OPEN, BATCH and MERGE_PLAIN */
    uint32_t cost;           /* the batch's part of keys_under_way */
    uint32_t replies;        /* how many replies are still to come */
    int64_t sent_ms;         /* when its last byte was sent; 0 if not yet */
    int64_t wall_ms;         /* the same moment in engine time */
    int64_t sent_us;         /* the same moment in us; 0 if not yet */
    uint64_t out_end;        /* where it ends, in bytes of this connection */
    uint64_t out_begin;      /* where it begins */
    bool compiles;           /* the script's text went with it, and Redis may have to compile that first */
    bool alone;              /* it was the only request under way, so its reply measures the round trip */
};

struct twi_pipeline {
    struct twi_bytes out; /* commands; the bytes before out_at have been sent */
    size_t out_at;
    uint64_t out_sent;    /* bytes sent on this connection */
    uint64_t out_end;     /* where the last command ends */
    int64_t out_moved_ms; /* when bytes were last sent, or when a command was put into an empty `out` */
    struct twi_reader *reader;
    struct twi_pending pending[TWI_PENDING_MAX]; /* a ring, the oldest first */
    uint32_t first, count;
};

/* Takes one reply of an entry; `replies` still counts it. If the function does not understand the reply, it marks the
 * connection as broken. */
typedef void twi_taker(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                       const struct twi_node *nodes, size_t count, int64_t now_ms);

/* To be called before a command is put into an `out` that may be empty. From now on the time for sending counts. */
void twi_pipeline_begin(struct twi_pipeline *pipeline, int64_t now_ms);
/* Notes that a command was put into `out`, and that it has this many replies. */
struct twi_pending *twi_pipeline_await(struct twi_pipeline *pipeline, enum twi_command command, struct twi_batch *batch,
                                       uint32_t replies);
/* Returns entry `i`; 0 is the oldest. */
struct twi_pending *twi_pipeline_at(struct twi_pipeline *pipeline, uint32_t i);
/* Removes one reply of the oldest entry. Returns a copy of the entry from before the call. */
struct twi_pending twi_pipeline_take(struct twi_pipeline *pipeline);
/* Returns when the last byte of the oldest entry was sent; 0 if not yet, or if no reply is awaited. */
int64_t twi_pipeline_awaited_since_ms(const struct twi_pipeline *pipeline);
/* Returns how many bytes of this connection there will be once `out` is sent. */
uint64_t twi_pipeline_end(const struct twi_pipeline *pipeline);
/* Removes an entry with all its commands. */
uint64_t twi_pending_bytes(const struct twi_pending *pending);
bool twi_pipeline_is_sent(const struct twi_pipeline *pipeline); /* all of `out` was sent */
/* The connection has ended. No reply is awaited any more, and `out` is wiped (it may contain a password). */
void twi_pipeline_clear(struct twi_pipeline *pipeline);

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
