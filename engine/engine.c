/* engine.c -- the life of an engine: opening, closing, forking.
 * Always true: tw_open() never waits; after tw_stop() no call counts. */
#include "engine/core/agenda.h"
#include "engine/port/items.h"
#include "engine/base/descriptor.h"
#include "engine/base/hash_aes.h"
#include "engine/core/report.h"
#include "engine/turn/restore_notes.h"
#include "engine/core/state.h"

#include "engine/audit.h"
#include "engine/family_open.h"
#include "engine/flush.h"
#include "engine/lead.h"
#include "engine/turn/closing.h"
#include "engine/turn/turn.h"
#include "engine/core/machine.h"
#include "engine/core/operation.h"
#include "engine/core/calls.h"
#include "engine/core/processes.h"
#include "engine/core/queue.h"
#include "engine/reserve/hold_book.h"
#include "engine/limit/lease.h"
#include "engine/turn/lease_renewal.h"
#include "engine/turn/settle.h"
#include "engine/core/options.h"
#include "engine/limit/limit_stats.h"
#include "engine/base/random.h"
#include "engine/reserve/reserve_local.h"
#include "engine/core/roster.h"
#include "engine/table/stripe.h"
#include "engine/limit/share.h"
#include "engine/turn/remote.h"
#include "engine/turn/turn_check.h"
#include "engine/turn/rollover.h"
#include "engine/stats.h"
#include "engine/core/window_map.h"
#include "engine/base/threads.h"
#include "engine/memory/supervisor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* with Redis, an eighth of memory_bytes_max is reserved for batches and buffers outside the arena */
#define SYNC_MEMORY_SHARE 8
#define HOOKS_AGAIN_MS 100   /* how often an engine that closes calls a hook again that has returned false */
#define CLOSING_RETRY_MS 200 /* how soon an engine that closes tries again to reach Redis */
#define LEAVE_MS 500         /* the longest time that tw_close() waits to report to Redis that it has finished */

/* ---- its threads ---- */

static void *run_turns(void *engine) {
    twi_turn_loop(engine);
    return NULL;
}

static tw_status start_threads(tw_engine *engine) {
    twi_check(!engine->life.host_driven || !engine->here->background.runs);
    if (engine->life.host_driven) return TW_OK;
    tw_status status = twi_turn_start_thread(engine, run_turns);
    if (status == TW_OK) status = twi_audit_start(engine);
    return status;
}

static void stop_threads(tw_engine *engine) {
    if (engine->life.is_shared) twi_turn_stop_thread(engine); /* it may be about to start the watcher */
    twi_watcher_stop(engine);
    twi_second_stop(engine);
    twi_audit_stop(engine);
    twi_turn_stop_thread(engine);
}

/* What an engine counts with. Called when it is opened, and in a forked child, which must not use the parent's counts,
 * leases or batches (trap E37). Returns false if there is no memory. */
static bool begin_counting(tw_engine *engine, uint64_t bytes_max) {
    twi_check(engine->life.opening);
    twi_report_begin(&engine->report, engine->life.is_shared);
    memset(engine->shards, 0, TWI_SHARDS * sizeof *engine->shards);
    engine->collector =
        (struct twi_collector){.rejected = engine->collector.rejected, .stores = engine->collector.stores};
    engine->unlinked = (struct twi_unlinked){0};
    twi_store_relaxed(&engine->stripes.of, 0);
    engine->near_ring = (struct twi_near_ring){0};
    twi_overshoot_clear(engine);
    engine->turn = (struct twi_turn_state){.epoch_seen = UINT64_MAX};
    twi_event_count_make(&engine->turn.ended);
    twi_event_count_make(&engine->given_back);
    twi_rejected_clear(engine->collector.rejected);
    twi_restore_forget(engine->restore);
    twi_remote_name(engine);
    twi_leases_begin(&engine->leases);
    twi_peers_begin(engine);
    twi_agenda_begin(engine);
    struct tw_family *first = twi_load_relaxed(&engine->roster.first);
    for (struct tw_family *family = first; family != NULL; family = twi_load_relaxed(&family->entry.next)) {
        twi_family_begin(family);
        twi_agenda_notify(family);
    }
    twi_arena_unmake(&engine->arena);
    bool made = engine->life.is_shared ? twi_arena_make_shared(&engine->arena, bytes_max)
                                       : twi_arena_make(&engine->arena, bytes_max);
    if (made) twi_arena_set_aside(&engine->arena);
    for (struct tw_family *family = first; made && family != NULL; family = twi_load_relaxed(&family->entry.next))
        made = twi_parts_renew(&engine->arena, &family->quota.parts);
    twi_roster_begin(engine);
    return made;
}

/* What belongs to a process. Called when the engine is opened, and in a forked child, where the parent still uses its
 * own descriptors and connections. Returns false if there is no descriptor. */
static bool begin_here(tw_engine *engine) {
    struct twi_here *here = engine->here;
    here->hook = (struct twi_hook_run){.call = 0};
    here->background.runs = here->auditor.runs = false;
    (void)twi_random_key_draw(
        &here->random.key); /* in a child the parent's serves, if the system refuses another one */
    twi_reserve_local_begin(engine);
    twi_hold_book_begin(engine);
    twi_second_begin(engine);
    twi_operations_begin(engine);
    twi_leader_begin_here(engine);
    twi_witness_begin(engine);
    bool has_queues = twi_queue_begin(engine);
    twi_driving_abandon(engine);
    if (here->remote.sync != NULL) here->remote.driver->abandon(here->remote.sync, twi_load_relaxed(&here->is_turning));
    here->remote.sync = NULL;
    twi_store_relaxed(&here->is_turning, false);
    return twi_socket_set_make(&here->waits) && has_queues;
}

/* If a thread of the parent was in a turn at the fork, what it was changing is not freed. In the child this costs only
 * some memory. */
static void lose_torn(tw_engine *engine) {
    struct twi_restore_stores *stores = engine->collector.stores;
    if (!twi_load_relaxed(&engine->here->is_turning)) return;
    *engine->collector.rejected = (struct twi_rejected){0};
    if (engine->life.is_shared) return; /* the rest is in the memory of all processes */
    *engine->restore = (struct twi_restore){.stores = stores};
    *stores = (struct twi_restore_stores){0};
    engine->leases.more = NULL;
    engine->leases.room = 0;
    for (struct tw_family *family = twi_load_relaxed(&engine->roster.first); family != NULL;
         family = twi_load_relaxed(&family->entry.next))
        family->turn.closing.elections = NULL;
}

static void renew(tw_engine *engine) {
    twi_check(!engine->life.opening);
    bool works = !twi_load_relaxed(&engine->life.stopped); /* otherwise it only waits for tw_close() */
    bool had_thread = engine->here->background.runs;
    engine->life.opening = true;
    twi_clock_abandon(&engine->clock); /* the parent's thread kept it; the child's will */
    lose_torn(engine);
    bool made = begin_counting(engine, engine->arena.bytes_max);
    made = begin_here(engine) && made;
    made = made && (!works || twi_remote_open(engine) == TW_OK) && !engine->here->random.failed;
    engine->life.opening = false;
    if (had_thread && works && made) made = start_threads(engine) == TW_OK;
    twi_watcher_renew(engine);
    if (made) return;
    twi_store_release(&engine->life.broken, true);
    twi_store_release(&engine->life.gate, true);
}

/* Forked from a process that has a shared engine: this process counts in the same table, and does not lead. Only what
 * belongs to a process begins again. */
static void join(tw_engine *engine) {
    engine->here->has_joined = true;
    lose_torn(engine);
    (void)begin_here(engine); /* without a descriptor there is no tw_fd(), but calls count */
    twi_watcher_abandon(engine);
    twi_witness_join(engine);
}

/* A child that has forked before its first call supervises: it joins when it takes part. */
static void join_later(struct twi_here *here) {
    here->has_joined = here->unread.has_to_join = true;
    twi_store_relaxed(&here->process, 0);
    here->unread.has_left = NULL;
    here->background.runs = false;
    twi_socket_set_forget(&here->waits);
}

static void join_or_renew(struct twi_here *here) {
    if (!here->is_shared)
        renew(here->engine);
    else if (twi_supervisor_is_here())
        join_later(here);
    else
        join(here->engine);
}

static void renew_all(void) {
    twi_clock_keep(NULL); /* after a fork in a hook, this thread does not keep the parent's clock any more */
    twi_descriptors_forget();
    twi_operations_renew_lock();
    twi_queue_renew_running();
    twi_engines_renew(join_or_renew);
}

static void join_all(void) {
    twi_engines_join_all(join);
}

static const struct twi_supervising supervising = {.may_supervise = twi_engines_may_supervise,
                                                   .others_have_none = twi_engines_others_have_none,
                                                   .take_part = join_all};

/* ---- opening ---- */

/* An engine, and the statistics of its threads. */
struct whole {
    struct tw_engine engine;
    struct twi_shard shards[TWI_SHARDS];
};

/* What belongs to a process, and those of its parts whose types only their files define. */
struct whole_here {
    struct twi_here here;
    struct twi_reserve_local reservations;
    struct twi_hold_book holds;
    struct twi_calls calls;
    struct twi_rejected rejected;
    struct twi_restore_stores stores;
    struct twi_restore restore;
};

static void free_engine(tw_engine *engine) {
    struct twi_here *here = engine->here;
    twi_processes_unmake(engine);
    if (engine->life.is_shared)
        twi_arena_leave(&engine->arena); /* other processes may still use it, as the locks below */
    else
        twi_arena_unmake(&engine->arena);
#define FREE(field) twi_engines_free_text(engine->options.field);
    TWI_ENGINE_TEXTS(FREE)
#undef FREE
    twi_rejected_free(engine->collector.rejected);
    twi_restore_free(engine->restore);
    twi_remote_free(engine);
    twi_leases_free(&engine->leases);
    twi_reserve_local_end(engine);
    twi_hold_book_end(engine);
    twi_operations_end(engine);
    twi_second_end(engine);
    twi_roster_end(engine);
    twi_socket_set_unmake(&here->waits);
    if (!engine->life.is_shared) twi_report_end(&engine->report);
    free(here->unread.blocks.all);
    twi_arena_give_block(here, sizeof(struct whole_here), false);
    twi_arena_give_block(engine, sizeof(struct whole), engine->life.is_shared);
}

static tw_engine *make_engine(bool is_shared) {
    struct whole *whole = twi_arena_block(sizeof *whole, is_shared);
    struct whole_here *own = twi_arena_block(sizeof *own, false);
    if (whole == NULL || own == NULL || (is_shared && !twi_processes_make(&whole->engine))) {
        twi_arena_give_block(whole, sizeof *whole, is_shared);
        twi_arena_give_block(own, sizeof *own, false);
        return NULL;
    }
    whole->engine.life.is_shared = is_shared;
    whole->engine.shards = whole->shards;
    whole->engine.here = &own->here;
    own->here.unread.engine_bytes = sizeof *whole;
    own->here.waits.fd = own->here.waits.bell = -1;
    own->here.reservations = &own->reservations;
    own->here.holds = &own->holds;
    own->here.calls = &own->calls;
    whole->engine.collector.rejected = &own->rejected;
    whole->engine.collector.stores = &own->stores;
    whole->engine.restore = &own->restore;
    own->restore.stores = &own->stores;
    return &whole->engine;
}

/* Copies the strings. Returns false if there is no memory. */
static bool copy_texts(tw_options *own) {
    bool copied = true;
#define COPY(field) \
    if (own->field != NULL) copied = (own->field = strdup(own->field)) != NULL && copied;
    TWI_ENGINE_TEXTS(COPY)
#undef COPY
    return copied;
}

static tw_status fill_engine(tw_engine *engine, const tw_options *options, uint64_t random_seed) {
    twi_check(engine->life.opening);
    uint64_t bytes = options->memory_bytes_max;
    engine->options = *options;
    bool copied = copy_texts(&engine->options);
    engine->life.host_driven = options->threads == TW_HOST_DRIVEN;
    engine->life.has_redis = options->redis_url != NULL;
    engine->stripes.log2 = twi_stripes_log2();
    twi_store_relaxed(&engine->here->random.state, random_seed);
    twi_clock_init(&engine->clock, options->clock_now_ns, options->clock_ctx, !engine->life.host_driven);
    if (engine->life.has_redis) bytes -= bytes / SYNC_MEMORY_SHARE;
    bool made = begin_counting(engine, bytes);
    errno = 0;
    bool has_descriptors = begin_here(engine);
    int error = errno;
    twi_leader_make(engine);
    unsigned char secret[TWI_HASH_SECRET_BYTES];
    bool is_random =
        engine->here->random.key.is_drawn && twi_random_bytes(secret, sizeof secret) && !engine->here->random.failed;
    twi_hash_secret_make(&engine->hashing.secret, secret);
    engine->hashing.fn = twi_hash_choose();
    if (!copied) return twi_refuse(TW_ERR_MEMORY, NULL);
    if (!made) return twi_refuse(TW_ERR_MEMORY, "memory_bytes_max: not so much address space (ulimit -v, ulimit -d)");
    if (!has_descriptors)
        return twi_refuse_with(TW_ERR_MEMORY, "epoll or eventfd, for what the engine waits for: %s",
                               error != 0 ? strerror(error) : "no memory");
    return is_random ? TW_OK : twi_refuse(TW_ERR_MEMORY, "no random bytes from the system");
}

#define NO_RECORD "no record for this thread: no memory, no MADV_WIPEONFORK (Linux 4.14), or 65,535 threads live"

static tw_status refuse_shared(const tw_options *options) {
    return twi_options_refuse(options->error_text, options->error_size,
                              "shared: refused here, because the kernel or the C library does not tell other processes "
                              "of threads that end (robust mutexes; glibc and get_robust_list)");
}

/* The first turn, so that tw_timeout_ms() has a value, and the threads. In a shared engine tw_lead() does that. */
static tw_status start(tw_engine *engine) {
    uint32_t work = TWI_WORK_AHEAD;
    if (!twi_thread_is_watched(twi_thread_here())) /* no other thread logs yet */
        twi_port_log(engine, TW_LOG_INFO, TW_EVENT_START,
                     "the kernel refuses robust lists (get_robust_list): whether a thread has ended is asked by its "
                     "number");
    if (engine->life.host_driven && !engine->life.is_shared && twi_turn_take(engine)) {
        twi_turn_run(engine);
        twi_turn_leave(engine);
    }
    twi_arena_keep_ahead(&engine->arena, &work); /* counting before the thread's first turn is no slower then */
    if (engine->life.is_shared) {
        twi_clock_abandon(&engine->clock);
        twi_witness_open(engine);
        return TW_OK;
    }
    twi_watcher_start(engine);
    return start_threads(engine);
}

static tw_status open_engine(const tw_options *options, const struct twi_replacements *replacements, tw_engine **out) {
    tw_options checked;
    tw_status status = twi_options_check(options, &checked);
    if (status != TW_OK) return status;
    if (twi_thread_here() == NULL) {
        (void)twi_options_refuse(options->error_text, options->error_size, NO_RECORD);
        return twi_refuse(TW_ERR_MEMORY, NO_RECORD);
    }
    twi_epoch_set_on_fork(renew_all);
    bool is_shared = checked.shared != TW_SHARED_NO;
    if (!is_shared && checked.threads != TW_HOST_DRIVEN && twi_process_is_barred()) return twi_refuse_for(TWI_WHY_ROOT);
    if (is_shared && !twi_epoch_share()) return refuse_shared(options);
    tw_engine *engine = make_engine(is_shared);
    if (engine == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    engine->here->remote.transport = replacements->transport;
    engine->here->remote.transport_ctx = replacements->transport_ctx;
    engine->here->remote.tuning = replacements->tuning != NULL ? *replacements->tuning : (struct twi_tuning)TWI_TUNING;
    engine->life.opening = true;
    status = fill_engine(engine, &checked, replacements->random_seed);
    twi_machine_report(engine, replacements->root != NULL ? replacements->root : "");
    if (status == TW_OK) status = twi_remote_open(engine);
    if (status == TW_OK && engine->here->random.failed)
        status = twi_refuse(TW_ERR_MEMORY, "no random bytes from the system");
    engine->life.opening = false;
    if (status == TW_OK) {
        engine->options.error_text = NULL; /* the caller's buffer may be gone from here on */
        status = start(engine);
    }
    if (status != TW_OK) {
        stop_threads(engine);
        twi_remote_end(engine);
        free_engine(engine);
        return status;
    }
    twi_engines_add(engine);
    *out = engine;
    return TW_OK;
}

/* After another user has joined an older engine, root may open a new one, which a server does when it is reloaded. A
 * thread of its own would make calls later. */
tw_status twi_open_with(const tw_options *options, const struct twi_replacements *replacements, tw_engine **out) {
    twi_check(options != NULL && replacements != NULL && out != NULL);
    twi_supervisor_set(&supervising);
    twi_thread_alone_begin(options->shared != TW_SHARED_NO);
    tw_status status = open_engine(options, replacements, out);
    twi_thread_alone_end();
    return status;
}

tw_status tw_open(const tw_options *options, tw_engine **engine) {
    TWI_NEED(options);
    TWI_NEED(engine);
    return twi_open_with(options, &(struct twi_replacements){0}, engine);
}

/* ---- closing ---- */

static void stop(tw_engine *engine, const struct twi_thread *self) {
    if (self != NULL) twi_store_relaxed(&engine->life.stopped_in, self->process);
    twi_store_release(&engine->life.stopped, true);
    twi_store_release(&engine->life.gate, true);
    twi_driving_stop(engine);
    twi_waiters_stop(engine);
}

tw_status tw_stop(tw_engine *engine) {
    TWI_NEED(engine);
    const struct twi_thread *self = twi_thread_here(); /* in a forked child: renews the engine before it is stopped */
    if (!twi_epoch_look_at_users()) return twi_refuse_for(TWI_WHY_ROOT);
    if (engine->life.is_shared && !twi_leader_is_here(engine))
        return twi_refuse(TW_ERR_MODE, "shared: the process that leads (tw_lead()) stops the engine for all; "
                                       "tw_close() leaves it");
    stop(engine, self);
    twi_calls_end(engine);
    return TW_OK;
}

static bool has_hooks(struct twi_roster *roster) {
    for (struct tw_family *family = twi_load_acquire(&roster->first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        if (family->options.on_window_closed != NULL) return true;
    return false;
}

/* A new flush cuts a back-off short, because Redis may be back, and the time of a close may be shorter than the
 * pause. */
static void try_redis_now(tw_engine *engine, int64_t now_ms, int64_t *again_ms) {
    if (engine->here->remote.sync == NULL || twi_load_relaxed(&engine->peers.is_connected) || now_ms < *again_ms)
        return;
    (void)engine->here->remote.driver->ticket_take(engine->here->remote.sync);
    *again_ms = now_ms + CLOSING_RETRY_MS;
}

static void nap(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    int64_t next_ms = twi_load_relaxed(&engine->turn.next_ms), now_ms = twi_clock_mono_ms(&engine->clock);
    if (next_ms > now_ms) twi_turn_nap(engine, next_ms - now_ms < 5 ? (uint32_t)(next_ms - now_ms) : 5);
}

/* All counts are acknowledged. The keys that this engine has in Redis for itself get a short life. If Redis does not
 * answer, they stay a while longer, and no call waits for that. */
static void leave_redis(tw_engine *engine, int64_t deadline_ms) {
    twi_check(twi_turn_is_owned(engine));
    const struct twi_driver *driver = engine->here->remote.driver;
    if (engine->here->remote.sync == NULL || driver->leave == NULL) return;
    if (deadline_ms > twi_clock_system_ms() + LEAVE_MS) deadline_ms = twi_clock_system_ms() + LEAVE_MS;
    while (twi_clock_system_ms() < deadline_ms && !driver->leave(engine->here->remote.sync)) {
        twi_turn_run(engine);
        nap(engine);
    }
}

/* After tw_stop() each call is answered by the next step. */
static void answer_calls(tw_engine *engine) {
    twi_driving_step(engine);
    while (twi_queue_run_own(engine, TWI_TURN_ANSWERS)) {}
}

/* Seals all windows, sends all counts, calls the hooks. Returns false if the time, by the system's clock, was short. */
static bool drain_engine(tw_engine *engine, uint32_t timeout_ms) {
    twi_check(twi_turn_is_owned(engine));
    int64_t now_ms = twi_clock_system_ms(), deadline_ms = now_ms + timeout_ms;
    int64_t again_ms = INT64_MIN, hooks_ms = INT64_MIN;
    if (engine->here->remote.sync == NULL && !has_hooks(&engine->roster)) return true;
    twi_rollover_begin_end(engine);
    twi_rejected_end_waits(engine->collector.rejected,
                           INT64_MIN); /* what Redis refused a while ago is tried once more */
    for (;;) {
        try_redis_now(engine, now_ms, &again_ms);
        engine->turn.hooks_again = now_ms >= hooks_ms;
        if (engine->turn.hooks_again) hooks_ms = now_ms + HOOKS_AGAIN_MS;
        twi_turn_run(engine);
        bool is_over = twi_rollover_is_done(engine) && twi_leases_are_over(engine) && twi_closing_is_over(engine);
        if (is_over && twi_driving_owed(engine) == 0) {
            leave_redis(engine, deadline_ms);
            return true;
        }
        if ((now_ms = twi_clock_system_ms()) >= deadline_ms) break;
        nap(engine);
    }
    /* The time is over, so the hooks get the counts that are known here. Sealing continues until the values are
     * final. A turn that meets a window that nobody announced calls no hook, and a hook may count in another window. */
    engine->turn.hooks_partial = true;
    uint64_t windows;
    do {
        windows = twi_rollover_windows(engine);
        twi_turn_run(engine);
    } while (!twi_rollover_is_sealed(engine) || twi_rollover_windows(engine) != windows);
    return twi_rollover_is_done(engine);
}

/* Calls of this process that are under way end, within the time of tw_close(). */
static void end_calls(tw_engine *engine) {
    int64_t deadline_ms = twi_load_relaxed(&engine->here->lead.close_by_ms);
    answer_calls(engine);
    while (twi_driving_owed(engine) != 0 && twi_clock_mono_ms(&engine->clock) < deadline_ms) {
        twi_turn_nap(engine, 1);
        answer_calls(engine);
    }
    twi_driving_stop(engine);
    answer_calls(engine);
    twi_driving_end(engine);
}

/* This process gives back what is its own. The others continue. */
static tw_status leave(tw_engine *engine) {
    twi_waiters_stop(engine);
    end_calls(engine);
    twi_engines_remove(engine->here);
    for (struct tw_family *family = twi_load_relaxed(&engine->roster.first), *next; family != NULL; family = next) {
        next = twi_load_relaxed(&family->entry.next);
        twi_family_free(family);
    }
    free_engine(engine);
    return TW_OK;
}

/* Ends the engine. The caller makes the turns, and no other thread can reach it. */
static tw_status end(tw_engine *engine, uint32_t timeout_ms) {
    bool drained = twi_load_relaxed(&engine->life.broken) || drain_engine(engine, timeout_ms);
    twi_check_full(twi_load_relaxed(&engine->life.broken) || twi_turn_is_valid(engine));
    twi_driving_end(engine);
    engine->turn.lost_log.keys = engine->turn.lost_log.units = 0;
    twi_remote_end(engine);
    if (!drained) twi_lost_report_unsent(engine);
    twi_turn_last_lines(engine);
    twi_threads_forget(engine, twi_engine_process(engine));
    if (engine->life.is_shared) twi_lead_end(engine);
    for (struct tw_family *family = twi_load_relaxed(&engine->roster.first), *next; family != NULL; family = next) {
        next = twi_load_relaxed(&family->entry.next);
        twi_closing_free(family);
        twi_family_free(family);
    }
    free_engine(engine);
    return drained ? TW_OK
                   : twi_refuse(TW_ERR_TIMEOUT,
                                "timeout_ms: not all counts were acknowledged, or a hook returned false to the end");
}

/* The queues that are open need the engine, so it stays as it is. Its counts do not wait for them, because a program
 * may end after this refusal. In a shared engine other processes send them. */
static tw_status refuse_for_queues(tw_engine *engine, uint32_t timeout_ms) {
    int64_t by_ms = twi_clock_system_ms() + timeout_ms;
    bool sends =
        timeout_ms != 0 && engine->life.has_redis && !engine->life.is_shared && !twi_load_relaxed(&engine->life.broken);
    uint64_t ticket = sends ? twi_flush_take(engine) : 0;
    for (uint32_t waits = 0; sends; waits++) {
        sends = twi_clock_system_ms() < by_ms && twi_flush_state(engine, ticket) == TWI_TICKET_OPEN;
        if (sends) twi_flush_wait_for_turn(engine, waits);
    }
    return twi_refuse(TW_ERR_MODE, "queues: tw_queue_close() comes first");
}

static tw_status close_engine(tw_engine *engine, uint32_t timeout_ms) {
    struct twi_thread *self = twi_thread_here();
    if (!twi_epoch_look_at_users()) return twi_refuse_for(TWI_WHY_ROOT);
    tw_status status = self != NULL ? twi_guard_thread(self) : TW_OK;
    if (status == TW_OK && twi_queue_is_open(engine)) status = refuse_for_queues(engine, timeout_ms);
    if (status == TW_OK && engine->life.is_shared) status = twi_lead_may_close(engine, timeout_ms);
    if (status != TW_OK) return status;
    if (engine->life.is_shared) {
        stop_threads(engine);
        if (!twi_lead_is_last(engine)) return leave(engine);
    }
    stop(engine, self);
    stop_threads(engine);
    answer_calls(engine);
    twi_engines_remove(engine->here);
    (void)twi_turn_take(engine); /* it is never left, because no other thread needs it */
    twi_remote_turn(engine);     /* the last process may not have led before */
    return end(engine, engine->life.is_shared ? twi_lead_left_ms(engine) : timeout_ms);
}

/* A process that supervises, and root after a process of another user has joined, reads nothing that others have
 * written. */
tw_status tw_close(tw_engine *engine, uint32_t timeout_ms) {
    TWI_NEED(engine);
    struct twi_here *here = twi_engines_find(engine);
    bool is_alone = here == NULL || twi_engines_is_alone(here);
    if (!is_alone && (twi_supervisor_is_here() || !twi_epoch_look_at_users())) {
        twi_engines_leave_unread(engine, here);
        return TW_OK;
    }
    if (is_alone) twi_thread_alone_begin(true);
    tw_status status = close_engine(engine, timeout_ms);
    twi_thread_alone_end();
    return status;
}
