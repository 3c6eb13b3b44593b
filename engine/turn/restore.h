/* restore.h -- what a Redis that has lost everything is told again, out of the counters that live.
 *
 * A counter knows what Redis acknowledged of it (`acked`), and as long as it lives that is the whole contribution of this
 * engine to its key. Where Redis holds nothing any more, the counter is UNTOLD: `acked` stays, as what the store of
 * before has, and all of it but what was given up is owed again. The item that says so carries that part by itself
 * (`units`), so:
 *
 *              restore            collected                     acknowledged
 *   told ────────────▶ UNTOLD ────────────▶ under way ──────────────▶ told
 *     ▲                  │ ▲ given back        │
 *     └── keep ◀─────────┴─┴───────────────────┘   the store of before is back: nothing of it is told again
 *
 * What cannot come back is what was acknowledged of windows that are dropped here and still lived there.
 * Always true: a counter's `acked` is the share of Redis (UNTOLD: of the store of before) plus what was given up of
 * it; of counters where both are mixed the given-up part stands in `given_up`, or their window is marked
 * `unrestorable`. Threads: all of it is the turn's own. */
#ifndef TWI_TURN_RESTORE_H
#define TWI_TURN_RESTORE_H

#include "engine/port/items.h"
#include "engine/table/table.h"

/* 65,536 x 24 bytes: sixteen ledgers lost with a full pipeline each. Beyond, windows become unrestorable, and what is
 * adrift may be told twice, and is uncertain. */
#define TWI_NOTED_MAX 65536u
/* 4096 x 16 bytes: three days of minutes. Beyond, neighbours are counted as one, until the later one's end. */
#define TWI_DROPPED_MAX 4096u

/* Something of single counters. */
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

/* What Redis acknowledged of a window that is no longer held here. */
struct twi_dropped_window {
    int64_t expiry_ms; /* by Redis's clock; INT64_MAX: never */
    uint64_t units;
};

struct twi_restore {
    uint32_t listed;          /* generations still to be walked, by next_restore */
    struct twi_cursor cursor; /* in the first of them */
    bool keeps;               /* the walk ends a restoration: what is UNTOLD was told to the store that is back */
    struct twi_notes given_up;
    struct twi_notes adrift; /* was under way to a store that was left, and may have arrived */
    bool was_back;           /* a store that was left was, once */
    /* since a store that we know was left, or was back */
    uint32_t begun;                     /* restorations */
    uint64_t untold;                    /* units of counters that are UNTOLD, or are to be; rather too many */
    uint64_t away;                      /* units that other stores acknowledged, and that one lacks */
    uint64_t twice;                     /* units that were UNTOLD and were refused, so that it may be told them again */
    uint64_t lacked;                    /* units that one that was left had not been told yet: the most of any */
    struct twi_dropped_window *dropped; /* the first to end first */
    uint32_t dropped_count, dropped_room;
    struct twi_dropped_window dropped_rest; /* for which there was no memory */
};

/* A counter that is UNTOLD is collected: what of it the store of before has. Its item was acknowledged; was given
 * back (`whole`: with all that was under way). */
int64_t twi_restore_take(struct twi_generation *generation, struct twi_cell *cell, struct twi_cold *cold);
void twi_restore_note_told(const struct twi_item *item);
void twi_restore_note_returned(const struct twi_item *item, bool whole);
/* An item was given up; a generation loses its records (history.c), or is dropped. */
void twi_restore_note_given_up(tw_engine *engine, const struct twi_item *item, int reason);
void twi_restore_note_shed(struct twi_generation *generation);
void twi_restore_note_dropped(tw_engine *engine, struct twi_generation *generation);
/* Forgets everything: in a forked child. */
void twi_restore_forget(struct twi_restore *restore);
void twi_restore_free(struct twi_restore *restore);

#endif
