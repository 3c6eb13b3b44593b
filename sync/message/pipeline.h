/* pipeline.h -- what is under way on the connection: commands go out in one row, and their replies come in the same order.
 * Always true: each command that was put into `out` has its entry in `pending`, and the entries stand in the order of the wire. */
#ifndef TWI_SYNC_MESSAGE_PIPELINE_H
#define TWI_SYNC_MESSAGE_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct twi_sync;
struct twi_batch;
struct twi_node;

enum twi_command {
    TWI_AUTH,
    TWI_SELECT,
    TWI_PING,
    TWI_INFO,
    TWI_CONFIG,
    TWI_REWRITE,
    TWI_TIME,
    TWI_WAIT,
    TWI_MESSAGE,
    TWI_MESSAGE_WAIT,
    TWI_OPEN,
    TWI_BATCH,
    TWI_MERGE_PLAIN, /* a batch without a script, of many replies */
    TWI_REPAIR
};

struct twi_pending {
    enum twi_command command;
    struct twi_batch *batch; /* OPEN, BATCH, PLAIN */
    uint32_t replies;        /* still to come */
    int64_t sent_ms;         /* when its last byte went out; 0: not yet */
    int64_t wall_ms;         /* engine time of that */
    int64_t sent_us;         /* the same moment, finer; 0: not yet, or not `alone` */
    uint64_t out_end;        /* where it ends, counted in bytes of this connection */
    bool alone;              /* nothing else was under way: its answer tells how far Redis is */
};

/* Takes one reply of an entry; `replies` still counts it. A reply that is not understood is a failure of the connection. */
typedef void twi_taker(struct twi_sync *sync, const struct twi_pending *pending, const struct twi_node *nodes,
                       size_t count, int64_t now_ms);

/* Notes that a command was put into `out` and awaits its reply, or so many. */
struct twi_pending *twi_pipeline_await(struct twi_sync *sync, enum twi_command command, struct twi_batch *batch,
                                       uint32_t replies);
/* Puts a batch into `out`: BATCH, or OPEN under the candidate's name. */
void twi_pipeline_batch(struct twi_sync *sync, struct twi_batch *batch, enum twi_command command, int64_t now_ms);

#endif
