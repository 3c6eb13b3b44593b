/* loss.h -- the end of a link. The calls that were under way on the link are sent again, in their order, under the same
 * names and numbers. */
#ifndef TWI_SYNC_ASK_LOSS_H
#define TWI_SYNC_ASK_LOSS_H

#include "sync/ask/dispatcher_state.h"

/* Called when the link has ended (`ended` says how). Afterwards it is DOWN, and may be made again. */
void twi_loss_of(struct twi_dispatcher *dispatcher, struct twi_link *link, int64_t now_ms);

#endif
