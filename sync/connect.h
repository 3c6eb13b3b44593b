/* connect.h -- from DOWN to UP, and back.
 * Always true: see connect.c. Where a function returns false, it has dropped the connection. */
#ifndef TWI_CONNECT_H
#define TWI_CONNECT_H

#include "sync/pipeline.h"
#include "sync/wire.h"

void twi_connect_step(struct twi_sync *sync, int64_t now_ms);
bool twi_connect_reply(struct twi_sync *sync, enum twi_command command, const struct twi_node *nodes, size_t count,
                       int64_t now_ms);                       /* false: the connection was dropped */
void twi_connect_open(struct twi_sync *sync, int64_t now_ms); /* sends number 0 of a fresh instance */
/* Drops the connection; what was on it is of unknown outcome. `slowly`: nothing heals by itself. */
void twi_connect_drop(struct twi_sync *sync, int64_t now_ms, bool slowly, const char *why);
/* Redis went back: its append-only file may hold half a transaction, which the next restart would apply a second time. */
void twi_connect_rewrite(struct twi_sync *sync, int64_t now_ms);

#endif
