/* lease_table.h -- all leases of an engine: which leases are listed for the turn, and the epoch in which they are
 * valid. lease.h has a single lease.
 * Always true: any thread uses `requested` and the hints. Only the turn uses the rest. */
#ifndef TWI_CORE_LEASE_TABLE_H
#define TWI_CORE_LEASE_TABLE_H

#include <stdalign.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/port/messages.h"

#define TWI_LEASE_REQUESTED_MAX 128u

struct twi_leases {
    alignas(TWI_LINE_BYTES) _Atomic uint32_t requested; /* newest lease on the turn's list; any thread */
    _Atomic bool exist;                                 /* a family has leases; any thread */
    _Atomic int32_t awaiting_first_grant;               /* warmed leases whose first units have not come */
    /* owned by the turn */
    uint32_t head, tail; /* leases with units in hand or a message to send: a queue, by next_active */
    uint32_t active;
    uint32_t restating; /* leases whose full statement has not been re-sent yet */
    uint64_t serial;    /* the connection on which the epoch was requested last */
    bool known;         /* the epoch was answered on that connection: leases may send */
    bool awaiting_epoch, leaves, left;
    int64_t request_at_ms, walk_at_ms;
    int64_t requested_since_ms; /* by Redis's clock */
    uint64_t incarnation;       /* rises with each incarnation that Redis reports */
    struct twi_lease_epoch epoch;
    char others[TWI_LEASE_OTHERS_MAX][34]; /* named in the reply that is being read: "+INSTANCE", "-INSTANCE" */
    uint32_t other_count;
    uint64_t requested_names[TWI_LEASE_REQUESTED_MAX];
    uint32_t requested_count;
};

#endif
