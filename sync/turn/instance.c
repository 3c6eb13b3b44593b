/* instance.c -- which store is this, and do we go on in it under our name? What GONE and the answer to an opening lead
 * to.
 *
 *   GONE ──▶ in doubt: look again, for twi_doubt_ms ──still there──▶ an opening of another instance
 *
 *   the opening is answered   the instance of before
 *   KEPT                      goes on: its ledger is there; another store was seen for a while
 *   OK; the marker is
 *     the one of before, and knows the instance           evicted: what was surely not applied goes on, the rest is
 * uncertain
 *     the one of before, and does not know the instance   gone back to before our ledger: everything is told again
 *     another that we know, or an older ledger is there   gone back to before a wipe: uncertain
 *     another, or made just now                           wiped: everything is told again, out of the counters
 * Always true: ledger name, numbers and replay window stay what they are until a store has taken number 0 of another
 * instance and told, in the same answer, that the ledger of this one is not there. */
#include "sync/turn/instance.h"

#include <inttypes.h>
#include <string.h>

#include "engine/base/atomic.h"
#include "engine/port/items.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/turn/settle.h"
#include "sync/message/state.h"

#define DOUBT_LOOK_MS 50 /* between two looks at a store that is in doubt: 50 to 100 ms */
#define REWRITE_TRIES 3u /* of BGREWRITEAOF; each is perhaps done: one more does no harm, one for ever would */
_Atomic int64_t twi_doubt_ms = 6000; /* a failover that is taken back is over by then, as a rule */

/* Stores that we have counted in, by their markers. */
static bool is_known_store(const struct twi_store *store, const struct twi_reply_head *head) {
    for (uint32_t i = 0; i < TWI_STORES_KNOWN; i++)
        if (strlen(store->known.markers[i]) == head->marker_size &&
            memcmp(store->known.markers[i], head->marker, head->marker_size) == 0)
            return head->marker_size != 0;
    return false;
}

void twi_instance_note(struct twi_store *store, const struct twi_reply_head *head) {
    if (!head->marker || head->marker_size >= sizeof store->ledger.marker) return;
    memcpy(store->ledger.marker, head->marker, head->marker_size + 1);
    store->ledger.marker_known = true;
    if (!is_known_store(store, head))
        memcpy(store->known.markers[store->known.next++ % TWI_STORES_KNOWN], head->marker, head->marker_size + 1);
}

void twi_instance_entered(struct twi_store *store, const struct twi_reply_head *head, int64_t now_ms) {
    store->belief.entered_ms = now_ms;
    store->belief.entered_redis_ms = head->redis_ms;
}

/* A store answered that has our ledger. */
void twi_instance_at_own_store(struct twi_sync *sync) {
    struct twi_store *store = &sync->store;
    memcpy(store->belief.run, sync->connection.server.run, sizeof store->belief.run);
    store->belief.doubt_since_ms = 0;
}

/* Copies on this connection are answered, or will be, by "no ledger": none of them was or can be applied. */
static void close_copies_in_flight(struct twi_connection *connection) {
    for (uint32_t i = 0; i < connection->pipeline.count; i++) {
        struct twi_pending *pending = twi_pipeline_at(&connection->pipeline, i);
        if (pending->command == TWI_BATCH && pending->batch->copies_open) pending->batch->copies_open--;
    }
}

/* Unsettled batches with a copy of unknown outcome: the ledger that could have told is gone. They need not be the first
 * ones: one may have been refused and the answer to the next be lost. (That one was not applied either, if the ledger
 * was ours alone. Where two engines wrote it, the other one's batch may have stood before ours: so it is given up.) */
static void give_up_uncertain(struct twi_sync *sync) {
    struct twi_store *store = &sync->store;
    for (struct twi_batch *batch = store->ledger.head, *next; batch; batch = next) {
        next = batch->next;
        if (batch->number <= store->ledger.acked || batch->copies_open == 0) continue;
        twi_settle_give_up(sync, batch, TW_LOST_UNCERTAIN);
        twi_ledger_remove(&store->ledger, batch);
        twi_batch_free(batch);
    }
}

/* What stood in the window is in Redis, but for the part that was still to be replayed. */
static void leave_instance(struct twi_sync *sync, const char *why) {
    struct twi_store *store = &sync->store;
    uint64_t open = twi_ledger_window_drop(&store->ledger, twi_ledger_known(&store->ledger));
    twi_port_count(sync->engine, uncertain, (int64_t)open);
    give_up_uncertain(sync);
    store->formers.has_any = true;
    twi_port_forgotten(sync->engine);
    twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_IDENTITY, "a new instance begins: %s", why);
    twi_port_last_error(sync->engine, why);
}

/* The ledger is there, and not ours any more: nobody is to go back to it. */
void twi_instance_lose(struct twi_sync *sync, const char *why) {
    struct twi_store *store = &sync->store;
    leave_instance(sync, why);
    twi_ledger_close_ranks(&store->ledger);
    store->ledger.name_size = 0;
    store->belief.is_open = false;
    twi_connection_fail(&sync->connection, false, NULL);
}

bool twi_instance_is_ours(struct twi_sync *sync, const struct twi_reply_head *head) {
    if (head->last <= sync->store.ledger.last) return true;
    twi_instance_lose(sync, "the ledger has numbers that were never sent from here");
    return false;
}

static void note_forgotten(struct twi_connection *connection, uint64_t lost, const char *what, const char *remedy) {
    twi_port_count(connection->engine, rollbacks, 1);
    twi_port_count(connection->engine, lost, (int64_t)lost);
    connection->rewrite.tries_left = REWRITE_TRIES;
    twi_port_log(connection->engine, TW_LOG_ERROR, TW_EVENT_ROLLBACK,
                 "%s; %s, %" PRIu64 " units of earlier ones are lost", what, remedy, lost);
    twi_port_last_error(connection->engine, what);
}

/* Nothing of this instance is in Redis any more, perhaps something of an instance before it: what is held is sent under
 * another. */
static void send_all_again(struct twi_sync *sync, const char *what) {
    twi_port_forgotten(sync->engine);
    note_forgotten(&sync->connection, twi_ledger_beyond_window(&sync->store.ledger), what,
                   "the latest batches are sent again");
}

/* What the store that is left may have all the same, should it come back. */
static void note_adrift(struct twi_store *store) {
    for (struct twi_batch *batch = store->ledger.head; batch; batch = batch->next)
        for (uint32_t i = 0; batch->items && batch->copies_open && i < batch->item_count; i++)
            twi_port_adrift(&batch->items[i]);
}

/* Nothing of this engine is in this store, and no copy that is under way can be applied there, for want of its
 * ledger. The counters know what they contributed; the window's batches are a part of that. */
static void restore_all(struct twi_sync *sync, const char *what) {
    struct twi_store *store = &sync->store;
    note_adrift(store);
    while (store->ledger.head) {
        struct twi_batch *batch = store->ledger.head;
        twi_settle_give_back(batch);
        twi_ledger_remove(&store->ledger, batch);
        twi_batch_free(batch);
    }
    store->formers.has_any = false;
    note_forgotten(&sync->connection, twi_port_restore(sync->engine), what, "what the counters hold is sent again");
}

/* What is unsettled: surely not applied, it goes back to its counters; else it is given up, but for what this store
 * has. */
static void keep_unsettled(struct twi_sync *sync) {
    struct twi_store *store = &sync->store;
    for (struct twi_batch *batch = store->ledger.head, *next; batch; batch = next) {
        next = batch->next;
        if (batch->number <= store->ledger.acked) continue;
        for (uint32_t i = 0; batch->items && batch->copies_open && i < batch->item_count; i++)
            twi_port_keep_item(&batch->items[i]);
        if (batch->copies_open)
            twi_settle_give_up(sync, batch, TW_LOST_UNCERTAIN);
        else
            twi_settle_give_back(batch);
        twi_ledger_remove(&store->ledger, batch);
        twi_batch_free(batch);
    }
}

/* A store that we knew, or may have known: what it has of ours is not told again, and what was acknowledged elsewhere
 * since is not there. Where it is the one that was left for another, only what is new since then is missing. */
static void leave_uncertain(struct twi_sync *sync, const char *why) {
    struct twi_store *store = &sync->store;
    uint64_t uncertain, since = twi_ledger_beyond_window(&store->ledger);
    since += twi_ledger_window_drop(&store->ledger, 0);
    keep_unsettled(sync);
    bool was_left = twi_port_keep(sync->engine, &uncertain);
    if (!was_left) uncertain += since;
    twi_port_count(sync->engine, rollbacks, 1);
    twi_port_count(sync->engine, uncertain, (int64_t)uncertain);
    twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_ROLLBACK,
                 "%s; what it has is not sent again, %" PRIu64 " units are uncertain", why, uncertain);
    leave_instance(sync, why);
}

static bool is_same_store(struct twi_sync *sync, const struct twi_reply_head *head) {
    const struct twi_ledger *ledger = &sync->store.ledger;
    return head->marker && ledger->marker_known && head->marker_size == strlen(ledger->marker) &&
           memcmp(head->marker, ledger->marker, head->marker_size) == 0;
}

/* The store is the one we know, and does not know us: it went back to before our ledger was made. Its silence counts
 * only where the entry must be there if nothing was forgotten: it was made, or seen, since the marker was, and not so
 * long ago, by either clock, that it might have been tidied away. */
static bool was_never_born(const struct twi_store *store, const struct twi_reply_head *head, int64_t now_ms) {
    return !head->registered && head->marker_made_ms <= store->belief.entered_redis_ms &&
           now_ms - store->belief.entered_ms < TWI_LEDGER_TTL_MS &&
           head->redis_ms - store->belief.entered_redis_ms < TWI_LEDGER_TTL_MS;
}

/* A store has taken another instance of ours: what of the one before? */
static void part_from_instance(struct twi_sync *sync, const struct twi_reply_head *head, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    static const char unborn[] = "Redis went back to before this engine's ledger";
    static const char back[] = "Redis went back to a state from before it was wiped";
    bool same = is_same_store(sync, head);
    if (same && was_never_born(store, head, now_ms)) {
        if (store->formers.has_any)
            send_all_again(sync, unborn);
        else if (head->has_older)
            leave_uncertain(sync, back);
        else
            restore_all(sync, unborn);
    } else if (same) {
        leave_instance(sync, "the ledger is gone: evicted, expired or overwritten");
    } else if (!sync->connection.server.may_restore) {
        leave_uncertain(sync, "ledger and marker are gone, and Redis may evict them or would not say");
    } else if (is_known_store(store, head) || head->registered || head->has_older) {
        leave_uncertain(sync, back);
    } else {
        restore_all(sync, "Redis was wiped");
    }
}

/* ---- a store that does not know us ------------------------------------------------------------------------------- */

/* It may be another one, seen for a moment: then what it lacks was never lost. The server that knew us has surely
 * forgotten, if it says after a new greeting that no other of its databases holds keys (SWAPDB); of any other that is
 * not believed before it has stayed for a while. Until then counts wait. */
static bool is_in_doubt(struct twi_sync *sync, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_connection *connection = &sync->connection;
    int64_t doubt_ms = twi_load_relaxed(&twi_doubt_ms);
    if (store->belief.doubt_since_ms == 0) {
        store->belief.doubt_since_ms = now_ms ? now_ms : 1;
        twi_port_log(sync->engine, TW_LOG_INFO, TW_EVENT_IDENTITY,
                     "the store at %s does not know this engine: perhaps it is another one; nothing is told to it for "
                     "%" PRId64 " ms",
                     connection->endpoint.name, doubt_ms);
        return true;
    }
    if (connection->server.run[0] && strcmp(connection->server.run, store->belief.run) == 0 &&
        !connection->server.has_other_keys)
        return false;
    return now_ms - store->belief.doubt_since_ms < doubt_ms;
}

void twi_instance_gone(struct twi_sync *sync, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    close_copies_in_flight(connection);
    bool waits = is_in_doubt(sync, now_ms);
    if (!waits) sync->store.belief.is_open = false;
    twi_connection_fail(connection, false, NULL);
    if (waits) connection->failure.again_ms = DOUBT_LOOK_MS + (int64_t)(twi_sync_random(sync->engine) % DOUBT_LOOK_MS);
}

/* ---- the store has our ledger, and is behind
 * ---------------------------------------------------------------------- */

void twi_instance_went_back(struct twi_sync *sync, uint64_t gone, uint64_t lost, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    twi_port_forgotten(sync->engine);
    store->belief.is_restoring = true;
    twi_ledger_believe(&store->ledger);
    twi_port_count(sync->engine, rollbacks, 1);
    twi_port_count(sync->engine, lost, (int64_t)lost);
    sync->connection.rewrite.tries_left = REWRITE_TRIES;
    store->wrote_number = 0;
    sync->collecting.look_until_ms = now_ms + 2 * (int64_t)sync->interval_ms;
    twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_ROLLBACK,
                 "Redis has forgotten %" PRIu64 " acknowledged batches; those still held are sent again, %" PRIu64
                 " units are lost",
                 gone, lost);
}

/* The store is at that number: what it lacks is sent again. */
static void go_back_to(struct twi_sync *sync, const struct twi_reply_head *head, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    store->rewind = true;
    if (head->last >= store->ledger.confirmed) return; /* only out of turn */
    struct twi_batch *step = twi_batch_empty(now_ms);
    if (!step) {
        twi_connection_fail(&sync->connection, false, "no memory");
        return;
    }
    uint64_t gone = twi_ledger_known(&store->ledger) - head->last;
    uint64_t lost = twi_ledger_roll_back(&store->ledger, head, step, twi_sync_random(sync->engine));
    twi_instance_went_back(sync, gone, lost, now_ms);
    twi_ledger_look_back(&store->ledger);
}

void twi_instance_at(struct twi_sync *sync, const struct twi_reply_head *head, int64_t now_ms) {
    if (twi_instance_is_ours(sync, head)) go_back_to(sync, head, now_ms);
}

/* ---- an opening
 * --------------------------------------------------------------------------------------------------- */

/* Nobody held us up: the first identity, or another one. */
static void begin_instance(struct twi_sync *sync) {
    struct twi_store *store = &sync->store;
    memcpy(store->formers.names[store->formers.next++ % TWI_FORMERS], store->ledger.name, sizeof store->ledger.name);
    twi_ledger_adopt(&store->ledger, &store->candidate, twi_sync_fill_random, sync->engine);
    twi_poison_renumber(&store->poison, store->ledger.last);
    store->sent_number = 0;
    store->belief.is_restoring = false;
    if (twi_ticket_renew(&sync->tickets))
        sync->collecting.begin_again = true; /* numbers have changed: the round starts over */
}

static void end_opening(struct twi_sync *sync, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    twi_batch_free(store->opening);
    store->opening = NULL;
    store->belief.is_open = true;
    sync->connection.phase = TWI_UP;
    twi_instance_at_own_store(sync);
    store->belief.written_ms = now_ms;
}

static void take_opening(struct twi_sync *sync, const struct twi_reply_head *head, int64_t now_ms) {
    struct twi_store *store = &sync->store;
    struct twi_connection *connection = &sync->connection;
    switch (head->kind) {
    case TWI_REPLY_OK:
        if (store->ledger.name_size) part_from_instance(sync, head, now_ms);
        begin_instance(sync);
        end_opening(sync, now_ms);
        twi_instance_entered(store, head, now_ms);
        twi_instance_note(store, head);
        twi_settle_success(sync, now_ms);
        /* What another identity had acknowledged is safe with the first batch of this one, if it is on the replicas. */
        if (connection->replicas.wanted)
            (void)twi_ledger_append_empty(&store->ledger, twi_sync_random(sync->engine), now_ms);
        break;
    case TWI_REPLY_KEPT:
        end_opening(sync, now_ms);
        if (head->last >= store->ledger.confirmed) twi_ledger_look_back(&store->ledger);
        store->sent_number = store->ledger.confirmed;
        twi_instance_at(sync, head, now_ms);
        break;
    case TWI_REPLY_NOSCRIPT: connection->use_eval = true; break; /* the turn sends it again */
    case TWI_REPLY_REFUSED:
    case TWI_REPLY_TURNED_AWAY:
    case TWI_REPLY_UNKNOWN: twi_settle_refused(sync, head, now_ms); break;
    default: /* its name was taken: by a copy of itself, or by chance; the next one has another */
        twi_connection_fail(connection, false, "the name of a new instance was taken");
    }
}

void twi_instance_reply(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                        size_t count, int64_t now_ms) {
    struct twi_connection *connection = &sync->connection;
    struct twi_reply_head head;
    if (!twi_reply_read(nodes, count, &head)) {
        twi_connection_fail(connection, false, "a reply that is not understood");
        return;
    }
    twi_settle_clock(connection, pending, head.redis_ms, now_ms);
    take_opening(sync, &head, now_ms);
}
