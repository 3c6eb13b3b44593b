/* plain.h -- merging without a script. See plain.c. */
#ifndef TWI_PLAIN_H
#define TWI_PLAIN_H

#include "sync/answer.h"
#include "sync/pipeline.h"
#include "sync/wire.h"

/* A batch that goes without a script, while its answers come (plain.c). */
struct twi_plain {
    uint32_t stage, item, step; /* what the next reply answers: which part, whose, which of its commands */
    uint32_t commands;          /* of all its items */
    uint32_t kept;              /* items before `item` that are to be sent again, at the front */
    bool in_multi, refused, turned_away;
    bool over; /* nothing more is to be said of this item */
    struct twi_item_answer said;
    uint32_t unhealed;
    int64_t redis_ms;
    uint64_t out_begin; /* where it begins, counted in bytes of this connection */
    struct twi_bytes repairs;
    uint32_t repair_count;
};

void twi_plain_send(struct twi_sync *sync, struct twi_batch *batch, int64_t now_ms);
bool twi_plain_reply(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                     size_t count, int64_t now_ms); /* false: the connection was dropped */
void twi_plain_time(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                    size_t count, int64_t now_ms);
void twi_plain_dropped(struct twi_sync *sync); /* what is under way will not be answered */

#endif
