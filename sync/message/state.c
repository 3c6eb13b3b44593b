/* state.c -- see state.h. */
#include "sync/message/state.h"

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/port/services.h"

#include <stdint.h>
#include <string.h>

/* The ledger whose window begins with the oldest batch that may be dropped. While a rewind awaits replies, these may
 * belong to any batch of the replay buffer. Returns NULL if there is none. */
static struct twi_ledger *oldest(const struct twi_sync *sync) {
    struct twi_ledger *first = NULL;
    for (uint32_t i = 0; i < sync->store_count; i++) {
        struct twi_ledger *ledger = &sync->stores[i]->ledger;
        if (sync->stores[i]->rewind || !twi_ledger_may_drop(ledger)) continue;
        if (!first || ledger->head->frozen_ms < first->head->frozen_ms) first = ledger;
    }
    return first;
}

void twi_sync_trim(struct twi_sync *sync, struct twi_store *store, int64_t now_ms) {
    twi_check(sync->store_count != 0);
    struct twi_ledger *ledger;
    twi_ledger_trim(&store->ledger, now_ms);
    if (sync->store_count == 1) return; /* the ledger has done it */
    while (sync->replay_bytes > store->ledger.replay_bytes_max && (ledger = oldest(sync)) != NULL)
        twi_ledger_drop_first(ledger);
}

struct twi_store *twi_sync_store_of(struct twi_sync *sync, const char *name, size_t size) {
    return sync->by_slot ? sync->by_slot->store_of(sync, twi_key_slot_of(name, size)) : sync->stores[0];
}

uint64_t twi_sync_random(tw_engine *engine) {
    uint64_t bits;
    twi_port_random(engine, &bits, sizeof bits);
    return bits;
}

void twi_sync_fill_random(void *engine, void *out, size_t size) {
    twi_check(out != NULL && size != 0);
    twi_port_random(engine, out, size);
}

/* ---- estate ---- */

size_t twi_estate_replay_bytes(const tw_options *options) {
    const size_t grain = TWI_REPLAY_RING_GRAIN;
    if (options->merge != TW_MERGE_SCRIPT) return 0; /* without a ledger there is never a replay */
    size_t bytes = options->replay_bytes_max < SIZE_MAX / 2 ? (size_t)options->replay_bytes_max : SIZE_MAX / 2;
    return bytes < grain ? grain : bytes / grain * grain;
}

size_t twi_estate_bytes(const tw_options *options) {
    return sizeof(struct twi_estate) + TWI_REPLAY_RING_GRAIN + twi_estate_replay_bytes(options);
}

struct twi_inflight *twi_estate_places(struct twi_estate *estate) {
    return estate ? estate->places : NULL;
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */

static struct twi_estate_head *current_head(struct twi_estate *estate) {
    uint32_t current = twi_load_relaxed(&estate->current);
    return current != 0 ? &estate->heads[current - 1] : NULL;
}

static struct twi_estate_head *other_head(struct twi_estate *estate) {
    return &estate->heads[twi_load_relaxed(&estate->current) == 1];
}

static void fill(struct twi_estate_head *head, const struct twi_sync *sync, const struct twi_store *store) {
    const struct twi_ledger *ledger = &store->ledger;
    memcpy(head->identity.name, ledger->name, sizeof head->identity.name);
    memcpy(head->identity.marker, ledger->marker, sizeof head->identity.marker);
    head->identity.name_size = ledger->name_size;
    head->marker_known = ledger->marker_known;
    head->confirmed = ledger->confirmed;
    head->acked = ledger->acked;
    head->missing = ledger->missing;
    head->side = sync->sharing.ring.side;
    twi_ledger_sums_acked(ledger, &head->plus_sum, &head->minus_sum);
    head->formers = store->formers;
    head->known = store->known;
    head->assumed = store->assumed;
    head->lives = sync->lives;
}

/* The head is whole. The order within this process counts. */
static void publish(struct twi_estate *estate, struct twi_estate_head *head, uint32_t step) {
    twi_store_relaxed(&head->step, step);
    twi_store_release(&estate->current, (uint32_t)(head - estate->heads) + 1);
}

void twi_estate_save(struct twi_sync *sync, const struct twi_store *store) {
    struct twi_estate *estate = sync->sharing.estate;
    if (!estate) return;
    const struct twi_estate_head *before = current_head(estate);
    bool was_reported = before == NULL || twi_load_relaxed(&before->step) == TWI_ESTATE_SETTLED;
    fill(other_head(estate), sync, store);
    publish(estate, other_head(estate), was_reported ? TWI_ESTATE_SETTLED : TWI_ESTATE_REPORTS);
}

/* These are the values that begin_instance(), end_opening() and the functions after them give the store
 * (turn/instance.c). */
void twi_estate_intend(struct twi_sync *sync, const struct twi_store *store, const struct twi_reply_head *reply,
                       int64_t now_ms) {
    struct twi_estate *estate = sync->sharing.estate;
    if (!estate) return;
    struct twi_estate_head *head = other_head(estate);
    fill(head, sync, store);
    head->identity = store->candidate;
    head->confirmed = head->acked = head->plus_sum = head->minus_sum = 0;
    head->missing = (struct twi_ledger_missing){0};
    head->formers.has_any = false;
    memcpy(head->formers.names[head->formers.next++ % TWI_FORMERS], store->ledger.name, sizeof store->ledger.name);
    head->marker_known = reply->marker != NULL && reply->marker_size < sizeof head->identity.marker;
    if (head->marker_known) {
        memcpy(head->identity.marker, reply->marker, reply->marker_size + 1);
        memcpy(head->known.markers[head->known.next++ % TWI_STORES_KNOWN], reply->marker, reply->marker_size + 1);
    }
    head->assumed.is_open = true;
    head->assumed.is_joined = false;
    head->assumed.life = sync->lives;
    head->assumed.unknown_since_ms = 0;
    head->assumed.written_ms = head->assumed.entered_ms = now_ms;
    head->assumed.entered_redis_ms = reply->redis_ms;
    head->before = twi_port_restore_before(sync->engine, store->index);
    publish(estate, head, TWI_ESTATE_RESTORES);
}

void twi_estate_has_reported(struct twi_sync *sync) {
    struct twi_estate_head *head = sync->sharing.estate ? current_head(sync->sharing.estate) : NULL;
    if (head && twi_load_relaxed(&head->step) == TWI_ESTATE_REPORTS) twi_store_relaxed(&head->step, TWI_ESTATE_SETTLED);
}

/* ---- inheriting -------------------------------------------------------------------------------------------------- */

static void take_head(struct twi_sync *sync, struct twi_store *store, const struct twi_estate_head *head) {
    struct twi_ledger *ledger = &store->ledger;
    memcpy(ledger->name, head->identity.name, sizeof ledger->name);
    memcpy(ledger->marker, head->identity.marker, sizeof ledger->marker);
    ledger->name_size = head->identity.name_size;
    ledger->marker_known = head->marker_known;
    ledger->confirmed = ledger->acked = ledger->last = head->acked;
    ledger->plus_sum = head->plus_sum;
    ledger->minus_sum = head->minus_sum;
    ledger->missing = head->missing;
    store->formers = head->formers;
    store->known = head->known;
    store->assumed = head->assumed;
    store->assumed.look = (struct twi_store_look){0};
    store->assumed.merged = (struct twi_store_merged){0};
    sync->lives = head->lives;
}

/* The number of a place whose batch was being settled is acknowledged: Redis had answered. Not so if one before it
 * waits for its answer, as when a process ends while it gives its instance up. */
static void pass(struct twi_ledger *ledger, const struct twi_inflight *place) {
    if (place->batch.number <= ledger->last || ledger->last != ledger->acked) return;
    twi_ledger_inherit_settled(ledger, twi_inflight_settled(place), &place->batch);
}

/* The place with the lowest number above `number`; NULL if there is none. */
static struct twi_inflight *next_place(struct twi_estate *estate, uint64_t number) {
    struct twi_inflight *next = NULL;
    for (uint32_t i = 0; i < TWI_INFLIGHT_PLACES; i++) {
        struct twi_inflight *place = &estate->places[i];
        if (twi_load_relaxed(&place->state) == TWI_INFLIGHT_FREE || place->batch.number <= number) continue;
        if (!next || place->batch.number < next->batch.number) next = place;
    }
    return next;
}

static void take_places(struct twi_sync *sync, struct twi_store *store) {
    struct twi_ledger *ledger = &store->ledger;
    struct twi_inflight *place;
    for (uint64_t number = 0; (place = next_place(sync->sharing.estate, number)) != NULL;) {
        const struct twi_batch noted = place->batch;
        bool was_answered = twi_load_relaxed(&place->state) == TWI_INFLIGHT_SETTLING;
        number = noted.number;
        if (!was_answered && number <= ledger->acked) { /* its number was saved, so all its items are settled */
            twi_inflight_free(place);
            continue;
        }
        struct twi_batch *step = twi_batch_empty(noted.frozen_ms);
        struct twi_batch *batch = twi_inflight_inherit(place, step != NULL);
        if (batch) {
            twi_ledger_inherit(ledger, batch, step, twi_sync_random(sync->engine));
            continue;
        }
        twi_batch_free(step);
        if (was_answered) {
            pass(ledger, place);
            twi_estate_save(sync, store); /* before the place is free: this process may end, too */
        }
        twi_inflight_free(place);
    }
}

/* The replay buffer lies behind the estate. The batches of an instance that is left are part of what the counters hold,
 * and an instance that is being restored has none. */
static void take_replay(struct twi_sync *sync, struct twi_store *store, const struct twi_estate_head *head,
                        uint32_t step) {
    struct twi_estate *estate = sync->sharing.estate;
    uintptr_t behind = (uintptr_t)(estate + 1) + TWI_REPLAY_RING_GRAIN - 1;
    char *bytes = (char *)(behind / TWI_REPLAY_RING_GRAIN * TWI_REPLAY_RING_GRAIN);
    struct twi_replay_ring *ring = store->ledger.ring = &sync->sharing.ring;
    twi_replay_ring_begin(ring, &estate->replay, bytes, sync->sharing.replay_bytes, head ? head->side : 0);
    if (step == TWI_ESTATE_RESTORES) twi_replay_ring_drop_all(ring);
    twi_ledger_inherit_kept(&store->ledger, head ? head->confirmed : 0);
}

/* What was in flight went to the store that was left, and is unsent again. */
static void note_places_adrift(struct twi_estate *estate) {
    for (uint32_t i = 0; i < TWI_INFLIGHT_PLACES; i++) {
        if (twi_load_relaxed(&estate->places[i].state) == TWI_INFLIGHT_FREE) continue;
        twi_inflight_note_adrift(&estate->places[i]);
        twi_inflight_free(&estate->places[i]);
    }
}

/* The process before may have ended in the middle of a restoration, or before it reported that. */
static void finish_restoration(struct twi_sync *sync, struct twi_store *store, uint32_t step) {
    if (step == TWI_ESTATE_SETTLED) return;
    if (step == TWI_ESTATE_RESTORES) {
        twi_port_restore_undo(sync->engine, store->index, &current_head(sync->sharing.estate)->before);
        uint64_t lost = twi_port_restore(sync->engine, store->index);
        twi_port_count(sync->engine, rollbacks, 1);
        twi_port_count(sync->engine, lost, (int64_t)lost);
        twi_estate_save(sync, store);
    }
    twi_port_log(sync->engine, TW_LOG_ERROR, TW_EVENT_ROLLBACK,
                 "Redis was wiped, and the process that led ended while it restored it; what the counters hold is sent "
                 "again");
    twi_estate_has_reported(sync);
}

void twi_estate_inherit(struct twi_sync *sync, struct twi_store *store) {
    struct twi_estate *estate = sync->sharing.estate;
    twi_check(estate != NULL && store->ledger.head == NULL && store->ledger.name_size == 0);
    const struct twi_estate_head *head = current_head(estate);
    uint32_t step = head ? twi_load_relaxed(&head->step) : TWI_ESTATE_SETTLED;
    sync->serials = estate->serials;
    for (uint32_t i = 0; i < TWI_INFLIGHT_PLACES; i++) twi_inflight_undo(&estate->places[i]);
    if (step == TWI_ESTATE_RESTORES) note_places_adrift(estate);
    twi_port_inherit_begin(sync->engine);
    if (head) take_head(sync, store, head);
    take_replay(sync, store, head, step);
    take_places(sync, store);
    store->assumed.is_restoring = twi_ledger_is_replaying(&store->ledger);
    store->ledger.replicated = store->ledger.awaits_replicas ? 0 : store->ledger.confirmed;
    store->sent_number = store->ledger.confirmed;
    twi_port_inherit_end(sync->engine);
    finish_restoration(sync, store, step);
    twi_check_full(twi_ledger_is_valid(&store->ledger));
}
