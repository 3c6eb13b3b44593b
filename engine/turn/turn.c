/* turn.c -- see turn.h: one bounded round of background work, the thread that runs it, and the calls for a host that
 * runs it itself. */
#include "engine/turn/turn.h"

#include "engine/base/calendar.h"
#include "engine/base/descriptor.h"
#include "engine/base/threads.h"
#include "engine/base/probe.h"
#include "engine/core/agenda.h"
#include "engine/core/calls.h"
#include "engine/core/operation.h"
#include "engine/core/processes.h"
#include "engine/core/queue.h"
#include "engine/core/report.h"
#include "engine/core/state.h"
#include "engine/count/dirty.h"
#include "engine/memory/supervisor.h"
#include "engine/reserve/reserve_local.h"
#include "engine/turn/collect.h"
#include "engine/turn/recover.h"
#include "engine/turn/remote.h"
#include "engine/turn/rollover.h"
#include "engine/turn/turn_check.h"
#include "engine/turn/window_end.h"

#include <poll.h>

#define EPOCH_STEP_MS 20 /* how often the turn raises the epoch; this is the resolution of sections_oldest_ms */
#define STALL_LOG_MS 10000

/* ---- the turn ---- */

bool twi_turn_take(tw_engine *engine) {
    if (engine->life.is_shared && !twi_leader_is_here(engine)) return false; /* another process makes the turns */
    uint32_t owner = twi_turn_own(engine, 0);
    if (owner == 0) return true;
    /* While the slot is locked, no other thread gets its number. */
    struct twi_thread_slot *ended = twi_thread_lock_ended(owner);
    if (ended == NULL) return false;
    bool is_ours = twi_turn_own(engine, owner) == owner;
    twi_thread_unlock(ended);
    if (is_ours) twi_recover(engine);
    return is_ours;
}
void twi_turn_leave(tw_engine *engine) {
    twi_turn_disown(engine);
    twi_event_count_raise(&engine->turn.ended);
}

/* ---- what lasts: one line when it begins, one each ten minutes, and one when it is over ---- */

#define AGAIN_LOG_MS (10 * INT64_C(60000))

static bool is_due(int64_t *logged_ms, int64_t now_ms) {
    if (*logged_ms != 0 && now_ms - *logged_ms < AGAIN_LOG_MS) return false;
    *logged_ms = now_ms != 0 ? now_ms : 1;
    return true;
}

static bool is_over(int64_t *logged_ms) {
    bool was_said = *logged_ms != 0;
    *logged_ms = 0;
    return was_said;
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
    if (lasted_ms < STALL_LOG_MS) {
        if (is_over(&engine->turn.stall_logged_ms))
            twi_port_log(engine, TW_LOG_INFO, TW_EVENT_STALL, "no thread stays in a read section any more");
    } else if (is_due(&engine->turn.stall_logged_ms, engine->turn.mono_ms)) {
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_STALL,
                     "a thread has been in a read section for %lld ms; memory waits for it", (long long)lasted_ms);
    }
}

/* Logs one line for each refusal. It logs again only if membarrier worked in between. */
static void check_barriers(tw_engine *engine) {
    int refusal = twi_epoch_refusal();
    if (refusal != 0 && !engine->turn.refusal_logged)
        twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_BARRIER,
                     "membarrier(2) is refused (error %d): memory of ended windows is not reused", refusal);
    engine->turn.refusal_logged = refusal != 0;
}

static void check_arena(tw_engine *engine) {
    int64_t used = twi_arena_rest_used(&engine->arena), most = twi_arena_rest_max(&engine->arena);
    int64_t usable = twi_arena_usable(&engine->arena); /* the memory that belongs to no share */
    if (usable <= most / 5 && is_due(&engine->turn.low_logged_ms, engine->turn.mono_ms))
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_MEMORY,
                     "counting memory: %lld of %lld bytes in use, %lld available", (long long)used, (long long)most,
                     (long long)usable);
    if (usable > most / 4 && is_over(&engine->turn.low_logged_ms)) /* a quarter, so that it does not flutter */
        twi_port_log(engine, TW_LOG_INFO, TW_EVENT_MEMORY, "counting memory: %lld of %lld bytes are available again",
                     (long long)usable, (long long)most);
    uint64_t refused = twi_arena_refused(&engine->arena), times = refused - engine->turn.refused_seen;
    if (times == 0) return;
    bool is_in_pieces = most - used > most / 16;
    if (is_in_pieces && !is_due(&engine->turn.crumbs_logged_ms, engine->turn.mono_ms)) return;
    engine->turn.refused_seen = refused; /* those between two lines are in the second one */
    if (is_in_pieces)
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_CRUMBS,
                     "counting memory: %lld bytes are free, but in small pieces: %llu pieces of memory were refused",
                     (long long)(most - used), (unsigned long long)times);
}

#define LATE_LOG_MS 10000

static int64_t stat_of(const tw_engine *engine, size_t offset) {
    return twi_load_relaxed(&engine->report.stats[offset / sizeof(int64_t)]);
}

/* Counts that Redis has no place for any more. Many keys are late together. */
static void check_late(tw_engine *engine, bool is_end) {
    int64_t late = stat_of(engine, offsetof(tw_stats, late_deltas));
    int64_t expired = stat_of(engine, offsetof(tw_stats, expired_unsynced));
    struct twi_lost_log *logged = &engine->turn.lost_log;
    if (late == logged->late && expired == logged->expired) return;
    if (!is_end && logged->at_ms != 0 && engine->turn.mono_ms - logged->at_ms < LATE_LOG_MS) return;
    twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_LOST,
                 "counts came too late for Redis: %lld units after the end of their key there (late_deltas), %lld "
                 "after their retention_ms (expired_unsynced)",
                 (long long)(late - logged->late), (long long)(expired - logged->expired));
    logged->late = late;
    logged->expired = expired;
    logged->at_ms = engine->turn.mono_ms != 0 ? engine->turn.mono_ms : 1;
}

void twi_turn_last_lines(tw_engine *engine) {
    check_late(engine, true);
    if (engine->turn.lost_log.keys != 0)
        twi_port_log(
            engine, TW_LOG_ERROR, TW_EVENT_LOST,
            "tw_close() was over before Redis had acknowledged everything: %llu units of %llu counters are given "
            "up",
            (unsigned long long)engine->turn.lost_log.units, (unsigned long long)engine->turn.lost_log.keys);
    twi_report_turn(engine, true);
}

static void check_clock(tw_engine *engine) {
    int64_t drift_ms = twi_clock_drift_ms(&engine->clock), change_ms = drift_ms - engine->turn.clock_logged_ms;
    bool is_far = drift_ms > TWI_CLOCK_LEAP_MS || drift_ms < -TWI_CLOCK_LEAP_MS;
    bool is_same = change_ms <= TWI_CLOCK_LEAP_MS && change_ms >= -TWI_CLOCK_LEAP_MS;
    if (is_far && is_same && engine->turn.mono_ms - engine->turn.clock_logged_at_ms < AGAIN_LOG_MS) return;
    bool was_far = engine->turn.clock_logged_ms != 0;
    engine->turn.clock_logged_ms = is_far ? drift_ms : 0;
    engine->turn.clock_logged_at_ms = engine->turn.mono_ms;
    if (!is_far && was_far)
        twi_port_log(engine, TW_LOG_INFO, TW_EVENT_CLOCK, "the wall clock and engine time agree again");
    if (!is_far) return;
    if (drift_ms > 0)
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_CLOCK,
                     "the wall clock is %lld ms ahead of engine time, which follows after 5 s", (long long)drift_ms);
    else
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_CLOCK,
                     "the wall clock was set back: engine time is %lld ms ahead of it and follows the monotonic "
                     "clock; open the engine again if its windows must follow the wall clock again",
                     -(long long)drift_ms);
}

/* Computes when work is due next, for tw_timeout_ms() and the background thread. */
static void plan_next(tw_engine *engine) {
    int64_t next_ms = engine->turn.mono_ms + TWI_IDLE_MS;
    int64_t family_ms = twi_agenda_next_ms(engine);
    if (family_ms < next_ms) next_ms = family_ms;
    /* Memory waits for a thread that is still in a section. Checking again without a pause would only use CPU time. */
    int64_t reclaim_ms = engine->turn.mono_ms + (engine->turn.reclaimed ? 0 : TWI_TICK_MS);
    bool waits =
        engine->unlinked.generations != 0 || engine->unlinked.maps != 0 || engine->unlinked.sketches.waiting != 0;
    if (waits && reclaim_ms < next_ms) next_ms = reclaim_ms;
    int64_t reservations_ms = twi_load_relaxed(&engine->here->reservations->next_ms);
    if (twi_load_relaxed(&engine->here->reservations->tidies)) reservations_ms = engine->turn.mono_ms;
    if (reservations_ms < next_ms) next_ms = reservations_ms;
    if (engine->here->remote.sync != NULL) {
        int64_t wake_ms = engine->here->remote.driver->wake_ms(engine->here->remote.sync);
        if (wake_ms < next_ms) next_ms = wake_ms;
    }
    int64_t ask_ms = engine->life.host_driven ? twi_driving_wake_ms(engine) : INT64_MAX;
    if (ask_ms < next_ms) next_ms = ask_ms;
    int64_t look_ms = twi_load_relaxed(&engine->here->calls->look_ms);
    if (look_ms < next_ms) next_ms = look_ms;
    if (next_ms < engine->turn.mono_ms) next_ms = engine->turn.mono_ms; /* no time is subtracted from INT64_MIN */
    twi_store_relaxed(&engine->turn.next_ms, next_ms);
}

/* A page costs a tenth of a microsecond, or ten microseconds if the machine has to find it first. In this case the
 * host's loop waits for the turn, so the turn looks at the time. */
#define AHEAD_PIECE (TWI_WORK_AHEAD / 16)
#define AHEAD_US 1000

static void keep_arena_ahead(tw_engine *engine, uint32_t *work) {
    if (!engine->life.host_driven) {
        twi_arena_keep_ahead(&engine->arena, work);
        return;
    }
    int64_t end_us = twi_clock_mono_us(&engine->clock) + AHEAD_US;
    for (uint32_t piece = 0; piece == 0 && *work != 0 && twi_clock_mono_us(&engine->clock) < end_us;
         *work -= AHEAD_PIECE) {
        piece = AHEAD_PIECE;
        twi_arena_keep_ahead(&engine->arena, &piece); /* the rest of it: there is no other work */
    }
}

static void keep_ahead(tw_engine *engine) {
    uint32_t work = TWI_WORK_AHEAD;
    keep_arena_ahead(engine, &work);
    if (!twi_lock_try(&engine->roster.lock)) return; /* under this lock parts are added and removed */
    twi_parts_keep_ahead(&engine->arena, engine->turn.mono_ms, &work);
    twi_unlock(&engine->roster.lock);
}

/* `done` runs in threads that must not log. */
static void log_slow_done(tw_engine *engine) {
    int64_t ms = twi_swap_relaxed(&engine->here->calls->slow_done_ms, 0);
    if (ms != 0)
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_CALLBACK, "a `done` took %lld ms: other answers waited for it",
                     (long long)ms);
}

void twi_turn_run(tw_engine *engine) {
    TWI_PROBE(turn_begin);
    /* this comes first, because the reason for the wake-up is handled below */
    twi_socket_set_calm(&engine->here->waits);
    twi_clock_refresh(&engine->clock);
    engine->turn.now_ms = twi_clock_read(&engine->clock);
    engine->turn.mono_ms = twi_clock_mono_ms(&engine->clock);
    twi_arena_survey(&engine->arena, engine->turn.mono_ms);
    twi_leader_turn(engine);
    twi_heal(engine);
    if (engine->turn.has_doubts) twi_recover_flags(engine);
    twi_rollover_turn(engine);
    twi_contention_turn(engine);
    twi_reserve_local_turn(engine);
    twi_gauge_turn(engine);
    twi_recount_turn(engine);
    twi_clock_tick();
    twi_recover_processes(engine);
    twi_remote_turn(engine);
    twi_flush_serve(engine);
    if (engine->here->remote.sync != NULL) engine->here->remote.driver->turn(engine->here->remote.sync);
    if (engine->here->remote.sync != NULL) twi_dirty_sample(engine);
    twi_clock_tick();
    /* While the engine closes, the second thread no longer exists. */
    if (engine->life.host_driven || engine->turn.closing) twi_driving_step(engine);
    twi_waiters_turn(engine);
    log_slow_done(engine);
    twi_clock_tick();
    twi_window_reclaim(engine);
    twi_sketch_reclaim(&engine->arena, &engine->unlinked.sketches);
    keep_ahead(engine);
    check_sections(engine);
    check_barriers(engine);
    check_arena(engine);
    check_clock(engine);
    check_late(engine, false);
    twi_timeout_check(engine);
    twi_report_turn(engine, false);
    plan_next(engine);
    TWI_PROBE(turn_end);
}

/* ---- the process that leads a shared engine ---- */

bool twi_turn_lead(tw_engine *engine) {
    if (twi_leader_take(engine) == TWI_LEADER_NOT) return false;
    if (twi_turn_take(engine)) { /* calls find the sync from now on */
        twi_remote_turn(engine);
        twi_turn_leave(engine);
    }
    return true;
}

bool twi_turn_leads(tw_engine *engine) {
    if (twi_leader_is_here(engine)) return true;
    if (!twi_leader_is_due(engine) || !twi_load_relaxed(&engine->here->lead.is_candidate)) return false;
    return !twi_load_acquire(&engine->life.stopped) && twi_turn_lead(engine);
}

/* ---- the background thread ---- */

/* An engine without calls is idle. The thread of an idle engine sleeps for up to 100 ms at a time, until work is
 * due, and callers read the clocks themselves. No call wakes the thread (P9), but the first calls move the engine's
 * time, and the thread sees that. Then the thread sleeps for short times again. */
#define REST_AFTER_MS 1000 /* if fewer than REST_CALLS calls come in this time, the engine may become idle */
/* the time doubles after each wrong decision, because some calls are not in the sum */
#define REST_AFTER_MS_MAX 16000
#define REST_CALLS 100
#define REST_TRY_MS 20 /* the first sleep is short */
#define REST_SLEEP_MS 100
/* if callers moved the time this often in one sleep, and once in REST_MOVE_MS, there are calls */
#define REST_MOVES_MIN 2
#define REST_MOVE_MS 40 /* back */

struct rest {
    bool rests;
    uint32_t sleep_ms, moves; /* the next sleep of the present idle time, and how often the clock had moved before it */
    int64_t calls, look_ms;   /* the sum at the last look, and when the next look is due */
    int64_t after_ms, began_ms;
};

/* Calls that are in no sum (acquires, reads) are noticed because they move the clock during a short sleep. */
static int64_t sum_calls(const tw_engine *engine) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < TWI_SHARDS; i++) sum += twi_load_relaxed(&engine->shards[i].increments);
    return sum;
}

static void begin_rest(struct rest *rest, tw_engine *engine, int64_t now_ms) {
    int64_t calls = sum_calls(engine), before = rest->calls;
    rest->calls = calls;
    rest->look_ms = now_ms + rest->after_ms;
    if (calls - before >= REST_CALLS) return;
    rest->rests = true;
    twi_clock_away();
    rest->sleep_ms = REST_TRY_MS;
    rest->moves = twi_load_relaxed(&engine->clock.moves);
    rest->began_ms = now_ms;
}

static void end_rest(struct rest *rest, int64_t now_ms) {
    bool was_wrong = now_ms - rest->began_ms < REST_AFTER_MS;
    rest->after_ms = !was_wrong ? REST_AFTER_MS : twi_smaller(2 * rest->after_ms, REST_AFTER_MS_MAX);
    rest->look_ms = now_ms + rest->after_ms;
    rest->rests = false;
    twi_clock_back();
}

/* Returns how long the thread may sleep. */
static uint32_t plan_sleep(struct rest *rest, tw_engine *engine, int64_t now_ms) {
    uint32_t moves = twi_load_relaxed(&engine->clock.moves), moved = moves - rest->moves;
    if (rest->rests && moved >= REST_MOVES_MIN && moved * REST_MOVE_MS >= rest->sleep_ms) end_rest(rest, now_ms);
    if (!rest->rests && now_ms >= rest->look_ms) begin_rest(rest, engine, now_ms);
    if (!rest->rests) return TWI_TICK_MS;
    if (now_ms - rest->began_ms >= REST_TRY_MS) rest->sleep_ms = REST_SLEEP_MS;
    /* Callers of hard limits leave requests for the turn. */
    if (twi_load_relaxed(&engine->leases.exist)) rest->sleep_ms = REST_TRY_MS;
    if (engine->here->remote.sync != NULL && engine->options.sync_interval_ms < rest->sleep_ms)
        rest->sleep_ms = engine->options.sync_interval_ms;
    rest->moves = moves;
    return rest->sleep_ms;
}

static void sleep_until_next(tw_engine *engine, uint32_t most_ms) {
    int64_t left_ms = twi_load_relaxed(&engine->turn.next_ms) - twi_clock_mono_ms(&engine->clock);
    int tick_ms = left_ms <= 0 ? 0 : left_ms < most_ms ? (int)left_ms : (int)most_ms;
    if (tick_ms == 0)
        sched_yield();
    else
        twi_turn_nap(engine, (uint32_t)tick_ms);
}

void twi_turn_nap(tw_engine *engine, uint32_t ms) {
    int set = engine->here->waits.fd;
    struct pollfd fd = {.fd = twi_descriptor_is_own(set) ? set : -1, .events = POLLIN};
    (void)twi_descriptor_wait(&fd, 1, (int)ms);
}

void twi_turn_loop(tw_engine *engine) {
    struct rest rest = {.after_ms = REST_AFTER_MS};
    rest.look_ms = twi_clock_mono_ms(&engine->clock) + rest.after_ms;
    twi_clock_keep(&engine->clock);
    while (!twi_load_acquire(&engine->here->background.stops)) {
        if (engine->life.is_shared && !twi_epoch_look_at_users()) break;
        if (twi_turn_take(engine)) {
            twi_turn_run(engine);
            twi_turn_leave(engine);
        }
        uint32_t most_ms = plan_sleep(&rest, engine, twi_clock_mono_ms(&engine->clock));
        sleep_until_next(engine, most_ms);
        twi_clock_round();
    }
    twi_clock_keep(NULL);
    twi_clock_abandon(&engine->clock);
}

tw_status twi_turn_start_thread(tw_engine *engine, void *(*run)(void *engine)) {
    twi_check(!engine->life.host_driven && !engine->here->background.runs);
    twi_store_relaxed(&engine->here->background.stops, false);
    engine->here->background.runs = twi_own_thread_start(&engine->here->background.thread, run, engine);
    if (!engine->here->background.runs) return twi_refuse(TW_ERR_MEMORY, "no thread could be started");
    return TW_OK;
}

void twi_turn_stop_thread(tw_engine *engine) {
    if (!engine->here->background.runs) return;
    twi_store_release(&engine->here->background.stops, true);
    twi_port_wake(engine);
    if (engine->life.is_shared) twi_leader_call(engine); /* it may be waiting to lead */
    pthread_join(engine->here->background.thread, NULL);
    engine->here->background.runs = false;
}

/* ---- host-driven ---- */

/* A process that does not lead moves the time, so that windows end for its calls, and drives the calls of its own. */
static tw_status follow(tw_engine *engine) {
    twi_socket_set_calm(&engine->here->waits);
    twi_clock_refresh(&engine->clock);
    twi_driving_step(engine);
    twi_waiters_turn(engine);
    (void)twi_queue_run_own(engine, TWI_TURN_ANSWERS);
    return TW_PENDING;
}

tw_status tw_turn(tw_engine *engine) {
    TWI_NEED(engine);
    if (!engine->life.host_driven)
        return twi_refuse(TW_ERR_MODE,
                          "threads: tw_turn() is for host-driven engines; this one has a thread of its own");
    tw_status status = twi_guard_thread(twi_thread_here());
    if (twi_process_is_barred() && !twi_supervisor_is_here() && twi_leader_is_here(engine))
        twi_leader_hand_over(engine);
    if (status != TW_OK) return status;
    bool is_stopped = twi_load_acquire(&engine->life.stopped);
    if (engine->life.is_shared && is_stopped) twi_waiters_turn(engine); /* another process has stopped it */
    if (is_stopped) return twi_refuse(TW_ERR_CLOSED, NULL);
    if (engine->life.is_shared && !twi_turn_leads(engine)) return follow(engine);
    if (!twi_turn_take(engine)) return TW_PENDING;
    twi_turn_run(engine);
    twi_turn_leave(engine);
    (void)twi_queue_run_own(engine, TWI_TURN_ANSWERS);
    return TW_OK;
}

/* A process that supervises, or that root is barred from, reads nothing that others write. In a forked child that has
 * not called yet the engine is still the parent's. */
void tw_tick(tw_engine *engine) {
    if (engine == NULL || !twi_process_has_begun() || twi_process_is_barred() || twi_supervisor_is_here()) return;
    if (!engine->life.host_driven || engine->clock.hook != NULL || twi_load_acquire(&engine->life.stopped)) return;
    (void)twi_clock_renew_ms(&engine->clock);
}

int tw_fd(const tw_engine *engine) {
    if (engine == NULL) return -1;
    (void)twi_thread_here(); /* a forked child must not get the descriptor of its parent */
    return engine->life.host_driven ? engine->here->waits.fd : -1;
}

/* When a process that does not lead has work. */
static int64_t follow_again_ms(tw_engine *engine) {
    int64_t next_ms = twi_load_relaxed(&engine->here->lead.look_ms), wake_ms = twi_driving_wake_ms(engine);
    int64_t look_ms = twi_load_relaxed(&engine->here->calls->look_ms);
    if (wake_ms < next_ms) next_ms = wake_ms;
    return look_ms < next_ms ? look_ms : next_ms;
}

uint32_t tw_timeout_ms(tw_engine *engine) {
    if (engine == NULL) return UINT32_MAX;
    (void)twi_thread_here();
    if (twi_queue_has_own(engine)) return 0;
    bool leads = !engine->life.is_shared || twi_leader_is_here(engine);
    if (leads && twi_load_relaxed(&engine->agenda.news) != NULL) return 0;
    int64_t next_ms = leads ? twi_load_relaxed(&engine->turn.next_ms) : follow_again_ms(engine);
    int64_t reservations_ms = twi_load_relaxed(&engine->here->reservations->next_ms); /* it may be new in this turn */
    if (reservations_ms < next_ms) next_ms = reservations_ms;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock), left_ms = next_ms <= now_ms ? 0 : next_ms - now_ms;
    return left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
}

void tw_enter(tw_engine *engine) {
    (void)engine;
    struct twi_thread *self = twi_thread_here();
    if (self != NULL) twi_section_enter(self);
}

void tw_leave(tw_engine *engine) {
    (void)engine;
    struct twi_thread *self = twi_thread_here();
    /* 0 means that the process forked inside the section, and that the child is outside of it */
    if (self != NULL && self->depth != 0) twi_section_leave(self);
}

/* ---- flush serve ---- */

uint64_t twi_flush_take(tw_engine *engine) {
    const struct twi_remote *remote = &engine->here->remote;
    if (!engine->life.is_shared) return remote->driver->ticket_take(remote->sync);
    return twi_add_acqrel(&engine->flushes.wanted, 1) + 1; /* FL1 releases the caller's earlier adds */
}

enum twi_ticket twi_flush_state(const tw_engine *engine, uint64_t number) {
    const struct twi_remote *remote = &engine->here->remote;
    if (!engine->life.is_shared) return remote->driver->ticket_state(remote->sync, number);
    if (twi_load_acquire(&engine->flushes.served) < number) return TWI_TICKET_OPEN; /* FL4, pairs with FL3 */
    /* A later round that was refused counts, too, because TW_OK would promise too much. */
    return twi_load_relaxed(&engine->flushes.refused) >= number ? TWI_TICKET_REFUSED : TWI_TICKET_DONE;
}

static void end_round(tw_engine *engine) {
    struct twi_flush_round *round = &engine->here->flushes;
    const struct twi_remote *remote = &engine->here->remote;
    enum twi_ticket state = remote->driver->ticket_state(remote->sync, round->ticket);
    if (state == TWI_TICKET_OPEN) return;
    if (state == TWI_TICKET_REFUSED) twi_store_relaxed(&engine->flushes.refused, round->until);
    twi_store_release(&engine->flushes.served, round->until); /* FL3 */
    round->until = 0;
}

void twi_flush_serve(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    struct twi_flush_round *round = &engine->here->flushes;
    const struct twi_remote *remote = &engine->here->remote;
    if (!engine->life.is_shared || remote->sync == NULL) return;
    if (round->made != remote->made) *round = (struct twi_flush_round){.made = remote->made};
    if (round->until != 0) end_round(engine);
    uint64_t wanted = twi_load_acquire(&engine->flushes.wanted); /* FL2, pairs with FL1 */
    if (round->until != 0 || wanted == twi_load_relaxed(&engine->flushes.served)) return;
    round->until = wanted;
    round->ticket = remote->driver->ticket_take(remote->sync);
}
