/* peers.h -- an engine's view of the network, which is whether Redis replies, since when it does not, how far Redis's
 * clock is from engine time, and how many engines live. Decisions read it only here, not in statistics or leases.
 *
 * share.h describes the meaning of the first seconds for a limit. twi_port_connected(), twi_port_outage(),
 * twi_port_clock_offset() and twi_port_live_engines() set it (engine/port/messages.h).
 * Always true: only the turn writes it, except for the latest moment of Redis's clock. Callers take each value as a
 * hint, as old as the last turn. */
#ifndef TWI_CORE_PEERS_H
#define TWI_CORE_PEERS_H

#include "engine/core/state.h"

#define TWI_OPENED_MS 3000
#define TWI_MEETING_MS 100 /* the registry is read several times by then (registry.c) */
#define TWI_YOUNG_MS 1000
#define TWI_EXPECTED_MS 3000
#define TWI_YOUNG_MAX_MS 5000

/* Returns how many engines decide on the same limits; at least 1. Any thread. */
TWI_INLINE uint32_t twi_live_engines(const tw_engine *engine) {
    uint32_t live = twi_load_relaxed(&engine->peers.live_engines); /* three hints, as old as the last report */
    if (live != 0) return live;
    live = twi_load_relaxed(&engine->peers.live_reported);
    if (live < engine->options.engines_expected) live = engine->options.engines_expected;
    return live != 0 ? live : 1;
}
/* Sets everything to unknown; also called in a forked child. */
void twi_peers_begin(tw_engine *engine);
/* Returns true if the number of live engines is as well known as it will be, or cannot be known. Any thread. */
bool twi_peers_are_known(const tw_engine *engine);

/* Returns when Redis has all that reachable engines counted until `mono_ms`: two intervals later, or, after an outage,
 * when all engines are back. A reply takes redis_timeout_ms at most. Any thread. */
int64_t twi_peers_sent_by_ms(const tw_engine *engine, int64_t mono_ms);
/* Returns true if engines that started together have found each other, and Redis has reported it. `age_ms` is the time
 * since Redis first reported how many engines live. */
bool twi_peers_have_met(const struct twi_peers *peers, int64_t age_ms);
/* Notes that Redis's clock has reached this moment. A moment that is a day from engine time is ignored, because a clock
 * or the number is wrong. Any thread. */
void twi_peers_note_redis_ms(tw_engine *engine, int64_t redis_ms);
/* Returns the latest moment that Redis's clock can have reached; 0 if none was noted. The moment never goes back, also
 * if another server leads whose clock is behind. Any thread. */
int64_t twi_peers_redis_ms(const tw_engine *engine);
/* Returns for how long a store has failed to reply, by its clock (store_map.h); 0 means it replies. Any thread. */
int64_t twi_peers_away_ms(const tw_engine *engine, int64_t since_ms);

/* ---- presence ----
 * how often presence statements (gauges, holds) are re-sent to Redis. Redis drops a statement at the end
 * of its life (struct twi_tuning).
 * Always true: three statements are sent in one life, so two in a row may be lost. */

/* Any thread. */
TWI_INLINE int64_t twi_presence_resend_ms(const tw_engine *engine) {
    return engine->here->remote.tuning.presence_life_ms / 3;
}

#endif
