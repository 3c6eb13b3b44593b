/* flush.c -- tw_flush() and tw_fetch(), the calls that wait for Redis. A flush takes a ticket for one full collection
 * that begins after the call. The ticket is done when the batches of this collection are answered. A fetch is a flush
 * whose collection also requests the totals of its keys. A refusal of other keys by Redis concerns a flush, but not a
 * fetch.
 * Always true: a caller that waits here is in no section and in no hook. When its time has ended, no work is undone,
 * and queued items stay queued. */
#include "engine/flush.h"

#include "engine/core/calls.h"
#include "engine/core/operation.h"
#include "engine/core/peers.h"
#include "engine/core/queue.h"
#include "engine/core/report.h"
#include "engine/core/state.h"
#include "engine/count/lookup.h"
#include "engine/turn/turn.h"

#include <stdlib.h>

/* A flush that Redis answers ends after a few turns, so only that many turns are woken early. If every turn were
 * woken, the background thread and the waiting thread would wake each other as long as Redis does not reply. */
#define PROMPT_TURNS 16

#define FETCH_TRIES 3u
#define CLOCK_GRAIN_MS (2 * TWI_TICK_MS) /* the resolution of the clocks that measure a total's age */

bool twi_flush_has_no_leader(tw_engine *engine, uint32_t turns) {
    return engine->life.is_shared && twi_event_count_value(&engine->turn.ended) == turns;
}

/* Makes some progress. It runs a turn itself if the engine is host-driven, otherwise it waits for the next turn. */
void twi_flush_wait_for_turn(tw_engine *engine, uint32_t waits) {
    uint32_t seen = twi_event_count_value(&engine->turn.ended);
    if (!engine->life.host_driven) {
        if (waits < PROMPT_TURNS) twi_port_wake(engine);
        twi_event_count_wait(&engine->turn.ended, seen, TWI_TICK_MS);
    } else if (twi_turn_take(engine)) {
        twi_turn_run(engine);
        twi_turn_leave(engine);
        (void)twi_queue_run_own(engine, TWI_TURN_ANSWERS);
        twi_turn_nap(engine, 1);
    } else {
        twi_event_count_wait(&engine->turn.ended, seen, TWI_TICK_MS);
    }
}

static tw_status refuse_flush(void) {
    return twi_refuse(TW_ERR_REDIS,
                      "Redis: some of it was refused, late or of unknown outcome; on_lost names the keys");
}

/* A wait ends with its time, and when the engine is stopped. */
static bool is_over(tw_engine *engine, int64_t deadline_ms) {
    return twi_clock_mono_ms(&engine->clock) >= deadline_ms || twi_load_acquire(&engine->life.stopped);
}

/* The last reply of Redis shows whether waiting helps. `turns` is how many turns had ended when the call began. */
static tw_status refuse_late(tw_engine *engine, uint32_t turns) {
    char error[TWI_REPORT_ERROR_MAX];
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    if (twi_flush_has_no_leader(engine, turns)) return twi_refuse(TW_ERR_TIMEOUT, TWI_FLUSH_NO_LEADER);
    twi_report_error_text(&engine->report, error);
    return twi_refuse_with(TW_ERR_TIMEOUT, "timeout_ms: Redis has not acknowledged all of it yet; it stays queued%s%s",
                           error[0] != '\0' ? "; the last error: " : "", error);
}

/* Returns whether counts were given up that no flush has reported, also while no flush waited. */
static bool has_given_up(tw_engine *engine) {
    uint64_t given_up = twi_load_relaxed(&engine->collector.given_up); /* by the round of the ticket, too: T3, T4 */
    return twi_swap_acqrel(&engine->collector.given_up_told, given_up) != given_up;
}

static tw_status answer_flush(tw_engine *engine, enum twi_ticket state, uint32_t turns) {
    if (state == TWI_TICKET_OPEN) return refuse_late(engine, turns);
    bool has_lost = has_given_up(engine);
    return state == TWI_TICKET_DONE && !has_lost ? TW_OK : refuse_flush();
}

/* A thread that waits has its waiter on its stack, and looks itself. */
static void look_until_over(struct twi_operation *operation, enum twi_look (*look)(struct twi_operation *operation)) {
    for (uint32_t waits = 0; look(operation) == TWI_LOOK_WAITS; waits++)
        twi_flush_wait_for_turn(operation->engine, waits);
}

/* ---- tw_flush() ---- */

#define LOOKS_PROMPT 16 /* as PROMPT_TURNS */

/* A waiter (calls.h), until its ticket is done, or its time has ended. */
struct flushing {
    struct twi_operation operation;
    uint64_t ticket;
    enum twi_ticket state;
    uint32_t looks, turns;
};
static_assert(sizeof(struct flushing) <= TWI_OPERATION_BYTES, "operation.h");

/* When a waiter that waits for turns is looked at next, if no turn comes earlier. */
static int64_t plan_look(const struct twi_operation *operation, uint32_t looks) {
    twi_check(operation->list == NULL);
    return twi_clock_mono_ms(&operation->engine->clock) + (looks < LOOKS_PROMPT ? 1 : TWI_TICK_MS);
}

static bool is_late(const struct twi_operation *operation) {
    return is_over(operation->engine, operation->deadline_ms);
}

static enum twi_look look_at_flush(struct twi_operation *operation) {
    struct flushing *flushing = (struct flushing *)operation;
    flushing->state = twi_flush_state(operation->engine, flushing->ticket);
    operation->wait.look_ms = plan_look(operation, flushing->looks++);
    return flushing->state == TWI_TICKET_OPEN && !is_late(operation) ? TWI_LOOK_WAITS : TWI_LOOK_OVER;
}

static tw_status finish_flush(struct twi_operation *operation, tw_request *call) {
    (void)call;
    const struct flushing *flushing = (struct flushing *)operation;
    return answer_flush(operation->engine, flushing->state, flushing->turns);
}

static const struct twi_operation_kind flush_kind = {.finish = finish_flush};

static void begin_flush(struct flushing *flushing) {
    tw_engine *engine = flushing->operation.engine;
    flushing->turns = twi_event_count_value(&engine->turn.ended);
    flushing->ticket = twi_flush_take(engine);
    flushing->state = TWI_TICKET_OPEN;
    flushing->looks = 0;
}

tw_status tw_flush(tw_engine *engine, uint32_t timeout_ms) {
    TWI_NEED(engine);
    struct flushing flushing = {.operation = {.engine = engine}};
    flushing.operation.deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    tw_status status = twi_guard_may_wait(engine);
    if (status != TW_OK || !engine->life.has_redis) return status;
    begin_flush(&flushing);
    look_until_over(&flushing.operation, look_at_flush);
    return finish_flush(&flushing.operation, NULL);
}

tw_status tw_flush_async(tw_request *request, tw_engine *engine) {
    TWI_NEED(request);
    TWI_NEED(engine);
    tw_status status = twi_calls_may_start(engine);
    if (status != TW_OK || !engine->life.has_redis) return twi_call_answer(request, status);
    struct flushing *flushing = (struct flushing *)twi_operation_make(engine, &flush_kind, NULL, request, &status);
    if (flushing == NULL) return twi_call_answer(request, status);
    begin_flush(flushing);
    return twi_waiter_start_in_turns(&flushing->operation, request, look_at_flush);
}

/* ---- tw_fetch() ---- */

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
    return status == TW_ERR_FULL ? twi_refuse_for(TWI_WHY_FULL) : status;
}

/* The keys that one tw_fetch() waits for. */
struct fetch {
    tw_family *family;
    const tw_key *keys;
    size_t count;
    int64_t since_ms; /* a total that came before it may be an old one */
    int64_t *totals;  /* the totals of the keys that are `fresh` */
    bool *fresh;
    size_t missing;
    uint32_t turns; /* that had ended when the call began */
};

static void note_total(struct fetch *fetch, size_t i) {
    twi_check(i < fetch->count);
    tw_reading reading;
    int64_t now_ms = twi_clock_mono_ms(&fetch->family->engine->clock);
    if (fetch->fresh[i] || tw_read(fetch->family, fetch->keys[i], &reading) != TW_OK || !reading.known) return;
    if (reading.age_ms > now_ms - fetch->since_ms + CLOCK_GRAIN_MS) return;
    fetch->totals[i] = reading.total;
    fetch->fresh[i] = true;
    fetch->missing--;
}

static tw_status request_missing(struct fetch *fetch) {
    tw_status status = TW_OK;
    for (size_t i = 0; i < fetch->count && status == TW_OK; i++)
        if (!fetch->fresh[i]) status = request_total(fetch->family, fetch->keys[i]);
    return status;
}

/* Redis answers, and has no total of a key. It refuses the key, or the key has a value of another program. */
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

static tw_status check_family(const tw_family *family) {
    if (family->kind.is_distinct) return twi_refuse_for(TWI_WHY_DISTINCT);
    if (family->kind.is_gcra) /* a time is no total */
        return twi_refuse(TW_ERR_MODE, "limit_shape: a family of TW_SHAPE_GCRA keeps times and no counts");
    return family->engine->life.has_redis ? TW_OK : twi_refuse_for(TWI_WHY_REDIS);
}

static tw_status may_fetch(tw_family *family) {
    tw_status status = twi_guard_may_wait(family->engine);
    if (status == TW_OK) status = twi_guard_engine(family->engine);
    return status == TW_OK ? check_family(family) : status;
}

/* Room for `count` totals, which are written together or not at all. */
static bool make_fetch(struct fetch *fetch, tw_family *family, const tw_key *keys, size_t count) {
    twi_check(count != 0);
    *fetch = (struct fetch){.family = family, .keys = keys, .count = count, .missing = count};
    fetch->since_ms = twi_clock_mono_ms(&family->engine->clock);
    fetch->turns = twi_event_count_value(&family->engine->turn.ended);
    fetch->totals = malloc((count + 1) * sizeof *fetch->totals);
    fetch->fresh = calloc(count + 1, sizeof *fetch->fresh);
    return fetch->totals != NULL && fetch->fresh != NULL;
}

/* A waiter, until each key has a total, its tries are used up, or its time has ended. A window may end while its totals
 * are awaited, and the reply to a batch that was sent twice has none. So a key that got no total is requested again. */
struct fetching {
    struct twi_operation operation;
    struct fetch fetch;
    tw_key *keys; /* copies, their bytes behind them; NULL for a thread that waits */
    int64_t *totals;
    uint64_t ticket;
    uint32_t tries, looks;
    bool is_answered; /* all tries were answered */
    tw_status status; /* TW_PENDING means that some total is still missing */
};
static_assert(sizeof(struct fetching) <= TWI_OPERATION_BYTES, "operation.h");

/* Requests the missing totals. */
static void try_fetch(struct fetching *fetching) {
    tw_status status = request_missing(&fetching->fetch);
    fetching->tries++;
    fetching->status = status == TW_OK ? TW_PENDING : status;
    fetching->ticket = twi_flush_take(fetching->operation.engine);
}

static enum twi_look look_at_fetch(struct twi_operation *operation) {
    struct fetching *fetching = (struct fetching *)operation;
    struct fetch *fetch = &fetching->fetch;
    operation->wait.look_ms = plan_look(operation, fetching->looks++);
    if (fetching->status != TW_PENDING) return TWI_LOOK_OVER; /* a key found no room */
    if (twi_flush_state(operation->engine, fetching->ticket) == TWI_TICKET_OPEN)
        return is_late(operation) ? TWI_LOOK_OVER : TWI_LOOK_WAITS;
    for (size_t i = 0; i < fetch->count; i++) note_total(fetch, i);
    if (fetch->missing == 0) fetching->status = TW_OK;
    fetching->is_answered = fetching->tries == FETCH_TRIES;
    if (fetch->missing == 0 || fetching->is_answered) return TWI_LOOK_OVER;
    try_fetch(fetching);
    return fetching->status == TW_PENDING ? TWI_LOOK_WAITS : TWI_LOOK_OVER;
}

static tw_status finish_fetch(struct twi_operation *operation, tw_request *call) {
    struct fetching *fetching = (struct fetching *)operation;
    const struct fetch *fetch = &fetching->fetch;
    if (fetching->status == TW_OK && fetching->totals != NULL)
        memcpy(fetching->totals, fetch->totals, fetch->count * sizeof *fetch->totals);
    if (fetching->status == TW_ERR_FULL) return twi_refuse_for(TWI_WHY_FULL);
    if (fetching->status != TW_PENDING) /* a thread that waited was refused itself */
        return fetching->status < 0 && call != NULL ? twi_refuse(fetching->status, NULL) : fetching->status;
    return fetching->is_answered ? refuse_key(fetch) : refuse_late(operation->engine, fetch->turns);
}

static void drop_fetch(struct twi_operation *operation) {
    struct fetching *fetching = (struct fetching *)operation;
    free(fetching->fetch.totals);
    free(fetching->fetch.fresh);
    free(fetching->keys);
}

static const struct twi_operation_kind fetch_kind = {.finish = finish_fetch, .drop = drop_fetch};

/* Returns NULL if there is no memory. */
static tw_key *copy_keys(const tw_key *keys, size_t count) {
    size_t bytes = (count + 1) * sizeof *keys;
    for (size_t i = 0; i < count; i++) bytes += keys[i].size;
    tw_key *copies = malloc(bytes);
    if (copies == NULL) return NULL;
    unsigned char *at = (unsigned char *)(copies + count + 1);
    for (size_t i = 0; i < count; i++) {
        if (keys[i].size != 0) memcpy(at, keys[i].data, keys[i].size);
        copies[i] = tw_bytes(at, keys[i].size);
        at += keys[i].size;
    }
    return copies;
}

static tw_status check_fetch(tw_family *family, const tw_key *keys, size_t count) {
    tw_status status = twi_calls_may_start(family->engine);
    if (status == TW_OK) status = check_family(family);
    for (size_t i = 0; i < count && status == TW_OK; i++) status = twi_call_check_key(family, keys[i]);
    return status;
}

tw_status tw_fetch(tw_family *family, const tw_key *keys, size_t count, uint32_t timeout_ms, int64_t *totals) {
    TWI_NEED(family);
    if (count != 0) TWI_NEED(keys);
    tw_status status = may_fetch(family);
    if (status != TW_OK || count == 0) return status;
    struct fetching fetching = {.operation = {.engine = family->engine}, .totals = totals};
    if (make_fetch(&fetching.fetch, family, keys, count)) {
        fetching.operation.deadline_ms = fetching.fetch.since_ms + timeout_ms;
        try_fetch(&fetching);
        look_until_over(&fetching.operation, look_at_fetch);
        status = finish_fetch(&fetching.operation, NULL);
    } else {
        status = twi_refuse(TW_ERR_MEMORY, NULL);
    }
    drop_fetch(&fetching.operation);
    return status;
}

tw_status tw_fetch_async(tw_request *request, tw_family *family, const tw_key *keys, size_t count, int64_t *totals) {
    TWI_NEED(request);
    TWI_NEED(family);
    if (count != 0) TWI_NEED(keys);
    tw_engine *engine = family->engine;
    tw_status status = check_fetch(family, keys, count);
    if (status != TW_OK) return twi_call_answer(request, status);
    struct fetching *fetching = (struct fetching *)twi_operation_make(engine, &fetch_kind, family, request, &status);
    if (fetching == NULL) return twi_call_answer(request, status);
    fetching->keys = copy_keys(keys, count);
    bool is_made = make_fetch(&fetching->fetch, family, fetching->keys, count) && fetching->keys != NULL;
    if (!is_made) return twi_call_end_now(&fetching->operation, request, twi_refuse(TW_ERR_MEMORY, NULL));
    fetching->totals = totals;
    fetching->tries = fetching->looks = 0;
    fetching->is_answered = false;
    try_fetch(fetching);
    return twi_waiter_start_in_turns(&fetching->operation, request, look_at_fetch);
}

/* ---- ready ----
 * tw_ready() waits until an engine has the data that it needs to decide well.
 * It waits until Redis has replied, the number of live engines is known (share.h, the first seconds), and the units
 * requested by tw_lease_warm() are here.
 * Always true: it changes no state. A caller that waits here is in no section and in no hook. */

/* Returns the name of the missing part; NULL means that no part is missing. */
static const char *missing(tw_engine *engine) {
    if (!twi_load_relaxed(&engine->peers.is_connected)) return "timeout_ms: Redis does not reply yet";
    if (!twi_peers_are_known(engine)) return "timeout_ms: the number of live engines is not known yet";
    /* A hint, like the others, because a caller that spends looks at the units themselves. */
    if (twi_load_relaxed(&engine->leases.awaiting_first_grant) != 0)
        return "timeout_ms: leases requested by tw_lease_warm() are not here yet";
    return NULL;
}

/* A waiter (calls.h). */
struct readying {
    struct twi_operation operation;
    const char *missing;
    uint32_t turns; /* that had ended when the call began */
};
static_assert(sizeof(struct readying) <= TWI_OPERATION_BYTES, "operation.h");

static enum twi_look look(struct twi_operation *operation) {
    struct readying *readying = (struct readying *)operation;
    readying->missing = missing(operation->engine);
    operation->wait.look_ms = twi_clock_mono_ms(&operation->engine->clock) + TWI_TICK_MS;
    return readying->missing != NULL && !is_late(operation) ? TWI_LOOK_WAITS : TWI_LOOK_OVER;
}

static tw_status finish(struct twi_operation *operation, tw_request *call) {
    const struct readying *readying = (struct readying *)operation;
    (void)call;
    if (readying->missing == NULL) return TW_OK;
    if (twi_load_acquire(&operation->engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    bool has_no_leader = twi_flush_has_no_leader(operation->engine, readying->turns);
    return twi_refuse(TW_ERR_TIMEOUT, has_no_leader ? TWI_FLUSH_NO_LEADER : readying->missing);
}

static const struct twi_operation_kind kind = {.finish = finish};

tw_status tw_ready(tw_engine *engine, uint32_t timeout_ms) {
    TWI_NEED(engine);
    struct readying readying = {.operation = {.engine = engine}};
    readying.operation.deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    tw_status status = twi_guard_may_wait(engine);
    if (status != TW_OK || !engine->life.has_redis) return status;
    readying.turns = twi_event_count_value(&engine->turn.ended);
    look_until_over(&readying.operation, look);
    return finish(&readying.operation, NULL);
}

tw_status tw_ready_async(tw_request *request, tw_engine *engine) {
    TWI_NEED(request);
    TWI_NEED(engine);
    tw_status status = twi_calls_may_start(engine);
    if (status != TW_OK || !engine->life.has_redis || missing(engine) == NULL) return twi_call_answer(request, status);
    struct readying *readying = (struct readying *)twi_operation_make(engine, &kind, NULL, request, &status);
    if (readying == NULL) return twi_call_answer(request, status);
    readying->turns = twi_event_count_value(&engine->turn.ended);
    readying->missing = "timeout_ms: Redis does not reply yet";
    return twi_waiter_start_in_turns(&readying->operation, request, look);
}
