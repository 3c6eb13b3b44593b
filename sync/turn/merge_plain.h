/* merge_plain.h -- merging without a script. See merge_plain.c. */
#ifndef TWI_SYNC_TURN_MERGE_PLAIN_H
#define TWI_SYNC_TURN_MERGE_PLAIN_H

#include "sync/message/connection.h"

struct twi_merge_plain *twi_merge_plain_create(void); /* NULL if there is no memory */
void twi_merge_plain_free(struct twi_merge_plain *merge_plain);
twi_taker twi_merge_plain_reply, twi_merge_plain_time;
const struct twi_merge *twi_merge_of(uint32_t option); /* TW_MERGE_* */

#endif
