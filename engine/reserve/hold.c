/* hold.c -- tw_hold() and tw_hold_release(), for at most `limit` holders at a time. Without Redis the key's counter is
 * used. A hold takes from it as tw_acquire() does, a release lowers it by compare-and-swap, never below 0. hold_redis.c
 * does this with Redis, and hold_shared.c without Redis for processes that share the engine. */
#include "engine/reserve/hold.h"

#include "engine/count/lookup.h"
#include "engine/limit/limit_stats.h"
#include "engine/reserve/hold_redis.h"
#include "engine/reserve/hold_shared.h"
#include "engine/reserve/reserve.h"

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

static tw_status check_hold(const tw_family *family, tw_key key) {
    if (twi_likely(family->kind.takes_holds)) return twi_call_check_key(family, key);
    return twi_refuse(TW_ERR_MODE, twi_hold_refusal(family, &family->options));
}

static tw_status begin_hold(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict) {
    twi_check(verdict != NULL);
    tw_status status = check_hold(family, key);
    if (status == TW_OK && twi_load_relaxed(&family->policy.shadow)) /* slots that are held can be released */
        status = twi_refuse(TW_ERR_MODE, "shadow: tw_hold() is not for families in shadow mode");
    if (status == TW_OK && (limit < 0 || limit > TW_DELTA_MAX))
        status = twi_refuse(TW_ERR_RANGE, "limit: not within 0..TW_DELTA_MAX");
    if (twi_unlikely(status != TW_OK) || family->kind.synced) twi_reserve_verdict(verdict, family, limit);
    return status;
}

/* It writes the verdict. */
static tw_status hold_locally(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict) {
    twi_check(!family->kind.synced);
    if (family->engine->life.is_shared) return twi_hold_shared_take(family, key, limit, verdict);
    tw_status status = tw_acquire(family, key, 1, limit, verdict);
    if (status != TW_OK) return status;
    if (verdict->decided_by != TW_BY_FULL) {
        if (!twi_load_relaxed(&family->has_slots)) twi_store_relaxed(&family->has_slots, true);
        return TW_OK;
    }
    status = twi_refuse_for(TWI_WHY_FULL); /* it was admitted but not counted, so it could not be released */
    return twi_limit_stats_answered(family, 1, status, verdict);
}

tw_status tw_hold(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict) {
    tw_verdict unasked;
    twi_check(family != NULL);
    if (verdict == NULL) verdict = &unasked;
    tw_status status = begin_hold(family, key, limit, verdict);
    if (status != TW_OK) return status;
    return family->kind.synced ? twi_hold_redis_take(family, key, limit, verdict)
                               : hold_locally(family, key, limit, verdict);
}

tw_status tw_hold_async(tw_request *request, tw_family *family, tw_key key, int64_t limit) {
    twi_check(request != NULL && family != NULL);
    tw_status status = begin_hold(family, key, limit, &request->verdict);
    if (status == TW_OK && family->kind.synced) return twi_hold_redis_start(request, family, key, limit);
    if (status == TW_OK) status = hold_locally(family, key, limit, &request->verdict);
    request->status = status;
    return status;
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

static tw_status release_locally(tw_family *family, tw_key key) {
    twi_check(!family->kind.synced);
    if (family->engine->life.is_shared) return twi_hold_shared_give(family, key);
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

tw_status tw_hold_release(tw_family *family, tw_key key) {
    twi_check(family != NULL);
    tw_status status = check_hold(family, key);
    if (status != TW_OK) return status;
    if (family->kind.synced) return twi_hold_redis_give(family, key);
    return release_locally(family, key);
}

tw_status tw_hold_release_async(tw_request *request, tw_family *family, tw_key key) {
    twi_check(family != NULL);
    tw_status status = check_hold(family, key);
    if (status == TW_OK && family->kind.synced) return twi_hold_redis_give_async(request, family, key);
    if (status == TW_OK) status = release_locally(family, key);
    if (request != NULL) request->status = status;
    return status;
}
