/* messages.h -- the contract of engine and sync/ on what is said beside counters: gauges and holds that are present, reservations
 * that are over, leases of hard limits, windows that one engine closes, and how many engines live.
 *
 * The engine says what is to be sent; sync/ sends it in order over the batches' connection, and tells what came of it.
 * Threads: everything here is called by the owner of the turn (one thread at a time, see state.h), except where noted.
 * Always true: each thing to say is absolute, so saying it again is harmless; each is answered exactly once, at the latest when
 * its connection is lost. */
#ifndef TWI_PORT_MESSAGES_H
#define TWI_PORT_MESSAGES_H

#include "engine/port/items.h"

/* ---- what is present, and what is over ---- */

/* Gauges, and what tw_hold() holds: everything is to be said again, now (a connection was lost, Redis may have forgotten). */
void twi_port_presence_resend(tw_engine *engine);
/* One of tw_hold()'s holds that is to be said again. False: none is. Any thread. */
struct twi_hold_member {
    char name[TWI_OWN_NAME_MAX]; /* of the set in Redis */
    size_t name_size;
    char member[56];
};
bool twi_port_hold_due(tw_engine *engine, struct twi_hold_member *part);
/* Those that were due since the last time are one statement, and on their way; the oldest one on its way was answered, or lost. */
void twi_port_holds_sent(tw_engine *engine);
void twi_port_holds_answered(tw_engine *engine);
/* A key of which something was reserved that is over by now (reserve.lua, sweep). Each is told when the next one is over, in ms; -1:
 * there is none. Any thread. */
struct twi_sweep {
    uint64_t serial;
    size_t sizes[3];
    char names[3][TWI_OWN_NAME_MAX]; /* of the counter, its stock, and when reservations return */
};
bool twi_port_sweep_due(tw_engine *engine, struct twi_sweep *sweep);
void twi_port_sweep_answered(tw_engine *engine, uint64_t serial, int64_t wait_ms);
/* How long a part lives in Redis unless it is said again; tests shorten it. */
extern _Atomic int64_t twi_presence_life_ms;

/* ---- hard limits: what is said of leases (engine/limit/lease.h, sync/message/lease.c) ---- */

#define TWI_LEASE_OTHERS_MAX 100u
/* An epoch is the time in which Redis has surely forgotten no grant: ended by another store, also an empty one. */
struct twi_lease_epoch {
    char instance[33];                     /* who we are in it */
    char id[33];                           /* "": none known */
    char run[41];                          /* the history of the store it was begun in; "": not known */
    char resent_in[33];                    /* the epoch in which we have said everything again */
    char incarnation[33];                  /* ours, as Redis calls it; "": not told */
    char others[TWI_LEASE_OTHERS_MAX][33]; /* that take part, as far as we were told */
    uint32_t other_count;
    int64_t changes;  /* who came and went, up to this one, is known; -1: nothing is */
    int64_t every_ms; /* how often we are to come */
};

struct twi_lease;
/* One thing to say. Absolute numbers: saying it again is harmless. */
struct twi_lease_message {
    struct twi_lease *lease; /* NULL: of the epoch (leases.lua) */
    struct twi_item item;    /* names the counter, for twi_port_render(); its expiry */
    int64_t limit, granted, target, need, returned, spent, spent_all;
    int64_t risk; /* as it was told */
    int64_t base; /* returned, as it was said at most in a life before; -1: there is none, or it is unknown */
    bool look, restate;
    bool leaves;                   /* of the epoch: nothing is held any more */
    bool wants_members;            /* of the epoch: the others are named, too */
    int64_t requested_since_ms;    /* of the epoch */
    char epoch[33], resent_in[33]; /* as they were when this was said */
};
/* What Redis said to it. */
enum twi_lease_kind {
    TWI_LEASE_NUMBERS, /* the numbers are there */
    TWI_LEASE_RESEND,  /* refused, or of unknown outcome: it is said again */
    TWI_LEASE_ENDED,   /* another epoch: nothing was done */
    TWI_LEASE_TOO_LATE /* the window is dead by Redis's clock */
};
struct twi_lease_answer {
    enum twi_lease_kind kind;
    bool refused; /* AGAIN: by Redis; it will hardly think better of it at once */
    int64_t redis_ms;
    bool open;                                         /* grants may be given */
    int64_t granted, total, spent_all, stranded, risk; /* of a lease; stranded -1: not told */
    int64_t wait_ms;                                   /* of a lease: this engine is new for so long */
    const char *id, *run, *incarnation;                /* of the epoch */
    int64_t every_ms, changes;                         /* of the epoch */
    bool whole;                                        /* of the epoch: who was named is all, not what has changed */
};
/* Up to `count_max` things to say on the connection of that serial number (which rises with each connection). Each is answered
 * exactly once by twi_port_lease_answered(), at the latest when that connection is lost; until then its window stays.
 * */
size_t twi_port_leases(tw_engine *engine, uint64_t serial, struct twi_lease_message *messages, size_t count_max);
void twi_port_lease_answered(tw_engine *engine, const struct twi_lease_message *message,
                             const struct twi_lease_answer *answer);
/* Before the answer of an epoch: the lease of the counter with that Redis key (without the prefix) is wanted by others. */
/* Another engine that takes part, or does no more. */
void twi_port_lease_other(tw_engine *engine, const char *instance, bool takes_part);
void twi_port_lease_requested(tw_engine *engine, const char *name, size_t size);
const struct twi_lease_epoch *twi_port_lease_epoch(tw_engine *engine);
/* Monotonic ms at which there will be something to say of leases; INT64_MAX: nothing is known of. */
int64_t twi_port_lease_due(tw_engine *engine);
/* Since when Redis has failed to answer (monotonic ms; 0: it answers, or was never tried). */
void twi_port_lease_outage(tw_engine *engine, int64_t since_ms);

/* ---- windows that one engine closes for all: what is said of them (engine/turn/closing.h, sync/message/closing.c) ---- */

struct twi_close_election;
enum twi_closing_verb {
    TWI_CLOSING_SEND_HEARTBEAT,
    TWI_CLOSING_SEND_JOIN, /* the first word */
    TWI_CLOSING_SEND_LEAVE,
    TWI_CLOSING_SEND_LIST,
    TWI_CLOSING_SEND_CLAIM,
    TWI_CLOSING_SEND_LAST,
    TWI_CLOSING_SEND_READ,
    TWI_CLOSING_SEND_PASS,
    TWI_CLOSING_SEND_PARTIAL, /* it was told before its time */
    TWI_CLOSING_SEND_DONE
};
#define TWI_CLOSING_ENDS_MAX 16u
#define TWI_CLOSING_NAMES_MAX 128u
#define TWI_CLOSING_NAMES_BYTES_MAX 8192u
/* One thing to say. Saying it again is harmless. */
struct twi_closing_message {
    enum twi_closing_verb verb;
    tw_family *family;
    struct twi_close_election *election;   /* whose window it is of; NULL: of none, or of one that is no longer held */
    int64_t start_ms, end_ms, expiry_ms;   /* of the window */
    int64_t floor_ms;                      /* it holds up all windows that end later than this ... */
    int64_t ends_ms[TWI_CLOSING_ENDS_MAX]; /* ... and those that end here */
    uint32_t end_count;
    bool known;    /* Redis was told of us before */
    bool flag;     /* ASK: the names are listed; READ: under a claim */
    bool through;  /* LIST, ASK: it has been said before that the window is not held up */
    char scan[24]; /* READ */
    int64_t life_ms, sent_ms;
    uint32_t name_count;
    tw_key names[TWI_CLOSING_NAMES_MAX]; /* LIST: as long as the turn's work on it lasts */
};
enum twi_closing_kind {
    TWI_CLOSING_REPLY_OK,
    TWI_CLOSING_REPLY_WAIT,
    TWI_CLOSING_REPLY_LIST,
    TWI_CLOSING_REPLY_OTHER,
    TWI_CLOSING_REPLY_YOU,
    TWI_CLOSING_REPLY_DONE,
    TWI_CLOSING_REPLY_LATE,   /* LIST, DONE: it was closed without something that was counted */
    TWI_CLOSING_REPLY_NEW,    /* Redis does not know us any more */
    TWI_CLOSING_REPLY_RESEND, /* of unknown outcome, or refused: say it again */
    TWI_CLOSING_REPLY_REFUSED
};
struct twi_closing_answer {
    enum twi_closing_kind kind;
    bool is_repeat;   /* YOU: it was told before */
    const char *scan; /* READ: "0": all was read */
    int64_t every_ms; /* how often the word is to be said; 0: not told */
};
/* The next thing to say. False: none. Each is answered exactly once, at the latest when the connection is lost. */
bool twi_port_closing(tw_engine *engine, struct twi_closing_message *message);
void twi_port_closing_answered(tw_engine *engine, const struct twi_closing_message *message,
                               const struct twi_closing_answer *answer);
/* Before the answer of a COME: a window that was told before its time, by its start. */
void twi_port_closing_partial(tw_engine *engine, const struct twi_closing_message *message, int64_t start_ms);
/* Before the answer of a READ: a name. */
void twi_port_closing_name(tw_engine *engine, const struct twi_closing_message *message, tw_key name);
/* The keys in Redis: of the family's engines, of the window, of its names. Each has room for TWI_OWN_NAME_MAX bytes. */
void twi_port_closing_keys(const struct twi_closing_message *message, char (*keys)[TWI_OWN_NAME_MAX], size_t *sizes);
/* Monotonic ms at which there will be something to say; INT64_MAX: nothing is known of. */
int64_t twi_port_closing_due(tw_engine *engine);

/* ---- engines ---- */

/* How many engines live, this one included, as Redis last told; 0: it is not known (decided upon as if it were 1). */
void twi_port_live_engines(tw_engine *engine, uint32_t count);

#endif
