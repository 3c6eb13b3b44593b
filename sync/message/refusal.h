/* refusal.h -- reports which commands and keys Redis refuses, to the log and to tw_stats.last_error.
 * Always true: a line about a command is logged once in an outage (of TWI_REFUSALS_LOGGED different ones). A text from
 * Redis is made printable and cut. */
#ifndef TWI_SYNC_MESSAGE_REFUSAL_H
#define TWI_SYNC_MESSAGE_REFUSAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sync/message/message_queue.h"

struct twi_connection;
struct twi_item;
struct twi_node;
struct twi_store;
struct twi_sync;

/* Copies the text of an error, printable and cut. `first_word`: only its first word. */
void twi_refusal_text(const struct twi_node *error, bool first_word, char *out, size_t size);
/* Redis counts, and keys stay without an expiry there. One line at first, and then one each ten minutes. */
void twi_refusal_unhealed(struct twi_connection *connection, int64_t keys, int64_t now_ms);
/* Redis refuses `what`. Writes a log line and the last error. */
void twi_refusal_report(struct twi_connection *connection, const char *what, const struct twi_node *error);
/* Does the same for a login. Servers repeat arguments that they did not understand, so only the first word of such a
 * reply reaches the log. */
void twi_refusal_login(struct twi_connection *connection, const char *what, const struct twi_node *error);
/* Ends a connection whose server refused as a replica, because it is the wrong one, or whose reply was not understood:
 * the message was perhaps done, and the next connection sends it again. */
void twi_refusal_end(struct twi_connection *connection, enum twi_message_outcome outcome, const struct twi_node *error);
/* A key that is only read cannot be read. Writes one log line in an outage, and no counter waits. */
void twi_refusal_read(struct twi_connection *connection, const struct twi_item *item, const struct twi_node *error);
/* Redis refuses the item's key. The first refusal of a key is counted and logged. A flush under way ends as refused.
 * Returns how long the key is to wait. */
uint32_t twi_refusal_key(struct twi_sync *sync, struct twi_store *store, const struct twi_item *item,
                         const struct twi_node *error, int64_t now_ms);

#endif
