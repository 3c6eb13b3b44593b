/* pool.h -- questions that callers wait for: a small pool of connections beside the one that carries batches.
 *
 * A question is one run of one of our scripts (engine/port/driver.h, struct twi_request). Several threads ask at once,
 * each over a connection of its own; connections are made on demand and kept. Each call has one deadline for
 * everything.
 *
 * Every script asked here gets three arguments before its own: ARGV[1] who asks ("<16 digits of the
 * pool>:<connection>"), ARGV[2] the serial number of the call on that connection, ARGV[3] "1" asked, "2" asked again,
 * "0" never mind: what the call with this number has charged is to be taken back, and if it comes late it does nothing.
 * Its answer is a flat array whose first element is ARGV[2], so that an answer that was meant for another call is never
 * taken for ours.
 * Always true: a numbered call of unknown outcome is a debt of its connection, and no other call goes out there before
 * Redis has answered its "never mind"; no lock is held while anything is waited for. */
#ifndef TWI_SYNC_ASK_POOL_H
#define TWI_SYNC_ASK_POOL_H

#include "engine/port/driver.h"
#include "sync/wire/url.h"

#define TWI_POOL_MAX 8u /* connections: at 100 us a round trip some 80,000 calls a second */

struct twi_pool;

/* NULL: no memory. Opens no connection. */
struct twi_pool *twi_pool_create(tw_engine *engine, const struct twi_url *url, const tw_options *options);
enum twi_request_outcome twi_pool_request(struct twi_pool *pool, struct twi_request *request); /* any thread; waits */
void twi_pool_stop(struct twi_pool *pool);    /* wakes and ends all that wait, for good */
void twi_pool_destroy(struct twi_pool *pool); /* nobody asks any more. NULL is harmless */
/* In a forked child: closes its copies of the descriptors, unsaid. */
void twi_pool_abandon(struct twi_pool *pool);

#endif
