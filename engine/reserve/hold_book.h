/* hold_book.h -- with Redis: what this engine holds (tw_hold), so that it can be said again while the engine lives.
 *
 * In Redis each hold is a member "instance:number" of a sorted set, with an end of its own (hold.lua). Here each is an entry under
 * its key, in the order in which they were said last; the turn says those again whose life is a third over, and all of them after a
 * lost connection.
 * Always true: under the lock, an entry is a hold that Redis (or, in an outage, the family's policy) has admitted and that was not
 * released. Entries lie in the arena (P6); a forked child begins with none, and with an instance of its own.
 * Threads: any, but nobody waits for anything under the lock. */
#ifndef TWI_RESERVE_HOLD_BOOK_H
#define TWI_RESERVE_HOLD_BOOK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "tallywheel.h"

#define TWI_HOLD_MEMBER_MAX 56u /* 32 digits, a colon, 20 digits, a NUL */

struct twi_hold_book {
    pthread_mutex_t lock;
    uint64_t number;      /* of the newest hold */
    uint32_t first, last; /* lines: said longest ago, said last; 0: none */
    uint32_t index;       /* chains by key; 0: none yet */
    uint32_t index_log2;
    uint64_t entries;
    int64_t resend_from_ms;  /* monotonic: what was said before that is to be said again */
    uint64_t sent, answered; /* statements: put on their way, and answered or lost */
};

void twi_hold_book_make(tw_engine *engine);
void twi_hold_book_unmake(tw_engine *engine);
/* A name for one more hold. */
void twi_hold_book_name(tw_engine *engine, char member[TWI_HOLD_MEMBER_MAX]);
/* It was admitted. `is_known`: Redis knows it. False: no memory. */
bool twi_hold_book_enter(tw_family *family, tw_key key, const char *member, bool is_known);
/* Takes the newest hold of the key out. False: there is none. *statement: the last one that said it; it must have been told before
 * the hold is released in Redis, or it would bring it back. */
bool twi_hold_book_leave(tw_family *family, tw_key key, char member[TWI_HOLD_MEMBER_MAX], uint64_t *statement);
bool twi_hold_book_is_answered(tw_engine *engine, uint64_t statement);
int64_t twi_hold_book_count(tw_family *family, tw_key key);
/* The name of a key's set in Redis; `out` has room for TWI_OWN_NAME_MAX bytes. */
size_t twi_hold_book_set(const tw_family *family, tw_key key, char *out);
/* All of them are to be said again. */
void twi_hold_book_resend(tw_engine *engine);
/* The family is being closed. */
void twi_hold_book_forget(tw_engine *engine, const tw_family *family);

#endif
