/* event_time.c -- see event_time.h.
 * Always true: if a call was refused for a window, all later calls are refused for it, too. */
#include "engine/count/event_time.h"

#include "engine/core/agenda.h"
#include "engine/core/window_map.h"

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
