/* instance.h -- detects which store still has our ledger, and when another instance begins. See instance.c. */
#ifndef TWI_SYNC_TURN_INSTANCE_H
#define TWI_SYNC_TURN_INSTANCE_H

#include "sync/message/connection.h"

struct twi_connection;
struct twi_reply_head;
struct twi_store;

twi_taker twi_instance_reply; /* handles the reply to an opening */
void twi_instance_gone(struct twi_sync *sync, struct twi_store *store, int64_t now_ms);
/* Ends the instance. Its ledger exists but is no longer ours, and we do not go back to it. */
void twi_instance_lose(struct twi_sync *sync, struct twi_store *store, const char *why);
/* Returns whether the ledger is at a number that we have sent. If it is further, it is no longer ours, and the
 * instance ends. */
bool twi_instance_is_ours(struct twi_sync *sync, struct twi_store *store, const struct twi_reply_head *head);
/* The store has our ledger, at the number of `head`. The missing batches are sent again. */
void twi_instance_at(struct twi_sync *sync, struct twi_store *store, const struct twi_reply_head *head, int64_t now_ms);
/* The store lacks `gone` batches that it had acknowledged. `lost` of their units are in no batch any more. */
void twi_instance_went_back(struct twi_sync *sync, struct twi_store *store, uint64_t gone, uint64_t lost,
                            int64_t now_ms);
/* A store with our ledger answered. */
void twi_instance_at_own_store(const struct twi_connection *connection, struct twi_store *store);
/* Notes the marker of the store. */
void twi_instance_note(struct twi_sync *sync, struct twi_store *store, const struct twi_reply_head *head);
/* Notes when the store last wrote the record of this engine. */
void twi_instance_entered(struct twi_store *store, const struct twi_reply_head *head, int64_t now_ms);

#endif
