/* reserve_local.h -- the local reservation store of an engine without Redis: the holders of units, the end of their
 * lease time, and the buyers.
 *
 *   held ──confirm──▶ sold ──nobody can ask for it any more──▶ forgotten
 *     └──cancel, or its time is over──▶ returned: its units go back, its buyer may come again
 *
 * The units themselves are in the family's counters; tw_acquire() takes them there. The store shows which of them are
 * only held. It has a separate lock. Calls that count never take this lock, and continue meanwhile. With Redis all of
 * this is in reserve.lua.
 * No call holds the lock for long. The turn does the work for many entries in pieces.
 * Always true: under the lock, a held reservation has its units taken, in the window it names. One comparison with the
 * monotonic clock decides between confirm and the end of the lease time (trap L12). Entries take at most half of the
 * arena, so memory stays bounded (P6) and counters have the other half. A forked child has an empty arena and begins
 * with an empty store.
 * Threads: any. The turn only tries the lock, and comes again if another thread holds it. */
#ifndef TWI_RESERVE_RESERVE_LOCAL_H
#define TWI_RESERVE_RESERVE_LOCAL_H

#include "engine/reserve/reserve_book.h"
#include "engine/ask/redis_call.h"

/* How long a token is known after the end of its lease time. Until then, confirming it again gives the same answer. */
#define TWI_TOKEN_KEEP_MS TW_DAY

/* With an empty arena: when the engine is opened, and in a forked child. */
void twi_reserve_local_begin(tw_engine *engine);
void twi_reserve_local_end(tw_engine *engine);
/* Called by the turn. Takes back some of the expired reservations. */
void twi_reserve_local_turn(tw_engine *engine);
/* The family is being closed. Its reservations are void from now on. The turn forgets them. */
void twi_reserve_local_close(tw_family *family);
/* Returns true if none of them is left, and the family may be freed. */
bool twi_reserve_local_is_gone(tw_family *family);

/* The arguments of tw_reserve(), checked. */
struct twi_reserve_request {
    tw_family *family;
    tw_key key, buyer; /* a buyer.size of 0 means that no buyer was named */
    int64_t n, limit;
    uint32_t ttl_ms;
};

/* With Redis, notes that a reservation was made there. When it expires, sync makes its units return
 * (twi_port_sweep_due). */
void twi_reserve_local_await(const struct twi_reserve_request *request, int64_t start_ms);
/* tw_reserve(), tw_reserve_confirm() and tw_reserve_cancel() without Redis. */
tw_status twi_reserve_local_take(const struct twi_reserve_request *request, struct twi_token *token,
                                 tw_verdict *verdict);
tw_status twi_reserve_local_confirm(tw_engine *engine, const struct twi_token *token);
tw_status twi_reserve_local_cancel(tw_engine *engine, const struct twi_token *token);

#endif
