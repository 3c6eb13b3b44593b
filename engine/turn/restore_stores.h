/* restore_stores.h -- the store of each counter, and how many units of each window each store has acknowledged.
 *
 * If there is one Redis, it is one store with index 0, and a window has one sum (acked_units). If keys have hash tags,
 * a store is the data of one key slot. Stores get their indexes in the order in which their slots are used first. Then
 * each window with collected counts has a row. A row has one sum for each store.
 * Always true: the sums of a row add up to acked_units. A row belongs to one window, or to one dropped window.
 * Threads: only the turn calls these functions. */
#ifndef TWI_TURN_RESTORE_STORES_H
#define TWI_TURN_RESTORE_STORES_H
#include "engine/core/store_map.h"

/* What the walk does with the counters of a store. */
enum twi_restore_walk {
    TWI_WALK_PASSES,   /* no action */
    TWI_WALK_RESTORES, /* they send everything again that the store had acknowledged */
    TWI_WALK_KEEPS     /* the earlier store is back, and has what would have been sent again */
};

struct twi_restore_store {
    enum twi_restore_walk walk;
    bool was_back;       /* a store that the engine had left has come back before */
    bool distinct_again; /* in the walk, its counters of distinct elements send all their registers again */
    /* The next five begin again when a known store is left or comes back. */
    uint32_t begun;     /* restorations */
    uint64_t to_resend; /* an upper bound of the units that must be sent again */
    uint64_t away;      /* units that other stores acknowledged, and that the known store does not have */
    /* units that must be sent again and were refused; the known store may get them twice */
    uint64_t twice;
    uint64_t lacked; /* units that a store did not have when it was left; the maximum over these stores */
};

struct twi_restore_row {
    uint64_t *units;    /* by store; NULL means that the row is free */
    uint32_t room;      /* stores */
    uint32_t next_free; /* index + 1 of the next free row */
};

struct twi_restore_stores {
    struct twi_store_map *map;               /* maps a slot to its store. NULL means that there is one store */
    struct twi_restore_store only, *more;    /* the first store, and the stores from index 1 on */
    uint32_t room;                           /* room of `more` */
    struct twi_restore_row *rows;            /* a window refers to a row by index + 1 */
    uint32_t row_count, row_room, rows_free; /* rows_free is index + 1 of the first free row */
};

TWI_INLINE struct twi_restore_store *twi_restore_store_at(struct twi_restore_stores *stores, uint32_t store) {
    return store == 0 ? &stores->only : &stores->more[store - 1];
}
/* Returns how many stores there are. The first one exists even before it is used. */
TWI_INLINE uint32_t twi_restore_store_count(const struct twi_restore_stores *stores) {
    return stores->map == NULL || stores->map->count == 0 ? 1 : stores->map->count;
}
/* Returns the store of a counter. TWI_STORE_NONE: its slot was not used yet, so no store has its units. */
uint32_t twi_restore_store_of(tw_engine *engine, struct twi_generation *generation, struct twi_cell *cell);
/* Returns the same for a counter that has no record any more. */
uint32_t twi_restore_store_of_key(tw_engine *engine, const struct twi_generation *generation, tw_key key);

/* Returns the units of the window that this store has acknowledged. */
uint64_t twi_restore_acked(const struct twi_restore_stores *stores, const struct twi_generation *generation,
                           uint32_t store);
void twi_restore_row_add(struct twi_restore_stores *stores, uint32_t row, uint32_t store, uint64_t units);
TWI_INLINE void twi_restore_acked_add(struct twi_restore_stores *stores, struct twi_generation *generation,
                                      uint32_t store, uint64_t units) {
    generation->turn.acked_units += units;
    uint32_t row = generation->turn.restore.row;
    if (twi_unlikely(row != 0)) twi_restore_row_add(stores, row, store, units);
}
/* Subtracts the number, but at most the present value. */
void twi_restore_acked_less(struct twi_restore_stores *stores, struct twi_generation *generation, uint32_t store,
                            uint64_t units);

/* For windows that are dropped. `row` is generation->turn.restore.row, or 0. */
uint64_t twi_restore_row_take(struct twi_restore_stores *stores, uint32_t row, uint32_t store); /* and clears it */
/* Adds `from` to `into`, and frees `from`. Returns the row of both. 0 means that they had no row. */
uint32_t twi_restore_rows_merge(struct twi_restore_stores *stores, uint32_t into, uint32_t from);
void twi_restore_row_free(struct twi_restore_stores *stores, uint32_t row);

void twi_restore_stores_free(struct twi_restore_stores *stores);

#endif
