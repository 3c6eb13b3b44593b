/* flush_serve.h -- tw_flush() in a shared engine. Any process takes a number. The leader takes a ticket of its sync for
 * all numbers that were given until then, and says when it is done.
 * Always true: a number is served only after a collection that began after it was given. Marks of threads that have
 * ended are finished earlier in the same turn (twi_dirty_heal). A leader that ends leaves numbers that are not served,
 * and the next one takes a new ticket for them. */
#ifndef TWI_TURN_FLUSH_SERVE_H
#define TWI_TURN_FLUSH_SERVE_H

#include "engine/core/state.h"

/* Any thread of any process. */
uint64_t twi_flush_take(tw_engine *engine);
enum twi_ticket twi_flush_state(const tw_engine *engine, uint64_t number);
/* Called by the owner of the turn, in each turn before the sync's. */
void twi_flush_serve(tw_engine *engine);

#endif
