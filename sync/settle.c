/* settle.c -- what an answer does to batches, and through the port to counters.   Steps 7 and 8 of the flow.
 *
 *   answer      the batch                                     the connection
 *   OK, DUP     confirmed; its items settled, once            goes on
 *   GAP         waits; behind `confirmed`: Redis went back    goes on, from `confirmed` + 1
 *   PAST        waits; asked about what the ledger            goes on, from there
 *               remembers
 *   GONE        waits                                         dropped; an opening, if that store stays
 *   CLASH       uncertain, if it was perhaps applied          dropped, new instance
 *   NOSCRIPT    waits                                         goes on, with the script's text
 *   REFUSED     waits                                         goes on after a back-off
 *   TURNED_AWAY waits                                         dropped, slowly tried again
 *   UNKNOWN     waits, its outcome open                       dropped
 *   none        waits, its outcome open: no answer in time,   dropped; the same batch goes again under its number, and
 *               or the connection was lost before one came    OK or DUP says what became of it
 * What becomes of the instance after GONE: instance.c.
 * Always true: an item is settled only by the first answer that says its batch was applied, or when its batch is given
 * up; answers about batches out of turn are ignored (those are sent again and answered DUP). */
#include "sync/settle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/atomic.h"
#include "engine/check.h"
#include "sync/answer.h"
#include "sync/connect.h"
#include "sync/instance.h"
#include "sync/mutant.h"
#include "sync/refusal.h"
#include "sync/sync.h"

/* ---- one item ---------------------------------------------------------------------------------------------------- */

static void acknowledge(struct twi_sync *sync, const struct twi_item *item, uint64_t number,
                        const struct twi_item_answer *said, bool take_total) {
    struct twi_answer answer = {.total = said->total, .has_total = take_total && said->kind == TWI_ITEM_TOTAL};
    if (said->end_ms) answer.end_ms = said->end_ms - sync->offset_ms;
    if (sync->poison.count && item->delta) twi_poison_remove(&sync->poison, item, number);
    twi_port_acknowledge(item, &answer);
}

static void give_up(struct twi_sync *sync, const struct twi_item *item, int reason) {
    if (item->delta == 0) {
        twi_port_return(item, 0); /* a question: nothing is lost with it */
        return;
    }
    twi_ticket_refused(&sync->tickets);
    twi_port_give_up(item, reason);
}

/* The window is dead by Redis's clock. Which of us was late: Redis could not be reached, or the clocks differ? */
static void settle_late(struct twi_sync *sync, const struct twi_item *item, uint64_t number) {
    bool was_poison = sync->poison.count && twi_poison_remove(&sync->poison, item, number);
    bool over_here = item->expiry_ms && twi_port_wall_ms(sync->engine) >= item->expiry_ms;
    give_up(sync, item, was_poison ? TW_LOST_POISON : over_here ? TW_LOST_EXPIRED : TW_LOST_LATE);
}

/* The first bytes of a name, as a log may have them. */
static void printable(const char *name, size_t size, char *out, size_t room) {
    static const char digits[] = "0123456789abcdef";
    size_t used = 0;
    for (size_t i = 0; i < size && used + 5 < room; i++) {
        unsigned char byte = (unsigned char)name[i];
        if (byte > ' ' && byte < 127 && byte != '\\') {
            out[used++] = (char)byte;
            continue;
        }
        out[used++] = '\\', out[used++] = 'x', out[used++] = digits[byte >> 4], out[used++] = digits[byte & 15];
    }
    out[used] = '\0';
}

uint32_t twi_settle_poison(struct twi_sync *sync, const struct twi_item *item, const struct twi_node *error,
                           int64_t now_ms) {
    char name[TWI_REDIS_KEY_MAX], text[120];
    bool first = false;
    uint32_t wait_ms = twi_poison_add(&sync->poison, item, sync->ledger.last, now_ms, &first);
    if (first) {
        printable(name, twi_port_render(item, name), text, sizeof text);
        twi_port_count(sync->engine, poison_keys, 1);
        twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_POISON, "Redis refuses the key %s: %.100s", text,
                     error ? error->text : "");
    }
    twi_ticket_refused(&sync->tickets);
    return wait_ms;
}

static void settle_failed(struct twi_sync *sync, const struct twi_item *item, const struct twi_node *error,
                          int64_t now_ms) {
    if (item->delta == 0) {
        struct twi_answer none = {0};
        twi_port_acknowledge(item, &none); /* asked and answered: there is no total to be had */
        return;
    }
    uint32_t wait_ms = twi_settle_poison(sync, item, error, now_ms);
    twi_port_return(item, wait_ms + (uint32_t)(twi_sync_random(sync) % (wait_ms / 4 + 1)));
}

void twi_settle_item(struct twi_sync *sync, const struct twi_item *item, uint64_t number,
                     const struct twi_item_answer *said, bool take_total, int64_t now_ms) {
    switch (said->kind) {
    case TWI_ITEM_TOTAL:
    case TWI_ITEM_NO_TOTAL: acknowledge(sync, item, number, said, take_total); break;
    case TWI_ITEM_LATE: settle_late(sync, item, number); break;
    case TWI_ITEM_FAILED: settle_failed(sync, item, said->error, now_ms); break;
    }
}

/* ---- applied ----------------------------------------------------------------------------------------------------- */

static bool items_are_whole(const struct twi_batch *batch, const struct twi_node *nodes, size_t count, size_t at) {
    struct twi_item_answer said;
    for (uint32_t i = 0; i < batch->key_count; i++)
        if (!twi_answer_item(nodes, count, &at, &said)) return false;
    return at == count;
}

/* It goes its own way from here, so a replay of its batch must not bring it to Redis, and no loss of the batch is one of
 * it. */
static void settle_refused_item(struct twi_sync *sync, struct twi_batch *batch, uint32_t index,
                                const struct twi_item_answer *said, int64_t now_ms) {
    twi_ledger_note_missing(&sync->ledger, batch->number, twi_batch_strike(batch, index));
    twi_settle_item(sync, &batch->items[index], batch->number, said, false, now_ms);
}

void twi_settle_give_back(struct twi_batch *batch) {
    for (uint32_t i = 0; batch->items && i < batch->item_count; i++) twi_port_return(&batch->items[i], 0);
    twi_batch_items_drop(batch);
}

static void settle_items(struct twi_sync *sync, struct twi_batch *batch, const struct twi_node *nodes, size_t count,
                         const struct twi_answer_head *head, int64_t now_ms) {
    size_t at = head->items_at;
    bool uncertain = head->kind == TWI_ANSWER_DUP && !head->done;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        struct twi_item_answer said;
        bool whole = twi_answer_item(nodes, count, &at, &said);
        twi_check(whole); /* items_are_whole() has walked it */
        if (uncertain && batch->items[i].delta)
            give_up(sync, &batch->items[i], TW_LOST_UNCERTAIN);
        else if (said.kind == TWI_ITEM_FAILED || said.kind == TWI_ITEM_LATE)
            settle_refused_item(sync, batch, i, &said, now_ms);
        else
            twi_settle_item(sync, &batch->items[i], batch->number, &said, head->last == batch->number, now_ms);
    }
    twi_batch_items_drop(batch);
}

/* What a replay could not bring back, because Redis refuses the key by now. (What is late has died there anyway.) */
static uint64_t replay_refused(struct twi_sync *sync, struct twi_batch *batch, const struct twi_node *nodes,
                               size_t count, size_t at) {
    uint64_t units = 0;
    for (uint32_t i = 0; i < batch->key_count; i++) {
        struct twi_item_answer said;
        bool whole = twi_answer_item(nodes, count, &at, &said);
        twi_check(whole); /* items_are_whole() has walked it */
        if (said.kind == TWI_ITEM_FAILED) units += twi_batch_strike(batch, i);
    }
    twi_ledger_note_missing(&sync->ledger, batch->number, units);
    return units;
}

static void settle_replay(struct twi_sync *sync, struct twi_batch *batch, const struct twi_node *nodes, size_t count,
                          const struct twi_answer_head *head) {
    int64_t units = (int64_t)(batch->plus + batch->minus - batch->struck);
    if (head->kind == TWI_ANSWER_DUP && !head->done) { /* it was cut short */
        twi_port_count(sync->engine, uncertain, units);
        return;
    }
    int64_t refused = (int64_t)replay_refused(sync, batch, nodes, count, head->items_at);
    twi_port_count(sync->engine, lost, refused);
    if (head->kind == TWI_ANSWER_OK) twi_port_count(sync->engine, replayed, units - refused);
}

void twi_settle_success(struct twi_sync *sync, int64_t now_ms) {
    bool was_away = sync->breaker.state != TWI_BREAKER_CLOSED;
    twi_breaker_succeed(&sync->breaker);
    twi_store_relaxed(&sync->acked_ms, now_ms ? now_ms : 1); /* a statistic */
    if (!was_away) return;
    sync->lost_logged = false;
    memset(sync->refusals_said, 0, sizeof sync->refusals_said);
    twi_stat_set(sync->engine, offsetof(tw_stats, redis_connected), 1);
    int64_t since_ms = twi_load_relaxed(&sync->outage_since_ms); /* only turns write it */
    /* Other nodes return, too: none begins at once, unless a flush waits, and none sends all it has at once. */
    sync->collecting = false;
    sync->collect_at_ms = now_ms + twi_pace_spread_ms(since_ms ? now_ms - since_ms : 0, twi_sync_random(sync));
    twi_pace_begin(&sync->pace, now_ms);
    twi_port_log(sync->engine, TW_LOG_INFO, TW_EVENT_CONNECTED,
                 "Redis at %s answers (%" PRId64 " ms after its last word)", sync->name,
                 since_ms ? now_ms - since_ms : 0);
}

static bool settle_applied(struct twi_sync *sync, struct twi_batch *batch, const struct twi_node *nodes, size_t count,
                           const struct twi_answer_head *head, int64_t now_ms) {
    if (head->last > sync->ledger.last)
        return twi_instance_lose(sync, now_ms, "the ledger has numbers that were never sent from here");
    /* Applied, and yet before its own number: such a reply says nothing, whoever it comes from. */
    if (head->last < batch->number || !items_are_whole(batch, nodes, count, head->items_at)) {
        twi_connect_drop(sync, now_ms, false, "a reply that is not understood");
        return false;
    }
    if (batch->before != sync->ledger.confirmed) { /* out of turn */
        sync->rewind = true;
        return true;
    }
    bool replay = twi_ledger_is_replaying(&sync->ledger);
    if (head->kind == TWI_ANSWER_OK)
        twi_port_count(sync->engine, batches_ok, 1);
    else
        twi_port_count(sync->engine, batches_dup, 1);
    TWI_MUTATE(TWI_MUTANT_DUP_RETURNED, if (head->kind == TWI_ANSWER_DUP) twi_settle_give_back(batch));
    if (batch->items)
        settle_items(sync, batch, nodes, count, head, now_ms);
    else
        settle_replay(sync, batch, nodes, count, head);
    twi_ledger_confirm(&sync->ledger, batch);
    twi_instance_note(sync, head);
    if (head->kind == TWI_ANSWER_OK) { /* a DUP writes nothing */
        twi_instance_entered(sync, head, now_ms);
        sync->wrote_number = batch->number;
    }
    twi_ledger_trim(&sync->ledger, now_ms); /* perhaps `batch`, too */
    twi_settle_success(sync, now_ms);
    if (replay && !twi_ledger_is_replaying(&sync->ledger))
        twi_port_log(sync->engine, TW_LOG_WARNING, TW_EVENT_ROLLBACK,
                     "what could be restored in Redis has been restored");
    if (head->unhealed)
        twi_port_log(sync->engine, TW_LOG_WARNING, TW_EVENT_REFUSED, "%" PRId64 " keys stay without an expiry in Redis",
                     head->unhealed);
    twi_ticket_acknowledged(&sync->tickets, twi_ledger_safe(&sync->ledger));
    return true;
}

/* ---- Redis went back, or lost our ledger ------------------------------------------------------------------------- */

void twi_settle_give_up(struct twi_sync *sync, struct twi_batch *batch, int reason) {
    for (uint32_t i = 0; batch->items && i < batch->item_count; i++) give_up(sync, &batch->items[i], reason);
    twi_batch_items_drop(batch);
}

/* The store is at that number: what it lacks is sent again. */
static bool settle_back(struct twi_sync *sync, const struct twi_answer_head *head, int64_t now_ms) {
    sync->rewind = true;
    if (head->last >= sync->ledger.confirmed) return true; /* only out of turn */
    struct twi_batch *step = twi_batch_empty(now_ms);
    if (!step) {
        twi_connect_drop(sync, now_ms, false, "no memory");
        return false;
    }
    twi_port_forgotten(sync->engine);
    uint64_t gone = sync->ledger.confirmed - head->last;
    uint64_t lost = twi_ledger_roll_back(&sync->ledger, head, step, twi_sync_random(sync));
    twi_port_count(sync->engine, rollbacks, 1);
    twi_port_count(sync->engine, lost, (int64_t)lost);
    sync->rewrites_owed = TWI_REWRITE_TRIES;
    sync->wrote_number = 0;
    sync->look_until_ms = now_ms + 2 * (int64_t)sync->interval_ms;
    twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_ROLLBACK,
                 "Redis has forgotten %" PRIu64 " acknowledged batches; those still held are sent again, %" PRIu64
                 " units are lost",
                 gone, lost);
    return true;
}

bool twi_settle_at(struct twi_sync *sync, const struct twi_answer_head *head, int64_t now_ms) {
    if (head->last > sync->ledger.last)
        return twi_instance_lose(sync, now_ms, "the ledger has numbers that were never sent from here");
    return settle_back(sync, head, now_ms);
}

static bool settle_gap(struct twi_sync *sync, const struct twi_answer_head *head, int64_t now_ms) {
    twi_port_count(sync->engine, batches_gap, 1);
    twi_instance_at_home(sync);
    TWI_MUTATE(TWI_MUTANT_GAP_IGNORED, return true);
    return twi_settle_at(sync, head, now_ms);
}

static const char clash[] = "two engines use one ledger, or another version does";

/* It went back, was told again, and is now where it had been before: another store was seen in between. */
static bool settle_past(struct twi_sync *sync, const struct twi_batch *batch, const struct twi_answer_head *head,
                        int64_t now_ms) {
    if (head->last > sync->ledger.last)
        return twi_instance_lose(sync, now_ms, "the ledger has numbers that were never sent from here");
    sync->rewind = true;
    if (batch->before != sync->ledger.confirmed) return true; /* out of turn */
    TWI_MUTATE(TWI_MUTANT_PAST_CLASHES, return twi_instance_lose(sync, now_ms, clash));
    return twi_ledger_skip_to(&sync->ledger, head->last) || twi_instance_lose(sync, now_ms, clash);
}

/* A step over what could not be replayed, where that stands after all. */
static bool settle_clash(struct twi_sync *sync, struct twi_batch *batch, const struct twi_answer_head *head,
                         int64_t now_ms) {
    if (!batch->is_step || !head->has_last || head->last < batch->number || head->last > sync->ledger.last)
        return twi_instance_lose(sync, now_ms, clash);
    sync->rewind = true;
    if (batch->before == sync->ledger.confirmed) twi_ledger_confirm(&sync->ledger, batch);
    return true;
}

/* ---- every answer ------------------------------------------------------------------------------------------------ */

#define CLOCK_WAS_SET_MS 1000 /* beyond what round trips and the length of a turn explain */

/* Redis's clock minus ours, by the quickest answer of the last minute: half its round trip is the error at most. Until one
 * says that a clock was set since. */
void twi_settle_clock(struct twi_sync *sync, const struct twi_pending *pending, int64_t redis_ms, int64_t now_ms) {
    int64_t rtt_ms = now_ms - pending->sent_ms;
    if (!redis_ms || !pending->sent_ms) return;
    int64_t offset_ms = redis_ms - (pending->wall_ms + rtt_ms / 2), error_ms = (rtt_ms + sync->offset_rtt_ms) / 2;
    bool was_set = llabs(offset_ms - sync->offset_ms) > error_ms + CLOCK_WAS_SET_MS;
    bool is_slower = sync->offset_at_ms && rtt_ms > sync->offset_rtt_ms && now_ms - sync->offset_at_ms < 60000;
    if (is_slower && !was_set) return;
    sync->offset_ms = offset_ms;
    sync->offset_rtt_ms = rtt_ms;
    sync->offset_at_ms = now_ms ? now_ms : 1;
    twi_stat_set(sync->engine, offsetof(tw_stats, redis_clock_offset_ms), sync->offset_ms);
}

bool twi_settle_refusal(struct twi_sync *sync, bool slowly, int64_t now_ms) {
    twi_port_count(sync->engine, batches_error, 1);
    if (!slowly) {
        twi_stat_set(sync->engine, offsetof(tw_stats, redis_connected), 0);
        sync->rewind = true;
        if (sync->breaker.state != TWI_BREAKER_OPEN) /* the rest of a pipeline says the same: one failure */
            twi_breaker_fail(&sync->breaker, now_ms, twi_sync_random(sync));
        return true;
    }
    sync->lost_logged = true;
    twi_connect_drop(sync, now_ms, true, NULL);
    return false;
}

bool twi_settle_refused(struct twi_sync *sync, const struct twi_answer_head *head, int64_t now_ms) {
    twi_refusal_report(sync, "a batch", head->error);
    if (head->kind != TWI_ANSWER_UNKNOWN) return twi_settle_refusal(sync, head->kind == TWI_ANSWER_TURNED_AWAY, now_ms);
    twi_port_count(sync->engine, batches_error, 1);
    sync->lost_logged = true;
    twi_connect_drop(sync, now_ms, false, NULL);
    return false;
}

bool twi_settle_reply(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                      size_t count, int64_t now_ms) {
    struct twi_answer_head head;
    struct twi_batch *batch = pending->batch;
    if (!twi_answer_read(nodes, count, &head)) {
        twi_connect_drop(sync, now_ms, false, "a reply that is not understood");
        return false;
    }
    twi_settle_clock(sync, pending, head.redis_ms, now_ms);
    if (pending->command == TWI_OPEN) return twi_instance_opened(sync, &head, now_ms);
    /* A copy is done with once an answer says that it was not applied. One that was, or was perhaps, stays open until its
     * batch is confirmed: should the ledger vanish before, the batch is uncertain, not "surely not applied". */
    bool applied = head.kind == TWI_ANSWER_OK || head.kind == TWI_ANSWER_DUP || head.kind == TWI_ANSWER_UNKNOWN;
    TWI_MUTATE(TWI_MUTANT_UNKNOWN_CLOSED, applied = applied && head.kind != TWI_ANSWER_UNKNOWN);
    if (!applied && batch->copies_open) batch->copies_open--;
    TWI_MUTATE(TWI_MUTANT_SHRUNK, if (head.kind == TWI_ANSWER_REFUSED) twi_mutant_shrink(sync, batch));
    switch (head.kind) {
    case TWI_ANSWER_OK:
    case TWI_ANSWER_DUP:
        twi_instance_at_home(sync);
        sync->ledger_ms = now_ms;
        return settle_applied(sync, batch, nodes, count, &head, now_ms);
    case TWI_ANSWER_GAP: return settle_gap(sync, &head, now_ms);
    case TWI_ANSWER_PAST: return settle_past(sync, batch, &head, now_ms);
    case TWI_ANSWER_GONE: return twi_instance_gone(sync, now_ms);
    case TWI_ANSWER_CLASH: return settle_clash(sync, batch, &head, now_ms);
    case TWI_ANSWER_KEPT: twi_connect_drop(sync, now_ms, false, "a reply that is not understood"); return false;
    case TWI_ANSWER_NOSCRIPT:
        TWI_MUTATE(TWI_MUTANT_NUMBER_REUSED, twi_mutant_reuse(sync, batch));
        sync->rewind = sync->use_eval = true;
        return true;
    default: return twi_settle_refused(sync, &head, now_ms);
    }
}
