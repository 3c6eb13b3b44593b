/* state.h -- the state of one engine's sync: the scheduler, with the one connection and the one store that it has.
 *
 * Three headers have all of it: connection.h (one server), store.h (one ledger and its marker) and this one (whose turn
 * it is, how much is collected and when). They hold types; a function takes the part that it touches, and the whole
 * where it touches more than one. Redis Cluster has several connections and several stores under one scheduler.
 * Owner: whoever owns the turn; one thread at a time. `published` and the taken tickets are for any thread. */
#ifndef TWI_SYNC_MESSAGE_STATE_H
#define TWI_SYNC_MESSAGE_STATE_H

#include "sync/batch/ticket.h"
#include "sync/message/connection.h"
#include "sync/message/store.h"
#include "sync/wire/pace.h"

struct twi_pool;

/* From counters that owe Redis something to frozen batches (collect.c). */
struct twi_collecting {
    struct twi_item *items;   /* TWI_BATCH_ITEMS_MAX, as they were collected */
    int64_t at_ms;            /* the next collection may begin */
    int64_t near_limit_at_ms; /* counters near their limit are not collected before that */
    int64_t hold_ms;          /* nothing is collected before that, not even for a flush: no memory, or the pace */
    int64_t look_until_ms;    /* every key's expiry is asked for until then */
    bool is_under_way;        /* a collection has begun and has not taken everything */
    bool begin_again;         /* a round of tw_flush starts over */
};

/* What other threads may read. */
struct twi_published {
    _Atomic int fd;
    _Atomic bool wants_write;
    _Atomic int64_t wake_ms;
    _Atomic uint32_t breaker_state;  /* as it was at the end of a turn */
    _Atomic int64_t outage_since_ms; /* monotonic; 0: Redis answers. One clock for the whole outage */
    _Atomic int64_t acked_ms;        /* monotonic time of the last acknowledgement; 0: none yet */
};

struct twi_sync {
    /* set before sharing */
    tw_engine *engine;
    struct twi_pool *pool; /* requests that callers wait for; NULL: nobody may (host-driven, a transport was given) */
    uint32_t interval_ms;
    bool own_thread; /* turns come every tick, whatever wake_ms says */

    struct twi_connection connection;
    struct twi_store store;

    int64_t turned_ms; /* when this turn began, or the last one */
    struct twi_collecting collecting;
    struct twi_pace pace;
    struct twi_tickets tickets;
    uint64_t nudged; /* the last ticket that cut a back-off short */
    struct twi_published published;
};

uint64_t twi_sync_random(tw_engine *engine);
void twi_sync_fill_random(void *engine, void *out, size_t size);

#endif
