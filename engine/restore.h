/* restore.h -- what a Redis that has lost everything is told again, out of the counters that live.
 *
 * A counter knows what Redis acknowledged of it (`acked`), and as long as it lives that is the whole contribution of this
 * engine to its key. Where Redis holds nothing any more, `handed` and `acked` go back to what was given up, and the whole
 * is owed again. What cannot come back so is what was acknowledged of windows that are dropped here and still lived there.
 * Always true: a counter's `acked` is Redis's share plus what was given up of it; of counters where both are mixed the
 * given-up part stands in `given_up`, or their window is marked `unrestorable`. Threads: all of it is the turn's own. */
#ifndef TWI_RESTORE_H
#define TWI_RESTORE_H

#include "engine/port_items.h"
#include "engine/table.h"

/* 65,536 x 24 bytes: sixteen ledgers lost with a full pipeline each. Beyond, windows become unrestorable. */
#define TWI_GIVEN_UP_MAX 65536u
/* 4096 x 16 bytes: three days of minutes. Beyond, neighbours are counted as one, until the later one's end. */
#define TWI_DROPPED_MAX 4096u

struct twi_given_up {
    const struct twi_cell *cell;
    struct twi_generation *generation;
    int64_t delta;
};

/* What Redis acknowledged of a window that is no longer held here. */
struct twi_dropped_window {
    int64_t expiry_ms; /* by Redis's clock; INT64_MAX: never */
    uint64_t units;
};

struct twi_restore {
    uint32_t listed;          /* generations still to be walked, by next_restore */
    struct twi_cursor cursor; /* in the first of them */
    struct twi_given_up *given_up;
    uint32_t given_up_count, given_up_room;
    bool given_up_sorted;
    struct twi_dropped_window *dropped; /* the first to end first */
    uint32_t dropped_count, dropped_room;
    struct twi_dropped_window dropped_rest; /* for which there was no memory */
};

/* An item was given up; a generation is dropped. */
void twi_restore_note_given_up(tw_engine *engine, const struct twi_item *item, int reason);
void twi_restore_note_dropped(tw_engine *engine, struct twi_generation *generation);
/* Forgets everything: in a forked child. */
void twi_restore_forget(struct twi_restore *restore);
void twi_restore_free(struct twi_restore *restore);

#endif
