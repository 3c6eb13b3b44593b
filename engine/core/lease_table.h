/* lease_table.h -- all leases of an engine: which leases are listed for the turn, and for each store the epoch in which
 * they are valid. limit/lease.h has a single lease.
 *
 * One Redis is one store. Where keys have hash tags, a store is what lies in one key slot (store_map.h), and it has a
 * separate epoch. The script of a lease needs both in one slot.
 * Always true: any thread uses `requested` and the hints. Only the turn uses the rest. A lease belongs to one store for
 * its life, and is in at most one of the chains and once in the queue of that store. */
#ifndef TWI_CORE_LEASE_TABLE_H
#define TWI_CORE_LEASE_TABLE_H

#include <stdalign.h>
#include "engine/base/check.h"
#include "engine/port/messages.h"

#define TWI_LEASE_REQUESTED_MAX 128u

/* The leases of one store, and its epoch. */
struct twi_lease_store {
    uint32_t index;
    bool is_used;        /* a lease was placed here; with one Redis it plays no part */
    uint32_t listed;     /* a chain of the leases that callers have listed, by next_listed */
    uint32_t head, tail; /* a queue of leases that have units left, or a message to send, by next_active */
    uint32_t active;
    uint32_t restating; /* leases whose full statement has not been re-sent yet */
    /* leases with granted or returned units, of windows that are still held; only they are stated again */
    uint32_t holding;
    uint64_t serial; /* the connection on which the epoch was requested last */
    bool known;      /* the epoch was answered on that connection, so leases may send */
    bool awaiting_epoch;
    bool is_leaving; /* the engine stays open and leaves this store; until that is acknowledged, no lease sends */
    bool left;       /* the engine is being closed, and has left */
    int64_t request_at_ms, walk_at_ms;
    int64_t unused_ms;          /* monotonic time since which no lease is held or requested here; 0 means that one is */
    int64_t requested_since_ms; /* by Redis's clock */
    uint64_t incarnation;       /* differs for each incarnation that Redis reports; 0 means that none was reported */
    struct twi_lease_epoch epoch;
    char others[TWI_LEASE_OTHERS_MAX][34]; /* named in the reply that is being read: "+INSTANCE", "-INSTANCE" */
    uint32_t other_count;
    uint64_t requested_names[TWI_LEASE_REQUESTED_MAX];
    uint32_t requested_count;
};

struct twi_leases {
    alignas(TWI_LINE_BYTES) _Atomic uint32_t requested; /* newest lease on the turn's list; any thread */
    _Atomic bool exist;                                 /* a family has leases; any thread */
    _Atomic int32_t awaiting_first_grant;               /* warmed leases whose first units have not come */
    /* owned by the turn */
    uint32_t unplaced;            /* a chain of leases whose store found no memory, by next_listed */
    uint64_t incarnations;        /* how many were reported, by all stores */
    uint32_t names;               /* how often this engine got another id (twin.c) */
    struct twi_lease_store first; /* the leases of the first store, or the only one */
    /* the stores from index 1 on; NULL means that the engine takes no part in leases there */
    struct twi_lease_store **more;
    uint32_t room; /* room of `more` */
};

#endif
