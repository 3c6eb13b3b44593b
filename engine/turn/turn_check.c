/* turn_check.c -- see turn_check.h. */
#include "engine/turn/turn_check.h"

#include "engine/core/agenda.h"
#include "engine/core/report.h"
#include "engine/core/roster.h"
#include "engine/core/state.h"
#include "engine/turn/lease_stores.h"

static bool leases_are_valid(tw_engine *engine, struct twi_generation *generation) {
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4, pairs with J3 in enlist() */
        const struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        if (twi_lease_generation(&engine->arena, lease) != generation || !twi_lease_is_valid(engine, lease))
            return false;
        line = lease->attached.older;
    }
    return true;
}

bool twi_generation_is_valid(tw_engine *engine, struct twi_generation *generation) {
    const struct twi_generation_turn *turn = &generation->turn;
    uint32_t phase = twi_load_relaxed(&generation->phase);
    if (generation->family == NULL || generation->start_ms >= generation->end_ms || phase > TWI_DROPPED) return false;
    if (!generation->synced && (turn->outstanding != 0 || turn->pending || turn->owed != 0 || turn->acked_units != 0))
        return false;
    if (turn->restore.listed && turn->outstanding == 0) return false;
    if (turn->history.packing != 0 && twi_generation_is_packed(generation)) return false;
    if (turn->history.in_hand && phase < TWI_SEALED) return false;
    return leases_are_valid(engine, generation);
}

static bool family_is_valid(tw_engine *engine, const struct tw_family *family) {
    uint32_t count = 0;
    int64_t start_ms = INT64_MIN;
    for (uint32_t line = family->turn.generations; line != 0; count++) {
        struct twi_generation *generation = twi_generation_at(&engine->arena, line);
        if (generation->family != family || !generation->turn.known || !twi_generation_is_valid(engine, generation))
            return false;
        if (count >= family->turn.unsorted && generation->start_ms < start_ms) return false;
        if (count >= family->turn.unsorted) start_ms = generation->start_ms;
        line = generation->turn.next_all;
    }
    return count <= family->turn.held && family->turn.unsorted <= count;
}

bool twi_turn_is_valid(tw_engine *engine) {
    if (!twi_roster_is_valid(engine) || !twi_agenda_is_valid(engine) || !twi_lease_stores_are_valid(engine))
        return false;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL; /* as in roster.c */
         family = twi_load_acquire(&family->entry.next))
        if (!family_is_valid(engine, family)) return false;
    return true;
}

/* ---- timeout check ----
 * 
 * If a call has no reply in time, on_outage decides it, or it fails, even though Redis works well. Without a log line,
 * users would not look for the reason there.
 * Always true: there is at most one line in ten seconds, and no line about calls of a time in which Redis did not
 * reply: then they have no reply for that reason, and another line names it. */

#define LOOK_EVERY_MS 1000
#define LOG_EVERY_MS 10000
#define LOG_WAY_EVERY_MS 600000 /* the option stays too short until somebody changes it */
#define SHORT_LOOKS 3           /* a host that is late only once does not count */
#define WAYS 3                  /* the ways: to connect, to greet, and to get the reply */

static void log_timeouts(tw_engine *engine, int64_t timeouts) {
    uint32_t timeout_ms = twi_port_timeout_ms(engine);
    int64_t way_us = twi_load_relaxed(&engine->peers.way_us);
    twi_port_log(
        engine, TW_LOG_WARNING, TW_EVENT_START,
        "redis_timeout_ms: %lld tries of calls that wait had no answer within %u ms, though Redis acknowledges "
        "counts; a round trip takes %.1f ms%s",
        (long long)timeouts, timeout_ms, (double)way_us / 1000,
        WAYS * way_us <= (int64_t)timeout_ms * 1000 ? ", so Redis or the way to it pauses at times" : "");
}

/* The calls have a connection of their own, which counts do not need. */
static void log_unsent(tw_engine *engine, int64_t unsent) {
    char error[TWI_REPORT_ERROR_MAX];
    twi_report_error_text(&engine->report, error);
    twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_LOST_CONNECTION,
                 "%lld calls that wait had no connection to Redis within %u ms, though it acknowledges counts%s%s",
                 (long long)unsent, twi_port_timeout_ms(engine), error[0] != '\0' ? "; the last error: " : "", error);
}

static void log_way(tw_engine *engine) {
    twi_port_log(
        engine, TW_LOG_WARNING, TW_EVENT_START,
        "redis_timeout_ms: %u ms are less than three round trips of %.1f ms: calls that wait may have no answer "
        "in time though Redis is well",
        engine->options.redis_timeout_ms, (double)twi_load_relaxed(&engine->peers.way_us) / 1000);
}

static bool is_timeout_due(const struct twi_timeout_check *check, int64_t now_ms, int64_t every_ms) {
    return check->logged_ms == 0 || now_ms - check->logged_ms >= every_ms;
}

void twi_timeout_check(tw_engine *engine) {
    struct twi_timeout_check *check = &engine->peers.check;
    int64_t now_ms = engine->turn.mono_ms;
    if (!twi_load_relaxed(&engine->peers.is_connected)) check->was_away = true;
    if (engine->here->remote.sync == NULL || now_ms < check->look_ms) return;
    check->look_ms = now_ms + LOOK_EVERY_MS;
    int64_t timeouts = twi_load_relaxed(&engine->report.stats[offsetof(tw_stats, ask_timeouts) / sizeof(int64_t)]);
    /* Those of the second before: by now an outage would be known. */
    int64_t unsent = twi_load_relaxed(&engine->peers.unsent_timeouts);
    int64_t more = check->was_away ? 0 : check->more, more_unsent = check->was_away ? 0 : check->more_unsent;
    check->more_unsent = unsent - check->unsent;
    check->more = timeouts - check->timeouts - check->more_unsent;
    if (check->was_away) check->more = check->more_unsent = 0;
    int64_t set_us = (int64_t)engine->options.redis_timeout_ms * 1000;
    bool is_short = set_us != 0 && set_us < WAYS * twi_load_relaxed(&engine->peers.way_us);
    check->timeouts = timeouts;
    check->unsent = unsent;
    check->short_looks = is_short ? check->short_looks + 1 : 0;
    check->was_away = !twi_load_relaxed(&engine->peers.is_connected);
    if (check->was_away) return;
    if (more_unsent > 0 && is_timeout_due(check, now_ms, LOG_EVERY_MS))
        log_unsent(engine, more_unsent);
    else if (more > 0 && is_timeout_due(check, now_ms, LOG_EVERY_MS))
        log_timeouts(engine, more);
    else if (check->short_looks >= SHORT_LOOKS && is_timeout_due(check, now_ms, LOG_WAY_EVERY_MS))
        log_way(engine);
    else
        return;
    check->logged_ms = now_ms;
}
