/* hold_book.h -- the book of what tw_hold() holds here, to be said again to Redis (hold.h). */
#ifndef TWI_HOLD_BOOK_H
#define TWI_HOLD_BOOK_H

#include "engine/hold.h"

void twi_holds_make(tw_engine *engine);
void twi_holds_unmake(tw_engine *engine);
/* A name for one more hold. */
void twi_holds_name(tw_engine *engine, char member[TWI_HOLD_MEMBER_MAX]);
/* It was admitted. `said`: Redis knows it. False: no memory. */
bool twi_holds_enter(tw_family *family, tw_key key, const char *member, bool said);
/* Takes the newest hold of the key out. False: there is none. *statement: the last one that said it; it must have been told before
 * the hold is released in Redis, or it would bring it back. */
bool twi_holds_leave(tw_family *family, tw_key key, char member[TWI_HOLD_MEMBER_MAX], uint64_t *statement);
bool twi_holds_were_told(tw_engine *engine, uint64_t statement);
int64_t twi_holds_count(tw_family *family, tw_key key);
/* The name of a key's set in Redis; `out` has room for TWI_OWN_NAME_MAX bytes. */
size_t twi_holds_set(const tw_family *family, tw_key key, char *out);
/* All of them are to be said again. */
void twi_holds_again(tw_engine *engine);
/* The family is being closed. */
void twi_holds_forget(tw_engine *engine, const tw_family *family);

#endif
