/* lease.h -- leases: the parts of a hard limit that Redis has given to this engine to spend (TW_LIMIT_HARD).
 *
 *   Redis ──granted──▶ left ──tw_acquire()──▶ spent (counted in the cell, sent by batches)
 *     ◀──returned────  left ◀──tw_refund()──
 * Callers take units out of `left` by compare-and-swap and then count them in the cell (lease.c). The turn says to Redis what
 * it was granted, has returned and has spent, all of it cumulative and absolute (port.h, lease_renewal.c).
 * Always true: granted - returned - spent == left, for `spent` is reckoned from the other three; a unit that is returned has
 * left `left` before Redis is told, and never comes back into it (trap L6); a lease lives as long as its generation. */
#ifndef TWI_LIMIT_LEASE_H
#define TWI_LIMIT_LEASE_H

#include "engine/count/lookup.h"
#include "engine/limit/decision.h"

struct twi_lease {
    /* callers */
    alignas(TWI_LINE_BYTES) _Atomic int64_t left; /* units in hand; below 0: never */
    _Atomic int64_t low_water;                    /* with less than this the turn is told: it draws ahead of need */
    _Atomic int64_t requested_units;              /* the smallest n that waits for units; 0: nobody waits */
    _Atomic int64_t limit;                        /* named last */
    _Atomic int64_t drawn;                        /* no unit in hand was drawn under a greater limit (trap L9) */
    _Atomic int64_t reported_spent;               /* what Redis last said: of all instances */
    _Atomic int64_t reported_ms;                  /* monotonic, of that, << 1 | 1; 0: nothing yet */
    _Atomic uint32_t next_requested;
    _Atomic uint8_t listed;             /* on the engine's list of leases that the turn is to look at */
    _Atomic uint8_t warm;               /* tw_lease_warm(): kept although idle, until it is spent from */
    _Atomic uint8_t awaits_first_grant; /* one of the engine's cold ones */
    _Atomic uint8_t refunded;           /* units came back here */
    struct twi_attached attached;       /* of the generation; set before it is shared */
    uint32_t next_active;
    /* the turn's own, as next_active */
    int64_t granted, returned;           /* cumulative: as Redis told, as we say */
    int64_t acked_returned, acked_spent; /* as Redis has acknowledged */
    int64_t sent_returned;               /* as it was said last, heard or not */
    uint64_t acked_incarnation;          /* the life in which Redis acknowledged last, in this epoch; 0: in none */
    int64_t grant_size;                  /* how much is drawn at once */
    int64_t spent_then, lately;          /* at measured_ms; in the interval before it */
    int64_t measured_ms, used_ms,
        exhausted_at_ms; /* monotonic; dry: when units that ran out within an interval had come */
    int64_t retry_ms, acked_ms, looked_ms;
    int64_t risk;             /* granted beyond the limit, as Redis reckons it */
    uint64_t raised;          /* stamp: sections of before may know a smaller `drawn`; 0: none do */
    _Atomic int64_t stranded; /* in leases of engines that are gone; callers read it */
    uint64_t name_hash;
    uint32_t generation, cell; /* lines */
    bool active, in_flight, has_unacknowledged, restate, wanted_by_others;
};
#define TWI_LEASE_LINES ((uint32_t)(sizeof(struct twi_lease) / TWI_LINE_BYTES))
static_assert(sizeof(struct twi_lease) == TWI_ATTACHED_LINES * TWI_LINE_BYTES &&
                  offsetof(struct twi_lease, attached) == TWI_LINE_BYTES,
              "the generation gives leases back (table.h)");

extern const struct twi_limit_kind twi_limit_leased;
/* tw_acquire() of a hard family with Redis. */
twi_hot_acquire twi_lease_acquire;

TWI_INLINE struct twi_lease *twi_lease_of(struct twi_cell *cell) {
    int64_t lines = twi_load_acquire(&cell->stripes); /* J2, pairs with J1: the lease is complete */
    return lines == 0 ? NULL : (struct twi_lease *)((unsigned char *)cell + lines * TWI_LINE_BYTES);
}
/* Has the turn look at a lease. Any thread, inside a section; no system call: the turn comes by itself. */
void twi_lease_list(tw_engine *engine, struct twi_lease *lease);

#endif
