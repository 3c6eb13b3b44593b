/* lead.c -- see lead.h. A candidate that is not host-driven has a background thread, which waits until it leads, and
 * then makes the turns. */
#include "engine/lead.h"

#include "engine/base/threads.h"
#include "engine/core/operation.h"
#include "engine/core/processes.h"
#include "engine/turn/lease_renewal.h"
#include "engine/turn/remote.h"
#include "engine/turn/turn.h"
#include "engine/stats.h"

#define NAP_MS 1 /* between the last turns of a process that hands over */

/* Returns false if the time is over. */
static bool run_turn_before(tw_engine *engine, int64_t deadline_ms) {
    twi_turn_run(engine);
    twi_turn_nap(engine, NAP_MS);
    return twi_clock_mono_ms(&engine->clock) < deadline_ms;
}

/* Nobody is there who could lead next. What Redis keeps for this engine alone, other engines must not miss: units of
 * leases, and a share of limits. If a process that is forked later leads, the engine comes to Redis again. */
static void leave_redis(tw_engine *engine, int64_t deadline_ms) {
    twi_check(twi_turn_is_owned(engine));
    twi_store_relaxed(&engine->turn.leaves_redis, true);
    while (run_turn_before(engine, deadline_ms) && !twi_leases_are_over(engine)) {}
}

/* Waits for the replies that settle counters, so that the next leader need not ask what became of them. */
static void finish(tw_engine *engine) {
    int64_t deadline_ms = twi_load_relaxed(&engine->here->lead.close_by_ms);
    while (!twi_turn_take(engine)) twi_turn_nap(engine, NAP_MS);
    if (engine->here->remote.sync != NULL && !twi_processes_may_lead(engine)) leave_redis(engine, deadline_ms);
    while (!twi_remote_is_finished(engine) && run_turn_before(engine, deadline_ms)) {}
    twi_remote_leave(engine);
    twi_turn_leave(engine);
}

/* This process goes, and another one leads next. */
static void hand_over(tw_engine *engine) {
    finish(engine);
    twi_leader_hand_over(engine);
}

static void *run_candidate(void *arg) {
    tw_engine *engine = arg;
    const struct twi_background *background = &engine->here->background;
    do {
        bool leads = twi_turn_leads(engine);
        twi_event_count_raise(&engine->here->lead.tried);
        if (leads) {
            twi_watcher_start(engine);
            twi_turn_loop(engine);
            hand_over(engine);
        } else if (!twi_load_acquire(&background->stops)) {
            twi_leader_await(engine);
            twi_clock_look(&engine->clock); /* the leader may be stopped, and those who called often may not look */
        }
    } while (!twi_load_acquire(&background->stops) && twi_epoch_look_at_users());
    return NULL;
}

/* Starts the thread, and waits for its first try. */
static tw_status start_candidate(tw_engine *engine) {
    struct twi_lead *lead = &engine->here->lead;
    tw_status status = TW_OK;
    twi_lock(&lead->lock);
    if (!engine->here->background.runs) status = twi_turn_start_thread(engine, run_candidate);
    twi_unlock(&lead->lock);
    while (status == TW_OK && twi_event_count_value(&lead->tried) == 0) twi_event_count_wait(&lead->tried, 0, 1000);
    return status;
}

tw_status tw_lead(tw_engine *engine) {
    TWI_NEED(engine);
    tw_status status = twi_guard_may_wait(engine);
    if (status != TW_OK) return status;
    if (!engine->life.is_shared)
        return twi_refuse(TW_ERR_MODE, "shared: this engine belongs to one process, which makes its turns already");
    status = twi_witness_need(engine);
    if (status != TW_OK) return status;
    twi_store_relaxed(&engine->here->lead.is_candidate, true);
    twi_process_note_candidate(engine);
    if (engine->life.host_driven)
        (void)(twi_leader_is_here(engine) || twi_turn_lead(engine));
    else
        status = start_candidate(engine);
    if (status != TW_OK) return status;
    return twi_leader_is_here(engine) ? TW_OK : TW_PENDING;
}

tw_status tw_process_died(tw_engine *engine) {
    TWI_NEED(engine);
    const struct twi_here *here = twi_engines_find(engine);
    if (here == NULL || !here->is_shared)
        return twi_refuse(TW_ERR_MODE, "shared: this engine belongs to one process; no other one shares it");
    twi_clock_distrust(&engine->clock); /* it may have been the leader, and the last candidate */
    twi_leader_call(engine);
    return TW_OK;
}

/* ---- closing ---- */

tw_status twi_lead_may_close(tw_engine *engine, uint32_t timeout_ms) {
    twi_store_relaxed(&engine->here->lead.close_by_ms, twi_clock_mono_ms(&engine->clock) + timeout_ms);
    bool is_mine = twi_leader_leads(engine);
    if (!is_mine || !engine->life.host_driven || twi_leader_is_here(engine) || twi_turn_lead(engine)) return TW_OK;
    return twi_refuse(TW_ERR_MODE, "threads: the thread that leads this shared engine closes it");
}

uint32_t twi_lead_left_ms(const tw_engine *engine) {
    int64_t left_ms = twi_load_relaxed(&engine->here->lead.close_by_ms) - twi_clock_mono_ms(&engine->clock);
    return left_ms > 0 ? (uint32_t)left_ms : 0;
}

/* Returns true if a candidate leads that has not left, and a whole turn was made since the engine had made `turns`. A
 * candidate that only lives may have been killed, and not ended yet. */
static bool has_heir(tw_engine *engine, uint32_t turns) {
    if (twi_load_acquire(&engine->leader.turns) - turns < 2) return false; /* PL6 */
    uint32_t place = twi_load_relaxed(&engine->leader.place);
    return place != 0 && twi_process_is_alive(engine, place);
}

/* The last candidate leads once more, so that Redis keeps nothing for an engine without a leader. If several
 * close at once, the leader may still be handing over. Returns true if this process leads now. */
static bool lead_at_last(tw_engine *engine) {
    int64_t deadline_ms = twi_load_relaxed(&engine->here->lead.close_by_ms);
    uint32_t turns = twi_load_acquire(&engine->leader.turns);
    if (!engine->life.has_redis || !twi_load_relaxed(&engine->here->lead.is_candidate)) return false;
    while (!twi_load_acquire(&engine->leader.has_ended) && !twi_load_relaxed(&engine->turn.leaves_redis) &&
           !has_heir(engine, turns)) {
        if (!twi_processes_may_lead(engine) && twi_turn_lead(engine)) return true;
        if (twi_clock_mono_ms(&engine->clock) >= deadline_ms) break;
        twi_turn_nap(engine, NAP_MS);
    }
    return false;
}

bool twi_lead_is_last(tw_engine *engine) {
    bool leads = twi_leader_is_here(engine), is_opener = !engine->here->has_joined;
    twi_process_leave(engine);
    twi_witness_end(engine);
    bool ends = twi_load_relaxed(&engine->here->lead.is_candidate) && !twi_load_acquire(&engine->leader.has_ended) &&
                (twi_load_acquire(&engine->life.stopped) || (is_opener && !twi_processes_live(engine)));
    if (ends) return leads || twi_turn_lead(engine);
    if (leads) hand_over(engine);
    if (lead_at_last(engine)) hand_over(engine);
    return false;
}

void twi_lead_end(tw_engine *engine) {
    twi_store_release(&engine->leader.has_ended, true);
    twi_leader_hand_over(engine);
}
