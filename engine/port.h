/* port.h -- everything sync/ may see of the engine, and everything the engine asks of sync/.
 *
 * The engine never includes a header of sync/: it finds a driver through twi_driver_find(), which sync/driver.c defines
 * (or engine/driver_none.c in a build without Redis). sync/ reaches counters through the items it collects here.
 *
 * Threads: everything here is called by the owner of the turn (one thread at a time, see engine.h), except where noted.
 * Always true: an item that was collected is settled exactly once (acknowledged, returned or given up), and from its
 * collection until then its generation stays in memory. */
#ifndef TWI_PORT_H
#define TWI_PORT_H

#include "engine/report.h"
#include "engine/why.h"
#include "tallywheel.h"

struct twi_generation;
struct twi_cell;
struct twi_sync;      /* sync/'s own state, one per engine */
struct twi_transport; /* sync/link.h: sockets, or a simulator's */

/* ---- what sync/ asks of the engine
 * ----------------------------------------------------------------------------------- */

enum {
    /* this engine has not yet had this counter acknowledged: its expiry must be looked after */
    TWI_ITEM_FIRST = 1,
    TWI_ITEM_FROM_FIRST = 2, /* the key's life: expiry_ms is where we think it ends; Redis's answer decides (adopted) */
    TWI_ITEM_OVERFLOW = 4,
    TWI_ITEM_PART = 8 /* of a gauge (gauge.c): not for a batch. `units` is all that this engine counts */
};

/* One counter's share of a batch. Plain data: copied freely, frozen by whoever holds it. */
struct twi_item {
    tw_family *family;
    struct twi_generation *generation;
    struct twi_cell *cell;
    int64_t delta;     /* 0: only the total is asked for */
    int64_t expiry_ms; /* absolute Unix ms by Redis's clock at which the key dies in Redis; 0: never */
    uint32_t flags;    /* TWI_ITEM_* */
    int64_t units;     /* TWI_ITEM_PART */
};

#define TWI_TICK_MS 5u /* the background thread looks at the clock, and makes a turn, this often, idle too */

/* a rendered name, prefix included; tw_family_open() refuses templates that could pass it */
#define TWI_REDIS_KEY_MAX 2048

/* Takes up to `count_max` counters that owe Redis something (or whose total was asked for): each one's delta is frozen
 * into its item (`handed` advances). Closed windows first, a quarter kept for open ones. Returns how many; fewer than
 * count_max means that a full collection has been completed. */
size_t twi_port_collect(tw_engine *engine, struct twi_item *items, size_t count_max);
/* Counters near their limit, which are not to wait for the interval (share.h): at most TWI_NEAR_MAX. */
#define TWI_NEAR_MAX 64u
size_t twi_port_collect_near(tw_engine *engine, struct twi_item *items);
bool twi_port_is_near(tw_engine *engine); /* there may be such */
/* The ticket of tw_flush: begins a full collection of every delta whose add had returned before this call. An adder may
 * be between its add and its mark, so a grace period must pass first (trap E10): go on collecting turn by turn until
 * twi_port_collect_is_done() says true; then all of them are in items that have been returned by twi_port_collect(). */
void twi_port_collect_begin(tw_engine *engine);
bool twi_port_collect_is_done(tw_engine *engine);
/* True if a counter has been marked since the last full collection (cheap; may be true for nothing). */
bool twi_port_is_dirty(tw_engine *engine);
/* The Redis key of an item (prefix and template rendered), not terminated. Returns its size, <= TWI_REDIS_KEY_MAX. */
size_t twi_port_render(const struct twi_item *item, char *out);
/* The name of what we keep beside that key: "tw:", `what`, ":" in front of it, behind the prefix. `what` has at most 8 letters; `out`
 * has room for TWI_OWN_NAME_MAX bytes. */
size_t twi_port_render_own(const struct twi_item *item, const char *what, char *out);
#define TWI_OWN_NAME_MAX (TWI_REDIS_KEY_MAX + 16)
/* The user's key, and the window, for reports. */
tw_key twi_port_key(const struct twi_item *item);
int64_t twi_port_start_ms(const struct twi_item *item);

/* What Redis answered for one item. */
struct twi_answer {
    int64_t total;  /* the key's value after the batch was applied */
    bool has_total; /* false: no total came with it, or it must not be taken (a replay is under way) */
    int64_t end_ms; /* from-first: when the key dies, by our clock; 0: not told */
};
/* Redis has applied the item's delta: acked += delta, base = total - acked. */
void twi_port_acknowledge(const struct twi_item *item, const struct twi_answer *answer);
/* Redis has certainly not applied it: the delta goes back (handed -= delta) and will be collected again, not before
 * `after_ms` have passed (0: at the next collection). */
void twi_port_return(const struct twi_item *item, uint32_t after_ms);
/* It will not be sent again: settled, and reported to on_lost with TW_LOST_* (and to the statistics). */
void twi_port_give_up(const struct twi_item *item, int reason);

/* Gauges, and what tw_hold() holds: everything is to be said again, now (a connection was lost, Redis may have forgotten). */
void twi_port_parts_again(tw_engine *engine);
/* One of tw_hold()'s holds that is to be said again. False: none is. Any thread. */
struct twi_hold_part {
    char name[TWI_OWN_NAME_MAX]; /* of the set in Redis */
    size_t name_size;
    char member[56];
};
bool twi_port_hold_due(tw_engine *engine, struct twi_hold_part *part);
/* Those that were due since the last time are one statement, and on their way; the oldest one on its way was answered, or lost. */
void twi_port_holds_sent(tw_engine *engine);
void twi_port_holds_told(tw_engine *engine);
/* A key of which something was reserved that is over by now (stock.lua, sweep). Each is told when the next one is over, in ms; -1:
 * there is none. Any thread. */
struct twi_sweep {
    uint64_t serial;
    size_t sizes[3];
    char names[3][TWI_OWN_NAME_MAX]; /* of the counter, its stock, and when reservations return */
};
bool twi_port_sweep_due(tw_engine *engine, struct twi_sweep *sweep);
void twi_port_sweep_told(tw_engine *engine, uint64_t serial, int64_t wait_ms);
/* How long a part lives in Redis unless it is said again; tests shorten it. */
extern _Atomic int64_t twi_part_life_ms;

/* Redis was found to have forgotten: that a total is lower than it was is explained. */
void twi_port_forgotten(tw_engine *engine);
/* Redis holds nothing any more of what it ever acknowledged to this engine: all that living counters contributed is owed
 * again, once, except for what was given up. No item may be in a batch. Returns the units that no counter holds any more,
 * though their windows lived in Redis. Then, turn by turn, twi_port_restore_some() until it answers false (nothing is left);
 * nothing may be collected before that. Begun again in between, it begins anew. */
uint64_t twi_port_restore(tw_engine *engine);
bool twi_port_restore_some(tw_engine *engine);

/* ---- hard limits: what is said of leases (engine/lease.h, sync/lease.c) ---- */

#define TWI_LEASE_OTHERS_MAX 100u
/* An epoch is the time in which Redis has surely forgotten no grant: ended by another store, also an empty one. */
struct twi_lease_epoch {
    char instance[33];                     /* who we are in it */
    char id[33];                           /* "": none known */
    char run[41];                          /* the history of the store it was begun in; "": not known */
    char said[33];                         /* the epoch in which we have said everything again */
    char life[33];                         /* ours, as Redis calls it; "": not told */
    char others[TWI_LEASE_OTHERS_MAX][33]; /* that take part, as far as we were told */
    uint32_t other_count;
    int64_t changes;  /* who came and went, up to this one, is known; -1: nothing is */
    int64_t every_ms; /* how often we are to come */
};

struct twi_lease;
/* One thing to say. Absolute numbers: saying it again is harmless. */
struct twi_lease_ask {
    struct twi_lease *lease; /* NULL: of the epoch (leases.lua) */
    struct twi_item item;    /* names the counter, for twi_port_render(); its expiry */
    int64_t limit, granted, target, need, returned, spent, spent_all;
    int64_t risk; /* as it was told */
    int64_t base; /* returned, as it was said at most in a life before; -1: there is none, or it is unknown */
    bool look, restate;
    bool leaves;              /* of the epoch: nothing is held any more */
    bool tells;               /* of the epoch: the others are named, too */
    int64_t wanted_since_ms;  /* of the epoch */
    char epoch[33], said[33]; /* as they were when this was said */
};
/* What Redis said to it. */
enum twi_lease_kind {
    TWI_LEASE_TOLD,    /* the numbers are there */
    TWI_LEASE_AGAIN,   /* refused, or of unknown outcome: it is said again */
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
    const char *id, *run, *life;                       /* of the epoch */
    int64_t every_ms, changes;                         /* of the epoch */
    bool whole;                                        /* of the epoch: who was named is all, not what has changed */
};
/* Up to `count_max` things to say on the connection of that serial number (which rises with each connection). Each is answered
 * exactly once by twi_port_lease_told(), at the latest when that connection is lost; until then its window stays. */
size_t twi_port_leases(tw_engine *engine, uint64_t serial, struct twi_lease_ask *asks, size_t count_max);
void twi_port_lease_told(tw_engine *engine, const struct twi_lease_ask *ask, const struct twi_lease_answer *answer);
/* Before the answer of an epoch: the lease of the counter with that Redis key (without the prefix) is wanted by others. */
/* Another engine that takes part, or does no more. */
void twi_port_lease_other(tw_engine *engine, const char *instance, bool takes_part);
void twi_port_lease_wanted(tw_engine *engine, const char *name, size_t size);
const struct twi_lease_epoch *twi_port_lease_epoch(tw_engine *engine);
/* Monotonic ms at which there will be something to say of leases; INT64_MAX: nothing is known of. */
int64_t twi_port_lease_due(tw_engine *engine);
/* Since when Redis has failed to answer (monotonic ms; 0: it answers, or was never tried). */
void twi_port_lease_away(tw_engine *engine, int64_t since_ms);

/* ---- windows that one engine closes for all: what is said of them (engine/closing.h, sync/closers.c) ---- */

struct twi_closer;
enum twi_closing_verb {
    TWI_CLOSING_SAY_WORD,
    TWI_CLOSING_SAY_COME, /* the first word */
    TWI_CLOSING_SAY_LEAVE,
    TWI_CLOSING_SAY_LIST,
    TWI_CLOSING_SAY_ASK,
    TWI_CLOSING_SAY_LAST,
    TWI_CLOSING_SAY_READ,
    TWI_CLOSING_SAY_PASS,
    TWI_CLOSING_SAY_PART, /* it was told before its time */
    TWI_CLOSING_SAY_DONE
};
#define TWI_CLOSING_ENDS_MAX 16u
#define TWI_CLOSING_NAMES_MAX 128u
#define TWI_CLOSING_NAMES_BYTES_MAX 8192u
/* One thing to say. Saying it again is harmless. */
struct twi_closing_say {
    enum twi_closing_verb verb;
    tw_family *family;
    struct twi_closer *closer;             /* whose window it is of; NULL: of none, or of one that is no longer held */
    int64_t start_ms, end_ms, expiry_ms;   /* of the window */
    int64_t floor_ms;                      /* it holds up all windows that end later than this ... */
    int64_t ends_ms[TWI_CLOSING_ENDS_MAX]; /* ... and those that end here */
    uint32_t end_count;
    bool known;    /* Redis was told of us before */
    bool flag;     /* ASK: the names are listed; READ: under a claim */
    bool through;  /* LIST, ASK: it has been said before that the window is not held up */
    char scan[24]; /* READ */
    int64_t life_ms, said_ms;
    uint32_t name_count;
    tw_key names[TWI_CLOSING_NAMES_MAX]; /* LIST: as long as the turn's work on it lasts */
};
enum twi_closing_kind {
    TWI_CLOSING_TOLD_OK,
    TWI_CLOSING_TOLD_WAIT,
    TWI_CLOSING_TOLD_LIST,
    TWI_CLOSING_TOLD_OTHER,
    TWI_CLOSING_TOLD_YOU,
    TWI_CLOSING_TOLD_DONE,
    TWI_CLOSING_TOLD_LATE,  /* LIST, DONE: it was closed without something that was counted */
    TWI_CLOSING_TOLD_NEW,   /* Redis does not know us any more */
    TWI_CLOSING_TOLD_AGAIN, /* of unknown outcome, or refused: say it again */
    TWI_CLOSING_TOLD_REFUSED
};
struct twi_closing_answer {
    enum twi_closing_kind kind;
    bool again;       /* YOU: it was told before */
    const char *scan; /* READ: "0": all was read */
    int64_t every_ms; /* how often the word is to be said; 0: not told */
};
/* The next thing to say. False: none. Each is answered exactly once, at the latest when the connection is lost. */
bool twi_port_closing(tw_engine *engine, struct twi_closing_say *say);
void twi_port_closing_told(tw_engine *engine, const struct twi_closing_say *say,
                           const struct twi_closing_answer *answer);
/* Before the answer of a COME: a window that was told before its time, by its start. */
void twi_port_closing_part(tw_engine *engine, const struct twi_closing_say *say, int64_t start_ms);
/* Before the answer of a READ: a name. */
void twi_port_closing_name(tw_engine *engine, const struct twi_closing_say *say, tw_key name);
/* The keys in Redis: of the family's engines, of the window, of its names. Each has room for TWI_OWN_NAME_MAX bytes. */
void twi_port_closing_keys(const struct twi_closing_say *say, char (*keys)[TWI_OWN_NAME_MAX], size_t *sizes);
/* Monotonic ms at which there will be something to say; INT64_MAX: nothing is known of. */
int64_t twi_port_closing_due(tw_engine *engine);

/* How many engines live, this one included, as Redis last told; 0: it is not known (decided upon as if it were 1). */
void twi_port_live(tw_engine *engine, uint32_t count);

const char *twi_port_prefix(tw_engine *engine); /* redis_prefix, or "" */
int64_t twi_port_wall_ms(tw_engine *engine);    /* engine time */
int64_t twi_port_mono_ms(tw_engine *engine);
int64_t twi_port_mono_us(tw_engine *engine); /* the same clock, as fine as it is: not the system's coarse one */
/* Unpredictable bytes (getrandom); in a simulator the engine's seeded generator. */
void twi_port_random(tw_engine *engine, void *out, size_t size);
/* ---- what the engine asks of sync/
 * ----------------------------------------------------------------------------------- */

/* What an engine knows of its own ledger. */
struct twi_audit_own {
    char ledger[512]; /* its name; "": none is known */
    uint64_t number, plus, minus;
};

/* tw_audit(), checked, with what only the engine knows. */
struct twi_audit {
    const tw_audit_options *options; /* url and prefix are the engine's, where there is one */
    int (*password)(void *ctx, char *out, size_t size);
    void *password_ctx;
    const char *const *patterns; /* of keys that must end */
    size_t pattern_count;
    struct twi_audit_own own;
    int64_t (*mono_ms)(void);           /* the system's */
    bool (*goes_on)(tw_engine *engine); /* false: the engine is being closed */
    tw_engine *engine;                  /* for it alone; may be NULL */
    void (*found)(void *ctx, const tw_finding *finding);
    void *ctx;
    tw_audit_report *report;
};

/* ---- questions that a caller waits for (sync/ask.c): one run of a script over keys of one slot */

enum twi_script {
    TWI_SCRIPT_STRICT,
    TWI_SCRIPT_PACED,
    TWI_SCRIPT_ONCE,
    TWI_SCRIPT_LOCK,
    TWI_SCRIPT_STOCK,
    TWI_SCRIPT_HOLD,
    TWI_SCRIPT_RECLAIM,
    TWI_SCRIPTS
};

enum twi_asked {
    TWI_ASKED_DONE,    /* `said` is Redis's answer */
    TWI_ASKED_REFUSED, /* Redis would not have it: surely not executed */
    TWI_ASKED_UNKNOWN, /* perhaps executed */
    TWI_ASKED_AWAY     /* Redis could not be asked: surely not executed */
};

/* One element of an answer. */
struct twi_said {
    bool is_number, is_nil;
    int64_t number; /* also of a text that spells one */
    size_t size;
    char text[80]; /* with a NUL */
};
#define TWI_SAID_MAX 8u

struct twi_ask {
    enum twi_script script;
    const tw_key *keys, *args; /* args: from the script's ARGV[4] on; ask.h has the first three */
    size_t key_count, arg_count;
    int64_t deadline_ms; /* monotonic */
    /* Upon TWI_ASKED_UNKNOWN the script is told "never mind" before anything else goes over the same connection: whatever it
     * has charged for this call is taken back, once, and a copy of it that comes late does nothing. */
    bool numbered;
    struct twi_said said[TWI_SAID_MAX]; /* behind the number of the call */
    size_t said_count;
    /* Asked for: the last text of the answer, which may be longer than `said` has room; the caller frees it, whatever came of it. */
    bool wants_long;
    char *long_text; /* not terminated */
    size_t long_size;
};

enum twi_ticket { TWI_TICKET_OPEN, TWI_TICKET_DONE, TWI_TICKET_REFUSED };

struct twi_driver {
    /* Checks the Redis options, allocates; no socket yet. On error writes what is wrong to options->error_text.
     * `transport` is NULL except in a simulator. */
    tw_status (*create)(tw_engine *engine, const tw_options *options, const struct twi_transport *transport,
                        void *transport_ctx, struct twi_sync **sync);
    /* one bounded round: connect, collect, send, receive; never waits */
    void (*turn)(struct twi_sync *sync);
    int (*fd)(const struct twi_sync *sync, bool *wants_write); /* -1: none; any thread */
    /* monotonic ms at which turn() wants to run next, readiness of fd apart */
    int64_t (*wake_ms)(const struct twi_sync *sync);
    uint64_t (*ticket_take)(struct twi_sync *sync); /* a flush: begins a full collection; any thread */
    enum twi_ticket (*ticket_state)(struct twi_sync *sync, uint64_t ticket); /* any thread */
    void (*stats)(const struct twi_sync *sync, tw_stats *stats);             /* any thread */
    /* Closes the socket and settles every item it holds: twi_port_give_up(TW_LOST_CLOSED). Then frees. */
    void (*destroy)(struct twi_sync *sync);
    /* In a forked child: closes the inherited socket unsaid and frees without settling anything. */
    void (*abandon)(struct twi_sync *sync);
    void (*own)(const struct twi_sync *sync, struct twi_audit_own *own); /* by the owner of the turn */
    tw_status (*audit)(const struct twi_audit *audit);                   /* without an engine; any thread; waits */
    enum twi_asked (*ask)(struct twi_sync *sync, struct twi_ask *ask);   /* any thread; waits */
    void (*ask_stop)(struct twi_sync *sync); /* whoever waits is answered at once, from now on. Any thread */
};
/* NULL: built without Redis. */
const struct twi_driver *twi_driver_find(void);

/* For simulators and tests: tw_open() with a transport of theirs, and the seed of twi_port_random() (0: the
 * system's). */
tw_status twi_open_with(const tw_options *options, const struct twi_transport *transport, void *transport_ctx,
                        uint64_t random_seed, tw_engine **out);

#endif
