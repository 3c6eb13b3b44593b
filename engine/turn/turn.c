/* turn.c -- see turn.h: one bounded round of background work; the thread that runs it; the calls of a host that runs it
 * itself. */
#include "engine/turn/turn.h"

#include "engine/base/probe.h"
#include "engine/core/agenda.h"
#include "engine/count/contention.h"
#include "engine/count/dirty.h"
#include "engine/core/state.h"
#include "engine/turn/gauge.h"
#include "engine/core/call_guard.h"
#include "engine/reserve/reserve_local.h"
#include "engine/turn/rollover.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EPOCH_STEP_MS 20 /* how often the turn raises the epoch: the resolution of sections_oldest_ms */
#define STALL_LOG_MS 10000

/* ---- the turn ---- */

bool twi_turn_take(tw_engine *engine) {
    /* E1, pairs with E2: makes everything that the last owner wrote visible here */
    return !twi_swap_acqrel(&engine->turn.owned, true);
}
void twi_turn_leave(tw_engine *engine) {
    twi_store_release(&engine->turn.owned, false); /* E2 */
    twi_event_count_raise(&engine->turn.ended);
}

static void check_sections(tw_engine *engine) {
    uint64_t oldest = twi_epoch_oldest();
    if (oldest != engine->turn.epoch_seen) {
        engine->turn.epoch_seen = oldest;
        engine->turn.epoch_seen_ms = engine->turn.mono_ms;
    }
    if (engine->turn.mono_ms - engine->turn.epoch_raised_ms >= EPOCH_STEP_MS) {
        engine->turn.epoch_raised_ms = engine->turn.mono_ms;
        (void)twi_epoch_stamp();
    }
    int64_t lasted_ms = oldest == UINT64_MAX ? 0 : engine->turn.mono_ms - engine->turn.epoch_seen_ms;
    twi_stat_set(engine, offsetof(tw_stats, sections_oldest_ms), lasted_ms);
    if (lasted_ms >= STALL_LOG_MS)
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_STALL,
                     "a thread has been in a read section for %lld ms; memory waits for it", (long long)lasted_ms);
}

/* Logs one line per refusal; logs again only if membarrier worked in between. */
static void check_barriers(tw_engine *engine) {
    int refusal = twi_epoch_refusal();
    if (refusal != 0 && !engine->turn.refusal_logged)
        twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_BARRIER,
                     "membarrier(2) is refused (error %d): memory of ended windows is not reused", refusal);
    engine->turn.refusal_logged = refusal != 0;
}

static void check_arena(tw_engine *engine) {
    int64_t used = twi_arena_rest_used(&engine->arena), most = twi_arena_rest_max(&engine->arena);
    int64_t usable = twi_arena_usable(&engine->arena); /* of what no share has */
    if (usable <= most / 5)
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_MEMORY,
                     "counting memory: %lld of %lld bytes in use, %lld available", (long long)used, (long long)most,
                     (long long)usable);
    uint64_t refused = twi_arena_refused(&engine->arena), times = refused - engine->turn.refused_seen;
    engine->turn.refused_seen = refused;
    if (times != 0 && most - used > most / 16)
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_CRUMBS,
                     "counting memory: %lld bytes are free, but fragmented: %llu allocations were refused",
                     (long long)(most - used), (unsigned long long)times);
}

/* while the two clocks disagree by the same amount: some disagree for good */
#define CLOCK_LOG_MS (10 * INT64_C(60000))

static void check_clock(tw_engine *engine) {
    int64_t drift_ms = twi_clock_drift_ms(&engine->clock), change_ms = drift_ms - engine->turn.clock_logged_ms;
    bool is_far = drift_ms > TWI_CLOCK_LEAP_MS || drift_ms < -TWI_CLOCK_LEAP_MS;
    bool is_same = change_ms <= TWI_CLOCK_LEAP_MS && change_ms >= -TWI_CLOCK_LEAP_MS;
    if (is_far && is_same && engine->turn.mono_ms - engine->turn.clock_logged_at_ms < CLOCK_LOG_MS) return;
    engine->turn.clock_logged_ms = is_far ? drift_ms : 0;
    engine->turn.clock_logged_at_ms = engine->turn.mono_ms;
    if (!is_far) return;
    if (drift_ms > 0)
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_CLOCK,
                     "the wall clock is %lld ms ahead of engine time, which follows after 5 s", (long long)drift_ms);
    else
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_CLOCK,
                     "the wall clock was set back: engine time is %lld ms ahead of it and follows the monotonic "
                     "clock; open the engine anew if its windows must follow the wall clock again",
                     -(long long)drift_ms);
}

/* Computes when work is due next, for tw_timeout_ms() and the background thread. */
static void plan_next(tw_engine *engine) {
    int64_t next_ms = engine->turn.mono_ms + TWI_IDLE_MS;
    int64_t family_ms = twi_agenda_next_ms(engine);
    if (family_ms < next_ms) next_ms = family_ms;
    /* Memory waits for a thread that is still in a section: checking again without pause would only burn a core. */
    int64_t reclaim_ms = engine->turn.mono_ms + (engine->turn.reclaimed ? 0 : TWI_TICK_MS);
    bool waits =
        engine->unlinked.generations != 0 || engine->unlinked.maps != 0 || engine->unlinked.sketches.waiting != 0;
    if (waits && reclaim_ms < next_ms) next_ms = reclaim_ms;
    int64_t reservations_ms = twi_load_relaxed(&engine->reservations->next_ms);
    if (twi_load_relaxed(&engine->reservations->tidies)) reservations_ms = engine->turn.mono_ms;
    if (reservations_ms < next_ms) next_ms = reservations_ms;
    if (engine->remote.sync != NULL) {
        int64_t wake_ms = engine->remote.driver->wake_ms(engine->remote.sync);
        if (wake_ms < next_ms) next_ms = wake_ms;
    }
    twi_store_relaxed(&engine->turn.next_ms, next_ms);
}

static void keep_ahead(tw_engine *engine) {
    uint32_t work = TWI_WORK_AHEAD;
    twi_arena_keep_ahead(&engine->arena, &work);
    if (pthread_mutex_trylock(&engine->roster.lock) != 0) return; /* under which parts come and go */
    twi_parts_keep_ahead(&engine->arena, engine->turn.mono_ms, &work);
    pthread_mutex_unlock(&engine->roster.lock);
}

void twi_turn_run(tw_engine *engine) {
    TWI_PROBE(turn_begin);
    twi_clock_refresh(&engine->clock);
    engine->turn.now_ms = twi_clock_read(&engine->clock);
    engine->turn.mono_ms = twi_clock_mono_ms(&engine->clock);
    twi_arena_survey(&engine->arena, engine->turn.mono_ms);
    twi_rollover_turn(engine);
    twi_contention_turn(engine);
    twi_reserve_local_turn(engine);
    twi_gauge_turn(engine);
    if (engine->remote.sync != NULL) engine->remote.driver->turn(engine->remote.sync);
    if (engine->remote.sync != NULL) twi_dirty_sample(engine);
    twi_rollover_reclaim(engine);
    twi_sketch_reclaim(&engine->arena, &engine->unlinked.sketches);
    keep_ahead(engine);
    check_sections(engine);
    check_barriers(engine);
    check_arena(engine);
    check_clock(engine);
    plan_next(engine);
    TWI_PROBE(turn_end);
}

/* ---- the background thread ---- */

static void sleep_until_next(tw_engine *engine) {
    int64_t left_ms = twi_load_relaxed(&engine->turn.next_ms) - twi_clock_mono_ms(&engine->clock);
    int tick_ms = left_ms <= 0 ? 0 : left_ms < TWI_TICK_MS ? (int)left_ms : (int)TWI_TICK_MS;
    bool wants_write = false;
    int fd = engine->remote.sync != NULL ? engine->remote.driver->fd(engine->remote.sync, &wants_write) : -1;
    struct pollfd fds[2] = {{.fd = engine->background.wake_fd, .events = POLLIN},
                            {.fd = fd, .events = (short)(POLLIN | (wants_write ? POLLOUT : 0))}};
    if (tick_ms == 0) {
        sched_yield();
    } else if (poll(fds, 2, tick_ms) > 0 && (fds[0].revents & POLLIN) != 0) {
        uint64_t value;
        (void)!read(engine->background.wake_fd, &value, sizeof value);
    }
}

void twi_turn_wake(tw_engine *engine) {
    uint64_t one = 1;
    if (engine->background.wake_fd >= 0) (void)!write(engine->background.wake_fd, &one, sizeof one);
}

static void *run_turns(void *arg) {
    tw_engine *engine = arg;
    while (!twi_load_acquire(&engine->background.stops)) {
        if (twi_turn_take(engine)) {
            twi_turn_run(engine);
            twi_turn_leave(engine);
        }
        sleep_until_next(engine);
        twi_clock_refresh(&engine->clock);
    }
    return NULL;
}

tw_status twi_turn_start_thread(tw_engine *engine) {
    sigset_t all, before;
    sigfillset(&all);
    engine->background.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->background.wake_fd < 0)
        return twi_refuse(TW_ERR_MEMORY, "no file descriptor for the wake-up of the background thread");
    twi_store_relaxed(&engine->background.stops, false);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to the host's threads */
    engine->background.runs = pthread_create(&engine->background.thread, NULL, run_turns, engine) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!engine->background.runs) return twi_refuse(TW_ERR_MEMORY, "no thread could be started");
    return TW_OK;
}

void twi_turn_stop_thread(tw_engine *engine) {
    if (engine->background.runs) {
        twi_store_release(&engine->background.stops, true);
        twi_turn_wake(engine);
        pthread_join(engine->background.thread, NULL);
        engine->background.runs = false;
        twi_clock_direct(&engine->clock, true); /* no thread refreshes the cached time any more */
    }
    if (engine->background.wake_fd >= 0) close(engine->background.wake_fd);
    engine->background.wake_fd = -1;
}

/* ---- host-driven ---- */

tw_status tw_turn(tw_engine *engine) {
    twi_check(engine != NULL);
    if (!engine->life.host_driven)
        return twi_refuse(TW_ERR_MODE,
                          "threads: tw_turn() is for host-driven engines; this one has a thread of its own");
    tw_status status = twi_guard_thread(twi_thread_here());
    if (status != TW_OK) return status;
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    if (!twi_turn_take(engine)) return TW_PENDING;
    twi_turn_run(engine);
    twi_turn_leave(engine);
    return TW_OK;
}

int tw_fd(const tw_engine *engine) {
    bool wants_write;
    (void)twi_thread_here(); /* a forked child must not get its parent's socket */
    return engine->remote.sync != NULL ? engine->remote.driver->fd(engine->remote.sync, &wants_write) : -1;
}

uint32_t tw_timeout_ms(tw_engine *engine) {
    twi_check(engine != NULL);
    (void)twi_thread_here();
    if (twi_load_relaxed(&engine->agenda.news) != NULL) return 0;
    bool wants_write = false;
    if (engine->remote.sync != NULL && engine->remote.driver->fd(engine->remote.sync, &wants_write) >= 0 && wants_write)
        return 0;
    int64_t next_ms = twi_load_relaxed(&engine->turn.next_ms);
    int64_t reservations_ms = twi_load_relaxed(&engine->reservations->next_ms); /* one may be younger than the turn */
    if (reservations_ms < next_ms) next_ms = reservations_ms;
    int64_t left_ms = next_ms - twi_clock_mono_ms(&engine->clock);
    return left_ms <= 0 ? 0 : left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
}

void tw_enter(tw_engine *engine) {
    (void)engine;
    struct twi_thread *self = twi_thread_here();
    if (self != NULL) twi_section_enter(self);
}

void tw_leave(tw_engine *engine) {
    (void)engine;
    struct twi_thread *self = twi_thread_here();
    /* 0: the process forked inside the section; the child is outside */
    if (self != NULL && self->depth != 0) twi_section_leave(self);
}

void twi_turn_nap(tw_engine *engine, uint32_t ms) {
    bool wants_write = false;
    struct pollfd fd = {.fd = engine->remote.sync != NULL ? engine->remote.driver->fd(engine->remote.sync, &wants_write)
                                                          : -1};
    fd.events = (short)(POLLIN | (wants_write ? POLLOUT : 0));
    (void)poll(&fd, 1, (int)ms);
}
