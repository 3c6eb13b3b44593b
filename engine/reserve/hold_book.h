/* hold_book.h -- with Redis: the holds of this engine (tw_hold), so that they can be re-sent while the engine lives.
 *
 * In Redis each hold is a member "instance:number" of a sorted set, with an end of its own (hold.lua). Here each hold
 * is an entry under its key. One list has the entries in the order in which they were sent last. The turn re-sends a
 * hold when a third of its life has passed, and all holds after a lost connection.
 * Always true: under the lock, an entry of a family that is open is a hold that was admitted and not released. Redis
 * admitted it, or the family's policy during an outage. No call does more than a bounded piece of work, however many
 * entries there are. A family is not freed before the turn has removed its entries. Entries lie in the arena (P6). A
 * forked child begins without entries and with an instance of its own.
 * Threads: any; nobody waits for anything under the lock. */
#ifndef TWI_RESERVE_HOLD_BOOK_H
#define TWI_RESERVE_HOLD_BOOK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/reserve/chains.h"
#include "tallywheel.h"

#define TWI_HOLD_MEMBER_MAX 56u /* 32 digits, a colon, 20 digits, a NUL */

struct twi_hold_book {
    pthread_mutex_t lock;
    uint64_t number;          /* the number of the newest hold */
    uint32_t first, last;     /* lines of the entries sent longest ago and last; 0: none */
    uint32_t lives;           /* how often the engine has taken another id */
    struct twi_chains chains; /* by key */
    uint64_t entries;
    int64_t resend_from_ms;  /* monotonic: entries sent before this time must be re-sent */
    uint64_t sent, answered; /* statements: sent; acknowledged or lost */
};

void twi_hold_book_make(tw_engine *engine);
void twi_hold_book_unmake(tw_engine *engine);
/* Writes a new member name. */
void twi_hold_book_name(tw_engine *engine, char member[TWI_HOLD_MEMBER_MAX]);
/* Enters an admitted hold. `is_known`: Redis knows it. False: no memory. */
bool twi_hold_book_enter(tw_family *family, tw_key key, const char *member, bool is_known);
/* Takes the newest hold of the key out. False: there is none. *statement: the last statement that contained it. This
 * statement must be answered before the hold is released in Redis, or it would bring the hold back. */
bool twi_hold_book_leave(tw_family *family, tw_key key, char member[TWI_HOLD_MEMBER_MAX], uint64_t *statement);
bool twi_hold_book_is_answered(tw_engine *engine, uint64_t statement);
int64_t twi_hold_book_count(tw_family *family, tw_key key);
/* Writes the name of a key's set in Redis. `out` has room for TWI_OWN_NAME_MAX bytes. */
size_t twi_hold_book_set(const tw_family *family, tw_key key, char *out);
/* The engine has another id: its holds get names with that, and are re-sent. The earlier ones are left to whoever lives
 * under the old id, too. By the turn. */
void twi_hold_book_rename(tw_engine *engine, const char id[33]);
/* Makes the turn re-send all holds. */
void twi_hold_book_resend(tw_engine *engine);
/* The family is closed: removes some of its entries. True: none is left. By the turn. */
bool twi_hold_book_forget(tw_family *family);

#endif
