/* ledger.c -- the list of batches, and the known state of the ledger in Redis. The file is pure bookkeeping without
 * sockets, engine or clock. Always true: see ledger.h; twi_ledger_is_valid() checks it. */
#include "sync/batch/ledger.h"

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "sync/batch/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ledger_hex(const uint8_t *bytes, size_t count, char *out) {
    for (size_t i = 0; i < count; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* The bytes of the replay buffer, here and in the sum over all ledgers. */
static void set_replay_bytes(struct twi_ledger *ledger, size_t bytes) {
    twi_check(ledger->all_replay_bytes == NULL || *ledger->all_replay_bytes >= ledger->replay_bytes);
    if (ledger->all_replay_bytes) *ledger->all_replay_bytes += bytes - ledger->replay_bytes;
    ledger->replay_bytes = bytes;
}

void twi_ledger_close_ranks(struct twi_ledger *ledger) {
    uint64_t settled = 0;
    ledger->plus_sum = ledger->minus_sum = ledger->last = 0;
    for (struct twi_batch *batch = ledger->head; batch; batch = batch->next) {
        if (batch->number <= ledger->acked) settled++;
        batch->before = ledger->last;
        batch->number = ++ledger->last;
        batch->copies_open = 0;
        batch->is_step = false;
        twi_inflight_forget(batch); /* it has another number, under which it was not sent */
        batch->plus_sum = ledger->plus_sum += batch->plus;
        batch->minus_sum = ledger->minus_sum += batch->minus;
    }
    ledger->acked = settled;
    ledger->confirmed = ledger->replicated = ledger->looked = 0;
    ledger->unconfirmed = ledger->head;
    memset(&ledger->missing, 0, sizeof ledger->missing);
    set_replay_bytes(ledger, 0); /* no batch is confirmed, so no batch may be dropped */
    twi_check(ledger->acked <= ledger->last);
    twi_check_full(twi_ledger_is_valid(ledger));
}

void twi_identity_make(struct twi_identity *identity, const char *prefix, const char *tag,
                       void (*random)(void *ctx, void *out, size_t size), void *ctx) {
    twi_check(strlen(prefix) + strlen(tag) < TWI_LEDGER_NAME_MAX);
    uint8_t id[16];
    char id_text[33], marker_text[33];
    random(ctx, id, sizeof id);
    ledger_hex(id, sizeof id, id_text);
    int size =
        snprintf(identity->name, sizeof identity->name, "%stw:ledger:%s%s%s", prefix, tag, tag[0] ? ":" : "", id_text);
    twi_check(size > 0 && (size_t)size < sizeof identity->name);
    identity->name_size = (size_t)size;
    random(ctx, id, sizeof id);
    ledger_hex(id, sizeof id, marker_text);
    snprintf(identity->marker, sizeof identity->marker, "%s", marker_text);
}

void twi_ledger_adopt(struct twi_ledger *ledger, const struct twi_identity *identity,
                      void (*random)(void *ctx, void *out, size_t size), void *ctx) {
    twi_check(identity->name_size != 0 && identity->name_size < sizeof ledger->name);
    memcpy(ledger->name, identity->name, identity->name_size + 1);
    ledger->name_size = identity->name_size;
    memcpy(ledger->marker, identity->marker, sizeof ledger->marker);
    ledger->marker_known = false;
    twi_ledger_close_ranks(ledger);
    for (struct twi_batch *batch = ledger->head; batch; batch = batch->next) {
        random(ctx, &batch->nonce, sizeof batch->nonce);
        if (ledger->ring) twi_replay_ring_renumber(ledger->ring, batch);
    }
    if (ledger->ring) twi_replay_ring_turn(ledger->ring);
}

void twi_ledger_identify(struct twi_ledger *ledger, const char *prefix,
                         void (*random)(void *ctx, void *out, size_t size), void *ctx) {
    struct twi_identity identity;
    twi_identity_make(&identity, prefix, "", random, ctx);
    twi_ledger_adopt(ledger, &identity, random, ctx);
}

static void link_last(struct twi_ledger *ledger, struct twi_batch *batch) {
    batch->next = NULL;
    if (ledger->tail)
        ledger->tail->next = batch;
    else
        ledger->head = batch;
    ledger->tail = batch;
    if (!ledger->unconfirmed) ledger->unconfirmed = batch;
}

void twi_ledger_append(struct twi_ledger *ledger, struct twi_batch *batch, uint64_t nonce) {
    twi_check((ledger->head == NULL) == (ledger->tail == NULL));
    twi_check(ledger->last != UINT64_MAX);
    batch->before = ledger->last;
    batch->number = ++ledger->last;
    batch->nonce = nonce;
    batch->plus_sum = ledger->plus_sum += batch->plus;
    batch->minus_sum = ledger->minus_sum += batch->minus;
    link_last(ledger, batch);
    twi_check(ledger->tail->number == ledger->last && batch->before < batch->number);
    twi_check_full(twi_ledger_is_valid(ledger));
}

void twi_ledger_inherit(struct twi_ledger *ledger, struct twi_batch *batch, struct twi_batch *step, uint64_t nonce) {
    twi_check(batch->number > ledger->last && step->items == NULL);
    if (batch->before == ledger->last) {
        twi_batch_free(step);
    } else {
        step->is_step = true;
        step->nonce = nonce;
        step->before = ledger->last;
        step->number = batch->before;
        step->plus_sum = batch->plus_sum - batch->plus;
        step->minus_sum = batch->minus_sum - batch->minus;
        link_last(ledger, step);
    }
    link_last(ledger, batch);
    ledger->last = batch->number;
    ledger->plus_sum = batch->plus_sum;
    ledger->minus_sum = batch->minus_sum;
}

void twi_ledger_sums_acked(const struct twi_ledger *ledger, uint64_t *plus_sum, uint64_t *minus_sum) {
    const struct twi_batch *next = ledger->head;
    while (next && next->number <= ledger->acked) next = next->next;
    *plus_sum = next ? next->plus_sum - next->plus : ledger->plus_sum;
    *minus_sum = next ? next->minus_sum - next->minus : ledger->minus_sum;
}

bool twi_ledger_append_empty(struct twi_ledger *ledger, uint64_t nonce, int64_t now_ms) {
    struct twi_batch *batch = twi_batch_empty(now_ms);
    if (batch) twi_ledger_append(ledger, batch, nonce);
    return batch != NULL;
}

struct twi_batch *twi_ledger_find(const struct twi_ledger *ledger, uint64_t number) {
    struct twi_batch *batch = ledger->head;
    while (batch && batch->number < number) batch = batch->next;
    return batch && batch->number == number ? batch : NULL;
}

struct twi_batch *twi_ledger_unconfirmed(const struct twi_ledger *ledger) {
    return ledger->unconfirmed;
}

/* Called when `confirmed` has moved back, or forward by more than one. */
static void seek_unconfirmed(struct twi_ledger *ledger) {
    struct twi_batch *batch = ledger->head;
    while (batch && batch->number <= ledger->confirmed) batch = batch->next;
    ledger->unconfirmed = batch;
}

bool twi_ledger_is_replaying(const struct twi_ledger *ledger) {
    twi_check(ledger->confirmed <= ledger->acked);
    return ledger->confirmed < ledger->acked;
}

void twi_ledger_confirm(struct twi_ledger *ledger, struct twi_batch *batch) {
    twi_check(batch->number <= ledger->last && ledger->confirmed <= ledger->acked);
    twi_check(batch->before == ledger->confirmed);
    ledger->confirmed = batch->number;
    ledger->unconfirmed = batch->next;
    if (batch->number > ledger->acked) ledger->acked = batch->number;
    if (!ledger->awaits_replicas) ledger->replicated = ledger->confirmed;
    set_replay_bytes(ledger, ledger->replay_bytes + twi_batch_bytes(batch));
    twi_check(ledger->confirmed <= ledger->acked);
    twi_check_full(twi_ledger_is_valid(ledger));
}

void twi_ledger_reset_replicas(struct twi_ledger *ledger) {
    if (ledger->awaits_replicas && ledger->head && ledger->head->before < ledger->replicated)
        ledger->replicated = ledger->head->before;
}

uint64_t twi_ledger_safe(const struct twi_ledger *ledger) {
    twi_check(ledger->acked <= ledger->last);
    return ledger->awaits_replicas && ledger->replicated < ledger->acked ? ledger->replicated : ledger->acked;
}

bool twi_ledger_may_drop(const struct twi_ledger *ledger) {
    return ledger->head && ledger->head->number <= ledger->replicated && ledger->head->number <= ledger->confirmed;
}

void twi_ledger_drop_first(struct twi_ledger *ledger) {
    twi_check(twi_ledger_may_drop(ledger));
    struct twi_batch *batch = ledger->head;
    set_replay_bytes(ledger, ledger->replay_bytes - twi_batch_bytes(batch));
    twi_ledger_remove(ledger, batch);
    twi_batch_free(batch);
}

void twi_ledger_trim(struct twi_ledger *ledger, int64_t now_ms) {
    while (twi_ledger_may_drop(ledger) &&
           (ledger->replay_bytes > ledger->replay_bytes_max || now_ms - ledger->head->frozen_ms > ledger->replay_ms))
        twi_ledger_drop_first(ledger);
}

/* ---- units in the sums that Redis lacks -------------------------------------------------------------------------- */

void twi_ledger_note_missing(struct twi_ledger *ledger, uint64_t number, uint64_t units) {
    twi_check(number <= ledger->last);
    if (units == 0) return;
    uint32_t at = ledger->missing.next++ % TWI_LEDGER_MISSING;
    ledger->missing.places[at].number = number;
    ledger->missing.places[at].units = units;
}

/* Returns `units` less those that are known to be missing from the numbers above `low` up to `high`. */
static uint64_t less_missing(const struct twi_ledger *ledger, uint64_t units, uint64_t low, uint64_t high) {
    twi_check(low <= high);
    for (uint32_t i = 0; i < TWI_LEDGER_MISSING; i++) {
        if (ledger->missing.places[i].number <= low || ledger->missing.places[i].number > high) continue;
        units -= ledger->missing.places[i].units < units ? ledger->missing.places[i].units : units;
    }
    return units;
}

uint64_t twi_ledger_beyond_replay(const struct twi_ledger *ledger) {
    const struct twi_batch *head = ledger->head;
    if (!head) return less_missing(ledger, ledger->plus_sum + ledger->minus_sum, 0, ledger->last);
    uint64_t units = head->plus_sum - head->plus + head->minus_sum - head->minus;
    return less_missing(ledger, units, 0, head->is_step ? head->number : head->number - 1);
}

/* ---- going back -------------------------------------------------------------------------------------------------- */

/* Inserts `step` before `next` (NULL means at the end). It takes the number before that of `next`, and follows on
 * `from`. */
static void ledger_step_over(struct twi_ledger *ledger, struct twi_batch *step, struct twi_batch *next, uint64_t from) {
    twi_check(step->items == NULL && step->key_count == 0);
    twi_check(next == NULL || next->number > from);
    step->is_step = true;
    step->before = from;
    step->number = next ? next->number - 1 : ledger->last;
    step->plus_sum = next ? next->plus_sum - next->plus : ledger->plus_sum;
    step->minus_sum = next ? next->minus_sum - next->minus : ledger->minus_sum;
    step->next = next;
    struct twi_batch *before = ledger->head == next ? NULL : ledger->head;
    while (before && before->next != next) before = before->next;
    if (before)
        before->next = step;
    else
        ledger->head = step;
    if (!next) ledger->tail = step;
    if (ledger->unconfirmed == next) ledger->unconfirmed = step;
    twi_check(step->before < step->number);
}

static void count_replay_bytes(struct twi_ledger *ledger) {
    size_t bytes = 0;
    for (struct twi_batch *batch = ledger->head; batch && batch->number <= ledger->confirmed; batch = batch->next)
        bytes += twi_batch_bytes(batch);
    set_replay_bytes(ledger, bytes);
}

bool twi_ledger_skip_to(struct twi_ledger *ledger, uint64_t last) {
    twi_check(ledger->confirmed <= ledger->acked);
    struct twi_batch *batch = ledger->head;
    while (batch && batch->number + TWI_LEDGER_REMEMBERS <= last) batch = batch->next;
    if (!batch || batch->before <= ledger->confirmed || batch->before > ledger->acked) return false;
    ledger->confirmed = batch->before;
    ledger->unconfirmed = batch;
    if (!ledger->awaits_replicas) ledger->replicated = ledger->confirmed;
    count_replay_bytes(ledger);
    twi_check_full(twi_ledger_is_valid(ledger));
    return true;
}

uint64_t twi_ledger_known(const struct twi_ledger *ledger) {
    return ledger->looked > ledger->confirmed ? ledger->looked : ledger->confirmed;
}

void twi_ledger_look_back(struct twi_ledger *ledger) {
    uint64_t known = twi_ledger_known(ledger), from = known;
    bool strayed = false;
    for (struct twi_batch *batch = ledger->head; batch && batch->number <= known; batch = batch->next) {
        if (batch->number + TWI_LEDGER_REMEMBERS <= known) continue;
        if (batch->is_step) { /* a store may be at any number within a step, so do not go back across it */
            from = known;
            strayed = false;
            continue;
        }
        if (from == known) from = batch->before;
        strayed = strayed || batch->strayed;
    }
    if (!strayed) return;
    ledger->looked = known;
    if (from < ledger->confirmed) ledger->confirmed = from;
    seek_unconfirmed(ledger);
    count_replay_bytes(ledger);
    twi_check(ledger->confirmed <= ledger->looked);
    twi_check_full(twi_ledger_is_valid(ledger));
}

void twi_ledger_end_look(struct twi_ledger *ledger) {
    ledger->looked = 0;
    if (ledger->replicated > ledger->confirmed) ledger->replicated = ledger->confirmed;
}

uint64_t twi_ledger_roll_back(struct twi_ledger *ledger, const struct twi_reply_head *head, struct twi_batch *step,
                              uint64_t nonce) {
    twi_check(step != NULL && head->last <= ledger->last);
    ledger->confirmed = head->last;
    seek_unconfirmed(ledger);
    twi_ledger_end_look(ledger);
    struct twi_batch *next = twi_ledger_unconfirmed(ledger);
    count_replay_bytes(ledger);
    if ((next ? next->before : ledger->last) == head->last) {
        twi_batch_free(step);
        return 0;
    }
    if (next && next->is_step) { /* Redis is further back than last time, so that step becomes longer */
        twi_batch_free(step);
        step = next;
        step->before = head->last;
    } else {
        step->nonce = nonce;
        ledger_step_over(ledger, step, next, head->last);
    }
    /* Another program may have written the sums in Redis. */
    uint64_t plus = head->plus_sum < step->plus_sum ? step->plus_sum - head->plus_sum : 0;
    uint64_t minus = head->minus_sum < step->minus_sum ? step->minus_sum - head->minus_sum : 0;
    uint64_t units = plus + minus;
    uint64_t lost = less_missing(ledger, units, head->last, step->number);
    twi_check(lost <= units);
    twi_ledger_note_missing(ledger, step->number, lost);
    twi_check_full(twi_ledger_is_valid(ledger));
    return lost;
}

uint64_t twi_ledger_replay_drop(struct twi_ledger *ledger, uint64_t above) {
    uint64_t sum = 0;
    while (ledger->head && ledger->head->number <= ledger->acked) {
        struct twi_batch *batch = ledger->head;
        if (batch->number > above) sum += batch->plus + batch->minus - batch->struck;
        twi_ledger_remove(ledger, batch);
        twi_batch_free(batch);
    }
    set_replay_bytes(ledger, 0);
    twi_check(ledger->head == NULL || ledger->head->number > ledger->acked);
    return sum;
}

void twi_ledger_remove(struct twi_ledger *ledger, struct twi_batch *batch) {
    twi_check(ledger->head != NULL && batch != NULL);
    struct twi_batch *before = ledger->head == batch ? NULL : ledger->head;
    while (before && before->next != batch) before = before->next;
    twi_check(before != NULL || ledger->head == batch); /* it is in the list */
    if (before)
        before->next = batch->next;
    else
        ledger->head = batch->next;
    if (ledger->tail == batch) ledger->tail = before;
    if (ledger->unconfirmed == batch) ledger->unconfirmed = batch->next;
    batch->next = NULL;
    if (batch->is_kept) twi_replay_ring_drop(ledger->ring, batch);
}

void twi_ledger_free(struct twi_ledger *ledger) {
    while (ledger->head) {
        struct twi_batch *batch = ledger->head;
        ledger->head = batch->next;
        twi_batch_free(batch);
    }
    ledger->tail = ledger->unconfirmed = NULL;
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

void twi_ledger_keep(struct twi_ledger *ledger, struct twi_batch *batch) {
    twi_check(batch->items == NULL && batch->number <= ledger->acked);
    if (!ledger->ring || batch->is_kept || !twi_replay_ring_fits(ledger->ring, batch)) return;
    if (batch->number != ledger->acked)
        return; /* later ones are in the ring, or found no room: it would be behind them */
    bool is_counted = batch->number <= ledger->confirmed;
    size_t before = twi_batch_bytes(batch);
    bool is_kept;
    while (!(is_kept = twi_replay_ring_keep(ledger->ring, batch)) && ledger->head != batch &&
           twi_ledger_may_drop(ledger))
        twi_ledger_drop_first(ledger);
    if (is_kept && is_counted) set_replay_bytes(ledger, ledger->replay_bytes - before + twi_batch_bytes(batch));
}

/* The content of the settled batches is lost: a later one does not follow on them. */
static void drop_list(struct twi_ledger *ledger) {
    while (ledger->head) {
        struct twi_batch *batch = ledger->head;
        twi_ledger_remove(ledger, batch);
        twi_batch_free(batch);
    }
}

static void reach(struct twi_ledger *ledger, const struct twi_batch *batch) {
    ledger->confirmed = ledger->acked = ledger->last = batch->number;
    ledger->plus_sum = batch->plus_sum;
    ledger->minus_sum = batch->minus_sum;
    twi_ledger_note_missing(ledger, batch->number, batch->struck);
}

/* Links the batches of the ring that follow on each other, up to the newest one. */
static void link_kept(struct twi_ledger *ledger) {
    struct twi_batch read;
    bool is_damaged;
    for (uint64_t at = ledger->ring->first; twi_replay_ring_read(ledger->ring, &at, &read, &is_damaged);) {
        if (ledger->tail && ledger->tail->number != read.before) drop_list(ledger);
        struct twi_batch *batch = malloc(sizeof *batch);
        if (batch) {
            *batch = read;
            link_last(ledger, batch);
            continue;
        }
        drop_list(ledger);
        twi_replay_ring_drop(ledger->ring, &read);
    }
    if (!is_damaged) return;
    drop_list(ledger);
    twi_replay_ring_drop_all(ledger->ring);
}

void twi_ledger_inherit_kept(struct twi_ledger *ledger, uint64_t confirmed) {
    twi_check(ledger->head == NULL && ledger->acked == ledger->last);
    if (!ledger->ring) return;
    bool replays = confirmed < ledger->acked;
    link_kept(ledger);
    const struct twi_batch *newest = ledger->tail;
    if (newest && newest->number != ledger->acked && newest->before == ledger->acked) reach(ledger, newest);
    if (newest && newest->number != ledger->acked) drop_list(ledger);
    if (!ledger->head) twi_replay_ring_drop_all(ledger->ring); /* a gap before the edge may be left */
    for (struct twi_batch *batch = ledger->head; batch; batch = batch->next) {
        if (replays && batch->before == confirmed) ledger->confirmed = confirmed;
        /* the process before may have sent it again, without a reply */
        batch->strayed = batch->strayed || batch->number > ledger->confirmed;
    }
    seek_unconfirmed(ledger);
    count_replay_bytes(ledger);
}

void twi_ledger_inherit_settled(struct twi_ledger *ledger, struct twi_batch *batch, const struct twi_batch *noted) {
    twi_check(ledger->acked == ledger->last && noted->number > ledger->last);
    uint64_t confirmed = ledger->confirmed, acked = ledger->acked;
    bool follows = batch && batch->before == acked;
    if (!follows) {
        twi_batch_free(batch);
        drop_list(ledger);
        reach(ledger, noted);
        set_replay_bytes(ledger, 0);
        return;
    }
    link_last(ledger, batch);
    reach(ledger, batch);
    if (confirmed < acked) ledger->confirmed = confirmed;
    seek_unconfirmed(ledger);
    count_replay_bytes(ledger);
    twi_ledger_keep(ledger, batch);
}

bool twi_ledger_is_valid(const struct twi_ledger *ledger) {
    twi_check(ledger->replicated <= twi_ledger_known(ledger) && ledger->confirmed <= ledger->acked &&
              ledger->looked <= ledger->acked && ledger->acked <= ledger->last);
    const struct twi_batch *before = NULL, *unconfirmed = NULL;
    for (const struct twi_batch *batch = ledger->head; batch; before = batch, batch = batch->next) {
        twi_check(batch->before < batch->number && batch->number <= ledger->last);
        if (before) twi_check(batch->before == before->number || batch->number == before->number + 1);
        twi_check(batch->number > ledger->acked || batch->items == NULL);
        if (!unconfirmed && batch->number > ledger->confirmed) unconfirmed = batch;
    }
    twi_check(ledger->tail == before && ledger->unconfirmed == unconfirmed);
    return true;
}

/* ---- ticket ----
 * Labels: T1 with T2 lets the collection that begins for a ticket see its caller's earlier
 * adds. T3 with T4 lets a reader that sees a ticket settled see its outcome. T5 with T6 lets a reader that finds an
 * outcome overwritten see that it was refused. */

uint64_t twi_ticket_take(struct twi_tickets *tickets) {
    return twi_add_acqrel(&tickets->taken, 1) + 1; /* T1 releases the caller's earlier adds */
}

enum twi_ticket twi_ticket_state(struct twi_tickets *tickets, uint64_t ticket) {
    twi_check(ticket != 0);
    if (twi_load_acquire(&tickets->settled) < ticket) return TWI_TICKET_OPEN; /* T4, pairs with T3 */
    /* The first kept round that reaches the ticket is the ticket's round, or a later one. */
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < TWI_TICKET_OUTCOMES; i++) {
        uint64_t outcome = twi_load_acquire(&tickets->outcomes[i]); /* T6, pairs with T5 */
        if (outcome >> 1 >= ticket && outcome < first) first = outcome;
    }
    /* The ticket's round was overwritten after 256 more rounds. If an overwritten round could be the ticket's, and was
     * refused, the ticket counts as refused, because TW_OK would promise too much. */
    bool was_refused = (first & 1) != 0 || ticket <= twi_load_relaxed(&tickets->refused_before);
    return was_refused ? TWI_TICKET_REFUSED : TWI_TICKET_DONE;
}

bool twi_ticket_waits(const struct twi_tickets *tickets) {
    return twi_load_relaxed(&tickets->taken) != twi_load_relaxed(&tickets->settled); /* a hint */
}

bool twi_ticket_begin(struct twi_tickets *tickets) {
    twi_check(tickets->active || (tickets->stores_short == 0 && !tickets->collecting));
    uint64_t taken = twi_load_acquire(&tickets->taken); /* T2, pairs with T1: read before the collection begins */
    if (tickets->active || taken == twi_load_relaxed(&tickets->settled))
        return false; /* settled: only the turn writes it */
    tickets->active = tickets->collecting = true;
    tickets->refused = false;
    tickets->until = taken;
    twi_check(tickets->until != 0);
    return true;
}

void twi_ticket_join(struct twi_tickets *tickets, struct twi_ticket_share *share) {
    twi_check(!share->again || share->is_short);
    if (!tickets->active || !tickets->collecting) return;
    tickets->stores_short += !share->is_short;
    share->is_short = share->again = true;
}

void twi_ticket_collected(struct twi_tickets *tickets) {
    twi_check(tickets->active || !tickets->collecting);
    tickets->collecting = false;
}

void twi_ticket_await(struct twi_ticket_share *share, uint64_t number) {
    twi_check(!share->again || share->is_short);
    if (!share->again) return;
    share->again = false;
    share->number = number;
}

void twi_ticket_refused(struct twi_tickets *tickets) {
    if (tickets->active) tickets->refused = true;
}

bool twi_ticket_renew(struct twi_tickets *tickets) {
    if (tickets->active) tickets->collecting = true;
    return tickets->active;
}

bool twi_ticket_renew_share(struct twi_tickets *tickets, struct twi_ticket_share *share) {
    twi_check(!share->again || share->is_short);
    if (!tickets->active) return false;
    tickets->stores_short += !share->is_short;
    share->is_short = share->again = true;
    return twi_ticket_renew(tickets);
}

void twi_ticket_acknowledged(struct twi_tickets *tickets, struct twi_ticket_share *share, uint64_t acked) {
    twi_check(!share->is_short || tickets->stores_short != 0);
    if (!share->is_short || share->again || acked < share->number) return;
    share->is_short = false;
    tickets->stores_short--;
    twi_ticket_settle(tickets);
}

void twi_ticket_settle(struct twi_tickets *tickets) {
    twi_check(tickets->active || tickets->stores_short == 0);
    if (!tickets->active || tickets->collecting || tickets->stores_short != 0) return;
    _Atomic uint64_t *outcome = &tickets->outcomes[tickets->round++ % TWI_TICKET_OUTCOMES];
    uint64_t before = twi_load_relaxed(outcome); /* only the turn writes it */
    if ((before & 1) != 0) twi_store_relaxed(&tickets->refused_before, before >> 1);
    twi_store_release(outcome,
                      tickets->until << 1 | tickets->refused);       /* T5: whoever misses the old one sees the mark */
    twi_check(tickets->until > twi_load_relaxed(&tickets->settled)); /* the round settles at least one ticket */
    tickets->active = false;
    twi_store_release(&tickets->settled, tickets->until); /* T3 */
}
