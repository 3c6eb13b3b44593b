/* verdict.h -- decides about a call after its reply, its deadline, or the loss of its link.
 *
 *   the caller is answered once, unless it has forgotten the call. Then, of a numbered call that may have charged
 *   something which nobody took. The cancel goes out, again and again until it is answered; otherwise the lane is free
 * Always true: a lane is free or kept before its caller is answered, and free before that caller begins another call.
 */
#ifndef TWI_SYNC_ASK_VERDICT_H
#define TWI_SYNC_ASK_VERDICT_H

#include "sync/ask/way.h"

/* The next reply of the link. */
void twi_verdict_heard(struct twi_dispatcher *dispatcher, struct twi_link *link, const struct twi_node *nodes,
                       size_t count, int64_t now_ms);
/* The caller's time has ended, or the engine is being stopped. */
void twi_verdict_expired(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms);
/* The call cannot be answered in its caller's time, because many calls are before it. It was not sent, and is in no
 * list. */
void twi_verdict_crowded(struct twi_dispatcher *dispatcher, struct twi_lane *lane);
/* The call was begun while its server is left alone. It is in no list. */
void twi_verdict_away(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms);
/* The link of a call that was sent has ended. `is_out` is true if all bytes of the call had gone out. The lane is in no
 * list. Returns true if it is sent again, as a request or as a cancel. Returns false if it is free. */
bool twi_verdict_lost(struct twi_dispatcher *dispatcher, struct twi_lane *lane, bool is_out);
/* The login was refused. So is whoever waits there. Cancels continue waiting. */
void twi_verdict_refuse_all(struct twi_dispatcher *dispatcher, struct twi_lane_list *waiting);
/* The caller of a call that was kept has gone. The lane is in no list. */
void twi_verdict_undo(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms);
/* No thread waits for a call that was not sent at all. */
bool twi_verdict_is_needless(const struct twi_lane *lane);
/* The call need not be sent. Its lane, which is in no list, becomes free. */
void twi_verdict_drop(struct twi_dispatcher *dispatcher, struct twi_lane *lane);

#endif
