/* recover_process.h -- gives back what processes have left that shared the engine and have gone.
 * Always true: a place is free for another process only after everything of it is given back. */
#ifndef TWI_TURN_RECOVER_PROCESS_H
#define TWI_TURN_RECOVER_PROCESS_H

#include "tallywheel.h"

/* Called by the owner of the turn, in each turn. A bounded piece of work. */
void twi_recover_processes(tw_engine *engine);

#endif
