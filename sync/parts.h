/* parts.h -- what is said of this engine's gauges and holds, and sweeps of its stocks: statements beside the batches, whole and
 * repeatable.
 *
 *   collected (gauges) ─▶ waiting ─▶ one of a few statements under way ─▶ told: the sums become views
 *                            └─────────────┴── refused, or the connection is lost: back to their counters, to be said anew
 * Always true: a gauge's item that was taken is acknowledged or returned, once; statements are answered in the order in which they
 * were sent, and each has a higher number than all before it. */
#ifndef TWI_PARTS_H
#define TWI_PARTS_H

#include "engine/port.h"
#include "sync/pipeline.h"

#define TWI_PARTS_MAX 4u        /* statements under way */
#define TWI_PARTS_KEYS_MAX 200u /* in one: some 3 ms of Redis's one thread, with ten engines */
#define TWI_PARTS_WAITING_MAX 4096u

struct twi_statement {
    enum { TWI_SAYS_GAUGES, TWI_SAYS_HOLDS, TWI_SAYS_SWEEP, TWI_SAYS } what;
    struct twi_item *items; /* of gauges */
    uint32_t count;
    uint64_t serial; /* of a sweep */
};

struct twi_parts {
    struct twi_item *waiting; /* a queue; from `at` on */
    uint32_t at, end, room;
    struct twi_statement ring[TWI_PARTS_MAX];
    uint32_t first, count;
    bool use_eval[TWI_SAYS]; /* the next one goes with its script */
    char instance[33];
    uint64_t number;
    uint64_t taken, told; /* items, since ever: in order */
    uint64_t until;       /* 0: nobody waits; else one more than how many were taken then */
};

/* A flush waits for what was taken up to a point. */
static inline bool twi_parts_hold(const struct twi_parts *parts) {
    return parts->until != 0 && parts->told + 1 < parts->until;
}
static inline bool twi_parts_are_full(const struct twi_parts *parts) {
    return parts->end - parts->at >= TWI_PARTS_WAITING_MAX;
}
/* There is something to be sent, and room for it. */
static inline bool twi_parts_wait(const struct twi_parts *parts) {
    return parts->at != parts->end && parts->count < TWI_PARTS_MAX;
}

bool twi_parts_take(struct twi_sync *sync, const struct twi_item *items,
                    size_t count); /* false: no memory, none taken */
void twi_parts_step(struct twi_sync *sync, int64_t now_ms);
twi_taker twi_parts_reply;
void twi_parts_dropped(struct twi_sync *sync); /* what is under way will not be answered */
void twi_parts_free(struct twi_sync *sync);

#endif
