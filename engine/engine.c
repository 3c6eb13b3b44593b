/* engine.c -- the life of an engine: opening, closing, forking, statistics.
 * Always true: tw_open() never waits; after tw_stop() no call counts. */
#include "engine/core/agenda.h"
#include "engine/port/rejected.h"
#include "engine/base/hash_aes.h"
#include "engine/core/report.h"
#include "engine/turn/restore_notes.h"
#include "engine/core/state.h"

#include "engine/audit.h"
#include "engine/family_open.h"
#include "engine/turn/closing.h"
#include "engine/limit/limit_stats.h"
#include "engine/core/call_guard.h"
#include "engine/core/driving.h"
#include "engine/core/queue.h"
#include "engine/core/second.h"
#include "engine/core/waiters.h"
#include "engine/reserve/hold_book.h"
#include "engine/limit/lease.h"
#include "engine/turn/lease_renewal.h"
#include "engine/turn/lost.h"
#include "engine/core/options.h"
#include "engine/limit/overshoot.h"
#include "engine/base/random.h"
#include "engine/reserve/reserve_local.h"
#include "engine/core/roster.h"
#include "engine/stats.h"
#include "engine/table/stripe.h"
#include "engine/limit/share.h"
#include "engine/base/sized.h"
#include "engine/turn/turn.h"
#include "engine/turn/turn_check.h"
#include "engine/turn/rollover.h"
#include "engine/watch.h"
#include "engine/core/window_map.h"
#include "engine/base/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* with Redis, an eighth of memory_bytes_max is reserved for batches and buffers outside the arena */
#define SYNC_MEMORY_SHARE 8
#define CLOSING_RETRY_MS 200 /* how soon an engine that closes tries again to reach Redis */
#define LEAVE_MS 500         /* the longest time that tw_close() waits to report to Redis that it has finished */

/* ---- its threads ---- */

static tw_status start_threads(tw_engine *engine) {
    twi_check(!engine->life.host_driven || !engine->here->background.runs);
    if (engine->life.host_driven) return TW_OK;
    tw_status status = twi_turn_start_thread(engine);
    if (status == TW_OK) status = twi_audit_start(engine);
    return status;
}

static void stop_threads(tw_engine *engine) {
    twi_watcher_stop(engine);
    twi_second_stop(engine);
    twi_audit_stop(engine);
    twi_turn_stop_thread(engine);
}

/* ---- all engines of the process, each of which a forked child renews ---- */

static pthread_mutex_t engines_lock = PTHREAD_MUTEX_INITIALIZER;
static tw_engine *engines;

static void enlist(tw_engine *engine) {
    twi_check(engine->here->next_engine == NULL);
    twi_lock(&engines_lock);
    engine->here->next_engine = engines;
    engines = engine;
    twi_unlock(&engines_lock);
}

static void delist(tw_engine *engine) {
    twi_lock(&engines_lock);
    tw_engine **link = &engines;
    while (*link != NULL && *link != engine) link = &(*link)->here->next_engine;
    if (*link != NULL) *link = engine->here->next_engine;
    twi_unlock(&engines_lock);
}

static tw_status start_sync(tw_engine *engine) {
    twi_check(engine->here->remote.sync == NULL);
    if (!engine->life.has_redis) return TW_OK;
    engine->here->remote.driver = twi_driver_find();
    if (engine->here->remote.driver == NULL) {
        (void)twi_options_refuse(engine->options.error_text, engine->options.error_size,
                                 "redis_url: this library was built without Redis");
        return twi_refuse(TW_ERR_REDIS, "redis_url: this library was built without Redis");
    }
    const struct twi_driver *driver = engine->here->remote.driver;
    tw_status status = driver->create(engine, &engine->options, engine->here->remote.transport,
                                      engine->here->remote.transport_ctx, &engine->here->remote.sync);
    if (status == TW_OK && driver->shorts != NULL)
        engine->here->remote.shorts = driver->shorts(engine->here->remote.sync);
    return status;
}

/* The engine's identity in Redis: 128 random bits. */
static void name(tw_engine *engine) {
    unsigned char bytes[16];
    twi_port_random(engine, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) (void)snprintf(engine->here->remote.id + 2 * i, 3, "%02x", bytes[i]);
}

/* What an engine counts with. Called when it is opened, and in a forked child, which must not use the parent's counts,
 * leases or batches (trap E37). Returns false if there is no memory. */
static bool begin_counting(tw_engine *engine, uint64_t bytes_max) {
    twi_check(engine->life.opening);
    twi_report_begin(&engine->report);
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
    twi_leases_begin(&engine->leases);
    twi_peers_begin(engine);
    twi_agenda_begin(engine);
    struct tw_family *first = twi_load_relaxed(&engine->roster.first);
    for (struct tw_family *family = first; family != NULL; family = twi_load_relaxed(&family->entry.next)) {
        twi_family_begin(family);
        twi_agenda_notify(family);
    }
    twi_arena_unmake(&engine->arena);
    bool made = twi_arena_make(&engine->arena, bytes_max);
    if (made) twi_arena_set_aside(&engine->arena);
    for (struct tw_family *family = first; made && family != NULL; family = twi_load_relaxed(&family->entry.next))
        made = twi_parts_renew(&engine->arena, &family->quota.parts);
    twi_roster_begin(engine);
    return made;
}

/* What belongs to a process. Called when the engine is opened, and in a forked child, where the parent still uses its
 * own descriptors and connections. Returns false if there is no descriptor. */
static bool begin_here(tw_engine *engine) {
    twi_check(engine->life.opening);
    struct twi_here *here = engine->here;
    here->hook = (struct twi_hook_run){.call = 0};
    here->background.runs = here->auditor.runs = false;
    twi_reserve_local_begin(engine);
    name(engine);
    twi_hold_book_begin(engine);
    twi_second_begin(engine);
    twi_operations_begin(engine);
    bool has_queues = twi_queue_begin(engine);
    if (here->remote.sync != NULL) here->remote.driver->abandon(here->remote.sync);
    here->remote.sync = NULL;
    twi_socket_set_unmake(&here->waits);
    return twi_socket_set_make(&here->waits) && has_queues;
}

static void renew(tw_engine *engine) {
    twi_check(!engine->life.opening);
    bool works = !twi_load_relaxed(&engine->life.stopped); /* otherwise it only waits for tw_close() */
    bool had_thread = engine->here->background.runs;
    engine->life.opening = true;
    twi_clock_abandon(&engine->clock); /* the parent's thread kept it; the child's will */
    bool made = begin_counting(engine, engine->arena.bytes_max);
    made = begin_here(engine) && made;
    made = made && (!works || start_sync(engine) == TW_OK) && !engine->here->random.failed;
    engine->life.opening = false;
    if (had_thread && works && made) made = start_threads(engine) == TW_OK;
    twi_watcher_renew(engine);
    if (made) return;
    twi_store_release(&engine->life.broken, true);
    twi_store_release(&engine->life.gate, true);
}

static void renew_all(void) {
    twi_clock_keep(NULL); /* after a fork in a hook, this thread does not keep the parent's clock any more */
    pthread_mutex_init(&engines_lock, NULL);
    twi_operations_renew_lock();
    twi_queue_renew_running();
    for (tw_engine *engine = engines; engine != NULL; engine = engine->here->next_engine) renew(engine);
}

/* ---- opening ---- */

/* The strings among the options, of which the engine has copies. */
#define TEXTS(X) \
    X(redis_url) \
    X(redis_prefix) \
    X(metrics_labels) \
    X(watch_path) \
    X(sentinel_user) \
    X(redis_tls_ca_file) X(redis_tls_cert_file) X(redis_tls_key_file) X(redis_tls_server_name)

/* A URL may have a password. */
static void free_text(const char *text) {
    if (text != NULL) explicit_bzero((void *)(uintptr_t)text, strlen(text));
    free((void *)(uintptr_t)text);
}

static void free_engine(tw_engine *engine) {
    twi_threads_forget(engine);
    struct twi_here *here = engine->here;
    twi_arena_unmake(&engine->arena);
#define FREE(field) free_text(engine->options.field);
    TEXTS(FREE)
#undef FREE
    twi_rejected_free(engine->collector.rejected);
    twi_restore_free(engine->restore);
    twi_leases_free(&engine->leases);
    twi_reserve_local_end(engine);
    twi_hold_book_end(engine);
    twi_operations_end(engine);
    twi_second_end(engine);
    twi_roster_end(engine);
    twi_socket_set_unmake(&here->waits);
    twi_report_end(&engine->report);
    free(here);
    free(engine);
}

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

static void *zeroed(size_t bytes) {
    bytes = (bytes + 2 * TWI_LINE_BYTES - 1) & ~(size_t)(2 * TWI_LINE_BYTES - 1);
    void *block = aligned_alloc(2 * TWI_LINE_BYTES, bytes);
    return block != NULL ? memset(block, 0, bytes) : NULL;
}

static tw_engine *make_engine(void) {
    struct whole *whole = zeroed(sizeof *whole);
    struct whole_here *own = zeroed(sizeof *own);
    if (whole == NULL || own == NULL) {
        free(whole);
        free(own);
        return NULL;
    }
    whole->engine.shards = whole->shards;
    whole->engine.here = &own->here;
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
    TEXTS(COPY)
#undef COPY
    return copied;
}

/* Two stripes for each processor, so that threads that run at once rarely share one; at least 8. */
static uint32_t stripes_log2(void) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t log2 = 3;
    while (log2 < TWI_STRIPES_LOG2_MAX && (1L << log2) < 2 * processors) log2++;
    return log2;
}

static tw_status fill_engine(tw_engine *engine, const tw_options *options, uint64_t random_seed) {
    twi_check(engine->life.opening);
    uint64_t bytes = options->memory_bytes_max;
    engine->options = *options;
    bool copied = copy_texts(&engine->options);
    engine->life.host_driven = options->threads == TW_HOST_DRIVEN;
    engine->life.has_redis = options->redis_url != NULL;
    engine->stripes.log2 = stripes_log2();
    twi_store_relaxed(&engine->here->random.state, random_seed);
    twi_clock_init(&engine->clock, options->clock_now_ns, options->clock_ctx, !engine->life.host_driven);
    if (engine->life.has_redis) bytes -= bytes / SYNC_MEMORY_SHARE;
    bool made = begin_counting(engine, bytes), has_descriptors = begin_here(engine);
    unsigned char secret[TWI_HASH_SECRET_BYTES];
    bool is_random = twi_random_bytes(secret, sizeof secret) && !engine->here->random.failed;
    twi_hash_secret_make(&engine->hashing.secret, secret);
    engine->hashing.fn = twi_hash_choose();
    if (!copied) return twi_refuse(TW_ERR_MEMORY, NULL);
    if (!made) return twi_refuse(TW_ERR_MEMORY, "memory_bytes_max: not so much address space");
    if (!has_descriptors) return twi_refuse(TW_ERR_MEMORY, "no file descriptor is left for what the engine waits for");
    return is_random ? TW_OK : twi_refuse(TW_ERR_MEMORY, "no random bytes from the system");
}

#define NO_RECORD "no record for this thread: no memory, no MADV_WIPEONFORK (Linux 4.14), or 65,535 threads live"

tw_status twi_open_with(const tw_options *options, const struct twi_replacements *replacements, tw_engine **out) {
    twi_check(options != NULL && replacements != NULL && out != NULL);
    tw_options checked;
    tw_status status = twi_options_check(options, &checked);
    if (status != TW_OK) return status;
    if (twi_thread_here() == NULL) {
        (void)twi_options_refuse(options->error_text, options->error_size, NO_RECORD);
        return twi_refuse(TW_ERR_MEMORY, NO_RECORD);
    }
    twi_epoch_set_on_fork(renew_all);
    tw_engine *engine = make_engine();
    if (engine == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    engine->here->remote.transport = replacements->transport;
    engine->here->remote.transport_ctx = replacements->transport_ctx;
    engine->here->remote.tuning = replacements->tuning != NULL ? *replacements->tuning : (struct twi_tuning)TWI_TUNING;
    engine->life.opening = true;
    status = fill_engine(engine, &checked, replacements->random_seed);
    if (status == TW_OK) status = start_sync(engine);
    if (status == TW_OK && engine->here->random.failed)
        status = twi_refuse(TW_ERR_MEMORY, "no random bytes from the system");
    engine->life.opening = false;
    if (status == TW_OK) {
        engine->options.error_text = NULL;                       /* the caller's buffer may be gone from here on */
        if (engine->life.host_driven && twi_turn_take(engine)) { /* so that tw_timeout_ms() has a value */
            twi_turn_run(engine);
            twi_turn_leave(engine);
        }
        uint32_t work = TWI_WORK_AHEAD;
        twi_arena_keep_ahead(&engine->arena, &work); /* counting before the thread's first turn is no slower then */
        twi_watcher_start(engine);
        status = start_threads(engine);
    }
    if (status != TW_OK) {
        stop_threads(engine);
        if (engine->here->remote.sync != NULL) engine->here->remote.driver->destroy(engine->here->remote.sync);
        free_engine(engine);
        return status;
    }
    enlist(engine);
    if (!twi_thread_is_watched(twi_thread_here()))
        twi_port_log(engine, TW_LOG_INFO, TW_EVENT_START,
                     "the kernel refuses robust lists (get_robust_list): whether a thread has ended is asked by its "
                     "number");
    *out = engine;
    return TW_OK;
}

tw_status tw_open(const tw_options *options, tw_engine **engine) {
    twi_check(options != NULL && engine != NULL);
    return twi_open_with(options, &(struct twi_replacements){0}, engine);
}

/* ---- closing ---- */

tw_status tw_stop(tw_engine *engine) {
    twi_check(engine != NULL);
    const struct twi_thread *self = twi_thread_here(); /* in a forked child: renews the engine before it is stopped */
    if (self != NULL) twi_store_relaxed(&engine->life.stopped_in, self->process);
    twi_store_release(&engine->life.stopped, true);
    twi_store_release(&engine->life.gate, true);
    if (engine->here->remote.sync != NULL && engine->here->remote.driver->ask_stop != NULL)
        engine->here->remote.driver->ask_stop(engine->here->remote.sync);
    twi_waiters_stop(engine);
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

/* Returns true if no call is under way, and no call waits to be taken back. */
static bool calls_are_settled(const tw_engine *engine) {
    const struct twi_driver *driver = engine->here->remote.driver;
    if (engine->here->remote.sync == NULL || driver->ask_owed == NULL) return true;
    return driver->ask_owed(engine->here->remote.sync) == 0;
}

static void nap(tw_engine *engine, int64_t now_ms) {
    twi_check(twi_turn_is_owned(engine));
    int64_t next_ms = twi_load_relaxed(&engine->turn.next_ms);
    if (next_ms > now_ms) twi_turn_nap(engine, next_ms - now_ms < 5 ? (uint32_t)(next_ms - now_ms) : 5);
}

/* All counts are acknowledged. The keys that this engine has in Redis for itself get a short life. If Redis does not
 * answer, they stay a while longer, and no call waits for that. */
static void leave_redis(tw_engine *engine, int64_t deadline_ms) {
    twi_check(twi_turn_is_owned(engine));
    const struct twi_driver *driver = engine->here->remote.driver;
    if (engine->here->remote.sync == NULL || driver->leave == NULL) return;
    int64_t now_ms = twi_clock_mono_ms(&engine->clock);
    if (deadline_ms > now_ms + LEAVE_MS) deadline_ms = now_ms + LEAVE_MS;
    while (now_ms < deadline_ms && !driver->leave(engine->here->remote.sync)) {
        twi_turn_run(engine);
        now_ms = twi_clock_mono_ms(&engine->clock);
        nap(engine, now_ms);
    }
}

/* After tw_stop() each call is answered by the next step. */
static void answer_calls(tw_engine *engine) {
    twi_driving_step(engine);
    while (twi_queue_run_own(engine, TWI_TURN_ANSWERS)) {}
}

/* Seals every window, sends all unsent counts, calls the hooks. Returns false if the time did not suffice. */
static bool drain_engine(tw_engine *engine, uint32_t timeout_ms) {
    twi_check(twi_turn_is_owned(engine));
    int64_t deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms, again_ms = INT64_MIN;
    if (engine->here->remote.sync == NULL && !has_hooks(&engine->roster)) return true;
    twi_rollover_begin_end(engine);
    twi_rejected_end_waits(engine->collector.rejected,
                           INT64_MIN); /* what Redis refused a while ago is tried once more */
    for (;;) {
        try_redis_now(engine, twi_clock_mono_ms(&engine->clock), &again_ms);
        twi_turn_run(engine);
        bool is_over = twi_rollover_is_done(engine) && twi_leases_are_over(engine) && twi_closing_is_over(engine);
        if (is_over && calls_are_settled(engine)) {
            leave_redis(engine, deadline_ms);
            return true;
        }
        int64_t now_ms = twi_clock_mono_ms(&engine->clock);
        if (now_ms >= deadline_ms) break;
        nap(engine, now_ms);
    }
    /* The time is over, so the hooks get the counts that are known here. Sealing continues until the values are
     * final. */
    engine->turn.hooks_partial = true;
    while (!twi_rollover_is_sealed(engine)) twi_turn_run(engine);
    twi_turn_run(engine);
    return twi_rollover_is_done(engine);
}

tw_status tw_close(tw_engine *engine, uint32_t timeout_ms) {
    twi_check(engine != NULL);
    struct twi_thread *self = twi_thread_here();
    tw_status status = self != NULL ? twi_guard_thread(self) : TW_OK;
    if (status != TW_OK) return status;
    if (twi_queue_is_open(engine)) return twi_refuse(TW_ERR_MODE, "queues: tw_queue_close() comes first");
    (void)tw_stop(engine);
    stop_threads(engine);
    answer_calls(engine);
    delist(engine);
    (void)twi_turn_take(engine); /* it is never left, because no other thread needs it */
    bool drained = twi_load_relaxed(&engine->life.broken) || drain_engine(engine, timeout_ms);
    twi_check_full(twi_load_relaxed(&engine->life.broken) || twi_turn_is_valid(engine));
    if (engine->here->remote.sync != NULL) engine->here->remote.driver->destroy(engine->here->remote.sync);
    engine->here->remote.sync = NULL;
    if (!drained) twi_lost_report_unsent(engine);
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

/* ---- statistics ---- */

static void gather_windows(struct twi_roster *roster, tw_stats *stats) {
    struct twi_thread *self = twi_thread_here();
    if (self == NULL) return;
    twi_section_enter(self); /* keeps their windows */
    for (struct tw_family *family = twi_load_acquire(&roster->first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        twi_window_count(family, &stats->generations, &stats->entries);
    twi_section_leave(self);
}

/* The statistics by family, and the sums that the engine has kept of closed families. The lock keeps other families
 * from closing meanwhile. */
static void gather_families(tw_engine *engine, tw_stats *stats) {
    int64_t *fields = (int64_t *)stats;
    twi_lock(&engine->roster.lock); /* families stay */
    for (size_t i = 0; i < offsetof(tw_stats, last_error) / sizeof(int64_t); i++)
        fields[i] = twi_load_relaxed(&engine->report.stats[i]);
    twi_limit_stats_read(engine, stats);
    gather_windows(&engine->roster, stats);
    twi_unlock(&engine->roster.lock);
}

static void gather_all(tw_engine *engine, tw_stats *stats) {
    (void)twi_thread_here(); /* a forked child must not show its parent's statistics */
    memset(stats, 0, sizeof *stats);
    gather_families(engine, stats);
    for (uint32_t i = 0; i < TWI_SHARDS; i++) stats->increments += twi_load_relaxed(&engine->shards[i].increments);
    stats->memory_bytes = twi_arena_bytes_used(&engine->arena);
    struct twi_arena_usage room = twi_arena_usage(&engine->arena);
    stats->memory_free_bytes = room.free_bytes;
    stats->memory_usable_bytes = room.usable_bytes;
    stats->memory_bytes_high = twi_arena_bytes_high(&engine->arena);
    stats->memory_bytes_max = (int64_t)engine->arena.bytes_max;
    stats->clock_held_ms = twi_clock_held_ms(&engine->clock);
    stats->clock_lag_max_ms = twi_clock_lag_max_ms(&engine->clock);
    stats->clock_ahead_ms = -twi_clock_drift_ms(&engine->clock);
    stats->redis_configured = engine->life.has_redis;
    if (engine->here->remote.sync != NULL) engine->here->remote.driver->stats(engine->here->remote.sync, stats);
    twi_report_error_text(&engine->report, stats->last_error);
}

tw_status tw_stats_read_sized(tw_engine *engine, tw_stats *stats, size_t size) {
    tw_stats whole;
    twi_check(engine != NULL && stats != NULL);
    gather_all(engine, &whole);
    twi_sized_copy(stats, size, &whole, sizeof whole);
    return TW_OK;
}

tw_status tw_metrics_write(tw_engine *engine, uint32_t format, bool (*write)(void *ctx, const char *text, size_t size),
                           void *ctx) {
    twi_check(engine != NULL && write != NULL);
    struct twi_metrics_page page = {.labels = engine->options.metrics_labels, .write = write, .ctx = ctx};
    if (!twi_metrics_page_of(format, &page))
        return twi_refuse_with(TW_ERR_OPTIONS, "format: %u is no TW_METRICS_ value", format);
    tw_stats stats;
    struct twi_family_limit_stats *families;
    size_t count;
    (void)tw_stats_read(engine, &stats);
    if (!twi_limit_stats_list(engine, &families, &count)) return twi_refuse(TW_ERR_MEMORY, NULL);
    tw_status status = twi_stats_write(&stats, families, count, &page);
    free(families);
    return status;
}
