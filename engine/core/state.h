/* state.h -- the engine: one per process as a rule, owner of the arena, the clock, the families and the turn.
 *
 * The TURN is the background work, in bounded rounds: clock, roll-over (rollover.c), sync (through port.h),
 * reclamation. It has one owner at a time (turn_owner): the background thread, or whoever calls tw_turn(), tw_flush()
 * or tw_close() in a host-driven engine.
 * Always true: what is said to be the turn's own is touched by the owner of the turn alone; a user's hook runs inside a
 * turn and never inside a section. */
#ifndef TWI_CORE_STATE_H
#define TWI_CORE_STATE_H

#include "engine/memory/arena.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/core/engine_parts.h"
#include "engine/core/lease_table.h"
#include "engine/port/driver.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#include "engine/memory/epoch.h"
#include "engine/base/event_count.h"
#include "engine/table/table.h"

#include <pthread.h>

#define TWI_IDLE_MS 1000u    /* the longest that a host may leave an engine alone */
#define TWI_WORK_TURN 16384u /* units of work (slots, lines) in one turn for each kind of work: some 100 microseconds */

/* Memory faulted in ahead of inserts in one turn, in lines: 4 MiB, or 64,000 records in 5 ms; about half a millisecond.
 * */
#define TWI_WORK_AHEAD 65536u

struct twi_reserve_local;
struct twi_hold_book;
struct twi_restore;

struct tw_engine {
    /* set before sharing, then read by all */
    struct twi_hashing hashing;
    struct twi_shard *shards;
    struct twi_life life;
    alignas(TWI_LINE_BYTES) struct twi_clock clock;
    struct twi_arena arena;

    /* any thread, lock-free */
    alignas(TWI_LINE_BYTES) struct twi_collector collector;
    struct twi_unlinked unlinked;
    struct twi_stripe_request stripes;
    alignas(TWI_LINE_BYTES) struct twi_near_ring near_ring;
    struct twi_note notes[TWI_NOTES]; /* by the lines of their cells (overshoot.h) */
    struct twi_peers peers;
    struct twi_report report;
    struct twi_event_count given_back; /* tw_acquire_wait(): a refund was made here */
    struct twi_turn_state turn;

    /* opening and closing families */
    struct twi_roster roster;

    /* the turn's own, its news apart */
    struct twi_agenda agenda;
    struct twi_restore *restore;            /* restore_notes.h */
    struct twi_reserve_local *reservations; /* reserve_local.h; under its own lock */
    struct twi_hold_book *holds;            /* hold.h; under its own lock */
    struct twi_leases leases;               /* of hard limits (lease.h) */

    /* others */
    struct twi_remote remote;
    struct twi_random_source random;
    struct twi_background background;
    tw_options options; /* strings are ours */
    struct tw_engine *next_engine;
};

/* Answers how many the thread (or all that share its place) had counted before. */
TWI_INLINE int64_t twi_count_increments(tw_engine *engine, struct twi_thread *self, int64_t n) {
    uint32_t shard = self->shard;
    _Atomic int64_t *count = &engine->shards[shard].increments;
    if (twi_unlikely(shard == TWI_SHARD_SHARED)) return twi_add_relaxed(count, n);
    int64_t before = twi_load_relaxed(count);
    twi_store_relaxed(count, before + n); /* its only writer */
    return before;
}

#endif
