/* lease_renewal.c -- the turn's part of leases: the messages about them, and how the replies of Redis are applied. The
 * turn draws units in advance, returns units that are idle or that other engines want, and states everything again to a
 * Redis that may have forgotten it.
 *
 *   idle ─units requested▶ active ─no units left, all sent▶ idle      at most one message in flight per lease
 *   another epoch of a store (lease_stores.h) ─▶ every lease of that store restates its numbers ─▶ all sent
 * The grant size is the number of units that the turn draws at once. It is at least the number of units used in two
 * intervals, and twice as much if the last grant was used up within an interval. Redis cuts a grant to a share of the
 * units that are left, so grants shrink towards 1 at the end.
 * Always true: only the turn runs this file. `granted` rises only by the units that a reply grants. `returned` rises
 * only by units that were taken out of `left` earlier. Elsewhere: callers spend units (limit/lease.c), the wire
 * format is in sync/message/lease.c, and the rules of Redis are in sync/script/lease.lua and leases.lua. */
#include "engine/turn/lease_renewal.h"

#include "engine/limit/share.h"
#include "engine/core/window_map.h"
#include "engine/turn/lease_stores.h"

#include <string.h>

#define GRANT_SIZE_FIRST 64 /* the first grant size of an unused key: this, or a sixteenth of the limit */
#define IDLE_MS 5000        /* a lease that is not used for this time returns its units */
#define RESEND_MS 1000      /* how often spent units are sent while no units are requested */
#define LOOK_MS 1000        /* how often Redis looks for units of dead engines */
#define REFUSED_MS 250      /* the pause before a message that Redis refused is sent again */
#define WALK_MAX 4096u      /* how many leases of a store are examined in one turn */

static int64_t interval_of(const tw_engine *engine) {
    return engine->options.sync_interval_ms;
}
/* Messages about this window no longer have an effect. */
static bool is_over(const struct twi_turn_state *turn, const struct twi_generation *generation) {
    return turn->now_ms >= generation->end_ms;
}
static bool is_leaving(const tw_engine *engine, const struct twi_generation *generation) {
    return twi_port_is_closing(engine) || twi_load_relaxed(&generation->family->requests.close_requested);
}

static void was_resent(tw_engine *engine, struct twi_lease *lease) {
    twi_check(!lease->turn.restate || twi_lease_store_of(engine, lease) != NULL);
    if (!lease->turn.restate) return;
    lease->turn.restate = false;
    twi_lease_epoch_restated(twi_lease_store_of(engine, lease));
}

static void set_stranded(tw_engine *engine, struct twi_lease *lease, int64_t units) {
    twi_check(units >= 0);
    int64_t more = units - twi_load_relaxed(&lease->stranded);
    if (more == 0) return;
    twi_store_relaxed(&lease->stranded, units);
    twi_port_count(engine, lease_stranded, more);
}

/* ---- spent, returned and kept units ---- */

/* Returns the units that were spent from the lease. Callers change only `left`; the turn changes the other two. */
static int64_t spent_of(const struct twi_lease *lease) {
    return lease->turn.granted - lease->turn.returned - twi_load_relaxed(&lease->left);
}

/* Takes out the units above `keep`. Only units that were taken out count as returned (trap L6). */
static void take_out(tw_engine *engine, struct twi_lease *lease, int64_t keep) {
    twi_check(keep >= 0);
    int64_t left = twi_load_relaxed(&lease->left);
    do {
        if (left <= keep) return;
    } while (!twi_cas_weak_acqrel(&lease->left, &left, keep));
    lease->turn.returned += left - keep;
    twi_lease_hold(twi_lease_store_of(engine, lease), lease);
    twi_port_count(engine, lease_returned, left - keep);
}

static void measure(tw_engine *engine, struct twi_lease *lease) {
    twi_check(lease->turn.grant_size >= 0);
    int64_t now_ms = engine->turn.mono_ms, spent = spent_of(lease);
    if (spent > lease->turn.spent_then) {
        lease->turn.used_ms = now_ms;
        twi_store_relaxed(&lease->warm, 0);
    }
    if (now_ms - lease->turn.measured_ms < interval_of(engine)) return;
    lease->turn.lately = spent > lease->turn.spent_then ? spent - lease->turn.spent_then : 0;
    lease->turn.spent_then = spent;
    lease->turn.measured_ms = now_ms;
    int64_t needed = 2 * lease->turn.lately;
    lease->turn.grant_size =
        needed > lease->turn.grant_size ? needed : lease->turn.grant_size - (lease->turn.grant_size - needed) / 8;
}

static bool is_idle(const struct twi_turn_state *turn, struct twi_lease *lease) {
    return turn->mono_ms - lease->turn.used_ms >= IDLE_MS && twi_load_relaxed(&lease->warm) == 0;
}

/* Returns how many units the lease should have. */
static int64_t grant_size_of(tw_engine *engine, struct twi_lease *lease, int64_t requested, int64_t limit) {
    twi_check(requested >= 0 && limit >= 0);
    if (lease->turn.grant_size == 0)
        lease->turn.grant_size = limit / 16 < GRANT_SIZE_FIRST ? limit / 16 : GRANT_SIZE_FIRST;
    if (requested != 0 && lease->turn.exhausted_at_ms != 0 &&
        engine->turn.mono_ms - lease->turn.exhausted_at_ms < 2 * interval_of(engine))
        lease->turn.grant_size *= 2;
    if (lease->turn.grant_size < 1) lease->turn.grant_size = 1;
    if (lease->turn.grant_size > limit) lease->turn.grant_size = limit;
    return lease->turn.grant_size > requested ? lease->turn.grant_size : requested;
}

/* Returns true if the lease was warmed and its first units have not arrived yet, so a caller waits. */
static bool is_awaiting_first_grant(struct twi_lease *lease) {
    if (twi_load_relaxed(&lease->warm) == 0 || twi_load_relaxed(&lease->left) != 0) return false;
    return twi_load_relaxed(&lease->reported_ms) == 0 ||
           twi_load_relaxed(&lease->reported_spent) < twi_load_relaxed(&lease->limit);
}

/* Called when the lease has units or cannot get any, when a caller spent, or when its window has ended. */
static void first_grant_came(struct twi_leases *leases, struct twi_lease *lease) {
    if (twi_load_relaxed(&lease->awaits_first_grant) == 0) return;
    twi_store_relaxed(&lease->awaits_first_grant, 0); /* only the turn clears it */
    (void)twi_add_relaxed(&leases->awaiting_first_grant, -1);
}

/* Returns units to Redis, if there are units to return. */
static void give_back(tw_engine *engine, struct twi_lease *lease, int64_t requested, int64_t limit) {
    twi_check(!lease->turn.in_flight);
    struct twi_generation *generation = twi_lease_generation(&engine->arena, lease);
    int64_t left = twi_load_relaxed(&lease->left);
    if (left == 0) return;
    int64_t keep = left;
    /* Units that are too few for the waiting caller may be useful to another engine. Otherwise the lease keeps the
     * units that one interval uses. */
    if (lease->turn.wanted_by_others) {
        keep = requested > left ? 0 : lease->turn.lately;
        twi_store_relaxed(&lease->low_water, 0); /* so no units are drawn in advance for a while */
    }
    if (is_leaving(engine, generation) || (requested != 0 && limit < twi_load_relaxed(&lease->drawn)) ||
        is_idle(&engine->turn, lease))
        keep = 0;
    take_out(engine, lease, keep);
}

/* ---- one message ---- */

/* If Redis had this lease in an earlier incarnation and in this epoch, and no longer has it, Redis has added the
 * lease to its totals (lease.lua). */
static int64_t base_of(const struct twi_lease_store *store, const struct twi_lease *lease) {
    bool was_known = lease->turn.acked_incarnation != 0 && lease->turn.acked_incarnation != store->incarnation;
    return was_known && !lease->turn.restate ? lease->turn.sent_returned : -1;
}

static void fill(tw_engine *engine, struct twi_lease *lease, int64_t limit, int64_t want, int64_t need,
                 struct twi_lease_message *message) {
    twi_check(!lease->turn.in_flight);
    twi_check(want >= 0 && need >= 0 && need <= want);
    twi_check(lease->turn.in.is_placed);
    struct twi_generation *generation = twi_lease_generation(&engine->arena, lease);
    *message = (struct twi_lease_message){.lease = lease, .store = lease->turn.in.store};
    message->item = (struct twi_item){.family = generation->family,
                                      .generation = generation,
                                      .cell = twi_arena_at(&engine->arena, lease->cell),
                                      .expiry_ms = generation->expiry_ms};
    message->limit = limit; /* the limit that belongs to `drawn`; callers may set another limit meanwhile */
    if (lease->turn.restate && message->limit < twi_load_relaxed(&lease->drawn))
        message->limit = twi_load_relaxed(&lease->drawn);
    message->granted = lease->turn.granted;
    message->target = lease->turn.granted + want;
    message->need = need;
    message->base = base_of(twi_lease_store_of(engine, lease), lease);
    message->returned = lease->turn.returned;
    lease->turn.sent_returned = lease->turn.returned;
    message->spent = spent_of(lease);
    message->risk = lease->turn.risk;
    message->restate = lease->turn.restate;
    message->spent_all = lease->turn.restate ? twi_load_relaxed(&lease->reported_spent) : 0;
    message->names = engine->leases.names;
    message->made_ms = engine->turn.mono_ms;
    message->look = engine->turn.mono_ms - lease->turn.looked_ms >= LOOK_MS;
    if (message->look) lease->turn.looked_ms = engine->turn.mono_ms;
    lease->turn.in_flight = true;
    lease->turn.wanted_by_others = false;
    generation->turn.outstanding++; /* the window is not dropped before the reply */
}

/* A caller may see units in the lease together with their limit, and stall before it takes one. The units that it
 * finds later must not have been drawn under a greater limit (trap L9). So the turn raises `drawn` first, then waits
 * for the sections that began earlier, and only then draws units. If the lease never had units, no caller has seen
 * any. */
static bool may_draw(const struct twi_turn_state *turn, struct twi_lease *lease, int64_t limit) {
    twi_check(limit >= 0);
    if (turn->mono_ms < lease->turn.retry_ms) return false;
    if (limit > twi_load_relaxed(&lease->drawn)) {
        lease->turn.raised = TWI_LEASE_RAISING;
        twi_fence_compiler();
        twi_store_relaxed(&lease->drawn, limit);
        /* J11, pairs with J12: a caller that sees units drawn after this point also sees `drawn`. A refund that was
         * made earlier is visible here. */
        bool is_first =
            lease->turn.granted == 0 && twi_add_acqrel(&lease->left, 0) == 0 && twi_load_relaxed(&lease->refunded) == 0;
        lease->turn.raised = is_first ? 0 : twi_epoch_stamp();
    }
    if (lease->turn.raised != 0 && lease->turn.raised >= twi_epoch_reached()) return false;
    lease->turn.raised = 0;
    return true;
}

/* Returns how much to draw. *need is the part for which a caller waits. */
static int64_t draw_of(tw_engine *engine, struct twi_lease *lease, int64_t requested, int64_t limit, int64_t *need) {
    twi_check(requested >= 0);
    int64_t left = twi_load_relaxed(&lease->left);
    *need = 0;
    if (is_leaving(engine, twi_lease_generation(&engine->arena, lease)) || lease->turn.restate) return 0;
    bool is_below_low_water = left < twi_load_relaxed(&lease->low_water);
    if (requested <= left && !is_below_low_water) return 0;
    if (requested > left) *need = requested - left;
    int64_t want = grant_size_of(engine, lease, requested > left ? requested : 0, limit) - left;
    if (want < *need) want = *need;
    return want > 0 ? want : 0;
}

static bool must_speak(const struct twi_turn_state *turn, struct twi_lease *lease) {
    if (lease->turn.restate || lease->turn.has_unacknowledged || lease->turn.returned != lease->turn.acked_returned)
        return true;
    if (spent_of(lease) == lease->turn.acked_spent) return false;
    return twi_load_relaxed(&lease->left) == 0 || lease->turn.wanted_by_others ||
           turn->mono_ms - lease->turn.acked_ms >= RESEND_MS;
}

/* Examines one lease. Returns true if *message must be sent. */
static bool look(tw_engine *engine, struct twi_lease *lease, struct twi_lease_message *message) {
    if (lease->turn.in_flight || (lease->turn.has_unacknowledged && engine->turn.mono_ms < lease->turn.retry_ms))
        return false;
    if (is_over(&engine->turn, twi_lease_generation(&engine->arena, lease))) {
        was_resent(engine, lease);
        first_grant_came(&engine->leases, lease);
        return false;
    }
    measure(engine, lease);
    if (!is_awaiting_first_grant(lease)) first_grant_came(&engine->leases, lease);
    int64_t limit = twi_load_relaxed(&lease->limit), need = 0;
    bool may = may_draw(&engine->turn, lease, limit);
    int64_t requested = may ? twi_swap_acqrel(&lease->requested_units, 0) : 0;
    if (requested == 0 && is_awaiting_first_grant(lease)) requested = 1;
    give_back(engine, lease, requested, limit);
    int64_t want = may ? draw_of(engine, lease, requested, limit, &need) : 0;
    if (want == 0 && !must_speak(&engine->turn, lease)) return false;
    fill(engine, lease, limit, want, need, message);
    return true;
}

/* Returns true if this lease needs no more work until a caller requests units. */
static bool is_quiescent(const tw_engine *engine, struct twi_lease *lease) {
    if (lease->turn.in_flight) return false;
    if (is_over(&engine->turn, twi_lease_generation(&engine->arena, lease))) return true;
    if (twi_load_relaxed(&lease->left) != 0 || twi_load_relaxed(&lease->requested_units) != 0) return false;
    return !must_speak(&engine->turn, lease) &&
           (!is_awaiting_first_grant(lease) || is_leaving(engine, twi_lease_generation(&engine->arena, lease)));
}

/* ---- all messages of one turn ---- */

/* Leases that callers have listed come first, wherever they are in the queue. */
static size_t take_listed(tw_engine *engine, struct twi_lease_store *store, struct twi_lease_message *messages,
                          size_t count_max) {
    struct twi_lease *lease;
    size_t count = 0;
    while ((lease = twi_lease_store_next(engine, store)) != NULL) {
        twi_lease_enqueue(engine, store, lease);
        if (count < count_max && look(engine, lease, &messages[count])) count++;
    }
    return count;
}

static size_t walk(tw_engine *engine, struct twi_lease_store *store, struct twi_lease_message *messages,
                   size_t count_max) {
    twi_check((store->head == 0) == (store->active == 0));
    if (engine->turn.mono_ms < store->walk_at_ms) return 0;
    size_t count = 0;
    uint32_t left = store->active;
    bool all = left <= WALK_MAX;
    for (left = all ? left : WALK_MAX; left != 0 && count < count_max; left--) {
        struct twi_lease *lease = twi_lease_dequeue(engine, store);
        count += look(engine, lease, &messages[count]);
        if (!is_quiescent(engine, lease)) twi_lease_enqueue(engine, store, lease);
    }
    if (all && left == 0) store->walk_at_ms = engine->turn.mono_ms + twi_lease_again_ms(engine);
    return count;
}

/* Returns true if every unit of this store was returned and Redis has acknowledged that. */
static bool is_returned(tw_engine *engine, const struct twi_lease_store *store) {
    if (twi_load_relaxed(&engine->leases.requested) != 0 || store->listed != 0) return false;
    for (uint32_t line = store->head; line != 0;) {
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        line = lease->turn.in.next_active;
        if (!is_quiescent(engine, lease)) return false;
    }
    return true;
}

uint32_t twi_port_lease_next_store(tw_engine *engine, uint32_t from) {
    struct twi_leases *leases = &engine->leases;
    if (!twi_load_relaxed(&leases->exist)) return UINT32_MAX;
    twi_lease_stores_sort(engine);
    while (from <= leases->room && twi_lease_store_at(leases, from) == NULL) from++;
    return from <= leases->room ? from : UINT32_MAX;
}

size_t twi_port_leases(tw_engine *engine, uint32_t index, uint64_t serial, struct twi_lease_message *messages,
                       size_t count_max) {
    twi_check(messages != NULL || count_max == 0);
    struct twi_leases *leases = &engine->leases;
    if (!twi_load_relaxed(&leases->exist) || count_max == 0) return 0;
    twi_lease_stores_sort(engine);
    struct twi_lease_store *store = twi_lease_store_at(leases, index);
    if (store == NULL || !twi_lease_epoch_is_joined(engine, store)) return 0;
    bool is_over = twi_port_is_closing(engine) && is_returned(engine, store);
    size_t count = twi_lease_epoch_request(engine, store, serial, is_over, &messages[0]) ? 1 : 0;
    if (!twi_lease_epoch_may_speak(store)) return count;
    count += take_listed(engine, store, messages + count, count_max - count);
    return count + walk(engine, store, messages + count, count_max - count);
}

int64_t twi_port_lease_due(tw_engine *engine, uint32_t index) {
    struct twi_leases *leases = &engine->leases;
    const struct twi_lease_store *store = twi_lease_store_at(leases, index);
    if (!twi_load_relaxed(&leases->exist)) return INT64_MAX;
    bool has_new = twi_load_relaxed(&leases->requested) != 0; /* the listed leases may belong to this store */
    int64_t new_ms = has_new ? engine->turn.mono_ms : INT64_MAX;
    if (store == NULL || !twi_lease_epoch_is_joined(engine, store)) return new_ms;
    if (store->left || (store->awaiting_epoch && !store->known)) return INT64_MAX;
    int64_t due_ms = store->awaiting_epoch ? INT64_MAX : store->request_at_ms;
    if (!twi_lease_epoch_may_speak(store)) return due_ms;
    if (store->head != 0 && store->walk_at_ms < due_ms) due_ms = store->walk_at_ms;
    /* Callers list leases without waking the turn (P9), so the turn examines the list often. */
    int64_t look_ms = engine->turn.mono_ms + (has_new || store->listed != 0 ? 0 : twi_lease_again_ms(engine));
    return look_ms < due_ms ? look_ms : due_ms;
}

/* ---- another epoch, in which every lease of the store states its grants again ---- */

struct restating {
    tw_engine *engine;
    struct twi_lease_store *store;
};

static void restate_window(void *ctx, struct twi_generation *generation) {
    twi_check(generation->family->kind.is_hard && generation->synced);
    const struct restating *restating = ctx;
    tw_engine *engine = restating->engine;
    if (is_over(&engine->turn, generation)) return;
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4, pairs with J3 */
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        line = lease->attached.older;
        if (lease->turn.in.store != restating->store->index) continue; /* 0 also if the lease has no store */
        if (lease->turn.granted == 0 && lease->turn.returned == 0) continue;
        if (!lease->turn.restate) restating->store->restating++;
        lease->turn.restate = true;
        lease->turn.acked_incarnation = 0;
        twi_lease_enqueue(engine, restating->store, lease);
    }
}

static void restate_all(tw_engine *engine, struct twi_lease_store *store) {
    struct restating restating = {engine, store};
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        if (family->kind.is_hard && family->kind.synced) twi_window_visit(family, restate_window, &restating);
}

/* ---- replies ---- */

/* All units that were granted anywhere, including those in this lease, are within this limit. So they may be spent
 * under it. Not so if it has units that an earlier message, whose reply was lost, drew under a greater limit. */
static void lower_drawn(struct twi_lease *lease, const struct twi_lease_message *message,
                        const struct twi_lease_answer *answer) {
    if (message->limit >= twi_load_relaxed(&lease->drawn) || !answer->open) return;
    if (answer->total <= message->limit && answer->spent_all <= message->limit)
        twi_store_relaxed(&lease->drawn, message->limit);
}

static void take_grant(tw_engine *engine, struct twi_lease *lease, const struct twi_lease_message *message,
                       const struct twi_lease_answer *answer) {
    twi_check(answer->granted >= 0);
    int64_t granted = answer->granted, more = granted - lease->turn.granted;
    if (more <= 0) {
        int64_t wait_ms = message->need != 0 ? twi_lease_again_ms(engine) : twi_lease_busy_ms(engine);
        lease->turn.retry_ms = engine->turn.mono_ms + (answer->wait_ms > 0 ? answer->wait_ms + 1 : wait_ms);
        return;
    }
    twi_port_count(engine, lease_draws, 1);
    bool whole = granted >= message->target;
    twi_store_relaxed(&lease->low_water, whole && lease->turn.grant_size > 1 ? lease->turn.grant_size / 2 : 0);
    twi_lease_hold(twi_lease_store_of(engine, lease), lease);
    lease->turn.exhausted_at_ms = engine->turn.mono_ms;
    lease->turn.used_ms = engine->turn.mono_ms; /* otherwise the lease would be idle before it could be used */
    /* If this process ends between the next two, the units count as spent. In the other order they would be granted a
     * second time, and sold twice. */
    twi_fence_compiler();
    lease->turn.granted = granted;
    twi_fence_compiler();
    /* this comes after J11, or after the end of the sections that knew another `drawn` */
    (void)twi_add_relaxed(&lease->left, more);
    if (!whole && message->need == 0) lease->turn.retry_ms = engine->turn.mono_ms + twi_lease_busy_ms(engine);
}

/* Returns true if the limit is exceeded and other engines may not have reported their returned units yet. When the
 * epoch is open, Redis counts by how much the limit is exceeded, and its next reply has that number. */
static bool has_unacknowledged_after(const tw_engine *engine, const struct twi_lease *lease,
                                     const struct twi_lease_message *message, const struct twi_lease_answer *answer) {
    bool is_passed = answer->total > message->limit || answer->spent_all > message->limit;
    return is_passed && !answer->open && !is_leaving(engine, twi_lease_generation(&engine->arena, lease));
}

static void take_numbers(tw_engine *engine, struct twi_lease *lease, const struct twi_lease_message *message,
                         const struct twi_lease_answer *answer) {
    twi_check(answer->kind == TWI_LEASE_NUMBERS);
    twi_check(message->returned <= lease->turn.returned);
    lease->turn.has_unacknowledged = has_unacknowledged_after(engine, lease, message, answer);
    lease->turn.acked_returned = message->returned;
    lease->turn.acked_spent = message->spent;
    lease->turn.acked_ms = engine->turn.mono_ms;
    lease->turn.acked_incarnation = twi_lease_store_of(engine, lease)->incarnation;
    if (message->restate) was_resent(engine, lease);
    twi_port_count(engine, limit_at_risk, answer->risk - lease->turn.risk);
    lease->turn.risk = answer->risk;
    if (answer->stranded >= 0) set_stranded(engine, lease, answer->stranded);
    lower_drawn(lease, message, answer);
    take_grant(engine, lease, message, answer);
    if (!is_awaiting_first_grant(lease)) first_grant_came(&engine->leases, lease);
    if (!answer->open) return; /* some engines have not stated their spent units again, so the sum is unknown */
    twi_store_release(&lease->reported_spent, answer->spent_all); /* J10, pairs with J9: `stranded` is there */
    /* Not the time of the reply, which may be late: units may have been returned since Redis wrote it. */
    twi_store_release(&lease->reported_ms, message->made_ms << 1 | 1); /* J10 */
}

static void take_lease(tw_engine *engine, struct twi_lease_store *store, const struct twi_lease_message *message,
                       const struct twi_lease_answer *answer) {
    twi_check(message->store == store->index);
    struct twi_lease *lease = message->lease;
    struct twi_generation *generation = twi_lease_generation(&engine->arena, lease);
    twi_check(lease->turn.in_flight && generation->turn.outstanding != 0);
    lease->turn.in_flight = false;
    generation->turn.outstanding--;
    bool is_other = message->names != engine->leases.names; /* it was sent under another id (twin.c) */
    if (is_other) {
        lease->turn.retry_ms = INT64_MIN;
    } else if (answer->kind == TWI_LEASE_NUMBERS) {
        take_numbers(engine, lease, message, answer);
    } else if (answer->kind == TWI_LEASE_TOO_LATE) {
        was_resent(engine, lease);
        lease->turn.has_unacknowledged = false;
        lease->turn.acked_returned = lease->turn.returned;
        lease->turn.acked_spent = spent_of(lease);
    } else {
        lease->turn.has_unacknowledged = true;
        lease->turn.retry_ms = engine->turn.mono_ms + (answer->refused ? REFUSED_MS : twi_lease_again_ms(engine));
    }
    if (answer->kind == TWI_LEASE_ENDED) store->request_at_ms = INT64_MIN;
    if (twi_load_relaxed(&lease->requested_units) != 0)
        store->walk_at_ms = INT64_MIN; /* a caller waits for this reply */
    twi_lease_enqueue(engine, store, lease);
    if (answer->kind != TWI_LEASE_TWIN || is_other) return;
    twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_IDENTITY,
                 "another copy of this process uses its leases: this engine continues under a new name");
    twi_port_twin(engine);
}

void twi_port_lease_answered(tw_engine *engine, const struct twi_lease_message *message,
                             const struct twi_lease_answer *answer) {
    twi_check(message->lease == NULL || message->item.generation != NULL);
    struct twi_lease_store *store = twi_lease_store_at(&engine->leases, message->store);
    if (store == NULL) return; /* of an earlier connection; the engine has left the store */
    if (message->lease != NULL)
        take_lease(engine, store, message, answer);
    else if (twi_lease_epoch_answered(engine, store, message, answer))
        restate_all(engine, store);
}

/* ---- beginning and end ---- */

void twi_leases_begin(struct twi_leases *leases) {
    bool exist = twi_load_relaxed(&leases->exist); /* a forked child still has its families */
    twi_lease_stores_free(leases);
    memset((void *)leases, 0, sizeof *leases);
    twi_store_relaxed(&leases->exist, exist);
}

void twi_leases_free(struct twi_leases *leases) {
    twi_lease_stores_free(leases);
}

void twi_leases_forget(tw_engine *engine, struct twi_generation *generation) {
    twi_check(generation->turn.outstanding == 0);
    if (twi_load_acquire(&generation->leases) == 0) return; /* J4 */
    twi_lease_stores_forget(engine, generation);
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4 */
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        line = lease->attached.older;
        was_resent(engine, lease);
        if (lease->turn.in.is_held) twi_lease_store_of(engine, lease)->holding--;
        first_grant_came(&engine->leases, lease);
        set_stranded(engine, lease, 0);
    }
}

/* Returns true if Redis knows that this engine no longer takes part there, or if the engine never took part. */
static bool is_out(const tw_engine *engine, const struct twi_lease_store *store) {
    if (store == NULL || !twi_lease_epoch_is_joined(engine, store)) return true;
    return store->left || store->epoch.id[0] == '\0'; /* without an epoch, no unit was ever granted */
}

bool twi_leases_are_over(tw_engine *engine) {
    struct twi_leases *leases = &engine->leases;
    if (engine->here->remote.sync == NULL) return true;
    for (uint32_t i = 0; i <= leases->room; i++)
        if (!is_out(engine, twi_lease_store_at(leases, i))) return false;
    return true;
}

static bool is_returned_whole(const tw_engine *engine, struct twi_lease *lease) {
    if (lease->turn.in_flight) return false;
    if (is_over(&engine->turn, twi_lease_generation(&engine->arena, lease))) return true;
    return twi_load_relaxed(&lease->left) == 0 && !must_speak(&engine->turn, lease);
}

bool twi_leases_are_returned(tw_engine *engine, struct twi_generation *generation, uint32_t *work) {
    if (generation->turn.outstanding != 0) return false;
    struct twi_family_returned *returned = &generation->family->turn.returned;
    uint32_t own = twi_arena_line(&engine->arena, generation);
    if (returned->generation != 0 && returned->generation != own) return false; /* window after window */
    returned->generation = own;
    uint32_t line = returned->lease != 0 ? twi_lease_at(&engine->arena, returned->lease)->attached.older
                                         : twi_load_acquire(&generation->leases); /* J4, pairs with J3 */
    while (line != 0) {
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        if (*work == 0 || !is_returned_whole(engine, lease)) return false;
        returned->lease = line;
        line = lease->attached.older;
        --*work;
    }
    *returned = (struct twi_family_returned){0};
    return true;
}

void twi_leases_end(tw_engine *engine, struct twi_generation *generation) {
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4 */
        struct twi_lease *lease = twi_lease_at(&engine->arena, line);
        line = lease->attached.older;
        set_stranded(engine, lease, 0);
    }
}
