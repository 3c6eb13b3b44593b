/* waiting.c -- see waiting.h. */
#include "sync/message/waiting.h"

#include <string.h>

#include "engine/base/check.h"
#include "engine/base/grow.h"
#include "sync/message/message.h"
#include "sync/message/state.h"

#define ROOM_FIRST 128u

bool twi_waiting_take(struct twi_waiting *waiting, const struct twi_item *items, size_t count) {
    twi_check(waiting->at <= waiting->end && waiting->end <= waiting->room);
    size_t before = twi_waiting_count(waiting);
    if (waiting->at != 0) {
        memmove(waiting->items, waiting->items + waiting->at, before * sizeof *waiting->items);
        waiting->at = 0;
        waiting->end = (uint32_t)before;
    }
    if (!twi_grow(&waiting->items, sizeof *waiting->items, &waiting->room, before + count, ROOM_FIRST)) return false;
    memcpy(waiting->items + waiting->end, items, count * sizeof *items);
    waiting->end += (uint32_t)count;
    waiting->taken += count;
    twi_check(waiting->end <= waiting->room);
    return true;
}

/* The other items keep their order, except those that change places with these. */
uint32_t twi_waiting_choose(struct twi_sync *sync, struct twi_waiting *waiting, enum twi_sender sender,
                            uint32_t count_max, struct twi_store **store) {
    twi_check(count_max != 0 && waiting->at <= waiting->end);
    uint32_t count = 0, passed = UINT32_MAX; /* the last store that accepts no message */
    *store = NULL;
    for (uint32_t i = waiting->at; i < waiting->end && count < count_max; i++) {
        struct twi_item item = waiting->items[i];
        struct twi_store *of = sync->stores[item.store];
        if (*store ? of != *store : item.store == passed) continue;
        if (!*store && !twi_message_may_send(sync, of, sender)) {
            passed = item.store;
            continue;
        }
        *store = of;
        waiting->items[i] = waiting->items[waiting->at + count];
        waiting->items[waiting->at + count++] = item;
    }
    twi_check(count <= count_max && (count == 0) == (*store == NULL));
    return count;
}

void twi_waiting_return(struct twi_sync *sync, struct twi_waiting *waiting, const struct twi_item *items,
                        uint32_t count, uint32_t after_ms) {
    twi_check(waiting->answered + count <= waiting->taken);
    for (uint32_t i = 0; i < count; i++) twi_port_return(&items[i], after_ms);
    waiting->answered += count;
    if (after_ms != 0)
        twi_ticket_refused(&sync->tickets);
    else if (twi_ticket_renew(&sync->tickets))
        twi_waiting_begin_again(sync);
}

void twi_waiting_begin_again(struct twi_sync *sync) {
    twi_check(sync->tickets.active && sync->tickets.collecting);
    sync->collecting.begin_again = true;
    sync->senders.presence.waiting.until = sync->senders.distinct.waiting.until = 0;
}

void twi_waiting_return_all(struct twi_sync *sync, struct twi_waiting *waiting, uint32_t after_ms) {
    twi_check(waiting->at <= waiting->end);
    uint32_t count = twi_waiting_count(waiting);
    if (count != 0) twi_waiting_return(sync, waiting, waiting->items + waiting->at, count, after_ms);
    waiting->at = waiting->end = 0;
}
