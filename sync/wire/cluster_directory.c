/* cluster_directory.c -- see cluster_directory.h. The turn makes a table without the mutex, and replaces the old one
 * under the mutex. The table has room for some more endpoints, which only MOVED has named. */
#include "sync/wire/cluster_directory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/base/key_slot.h"
#include "engine/base/threads.h"

#define SPARE 32u /* endpoints besides those of the map */

struct table {
    uint32_t count, room;           /* of `endpoints` */
    uint16_t owners[TWI_KEY_SLOTS]; /* index of the endpoint + 1; 0 if it has no owner */
    struct twi_endpoint endpoints[];
};

struct moved {
    uint32_t slot;
    struct twi_endpoint to;
};

struct twi_directory {
    pthread_mutex_t lock;
    struct table *table;
    struct moved moved[TWI_DIRECTORY_MOVED_MAX]; /* that the turn has not fetched yet. A slot has at most one */
    uint32_t moved_count;
    bool is_wanted;
};

static struct table *make_table(uint32_t room) {
    struct table *table = calloc(1, sizeof *table + room * sizeof *table->endpoints);
    if (table) table->room = room;
    return table;
}

struct twi_directory *twi_directory_create(void) {
    struct twi_directory *directory = calloc(1, sizeof *directory);
    if (!directory) return NULL;
    directory->table = make_table(SPARE);
    if (!directory->table) {
        free(directory);
        return NULL;
    }
    pthread_mutex_init(&directory->lock, NULL);
    return directory;
}

void twi_directory_destroy(struct twi_directory *directory) {
    if (!directory) return;
    pthread_mutex_destroy(&directory->lock);
    free(directory->table);
    free(directory);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Returns its index + 1; 0 if there is no room. */
static uint16_t directory_place_of(struct table *table, const struct twi_endpoint *endpoint) {
    twi_check(table->count <= table->room);
    for (uint32_t i = 0; i < table->count; i++)
        if (twi_endpoint_equals(&table->endpoints[i], endpoint)) return (uint16_t)(i + 1);
    if (table->count == table->room) return 0;
    table->endpoints[table->count++] = *endpoint;
    return (uint16_t)table->count;
}

/* The numbers rise, so the endpoint of a slot's owner is found by bisection. A run of slots has one owner. */
static void directory_fill(struct table *table, const struct twi_cluster_map *map) {
    twi_check(table->count == 0 && table->room <= TWI_MAP_NODES_MAX);
    uint64_t numbers[TWI_MAP_NODES_MAX], last = 0;
    uint16_t place = 0;
    for (uint64_t node = 0; (node = twi_cluster_map_next(map, node)) != 0 && table->count < table->room;) {
        numbers[table->count] = node;
        table->endpoints[table->count++] = *twi_cluster_map_endpoint(map, node);
    }
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
        uint64_t owner = twi_cluster_map_owner(map, slot);
        if (owner != last) {
            uint32_t low = 0, high = table->count;
            while (low < high) {
                uint32_t middle = (low + high) / 2;
                if (numbers[middle] < owner)
                    low = middle + 1;
                else
                    high = middle;
            }
            place = owner != 0 && low < table->count && numbers[low] == owner ? (uint16_t)(low + 1) : 0;
            last = owner;
        }
        table->owners[slot] = place;
    }
}

bool twi_directory_set(struct twi_directory *directory, const struct twi_cluster_map *map) {
    uint32_t nodes = 0;
    for (uint64_t node = 0; (node = twi_cluster_map_next(map, node)) != 0;) nodes++;
    struct table *table = make_table(nodes + SPARE);
    if (!table) return false;
    table->room = nodes;
    directory_fill(table, map);
    table->room = nodes + SPARE;
    twi_lock(&directory->lock);
    struct table *before = directory->table;
    for (uint32_t i = 0; i < directory->moved_count; i++) {
        uint16_t place = directory_place_of(table, &directory->moved[i].to);
        if (place != 0) table->owners[directory->moved[i].slot] = place;
    }
    directory->table = table;
    twi_unlock(&directory->lock);
    free(before);
    return true;
}

bool twi_directory_find(struct twi_directory *directory, uint32_t slot, struct twi_endpoint *endpoint) {
    twi_check(slot < TWI_KEY_SLOTS);
    twi_lock(&directory->lock);
    uint16_t place = directory->table->owners[slot];
    twi_check(place <= directory->table->count);
    if (place != 0) *endpoint = directory->table->endpoints[place - 1];
    twi_unlock(&directory->lock);
    return place != 0;
}

/* ---- what callers learn ------------------------------------------------------------------------------------------ */

/* Under the lock. Returns false if there is no room. */
static bool directory_keep(struct twi_directory *directory, uint32_t slot, const struct twi_endpoint *to) {
    twi_check(slot < TWI_KEY_SLOTS && directory->moved_count <= TWI_DIRECTORY_MOVED_MAX);
    uint32_t at = 0;
    while (at < directory->moved_count && directory->moved[at].slot != slot) at++;
    if (at == TWI_DIRECTORY_MOVED_MAX) return false;
    if (at == directory->moved_count) directory->moved_count++;
    directory->moved[at] = (struct moved){.slot = slot, .to = *to};
    return true;
}

void twi_directory_note_moved(struct twi_directory *directory, uint32_t slot, const struct twi_endpoint *to) {
    twi_check(slot < TWI_KEY_SLOTS);
    twi_lock(&directory->lock);
    uint16_t place = directory_place_of(directory->table, to);
    bool is_kept = place != 0 && (directory->table->owners[slot] == place || directory_keep(directory, slot, to));
    if (place != 0) directory->table->owners[slot] = place;
    if (!is_kept) directory->is_wanted = true;
    twi_unlock(&directory->lock);
}

bool twi_directory_take_moved(struct twi_directory *directory, uint32_t *slot, struct twi_endpoint *to) {
    twi_check(slot != NULL && to != NULL);
    twi_lock(&directory->lock);
    bool any = directory->moved_count != 0;
    if (any) {
        *slot = directory->moved[0].slot;
        *to = directory->moved[0].to;
        memmove(directory->moved, directory->moved + 1, --directory->moved_count * sizeof *directory->moved);
    }
    twi_unlock(&directory->lock);
    return any;
}

void twi_directory_want(struct twi_directory *directory) {
    twi_lock(&directory->lock);
    directory->is_wanted = true;
    twi_unlock(&directory->lock);
}

bool twi_directory_take_wanted(struct twi_directory *directory) {
    twi_lock(&directory->lock);
    bool wanted = directory->is_wanted;
    directory->is_wanted = false;
    twi_unlock(&directory->lock);
    return wanted;
}
