/* hold_book.h -- with Redis, the list of the holds of this engine (tw_hold), from which they are sent again while the
 * engine lives.
 *
 * In Redis each hold is a member "instance:number" of a sorted set, with a separate end (hold.lua). Here each hold is
 * an entry under its key. One list has the entries in the order in which they were sent last. The turn re-sends a hold
 * when a third of its life has passed, and all holds after a lost connection.
 * Always true: under the lock, an entry of a family that is open is a hold that was admitted and not released. Redis
 * admitted it, or the family's policy during an outage. No call does more than a bounded piece of work, however many
 * entries there are. A family is not freed before the turn has removed its entries. Entries lie in the arena (P6). A
 * forked child begins without entries and with another instance.
 * Threads: any; no thread waits under the lock. */
#ifndef TWI_RESERVE_HOLD_BOOK_H
#define TWI_RESERVE_HOLD_BOOK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/reserve/chains.h"
#include "engine/reserve/hold_notes.h"
#include "tallywheel.h"

struct twi_hold_book {
    pthread_mutex_t lock;
    uint64_t number;          /* the number of the newest hold */
    uint32_t first, last;     /* lines of the entries sent longest ago and last; 0 means none */
    uint32_t lives;           /* how often the engine has taken another id */
    struct twi_chains chains; /* by key */
    uint64_t entries;
    int64_t resend_from_ms;  /* monotonic time; entries sent before it must be sent again */
    uint64_t sent, answered; /* number of statements that were sent, and that were acknowledged or lost */
    uint64_t unsure;         /* of this statement, or an earlier one, a copy may still come to Redis; 0 means none */
    int64_t unsure_ms;       /* monotonic time when that was noted last */
    struct twi_hold_notes notes;
};

/* What may bring a hold back when it is released; and where it is noted (hold_notes.h). */
struct twi_hold_said {
    uint64_t first, last; /* statements that contained it; 0 means none */
    bool is_copied;       /* its request was repeated, and a copy may still come */
    struct twi_hold_note *note;
};

/* With an empty arena: when the engine is opened, and in a forked child. */
void twi_hold_book_begin(tw_engine *engine);
void twi_hold_book_end(tw_engine *engine);
/* Writes a new member name. */
void twi_hold_book_name(tw_engine *engine, char member[TWI_HOLD_MEMBER_MAX]);
/* Enters an admitted hold. `is_known` means that Redis has it. Returns false if there is no memory. */
bool twi_hold_book_enter(tw_family *family, tw_key key, const char *member, bool is_known, struct twi_hold_said said);
/* Takes the newest hold of the key out. Returns false if there is none. What *said names would bring the hold back if
 * it came to Redis after the release. So the release waits until the last statement is answered or lost. While a copy
 * may still come, the release must leave a mark (hold.lua, end). */
bool twi_hold_book_leave(tw_family *family, tw_key key, char member[TWI_HOLD_MEMBER_MAX], struct twi_hold_said *said);
bool twi_hold_book_is_answered(tw_engine *engine, const struct twi_hold_said *said);
bool twi_hold_book_may_come(tw_engine *engine, const struct twi_hold_said *said);
int64_t twi_hold_book_count(tw_family *family, tw_key key);
/* Notes a slot before it is asked for (hold_notes.h). Returns NULL if it is noted nowhere. */
struct twi_hold_note *twi_hold_book_note(tw_family *family, tw_key key, const char *member);
/* The slot of the note is not in the book. `is_free`: nor is it in Redis, and it never will be. NULL does nothing. */
void twi_hold_book_unnote(tw_engine *engine, struct twi_hold_note *ended, bool is_free);
struct twi_hold_time twi_hold_book_time(const tw_engine *engine);
/* Writes the name of a key's set in Redis. `out` has room for TWI_OWN_NAME_MAX bytes. */
size_t twi_hold_book_set(const tw_family *family, tw_key key, char *out);
/* Called by the turn when the engine has another id. Its holds get names with that id, and are sent again. The earlier
 * names are left to the other copy of this process, which still uses the old id. */
void twi_hold_book_rename(tw_engine *engine, const char id[33]);
/* Makes the turn re-send all holds. */
void twi_hold_book_resend(tw_engine *engine);
/* Called by the turn when the family is closed. Removes some of its entries. Returns true if no entry is left. */
bool twi_hold_book_forget(tw_family *family);

#endif
