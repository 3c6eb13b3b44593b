/* link.h -- one connection for calls that wait, pipelined. It is dialled, greets, sends and hears, and never waits.
 *
 *   DOWN --wanted--> LOCATING --> DIALLING --> GREETING (AUTH, SELECT, INFO, ROLE) --> UP --any error--> DOWN
 * There is one link for each master in use. It is not the connection that carries batches: WAIT blocks that one on the
 * server, and a large batch fills it for milliseconds. Its breaker says when calls leave the server alone:
 *   - a link that is cut, or cannot be made, is made again after a pause; only when that has gone on for
 *     redis_timeout_ms the breaker opens
 *   - the breaker opens at once if a link was silent for redis_timeout_ms while a reply was due, and at least for 100
 *     ms (300, if calls have less than 75), or for 2 s before its first answer and while the text of a script is on its
 *     way; and, for longer, if the login was refused
 *   - the first reply to a call closes it
 * Dialling and greeting have ten times redis_timeout_ms each, and at least 2 s. No time of a caller ends a link. How
 * many calls may be under way on it says its window (window.h).
 * No call is sent to a replica. Its data may be old, and if it accepts writes they are lost. The greeting drops a
 * connection to a replica. A server that becomes a replica later replies READONLY (the scripts do that). In a cluster a
 * replica is not dropped. Its MOVED reply names the master.
 * Always true: `sent` holds the calls whose replies are due, in the order of the bytes; at most TWI_LINK_OUT_MAX bytes
 * and one command are handed over to the link, and the calls in `waiting` are certainly unsent. */
#ifndef TWI_SYNC_ASK_LINK_H
#define TWI_SYNC_ASK_LINK_H

#include "sync/ask/lanes.h"
#include "sync/batch/reply.h"
#include "sync/wire/pace.h"
#include "sync/wire/sentinel.h"
#include "sync/wire/socket.h"
#include "sync/wire/wire.h"

#define TWI_LINK_OUT_MAX 65536u

/* The data that all links of an engine share. */
struct twi_link_rules {
    tw_engine *engine;
    const struct twi_where *where;
    int set;               /* the socket set; -1 if there is none */
    uint32_t retry_max_ms; /* of each breaker */
    bool is_cluster;       /* endpoints are given; no resolver requests them */
};

enum twi_link_phase { TWI_LINK_DOWN, TWI_LINK_LOCATING, TWI_LINK_DIALLING, TWI_LINK_GREETING, TWI_LINK_UP };

enum twi_link_end {
    TWI_LINK_LIVES,
    TWI_LINK_CUT,      /* it was up */
    TWI_LINK_SILENT,   /* it was up */
    TWI_LINK_UNMADE,   /* no link could be made */
    TWI_LINK_DENIED,   /* the login was refused, which only a person can repair */
    TWI_LINK_DISMISSED /* it was closed without an error */
};

/* The replies to the greeting. */
struct twi_link_greeting {
    size_t left, roles; /* replies that are due; replies to ROLE among them */
    enum twi_role by_info, by_role;
};

struct twi_link {
    const struct twi_link_rules *rules;
    struct twi_endpoint endpoint;
    enum twi_link_phase phase;
    enum twi_link_end ended;       /* the link has ended, and its calls wait for twi_loss_of() */
    struct twi_resolver *resolver; /* NULL if there is none yet, and always in a cluster */
    void *transport;               /* the transport's state; NULL before it is made */
    struct twi_reader *reader;
    struct twi_bytes out;
    size_t out_at;                  /* position in `out` of the next byte to send */
    uint64_t put_total, sent_total; /* bytes of this connection */
    struct twi_link_greeting greeting;
    int64_t deadline_ms; /* of dialling or greeting */
    int64_t heard_ms;    /* the last byte, or since when a reply is due */
    struct {
        int64_t byte_ms, excused_ms; /* the last byte, and what is excused of the time since then */
    } silence;
    struct twi_breaker breaker;
    int64_t failing_since_ms; /* 0 means that it is not */
    int64_t pause_ms, again_ms;
    struct twi_lane_list waiting, sent;
    struct twi_window window;  /* of calls in `sent` */
    bool loading[TWI_SCRIPTS]; /* the script's text is on its way */
    int64_t used_ms;           /* when a call went there last */
    bool has_heard;            /* in this step */
};

/* `endpoint` is NULL unless the rules name a cluster. */
void twi_link_make(struct twi_link *link, const struct twi_link_rules *rules, const struct twi_endpoint *endpoint);
void twi_link_unmake(struct twi_link *link);
/* To be called in a forked child. `is_used` is true if a thread that the child does not have may have been changing
 * it. */
void twi_link_abandon(struct twi_link *link, bool is_used);

/* Begins to connect if there is a reason to and it is time, or continues. */
void twi_link_connect(struct twi_link *link, int64_t now_ms);
/* Reads the next reply to a call. Returns false if there is none now, or if the link has ended. `*room` is the
 * number of bytes that may be received. */
bool twi_link_hear(struct twi_link *link, size_t *room, const struct twi_node **nodes, size_t *count, int64_t now_ms);
/* Ends a link that is silent, or takes too long to be made. */
void twi_link_look(struct twi_link *link, int64_t now_ms);
/* Notes that so many bytes were appended to `out`, and to whose call they belong. */
void twi_link_put(struct twi_link *link, struct twi_lane *lane, size_t bytes, int64_t now_ms);
void twi_link_send(struct twi_link *link, int64_t now_ms);
/* Closes the connection. The dispatcher then looks after the calls, and calls twi_link_failed(). */
void twi_link_end(struct twi_link *link, enum twi_link_end ended, const char *why);
void twi_link_failed(struct twi_link *link, int64_t now_ms); /* `ended` is handled */
void twi_link_answered(struct twi_link *link);               /* a call */
/* Judges a call whose time is over, when all that has come is read. Returns true if its server answers, and only has
 * more calls than it answers in their time, or if nothing is known of the server yet. False means an outage. */
bool twi_link_serves(const struct twi_link *link, const struct twi_lane_caller *caller, int64_t now_ms);
/* Returns true if another call may be sent now. */
bool twi_link_has_room(const struct twi_link *link, int64_t now_ms);
/* Returns until when no new call may be sent there; 0 means that calls may be sent. While the breaker is not closed
 * one call at a time tries. */
int64_t twi_link_closed_until_ms(const struct twi_link *link);
/* Returns when the link needs its next step. Returns INT64_MAX if it needs none. */
int64_t twi_link_wake_ms(const struct twi_link *link, int64_t now_ms);
/* To be called after the driver was late. The deadlines move by that much time. */
void twi_link_excuse(struct twi_link *link, int64_t late_ms);
/* To be called if it was a little late, by which no deadline moves: a process that gets little of a processor shares it
 * perhaps with the server. Only so much is excused that a server that has gone is still found to be. */
void twi_link_excuse_silence(struct twi_link *link, int64_t late_ms);

#endif
