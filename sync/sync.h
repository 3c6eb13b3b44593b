/* sync.h -- the state of one engine's sync, shared by the files of this folder and by nobody else.
 *
 *   DOWN --back-off over--> CONNECTING --connected--> GREETING --answered--> OPENING (new instance) --> UP
 *     ^------------------------ any error, any deadline -----------------------------------------------'
 * Owner: whoever owns the turn; one thread at a time. Fields marked "any thread" are atomics.
 * Always true: every item collected is in exactly one batch of the ledger's list, or has been settled; in flight are
 * only batches of the list, in the order of their numbers. */
#ifndef TWI_SYNC_H
#define TWI_SYNC_H

#include "engine/port.h"
#include "sync/ask.h"
#include "sync/batch.h"
#include "sync/breaker.h"
#include "sync/closers.h"
#include "sync/depth.h"
#include "sync/ledger.h"
#include "sync/link.h"
#include "sync/live.h"
#include "sync/pace.h"
#include "sync/parts.h"
#include "sync/poison.h"
#include "sync/side.h"
#include "sync/ticket.h"
#include "sync/url.h"
#include "sync/wire.h"

#define TWI_LEASES_MAX 32u /* words on leases in flight: each takes Redis some 20 microseconds */
/* Replies awaited: a greeting (5), an opening, the pipeline twice, a rewrite; leases, each with a WAIT at worst; parts of gauges;
 * side scripts. */
#define TWI_PENDING_MAX (16u + 2 * TWI_LEASES_MAX + TWI_PARTS_MAX + TWI_SIDES_MAX)
#define TWI_REWRITE_TRIES 3u  /* each perhaps done: a rewrite more does no harm, one for ever would */
#define TWI_FORMERS 4u        /* a store that comes back after four others is told by its marker */
#define TWI_REFUSALS_SAID 8u  /* different refusals in one outage; more than that come again */
#define TWI_STORES_KNOWN 8u   /* a store that comes back after eight wipes is taken for a new one */
#define TWI_WAIT_SLACK_MS 250 /* Redis looks at whose WAIT is over ten times a second, and may be late for that */
#define TWI_RECEIVE_BYTES_MAX (1u << 20) /* per turn */

enum twi_phase { TWI_DOWN, TWI_CONNECTING, TWI_GREETING, TWI_OPENING, TWI_UP };
enum twi_command {
    TWI_AUTH,
    TWI_SELECT,
    TWI_PING,
    TWI_INFO,
    TWI_CONFIG,
    TWI_REWRITE,
    TWI_TIME,
    TWI_WAIT,
    TWI_LEASE,
    TWI_LEASE_WAIT,
    TWI_PARTS_SAID,
    TWI_SIDE,
    TWI_OPEN,
    TWI_BATCH,
    TWI_PLAIN, /* a batch without a script, of many replies */
    TWI_REPAIR
};

struct twi_pending {
    enum twi_command command;
    struct twi_batch *batch; /* OPEN, BATCH, PLAIN */
    uint32_t replies;        /* still to come */
    int64_t sent_ms;         /* when its last byte went out; 0: not yet */
    int64_t wall_ms;         /* engine time of that */
    int64_t sent_us;         /* the same moment, finer; 0: not yet, or not `alone` */
    uint64_t out_end;        /* where it ends, counted in bytes of this connection */
    bool alone;              /* nothing else was under way: its answer tells how far Redis is */
};

/* A batch that goes without a script, while its answers come (plain.c). */
struct twi_plain {
    uint32_t stage, item, step; /* what the next reply answers: which part, whose, which of its commands */
    uint32_t commands;          /* of all its items */
    uint32_t kept;              /* items before `item` that are to be sent again, at the front */
    bool in_multi, refused, turned_away;
    bool over; /* nothing more is to be said of this item */
    struct twi_item_answer said;
    uint32_t unhealed;
    int64_t redis_ms;
    uint64_t out_begin; /* where it begins, counted in bytes of this connection */
    struct twi_bytes repairs;
    uint32_t repair_count;
};

/* What was said of leases and is not told yet: a ring, the oldest first (lease.c). */
struct twi_lease_pending {
    struct twi_lease_ask ask;
    struct twi_lease_answer answer; /* of those that are held */
    char id[33], run[41], life[33]; /* what it names */
};
struct twi_lease_link {
    struct twi_lease_pending ring[TWI_LEASES_MAX];
    uint32_t first, count;
    uint32_t held;    /* the first so many are answered, and wait for the replicas */
    uint32_t waiting; /* replies under way */
    bool use_eval[2]; /* the next one goes with its script */
};

struct twi_sync {
    /* set before sharing */
    tw_engine *engine;
    const struct twi_transport *transport;
    void *transport_ctx;
    struct twi_link *link; /* ours, when no transport was given */
    struct twi_asks *asks; /* of those who wait; NULL: nobody may (host-driven, a transport was given) */
    struct twi_url url;
    int (*password)(void *ctx, char *out, size_t size);
    void *password_ctx;
    char name[300]; /* where Redis is, for log lines */
    char marker_name[TWI_LEDGER_NAME_MAX];
    size_t marker_name_size;
    uint32_t interval_ms, timeout_ms;
    uint32_t merge; /* TW_MERGE_* */

    /* the connection */
    enum twi_phase phase;
    int64_t phase_deadline_ms;
    struct twi_breaker breaker;
    struct twi_bytes out; /* commands; from out_at on they have not gone out */
    size_t out_at;
    uint64_t out_sent;    /* bytes of this connection that have */
    int64_t out_moved_ms; /* when bytes last went out, or began to wait */
    struct twi_reader *reader;
    struct twi_pending pending[TWI_PENDING_MAX]; /* a ring; the oldest first */
    uint32_t pending_first, pending_count;
    int64_t reply_ms;  /* when the last reply came */
    int64_t turned_ms; /* when this turn began, or the last one */
    int64_t late_ms;   /* while the oldest reply is awaited turns came so much too late: that time is not Redis's */
    bool own_thread;   /* turns come every tick, whatever wake_ms says */
    bool lost_logged;  /* this outage has had its line */
    uint64_t refusals_said[TWI_REFUSALS_SAID]; /* hashes of lines on what Redis refuses: each comes once an outage */
    uint32_t refusals_next;
    bool checked;           /* the start-up checks have had their lines */
    bool may_restore;       /* the eviction policy is known not to drop ledgers and markers alike */
    bool is_seven;          /* Redis 7 or later, as far as it says */
    bool has_aof;           /* it keeps an append-only file, as far as it says */
    bool rewriting;         /* asked for; the answer is under way */
    uint32_t rewrites_owed; /* tries left of having that file written anew, after Redis went back */

    char run[41];        /* the server's run_id, as it says; "": it does not */
    bool has_other_keys; /* another database of it holds keys, as of the greeting */
    uint64_t serial;     /* of this connection */
    struct twi_lease_link leases;
    struct twi_parts parts;
    struct twi_sides sides;
    struct twi_live live;
    struct twi_closers closers;

    /* replicas */
    uint32_t wait_replicas; /* 0: nobody asks */
    uint32_t waits;         /* questions under way */
    uint64_t wrote_number;  /* the last batch that this connection has written; 0: none yet */
    int64_t wait_at_ms;     /* the next question, where nothing new is sent */
    uint32_t short_run;
    bool short_logged; /* replicas lag, and the log says so */

    /* batches */
    struct twi_ledger ledger;
    bool has_former;                   /* of a lost identity before this one something may be in Redis */
    char stores[TWI_STORES_KNOWN][40]; /* markers of stores that we have counted in; empty: none yet */
    uint32_t stores_next;
    bool is_open;      /* Redis has made the ledger of this instance */
    int64_t ledger_ms; /* when it was last written */
    int64_t entered_ms,
        entered_redis_ms;      /* the same of the store's marker, which knows us since: by our clock, by Redis's */
    struct twi_batch *opening; /* number 0 of a new instance, in flight */
    char formers[TWI_FORMERS][TWI_LEDGER_NAME_MAX]; /* ledgers that we had before this one: a ring */
    uint32_t formers_next;
    struct twi_identity candidate; /* who that instance would be */
    char home[41];                 /* run_id of the server that last knew our ledger; "": none, or not told */
    int64_t doubt_since_ms;        /* since when we see a store that does not know us; 0: we do not */
    struct twi_depth depth;        /* how much of it may be */
    uint64_t sent_number;          /* in flight: confirmed + 1 .. sent_number */
    bool rewind;                   /* an answer was not "applied": await the rest, then send from confirmed + 1 again */
    bool use_eval;                 /* the next one goes with its script */

    struct twi_plain plain;

    /* collecting */
    struct twi_item *staging; /* TWI_BATCH_ITEMS_MAX */
    int64_t collect_at_ms;    /* the next collection may begin */
    int64_t near_at_ms;       /* counters near their limit are not collected before that */
    int64_t collect_hold_ms;  /* not before that, not even for a flush: no memory, or too fast after an outage */
    bool collecting;          /* one has begun and has not taken everything */
    bool begin_again;         /* a round of tw_flush starts over */
    struct twi_pace pace;
    int64_t look_until_ms; /* every key's expiry is asked for until then */
    struct twi_poison poison;
    struct twi_tickets tickets;
    uint64_t nudged; /* the last ticket that cut a back-off short */

    /* Redis's clock */
    int64_t offset_ms, offset_rtt_ms, offset_at_ms;

    _Atomic int fd;                  /* any thread */
    _Atomic bool wants_write;        /* any thread */
    _Atomic int64_t wake_ms;         /* any thread */
    _Atomic uint32_t breaker_state;  /* any thread: as it was at the end of a turn */
    _Atomic int64_t outage_since_ms; /* any thread: monotonic; 0: Redis answers. One clock for the whole outage */
    _Atomic int64_t acked_ms;        /* any thread: monotonic time of the last acknowledgement; 0: none yet */
};

/* connect.c: from DOWN to UP, and back */
void twi_connect_step(struct twi_sync *sync, int64_t now_ms);
bool twi_connect_reply(struct twi_sync *sync, enum twi_command command, const struct twi_node *nodes, size_t count,
                       int64_t now_ms);                       /* false: the connection was dropped */
void twi_connect_open(struct twi_sync *sync, int64_t now_ms); /* sends number 0 of a fresh instance */
/* Drops the connection; what was on it is of unknown outcome. `slowly`: nothing heals by itself. */
void twi_connect_drop(struct twi_sync *sync, int64_t now_ms, bool slowly, const char *why);
/* Redis went back: its append-only file may hold half a transaction, which the next restart would apply a second time. */
void twi_connect_rewrite(struct twi_sync *sync, int64_t now_ms);
void twi_refused(struct twi_sync *sync, const char *what, const struct twi_node *error); /* log line and last error */

/* instance.c: which store knows us, and when another instance begins. False: the connection was dropped */
struct twi_answer_head;
/* For so long a store that does not know us is taken for another one, seen by mistake: the one of before may be back. Tests
 * shorten it. */
extern _Atomic int64_t twi_doubt_ms;
bool twi_instance_gone(struct twi_sync *sync, int64_t now_ms);
bool twi_instance_opened(struct twi_sync *sync, const struct twi_answer_head *head, int64_t now_ms);
/* The ledger is there, and not ours any more: nobody is to go back to it. */
bool twi_instance_lose(struct twi_sync *sync, int64_t now_ms, const char *why);
void twi_instance_at_home(struct twi_sync *sync); /* a store answered that has our ledger */
void twi_instance_note(struct twi_sync *sync, const struct twi_answer_head *head); /* its marker */
void twi_instance_entered(struct twi_sync *sync, const struct twi_answer_head *head,
                          int64_t now_ms); /* and when it last wrote that it knows us */

/* settle.c: what an answer does to batches and items */
bool twi_settle_reply(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                      size_t count, int64_t now_ms); /* false: the connection was dropped */
bool twi_settle_refused(struct twi_sync *sync, const struct twi_answer_head *head, int64_t now_ms);
/* The store has our ledger, at that number: what it lacks is sent again. False: the connection was dropped. */
bool twi_settle_at(struct twi_sync *sync, const struct twi_answer_head *head, int64_t now_ms);
void twi_settle_give_back(struct twi_batch *batch); /* its items, surely not applied */
void twi_settle_give_up(struct twi_sync *sync, struct twi_batch *batch, int reason);
/* Redis refuses it, which is counted and logged once, and known to flushes while it lasts. Returns how long it is to wait. */
uint32_t twi_settle_poison(struct twi_sync *sync, const struct twi_item *item, const struct twi_node *error,
                           int64_t now_ms);
void twi_settle_item(struct twi_sync *sync, const struct twi_item *item, uint64_t number,
                     const struct twi_item_answer *said, bool take_total, int64_t now_ms);
void twi_settle_success(struct twi_sync *sync, int64_t now_ms); /* Redis answers as it should */
void twi_settle_clock(struct twi_sync *sync, const struct twi_pending *pending, int64_t redis_ms, int64_t now_ms);
/* A batch was refused and waits; `slowly`: this connection will not change its mind. False: it was dropped. */
bool twi_settle_refusal(struct twi_sync *sync, bool slowly, int64_t now_ms);

/* plain.c: merging without a script */
void twi_plain_send(struct twi_sync *sync, struct twi_batch *batch, int64_t now_ms);
bool twi_plain_reply(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                     size_t count, int64_t now_ms); /* false: the connection was dropped */
void twi_plain_time(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                    size_t count, int64_t now_ms);
void twi_plain_dropped(struct twi_sync *sync); /* what is under way will not be answered */

/* audit.c */
tw_status twi_audit_run(const struct twi_audit *audit);

/* collect.c: from counters to frozen batches */
void twi_collect(struct twi_sync *sync, int64_t now_ms);
bool twi_collect_refresh(struct twi_sync *sync, int64_t now_ms); /* appends an empty batch; false: no memory */
uint64_t twi_sync_unsettled(const struct twi_sync *sync);        /* batches whose items await an answer */
bool twi_sync_is_full(const struct twi_sync *sync); /* as many as may be sent now: nothing more is frozen */

/* lease.c */
void twi_lease_step(struct twi_sync *sync, int64_t now_ms);
bool twi_lease_reply(struct twi_sync *sync, const struct twi_node *nodes, size_t count,
                     int64_t now_ms); /* false: the connection was dropped */
void twi_lease_replicated(struct twi_sync *sync, const struct twi_node *answer);
void twi_lease_dropped(struct twi_sync *sync); /* what is under way will not be answered */

/* parts.c: gauges, and what is held */
bool twi_parts_take(struct twi_sync *sync, const struct twi_item *items,
                    size_t count); /* false: no memory, none taken */
void twi_parts_step(struct twi_sync *sync, int64_t now_ms);
bool twi_parts_reply(struct twi_sync *sync, const struct twi_node *nodes, size_t count,
                     int64_t now_ms);          /* false: the connection was dropped */
void twi_parts_dropped(struct twi_sync *sync); /* what is under way will not be answered */
void twi_parts_free(struct twi_sync *sync);

/* replicas.c */
void twi_replicas_put(struct twi_sync *sync); /* the question alone; whoever puts it awaits the answer */
void twi_replicas_ask(struct twi_sync *sync, int64_t now_ms);  /* behind what was just put into `out` */
void twi_replicas_step(struct twi_sync *sync, int64_t now_ms); /* asks again, where nothing is under way */
void twi_replicas_answered(struct twi_sync *sync, const struct twi_node *answer, int64_t now_ms);
bool twi_replicas_hold(const struct twi_sync *sync); /* the window is full of what is not on the replicas */

/* turn.c */
void twi_sync_turn(struct twi_sync *sync);
uint64_t twi_sync_random(struct twi_sync *sync);
void twi_sync_fill_random(void *sync, void *out, size_t size);
/* Notes that a command was put into `out` and awaits its reply, or so many. */
void twi_sync_await(struct twi_sync *sync, enum twi_command command, struct twi_batch *batch, uint32_t replies);
void twi_sync_send_batch(struct twi_sync *sync, struct twi_batch *batch, enum twi_command command, int64_t now_ms);

#endif
