/* waiting.h -- collected items that wait for a message: gauges (presence.h), and counters of distinct elements
 * (distinct.h).
 *
 *   collected ─▶ waiting ─▶ in a message under way ─▶ answered
 *                   └──────────────┴── the message is refused, or the connection is lost: back to their counters
 * Where there are several stores, a message has items of one store, and goes to that.
 * Always true: an item that was taken is answered or returned, once; `answered` counts both. item->store is where its
 * key lies. */
#ifndef TWI_SYNC_MESSAGE_WAITING_H
#define TWI_SYNC_MESSAGE_WAITING_H

#include "sync/message/senders.h"

#define TWI_WAITING_MAX 4096u

struct twi_store;
struct twi_sync;

/* True means that a flush still waits for items that were taken before it. */
static inline bool twi_waiting_holds_flush(const struct twi_waiting *waiting) {
    return waiting->until != 0 && waiting->answered + 1 < waiting->until;
}
static inline uint32_t twi_waiting_count(const struct twi_waiting *waiting) {
    return waiting->end - waiting->at;
}
static inline bool twi_waiting_is_full(const struct twi_waiting *waiting) {
    return twi_waiting_count(waiting) >= TWI_WAITING_MAX;
}
/* True means that items wait, and a store takes them. */
static inline bool twi_waiting_may_go(const struct twi_waiting *waiting) {
    return twi_waiting_count(waiting) != 0 && !waiting->is_held;
}

/* False if there is no memory, and none was taken. */
bool twi_waiting_take(struct twi_waiting *waiting, const struct twi_item *items, size_t count);
/* Chooses a store that takes a message of that sender now, and brings its items to the front, `count_max` at most.
 * Returns how many there are. 0 if no store with items here takes one. */
uint32_t twi_waiting_choose(struct twi_sync *sync, struct twi_waiting *waiting, enum twi_sender sender,
                            uint32_t count_max, struct twi_store **store);
/* Items that were taken go back to their counters, which have all of it. A flush ends as refused, or, if the items may
 * be sent at once, begins its round again. */
void twi_waiting_return(struct twi_sync *sync, struct twi_waiting *waiting, const struct twi_item *items,
                        uint32_t count, uint32_t after_ms);
/* The same with all that wait. */
void twi_waiting_return_all(struct twi_sync *sync, struct twi_waiting *waiting, uint32_t after_ms);

#endif
