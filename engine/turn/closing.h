/* closing.h -- the close coordinator. For TW_CLOSED_BY_ONE, one engine closes a window for all engines. This file is
 * the part that each engine plays.
 *
 *   drained ─▶ CLAIM ◀─wait─▶ Redis
 *                ├─ list ───────▶ RECORD: batches bring the names of this engine's keys again ─▶ CLAIM
 *                ├─ you ────────▶ READ: fetch the names of the others' keys ─▶ TOTALS: request all totals ─▶ CALL_HOOK
 *                └─ it is closed ▶ OVER
 *   CALL_HOOK ─hook returned true▶ DONE: report it to Redis ─▶ OVER         DONE ─late counts are missing▶ CLAIM
 *   CALL_HOOK ─true, before the window's time▶ PARTIAL: report it to Redis ─▶ OVER
 *   CALL_HOOK ─hook returned false for a minute▶ PASS ─▶ CLAIM              no answer for a minute: TW_CLOSED_LOCAL
 *   closed, but this engine has unsent counts ─▶ UNSENT ─drained▶ CLAIM: the window is closed again (TW_CLOSED_AGAIN)
 * The names are in Redis since the first counts (closing_election.h). They are recorded again only if Redis may lack
 * them: it has lost data, or the window was closed before. An engine without a hook ends after its first answer. If
 * keys are in several stores, their names are in several stores, too, and the engine lists them (closing_election.h).
 * The script is sync/script/close_election.lua.
 *
 * Every second, and with every message about a window, an engine sends the list of windows that it delays. These are
 * the windows that it may still count in. They are also the windows that it has counted in, as long as Redis has not
 * acknowledged the counts or has not answered the first claim. An engine may claim a window that no engine delays. A
 * claim expires automatically. It is renewed until the hook was called. If the engine dies, another one claims the
 * window.
 * Always true: the hook is called only under a claim that stays valid for at least half of its lifetime, and after
 * every total was requested again under that claim. A window that was reported is not reported again, even if Redis
 * forgets that, unless counts came later. If the last engine leaves and reports a window before its time, the next
 * engine that joins closes it again. An election ends with its window, or earlier. An ended election changes
 * nothing. Threads: only the turn calls these functions. */
#ifndef TWI_TURN_CLOSING_H
#define TWI_TURN_CLOSING_H

#include "engine/turn/closing_election.h"

enum twi_closing {
    TWI_CLOSING_WAIT,
    TWI_CLOSING_CALL_HOOK, /* call the hook, then twi_closing_hook_answered() */
    TWI_CLOSING_LOCAL,     /* call the hook with TW_CLOSED_LOCAL, then twi_closing_hook_answered() */
    TWI_CLOSING_OVER       /* the window is closed, by this engine or another */
};
/* Continues with a window that accepts no more counts and has at least one. `drained` means that the window has no
 * unsent counts. */
enum twi_closing twi_closing_step(tw_engine *engine, struct twi_generation *generation, bool drained, uint32_t *work);
/* Returns true if a hook was called for this window before, here or in another engine. */
bool twi_closing_is_repeat(const struct twi_generation *generation);
/* Called after the hook has returned. `reported` is its result. */
void twi_closing_hook_answered(tw_engine *engine, struct twi_generation *generation, bool reported);
/* Called if the hook returned false until its family had to close. Another engine's hook may get it. */
void twi_closing_refused(tw_engine *engine, struct twi_generation *generation);
/* Counts and logs that no hook was called for this window, or that the hook did not get all counts. */
void twi_closing_note_unreported(struct twi_generation *generation, const char *why);
/* Returns true if a sealed window with unsent counts has delayed the other engines for long enough. */
bool twi_closing_gives_up(const tw_engine *engine, const struct twi_generation *generation);
/* Called if Redis, or one of its stores, has lost data that includes counts of the window. Messages about the window
 * that were sent before do not count any more. */
void twi_closing_restart(struct twi_generation *generation);
/* Called if Redis may have forgotten acknowledged batches, and names with them. */
void twi_closing_doubt_names(tw_engine *engine);

/* Returns true while a message about the family has no reply yet. */
bool twi_closing_is_busy(const struct tw_family *family);
/* Called while closing. Returns true if Redis knows that this engine delays no window any more, or if Redis does not
 * reply. */
bool twi_closing_is_over(tw_engine *engine);
void twi_closing_free(struct tw_family *family);
/* Another process makes the turns from now on. The elections were in the memory of the process before, and begin again.
 * The claims in Redis are those of the engine. A hook whose return was not reported to Redis runs again. */
void twi_closing_inherit(tw_engine *engine);

/* ---- closing send ----
 * when a family has a message about its windows to send (closing.h). Called by the turn. */

struct tw_family;

/* Call it when something of the family has changed. It computes when the family's next message is due. */
void twi_closing_appoint(struct tw_family *family);

#endif
