/* closing.h -- the messages on windows that one engine closes for all (script/close_election.lua).
 * engine/turn/closing.h says what they are for.
 * Always true: each message that the engine handed out is answered exactly once; at most TWI_CLOSING_SENT_MAX are under
 * way. Where Redis turns out not to know this engine any more, it may have been wiped. The engine then reports that it
 * has drained nothing, until a batch was answered that was sent after that: the reply of that batch shows the wipe, and
 * what was acknowledged is owed again. */
#ifndef TWI_SYNC_MESSAGE_CLOSING_H
#define TWI_SYNC_MESSAGE_CLOSING_H

#include <stdint.h>

struct twi_sync;
struct twi_store;

void twi_closing_sender_step(struct twi_sync *sync, int64_t now_ms);
/* When there is something to send; INT64_MAX: a reply is awaited first. */
int64_t twi_closing_sender_due_ms(const struct twi_store *store);

#endif
