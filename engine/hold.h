/* hold.h -- with Redis: what this engine holds (tw_hold), so that it can be said again while the engine lives.
 *
 * In Redis each hold is a member "instance:number" of a sorted set, with an end of its own (hold.lua). Here each is an entry under
 * its key, in the order in which they were said last; the turn says those again whose life is a third over, and all of them after a
 * lost connection.
 * Always true: under the lock, an entry is a hold that Redis (or, in an outage, the family's policy) has admitted and that was not
 * released. Entries lie in the arena (P6); a forked child begins with none, and with an instance of its own.
 * Threads: any, but nobody waits for anything under the lock. */
#ifndef TWI_HOLD_H
#define TWI_HOLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "tallywheel.h"

#define TWI_HOLD_MEMBER_MAX 56u /* 32 digits, a colon, 20 digits, a NUL */

struct twi_holds {
    pthread_mutex_t lock;
    char instance[33];
    uint64_t number;      /* of the newest hold */
    uint32_t first, last; /* lines: said longest ago, said last; 0: none */
    uint32_t index;       /* chains by key; 0: none yet */
    uint32_t index_log2;
    uint64_t entries;
    int64_t again_from_ms; /* monotonic: what was said before that is to be said again */
    uint64_t sent, told;   /* statements: put on their way, and answered or lost */
};

#endif
