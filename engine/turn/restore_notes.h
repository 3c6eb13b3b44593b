/* restore_notes.h -- the notes that restore.c uses: how many units of counters and of windows Redis has acknowledged,
 * how many were given up, and how many may have arrived.
 *
 * A STORE is one data set of Redis, or what is in one of its key slots (restore_notes.h). Redis may lose a store, and
 * a failover or a backup may bring an earlier store back. For a live counter, `acked` is the number of units that Redis
 * has acknowledged. This is the whole contribution of this engine to the key. If the new store is empty, the counter is
 * marked TWI_META_RESEND. `acked` then stays the number of units that the earlier store has. All of them must be sent
 * again, except those that were given up. The item that sends this part again has it in a separate field (`units`):
 *
 *              restore            collected                   acknowledged
 *   sent ────────────▶ RESEND ────────────▶ in flight ──────────────▶ sent
 *     ▲                  │ ▲ returned            │
 *     └── keep ◀─────────┴─┴───────────────────┘   the earlier store is back: nothing of this is re-sent
 *
 * Only one kind of counts cannot be restored: acknowledged ones of windows that were dropped here before Redis did.
 * Always true: a counter's `acked` is the number of its units that Redis has (that the earlier store has, if it is
 * marked) plus those that were given up. If a counter has both, `given_up` has the part that was given up, or its
 * window is marked `unrestorable`.
 * Threads: only the turn calls these functions. */
#ifndef TWI_TURN_RESTORE_NOTES_H
#define TWI_TURN_RESTORE_NOTES_H

#include "engine/core/store_map.h"
#include "engine/core/family.h"
#include "engine/port/items.h"
#include "engine/table/table.h"

/* ---- restore stores ----
 * the store of each counter, and how many units of each window each store has acknowledged.
 *
 * If there is one Redis, it is one store with index 0, and a window has one sum (acked_units). If keys have hash tags,
 * a store is the data of one key slot. Stores get their indexes in the order in which their slots are used first. Then
 * each window with collected counts has a row. A row has one sum for each store.
 * Always true: the sums of a row add up to acked_units. A row belongs to one window, or to one dropped window.
 * Threads: only the turn calls these functions. */

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

/* 65,536 x 24 bytes suffice for sixteen lost ledgers, each with a full pipeline. If there are more notes, windows
 * become unrestorable. Units that are adrift may then be sent twice, and count as uncertain. */
#define TWI_NOTED_MAX 65536u
/* 4096 x 24 bytes suffice for three days of one-minute windows. If there are more, adjacent windows count as one, until
 * the later one's end. */
#define TWI_DROPPED_MAX 4096u

/* A number of units of one counter. */
struct twi_noted {
    struct twi_cell *cell;
    struct twi_generation *generation;
    int64_t delta;
};
struct twi_notes {
    struct twi_noted *items;
    uint32_t count, room;
    bool sorted;
};

/* The units that Redis acknowledged of a window that no longer exists in this engine. */
struct twi_dropped_window {
    int64_t expiry_ms; /* by Redis's clock; INT64_MAX means never */
    uint64_t units;
    uint32_t row; /* the units of each store (restore_notes.h); 0 means that there is one store */
};

struct twi_restore {
    uint32_t listed;          /* the list of generations that must still be walked, linked by next_restore */
    struct twi_cursor cursor; /* the position in the first of them */
    struct twi_notes given_up;
    struct twi_notes adrift; /* they were in flight to a store that was left, and may be there */
    struct twi_restore_stores *stores;
    struct twi_dropped_window *dropped; /* sorted by their ends */
    uint32_t dropped_count, dropped_room;
    struct twi_dropped_window dropped_rest; /* the windows for which there was no memory */
    bool is_shared; /* the three arrays have their whole room, in memory that processes share, and are not freed */
};

/* take() is called when a marked counter is collected, and returns the part of it that the earlier store has.
 * note_resent() is called when the item of that part was acknowledged. note_returned() is called when the item was
 * returned; `whole` means that all units in flight were returned. */
int64_t twi_restore_take(struct twi_generation *generation, struct twi_cell *cell, struct twi_cold *cold);
void twi_restore_note_resent(const struct twi_item *item);
void twi_restore_note_returned(const struct twi_item *item, bool whole);
/* note_given_up() is called when an item was given up. note_shed() is called when a generation loses its records
 * (windows.c), and note_dropped() when it is dropped. */
void twi_restore_note_given_up(tw_engine *engine, const struct twi_item *item, int reason);
void twi_restore_note_shed(struct twi_generation *generation);
void twi_restore_note_dropped(tw_engine *engine, struct twi_generation *generation);
/* Forgets everything. Called in a forked child. */
void twi_restore_forget(struct twi_restore *restore);
void twi_restore_free(struct twi_restore *restore);

/* ---- for restore.c ---- */

/* Returns Redis's time in this turn. */
int64_t twi_restore_redis_now_ms(tw_engine *engine);
/* Returns false if there is no room or no memory. */
bool twi_notes_add(struct twi_notes *notes, struct twi_cell *cell, struct twi_generation *generation, int64_t delta);
/* Leaves one entry for each counter, in the order of their addresses. */
void twi_notes_sort(struct twi_notes *notes);
/* Returns the entry of a counter. NULL means that there is none. */
struct twi_noted *twi_notes_find(struct twi_notes *notes, const struct twi_cell *cell);
/* Notes that `delta` of a counter is given up. They are never restored. */
void twi_restore_give_up(tw_engine *engine, struct twi_cell *cell, struct twi_generation *generation, int64_t delta);
/* Returns how many units of a counter were given up. */
int64_t twi_restore_given_up_of(struct twi_generation *generation, const struct twi_cell *cell);
/* Called when fewer units must be sent again. The others were sent, have ended, or count in another way. */
void twi_restore_less_to_resend(struct twi_restore *restore, uint32_t store, uint64_t units);
/* Returns the units of that store in windows that still exist in Redis, but not here, and forgets these units. */
uint64_t twi_restore_take_dropped(struct twi_restore *restore, uint32_t store, int64_t now_ms);

TWI_INLINE uint64_t twi_restore_magnitude(int64_t delta) {
    return delta < 0 ? -(uint64_t)delta : (uint64_t)delta;
}
TWI_INLINE struct twi_cold *twi_restore_cold_of(struct twi_generation *generation, struct twi_cell *cell) {
    return twi_generation_cold(generation, cell, twi_load_relaxed(&cell->meta));
}

#endif
