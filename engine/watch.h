/* watch.h -- when the watch socket (watch_path) is opened and closed.
 * Always true: the socket is open from tw_open() until tw_close() begins, or not at all. No program fails because it is
 * missing. */
#ifndef TWI_WATCH_H
#define TWI_WATCH_H

#include "tallywheel.h"

/* Opens it, if watch_path is set. If the path cannot be used, that is one line of the log. Before the engine's threads
 * are started. */
void twi_watcher_start(tw_engine *engine);
void twi_watcher_stop(tw_engine *engine);
/* In a forked child: the parent's socket is left alone. The child has a socket if its path is free (%p in it, or the
 * parent is gone); otherwise it has no socket. */
void twi_watcher_renew(tw_engine *engine);
/* In a forked child that has none: the parent's socket is left alone. */
void twi_watcher_abandon(tw_engine *engine);

#endif
