/* lease_renewal.c -- leases in the turn: what to send about them and how to apply Redis's replies. The turn draws units
 * ahead of need, returns units that are idle or that other engines want, and restates everything to a Redis that may
 * have forgotten.
 *
 *   at rest ─units requested▶ active ─no units in hand, all sent▶ at rest      at most one message in flight per lease
 *   epoch unknown (new connection) ─reply: the same epoch▶ known ─reply: another epoch▶ every lease restates its
 *   numbers ─▶ all sent
 * How much is drawn: the grant size. It is at least what was used in two intervals, and twice as much if the last grant
 * was used up within an interval. Redis cuts a grant to a share of what is left, so grants shrink towards 1 at the end.
 * Always true: only the turn runs this. `granted` rises only by what a reply grants. `returned` rises only by what was
 * taken out of `left` before. Elsewhere: the callers that spend (lease.c), the wire format (sync/message/lease.c), the
 * rules in Redis (sync/script/lease.lua, leases.lua). */
#include "engine/turn/lease_renewal.h"

#include "engine/limit/lease.h"
#include "engine/limit/share.h"
#include "engine/core/window_map.h"

#include <stdio.h>
#include <string.h>

#define GRANT_SIZE_FIRST 64 /* the first grant size of an unused key: this, or a sixteenth of the limit */
#define IDLE_MS 5000        /* a lease that nobody spends from returns its units after this time */
#define RESEND_MS 1000      /* how often spent units are sent while no units are requested */
#define LOOK_MS 1000        /* how often Redis looks for stranded units */
/* how often the epoch is requested, unless Redis asks for longer; leases.lua relies on it */
#define EPOCH_MS 150
#define EPOCH_BUSY_MS 500 /* the longest interval while leases are active and engines are few */
#define REFUSED_MS 250    /* the pause before a message that Redis refused is sent again */
#define WALK_MAX 4096u    /* leases examined in one turn */

static struct twi_lease *lease_at(const tw_engine *engine, uint32_t line) {
    return twi_arena_at(&engine->arena, line);
}
static struct twi_generation *generation_of(const tw_engine *engine, const struct twi_lease *lease) {
    return twi_arena_at(&engine->arena, lease->generation);
}
static int64_t interval_of(const tw_engine *engine) {
    return engine->options.sync_interval_ms;
}
static int64_t busy_ms(const tw_engine *engine) {
    return interval_of(engine) < EPOCH_BUSY_MS ? interval_of(engine) : EPOCH_BUSY_MS;
}
/* How soon a draw that brought too little is tried again. */
static int64_t again_ms(const tw_engine *engine) {
    return busy_ms(engine) / 4 + 1;
}
/* Nothing that is sent about this window matters any more. */
static bool is_over(const tw_engine *engine, const struct twi_generation *generation) {
    return engine->turn.now_ms >= generation->end_ms;
}
static bool is_leaving(const tw_engine *engine, const struct twi_generation *generation) {
    return engine->turn.closing || twi_load_relaxed(&generation->family->requests.close_requested);
}

/* ---- the queue ---- */

static void enqueue(tw_engine *engine, struct twi_lease *lease) {
    struct twi_leases *leases = &engine->leases;
    if (lease->turn.active) return;
    uint32_t line = twi_arena_line(&engine->arena, lease);
    lease->turn.active = true;
    lease->turn.next_active = 0;
    if (leases->head == 0)
        leases->head = line;
    else
        lease_at(engine, leases->tail)->turn.next_active = line;
    leases->tail = line;
    leases->active++;
}

static struct twi_lease *dequeue(tw_engine *engine) {
    struct twi_leases *leases = &engine->leases;
    struct twi_lease *lease = lease_at(engine, leases->head);
    leases->head = lease->turn.next_active;
    if (leases->head == 0) leases->tail = 0;
    lease->turn.active = false;
    leases->active--;
    return lease;
}

static void was_resent(tw_engine *engine, struct twi_lease *lease) {
    if (!lease->turn.restate) return;
    lease->turn.restate = false;
    if (--engine->leases.restating == 0) engine->leases.request_at_ms = INT64_MIN; /* request the epoch at once */
}

static void set_stranded(tw_engine *engine, struct twi_lease *lease, int64_t units) {
    int64_t more = units - twi_load_relaxed(&lease->stranded);
    if (more == 0) return;
    twi_store_relaxed(&lease->stranded, units);
    twi_port_count(engine, lease_stranded, more);
}

/* ---- reckoning ---- */

/* What was spent from the lease. Callers change only `left`; only the turn changes the other two. */
static int64_t spent_of(const struct twi_lease *lease) {
    return lease->turn.granted - lease->turn.returned - twi_load_relaxed(&((struct twi_lease *)lease)->left);
}

/* Takes out what is above `keep`. Only then does it count as returned (trap L6). */
static void take_out(tw_engine *engine, struct twi_lease *lease, int64_t keep) {
    int64_t left = twi_load_relaxed(&lease->left);
    do {
        if (left <= keep) return;
    } while (!twi_cas_weak_acqrel(&lease->left, &left, keep));
    lease->turn.returned += left - keep;
    twi_port_count(engine, lease_returned, left - keep);
}

static void measure(tw_engine *engine, struct twi_lease *lease) {
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

static bool is_idle(const tw_engine *engine, struct twi_lease *lease) {
    return engine->turn.mono_ms - lease->turn.used_ms >= IDLE_MS && twi_load_relaxed(&lease->warm) == 0;
}

/* How many units should be in hand. */
static int64_t grant_size_of(tw_engine *engine, struct twi_lease *lease, int64_t requested, int64_t limit) {
    if (lease->turn.grant_size == 0)
        lease->turn.grant_size = limit / 16 < GRANT_SIZE_FIRST ? limit / 16 : GRANT_SIZE_FIRST;
    if (requested != 0 && lease->turn.exhausted_at_ms != 0 &&
        engine->turn.mono_ms - lease->turn.exhausted_at_ms < 2 * interval_of(engine))
        lease->turn.grant_size *= 2;
    if (lease->turn.grant_size < 1) lease->turn.grant_size = 1;
    if (lease->turn.grant_size > limit) lease->turn.grant_size = limit;
    return lease->turn.grant_size > requested ? lease->turn.grant_size : requested;
}

/* True if the lease was warmed and its first units have not come yet: a caller waits for one. */
static bool is_awaiting_first_grant(struct twi_lease *lease) {
    if (twi_load_relaxed(&lease->warm) == 0 || twi_load_relaxed(&lease->left) != 0) return false;
    return twi_load_relaxed(&lease->reported_ms) == 0 ||
           twi_load_relaxed(&lease->reported_spent) < twi_load_relaxed(&lease->limit);
}

/* The lease has its units, or there are none to be had, or it was spent from, or its window is over. */
static void first_grant_came(tw_engine *engine, struct twi_lease *lease) {
    if (twi_load_relaxed(&lease->awaits_first_grant) == 0) return;
    twi_store_relaxed(&lease->awaits_first_grant, 0); /* only the turn clears it */
    (void)twi_add_relaxed(&engine->leases.awaiting_first_grant, -1);
}

/* Returns units to Redis, if any are to be returned. */
static void give_back(tw_engine *engine, struct twi_lease *lease, int64_t requested, int64_t limit) {
    struct twi_generation *generation = generation_of(engine, lease);
    int64_t left = twi_load_relaxed(&lease->left);
    if (left == 0) return;
    int64_t keep = left;
    if (lease
            /* units that are too few for a waiting caller may serve another engine; else what one interval uses
             * stays */
            ->turn.wanted_by_others) {
        keep = requested > left ? 0 : lease->turn.lately;
        twi_store_relaxed(&lease->low_water, 0); /* and for a while nothing is drawn ahead of need */
    }
    if (is_leaving(engine, generation) || (requested != 0 && limit < twi_load_relaxed(&lease->drawn)) ||
        is_idle(engine, lease))
        keep = 0;
    take_out(engine, lease, keep);
}

/* ---- saying ---- */

static void name_of(tw_engine *engine, const struct twi_lease_message *message, struct twi_lease *lease);

/* If Redis knew this lease in an earlier incarnation and in this epoch, but no longer knows it, Redis has folded it
 * into its totals (lease.lua). */
static int64_t base_of(const tw_engine *engine, const struct twi_lease *lease) {
    bool was_known = lease->turn.acked_incarnation != 0 && lease->turn.acked_incarnation != engine->leases.incarnation;
    return was_known && !lease->turn.restate ? lease->turn.sent_returned : -1;
}

static void fill(tw_engine *engine, struct twi_lease *lease, int64_t limit, int64_t want, int64_t need,
                 struct twi_lease_message *message) {
    struct twi_generation *generation = generation_of(engine, lease);
    *message = (struct twi_lease_message){.lease = lease};
    message->item = (struct twi_item){.family = generation->family,
                                      .generation = generation,
                                      .cell = twi_arena_at(&engine->arena, lease->cell),
                                      .expiry_ms = generation->expiry_ms};
    message->limit = limit; /* the limit that `drawn` knows: callers may set another one meanwhile */
    if (lease->turn.restate && message->limit < twi_load_relaxed(&lease->drawn))
        message->limit = twi_load_relaxed(&lease->drawn);
    message->granted = lease->turn.granted;
    message->target = lease->turn.granted + want;
    message->need = need;
    message->base = base_of(engine, lease);
    message->returned = lease->turn.returned;
    lease->turn.sent_returned = lease->turn.returned;
    message->spent = spent_of(lease);
    message->risk = lease->turn.risk;
    message->restate = lease->turn.restate;
    message->spent_all = lease->turn.restate ? twi_load_relaxed(&lease->reported_spent) : 0;
    message->look = engine->turn.mono_ms - lease->turn.looked_ms >= LOOK_MS;
    if (message->look) lease->turn.looked_ms = engine->turn.mono_ms;
    if (lease->turn.name_hash == 0) name_of(engine, message, lease);
    lease->turn.in_flight = true;
    lease->turn.wanted_by_others = false;
    generation->turn.outstanding++; /* the window stays until the reply */
}

/* A caller may see units in hand and the limit that they were drawn under, and stall before it takes one. The units
 * that it finds then must not have been drawn under a greater limit (trap L9). So `drawn` rises first, then the
 * sections that began earlier have to end, and only then are units drawn. If nothing was in hand yet, no caller has
 * seen any units. */
static bool may_draw(const tw_engine *engine, struct twi_lease *lease, int64_t limit) {
    if (engine->turn.mono_ms < lease->turn.retry_ms) return false;
    if (limit > twi_load_relaxed(&lease->drawn)) {
        twi_store_relaxed(&lease->drawn, limit);
        /* J11, pairs with J12: a caller that sees units that come after this sees `drawn`; a refund made before is seen
         * here */
        bool is_first =
            lease->turn.granted == 0 && twi_add_acqrel(&lease->left, 0) == 0 && twi_load_relaxed(&lease->refunded) == 0;
        lease->turn.raised = is_first ? 0 : twi_epoch_stamp();
    }
    if (lease->turn.raised != 0 && lease->turn.raised >= twi_epoch_reached()) return false;
    lease->turn.raised = 0;
    return true;
}

/* Returns how much to draw; *need is the part that a caller waits for. */
static int64_t draw_of(tw_engine *engine, struct twi_lease *lease, int64_t requested, int64_t limit, int64_t *need) {
    int64_t left = twi_load_relaxed(&lease->left);
    *need = 0;
    if (is_leaving(engine, generation_of(engine, lease)) || lease->turn.restate) return 0;
    bool is_below_low_water = left < twi_load_relaxed(&lease->low_water);
    if (requested <= left && !is_below_low_water) return 0;
    if (requested > left) *need = requested - left;
    int64_t want = grant_size_of(engine, lease, requested > left ? requested : 0, limit) - left;
    if (want < *need) want = *need;
    return want > 0 ? want : 0;
}

static bool must_speak(const tw_engine *engine, struct twi_lease *lease) {
    if (lease->turn.restate || lease->turn.has_unacknowledged || lease->turn.returned != lease->turn.acked_returned)
        return true;
    if (spent_of(lease) == lease->turn.acked_spent) return false;
    return twi_load_relaxed(&lease->left) == 0 || lease->turn.wanted_by_others ||
           engine->turn.mono_ms - lease->turn.acked_ms >= RESEND_MS;
}

/* Examines one lease. Returns true if *message is to be sent. */
static bool look(tw_engine *engine, struct twi_lease *lease, struct twi_lease_message *message) {
    if (lease->turn.in_flight || (lease->turn.has_unacknowledged && engine->turn.mono_ms < lease->turn.retry_ms))
        return false;
    if (is_over(engine, generation_of(engine, lease))) {
        was_resent(engine, lease);
        first_grant_came(engine, lease);
        return false;
    }
    measure(engine, lease);
    if (!is_awaiting_first_grant(lease)) first_grant_came(engine, lease);
    int64_t limit = twi_load_relaxed(&lease->limit), need = 0;
    bool may = may_draw(engine, lease, limit);
    int64_t requested = may ? twi_swap_acqrel(&lease->requested_units, 0) : 0;
    if (requested == 0 && is_awaiting_first_grant(lease)) requested = 1;
    give_back(engine, lease, requested, limit);
    int64_t want = may ? draw_of(engine, lease, requested, limit, &need) : 0;
    if (want == 0 && !must_speak(engine, lease)) return false;
    if (want != 0) twi_port_count(engine, lease_draws, 1);
    fill(engine, lease, limit, want, need, message);
    return true;
}

/* True if there is nothing more to do for this lease until a caller requests units. */
static bool is_quiescent(const tw_engine *engine, struct twi_lease *lease) {
    if (lease->turn.in_flight) return false;
    if (is_over(engine, generation_of(engine, lease))) return true;
    if (twi_load_relaxed(&lease->left) != 0 || twi_load_relaxed(&lease->requested_units) != 0) return false;
    return !must_speak(engine, lease) &&
           (!is_awaiting_first_grant(lease) || is_leaving(engine, generation_of(engine, lease)));
}

/* ---- the round ---- */

static bool may_speak(const tw_engine *engine) {
    return engine->leases.known;
}

/* Leases that callers have listed come first, wherever they are in the queue. */
static size_t take_listed(tw_engine *engine, struct twi_lease_message *messages, size_t count_max) {
    if (twi_load_relaxed(&engine->leases.requested) == 0) return 0;
    uint32_t line = twi_swap_acqrel(&engine->leases.requested, 0); /* J8, pairs with J7 */
    size_t count = 0;
    while (line != 0) {
        struct twi_lease *lease = lease_at(engine, line);
        line = twi_load_relaxed(&lease->next_requested);
        /* J6, pairs with J5: a caller that requests units from here on lists the lease again */
        (void)twi_swap_acqrel(&lease->listed, 0);
        enqueue(engine, lease);
        if (count < count_max && look(engine, lease, &messages[count])) count++;
    }
    return count;
}

static size_t walk(tw_engine *engine, struct twi_lease_message *messages, size_t count_max) {
    struct twi_leases *leases = &engine->leases;
    if (engine->turn.mono_ms < leases->walk_at_ms) return 0;
    size_t count = 0;
    uint32_t left = leases->active;
    bool all = left <= WALK_MAX;
    for (left = all ? left : WALK_MAX; left != 0 && count < count_max; left--) {
        struct twi_lease *lease = dequeue(engine);
        count += look(engine, lease, &messages[count]);
        if (!is_quiescent(engine, lease)) enqueue(engine, lease);
    }
    if (all && left == 0) leases->walk_at_ms = engine->turn.mono_ms + again_ms(engine);
    return count;
}

static bool request_epoch(tw_engine *engine, uint64_t serial, struct twi_lease_message *message) {
    struct twi_leases *leases = &engine->leases;
    if (leases->serial != serial) {
        leases->serial = serial;
        leases->known = leases->awaiting_epoch = false;
        leases->request_at_ms = INT64_MIN;
    }
    bool leaves = engine->turn.closing && twi_leases_are_returned(engine);
    if (leases->awaiting_epoch || leases->left || (engine->turn.mono_ms < leases->request_at_ms && !leaves))
        return false;
    memcpy(leases->epoch.instance, engine->remote.id, sizeof engine->remote.id);
    *message = (struct twi_lease_message){.requested_since_ms = leases->requested_since_ms, .leaves = leaves};
    memcpy(message->epoch, leases->epoch.id, sizeof message->epoch);
    if (leases->restating == 0) memcpy(leases->epoch.resent_in, leases->epoch.id, sizeof leases->epoch.resent_in);
    memcpy(message->resent_in, leases->epoch.resent_in, sizeof message->resent_in);
    if (leases->epoch.incarnation[0] == '\0') leases->epoch.changes = -1;
    message->wants_members = !leases->known || strcmp(leases->epoch.resent_in, leases->epoch.id) != 0;
    leases->awaiting_epoch = true;
    return true;
}

size_t twi_port_leases(tw_engine *engine, uint64_t serial, struct twi_lease_message *messages, size_t count_max) {
    struct twi_leases *leases = &engine->leases;
    if (!twi_load_relaxed(&leases->exist) || count_max == 0) return 0;
    size_t count = request_epoch(engine, serial, &messages[0]) ? 1 : 0;
    if (!may_speak(engine) || leases->left) return count;
    count += take_listed(engine, messages + count, count_max - count);
    return count + walk(engine, messages + count, count_max - count);
}

int64_t twi_port_lease_due(tw_engine *engine) {
    struct twi_leases *leases = &engine->leases;
    if (!twi_load_relaxed(&leases->exist) || leases->left) return INT64_MAX;
    if (leases->awaiting_epoch && !leases->known) return INT64_MAX;
    int64_t due_ms = leases->awaiting_epoch ? INT64_MAX : leases->request_at_ms;
    if (!leases->known) return due_ms;
    if (leases->head != 0 && leases->walk_at_ms < due_ms) due_ms = leases->walk_at_ms;
    /* Callers list leases without waking the turn (P9), so the turn checks the list often. */
    int64_t look_ms = engine->turn.mono_ms + again_ms(engine);
    if (twi_load_relaxed(&leases->requested) != 0) look_ms = engine->turn.mono_ms;
    return look_ms < due_ms ? look_ms : due_ms;
}

const struct twi_lease_epoch *twi_port_lease_epoch(tw_engine *engine) {
    return &engine->leases.epoch;
}

/* ---- who is wanted ---- */

static uint64_t hash_of(const char *name, size_t size) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    return hash | 1;
}

static void name_of(tw_engine *engine, const struct twi_lease_message *message, struct twi_lease *lease) {
    char name[TWI_REDIS_KEY_MAX];
    size_t size = twi_port_render(&message->item, name), prefix = strlen(twi_port_prefix(engine));
    lease->turn.name_hash = hash_of(name + prefix, size - prefix);
}

void twi_port_lease_requested(tw_engine *engine, const char *name, size_t size) {
    struct twi_leases *leases = &engine->leases;
    if (leases->requested_count < TWI_LEASE_REQUESTED_MAX)
        leases->requested_names[leases->requested_count++] = hash_of(name, size);
}

void twi_port_lease_other(tw_engine *engine, const char *instance, bool takes_part) {
    struct twi_leases *leases = &engine->leases;
    if (leases->other_count < TWI_LEASE_OTHERS_MAX)
        (void)snprintf(leases->others[leases->other_count++], sizeof leases->others[0], "%c%s", takes_part ? '+' : '-',
                       instance);
}

/* If there is no room, the newest ones are kept: Redis may forget those. */
static void take_other(struct twi_lease_epoch *epoch, const char *change) {
    uint32_t at = 0;
    while (at < epoch->other_count && strcmp(epoch->others[at], change + 1) != 0) at++;
    bool is_there = at < epoch->other_count;
    if (!is_there && (change[0] == '-' || strcmp(change + 1, epoch->instance) == 0)) return;
    if (!is_there && at == TWI_LEASE_OTHERS_MAX) at = 0;
    if (at < epoch->other_count) {
        epoch->other_count--;
        memmove(epoch->others[at], epoch->others[at + 1], (epoch->other_count - at) * sizeof epoch->others[0]);
    }
    if (change[0] == '+') memcpy(epoch->others[epoch->other_count++], change + 1, sizeof epoch->others[0]);
}

/* Until everything is restated, keeps what was known of other engines: Redis may have forgotten some of them. */
static void take_others(struct twi_leases *leases, const struct twi_lease_answer *answer, bool is_new) {
    struct twi_lease_epoch *epoch = &leases->epoch;
    bool may = !is_new && strcmp(epoch->resent_in, epoch->id) == 0;
    if (may && answer->whole) epoch->other_count = 0;
    for (uint32_t i = 0; i < leases->other_count && may; i++) take_other(epoch, leases->others[i]);
    bool is_known = may && (answer->whole || epoch->changes >= 0);
    epoch->changes = is_known ? answer->changes : -1;
    leases->other_count = 0;
}

/* If two names have the same hash, a lease that nobody wants returns its units. This does no harm. */
static void mark_requested(tw_engine *engine) {
    struct twi_leases *leases = &engine->leases;
    for (uint32_t line = leases->requested_count != 0 ? leases->head : 0; line != 0;) {
        struct twi_lease *lease = lease_at(engine, line);
        line = lease->turn.next_active;
        for (uint32_t i = 0; i < leases->requested_count && !lease->turn.wanted_by_others; i++)
            lease->turn.wanted_by_others = lease->turn.name_hash == leases->requested_names[i];
        if (lease->turn.wanted_by_others) leases->walk_at_ms = INT64_MIN;
    }
    leases->requested_count = 0;
}

/* ---- another epoch: every lease restates what was granted ---- */

static void restate_window(void *ctx, struct twi_generation *generation) {
    tw_engine *engine = ctx;
    if (is_over(engine, generation)) return;
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4, pairs with J3 */
        struct twi_lease *lease = lease_at(engine, line);
        line = lease->attached.older;
        if (lease->turn.granted == 0 && lease->turn.returned == 0) continue;
        if (!lease->turn.restate) engine->leases.restating++;
        lease->turn.restate = true;
        lease->turn.acked_incarnation = 0;
        enqueue(engine, lease);
    }
}

static void begin_epoch(tw_engine *engine, const struct twi_lease_answer *answer) {
    struct twi_leases *leases = &engine->leases;
    (void)snprintf(leases->epoch.id, sizeof leases->epoch.id, "%s", answer->id);
    (void)snprintf(leases->epoch.run, sizeof leases->epoch.run, "%s", answer->run);
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        if (family->kind.is_hard && family->kind.synced) twi_window_visit(family, restate_window, engine);
    leases->walk_at_ms = INT64_MIN;
}

static void take_epoch(tw_engine *engine, const struct twi_lease_message *message,
                       const struct twi_lease_answer *answer) {
    struct twi_leases *leases = &engine->leases;
    leases->awaiting_epoch = false;
    bool busy = leases->head != 0;
    int64_t every_ms = answer->every_ms > EPOCH_MS ? answer->every_ms : EPOCH_MS;
    if (busy && every_ms <= EPOCH_BUSY_MS && busy_ms(engine) < every_ms) every_ms = busy_ms(engine);
    leases->request_at_ms = engine->turn.mono_ms + every_ms;
    if (answer->kind != TWI_LEASE_NUMBERS) {
        leases->requested_count = leases->other_count = 0;
        leases->request_at_ms =
            engine->turn.mono_ms + (answer->refused ? REFUSED_MS : 0); /* not refused: Redis did not know the script */
        return;
    }
    leases->left = message->leaves;
    leases->requested_since_ms = answer->redis_ms;
    leases->known = !message->leaves;
    bool is_new = strcmp(leases->epoch.id, answer->id) != 0;
    leases->epoch.every_ms = answer->every_ms;
    if (!message->leaves && strcmp(leases->epoch.incarnation, answer->incarnation) != 0) {
        (void)snprintf(leases->epoch.incarnation, sizeof leases->epoch.incarnation, "%s", answer->incarnation);
        leases->incarnation++;
    }
    take_others(leases, answer, is_new);
    if (is_new && !message->leaves) begin_epoch(engine, answer);
    mark_requested(engine);
    /* Waits for the end of the epoch's beginning, or has to report that everything is restated. */
    if (is_new || !answer->open) leases->request_at_ms = engine->turn.mono_ms + (is_new ? 0 : again_ms(engine));
}

/* ---- answers ---- */

/* All units that are out anywhere, also those in hand here, are within this limit, so they may be spent under it. Not
 * so if this reply contains units that an earlier message drew under a greater limit, and whose own reply was lost. */
static void lower_drawn(struct twi_lease *lease, const struct twi_lease_message *message,
                        const struct twi_lease_answer *answer) {
    if (message->limit >= twi_load_relaxed(&lease->drawn) || !answer->open) return;
    if (answer->total <= message->limit && answer->spent_all <= message->limit)
        twi_store_relaxed(&lease->drawn, message->limit);
}

static void take_grant(tw_engine *engine, struct twi_lease *lease, const struct twi_lease_message *message,
                       const struct twi_lease_answer *answer) {
    int64_t granted = answer->granted, more = granted - lease->turn.granted;
    if (more <= 0) {
        int64_t wait_ms = message->need != 0 ? again_ms(engine) : busy_ms(engine);
        lease->turn.retry_ms = engine->turn.mono_ms + (answer->wait_ms > 0 ? answer->wait_ms + 1 : wait_ms);
        return;
    }
    bool whole = granted >= message->target;
    twi_store_relaxed(&lease->low_water, whole && lease->turn.grant_size > 1 ? lease->turn.grant_size / 2 : 0);
    lease->turn.granted = granted;
    lease->turn.exhausted_at_ms = engine->turn.mono_ms;
    lease->turn.used_ms = engine->turn.mono_ms; /* it is not idle before it could be used */
    /* after J11, or after the sections that knew another `drawn` have ended */
    (void)twi_add_relaxed(&lease->left, more);
    if (!whole && message->need == 0) lease->turn.retry_ms = engine->turn.mono_ms + busy_ms(engine);
}

/* The limit is passed, and other engines may not have reported yet what they returned. Redis counts by how much the
 * limit is passed once the epoch is open, and replies it to the next message. */
static bool has_unacknowledged_after(const tw_engine *engine, const struct twi_lease *lease,
                                     const struct twi_lease_message *message, const struct twi_lease_answer *answer) {
    bool is_passed = answer->total > message->limit || answer->spent_all > message->limit;
    return is_passed && !answer->open && !is_leaving(engine, generation_of(engine, lease));
}

static void take_numbers(tw_engine *engine, struct twi_lease *lease, const struct twi_lease_message *message,
                         const struct twi_lease_answer *answer) {
    lease->turn.has_unacknowledged = has_unacknowledged_after(engine, lease, message, answer);
    lease->turn.acked_returned = message->returned;
    lease->turn.acked_spent = message->spent;
    lease->turn.acked_ms = engine->turn.mono_ms;
    lease->turn.acked_incarnation = engine->leases.incarnation;
    if (message->restate) was_resent(engine, lease);
    twi_port_count(engine, limit_at_risk, answer->risk - lease->turn.risk);
    lease->turn.risk = answer->risk;
    if (answer->stranded >= 0) set_stranded(engine, lease, answer->stranded);
    lower_drawn(lease, message, answer);
    take_grant(engine, lease, message, answer);
    if (!is_awaiting_first_grant(lease)) first_grant_came(engine, lease);
    if (!answer->open) return; /* the other engines have not all restated what they spent: the sum is not known */
    twi_store_release(&lease->reported_spent, answer->spent_all); /* J10, pairs with J9: after the stranded units */
    twi_store_relaxed(&lease->reported_ms, engine->turn.mono_ms << 1 | 1);
}

void twi_port_lease_answered(tw_engine *engine, const struct twi_lease_message *message,
                             const struct twi_lease_answer *answer) {
    if (message->lease == NULL) {
        take_epoch(engine, message, answer);
        return;
    }
    struct twi_lease *lease = message->lease;
    struct twi_generation *generation = generation_of(engine, lease);
    twi_check(lease->turn.in_flight && generation->turn.outstanding != 0);
    lease->turn.in_flight = false;
    generation->turn.outstanding--;
    if (answer->kind == TWI_LEASE_NUMBERS) {
        take_numbers(engine, lease, message, answer);
    } else if (answer->kind == TWI_LEASE_TOO_LATE) {
        was_resent(engine, lease);
        lease->turn.has_unacknowledged = false;
        lease->turn.acked_returned = lease->turn.returned;
        lease->turn.acked_spent = spent_of(lease);
    } else {
        lease->turn.has_unacknowledged = true;
        lease->turn.retry_ms = engine->turn.mono_ms + (answer->refused ? REFUSED_MS : again_ms(engine));
    }
    if (answer->kind == TWI_LEASE_ENDED) engine->leases.request_at_ms = INT64_MIN;
    if (twi_load_relaxed(&lease->requested_units) != 0)
        engine->leases.walk_at_ms = INT64_MIN; /* a caller waits for this reply */
    enqueue(engine, lease);
}

/* ---- beginning and end ---- */

void twi_leases_begin(tw_engine *engine) {
    bool exist = twi_load_relaxed(&engine->leases.exist); /* a forked child still has its families */
    memset((void *)&engine->leases, 0, sizeof engine->leases);
    twi_store_relaxed(&engine->leases.exist, exist);
}

void twi_leases_forget(tw_engine *engine, struct twi_generation *generation) {
    struct twi_leases *leases = &engine->leases;
    if (twi_load_acquire(&generation->leases) == 0) return; /* J4 */
    (void)take_listed(engine, NULL, 0);
    for (uint32_t left = leases->active; left != 0; left--) {
        struct twi_lease *lease = dequeue(engine);
        if (generation_of(engine, lease) != generation) enqueue(engine, lease);
    }
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4 */
        struct twi_lease *lease = lease_at(engine, line);
        line = lease->attached.older;
        was_resent(engine, lease);
        first_grant_came(engine, lease);
        set_stranded(engine, lease, 0);
    }
}

bool twi_leases_are_returned(tw_engine *engine) {
    const struct twi_leases *leases = &engine->leases;
    if (twi_load_relaxed(&engine->leases.requested) != 0) return false;
    for (uint32_t line = leases->head; line != 0;) {
        struct twi_lease *lease = lease_at(engine, line);
        line = lease->turn.next_active;
        if (!is_quiescent(engine, lease)) return false;
    }
    return true;
}

bool twi_leases_are_over(tw_engine *engine) {
    const struct twi_leases *leases = &engine->leases;
    return engine->remote.sync == NULL || leases->left ||
           leases->epoch.id[0] == '\0'; /* no epoch: nothing was ever granted */
}

void twi_leases_end(tw_engine *engine, struct twi_generation *generation) {
    for (uint32_t line = twi_load_acquire(&generation->leases); line != 0;) { /* J4 */
        struct twi_lease *lease = lease_at(engine, line);
        line = lease->attached.older;
        set_stranded(engine, lease, 0);
    }
}
