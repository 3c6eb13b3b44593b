/* pool.h -- requests that callers wait for: a small pool of connections beside the one that carries batches.
 *
 * A request is one run of a script (engine/port/driver.h, struct twi_request). Several threads send requests at once,
 * each over a connection of its own. The pool makes connections on demand and keeps them. Each call has one deadline
 * for everything.
 *
 * Every script called here gets three arguments before its own:
 *   ARGV[1]  who calls: "<16 digits of the pool>:<connection>"
 *   ARGV[2]  the serial number of the call on that connection
 *   ARGV[3]  "1" a request, "2" a repeated request, "0" a cancel
 * A cancel takes back what the call with this number has charged; if that call comes late, it does nothing. The reply
 * is a flat array. Its first element is ARGV[2], so the pool never takes the reply to another call for this one.
 *
 * In a cluster a directory says who has the slot of a request's keys (sync/wire/cluster_directory.h). MOVED and ASK are
 * followed at once. While the slot cannot be served (TRYAGAIN, CLUSTERDOWN, nobody known) the call tries again until
 * its deadline; then it was not sent. A cancel goes to whoever has its slot by then, with the next call there.
 * Always true: a numbered call of unknown outcome becomes a debt of its line (unless memory fails). No other call of
 * that slot goes out under the line's name before Redis has replied to the cancel. No lock is held while a thread waits
 * for Redis or for a connection. */
#ifndef TWI_SYNC_ASK_POOL_H
#define TWI_SYNC_ASK_POOL_H

#include "engine/port/driver.h"
#include "sync/wire/url.h"

#define TWI_POOL_MAX 8u /* connections: some 80,000 calls a second, if a round trip takes 100 us */

struct twi_directory;
struct twi_pool;
struct twi_tls;

/* NULL: no memory. Opens no connection. `tls`: the engine's, which outlives the pool; or NULL. */
struct twi_pool *twi_pool_create(tw_engine *engine, const struct twi_url *url, struct twi_tls *tls,
                                 const tw_options *options);
/* Redis is a cluster: the directory says where each call goes. It outlives the pool. Before other threads see the pool.
 * */
void twi_pool_follow(struct twi_pool *pool, struct twi_directory *directory);
enum twi_request_outcome twi_pool_request(struct twi_pool *pool, struct twi_request *request); /* any thread; waits */
/* Redis is elsewhere by now: a connection that is up is made anew before its next call. Any thread. */
void twi_pool_leave(struct twi_pool *pool);
/* Logs what callers found. By the owner of the turn. */
void twi_pool_log(struct twi_pool *pool);
void twi_pool_stop(struct twi_pool *pool);    /* ends all waiting calls and all later ones */
void twi_pool_destroy(struct twi_pool *pool); /* no call is under way any more. NULL is harmless */
/* In a forked child: closes its copies of the descriptors, and sends nothing. */
void twi_pool_abandon(struct twi_pool *pool);

#endif
