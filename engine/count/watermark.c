/* watermark.c -- tw_close_until() notes how far event time has come, as reported by the application.
 * Always true: a watermark only rises. If the watermark has passed a window, and the window has ended by the clock, it
 * accepts no more counts, whatever the lateness is. The roll-over uses it (rollover.c). */
#include "engine/core/agenda.h"
#include "engine/core/family.h"
#include "engine/base/why.h"

tw_status tw_close_until(tw_family *family, int64_t unix_ms) {
    twi_check(family != NULL);
    tw_engine *engine = family->engine;
    if (!family->kind.has_starts)
        return twi_refuse(TW_ERR_MODE, "window: a watermark is for aligned and calendar windows");
    if (family->kind.is_gcra) return twi_refuse_for(TWI_WHY_GCRA);
    if (!twi_calendar_holds(unix_ms)) return twi_refuse_for(TWI_WHY_TIME);
    if (twi_thread_here() == NULL)
        return twi_refuse_for(twi_thread_why()); /* this call also renews the engine in a forked child */
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    int64_t now_ms = twi_clock_read(&engine->clock), ahead_ms = twi_load_relaxed(&family->policy.earliness_ms);
    if (twi_calendar_span(&family->rule, unix_ms).start_ms > now_ms && twi_time_add(now_ms, ahead_ms) < unix_ms)
        return twi_refuse(TW_ERR_EARLY, "unix_ms: further ahead of the engine's clock than earliness_ms");
    if (!twi_family_raise(&family->marks.watermark_ms, unix_ms)) return TW_OK;
    twi_store_release(&family->requests.changed, true);
    twi_agenda_notify(family);
    return TW_OK;
}
