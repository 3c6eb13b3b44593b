/* messages.h -- the contract on messages other than counters: gauges and holds, expired reservations, leases of hard
 * limits, windows that one engine closes, and the number of live engines.
 *
 * The engine decides what to send. sync/ sends it in order on the connection of the batches, and reports the outcome.
 * Threads: only the owner of the turn calls these functions (core/state.h), except where a comment names others.
 * Always true: each message has absolute values, so sending it again does no harm. Each message gets exactly one
 * answer, at the latest when its connection is lost. */
#ifndef TWI_PORT_MESSAGES_H
#define TWI_PORT_MESSAGES_H

#include "engine/port/items.h"

/* ---- gauges, holds and expired reservations ---- */

/* All gauges and all holds of tw_hold() must be sent again now, because a connection was lost or Redis may have lost
 * them. */
void twi_port_presence_resend(tw_engine *engine);
/* Returns one hold of tw_hold() that must be sent again. Returns false if there is no such hold. Any thread. */
struct twi_hold_member {
    char name[TWI_OWN_NAME_MAX]; /* the name of the set in Redis */
    size_t name_size;
    char member[56];
};
bool twi_port_hold_due(tw_engine *engine, struct twi_hold_member *part);
/* twi_port_holds_sent() reports that all holds that were returned since the last call were sent as one message.
 * twi_port_holds_answered() reports that the oldest message in flight was answered, or was lost. */
void twi_port_holds_sent(tw_engine *engine);
void twi_port_holds_answered(tw_engine *engine);
/* A message in flight was lost, so a copy may still come to Redis. twi_port_holds_answered() follows. */
void twi_port_holds_unsure(tw_engine *engine);
/* Returns a key with a reservation that has expired (reserve.lua, sweep). For each of these keys,
 * twi_port_sweep_answered() reports in how many ms its next reservation expires. -1 means none. Any thread. */
struct twi_sweep {
    uint64_t serial;
    size_t sizes[3];
    /* the names of the counter, of its reservations, and of the times at which these expire */
    char names[3][TWI_OWN_NAME_MAX];
};
bool twi_port_sweep_due(tw_engine *engine, struct twi_sweep *sweep);
void twi_port_sweep_answered(tw_engine *engine, uint64_t serial, int64_t wait_ms);

/* ---- messages about the leases of hard limits (engine/limit/lease.h, sync/message/lease.c) ---- */

#define TWI_LEASE_OTHERS_MAX 100u
/* An epoch is a time in which a store has surely not forgotten any grant. It ends when another store replaces the
 * store, even an empty one. Each store (twi_port_store()) has separate epochs. */
struct twi_lease_epoch {
    char instance[33];                     /* the id of this engine in the epoch */
    char id[33];                           /* the id of the epoch; "" means that none is known */
    char run[41];                          /* the history (master_replid) in which the epoch began; "": unknown */
    char resent_in[33];                    /* the epoch in which this engine has stated everything again */
    char incarnation[33];                  /* this engine's incarnation, as Redis names it; "": unknown */
    char others[TWI_LEASE_OTHERS_MAX][33]; /* the other engines that take part, if they are known */
    uint32_t other_count;
    int64_t changes;  /* the number of the last change of the members that is known; -1 means that none is known */
    int64_t every_ms; /* how often this engine must send its heartbeat */
};

struct twi_lease;
/* One message. Its numbers are absolute, so sending it again does no harm. */
struct twi_lease_message {
    struct twi_lease *lease; /* NULL means that the message is about the epoch (leases.lua) */
    uint32_t store;  /* the index of the store that gets the message; the names in it are those of that store's epoch */
    uint64_t serial; /* for a message about the epoch: the serial number of the connection for which it was made */
    struct twi_item item; /* names the counter, for twi_port_render(), and has its expiry */
    int64_t limit, granted, target, need, returned, spent, spent_all;
    int64_t risk;    /* the value in the last reply */
    int64_t base;    /* the largest `returned` that an earlier incarnation has sent; -1: none or unknown */
    int64_t made_ms; /* monotonic: what the reply says was true at this time, or later */
    bool look, restate;
    uint32_t names;                /* how many ids the engine had before the message was made */
    bool leaves;                   /* for a message about the epoch: this engine has no lease any more and leaves */
    bool wants_members;            /* for a message about the epoch: the reply must also name the other engines */
    int64_t requested_since_ms;    /* epoch */
    char epoch[33], resent_in[33]; /* the values when this message was made */
};
/* The kind of Redis's reply. */
enum twi_lease_kind {
    TWI_LEASE_NUMBERS,  /* the reply has the numbers */
    TWI_LEASE_RESEND,   /* it was refused, or its outcome is unknown, so it is sent again */
    TWI_LEASE_ENDED,    /* there is another epoch now, so Redis changed nothing */
    TWI_LEASE_TOO_LATE, /* the window has ended by Redis's clock */
    TWI_LEASE_TWIN      /* another copy of this process uses the same id, so Redis changed nothing */
};
struct twi_lease_answer {
    enum twi_lease_kind kind;
    bool refused; /* with RESEND: Redis refused the message, so sending it again at once is useless */
    int64_t redis_ms;
    bool open; /* Redis may grant units */
    /* the numbers of a lease; `stranded` is -1 if the reply does not have it */
    int64_t granted, total, spent_all, stranded, risk;
    int64_t wait_ms;                    /* for a lease: for how long this engine is new */
    const char *id, *run, *incarnation; /* of the epoch */
    int64_t every_ms, changes;          /* of the epoch */
    /* for the epoch: the reply names all members, and not only the changes */
    bool whole;
};
/* Writes up to `count_max` messages to the store with that index, which the caller sends on the store's connection.
 * That connection has this serial number, which rises with each connection of the store. Each message gets exactly
 * one twi_port_lease_answered(), at the latest when that connection is lost. Until then its window stays in memory.
 * With several stores the engine takes part in the epoch of a store only while it has or requests a lease there. The
 * first request for such a lease creates the store (twi_port_stores()). */
/* Returns the first store, from that index on, from which sync must fetch messages about leases, and when they are
 * due. UINT32_MAX means that there is none. It may be a store that sync does not have yet. */
uint32_t twi_port_lease_next_store(tw_engine *engine, uint32_t from);
size_t twi_port_leases(tw_engine *engine, uint32_t index, uint64_t serial, struct twi_lease_message *messages,
                       size_t count_max);
void twi_port_lease_answered(tw_engine *engine, const struct twi_lease_message *message,
                             const struct twi_lease_answer *answer);
/* Called before the answer about the epoch of that store. It names another engine that takes part ('+'), or no
 * longer does. */
void twi_port_lease_other(tw_engine *engine, uint32_t store, const char *instance, bool takes_part);
/* Called before that answer, too. It says that other engines request units of the lease with this name in Redis. */
void twi_port_lease_requested(tw_engine *engine, uint32_t store, const char *name, size_t size);
/* Called if two copies of this process run and use the same names in Redis. From now on the engine has another id
 * (twin.c). Only the owner of the turn calls it. */
void twi_port_twin(tw_engine *engine);
const struct twi_lease_epoch *twi_port_lease_epoch(tw_engine *engine, uint32_t store);
/* Returns the monotonic time of the next message about leases to that store. INT64_MAX means that none is expected.
 * Call it only for stores that can be reached. */
int64_t twi_port_lease_due(tw_engine *engine, uint32_t index);

/* ---- messages about windows that one engine closes for all (engine/turn/closing.h, sync/message/closing.c) ---- */

struct twi_close_election;
enum twi_closing_verb {
    TWI_CLOSING_SEND_HEARTBEAT,
    TWI_CLOSING_SEND_LEAVE,
    TWI_CLOSING_SEND_LIST,
    TWI_CLOSING_SEND_CLAIM,
    TWI_CLOSING_SEND_LAST,
    TWI_CLOSING_SEND_READ,
    TWI_CLOSING_SEND_PASS,
    TWI_CLOSING_SEND_PARTIAL, /* the window was reported before its end */
    TWI_CLOSING_SEND_DONE,
    /* The next messages exist only if names are grouped by tag. They go to the set of names of one group. */
    TWI_CLOSING_SEND_ADD,
    TWI_CLOSING_SEND_FETCH,
    TWI_CLOSING_SEND_DROP
};
#define TWI_CLOSING_ENDS_MAX 16u
#define TWI_CLOSING_NAMES_MAX 128u
#define TWI_CLOSING_NAMES_BYTES_MAX 8192u
#define TWI_CLOSING_LISTED_MAX 8u
struct twi_closing_announcement {
    uint32_t count;
    struct {
        /* the times of a window, and the time from which an engine that has not counted in it may adopt it */
        int64_t start_ms, due_ms, expiry_ms;
    } at[TWI_CLOSING_LISTED_MAX];
};
/* One message. Sending it again does no harm. */
struct twi_closing_message {
    enum twi_closing_verb verb;
    tw_family *family;
    /* the election of the window; NULL means that there is none, or that the window no longer exists here */
    struct twi_close_election *election;
    int64_t start_ms, end_ms, expiry_ms;   /* the times of the window */
    int64_t floor_ms;                      /* the engine delays all windows that end later than this ... */
    int64_t ends_ms[TWI_CLOSING_ENDS_MAX]; /* ... and those that end at these times */
    uint32_t end_count;
    bool known;    /* Redis knew this engine before */
    bool flag;     /* in CLAIM and LIST: Redis has the names; in READ: the engine has a claim */
    bool through;  /* in CLAIM and LIST: an earlier message said that the engine does not delay the window */
    char scan[24]; /* READ, FETCH */
    int64_t life_ms, sent_ms;
    int64_t word_ms;       /* in HEARTBEAT: the engine's time when it wrote the list of windows that it delays */
    bool by_tag;           /* names are grouped by tag (closing_election.h), and LIST and READ are about the index */
    uint32_t group, round; /* the set of names, in ADD, FETCH and DROP */
    /* in CLAIM, LIST and ADD: this engine has recorded names of the window (twi_port_window_names()) */
    bool recorded;
    /* In PARTIAL: when other engines may adopt the window. In HEARTBEAT: a window that others could have adopted
     * before this time is forgotten. */
    int64_t look_ms;
    struct twi_closing_announcement announced; /* in HEARTBEAT by tag: windows in which this engine will count */
    uint32_t name_count;
    /* in LIST (by tag) and ADD; valid until the next message is requested. The caller has room for
     * TWI_CLOSING_NAMES_MAX */
    tw_key *names;
};
enum twi_closing_kind {
    TWI_CLOSING_REPLY_OK,
    TWI_CLOSING_REPLY_WAIT,
    TWI_CLOSING_REPLY_LIST,
    TWI_CLOSING_REPLY_OTHER,
    TWI_CLOSING_REPLY_YOU,
    TWI_CLOSING_REPLY_DONE,
    TWI_CLOSING_REPLY_LATE,   /* in LIST and DONE: the window was closed without some of the counts */
    TWI_CLOSING_REPLY_NEW,    /* Redis no longer lists this engine */
    TWI_CLOSING_REPLY_RESEND, /* the outcome is unknown, or Redis refused, so the message is sent again */
    TWI_CLOSING_REPLY_REFUSED
};
struct twi_closing_answer {
    enum twi_closing_kind kind;
    bool is_repeat;   /* in YOU: the window was reported earlier */
    const char *scan; /* in READ and FETCH: "0" means that all names were read */
    bool reads_all;   /* in YOU by tag: an engine has died and may have recorded names in other groups */
    bool lacks_names; /* in YOU by tag: counts were announced after the closing, so keys may be unknown */
    uint32_t round;   /* in LIST, CLAIM, LAST and DONE by tag: the round of the sets that get new names */
    int64_t every_ms; /* the interval of the heartbeat; 0 means that the reply does not have it */
};
/* Returns the next message. Returns false if there is none. Each message gets exactly one answer, at the latest when
 * the connection is lost. */
bool twi_port_closing(tw_engine *engine, struct twi_closing_message *message);
void twi_port_closing_answered(tw_engine *engine, const struct twi_closing_message *message,
                               const struct twi_closing_answer *answer);
/* Called before the answer to a HEARTBEAT. It names a window with counts that is not closed, by its start. */
void twi_port_closing_window(tw_engine *engine, const struct twi_closing_message *message, int64_t start_ms);
/* Called before the answer to a READ or a FETCH. It has one name, or one member of the index. */
void twi_port_closing_name(tw_engine *engine, const struct twi_closing_message *message, tw_key name);
#define TWI_CLOSING_KEYS 4
/* Writes four keys in Redis: of the engines of the family, of the window, of the window's names (or of the index, if
 * names are grouped by tag), and of the family's windows that are not closed. For ADD, FETCH and DROP it writes the key
 * of the set. All of them are in one key slot. Each has room for TWI_OWN_NAME_MAX bytes. Returns how many there are. */
size_t twi_port_closing_keys(const struct twi_closing_message *message, char (*keys)[TWI_OWN_NAME_MAX], size_t *sizes);
/* Called in families whose names are grouped by tag, if a store of this engine was empty a short time ago. Other
 * engines may have to send again the counts that the store had, and may not have noticed that yet. No window is
 * closed before this time (monotonic). */
void twi_port_closing_pause(tw_engine *engine, int64_t until_ms);
/* Returns the monotonic time of the next message. INT64_MAX means that none is expected. */
int64_t twi_port_closing_due(tw_engine *engine);

/* ---- the state of Redis and of other engines (engine/core/peers.h). The turn only ---- */

/* Reports whether Redis answers. With several stores, it reports whether some of them answer.
 * tw_stats.redis_connected is 1 only if, in addition, no store is unreachable. */
void twi_port_connected(tw_engine *engine, bool is_connected);
/* Reports since when that store has failed to answer (monotonic ms). 0 means that it answers, or was never tried.
 * sync calls it for each store in each turn. It costs one load if the value has not changed. A store that is not
 * known yet (twi_port_store()) counts as unreachable only while all others are unreachable. */
void twi_port_outage(tw_engine *engine, uint32_t store, int64_t since_ms);
/* Reports Redis's clock minus engine time, in ms. */
void twi_port_clock_offset(tw_engine *engine, int64_t offset_ms);
/* Reports the number of live engines, including this one, from the last reply. 0 means unknown (decisions use 1). */
void twi_port_live_engines(tw_engine *engine, uint32_t count);

#endif
