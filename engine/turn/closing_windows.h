/* closing_windows.h -- windows that outlive the engines which counted in them (TW_CLOSED_BY_ONE, closing.h).
 *
 * An engine may be killed as soon as Redis has its counts. So the data that the closer of a window needs is in Redis by
 * then:
 *   - the names of the keys. The batch that brings a key's first counts of a window brings its name (batch.lua);
 *   - the window itself, in the family's list of windows that have counts and are not closed. Where all keys lie in one
 *     store, the batch makes that entry. Where they lie in several stores (closing_tags.h), the list is in another one.
 *     Then the engine announces the window with its heartbeat, and collects counts of the window after the reply.
 * The reply to a heartbeat has the first windows of that list. An engine that has a hook adopts those which should be
 * closed by now, though it has not counted there.
 * Always true: a window in which an engine has not counted is not given up before a heartbeat has shown that no closer
 * is needed there. Threads: the turn only. */
#ifndef TWI_TURN_CLOSING_WINDOWS_H
#define TWI_TURN_CLOSING_WINDOWS_H

#include "engine/core/family.h"
#include "engine/port/messages.h"

/* The family, or the whole engine, is being closed. */
static inline bool twi_closing_is_ending(const struct tw_family *family) {
    return family->engine->turn.closing || twi_load_relaxed(&family->requests.close_requested);
}

/* Returns true if the hook of this family is set. Takes the lock of the roster. */
bool twi_closing_has_hook(struct tw_family *family);

/* Returns false if the window is to be announced first, and a heartbeat that does so is due. After HOLD_MS of that it
 * is true all the same. */
bool twi_closing_may_collect(tw_engine *engine, struct twi_generation *generation);
/* Puts windows that are to be announced into a heartbeat. */
void twi_closing_announce(struct tw_family *family, struct twi_closing_message *message);
/* Redis has this heartbeat. */
void twi_closing_announced(struct tw_family *family, const struct twi_closing_message *message);

/* When an engine that has not counted in the window may look after it, by this engine's clock. */
int64_t twi_closing_due_ms(const struct twi_generation *generation);
/* Returns true if a heartbeat may still name this window, in which this engine has not counted. */
bool twi_closing_awaits_word(const struct twi_generation *generation);

#endif
