/* turn_owner.c -- see turn_owner.h. */
#include "engine/core/turn_owner.h"

#define WITHOUT_SLOT UINT32_MAX /* nobody learns when such a thread ends */

uint32_t twi_turn_own(tw_engine *engine, uint32_t from) {
    struct twi_thread *self = twi_thread_here();
    uint32_t own = self != NULL ? twi_thread_number(self) : WITHOUT_SLOT, found = from;
    /* A thread may make the turn of another engine in a hook of this one. Its slot is kept for the outer one. */
    _Atomic uint32_t *turn_of = self != NULL ? &twi_thread_slot(self)->turn_of : NULL;
    bool is_outer = turn_of != NULL && twi_load_relaxed(turn_of) == 0;
    if (is_outer) twi_store_relaxed(turn_of, TWI_TURN_OF(engine));
    /* E1, pairs with E2. It makes all writes of the previous owner visible here */
    bool owns = twi_cas_acqrel(&engine->turn.owned, &found, own);
    if (!owns && is_outer) twi_store_release(turn_of, 0);
    /* A thread forks at any moment, and its child has the memory of that moment. The child sees what the owner changes
     * after this only together with this. */
    if (owns) (void)twi_swap_acqrel(&engine->here->is_turning, true);
    return found;
}

void twi_turn_disown(tw_engine *engine) {
    twi_check(twi_turn_is_owned(engine));
    struct twi_thread *self = twi_thread_self;
    twi_store_release(&engine->here->is_turning, false); /* before the next owner may set it */
    twi_store_release(&engine->turn.owned, 0);           /* E2 */
    if (!twi_thread_has_slot(self)) return;
    _Atomic uint32_t *turn_of = &twi_thread_slot(self)->turn_of;
    if (twi_load_relaxed(turn_of) == TWI_TURN_OF(engine)) twi_store_release(turn_of, 0);
}
