/* hold_redis.c -- tw_hold() and tw_hold_release() where Redis decides: one request per call (hold.lua). The hold book
 * (hold_book.h) lists the holds of this engine, so that they can be re-sent.
 *
 *   tw_hold     request ──OK──▶ entered in the book       Redis away: on_outage decides. What it admits is entered as
 *                 └──DENIED──▶ denied                     not sent yet, and is sent when Redis is back.
 *   tw_hold_release  taken out of the book ──▶ request; without a reply the hold ends by itself, not being re-sent
 * Always true: a hold keeps one name from its first request on, so a repeated request meets the same hold. */
#include "engine/reserve/hold_redis.h"

#include "engine/ask/redis_call.h"
#include "engine/reserve/hold_book.h"
#include "engine/core/peers.h"

static void request_about(tw_family *family, tw_key key, const char *what, int64_t limit, const char *member,
                          struct twi_redis_call *redis_call) {
    twi_redis_call_begin(redis_call, family->engine, TWI_SCRIPT_HOLD, 0);
    twi_redis_call_key(redis_call, family, "hold", key, 0);
    twi_redis_call_text(redis_call, what);
    twi_redis_call_number(redis_call, family->engine->remote.tuning.presence_life_ms);
    twi_redis_call_number(redis_call, limit);
    twi_redis_call_text(redis_call, member);
}

static void fill_verdict(const tw_family *family, tw_verdict *verdict, int64_t limit, int64_t used, uint32_t by,
                         bool admitted) {
    verdict->used = used;
    verdict->remaining = used < limit ? limit - used : 0;
    verdict->decided_by = by;
    verdict->error_bound = by == TW_BY_REDIS ? 0 : TW_UNBOUNDED;
    verdict->allowed = admitted;
    verdict->retry_after_ms = admitted ? 0 : limit < 1 ? -1 : family->engine->remote.tuning.presence_life_ms;
}

/* Redis could not be asked, or did not reply. Redis may have admitted this hold all the same. If it is admitted here,
 * it is re-sent under the same name. If it is denied here, it is never sent again. */
static bool admits_without(tw_family *family, tw_key key, int64_t limit, enum twi_request_outcome outcome,
                           int64_t *held) {
    uint32_t live = twi_live_engines(family->engine);
    int64_t share = live > 1 ? limit / live : limit;
    *held = twi_hold_book_count(family, key);
    switch (twi_redis_call_policy(family, key, outcome)) {
    case TW_OUTAGE_FAIL_OPEN: return true;
    case TW_OUTAGE_FAIL_CLOSED: return false;
    case TW_OUTAGE_SHARE: return *held < (share < 1 && limit > 0 ? 1 : share);
    default: return *held < limit;
    }
}

static tw_status refuse_full(void) {
    return twi_refuse(TW_ERR_FULL, "memory: there is no room to remember another hold");
}

static tw_status hold_without(tw_family *family, tw_key key, int64_t limit, const char *member,
                              enum twi_request_outcome outcome, tw_verdict *verdict) {
    int64_t held;
    bool admitted = admits_without(family, key, limit, outcome, &held);
    if (admitted && !twi_hold_book_enter(family, key, member, false)) return refuse_full();
    fill_verdict(family, verdict, limit, held + admitted, TW_BY_OUTAGE, admitted);
    return admitted ? TW_OK : TW_DENIED;
}

tw_status twi_hold_redis_take(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict) {
    tw_engine *engine = family->engine;
    struct twi_redis_call redis_call;
    char member[TWI_HOLD_MEMBER_MAX];
    tw_status status = twi_redis_call_may(engine);
    if (status != TW_OK) return status;
    twi_hold_book_name(engine, member);
    request_about(family, key, "hold", limit, member, &redis_call);
    enum twi_request_outcome outcome;
    do { /* MORE: all members were dead and were removed; the repeated request finds none */
        outcome = twi_redis_call_run(&redis_call, engine);
    } while (outcome == TWI_REQUEST_DONE && twi_redis_call_is(&redis_call, "MORE") &&
             twi_clock_mono_ms(&engine->clock) < redis_call.request.deadline_ms);
    if (twi_load_acquire(&engine->life.stopped) || outcome == TWI_REQUEST_REFUSED)
        return twi_redis_call_refuse(engine, outcome);
    if (outcome != TWI_REQUEST_DONE) return hold_without(family, key, limit, member, outcome, verdict);
    bool admitted = twi_redis_call_is(&redis_call, "OK");
    twi_redis_call_answered(family);
    if (!admitted && !twi_redis_call_is(&redis_call, "DENIED")) return twi_redis_call_refuse(engine, outcome);
    if (admitted && !twi_hold_book_enter(family, key, member, true)) {
        request_about(family, key, "release", 0, member, &redis_call);
        (void)twi_redis_call_run(&redis_call, engine);
        return refuse_full();
    }
    fill_verdict(family, verdict, limit, twi_redis_call_number_at(&redis_call, 1), TW_BY_REDIS, admitted);
    return admitted ? TW_OK : TW_DENIED;
}

/* A statement that contains this hold may be on its way. The release must wait until that statement is answered. This
 * takes one round trip, and it is rare: a hold is re-sent once in a third of its life. tw_stop() ends the wait. */
static void await_statement(tw_engine *engine, uint64_t statement) {
    int64_t until_ms = twi_clock_mono_ms(&engine->clock) + twi_port_timeout_ms(engine);
    for (;;) {
        uint32_t seen = twi_event_count_value(&engine->turn.ended);
        if (twi_hold_book_is_answered(engine, statement) || twi_clock_mono_ms(&engine->clock) >= until_ms) return;
        if (twi_load_acquire(&engine->life.stopped)) return;
        twi_event_count_wait(&engine->turn.ended, seen, TWI_TICK_MS);
    }
}

tw_status twi_hold_redis_give(tw_family *family, tw_key key) {
    struct twi_redis_call redis_call;
    char member[TWI_HOLD_MEMBER_MAX];
    tw_status status = twi_redis_call_may(family->engine);
    if (status != TW_OK) return status;
    uint64_t statement;
    if (!twi_hold_book_leave(family, key, member, &statement)) return twi_hold_refuse();
    await_statement(family->engine, statement);
    request_about(family, key, "release", 0, member, &redis_call);
    (void)twi_redis_call_run(&redis_call, family->engine);
    return TW_OK;
}
