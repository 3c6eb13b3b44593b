/* agenda.h -- which families the turn has to look at: those that are due, those of which there is news, and no others.
 *
 *   due by engine time ─┐                       two heaps, by the family's own next times (rollover.c, history.c)
 *   due by monotonic   ─┼─▶ the turn's round
 *   news               ─┘                       a list that any thread pushes to: opened, changed, closed, a window opened
 *   always: families that age, or that are being closed, every turn            search: all others, in turn, once a second
 *
 * The search finds windows that somebody has opened and has not yet told of (rollover.c).
 * Always true: a family is in both heaps, or among those of always; its times there are no later than it has set. What
 * was told before a turn is looked at in that turn. All but twi_agenda_notify() is the turn's. */
#ifndef TWI_CORE_AGENDA_H
#define TWI_CORE_AGENDA_H

#include "engine/core/family.h"

/* There is news of the family: it is looked at in the next turn. Any thread, after what there is to be seen. */
void twi_agenda_notify(struct tw_family *family);
/* The families to be looked at now, by `next_due`. */
struct tw_family *twi_agenda_take(struct tw_engine *engine);
/* It was looked at: when it is due next, by its own times. */
void twi_agenda_enter(struct tw_engine *engine, struct tw_family *family);
/* It is about to be freed. */
void twi_agenda_leave(struct tw_engine *engine, struct tw_family *family);
/* The next one to be searched for windows that nobody has told of; NULL: no more in this turn. `left` begins at 0. */
struct tw_family *twi_agenda_search(struct tw_engine *engine, uint32_t *left);
/* When something is due, monotonic. */
int64_t twi_agenda_next_ms(const struct tw_engine *engine);
/* In a forked child: nothing is due, and all are news. */
void twi_agenda_renew(struct tw_engine *engine);

#endif
