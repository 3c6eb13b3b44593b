/* dispatcher.h -- requests that callers wait for. Any thread begins them, and the driver answers them.
 *
 * A request is one run of a script (engine/port/driver.h, struct twi_request). It has a lane (lanes.h) and goes over a
 * link (link.h), pipelined with all others. It has one deadline, the caller's, from start to answer. If it fails, the
 * answer states whether the request was certainly unsent or perhaps executed. It takes back whatever Redis has charged
 * for the call, however long that takes. If a link ends, its calls go out again over the next one, in their order,
 * under the same names and numbers. In a cluster a directory shows which master has the slot of a request's keys
 * (sync/wire/cluster_directory.h). MOVED and ASK are followed at once. While the slot cannot be served (TRYAGAIN,
 * CLUSTERDOWN, no known master) the call tries again until its deadline. A cancel goes to the master that has its slot
 * by then.
 * Always true: no function here waits, and answered() runs without a lock. A request is answered once or forgotten
 * once. Redis receives a cancel for each numbered call whose answer no caller received and that may have been charged.
 * Cancels that are left at the end are counted (asks_forgotten). */
#ifndef TWI_SYNC_ASK_DISPATCHER_H
#define TWI_SYNC_ASK_DISPATCHER_H

#include "engine/port/driver.h"
#include "sync/ask/way.h"

struct twi_directory;
struct twi_dispatcher;
struct twi_where;

/* What create() needs. All of it outlives the dispatcher, except for the options. */
struct twi_dispatcher_rules {
    tw_engine *engine;
    const struct twi_where *where;
    const tw_options *options;
    struct twi_directory *directory; /* which master of the cluster has which slot; NULL if there is one Redis */
    bool host_drives;                /* its descriptors are in the engine's socket set, and it has no separate one */
};

/* Returns NULL if no memory, or no descriptor. Opens no connection. */
struct twi_dispatcher *twi_dispatcher_create(const struct twi_dispatcher_rules *rules);
/* Called when no call is begun any more and no thread drives. NULL is harmless. */
void twi_dispatcher_destroy(struct twi_dispatcher *dispatcher);
/* In a forked child: closes its copies of the descriptors. It does not send, and does not call answered(). */
void twi_dispatcher_abandon(struct twi_dispatcher *dispatcher);

/* As in engine/port/driver.h. */
uint64_t twi_dispatcher_ask(struct twi_dispatcher *dispatcher, const struct twi_request *request,
                            enum twi_request_outcome *why);
bool twi_dispatcher_forget(struct twi_dispatcher *dispatcher, uint64_t number);
void twi_dispatcher_end(struct twi_dispatcher *dispatcher, uint64_t number, bool undo);
void twi_dispatcher_step(struct twi_dispatcher *dispatcher);
int twi_dispatcher_fd(const struct twi_dispatcher *dispatcher);
int64_t twi_dispatcher_wake_ms(const struct twi_dispatcher *dispatcher);
void twi_dispatcher_stop(struct twi_dispatcher *dispatcher);
uint32_t twi_dispatcher_owed(const struct twi_dispatcher *dispatcher);

/* Called if Redis has moved. The link is made again. Any thread. */
void twi_dispatcher_leave(struct twi_dispatcher *dispatcher);
/* Logs the errors from replies. Only the owner of the turn calls it. */
void twi_dispatcher_log(struct twi_dispatcher *dispatcher);

/* ---- loss ----
 * the end of a link. The calls that were under way on the link are sent again, in their order, under the same
 * names and numbers. */

/* Called when the link has ended (`ended` says how). Afterwards it is DOWN, and may be made again. */
void twi_loss_of(struct twi_dispatcher *dispatcher, struct twi_link *link, int64_t now_ms);

#endif
