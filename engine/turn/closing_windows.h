/* closing_windows.h -- windows that outlive the engines which counted in them (TW_CLOSED_BY_ONE, closing.h).
 *
 * An engine may be killed as soon as Redis has received its counts. So at that time Redis must have all data that the
 * closer of a window needs:
 *   - The names of the keys. The batch with a key's first counts in a window also has the key's name (batch.lua).
 *   - The window itself, in the family's list of windows that have counts and are not closed. If all keys are in one
 *     store, the batch makes that entry. If keys are in several stores (closing_tags.h), the list is in another store
 *     than some counts. Then the engine announces the window with its heartbeat, and then collects its counts.
 * The reply to a heartbeat contains the first windows of that list. An engine with a hook adopts those windows that
 * should be closed by now, even if it has not counted in them.
 * Always true: if an engine has not counted in a window, it gives the window up only after a heartbeat has shown
 * that the window needs no closer. Threads: only the turn calls these functions. */
#ifndef TWI_TURN_CLOSING_WINDOWS_H
#define TWI_TURN_CLOSING_WINDOWS_H

#include "engine/core/family.h"
#include "engine/port/messages.h"

/* Returns true if the family, or the whole engine, is being closed. */
static inline bool twi_closing_is_ending(const struct tw_family *family) {
    return family->engine->turn.closing || twi_load_relaxed(&family->requests.close_requested);
}

/* Returns true if the family has a hook. It takes the lock of the roster. */
bool twi_closing_has_hook(struct tw_family *family);

/* Returns false if the window must be announced first, and a heartbeat that announces it is due. After HOLD_MS the
 * function returns true even without an announcement. */
bool twi_closing_may_collect(tw_engine *engine, struct twi_generation *generation);
/* Adds windows that must be announced to a heartbeat. */
void twi_closing_announce(struct tw_family *family, struct twi_closing_message *message);
/* Called when Redis has received this heartbeat. */
void twi_closing_announced(struct tw_family *family, const struct twi_closing_message *message);

/* Returns when an engine that has not counted in the window may adopt it, by this engine's clock. */
int64_t twi_closing_due_ms(const struct twi_generation *generation);
/* Returns true if a heartbeat may still name this window, in which this engine has not counted. */
bool twi_closing_awaits_word(const struct twi_generation *generation);

#endif
