/* way.h -- chooses the link for a call. It is the link to the one Redis, or to the master that has the call's slot.
 * Always true: a call that is begun while its server is left alone is answered at once; one that is under way waits for
 * the next connection until its deadline. */
#ifndef TWI_SYNC_ASK_WAY_H
#define TWI_SYNC_ASK_WAY_H

#include "sync/ask/dispatcher_state.h"

/* The lane is in no list. It goes to its link's waiting calls, or pauses until it can. Returns false if it is new
 * and nothing is sent to its server now. It is then still in no list. */
bool twi_way_find(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms);
/* Does the same with a given link. Called if the call has no link now. */
bool twi_way_join(struct twi_dispatcher *dispatcher, struct twi_lane *lane, struct twi_link *link, int64_t now_ms);
/* Routes the call after a while. */
void twi_way_pause(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t again_ms);
/* A node of a cluster has redirected the call without executing it. */
void twi_way_redirect(struct twi_dispatcher *dispatcher, struct twi_lane *lane, const struct twi_redirect *redirect,
                      int64_t now_ms);
/* All calls that wait for the link are routed again, in their order. */
void twi_way_again(struct twi_dispatcher *dispatcher, struct twi_link *link, int64_t now_ms);
/* Routes the calls whose pause has ended; in a cluster also those that wait for a link that is down. */
void twi_way_step(struct twi_dispatcher *dispatcher, int64_t now_ms);
int64_t twi_way_wake_ms(const struct twi_dispatcher *dispatcher);
/* Takes the lane out of the list that it is in. */
void twi_way_leave(struct twi_dispatcher *dispatcher, struct twi_lane *lane);

#endif
