/* replicas.h -- wait_replicas: what enough replicas have. See replicas.c. */
#ifndef TWI_REPLICAS_H
#define TWI_REPLICAS_H

#include "sync/wire.h"

struct twi_sync;

void twi_replicas_put(struct twi_sync *sync); /* the question alone; whoever puts it awaits the answer */
void twi_replicas_ask(struct twi_sync *sync, int64_t now_ms);  /* behind what was just put into `out` */
void twi_replicas_step(struct twi_sync *sync, int64_t now_ms); /* asks again, where nothing is under way */
void twi_replicas_answered(struct twi_sync *sync, const struct twi_node *answer, int64_t now_ms);
bool twi_replicas_hold(const struct twi_sync *sync); /* the window is full of what is not on the replicas */

#endif
