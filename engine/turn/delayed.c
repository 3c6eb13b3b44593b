/* delayed.c -- see delayed.h. An array of entries, with hash chains by the counter's address.
 * Always true: each entry is in the chain of its bucket. Removing an entry moves the last entry into its place. */
#include "engine/turn/delayed.h"

#include <stdlib.h>
#include <string.h>

static uint32_t *bucket_of(const struct twi_delayed *delayed, const struct twi_cell *cell) {
    uint64_t mixed = (uint64_t)(uintptr_t)cell * UINT64_C(0x9E3779B97F4A7C15);
    return &delayed->buckets[(mixed >> 32) & (delayed->room - 1)];
}

static struct twi_delayed_item *find(const struct twi_delayed *delayed, const struct twi_cell *cell) {
    uint32_t at = delayed->count != 0 ? *bucket_of(delayed, cell) : 0;
    while (at != 0 && delayed->items[at - 1].item.cell != cell) at = delayed->items[at - 1].next;
    return at != 0 ? &delayed->items[at - 1] : NULL;
}

static void chain(struct twi_delayed *delayed, uint32_t index) {
    uint32_t *bucket = bucket_of(delayed, delayed->items[index].item.cell);
    delayed->items[index].next = *bucket;
    *bucket = index + 1;
}

static void unchain(struct twi_delayed *delayed, uint32_t index) {
    uint32_t *link = bucket_of(delayed, delayed->items[index].item.cell);
    while (*link != index + 1) link = &delayed->items[*link - 1].next;
    *link = delayed->items[index].next;
}

static bool grow(struct twi_delayed *delayed) {
    uint32_t room = delayed->room == 0 ? 64 : delayed->room * 2;
    if (room > TWI_DELAYED_MAX) return false;
    struct twi_delayed_item *items = realloc(delayed->items, room * sizeof *items);
    if (items == NULL) return false;
    delayed->items = items;
    uint32_t *buckets = calloc(room, sizeof *buckets);
    if (buckets == NULL) return false;
    free(delayed->buckets);
    delayed->buckets = buckets;
    delayed->room = room;
    for (uint32_t i = 0; i < delayed->count; i++) chain(delayed, i);
    return true;
}

enum twi_delaying twi_delayed_put(struct twi_delayed *delayed, const struct twi_item *item, int64_t due_ms) {
    struct twi_delayed_item *there = find(delayed, item->cell);
    if (there != NULL) {
        if (due_ms > there->due_ms) there->due_ms = due_ms;
        return TWI_DELAYED_ALREADY;
    }
    if (delayed->count == delayed->room && !grow(delayed)) return TWI_DELAYED_NO_ROOM;
    if (delayed->count == 0 || due_ms < delayed->due_ms) delayed->due_ms = due_ms;
    delayed->items[delayed->count] = (struct twi_delayed_item){.item = *item, .due_ms = due_ms};
    chain(delayed, delayed->count++);
    return TWI_DELAYED_NEW;
}

bool twi_delayed_holds(const struct twi_delayed *delayed, const struct twi_cell *cell) {
    return find(delayed, cell) != NULL;
}

static void drop(struct twi_delayed *delayed, uint32_t index) {
    uint32_t last = delayed->count - 1;
    unchain(delayed, index);
    if (index != last) {
        unchain(delayed, last);
        delayed->items[index] = delayed->items[last];
        chain(delayed, index);
    }
    delayed->count = last;
}

bool twi_delayed_take(struct twi_delayed *delayed, int64_t now_ms, uint32_t *at, struct twi_item *item) {
    if (delayed->count == 0 || now_ms < delayed->due_ms) return false;
    for (; *at < delayed->count; ++*at) {
        if (delayed->items[*at].due_ms > now_ms) continue;
        *item = delayed->items[*at].item;
        drop(delayed, *at);
        return true;
    }
    delayed->due_ms = INT64_MAX;
    for (uint32_t i = 0; i < delayed->count; i++)
        if (delayed->items[i].due_ms < delayed->due_ms) delayed->due_ms = delayed->items[i].due_ms;
    return false;
}

void twi_delayed_all_due(struct twi_delayed *delayed, int64_t now_ms) {
    for (uint32_t i = 0; i < delayed->count; i++) delayed->items[i].due_ms = now_ms;
    delayed->due_ms = now_ms;
}

void twi_delayed_clear(struct twi_delayed *delayed) {
    delayed->count = 0;
    if (delayed->buckets != NULL) memset(delayed->buckets, 0, delayed->room * sizeof *delayed->buckets);
}

void twi_delayed_free(struct twi_delayed *delayed) {
    free(delayed->items);
    free(delayed->buckets);
    *delayed = (struct twi_delayed){0};
}
