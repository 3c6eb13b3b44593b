/* poison.c -- see poison.h: an array, and chains over it by the counter's address.
 * Always true: each entry is in the chain of its bucket; dropping one moves the last into its place. */
#include "sync/batch/poison.h"

#include <stdlib.h>

#define ROOM_FIRST 64u

static uint32_t *bucket_of(const struct twi_poison *poison, const struct twi_cell *cell) {
    uint64_t mixed = (uint64_t)(uintptr_t)cell * UINT64_C(0x9E3779B97F4A7C15);
    return &poison->buckets[(mixed >> 32) & (poison->room - 1)];
}

static struct twi_poisoned *find(const struct twi_poison *poison, const struct twi_item *item) {
    for (uint32_t at = poison->count ? *bucket_of(poison, item->cell) : 0; at != 0;) {
        struct twi_poisoned *entry = &poison->entries[at - 1];
        if (entry->cell == item->cell && entry->generation == item->generation) return entry;
        at = entry->next;
    }
    return NULL;
}

static void chain(struct twi_poison *poison, uint32_t index) {
    uint32_t *bucket = bucket_of(poison, poison->entries[index].cell);
    poison->entries[index].next = *bucket;
    *bucket = index + 1;
}

static void unchain(struct twi_poison *poison, uint32_t index) {
    uint32_t *link = bucket_of(poison, poison->entries[index].cell);
    while (*link != index + 1) link = &poison->entries[*link - 1].next;
    *link = poison->entries[index].next;
}

static void drop(struct twi_poison *poison, uint32_t index) {
    uint32_t last = poison->count - 1;
    unchain(poison, index);
    if (index != last) {
        unchain(poison, last);
        poison->entries[index] = poison->entries[last];
        chain(poison, index);
    }
    poison->count = last;
}

static bool grow(struct twi_poison *poison) {
    uint32_t room = poison->room ? poison->room * 2 : ROOM_FIRST;
    if (room > TWI_POISON_ENTRIES) return false;
    struct twi_poisoned *entries = realloc(poison->entries, room * sizeof *entries);
    if (!entries) return false;
    poison->entries = entries;
    uint32_t *buckets = calloc(room, sizeof *buckets);
    if (!buckets) return false;
    free(poison->buckets);
    poison->buckets = buckets;
    poison->room = room;
    for (uint32_t i = 0; i < poison->count; i++) chain(poison, i);
    return true;
}

static struct twi_poisoned *add_new(struct twi_poison *poison, const struct twi_item *item, int64_t now_ms) {
    if (poison->count == poison->room) (void)twi_poison_count(poison, now_ms);
    if (poison->count == poison->room && !grow(poison)) return NULL;
    struct twi_poisoned *entry = &poison->entries[poison->count];
    *entry = (struct twi_poisoned){.generation = item->generation, .cell = item->cell};
    chain(poison, poison->count++);
    return entry;
}

static uint32_t longer(uint32_t wait_ms) {
    if (wait_ms == 0) return TWI_POISON_WAIT_MIN_MS;
    return wait_ms < TWI_POISON_WAIT_MAX_MS / 2 ? wait_ms * 2 : TWI_POISON_WAIT_MAX_MS;
}

uint32_t twi_poison_add(struct twi_poison *poison, const struct twi_item *item, uint64_t last, int64_t now_ms,
                        bool *first) {
    struct twi_poisoned *entry = find(poison, item);
    *first = false;
    if (!entry) {
        entry = add_new(poison, item, now_ms);
        if (!entry) return TWI_POISON_WAIT_MAX_MS;
        *first = true;
    }
    /* Batches that were under way at its last refusal are not a new try. */
    if (*first || now_ms >= entry->again_ms) {
        entry->wait_ms = longer(entry->wait_ms);
        entry->again_ms = now_ms + entry->wait_ms;
    }
    entry->number = last;
    entry->until_ms = now_ms + 3 * (int64_t)entry->wait_ms;
    return entry->wait_ms;
}

bool twi_poison_remove(struct twi_poison *poison, const struct twi_item *item, uint64_t number) {
    struct twi_poisoned *entry = find(poison, item);
    if (!entry) return false;
    if (number > entry->number) drop(poison, (uint32_t)(entry - poison->entries));
    return true;
}

void twi_poison_renumber(struct twi_poison *poison, uint64_t last) {
    for (uint32_t i = 0; i < poison->count; i++) poison->entries[i].number = last;
}

size_t twi_poison_count(struct twi_poison *poison, int64_t now_ms) {
    for (uint32_t i = 0; i < poison->count;) {
        if (poison->entries[i].until_ms < now_ms)
            drop(poison, i);
        else
            i++;
    }
    return poison->count;
}

void twi_poison_free(struct twi_poison *poison) {
    free(poison->entries);
    free(poison->buckets);
}
