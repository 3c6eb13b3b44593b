/* agenda.h -- which families the turn examines: families that are due, families with news, and no others.
 *
 *   due by engine time ─┐                       two heaps, by the family's own next times (rollover.c, windows.c)
 *   due by monotonic   ─┼─▶ the turn's round
 *   news               ─┘                       a list that any thread pushes to: family or window changed
 *   always: families with idle eviction, or with a window that is being ended: every turn
 *   search: all others, one after the other, once a second
 *
 * The search finds windows that a thread has opened and not yet announced (rollover.c). A round of many families takes
 * several turns. The next round begins when it has ended, so each family is examined once before any family is examined
 * again.
 * Two more heaps are for what the turn sends of families of two kinds: gauges (gauge.c), and windows that one engine
 * closes (engine/turn/closing.c).
 * Always true: a family is in both heaps, or among those of `always`, or in the round. Its times in the heaps are not
 * later than those it has set. Only the turn calls these functions, except twi_agenda_notify(). */
#ifndef TWI_CORE_AGENDA_H
#define TWI_CORE_AGENDA_H

#include "engine/core/family.h"

/* ---- appointment ----
 * a pairing heap of families in order of time. The links are in the families, so the heap allocates no
 * memory.
 * Always true: a heap is named by its earliest member, and no member is later than its children. An appointment is
 * in one heap at most. The turn only. */

#define TWI_APPOINTMENT_NEVER INT64_MAX

/* Sets the time of the appointment. TWI_APPOINTMENT_NEVER removes it from the heap. */
void twi_appointment_set(struct twi_appointment **heap, struct twi_appointment *appointment, int64_t at_ms);
/* Returns the family that has been due for the longest time, if one is due at `now_ms`, and removes it from the
 * heap. NULL means that no family is due. */
struct tw_family *twi_appointment_take(struct twi_appointment **heap, int64_t now_ms);

/* For tests and checks of level 3: walks the heap and counts its members. Returns false if the heap is not in order. */
bool twi_appointments_are_valid(const struct twi_appointment *heap, uint32_t *count);

/* Announces news of the family: the next turn examines it. Any thread, after the change itself. */
void twi_agenda_notify(struct tw_family *family);
/* Finishes this for the thread with that number, which ended while it may have announced news of the family. */
void twi_agenda_heal(struct tw_family *family, uint32_t number);
/* After a turn that did not end, by the thread that took over: every family is examined again, and the lists are whole.
 * Afterwards a family that is not in a list may still seem to be among the news (recover.c). */
void twi_agenda_recover(struct tw_engine *engine);
/* Returns true if the family is in the list of the news. */
bool twi_agenda_has_news(const struct tw_family *family);
/* Begins a round with all families to examine now, if the last round has ended. */
void twi_agenda_begin_round(struct tw_engine *engine);
/* Returns the next family of the round, or NULL if the round has ended. */
struct tw_family *twi_agenda_take(struct twi_agenda *agenda);
/* The family has been examined. Enters it by its own next times. */
void twi_agenda_enter(struct twi_agenda *agenda, struct tw_family *family);
/* The family is about to be freed. */
void twi_agenda_leave(struct twi_agenda *agenda, struct tw_family *family);
/* The next family to search for unannounced windows. NULL means that there is no more in this turn. `left` begins at
 * 0. */
struct tw_family *twi_agenda_search(struct tw_engine *engine, uint32_t *left);
/* When the next family is due, monotonic. */
int64_t twi_agenda_next_ms(const struct tw_engine *engine);
/* When the engine is opened, and in a forked child: no family is due or has news. */
void twi_agenda_begin(struct tw_engine *engine);
/* The same for a family: it is not due, and has no news. */
void twi_agenda_begin_family(struct tw_family *family);

/* Used by tests and by checks of level 3. Only the owner of the turn calls it. It walks heaps and families. */
bool twi_agenda_is_valid(const tw_engine *engine);

#endif
