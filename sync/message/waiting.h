/* waiting.h -- collected items that wait for a message: gauges (presence.h), and counters of distinct elements
 * (distinct.h).
 *
 *   collected ─▶ waiting ─▶ in a message under way ─▶ answered
 *                   └──────────────┴── the message is refused, or the connection is lost: back to their counters
 * If there are several stores, a message has items of one store, and goes to that.
 * Always true: each item in the queue is answered or returned exactly once, and `answered` counts both. item->store
 * is the store of its key. */
#ifndef TWI_SYNC_MESSAGE_WAITING_H
#define TWI_SYNC_MESSAGE_WAITING_H

#include "sync/message/senders.h"

#define TWI_WAITING_MAX 4096u

struct twi_store;
struct twi_sync;

/* Returns true if a flush still waits for items that were in the queue before it began. */
static inline bool twi_waiting_holds_flush(const struct twi_waiting *waiting) {
    return waiting->until != 0 && waiting->answered + 1 < waiting->until;
}
static inline uint32_t twi_waiting_count(const struct twi_waiting *waiting) {
    return waiting->end - waiting->at;
}
static inline bool twi_waiting_is_full(const struct twi_waiting *waiting) {
    return twi_waiting_count(waiting) >= TWI_WAITING_MAX;
}
/* Returns true if items wait, and a store accepts them. */
static inline bool twi_waiting_may_go(const struct twi_waiting *waiting) {
    return twi_waiting_count(waiting) != 0 && !waiting->is_held;
}

/* Returns false if there is no memory; then no item was added. */
bool twi_waiting_take(struct twi_waiting *waiting, const struct twi_item *items, size_t count);
/* Chooses a store that accepts a message of that sender now, and moves at most `count_max` of its items to the
 * front. Returns how many there are, or 0 if no store with items here accepts one. */
uint32_t twi_waiting_choose(struct twi_sync *sync, struct twi_waiting *waiting, enum twi_sender sender,
                            uint32_t count_max, struct twi_store **store);
/* Returns items of the queue to their counters. A flush then ends as refused, or, if the items may be sent at once,
 * begins its round again. */
void twi_waiting_return(struct twi_sync *sync, struct twi_waiting *waiting, const struct twi_item *items,
                        uint32_t count, uint32_t after_ms);
/* A round of tw_flush() collects again, and waits for the answers of what it finds then. */
void twi_waiting_begin_again(struct twi_sync *sync);
/* Returns all waiting items. */
void twi_waiting_return_all(struct twi_sync *sync, struct twi_waiting *waiting, uint32_t after_ms);

#endif
