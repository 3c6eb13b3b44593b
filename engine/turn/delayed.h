/* delayed.h -- counters that Redis has refused, and that wait before they are tried again.   By the turn.
 *
 *   returned with a wait ─▶ here, once for each counter ─▶ its time has come: owed again (dirty.c)
 * While a counter stands here, what is counted on it stays in it: the collector passes it over and leaves its DIRTY, so that
 * adders do not mark it again. So a refused key costs a try for each wait, however often it is counted on.
 * Always true: a counter stands here at most once, and its generation's `outstanding` counts it until it leaves. */
#ifndef TWI_TURN_DELAYED_H
#define TWI_TURN_DELAYED_H

#include "engine/port/items.h"

struct twi_delayed_item {
    struct twi_item item;
    int64_t due_ms; /* monotonic */
    uint32_t next;  /* in its bucket: index + 1 */
};
#define TWI_DELAYED_MAX 65536u /* some 6 MiB; who finds no room is tried again at its interval */

struct twi_delayed {
    struct twi_delayed_item *items;
    uint32_t *buckets;    /* `room` of them: index + 1 of the first, 0: none */
    uint32_t count, room; /* room: a power of two */
    int64_t due_ms;       /* nothing is due before; while count != 0 */
};

enum twi_delaying {
    TWI_DELAYED_NEW,
    TWI_DELAYED_ALREADY /* it stood here; the later time counts */,
    TWI_DELAYED_NO_ROOM
};
enum twi_delaying twi_delayed_put(struct twi_delayed *delayed, const struct twi_item *item, int64_t due_ms);
bool twi_delayed_holds(const struct twi_delayed *delayed, const struct twi_cell *cell);
/* Takes one that is due; begin with *at = 0. False: no more, and due_ms is known anew. */
bool twi_delayed_take(struct twi_delayed *delayed, int64_t now_ms, uint32_t *at, struct twi_item *item);
void twi_delayed_all_due(struct twi_delayed *delayed, int64_t now_ms); /* all are due */
void twi_delayed_clear(struct twi_delayed *delayed);
void twi_delayed_free(struct twi_delayed *delayed);

#endif
