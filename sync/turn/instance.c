/* instance.c -- decides which store this is, and whether we continue in it under our name, after GONE and after the
 * reply to an opening.
 *
 *   GONE ──▶ unknown: look again, for doubt_ms ──still there──▶ an opening of another instance
 *
 *   the reply to the opening    the instance before
 *   KEPT                        continues: its ledger is there; another store was seen for a while
 *   OK; the marker is
 *     the same one, and knows the instance      its ledger was evicted: batches that were surely not applied are sent,
 *                                               the others are uncertain
 *     the same one, and does not know the       Redis went back to before our ledger: what is held is sent again, or
 *     instance                                  what the counters hold; uncertain, if an older ledger is there, or if
 *                                               that marker was not the one under which the instance began
 *     another, where Redis may evict it, or     uncertain
 *     INFO did not say
 *     another that we know, or an older         Redis went back to before a wipe: uncertain
 *     ledger is there
 *     none: a key of another type has its name  uncertain
 *     another, or made just now                 Redis was wiped: all is sent again, out of the counters
 * Always true: ledger name, numbers and replay buffer stay the same until a store has accepted number 0 of another
 * instance, and the same reply states that the ledger of this instance is not there. */
#include "sync/turn/instance.h"

#include <inttypes.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "sync/batch/reply.h"
#include "sync/message/refusal.h"
#include "sync/turn/settle.h"
#include "sync/turn/split.h"
#include "sync/message/closing.h"
#include "sync/message/state.h"
#include "sync/message/message.h"

#define UNKNOWN_LOOK_MS 50 /* between two looks at a store without a record of us; 50 to 100 ms */
#define REWRITE_TRIES 3u   /* tries of BGREWRITEAOF; a lost one may have been executed; one more is harmless */

/* Returns whether we have counted in this store before, by its marker. */
static bool is_known_store(const struct twi_store *store, const struct twi_reply_head *head) {
    twi_check(head->marker_size == 0 || head->marker != NULL);
    for (uint32_t i = 0; i < TWI_STORES_KNOWN; i++)
        if (strlen(store->known.markers[i]) == head->marker_size &&
            memcmp(store->known.markers[i], head->marker, head->marker_size) == 0)
            return head->marker_size != 0;
    return false;
}

static bool is_same_store(const struct twi_store *store, const struct twi_reply_head *head) {
    const struct twi_ledger *ledger = &store->ledger;
    return head->marker && ledger->marker_known && head->marker_size == strlen(ledger->marker) &&
           memcmp(head->marker, ledger->marker, head->marker_size) == 0;
}

/* A key of another type has the marker's name, and stays as it is. Counting continues; while it is there, a loss of the
 * ledger makes them uncertain (part_from_instance()). */
static void note_no_marker(struct twi_sync *sync, struct twi_store *store, bool is_missing) {
    if (is_missing && !store->assumed.lacks_marker)
        twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_IDENTITY,
                     "a key of another type has the name %s in Redis: delete it, for without its own key there this "
                     "engine cannot recognise that Redis was wiped",
                     store->marker_name);
    store->assumed.lacks_marker = is_missing;
}

void twi_instance_note(struct twi_sync *sync, struct twi_store *store, const struct twi_reply_head *head) {
    if (head->kind == TWI_REPLY_OK) note_no_marker(sync, store, !head->marker);
    if (!head->marker || head->marker_size >= sizeof store->ledger.marker) return;
    if (sync->by_slot && store->ledger.marker_known && !is_same_store(store, head)) {
        store->assumed.is_joined = true;
        twi_port_log(
            sync->engine, TW_LOG_ERROR, TW_EVENT_SPLIT,
            "slot %u has our ledger beside the marker of another state: two states of it were joined, and what "
            "it holds is uncertain",
            store->slot);
    }
    memcpy(store->ledger.marker, head->marker, head->marker_size + 1);
    store->ledger.marker_known = true;
    if (!is_known_store(store, head))
        memcpy(store->known.markers[store->known.next++ % TWI_STORES_KNOWN], head->marker, head->marker_size + 1);
}

void twi_instance_entered(struct twi_store *store, const struct twi_reply_head *head, int64_t now_ms) {
    twi_check(head->kind == TWI_REPLY_OK);
    store->assumed.entered_ms = now_ms;
    store->assumed.entered_redis_ms = head->redis_ms;
}

void twi_instance_at_own_store(const struct twi_connection *connection, struct twi_store *store) {
    twi_check(connection != NULL);
    memcpy(store->assumed.history, connection->server.history, sizeof store->assumed.history);
    store->assumed.unknown_since_ms = 0;
    twi_split_forget(store);
}

/* The reply to each copy of this store's batches that is under way on this connection is "no ledger", so no copy was or
 * can be applied. */
static void close_copies_in_flight(const struct twi_store *store) {
    twi_check(store->awaited == 0 || store->route.via != NULL);
    struct twi_connection *connection = store->route.via;
    if (store->awaited == 0) return;
    for (uint32_t i = 0; i < connection->pipeline.count; i++) {
        struct twi_pending *pending = twi_pipeline_at(&connection->pipeline, i);
        if (pending->command == TWI_BATCH && pending->store == store && pending->batch->copies_open)
            pending->batch->copies_open--;
    }
}

/* Gives up the unsettled batches with a copy of unknown outcome. The ledger with the outcome is gone. They need not be
 * the first ones. A batch may have been refused, and the reply to the next one lost. (The next one was not applied
 * either, if the ledger was ours alone. If two engines wrote it, the other engine's batch may have come before ours. So
 * it is given up.) */
static void give_up_uncertain(struct twi_sync *sync, struct twi_store *store) {
    twi_check(store->ledger.acked <= store->ledger.last);
    for (struct twi_batch *batch = store->ledger.head, *next; batch; batch = next) {
        next = batch->next;
        if (batch->number <= store->ledger.acked || batch->copies_open == 0) continue;
        twi_settle_give_up(sync, batch, TW_LOST_UNCERTAIN);
        twi_ledger_remove(&store->ledger, batch);
        twi_batch_free(batch);
    }
}

/* What is reported to the host when the next instance is saved, and not before. The host's function may take long, and
 * this process may end in it. */
struct report {
    const char *what;   /* of a rollback; NULL: none */
    const char *remedy; /* NULL: its units are uncertain; otherwise they are lost */
    uint64_t units;
    const char *left; /* why the instance was left; NULL: that is no loss of its own */
    char name[TWI_LEDGER_NAME_MAX];
};

static void report_now(struct twi_sync *sync, const struct report *report) {
    if (report->what != NULL && report->remedy != NULL)
        twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_ROLLBACK,
                     "%s; %s, %" PRIu64 " units of earlier ones are lost", report->what, report->remedy, report->units);
    else if (report->what != NULL)
        twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_ROLLBACK,
                     "%s; what it has is not sent again, %" PRIu64 " units are uncertain", report->what, report->units);
    if (report->left != NULL)
        twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_IDENTITY, "a new instance begins: %s (%s)", report->left,
                     report->name);
    const char *last = report->left != NULL ? report->left : report->what;
    if (last != NULL) twi_port_last_error(sync->engine, last);
    twi_estate_has_reported(sync);
}

/* Ends the instance. The batches of the replay buffer are in Redis, except those that were still to be replayed. These
 * are uncertain. */
static void leave_instance(struct twi_sync *sync, struct twi_store *store, const char *why, struct report *report) {
    twi_check(why != NULL && why[0] != '\0');
    uint64_t open = twi_ledger_replay_drop(&store->ledger, twi_ledger_known(&store->ledger));
    twi_port_count(sync->engine, uncertain, (int64_t)open);
    give_up_uncertain(sync, store);
    store->formers.has_any = true;
    twi_port_forgotten(sync->engine, store->index);
    report->left = why;
    memcpy(report->name, store->ledger.name, sizeof report->name);
}

/* The replies to the store's requests under way have no meaning any more. */
static void abandon(struct twi_store *store) {
    twi_check(store->awaited == 0 || store->route.via != NULL);
    struct twi_connection *connection = store->route.via;
    for (uint32_t i = 0; store->awaited != 0 && i < connection->pipeline.count; i++) {
        struct twi_pending *pending = twi_pipeline_at(&connection->pipeline, i);
        if (pending->store != store || (pending->command != TWI_BATCH && pending->command != TWI_OPEN)) continue;
        pending->command = TWI_ABANDONED;
        pending->batch = NULL;
    }
    twi_batch_free(store->opening);
    store->opening = NULL;
    store->rewind = true;
}

/* The store begins again after this pause, together with the connection if it is the only store. 0: no pause, or
 * that of the back-off. */
static void restart(struct twi_sync *sync, struct twi_store *store, int64_t pause_ms, int64_t now_ms) {
    twi_check(store->connection != NULL && pause_ms >= 0);
    if (sync->by_slot) {
        abandon(store);
        store->route.detour.again_ms = pause_ms != 0 ? now_ms + pause_ms : store->route.detour.again_ms;
        return;
    }
    twi_connection_fail(store->connection, false, NULL);
    store->connection->failure.again_ms = pause_ms;
}

void twi_instance_lose(struct twi_sync *sync, struct twi_store *store, const char *why) {
    twi_check(why != NULL);
    if (store->assumed.life == sync->lives) { /* not since this instance began */
        sync->lives++;
        twi_port_twin(sync->engine);
    }
    struct report report = {0};
    leave_instance(sync, store, why, &report);
    twi_ledger_close_ranks(&store->ledger);
    store->ledger.name_size = 0;
    store->assumed.is_open = false;
    twi_estate_save(sync, store);
    report_now(sync, &report);
    restart(sync, store, 0, 0);
}

bool twi_instance_is_ours(struct twi_sync *sync, struct twi_store *store, const struct twi_reply_head *head) {
    if (head->last <= store->ledger.last) return true;
    twi_instance_lose(sync, store, "the ledger has numbers that were never sent from here");
    return false;
}

static void note_forgotten(struct twi_connection *connection, struct report *report, uint64_t lost, const char *what,
                           const char *remedy) {
    twi_check(what != NULL && remedy != NULL);
    twi_port_count(connection->engine, rollbacks, 1);
    twi_port_count(connection->engine, lost, (int64_t)lost);
    connection->rewrite.tries_left = REWRITE_TRIES;
    report->what = what;
    report->remedy = remedy;
    report->units = lost;
}

/* Redis has no counts of this instance any more, but perhaps counts of an earlier one. The kept batches are sent under
 * another instance. */
static void send_all_again(struct twi_sync *sync, struct twi_store *store, const char *what, struct report *report) {
    twi_check(store->connection != NULL);
    twi_port_forgotten(sync->engine, store->index);
    note_forgotten(store->connection, report, twi_ledger_beyond_replay(&store->ledger), what,
                   "the latest batches are sent again");
}

/* Notes the unsettled deltas that the store which we leave may have applied. It may come back. */
static void note_adrift(struct twi_batch *batch) {
    if (!batch->items || !batch->copies_open) return;
    if (batch->place) {
        twi_inflight_note_adrift(batch->place);
        return;
    }
    for (uint32_t i = 0; i < batch->item_count; i++) twi_port_adrift(&batch->items[i]);
}

/* This store has no counts of this engine, and it can apply no copy that is under way, because it lacks the ledger. The
 * counters have all their contributions, including the batches of the replay buffer. */
static void restore_all(struct twi_sync *sync, struct twi_store *store, const struct twi_reply_head *head,
                        int64_t now_ms, const char *what, struct report *report) {
    twi_check(store->connection != NULL);
    twi_estate_intend(sync, store, head, now_ms);
    while (store->ledger.head) {
        struct twi_batch *batch = store->ledger.head;
        note_adrift(batch);
        twi_settle_give_back(batch);
        twi_ledger_remove(&store->ledger, batch);
        twi_batch_free(batch);
    }
    twi_check(store->ledger.tail == NULL && store->ledger.unconfirmed == NULL);
    store->formers.has_any = false;
    note_forgotten(store->connection, report, twi_port_restore(sync->engine, store->index), what,
                   "what the counters hold is sent again");
}

/* Settles the unsettled batches. A batch that was surely not applied goes back to its counters. Any other is given
 * up, except for the part that this store has (twi_port_keep_item()). */
static void keep_unsettled(struct twi_sync *sync, struct twi_store *store) {
    for (struct twi_batch *batch = store->ledger.head, *next; batch; batch = next) {
        next = batch->next;
        if (batch->number <= store->ledger.acked) continue;
        if (batch->copies_open)
            twi_settle_keep(sync, batch);
        else
            twi_settle_give_back(batch);
        twi_ledger_remove(&store->ledger, batch);
        twi_batch_free(batch);
    }
}

/* For a store that we used, or may have used. Our counts there are not sent again. Counts that another store
 * acknowledged since are not there. If it is the store that we left for another one, it lacks only the counts since
 * then. */
static void leave_uncertain(struct twi_sync *sync, struct twi_store *store, const char *why, struct report *report) {
    twi_check(why != NULL);
    uint64_t uncertain, since = twi_ledger_beyond_replay(&store->ledger);
    since += twi_ledger_replay_drop(&store->ledger, 0);
    keep_unsettled(sync, store);
    bool was_left = twi_port_keep(sync->engine, store->index, &uncertain);
    if (!was_left) uncertain += since;
    twi_port_count(sync->engine, rollbacks, 1);
    twi_port_count(sync->engine, uncertain, (int64_t)uncertain);
    report->what = why;
    report->units = uncertain;
    leave_instance(sync, store, why, report);
}

/* Returns whether our store went back to before our ledger was made, because it has no record of us. This follows only
 * if our entry must be there unless it was forgotten. It was made, or seen, since the marker was made, and not so long
 * ago, by either clock, that it might have been tidied away. */
static bool was_never_born(const struct twi_store *store, const struct twi_reply_head *head, int64_t now_ms) {
    return !head->registered && head->marker_made_ms <= store->assumed.entered_redis_ms &&
           now_ms - store->assumed.entered_ms < TWI_LEDGER_TTL_MS &&
           head->redis_ms - store->assumed.entered_redis_ms < TWI_LEDGER_TTL_MS;
}

/* A store has accepted another instance of ours. Decides about the previous instance. */
static void part_from_instance(struct twi_sync *sync, struct twi_store *store, const struct twi_reply_head *head,
                               int64_t now_ms, struct report *report) {
    twi_check(store->ledger.name_size != 0 && store->connection != NULL);
    static const char unborn[] = "Redis went back to before this engine's ledger";
    static const char apart[] = "Redis went back to a state from before two states of this slot were joined";
    static const char back[] = "Redis went back to a state from before it was wiped";
    bool same = is_same_store(store, head);
    if (same && was_never_born(store, head, now_ms)) {
        /* A part of our counts may be older than that marker. A marker that a batch has made again is no evidence about
         * the slot. */
        if (store->assumed.is_joined || head->survivors < 0)
            leave_uncertain(sync, store, apart, report);
        else if (store->formers.has_any)
            send_all_again(sync, store, unborn, report);
        else if (head->has_older)
            leave_uncertain(sync, store, back, report);
        else
            restore_all(sync, store, head, now_ms, unborn, report);
    } else if (same) {
        leave_instance(sync, store, "the ledger is gone: evicted, expired or overwritten", report);
    } else if (!head->marker) {
        leave_uncertain(sync, store, "the ledger is gone, and a key of another type has the marker's name", report);
    } else if (!store->connection->server.may_restore) {
        leave_uncertain(sync, store, "ledger and marker are gone, and Redis may evict them or would not say", report);
    } else if (is_known_store(store, head) || head->registered || head->has_older) {
        leave_uncertain(sync, store, back, report);
    } else if (head->survivors != 0) {
        leave_uncertain(sync, store, "the ledger's slot was emptied in part, or nobody may count its keys", report);
    } else {
        restore_all(sync, store, head, now_ms, "Redis was wiped", report);
    }
}

/* ---- a store without a record of us ------------------------------------------------------------------------------ */

/* The store may be another one, seen for a moment. Then the counts that it lacks were never lost. The server that had
 * our record has surely lost it if, after a new greeting, its other databases have no keys (SWAPDB). Any other server
 * is accepted only after it has stayed for doubt_ms. Until then counts wait. */
static bool is_unknown(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(store->connection != NULL);
    struct twi_connection *connection = store->connection;
    int64_t doubt_ms = twi_port_tuning(sync->engine)->doubt_ms;
    if (store->assumed.unknown_since_ms == 0) {
        store->assumed.unknown_since_ms = now_ms ? now_ms : 1;
        twi_port_log(sync->engine, TW_LOG_INFO, TW_EVENT_IDENTITY,
                     "the store at %s does not know this engine (%s): perhaps it is another one; nothing is told to it "
                     "for up to %" PRId64 " ms",
                     connection->target.name, store->ledger.name, doubt_ms);
        return true;
    }
    if (connection->server.history[0] && strcmp(connection->server.history, store->assumed.history) == 0 &&
        !connection->server.has_other_keys)
        return false;
    return now_ms - store->assumed.unknown_since_ms < doubt_ms;
}

static int64_t pause_unknown(const struct twi_sync *sync) {
    return UNKNOWN_LOOK_MS + (int64_t)(twi_sync_random(sync->engine) % UNKNOWN_LOOK_MS);
}

void twi_instance_gone(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    close_copies_in_flight(store);
    bool waits = is_unknown(sync, store, now_ms) || !twi_split_is_ruled_out(sync, store, now_ms);
    if (!waits) store->assumed.is_open = false;
    restart(sync, store, waits ? pause_unknown(sync) : 0, now_ms);
}

/* ---- the store has our ledger, and is behind --------------------------------------------------------------------- */

void twi_instance_went_back(struct twi_sync *sync, struct twi_store *store, uint64_t gone, uint64_t lost,
                            int64_t now_ms) {
    twi_check(store->connection != NULL);
    twi_port_forgotten(sync->engine, store->index);
    store->assumed.is_restoring = true;
    twi_ledger_end_look(&store->ledger);
    twi_port_count(sync->engine, rollbacks, 1);
    twi_port_count(sync->engine, lost, (int64_t)lost);
    store->connection->rewrite.tries_left = REWRITE_TRIES;
    store->wrote_number = 0;
    sync->collecting.look_until_ms = now_ms + 2 * (int64_t)sync->interval_ms;
    twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_ROLLBACK,
                 "Redis has forgotten %" PRIu64 " acknowledged batches; those still held are sent again, %" PRIu64
                 " units are lost",
                 gone, lost);
}

/* The store is at the number of `head`. The missing batches are sent again. */
static void go_back_to(struct twi_sync *sync, struct twi_store *store, const struct twi_reply_head *head,
                       int64_t now_ms) {
    twi_check(head->last <= store->ledger.last);
    store->rewind = true;
    if (head->last >= store->ledger.confirmed) return; /* it lacks no batch */
    struct twi_batch *step = twi_batch_empty(now_ms);
    if (!step) {
        twi_connection_fail(store->connection, false, "no memory");
        return;
    }
    uint64_t gone = twi_ledger_known(&store->ledger) - head->last;
    uint64_t lost = twi_ledger_roll_back(&store->ledger, head, step, twi_sync_random(sync->engine));
    twi_instance_went_back(sync, store, gone, lost, now_ms);
    twi_ledger_look_back(&store->ledger);
    twi_estate_save(sync, store); /* what is lost is counted once, and the next process continues from here */
}

void twi_instance_at(struct twi_sync *sync, struct twi_store *store, const struct twi_reply_head *head,
                     int64_t now_ms) {
    if (twi_instance_is_ours(sync, store, head)) go_back_to(sync, store, head, now_ms);
}

/* ---- an opening -------------------------------------------------------------------------------------------------- */

/* Begins the instance of the candidate identity, which is the first or another one. */
static void begin_instance(struct twi_sync *sync, struct twi_store *store) {
    twi_check(store->candidate.name_size != 0);
    memcpy(store->formers.names[store->formers.next++ % TWI_FORMERS], store->ledger.name, sizeof store->ledger.name);
    twi_ledger_adopt(&store->ledger, &store->candidate, twi_sync_fill_random, sync->engine);
    twi_rejected_renumber(&store->rejected, store->ledger.last);
    twi_check(store->ledger.confirmed == 0);
    store->sent_number = 0;
    store->assumed.is_restoring = store->assumed.is_joined = false;
    store->assumed.life = sync->lives;
    if (twi_ticket_renew_share(&sync->tickets, &store->flush))
        twi_waiting_begin_again(sync); /* numbers have changed, so the round collects once more */
}

static void end_opening(struct twi_connection *connection, struct twi_store *store, int64_t now_ms) {
    twi_check(store->opening != NULL);
    twi_batch_free(store->opening);
    store->opening = NULL;
    store->assumed.is_open = true;
    connection->phase = TWI_UP;
    twi_instance_at_own_store(connection, store);
    store->assumed.written_ms = now_ms;
}

/* Without an earlier ledger, this store was only asked to begin a new one. If it has a marker that we have not met, and
 * we have met others, it may be another store, seen for a moment. Counts sent to it would be lost with it. The ledger
 * that was made there stays empty and expires. */
static bool opened_elsewhere(struct twi_sync *sync, struct twi_store *store, const struct twi_reply_head *head,
                             int64_t now_ms) {
    return store->ledger.name_size == 0 && store->known.next != 0 && !is_known_store(store, head) &&
           is_unknown(sync, store, now_ms);
}

static void take_opening(struct twi_sync *sync, struct twi_connection *connection, struct twi_store *store,
                         const struct twi_reply_head *head, int64_t now_ms) {
    twi_check(head->error == NULL || head->error->type == TWI_NODE_ERROR);
    if (head->error && twi_cluster_redirects(sync, connection, store, head->error, now_ms)) {
        twi_cluster_sent_away(sync, store, head->error, now_ms);
        twi_settle_success(sync, connection, now_ms); /* the node answers */
        return;
    }
    twi_cluster_answered(store);
    struct report report = {0};
    switch (head->kind) {
    case TWI_REPLY_OK:
        if (opened_elsewhere(sync, store, head, now_ms)) {
            restart(sync, store, pause_unknown(sync), now_ms);
            break;
        }
        if (store->ledger.name_size) part_from_instance(sync, store, head, now_ms, &report);
        if (!sync->by_slot) connection->server.evicted = connection->server.evicted_now; /* of earlier keys */
        begin_instance(sync, store);
        end_opening(connection, store, now_ms);
        twi_instance_entered(store, head, now_ms);
        twi_instance_note(sync, store, head);
        twi_estate_save(sync, store);
        report_now(sync, &report);
        twi_closing_sender_met(sync, head->marker_made_ms, head->redis_ms, now_ms);
        twi_settle_success(sync, connection, now_ms);
        /* When the replicas have the first batch of this identity, they also have the acknowledged data of earlier
         * identities. */
        if (connection->replicas.wanted)
            (void)twi_ledger_append_empty(&store->ledger, twi_sync_random(sync->engine), now_ms);
        break;
    case TWI_REPLY_KEPT:
        end_opening(connection, store, now_ms);
        if (head->last >= store->ledger.confirmed) twi_ledger_look_back(&store->ledger);
        store->sent_number = store->ledger.confirmed;
        twi_instance_at(sync, store, head, now_ms);
        break;
    case TWI_REPLY_NOSCRIPT: connection->use_eval = true; break; /* the turn sends it again */
    case TWI_REPLY_REFUSED:
    case TWI_REPLY_TURNED_AWAY:
    case TWI_REPLY_UNKNOWN: twi_settle_refused(sync, connection, store, head, now_ms); break;
    default: /* the name was in use, by a copy of this opening or by chance; the next opening has another */
        if (!sync->by_slot) twi_connection_fail(connection, false, "the name of a new instance was taken");
        restart(sync, store, UNKNOWN_LOOK_MS, now_ms);
    }
}

void twi_instance_reply(struct twi_sync *sync, struct twi_connection *connection, const struct twi_pending *pending,
                        const struct twi_node *nodes, size_t count, int64_t now_ms) {
    twi_check(pending->command == TWI_OPEN && pending->store != NULL);
    struct twi_reply_head head;
    if (!twi_reply_read(nodes, count, &head)) {
        twi_connection_fail(connection, false, "a reply that is not understood");
        return;
    }
    twi_settle_clock(connection, pending, head.redis_ms, now_ms);
    take_opening(sync, connection, pending->store, &head, now_ms);
}
