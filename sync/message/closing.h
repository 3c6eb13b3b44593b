/* closing.h -- what is said to Redis of windows that one engine closes for all (script/close_election.lua; what it is: engine/turn/closing.h).
 * Always true: each say that the engine handed out is answered exactly once; at most TWI_CLOSING_SENT_MAX are under way. After Redis has
 * turned out not to know this engine any more, it says that it has drained nothing until a batch was answered that was asked after
 * that: if Redis was wiped, that answer tells, and what was acknowledged is owed again. */
#ifndef TWI_SYNC_MESSAGE_CLOSING_H
#define TWI_SYNC_MESSAGE_CLOSING_H

#include "engine/port/port.h"
#include "sync/message/message.h"

struct twi_closing_sender {
    struct twi_closing_sent {
        struct twi_closing_message message; /* without its names, which were sent */
        bool busy;
    } messages[TWI_CLOSING_SENT_MAX];
    uint64_t number;
    bool doubts;       /* see above */
    int64_t doubts_ms; /* the ledger was last answered then */
    bool is_logged;
};

void twi_closing_sender_step(struct twi_sync *sync, int64_t now_ms);
int64_t twi_closing_sender_due_ms(const struct twi_sync *sync);

#endif
