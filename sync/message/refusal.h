/* refusal.h -- what Redis refuses, commands and keys, for the log and for tw_stats.last_error.
 * Always true: the same line comes once in an outage; what comes from the other side is printable and cut. */
#ifndef TWI_SYNC_MESSAGE_REFUSAL_H
#define TWI_SYNC_MESSAGE_REFUSAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct twi_connection;
struct twi_item;
struct twi_node;
struct twi_sync;

/* An error's text as a log may have it: printable, cut. */
void twi_refusal_text(const struct twi_node *error, bool first_word, char *out, size_t size);
/* Redis refuses `what`: log line and last error. */
void twi_refusal_report(struct twi_connection *connection, const char *what, const struct twi_node *error);
/* The same of a login: of AUTH's answer the first word alone reaches a log (servers quote what they did not
 * understand). */
void twi_refusal_login(struct twi_connection *connection, const char *what, const struct twi_node *error);
/* Redis refuses the item's key, which is counted and logged once, and known to flushes while it lasts. Returns how long
 * it is to wait. */
uint32_t twi_refusal_key(struct twi_sync *sync, const struct twi_item *item, const struct twi_node *error,
                         int64_t now_ms);

#endif
