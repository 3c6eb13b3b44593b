/* leader.c -- see leader.h. */
#include "engine/core/leader.h"

#include "engine/base/lock.h"

#include <unistd.h>

void twi_leader_make(tw_engine *engine) {
    if (!engine->life.is_shared) return;
    twi_lock_make_robust(&engine->leader.held);
    twi_event_count_make(&engine->leader.called);
    engine->here->lead.forks = twi_epoch_forks();
}

void twi_leader_begin_here(tw_engine *engine) {
    struct twi_lead *lead = &engine->here->lead;
    uint32_t forks = lead->forks;
    *lead = (struct twi_lead){.forks = forks};
    pthread_mutex_init(&lead->lock, NULL);
    twi_event_count_make(&lead->tried);
}

/* ---- figures ---- */

/* The first turn after it took over. */
static void note_succession(tw_engine *engine) {
    if (!engine->here->lead.has_succeeded) return;
    engine->here->lead.has_succeeded = false;
    twi_port_count(engine, leaders_died, 1);
    twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_DIED,
                 "the process that led this engine ended without tw_close(); process %ld leads now", (long)getpid());
}

void twi_leader_turn(tw_engine *engine) {
    if (!engine->life.is_shared) return;
    twi_store_relaxed(&engine->leader.turned_ms, engine->turn.mono_ms);
    (void)twi_add_acqrel(&engine->leader.turns, 1); /* PL5, pairs with PL6 */
    note_succession(engine);
}

int64_t twi_leader_age_ms(const tw_engine *engine) {
    int64_t turned_ms = twi_load_relaxed(&engine->leader.turned_ms);
    return turned_ms == 0 ? -1 : twi_clock_mono_ms(&engine->clock) - turned_ms;
}

/* ---- who leads ---- */

bool twi_leader_is_here(const tw_engine *engine) {
    uint64_t thread = twi_load_relaxed(&engine->here->lead.thread);
    return thread != 0 && (!engine->life.host_driven || thread == twi_thread_self->serial);
}

bool twi_leader_leads(const tw_engine *engine) {
    return twi_load_relaxed(&engine->here->lead.thread) != 0 &&
           twi_load_relaxed(&engine->leader.process) == twi_process_number();
}

bool twi_leader_is_due(tw_engine *engine) {
    struct twi_lead *lead = &engine->here->lead;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    uint32_t called = twi_event_count_value(&engine->leader.called);
    if (called == twi_load_relaxed(&lead->called) && now_ms < twi_load_relaxed(&lead->look_ms)) return false;
    twi_store_relaxed(&lead->called, called);
    twi_store_relaxed(&lead->look_ms, now_ms + TWI_LEADER_LOOK_MS);
    return true;
}

void twi_leader_await(tw_engine *engine) {
    const struct twi_lead *lead = &engine->here->lead;
    int64_t left_ms = twi_load_relaxed(&lead->look_ms) - twi_clock_mono_ms(&engine->clock);
    if (left_ms > 0) twi_event_count_wait(&engine->leader.called, twi_load_relaxed(&lead->called), (uint32_t)left_ms);
}

enum twi_leader_try twi_leader_take(tw_engine *engine) {
    struct twi_thread *self = twi_thread_here();
    bool has_died;
    if (self == NULL || !twi_lock_try_after(&engine->leader.held, &has_died)) return TWI_LEADER_NOT;
    twi_store_relaxed(&engine->leader.process, self->process);
    twi_store_relaxed(&engine->leader.place, twi_load_relaxed(&engine->here->process));
    twi_store_relaxed(&engine->here->lead.thread, self->serial);
    engine->here->lead.has_succeeded = has_died;
    return has_died ? TWI_LEADER_AFTER_DEATH : TWI_LEADER_SINCE_NOW;
}

void twi_leader_hand_over(tw_engine *engine) {
    twi_check(twi_leader_is_here(engine));
    twi_store_relaxed(&engine->here->lead.thread, 0);
    twi_unlock(&engine->leader.held);
    twi_leader_call(engine);
}

void twi_leader_call(tw_engine *engine) {
    twi_event_count_raise(&engine->leader.called);
}
