/* flush.c -- tw_flush and tw_fetch: the calls that wait for Redis.
 * A flush takes a ticket: one full collection that begins after the call, and is done when its batches are answered. A
 * fetch is a flush whose collection also requests the totals of its keys.
 * Always true: a caller that waits here is in no section and in no hook. When its time is over, nothing is undone: what
 * is queued stays queued. */
#include "engine/flush.h"

#include "engine/count/lookup.h"
#include "engine/core/call_guard.h"
#include "engine/turn/turn.h"

#include <stdlib.h>

/* A flush that Redis answers is over after a few turns, so only that many turns are woken early. If every turn were
 * woken, the background thread and the waiting thread would chase each other as long as Redis is away. */
#define PROMPT_TURNS 16

/* Makes some progress: runs a turn itself if the engine is host-driven, else waits for the next turn. */
void twi_flush_wait_for_turn(tw_engine *engine, uint32_t waits) {
    uint32_t seen = twi_event_count_value(&engine->turn.ended);
    if (!engine->life.host_driven) {
        if (waits < PROMPT_TURNS) twi_turn_wake(engine);
        twi_event_count_wait(&engine->turn.ended, seen, TWI_TICK_MS);
    } else if (twi_turn_take(engine)) {
        twi_turn_run(engine);
        twi_turn_leave(engine);
        twi_turn_nap(engine, 1);
    } else {
        twi_event_count_wait(&engine->turn.ended, seen, TWI_TICK_MS);
    }
}

static tw_status refuse_flush(void) {
    return twi_refuse(TW_ERR_REDIS,
                      "Redis: some of it was refused, late or of unknown outcome; on_lost names the keys");
}

static tw_status await_flush(tw_engine *engine, int64_t deadline_ms) {
    uint64_t ticket = engine->remote.driver->ticket_take(engine->remote.sync);
    for (uint32_t waits = 0;; waits++) {
        enum twi_ticket state = engine->remote.driver->ticket_state(engine->remote.sync, ticket);
        if (state != TWI_TICKET_OPEN) return state == TWI_TICKET_DONE ? TW_OK : refuse_flush();
        if (twi_clock_mono_ms(&engine->clock) >= deadline_ms)
            return twi_refuse(TW_ERR_TIMEOUT, "timeout_ms: Redis has not acknowledged all of it yet; it stays queued");
        twi_flush_wait_for_turn(engine, waits);
    }
}

tw_status tw_flush(tw_engine *engine, uint32_t timeout_ms) {
    twi_check(engine != NULL);
    int64_t deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    tw_status status = twi_guard_may_wait(engine);
    if (status != TW_OK || engine->remote.sync == NULL) return status;
    return await_flush(engine, deadline_ms);
}

/* Makes the next collection request the total of this key. */
static tw_status request_total(tw_family *family, tw_key key) {
    struct twi_call call;
    struct twi_place place;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    do {
        status = twi_call_now(&call);
        if (status == TW_OK && !twi_place_find(&call, &place)) status = twi_place_make(&call, &place);
    } while (status == TWI_AGAIN);
    if (status == TW_OK) twi_place_request_total(&call, &place);
    twi_call_end(&call);
    return status == TW_ERR_FULL ? twi_full_refuse() : status;
}

/* The last total from Redis. Returns false if there is none yet. */
static bool read_total(tw_family *family, tw_key key, int64_t *total) {
    tw_reading reading;
    if (tw_read(family, key, &reading) != TW_OK || !reading.known) return false;
    *total = reading.total;
    return true;
}

tw_status tw_fetch(tw_family *family, const tw_key *keys, size_t count, uint32_t timeout_ms, int64_t *totals) {
    twi_check(family != NULL);
    tw_engine *engine = family->engine;
    int64_t deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    tw_status status = twi_guard_may_wait(engine);
    if (status != TW_OK) return status;
    status = twi_guard_engine(engine);
    if (status != TW_OK) return status;
    if (family->kind.is_distinct) return twi_distinct_refuse();
    if (family->kind.is_gcra) /* a time is no total */
        return twi_refuse(TW_ERR_MODE, "limit_shape: a family of TW_SHAPE_GCRA keeps times and no counts");
    if (engine->remote.sync == NULL) return twi_redis_refuse();
    for (size_t i = 0; i < count && status == TW_OK; i++) status = request_total(family, keys[i]);
    if (status == TW_OK) status = await_flush(engine, deadline_ms);
    if (status != TW_OK) return status;
    int64_t *seen = malloc((count + 1) * sizeof *seen); /* all totals are written together, or none */
    if (seen == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    for (size_t i = 0; i < count && status == TW_OK; i++)
        if (!read_total(family, keys[i], &seen[i]))
            status = twi_refuse(TW_ERR_TIMEOUT, "timeout_ms: Redis has not sent all totals");
    if (status == TW_OK && totals != NULL) memcpy(totals, seen, count * sizeof *seen);
    free(seen);
    return status;
}
