/* lease.h -- leases. A lease is the part of a hard limit (TW_LIMIT_HARD) that Redis has granted to this engine. The
 * engine may spend these units without asking Redis again.
 *
 *   Redis ──granted──▶ left ──tw_acquire()──▶ spent (counted in the cell, sent by batches)
 *     ◀──returned────  left ◀──tw_refund()──
 * A caller takes units out of `left` by compare-and-swap, and then counts them in the cell (lease.c). The turn reports
 * to Redis how many units were granted, returned and spent since the lease began. These three numbers only rise
 * (lease_renewal.c).
 * Always true: granted - returned - spent == left, because `spent` is computed from the other three. A unit that is
 * returned is taken out of `left` before the message is sent to Redis, and it never comes back into `left` (trap L6). A
 * lease lives as long as its generation. */
#ifndef TWI_LIMIT_LEASE_H
#define TWI_LIMIT_LEASE_H

#include "engine/count/lookup.h"
#include "engine/limit/decision.h"

/* The store of a lease, and the lists of that store that contain the lease (lease_stores.h). */
struct twi_lease_membership {
    uint32_t next_active, next_listed; /* the next lease of the queue, and of the chain */
    uint32_t store;                    /* the index of its store; valid if is_placed */
    bool is_placed;                    /* the store of the lease is known */
    bool is_active;                    /* the queue of the store contains the lease */
    bool is_listed;                    /* a chain of leases that callers have listed contains it */
    bool is_held;                      /* the store's `holding` counts the lease */
};

/* In `raised` while `drawn` is raised. If the process ends there, the next one makes the stamp (lease_stores.c). */
#define TWI_LEASE_RAISING UINT64_MAX

/* The part of a lease that only the turn reads and writes. Times are of the monotonic clock. */
struct twi_lease_turn {
    struct twi_lease_membership in;
    int64_t granted;            /* units that Redis has granted, in all */
    int64_t returned;           /* units that this engine has returned, in all */
    int64_t acked_returned;     /* the value of `returned` that Redis has acknowledged */
    int64_t acked_spent;        /* the number of spent units that Redis has acknowledged */
    int64_t sent_returned;      /* the value of `returned` in the last message, acknowledged or not */
    uint64_t acked_incarnation; /* the incarnation of this engine in which Redis acknowledged last; 0 means none */
    int64_t grant_size;         /* how many units the turn draws at once */
    int64_t spent_then;         /* the number of spent units at measured_ms */
    int64_t lately;             /* units spent in the interval before measured_ms */
    int64_t measured_ms;        /* when the turn last measured how fast units are spent */
    int64_t used_ms;            /* when a caller last spent a unit */
    int64_t exhausted_at_ms;    /* when the last grant arrived; see grant_size_of() in lease_renewal.c */
    int64_t retry_ms;           /* the turn draws no units before this time */
    int64_t acked_ms;           /* when Redis acknowledged the last message */
    int64_t looked_ms;          /* when Redis was last asked to look for units of dead engines */
    int64_t risk;               /* units granted beyond the limit, as Redis counts them */
    /* an epoch stamp: sections that began before it may have read a smaller `drawn`; 0 means that there are none */
    uint64_t raised;
    uint64_t name_hash;      /* the hash of the name of the lease in Redis; 0 means not computed yet */
    bool in_flight;          /* a message about the lease has no reply yet */
    bool has_unacknowledged; /* the last message failed, or its reply requests another one */
    bool restate;            /* the whole lease must be sent again, because Redis may have forgotten it */
    bool wanted_by_others;   /* another engine waits for units of this limit */
};

struct twi_lease {
    /* callers and the turn */
    alignas(TWI_LINE_BYTES) _Atomic int64_t left; /* units that callers may spend; never below 0 */
    _Atomic int64_t low_water;       /* if fewer units are left, the caller lists the lease, and the turn draws more */
    _Atomic int64_t requested_units; /* the smallest n that a caller waits for; 0 means that no caller waits */
    _Atomic int64_t limit;           /* the limit of the last call that named one */
    _Atomic int64_t drawn;           /* no unit in `left` was drawn under a greater limit than this (trap L9) */
    _Atomic int64_t reported_spent;  /* units spent by all engines together, according to the last reply */
    _Atomic int64_t reported_ms;     /* the monotonic time of that question, << 1 | 1; 0: there was no reply yet */
    _Atomic uint32_t next_requested; /* the next lease of the list that callers make for the turn */
    _Atomic uint16_t listed; /* that list contains the lease, or will: the number of the thread that pushes it */
    _Atomic uint8_t warm;    /* tw_lease_warm(): an idle lease keeps its units until a call spends one */
    _Atomic uint8_t awaits_first_grant; /* the engine's awaiting_first_grant counts the lease */
    struct twi_attached attached;       /* the link in the generation's list; set before the lease is shared */
    uint32_t generation, cell;          /* line numbers in the arena */
    _Atomic uint8_t refunded;           /* a refund has put units into `left` */
    _Atomic int64_t stranded;           /* units in leases of dead engines; callers read it */
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
/* The longest interval between heartbeats about leases, while leases are active and few engines live. */
#define TWI_LEASE_BUSY_MS 500
TWI_INLINE int64_t twi_lease_busy_ms(const tw_engine *engine) {
    int64_t interval_ms = engine->options.sync_interval_ms;
    return interval_ms < TWI_LEASE_BUSY_MS ? interval_ms : TWI_LEASE_BUSY_MS;
}
/* If a draw brings too few units, the turn and the caller try again after this time. */
TWI_INLINE int64_t twi_lease_again_ms(const tw_engine *engine) {
    return twi_lease_busy_ms(engine) / 4 + 1;
}
/* Adds the lease to the list that the turn reads. Any thread may call it, inside a section. It makes no system call.
 * The turn runs every few milliseconds anyway. */
void twi_lease_list(tw_engine *engine, struct twi_lease *lease);

#endif
