/* remote.h -- the life of an engine's sync with Redis, and the engine's id there.
 *
 *   a private engine   made by tw_open(), and again in a forked child; ended by tw_close()
 *   a shared engine    tw_open() only checks the options. The process that leads makes it before its first turn, and
 *                      ends it when it hands over
 * Always true: of a shared engine, only the process whose sync was made last uses its sync. The engine's id is drawn
 * when the engine is opened, and in a forked child that becomes an engine of its own, never in one that joins. */
#ifndef TWI_TURN_REMOTE_H
#define TWI_TURN_REMOTE_H

#include "engine/core/state.h"

/* Draws the engine's id in Redis: 128 random bits. */
void twi_remote_name(tw_engine *engine);
/* Called by tw_open(), and in a forked child that becomes an engine of its own. TW_ERR_OPTIONS names the field that
 * does not fit. */
tw_status twi_remote_open(tw_engine *engine);
/* Called in each turn. The first turn of a process that leads a shared engine makes its sync, which continues with what
 * the previous one has left. If that fails, the error is logged, and a turn one second later tries again. */
void twi_remote_turn(tw_engine *engine);
/* For the process that leads and hands over; the owner of the turn. Returns true when Redis has acknowledged what was
 * counted until the first call, and no reply is due that settles counters. Before that, more turns are needed. */
bool twi_remote_is_finished(tw_engine *engine);
/* Ends the sync. Batches without a reply are left to the process that leads next. Nothing is given up. */
void twi_remote_leave(tw_engine *engine);
/* The end of the sync of an engine that ends. What it has not sent is given up. */
void twi_remote_end(tw_engine *engine);
/* Frees what the processes of a shared engine have together, in this process. */
void twi_remote_free(tw_engine *engine);

#endif
