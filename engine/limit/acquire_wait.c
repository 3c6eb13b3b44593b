/* acquire_wait.c -- tw_acquire_wait(): repeats tw_acquire() until it is admitted or the time is up.
 * The caller sleeps until `retry_after_ms`, until a local refund, or 100 ms, whichever is first. The 100 ms are there
 * because other processes also give units back, and because clocks step.
 * A `final` denial ends the wait: the limit is sold out, and nothing comes back by itself before `retry_after_ms`. A
 * `final` that is older than a second does not end the wait, because another process may have refunded since.
 * Always true: the caller is in no section and in no hook while it sleeps. Nothing is taken in advance. */
#include "engine/count/lookup.h"
#include "engine/core/call_guard.h"
#include "engine/limit/decision.h"

#define LOOK_MS 100

static uint32_t nap_ms(int64_t wish_ms, int64_t left_ms) {
    int64_t ms = wish_ms < left_ms ? wish_ms : left_ms;
    return ms < 1 ? 1 : ms > LOOK_MS ? LOOK_MS : (uint32_t)ms;
}

/* True: units, or the end of the window, may come within the time that is left. */
static bool may_come(tw_family *family, tw_key key, const tw_verdict *verdict, int64_t left_ms) {
    if (verdict->retry_after_ms < 0) return false;
    if (!verdict->final || verdict->retry_after_ms <= left_ms) return true;
    return family->kind.limit->is_fresh != NULL && !family->kind.limit->is_fresh(family, key);
}

tw_status tw_acquire_wait(tw_family *family, tw_key key, int64_t n, int64_t limit, uint32_t timeout_ms,
                          tw_verdict *verdict) {
    tw_verdict unasked;
    twi_check(family != NULL);
    tw_engine *engine = family->engine;
    if (verdict == NULL) verdict = &unasked;
    tw_status status = twi_guard_may_wait(engine);
    if (status == TW_OK) status = twi_guard_engine(engine);
    if (status != TW_OK) {
        struct twi_decision nothing = {0};
        twi_verdict_fill(verdict, family->kind.synced, status, n, limit, &nothing);
        return status;
    }
    int64_t deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    for (;;) {
        uint32_t given = twi_event_count_value(&engine->given_back),
                 turned = twi_event_count_value(&engine->turn.ended);
        status = twi_load_relaxed(&family->kind.hot_acquire)(family, key, n, limit, verdict);
        if (status != TW_DENIED && status != TW_PENDING) return status;
        int64_t left_ms = deadline_ms - twi_clock_mono_ms(&engine->clock);
        if (left_ms <= 0 || !may_come(family, key, verdict, left_ms)) return status;
        uint32_t ms = nap_ms(verdict->retry_after_ms, left_ms);
        if (status == TW_PENDING)
            twi_event_count_wait(&engine->turn.ended, turned,
                                 ms); /* a turn of the engine brings the units that were requested */
        else
            twi_event_count_wait(&engine->given_back, given, ms);
    }
}
