/* rejected.c -- see port/items.h. The book is an array of entries, with hash chains by the counter's address.
 * Always true: each entry is in the chain of its bucket. Removing an entry moves the last entry into its place. */
#include "engine/port/items.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/base/grow.h"

#define ROOM_FIRST 64u

static uint32_t *bucket_of(const struct twi_rejected *rejected, const struct twi_cell *cell) {
    uint64_t mixed = (uint64_t)(uintptr_t)cell * UINT64_C(0x9E3779B97F4A7C15);
    return &rejected->buckets[(mixed >> 32) & (rejected->bucket_count - 1)];
}

static struct twi_rejected_key *find(const struct twi_rejected *rejected, const struct twi_generation *generation,
                                     const struct twi_cell *cell) {
    for (uint32_t at = rejected->count != 0 ? *bucket_of(rejected, cell) : 0; at != 0;) {
        struct twi_rejected_key *key = &rejected->keys[at - 1];
        if (key->cell == cell && key->generation == generation) return key;
        at = key->next;
    }
    return NULL;
}

static void chain(struct twi_rejected *rejected, uint32_t index) {
    uint32_t *bucket = bucket_of(rejected, rejected->keys[index].cell);
    rejected->keys[index].next = *bucket;
    *bucket = index + 1;
}

static void unchain(struct twi_rejected *rejected, uint32_t index) {
    uint32_t *link = bucket_of(rejected, rejected->keys[index].cell);
    while (*link != index + 1) {
        twi_check(*link != 0);
        link = &rejected->keys[*link - 1].next;
    }
    *link = rejected->keys[index].next;
}

static void drop(struct twi_rejected *rejected, uint32_t index) {
    twi_check(index < rejected->count);
    uint32_t last = rejected->count - 1;
    unchain(rejected, index);
    if (index != last) {
        unchain(rejected, last);
        rejected->keys[index] = rejected->keys[last];
        chain(rejected, index);
    }
    rejected->count = last;
}

static bool make_room(struct twi_rejected *rejected) {
    if (rejected->count == TWI_REJECTED_MAX) return false;
    if (!twi_grow(&rejected->keys, sizeof *rejected->keys, &rejected->room, rejected->count + 1, ROOM_FIRST))
        return false;
    if (rejected->bucket_count == rejected->room) return true;
    uint32_t *buckets = calloc(rejected->room, sizeof *buckets);
    /* if there is no memory, the old buckets stay in use, and their chains become longer */
    if (buckets == NULL) return rejected->bucket_count != 0;
    free(rejected->buckets);
    rejected->buckets = buckets;
    rejected->bucket_count = rejected->room;
    for (uint32_t i = 0; i < rejected->count; i++) chain(rejected, i);
    return true;
}

/* Returns NULL if there is no room or no memory. */
static struct twi_rejected_key *enter(struct twi_rejected *rejected, const struct twi_item *item) {
    if (!make_room(rejected)) return NULL;
    struct twi_rejected_key *key = &rejected->keys[rejected->count];
    *key = (struct twi_rejected_key){.generation = item->generation, .cell = item->cell, .has_delta = item->delta != 0};
    chain(rejected, rejected->count++);
    return key;
}

void twi_rejected_clear(struct twi_rejected *rejected) {
    rejected->count = 0;
    if (rejected->buckets != NULL) memset(rejected->buckets, 0, rejected->bucket_count * sizeof *rejected->buckets);
}

void twi_rejected_free(struct twi_rejected *rejected) {
    free(rejected->keys);
    free(rejected->buckets);
    *rejected = (struct twi_rejected){0};
}

bool twi_rejected_is_valid(const struct twi_rejected *rejected) {
    uint32_t chained = 0;
    if (rejected->count > rejected->room || rejected->room > TWI_REJECTED_MAX) return false;
    for (uint32_t b = 0; b < rejected->bucket_count; b++)
        for (uint32_t at = rejected->buckets[b]; at != 0; at = rejected->keys[at - 1].next) {
            if (at > rejected->count || ++chained > rejected->count) return false;
            if (bucket_of(rejected, rejected->keys[at - 1].cell) != &rejected->buckets[b]) return false;
        }
    return chained == rejected->count;
}

/* ---- which counters wait ---- */

enum twi_waiting_since twi_rejected_wait(struct twi_rejected *rejected, const struct twi_item *item, int64_t due_ms) {
    struct twi_rejected_key *there = find(rejected, item->generation, item->cell);
    if (there != NULL) {
        if (due_ms > there->due_ms) there->due_ms = due_ms;
        return TWI_WAITS_ALREADY;
    }
    bool was_empty = rejected->count == 0;
    struct twi_rejected_key *key = enter(rejected, item);
    if (key == NULL) return TWI_WAITS_NOT;
    key->due_ms = due_ms;
    if (was_empty || due_ms < rejected->due_ms) rejected->due_ms = due_ms;
    return TWI_WAITS_FROM_NOW;
}

bool twi_rejected_waits(const struct twi_rejected *rejected, const struct twi_generation *generation,
                        const struct twi_cell *cell) {
    return find(rejected, generation, cell) != NULL;
}

bool twi_rejected_take(struct twi_rejected *rejected, int64_t now_ms, uint32_t *at, struct twi_rejected_key *key) {
    if (rejected->count == 0 || now_ms < rejected->due_ms) return false;
    for (; *at < rejected->count; ++*at) {
        if (rejected->keys[*at].due_ms > now_ms) continue;
        *key = rejected->keys[*at];
        drop(rejected, *at);
        return true;
    }
    rejected->due_ms = INT64_MAX;
    for (uint32_t i = 0; i < rejected->count; i++)
        if (rejected->keys[i].due_ms < rejected->due_ms) rejected->due_ms = rejected->keys[i].due_ms;
    twi_check_full(twi_rejected_is_valid(rejected));
    return false;
}

void twi_rejected_end_waits(struct twi_rejected *rejected, int64_t now_ms) {
    for (uint32_t i = 0; i < rejected->count; i++) rejected->keys[i].due_ms = now_ms;
    rejected->due_ms = now_ms;
}

/* ---- which counters are rejected ---- */

static uint32_t longer(uint32_t wait_ms) {
    if (wait_ms == 0) return TWI_REJECTED_WAIT_MIN_MS;
    return wait_ms < TWI_REJECTED_WAIT_MAX_MS / 2 ? wait_ms * 2 : TWI_REJECTED_WAIT_MAX_MS;
}

uint32_t twi_rejected_again(struct twi_rejected *rejected, const struct twi_item *item, uint64_t last, int64_t now_ms,
                            bool *first) {
    struct twi_rejected_key *key = find(rejected, item->generation, item->cell);
    *first = key == NULL;
    if (key == NULL && rejected->count == rejected->room) (void)twi_rejected_count(rejected, now_ms);
    if (key == NULL) key = enter(rejected, item);
    if (key == NULL) {
        *first = false;
        return TWI_REJECTED_WAIT_MAX_MS;
    }
    /* Batches that were under way when the key was rejected do not count as new tries. */
    if (*first || now_ms >= key->due_ms) {
        key->wait_ms = longer(key->wait_ms);
        key->due_ms = now_ms + key->wait_ms;
    }
    key->number = last;
    key->until_ms = now_ms + 3 * (int64_t)key->wait_ms;
    return key->wait_ms;
}

bool twi_rejected_settled(struct twi_rejected *rejected, const struct twi_item *item, uint64_t number) {
    const struct twi_rejected_key *key = find(rejected, item->generation, item->cell);
    if (key == NULL) return false;
    if (number > key->number) drop(rejected, (uint32_t)(key - rejected->keys));
    return true;
}

void twi_rejected_renumber(struct twi_rejected *rejected, uint64_t last) {
    for (uint32_t i = 0; i < rejected->count; i++) rejected->keys[i].number = last;
}

uint32_t twi_rejected_count(struct twi_rejected *rejected, int64_t now_ms) {
    for (uint32_t i = 0; i < rejected->count;) {
        if (rejected->keys[i].until_ms < now_ms)
            drop(rejected, i);
        else
            i++;
    }
    twi_check_full(twi_rejected_is_valid(rejected));
    return rejected->count;
}
