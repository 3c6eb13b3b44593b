/* state.h -- the state of one engine's sync, shared by the files of this folder and by nobody else.
 *
 *   DOWN --back-off over--> CONNECTING --connected--> GREETING --answered--> OPENING (new instance) --> UP
 *     ^------------------------ any error, any deadline -----------------------------------------------'
 * A step of a turn that finds the connection broken marks it (twi_sync_fail()); the turn ends it in one place (twi_connect_end()).
 * Owner: whoever owns the turn; one thread at a time. Fields marked "any thread" are atomics.
 * Always true: every item collected is in exactly one batch of the ledger's list, or has been settled; in flight are
 * only batches of the list, in the order of their numbers. */
#ifndef TWI_SYNC_MESSAGE_STATE_H
#define TWI_SYNC_MESSAGE_STATE_H

#include "engine/port/port.h"
#include "sync/batch/batch.h"
#include "sync/wire/breaker.h"
#include "sync/message/closing.h"
#include "sync/batch/depth.h"
#include "sync/message/lease.h"
#include "sync/batch/ledger.h"
#include "sync/wire/socket.h"
#include "sync/message/registry.h"
#include "sync/wire/pace.h"
#include "sync/message/presence.h"
#include "sync/message/pipeline.h"
#include "sync/batch/poison.h"
#include "sync/message/message.h"
#include "sync/batch/ticket.h"
#include "sync/wire/url.h"
#include "sync/wire/wire.h"

/* Replies awaited: a greeting (5), an opening, the pipeline twice, a rewrite; side scripts; WAITs for leases, two for each at worst. */
#define TWI_PENDING_MAX (16u + TWI_MESSAGES_MAX + 2 * TWI_LEASES_MAX)
#define TWI_REWRITE_TRIES 3u   /* each perhaps done: a rewrite more does no harm, one for ever would */
#define TWI_FORMERS 4u         /* a store that comes back after four others is told by its marker */
#define TWI_REFUSALS_LOGGED 8u /* different refusals in one outage; more than that come again */
#define TWI_STORES_KNOWN 8u    /* a store that comes back after eight wipes is taken for a new one */
#define TWI_WAIT_SLACK_MS 250  /* Redis looks at whose WAIT is over ten times a second, and may be late for that */
#define TWI_RECEIVE_BYTES_MAX (1u << 20) /* per turn */

enum twi_phase { TWI_DOWN, TWI_CONNECTING, TWI_GREETING, TWI_OPENING, TWI_UP };

/* Why the connection is to end. Whoever finds it broken says so here; the turn ends it, once that step is over. */
struct twi_failure {
    bool is_there;
    bool slowly;      /* nothing heals by itself */
    const char *why;  /* for the log; NULL: the log has its line */
    int64_t again_ms; /* the next try comes after so long; 0: as the back-off says */
};

/* A batch that goes without a script, while its answers come (merge_plain.c). */
struct twi_merge_plain {
    uint32_t stage, item, step; /* what the next reply answers: which part, whose, which of its commands */
    uint32_t commands;          /* of all its items */
    uint32_t kept;              /* items before `item` that are to be sent again, at the front */
    bool in_multi, refused, turned_away;
    bool over; /* nothing more is to be said of this item */
    struct twi_item_answer result;
    uint32_t unhealed;
    int64_t redis_ms;
    uint64_t out_begin; /* where it begins, counted in bytes of this connection */
    struct twi_bytes repairs;
    uint32_t repair_count;
};

struct twi_pool;

struct twi_sync {
    /* set before sharing */
    tw_engine *engine;
    const struct twi_transport *transport;
    void *transport_ctx;
    struct twi_socket *link; /* ours, when no transport was given */
    struct twi_pool *pool;   /* of those who wait; NULL: nobody may (host-driven, a transport was given) */
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
    struct twi_failure failure;
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
    uint64_t
        refusals_logged[TWI_REFUSALS_LOGGED]; /* hashes of lines on what Redis refuses: each comes once an outage */
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
    struct twi_presence presence;
    struct twi_messages messages;
    struct twi_registry registry;
    struct twi_closing_sender closing;

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
    bool restores;     /* it went back, and is being told again */
    bool is_open;      /* Redis has made the ledger of this instance */
    int64_t ledger_ms; /* when it was last written */
    int64_t entered_ms,
        entered_redis_ms;      /* the same of the store's marker, which knows us since: by our clock, by Redis's */
    struct twi_batch *opening; /* number 0 of a new instance, in flight */
    char formers[TWI_FORMERS][TWI_LEDGER_NAME_MAX]; /* ledgers that we had before this one: a ring */
    uint32_t formers_next;
    struct twi_identity candidate; /* who that instance would be */
    char ledger_run[41];           /* run_id of the server that last knew our ledger; "": none, or not told */
    int64_t doubt_since_ms;        /* since when we see a store that does not know us; 0: we do not */
    struct twi_depth depth;        /* how much of it may be */
    uint64_t sent_number;          /* in flight: confirmed + 1 .. sent_number */
    bool rewind;                   /* an answer was not "applied": await the rest, then send from confirmed + 1 again */
    bool use_eval;                 /* the next one goes with its script */

    struct twi_merge_plain merge_plain;

    /* collecting */
    struct twi_item *staging; /* TWI_BATCH_ITEMS_MAX */
    int64_t collect_at_ms;    /* the next collection may begin */
    int64_t near_limit_at_ms; /* counters near their limit are not collected before that */
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

/* The connection is broken: nothing more is sent or taken on it, and what was under way is of unknown outcome. The first reason stays. */
void twi_sync_fail(struct twi_sync *sync, bool slowly, const char *why);
uint64_t twi_sync_random(struct twi_sync *sync);
void twi_sync_fill_random(void *sync, void *out, size_t size);

#endif
