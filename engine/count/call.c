/* call.c -- see call.h. */
#include "engine/count/call.h"

#include "engine/core/agenda.h"
#include "engine/core/window_map.h"

/* What a key of a valid size is refused for. This is the one place: what is added here needs its line in
 * twi_family_kind.checks_keys, and then every call checks it. The fast paths leave the check of known keys out. */
static TWI_COLD tw_status check_name(const struct tw_family *family, tw_key key) {
    tw_key subject, inner;
    if (family->kind.synced && twi_key_template_key_is_reserved(&family->template, key))
        return twi_refuse(TW_ERR_KEY, "key: its name in Redis would begin with \"tw:\", which is reserved");
    if (!family->kind.has_fields) return TW_OK;
    if (!twi_redis_shape_split(family->template.shape, key, &subject, &inner))
        return twi_refuse(TW_ERR_KEY,
                          "key: of a hash it is a subject, key_separator and a field, neither of them empty");
    if (family->fields == NULL || twi_fields_have(family->fields, inner)) return TW_OK;
    return twi_refuse(TW_ERR_KEY, "key: its field is not among those of the family (fields)");
}

/* Inlined into every call that counts. */
TWI_INLINE tw_status check_key(const struct tw_family *family, tw_key key) {
    if (twi_unlikely(key.size - 1 >= TW_KEY_SIZE_MAX || key.data == NULL)) return twi_key_refuse(key);
    return twi_unlikely(family->kind.checks_keys) ? check_name(family, key) : TW_OK;
}

#define USERS_LOOK_EVERY 1024 /* a system call each time */
tw_status twi_call_look(tw_engine *engine, int64_t calls) {
    twi_clock_look(&engine->clock);
    if ((calls & (USERS_LOOK_EVERY - 1)) == 0) (void)twi_epoch_look_at_users();
    return TW_OK;
}

tw_status twi_call_check_key(const struct tw_family *family, tw_key key) {
    return check_key(family, key);
}

tw_status twi_call_begin(struct twi_call *call, struct tw_family *family, tw_key key) {
    return twi_call_begin_hashed(call, family, key, 0);
}

tw_status twi_call_begin_hashed(struct twi_call *call, struct tw_family *family, tw_key key, uint64_t hash) {
    twi_check(family != NULL);
    tw_status status = check_key(family, key);
    if (twi_unlikely(status != TW_OK)) return status;
    call->self = twi_thread_here();
    if (twi_unlikely(call->self == NULL)) return twi_refuse_for(twi_thread_why());
    call->family = family;
    call->engine = family->engine;
    if (twi_unlikely(twi_load_relaxed(&call->engine->life.broken))) return twi_refuse(TW_ERR_FORKED, NULL);
    call->at = false;
    call->undoes = false;
    call->without_sum = false;
    call->decided = false;
    call->now_ms = 0;
    if (hash == 0) hash = call->engine->hashing.fn(&call->engine->hashing.secret, key.data, key.size);
    call->lookup = twi_lookup_key(hash, key);
    twi_section_enter(call->self);
    return TW_OK;
}

tw_status twi_call_begin_at(struct twi_call *call, struct tw_family *family, tw_key key, int64_t unix_ms) {
    if (!family->kind.has_starts)
        return twi_refuse(TW_ERR_MODE, "window: calls with a time are for aligned and calendar windows");
    if (!twi_calendar_holds(unix_ms)) return twi_refuse_for(TWI_WHY_TIME);
    tw_status status = twi_call_begin(call, family, key);
    call->at = true;
    call->unix_ms = unix_ms;
    return status;
}

/* ---- event time ----
 * 
 * Always true: if a call was refused for a window, all later calls are refused for it, too. */

/* Counts a late call. If the family has no lateness and no watermark, the turn also logs it once. */
static void note_late(const struct twi_call *call) {
    struct tw_family *family = call->family;
    twi_port_count(call->engine, late_increments, 1);
    if (twi_load_relaxed(&family->policy.lateness_ms) != 0 || twi_load_relaxed(&family->marks.is_late) ||
        twi_load_relaxed(&family->marks.watermark_ms) != INT64_MIN)
        return;
    twi_store_relaxed(&family->marks.is_late, true);
    twi_store_release(&family->requests.changed, true);
    twi_agenda_notify(family);
}

static tw_status refuse_late(const struct twi_call *call) {
    note_late(call);
    return twi_refuse(TW_ERR_LATE,
                      "unix_ms: its window has ended, and lateness_ms is over, too, or tw_close_until() has passed it");
}

tw_status twi_event_check(const struct twi_call *call) {
    struct tw_family *family = call->family;
    struct twi_span span = twi_calendar_span(&family->rule, call->unix_ms);
    if (twi_family_takes_until(family, span.end_ms) <= call->now_ms) return refuse_late(call);
    if (span.start_ms > call->now_ms &&
        twi_time_add(call->now_ms, twi_load_relaxed(&family->policy.earliness_ms)) < call->unix_ms)
        return twi_refuse(TW_ERR_EARLY, "unix_ms: further ahead of the engine's clock than earliness_ms");
    return TW_OK;
}

tw_status twi_event_after_seal(const struct twi_call *call) {
    struct twi_generation *generation = twi_window_at(call->family, call->unix_ms, false);
    bool is_over = generation != NULL && twi_load_acquire(&generation->phase) >= TWI_SEALING;
    return is_over ? refuse_late(call) : TWI_AGAIN;
}
