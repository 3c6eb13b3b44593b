/* pool.h -- questions that callers wait for: a small pool of connections beside the one that carries batches.
 *
 * A question is one run of one of our scripts (engine/port/port.h, struct twi_ask). Several threads ask at once, each over a
 * connection of its own; connections are made on demand and kept. Each call has one deadline for everything.
 *
 * Every script asked here gets three arguments before its own: ARGV[1] who asks ("<16 digits of the pool>:<connection>"),
 * ARGV[2] the serial number of the call on that connection, ARGV[3] "1" asked, "2" asked again, "0" never mind: what the
 * call with this number has charged is to be taken back, and if it comes late it does nothing. Its answer is a flat array
 * whose first element is ARGV[2], so that an answer that was meant for another call is never taken for ours.
 * Always true: a numbered call of unknown outcome is a debt of its connection, and no other call goes out there before
 * Redis has answered its "never mind"; no lock is held while anything is waited for. */
#ifndef TWI_SYNC_ASK_POOL_H
#define TWI_SYNC_ASK_POOL_H

#include "engine/port/port.h"
#include "sync/wire/url.h"

#define TWI_ASKS_MAX 8u /* connections: at 100 us a round trip some 80,000 calls a second */

struct twi_asks;

/* NULL: no memory. Opens no connection. */
struct twi_asks *twi_asks_create(tw_engine *engine, const struct twi_url *url, const tw_options *options);
enum twi_asked twi_asks_ask(struct twi_asks *asks, struct twi_ask *ask); /* any thread; waits */
void twi_asks_stop(struct twi_asks *asks);                               /* wakes and ends all that wait, for good */
void twi_asks_destroy(struct twi_asks *asks);                            /* nobody asks any more. NULL is harmless */
/* In a forked child: closes its copies of the descriptors, unsaid. */
void twi_asks_abandon(struct twi_asks *asks);

#endif
