/* closing.h -- sends the messages about windows that one engine closes for all (script/close_election.lua), and where
 * names lie by tag those to the sets of names (script/window_names.lua). engine/turn/closing.h has their purpose.
 *
 * If Redis has no record of this engine any more, it may have been wiped. Then the engine reports that it has drained
 * nothing, until the ledger is written again. The reply to that batch would show the wipe, and the engine would have to
 * send the acknowledged counts again. With several stores, the engine reports the same for as long as one of its stores
 * may lack acknowledged counts. Such a store is unreachable, has no record of this engine, is behind, or was not
 * written since its connection came up. The engine reports this for closing_wait_ms at most. And a store may have been
 * wiped without this engine's knowledge. So windows are closed only closing_pause_ms after the youngest marker that
 * this engine has met was made. With one store, messages of many families, or about many windows, go as one: up to
 * TWI_CLOSING_MESSAGES_MAX. An error of one is no error of the others. Always true: each message from the engine is
 * answered exactly once. At most TWI_CLOSING_SENT_MAX such parcels are under way. */
#ifndef TWI_SYNC_MESSAGE_CLOSING_H
#define TWI_SYNC_MESSAGE_CLOSING_H

#include <stdint.h>

struct twi_closing_sender;
struct twi_sync;

void twi_closing_sender_step(struct twi_sync *sync, int64_t now_ms);
/* A store was opened, or its marker was read. The marker was made at that time, by Redis's clock. made_ms is 0 if
 * it was made just now, or if the reply lacks the time. */
void twi_closing_sender_met(struct twi_sync *sync, int64_t made_ms, int64_t redis_ms, int64_t now_ms);
/* Returns when there is something to send. INT64_MAX if a reply must come first, or if no message is expected. */
int64_t twi_closing_sender_due_ms(const struct twi_sync *sync);
/* No message is under way any more. */
void twi_closing_sender_free(struct twi_closing_sender *closing);

#endif
