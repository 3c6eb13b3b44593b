/* presence.h -- what is said of this engine's gauges and holds, and sweeps of its stocks: statements beside the batches, whole and
 * repeatable.
 *
 *   collected (gauges) ─▶ waiting ─▶ one of a few statements under way ─▶ told: the sums become views
 *                            └─────────────┴── refused, or the connection is lost: back to their counters, to be said anew
 * Always true: a gauge's item that was taken is acknowledged or returned, once; each statement has a higher number than all before it. */
#ifndef TWI_SYNC_MESSAGE_PRESENCE_H
#define TWI_SYNC_MESSAGE_PRESENCE_H

#include "engine/port/port.h"
#include "sync/message/message.h"

#define TWI_PRESENCE_KEYS_MAX 200u /* in one: some 3 ms of Redis's one thread, with ten engines */
#define TWI_PRESENCE_WAITING_MAX 4096u

struct twi_statement {
    enum { TWI_STATEMENT_GAUGES, TWI_STATEMENT_HOLDS, TWI_STATEMENT_SWEEP, TWI_STATEMENTS } what;
    bool is_under_way;
    struct twi_item *items; /* of gauges */
    uint32_t count;
    uint64_t serial; /* of a sweep; of holds: its number among them */
};

struct twi_presence {
    struct twi_item *waiting; /* a queue; from `at` on */
    uint32_t at, end, room;
    struct twi_statement statements[TWI_PRESENCE_MAX];
    uint32_t count; /* of these, under way */
    uint64_t number;
    uint64_t taken, answered; /* items, since ever */
    uint64_t until;           /* 0: nobody waits; else one more than how many were taken then */
    /* Holds: the engine hears of their statements in the order in which they were made. A script that Redis did not have goes again,
     * behind others. */
    uint64_t holds_sent, holds_answered;
    uint32_t holds_done; /* bit 0: the one after holds_answered was answered; and so on */
};

/* A flush waits for what was taken up to a point. */
static inline bool twi_presence_holds_flush(const struct twi_presence *presence) {
    return presence->until != 0 && presence->answered + 1 < presence->until;
}
static inline bool twi_presence_are_full(const struct twi_presence *presence) {
    return presence->end - presence->at >= TWI_PRESENCE_WAITING_MAX;
}
/* There is something to be sent, and room for it. */
static inline bool twi_presence_wait(const struct twi_presence *presence) {
    return presence->at != presence->end && presence->count < TWI_PRESENCE_MAX;
}

bool twi_presence_take(struct twi_sync *sync, const struct twi_item *items,
                       size_t count); /* false: no memory, none taken */
void twi_presence_step(struct twi_sync *sync, int64_t now_ms);
void twi_presence_dropped(struct twi_sync *sync); /* what waits goes back */
void twi_presence_free(struct twi_sync *sync);

#endif
