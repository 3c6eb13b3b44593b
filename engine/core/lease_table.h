/* lease_table.h -- all leases of an engine (lease.h has one of them): who is listed for the turn, and the epoch they are valid in.
 * Always true: `requested` and the hints are any thread's; the rest is the turn's own. */
#ifndef TWI_CORE_LEASE_TABLE_H
#define TWI_CORE_LEASE_TABLE_H

#include <stdalign.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/port/messages.h"

#define TWI_LEASE_REQUESTED_MAX 128u

struct twi_leases {
    alignas(TWI_LINE_BYTES) _Atomic uint32_t requested; /* newest lease that the turn is to look at; any thread */
    _Atomic bool exist;                                 /* a family has them; any thread */
    _Atomic int32_t awaiting_first_grant;               /* warmed ones whose units are awaited */
    /* the turn's own */
    uint32_t head, tail; /* those with something in hand or to say: a queue, by next_active */
    uint32_t active;
    uint32_t restating; /* those that have not yet said everything again */
    uint64_t serial;    /* of the connection on which the epoch was asked for last */
    bool known;         /* it was answered on that connection: leases may speak */
    bool awaiting_epoch, leaves, left;
    int64_t request_at_ms, walk_at_ms;
    int64_t requested_since_ms; /* Redis's clock */
    uint64_t incarnation;       /* rises with each life that Redis names */
    struct twi_lease_epoch epoch;
    char others[TWI_LEASE_OTHERS_MAX][34]; /* named in the answer that is being read: "+INSTANCE", "-INSTANCE" */
    uint32_t other_count;
    uint64_t requested_names[TWI_LEASE_REQUESTED_MAX];
    uint32_t requested_count;
};

#endif
