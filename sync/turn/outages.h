/* outages.h -- no outage is silent. What does not answer for five seconds has a log line and an error in tw_stats, and
 * its time counts as outage_ms, whatever the reason is.
 * A connection that ends says why (connect.c). This file logs what continues without an end: a name that is looked
 * up, an address that is dialled, a greeting without a reply, a slot that nobody is known to serve.
 * Always true: an outage of a connection has one such line, and so has one of all slots that nobody serves. */
#ifndef TWI_SYNC_TURN_OUTAGES_H
#define TWI_SYNC_TURN_OUTAGES_H

#include <stdbool.h>
#include <stdint.h>

struct twi_connection;
struct twi_store;
struct twi_sync;

/* Nothing can be sent to that server now. */
bool twi_outages_is_away(const struct twi_connection *connection);
/* Since when nobody answers for the store, though it was tried; 0 if somebody does. */
int64_t twi_outages_of_store_ms(const struct twi_store *store);
/* Looks at all that is wanted, and logs what is silent. Returns since when the first of them is unreachable; 0 if none
 * is. */
int64_t twi_outages_look(struct twi_sync *sync, int64_t now_ms);
/* When the next line is due; INT64_MAX if never. */
int64_t twi_outages_due_ms(const struct twi_sync *sync);

#endif
