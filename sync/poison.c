/* poison.c -- see poison.h: a small table, searched only while something is refused. */
#include "sync/poison.h"

static size_t find(const struct twi_poison *poison, const struct twi_item *item) {
    size_t i = 0;
    while (i < poison->count &&
           (poison->entries[i].cell != item->cell || poison->entries[i].generation != item->generation))
        i++;
    return i;
}

static void drop(struct twi_poison *poison, size_t i) {
    poison->entries[i] = poison->entries[--poison->count];
}

uint32_t twi_poison_add(struct twi_poison *poison, const struct twi_item *item, uint64_t last, int64_t now_ms,
                        bool *first) {
    size_t i = find(poison, item);
    *first = i == poison->count;
    if (i == TWI_POISON_ENTRIES) return TWI_POISON_WAIT_MAX_MS;
    if (*first) {
        poison->count++;
        poison->entries[i].generation = item->generation;
        poison->entries[i].cell = item->cell;
        poison->entries[i].wait_ms = TWI_POISON_WAIT_MIN_MS;
    } else if (poison->entries[i].wait_ms < TWI_POISON_WAIT_MAX_MS) {
        poison->entries[i].wait_ms *= 2;
        if (poison->entries[i].wait_ms > TWI_POISON_WAIT_MAX_MS) poison->entries[i].wait_ms = TWI_POISON_WAIT_MAX_MS;
    }
    poison->entries[i].number = last;
    poison->entries[i].until_ms = now_ms + 3 * (int64_t)poison->entries[i].wait_ms;
    return poison->entries[i].wait_ms;
}

bool twi_poison_remove(struct twi_poison *poison, const struct twi_item *item, uint64_t number) {
    size_t i = find(poison, item);
    if (i == poison->count) return false;
    if (number > poison->entries[i].number) drop(poison, i);
    return true;
}

void twi_poison_renumber(struct twi_poison *poison, uint64_t last) {
    for (size_t i = 0; i < poison->count; i++) poison->entries[i].number = last;
}

size_t twi_poison_count(struct twi_poison *poison, int64_t now_ms) {
    for (size_t i = 0; i < poison->count;) {
        if (poison->entries[i].until_ms < now_ms)
            drop(poison, i);
        else
            i++;
    }
    return poison->count;
}
