/* hold.c -- tw_hold() and tw_hold_release(), for at most `limit` holders at a time. Without Redis the key's counter is
 * used. A hold takes from it as tw_acquire() does, a release lowers it by compare-and-swap, never below 0. hold.c
 * does this with Redis, and hold_shared.c without Redis for processes that share the engine. */
#include "engine/reserve/hold.h"

#include "engine/ask/redis_call.h"
#include "engine/core/calls.h"
#include "engine/core/peers.h"
#include "engine/count/lookup.h"
#include "engine/limit/acquire.h"
#include "engine/limit/limit_stats.h"
#include "engine/reserve/hold_book.h"
#include "engine/reserve/hold_shared.h"
#include "engine/reserve/reserve.h"

/* ---- hold redis ----
 * tw_hold() and tw_hold_release() if Redis decides, with one request per call (hold.lua). The hold book
 * (hold_book.h) lists the holds of this engine, so that they can be re-sent.
 *
 *   tw_hold     request ──OK──▶ entered in the book       Redis away: on_outage decides. What it admits is entered as
 *                 └──DENIED──▶ denied                     not sent yet, and is sent when Redis is back.
 *   tw_hold_release  taken out of the book ──▶ request, repeated until it is answered, or back into the book
 * Always true: a hold keeps one name from its first request on, so a repeated request and its cancel meet the same
 * hold. A hold that is admitted without Redis has another name, because the request is cancelled. */

#define ROOM_MS 50 /* until a release without a caller looks for a lane again */

static void request_about(tw_family *family, tw_key key, const char *what, int64_t limit, const char *member,
                          struct twi_redis_call *redis_call) {
    twi_redis_call_begin(redis_call, TWI_SCRIPT_HOLD);
    twi_redis_call_key(redis_call, family, "hold", key, 0);
    twi_redis_call_text(redis_call, what);
    twi_redis_call_number(redis_call, family->engine->here->remote.tuning.presence_life_ms);
    twi_redis_call_number(redis_call, limit);
    twi_redis_call_text(redis_call, member);
}

static void fill_verdict(const tw_family *family, tw_verdict *verdict, int64_t limit, int64_t used, uint32_t by,
                         bool admitted) {
    int64_t retry_ms =
        family->engine->here->remote.tuning.presence_life_ms; /* slots of a killed process are free then */
    twi_check(verdict != NULL && used >= 0);
    verdict->used = used;
    verdict->remaining = used < limit ? limit - used : 0;
    verdict->decided_by = by;
    verdict->error_bound = by == TW_BY_REDIS ? 0 : TW_UNBOUNDED;
    verdict->allowed = admitted;
    if (!admitted) twi_verdict_deny(verdict, limit < 1 ? TW_CAUSE_NEVER : TW_CAUSE_LIMIT, retry_ms);
}

/* Redis could not be asked, or did not reply. If Redis has admitted this hold nevertheless, sync/ takes that back. */
static bool admits_without(const tw_family *family, uint32_t policy, int64_t limit, int64_t held) {
    uint32_t live = twi_live_engines(family->engine);
    int64_t share = live > 1 ? limit / live : limit;
    switch (policy) {
    case TW_OUTAGE_FAIL_OPEN: return true;
    case TW_OUTAGE_FAIL_CLOSED: return false;
    case TW_OUTAGE_SHARE: return held < (share < 1 && limit > 0 ? 1 : share);
    default: return held < limit;
    }
}

static tw_status refuse_full(void) {
    return twi_refuse(TW_ERR_FULL, "memory: there is no room to remember another hold");
}

static tw_status hold_without(tw_family *family, tw_key key, int64_t limit, enum twi_request_outcome outcome,
                              tw_verdict *verdict) {
    char member[TWI_HOLD_MEMBER_MAX];
    twi_check(outcome != TWI_REQUEST_DONE);
    twi_hold_book_name(family->engine, member);
    uint32_t policy = twi_redis_call_policy(family, key, outcome);
    int64_t held = twi_hold_book_count(family, key);
    bool admitted = admits_without(family, policy, limit, held);
    struct twi_hold_said said = {.note = admitted ? twi_hold_book_note(family, key, member) : NULL};
    if (admitted && !twi_hold_book_enter(family, key, member, false, said)) {
        twi_hold_book_unnote(family->engine, said.note, true);
        return refuse_full();
    }
    fill_verdict(family, verdict, limit, held + admitted, TW_BY_OUTAGE, admitted);
    bool is_known = limit < 1 || (held >= limit && policy != TW_OUTAGE_FAIL_CLOSED);
    if (!admitted && !is_known) twi_verdict_deny_unknown(verdict, family->engine, twi_redis_call_cause(outcome));
    return admitted ? TW_OK : TW_DENIED;
}

/* ---- taking ---- */

struct taking {
    struct twi_operation operation;
    tw_key key;
    int64_t limit;
    struct twi_hold_note *note; /* NULL means none, or that the book has it */
    char member[TWI_HOLD_MEMBER_MAX];
};
static_assert(sizeof(struct taking) <= TWI_OPERATION_BYTES, "operation.h");

struct giving {
    struct twi_operation operation;
    tw_key key;
    struct twi_hold_said said;
    bool is_alone; /* nobody hears of it, so it waits for a lane */
    bool has_waited;
    char member[TWI_HOLD_MEMBER_MAX];
};
static_assert(sizeof(struct giving) <= TWI_OPERATION_BYTES, "operation.h");

static bool ask_give(struct twi_operation *operation) {
    const struct giving *giving = (const struct giving *)operation;
    struct twi_redis_call redis_call;
    const char *what = twi_hold_book_may_come(operation->engine, &giving->said) ? "end" : "release";
    request_about(operation->family, giving->key, what, 0, giving->member, &redis_call);
    redis_call.request.repeats = true;
    return twi_redis_call_send(&redis_call, operation);
}

static bool is_begun(const struct giving *giving) {
    enum twi_request_outcome outcome = giving->operation.result.outcome;
    return outcome == TWI_REQUEST_DONE || outcome == TWI_REQUEST_UNKNOWN;
}

/* Without a reply the release is repeated. If it was never begun, the hold stays, so it can be released again. */
static tw_status finish_give(struct twi_operation *operation, tw_request *call) {
    struct giving *giving = (struct giving *)operation;
    tw_engine *engine = operation->engine;
    (void)call;
    bool stays = !is_begun(giving) && !twi_load_acquire(&engine->life.stopped); /* or it ends with the engine */
    if (!stays || !twi_hold_book_enter(operation->family, giving->key, giving->member, false, giving->said))
        return TW_OK;
    giving->said.note = NULL; /* the book has it */
    return twi_redis_call_refuse(engine, operation->result.outcome);
}

/* Its caller has gone. */
static void undo_give(struct twi_operation *operation);

static void drop_give(struct twi_operation *operation) {
    twi_hold_book_unnote(operation->engine, ((struct giving *)operation)->said.note,
                         operation->result.outcome == TWI_REQUEST_DONE);
}

static const struct twi_operation_kind give_kind = {
    .send = ask_give, .finish = finish_give, .undo = undo_give, .drop = drop_give, .settles = true};

/* If it returns NULL, *status is the reason. */
static struct giving *make_give(tw_family *family, tw_request *call, tw_status *status) {
    twi_check(family->kind.synced);
    struct giving *giving = (struct giving *)twi_operation_make(family->engine, &give_kind, family, call, status);
    if (giving == NULL) return NULL;
    giving->said = (struct twi_hold_said){0};
    giving->is_alone = giving->has_waited = false;
    return giving;
}

/* A waiter, until the statement that contains this hold is answered, so that its release needs no mark, or until its
 * time has ended; and while it finds no lane, if it is alone. This takes one round trip, and it is rare, because a hold
 * is sent again only once in a third of its life. */
static enum twi_look look_at_statement(struct twi_operation *operation) {
    tw_engine *engine = operation->engine;
    struct giving *giving = (struct giving *)operation;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    bool is_over =
        giving->has_waited || twi_hold_book_is_answered(engine, &giving->said) || now_ms >= operation->deadline_ms;
    operation->wait.look_ms = now_ms + TWI_TICK_MS;
    if (!is_over) return TWI_LOOK_WAITS;
    operation->deadline_ms = now_ms + twi_port_timeout_ms(engine);
    giving->has_waited = true;
    bool is_alone = giving->is_alone, is_asked = ask_give(operation); /* then it may be gone */
    if (is_asked && is_alone) twi_port_count(engine, ask_unsettled, -1);
    if (is_asked) return TWI_LOOK_ASKED;
    if (!is_alone) return TWI_LOOK_OVER;
    bool waits = operation->result.outcome == TWI_REQUEST_BUSY && !twi_load_acquire(&engine->life.stopped);
    operation->wait = (struct twi_wait){.look = look_at_statement, .look_ms = now_ms + ROOM_MS};
    if (!waits) twi_port_count(engine, ask_unsettled, -1);
    if (!waits) twi_port_count(engine, asks_forgotten, 1);
    return waits ? TWI_LOOK_WAITS : TWI_LOOK_OVER;
}

/* Sends it without a waiting caller. */
static void send_alone(struct giving *giving) {
    twi_check(giving->operation.call == NULL && giving->member[0] != '\0');
    giving->is_alone = true;
    tw_engine *engine = giving->operation.engine;
    if (twi_hold_book_is_answered(engine, &giving->said) && ask_give(&giving->operation)) return;
    twi_port_count(engine, ask_unsettled, 1); /* until it has a lane */
    (void)twi_waiter_start_in_turns(&giving->operation, NULL, look_at_statement);
}

/* Releases a hold that is in no book. */
static void let_go(tw_family *family, tw_key key, const char *member, struct twi_hold_said said) {
    tw_status status;
    struct giving *giving = make_give(family, NULL, &status);
    if (giving == NULL) {
        twi_hold_book_unnote(family->engine, said.note, false);
        return;
    }
    memcpy(giving->member, member, sizeof giving->member);
    giving->said = said;
    if (twi_operation_keep(&giving->operation, key, &giving->key))
        send_alone(giving);
    else
        twi_operation_give(&giving->operation);
}

static void undo_give(struct twi_operation *operation) {
    struct giving *giving = (struct giving *)operation;
    struct twi_hold_said said = giving->said;
    if (is_begun(giving)) return;
    giving->said.note = NULL; /* the next one has it */
    let_go(operation->family, giving->key, giving->member, said);
}

static bool ask_take(struct twi_operation *operation) {
    struct taking *taking = (struct taking *)operation;
    struct twi_redis_call redis_call;
    if (taking->note == NULL) taking->note = twi_hold_book_note(operation->family, taking->key, taking->member);
    request_about(operation->family, taking->key, "hold", taking->limit, taking->member, &redis_call);
    redis_call.request.numbered = true;
    return twi_redis_call_send(&redis_call, operation);
}

/* MORE means that all members were dead and were removed; the next request finds no dead ones. It has another name,
 * because a copy of the last one may still come. */
static bool read_take(struct twi_operation *operation, struct twi_answer *answer) {
    twi_check(answer->outcome == operation->result.outcome);
    (void)answer;
    if (!twi_result_is(&operation->result, "MORE")) return false;
    if (twi_clock_mono_ms(&operation->engine->clock) >= operation->deadline_ms) return false;
    struct taking *taking = (struct taking *)operation;
    twi_hold_book_unnote(operation->engine, taking->note, false);
    taking->note = NULL;
    twi_hold_book_name(operation->engine, taking->member);
    return ask_take(operation);
}

static bool is_refused(tw_family *family, enum twi_request_outcome outcome) {
    bool when_busy = outcome == TWI_REQUEST_BUSY && !twi_load_relaxed(&family->policy.busy_is_outage);
    return when_busy || outcome == TWI_REQUEST_REFUSED || twi_load_acquire(&family->engine->life.stopped);
}

static tw_status read_result(struct taking *taking, tw_verdict *verdict) {
    const struct twi_result *result = &taking->operation.result;
    tw_family *family = taking->operation.family;
    tw_engine *engine = family->engine;
    enum twi_request_outcome why = twi_result_why(result);
    if (is_refused(family, why)) {
        if (why == TWI_REQUEST_BUSY) verdict->cause = TW_CAUSE_BUSY; /* also of a call whose outcome is unknown */
        return twi_redis_call_refuse(engine, result->outcome);
    }
    if (result->outcome != TWI_REQUEST_DONE) return hold_without(family, taking->key, taking->limit, why, verdict);
    bool admitted = twi_result_is(result, "OK");
    twi_redis_call_answered(family);
    if (!admitted && !twi_result_is(result, "DENIED")) return twi_redis_call_refuse(engine, result->outcome);
    const struct twi_hold_said said = {.is_copied = result->is_copied, .note = taking->note};
    if (admitted) taking->note = NULL; /* the book has it, or the release */
    if (admitted && !twi_hold_book_enter(family, taking->key, taking->member, true, said)) {
        let_go(family, taking->key, taking->member, said);
        return refuse_full();
    }
    fill_verdict(family, verdict, taking->limit, twi_result_number(result, 1), TW_BY_REDIS, admitted);
    return admitted ? TW_OK : TW_DENIED;
}

static tw_status finish_take(struct twi_operation *operation, tw_request *call) {
    tw_status status = read_result((struct taking *)operation, &call->verdict);
    return twi_limit_stats_answered(operation->family, 1, status, &call->verdict);
}

/* The book has no slot of this call. Redis may still have one, unless it denied it or had no request; then the note
 * stays as long as that. */
static void drop_take(struct twi_operation *operation) {
    const struct twi_result *result = &operation->result;
    bool is_unsent =
        !operation->is_given_up && result->outcome != TWI_REQUEST_DONE && result->outcome != TWI_REQUEST_UNKNOWN;
    twi_hold_book_unnote(operation->engine, ((struct taking *)operation)->note,
                         is_unsent || twi_result_is(result, "DENIED"));
}

static const struct twi_operation_kind take_kind = {
    .send = ask_take, .reply = read_take, .finish = finish_take, .drop = drop_take, .may_be_unsent = true};

static tw_status take(tw_request *call, tw_family *family, tw_key key, int64_t limit) {
    twi_check(call != NULL && family->kind.synced && limit >= 0);
    tw_status status = twi_redis_call_may(family->engine, call);
    struct taking *taking =
        status == TW_OK ? (struct taking *)twi_operation_make(family->engine, &take_kind, family, call, &status) : NULL;
    if (taking != NULL) taking->note = NULL;
    if (taking != NULL && !twi_operation_keep(&taking->operation, key, &taking->key)) {
        status = twi_call_end_now(&taking->operation, call, twi_refuse(TW_ERR_MEMORY, NULL));
        taking = NULL;
    }
    if (taking == NULL) return twi_call_answer(call, twi_limit_stats_answered(family, 1, status, &call->verdict));
    taking->limit = limit;
    twi_hold_book_name(family->engine, taking->member);
    return twi_call_start(&taking->operation, call);
}

/* ---- giving ---- */

/* If `call` is NULL, no caller gets the answer. */
static tw_status give(tw_request *call, tw_family *family, tw_key key) {
    twi_check(family->kind.synced);
    tw_status status = twi_redis_call_may(family->engine, call);
    struct giving *giving = status == TW_OK ? make_give(family, call, &status) : NULL;
    if (giving == NULL) return twi_call_answer(call, status);
    struct twi_operation *operation = &giving->operation;
    if (!twi_operation_keep(operation, key, &giving->key))
        status = twi_refuse(TW_ERR_MEMORY, NULL);
    else if (!twi_hold_book_leave(family, key, giving->member, &giving->said))
        status = twi_refuse_for(TWI_WHY_HOLD);
    if (status != TW_OK) return twi_call_end_now(operation, call, status);
    if (call != NULL && !twi_hold_book_is_answered(family->engine, &giving->said))
        return twi_waiter_start_in_turns(operation, call, look_at_statement);
    if (call != NULL) return twi_call_start(operation, call);
    send_alone(giving);
    return TW_STARTED;
}

TWI_COLD const char *twi_hold_refusal(const struct tw_family *family, const tw_family_options *options) {
    const char *why = NULL;
    if (options->window != TW_WINDOW_FOREVER) why = "window: tw_hold() is for TW_WINDOW_FOREVER families";
    if (family->kind.evicts_idle) why = "on_full: tw_hold() is not for TW_ON_FULL_EVICT_IDLE families";
    if (options->kind == TW_KIND_DISTINCT) why = "kind: tw_hold() is not for TW_KIND_DISTINCT families";
    if (options->limit_mode == TW_LIMIT_HARD) why = "limit_mode: tw_hold() is not for TW_LIMIT_HARD families";
    if (options->limit_shape != TW_SHAPE_FIXED) why = "limit_shape: tw_hold() is for TW_SHAPE_FIXED families";
    if (options->redis_shape != TW_REDIS_STRING) why = "redis_shape: tw_hold() is for TW_REDIS_STRING families";
    if (family->kind.synced && family->engine->life.is_shared)
        why = "shared: with Redis, tw_hold() is not for shared engines";
    return why;
}

static __attribute__((noinline)) tw_status check_hold_slowly(const tw_family *family, tw_key key) {
    if (twi_likely(family->kind.takes_holds)) return twi_call_check_key(family, key);
    return twi_refuse(TW_ERR_MODE, twi_hold_refusal(family, &family->options));
}
TWI_INLINE tw_status check_hold(const tw_family *family, tw_key key) {
    bool is_plain = family->kind.takes_holds && !family->kind.checks_keys && key.data != NULL;
    return twi_likely(is_plain && key.size - 1 < TW_KEY_SIZE_MAX) ? TW_OK : check_hold_slowly(family, key);
}

TWI_INLINE tw_status begin_hold(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict) {
    twi_check(verdict != NULL);
    tw_status status = check_hold(family, key);
    if (status == TW_OK && twi_load_relaxed(&family->policy.shadow)) /* slots that are held can be released */
        status = twi_refuse(TW_ERR_MODE, "shadow: tw_hold() is not for families in shadow mode");
    if (status == TW_OK && (limit < 0 || limit > TW_DELTA_MAX))
        status = twi_refuse(TW_ERR_RANGE, "limit: not within 0..TW_DELTA_MAX");
    if (twi_unlikely(status != TW_OK) || family->kind.synced) twi_reserve_verdict(verdict, family, limit);
    return status;
}

static __attribute__((noinline)) tw_status hold_here(tw_family *family, tw_key key, int64_t limit,
                                                     tw_verdict *verdict) {
    tw_status status = twi_acquire_counted(family, key, 1, limit, verdict); /* otherwise it could not be released */
    if (status == TW_OK && !twi_load_relaxed(&family->has_slots)) twi_store_relaxed(&family->has_slots, true);
    return status;
}

/* It writes the verdict. */
TWI_INLINE tw_status hold_locally(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict) {
    twi_check(!family->kind.synced);
    return family->engine->life.is_shared ? twi_hold_shared_take(family, key, limit, verdict)
                                          : hold_here(family, key, limit, verdict);
}

tw_status tw_hold_async(tw_request *request, tw_family *family, tw_key key, int64_t limit) {
    TWI_NEED(request);
    TWI_NEED(family);
    tw_status status = begin_hold(family, key, limit, &request->verdict);
    if (status == TW_OK && family->kind.synced) return take(request, family, key, limit);
    return twi_call_answer(request, status == TW_OK ? hold_locally(family, key, limit, &request->verdict) : status);
}

/* A function of its own, because tw_hold() without Redis needs no request. */
TWI_COLD static tw_status take_and_wait(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict) {
    tw_request call;
    twi_call_by_thread(&call, 0);
    call.verdict = *verdict;
    tw_status status = take(&call, family, key, limit);
    *verdict = call.verdict;
    return status;
}

static __attribute__((noinline)) tw_status hold_unasked(tw_family *family, tw_key key, int64_t limit) {
    tw_verdict unasked;
    return tw_hold(family, key, limit, &unasked);
}

tw_status tw_hold(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict) {
    TWI_NEED(family);
    if (twi_unlikely(verdict == NULL)) return hold_unasked(family, key, limit);
    tw_status status = begin_hold(family, key, limit, verdict);
    if (status != TW_OK) return status;
    return family->kind.synced ? take_and_wait(family, key, limit, verdict) : hold_locally(family, key, limit, verdict);
}

/* Lowers a cell without stripes by one, using compare-and-swap, from above 0. Otherwise it answers as
 * twi_place_add(). */
static enum twi_added take_one(const struct twi_call *call, const struct twi_place *place) {
    uint64_t word = twi_load_acquire(&place->cell->local), after; /* C2 */
    do {
        if ((word & TWI_FROZEN) != 0) break;
        if (twi_word_value(word) <= 0) return TWI_ADD_RANGE;
        after = word - (UINT64_C(1) << TWI_COUNT_SHIFT);
    } while (!twi_cas_weak_acqrel(&place->cell->local, &word, after));
    if ((word & TWI_FROZEN) == 0) return TWI_ADDED;
    /* The cell is striped or sealed. No single word of the stripes shows that a hold exists. So a caller that releases
     * more than it holds, at the moment when others release, is not detected. */
    uint64_t meta = twi_load_acquire(&place->cell->meta); /* S2 */
    int64_t local;
    if (twi_cell_local(place->cell, meta) <= 0) return TWI_ADD_RANGE;
    struct twi_place striped = *place;
    striped.meta = meta;
    return twi_place_add(call, &striped, -1, &local);
}

static __attribute__((noinline)) tw_status release_here(tw_family *family, tw_key key) {
    struct twi_call call;
    tw_status status = twi_call_begin(&call, family, key);
    if (status != TW_OK) return status;
    call.without_sum = true;
    do {
        struct twi_place place;
        status = twi_call_now(&call);
        if (status != TW_OK) break;
        enum twi_added added = twi_place_find(&call, &place) ? take_one(&call, &place) : TWI_ADD_RANGE;
        status = added == TWI_ADDED ? TW_OK : added == TWI_ADD_FROZEN ? TWI_AGAIN : twi_refuse_for(TWI_WHY_HOLD);
    } while (status == TWI_AGAIN);
    twi_call_end(&call);
    return status;
}

TWI_INLINE tw_status release_locally(tw_family *family, tw_key key) {
    twi_check(!family->kind.synced);
    return family->engine->life.is_shared ? twi_hold_shared_give(family, key) : release_here(family, key);
}

tw_status tw_hold_release_async(tw_request *request, tw_family *family, tw_key key) {
    TWI_NEED(family);
    tw_status status = check_hold(family, key);
    if (status == TW_OK && family->kind.synced) return give(request, family, key);
    return twi_call_answer(request, status == TW_OK ? release_locally(family, key) : status);
}

TWI_COLD static tw_status give_and_wait(tw_family *family, tw_key key) {
    tw_request call;
    twi_call_by_thread(&call, 0);
    return give(&call, family, key);
}

tw_status tw_hold_release(tw_family *family, tw_key key) {
    TWI_NEED(family);
    tw_status status = check_hold(family, key);
    if (status != TW_OK) return status;
    return family->kind.synced ? give_and_wait(family, key) : release_locally(family, key);
}
