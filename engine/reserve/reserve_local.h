/* reserve_local.h -- the book of reservations of an engine without Redis: who holds what, until when, and who has bought.
 *
 *   held ──confirm──▶ sold ──nobody can ask for it any more──▶ forgotten
 *     └──cancel, or its time is over──▶ returned: its units go back, its buyer may come again
 *
 * The units themselves are in the family's counters, taken by tw_acquire(); the book says which of them are only held. Under a
 * lock of its own, which calls that count never take: they go on beside it. With Redis all of this is in reserve.lua.
 * Always true: under the lock, a reservation that is held has its units taken, in the window it names; one compare with the
 * monotonic clock decides between confirm and the end of the hold (trap L12). Entries lie in the arena, at most half of it, so memory stays
 * bounded (P6) and counters have the other half; and a forked child, whose arena is empty, begins with an empty book.
 * Threads: any; the turn only tries the lock, and comes again where somebody has it. */
#ifndef TWI_RESERVE_RESERVE_LOCAL_H
#define TWI_RESERVE_RESERVE_LOCAL_H

#include <pthread.h>
#include <stdbool.h>

#include "engine/base/atomic.h"
#include "engine/ask/token.h"

/* How long after the end of its hold a token is known: confirming it again answers the same. */
#define TWI_TOKEN_KEEP_MS TW_DAY

struct twi_reserve_local {
    pthread_mutex_t lock;
    uint64_t tag;    /* in its tokens: of this life of this engine */
    uint64_t serial; /* of the newest reservation */
    uint32_t due;    /* the root of a heap of entries, by when they are to be looked at; 0: empty */
    uint32_t index;  /* two rows of chains: by serial, by buyer; 0: none yet */
    uint32_t index_log2;
    uint64_t entries;
    uint64_t bytes;          /* of the arena: entries and index */
    _Atomic int64_t next_ms; /* monotonic: when the turn has something to do; any thread */
};

void twi_reserve_local_make(tw_engine *engine);
/* In a forked child: the arena has been made anew. */
void twi_reserve_local_renew(tw_engine *engine);
void twi_reserve_local_unmake(tw_engine *engine);
/* Takes back what is due, some of it. By the turn. */
void twi_reserve_local_turn(tw_engine *engine);
/* The family is being closed: its reservations are void. */
void twi_reserve_local_forget(tw_engine *engine, const tw_family *family);

/* What is asked of tw_reserve(), checked. */
struct twi_reserve_request {
    tw_family *family;
    tw_key key, buyer; /* buyer.size 0: anybody */
    int64_t n, limit;
    uint32_t ttl_ms;
};

/* With Redis: something was reserved there; when its hold is over, sync sees to it that it returns (twi_port_sweep_due). */
void twi_reserve_local_await(const struct twi_reserve_request *request, int64_t start_ms);
/* Without: as tw_reserve(), tw_reserve_confirm(), tw_reserve_cancel(). */
tw_status twi_reserve_local_take(const struct twi_reserve_request *request, struct twi_token *token,
                                 tw_verdict *verdict);
tw_status twi_reserve_local_confirm(tw_engine *engine, const struct twi_token *token);
tw_status twi_reserve_local_cancel(tw_engine *engine, const struct twi_token *token);

#endif
