/* reserve_local.c -- see reserve_local.h. It changes and ends the entries of reserve_book.h. The turn takes entries
 * back that expire together, piece by piece. A caller takes back a few, and more if it would be denied otherwise.
 * Entries of a family that is closed are gone for callers at once; the turn forgets them.
 * With Redis the book holds no reservations but SWEEP entries, which are keys for which this engine made reservations.
 * A key is examined when its next reservation expires, so units return even without calls. */
#include "engine/reserve/reserve_local.h"

#include "engine/core/operation.h"
#include "engine/core/family.h"
#include "engine/limit/acquire.h"
#include "engine/limit/limit_stats.h"
#include "engine/reserve/reserve_book.h"
#include "engine/base/threads.h"

#include <string.h>

#define TURN_MAX 256u   /* entries that one turn examines */
#define CALL_MAX 16u    /* and one call */
#define DENIED_MAX 512u /* and one that would be denied otherwise, or find no memory */
#define WALK_MAX 2048u  /* chains that one turn looks through */

static bool same_bytes(tw_key a, tw_key b) {
    twi_check(a.size == 0 || a.data != NULL);
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static uint64_t hash_buyer(const struct twi_reserve_request *request) {
    const tw_engine *engine = request->family->engine;
    return engine->hashing.fn(&engine->hashing.secret, request->buyer.data, request->buyer.size) +
           engine->hashing.fn(&engine->hashing.secret, request->key.data, request->key.size);
}

static struct twi_reservation *next_of_buyer(const tw_engine *engine, const struct twi_reservation *entry) {
    return entry->next_by_buyer != 0 ? twi_reservation_at(&engine->arena, entry->next_by_buyer) : NULL;
}

static bool is_void(const struct twi_reservation *entry) {
    return twi_load_acquire(&entry->family->requests.close_requested);
}

/* The reservation of that serial; NULL means that there is none, or that its family is closed. */
static struct twi_reservation *find(tw_engine *engine, uint64_t serial) {
    twi_check(serial != 0);
    struct twi_reservation *entry = twi_reserve_find(engine, serial);
    return entry != NULL && !is_void(entry) ? entry : NULL;
}

static struct twi_reservation *find_buyer(const struct twi_reserve_request *request, int64_t start_ms) {
    tw_engine *engine = request->family->engine;
    if (request->buyer.size == 0) return NULL;
    for (struct twi_reservation *entry = twi_reserve_of_buyer(engine, hash_buyer(request)); entry != NULL;
         entry = next_of_buyer(engine, entry)) {
        if (entry->family == request->family && entry->start_ms == start_ms &&
            same_bytes(twi_reservation_key(entry), request->key) &&
            same_bytes(twi_reservation_buyer(entry), request->buyer))
            return entry;
    }
    return NULL;
}

/* ---- units that go back ---- */

/* If the window takes no more units, its units end with it. That is no late count. */
static tw_status put_back(const struct twi_reservation *entry) {
    twi_check(entry->n > 0);
    tw_family *family = entry->family;
    if (!family->kind.has_starts) return tw_add(family, twi_reservation_key(entry), -entry->n, NULL);
    if (twi_family_takes_until(family, entry->end_ms) <= twi_clock_now_ms(&family->engine->clock)) return TW_OK;
    return tw_add_at(family, twi_reservation_key(entry), -entry->n, entry->start_ms, NULL);
}

/* Returns false if the engine has stopped, and takes no count. The reservation stays as it is, so that tw_save() knows
 * of its units. */
static bool take_back(tw_engine *engine, struct twi_reservation *entry) {
    twi_check(entry->state == TWI_HELD);
    if (put_back(entry) == TW_ERR_CLOSED) return false;
    entry->state = TWI_RETURNED;
    twi_reserve_unlink_buyer(engine, entry);
    twi_stat_add(engine, offsetof(tw_stats, reservations_held), -1);
    return true;
}

/* Called when its family is closed. Its units are not given back, because no caller can request them any more. */
static void drop(tw_engine *engine, struct twi_reservation *entry) {
    if (entry->state == TWI_HELD) twi_stat_add(engine, offsetof(tw_stats, reservations_held), -1);
    twi_reserve_forget(engine, entry);
}

/* Handles an entry that was at the top of the heap and has been taken off it. */
static void wake(tw_engine *engine, struct twi_reservation *entry, int64_t mono_ms) {
    twi_check(entry->rank == 0);
    if (is_void(entry)) {
        drop(engine, entry);
        return;
    }
    if (entry->state == TWI_HELD) {
        if (!take_back(engine, entry)) { /* it stays */
            twi_reserve_push(engine, entry);
            return;
        }
        twi_port_count(engine, reservations_expired, 1);
    }
    if (entry->state == TWI_RETURNED) {
        twi_reserve_forget(engine, entry);
        return;
    }
    int64_t until_ms = twi_time_add(entry->due_ms, TWI_TOKEN_KEEP_MS);
    int64_t left_ms = entry->end_ms == INT64_MAX ? INT64_MAX : entry->end_ms - twi_clock_now_ms(&engine->clock);
    if (entry->buyer_size != 0 && left_ms > 0 && twi_time_add(mono_ms, left_ms) > until_ms)
        until_ms = twi_time_add(mono_ms, left_ms);
    if (until_ms <= mono_ms) {
        twi_reserve_forget(engine, entry);
    } else if (until_ms != INT64_MAX) { /* otherwise the purchase is known as long as the family is open */
        entry->wake_ms = until_ms;
        twi_reserve_push(engine, entry);
    }
}

/* Returns true if there may be more entries that are due. */
static bool take_back_due(tw_engine *engine, int64_t mono_ms, uint32_t count_max) {
    for (uint32_t count = 0; count < count_max; count++) {
        struct twi_reservation *first = twi_reserve_first(engine);
        if (first == NULL || first->wake_ms > mono_ms) return false;
        twi_reserve_take_out(engine, first);
        wake(engine, first, mono_ms);
    }
    return true;
}

/* ---- reserving ---- */

static struct twi_reservation *make_entry(const struct twi_reserve_request *request) {
    twi_check(request->key.size - 1 < TW_KEY_SIZE_MAX && request->buyer.size <= TW_KEY_SIZE_MAX);
    tw_engine *engine = request->family->engine;
    struct twi_reservation *entry = twi_reserve_make(engine, request->key.size + request->buyer.size);
    if (entry == NULL) return NULL;
    entry->family = request->family;
    entry->n = request->n;
    entry->key_size = (uint16_t)request->key.size;
    entry->buyer_size = (uint16_t)request->buyer.size;
    memcpy(entry->bytes, request->key.data, request->key.size);
    if (request->buyer.size == 0) return entry;
    memcpy(entry->bytes + request->key.size, request->buyer.data, request->buyer.size);
    entry->buyer_hash = hash_buyer(request);
    return entry;
}

static tw_status deny_buyer(const struct twi_reservation *has, int64_t mono_ms, tw_verdict *verdict) {
    twi_check(has->buyer_size != 0);
    verdict->decided_by = TW_BY_BUYER;
    twi_verdict_deny(verdict, TW_CAUSE_BUYER, has->state == TWI_SOLD ? -1 : has->due_ms - mono_ms);
    return twi_limit_stats_answered(has->family, has->n, TW_DENIED, verdict);
}

/* No unit is left. Some may come back when the next reservation expires, of any key; at once, if the turn is taking
 * expired entries back. */
static void fill_denied(tw_engine *engine, int64_t mono_ms, tw_verdict *verdict) {
    const struct twi_reservation *first = twi_reserve_first(engine);
    if (first == NULL || verdict->retry_after_ms < 0) return;
    int64_t left_ms = first->wake_ms > mono_ms ? first->wake_ms - mono_ms : TWI_TICK_MS;
    if (left_ms < verdict->retry_after_ms) verdict->retry_after_ms = left_ms;
}

/* Takes the units in the open window, if the buyer has none in it yet. The clock may pass into the next window between
 * the two calls. Then there is no reservation in that window, because it has only begun, and this call has the lock. */
static tw_status take_units(const struct twi_reserve_request *request, int64_t mono_ms, tw_verdict *verdict) {
    twi_check(request->n > 0 && !request->family->kind.synced);
    tw_status status = tw_acquire(request->family, request->key, 0, request->limit, verdict); /* to learn the window */
    if (status < 0) return status;
    struct twi_reservation *has = find_buyer(request, verdict->window_start_ms);
    if (has != NULL && has->state == TWI_HELD && has->due_ms <= mono_ms) { /* expired, and not yet taken back */
        twi_reserve_take_out(request->family->engine, has);
        wake(request->family->engine, has, mono_ms);
        has = NULL;
    }
    if (has != NULL) return deny_buyer(has, mono_ms, verdict);
    /* a limit may admit what was not counted, a sale must not */
    status = twi_acquire_counted(request->family, request->key, request->n, request->limit, verdict);
    if (status == TW_DENIED) fill_denied(request->family->engine, mono_ms, verdict);
    return status;
}

static tw_status refuse_full(const struct twi_reserve_request *request, tw_verdict *verdict) {
    tw_status status = twi_refuse(TW_ERR_FULL, "memory: there is no room for another reservation");
    return twi_limit_stats_answered(request->family, request->n, status, verdict);
}

static tw_status reserve_locked(const struct twi_reserve_request *request, struct twi_token *token,
                                tw_verdict *verdict) {
    twi_check(request->ttl_ms != 0);
    tw_engine *engine = request->family->engine;
    struct twi_reserve_local *reservations = engine->here->reservations;
    int64_t mono_ms = twi_clock_mono_ms(&engine->clock);
    bool more = take_back_due(engine, mono_ms, CALL_MAX);
    struct twi_reservation *entry = make_entry(request);
    if (entry == NULL && more) { /* expired entries may have the memory */
        more = take_back_due(engine, mono_ms, DENIED_MAX);
        entry = make_entry(request);
    }
    tw_status status = entry != NULL ? take_units(request, mono_ms, verdict) : refuse_full(request, verdict);
    if (entry == NULL) return status;
    if (status == TW_DENIED && verdict->decided_by != TW_BY_BUYER && more) { /* or the units */
        (void)take_back_due(engine, mono_ms, DENIED_MAX);
        status = take_units(request, mono_ms, verdict);
    }
    if (status != TW_OK) {
        twi_reserve_give(engine, entry);
        return status;
    }
    entry->start_ms = verdict->window_start_ms;
    entry->end_ms = twi_calendar_span(&request->family->rule, entry->start_ms).end_ms;
    entry->due_ms = entry->wake_ms = mono_ms + request->ttl_ms;
    entry->serial = ++reservations->serial;
    twi_reserve_link(engine, entry);
    twi_reserve_push(engine, entry);
    twi_stat_add(engine, offsetof(tw_stats, reservations_held), 1);
    *token =
        (struct twi_token){.local = true, .tag = reservations->tag, .serial = entry->serial, .due_ms = entry->due_ms};
    return TW_OK;
}

tw_status twi_reserve_local_take(const struct twi_reserve_request *request, struct twi_token *token,
                                 tw_verdict *verdict) {
    twi_check(!request->family->kind.synced && !request->family->engine->life.is_shared);
    tw_engine *engine = request->family->engine;
    if (twi_thread_here() == NULL) /* the call also renews the engine in a forked child */
        return twi_limit_stats_answered(request->family, request->n, twi_refuse_for(twi_thread_why()), verdict);
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    twi_lock(&engine->here->reservations->lock);
    tw_status status = reserve_locked(request, token, verdict);
    twi_unlock(&engine->here->reservations->lock);
    return status;
}

/* ---- confirming, cancelling ---- */

/* Returns TW_ERR_UNKNOWN_TOKEN if another incarnation of this engine made the token, or if it is too old to be
 * known. */
static tw_status begin_with_token(tw_engine *engine, const struct twi_token *token, int64_t *mono_ms) {
    twi_check(token->local);
    if (twi_thread_here() == NULL) return twi_refuse_for(twi_thread_why());
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    twi_lock(&engine->here->reservations->lock);
    *mono_ms = twi_clock_mono_ms(&engine->clock);
    bool known = token->tag == engine->here->reservations->tag &&
                 token->serial - 1 < engine->here->reservations->serial && *mono_ms - token->due_ms < TWI_TOKEN_KEEP_MS;
    if (!known) twi_unlock(&engine->here->reservations->lock);
    if (known) return TW_OK;
    return twi_refuse(TW_ERR_UNKNOWN_TOKEN,
                      "token: another incarnation of this engine made it, or it expired more than a day ago");
}

tw_status twi_reserve_local_confirm(tw_engine *engine, const struct twi_token *token) {
    int64_t mono_ms;
    tw_status status = begin_with_token(engine, token, &mono_ms);
    if (status != TW_OK) return status;
    struct twi_reservation *entry = find(engine, token->serial);
    if (entry != NULL && entry->state == TWI_HELD && entry->due_ms <= mono_ms) {
        if (take_back(engine, entry)) twi_port_count(engine, reservations_expired, 1); /* the turn forgets the entry */
    } else if (entry != NULL && entry->state == TWI_HELD) {
        entry->state = TWI_SOLD;
        twi_stat_add(engine, offsetof(tw_stats, reservations_held), -1);
    }
    status = entry != NULL && entry->state == TWI_SOLD
                 ? TW_OK
                 : twi_refuse(TW_ERR_LATE, "token: its units have returned: it was cancelled, or it expired");
    twi_unlock(&engine->here->reservations->lock);
    return status;
}

tw_status twi_reserve_local_cancel(tw_engine *engine, const struct twi_token *token) {
    int64_t mono_ms;
    tw_status status = begin_with_token(engine, token, &mono_ms);
    if (status != TW_OK) return status;
    struct twi_reservation *entry = find(engine, token->serial);
    bool is_stopped = entry != NULL && entry->state == TWI_HELD && !take_back(engine, entry);
    if (is_stopped)
        status = twi_refuse(TW_ERR_CLOSED, NULL);
    else if (entry != NULL && entry->state == TWI_SOLD)
        status = twi_refuse(TW_ERR_LATE, "token: its units are sold; they go back by tw_add() of a negative delta");
    twi_unlock(&engine->here->reservations->lock);
    return status;
}

/* ---- with Redis, when to look at which key ---- */

static bool is_awaited(const struct twi_reserve_request *request, int64_t start_ms, int64_t due_ms) {
    twi_check(request->buyer.size != 0);
    tw_engine *engine = request->family->engine;
    for (struct twi_reservation *entry = twi_reserve_of_buyer(engine, hash_buyer(request)); entry != NULL;
         entry = next_of_buyer(engine, entry)) {
        if (entry->family == request->family && entry->start_ms == start_ms && entry->wake_ms <= due_ms &&
            same_bytes(twi_reservation_key(entry), request->key))
            return true;
    }
    return false;
}

void twi_reserve_local_await(const struct twi_reserve_request *request, int64_t start_ms) {
    twi_check(request->family->kind.synced);
    tw_engine *engine = request->family->engine;
    struct twi_reserve_request look = *request;
    look.buyer = look.key; /* one entry per key, found by the key */
    twi_lock(&engine->here->reservations->lock);
    int64_t due_ms = twi_clock_mono_ms(&engine->clock) + request->ttl_ms;
    struct twi_reservation *entry = is_awaited(&look, start_ms, due_ms) ? NULL : make_entry(&look);
    if (entry != NULL) { /* without memory another caller's request finds the expired entries */
        entry->state = TWI_SWEEP;
        entry->start_ms = start_ms;
        entry->wake_ms = due_ms;
        entry->serial = ++engine->here->reservations->serial;
        twi_reserve_link(engine, entry);
        twi_reserve_push(engine, entry);
    }
    twi_unlock(&engine->here->reservations->lock);
}

bool twi_port_sweep_due(tw_engine *engine, struct twi_sweep *sweep) {
    twi_check(engine->life.has_redis);
    struct twi_reserve_local *reservations = engine->here->reservations;
    int64_t mono_ms = twi_clock_mono_ms(&engine->clock);
    if (twi_load_relaxed(&reservations->next_ms) > mono_ms) return false;
    twi_lock(&reservations->lock);
    struct twi_reservation *entry = twi_reserve_first(engine);
    bool due = entry != NULL && entry->wake_ms <= mono_ms;
    if (due) {
        twi_reserve_take_out(engine, entry);
        const struct twi_key_template *template = &entry->family->template;
        entry->wake_ms = INT64_MAX;
        sweep->serial = entry->serial;
        sweep->sizes[0] =
            twi_key_template_render(template, twi_reservation_key(entry), entry->start_ms, sweep->names[0]);
        sweep->sizes[1] = twi_key_template_own(template, "stock", sweep->names[0], sweep->sizes[0], sweep->names[1]);
        sweep->sizes[2] = twi_key_template_own(template, "due", sweep->names[0], sweep->sizes[0], sweep->names[2]);
    }
    twi_unlock(&reservations->lock);
    return due;
}

#define SWEEP_MS_MIN 20

void twi_port_sweep_answered(tw_engine *engine, uint64_t serial, int64_t wait_ms) {
    twi_check(serial != 0);
    twi_lock(&engine->here->reservations->lock);
    struct twi_reservation *entry = twi_reserve_find(engine, serial);
    if (entry != NULL && (wait_ms < 0 || is_void(entry))) {
        twi_reserve_forget(engine, entry);
    } else if (entry != NULL) {
        entry->wake_ms =
            twi_time_add(twi_clock_mono_ms(&engine->clock), wait_ms > SWEEP_MS_MIN ? wait_ms : SWEEP_MS_MIN);
        twi_reserve_push(engine, entry);
    }
    twi_unlock(&engine->here->reservations->lock);
}

/* ---- the engine's side ---- */

void twi_reserve_local_begin(tw_engine *engine) {
    struct twi_reserve_local *reservations = engine->here->reservations;
    *reservations = (struct twi_reserve_local){0};
    pthread_mutex_init(&reservations->lock, NULL);
    twi_port_random(engine, &reservations->tag, sizeof reservations->tag);
    twi_store_relaxed(&reservations->next_ms, INT64_MAX);
}

void twi_reserve_local_end(tw_engine *engine) {
    pthread_mutex_destroy(&engine->here->reservations->lock);
}

/* ---- families that are closed ---- */

void twi_reserve_local_close(tw_family *family) {
    twi_check(twi_load_relaxed(&family->requests.close_requested));
    struct twi_reserve_local *reservations = family->engine->here->reservations;
    twi_lock(&reservations->lock);
    bool any = reservations->entries != 0;
    family->requests.void_after = (uint16_t)(any ? reservations->pass.begun + 1 : reservations->pass.done);
    if (any) reservations->pass.asked = true;
    if (any) twi_store_relaxed(&reservations->tidies, true);
    twi_unlock(&reservations->lock);
}

bool twi_reserve_local_is_gone(tw_family *family) {
    twi_check(twi_load_relaxed(&family->requests.close_requested));
    struct twi_reserve_local *reservations = family->engine->here->reservations;
    twi_lock(&reservations->lock);
    bool gone = (int16_t)(reservations->pass.done - family->requests.void_after) >= 0;
    twi_unlock(&reservations->lock);
    return gone;
}

static void drop_void(tw_engine *engine, struct twi_reservation *entry) {
    if (is_void(entry)) drop(engine, entry);
}

/* A part of a walk through all entries that began after a family was closed. */
static void go_on_with_pass(tw_engine *engine) {
    struct twi_reserve_pass *pass = &engine->here->reservations->pass;
    uint32_t work = WALK_MAX;
    if (pass->begun == pass->done && pass->asked) {
        pass->asked = false;
        pass->cursor = 0;
        pass->begun++;
    }
    if (pass->begun != pass->done && twi_reserve_walk(engine, &work, drop_void)) pass->done = pass->begun;
}

static void tidy(tw_engine *engine) {
    struct twi_reserve_local *reservations = engine->here->reservations;
    go_on_with_pass(engine);
    bool more = twi_reserve_tidy(engine);
    twi_store_relaxed(&reservations->tidies,
                      more || reservations->pass.asked || reservations->pass.begun != reservations->pass.done);
}

void twi_reserve_local_turn(tw_engine *engine) {
    struct twi_reserve_local *reservations = engine->here->reservations;
    /* with Redis, sync fetches the due entries */
    bool due = !engine->life.has_redis && twi_load_relaxed(&reservations->next_ms) <= engine->turn.mono_ms;
    if ((!due && !twi_load_relaxed(&reservations->tidies)) || !twi_lock_try(&reservations->lock)) return;
    if (due && twi_load_acquire(&engine->life.stopped))
        twi_store_relaxed(&reservations->next_ms, INT64_MAX); /* what expires from here on stays in the book */
    else if (due)
        (void)take_back_due(engine, engine->turn.mono_ms, TURN_MAX);
    tidy(engine);
    twi_unlock(&reservations->lock);
}
