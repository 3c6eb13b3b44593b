/* lease.h -- leases: the parts of a hard limit (TW_LIMIT_HARD) that Redis granted this engine to spend.
 *
 *   Redis ──granted──▶ left ──tw_acquire()──▶ spent (counted in the cell, sent by batches)
 *     ◀──returned────  left ◀──tw_refund()──
 * Callers take units out of `left` by compare-and-swap and then count them in the cell (lease.c). The turn reports to
 * Redis how many units were granted, returned and spent. All three are cumulative and absolute (port/,
 * lease_renewal.c).
 * Always true: granted - returned - spent == left, because `spent` is computed from the other three. A unit that is
 * returned leaves `left` before Redis is told, and never comes back into it (trap L6). A lease lives as long as its
 * generation. */
#ifndef TWI_LIMIT_LEASE_H
#define TWI_LIMIT_LEASE_H

#include "engine/count/lookup.h"
#include "engine/limit/decision.h"

/* Where the turn has a lease: in which store, and in which of its lists (lease_stores.h). */
struct twi_lease_membership {
    uint32_t next_active, next_listed;
    uint32_t store;            /* the store's index, once it is placed */
    bool is_placed;            /* its store is known */
    bool is_active, is_listed; /* it is in the queue; in a chain of leases that callers have listed */
    bool is_held;              /* it is counted in the store's `holding` */
};

/* What the turn knows of a lease, and nobody else reads. */
struct twi_lease_turn {
    struct twi_lease_membership in;
    int64_t granted, returned;           /* cumulative: from the replies; by this engine */
    int64_t acked_returned, acked_spent; /* what Redis has acknowledged */
    int64_t sent_returned;               /* in the last message, acknowledged or not */
    uint64_t acked_incarnation;          /* the incarnation in which Redis acknowledged last, in this epoch; 0: none */
    int64_t grant_size;                  /* units per draw */
    int64_t spent_then, lately;          /* at measured_ms; in the interval before it */
    int64_t measured_ms, used_ms,
        exhausted_at_ms; /* monotonic; exhausted: when units arrived that then ran out within one interval */
    int64_t retry_ms, acked_ms, looked_ms;
    int64_t risk;    /* units granted beyond the limit, by Redis's account */
    uint64_t raised; /* epoch stamp: older sections may know a smaller `drawn`; 0: none do */
    uint64_t name_hash;
    bool in_flight, has_unacknowledged, restate, wanted_by_others;
};

struct twi_lease {
    /* callers and the turn */
    alignas(TWI_LINE_BYTES) _Atomic int64_t left; /* units in hand; never below 0 */
    _Atomic int64_t low_water;       /* below this the lease is listed for the turn, which draws ahead of need */
    _Atomic int64_t requested_units; /* the smallest n that waits for units; 0: nobody waits */
    _Atomic int64_t limit;           /* the limit that was named last */
    _Atomic int64_t drawn;           /* no unit in hand was drawn under a greater limit (trap L9) */
    _Atomic int64_t reported_spent;  /* units spent by all engines, in the last reply */
    _Atomic int64_t reported_ms;     /* monotonic time of that reply, << 1 | 1; 0: no reply yet */
    _Atomic uint32_t next_requested;
    _Atomic uint8_t listed;             /* it is on the engine's list of leases for the turn */
    _Atomic uint8_t warm;               /* tw_lease_warm(): kept although idle, until a call spends from it */
    _Atomic uint8_t awaits_first_grant; /* counted in the engine's awaiting_first_grant */
    _Atomic uint8_t refunded;           /* a refund put units into it */
    struct twi_attached attached;       /* the link in the generation's list; set before the lease is shared */
    uint32_t generation, cell;          /* line numbers in the arena */
    _Atomic int64_t stranded;           /* units in leases of engines that are gone; callers read it */
    struct twi_lease_turn turn;
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
/* The longest interval of heartbeats while leases are active and engines are few: of leases, not of counts. */
#define TWI_LEASE_BUSY_MS 500
TWI_INLINE int64_t twi_lease_busy_ms(const tw_engine *engine) {
    int64_t interval_ms = engine->options.sync_interval_ms;
    return interval_ms < TWI_LEASE_BUSY_MS ? interval_ms : TWI_LEASE_BUSY_MS;
}
/* How soon a draw that brought too little is tried again, by the turn and by a caller. */
TWI_INLINE int64_t twi_lease_again_ms(const tw_engine *engine) {
    return twi_lease_busy_ms(engine) / 4 + 1;
}
/* Lists a lease for the turn. Any thread, inside a section. No system call: the turn runs by itself. */
void twi_lease_list(tw_engine *engine, struct twi_lease *lease);

#endif
