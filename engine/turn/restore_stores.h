/* restore_stores.h -- in which store a counter lies, and how many units of each window each store has acknowledged.
 *
 * One Redis is one store, with index 0, and a window has one sum (acked_units). Where keys have hash tags, a store is
 * what lies in one key slot of the names in Redis. Stores get their indexes in the order in which their slots are met.
 * Then each window with collected counts has a row, which is a sum for each store.
 * Always true: the sums of a row add up to acked_units. A row belongs to one window, or to one dropped window.
 * Threads: the turn only. */
#ifndef TWI_TURN_RESTORE_STORES_H
#define TWI_TURN_RESTORE_STORES_H

#include "engine/core/family.h"
#include "engine/core/store_map.h"
#include "engine/port/items.h"

/* The action of the walk on the counters of a store. */
enum twi_restore_walk {
    TWI_WALK_PASSES,   /* no action */
    TWI_WALK_RESTORES, /* they send again what the store had acknowledged */
    TWI_WALK_KEEPS     /* the store that is back already has the UNTOLD units */
};

struct twi_restore_store {
    enum twi_restore_walk walk;
    bool was_back;       /* a store that was left has come back before */
    bool distinct_again; /* in the walk, its counters of distinct elements send all their registers again */
    /* The next five count from the last time that a known store was left or came back. */
    uint32_t begun;  /* restorations */
    uint64_t untold; /* units of counters that are, or will be, UNTOLD; an upper bound */
    uint64_t away;   /* units that other stores acknowledged, and that the known store lacks */
    /* units that were UNTOLD and were refused, so that the known store may get them twice */
    uint64_t twice;
    uint64_t lacked; /* units that a store lacked when it was left, as the maximum over these stores */
};

struct twi_restore_row {
    uint64_t *units;    /* by store; NULL means that the row is free */
    uint32_t room;      /* stores */
    uint32_t next_free; /* index + 1 of the next free row */
};

struct twi_restore_stores {
    struct twi_store_map *map;               /* which slot is which store. NULL means that there is one store */
    struct twi_restore_store only, *more;    /* the first; and those from index 1 on */
    uint32_t room;                           /* room of `more` */
    struct twi_restore_row *rows;            /* a window refers to a row by index + 1 */
    uint32_t row_count, row_room, rows_free; /* rows_free is index + 1 of the first free row */
};

TWI_INLINE struct twi_restore_store *twi_restore_store_at(struct twi_restore_stores *stores, uint32_t store) {
    return store == 0 ? &stores->only : &stores->more[store - 1];
}
/* How many stores there are; the first one is there before it is met. */
TWI_INLINE uint32_t twi_restore_store_count(const struct twi_restore_stores *stores) {
    return stores->map == NULL || stores->map->count == 0 ? 1 : stores->map->count;
}
/* The store of a counter. TWI_STORE_NONE means that its slot was not met, so no store has anything of it. */
uint32_t twi_restore_store_of(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell);
/* The same of a counter that has no record any more. */
uint32_t twi_restore_store_of_key(tw_engine *engine, const struct twi_generation *generation, tw_key key);

/* Units that this store has acknowledged of the window. */
uint64_t twi_restore_acked(const struct twi_restore_stores *stores, const struct twi_generation *generation,
                           uint32_t store);
void twi_restore_row_add(struct twi_restore_stores *stores, uint32_t row, uint32_t store, uint64_t units);
TWI_INLINE void twi_restore_acked_add(struct twi_restore_stores *stores, struct twi_generation *generation,
                                      uint32_t store, uint64_t units) {
    generation->turn.acked_units += units;
    uint32_t row = generation->turn.restore.row;
    if (twi_unlikely(row != 0)) twi_restore_row_add(stores, row, store, units);
}
/* Subtracts at most the present value. */
void twi_restore_acked_less(struct twi_restore_stores *stores, struct twi_generation *generation, uint32_t store,
                            uint64_t units);

/* For windows that are dropped. `row` is generation->turn.restore.row, or 0. */
uint64_t twi_restore_row_take(struct twi_restore_stores *stores, uint32_t row, uint32_t store); /* and sets it to 0 */
/* Adds `from` to `into`, and frees `from`. Returns the row of both; 0 means that they had no row. */
uint32_t twi_restore_rows_merge(struct twi_restore_stores *stores, uint32_t into, uint32_t from);
void twi_restore_row_free(struct twi_restore_stores *stores, uint32_t row);

void twi_restore_stores_free(struct twi_restore_stores *stores);

#endif
