/* estate.c -- see estate.h. */
#include "sync/message/estate.h"

#include <string.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/port/services.h"

struct twi_inflight *twi_estate_places(struct twi_estate *estate) {
    return estate ? estate->places : NULL;
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */

void twi_estate_save(struct twi_sync *sync, const struct twi_store *store) {
    struct twi_estate *estate = sync->sharing.estate;
    if (!estate) return;
    const struct twi_ledger *ledger = &store->ledger;
    uint32_t next = twi_load_relaxed(&estate->current) == 1 ? 2 : 1;
    struct twi_estate_head *head = &estate->heads[next - 1];
    memcpy(head->identity.name, ledger->name, sizeof head->identity.name);
    memcpy(head->identity.marker, ledger->marker, sizeof head->identity.marker);
    head->identity.name_size = ledger->name_size;
    head->marker_known = ledger->marker_known;
    head->acked = ledger->acked;
    twi_ledger_sums_acked(ledger, &head->plus_sum, &head->minus_sum);
    head->formers = store->formers;
    head->known = store->known;
    head->assumed = store->assumed;
    head->lives = sync->lives;
    twi_store_release(&estate->current, next); /* after the head: the order within this process counts */
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
    store->formers = head->formers;
    store->known = head->known;
    store->assumed = head->assumed;
    store->assumed.is_restoring = false;
    store->assumed.look = (struct twi_store_look){0};
    store->assumed.merged = (struct twi_store_merged){0};
    sync->lives = head->lives;
}

/* The number of a place whose batch was being settled is acknowledged: Redis had answered. */
static void pass(struct twi_ledger *ledger, const struct twi_batch *batch) {
    twi_check(ledger->head == NULL);
    if (batch->number <= ledger->last) return;
    ledger->confirmed = ledger->acked = ledger->last = batch->number;
    ledger->plus_sum = batch->plus_sum;
    ledger->minus_sum = batch->minus_sum;
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
            pass(ledger, &noted);
            twi_estate_save(sync, store); /* before the place is free: this process may end, too */
        }
        twi_inflight_free(place);
    }
}

void twi_estate_inherit(struct twi_sync *sync, struct twi_store *store) {
    struct twi_estate *estate = sync->sharing.estate;
    twi_check(store->ledger.head == NULL && store->ledger.name_size == 0);
    uint32_t current = twi_load_relaxed(&estate->current);
    sync->serials = estate->serials;
    for (uint32_t i = 0; i < TWI_INFLIGHT_PLACES; i++) twi_inflight_undo(&estate->places[i]);
    twi_port_inherit_begin(sync->engine);
    if (current != 0) take_head(sync, store, &estate->heads[current - 1]);
    take_places(sync, store);
    store->ledger.replicated = store->ledger.awaits_replicas ? 0 : store->ledger.confirmed;
    store->sent_number = store->ledger.confirmed;
    twi_port_inherit_end(sync->engine);
    twi_check_full(twi_ledger_is_valid(&store->ledger));
}
