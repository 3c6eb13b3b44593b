/* turn.c -- one bounded round: connect, receive, collect, send. Never waits.
 *
 * The bounds are one step of each connection, the bytes that transfer.c reads at most for each, and as many batches as
 * may be under way. If a turn was due and did not come (a starved thread, a stopped process), that time is no evidence
 * against Redis. It is added to the deadline of a reply, up to nine times `timeout_ms`.
 * A step that finds a connection broken marks it, and is the last step with that connection. No more is read or sent
 * there. Only twi_sync_turn() ends connections.
 * Always true: at the end of a turn the engine's socket set and wake_ms cover all awaited events. */
#include "sync/turn/turn.h"

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/ask/dispatcher.h"
#include "sync/batch/reply.h"
#include "sync/message/active.h"
#include "sync/message/closing.h"
#include "sync/message/distinct.h"
#include "sync/message/lease.h"
#include "sync/message/message.h"
#include "sync/message/presence.h"
#include "sync/message/state.h"
#include "sync/turn/collect.h"
#include "sync/turn/connect.h"
#include "sync/turn/nodes.h"
#include "sync/turn/split.h"
#include "sync/turn/transfer.h"

#include <string.h>

#define LATE_MS 5 /* a shorter delay does not count; it is the grain of a scheduler or a clock */
#define LATE_TIMES 9
#define QUIET_MS 1000
#define DIAL_LOOK_MS 100 /* is the next address to be tried? And for a look-up that could get no descriptor */

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* Returns how many batches may be in flight on the connection: as many as the distance requires, one without a script
 * or as a probe, and 0 before the back-off is over. */
static uint32_t pipeline_room(const struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    twi_check(sync->store_count != 0);
    if (connection->breaker.state == TWI_BREAKER_CLOSED)
        return sync->stores[0]->merge->has_script ? twi_connection_load(connection).batches : 1;
    return twi_breaker_may_try(&connection->breaker, now_ms) ? 1 : 0;
}

/* How much may be under way when a batch is sent. The replies to other commands are awaited besides those to batches.
 * Of several stores, batches are small. Then their keys count, not their number. */
static void measure_room(const struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    twi_check(twi_connection_is_up(connection));
    uint32_t room = pipeline_room(sync, connection, now_ms);
    connection->room.most_keys = UINT32_MAX;
    connection->room.most_bytes = twi_estimate_bytes(&connection->estimate, connection->timeout_ms);
    if (sync->by_slot && connection->breaker.state == TWI_BREAKER_CLOSED) {
        struct twi_load load = twi_connection_load(connection);
        connection->room.most_keys = load.batches * load.keys + TWI_BATCH_COST;
        room = TWI_PENDING_BATCHES_MAX;
    }
    connection->room.most_pending = room + connection->rewrite.is_under_way + connection->replicas.waits +
                                    connection->messages.count + connection->messages.waits;
}

/* Returns the connection for the store's next batch. While the slot moves, that may be another node's. */
static struct twi_connection *way_of(const struct twi_store *store) {
    return store->route.asking ? store->route.asking : store->connection;
}

/* Sends the batches of one store that are not in flight, while its connection has room. */
static void turn_send_of(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(store->awaited == 0 || store->route.via != NULL || !store->merge->has_script);
    struct twi_connection *connection = way_of(store);
    if (!connection || !twi_connection_is_up(connection) || store->route.is_waiting) return;
    if (store->rewind) {
        if (store->awaited) return; /* these replies belong to the old order */
        store->rewind = false;
        store->sent_number = store->ledger.confirmed;
    }
    if (!store->assumed.is_open) return;
    struct twi_batch *batch = twi_ledger_unconfirmed(&store->ledger);
    while (batch && batch->number <= store->sent_number) batch = batch->next;
    bool is_alone = store->route.asking || store->route.detour.is_held; /* one batch at a time */
    for (; batch && twi_connection_has_room(connection, twi_batch_size(batch)) && !connection->failure.is_there;
         batch = batch->next) {
        if (is_alone && store->awaited != 0) return;
        bool is_new = batch->number > store->ledger.acked; /* otherwise it is sent again to a Redis that went back */
        if (is_new && !twi_inflight_note(twi_estate_places(sync->sharing.estate), batch)) return;
        store->sent_number = batch->number;
        connection->room.has_sent = true;
        store->merge->send(sync, store, batch, now_ms);
    }
}

/* Replicas must have the sent data. */
static void await_replicas(struct twi_connection *connection, int64_t now_ms) {
    twi_check(connection->pipeline.count <= TWI_PENDING_MAX);
    if (!connection->replicas.wanted || !connection->room.has_sent || connection->failure.is_there) return;
    twi_replicas_request(connection, now_ms);
    if (connection->room.was_idle) /* the reply measures the whole round trip, with that of the replicas */
        twi_pipeline_at(&connection->pipeline, connection->pipeline.count - 1)->alone = true;
}

/* Sends batches of all stores that have any, beginning with another one in each turn. */
static void send_batches(struct twi_sync *sync, int64_t now_ms) {
    uint32_t first = sync->send_first++;
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        struct twi_connection *connection = sync->connections[i];
        connection->room.has_sent = false;
        connection->room.was_idle = connection->pipeline.count == 0;
        if (twi_connection_is_up(connection)) measure_room(sync, connection, now_ms);
    }
    twi_stores_open(sync, now_ms);
    for (uint32_t i = 0; i < sync->active.count; i++)
        turn_send_of(sync, sync->active.stores[(first + i) % sync->active.count], now_ms);
    for (uint32_t i = 0; i < sync->connection_count; i++) await_replicas(sync->connections[i], now_ms);
}

/* ---- the round --------------------------------------------------------------------------------------------------- */

/* A new flush cuts a back-off short, once, because its caller may know that Redis is back. */
static void nudge(struct twi_sync *sync, int64_t now_ms) {
    uint64_t taken = twi_load_relaxed(&sync->tickets.taken);
    if (taken == sync->nudged || !twi_ticket_waits(&sync->tickets)) return;
    sync->nudged = taken;
    for (uint32_t i = 0; i < sync->connection_count; i++) twi_breaker_nudge(&sync->connections[i]->breaker, now_ms);
}

static int64_t turn_earlier(int64_t a_ms, int64_t b_ms) {
    return a_ms < b_ms ? a_ms : b_ms;
}

/* No turn has read replies for `late_ms`, and Redis may have been short of time, too. So this time does not count, and
 * once for each reply there is a while to read once more. This happens not for each late turn, because on a busy
 * machine every turn is a bit late, and the deadline would move away faster than time passes. */
static void turn_note_late(struct twi_connection *connection, int64_t late_ms) {
    twi_check(connection->replied.late_ms >= 0);
    int64_t most_ms = LATE_TIMES * (int64_t)connection->timeout_ms;
    if (twi_pipeline_awaited_since_ms(&connection->pipeline) == 0) {
        connection->replied.late_ms = 0;
    } else if (late_ms >= LATE_MS) {
        if (connection->replied.late_ms == 0) connection->replied.late_ms = connection->timeout_ms / 4;
        connection->replied.late_ms += late_ms;
        if (connection->replied.late_ms > most_ms) connection->replied.late_ms = most_ms;
    }
}

/* Notes if this turn comes later than the turn before requested. */
static void turn_note_lateness(struct twi_sync *sync, int64_t now_ms) {
    int64_t due_ms = twi_load_relaxed(&sync->published.wake_ms);
    if (sync->own_thread) due_ms = turn_earlier(due_ms, sync->turned_ms + TWI_TICK_MS);
    if (due_ms < sync->turned_ms) due_ms = sync->turned_ms;
    sync->turned_ms = now_ms;
    for (uint32_t i = 0; i < sync->connection_count; i++) turn_note_late(sync->connections[i], now_ms - due_ms);
}

/* ---- what to wait for -------------------------------------------------------------------------------------------- */

/* When the connection itself needs a turn, if its descriptor is not ready before. */
static int64_t connection_wake_ms(const struct twi_connection *connection, int64_t now_ms) {
    const struct twi_breaker *breaker = &connection->breaker;
    if (connection->phase == TWI_DOWN && !connection->use.is_wanted) return INT64_MAX;
    if (connection->phase == TWI_DOWN) return breaker->state == TWI_BREAKER_OPEN ? breaker->retry_at_ms : now_ms;
    if (connection->phase == TWI_CONNECTING && !connection->is_located) return connection->resolve_again_ms;
    if (connection->phase == TWI_CONNECTING) return turn_earlier(now_ms + DIAL_LOOK_MS, connection->phase_deadline_ms);
    if (connection->has_more) return now_ms;
    int64_t wake_ms = twi_transfer_deadline_ms(connection);
    if (connection->phase == TWI_UP)
        wake_ms = turn_earlier(wake_ms, twi_resolver_look_due_ms(connection->target.resolver, now_ms));
    if (breaker->state == TWI_BREAKER_OPEN) wake_ms = turn_earlier(wake_ms, breaker->retry_at_ms);
    return wake_ms;
}

/* Returns when there is a message to send that goes with the first store. */
static int64_t messages_wake_ms(const struct twi_sync *sync, int64_t now_ms) {
    twi_check(sync->store_count != 0);
    const struct twi_store *first = sync->stores[0];
    const struct twi_connection *connection = first->connection;
    if (!connection || !twi_connection_takes(connection) || first->rewind) return INT64_MAX;
    if (twi_presence_wait(&sync->senders.presence)) return now_ms;
    int64_t due_ms = turn_earlier(twi_registry_due_ms(sync), twi_closing_sender_due_ms(sync));
    return turn_earlier(due_ms, twi_distinct_due_ms(sync, now_ms));
}

/* Returns when a store needs a turn; INT64_MAX if a reply has to come first. */
static int64_t store_wake_ms(const struct twi_store *store, int64_t now_ms) {
    const struct twi_connection *connection = store->assumed.is_open ? way_of(store) : store->connection;
    if (!connection || !twi_connection_takes(connection) || store->route.is_waiting) return INT64_MAX;
    bool replays = twi_ledger_is_replaying(&store->ledger) && store->sent_number < store->ledger.last;
    bool is_behind = !store->assumed.is_open || replays;
    bool has_work = store->rewind || (is_behind && connection->pipeline.count == 0);
    if (has_work && store->awaited == 0) return now_ms;
    return twi_collect_may_unpark(store) ? now_ms : INT64_MAX;
}

/* A collection is due, but no counter is dirty. Marking does not wake the turn (P9), so it looks again soon. An engine
 * that had nothing to send for a while looks once in an interval, so that no count waits longer than that. */
static int64_t look_again_ms(const struct twi_sync *sync, int64_t now_ms) {
    int64_t last_ms = sync->collecting.at_ms;
    if (sync->collecting.near_limit_at_ms > last_ms) last_ms = sync->collecting.near_limit_at_ms;
    return now_ms - last_ms >= QUIET_MS ? sync->interval_ms : sync->interval_ms / 4 + 1;
}

/* Returns when there are batches to make or to send. */
static int64_t batches_wake_ms(const struct twi_sync *sync, int64_t now_ms) {
    bool any_takes = sync->active.idle.count != 0;
    int64_t wake_ms = INT64_MAX;
    if (twi_sync_is_full(sync)) return wake_ms;
    for (uint32_t i = 0; i < sync->active.count; i++) {
        wake_ms = turn_earlier(wake_ms, store_wake_ms(sync->active.stores[i], now_ms));
        any_takes |= twi_stores_may_take(sync->active.stores[i]);
    }
    if (!any_takes || wake_ms <= now_ms) return wake_ms;
    if (now_ms < sync->collecting.hold_ms) return turn_earlier(wake_ms, sync->collecting.hold_ms);
    if (twi_replicas_hold(sync)) {
        int64_t ask_at_ms = sync->connections[0]->replicas.ask_at_ms;
        return turn_earlier(wake_ms, ask_at_ms > now_ms ? ask_at_ms : now_ms + 1);
    }
    if (sync->collecting.is_under_way || sync->collecting.begin_again ||
        (twi_ticket_waits(&sync->tickets) && !sync->tickets.active))
        return now_ms;
    if (sync->tickets.collecting) return now_ms + 1; /* adders that began before still mark their counters dirty */
    return turn_earlier(wake_ms, sync->collecting.at_ms > now_ms ? sync->collecting.at_ms
                                                                 : now_ms + look_again_ms(sync, now_ms));
}

/* Reports nodes and stores to the engine and to tw_stats. */
static void publish_stores(struct twi_sync *sync) {
    uint32_t nodes = 0, away = 0, split = 0;
    for (uint32_t i = 0; i < sync->connection_count; i++)
        nodes += sync->connections[i]->phase == TWI_UP && sync->connections[i]->use.node != 0;
    for (uint32_t i = 0; i < sync->active.count; i++) { /* an idle store does not change */
        const struct twi_store *store = sync->active.stores[i];
        twi_port_outage(sync->engine, store->index, twi_outages_of_store_ms(store));
        away += !store->connection || twi_outages_is_away(store->connection);
        split += store->split.is_found || store->route.detour.is_logged;
    }
    twi_check(away <= sync->active.count && split <= sync->active.count);
    twi_store_relaxed(&sync->published.nodes, nodes);
    twi_store_relaxed(&sync->published.stores, sync->store_count);
    twi_store_relaxed(&sync->published.stores_away, away);
    twi_store_relaxed(&sync->published.stores_split, split);
    twi_store_relaxed(&sync->published.stores_waiting, sync->active.waiting.count);
}

/* The distance of the farthest server that is up. While no server is up, the last measurement stays valid. */
static void publish_way(const struct twi_sync *sync) {
    const struct twi_estimate *farthest = NULL;
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        const struct twi_estimate *estimate = &sync->connections[i]->estimate;
        if (sync->connections[i]->phase != TWI_UP || twi_estimate_way_us(estimate) == 0) continue;
        if (!farthest || twi_estimate_way_us(estimate) > twi_estimate_way_us(farthest)) farthest = estimate;
    }
    if (farthest) twi_port_measured(sync->engine, twi_estimate_way_us(farthest), twi_estimate_timeout_ms(farthest));
}

/* These are hints. A reader of an old value wakes once too often, or at its own tick. */
static void turn_publish(struct twi_sync *sync, int64_t now_ms) {
    uint32_t state = TWI_BREAKER_CLOSED;
    int64_t since_ms = twi_outages_look(sync, now_ms),
            wake_ms = turn_earlier(twi_nodes_wake_ms(sync, now_ms), twi_lease_due_ms(sync));
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        const struct twi_connection *connection = sync->connections[i];
        wake_ms = turn_earlier(wake_ms, connection_wake_ms(connection, now_ms));
        if (!connection->use.is_wanted) continue;
        if (connection->breaker.state != TWI_BREAKER_CLOSED) state = connection->breaker.state;
    }
    twi_store_relaxed(&sync->published.outage_since_ms, since_ms);
    twi_store_relaxed(&sync->published.breaker_state, state);
    publish_stores(sync);
    publish_way(sync);
    twi_nodes_publish(sync);
    wake_ms = turn_earlier(wake_ms, turn_earlier(messages_wake_ms(sync, now_ms), batches_wake_ms(sync, now_ms)));
    twi_store_relaxed(&sync->published.wake_ms, turn_earlier(wake_ms, twi_outages_due_ms(sync)));
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void look_at_deadline(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    (void)sync;
    twi_transfer_expire(connection, now_ms);
}

static void open_again(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    if (connection->phase == TWI_OPENING && connection->pipeline.count == 0 && pipeline_room(sync, connection, now_ms))
        twi_connect_open(sync, sync->stores[0], now_ms);
}

static void turn_watch(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    (void)sync;
    twi_connect_watch(connection, now_ms);
}

static void rewrite(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    (void)sync;
    twi_connect_rewrite(connection, now_ms);
}

static void wait_for_replicas(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    (void)sync;
    twi_message_step(connection, now_ms);
}

static void flush_out(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms) {
    (void)sync;
    twi_transfer_send(connection, now_ms);
}

/* The steps of a turn with one connection, in this order. Each is made in the phases from `from` on. */
struct step {
    void (*make)(struct twi_sync *sync, struct twi_connection *connection, int64_t now_ms);
    enum twi_phase from;
};
/* ... before batches and messages are made ... */
static const struct step first_steps[] = {
    {twi_connect_step, TWI_DOWN},     {twi_transfer_receive, TWI_GREETING},
    {look_at_deadline, TWI_GREETING}, {turn_watch, TWI_UP},
    {open_again, TWI_OPENING},        {rewrite, TWI_UP},
    {twi_replicas_step, TWI_UP},
};
/* ... and after that. */
static const struct step last_steps[] = {{wait_for_replicas, TWI_UP}, {flush_out, TWI_GREETING}};

static void make_steps(struct twi_sync *sync, const struct step *steps, size_t count, int64_t now_ms) {
    twi_check(count != 0);
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        struct twi_connection *connection = sync->connections[i];
        for (size_t k = 0; k < count && !connection->failure.is_there; k++) {
            if (connection->pipeline.out.failed)
                twi_connection_fail(connection, false, "no memory");
            else if (connection->phase >= steps[k].from)
                steps[k].make(sync, connection, now_ms);
        }
        if (connection->pipeline.out.failed) twi_connection_fail(connection, false, "no memory");
    }
}

/* Batches and messages, over whichever connections are up. */
static void turn_send_all(struct twi_sync *sync, int64_t now_ms) {
    static void (*const makers[])(struct twi_sync * sync, int64_t now_ms) = {
        twi_nodes_step,    twi_split_step,    twi_collect,
        send_batches,      twi_lease_step,    twi_presence_step,
        twi_distinct_step, twi_registry_step, twi_closing_sender_step,
    };
    twi_stores_make(sync);
    twi_active_begin(sync, now_ms);
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) makers[i](sync, now_ms);
}

void twi_sync_turn(struct twi_sync *sync) {
    twi_check(sync->store_count != 0 && sync->connection_count != 0);
    int64_t now_ms = twi_port_mono_ms(sync->engine);
    turn_note_lateness(sync, now_ms);
    nudge(sync, now_ms);
    make_steps(sync, first_steps, sizeof first_steps / sizeof *first_steps, now_ms);
    turn_send_all(sync, now_ms);
    make_steps(sync, last_steps, sizeof last_steps / sizeof *last_steps, now_ms);
    for (uint32_t i = 0; i < sync->connection_count; i++) {
        if (!sync->connections[i]->failure.is_there) continue;
        twi_connect_end(sync, sync->connections[i], now_ms);
        twi_nodes_lost(sync, sync->connections[i], now_ms);
    }
    twi_nodes_sweep(sync);
    if (sync->dispatcher) twi_dispatcher_log(sync->dispatcher);
    for (uint32_t i = 0; i < sync->store_count; i++) twi_check_full(twi_ledger_is_valid(&sync->stores[i]->ledger));
    twi_active_look(sync);
    turn_publish(sync, now_ms);
    twi_active_drop_idle(sync, now_ms);
    if (twi_active_has_next(sync)) twi_store_relaxed(&sync->published.wake_ms, now_ms);
    twi_check_full(twi_active_is_sound(sync));
}

/* ---- leave ----
 * Each store gets one more empty batch, and with it a lifetime of TWI_LEDGER_LEFT_MS. */

/* Returns true if the store has a record of this engine and accepts a batch. */
static bool can_be_sent(const struct twi_store *store) {
    const struct twi_connection *connection = store->connection;
    return store->merge->has_script && store->assumed.is_open && store->assumed.unknown_since_ms == 0 && connection &&
           twi_connection_takes(connection) && !store->route.is_waiting && !twi_ledger_is_replaying(&store->ledger);
}

bool twi_leave(struct twi_sync *sync) {
    twi_check(sync->store_count != 0);
    bool is_done = true;
    if (!sync->leaves && sync->by_slot) twi_active_wake_all(sync);
    sync->leaves = true;
    for (uint32_t i = 0; i < sync->store_count; i++) {
        struct twi_store *store = sync->stores[i];
        if (!can_be_sent(store)) continue;
        if (!store->assumed.has_left && twi_ledger_unconfirmed(&store->ledger) == NULL)
            store->assumed.has_left =
                twi_ledger_append_empty(&store->ledger, twi_sync_random(sync->engine), twi_port_mono_ms(sync->engine));
        is_done = is_done && twi_ledger_unconfirmed(&store->ledger) == NULL;
    }
    return is_done;
}
