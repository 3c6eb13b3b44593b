/* inflight.c -- see inflight.h. */
#include "sync/batch/inflight.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"

static struct twi_inflight *free_place(struct twi_inflight *places) {
    for (uint32_t i = 0; i < TWI_INFLIGHT_PLACES; i++)
        if (twi_load_relaxed(&places[i].state) == TWI_INFLIGHT_FREE) return &places[i];
    return NULL;
}

/* A batch without arguments has no data. */
static void put_bytes(void *to, const void *from, size_t size) {
    if (size != 0) memcpy(to, from, size);
}

bool twi_inflight_note(struct twi_inflight *places, struct twi_batch *batch) {
    if (!places || batch->place) return true;
    struct twi_inflight *place = free_place(places);
    if (!place) return false;
    twi_check(batch->item_count <= TWI_BATCH_ITEMS_MAX);
    place->batch = *batch;
    place->batch.item_count = batch->items ? batch->item_count : 0;
    place->key_bytes = batch->keys.size;
    place->arg_bytes = batch->args.size;
    if (batch->items) memcpy(place->items, batch->items, batch->item_count * sizeof *batch->items);
    if (place->key_bytes + place->arg_bytes <= sizeof place->bytes) {
        put_bytes(place->bytes, batch->keys.data, place->key_bytes);
        put_bytes(place->bytes + place->key_bytes, batch->args.data, place->arg_bytes);
    }
    twi_store_relaxed(&place->settled, 0);
    batch->place = place;
    twi_store_release(&place->state, TWI_INFLIGHT_SENT); /* after all the rest: the order within this process counts */
    return true;
}

void twi_inflight_outcome(struct twi_batch *batch, uint32_t item, enum twi_inflight_outcome outcome) {
    if (batch->place) batch->place->outcomes[item] = (unsigned char)outcome;
}

void twi_inflight_outcome_of_all(struct twi_batch *batch, enum twi_inflight_outcome outcome) {
    if (batch->place) memset(batch->place->outcomes, (int)outcome, batch->place->batch.item_count);
}

static void note_next(struct twi_inflight *place, uint32_t item) {
    if (item < place->batch.item_count) place->acked_before[item] = twi_port_acked(&place->items[item]);
    twi_store_release(&place->settled, item); /* after that number, which the next process may need */
}

void twi_inflight_settle(struct twi_batch *batch) {
    if (!batch->place || !batch->items) return;
    note_next(batch->place, 0);
    twi_store_release(&batch->place->state, TWI_INFLIGHT_SETTLING);
}

/* If this process ends before the number is written, an item is noted twice. Then more units count as uncertain if that
 * store is back, and none is sent twice. */
void twi_inflight_note_adrift(struct twi_inflight *place) {
    uint32_t state = twi_load_relaxed(&place->state);
    if (state == TWI_INFLIGHT_SENT) {
        twi_store_relaxed(&place->settled, 0);
        twi_store_release(&place->state, TWI_INFLIGHT_ADRIFT);
    } else if (state != TWI_INFLIGHT_ADRIFT) {
        return; /* settled: by its outcome, or because all are noted and were given back */
    }
    for (uint32_t i = twi_load_relaxed(&place->settled); i < place->batch.item_count; i++) {
        twi_port_adrift(&place->items[i]);
        twi_store_release(&place->settled, i + 1); /* after the note */
    }
}

void twi_inflight_next(struct twi_batch *batch, uint32_t item) {
    if (batch->place) note_next(batch->place, item);
}

void twi_inflight_forget(struct twi_batch *batch) {
    if (batch->place) twi_inflight_free(batch->place);
    batch->place = NULL;
}

void twi_inflight_free(struct twi_inflight *place) {
    twi_store_release(&place->state, TWI_INFLIGHT_FREE);
}

/* ---- in the next process ------------------------------------------------------------------------------------- */

static bool is_begun(const struct twi_inflight *place) {
    uint32_t state = twi_load_relaxed(&place->state);
    return state == TWI_INFLIGHT_SETTLING || state == TWI_INFLIGHT_GIVING_UP;
}

void twi_inflight_undo(struct twi_inflight *place) {
    if (!is_begun(place)) return;
    uint32_t item = twi_load_relaxed(&place->settled);
    if (item < place->batch.item_count) twi_port_undo_acked(&place->items[item], place->acked_before[item]);
}

static void settle(const struct twi_item *item, enum twi_inflight_outcome outcome) {
    static const struct twi_reply applied = {0};
    switch (outcome) {
    case TWI_OUTCOME_APPLIED: twi_port_acknowledge(item, &applied); return;
    case TWI_OUTCOME_RETURNS: twi_port_return(item, 0); return;
    case TWI_OUTCOME_LATE:
    case TWI_OUTCOME_UNCERTAIN: break;
    }
    if (item->delta == 0)
        twi_port_return(item, 0);
    else
        twi_port_give_up(item, outcome == TWI_OUTCOME_LATE ? TW_LOST_LATE : TW_LOST_UNCERTAIN);
}

/* Returns false if there is no memory, or if the place had no room for the bytes. */
static bool copy_bytes(const struct twi_inflight *place, struct twi_batch *batch) {
    *batch = place->batch;
    batch->next = NULL;
    batch->keys = batch->args = (struct twi_bytes){0};
    batch->items = NULL;
    if (place->key_bytes + place->arg_bytes > sizeof place->bytes) return false;
    twi_bytes_add(&batch->keys, place->bytes, place->key_bytes);
    twi_bytes_add(&batch->args, place->bytes + place->key_bytes, place->arg_bytes);
    return !batch->keys.failed && !batch->args.failed;
}

static bool copy(const struct twi_inflight *place, struct twi_batch *batch) {
    if (!copy_bytes(place, batch)) return false;
    batch->copies_open = 1; /* how the one ended that the process before has sent is not known */
    batch->strayed = true;
    if (place->batch.item_count == 0) return true;
    batch->items = malloc(place->batch.item_count * sizeof *batch->items);
    if (batch->items) memcpy(batch->items, place->items, place->batch.item_count * sizeof *batch->items);
    return batch->items != NULL;
}

static struct twi_batch *batch_of(struct twi_inflight *place) {
    struct twi_batch *batch = malloc(sizeof *batch);
    if (!batch || copy(place, batch)) return batch;
    batch->place = NULL;
    twi_batch_free(batch);
    return NULL;
}

struct twi_batch *twi_inflight_settled(const struct twi_inflight *place) {
    struct twi_batch *batch = malloc(sizeof *batch);
    bool is_whole = batch && copy_bytes(place, batch);
    if (batch) {
        batch->place = NULL;
        batch->copies_open = 0;
    }
    for (uint32_t i = 0; is_whole && i < place->batch.item_count; i++) {
        if (place->outcomes[i] == TWI_OUTCOME_RETURNS) (void)twi_batch_set_aside(batch, i);
        if (place->outcomes[i] == TWI_OUTCOME_LATE) (void)twi_batch_strike(batch, i);
        if (place->outcomes[i] == TWI_OUTCOME_UNCERTAIN) batch->was_short = true;
    }
    if (is_whole) return batch;
    twi_batch_free(batch);
    return NULL;
}

/* This process may end, too, and leave the rest to the next one. */
static void settle_from(struct twi_inflight *place, uint32_t first) {
    bool was_answered = twi_load_relaxed(&place->state) == TWI_INFLIGHT_SETTLING;
    for (uint32_t i = first; i < place->batch.item_count; i++) {
        note_next(place, i);
        settle(&place->items[i], was_answered ? place->outcomes[i] : TWI_OUTCOME_UNCERTAIN);
    }
    note_next(place, place->batch.item_count);
}

struct twi_batch *twi_inflight_inherit(struct twi_inflight *place, bool has_memory) {
    twi_check(twi_load_relaxed(&place->state) != TWI_INFLIGHT_FREE);
    uint32_t first = is_begun(place) ? twi_load_relaxed(&place->settled) : 0;
    for (uint32_t i = first; i < place->batch.item_count; i++) twi_port_inherit(&place->items[i]);
    if (!is_begun(place)) {
        struct twi_batch *batch = has_memory ? batch_of(place) : NULL;
        if (batch) {
            batch->place = place;
            return batch;
        }
        note_next(place, 0);
        twi_store_release(&place->state, TWI_INFLIGHT_GIVING_UP);
    }
    settle_from(place, first);
    return NULL;
}
