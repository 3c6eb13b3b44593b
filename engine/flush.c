/* flush.c -- tw_flush and tw_fetch: the calls that wait for Redis.
 * A flush takes a ticket: one full collection that begins after the call, and is done when its batches are answered. A
 * fetch is a flush whose collection also requests the totals of its keys. What Redis refuses of other keys concerns a
 * flush, and no fetch.
 * Always true: a caller that waits here is in no section and in no hook. When its time is over, nothing is undone: what
 * is queued stays queued. */
#include "engine/flush.h"

#include "engine/count/lookup.h"
#include "engine/core/call_guard.h"
#include "engine/core/report.h"
#include "engine/turn/turn.h"

#include <stdlib.h>

/* A flush that Redis answers is over after a few turns, so only that many turns are woken early. If every turn were
 * woken, the background thread and the waiting thread would chase each other as long as Redis is away. */
#define PROMPT_TURNS 16

#define FETCH_TRIES 3u
#define CLOCK_GRAIN_MS (2 * TWI_TICK_MS) /* of the clocks by which a total's age is known */

/* Makes some progress: runs a turn itself if the engine is host-driven, else waits for the next turn. */
void twi_flush_wait_for_turn(tw_engine *engine, uint32_t waits) {
    uint32_t seen = twi_event_count_value(&engine->turn.ended);
    if (!engine->life.host_driven) {
        if (waits < PROMPT_TURNS) twi_port_wake(engine);
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

/* TWI_TICKET_OPEN: not all of it was answered in time. */
static enum twi_ticket await_ticket(tw_engine *engine, int64_t deadline_ms) {
    uint64_t ticket = engine->remote.driver->ticket_take(engine->remote.sync);
    for (uint32_t waits = 0;; waits++) {
        enum twi_ticket state = engine->remote.driver->ticket_state(engine->remote.sync, ticket);
        if (state != TWI_TICKET_OPEN || twi_clock_mono_ms(&engine->clock) >= deadline_ms) return state;
        twi_flush_wait_for_turn(engine, waits);
    }
}

/* What Redis said last tells whether waiting helps. */
static tw_status refuse_late(tw_engine *engine) {
    char error[TWI_REPORT_ERROR_MAX];
    twi_report_error_text(&engine->report, error);
    return twi_refuse_with(TW_ERR_TIMEOUT, "timeout_ms: Redis has not acknowledged all of it yet; it stays queued%s%s",
                           error[0] != '\0' ? "; the last error: " : "", error);
}

/* Whether anything was given up of which no flush has spoken: while none waited, too. */
static bool has_given_up(tw_engine *engine) {
    uint64_t given_up = twi_load_relaxed(&engine->collector.given_up); /* by the round of the ticket, too: T3, T4 */
    return twi_swap_acqrel(&engine->collector.given_up_told, given_up) != given_up;
}

tw_status tw_flush(tw_engine *engine, uint32_t timeout_ms) {
    twi_check(engine != NULL);
    int64_t deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    tw_status status = twi_guard_may_wait(engine);
    if (status != TW_OK || engine->remote.sync == NULL) return status;
    enum twi_ticket state = await_ticket(engine, deadline_ms);
    if (state == TWI_TICKET_OPEN) return refuse_late(engine);
    bool has_lost = has_given_up(engine);
    return state == TWI_TICKET_DONE && !has_lost ? TW_OK : refuse_flush();
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

/* What one tw_fetch() waits for. */
struct fetch {
    tw_family *family;
    const tw_key *keys;
    size_t count;
    int64_t since_ms; /* a total that came before it may be an old one */
    int64_t *totals;  /* of the keys that are `fresh` */
    bool *fresh;
    size_t missing;
};

static void note_total(struct fetch *fetch, size_t i) {
    tw_reading reading;
    int64_t now_ms = twi_clock_mono_ms(&fetch->family->engine->clock);
    if (fetch->fresh[i] || tw_read(fetch->family, fetch->keys[i], &reading) != TW_OK || !reading.known) return;
    if (reading.age_ms > now_ms - fetch->since_ms + CLOCK_GRAIN_MS) return;
    fetch->totals[i] = reading.total;
    fetch->fresh[i] = true;
    fetch->missing--;
}

/* Requests what is missing, and waits for the answers. */
static tw_status fetch_once(struct fetch *fetch, int64_t deadline_ms) {
    tw_status status = TW_OK;
    for (size_t i = 0; i < fetch->count && status == TW_OK; i++)
        if (!fetch->fresh[i]) status = request_total(fetch->family, fetch->keys[i]);
    if (status != TW_OK) return status;
    if (await_ticket(fetch->family->engine, deadline_ms) == TWI_TICKET_OPEN) return refuse_late(fetch->family->engine);
    for (size_t i = 0; i < fetch->count; i++) note_total(fetch, i);
    return TW_OK;
}

/* Redis answers, and has no total of a key: it refuses the key, or another program's value stands there. */
static tw_status refuse_key(const struct fetch *fetch) {
    size_t i = 0, used = 0;
    char name[96];
    while (fetch->fresh[i]) i++;
    const char *key = fetch->keys[i].data;
    for (; used < fetch->keys[i].size && used + 1 < sizeof name; used++)
        name[used] = key[used] > ' ' && key[used] < 127 ? key[used] : '?';
    name[used] = '\0';
    return twi_refuse_with(TW_ERR_REDIS, "Redis: it has no count for the key %s (does it hold another type?)", name);
}

/* A window may end while its totals are awaited, and the reply to a batch that was sent twice has none: so a key that
 * got no total is requested again. */
static tw_status fetch_all(struct fetch *fetch, int64_t deadline_ms) {
    tw_status status = TW_OK;
    for (uint32_t i = 0; i < FETCH_TRIES && fetch->missing != 0 && status == TW_OK; i++)
        status = fetch_once(fetch, deadline_ms);
    return status == TW_OK && fetch->missing != 0 ? refuse_key(fetch) : status;
}

static tw_status may_fetch(tw_family *family) {
    tw_status status = twi_guard_may_wait(family->engine);
    if (status == TW_OK) status = twi_guard_engine(family->engine);
    if (status != TW_OK) return status;
    if (family->kind.is_distinct) return twi_distinct_refuse();
    if (family->kind.is_gcra) /* a time is no total */
        return twi_refuse(TW_ERR_MODE, "limit_shape: a family of TW_SHAPE_GCRA keeps times and no counts");
    return family->engine->remote.sync != NULL ? TW_OK : twi_redis_refuse();
}

tw_status tw_fetch(tw_family *family, const tw_key *keys, size_t count, uint32_t timeout_ms, int64_t *totals) {
    twi_check(family != NULL);
    int64_t now_ms = twi_clock_mono_ms(&family->engine->clock);
    tw_status status = may_fetch(family);
    if (status != TW_OK) return status;
    struct fetch fetch = {.family = family, .keys = keys, .count = count, .since_ms = now_ms, .missing = count};
    fetch.totals = malloc((count + 1) * sizeof *fetch.totals); /* all totals are written together, or none */
    fetch.fresh = calloc(count + 1, sizeof *fetch.fresh);
    if (fetch.totals != NULL && fetch.fresh != NULL)
        status = fetch_all(&fetch, now_ms + timeout_ms);
    else
        status = twi_refuse(TW_ERR_MEMORY, NULL);
    if (status == TW_OK && totals != NULL) memcpy(totals, fetch.totals, count * sizeof *totals);
    free(fetch.totals);
    free(fetch.fresh);
    return status;
}
