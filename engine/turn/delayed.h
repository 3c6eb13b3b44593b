/* delayed.h -- counters that Redis has refused and that wait before they are sent again. By the turn.
 *
 *   returned with a wait ─▶ here, once per counter ─▶ the wait is over: to be sent again (dirty.c)
 * While a counter waits here, it keeps what is counted on it. The collector skips it and leaves its DIRTY set, so
 * adders do not mark it again. So a refused key costs one attempt per wait, however often it is counted on, and the
 * batches with it that are under way when the refusal comes.
 * Always true: a counter is here at most once, and its generation's `outstanding` counts it until it leaves. */
#ifndef TWI_TURN_DELAYED_H
#define TWI_TURN_DELAYED_H

#include "engine/port/items.h"

struct twi_delayed_item {
    struct twi_item item;
    int64_t due_ms; /* monotonic */
    uint32_t next;  /* the next in its bucket: index + 1 */
};
#define TWI_DELAYED_MAX 65536u /* about 6 MiB; a counter that finds no room is sent again at the next interval */

struct twi_delayed {
    struct twi_delayed_item *items;
    uint32_t *buckets;    /* `room` of them: index + 1 of the first entry; 0 means none */
    uint32_t count, room; /* room: a power of two */
    int64_t due_ms;       /* if count != 0: nothing is due before this */
};

enum twi_delaying {
    TWI_DELAYED_NEW,
    TWI_DELAYED_ALREADY /* it was here already; the later time counts */,
    TWI_DELAYED_NO_ROOM
};
enum twi_delaying twi_delayed_put(struct twi_delayed *delayed, const struct twi_item *item, int64_t due_ms);
bool twi_delayed_holds(const struct twi_delayed *delayed, const struct twi_cell *cell);
/* Takes one entry that is due; begin with *at = 0. Returns false if there are no more; then due_ms is recomputed. */
bool twi_delayed_take(struct twi_delayed *delayed, int64_t now_ms, uint32_t *at, struct twi_item *item);
void twi_delayed_all_due(struct twi_delayed *delayed, int64_t now_ms); /* makes all entries due */
void twi_delayed_clear(struct twi_delayed *delayed);
void twi_delayed_free(struct twi_delayed *delayed);

#endif
