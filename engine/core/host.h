/* host.h -- the one door to the host's own functions: the closing hook, log_write, on_lost, the passwords, `done`. One
 * rule is true for all these functions; the header states it for users (chapter 4):
 *   - It may block. Meanwhile callers read the clocks (twi_clock_away()), so no window ends late for them.
 *   - It may count, acquire and read. It may not wait for the engine whose turn waits for it. The thread is marked
 *     (in_hook), and such calls answer TW_ERR_MODE (operation.h).
 *   - When it has been taken away, it is not running any more. tw_family_set() waits for a hook that it has taken away
 *     (twi_host_wait_for_hook()); the others go with their engine, and tw_close() ends the threads that call them.
 * Visitors are no functions of this kind: they run in the thread that called tw_each() and the like.
 * Always true: no other file calls a function that the header's option structs name; scripts/layers.sh reads the names
 * from the header. clock_now_ns is the exception. It is called for every time, and may not block. */
#ifndef TWI_CORE_HOST_H
#define TWI_CORE_HOST_H

#include "engine/core/family.h"

void twi_host_log(tw_engine *engine, int level, int event, const char *text);
void twi_host_lost(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int64_t delta,
                   int reason);

/* Calls the `done` of a call that is answered, and returns how long it took in ms; -1 means that it has forked, and
 * this is the child. Called by the thread that delivers. */
int64_t twi_host_done(tw_engine *engine, tw_request *call);

/* Calls the family's hook as it is now, by the owner of the turn. Returns true if the hook returned true, or if there
 * is none. */
bool twi_host_closed(struct tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags);
/* Called by the owner of the turn if the last owner has ended: a hook that it called in this process runs no more. */
void twi_host_hook_has_ended(tw_engine *engine);
/* Called under the roster's lock after the hook was changed. Returns the call to wait for; 0 means none. */
uint64_t twi_host_running_hook(const struct tw_family *family);
/* Returns when that call has ended. Do not call it inside of that call. */
void twi_host_wait_for_hook(struct tw_family *family, uint64_t call);

#endif
