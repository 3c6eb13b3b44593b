/* ready.c -- tw_ready(): waits until an engine knows what it needs to decide well.
 * It waits until Redis has replied, the number of live engines is known (share.h, the first seconds), and the units
 * requested by tw_lease_warm() are here.
 * Always true: it changes nothing. A caller that waits here is in no section and in no hook. */
#include "engine/core/state.h"
#include "engine/flush.h"
#include "engine/core/call_guard.h"
#include "engine/core/peers.h"

/* Returns what is missing; NULL: nothing. */
static const char *missing(tw_engine *engine) {
    if (!twi_load_relaxed(&engine->peers.is_connected)) return "timeout_ms: Redis does not reply yet";
    if (!twi_peers_are_known(engine)) return "timeout_ms: the number of live engines is not known yet";
    /* A hint, like the others: a caller that spends looks at the units themselves. */
    if (twi_load_relaxed(&engine->leases.awaiting_first_grant) != 0)
        return "timeout_ms: leases requested by tw_lease_warm() are not here yet";
    return NULL;
}

tw_status tw_ready(tw_engine *engine, uint32_t timeout_ms) {
    twi_check(engine != NULL);
    int64_t deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    tw_status status = twi_guard_may_wait(engine);
    if (status != TW_OK || engine->remote.sync == NULL) return status;
    for (uint32_t waits = 0;; waits++) {
        const char *what = missing(engine);
        if (what == NULL) return TW_OK;
        if (twi_clock_mono_ms(&engine->clock) >= deadline_ms) return twi_refuse(TW_ERR_TIMEOUT, what);
        if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
        twi_flush_wait_for_turn(engine, waits);
    }
}
