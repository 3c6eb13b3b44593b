/* waiters.h -- operations that wait for units, a flush or a statement, which the turn brings. The turn looks at them.
 * In a shared engine each process looks at its own ones by its second thread or by tw_turn(), also if it does not
 * lead.
 *
 * At most TWI_WAITERS_TURN looks a turn, round robin. A waiter whose key had too few units for the previous waiter is
 * not looked at in that turn: ten thousand waiters of one key cost one look.
 * Always true: one thread at a time looks. A look runs without the lock, and the waiter is in no list meanwhile. */
#ifndef TWI_CORE_WAITERS_H
#define TWI_CORE_WAITERS_H

#include "engine/core/operation.h"

#define TWI_WAITERS_TURN 256u

/* The operation waits from now on, according to its look_ms, wakes, each_turn and shares_units. Its caller does not
 * touch it any more. */
void twi_waiter_add(struct twi_operation *operation, enum twi_look (*look)(struct twi_operation *operation));
/* Looks at those that are due. Does nothing if another thread does that. */
void twi_waiters_turn(tw_engine *engine);
/* Called when the engine stops. Each waiter is looked at again, and then ends. Any thread. */
void twi_waiters_stop(tw_engine *engine);

#endif
